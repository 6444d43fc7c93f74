"""The source of Snapshots: one reflector for each list and watch, all at the same API server.

What client-go calls a shared informer factory; but its Snapshot is complete, or there is none yet.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.snapshot import DELETION_COUNTS, KIND_OF, Key, Named, Resource, Snapshot
from pyconfd.model.status import ResourceState, SourceHealth
from pyconfd.settings import KubernetesSettings, ReadMode
from pyconfd.sources.kubernetes.client import TEND_EVERY_S, ApiServers
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import NEED_OPERATOR, Failure
from pyconfd.sources.kubernetes.reflector import Reflector
from pyconfd.sources.kubernetes.resources import reads, right_to_read
from pyconfd.system.clock import SystemClock

STOP_TIMEOUT_S = 1.0
_DEPARTING = frozenset({Resource.ENDPOINTSLICES, Resource.PODS, Resource.NODES, *DELETION_COUNTS})
"""Where the cluster says that an address leaves, or an object was deleted, on purpose."""

log = structlog.get_logger(__name__)


class KubernetesSource:
    """Watches one cluster: ``resources`` as a whole (Secrets in their namespaces), and the objects ``named``.

    ``notify`` (see :meth:`start`) is called from the reflectors' threads whenever :meth:`snapshot` would return
    something else; it must return at once.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        resources: Collection[Resource],
        *,
        named: Collection[Named] = (),
        clock: SystemClock | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        jitter = Random()  # noqa: S311 - it keeps many balancers apart, and is no secret
        self._servers = ApiServers(settings, credentials or Credentials(settings, self._clock), self._clock)
        self._notify: Callable[[], None] | None = None
        self._reflectors = tuple(
            Reflector(
                read,
                settings,
                self._servers,
                self._clock,
                jitter=jitter,
                on_change=self._changed,
                on_recovered=self._recovered,
            )
            for read in reads(settings, resources, named)
        )
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._versions: tuple[tuple[Named, ...], tuple[int, ...]] = (), ()
        self._absent: tuple[str, ...] = ()

    def start(self, notify: Callable[[], None]) -> None:
        """Start to read; the first snapshot comes when every resource was listed, or is denied and not essential."""
        self._notify = notify
        for reflector in self._reflectors:
            self._spawn(f"reflector-{reflector.read.scope.resource.value}", reflector.run)
        self._spawn("api-servers", self._tend)

    def snapshot(self) -> Snapshot | None:
        """Return the state of the cluster, or None until it is known; the same one until it changes.

        Raises:
            RuntimeError: a reflector died of a bug, so what is in its cache would stay for ever.
        """
        for reflector in self._reflectors:
            if reflector.bug is not None:
                raise RuntimeError(f"the reflector of {reflector.read} died") from reflector.bug
        if not all(reflector.settled for reflector in self._reflectors):
            return None
        with self._lock:
            self._log_absent(tuple(str(reflector.read) for reflector in self._reflectors if reflector.absent))
            unknown = (reflector for reflector in self._reflectors if not (reflector.synced or reflector.absent))
            denied = tuple(reflector.read.scope for reflector in unknown)
            views = [reflector.view() for reflector in self._reflectors]
            versions = denied, tuple(version for version, _ in views)
            if self._snapshot is None or versions != self._versions:
                self._snapshot = self._assemble([view for _, view in views], denied)
                self._versions = versions
            return self._snapshot

    def health(self) -> SourceHealth:
        """Return the state of servers, resources and credentials; never waits for the network."""
        waited_for = [r for r in self._reflectors if not r.absent and (not r.denied or r.read.essential)]
        return SourceHealth(
            synced=all(reflector.settled for reflector in self._reflectors),
            last_sync_at=min((reflector.last_sync_at for reflector in waited_for), default=0.0),
            api_servers=self._servers.states(),
            resources=self._resource_states(),
            credentials=self._servers.credential_states(),
            problems=(*self._servers.credential_problems(), *self._rights_missing()),
        )

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be read, sorted; everything else went on."""
        denied = [_denied(r, self._settings.cluster) for r in self._reflectors if r.denied and not r.read.essential]
        return tuple(sorted({*denied, *(refusal for r in self._reflectors for refusal in r.refusals())}))

    @property
    def events_total(self) -> int:
        """How many changes the watches have brought."""
        return sum(reflector.events_total for reflector in self._reflectors)

    def relist(self) -> None:
        """List every resource again soon; the caches stay meanwhile."""
        for reflector in self._reflectors:
            reflector.relist()
        self._servers.interrupt()

    def relisted(self) -> bool:
        """Return whether every resource was listed in full since the last :meth:`relist`."""
        return all(reflector.relisted for reflector in self._reflectors)

    def stop(self) -> None:
        """End all threads; one that is connecting ends at its connect time limit."""
        self._stopping.set()
        for reflector in self._reflectors:
            reflector.stop()
        self._servers.close()
        limit_s = time.monotonic() + STOP_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, limit_s - time.monotonic()))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            log.debug("source.threads_linger", threads=alive)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def needs_operator(self) -> bool:
        """Return whether a Snapshot can only come after an operator did something.

        That is when an essential resource is denied or does not exist, or when each API server has failed.
        """
        if any(reflector.problem_kind in NEED_OPERATOR for reflector in self._reflectors if not reflector.settled):
            return True
        states = self._servers.states()
        return all(state.last_error and not state.healthy for state in states)

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong at present: with the credentials, then with each API server, then with each resource."""
        servers = [Problem(state.url, state.last_error) for state in self._servers.states() if state.last_error]
        resources = [Problem(str(state.resource), state.problem) for state in self._resource_states() if state.problem]
        shown_already = {problem.message for problem in servers}
        others = (each for each in resources if each.message not in shown_already)
        return (*self._servers.credential_problems(), *servers, *others)

    def _rights_missing(self) -> tuple[Problem, ...]:
        return tuple(_missing_right(reflector) for reflector in self._reflectors if reflector.denied)

    def _log_absent(self, absent: tuple[str, ...]) -> None:
        if news := [name for name in absent if name not in self._absent]:
            log.info("resource.not_served", resources=news, note="counts as empty, and is looked for again and again")
        self._absent = absent

    def _changed(self) -> None:
        if self._notify is not None:
            self._notify()

    def _recovered(self) -> None:
        # Each reflector's own pause may be half a minute, and a Snapshot takes all of them; so does what is served
        # with definitions that were installed together.
        for reflector in self._reflectors:
            reflector.server_is_back()

    def _spawn(self, name: str, body: Callable[[], None]) -> None:
        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _tend(self) -> None:
        while not self._clock.wait(self._stopping, TEND_EVERY_S):
            if self._servers.tend():
                self._recovered()

    def _assemble(self, views: list[Mapping[Key, AnyObject]], denied: tuple[Named, ...]) -> Snapshot:
        parts: dict[str, Any] = {}
        for reflector, view in zip(self._reflectors, views, strict=True):
            name = reflector.read.scope.resource.field
            parts[name] = {**parts[name], **view} if name in parts else view
        departing = [r for r in self._reflectors if r.read.scope.resource in _DEPARTING]
        return Snapshot(
            self._settings.cluster, **parts, denied=denied, terminating=tuple(r.terminating for r in departing)
        )

    def _resource_states(self) -> tuple[ResourceState, ...]:
        by_resource: dict[Resource, list[ResourceState]] = {}
        for reflector in self._reflectors:
            state = reflector.state()
            by_resource.setdefault(state.resource, []).append(state)
        return tuple(_merged(states) for states in by_resource.values())


def read_once(
    settings: KubernetesSettings,
    resources: Collection[Resource],
    timeout_s: float,
    *,
    named: Collection[Named] = (),
    clock: SystemClock | None = None,
    credentials: Credentials | None = None,
) -> tuple[Snapshot, tuple[Refusal, ...]]:
    """Read a cluster once, for a command that prints something and ends.

    Raises:
        ConfigurationError: no API server is known.
        TransientError: with what is wrong with each server and resource; before ``timeout_s`` where waiting is useless.
    """
    polled = replace(settings, mode=ReadMode.POLL)
    source = KubernetesSource(polled, resources, named=named, clock=clock, credentials=credentials)
    changed = threading.Event()
    clock = clock or SystemClock()
    deadline_s = clock.monotonic() + timeout_s
    source.start(changed.set)
    try:
        while True:
            changed.clear()
            snapshot = source.snapshot()
            if snapshot is not None:
                return snapshot, source.refusals()
            if source.needs_operator() or clock.monotonic() >= deadline_s:
                raise TransientError(*(source.problems() or (_no_answer(settings, timeout_s),)))
            clock.wait(changed, 0.05)
    finally:
        source.stop()


_WAITS: Mapping[Resource, str] = MappingProxyType(
    {
        Resource.ENDPOINTS: "Services without EndpointSlices wait",
        Resource.NODES: "what is reached through node ports waits",
        Resource.SECRETS: "installed certificates stay, new ones wait",
        Resource.CONFIGMAPS: "what names CA certificates waits",
        Resource.PODS: "what names pods waits",
    }
)
"""What waits while a resource that is not essential is denied."""


def _missing_right(reflector: Reflector) -> Problem:
    scope = reflector.read.scope
    if reflector.synced:
        effect = "what was read before stays as it is"
    elif reflector.read.essential:
        effect = "nothing of the cluster can be followed"
    else:
        effect = f"{_WAITS.get(scope.resource, 'what it asks for waits')}, all else goes on"
    if reflector.denied is Failure.NOT_FOUND:
        message = f"ResolvedRefs=False: not found; {effect}"
        return Problem(str(reflector.read), message, "does this cluster serve that API?")
    where = f"in namespace {scope.namespace}" if scope.namespace else "in a ClusterRole"
    remedy = f"give the account {right_to_read(scope)} {where}: pyconfd rbac prints it"
    return Problem(str(reflector.read), f"ResolvedRefs=False: forbidden; {effect}", remedy)


def _denied(reflector: Reflector, cluster: str) -> Refusal:
    scope, problem = reflector.read.scope, _missing_right(reflector)
    ref = ObjectRef(KIND_OF[scope.resource], scope.namespace, scope.name or "*", cluster)
    return Refusal(ref, "", "", RefusalReason.FORBIDDEN, f"{problem.message}; {problem.remedy}")


def _no_answer(settings: KubernetesSettings, timeout_s: float) -> Problem:
    servers = ", ".join(settings.api_servers) or settings.kubeconfig or "the API server"
    return Problem(servers, f"no whole answer within {timeout_s:g} s", "is the server overloaded or hanging?")


def _merged(states: list[ResourceState]) -> ResourceState:
    return ResourceState(
        resource=states[0].resource,
        synced=all(state.synced for state in states),
        objects=sum(state.objects for state in states),
        last_sync_at=min(state.last_sync_at for state in states),
        problem=next((state.problem for state in states if state.problem), ""),
        served=all(state.served for state in states),
    )
