"""Text that the cluster supplied, judged before HAProxy sees it: ``haproxy -c`` itself runs ``lua-load``. Pure.

Only what :mod:`pyconfd.haproxy.allowed_words` lists passes; an unknown directive is refused, so one that a later
HAProxy adds is too. The text is read as HAProxy reads it, and whatever could be read in two ways is refused.

Source: the configuration manual of HAProxy, 2.2 (quoting), 2.3 (environment variables), 2.4 (conditional blocks).
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.allowed_lines import Found, Split, UnreadableLineError, of_line, split
from pyconfd.haproxy.allowed_words import LEFT_OUT, OTHER_SECTIONS, PROXIES
from pyconfd.haproxy.removed import Removed, describe, find_in_lines
from pyconfd.haproxy.sections import SECTION_KEYWORDS
from pyconfd.model.outcome import Step

_SHOWN = 100
_MOST_PROBLEMS = 20
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._/@+=-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What text from the cluster may reach.

    ``certificates`` are the directories of keys and certificates: HAProxy may load them, and nothing else may read
    them, for a file that is answered with or matched against would give a private key away. ``contents`` are the
    directories of all other files. ``allow`` are the operator's further names, as a refusal prints them.
    """

    certificates: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    allow: frozenset[str] = frozenset()

    def certificate_is_inside(self, path: str) -> bool:
        """Return whether HAProxy may load this as a certificate."""
        path = path.removesuffix("/")  # HAProxy loads whole directories, too
        return _is_plain(path) and _is_below(path, (*self.certificates, *self.contents))

    def content_is_inside(self, path: str) -> bool:
        """Return whether HAProxy may read this as anything else."""
        return _is_plain(path) and _is_below(path, self.contents) and not _is_below(path, self.certificates)


@dataclass(frozen=True, slots=True)
class Judged:
    """The text that may serve, and what was left out of it or written anew."""

    text: str
    notes: tuple[Problem, ...] = ()


def judge(place: str, text: str, boundaries: Boundaries) -> Judged:
    """Return ``text`` (rendered from ``place``) if everything in it is allowed.

    Directives of a process (``user``, ``daemon``) are left out, and those that HAProxy removed are replaced by what
    says the same today; both with a note. What is judged is the text that HAProxy will read, after all of that.

    Raises:
        RejectedInput: something is not allowed; each problem names the line, and how an operator allows more.
    """
    lines = text.split("\n")
    removed = {found.index: found for found in find_in_lines(lines)}
    adjusting = _Adjusting(place, boundaries, removed)
    for index, raw in enumerate(lines):
        adjusting.take(index, raw)
    final = "\n".join(adjusting.lines)
    judging = _Judging(place, boundaries, removed)
    for index, raw in zip(adjusting.origins, final.split("\n"), strict=True):
        judging.take(index, raw)
    if judging.problems:
        more = len(judging.problems) - _MOST_PROBLEMS
        kept = judging.problems[:_MOST_PROBLEMS]
        if more > 0:
            kept.append(Problem(place, f"and {more} more lines that are not allowed"))
        raise RejectedInput(*kept, step=Step.RENDER)
    return Judged(final, tuple(adjusting.notes))


class _Adjusting:
    """Writes the final text, with the index of the line that each of its lines comes from. Nothing is judged here."""

    def __init__(self, place: str, boundaries: Boundaries, removed: dict[int, Removed]) -> None:
        self._place = place
        self._boundaries = boundaries
        self._removed = removed
        self._section = ""
        self.lines: list[str] = []
        self.origins: list[int] = []
        self.notes: list[Problem] = []

    def take(self, index: int, raw: str) -> None:
        written = [raw]
        try:
            words = split(raw).words
        except UnreadableLineError:
            words = ()  # refused when it is judged
        if words and words[0] in SECTION_KEYWORDS:
            self._section = words[0]
        elif words and (name := self._left_out(words)):
            self._removed.pop(index, None)
            written = [f"    # {name}: left out by pyconfd, {LEFT_OUT[name]}"]
            self._note(index, raw, f"left out: {LEFT_OUT[name]}")
        elif words and (found := self._removed.get(index)) and found.replacement.is_exact:
            written = [f"    {line}" for line in found.replacement.texts()]
            self._note(index, raw, f"HAProxy removed it; {found.replacement}")
        for line in written:
            self.lines.append(line)
            self.origins += [index] * (line.count("\n") + 1)

    def _left_out(self, words: tuple[str, ...]) -> str:
        if self._section != "global":
            return ""
        name = next((name for name in LEFT_OUT if words[: name.count(" ") + 1] == tuple(name.split())), "")
        return "" if name in self._boundaries.allow else name

    def _note(self, index: int, raw: str, message: str) -> None:
        self.notes.append(Problem(f"{self._place} rendered line {index + 1}", f"{shown(raw)}: {message}"))


class _Judging:
    def __init__(self, place: str, boundaries: Boundaries, removed: Mapping[int, Removed]) -> None:
        self._place = place
        self._boundaries = boundaries
        self._removed = removed
        self._section = ""
        self.problems: list[Problem] = []

    def take(self, index: int, raw: str) -> None:
        number = index + 1
        found = self._removed.get(index)
        if found and not found.replacement.is_exact:
            self._refuse(number, raw, describe(found), str(found.replacement))
            return
        try:
            line = split(raw)
        except UnreadableLineError as error:
            self._refuse(number, raw, str(error), "write the line without it; no setting allows this")
            return
        if line.words and line.words[0] in SECTION_KEYWORDS:
            self._header(number, line)
        elif line.words:
            self._judge(number, line)

    def _header(self, number: int, line: Split) -> None:
        keyword, *rest = line.words
        self._section = keyword
        if keyword not in {"global", *PROXIES, *OTHER_SECTIONS, *self._boundaries.allow}:
            self._deny(number, line, Found(keyword, f"the section '{keyword}'"))
        if keyword == "global":
            wrong = bool(rest)
        else:
            has_name = keyword != "defaults" or rest[:1] not in ([], ["from"])
            names, options = (rest[:1], rest[1:]) if has_name else ([], rest)
            wrong = (has_name and not names) or not (options == [] or (options[0] == "from" and len(options) == 2))
            wrong = wrong or any(not _NAME.fullmatch(name) for name in [*names, *options[1:]])
        if wrong:
            self._refuse(number, line.raw, "not a header of a section", "write KEYWORD NAME or KEYWORD NAME from NAME")

    def _judge(self, number: int, line: Split) -> None:
        if not self._section:
            self._refuse(number, line.raw, "it stands before the first section", "begin with global or defaults")
            return
        if self._section in self._boundaries.allow:
            return
        for found in _asked_for(self._section, line.words):
            if (found.path and self._path_is_inside(found)) or found.name in self._boundaries.allow:
                continue
            self._deny(number, line, found)
            return

    def _path_is_inside(self, found: Found) -> bool:
        if found.certificate:
            return self._boundaries.certificate_is_inside(found.path)
        return self._boundaries.content_is_inside(found.path)

    def _deny(self, number: int, line: Split, found: Found) -> None:
        if found.path:
            inside = self._boundaries.contents
            if found.certificate:
                inside = (*self._boundaries.certificates, *inside)
            remedy = (
                f"use a file below {' or '.join(inside)}" if inside else "declare the file in a fragment of your own"
            )
            remedy += "; an operator can name more with cluster_templates.directories"
            self._refuse(number, line.raw, f"{found.what} is outside the allowed directories", remedy)
        elif found.name:
            remedy = f'an operator can allow it by name: cluster_templates.allow = ["{found.name}"]'
            self._refuse(number, line.raw, f"{found.what} is not allowed in text from the cluster", remedy)
        else:
            self._refuse(number, line.raw, found.what, "correct it in the template; no setting allows this")

    def _refuse(self, number: int, raw: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(f"{self._place} rendered line {number}", f"{message}: {shown(raw)}", remedy))


@lru_cache(maxsize=65_536)
def _asked_for(section: str, words: tuple[str, ...]) -> tuple[Found, ...]:
    """Remember lines: when one service changes, all others are as they were."""
    return tuple(of_line(section, words))


def shown(raw: str) -> str:
    """Return a line fit to be printed: without control characters, and not longer than a terminal is wide."""
    text = raw.strip().encode("unicode_escape").decode("ascii").replace("\\\\", "\\")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_plain(path: str) -> bool:
    return bool(_PATH.fullmatch(path)) and posixpath.normpath(path) == path and not path.startswith("//")


def _is_below(path: str, directories: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in directories if each)
