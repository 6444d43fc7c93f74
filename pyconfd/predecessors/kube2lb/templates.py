"""Go templates that make server names, compiled to functions. Pure.

Text, the fields of a scope, ``if`` with ``else if`` and ``else``, pipelines and the functions of :data:`_FUNCTIONS`;
no variables, no loops, no definitions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pyconfd.predecessors.gotemplate import (
    Branch,
    Call,
    Comment,
    Dot,
    Field,
    GoAction,
    Literal,
    Node,
    Text,
    Value,
    parse,
)

Scope = Mapping[str, Callable[[object], object]]
"""The known fields, such as ``.Service.Name``, each with how it is read from what the template is given."""

Evaluate = Callable[[object], object]


def compile_template(text: str, scope: Scope, check_text: Callable[[str], object]) -> Callable[[object], str]:
    """Return what makes the text of a template from the value that ``scope`` reads.

    ``check_text`` is called with each piece of text between actions, and raises ValueError where it may not stand.
    What is returned raises ValueError where a function cannot work on its values.

    Raises:
        ValueError: the template is none, or has something that is not understood; the message says what.
    """
    return _compiled(parse(text), scope, check_text)


def _compiled(nodes: Sequence[Node], scope: Scope, check_text: Callable[[str], object]) -> Callable[[object], str]:
    parts: list[str | Evaluate] = []
    for node in nodes:
        match node:
            case Text(value=text):
                check_text(text)
                parts.append(text)
            case Comment():
                pass
            case GoAction(declared=None, value=value):
                parts.append(_evaluate(value, scope))
            case Branch(keyword="if", declared=(), value=value):
                then = _compiled(node.body, scope, check_text)
                otherwise = _compiled(node.otherwise or (), scope, check_text)
                parts.append(_choice(_evaluate(value, scope), then, otherwise))
            case _:
                raise ValueError(f"{node.source} is not known here; of Go's actions there are fields, functions and if")
    return lambda given: "".join([part if isinstance(part, str) else _printed(part(given)) for part in parts])


def _choice(condition: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    return lambda given: then(given) if condition(given) else otherwise(given)


def _evaluate(value: Value, scope: Scope) -> Evaluate:
    match value:
        case Literal(value=constant):
            return lambda _given: constant
        case Call(function=name, arguments=operands) if function := _FUNCTIONS.get(name):
            arguments = [_evaluate(operand, scope) for operand in operands]
            return lambda given: function([argument(given) for argument in arguments])
        case Call(function=name):
            pass
        case _:
            name = _path(value)
            if name in scope:
                return scope[name]
    raise ValueError(f"{name} is not known here; there is: {', '.join(scope)}, if, {', '.join(_FUNCTIONS)}")


def _path(value: Value) -> str:
    if isinstance(value, Field):
        return f"{_path(value.base)}.{value.name}"
    return "" if isinstance(value, Dot) else "a field of this"


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

    text = re.sub(r"%(.?)", verb, values[0], flags=re.DOTALL)
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
