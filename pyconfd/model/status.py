"""What pyconfd says of itself: one immutable value, shown by the status page, the metrics and ``pyconfd status``.

Times are seconds since the epoch; 0.0 means never.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from math import inf
from types import MappingProxyType

from pyconfd.errors import Problem
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.changes import ApplyingStatus, FormerWorkers
from pyconfd.model.context import Refusal
from pyconfd.model.hold import Hold
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.nodes import NodeState
from pyconfd.model.outcome import Generation
from pyconfd.model.snapshot import Resource


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


@dataclass(frozen=True, slots=True)
class Pin:
    """``inputs`` is the digest of what is pinned.

    ``id`` tells two pins to the same generation apart.
    ``since`` is seconds since the epoch. ``broken`` says why what is pinned cannot be known, "" where it can.
    """

    id: str
    generation: int
    inputs: str
    since: float
    reason: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class PinStatus:
    """What a pin does: ``serves`` once what is pinned serves, ``refused`` where it was tried and could not.

    ``waiting`` says in words how what is on disk differs.
    """

    pin: Pin
    serves: bool = False
    refused: bool = False
    waiting: tuple[str, ...] = ()


_DAY_S = 86400.0


class Phase(StrEnum):
    """What the daemon is doing, in one word."""

    STARTING = "starting"
    SERVING = "serving"
    SERVING_LAST_GOOD = "serving_last_good"
    WAITING = "waiting"
    HELD = "held"
    REJECTED = "rejected"
    FAILED = "failed"
    DOWN = "down"
    """HAProxy does not run, whatever else there is to say."""


@dataclass(frozen=True, slots=True)
class HaproxyState:
    """Whether HAProxy runs: ``up`` is None where that is not known yet, or where pyconfd serves none.

    ``since`` is when that was seen first. ``cause`` says in words why it does not run, ``remedy`` what to type.
    """

    up: bool | None = None
    since: float = 0.0
    cause: str = ""
    remedy: str = ""

    @property
    def problem(self) -> Problem | None:
        """What is wrong; None where it runs."""
        return Problem("haproxy", self.cause, self.remedy) if self.up is False else None


@dataclass(frozen=True, slots=True)
class ApiServerState:
    """One API server, in the order of the settings. ``last_error`` is "" while it is healthy."""

    url: str
    in_use: bool = False
    healthy: bool = False
    last_ok_at: float = 0.0
    last_error: str = ""
    last_error_at: float = 0.0


class Renewal(IntEnum):
    """How urgently a credential has to be renewed; the values are those of the metric."""

    NOT_DUE = 0
    SOON = 1
    NOW = 2


@dataclass(frozen=True, slots=True)
class CredentialState:
    """A certificate or token and when it stops being valid.

    ``expires_at`` and ``issued_at`` are 0.0 where that is not known.
    """

    name: str
    expires_at: float = 0.0
    problem: str = ""
    issued_at: float = 0.0

    def renewal(self, now: float) -> Renewal:
        """Return how urgent a renewal is: 30 and 7 days before the end, or that share of a shorter lifetime.

        Short tokens are renewed with a fifth of the lifetime left (the kubelet) or more: less than that is late.
        """
        lifetime = self.expires_at - self.issued_at if self.issued_at else inf
        left = self.expires_at - now if self.expires_at else inf
        if left < min(7 * _DAY_S, lifetime * 0.05):
            return Renewal.NOW
        return Renewal.SOON if left < min(30 * _DAY_S, lifetime * 0.15) else Renewal.NOT_DUE


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One list+watch; ``last_sync_at`` is when the server last confirmed the cache (by list, event or bookmark).

    ``served`` is False where the cluster does not serve this optional API, which counts as having no such objects.
    """

    resource: Resource
    synced: bool = False
    objects: int = 0
    last_sync_at: float = 0.0
    problem: str = ""
    served: bool = True


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """The state of a source; ``synced`` once every resource has been listed that is not denied.

    ``problems`` are rights and credentials that a person has to give before all of the cluster can be read. ``etcd``
    are the endpoints of etcd, for who publishes or consumes; ``note`` says in words what that one does.
    """

    synced: bool = False
    last_sync_at: float = 0.0
    api_servers: tuple[ApiServerState, ...] = ()
    resources: tuple[ResourceState, ...] = ()
    credentials: tuple[CredentialState, ...] = ()
    problems: tuple[Problem, ...] = ()
    etcd: tuple[ApiServerState, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class TargetState:
    """One load balancer beside the main one. ``digest`` and ``applied_at`` are of what it last loaded."""

    name: str
    output: str
    phase: Phase = Phase.WAITING
    digest: str = ""
    applied_at: float = 0.0
    problems: tuple[str, ...] = ()
    applied_total: int = 0
    failures_total: int = 0


@dataclass(frozen=True, slots=True)
class OverrideStatus:
    """A state or weight that somebody set by hand: ``server`` is ``backend/name``, ``value`` ``drain``, ``weight 50``.

    ``source`` is ``command`` or ``socket``; ``until`` 0.0: until it is ended by hand; ``missing_since`` 0.0: its server
    is there.
    """

    server: str
    value: str
    since: float
    until: float = 0.0
    source: str = "command"
    missing_since: float = 0.0


@dataclass(frozen=True, slots=True)
class LeavingStatus:
    """A server that gets nothing new and goes when its last session has gone."""

    server: str
    since: float


@dataclass(frozen=True, slots=True)
class BackendDown:
    """A backend none of whose ``servers`` (so many has it) takes traffic: HAProxy answers 503 for it, or resets.

    ``why`` says what keeps its servers from it, "" where that is not known.
    """

    backend: str
    servers: int
    since: float
    why: str = ""

    @property
    def words(self) -> str:
        """Return it in words."""
        if not self.servers:
            return "it has no server: the cluster has no ready endpoint for it"
        whose = "its only server is not up" if self.servers == 1 else f"none of its {self.servers:,} servers is up"
        return f"{whose}: {self.why}" if self.why else whose


@dataclass(frozen=True, slots=True)
class Paused:
    """Somebody froze all applying; ``until`` 0.0: until ``pyconfd resume``."""

    since: float
    until: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SparesStatus:
    """Spare backends, of which ``serving`` serve new ones until the reload at ``order_at`` (seconds since the epoch).

    ``removed`` backends are still in the process until then, without traffic. ``order_at`` 0: none is due.
    """

    serving: int = 0
    free: int = 0
    removed: int = 0
    order_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """How the process differs from the rendering, on purpose, and what was repaired.

    ``leaving`` are the oldest of ``leaving_total``, ``down`` those of ``down_total`` backends without a server that is
    up; ``beyond_repair`` are sentences about what needs a reload,
    ``unavailable`` says why nothing can be changed without one, "" where it can.
    """

    paused: Paused | None = None
    overrides: tuple[OverrideStatus, ...] = ()
    leaving: tuple[LeavingStatus, ...] = ()
    leaving_total: int = 0
    repaired_total: int = 0
    beyond_repair: tuple[str, ...] = ()
    unavailable: str = ""
    down: tuple[BackendDown, ...] = ()
    down_total: int = 0
    spares: SparesStatus = SparesStatus()


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An object, or one ``entry`` of a ConfigMap, that is left out so that everything else goes on.

    ``step`` (``render`` or ``check``) turned it away, ``detail`` says why in words.
    """

    ref: ObjectRef
    entry: str
    step: str
    detail: str
    since: float


@dataclass(frozen=True, slots=True)
class QuarantineStatus:
    """Who is in quarantine now, in order, and how many came since the start, by step."""

    now: tuple[Quarantined, ...] = ()
    total_by_step: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class SpentShare:
    """The namespaces whose changes wait, as their reloads left their share of former workers behind; ``since`` when.

    They come by themselves: no namespace waits for longer than its former workers are left alone.
    """

    namespaces: tuple[str, ...]
    since: float

    @property
    def words(self) -> str:
        """Return it in words."""
        whose = ", ".join(self.namespaces)
        return f"new names of {whose} wait for up to 30 s: half of haproxy.max_old_workers were replaced for such ones"


@dataclass(frozen=True, slots=True)
class BalancerStatus:
    """What an observation of the balancer shows: its problems, and what former changes left behind."""

    problems: tuple[Problem, ...] = ()
    live: LiveStatus = LiveStatus()
    former: FormerWorkers = field(default_factory=FormerWorkers)


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Kubernetes Events on refused objects, where these are switched on."""

    written_total: int = 0
    failures_total: int = 0


class WriterRole(StrEnum):
    """Whether this process writes the status of objects of the cluster."""

    OFF = "off"
    IDLE = "idle"
    """No object that it serves has a status to write."""
    STANDBY = "standby"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class StatusWriterState:
    """How the statuses of the cluster's objects are written; ``holder`` is who holds the Lease, "" for nobody.

    ``waiting`` objects are still to be written, and by nobody else.
    """

    role: WriterRole = WriterRole.OFF
    holder: str = ""
    waiting: int = 0
    written_total: int = 0
    failures_total: int = 0


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """When something is applied or tried again though nothing happens, and what; a key of the loop's work queue."""

    task: str
    at: float


@dataclass(frozen=True, slots=True)
class Status:
    """Everything there is to say, at ``now``.

    ``hold`` is what is held of changes that otherwise go through; ``hold_id`` is its ID, or that of a
    change that is held as a whole. ``notes`` are about objects of which nothing is left out. ``dns_names`` are the
    names that the cluster asked to point here when something was applied last, ``hosts_total`` counts those that
    clients ask for by; None where that is not known. ``certificates`` are all that clients may be given, each once.
    ``untried``: there are newer fragments, and nothing came of them yet. ``nodes`` are all balancers that say what they
    serve, this one included; empty where none does.
    """

    now: float
    version: str
    pid: int
    started_at: float
    heartbeat_at: float
    phase: Phase = Phase.STARTING
    haproxy: HaproxyState = HaproxyState()
    problems: tuple[str, ...] = ()
    hold_id: str = ""
    hold: Hold | None = None
    holds_by_step: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    source: SourceHealth = SourceHealth()
    generation: Generation | None = None
    verified: bool = False
    pending_since: float = 0.0
    next_attempt: NextAttempt | None = None
    untried: bool = False
    refused: tuple[Refusal, ...] = ()
    notes: tuple[Refusal, ...] = ()
    reloads_by_reason: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    failures_by_step: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    events_total: int = 0
    reconciliations_total: int = 0
    targets: tuple[TargetState, ...] = ()
    applying: ApplyingStatus = field(default_factory=ApplyingStatus)
    live: LiveStatus = LiveStatus()
    pin: PinStatus | None = None
    rollout: RolloutStatus = field(default_factory=RolloutStatus)
    quarantine: QuarantineStatus = field(default_factory=QuarantineStatus)
    object_events: EventCounts = EventCounts()
    status_writer: StatusWriterState = StatusWriterState()
    dns_names: tuple[str, ...] | None = None
    hosts_total: int | None = None
    certificates: tuple[PresentedCertificate, ...] = ()
    spent_share: SpentShare | None = None
    nodes: tuple[NodeState, ...] = ()
