"""Compares a configuration that pyconfd did not write with what would replace it, until an operator has decided.

Only before the first generation. The operator's decision is a file of the state directory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyconfd.errors import Problem
from pyconfd.haproxy.config.text import Bind, binds, digest_in, parse
from pyconfd.haproxy.process import host
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.observation import Running
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.hold import ADOPTION, SHOWN
from pyconfd.settings import HaproxySettings
from pyconfd.system.files import AS_ROOT, replace_shared

_MARK = "adopted"
_NAMED = ("frontend", "listen", "backend")


@dataclass(frozen=True, slots=True)
class UnmanagedConfiguration:
    """A configuration that HAProxy serves and pyconfd did not write.

    ``text`` is None where it cannot be read, because it is ``missing`` or for want of a right.
    """

    path: str
    text: str | None
    missing: bool = False

    def lost(self, after: str) -> tuple[str, ...]:
        """Return the names of frontends, binds and backends that the configuration ``after`` lacks."""
        if self.text is None:
            return ("whatever it serves (this user may not read it)",)
        return tuple(_lost(self.text, after))

    def problem(self, after: str) -> Problem | None:
        """Return what would disappear with ``after`` and what to do, None for nothing."""
        lost = self.lost(after)
        if not lost:
            return None
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        message = f"would disappear, as pyconfd did not write it: {', '.join(lost[:SHOWN])}{more}"
        return Problem(self.path, message, "to keep it: pyconfd adopt --copy; to replace it: pyconfd adopt")


def foreign(settings: HaproxySettings, unit: UnitFacts) -> UnmanagedConfiguration | None:
    """Return the configuration that HAProxy has loaded, or will at its next start, unless pyconfd wrote it.

    A haproxy that was not restarted since the installation still runs with another file; the installed one counts only
    where none does.
    """
    if loaded := loaded_elsewhere(settings, unit):
        return _unless_ours(loaded)
    installed = _unless_ours((settings.conf,))
    return None if installed is not None and installed.missing else installed


def loaded_elsewhere(settings: HaproxySettings, unit: UnitFacts) -> tuple[str, ...]:
    """Return what the running haproxy was started with where that is not the installed file, else nothing."""
    process = HaproxyProcess(settings, unit)
    running = process.observe([])
    pids = [unit.main_pid, running.master_pid if isinstance(running, Running) else 0, process.master_by_pid_file]
    found = filter(None, map(host.configuration_files, filter(None, pids)))
    return next((loaded for loaded in found if not host.loads(loaded, settings.conf)), ())


def adopted(state_dir: str) -> frozenset[str]:
    """Return the ID of the hold that ends with the adoption, nothing before it."""
    return frozenset({ADOPTION}) if Path(state_dir, _MARK).exists() else frozenset()


def adopt(state_dir: str) -> None:
    """Allow the first configuration to replace what is there; raises TransientError."""
    replace_shared(str(Path(state_dir, _MARK)), b"", forbidden=AS_ROOT)


def _unless_ours(paths: tuple[str, ...]) -> UnmanagedConfiguration | None:
    named = " ".join(paths)
    try:
        text = "\n".join(each.read_text(encoding="utf-8", errors="replace") for path in paths for each in _files(path))
    except OSError as error:
        return UnmanagedConfiguration(named, None, missing=isinstance(error, FileNotFoundError))
    return None if digest_in(text) else UnmanagedConfiguration(named, text)


def _files(path: str) -> list[Path]:
    """Return what ``-f`` loads: of a directory the files ``*.cfg`` by name. Source: haproxy(1)."""
    place = Path(path)
    if not place.is_dir():
        return [place]
    return sorted(each for each in place.glob("*.cfg") if each.is_file() and not each.name.startswith("."))


def _lost(before: str, after: str) -> Iterator[str]:
    kept = {section.title for section in parse(after)}
    bound = {_socket(bind) for bind in binds(after)}
    by_proxy: dict[str, list[Bind]] = {}
    for bind in binds(before):
        by_proxy.setdefault(bind.proxy, []).append(bind)
    found = dict.fromkeys((section.keyword, section.title) for section in parse(before) if section.keyword in _NAMED)
    for keyword, title in sorted(found, key=lambda one: _NAMED.index(one[0])):
        own = by_proxy.get(title, [])
        if title not in kept:
            yield f"{title} ({', '.join(bind.text for bind in own)})" if own else title
        elif keyword != "backend":
            yield from (f"{bind.text} of {title}" for bind in own if _socket(bind) not in bound)


def _socket(bind: Bind) -> object:
    return bind.identity if bind.judged else bind.text
