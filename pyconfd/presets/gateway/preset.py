"""Preset ``gateway``: the Gateway API. What is served is in :mod:`pyconfd.presets.gateway.serving`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName
from pyconfd.model.gateway_api import Gateway, GRPCRoute, HTTPRoute, TCPRoute, TLSRoute
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.reservation import Name, Owner, Owners
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets import values
from pyconfd.presets.gateway.attachment import names_gateway, parent_key
from pyconfd.presets.gateway.gateways import mistaken_class, mistaken_parent
from pyconfd.presets.gateway.http_rules import RuleBackend
from pyconfd.presets.gateway.routes import AskedRoute
from pyconfd.presets.gateway.serving import AskedGateway
from pyconfd.presets.gateway.status import CONTROLLER
from pyconfd.presets.objects import ROUTES
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions


class GatewayPreset(Preset):
    """Reads the Gateway API."""

    name = PresetName.GATEWAY
    gives = frozenset({"gateway"})
    resources = CLUSTER_VIEW | {
        Resource.GATEWAYCLASSES,
        Resource.GATEWAYS,
        Resource.HTTPROUTES,
        Resource.GRPCROUTES,
        Resource.TLSROUTES,
        Resource.TCPROUTES,
        Resource.REFERENCEGRANTS,
        Resource.BACKENDTLSPOLICIES,
        Resource.NAMESPACES,
        Resource.CONFIGMAPS,
    }
    writes_status = frozenset({Resource.GATEWAYCLASSES, Resource.GATEWAYS, *ROUTES, Resource.BACKENDTLSPOLICIES})

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return which object to make."""
        del options
        return (
            f"have a GatewayClass with the controllerName {CONTROLLER}, a Gateway whose gatewayClassName is its name,"
            " and routes whose parentRefs name that Gateway, with its namespace where it is another one"
        )

    def mistakes(self, record: AnyObject, snapshot: Snapshot) -> Iterator[str]:
        """Return what is wrong with the class of a Gateway, or with the Gateways that a route names."""
        if isinstance(record, Gateway):
            yield from filter(None, (mistaken_class(record, snapshot.gatewayclasses),))
        elif isinstance(record, HTTPRoute | GRPCRoute | TLSRoute | TCPRoute):
            key = Key(record.metadata.namespace, record.metadata.name)
            named = filter(names_gateway, record.spec.parent_refs or ())
            parents = dict.fromkeys(parent_key(key, each) for each in named)
            yield from filter(None, (mistaken_parent(each, snapshot) for each in parents))


def claims(
    gateways: Mapping[ObjectKey, AskedGateway],
    routes: Mapping[ObjectKey, AskedRoute],
    owners: Owners,
    frontends: Iterable[str],
    backends: Mapping[str, RuleBackend],
) -> Iterator[Claim]:
    """Return a claim for each Gateway of this controller, and for each route that names one.

    ``owners`` are those of frontends and of the sections of rules, by their names.
    """
    opened: defaultdict[Key, list[str]] = defaultdict(list)
    for name in frontends:
        if owner := owners.get(Name(name, "")):
            opened[Key(owner.namespace, owner.name)].append(name)
    sections: defaultdict[Owner, list[RuleBackend]] = defaultdict(list)
    for name, backend in backends.items():
        if owner := owners.get(Name(name, "")):
            sections[owner].append(backend)
    for id_, gateway in gateways.items():
        because, mine = f"GatewayClass {values.shown(gateway.class_name)}", tuple(opened[id_.key])
        yield Claim(gateway.ref, PresetName.GATEWAY, because, (), (), listens=True, frontends=mine)
    for id_, route in routes.items():
        named = ((each, parent_key(id_.key, each)) for each in route.parent_refs if names_gateway(each))
        parents = [key for _, key in named if ObjectKey(Resource.GATEWAYS, key) in gateways]
        if parents:
            yield _claim(route, parents, sections.get(route.owner, ()))


def _claim(route: AskedRoute, parents: Iterable[Key], sections: Iterable[RuleBackend]) -> Claim:
    hosts = route.hosts.names if route.hosts is not None else ()
    backends = tuple(
        ClaimedBackend(each.name, each.name, each.name, each.servers, frozenset(hosts)) for each in sections
    )
    named = ", ".join(values.shown(f"{each.namespace}/{each.name}") for each in parents)
    endpoints = tuple(dict.fromkeys(server for each in backends for server in each.endpoints))
    return Claim(route.ref, PresetName.GATEWAY, f"parentRefs {named}", hosts, backends, endpoints)
