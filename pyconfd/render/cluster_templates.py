"""Templates that the cluster supplied: rendered in Jinja's sandbox, and replaced by their last good text if rejected.

They are rendered as their predecessor did it: ``Template(text).render(...)``, an undefined name prints nothing. Beyond
that there is no loader, so nothing to include; nothing random; and values cannot be changed.

The last good text is that of the running configuration. It stays as it was: its endpoints do not follow the cluster
until the template is corrected. A template that has none is left out. Pure.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, MappingProxyType
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, Undefined, UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.runtime import new_context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pyconfd.errors import PendingRendering, Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate, Refusal, RefusalReason
from pyconfd.model.rendering import Rendering
from pyconfd.render.filters import FILTERS, FUNCTIONS, is_code, printable

_FAULTS = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a template can raise; SyntaxError is ``{% break %}`` outside of a loop, OSError a codec that is not loaded."""
_PYTHON_2 = {"iteritems": "items", "itervalues": "values", "iterkeys": "keys"}
"""What dictionaries were called by in the days of the predecessors, whose templates say ``pods.itervalues()``."""


_VIEWS: tuple[type, ...] = (KeysView, ValuesView, ItemsView)


@dataclass(frozen=True, slots=True)
class TemplateFault:
    """Why a template gave nothing; ``line`` counts from 1, 0 where it cannot be told.

    ``remedy`` is "" where the message says what to do.
    """

    line: int
    message: str
    remedy: str = "correct the template"


class _ValueMissingError(UndefinedError):
    """A required value is not there: the settings or the environment lack it, and the template is good."""


class Function:
    """A function that a template calls by its name: as a value it leads nowhere, and it does not print."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._name = name
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function gives."""
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"function {self._name}"


class _Sandbox(ImmutableSandboxedEnvironment):
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may have an attribute: besides Jinja's own rules it holds no code."""
        return super().is_safe_attribute(obj, attr, value) and not is_code(value)

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a template may call ``obj``: functions only as it got them by name."""
        return super().is_safe_callable(obj) and not is_code(obj)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return ``str.format`` as Jinja guards it, and like any other function as no value."""
        guarded = super().wrap_str_format(value)
        return None if guarded is None else Function(value.__name__, guarded)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse at once: an undefined value would print as nothing here."""
        raise SecurityError(f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe")

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute; a dictionary has its names of Python 2 as well."""
        return super().getattr(obj, _PYTHON_2.get(attribute, attribute) if isinstance(obj, Mapping) else attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item; a dictionary has its names of Python 2 as well."""
        if isinstance(obj, Mapping) and isinstance(argument, str) and argument not in obj:
            argument = _PYTHON_2.get(argument, argument)
        if isinstance(obj, _VIEWS):
            # A list in Python 2. Undefined would print nothing, and nobody would learn of it.
            raise TypeError(f"{type(obj).__name__} has no elements by number: write (... | list)[{argument}]")
        return super().getitem(obj, argument)


def render(text: str, names: Mapping[str, Any], required: Mapping[str, str], limit: int) -> str | TemplateFault:
    """Render ``text`` with ``names``; give the result, or why there is none.

    ``required`` maps a path (``stats.password``, ``env.*`` for any name) that has no value to what to do about it:
    printing it is a fault, while any other undefined name prints nothing. More than ``limit`` characters of output are
    a fault as well.
    """
    environment = _environment(names, required)
    try:
        template = environment.template_class.from_code(environment, _compiled(text), environment.make_globals(None))
        context = new_context(environment, None, template.blocks, {**template.globals, **names}, True, {}, None)
        return "".join(_limited(template.root_render_func(context), limit))
    except TemplateSyntaxError as error:
        return TemplateFault(error.lineno, error.message or "does not parse")
    except _ValueMissingError as error:
        return TemplateFault(_line(error), error.message or "", remedy="")
    except _FAULTS as error:
        return TemplateFault(
            _line(error), f"{error.message}" if isinstance(error, UndefinedError) else _described(error)
        )


@lru_cache(maxsize=4)
def _compiled(text: str) -> CodeType:
    """Compile a template, which takes most of the time; what it is rendered with has no part in that."""
    return _environment({}, {}).compile(text)


def _environment(names: Mapping[str, Any], required: Mapping[str, str]) -> _Sandbox:
    owners = {id(names[path.partition(".")[0]]): path for path in required if path.partition(".")[0] in names}

    class PrintsNothing(Undefined):
        """Prints nothing, except where a value is required."""

        __slots__ = ()

        def __str__(self) -> str:
            path = owners.get(id(self._undefined_obj), "")
            owner, _, name = path.partition(".")
            if path and name in {self._undefined_name, "*"}:
                raise _ValueMissingError(f"{owner}.{self._undefined_name} has no value: {required[path]}")
            return ""

    environment = _Sandbox(
        autoescape=False,
        cache_size=0,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
        finalize=printable,
        undefined=PrintsNothing,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(FUNCTIONS)
    del environment.filters["random"]
    del environment.globals["lipsum"]
    for name, call in list(environment.globals.items()):
        if callable(call):
            environment.globals[name] = Function(name, call)
    return environment


def _limited(parts: Iterator[str], limit: int) -> Iterator[str]:
    total = 0
    for part in parts:
        total += len(part)
        if total > limit:
            raise ValueError(f"the template gives more than {limit} characters")
        yield part


def _line(error: BaseException) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"


_RENDERED = " rendered line "
"""Marks a line of the text: it moves with the endpoints above it, so a log line must not have its number."""

RejectedTemplates = Mapping[tuple[str, str], tuple[Problem, ...]]
"""By name and source of a template: why HAProxy rejected the text that it gave."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a template may be replaced by.

    ``texts`` are the last good texts by the templates' names; ``running`` says whether a configuration is applied: only
    then a template that is not rendered yet is left out. ``frozen`` takes the last good texts and renders nothing.
    """

    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    rejected: RejectedTemplates = field(default_factory=dict)
    running: bool = False
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class ClusterText:
    """What one template came to: its ``text`` (None: left out), and why that is not its own (empty where it is).

    ``pending``: a newer text is being rendered.
    """

    template: ClusterTemplate
    text: str | None = field(repr=False)
    problems: tuple[Problem, ...] = ()
    pending: bool = False

    @property
    def consequence(self) -> str:
        """Return in words what is served in the place of a rejected template."""
        if self.text is None:
            return "it was never accepted, so nothing is served from it"
        return "its last good text stays as it was, so its endpoints do not follow the cluster"

    def explained(self) -> tuple[Problem, ...]:
        """Return the problems; the first one says what is served instead."""
        if not self.problems:
            return ()
        first, *others = self.problems
        return (replace(first, message=f"{first.message}; {self.consequence}"), *others)

    def refusal(self) -> Refusal:
        """Return the same as a refusal of the object; it stays equal while only endpoints change."""
        first = self.problems[0]
        where = first.place.removeprefix(self.template.name).strip() if _RENDERED not in first.place else ""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        detail = f"{where}: {first.message}" if where else first.message
        said = f"{detail}{more}; {self.consequence}"
        return Refusal(self.template.ref, self.template.field, "", RefusalReason.BAD_TEMPLATE, said)


def cluster_text(
    template: ClusterTemplate, render: Callable[[ClusterTemplate], str], fallback: Fallback
) -> ClusterText:
    """Return the text of ``template``, or the last good one where it is rejected or not rendered yet.

    ``render`` raises RejectedInput for a template that it rejects, and PendingRendering for one that is being rendered.
    """
    last_good = fallback.texts.get(template.name)
    if fallback.frozen:
        return ClusterText(template, last_good)
    problems = fallback.rejected.get((template.name, template.text))
    if problems:
        return ClusterText(template, last_good, problems)
    try:
        return ClusterText(template, render(template))
    except RejectedInput as error:
        return ClusterText(template, last_good, error.problems)
    except PendingRendering as waiting:
        if isinstance(waiting.known, str):
            return ClusterText(template, waiting.known, pending=True)
        known = waiting.known.problems if waiting.known is not None else ()
        return ClusterText(template, last_good, known, pending=True)


def last_good_texts(templates: Sequence[ClusterTemplate], running: Rendering | None) -> Mapping[str, str]:
    """Return what these templates gave in the running configuration, by their names."""
    names = {template.name for template in templates}
    # Only these: to join the pieces of fragments would cost the whole text.
    return {piece.fragment: piece.text for piece in running.pieces if piece.fragment in names} if running else {}


def rejected_texts(texts: Iterable[ClusterText], problems: Sequence[Problem]) -> RejectedTemplates:
    """Return the templates in whose own text ``problems`` were found."""
    found = {}
    for each in texts:
        own = tuple(problem for problem in problems if problem.piece == each.template.name)
        if own and not each.problems and each.text is not None:
            found[each.template.name, each.template.text] = own
    return found
