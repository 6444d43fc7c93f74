"""A thread for each target, so that a check that hangs or a balancer that is down delays no other target."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from pyconfd.errors import ApplyError, Problem, PyconfdError, RejectedInput
from pyconfd.model.balancing import TakesAll
from pyconfd.model.context import Context, EndpointTotals
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Generation, Held, Outcome, Stored
from pyconfd.model.plan import Noop, Plan, Reload
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Phase, TargetState
from pyconfd.predecessors.targets.target import AppliedTarget, Target
from pyconfd.system.backoff import Backoff
from pyconfd.system.state_file import StateLock

log = structlog.get_logger(__name__)

TICK_S = 1.0
"""How often templates are looked at: edits are to apply within two seconds."""

DRIFT_S = 5.0
"""How often the file is compared with what was applied."""

_PATIENCE_S = 5.0
"""How long the end of the process waits for checks and notifiers; what runs longer ends without it."""

_EVENTS = {
    Phase.HELD: "target.held",
    Phase.REJECTED: "target.rejected",
    Phase.FAILED: "target.failed",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """The newest Context; with ``protect`` the target has to apply removal protection itself."""

    context: Context
    protect: bool


class TargetWorker:
    """Applies the latest offer, again when the template or the file changes, and retries with back-off."""

    def __init__(self, target: Target, *, retry_min_s: float, retry_max_s: float, tick_s: float = TICK_S) -> None:
        self._target = target
        self._backoff = Backoff(first_s=retry_min_s, last_s=retry_max_s)
        self._tick_s = tick_s
        self._lock = threading.Condition()
        self._offer: Offer | None = None
        self._is_new = False
        self._stopping = False
        self._retry_at: float | None = None
        self._drift_at = 0.0
        self._thread: threading.Thread | None = None
        self.bug: BaseException | None = None
        self.problems: tuple[Problem, ...] = ()
        applied = target.applied()
        self.state = TargetState(
            target.settings.name,
            target.settings.output,
            digest=applied.digest if applied else "",
            applied_at=applied.applied_at if applied else 0.0,
        )
        """As of the last attempt; immutable, so any thread may read it."""

    def start(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Begin; ``on_change`` is called after each attempt."""
        self._thread = threading.Thread(
            target=self._run, args=(on_change,), name=f"target-{self.state.name}", daemon=True
        )
        self._thread.start()

    def offer(self, offer: Offer) -> None:
        """Replace what is to be applied; returns at once."""
        with self._lock:
            self._offer = offer
            self._is_new = True
            self._lock.notify()

    def stop(self) -> None:
        """Ask the thread to end; a check or notifier that runs ends first."""
        with self._lock:
            self._stopping = True
            self._lock.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, on_change: Callable[[], None]) -> None:
        try:
            while True:
                with self._lock:
                    self._lock.wait_for(lambda: self._is_new or self._stopping, timeout=self._tick_s)
                    if self._stopping:
                        return
                    offer, is_new, self._is_new = self._offer, self._is_new, False
                if offer is not None and (is_new or self._is_due()):
                    self._attempt(offer)
                    on_change()
        finally:
            # Targets.states() raises it in the loop; the process ends, and systemd starts it again.
            self.bug = sys.exception()
            if self.bug is not None:
                on_change()

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self._retry_at is not None and now >= self._retry_at:
            return True
        if self._target.template_changed():
            return True
        if self._retry_at is None and now >= self._drift_at:
            self._drift_at = now + DRIFT_S
            return self.state.phase is Phase.SERVING and not self._target.is_in_place()
        return False

    def _attempt(self, offer: Offer) -> None:
        now = time.time()
        curdate = datetime.fromtimestamp(now).strftime("%Y-%m-%d %H:%M:%S.%f")  # noqa: DTZ006 - local, as it was
        try:
            outcome = self._target.apply(offer.context, curdate=curdate, now=now, protect=offer.protect)
        except PyconfdError as error:
            phase = Phase.REJECTED if isinstance(error, RejectedInput) else Phase.FAILED
            self._failed(phase, error)
            return
        self._retry_at = None
        self._backoff.reset()
        if isinstance(outcome, Held):
            self._report(Phase.HELD, (outcome.problem,))
            return
        self._record_applied(outcome)

    def _record_applied(self, applied: AppliedTarget) -> None:
        former = self.state
        changed = applied.applied_at != former.applied_at or applied.digest != former.digest
        if changed:
            log.info("target.applied", target=former.name, output=former.output, digest=applied.digest[:12])
        elif former.problems:
            log.info("target.recovered", target=former.name)
        self.problems = ()
        self.state = replace(
            former,
            phase=Phase.SERVING,
            digest=applied.digest,
            applied_at=applied.applied_at,
            problems=(),
            applied_total=former.applied_total + changed,
        )

    def _failed(self, phase: Phase, error: PyconfdError) -> None:
        self._retry_at = time.monotonic() + self._backoff.delay_s()
        self._report(phase, error.problems, step=error.step if isinstance(error, ApplyError) else "")
        self.state = replace(self.state, failures_total=self.state.failures_total + 1)

    def _report(self, phase: Phase, problems: tuple[Problem, ...], step: str = "") -> None:
        texts = tuple(str(problem) for problem in problems)
        if texts != self.state.problems:
            for problem in problems:
                log.error(
                    _EVENTS[phase],
                    target=self.state.name,
                    place=problem.place,
                    problem=problem.message,
                    remedy=problem.remedy,
                    step=step,
                )
        self.problems = problems
        self.state = replace(self.state, phase=phase, problems=texts)


class Targets:
    """All targets of this process."""

    def __init__(self, workers: tuple[TargetWorker, ...] = ()) -> None:
        self._workers = workers

    def start(self, on_change: Callable[[], None]) -> None:
        """Begin; ``on_change`` is called from any thread when a state may have changed."""
        for worker in self._workers:
            worker.start(on_change)

    def offer(self, context: Context, *, protect: bool) -> None:
        """Apply this to every target, each in its own time; returns at once."""
        for worker in self._workers:
            worker.offer(Offer(context, protect))

    def states(self) -> tuple[TargetState, ...]:
        """Return the state of each, in the order of the settings.

        Raises:
            RuntimeError: a worker died of a bug.
        """
        for worker in self._workers:
            if worker.bug is not None:
                raise RuntimeError(f"the worker of target {worker.state.name} died") from worker.bug
        return tuple(worker.state for worker in self._workers)

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with them now."""
        return tuple(problem for worker in self._workers for problem in worker.problems)

    def stop(self) -> None:
        """End all threads, as far as they end soon; the balancers go on serving."""
        for worker in self._workers:
            worker.stop()
        deadline = time.monotonic() + _PATIENCE_S
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))


_NOTHING = Rendering(())


class NoBalancer(TakesAll):
    """In the place of HAProxy where only targets are served: it has nothing to do, and serves at once.

    Removal protection compares with the largest number of endpoints of any target.
    """

    def __init__(self, state_dir: str, targets: tuple[Target, ...]) -> None:
        self._targets = targets
        self._served = False
        self._lock = StateLock(state_dir)

    def startup(self) -> tuple[Problem, ...]:
        """Lock the state directory; raises TransientError where another pyconfd holds it."""
        self._lock.acquire()
        return ()

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def last_good(self) -> Stored | None:
        """Return a generation numbered 0 once a target was applied, or :meth:`apply` was called."""
        known = [applied for target in self._targets if (applied := target.applied()) is not None]
        if not known and not self._served:
            return None
        totals = EndpointTotals(
            max((item.totals.claimed for item in known), default=0),
            max((item.totals.total for item in known), default=0),
        )
        applied_at = max((item.applied_at for item in known), default=0.0)
        return Stored(Generation(0, _NOTHING.digest, applied_at, totals=totals), _NOTHING)

    def plan(self, rendering: Rendering) -> Plan:
        """Return nothing to do."""
        del rendering
        return Noop()

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return none: nothing is bound here."""
        del rendering
        return {}

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        """Record that the cluster was read."""
        self._served = True
        generation = Generation(0, rendering.digest, now, curdate, totals=totals)
        return Applied(generation, plan, verified=True)

    def restore_last_good(self, now: float) -> Outcome | None:
        """Return None: targets keep what they have."""
        del now
        return None

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Ignore it: nothing here takes long."""

    def runs(self) -> bool:
        """Return True: nothing has to be started."""
        return True
