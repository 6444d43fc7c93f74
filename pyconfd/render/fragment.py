"""One fragment: compiled once, rendered as often as what it reads changes."""

import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_
from types import CodeType, MethodType
from typing import Any, NamedTuple

from jinja2 import DictLoader, Environment, Template, TemplateError, nodes
from jinja2.runtime import Context as Scope

from pyconfd.model.rendering import Fragment, Piece
from pyconfd.model.versioned import GivenDict, VersionedDict
from pyconfd.render.declared import Declarations, Recorded
from pyconfd.render.each import DECLARING, EACH, EachLoops, RenderedLoop

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

_OF_TEXTS = frozenset({str, dict, VersionedDict, GivenDict})
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
class RenderedFragment:
    """What a fragment gave: its text as a ``piece``, and what the next rendering builds on.

    ``parts`` are the texts between its loops and the loops, in order. ``read`` are the values of all names that it
    reads, None where these are not known; ``recorded`` is what it declared. ``suspect``: some text has a character
    that no configuration may have.
    """

    piece: Piece
    parts: tuple[str | RenderedLoop, ...] = ()
    loops: Mapping[tuple[str, int], RenderedLoop] = field(default_factory=dict)
    read: tuple[Any, ...] | None = None
    recorded: tuple[Recorded, ...] = ()
    suspect: bool = False

    def element_at(self, line: int) -> Any:
        """Return the element of ``{% each %}`` that gave a line (from 1) of the piece; None for other lines."""
        for part in self.parts:
            for place, text in enumerate((part,) if isinstance(part, str) else part.shown):
                line -= text.count("\n")
                if line <= 0:
                    return None if isinstance(part, str) else part.element(place)
        return None


class CompiledSource(NamedTuple):
    """A template as Python: its ``code``, the ``names`` that it reads and the ``files`` that it names, None for any."""

    code: CodeType
    names: frozenset[str]
    files: tuple[str, ...] | None


_NamesFile = nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends


# A daemon compiles its fragments several times at its start, and each edit compiles all of them again.
@lru_cache(maxsize=128)
def compiled_source(compiler: Environment, name: str, text: str) -> CompiledSource:
    """Return what Jinja makes of a text; the code needs the environment that it runs in when it is loaded.

    Raises:
        TemplateSyntaxError: it does not parse.
        MemoryError, OverflowError, RecursionError, SyntaxError, ValueError: Python does not take it.

    """
    tree = compiler.parse(text, name)
    names = frozenset(each.name for each in tree.find_all(nodes.Name) if each.ctx == "load")
    kinds: tuple[type[_NamesFile], ...] = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
    named = [each.template for each in tree.find_all(kinds)]
    files = tuple(each.value for each in named if isinstance(each, nodes.Const) and isinstance(each.value, str))
    return CompiledSource(compiler.compile(tree, name), names, files if len(files) == len(named) else None)


class SourceLoader(DictLoader):
    """Loads included files by way of :func:`compiled_source`."""

    def __init__(self, compiler: Environment, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.compiler = compiler

    def source(self, environment: Environment, name: str) -> CompiledSource:
        """Return a file, compiled. Raises: TemplateNotFound, and what :func:`compiled_source` does."""
        return compiled_source(self.compiler, name, self.get_source(environment, name)[0])

    def load(self, environment: Environment, name: str, globals: MutableMapping[str, Any] | None = None) -> Template:  # noqa: A002 - Jinja's name
        """Return a file as a template. Raises: as :meth:`source`."""
        return Template.from_code(environment, self.source(environment, name).code, globals or {})

    def names_read(self, environment: Environment, source: CompiledSource) -> set[str] | None:
        """Return every name that a template and the files that it names read; None where in doubt."""
        found, seen, waiting = set[str](), set[str](), [source]
        while waiting:
            each = waiting.pop()
            found |= each.names
            if each.files is None:
                return None
            new = set(each.files) - seen
            seen |= new
            try:
                waiting += [self.source(environment, name) for name in new]
            except TEMPLATE_FAULTS:
                return None  # rendering says what is wrong
        return found


class CompiledFragment:
    """A fragment ready to be rendered; ``loader`` has the files that it may include.

    Raises: as :func:`compiled_source`.
    """

    def __init__(self, environment: Environment, loader: SourceLoader, fragment: Fragment) -> None:
        self.fragment = fragment
        self._environment = environment
        self._template: Template | None = None
        self._reads: tuple[str, ...] | None = ()
        if fragment.is_template:
            source = compiled_source(loader.compiler, fragment.name, fragment.text)
            names = loader.names_read(environment, source)
            self._reads = tuple(sorted(names - DECLARING - {EACH})) if names is not None else None
            self._template = Template.from_code(environment, source.code, {})

    def render(
        self, names: dict[str, Any], previous: RenderedFragment | None, declarations: Declarations
    ) -> RenderedFragment:
        """Render it; what reads the very same objects as ``previous`` gives the very same."""
        read = None if self._reads is None else tuple([names.get(name, _MISSING) for name in self._reads])
        same = (
            previous is not None
            and None not in (read, previous.read)
            and all(map(is_, read or (), previous.read or ()))
        )
        if previous is not None and same and (not previous.recorded or declarations.repeat(previous.recorded)):
            return previous
        files, before = declarations.files, len(declarations.recorded)
        loops = EachLoops(previous.loops if previous else {}, declarations.recorded, REFUSED)
        names[EACH] = loops.render
        text = "".join(self._parts(names))
        parts = loops.parts(text)
        if parts is None:
            return RenderedFragment(Piece(self.fragment.name, text), suspect=True)
        suspect = loops.suspect or any(isinstance(part, str) and REFUSED.search(part) for part in parts)
        loops.commit()
        piece = _piece(self.fragment.name, parts, previous)
        recorded = tuple(declarations.recorded[before:])
        # What declares whole files cannot be repeated without running it.
        if suspect or declarations.files != files:
            read, recorded = None, ()
        return RenderedFragment(piece, tuple(parts), loops.loops, read, recorded, suspect)

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


def _piece(name: str, parts: list[str | RenderedLoop], previous: RenderedFragment | None) -> Piece:
    """Join the blocks of a fragment; where only some of them changed, the piece knows which."""
    if previous is not None and (piece := _replaced(parts, previous)) is not None:
        return piece
    blocks: list[str] = []
    for part in parts:
        blocks += part.shown if isinstance(part, RenderedLoop) else [part] if part else []
    # A piece ends with exactly one newline, or is empty.
    while blocks and not blocks[-1].rstrip("\n"):
        blocks.pop()
    if not any(map(str.strip, blocks)):
        return Piece(name)
    blocks[-1] = f"{blocks[-1].rstrip(chr(10))}\n"
    return Piece(name, *blocks)


def _replaced(parts: list[str | RenderedLoop], previous: RenderedFragment) -> Piece | None:
    """Return the former piece with other blocks in some places; None where more than that changed."""
    replaced: dict[int, str] = {}
    start = 0
    if len(parts) != len(previous.parts):
        return None
    for part, old in zip(parts, previous.parts, strict=True):
        if isinstance(part, str):
            if part != old:
                return None
            start += bool(part)
            continue
        if part.replaced is None:
            return None
        replaced |= {start + place: text for place, text in part.replaced.items()}
        start += len(part.shown)
    # The last block may have lost newlines, and empty ones after it are left out.
    if any(place + 1 >= len(previous.piece.blocks) for place in replaced):
        return None
    return previous.piece.with_blocks(replaced) if replaced else previous.piece
