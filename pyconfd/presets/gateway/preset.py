"""Preset ``gateway``: the Gateway API. What is served is in :mod:`pyconfd.presets.gateway.serving`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from pyconfd.derived import Joined, Published, SameParts, Spread
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName
from pyconfd.model.gateway_api import Gateway, GRPCRoute, HTTPRoute, ListenerSet, TCPRoute, TLSRoute
from pyconfd.model.gateway_service import GatewayService
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, Name, Owner, Owners
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.versioned import GivenDict
from pyconfd.presets import values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.gateway.attachment import named_parent
from pyconfd.presets.gateway.frontends import GatewayFrontend
from pyconfd.presets.gateway.gateways import mistaken_class, mistaken_gateway
from pyconfd.presets.gateway.listener_sets import AskedListenerSet, mistaken_listener_set
from pyconfd.presets.gateway.policies import PolicyDecision
from pyconfd.presets.gateway.ports import Port, files_of, listeners_of
from pyconfd.presets.gateway.routes import AskedRoute, frontend_name, virtual_host_id
from pyconfd.presets.gateway.serving import AskedGateway, ListenerSets, ServedGateways, gateways_asked
from pyconfd.presets.gateway.serving import addresses_of as addresses_of_rule
from pyconfd.presets.gateway.status import CONTROLLER
from pyconfd.presets.listener_ownership import ListenerOwners
from pyconfd.presets.objects import ROUTES, Objects
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetCollections, PresetOptions, PresetResult
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.routing.rules import RuleBackend
from pyconfd.presets.routing.types import VirtualHost


class GatewayCollections(PresetCollections):
    """The Gateway API: its sections, frontends, statuses and files."""

    def __init__(self, objects: Objects, addresses: AddressOwners) -> None:
        self._objects, self._addresses = objects, addresses
        self._listener_sets = ListenerSets(objects)
        asked = gateways_asked(objects, addresses, self._listener_sets)
        self.listeners = Spread(asked, lambda _, each: enumerate(each.listeners), "listeners that Gateways ask for")
        self._asked = Published[ObjectKey, AskedGateway](asked)
        self._sets = Published[ObjectKey, AskedListenerSet](self._listener_sets.asked)

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Nothing is its own."""

    def serve(self, owners: ListenerOwners) -> None:
        """Make all that is served."""
        self._gateways = gateways = ServedGateways(self._objects, self._addresses, owners, self._listener_sets)
        self._routes = Published[ObjectKey, AskedRoute](gateways.asked, rank=_rank_of_route)
        self._ports = Published[str, Port](gateways.ports, key=_port_name)
        self._frontends = Published[str, GatewayFrontend](gateways.frontends, key=_port_name)
        self._virtual_hosts = Published[str, VirtualHost](gateways.virtual_hosts, key=lambda at: virtual_host_id(*at))
        self.rules, self.policies = gateways.rules, gateways.route_policies
        self.hosts = gateways.hosts_of_routes
        self._backends = Published[str, RuleBackend](gateways.backends, key=lambda at: at[1])
        # What asks for something else than before has another owner, too: it may take a reload, or spares.
        self._owners = Published[Name, Owner](
            Joined[Any, Any](gateways.sections, gateways.ports, gateways.forms, name="owners of sections"),
            key=_owned_name,
            value=_owner_of,
        )
        self._statuses = Published[ObjectKey, ObjectStatus](gateways.statuses, key=_key_of_status, rank=None)
        self._services = Published[Key, GatewayService](gateways.services, key=lambda at: at[1])
        self._policies = Published[ObjectKey, PolicyDecision](gateways.policies)
        self._pages = Published[Key, tuple[OutputFile, ...]](gateways.rules.page_files)
        self._presented = Published[str, PresentedCertificate](gateways.presented, key=lambda at: at[1], rank=None)
        self._refused = JoinedRefusals(gateways.refused)
        self._given = SameParts[GivenDict]()
        self._files = SameParts[tuple[OutputFile, ...]]()
        self._listeners = SameParts[Mapping[Listener, Owner]]()

    def result(self) -> PresetResult:
        """Return ``gateway``: the frontends of Gateways' ports and their virtual hosts, each by its name."""
        counts = self._gateways.counts.items
        ports, policies, backends = self._ports.mapping(), self._policies.mapping(), self._backends.mapping()
        frontends, owners = self._frontends.mapping(), self._owners.mapping()
        pages = self._pages.mapping()
        files = self._files.made(
            (ports, policies, pages),
            lambda: (*files_of(ports.values(), policies.values()), *chain(*pages.values())),
        )
        virtual_hosts = self._virtual_hosts.mapping()
        given = self._given.made(
            (frontends, virtual_hosts),
            lambda: GivenDict(
                frontends=frontends,
                virtual_hosts=virtual_hosts,
                verifies_clients=any(each.verification is not None for each in frontends.values()),
            ),
        )
        return PresetResult(
            {"gateway": given},
            self._refused.all(),
            counts.get("ready", 0),
            partial(
                claims,
                self._asked.mapping(),
                self._sets.mapping(),
                self._routes.mapping(),
                owners,
                frontends,
                ports,
                backends,
            ),
            self._listeners.made((ports,), lambda: listeners_of(ports.values())),
            files=files,
            serves=backends,
            addresses_of=addresses_of_rule,
            owners=owners,
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
            services=self._services.mapping(),
            certificates=self._presented.mapping(),
        )


def _rank_of_route(id_: ObjectKey) -> tuple[int, Key]:
    return ROUTES.index(id_.resource), id_.key


def _key_of_status(at: Any) -> ObjectKey:
    return at if isinstance(at, ObjectKey) else ObjectKey(Resource.SERVICES, at[1])


def _port_name(at: tuple[ObjectKey, int]) -> str:
    return frontend_name(at[0].key, at[1])


def _owned_name(at: Any) -> Name:
    if isinstance(at, ObjectKey):
        return Name(f"{at.resource.name} {at.key.namespace}/{at.key.name}", "")
    return Name(at[1] if isinstance(at[1], str) else _port_name(at), "")


def _owner_of(item: Any) -> Owner:
    if isinstance(item, Owner):
        return item
    owner: Owner = item.owner
    return owner


class GatewayPreset(Preset):
    """Reads the Gateway API."""

    name = PresetName.GATEWAY
    gives = frozenset({"gateway"})
    resources = CLUSTER_VIEW | {
        Resource.GATEWAYCLASSES,
        Resource.GATEWAYS,
        Resource.LISTENERSETS,
        Resource.HTTPROUTES,
        Resource.GRPCROUTES,
        Resource.TLSROUTES,
        Resource.TCPROUTES,
        Resource.REFERENCEGRANTS,
        Resource.BACKENDTLSPOLICIES,
        Resource.ROUTEPOLICIES,
        Resource.NAMESPACES,
        Resource.CONFIGMAPS,
    }
    writes_status = frozenset(
        {
            Resource.GATEWAYCLASSES,
            Resource.GATEWAYS,
            Resource.LISTENERSETS,
            *ROUTES,
            Resource.BACKENDTLSPOLICIES,
            Resource.ROUTEPOLICIES,
        }
    )

    def collections(self, objects: Objects, addresses: AddressOwners) -> GatewayCollections:
        """Return what is made of the Gateway API."""
        return GatewayCollections(objects, addresses)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return which object to make."""
        del options
        return (
            f"have a GatewayClass with the controllerName {CONTROLLER}, a Gateway whose gatewayClassName is its name,"
            " and routes whose parentRefs name that Gateway or a ListenerSet of it, with its namespace where it is"
            " another one"
        )

    def mistakes(self, record: AnyObject, snapshot: Snapshot, options: PresetOptions) -> Iterator[str]:
        """Return what is wrong with the class of a Gateway, or with the parents that a route or ListenerSet names."""
        del options
        if isinstance(record, Gateway):
            yield from filter(None, (mistaken_class(record, snapshot.gatewayclasses),))
        elif isinstance(record, ListenerSet):
            yield from filter(None, (mistaken_listener_set(record, snapshot),))
        elif isinstance(record, HTTPRoute | GRPCRoute | TLSRoute | TCPRoute):
            key = Key(record.metadata.namespace, record.metadata.name)
            named = (named_parent(key, each) for each in record.spec.parent_refs or ())
            parents = dict.fromkeys(each for each in named if each is not None)
            yield from filter(None, (_mistaken_parent(each, snapshot) for each in parents))


def _mistaken_parent(parent: ObjectKey, snapshot: Snapshot) -> str:
    if parent.resource is Resource.GATEWAYS:
        return mistaken_gateway(parent.key, snapshot)
    found = snapshot.listenersets.get(parent.key)
    if found is None:
        return f"there is no ListenerSet {values.shortened(f'{parent.key.namespace}/{parent.key.name}')}"
    return mistaken_listener_set(found, snapshot)


def claims(  # noqa: PLR0917 - what a Gateway, a ListenerSet and a route each are, and what is made of them
    gateways: Mapping[ObjectKey, AskedGateway],
    listener_sets: Mapping[ObjectKey, AskedListenerSet],
    routes: Mapping[ObjectKey, AskedRoute],
    owners: Owners,
    frontends: Mapping[str, GatewayFrontend],
    ports: Mapping[str, Port],
    backends: Mapping[str, RuleBackend],
) -> Iterator[Claim]:
    """Return a claim for each Gateway of this controller, and for each ListenerSet and route that names one.

    ``owners`` are those of the sections of rules, by their names.
    """
    opened: defaultdict[tuple[str, Key], list[str]] = defaultdict(list)
    for name, port in ports.items():
        listening = {(each.owner.kind, each.parent) for each in port.listeners}
        for each in {("Gateway", port.gateway.key), *listening} if name in frontends else ():
            opened[each].append(frontends[name].section)
    sections: defaultdict[Owner, list[RuleBackend]] = defaultdict(list)
    for name, backend in backends.items():
        if owner := owners.get(Name(name, "")):
            sections[owner].append(backend)
    for id_, gateway in gateways.items():
        because, mine = f"GatewayClass {values.shortened(gateway.class_name)}", tuple(opened["Gateway", id_.key])
        yield Claim(gateway.ref, PresetName.GATEWAY, because, (), (), listens=True, frontends=mine)
    for id_, asked in listener_sets.items():
        because, mine = f"Gateway {_shown(asked.gateway)}", tuple(opened["ListenerSet", id_.key])
        yield Claim(asked.ref, PresetName.GATEWAY, because, (), (), listens=True, frontends=mine)
    for id_, route in routes.items():
        named = (named_parent(id_.key, each) for each in route.parent_refs)
        parents = [each.key for each in named if each is not None and (each in gateways or each in listener_sets)]
        if parents:
            yield _claim(route, parents, sections.get(route.owner, ()))


def _claim(route: AskedRoute, parents: Iterable[Key], sections: Iterable[RuleBackend]) -> Claim:
    hosts = route.hosts.names if route.hosts is not None else ()
    backends = tuple(
        ClaimedBackend(each.name, each.name, each.name, each.servers, frozenset(hosts)) for each in sections
    )
    named = ", ".join(map(_shown, parents))
    endpoints = tuple(dict.fromkeys(server for each in backends for server in each.endpoints))
    return Claim(route.ref, PresetName.GATEWAY, f"parentRefs {named}", hosts, backends, endpoints)


def _shown(key: Key) -> str:
    return values.shortened(f"{key.namespace}/{key.name}")
