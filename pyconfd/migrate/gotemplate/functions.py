"""Go's template functions as Jinja expressions."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from pyconfd.migrate.gotemplate.expressions import Expression, Level, text, text_literal
from pyconfd.migrate.gotemplate.types import (
    SERVER_NAME,
    ListOf,
    Scalar,
    Struct,
    Type,
    is_address,
    joined,
    prints_alike,
)

Arguments = tuple[Expression, ...]


ROOT = "the whole of what templates get is printed otherwise here; print its parts"


class WrongArgumentsError(ValueError):
    """A call that Go would refuse, or whose text would be another one here."""


Translate = Callable[[Arguments], Expression]


def _counted(arguments: Arguments, least: int, most: int | None = None) -> None:
    if len(arguments) < least or (most is not None and len(arguments) > most):
        wanted = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise WrongArgumentsError(f"wrong number of arguments: want {wanted}, got {len(arguments)}")


def _printable(arguments: Arguments) -> None:
    if any(argument.is_root for argument in arguments):
        raise WrongArgumentsError(ROOT)


def _printer(name: str) -> Translate:
    translate = _runtime(name, Scalar.STRING, 0 if name == "println" else 1)

    def printer(arguments: Arguments) -> Expression:
        _printable(arguments)
        return translate(arguments)

    return printer


def _call(name: str, kind: Type, arguments: Arguments) -> Expression:
    return Expression(f"{name}({', '.join(argument.code for argument in arguments)})", kind)


def _runtime(name: str, kind: Type, least: int, most: int | None = None) -> Translate:
    def translate(arguments: Arguments) -> Expression:
        _counted(arguments, least, most)
        return _call(f"go.{name}", kind, arguments)

    return translate


def _eq(arguments: Arguments) -> Expression:
    _counted(arguments, 2)
    first, *others = arguments
    if any(isinstance(argument.kind, ListOf) for argument in arguments):
        raise WrongArgumentsError("lists cannot be compared")
    if len(others) == 1:
        return _compare("==", arguments)
    choices = ", ".join(other.code for other in others)
    return Expression(f"{first.at(Level.CONCAT)} in [{choices}]", Scalar.BOOL, Level.COMPARE)


def _compare(sign: str, arguments: Arguments) -> Expression:
    _counted(arguments, 2, 2)
    first, second = (argument.at(Level.CONCAT) for argument in arguments)
    kinds = {argument.kind for argument in arguments if isinstance(argument.kind, Scalar)} - {Scalar.ANY, Scalar.NIL}
    if len(kinds) > 1 and kinds != {Scalar.INT, Scalar.FLOAT}:
        raise WrongArgumentsError("values of different types cannot be compared")
    return Expression(f"{first} {sign} {second}", Scalar.BOOL, Level.COMPARE)


def _joined(word: str, level: Level, arguments: Arguments) -> Expression:
    _counted(arguments, 1)
    kind = arguments[0].kind
    for argument in arguments[1:]:
        kind = joined(kind, argument.kind)
    if len(arguments) == 1:
        return arguments[0]
    # Structs are always true in Go and in Jinja, so no test of one needs more than the words.
    return Expression(f" {word} ".join(argument.at(Level(level + 1)) for argument in arguments), kind, level)


def _not(arguments: Arguments) -> Expression:
    _counted(arguments, 1, 1)
    return Expression(f"not {arguments[0].at(Level.NOT)}", Scalar.BOOL, Level.NOT)


def _len(arguments: Arguments) -> Expression:
    _counted(arguments, 1, 1)
    if isinstance(arguments[0].kind, ListOf):
        return Expression(f"{arguments[0].at(Level.FILTER)} | length", Scalar.INT, Level.FILTER)
    return _call("go.len", Scalar.INT, arguments)


def _index(arguments: Arguments) -> Expression:
    _counted(arguments, 1)
    kind = arguments[0].kind
    for _argument in arguments[1:]:
        kind = kind.item if isinstance(kind, ListOf) else Scalar.INT if kind is Scalar.STRING else Scalar.ANY
    return _call("go.index", kind, arguments)


def _slice(arguments: Arguments) -> Expression:
    _counted(arguments, 1, 3)
    kind = arguments[0].kind
    return _call("go.slice", kind if kind is Scalar.STRING or isinstance(kind, ListOf) else Scalar.ANY, arguments)


def concatenated(parts: list[Expression]) -> Expression:
    """Join values that print alike in Go and Jinja into one text."""
    if len(parts) == 1 and parts[0].kind is Scalar.STRING:
        return parts[0]
    if len(parts) == 1:
        return Expression(f"{parts[0].at(Level.FILTER)} | string", Scalar.STRING, Level.FILTER)
    return Expression(" ~ ".join(part.at(Level.FILTER) for part in parts), Scalar.STRING, Level.CONCAT)


def _print(arguments: Arguments) -> Expression:
    _printable(arguments)
    for first, second in pairwise(arguments):
        kinds = (first.kind, second.kind)
        if any(map(is_address, kinds)) and Scalar.STRING not in kinds:
            raise WrongArgumentsError("Go puts a blank beside an address here; use printf with %s")
    if all(argument.kind is Scalar.STRING for argument in arguments) and arguments:
        return concatenated(list(arguments))
    if len(arguments) == 1 and prints_alike(arguments[0].kind):
        return concatenated(list(arguments))
    return _call("go.print", Scalar.STRING, arguments)


_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d*)(?P<precision>(?:\.\d*)?)(?P<verb>[^\d.\[*%])")


def _prints_the_same(found: re.Match[str], kind: Type) -> bool:
    """Tell whether a verb is one that prints a value of a type as Go does; of no known type that is seen later."""
    flags, verb = set(found["flags"]), found["verb"]
    match kind:
        case Scalar.ANY | Scalar.NIL:
            return True
        case ListOf():
            return not (flags or found["width"] or found["precision"]) and (
                verb == "v" or (verb in "sqxX" and kind.item in (Scalar.STRING, SERVER_NAME))
            )
        case Scalar.BOOL:
            return verb in "vt" and not flags & set("# 0") and not found["precision"]
        case Scalar.INT:
            return verb in "vdxXobcqU" and not (verb in "cqUv" and flags & set("#")) and not found["precision"]
        case Scalar.FLOAT:
            return verb in "vefgEFG" and not flags & set("# ")
        case _:
            plus = verb in "qxX" and "+" in flags
            return verb in "vsqxX" and not flags & set("# ") and not plus and not (verb == "v" and found["precision"])


_PIECES = re.compile(r"%[sdv%]|[^%]+")


def _plain_parts(layout: str, values: Arguments) -> list[Expression] | None:
    """Give the parts of a format that Jinja can join by itself; None if it needs Go's printf."""
    pieces = _PIECES.findall(layout)
    if "".join(pieces) != layout or sum(piece[0] == "%" and piece != "%%" for piece in pieces) != len(values):
        return None
    parts: list[Expression] = []
    rest = iter(values)
    for piece in pieces:
        if piece[0] != "%" or piece == "%%":
            literal = "%" if piece == "%%" else piece
            previous = parts[-1].constant if parts else None
            if previous is not None:
                parts[-1] = text(previous + literal)
            else:
                parts.append(text(literal))
            continue
        value = next(rest)
        fits = {"%d": value.kind is Scalar.INT, "%v": prints_alike(value.kind)}.get(
            piece, value.kind is Scalar.STRING or isinstance(value.kind, Struct)
        )
        if not fits or not prints_alike(value.kind):
            return None
        parts.append(value)
    return parts or [text("")]


def _printf(arguments: Arguments) -> Expression:
    _counted(arguments, 1)
    _printable(arguments)
    layout = arguments[0].constant
    if layout is not None:
        for found, value in zip(_VERB.finditer(layout.replace("%%", "")), arguments[1:], strict=False):
            if not _prints_the_same(found, value.kind):
                raise WrongArgumentsError(f"{found[0]} prints another text here, or none")
    parts = _plain_parts(layout, arguments[1:]) if layout is not None else None
    return concatenated(parts) if parts is not None else _call("go.printf", Scalar.STRING, arguments)


BUILTIN: Mapping[str, Translate] = MappingProxyType(
    {
        "and": partial(_joined, "and", Level.AND),
        "or": partial(_joined, "or", Level.OR),
        "not": _not,
        "eq": _eq,
        "ne": partial(_compare, "!="),
        "lt": partial(_compare, "<"),
        "le": partial(_compare, "<="),
        "gt": partial(_compare, ">"),
        "ge": partial(_compare, ">="),
        "len": _len,
        "index": _index,
        "slice": _slice,
        "print": _print,
        "println": _printer("println"),
        "printf": _printf,
        "html": _printer("html"),
        "urlquery": _printer("urlquery"),
    }
)
"""What ``text/template`` predefines, but for ``call`` and ``js``."""

WITHOUT_COUNTERPART = MappingProxyType(
    {
        "js": "there is no escaping for JavaScript in a configuration",
        "call": "values that are functions do not exist here",
    }
)


def string_of(value: Expression) -> Expression:
    """Give ``value.String``."""
    return concatenated([value])


def attribute(value: Expression, name: str) -> str:
    """Give the code of an attribute."""
    return f"{value.at(Level.ATOM)}.{name}"


def dynamic_field(value: Expression, name: str) -> Expression:
    """Give the code of a field of a value whose type is not known."""
    return Expression(f"go.field({value.code}, {text_literal(name)})")
