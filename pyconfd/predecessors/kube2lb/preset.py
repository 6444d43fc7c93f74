"""Preset ``kube2lb``: NodePort and LoadBalancer services of all namespaces, one entry for each service port.

Annotations of the Service: ``kube2lb/external-domains`` (see :mod:`pyconfd.predecessors.kube2lb.names`),
``kube2lb/port-mode`` and ``kube2lb/backend-timeout`` (JSON, from the name of a port to ``http`` or ``tcp``, and to
milliseconds). A value that cannot be used is refused and its default counts; the rest of the service goes on.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import IPv6Address
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Derived, Grouped, Joined, Published, Read, SameParts, Source, Spread, Tally, Value
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Service
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import NEVER, Name, Owner, Reservation, Reservations, port_of
from pyconfd.model.snapshot import HostFacts, Key, Snapshot
from pyconfd.predecessors.kube2lb.claims import (
    EXTERNAL_DOMAINS,
    DecidedPorts,
    Kube2lbClaim,
    Kube2lbEndpoint,
    Kube2lbNode,
    Kube2lbPlace,
    Kube2lbPort,
    Kube2lbServerNames,
    Kube2lbService,
    decide,
    listener_of,
    port_order,
    refusal,
    title_of,
)
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions, ServerName, external_domains
from pyconfd.presets import values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.addresses import LOAD_BALANCER_CLASS
from pyconfd.presets.cluster import NO_SERVICE, ReadService
from pyconfd.presets.endpoints import targets_of_port
from pyconfd.presets.listener_ownership import ListenerClaim, ListenerOwners
from pyconfd.presets.objects import Objects
from pyconfd.presets.policy import ClaimOptions, in_ranges
from pyconfd.presets.preset import (
    CLUSTER_VIEW,
    Preset,
    PresetCollections,
    PresetOptions,
    PresetResult,
)
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.views import EndpointView, NodeView, PortView, ServiceView

PORT_MODE = "kube2lb/port-mode"
BACKEND_TIMEOUT = "kube2lb/backend-timeout"

KINDS = frozenset({"NodePort", "LoadBalancer"})
MODES = frozenset({"http", "tcp"})
LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
LONGEST_RANGE = 65536

FUNCTIONS = frozenset({"ServerNames", "EscapeNode", "IntRange", "Add", "ToLower", "ToUpper"})
NAMES = FUNCTIONS | {"services", "ports", "by_port", "nodes", "domain"}


class ParsedKube2lbService(NamedTuple):
    """What a Service asks for, and what is refused of it; ``external`` are its domains as they are written."""

    kind: str
    external: str
    claims: tuple[Kube2lbClaim, ...]
    refused: tuple[Refusal, ...]


def _addresses_of(entry: Kube2lbService) -> list[str]:
    return [endpoint.address for endpoint in entry.endpoints]


def to_lower(text: object) -> str:
    """Return a text in lower case."""
    return str(text).lower()


def to_upper(text: object) -> str:
    """Return a text in upper case."""
    return str(text).upper()


def escape_node(name: object) -> str:
    """Return a name with ``_`` for ``.`` and ``:``."""
    return str(name).replace(".", "_").replace(":", "_")


def int_range(count: int, initial: int, step: int) -> list[int]:
    """Return ``count`` numbers from ``initial`` on, ``step`` apart.

    Raises:
        ValueError: More are asked for than any configuration needs.
    """
    if count > LONGEST_RANGE:
        raise ValueError(f"IntRange gives at most {LONGEST_RANGE} numbers, not {count}")
    return [initial + number * step for number in range(count)]


def add(*numbers: int) -> int:
    """Return the sum."""
    return sum(numbers)


class _Rules(NamedTuple):
    """All beside the Service itself by which it is read."""

    options: Kube2lbOptions
    claims: ClaimOptions
    host: HostFacts
    node_ports: bool


def is_claimed(service: Service) -> bool:
    """Return whether a Service is of these types, and not the preset loadbalancer's by its class."""
    return service.spec.type in KINDS and service.spec.load_balancer_class != LOAD_BALANCER_CLASS


def _parse(seen: ReadService, rules: _Rules) -> ParsedKube2lbService | None:
    """Return what a Service asks for; None for nothing."""
    service, view = seen.object, seen.view
    if view is None or service is None or not is_claimed(service):
        return None
    refused: list[Refusal] = []
    claims = tuple(_claims(service, view, rules, refused))
    external = (service.metadata.annotations or {}).get(EXTERNAL_DOMAINS, "")
    return ParsedKube2lbService(service.spec.type, external, claims, tuple(refused))


def _claims(service: Service, view: ServiceView, rules: _Rules, refused: list[Refusal]) -> Iterator[Kube2lbClaim]:
    ref = ObjectRef("Service", view.namespace, view.name, view.cluster)
    if not any(port.endpoints for port in view.ports):
        detail = "nothing stands behind this service: it is left out until it has endpoints"
        refused.append(refusal(ref, "endpoints", "", RefusalReason.INCOMPLETE, detail))
        return
    address, problem = _listen_address(service, ref, rules)
    problem = problem or _ephemeral_port(view, ref, rules.host)
    if problem:
        refused.append(problem)
        return
    notes = _annotations(service, view, ref, refused)
    for position, listen in _ports(view, address, notes, ref, refused=refused, rules=rules):
        port = view.ports[position]
        timeout = notes.timeouts.get(port.name, 0)
        entry = Kube2lbService(ref.name, ref.namespace, listen, (), (), port.node_port, notes.external, timeout)
        yield Kube2lbClaim(ref, service.metadata.creation_timestamp or NEVER, position, entry)


def _listen_address(service: Service, ref: ObjectRef, rules: _Rules) -> tuple[str, Refusal | None]:
    """Return the address that the service listens on, or why it cannot."""
    host, default = rules.host, rules.options.default_lb_ip
    asked = service.spec.load_balancer_ip if service.spec.type == "LoadBalancer" else None
    where = "spec.loadBalancerIP" if asked else "setting kube2lb.default_lb_ip"
    text = asked or default
    parsed = _address(text)
    refuse = partial(refusal, ref, where, text, RefusalReason.INVALID_VALUE)
    if parsed is None:
        return "", refuse("not an IP address; the whole service is left out")
    # "::ffff:192.0.2.7" is bound as 192.0.2.7, and must not count as another address.
    parsed = (parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None) or parsed
    is_default = parsed == _address(default)
    if asked and not is_default and (wrong := rules.claims.address(ref.namespace, parsed)):
        return "", refusal(ref, where, text, RefusalReason.NOT_ALLOWED, f"{wrong}; the whole service is left out")
    nonlocal_bind = host.nonlocal_bind_v4 if parsed.version == 4 else host.nonlocal_bind_v6
    if parsed.is_multicast or not (
        parsed.is_unspecified or nonlocal_bind or not host.known or str(parsed) in host.addresses or parsed.is_loopback
    ):
        sysctl = "net.ipv4.ip_nonlocal_bind" if parsed.version == 4 else "net.ipv6.ip_nonlocal_bind"
        detail = (
            "no interface of the balancer has this address, so it cannot listen there; the whole service is left out."
            f" Give it to an interface, ask for another one, or set {sysctl}=1"
        )
        return "", refuse(detail)
    return str(parsed), None


_address = lru_cache(maxsize=1024)(values.address)


def _ephemeral_port(view: ServiceView, ref: ObjectRef, host: HostFacts) -> Refusal | None:
    """Refuse a service with a port that outgoing connections of the balancer may occupy at any time."""
    first, last = host.ephemeral_ports
    port = next((port.port for port in view.ports if first <= port.port <= last), 0)
    if not port or not host.known:
        return None
    detail = (
        f"the balancer's own connections use the ports {first} to {last} (net.ipv4.ip_local_port_range), so listening"
        " there could fail at any reload; the whole service is left out. Choose another port"
    )
    return refusal(ref, "spec.ports", str(port), RefusalReason.INVALID_VALUE, detail)


def _ports(
    view: ServiceView, address: str, notes: "_Annotations", ref: ObjectRef, *, rules: _Rules, refused: list[Refusal]
) -> Iterator[tuple[int, Kube2lbPort]]:
    """Return the positions of the ports that can be served, each with where to listen for it."""
    seen: set[tuple[int, str]] = set()
    for position, port in enumerate(view.ports):
        if (port.port, port.protocol) in seen:
            detail = "the service has this port and protocol twice; the first one counts"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.INVALID_VALUE, detail))
            continue
        seen.add((port.port, port.protocol))
        if not (1 <= port.port <= 65535 and port.protocol):
            detail = "not a port from 1 to 65535 with protocol TCP, UDP or SCTP"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.INVALID_VALUE, detail))
            continue
        if rules.node_ports and not port.node_port:
            detail = "traffic goes to node ports (presets.backend_target) but this port has none"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.NO_NODE_PORT, detail))
        mode = notes.modes.get(port.name, rules.options.default_port_mode)
        wrong = _not_allowed(ref.namespace, port, mode, rules)
        if wrong:
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.NOT_ALLOWED, wrong))
            continue
        yield position, Kube2lbPort(address, port.port, mode, port.protocol.lower())


def _not_allowed(namespace: str, port: PortView, mode: str, rules: _Rules) -> str:
    """Return why a port may not be bound for this namespace, or ""."""
    if not in_ranges(port.port, rules.options.listen_ports):
        return "this port is not in the setting kube2lb.listen_ports"
    protocol = mode if port.protocol == "TCP" else port.protocol.lower()
    return rules.claims.port(namespace, port.port) or rules.claims.protocol(namespace, protocol)


def _endpoint(view: EndpointView) -> Kube2lbEndpoint:
    """Return an endpoint under its pod's name; one on a node port has that of the node."""
    return Kube2lbEndpoint(
        view.pod or view.address, view.address, view.port, view.state, view.pod, view.node, view.zone
    )


def _node(view: NodeView, types: Iterable[str]) -> Kube2lbNode:
    address = next((a for kind in types if (a := view.address(kind)) is not None), "")
    return Kube2lbNode(view.name, address, view.zone)


@dataclass(frozen=True, slots=True)
class _Annotations:
    external: tuple[ServerName, ...]
    modes: Mapping[str, str]
    timeouts: Mapping[str, int]


def _annotations(service: Service, view: ServiceView, ref: ObjectRef, refused: list[Refusal]) -> _Annotations:
    given = service.metadata.annotations or {}
    external, wrong = external_domains(given.get(EXTERNAL_DOMAINS, ""))
    for entry, detail in wrong:
        where = f"annotation {EXTERNAL_DOMAINS}"
        refused.append(refusal(ref, where, entry, RefusalReason.INVALID_VALUE, detail))
    ports = frozenset(port.name for port in view.ports if port.name)
    read_ = partial(_by_port, ports=ports, ref=ref, refused=refused)
    modes = read_(PORT_MODE, given.get(PORT_MODE, ""), parse=_mode)
    timeouts = read_(BACKEND_TIMEOUT, given.get(BACKEND_TIMEOUT, ""), parse=_timeout_ms)
    return _Annotations(external, modes, timeouts)


def _by_port(
    annotation: str,
    text: str,
    *,
    ports: frozenset[str],
    ref: ObjectRef,
    parse: Callable[[Any], Any],
    refused: list[Refusal],
) -> dict[str, Any]:
    """Read a JSON object from port names to values; what cannot be used is refused and left out."""
    refuse = partial(refusal, ref, f"annotation {annotation}")
    if not text.strip():
        return {}
    try:
        found = msgspec.json.decode(text, type=dict[str, Any] | None) or {}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        detail = f"not a JSON object from port names to values ({values.shortened(str(error))}); the defaults count"
        refused.append(refuse(text, RefusalReason.INVALID_VALUE, detail))
        return {}
    usable: dict[str, Any] = {}
    for name, value in sorted(found.items()):
        if name not in ports:
            detail = f"the service has no port of this name; it has: {', '.join(sorted(ports)) or 'unnamed ports only'}"
            refused.append(refuse(name, RefusalReason.NO_SUCH_PORT, detail))
            continue
        try:
            usable[name] = parse(value)
        except ValueError as error:
            refused.append(refuse(f"{name}: {value}", RefusalReason.INVALID_VALUE, f"{error}; the default counts"))
    return usable


def _mode(value: Any) -> str:
    mode = value.strip().lower() if isinstance(value, str) else ""
    if mode not in MODES:
        raise ValueError('the mode of a port is "http" or "tcp"')
    return mode


def _timeout_ms(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LONGEST_TIMEOUT_MS:
        raise ValueError(f"a timeout is a whole number of milliseconds from 0 to {LONGEST_TIMEOUT_MS}")
    return value


class Kube2lbCollections(PresetCollections):
    """Services of kube2lb's users: what each asks for, who gets it, and the entries of templates."""

    def __init__(self, objects: Objects) -> None:
        self._objects, graph = objects, objects.graph
        self._terms = Value[Kube2lbOptions](graph, "preset kube2lb")
        self._reserved = Source[Name, Reservation](graph, "names reserved in kube2lb")
        self.parsed = Derived(objects.services, self._parse, "claims of kube2lb by Service")
        self.claims = Spread(
            self.parsed, lambda _, parsed: ((each.position, each) for each in parsed.claims), "claims of kube2lb"
        )
        self.listeners = Derived(self.claims, _asked_listener, "listeners that kube2lb asks for")

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Record the settings of the preset, and the names that namespaces have."""
        del snapshot
        self._terms.set(options.of(Kube2lbOptions))
        self._reserved.follow(options.reservations_of(PresetName.KUBE2LB))

    def serve(self, owners: ListenerOwners) -> None:
        """Decide who gets a port and names, port number by port number: no other concerns the same socket."""
        self._owners = owners
        self.held = Derived(self.claims, self._held, "claims of kube2lb whose port another has")
        free = Derived(
            self.claims, lambda read, at, claim: claim if read(self.held, at) is None else None, "free ports"
        )
        by_number = Grouped(free, lambda _, claim: (claim.entry.port.port,), "claims by port number", rank=_place_of)
        self._reserved_by_port = Grouped(self._reserved, lambda name, _: (port_of(name.place),), "reserved by port")
        self.decided = Derived(by_number, self._decide, "ports of kube2lb")
        served = Spread(self.decided, lambda _, found: ((each.place, each) for each in found.served), "served ports")
        self.entries = Derived(served, self._entry, "entries of kube2lb")
        self.by_port = Spread(self.decided, lambda _, found: found.by_port.items(), "entries by port")
        self.bound = Spread(self.decided, lambda _, found: found.bound.items(), "listeners of kube2lb")
        self.names = Spread(self.decided, lambda _, found: found.owners.items(), "names of kube2lb")
        self.ready = Tally(self.entries, lambda _, entry: (((), len(entry.endpoints)),), "endpoints of kube2lb")
        self._asked = Published[Key, ParsedKube2lbService](self.parsed)
        self._decided = Published[int, DecidedPorts](self.decided)
        self._reservations = Published[Name, Reservation](self._reserved, rank=None)
        self._services = Published[Kube2lbPlace, Kube2lbService](self.entries, key=_own_key)
        self._by_port = Published[Kube2lbPort, tuple[Kube2lbPlace, ...]](self.by_port, key=_own_key, rank=port_order)
        self._serves = Published[str, Kube2lbService](self.entries, key=lambda at: at[1].title, rank=None)
        self._bound = Published[Listener, Owner](self.bound, key=_own_key, rank=None)
        self._names = Published[Name, Owner](self.names, key=_own_key, rank=None)
        self._counted = Published[Name, Owner](
            Joined[Any, Any](self.names, served, name="names and entries of kube2lb"),
            key=lambda at: at[1] if isinstance(at[1], Name) else Name(at[1].title, ""),
            rank=None,
            value=lambda each: each if isinstance(each, Owner) else each.owner.asking_for(each.entry),
        )
        self._refused = JoinedRefusals(self.parsed, self.held, self.decided)
        self._server_names = SameParts[Kube2lbServerNames]()

    def result(self) -> PresetResult:
        """Return the names of :data:`NAMES`; services in order of age, ports by address and number."""
        options, services = self._terms.items[()], self._services.mapping()
        types = self._objects.targets.items[()].node_address_types
        parts = self._decided.mapping(), options, self._objects.policy.items[()], self._reservations.mapping()
        names = self._server_names.made(parts, lambda: Kube2lbServerNames(*parts))
        by_port = self._by_port.mapping()
        given: dict[str, Any] = {
            # Copies: what a template does to a list must not reach the next translation.
            "services": list(services.values()),
            "ports": list(by_port),
            "by_port": [(port, [services[place] for place in places]) for port, places in by_port.items()],
            "nodes": [_node(node, types) for node in self._objects.nodes.items[()] if node.eligible],
            "domain": options.domain,
            "ServerNames": names.of,
            "EscapeNode": escape_node,
            "IntRange": int_range,
            "Add": add,
            "ToLower": to_lower,
            "ToUpper": to_upper,
        }
        return PresetResult(
            given,
            self._refused.all(),
            self.ready.items.get((), 0),
            partial(_explained, self._asked.mapping(), services, names, options.domain, self._objects.cluster),
            self._bound.mapping(),
            serves=self._serves.mapping(),
            addresses_of=_addresses_of,
            owners=self._counted.mapping(),
            reserves=self._names.mapping(),
        )

    def _parse(self, read: Read, _: Key, seen: ReadService) -> ParsedKube2lbService | None:
        options, objects = read.value(self._terms), self._objects
        node_ports = read.value(objects.targets).node_ports
        return _parse(seen, _Rules(options, read.value(objects.policy), read.value(objects.host), node_ports))

    def _held(self, read: Read, _: object, claim: Kube2lbClaim) -> Refusal | None:
        port = claim.entry.port
        if port.protocol != "tcp":
            return None
        holder = self._owners.holder(read, PresetName.KUBE2LB, listener_of(port))
        detail = f"{holder}; choose another port, or another address (spec.loadBalancerIP)"
        return refusal(claim.ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail) if holder else None

    def _decide(self, read: Read, number: int, asking: Sequence[tuple[object, Kube2lbClaim]]) -> DecidedPorts:
        reserved: Reservations = {
            name: each
            for protocol in dict.fromkeys(claim.entry.port.protocol for _, claim in asking)
            for name, each in read(self._reserved_by_port, (number, protocol)) or ()
        }
        options, rules = read.value(self._terms), read.value(self._objects.policy)
        return decide([claim for _, claim in asking], options, rules, reserved)

    def _entry(self, read: Read, _: object, claim: Kube2lbClaim) -> Kube2lbService:
        objects, entry = self._objects, claim.entry
        seen, targets = (
            read(objects.services, Key(entry.namespace, entry.name)) or NO_SERVICE,
            read.value(objects.targets),
        )
        nodes = read.value(objects.nodes) if targets.node_ports else ()
        port = seen.view.ports[claim.position] if seen.view is not None else None
        behind = targets_of_port(port, seen.object, nodes, targets) if port is not None else ()
        return msgspec.structs.replace(
            entry,
            endpoints=tuple(_endpoint(item) for item in behind if item.state == "ready"),
            draining=tuple(_endpoint(item) for item in behind if item.state == "draining"),
        )


def _asked_listener(_: Read, __: object, claim: Kube2lbClaim) -> ListenerClaim | None:
    port = claim.entry.port
    return ListenerClaim(listener_of(port), claim.owner) if port.protocol == "tcp" else None


def _place_of(_: object, claim: Kube2lbClaim) -> Kube2lbPlace:
    return claim.place


def _own_key(at: tuple[int, Any]) -> Any:
    return at[1]


class Kube2lbPreset(Preset):
    """Reads Services of the types in :data:`KINDS`."""

    name = PresetName.KUBE2LB
    gives = NAMES
    resources = CLUSTER_VIEW

    def collections(self, objects: Objects, addresses: AddressOwners) -> Kube2lbCollections:
        """Return what is made of Services."""
        del addresses
        return Kube2lbCollections(objects)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the types."""
        del options
        return "give the Service the type NodePort or LoadBalancer"


def _explained(
    asked: Mapping[Key, ParsedKube2lbService],
    services: Mapping[Kube2lbPlace, Kube2lbService],
    names_of: Kube2lbServerNames,
    domain: str,
    cluster: str,
) -> Iterator[Claim]:
    """Return a claim for each Service of these types."""
    backends: defaultdict[Key, list[ClaimedBackend]] = defaultdict(list)
    names_given: defaultdict[Key, list[str]] = defaultdict(list)
    for each in services.values():
        key, names = Key(each.namespace, each.name), [str(name) for name in names_of.of(each, domain)]
        names_given[key] += names
        udp = "" if each.port.protocol == "tcp" else f"HAProxy balances TCP, not {each.port.protocol.upper()}"
        title, endpoints = f"port {each.port.bind}", (*each.endpoints, *each.draining)
        backends[key].append(ClaimedBackend(title, str(each), title_of(each), endpoints, frozenset(names), udp))
    for key, parsed in asked.items():
        external = [values.comparable_name(text.strip()) for text in parsed.external.split(",") if text.strip()]
        claimed = tuple(dict.fromkeys([*names_given[key], *external]))
        because, ref = f"spec.type {parsed.kind}", ObjectRef("Service", *key, cluster)
        yield Claim(ref, PresetName.KUBE2LB, because, claimed, tuple(backends[key]), services=(key,))
