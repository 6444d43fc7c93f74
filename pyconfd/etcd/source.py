"""Reads publications from etcd: a watch is a hint to read again, and so is a timer."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pyconfd.errors import RejectedInput
from pyconfd.etcd.client import EtcdClient, EtcdError, Stream, Value
from pyconfd.etcd.publication import DamagedError, Keys, Pointer, Published, read_pointer, unpack
from pyconfd.model.status import SourceHealth

log = structlog.get_logger(__name__)

RETRY_S = 1.0
WATCH_SILENCE_S = 60.0
"""A watch that says nothing for so long is begun anew: a dead connection looks just like it."""
STOP_TIMEOUT_S = 10.0
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest complete reading. ``read`` is False until there was one.

    ``published`` is what the pointer named, verified; it is None where ``error`` says why it cannot be used, and
    where the pointer is gone.
    """

    read: bool = False
    published: Published | None = None
    error: RejectedInput | None = None


class PublishedSource:
    """One reader thread and one that watches. ``make_client`` gives each its own."""

    def __init__(
        self,
        make_client: Callable[[bool], EtcdClient],
        keys: Keys,
        *,
        poll_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = make_client(False)
        self._watch_client = make_client(True)
        self._keys = keys
        self._poll_s = poll_s
        self._clock = clock
        self._hint = threading.Event()
        self._stopping = threading.Event()
        self._notify: Callable[[], None] = _nobody
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._value: Value | None = None
        self._reading = Reading()
        self._synced_at = 0.0
        self._threads: list[threading.Thread] = []

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read; ``notify`` is called from a thread whenever :meth:`reading` gives something else."""
        self._notify = notify
        for name, target in (("etcd-reader", self._read_on), ("etcd-watch", self._watch_on)):
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def reading(self) -> Reading:
        """Return the newest reading; safe in any thread."""
        return self._reading

    def relist(self) -> None:
        """Read again now."""
        self._hint.set()

    def health(self) -> SourceHealth:
        """Return how etcd does; never waits for the network."""
        published = self._reading.published
        note = f"takes what {published.pointer.producer.name} published" if published else ""
        return SourceHealth(
            synced=published is not None, last_sync_at=self._synced_at, etcd=self._client.states(), note=note
        )

    def stop(self) -> None:
        """End both threads."""
        self._stopping.set()
        self._hint.set()
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)
        self._client.close()
        self._watch_client.close()

    def read_now(self) -> Reading:
        """Read the pointer, and what it names unless that is known already.

        Raises:
            EtcdError: etcd does not answer; what was read before stands.
        """
        reading = self._reading
        value = self._client.read(self._keys.pointer)
        if not reading.read or value != self._value or isinstance(reading.error, DamagedError):
            value, reading = self._resolved(value)
        self._synced_at = self._clock()
        self._value = value
        news = (reading.published, str(reading.error)) != (self._reading.published, str(self._reading.error))
        news = news or not self._reading.read
        self._reading = reading
        if news:
            self._notify()
        return reading

    def _resolved(self, value: Value | None) -> tuple[Value | None, Reading]:
        """Follow the pointer; where it moves on meanwhile, follow it there."""
        for _ in range(_ATTEMPTS):
            if value is None:
                return None, Reading(read=True)
            try:
                pointer = read_pointer(value.content)
                return value, Reading(read=True, published=unpack(pointer, self._chunks(pointer)))
            except RejectedInput as error:
                again = self._client.read(self._keys.pointer)
                if again == value:
                    return value, Reading(read=True, error=error)
                value = again
        return value, Reading(read=True, error=DamagedError("the publications change faster than they can be read"))

    def _chunks(self, pointer: Pointer) -> list[bytes]:
        chunks = []
        for index in range(len(pointer.stored.chunks)):
            value = self._client.read(self._keys.chunk(pointer.stored.sha256, index))
            if value is None:
                raise DamagedError(
                    f"chunk {index + 1} of {len(pointer.stored.chunks)} of generation {pointer.number} is missing"
                )
            chunks.append(value.content)
        return chunks

    def _read_on(self) -> None:
        while not self._stopping.is_set():
            self._hint.clear()
            try:
                reading = self.read_now()
            except EtcdError:
                pause_s = RETRY_S  # the client says it, once
            else:
                pause_s = RETRY_S if isinstance(reading.error, DamagedError) else self._poll_s
            self._hint.wait(pause_s)

    def _watch_on(self) -> None:
        while not self._stopping.is_set():
            try:
                stream = self._watch_client.watch(self._keys.pointer, WATCH_SILENCE_S)
            except EtcdError:
                self._stopping.wait(RETRY_S)
                continue
            with self._lock:
                self._stream = stream
            if self._stopping.is_set():
                stream.interrupt()
            began = time.monotonic()
            try:
                # The first line says that the watch stands: what was written before it is read now. All later ones,
                # an error and a cancellation because of compaction too, say that something may be new.
                for _ in stream.lines():
                    self._hint.set()
            except EtcdError as error:
                log.debug("watch.ended", problem=str(error))
            finally:
                with self._lock:
                    self._stream = None
                stream.close()
            self._hint.set()
            if time.monotonic() - began < RETRY_S:
                self._stopping.wait(RETRY_S)


def _nobody() -> None:
    """Stand in before :meth:`PublishedSource.start`."""
