"""One node and its names: read each in its own time, plan, change. Time, chance and the network are arguments.

``now`` is monotonic: nothing waits longer, or less, because the clock was set. ``wall`` is in seconds since the epoch:
the slots, which nodes agree on by their clocks, and what is reported.

An account has 5 requests a second, and all nodes and all other programs share them. So time is split into slots that
the nodes take in turn. A slot has room for two requests, a read and the change that follows from it: two nodes seldom
meet, and where their clocks differ the compare-and-swap sorts it out.

A node is dead if it is silent on the network and in Route 53. One that does not answer is doubted: that is written
beside its record. A node that lives and reaches Route 53 reads it and wipes it out; one that serves but does not reach
Route 53 answers on the network. Only where neither happens for the whole time, and its sequence stays the same, is it
taken out.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from zlib import crc32

import structlog

from pyconfd.dns.names import DnsNames
from pyconfd.dns.planner import DnsNode, NamePlan, Wish, doubt, forget, plan
from pyconfd.dns.records import Marker, NoZoneError, RecordSet, RefusedBatchError, markers_of
from pyconfd.errors import Problem, PyconfdError, TransientError, first_line
from pyconfd.settings import Mode, NameSettings
from pyconfd.system.backoff import Backoff

log = structlog.get_logger(__name__)

SLOT_S = 1.0
REQUESTS_IN_A_SLOT = 2
"""So no second has more than four, which leaves one to others: it has parts of two slots at the most.

Source: Route 53 Developer Guide, Quotas: five requests a second for an account.
"""
_FIRST_PAUSE_S = 2.0
_LOOKS_AT_LEAST = 3


def place(node: str, known: Iterable[str], expected: int) -> tuple[int, int]:
    """Return the slot of a node and the number of slots in a round.

    ``known`` are the nodes that all others know too. One that is not among them yet takes a slot by its name.
    """
    nodes = sorted({*known})
    slots = max(len({node, *nodes}), expected)
    return (nodes.index(node) if node in nodes else crc32(node.encode()) % slots), slots


def slot_number(wall: float) -> int:
    """Return the number of the slot that a time is in."""
    return int(wall // SLOT_S)


def next_slot(wall: float, slot: int, slots: int, used: int) -> float:
    """Return the earliest time from ``wall`` on in an own slot; ``used`` is the number of the last used one."""
    first = max(slot_number(wall), used + 1)
    number = first + (slot - first) % slots
    return max(number * SLOT_S, wall)


class NodeVerdict(StrEnum):
    """What to do about another node; TRUST wipes the doubt out that this node wrote."""

    LEAVE = "leave"
    DOUBT = "doubt"
    TRUST = "trust"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Since when a node has been silent, and since when it has not wiped a doubt out."""

    sequence: int
    silent_since: float
    doubted_since: float | None = None


def judge(
    marker: Marker, suspicion: Suspicion | None, *, answers: bool, me: str, now: float, after_s: float
) -> tuple[Suspicion | None, NodeVerdict]:
    """Return the suspicion against a node now, and what follows."""
    if marker.node == me or marker.adopted or not marker.addresses:
        return None, NodeVerdict.LEAVE
    if answers:
        return None, NodeVerdict.TRUST if marker.doubt == me else NodeVerdict.LEAVE
    if suspicion is None or suspicion.sequence != marker.sequence:
        suspicion = Suspicion(marker.sequence, silent_since=now)
    if not marker.doubt:
        suspicion = replace(suspicion, doubted_since=None)
    elif suspicion.doubted_since is None:
        suspicion = replace(suspicion, doubted_since=now)
    if now - suspicion.silent_since < after_s:
        return suspicion, NodeVerdict.LEAVE
    doubted_since = suspicion.doubted_since
    if doubted_since is None:
        return suspicion, NodeVerdict.DOUBT
    return suspicion, NodeVerdict.FORGET if now - doubted_since >= after_s else NodeVerdict.LEAVE


@dataclass(frozen=True, slots=True)
class Want:
    """What this node wants of a name, and the addresses that it has there; ``wish`` None is not decided yet."""

    wish: Wish | None
    node: DnsNode


@dataclass(slots=True)
class NameState:
    """What is known of one name. ``due`` is monotonic; ``read_at`` and ``changed_at`` are epoch seconds, 0.0 for never.

    ``planned`` is what ``plan`` is for. ``failures`` are those in a row; the totals count since the start.
    """

    spec: NameSettings
    want: Want
    backoff: Backoff
    due: float = -math.inf
    read_at: float = 0.0
    changed_at: float = 0.0
    observed: tuple[RecordSet, ...] = ()
    plan: NamePlan | None = None
    planned: Want | None = None
    problem: Problem | None = None
    failures: int = 0
    failures_total: int = 0
    changes_total: int = 0
    forgotten_total: int = 0
    suspicions: dict[str, Suspicion] = field(default_factory=dict)


class Agent:
    """Keeps names in step with what this node wishes; ``answers`` returns those nodes that answer on the network."""

    def __init__(
        self,
        names: DnsNames,
        answers: Callable[[Sequence[Marker]], Collection[str]],
        chance: Random,
    ) -> None:
        self.names: dict[NameSettings, NameState] = {}
        self._dns_names, self._node, self._dns = names, names.node, names.settings.dns
        self._answers = answers
        self._chance = chance
        self._used_slot = -1

    def turn(self, now: float, wall: float, wants: Mapping[NameSettings, Want]) -> float:
        """Do what is due, one name at most, if the slot is this node's; return when to be called again (monotonic).

        ``wants`` are all names; one that is no longer among them is left as it is.
        """
        if self.names.keys() != wants.keys():
            self.names = {spec: self.names.get(spec) or self._new(spec, want) for spec, want in wants.items()}
        for spec, want in wants.items():
            state = self.names[spec]
            if state.want != want:
                state.want = want
                state.due = min(state.due, now)
        if not self.names:
            return now + self._dns.interval_s
        state = min(self.names.values(), key=lambda item: item.due)
        if state.due > now:
            return state.due
        slot, slots = self._place()
        # After the clock was set back the last slot lies in the future: it counts as the one that it is now.
        self._used_slot = min(self._used_slot, slot_number(wall))
        free = next_slot(wall, slot, slots, self._used_slot)
        if free > wall:
            return now + (free - wall)
        self._used_slot = slot_number(wall)
        self._visit(state, now, wall)
        return min(item.due for item in self.names.values())

    def _new(self, spec: NameSettings, want: Want) -> NameState:
        return NameState(spec, want, Backoff(first_s=_FIRST_PAUSE_S, last_s=self._dns.interval_s, jitter=self._chance))

    def _place(self) -> tuple[int, int]:
        known = {
            marker.node
            for state in self.names.values()
            for marker, _ in markers_of(state.observed).values()
            if not marker.adopted
        }
        return place(self._node, known, self._dns.nodes)

    def _visit(self, state: NameState, now: float, wall: float) -> None:
        """Read one name, plan, and change it."""
        name, wish, provider = state.spec.name, state.want.wish, self._dns_names.provider
        try:
            with self._dns_names.zone(state.spec) as zone_id:
                state.observed = provider.records(zone_id, name)
                state.read_at, state.planned = wall, state.want
                state.plan = NamePlan() if wish is None else plan(state.spec, state.want.node, wish, state.observed)
                if state.plan.in_step and wish is Wish.PUBLISH and self._dns.reaper:
                    state.plan = self._reap(state, now)
                if state.plan.changes:
                    provider.change(zone_id, state.plan.changes)
                    state.changed_at = wall
                    state.changes_total += 1
                    log.info("dns.changed", name=name, changes=[str(item) for item in state.plan.changes])
        except PyconfdError as error:
            self._failed(state, now, error)
            return
        self._report(state, state.plan.problem)
        state.failures = 0
        state.backoff.reset()
        # After a change the name is read once more in the next round: what was read before it is no longer true.
        state.due = now if state.plan.changes else now + self._dns.interval_s * self._chance.uniform(0.9, 1.1)

    def _failed(self, state: NameState, now: float, error: PyconfdError) -> None:
        """Retry: at once where another node was faster or a zone has another id now, later where it goes on."""
        state.failures += 1
        state.failures_total += 1
        # Another node was faster, or the reply to this node's own change was lost: reading again tells which.
        if isinstance(error, RefusedBatchError | NoZoneError) and state.failures == 1:
            state.due = now
            return
        retries = isinstance(error, TransientError | RefusedBatchError)
        wait_s = state.backoff.delay_s() if retries else self._dns.interval_s * self._chance.uniform(0.5, 1.0)
        state.due = now + wait_s
        self._report(state, error.problems[0] if error.problems else Problem(state.spec.name, str(error)))

    def _report(self, state: NameState, problem: Problem | None) -> None:
        """Log a problem when it comes and when it goes, not each time it is met."""
        if problem and problem != state.problem:
            log.warning("dns.stuck", name=state.spec.name, problem=first_line([problem]))
        elif state.problem and not problem:
            log.info("dns.recovered", name=state.spec.name)
        state.problem = problem

    def _reap(self, state: NameState, now: float) -> NamePlan:
        """Return the plan about the first node that something is to be done about."""
        spec = state.spec
        former, state.suspicions = state.suspicions, {}
        if spec.mode is Mode.VIP:
            return NamePlan()
        # A node that lives must have had its turns to say so, however many names and nodes there are.
        round_s = len(self.names) * self._place()[1] * SLOT_S
        after_s = max(self._dns.reap_after_s, _LOOKS_AT_LEAST * max(round_s, self._dns.interval_s))
        markers = [marker for marker, _ in markers_of(state.observed).values() if marker.owner == spec.owner]
        others = sorted(
            (marker for marker in markers if marker.node != self._node and not marker.adopted),
            key=lambda marker: marker.node,
        )
        alive = self._answers(others) if others else ()
        found = NamePlan()
        for marker in others:
            node = marker.node
            suspicion, verdict = judge(
                marker, former.get(node), answers=node in alive, me=self._node, now=now, after_s=after_s
            )
            if suspicion:
                state.suspicions[node] = suspicion
            if verdict is NodeVerdict.LEAVE or found.changes:
                continue
            log.info("node.judged", name=spec.name, node=node, verdict=verdict.value)
            if verdict is NodeVerdict.FORGET:
                state.forgotten_total += 1
                found = forget(spec, node, state.observed)
            else:
                found = doubt(spec, node, self._node if verdict is NodeVerdict.DOUBT else "", state.observed)
        return found
