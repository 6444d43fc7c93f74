"""``pyconfd server``: show HAProxy's servers, and drain them, put them into maintenance, or end that.

It changes HAProxy itself, so that it works without the daemon too; the daemon keeps what is written down here.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pyconfd.cli.command import CommandContext, command, command_group, for_option, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_notes, print_table, print_text
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.config.index import Index, configured_backend, index_of, keys_of, keys_with_servers
from pyconfd.haproxy.config.servers import ConfiguredBackend, ConfiguredServer
from pyconfd.haproxy.config.text import hard_stop_after, stats_sockets
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.unit import gather
from pyconfd.haproxy.runtime.former_workers import FormerSessions, sessions_of_former
from pyconfd.haproxy.runtime.overrides import Override, OverrideKey, OverrideStore
from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.haproxy.runtime.servers_now import ServerNow, condition_of, find_servers, takes_traffic
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.operations import ServerState
from pyconfd.printable import short_duration
from pyconfd.settings import Settings
from pyconfd.status.document import read_report
from pyconfd.status.text import end_of_former, override_words
from pyconfd.system.files import exists

_EXITS = {
    Exit.FAILED: "there is no such server, or more than one",
    Exit.TEMPORARY: "HAProxy may not be changed by this user, does not answer, or the state directory is not writable",
}
_NAME = "NAME is BACKEND/SERVER, or the name or address of a server where only one has it."

server = command_group(
    "server",
    "Drain servers, or put them into maintenance.\n\n"
    "Show HAProxy's servers, and set their state by hand. It takes effect at once, with or without the daemon, and"
    " the daemon keeps it through updates and reloads until its time is over or `ready` ends it."
    f"\n\n{_NAME}",
    examples={
        "pyconfd server list": "state, weight, sessions, and what was set by hand",
        "pyconfd server drain be_shop/web-1 --for 30m": "nothing new for half an hour",
        "pyconfd server maint 10.0.0.5 --all": "every server at this address",
        "pyconfd server ready be_shop/web-1": "as the cluster says again",
    },
    exits=_EXITS,
)


_STATES = {
    ServerState.DRAIN: "Send a server nothing new; what is connected stays, also who is bound to it by a cookie.",
    ServerState.MAINT: "Put a server into maintenance: no traffic, no health checks.",
    ServerState.READY: "End what was set by hand on a server: its state is as the cluster says.",
}


def _state_command(state: ServerState, what: str) -> None:
    examples = {f"pyconfd server {state.value} be_shop/web-1": "", f"pyconfd server {state.value} 10.0.0.5 --all": ""}

    @command(state.value, f"{what}\n\n{_NAME}", examples=examples, exits=_EXITS, group=server)
    @click.argument("name", metavar="NAME")
    @for_option
    @click.option("--all", "several", is_flag=True, help="All servers that NAME stands for.")
    def set_state(context: CommandContext, name: str, for_s: float | None, *, several: bool) -> int:
        print_text(set_servers(context.settings(), name, state, for_s=for_s, several=several, now=time.time()))
        return Exit.OK


for _state, _what in _STATES.items():
    _state_command(_state, _what)


@command(
    "list",
    examples={
        "pyconfd server list": "all",
        "pyconfd server list be_shop": "one backend",
        "pyconfd server list --by-hand": "",
    },
    exits=_EXITS,
    group=server,
)
@click.argument("wanted", metavar="[WANTED]", default="")
@click.option("--by-hand", is_flag=True, help="Only those that were set by hand, or are on their way out.")
@json_option
def list_servers(context: CommandContext, wanted: str, *, as_json: bool, by_hand: bool) -> int:
    """Show the servers.

    Show the servers that HAProxy has: state, weight, connections in use, what was set by hand with its age and end, and
    which are on their way out. Sessions that former workers of HAProxy still have are counted beside them, with the
    time at which hard-stop-after ends them. WANTED is a backend, or a server as the other commands take it.
    """
    rows, why = server_rows(context.settings(), wanted, now=time.time())
    rows = tuple(row for row in rows if row.by_hand or row.leaving or not by_hand)
    if why:
        print_notes([f"sessions in former workers are not counted: {why}"])
    if as_json:
        print_json([row.values for row in rows])
    elif rows:
        print_table(("server", "address", "state", "weight", "sessions", ""), [row.cells for row in rows])
    else:
        print_text("No server was set by hand or is on its way out." if by_hand else "HAProxy has no server.")
    return Exit.OK


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server as ``pyconfd server list`` shows it; ``by_hand`` and ``leaving`` are words, "" for none.

    ``override`` is what ``pyconfd server`` set; ``leaves`` where it is on its way out, ``leaves_since`` 0.0 if unknown.
    ``former`` are its sessions in former workers, ``former_words`` say so, and ``former_end`` is when
    ``hard-stop-after`` ends the last of them (seconds since the epoch, 0.0 for never).
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
    former: int = 0
    former_words: str = ""
    former_end: float = 0.0

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
            "former_sessions": {"count": self.former, "ends_at": self.former_end} if self.former else None,
            "by_hand": set_by_hand,
            "leaving": {"since": self.leaves_since} if self.leaves else None,
        }

    @property
    def cells(self) -> tuple[str, ...]:
        """What the table shows."""
        more = "; ".join(words for words in (self.by_hand, self.leaving, self.former_words) if words)
        return self.server, self.address, self.state, str(self.weight), str(self.sessions), more


@dataclass(frozen=True, slots=True)
class _SessionsInFormerWorkers:
    """The sessions in former workers; ``why`` says why these could not be asked, "" where they could.

    ``stop_s`` is ``hard-stop-after``, None where there is none.
    """

    workers: tuple[FormerSessions, ...]
    stop_s: float | None
    why: str = ""

    def of(self, server: tuple[str, str]) -> list[FormerSessions]:
        """Return the workers with sessions of this server."""
        return [worker for worker in self.workers if worker.sessions.get(server)]

    def count(self, server: tuple[str, str]) -> int:
        """Return how many sessions these are."""
        return sum(worker.sessions[server] for worker in self.of(server))

    def end(self, server: tuple[str, str], now: float) -> float:
        """Return when ``hard-stop-after`` ends the last of them, 0.0 for never."""
        if self.stop_s is None:
            return 0.0
        return max((now + self.stop_s - each.worker.replaced_s for each in self.of(server)), default=0.0)

    def words(self, server: tuple[str, str], now: float) -> str:
        """Return how many there are and when they end, "" for none."""
        found = self.of(server)
        if not found:
            return ""
        where = "a former worker" if len(found) == 1 else f"{len(found)} former workers"
        return f"{self.count(server)} more in {where}: {end_of_former(self.end(server, now), now)}"

    def servers(self, known: Collection[tuple[str, str]]) -> list[ServerNow]:
        """Return the servers that only former workers have, with sessions."""
        gone = {key: worker.addresses.get(key, "") for worker in self.workers for key in worker.sessions}
        return [_as_in_text(key, address) for key, address in gone.items() if key not in known]


@dataclass(slots=True)
class _InstalledHaproxy:
    """The installed configuration, and the process where it answers (else ``runtime`` is None)."""

    index: Index
    runtime: Runtime | None
    why: str
    former: "_SessionsInFormerWorkers"

    def close(self) -> None:
        if self.runtime is not None:
            self.runtime.close()

    def backend(self, name: str) -> ConfiguredBackend | None:
        """Return its servers; None where the text does not say which there are."""
        found = (configured_backend(self.index, key) for key in keys_of(self.index, name))
        return next((one for one in found if one is not None), None)

    def servers(self) -> list[ServerNow]:
        if self.runtime is not None:
            return self.runtime.servers()
        found = (configured_backend(self.index, key) for key in keys_with_servers(self.index))
        return [_as_in_file(server) for one in found if one is not None for server in one.servers.values()]


def set_servers(
    settings: Settings,
    name: str,
    state: ServerState,
    *,
    for_s: float | None,
    several: bool,
    now: float,
) -> str:
    """Set the state of a server in the process, and store it so that the daemon keeps it; return sentences about it.

    ``for_s`` is how long; READY ends what was set before. ``several`` takes all that ``name`` stands for.

    Raises:
        RejectedInput: ``name`` stands for no server, for more than one, or for one that is on its way out.
        TransientError: HAProxy may not be changed by this user, or it cannot be written down.
    """
    haproxy = _haproxy(settings, changing=True)
    try:
        found = find_servers(name, haproxy.servers(), several=several)
        for server in found:
            backend = haproxy.backend(server.backend)
            if backend is not None and server.name not in backend.servers:
                message = f"{_name(server)} is on its way out: it is no longer in the configuration"
                raise RejectedInput(Problem("server", message, "see pyconfd server list"))
        until = now + for_s if for_s else 0.0
        overrides = [Override(one.backend, one.name, state, now, until) for one in found]
        _set(OverrideStore(settings.state_dir), haproxy, overrides)
        return "\n".join([*_said(found, state, for_s), *_notes(settings, haproxy, found, state)])
    except NotConfirmed as error:
        raise TransientError(
            Problem("haproxy", str(error), "try again; pyconfd server list shows what is set")
        ) from error
    finally:
        haproxy.close()


def server_rows(settings: Settings, wanted: str, *, now: float) -> tuple[tuple[ServerRow, ...], str]:
    """Return the servers of the process, and why former workers could not be asked, "" where they could.

    ``wanted`` is a backend, or what :func:`set_servers` takes; "" for all.

    Raises:
        RejectedInput: there is none like it.
        TransientError: HAProxy cannot be asked.
    """
    haproxy = _haproxy(settings, changing=False)
    try:
        if haproxy.runtime is None:
            raise TransientError(Problem("haproxy", haproxy.why))
        everything = haproxy.servers()
        everything += haproxy.former.servers({(one.backend, one.name) for one in everything})
        found = [one for one in everything if one.backend == wanted or not wanted]
        found = found or find_servers(wanted, everything, several=True)
        return _rows(settings, haproxy, haproxy.runtime, found, now), haproxy.former.why
    except NotConfirmed as error:
        raise TransientError(Problem("haproxy", str(error))) from error
    finally:
        haproxy.close()


def _rows(
    settings: Settings, haproxy: _InstalledHaproxy, runtime: Runtime, found: Sequence[ServerNow], now: float
) -> tuple[ServerRow, ...]:
    backends = list(dict.fromkeys(one.backend for one in found))
    sessions = runtime.sessions(backends)
    configured = {name: haproxy.backend(name) for name in backends}
    overrides = OverrideStore(settings.state_dir).refresh()
    report = read_report(settings)
    leaving = report.status.live.leaving if report.status is not None and report.running else ()
    since = {one.server: one.since for one in leaving}
    rows = []
    for one in found:
        override = overrides.get(OverrideKey(one.backend, one.name))
        key, backend = (one.backend, one.name), configured[one.backend]
        leaves = backend is not None and one.name not in backend.servers
        leaves_since = since.get(_name(one), 0.0) if leaves else 0.0
        age = f"leaving for {short_duration(now - leaves_since)}" if leaves_since else "leaving"
        words = override_words(override.state.value, override.since, override.until, "command", now) if override else ""
        rows.append(
            ServerRow(
                _name(one),
                one.target,
                condition_of(one) if key in sessions else "gone",
                one.weight,
                sessions.get(key, 0),
                words,
                age if leaves else "",
                override,
                leaves,
                leaves_since,
                haproxy.former.count(key),
                haproxy.former.words(key, now),
                haproxy.former.end(key, now),
            )
        )
    return tuple(rows)


def installed_text(settings: Settings) -> str:
    """Return the configuration that is installed.

    Raises:
        TransientError: it cannot be read.
    """
    try:
        return Path(settings.haproxy.conf).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        remedy = "run it as root or as pyconfd" if isinstance(error, PermissionError) else "is haproxy.conf right?"
        problem = Problem(settings.haproxy.conf, f"cannot be read: {error.strerror}", remedy)
        raise TransientError(problem) from error


def _haproxy(settings: Settings, *, changing: bool) -> _InstalledHaproxy:
    text = installed_text(settings)
    paths = stats_sockets(text, settings.haproxy.runtime_socket)
    runtime = Runtime()
    abilities = runtime.connect(paths)
    if abilities.runtime:
        return _InstalledHaproxy(index_of(text), runtime, "", _former(settings, text))
    if abilities.answered and changing:
        raise TransientError(Problem("haproxy", "it cannot be changed while it runs", abilities.why))
    forbidden = [path for path in paths if exists(path) and not os.access(path, os.W_OK)]
    if forbidden or not paths:
        remedy = "run it as root or as pyconfd" if forbidden else abilities.why
        what = f"{forbidden[0]} may not be used by this user" if forbidden else "it has no `stats socket`"
        raise TransientError(Problem("haproxy", what, remedy))
    return _InstalledHaproxy(index_of(text), None, abilities.why, _SessionsInFormerWorkers((), None))


def _former(settings: Settings, text: str) -> _SessionsInFormerWorkers:
    master_socket = HaproxyProcess(settings.haproxy, gather(settings.haproxy.unit)).master_socket
    try:
        return _SessionsInFormerWorkers(sessions_of_former(master_socket), hard_stop_after(text))
    except NoAnswer as error:
        # Without a master there is no former worker that could be asked.
        return _SessionsInFormerWorkers((), None, "" if error.refused else f"{error} (run it as root or as pyconfd)")


def _set(store: OverrideStore, haproxy: _InstalledHaproxy, overrides: Sequence[Override]) -> None:
    """Store the overrides, then change the process.

    In this order: the daemon brings into force what is stored, and would undo what is not.
    """
    with store.edited() as stored:
        former = {override.key: stored.pop(override.key, None) for override in overrides}
        for override in overrides:
            backend = haproxy.backend(override.backend)
            server = backend.servers.get(override.server) if backend is not None else None
            # Ready is what a server is without an override, unless the configuration says otherwise.
            if override.state is not ServerState.READY or (server and server.state is not ServerState.READY):
                stored[override.key] = override
    if haproxy.runtime is None:
        return
    try:
        haproxy.runtime.execute([override.command for override in overrides])
    except NotConfirmed:
        with store.edited() as stored:
            for key, before in former.items():
                stored.pop(key, None)
                if before is not None:
                    stored[key] = before
        raise


def _said(found: Sequence[ServerNow], state: ServerState, for_s: float | None) -> Iterator[str]:
    words = {ServerState.DRAIN: "drains", ServerState.MAINT: "is in maintenance", ServerState.READY: "is ready"}
    lasting = f" for {short_duration(for_s)}" if for_s else ""
    for server in found:
        yield f"{_name(server)} ({server.target}) {words[state]}{lasting}."


def _notes(
    settings: Settings, haproxy: _InstalledHaproxy, found: Sequence[ServerNow], state: ServerState
) -> Iterable[str]:
    if haproxy.runtime is None:
        yield f"HAProxy does not answer ({haproxy.why}): it is written down, and takes effect when pyconfd reaches it."
    elif state is not ServerState.READY:
        for server in found:
            if words := haproxy.former.words((server.backend, server.name), time.time()):
                yield f"{_name(server)} has {words}."
        if haproxy.former.why:
            yield f"Sessions in former workers are not counted: {haproxy.former.why}."
        for backend in dict.fromkeys(server.backend for server in found):
            if not any(takes_traffic(one) for one in haproxy.runtime.servers([backend])):
                yield f"No server of {backend} takes traffic now."
    if not read_report(settings).running:
        yield "No pyconfd runs: until one does, nothing ends it in time, or keeps it through a reload."


def _name(server: ServerNow) -> str:
    return f"{server.backend}/{server.name}"


def _as_in_text(key: tuple[str, str], address: str) -> ServerNow:
    """Return a server that only a former worker has."""
    host, _, port = address.rpartition(":")
    number = int(port) if port.isdigit() else 0
    return ServerNow(*key, host.strip("[]"), number, 0, maint=False, drain=True)


def _as_in_file(server: ConfiguredServer) -> ServerNow:
    """Return a server of the file as the process would show it, as far as a name can be found by it."""
    host, _, written = server.address.rpartition(":")
    address, port = host.rpartition("@")[2].strip("[]"), int(written) if written.isdigit() else 0
    return ServerNow(server.backend, server.name, address, port, server.weight or 0, maint=False, drain=False)
