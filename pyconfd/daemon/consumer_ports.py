"""What the loop of a consumer needs from the world."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pyconfd.daemon.ports import Changes, Clocks, NoChanges, Notifier, RestoringBalancer
from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import EndpointTotals
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Paused, SourceHealth, Status


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published, in the words of the loop.

    ``number`` and ``digest`` name it in etcd, ``make`` gives the rendering for this machine (raises RejectedInput);
    ``local`` tells whether that depends on files here.
    """

    number: int
    digest: str
    curdate: str
    local: bool
    make: Callable[[], Rendering]


@dataclass(frozen=True, slots=True)
class FoundPublication:
    """One reading of etcd: a publication, or why there is none (both None: etcd holds nothing)."""

    publication: Publication | None = None
    error: RejectedInput | None = None


class PublicationSource(Protocol):
    """Reads publications."""

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read; call ``notify`` from any thread when something else was found."""
        ...

    def found(self) -> FoundPublication | None:
        """Return what was found, None until something was read."""
        ...

    def health(self) -> SourceHealth:
        """Return how the endpoints do."""
        ...

    def relist(self) -> None:
        """Read again soon."""
        ...

    def stop(self) -> None:
        """End all threads."""
        ...


class Taken(Protocol):
    """Remembers the last publication that was applied, over restarts."""

    def load(self) -> tuple[int, str]:
        """Return number and digest; (0, "") for none."""
        ...

    def save(self, number: int, digest: str) -> None:
        """Remember; raises TransientError."""
        ...


@dataclass(frozen=True, slots=True)
class ConsumerWorld:
    """Everything outside the loop; ``count`` gives how many servers a text has.

    ``paused`` gives what an operator froze, at a time in seconds since the epoch. ``other_problems`` gives what else is
    wrong; it is asked each second.
    """

    source: PublicationSource
    balancer: RestoringBalancer
    notifier: Notifier
    clock: Clocks
    taken: Taken
    count: Callable[[str], EndpointTotals]
    allowed_holds: Callable[[], frozenset[str]]
    forget_holds: Callable[[], None]
    publish: Callable[[Status], object]
    other_problems: Callable[[], tuple[Problem, ...]] = tuple
    paused: Callable[[float], Paused | None] = lambda _: None
    changes: Changes = field(default_factory=NoChanges)
