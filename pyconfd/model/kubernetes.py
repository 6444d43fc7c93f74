"""The parts of Kubernetes objects that pyconfd uses, under the API's own names in snake_case.

Decoded from JSON by msgspec; a field that is not listed here costs neither time nor memory. The Gateway API and
Ingresses have modules of their own.

Source: the API reference of Kubernetes, core/v1 and discovery.k8s.io/v1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from pyconfd.model.gateway_api import (
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    GRPCRoute,
    HTTPRoute,
    ListenerSet,
    ReferenceGrant,
    TCPRoute,
    TLSRoute,
)
from pyconfd.model.ingress import Ingress, IngressClass
from pyconfd.model.records import ObjectMeta, Record, Status
from pyconfd.model.route_policy import RoutePolicyObject
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


class TargetRef(Record, frozen=True, gc=False):
    """What an endpoint is: nearly always ``kind = "Pod"``."""

    kind: str = ""
    name: str = ""


class EndpointConditions(Record, frozen=True, gc=False):
    """None means unknown: then ``ready`` is true, ``serving`` is as ``ready``, ``terminating`` is false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Record, frozen=True, gc=False):
    """All ``addresses`` of one endpoint are interchangeable; the API says to use the first."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    target_ref: TargetRef | None = None
    zone: str | None = None


class EndpointPort(Record, frozen=True, gc=False):
    """``name`` is "" for an unnamed port; ``protocol`` absent means TCP."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Record, frozen=True, gc=False):
    """``address_type`` is IPv4, IPv6 or FQDN; one Service has slices of each type it uses."""

    metadata: ObjectMeta
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class EndpointAddress(Record, frozen=True, gc=False):
    """An address of an Endpoints subset."""

    ip: str = ""
    node_name: str | None = None
    target_ref: TargetRef | None = None


class EndpointSubset(Record, frozen=True, gc=False):
    """Every address of a subset serves every port of it."""

    addresses: tuple[EndpointAddress, ...] | None = None
    not_ready_addresses: tuple[EndpointAddress, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class Endpoints(Record, frozen=True, gc=False):
    """Deprecated in Kubernetes since 1.33 and cut at 1,000 addresses; kept for the annotations people put on it."""

    metadata: ObjectMeta
    subsets: tuple[EndpointSubset, ...] | None = None


class ServicePort(Record, frozen=True, gc=False):
    """``target_port`` is a number or the name of a container port; ``node_port`` is 0 where there is none.

    ``app_protocol`` is what the pods speak, like ``kubernetes.io/h2c``.
    """

    name: str | None = None
    port: int = 0
    target_port: int | str | None = None
    node_port: int = 0
    protocol: str | None = None
    app_protocol: str | None = None


class SessionAffinityClientIp(Record, frozen=True, gc=False):
    """How long a client keeps its endpoint, in seconds."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(Record, frozen=True, gc=False):
    """The settings of ``sessionAffinity: ClientIP``."""

    client_ip: SessionAffinityClientIp | None = msgspec.field(name="clientIP", default=None)


class ServiceSpec(Record, frozen=True, gc=False):
    """``type`` is ClusterIP, NodePort, LoadBalancer or ExternalName."""

    ports: tuple[ServicePort, ...] | None = None
    type: str = "ClusterIP"
    external_traffic_policy: str | None = None
    ip_families: tuple[str, ...] | None = None
    load_balancer_ip: str | None = msgspec.field(name="loadBalancerIP", default=None)
    load_balancer_class: str | None = None
    load_balancer_source_ranges: tuple[str, ...] | None = None
    session_affinity: str | None = None
    session_affinity_config: SessionAffinityConfig | None = None


class Service(Record, frozen=True, gc=False):
    """A Service of core/v1."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()
    status: Status | None = None


class NodeAddress(Record, frozen=True, gc=False):
    """``type`` is InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""

    type: str = ""
    address: str = ""


class NodeCondition(Record, frozen=True, gc=False):
    """``status`` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""


class NodeSpec(Record, frozen=True, gc=False):
    """``unschedulable`` is what ``kubectl cordon`` sets."""

    unschedulable: bool | None = None


class NodeStatus(Record, frozen=True, gc=False):
    """Addresses and conditions as the kubelet reports them."""

    addresses: tuple[NodeAddress, ...] | None = None
    conditions: tuple[NodeCondition, ...] | None = None


class Node(Record, frozen=True, gc=False):
    """A Node of core/v1."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


LARGEST_PEM = 256 << 10
"""In characters: of one value of a Secret (base64) or ConfigMap. Clients take chains of 100 KiB by default.

Source: ``SSL_CTX_set_max_cert_list(3)``.
"""
ROOM_OF_NAMESPACE = 32 << 20
"""In characters: of all Secrets, and of all ConfigMaps, of a namespace; room for some 3,000 certificates."""
TOO_LARGE, NO_ROOM = "(too large)", "(no room)"
"""In place of a value that was not kept."""


def why_left_out(name: str, value: str) -> str:
    """Return why the value of ``name`` was not kept; "" for one that was."""
    if value == TOO_LARGE:
        return f"{name} is larger than {LARGEST_PEM >> 10} KiB"
    if value == NO_ROOM:
        most = f"{ROOM_OF_NAMESPACE >> 20} MiB"
        return f"{name} is not read: its namespace has more than {most} of them; delete some, then change this one"
    return ""


class Secret(Record, frozen=True, gc=False):
    """``data`` values are base64. Only Secrets of the namespaces named in the settings are read."""

    metadata: ObjectMeta
    type: str = ""
    data: dict[str, str] | None = None


class ConfigMap(Record, frozen=True, gc=False):
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


class PodCondition(Record, frozen=True, gc=False):
    """``status`` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""


class ContainerStatus(Record, frozen=True, gc=False):
    """``ready`` is what the container's readiness probe says."""

    ready: bool = False


class PodReadinessGate(Record, frozen=True, gc=False):
    """Names a condition that has to be "True" before the pod counts as ready."""

    condition_type: str = ""


class PodSpec(Record, frozen=True, gc=False):
    """What decides whether a pod is ready."""

    readiness_gates: tuple[PodReadinessGate, ...] | None = None


class PodStatus(Record, frozen=True, gc=False):
    """``phase`` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Record, frozen=True, gc=False):
    """The fields that decide, and in ``whole`` (never read from JSON) the object as templates get it."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    whole: WholeObject | None = msgspec.field(name="pyconfd.io/whole", default=None)


class PodTemplate(Record, frozen=True, gc=False):
    """The labels and annotations that a Deployment's pods get."""

    metadata: ObjectMeta = ObjectMeta()


class DeploymentSpec(Record, frozen=True, gc=False):
    """Nothing but the template."""

    template: PodTemplate = PodTemplate()


class Deployment(Record, frozen=True, gc=False):
    """A Deployment of apps/v1; only one that a setting names is read."""

    metadata: ObjectMeta
    spec: DeploymentSpec = DeploymentSpec()


class Namespace(Record, frozen=True, gc=False):
    """A Namespace of core/v1: its labels are what selectors go by."""

    metadata: ObjectMeta


_CoreObject = EndpointSlice | Endpoints | Service | Node | Secret | ConfigMap | Pod | Deployment | Namespace
_Route = HTTPRoute | GRPCRoute | TLSRoute | TCPRoute
AnyObject = (
    _CoreObject
    | Ingress
    | IngressClass
    | GatewayClass
    | Gateway
    | ListenerSet
    | _Route
    | ReferenceGrant
    | BackendTLSPolicy
    | RoutePolicyObject
)

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""The label that joins an EndpointSlice to its Service. Source: discovery.k8s.io/v1 ``LabelServiceName``."""
