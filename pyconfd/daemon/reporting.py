"""Reports what a loop does: in the status, the log, the change log and to the service manager. It decides nothing.

Each thing is said once: a problem when it appears and when it is gone, an object when it is rejected and accepted
again, a failure when it is not the same as before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import structlog

from pyconfd.daemon.ports import Changes, Clocks, Notifier
from pyconfd.errors import Problem, first_line
from pyconfd.model.changes import Action, Change, EndedWorker, change_of, change_of_hold
from pyconfd.model.context import Context, PresetName, Refusal, RefusalReason, left_out, news, notes_among
from pyconfd.model.hold import Hold, HoldEvent
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Held, Outcome, Rejected, Stored, Unchanged
from pyconfd.model.plan import Reload, RuntimeUpdate
from pyconfd.model.status import (
    BalancerStatus,
    HaproxyState,
    NextAttempt,
    Paused,
    Phase,
    QuarantineStatus,
    SourceHealth,
    SpentShare,
    Status,
)
from pyconfd.system.secrecy import redacted

if TYPE_CHECKING:
    from pyconfd.model.certificate import PresentedCertificate

log = structlog.get_logger(__name__)

Topic = Literal[
    "haproxy",
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

_HEARTBEAT_S = 1.0
_LOGGED_CHANGES = 8


class Reporter:
    """``status`` is replaced as a whole at each report, so any thread may read it."""

    def __init__(
        self, clock: Clocks, notifier: Notifier, changes: Changes, applied: Stored | None, *, version: str, pid: int
    ) -> None:
        self._clock = clock
        self._notifier = notifier
        self._changes = changes
        now, generation = clock.now(), applied.generation if applied else None
        self.status = Status(now, version, pid, started_at=now, heartbeat_at=now, generation=generation)
        self.untried = False
        """True while newer fragments than the running ones wait for their first attempt."""
        self.rendering = False
        """True while a template of the cluster is being rendered, and its former text is used."""
        self.in_step = False
        """True after an outcome by which the cluster's state is applied, be it with former fragments."""
        self.next_attempt: NextAttempt | None = None
        """What waits in the work queue of the loop."""
        self._next_heartbeat = clock.monotonic()
        self._said_line = ""
        self._events = 0
        self._pending_since = 0.0
        self._candidate: Rejected | Failed | None = None
        self._problems: dict[Topic, tuple[Problem, ...]] = {}
        self._logged: dict[Topic, tuple[Problem, ...]] = {}
        self._refused: tuple[Refusal, ...] = ()
        self._deferred: Reload | None = None
        self._recorded: Change | None = None
        self._recorded_edit: tuple[Action, tuple[str, ...]] | None = None
        self._certificates: tuple[Mapping[str, PresentedCertificate], ...] = ()
        self._owners: Mapping[str, Any] = {}
        self._owned: set[str] = set()

    # What is pending

    def events(self, count: int) -> None:
        """Count changes of the cluster; cheap, since there may be thousands a second."""
        self._events += count

    def pending(self) -> None:
        """Mark that something is to be applied; cheap, since it stands before every runtime update."""
        if not self._pending_since:
            self._pending_since = self._clock.now()

    def nothing_pending(self) -> None:
        """Mark that there is nothing to apply yet."""
        self._pending_since = 0.0

    def newer_fragments(self) -> None:
        """Mark that there are newer fragments, and nothing was tried with them yet."""
        log.info("fragments.read")
        self.untried = True
        self._recorded_edit = None
        self.status = replace(self.status, untried=True)

    # What is wrong

    def problems(self, topic: Topic, problems: tuple[Problem, ...], event: str = "", **fields: str) -> None:
        """Show these problems of ``topic``, and no others of it; log them as ``event`` where they are others."""
        if problems != self._problems.get(topic, ()):
            self.status = replace(self.status, problems=self._shown(topic, problems))
        if event:
            self._log_problems(topic, problems, event, **fields)

    def _shown(self, topic: Topic, problems: tuple[Problem, ...]) -> tuple[str, ...]:
        """Store the problems of a topic; return all that there are, each once."""
        self._problems[topic] = problems
        return tuple(dict.fromkeys(str(problem) for each in _TOPICS for problem in self._problems.get(each, ())))

    def _log_problems(self, topic: Topic, problems: tuple[Problem, ...], event: str, **fields: str) -> None:
        former = self._logged.get(topic, ())
        if problems == former:
            return
        if not problems:
            log.info("problem.cleared", problem=former[0].message)
        known = {problem for other, each in self._logged.items() if other != topic for problem in each}
        self._logged[topic] = problems
        for problem in problems:
            if problem not in known:  # else it was said already: one cause, one line
                log.error(event, place=problem.place, problem=problem.message, remedy=problem.remedy, **fields)

    # What came of an attempt

    def reconciled(
        self,
        outcome: Outcome,
        *,
        duration_s: float,
        endpoints: int,
        refused: tuple[Refusal, ...] = (),
        causes: tuple[str, ...] = (),
    ) -> None:
        """Count a reconciliation, log what came of it, and record what changed, and by which objects."""
        self._log_refused(refused)
        self._log_outcome(outcome, "outcome", duration_s, endpoints)
        change = self._change_of(outcome, duration_s)
        status = self.status
        total = status.reconciliations_total + 1
        self.status = replace(
            status,
            refused=left_out(refused),
            notes=notes_among(refused),
            reconciliations_total=total,
            applying=status.applying.after(change),
        )
        if change is None:
            return
        same = replace(change, at=0.0, duration_s=0.0)
        if change.action is not Action.DEFERRED or same != self._recorded:
            self._changes.record(replace(change, causes=causes))  # what waits is recorded when it begins to
        self._recorded = same

    def new_fragments_failed(self, outcome: Rejected | Failed, duration_s: float) -> None:
        """Report why an attempt with newer fragments than the running ones failed."""
        self._candidate = outcome
        self._log_outcome(outcome, "candidate", duration_s, 0)
        self.problems("candidate", outcome.problems)
        self.edit_failed(outcome, duration_s)

    def edit_failed(self, outcome: Rejected | Failed, duration_s: float = 0.0) -> None:
        """Record that an edit of the fragments is not used; attempts that end the same are recorded once."""
        change = self._change_of(outcome, duration_s)
        self.status = replace(self.status, applying=self.status.applying.after(change))
        if change is not None and (change.action, change.details) != self._recorded_edit:
            self._changes.record(change)
            self._recorded_edit = change.action, change.details

    def newest_fragments_run(self) -> None:
        """Mark that the newest fragments are those that run."""
        self._candidate = None
        self.problems("candidate", (), "candidate.accepted")

    def _change_of(self, outcome: Outcome, duration_s: float) -> Change | None:
        return change_of(outcome, at=self._clock.now(), serving=self._number, duration_s=duration_s)

    @property
    def _number(self) -> int:
        return self.status.generation.number if self.status.generation else 0

    def failure(self, outcome: Rejected | Failed) -> None:
        """Count a failed attempt."""
        counts = _counted(self.status.failures_by_step, [outcome.step.value])
        self.status = replace(self.status, failures_by_step=counts)

    def concluded(self, outcome: Outcome) -> None:
        """Set the status after an outcome, in one step: other threads read it meanwhile."""
        status = self.status
        if not isinstance(outcome, Deferred):  # what waits for its turn changes nothing about these
            self.in_step = isinstance(outcome, Applied | Unchanged)
            status = replace(status, untried=self.untried)
        hold_id = status.hold.hold_id if status.hold else ""
        match outcome:
            case Applied(generation, _, verified):
                counts = _counted(status.reloads_by_reason, _reasons(outcome))
                self._running(replace(status, reloads_by_reason=counts), generation, verified=verified)
            case Unchanged(generation, verified):
                self._running(status, generation, verified=verified)
            case Deferred(_, generation):
                self.status = replace(status, generation=generation)
            case Held(hold_id, problem):
                shown = self._shown("outcome", (problem,))
                self.status = replace(status, phase=Phase.HELD, hold_id=hold_id, problems=shown)
            case Rejected(_, problems):
                shown = self._shown("outcome", problems)
                self.status = replace(status, phase=Phase.REJECTED, hold_id=hold_id, problems=shown)
            case Failed(_, problems):
                shown = self._shown("outcome", problems)
                self.status = replace(status, phase=Phase.FAILED, hold_id=hold_id, problems=shown)

    def _running(self, status: Status, generation: Generation, *, verified: bool) -> None:
        """All is well, unless newer fragments or templates of the cluster have to be corrected."""
        phase = Phase.SERVING
        if self._candidate:
            phase = Phase.REJECTED if isinstance(self._candidate, Rejected) else Phase.FAILED
        elif self._problems.get("templates"):
            phase = Phase.REJECTED
        if status.hold:
            phase = Phase.HELD
        hold_id = status.hold.hold_id if status.hold else ""
        shown = self._shown("outcome", ())
        self.status = replace(
            status, generation=generation, verified=verified, phase=phase, hold_id=hold_id, problems=shown
        )
        incorrect = self._problems.get("fragments") or self._problems.get("templates")
        # Last, or another thread would see nothing pending beside the status of before.
        if not (status.hold or self._candidate or incorrect or self.untried or self.rendering):
            self._pending_since = 0.0

    def names(self, context: Context) -> None:
        """Show which names point here, which certificates are presented, and count the names that clients ask for."""
        if context.certificates != self._certificates:  # nearly always the same objects
            self._certificates = context.certificates
            found = chain.from_iterable(each.values() for each in context.certificates)
            self.status = replace(self.status, certificates=tuple(dict.fromkeys(found)))
        services: Iterable[Mapping[str, Any]] = context.names.get(PresetName.CONFIGMAP, {}).get("services", ())
        # The preset configmap has no owners: one ConfigMap gives all names.
        hosts = {host for entry in services for host in entry.get("hostnames", ())}
        if context.owners != self._owners:  # nearly always the same objects: names change less than endpoints
            self._owners = context.owners
            self._owned = {name.name for mine in context.owners.values() for name in mine if name.name}
        total = len(self._owned | hosts) if hosts else len(self._owned)
        # None, where nobody can say so, changes nothing.
        dns_names = self.status.dns_names if context.dns_names is None else context.dns_names
        if (total, dns_names) != (self.status.hosts_total, self.status.dns_names):
            self.status = replace(self.status, hosts_total=total, dns_names=dns_names)

    # What else happens

    def restored(self, outcome: Applied | Unchanged) -> None:
        """Report that the last good generation runs, and what it took."""
        counts = _counted(self.status.reloads_by_reason, _reasons(outcome))
        generation, verified = outcome.generation, outcome.verified
        phase = Phase.SERVING_LAST_GOOD if self.status.phase is Phase.WAITING else self.status.phase
        self.status = replace(
            self.status, generation=generation, verified=verified, reloads_by_reason=counts, phase=phase
        )
        if isinstance(outcome, Applied) and isinstance(outcome.plan, Reload):
            log.info(
                "generation.restored",
                number=generation.number,
                reasons=_reasons(outcome),
                changes=list(outcome.plan.details[:_LOGGED_CHANGES]),
                verified=verified,
            )

    def worker_ended(self, ended: EndedWorker) -> None:
        """Report that a former worker was ended with its sessions, so that a reload can come."""
        log.warning(
            "worker.ended",
            pid=ended.pid,
            connections=ended.connections,
            replaced_s=ended.replaced_s,
            namespaces=list(ended.namespaces),
            remedy=f"raise haproxy.max_old_workers ({ended.workers}), or see in pyconfd watch why so much reloads",
        )
        self.status = replace(self.status, applying=self.status.applying.ended(self._clock.now(), ended))
        self._changes.record(Change(self._clock.now(), self._number, Action.ENDED, ended.words))

    def waits_for_share(self, namespaces: frozenset[str]) -> None:
        """Show the namespaces whose changes wait since their reloads left their share of former workers behind."""
        former = self.status.spent_share
        spent = None
        if namespaces:
            spent = SpentShare(tuple(sorted(namespaces)), former.since if former is not None else self._clock.now())
        if spent == former:
            return
        self.status = replace(self.status, spent_share=spent)
        if spent is not None:
            log.warning("reload.waits_for_share", namespaces=list(spent.namespaces), problem=spent.words)
        else:
            log.info("reload.waits_no_more")

    def quarantined(self, status: QuarantineStatus) -> None:
        """Show which objects are left out so that everything else goes on."""
        if status != self.status.quarantine:
            self.status = replace(self.status, quarantine=status)

    def held(self, hold: Hold | None, events: tuple[HoldEvent, ...]) -> None:
        """Show what is held of what is otherwise applied, and record when that begins and how it ends."""
        if hold == self.status.hold and not events:
            return
        counts = _counted(self.status.holds_by_step, (event.step.value for event in events))
        shown = self._shown("removal protection", (hold.problem,) if hold else ())
        hold_id = hold.hold_id if hold else ""
        self.status = replace(self.status, hold=hold, hold_id=hold_id, holds_by_step=counts, problems=shown)
        for event in events:
            change = change_of_hold(event, at=self._clock.now(), serving=self._number)
            if change is not None:
                self._changes.record(change)

    def balancer(self, seen: BalancerStatus, paused: Paused | None) -> None:
        """Show the state of the balancer."""
        why = seen.live.unavailable
        if why and why != self.status.live.unavailable:
            log.info("live_changes.unavailable", why=why)
        applying = self.status.applying.seen(seen.former)
        self.status = replace(self.status, applying=applying, live=replace(seen.live, paused=paused))
        self.problems("balancer", seen.problems, "balancer.troubled")

    def file_behind(self, *, behind: bool) -> None:
        """Show whether the file is behind the process."""
        applying = self.status.applying.written(self._clock.now(), behind=behind)
        if applying != self.status.applying:
            self.status = replace(self.status, applying=applying)

    def haproxy(self, seen: HaproxyState) -> None:
        """Show whether HAProxy runs; why it does not is the first problem until it does."""
        if seen == self.status.haproxy:
            return
        self.status = replace(self.status, haproxy=seen)
        self.problems("haproxy", (seen.problem,) if seen.problem else (), "haproxy.down")

    def phase(self, phase: Phase) -> None:
        """Set the phase where there was no outcome."""
        self.status = replace(self.status, phase=phase)

    # To whom it is said

    def at(self, source: SourceHealth, *, undecided: bool = False) -> Status:
        """Return the status as of now; ``undecided``: something may be to apply. Safe to call from other threads."""
        now = self._clock.now()
        pending, status = self._pending_since or (now if undecided else 0.0), self.status
        untried = undecided or status.untried
        return replace(
            status,
            phase=_shown_phase(status),
            now=now,
            source=source,
            events_total=self._events,
            pending_since=pending,
            next_attempt=self.next_attempt,
            untried=untried,
        )

    def heartbeat(self) -> None:
        """Report that the loop makes progress."""
        self._next_heartbeat = self._clock.monotonic() + _HEARTBEAT_S
        self.status = replace(self.status, heartbeat_at=self._clock.now())
        self._notifier.watchdog()

    def progressed(self) -> None:
        """Report that this thread does not hang, at most each second; for an apply that takes long."""
        if self._clock.monotonic() >= self._next_heartbeat:
            self.heartbeat()

    def ready(self) -> None:
        """Report READY to the service manager: it is decided what runs."""
        self._said_line = self._line()
        self._notifier.ready(self._said_line)

    def say_status(self, source: SourceHealth | None = None) -> None:
        """Send the service manager the state in one line, where it changed since READY."""
        line = self._line(source)
        if self._said_line and line != self._said_line:
            self._said_line = line
            self._notifier.status(line)

    def flush(self) -> None:
        """Write what was recorded."""
        self._changes.flush()

    def _line(self, source: SourceHealth | None = None) -> str:
        """Return one line for ``systemctl status``; with ``source`` it says when nothing of that answers."""
        number = f" generation {self.status.generation.number}" if self.status.generation else ""
        problem = first_line([problem for topic in _TOPICS for problem in self._problems.get(topic, ())])
        words = [f"{_shown_phase(self.status).value.replace('_', ' ')}{number}{': ' if problem else ''}{problem}"]
        words += ["paused by hand"] if self.status.live.paused else []
        return redacted("; ".join([*words, *(_silent(source) if source else ())]))

    def _log_outcome(self, outcome: Outcome, topic: Topic, duration_s: float, endpoints: int) -> None:
        """Log one line for a generation; problems of different topics do not clear each other."""
        match outcome:
            case Applied(generation, plan, verified):
                log.info(
                    "generation.applied",
                    number=generation.number,
                    digest=generation.digest[:12],
                    action="reload" if isinstance(plan, Reload) else "live",
                    reasons=_reasons(outcome),
                    changes=list(plan.details[:_LOGGED_CHANGES]),
                    more_changes=max(0, len(plan.details) - _LOGGED_CHANGES),
                    verified=verified,
                    endpoints=endpoints,
                    duration_s=round(duration_s, 4),
                )
                self._deferred = None
                self._log_problems(topic, (), "generation.applied")
            case Deferred(plan, generation, live):
                self._log_deferred(plan, generation, live)
            case Unchanged():
                self._log_problems(topic, (), "generation.unchanged")
            case Held(_, problem):
                self._log_problems(topic, (problem,), "generation.held")
            case Rejected(step, problems):
                self._log_problems(topic, problems, "generation.rejected", step=step.value)
            case Failed(step, problems):
                self._log_problems(topic, problems, "generation.failed", step=step.value)

    def _log_deferred(
        self, plan: Reload | RuntimeUpdate, generation: Generation | None, live: RuntimeUpdate | None
    ) -> None:
        if live is not None and generation is not None:
            log.info("generation.changed_live", number=generation.number, changes=len(live.commands))
        if isinstance(plan, Reload) and plan != self._deferred:
            self._deferred = plan
            reasons = [reason.value for reason in plan.reasons]
            changes = list(plan.details[:_LOGGED_CHANGES])
            log.info("reload.deferred", reasons=reasons, changes=changes, advice=list(plan.advice))

    def _log_refused(self, refused: tuple[Refusal, ...]) -> None:
        """Log objects that were rejected or accepted since the last call; the quarantine logs its own."""
        came, gone = (
            sorted(each for each in some if each.reason is not RefusalReason.QUARANTINED)
            for some in news(refused, self._refused)
        )
        for item in came:
            log.warning(
                "object.noted" if item.reason.is_note else "object.refused",
                object=str(item.ref),
                field=item.field,
                value=item.value,
                reason=item.reason.value,
                detail=item.detail,
            )
        for item in gone:
            log.info("refusal.cleared", object=str(item.ref), field=item.field)
        self._refused = refused


def _shown_phase(status: Status) -> Phase:
    """Return the phase that is shown: where HAProxy does not run, nothing else counts."""
    return Phase.DOWN if status.haproxy.up is False else status.phase


def _reasons(outcome: Applied | Unchanged) -> list[str]:
    plan = outcome.plan if isinstance(outcome, Applied) else None
    return [reason.value for reason in plan.reasons] if isinstance(plan, Reload) else []


def _counted(counts: Mapping[str, int], names: Iterable[str]) -> Mapping[str, int]:
    more = dict(counts)
    for name in names:
        more[name] = more.get(name, 0) + 1
    return MappingProxyType(more)


def _silent(source: SourceHealth) -> Iterator[str]:
    """Return which servers answer nobody any more, with what the one in use, or the first one, said last."""
    for name, servers in (("API server", source.api_servers), ("endpoint of etcd", source.etcd)):
        if servers and all(server.last_error and not server.healthy for server in servers):
            shown = max(servers, key=lambda server: server.in_use)
            yield f"no {name} answers ({shown.url}: {shown.last_error})"
