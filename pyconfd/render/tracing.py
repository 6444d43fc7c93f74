"""Tells which elements of which loops gave a line of the text. Used only after something was refused.

The fragments are rendered once more, with marks put into the syntax trees of all templates: one before what each turn
of a loop prints, one behind the loop. Such a map is believed only where the text without the marks is the same.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from jinja2 import Environment, nodes

from pyconfd.errors import RejectedInput
from pyconfd.model.context import Context
from pyconfd.model.rendering import Rendering
from pyconfd.render.engine import Renderer

Place = tuple[str, int]
"""A piece and a line of its text, from 1."""

Chain = tuple[Any, ...]
"""The elements of loops that stand one within the other, the innermost first."""

_TURN = "_turn_of_a_loop"
_OPEN, _CLOSE = "\U0010fe00", "\U0010fe01"
"""Private use characters; where a value from the cluster has them too, the map is not believed."""

_MARK = re.compile(f"{_OPEN}([0-9]+)(?::([0-9]+))?{_CLOSE}")


class _Marking(Environment):
    """Puts the marks into each template that is parsed; ``values`` are the elements by their number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.values: list[Any] = []
        self._loops = 0
        self.globals[_TURN] = self._turn

    def _turn(self, loop: int, value: Any) -> str:
        self.values.append(value)
        return f"{_OPEN}{loop}:{len(self.values) - 1}{_CLOSE}"

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in [tree, *tree.find_all(nodes.Node)]:
            for field in node.fields:
                body = getattr(node, field, None)
                if isinstance(body, list) and any(isinstance(each, nodes.For) for each in body):
                    setattr(node, field, [part for each in body for part in self._marked(each)])
        return tree

    def _marked(self, node: nodes.Node) -> Iterator[nodes.Node]:
        yield node
        if not isinstance(node, nodes.For):
            return
        self._loops += 1
        line = node.lineno
        arguments = [nodes.Const(self._loops, lineno=line), _loaded(node.target)]
        call = nodes.Call(nodes.Name(_TURN, "load", lineno=line), arguments, [], None, None, lineno=line)
        node.body = [nodes.Output([call], lineno=line), *node.body]
        end = nodes.TemplateData(f"{_OPEN}{self._loops}{_CLOSE}", lineno=line)
        yield nodes.Output([end], lineno=line).set_environment(self)


def _loaded(target: nodes.Node) -> nodes.Expr:
    """Give the target of a loop as an expression."""
    if isinstance(target, nodes.Tuple):
        return nodes.Tuple([_loaded(each) for each in target.items], "load", lineno=target.lineno)
    return nodes.Name(cast("nodes.Name", target).name, "load", lineno=target.lineno)


class _Tracing(Renderer):
    """Renders with marks, and remembers nothing."""

    environment: ClassVar[type[Environment]] = _Marking
    remembers: ClassVar[bool] = False

    @property
    def values(self) -> Sequence[Any]:
        """The elements of all loops that were gone through."""
        return cast("_Marking", self._environment).values


def trace(
    renderer: Renderer, context: Context, rendering: Rendering, places: Collection[Place], *, curdate: str
) -> Mapping[Place, tuple[Chain, ...]]:
    """Give the elements that gave each of ``places``; what stands in no loop, or cannot be told, is left out.

    ``rendering`` is what ``renderer`` made of ``context``.
    """
    try:
        tracing = _Tracing(renderer.source, renderer.options)
        marked = tracing.render(replace(context, templates=()), curdate=curdate).rendering
    except RejectedInput:
        return {}
    texts = {piece.fragment: piece.text for piece in renderer.as_written(rendering).pieces}
    found: dict[Place, tuple[Chain, ...]] = {}
    for piece in marked.pieces:
        wanted = {line for fragment, line in places if fragment == piece.fragment}
        if not wanted or _MARK.sub("", piece.text).rstrip("\n") != texts.get(piece.fragment, "").rstrip("\n"):
            continue
        for line, stacks in _stacks(piece.text, sorted(wanted)).items():
            chains = tuple(tuple(tracing.values[number] for number in reversed(stack)) for stack in stacks if stack)
            if chains:
                found[piece.fragment, line] = chains
    return found


def _stacks(text: str, wanted: Sequence[int]) -> dict[int, list[tuple[int, ...]]]:
    """Give the numbers of the elements that each wanted line is made of, the outermost first."""
    found: dict[int, list[tuple[int, ...]]] = {}
    stack: list[tuple[str, int]] = []
    line, position = 1, 0
    for mark in _MARK.finditer(text):
        line = _note(text[position : mark.start()], line, wanted, stack, found)
        position = mark.end()
        loop, number = mark.groups()
        at = next((at for at, (known, _) in enumerate(stack) if known == loop), len(stack))
        del stack[at:]  # the turn before it, and whatever a {% break %} left open in that
        if number is not None:
            stack.append((loop, int(number)))
    _note(text[position:], line, wanted, stack, found)
    return found


def _note(
    text: str,
    line: int,
    wanted: Sequence[int],
    stack: Sequence[tuple[str, int]],
    found: dict[int, list[tuple[int, ...]]],
) -> int:
    """Note who gave the wanted lines of ``text``, which begins in ``line``; give the line in which it ends."""
    last = line + text.count("\n")
    within = wanted[bisect_left(wanted, line) : bisect_right(wanted, last)]
    if within:
        parts = text.split("\n")
        numbers = tuple(number for _, number in stack)
        for each in within:
            if parts[each - line].strip() and numbers not in found.setdefault(each, []):
                found[each].append(numbers)
    return last
