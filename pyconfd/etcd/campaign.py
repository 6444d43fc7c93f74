"""One producer at a time: the one that holds the campaign key with its lease; the next takes over when the lease ends.

The leader also checks in each round that the chunks of what is published are still there and unchanged.
"""

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

import structlog

from pyconfd.errors import RejectedInput
from pyconfd.etcd.client import EtcdClient, EtcdError, Value, created_at, putting
from pyconfd.etcd.publication import Keys, Pointer, read_pointer
from pyconfd.model.status import ApiServerState

log = structlog.get_logger(__name__)

ROUNDS_PER_LEASE = 3
"""The lease is renewed, and looked at by those who wait, so many times within its length."""
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How this producer stands, as of the last round.

    ``fence`` is the revision at which it took the campaign key, 0 while it does not hold it: a transaction that
    compares it fails for whoever lost the key meanwhile. ``holder`` names who holds the key. ``pointer`` is what the
    pointer key held, None where there is none; it means nothing unless ``known``. ``damage`` says what is wrong with
    the chunks that it names, "" where nothing is known to be; only who leads looks.
    """

    known: bool = False
    fence: int = 0
    holder: str = ""
    pointer: Value | None = None
    synced_at: float = 0.0
    damage: str = ""

    @property
    def leads(self) -> bool:
        """Whether this producer may publish."""
        return self.fence > 0


class Campaign:
    """Stands for election, in a thread of its own between :meth:`start` and :meth:`stop`, or by :meth:`turn`."""

    def __init__(
        self, client: EtcdClient, keys: Keys, *, name: str, lease_s: float, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._keys = keys
        self._name = name
        self._ttl_s = math.ceil(lease_s)
        self._pause_s = lease_s / ROUNDS_PER_LEASE
        self._clock = clock
        self._inspection = ChunkInspection(client, keys, longest_s=self._pause_s)
        self._lease = 0
        self._lock = threading.Lock()
        self._wrote_at = 0.0
        self._standing = Standing()
        self._notify: Callable[[], None] = _nobody
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def standing(self) -> Standing:
        """How it stands; safe in any thread."""
        return self._standing

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each endpoint; safe in any thread."""
        return self._client.states()

    def start(self, notify: Callable[[], None]) -> None:
        """Stand; ``notify`` is called when the standing or the pointer changed."""
        self._notify = notify
        self._thread = threading.Thread(target=self._run, name="etcd-campaign", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Do the next round now."""
        self._wake.set()

    def stop(self) -> None:
        """Stand down, so that the next takes over at once."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        self.resign()
        self._client.close()

    def resign(self) -> None:
        """Give the key back; where etcd does not answer, the lease ends by itself."""
        lease, self._lease = self._lease, 0
        with self._lock:
            self._standing = replace(self._standing, fence=0)
        if lease:
            try:
                self._client.revoke(lease)
            except EtcdError as error:
                log.debug("campaign.lease_left_to_expire", problem=str(error))

    def wrote(self, pointer: Value) -> None:
        """Take note that this producer wrote the pointer, so that it is no news."""
        with self._lock:
            self._wrote_at = time.monotonic()
            self._standing = replace(self._standing, pointer=pointer, damage="")

    def turn(self) -> Standing:
        """Do one round: renew the lease, look who holds the key, try to get it, look at the pointer and its chunks.

        Raises:
            EtcdError: etcd does not answer.
        """
        began = time.monotonic()
        if self._lease and not self._client.keep_alive(self._lease):
            self._lease = 0
        held = self._client.read(self._keys.campaign)
        fence, holder = (self._stand(), self._name) if held is None else self._judge(held)
        pointer = self._client.read(self._keys.pointer)
        damage = self._inspection.damage(pointer) if fence else ""
        with self._lock:
            before = self._standing
            if self._wrote_at >= began:
                pointer, damage = before.pointer, ""
            now = Standing(True, fence, holder, pointer, self._clock(), damage)
            self._standing = now
        self._say(before, now)
        if replace(before, synced_at=0.0) != replace(now, synced_at=0.0):
            self._notify()
        return now

    def _stand(self) -> int:
        """Try to create the key; give the revision of that, 0 where somebody was quicker."""
        if not self._lease:
            self._lease = self._client.grant(self._ttl_s)
        about = json.dumps({"producer": self._name}).encode()
        key = self._keys.campaign
        answer = self._client.transact([created_at(key, 0)], [putting(key, about, self._lease)])
        return answer.revision if answer.succeeded else 0

    def _judge(self, held: Value) -> tuple[int, str]:
        """Return the fence and the holder: a key on our lease is ours, even if the answer to our try was lost."""
        if self._lease and held.lease == self._lease:
            return held.create_revision, self._name
        try:
            return 0, str(json.loads(held.content)["producer"])
        except (ValueError, KeyError, TypeError):
            return 0, "somebody else"

    def _say(self, before: Standing, now: Standing) -> None:
        if now.damage and now.damage != before.damage:
            log.error("publication.damaged", problem=now.damage, remedy="nothing to do: it is published anew")
        if before.fence and before.fence != now.fence:
            log.warning("campaign.lost", producer=self._name, reason="the lease ended before it was renewed")
        if now.fence and now.fence != before.fence:
            log.info("campaign.won", producer=self._name, revision=now.fence)
        elif not now.fence and now.holder != before.holder:
            log.info("campaign.standing_by", producer=self._name, holder=now.holder)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.turn()
            except EtcdError as error:
                log.debug("campaign.round_failed", problem=str(error))  # the client says it once
            self._wake.wait(self._pause_s)
            self._wake.clear()


def _nobody() -> None:
    """Stand in before :meth:`Campaign.start`."""


class ChunkInspection:
    """For one thread. ``longest_s`` is how long one look may take; the next look goes on from there."""

    def __init__(self, client: EtcdClient, keys: Keys, *, longest_s: float) -> None:
        self._client = client
        self._keys = keys
        self._longest_s = longest_s
        self._seen: tuple[Value, Pointer | None] | None = None
        self._next = 0
        self._damaged: dict[int, str] = {}

    def damage(self, published: Value | None) -> str:
        """Return what is wrong with the chunks that the pointer ``published`` names, "" where nothing is known to be.

        A pointer that cannot be read is not judged here.

        Raises:
            EtcdError: etcd does not answer.
        """
        pointer = self._pointer(published)
        if pointer is None:
            return ""
        ends = time.monotonic() + self._longest_s
        for _ in pointer.stored.chunks:
            self._look(pointer)
            if time.monotonic() > ends:
                break
        return self._damaged[min(self._damaged)] if self._damaged else ""

    def _look(self, pointer: Pointer) -> None:
        index, count = self._next, len(pointer.stored.chunks)
        found = self._client.read(self._keys.chunk(pointer.stored.sha256, index))
        self._damaged.pop(index, None)
        if found is None:
            self._damaged[index] = f"chunk {index + 1} of {count} of generation {pointer.number} is gone"
        elif sha256(found.content).hexdigest() != pointer.stored.chunks[index]:
            self._damaged[index] = f"chunk {index + 1} of {count} of generation {pointer.number} was changed"
        self._next = (index + 1) % count

    def _pointer(self, published: Value | None) -> Pointer | None:
        if published is None:
            return None
        if self._seen is None or self._seen[0] != published:
            self._next, self._damaged = 0, {}
            try:
                self._seen = published, read_pointer(published.content)
            except RejectedInput:
                self._seen = published, None
        return self._seen[1]
