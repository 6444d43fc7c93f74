"""Expressions of Go templates to Jinja, with the types that say where Jinja prints and compares as Go does."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from pyconfd.gotemplate import Call, Declaration, Dot, Field, GoTemplateError, Literal, Value, Variable


class Scalar(Enum):
    """Types without parts; MIXED is the result of ``and`` or ``or`` over several types, which can only be tested."""

    STRING = "string"
    INT = "number"
    BOOL = "bool"
    MIXED = "value of several types"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one type."""

    item: "Type"


@dataclass(frozen=True, slots=True)
class GoStruct:
    """A Go struct: its field names, each with the attribute in Jinja and its type. ``str()`` of it is its ``String()``.

    The fields of the one that ``is_root`` are names of their own in Jinja. One that ``is_string`` is a string for Go,
    which ``print`` and comparisons treat as one.
    """

    name: str
    fields: Mapping[str, "tuple[str, Type]"] = field(hash=False, compare=False)
    is_root: bool = False
    is_string: bool = False


Type = Scalar | ListOf | GoStruct

_IP = GoStruct("IP", MappingProxyType({}))
_ENDPOINT = GoStruct(
    "Endpoint",
    MappingProxyType({"Name": ("name", Scalar.STRING), "IP": ("ip", _IP), "Port": ("port", Scalar.INT)}),
)
_PORT = GoStruct(
    "Port",
    MappingProxyType(
        {
            "IP": ("ip", _IP),
            "Port": ("port", Scalar.INT),
            "Mode": ("mode", Scalar.STRING),
            "Protocol": ("protocol", Scalar.STRING),
        }
    ),
)
_SERVICE = GoStruct(
    "Service",
    MappingProxyType(
        {
            "Name": ("name", Scalar.STRING),
            "Namespace": ("namespace", Scalar.STRING),
            "Port": ("port", _PORT),
            "Endpoints": ("endpoints", ListOf(_ENDPOINT)),
            "NodePort": ("node_port", Scalar.INT),
            "External": ("external", ListOf(Scalar.STRING)),
            "Timeout": ("timeout", Scalar.INT),
        }
    ),
)
_SERVER_NAME = GoStruct(
    "ServerName",
    MappingProxyType({"IsRegexp": ("is_regexp", Scalar.BOOL), "Regexp": ("regexp", Scalar.STRING)}),
    is_string=True,
)
CLUSTER = GoStruct(
    "ClusterInformation",
    MappingProxyType(
        {
            "Services": ("services", ListOf(_SERVICE)),
            "Ports": ("ports", ListOf(_PORT)),
            "Nodes": ("nodes", ListOf(Scalar.STRING)),
            "Domain": ("domain", Scalar.STRING),
        }
    ),
    is_root=True,
)
"""What kube2lb hands to its templates, with the names that preset ``kube2lb`` gives."""

FUNCTIONS: Mapping[str, Type] = MappingProxyType(
    {
        "ServerNames": ListOf(_SERVER_NAME),
        "EscapeNode": Scalar.STRING,
        "IntRange": ListOf(Scalar.INT),
        "Add": Scalar.INT,
        "ToLower": Scalar.STRING,
        "ToUpper": Scalar.STRING,
    }
)
"""kube2lb's own functions, which preset ``kube2lb`` gives under the same names."""

_COMPARISONS = MappingProxyType({"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="})
_INSTEAD = MappingProxyType(
    {
        "println": "write print, and a line break behind the tag",
        "slice": "write a range with an if",
        "html": "a configuration needs no HTML escapes",
        "js": "a configuration needs no escapes of JavaScript",
        "urlquery": "write the escaped text",
        "call": "values that are functions do not exist here",
    }
)
_BUILTIN = (*_COMPARISONS, "and", "or", "not", "len", "index", "print", "printf")
_PIECE = re.compile(
    r"(?P<text>(?:[^%]|%%)+)|%(?P<flag>[-0]?)(?P<width>[1-9][0-9]?)?(?P<verb>[sdvtxX])|%.{0,5}", re.DOTALL
)
"""A part of a printf layout: text, a verb, or what is neither."""


@dataclass(frozen=True, slots=True)
class JinjaExpression:
    """Jinja ``code`` and the type of its value.

    One that ``is_atom`` needs no parentheses inside another; one that ``is_fixed`` is a name or path whose value is the
    same wherever it is written.
    """

    code: str
    kind: Type
    is_atom: bool = True
    is_fixed: bool = False

    @property
    def atom(self) -> str:
        """The code, in parentheses if it needs them."""
        return self.code if self.is_atom else f"({self.code})"

    @property
    def is_string(self) -> bool:
        """Whether it is of a type that Go takes for a string."""
        return self.kind is Scalar.STRING or (isinstance(self.kind, GoStruct) and self.kind.is_string)

    def text(self, line: int) -> "JinjaExpression":
        """Return what prints as Go prints the value.

        Raises:
            GoTemplateError: nothing does.

        """
        match self.kind:
            case Scalar.BOOL:
                return JinjaExpression(f"{self.atom} | lower", Scalar.STRING, is_atom=False)
            case Scalar.MIXED:
                raise GoTemplateError("and, or with values of several types can only be tested by if", line)
            case ListOf():
                return JinjaExpression(f"'[' ~ ({self.atom} | join(' ')) ~ ']'", Scalar.STRING, is_atom=False)
            case GoStruct(is_root=True):
                raise GoTemplateError("$ as a whole cannot be printed: name the field that is meant", line)
        return self


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE = re.compile(r"[\\'\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff]|\{(?=[{%#])|(?<=[%#}-])\}")


def text_literal(value: str) -> str:
    """Write a text as a Jinja literal that holds no delimiter of Jinja."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return _ESCAPES.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")

    return f"'{_UNSAFE.sub(escape, value)}'"


def translated(
    value: Value, dot: JinjaExpression, root: JinjaExpression, variables: Mapping[Declaration, JinjaExpression]
) -> JinjaExpression:
    """Return the Jinja expression of a value.

    Raises:
        GoTemplateError: it has none that gives the same in every case.

    """
    found = dot
    match value:
        case Literal():
            found = _literal(value)
        case Dot():
            found = root if value.is_root else dot
        case Variable(declared=declared):
            if declared not in variables:
                raise GoTemplateError(f"${declared.name} is not translated here: declare it outside", value.line)
            found = variables[declared]
        case Field():
            found = _field(translated(value.base, dot, root, variables), value)
        case Call():
            found = _call(value, [translated(argument, dot, root, variables) for argument in value.arguments])
    return found


def _literal(node: Literal) -> JinjaExpression:
    match node.value:
        case bool():
            return JinjaExpression(str(node.value).lower(), Scalar.BOOL)
        case int():
            return JinjaExpression(str(node.value), Scalar.INT, is_atom=node.value >= 0)
        case str():
            return JinjaExpression(text_literal(node.value), Scalar.STRING)


def _field(base: JinjaExpression, node: Field) -> JinjaExpression:
    kind, name = base.kind, node.name
    if not isinstance(kind, GoStruct):
        raise GoTemplateError(f"what stands before .{name} is a {_named(kind)} and has no fields", node.line)
    if name in kind.fields:
        code, field_kind = kind.fields[name]
        return JinjaExpression(code if kind.is_root else f"{base.atom}.{code}", field_kind, is_fixed=base.is_fixed)
    if name == "String" and not kind.is_root:
        return JinjaExpression(f"{base.atom} | string", Scalar.STRING, is_atom=False)
    raise GoTemplateError(f"{kind.name} has no .{name}{_meant(name, kind.fields, '.')}", node.line)


def _named(kind: Type) -> str:
    return "list" if isinstance(kind, ListOf) else kind.name if isinstance(kind, GoStruct) else kind.value


def _meant(name: str, known: Mapping[str, object] | tuple[str, ...], mark: str = "") -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {mark}{close[0]}?" if close else ""


def _call(node: Call, arguments: list[JinjaExpression]) -> JinjaExpression:
    name, line = node.function, node.line
    if name in FUNCTIONS:
        return JinjaExpression(f"{name}({', '.join(argument.code for argument in arguments)})", FUNCTIONS[name])
    if name in _INSTEAD:
        raise GoTemplateError(f"{name} is not translated: {_INSTEAD[name]}", line)
    if name not in _BUILTIN:
        raise GoTemplateError(f"there is no function {name}{_meant(name, (*_BUILTIN, *FUNCTIONS))}", line)
    match name:
        case "print":
            return _print(arguments, line)
        case "printf" if arguments:
            return _printf(node.arguments[0], arguments[1:], line)
    if (found := _builtin(name, arguments, line)) is None:
        kinds = ", ".join(_named(argument.kind) for argument in arguments) or "nothing"
        raise GoTemplateError(f"{name} of {kinds} is not translated", line)
    return found


def _builtin(name: str, arguments: list[JinjaExpression], line: int) -> JinjaExpression | None:
    found: JinjaExpression | None = None
    match name, arguments:
        case "not", [tested]:
            found = JinjaExpression(f"not {tested.atom}", Scalar.BOOL, is_atom=False)
        case (("and" | "or"), [only]):
            found = only
        case (("and" | "or"), [first, *others]):
            same = all(other.kind == first.kind for other in others)
            code = f" {name} ".join(argument.atom for argument in arguments)
            found = JinjaExpression(code, first.kind if same else Scalar.MIXED, is_atom=False)
        case "len", [JinjaExpression(kind=ListOf() | Scalar.STRING) as measured]:
            found = JinjaExpression(f"{measured.atom} | length", Scalar.INT, is_atom=False)
        case "index", [JinjaExpression(kind=ListOf(item=item)) as listed, JinjaExpression(kind=Scalar.INT) as index]:
            found = JinjaExpression(f"{listed.atom}[{index.code}]", item)
        case _, [first, second, *more] if name in _COMPARISONS and (name == "eq" or not more):
            found = _comparison(name, [first, second, *more], line)
    return found


def _comparison(name: str, values: list[JinjaExpression], line: int) -> JinjaExpression:
    for kinds in ({Scalar.INT}, {Scalar.BOOL}, {Scalar.STRING}):
        if all({Scalar.STRING if value.is_string else value.kind} <= kinds for value in values):
            break
    else:
        raise GoTemplateError(f"{name} compares two texts, two numbers or two bools", line)
    first, *others = values
    if len(others) > 1:
        code = f"{first.atom} in [{', '.join(other.code for other in others)}]"
    else:
        code = f"{first.atom} {_COMPARISONS[name]} {others[0].atom}"
    return JinjaExpression(code, Scalar.BOOL, is_atom=False)


def _print(values: list[JinjaExpression], line: int) -> JinjaExpression:
    """Join as Go's ``print`` does: with a blank between two values when neither is a string."""
    parts: list[str] = []
    for index, value in enumerate(values):
        if index and not value.is_string and not values[index - 1].is_string:
            parts.append("' '")
        parts.append(value.text(line).atom)
    return _joined(parts)


def _joined(parts: list[str]) -> JinjaExpression:
    if len(parts) == 1 and not parts[0].startswith("'"):
        return JinjaExpression(f"{parts[0]} | string", Scalar.STRING, is_atom=False)
    return JinjaExpression(" ~ ".join(parts) or "''", Scalar.STRING, is_atom=len(parts) < 2)


def _printf(layout: Value, values: list[JinjaExpression], line: int) -> JinjaExpression:
    if not isinstance(layout, Literal) or not isinstance(layout.value, str):
        raise GoTemplateError("printf is translated only with its layout written there, in quotes", line)
    rest, parts = list(values), []
    for piece in _PIECE.finditer(layout.value):
        if piece["text"]:
            parts.append(text_literal(piece["text"].replace("%%", "%")))
        elif piece["verb"] is None:
            raise GoTemplateError(f"printf {piece[0]}: only %s %d %v %t %x %X, with - or 0 and a width", line)
        elif not rest:
            raise GoTemplateError("printf has more verbs than values", line)
        else:
            parts.append(_formatted(piece, rest.pop(0), line))
    if rest:
        raise GoTemplateError("printf has more values than verbs", line)
    return _joined(parts)


def _formatted(found: re.Match[str], value: JinjaExpression, line: int) -> str:
    """Return the code of one verb: as it prints by itself, or by Jinja's ``format``, which is Python's ``%``."""
    flag, width, verb = found["flag"], found["width"] or "", found["verb"]
    kind = value.kind
    fits = {
        "s": value.is_string or isinstance(kind, GoStruct) or kind == ListOf(Scalar.STRING),
        "d": kind is Scalar.INT,
        "v": True,
        "t": kind is Scalar.BOOL,
    }.get(verb, kind is Scalar.INT)
    is_plain = not flag and not width and verb in "sdvt"
    if not fits or not (is_plain or kind is Scalar.INT or (flag != "0" and not isinstance(kind, ListOf))):
        raise GoTemplateError(f"printf {found[0]} of a {_named(kind)} is not translated", line)
    text = value.text(line)
    if is_plain:
        return text.atom
    verb = "d" if verb == "v" and kind is Scalar.INT else verb if kind is Scalar.INT else "s"
    return f"('%{flag}{width}{verb}' | format({text.code}))"
