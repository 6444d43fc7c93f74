"""Fragments, compiled once, and a Context for each rendering."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, TemplateSyntaxError

from pyconfd.errors import Clues, PendingRendering, Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate, Context
from pyconfd.model.rendering import Fragment, FragmentSet, OutputFile, Piece, Rendering
from pyconfd.model.reservation import Owners
from pyconfd.model.spares import spare_section
from pyconfd.render.blame import runtime_problem, syntax_problem
from pyconfd.render.cluster_templates import ClusterText, Fallback, cluster_text
from pyconfd.render.declared import Declarations, MapMemory
from pyconfd.render.each import EACH, EachTag
from pyconfd.render.filters import FILTERS, FUNCTIONS, printable
from pyconfd.render.fragment import (
    REFUSED,
    TEMPLATE_FAULTS,
    CompiledFragment,
    DirectScope,
    RenderedFragment,
    SourceLoader,
)
from pyconfd.render.invalid import InvalidValueError, Lenient, Strict, shown

_COMPILE_FAULTS = (MemoryError, OverflowError, RecursionError, SyntaxError, ValueError)
"""What Python says to a template that Jinja took: ``{% break %}`` outside of a loop, too deep nesting, huge numbers."""

_NAMED_DEFAULTS = re.compile(r"^[ \t]*defaults[ \t]+(?!from[ \t])([\w.:-]+)", re.MULTILINE)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_REFUSED_NAMES = {"\0": "a NUL character", "\r": "a carriage return"}


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """``files_dir`` (absolute) holds the declared files, ``variables`` are the operator's, as ``vars`` in templates.

    ``lenient`` makes undefined names print as nothing; ``trim_blocks`` drops the newline after a ``{% %}`` tag.
    ``spare_backends`` are as many as ``spare_backends()`` writes.
    ``inputs`` is the digest of what these and the fragments are, which each rendering carries.
    """

    files_dir: str
    lenient: bool = False
    trim_blocks: bool = True
    variables: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    spare_backends: int = 0
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class Rendered:
    """``used_curdate`` tells that a template read ``extra.curdate``: then the text changes with the time of day.

    ``cluster_texts`` says of each template of the cluster what it came to.
    """

    rendering: Rendering
    used_curdate: bool
    cluster_texts: tuple[ClusterText, ...] = ()


class _Last(NamedTuple):
    """What the last rendering was made of; there was no template of the cluster, whose text can change by itself."""

    names: Mapping[str, Any]
    files: tuple[OutputFile, ...]
    owners: Mapping[str, Owners]
    curdate: str
    rendered: Rendered

    def is_of(self, context: Context, curdate: str) -> bool:
        """Return whether these are the very objects of the last time."""
        if curdate != self.curdate and self.rendered.used_curdate:
            return False
        same = context.names is self.names and context.files is self.files and context.owners == self.owners
        return same and not context.templates


def _no_cluster_templates(template: ClusterTemplate) -> str:
    raise RejectedInput(Problem(template.name, "templates from the cluster are not rendered here"))


class Renderer:
    """Fragments compiled under options, to be rendered as often as the cluster changes.

    ``cluster_templates`` renders a template that the cluster supplied and gives its text if all of it is allowed;
    it raises RejectedInput.

    Raises:
        RejectedInput: templates do not parse; carries one problem for each of them.

    """

    def __init__(
        self,
        fragments: FragmentSet,
        options: RenderOptions,
        cluster_templates: Callable[[ClusterTemplate], str] = _no_cluster_templates,
    ) -> None:
        self.source = fragments
        self.options = options
        self._cluster_templates = cluster_templates
        self._fragments = fragments.fragments
        self._environment, loader = _environment(fragments, options)
        self._compiled: list[CompiledFragment] = []
        self._rendered: Mapping[str, RenderedFragment] = {}
        self._last: _Last | None = None
        self._maps = MapMemory()
        self._files = _MergedFiles()
        problems: list[Problem] = []
        for fragment in self._fragments:
            try:
                self._compiled.append(CompiledFragment(self._environment, loader, fragment))
            except TemplateSyntaxError as error:
                problems.append(syntax_problem(error, self._environment, fragment.name))
            except _COMPILE_FAULTS as error:
                remedy = "see whether a tag is where it may not be, or nested too deeply"
                problems.append(Problem(fragment.name, f"does not compile: {error}", remedy))
        if problems:
            raise RejectedInput(*problems)

    def render(self, context: Context, *, curdate: str, fallback: Fallback | None = None) -> Rendered:
        """Render every fragment, then every template that the cluster supplied.

        A piece ends with exactly one newline, or is empty. Templates see the names of ``context``, ``vars``,
        ``extra.curdate`` (the text ``curdate``), ``map_file``, ``map_entry``, ``certificate_file``, ``has_defaults``,
        FILTERS and FUNCTIONS. What was rendered before is used again where a loop meets the same objects, so a value
        that was given once is never changed afterwards, only replaced. With a ``fallback`` a template of the cluster
        that fails is replaced by its last good text, or left out. The same objects as the last time give the very
        result of the last time.

        Raises:
            RejectedInput: templates fail; carries one problem for each of them. Templates of the cluster only where
                they may not be replaced, or where nothing else would be left.
            PendingRendering: a template of the cluster has no text yet, and nothing is applied or left without it.

        """
        last, self._last = self._last, None
        if last is not None and last.is_of(context, curdate):
            self._last = last
            return last.rendered
        declarations = Declarations(self.options.files_dir)
        extra = _Extra({**context.names.get("extra", {}), "curdate": curdate})
        names = {
            **self._environment.globals,
            **context.names,
            "extra": extra,
            "vars": self.options.variables,
            "map_file": declarations.map_file,
            "map_entry": declarations.map_entry,
            "certificate_file": declarations.certificate_file,
        }
        # A context that gives another meaning to a function invalidates what was rendered with the function.
        previous = {} if context.names.keys() & self._environment.globals.keys() else self._rendered
        pieces, problems = self._fragments_with(names, previous, declarations)
        texts = []
        for template in context.templates:
            try:
                texts.append(self._cluster_text(template, fallback))
            except RejectedInput as error:
                problems.extend(error.problems)
        pieces += [Piece(each.template.name, each.text) for each in texts if each.text is not None]
        is_empty = not any(any(piece.blocks) for piece in pieces)
        may_wait = fallback is not None and fallback.running and not is_empty
        if not may_wait and any(each.pending and each.text is None for each in texts):
            raise PendingRendering
        if is_empty:
            problems.extend(problem for each in texts for problem in each.problems)
        declared, maps, incomplete = declarations.finished(self._maps)
        merged = self._files.of(declared, context.files)
        # Where a fragment failed, what it would have declared is missing: that is no problem of its own.
        problems.extend(merged.problems or (() if problems else incomplete))
        if problems:
            raise RejectedInput(*problems)
        self._maps, self._files = maps, merged
        rendering = Rendering(tuple(pieces), merged.files, self.options.inputs, context.owners)
        rendered = Rendered(rendering, extra.curdate_was_read, tuple(texts))
        self._last = _Last(context.names, context.files, context.owners, curdate, rendered) if not texts else None
        return rendered

    def _fragments_with(
        self, names: dict[str, Any], previous: Mapping[str, RenderedFragment], declarations: Declarations
    ) -> tuple[list[Piece], list[Problem]]:
        """Render the fragments, and keep what they gave for the next rendering."""
        rendered = dict(previous)
        self._rendered = {}  # until all is well: a limit may interrupt a fragment while it changes its memory
        pieces: list[Piece] = []
        problems: list[Problem] = []
        for each in self._compiled:
            name = each.fragment.name
            try:
                now = each.render(names, previous.get(name), declarations)
            except TEMPLATE_FAULTS as error:
                problem = runtime_problem(error, name, self._environment, names.keys() - {EACH})
                if problem is None:
                    raise
                problems.append(problem)
                continue
            if now.suspect:
                # Not kept: text that equals the former one is not searched for such characters again.
                rendered.pop(name, None)
                problems.extend(_refused(each.fragment, now.piece.text))
            else:
                rendered[name] = now
            pieces.append(now.piece)
        self._rendered = rendered
        return pieces, problems

    def element_at(self, fragment: str, line: int, text: str) -> Any:
        """Return the element of ``{% each %}`` that gave a line (from 1) of a fragment's rendered ``text``.

        None where the line belongs to no such element, or where the text is not that of the last rendering.
        """
        known = self._rendered.get(fragment)
        return known.element_at(line) if known is not None and known.piece.text == text else None

    def _cluster_text(self, template: ClusterTemplate, fallback: Fallback | None) -> ClusterText:
        def render(source: ClusterTemplate) -> str:
            return _ended(self._cluster_templates(source))

        return ClusterText(template, render(template)) if fallback is None else cluster_text(template, render, fallback)


def _ended(text: str) -> str:
    stripped = text.rstrip("\n")
    return f"{stripped}\n" if stripped.strip() else ""


@dataclass(frozen=True, slots=True)
class _MergedFiles:
    """The files of fragments and presets, sorted by path, and what they were made of."""

    declared: tuple[OutputFile, ...] = ()
    of_presets: tuple[OutputFile, ...] = ()
    files: tuple[OutputFile, ...] = ()
    problems: tuple[Problem, ...] = ()

    def of(self, declared: tuple[OutputFile, ...], of_presets: tuple[OutputFile, ...]) -> "_MergedFiles":
        """Return those of these parts; itself where it was made of them."""
        # There may be thousands of certificates, which seldom change.
        if of_presets is self.of_presets and declared == self.declared:
            return self
        files = {file.path: file for file in (*of_presets, *declared)}
        message = "a fragment and a preset declare it with different content"
        problems = tuple(
            Problem(file.path, message, "rename one of them")
            for file in of_presets
            if files[file.path].content != file.content
        )
        in_order = tuple(files[path] for path in sorted(files, key=str.encode))
        return _MergedFiles(declared, of_presets, in_order, problems)


def _environment(fragments: FragmentSet, options: RenderOptions) -> tuple[Environment, SourceLoader]:
    texts = {fragment.name: fragment.text for fragment in (*fragments.includable, *fragments.fragments)}
    environment = _language(options.lenient, options.trim_blocks)
    environment.loader = loader = SourceLoader(_compiler(options.lenient, options.trim_blocks), texts)
    environment.globals["spare_backends"] = partial(_spare_backends, number=options.spare_backends)
    environment.globals["has_defaults"] = _named_defaults(fragments).__contains__
    return environment, loader


def _language(lenient: bool, trim_blocks: bool) -> Environment:
    environment = Environment(
        autoescape=False,  # noqa: S701 - haproxy.cfg is no HTML
        auto_reload=False,
        cache_size=-1,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols", EachTag],
        finalize=printable,
        trim_blocks=trim_blocks,
        undefined=Lenient if lenient else Strict,
    )
    environment.context_class = DirectScope
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": _for_json}
    environment.filters.update(FILTERS)
    # What the fragments of an environment decide; that there are such functions counts for the compiler.
    environment.globals |= {**FUNCTIONS, "spare_backends": None, "has_defaults": None}
    del environment.filters["random"]
    del environment.globals["lipsum"]
    return environment


def _for_json(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise InvalidValueError(f"JSON has no {type(value).__name__}", "give tojson its fields, as in dict(port=x.port)")


_compiler = cache(_language)
"""What compiles for all environments of this language: code is kept by it."""


_LEAST_SPARES = 2
"""Of each kind, however many share their number."""


_MORE_SPARES = 10
"""Times as many as a kind has backends, and as the setting says, are there at most."""


def _spare_backends(defaults: str, of: int = 1, in_use: int = 0, *, number: int) -> str:
    """Return ``number / of`` empty backends from a defaults section, which new ones of that kind are served by.

    Who has many of a kind mostly gets many at a time. So there are ten for each backend ``in_use``, up to ten times
    that part, which bounds them for all kinds together; and one for each up to ten times the ``number``.
    """
    part = number // of
    more = max(_MORE_SPARES * min(in_use, part), min(in_use, _MORE_SPARES * number))
    count = max(part, min(number, _LEAST_SPARES), more)
    return "".join(spare_section(defaults, each) for each in range(1, count + 1))


def _named_defaults(fragments: FragmentSet) -> frozenset[str]:
    """Return the names of the defaults sections that the fragments write; a name that is rendered is not seen."""
    texts = (_COMMENT.sub("", each.text) if each.is_template else each.text for each in fragments.fragments)
    return frozenset(name for text in texts for name in _NAMED_DEFAULTS.findall(text))


def _refused(fragment: Fragment, text: str) -> Iterator[Problem]:
    if found := REFUSED.search(text):
        line = text.count("\n", 0, found.start()) + 1
        what = _REFUSED_NAMES.get(found[0], "half of a surrogate pair")
        content = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0]
        yield Problem(
            f"{fragment.name} {'rendered ' if fragment.is_template else ''}line {line}",
            f"{what} cannot stand in haproxy.cfg: {shown(content)}",
            "remove it from the value that holds it" if fragment.is_template else "remove it from the fragment",
            fragment.name,
            Clues(lines=((fragment.name, line),)),
        )


class _Extra(Mapping[str, Any]):
    """What python-confd called ``extra``; it notes whether the time of day was read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.curdate_was_read = False

    def __getitem__(self, key: str) -> Any:
        self.curdate_was_read |= key == "curdate"
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        return str(dict(self))
