"""What each node's kernel said of its addresses and its link, and when: evidence that no program under test gives."""

import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Event:
    """At ``at`` (seconds since the epoch) ``node`` got ``value`` for ``key``: an address, ``link``, or ``segment``."""

    at: float
    node: str
    key: str
    value: str


def parsed(line: str) -> tuple[float, str, str] | None:
    """Return time, key and value of a line of ``ip -ts -o monitor``; None for what does not matter."""
    stamp, _, rest = line.rpartition("] ")
    words = rest.split()
    if not stamp or not words:
        return None
    at = datetime.fromisoformat(stamp.rpartition("[")[2]).timestamp()
    gone = words[0] == "Deleted"
    words = words[1:] if gone else words
    if len(words) > 3 and words[2] in {"inet", "inet6"}:
        return at, words[3].partition("/")[0], "" if gone else "here"
    if len(words) > 2 and words[2].startswith("<"):
        return at, "link", "" if gone or "NO-CARRIER" in words[2] else "up"
    return None


class Observer:
    """Watches the nodes of a bed from outside."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._watching: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []

    @property
    def pids(self) -> set[int]:
        """Return the processes that watch: they are in the nodes' namespaces, and belong to no node."""
        return {process.pid for process in self._watching}

    def watch(self, node: str, space: str) -> None:
        """Begin with a node that has no addresses yet."""
        self.note(node, "link", "up")
        self.note(node, "segment", "all")
        argv = ["ip", "-n", space, "-ts", "-o", "monitor", "link", "address", "dev", "eth0"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(argv, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True)
        thread = threading.Thread(target=self._read, args=(node, process), daemon=True)
        self._watching.append(process)
        self._threads.append(thread)
        thread.start()

    def note(self, node: str, key: str, value: str) -> None:
        """Add what the test itself did."""
        with self._lock:
            self._events.append(Event(time.time(), node, key, value))

    def _read(self, node: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            found = parsed(line)
            if found is not None:
                with self._lock:
                    self._events.append(Event(found[0], node, *found[1:]))

    def events(self) -> Sequence[Event]:
        with self._lock:
            return sorted(self._events, key=lambda event: event.at)

    def holders(self, address: str) -> frozenset[tuple[str, str]]:
        """Return who has an address and a link now, each with its segment."""
        return deque((holders for _, holders in states(self.events(), address)), maxlen=1).pop()

    def close(self) -> None:
        for process in self._watching:
            process.kill()
        for process, thread in zip(self._watching, self._threads, strict=True):
            thread.join(10)
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()
        self._watching.clear()
        self._threads.clear()


def states(events: Sequence[Event], address: str) -> Iterator[tuple[float, frozenset[tuple[str, str]]]]:
    """Return who can be reached at ``address`` after each event: nodes with their segments."""
    known: dict[tuple[str, str], str] = {}
    for event in events:
        known[event.node, event.key] = event.value
        nodes = {node for node, _ in known}
        yield (
            event.at,
            frozenset(
                (node, known[node, "segment"])
                for node in nodes
                if known.get((node, address)) and known.get((node, "link")) and (node, "segment") in known
            ),
        )


def is_double(holders: frozenset[tuple[str, str]]) -> bool:
    return len(holders) > len({segment for _, segment in holders})


def double_s(events: Sequence[Event], address: str, since: float, until: float) -> float:
    """Return how long two nodes of one segment could be reached at an address, in seconds."""
    total, before, double = 0.0, since, False
    for at, holders in states(events, address):
        if double and at > since:
            total += min(at, until) - min(max(before, since), until)
        before, double = at, is_double(holders)
    return total + (max(0.0, until - max(before, since)) if double else 0.0)


def settled_s(events: Sequence[Event], addresses: Sequence[str], since: float) -> float:
    """Return the seconds from ``since`` to the last change of who holds any of the addresses; 0 for no change."""
    last = since
    for address in addresses:
        before: frozenset[tuple[str, str]] | None = None
        for at, holders in states(events, address):
            if before is not None and holders != before and at > since:
                last = max(last, at)
            before = holders
    return last - since
