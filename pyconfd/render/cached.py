"""Finds the loops of a fragment that can be remembered, and has them go through :meth:`pyconfd.render.memo.Memo.turns`.

A remembered loop stands in the fragment itself, bare or inside of ``{% if %}`` and ``{% with %}``: only there does what
it prints go straight into the text. ``{% cached for ... %}`` is a loop that must be remembered.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import cast

from jinja2 import Environment, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from pyconfd.errors import Problem
from pyconfd.render.purity import ImpurityError, Turn, stored_names

TURNS = "_turns_of_the_loop"
"""The name by which compiled templates know :meth:`Memo.turns`."""

ELEMENTS = "_elements_of_the_loop"
"""The name by which a loop that is compiled alone knows what it goes through."""

CONSTANTS = frozenset({"vars", "go"})
_ITEM = 2
_WHERE = "only a loop of the fragment itself is remembered, bare or inside of {% if %}"


class CachedFor(Extension):
    """The tag ``{% cached for ... in ... if ... %} ... {% endcached %}``."""

    tags = {"cached"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Give the loop in a Scope, which no other tag makes: so is it known again."""
        line = next(parser.stream).lineno
        if parser.name not in getattr(parser.environment, "remembering", ()):
            parser.fail("{% cached for %} stands in a fragment itself, not in a file that it includes", line)
        parser.stream.expect("name:for")
        target = parser.parse_assign_target(extra_end_rules=("name:in",))
        parser.stream.expect("name:in")
        elements = parser.parse_tuple(with_condexpr=False, extra_end_rules=("name:recursive",))
        test = parser.parse_expression() if parser.stream.skip_if("name:if") else None
        body = parser.parse_statements(("name:endcached", "name:else"))
        if next(parser.stream).value == "else":
            parser.fail("{% cached for %} has no {% else %}: test before the loop with {% if %}", line)
        return nodes.Scope([nodes.For(target, elements, body, [], test, False, lineno=line)], lineno=line)


@dataclass(frozen=True, slots=True)
class Loop:
    """A remembered loop by itself, as a template that goes through ELEMENTS.

    ``number`` is what :meth:`Memo.turns` knows it by, ``source`` the name whose items it goes through, ``outer`` are
    the names from outside, in the order in which its memory has their values.
    """

    number: int
    source: str
    outer: tuple[str, ...]
    tree: nodes.Template


class Loops:
    """The loops of one fragment; ``changed_at`` says where some template changes given values, "" if nowhere."""

    def __init__(
        self,
        name: str,
        tree: nodes.Template,
        *,
        functions: AbstractSet[str],
        filters: AbstractSet[str],
        changed_at: str,
    ) -> None:
        self._name = name
        self._tree = tree
        self._stored = stored_names(tree)
        self._functions, self._filters = functions, filters
        self._changed_at = changed_at
        self.remembered: list[int] = []
        """The lines of the loops that are remembered."""
        self.alone: list[Loop] = []
        """Those that go through the items of a given mapping which nothing else of the fragment reads."""
        self._reads = Counter(name.name for name in tree.find_all(nodes.Name) if name.ctx == "load")
        self._seen: set[int] = set()
        self._problems: list[Problem] = []

    def memoise(self) -> tuple[Problem, ...]:
        """Change the tree; give a problem for each ``{% cached for %}`` that cannot be remembered."""
        whole = next(self._tree.find_all((nodes.Extends, nodes.Block)), None)
        if whole is None:
            self._statements(self._tree.body, set())
        for scope in self._tree.find_all(nodes.Scope):
            if id(scope) not in self._seen:
                remedy = "write {% for %}" if whole is None else "do without {% extends %} and {% block %}"
                self._refuse(scope.lineno, _WHERE, remedy)
        through = Counter(loop.source for loop in self.alone)
        self.alone = [loop for loop in self.alone if through[loop.source] == self._reads[loop.source]]
        return tuple(self._problems)

    def _statements(self, body: list[nodes.Node], known: set[str]) -> None:
        """Go through one level of the template; ``known`` gains what it assigns."""
        for index, node in enumerate(body):
            match node:
                case nodes.If():
                    self._if(node, known)
                case nodes.With():
                    names = {name.name for target in node.targets for name in _names(target)}
                    self._statements(node.body, known | names)
                case nodes.For():
                    body[index] = self._loop(node, known, asserted=False)
                case nodes.Scope():
                    self._seen.add(id(node))
                    loop = node.body[0]
                    if isinstance(loop, nodes.For):
                        body[index] = self._loop(loop, known, asserted=True)
                case _:
                    known |= _assigned(node)

    def _if(self, node: nodes.If, known: set[str]) -> None:
        after = set(known)
        for branch in (node.body, *(other.body for other in node.elif_), node.else_):
            inside = set(known)
            self._statements(branch, inside)
            after |= inside
        known |= after

    def _loop(self, loop: nodes.For, known: AbstractSet[str], *, asserted: bool) -> nodes.For:
        try:
            turn = Turn(
                loop,
                known=known,
                stored=self._stored,
                functions=self._functions,
                constants=CONSTANTS,
                filters=self._filters,
            )
        except ImpurityError as error:
            if asserted:
                self._refuse(error.line, f"the loop cannot be remembered: it {error}", error.remedy)
                self._seen |= {id(inner) for inner in loop.find_all(nodes.Scope)}
            return loop
        if self._changed_at:
            if asserted:
                message = f"the loop cannot be remembered: {self._changed_at} changes values that it may read"
                self._refuse(loop.lineno, message, "change only lists and mappings that the template itself makes")
            return loop
        if asserted:
            for name, line in turn.outer.items():
                if name not in known:
                    message = f"the loop cannot be remembered: it reads {name}, which may change with every object"
                    remedy = f"put what it needs of {name} before the loop: {{% set ... = {name}... %}}"
                    self._refuse(line, message, remedy)
        self.remembered.append(loop.lineno)
        outer, source = sorted(turn.outer), self._items_of(loop)
        if source:
            self._take(loop, source, outer)
        loop.iter = self._turns(loop, outer)
        return loop

    def _items_of(self, loop: nodes.For) -> str:
        """Give the name of the mapping whose items a loop goes through, "" where it is another kind of loop."""
        given = loop.iter
        called = given.node if isinstance(given, nodes.Call) and not given.args else None
        mapping = called.node if isinstance(called, nodes.Getattr) and called.attr == "items" else None
        two = isinstance(loop.target, nodes.Tuple) and len(loop.target.items) == _ITEM
        return mapping.name if two and isinstance(mapping, nodes.Name) and mapping.name not in self._stored else ""

    def _take(self, loop: nodes.For, source: str, outer: list[str]) -> None:
        elements = nodes.Name(ELEMENTS, "load", lineno=loop.lineno)
        alone = nodes.For(loop.target, elements, loop.body, [], loop.test, False, lineno=loop.lineno)
        tree = nodes.Template([alone], lineno=1)
        tree.set_environment(cast("Environment", self._tree.environment))
        self.alone.append(Loop(len(self.remembered), source, tuple(outer), tree))

    def _turns(self, loop: nodes.For, outer: Iterable[str]) -> nodes.Expr:
        line = loop.iter.lineno
        width = len(loop.target.items) if isinstance(loop.target, nodes.Tuple) else 1
        given = cast("nodes.Expr", loop.iter)
        arguments: list[nodes.Expr] = [
            nodes.Const(len(self.remembered)),
            nodes.Const(width),
            given,
            self._source(given),
        ]
        arguments += [nodes.Name(name, "load", lineno=line) for name in outer]
        return nodes.Call(nodes.Name(TURNS, "load", lineno=line), arguments, [], None, None, lineno=line)

    def _source(self, elements: nodes.Expr) -> nodes.Expr:
        """Give what is the same object in all loops of a rendering that go through the same elements, or None."""
        source: nodes.Node = elements
        if isinstance(source, nodes.Call) and isinstance(source.node, nodes.Getattr) and source.node.attr == "items":
            source = source.node.node
        found = source
        while isinstance(source, nodes.Getattr):
            source = source.node
        given = isinstance(source, nodes.Name) and source.name not in self._stored
        return found if given and isinstance(found, nodes.Expr) else nodes.Const(None)

    def _refuse(self, line: int, message: str, remedy: str) -> None:
        self._problems.append(Problem(f"{self._name} line {line}", message, remedy))


def _names(target: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(target, nodes.Name):
        yield target
    else:
        yield from target.find_all(nodes.Name)


def _assigned(node: nodes.Node) -> set[str]:
    """Give the names that a statement assigns on its own level."""
    match node:
        case nodes.Assign() | nodes.AssignBlock() if not isinstance(node.target, nodes.NSRef):
            return {name.name for name in _names(node.target)}
        case nodes.Macro():
            return {node.name}
        case nodes.Import():
            return {node.target}
        case nodes.FromImport():
            return {name if isinstance(name, str) else name[1] for name in node.names}
        case _:
            return set()
