"""The parts of Kubernetes objects that pyconfd uses, under the API's own names in snake_case.

Decoded from JSON by msgspec; a field that is not listed here costs neither time nor memory. Every record is
frozen and untracked by the garbage collector (``gc=False``): records hold only strings, numbers and other records,
so no reference cycle can pass through them.

Source: the API reference of Kubernetes, core/v1 and discovery.k8s.io/v1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from pyconfd.printable import clean

_LONGEST_NAME = 253
"""Source: DNS subdomain names in the documentation of Kubernetes."""


class ObjectRef(NamedTuple):
    """Names one object of one cluster; sorts by kind, namespace and name."""

    kind: str
    namespace: str
    name: str
    cluster: str = ""

    def __str__(self) -> str:
        kind, namespace, name, cluster = (clean(part, _LONGEST_NAME) for part in self)
        path = f"{namespace}/{name}" if namespace else name
        return f"{kind} {path}" + (f" (cluster {cluster})" if cluster else "")


class _Record(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


class ObjectMeta(_Record, frozen=True, gc=False):
    """``creation_timestamp`` and ``deletion_timestamp`` are RFC 3339 in UTC, so they sort as text."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class TargetRef(_Record, frozen=True, gc=False):
    """What an endpoint is: nearly always ``kind = "Pod"``."""

    kind: str = ""
    name: str = ""


class EndpointConditions(_Record, frozen=True, gc=False):
    """None means unknown: then ``ready`` is true, ``serving`` is as ``ready``, ``terminating`` is false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(_Record, frozen=True, gc=False):
    """All ``addresses`` of one endpoint are interchangeable; the API says to use the first."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    target_ref: TargetRef | None = None
    zone: str | None = None


class EndpointPort(_Record, frozen=True, gc=False):
    """``name`` is "" for an unnamed port; ``protocol`` absent means TCP."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(_Record, frozen=True, gc=False):
    """``address_type`` is IPv4, IPv6 or FQDN; one Service has slices of each type it uses."""

    metadata: ObjectMeta
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class EndpointAddress(_Record, frozen=True, gc=False):
    """An address of an Endpoints subset."""

    ip: str = ""
    node_name: str | None = None
    target_ref: TargetRef | None = None


class EndpointSubset(_Record, frozen=True, gc=False):
    """Every address of a subset serves every port of it."""

    addresses: tuple[EndpointAddress, ...] | None = None
    not_ready_addresses: tuple[EndpointAddress, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class Endpoints(_Record, frozen=True, gc=False):
    """Deprecated in Kubernetes since 1.33 and cut at 1,000 addresses; kept for the annotations people put on it."""

    metadata: ObjectMeta
    subsets: tuple[EndpointSubset, ...] | None = None


class ServicePort(_Record, frozen=True, gc=False):
    """``target_port`` is a number or the name of a container port; ``node_port`` is 0 where there is none."""

    name: str | None = None
    port: int = 0
    target_port: int | str | None = None
    node_port: int = 0
    protocol: str | None = None


class ServiceSpec(_Record, frozen=True, gc=False):
    """``type`` is ClusterIP, NodePort, LoadBalancer or ExternalName."""

    ports: tuple[ServicePort, ...] | None = None
    type: str = "ClusterIP"
    external_traffic_policy: str | None = None
    ip_families: tuple[str, ...] | None = None
    load_balancer_ip: str | None = msgspec.field(name="loadBalancerIP", default=None)


class Service(_Record, frozen=True, gc=False):
    """A Service of core/v1."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class NodeAddress(_Record, frozen=True, gc=False):
    """``type`` is InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""

    type: str = ""
    address: str = ""


class NodeCondition(_Record, frozen=True, gc=False):
    """``status`` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""


class NodeSpec(_Record, frozen=True, gc=False):
    """``unschedulable`` is what ``kubectl cordon`` sets."""

    unschedulable: bool | None = None


class NodeStatus(_Record, frozen=True, gc=False):
    """Addresses and conditions as the kubelet reports them."""

    addresses: tuple[NodeAddress, ...] | None = None
    conditions: tuple[NodeCondition, ...] | None = None


class Node(_Record, frozen=True, gc=False):
    """A Node of core/v1."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Secret(_Record, frozen=True, gc=False):
    """``data`` values are base64. Only Secrets of the namespaces named in the settings are read."""

    metadata: ObjectMeta
    type: str = ""
    data: dict[str, str] | None = None


class ConfigMap(_Record, frozen=True, gc=False):
    """Only ConfigMaps that a preset names are read; ``binaryData`` is not."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class WholeObject:
    """The JSON of an object as the API gave it, without ``managedFields``; two are equal if their JSON is.

    What is made of it is made when it is first asked for, and lives as long as the record that holds it: few of a
    cluster's pods are ever handed to a template.
    """

    __slots__ = ("_made", "json")

    def __init__(self, json: bytes) -> None:
        self.json = json
        self._made: Any = None

    def made(self, make: Callable[[bytes], Any]) -> Any:
        """Return what ``make`` gives for the JSON; it is called once, and must be the same function each time."""
        if self._made is None:
            self._made = make(self.json)
        return self._made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WholeObject) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)

    def __repr__(self) -> str:
        """Leave out the content: containers carry passwords in their environment."""
        return f"WholeObject({len(self.json)} bytes)"


class PodCondition(_Record, frozen=True, gc=False):
    """``status`` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""


class ContainerStatus(_Record, frozen=True, gc=False):
    """``ready`` is what the container's readiness probe says."""

    ready: bool = False


class PodReadinessGate(_Record, frozen=True, gc=False):
    """Names a condition that has to be "True" before the pod counts as ready."""

    condition_type: str = ""


class PodSpec(_Record, frozen=True, gc=False):
    """What decides whether a pod is ready."""

    readiness_gates: tuple[PodReadinessGate, ...] | None = None


class PodStatus(_Record, frozen=True, gc=False):
    """``phase`` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(_Record, frozen=True, gc=False):
    """The fields that decide, and in ``whole`` (never read from JSON) the object as templates get it."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    whole: WholeObject | None = msgspec.field(name="pyconfd.io/whole", default=None)


class PodTemplate(_Record, frozen=True, gc=False):
    """The labels and annotations that a Deployment's pods get."""

    metadata: ObjectMeta = ObjectMeta()


class DeploymentSpec(_Record, frozen=True, gc=False):
    """Nothing but the template."""

    template: PodTemplate = PodTemplate()


class Deployment(_Record, frozen=True, gc=False):
    """A Deployment of apps/v1; only one that a setting names is read."""

    metadata: ObjectMeta
    spec: DeploymentSpec = DeploymentSpec()


AnyObject = EndpointSlice | Endpoints | Service | Node | Secret | ConfigMap | Pod | Deployment

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""The label that joins an EndpointSlice to its Service. Source: discovery.k8s.io/v1 ``LabelServiceName``."""
