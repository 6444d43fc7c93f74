"""Preset ``kube2lb``: NodePort and LoadBalancer services of all namespaces, one entry for each service port.

Annotations of the Service: ``kube2lb/external-domains`` (see :mod:`pyconfd.presets.kube2lb_names`),
``kube2lb/port-mode`` and ``kube2lb/backend-timeout`` (JSON, from the name of a port to ``http`` or ``tcp``, and to
milliseconds). A value that cannot be used is refused and its default counts; the rest of the service goes on.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Any

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.host import HostFacts
from pyconfd.model.kubernetes import ObjectRef, Service
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import targets, values
from pyconfd.presets.cluster import Translated
from pyconfd.presets.kube2lb_names import NameTemplate, ServerName, external_domains, name_template
from pyconfd.presets.kube2lb_views import Kube2lbEndpoint, Kube2lbNode, Kube2lbPort, Kube2lbService
from pyconfd.presets.reading import PresetOptions, Reading
from pyconfd.presets.views import EndpointView, NodeView, PortView, ServiceView

EXTERNAL_DOMAINS = "kube2lb/external-domains"
PORT_MODE = "kube2lb/port-mode"
BACKEND_TIMEOUT = "kube2lb/backend-timeout"

KINDS = frozenset({"NodePort", "LoadBalancer"})
MODES = frozenset({"http", "tcp"})
LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
LONGEST_RANGE = 65536

FUNCTIONS = frozenset({"ServerNames", "EscapeNode", "IntRange", "Add", "ToLower", "ToUpper"})
NAMES = FUNCTIONS | {"services", "ports", "by_port", "nodes", "domain"}

_NEVER = "9999"
"""Sorts after every creation time."""

_Socket = tuple[str, int, str]
"""Address, port and protocol to listen on."""

_EntryKey = tuple[str, str, Kube2lbPort]


@dataclass(frozen=True, slots=True)
class _Claim:
    """One service with all of its ports that can be served."""

    ref: ObjectRef
    created: str
    entries: tuple[Kube2lbService, ...]

    @property
    def rank(self) -> tuple[str, str, str]:
        """The older service wins; the name decides between twins."""
        return self.created, self.ref.namespace, self.ref.name


def read(snapshot: Snapshot, cluster: Translated, options: PresetOptions, former: Reading | None = None) -> Reading:
    """Give the names of :data:`NAMES`; services sorted by namespace and name, ports by address and number."""
    refused: list[Refusal] = []
    claims = list(_claims(snapshot, cluster, options, refused))
    claims.sort(key=lambda claim: claim.rank)
    claims = _without_port_conflicts(claims, refused)
    names = _Names(claims, tuple(name_template(text) for text in options.kube2lb.server_name_templates))
    refused.extend(names.refusals(options.kube2lb.domain))
    services = [entry for claim in sorted(claims, key=lambda claim: claim.ref) for entry in claim.entries]
    by_port: dict[Kube2lbPort, list[Kube2lbService]] = defaultdict(list)
    for entry in services:
        by_port[entry.port].append(entry)
    ports = sorted(by_port, key=_port_order)
    given: dict[str, Any] = {
        "services": services,
        "ports": ports,
        "by_port": [(port, by_port[port]) for port in ports],
        "nodes": [_node(node, options) for node in cluster.view.nodes if node.eligible],
        "domain": options.kube2lb.domain,
        "ServerNames": names.of,
        "EscapeNode": escape_node,
        "IntRange": int_range,
        "Add": add,
        "ToLower": lambda text: str(text).lower(),
        "ToUpper": lambda text: str(text).upper(),
    }
    claimed = sum(len(entry.endpoints) for entry in services)
    bound = frozenset(port.port for port in ports if port.protocol == "tcp")
    return Reading(given, tuple(sorted(set(refused))), claimed, bound)


def escape_node(name: object) -> str:
    """Give a name with ``_`` for ``.`` and ``:``."""
    return str(name).replace(".", "_").replace(":", "_")


def int_range(count: int, initial: int, step: int) -> list[int]:
    """Give ``count`` numbers from ``initial`` on, ``step`` apart.

    Raises:
        ValueError: More are asked for than any configuration needs.
    """
    if count > LONGEST_RANGE:
        raise ValueError(f"IntRange gives at most {LONGEST_RANGE} numbers, not {count}")
    return [initial + number * step for number in range(count)]


def add(*numbers: int) -> int:
    """Give the sum."""
    return sum(numbers)


def _claims(
    snapshot: Snapshot, cluster: Translated, options: PresetOptions, refused: list[Refusal]
) -> Iterator[_Claim]:
    for key, view in cluster.by_key.items():
        service = snapshot.services.get(key)
        if service is None or service.spec.type not in KINDS:
            continue
        ref = ObjectRef("Service", key.namespace, key.name, snapshot.cluster)
        if not any(port.endpoints for port in view.ports):
            detail = "nothing stands behind this service: it is left out until it has endpoints"
            refused.append(_refusal(ref, "endpoints", "", RefusalReason.INCOMPLETE, detail))
            continue
        address, problem = _listen_address(service, ref, options, snapshot.host)
        problem = problem or _ephemeral_port(view, ref, snapshot.host)
        if problem:
            refused.append(problem)
            continue
        notes = _annotations(service, view, ref, refused)
        ports = tuple(_ports(view, address, notes, ref, refused=refused, options=options))
        entries = tuple(
            _entry(port, listen, notes, ref, targets.of_port(port, service, cluster.view.nodes, options))
            for port, listen in ports
        )
        yield _Claim(ref, service.metadata.creation_timestamp or _NEVER, entries)


def _listen_address(
    service: Service, ref: ObjectRef, options: PresetOptions, host: HostFacts
) -> tuple[str, Refusal | None]:
    """Give the address that the service listens on, or why it cannot."""
    asked = service.spec.load_balancer_ip if service.spec.type == "LoadBalancer" else None
    where = "spec.loadBalancerIP" if asked else "setting kube2lb.default_lb_ip"
    text = asked or options.kube2lb.default_lb_ip
    parsed = _address(text)
    refuse = partial(_refusal, ref, where, text, RefusalReason.INVALID_VALUE)
    if parsed is None:
        return "", refuse("not an IP address; the whole service is left out")
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
    return _refusal(ref, "spec.ports", str(port), RefusalReason.INVALID_VALUE, detail)


def _ports(
    view: ServiceView,
    address: str,
    notes: "_Annotations",
    ref: ObjectRef,
    *,
    options: PresetOptions,
    refused: list[Refusal],
) -> Iterator[tuple[PortView, Kube2lbPort]]:
    """Give the ports that can be served, each with where to listen for it."""
    for port in view.ports:
        if not (1 <= port.port <= 65535 and port.protocol):
            detail = "not a port from 1 to 65535 with protocol TCP, UDP or SCTP"
            refused.append(_refusal(ref, "spec.ports", str(port.port), RefusalReason.INVALID_VALUE, detail))
            continue
        if port.protocol == "TCP" and (port.port in options.contested_ports or port.port in options.given_ports):
            detail = "another program, or a preset that is listed first, listens there; choose another port"
            refused.append(_refusal(ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail))
            continue
        if options.node_ports and not port.node_port:
            detail = "traffic goes to node ports (presets.backend_target) but this port has none"
            refused.append(_refusal(ref, "spec.ports", str(port.port), RefusalReason.NO_NODE_PORT, detail))
        mode = notes.modes.get(port.name, options.kube2lb.default_port_mode)
        yield port, Kube2lbPort(address, port.port, mode, port.protocol.lower())


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
    """Give an endpoint under its pod's name; one on a node port has that of the node."""
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
        refused.append(_refusal(ref, where, entry, RefusalReason.INVALID_VALUE, detail))
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
    refuse = partial(_refusal, ref, f"annotation {annotation}")
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


def _without_port_conflicts(claims: list[_Claim], refused: list[Refusal]) -> list[_Claim]:
    """Leave out what asks for a taken socket; only ports of mode http over TCP can be shared, by host names."""
    owners: dict[_Socket, tuple[_Claim, Kube2lbPort]] = {}
    kept = []
    for claim in claims:
        entries = []
        for entry in claim.entries:
            port = entry.port
            owner, owned = owners.setdefault((port.ip, port.port, port.protocol), (claim, port))
            if owned is port or (owned == port and (port.mode, port.protocol) == ("http", "tcp")):
                entries.append(entry)
                continue
            why = "in another mode" if owned.mode != port.mode else f"in mode {port.mode}, which cannot be shared"
            detail = f"{owner.ref} listens on {owned.bind}/{port.protocol} already (the older one keeps it), {why}"
            refused.append(_refusal(claim.ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail))
        kept.append(_Claim(claim.ref, claim.created, tuple(entries)))
    return kept


@dataclass(frozen=True)
class _Names:
    """The server names of all services; a name that several want on one socket belongs to the oldest of them.

    Names that come from the templates are given out before those of annotations, so that no annotation takes the
    name that another service has by itself.
    """

    claims: list[_Claim]
    templates: tuple[NameTemplate, ...]
    _by_domain: dict[str, dict[_EntryKey, list[ServerName]]] = field(default_factory=dict)
    _refused: dict[str, list[Refusal]] = field(default_factory=dict)

    def of(self, service: Kube2lbService, domain: object) -> list[ServerName]:
        """Give the names by which clients ask for ``service``, those of the templates first.

        Raises:
            ValueError: ``service`` is not one of ``services``.
        """
        try:
            return list(self._names(str(domain)).get(_key(service), ()))
        except (AttributeError, TypeError):
            raise ValueError(f"ServerNames takes one of services, not {values.shown(str(service))}") from None

    def refusals(self, domain: str) -> list[Refusal]:
        """Give the names that went to somebody else, or are none."""
        self._names(domain)
        return self._refused[domain]

    def _names(self, domain: str) -> dict[_EntryKey, list[ServerName]]:
        if domain not in self._by_domain:
            self._by_domain[domain], self._refused[domain] = self._given_out(domain)
        return self._by_domain[domain]

    def _given_out(self, domain: str) -> tuple[dict[_EntryKey, list[ServerName]], list[Refusal]]:
        owners: dict[tuple[_Socket, ServerName], _Claim] = {}
        names: dict[_EntryKey, list[ServerName]] = defaultdict(list)
        refused: list[Refusal] = []

        def give(claim: _Claim, entry: Kube2lbService, where: str, wanted: Iterable[ServerName]) -> None:
            port = entry.port
            for name in wanted:
                owner = owners.setdefault(((port.ip, port.port, port.protocol), name), claim)
                if owner is claim or port.mode != "http":
                    if name not in names[_key(entry)]:
                        names[_key(entry)].append(name)
                    continue
                detail = f"{owner.ref} has this name on {port.bind} already; choose another one for one of them"
                refused.append(_refusal(claim.ref, where, name, RefusalReason.NAME_TAKEN, detail))

        for claim in self.claims:
            for entry in claim.entries:
                give(claim, entry, "server name", self._from_templates(claim, entry, domain, refused))
        for claim in self.claims:
            for entry in claim.entries:
                give(claim, entry, f"annotation {EXTERNAL_DOMAINS}", map(ServerName, entry.external))
        return names, refused

    def _from_templates(
        self, claim: _Claim, entry: Kube2lbService, domain: str, refused: list[Refusal]
    ) -> Iterator[ServerName]:
        for template in self.templates:
            try:
                yield template.name(entry, domain)
            except ValueError as error:
                refused.append(
                    _refusal(claim.ref, "server name", template.text, RefusalReason.INVALID_VALUE, str(error))
                )


def _key(entry: Kube2lbService) -> _EntryKey:
    return entry.namespace, entry.name, entry.port


def _port_order(port: Kube2lbPort) -> tuple[int, bytes, int, str, str]:
    address = ip_address(port.ip)
    return address.version, address.packed, port.port, port.protocol, port.mode


def _refusal(ref: ObjectRef, field_: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    return Refusal(ref, field_, values.shown(value), reason, detail)
