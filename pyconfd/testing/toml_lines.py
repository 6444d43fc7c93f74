"""Where the values of a TOML document stand: tomllib says what is in it, not on which line. Pure; never raises."""

import re
from collections.abc import Iterator

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


class TomlLines:
    """The lines, from 1, of a document's tables, keys and items of arrays; of what is not TOML they may be wrong."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._table: Path = ()
        self._words: list[str] = []
        """The words of a header, or of a key up to its ``=``."""
        self._key: Path | None = None
        """Whose value is read; None before the ``=``."""
        self._depth = self._item = 0
        self._is_array = False
        for word, line in _split(text):
            self._take(word, line)

    def line(self, *path: str | int) -> int:
        """Return the line of a value, or of the nearest one around it; 1 where nothing is known."""
        return next((self._lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._lines), 1)

    def _take(self, word: str, line: int) -> None:
        if self._key is not None:
            self._take_value(self._key, word, line)
        elif word == "\n":
            self._end_header(line)
        elif word == "=" and self._words[:1] != ["["]:
            self._key = (*self._table, *(_name(word) for word in self._words if word != "."))
            for length in range(len(self._table) + 1, len(self._key) + 1):
                self._lines.setdefault(self._key[:length], line)
            self._words, self._depth, self._item, self._is_array = [], 0, -1, False
        else:
            self._words.append(word)

    def _take_value(self, key: Path, word: str, line: int) -> None:
        if word == "\n":
            self._key = key if self._depth else None
            return
        if self._depth == 0:
            self._is_array = word == "["
            self._item = 0
        elif self._depth == 1 and self._is_array and word == ",":
            self._item += 1
        elif self._depth == 1 and self._is_array and word != "]":
            self._lines.setdefault((*key, self._item), line)
        self._depth += (word in {"[", "{"}) - (word in {"]", "}"})

    def _end_header(self, line: int) -> None:
        words, self._words = self._words, []
        if words[:1] != ["["]:
            return
        names = [_name(word) for word in words if word not in {"[", "]", "."}]
        path: Path = ()
        for position, name in enumerate(names):
            path = (*path, name)
            if position == len(names) - 1 and words[:2] == ["[", "["]:
                path = (*path, self._count(path))
            elif (*path, 0) in self._lines:
                path = (*path, self._count(path) - 1)
        self._table = path
        self._lines.setdefault(path, line)

    def _count(self, path: Path) -> int:
        number = 0
        while (*path, number) in self._lines:
            number += 1
        return number


def _split(text: str) -> Iterator[tuple[str, int]]:
    line = 1
    for found in _WORD.finditer(text):
        word = found[0]
        if word == "\n" or not (word.isspace() or word.startswith("#")):
            yield word, line
        line += word.count("\n")


def _name(word: str) -> str:
    return word[1:-1] if word[:1] in {'"', "'"} else word
