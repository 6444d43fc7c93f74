"""Keeps the cache of one resource equal to the cluster, by list and watch or by listing again and again."""

import math
import sys
import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import assert_never

import structlog

from pyconfd.errors import TransientError, first_line
from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.snapshot import Departures, Key, Named, Resource
from pyconfd.model.status import ResourceState
from pyconfd.sources.kubernetes.api_servers import ApiServers, Lease
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.clock import Clock
from pyconfd.sources.kubernetes.cycle import (
    LASTING_WATCH_S,
    Cycle,
    Failed,
    Interrupted,
    List,
    Listed,
    Outcome,
    Pause,
    Watch,
    WatchEnded,
    WatchSilent,
)
from pyconfd.sources.kubernetes.decode import (
    Bookmark,
    Deleted,
    Event,
    ListPage,
    Unknown,
    Unreadable,
    Upserted,
    WatchError,
    decode_event,
    decode_list,
)
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, NOT_READABLE, ApiError, Failure, failure_of_status
from pyconfd.sources.kubernetes.transport import MAX_LIST_BYTES, SilenceError

log = structlog.get_logger(__name__)

WHOLE_LIST_S = 600.0
"""How long all pages of a list may take together; API servers let continue tokens expire after 5 to 10 minutes."""


class _Stage(IntEnum):
    """How far the last attempt came before it failed; only what comes farther proves that all is well again."""

    LIST = 1
    WATCH = 2
    STREAM = 3


class Reflector:
    """One resource, in one namespace or in all; :meth:`run` is the body of a thread."""

    def __init__(
        self,
        scope: Named,
        *,
        path: str,
        params: Mapping[str, str],
        essential: bool = True,
        cluster: str,
        servers: ApiServers,
        cycle: Cycle,
        clock: Clock,
        on_change: Callable[[], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.resource = scope.resource
        self.essential = essential
        self.bug: BaseException | None = None
        self._path = path
        self._params = dict(params)
        self._cluster = cluster
        self._servers = servers
        self._cycle = cycle
        self._clock = clock
        self._on_change = on_change
        self._on_recovered = on_recovered
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._relist_wanted = False
        self._server_back = False
        self._relists_asked = self._relists_done = 0
        self._listed_at: int | None = None
        self._cache = Cache()
        self._synced = False
        self._denied: Failure | None = None
        self._last_sync_at = 0.0
        self._problem = ""
        self._problem_kind: Failure | None = None
        self._problem_stage = _Stage.LIST
        self._progress = False
        self._watch_began_s = math.inf
        """When the watch was opened."""
        self.events_total = 0

    @property
    def synced(self) -> bool:
        """Whether the whole list has come at least once."""
        return self._synced

    @property
    def denied(self) -> Failure | None:
        """Why it cannot be read (FORBIDDEN or NOT_FOUND) until a person changes something; None where it can."""
        return self._denied

    @property
    def settled(self) -> bool:
        """Whether nothing more is to be waited for: all of it is known, or it is denied and others go on without it."""
        return self._synced or (self._denied is not None and not self.essential)

    @property
    def last_sync_at(self) -> float:
        """When a server last confirmed the cache, in seconds since the epoch."""
        return self._last_sync_at

    @property
    def problem_kind(self) -> Failure | None:
        """The kind of the problem at present, or None."""
        return self._problem_kind

    def view(self) -> tuple[int, Mapping[Key, AnyObject]]:
        """Return the version of the cache and an immutable view of it."""
        with self._lock:
            return self._cache.version, self._cache.view()

    @property
    def departures(self) -> Departures:
        """What is about to leave, and left, on purpose."""
        return self._cache.departures

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be read."""
        with self._lock:
            return self._cache.refusals()

    def state(self) -> ResourceState:
        """Return what the status shows."""
        with self._lock:
            return ResourceState(self.resource, self._synced, len(self._cache), self._last_sync_at, self._problem)

    def stop(self) -> None:
        """Let :meth:`run` end; requests in flight are cut off by closing the API servers."""
        self._stopping = True
        self._wake.set()

    def relist(self) -> None:
        """List again soon; a request in flight has to be interrupted as well."""
        self._relists_asked += 1
        self._relist_wanted = True
        self._wake.set()

    def server_is_back(self) -> None:
        """Try again at once, where this one waits for a server that failed: another one had an answer."""
        self._server_back = True
        self._wake.set()

    @property
    def relisted(self) -> bool:
        """Whether a whole list that began after the last :meth:`relist` has come, or none can come that matters."""
        stays = self._denied is not None and not self.essential and (self._synced or self.resource is Resource.SECRETS)
        return stays or self._relists_done == self._relists_asked

    def run(self) -> None:
        """Reflect until :meth:`stop`."""
        try:
            while not self._stopping:
                self._once()
        finally:
            # Whoever asks for a snapshot must learn of a bug here, instead of serving a cache that stands still.
            self.bug = sys.exception()
            if self.bug is not None:
                self._on_change()

    def _once(self) -> None:
        step = self._cycle.step
        match step:
            case Pause():
                self._pause(step)
                self._cycle.passed()
            case List(limit):
                self._cycle.after(self._list(limit))
            case Watch():
                self._cycle.after(self._watch(step))
            case _:
                assert_never(step)

    def _pause(self, step: Pause) -> None:
        ends_s = self._clock.monotonic() + step.delay_s
        while not (self._stopping or self._relist_wanted or (step.until_back and self._server_back)):
            left_s = ends_s - self._clock.monotonic()
            if left_s <= 0.0 or not self._clock.wait(self._wake, left_s):
                return
            self._wake.clear()

    def _list(self, limit: int) -> Outcome:
        self._relist_wanted = self._server_back = False
        asked = self._relists_asked
        lease = None
        try:
            lease = self._servers.lease()
            pages = self._pages(lease, limit)
        except TransientError as error:
            return self._failed(lease, error)
        self._listed_at = lease.index
        self._servers.succeeded(lease)
        with self._lock:
            changed = self._cache.replace(
                (item for page in pages for item in page.items),
                (refusal for page in pages for refusal in page.refusals),
            )
            first, readable = not self._synced, self._denied is not None
            self._synced = True
            self._denied = None
            self._relists_done = asked
            self._last_sync_at = self._clock.time()
            objects = len(self._cache)
        self._came_through(_Stage.LIST)
        if first:
            log.info("resource.synced", resource=self.resource.value, path=self._path, objects=objects)
        if first or changed or readable:
            self._on_change()
        return Listed(pages[0].resource_version)

    def _pages(self, lease: Lease, limit: int) -> list[ListPage]:
        pages: list[ListPage] = []
        token, tokens, total_bytes = "", set[str](), 0
        ends_s = self._clock.monotonic() + WHOLE_LIST_S
        while True:
            params: dict[str, str | int] = dict(self._params)
            if limit:
                params["limit"] = limit
            if token:
                params["continue"] = token
            body = lease.connection.list_page(self._path, params)
            page = decode_list(self.resource, body, self._cluster)
            pages.append(page)
            if not page.continue_token:
                return pages
            total_bytes += len(body)
            if page.continue_token in tokens:
                raise ApiError(Failure.BAD_ANSWER, self._path, "the list has no end: a continue token came twice")
            if total_bytes > MAX_LIST_BYTES or self._clock.monotonic() > ends_s:
                message = f"the list does not end: {len(pages)} pages, {total_bytes} bytes until now"
                raise ApiError(Failure.BAD_ANSWER, self._path, message)
            token = page.continue_token
            tokens.add(token)

    def _watch(self, step: Watch) -> Outcome:
        self._watch_began_s = math.inf
        self._progress = self._server_back = False
        lease = None
        try:
            lease = self._servers.lease()
            if self._relist_wanted or lease.index != self._listed_at:
                return Interrupted(relist=True)
            params: dict[str, str | int] = {
                **self._params,
                "watch": 1,
                "allowWatchBookmarks": "true",
                "resourceVersion": step.resource_version,
                "timeoutSeconds": step.timeout_s,
            }
            with lease.connection.watch(self._path, params) as arrivals:
                self._watch_began_s = self._clock.monotonic()
                self._servers.succeeded(lease)
                self._came_through(_Stage.WATCH)
                for lines in arrivals:
                    for line in lines:
                        self._take(decode_event(self.resource, line, self._cluster))
                    self._servers.succeeded(lease)
        except SilenceError:
            return WatchSilent(self._progress)
        except TransientError as error:
            return self._failed(lease, error)
        self._lasted()
        return WatchEnded(self._progress, self._clock.monotonic() - self._watch_began_s)

    def _take(self, event: Event) -> None:
        if isinstance(event, WatchError):
            raise _BrokenWatchError(failure_of_status(event.code), self._path, f"ERROR {event.code}: {event.message}")
        self._progress = True
        self._lasted()
        if not isinstance(event, Bookmark | Unknown):
            self.events_total += 1
        with self._lock:
            changed = self._cache.apply(event)
            self._last_sync_at = self._clock.time()
        match event:
            case Upserted(record):
                self._cycle.advance(record.metadata.resource_version)
            case Bookmark(resource_version) | Deleted(_, resource_version) | Unreadable(_, _, resource_version):
                self._cycle.advance(resource_version)
            case Unknown(type_):
                log.debug("watch_event.ignored", resource=self.resource.value, type=type_)
            case _:
                assert_never(event)
        if changed:
            self._on_change()

    def _failed(self, lease: Lease | None, error: TransientError) -> Outcome:
        failure = error if isinstance(error, ApiError) else _broken(self._path, error)
        if failure.kind is Failure.INTERRUPTED:
            moved = self._servers.current != self._listed_at
            return Interrupted(relist=self._relist_wanted or moved)
        moved = self._servers.failed(lease, failure) if lease is not None else False
        is_watch = isinstance(self._cycle.step, Watch)
        lasted_s = self._clock.monotonic() - self._watch_began_s if is_watch else 0.0
        broken = isinstance(failure, _BrokenWatchError)
        if failure.kind is not Failure.EXPIRED:
            stage = (_Stage.STREAM if broken else _Stage.WATCH) if is_watch else _Stage.LIST
            self._show_problem(failure, stage)
        return Failed(failure.kind, failure.retry_after_s, moved=moved, broken=broken, lasted_s=lasted_s)

    def _show_problem(self, failure: ApiError, stage: _Stage) -> None:
        message = first_line(failure.problems)
        self._problem_stage = stage
        if stage is not _Stage.LIST and failure.kind is Failure.FORBIDDEN:
            message = f"watching is denied, so changes come late, by listing again and again: {message}"
        news = failure.kind is not self._problem_kind
        self._problem_kind = failure.kind
        denied = failure.kind if stage is _Stage.LIST and failure.kind in NOT_READABLE else self._denied
        is_new, self._denied = denied is not self._denied, denied
        with self._lock:
            self._problem = message
        if is_new and not self.essential:
            self._on_change()
        if news:
            # What concerns the whole server was said with its name, once for all resources.
            say = log.debug if failure.kind in NEXT_SERVER else log.warning
            say("resource.failed", resource=self.resource.value, kind=failure.kind.value, error=message)

    def _lasted(self) -> None:
        # A stream that breaks after each first event is not well, nor are the others to be woken by it.
        if self._clock.monotonic() - self._watch_began_s >= LASTING_WATCH_S:
            self._came_through(_Stage.STREAM)

    def _came_through(self, stage: _Stage) -> None:
        if self._problem_kind is None or stage < self._problem_stage:
            return
        of_the_server = self._problem_kind in NEXT_SERVER
        say = log.debug if of_the_server else log.info
        self._problem_kind = None
        with self._lock:
            self._problem = ""
        say("resource.recovered", resource=self.resource.value)
        if of_the_server:
            self._on_recovered()


class _BrokenWatchError(ApiError):
    """The stream itself said or showed that it cannot be continued from where it is."""


def _broken(path: str, error: TransientError) -> ApiError:
    problem = error.problems[0]
    return _BrokenWatchError(Failure.BAD_ANSWER, f"{problem.place} {path}", problem.message)
