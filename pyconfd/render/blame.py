"""From an exception inside a template to fragment, line and Kubernetes object."""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from jinja2 import Environment, Template, TemplateNotFound, TemplateSyntaxError, Undefined
from jinja2.utils import missing

from pyconfd.errors import Clues, Problem
from pyconfd.model.rendering import INCLUDABLE_SUFFIXES
from pyconfd.render.invalid import NO_OWNER, InvalidValueError, MissingNameError, did_you_mean, shown

_LOCAL = re.compile(r"l_([0-9]+)_(.+)")
"""How Jinja calls the variables of a template in the Python it compiles: nesting depth and name."""
_UNKNOWN = re.compile(r"No (filter|test) named '([^']*)'|Encountered unknown tag '([^']*)'")
_BLOCK_TAGS = ("block", "call", "elif", "else", "extends", "filter", "for", "from", "if", "macro", "raw", "set", "with")
_TAGS = (*_BLOCK_TAGS, "break", "continue", "do", "import", "include")
_NEEDS_VALUE = re.compile(r"'NoneType'|None")


@dataclass(frozen=True)
class _Frame:
    template: str
    line: int
    variables: Mapping[str, Any]
    """Loop variables, macro arguments and ``{% set %}``, innermost first."""


def syntax_problem(error: TemplateSyntaxError, environment: Environment, name: str) -> Problem:
    """Return where a template does not parse, and what was probably meant."""
    message = error.message or "does not parse"
    remedy = (
        "correct this line, then type: pyconfd check (Jinja's syntax: https://jinja.palletsprojects.com/templates/)"
    )
    if found := _UNKNOWN.search(message):
        kind, value, tag = found.groups()
        known = {"filter": environment.filters, "test": environment.tests}.get(kind, _TAGS)
        close = did_you_mean(value or tag, known)
        remedy = close if close.startswith("did") else remedy
    return Problem(f"{error.name or name} line {error.lineno}", message, remedy)


def runtime_problem(
    error: BaseException, fragment: str, environment: Environment, names: AbstractSet[str]
) -> Problem | None:
    """Return which line of which template failed, for which object; None if no template was running.

    ``names`` are what the templates of this rendering may use.
    """
    frames = list(_frames(error.__traceback__))
    if not frames:
        return None
    frames.reverse()
    if isinstance(error, TemplateSyntaxError):
        problem = syntax_problem(error, environment, frames[0].template)
    else:
        message, remedy = _explained(error, frames, environment, names)
        problem = Problem(f"{frames[0].template} line {frames[0].line}", message, remedy)
    message = problem.message + _circumstances(frames, problem.place, fragment)
    values = tuple(value for frame in frames for value in frame.variables.values())
    return Problem(problem.place, message, problem.remedy, clues=Clues(values=values))


def _frames(traceback: TracebackType | None) -> Iterator[_Frame]:
    """Return the frames of templates, outermost first."""
    while traceback is not None:
        template = traceback.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, Template):
            line = template.get_corresponding_lineno(traceback.tb_lineno)
            yield _Frame(template.name or "", line, _variables(traceback.tb_frame.f_locals))
        traceback = traceback.tb_next


def _variables(local: Mapping[str, Any]) -> dict[str, Any]:
    found = [
        (int(matched[1]), matched[2], value)
        for name, value in local.items()
        if (matched := _LOCAL.fullmatch(name)) and value is not missing and not isinstance(value, Undefined)
    ]
    found.sort(key=lambda one: -one[0])
    variables: dict[str, Any] = {}
    for _depth, name, value in found:
        variables.setdefault(name, value)
    return variables


def _explained(
    error: BaseException, frames: list[_Frame], environment: Environment, names: AbstractSet[str]
) -> tuple[str, str]:
    match error:
        case MissingNameError():
            return _missing(error, frames, names)
        case InvalidValueError():
            return str(error), error.remedy
        case TemplateNotFound():
            known = environment.list_templates()
            name = str(error.name or error)
            return f"there is no template {name!r} to include", did_you_mean(name, known) + (
                f" (includable: *{' *'.join(INCLUDABLE_SUFFIXES)} below the template directory; never credentials)"
            )
        case RecursionError():
            return "a macro or an include calls itself without end", "give the recursion a condition that ends it"
        case ZeroDivisionError():
            return "division by zero", "test the divisor with {% if %} first"
        case _:
            remedy = "a value is null there: test it with {% if %} or give a default" if _mentions_none(error) else ""
            return f"{type(error).__name__}: {error}", remedy


def _mentions_none(error: BaseException) -> bool:
    return isinstance(error, TypeError | AttributeError) and bool(_NEEDS_VALUE.search(str(error)))


def _missing(error: MissingNameError, frames: list[_Frame], names: AbstractSet[str]) -> tuple[str, str]:
    name = error.missing_name
    if error.hint:
        return error.hint, ""
    if error.owner is NO_OWNER:
        if name in names:
            remedy = "a file that is imported by an imported file sees it only with {% import ... with context %}"
        else:
            close = did_you_mean(name, names | frames[0].variables.keys())
            remedy = f"{close}; or give a default: {name} | default(...)"
        return f"{name!r} is undefined", remedy
    owner = next(
        (repr(known) for frame in frames for known, value in frame.variables.items() if value is error.owner),
        f"a {type(error.owner).__name__}",
    )
    return f"{owner} has no {name!r}", did_you_mean(name, _fields(error.owner))


def _fields(owner: Any) -> list[str]:
    if isinstance(owner, Mapping):
        return [str(key) for key in owner]
    if isinstance(owner, str | int | float | list | tuple | type(None)) and not hasattr(owner, "_fields"):
        return []
    return [name for name in dir(owner) if not name.startswith("_")]


def _circumstances(frames: list[_Frame], place: str, fragment: str) -> str:
    text = ""
    for frame in frames:
        if described := next(filter(None, map(_described, frame.variables.values())), ""):
            text += f", while rendering {described}"
            break
    else:
        text += _domain(frames)
    caller = next((frame for frame in frames if frame.template == fragment), None)
    if caller is not None and not place.startswith(f"{fragment} line "):
        text += f" (called from {fragment} line {caller.line})"
    return text


def _described(value: Any) -> str:
    """Return ``namespace/name`` of a value that stands for a Kubernetes object, with its domain if it has one."""
    namespace, name, domain = (_text_field(value, field) for field in ("namespace", "name", "domain"))
    if not namespace or not name:
        return ""
    return f"{namespace}/{name}" + (f" (domain {shown(domain)})" if domain else "")


def _text_field(value: Any, field: str) -> str:
    found = value.get(field) if isinstance(value, Mapping) else getattr(value, field, None)
    return found if isinstance(found, str) else ""


def _domain(frames: list[_Frame]) -> str:
    """Name the key of a loop over ``domains`` whose values do not say what they are."""
    for frame in frames:
        domains = frame.variables.get("domains")
        if isinstance(domains, Mapping):
            for value in frame.variables.values():
                if isinstance(value, str) and value in domains:
                    return f", while rendering domain {shown(value)}"
    return ""
