"""Preset ``gateway``: the Gateway API. What is served is in :mod:`pyconfd.presets.gateway.serving`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName
from pyconfd.model.gateway_api import Gateway, GRPCRoute, HTTPRoute, ParentReference, TCPRoute, TLSRoute
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.snapshot import KIND_OF, Key, Resource, Snapshot
from pyconfd.presets import values
from pyconfd.presets.gateway.attachment import names_gateway, parent_key, valid_hosts
from pyconfd.presets.gateway.gateways import is_mine, mistaken_class, mistaken_parent
from pyconfd.presets.gateway.http_rules import RuleBackend
from pyconfd.presets.gateway.status import CONTROLLER
from pyconfd.presets.objects import ROUTES, Route
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, Translation


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

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each Gateway of this controller, and for each route that names one."""
        given: Mapping[str, Mapping[str, Any]] = translation.given.get("gateway", {})
        sections: defaultdict[str, list[RuleBackend]] = defaultdict(list)
        for backend in given.get("backends", {}).values():
            sections[backend.owner.rpartition(" rule ")[0]].append(backend)
        frontends: defaultdict[str, list[str]] = defaultdict(list)
        for each in given.get("frontends", {}).values():
            frontends[each.owner].append(each.name)
        snapshot = translation.snapshot
        mine = {
            key
            for key, gateway in snapshot.gateways.items()
            if (found := snapshot.gatewayclasses.get(Key("", gateway.spec.gateway_class_name))) and is_mine(found)
        }
        for key in sorted(mine):
            name = snapshot.gateways[key].spec.gateway_class_name
            because = f"GatewayClass {values.shown(name)}"
            opened = tuple(frontends[f"Gateway {key.namespace}/{key.name}"])
            yield Claim(translation.ref("Gateway", key), self.name, because, (), (), listens=True, frontends=opened)
        for resource in ROUTES:
            routes: Mapping[Key, Route] = getattr(snapshot, resource.field)
            for key in sorted(routes):
                parents = [each for each in routes[key].spec.parent_refs or () if parent_key(key, each) in mine]
                if parents:
                    ref = translation.ref(KIND_OF[resource], key)
                    yield self._claim(ref, routes[key], parents, sections.get(str(ref), []))

    def _claim(
        self, ref: ObjectRef, route: Route, parents: Iterable[ParentReference], sections: Iterable[RuleBackend]
    ) -> Claim:
        hosts = () if isinstance(route, TCPRoute) else valid_hosts(route.spec.hostnames or ())[0]
        backends = tuple(
            ClaimedBackend(each.name, each.name, each.name, each.servers, frozenset(hosts)) for each in sections
        )
        named = ", ".join(values.shown(f"{each.namespace or ref.namespace}/{each.name}") for each in parents)
        endpoints = tuple(dict.fromkeys(server for each in backends for server in each.endpoints))
        return Claim(ref, self.name, f"parentRefs {named}", hosts, backends, endpoints)

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
