"""Kubernetes Events on objects that are refused or not served, for users of the cluster who cannot see the balancer.

A thread of its own writes them, from what there is to say when it looks: the loop never waits for it, and no queue
grows meanwhile. Of several balancers one writes. An Event that could not be written is counted, and tried again when
the API server is well.
"""

import hashlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Protocol

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.condition import condition_of_refusal
from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import KIND_OF
from pyconfd.model.status import EventCounts
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import ANSWER_TIMEOUT_S, Method
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError, Failure
from pyconfd.sources.kubernetes.resources import API_VERSION_OF
from pyconfd.sources.kubernetes.writing import CONFLICT, NOT_ACCEPTED, NOT_FOUND, FirstDenialError, Writer
from pyconfd.system.clock import SystemClock

CONTROLLER = "pyconfd.io/pyconfd"
LOOK_EVERY_S = 5.0
MOST_AT_ONCE = 20
"""A mistake in a thousand objects must not become a flood: the rest follows at the next looks."""

RETRY_S = 60.0
"""How long what could not be written waits: one namespace that is being deleted must not block all others."""

MOST_NOTE_BYTES = 1024
"""Source: ``NoteLengthLimit`` in Kubernetes' pkg/apis/core/validation/events.go."""

_AT_NEXT_LOOK = frozenset({Failure.UNREACHABLE, Failure.RESET})
"""Failures that are no answer, so that they are not about the object: another server may take it."""

_API_VERSION = {KIND_OF[resource]: version for resource, version in API_VERSION_OF.items()}
_NO_NAMESPACE = "default"
"""Where Events on objects without a namespace stand. Source: the same file."""

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectNotice:
    """What an Event says of one object; ``uid`` is "" where it is not known.

    ``reason`` is one CamelCase word, ``message`` is for people and holds no secrets. ``topic`` tells two notices of one
    reason on one object apart. ``is_local``: only this balancer knows it, so it is
    written without the Lease too.
    """

    ref: ObjectRef
    reason: str
    message: str
    uid: str = ""
    topic: str = ""
    action: str = "Refused"
    is_local: bool = False

    @property
    def cause(self) -> tuple[ObjectRef, str, str]:
        """What makes two notices the same one."""
        return self.ref, self.topic, self.reason

    @property
    def can_be_named(self) -> bool:
        """Whether its name and namespace are valid for the API: they become part of a path."""
        ref = self.ref
        return bool(_NAME.fullmatch(ref.name)) and (not ref.namespace or bool(_NAME.fullmatch(ref.namespace)))


def refused_object(refusal: Refusal, uid: str = "") -> ObjectNotice:
    """Return the notice of a refusal, or of a note."""
    condition = condition_of_refusal(refusal)
    if refusal.reason.is_note:
        return ObjectNotice(refusal.ref, condition.reason, condition.message, uid, refusal.field, "Noted")
    message = f"{condition.type}={condition.status}: {condition.message}"
    return ObjectNotice(refusal.ref, condition.reason, message, uid, refusal.field)


class Turn(Protocol):
    """Knows whether it is for this balancer to write, and not for another one of the same cluster."""

    def is_ours(self, *, wanted: bool) -> bool:
        """Return whether to write now; ``wanted``: there is something. Safe in any thread."""
        ...


def event_of(notice: ObjectNotice, now: float, *, instance: str, every_s: float) -> tuple[str, dict[str, Any]]:
    """Return the namespace and the Event; one name for an interval: no restart and no other writer repeats it."""
    ref = notice.ref
    namespace = ref.namespace or _NO_NAMESPACE
    mark = repr((notice.cause, int(now // every_s)))
    at = datetime.fromtimestamp(now, UTC)
    regarding = {
        "apiVersion": _API_VERSION.get(ref.kind, "v1"),
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": notice.uid,
    }
    return namespace, {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": f"{ref.name[:200]}.{hashlib.sha256(mark.encode()).hexdigest()[:16]}",
        },
        "involvedObject": {key: value for key, value in regarding.items() if value},
        "reason": notice.reason,
        "message": _shortened(notice.message),
        "type": "Warning",
        "action": notice.action,
        "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "firstTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lastTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "count": 1,
        "reportingComponent": CONTROLLER,
        "reportingInstance": instance,
        "source": {"component": "pyconfd", "host": instance},
    }


def in_turns(notices: Iterable[ObjectNotice]) -> list[ObjectNotice]:
    """Return the notices so that each namespace has its turn: thousands of one delay those of no other."""
    counts: Counter[str] = Counter()
    ranked = []
    for each in notices:
        ranked.append((counts[each.ref.namespace], each))
        counts[each.ref.namespace] += 1
    return [each for _, each in sorted(ranked, key=itemgetter(0))]


def _shortened(note: str) -> str:
    if len(note.encode()) <= MOST_NOTE_BYTES:
        return note
    return note.encode()[: MOST_NOTE_BYTES - 3].decode(errors="ignore") + "..."


class EventWriter:
    """Writes from a thread of its own between :meth:`start` and :meth:`stop`.

    Each cause is reported at most once in ``every_s``, and only while it is the ``turn`` of this balancer (None: it is
    always). What returns the notices is called in that thread, and may read only what never changes.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        every_s: float,
        turn: Turn | None = None,
        clock: SystemClock | None = None,
        credentials: Credentials | None = None,
        instance: str = "",
    ) -> None:
        self._clock = clock or SystemClock()
        self._writer = Writer(
            settings,
            answer_s=ANSWER_TIMEOUT_S,
            clock=self._clock,
            credentials=credentials,
            place="events",
            event="event.failed",
            remedy="let it create events: pyconfd rbac prints the manifest; or set events.enabled = false",
        )
        self._every_s = every_s
        self._turn = turn
        self._not_before: dict[object, float] = {}
        """When each cause may be reported (again), on the monotonic clock."""
        self._unwritten: set[object] = set()
        """The causes whose last try failed."""
        self._instance = (instance or socket.gethostname())[:128]
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.written_total = 0
        self.failures_total = 0

    def start(self, notices: Callable[[], Sequence[ObjectNotice]]) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, args=(notices,), name="events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a request that runs is cut off."""
        self._stopping.set()
        self._writer.close()
        if self._thread is not None:
            self._thread.join(1.0)

    def problems(self) -> tuple[Problem, ...]:
        """Return why Events cannot be written; empty where they can."""
        return self._writer.problems()

    def counts(self) -> EventCounts:
        """Return how many were written, and how many could not be."""
        return EventCounts(self.written_total, self.failures_total)

    def _run(self, notices: Callable[[], Sequence[ObjectNotice]]) -> None:
        while not self._clock.wait(self._stopping, LOOK_EVERY_S):
            self._writer.tend()
            self._write_due(notices())

    def _write_due(self, notices: Sequence[ObjectNotice]) -> None:
        now = self._clock.monotonic()
        self._not_before = {cause: at for cause, at in self._not_before.items() if at > now}
        due = {each.cause: each for each in notices if each.cause not in self._not_before and each.can_be_named}
        if self._turn is not None and not self._turn.is_ours(wanted=bool(due or self._not_before)):
            notices = [each for each in notices if each.is_local]
            due = {cause: each for cause, each in due.items() if each.is_local}
        self._unwritten &= {each.cause for each in notices}
        if not self._unwritten:  # nothing that failed is still to be written: the object is well, say
            self._writer.succeeded()
        for each in in_turns(due.values())[:MOST_AT_ONCE]:
            if self._stopping.is_set():
                return
            try:
                self._write(each, self._clock.now())
            except TransientError as error:
                self.failures_total += 1
                self._writer.failed(error)
                self._unwritten.add(each.cause)
                at_next_look = isinstance(error, FirstDenialError) or (
                    isinstance(error, ApiError) and error.kind in _AT_NEXT_LOOK
                )
                if not at_next_look:
                    self._not_before[each.cause] = now + min(RETRY_S, self._every_s)
                return  # most often the next one would fail in the same way
            self._not_before[each.cause] = now + self._every_s
            self._unwritten.discard(each.cause)
            self._writer.succeeded()

    def _write(self, notice: ObjectNotice, now: float) -> None:
        namespace, event = event_of(notice, now, instance=self._instance, every_s=self._every_s)
        try:
            self._writer.send(Method.CREATE, f"/api/v1/namespaces/{namespace}/events", msgspec.json.encode(event))
        except ApiError as error:
            if error.status == CONFLICT:  # written before a restart, or by the former writer
                return
            if error.status in {NOT_FOUND, NOT_ACCEPTED}:
                # The name or namespace is not valid, or was deleted meanwhile: a retry would not help.
                self.failures_total += 1
                log.info("event.refused", object=str(notice.ref), problem=error.problems[0].message)
                return
            raise
        self.written_total += 1
