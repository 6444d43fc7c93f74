"""Preset ``loadbalancer``: Services of type LoadBalancer with ``loadBalancerClass: pyconfd.io/lb``.

Each TCP port of such a Service listens on the addresses of the pool that :mod:`pyconfd.presets.addresses` gave it. The
annotation ``pyconfd.io/addresses`` asks for certain ones, ``pyconfd.io/proxy-protocol`` (``v1`` or ``v2``) has the pods
told where a connection comes from.

One Service is read by :func:`_read` alone: conflicts about addresses and ports are decided before.
"""

import difflib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, ObjectRef, Service
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectStatus, Statuses, StatusOf
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.versioned import VersionedDict, differing, with_values
from pyconfd.presets import values
from pyconfd.presets.addresses import (
    ADDRESSES_ANNOTATION,
    LOAD_BALANCER_CLASS,
    SHARING_ANNOTATION,
    AddressProblem,
    AddressReason,
    absent,
    is_served,
)
from pyconfd.presets.cluster import Cluster, nothing_read
from pyconfd.presets.conflicts import reuse_equal, updated
from pyconfd.presets.endpoints import targets_of_port
from pyconfd.presets.policy import network
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, PresetResult, Translation
from pyconfd.presets.views import EndpointView, PortView, ServiceView

PROXY_PROTOCOL = "pyconfd.io/proxy-protocol"
VERSIONS = frozenset({"v1", "v2"})
_ANNOTATIONS = (PROXY_PROTOCOL, ADDRESSES_ANNOTATION, SHARING_ANNOTATION)

DEFAULT_AFFINITY_S = 10_800
"""Source: core/v1 ``DefaultClientIPServiceAffinitySeconds``."""
CONDITION = "pyconfd.io/Accepted"
"""The condition of a Service that says how far it is served."""
LONGEST_MESSAGE = 1024
"""Of a condition, in characters."""

_T = TypeVar("_T")
_K = TypeVar("_K")


class BalancedPort(msgspec.Struct, frozen=True, gc=False):
    """One TCP port of a Service, as templates get it.

    ``key`` is unique, and fit for the name of a section. ``addresses`` are those to listen on. ``source_ranges`` are
    the networks that may connect, () for all. ``affinity_s`` is how long a client keeps its pod, 0 for not at all.
    ``proxy_protocol`` is "v1", "v2" or "".
    """

    key: str
    cluster: str
    namespace: str
    name: str
    addresses: tuple[str, ...]
    port: int
    port_name: str
    source_ranges: tuple[str, ...]
    affinity_s: int
    proxy_protocol: str
    endpoints: tuple[EndpointView, ...]


@dataclass(frozen=True, slots=True)
class _BalancedService:
    """What was read of one Service."""

    owner: Owner
    ports: tuple[BalancedPort, ...]
    refused: tuple[Refusal, ...]
    status: ObjectStatus

    @property
    def status_of(self) -> StatusOf:
        """The object whose status it is."""
        return StatusOf(Resource.SERVICES, Key(self.owner.namespace, self.owner.name))

    @property
    def listeners(self) -> dict[Listener, Owner]:
        """Where it listens."""
        return {Listener.at(each, port.port): self.owner for port in self.ports for each in port.addresses}


class _Inputs(NamedTuple):
    """All beside the cluster's Services that one is read with."""

    cluster: str
    options: PresetOptions
    addressing: tuple[object, ...]
    nodes: object


@dataclass(frozen=True, slots=True)
class _LoadbalancerState:
    """What a result was made of, and its parts."""

    inputs: _Inputs | None
    cluster: Cluster
    services: Mapping[Key, _BalancedService] = field(default_factory=lambda: VersionedDict({}))
    ports: Mapping[str, BalancedPort] = field(default_factory=lambda: VersionedDict({}))
    listeners: Mapping[Listener, Owner] = field(default_factory=lambda: VersionedDict({}))
    statuses: Statuses = field(default_factory=lambda: VersionedDict({}))
    refused: tuple[Refusal, ...] = ()
    claimed: int = 0


class _RefusedServiceError(Exception):
    def __init__(self, *refused: Refusal) -> None:
        self.refused = refused


class _Reader:
    """Reads one Service."""

    def __init__(self, key: Key, service: Service, view: ServiceView, cluster: Cluster, options: PresetOptions) -> None:
        self._key, self._service, self._view = key, service, view
        self._cluster, self._options = cluster, options
        self._ref = ObjectRef("Service", key.namespace, key.name, cluster.snapshot.cluster)
        self._refused: list[Refusal] = []
        self._errors: dict[tuple[int, str], str] = {}
        self._absent: set[str] = set()

    def read(self, former: tuple[BalancedPort, ...]) -> _BalancedService:
        """Return what is served of it; ports that are equal to those of ``former`` are these."""
        meta = self._service.metadata
        owner = Owner("Service", self._key.namespace, self._key.name, meta.creation_timestamp or NEVER)
        ports: tuple[BalancedPort, ...] = ()
        try:
            ports = reuse_equal(former, self._ports())
        except _RefusedServiceError as error:
            self._refused += error.refused
        refused = tuple(sorted(set(self._refused)))
        status = ObjectStatus(meta.uid, meta.generation, self._status(ports, refused))
        return _BalancedService(owner, ports, refused, status)

    def _ports(self) -> list[BalancedPort]:
        spec, annotations = self._service.spec, self._service.metadata.annotations or {}
        if not self._view.ports:
            raise self._error("spec.ports", "", RefusalReason.INCOMPLETE, "it has no port")
        if wrong := self._options.claims.protocol(self._key.namespace, "tcp"):
            raise self._error("spec.type", "LoadBalancer", RefusalReason.NOT_ALLOWED, wrong)
        version = annotations.get(PROXY_PROTOCOL, "").strip().lower()
        if version and version not in VERSIONS:
            detail = "expected v1 or v2; the whole Service is left out"
            raise self._error(f"annotation {PROXY_PROTOCOL}", version, RefusalReason.INVALID_VALUE, detail)
        ranges = tuple(map(self._source_range, spec.load_balancer_source_ranges or ()))
        wanted = list(self._wanted_ports())
        if not wanted:
            return []
        addresses = self._addresses()
        affinity_s = self._affinity_s()
        ports = []
        for port in wanted:
            free = tuple(each for each in addresses if self._is_free(each, port))
            if free:
                ports.append(
                    BalancedPort(
                        key=f"{self._key.namespace}:{self._key.name}:{port.port}",
                        cluster=self._cluster.snapshot.cluster,
                        namespace=self._key.namespace,
                        name=self._key.name,
                        addresses=free,
                        port=port.port,
                        port_name=port.name,
                        source_ranges=tuple(dict.fromkeys(ranges)),
                        affinity_s=affinity_s,
                        proxy_protocol=version,
                        endpoints=targets_of_port(port, self._service, self._cluster.view.nodes, self._options),
                    )
                )
        return ports

    def _wanted_ports(self) -> Iterator[PortView]:
        """Return the ports that can be served, each number once."""
        seen = set()
        for port in self._view.ports:
            number = str(port.port)
            if port.protocol != "TCP":
                detail = "HAProxy balances only TCP: this port is not served, the TCP ports are"
                self._errors[port.port, port.protocol or "TCP"] = "UnsupportedProtocol"
                self._refuse("spec.ports", f"{number}/{port.protocol}", RefusalReason.INVALID_VALUE, detail)
            elif not 0 < port.port < 65536 or port.port in seen:
                detail = "not a port from 1 to 65535 that the Service has once"
                self._refuse("spec.ports", number, RefusalReason.INVALID_VALUE, detail)
            elif wrong := self._options.claims.port(self._key.namespace, port.port):
                self._errors[port.port, "TCP"] = "NotAllowed"
                self._refuse("spec.ports", number, RefusalReason.NOT_ALLOWED, wrong)
            elif self._options.node_ports and not port.node_port:
                detail = (
                    "traffic goes to node ports (presets.backend_target) but this port has none:"
                    " set spec.allocateLoadBalancerNodePorts"
                )
                self._errors[port.port, "TCP"] = "NoNodePort"
                self._refuse("spec.ports", number, RefusalReason.NO_NODE_PORT, detail)
            else:
                seen.add(port.port)
                yield port

    def _addresses(self) -> tuple[str, ...]:
        """Return the addresses that the Service has: one that is not here is bound for the time when it comes."""
        assigned = self._cluster.addresses.of(Resource.SERVICES, self._key)
        for problem in assigned.problems:
            self._refuse_address(problem)
        for address in assigned.addresses:
            if missing := absent(address, self._cluster.snapshot.host):
                self._absent.add(address)
                self._refuse("status.loadBalancer", address, RefusalReason.NO_SUCH_ADDRESS, missing)
        return assigned.addresses

    def _refuse_address(self, problem: AddressProblem) -> None:
        asked = ADDRESSES_ANNOTATION in (self._service.metadata.annotations or {})
        wish = f"annotation {ADDRESSES_ANNOTATION}" if asked else "spec.loadBalancerIP"
        about = wish if problem.reason.is_about_one_address else "spec.loadBalancerClass"
        if problem.reason is AddressReason.INVALID_KEY:
            about = f"annotation {SHARING_ANNOTATION}"
        self._refuse(about, problem.wanted, _REASONS[problem.reason], problem.detail)

    def _is_free(self, address: str, port: PortView) -> bool:
        holder = self._options.holder(Listener.at(address, port.port))
        if holder:
            self._errors[port.port, "TCP"] = "PortTaken"
            self._refuse("spec.ports", str(port.port), RefusalReason.PORT_TAKEN, f"{holder}; choose another port")
        return not holder

    def _source_range(self, text: str) -> str:
        try:
            return str(network(text.strip()))
        except ValueError:
            detail = "not a network like 192.0.2.0/24; the whole Service is left out, lest anybody reach it"
            raise self._error("spec.loadBalancerSourceRanges", text, RefusalReason.INVALID_VALUE, detail) from None

    def _affinity_s(self) -> int:
        spec = self._service.spec
        if spec.session_affinity != "ClientIP":
            return 0
        config = spec.session_affinity_config.client_ip if spec.session_affinity_config else None
        asked = config.timeout_seconds if config is not None else None
        return asked if asked is not None and 0 < asked <= 86_400 else DEFAULT_AFFINITY_S

    def _refuse(self, where: str, value: str, reason: RefusalReason, detail: str) -> None:
        self._refused.append(Refusal(self._ref, where, values.shown(value), reason, detail))

    def _error(self, where: str, value: str, reason: RefusalReason, detail: str) -> _RefusedServiceError:
        return _RefusedServiceError(Refusal(self._ref, where, values.shown(value), reason, detail))

    def _status(self, ports: tuple[BalancedPort, ...], refused: tuple[Refusal, ...]) -> Mapping[str, Any]:
        by_address: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for port in ports:
            for address in (each for each in port.addresses if each not in self._absent):
                by_address[address].append({"port": port.port, "protocol": "TCP"})
        errors = [
            {"port": number, "protocol": protocol, "error": f"pyconfd.io/{error}"}
            for (number, protocol), error in self._errors.items()
        ]
        ingress = []
        for address, served in by_address.items():
            numbers = {(each["port"], each["protocol"]) for each in served}
            failed = [each for each in errors if (each["port"], each["protocol"]) not in numbers]
            # Of mode VIP kube-proxy would take the connections of pods for itself, without a look at the annotations.
            ingress.append({"ip": address, "ipMode": "Proxy", "ports": [*served, *failed]})
        return {
            "loadBalancer": {"ingress": ingress} if ingress else {},
            "conditions": [self._condition(bool(ingress), refused)],
        }

    def _condition(self, served: bool, refused: tuple[Refusal, ...]) -> dict[str, Any]:
        generation = self._service.metadata.generation
        reason = "".join(word.capitalize() for word in refused[0].reason.split("_")) if refused else "Accepted"
        message = "; ".join(" ".join(filter(None, (each.field, f"{each.value}:", each.detail))) for each in refused)
        return {
            "type": CONDITION,
            "status": "True" if served else "False",
            "reason": "PartlyAccepted" if served and refused else reason,
            "message": message[:LONGEST_MESSAGE],
            **({"observedGeneration": generation} if generation else {}),
        }


_REASONS: Mapping[AddressReason, RefusalReason] = MappingProxyType(
    {
        AddressReason.NO_POOL: RefusalReason.NO_FREE_ADDRESS,
        AddressReason.NO_FAMILY: RefusalReason.NO_FREE_ADDRESS,
        AddressReason.EXHAUSTED: RefusalReason.NO_FREE_ADDRESS,
        AddressReason.TOO_MANY: RefusalReason.NO_FREE_ADDRESS,
        AddressReason.TAKEN: RefusalReason.NO_FREE_ADDRESS,
        AddressReason.INVALID_KEY: RefusalReason.INVALID_VALUE,
        AddressReason.INVALID: RefusalReason.INVALID_VALUE,
        AddressReason.NOT_ALLOWED: RefusalReason.NOT_ALLOWED,
        AddressReason.RESERVED: RefusalReason.NAME_RESERVED,
        AddressReason.NOT_IN_POOL: RefusalReason.NO_SUCH_ADDRESS,
    }
)


def _read(
    key: Key, cluster: Cluster, options: PresetOptions, former: _BalancedService | None
) -> _BalancedService | None:
    """Return what a Service asks for; None where it is not pyconfd's."""
    service, view = cluster.snapshot.services.get(key), cluster.service(key)
    if service is None or view is None or not is_served(service, options.addresses):
        return None
    return _Reader(key, service, view, cluster, options).read(former.ports if former is not None else ())


def _refused_of(service: _BalancedService | None) -> tuple[Refusal, ...]:
    return service.refused if service is not None else ()


def _joined(
    former: Mapping[_K, _T],
    changed: Collection[Key],
    old: Mapping[Key, _BalancedService],
    new: Mapping[Key, _BalancedService],
    parts: Callable[[_BalancedService], Mapping[_K, _T]],
) -> Mapping[_K, _T]:
    """Return the parts of all Services, where ``former`` are those of ``old``."""
    before = {name: part for key in changed if key in old for name, part in parts(old[key]).items()}
    after = {name: part for key in changed if key in new for name, part in parts(new[key]).items()}
    if before.keys() == after.keys():
        return with_values(former, {name: part for name, part in after.items() if part != before[name]})
    return VersionedDict({name: part for each in new.values() for name, part in parts(each).items()})


def _addresses_of(port: BalancedPort) -> list[str]:
    return [endpoint.address for endpoint in port.endpoints if endpoint.state == "ready"]


class LoadbalancerPreset(Preset):
    """Reads Services of type LoadBalancer."""

    name = PresetName.LOADBALANCER
    gives = frozenset({"loadbalancer"})
    resources = CLUSTER_VIEW
    writes_status = frozenset({Resource.SERVICES})

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return ``loadbalancer``: a dict from a key to what is served of one port, in the order of the Services."""
        nodes = cluster.view.nodes if options.node_ports else ()
        addressing = cluster.snapshot.host.addressing
        inputs = _Inputs(cluster.view.name, options.without_reservations(), addressing, nodes)
        memo = former.memo if former else None
        if not isinstance(memo, _LoadbalancerState) or memo.inputs != inputs:
            memo = _LoadbalancerState(inputs, nothing_read(cluster.view.name))
        changed = {
            *cluster.changed_since(memo.cluster),
            *differing(memo.cluster.addresses.of_all(Resource.SERVICES), cluster.addresses.of_all(Resource.SERVICES)),
        }
        old = memo.services
        services = updated(old, changed, lambda key: _read(key, cluster, options, old.get(key)))
        refused, claimed = memo.refused, memo.claimed
        if any(_refused_of(services.get(key)) != _refused_of(old.get(key)) for key in changed):
            refused = tuple(sorted(each for service in services.values() for each in service.refused))
        ports = _joined(memo.ports, changed, old, services, lambda each: {port.key: port for port in each.ports})
        for key in differing(memo.ports, ports):
            claimed += len(_addresses_of(ports[key])) if key in ports else 0
            claimed -= len(_addresses_of(memo.ports[key])) if key in memo.ports else 0
        listeners = _joined(memo.listeners, changed, old, services, lambda each: each.listeners)
        statuses = _joined(memo.statuses, changed, old, services, lambda each: {each.status_of: each.status})
        return PresetResult(
            {"loadbalancer": ports},
            refused,
            claimed,
            listeners,
            serves=ports,
            addresses_of=_addresses_of,
            statuses=statuses,
            memo=_LoadbalancerState(inputs, cluster, services, ports, listeners, statuses, refused, claimed),
        )

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each Service of pyconfd's class."""
        served: defaultdict[Key, list[BalancedPort]] = defaultdict(list)
        for port in translation.given.get("loadbalancer", {}).values():
            served[Key(port.namespace, port.name)].append(port)
        for key, service in sorted(translation.snapshot.services.items()):
            if is_served(service, translation.options.addresses):
                ports = served[key]
                yield Claim(
                    translation.ref("Service", key),
                    self.name,
                    f"type LoadBalancer and loadBalancerClass {service.spec.load_balancer_class or '(none)'}",
                    tuple(dict.fromkeys(address for port in ports for address in port.addresses)),
                    tuple(map(_backend, ports)),
                    translation.endpoints_of(key),
                )

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the type and the class."""
        del options
        return f"give the Service the type LoadBalancer and the loadBalancerClass {LOAD_BALANCER_CLASS}"

    def mistakes(self, record: AnyObject, snapshot: Snapshot) -> Iterator[str]:
        """Return misspelled classes and annotations."""
        del snapshot
        if not isinstance(record, Service):
            return
        class_ = record.spec.load_balancer_class or ""
        if class_ != LOAD_BALANCER_CLASS:
            if difflib.get_close_matches(class_.lower(), [LOAD_BALANCER_CLASS], cutoff=0.75):
                yield f"its loadBalancerClass {values.shown(class_)} is foreign: did you mean {LOAD_BALANCER_CLASS}?"
            return
        for name in sorted(record.metadata.annotations or {}):
            close = difflib.get_close_matches(name.lower(), _ANNOTATIONS, n=1, cutoff=0.85)
            if close and name not in _ANNOTATIONS:
                yield f"its annotation {values.shown(name)} has no effect: did you mean {close[0]}?"


def _backend(port: BalancedPort) -> ClaimedBackend:
    name = f"{port.name}:{port.port}"
    return ClaimedBackend(name, f"lb-{port.key}", port.key, port.endpoints, frozenset(port.addresses))
