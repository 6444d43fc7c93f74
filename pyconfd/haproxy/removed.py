"""Directives that HAProxy no longer knows, and what to write today.

python-confd, kube2lb, haproxy-kubefigurator and kubernetes-haproxy shipped templates with some of them. The versions
are those that HAProxy's own messages give, or the first one seen to refuse the line.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyconfd.errors import Clues, Problem
from pyconfd.haproxy.replacements import REMOVED, Entry, Replacement
from pyconfd.haproxy.sections import SECTION_KEYWORDS
from pyconfd.haproxy.words import Word, scan
from pyconfd.model.rendering import Piece, Rendering

Version = tuple[int, int]

OLDEST: Version = (2, 6)
"""The oldest HAProxy that pyconfd works with."""

_SHOWN = 120


def _written(entry: Entry) -> str:
    """Return a pattern of what such a line has in its text, to leave most lines unread."""
    return r"[ \t]+".join(map(re.escape, entry.words)) + (rf"[ \t].*{entry.part}" if entry.part else r"(?![^ \t\r\n])")


_CANDIDATE = rf"(?:(?:no|default)[ \t]+)?(?:{'|'.join(map(_written, REMOVED))})"
_HEADER = rf"(?:{'|'.join(sorted(SECTION_KEYWORDS))})(?![^ \t\r\n#])"
_ORDERED = r"(?:http-re|re[qs]|rsp|block)|[^ \t\n]*[\"'\\]"
_HAS_CANDIDATE = re.compile(rf"^[ \t]*{_CANDIDATE}", re.MULTILINE)
_LAST_HEADER = re.compile(rf"^[ \t]*({_HEADER})", re.MULTILINE)
_WORTH_READING = re.compile(rf"[ \t]*(?:{_CANDIDATE}|{_HEADER}|{_ORDERED})")
_RANKS = {"block": 0, "http-": 1, "req": 2, "rsp": 2}
_ADDS = 3
_ENDS_RULES = 4


@dataclass(frozen=True, slots=True)
class Removed:
    """A line with such a directive: its ``index`` among the lines, and since when HAProxy refuses it."""

    index: int
    text: str
    directive: str
    since: Version
    replacement: Replacement


def find_removed(rendering: Rendering, version: Version = OLDEST) -> tuple[Problem, ...]:
    """Return one problem for each removed directive of each fragment, for an HAProxy of ``version`` (major, minor).

    ``place`` is the fragment and the line in what it rendered to, ``message`` shows that line, ``remedy`` is the exact
    line to write instead, if there is one. Lines that repeat (a loop over domains) are counted, not listed.
    """
    problems: list[Problem] = []
    section = ""
    for piece in rendering.pieces:
        if _HAS_CANDIDATE.search(piece.text):
            grouped: dict[str, list[Removed]] = {}
            for found in find_in_lines(piece.text.split("\n"), section):
                if found.since <= version:
                    grouped.setdefault(found.directive, []).append(found)
            problems.extend(_problem(piece, each) for each in grouped.values())
        for header in _LAST_HEADER.finditer(piece.text):
            section = header[1]
    return tuple(problems)


def find_in_lines(lines: Sequence[str], section: str = "", *, repeated: bool = False) -> Iterator[Removed]:
    """Yield each removed directive of a configuration whose first lines belong to ``section``.

    A replacement is exact only where it keeps the order in which HAProxy 1.8 applied the rules of a section: ``block``,
    ``http-request``, ``req*``, and ``reqadd`` at last. ``repeated``: the lines are a template's and may stand in a
    loop, which brings the last before the first.
    """
    found: list[Removed] = []
    ranks: list[tuple[str, int, int]] = []
    for index, line in enumerate(lines):
        if not _WORTH_READING.match(line):
            continue
        words, doubt = scan(line)
        if not words:
            continue
        if words[0].value in SECTION_KEYWORDS:
            yield from _in_order(found, ranks, repeated=repeated)
            section, found, ranks = words[0].value, [], []
            continue
        if rank := _rank([word.value for word in words[:2]]):
            ranks.append((rank[0], index, rank[1]))
        if match := _match(words, section):
            found.append(each := Removed(index, line.strip(), *match))
            if doubt:  # an environment variable in the middle of a value
                found[-1] = _without_lines(each)
    yield from _in_order(found, ranks, repeated=repeated)


def _rank(values: list[str]) -> tuple[str, int] | None:
    """Return whether a line is about requests or responses, and when HAProxy 1.8 applied it."""
    direction = "rsp" if values[0].startswith(("rsp", "http-response")) else "req"
    if values in (["http-request", "allow"], ["http-response", "allow"]):
        return direction, _ENDS_RULES
    if values[0] in ("reqadd", "rspadd"):
        return direction, _ADDS
    return next(((direction, rank) for name, rank in _RANKS.items() if values[0].startswith(name)), None)


def _in_order(found: list[Removed], ranks: list[tuple[str, int, int]], *, repeated: bool) -> Iterator[Removed]:
    moved: set[int] = set()
    for direction in ("req", "rsp"):
        ordered = [(index, rank) for which, index, rank in ranks if which == direction]
        if repeated and len({rank for _, rank in ordered}) > 1:
            moved.update(index for index, _ in ordered)
        highest, lowest = 0, _ENDS_RULES
        for index, rank in ordered:
            moved.update([index] if rank < highest else [])
            highest = max(highest, rank)
        for index, rank in reversed(ordered):
            moved.update([index] if rank > lowest else [])
            lowest = min(lowest, rank)
    for each in found:
        yield _without_lines(each) if each.index in moved else each


def _without_lines(found: Removed) -> Removed:
    return replace(found, replacement=replace(found.replacement, lines=None))


def _match(words: list[Word], section: str) -> tuple[str, Version, Replacement] | None:
    values = [word.value for word in words]
    begin = 1 if values[:1] in (["no"], ["default"]) else 0
    for entry in REMOVED:
        end = begin + len(entry.words)
        if tuple(values[begin:end]) != entry.words or (section and section in entry.valid_in):
            continue
        if entry.applies(values[end:]):
            return " ".join(entry.words), entry.since, entry.replacement(words[end:], words[:begin])
    return None


def _problem(piece: Piece, findings: list[Removed]) -> Problem:
    first = findings[0]
    rendered = "" if piece.fragment.endswith(".conf") else "rendered "
    more = f" (and {len(findings) - 1} more such lines)" if len(findings) > 1 else ""
    return Problem(
        f"{piece.fragment} {rendered}line {first.index + 1}",
        f"{describe(first)}: {_shortened(first.text)}{more}",
        str(first.replacement),
        piece=piece.fragment,
        clues=Clues(lines=((piece.fragment, first.index + 1),)),
    )


def describe(found: Removed) -> str:
    """Return since when the directive is gone."""
    return f"HAProxy {'.'.join(map(str, found.since))} removed '{found.directive}'"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
