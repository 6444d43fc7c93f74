"""The servers of the running process as its socket shows them. Pure."""

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.runtime.statistics import number, rows_of
from pyconfd.model.listener import canonical
from pyconfd.model.operations import ServerState


@dataclass(frozen=True, slots=True)
class ServerNow:
    """A server as ``show servers state`` gives it. ``maint`` and ``drain`` are those that were asked for by command."""

    backend: str
    name: str
    address: str
    port: int
    weight: int
    maint: bool
    drain: bool
    id: int = 0
    operating: int = 2
    changed_s: int = field(default=-1, compare=False)
    """Seconds since health checks last changed their mind; -1 where it is not known."""

    @property
    def target(self) -> str:
        """Address and port as a server line has them."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


_MAINT = 0x01
_DRAIN = 0x08
"""Forced maintenance, forced drain. That the configuration wanted maintenance (0x04) stays when it is ready again.

Source: ``enum srv_admin`` in HAProxy 2.6 to 3.4.
"""

_COLUMNS = (
    "be_name",
    "srv_name",
    "srv_addr",
    "srv_port",
    "srv_uweight",
    "srv_admin_state",
    "srv_id",
    "srv_op_state",
    "srv_time_since_last_change",
)
_HEADER = re.compile(r"^# (be_id [^\n]*)\n?", re.MULTILINE)
_FEW = 20
"""So many servers are looked for in the rows; more than that are found faster by a look at the name in each."""


def servers_now(answer: str, names: Collection[str] = ()) -> Iterator[ServerNow]:
    """Read ``show servers state``, only the servers of these ``names`` where some are given.

    Raises:
        ValueError: it is something else.
    """
    header, columns = _header(answer)
    places = [columns.index(name) for name in _COLUMNS]
    for row in _rows(answer, header.end(), names):
        fields = row.split(" ")
        if len(fields) >= len(columns):
            backend, name, address, port, weight, admin, number, operating, changed = (fields[at] for at in places)
            state = int(admin)
            yield ServerNow(
                backend,
                name,
                address,
                int(port),
                int(weight),
                bool(state & _MAINT),
                bool(state & _DRAIN),
                int(number),
                int(operating),
                int(changed),
            )


def server_rows(answer: str) -> frozenset[tuple[str, ...]]:
    """Return the rows of ``show servers state`` without what changes all the time: a tenth of the cost of servers.

    Raises:
        ValueError: it is something else.
    """
    header, columns = _header(answer)
    pick = itemgetter(*(columns.index(name) for name in _COLUMNS if name != "srv_time_since_last_change"))
    return frozenset(pick(row.split(" ")) for row in answer[header.end() :].split("\n") if row)


def _header(answer: str) -> tuple[re.Match[str], list[str]]:
    header = _HEADER.search(answer)
    if header is None:
        raise ValueError(answer.strip()[:200] or "an empty answer")
    return header, header[1].split(" ")


def _rows(answer: str, start: int, names: Collection[str]) -> Iterator[str]:
    """Return the rows after ``start``; those with one of ``names``, where a few are wanted of many."""
    if not names or len(names) > _FEW:
        rows, wanted = filter(None, answer[start:].split("\n")), frozenset(names)
        yield from (row for row in rows if not wanted or wanted.issuperset(row.split(" ", 4)[3:4]))
        return
    for name in names:
        word = f" {name} "
        at = answer.find(word, start)
        while at >= 0:
            begin, end = answer.rfind("\n", 0, at) + 1, answer.find("\n", at)
            row = answer[begin:] if end < 0 else answer[begin:end]
            # The name of the backend may be the same word.
            if row.split(" ", 4)[3:4] == [name]:
                yield row
            at = -1 if end < 0 else answer.find(word, end)


def stat_questions(backends: Sequence[str]) -> list[str]:
    """Return what to ask for the counters of the servers of these backends, sessions and checks among them.

    ``show servers conn`` counts no TCP session before 3.0. ``show stat`` takes a name that begins like a number for
    the number of a proxy: then all are asked for.
    """
    if any(not name[:1].isalpha() and name[:1] != "_" for name in backends):
        return [ALL_SESSIONS]
    return [f"show stat {name} 4 -1" for name in backends]


ALL_SESSIONS = "show stat -1 4 -1"
"""Servers (4) of all proxies."""


def sessions_now(answer: str) -> Iterator[tuple[tuple[str, str], int]]:
    """Read ``show stat``: backend and server, and the sessions that a server has; nothing of no backend.

    Raises:
        ValueError: it is something else.
    """
    if "No such proxy" in answer:
        return
    for backend, server, sessions in rows_of(answer, "pxname", "svname", "scur"):
        if sessions:
            yield (backend, server), number(sessions)


def checks_now(answer: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Read ``show stat``: backend and server, and what the last health check said; nothing of one without checks.

    Raises:
        ValueError: it is something else.
    """
    if "No such proxy" in answer:
        return
    columns = ("pxname", "svname", "check_status", "last_chk", "check_desc")
    for backend, server, status, last, description in rows_of(answer, *columns):
        if status:
            yield (backend, server), f"{status} {last or description}".strip()


def state_of(now: ServerNow) -> ServerState:
    """Return the state that was asked for by command; what health checks found is none."""
    # Drain stays remembered below maintenance, and is of no meaning there.
    if now.maint:
        return ServerState.MAINT
    return ServerState.DRAIN if now.drain else ServerState.READY


_OPERATING = {0: "down", 1: "starting", 2: "up", 3: "stopping"}
"""Source: ``enum srv_state`` in HAProxy 2.6 to 3.4."""


def takes_traffic(now: ServerNow) -> bool:
    """Return whether new sessions go to this server: it is up or starting, and has a weight."""
    return state_of(now) is ServerState.READY and now.operating in {1, 2} and now.weight > 0


def condition_of(now: ServerNow) -> str:
    """Return in one word how a server is: what was asked for by command, else what health checks found."""
    state = state_of(now)
    return state.value if state is not ServerState.READY else _OPERATING.get(now.operating, "unknown")


def wrong_address(now: ServerNow, target: str) -> str:
    """Return "" where a server has the address of a server line, else which one it has."""
    host, _, port = target.rpartition(":")
    host = host.rpartition("@")[2].strip("[]")
    if (now.port, canonical(now.address)) == (int(port) if port.isdigit() else 0, canonical(host)):
        return ""
    return f"has the address {now.address}:{now.port}"


_SHOWN = 10


def find_servers(name: str, servers: Sequence[ServerNow], *, several: bool = False) -> list[ServerNow]:
    """Return the servers that ``name`` means.

    That is ``backend/server``, the name of a server, its address with or without the port, or the pod that the names
    of shipped fragments begin with, in one backend (``backend/pod``) or any.

    Raises:
        RejectedInput: there is none, or more than one and not ``several``; names the candidates.
    """
    exact = [one for one in servers if _full(one) == name]
    found = exact or [one for one in servers if name in {one.name, one.target, one.address, f"[{one.address}]"}]
    found = found or [one for one in servers if f"{name}:" in {_pod(one), f"{one.backend}/{_pod(one)}"}]
    if not found:
        known = list(dict.fromkeys(text for one in servers for text in (_full(one), one.name, one.target)))
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "pyconfd server list shows all"
        raise RejectedInput(Problem("server", f"there is no server {name!r}", hint))
    if len(found) > 1 and not several:
        names = [f"{_full(one)} ({one.target})" for one in found]
        more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        candidates = ", ".join([*names[:_SHOWN], *more])
        message = f"{name!r} stands for {len(found)} servers: {candidates}"
        raise RejectedInput(Problem("server", message, "name one as BACKEND/SERVER, or take all with --all"))
    return found


def _pod(server: ServerNow) -> str:
    return server.name[: server.name.find(":") + 1]


def _full(server: ServerNow) -> str:
    return f"{server.backend}/{server.name}"
