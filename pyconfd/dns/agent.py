"""One node and its names: reads in its own time, plans, changes. Time, chance and the network are arguments."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from pyconfd.dns import pacing
from pyconfd.dns.ownership import Marker, Mode, marks_of
from pyconfd.dns.planning import Batch, Blocked, InStep, Plan, Wish, doubt, forget, plan
from pyconfd.dns.provider import Provider, RefusedBatchError
from pyconfd.dns.reaping import Suspicion, Verdict, judge
from pyconfd.dns.records import Change, RecordSet
from pyconfd.dns.view import Node, Spec
from pyconfd.errors import Problem, PyconfdError, TransientError, first_line

log = structlog.get_logger(__name__)

_BACK_OFF_S = 1.0
_LOOKS_AT_LEAST = 3


@dataclass(frozen=True, slots=True)
class AgentRules:
    """``interval_s`` between two reads where nothing happens; ``reap_after_s`` 0.0 leaves dead nodes alone."""

    interval_s: float = 60.0
    expected_nodes: int = 4
    reap_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Want:
    """What this node wants of a name, and the addresses that it has there; ``wish`` None is not decided yet."""

    wish: Wish | None
    node: Node


@dataclass(slots=True)
class NameState:
    """What is known of one name. ``due`` and ``read_at`` are seconds since the epoch, 0.0 for at once and never.

    ``failures`` are those in a row; the totals count since the start.
    """

    spec: Spec
    want: Want
    due: float = 0.0
    read_at: float = 0.0
    changed_at: float = 0.0
    observed: tuple[RecordSet, ...] = ()
    plan: Plan | None = None
    problem: Problem | None = None
    failures: int = 0
    failures_total: int = 0
    changes_total: int = 0
    forgotten_total: int = 0
    suspicions: dict[str, Suspicion] = field(default_factory=dict)


class Agent:
    """Keeps names in step with what this node wishes.

    ``zone_of`` gives the hosted zone of a name; ``answers`` the names of those nodes that answer on the network;
    ``chance`` gives a number from 0 to 1.
    """

    def __init__(
        self,
        provider: Provider,
        zone_of: Callable[[Spec], str],
        *,
        node: str,
        rules: AgentRules,
        answers: Callable[[Sequence[Marker]], Collection[str]],
        chance: Callable[[], float],
    ) -> None:
        self.names: dict[Spec, NameState] = {}
        self._provider = provider
        self._zone_of = zone_of
        self._node = node
        self._rules = rules
        self._answers = answers
        self._chance = chance
        self._used_slot = -1

    def turn(self, now: float, wants: Mapping[Spec, Want]) -> float:
        """Do what is due, one name at most, if the slot is this node's; give when to be called again.

        ``wants`` are all names; one that is no longer among them is let go as it is.
        """
        self._take(wants, now)
        if not self.names:
            return now + self._rules.interval_s
        state = min(self.names.values(), key=lambda item: item.due)
        if state.due > now:
            return state.due
        slot, slots = self._place()
        free = pacing.next_slot(now, slot, slots, self._used_slot)
        if free > now:
            return free
        self._used_slot = pacing.slot_number(now)
        self._visit(state, now)
        return min(item.due for item in self.names.values())

    def _take(self, wants: Mapping[Spec, Want], now: float) -> None:
        if self.names.keys() != wants.keys():
            self.names = {spec: self.names.get(spec) or NameState(spec, want) for spec, want in wants.items()}
        for spec, want in wants.items():
            state = self.names[spec]
            if state.want != want:
                state.want = want
                state.due = min(state.due, now)

    def _place(self) -> tuple[int, int]:
        return pacing.place(self._node, self._known_nodes(), self._rules.expected_nodes)

    def _known_nodes(self) -> set[str]:
        return {
            marker.node
            for state in self.names.values()
            for marker, _ in marks_of(state.observed).markers.values()
            if not marker.adopted
        }

    def _visit(self, state: NameState, now: float) -> None:
        """Read one name, plan, and change it."""
        name, wish, node = state.spec.name, state.want.wish, state.want.node
        try:
            zone_id = self._zone_of(state.spec)
            state.observed = self._provider.records(zone_id, name)
            state.read_at = now
            state.plan = InStep() if wish is None else plan(state.spec, node, wish, state.observed)
            if isinstance(state.plan, InStep) and wish is Wish.PUBLISH and self._rules.reap_after_s:
                state.plan = self._reaping(state, now)
            if isinstance(state.plan, Batch):
                self._provider.change(zone_id, state.plan.changes)
                state.changed_at = now
                state.changes_total += 1
                log.info("dns.changed", name=name, changes=[change_text(item) for item in state.plan.changes])
        except PyconfdError as error:
            self._failed(state, now, error)
            return
        self._tell(state, state.plan.problem if isinstance(state.plan, Blocked) else None)
        state.failures = 0
        # A change is looked at once more in the next round: what was read before it is no longer true.
        again = 0.0 if isinstance(state.plan, Batch) else self._rules.interval_s * (0.9 + 0.2 * self._chance())
        state.due = now + again

    def _failed(self, state: NameState, now: float, error: PyconfdError) -> None:
        """Try again: at once where only somebody was faster, later each time where it goes on."""
        state.failures += 1
        state.failures_total += 1
        raced = isinstance(error, RefusedBatchError) and state.failures == 1
        most = self._rules.interval_s if isinstance(error, TransientError | RefusedBatchError) else 0.0
        wait = min(_BACK_OFF_S * 2.0 ** min(state.failures, 16), most) or self._rules.interval_s
        state.due = now if raced else now + wait * (0.5 + self._chance())
        if not raced:
            self._tell(state, error.problems[0] if error.problems else Problem(state.spec.name, str(error)))

    def _tell(self, state: NameState, problem: Problem | None) -> None:
        """Log a problem when it comes and when it goes, not each time it is met."""
        if problem and problem != state.problem:
            log.warning("dns.stuck", name=state.spec.name, problem=first_line([problem]))
        elif state.problem and not problem:
            log.info("dns.recovered", name=state.spec.name)
        state.problem = problem

    def _reaping(self, state: NameState, now: float) -> Plan:
        """Return the plan about the first node that something is to be done about."""
        spec = state.spec
        markers = [marker for marker, _ in marks_of(state.observed).markers.values() if marker.owner == spec.owner]
        former, state.suspicions = state.suspicions, {}
        found: Plan = InStep()
        if spec.mode is Mode.VIP:
            return found
        # Who lives must have had its turns to say so, however many names and nodes there are.
        round_s = len(self.names) * self._place()[1] * pacing.SLOT_S
        after_s = max(self._rules.reap_after_s, _LOOKS_AT_LEAST * max(round_s, self._rules.interval_s))
        others = [marker for marker in markers if marker.node != self._node and not marker.adopted]
        alive = self._answers(others) if others else ()
        for marker in sorted(others, key=lambda item: item.node):
            suspicion, verdict = judge(
                marker,
                former.get(marker.node),
                answers=marker.node in alive,
                me=self._node,
                now=now,
                after_s=after_s,
            )
            if suspicion:
                state.suspicions[marker.node] = suspicion
            if verdict is not Verdict.LEAVE and not isinstance(found, Batch):
                log.info("node.judged", name=spec.name, node=marker.node, verdict=verdict.value)
                state.forgotten_total += verdict is Verdict.FORGET
                found = _consequence(spec, marker, verdict, self._node, state.observed)
        return found


def _consequence(spec: Spec, marker: Marker, verdict: Verdict, me: str, observed: tuple[RecordSet, ...]) -> Plan:
    if verdict is Verdict.FORGET:
        return forget(spec, marker.node, observed)
    return doubt(spec, marker.node, me if verdict is Verdict.DOUBT else "", observed)


def change_text(change: Change) -> str:
    """Return a change in one line."""
    record = change.record
    which = f" [{record.identifier}]" if record.identifier else ""
    return f"{change.action} {record.name} {record.type}{which} {' '.join(record.values)}"
