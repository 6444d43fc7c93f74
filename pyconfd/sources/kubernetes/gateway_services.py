"""Which Services of Gateways are still to be written, and when each may be: no threads, no requests.

Each is one server-side apply, which creates it or changes what differs. A Service of its name that is not pyconfd's is
left alone. None is deleted: its Gateway owns it, so Kubernetes deletes both.
"""

from typing import Any, NamedTuple

import msgspec

from pyconfd.errors import Problem
from pyconfd.model.gateway_api import GROUP
from pyconfd.model.gateway_service import GATEWAY_UID, NO_SERVICES, GatewayService, GatewayServices
from pyconfd.model.kubernetes import Service
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.sources.kubernetes.object_status import FIELD_MANAGER
from pyconfd.sources.kubernetes.resources import path_of
from pyconfd.system.backoff import Backoff

_CLASS = "pyconfd.io/gateway"
"""So that no other load balancer takes it, nor pyconfd itself."""
_FIRST_S, _LAST_S = 2.0, 60.0
"""Pauses between writes of one Service: the watch needs a moment to bring it, and somebody else may change it."""
_CALM_S = 900.0
"""After so long without a write the next pause is the first."""
_PLACE = "Services of Gateways"


class ServiceWrite(NamedTuple):
    """A server-side apply of a Service; ``uid`` "" creates it."""

    key: Key
    service: GatewayService
    uid: str

    @property
    def path(self) -> str:
        """The path of the object."""
        return f"{path_of(Resource.SERVICES, self.key.namespace)}/{self.key.name}"

    @property
    def params(self) -> dict[str, str]:
        """The parameters of the request: what others own of a new one's name is theirs."""
        return {"fieldManager": FIELD_MANAGER, "force": "true" if self.uid else "false"}

    @property
    def body(self) -> bytes:
        """The object; an existing one has to be this very one."""
        service, owner = self.service, f"{GROUP}/v1"
        metadata: dict[str, Any] = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": dict(service.labels),
            "annotations": dict(service.annotations),
            "ownerReferences": [{"apiVersion": owner, "kind": "Gateway", "name": service.gateway, "uid": service.uid}],
        }
        if self.uid:
            metadata["uid"] = self.uid
        spec = {
            "type": "LoadBalancer",
            "loadBalancerClass": _CLASS,
            "allocateLoadBalancerNodePorts": False,
            "ports": [{"name": f"port-{each}", "port": each, "protocol": "TCP"} for each in service.ports],
        }
        return msgspec.json.encode({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


class ServiceBacklog:
    """Belongs to one thread; times are of the monotonic clock."""

    def __init__(self) -> None:
        self._wanted: GatewayServices = NO_SERVICES
        self._snapshot = Snapshot()
        self._due: dict[Key, ServiceWrite] = {}
        self._written: dict[Key, tuple[str, GatewayService]] = {}
        """What was written, by the uid of the Service: what it does not say any more has to go."""
        self._pauses: dict[Key, tuple[Backoff, float]] = {}
        """By Service, with the time of the last write."""
        self._not_before: dict[Key, float] = {}
        self._foreign: tuple[Key, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be written."""
        return not self._due

    def take(self, wanted: GatewayServices, snapshot: Snapshot) -> None:
        """Compare what is ``wanted`` with what is there, where either has changed."""
        if wanted is self._wanted and snapshot.services is self._snapshot.services:
            return
        self._wanted, self._snapshot = wanted, snapshot
        self._due, foreign = {}, []
        for key, service in wanted.items():
            current = snapshot.services.get(key)
            if current is None:
                self._due[key] = ServiceWrite(key, service, "")
            elif not _is_own(current, service):
                foreign.append(key)
            elif self._written.get(key) != (current.metadata.uid, service) or not _says(current, service):
                self._due[key] = ServiceWrite(key, service, current.metadata.uid)
        self._foreign = tuple(foreign)
        for known in (self._written, self._pauses, self._not_before):
            for key in known.keys() - wanted.keys():
                del known[key]

    def next_write(self, now: float) -> ServiceWrite | None:
        """Return what to write now, None where nothing is due."""
        return next((each for key, each in self._due.items() if self._not_before.get(key, 0.0) <= now), None)

    def next_due(self) -> float | None:
        """Return when something is due next, None for never."""
        return min((self._not_before.get(key, 0.0) for key in self._due), default=None)

    def written(self, write: ServiceWrite, uid: str, now: float) -> None:
        """Record that a write was accepted, by the ``uid`` of the object; the watch brings what it is now."""
        self._written[write.key] = uid, write.service
        self._wait(write, now)
        if write.uid:
            del self._due[write.key]

    def failed(self, write: ServiceWrite, now: float) -> None:
        """Try a write again later, and all others meanwhile."""
        self._wait(write, now)

    def block(self, until: float) -> None:
        """Write nothing for a while."""
        self._not_before.update(dict.fromkeys(self._due, until))

    def problems(self) -> tuple[Problem, ...]:
        """Return which Services are somebody else's."""
        if not self._foreign:
            return ()
        names = ", ".join(f"{key.namespace}/{key.name}" for key in self._foreign[:3])
        message = f"{len(self._foreign)} have the name of one that is not pyconfd's: {names}"
        return (Problem(_PLACE, message, "rename or delete that Service, or the Gateway"),)

    def _wait(self, write: ServiceWrite, now: float) -> None:
        pauses, last = self._pauses.get(write.key, (None, now))
        if pauses is None or now - last > _CALM_S:
            pauses = Backoff(first_s=_FIRST_S, last_s=_LAST_S)
        self._pauses[write.key] = pauses, now
        self._not_before[write.key] = now + pauses.delay_s()


def _is_own(current: Service, service: GatewayService) -> bool:
    """Return whether a Service was made for this very Gateway."""
    marked = (current.metadata.annotations or {}).get(GATEWAY_UID)
    return current.spec.load_balancer_class == _CLASS and marked == service.uid


def _says(current: Service, service: GatewayService) -> bool:
    """Return whether a Service says what it shall say, whatever else it says."""
    labels, annotations = current.metadata.labels or {}, current.metadata.annotations or {}
    return (
        labels.items() >= set(service.labels)
        and annotations.items() >= set(service.annotations)
        and {each.port for each in current.spec.ports or ()} == set(service.ports)
    )
