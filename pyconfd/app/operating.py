"""The commands by which an operator takes over: servers drained or in maintenance, all applying paused.

They change HAProxy themselves, so that they work without the daemon too; the daemon keeps what they wrote down.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyconfd.daemon.pause import Pause
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.expected import ExpectedServer, expected_backend, keys_of, keys_with_servers
from pyconfd.haproxy.index import Index, index_of
from pyconfd.haproxy.lookup import find_servers
from pyconfd.haproxy.overrides import Override, OverrideKey, OverrideStore
from pyconfd.haproxy.readback import ServerNow, condition_of, takes_traffic
from pyconfd.haproxy.runtime import NotLive, Runtime
from pyconfd.haproxy.sections import stats_sockets
from pyconfd.model.plan import ServerState
from pyconfd.model.status import LiveStatus, Paused
from pyconfd.settings import Settings
from pyconfd.status.durations import short
from pyconfd.status.report import read_report
from pyconfd.status.text import override_words
from pyconfd.system.files import exists


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server as ``pyconfd server list`` shows it; ``by_hand`` and ``leaving`` are words, "" for none.

    ``override`` is what ``pyconfd server`` set; ``leaves`` where it is on its way out, ``leaves_since`` 0.0 if unknown.
    """

    server: str
    address: str
    state: str
    weight: int
    sessions: int
    by_hand: str = ""
    leaving: str = ""
    override: Override | None = None
    leaves: bool = False
    leaves_since: float = 0.0

    @property
    def values(self) -> dict[str, Any]:
        """All of it as plain data."""
        one = self.override
        set_by_hand = {"state": one.state.value, "since": one.since, "until": one.until} if one is not None else None
        return {
            "server": self.server,
            "address": self.address,
            "state": self.state,
            "weight": self.weight,
            "sessions": self.sessions,
            "by_hand": set_by_hand,
            "leaving": {"since": self.leaves_since} if self.leaves else None,
        }


@dataclass(slots=True)
class _Haproxy:
    """What serves: the installed configuration, and the process where it answers (else ``runtime`` is None)."""

    index: Index
    runtime: Runtime | None
    why: str

    def close(self) -> None:
        if self.runtime is not None:
            self.runtime.close()

    def expected(self, backend: str) -> Mapping[str, ExpectedServer]:
        found = [expected_backend(self.index, key, cookies=True) for key in keys_of(self.index, backend)]
        return next((one.servers for one in found if one is not None), {})

    def knows(self, backend: str) -> bool:
        """Return whether the text tells which servers the backend has."""
        keys = keys_of(self.index, backend)
        return any(expected_backend(self.index, key, cookies=True) is not None for key in keys)

    def servers(self) -> list[ServerNow]:
        if self.runtime is not None:
            return self.runtime.servers()
        names = [key.name for key in keys_with_servers(self.index)]
        return [_as_in_file(one) for name in names for one in self.expected(name).values()]


def set_servers(
    settings: Settings,
    name: str,
    state: ServerState,
    *,
    for_s: float | None = None,
    several: bool = False,
    clock: Callable[[], float] = time.time,
) -> str:
    """Set the state of a server in the process, and remember it so that the daemon keeps it; give a sentence about it.

    ``for_s`` is how long; READY ends what was set before. ``several`` takes all that ``name`` stands for.

    Raises:
        RejectedInput: ``name`` stands for no server, for more than one, or for one that is on its way out.
        TransientError: HAProxy may not be changed by this user, or it cannot be written down.
    """
    haproxy = _haproxy(settings, changing=True)
    try:
        found = find_servers(name, haproxy.servers(), several=several)
        for server in found:
            if haproxy.knows(server.backend) and server.name not in haproxy.expected(server.backend):
                message = f"{_name(server)} is on its way out: it is no longer in the configuration"
                raise RejectedInput(Problem("server", message, "see pyconfd server list"))
        now = clock()
        until = now + for_s if for_s else 0.0
        overrides = [Override(one.backend, one.name, state, now, until) for one in found]
        _set(OverrideStore(settings.state_dir), haproxy, overrides)
        return "\n".join([*_said(found, state, for_s), *_notes(settings, haproxy, found, state)])
    except NotLive as error:
        raise TransientError(
            Problem("haproxy", str(error), "try again; pyconfd server list shows what is set")
        ) from error
    finally:
        haproxy.close()


def servers(settings: Settings, wanted: str = "", *, clock: Callable[[], float] = time.time) -> tuple[ServerRow, ...]:
    """Return the servers of the process; ``wanted`` is a backend, or what :func:`set_servers` takes; "" for all.

    Raises:
        RejectedInput: there is none like it.
        TransientError: HAProxy cannot be asked.
    """
    haproxy = _haproxy(settings, changing=False)
    try:
        if haproxy.runtime is None:
            raise TransientError(Problem("haproxy", haproxy.why))
        everything = haproxy.servers()
        found = [one for one in everything if one.backend == wanted or not wanted]
        found = found or find_servers(wanted, everything, several=True)
        return _rows(settings, haproxy, haproxy.runtime, found, clock())
    except NotLive as error:
        raise TransientError(Problem("haproxy", str(error))) from error
    finally:
        haproxy.close()


def _rows(
    settings: Settings, haproxy: _Haproxy, runtime: Runtime, found: Sequence[ServerNow], now: float
) -> tuple[ServerRow, ...]:
    backends = list(dict.fromkeys(one.backend for one in found))
    sessions = runtime.sessions(backends)
    expected = {name: haproxy.expected(name) if haproxy.knows(name) else None for name in backends}
    overrides = OverrideStore(settings.state_dir).refresh()
    since = {one.server: one.since for one in _live(settings).leaving}
    rows = []
    for one in found:
        known = overrides.get(OverrideKey(one.backend, one.name))
        its = expected[one.backend]
        leaves = its is not None and one.name not in its
        age = f"leaving for {short(now - since[_name(one)])}" if _name(one) in since else "leaving"
        row = ServerRow(
            _name(one),
            one.target,
            condition_of(one),
            one.weight,
            sessions.get((one.backend, one.name), 0),
            _by_hand(known, now) if known is not None else "",
            age if leaves else "",
            known,
            leaves,
            since.get(_name(one), 0.0) if leaves else 0.0,
        )
        rows.append(row)
    return tuple(rows)


def pause(
    settings: Settings, *, for_s: float | None = None, reason: str = "", clock: Callable[[], float] = time.time
) -> str:
    """Freeze all applying; give a sentence about it.

    Raises:
        TransientError: it cannot be written down.
    """
    now = clock()
    Pause(settings.state_dir).begin(Paused(now, now + for_s if for_s else 0.0, reason))
    end = f"for {short(for_s)}, or until" if for_s else "until"
    return f"Nothing is applied {end} `pyconfd resume`; HAProxy serves on as it is. pyconfd status shows it."


def resume(settings: Settings, *, clock: Callable[[], float] = time.time) -> str:
    """Let changes through again; give a sentence about it.

    Raises:
        TransientError: the pause cannot be ended.
    """
    paused = Pause(settings.state_dir)
    former = paused.read(clock())
    paused.end()
    if former is None:
        return "It was not paused."
    return f"Changes are applied again, after {short(clock() - former.since)}."


def _haproxy(settings: Settings, *, changing: bool) -> _Haproxy:
    try:
        text = Path(settings.haproxy.conf).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        remedy = "run it as root or as pyconfd" if isinstance(error, PermissionError) else "is haproxy.conf right?"
        problem = Problem(settings.haproxy.conf, f"cannot be read: {error.strerror}", remedy)
        raise TransientError(problem) from error
    paths = [path for path in (settings.haproxy.runtime_socket, *stats_sockets(text)) if path]
    runtime = Runtime()
    abilities = runtime.connect(paths)
    if abilities.runtime:
        return _Haproxy(index_of(text), runtime, "")
    if abilities.answered and changing:
        raise TransientError(Problem("haproxy", "it cannot be changed while it runs", abilities.why))
    forbidden = [path for path in paths if exists(path) and not os.access(path, os.W_OK)]
    if forbidden or not paths:
        remedy = "run it as root or as pyconfd" if forbidden else abilities.why
        what = f"{forbidden[0]} may not be used by this user" if forbidden else "it has no `stats socket`"
        raise TransientError(Problem("haproxy", what, remedy))
    return _Haproxy(index_of(text), None, abilities.why)


def _set(store: OverrideStore, haproxy: _Haproxy, overrides: Sequence[Override]) -> None:
    """Store the overrides, then change the process.

    In this order: the daemon brings into force what is stored, and would undo what is not.
    """
    with store.edited() as stored:
        former = dict(stored)
        for override in overrides:
            _store_one(stored, haproxy, override)
        written = dict(stored)
    if haproxy.runtime is None:
        return
    try:
        haproxy.runtime.execute([override.command for override in overrides])
    except NotLive:
        with store.edited() as stored:
            for key in {override.key for override in overrides}:
                _restore(stored, key, written.get(key), former.get(key))
        raise


def _store_one(stored: dict[OverrideKey, Override], haproxy: _Haproxy, override: Override) -> None:
    expected = haproxy.expected(override.backend).get(override.server)
    stored.pop(override.key, None)
    if override.state is not ServerState.READY or (expected is not None and expected.state is not ServerState.READY):
        stored[override.key] = override


def _restore(
    stored: dict[OverrideKey, Override], key: OverrideKey, written: Override | None, former: Override | None
) -> None:
    """Take back what was written under ``key``, unless somebody else changed it since."""
    if stored.get(key) != written:
        return
    stored.pop(key, None)
    if former is not None:
        stored[key] = former


def _said(found: Sequence[ServerNow], state: ServerState, for_s: float | None) -> list[str]:
    lines = []
    for server in found:
        now = {ServerState.DRAIN: "drains", ServerState.MAINT: "is in maintenance", ServerState.READY: "is ready"}[
            state
        ]
        lasting = f" for {short(for_s)}" if for_s else ""
        lines.append(f"{_name(server)} ({server.target}) {now}{lasting}.")
    return lines


def _notes(settings: Settings, haproxy: _Haproxy, found: Sequence[ServerNow], state: ServerState) -> Iterable[str]:
    if haproxy.runtime is None:
        yield f"HAProxy does not answer ({haproxy.why}): it is written down, and takes effect when pyconfd reaches it."
    elif state is not ServerState.READY:
        for backend in dict.fromkeys(server.backend for server in found):
            if not any(takes_traffic(one) for one in haproxy.runtime.servers([backend])):
                yield f"No server of {backend} takes traffic now."
    if not read_report(settings).running:
        yield "No pyconfd runs: until one does, nothing ends it in time, or keeps it through a reload."


def _live(settings: Settings) -> LiveStatus:
    report = read_report(settings)
    return report.status.live if report.status is not None and report.running else LiveStatus()


def _by_hand(override: Override, now: float) -> str:
    return override_words(override.state.value, override.since, override.until, "command", now)


def _name(server: ServerNow) -> str:
    return f"{server.backend}/{server.name}"


def _as_in_file(expected: ExpectedServer) -> ServerNow:
    """Return a server of the file as the process would show it, as far as a name can be found by it."""
    server = expected.server
    host, _, port = server.address.rpartition(":")
    address = host.rpartition("@")[2].strip("[]")
    made = ServerNow(
        server.backend, server.server, address, int(port) if port.isdigit() else 0, 0, maint=False, drain=False
    )
    return replace(made, weight=expected.weight or 0)
