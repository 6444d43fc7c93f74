"""What the fragments gave: ordered pieces of text and the files beside them."""

import hashlib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import chain, compress, count, islice
from operator import ne
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.reservation import Owners

FRAGMENT_SUFFIXES = (".conf", ".tmpl")
INCLUDABLE_SUFFIXES = (*FRAGMENT_SUFFIXES, ".cfg", ".inc", ".j2", ".jinja", ".jinja2")
"""The names of files that templates may include or import."""

_NOTED = re.compile(r"^# certificate (\S+) sha256 ([0-9a-f]{64})$", re.MULTILINE)
_NOTES = 1 << 20
"""The notes stand at the end of a text, in its last MiB."""


def noted_certificate(path: str, content: str) -> str:
    """Return a comment that names a certificate which is not part of a rendering, so that a renewed one is a change."""
    return f"# certificate {path} sha256 {hashlib.sha256(content.encode()).hexdigest()}\n"


def noted_certificates(text: str) -> dict[str, str]:
    """Return the digests of the certificates that such comments at the end of ``text`` name, by path."""
    return dict(_NOTED.findall(text, max(0, len(text) - _NOTES)))


_NUMBERS = re.compile(rb"[0-9]+|[^0-9]", re.DOTALL)
_DIGITS_AT = 0x30
"""Where a number stands among the other characters: at the digits, as in ASCII."""


def _natural_rank(name: str) -> tuple[tuple[tuple[int, int], ...], bytes]:
    raw = name.encode("utf-8", "surrogateescape")
    runs = tuple((_DIGITS_AT, int(run)) if run.isdigit() else (run[0], 0) for run in _NUMBERS.findall(raw))
    return runs, raw


def natural_order(names: Iterable[str]) -> list[str]:
    """Return ``names`` in the order in which their fragments are joined: ``9-tcp`` before ``10-stats``.

    Names are compared from left to right as UTF-8 bytes, upper case before lower case, except that a run of the
    digits 0 to 9 counts as one number, of any length; a number stands where its digits stand in ASCII. Names that
    are then still equal (``1-a`` and ``01-a``) are compared by their bytes. The order is total and does not depend
    on the locale, the file system or the order of ``names``.
    """
    return sorted(names, key=_natural_rank)


def order_differs(names: Sequence[str]) -> bool:
    """Return whether python-confd, which compared bytes only, joined these fragments in another order."""
    return natural_order(names) != sorted(names, key=lambda name: name.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class Fragment:
    """One file of the template directory; ``name`` is relative to it, with ``/``."""

    name: str
    text: str

    @property
    def is_template(self) -> bool:
        """True for ``*.tmpl``, which Jinja renders; ``*.conf`` is taken as it is."""
        return self.name.endswith(".tmpl")


@dataclass(frozen=True, slots=True)
class FragmentSet:
    """``fragments`` in natural order; ``includable`` holds what else a template may include or import, by name."""

    fragments: tuple[Fragment, ...]
    includable: tuple[Fragment, ...] = ()

    @property
    def digest(self) -> str:
        """What tells these fragments from others, on any machine."""
        found = hashlib.sha256()
        for each in (*self.fragments, *self.includable):
            found.update(f"{each.name}\0{each.text}\0".encode())
        return found.hexdigest()[:16]


class FileKind(StrEnum):
    """The files that a rendering may declare; the value is their folder below ``haproxy.files_dir``."""

    CERTIFICATE = "certs"
    MAP = "maps"


SECRETS_FOLDER = "secrets"
"""Holds the certificates of tenants: a bind that loads all of ``certs`` has none of them."""

FOLDERS = (*(kind.value for kind in FileKind), SECRETS_FOLDER)
"""All folders below ``haproxy.files_dir``."""


@dataclass(frozen=True, slots=True, order=True)
class OutputFile:
    """A file that the rendered text refers to by ``path`` (absolute); installed before the configuration.

    ``content`` of a certificate is secret: it is never logged, shown or kept in the history.
    """

    kind: FileKind
    path: str
    content: str = field(repr=False)


class Run(NamedTuple):
    """Blocks of a piece, from ``start`` to ``end``, that stand where another one has those from ``old_start``."""

    start: int
    end: int
    old_start: int
    old_end: int


class Piece:
    """The text that one fragment gave, as the ``blocks`` it is made of. It ends with a newline unless it is empty.

    It is never changed. A block that nothing changed is the same object in the next rendering, so that comparing blocks
    compares identities; and a piece that was made of another one knows where they differ. Two pieces are equal if
    fragment and text are, wherever their blocks begin.
    """

    def __init__(self, fragment: str, *blocks: str) -> None:
        self.fragment = fragment
        self.blocks = blocks
        self.mark = object()  # stands for this piece, and keeps nothing alive
        self._since: tuple[object, list[Run]] | None = None

    def with_blocks(self, replaced: Mapping[int, str]) -> "Piece":
        """Return the same with other blocks in some places."""
        blocks = list(self.blocks)
        for place, block in replaced.items():
            blocks[place] = block
        made = Piece(self.fragment, *blocks)
        made._since = self.mark, [Run(place, place + 1, place, place + 1) for place in sorted(replaced)]
        return made

    def runs_since(self, former: "Piece") -> list[Run]:
        """Return which blocks came, changed or went since ``former``, in order; those between are the same."""
        if self._since is None or self._since[0] is not former.mark:
            self._since = former.mark, runs_of(former.blocks, self.blocks)
        return self._since[1]

    @cached_property
    def text(self) -> str:
        """The blocks joined; only what needs the whole text asks for it."""
        return self.blocks[0] if len(self.blocks) == 1 else "".join(self.blocks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Piece):
            return NotImplemented
        return self is other or (self.fragment == other.fragment and _same_text([self.blocks], [other.blocks]))

    def __hash__(self) -> int:
        return hash((self.fragment, self.text))

    def __repr__(self) -> str:
        return f"Piece({self.fragment!r}, {self.text!r})"


@dataclass(frozen=True)
class Rendering:
    """The pieces in order and the declared files sorted by path: all that HAProxy will read.

    ``inputs`` is the digest of the fragments and settings that gave it, "" where those are not kept; ``owners`` has, by
    preset, the owner of each name.
    """

    pieces: tuple[Piece, ...]
    files: tuple[OutputFile, ...] = ()
    inputs: str = field(default="", compare=False)
    owners: Mapping[str, Owners] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The whole configuration, without the marker that the applier appends."""
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (64 hexadecimal digits) over the text and the files; two renderings with one digest are the same.

        It takes time in proportion to the whole text: to find out whether two renderings differ, ask :meth:`same_as`.
        """
        total = hashlib.sha256(self.text.encode())
        for file in self.files:
            total.update(f"\0{file.path}\0".encode())
            total.update(file.content.encode())
        return total.hexdigest()

    def same_as(self, other: "Rendering") -> bool:
        """Return whether HAProxy reads the same: text and files are equal, whatever the fragments are called.

        It is so where the digests are equal; but nothing is joined, and what is the same object is not read.
        """
        if self is other:
            return True
        if self.files != other.files or _differ_at_once(self.pieces, other.pieces):
            return False
        own, others = ([piece.blocks for piece in one.pieces] for one in (self, other))
        number = _first_difference(own, others)
        return _same_text(own[number:], others[number:])

    def place_of(self, line: int) -> tuple[str, int]:
        """Return the fragment and the line in its rendered text that hold ``line`` (from 1) of :attr:`text`.

        A line beyond the end belongs to ``("", line)``.
        """
        first = 1
        for piece in self.pieces:
            count = piece.text.count("\n")
            if line < first + count:
                return piece.fragment, line - first + 1
            first += count
        return "", line


def _differ_at_once(own: Sequence[Piece], others: Sequence[Piece]) -> bool:
    """Return whether the first block that differs shows that the texts do; False where that is not known."""
    for one, other in zip(own, others, strict=False):
        if one is other:
            continue
        for run in other.runs_since(one)[:1]:
            block, its = one.blocks[run.old_start : run.old_end], other.blocks[run.start : run.end]
            return bool(block and its) and not (block[0].startswith(its[0]) or its[0].startswith(block[0]))
        return False
    return False


_STEP = 256


def _first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the first place where two sequences differ, or where the shorter one ends."""
    return next(differences(one, other), min(len(one), len(other)))


def differences(one: Sequence[Any], other: Sequence[Any]) -> Iterator[int]:
    """Return the places where two sequences differ, up to where the shorter one ends."""
    for start in range(0, min(len(one), len(other)), _STEP):
        # Slices are compared far faster than item by item, above all where the items are the same objects.
        part, its = one[start : start + _STEP], other[start : start + _STEP]
        if part != its:
            yield from compress(count(start), map(ne, part, its))


def runs_of(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Run]:
    """Return where two sequences differ. What moved counts as one that went and came."""
    start = _first_difference(old, new)
    tail = min(_first_difference(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    end, old_end = len(new) - tail, len(old) - tail
    known = {block: place for place, block in enumerate(old[start:old_end], start)}
    runs: list[Run] = []
    at, old_at = start, start
    for place, block in enumerate(new[start:end], start):
        if (found := known.get(block, -1)) < old_at:
            continue
        if (place, found) != (at, old_at):
            runs.append(Run(at, place, old_at, found))
        at, old_at = place + 1, found + 1
    if (at, old_at) != (end, old_end):
        runs.append(Run(at, end, old_at, old_end))
    return runs


def _same_text(own: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> bool:
    """Return whether two sequences of sequences of blocks make the same text; nothing is joined.

    Where the blocks have the same boundaries, the first that differs decides.
    """
    first = _first_difference(own[0], others[0]) if own and others else 0
    mine, his = (islice(chain.from_iterable(each), first, None) for each in (own, others))
    block, at = "", 0
    for text in his:
        position = 0
        while position < len(text):
            while at == len(block):
                if (following := next(mine, None)) is None:
                    return False
                block, at = following, 0
            size = min(len(block) - at, len(text) - position)
            if not block.startswith(text if size == len(text) else text[position : position + size], at):
                return False
            position += size
            at += size
    return at == len(block) and not any(mine)
