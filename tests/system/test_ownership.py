"""Root, in a directory that another user owns, against that user exchanging what is in it between root's calls."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pyconfd.errors import TransientError
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.haproxy.runtime.overrides import Override, OverrideStore
from pyconfd.model.operations import ServerState
from pyconfd.settings import ApplySettings, HaproxySettings
from pyconfd.system.files import Installation, NewFile, as_owner_of, controlling_owner, remove_tree, replace_shared
from tests.haproxy.bench import rendering
from tests.world.haproxy import configuration

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NOBODY = 65534
CALLS = ("chown", "chmod", "fchown", "fchmod", "mkdir", "link", "rename", "rmdir", "unlink", "open", "scandir")


@pytest.fixture
def roots() -> Iterator[Path]:
    """Return a directory of root's that others can reach; above pytest's own none is for others."""
    with TemporaryDirectory() as path:
        Path(path).chmod(0o711)
        yield Path(path)


@pytest.fixture
def theirs(roots: Path) -> Path:
    """Return a directory of the user nobody."""
    directory = roots / "theirs"
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    return directory


class Victim:
    """Files of root's that only root may touch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "0").mkdir(parents=True)
        for name in ("file", "0/file", "haproxy.cfg"):
            (directory / name).write_text("of root's")
        for path in (directory, directory / "0", *self.files):
            path.chmod(0o755 if path.is_dir() else 0o600)

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.directory.rglob("*") if path.is_file())

    def state(self) -> list[tuple[str, int, int, int, str]]:
        found = []
        for path in sorted((self.directory, *self.directory.rglob("*"))):
            status = path.lstat()
            content = path.read_text() if path.is_file() else ""
            found.append((path.name, status.st_uid, status.st_gid, status.st_mode, content))
        return found


def swap(directory: Path, victim: Victim, kind: str) -> None:
    """Create a link to the victim in place of each entry, as its owner may."""
    target = victim.directory if kind == "directory" else victim.directory / "file"
    for entry in list(os.listdir(directory)):  # noqa: PTH208 - as little as possible between two calls
        path = directory / entry
        if path.is_dir() != (kind == "directory") or path.is_symlink():
            continue
        with suppress(FileNotFoundError, FileExistsError):
            path.rename(directory / f"was-{len(os.listdir(directory))}")  # noqa: PTH208
            path.symlink_to(target)


@contextmanager
def swapping_before(number: int, directory: Path, victim: Victim, kind: str) -> Iterator[list[int]]:
    """Swap a directory's content once, as its owner may, right before the call with this number."""
    calls = [0]
    real = {name: getattr(os, name) for name in CALLS}

    def hooked(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                restore()
                uid = os.geteuid()
                os.seteuid(NOBODY)
                try:
                    swap(directory, victim, kind)
                except OSError as error:
                    pytest.fail(f"the attack itself failed: {error}")
                finally:
                    os.seteuid(uid)
            return real[name](*arguments, **named)

        return call

    def restore() -> None:
        for name, function in real.items():
            setattr(os, name, function)

    for name in CALLS:
        setattr(os, name, hooked(name))
    try:
        yield calls
    finally:
        restore()


def prepared(directory: Path) -> Path:
    (directory / "stale" / "0").mkdir(parents=True)
    (directory / "stale" / "0" / "file").write_text("")
    (directory / "haproxy.cfg").write_text("former")
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return directory


def checked(directory: Path) -> None:
    settings = HaproxySettings(conf=str(directory / "haproxy.cfg"), chk_cmd=("/bin/true",))
    check(rendering(configuration(18080)), settings=settings, unit=UnitFacts(found=True, user="nobody"))


def installed(directory: Path) -> None:
    installation = Installation([NewFile(str(directory / "haproxy.cfg"), b"new"), NewFile(str(directory / "b"), b"x")])
    installation.stage()
    installation.install()
    installation.finish()


def replaced(directory: Path) -> None:
    replace_shared(str(directory / "file"), b"new")


def removed(directory: Path) -> None:
    remove_tree(directory / "stale")


def overridden(directory: Path) -> None:
    with OverrideStore(str(directory)).edited() as stored:
        stored[DRAIN.key] = DRAIN


DRAIN = Override("backend", "server", ServerState.DRAIN, 10.0)
WRITERS = [checked, installed, replaced, removed, overridden]


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_swap_before_any_call_reaches_nothing_of_roots(
    roots: Path, theirs: Path, write: Callable[[Path], None], kind: str
) -> None:
    victim = Victim(roots / "victim")
    before = victim.state()
    number, calls = 0, [1]
    while number <= calls[0]:
        number += 1
        place = prepared(theirs / f"{number}")
        with swapping_before(number, place, victim, kind) as calls, suppress(OSError, TransientError):
            write(place)
        assert victim.state() == before, f"before call {number}"
    assert number > 3


def test_a_swap_in_a_loop_gains_nothing_from_a_check(roots: Path, theirs: Path) -> None:
    victim = Victim(roots / "victim")
    before = victim.state()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        while True:
            for kind in ("file", "directory"):
                swap(theirs, victim, kind)
    try:
        for _ in range(30):
            with suppress(OSError, TransientError):
                checked(theirs)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert victim.state() == before


def test_a_link_out_of_the_directory_gets_no_file_of_roots(roots: Path, theirs: Path) -> None:
    """Root would have written what the other user may not."""
    victim = Victim(roots / "victim")
    before = victim.state()
    (theirs / "state").symlink_to(victim.directory)
    (theirs / "haproxy.cfg").symlink_to(victim.directory / "file")
    with pytest.raises(TransientError):
        replace_shared(str(theirs / "state" / "file"), b"new")
    with pytest.raises(TransientError):
        Installation([NewFile(str(theirs / "haproxy.cfg"), b"new")]).stage()
    assert victim.state() == before


def test_what_root_writes_belongs_to_the_owner(theirs: Path) -> None:
    replace_shared(str(theirs / "new" / "file"), b"")
    for path in (theirs / "new", theirs / "new" / "file"):
        assert path.stat().st_uid == NOBODY
    with as_owner_of(theirs / "x"), pytest.raises(PermissionError):
        (theirs.parent / "refused").touch()
    (theirs.parent / "allowed").touch()


def test_links_of_roots_are_followed_to_the_owner(roots: Path, theirs: Path) -> None:
    (roots / "link").symlink_to("theirs")
    found = controlling_owner(roots / "link" / "deep" / "file")
    assert found is not None
    assert found.st_uid == NOBODY
    assert controlling_owner(roots / "own" / "file") is None
    assert controlling_owner(theirs) is None  # it lies in a directory of root's


def test_a_daemon_of_roots_refuses_directories_of_others(roots: Path, theirs: Path) -> None:
    for conf, state_dir in ((theirs / "a.cfg", roots), (roots / "a.cfg", theirs)):
        balancer = Balancer(HaproxySettings(conf=str(conf)), ApplySettings(), str(state_dir), unit=UnitFacts())
        with pytest.raises(TransientError, match="start pyconfd as nobody"):
            balancer.startup()
        assert list(theirs.iterdir()) == []
