"""What becomes of the requests of an access log before and after a change. Pure, and bounded for any log.

Requests that no configuration tells apart are one *class*: by the frontend, the method, what of the host and the path
the maps know, and TLS. Each class is decided once, before and after; where an expression reads the path, each path is.
What headers decide the log does not have: both answers are assumed, one after the other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from pyconfd.explain.decision import RoutingDecision, RoutingDecisions
from pyconfd.explain.request import ClientRequest
from pyconfd.explain.routing import ACME, Entrance, Unknown, Unlogged, longest_prefix
from pyconfd.model.listener import ANY
from pyconfd.model.logged import AskedFor, UnreadableLine, asked_for
from pyconfd.presets.routing.paths import routed_path
from pyconfd.printable import clean

MOST_CLASSES = 100_000
"""Of requests whose decisions are remembered: then all are forgotten, and decided again."""
MOST_GROUPS = 2_000
_MOST_TARGETS = 200
"""Of one group that are counted one by one."""
_MOST_ASSUMED = 32
"""Ways of one class of requests by what is assumed of headers."""
_EXAMPLES = 3
_UNREADABLE_EXAMPLES = 5
_SHOWN_CHARACTERS = 200
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
"""Those that a rule can ask for."""
_OTHER_METHOD = "OTHER"
_BAD_REQUEST = "<BADREQ>"


class EffectKind(StrEnum):
    """What a change does to requests."""

    SAME = "same"
    CHANGED = "changed"
    """Another backend, status or rewrite."""
    DEPENDS = "depends"
    """A change for some values of a header or parameter that the log does not have."""
    UNKNOWN = "unknown"
    """It cannot be said."""


class LoggedExample(msgspec.Struct, frozen=True):
    """A request, and its line of the log, from 1."""

    line: int
    request: str


class UnreadLine(msgspec.Struct, frozen=True):
    """A line that does not say where a request went, and why."""

    line: int
    why: str


class TrafficTarget(msgspec.Struct, frozen=True):
    """Methods, hosts and paths that are decided together."""

    target: str
    requests: int


class TrafficGroup(msgspec.Struct, frozen=True):
    """Requests with the same change. ``depends_on`` are headers and parameters, ``other_targets`` are left out."""

    kind: EffectKind
    requests: int
    percent: float
    before: str
    after: str
    depends_on: tuple[str, ...]
    targets: tuple[TrafficTarget, ...]
    other_targets: int
    examples: tuple[LoggedExample, ...]


class TrafficReport(msgspec.Struct, frozen=True):
    """What a change does to the requests of a log: the most frequent groups come first.

    ``requests`` of the ``lines`` could be read. ``elsewhere`` counts those that were logged with another backend than
    the configuration before has for them.
    """

    lines: int
    requests: int
    same: int
    changed: int
    depends: int
    unknown: int
    elsewhere: int
    unreadable: int
    unreadable_examples: tuple[UnreadLine, ...]
    groups: tuple[TrafficGroup, ...]


class _EffectGroup:
    """A group as long as it is counted."""

    def __init__(self, effect: "TrafficEffect") -> None:
        self.effect = effect
        self.requests = self.other_targets = 0
        self.targets: Counter[str] = Counter()
        self.examples: list[LoggedExample] = []

    def add(self, target: str, asked: AskedFor, number: int) -> None:
        self.requests += 1
        if target in self.targets or len(self.targets) < _MOST_TARGETS:
            self.targets[target] += 1
        else:
            self.other_targets += 1
        if len(self.examples) < _EXAMPLES:
            what = f"{asked.method} {asked.host}{asked.path}" if asked.method else f"connection {asked.sni}"
            example = LoggedExample(number, clean(what.strip(), _SHOWN_CHARACTERS))
            if example.request not in {each.request for each in self.examples}:
                self.examples.append(example)

    def result(self, requests: int) -> TrafficGroup:
        effect = self.effect
        targets = tuple(TrafficTarget(*each) for each in self.targets.most_common())
        return TrafficGroup(
            effect.kind,
            self.requests,
            round(100 * self.requests / max(requests, 1), 2),
            effect.before,
            effect.after,
            effect.depends_on,
            targets,
            self.other_targets,
            tuple(self.examples),
        )


class TrafficEffect(NamedTuple):
    """What happens to a class of requests, in words."""

    kind: EffectKind
    before: str = ""
    after: str = ""
    depends_on: tuple[str, ...] = ()


_SAME = TrafficEffect(EffectKind.SAME)


class ClassEffect(NamedTuple):
    """The same with what it is for; ``backends`` are those before. ``by_path``: each path has to be decided."""

    effect: TrafficEffect
    group: _EffectGroup | None
    target: str
    backends: frozenset[str]
    by_path: bool = False


class _RequestClass(NamedTuple):
    """What requests have in common that are decided together."""

    listener: str
    is_tls: bool
    method: str
    host: str
    name: str
    path: str
    is_acme: bool
    has_query: bool
    client: str


class TrafficReplay:
    """Reads lines, and counts what a change does to them."""

    def __init__(self, before: RoutingDecisions, after: RoutingDecisions) -> None:
        self._before, self._after = before, after
        self._known = before.known | after.known
        self._longest_prefix = max(map(len, self._known.prefixes), default=0)
        self._counts: Counter[EffectKind] = Counter()
        self._groups: dict[TrafficEffect, _EffectGroup] = {}
        self._classes: dict[_RequestClass, ClassEffect] = {}
        self._paths: dict[tuple[_RequestClass, str], ClassEffect] = {}
        self._elsewhere = self._unreadable = self._lines = 0
        self._unread: list[UnreadLine] = []
        self._host_class = lru_cache(MOST_CLASSES)(self._class_of_host)
        self._entrances = lru_cache(1_000)(self._entrance)

    def add(self, line: bytes) -> None:
        """Count a line."""
        self._lines += 1
        try:
            asked = asked_for(line)
        except UnreadableLine as error:
            self.skip(str(error))
            return
        found = self.effect_of(asked)
        self._counts[found.effect.kind] += 1
        if found.group is not None:
            found.group.add(found.target, asked, self._lines)
        if found.backends and asked.backend not in found.backends and asked.method != _BAD_REQUEST:
            self._elsewhere += 1

    def add_blank(self) -> None:
        """Count a line without anything: the numbers of the others are those of the file."""
        self._lines += 1

    def add_too_long(self, most: int) -> None:
        """Count a line of more than ``most`` bytes."""
        self._lines += 1
        self.skip(f"longer than {most:,} bytes")

    def skip(self, why: str) -> None:
        """Count the last line as one that cannot be read."""
        self._unreadable += 1
        if len(self._unread) < _UNREADABLE_EXAMPLES:
            self._unread.append(UnreadLine(self._lines, clean(why, _SHOWN_CHARACTERS)))

    @property
    def changes(self) -> int:
        """How many requests get, or may get, something else: also those of which it cannot be said."""
        return self._counts.total() - self._counts[EffectKind.SAME]

    def report(self) -> TrafficReport:
        """Return what was counted."""
        requests = self._counts.total()
        ordered = sorted(self._groups.values(), key=lambda each: (-each.requests, each.effect))
        return TrafficReport(
            self._lines,
            requests,
            self._counts[EffectKind.SAME],
            self._counts[EffectKind.CHANGED],
            self._counts[EffectKind.DEPENDS],
            self._counts[EffectKind.UNKNOWN],
            self._elsewhere,
            self._unreadable,
            tuple(self._unread),
            tuple(each.result(requests) for each in ordered if each.requests),
        )

    def effect_of(self, asked: AskedFor) -> ClassEffect:
        """Return what happens to a request."""
        path, mark, _ = asked.path.partition("?")
        has_query = bool(mark) or self._before.logs_query
        is_tls = asked.tls not in {"", "-"}
        place = self._entrances(asked.listener)
        client = asked.client if place.asks_for_source else ""
        host = self._host_class(asked.host)
        name = host if asked.sni == asked.host else f"!{self._host_class(asked.sni.rstrip('.').lower())}"
        method = asked.method if asked.method in _METHODS or not asked.method else _OTHER_METHOD
        path = routed_path(path) or ""
        acme = path.startswith(ACME)
        class_ = _RequestClass(
            asked.listener, is_tls, method, host, name, self._class_of_path(path), acme, has_query, client
        )
        found = self._classes.get(class_)
        if found is None:
            found = self._decided(asked, class_, place)
            if len(self._classes) >= MOST_CLASSES:
                self._classes.clear()
            self._classes[class_] = found
        if not found.by_path:
            return found
        by_path = self._paths.get((class_, asked.path))
        if by_path is None:
            by_path = self._decided(asked, class_, place)
            if len(self._paths) >= MOST_CLASSES:
                self._paths.clear()
            self._paths[class_, asked.path] = by_path
        return by_path

    # Classes

    def _class_of_host(self, host: str) -> str:
        """Return what the maps know of a host: itself, or the longest end, and the end behind the first label."""
        if host in self._known.hosts:
            return host
        ends = [host[at:] for at, character in enumerate(host) if character == "."]
        found = next((each for each in ends if each in self._known.ends), "")
        is_one_label = bool(ends) and ends[0] == found
        return f"*{found}" if is_one_label or not found else f"*.*{found}"

    def _class_of_path(self, path: str) -> str:
        if path in self._known.paths:
            return path
        return f"{longest_prefix(self._known.prefixes, f'{path}/'[: self._longest_prefix])}*"

    def _entrance(self, listener: str) -> "_ListenerPlace":
        before = self._before.entrance_of(listener)
        if before is None:
            return _ListenerPlace(None, None)
        after = self._after.entrance_at(before)
        by_source = self._before.asks_for_source(before) or (after is not None and self._after.asks_for_source(after))
        return _ListenerPlace(before, after, self._before.speaks_tls(before), by_source)

    def _decided(self, asked: AskedFor, class_: _RequestClass, place: "_ListenerPlace") -> ClassEffect:
        if place.before is None:
            known = f"frontend {clean(asked.listener, _SHOWN_CHARACTERS)} is not in the configuration before"
            return self._grouped(TrafficEffect(EffectKind.UNKNOWN, known), class_, frozenset())
        request = _request_of(asked, place, place.before)
        ways, by_path, backends = list[_ComparedWay](), False, set[str]()
        for unlogged in _assumptions(has_query=class_.has_query):
            before = self._before.decide(request, place.before, unlogged)
            after = self._after.decide(request, place.after, unlogged)
            ways.append(_ComparedWay(before, after, unlogged.answers))
            edits = [{each.path for each in decision.parts} for decision in (before, after)]
            by_path = by_path or before.reads_path or after.reads_path or edits[0] != edits[1]
            backends |= {each.backend for each in before.parts}
        is_answered = "" in backends or not backends
        effect = _effect_of(ways)
        return self._grouped(effect, class_, frozenset() if is_answered else frozenset(backends), by_path=by_path)

    def _grouped(
        self, effect: TrafficEffect, class_: _RequestClass, backends: frozenset[str], *, by_path: bool = False
    ) -> ClassEffect:
        if effect.kind is EffectKind.SAME:
            return ClassEffect(effect, None, "", backends, by_path)
        group = self._groups.get(effect)
        if group is None and len(self._groups) >= MOST_GROUPS:
            effect = TrafficEffect(effect.kind, "others", "others")
            group = self._groups.get(effect)
        if group is None:
            group = self._groups[effect] = _EffectGroup(effect)
        path = class_.path if class_.path != "*" else "/*"
        what = f"{class_.method} {class_.host}{path}" if class_.method else f"connections {class_.name.lstrip('!')}"
        return ClassEffect(effect, group, clean(what, _SHOWN_CHARACTERS), backends, by_path)


class _ListenerPlace(NamedTuple):
    """Where requests come in before and after; ``asks_for_source``: the client's address decides."""

    before: Entrance | None
    after: Entrance | None
    begins_with_tls: bool = False
    asks_for_source: bool = False


class _ComparedWay(NamedTuple):
    """Where requests go before and after, where this is assumed of them."""

    before: RoutingDecision
    after: RoutingDecision
    assumed: Mapping[Unknown, bool]

    @property
    def is_same(self) -> bool:
        return self.before.effect == self.after.effect


def _request_of(asked: AskedFor, place: _ListenerPlace, entrance: Entrance) -> ClientRequest:
    listener = entrance.listener
    path, _, query = asked.path.partition("?")
    if asked.method:
        scheme = "https" if asked.tls not in {"", "-"} else "http"
    else:
        scheme = "tls" if place.begins_with_tls else "tcp"
    return ClientRequest(
        scheme=scheme,
        host=asked.host,
        port=listener.port,
        path=path,
        query=query,
        method=asked.method,
        headers=(("host", asked.host),),
        source=asked.client if place.asks_for_source else "",
        tls_name=asked.sni.rstrip(".").lower(),
        # What came to an address of its own comes there afterwards, too, whoever listens there then.
        to="" if listener.address in ANY else listener.address,
        asked=(),
    )


def _assumptions(*, has_query: bool) -> Iterator[Unlogged]:
    """Return what may be assumed of requests, one after the other: first that nothing holds that is asked for."""
    waiting: list[dict[Unknown, bool]] = [{}]
    for _ in range(_MOST_ASSUMED):
        if not waiting:
            return
        assumed = waiting.pop()
        unlogged = Unlogged(assumed, has_query=has_query)
        yield unlogged
        answers = list(unlogged.answers.items())
        news = range(len(assumed), len(answers))
        waiting += [{**dict(islice(answers, number)), answers[number][0]: True} for number in news]


def _effect_of(ways: list[_ComparedWay]) -> TrafficEffect:
    first = ways[0]
    if len(ways) == _MOST_ASSUMED and not all(each.is_same for each in ways):
        words = f"it depends on more than {_MOST_ASSUMED} combinations of headers, which the log does not have"
        return TrafficEffect(EffectKind.UNKNOWN, words)
    unknown = next((each.unknown for way in ways for each in (way.before, way.after) if each.unknown), "")
    if unknown:
        return TrafficEffect(EffectKind.UNKNOWN, f"not answered: {unknown}")
    differing = [each for each in ways if not each.is_same]
    if not differing:
        return _SAME
    before, after = _joined(each.before.words for each in differing), _joined(each.after.words for each in differing)
    if len(ways) == 1:
        return TrafficEffect(EffectKind.CHANGED, first.before.words, first.after.words)
    names = sorted({f"{each.kind} {each.condition.name}" for way in ways for each in way.assumed})
    kind = EffectKind.CHANGED if len(differing) == len(ways) else EffectKind.DEPENDS
    return TrafficEffect(kind, before, after, tuple(names))


def _joined(texts: Iterable[str]) -> str:
    """Return texts, each once, as alternatives."""
    return " | ".join(dict.fromkeys(texts))
