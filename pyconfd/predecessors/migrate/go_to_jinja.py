"""A template of kube2lb, written in Go's language, to Jinja that renders the same.

What cannot be translated becomes a tag that fails when it is rendered, and a remark.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from pyconfd.predecessors.gotemplate import (
    Branch,
    Call,
    Comment,
    Dot,
    Field,
    GoAction,
    GoTemplateError,
    Literal,
    Node,
    Text,
    Value,
    Variable,
    parse,
)

_CLUSTER: Mapping[str, str] = MappingProxyType(
    {"Services": "services", "Ports": "ports", "Nodes": "nodes", "Domain": "domain"}
)
"""What kube2lb hands to its templates, by the names that preset ``kube2lb`` gives."""
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "Endpoints": "endpoints",
        "External": "external",
        "IP": "ip",
        "IsRegexp": "is_regexp",
        "Mode": "mode",
        "Name": "name",
        "Namespace": "namespace",
        "NodePort": "node_port",
        "Port": "port",
        "Protocol": "protocol",
        "Regexp": "regexp",
        "Timeout": "timeout",
    }
)
"""The fields of Services, ports, endpoints and server names; no name means two things."""
_FUNCTIONS = ("ServerNames", "EscapeNode", "IntRange", "Add", "ToLower", "ToUpper")
"""kube2lb's own functions, which preset ``kube2lb`` gives under the same names."""
_COMPARISONS = MappingProxyType({"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="})
_NOT_PRINTED = frozenset(
    {"Services", "Ports", "Nodes", "Endpoints", "External", "IsRegexp", "IntRange", "ServerNames", "not", *_COMPARISONS}
)
"""Lists and booleans, which Go prints in another way than Jinja; a template that prints one is not translated."""
_BUILTIN = (*_COMPARISONS, "and", "or", "not", "len", "index", "print", "printf")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about a line of the source; ``is_problem`` where it was not translated."""

    line: int
    message: str
    is_problem: bool


@dataclass(frozen=True, slots=True)
class JinjaTranslation:
    """``text`` is the Jinja template, ``actions`` how many tags were translated."""

    text: str
    actions: int
    remarks: tuple[Remark, ...] = ()


def translate(text: str, name: str) -> JinjaTranslation:
    """Translate a Go template; ``name`` is that of its file, for messages.

    Raises:
        GoTemplateError: the text cannot be read at all.
    """
    writer = _Writer(name)
    writer.nodes(parse(text))
    return JinjaTranslation(_assembled(writer.items), writer.actions, tuple(writer.remarks))


def untranslated(what: str) -> str:
    """Return an expression that fails when it is rendered, since nothing has its name; it shows ``what`` is meant."""
    return f"not_translated({text_literal(what)})"


@dataclass(frozen=True, slots=True)
class JinjaExpression:
    """Jinja ``code``; one that ``is_atom`` needs no parentheses inside another one.

    One that ``is_path`` is a name or path whose value is the same wherever it is written. The cluster itself, ``.`` at
    the top, has no code: its fields are names of their own.
    """

    code: str
    is_atom: bool = True
    is_path: bool = False

    @property
    def atom(self) -> str:
        """The code, in parentheses if it needs them."""
        return self.code if self.is_atom else f"({self.code})"


_ROOT = JinjaExpression("", is_path=True)
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE = re.compile(r"[\\'\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff]|\{(?=[{%#])|(?<=[%#}-])\}")


def text_literal(value: str) -> str:
    """Return a text as a Jinja literal that holds no delimiter of Jinja."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return _ESCAPES.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")

    return f"'{_UNSAFE.sub(escape, value)}'"


def _expression(value: Value, dot: JinjaExpression, variables: Mapping[str, JinjaExpression]) -> JinjaExpression:
    """Return the Jinja expression of a value; raises GoTemplateError where there is none."""
    match value:
        case Literal(value=bool() | int() as constant):
            return JinjaExpression(str(constant).lower(), is_atom=not str(constant).startswith("-"))
        case Literal(value=text):
            return JinjaExpression(text_literal(str(text)))
        case Dot():
            return _ROOT if value.is_root else dot
        case Variable():
            if value.name not in variables:
                raise GoTemplateError(f"${value.name} is not declared", value.line)
            return variables[value.name]
        case Field():
            return _field(_expression(value.base, dot, variables), value)
        case Call():
            arguments = [_expression(argument, dot, variables) for argument in value.arguments]
            if _ROOT in arguments:
                raise GoTemplateError("the cluster as a whole is no argument: name the field that is meant", value.line)
            return _call(value, arguments)


def _field(base: JinjaExpression, node: Field) -> JinjaExpression:
    known = _CLUSTER if base == _ROOT else _FIELDS
    if node.name == "String" and base != _ROOT:
        return JinjaExpression(f"{base.atom} | string", is_atom=False)
    if node.name not in known:
        raise GoTemplateError(f"there is no field .{node.name} here{_meant(node.name, known, '.')}", node.line)
    code = known[node.name]
    return JinjaExpression(f"{base.atom}.{code}" if base != _ROOT else code, is_path=base.is_path)


def _meant(name: str, known: Iterable[str], mark: str = "") -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {mark}{close[0]}?" if close else ""


def _call(node: Call, arguments: list[JinjaExpression]) -> JinjaExpression:  # noqa: C901 - one case for each function
    name = node.function
    found: str | None = None
    match name, arguments:
        case _, _ if name in _FUNCTIONS:
            return JinjaExpression(f"{name}({', '.join(argument.code for argument in arguments)})")
        case "index", [listed, index]:
            return JinjaExpression(f"{listed.atom}[{index.code}]")
        case "not", [tested]:
            found = f"not {tested.atom}"
        case (("and" | "or"), [_, _, *_]):
            found = f" {name} ".join(argument.atom for argument in arguments)
        case "len", [measured]:
            found = f"{measured.atom} | length"
        case "eq", [first, _, _, *_]:
            found = f"{first.atom} in [{', '.join(other.code for other in arguments[1:])}]"
        case _, [first, second] if name in _COMPARISONS:
            found = f"{first.atom} {_COMPARISONS[name]} {second.atom}"
        case "print", [printed]:
            found = f"{printed.atom} | string"
        case "printf", [_, *values]:
            found = _printf(node.arguments[0], values, node.line)
    if found is None:
        if name in _BUILTIN:
            raise GoTemplateError(f"{name} with {len(arguments)} arguments is not translated", node.line)
        raise GoTemplateError(f"there is no function {name}{_meant(name, (*_BUILTIN, *_FUNCTIONS))}", node.line)
    return JinjaExpression(found, is_atom=False)


def _printf(layout: Value, values: list[JinjaExpression], line: int) -> str:
    if not isinstance(layout, Literal) or not isinstance(layout.value, str):
        raise GoTemplateError("printf is translated only with its layout written there, in quotes", line)
    verbs = re.findall(r"%.?", layout.value, re.DOTALL)
    if other := [verb for verb in verbs if verb not in ("%s", "%d", "%v", "%%")]:
        raise GoTemplateError(f"printf {other[0]}: only %s, %d and %v are translated", line)
    if sum(verb != "%%" for verb in verbs) != len(values):
        raise GoTemplateError("printf needs a verb for each value", line)
    literal = text_literal(layout.value.replace("%v", "%s"))
    return f"{literal} | format({', '.join(value.code for value in values)})"


@dataclass(frozen=True, slots=True)
class _Tag:
    """One tag of Jinja; ``mark`` is the second character of its delimiters."""

    mark: str
    content: str


_Item = _Tag | Text

_JINJA = "and caller else false if in is kwargs loop namespace none not or recursive self super true varargs"
_RESERVED = frozenset([*_JINJA.split(" "), *_CLUSTER.values(), "kube2lb", *_FUNCTIONS])
"""Names that a variable must not have: Jinja's own, and those that the templates read."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class _Writer:
    """Translates the nodes in their order into ``items``.

    ``_dot`` is what ``.`` is at this place, ``_variables`` what variables are, ``_taken`` the names that Jinja's
    variables have here.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._dot = _ROOT
        self._variables: dict[str, JinjaExpression] = {}
        self._taken: list[str] = []
        self.items: list[_Item] = []
        self.actions = 0
        self.remarks: list[Remark] = []

    def nodes(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            match node:
                case Text():
                    self.items.append(node)
                    continue
                case Comment(value=value):
                    self.items.append(_comment(value))
                case GoAction() | Branch():
                    self._translate(node)
            self.actions += 1

    def _translate(self, node: GoAction | Branch) -> None:
        begin = len(self.items)
        try:
            match node:
                case Branch(keyword="range"):
                    with self._inner():
                        self._range(node)
                case Branch():
                    with self._inner():
                        self._if(node)
                case GoAction(declared=None):
                    self._print(node)
                case GoAction(declared=str() as name):
                    self._declare(name, self._value(node.value))
        except GoTemplateError as error:
            end = " ... {{ end }}" if isinstance(node, Branch) else ""
            message = f"{node.source}{end}: {error.message}"
            self.remarks.append(Remark(error.line, message, is_problem=True))
            self.items[begin:] = [_Tag("{", untranslated(f"{self._name} line {error.line}: {message}"))]

    def _print(self, node: GoAction) -> None:
        value = self._value(node.value)
        if value == _ROOT:
            raise GoTemplateError("the cluster as a whole: name the field that is meant", node.line)
        match node.value:
            case Field(name=name) | Call(function=name) if name in _NOT_PRINTED:
                raise GoTemplateError(f"{name} is a list or a boolean: write a range, or an if", node.line)
        self.items.append(_Tag("{", value.code))

    def _say(self, statement: str) -> None:
        self.items.append(_Tag("%", statement))

    def _value(self, value: Value) -> JinjaExpression:
        return _expression(value, self._dot, self._variables)

    def _fresh(self, wanted: str) -> str:
        """Return a name that nothing has here, as Jinja's habits write it: ``server_name`` for ``serverName``."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", _WORDS.sub("_", wanted)).lower()
        base = base if base[:1].isalpha() else f"v{base}"
        name, number = base, 2
        while name in _RESERVED or name in self._taken:
            name, number = f"{base}{number}", number + 1
        self._taken.append(name)
        return name

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """Forget at the end what ``.`` became, and what was declared."""
        dot, variables, taken = self._dot, dict(self._variables), len(self._taken)
        try:
            yield
        finally:
            self._dot, self._variables = dot, variables
            del self._taken[taken:]

    def _declare(self, name: str, value: JinjaExpression) -> None:
        """Declare a variable, by another name of the same value where there is one."""
        if value.is_path:
            self.items.append(_comment(f"${name} is {value.code or 'the cluster'}"))
        else:
            value = self._set(name, value)
        self._variables[name] = value

    def _set(self, name: str, value: JinjaExpression) -> JinjaExpression:
        code = self._fresh(name)
        self._say(f"set {code} = {value.code}")
        return JinjaExpression(code, is_path=True)

    def _if(self, node: Branch, word: str = "if") -> None:
        value = self._value(node.value)
        for declared in node.declared:
            self._declare(declared, value)
            value = self._variables[declared]
        if node.keyword == "with" and not value.is_path:
            value = self._set("value", value)
        self._say(f"{word} {value.code or 'true'}")
        with self._inner():
            if node.keyword == "with":
                self._dot = value
            self.nodes(node.body)
        match node.otherwise:
            case [Branch(is_chained=True, declared=()) as chained]:
                self.actions += 1
                self._if(chained, "elif")
            case (*nodes,):
                self._say("else")
                with self._inner():
                    self.nodes(tuple(nodes))
        if word == "if":
            self._say("endif")

    def _range(self, node: Branch) -> None:
        value = self._value(node.value)
        if value == _ROOT or isinstance(node.value, Literal):
            raise GoTemplateError("range is translated over lists only", node.line)
        *index, element = node.declared or ("",)
        item = JinjaExpression(self._fresh(element or _singular(value.code)), is_path=True)
        with self._inner():
            self._say(f"for {item.code} in {value.code}")
            if element:
                self._variables[element] = item
            for name in index:
                # An inner loop has a ``loop`` of its own.
                self._variables[name] = self._set(name, JinjaExpression("loop.index0"))
            self._dot = item
            self.nodes(node.body)
        if node.otherwise is not None:
            self._say("else")
            with self._inner():
                self.nodes(node.otherwise)
        self._say("endfor")


def _singular(code: str) -> str:
    last = code.rpartition(".")[2]
    return last[:-1] if re.fullmatch(r"[a-z_]{3,}s", last) else "item"


def _comment(content: str) -> _Tag:
    return _Tag("#", content.replace("#}", "# }").replace("{#", "{ #"))


_HAZARD = re.compile(r"\{(?=[{%#])")


def _assembled(items: Sequence[_Item]) -> str:
    """Return the source, white space exact whatever ``trim_blocks`` says; Jinja takes its last newline off."""
    out: list[str] = []
    for index, item in enumerate(items):
        before = items[index - 1] if index else None
        after = items[index + 1] if index + 1 < len(items) else None
        if isinstance(item, Text):
            out.append(_text(item, is_last=after is None))
            continue
        left = "-" if isinstance(before, Text) and before.trim_right else ""
        right = ""
        if isinstance(after, Text) and after.trim_left:
            right = "-"
        elif isinstance(after, Text) and item.mark != "{" and after.value.startswith("\n"):
            right = "+"
        out.append(f"{{{item.mark}{left} {item.content} {right}{'}' if item.mark == '{' else item.mark}}}")
    return "".join(out) + "\n"


def _text(node: Text, *, is_last: bool) -> str:
    """Return literal text with the blanks that tags trim, and with what Jinja would read as a tag as a literal."""
    value = node.raw
    if value.endswith("{") and not is_last:
        return f"{_HAZARD.sub(_literal, value[:-1])}{{{{ '{{' }}}}"
    return _HAZARD.sub(_literal, value)


def _literal(found: re.Match[str]) -> str:
    return f"{{{{ {text_literal(found[0])} }}}}"
