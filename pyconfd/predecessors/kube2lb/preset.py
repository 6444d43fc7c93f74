"""Preset ``kube2lb``: NodePort and LoadBalancer services of all namespaces, one entry for each service port.

Annotations of the Service: ``kube2lb/external-domains`` (see :mod:`pyconfd.predecessors.kube2lb.names`),
``kube2lb/port-mode`` and ``kube2lb/backend-timeout`` (JSON, from the name of a port to ``http`` or ``tcp``, and to
milliseconds). A value that cannot be used is refused and its default counts; the rest of the service goes on.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from ipaddress import IPv6Address
from typing import Any

import msgspec

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Service
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import NEVER
from pyconfd.model.snapshot import HostFacts, Key
from pyconfd.model.versioned import VersionedDict, with_values
from pyconfd.predecessors.kube2lb.claims import (
    EXTERNAL_DOMAINS,
    DecidedPorts,
    Kube2lbClaim,
    Kube2lbEndpoint,
    Kube2lbNode,
    Kube2lbPort,
    Kube2lbService,
    decide,
    refusal,
    with_claims,
)
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions, ServerName, external_domains
from pyconfd.presets import values
from pyconfd.presets.addresses import LOAD_BALANCER_CLASS
from pyconfd.presets.cluster import Cluster, nothing_read
from pyconfd.presets.conflicts import NO_REFUSALS, Claims, ParsedClaims, SortedRefusals, reuse_equal
from pyconfd.presets.endpoints import targets_of_port
from pyconfd.presets.policy import in_ranges
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, PresetResult, Translation
from pyconfd.presets.views import EndpointView, NodeView, PortView, ServiceView

PORT_MODE = "kube2lb/port-mode"
BACKEND_TIMEOUT = "kube2lb/backend-timeout"

KINDS = frozenset({"NodePort", "LoadBalancer"})
MODES = frozenset({"http", "tcp"})
LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
LONGEST_RANGE = 65536

FUNCTIONS = frozenset({"ServerNames", "EscapeNode", "IntRange", "Add", "ToLower", "ToUpper"})
NAMES = FUNCTIONS | {"services", "ports", "by_port", "nodes", "domain"}


@dataclass(frozen=True, slots=True)
class _Kube2lbInputs:
    """All beside the service itself that a claim is read with."""

    cluster: str
    options: PresetOptions
    host: tuple[object, ...]
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True)
class _Kube2lbFormer:
    """What a result was made of, and its parts."""

    inputs: _Kube2lbInputs
    cluster: Cluster
    claims: Claims[Kube2lbClaim]
    decided: DecidedPorts | None
    serves: Mapping[str, Kube2lbService] = field(default_factory=dict)
    refused: SortedRefusals = NO_REFUSALS


def _serves(
    memo: _Kube2lbFormer, claims: Claims[Kube2lbClaim], decided: DecidedPorts, changed: Collection[Key]
) -> Mapping[str, Kube2lbService]:
    """Return the ports that are served by their names; where all ask for the same, those that changed are replaced."""
    if memo.decided is None or claims.places is not memo.claims.places:
        return VersionedDict({name_of(entry): entry for entry in decided.services})
    entries = (entry for _, claim in claims.replaced(memo.claims, changed) for entry in claim.entries)
    named = ((name_of(entry), entry) for entry in entries)
    return with_values(
        memo.serves, {name: e for name, e in named if name in memo.serves and memo.serves[name] is not e}
    )


def name_of(entry: Kube2lbService) -> str:
    """Return the name under which a port of a service is counted."""
    return f"{entry.namespace}/{entry.name}:{entry.port.port}/{entry.port.protocol}"


def _addresses_of(entry: Kube2lbService) -> list[str]:
    return [endpoint.address for endpoint in entry.endpoints]


def _reads_alike(old: _Kube2lbInputs, new: _Kube2lbInputs) -> bool:
    same_nodes = old.nodes is new.nodes or not new.options.node_ports
    return same_nodes and (old.cluster, old.options, old.host) == (new.cluster, new.options, new.host)


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


def _parse(
    key: Key, cluster: Cluster, options: PresetOptions, former: tuple[Kube2lbClaim, ...]
) -> ParsedClaims[Kube2lbClaim] | None:
    """Return what a service asks for; None for nothing."""
    view, service = cluster.service(key), cluster.snapshot.services.get(key)
    if view is None or service is None or service.spec.type not in KINDS:
        return None
    if service.spec.load_balancer_class == LOAD_BALANCER_CLASS:
        return None  # it is the preset loadbalancer's
    refused: list[Refusal] = []
    claim = _claim(service, view, cluster, options=options, refused=refused)
    if claim is None:
        return ParsedClaims((), tuple(refused))
    if former:
        claim = replace(claim, entries=reuse_equal(former[0].entries, claim.entries))
    return ParsedClaims((claim,), tuple(refused))


def _claim(
    service: Service,
    view: ServiceView,
    cluster: Cluster,
    *,
    options: PresetOptions,
    refused: list[Refusal],
) -> Kube2lbClaim | None:
    ref = ObjectRef("Service", view.namespace, view.name, view.cluster)
    if not any(port.endpoints for port in view.ports):
        detail = "nothing stands behind this service: it is left out until it has endpoints"
        refused.append(refusal(ref, "endpoints", "", RefusalReason.INCOMPLETE, detail))
        return None
    address, problem = _listen_address(service, ref, options, cluster.snapshot.host)
    problem = problem or _ephemeral_port(view, ref, cluster.snapshot.host)
    if problem:
        refused.append(problem)
        return None
    notes = _annotations(service, view, ref, refused)
    ports = tuple(_ports(view, address, notes, ref, refused=refused, options=options))
    entries = tuple(
        _entry(port, listen, notes, ref, targets_of_port(port, service, cluster.view.nodes, options))
        for port, listen in ports
    )
    return Kube2lbClaim(ref, service.metadata.creation_timestamp or NEVER, entries)


def _listen_address(
    service: Service, ref: ObjectRef, options: PresetOptions, host: HostFacts
) -> tuple[str, Refusal | None]:
    """Return the address that the service listens on, or why it cannot."""
    asked = service.spec.load_balancer_ip if service.spec.type == "LoadBalancer" else None
    where = "spec.loadBalancerIP" if asked else "setting kube2lb.default_lb_ip"
    text = asked or options.of(Kube2lbOptions).default_lb_ip
    parsed = _address(text)
    refuse = partial(refusal, ref, where, text, RefusalReason.INVALID_VALUE)
    if parsed is None:
        return "", refuse("not an IP address; the whole service is left out")
    # "::ffff:192.0.2.7" is bound as 192.0.2.7, and must not count as another address.
    parsed = (parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None) or parsed
    is_default = parsed == _address(options.of(Kube2lbOptions).default_lb_ip)
    if asked and not is_default and (wrong := options.claims.address(ref.namespace, parsed)):
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
    view: ServiceView,
    address: str,
    notes: "_Annotations",
    ref: ObjectRef,
    *,
    options: PresetOptions,
    refused: list[Refusal],
) -> Iterator[tuple[PortView, Kube2lbPort]]:
    """Return the ports that can be served, each with where to listen for it."""
    seen: set[tuple[int, str]] = set()
    for port in view.ports:
        if (port.port, port.protocol) in seen:
            detail = "the service has this port and protocol twice; the first one counts"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.INVALID_VALUE, detail))
            continue
        seen.add((port.port, port.protocol))
        if not (1 <= port.port <= 65535 and port.protocol):
            detail = "not a port from 1 to 65535 with protocol TCP, UDP or SCTP"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.INVALID_VALUE, detail))
            continue
        holder = options.holder(Listener.at(address, port.port)) if port.protocol == "TCP" else ""
        if holder:
            detail = f"{holder}; choose another port, or another address (spec.loadBalancerIP)"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail))
            continue
        if options.node_ports and not port.node_port:
            detail = "traffic goes to node ports (presets.backend_target) but this port has none"
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.NO_NODE_PORT, detail))
        mode = notes.modes.get(port.name, options.of(Kube2lbOptions).default_port_mode)
        wrong = _not_allowed(ref.namespace, port, mode, options)
        if wrong:
            refused.append(refusal(ref, "spec.ports", str(port.port), RefusalReason.NOT_ALLOWED, wrong))
            continue
        yield port, Kube2lbPort(address, port.port, mode, port.protocol.lower())


def _not_allowed(namespace: str, port: PortView, mode: str, options: PresetOptions) -> str:
    """Return why a port may not be bound for this namespace, or ""."""
    if not in_ranges(port.port, options.of(Kube2lbOptions).listen_ports):
        return "this port is not in the setting kube2lb.listen_ports"
    protocol = mode if port.protocol == "TCP" else port.protocol.lower()
    return options.claims.port(namespace, port.port) or options.claims.protocol(namespace, protocol)


def _entry(
    port: PortView, listen: Kube2lbPort, notes: "_Annotations", ref: ObjectRef, endpoints: tuple[EndpointView, ...]
) -> Kube2lbService:
    return Kube2lbService(
        name=ref.name,
        namespace=ref.namespace,
        port=listen,
        endpoints=tuple(_endpoint(item) for item in endpoints if item.state == "ready"),
        draining=tuple(_endpoint(item) for item in endpoints if item.state == "draining"),
        node_port=port.node_port,
        external=notes.external,
        timeout=notes.timeouts.get(port.name, 0),
    )


def _endpoint(view: EndpointView) -> Kube2lbEndpoint:
    """Return an endpoint under its pod's name; one on a node port has that of the node."""
    return Kube2lbEndpoint(
        view.pod or view.address, view.address, view.port, view.state, view.pod, view.node, view.zone
    )


def _node(view: NodeView, options: PresetOptions) -> Kube2lbNode:
    address = next((a for kind in options.node_address_types if (a := view.address(kind)) is not None), "")
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
        detail = f"not a JSON object from port names to values ({values.shown(str(error))}); the defaults count"
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


class Kube2lbPreset(Preset):
    """Reads Services of the types in :data:`KINDS`."""

    name = PresetName.KUBE2LB
    gives = NAMES
    resources = CLUSTER_VIEW

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return the names of :data:`NAMES`; services in order of age, ports by address and number."""
        host = cluster.snapshot.host
        facts = (host.addresses, host.ephemeral_ports, host.nonlocal_bind_v4, host.nonlocal_bind_v6)
        inputs = _Kube2lbInputs(cluster.view.name, options.without_reservations(), facts, cluster.view.nodes)
        memo = former.memo if former else None
        if not isinstance(memo, _Kube2lbFormer) or not _reads_alike(memo.inputs, inputs):
            memo = _Kube2lbFormer(inputs, nothing_read(cluster.view.name), Claims({}), None)
        changed = cluster.changed_since(memo.cluster)
        claims = memo.claims.updated(changed, lambda key: _parse(key, cluster, options, memo.claims.of(key)))
        known = memo.decided
        if known and claims.places is memo.claims.places and known.reservations == options.reservations_of("kube2lb"):
            decided = with_claims(known, claims.replaced(memo.claims, changed))
        else:
            decided = decide(list(claims.in_order()), options)
        refused = memo.refused.of(claims.refused, decided.refused)
        ports = [port for port, _ in decided.by_port]
        given: dict[str, Any] = {
            # Copies: what a template does to a list must not reach the next translation.
            "services": list(decided.services),
            "ports": ports,
            "by_port": [(port, list(entries)) for port, entries in decided.by_port],
            "nodes": [_node(node, options) for node in cluster.view.nodes if node.eligible],
            "domain": options.of(Kube2lbOptions).domain,
            "ServerNames": decided.names.of,
            "EscapeNode": escape_node,
            "IntRange": int_range,
            "Add": add,
            "ToLower": to_lower,
            "ToUpper": to_upper,
        }
        serves = _serves(memo, claims, decided, changed)
        kept = _Kube2lbFormer(inputs, cluster, claims, decided, serves, refused)
        claimed = sum([len(entry.endpoints) for entry in decided.services])
        return PresetResult(
            given,
            refused.refused,
            claimed,
            decided.bound,
            serves=serves,
            addresses_of=_addresses_of,
            owners=decided.owners,
            memo=kept,
        )

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each Service of these types."""
        given, domain = translation.given, translation.options.of(Kube2lbOptions).domain
        names_of = given.get("ServerNames")
        backends: defaultdict[Key, list[ClaimedBackend]] = defaultdict(list)
        names_given: defaultdict[Key, list[str]] = defaultdict(list)
        for each in given.get("services", ()):
            key = Key(each.namespace, each.name)
            names = [str(name) for name in names_of(each, domain)] if names_of else []
            names_given[key] += names
            udp = "" if each.port.protocol == "tcp" else f"HAProxy balances TCP, not {each.port.protocol.upper()}"
            title, endpoints = f"port {each.port.bind}", (*each.endpoints, *each.draining)
            backends[key].append(ClaimedBackend(title, str(each), name_of(each), endpoints, frozenset(names), udp))
        for key, service in sorted(translation.snapshot.services.items()):
            if service.spec.type not in KINDS:
                continue
            wanted = (service.metadata.annotations or {}).get(EXTERNAL_DOMAINS, "").split(",")
            external = [values.comparable_name(text.strip()) for text in wanted if text.strip()]
            claimed = tuple(dict.fromkeys([*names_given[key], *external]))
            because, ref = f"spec.type {service.spec.type}", translation.ref("Service", key)
            yield Claim(ref, self.name, because, claimed, tuple(backends[key]), translation.endpoints_of(key))

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the types."""
        del options
        return "give the Service the type NodePort or LoadBalancer"
