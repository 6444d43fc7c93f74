"""The tree of a Go template to Jinja that renders the same."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyconfd.migrate.gotemplate.assembly import NEW_LINE, OUTPUT, STATEMENT, Item, Tag, assemble, remark
from pyconfd.migrate.gotemplate.evaluate import Evaluator
from pyconfd.migrate.gotemplate.expressions import Expression, Level, UntranslatableError, as_text, text_literal
from pyconfd.migrate.gotemplate.functions import ALL_OF_ROOT, OF_SEVERAL_TYPES
from pyconfd.migrate.gotemplate.lexer import Places
from pyconfd.migrate.gotemplate.nodes import Action, Branch, Call, Comment, Define, Jump, Pipeline, Template, Text
from pyconfd.migrate.gotemplate.parser import parse
from pyconfd.migrate.gotemplate.scope import Binding, Scope, snake
from pyconfd.migrate.gotemplate.types import ListOf, Scalar, Schema, Struct, Type, has_no_text, joined

_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_MAX_PASSES = 50


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about a line of the source; ``is_problem`` where it was not translated."""

    line: int
    message: str
    is_problem: bool


@dataclass(frozen=True, slots=True)
class Translated:
    """``text`` is the Jinja template, ``actions`` how many tags were translated."""

    text: str
    actions: int
    remarks: tuple[Remark, ...] = ()


def translate(text: str, schema: Schema, name: str) -> Translated:
    """Translate a Go template; ``name`` is that of its file, for messages.

    What cannot be translated becomes ``go.untranslated(...)``, which fails when it is rendered, and a remark.

    Raises:
        GoTemplateError: Go would not parse it.

    """
    template = parse(text)
    known = _Known()
    for _pass in range(_MAX_PASSES):
        before = known.state
        writer = _Writer(text, template, schema, name, known)
        items = writer.run()
        if before == known.state:
            break
    return Translated(assemble(items), writer.actions, tuple(writer.remarks))


@dataclass(slots=True)
class _Known:
    """What a pass learned; the next one begins with it. Variables are told apart by the offset of their declaration.

    ``types`` has what variables hold that got another type later; ``macros`` the name of each defined template for each
    type of dot that it is called with.
    """

    mutable: set[int] = field(default_factory=set)
    types: dict[int, Type] = field(default_factory=dict)
    macros: dict[tuple[str, Type], str] = field(default_factory=dict)

    @property
    def state(self) -> tuple[int, dict[int, Type], int]:
        return len(self.mutable), dict(self.types), len(self.macros)


class _Writer:
    def __init__(self, source: str, template: Template, schema: Schema, name: str, known: _Known) -> None:
        self._source, self._template, self._schema, self._name, self._known = source, template, schema, name, known
        self._places = Places(source)
        self._called: set[tuple[str, Type]] = set()
        self._macro_items: list[Item] = []
        self._items: list[Item] = []
        self.remarks: list[Remark] = []
        self.actions = 0
        self._begin(Expression(schema.root_code, schema.root))

    def run(self) -> list[Item]:
        self._nodes(self._template.nodes)
        called = {name for name, _kind in self._called}
        for name in self._template.defined:
            if name not in called:
                self._note(0, f"template {name!r} is defined and never used; it was left out")
        if not self._macro_items:
            return self._items
        return [*self._macro_items, remark("the template itself"), *self._items]

    def _begin(self, dot: Expression) -> None:
        self._scope = Scope(self._schema, set(self._known.macros.values()))
        self._in_else: list[bool] = []
        self._dot = dot
        self._scope.bindings.append(Binding("", dot, -1))
        if match := re.fullmatch(r"[a-z_0-9]+", dot.code):
            self._scope.names.append(match[0])

    def _note(self, at: int, message: str, *, is_problem: bool = False) -> None:
        self.remarks.append(Remark(self._places.line(at), message, is_problem))

    def _add(self, kind: str, content: str) -> None:
        self._items.append(Tag(kind, content))

    def _nodes(self, nodes: tuple[Any, ...]) -> None:
        for node in nodes:
            if isinstance(node, Text):
                self._items.append(node)
                continue
            self.actions += 1
            match node:
                case Comment():
                    self._items.append(remark(node.value))
                case Define():
                    self._items.append(remark(f"template {node.name!r} stands at the top, as a macro"))
                case Action():
                    self._action(node.pipeline)
                case Jump():
                    self._jump(node)
                case Call():
                    self._call(node)
                case Branch(keyword="range"):
                    self._range(node)
                case Branch():
                    with self._inner():
                        self._if(node, "if")

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """Open a scope: its variables and the dot are forgotten after it."""
        mark, dot = self._scope.mark(), self._dot
        yield
        self._scope.release(mark)
        self._dot = dot

    def _value(self, pipeline: Pipeline) -> Expression:
        try:
            return Evaluator(self._schema, self._scope, self._dot).pipeline(pipeline)
        except UntranslatableError as error:
            line = self._places.line(error.at)
            source = " ".join(self._source[pipeline.at : pipeline.end].split())
            self._note(error.at, f"{{{{ {source} }}}}: {error.message}", is_problem=True)
            what = f"{self._name} line {line}: {source}: {error.message}"
            return Expression(f"go.untranslated({text_literal(what)})")

    def _action(self, pipeline: Pipeline) -> None:
        value = self._value(pipeline)
        if not pipeline.declared and has_no_text(value.kind):
            self._untranslated(pipeline, ALL_OF_ROOT)
        elif not pipeline.declared:
            self._add(OUTPUT, as_text(value))
        elif pipeline.assigns:
            self._assign(pipeline, value)
        else:
            self._declare(pipeline, value)

    def _assign(self, pipeline: Pipeline, value: Expression) -> None:
        name = pipeline.declared[0].name
        binding = self._scope.find(name)
        if binding is None or binding.declared_at < 0:
            self._add(STATEMENT, f"set _ = go.untranslated({text_literal(f'${name} = ...')})")
            return
        self._known.mutable.add(binding.declared_at)
        if value.kind != binding.value.kind:
            if has_no_text(value.kind) or has_no_text(binding.value.kind):
                self._untranslated(pipeline, ALL_OF_ROOT)
            self._known.types[binding.declared_at] = joined(binding.value.kind, value.kind)
        self._add(STATEMENT, f"set {binding.value.code} = {value.code}")

    def _bind(self, name: str, value: Expression, declared_at: int) -> Binding:
        """Make a variable known that ``value`` is the code of."""
        if declared_at in self._known.types:
            value = replace(value, kind=joined(value.kind, self._known.types[declared_at]), constant=None)
        binding = Binding(name, value, declared_at, declared_at in self._known.mutable)
        self._scope.bindings.append(binding)
        return binding

    def _declare(self, pipeline: Pipeline, value: Expression) -> Expression:
        """Write ``$name := value``; give how the variable is read."""
        variable = pipeline.declared[0]
        if variable.at in self._known.mutable:
            code = self._scope.fresh(variable.name)
            self._add(STATEMENT, f"set {code} = namespace(value={value.code})")
            return self._bind(variable.name, Expression(f"{code}.value", value.kind), variable.at).value
        if value.code == snake(variable.name):
            self._items.append(remark(f"${variable.name} is {value.code}"))
            return self._bind(variable.name, value, variable.at).value
        code = self._scope.fresh(variable.name)
        self._add(STATEMENT, f"set {code} = {value.code}")
        return self._bind(variable.name, replace(value, code=code, level=Level.ATOM), variable.at).value

    def _if(self, node: Branch, word: str) -> None:
        pipeline = node.pipeline
        value = self._value(pipeline)
        is_constant = pipeline.declared and not pipeline.assigns and pipeline.declared[0].at not in self._known.mutable
        if node.keyword == "with" and not is_constant and (pipeline.declared or not self._is_fixed(value)):
            # The dot keeps the value that the variable has now.
            code = self._scope.fresh("value")
            self._add(STATEMENT, f"set {code} = {value.code}")
            value = Expression(code, value.kind)
        stored = value
        if pipeline.assigns:
            self._assign(pipeline, value)
            binding = self._scope.find(pipeline.declared[0].name)
            stored = binding.value if binding else value
        elif pipeline.declared:
            stored = self._declare(pipeline, value)
        value = stored if node.keyword == "if" or is_constant else value
        self._add(STATEMENT, f"{word} {value.code}")
        dot = self._dot
        self._dot = value if node.keyword == "with" else dot
        with self._inner():
            self._nodes(node.body)
        self._dot = dot
        if node.otherwise is not None:
            self._otherwise(node.otherwise)
        if word == "if":
            self._add(STATEMENT, "endif")

    def _is_fixed(self, value: Expression) -> bool:
        """Return whether code is a path that gives the same value wherever it stands."""
        changing = tuple(binding.value.code for binding in self._scope.bindings if binding.is_mutable)
        return bool(_PATH.fullmatch(value.code)) and not f"{value.code}.".startswith(tuple(f"{x}." for x in changing))

    def _otherwise(self, nodes: tuple[Any, ...]) -> None:
        first = nodes[0] if nodes else None
        if isinstance(first, Branch) and first.chained:
            self.actions += 1
            needs_set = first.pipeline.declared or first.keyword == "with"
            if not needs_set:
                self._if(first, "elif")
                return
            self._add(STATEMENT, "else")
            with self._inner():
                self._if(first, "if")
            return
        self._add(STATEMENT, "else")
        with self._inner():
            self._nodes(nodes)

    def _range(self, node: Branch) -> None:
        pipeline = node.pipeline
        value = self._value(pipeline)
        variables = pipeline.declared
        if pipeline.assigns:
            self._untranslated(pipeline, "range with = instead of := means different things in versions of Go")
        if isinstance(value.kind, Struct) or value.kind in (Scalar.STRING, Scalar.BOOL, Scalar.FLOAT):
            self._untranslated(pipeline, "range can't iterate over it")
            value = replace(value, kind=Scalar.ANY)
        if value.kind is Scalar.MIXED:
            self._untranslated(pipeline, f"range over {OF_SEVERAL_TYPES}")
        if value.kind is Scalar.INT and len(variables) > 1:
            self._untranslated(pipeline, "range over a number has one variable")
        # Jinja runs the else of a loop that break or continue ends in its first round, so an if stands around it.
        is_guarded = node.otherwise is not None and any(map(_jumps, node.body))
        with self._inner():
            iterable = _iterable(value, has_key=len(variables) > 1)
            if is_guarded:
                code = self._scope.fresh("items")
                self._add(STATEMENT, f"set {code} = {iterable}")
                self._add(STATEMENT, f"if {code}")
                iterable = code
            self._loop(node, value, iterable)
        if is_guarded:
            self._add(STATEMENT, "endfor")
        if node.otherwise is not None:
            self._add(STATEMENT, "else")
            with self._inner():
                for variable in variables:
                    self._loop_variable(variable, value)
                self._in_else.append(True)
                self._nodes(node.otherwise)
                self._in_else.pop()
        self._add(STATEMENT, "endif" if is_guarded else "endfor")

    def _untranslated(self, pipeline: Pipeline, message: str) -> None:
        line = self._places.line(pipeline.at)
        source = " ".join(self._source[pipeline.at : pipeline.end].split())
        self._note(pipeline.at, f"{{{{ {source} }}}}: {message}", is_problem=True)
        self._add(OUTPUT, f"go.untranslated({text_literal(f'{self._name} line {line}: {source}: {message}')})")

    def _loop(self, node: Branch, value: Expression, iterable: str) -> None:
        variables = node.pipeline.declared
        key = variables[0] if len(variables) > 1 else None
        element = variables[-1] if variables else None
        is_list, kind, key_code = isinstance(value.kind, ListOf), _item_kind(value.kind), ""
        item = Expression(self._scope.fresh(element.name if element else _singular(value.code)), kind)
        if key is None or is_list:
            self._add(STATEMENT, f"for {item.code} in {iterable}")
        else:
            key_code = self._scope.fresh(key.name)
            self._add(STATEMENT, f"for {key_code}, {item.code} in {iterable}")
        begin, binding = len(self._items), None
        if key is not None and not node.pipeline.assigns:
            key_kind = Scalar.INT if is_list else Scalar.ANY
            binding = self._loop_variable(key, Expression("loop.index0" if is_list else key_code, key_kind))
        if element is not None and not node.pipeline.assigns:
            self._loop_variable(element, item)
        self._dot = item
        self._in_else.append(False)
        self._nodes(node.body)
        self._in_else.pop()
        if is_list and binding is not None and not binding.is_used:
            del self._items[begin]

    def _loop_variable(self, variable: Any, value: Expression) -> Binding:
        """Make a variable of ``range`` known; inner loops have a ``loop`` of their own, so an index gets a name."""
        if variable.at in self._known.mutable:
            code = self._scope.fresh(variable.name)
            self._add(STATEMENT, f"set {code} = namespace(value={value.code})")
            return self._bind(variable.name, Expression(f"{code}.value", value.kind), variable.at)
        if value.code.startswith("loop.") or not self._is_fixed(value):
            code = self._scope.fresh(variable.name)
            self._add(STATEMENT, f"set {code} = {value.code}")
            return self._bind(variable.name, Expression(code, value.kind), variable.at)
        return self._bind(variable.name, value, variable.at)

    def _jump(self, node: Jump) -> None:
        if node.keyword == "continue" or not self._in_else[-1]:
            self._add(STATEMENT, node.keyword)
            return
        message = "break in the else of a range ends only that else in Go"
        self._note(node.at, message, is_problem=True)
        what = f"{self._name} line {self._places.line(node.at)}: {message}"
        self._add(OUTPUT, f"go.untranslated({text_literal(what)})")

    def _call(self, node: Call) -> None:
        if node.name not in self._template.defined:
            self._note(node.at, f"there is no template {node.name!r}", is_problem=True)
            self._add(OUTPUT, f"go.untranslated({text_literal(f'template {node.name!r} is not in {self._name}')})")
            return
        pipeline = node.pipeline
        value = self._value(pipeline) if pipeline else Expression("none", Scalar.NIL)
        if pipeline and pipeline.declared:
            value = self._declare(pipeline, value)
        is_root = isinstance(value.kind, Struct) and value.kind.is_root
        name = self._macro(node.name, value.kind)
        self._add(OUTPUT, f"{name}({'' if is_root else value.code})")

    def _macro(self, name: str, kind: Type) -> str:
        """Return the macro of a defined template for a type of dot; write it the first time."""
        key = name, kind
        macro = self._known.macros.get(key)
        if macro is None:
            macro = Scope(self._schema, set(self._known.macros.values())).fresh(name)
            self._known.macros[key] = macro
        if key in self._called:
            return macro
        self._called.add(key)
        outer = self._items, self._scope, self._dot, self._in_else
        self._items = []
        is_root = isinstance(kind, Struct) and kind.is_root
        if is_root:
            self._begin(Expression(self._schema.root_code, kind))
        else:
            code = Scope(self._schema, set(self._known.macros.values())).fresh(
                kind.name if isinstance(kind, Struct) else "dot"
            )
            self._begin(Expression(code, kind))
        self._add(STATEMENT, f"macro {macro}({'' if is_root else self._dot.code})")
        self._nodes(self._template.defined[name])
        self._add(STATEMENT, "endmacro")
        self._macro_items += [*self._items, NEW_LINE]
        self._items, self._scope, self._dot, self._in_else = outer
        return macro


def _item_kind(kind: Type) -> Type:
    if isinstance(kind, ListOf):
        return kind.item
    return kind if kind in (Scalar.INT, Scalar.MIXED) else Scalar.ANY


def _iterable(value: Expression, *, has_key: bool) -> str:
    """Return what Jinja loops over for a value that Go ranges over."""
    if isinstance(value.kind, ListOf):
        return value.code
    if value.kind is Scalar.INT and not has_key:
        return f"range({value.code})"
    return f"go.{'pairs' if has_key else 'values'}({value.code})"


def _jumps(node: Any) -> bool:
    """Return whether break or continue stands below a node."""
    if isinstance(node, Jump):
        return True
    return isinstance(node, Branch) and any(map(_jumps, (*node.body, *(node.otherwise or ()))))


def _singular(code: str) -> str:
    last = code.rpartition(".")[2]
    return last[:-1] if re.fullmatch(r"[a-z_]{3,}s", last) else "item"
