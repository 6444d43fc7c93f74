"""One fragment: compiled once, rendered as often as the cluster changes, and no more of it than that takes."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from types import MethodType
from typing import Any

from jinja2 import Environment, Template, TemplateError
from jinja2.runtime import Context as Scope

from pyconfd.model.layered import Copied
from pyconfd.model.rendering import Fragment, Piece
from pyconfd.render.cached import ELEMENTS, TURNS, Loop
from pyconfd.render.declared import Declarations
from pyconfd.render.elements import Sources
from pyconfd.render.memo import FragmentMemory, Fresh, LoopMemory, Memo, finished_loop, turned, with_blocks

TEMPLATE_FAULTS = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What an expression in a template can raise; SyntaxError is an included file's, see :mod:`pyconfd.render.blame`."""

REFUSED = re.compile("[\0\r\ud800-\udfff]")
"""Characters that no text may have."""

_MISSING = object()
"""Stands for a name that a context does not have."""

_OF_TEXTS = frozenset({str, dict, Copied})
"""Types whose methods want nothing of Jinja."""


class DirectScope(Scope):
    """Calls methods of texts, mappings and declarations without asking first whether they want the scope."""

    def call(self, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call ``called``; inside of loops Jinja adds ``_loop_vars``."""
        kind = type(owner := getattr(called, "__self__", None))
        if kind in _OF_TEXTS or (kind is Declarations and type(called) is MethodType and owner is not None):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return called(*args, **kwargs)
        return super().call(called, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class _Body:
    loop: Loop
    template: Template


class CompiledFragment:
    """A fragment ready to be rendered: ``template`` is None where it is text as it stands.

    ``reads`` are all names that decide what it gives, None where it takes in other files. ``loops`` are those that can
    be gone through alone; when nothing but what they go through has changed, they are all that runs.
    """

    def __init__(
        self,
        environment: Environment,
        fragment: Fragment,
        template: Template | None = None,
        reads: tuple[str, ...] | None = (),
        loops: Iterable[Loop] = (),
    ) -> None:
        self.fragment = fragment
        self._environment = environment
        self._template = template
        self._reads = reads
        self._bodies = {
            loop.number: _Body(loop, Template.from_code(environment, environment.compile(loop.tree, fragment.name), {}))
            for loop in loops
        }
        self._sources = frozenset(body.loop.source for body in self._bodies.values())

    def render(
        self, names: dict[str, Any], known: FragmentMemory, sources: Sources, declarations: Declarations
    ) -> tuple[Piece, FragmentMemory]:
        """Render it; what reads the very same objects as before gives the very same."""
        reads, former = self._reads, known.given
        if reads is not None and former is not None and known.piece is not None:
            same = all(map(is_, map(names.get, reads, repeat(_MISSING)), former))
            if same and declarations.repeat(known.recorded):
                return known.piece, known
        given = None if reads is None else tuple([names.get(name, _MISSING) for name in reads])
        if known.piece is not None and given is not None and former is not None and reads is not None:
            new = [name for name, now, was in zip(reads, given, former, strict=True) if now is not was]
            if new and self._sources.issuperset(new):
                memory = self._patched(names, frozenset(new), known, sources, declarations)
                if memory is not None and memory.piece is not None and declarations.repeat(known.recorded):
                    memory.given, memory.recorded = given, known.recorded
                    return memory.piece, memory
        entries, files = declarations.entries, declarations.files
        mark = entries.mark()
        memo = Memo(self.fragment.name, known, sources, entries, REFUSED)
        names[TURNS] = memo.turns
        piece = memo.consume(self._parts(names))
        if not memo.memory.suspect and declarations.files == files:
            memo.memory.given, memo.memory.recorded = given, entries.recorded[mark:]
        return piece, memo.memory

    def _parts(self, names: dict[str, Any]) -> Iterable[str]:
        template = self._template
        if template is None:
            return [self.fragment.text.replace("\r\n", "\n")]
        # As globals rather than variables the names are also seen by macros of imported files.
        scope = self._environment.context_class(
            self._environment, names, self.fragment.name, template.blocks, globals=names
        )
        # Not template.render(): that rewrites the traceback that blame reads.
        return template.root_render_func(scope)

    def _patched(
        self,
        names: Mapping[str, Any],
        new: frozenset[str],
        known: FragmentMemory,
        sources: Sources,
        declarations: Declarations,
    ) -> FragmentMemory | None:
        """Run the loops through what is ``new`` for what changed in it; None where more than their text changes."""
        loops, replaced = dict(known.loops), dict[int, str]()
        for (number, former), start in zip(known.loops.items(), known.starts, strict=True):
            body = self._bodies.get(number)
            if body is None or body.loop.source not in new:
                continue
            given = names[body.loop.source]
            elements = sources.elements(given.items(), given, 2) if type(given) is Copied else None
            if elements is None:
                return None
            changes = elements.since(former.elements)
            parts, fresh = list[str](), Fresh()
            outer = dict(zip(body.loop.outer, former.outer, strict=True))
            turns = turned(elements, changes.stale, parts, declarations.entries, fresh)
            if not changes.in_place or not self._runs(body, {**names, **outer, ELEMENTS: turns}, parts, declarations):
                return None
            if any(REFUSED.search(text) for text, _ in fresh.values()):
                return None
            loops[number], shown = finished_loop(LoopMemory(elements, former.outer), former, changes, fresh)
            if shown is None:
                return None
            replaced.update((start + place, text) for place, text in shown.items())
        piece = with_blocks(known.piece, replaced) if known.piece is not None else None
        return FragmentMemory(loops, known.starts, known.between, known.ending, piece)

    def _runs(self, body: _Body, values: dict[str, Any], parts: list[str], declarations: Declarations) -> bool:
        """Run the body with ``values``; False where it fails, so that the whole fragment says where."""
        entries = declarations.entries
        mark = entries.mark()
        scope = DirectScope(self._environment, values, self.fragment.name, {})
        add: Callable[[str], None] = parts.append
        try:
            for part in body.template.root_render_func(scope):
                add(part)
        except TEMPLATE_FAULTS:
            entries.taken_since(mark)
            return False
        return True
