"""What the loops of the daemon and of the consumer have in common: steps, tasks and the last good generation.

A loop sleeps until its mailbox gets a post or the first task in its work queue is due, and takes a step then. It runs
in one thread; other threads only post and read :meth:`Loop.status`.
"""

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import structlog

from pyconfd.daemon.ports import Changes, Clocks, Notifier, RestoringBalancer
from pyconfd.daemon.queue import WorkQueue
from pyconfd.daemon.reconcile import FailedAttempt
from pyconfd.daemon.reporting import Reporter
from pyconfd.errors import Problem, PyconfdError
from pyconfd.model.garbage import survivors_frozen, without_collector
from pyconfd.model.outcome import Applied, Failed, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop, Reload
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import NextAttempt, Paused, Status
from pyconfd.settings import ApplySettings

log = structlog.get_logger(__name__)

EXIT_OK = 0
EXIT_BUG = 70
"""Source: sysexits.h, EX_SOFTWARE."""

TICK_S = 1.0
"""How often fragments and holds are polled: edits are to apply within two seconds."""

DRIFT_S = 5.0
"""How often disk and process are compared with what was applied."""


class Task(StrEnum):
    """What a loop does, or may do again, at a time: the keys of its work queue."""

    APPLY = "apply changes"
    RUNTIME_UPDATE = "runtime update"
    ORDER_SPARES = "give backends that spares serve their own names"
    RETRY = "retry the failed configuration"
    RETRY_FRAGMENTS = "retry the new fragments"
    RETRY_PORTS = "retry ports that are in use"
    RETRY_TEMPLATES = "retry rejected templates of the cluster"
    RETRY_QUARANTINED = "retry quarantined objects"
    RELIST = "list again while something is held"
    POLL = "poll for edits"
    DRIFT = "compare disk and process"
    RESTORE = "restore the last good generation"
    BOOT = "start without input"


MAY_RELOAD = (
    Task.APPLY,
    Task.RETRY,
    Task.RETRY_FRAGMENTS,
    Task.RETRY_PORTS,
    Task.RETRY_TEMPLATES,
    Task.RETRY_QUARANTINED,
    Task.RELIST,
    Task.ORDER_SPARES,
)
"""Each leads to a whole attempt, which may take a reload; these come at the pace of reloads."""

RELOAD_PAUSE = 3.0
"""How many times as long as a reload took the next one waits: reloads take a quarter of the time at most."""


class Mailbox:
    """Wakes a loop from other threads; what happened is read from its source, so only the latest state counts.

    Safe in any thread and in signal handlers: ``SimpleQueue.put`` may interrupt itself.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.stopped = False
        """True once somebody asked the loop to end."""

    def post(self) -> None:
        """Report a change of the input."""
        self._queue.put(1)

    def nudge(self) -> None:
        """End a wait early without saying that something changed."""
        self._queue.put(0)

    def stop(self) -> None:
        """Ask the loop to end, and wake it."""
        self.stopped = True
        self._queue.put(0)

    def take(self, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` for a post or a nudge; return the number of posts since the last call."""
        posts = 0
        try:
            posts += self._queue.get(timeout=timeout_s)
            while True:
                posts += self._queue.get_nowait()
        except queue.Empty:
            return posts


class LoopWorld(Protocol):
    """What every loop needs of the world; see :class:`pyconfd.daemon.ports.World`."""

    @property
    def balancer(self) -> RestoringBalancer: ...  # noqa: D102
    @property
    def notifier(self) -> Notifier: ...  # noqa: D102
    @property
    def clock(self) -> Clocks: ...  # noqa: D102
    @property
    def changes(self) -> Changes: ...  # noqa: D102
    @property
    def paused(self) -> Callable[[float], Paused | None]: ...  # noqa: D102
    @property
    def publish(self) -> Callable[[Status], object]: ...  # noqa: D102


class Loop(ABC):
    """One run of pyconfd, from start to stop. A stop changes nothing that runs.

    It is *decided* what runs, and the service manager told so once, by the first outcome, whatever it is, or when there
    was no input in ``boot_wait_s``. All deadlines are of the monotonic clock.
    """

    def __init__(self, world: LoopWorld, apply: ApplySettings, *, version: str, pid: int) -> None:
        now = world.clock.monotonic()
        self._around = world
        self._pacing = apply
        self.mailbox = Mailbox()
        self._queue = WorkQueue(retry_min_s=apply.retry_min_s, retry_max_s=apply.retry_max_s)
        self._queue.add(Task.POLL, now)
        self._queue.add(Task.DRIFT, now)
        self._queue.add(Task.BOOT, now + apply.boot_wait_s)
        applied = world.balancer.last_good()
        self._report = Reporter(world.clock, world.notifier, world.changes, applied, version=version, pid=pid)
        self._decided = False
        self._paused: Paused | None = None
        self._failed: FailedAttempt | None = None
        """The failure that is not repeated while RETRY waits."""
        self._waits_for_start = False
        """Whether the last attempt failed while HAProxy did not run."""
        self._is_restoring_shown = False

    # What each loop does in its own way

    @abstractmethod
    def start(self) -> None:
        """Begin to read."""

    @abstractmethod
    def close(self) -> None:
        """End all threads that :meth:`start` began."""

    @abstractmethod
    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads."""

    @abstractmethod
    def _poll(self, now: float) -> None:
        """Find what changed without telling."""

    @abstractmethod
    def _attempt(self, now: float, *, may_reload: bool) -> None:
        """Bring the balancer to what is asked for."""

    @abstractmethod
    def _decide_without_input(self, now: float) -> None:
        """Decide what runs where nothing could be read in time."""

    def _progressed(self) -> None:
        """Show what is seen while an apply or a check is waited for, which may take half a minute."""
        self._report.haproxy(self._around.balancer.condition())
        self._report.progressed()

    # Steps

    @property
    def decided(self) -> bool:
        """Whether it is decided what runs."""
        return self._decided

    def wait_s(self) -> float:
        """Return the seconds until there is something to do even if nothing happens."""
        skipped = (*MAY_RELOAD, Task.RUNTIME_UPDATE) if self._paused else ()
        first = self._queue.next(without=skipped)
        return max(0.0, first[0] - self._around.clock.monotonic()) if first else TICK_S

    def step(self, posts: int) -> None:
        """Do what is due; ``posts`` changes of the input came since the last step."""
        now = self._around.clock.monotonic()
        # Looked at each time: nothing is applied once the command has said so.
        resumed = self._was_resumed()
        if posts or resumed:
            self._report.events(posts)
            self._note_change(now, at_once=resumed or not self._decided)
            if self._decided and self._around.balancer.updates_at_runtime():
                self._queue.add(Task.RUNTIME_UPDATE, now)
        polled = self._queue.pop(now, Task.POLL)
        if polled:
            self._queue.add(Task.POLL, now + TICK_S)
            self._poll(now)
            if self._decided:
                status = self._around.balancer.sync(may_repair=not self._paused)
                self._report.balancer(status, self._paused)
                self._schedule_order(now)
        if self._queue.pop(now, Task.DRIFT, Task.RESTORE):
            self._queue.add(Task.DRIFT, now + DRIFT_S)
            if self._decided and not self._paused:
                self._poll_balancer(now)
        # While paused, whatever comes is applied when an operator, or the clock, ends that.
        attempted = not self._paused and self._apply_what_is_due(now)
        if self._queue.pop(now, Task.BOOT) and not self._decided:
            self._decide_without_input(now)
            attempted = True
        if polled or attempted:
            self.publish()

    def publish(self) -> None:
        """Write the status and the change log, and show the service manager that the loop makes progress."""
        self._report.haproxy(self._around.balancer.condition())
        self._report.file_behind(behind=self._around.balancer.file_behind)
        self._report.next_attempt = self._next_attempt()
        self._report.flush()
        self._report.heartbeat()
        status = self.status()
        self._report.say_status(status.source)
        self._around.publish(status)

    def _next_attempt(self) -> NextAttempt | None:
        """Return what is applied or tried again next though nothing happens; None for nothing, and while paused."""
        tasks = (*MAY_RELOAD, Task.RUNTIME_UPDATE, Task.RESTORE)
        dues = [(due_at, task) for task in tasks if (due_at := self._queue.due_at(task)) is not None]
        if not dues or self._paused:
            return None
        due_at, task = min(dues)
        clock = self._around.clock
        return NextAttempt(task.value, round(clock.now() + max(0.0, due_at - clock.monotonic())))

    def _was_resumed(self) -> bool:
        """Check whether applying is paused; return True once when it is not any more."""
        former, self._paused = self._paused, self._around.paused(self._around.clock.now())
        if self._paused and not former:
            log.warning("applying.paused", reason=self._paused.reason, until=self._paused.until)
        if former and not self._paused:
            log.info("applying.resumed")
        return former is not None and self._paused is None

    def _apply_what_is_due(self, now: float) -> bool:
        """Return whether everything was applied; a runtime update is published with the next poll, within a second."""
        if self._may_reload(now):
            self._queue.remove(Task.RUNTIME_UPDATE)
            self._attempt(now, may_reload=True)
            return True
        if self._queue.pop(now, Task.RUNTIME_UPDATE):
            with without_collector():
                self._attempt(now, may_reload=False)
            # Two thirds of the time at most: what comes meanwhile is collected. Slices collect it by themselves.
            ended = self._around.clock.monotonic()
            if not self._queue.is_waiting(Task.RUNTIME_UPDATE):
                self._queue.pace((Task.RUNTIME_UPDATE,), ended + (ended - now) / 2)
        return False

    def _may_reload(self, now: float) -> bool:
        """Return whether everything may be applied now; too many former workers make it wait."""
        if not any((at := self._queue.due_at(task)) is not None and at <= now for task in MAY_RELOAD):
            return False
        if self._decided and not (room := self._around.balancer.make_room()).free:
            if room.ended is not None:
                self._report.worker_ended(room.ended)
            self._queue.pace(MAY_RELOAD, now + TICK_S)
            return False
        return self._queue.pop(now, *MAY_RELOAD)

    def _schedule_order(self, now: float) -> None:
        """Schedule the reload that gives backends which spares serve their own names."""
        due_s = self._around.balancer.order_due_s()
        if due_s is None:
            self._queue.remove(Task.ORDER_SPARES)
        else:
            self._queue.add(Task.ORDER_SPARES, now + due_s)

    def _note_change(self, now: float, *, at_once: bool = False) -> None:
        if at_once:
            self._queue.add(Task.APPLY, now)
        else:
            self._queue.debounce(Task.APPLY, now, quiet_s=self._pacing.quiet_s, cap_s=self._pacing.cap_s)
        self._report.pending()

    # What came of an attempt

    def _pace_after(self, outcome: Outcome) -> None:
        """Delay the next reload where this was one; where it was none, see whether it used up the spares."""
        if isinstance(outcome, Applied) and isinstance(outcome.plan, Reload):
            self._reloaded(outcome.took_s)
        elif isinstance(outcome, Applied):
            self._schedule_order(self._around.clock.monotonic())

    def _reloaded(self, took_s: float) -> None:
        pause_s = max(RELOAD_PAUSE * took_s, self._pacing.reload_interval_s)
        self._queue.pace(MAY_RELOAD, self._around.clock.monotonic() + pause_s)

    def _retry_later(self, outcome: Rejected | Failed, rendering: Rendering | None, task: Task = Task.RETRY) -> None:
        """Count a failure, and repeat it after a pause."""
        if task is Task.RETRY:
            self._failed = FailedAttempt(rendering, outcome)
        self._report.failure(outcome)
        disruptive = isinstance(outcome, Failed) and outcome.disruptive
        self._queue.retry(task, self._around.clock.monotonic(), disruptive=disruptive)
        self._waits_for_start = not self._around.balancer.runs()

    @property
    def _standing_failure(self) -> FailedAttempt | None:
        """The failure that it is too early to repeat."""
        return self._failed if self._queue.is_waiting(Task.RETRY) else None

    def _conclude(self, outcome: Outcome, now: float) -> None:
        """Report an outcome; the first one decides what runs."""
        decided, self._decided = self._decided, True
        # First: who reads that a runtime update is done reads that the file has to follow.
        self._report.file_behind(behind=self._around.balancer.file_behind)
        self._report.concluded(outcome)
        if decided:
            return
        if not isinstance(outcome, Applied | Unchanged):
            self._restore_last_good(now)
        self._report.ready()

    # The last good generation

    def _poll_balancer(self, now: float) -> None:
        """Repair what changed the file or the process from outside."""
        if self._waits_for_start and self._around.balancer.runs():
            self._waits_for_start = False
            self._queue.succeeded(Task.RETRY)
            self._queue.succeeded(Task.RETRY_FRAGMENTS)
            self._note_change(now, at_once=True)
        if self._is_in_place():
            return
        if self._report.in_step:
            self._note_change(now, at_once=True)
        else:
            self._restore_last_good(now)

    def _is_in_place(self) -> bool:
        """Return whether disk and process are as the last good generation left them, or there is none."""
        if self._around.balancer.last_good() is None:
            return True
        in_place = isinstance(self._around.balancer.refresh(), Noop)
        self._report.haproxy(self._around.balancer.condition())
        if in_place:
            self._show_restoring(())
        return in_place

    def _newer_runs(self) -> None:
        """End the restoring of a generation: a newer one was applied."""
        self._queue.succeeded(Task.RESTORE)
        if self._is_restoring_shown:
            self._show_restoring(())

    def _restore_last_good(self, now: float) -> None:
        """Restore the last good generation unless it runs, or it is too early to try again."""
        if self._queue.is_waiting(Task.RESTORE) and not self._queue.pop(now, Task.RESTORE):
            return
        clock = self._around.clock
        began = clock.monotonic()
        outcome: Outcome | None
        try:
            outcome = self._around.balancer.restore_last_good(now=clock.now())
        except PyconfdError as error:
            outcome = Failed(Step.CHECK, error.problems)
        self._report.haproxy(self._around.balancer.condition())
        self._show_restoring(outcome.problems if isinstance(outcome, Rejected | Failed) else ())
        if isinstance(outcome, Rejected | Failed):
            disruptive = isinstance(outcome, Failed) and outcome.disruptive
            self._queue.retry(Task.RESTORE, clock.monotonic(), disruptive=disruptive)
        elif isinstance(outcome, Applied | Unchanged):
            self._queue.succeeded(Task.RESTORE)
            self._report.restored(outcome)
            if isinstance(outcome, Applied):
                self._reloaded(clock.monotonic() - began)

    def _show_restoring(self, problems: tuple[Problem, ...]) -> None:
        self._is_restoring_shown = bool(problems)
        self._report.problems("last_good", problems, "last_good.failed")


def run_until_stopped(loop: Loop) -> int:
    """Run until ``loop.mailbox`` is stopped; return the exit status.

    Any exception is a bug. Those of presets are caught before: by the graph of collections and by ``translate``.
    """
    mailbox = loop.mailbox
    try:
        loop.start()
        while not mailbox.stopped and not loop.decided:
            loop.step(mailbox.take(loop.wait_s()))
        # The caches are filled and last.
        with survivors_frozen():
            while not mailbox.stopped:
                loop.step(mailbox.take(loop.wait_s()))
        loop.publish()
    except Exception:
        log.exception("loop.crashed")
        return EXIT_BUG
    finally:
        loop.close()
    return EXIT_OK
