"""The source of Snapshots: one reflector for each resource, all at the same API server."""

import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import structlog

from pyconfd.errors import ConfigurationError, Problem, TransientError
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.snapshot import KIND_OF, Key, Named, Resource, Snapshot
from pyconfd.model.status import ResourceState, SourceHealth
from pyconfd.settings import KubernetesSettings, ReadMode
from pyconfd.sources.kubernetes.api_servers import TEND_EVERY_S, ApiServers
from pyconfd.sources.kubernetes.clock import Clock, SystemClock
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.cycle import Cycle, Uniform
from pyconfd.sources.kubernetes.failures import DENIED, Failure, shown
from pyconfd.sources.kubernetes.rbac import right_to_read
from pyconfd.sources.kubernetes.reflector import Reflector
from pyconfd.sources.kubernetes.resources import ONLY_BY_NAME, TLS_SECRETS_ONLY, path_of, selector_of

STOP_TIMEOUT_S = 1.0
_ESSENTIAL = frozenset({Resource.SERVICES, Resource.ENDPOINTSLICES})
HOPELESS = DENIED | {Failure.NOT_FOUND, Failure.CREDENTIALS}
"""Failures that a person has to mend; waiting for them within one command is a waste of time."""
_DEPARTING = frozenset({Resource.ENDPOINTSLICES, Resource.PODS})
"""Where the cluster says that an address leaves on purpose."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

log = structlog.get_logger(__name__)


class KubernetesSource:
    """Watches one cluster: ``resources`` as a whole (Secrets in their namespaces), and the objects ``named``.

    ``notify`` (see :meth:`start`) is called from the reflectors' threads each time :meth:`snapshot` would give
    something else; it must return at once.

    Raises:
        ConfigurationError: from the constructor: no API server is known, or an address or namespace is none.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        resources: Collection[Resource],
        *,
        named: Collection[Named] = (),
        clock: Clock | None = None,
        uniform: Uniform | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        _check_namespaces(settings.secret_namespaces)
        self._settings = settings
        self._clock = clock or SystemClock()
        # Jitter keeps many balancers apart; it is no secret.
        self._uniform = uniform or random.Random().uniform  # noqa: S311 - jitter is no secret
        self._servers = ApiServers(settings, credentials or Credentials(settings, self._clock), self._clock)
        self._notify: Callable[[], None] = _nobody
        self._reflectors = tuple(
            self._reflector(scope, params, essential=is_essential(scope, resources))
            for resource in Resource
            for scope, params in reads_of(resource, resources, settings.secret_namespaces, named)
        )
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._versions: tuple[int, ...] = ()

    def start(self, notify: Callable[[], None]) -> None:
        """Start to read; the first snapshot comes when every resource was listed, or is denied and not essential."""
        self._notify = notify
        for reflector in self._reflectors:
            self._spawn(f"reflector-{reflector.resource.value}", reflector.run)
        self._spawn("api-servers", self._tend)

    def snapshot(self) -> Snapshot | None:
        """Return the state of the cluster, or None until it is known; the same one until it changes.

        Raises:
            RuntimeError: a reflector died of a bug, so what is in its cache would stay for ever.
        """
        for reflector in self._reflectors:
            if reflector.bug is not None:
                raise RuntimeError(f"the reflector of {reflector.resource} died") from reflector.bug
        if not all(reflector.settled for reflector in self._reflectors):
            return None
        with self._lock:
            views = [reflector.view() for reflector in self._reflectors]
            synced = [reflector.synced for reflector in self._reflectors]
            versions = tuple(version if known else -1 for (version, _), known in zip(views, synced, strict=True))
            if self._snapshot is None or versions != self._versions:
                denied = tuple(r.scope for r, known in zip(self._reflectors, synced, strict=True) if not known)
                self._snapshot = self._assemble([view for _, view in views], denied)
                self._versions = versions
            return self._snapshot

    def health(self) -> SourceHealth:
        """Return the state of servers, resources and credentials; never waits for the network."""
        resources = self._resource_states()
        return SourceHealth(
            synced=all(reflector.settled for reflector in self._reflectors),
            last_sync_at=min((r.last_sync_at for r in self._reflectors if not r.denied or r.essential), default=0.0),
            api_servers=self._servers.states(),
            resources=resources,
            credentials=self._servers.credential_states(),
            problems=self._to_grant(),
        )

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be read, sorted; everything else went on."""
        denied = [_denied(r, self._settings.cluster) for r in self._reflectors if r.denied and not r.essential]
        return tuple(sorted({*denied, *(refusal for r in self._reflectors for refusal in r.refusals())}))

    @property
    def events_total(self) -> int:
        """How many changes the watches brought until now."""
        return sum(reflector.events_total for reflector in self._reflectors)

    def relist(self) -> None:
        """Have every resource listed again soon; the caches stay meanwhile."""
        for reflector in self._reflectors:
            reflector.relist()
        self._servers.interrupt()

    def relisted(self) -> bool:
        """Return whether every resource was listed in full since the last :meth:`relist`."""
        return all(reflector.relisted for reflector in self._reflectors)

    def stop(self) -> None:
        """End all threads; who is just connecting ends at its connect time limit."""
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

    def is_hopeless(self) -> bool:
        """Return whether a person has to do something before anything can come.

        That is when an essential resource is denied or does not exist, or when each API server has failed.
        """
        if any(reflector.problem_kind in HOPELESS for reflector in self._reflectors if not reflector.settled):
            return True
        states = self._servers.states()
        return all(state.last_error and not state.healthy for state in states)

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong at present: with each API server, then with each resource, then with the credentials."""
        servers = [Problem(state.url, state.last_error) for state in self._servers.states() if state.last_error]
        resources = [Problem(str(state.resource), state.problem) for state in self._resource_states() if state.problem]
        credentials = [Problem(c.name, c.problem) for c in self._servers.credential_states() if c.problem]
        told = {problem.message for problem in servers}
        return (*servers, *(problem for problem in resources if problem.message not in told), *credentials)

    def _to_grant(self) -> tuple[Problem, ...]:
        """Return what a person has to do before all can be read."""
        if self._reflectors and all(r.problem_kind is Failure.UNAUTHORIZED for r in self._reflectors):
            message = "every resource is refused with HTTP 401: the credentials are not accepted; what was known stays"
            return (Problem("API server", message, "look at the token or client certificate of the settings"),)
        return tuple(_missing_right(reflector) for reflector in self._reflectors if reflector.denied)

    def _reflector(self, scope: Named, params: Mapping[str, str], *, essential: bool) -> Reflector:
        settings = self._settings
        cycle = Cycle(
            mode=settings.mode,
            interval_s=settings.interval_s,
            page_size=settings.page_size,
            servers=len(self._servers),
            uniform=self._uniform,
        )
        return Reflector(
            scope,
            path=path_of(scope.resource, scope.namespace),
            params=params,
            essential=essential,
            cluster=settings.cluster,
            servers=self._servers,
            cycle=cycle,
            clock=self._clock,
            on_change=self._changed,
            on_recovered=self._recovered,
        )

    def _changed(self) -> None:
        self._notify()

    def _recovered(self) -> None:
        """Let all come back with the first: each one's own pause may be half a minute, and they belong together."""
        for reflector in self._reflectors:
            reflector.server_is_back()

    def _spawn(self, name: str, body: Callable[[], None]) -> None:
        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _tend(self) -> None:
        while not self._clock.wait(self._stopping, TEND_EVERY_S):
            self._servers.tend()

    def _assemble(self, views: list[Mapping[Key, AnyObject]], denied: tuple[Named, ...]) -> Snapshot:
        parts: dict[str, Any] = {}
        for reflector, view in zip(self._reflectors, views, strict=True):
            name = reflector.resource.field
            parts[name] = {**parts[name], **view} if name in parts else view
        departures = tuple(reflector.departures for reflector in self._reflectors if reflector.resource in _DEPARTING)
        return Snapshot(self._settings.cluster, **parts, denied=denied, departures=departures)

    def _resource_states(self) -> tuple[ResourceState, ...]:
        by_resource: dict[Resource, list[ResourceState]] = {}
        for reflector in self._reflectors:
            by_resource.setdefault(reflector.resource, []).append(reflector.state())
        return tuple(_merged(states) for states in by_resource.values())


def read_once(
    settings: KubernetesSettings,
    resources: Collection[Resource],
    timeout_s: float,
    *,
    named: Collection[Named] = (),
    clock: Clock | None = None,
    credentials: Credentials | None = None,
) -> tuple[Snapshot, tuple[Refusal, ...]]:
    """Read a cluster once, for a command that prints something and ends.

    Raises:
        ConfigurationError: no API server is known.
        TransientError: with what is wrong with each server and resource; before ``timeout_s`` where waiting is vain.
    """
    polled = replace(settings, mode=ReadMode.POLL)
    source = KubernetesSource(polled, resources, named=named, clock=clock, credentials=credentials)
    changed = threading.Event()
    ticking = clock or SystemClock()
    deadline_s = ticking.monotonic() + timeout_s
    source.start(changed.set)
    try:
        while True:
            changed.clear()
            snapshot = source.snapshot()
            if snapshot is not None:
                return snapshot, source.refusals()
            if source.is_hopeless() or ticking.monotonic() >= deadline_s:
                raise TransientError(*(source.problems() or (_no_answer(settings, timeout_s),)))
            ticking.wait(changed, 0.05)
    finally:
        source.stop()


def is_essential(scope: Named, resources: Collection[Resource]) -> bool:
    """Return whether nothing can be followed without this, where ``resources`` are read; else only some claims wait."""
    needed = _ESSENTIAL.intersection(resources)
    if needed:
        return scope.resource in needed
    return scope.resource is not Resource.SECRETS or bool(scope.name)


def reads_of(
    resource: Resource, resources: Collection[Resource], secret_namespaces: tuple[str, ...], named: Collection[Named]
) -> Iterator[tuple[Named, Mapping[str, str]]]:
    """Return what each list and watch of one resource is of, and its parameters."""
    if resource is Resource.SECRETS:
        whole: tuple[str, ...] = secret_namespaces if resource in resources else ()
    else:
        whole = ("",) if resource in resources and resource not in ONLY_BY_NAME else ()
    params = TLS_SECRETS_ONLY if resource is Resource.SECRETS else {}
    yield from ((Named(resource, namespace, ""), params) for namespace in whole)
    if resource is Resource.SECRETS or not whole:
        yield from ((each, selector_of(each)) for each in sorted(set(named)) if each.resource is resource)


_WAITS: Mapping[Resource, str] = MappingProxyType(
    {
        Resource.ENDPOINTS: "Services without EndpointSlices wait",
        Resource.NODES: "what is reached through node ports waits",
        Resource.SECRETS: "installed certificates stay, new ones wait",
        Resource.PODS: "what names pods waits",
    }
)
"""What needs a resource that others can do without."""


def _missing_right(reflector: Reflector) -> Problem:
    scope = reflector.scope
    if reflector.synced:
        then = "what was read before stays as it is"
    elif reflector.essential:
        then = "nothing of the cluster can be followed"
    else:
        then = f"{_WAITS.get(scope.resource, 'what it asks for waits')}, all else goes on"
    if reflector.denied is Failure.NOT_FOUND:
        return Problem(_name_of(scope), f"ResolvedRefs=False: not found; {then}", "does this cluster serve that API?")
    where = f"in namespace {scope.namespace}" if scope.namespace else "in a ClusterRole"
    remedy = f"give the account {right_to_read(scope)} {where}: pyconfd rbac prints it"
    return Problem(_name_of(scope), f"ResolvedRefs=False: forbidden; {then}", remedy)


def _denied(reflector: Reflector, cluster: str) -> Refusal:
    scope, problem = reflector.scope, _missing_right(reflector)
    ref = ObjectRef(KIND_OF[scope.resource], scope.namespace, scope.name or "*", cluster)
    return Refusal(ref, "", "", RefusalReason.FORBIDDEN, f"{problem.message}; {problem.remedy}")


def _name_of(scope: Named) -> str:
    place = f" of namespace {scope.namespace}" if scope.namespace else ""
    return f"{scope.resource} {scope.namespace}/{scope.name}" if scope.name else f"{scope.resource}{place}"


def _nobody() -> None:
    """Stand in for ``notify`` before the start."""


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
    )


def _check_namespaces(namespaces: Collection[str]) -> None:
    problems = [
        Problem("kubernetes.secret_namespaces", f"{shown(name)!r} is no name of a namespace")
        for name in namespaces
        if not _NAMESPACE.fullmatch(name)
    ]
    if problems:
        raise ConfigurationError(*problems)
