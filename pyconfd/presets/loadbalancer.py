"""Preset ``loadbalancer``: Services of type LoadBalancer with ``loadBalancerClass: pyconfd.io/lb``.

Each TCP port of such a Service listens on the addresses of the pool that :mod:`pyconfd.presets.addresses` gave it. The
annotation ``pyconfd.io/addresses`` asks for certain ones, ``pyconfd.io/proxy-protocol`` (``v1`` or ``v2``) has the pods
told where a connection comes from.

:class:`_Reader` reads what one Service asks for; who listens where is decided between all presets
(:mod:`pyconfd.presets.listener_ownership`), and :class:`BalancedServices` makes what is served of that.
"""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Derived, Published, Read, Spread, Tally, Value
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, ObjectRef, Service
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.reservation import NEVER, NO_OWNERS, Name, Owner
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets import values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.addresses import (
    ADDRESSES_ANNOTATION,
    LOAD_BALANCER_CLASS,
    MOST_PORTS,
    SHARING_ANNOTATION,
    AddressOptions,
    AddressProblem,
    AddressReason,
    Assigned,
    absent,
    is_served,
)
from pyconfd.presets.cluster import NO_SERVICE, ReadService
from pyconfd.presets.endpoints import targets_of_port
from pyconfd.presets.listener_ownership import ListenerClaim, ListenerOwners
from pyconfd.presets.objects import Objects
from pyconfd.presets.policy import network
from pyconfd.presets.preset import (
    CLUSTER_VIEW,
    Preset,
    PresetCollections,
    PresetOptions,
    PresetResult,
)
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.views import EndpointView, PortView, ServiceView

PROXY_PROTOCOL = "pyconfd.io/proxy-protocol"
VERSIONS = frozenset({"v1", "v2"})
_ANNOTATIONS = (PROXY_PROTOCOL, ADDRESSES_ANNOTATION, SHARING_ANNOTATION)

DEFAULT_AFFINITY_S = 10_800
"""Source: core/v1 ``DefaultClientIPServiceAffinitySeconds``."""
_MOST_RANGES = 10_000
"""Lines with networks of one Service: each port has those of all, and an object has room for 100 million."""
CONDITION = "pyconfd.io/Accepted"
"""The condition of a Service that says how far it is served."""
LONGEST_MESSAGE = 1024
"""Of a condition, in characters."""


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


class AskedService(NamedTuple):
    """What one Service asks for; ``ports`` are those that can be served: number, and position among all.

    ``absent`` are those of its ``addresses`` that are not on this machine. ``errors`` are of ports, by number and
    protocol, as its status has them; ``refused`` is in the order in which it was found.
    """

    owner: Owner
    uid: str
    generation: int
    class_name: str
    addresses: tuple[str, ...] = ()
    absent: frozenset[str] = frozenset()
    ports: tuple[tuple[int, int], ...] = ()
    source_ranges: tuple[str, ...] = ()
    affinity_s: int = 0
    proxy_protocol: str = ""
    errors: tuple[tuple[tuple[int, str], str], ...] = ()
    refused: tuple[Refusal, ...] = ()


class ServedService(NamedTuple):
    """What is served of one Service, what is refused, and its status."""

    owner: Owner
    ports: tuple[BalancedPort, ...]
    refused: tuple[Refusal, ...]
    status: ObjectStatus


class _RefusedServiceError(Exception):
    def __init__(self, *refused: Refusal) -> None:
        self.refused = refused


class _Reader:
    """Reads what one Service asks for."""

    def __init__(
        self, read: Read, key: Key, seen: tuple[Service, ServiceView], objects: Objects, assigned: Assigned
    ) -> None:
        self._key, (self._service, self._view) = key, seen
        self._policy, self._host = read.value(objects.policy), read.value(objects.host)
        self._node_ports = read.value(objects.targets).node_ports
        self._assigned = assigned
        self._ref = ObjectRef("Service", key.namespace, key.name, objects.cluster)
        self._refused: list[Refusal] = []
        self._errors: dict[tuple[int, str], str] = {}

    def read(self) -> AskedService:
        """Return it; where anything is wrong that concerns all of the Service, it asks for no port."""
        meta = self._service.metadata
        owner = Owner("Service", *self._key, meta.creation_timestamp or NEVER)
        asked = AskedService(owner, meta.uid, meta.generation, self._service.spec.load_balancer_class or "")
        try:
            asked = self._ask(asked)
        except _RefusedServiceError as error:
            self._refused += error.refused
        return asked._replace(errors=tuple(self._errors.items()), refused=tuple(self._refused))

    def _ask(self, asked: AskedService) -> AskedService:
        spec, annotations = self._service.spec, self._service.metadata.annotations or {}
        if not self._view.ports:
            raise self._error("spec.ports", "", RefusalReason.INCOMPLETE, "it has no port")
        if len(self._view.ports) > MOST_PORTS:
            detail = f"more than {MOST_PORTS:,} ports: make several Services of it"
            raise self._error("spec.ports", "", RefusalReason.INVALID_VALUE, detail)
        if wrong := self._policy.protocol(self._key.namespace, "tcp"):
            raise self._error("spec.type", "LoadBalancer", RefusalReason.NOT_ALLOWED, wrong)
        version = annotations.get(PROXY_PROTOCOL, "").strip().lower()
        if version and version not in VERSIONS:
            detail = "expected v1 or v2; the whole Service is left out"
            raise self._error(f"annotation {PROXY_PROTOCOL}", version, RefusalReason.INVALID_VALUE, detail)
        ranges = tuple(dict.fromkeys(map(self._source_range, spec.load_balancer_source_ranges or ())))
        ports = tuple(self._wanted_ports())
        if not ports:
            return asked
        if len(ranges) * len(ports) > _MOST_RANGES:
            detail = (
                f"{len(ranges):,} networks for each of {len(ports):,} ports are more than {_MOST_RANGES:,}:"
                " list wider ones; the whole Service is left out, lest anybody reach it"
            )
            raise self._error("spec.loadBalancerSourceRanges", "", RefusalReason.INVALID_VALUE, detail)
        absent_ = frozenset(self._refuse_addresses())
        addresses, affinity_s = self._assigned.addresses, self._affinity_s()
        return asked._replace(
            addresses=addresses,
            absent=absent_,
            ports=ports,
            source_ranges=ranges,
            affinity_s=affinity_s,
            proxy_protocol=version,
        )

    def _wanted_ports(self) -> Iterator[tuple[int, int]]:
        """Return the ports that can be served, each number once, and their positions."""
        seen = set()
        for position, port in enumerate(self._view.ports):
            number = str(port.port)
            if port.protocol != "TCP":
                detail = "HAProxy balances only TCP: this port is not served, the TCP ports are"
                self._errors[port.port, port.protocol or "TCP"] = "UnsupportedProtocol"
                self._refuse("spec.ports", f"{number}/{port.protocol}", RefusalReason.INVALID_VALUE, detail)
            elif not 0 < port.port < 65536 or port.port in seen:
                detail = "not a port from 1 to 65535 that the Service has once"
                self._refuse("spec.ports", number, RefusalReason.INVALID_VALUE, detail)
            elif wrong := self._policy.port(self._key.namespace, port.port):
                self._errors[port.port, "TCP"] = "NotAllowed"
                self._refuse("spec.ports", number, RefusalReason.NOT_ALLOWED, wrong)
            elif self._node_ports and not port.node_port:
                detail = (
                    "traffic goes to node ports (presets.backend_target) but this port has none:"
                    " set spec.allocateLoadBalancerNodePorts"
                )
                self._errors[port.port, "TCP"] = "NoNodePort"
                self._refuse("spec.ports", number, RefusalReason.NO_NODE_PORT, detail)
            else:
                seen.add(port.port)
                yield port.port, position

    def _refuse_addresses(self) -> Iterator[str]:
        """Refuse what it lacks; return the addresses that are not here, and are bound for the time when they come."""
        for problem in self._assigned.problems:
            self._refuse_address(problem)
        for address in self._assigned.addresses:
            if missing := absent(address, self._host):
                self._refuse("status.loadBalancer", address, RefusalReason.NO_SUCH_ADDRESS, missing)
                yield address

    def _refuse_address(self, problem: AddressProblem) -> None:
        asked = ADDRESSES_ANNOTATION in (self._service.metadata.annotations or {})
        wish = f"annotation {ADDRESSES_ANNOTATION}" if asked else "spec.loadBalancerIP"
        about = wish if problem.reason.is_about_one_address else "spec.loadBalancerClass"
        if problem.reason is AddressReason.INVALID_KEY:
            about = f"annotation {SHARING_ANNOTATION}"
        self._refuse(about, problem.wanted, _REASONS[problem.reason], problem.detail)

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
        self._refused.append(Refusal(self._ref, where, values.shortened(value), reason, detail))

    def _error(self, where: str, value: str, reason: RefusalReason, detail: str) -> _RefusedServiceError:
        return _RefusedServiceError(Refusal(self._ref, where, values.shortened(value), reason, detail))


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


def _status(
    asked: AskedService,
    ports: Iterable[BalancedPort],
    errors: Mapping[tuple[int, str], str],
    refused: tuple[Refusal, ...],
) -> ObjectStatus:
    by_address: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for port in ports:
        for address in (each for each in port.addresses if each not in asked.absent):
            by_address[address].append({"port": port.port, "protocol": "TCP"})
    failed = [
        {"port": number, "protocol": protocol, "error": f"pyconfd.io/{error}"}
        for (number, protocol), error in errors.items()
    ]
    ingress = []
    for address, served in by_address.items():
        numbers = {(each["port"], each["protocol"]) for each in served}
        others = [each for each in failed if (each["port"], each["protocol"]) not in numbers]
        # Of mode VIP kube-proxy would take the connections of pods for itself, without a look at the annotations.
        ingress.append({"ip": address, "ipMode": "Proxy", "ports": [*served, *others]})
    body = {
        "loadBalancer": {"ingress": ingress} if ingress else {},
        "conditions": [_condition(asked.generation, bool(ingress), refused)],
    }
    return ObjectStatus(asked.uid, asked.generation, body)


def _condition(generation: int, served: bool, refused: tuple[Refusal, ...]) -> dict[str, Any]:
    reason = "".join(word.capitalize() for word in refused[0].reason.split("_")) if refused else "Accepted"
    message = "; ".join(f"{' '.join(filter(None, (each.field, each.value)))}: {each.detail}" for each in refused)
    return {
        "type": CONDITION,
        "status": "True" if served else "False",
        "reason": "PartlyAccepted" if served and refused else reason,
        "message": message[:LONGEST_MESSAGE],
        **({"observedGeneration": generation} if generation else {}),
    }


def _addresses_of(port: BalancedPort) -> list[str]:
    return [endpoint.address for endpoint in port.endpoints if endpoint.state == "ready"]


def _count(_: object, port: BalancedPort) -> Iterator[tuple[tuple[()], int]]:
    yield (), len(_addresses_of(port))


class BalancedServices(PresetCollections):
    """Services of type LoadBalancer: what each asks for, and what is served of it, by its key."""

    def __init__(self, objects: Objects, addresses: AddressOwners) -> None:
        self._objects, self._addresses = objects, addresses
        self._terms = Value[AddressOptions](objects.graph, "loadbalancer")
        self.asked = Derived(objects.services, self._ask, "claims of LoadBalancer Services")
        self.listeners = Spread(self.asked, _listeners_of, "listeners that LoadBalancer Services ask for")
        self._asked = Published[Key, AskedService](self.asked)

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Record which class is its own."""
        del snapshot
        self._terms.set(options.addresses)

    def serve(self, owners: ListenerOwners) -> None:
        """Make the ports, the statuses and the refusals."""
        self._owners = owners
        self.served = Derived(self.asked, self._serve, "LoadBalancer Services")
        self.ports = Spread(self.served, _ports_of, "ports of LoadBalancer Services")
        self.bound = Spread(self.served, _bound_by, "listeners of LoadBalancer Services")
        self.ready = Tally(
            self.ports, lambda _, port: (((), len(_addresses_of(port))),), "endpoints of LoadBalancer Services"
        )
        self._ports = Published[str, BalancedPort](self.ports, key=lambda at: at[1], rank=_rank_of_port)
        self._listeners = Published[Listener, Owner](self.bound, key=lambda at: at[1], rank=None)
        self._refused = JoinedRefusals(self.served)
        self._counted = Published[Name, Owner](
            Derived(self.asked, _owner_of_ports, "owners of ports of LoadBalancer Services"), key=_owned_name
        )
        self._statuses = Published[ObjectKey, ObjectStatus](
            self.served, key=partial(ObjectKey, Resource.SERVICES), rank=None, value=lambda each: each.status
        )

    def result(self) -> PresetResult:
        """Return ``loadbalancer``: a dict from a key to what is served of one port, in the order of the Services."""
        ports = self._ports.mapping()
        return PresetResult(
            {"loadbalancer": ports},
            self._refused.all(),
            self.ready.items.get((), 0),
            partial(_explained, self._asked.mapping(), ports, self._objects.cluster),
            self._listeners.mapping(),
            serves=ports,
            addresses_of=_addresses_of,
            owners=self._counted.mapping(),
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
        )

    def _ask(self, read: Read, key: Key, seen: ReadService) -> AskedService | None:
        if seen.object is None or seen.view is None or not is_served(seen.object, read.value(self._terms)):
            return None
        assigned = self._addresses.assigned(read, ObjectKey(Resource.SERVICES, key))
        return _Reader(read, key, (seen.object, seen.view), self._objects, assigned).read()

    def _serve(self, read: Read, key: Key, asked: AskedService) -> ServedService:
        objects, errors, refused = self._objects, dict(asked.errors), list(asked.refused)
        seen, targets = read(objects.services, key) or NO_SERVICE, read.value(objects.targets)
        nodes = read.value(objects.nodes) if targets.node_ports else ()
        views = seen.view.ports if seen.view is not None else ()
        ports = []
        for number, position in asked.ports:
            free = []
            for address in asked.addresses:
                holder = self._owners.holder(read, PresetName.LOADBALANCER, Listener.at(address, number))
                if holder:
                    errors[number, "TCP"] = "PortTaken"
                    detail = f"{holder}; choose another port"
                    ref = ObjectRef("Service", key.namespace, key.name, objects.cluster)
                    refused.append(Refusal(ref, "spec.ports", str(number), RefusalReason.PORT_TAKEN, detail))
                else:
                    free.append(address)
            if free:
                port = views[position]
                endpoints = targets_of_port(port, seen.object, nodes, targets)
                ports.append(_port(asked, objects.cluster, port, tuple(free), endpoints))
        in_order = tuple(sorted(set(refused)))
        return ServedService(asked.owner, tuple(ports), in_order, _status(asked, ports, errors, in_order))


def _port(
    asked: AskedService, cluster: str, port: PortView, addresses: tuple[str, ...], endpoints: tuple[EndpointView, ...]
) -> BalancedPort:
    owner = asked.owner
    return BalancedPort(
        key=f"{owner.namespace}:{owner.name}:{port.port}",
        cluster=cluster,
        namespace=owner.namespace,
        name=owner.name,
        addresses=addresses,
        port=port.port,
        port_name=port.name,
        source_ranges=asked.source_ranges,
        affinity_s=asked.affinity_s,
        proxy_protocol=asked.proxy_protocol,
        endpoints=endpoints,
    )


def _listeners_of(_: Key, asked: AskedService) -> Iterator[tuple[Listener, ListenerClaim]]:
    for number, _position in asked.ports:
        for listener in (Listener.at(address, number) for address in asked.addresses):
            yield listener, ListenerClaim(listener, asked.owner)


def _owner_of_ports(_: Read, __: Key, asked: AskedService) -> Owner | None:
    """Return the Service as the owner of its ports and what is said of them: it is another one where they differ."""
    if not (asked.ports and asked.addresses):
        return None
    ports = [number for number, _position in asked.ports]
    return asked.owner.asking_for((asked.addresses, ports, asked.source_ranges, asked.affinity_s, asked.proxy_protocol))


def _owned_name(key: Key) -> Name:
    return Name(f"services {key.namespace}/{key.name}", "")


def _ports_of(_: Key, served: ServedService) -> Iterator[tuple[str, BalancedPort]]:
    return ((port.key, port) for port in served.ports)


def _rank_of_port(key: str) -> tuple[str, str, int]:
    namespace, name, number = key.split(":")
    return namespace, name, int(number)


def _bound_by(_: Key, served: ServedService) -> Iterator[tuple[Listener, Owner]]:
    return ((Listener.at(address, port.port), served.owner) for port in served.ports for address in port.addresses)


class LoadbalancerPreset(Preset):
    """Reads Services of type LoadBalancer."""

    name = PresetName.LOADBALANCER
    gives = frozenset({"loadbalancer"})
    resources = CLUSTER_VIEW
    writes_status = frozenset({Resource.SERVICES})

    def collections(self, objects: Objects, addresses: AddressOwners) -> BalancedServices:
        """Return what is made of Services."""
        return BalancedServices(objects, addresses)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the type and the class."""
        del options
        return f"give the Service the type LoadBalancer and the loadBalancerClass {LOAD_BALANCER_CLASS}"

    def mistakes(self, record: AnyObject, snapshot: Snapshot, options: PresetOptions) -> Iterator[str]:
        """Return misspelled classes and annotations."""
        del snapshot, options
        if not isinstance(record, Service):
            return
        class_ = record.spec.load_balancer_class or ""
        if class_ != LOAD_BALANCER_CLASS:
            if difflib.get_close_matches(class_.lower(), [LOAD_BALANCER_CLASS], cutoff=0.75):
                found = values.shortened(class_)
                yield f"its loadBalancerClass {found} is foreign: did you mean {LOAD_BALANCER_CLASS}?"
            return
        for name in sorted(record.metadata.annotations or {}):
            close = difflib.get_close_matches(name.lower(), _ANNOTATIONS, n=1, cutoff=0.85)
            if close and name not in _ANNOTATIONS:
                yield f"its annotation {values.shortened(name)} has no effect: did you mean {close[0]}?"


def _explained(asked: Mapping[Key, AskedService], ports: Mapping[str, BalancedPort], cluster: str) -> Iterator[Claim]:
    """Return a claim for each Service of pyconfd's class."""
    served: defaultdict[Key, list[BalancedPort]] = defaultdict(list)
    for port in ports.values():
        served[Key(port.namespace, port.name)].append(port)
    for key, service in asked.items():
        mine = served[key]
        yield Claim(
            ObjectRef("Service", *key, cluster),
            PresetName.LOADBALANCER,
            f"type LoadBalancer and loadBalancerClass {service.class_name or '(none)'}",
            tuple(dict.fromkeys(address for port in mine for address in port.addresses)),
            tuple(map(_backend, mine)),
            services=(key,),
        )


def _backend(port: BalancedPort) -> ClaimedBackend:
    name = f"{port.name}:{port.port}"
    return ClaimedBackend(name, f"lb-{port.key}", port.key, port.endpoints, frozenset(port.addresses))
