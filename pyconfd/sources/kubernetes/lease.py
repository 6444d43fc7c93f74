"""The election of the one balancer that writes status, by a Lease, as client-go elects leaders.

The holder renews the Lease; the others take it over when it was not renewed for its duration. Clocks of machines
differ, so the time in the Lease means nothing: what counts is for how long this process has seen the Lease unchanged.
"""

import hashlib
import re
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.sources.kubernetes.client import Method
from pyconfd.sources.kubernetes.failures import ApiError
from pyconfd.sources.kubernetes.writing import CONFLICT, NOT_FOUND, AnswerMetadata, Writer
from pyconfd.system.clock import SystemClock

LEASE_S = 12
"""A holder that is killed was seen alive at most RENEW_S ago: another one takes over within 15 s."""

RENEW_S = 2.0
"""How often the holder renews, and the others look."""

RENEW_LIMIT_S = 8.0
"""A holder that could not renew for so long stops to write: a request that is under way ends before the others act."""

ANSWER_S = 4.0
"""How long a request may take, for the Lease and for what is written while it is held."""

_RELEASED_S = 1
"""The duration of a Lease that nobody holds. Source: client-go's ``release``."""

_AFTER_CONFLICT_S = 0.2
"""Somebody else wrote the Lease in the same moment: it is read soon."""

_STOP_TIMEOUT_S = 2.0
_IDLE_S = 3600.0

log = structlog.get_logger(__name__)


class LeaseRecord(NamedTuple):
    """What a Lease says; ``version`` is its resourceVersion, "" where there is none yet.

    ``renewed`` and ``acquired`` are RFC 3339 texts of the holder's clock: they are written, and never compared.
    """

    holder: str = ""
    duration_s: int = LEASE_S
    renewed: str = ""
    acquired: str = ""
    transitions: int = 0
    version: str = ""


class LeaseObservation(NamedTuple):
    """A Lease, ``since`` when it has been seen as it is, and when it was read last: seconds of the monotonic clock."""

    record: LeaseRecord
    since: float
    read_at: float

    def followed_by(self, record: LeaseRecord, now: float) -> "LeaseObservation":
        """Return what is known after the Lease was read again.

        After RENEW_LIMIT_S without a read it counts as new: its holder, too, may not have reached the API server.
        """
        is_same = record == self.record and now - self.read_at <= RENEW_LIMIT_S
        return LeaseObservation(record, self.since if is_same else now, now)


class LeaseMove(Enum):
    """What to do about a Lease."""

    RENEW = auto()
    TAKE = auto()
    WAIT = auto()


class LeaseStep(NamedTuple):
    """What to do now; where that is to wait, ``due_at`` on the monotonic clock says until when."""

    move: LeaseMove
    due_at: float = 0.0


def next_step(seen: LeaseObservation, identity: str, now: float) -> LeaseStep:
    """Return what ``identity`` does about a Lease: pure."""
    record = seen.record
    if record.holder == identity:
        return LeaseStep(LeaseMove.RENEW)
    ends_at = seen.since + record.duration_s
    if not record.holder or now >= ends_at:
        return LeaseStep(LeaseMove.TAKE)
    return LeaseStep(LeaseMove.WAIT, min(now + RENEW_S, ends_at))


def claimed(record: LeaseRecord, identity: str, now: str) -> LeaseRecord:
    """Return the Lease as ``identity`` writes it, to take or to renew it; ``now`` is RFC 3339 in microseconds."""
    if record.holder == identity:
        return record._replace(duration_s=LEASE_S, renewed=now)
    changes = 1 if record.version else 0
    return record._replace(
        holder=identity,
        duration_s=LEASE_S,
        renewed=now,
        acquired=now,
        transitions=record.transitions + changes,
    )


def released(record: LeaseRecord, now: str) -> LeaseRecord:
    """Return the Lease as its holder leaves it, so that another one takes it at once."""
    return record._replace(holder="", duration_s=_RELEASED_S, renewed=now, acquired=now)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: AnswerMetadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


def parse_lease(answer: bytes) -> LeaseRecord:
    """Return what a Lease says.

    Raises:
        TransientError: the answer is no Lease.
    """
    try:
        lease = msgspec.json.decode(answer, type=_Lease)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TransientError(Problem("Lease", f"cannot be read: {error}")) from error
    spec = lease.spec
    return LeaseRecord(
        holder=spec.holder_identity or "",
        duration_s=spec.lease_duration_seconds or LEASE_S,
        renewed=spec.renew_time or "",
        acquired=spec.acquire_time or "",
        transitions=spec.lease_transitions or 0,
        version=lease.metadata.resource_version,
    )


def leases_path(namespace: str) -> str:
    """Return the path of the Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease_document(record: LeaseRecord, namespace: str, name: str) -> bytes:
    """Return the body of a request that writes a Lease, if it is still at ``record.version``."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if record.version:
        metadata["resourceVersion"] = record.version
    spec = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return msgspec.json.encode({**head, "spec": spec})


def identity_of(state_dir: str, machine_id: str | None = None) -> str:
    """Return the name of this balancer: the same after a restart, another one for each that a machine runs."""
    if machine_id is None:
        try:
            machine_id = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            machine_id = ""
    mark = hashlib.sha256(f"{machine_id} {state_dir}".encode()).hexdigest()[:8]
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    return f"{host[:100]}_{mark}"


class Election:
    """Takes part in the election from a thread of its own, while something is ``wanted`` to be written.

    ``on_change`` is called in that thread when this process became the holder, or is it no more.
    """

    def __init__(
        self,
        writer: Writer,
        on_change: Callable[[], None],
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: SystemClock,
    ) -> None:
        self._writer = writer
        self._namespace, self._name = namespace, name
        self._identity = identity
        self._clock = clock
        self._seen: LeaseObservation | None = None
        self._renewed_at: float | None = None
        """When the request that renewed the Lease last was sent; None while it is not held."""
        self._led = False
        self._wanted = False
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._on_change = on_change

    @property
    def leads(self) -> bool:
        """Whether this process may write now; safe in any thread."""
        renewed_at = self._renewed_at
        return renewed_at is not None and self._clock.monotonic() - renewed_at < RENEW_LIMIT_S

    @property
    def holder(self) -> str:
        """Who was seen to hold the Lease last, "" for nobody; safe in any thread."""
        return self._seen.record.holder if self._seen is not None else ""

    def want(self, *, wanted: bool) -> None:
        """Begin or end to compete for the Lease; safe in any thread."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and release the Lease if it is held."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        self._writer.close()  # where the API server hangs, the Lease ends by itself

    def run_round(self) -> float:
        """Do what is due; return when the next round is, on the monotonic clock."""
        now = self._clock.monotonic()
        try:
            due_at = self._round(now) if self._wanted else self._resign(now)
        except TransientError as error:
            due_at = now + RENEW_S
            if isinstance(error, ApiError) and error.status == CONFLICT:
                self._seen, due_at = None, now + _AFTER_CONFLICT_S
            else:
                self._writer.failed(error)
        else:
            self._writer.succeeded()
        self._note_change()
        return due_at

    def _round(self, now: float) -> float:
        seen = self._seen
        if seen is None or self._renewed_at is None:
            record = self._read()
            seen = seen.followed_by(record, now) if seen is not None else LeaseObservation(record, now, now)
            self._seen = seen
        step = next_step(seen, self._identity, now)
        if step.move is LeaseMove.WAIT:
            self._renewed_at = None
            return step.due_at
        self._seen = LeaseObservation(self._write(claimed(seen.record, self._identity, self._date())), now, now)
        self._renewed_at = now
        return now + RENEW_S

    def _resign(self, now: float) -> float:
        seen, held = self._seen, self._renewed_at is not None
        self._seen = self._renewed_at = None
        if seen is not None and held:
            self._write(released(seen.record, self._date()))
        return now + RENEW_S

    def _read(self) -> LeaseRecord:
        try:
            return parse_lease(self._writer.send(Method.GET, f"{leases_path(self._namespace)}/{self._name}"))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return LeaseRecord()
            raise

    def _write(self, record: LeaseRecord) -> LeaseRecord:
        body = lease_document(record, self._namespace, self._name)
        if not record.version:
            return parse_lease(self._writer.send(Method.CREATE, leases_path(self._namespace), body))
        return parse_lease(self._writer.send(Method.REPLACE, f"{leases_path(self._namespace)}/{self._name}", body))

    def _date(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _note_change(self) -> None:
        leads = self.leads
        if leads == self._led:
            return
        self._led = leads
        if leads:
            log.info("lease.acquired", lease=f"{self._namespace}/{self._name}", identity=self._identity)
        else:
            log.info("lease.lost", lease=f"{self._namespace}/{self._name}", holder=self.holder)
        self._on_change()

    def _run(self) -> None:
        while not self._stopping:
            due_at = self.run_round()
            if self._wanted:
                self._clock.wait(self._wake, max(0.0, due_at - self._clock.monotonic()))
                self._writer.tend()
            else:
                self._clock.wait(self._wake, _IDLE_S)
            self._wake.clear()
        self._wanted = False
        self.run_round()
