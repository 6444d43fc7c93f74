"""The record of whose each name is, which all load balancers of a cluster share: ConfigMaps beside the Lease.

An index names the digests of its shards, so that who looks reads only what changed. A thread of its own reads it, and
writes it while this process holds the Lease; traffic never waits for it but before this process first serves.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.ownership import (
    MOST_SHARDS,
    NOTHING_RECORDED,
    OwnershipDocuments,
    Recorded,
    differences,
    documents,
    recorded_of,
)
from pyconfd.model.reservation import NO_RESERVATIONS, Name, NameRegister, Owner, Reservation, shown
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.config_maps import ConfigMapThread, StoredConfigMap
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.events import ObjectNotice
from pyconfd.sources.kubernetes.failures import ApiError
from pyconfd.sources.kubernetes.resources import owners_names
from pyconfd.sources.kubernetes.writing import CONFLICT, FORBIDDEN
from pyconfd.system.clock import SystemClock

LOOK_EVERY_S = 10.0
"""How often the record is read, and the least time between two writes."""

READY_S = 10.0
"""How long the first configuration waits for the record; without it this balancer goes by its own file."""

SETTLED_S = 20.0
"""How long this balancer and the record may differ before the record wins. What is given up is given up here and there
at almost the same time, and the record follows: a name must not go back and forth meanwhile."""

DISAGREES_S = 30.0
_RETRY_S = 1.0
_TORN_READS = 3
"""So often a record that is half written is read again; then it is taken as it is."""

_SETTLED_NOTICES_S = 3600.0
_SHOWN = 3
_NAMES, _SHARDS = "names", "shards"
log = structlog.get_logger(__name__)


class LeaseTurn(Protocol):
    """Knows whether this balancer holds the Lease."""

    def is_ours(self, *, wanted: bool, what: str) -> bool:
        """Return whether to write now; ``wanted``: there is something of ``what``. Safe in any thread."""
        ...


class _Stored(NamedTuple):
    """A ConfigMap as it was read last: its one text, "" where there is none."""

    text: str = ""
    version: str = ""


_NOT_STORED = _Stored()


_Key = tuple[str, Name]


class _Offer(NamedTuple):
    """What the loop remembers, which names it let the record decide, and which of these differ all the same."""

    register: NameRegister
    settled: Recorded
    not_taken: Mapping[_Key, Reservation]


class OwnershipRecord(ConfigMapThread):
    """Reads and writes the record from a thread of its own between :meth:`start` and :meth:`stop`, or by :meth:`step`.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    thread_name, event = "ownership-record", "ownership.failed"

    def __init__(
        self,
        settings: KubernetesSettings,
        turn: LeaseTurn,
        *,
        lease: tuple[str, str],
        clock: SystemClock | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._config_maps = owners_names(lease[1])
        super().__init__(settings, lease[0], self._config_maps[0], clock, credentials)
        self._turn = turn
        self._lock = threading.Lock()
        self._offered = _Offer(NameRegister(), NOTHING_RECORDED, {})
        self._settled: Recorded = NOTHING_RECORDED
        self._index, self._shards = _NOT_STORED, dict[int, _Stored]()
        self._recorded: Recorded = NOTHING_RECORDED
        self._since: dict[_Key, float] = {}
        self._agreed: NameRegister | None = None
        """What was compared with the record last."""
        self._made: tuple[NameRegister, OwnershipDocuments] | None = None
        self._torn_reads = 0
        self._left_out: Mapping[str, int] = {}
        self._disagreement: tuple[Problem, ...] = ()
        self._notices: dict[_Key, tuple[float, ObjectNotice]] = {}
        self._not_before = 0.0
        """When the record may be written again, on the monotonic clock."""
        self._started_at = self._clock.monotonic()
        self._was_read = self._was_ready = False
        self._notify: Callable[[], None] = lambda: None

    # For the loop

    @property
    def is_ready(self) -> bool:
        """Whether the record was read, cannot be read, or was waited for long enough; safe in any thread."""
        return self._was_read or self._clock.monotonic() - self._started_at >= READY_S

    def settled(self) -> Recorded:
        """Return the names that the record decides; the same object until there are others. Safe in any thread."""
        with self._lock:
            return self._settled

    def offer(self, register: NameRegister, settled: Recorded) -> None:
        """Set what is remembered now, by which ``settled`` was taken in; return at once."""
        former = self._offered
        not_taken = former.not_taken
        if settled is not former.settled:
            still = {key: row for key, row in not_taken.items() if key in self._since}
            not_taken = {**still, **differences(register, settled, self._clock.now())}
        with self._lock:
            self._offered = _Offer(register, settled, not_taken)

    def problems(self) -> tuple[Problem, ...]:
        """Return why the record cannot be kept, and where this balancer differs from it; safe in any thread."""
        left_out = self._left_out
        full = (
            Problem(
                self._place,
                f"{sum(left_out.values())} names of {_listed(sorted(left_out))} are not recorded: there are too many",
                "does somebody make hosts without end? a new balancer may give them to another namespace",
            ),
        )
        return (*self._writer.problems(), *self._disagreement, *(full if left_out else ()))

    def notices(self) -> tuple[ObjectNotice, ...]:
        """Return which objects lost a name to the record within the last hour; safe in any thread."""
        return tuple(notice for _, notice in tuple(self._notices.values()))

    # The thread

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read; ``notify`` is called whenever :meth:`settled` or :attr:`is_ready` is another one."""
        self._notify = notify
        self._begin()

    def step(self) -> float:
        """Read what changed, settle what differs, write what is due; return how long to wait for the next time."""
        now = self._clock.monotonic()
        with self._lock:
            offered = self._offered
        leads = self._turn.is_ours(wanted=bool(offered.register.reservations), what="ownership")
        pause_s = LOOK_EVERY_S
        try:
            came = self._read()
            self._settle(offered, came, now, leads=leads)
            self._was_read = True
            if leads and now >= self._not_before:
                self._write(now)
            self._writer.succeeded()
        except TransientError as error:
            denied = isinstance(error, ApiError) and error.status == FORBIDDEN
            self._was_read = self._was_read or denied
            # That no API server answers is reported by who reads the cluster.
            is_away = isinstance(error, ApiError) and not error.status
            if not (is_away or self._is_being_written(error)):
                self._writer.failed(error)
            pause_s = LOOK_EVERY_S if self._was_read else _RETRY_S
        if self.is_ready and not self._was_ready:
            self._was_ready = True
            self._notify()
        return pause_s

    @staticmethod
    def _is_being_written(error: TransientError) -> bool:
        return isinstance(error, _BeingWrittenError) or (isinstance(error, ApiError) and error.status == CONFLICT)

    # Reading

    def _read(self) -> Recorded:
        """Read what changed; return the names that are recorded otherwise than when it was read last."""
        index = self._get(self._config_maps[0], _SHARDS)
        if self._was_read and index == self._index:
            return NOTHING_RECORDED
        digests = _digests_in(index.text)
        shards = {}
        is_torn = False
        for number, digest in enumerate(digests, 1):
            known = self._shards.get(number, _NOT_STORED)
            shards[number] = known if _digest(known.text) == digest else self._get(self._config_maps[number], _NAMES)
            is_torn = is_torn or _digest(shards[number].text) != digest
        if is_torn and self._torn_reads < _TORN_READS:
            self._torn_reads += 1
            raise _BeingWrittenError(Problem(self._place, "is being written"))
        self._torn_reads = 0
        recorded = self._parsed(shards)
        came: dict[str, dict[Name, Reservation]] = {}
        for scope, rows in recorded.items():
            former = self._recorded.get(scope, NO_RESERVATIONS)
            if found := {name: row for name, row in rows.items() if former.get(name) != row}:
                came[scope] = found
        self._index, self._shards, self._recorded = index, shards, recorded
        return came

    def _parsed(self, shards: Mapping[int, _Stored]) -> Recorded:
        found: dict[str, dict[Name, Reservation]] = {}
        for number, stored in shards.items():
            try:
                parsed = recorded_of([stored.text] if stored.text else ())
            except ValueError as error:
                # The holder of the Lease writes it again.
                log.warning("ownership.unreadable", config_map=self._config_maps[number], problem=str(error))
                continue
            for scope, rows in parsed.items():
                found.setdefault(scope, {}).update(rows)
        return found

    def _get(self, name: str, key: str) -> _Stored:
        return _stored(self._read_map(name), key)

    # What differs

    def _settle(self, offered: _Offer, came: Recorded, now: float, *, leads: bool) -> None:
        """Apply what came new in the record, and what differs for long; the holder of the Lease knows better."""
        own = offered.register
        if own is self._agreed and not came and not self._since:
            return
        differing = differences(own, self._recorded, self._clock.now())
        self._since = {key: self._since.get(key, now) for key in differing}
        pending = NOTHING_RECORDED if offered.settled is self._settled else self._settled
        decided: dict[str, dict[Name, Reservation]] = {scope: dict(rows) for scope, rows in pending.items()}
        is_more = False
        for (scope, name), row in differing.items():
            is_new = name in came.get(scope, NO_RESERVATIONS)
            is_old = not leads and now - self._since[scope, name] >= SETTLED_S
            known = decided.get(scope, NO_RESERVATIONS).get(name)
            if (is_new or is_old) and row not in (known, offered.not_taken.get((scope, name))):
                is_more = True
                decided.setdefault(scope, {})[name] = row
                self._note_loss(scope, name, own.reservations.get(scope, NO_RESERVATIONS).get(name), row, now)
        self._notices = {k: each for k, each in self._notices.items() if now - each[0] < _SETTLED_NOTICES_S}
        self._disagreement = () if leads else tuple(self._disagreements(own, differing, now))
        self._agreed = own
        if is_more:
            with self._lock:
                self._settled = decided
            self._notify()

    def _note_loss(self, scope: str, name: Name, had: Reservation | None, row: Reservation, now: float) -> None:
        if had is None or had.until:
            return
        lost, owner = had.owner, row.owner
        log.warning("ownership.settled", name=shown(name), lost=_object(lost), owner=_object(owner))
        if not (lost.kind and lost.name):
            return
        message = f"{shown(name)} belongs to {_object(owner)} by the record that all balancers share ({self._place})"
        ref = ObjectRef(lost.kind, lost.namespace, lost.name)
        topic = f"{scope}/{name.place}/{name.name}"
        notice = ObjectNotice(ref, "OwnershipSettled", message, topic=topic, action="Settled", is_local=True)
        self._notices[scope, name] = now, notice

    def _disagreements(self, own: NameRegister, differing: Mapping[_Key, Reservation], now: float) -> list[Problem]:
        found = []
        for (scope, name), row in sorted(differing.items(), key=lambda each: each[0]):
            have = own.reservations.get(scope, NO_RESERVATIONS).get(name)
            if have is not None and not have.until and now - self._since[scope, name] > DISAGREES_S:
                here, there = _object(have.owner), _object(row.owner)
                found.append(f"{shown(name)} is {here}'s here, and {there}'s for the other load balancers")
        if not found:
            return []
        more = f" (and {len(found) - 1} more)" if found[1:] else ""
        remedy = "do both read the same cluster, with the same settings? pyconfd explain NAME on each says what it sees"
        return [Problem(self._place, found[0] + more, remedy)]

    # Writing

    def _write(self, now: float) -> None:
        """Write what is remembered here where the record says something else.

        What the record decided must have been taken in first: else it would be undone.
        """
        with self._lock:
            offered, settled = self._offered, self._settled
        if offered.settled is not settled or not (offered.register.reservations or self._index.version):
            return
        if self._made is None or self._made[0] is not offered.register:
            self._made = offered.register, documents(offered.register)
        made = self._made[1]
        self._left_out = made.left_out
        index = msgspec.json.encode([_digest(each) for each in made.shards]).decode()
        if index == self._index.text and all(self._is_stored(n, text) for n, text in enumerate(made.shards, 1)):
            return
        self._not_before = now + LOOK_EVERY_S
        try:
            for number, text in enumerate(made.shards, 1):
                if not self._is_stored(number, text):
                    self._shards[number] = self._put(self._config_maps[number], _NAMES, text, self._shards.get(number))
            self._index = self._put(self._config_maps[0], _SHARDS, index, self._index)
        except TransientError:
            # Whatever is there now is read again; what was written of it is known by its digest.
            self._index, self._shards = _NOT_STORED, {}
            raise
        self._recorded = recorded_of(made.shards)
        log.debug("ownership.written", shards=len(made.shards))

    def _is_stored(self, number: int, text: str) -> bool:
        return self._shards.get(number, _NOT_STORED).text == text

    def _put(self, name: str, key: str, text: str, former: _Stored | None) -> _Stored:
        known = former if former is not None and former.version else self._get(name, key)
        return _stored(self._write_map(name, {key: text}, known.version), key)


class _BeingWrittenError(TransientError):
    """The index and its shards do not fit together yet."""


def _stored(found: StoredConfigMap, key: str) -> _Stored:
    return _Stored(found.data.get(key, ""), found.version)


def _digests_in(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])[:MOST_SHARDS] if text else []
    except msgspec.MsgspecError as error:
        log.warning("ownership.unreadable", problem=str(error))
        return []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _listed(namespaces: list[str]) -> str:
    more = len(namespaces) - _SHOWN
    return ", ".join(namespaces[:_SHOWN]) + (f" and {more} more namespaces" if more > 0 else "")


def _object(owner: Owner) -> str:
    return f"{owner.kind} {owner.namespace}/{owner.name}" if owner.kind else f"namespace {owner.namespace}"
