"""The statuses of a simulation's objects: who writes them, and as much of an API server as takes them."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from pyconfd.model.object_status import StatusOf
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets.addresses import GATEWAY_CONTROLLER
from pyconfd.settings import ClusterStatusSettings, KubernetesSettings
from pyconfd.sources.host import ClusterSource
from pyconfd.sources.kubernetes.client import Method
from pyconfd.sources.kubernetes.failures import ApiError, Failure
from pyconfd.sources.kubernetes.object_status import Scope, addresses_in, is_in_sync, may_hold
from pyconfd.sources.kubernetes.status_backlog import Asked
from pyconfd.sources.kubernetes.status_writer import StatusWriter
from tests.daemon.fakes import FakeClock
from tests.simulation.cluster import Objects
from tests.world.requests import route

if TYPE_CHECKING:
    from pyconfd.system.clock import SystemClock

KINDS = frozenset(
    {Resource.SERVICES, Resource.INGRESSES, Resource.GATEWAYCLASSES, Resource.GATEWAYS, Resource.HTTPROUTES}
)
IDENTITY = "lb1"
GRACE_S = 5.0


class Kept(NamedTuple):
    """What the API server has of an object beside what users wrote."""

    uid: str
    version: str = "1"
    status: Mapping[str, Any] = MappingProxyType({})


def differences(asked: Asked, kept: Mapping[StatusOf, Kept]) -> list[str]:
    """Return which objects' statuses do not say what is asked for."""
    found = []
    for of, each in sorted(kept.items()):
        wanted = asked.of(of)
        if wanted is None:
            is_right = not may_hold(of.resource, GATEWAY_CONTROLLER, each.status)
        else:
            is_right = is_in_sync(of.resource, wanted.body, wanted.controller, each.status)
        if not is_right:
            found.append(f"{of.resource.value} {of.key}: {each.status} instead of {wanted.body if wanted else None}")
    return found


class StatusApi:
    """Takes the status of objects that are there, from one field manager, and the Lease; ``is_silent``: nothing."""

    def __init__(self) -> None:
        self.kept: dict[StatusOf, Kept] = {}
        self.holder = ""
        self.writes = 0
        self.is_silent = False
        self._lease: dict[str, Any] | None = None
        self._version = 1

    def keep(self, objects: Objects) -> None:
        """Set what there is: another object of the same name begins without a status."""
        there = {StatusOf(key[0], Key(*key[1:])): obj for key, obj in objects.items() if key[0] in KINDS}
        uids = {of: str(obj["metadata"].get("uid", "")) for of, obj in there.items()}
        self.kept = {
            of: self.kept[of] if of in self.kept and self.kept[of].uid == uid else Kept(uid) for of, uid in uids.items()
        }

    def addresses(self, of: StatusOf) -> tuple[str, ...]:
        """Return where clients of an object are told to connect."""
        return addresses_in(self.kept[of].status)

    def with_statuses(self, objects: Objects) -> Objects:
        """Return objects as a reader gets them."""
        return {key: self._with_status(StatusOf(key[0], Key(*key[1:])), obj) for key, obj in objects.items()}

    def _with_status(self, of: StatusOf, obj: dict[str, Any]) -> dict[str, Any]:
        kept, metadata = self.kept.get(of), obj["metadata"]
        if kept is None or kept.uid != metadata.get("uid", ""):
            return obj
        return {**obj, "metadata": {**metadata, "resourceVersion": kept.version}, "status": dict(kept.status)}

    def send(
        self, method: Method, path: str, body: bytes | None = None, params: Mapping[str, str] = MappingProxyType({})
    ) -> bytes:
        """Answer a request; raises ApiError."""
        if self.is_silent:
            raise ApiError(Failure.TIMEOUT, path, "no answer")
        target = route(method.value, path, params)
        sent = msgspec.json.decode(body) if body else {}
        if target.resource.plural == "leases":
            return self._answer_about_lease(method, sent)
        return self._apply(StatusOf(Resource(target.resource.plural), Key(target.namespace, target.name)), sent)

    def _apply(self, of: StatusOf, sent: dict[str, Any]) -> bytes:
        kept, metadata = self.kept.get(of), sent["metadata"]
        if kept is None:
            raise ApiError(Failure.NOT_FOUND, str(of), "there is none", status=404)
        if metadata["uid"] != kept.uid or metadata.get("resourceVersion", kept.version) != kept.version:
            raise ApiError(Failure.REFUSED, str(of), "it is another one", status=409)
        self.writes += 1
        if sent["status"] != kept.status:  # with one field manager, what it sends is all that there is
            self.kept[of] = kept = Kept(kept.uid, self._next_version(), sent["status"])
        return msgspec.json.encode({"metadata": {"resourceVersion": kept.version}, "status": kept.status})

    def _answer_about_lease(self, method: Method, sent: dict[str, Any]) -> bytes:
        if method is Method.GET and self._lease is None:
            raise ApiError(Failure.NOT_FOUND, "leases", "there is none", status=404)
        if method is not Method.GET:
            version = self._lease["metadata"]["resourceVersion"] if self._lease else None
            if sent["metadata"].get("resourceVersion") != version:
                raise ApiError(Failure.REFUSED, "leases", "it has changed", status=409)
            sent["metadata"]["resourceVersion"] = self._next_version()
            self._lease, self.holder = sent, str(sent["spec"]["holderIdentity"])
        return msgspec.json.encode(self._lease)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


class Statuses:
    """The status writer of one pyconfd, which :meth:`turn` runs in place of its threads."""

    def __init__(self, api: StatusApi, source: ClusterSource, clock: FakeClock, ours: Collection[str]) -> None:
        settings = KubernetesSettings(api_servers=("http://127.0.0.1:1",))
        scope = Scope(KINDS, frozenset(ours), GATEWAY_CONTROLLER)
        self._clock = clock
        self.writer = StatusWriter(
            settings,
            ClusterStatusSettings(grace_s=GRACE_S),
            source.snapshot,
            scope,
            identity=IDENTITY,
            clock=cast("SystemClock", clock),
        )
        for each in (self.writer._writer, self.writer._lease_writer):
            each.send = api.send  # type: ignore[method-assign]
        self._lease_at = self._step_at = 0.0

    def turn(self) -> None:
        """Do what is due."""
        now = self._clock.monotonic()
        if now >= self._lease_at:
            self._lease_at = self.writer.election.run_round()
        while now >= self._step_at or self.writer._wake.is_set():
            self._step_at = now + self.writer.step()
