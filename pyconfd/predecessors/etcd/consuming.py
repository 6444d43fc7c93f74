"""The loop of a consumer: what is published is verified, checked and applied; what fails changes nothing."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.admission.whole_change import WholeChange
from pyconfd.daemon.base_loop import Loop, Task
from pyconfd.daemon.ports import Changes, Clocks, NoChanges, Notifier, RestoringBalancer
from pyconfd.daemon.reconcile import FailedAttempt, serve
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.config.text import endpoint_totals
from pyconfd.model.context import EndpointTotals
from pyconfd.model.hold import PLACE
from pyconfd.model.outcome import Applied, Deferred, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Paused, Phase, Status
from pyconfd.predecessors.etcd.local import LocalFiles, depends_on_files
from pyconfd.predecessors.etcd.publication import KnownGeneration, Publication
from pyconfd.predecessors.etcd.source import PublicationReading, PublishedSource
from pyconfd.settings import ApplySettings


@dataclass(frozen=True, slots=True)
class ConsumerWorld:
    """Everything outside the loop; ``taken`` is the last publication that was applied, over restarts.

    ``paused`` gives what an operator froze, at a time in seconds since the epoch. ``other_problems`` gives what else is
    wrong; it is asked each second.
    """

    source: PublishedSource
    files: LocalFiles
    balancer: RestoringBalancer
    notifier: Notifier
    clock: Clocks
    taken: KnownGeneration
    allowed_holds: Callable[[], frozenset[str]]
    forget_holds: Callable[[], None]
    publish: Callable[[Status], object]
    other_problems: Callable[[], tuple[Problem, ...]] = tuple
    paused: Callable[[float], Paused | None] = lambda _: None
    changes: Changes = field(default_factory=NoChanges)


log = structlog.get_logger(__name__)

_LOOKS_AGAIN = frozenset({Phase.SERVING, Phase.REJECTED, Phase.FAILED})


@dataclass(frozen=True, slots=True)
class _Decision:
    """``rendering`` is what was made of the publication; ``repeated`` where an earlier outcome stands."""

    outcome: Outcome
    rendering: Rendering | None = None
    servers: int = 0
    repeated: bool = False


class Consumer(Loop):
    """Applies what is published in etcd. It has no quiet time: the publisher had one."""

    def __init__(
        self, world: ConsumerWorld, apply: ApplySettings, rules: RemovalRules, *, version: str, pid: int
    ) -> None:
        super().__init__(world, replace(apply, quiet_s=0.0, cap_s=0.0), version=version, pid=pid)
        self._world = world
        self._whole_change = WholeChange(rules)
        self._made = ""
        """The digest of what was made of the last publication, or why nothing could be."""

    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads."""
        health = self._world.source.health()
        lacking = ", ".join(f"{path}: {fault}" for path, fault in sorted(self._world.files.lacking.items()))
        return self._report.at(replace(health, note="; left out here: ".join(filter(None, (health.note, lacking)))))

    def start(self) -> None:
        """Begin to read etcd."""
        self._world.balancer.report_progress(self._progressed)
        self._world.source.start(self.mailbox.post)

    def close(self) -> None:
        """End all threads."""
        self._world.source.stop()

    def _poll(self, now: float) -> None:
        """Find what changed without telling: a permission, the time of a hold, a certificate of this machine."""
        self._report.problems("other", self._world.other_problems())
        hold_id = self._report.status.hold_id
        if hold_id and (hold_id in self._world.allowed_holds() or self._whole_change.is_over(now)):
            self._note_change(now, at_once=True)

    def _poll_balancer(self, now: float) -> None:
        super()._poll_balancer(now)
        reading = self._world.source.reading()
        published = reading.published if reading and self._report.status.phase in _LOOKS_AGAIN else None
        if published is None or not depends_on_files(published):
            return
        if self._world.files.fingerprint(published) != self._made:
            self._note_change(now, at_once=True)

    def _attempt(self, now: float, *, may_reload: bool) -> None:
        reading = self._world.source.reading()
        if reading is None:
            self._queue.succeeded(Task.RETRY)
            self._report.nothing_pending()
            return
        if reading == PublicationReading() and not self._world.taken.load()[0]:
            # Nothing was ever published: that is no failure, and what ran before pyconfd consumed goes on.
            self._queue.succeeded(Task.RETRY)
            self._decide_alone(now, "nothing is published yet", _nothing(0))
            return
        began = self._world.clock.monotonic()
        done = self._decide(reading, self._standing_failure, may_reload=may_reload)
        duration_s = self._world.clock.monotonic() - began
        self._report.reconciled(done.outcome, duration_s=duration_s, endpoints=done.servers)
        self._pace_after(done.outcome)
        if isinstance(done.outcome, Deferred):
            self._report.concluded(done.outcome)
            return
        self._queue.remove(Task.APPLY)
        self._schedule(done)
        if isinstance(done.outcome, Applied | Unchanged):
            self._newer_runs()
            if self._world.allowed_holds():
                self._world.forget_holds()
        self._conclude(done.outcome, now)

    def _decide(self, reading: PublicationReading, failed: FailedAttempt | None, *, may_reload: bool) -> _Decision:
        """Return what becomes of what was read; ``failed`` is a failure that it is too early to repeat."""
        if reading.error is not None:
            return _Decision(Rejected(Step(reading.error.step or Step.CHECK), reading.error.problems))
        published = reading.published
        number, digest = self._world.taken.load()
        if published is None:
            return _Decision(Rejected(Step.CHECK, (_nothing(number),)))
        held = _judge_order(published, number, digest, self._world.allowed_holds())
        if held is not None:
            return _Decision(held)
        try:
            rendering = self._world.files.rendering(published)
        except RejectedInput as error:
            self._made = str(error)
            return _Decision(Rejected(Step(error.step or Step.CHECK), error.problems))
        self._made = rendering.digest
        if failed and (
            (failed.rendering is not None and failed.rendering.same_as(rendering)) or _is_disruptive(failed.outcome)
        ):
            return _Decision(failed.outcome, rendering, repeated=True)
        totals = endpoint_totals(rendering.text)
        outcome: Outcome | None = self._judge_loss(rendering, totals)
        if outcome is None:
            outcome = self._apply(rendering, totals, published, may_reload=may_reload)
        if isinstance(outcome, Applied | Unchanged):
            self._remember(published)
        return _Decision(outcome, rendering, totals.claimed)

    def _judge_loss(self, rendering: Rendering, totals: EndpointTotals) -> Held | None:
        serving = self._world.balancer.last_good()
        if serving is None:
            return None
        before = endpoint_totals(serving.rendering.text)
        # A server that is still there, and gets nothing new, was taken out on purpose.
        lost = before.claimed - totals.total
        held = self._whole_change.judge(
            self._world.clock.monotonic(),
            EndpointTotals(before.claimed, before.claimed),
            EndpointTotals(totals.claimed, totals.claimed),
            lost=lost,
            digest=lambda: rendering.digest,
            allowed=self._world.allowed_holds(),
        )
        if held is None:
            return None
        gone = f"all {before.claimed}" if not totals.claimed else f"{lost} of {before.claimed}"
        then = "" if not totals.claimed else " until that has lasted"
        message = f"{gone} servers would be gone at once; the last good configuration keeps serving{then}"
        remedy = f"look at the producer and its cluster; if this is meant, run: pyconfd allow {held.hold_id}"
        return Held(held.hold_id, Problem(PLACE, message, remedy))

    def _apply(
        self, rendering: Rendering, totals: EndpointTotals, published: Publication, *, may_reload: bool
    ) -> Outcome:
        balancer, now = self._world.balancer, self._world.clock.now()
        last = balancer.last_good()
        serving = last.generation if last else None
        return serve(
            rendering,
            serving,
            balancer,
            curdate=published.pointer.curdate,
            totals=totals,
            now=now,
            may_reload=may_reload,
            monotonic=self._world.clock.monotonic,
        )

    def _remember(self, published: Publication) -> None:
        try:
            self._world.taken.save(published.pointer.number, published.pointer.sha256)
        except TransientError as error:
            log.warning("memory.not_written", problem=str(error))

    def _schedule(self, done: _Decision) -> None:
        """Decide when what failed is tried again, if nothing new comes before."""
        outcome = done.outcome
        if not isinstance(outcome, Rejected | Failed):
            self._queue.succeeded(Task.RETRY)
            self._waits_for_start = False
        elif not done.repeated:
            self._retry_later(outcome, done.rendering)

    def _decide_without_input(self, now: float) -> None:
        self._decide_alone(now, "nothing could be read from etcd yet")

    def _decide_alone(self, now: float, reason: str, *problems: Problem) -> None:
        """Run the last good generation where etcd has nothing to say, and say so."""
        before = self._report.status
        if before.phase is not Phase.SERVING_LAST_GOOD:
            self._report.phase(Phase.WAITING)
        self._restore_last_good(now)
        self._report.problems("outcome", problems)
        self._report.nothing_pending()
        status = self._report.status
        if (status.phase, status.problems) != (before.phase, before.problems):
            log.warning("start.decided", phase=status.phase.value, reason=reason)
        if not self._decided:
            self._decided = True
            self._report.ready()


def _is_disruptive(outcome: Outcome) -> bool:
    """Return whether to try anything costs traffic, whatever is tried."""
    return isinstance(outcome, Failed) and outcome.disruptive


def _judge_order(published: Publication, number: int, digest: str, allowed: frozenset[str]) -> Held | None:
    """Hold what is older than what was taken already: etcd was restored, or it is another one."""
    pointer = published.pointer
    if pointer.number > number or (pointer.number, pointer.sha256) == (number, digest):
        return None
    hold_id = hashlib.sha256(f"order {pointer.number} {pointer.sha256}".encode()).hexdigest()[:8]
    if hold_id in allowed:
        return None
    message = f"etcd has generation {pointer.number}, this balancer took {number} already: etcd lost data, or it is"
    remedy = f"a running producer goes on from where it was; if this is meant, run: pyconfd allow {hold_id}"
    return Held(hold_id, Problem("etcd", f"{message} another one", remedy))


def _nothing(number: int) -> Problem:
    if number:
        message = f"etcd lost what was published, at least up to generation {number}; the last good one keeps serving"
        return Problem("etcd", message, "is etcd.path right? does a producer run? it publishes again by itself")
    return Problem("etcd", "nothing is published yet", "start pyconfd publish; is etcd.path the same there?")
