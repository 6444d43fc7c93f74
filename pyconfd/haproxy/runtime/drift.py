"""Repairs servers that somebody changed behind pyconfd's back, and keeps the states that operators set.

Which servers a backend has, their addresses and weights belong to the configuration and are repaired. A server that
somebody put into drain or maintenance on HAProxy's socket is left so and reported: a repair would send traffic to it.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import structlog

from pyconfd.haproxy.config.index import (
    ExpectedBackend,
    ExpectedServer,
    Index,
    SectionKey,
    expected_backend,
    keys_of,
    keys_with_servers,
)
from pyconfd.haproxy.config.servers import Inherited
from pyconfd.haproxy.runtime.overrides import (
    GONE_AFTER_S,
    EndedOverride,
    EndReason,
    KnownOverrides,
    Override,
    OverrideKey,
    OverrideStore,
)
from pyconfd.haproxy.runtime.readback import ServerNow, server_rows, servers_now, state_of, takes_traffic, wrong_address
from pyconfd.haproxy.runtime.runtime import Leaving, Runtime
from pyconfd.model.plan import Command, RemoveServer, ServerState, SetState, SetWeight
from pyconfd.model.status import BackendDown, LeavingStatus, LiveStatus, OverrideStatus, Paused

log = structlog.get_logger(__name__)

ROUND_S = 60.0
"""How long looking at every backend may take."""
SLICE = 20
"""Backends that are looked at each time, where that is enough for :data:`ROUND_S`."""
MAX_SLICE = 1_000
"""What a look never exceeds, so that no update waits long for it."""
LEAVING_SHOWN = 1_000
DOWN_SHOWN = 1_000
"""Servers on their way out whose ages the status gives."""
_UP = 2
"""``srv_op_state`` of a server that takes traffic. Source: ``enum srv_state`` in HAProxy 2.6 to 3.4."""

LeavingServers = Mapping[tuple[str, str], Leaving]
"""Servers on their way out, by backend and name."""


@dataclass(slots=True)
class Judgement:
    """How the servers of the process differ from what they should be.

    ``commands`` end overrides, bring them into force, and repair; ``repairs`` say in words what is repaired.
    ``beyond`` is what no command can repair: it needs a reload. ``foreign`` are the states that somebody else set.
    ``changed`` are overrides of which something else than their state changed.
    """

    commands: list[Command] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    foreign: dict[tuple[str, str], ServerState] = field(default_factory=dict)
    ended: list[EndedOverride] = field(default_factory=list)
    changed: list[Override] = field(default_factory=list)

    def extend(self, other: "Judgement") -> None:
        """Add what was found in another backend."""
        self.commands += other.commands
        self.repairs += other.repairs
        self.beyond += other.beyond
        self.foreign |= other.foreign
        self.ended += other.ended
        self.changed += other.changed


def judge(
    found: Judgement,
    backend: ExpectedBackend,
    servers: Iterable[ServerNow],
    known: KnownOverrides,
    leaving: LeavingServers,
    *,
    now: float,
    fresh: bool = False,
) -> None:
    """Compare the servers of a backend in the process with its configuration and overrides.

    ``fresh``: the overrides were not brought into force in this worker yet.
    """
    there = {server.name: server for server in servers}
    for name, expected in backend.servers.items():
        if (backend.name, name) in leaving:
            continue  # it comes back as it should be once the former one has gone
        server, override = there.get(name), known.get(OverrideKey(backend.name, name))
        if server is None:
            _judge_missing(found, expected, override, now)
        elif why := _elsewhere(server, expected):
            others = any(_serves(one, backend, leaving) for one in there.values() if one.name != name)
            _judge_address(found, expected, server, why, others_serve=others)
        elif not expected.server.agent_checked:
            # An agent sets state and weight all the time; nothing distinguishes that from what people do.
            _judge_state(found, expected, server, override, now, fresh=fresh)
    for name, server in there.items():
        former = leaving.get((backend.name, name))
        if name not in backend.servers and (former is None or state_of(server) is ServerState.READY):
            gone = RemoveServer(backend.name, name, server.target)
            found.commands.append(gone if former is None else former.command)
            found.repairs.append(f"{backend.name}/{name} takes traffic but is not in the configuration")


def judge_absent(found: Judgement, overrides: Iterable[Override], now: float) -> None:
    """Judge the overrides of servers that the configuration does not have."""
    for override in overrides:
        if override.expired(now):
            found.ended.append((override, EndReason.EXPIRED))
        elif not override.missing_since:
            found.changed.append(replace(override, missing_since=now))
        elif now - override.missing_since >= GONE_AFTER_S:
            found.ended.append((override, EndReason.SERVER_GONE))


def _judge_missing(found: Judgement, expected: ExpectedServer, override: Override | None, now: float) -> None:
    what = f"{expected.server.backend}/{expected.server.server} is missing"
    if expected.obstacle:
        found.beyond.append(f"{what} ({expected.obstacle})")
        return
    found.commands.append(expected.server)
    if override is not None and not override.expired(now):
        found.commands.append(override.command)
    found.repairs.append(what)


def _judge_address(
    found: Judgement, expected: ExpectedServer, server: ServerNow, why: str, *, others_serve: bool
) -> None:
    """Remove a server with another address; it is added again once it is gone.

    To set its address in place would send requests to the wrong one for a while, on connections that are kept.
    """
    what = f"{server.backend}/{server.name} {why}"
    if expected.obstacle:
        found.beyond.append(f"{what} ({expected.obstacle})")
    elif others_serve:
        found.commands.append(RemoveServer(server.backend, server.name, server.target))
        found.repairs.append(what)
    else:
        found.beyond.append(f"{what} (no other server of its backend could serve meanwhile)")


def _serves(server: ServerNow, backend: ExpectedBackend, leaving: LeavingServers) -> bool:
    expected = backend.servers.get(server.name)
    if expected is None or (backend.name, server.name) in leaving or not server.weight or server.operating != _UP:
        return False
    return not _elsewhere(server, expected) and state_of(server) is ServerState.READY


def _elsewhere(server: ServerNow, expected: ExpectedServer) -> str:
    """Return which other address a server has than the configuration says, "" for none."""
    wanted = expected.server.address
    if server.target == wanted or not expected.literal:
        return ""
    return wrong_address(server, wanted)


def _judge_state(
    found: Judgement,
    expected: ExpectedServer,
    server: ServerNow,
    override: Override | None,
    now: float,
    *,
    fresh: bool,
) -> None:
    state, wanted = state_of(server), expected.state
    what = f"{server.backend}/{server.name}"
    if expected.weight is not None and server.weight != expected.weight:
        found.commands.append(SetWeight(server.backend, server.name, expected.weight))
        found.repairs.append(f"{what} has the weight {server.weight}")
    if override is not None and override.expired(now):
        found.ended.append((override, EndReason.EXPIRED))
        if state is override.state is not wanted:
            found.commands.append(SetState(server.backend, server.name, wanted))
            return
        override = None
    if override is not None:
        wanted = override.state
        if override.missing_since:
            found.changed.append(replace(override, missing_since=0.0))
    if state is wanted:
        return
    if override is not None and fresh:
        found.commands.append(override.command)
    elif state is ServerState.READY:
        found.commands.append(SetState(server.backend, server.name, wanted))
        found.repairs.append(f"{what} takes traffic but should be in {wanted}")
    else:
        found.foreign[server.backend, server.name] = state


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What a look found and did.

    ``looked`` backends were asked for. ``repaired`` and ``beyond`` are sentences; what is ``beyond`` needs a reload,
    and stays in the reports until then. ``foreign`` are servers in a state that somebody else set.
    """

    looked: int = 0
    repaired: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    ended: tuple[EndedOverride, ...] = ()
    executed: int = 0


class _Seen(NamedTuple):
    """What a backend was judged by: most are the same at each look, and then nothing is parsed."""

    text: str
    base: Inherited | None
    twice: bool
    servers: int

    @classmethod
    def of(cls, index: Index, key: SectionKey, answer: str | None) -> "_Seen":
        """Return it for a section and an answer to ``show servers state``."""
        twice = key._replace(position=1) in index.texts
        return cls(index.texts[key], index.bases.get(key), twice, hash(answer and server_rows(answer)))


class Drift:
    """Looks at a slice of the backends each time, all of them within :data:`ROUND_S`."""

    def __init__(self, overrides: OverrideStore, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._overrides = overrides
        self._monotonic = monotonic
        self._last_at: float | None = None
        self._queue: deque[SectionKey] = deque()
        self._round = 0
        self._seen: dict[SectionKey, _Seen] = {}
        """The backends that were as they should be, or cannot be judged."""
        self._again: set[str] = set()
        self._in_force: tuple[int, KnownOverrides] = 0, {}
        """The worker and the overrides that were brought into force in it."""
        self._beyond: set[str] = set()
        self._down: dict[str, BackendDown] = {}
        self._foreign: dict[tuple[str, str], OverrideStatus] = {}
        self.repaired_total = 0

    @property
    def beyond(self) -> tuple[str, ...]:
        """Return what only a reload repairs, as far as it was looked at."""
        return tuple(sorted(self._beyond))

    @property
    def down(self) -> tuple[BackendDown, ...]:
        """Return the backends without a server that is up as far as they were looked at, the oldest first."""
        return tuple(sorted(self._down.values(), key=lambda one: (one.since, one.backend)))

    @property
    def foreign(self) -> tuple[OverrideStatus, ...]:
        """Return the servers in drain or maintenance that somebody else put there, as far as they were looked at."""
        return tuple(self._foreign.values())

    def restore(self, runtime: Runtime, index: Index) -> None:
        """Bring all overrides into force in a worker that has just loaded ``index``.

        Raises:
            NotConfirmed: it is not known whether they are.
        """
        now, commands = self._overrides.now(), []
        for name, overrides in _by_backend(self._overrides.refresh()).items():
            for backend in _expected(index, keys_of(index, name), runtime):
                its = (one for one in overrides if one.server in backend.servers and not one.expired(now))
                commands += [one.command for one in its]
        runtime.execute(commands)
        if commands:
            log.info("overrides.restored", count=len(commands), worker=runtime.pid)

    def look(self, runtime: Runtime, index: Index, *, repair: bool = True) -> DriftReport:
        """Compare a slice of the process with ``index``, which it must have loaded, and repair what differs.

        ``runtime`` is connected. Without ``repair`` nothing is changed, neither in the process nor on disk.

        Raises:
            NotConfirmed: the process cannot be asked, or a repair did not take effect: a reload puts it right.
        """
        if not runtime.abilities.runtime or not runtime.pid:
            return DriftReport()
        known, now = self._overrides.refresh(), self._overrides.now()
        by_backend = _by_backend(known)
        fresh = self._in_force != (runtime.pid, known)
        due = {one.backend for one in known.values() if fresh or one.expired(now)}
        leaving = runtime.leaving
        busy = {*by_backend, *(backend for backend, _ in leaving)}
        found, looked = Judgement(), list[ExpectedBackend]()
        keys = self._slice(index, due)
        answers = runtime.server_states([key.name for key in keys])
        for key in keys:
            answer = answers.get(key.name)
            seen = _Seen.of(index, key, answer)
            if self._seen.get(key) == seen and key.name not in busy:
                continue
            self._seen.pop(key, None)
            expected = expected_backend(index, key, cookies=runtime.abilities.cookies)
            if expected is None:
                self._seen[key] = seen  # its text does not say which servers there are
                continue
            looked.append(expected)
            if answer is None:
                found.beyond.append(f"backend {key.name} is missing")
                continue
            own, servers = Judgement(), list(servers_now(answer))
            self._note_down(index, key.name, servers, now)
            judge(own, expected, servers, known, leaving, now=now, fresh=fresh)
            absent = [one for one in by_backend.get(key.name, ()) if one.server not in expected.servers]
            judge_absent(own, absent, now)
            if own == Judgement():
                self._seen[key] = seen
            found.extend(own)
        for name, overrides in by_backend.items():
            if next(keys_of(index, name), None) is None:
                judge_absent(found, overrides, now)
        if repair:
            runtime.execute(found.commands)
            self._overrides.update(found.ended, found.changed)
            self._in_force = runtime.pid, self._overrides.known
            self._again = {one.backend for one in found.commands if isinstance(one, RemoveServer)}
            # And those that wait for a server of theirs to go, so that it can come back.
            self._again |= {one.name for one in looked for server in one.servers if (one.name, server) in leaving}
            self._report(found, {key.name for key in keys}, now)
        return DriftReport(
            len(keys),
            tuple(found.repairs) if repair else (),
            tuple(found.beyond) if repair else (*found.repairs, *found.beyond),
            tuple(f"{backend}/{server}" for backend, server in found.foreign),
            tuple(found.ended),
            len(found.commands) if repair else 0,
        )

    def _note_down(self, index: Index, name: str, servers: Sequence[ServerNow], now: float) -> None:
        """Remember whether a backend has a server that is up."""
        if any(takes_traffic(server) for server in servers) or (not servers and _answers_itself(index, name)):
            self._down.pop(name, None)
        else:
            since = self._down[name].since if name in self._down else now
            self._down[name] = BackendDown(name, len(servers), since)

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
        for name in [name for name in self._down if next(keys_of(index, name), None) is None]:
            del self._down[name]
        count = min(MAX_SLICE, max(SLICE, math.ceil(self._round * elapsed / ROUND_S)), len(self._queue))
        taken = [self._queue.popleft() for _ in range(count)]
        found = [key for key in taken if key in index.texts]
        found += [key for name in sorted(due | self._again) for key in keys_of(index, name)]
        return list(dict.fromkeys(found))

    def _report(self, found: Judgement, looked: set[str], now: float) -> None:
        """Log what happened; what is not repaired once, until it is gone."""
        self.repaired_total += len(found.repairs)
        for detail in found.repairs:
            log.warning("drift.repaired", detail=detail)
        for override, reason in found.ended:
            log.info("override.ended", server=override.name, state=override.state.value, reason=reason.value)
        foreign = {key: one for key, one in self._foreign.items() if key[0] not in looked}
        for key, state in found.foreign.items():
            former = self._foreign.get(key)
            if former is None or former.value != state:
                former = OverrideStatus("/".join(key), state.value, now, source="socket")
                log.warning("drift.left", server=former.server, state=state.value, reason="not set by pyconfd")
            foreign[key] = former
        self._foreign = foreign
        still = {detail for detail in self._beyond if _subject(detail) not in looked}
        for detail in found.beyond:
            if detail not in self._beyond:
                log.warning("drift.needs_reload", detail=detail)
        self._beyond = still | set(found.beyond)


def live_status(
    overrides: OverrideStore, runtime: Runtime, *, monotonic: float, paused: Paused | None, drift: Drift | None = None
) -> LiveStatus:
    """Return what status and metrics show; ``monotonic`` is the clock that ``runtime`` counts by, now."""
    now = overrides.now()
    leaving = sorted(runtime.leaving.values(), key=lambda one: one.since)
    by_command = tuple(
        OverrideStatus(one.name, one.state.value, one.since, one.until, missing_since=one.missing_since)
        for one in overrides.known.values()
    )
    return LiveStatus(
        paused,
        (*by_command, *(drift.foreign if drift is not None else ())),
        tuple(
            LeavingStatus(f"{one.backend}/{one.server}", now - (monotonic - one.since))
            for one in leaving[:LEAVING_SHOWN]
        ),
        len(leaving),
        drift.repaired_total if drift is not None else 0,
        drift.beyond if drift is not None else (),
        down=drift.down[:DOWN_SHOWN] if drift is not None else (),
        down_total=len(drift.down) if drift is not None else 0,
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


def _expected(index: Index, keys: Iterable[SectionKey], runtime: Runtime) -> list[ExpectedBackend]:
    cookies = runtime.abilities.cookies
    found = (expected_backend(index, key, cookies=cookies) for key in keys)
    return [backend for backend in found if backend is not None]


def _by_backend(known: KnownOverrides) -> dict[str, list[Override]]:
    found: dict[str, list[Override]] = {}
    for override in known.values():
        found.setdefault(override.backend, []).append(override)
    return found


def _subject(detail: str) -> str:
    """Return the backend that a sentence of :class:`Judgement` is about."""
    first = detail.removeprefix("backend ").partition(" ")[0]
    return first.partition("/")[0]
