"""A tiny interpreter of Go templates, independent of the translation: it runs trees that the tests generate.

A tree is nested tuples; ``source`` writes it as a Go template, ``run`` gives what Go would print.
"""

import operator
from collections.abc import Iterator
from typing import Any

SPACES = " \t\r\n"


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def operand(node: Any) -> str:
    match node:
        case ("text", value):
            return quoted(value)
        case ("number", value):
            return str(value)
        case ("bool", value):
            return str(value).lower()
        case ("dot",):
            return "."
        case ("root", name):
            return f"$.{name}"
        case ("field", name):
            return f".{name}"
        case ("variable", name):
            return f"${name}"
        case ("call", name, *arguments):
            return f"({name} {' '.join(map(operand, arguments))})"
        case ("piped", name, first, last):
            return f"({operand(last)} | {name} {operand(first)})"
    raise AssertionError(node)


def source(nodes: tuple[Any, ...]) -> str:
    return "".join(_source(node) for node in nodes)


def _tag(content: str, trims: tuple[bool, bool]) -> str:
    return f"{{{{{'- ' if trims[0] else ''}{content}{' -' if trims[1] else ''}}}}}"


def _source(node: Any) -> str:
    match node:
        case ("raw", value):
            return str(value)
        case ("print", trims, value):
            return _tag(operand(value), trims)
        case ("set", trims, name, sign, value):
            return _tag(f"${name} {sign} {operand(value)}", trims)
        case ("if", trims, condition, body, other):
            return "".join(
                [
                    _tag(f"if {operand(condition)}", trims),
                    source(body),
                    *([_tag("else", trims), source(other)] if other is not None else []),
                    _tag("end", trims),
                ]
            )
        case ("with", trims, value, body):
            return _tag(f"with {operand(value)}", trims) + source(body) + _tag("end", trims)
        case ("range", trims, names, value, body, other):
            declared = ", ".join(f"${name}" for name in names)
            head = f"range {declared} := {operand(value)}" if names else f"range {operand(value)}"
            rest = _tag("else", trims) + source(other) if other is not None else ""
            return _tag(head, trims) + source(body) + rest + _tag("end", trims)
        case ("jump", trims, keyword, condition):
            return _tag(f"if {operand(condition)}", trims) + _tag(keyword, (False, False)) + _tag("end", trims)
    raise AssertionError(node)


def shown(value: Any, nil: str = "<nil>") -> str:
    if value is None:
        return nil
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + " ".join(shown(item) for item in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{shown(value[key])}" for key in sorted(value)) + "]"
    return str(value)


class _Jump(Exception):  # noqa: N818 - it is no error
    def __init__(self, keyword: str) -> None:
        self.keyword = keyword


class GoError(Exception):
    """Go would stop here."""


class Machine:
    """Runs a tree over data; ``out`` gathers what it prints."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._out: list[str] = []
        self._variables: list[tuple[str, list[Any]]] = []

    def run(self, nodes: tuple[Any, ...]) -> str:
        self._nodes(self._trimmed(nodes), self._data)
        return "".join(self._out)

    def _trimmed(self, nodes: tuple[Any, ...]) -> list[Any]:
        """Take off the blanks that tags trim, here and in all bodies."""
        flat = list(_flat(nodes))
        for index, (kind, value) in enumerate(flat):
            if kind != "raw":
                continue
            trims_left = index and flat[index - 1][0] == "tag" and flat[index - 1][1][1]
            trims_right = index + 1 < len(flat) and flat[index + 1][0] == "tag" and flat[index + 1][1][0]
            left = value.lstrip(SPACES) if trims_left else value
            flat[index] = ("raw", left.rstrip(SPACES) if trims_right else left)
        texts = iter([value for kind, value in flat if kind == "raw"])
        return list(_with_texts(nodes, texts))

    def _value(self, node: Any, dot: Any) -> Any:
        match node:
            case ("text" | "number" | "bool", value):
                return value
            case ("dot",):
                return dot
            case ("root", name):
                return self._field(self._data, name)
            case ("field", name):
                return self._field(dot, name)
            case ("variable", name):
                return next(cell[0] for known, cell in reversed(self._variables) if known == name)
            case ("call", name, *arguments):
                return call(name, [self._value(argument, dot) for argument in arguments])
            case ("piped", name, first, last):
                return call(name, [self._value(first, dot), self._value(last, dot)])
        raise AssertionError(node)

    def _field(self, value: Any, name: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise GoError(f".{name}")
        return value.get(name)

    def _nodes(self, nodes: Any, dot: Any) -> None:
        for node in nodes:
            match node:
                case ("raw", value):
                    self._out.append(value)
                case ("print", _trims, value):
                    self._out.append(shown(self._value(value, dot), "<no value>"))
                case ("set", _trims, name, ":=", value):
                    self._variables.append((name, [self._value(value, dot)]))
                case ("set", _trims, name, "=", value):
                    result = self._value(value, dot)
                    next(cell for known, cell in reversed(self._variables) if known == name)[0] = result
                case ("jump", _trims, keyword, condition):
                    if truth(self._value(condition, dot)):
                        raise _Jump(keyword)
                case _:
                    mark = len(self._variables)
                    self._block(node, dot)
                    del self._variables[mark:]

    def _block(self, node: Any, dot: Any) -> None:
        match node:
            case ("if", _trims, condition, body, other):
                self._nodes(body if truth(self._value(condition, dot)) else other or (), dot)
            case ("with", _trims, value, body):
                result = self._value(value, dot)
                if truth(result):
                    self._nodes(body, result)
            case ("range", _trims, names, value, body, other):
                pairs = self._pairs(self._value(value, dot))
                if not pairs:
                    self._nodes(other or (), dot)
                mark = len(self._variables)
                for key, item in pairs:
                    values = (item,) if len(names) == 1 else (key, item)
                    self._variables += [(name, [one]) for name, one in zip(names, values, strict=False)]
                    try:
                        self._nodes(body, item)
                    except _Jump as jump:
                        if jump.keyword == "break":
                            break
                    finally:
                        del self._variables[mark:]

    def _pairs(self, value: Any) -> list[tuple[Any, Any]]:
        if value is None:
            return []
        if isinstance(value, dict):
            return [(key, value[key]) for key in sorted(value)]
        if not isinstance(value, list):
            raise GoError("range")
        return list(enumerate(value))


def truth(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def call(name: str, arguments: list[Any]) -> Any:
    first, second = arguments[0], arguments[-1]
    match name:
        case "eq" | "ne" | "lt" | "gt":
            if type(first) is not type(second) or not isinstance(first, str | int):
                raise GoError(name)
            if name in ("lt", "gt") and isinstance(first, bool):
                raise GoError(name)
            return {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "gt": operator.gt}[name](first, second)
        case "and":
            return second if truth(first) else first
        case "or":
            return first if truth(first) else second
        case "not":
            return not truth(first)
        case "len":
            if not isinstance(first, str | list | dict):
                raise GoError(name)
            return len(first.encode() if isinstance(first, str) else first)
        case "print":
            blank = " " if not isinstance(first, str) and not isinstance(second, str) else ""
            return shown(first) + blank + shown(second)
    raise AssertionError(name)


def _flat(nodes: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Give texts and tags in the order of the source."""
    for node in nodes:
        match node:
            case ("raw", _value):
                yield node
            case ("if", trims, _condition, body, other):
                yield "tag", trims
                yield from _flat(body)
                if other is not None:
                    yield "tag", trims
                    yield from _flat(other)
                yield "tag", trims
            case ("with", trims, _value, body):
                yield "tag", trims
                yield from _flat(body)
                yield "tag", trims
            case ("range", trims, _names, _value, body, other):
                yield "tag", trims
                yield from _flat(body)
                if other is not None:
                    yield "tag", trims
                    yield from _flat(other)
                yield "tag", trims
            case ("jump", trims, _keyword, _condition):
                yield "tag", trims
                yield "tag", (False, False)
                yield "tag", trims
            case (_kind, trims, *_rest):
                yield "tag", trims


def _with_texts(nodes: tuple[Any, ...], texts: Iterator[str]) -> Iterator[Any]:
    for node in nodes:
        match node:
            case ("raw", _value):
                yield "raw", next(texts)
            case ("if", trims, condition, body, other):
                inner = list(_with_texts(body, texts))
                yield "if", trims, condition, inner, list(_with_texts(other, texts)) if other is not None else None
            case ("with", trims, value, body):
                yield "with", trims, value, list(_with_texts(body, texts))
            case ("range", trims, names, value, body, other):
                inner = list(_with_texts(body, texts))
                rest = list(_with_texts(other, texts)) if other is not None else None
                yield "range", trims, names, value, inner, rest
            case _:
                yield node
