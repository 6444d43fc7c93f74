"""What the loop needs from the world; the composition root fills it in, tests use fakes of the same contracts."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from pyconfd.admission.removal_protection import SavedHold
from pyconfd.daemon.installed_certificates import InstalledCertificates
from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.daemon.reconcile import BalancerPort
from pyconfd.errors import Problem
from pyconfd.model.changes import Change, RoomForReload
from pyconfd.model.context import Context
from pyconfd.model.nodes import NodeState
from pyconfd.model.outcome import Outcome
from pyconfd.model.plan import Plan
from pyconfd.model.rendering import FragmentSet
from pyconfd.model.status import (
    BalancerStatus,
    EventCounts,
    HaproxyState,
    Paused,
    PinStatus,
    Sample,
    Status,
    StatusWriterState,
    TargetState,
)
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer
from pyconfd.sources.host import ClusterSource
from pyconfd.system.state_file import StateFile


class RestoringBalancer(BalancerPort, Protocol):
    """A balancer that can serve the last good generation where nothing else can be had."""

    def restore_last_good(self, now: float) -> Outcome | None:
        """Restore the last good generation unless it runs; return None where there is none."""
        ...

    def runs(self) -> bool:
        """Return whether the load balancer runs, whatever it has loaded."""
        ...

    def refresh(self) -> Plan:
        """Compare disk and process with what is applied."""
        ...

    def sync(self, *, may_repair: bool = True) -> BalancerStatus:
        """Check what runs, repair what somebody changed by hand if that is allowed, and return the condition."""
        ...

    def condition(self) -> HaproxyState:
        """Return whether HAProxy runs; :meth:`sync` checks."""
        ...

    @property
    def file_behind(self) -> bool:
        """Whether the process was changed and the file does not say so yet."""
        ...

    def updates_at_runtime(self) -> bool:
        """Return whether some changes need no reload at present."""
        ...

    def order_due_s(self) -> float | None:
        """Return in how many seconds a reload is due though nothing changes; None for not at all."""
        ...

    def make_room(self) -> RoomForReload:
        """Return whether a reload may come now; where too many former workers are left, one of them may be ended."""
        ...

    def may_reload_for(self, namespaces: Collection[str]) -> bool:
        """Return whether changes of these namespaces alone may reload now, or wait: they took their share."""
        ...

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Call ``progress`` repeatedly while something that takes long is waited for."""
        ...


class Notifier(Protocol):
    """The service manager."""

    def ready(self, status: str = "") -> None:
        """Report that start-up is decided."""
        ...

    def status(self, text: str) -> None:
        """Report the state in one line."""
        ...

    def watchdog(self) -> None:
        """Report progress."""
        ...


class Renderings(Protocol):
    """Renders templates of the cluster beside the loop."""

    def start(self, on_done: Callable[[], None]) -> None:
        """Begin; ``on_done`` is called from any thread after each rendering."""
        ...

    def stop(self) -> None:
        """End all threads."""
        ...


class NoRenderings:
    """Renders nothing beside the loop."""

    def start(self, on_done: Callable[[], None]) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class Changes(Protocol):
    """Records each change for people to read."""

    def record(self, change: Change) -> None:
        """Remember a change."""
        ...

    def flush(self) -> bool:
        """Return what was recorded; False where that failed."""
        ...


class NoChanges:
    """Nobody is told."""

    def record(self, change: Change) -> None:
        """Do nothing."""

    def flush(self) -> bool:
        """Do nothing."""
        return True


class ObjectStatuses(Protocol):
    """Writes the status of objects of the cluster, beside the loop."""

    def offer(self, context: Context) -> None:
        """Write what ``context`` says of each object; HAProxy was seen to run it. Returns at once."""
        ...

    def state(self) -> StatusWriterState:
        """Return who writes, and how much; safe in any thread."""
        ...


class NoObjectStatuses:
    """Nothing is written."""

    def offer(self, context: Context) -> None:
        """Do nothing."""

    def state(self) -> StatusWriterState:
        """Return that it is switched off."""
        return StatusWriterState()


class NodesPort(Protocol):
    """What all balancers of the cluster serve, as each of them publishes it."""

    def states(self) -> tuple[NodeState, ...]:
        """Return this one and the others; safe in any thread."""
        ...


class NoNodes:
    """A balancer that publishes nothing, and reads of no other."""

    def states(self) -> tuple[NodeState, ...]:
        """Return nothing."""
        return ()


class TargetsPort(Protocol):
    """The load balancers beside HAProxy, each in its own time."""

    def start(self, on_change: Callable[[], None]) -> None:
        """Begin; ``on_change`` is called from any thread when a state may have changed."""
        ...

    def offer(self, context: Context, *, protect: bool) -> None:
        """Apply this to every target; returns at once."""
        ...

    def states(self) -> tuple[TargetState, ...]:
        """Return the state of each."""
        ...

    def stop(self) -> None:
        """End all threads."""
        ...


class NoTargets:
    """HAProxy is the only load balancer."""

    def start(self, on_change: Callable[[], None]) -> None:
        """Do nothing."""

    def offer(self, context: Context, *, protect: bool) -> None:
        """Do nothing."""

    def states(self) -> tuple[TargetState, ...]:
        """Return nothing."""
        return ()

    def stop(self) -> None:
        """Do nothing."""


class Clocks(Protocol):
    """Both clocks, in seconds."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    def date(self, now: float) -> str:
        """Return ``now`` in the form of ``str(datetime.now())``, for ``extra.curdate``."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutPort:
    """What the rollout monitor needs of HAProxy; by default it sees nothing.

    ``traffic`` returns the newest sample, None while no socket answers. ``mark_ran_well`` marks the newest generation
    as the one for a boot; it raises TransientError.
    """

    traffic: Callable[[], Sample | None] = lambda: None
    mark_ran_well: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside the loop.

    ``paused`` gives what an operator froze, at a time in seconds since the epoch. ``other_problems`` gives what
    else is wrong; it is asked each second. ``base_options`` are those of the settings alone, for as long as there
    are no fragments. ``former_fragments`` gives those of inputs, by their digest; ``served_before`` says whether
    a generation that is kept was made of some; ``pinned`` gives what is pinned, for the fragments that serve, and
    whether the newest were refused. ``object_events`` counts what was told in the cluster.
    """

    source: ClusterSource
    balancer: RestoringBalancer
    notifier: Notifier
    clock: Clocks
    read_fragments: Callable[[], FragmentSet]
    make_renderer: Callable[[FragmentSet], Renderer]
    preset_options: Callable[[Renderer], PresetOptions]
    allowed_holds: Callable[[], frozenset[str]]
    forget_holds: Callable[[], None]
    publish: Callable[[Status], object]
    other_problems: Callable[[], tuple[Problem, ...]] = tuple
    targets: TargetsPort = field(default_factory=NoTargets)
    paused: Callable[[float], Paused | None] = lambda _: None
    changes: Changes = field(default_factory=NoChanges)
    base_options: PresetOptions = field(default_factory=PresetOptions)
    hold_file: StateFile[SavedHold] | None = None
    certificates: InstalledCertificates = field(default_factory=InstalledCertificates)
    renderings: Renderings = field(default_factory=NoRenderings)
    former_fragments: Callable[[str], FragmentSet | None] = lambda _: None
    served_before: Callable[[FragmentSet], bool] = lambda _: False
    pinned: Callable[[FragmentSet | None, bool], PinStatus | None] = lambda _, __: None
    rollout: RolloutPort = field(default_factory=RolloutPort)
    name_register: NameRegisterFile = field(default_factory=NameRegisterFile)
    object_events: Callable[[], EventCounts] = EventCounts
    object_statuses: ObjectStatuses = field(default_factory=NoObjectStatuses)
    nodes: NodesPort = field(default_factory=NoNodes)
