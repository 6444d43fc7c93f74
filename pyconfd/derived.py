"""Collections that follow from one another: after a change only what it concerns is made again.

A function of an author makes one item of a collection from one item of another, and may ``read`` items of further
collections. The engine records what each call read, and calls it again when that item, or anything that it read, is
another one. An item that comes out equal stays the object that it was, and nothing downstream hears of it::

    graph = Graph()
    services = Source[Key, Service](graph, "services")
    claims = Derived(services, parse)                    # parse(read, key, service) -> Claim | None
    places = Grouped(claims, lambda _, claim: claim.hosts, rank=age)
    owners = Derived(places, oldest)
    statuses = Derived(claims, status)                   # status() reads owners: it is made again when they change

    services.replace({key: service})
    graph.settle()
    statuses.changed                                     # the former items of what differs now

Rules for these functions: they are pure (no clock, no file, no global variable: whatever can change is a source), and
they keep nothing of what ``read`` returns beyond the value that they make. They may read collections that were made
before their own, so there is no circle. A mapping of items has no order; :class:`Published` has one.

A function that raises is a bug, and costs only the item that it was called for: there is none, as if it had returned
None, whatever there was before, so that the items follow from the sources alone and two daemons answer alike.
``Graph.faults`` names it, and it is called again when anything that it read is another one. Where it makes the one item
of all (of the key ``()``) the exception is raised by :meth:`Graph.settle`: nothing can be said without that.

The idea is that of Istio's krt (istio/istio, ``pkg/kube/krt/README.md``).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from operator import is_
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import structlog

from pyconfd.model.garbage import without_collector
from pyconfd.model.versioned import VersionedDict, differing

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
S = TypeVar("S", bound=Hashable)
G = TypeVar("G", bound=Hashable)
S_contra = TypeVar("S_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)
I = TypeVar("I")  # noqa: E741 - an item of the collection that another one is made of

ALL: Final = object()
"""Stands for all items of a collection among what was read."""

_NOBODY: Final = object()
_SEVERAL: Final = frozenset({list, dict})
"""What the keys of several readers of one item are in, up to ``_MOST_LISTED`` in a list; no key is one of these."""

_MOST_LISTED: Final = 8


class FunctionFault(NamedTuple):
    """An exception of a function for an item of a collection: its type and line; the message may have secrets."""

    of: "Collection[Any, Any]"
    error: str
    place: str


class LaterCollectionError(ValueError):
    """A function reads a collection that is made after its own: no key's fault."""


class Graph:
    """All collections, in the order in which they were made. It belongs to one thread.

    A graph whose function raised an exception has lost track: :attr:`is_broken`, and another one is to be made.
    """

    def __init__(self) -> None:
        self.collections: list[Collection[Any, Any]] = []
        self.names: set[str] = set()
        self.is_broken = False
        self.faults: dict[tuple[Collection[Any, Any], Any], FunctionFault] = {}
        """What was raised for items: by the collection whose function it was, and the key that it was called for."""
        self._logged: set[tuple[str, FunctionFault]] = set()
        self._due: list[int] = []
        self._changed: list[Collection[Any, Any]] = []

    def settle(self) -> None:
        """Bring all collections up to what the sources were given since; ``changed`` is about that from then on."""
        if self.is_broken:
            raise RuntimeError("a function of this graph raised an exception: make another graph")
        self.is_broken = True
        # Nothing here makes cycles, and the first round makes so much that half of its time would be the collector's.
        with without_collector():
            self._update()
        self.is_broken = False

    def _update(self) -> None:
        for each in self._changed:
            each.changed = {}
        self._changed = []
        while self._due:
            each = self.collections[heappop(self._due)]
            each.is_due = False
            each.update()
            if each.changed:
                self._changed.append(each)
                for follower in each.followers:
                    follower.follow_up()

    def update_later(self, collection: "Collection[Any, Any]") -> None:
        """Mark a collection as due: it is updated in this round, or the next where none runs, after all before it."""
        if not collection.is_due:
            collection.is_due = True
            heappush(self._due, collection.number)

    def fail(
        self, collection: "Collection[Any, Any]", of: "Collection[Any, Any]", key: object, error: Exception
    ) -> None:
        """Record what a function raised for an item, and log each line that raises once; raise what concerns all."""
        if key == () or isinstance(error, MemoryError | LaterCollectionError):
            raise error
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        place = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}" if at is not None else ""
        fault = self.faults[collection, key] = FunctionFault(of, type(error).__name__, place)
        if (collection.name, fault) not in self._logged:
            self._logged.add((collection.name, fault))
            log.error("function.failed", collection=collection.name, key=str(key), exc_info=error)

    def roots(self, collection: "Collection[K, Any]", key: K) -> tuple[tuple["Source[Any, Any]", Any], ...]:
        """Return the items of sources that an item is made of, without what was read for it."""
        found: dict[tuple[Source[Any, Any], Any], None] = {}
        waiting: list[tuple[Collection[Any, Any], Any]] = [(collection, key)]
        while waiting:
            of, what = waiting.pop()
            if isinstance(of, Source):
                found[of, what] = None
            elif what is not ALL:
                there = [at for at in of.made_of(what) if at[1] is ALL or at[1] in at[0].items]
                waiting += there[:1] if isinstance(of, Derived | Joined) else there
        return tuple(found)

    def origins(self, collection: "Collection[K, Any]", key: K) -> tuple[tuple["Collection[Any, Any]", Any], ...]:
        """Return the items of sources that an item follows from, those that were missing included; ``ALL`` for all."""
        seen: dict[tuple[Collection[Any, Any], Any], None] = {}
        waiting: list[tuple[Collection[Any, Any], Any]] = [(collection, key)]
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen[at] = None
                waiting += at[0].made_of(at[1]) if at[1] is not ALL else ()
        return tuple(at for at in seen if isinstance(at[0], Source) or at[1] is ALL)


class Follower(Protocol):
    """What goes by the changes of a collection."""

    def follow_up(self) -> None:
        """Record that the collection has changed in this round."""
        ...


class Collection(Generic[K, V]):
    """Items by key. ``changed`` has, by key, the former item (None: there was none) of each that differs now.

    ``name`` is for people, and used once. Neither mapping is to be changed from outside.
    """

    def __init__(self, graph: Graph, name: str, *of: "Collection[Any, Any]") -> None:
        if name in graph.names:
            raise ValueError(f"there are two collections {name!r}: give each a name of its own")
        self.graph, self.number = graph, len(graph.collections)
        self.name: str = name
        graph.names.add(name)
        graph.collections.append(self)
        self.items: dict[K, V] = {}
        self.changed: dict[K, V | None] = {}
        self._readers: dict[Derived[Any, Any, Any], dict[Any, Any]] = {}
        self.is_due = False
        self.followers: list[Follower] = []
        for each in of:
            each.followers.append(self)

    def follow_up(self) -> None:
        """Hear that a collection that this one is made of has changed."""
        self.graph.update_later(self)

    def update(self) -> None:
        """Update the items after changes of the collections that this one is made of."""
        raise NotImplementedError

    def made_of(self, key: K) -> Sequence[tuple["Collection[Any, Any]", Any]]:
        """Return what an item is made of: items of other collections."""
        raise NotImplementedError

    def _put(self, key: K, new: V | None) -> None:
        old = self.items.get(key)
        if old is new or old == new:
            return
        if new is None:
            del self.items[key]
        else:
            self.items[key] = new
        self.changed[key] = old
        if self._readers:
            self._wake(key)

    def _wake(self, key: K) -> None:
        for node, readers in self._readers.items():
            for what in (key, ALL):
                found = readers.get(what, _NOBODY)
                if type(found) in _SEVERAL:
                    for each in found:
                        node.wake(each)
                elif found is not _NOBODY:
                    node.wake(found)

    def _fenced(
        self,
        of: "Collection[Any, Any]",
        function: Callable[[Any, Any], Iterable[I]],
        key: object,
        item: object,
        *,
        is_new: bool = True,
    ) -> tuple[I, ...]:
        """Return what a function of an item returns; nothing where it raises, which is a fault of a new item only."""
        try:
            return tuple(function(key, item))
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this item only
            if is_new or isinstance(error, MemoryError | LaterCollectionError):
                self.graph.fail(self, of, key, error)
            return ()

    def _forget_faults(self, keys: Iterable[object]) -> None:
        """Forget what was raised for these keys: they are made again."""
        if self.graph.faults:
            for key in keys:
                self.graph.faults.pop((self, key), None)

    def remember(self, what: object, node: "Derived[Any, Any, Any]", key: object) -> None:
        """Record that the call of a collection for ``key`` reads an item, or ``ALL``."""
        # Nearly every item has one reader in a collection: its bare key, since all else would be most of the memory.
        readers = self._readers.get(node)
        if readers is None:
            readers = self._readers[node] = {}
        known = readers.setdefault(what, key)
        if type(known) is dict:
            known[key] = None
        elif type(known) is list:
            if key not in known:
                known.append(key)
                if len(known) > _MOST_LISTED:
                    readers[what] = dict.fromkeys(known)
        elif known is not key and known != key:
            readers[what] = [known, key]

    def forget(self, what: object, node: "Derived[Any, Any, Any]", key: object) -> None:
        """Forget that the call for ``key`` reads an item."""
        readers = self._readers[node]
        known = readers[what]
        if type(known) is dict and len(known) > 1:
            del known[key]
        elif type(known) is list and len(known) > 1:
            known.remove(key)
        else:
            del readers[what]
            if not readers:
                del self._readers[node]


class Source(Collection[K, V]):
    """What comes from outside the graph."""

    def __init__(self, graph: Graph, name: str) -> None:
        super().__init__(graph, name)
        self._waiting: dict[K, V | None] = {}
        self._followed: Mapping[K, V] = {}

    def replace(self, items: Mapping[K, V | None]) -> None:
        """Replace items from the next :meth:`Graph.settle` on (None removes one); the others stay."""
        if items:
            self._waiting.update(items)
            self.graph.update_later(self)

    def follow(self, items: Mapping[K, V]) -> None:
        """Replace the items of the mapping that was followed before by those of this one."""
        if items is not self._followed:
            self.replace({key: items.get(key) for key in differing(self._followed, items)})
            self._followed = items

    def update(self) -> None:
        """Put in the items that :meth:`replace` was called with."""
        waiting, self._waiting = self._waiting, {}
        for key, item in waiting.items():
            self._put(key, item)

    def made_of(self, key: K) -> Sequence[tuple[Collection[Any, Any], Any]]:
        """Return nothing: it comes from outside."""
        del key
        return ()


class Value(Source[tuple[()], V]):
    """One thing from outside, such as a setting: a source with one item."""

    def set(self, value: V) -> None:
        """Set the value from the next :meth:`Graph.settle` on."""
        if self._waiting or value != self.items.get(()):
            self.replace({(): value})


class Resolver(Protocol[S_contra, V_co]):
    """Where items are looked up by key: a mapping, or a collection as a function reads it."""

    def get(self, key: S_contra, /) -> V_co | None:
        """Return an item, None where there is none."""
        ...


class View(Generic[S, V]):
    """A collection as the calls of another one read it."""

    def __init__(self, read: "Read", collection: Collection[S, V]) -> None:
        self._read, self._collection = read, collection

    def get(self, key: S, /) -> V | None:
        """Return an item, None where there is none."""
        return self._read(self._collection, key)


class Read:
    """Reads items of other collections for the calls of one collection, and records that."""

    __slots__ = ("_node", "reads")

    def __init__(self, node: "Derived[Any, Any, Any]") -> None:
        self._node = node
        self.reads: list[Any] = []

    def __call__(self, collection: Collection[S, I], key: S) -> I | None:
        """Return an item, None where there is none."""
        self.reads += (collection, key)
        return collection.items.get(key)

    def view(self, collection: Collection[S, I]) -> View[S, I]:
        """Return a collection for functions that look up items by key; what they look up is recorded."""
        return View(self, collection)

    def value(self, collection: Collection[tuple[()], I]) -> I:
        """Return the value of a :class:`Value`, or what was made of it; when it changes, all calls are made again."""
        self._node.reads_value(collection)
        return collection.items[()]

    def all(self, collection: Collection[S, I]) -> Mapping[S, I]:
        """Return all items; the call is made again whenever any of them changes."""
        self.reads += (collection, ALL)
        return collection.items


class Derived(Collection[K, V], Generic[K, I, V]):
    """``make(read, key, item)`` for each item of ``of``; None makes no item. ``calls`` counts them."""

    def __init__(self, of: Collection[K, I], make: Callable[[Read, K, I], V | None], name: str = "") -> None:
        super().__init__(of.graph, name or make.__name__, of)
        self.of, self.make = of, make
        self.calls = 0
        self._stale: dict[K, None] = {}
        self._reads: dict[K, tuple[Any, ...]] = {}
        self._values: set[Collection[tuple[()], Any]] = set()
        self._read = Read(self)

    def wake(self, what: Any) -> None:
        """Mark an item to be made again in this round, ``ALL`` for all."""
        self.graph.update_later(self)
        if what is ALL:
            self._stale.update(dict.fromkeys(self.of.items))
        else:
            self._stale[what] = None

    def reads_value(self, value: "Collection[tuple[()], Any]") -> None:
        """Record that calls read a value; nearly all do, so it is not recorded for each."""
        if value not in self._values:
            self._sees(value)
            self._values.add(value)
            value.remember((), self, ALL)

    def update(self) -> None:
        """Make again what is stale."""
        stale, self._stale = self._stale, {}
        items, read, make = self.of.items, self._read, self.make
        # In the order of the change, whatever the hashes of keys are.
        keys = {**self.of.changed, **stale} if stale else self.of.changed
        self._forget_faults(keys)
        for key in keys:
            read.reads = []
            item = items.get(key)
            made = None
            if item is not None:
                self.calls += 1
                try:
                    made = make(read, key, item)
                except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this item only
                    self.graph.fail(self, self.of, key, error)
            self._remember(key, tuple(read.reads))
            self._put(key, made)

    def _remember(self, key: K, now: tuple[Any, ...]) -> None:
        before = self._reads.get(key, ())
        if before == now:
            return
        if before:
            kept = set(zip(now[::2], now[1::2], strict=True))
            for node, what in set(zip(before[::2], before[1::2], strict=True)) - kept:
                node.forget(what, self, key)
        for number in range(0, len(now), 2):
            node = now[number]
            self._sees(node)
            node.remember(now[number + 1], self, key)
        if now:
            self._reads[key] = now
        else:
            del self._reads[key]

    def _sees(self, node: Collection[Any, Any]) -> None:
        if node.number >= self.number:
            raise LaterCollectionError(f"{self.name} reads {node.name}, which is made after it")

    def made_of(self, key: K) -> Sequence[tuple[Collection[Any, Any], Any]]:
        """Return the item that it was made of, and what was read for it."""
        reads = self._reads.get(key, ())
        return [(self.of, key), *zip(reads[::2], reads[1::2], strict=True), *((each, ()) for each in self._values)]


class Spread(Collection[tuple[K, S], V], Generic[K, S, I, V]):
    """Several items of each: ``spread(key, item)`` returns them with keys that differ; ``(key, own key)`` is theirs."""

    def __init__(self, of: Collection[K, I], spread: Callable[[K, I], Iterable[tuple[S, V]]], name: str = "") -> None:
        super().__init__(of.graph, name or spread.__name__, of)
        self.of, self.spread = of, spread

    def update(self) -> None:
        """Spread what changed."""
        items, spread = self.of.items, self.spread
        self._forget_faults(self.of.changed)
        for key, old in self.of.changed.items():
            new = items.get(key)
            after = dict(self._fenced(self.of, spread, key, new)) if new is not None else {}
            if old is not None:
                for own, _ in self._fenced(self.of, spread, key, old, is_new=False):
                    if own not in after:
                        self._put((key, own), None)
            for own, item in after.items():
                self._put((key, own), item)

    def made_of(self, key: tuple[K, S]) -> Sequence[tuple[Collection[Any, Any], Any]]:
        """Return the item that it is one of."""
        return [(self.of, key[0])]


class Grouped(Collection[G, tuple[tuple[K, I], ...]], Generic[G, K, I]):
    """The items by what they name: ``groups(key, item)``; pairs of key and item, in order of ``rank(key, item)``.

    Ranks have to differ: which of two equal ones comes first depends on what changed when.
    """

    def __init__(
        self,
        of: Collection[K, I],
        groups: Callable[[K, I], Iterable[G]],
        name: str = "",
        *,
        rank: Callable[[K, I], Any] | None = None,
    ) -> None:
        super().__init__(of.graph, name or groups.__name__, of)
        self.of, self.groups = of, groups
        self._rank = (lambda pair: rank(*pair)) if rank is not None else _key_of_pair

    def update(self) -> None:
        """Move what changed to its groups."""
        touched: defaultdict[G, tuple[list[tuple[K, I]], list[tuple[K, I]]]] = defaultdict(lambda: ([], []))
        groups, items = self._ranked_groups, self.of.items
        self._forget_faults(self.of.changed)
        for key, old in self.of.changed.items():
            new = items.get(key)
            for number, item in ((1, old), (0, new)):
                if item is not None:
                    pair = key, item
                    for group in dict.fromkeys(self._fenced(self.of, groups, key, item, is_new=number == 0)):
                        touched[group][number].append(pair)
        for group, (came, went) in touched.items():
            self._put(group, self._regrouped(self.items.get(group, ()), came, went) or None)

    def _ranked_groups(self, key: K, item: I) -> Iterable[G]:
        self._rank((key, item))  # what it raises is to concern this item, and not its groups
        return self.groups(key, item)

    def _regrouped(
        self, pairs: tuple[tuple[K, I], ...], came: list[tuple[K, I]], went: list[tuple[K, I]]
    ) -> tuple[tuple[K, I], ...]:
        """Return the members after some came and some went; only the places of these are looked for in a big group."""
        rank = self._rank
        if len(pairs) < _FEW * (len(came) + len(went)):
            gone = {key for key, _ in went}
            left = [pair for pair in pairs if pair[0] not in gone] if gone else list(pairs)
            left += came
            return tuple(sorted(left, key=rank) if len(left) > 1 else left)
        found = list(pairs)
        for pair in went:
            place = bisect_left(found, rank(pair), key=rank)
            while found[place][0] != pair[0]:
                place += 1
            del found[place]
        for pair in came:
            insort(found, pair, key=rank)
        return tuple(found)

    def made_of(self, key: G) -> Sequence[tuple[Collection[Any, Any], Any]]:
        """Return its members."""
        return [(self.of, member) for member, _ in self.items.get(key, ())]


_FEW = 8
"""So many times as many members as changed make a group a big one."""


def _key_of_pair(pair: tuple[Any, Any]) -> Any:
    return pair[0]


class Tally(Collection[G, int], Generic[G, K, I]):
    """Sums by what is counted: ``counts(key, item)`` returns what, and how many; there is no item for 0."""

    def __init__(self, of: Collection[K, I], counts: Callable[[K, I], Iterable[tuple[G, int]]], name: str = "") -> None:
        super().__init__(of.graph, name or counts.__name__, of)
        self.of, self.counts = of, counts

    def update(self) -> None:
        """Add what came, and take off what went."""
        sums: dict[G, int] = {}
        self._forget_faults(self.of.changed)
        for key, old in self.of.changed.items():
            for item, sign in ((old, -1), (self.of.items.get(key), 1)):
                counts = self._fenced(self.of, self.counts, key, item, is_new=sign > 0) if item is not None else ()
                for what, count in counts:
                    sums[what] = sums.get(what, 0) + sign * count
        for what, change in sums.items():
            self._put(what, self.items.get(what, 0) + change or None)

    def made_of(self, key: G) -> Sequence[tuple[Collection[Any, Any], Any]]:
        """Return all that may be counted."""
        del key
        return [(self.of, ALL)]


class Joined(Collection[K, V]):
    """The items of several collections; where more than one has a key, that of the first."""

    def __init__(self, *of: Collection[K, V], name: str = "joined") -> None:
        super().__init__(of[0].graph, name, *of)
        self.of = of

    def update(self) -> None:
        """Put in what changed in any of them."""
        for key in {key: None for each in self.of for key in each.changed}:
            found = (each.items[key] for each in self.of if key in each.items)
            self._put(key, next(found, None))

    def made_of(self, key: K) -> Sequence[tuple[Collection[Any, Any], Any]]:
        """Return the item of each collection that has it."""
        return [(each, key) for each in self.of]


class Published(Generic[S, V]):
    """The items of a collection as a mapping that is replaced and never changed, for those who keep it.

    Its keys are ``key(key of the collection)``, the same by default, in order of ``rank`` of them; None: in none. Its
    values are ``value(item)``, the item by default; None leaves it out.
    """

    def __init__(
        self,
        of: Collection[Any, Any],
        *,
        key: Callable[[Any], S] = lambda key: key,
        rank: Callable[[S], Any] | None = lambda key: key,
        value: Callable[[Any], V | None] = lambda item: item,
    ) -> None:
        self._of, self._key, self._rank, self._value = of, key, rank, value
        self._mapping: VersionedDict[S, V] = VersionedDict({})
        self._changed: dict[Any, None] = dict.fromkeys(of.items)
        of.followers.append(self)

    def follow_up(self) -> None:
        """Record what changed in this round."""
        self._changed.update(dict.fromkeys(self._of.changed))

    def mapping(self) -> VersionedDict[S, V]:
        """Return the mapping as of the last :meth:`Graph.settle`; the same object where nothing changed since."""
        changed, items, key_of = self._changed, self._of.items, self._key
        if not changed:
            return self._mapping
        now: dict[S, V | None] = {key_of(key): None for key in changed if key not in items}
        # The keys of one that went and of one that came may stand for the same.
        now |= {key_of(key): self._value(items[key]) for key in changed if key in items}
        # A value of an item that is another one may be the same.
        self._mapping = self._mapping.replaced(now, self._rank)
        self._changed = {}
        return self._mapping


class SameParts(Generic[V]):
    """What was made of the very same objects the last time."""

    def __init__(self) -> None:
        self._known: tuple[tuple[object, ...], V] | None = None

    def made(self, parts: tuple[object, ...], make: Callable[[], V]) -> V:
        """Return what ``make`` returns, or returned for the same ``parts``."""
        if self._known is None or len(self._known[0]) != len(parts) or not all(map(is_, self._known[0], parts)):
            self._known = parts, make()
        return self._known[1]
