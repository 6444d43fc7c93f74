"""Keeps the Status: what is going on, put together from what the loop tells. It decides nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, Self, get_args

from pyconfd.errors import Problem, first_line
from pyconfd.model.changes import Change
from pyconfd.model.context import Context, Refusal
from pyconfd.model.hold import Hold, HoldEvent
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Held, Outcome, Rejected, Stored, Unchanged
from pyconfd.model.plan import Reload
from pyconfd.model.preset import PresetName
from pyconfd.model.status import Paused, Phase, QuarantineStatus, SourceHealth, Standing, Status

Topic = Literal[
    "source",
    "rollout",
    "removal protection",
    "outcome",
    "candidate",
    "fragments",
    "templates",
    "last_good",
    "balancer",
    "other",
]
_TOPICS: tuple[Topic, ...] = get_args(Topic)
"""In the order in which their problems are shown."""


class Account:
    """``status`` is replaced as a whole whenever something is told, so any thread may read it."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.changed = True
        """True until whoever publishes the status says False."""
        self.untried = False
        """True while newer fragments than those that serve wait for their first attempt."""
        self.rendering = False
        """True while a template of the cluster is being rendered, and its former text is used."""
        self._events = status.events_total
        self._pending_since = status.pending_since
        self._in_step = False
        self._candidate: Rejected | Failed | None = None
        self._problems: dict[Topic, tuple[Problem, ...]] = {}
        self._owners: Mapping[str, Any] = {}
        self._owned: set[str] = set()

    @classmethod
    def begun(cls, now: float, applied: Stored | None, *, version: str, pid: int) -> Self:
        """Return the account of a loop that begins ``now`` with what was applied before."""
        generation = applied.generation if applied else None
        return cls(Status(now, version, pid, started_at=now, heartbeat_at=now, generation=generation))

    @property
    def in_step(self) -> bool:
        """True after an outcome by which the cluster's state serves, be it with former fragments."""
        return self._in_step

    def at(self, now: float, source: SourceHealth, *, undecided: bool = False) -> Status:
        """Return the status as of ``now`` (seconds since the epoch); ``undecided``: something may be to apply."""
        pending, status = self._pending_since or (now if undecided else 0.0), self.status
        shown = replace(status, now=now, source=source, events_total=self._events, pending_since=pending)
        return replace(shown, untried=True) if undecided else shown

    def line(self, source: SourceHealth | None = None) -> str:
        """Return one line for ``systemctl status``; with ``source`` it says when nothing of that answers."""
        number = f" generation {self.status.generation.number}" if self.status.generation else ""
        problem = first_line([problem for topic in _TOPICS for problem in self._problems.get(topic, ())])
        words = [f"{self.status.phase.value.replace('_', ' ')}{number}{': ' if problem else ''}{problem}"]
        words += ["paused by hand"] if self.status.live.paused else []
        return "; ".join([*words, *(_silent(source) if source else ())])

    def beat(self, now: float) -> None:
        """Note that the loop makes progress."""
        self.status = replace(self.status, heartbeat_at=now)

    def events(self, count: int) -> None:
        """Note that something changed in the cluster; cheap, since there may be thousands a second."""
        self._events += count

    def pending(self, now: float) -> None:
        """Note that something is to be applied; cheap, since it stands before every live change."""
        if not self._pending_since:
            self._pending_since = now
            self.changed = True

    def newer(self) -> None:
        """Note that there are newer fragments, and nothing was tried with them yet."""
        self.untried = True
        self._put(replace(self.status, untried=True))

    def nothing_pending(self) -> None:
        """Note that there is nothing to apply yet."""
        self._pending_since = 0.0
        self.changed = True

    def problems(self, topic: Topic, problems: Iterable[Problem]) -> None:
        """Show these problems of ``topic``, and no others of it."""
        self._put(replace(self.status, problems=self._shown(topic, problems)))

    def _shown(self, topic: Topic, problems: Iterable[Problem]) -> tuple[str, ...]:
        """Note the problems of a topic; give all that there are, each once."""
        self._problems[topic] = tuple(problems)
        return tuple(dict.fromkeys(str(problem) for each in _TOPICS for problem in self._problems.get(each, ())))

    def reconciled(self, refused: tuple[Refusal, ...]) -> None:
        """Count a reconciliation."""
        total = self.status.reconciliations_total + 1
        self._put(replace(self.status, refused=refused, reconciliations_total=total))

    def quarantined(self, status: QuarantineStatus) -> None:
        """Show who is left out so that everything else goes on."""
        self._put(replace(self.status, quarantine=status))

    def stands(self, standing: Standing, paused: Paused | None, now: float) -> None:
        """Show how the balancer stands ``now``."""
        applying = self.status.applying.seen(
            now,
            old_workers=standing.old_workers,
            oldest_worker_age_s=standing.oldest_worker_age_s,
            file_behind=standing.file_behind,
        )
        problems = self._shown("balancer", standing.problems)
        live = replace(standing.live, paused=paused)
        self._put(replace(self.status, applying=applying, live=live, problems=problems))

    def took(self, change: Change | None) -> None:
        """Count a plan; None where nothing had to change."""
        self._put(replace(self.status, applying=self.status.applying.after(change)))

    def failure(self, outcome: Rejected | Failed) -> None:
        """Count a failed attempt."""
        counts = _counted(self.status.failures_by_step, [outcome.step.value])
        self._put(replace(self.status, failures_by_step=counts))

    def candidate(self, outcome: Rejected | Failed | None) -> None:
        """Note why the newest fragments are not those that serve; None where they are."""
        self._candidate = outcome
        self.problems("candidate", outcome.problems if outcome else ())

    def restored(self, outcome: Applied | Unchanged) -> None:
        """Note that the last good generation serves, and what it took."""
        counts = _counted(self.status.reloads_by_reason, _reasons(outcome))
        generation, verified = outcome.generation, outcome.verified
        self._put(replace(self.status, generation=generation, verified=verified, reloads_by_reason=counts))

    def asked_for(self, names: tuple[str, ...] | None) -> None:
        """Note which names are to point here by what serves now; None, where nobody can say so, changes nothing."""
        if names is not None and names != self.status.dns_names:
            self._put(replace(self.status, dns_names=names))

    def serves(self, context: Context) -> None:
        """Count the names that clients ask for by in what serves now."""
        hosts = {host for entry in _entries(context) for host in entry.get("hostnames", ())}
        if context.owners != self._owners:  # nearly always the same objects: names change less than endpoints
            self._owners = context.owners
            self._owned = {name.name for mine in context.owners.values() for name in mine if name.name}
        self._put(replace(self.status, hosts_total=len(self._owned | hosts) if hosts else len(self._owned)))

    def held(self, hold: Hold | None, events: tuple[HoldEvent, ...]) -> None:
        """Show what is held of what is otherwise applied, and count the steps of holds."""
        if hold == self.status.hold and not events:
            return
        counts = _counted(self.status.holds_by_step, (event.step.value for event in events))
        shown = self._shown("removal protection", (hold.problem,) if hold else ())
        hold_id = hold.hold_id if hold else ""
        self._put(replace(self.status, hold=hold, hold_id=hold_id, holds_by_step=counts, problems=shown))

    def phase(self, phase: Phase) -> None:
        """Note what is going on where there was no outcome."""
        self._put(replace(self.status, phase=phase))

    def outcome(self, outcome: Outcome) -> None:
        """Put an outcome into the status, in one step: other threads read it meanwhile."""
        status = self.status
        if not isinstance(outcome, Deferred):  # what waits for its turn changes nothing about these
            self._in_step = isinstance(outcome, Applied | Unchanged)
            status = replace(status, untried=self.untried)
        match outcome:
            case Applied(generation, _, verified):
                counts = _counted(status.reloads_by_reason, _reasons(outcome))
                self._serving(replace(status, reloads_by_reason=counts), generation, verified=verified)
            case Unchanged(generation, verified):
                self._serving(status, generation, verified=verified)
            case Deferred(_, generation):
                self._put(replace(status, generation=generation))
            case Held(hold_id, problem):
                shown = self._shown("outcome", (problem,))
                self._put(replace(status, phase=Phase.HELD, hold_id=hold_id, problems=shown))
            case Rejected(_, problems):
                shown = self._shown("outcome", problems)
                self._put(replace(status, phase=Phase.REJECTED, hold_id=_id_of(status.hold), problems=shown))
            case Failed(_, problems):
                shown = self._shown("outcome", problems)
                self._put(replace(status, phase=Phase.FAILED, hold_id=_id_of(status.hold), problems=shown))

    def _serving(self, status: Status, generation: Generation, *, verified: bool) -> None:
        """All is well, unless newer fragments or templates of the cluster wait to be mended."""
        phase = Phase.SERVING
        if self._candidate:
            phase = Phase.REJECTED if isinstance(self._candidate, Rejected) else Phase.FAILED
        elif self._problems.get("templates"):
            phase = Phase.REJECTED
        if status.hold:
            phase = Phase.HELD
        unmended = self._problems.get("fragments") or self._problems.get("templates")
        self._put(
            replace(
                status,
                generation=generation,
                verified=verified,
                phase=phase,
                hold_id=_id_of(status.hold),
                problems=self._shown("outcome", ()),
            )
        )
        # Last, or another thread would see nothing pending beside the status of before.
        if not (status.hold or self._candidate or unmended or self.untried or self.rendering):
            self._pending_since = 0.0

    def _put(self, status: Status) -> None:
        if status != self.status:
            self.status = status
            self.changed = True


def _entries(context: Context) -> Iterable[Mapping[str, Any]]:
    """Return the services of the preset configmap, which has no owners: one ConfigMap gives all names."""
    services: Iterable[Mapping[str, Any]] = context.names.get(PresetName.CONFIGMAP, {}).get("services", ())
    return services


def _reasons(outcome: Applied | Unchanged) -> list[str]:
    plan = outcome.plan if isinstance(outcome, Applied) else None
    return [reason.value for reason in plan.reasons] if isinstance(plan, Reload) else []


def _id_of(hold: Hold | None) -> str:
    return hold.hold_id if hold else ""


def _counted(counts: Mapping[str, int], names: Iterable[str]) -> Mapping[str, int]:
    more = dict(counts)
    for name in names:
        more[name] = more.get(name, 0) + 1
    return MappingProxyType(more)


def _silent(source: SourceHealth) -> Iterator[str]:
    """Return which servers answer nobody any more, with what the one in use, or the first one, said last."""
    for name, servers in (("API server", source.api_servers), ("endpoint of etcd", source.etcd)):
        if servers and all(server.last_error and not server.healthy for server in servers):
            told = max(servers, key=lambda server: server.in_use)
            yield f"no {name} answers ({told.url}: {told.last_error})"
