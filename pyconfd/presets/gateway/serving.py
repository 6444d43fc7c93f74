"""From the objects of the Gateway API to frontends, backends, conditions and statuses, as collections.

Read in this order: the listeners of a Gateway and of its ListenerSets are decided together, and ``policies`` by
themselves; a route is asked, placed at listeners and served (:mod:`pyconfd.presets.gateway.routes`); the table of paths
(:mod:`pyconfd.presets.routing.table`) joins the rules of all; each port of a Gateway is a frontend
(:mod:`pyconfd.presets.gateway.ports`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Collection, Derived, Grouped, Joined, Read, Spread, Tally
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.gateway_api import (
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    GatewayListener,
    ListenerSet,
    ReferenceGrant,
)
from pyconfd.model.gateway_service import GatewayService
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.reservation import Owner
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets import values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.addresses import is_of_gateway
from pyconfd.presets.certificates import certificate_for, is_named, notes_on, presented
from pyconfd.presets.gateway.attachment import (
    Labels,
    RouteHead,
    RouteParent,
    hosts_asked_for,
    isolated,
    named_parent,
)
from pyconfd.presets.gateway.authorities import ca_bundle
from pyconfd.presets.gateway.conditions import choices_of
from pyconfd.presets.gateway.frontends import Choice, GatewayFrontend
from pyconfd.presets.gateway.gateways import (
    GatewayDecision,
    class_fault,
    class_status,
    decide_gateway,
    gateway_status,
    is_mine,
    is_misspelled,
    mistaken_class,
)
from pyconfd.presets.gateway.grants import Grants
from pyconfd.presets.gateway.infrastructure import (
    service_key,
    service_of,
    service_status,
)
from pyconfd.presets.gateway.listener_sets import (
    AskedListenerSet,
    ListenerSetDecision,
    asked_listener_set,
    decide_listener_set,
    listener_set_status,
    parent_of,
)
from pyconfd.presets.gateway.listeners import (
    ListenerDecision,
    ListenerHostRights,
    Referents,
    ResolvedCertificate,
    decide_listeners,
    owner_of,
)
from pyconfd.presets.gateway.policies import (
    PolicyDecision,
    PolicyPort,
    TargetPolicy,
    ValidatedPolicy,
    decide_policy,
    missing,
    validate,
)
from pyconfd.presets.gateway.ports import (
    Port,
    StreamAt,
    VirtualHostChoices,
    frontend,
    hosts_of_accepted,
    hosts_of_listeners,
    ports_of,
    virtual_host_at,
    virtual_host_of,
)
from pyconfd.presets.gateway.routes import (
    AskedRoute,
    GatewayPorts,
    PlacedRoute,
    RouteInputs,
    ServedRoute,
    asked,
    is_wildcard,
    place,
    serve,
    virtual_host_id,
)
from pyconfd.presets.gateway.status import CONTROLLER, ancestor_status, object_status
from pyconfd.presets.gateway.work import RouteWork, beyond_budget
from pyconfd.presets.host_ownership import wildcards_above
from pyconfd.presets.listener_ownership import ListenerClaim, ListenerOwners
from pyconfd.presets.objects import ROUTES, Objects, Route, class_of_gateway
from pyconfd.presets.policies.pages import ErrorPages, fault_of_pages
from pyconfd.presets.policies.said import OverriddenWord, PolicyTarget, Words, together
from pyconfd.presets.preset import PolicyUse
from pyconfd.presets.routing.rules import RuleBackend
from pyconfd.presets.routing.table import ConditionalRoutingTable
from pyconfd.presets.routing.types import RouteRule, VirtualHost
from pyconfd.presets.rule_backends import RuleBackends, RuleSection

_MOST_ANCESTORS = 16
"""Source: the CRD of BackendTLSPolicy."""


class Splits(NamedTuple):
    """What divides the requests of a route among several backends, for all frontends that lead to it."""

    frontends: frozenset[str]
    choices: tuple[Choice, ...]


class References(NamedTuple):
    """The Services that a route refers to, and the Gateways that lead to it."""

    services: frozenset[Key]
    gateways: frozenset[Key]


class SaidAtGateway(NamedTuple):
    """The words that policies say for the listeners of a Gateway, by their ids, and those that do not count there."""

    words: Mapping[str, Words]
    overridden: tuple[OverriddenWord, ...]


class AskedGateway(NamedTuple):
    """A Gateway of a class of this controller, and where it asks to listen: its ports at the addresses that it has.

    A port that only ListenerSets ask for is claimed by the first of them.
    """

    ref: ObjectRef
    class_name: str
    listeners: tuple[ListenerClaim, ...]


_HostAtParent = tuple[Key, int, str, ObjectKey]
"""A Gateway, a port, a host, and by which parent a route is there."""


class ListenerSets:
    """The ListenerSets of Gateways of this controller: all by themselves, and by Gateway those that it allows.

    The first one of a Gateway has what several ask for.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.routes = Derived(objects.routes, self._ask_route, "claims of routes")
        self.asked = Derived(objects.listener_sets, self._ask, "claims of ListenerSets")
        allowed = Derived(self.asked, lambda _, __, each: each if each.fault is None else None, "allowed ListenerSets")
        self.of_gateways = Grouped(
            allowed, lambda _, each: (each.gateway,), "ListenerSets by Gateway", rank=lambda _, each: each.owner.rank
        )
        self._is_shared = Derived(self.of_gateways, lambda _, __, ___: True, "Gateways with ListenerSets")
        wanted = Derived(self.routes, self._hosts_of, "hosts that routes ask for at parents")
        by_host = Grouped(
            Spread(wanted, lambda _, found: found.items(), "hosts of routes at parents"),
            lambda at, _: (at[1][:3],),
            "routes by host",
            rank=lambda at, owner: (owner.rank, at),
        )
        self._by_host = Derived(by_host, _oldest_of_namespaces, "the oldest routes of hosts")

    def first_asking(self, read: Read, gateway: Key, owner: Owner, port: int, host: str) -> Owner | None:
        """Return whose route of another namespace asked for a host before a ListenerSet did.

        A route at the set itself has it by consent.
        """
        mine = ObjectKey(Resource.LISTENERSETS, Key(owner.namespace, owner.name))
        for parent, first in read(self._by_host, (gateway, port, host)) or ():
            if parent != mine and first.namespace != owner.namespace and first.rank < owner.rank:
                return first
        return None

    def _ask_route(self, read: Read, id_: ObjectKey, route: Route) -> AskedRoute:
        return asked(id_, route, self._objects.cluster, self._objects.policy_sources(read))

    def _hosts_of(self, read: Read, id_: ObjectKey, route: AskedRoute) -> Mapping[_HostAtParent, Owner] | None:
        if route.hosts is None or not route.hosts.names:
            return None
        found: dict[_HostAtParent, Owner] = {}
        head = RouteHead(route.ref.kind, route.ref.namespace, (), route.hosts)
        for parent in route.parent_refs:
            named = named_parent(id_.key, parent)
            known = self._raw_parent(read, named) if named is not None else None
            if named is None or known is None or read(self._is_shared, known[0]) is None:
                continue
            labels, policy = partial(labels_of, read, self._objects), read.value(self._objects.policy)
            for port, host in hosts_asked_for(head, parent, named.key.namespace, known[1], labels):
                if not policy.domain(route.ref.namespace, host):
                    found[known[0], port, host, named] = route.owner
        return found or None

    def _raw_parent(self, read: Read, named: ObjectKey) -> tuple[Key, tuple[GatewayListener, ...]] | None:
        """Return the Gateway that a route names itself or by a ListenerSet, and the listeners there."""
        if named.resource is Resource.GATEWAYS:
            gateway = read(self._objects.gateways, named)
            return (named.key, gateway.spec.listeners) if gateway is not None else None
        added = read(self.asked, named)
        return (added.gateway, added.listeners) if added is not None and added.fault is None else None

    def _ask(self, read: Read, id_: ObjectKey, listener_set: ListenerSet) -> AskedListenerSet | None:
        objects, parent = self._objects, parent_of(id_.key, listener_set)
        gateway = read(objects.gateways, ObjectKey(Resource.GATEWAYS, parent)) if parent is not None else None
        if gateway is None:
            return None
        found = read(objects.gateway_classes, class_of_gateway(gateway))
        if found is None or not is_mine(found):
            return None
        return asked_listener_set(id_.key, listener_set, gateway, partial(labels_of, read, objects), objects.cluster)


def labels_of(read: Read, objects: Objects, namespace: str) -> Labels:
    """Return the labels of a namespace. The name is one of them, as in the API."""
    labels = read(objects.labels, namespace)
    return {"kubernetes.io/metadata.name": namespace, **(labels or {})}


def gateways_asked(
    objects: Objects, addresses: AddressOwners, listener_sets: ListenerSets
) -> Collection[ObjectKey, AskedGateway]:
    """Return the Gateways of this controller."""

    def ask(read: Read, id_: ObjectKey, gateway: Gateway) -> AskedGateway | None:
        found = read(objects.gateway_classes, class_of_gateway(gateway))
        if found is None or not is_mine(found):
            return None
        owner, policy = owner_of(gateway), read.value(objects.policy)
        assigned = addresses.assigned(read, id_).addresses
        added = (each.added for _, each in read(listener_sets.of_gateways, id_.key) or ())
        ports: dict[int, Owner] = {}
        for by, mine in ((owner, gateway.spec.listeners), *added):
            for each in mine:
                if not policy.port(by.namespace, each.port):
                    ports.setdefault(each.port, by)
        listeners = tuple(
            ListenerClaim(Listener.at(address, port), by) for port, by in sorted(ports.items()) for address in assigned
        )
        return AskedGateway(ObjectRef("Gateway", *id_.key, objects.cluster), found.metadata.name, listeners)

    return Derived(objects.gateways, ask, "claims of Gateways")


class ServedGateways:
    """All that is made of the Gateway API. ``ports`` and ``frontends`` are by Gateway and number.

    Keys of ``statuses`` are those of objects, and those of ``services``.
    """

    def __init__(
        self, objects: Objects, addresses: AddressOwners, owners: ListenerOwners, listener_sets: ListenerSets
    ) -> None:
        self._objects, self._addresses, self._owners, self._sets = objects, addresses, owners, listener_sets
        self._grants = Grouped(objects.grants, _namespace_of_grant, "grants by namespace")
        self._listeners = Derived(objects.gateways, self._decide_listeners, "listeners of Gateways")
        self.gateways, self.listener_sets = self._parents()

        policies = Derived(objects.tls_policies, self._validated, "policies by themselves")
        targets = Spread(policies, _targets_of, "targets of policies")
        claimants = Grouped(targets, lambda at, _: (at[1],), "policies by target", rank=_older_policy)
        self._holders = Derived(claimants, self._holder, "policies that have their targets")
        self.policies = Derived(policies, self._policy, "decisions on policies")

        self._said = Derived(self._listeners, self._said_at, "words of listeners")
        self.asked = listener_sets.routes
        self._placed = Derived(self.asked, self._place, "routes at listeners")
        works = Derived(self.asked, self._work, "work of routes")
        by_namespace = Grouped(works, lambda _, work: (work.namespace,), "work by namespace")
        self._over = Derived(by_namespace, _over_budget, "rules over the budget")
        self.routes = Derived(self.asked, self._serve, "served routes")

        rules = Spread(self.routes, _rules_of_route, "rules of routes")
        self._table = ConditionalRoutingTable("Gateways", rules)

        self.sections = Spread(self.routes, _sections_of, "sections of routes")
        self.rules = RuleBackends(objects, PresetName.GATEWAY, self.sections, self._table.leading)
        self.forms = Joined[ObjectKey, Owner](
            Derived(self.gateways, _form_of_gateway, "forms of Gateways"),
            Derived(self.listener_sets, _form_of_listener_set, "forms of ListenerSets"),
            Derived(self.routes, self._form_of_route, "forms of routes"),
            name="forms of the Gateway API",
        )
        """Each object that is served, as an owner that is another one when it asks for something else."""
        self.backends = self.rules.backends
        self.counts = Tally(self.backends, _counts_of, "ready endpoints of Gateways")

        together = Derived(self.gateways, self._ports_of, "ports by Gateway")
        self.ports = Spread(together, lambda _, found: ((port.number, port) for port in found), "ports of Gateways")
        self.hosts_of_routes = of_routes = Tally(self.routes, _hosts_at_ports, "hosts of routes")
        self._of_listeners = Tally(self.ports, _hosts_of_port, "hosts of listeners")
        hosts = Joined[tuple[str, str], int](of_routes, self._of_listeners, name="hosts of Gateways")
        self._wildcards = Derived(hosts, lambda _, at, __: is_wildcard(at[1]) or None, "wildcards of Gateways")
        virtual_hosts = Derived(hosts, self._virtual_host, "virtual hosts of Gateways")
        self._by_name = Grouped(self.ports, lambda _, port: (port.name,), "ports by frontend")
        self.virtual_hosts = Derived(virtual_hosts, self._virtual_host_at, "virtual hosts of frontends")
        levels = Derived(
            virtual_hosts, lambda _, __, virtual_host: len(virtual_host.above) or None, "depths of wildcards"
        )
        self._levels = Grouped(levels, lambda at, _: (at[0],), "depths of wildcards by frontend")
        conditional = Derived(virtual_hosts, _choices_of_virtual_host, "choices of virtual hosts")
        self._choices = Grouped(conditional, lambda at, _: (at[0],), "choices by frontend")
        splits = Derived(self.routes, _splits_of, "splits of routes")
        self._splits = Grouped(splits, lambda _, each: each.frontends, "splits by frontend")
        streams = Spread(self.routes, _streams_of, "routes of connections")
        self._streams = Grouped(streams, lambda _, each: (each.at.frontend,), "routes of connections by frontend")
        self.frontends = Derived(self.ports, self._frontend, "frontends of Gateways")

        self._attached = Tally(self.routes, lambda _, route: ((at, 1) for at in route.attached), "attached routes")
        references = Derived(self.routes, _references_of, "references of routes")
        self._by_service = Grouped(references, lambda _, found: found.services, "routes by Service")
        self.services = Spread(
            Derived(self.gateways, self._service, "Services by Gateway"),
            lambda _, found: (found,),
            "Services of Gateways",
        )
        self.statuses = Joined[Any, ObjectStatus](
            Derived(objects.gateway_classes, self._class_status, "statuses of GatewayClasses"),
            Derived(self.services, self._service_status, "statuses of Services of Gateways"),
            Derived(self.gateways, self._gateway_status, "statuses of Gateways"),
            Derived(self.listener_sets, self._listener_set_status, "statuses of ListenerSets"),
            Derived(self.routes, lambda _, __, route: route.status, "statuses of routes"),
            Derived(self.policies, self._policy_status, "statuses of policies"),
            name="statuses of the Gateway API",
        )
        self.refused = Joined[ObjectKey, tuple[Refusal, ...]](
            Derived(objects.gateway_classes, self._refused_class, "conditions of GatewayClasses"),
            Derived(objects.gateways, self._refused_gateway, "conditions of Gateways"),
            Derived(self.listener_sets, _refused_listener_set, "conditions of ListenerSets"),
            Derived(self.routes, self._refused_route, "conditions of routes"),
            Derived(self.policies, self._refused_policy, "conditions of policies"),
            name="conditions of the Gateway API",
        )
        self.route_policies = self._use_of_policies()
        self.presented = Spread(self._listeners, _presented, "certificates of listeners")

    def _use_of_policies(self) -> PolicyUse:
        overridden = (
            Spread(self._said, partial(_overridden, "listener"), "overridden words of listeners"),
            Spread(self.asked, _overridden_by_route, "overridden words of routes"),
            Spread(self._placed, partial(_overridden, "parent"), "overridden words of parents"),
        )
        return PolicyUse(
            Joined[Any, OverriddenWord](*overridden, name="overridden words of the Gateway API"), self._is_served
        )

    def _is_served(self, read: Read, id_: ObjectKey) -> bool:
        if id_.resource is Resource.GATEWAYS:
            return read(self.gateways, id_) is not None
        if id_.resource is Resource.LISTENERSETS:
            return read(self.listener_sets, id_) is not None
        placed = read(self._placed, id_) if id_.resource in ROUTES else None
        return placed is not None and bool(placed.parents)

    def _parents(
        self,
    ) -> tuple[Derived[ObjectKey, Gateway, GatewayDecision], Derived[ObjectKey, AskedListenerSet, ListenerSetDecision]]:
        """Return what routes attach to: Gateways and their ListenerSets."""
        self._hosts = Spread(self._listeners, lambda _, found: hosts_of_accepted(found), "listeners by host")
        gateways = Derived(self._objects.gateways, self._gateway, "decisions on Gateways")
        listener_sets = Derived(self._sets.asked, self._listener_set, "decisions on ListenerSets")
        self._attached_sets = Tally(listener_sets, _attached_to, "attached ListenerSets")
        return gateways, listener_sets

    # Gateways and policies

    def _secret(self, read: Read, key: Key) -> ResolvedCertificate:
        found = certificate_for(self._objects.secrets_for(read), read.value(self._objects.tls), *key, ())
        return ResolvedCertificate(found.file.content if found.file is not None else "", found.path, found.fault, found)

    def _bundle(self, read: Read, key: Key) -> ResolvedCertificate:
        return ca_bundle(read(self._objects.config_maps, key), key)

    def _referents(self, read: Read) -> Referents:
        grants = read.view(self._grants)
        return Referents(lambda at: self._secret(read, at), lambda at: self._bundle(read, at), Grants(grants))

    def _decide_listeners(self, read: Read, id_: ObjectKey, gateway: Gateway) -> tuple[ListenerDecision, ...] | None:
        found = read(self._objects.gateway_classes, class_of_gateway(gateway))
        if found is None or not is_mine(found) or class_fault(found) is not None:
            return None
        assigned = self._addresses.assigned(read, id_)

        def taken(port: int) -> str:
            places = (Listener.at(address, port) for address in assigned.addresses)
            return next(filter(None, (self._owners.holder(read, PresetName.GATEWAY, each) for each in places)), "")

        added = [each.added for _, each in read(self._sets.of_gateways, id_.key) or ()]
        rights = ListenerHostRights(read.value(self._objects.policy), partial(self._sets.first_asking, read, id_.key))
        return decide_listeners(gateway, self._referents(read), taken, added, rights)

    def _gateway(self, read: Read, id_: ObjectKey, gateway: Gateway) -> GatewayDecision | None:
        listeners = read(self._listeners, id_)
        if listeners is None:
            return None
        assigned, host = self._addresses.assigned(read, id_), read.value(self._objects.host)
        return decide_gateway(gateway, listeners, assigned, self._referents(read), host)

    def _listener_set(self, read: Read, _: ObjectKey, asked: AskedListenerSet) -> ListenerSetDecision:
        gateway = ObjectKey(Resource.GATEWAYS, asked.gateway)
        listeners = read(self._listeners, gateway)
        return decide_listener_set(asked, read(self.gateways, gateway), listeners or ())

    def _validated(self, read: Read, id_: ObjectKey, policy: BackendTLSPolicy) -> ValidatedPolicy:
        directory = read.value(self._objects.tls).directory
        return validate(id_.key, policy, lambda at: self._bundle(read, at), directory)

    def _holder(
        self, read: Read, at: PolicyPort, claimants: Sequence[tuple[tuple[ObjectKey, PolicyPort], ValidatedPolicy]]
    ) -> TargetPolicy | None:
        if missing(at, read(self._objects.declared, at.service)):
            return None
        (id_, _), policy = claimants[0]
        return TargetPolicy(id_.key, policy.tls if not policy.invalid else None)

    def _policy(self, read: Read, id_: ObjectKey, policy: ValidatedPolicy) -> PolicyDecision:
        services, holders = read.view(self._objects.declared), read.view(self._holders)
        return decide_policy(id_.key, policy, services, holders)

    # Routes

    def _place(self, read: Read, _: ObjectKey, route: AskedRoute) -> PlacedRoute:
        objects = self._objects

        def gateway_of(key: Key) -> GatewayDecision | None:
            return read(self.gateways, ObjectKey(Resource.GATEWAYS, key))

        def parent(named: ObjectKey) -> RouteParent | None:
            if named.resource is Resource.LISTENERSETS:
                found = read(self.listener_sets, named)
                return RouteParent(found.asked.gateway, found.listeners) if found is not None else None
            gateway = gateway_of(named.key)
            return RouteParent(named.key, gateway.listeners) if gateway is not None else None

        def listener(gateway: Key, port: int, host: str) -> str | None:
            known = read(self._hosts, (ObjectKey(Resource.GATEWAYS, gateway), (port, host)))
            return known.id if known is not None else None

        def said(gateway: Key, listener: str) -> Words:
            known = read(self._said, ObjectKey(Resource.GATEWAYS, gateway))
            return known.words.get(listener, ()) if known is not None else ()

        labels, policy = partial(labels_of, read, objects), read.value(objects.policy)
        users_of = partial(objects.with_users, read)
        return place(route, parent, GatewayPorts(gateway_of, listener, said, users_of), labels, policy)

    def _said_at(self, read: Read, id_: ObjectKey, listeners: Sequence[ListenerDecision]) -> "SaidAtGateway | None":
        """Return what policies say for the listeners of a Gateway: for one of them, its ListenerSet, the Gateway."""
        policies = self._objects.policy_sources(read)
        if not any(map(policies.is_any_in, {each.parent.namespace for each in listeners} | {id_.key.namespace})):
            return None
        words, overridden = {}, list[OverriddenWord]()
        for each in listeners:
            of = ObjectKey(Resource.LISTENERSETS, each.parent) if each.is_added else id_
            levels = (PolicyTarget(of, each.name), PolicyTarget(of), *((PolicyTarget(id_),) if each.is_added else ()))
            at = f"listener {each.name} of {each.owner.kind} {each.owner.namespace}/{each.owner.name}"
            found, more = together(*map(policies.at, levels), at=at)
            overridden += more
            if found:
                words[each.id] = found
        return SaidAtGateway(words, tuple(overridden)) if words else None

    def _work(self, read: Read, id_: ObjectKey, route: AskedRoute) -> RouteWork | None:
        placed = read(self._placed, id_) if any(route.work) else None
        if placed is None:
            return None
        listeners = frozenset((at.frontend, at.listener) for at in placed.virtual_hosts)
        return RouteWork(_budget_of(route), route.rank, listeners, route.work)

    def _serve(self, read: Read, id_: ObjectKey, route: AskedRoute) -> ServedRoute | None:
        objects, placed = self._objects, read(self._placed, id_)
        if placed is None:
            return None
        over = read(self._over, _budget_of(route)) if any(route.work) else None
        services, holders, grants = read.view(objects.declared), read.view(self._holders), read.view(self._grants)
        inputs = RouteInputs(services, holders, Grants(grants))
        return serve(route, placed, over.get(id_, frozenset()) if over else frozenset(), inputs)

    # Frontends

    def _ports_of(self, read: Read, id_: ObjectKey, gateway: GatewayDecision) -> tuple[Port, ...]:
        listeners, directory = read(self._listeners, id_), read.value(self._objects.tls).directory
        return tuple(ports_of(gateway, listeners or (), directory))

    def _virtual_host(self, read: Read, at: tuple[str, str], _: int) -> VirtualHost:
        frontend_, host = at
        groups = read(self._table.groups, virtual_host_id(frontend_, host)) or ()
        found = tuple(lead.group for _, lead in groups if lead.group is not None)
        return virtual_host_of(
            frontend_, host, found, tuple(self._virtual_hosts_above(read, at)) if is_wildcard(host) else ()
        )

    def _virtual_host_at(self, read: Read, at: tuple[str, str], virtual_host: VirtualHost) -> VirtualHost | None:
        ((place, port), *_) = read(self._by_name, at[0]) or ((None, None),)
        if place is None or port is None:
            return None
        gateway, number = place

        def listener_of(host: str) -> str | None:
            known = read(self._hosts, (gateway, (number, host)))
            return known.id if known is not None and known.of_requests else None

        return virtual_host_at(port, virtual_host, isolated(virtual_host.host, listener_of))

    def _virtual_hosts_above(self, read: Read, at: tuple[str, str]) -> Iterator[str]:
        """Return the virtual hosts above a wildcard, up to that of its listener: all that have the same listener."""
        frontend_, host = at
        for each in (host, *wildcards_above(host), ""):
            if each != host and read(self._wildcards, (frontend_, each)) is not None:
                yield virtual_host_id(frontend_, each)
            if read(self._of_listeners, (frontend_, each)) is not None:
                return

    def _frontend(self, read: Read, _: tuple[ObjectKey, int], port: Port) -> GatewayFrontend:
        deepest = max((level for _, level in read(self._levels, port.name) or ()), default=0)
        choices = (found for _, found in read(self._choices, port.name) or ())
        of_routes = (each.choices for _, each in read(self._splits, port.name) or ())
        streams = (each for _, each in read(self._streams, port.name) or ())
        return frontend(port, deepest, choices, chain.from_iterable(of_routes), streams)

    # What the owners are told

    def _gateway_status(self, read: Read, id_: ObjectKey, gateway: GatewayDecision) -> ObjectStatus:
        sets = read(self._attached_sets, id_.key) or 0
        return gateway_status(gateway, self._attached_routes(read, id_.key, gateway.listeners), sets)

    def _service(self, read: Read, id_: ObjectKey, _: GatewayDecision) -> tuple[Key, GatewayService] | None:
        gateway = read(self._objects.gateways, id_) if read.value(self._objects.gateway_services) else None
        listeners = read(self._listeners, id_)
        found = service_of(gateway, listeners) if gateway is not None and listeners is not None else None
        if gateway is None or found is None:
            return None
        return service_key(id_.key, gateway.spec.gateway_class_name), found

    def _service_status(self, read: Read, at: tuple[ObjectKey, Key], _: GatewayService) -> ObjectStatus | None:
        """Return the status of the Service of a Gateway, once it is there."""
        seen, gateway = read(self._objects.declared, at[1]), read(self.gateways, at[0])
        if gateway is None or seen is None or seen.object is None or not is_of_gateway(seen.object):
            return None
        return service_status(seen.object, gateway)

    def _class_status(self, read: Read, _: ObjectKey, found: GatewayClass) -> ObjectStatus | None:
        return class_status(found, services=read.value(self._objects.gateway_services)) if is_mine(found) else None

    def _listener_set_status(self, read: Read, _: ObjectKey, decided: ListenerSetDecision) -> ObjectStatus:
        key = decided.asked.gateway
        gateway = read(self.gateways, ObjectKey(Resource.GATEWAYS, key))
        return listener_set_status(decided, gateway, self._attached_routes(read, key, decided.listeners))

    def _attached_routes(self, read: Read, gateway: Key, listeners: Iterable[ListenerDecision]) -> Mapping[str, int]:
        return {each.id: read(self._attached, (gateway, each.id)) or 0 for each in listeners}

    def _policy_status(self, read: Read, _: ObjectKey, policy: PolicyDecision) -> ObjectStatus:
        """Return the status of a policy: an entry for each Gateway that leads to a Service of it."""
        routes = (each for service in policy.services for _, each in read(self._by_service, service) or ())
        gateways = sorted({gateway for each in routes for gateway in each.gateways})
        ancestors = [
            ancestor_status(*gateway, policy.conditions, policy.meta.generation)
            for gateway in gateways[:_MOST_ANCESTORS]
        ]
        return object_status(policy.meta, {"ancestors": ancestors}, CONTROLLER)

    def _refused_class(self, _: Read, id_: ObjectKey, found: GatewayClass) -> tuple[Refusal, ...] | None:
        fault = class_fault(found) if is_mine(found) else None
        return (fault.refusal(self._ref("GatewayClass", id_.key)),) if fault is not None else None

    def _refused_gateway(self, read: Read, id_: ObjectKey, gateway: Gateway) -> tuple[Refusal, ...] | None:
        key = id_.key
        decided = read(self.gateways, id_)
        if decided is not None:
            ref = self._ref("Gateway", key)
            return (*(fault.refusal(ref) for fault in decided.faults), *_notes_of(decided.listeners, ref)) or None
        if read(self._objects.gateway_classes, class_of_gateway(gateway)) is not None:
            return None
        classes = {each.key: found for each, found in read.all(self._objects.gateway_classes).items()}
        if not is_misspelled(gateway, classes):
            return None
        ref = ObjectRef("Gateway", values.shortened(key.namespace), values.shortened(key.name), self._objects.cluster)
        detail = mistaken_class(gateway, classes)
        return (Refusal(ref, "spec.gatewayClassName", "", RefusalReason.UNKNOWN_CLASS, detail),)

    def _form_of_route(self, read: Read, _: ObjectKey, route: ServedRoute) -> Owner | None:
        if not route.virtual_hosts:
            return None
        pages = self._pages_of(read, route)
        return route.form.asking_for((route.form.since, pages)) if pages else route.form

    def _refused_route(self, read: Read, _: ObjectKey, route: ServedRoute) -> tuple[Refusal, ...] | None:
        faults = (fault_of_pages(route.asked.ref, *each) for each in self._pages_of(read, route) if each[2].fault)
        return (*route.refused, *faults) or None

    def _pages_of(self, read: Read, route: ServedRoute) -> list[tuple[str, Key, ErrorPages]]:
        """Return the ConfigMaps with error pages of a route, each with what says so, and what they have."""
        named = {each.policy.error_pages: dict(each.said).get("error-pages", "") for each in route.backends}
        pages = ((source, key, read(self.rules.error_pages, key)) for key, source in named.items() if key is not None)
        return [(source, key, found) for source, key, found in pages if found is not None]

    def _refused_policy(self, _: Read, id_: ObjectKey, policy: PolicyDecision) -> tuple[Refusal, ...] | None:
        ref = self._ref("BackendTLSPolicy", id_.key)
        return tuple(fault.refusal(ref) for fault in policy.faults) or None

    def _ref(self, kind: str, key: Key) -> ObjectRef:
        return ObjectRef(kind, key.namespace, key.name, self._objects.cluster)


def _namespace_of_grant(key: Key, _: ReferenceGrant) -> tuple[str]:
    return (key.namespace,)


def _targets_of(_: ObjectKey, policy: ValidatedPolicy) -> Iterator[tuple[PolicyPort, ValidatedPolicy]]:
    return ((at, policy) for at in dict.fromkeys(each.at for each in policy.targets if each.at is not None))


def _overridden(
    by: str, _: ObjectKey, found: SaidAtGateway | PlacedRoute
) -> Iterator[tuple[tuple[str, int], OverriddenWord]]:
    return (((by, number), each) for number, each in enumerate(found.overridden))


def _overridden_by_route(_: ObjectKey, route: AskedRoute) -> Iterator[tuple[tuple[str, int], OverriddenWord]]:
    found = route.said.overridden if route.said is not None else ()
    return ((("route", number), each) for number, each in enumerate(found))


def _older_policy(at: tuple[ObjectKey, PolicyPort], policy: ValidatedPolicy) -> tuple[str, Key]:
    return policy.rank, at[0].key


def _budget_of(route: AskedRoute) -> str:
    """Return what shares a budget with a route: the routes of its namespace."""
    return route.ref.namespace


def _over_budget(
    _: Read, __: str, works: Sequence[tuple[ObjectKey, RouteWork]]
) -> Mapping[ObjectKey, frozenset[int]] | None:
    return beyond_budget(dict(works)) or None


def _hosts_at_ports(_: ObjectKey, route: ServedRoute) -> Iterator[tuple[tuple[str, str], int]]:
    return (((at.frontend, at.host), 1) for at in route.virtual_hosts if route.asked.is_of_requests)


def _hosts_of_port(_: object, port: Port) -> Iterator[tuple[tuple[str, str], int]]:
    return (((port.name, host), 1) for host in hosts_of_listeners(port))


def _rules_of_route(_: ObjectKey, route: ServedRoute) -> Iterable[tuple[int, RouteRule]]:
    if not route.asked.is_of_requests:
        return ()
    return enumerate(rule for at in route.virtual_hosts for rule in route.rules_at(at))


def _sections_of(_: ObjectKey, route: ServedRoute) -> Iterator[tuple[str, RuleSection]]:
    for each in route.backends:
        backend = msgspec.structs.replace(each, unlogged=(each.name,)) if route.asked.unlogged else each
        yield each.name, RuleSection(route.asked.owner, backend)


def _oldest_of_namespaces(
    _: Read, __: object, routes: Sequence[tuple[tuple[ObjectKey, _HostAtParent], Owner]]
) -> tuple[tuple[ObjectKey, Owner], ...]:
    """Return the oldest of each namespace at each parent."""
    found: dict[tuple[ObjectKey, str], tuple[ObjectKey, Owner]] = {}
    for (_route, (*_place, parent)), owner in routes:
        found.setdefault((parent, owner.namespace), (parent, owner))
    return tuple(found.values())


def _form_of_gateway(_: Read, __: ObjectKey, gateway: GatewayDecision) -> Owner | None:
    return gateway.owner.asking_for(gateway.generation) if gateway.addresses else None


def _form_of_listener_set(_: Read, __: ObjectKey, found: ListenerSetDecision) -> Owner | None:
    return found.asked.owner.asking_for(found.asked.generation) if found.is_accepted else None


def _attached_to(_: ObjectKey, found: ListenerSetDecision) -> Iterator[tuple[Key, int]]:
    if found.is_accepted:
        yield found.asked.gateway, 1


def _refused_listener_set(_: Read, __: ObjectKey, found: ListenerSetDecision) -> tuple[Refusal, ...] | None:
    ref = found.asked.ref
    return (*(fault.refusal(ref) for fault in found.faults), *_notes_of(found.listeners, ref)) or None


def addresses_of(backend: RuleBackend) -> list[str]:
    """Return the addresses of the servers that take traffic."""
    return [each.address for each in backend.servers if each.state == "ready"]


def _counts_of(_: object, backend: RuleBackend) -> Iterator[tuple[str, int]]:
    yield "ready", len(addresses_of(backend))


def _splits_of(_: Read, __: ObjectKey, route: ServedRoute) -> Splits | None:
    choices = route.choices if route.asked.is_of_requests else ()
    return Splits(frozenset(at.frontend for at in route.virtual_hosts), choices) if choices else None


def _choices_of_virtual_host(_: Read, __: tuple[str, str], virtual_host: VirtualHost) -> VirtualHostChoices | None:
    found = choices_of(virtual_host.groups)
    return (
        VirtualHostChoices(len(virtual_host.above) if is_wildcard(virtual_host.host) else None, found)
        if found
        else None
    )


def _streams_of(_: ObjectKey, route: ServedRoute) -> Iterator[tuple[int, StreamAt]]:
    virtual_hosts = route.virtual_hosts if not route.asked.is_of_requests else ()
    return ((number, StreamAt(at, route.asked.rank, route.section_at(at))) for number, at in enumerate(virtual_hosts))


def _references_of(_: Read, __: ObjectKey, route: ServedRoute) -> References:
    return References(route.services, frozenset(gateway for gateway, _ in route.attached))


def _presented(id_: ObjectKey, listeners: Iterable[ListenerDecision]) -> Iterator[tuple[str, PresentedCertificate]]:
    for listener in listeners:
        for number, each in enumerate(listener.certificates):
            found = presented(each.served, listener.hostname or "*")
            if found is not None:
                yield f"{id_.key.namespace}/{id_.key.name}/{listener.id}/{number}", found


def _notes_of(listeners: Iterable[ListenerDecision], ref: ObjectRef) -> Iterator[Refusal]:
    """Return what is to be known of the certificates of listeners; one of several has to name the host."""
    for listener in listeners:
        field = f"listener {listener.name}"
        found = [each.served for each in listener.certificates]
        named = any(is_named(each, listener.hostname) for each in found)
        for each in found:
            host = "" if named else listener.hostname
            yield from notes_on(each, ref, (f"{field} tls.certificateRefs", f"{field} hostname"), host)
