"""What operators set by hand on servers, and what somebody changed that has to be put right again. Pure.

State and weight belong to whoever set them last by hand: they are kept through updates and reloads. Which servers
there are, and at which addresses, belongs to the configuration: that is repaired.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from pyconfd.haproxy.expected import ExpectedBackend, ExpectedServer
from pyconfd.haproxy.readback import ServerNow, state_of, wrong_address
from pyconfd.model.plan import AddServer, Command, RemoveServer, ServerState, SetState, SetWeight

GONE_AFTER_S = 3600.0
"""How long an override waits for its server to come back: a node that boots again must still be in maintenance."""

_RUNNING = 2
"""``srv_op_state`` of a server that takes traffic. Source: ``enum srv_state`` in HAProxy 2.6 to 3.4."""


class Source(StrEnum):
    """How somebody set it: with ``pyconfd server``, or directly on HAProxy's socket."""

    COMMAND = "command"
    SOCKET = "socket"


class Aspect(StrEnum):
    """What of a server can be set by hand."""

    STATE = "state"
    WEIGHT = "weight"


class OverrideKey(NamedTuple):
    """What there is at most one override for."""

    backend: str
    server: str
    aspect: Aspect


@dataclass(frozen=True, slots=True)
class Override:
    """A state or weight that somebody set by hand.

    ``since`` and ``until`` are seconds since the epoch; ``until`` 0.0: until it is ended by hand. ``worker`` names the
    process in which it was last seen in force, "" for none. ``missing_since`` is when its server vanished, or 0.0.
    """

    backend: str
    server: str
    wanted: ServerState | int
    since: float
    until: float = 0.0
    source: Source = Source.SOCKET
    worker: str = ""
    missing_since: float = 0.0

    @property
    def key(self) -> OverrideKey:
        """What it is for."""
        aspect = Aspect.STATE if isinstance(self.wanted, ServerState) else Aspect.WEIGHT
        return OverrideKey(self.backend, self.server, aspect)

    @property
    def name(self) -> str:
        """``backend/server``."""
        return f"{self.backend}/{self.server}"

    @property
    def shown(self) -> str:
        """``drain``, ``weight 50``."""
        return self.wanted.value if isinstance(self.wanted, ServerState) else f"weight {self.wanted}"

    @property
    def command(self) -> Command:
        """What brings it into force."""
        return _command(self.backend, self.server, self.wanted)

    def expired(self, now: float) -> bool:
        """Return whether its time is over."""
        return bool(self.until) and now >= self.until


class EndReason(StrEnum):
    """Why an override ended."""

    BY_HAND = "by_hand"
    EXPIRED = "expired"
    SERVER_GONE = "server_gone"


class Ended(NamedTuple):
    """An override that ended."""

    override: Override
    reason: EndReason


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where servers are judged: ``now`` in seconds since the epoch, ``worker`` the process asked."""

    now: float
    worker: str


@dataclass(slots=True)
class Judgement:
    """What was found, and what to do about it, in this order of fields.

    ``seen`` are new overrides, ``ended`` those that are over, ``noted`` those of which something else than their value
    changed. ``commands`` end overrides, bring them back, and repair; ``repairs`` say in words what is repaired.
    ``beyond`` is what no command can repair: it needs a reload.
    """

    seen: list[Override] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    noted: list[Override] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)

    def extend(self, other: "Judgement") -> None:
        """Take on what was found in another backend."""
        self.seen += other.seen
        self.ended += other.ended
        self.noted += other.noted
        self.commands += other.commands
        self.repairs += other.repairs
        self.beyond += other.beyond


Known = Mapping[OverrideKey, Override]
Leaving = Mapping[tuple[str, str], RemoveServer]
"""Servers on their way out, by backend and name, with what sends them there."""


def kept(commands: Sequence[Command], known: Known, now: float) -> tuple[Command, ...]:
    """Return ``commands`` so that they leave in force what was set by hand.

    A weight of 0 goes through all the same: that is the cluster that takes a server out, and its traffic would fail.
    """
    if not known:
        return tuple(commands)
    found: list[Command] = []
    for command in commands:
        if isinstance(command, SetState):
            override = _of(known, command, Aspect.STATE, now)
            found.append(override.command if override else command)
        elif isinstance(command, SetWeight):
            override = _of(known, command, Aspect.WEIGHT, now) if command.weight else None
            found.append(override.command if override else command)
        elif isinstance(command, AddServer):
            found += [command, *_brought_back(command, known, now)]
        else:
            found.append(command)
    return tuple(found)


def _brought_back(server: AddServer, known: Known, now: float) -> list[Command]:
    aspects = (Aspect.STATE, Aspect.WEIGHT) if server.weight else (Aspect.STATE,)
    overrides = (_of(known, server, aspect, now) for aspect in aspects)
    return [override.command for override in overrides if override]


def _of(known: Known, server: AddServer | SetState | SetWeight, aspect: Aspect, now: float) -> Override | None:
    override = known.get(OverrideKey(server.backend, server.server, aspect))
    return None if override is None or override.expired(now) else override


def brought_back(backend: ExpectedBackend, known: Iterable[Override], at: Moment) -> Judgement:
    """Return what brings overrides into force in a worker that began with the states and weights of the file."""
    found = Judgement()
    for override in known:
        expected = backend.servers.get(override.server)
        if expected is None or override.worker == at.worker or override.expired(at.now):
            continue
        if isinstance(override.wanted, ServerState) or expected.weight != 0:
            found.commands.append(override.command)
        found.noted.append(replace(override, worker=at.worker, missing_since=0.0))
    return found


def judge(
    backend: ExpectedBackend, servers: Iterable[ServerNow], known: Known, leaving: Leaving, at: Moment
) -> Judgement:
    """Hold the servers of a backend in the process against the configuration and what was set by hand."""
    found = Judgement()
    there = {server.name: server for server in servers}
    for name, expected in backend.servers.items():
        key = (backend.name, name)
        if key in leaving:
            continue  # it comes back as it should be once what it was has gone
        now = there.get(name)
        if now is None:
            _repair_missing(found, expected, known, at.now)
        elif why := _elsewhere(now, expected):
            others = any(_serves(one, backend, leaving) for one in there.values() if one.name != name)
            _repair_address(found, expected, now, why, others_serve=others)
        elif not expected.server.agent_checked:
            # An agent speaks for its server all the time; what it says cannot be told from what people say.
            _judge_hand(found, expected, now, known, at)
    for name, now in there.items():
        former = leaving.get((backend.name, name))
        if name not in backend.servers and (former is None or state_of(now) is ServerState.READY):
            found.commands.append(former or RemoveServer(backend.name, name, now.target))
            found.repairs.append(f"{backend.name}/{name} takes traffic but is not in the configuration")
    found.extend(judge_missing((one for one in known.values() if one.backend == backend.name), backend.servers, at))
    return found


def judge_missing(known: Iterable[Override], servers: Iterable[str], at: Moment) -> Judgement:
    """Judge the overrides of one backend whose servers are not among ``servers``."""
    found, names = Judgement(), frozenset(servers)
    for override in known:
        if override.server in names:
            continue
        if override.expired(at.now):
            found.ended.append(Ended(override, EndReason.EXPIRED))
        elif not override.missing_since:
            found.noted.append(replace(override, missing_since=at.now))
        elif at.now - override.missing_since >= GONE_AFTER_S:
            found.ended.append(Ended(override, EndReason.SERVER_GONE))
    return found


def _repair_missing(found: Judgement, expected: ExpectedServer, known: Known, now: float) -> None:
    what = f"{expected.server.backend}/{expected.server.server} is missing"
    if expected.obstacle:
        found.beyond.append(f"{what} ({expected.obstacle})")
        return
    found.commands += [expected.server, *_brought_back(expected.server, known, now)]
    found.repairs.append(what)


def _repair_address(
    found: Judgement, expected: ExpectedServer, now: ServerNow, why: str, *, others_serve: bool
) -> None:
    """Let a server with another address go; it is added again once it is gone.

    Giving it its address back in place would send requests to the wrong one for a while, on connections that are kept.
    """
    what = f"{now.backend}/{now.name} {why}"
    if expected.obstacle:
        found.beyond.append(f"{what} ({expected.obstacle})")
    elif others_serve:
        found.commands.append(RemoveServer(now.backend, now.name, now.target))
        found.repairs.append(what)
    else:
        found.beyond.append(f"{what} (no other server of its backend could serve meanwhile)")


def _serves(now: ServerNow, backend: ExpectedBackend, leaving: Leaving) -> bool:
    expected = backend.servers.get(now.name)
    if expected is None or (backend.name, now.name) in leaving or not now.weight or now.operating != _RUNNING:
        return False
    return not _elsewhere(now, expected) and state_of(now) is ServerState.READY


def _elsewhere(now: ServerNow, expected: ExpectedServer) -> str:
    """Return which other address a server has than the configuration says, "" for none."""
    wanted = expected.server.address
    if now.target == wanted or not expected.literal:
        return ""
    return wrong_address(now, wanted)


def _judge_hand(found: Judgement, expected: ExpectedServer, now: ServerNow, known: Known, at: Moment) -> None:
    server = expected.server
    if not known and state_of(now) is expected.state and expected.weight in {None, now.weight}:
        return
    state = known.get(OverrideKey(server.backend, server.server, Aspect.STATE))
    _judge_value(found, state, Override(server.backend, server.server, expected.state, at.now), state_of(now), at)
    if expected.weight is not None:
        weight = known.get(OverrideKey(server.backend, server.server, Aspect.WEIGHT))
        _judge_value(found, weight, Override(server.backend, server.server, expected.weight, at.now), now.weight, at)


def _judge_value(
    found: Judgement, known: Override | None, normal: Override, value: ServerState | int, at: Moment
) -> None:
    """Judge one aspect of one server: ``normal`` has what the configuration says, ``value`` is in the process."""
    seen = replace(normal, wanted=value, worker=at.worker)
    taken_out = normal.wanted == 0 and not isinstance(normal.wanted, ServerState)
    if known is None or known.expired(at.now):
        if known is not None:
            found.ended.append(Ended(known, EndReason.EXPIRED))
        if known is not None and value == known.wanted != normal.wanted:
            found.commands.append(normal.command)
        elif value != normal.wanted:
            found.seen.append(seen)
    elif known.worker != at.worker:
        if value != known.wanted and not taken_out:
            found.commands.append(known.command)
        found.noted.append(replace(known, worker=at.worker, missing_since=0.0))
    elif value == known.wanted or (taken_out and value == 0):
        if known.missing_since:
            found.noted.append(replace(known, missing_since=0.0))
    elif value == normal.wanted:
        found.ended.append(Ended(known, EndReason.BY_HAND))
    else:
        found.seen.append(seen)


def _command(backend: str, server: str, wanted: ServerState | int) -> Command:
    if isinstance(wanted, ServerState):
        return SetState(backend, server, wanted)
    return SetWeight(backend, server, wanted)
