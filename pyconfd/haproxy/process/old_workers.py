"""The workers that reloads have replaced, and which of them makes room at the bound. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from pyconfd.haproxy.process.observation import OldWorker

LEFT_ALONE_S = 30.0
"""How long a worker may end its sessions whatever happens: at the bound a reload waits so long.

So often, too, a namespace reloads that has its share of the former workers.
"""

REGAINED_S = 2.0
"""How long it takes until a namespace may reload once more that has used its share, though no worker is left of it."""

ENDS_WITHIN_S = 5.0
"""How long a worker that was ended may take to go before another one is ended: it is killed, so that one hangs."""


def to_end(old: Sequence[OldWorker], causes: Mapping[int, frozenset[str]]) -> OldWorker | None:
    """Return the worker that is ended at the bound, None while each has a right to its time.

    It is the oldest of those that changes of one namespace have replaced, the one that replaced most; where that is
    not known, the oldest of all. So who reloads again and again ends what his own reloads left behind first.
    """
    ripe = [each for each in old if each.replaced_s >= LEFT_ALONE_S]
    counts = Counter(namespace for each in old for namespace in causes.get(each.pid, ()))
    most = max(counts, key=lambda namespace: (counts[namespace], namespace), default="")
    mine = [each for each in ripe if most in causes.get(each.pid, ())] if counts[most] > 1 else []
    return max(mine or ripe, key=lambda each: each.replaced_s, default=None)


class OldWorkers:
    """Those that were seen last; at most ``bound`` may be there when a reload comes."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self.known: tuple[OldWorker, ...] = ()
        self._causes: dict[int, frozenset[str]] = {}
        self._ended: dict[int, float] = {}  # by process: how long ago it had been replaced when it was ended
        self._share = max(1, bound // 2)
        self._reloads: list[tuple[float, frozenset[str]]] = []

    @property
    def at_bound(self) -> bool:
        """Whether one has to go before the next reload."""
        return len(self.known) >= self._bound

    def has_share(self, namespaces: Collection[str], now: float) -> bool:
        """Return whether changes of these namespaces may replace one more worker.

        Each namespace may until half of the bound are its own, and then only if it has replaced none lately: it is
        slowed and not stopped, since it may be sessions of others that keep these workers. So is one that has replaced
        as many in a short time, though they ended at once: each reload costs everybody connections and statistics.
        """
        if not namespaces:
            return True
        lately = Counter(namespace for _, causes in self._reloads_since(now) for namespace in causes)
        ages: dict[str, list[float]] = {each: [] for each in namespaces if lately[each] < self._share}
        for each in self.known:
            for namespace in self._causes.get(each.pid, frozenset()) & ages.keys():
                ages[namespace].append(each.replaced_s)
        return any(len(found) < self._share or min(found) >= LEFT_ALONE_S for found in ages.values())

    def _reloads_since(self, now: float) -> list[tuple[float, frozenset[str]]]:
        return [each for each in self._reloads if now - each[0] < REGAINED_S * self._share]

    @property
    def oldest_age_s(self) -> float:
        """Since when the oldest of them was started."""
        return max((each.age_s for each in self.known), default=0.0)

    def ends_s(self, limit_s: float | None) -> float | None:
        """Return in how many seconds HAProxy ends the last of them, ``limit_s`` after it was replaced; None: never."""
        if limit_s is None or not self.known:
            return None
        return max(limit_s - min(each.replaced_s for each in self.known), 0.0)

    def see(self, found: tuple[OldWorker, ...]) -> None:
        """Record which there are."""
        self.known = found
        pids = {each.pid for each in found}
        self._causes = {pid: causes for pid, causes in self._causes.items() if pid in pids}
        self._ended = {pid: replaced_s for pid, replaced_s in self._ended.items() if pid in pids}

    def replaced(self, pid: int, causes: frozenset[str], now: float) -> None:
        """Record that a reload for changes of the namespaces ``causes`` replaced the worker ``pid``, 0 if unknown."""
        self.known = (*self.known, OldWorker(pid))
        self._reloads = [*self._reloads_since(now), (now, causes)]
        if pid:
            self._causes[pid] = causes

    def next_to_end(self) -> OldWorker | None:
        """Return which one is to be ended now, None while one that was ended goes, or where each has its time.

        Each is ended once: one that hangs does not keep others from making room.
        """
        if any(each.replaced_s - self._ended.get(each.pid, -math.inf) < ENDS_WITHIN_S for each in self.known):
            return None
        return to_end([each for each in self.known if each.pid not in self._ended], self._causes)

    def ended(self, worker: OldWorker) -> None:
        """Record that ``worker`` was told to end. One that could not be told is the next one again."""
        self._ended[worker.pid] = worker.replaced_s

    def causes_of(self, pid: int) -> tuple[str, ...]:
        """Return the namespaces whose changes have replaced this worker, as far as that is known."""
        return tuple(sorted(self._causes.get(pid, ())))
