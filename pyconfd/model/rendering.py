"""What the fragments gave: ordered pieces of text and the files beside them."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property


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


class FileKind(StrEnum):
    """The files that a rendering may declare; the value is their folder below ``haproxy.files_dir``."""

    CERTIFICATE = "certs"
    MAP = "maps"


@dataclass(frozen=True, slots=True, order=True)
class OutputFile:
    """A file that the rendered text refers to by ``path`` (absolute); installed before the configuration.

    ``content`` of a certificate is secret: it is never logged, shown or kept in the history.
    """

    kind: FileKind
    path: str
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """The text that one fragment gave. It ends with a newline unless it is empty."""

    fragment: str
    text: str


@dataclass(frozen=True)
class Rendering:
    """The pieces in order and the declared files sorted by path: all that HAProxy will read."""

    pieces: tuple[Piece, ...]
    files: tuple[OutputFile, ...] = ()

    @cached_property
    def text(self) -> str:
        """The whole configuration, without the marker that the applier appends."""
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (64 hexadecimal digits) over the text and the files; two renderings with one digest are the same."""
        total = hashlib.sha256(self.text.encode())
        for file in self.files:
            total.update(f"\0{file.path}\0".encode())
            total.update(file.content.encode())
        return total.hexdigest()

    def place_of(self, line: int) -> tuple[str, int]:
        """Give the fragment and the line in its rendered text that hold ``line`` (from 1) of :attr:`text`.

        A line beyond the end belongs to ``("", line)``.
        """
        first = 1
        for piece in self.pieces:
            count = piece.text.count("\n")
            if line < first + count:
                return piece.fragment, line - first + 1
            first += count
        return "", line
