"""A template of kube2lb, written in Go's language, to Jinja that renders the same."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyconfd.gotemplate import (
    Branch,
    Comment,
    Declaration,
    Define,
    GoAction,
    GoTemplate,
    GoTemplateError,
    Include,
    Node,
    Text,
    Value,
    parse,
)
from pyconfd.migrate.go_expressions import (
    CLUSTER,
    FUNCTIONS,
    GoStruct,
    JinjaExpression,
    ListOf,
    Scalar,
    Type,
    text_literal,
    translated,
)


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

    What cannot be translated becomes a tag that fails when it is rendered, and a remark.

    Raises:
        GoTemplateError: the text cannot be read at all.

    """
    writer = _Writer(parse(text), name)
    items = writer.run()
    return JinjaTranslation(_assembled(items), writer.actions, tuple(writer.remarks))


def untranslated(what: str) -> str:
    """Return an expression that fails when it is rendered, since nothing has its name; it shows ``what`` is meant."""
    return f"not_translated({text_literal(what)})"


@dataclass(frozen=True, slots=True)
class _Tag:
    """One tag of Jinja; ``mark`` is the second character of its delimiters."""

    mark: str
    content: str


_Item = _Tag | Text
_NEW_LINE = Text("", "\n", trim_left=True)
"""A line break in the source that prints nothing; a tag must follow it."""

_JINJA = "and caller else false if in is kwargs loop namespace none not or recursive self super true varargs"
_RESERVED = frozenset([*_JINJA.split(" "), *(code for code, _kind in CLUSTER.fields.values()), "kube2lb", *FUNCTIONS])
"""Names that a variable must not have: Jinja's own, and those that the templates read."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class _Writer:
    """Translates the nodes in their order into :attr:`_items`.

    ``_dot`` and ``_root`` are what ``.`` and ``$`` are at this place, ``_variables`` what variables are, ``_taken`` the
    names that Jinja's variables have here, ``_macros`` the name of each defined template, ``_dot_of`` the type of ``.``
    in each that is used.
    """

    def __init__(self, template: GoTemplate, name: str) -> None:
        self._template, self._name = template, name
        self._items: list[_Item] = []
        self._dot = self._root = JinjaExpression("kube2lb", CLUSTER, is_fixed=True)
        self._variables: dict[Declaration, JinjaExpression] = {}
        self._taken: list[str] = []
        self._macros = {name: self._fresh(name) for name in template.defined}
        self._dot_of: dict[str, Type | None] = {}
        self._macro_items: list[_Item] = []
        self.actions = 0
        self.remarks: list[Remark] = []

    def run(self) -> list[_Item]:
        self._nodes(self._template.nodes)
        for name in self._template.defined:
            if name not in self._dot_of:
                self._remark(0, f"template {name!r} is defined and never used; it was left out")
        if self._macro_items:
            return [*self._macro_items, _comment("the template itself"), *self._items]
        return self._items

    def _remark(self, line: int, message: str, *, is_problem: bool = False) -> None:
        self.remarks.append(Remark(line, message, is_problem))

    def _say(self, statement: str) -> None:
        self._items.append(_Tag("%", statement))

    def _value(self, value: Value) -> JinjaExpression:
        return translated(value, self._dot, self._root, self._variables)

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
        """Forget at the end what ``.`` became and which names were taken."""
        dot, taken = self._dot, len(self._taken)
        try:
            yield
        finally:
            self._dot = dot
            del self._taken[taken:]

    def _nodes(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            match node:
                case Text():
                    self._items.append(node)
                    continue
                case Comment(value=value):
                    self._items.append(_comment(value))
                case Define(name=name):
                    self._items.append(_comment(f"template {name!r} stands at the top, as a macro"))
                case GoAction() | Branch() | Include():
                    self._translate(node)
            self.actions += 1

    def _translate(self, node: GoAction | Branch | Include) -> None:
        begin = len(self._items)
        try:
            with self._inner():
                match node:
                    case Include():
                        self._include(node)
                    case Branch(keyword="range"):
                        self._range(node)
                    case Branch():
                        self._if(node)
                    case GoAction():
                        pass
            if isinstance(node, GoAction):
                self._action(node)
        except GoTemplateError as error:
            end = " ... {{ end }}" if isinstance(node, Branch) else ""
            self._remark(error.line, f"{node.source}{end}: {error.message}", is_problem=True)
            what = f"{self._name} line {error.line}: {node.source}{end}: {error.message}"
            self._items[begin:] = [_Tag("{", untranslated(what))]

    def _action(self, node: GoAction) -> None:
        value = self._value(node.value)
        if node.declared is None:
            self._items.append(_Tag("{", value.text(node.line).code))
        elif node.assigns:
            variable = self._variables.get(node.declared)
            if variable is None or variable.is_fixed:
                message = f"= is translated only for what {{{{ ${node.declared.name} := ... }}}} declares by itself"
                raise GoTemplateError(message, node.line)
            if variable.kind != value.kind:
                raise GoTemplateError("it was of another type before: give each type its own variable", node.line)
            self._say(f"set {variable.code} = {value.code}")
        elif node.declared.is_assigned:
            # What a block of Jinja sets is gone after it, but for the attributes of a namespace.
            code = self._fresh(node.declared.name)
            self._say(f"set {code} = namespace(value={value.code})")
            self._variables[node.declared] = JinjaExpression(f"{code}.value", value.kind)
        else:
            self._declare(node.declared, value)

    def _declare(self, declared: Declaration, value: JinjaExpression) -> JinjaExpression:
        """Make a variable known, by another name of the same value where there is one; return how it is read."""
        if value.is_fixed:
            self._items.append(_comment(f"${declared.name} is {value.code}"))
        else:
            value = self._set(declared.name, value)
        self._variables[declared] = value
        return value

    def _set(self, name: str, value: JinjaExpression) -> JinjaExpression:
        code = self._fresh(name)
        self._say(f"set {code} = {value.code}")
        return JinjaExpression(code, value.kind, is_fixed=True)

    def _if(self, node: Branch, word: str = "if") -> None:
        value = self._value(node.value)
        for declared in node.declared:
            value = self._declare(declared, value)
        if node.keyword == "with" and not value.is_fixed:
            value = self._set("value", value)
        self._say(f"{word} {value.code}")
        with self._inner():
            if node.keyword == "with":
                self._dot = value
            self._nodes(node.body)
        match node.otherwise:
            case [Branch(is_chained=True, declared=()) as chained]:
                self.actions += 1
                self._if(chained, "elif")
            case [Branch(is_chained=True) as chained]:
                self.actions += 1
                self._say("else")
                self._if(chained)
            case (*nodes,):
                self._say("else")
                with self._inner():
                    self._nodes(tuple(nodes))
        if word == "if":
            self._say("endif")

    def _range(self, node: Branch) -> None:
        value = self._value(node.value)
        if not isinstance(value.kind, ListOf):
            raise GoTemplateError("range is translated over lists only", node.line)
        *index, element = node.declared or (None,)
        name = element.name if element else _singular(value.code)
        item = JinjaExpression(self._fresh(name), value.kind.item, is_fixed=True)
        with self._inner():
            self._say(f"for {item.code} in {value.code}")
            if element is not None:
                self._variables[element] = item
            for declared in index:
                # An inner loop has a ``loop`` of its own.
                if declared is not None and declared.is_used:
                    counter = JinjaExpression("loop.index0", Scalar.INT)
                    self._variables[declared] = self._set(declared.name, counter)
            self._dot = item
            self._nodes(node.body)
        for declared in node.declared:
            self._variables.pop(declared, None)
        if node.otherwise is not None:
            self._say("else")
            with self._inner():
                self._nodes(node.otherwise)
        self._say("endfor")

    def _include(self, node: Include) -> None:
        if node.name not in self._template.defined:
            raise GoTemplateError(f"there is no template {node.name!r} in this file", node.line)
        value = self._value(node.value) if node.value else None
        kind = value.kind if value else None
        if node.name not in self._dot_of:
            self._macro(node.name, kind)
        if self._dot_of[node.name] != kind:
            message = f"template {node.name!r} gets values of two types: define one for each"
            raise GoTemplateError(message, node.line)
        argument = "" if value is None or _is_root(kind) else value.code
        self._items.append(_Tag("{", f"{self._macros[node.name]}({argument})"))

    def _macro(self, name: str, kind: Type | None) -> None:
        outer = self._items, self._dot, self._root, self._taken
        self._items, self._taken = [], list(self._macros.values())
        self._dot_of[name] = kind
        if kind is None:
            # Go prints <no value> for it, which nobody wants.
            self._dot = JinjaExpression("none", Scalar.MIXED)
        elif not _is_root(kind):
            parameter = self._fresh(kind.name if isinstance(kind, GoStruct) else "dot")
            self._dot = JinjaExpression(parameter, kind, is_fixed=True)
        else:
            self._dot = JinjaExpression("kube2lb", CLUSTER, is_fixed=True)
        self._root = self._dot
        self._say(f"macro {self._macros[name]}({'' if kind is None or _is_root(kind) else self._dot.code})")
        self._nodes(self._template.defined[name])
        self._say("endmacro")
        self._macro_items += [*self._items, _NEW_LINE]
        self._items, self._dot, self._root, self._taken = outer


def _is_root(kind: Type | None) -> bool:
    return isinstance(kind, GoStruct) and kind.is_root


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
