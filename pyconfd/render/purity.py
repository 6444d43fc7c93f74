"""Whether a loop of a template may be remembered: what one turn gives must depend on nothing but its own element.

Judged on the syntax tree, before anything is rendered. What is not known to be pure counts as impure.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from jinja2 import nodes
from jinja2.filters import FILTERS as JINJA_FILTERS

_RECORDED = frozenset({"map_entry", "map_file"})
"""Functions with an effect that is remembered together with the text; map_file only without entries."""

_FRESH = frozenset({"namespace", "dict"})
"""What gives a new object that only the turn itself knows."""

_LISTS = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
_DEQUES = {"appendleft", "extendleft", "popleft", "rotate"}
_MAPPINGS = {"popitem", "setdefault", "update", "__delitem__", "__setattr__", "__setitem__"}
_SETS = {"add", "difference_update", "discard", "intersection_update", "symmetric_difference_update"}
_ITERATORS = {"next", "reset", "send", "throw", "write", "__next__"}
_MUTATORS = frozenset(_LISTS | _DEQUES | _MAPPINGS | _SETS | _ITERATORS)
"""Methods that change what they belong to."""

_EXPRESSIONS = (nodes.BinExpr, nodes.UnaryExpr, nodes.Literal, nodes.CondExpr, nodes.Concat, nodes.Compare)
_PARTS = (nodes.Operand, nodes.Pair, nodes.Keyword, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Test)
_TRANSPARENT = (*_EXPRESSIONS, *_PARTS, nodes.Output)
"""Nodes that are as pure as what they hold."""

_WHY: Mapping[type[nodes.Node], tuple[str, str]] = MappingProxyType(
    {
        nodes.Include: ("includes a file", "write what it holds into the loop"),
        nodes.Import: ("imports a file", "write what it holds into the loop"),
        nodes.FromImport: ("imports a file", "write what it holds into the loop"),
        nodes.Macro: ("defines a macro", "write what it gives into the loop"),
        nodes.CallBlock: ("calls a macro", "write what it gives into the loop"),
        nodes.Block: ("has a {% block %}", "write its content into the loop"),
        nodes.Break: ("has a {% break %}", "put the condition into the loop: {% for ... in ... if ... %}"),
        nodes.Scope: ("has another {% cached for %} in it", "write {% for %} there"),
    }
)


class ImpurityError(Exception):
    """``line`` of the template has what prevents remembering; ``str()`` says what, ``remedy`` what to do instead."""

    def __init__(self, line: int, message: str, remedy: str) -> None:
        self.line = line
        self.remedy = remedy
        super().__init__(message)


def stored_names(tree: nodes.Node) -> frozenset[str]:
    """Give every name that is assigned somewhere in a template: by set, loops, macros, arguments and imports."""
    found = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    found |= {macro.name for macro in tree.find_all(nodes.Macro)}
    found |= {each.target for each in tree.find_all(nodes.Import)}
    for each in tree.find_all(nodes.FromImport):
        found |= {name if isinstance(name, str) else name[1] for name in each.names}
    return frozenset(found)


def names_read(tree: nodes.Node) -> tuple[str, ...] | None:
    """Give every name that a template reads, its own included; None where other files have a say in what it gives.

    What declares is left out: it is another function in each rendering, which does the same.
    """
    if next(tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)), None) is not None:
        return None
    return tuple(sorted({name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"} - _RECORDED))


def change_in(tree: nodes.Node) -> int:
    """Give the first line that changes a value which may come from outside of the template, 0 where none does.

    A list, mapping or namespace that the template itself made under a name is its own.
    """
    assigned: dict[str, bool] = {}
    for each in tree.find_all(nodes.Assign):
        if isinstance(each.target, nodes.Name):
            assigned[each.target.name] = assigned.get(each.target.name, True) and _is_fresh(each.node)
    stores = [name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"]
    plain = [each.target.name for each in tree.find_all(nodes.Assign) if isinstance(each.target, nodes.Name)]
    own = {name for name, fresh in assigned.items() if fresh and stores.count(name) == plain.count(name)}
    called = [call.node for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Getattr)]
    allowed = {id(each) for each in called if isinstance(each.node, nodes.Name) and each.node.name in own}
    for access in tree.find_all((nodes.Getattr, nodes.Getitem)):
        if id(access) not in allowed and _attribute(access) in _MUTATORS:
            return access.lineno
    return next((each.lineno for each in tree.find_all(nodes.Filter) if _names_a_mutator(each)), 0)


def _attribute(access: nodes.Node) -> object:
    if isinstance(access, nodes.Getattr):
        return access.attr
    return access.arg.value if isinstance(access, nodes.Getitem) and isinstance(access.arg, nodes.Const) else None


def _names_a_mutator(each: nodes.Filter) -> bool:
    texts = [arg.value for arg in [*each.args, *(one.value for one in each.kwargs)] if isinstance(arg, nodes.Const)]
    return each.name in {"attr", "map"} and any(text in _MUTATORS for text in texts if isinstance(text, str))


def _is_fresh(value: nodes.Node) -> bool:
    if isinstance(value, nodes.Call):
        return isinstance(value.node, nodes.Name) and value.node.name in _FRESH
    return isinstance(value, nodes.List | nodes.Dict)


class Turn:
    """Goes through the condition and the body of a loop.

    ``known`` are the names assigned before the loop, ``stored`` those assigned anywhere in the template, ``functions``
    the pure functions, ``constants`` the names that never change, ``filters`` ours that are pure.

    Raises:
        ImpurityError: the loop cannot be remembered.

    """

    def __init__(
        self,
        loop: nodes.For,
        *,
        known: AbstractSet[str],
        stored: AbstractSet[str],
        functions: AbstractSet[str],
        constants: AbstractSet[str],
        filters: AbstractSet[str],
    ) -> None:
        self.outer: dict[str, int] = {}
        """The names from outside that a turn reads, and the line where: they are the same in all turns."""
        self._known, self._stored = known, stored
        self._functions = functions - stored
        self._constants = constants - stored
        self._filters = filters
        if loop.recursive or loop.else_:
            what = "is recursive" if loop.recursive else "has an {% else %}"
            raise ImpurityError(loop.lineno, f"the loop {what}", "test before the loop with {% if %}")
        scope = _Scope(frozenset(), frozenset(), _assigned(loop.body), depth=0)
        scope = scope.binding(_targets(loop.target))
        if loop.test is not None:
            self._visit(loop.test, scope)
        self._block(loop.body, scope)

    def _block(self, body: Iterable[nodes.Node], scope: "_Scope") -> "_Scope":
        for node in body:
            scope = self._statement(node, scope)
        return scope

    def _statement(self, node: nodes.Node, scope: "_Scope") -> "_Scope":  # noqa: C901 - one line for each kind
        match node:
            case nodes.Assign():
                return self._assign(node, scope)
            case nodes.AssignBlock():
                self._filter_block(node.filter, node.body, scope)
                return self._store(node.target, scope, fresh=False)
            case nodes.If():
                return self._if(node, scope)
            case nodes.For():
                return self._for(node, scope)
            case nodes.With():
                for value in node.values:
                    self._visit(value, scope)
                names = frozenset[str]().union(*map(_targets, node.targets))
                self._block(node.body, scope.inside(_assigned(node.body)).binding(names))
            case nodes.FilterBlock():
                self._filter_block(node.filter, node.body, scope)
            case nodes.ExprStmt():
                self._visit(node.node, scope)
            case nodes.Continue():
                pass
            case nodes.Break() if scope.depth:
                pass
            case _:
                self._visit(node, scope)
        return scope

    def _filter_block(self, applied: nodes.Filter | None, body: list[nodes.Node], scope: "_Scope") -> None:
        if applied is not None:
            self._visit(applied, scope)
        self._block(body, scope.inside(_assigned(body)))

    def _assign(self, node: nodes.Assign, scope: "_Scope") -> "_Scope":
        self._visit(node.node, scope)
        return self._store(node.target, scope, fresh=_is_fresh(node.node))

    def _store(self, target: nodes.Node, scope: "_Scope", *, fresh: bool) -> "_Scope":
        if isinstance(target, nodes.NSRef):
            if target.name not in scope.fresh:
                message = f"sets {target.name}.{target.attr}, which is made outside of the loop"
                raise ImpurityError(target.lineno, message, "make the namespace inside of the loop")
            return scope
        return scope.binding(_targets(target), fresh=fresh)

    def _if(self, node: nodes.If, scope: "_Scope") -> "_Scope":
        self._visit(node.test, scope)
        after = [self._block(node.body, scope)]
        for other in node.elif_:
            self._visit(other.test, scope)
            after.append(self._block(other.body, scope))
        after.append(self._block(node.else_, scope))
        return scope.joined(after)

    def _for(self, node: nodes.For, scope: "_Scope") -> "_Scope":
        self._visit(node.iter, scope)
        inside = scope.inside(_assigned(node.body), deeper=True).binding(_targets(node.target))
        if node.test is not None:
            self._visit(node.test, inside)
        self._block(node.body, inside.binding(frozenset({"loop"})))
        self._block(node.else_, scope.inside(_assigned(node.else_)))
        return scope

    def _visit(self, node: nodes.Node, scope: "_Scope") -> None:
        match node:
            case nodes.Name():
                self._load(node, scope)
            case nodes.Call():
                self._call(node, scope)
            case nodes.Filter():
                if node.name not in self._filters and node.name not in JINJA_FILTERS:
                    message = f"uses the filter {node.name!r}, which is not known to be pure"
                    raise ImpurityError(node.lineno, message, "leave it out")
                self._children(node, scope)
            case nodes.Getattr() | nodes.Getitem() if _attribute(node) in _MUTATORS:
                message = f"changes a value that is not the loop's own: {_attribute(node)}"
                raise ImpurityError(node.lineno, message, "collect map entries with {% do map_entry(...) %}")
            case _ if isinstance(node, _TRANSPARENT):
                self._children(node, scope)
            case _:
                kind = type(node)
                message, remedy = _WHY.get(kind, (f"has a {kind.__name__} in it", "write it in another way"))
                raise ImpurityError(node.lineno, message, remedy)

    def _children(self, node: nodes.Node, scope: "_Scope") -> None:
        for child in node.iter_child_nodes():
            self._visit(child, scope)

    def _load(self, node: nodes.Name, scope: "_Scope") -> None:
        name, line = node.name, node.lineno
        if name in scope.bound:
            return
        if name in scope.assigned:
            message = f"may read {name} before the loop has assigned it"
            raise ImpurityError(line, message, f"assign {name} first, on every way through the loop")
        if name == "loop":
            raise ImpurityError(line, "reads 'loop', which depends on the other elements", "leave it out")
        if name == "extra":
            raise ImpurityError(line, "reads 'extra', which holds the time of day", "read it outside of the loop")
        if name in self._constants or name in self._functions:
            return
        if name in self._stored and name not in self._known:
            message = f"reads {name}, which is assigned elsewhere in the template"
            raise ImpurityError(line, message, f"assign {name} before the loop, on the same level or further out")
        self.outer.setdefault(name, line)

    def _call(self, node: nodes.Call, scope: "_Scope") -> None:
        called = node.node
        match called:
            case nodes.Name(name="map_file") if (
                len(node.args) != 1
                or node.dyn_args
                or node.dyn_kwargs
                or any(argument.key == "entries" for argument in node.kwargs)
            ):
                remedy = "give the entries with {% do map_entry(name, key, value) %}, then write {{ map_file(name) }}"
                raise ImpurityError(node.lineno, "calls map_file() with entries", remedy)
            case nodes.Name(name=name) if name in scope.bound or name not in {*self._functions, *_RECORDED, *_FRESH}:
                remedy = "write what it gives into the loop"
                raise ImpurityError(node.lineno, f"calls {name}(), which may read or do anything", remedy)
            case nodes.Name(name=name) if name in self._stored:
                raise ImpurityError(node.lineno, f"calls {name}(), which this template defines", "rename it")
            case nodes.Name():
                pass
            case nodes.Getattr(node=nodes.Name(name=name)) if called.attr in _MUTATORS and name in scope.fresh:
                pass
            case nodes.Getattr():
                self._visit(called, scope)
                root = _root(called)
                if root in self._known:
                    message = f"calls {root}.{called.attr}(), which may be a macro"
                    raise ImpurityError(node.lineno, message, "write what it gives into the loop")
            case _:
                raise ImpurityError(node.lineno, "calls what is not known to be pure", "call functions by their name")
        for argument in node.iter_child_nodes(exclude=("node",)):
            self._visit(argument, scope)


class _Scope:
    """What is known at one place of the body.

    ``bound`` are the names that certainly have a value of this turn, ``fresh`` those with a list, mapping or namespace
    made in it, ``assigned`` all that some statement of the turn assigns; ``depth`` counts the loops inside the loop.
    """

    __slots__ = ("assigned", "bound", "depth", "fresh")

    def __init__(self, bound: frozenset[str], fresh: frozenset[str], assigned: frozenset[str], *, depth: int) -> None:
        self.bound, self.fresh, self.assigned, self.depth = bound, fresh, assigned, depth

    def binding(self, names: frozenset[str], *, fresh: bool = False) -> "_Scope":
        kept = self.fresh | names if fresh else self.fresh - names
        return _Scope(self.bound | names, kept, self.assigned, depth=self.depth)

    def inside(self, assigned: frozenset[str], *, deeper: bool = False) -> "_Scope":
        # What an outer scope made fresh may be another thing in the second turn of an inner loop.
        return _Scope(self.bound, self.fresh - assigned, self.assigned | assigned, depth=self.depth + deeper)

    def joined(self, branches: list["_Scope"]) -> "_Scope":
        bound = frozenset.intersection(*(one.bound for one in branches))
        fresh = frozenset.intersection(*(one.fresh for one in branches))
        return _Scope(bound, fresh, self.assigned, depth=self.depth)


def _targets(target: nodes.Node) -> frozenset[str]:
    found = [target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name)
    return frozenset(name.name for name in found)


def _assigned(body: Iterable[nodes.Node]) -> frozenset[str]:
    """Give what the statements of one scope assign, those of loops and other scopes in it left out."""
    found: set[str] = set()
    for node in body:
        match node:
            case nodes.Assign() | nodes.AssignBlock():
                found |= _targets(node.target) if not isinstance(node.target, nodes.NSRef) else set()
            case nodes.If():
                branches = [node.body, *(other.body for other in node.elif_), node.else_]
                found = found.union(*map(_assigned, branches))
            case _:
                pass
    return frozenset(found)


def _root(node: nodes.Node) -> str:
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else ""
