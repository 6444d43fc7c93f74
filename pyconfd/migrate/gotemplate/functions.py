"""Go's template functions as Jinja expressions."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from pyconfd.migrate.gotemplate.expressions import Expression, Level, text, text_literal
from pyconfd.migrate.gotemplate.types import (
    SERVER_NAME,
    ListOf,
    Scalar,
    Struct,
    Type,
    has_no_text,
    is_unlike_text,
    joined,
    prints_alike,
)
from pyconfd.render.go_formats import Shape, pieces_of, prints_as_go

Arguments = tuple[Expression, ...]

ALL_OF_ROOT = "$ as a whole is not there in Jinja; name the field that is meant"
OF_SEVERAL_TYPES = "a value that is not always of one type; give each type a variable of its own"


class WrongArgumentsError(ValueError):
    """A call that Go would refuse, or whose text would be another one here."""


Translate = Callable[[Arguments], Expression]


def _counted(arguments: Arguments, least: int, most: int | None = None) -> None:
    if len(arguments) < least or (most is not None and len(arguments) > most):
        wanted = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise WrongArgumentsError(f"wrong number of arguments: want {wanted}, got {len(arguments)}")


def _call(name: str, kind: Type, arguments: Arguments) -> Expression:
    return Expression(f"{name}({', '.join(argument.code for argument in arguments)})", kind)


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
    kinds = {argument.kind for argument in arguments if isinstance(argument.kind, Scalar)}
    kinds -= {Scalar.ANY, Scalar.MIXED, Scalar.NIL}
    if len(kinds) > 1 and kinds != {Scalar.INT, Scalar.FLOAT}:
        raise WrongArgumentsError("values of different types cannot be compared")
    return Expression(f"{first} {sign} {second}", Scalar.BOOL, Level.COMPARE)


def _joined(word: str, level: Level, arguments: Arguments) -> Expression:
    _counted(arguments, 1)
    kind = arguments[0].kind
    for argument in arguments[1:]:
        kind = joined(kind, argument.kind)
    if any(argument.kind != kind for argument in arguments):
        _without_root(arguments)
    if len(arguments) == 1:
        return arguments[0]
    # Structs are always true in Go and in Jinja, so no test of one needs more than the words.
    return Expression(f" {word} ".join(argument.at(Level(level + 1)) for argument in arguments), kind, level)


def _not(arguments: Arguments) -> Expression:
    _counted(arguments, 1, 1)
    return Expression(f"not {arguments[0].at(Level.NOT)}", Scalar.BOOL, Level.NOT)


def _measurable(value: Expression) -> None:
    if is_unlike_text(value.kind) or value.kind is Scalar.MIXED:
        raise WrongArgumentsError("its bytes or items are other ones in Go, or depend on its type")


def _len(arguments: Arguments) -> Expression:
    _counted(arguments, 1, 1)
    _measurable(arguments[0])
    if isinstance(arguments[0].kind, ListOf):
        return Expression(f"{arguments[0].at(Level.FILTER)} | length", Scalar.INT, Level.FILTER)
    return _call("go.len", Scalar.INT, arguments)


def _index(arguments: Arguments) -> Expression:
    _counted(arguments, 1)
    _measurable(arguments[0])
    kind = arguments[0].kind
    for _argument in arguments[1:]:
        kind = kind.item if isinstance(kind, ListOf) else Scalar.INT if kind is Scalar.STRING else Scalar.ANY
    return _call("go.index", kind, arguments)


def _slice(arguments: Arguments) -> Expression:
    _counted(arguments, 1, 3)
    _measurable(arguments[0])
    kind = arguments[0].kind
    return _call("go.slice", kind if kind is Scalar.STRING or isinstance(kind, ListOf) else Scalar.ANY, arguments)


def concatenated(parts: list[Expression]) -> Expression:
    """Join values that print alike in Go and Jinja into one text."""
    constants = [part.constant for part in parts if part.constant is not None]
    if len(constants) == len(parts):
        return text("".join(constants))
    if len(parts) == 1 and parts[0].kind is Scalar.STRING:
        return parts[0]
    if len(parts) == 1:
        return Expression(f"{parts[0].at(Level.FILTER)} | string", Scalar.STRING, Level.FILTER)
    return Expression(" ~ ".join(part.at(Level.FILTER) for part in parts), Scalar.STRING, Level.CONCAT)


def _without_root(arguments: Arguments) -> None:
    if any(has_no_text(argument.kind) for argument in arguments):
        raise WrongArgumentsError(ALL_OF_ROOT)


def _side_by_side(arguments: Arguments) -> None:
    """Refuse values that Go's ``print`` may or may not part by a blank, which it puts between two that are no texts."""
    _without_root(arguments)
    others = [argument.kind for argument in arguments if argument.kind is not Scalar.STRING]
    if len(others) > 1 and any(kind is Scalar.MIXED or is_unlike_text(kind) for kind in others):
        raise WrongArgumentsError("whether a blank stands between these depends on their types in Go; use printf")


def _print(arguments: Arguments) -> Expression:
    _side_by_side(arguments)
    if arguments and all(argument.kind is Scalar.STRING for argument in arguments):
        return concatenated(list(arguments))
    if len(arguments) == 1 and prints_alike(arguments[0].kind):
        return concatenated(list(arguments))
    return _call("go.print", Scalar.STRING, arguments)


def _println(arguments: Arguments) -> Expression:
    _without_root(arguments)
    return _call("go.println", Scalar.STRING, arguments)


def _escaped(name: str) -> Translate:
    def translate(arguments: Arguments) -> Expression:
        _counted(arguments, 1)
        _side_by_side(arguments)
        if any(argument.kind is Scalar.NIL for argument in arguments):
            raise WrongArgumentsError("nil has no text")
        return _call(f"go.{name}", Scalar.STRING, arguments)

    return translate


def _shape(kind: Type) -> Shape:
    match kind:
        case ListOf(item=item):
            return Shape.TEXTS if item in (Scalar.STRING, SERVER_NAME) else Shape.OTHER
    return _SHAPES.get(kind, Shape.TEXT)


_SHAPES: Mapping[Type, Shape] = MappingProxyType(
    {Scalar.INT: Shape.INT, Scalar.FLOAT: Shape.FLOAT, Scalar.BOOL: Shape.BOOL, Scalar.NIL: Shape.NIL}
)


def _printable(found: re.Match[str], value: Expression) -> None:
    """Refuse a verb that would print a value otherwise than Go does."""
    if value.kind is Scalar.ANY or (value.kind is Scalar.MIXED and found[0] == "%v"):
        return
    if value.kind is Scalar.MIXED:
        raise WrongArgumentsError(f"{found[0]} of {OF_SEVERAL_TYPES}")
    if not prints_as_go(found, _shape(value.kind)):
        what = value.kind.name if isinstance(value.kind, Struct | Scalar) else "list"
        raise WrongArgumentsError(f"{found[0]} of a value of type {what.lower()} prints what only Go prints")


def _printf(arguments: Arguments) -> Expression:
    _counted(arguments, 1)
    _without_root(arguments)
    layout, values = arguments[0].constant, arguments[1:]
    if layout is None:
        raise WrongArgumentsError("its layout is not a text that stands in the template")
    try:
        pieces = [piece for piece in pieces_of(layout) if piece]
    except ValueError as error:
        raise WrongArgumentsError(str(error)) from None
    verbs = [piece for piece in pieces if not isinstance(piece, str)]
    if len(verbs) != len(values):
        raise WrongArgumentsError(f"the layout has {len(verbs)} verbs for {len(values)} values")
    for verb, value in zip(verbs, values, strict=True):
        _printable(verb, value)
    if all(verb[0] in ("%s", "%d", "%v") for verb in verbs) and all(prints_alike(value.kind) for value in values):
        rest = iter(values)
        return concatenated(_merged(text(piece) if isinstance(piece, str) else next(rest) for piece in pieces))
    return _call("go.printf", Scalar.STRING, arguments)


def _merged(parts: Iterable[Expression]) -> list[Expression]:
    """Join literals that stand beside each other."""
    given: list[Expression] = [text("")]
    for part in parts:
        before = given[-1]
        if before.is_literal and part.is_literal:
            given[-1] = text(f"{before.constant}{part.constant}")
        else:
            given.append(part)
    return [part for part in given if part.constant != ""] or [text("")]


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
        "println": _println,
        "printf": _printf,
        "html": _escaped("html"),
        "urlquery": _escaped("urlquery"),
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
    """Return ``value.String``."""
    return concatenated([value])


def attribute(value: Expression, name: str) -> str:
    """Return the code of an attribute."""
    return f"{value.at(Level.ATOM)}.{name}"


def dynamic_field(value: Expression, name: str) -> Expression:
    """Return the code of a field of a value whose type is not known."""
    return Expression(f"go.field({value.code}, {text_literal(name)})")
