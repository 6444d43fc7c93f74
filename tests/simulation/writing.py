"""What a simulation's pyconfd writes to its cluster: statuses, the Lease, whose each name is; and what takes that."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets.addresses import GATEWAY_CONTROLLER
from pyconfd.settings import ClusterStatusSettings, KubernetesSettings
from pyconfd.sources.host import ClusterSource
from pyconfd.sources.kubernetes.client import Method
from pyconfd.sources.kubernetes.failures import ApiError, Failure
from pyconfd.sources.kubernetes.object_status import Scope, addresses_in, is_in_sync, may_hold
from pyconfd.sources.kubernetes.ownership_record import OwnershipRecord
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


def differences(asked: Asked, kept: Mapping[ObjectKey, Kept]) -> list[str]:
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


class WrittenApi:
    """As much of an API server as takes these, from one field manager; where it ``is_silent``, nothing."""

    def __init__(self) -> None:
        self.kept: dict[ObjectKey, Kept] = {}
        self.holder = ""
        self.writes = 0
        self.is_silent = False
        self._others: dict[str, dict[str, Any]] = {}
        """The Lease and ConfigMaps, by their paths."""
        self._version = 1

    def keep(self, objects: Objects) -> None:
        """Set what there is: another object of the same name begins without a status."""
        there = {ObjectKey(key[0], Key(*key[1:])): obj for key, obj in objects.items() if key[0] in KINDS}
        uids = {of: str(obj["metadata"].get("uid", "")) for of, obj in there.items()}
        self.kept = {
            of: self.kept[of] if of in self.kept and self.kept[of].uid == uid else Kept(uid) for of, uid in uids.items()
        }

    def addresses(self, of: ObjectKey) -> tuple[str, ...]:
        """Return where clients of an object are told to connect."""
        return addresses_in(self.kept[of].status)

    def with_statuses(self, objects: Objects) -> Objects:
        """Return objects as a reader gets them."""
        return {key: self._with_status(ObjectKey(key[0], Key(*key[1:])), obj) for key, obj in objects.items()}

    def _with_status(self, of: ObjectKey, obj: dict[str, Any]) -> dict[str, Any]:
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
        if method is not Method.APPLY:
            return self._store(method, f"{path}/{sent['metadata']['name']}" if method is Method.CREATE else path, sent)
        return self._apply(ObjectKey(Resource(target.resource.plural), Key(target.namespace, target.name)), sent)

    def _apply(self, of: ObjectKey, sent: dict[str, Any]) -> bytes:
        kept, metadata = self.kept.get(of), sent["metadata"]
        if kept is None:
            raise ApiError(Failure.NOT_FOUND, str(of), "there is none", status=404)
        if metadata["uid"] != kept.uid or metadata.get("resourceVersion", kept.version) != kept.version:
            raise ApiError(Failure.REFUSED, str(of), "it is another one", status=409)
        self.writes += 1
        if sent["status"] != kept.status:  # with one field manager, what it sends is all that there is
            self.kept[of] = kept = Kept(kept.uid, self._next_version(), sent["status"])
        return msgspec.json.encode({"metadata": {"resourceVersion": kept.version}, "status": kept.status})

    def _store(self, method: Method, path: str, sent: dict[str, Any]) -> bytes:
        known = self._others.get(path)
        if method is Method.GET and known is None:
            raise ApiError(Failure.NOT_FOUND, path, "there is none", status=404)
        if method is not Method.GET:
            version = known["metadata"]["resourceVersion"] if known else None
            if sent["metadata"].get("resourceVersion") != version:
                raise ApiError(Failure.REFUSED, path, "it has changed", status=409)
            sent["metadata"]["resourceVersion"] = self._next_version()
            self._others[path] = known = sent
            self.holder = str(sent["spec"]["holderIdentity"]) if "/leases/" in path else self.holder
        return msgspec.json.encode(known)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


class ClusterWriters:
    """The status writer and the record of names of one pyconfd, which :meth:`turn` runs in place of their threads."""

    def __init__(self, api: WrittenApi, source: ClusterSource, clock: FakeClock, ours: Collection[str]) -> None:
        settings, options = (
            KubernetesSettings(api_servers=("http://127.0.0.1:1",)),
            ClusterStatusSettings(grace_s=GRACE_S),
        )
        scope = Scope(KINDS, frozenset(ours), GATEWAY_CONTROLLER)
        self._clock, own = clock, cast("SystemClock", clock)
        self.statuses = StatusWriter(settings, options, source.snapshot, scope, identity=IDENTITY, clock=own)
        lease = options.lease_namespace, options.lease_name
        self.names = OwnershipRecord(settings, self.statuses, lease=lease, clock=own)
        for each in (self.statuses._writer, self.statuses._lease_writer, self.names._writer):
            each.send = api.send  # type: ignore[method-assign]
        self._lease_at = self._status_at = self._names_at = 0.0

    def turn(self, notify: Callable[[], None]) -> None:
        """Do what is due; ``notify`` is called where the loop has to look at the names again."""
        now = self._clock.monotonic()
        if now >= self._lease_at:
            self._lease_at = self.statuses.election.run_round()
        if now >= self._names_at:
            self.names._notify = notify
            self._names_at = now + self.names.step()
        while now >= self._status_at or self.statuses._wake.is_set():
            self._status_at = now + self.statuses.step()
