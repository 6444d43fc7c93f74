"""One running watch: events from the store, bookmarks, and the ways a stream can go wrong."""

import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tests.world import requests, selectors
from tests.world.faults import Fault, FaultKind
from tests.world.requests import Target
from tests.world.statuses import ApiError, too_old
from tests.world.store import Event, EventType, Obj, Stored

if TYPE_CHECKING:
    from tests.world.apiserver import ApiServer
    from tests.world.connection import ChunkStream

_LOOK_AROUND_S = 0.5
REFUSED_INITIAL_EVENTS = (
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
)


class Watch:
    """Runs in its connection's thread until the client, the server, a fault or the timeout ends it."""

    def __init__(self, server: "ApiServer", target: Target, query: Mapping[str, str], stream: "ChunkStream") -> None:
        """Raises: ApiError: 400 for a query that cannot be read."""
        self._server, self._target, self._stream = server, target, stream
        self._cluster, self._faults = server.cluster, server.faults
        self._plural = target.resource.plural
        self._match = selectors.parse(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        self._rv = requests.integer(query, "resourceVersion")
        self._from_now = query.get("resourceVersion", "") in {"", "0"}
        self._refused = query.get("sendInitialEvents") in {"true", "1"}
        seconds = requests.integer(query, "timeoutSeconds")
        self._deadline = time.monotonic() + (seconds or random.uniform(1800, 3600))  # as the real server
        self._bookmarks = query.get("allowWatchBookmarks") in {"true", "1"}
        self._bookmarks_seen = server.bookmarks_asked

    def run(self) -> None:
        """Raises: OSError: where the client went away while being written to."""
        if self._refused:
            self._error(ApiError(500, REFUSED_INITIAL_EVENTS))
            return
        if self._from_now:
            page = self._cluster.page(self._plural, namespace=self._target.namespace, match=self._match)
            self._rv = page.rv
            for stored in page.items:
                if not self._send(self._line(EventType.ADDED, stored)):
                    return
        while not self._stream.gone():
            if not self._step():
                return

    def _find(self, *kinds: FaultKind) -> Fault | None:
        return self._faults.find(self._plural, "watch", *kinds)

    def _current(self) -> int:
        frozen = self._server.frozen_rv
        return self._cluster.rv if frozen is None else min(frozen, self._cluster.rv)

    def _step(self) -> bool:
        """Send what there is, else wait for something; False at the end."""
        with self._cluster.changed:
            if self._find(FaultKind.SILENCE):
                self._cluster.changed.wait(_LOOK_AROUND_S)
                return True
            if fault := self._faults.take(self._plural, "watch", FaultKind.WATCH_ERROR):
                failure = (
                    too_old(self._rv, self._cluster.rv) if fault.code == 410 else ApiError(fault.code, "etcd went away")
                )
                events, current = [], 0
            else:
                failure = None
                current = self._current()
                try:
                    events = [e for e in self._cluster.events_after(self._plural, self._rv) if e.rv <= current]
                except ApiError as error:
                    events, failure = [], error
            asked = self._server.bookmarks_asked
            # Once its definition is deleted a resource's watches end, after the events of its objects' deletion.
            over = time.monotonic() >= self._deadline or self._plural in self._cluster.absent
            if not (events or failure or over or asked != self._bookmarks_seen):
                left = self._deadline - time.monotonic()
                self._cluster.changed.wait(max(0.0, min(_LOOK_AROUND_S, left)))
                return True
        if failure:
            self._error(failure)
            return False
        return self._deliver(events, current, asked=asked, over=over)

    def _deliver(self, events: list[Event], current: int, *, asked: int, over: bool) -> bool:
        for event in events:
            line = self._translated(event)
            if line and not self._send(line):
                return False
            self._rv = event.rv
        due = over or asked != self._bookmarks_seen
        self._bookmarks_seen = asked
        if due and self._bookmarks and current >= self._rv:
            self._rv = current
            if not self._send(self._bookmark(current)):
                return False
        if over:
            self._stream.finish()
        return not over

    def _translated(self, event: Event) -> bytes:
        """The line this watch sees of an event, b"" for none: a selector turns changes into comings and goings."""
        namespace = self._target.namespace
        if namespace and event.key[0] != namespace:
            return b""
        event_type = event.type
        if self._match:
            was = event.before is not None and self._match(event.before.obj)
            now = event.type is not EventType.DELETED and self._match(event.stored.obj)
            if not was and not now:
                return b""
            event_type = EventType.DELETED if not now else EventType.MODIFIED if was else EventType.ADDED
        return self._line(event_type, event.stored)

    def _line(self, event_type: EventType, stored: Stored) -> bytes:
        return b'{"type":"' + event_type.encode() + b'","object":' + self._object(stored) + b"}\n"

    def _object(self, stored: Stored) -> bytes:
        newest = self._target.api_version == stored.resource.api_version
        return stored.full if newest else stored.full_as(self._target.api_version)

    def _bookmark(self, rv: int) -> bytes:
        resource = self._target.resource
        head: Obj = {"kind": resource.kind, "apiVersion": self._target.api_version}
        empty: Obj = head | {"metadata": {"resourceVersion": str(rv)}} | dict(resource.empty_fields)
        return msgspec.json.encode({"type": "BOOKMARK", "object": empty}) + b"\n"

    def _send(self, line: bytes) -> bool:
        """False where the stream ended in the middle of the line."""
        if self._faults.take(self._plural, "watch", FaultKind.HALF_LINE, FaultKind.HALF_BODY):
            self._stream.chunk(line[: len(line) // 2])
            self._stream.drop()
            return False
        self._stream.chunk(line)
        return True

    def _error(self, error: ApiError) -> None:
        self._stream.chunk(msgspec.json.encode({"type": "ERROR", "object": error.status()}) + b"\n")
        self._stream.finish()
