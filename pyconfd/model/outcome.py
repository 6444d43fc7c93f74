"""What became of one reconciliation."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pyconfd.errors import Problem
from pyconfd.model.context import EndpointTotals
from pyconfd.model.plan import Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, Rendering


class Step(StrEnum):
    """The steps of a reconciliation, in order; PUBLISH is a producer's in place of those from INSTALL on."""

    TRANSLATE = "translate"
    RENDER = "render"
    CHECK = "check"
    BINDS = "binds"
    INSTALL = "install"
    RELOAD = "reload"
    VERIFY = "verify"
    RECORD = "record"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Generation:
    """A rendering that was checked and applied.

    ``applied_at`` is seconds since the epoch; ``totals`` is what the next change is compared with. ``digest`` is
    "" while the file has not followed a change that went live; ``loaded`` is the digest that the ``worker``
    (its process number) shows, where that was changed since: that of the text it began with.
    """

    number: int
    digest: str
    applied_at: float
    curdate: str = ""
    reasons: tuple[str, ...] = ()
    totals: EndpointTotals = field(default_factory=EndpointTotals)
    loaded: str = ""
    worker: int = 0


class Stored(NamedTuple):
    """A generation with the rendering that it was made of."""

    generation: Generation
    rendering: Rendering

    def gives(self, rendering: Rendering) -> bool:
        """Return whether ``rendering`` is the stored one; its digest is computed only where nothing else tells."""
        if self.rendering.same_as(rendering):
            return True
        # The history keeps no keys: where their file was lost, nothing but the digest knows them.
        lost = any(file.kind is FileKind.CERTIFICATE and not file.content for file in self.rendering.files)
        return lost and self.generation.digest == rendering.digest


@dataclass(frozen=True, slots=True)
class Unchanged:
    """What was rendered already serves as ``generation``; ``verified`` as in :class:`Applied`."""

    generation: Generation
    verified: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Applied:
    """A new generation serves. ``verified`` is False where no socket could be asked which text the worker runs.

    ``took_s``: how long a reload took, from the decision until it was verified; 0 for a runtime update.
    """

    generation: Generation
    plan: Reload | RuntimeUpdate
    verified: bool
    took_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A change of which a part waits: for a reload whose time has not come, or, where no reload is needed, its turn.

    ``live`` is the part that serves already; ``more`` says that the next part may follow at once. ``generation`` is the
    running one, None where there is none.
    """

    plan: Reload | RuntimeUpdate
    generation: Generation | None
    live: RuntimeUpdate | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A whole change is held; ``hold_id`` lets it through with ``pyconfd allow``."""

    hold_id: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Rejected:
    """The input is invalid; the running configuration stays. Retried when the input changes, and slowly."""

    step: Step
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A good configuration could not be made to serve; the former one does. Tried again with back-off.

    ``disruptive`` says that the attempt itself interrupted traffic for a moment, so that the next one has to wait long.
    """

    step: Step
    problems: tuple[Problem, ...]
    disruptive: bool = False


Outcome = Unchanged | Applied | Deferred | Held | Rejected | Failed
