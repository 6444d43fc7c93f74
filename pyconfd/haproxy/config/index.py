"""A configuration cut into the texts of its sections, so that only what differs is parsed; and its servers. Pure."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from pyconfd.haproxy.config.servers import ConfiguredBackend, Defaults, Inherited, servers_of, takes_servers
from pyconfd.haproxy.config.text import SECTION_KEYWORDS, Section, name_of, parse, words
from pyconfd.model.spares import is_spare_section, spare_kind

_HEADER = re.compile(rf"\n[ \t]*(?:{'|'.join(sorted(SECTION_KEYWORDS))})(?=[ \t\r\n#]|\Z)")
"""Begins with the newline before it: that is looked for faster than the beginning of a line."""
_CONDITION = re.compile(r"^[ \t]*\.(if|endif)\b", re.MULTILINE)
_IDLE = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?(?:\n|$))*")
"""Lines without words: blanks and comments."""

_CERTIFICATES = frozenset({"crt", "crt-list", "default-crt"})
_INHERITING = frozenset({"backend", "defaults", "frontend", "listen"})


class SectionKey(NamedTuple):
    """What makes two sections the same one: keyword, name, and the position among those of that name."""

    keyword: str
    name: str
    position: int = 0


class SectionSlice(NamedTuple):
    """The text of one section with its header, and what follows up to the next header."""

    keyword: str
    name: str
    text: str


def is_idle(text: str) -> bool:
    """Return whether ``text`` has no words: nothing but blanks and comments."""
    return _IDLE.fullmatch(text) is not None


def cut(text: str) -> tuple[str, list[SectionSlice]]:
    """Return what stands before the first header, and the sections in order; together they are ``text``.

    A header whose keyword is written with quotes or escapes is not seen: its lines belong to the section before.
    """
    starts = [found.start() for found in _HEADER.finditer(f"\n{text}")]
    found = []
    for start, end in pairwise([*starts, len(text)]):
        header = words(text[start:end].partition("\n")[0])
        found.append(SectionSlice(header[0], name_of(header)[0], text[start:end]))
    return text[: starts[0]] if starts else text, found


class LoadedDefaults(NamedTuple):
    """A named defaults section that the process has, though the text does not: its text, and what it gives."""

    text: str
    inherited: Inherited


class Span(NamedTuple):
    """Sections that follow one another, and the texts of those that take their place, with the defaults above each."""

    old: tuple[SectionKey, ...]
    new: Mapping[SectionKey, str]
    above: Mapping[SectionKey, Defaults]


_MAP_USE = re.compile(
    r"(?<![^\s{\[])(?:set-var\((?P<set>[\w.]+)\) )?(?:var\((?P<read>[\w.]+)\))?[^\s{\[]*?,map\w*\((?P<path>[^(),\s]+)"
)


class MapUse(NamedTuple):
    """The ``converters`` that read a map, "" for other uses; and where it stands among maps whose entries are added.

    What leads to others comes after them: maps of hosts, which the site is found by, after those that read the site.
    Of maps that read the same variable the first one comes first: mostly it wins, so that a request which its entry is
    for never finds only that of a later map. What is read by the way, in other sections, comes before all.
    """

    converters: frozenset[str]
    place: tuple[int, int]


@dataclass(slots=True)
class Index:
    """The sections of one configuration: their ``keys`` in order, and their ``texts`` by key in any order.

    ``whole`` is False where a condition spans sections.
    ``above`` are the defaults sections above each, ``defaults`` the named ones of all. ``unused`` are those that went
    without a reload: the process has them until the next one, with their spares.
    """

    head: str
    keys: list[SectionKey]
    texts: dict[SectionKey, str]
    above: dict[SectionKey, Defaults]
    defaults: Mapping[str, Inherited]
    whole: bool
    unused: dict[str, LoadedDefaults] = field(default_factory=dict)
    _used_maps: dict[str, MapUse] = field(default_factory=dict)
    _certificates: tuple[tuple[tuple[str, ...], list[str]], ...] | None = None

    @property
    def text(self) -> str:
        """The whole configuration."""
        return "".join((self.head, *self.in_order().values()))

    def in_order(self) -> dict[SectionKey, str]:
        """Return the texts in the order of the sections."""
        return {key: self.texts[key] for key in self.keys}

    def section(self, key: SectionKey) -> Section | None:
        """Return a section parsed; None where there is none, or where it hides another one."""
        return section_of(self.texts[key]) if key in self.texts else None

    def base(self, key: SectionKey) -> Inherited:
        """Return what a section inherits; nothing where there is none of that key."""
        return base_of(key, self.texts[key], self.above[key]) if key in self.texts else Inherited()

    @property
    def loaded_defaults(self) -> Mapping[str, Inherited]:
        """The named defaults sections that the process has."""
        return {**{name: each.inherited for name, each in self.unused.items()}, **self.defaults}

    def keep_unused(self, former: "Index") -> None:
        """Keep the named defaults sections of the ``former`` text that this one does not have: until a reload."""
        named = [key for key in former.texts if key.keyword == "defaults" and key.name]
        there = {key.name: LoadedDefaults(former.texts[key], former.defaults[key.name]) for key in named}
        self.unused = {name: each for name, each in {**former.unused, **there}.items() if name not in self.defaults}

    def patch(self, spans: Sequence[Span]) -> None:
        """Put other sections in the place of some; the spans are in order."""
        old = {key: self.texts[key] for span in spans for key in span.old}
        new = {key: text for span in spans for key, text in span.new.items()}
        differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        texts = [text for key in differing for text in (old.get(key), new.get(key)) if text is not None]
        for path in [path for path in self._used_maps if any(path in text for text in texts)]:
            del self._used_maps[path]
        if any("crt" in text for text in texts):
            self._certificates = None
        self.texts.update(new)
        for key in old.keys() - new.keys():
            del self.texts[key], self.above[key]
        end = 0
        for span in spans:
            self.above.update(span.above)
            if span.old != tuple(span.new):
                start = self.keys.index(span.old[0], end)
                self.keys[start : start + len(span.old)] = span.new
                end = start + len(span.new)

    def use_of_map(self, path: str) -> MapUse:
        """Return what the configuration does with the file ``path``."""
        if path not in self._used_maps:
            uses = re.compile(rf"(?:(?P<converter>[a-z_]+)\()?{re.escape(path)}(?![\w./@+=-])")
            texts = list(self._mentioning(path))
            converters = frozenset(found["converter"] or "" for text in texts for found in uses.finditer(text))
            self._used_maps[path] = MapUse(converters, _place_of_map(path, texts))
        return self._used_maps[path]

    def names(self, path: str) -> bool:
        """Return whether the configuration mentions ``path``."""
        return path in self.head or any(True for _ in self._mentioning(path))

    def is_named_backend(self, name: str) -> bool:
        """Return whether a ``use_backend`` or ``default_backend`` names a backend: no map leads there."""
        uses = re.compile(rf"^[ \t]*(?:use|default)_backend[ \t]+[\"']?{re.escape(name)}(?![\w.:-])", re.MULTILINE)
        return any(uses.search(text) for text in self._mentioning(name))

    def certificate_words(self) -> frozenset[str]:
        """Return every word after a ``crt``, ``crt-list`` or ``default-crt`` in a bind line."""
        return frozenset(word for _, sources in self._certificate_sources() for word in sources)

    def default_certificates(self) -> frozenset[str]:
        """Return the word of each bind that holds its default certificate: the first one, where no ``strict-sni`` is.

        HAProxy takes no certificate for a default that comes after another one.
        """
        return frozenset(
            sources[0] for line, sources in self._certificate_sources() if sources and "strict-sni" not in line
        )

    def _certificate_sources(self) -> tuple[tuple[tuple[str, ...], list[str]], ...]:
        """Return the words of each bind line that has certificates, and those that name them, in order."""
        if self._certificates is None:
            self._certificates = tuple(self._search_certificates())
        return self._certificates

    def _search_certificates(self) -> Iterator[tuple[tuple[str, ...], list[str]]]:
        for section in map(section_of, self._mentioning("crt")):
            for line in section.lines if section is not None else ():
                if line.words[0] == "bind" and not line.conditional:
                    pairs = zip(line.words, line.words[1:], strict=False)
                    yield line.words, [value for word, value in pairs if word in _CERTIFICATES]

    def _mentioning(self, wanted: str) -> Iterator[str]:
        unused = (each.text for each in self.unused.values())
        return (text for text in chain(self.texts.values(), unused) if wanted in text)


def _place_of_map(path: str, texts: Iterable[str]) -> tuple[int, int]:
    for text in texts:
        # Frontends of Gateways have thousands of lines, and few of them read a map.
        lines = [line for line in text.split("\n") if ",map" in line]
        uses = [use for line in lines for use in _MAP_USE.finditer(line)]
        found = list(dict.fromkeys(use["set"] for use in uses if use["set"]))
        for place, use in enumerate(uses):
            if use["path"] == path:
                read = use["read"]
                if read in found:
                    return -found.index(read), place
                return 1 if read is None or f"set-var({read})" in text else -sys.maxsize, place
    return -sys.maxsize, 0


@lru_cache(maxsize=64)
def section_of(text: str) -> Section | None:
    """Parse the text of one section; None where it is none, or more than one.

    The last few are remembered: what one comparison calls new is the former text of the next.
    """
    found = parse(text)
    return found[0] if len(found) == 1 and found[0].keyword else None


_SERVERS = re.compile(r"(?:^[ \t]*server[ \t].*\n)+", re.MULTILINE)
_SERVER = re.compile(r"(^[ \t]*server[ \t]+([^\s\\\"'#]+)[ \t]+[^\s#].*\n)", re.MULTILINE)
_DOUBTFUL = re.compile(r"^[ \t]*(?:\.if\b|[^\s#\"'\\]*[\"'\\])", re.MULTILINE)
"""Begins a condition, or has a first word in quotes or with escapes, which may be ``server``."""


def differing_servers(old: str, new: str) -> tuple[str, str]:
    """Return two texts of a section without the server lines that are the same in both; nothing is parsed for that.

    They come back as they are where more than that may have to be read: lines around the servers or the order of these
    differ, a condition, a name that is there twice.
    """
    was, now = _servers_apart(old), _servers_apart(new)
    if was is None or now is None or was[::2] != now[::2]:
        return old, new
    (before, lines, after), (_, others, _) = was, now
    if list(filter(others.__contains__, lines)) != list(filter(lines.__contains__, others)):
        return old, new
    gone = [line for name, line in lines.items() if others.get(name) != line]
    come = [line for name, line in others.items() if lines.get(name) != line]
    return "".join((before, *gone, after)), "".join((before, *come, after))


def _servers_apart(text: str) -> tuple[str, dict[str, str], str] | None:
    """Return the server lines by name, between what stands before and behind them; None where that is not all."""
    runs = list(_SERVERS.finditer(text))
    if len(runs) != 1:
        return None
    start, end = runs[0].span()
    if _DOUBTFUL.search(text, 0, start) or _DOUBTFUL.search(text, end):
        return None
    lines = {name: line for line, name in _SERVER.findall(text, start, end)}
    return (text[:start], lines, text[end:]) if len(lines) == text.count("\n", start, end) else None


def index_of(text: str) -> Index:
    """Cut ``text`` and find what its proxies inherit."""
    head, cuts = cut(text)
    seen: Counter[tuple[str, str]] = Counter()
    texts: dict[SectionKey, str] = {}
    above: dict[SectionKey, Defaults] = {}
    defaults = Defaults()
    whole = is_idle(head)
    for keyword, name, own in cuts:
        key = SectionKey(keyword, name, seen[keyword, name])
        seen[keyword, name] += 1
        texts[key], above[key] = own, defaults
        whole = whole and is_balanced(own)
        if keyword == "defaults":
            defaults = defaults.below(parse(own)[0])
    return Index(head, list(texts), texts, above, defaults.named, whole)


def base_of(key: SectionKey, text: str, above: Defaults) -> Inherited:
    """Return what a section with this text inherits below those defaults sections."""
    if key.keyword not in _INHERITING:
        return Inherited()
    return above.base(key.keyword, name_of(words(text.partition("\n")[0]))[1])


def is_balanced(text: str) -> bool:
    """Return whether each ``.if`` of a section ends in it."""
    if ".if" not in text and ".endif" not in text:
        return True
    depth = 0
    for found in _CONDITION.finditer(text):
        depth += 1 if found[1] == "if" else -1
        if depth < 0:
            return False
    return depth == 0


_WITH_SERVERS = ("backend", "listen")


def keys_with_servers(index: Index) -> list[SectionKey]:
    """Return the sections that have servers of their own or may get some, in order: all but spares."""
    keys = (key for key in index.keys if key.keyword in _WITH_SERVERS and not key.position)
    return [key for key in keys if not (spare_kind(key.name) and is_spare_section(index.texts[key]))]


def keys_of(index: Index, backend: str) -> Iterator[SectionKey]:
    """Return the section of this name that may have servers, if there is one."""
    keys = [SectionKey(keyword, backend) for keyword in _WITH_SERVERS]
    return (key for key in keys if key in index.texts)


def configured_backend(index: Index, key: SectionKey) -> ConfiguredBackend | None:
    """Return the servers of a section; None where the text alone does not say which there are.

    That is so for ``server-template``, lines between ``.if`` and ``.endif``, names out of variables, two servers or
    sections of one name, and sections that are disabled.
    """
    section = index.section(key)
    if section is None or key._replace(position=1) in index.texts:
        return None
    unclear = {"disabled", "server-template"}
    if any(line.words[0] in unclear or (line.conditional and line.words[0] == "server") for line in section.lines):
        return None
    base = index.base(key)
    found = servers_of(section, base)
    servers = {server.name: server for server in found}
    if len(servers) != len(found) or any("$" in name for name in servers):
        return None
    return ConfiguredBackend(key.name, servers, takes_servers(section, base))
