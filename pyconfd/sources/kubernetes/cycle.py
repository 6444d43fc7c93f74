"""What a reflector does next, decided from what just happened; nothing here waits or talks to anybody."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from pyconfd.settings import ReadMode
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, Failure

BACKOFF_MIN_S = 0.5
BACKOFF_MAX_S = 30.0
CREDENTIALS_MAX_S = 5.0
"""To look again whether a file is there asks nobody else, and who has just put it there is waiting."""
RETRY_AFTER_MAX_S = 300.0
"""A server that asks for more is asked again after this time all the same."""
WATCH_MIN_S = 240.0
WATCH_MAX_S = 480.0
LASTING_WATCH_S = 5.0
"""A watch that ends sooner than this is a failure, whatever it brought, else it would be a busy loop."""
SILENCES_BEFORE_LIST = 2
SHORT_WATCHES_BEFORE_LIST = 4

Uniform = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class List:
    """List everything, ``limit`` objects to a page; 0 asks for all at once."""

    limit: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch from a resourceVersion; the server is asked to end the watch after ``timeout_s``."""

    resource_version: str
    timeout_s: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, then do what is next; ``until_back``: sooner, if the API servers answer somebody again meanwhile."""

    delay_s: float
    then: List | Watch
    until_back: bool = False


Step = List | Watch | Pause


@dataclass(frozen=True, slots=True)
class Listed:
    """The whole list came."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The server ended the watch, or the connection broke; ``progress``: an event or a bookmark had come."""

    progress: bool
    lasted_s: float


@dataclass(frozen=True, slots=True)
class WatchSilent:
    """Nothing came for the read time limit."""

    progress: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed; ``moved``: another API server is in use now.

    ``broken``: it was the content that was wrong, so what was read so far cannot be continued from. ``lasted_s``: how
    long a watch had gone well before.
    """

    kind: Failure
    retry_after_s: float | None = None
    moved: bool = False
    broken: bool = False
    lasted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Somebody cut the request off; ``relist``: the API server changed, or a new list was asked for."""

    relist: bool


Outcome = Listed | WatchEnded | WatchSilent | Failed | Interrupted


def backoff_s(failures: int, retry_after_s: float | None, uniform: Uniform) -> float:
    """Return the pause after so many failures in a row: 0.5 s doubled each time up to 30 s, with jitter."""
    full = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(failures, 16))
    delay_s = max(BACKOFF_MIN_S, uniform(full / 2, full))
    return max(delay_s, min(retry_after_s or 0.0, RETRY_AFTER_MAX_S))


class Cycle:
    """The state machine of one resource: list, watch, and what follows from each end of either.

    ``step`` is what to do now; :meth:`after` takes what came of it.
    """

    def __init__(self, *, mode: ReadMode, interval_s: float, page_size: int, servers: int, uniform: Uniform) -> None:
        self._mode = mode
        self._interval_s = interval_s
        self._page_size = page_size
        self._servers = servers
        self._uniform = uniform
        self._list_failures = 0
        self._watch_failures = 0
        self._silences = 0
        self._resource_version = ""
        self.step: Step = List(page_size)

    @property
    def resource_version(self) -> str:
        """Where the next watch begins; "" before the first list."""
        return self._resource_version

    def advance(self, resource_version: str) -> None:
        """Note the resourceVersion of an event or bookmark: the watch makes progress."""
        if resource_version:
            self._resource_version = resource_version
        self._silences = 0

    def passed(self) -> Step:
        """Return the step that follows a pause which is over."""
        if isinstance(self.step, Pause):
            self.step = self.step.then
        return self.step

    def after(self, outcome: Outcome) -> Step:
        """Return the next step, and remember it as :attr:`step`."""
        match outcome:
            case Listed(resource_version):
                self._resource_version = resource_version
                self._list_failures = 0
                self.step = self._watch() if self._mode is ReadMode.WATCH else Pause(self._interval_s, self._list())
            case WatchEnded(progress, lasted_s):
                self.step = self._after_end(progress=progress, lasted_s=lasted_s)
            case WatchSilent(progress):
                self._watch_failures = 0
                self.step = self._after_silence(progress=progress)
            case Interrupted(relist):
                self.step = self._again(relist=relist)
            case Failed():
                self.step = (
                    self._after_list_failure(outcome) if self._is_listing else self._after_watch_failure(outcome)
                )
            case _:
                assert_never(outcome)
        return self.step

    @property
    def _is_listing(self) -> bool:
        step = self.step.then if isinstance(self.step, Pause) else self.step
        return isinstance(step, List)

    def _list(self) -> List:
        return List(self._page_size)

    def _watch(self) -> Watch:
        return Watch(self._resource_version, round(self._uniform(WATCH_MIN_S, WATCH_MAX_S)))

    def _again(self, *, relist: bool) -> List | Watch:
        return self._list() if relist or self._is_listing else self._watch()

    def _after_end(self, *, progress: bool, lasted_s: float) -> Step:
        if lasted_s >= LASTING_WATCH_S:
            self._watch_failures = 0
            return self._watch()
        self._watch_failures += 1
        relist = not progress and self._watch_failures >= SHORT_WATCHES_BEFORE_LIST
        again = self._list() if relist else self._watch()
        return Pause(backoff_s(self._watch_failures, None, self._uniform), again)

    def _after_silence(self, *, progress: bool) -> Step:
        # A resourceVersion from the future (a restored etcd) is answered by silence for ever; only a list helps.
        self._silences = 0 if progress else self._silences + 1
        if self._silences >= SILENCES_BEFORE_LIST:
            self._silences = 0
            return self._list()
        return self._watch()

    def _after_list_failure(self, failed: Failed) -> Step:
        if failed.kind is Failure.EXPIRED and self.step != List(0):
            return List(0)
        self._list_failures += 1
        if failed.moved and self._list_failures % self._servers:
            return self._list()
        pause_s = backoff_s(self._list_failures, failed.retry_after_s, self._uniform)
        if failed.kind is Failure.CREDENTIALS:
            pause_s = min(pause_s, CREDENTIALS_MAX_S)
        return Pause(pause_s, self._list(), _until_back(failed))

    def _after_watch_failure(self, failed: Failed) -> Step:
        self._watch_failures = 1 if failed.lasted_s >= LASTING_WATCH_S else self._watch_failures + 1
        if failed.kind is Failure.FORBIDDEN and not failed.moved:
            # Listing is allowed: poll, and try the watch again after each list.
            return Pause(self._interval_s, self._list())
        first = self._watch_failures == 1
        if (failed.kind is Failure.EXPIRED and first) or (failed.moved and self._watch_failures % self._servers):
            return self._list()
        relist = failed.moved or failed.broken or failed.kind in {Failure.EXPIRED, Failure.NOT_FOUND, Failure.REFUSED}
        again = self._list() if relist else self._watch()
        pause_s = backoff_s(self._watch_failures, failed.retry_after_s, self._uniform)
        return Pause(pause_s, again, _until_back(failed))


def _until_back(failed: Failed) -> bool:
    """Return whether it was the server that failed, without a word of how long to wait."""
    return failed.kind in NEXT_SERVER and failed.retry_after_s is None
