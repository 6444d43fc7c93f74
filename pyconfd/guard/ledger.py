"""Counts what was lost within a window, in proportion to what changes."""

from collections import deque
from collections.abc import Collection, Mapping

Name = tuple[str, str]
"""A preset, and what it serves under which name."""


class Ledger:
    """``ready`` endpoints stand behind all that is served; ``loss`` of them went within the window, on balance.

    Behind each name the loss is what went without an announcement, less what came: a rolling update loses nothing.
    An endpoint behind two names counts twice.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._changes: deque[tuple[float, Name, int]] = deque()
        self._goings: deque[tuple[float, Name, str]] = deque()
        self._net: dict[Name, int] = {}
        self._sum = 0
        self.ready = 0
        self.loss = 0
        self.lost: dict[Name, dict[str, float]] = {}
        """When each address went that nothing has replaced, by name; in the order in which they went."""
        self.wanted: dict[str, set[Name]] = {}
        """The names that miss an address, and were served with it when something was applied last."""
        self.touched: set[str] = set()
        """Addresses that came to be wanted, or are wanted no more, until somebody clears it."""

    @property
    def base(self) -> int:
        """How many endpoints stood behind everything before the loss."""
        return max(self.ready - self._sum, self.ready + self.loss)

    def note(
        self,
        now: float,
        name: Name,
        change: int,
        *,
        gone: Collection[str],
        held: Collection[str],
        came: Collection[str],
    ) -> None:
        """Note that so many more (or less) are ready behind ``name``; ``gone`` without an announcement.

        Those of them that may be put back are ``held``.
        """
        former = self._loss(name)
        self.ready += change
        if change:
            self._changes.append((now, name, change))
            self._add(name, change)
        for address in came:
            self._found(name, address)
        for address in gone:
            self._goings.append((now, name, address))
            self.lost.setdefault(name, {})[address] = now
        for address in held:
            self.touched.add(address)
            self.wanted.setdefault(address, set()).add(name)
        if self._net.get(name, 0) >= 0:
            # As many came: whoever went was replaced.
            for address in list(self.lost.get(name, ())):
                self._found(name, address)
        self.loss += self._loss(name) - former

    def shift(self, change: int) -> None:
        """Count what became ready, or not, for another reason than the cluster."""
        self.ready += change

    def forget_gains(self, now: float) -> None:
        """Let nothing that came within the window make up for what goes after this."""
        self._net = {name: net for name, net in self._net.items() if net < 0}
        self._changes = deque((now, name, net) for name, net in self._net.items())
        self._sum = sum(self._net.values())

    def expire(self, now: float) -> None:
        """Forget what happened before the window."""
        begins = now - self._window_s
        while self._changes and self._changes[0][0] < begins:
            _, name, change = self._changes.popleft()
            former = self._loss(name)
            self._add(name, -change)
            self.loss += self._loss(name) - former
        while self._goings and self._goings[0][0] < begins:
            at, name, address = self._goings.popleft()
            if self.lost.get(name, {}).get(address) == at:
                former = self._loss(name)
                self._found(name, address)
                self.loss += self._loss(name) - former

    def let_go(self) -> None:
        """Want nothing back of what went until now; it still counts."""
        self.touched.update(self.wanted)
        self.wanted.clear()

    def forgive(self) -> None:
        """Take what is now for what is to be."""
        self.touched.update(self.wanted)
        for held in (self._changes, self._goings, self._net, self.lost, self.wanted):
            held.clear()
        self._sum = self.loss = 0

    def missing(self, name: Name) -> int:
        """Say by how many there are less behind a name than there were."""
        return max(0, -self._net.get(name, 0))

    def restore(self, now: float, name: Name, change: int, *, wanted: Collection[str], let_go: Collection[str]) -> None:
        """Note what went behind a name before :attr:`ready` was counted."""
        self.note(now, name, change, gone=(*wanted, *let_go), held=wanted, came=())
        self.ready -= change

    def held(self) -> Mapping[Name, int]:
        """Return how many addresses each name misses, on balance, that were not let go."""
        counts: dict[Name, int] = {}
        for names in self.wanted.values():
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        found = {name: min(count, self._loss(name)) for name, count in counts.items()}
        return {name: count for name, count in found.items() if count}

    def _loss(self, name: Name) -> int:
        return min(len(self.lost.get(name, ())), max(0, -self._net.get(name, 0)))

    def _add(self, name: Name, change: int) -> None:
        self._sum += change
        net = self._net.get(name, 0) + change
        if net:
            self._net[name] = net
        else:
            self._net.pop(name, None)

    def _found(self, name: Name, address: str) -> None:
        of_name = self.lost.get(name)
        if of_name is not None and of_name.pop(address, None) is not None:
            self._give_up(address, name)
            if not of_name:
                del self.lost[name]

    def _give_up(self, address: str, name: Name) -> None:
        self.touched.add(address)
        names = self.wanted.get(address)
        if names is not None:
            names.discard(name)
            if not names:
                del self.wanted[address]
