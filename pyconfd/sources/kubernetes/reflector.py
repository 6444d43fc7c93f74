"""Keeps the cache of one resource equal to the cluster, by list and watch or by listing again and again.

As client-go's Reflector, with what that leaves to the server: a watch that is silent, ends at once or sends nonsense
never becomes a busy loop, and never a cache that stands still unnoticed. :class:`ListWatchPolicy` decides what follows
each list and watch; :class:`Reflector` does it, in a thread of its own.
"""

import math
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from random import Random
from typing import NamedTuple

import structlog

from pyconfd.errors import first_line
from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.snapshot import Key, Resource, Terminating
from pyconfd.model.status import ResourceState
from pyconfd.settings import KubernetesSettings, ReadMode
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.client import MAX_LIST_BYTES, ApiServers, Connection, SilenceError
from pyconfd.sources.kubernetes.decode import (
    Bookmark,
    Deleted,
    Event,
    ListPage,
    Upserted,
    decode_event,
    decode_list,
)
from pyconfd.sources.kubernetes.failures import (
    NEXT_SERVER,
    NOT_READABLE,
    OF_ALL,
    ApiError,
    BrokenWatchError,
    Denials,
    Failure,
)
from pyconfd.sources.kubernetes.kept import Keeper
from pyconfd.sources.kubernetes.resources import ResourceRead
from pyconfd.system.backoff import Backoff
from pyconfd.system.clock import SystemClock

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 30.0
CREDENTIALS_MAX_S = 5.0
"""Whether a file is there costs no request, and the operator who has just put it there is waiting."""
RETRY_AFTER_MAX_S = 300.0
"""A server that asks for more is asked again after this time all the same."""
WATCH_MIN_S = 240.0
WATCH_MAX_S = 480.0
"""The server is asked to end each watch after a random time between the two: many balancers come back spread out."""
LASTING_WATCH_S = 5.0
"""A watch that ends sooner than this is a failure, whatever it brought, else it would be a busy loop."""
SILENCES_BEFORE_LIST = 2
SHORT_WATCHES_BEFORE_LIST = 4
WHOLE_LIST_S = 600.0
"""How long all pages of a list may take together; API servers let continue tokens expire after 5 to 10 minutes."""

_NEW_DEFINITION = "storage is (re)initializing"
"""What the API server answers with HTTP 429 for a moment after a definition was installed."""
_OF_DEFINITION = frozenset({Failure.SERVER_ERROR, Failure.TIMEOUT})

log = structlog.get_logger(__name__)


class Verb(Enum):
    """What a reflector can request next."""

    LIST = "list"
    LIST_UNPAGED = "list_unpaged"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Followup:
    """A request after a pause; with ``until_back`` it ends when an API server answers another reflector again."""

    verb: Verb
    delay_s: float = 0.0
    until_back: bool = False


class ListWatchPolicy:
    """What follows from each end of a list or a watch. Pure: it neither waits nor sends."""

    def __init__(self, settings: KubernetesSettings, *, servers: int, jitter: Random) -> None:
        self._mode = settings.mode
        self._interval_s = settings.interval_s
        self._servers = servers
        self._list_backoff = Backoff(first_s=BACKOFF_FIRST_S, last_s=BACKOFF_LAST_S, jitter=jitter)
        self._watch_backoff = Backoff(first_s=BACKOFF_FIRST_S, last_s=BACKOFF_LAST_S, jitter=jitter)
        self._list_failures = self._watch_failures = self._watch_denials = self._silences = 0

    def look_soon(self) -> None:
        """Begin again with short pauses between lists that fail."""
        self._list_backoff.reset()

    def listed(self) -> Followup:
        """Return what follows a whole list."""
        self._list_failures = 0
        self._list_backoff.reset()
        return Followup(Verb.WATCH) if self._mode is ReadMode.WATCH else Followup(Verb.LIST, self._interval_s)

    def list_failed(self, failure: ApiError, *, moved: bool, unpaged: bool = False) -> Followup:
        """Return what follows a list that failed; ``moved``: another API server is in use now."""
        if failure.kind is Failure.EXPIRED and not unpaged:
            return Followup(Verb.LIST_UNPAGED)  # the continue token expired: pages would come too late again
        self._list_failures += 1
        delay_s = self._list_backoff.delay_s()
        if moved and self._list_failures % self._servers:
            return Followup(Verb.LIST)  # each server once before the first pause
        if failure.kind is Failure.NOT_FOUND:
            return Followup(Verb.LIST, delay_s, until_back=True)
        if failure.kind is Failure.CREDENTIALS:
            delay_s = min(delay_s, CREDENTIALS_MAX_S)
        return _after_pause(Verb.LIST, delay_s, failure)

    def watch_ended(self, *, progress: bool, lasted_s: float) -> Followup:
        """Return what follows a watch that the server ended; ``progress``: an event or a bookmark had come."""
        if progress:
            self._silences = 0
        if lasted_s >= LASTING_WATCH_S:
            self._watch_works()
            return Followup(Verb.WATCH)
        delay_s = self._watch_fails(lasted_s)
        relist = not progress and self._watch_failures >= SHORT_WATCHES_BEFORE_LIST
        return Followup(Verb.LIST if relist else Verb.WATCH, delay_s)

    def watch_silent(self, *, progress: bool) -> Followup:
        """Return what follows a watch that sent nothing for the read time limit."""
        self._watch_works()
        # Silence is normal: connect again, and list no more than needed. But a resourceVersion from the future (etcd
        # was restored from a backup) is answered by silence for ever, and only a list helps.
        self._silences = 0 if progress else self._silences + 1
        if self._silences >= SILENCES_BEFORE_LIST:
            self._silences = 0
            return Followup(Verb.LIST)
        return Followup(Verb.WATCH)

    def watch_failed(self, failure: ApiError, *, moved: bool, lasted_s: float = 0.0) -> Followup:
        """Return what follows a watch that failed after ``lasted_s``."""
        delay_s = self._watch_fails(lasted_s)
        self._watch_denials = self._watch_denials + 1 if failure.kind is Failure.FORBIDDEN else 0
        if failure.kind is Failure.FORBIDDEN and not moved:
            if self._watch_denials == 1:
                return Followup(Verb.WATCH, delay_s)  # an API server that starts does not know all Roles yet
            # Listing is allowed: poll, and try the watch again after each list.
            return Followup(Verb.LIST, self._interval_s)
        expired_first = failure.kind is Failure.EXPIRED and self._watch_failures == 1
        if expired_first or (moved and self._watch_failures % self._servers):
            return Followup(Verb.LIST)
        # Another server may be older than the resourceVersion, and a broken stream may have lost events.
        relist = moved or isinstance(failure, BrokenWatchError)
        relist = relist or failure.kind in {Failure.EXPIRED, Failure.NOT_FOUND, Failure.REFUSED}
        return _after_pause(Verb.LIST if relist else Verb.WATCH, delay_s, failure)

    def _watch_works(self) -> None:
        self._watch_failures = self._watch_denials = 0
        self._watch_backoff.reset()

    def _watch_fails(self, lasted_s: float) -> float:
        if lasted_s >= LASTING_WATCH_S:
            self._watch_works()
        self._watch_failures += 1
        return self._watch_backoff.delay_s()


def _after_pause(verb: Verb, delay_s: float, failure: ApiError) -> Followup:
    if failure.retry_after_s is not None:
        return Followup(verb, max(delay_s, min(failure.retry_after_s, RETRY_AFTER_MAX_S)))
    return Followup(verb, delay_s, until_back=failure.kind in OF_ALL)


class _Reached(IntEnum):
    """How far an attempt came before it failed; only one that comes farther proves that all is well again."""

    LIST = 1
    WATCH = 2
    STREAM = 3


class _Problem(NamedTuple):
    kind: Failure
    stage: _Reached
    message: str


class Reflector:
    """The list and watch of one :class:`Read`; :meth:`run` is the body of a thread.

    ``on_change`` is called when the cache, or what is known of it, has changed; ``on_recovered`` when the API server
    answers again after a failure of the server, or serves an API that it did not.
    """

    def __init__(
        self,
        read: ResourceRead,
        settings: KubernetesSettings,
        servers: ApiServers,
        clock: SystemClock,
        *,
        jitter: Random,
        on_change: Callable[[], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self.read = read
        self.synced = False
        """Whether the whole list has come at least once."""
        self.denied: Failure | None = None
        """Why it cannot be read (FORBIDDEN or NOT_FOUND) until an operator changes something; None where it can."""
        self.absent = False
        """Whether the cluster does not serve this optional API; objects that were read before stay."""
        self.last_sync_at = 0.0
        """When a server last confirmed the cache, in seconds since the epoch."""
        self.events_total = 0
        self.bug: BaseException | None = None
        """What :meth:`run` died of."""
        self._settings = settings
        self._servers = servers
        self._clock = clock
        self._jitter = jitter
        self._on_change = on_change
        self._on_recovered = on_recovered
        self._policy = ListWatchPolicy(settings, servers=len(servers), jitter=jitter)
        self._next = Followup(Verb.LIST)
        self._lock = threading.Lock()
        self._cache = Cache()
        self._keeper = Keeper(read.scope)
        self._resource_version = ""
        self._listed_at: int | None = None
        """The API server of the last list: resourceVersions of one are not continued at another."""
        self._problem: _Problem | None = None
        self._denials = Denials()
        self._wake = threading.Event()
        self._stopping = False
        self._server_back = False
        self._relists_wanted = self._relists_begun = self._relists_done = 0
        self._progress = False
        self._watch_began_s = math.inf

    @property
    def settled(self) -> bool:
        """Whether nothing more is to be waited for: all of it is known, or others go on without it."""
        return self.synced or self.absent or (self.denied is not None and not self.read.essential)

    @property
    def problem_kind(self) -> Failure | None:
        """The kind of the problem at present, or None."""
        return self._problem.kind if self._problem is not None else None

    @property
    def terminating(self) -> Terminating:
        """The addresses that are about to leave, or left, on purpose."""
        return self._cache.terminating

    @property
    def relisted(self) -> bool:
        """Whether a whole list that began after the last :meth:`relist` has come, or none can come that matters."""
        if self.absent:
            return True
        others_go_on = self.denied is not None and not self.read.essential
        if others_go_on and (self.synced or self.read.scope.resource is Resource.SECRETS):
            return True
        return self._relists_done == self._relists_wanted

    def view(self) -> tuple[int, Mapping[Key, AnyObject]]:
        """Return the version of the cache and an immutable view of it."""
        with self._lock:
            return self._cache.version, self._cache.view()

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        with self._lock:
            return self._cache.refusals()

    def state(self) -> ResourceState:
        """Return what the status shows."""
        problem = self._problem.message if self._problem is not None else ""
        with self._lock:
            return ResourceState(
                self.read.scope.resource,
                self.synced,
                len(self._cache),
                self.last_sync_at,
                problem,
                served=not self.absent,
            )

    def stop(self) -> None:
        """End :meth:`run`; requests in flight are cut off by closing the API servers."""
        self._stopping = True
        self._wake.set()

    def relist(self) -> None:
        """List again soon; a request in flight has to be interrupted as well."""
        self._relists_wanted += 1
        self._wake.set()

    def server_is_back(self) -> None:
        """Try again at once, where this one waits for a server or an API: it has answered another reflector."""
        self._server_back = True
        self._wake.set()

    def run(self) -> None:
        """Reflect until :meth:`stop`."""
        try:
            while not self._stopping:
                self.step()
        finally:
            # KubernetesSource.snapshot() raises it: without this thread the cache would stand still unnoticed.
            self.bug = sys.exception()
            if self.bug is not None:
                self._on_change()

    def step(self) -> None:
        """Wait for the next list or watch, and do it."""
        step = self._next
        self._pause(step)
        if self._stopping:
            return
        self._next = self._watch() if step.verb is Verb.WATCH else self._list(step.verb)

    def _pause(self, step: Followup) -> None:
        ends_s = self._clock.monotonic() + step.delay_s
        while not (self._stopping or self._relist_pending or (step.until_back and self._server_back)):
            left_s = ends_s - self._clock.monotonic()
            if left_s <= 0.0 or not self._clock.wait(self._wake, left_s):
                return
            self._wake.clear()

    @property
    def _relist_pending(self) -> bool:
        return self._relists_begun != self._relists_wanted

    def _list(self, verb: Verb) -> Followup:
        self._relists_begun = self._relists_wanted
        if self._server_back and self.absent:
            # Definitions that are installed together are served one after the other.
            self._policy.look_soon()
        self._server_back = False
        connection = None
        try:
            connection = self._servers.connection()
            keeper = Keeper(self.read.scope)
            pages = self._pages(connection, keeper, paged=verb is not Verb.LIST_UNPAGED)
        except ApiError as failure:
            return self._failed(verb, connection, failure)
        self._listed_at, self._keeper = connection.index, keeper
        self._resource_version = pages[0].resource_version
        self._servers.succeeded(connection.index)
        with self._lock:
            changed = self._cache.replace(
                (item for page in pages for item in page.items),
                (refusal for page in pages for refusal in page.refusals),
            )
            first, was_denied, was_absent = not self.synced, self.denied is not None, self.absent
            self.synced, self.denied, self.absent = True, None, False
            self.last_sync_at = self._clock.now()
            objects = len(self._cache)
        self._relists_done = self._relists_begun
        self._succeeded(_Reached.LIST)
        if first or was_absent:
            log.info("resource.synced", resource=self.read.scope.resource.value, path=self.read.path, objects=objects)
        if first or changed or was_denied:
            self._on_change()
        if was_absent:
            self._on_recovered()  # a group of definitions is installed at once: look for the others too
        return self._policy.listed()

    def _pages(self, connection: Connection, keeper: Keeper, *, paged: bool) -> list[ListPage]:
        pages: list[ListPage] = []
        token, tokens, total_bytes = "", set[str](), 0
        ends_s = self._clock.monotonic() + WHOLE_LIST_S
        while True:
            params: dict[str, str | int] = dict(self.read.params)
            if paged:
                params["limit"] = self.read.page_size(self._settings.page_size)
            if token:
                params["continue"] = token
            body = connection.list_page(self.read.path, params)
            page = decode_list(self.read.scope.resource, body, self._settings.cluster)
            pages.append(page._replace(items=tuple(map(keeper.kept, page.items))))
            if not page.continue_token:
                return pages
            total_bytes += len(body)
            if page.continue_token in tokens:
                message = "the list has no end: a continue token came twice"
                raise ApiError(Failure.BAD_ANSWER, self.read.path, message)
            if total_bytes > MAX_LIST_BYTES or self._clock.monotonic() > ends_s:
                message = f"the list does not end: {len(pages)} pages, {total_bytes} bytes until now"
                raise ApiError(Failure.BAD_ANSWER, self.read.path, message)
            token = page.continue_token
            tokens.add(token)

    def _watch(self) -> Followup:
        self._watch_began_s = math.inf
        self._progress = self._server_back = False
        connection = None
        try:
            connection = self._servers.connection()
            if self._relist_pending or connection.index != self._listed_at:
                return Followup(Verb.LIST)
            ends_after_s = round(self._jitter.uniform(WATCH_MIN_S, WATCH_MAX_S))
            params = self.read.watch_params(self._resource_version, ends_after_s)
            with connection.watch(self.read.path, params) as arrivals:
                self._watch_began_s = self._clock.monotonic()
                self._servers.succeeded(connection.index)
                self._succeeded(_Reached.WATCH)
                for lines in arrivals:
                    for line in lines:
                        self._take(decode_event(self.read.scope.resource, line, self._settings.cluster))
                    self._servers.succeeded(connection.index)
        except SilenceError:
            return self._policy.watch_silent(progress=self._progress)
        except ApiError as failure:
            return self._failed(Verb.WATCH, connection, failure)
        self._check_lasting()
        return self._policy.watch_ended(progress=self._progress, lasted_s=self._watched_s)

    @property
    def _watched_s(self) -> float:
        return self._clock.monotonic() - self._watch_began_s

    def _take(self, event: Event) -> None:
        self._progress = True
        self._check_lasting()
        if not isinstance(event, Bookmark):
            self.events_total += 1
        if isinstance(event, Upserted):
            event = Upserted(self._keeper.kept(event.record))
        elif isinstance(event, Deleted):
            self._keeper.dropped(event.key)
        with self._lock:
            changed = self._cache.apply(event)
            self.last_sync_at = self._clock.now()
        self._resource_version = event.resource_version or self._resource_version
        if changed:
            self._on_change()

    def _failed(self, verb: Verb, connection: Connection | None, failure: ApiError) -> Followup:
        is_watch = verb is Verb.WATCH
        if failure.kind is Failure.INTERRUPTED:
            relist = self._relist_pending or self._servers.current != self._listed_at
            return Followup(Verb.WATCH if is_watch and not relist else Verb.LIST)
        moved = False
        if connection is not None and not self._is_its_own(failure):
            moved = self._servers.failed(connection.index, failure)
        lasted_s = self._watched_s
        if failure.kind is Failure.NOT_FOUND and self.read.optional:
            self._record_absence(is_watch=is_watch)
        elif failure.kind is Failure.THROTTLED and _NEW_DEFINITION in first_line(failure.problems):
            log.debug("resource.not_ready", resource=self.read.scope.resource.value)
        elif failure.kind is not Failure.EXPIRED:  # the server compacted its history: no problem, but a reason to list
            broken = isinstance(failure, BrokenWatchError)
            stage = (_Reached.STREAM if broken else _Reached.WATCH) if is_watch else _Reached.LIST
            if not self._denials.is_first(failure, is_watch):
                self._record_problem(failure, stage)
        if is_watch:
            return self._policy.watch_failed(failure, moved=moved, lasted_s=lasted_s)
        return self._policy.list_failed(failure, moved=moved, unpaged=verb is Verb.LIST_UNPAGED)

    def _is_its_own(self, failure: ApiError) -> bool:
        """Return whether a failure says something of this resource only.

        Its definition may name a webhook for conversion that does not answer. If the server itself fails, what is
        essential fails too, and that decides which server is used.
        """
        return self.read.optional and failure.kind in _OF_DEFINITION

    def _record_absence(self, *, is_watch: bool) -> None:
        # A watch that is not found is followed by a list: what that says counts.
        if is_watch or self.absent:
            return
        self._problem = self.denied = None
        self.absent = True
        self._on_change()

    def _record_problem(self, failure: ApiError, stage: _Reached) -> None:
        message = first_line(failure.problems)
        if stage is not _Reached.LIST and failure.kind is Failure.FORBIDDEN:
            # Without this, a cache that is only polled would look healthy.
            message = f"watching is denied, so changes come late, by listing again and again: {message}"
        is_news = failure.kind is not self.problem_kind
        self._problem = _Problem(failure.kind, stage, message)
        if stage is _Reached.LIST and failure.kind in NOT_READABLE and failure.kind is not self.denied:
            self.denied, self.absent = failure.kind, False
            if not self.read.essential:
                self._on_change()
        if is_news:
            # Failures of the whole server are logged once for all resources, with its name.
            logged_with_server = failure.kind in NEXT_SERVER and not self._is_its_own(failure)
            write = log.debug if logged_with_server else log.warning
            resource = self.read.scope.resource.value
            write("resource.failed", resource=resource, kind=failure.kind.value, error=message)

    def _check_lasting(self) -> None:
        # A stream that breaks after each first event is not well, and must not wake the other reflectors.
        if self._watched_s >= LASTING_WATCH_S:
            self._succeeded(_Reached.STREAM)

    def _succeeded(self, stage: _Reached) -> None:
        self._denials.allowed(stage is not _Reached.LIST)
        if self._problem is None or stage < self._problem.stage:
            return
        kind, self._problem = self._problem.kind, None
        write = log.debug if kind in NEXT_SERVER else log.info
        write("resource.recovered", resource=self.read.scope.resource.value)
        if kind in OF_ALL:
            self._on_recovered()
