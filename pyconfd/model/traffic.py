"""What HAProxy counted: of each proxy, requests, failures and servers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one backend: ``requests`` (connections where it is TCP), and those of them that failed.

    ``failed`` are answers of 5xx, or connections that could not be made. ``servers_up`` of ``servers`` take traffic.
    """

    requests: int = 0
    failed: int = 0
    servers_up: int = 0
    servers: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Give the sum."""
        return Counts(
            self.requests + other.requests,
            self.failed + other.failed,
            self.servers_up + other.servers_up,
            self.servers + other.servers,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """What one worker (its process number) has counted since it began, at ``at`` of a clock that never jumps.

    ``clients`` sums the frontends: what asked for no backend, or for one without servers, is in none of ``backends``.
    """

    at: float
    worker: int
    clients: Counts = Counts()
    backends: Mapping[str, Counts] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Alarm:
    """What leapt up after a change.

    ``change`` names it: generation, reasons, and what changed; ``findings`` are sentences with the figures, ``since``
    is seconds since the epoch. ``rolled_back`` is the generation that pyconfd went back to by itself, 0 for none.
    """

    generation: int
    since: float
    change: str
    findings: tuple[str, ...]
    rolled_back: int = 0


@dataclass(frozen=True, slots=True)
class ProbationStatus:
    """``until`` is when the present probation ends (seconds since the epoch), 0.0 without one; ``alarm`` stands."""

    until: float = 0.0
    alarm: Alarm | None = None
    alarms_total: int = 0
