"""Directives that HAProxy no longer knows, and what to write today.

python-confd, kube2lb, haproxy-kubefigurator and kubernetes-haproxy shipped templates with some of them. The versions
are those that HAProxy's own messages give, or the first one seen to refuse the line.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from pyconfd.errors import Clues, Problem
from pyconfd.haproxy.replacements import REMOVED, Replacement
from pyconfd.haproxy.words import Word, split_words
from pyconfd.model.rendering import Piece, Rendering

Version = tuple[int, int]

OLDEST: Version = (2, 6)
"""The oldest HAProxy that pyconfd works with."""

_SHOWN = 120
_HEADER = re.compile(r"^[ \t]*(global|defaults|frontend|backend|listen|peers|resolvers|userlist)\b", re.MULTILINE)
_FIRST_WORDS = "|".join(sorted({re.escape(entry.words[0]) for entry in REMOVED}))
_CANDIDATE = re.compile(rf"^[ \t]*(?:(?:no|default)[ \t]+)?(?:{_FIRST_WORDS})(?![^ \t\n]).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Finding:
    line: int
    text: str
    directive: str
    since: Version
    replacement: Replacement


def find_removed(rendering: Rendering, version: Version = OLDEST) -> tuple[Problem, ...]:
    """Give one problem for each removed directive of each fragment, for an HAProxy of ``version`` (major, minor).

    ``place`` is the fragment and the line in what it rendered to, ``message`` shows that line, ``remedy`` is the exact
    line to write instead. Lines that repeat (a loop over domains) are counted, not listed.
    """
    problems: list[Problem] = []
    section = ""
    for piece in rendering.pieces:
        headers = [(found.start(), found[1]) for found in _HEADER.finditer(piece.text)]
        grouped: dict[str, list[_Finding]] = {}
        for finding in _findings(piece.text, headers, section, version):
            grouped.setdefault(finding.directive, []).append(finding)
        problems.extend(_problem(piece, findings) for findings in grouped.values())
        section = headers[-1][1] if headers else section
    return tuple(problems)


def replacement_for(line: str, section: str = "") -> Replacement | None:
    """Give what to write instead of ``line``, if any version of HAProxy removed its directive.

    ``section`` is the word that began its section; "" if it is not known.
    """
    found = _match(split_words(line), section)
    return found[2] if found else None


def _findings(text: str, headers: list[tuple[int, str]], section: str, version: Version) -> Iterator[_Finding]:
    line, counted = 1, 0
    for candidate in _CANDIDATE.finditer(text):
        before = bisect_right(headers, candidate.start(), key=lambda header: header[0])
        found = _match(split_words(candidate[0]), headers[before - 1][1] if before else section)
        if found is None or found[1] > version:
            continue
        line += text.count("\n", counted, candidate.start())
        counted = candidate.start()
        yield _Finding(line, candidate[0].strip(), *found)


def _match(words: list[Word], section: str) -> tuple[str, Version, Replacement] | None:
    values = [word.value for word in words]
    negated = values[:1] == ["no"]
    begin = 1 if values[:1] in (["no"], ["default"]) else 0
    for entry in REMOVED:
        end = begin + len(entry.words)
        if tuple(values[begin:end]) != entry.words or (section and section in entry.valid_in):
            continue
        replacement = Replacement() if negated else entry.replace(words[end:])
        if replacement is not None:
            return " ".join(entry.words), entry.since, replacement
    return None


def _problem(piece: Piece, findings: list[_Finding]) -> Problem:
    first = findings[0]
    rendered = "" if piece.fragment.endswith(".conf") else "rendered "
    version = ".".join(map(str, first.since))
    shown = first.text if len(first.text) <= _SHOWN else f"{first.text[: _SHOWN - 3]}..."
    more = f" (and {len(findings) - 1} more such lines)" if len(findings) > 1 else ""
    return Problem(
        f"{piece.fragment} {rendered}line {first.line}",
        f"HAProxy {version} removed '{first.directive}': {shown}{more}",
        str(first.replacement),
        piece=piece.fragment,
        clues=Clues(lines=((piece.fragment, first.line),)),
    )
