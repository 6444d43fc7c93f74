"""Checks each API server before the start: whether it answers, and whether everything can be listed and watched."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from pyconfd.errors import PyconfdError, TransientError
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.finding import Finding, Level
from pyconfd.model.gateway_service import GatewayService
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import Connection, Method, Params
from pyconfd.sources.kubernetes.config_maps import config_map
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.decode import decode_list
from pyconfd.sources.kubernetes.events import event_of, refused_object
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure
from pyconfd.sources.kubernetes.gateway_services import ServiceWrite
from pyconfd.sources.kubernetes.lease import LeaseRecord, claimed, lease_document, leases_path
from pyconfd.sources.kubernetes.object_status import APPLY
from pyconfd.sources.kubernetes.resources import (
    API_VERSION_OF,
    CLUSTER_SCOPED,
    ResourceRead,
    Rights,
    nodes_name,
    owners_names,
    path_of,
)
from pyconfd.system.clock import SystemClock

TOTAL_S = 60.0
"""How long all servers together may take; they are asked at the same time."""

READ_TIMEOUT_S = 10.0
MOST_SKEW_S = 60.0
"""Certificates and tokens are valid from the minute on in which they were made."""

_WATCH_S = 1
_TRIAL, _TRIAL_TIME = "pyconfd-preflight", "2026-01-01T00:00:00.000000Z"
_DRY_RUN: Params = MappingProxyType({"dryRun": "All"})
_REMEDY = "pyconfd rbac prints all; or set cluster_status.enabled = false"


def review(
    settings: KubernetesSettings, rights: Rights, *, clock: SystemClock | None = None, total_s: float = TOTAL_S
) -> tuple[tuple[Finding, ...], Credentials]:
    """Ask every API server; return what was found, in the order of the settings, and the credentials that were used.

    Raises:
        ConfigurationError: no API server is known.
    """
    clock = clock or SystemClock()
    known = Credentials(settings, clock)
    limited = replace(settings, read_timeout_s=min(settings.read_timeout_s, READ_TIMEOUT_S))
    checks = [_ServerCheck(url, limited, known, clock, rights) for url in known.urls]
    ends_s = clock.monotonic() + total_s
    for check in checks:
        check.start()
    findings: list[Finding] = []
    for check in checks:
        check.join(max(0.0, ends_s - clock.monotonic()))
    for check in checks:
        findings += check.findings
        if check.is_alive():
            message, remedy = f"not done within {total_s:g} s", "is the server overloaded, or a plugin hanging?"
            findings.append(Finding(Level.FAILURE, "kubernetes", check.url, message, remedy))
    return tuple(findings), known


class _ServerCheck(threading.Thread):
    """Checks one server; ``findings`` grows with each answer, so that what came before a time-out is reported."""

    def __init__(
        self,
        url: str,
        settings: KubernetesSettings,
        credentials: Credentials,
        clock: SystemClock,
        rights: Rights,
    ) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.findings: list[Finding] = []
        self._settings = settings
        self._credentials = credentials
        self._clock = clock
        self._rights = rights

    def run(self) -> None:
        try:
            connection = Connection(self.url, self._credentials, self._settings, self._clock)
        except PyconfdError as error:
            self.findings += [
                Finding.of(Level.FAILURE, "kubernetes", replace(each, place=self.url)) for each in error.problems
            ]
            return
        try:
            self._ask(connection)
        finally:
            connection.close()

    def _ask(self, connection: Connection) -> None:
        try:
            connection.probe()
        except ApiError as error:
            self.findings.append(Finding.of(Level.FAILURE, "kubernetes", replace(error.problems[0], place=self.url)))
            return
        self.findings.append(Finding.ok("kubernetes", self.url, "answers, and is ready"))
        self._compare_clocks(connection.server_time_s)
        for what, asked in self._questions():
            place = f"{self.url} {what}"
            try:
                self.findings.append(asked(connection, place))
            except TransientError as error:
                self.findings.append(Finding.of(Level.FAILURE, "permissions", replace(error.problems[0], place=place)))
                if isinstance(error, ApiError) and error.kind in NEXT_SERVER:
                    return  # the others would time out in the same way

    def _questions(self) -> Iterator[tuple[str, Callable[[Connection, str], Finding]]]:
        rights = self._rights
        for read in rights.reads:
            yield str(read), partial(self._may_read, read)
        for resource in Resource:
            if resource in rights.statuses:
                yield f"status of {resource.value}", partial(self._may_write_status, resource)
        namespace, name = rights.lease
        if rights.needs_lease:
            trial = lease_document(claimed(LeaseRecord(), _TRIAL, _TRIAL_TIME), namespace, name)
            kept = _KeptObject(leases_path(namespace), name, trial, trial, f"the Lease {namespace}/{name}")
            yield f"lease {namespace}/{name}", partial(self._may_keep, kept)
        if rights.owners:
            own, path = owners_names(name)[0], path_of(Resource.CONFIGMAPS, namespace)
            what = f"ConfigMaps {own}*: each balancer remembers alone whose a host is"
            trial, replaced = (config_map(namespace, each, {}) for each in (_TRIAL, own))
            yield f"configmap {namespace}/{own}", partial(self._may_keep, _KeptObject(path, own, trial, replaced, what))
            board = nodes_name(name)
            trial, replaced = (config_map(namespace, each, {}) for each in (_TRIAL, board))
            what = f"the ConfigMap {board}: balancers do not see each other"
            yield (
                f"configmap {namespace}/{board}",
                partial(self._may_keep, _KeptObject(path, board, trial, replaced, what)),
            )
        if rights.events:
            yield "events", self._may_create_events
        if rights.services:
            yield "services of Gateways", self._may_make_services

    def _compare_clocks(self, server_time: float | None) -> None:
        if server_time is None:
            return
        ahead = self._clock.now() - server_time
        if abs(ahead) <= MOST_SKEW_S:
            self.findings.append(Finding.ok("clock", self.url, "this machine and the API server have the same time"))
            return
        side = "ahead of" if ahead > 0 else "behind"
        message = f"this machine's clock is {abs(ahead):.0f} s {side} the API server's"
        self.findings.append(Finding(Level.WARNING, "clock", self.url, message, "set it, and keep it with NTP"))

    @staticmethod
    def _may_read(read: ResourceRead, connection: Connection, place: str) -> Finding:
        """List and watch for real: what RBAC says about a user is known only for the user who asks.

        Raises:
            ApiError: one of the two does not work.
        """
        missing, version = [], "0"
        try:
            page = decode_list(read.scope.resource, connection.list_page(read.path, {**read.params, "limit": 1}))
            version = page.resource_version
        except ApiError as error:
            if read.optional and error.kind is Failure.NOT_FOUND:
                return Finding.ok("permissions", place, "not served by this cluster: counts as empty")
            missing += [_denied(error, "list")]
        try:
            with connection.watch(read.path, read.watch_params(version, _WATCH_S)):
                pass
        except ApiError as error:
            missing += [_denied(error, "watch")]
        if not missing:
            return Finding.ok("permissions", place, "can be listed and watched")
        verbs = " and ".join(missing)
        remedy = f"add the verb {verbs}: pyconfd rbac prints all"
        return Finding(Level.FAILURE, "permissions", place, f"this account may not {verbs} {read}", remedy)

    @staticmethod
    def _may_write_status(resource: Resource, connection: Connection, place: str) -> Finding:
        """Apply the status of an object that does not exist, without keeping it; raises ApiError.

        Without the right all is served: so a warning.
        """
        namespace = "" if resource in CLUSTER_SCOPED else "default"
        head = {"apiVersion": API_VERSION_OF[resource], "kind": KIND_OF[resource], "metadata": {"name": _TRIAL}}
        path = f"{path_of(resource, namespace)}/{_TRIAL}/status"
        if not _is_denied(connection, Method.APPLY, path, msgspec.json.encode(head), {**APPLY, **_DRY_RUN}):
            return Finding.ok("permissions", place, "can be written")
        remedy = f"add the verb patch to {resource.value}/status: {_REMEDY}"
        message = f"this account may not patch {resource.value}/status"
        return Finding(Level.WARNING, "permissions", place, message, remedy)

    def _may_keep(self, kept: "_KeptObject", connection: Connection, place: str) -> Finding:
        """Read, create and replace an object of pyconfd's own, without keeping it; raises ApiError.

        Without the right all is served: so a warning.
        """
        path = f"{kept.collection}/{kept.name}"
        missing = [] if not _is_denied(connection, Method.GET, path) else ["get"]
        try:
            connection.send(Method.CREATE, kept.collection, kept.created, _DRY_RUN)
        except ApiError as error:
            if error.kind is Failure.NOT_FOUND:
                message = f"there is no namespace {self._rights.lease[0]}"
                remedy = "apply what pyconfd rbac prints, which has it; or set cluster_status.lease_namespace"
                return Finding(Level.WARNING, "permissions", place, message, remedy)
            missing += [] if error.kind is Failure.REFUSED else [_denied(error, "create")]
        if _is_denied(connection, Method.REPLACE, path, kept.replaced, _DRY_RUN):
            missing.append("update")
        if not missing:
            return Finding.ok("permissions", place, "can be read, created and updated")
        verbs = " and ".join(missing)
        message = f"this account may not {verbs} {kept.what}"
        return Finding(Level.WARNING, "permissions", place, message, f"add the verb {verbs}: {_REMEDY}")

    @staticmethod
    def _may_make_services(connection: Connection, place: str) -> Finding:
        """Apply a Service that does not exist, without keeping it; raises ApiError.

        The API server asks for both verbs then. Without the right all is served: so a warning.
        """
        trial = ServiceWrite(Key("default", _TRIAL), GatewayService(_TRIAL, _TRIAL, (), (), (80,)), "")
        if not _is_denied(connection, Method.APPLY, trial.path, trial.body, {**trial.params, **_DRY_RUN}):
            return Finding.ok("permissions", place, "can be created and patched")
        message = "this account may not create or patch services: Gateways have none"
        remedy = "add the verbs: pyconfd rbac prints all; or set cluster_status.gateway_services = false"
        return Finding(Level.WARNING, "permissions", place, message, remedy)

    def _may_create_events(self, connection: Connection, place: str) -> Finding:
        """Create an Event without keeping it; raises ApiError.

        Without the right all is served: so a warning.
        """
        trial = Refusal(ObjectRef("Namespace", "", "default"), "", "", RefusalReason.INCOMPLETE, "only a trial")
        namespace, event = event_of(refused_object(trial), self._clock.now(), instance="preflight", every_s=1.0)
        try:
            body = msgspec.json.encode(event)
            connection.send(Method.CREATE, f"/api/v1/namespaces/{namespace}/events", body, _DRY_RUN)
        except ApiError as error:
            verb = _denied(error, "create")
            remedy = f"add the verb {verb}: pyconfd rbac prints all; or set events.enabled = false"
            return Finding(Level.WARNING, "permissions", place, f"this account may not {verb} events", remedy)
        return Finding.ok("permissions", place, "can be created")


class _KeptObject(NamedTuple):
    """An object that pyconfd writes: what a trial creates and replaces, and its name in messages."""

    collection: str
    name: str
    created: bytes
    replaced: bytes
    what: str


def _is_denied(
    connection: Connection, method: Method, path: str, body: bytes | None = None, params: Params = MappingProxyType({})
) -> bool:
    """Return whether the right to a request is missing. It is judged first: what fails later proves that it is there.

    Raises:
        ApiError: the server did not say.
    """
    try:
        connection.send(method, path, body, params)
    except ApiError as error:
        if error.kind not in {Failure.FORBIDDEN, Failure.NOT_FOUND, Failure.REFUSED}:
            raise
        return error.kind is Failure.FORBIDDEN
    return False


def _denied(error: ApiError, verb: str) -> str:
    if error.kind is not Failure.FORBIDDEN:
        raise error
    return verb
