"""The loop of a consumer: what is published, verified, checked and applied; what serves stays where that fails."""

import hashlib
from dataclasses import dataclass
from functools import partial

import structlog

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.admission.whole_change import WholeChange
from pyconfd.daemon.account import Account
from pyconfd.daemon.consumer_ports import ConsumerWorld, Found, Publication
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.last_good import RESTORE, LastGood
from pyconfd.daemon.mailbox import Mailbox
from pyconfd.daemon.pulse import Pulse
from pyconfd.daemon.queue import WorkQueue
from pyconfd.daemon.reconcile import Attempt, serve
from pyconfd.daemon.upkeep import Surroundings, Upkeep
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.model.context import Census
from pyconfd.model.hold import PLACE
from pyconfd.model.outcome import Applied, Deferred, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Reload
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Phase, Status
from pyconfd.settings import ApplySettings

log = structlog.get_logger(__name__)

TICK_S = 1.0
"""How often permissions and the certificates of this machine are looked at."""

DRIFT_S = 5.0
"""How often disk and process are compared with what was applied."""

_APPLY, _RETRY = "apply what is published", "retry the failed configuration"
_LOOK, _DRIFT, _BOOT = "look for edits", "compare disk and process", "start without etcd"

_LOOKS_AGAIN = frozenset({Phase.SERVING, Phase.REJECTED, Phase.FAILED})


@dataclass(frozen=True, slots=True)
class _Decided:
    """``digest`` of the rendering, "" for none; ``repeated`` where an earlier outcome stands."""

    outcome: Outcome
    rendering: Rendering | None = None
    servers: int = 0
    repeated: bool = False


class Consumer:
    """One run of a consumer, from start to stop. A stop changes nothing that serves."""

    def __init__(
        self, world: ConsumerWorld, apply: ApplySettings, rules: RemovalRules, *, version: str, pid: int
    ) -> None:
        self._world = world
        self._whole_change = WholeChange(rules)
        self.mailbox = Mailbox()
        self._journal = Journal()
        self._queue = WorkQueue(retry_min_s=apply.retry_min_s, retry_max_s=apply.retry_max_s)
        self._reload_interval_s = apply.reload_interval_s
        self._decided = False
        self._failed: Attempt | None = None
        self._waits_for_start = False
        self._outcome: Outcome | None = None
        self._made = ""
        self._reloads_from = 0.0
        """When the next reload may be, of the monotonic clock."""
        clock = world.clock
        now = clock.monotonic()
        self._queue.add(_LOOK, now)
        self._queue.add(_DRIFT, now)
        self._queue.add(_BOOT, now + apply.boot_wait_s)
        self._account = Account.begun(clock.now(), world.balancer.last_good(), version=version, pid=pid)
        self._pulse = Pulse(clock, world.notifier, self._account)
        around = Surroundings(world.balancer, clock, world.paused, world.changes)
        self._upkeep = Upkeep(around, self._account, self._journal)
        self._last_good = LastGood(
            world.balancer, clock, self._account, self._journal, self._queue, reloaded=self._reloaded
        )

    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads."""
        return self._account.at(self._world.clock.now(), self._world.source.health())

    def start(self) -> None:
        """Begin to read etcd."""
        self._world.balancer.report_progress(self._pulse.progressed)
        self._world.source.start(self.mailbox.post)

    def close(self) -> None:
        """End all threads."""
        self._world.source.stop()

    def wait_s(self) -> float:
        """Return the seconds until there is something to do even if nothing happens."""
        first = self._queue.next(without=(_APPLY, _RETRY) if self._upkeep.paused else ())
        return max(0.0, first[0] - self._world.clock.monotonic()) if first else TICK_S

    def step(self, posts: int) -> None:
        """Do what is due; ``posts`` readings came since the last step."""
        now = self._world.clock.monotonic()
        if posts:
            self._queue.add(_APPLY, now)
            self._account.events(posts)
        if self._upkeep.resumed():
            self._queue.add(_APPLY, now)
        looked = self._queue.pop(now, _LOOK)
        if looked:
            self._queue.add(_LOOK, now + TICK_S)
            self._look_around()
        if self._queue.pop(now, _DRIFT, RESTORE):
            self._queue.add(_DRIFT, now + DRIFT_S)
            if self._decided and not self._upkeep.paused:
                self._look_at_balancer(now)
        if not self._upkeep.paused and self._queue.pop(now, _APPLY, _RETRY):
            self._attempt(now)
        if self._queue.pop(now, _BOOT) and not self._decided:
            self._decide_alone(now, "nothing could be read from etcd yet")
        if looked or self._account.changed:
            self._account.changed = False
            self._upkeep.flush()
            self._pulse.beat()
            self._world.publish(self._pulse.told(self.status()))

    def _reloaded(self, now: float) -> None:
        self._reloads_from = now + self._reload_interval_s

    def _look_around(self) -> None:
        """Find what changed without telling: a permission, or what HAProxy does."""
        self._account.problems("other", self._world.other_problems())
        if self._decided:
            self._upkeep.look()
        now, hold_id = self._world.clock.monotonic(), self._account.status.hold_id
        if hold_id and (hold_id in self._world.allowed_holds() or self._whole_change.is_over(now)):
            self._queue.add(_APPLY, now)

    def _look_at_balancer(self, now: float) -> None:
        """Find what changed without telling: a certificate of this machine, the file, the process."""
        if self._waits_for_start and self._world.balancer.runs():
            self._waits_for_start = False
            self._queue.succeeded(_RETRY)
            self._queue.add(_APPLY, now)
        found = self._world.source.found()
        published = found.publication if found and self._account.status.phase in _LOOKS_AGAIN else None
        if published is not None and published.local and _fingerprint(published) != self._made:
            self._queue.add(_APPLY, now)
        if self._last_good.is_in_place():
            return
        if self._account.in_step:
            self._queue.add(_APPLY, now)
        else:
            self._last_good.restore(now)

    def _attempt(self, now: float) -> None:
        found = self._world.source.found()
        if found is None:
            self._queue.succeeded(_RETRY)
            return
        if found == Found() and not self._world.taken.load()[0]:
            # Nothing was ever published: that is no failure, and what served before pyconfd consumed serves on.
            self._queue.succeeded(_RETRY)
            self._decide_alone(now, "nothing is published yet", _nothing(0))
            return
        clock = self._world.clock
        began = clock.monotonic()
        if self._decided and self._world.balancer.crowded():
            self._reloads_from = max(self._reloads_from, now + TICK_S)
        failed = self._failed if self._queue.is_waiting(_RETRY) else None
        done = self._decide(found, failed, may_reload=now >= self._reloads_from)
        ended = clock.monotonic()
        self._journal.outcome(done.outcome, duration_s=ended - began, endpoints=done.servers)
        self._upkeep.tell(done.outcome, ended - began)
        if isinstance(done.outcome, Deferred):
            self._queue.add(_APPLY, self._reloads_from)
            self._account.outcome(done.outcome)
            return
        if isinstance(done.outcome, Applied) and isinstance(done.outcome.plan, Reload):
            self._reloaded(ended)
        self._account.reconciled(())
        self._schedule(done)
        if isinstance(done.outcome, Applied | Unchanged):
            self._last_good.replaced()
            if self._world.allowed_holds():
                self._world.forget_holds()
        self._conclude(done.outcome, now)

    def _decide(self, found: Found, standing: Attempt | None, *, may_reload: bool) -> _Decided:
        """Return what becomes of what was found; ``standing`` is a failure that it is too early to repeat."""
        if found.error is not None:
            return _Decided(Rejected(Step(found.error.step or Step.CHECK), found.error.problems))
        publication = found.publication
        number, digest = self._world.taken.load()
        if publication is None:
            return _Decided(Rejected(Step.CHECK, (_nothing(number),)))
        held = _judge_order(publication, number, digest, self._world.allowed_holds())
        if held is not None:
            return _Decided(held)
        try:
            rendering = publication.make()
        except RejectedInput as error:
            self._made = str(error)
            return _Decided(Rejected(Step(error.step or Step.CHECK), error.problems))
        self._made = rendering.digest
        if standing and (
            (standing.rendering is not None and standing.rendering.same_as(rendering))
            or _is_disruptive(standing.outcome)
        ):
            return _Decided(standing.outcome, rendering, repeated=True)
        census = self._world.count(rendering.text)
        outcome: Outcome | None = self._judge_loss(rendering, census)
        if outcome is None:
            outcome = self._apply(rendering, census, publication, may_reload=may_reload)
        if isinstance(outcome, Applied | Unchanged):
            self._remember(publication)
        return _Decided(outcome, rendering, census.claimed)

    def _judge_loss(self, rendering: Rendering, census: Census) -> Held | None:
        serving = self._world.balancer.last_good()
        if serving is None:
            return None
        before = self._world.count(serving.rendering.text)
        # A server that is still there, and gets nothing new, was taken out on purpose.
        lost = before.claimed - census.total
        held = self._whole_change.judge(
            self._world.clock.monotonic(),
            Census(before.claimed, before.claimed),
            Census(census.claimed, census.claimed),
            lost=lost,
            digest=lambda: rendering.digest,
            allowed=self._world.allowed_holds(),
        )
        if held is None:
            return None
        gone = f"all {before.claimed}" if not census.claimed else f"{lost} of {before.claimed}"
        then = "" if not census.claimed else " until that has lasted"
        message = f"{gone} servers would be gone at once; the last good configuration keeps serving{then}"
        remedy = f"look at the producer and its cluster; if this is meant, run: pyconfd allow {held.hold_id}"
        return Held(held.hold_id, Problem(PLACE, message, remedy))

    def _apply(self, rendering: Rendering, census: Census, publication: Publication, *, may_reload: bool) -> Outcome:
        balancer, now = self._world.balancer, self._world.clock.now()
        last = balancer.last_good()
        serving = last.generation if last else None
        return serve(
            rendering,
            serving,
            balancer,
            curdate=publication.curdate,
            census=census,
            now=now,
            may_reload=may_reload,
        )

    def _remember(self, publication: Publication) -> None:
        try:
            self._world.taken.save(publication.number, publication.digest)
        except TransientError as error:
            log.warning("memory.not_written", problem=str(error))

    def _schedule(self, done: _Decided) -> None:
        """Decide when what failed is tried again, if nothing new comes before."""
        outcome = done.outcome
        if not isinstance(outcome, Rejected | Failed):
            self._queue.succeeded(_RETRY)
            self._waits_for_start = False
        elif not done.repeated:
            if outcome != self._outcome:
                self._account.failure(outcome)
            self._failed = Attempt(done.rendering, outcome)
            self._queue.retry(_RETRY, self._world.clock.monotonic(), disruptive=_is_disruptive(outcome))
            self._waits_for_start = not self._world.balancer.runs()
        self._outcome = outcome

    def _conclude(self, outcome: Outcome, now: float) -> None:
        """Put an outcome into the status, and make sure that something serves."""
        decided, self._decided = self._decided, True
        self._pulse.concluded(outcome, partial(self._last_good.restore, now), decided=decided)

    def _decide_alone(self, now: float, reason: str, *problems: Problem) -> None:
        """Serve what served last where etcd has nothing to say, and tell so."""
        before = self._account.status
        if before.phase is not Phase.SERVING_LAST_GOOD:
            self._account.phase(Phase.WAITING)
        self._last_good.restore(now)
        self._account.problems("outcome", problems)
        status = self._account.status
        if (status.phase, status.problems) != (before.phase, before.problems):
            log.warning("start.decided", phase=status.phase.value, reason=reason)
        if not self._decided:
            self._decided = True
            self._pulse.ready()


def _is_disruptive(outcome: Outcome) -> bool:
    """Return whether to try anything costs traffic, whatever is tried."""
    return isinstance(outcome, Failed) and outcome.disruptive


def _judge_order(publication: Publication, number: int, digest: str, allowed: frozenset[str]) -> Held | None:
    """Hold what is older than what was taken already: etcd was restored, or it is another one."""
    if publication.number > number or (publication.number, publication.digest) == (number, digest):
        return None
    hold_id = hashlib.sha256(f"order {publication.number} {publication.digest}".encode()).hexdigest()[:8]
    if hold_id in allowed:
        return None
    message = f"etcd has generation {publication.number}, this balancer took {number} already: etcd lost data, or it is"
    remedy = f"a running producer goes on from where it was; if this is meant, run: pyconfd allow {hold_id}"
    return Held(hold_id, Problem("etcd", f"{message} another one", remedy))


def _nothing(number: int) -> Problem:
    if number:
        message = f"etcd lost what was published, at least up to generation {number}; the last good one keeps serving"
        return Problem("etcd", message, "is etcd.path right? does a producer run? it publishes again by itself")
    return Problem("etcd", "nothing is published yet", "start pyconfd publish; is etcd.path the same there?")


def _fingerprint(publication: Publication) -> str:
    """Name what the rendering for this machine is made of; a missing certificate is a name too."""
    try:
        return publication.make().digest
    except RejectedInput as error:
        return str(error)
