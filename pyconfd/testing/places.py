"""Where the values of a TOML document stand: tomllib says what is in it, not on which line. Pure; never raises."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""Keys, and indexes of arrays from 0: ``("test", 1, "expect", 0)``."""

_WORD = re.compile(
    r'"{3}(?:\\.|[^\\])*?"{3,5}'
    r"|'{3}.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*|\n|[\[\]{},=.]|[^\S\n]+|[^\s\[\]{},=.\"'#]+|.",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Places:
    """The lines, from 1, of the tables, keys and items of arrays of one document."""

    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, *path: str | int) -> int:
        """Return the line of a value, or of the nearest one around it; 1 where nothing is known."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


def places(text: str) -> Places:
    """Read a TOML document that tomllib takes; of any other text the lines may be wrong."""
    scan = _Scan()
    for word, line in _split(text):
        scan.take(word, line)
    return Places(scan.lines)


def _split(text: str) -> Iterator[tuple[str, int]]:
    line = 1
    for found in _WORD.finditer(text):
        word = found[0]
        if word == "\n" or not (word.isspace() or word.startswith("#")):
            yield word, line
        line += word.count("\n")


def _name(word: str) -> str:
    return word[1:-1] if word[:1] in {'"', "'"} else word


@dataclass(slots=True)
class _Scan:
    lines: dict[Path, int] = field(default_factory=dict)
    table: Path = ()
    words: list[str] = field(default_factory=list)
    """The words of a header, or of a key up to its ``=``."""
    key: Path | None = None
    """Whose value is read; None before the ``=``."""
    depth: int = 0
    item: int = 0
    is_array: bool = False

    def take(self, word: str, line: int) -> None:
        if self.key is not None:
            self._take_value(word, line)
        elif word == "\n":
            self._end_header(line)
        elif word == "=" and self.words[:1] != ["["]:
            self.key = (*self.table, *(_name(word) for word in self.words if word != "."))
            for length in range(len(self.table) + 1, len(self.key) + 1):
                self.lines.setdefault(self.key[:length], line)
            self.words, self.depth, self.item, self.is_array = [], 0, -1, False
        else:
            self.words.append(word)

    def _take_value(self, word: str, line: int) -> None:
        assert self.key is not None  # noqa: S101 - the only caller has looked
        if word == "\n":
            if self.depth == 0:
                self.key = None
            return
        if self.depth == 0:
            self.is_array = word == "["
            self.item = 0
        elif self.depth == 1 and self.is_array and word == ",":
            self.item += 1
        elif self.depth == 1 and self.is_array and word != "]":
            self.lines.setdefault((*self.key, self.item), line)
        self.depth += (word in {"[", "{"}) - (word in {"]", "}"})

    def _end_header(self, line: int) -> None:
        words, self.words = self.words, []
        if words[:1] != ["["]:
            return
        names = [_name(word) for word in words if word not in {"[", "]", "."}]
        path: Path = ()
        for position, name in enumerate(names):
            path = (*path, name)
            if position == len(names) - 1 and words[:2] == ["[", "["]:
                path = (*path, self._count(path))
            elif (*path, 0) in self.lines:
                path = (*path, self._count(path) - 1)
        self.table = path
        self.lines.setdefault(path, line)

    def _count(self, path: Path) -> int:
        number = 0
        while (*path, number) in self.lines:
            number += 1
        return number
