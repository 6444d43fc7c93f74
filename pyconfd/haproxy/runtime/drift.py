"""Repairs servers that were changed on HAProxy's socket, and keeps the states that operators set.

Which servers a backend has, their addresses and weights belong to the configuration and are repaired. A server that
was put into drain or maintenance on the socket is left so and reported: a repair would send traffic to it.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from pyconfd.haproxy.config.index import Index, SectionKey, configured_backend, keys_of, keys_with_servers
from pyconfd.haproxy.config.servers import ConfiguredBackend, ConfiguredServer, is_literal
from pyconfd.haproxy.runtime.overrides import GONE_AFTER_S, KnownOverrides, Override, OverrideKey, OverrideStore
from pyconfd.haproxy.runtime.runtime import Leaving, NotConfirmed, Runtime
from pyconfd.haproxy.runtime.servers_now import (
    ServerNow,
    server_rows,
    servers_now,
    state_of,
    takes_traffic,
    wrong_address,
)
from pyconfd.model.operations import Command, RemoveServer, ServerState, SetState, SetWeight
from pyconfd.model.status import BackendDown, LeavingStatus, LiveStatus, OverrideStatus
from pyconfd.printable import clean

log = structlog.get_logger(__name__)

ROUND_S = 60.0
"""How long a sweep of all backends may take."""
SLICE = 20
"""Backends that are compared each time, where that is enough for :data:`ROUND_S`."""
MAX_SLICE = 1_000
"""Limit of one slice of the sweep, so that no update waits long for it."""
SHOWN = 1_000
"""Servers on their way out, and backends that are down, that the status names."""
REASONS_ASKED = 10
"""Of so many backends that went down it is asked why in one sweep; each takes one question."""
REASON_WIDTH = 200
_UP = 2
"""``srv_op_state`` of a server that takes traffic. Source: ``enum srv_state`` in HAProxy 2.6 to 3.4."""


@dataclass(slots=True)
class Drift:
    """How backends in the process differ from the configuration and the overrides, and what is done about it.

    It is judged by the overrides, the servers on their way out, and what this HAProxy can do (``cookies`` on servers
    that are added). ``fresh``: the overrides were not brought into force in this worker yet.

    ``compared`` backends were asked for. ``commands`` repair, end overrides and bring them into force; ``repairs`` say
    in words what is repaired. ``beyond`` is what only a reload repairs, with its backend. ``foreign`` are states that
    were set on the socket. ``overrides`` are those to store in place of what they were, None to end them.
    """

    known: KnownOverrides = field(compare=False, default_factory=dict)
    leaving: Mapping[tuple[str, str], Leaving] = field(compare=False, default_factory=dict)
    now: float = field(compare=False, default=0.0)
    fresh: bool = field(compare=False, default=False)
    cookies: bool = field(compare=False, default=True)
    compared: int = 0
    commands: list[Command] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    beyond: dict[str, str] = field(default_factory=dict)
    foreign: dict[OverrideKey, ServerState] = field(default_factory=dict)
    overrides: dict[OverrideKey, Override | None] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how much differs."""
        return len(self.commands) + len(self.beyond) + len(self.foreign) + len(self.overrides)

    def judge(self, backend: ConfiguredBackend, servers: Iterable[ServerNow]) -> None:
        """Compare the servers of a backend in the process with its configuration and overrides."""
        there = {server.name: server for server in servers}
        for name, expected in backend.servers.items():
            if (backend.name, name) in self.leaving:
                continue  # it comes back as it should be once the former one has gone
            server = there.get(name)
            if server is None:
                self._judge_missing(backend, expected)
            elif why := _elsewhere(server, expected):
                self._judge_address(backend, server, why, there)
            elif not expected.addition.agent_checked:
                # An agent sets state and weight all the time; nothing distinguishes that from what people do.
                self._judge_state(expected, server)
        for name, server in there.items():
            former = self.leaving.get((backend.name, name))
            if name not in backend.servers and (former is None or state_of(server) is ServerState.READY):
                gone = RemoveServer(backend.name, name, server.target) if former is None else former.command
                self._repair(f"{backend.name}/{name} takes traffic but is not in the configuration", gone)

    def judge_absent(self, overrides: Iterable[Override]) -> None:
        """Judge the overrides of servers that the configuration does not have."""
        for override in overrides:
            gone_for_s = self.now - (override.missing_since or self.now)
            if override.expired(self.now) or gone_for_s >= GONE_AFTER_S:
                self.overrides[override.key] = None
            elif not override.missing_since:
                self.overrides[override.key] = replace(override, missing_since=self.now)

    def _repair(self, what: str, *commands: Command) -> None:
        self.commands += commands
        self.repairs.append(what)

    def _judge_missing(self, backend: ConfiguredBackend, expected: ConfiguredServer) -> None:
        what = f"{backend.name}/{expected.name} is missing"
        if obstacle := backend.obstacle(expected, cookies=self.cookies):
            self.beyond[f"{what} ({obstacle})"] = backend.name
            return
        override = self.known.get(OverrideKey(backend.name, expected.name))
        kept = [override.command] if override is not None and not override.expired(self.now) else []
        self._repair(what, expected.addition, *kept)

    def _judge_address(
        self, backend: ConfiguredBackend, server: ServerNow, why: str, there: Mapping[str, ServerNow]
    ) -> None:
        """Remove a server with another address; it is added again once it is gone.

        To set its address in place would send requests to the wrong one for a while, on connections that are kept.
        """
        what = f"{server.backend}/{server.name} {why}"
        obstacle = backend.obstacle(backend.servers[server.name], cookies=self.cookies)
        if not obstacle and not any(self._serves(one, backend) for one in there.values() if one.name != server.name):
            obstacle = "no other server of its backend could serve meanwhile"
        if obstacle:
            self.beyond[f"{what} ({obstacle})"] = backend.name
        else:
            self._repair(what, RemoveServer(server.backend, server.name, server.target))

    def _serves(self, server: ServerNow, backend: ConfiguredBackend) -> bool:
        expected = backend.servers.get(server.name)
        if expected is None or (backend.name, server.name) in self.leaving or _elsewhere(server, expected):
            return False
        return server.weight > 0 and server.operating == _UP and state_of(server) is ServerState.READY

    def _judge_state(self, expected: ConfiguredServer, server: ServerNow) -> None:
        key, what = OverrideKey(server.backend, server.name), f"{server.backend}/{server.name}"
        state, wanted, override = state_of(server), expected.state, self.known.get(key)
        if expected.weight is not None and server.weight != expected.weight:
            self._repair(f"{what} has the weight {server.weight}", SetWeight(*key, expected.weight))
        if override is not None and override.expired(self.now):
            self.overrides[key] = None
            if state is override.state is not wanted:
                self.commands.append(SetState(*key, wanted))
                return
            override = None
        if override is not None:
            wanted = override.state
            if override.missing_since:
                self.overrides[key] = replace(override, missing_since=0.0)
        if state is wanted:
            return
        if override is not None and self.fresh:
            self.commands.append(override.command)
        elif state is ServerState.READY:
            self._repair(f"{what} takes traffic but should be in {wanted}", SetState(*key, wanted))
        else:
            self.foreign[key] = state


def _elsewhere(server: ServerNow, expected: ConfiguredServer) -> str:
    """Return which other address a server has than the configuration says, "" for none."""
    if server.target == expected.address or not is_literal(expected.address):
        return ""
    return wrong_address(server, expected.address)


def _signature(index: Index, key: SectionKey, answer: str | None) -> tuple[object, ...]:
    """Return what a backend is judged by: most are the same at each sweep, and then nothing is parsed."""
    twice = key._replace(position=1) in index.texts
    return index.texts[key], index.above.get(key), twice, hash(answer and server_rows(answer))


class DriftMonitor:
    """Looks at a slice of the backends each time, all of them within :data:`ROUND_S`.

    ``beyond``, ``foreign`` and ``down`` are what was found in the backends as far as they were compared: what only a
    reload repairs (and its backend), the servers that were put into drain or maintenance on the socket, and the
    backends without a server that is up.
    """

    def __init__(self, overrides: OverrideStore, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._overrides = overrides
        self._monotonic = monotonic
        self._last_at: float | None = None
        self._queue: deque[SectionKey] = deque()
        self._round = 0
        self._seen: dict[SectionKey, tuple[object, ...]] = {}
        """The backends that were as they should be, or cannot be judged."""
        self._again: set[str] = set()
        """Backends that the next slice begins with."""
        self._in_force: tuple[int, KnownOverrides] = 0, {}
        """The worker and the overrides that were brought into force in it."""
        self.beyond: dict[str, str] = {}
        self.foreign: dict[OverrideKey, OverrideStatus] = {}
        self.down: dict[str, BackendDown] = {}
        self._without_reason: set[str] = set()
        """Backends that went down, and of which it was not asked yet why."""
        self._repaired_total = 0

    def restore(self, runtime: Runtime, index: Index) -> None:
        """Bring all overrides into force in a worker that has just loaded ``index``.

        Raises:
            NotConfirmed: it is not known whether they are.
        """
        now, commands = self._overrides.now(), []
        for backend, overrides in _by_backend(self._overrides.refresh()).items():
            found = (configured_backend(index, key) for key in keys_of(index, backend))
            names = {name for one in found if one is not None for name in one.servers}
            commands += [one.command for one in overrides if one.server in names and not one.expired(now)]
        runtime.execute(commands)
        if commands:
            log.info("overrides.restored", count=len(commands), worker=runtime.pid)

    def sweep(self, runtime: Runtime, index: Index, *, repair: bool = True) -> Drift:
        """Compare a slice of the process with ``index``, which it must have loaded, and repair what differs.

        ``runtime`` is connected. Without ``repair`` nothing is changed, neither in the process nor on disk.

        Raises:
            NotConfirmed: the process cannot be asked, or a repair did not take effect: a reload puts it right.
        """
        if not runtime.abilities.runtime or not runtime.pid:
            return Drift()
        known, now = self._overrides.refresh(), self._overrides.now()
        fresh = self._in_force != (runtime.pid, known)
        found = Drift(known, runtime.leaving, now, fresh, runtime.abilities.cookies)
        by_backend = _by_backend(known)
        keys = self._slice(index, {one.backend for one in known.values() if fresh or one.expired(now)})
        found.compared, self._again = len(keys), set()
        for key, answer in zip(keys, runtime.server_states([key.name for key in keys]), strict=True):
            self._compare(found, index, key, answer, by_backend.get(key.name, ()))
        self._ask_why(runtime)
        for name, overrides in by_backend.items():
            if next(keys_of(index, name), None) is None:
                found.judge_absent(overrides)
        if repair:
            runtime.execute(found.commands)
            self._overrides.update(found.overrides)
            self._in_force = runtime.pid, self._overrides.known
            self._again |= {one.backend for one in found.commands if isinstance(one, RemoveServer)}
            self._report(found, {key.name for key in keys})
        return found

    def _compare(
        self, found: Drift, index: Index, key: SectionKey, answer: str | None, overrides: Sequence[Override]
    ) -> None:
        """Judge one backend by the ``answer`` about it, unless it was in order and nothing is different since."""
        seen = _signature(index, key, answer)
        busy = overrides or any(backend == key.name for backend, _ in found.leaving)
        if self._seen.get(key) == seen and not busy:
            return
        self._seen.pop(key, None)
        differing, backend = len(found), configured_backend(index, key)
        if backend is not None and answer is None:
            found.beyond[f"backend {key.name} is missing"] = key.name
        elif backend is not None and answer is not None:
            if any((key.name, name) in found.leaving for name in backend.servers):
                self._again.add(key.name)  # it can be added when its predecessor is gone
            servers = list(servers_now(answer))
            self._note_down(index, key.name, servers, found.now)
            found.judge(backend, servers)
            found.judge_absent(one for one in overrides if one.server not in backend.servers)
        if len(found) == differing:
            self._seen[key] = seen

    def _note_down(self, index: Index, name: str, servers: Sequence[ServerNow], now: float) -> None:
        """Remember whether a backend has a server that is up."""
        if any(takes_traffic(server) for server in servers) or (not servers and _answers_itself(index, name)):
            self.down.pop(name, None)
        else:
            since = self.down[name].since if name in self.down else now
            why = "all are in maintenance" if all(server.maint for server in servers) else ""
            self.down[name] = BackendDown(name, len(servers), since, why)
            self._without_reason.add(name)

    def _ask_why(self, runtime: Runtime) -> None:
        """Ask for what the health checks said of some backends that went down: of each once, until it changes."""
        for name in sorted(self._without_reason)[:REASONS_ASKED]:
            self._without_reason.discard(name)
            one = self.down.get(name)
            if one is None or one.why or not one.servers:
                continue
            said: list[tuple[str, int]] = []
            with suppress(NotConfirmed):  # a reason that cannot be had is none to reload
                said = Counter(runtime.checks(name).values()).most_common(1)
            if said:
                self.down[name] = replace(one, why=clean(said[0][0], REASON_WIDTH))

    def _slice(self, index: Index, due: set[str]) -> list[SectionKey]:
        """Return the next sections, and those of the backends in ``due``."""
        now = self._monotonic()
        elapsed = 0.0 if self._last_at is None else now - self._last_at
        self._last_at = now
        if not self._queue:
            everything = keys_with_servers(index)
            self._queue.extend(everything)
            self._round = len(everything)
            self._seen = {key: self._seen[key] for key in everything if key in self._seen}
        for name in [name for name in self.down if next(keys_of(index, name), None) is None]:
            del self.down[name]
        count = min(MAX_SLICE, max(SLICE, math.ceil(self._round * elapsed / ROUND_S)), len(self._queue))
        taken = [self._queue.popleft() for _ in range(count)]
        found = [key for key in taken if key in index.texts]
        found += [key for name in sorted(due | self._again) for key in keys_of(index, name)]
        return list(dict.fromkeys(found))

    def _report(self, found: Drift, compared: set[str]) -> None:
        """Log what happened; what is not repaired once, until it is gone."""
        self._repaired_total += len(found.repairs)
        for detail in found.repairs:
            log.warning("drift.repaired", detail=detail)
        for key in (key for key, override in found.overrides.items() if override is None):
            ended = found.known[key]
            reason = "expired" if ended.expired(found.now) else "server_gone"
            log.info("override.ended", server=ended.name, state=ended.state.value, reason=reason)
        former, self.foreign = (
            self.foreign,
            {key: one for key, one in self.foreign.items() if key.backend not in compared},
        )
        for key, state in found.foreign.items():
            before = former.get(key)
            if before is not None and before.value == state:
                self.foreign[key] = before
            else:
                self.foreign[key] = OverrideStatus("/".join(key), state.value, found.now, source="socket")
                log.warning("drift.left", server="/".join(key), state=state.value, reason="not set by pyconfd")
        for detail in found.beyond.keys() - self.beyond.keys():
            log.warning("drift.needs_reload", detail=detail)
        still = {detail: backend for detail, backend in self.beyond.items() if backend not in compared}
        self.beyond = still | found.beyond

    def status(self, runtime: Runtime) -> LiveStatus:
        """Return what status and metrics show of ``runtime``, which counts by the clock of this monitor."""
        now, monotonic = self._overrides.now(), self._monotonic()
        leaving = sorted(runtime.leaving.values(), key=lambda one: one.since)
        by_command = (
            OverrideStatus(one.name, one.state.value, one.since, one.until, missing_since=one.missing_since)
            for one in self._overrides.known.values()
        )
        down = sorted(self.down.values(), key=lambda one: (one.since, one.backend))
        return LiveStatus(
            None,
            (*by_command, *self.foreign.values()),
            tuple(LeavingStatus("/".join(one.key), now - (monotonic - one.since)) for one in leaving[:SHOWN]),
            len(leaving),
            self._repaired_total,
            tuple(sorted(self.beyond)),
            down=tuple(down[:SHOWN]),
            down_total=len(down),
        )


_ANSWERS = frozenset({"return", "redirect", "deny", "reject", "tarpit", "use-service", "silent-drop"})
_WITHOUT_SERVERS = frozenset({"dispatch", "redirect", "server", "server-template", "stats", "use-fcgi-app"})


def _answers_itself(index: Index, name: str) -> bool:
    """Return whether a backend without servers is meant to be so: it answers, or gets them from elsewhere."""
    for key in keys_of(index, name):
        section = index.section(key)
        for words in (line.words for line in section.lines) if section is not None else ():
            if words[0] in _WITHOUT_SERVERS or _ANSWERS.intersection(words[1:2]):
                return True
            if words[0] == "option" and {"transparent", "http_proxy"}.intersection(words[1:2]):
                return True
    return False


def _by_backend(known: KnownOverrides) -> dict[str, list[Override]]:
    found: dict[str, list[Override]] = {}
    for override in known.values():
        found.setdefault(override.backend, []).append(override)
    return found
