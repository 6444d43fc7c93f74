"""What the commands are given to print, as they see it: the values of the calls in ``application``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # these take a third of the time that --version needs
    from collections.abc import Mapping

    from pyconfd.errors import Problem
    from pyconfd.haproxy.difference import Difference
    from pyconfd.model.basis import Edit
    from pyconfd.model.context import Refusal
    from pyconfd.model.plan import Plan
    from pyconfd.model.rendering import OutputFile, Piece
    from pyconfd.testing.report import Result


class Rendered(Protocol):
    """A rendering: the text, the pieces that it is made of, the files beside it."""

    @property
    def text(self) -> str:
        """The whole configuration."""
        ...

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What each fragment gave, in order."""
        ...

    @property
    def files(self) -> tuple[OutputFile, ...]:
        """Maps and certificates."""
        ...

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was left out."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who reads the rendering."""
        ...


class Finding(Protocol):
    """One thing that was looked at before the start."""

    @property
    def level(self) -> str:
        """``ok``, ``warning`` or ``failure``."""
        ...

    @property
    def topic(self) -> str:
        """What it is about."""
        ...

    @property
    def what(self) -> str:
        """The thing itself."""
        ...

    @property
    def message(self) -> str:
        """How it stands."""
        ...

    @property
    def remedy(self) -> str:
        """What to do; "" where it is ok."""
        ...


class CheckReport(Protocol):
    """A rendering that HAProxy accepts."""

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was left out."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who checks."""
        ...

    @property
    def haproxy_version(self) -> str:
        """The version that judged."""
        ...


class PlanReport(Protocol):
    """What would be done to make the rendering serve."""

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        ...

    @property
    def diff(self) -> str:
        """A unified diff from what is applied to what would be; "" for none."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who reads the plan."""
        ...

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was left out."""
        ...


class StatusReport(Protocol):
    """What the daemon says of itself, or what a dead one left behind."""

    @property
    def alive(self) -> bool:
        """Whether a daemon answers for these values now."""
        ...

    @property
    def status(self) -> Mapping[str, Any] | None:
        """The values, ready for JSON."""
        ...

    @property
    def text(self) -> str:
        """The same for a person; may be coloured, colours are taken out where they cannot be seen."""
        ...

    @property
    def exit_code(self) -> int:
        """0 serving and fresh, 1 a problem, 3 no daemon."""
        ...


class VipReport(Protocol):
    """What the hook of the floating address says of itself, or what a dead one left behind."""

    @property
    def alive(self) -> bool:
        """Whether it answers now."""
        ...

    @property
    def document(self) -> Mapping[str, Any]:
        """The values, ready for JSON."""
        ...

    @property
    def text(self) -> str:
        """The same for a person."""
        ...

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a problem, 3 it does not run."""
        ...


class Watched(Protocol):
    """One change as it went live, or why it did not."""

    @property
    def text(self) -> str:
        """One line for a person."""
        ...

    @property
    def values(self) -> Mapping[str, Any]:
        """The same, ready for JSON."""
        ...


class Explained(Protocol):
    """What became of something, and why."""

    @property
    def text(self) -> str:
        """For a person."""
        ...

    @property
    def values(self) -> Mapping[str, Any]:
        """The same, ready for JSON."""
        ...

    @property
    def found(self) -> bool:
        """False where there was not one thing to explain."""
        ...


class TrialRound(Protocol):
    """One run of the tests of fragments while somebody edits them."""

    @property
    def results(self) -> tuple[Result, ...]:
        """What became of each test."""
        ...

    @property
    def changes(self) -> Mapping[str, tuple[str, ...]]:
        """The lines of a diff of what a test renders, by test, since the run before."""
        ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why there are no results."""
        ...


class ServerRow(Protocol):
    """One server as HAProxy shows it; ``by_hand`` and ``leaving`` are words, "" for none."""

    @property
    def server(self) -> str:
        """``backend/name``."""
        ...

    @property
    def address(self) -> str:
        """Address and port."""
        ...

    @property
    def state(self) -> str:
        """``up``, ``down``, ``drain``, ``maint``."""
        ...

    @property
    def weight(self) -> int:
        """0 to 256."""
        ...

    @property
    def sessions(self) -> int:
        """Connections in use."""
        ...

    @property
    def by_hand(self) -> str:
        """What was set by hand, since when and for how long."""
        ...

    @property
    def leaving(self) -> str:
        """That it is on its way out, and for how long."""
        ...

    @property
    def values(self) -> Mapping[str, Any]:
        """All of it as plain data."""
        ...


class HistoryRow(Protocol):
    """One generation and, in words, what changed since the one before it in the list (``since``, 0 for none)."""

    @property
    def number(self) -> int:
        """Its number."""
        ...

    @property
    def applied_at(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the rendering."""
        ...

    @property
    def how(self) -> str:
        """``live`` or ``reload``."""
        ...

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a reload was needed."""
        ...

    @property
    def since(self) -> int:
        """What it is compared with."""
        ...

    @property
    def edits(self) -> tuple[Edit, ...]:
        """How fragments and settings changed."""
        ...

    @property
    def difference(self) -> Difference | None:
        """How services and servers changed, None where nothing before it is kept."""
        ...

    @property
    def basis(self) -> str:
        """Digest of the fragments and settings, "" where they were not kept."""
        ...

    @property
    def ran_well(self) -> bool:
        """Whether it ran for a while without an event."""
        ...

    @property
    def serving(self) -> bool:
        """Whether it serves."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether it is pinned."""
        ...


class DiffReport(Protocol):
    """What differs between two generations."""

    @property
    def before(self) -> int:
        """Number of the one."""
        ...

    @property
    def after(self) -> int:
        """Number of the other."""
        ...

    @property
    def edits(self) -> tuple[Edit, ...]:
        """How fragments and settings differ."""
        ...

    @property
    def difference(self) -> Difference:
        """How services and servers differ."""
        ...

    @property
    def sentences(self) -> tuple[str, ...]:
        """All in words."""
        ...

    @property
    def text(self) -> str:
        """A unified diff without passwords."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who reads it."""
        ...


class PinReport(Protocol):
    """What became of a pin."""

    @property
    def said(self) -> str:
        """In words."""
        ...

    @property
    def pinned(self) -> int:
        """The generation that is pinned, 0 for none."""
        ...

    @property
    def serving(self) -> int:
        """The generation that serves, 0 where it is not known."""
        ...
