"""Reads publications from etcd: the pointer, when a watch says that it may have changed and at least every so often."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pyconfd.errors import RejectedInput
from pyconfd.model.status import SourceHealth
from pyconfd.predecessors.etcd.client import EtcdClient, EtcdError, StoredValue, Stream
from pyconfd.predecessors.etcd.publication import DamagedError, Keys, Pointer, Publication, decode_pointer, unpack

log = structlog.get_logger(__name__)

RETRY_S = 1.0
WATCH_SILENCE_S = 60.0
STOP_TIMEOUT_S = 10.0
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class PublicationReading:
    """A complete reading.

    ``published`` is what the pointer named, verified; it is None where ``error`` says why it cannot be used, and
    where there is no pointer.
    """

    published: Publication | None = None
    error: RejectedInput | None = None


class PublishedSource:
    """Reads and watches in a thread of its own between :meth:`start` and :meth:`stop`."""

    def __init__(self, client: EtcdClient, keys: Keys, *, poll_s: float) -> None:
        self._client = client
        self._keys = keys
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._stopping = False
        self._notify: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._value: StoredValue | None = None
        self._reading: PublicationReading | None = None
        self._synced_at = 0.0
        self._thread: threading.Thread | None = None

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read; ``notify`` is called from the thread whenever :meth:`reading` returns something else."""
        self._notify = notify
        self._thread = threading.Thread(target=self._run, name="etcd-reader", daemon=True)
        self._thread.start()

    def reading(self) -> PublicationReading | None:
        """Return the newest reading, None until there was one; safe in any thread."""
        return self._reading

    def relist(self) -> None:
        """Read again now."""
        self._wake.set()
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()

    def health(self) -> SourceHealth:
        """Return how etcd does; never waits for the network."""
        published = self._reading.published if self._reading else None
        note = f"takes what {published.pointer.producer.name} published" if published else ""
        return SourceHealth(
            synced=published is not None, last_sync_at=self._synced_at, etcd=self._client.states(), note=note
        )

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self.relist()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        self._client.close()

    def read_now(self) -> PublicationReading:
        """Read the pointer, and what it names unless that is known already.

        Raises:
            EtcdError: etcd does not answer; the former reading stays.
        """
        former, value = self._reading, self._client.read(self._keys.pointer)
        reading = former
        if reading is None or value != self._value or isinstance(reading.error, DamagedError):
            value, reading = self._resolved(value)
        self._synced_at = time.time()
        self._value, self._reading = value, reading
        is_news = former is None or (reading.published, str(reading.error)) != (former.published, str(former.error))
        if is_news and self._notify is not None:
            self._notify()
        return reading

    def _resolved(self, value: StoredValue | None) -> tuple[StoredValue | None, PublicationReading]:
        """Follow the pointer; where it changes while its chunks are read, follow it there."""
        for _ in range(_ATTEMPTS):
            if value is None:
                return None, PublicationReading()
            try:
                pointer = decode_pointer(value.content)
                return value, PublicationReading(unpack(pointer, self._chunks(pointer)))
            except RejectedInput as error:
                again = self._client.read(self._keys.pointer)
                if again == value:
                    return value, PublicationReading(error=error)
                value = again
        return value, PublicationReading(error=DamagedError("the publications change faster than they can be read"))

    def _chunks(self, pointer: Pointer) -> list[bytes]:
        chunks = []
        for index in range(len(pointer.stored.chunks)):
            value = self._client.read(self._keys.chunk(pointer.stored.sha256, index))
            if value is None:
                count = len(pointer.stored.chunks)
                raise DamagedError(f"chunk {index + 1} of {count} of generation {pointer.number} is missing")
            chunks.append(value.content)
        return chunks

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            began = time.monotonic()
            try:
                # No watch shows that a damaged chunk is there again, so that is read each second.
                if not isinstance(self.read_now().error, DamagedError):
                    self._watch()
            except EtcdError as error:
                log.debug("etcd.watch_ended", problem=str(error))  # the client logs what fails, once
            if time.monotonic() - began < RETRY_S:
                self._wake.wait(RETRY_S)

    def _watch(self) -> None:
        # Silence looks just like a dead connection, so it ends the watch, and what it may have missed is read.
        stream = self._client.watch(self._keys.pointer, min(self._poll_s, WATCH_SILENCE_S))
        with self._lock:
            self._stream = stream
        try:
            if self._wake.is_set():
                return
            # The first line says that the watch has begun: what was written after the last reading is read now. All
            # later ones, an error and a cancellation because of compaction too, say that something may be new.
            for _ in stream.lines():
                if self._wake.is_set() or isinstance(self.read_now().error, DamagedError):
                    return
        finally:
            with self._lock:
                self._stream = None
            stream.close()
