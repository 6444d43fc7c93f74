"""Templates that the cluster supplied: a rejected one is replaced by its last good text, so that it stops nobody else.

The last good text is that of the running configuration. It stays as it was: its endpoints do not follow the cluster
until the template is corrected. A template that has none is left out. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyconfd.errors import PendingRendering, Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate, Refusal, RefusalReason
from pyconfd.model.rendering import Rendering

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
