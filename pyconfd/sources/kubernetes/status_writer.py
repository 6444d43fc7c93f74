"""Writes into the status of objects what became of them: addresses and conditions, for users and for other tools.

A thread of its own writes, while this process holds the Lease; the loop only says what HAProxy runs. Nothing is written
while nothing changes, and what fails is tried again: traffic never waits for it.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import KIND_OF, Key, Resource, Snapshot
from pyconfd.model.status import StatusWriterState, WriterRole
from pyconfd.settings import ClusterStatusSettings, KubernetesSettings
from pyconfd.sources.kubernetes.client import Method
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError
from pyconfd.sources.kubernetes.gateway_services import ServiceBacklog, ServiceWrite
from pyconfd.sources.kubernetes.lease import ANSWER_S, Election
from pyconfd.sources.kubernetes.object_status import APPLY, WITH_STATUS, Scope, status_path
from pyconfd.sources.kubernetes.status_backlog import Asked, StatusBacklog, StatusWrite
from pyconfd.sources.kubernetes.writing import (
    CONFLICT,
    FORBIDDEN,
    NOT_ACCEPTED,
    NOT_FOUND,
    AnswerMetadata,
    Writer,
)
from pyconfd.system.backoff import Backoff
from pyconfd.system.clock import SystemClock

WRITES_PER_S = 10.0
BURST = 20
"""So many writes may follow each other at once; a storm of thousands is spread."""

LOOK_EVERY_S = 5.0
FORBIDDEN_S = 60.0
"""How long a resource waits whose status may not be written."""

_RETRY_FIRST_S, _RETRY_LAST_S = 1.0, 30.0
_PLACE = "status of objects"
_REMEDY = "let it write status and the Lease: pyconfd rbac prints the manifest; or set cluster_status.enabled = false"
_SHOWN = 3
_SERVICES = "Services of Gateways"

_RESOURCE_OF: Mapping[str, Resource] = {KIND_OF[resource]: resource for resource in WITH_STATUS}

log = structlog.get_logger(__name__)


class _Answer(msgspec.Struct):
    metadata: AnswerMetadata
    status: dict[str, Any] | None = None


class Pace:
    """Spreads writes: ``BURST`` at once, then ``WRITES_PER_S``."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def wait_s(self, now: float) -> float:
        """Return how long to wait before the next write."""
        return max(0.0, self._free_at - now - (BURST - 1) / WRITES_PER_S)

    def count(self, now: float) -> None:
        """Count a write."""
        self._free_at = max(self._free_at, now) + 1 / WRITES_PER_S


class StatusWriter:
    """Writes from a thread of its own between :meth:`start` and :meth:`stop`, or by :meth:`step`.

    ``newest`` returns the newest Snapshot; it is called in that thread. ``scope`` is what may be written.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        options: ClusterStatusSettings,
        newest: Callable[[], Snapshot | None],
        scope: Scope,
        *,
        identity: str,
        clock: SystemClock | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._writer, lease_writer = (
            Writer(
                settings,
                answer_s=ANSWER_S,
                clock=self._clock,
                credentials=credentials,
                place=_PLACE,
                event=event,
                remedy=_REMEDY,
            )
            for event in ("status.failed", "lease.failed")
        )
        self._lease_writer = lease_writer
        self._wake = threading.Event()
        self.election = Election(
            lease_writer,
            self._wake.set,
            namespace=options.lease_namespace,
            name=options.lease_name,
            identity=identity,
            clock=self._clock,
        )
        self._backlog = StatusBacklog(options.grace_s, scope)
        self._services = ServiceBacklog()
        self._pace = Pace()
        self._pauses = Backoff(first_s=_RETRY_FIRST_S, last_s=_RETRY_LAST_S)
        self._paused_until = 0.0
        self._offered: Context | None = None
        self._quarantined: tuple[tuple[Refusal, ...], frozenset[ObjectKey]] = (), frozenset()
        self._refused: dict[ObjectKey, Problem] = {}
        self._problems: tuple[Problem, ...] = ()
        self._state = StatusWriterState(WriterRole.IDLE)
        self._newest = newest
        self._wanted_for: frozenset[str] = frozenset()
        self._wanted_lock = threading.Lock()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.written_total = 0
        self.failures_total = 0

    def offer(self, context: Context) -> None:
        """Set what HAProxy runs now; return at once."""
        self._offered = context
        self._wake.set()

    def start(self) -> None:
        """Begin to write."""
        self.election.start()
        self._thread = threading.Thread(target=self._run, name="status-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, a request that runs is cut off; release the Lease."""
        self._stopping = True
        self._wake.set()
        self._writer.close()
        if self._thread is not None:
            self._thread.join(1.0)
        self.election.stop()

    def problems(self) -> tuple[Problem, ...]:
        """Return why something cannot be written; safe in any thread."""
        return tuple(dict.fromkeys((*self._lease_writer.problems(), *self._writer.problems(), *self._problems)))

    def is_ours(self, *, wanted: bool, what: str = "events") -> bool:
        """Return whether this process holds the Lease; ``wanted``: there is ``what`` to write. Safe in any thread."""
        if wanted != (what in self._wanted_for):
            with self._wanted_lock:
                self._wanted_for = self._wanted_for | {what} if wanted else self._wanted_for - {what}
            self._wake.set()
        return self.election.leads

    def state(self) -> StatusWriterState:
        """Return who writes, and how much; safe in any thread."""
        return self._state

    def step(self) -> float:
        """Compare what changed, and write at most one status; return how long to wait for more to do."""
        self._wake.clear()
        self._poll()
        pause_s = self._write()
        self._report()
        return pause_s

    def _run(self) -> None:
        while not self._stopping:
            self._clock.wait(self._wake, self.step())
            if not self._backlog.is_idle:
                self._writer.tend()

    def _poll(self) -> None:
        offered, snapshot = self._offered, self._newest()
        if offered is not None and snapshot is not None:
            asked = Asked(offered.statuses, self._quarantined_of(offered.refused))
            self._backlog.take(asked, snapshot, self._clock.monotonic())
            self._services.take(offered.services, snapshot)
        idle = self._backlog.is_idle and self._services.is_idle
        self.election.want(wanted=bool(self._wanted_for) or not idle)

    def _quarantined_of(self, refused: tuple[Refusal, ...]) -> frozenset[ObjectKey]:
        if refused is not self._quarantined[0]:
            found = frozenset(
                ObjectKey(_RESOURCE_OF[each.ref.kind], Key(each.ref.namespace, each.ref.name))
                for each in refused
                if each.reason is RefusalReason.QUARANTINED and each.ref.kind in _RESOURCE_OF
            )
            self._quarantined = refused, found
        return self._quarantined[1]

    def _write(self) -> float:
        now = self._clock.monotonic()
        if not self.election.leads:
            return LOOK_EVERY_S
        if (pause_s := max(self._paused_until - now, self._pace.wait_s(now))) > 0:
            return min(pause_s, LOOK_EVERY_S)
        write = self._backlog.next_write(now, _date(self._clock.now()))
        if write is None:
            service = self._services.next_write(now)
            if service is not None:
                self._write_service(service, now)
                return 0.0
            due_at = min(
                (at for at in (self._backlog.next_due(), self._services.next_due()) if at is not None), default=None
            )
            return LOOK_EVERY_S if due_at is None else min(LOOK_EVERY_S, max(0.0, due_at - now))
        self._pace.count(now)
        try:
            answer = msgspec.json.decode(
                self._writer.send(Method.APPLY, status_path(write.of), write.body, APPLY), type=_Answer
            )
        except ApiError as error:
            self.failures_total += 1
            self._failed(write, error, now)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.failures_total += 1
            self._pause(TransientError(Problem(_PLACE, f"the answer cannot be read: {error}")), now)
        else:
            self.written_total += 1
            self._succeeded(write, answer, now)
        return 0.0

    def _write_service(self, write: ServiceWrite, now: float) -> None:
        """Create or change the Service of a Gateway."""
        self._pace.count(now)
        try:
            answer = msgspec.json.decode(
                self._writer.send(Method.APPLY, write.path, write.body, write.params), type=_Answer
            )
        except ApiError as error:
            self.failures_total += 1
            self._service_failed(write, error, now)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.failures_total += 1
            self._pause(TransientError(Problem(_PLACE, f"the answer cannot be read: {error}")), now)
        else:
            self.written_total += 1
            log.debug("service.written", object=f"Service {write.key.namespace}/{write.key.name}")
            self._services.written(write, answer.metadata.uid, now)
            self._writer.succeeded()
            self._writer.succeeded(_SERVICES)
            self._pauses.reset()

    def _service_failed(self, write: ServiceWrite, error: ApiError, now: float) -> None:
        if error.status == FORBIDDEN:
            self._services.block(now + FORBIDDEN_S)
            self._writer.failed(error, _SERVICES)
        elif error.status in {400, NOT_FOUND, CONFLICT, NOT_ACCEPTED}:
            # Its namespace goes, it has changed, or the API server does not take what the Gateway says.
            self._services.failed(write, now)
            name = f"Service {write.key.namespace}/{write.key.name}"
            log.warning("service.refused", object=name, problem=error.problems[0].message)
        else:
            self._pause(error, now)

    def _succeeded(self, write: StatusWrite, answer: _Answer, now: float) -> None:
        log.debug("status.written", object=_name(write.of))
        self._backlog.written(write, answer.metadata.resource_version, answer.status or {}, now)
        self._refused.pop(write.of, None)
        self._writer.succeeded()
        self._writer.succeeded(write.of.resource.value)
        self._pauses.reset()

    def _failed(self, write: StatusWrite, error: ApiError, now: float) -> None:
        if error.status == FORBIDDEN:
            self._backlog.block(write.of.resource, now + FORBIDDEN_S)
            self._writer.failed(error, write.of.resource.value)
        elif error.status in {NOT_FOUND, CONFLICT}:
            # It was deleted, or changed meanwhile: the watch brings what it is now.
            self._backlog.failed(write, now)
        elif error.status in {400, NOT_ACCEPTED}:
            self._backlog.failed(write, now)
            if write.of not in self._refused:
                self._refused[write.of] = error.problems[0]
                log.warning("status.refused", object=_name(write.of), problem=error.problems[0].message)
        else:
            self._pause(error, now)

    def _pause(self, error: TransientError, now: float) -> None:
        """Write nothing for a while: the next request would most likely fail in the same way."""
        asked_s = error.retry_after_s if isinstance(error, ApiError) and error.retry_after_s else 0.0
        self._paused_until = now + max(asked_s, self._pauses.delay_s())
        self._writer.failed(error)

    def _report(self) -> None:
        leads, idle = self.election.leads, self._backlog.is_idle
        role = WriterRole.IDLE if idle else WriterRole.WRITER if leads else WriterRole.STANDBY
        holder = self.election.holder if not idle else ""
        waiting = len(self._backlog) if leads or not holder else 0  # what another one writes does not wait here
        self._state = StatusWriterState(role, holder, waiting, self.written_total, self.failures_total)
        self._refused = {of: each for of, each in self._refused.items() if of in self._backlog}
        self._problems = (*self._contested(), *self._not_accepted(), *self._services.problems())

    def _contested(self) -> tuple[Problem, ...]:
        contested = self._backlog.contested(self._clock.monotonic())
        if not contested:
            return ()
        message = f"somebody else changes the status of {_names(contested)} again and again"
        remedy = "does another controller serve the same class? kubectl get --show-managed-fields shows who writes"
        return (Problem(_PLACE, message, remedy),)

    def _not_accepted(self) -> tuple[Problem, ...]:
        if not self._refused:
            return ()
        first = next(iter(self._refused.values()))
        remedy = "is the CRD of an older version than those that pyconfd was made for? docs/status.md names them"
        return (Problem(_PLACE, f"not accepted for {_names(tuple(self._refused))}: {first.message}", remedy),)


def _name(of: ObjectKey) -> str:
    namespace, name = of.key
    return f"{KIND_OF[of.resource]} {namespace}/{name}" if namespace else f"{KIND_OF[of.resource]} {name}"


def _names(objects: tuple[ObjectKey, ...]) -> str:
    more = len(objects) - _SHOWN
    return ", ".join(map(_name, objects[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _date(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
