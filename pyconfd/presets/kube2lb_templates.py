"""The small part of Go's template language that server names are made with, compiled to functions. Pure.

Text, fields, ``if``, ``else if``, ``else`` and ``end``, pipelines, parentheses, literals, comments, trims of white
space, and the functions of :data:`_FUNCTIONS`. Nothing else is understood: no variables, no loops, no definitions.
Source: Go, package text/template.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

Scope = Mapping[str, Callable[[object], object]]
"""The known fields, such as ``.Service.Name``, each with how it is read from what the template is given."""

Evaluate = Callable[[object], object]

_Part = str | Evaluate
"""Text as it is, or what makes it."""

_ACTION = re.compile(
    r"""\{\{(?P<before>-(?=\s))?\s*(?P<body>/\*.*?\*/|(?:"(?:[^"\\]|\\.)*"|`[^`]*`|[^"`])*?)\s*(?P<after>(?<=\s)-)?\}\}""",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[|()])|(?:(?P<string>"(?:[^"\\\n]|\\["\\])*"|`[^`]*`)|(?P<number>-?[0-9]{1,9})"""
    r"""|(?P<field>\$?(?:\.[A-Za-z]\w*)+)|(?P<word>[A-Za-z]\w*))(?=[\s|()]|$))""",
    re.ASCII,
)
_VERB = re.compile(r"%(.?)", re.DOTALL)
_MOST_NESTED = 50


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def compile_template(text: str, scope: Scope, check_text: Callable[[str], object]) -> Callable[[object], str]:
    """Return what makes the text of a template from the value that ``scope`` reads.

    ``check_text`` is called with each piece of text between actions, and raises ValueError where it may not stand.
    What is given raises ValueError where a function cannot work on its values.

    Raises:
        ValueError: the template is none, or has something that is not understood; the message says what.
    """
    reader = _Reader(_split(text), scope, check_text)
    body = reader.body(0)
    if reader.rest:
        raise ValueError(f"{{{{ {reader.rest[0].text} }}}} without an if")
    return lambda given: _joined(body, given)


def _split(text: str) -> list[_Token]:
    """Cut into text and actions; trims are done, comments are gone."""
    found: list[_Token] = []
    position, trim = 0, False
    for action in _ACTION.finditer(text):
        literal = text[position : action.start()]
        literal = literal.rstrip() if action["before"] else literal
        found.append(_Token("text", literal.lstrip() if trim else literal))
        if not action["body"].startswith("/*"):
            found.append(_Token("action", action["body"]))
        position, trim = action.end(), bool(action["after"])
    found.append(_Token("text", text[position:].lstrip() if trim else text[position:]))
    return [token for token in found if token.text or token.kind == "action"]


class _Reader:
    """Reads the tokens from the first on; :attr:`rest` is what is left."""

    def __init__(self, tokens: list[_Token], scope: Scope, check_text: Callable[[str], object]) -> None:
        self.rest = tokens
        self._scope = scope
        self._check_text = check_text

    def body(self, depth: int) -> list[_Part]:
        """Read until the end, or until an ``else`` or ``end`` that belongs to an outer ``if``."""
        if depth > _MOST_NESTED:
            raise ValueError("the template is nested too deeply")
        parts: list[_Part] = []
        while self.rest:
            token = self.rest[0]
            if token.kind == "text":
                self._check_text(token.text)
                parts.append(token.text)
            elif re.match(r"(?:else|end)\b", token.text):
                return parts
            elif re.match(r"if\b", token.text):
                del self.rest[0]
                parts.append(self._condition(token.text.removeprefix("if"), depth))
                continue
            else:
                parts.append(_Pipeline(token.text, self._scope).evaluate)
            del self.rest[0]
        return parts

    def _condition(self, text: str, depth: int) -> Evaluate:
        condition, then = _Pipeline(text, self._scope).evaluate, self.body(depth + 1)
        word = self.rest.pop(0).text if self.rest else ""
        otherwise: list[_Part] = []
        if re.match(r"else\s+if\b", word):
            otherwise = [self._condition(re.sub(r"^else\s+if", "", word), depth + 1)]
        else:
            if word == "else":
                otherwise = self.body(depth + 1)
                word = self.rest.pop(0).text if self.rest else ""
            if word != "end":
                raise ValueError(f"{{{{ {word} }}}} where end was expected" if word else "an if without its end")
        return lambda given: _joined(then if condition(given) else otherwise, given)


class _Pipeline:
    """One action, compiled."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._scope = scope
        self._text = text.strip()
        self._tokens = self._tokenized()
        self.evaluate = self._pipeline(0)
        if self._tokens:
            raise self._unknown(self._tokens[0].text)

    def _unknown(self, what: str) -> ValueError:
        shown = f"{{{{ {self._text} }}}}"
        return ValueError(
            f"{what or shown} is not known here; there is: {', '.join(self._scope)}, if, {', '.join(_FUNCTIONS)}"
        )

    def _tokenized(self) -> list[_Token]:
        tokens, position = [], 0
        while position < len(self._text):
            found = _TOKEN.match(self._text, position)
            if not found or not found.lastgroup:
                raise self._unknown("")
            tokens.append(_Token(found.lastgroup, found[found.lastgroup]))
            position = found.end()
        return tokens

    def _pipeline(self, depth: int) -> Evaluate:
        value = self._command(depth, None)
        while self._tokens and self._tokens[0].text == "|" and self._tokens[0].kind == "mark":
            del self._tokens[0]
            value = self._command(depth, value)
        return value

    def _command(self, depth: int, piped: Evaluate | None) -> Evaluate:
        """Read an operand, or a function with its arguments; what is piped in is its last one."""
        if self._tokens and self._tokens[0].kind == "word" and self._tokens[0].text in _FUNCTIONS:
            function = _FUNCTIONS[self._tokens.pop(0).text]
            arguments = []
            while self._tokens and (self._tokens[0].kind != "mark" or self._tokens[0].text == "("):
                arguments.append(self._operand(depth))
            arguments += [piped] if piped else []
            return lambda given: function([argument(given) for argument in arguments])
        if piped:
            raise self._unknown("")
        return self._operand(depth)

    def _operand(self, depth: int) -> Evaluate:
        if not self._tokens or depth > _MOST_NESTED:
            raise self._unknown("")
        token = self._tokens.pop(0)
        match token.kind:
            case "string":
                inner = token.text[1:-1]
                return _constant(re.sub(r"\\(.)", r"\1", inner) if token.text[0] == '"' else inner)
            case "number":
                return _constant(int(token.text))
            case "field" if (field := token.text.removeprefix("$")) in self._scope:
                return self._scope[field]
            case "mark" if token.text == "(":
                value = self._pipeline(depth + 1)
                if not self._tokens or self._tokens.pop(0).text != ")":
                    raise self._unknown("")
                return value
            case "word" if token.text in {"true", "false"}:
                return _constant(token.text == "true")
        raise self._unknown(token.text)


def _constant(value: object) -> Evaluate:
    return lambda _: value


def _joined(parts: Sequence[_Part], given: object) -> str:
    return "".join([part if isinstance(part, str) else _printed(part(given)) for part in parts])


def _printed(value: object) -> str:
    if type(value) is str:  # nearly always, in tens of thousands of names
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _equal(values: Sequence[object]) -> bool:
    """Compare the first with each other one: texts with texts, numbers with numbers."""
    kinds = {type(value) for value in values}
    if len(values) < 2 or len(kinds) > 1 or not kinds <= {str, int, bool}:
        raise ValueError("eq and ne compare two texts or two numbers")
    return any(value == values[0] for value in values[1:])


def _print_formatted(values: Sequence[object]) -> str:
    if not values or not isinstance(values[0], str):
        raise ValueError("printf needs a format")
    rest = list(values[1:])

    def verb(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%"
        if not rest:
            raise ValueError("printf has more verbs than values")
        value = rest.pop(0)
        expected = {"s": str, "d": int, "v": object}.get(found[1])
        if expected is None or not isinstance(value, expected):
            raise ValueError(f"printf knows %s for texts, %d for numbers and %v, not %{found[1]} for {_printed(value)}")
        return _printed(value)

    text = _VERB.sub(verb, values[0])
    if rest:
        raise ValueError("printf has more values than verbs")
    return text


def _first(values: Sequence[object], *, truth: bool) -> object:
    if not values:
        raise ValueError("and and or need a value")
    return next((value for value in values if bool(value) is truth), values[-1])


def _not(values: Sequence[object]) -> bool:
    if len(values) != 1:
        raise ValueError("not takes one value")
    return not values[0]


_FUNCTIONS: Mapping[str, Callable[[Sequence[object]], object]] = MappingProxyType(
    {
        "eq": _equal,
        "ne": lambda values: not _equal(values),
        "and": lambda values: _first(values, truth=False),
        "or": lambda values: _first(values, truth=True),
        "not": _not,
        "print": lambda values: "".join(map(_printed, values)),
        "printf": _print_formatted,
    }
)
"""Source: Go, text/template, Functions."""
