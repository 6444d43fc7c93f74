"""Each folder of tests/golden/live holds what is applied (``old``), what is rendered (``new``), and the plan.

``NAME.map`` and ``NAME.pem`` are the declared files; a certificate is any text there, a real one takes its place where
HAProxy reads it. Lines behind ``>`` are what goes over the socket, exactly. ``PYCONFD_UPDATE_GOLDEN=1 pytest
tests/haproxy/test_live_golden.py`` writes the plans again; read the difference before you commit it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import plan
from pyconfd.haproxy.runtime.batch import transcript
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.model.operations import Command
from pyconfd.model.plan import Noop, Plan, Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from tests.haproxy.process_model import ProcessModel
from tests.world.haproxy import BINARY, HaproxyProcess
from tests.world.pki import CertificateAuthority

GOLDEN = Path(__file__).parents[1] / "golden" / "live"
CASES = sorted(path.name for path in GOLDEN.iterdir())
UPDATE = "PYCONFD_UPDATE_GOLDEN" in os.environ
FILES_DIR = "/etc/haproxy/generated/files"
LANDING_PAGE = "/etc/pyconfd/www/index.html"
VERSIONS = {
    "2.6": Abilities(runtime=True, why=""),
    "3.0": Abilities(runtime=True, why="", cookies=True),
    "3.4": Abilities(runtime=True, why="", cookies=True, backends=True),
    "without a socket": Abilities(why="there is no socket"),
}


def read(case: str, which: str) -> Rendering:
    folder = GOLDEN / case
    files = []
    for path in sorted(folder.glob(f"{which}.*")):
        name = path.name.removeprefix(f"{which}.")
        if name.endswith(".map"):
            files.append(OutputFile(FileKind.MAP, f"{FILES_DIR}/maps/{name}", path.read_text()))
        elif name.endswith(".pem"):
            files.append(OutputFile(FileKind.CERTIFICATE, f"{FILES_DIR}/certs/{name}", path.read_text()))
    return Rendering((Piece("all", (folder / f"{which}.cfg").read_text()),), tuple(files))


def planned(case: str, version: str) -> Plan:
    return plan(read(case, "new"), read(case, "old"), None, abilities=VERSIONS[version])


def commands_of(made: Plan) -> tuple[Command, ...]:
    """Return what goes over the socket, before a reload too."""
    live = made.live if isinstance(made, Reload) else made
    return live.commands if isinstance(live, RuntimeUpdate) else ()


def written(made: Plan) -> str:
    """Return a plan as it stands in ``plan.txt``."""
    if isinstance(made, Noop):
        return "nothing to do\n"
    lines = ["live"] if isinstance(made, RuntimeUpdate) else [f"reload: {', '.join(made.reasons)}"]
    lines += [f"    {detail}" for detail in made.details]
    if isinstance(made, Reload):
        lines += [f"avoided by: {advice}" for advice in made.advice]
    commands = commands_of(made)
    if isinstance(made, Reload) and commands:
        lines.append("at once, before it:")
    lines += [f"> {line}".rstrip() for line in transcript(commands)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("case", CASES)
def test_the_plan(case: str) -> None:
    plans = [(version, written(planned(case, version))) for version in VERSIONS]
    parts = [
        f"[{', '.join(version for version, _ in same)}]\n{text}" for text, same in groupby(plans, lambda pair: pair[1])
    ]
    path = GOLDEN / case / "plan.txt"
    if UPDATE:
        path.write_text("\n".join(parts))
    assert "\n".join(parts) == path.read_text()


@pytest.mark.parametrize("version", [name for name, can in VERSIONS.items() if can.runtime])
@pytest.mark.parametrize("case", CASES)
def test_what_goes_live_makes_the_old_process_the_new_one(case: str, version: str) -> None:
    made = planned(case, version)
    process, wanted = ProcessModel.of(read(case, "old")), ProcessModel.of(read(case, "new"))
    if isinstance(made, RuntimeUpdate):
        for command in made.commands:
            process.execute(command)
    if not isinstance(made, Reload):
        assert process.comparable() == wanted.comparable()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two certificates with their keys."""
    authority = CertificateAuthority(tmp_path_factory.mktemp("pki"))
    one, two = (authority.server(name, [f"{name}.example.com"]) for name in ("one", "two"))
    return one.cert.read_text() + one.key.read_text(), two.cert.read_text() + two.key.read_text()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a short path, as sockets need it."""
    with TemporaryDirectory(prefix="lg-") as path:
        yield Path(path)


def placed(rendering: Rendering, folder: Path, pairs: tuple[str, str]) -> Rendering:
    """Return ``rendering`` with its files in ``folder``, real certificates, and UNIX sockets in the place of ports."""
    text = re.sub(r"(?m)^( +bind) \S+", lambda found: f"{found[1]} unix@{folder}/b{found.start()}", rendering.text)
    text = re.sub(r" crt (?!/etc/haproxy/generated)\S+", f" crt {FILES_DIR}/certs/own.pem", text)
    text = text.replace(FILES_DIR, str(folder)).replace(LANDING_PAGE, str(folder / "landing.http"))
    text = re.sub(r"stats socket \S+", f"stats socket {folder}/s", text)
    if "stats socket" not in text:
        text = f"global\n    stats socket {folder}/s level admin\n{text}"
    (folder / "landing.http").write_text("HTTP/1.0 503 Service Unavailable\r\n\r\n")
    files = [
        OutputFile(
            file.kind,
            file.path.replace(FILES_DIR, str(folder)),
            pairs["2" in file.content] if file.kind is FileKind.CERTIFICATE else file.content,
        )
        for file in rendering.files
    ]
    return Rendering((Piece("all", text),), tuple(files))


def install(rendering: Rendering, folder: Path, pairs: tuple[str, str]) -> Path:
    for name in ("maps", "certs"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    (folder / "certs" / "own.pem").write_text(pairs[0])
    for file in rendering.files:
        Path(file.path).write_text(file.content)
    conf = folder / "haproxy.cfg"
    conf.write_text(rendering.text)
    return conf


@pytest.mark.haproxy
@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.parametrize("case", CASES)
def test_haproxy_takes_both(case: str, which: str, folder: Path, pairs: tuple[str, str]) -> None:
    conf = install(placed(read(case, which), folder, pairs), folder, pairs)
    done = subprocess.run([BINARY, "-W", "-c", "-f", str(conf)], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


GOES_LIVE = [case for case in CASES if any(commands_of(planned(case, version)) for version in VERSIONS)]


@pytest.mark.haproxy
@pytest.mark.parametrize("case", GOES_LIVE)
def test_a_real_haproxy_answers_as_it_should(case: str, folder: Path, pairs: tuple[str, str]) -> None:
    """What goes live with this one, the part before a reload too: every answer is checked, and the result read back."""
    old, new = (placed(read(case, which), folder, pairs) for which in ("old", "new"))
    install(old, folder, pairs)
    with HaproxyProcess(folder) as haproxy:
        haproxy.start()
        runtime = Runtime(dynamic_backends=True)
        try:
            abilities = runtime.connect([str(folder / "s")])
            assert abilities.runtime
            runtime.execute(commands_of(plan(new, old, None, abilities=abilities)))
        finally:
            runtime.close()
