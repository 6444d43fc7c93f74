"""What a refused template of the cluster is replaced by, so that it stops nobody else. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType

from pyconfd.errors import PendingRendering, Problem, RejectedInput
from pyconfd.model.context import AcceptedTemplate, ClusterTemplate, Refusal, RefusalReason
from pyconfd.model.rendering import Rendering

_RENDERED = " rendered line "
"""Marks a line of the text: it moves with the endpoints above it, so a log line must not have its number."""


class Way(IntEnum):
    """How a template of the cluster got its text, in the order in which the ways are tried."""

    OWN = 0
    FORMER_SOURCE = 1
    FORMER_TEXT = 2
    LEFT_OUT = 3


_CONSEQUENCES = {
    Way.FORMER_SOURCE: "the template that was accepted last is rendered in its place, for the cluster as it is now",
    Way.FORMER_TEXT: "the text that served last stays as it was, so its endpoints do not follow the cluster",
    Way.LEFT_OUT: "none was accepted before it, so nothing is served from it",
}


@dataclass(frozen=True, slots=True)
class Barred:
    """All ways up to ``way`` are closed; ``problems`` say why the template itself is refused."""

    way: Way
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Fallback:
    """By the names of templates: what was accepted last, and which ways have been refused after the rendering.

    ``serves`` says whether a configuration is applied: only then a template that is not rendered yet is left out.
    ``trial``: a search for an offending object; it ends where a template is not rendered yet.
    """

    accepted: Mapping[str, AcceptedTemplate] = field(default_factory=lambda: MappingProxyType({}))
    barred: Mapping[str, Barred] = field(default_factory=lambda: MappingProxyType({}))
    serves: bool = False
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What one template came to: its ``text`` (None: left out), and why that is not its own (empty where it is).

    ``accepted`` is what to remember once this serves. ``pending``: a newer text is being rendered.
    """

    template: ClusterTemplate
    way: Way
    text: str | None
    accepted: AcceptedTemplate | None
    problems: tuple[Problem, ...] = ()
    pending: bool = False

    @property
    def refused(self) -> bool:
        """Return whether the template is refused, and something else is in its place."""
        return bool(self.problems)

    def explained(self) -> tuple[Problem, ...]:
        """Return the problems; the first one says what serves instead."""
        if not self.problems:
            return ()
        first, *others = self.problems
        message = f"{first.message}; {_CONSEQUENCES[self.way]}"
        return (replace(first, message=message), *others)

    def refusal(self) -> Refusal:
        """Return the same as a refusal of the object; it stays equal while only endpoints change."""
        first = self.problems[0] if self.problems else Problem("", "it is refused")
        where = first.place.removeprefix(self.template.name).strip() if _RENDERED not in first.place else ""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        detail = f"{where}: {first.message}" if where else first.message
        said = f"{detail}{more}; {_CONSEQUENCES.get(self.way, '')}"
        return Refusal(self.template.ref, self.template.field, "", RefusalReason.BAD_TEMPLATE, said)


def take(template: ClusterTemplate, render: Callable[[ClusterTemplate], str], fallback: Fallback) -> Taken:
    """Return the text of ``template``, or of what was accepted before it.

    ``render`` raises RejectedInput for a source that it refuses, and PendingRendering for one that is being rendered:
    the accepted one is used meanwhile. A template that was never accepted is left out; one that was is not: what
    serves is not dropped.

    Raises:
        RejectedInput: even the text that served last is refused.
        PendingRendering: it is a trial, and the text is not known yet.
    """
    former = fallback.accepted.get(template.name)
    barred = fallback.barred.get(template.name)
    problems = barred.problems if barred else ()
    pending, last_way = False, Way.FORMER_TEXT
    for way, source in _sources(template, former):
        if barred and way <= barred.way:
            continue
        accepted = former is not None and former.source == source
        asked = replace(template, text=source, accepted=accepted, trial=fallback.trial)
        try:
            text = render(asked)
        except RejectedInput as error:
            problems = problems or (() if pending else error.problems)
            continue
        except PendingRendering as waiting:
            if fallback.trial:
                raise
            if isinstance(waiting.known, RejectedInput):
                problems = problems or (() if pending else waiting.known.problems)
            pending = True
            if not isinstance(waiting.known, str):
                # Told as what it comes to, so that nobody is told twice.
                last_way = way if waiting.known is None and way is Way.FORMER_SOURCE else last_way
                continue
            text = waiting.known
        return Taken(template, way, text, AcceptedTemplate(template.name, source, text), problems, pending)
    if former is None:
        return Taken(template, Way.LEFT_OUT, None, None, problems, pending)
    if barred and barred.way >= Way.FORMER_TEXT:
        raise RejectedInput(*problems)
    return Taken(template, last_way, former.text, former, problems, pending)


def _sources(template: ClusterTemplate, former: AcceptedTemplate | None) -> Iterator[tuple[Way, str]]:
    yield Way.OWN, template.text
    if former is not None and former.source is not None and former.source != template.text:
        yield Way.FORMER_SOURCE, former.source


def known(
    templates: Sequence[ClusterTemplate], remembered: Mapping[str, AcceptedTemplate], served: Rendering | None
) -> Fallback:
    """Join what is remembered of ``templates`` with what serves, where that is known: its text comes first."""
    names = [template.name for template in templates]
    # Only these: to join the pieces of fragments would cost the whole text.
    pieces = {piece.fragment: piece.text for piece in served.pieces if piece.fragment in names} if served else {}
    accepted = {}
    for name in names:
        former = remembered.get(name)
        if name in pieces:
            accepted[name] = AcceptedTemplate(name, former.source if former else None, pieces[name])
        elif former is not None:
            accepted[name] = former
    return Fallback(accepted, serves=served is not None)


def blamed(taken: Iterable[Taken], problems: Sequence[Problem]) -> Mapping[str, Barred]:
    """Return the templates in whose text ``problems`` were found, each with the way that gave this text."""
    found = {}
    for each in taken:
        own = tuple(problem for problem in problems if problem.piece == each.template.name)
        if own and each.way is not Way.LEFT_OUT:
            found[each.template.name] = Barred(each.way, each.problems or own)
    return found
