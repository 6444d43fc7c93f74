"""Looks whether the chunks of what is published are still what the pointer says."""

import time
from hashlib import sha256

from pyconfd.errors import RejectedInput
from pyconfd.etcd.client import EtcdClient, Value
from pyconfd.etcd.keys import Keys
from pyconfd.etcd.publication import Pointer, read_pointer


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
