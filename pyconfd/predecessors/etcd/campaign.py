"""One producer at a time: the one that holds the campaign key with its lease; the next takes over when the lease ends.

In each round the leader also checks that a chunk of what is published is still there and unchanged.
"""

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256

import structlog

from pyconfd.errors import RejectedInput
from pyconfd.model.status import ApiServerState
from pyconfd.predecessors.etcd.client import EtcdClient, EtcdError, StoredValue, created_at, putting
from pyconfd.predecessors.etcd.publication import Keys, Pointer, UnknownFormatError, decode_pointer

log = structlog.get_logger(__name__)

ROUNDS_PER_LEASE = 3
"""The leader renews its lease so many times within its length; the others look as often whether it ended."""
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class PointerState:
    """What the pointer key holds: a pointer, one in the format of a newer pyconfd, or neither.

    What cannot be read is published again, but for what a newer pyconfd wrote.
    """

    value: StoredValue | None = None
    pointer: Pointer | None = None
    newer: UnknownFormatError | None = None


def parse_pointer_state(value: StoredValue | None) -> PointerState:
    """Parse what the pointer key holds, None where there is no such key."""
    if value is None:
        return PointerState()
    try:
        return PointerState(value, decode_pointer(value.content))
    except UnknownFormatError as error:
        return PointerState(value, newer=error)
    except RejectedInput as error:
        log.warning("pointer.damaged", problem=str(error))
        return PointerState(value)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who publishes, as of the last round.

    ``fence`` is the revision at which this producer took the campaign key, 0 while it does not hold it: a transaction
    that compares it fails once the key was lost. ``holder`` names who holds the key. ``found`` is what the pointer key
    held; it means nothing unless ``known``. ``damage`` says what is wrong with the chunks that the pointer names, ""
    where nothing is known to be; only the leader checks.
    """

    known: bool = False
    fence: int = 0
    holder: str = ""
    found: PointerState = field(default_factory=PointerState)
    damage: str = ""

    @property
    def leads(self) -> bool:
        """Whether this producer may publish."""
        return self.fence > 0


class Campaign:
    """Takes part in the election: in a thread between :meth:`start` and :meth:`stop`, or by :meth:`run_round`."""

    def __init__(self, client: EtcdClient, keys: Keys, *, name: str, lease_s: float) -> None:
        self._client = client
        self._keys = keys
        self._name = name
        self._ttl_s = math.ceil(lease_s)
        self._pause_s = lease_s / ROUNDS_PER_LEASE
        self._next_chunk = 0
        self._lease = 0
        self._lock = threading.Lock()
        self._published_at = 0.0
        self._leadership = Leadership()
        self._notify: Callable[[], None] | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def leadership(self) -> Leadership:
        """Who publishes; safe in any thread."""
        return self._leadership

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each endpoint; safe in any thread."""
        return self._client.states()

    def note(self) -> str:
        """Return in words whether this producer publishes."""
        leadership = self.leadership
        if leadership.leads:
            return "publishes: this producer holds the lease"
        return f"stands by: {leadership.holder} publishes" if leadership.holder else "stands for election"

    def start(self, notify: Callable[[], None]) -> None:
        """Begin; ``notify`` is called when the leadership or the pointer changed."""
        self._notify = notify
        self._thread = threading.Thread(target=self._run, name="etcd-campaign", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Do the next round now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread and resign, so that the next producer takes over at once."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        self.resign()
        self._client.close()

    def resign(self) -> None:
        """Revoke the lease, and with it the key; where etcd does not answer, the lease ends by itself."""
        lease, self._lease = self._lease, 0
        with self._lock:
            self._leadership = replace(self._leadership, fence=0)
        if lease:
            try:
                self._client.revoke(lease)
            except EtcdError as error:
                log.debug("campaign.lease_left_to_expire", problem=str(error))

    def published(self, found: PointerState) -> None:
        """Record that this producer wrote the pointer, so that it is no news."""
        with self._lock:
            self._published_at = time.monotonic()
            self._leadership = replace(self._leadership, found=found, damage="")

    def run_round(self) -> Leadership:
        """Renew the lease, try to get the key where no producer holds it, look at the pointer and its chunks.

        Raises:
            EtcdError: etcd does not answer.
        """
        began = time.monotonic()
        if self._lease and not self._client.keep_alive(self._lease):
            self._lease = 0
        held = self._client.read(self._keys.campaign)
        fence, holder = self._try_to_lead() if held is None else self._holder_of(held)
        value, found = self._client.read(self._keys.pointer), self._leadership.found
        if value != found.value:
            found = parse_pointer_state(value)
        damage = self._chunk_damage(found.pointer) if fence and found.pointer else ""
        with self._lock:
            before = self._leadership
            if self._published_at >= began:  # the loop published meanwhile: what was read here is older
                found, damage = before.found, ""
            now = Leadership(True, fence, holder, found, damage)
            self._leadership = now
        self._log_change(before, now)
        if self._notify is not None and before != now:
            self._notify()
        return now

    def _try_to_lead(self) -> tuple[int, str]:
        if not self._lease:
            self._lease = self._client.grant(self._ttl_s)
        about = json.dumps({"producer": self._name}).encode()
        key = self._keys.campaign
        answer = self._client.transact([created_at(key, 0)], [putting(key, about, self._lease)])
        return (answer.revision if answer.succeeded else 0), self._name

    def _holder_of(self, held: StoredValue) -> tuple[int, str]:
        """Return the fence and the holder: a key on our lease is ours, even if the answer to our try was lost."""
        if self._lease and held.lease == self._lease:
            return held.create_revision, self._name
        try:
            return 0, str(json.loads(held.content)["producer"])
        except (ValueError, KeyError, TypeError):
            return 0, "another one"

    def _chunk_damage(self, pointer: Pointer) -> str:
        """Check one chunk, in each round the next; return what is wrong with it. One that is damaged stays the next."""
        stored = pointer.stored
        index = self._next_chunk % len(stored.chunks)
        found = self._client.read(self._keys.chunk(stored.sha256, index))
        name = f"chunk {index + 1} of {len(stored.chunks)} of generation {pointer.number}"
        if found is None:
            return f"{name} is gone"
        if sha256(found.content).hexdigest() != stored.chunks[index]:
            return f"{name} was changed"
        self._next_chunk = index + 1
        return ""

    def _log_change(self, before: Leadership, now: Leadership) -> None:
        if now.damage and now.damage != before.damage:
            log.error("publication.damaged", problem=now.damage, remedy="nothing to do: it is published again")
        if before.fence and before.fence != now.fence:
            log.warning("campaign.lost", producer=self._name, reason="the lease ended before it was renewed")
        if now.fence and now.fence != before.fence:
            log.info("campaign.won", producer=self._name, revision=now.fence)
        elif not now.fence and now.holder != before.holder:
            log.info("campaign.standing_by", producer=self._name, holder=now.holder)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.run_round()
            except EtcdError as error:
                log.debug("campaign.round_failed", problem=str(error))  # the client logs what fails, once
            self._wake.wait(self._pause_s)
            self._wake.clear()
