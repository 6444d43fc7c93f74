"""The loop of a consumer: what is published, verified, checked and applied; what serves stays where that fails."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import structlog

from pyconfd import guard
from pyconfd.daemon.debounce import Backoff
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.mailbox import Mailbox
from pyconfd.daemon.ports import Clock, Notifier, RestoringBalancer
from pyconfd.errors import ApplyError, Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.model.context import Census
from pyconfd.model.outcome import Applied, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Phase, SourceHealth, Status
from pyconfd.settings import ApplySettings, TotalLoss

log = structlog.get_logger(__name__)

TICK_S = 1.0
"""How often permissions and the certificates of this machine are looked at."""

DRIFT_S = 5.0
"""How often disk and process are compared with what was applied."""

_LOOKS_AGAIN = frozenset({Phase.SERVING, Phase.REJECTED, Phase.FAILED})

EXIT_OK = 0
EXIT_BUG = 70
"""Source: sysexits.h, EX_SOFTWARE."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published, in the words of the loop.

    ``number`` and ``digest`` name it in etcd, ``make`` gives the rendering for this machine (raises RejectedInput);
    ``local`` tells whether that depends on files here.
    """

    number: int
    digest: str
    curdate: str
    local: bool
    make: Callable[[], Rendering]


@dataclass(frozen=True, slots=True)
class Found:
    """One reading of etcd: a publication, or why there is none (both None: etcd holds nothing)."""

    publication: Publication | None = None
    error: RejectedInput | None = None


class PublicationSource(Protocol):
    """Reads publications."""

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read; call ``notify`` from any thread when something else was found."""
        ...

    def found(self) -> Found | None:
        """Give what was found, None until something was read."""
        ...

    def health(self) -> SourceHealth:
        """Say how the endpoints do."""
        ...

    def relist(self) -> None:
        """Read again soon."""
        ...

    def stop(self) -> None:
        """End all threads."""
        ...


class Taken(Protocol):
    """Remembers the last publication that was applied, over restarts."""

    def load(self) -> tuple[int, str]:
        """Give number and digest; (0, "") for none."""
        ...

    def save(self, number: int, digest: str) -> None:
        """Remember; raises TransientError."""
        ...


@dataclass(frozen=True, slots=True)
class ConsumerWorld:
    """Everything outside the loop; ``count`` gives how many servers a text has."""

    source: PublicationSource
    balancer: RestoringBalancer
    notifier: Notifier
    clock: Clock
    taken: Taken
    count: Callable[[str], Census]
    allowed_holds: Callable[[], frozenset[str]]
    forget_holds: Callable[[], None]
    publish: Callable[[Status], object]


@dataclass(frozen=True, slots=True)
class _Attempt:
    digest: str
    outcome: Outcome


class Consumer:
    """One run of a consumer, from start to stop. A stop changes nothing that serves."""

    def __init__(self, world: ConsumerWorld, apply: ApplySettings, *, version: str, pid: int) -> None:
        self._world = world
        self._guarded = apply.total_loss is TotalLoss.HOLD
        self._mailbox = Mailbox()
        self._backoff = Backoff(first_s=apply.retry_min_s, last_s=apply.retry_max_s)
        self._journal = Journal()
        self._stopping = self._decided = False
        self._due = False
        self._retry_at: float | None = None
        self._last: _Attempt | None = None
        self._outcome: Outcome | None = None
        self._made = ""
        self._next_tick = self._next_drift = 0.0
        self._boot_ends = world.clock.monotonic() + apply.boot_wait_s
        started, applied = world.clock.now(), world.balancer.last_good()
        self._status = Status(
            now=started,
            version=version,
            pid=pid,
            started_at=started,
            heartbeat_at=started,
            generation=applied.generation if applied else None,
        )

    def status(self) -> Status:
        """Give the state as of now; safe to call from other threads."""
        return replace(self._status, now=self._world.clock.now(), source=self._world.source.health())

    def stop(self) -> None:
        """Ask the loop to end; safe to call from other threads."""
        self._stopping = True
        self._mailbox.nudge()

    def run(self) -> int:
        """Run until :meth:`stop`; give the exit status."""
        try:
            self._world.source.start(self._mailbox.post)
            while not self._stopping:
                self._turn(self._mailbox.take(self._wait_s()))
        except Exception:
            log.exception("loop.crashed")
            return EXIT_BUG
        finally:
            self._world.source.stop()
        return EXIT_OK

    def _wait_s(self) -> float:
        times = [self._next_tick, *([self._retry_at] if self._retry_at is not None else [])]
        return max(0.0, min(times) - self._world.clock.monotonic())

    def _turn(self, posts: int) -> None:
        now = self._world.clock.monotonic()
        if posts:
            self._due = True
            self._status = replace(self._status, events_total=self._status.events_total + posts)
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._look_around(now)
        if self._due or (self._retry_at is not None and now >= self._retry_at):
            self._attempt(again=not self._due)
        elif not self._decided and now >= self._boot_ends:
            self._decide_without_etcd()
        self._status = replace(self._status, heartbeat_at=self._world.clock.now())
        self._world.notifier.watchdog()
        self._world.publish(self.status())

    def _look_around(self, now: float) -> None:
        """Find what changed without telling: a permission, a certificate of this machine, the file, the process."""
        if self._status.hold_id and self._status.hold_id in self._world.allowed_holds():
            self._due = True
        if now < self._next_drift:
            return
        self._next_drift = now + DRIFT_S
        found = self._world.source.found()
        if found and found.publication and found.publication.local and self._status.phase in _LOOKS_AGAIN:
            self._due = self._due or _fingerprint(found.publication) != self._made
        last = self._world.balancer.last_good()
        if self._status.phase is Phase.SERVING and last:
            self._due = self._due or not isinstance(self._world.balancer.plan(last.rendering), Noop)

    def _attempt(self, *, again: bool) -> None:
        self._due = False
        found = self._world.source.found()
        if found is None:
            self._retry_at = None
            return
        if found == Found() and not self._world.taken.load()[0]:
            self._wait_for_the_first()
            return
        clock = self._world.clock
        began = clock.monotonic()
        if again:
            self._last = None
        outcome, digest, servers = self._decide(found)
        if isinstance(outcome, Applied):
            self._world.forget_holds()
        self._journal.outcome(outcome, duration_s=clock.monotonic() - began, endpoints=servers)
        self._schedule(outcome, digest)
        self._conclude(outcome)

    def _decide(self, found: Found) -> tuple[Outcome, str, int]:
        """Give the outcome, the digest of the rendering ("" for none) and its number of servers."""
        if found.error is not None:
            return Rejected(Step(found.error.step or Step.CHECK), found.error.problems), "", 0
        publication = found.publication
        number, digest = self._world.taken.load()
        if publication is None:
            return Rejected(Step.CHECK, (_nothing(number),)), "", 0
        held = _judge_order(publication, number, digest, self._world.allowed_holds())
        if held is not None:
            return held, "", 0
        try:
            rendering = publication.make()
            self._made = rendering.digest
        except RejectedInput as error:
            self._made = str(error)
            return Rejected(Step(error.step or Step.CHECK), error.problems), "", 0
        if self._last and self._last.digest == rendering.digest:
            return self._last.outcome, rendering.digest, 0
        census = self._world.count(rendering.text)
        outcome = self._judge_loss(rendering, census) or self._apply(rendering, census, publication)
        if isinstance(outcome, Applied | Unchanged):
            self._remember(publication)
        return outcome, rendering.digest, census.total

    def _judge_loss(self, rendering: Rendering, census: Census) -> Held | None:
        serving = self._world.balancer.last_good()
        if serving is None or not self._guarded:
            return None
        before = self._world.count(serving.rendering.text)
        held = guard.judge(before, census, digest=lambda: rendering.digest, allowed=self._world.allowed_holds())
        if held is None:
            return None
        message = f"all {before.total} servers would be gone at once; the last good configuration keeps serving"
        remedy = f"look at the producer and its cluster; if this is meant, run: pyconfd allow {held.hold_id}"
        return Held(held.hold_id, Problem("guard", message, remedy))

    def _apply(self, rendering: Rendering, census: Census, publication: Publication) -> Outcome:
        balancer = self._world.balancer
        serving = balancer.last_good()
        try:
            plan = balancer.plan(rendering)
            if serving and isinstance(plan, Noop):
                return Unchanged(serving.generation)
            if isinstance(plan, Noop):
                plan = Reload((ReloadReason.FIRST_CONFIGURATION,))
            return balancer.apply(
                rendering, plan, curdate=publication.curdate, census=census, now=self._world.clock.now()
            )
        except RejectedInput as error:
            return Rejected(Step(error.step or Step.CHECK), error.problems)
        except ApplyError as error:
            return Failed(Step(error.step), error.problems)
        except TransientError as error:
            return Failed(Step.CHECK, error.problems)

    def _remember(self, publication: Publication) -> None:
        try:
            self._world.taken.save(publication.number, publication.digest)
        except TransientError as error:
            log.warning("memory.not_written", problem=str(error))

    def _schedule(self, outcome: Outcome, digest: str) -> None:
        """Decide when what failed is tried again, if nothing new comes before."""
        self._retry_at = None
        repeated, self._outcome = outcome == self._outcome, outcome
        if isinstance(outcome, Rejected | Failed):
            self._last = _Attempt(digest, outcome) if digest else None
            self._retry_at = self._world.clock.monotonic() + self._backoff.next()
            if not repeated:
                counts = dict(self._status.failures_by_step)
                counts[outcome.step.value] = counts.get(outcome.step.value, 0) + 1
                self._status = replace(self._status, failures_by_step=MappingProxyType(counts))
        else:
            self._last = None
            self._backoff.reset()

    def _conclude(self, outcome: Outcome) -> None:
        """Put an outcome into the status, and make sure that something serves."""
        status = replace(self._status, reconciliations_total=self._status.reconciliations_total + 1, hold_id="")
        match outcome:
            case Applied(generation, plan, verified):
                counts = dict(status.reloads_by_reason)
                for reason in plan.reasons:
                    counts[reason.value] = counts.get(reason.value, 0) + 1
                reloads = MappingProxyType(counts)
                status = replace(status, generation=generation, verified=verified, reloads_by_reason=reloads)
                status = replace(status, phase=Phase.SERVING, problems=())
            case Unchanged(generation):
                status = replace(status, generation=generation, phase=Phase.SERVING, problems=())
            case Held(hold_id, problem):
                status = replace(status, phase=Phase.HELD, hold_id=hold_id, problems=(str(problem),))
            case Rejected(_, problems):
                status = replace(status, phase=Phase.REJECTED, problems=tuple(str(problem) for problem in problems))
            case Failed(_, problems):
                status = replace(status, phase=Phase.FAILED, problems=tuple(str(problem) for problem in problems))
        self._status = status
        if self._decided:
            self._world.notifier.status(self._line())
            return
        self._decided = True
        if not isinstance(outcome, Applied | Unchanged):
            self._serve_last_good()
        self._world.notifier.ready(self._line())

    def _wait_for_the_first(self) -> None:
        """Nothing was ever published: that is no failure, and what served before pyconfd consumed serves on."""
        self._retry_at = None
        self._decide_alone("nothing is published yet", str(_nothing(0)))

    def _decide_without_etcd(self) -> None:
        """No etcd answered in time: serve what served last, and say so."""
        self._decide_alone("nothing could be read from etcd yet")

    def _decide_alone(self, reason: str, *problems: str) -> None:
        phase = Phase.SERVING_LAST_GOOD if self._serve_last_good() else Phase.WAITING
        news = (phase, problems) != (self._status.phase, self._status.problems)
        self._status = replace(self._status, phase=phase, problems=problems)
        if news:
            log.warning("start.decided", phase=phase.value, reason=reason)
        if not self._decided:
            self._decided = True
            self._world.notifier.ready(self._line())

    def _serve_last_good(self) -> bool:
        try:
            outcome = self._world.balancer.restore_last_good(now=self._world.clock.now())
        except PyconfdError as error:
            log.error("last_good.failed", problem=str(error))  # noqa: TRY400 - the message says all; no traceback
            return False
        return isinstance(outcome, Applied | Unchanged)

    def _line(self) -> str:
        status = self._status
        number = f" generation {status.generation.number}" if status.generation else ""
        problem = f": {status.problems[0].splitlines()[0]}" if status.problems else ""
        return f"{status.phase.value.replace('_', ' ')}{number}{problem}"


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
