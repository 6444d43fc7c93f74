"""Count how many endpoints are ready and how many were lost suddenly, at a cost by what changed [pure]."""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from typing import Any

from pyconfd.model.context import Claimed
from pyconfd.model.versioned import differing

Name = tuple[str, Any]
"""A preset, and what it serves under which name: a text, or the key of a service."""


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """The addresses that went and came behind one name; ``vanished``: no object claims the name any more."""

    name: Name
    gone: frozenset[str]
    came: frozenset[str]
    vanished: bool

    @property
    def more(self) -> int:
        """How many more there are now."""
        return len(self.came) - len(self.gone)


def changes_between(old: tuple[Claimed, ...], new: tuple[Claimed, ...]) -> list[EndpointChange]:
    """Return what changed behind the names of two Contexts."""
    former = {each.preset: each for each in old}
    left = [replace(each, by_name={}) for each in old if each.preset not in {one.preset for one in new}]
    found: list[EndpointChange] = []
    for after in (*new, *left):
        before = former.get(after.preset) or replace(after, by_name={})
        for name in differing(before.by_name, after.by_name):
            was, now = ready_addresses(before, name), ready_addresses(after, name)
            if was != now or name not in after.by_name:
                found.append(EndpointChange((after.preset, name), was - now, now - was, name not in after.by_name))
    return found


def ready_addresses(claimed: Claimed, name: Any) -> frozenset[str]:
    """Return the addresses behind one name of a preset."""
    return frozenset(claimed.addresses(claimed.by_name[name])) if name in claimed.by_name else frozenset()


class EndpointCounts:
    """How many are ready behind each preset, and when each endpoint was lost behind each name.

    A new endpoint behind a name makes up for one loss there, if it came before the loss or within the window after it:
    a rolling update loses nothing. An endpoint behind two names counts twice.
    """

    def __init__(self, claimed: tuple[Claimed, ...], window_s: float) -> None:
        self._window_s = window_s
        self.ready = Counter[str]()
        for each in claimed:
            self.ready[each.preset] = sum(len(ready_addresses(each, name)) for name in each.by_name)
        self.forget_losses()

    def forget_losses(self) -> None:
        """Begin again with nothing lost."""
        self.lost: defaultdict[Name, deque[float]] = defaultdict(deque)
        self.lost_total = self.unapplied = 0
        self._spare = Counter[Name]()
        """How many more came behind a name than went with an announcement, within the window."""
        self._noted: deque[tuple[float, Name, int]] = deque()

    @property
    def ready_total(self) -> int:
        """How many are ready behind everything."""
        return self.ready.total()

    def count(self, now: float, change: EndpointChange, lost: int, *, total_loss: bool) -> None:
        """Count what changed behind one name; so many of what went were not announced.

        With a ``total_loss``, endpoints that came before make up for nothing.
        """
        name = change.name
        self.ready[name[0]] += change.more
        came = len(change.came) - self._make_up(name, len(change.came))
        made_up = 0 if total_loss else min(lost, max(0, self._spare[name] + came))
        self._add_spare(now, name, came - (len(change.gone) - lost) - made_up)
        self.lose(now, name, lost - made_up)

    def lose(self, now: float, name: Name, count: int) -> None:
        """Count ``count`` endpoints as lost behind a name."""
        if count:
            self.lost[name].extend([now] * count)
            self.lost_total += count
            self.unapplied += count
            self._noted.append((now, name, 0))

    def forgive(self, old: tuple[Claimed, ...], new: tuple[Claimed, ...], count: int) -> None:
        """Forget losses behind the names that differ: all of one that vanished, else up to ``count``."""
        former, latter = ({each.preset: each.by_name for each in claimed} for claimed in (old, new))
        for name in list(self.lost):
            preset, key = name
            before, after = former.get(preset, {}).get(key), latter.get(preset, {}).get(key)
            if before != after:
                self._make_up(name, len(self.lost[name]) if after is None else count)

    def expire(self, now: float) -> None:
        """Forget what happened before the window."""
        begins = now - self._window_s
        while self._noted and self._noted[0][0] < begins:
            _, name, spare = self._noted.popleft()
            self._spare[name] -= spare
            self._make_up(name, sum(at < begins for at in self.lost.get(name, ())))

    def _add_spare(self, now: float, name: Name, count: int) -> None:
        if count:
            self._spare[name] += count
            self._noted.append((now, name, count))

    def _make_up(self, name: Name, count: int) -> int:
        """Cancel up to ``count`` losses behind a name, the oldest first, and return how many there were."""
        lost = self.lost.get(name)
        if lost is None:
            return 0
        count = min(count, len(lost))
        for _ in range(count):
            lost.popleft()
        if not lost:
            del self.lost[name]
        self.lost_total -= count
        self.unapplied = min(self.unapplied, self.lost_total)
        return count
