"""What can be wrong with an API server, set while it runs."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, auto

LISTS = "list"
WATCHES = "watch"


class FaultKind(StrEnum):
    """The ways to fail; the first five meet a request, the others a list or a running watch."""

    HANG = auto()
    """Read the request, never answer."""
    STATUS = auto()
    """Answer with ``code`` and a Status."""
    HTML = auto()
    """200 with a web page."""
    HALF_BODY = auto()
    """200, half of the body, then the connection closes. On a watch: as HALF_LINE."""
    HOLD = auto()
    """Wait until the fault is removed, then answer as if nothing had been."""
    EMPTY_LIST = auto()
    """A good list without items."""
    HALF_LINE = auto()
    """A watch writes half of its next event, then its connection closes."""
    SILENCE = auto()
    """A watch stays open and says nothing; what it missed follows when the fault is removed."""
    WATCH_ERROR = auto()
    """Running and new watches get an ERROR event with ``code`` and end."""


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """``resource`` and ``verb`` "" mean all; ``times`` None means until removed.

    Verbs are get, list, watch, create, update, patch and delete; discovery documents count as resource "discovery".
    """

    kind: FaultKind
    resource: str = ""
    verb: str = ""
    times: int | None = None
    code: int = 500
    retry_after_s: int | None = None
    message: str = ""
    """The words of the answer, where they are not the usual ones for the code."""

    def concerns(self, resource: str, verb: str) -> bool:
        """Whether a request of this resource and verb meets the fault."""
        return self.resource in {"", resource} and self.verb in {"", verb}


class Faults:
    """The faults of one server. Thread-safe; ``notify`` is called after each change, to wake running watches."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._met: dict[Fault, int] = {}

    def add(self, fault: Fault) -> Fault:
        """Return it, to ``remove`` it later."""
        with self._lock:
            self._faults.append(fault)
        self._notify()
        return fault

    def remove(self, fault: Fault) -> None:
        """Nothing happens where it is gone already."""
        with self._lock:
            if fault in self._faults:
                self._faults.remove(fault)
        self._notify()

    def clear(self) -> None:
        """Remove all."""
        with self._lock:
            self._faults.clear()
        self._notify()

    def active(self, fault: Fault) -> bool:
        """Whether the fault is still set."""
        with self._lock:
            return fault in self._faults

    def find(self, resource: str, verb: str, *kinds: FaultKind) -> Fault | None:
        """The first fault of these kinds that concerns the request; it is not used up."""
        with self._lock:
            return next((f for f in self._faults if f.kind in kinds and f.concerns(resource, verb)), None)

    def take(self, resource: str, verb: str, *kinds: FaultKind) -> Fault | None:
        """As ``find``, and it counts as met: after ``times`` it is gone."""
        with self._lock:
            found = next((f for f in self._faults if f.kind in kinds and f.concerns(resource, verb)), None)
            if found:
                self._met[found] = self._met.get(found, 0) + 1
                if found.times is not None and self._met[found] >= found.times:
                    self._faults.remove(found)
            return found

    # Each of these adds one fault and gives it back.

    def hang(self, resource: str = "", verb: str = "", times: int | None = None) -> Fault:
        """Requests are read and never answered."""
        return self.add(Fault(FaultKind.HANG, resource, verb, times))

    def answer(
        self,
        code: int,
        resource: str = "",
        verb: str = "",
        *,
        retry_after_s: int | None = None,
        times: int | None = None,
    ) -> Fault:
        """Every request gets this error; 401 and 403 are worded as the real server words them."""
        return self.add(Fault(FaultKind.STATUS, resource, verb, times, code=code, retry_after_s=retry_after_s))

    def throttle(self, resource: str, message: str, times: int | None = None) -> Fault:
        """Requests get a 429 with this message and a Retry-After of one second."""
        fault = Fault(FaultKind.STATUS, resource, "", times, code=429, retry_after_s=1, message=message)
        return self.add(fault)

    def deny(self, resource: str, verb: str = "", code: int = 403) -> Fault:
        """RBAC: ``deny("endpointslices", "watch")`` leaves list allowed."""
        return self.answer(code, resource, verb)

    def html(self, resource: str = "", verb: str = "", times: int | None = None) -> Fault:
        """A captive portal answers instead."""
        return self.add(Fault(FaultKind.HTML, resource, verb, times))

    def half_body(self, resource: str = "", verb: str = LISTS, times: int | None = None) -> Fault:
        """200 and half of the body."""
        return self.add(Fault(FaultKind.HALF_BODY, resource, verb, times))

    def hold(self, resource: str, verb: str = LISTS) -> Fault:
        """Requests wait until ``remove`` (or ``clear``)."""
        return self.add(Fault(FaultKind.HOLD, resource, verb))

    def empty_list(self, resource: str = "", times: int | None = 1) -> Fault:
        """Lists come back empty, once unless ``times`` says otherwise."""
        return self.add(Fault(FaultKind.EMPTY_LIST, resource, LISTS, times))

    def half_line(self, resource: str = "", times: int | None = None) -> Fault:
        """Half of an event, then the connection closes."""
        return self.add(Fault(FaultKind.HALF_LINE, resource, WATCHES, times))

    def silence(self, resource: str = "") -> Fault:
        """Watches say nothing and stay open."""
        return self.add(Fault(FaultKind.SILENCE, resource, WATCHES))

    def watch_error(self, code: int = 410, resource: str = "", times: int | None = 1) -> Fault:
        """Watches get an ERROR event (410 or 500) and end; each watch that ends counts once."""
        return self.add(Fault(FaultKind.WATCH_ERROR, resource, WATCHES, times, code=code))
