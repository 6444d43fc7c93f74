"""Text of a Go template to tokens.

Source: documentation of Go's ``text/template`` ("Text and spaces", "Actions", "Variables") and the Go specification
(literals).
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum, auto


class TokenKind(Enum):
    """What a token is; ``FIELD`` and ``VARIABLE`` carry their ``.`` and ``$``."""

    TEXT = auto()
    COMMENT = auto()
    OPEN = auto()
    CLOSE = auto()
    IDENTIFIER = auto()
    KEYWORD = auto()
    BOOL = auto()
    NUMBER = auto()
    CHAR = auto()
    STRING = auto()
    FIELD = auto()
    VARIABLE = auto()
    DOT = auto()
    NIL = auto()
    DECLARE = auto()
    ASSIGN = auto()
    PIPE = auto()
    COMMA = auto()
    LEFT = auto()
    RIGHT = auto()
    END = auto()


KEYWORDS = frozenset({"block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"})
SPACES = " \t\r\n"
"""What a trim marker removes."""


@dataclass(frozen=True, slots=True)
class Token:
    """``value`` is the text as written (of TEXT: after trimming, ``raw`` before); ``spaced``: blanks stand before it.

    Of TEXT, ``trim_left`` tells that the tag before trims it, ``trim_right`` that the tag after does.
    """

    kind: TokenKind
    value: str
    at: int
    spaced: bool = False
    raw: str = ""
    trim_left: bool = False
    trim_right: bool = False


class GoTemplateError(ValueError):
    """A text that Go would not parse: ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(f"line {line} column {column}: {message}")


class Places:
    """Offsets of a text to lines and columns."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def line(self, at: int) -> int:
        """Return the line of an offset, from 1."""
        return bisect_right(self._starts, at)

    def error(self, message: str, at: int) -> GoTemplateError:
        """Return the error for an offset."""
        line = self.line(at)
        return GoTemplateError(message, line, at - self._starts[line - 1] + 1)


_COMMENT = re.compile(r"/\*(.*?)\*/([ \t\r\n]-)?\}\}", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`')
_CHAR = re.compile(r"'(?:[^'\\\n]|\\[^\n])+'")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]+)?|0[oO][0-7_]*|0[bB][01_]*"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]+)?)i?"
)
_WORD = re.compile(r"\w*")
_SINGLE = {"|": TokenKind.PIPE, ",": TokenKind.COMMA, "(": TokenKind.LEFT, ")": TokenKind.RIGHT, "=": TokenKind.ASSIGN}


def lex(text: str) -> list[Token]:
    """Return the tokens of a template, END last.

    Raises:
        GoTemplateError: Go would refuse the text here.

    """
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._places = Places(text)
        self._tokens: list[Token] = []

    def run(self) -> list[Token]:
        at, trims = 0, False
        while True:
            begin = self._text.find("{{", at)
            end = len(self._text) if begin < 0 else begin
            opens_trimmed = begin >= 0 and self._is_trim_marker(begin + 2)
            self._add_text(at, end, left=trims, right=opens_trimmed)
            if begin < 0:
                self._add(TokenKind.END, "", end)
                return self._tokens
            at, trims = self._action(begin, begin + (4 if opens_trimmed else 2))

    def _is_trim_marker(self, at: int) -> bool:
        return self._text.startswith("-", at) and self._text[at + 1 : at + 2] in tuple(SPACES)

    def _add_text(self, begin: int, end: int, *, left: bool, right: bool) -> None:
        raw = self._text[begin:end]
        value = raw.lstrip(SPACES) if left else raw
        value = value.rstrip(SPACES) if right else value
        if raw:
            self._tokens.append(Token(TokenKind.TEXT, value, begin, False, raw, left, right))

    def _add(self, kind: TokenKind, value: str, at: int, *, spaced: bool = False) -> None:
        self._tokens.append(Token(kind, value, at, spaced))

    def _action(self, begin: int, at: int) -> tuple[int, bool]:
        """Read one action; give where the text goes on, and whether it is trimmed there."""
        if self._text.startswith("/*", at):
            found = _COMMENT.match(self._text, at)
            if found is None:
                closed = self._text.find("*/", at) >= 0
                raise self._places.error("comment ends before closing delimiter" if closed else "unclosed comment", at)
            self._add(TokenKind.COMMENT, found[1], begin)
            return found.end(), bool(found[2])
        self._add(TokenKind.OPEN, "{{", begin)
        depth, spaced = 0, False
        while True:
            closing, trims = self._closing(at)
            if closing:
                if depth:
                    raise self._places.error("unclosed left paren", at)
                self._add(TokenKind.CLOSE, "}}", at, spaced=spaced)
                return closing, trims
            if at >= len(self._text):
                raise self._places.error("unclosed action", begin)
            if self._text[at] in SPACES:
                at, spaced = at + 1, True
                continue
            kind, end = self._token(at)
            depth += (kind is TokenKind.LEFT) - (kind is TokenKind.RIGHT)
            if depth < 0:
                raise self._places.error("unexpected right paren", at)
            self._add(kind, self._text[at:end], at, spaced=spaced)
            at, spaced = end, False

    def _closing(self, at: int) -> tuple[int, bool]:
        """Return the end of the right delimiter at ``at`` and whether it trims; 0 if there is none."""
        if self._text.startswith("}}", at):
            return at + 2, False
        if self._text[at : at + 1] in tuple(SPACES) and self._text.startswith("-}}", at + 1):
            return at + 4, True
        return 0, False

    def _token(self, at: int) -> tuple[TokenKind, int]:
        char = self._text[at]
        if self._text.startswith(":=", at):
            return TokenKind.DECLARE, at + 2
        if char in _SINGLE:
            return _SINGLE[char], at + 1
        if char in '"`':
            return TokenKind.STRING, self._matched(_STRING, at, "unterminated quoted string")
        if char == "'":
            return TokenKind.CHAR, self._matched(_CHAR, at, "unterminated character constant")
        following = self._text[at + 1 : at + 2]
        is_digit = char in "0123456789"
        if is_digit or char in "+-" or (char == "." and following in tuple("0123456789")):
            return TokenKind.NUMBER, self._number(at)
        if char in {".", "$", "_"} or char.isalpha():
            return self._name(at, char)
        raise self._places.error(f"unexpected character {char!r} in an action", at)

    def _matched(self, pattern: re.Pattern[str], at: int, message: str) -> int:
        found = pattern.match(self._text, at)
        if found is None:
            raise self._places.error(message, at)
        return found.end()

    def _number(self, at: int) -> int:
        found = _NUMBER.match(self._text, at)
        end = found.end() if found else at
        if end < len(self._text) and (self._text[end].isalnum() or self._text[end] == "_"):
            raise self._places.error(f"bad number syntax: {self._text[at : end + 1]!r}", at)
        return end

    def _name(self, at: int, char: str) -> tuple[TokenKind, int]:
        found = _WORD.match(self._text, at + 1)
        end = found.end() if found else at + 1
        if not self._terminates(end):
            raise self._places.error(f"bad character {self._text[end]!r}", end)
        word = self._text[at:end]
        if char == ".":
            return (TokenKind.DOT if len(word) == 1 else TokenKind.FIELD), end
        if char == "$":
            return TokenKind.VARIABLE, end
        if word in KEYWORDS:
            return TokenKind.KEYWORD, end
        named = {"true": TokenKind.BOOL, "false": TokenKind.BOOL, "nil": TokenKind.NIL}
        return named.get(word, TokenKind.IDENTIFIER), end

    def _terminates(self, at: int) -> bool:
        return at >= len(self._text) or self._text[at] in " \t\r\n.,|:)(" or self._text.startswith("}}", at)
