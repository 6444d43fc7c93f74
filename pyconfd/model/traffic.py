"""Counters of HAProxy for each proxy (requests, failures, servers), and what the rollout monitor makes of them."""

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
        """Return the sum."""
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
class RolloutAlarm:
    """Error rates that rose after a change.

    ``change`` names it: generation, reasons of the reload, and the difference; ``findings`` are sentences with figures.
    ``since`` is in seconds since the epoch.
    """

    generation: int
    since: float
    change: str
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """``until`` is when monitoring of the last change ends (seconds since the epoch), 0.0 if none is monitored."""

    until: float = 0.0
    alarm: RolloutAlarm | None = None
    alarms_total: int = 0
