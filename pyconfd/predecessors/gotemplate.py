"""Parser of Go templates (``text/template``), for the part of the language that kube2lb's users write.

Text with trim markers, comments, fields, variables (``:=``), pipelines, parentheses, strings, whole numbers, ``true``
and ``false``, ``if`` with ``else if`` and ``else``, ``range`` and ``with``. Anything else is a GoTemplateError that
names the line and what to write instead.

Source: Go's documentation of package text/template.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_DEPTH = 60
"""How deep actions and parentheses may nest; deeper ones would exhaust the interpreter's stack."""


class GoTemplateError(ValueError):
    """Something that cannot be read or translated at a line, counted from 1."""

    def __init__(self, message: str, line: int) -> None:
        self.message, self.line = message, line
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text: ``value`` after trimming, ``raw`` before; the tags beside it trim it or not."""

    value: str
    raw: str
    trim_left: bool = False
    trim_right: bool = False


@dataclass(frozen=True, slots=True)
class Comment:
    """``{{/* ... */}}``."""

    value: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: str | int | bool
    line: int


@dataclass(frozen=True, slots=True)
class Dot:
    """``.``, or ``$`` if ``is_root``."""

    line: int
    is_root: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """The use of a variable, by its name without ``$``."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Field:
    """``base.name``."""

    base: "Value"
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments; what is piped into it is the last one."""

    function: str
    arguments: tuple["Value", ...]
    line: int


Value = Literal | Dot | Variable | Field | Call


@dataclass(frozen=True, slots=True)
class GoAction:
    """``{{ value }}`` or ``{{ $declared := value }}``."""

    value: Value
    source: str
    line: int
    declared: str | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """``if``, ``with`` or ``range``; ``is_chained``: it is an ``else if``, alone in the ``otherwise`` of another."""

    keyword: str
    value: Value
    declared: tuple[str, ...]
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...] | None
    source: str
    line: int
    is_chained: bool = False


Node = Text | Comment | GoAction | Branch


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    is_spaced: bool = False
    """Blanks stand before it: ``.a .b`` are two operands, ``.a.b`` is one."""
    node: Text | Comment | None = None
    """What stands between actions; an action has a token ``open``, its own, and ``close``."""


_BLANKS = " \t\r\n"
_OPEN = re.compile(r"\{\{(?:-(?=[ \t\r\n]))?")
_COMMENT = re.compile(r"[ \t\r\n]*/\*(.*?)\*/([ \t\r\n]*-)?[ \t\r\n]*\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<close>[ \t\r\n]*(?:(?<=[ \t\r\n])-)?\}\})
    | (?P<blank>[ \t\r\n]+)
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)
    | (?P<number>[+-]?(?:0|[1-9][0-9]{0,17})(?![\w.]))
    | (?P<field>\.[^\W\d]\w*)
    | (?P<dot>\.(?!\d))
    | (?P<variable>\$\w*)
    | (?P<word>[^\W\d]\w*)
    | (?P<mark>:=|[=|,()])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}
_KEYWORDS = {
    "block": "write its text here",
    "break": "put an {{ if }} around what shall be left out",
    "continue": "put an {{ if }} around what shall be left out",
    "define": "write its text where it is used",
    "template": "write the text of that template here",
    "nil": "compare with the empty value of the type, or use {{ if }}",
}
"""What kube2lb's own Go did not have, or nobody uses, and what does the same."""


def parse(text: str) -> tuple[Node, ...]:
    """Return the nodes of a template.

    Raises:
        GoTemplateError: something is wrong, or is not a part of the language that is read here.

    """
    return _Parser(text).parse()


def _lex(text: str) -> Iterator[_Token]:
    at, line, trims = 0, 1, False
    while True:
        opening = _OPEN.search(text, at)
        end = opening.start() if opening else len(text)
        if raw := text[at:end]:
            trims_right = opening is not None and opening[0].endswith("-")
            value = raw.lstrip(_BLANKS) if trims else raw
            value = value.rstrip(_BLANKS) if trims_right else value
            yield _Token("text", raw, line, node=Text(value, raw, trims, trims_right))
        line += raw.count("\n")
        if opening is None:
            yield _Token("end of the text", "", line)
            return
        at = opening.end()
        if comment := _COMMENT.match(text, at):
            yield _Token("comment", comment[0], line, node=Comment(comment[1].strip()))
            line += comment[0].count("\n")
            at, trims = comment.end(), bool(comment[2])
            continue
        yield _Token("open", "{{", line)
        is_spaced = False
        while True:
            found = _TOKEN.match(text, at)
            if found is None:
                raise GoTemplateError(_unreadable(text[at : at + 20].partition("\n")[0]), line)
            kind = str(found.lastgroup)
            if kind != "blank":
                yield _Token(kind, found[0].strip(), line, is_spaced)
            line += found[0].count("\n")
            at, is_spaced = found.end(), kind == "blank"
            if kind == "close":
                trims = found[0].endswith("-}}")
                break


def _unreadable(text: str) -> str:
    if not text:
        return "an action is not closed with }}"
    if text.startswith("/*"):
        return "a comment is not closed with */}}"
    if text.startswith("'"):
        return f'{text}: a character in single quotes: write it as a string, "x"'
    if text[0] in "+-." or text[0].isdigit():
        return f"{text}: only whole numbers in decimal are read"
    return f"{text}: cannot stand in an action"


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_lex(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> tuple[Node, ...]:
        nodes, stopped = self._nodes()
        if stopped.text:
            raise GoTemplateError(f"{{{{ {stopped.text} }}}} without an if, range or with", stopped.line)
        return nodes

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str = "", where: str = "") -> _Token:
        token = self._peek()
        if kind and token.kind != kind:
            raise self._unexpected(token, where)
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _unexpected(self, token: _Token, where: str) -> GoTemplateError:
        if token.text in _KEYWORDS:
            return GoTemplateError(f"{token.text} is not translated: {_KEYWORDS[token.text]}", token.line)
        return GoTemplateError(f"{token.text or token.kind} is not expected in {where}", token.line)

    def _deeper(self, token: _Token) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise GoTemplateError(f"nested too deeply: more than {_MAX_DEPTH} levels", token.line)

    def _nodes(self) -> tuple[tuple[Node, ...], _Token]:
        """Read up to ``{{ end`` or ``{{ else``, which is taken and returned too, or the end of the text."""
        nodes: list[Node] = []
        while True:
            token = self._peek()
            if token.node is not None:
                nodes.append(token.node)
                self._next += 1
            elif token.kind != "open":
                return tuple(nodes), token
            else:
                self._next += 1
                if self._peek().text in ("end", "else"):
                    return tuple(nodes), self._take()
                nodes.append(self._action())

    def _action(self) -> Node:
        first, begin = self._peek(), self._next
        if first.text in ("if", "with", "range"):
            return self._branch(self._take())
        declared = None
        if first.kind == "variable" and self._tokens[self._next + 1].text in (":=", "="):
            self._take()
            if self._take().text == "=":
                raise GoTemplateError("= is not translated: write := and another name", first.line)
            declared = first.text[1:]
        value = self._pipeline("an action")
        self._take("close", "an action")
        return GoAction(value, self._source(begin), first.line, declared)

    def _source(self, begin: int) -> str:
        """Return the action from token ``begin`` up to the last ``}}``, on one line."""
        out = ""
        for token in self._tokens[begin : self._next - 1]:
            out += f" {token.text}" if token.is_spaced and out else token.text
        return f"{{{{ {out} }}}}"

    def _branch(self, keyword: _Token, *, is_chained: bool = False) -> Branch:
        self._deeper(keyword)
        word, begin = keyword.text, self._next - 1
        declared: list[str] = []
        while self._peek().kind == "variable":
            following = self._tokens[self._next + 1]
            if following.text == "=":
                raise GoTemplateError(f"{word} with = is not translated: write := and another name", keyword.line)
            if following.text != ":=" and (following.text != "," or word != "range" or declared):
                break
            declared.append(self._take().text[1:])
            self._take()
            if following.text == ":=":
                break
        value = self._pipeline(word)
        self._take("close", word)
        source = self._source(begin)
        body, stopped = self._nodes()
        otherwise: tuple[Node, ...] | None = None
        if stopped.text == "else" and word == "if" and self._peek().text == "if":
            otherwise = (self._branch(self._take(), is_chained=True),)
        else:
            if stopped.text == "else":
                self._take("close", "else")
                otherwise, stopped = self._nodes()
            if stopped.text != "end":
                raise GoTemplateError(f"{source} without its {{{{ end }}}}", keyword.line)
            self._take("close", "end")
        self._depth -= 1
        return Branch(word, value, tuple(declared), body, otherwise, source, keyword.line, is_chained)

    def _pipeline(self, where: str) -> Value:
        value = self._command(where, ())
        while self._peek().text == "|":
            self._take()
            if self._peek().kind != "word":
                raise self._unexpected(self._peek(), f"{where}: behind | stands a function")
            value = self._command(where, (value,))
        return value

    def _command(self, where: str, piped: tuple[Value, ...]) -> Value:
        first = self._peek()
        if first.kind != "word" or first.text in ("true", "false"):
            value = self._operand(where)
        else:
            if first.text in _KEYWORDS:
                raise self._unexpected(first, where)
            self._take()
            arguments: list[Value] = []
            while self._peek().kind != "close" and self._peek().text not in ("|", ")"):
                if not self._peek().is_spaced:
                    raise self._unexpected(self._peek(), where)
                arguments.append(self._operand(where))
            value = Call(first.text, (*arguments, *piped), first.line)
        if self._peek().kind != "close" and self._peek().text not in ("|", ")"):
            raise self._unexpected(self._peek(), f"{where}: {first.text} takes no arguments")
        return value

    def _operand(self, where: str) -> Value:
        line = self._peek().line
        value = self._term(self._take(), where)
        while self._peek().kind == "field" and not self._peek().is_spaced:
            value = Field(value, self._take().text[1:], line)
        return value

    def _term(self, token: _Token, where: str) -> Value:
        value: Value
        match token.kind:
            case "string":
                value = Literal(self._string(token), token.line)
            case "number":
                value = Literal(int(token.text), token.line)
            case "word" if token.text in ("true", "false"):
                value = Literal(token.text == "true", token.line)
            case "word" if token.text not in _KEYWORDS:
                value = Call(token.text, (), token.line)
            case "dot":
                value = Dot(token.line)
            case "field":
                value = Field(Dot(token.line), token.text[1:], token.line)
            case "variable" if token.text == "$":
                value = Dot(token.line, is_root=True)
            case "variable":
                value = Variable(token.text[1:], token.line)
            case "mark" if token.text == "(":
                value = self._parenthesized(token)
            case _:
                raise self._unexpected(token, where)
        return value

    def _parenthesized(self, token: _Token) -> Value:
        self._deeper(token)
        value = self._pipeline("parentheses")
        if self._peek().text != ")":
            raise self._unexpected(self._peek(), "parentheses, where ) was expected")
        self._take()
        self._depth -= 1
        return value

    def _string(self, token: _Token) -> str:
        if token.text.startswith("`"):
            return token.text[1:-1].replace("\r", "")

        def replaced(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                raise GoTemplateError(f"the escape {found[0]} is not translated: write the character", token.line)
            return _ESCAPES[found[1]]

        return _ESCAPE.sub(replaced, token.text[1:-1])
