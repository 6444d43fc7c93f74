"""Routes at listeners: which listeners of its parents a route attaches to, for which hosts, and why to no other."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.gateway_api import GROUP, GatewayListener, NamespacesFrom, ParentReference
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.records import LabelRequirement, LabelSelector
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.presets import values
from pyconfd.presets.gateway.listeners import MOST_LABELS, ROUTE_KINDS, ListenerDecision, Protocol, covers
from pyconfd.presets.gateway.status import Fault
from pyconfd.presets.host_ownership import wildcards_above

Labels = Mapping[str, str]

PARENTS: Mapping[str, Resource] = MappingProxyType(
    {KIND_OF[each]: each for each in (Resource.GATEWAYS, Resource.LISTENERSETS)}
)
"""What routes attach to."""


class HostAt(NamedTuple):
    """One host of a route at one listener: what both have in common ("" is any).

    ``asked_for`` is the route's own host: the more of it a request matches, the sooner the route's rules come.
    """

    host: str
    asked_for: str


class Attachment(NamedTuple):
    """A route at one listener of a Gateway, by the listener's id; ``hosts`` are () where the protocol has none.

    ``is_programmed``: the listener can serve.
    """

    gateway: Key
    listener: str
    port: int
    hosts: tuple[HostAt, ...] = ()
    is_programmed: bool = True


class RouteParent(NamedTuple):
    """A Gateway, or a ListenerSet of it: what a route can name."""

    gateway: Key
    listeners: Sequence[ListenerDecision]


class ParentDecision(NamedTuple):
    """What became of one parentRef of a route; ``fault`` is None where at least one listener accepted the route."""

    parent: ParentReference
    gateway: Key
    attachments: tuple[Attachment, ...]
    fault: Fault | None = None


class RouteHosts(NamedTuple):
    """The hosts of a route as they are compared, and what is wrong with the others."""

    names: tuple[str, ...]
    faults: tuple[Fault, ...] = ()


class RouteHead(NamedTuple):
    """What of a route decides about its parents; ``hosts`` None is a kind of route without."""

    kind: str
    namespace: str
    parents: tuple[ParentReference, ...]
    hosts: RouteHosts | None


def selects(selector: LabelSelector | None, labels: Labels) -> bool:
    """Return whether an object with these labels is meant; None selects nothing, as in the API."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        _meets(requirement, labels) for requirement in selector.match_expressions
    )


def _meets(requirement: LabelRequirement, labels: Labels) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def valid_hosts(hostnames: Iterable[str]) -> RouteHosts:
    """Parse the hosts of a route."""
    hosts: dict[str, None] = {}
    faults = []
    for hostname in hostnames:
        try:
            hosts[_route_host(hostname)] = None
        except ValueError as error:
            faults.append(Fault("UnsupportedValue", "hostnames", hostname, str(error)))
    return RouteHosts(tuple(hosts), tuple(faults))


def _route_host(hostname: str) -> str:
    host = values.host_name(hostname)
    if host.startswith("*.") and host.count(".") > MOST_LABELS:
        raise ValueError(f"a wildcard has at most {MOST_LABELS} labels behind the asterisk: name its hosts")
    return host


def in_common(listener: str, route: str) -> str | None:
    """Return the hosts of both, None where there are none; "" is any host."""
    if covers(listener, route):
        return route
    return listener if covers(route, listener) else None


def hosts_at(listener: str, hostnames: Sequence[str]) -> tuple[HostAt, ...]:
    """Return the hosts of a route at a listener; without ``hostnames`` it is for all of them."""
    if not hostnames:
        return (HostAt(listener, ""),)
    found = []
    for each in hostnames:
        host = in_common(listener, each)
        if host is not None:
            found.append(HostAt(host, each))
    return tuple(found)


def named_parent(route: Key, parent: ParentReference) -> ObjectKey | None:
    """Return which Gateway or ListenerSet a parentRef of a route names, None for another kind."""
    resource = PARENTS.get(parent.kind) if parent.group == GROUP else None
    if resource is None:
        return None
    return ObjectKey(resource, Key(route.namespace if parent.namespace is None else parent.namespace, parent.name))


def attach(
    route: RouteHead,
    parent_of: Callable[[ObjectKey], RouteParent | None],
    labels_of: Callable[[str], Labels],
) -> tuple[ParentDecision, ...]:
    """Return what becomes of the parentRefs that name Gateways or ListenerSets, without those of other controllers."""
    found = []
    for parent in route.parents:
        id_ = named_parent(Key(route.namespace, ""), parent)
        if id_ is not None and (known := parent_of(id_)) is not None:
            found.append(_attach_to(route, parent, id_, known, labels_of))
    return tuple(found)


def _attach_to(
    route: RouteHead,
    parent: ParentReference,
    id_: ObjectKey,
    known: RouteParent,
    labels_of: Callable[[str], Labels],
) -> ParentDecision:
    gateway, key = known.gateway, id_.key
    shown = f"{KIND_OF[id_.resource]} {key.namespace}/{key.name}"
    meant = [
        each
        for each in known.listeners
        if parent.section_name in {None, "", each.name} and parent.port in {None, each.port}
    ]
    if not meant:
        where = " ".join(filter(None, (parent.section_name, f"port {parent.port}" if parent.port is not None else "")))
        detail = f"the {shown} has no such listener" + ("" if known.listeners else ": see its conditions")
        return ParentDecision(parent, gateway, (), Fault("NoMatchingParent", "parentRefs", where, detail))
    allowing = [
        each
        for each in meant
        if route.kind in each.kinds and is_from(each.namespaces, key.namespace, route.namespace, labels_of)
    ]
    if not allowing:
        detail = f"no listener of the {shown} allows a {route.kind} of this namespace"
        return ParentDecision(
            parent, gateway, (), Fault("NotAllowedByListeners", "parentRefs", parent.section_name or key.name, detail)
        )
    attachments = []
    hosts, faults = route.hosts or RouteHosts(())
    for each in allowing:
        if route.hosts is None or each.protocol == Protocol.TCP:
            attachments.append(Attachment(gateway, each.id, each.port, (), each.is_programmed))
        elif found := () if faults and not hosts else hosts_at(each.hostname, hosts):
            attachments.append(Attachment(gateway, each.id, each.port, found, each.is_programmed))
    if attachments:
        return ParentDecision(parent, gateway, tuple(attachments))
    if faults:
        return ParentDecision(parent, gateway, (), faults[0])
    detail = f"no listener of the {shown} has one of these hosts"
    return ParentDecision(
        parent, gateway, (), Fault("NoMatchingListenerHostname", "hostnames", ", ".join(hosts), detail)
    )


def hosts_asked_for(
    route: RouteHead,
    parent: ParentReference,
    namespace: str,
    listeners: Iterable[GatewayListener],
    labels_of: Callable[[str], Labels],
) -> Iterator[tuple[int, str]]:
    """Return the ports and hosts that a listener of somebody else would take from a route at a parent.

    These are the hosts that the route names, and the wildcards above them, as far as they say more than the listener
    that lets the route in. Whether that one can be served makes no difference.
    """
    for each in listeners:
        if (
            parent.section_name in {None, "", each.name}
            and parent.port in {None, each.port}
            and route.kind in ROUTE_KINDS.get(each.protocol, ())
            and is_from(each.allowed_routes.namespaces, namespace, route.namespace, labels_of)
        ):
            listener = (each.hostname or "").lower()
            for host in route.hosts.names if route.hosts is not None else ():
                for wanted in (host, *(above for above in wildcards_above(host) if above.count(".") <= MOST_LABELS)):
                    if wanted != listener and covers(listener, wanted):
                        yield each.port, wanted


def is_from(wanted: NamespacesFrom, parent: str, child: str, labels_of: Callable[[str], Labels]) -> bool:
    """Return whether objects of namespace ``child`` may attach to one of namespace ``parent``."""
    match wanted.where:
        case "All":
            return True
        case "Same":
            return parent == child
        case "Selector":
            return selects(wanted.selector, labels_of(child))
    return False


def isolated(host: str, listener_of: Callable[[str], str | None]) -> str:
    """Return which listener requests for ``host`` belong to: the one with the most specific host, "" for none.

    ``listener_of`` returns the one that has exactly a host ("" is any).
    """
    return next(filter(None, map(listener_of, (host, *wildcards_above(host), ""))), "")


def specificity(host: str) -> tuple[int, int]:
    """Return what grows with how few hosts are meant: an exact one, then the longest wildcard, then any."""
    if not host:
        return 0, 0
    return (1, len(host)) if host.startswith("*.") else (2, len(host))
