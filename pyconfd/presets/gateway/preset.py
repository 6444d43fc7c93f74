"""Preset ``gateway``: the Gateway API.

Read in this order: :func:`_inputs_of` decides about Gateways and policies, ``_Reading`` decides about the routes that
changed and updates the parts that follow from them: the table of paths, backends, frontends and statuses.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.gateway_api import Gateway, GRPCRoute, HTTPRoute, ParentReference, TCPRoute, TLSRoute
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectStatus, StatusOf
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.reservation import NO_OWNERS, Name, Owner, Owners
from pyconfd.model.snapshot import KIND_OF, Key, Resource, Snapshot
from pyconfd.model.versioned import GivenDict, VersionedDict, differing, replaced, with_values
from pyconfd.presets import values
from pyconfd.presets.certificates import certificate_for, is_named, notes_on, presented
from pyconfd.presets.cluster import Cluster, nothing_read
from pyconfd.presets.conflicts import NO_REFUSALS, SortedRefusals
from pyconfd.presets.gateway.attachment import names_gateway, parent_key, valid_hosts
from pyconfd.presets.gateway.authorities import ca_bundle
from pyconfd.presets.gateway.frontends import GatewayFrontend
from pyconfd.presets.gateway.gateways import (
    GatewayDecision,
    class_fault,
    class_status,
    decide_gateway,
    gateway_status,
    is_mine,
    is_misspelled,
    mistaken_class,
    mistaken_parent,
)
from pyconfd.presets.gateway.grants import Grants, grants_of
from pyconfd.presets.gateway.http_rules import RuleBackend
from pyconfd.presets.gateway.listeners import Found, Lookup, decide_listeners
from pyconfd.presets.gateway.mirror import script_file
from pyconfd.presets.gateway.policies import Policies, decide_policies
from pyconfd.presets.gateway.ports import Port, frontend, ports_of
from pyconfd.presets.gateway.routes import (
    ROUTES,
    Route,
    RouteDecision,
    RouteInputs,
    decide,
    is_wide,
    rules_below,
    same_request,
)
from pyconfd.presets.gateway.status import CONTROLLER, ancestor_status, object_status
from pyconfd.presets.gateway.work import RouteWork, beyond_budget
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, PresetResult, Translation
from pyconfd.presets.routing.table import RoutingTable

if TYPE_CHECKING:
    from pyconfd.presets.routing.types import RouteRule

_MOST_ANCESTORS = 16
"""Source: the CRD of BackendTLSPolicy."""

_Routes = Mapping[StatusOf, RouteDecision]
_At = tuple[str, str]
"""A frontend and a listener of it."""


@dataclass(frozen=True, slots=True)
class _GatewayState:
    """What a result was made of, and its parts.

    ``users`` are the routes that refer to a Service, ``members`` those that are served at a frontend, ``attached`` the
    numbers of routes by Gateway and listener.
    """

    inputs: RouteInputs
    ports: Mapping[str, Port]
    routes: _Routes
    users: Mapping[Key, frozenset[StatusOf]]
    members: Mapping[str, frozenset[StatusOf]]
    attached: Mapping[Key, Mapping[str, int]]
    table: RoutingTable
    backends: Mapping[str, RuleBackend]
    frontends: Mapping[str, GatewayFrontend]
    statuses: Mapping[StatusOf, ObjectStatus]
    refused: SortedRefusals = NO_REFUSALS
    claimed: int = 0
    files: tuple[OutputFile, ...] = ()
    mirrored: int = 0
    hosts: Mapping[_At, Mapping[str, int]] = field(default_factory=dict)
    wide: Mapping[_At, frozenset[StatusOf]] = field(default_factory=dict)
    presented: Mapping[str, PresentedCertificate] = field(default_factory=dict)
    owners: Owners = field(default_factory=lambda: VersionedDict({}))


def _nothing(cluster: str, options: PresetOptions) -> _GatewayState:
    empty = RouteInputs(nothing_read(cluster), options, {}, Grants(), Policies())
    return _GatewayState(
        empty, {}, {}, {}, {}, {}, RoutingTable(), VersionedDict({}), VersionedDict({}), VersionedDict({})
    )  # fmt: skip


def _inputs_of(cluster: Cluster, options: PresetOptions, former: RouteInputs) -> RouteInputs:
    """Return all that routes are decided by; a part that is equal is the former one."""
    snapshot, before = cluster.snapshot, former.cluster.snapshot
    same_grants = not differing(before.referencegrants, snapshot.referencegrants)
    grants = former.grants if same_grants else grants_of(snapshot.referencegrants)
    same = same_grants and options == former.options and _same_basis(cluster, former.cluster)
    if same and not (before.backendtlspolicies or snapshot.backendtlspolicies):
        return RouteInputs(cluster, former.options, former.gateways, grants, former.policies)

    def secret(key: Key) -> Found:
        found = certificate_for(cluster, options.tls, key.namespace, key.name, ())
        pem = found.file.content if found.file is not None else ""
        return Found(pem, found.path, found.fault, found)

    def bundle(key: Key) -> Found:
        return ca_bundle(cluster.snapshot.config_maps, key)

    lookup = Lookup(secret, bundle, grants)
    gateways: Mapping[Key, GatewayDecision] = {
        key: decide_gateway(
            gateway,
            decide_listeners(gateway, lookup, _taken(key, cluster, options)),
            cluster.addresses.of(Resource.GATEWAYS, key),
            lookup,
            snapshot.host,
        )
        for key, gateway in sorted(snapshot.gateways.items())
        if _is_accepted(cluster, gateway.spec.gateway_class_name)
    }
    gateways = {key: old if (old := former.gateways.get(key)) == new else new for key, new in gateways.items()}
    if gateways.keys() == former.gateways.keys() and all(map(is_, gateways.values(), former.gateways.values())):
        gateways = former.gateways
    policies = decide_policies(snapshot.backendtlspolicies, cluster, bundle, options.tls.directory)
    return RouteInputs(cluster, options, gateways, grants, former.policies if policies == former.policies else policies)


def _same_basis(cluster: Cluster, former: Cluster) -> bool:
    """Return whether all that Gateways are decided by is the same."""
    now, before = cluster.snapshot, former.snapshot
    return (
        not differing(before.gatewayclasses, now.gatewayclasses)
        and not differing(before.gateways, now.gateways)
        and not differing(before.config_maps, now.config_maps)
        and now.denied == before.denied
        and cluster.secrets is former.secrets
        and cluster.addresses.assigned is former.addresses.assigned
        and now.host.addressing == before.host.addressing
    )


def _is_accepted(cluster: Cluster, name: str) -> bool:
    found = cluster.snapshot.gatewayclasses.get(Key("", name))
    return found is not None and is_mine(found) and class_fault(found) is None


def _taken(key: Key, cluster: Cluster, options: PresetOptions) -> Any:
    addresses = cluster.addresses.of(Resource.GATEWAYS, key).addresses

    def taken(port: int) -> str:
        if wrong := options.claims.port(key.namespace, port):
            return wrong
        holders = (options.holder(Listener.at(address, port)) for address in addresses)
        return next(filter(None, holders), "")

    return taken


class _Reading:
    """One reading: the parts of the former result that do not hold any more are made again."""

    def __init__(self, inputs: RouteInputs, former: _GatewayState) -> None:
        self.inputs, self.former = inputs, former
        self.routes = dict(former.routes)
        self.changed: dict[StatusOf, RouteDecision | None] = {}
        """The routes that are decided otherwise; None for one that is gone."""

    def decide(self) -> None:
        """Decide about the routes that changed, or whose Services or inputs did."""
        inputs, former = self.inputs, self.former
        same_inputs = _same_for_routes(inputs, former.inputs)
        changed_gateways = set(differing(former.inputs.gateways, inputs.gateways))
        services = inputs.cluster.changed_since(former.inputs.cluster)
        by_services = {id_ for key in services for id_ in former.users.get(key, ())}
        by_inputs: set[StatusOf] = set()
        if not same_inputs:
            by_inputs.update(former.routes)
        elif changed_gateways:
            by_inputs.update(id_ for id_, each in former.routes.items() if _names_one_of(each, changed_gateways))
        for resource in ROUTES:
            before: Mapping[Key, Route] = getattr(former.inputs.cluster.snapshot, resource.field)
            objects: Mapping[Key, Route] = getattr(inputs.cluster.snapshot, resource.field)
            again = {id_.key for id_ in by_services | by_inputs if id_.resource is resource}
            for key in sorted({*again, *differing(before, objects)}):
                id_ = StatusOf(resource, key)
                known = former.routes.get(id_)
                if key not in objects:
                    if known is not None:
                        self.changed[id_] = None
                        del self.routes[id_]
                elif key in again or known is None or not same_request(known.route, objects[key]):
                    over: frozenset[int] = known.over if known is not None else frozenset()
                    self._decide(id_, objects[key], known, same_inputs=id_ not in by_inputs, over=over)
        self._limit_work()

    def _decide(
        self, id_: StatusOf, route: Route, known: RouteDecision | None, *, same_inputs: bool, over: frozenset[int]
    ) -> None:
        self.routes[id_] = self.changed[id_] = decide(
            id_, route, self.inputs, known, same_inputs=same_inputs, over=over
        )

    def _limit_work(self) -> None:
        """Leave out the rules whose conditions would take too long, and take up those that do not any more."""
        both = (each for id_, now in self.changed.items() for each in (self.former.routes.get(id_), now))
        touched = {each.ref.namespace for each in both if each is not None and any(each.work)}
        routes = {
            id_: RouteWork(each.ref.namespace, each.rank, frozenset(at[:2] for at in each.sites), each.work)
            for id_, each in (self.routes.items() if touched else ())
            if each.ref.namespace in touched and any(each.work)
        }
        over = beyond_budget(routes)
        for id_ in routes:
            numbers, known = over.get(id_, frozenset()), self.routes[id_]
            if known.over != numbers:
                self._decide(id_, known.route, known, same_inputs=True, over=numbers)

    def users(self) -> Mapping[Key, frozenset[StatusOf]]:
        """Return the routes by the Services that they refer to."""
        return self._index(self.former.users, lambda route: route.services)

    def members(self) -> Mapping[str, frozenset[StatusOf]]:
        """Return the routes by the frontends that lead to them."""
        return self._index(self.former.members, lambda route: frozenset(at.frontend for at in route.sites))

    def _index(self, former: Mapping[Any, frozenset[StatusOf]], of: Any) -> Mapping[Any, frozenset[StatusOf]]:
        updated: dict[Any, set[StatusOf]] = {}
        for id_, now in self.changed.items():
            before = self.former.routes.get(id_)
            old = of(before) if before is not None else frozenset()
            new = of(now) if now is not None else frozenset()
            for key in old ^ new:
                members = updated.setdefault(key, set(former.get(key, ())))
                members.symmetric_difference_update((id_,))
        if not updated:
            return former
        found = {**former, **{key: frozenset(members) for key, members in updated.items()}}
        return {key: members for key, members in found.items() if members}

    def attached(self) -> Mapping[Key, Mapping[str, int]]:
        """Return how many routes are attached to each listener."""
        counts: dict[Key, Counter[str]] = {}
        for id_, now in self.changed.items():
            before = self.former.routes.get(id_)
            if before is not None and now is not None and before.parents is now.parents:
                continue
            for sign, route in ((-1, before), (1, now)):
                for gateway, listener in _attachments(route):
                    count = counts.setdefault(gateway, Counter(self.former.attached.get(gateway, {})))
                    count[listener] += sign
        return {**self.former.attached, **counts} if counts else self.former.attached

    def hosts(self) -> Mapping[_At, Mapping[str, int]]:
        """Return the hosts of requests that each listener has, with the number of routes for each."""
        counts: dict[_At, Counter[str]] = {}
        for id_, now in self.changed.items():
            before = self.former.routes.get(id_)
            if not _is_of_requests(id_) or (before is not None and now is not None and before.sites is now.sites):
                continue
            for sign, route in ((-1, before), (1, now)):
                for at in route.sites if route is not None else ():
                    where = at.frontend, at.listener
                    count = counts.setdefault(where, Counter(self.former.hosts.get(where, {})))
                    count[at.host] += sign
        found = {where: {host: count for host, count in each.items() if count} for where, each in counts.items()}
        return {**self.former.hosts, **found} if found else self.former.hosts

    def wide(self) -> Mapping[_At, frozenset[StatusOf]]:
        """Return the routes of requests by the listeners where they have wildcards, or any host."""
        return self._index(
            self.former.wide,
            lambda route: (
                frozenset((at.frontend, at.listener) for at in route.sites if is_wide(at.host))
                if _is_of_requests(route.id)
                else frozenset()
            ),
        )

    def table(self, hosts: Mapping[_At, Mapping[str, int]], wide: Mapping[_At, frozenset[StatusOf]]) -> RoutingTable:
        """Return the table of paths with the rules of the changed routes.

        A route for a wildcard has the requests for a host below it that none of the host's own routes matches.
        """
        rules: dict[Hashable, tuple[RouteRule, ...]] = {}
        stale = {
            id_
            for id_, now in self.changed.items()
            if (before := self.former.routes.get(id_)) is None or now is None or before.rules is not now.rules
        }
        for where in differing(self.former.hosts, hosts):
            if self.former.hosts.get(where, {}).keys() != hosts.get(where, {}).keys():
                stale |= wide.get(where, frozenset())
        for id_ in stale:
            now = self.routes.get(id_)
            served = now is not None and _is_of_requests(id_)
            rules[id_] = (*now.rules, *rules_below(now, hosts)) if now is not None and served else ()
        return self.former.table.updated(rules) if rules else self.former.table

    def backends(self, table: RoutingTable) -> Mapping[str, RuleBackend]:
        """Return all sections of rules, with the entries of the table that lead to them."""
        former = self.former
        replaced: dict[str, RuleBackend] = {}
        gone: set[str] = set()
        for id_, now in self.changed.items():
            before = former.routes.get(id_)
            old = {each.name: each for each in before.backends} if before is not None else {}
            new = {each.name: each for each in now.backends} if now is not None else {}
            gone |= old.keys() - new.keys()
            replaced.update((name, each) for name, each in new.items() if old.get(name) is not each)
        for route in differing(former.table.entries, table.entries):
            name = _entered_at(route, replaced, former.backends)
            found = replaced.get(name) or former.backends.get(name)
            if found is not None and name not in gone:
                replaced[name] = found
        made = {
            name: msgspec.structs.replace(each, entries=table.entries.get(each.route, ()))
            for name, each in replaced.items()
        }
        if gone or not former.backends.keys() >= made.keys():
            found_all = {**former.backends, **made}
            return VersionedDict({name: found_all[name] for name in sorted(found_all) if name not in gone})
        return with_values(former.backends, made)

    def frontends(self, ports: Mapping[str, Port], table: RoutingTable, members: Any) -> Mapping[str, GatewayFrontend]:
        """Return the frontends; those are made again whose hosts, conditions or listeners changed."""
        former = self.former
        stale = {name for name, port in ports.items() if former.ports.get(name) != port}
        stale.update(site.partition("|")[0] for site in differing(former.table.groups, table.groups))
        for id_, now in self.changed.items():
            before = former.routes.get(id_)
            if before is None or now is None or before.sites is not now.sites or _choices(before) != _choices(now):
                stale.update(at.frontend for route in (before, now) if route is not None for at in route.sites)
        made = {}
        for name in stale & ports.keys():
            routes = [self.routes[id_] for id_ in sorted(members.get(name, ()))]
            found = frontend(ports[name], routes, table, former.frontends.get(name))
            if found is not former.frontends.get(name):
                made[name] = found
        if former.frontends.keys() == ports.keys():
            return with_values(former.frontends, made)
        return VersionedDict({name: made[name] if name in made else former.frontends[name] for name in sorted(ports)})

    def owners(self, ports: Mapping[str, Port]) -> Owners:
        """Return whose each section is, so that the reloads for new ones are put down to its namespace."""
        found: dict[Name, Owner | None] = {}
        for id_, now in self.changed.items():
            before = self.former.routes.get(id_)
            found.update((Name(each.name, ""), None) for each in (before.backends if before is not None else ()))
            if now is not None:
                found.update((Name(each.name, ""), now.owner) for each in now.backends)
        if ports is not self.former.ports:
            found.update((Name(name, ""), None) for name in self.former.ports)
            found.update((Name(name, ""), port.gateway.owner) for name, port in ports.items())
        return replaced(self.former.owners, found)

    def statuses(self, attached: Mapping[Key, Mapping[str, int]], users: Any) -> Mapping[StatusOf, ObjectStatus]:
        """Return what the status of each object shall say."""
        inputs, former = self.inputs, self.former
        found: dict[StatusOf, ObjectStatus | None] = {}
        classes, known = inputs.cluster.snapshot.gatewayclasses, former.inputs.cluster.snapshot.gatewayclasses
        for key in differing(known, classes):
            mine = key in classes and is_mine(classes[key])
            found[StatusOf(Resource.GATEWAYCLASSES, key)] = class_status(classes[key]) if mine else None
        for key in {*former.inputs.gateways, *inputs.gateways}:
            gateway, count = inputs.gateways.get(key), attached.get(key, {})
            same_count = former.attached.get(key, {}) == count
            if gateway is None or gateway is not former.inputs.gateways.get(key) or not same_count:
                made = gateway_status(gateway, count) if gateway is not None else None
                found[StatusOf(Resource.GATEWAYS, key)] = made
        found.update((id_, now.status if now is not None else None) for id_, now in self.changed.items())
        for key in {*former.inputs.policies.decisions, *inputs.policies.decisions}:
            found[StatusOf(Resource.BACKENDTLSPOLICIES, key)] = self._policy_status(key, users)
        replaced = {id_: now for id_, now in found.items() if now is not None and former.statuses.get(id_) != now}
        gone = {id_ for id_, now in found.items() if now is None and id_ in former.statuses}
        if gone or not former.statuses.keys() >= replaced.keys():
            together = {**former.statuses, **replaced}
            return VersionedDict({id_: each for id_, each in together.items() if id_ not in gone})
        return with_values(former.statuses, replaced)

    def _policy_status(self, key: Key, users: Mapping[Key, frozenset[StatusOf]]) -> ObjectStatus | None:
        """Return the status of a policy: an entry for each Gateway that leads to a Service of it."""
        policy = self.inputs.policies.decisions.get(key)
        if policy is None:
            return None
        gateways = {
            gateway
            for service in policy.services
            for id_ in users.get(service, ())
            for gateway, _ in _attachments(self.routes[id_])
        }
        ancestors = [
            ancestor_status(*gateway, policy.conditions, policy.meta.generation)
            for gateway in sorted(gateways)[:_MOST_ANCESTORS]
        ]
        return object_status(policy.meta, {"ancestors": ancestors}, CONTROLLER)

    def refused(self) -> tuple[tuple[Refusal, ...], ...]:
        """Return the refusals of all objects, the very tuples of before where nothing is new."""
        parts = self.former.refused.parts
        same_routes = all(
            (before.refused if (before := self.former.routes.get(id_)) is not None else ())
            == (now.refused if now is not None else ())
            for id_, now in self.changed.items()
        )
        same_inputs = self.inputs.gateways is self.former.inputs.gateways and (
            self.inputs.policies is self.former.inputs.policies
        )
        former, current = self.former.inputs.cluster.snapshot, self.inputs.cluster.snapshot
        same_inputs = same_inputs and not differing(former.gateways, current.gateways)
        if parts and same_routes and same_inputs and self.inputs.same_classes(self.former.inputs):
            return parts
        return tuple(_refused_by(self.inputs)), tuple(each for route in self.routes.values() for each in route.refused)


def _entered_at(route: str, *sections: Mapping[str, RuleBackend]) -> str:
    """Return the section that has the entries of a route of the table."""
    if any(route in each for each in sections):
        return route
    return next((name for each in sections for name, made in each.items() if made.route == route), route)


def _is_of_requests(id_: StatusOf) -> bool:
    return id_.resource in {Resource.HTTPROUTES, Resource.GRPCROUTES}


def _choices(route: RouteDecision) -> list[Any]:
    return [made.choices for made in route.served]


def _attachments(route: RouteDecision | None) -> set[tuple[Key, str]]:
    if route is None:
        return set()
    return {(each.gateway, each.listener) for parent in route.parents for each in parent.attachments}


def _names_one_of(route: RouteDecision, gateways: set[Key]) -> bool:
    return any(parent_key(route.id.key, each) in gateways for each in route.route.spec.parent_refs or ())


def _same_for_routes(inputs: RouteInputs, former: RouteInputs) -> bool:
    """Return whether nothing but Gateways and Services can make a route another one."""
    now, before = inputs.cluster, former.cluster
    return (
        inputs.options == former.options
        and inputs.grants is former.grants
        and inputs.policies is former.policies
        and not differing(before.snapshot.namespaces, now.snapshot.namespaces)
        and (now.view.nodes is before.view.nodes or not inputs.options.node_ports)
    )


def _refused_by(inputs: RouteInputs) -> Iterator[Refusal]:
    snapshot = inputs.cluster.snapshot
    cluster, classes = snapshot.cluster, snapshot.gatewayclasses
    for key, found in snapshot.gateways.items():
        if is_misspelled(found, classes):
            ref = ObjectRef("Gateway", values.shown(key.namespace), values.shown(key.name), cluster)
            detail = mistaken_class(found, classes)
            yield Refusal(ref, "spec.gatewayClassName", "", RefusalReason.UNKNOWN_CLASS, detail)
    for key, each in classes.items():
        fault = class_fault(each) if is_mine(each) else None
        if fault is not None:
            yield fault.refusal(ObjectRef("GatewayClass", "", key.name, cluster))
    for key, gateway in inputs.gateways.items():
        yield from (fault.refusal(ObjectRef("Gateway", *key, cluster)) for fault in gateway.faults)
        yield from _notes_of(gateway, ObjectRef("Gateway", *key, cluster))
    for key, policy in inputs.policies.decisions.items():
        yield from (fault.refusal(ObjectRef("BackendTLSPolicy", *key, cluster)) for fault in policy.faults)


def _notes_of(gateway: GatewayDecision, ref: ObjectRef) -> Iterator[Refusal]:
    """Return what is to be known of the certificates of listeners; one of several has to name the host."""
    for listener in gateway.listeners:
        field = f"listener {listener.name}"
        found = [each.served for each in listener.certificates]
        named = any(is_named(each, listener.hostname) for each in found)
        for each in found:
            host = "" if named else listener.hostname
            yield from notes_on(each, ref, (f"{field} tls.certificateRefs", f"{field} hostname"), host)


def _presented(gateways: Mapping[Key, GatewayDecision]) -> Mapping[str, PresentedCertificate]:
    found = {
        f"{key.namespace}/{key.name}/{listener.name}/{number}": presented(each.served, listener.hostname or "*")
        for key, gateway in gateways.items()
        for listener in gateway.listeners
        for number, each in enumerate(listener.certificates)
    }
    return {name: each for name, each in found.items() if each is not None}


def _files(inputs: RouteInputs, ports: Iterable[Port]) -> tuple[OutputFile, ...]:
    """Return the certificates of listeners, and what clients and servers are verified with."""
    found: set[OutputFile] = set()
    for port in ports:
        listeners = [each for each in port.listeners if each.is_programmed]
        pairs = {(each.path, each.pem) for listener in listeners for each in listener.certificates}
        found.update(OutputFile(FileKind.CERTIFICATE, path, pem) for path, pem in pairs)
        if port.ca_file is not None:
            found.add(port.ca_file)
        if (shown := port.gateway.client_certificate) is not None:
            found.add(OutputFile(FileKind.CERTIFICATE, shown.path, shown.pem))
    bundles = (each.bundle for each in inputs.policies.decisions.values() if each.bundle[0])
    found.update(OutputFile(FileKind.CERTIFICATE, path, pem) for path, pem in bundles)
    return tuple(sorted(found))


def _addresses_of(backend: RuleBackend) -> list[str]:
    return [each.address for each in backend.servers if each.state == "ready"]


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

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return ``gateway``: the frontends of Gateways' ports, and the backends of routes' rules, each by its name."""
        memo = former.memo if former else None
        if not isinstance(memo, _GatewayState) or memo.inputs.cluster.view.name != cluster.view.name:
            memo = _nothing(cluster.view.name, options)
        inputs = _inputs_of(cluster, options, memo.inputs)
        reading = _Reading(inputs, memo)
        reading.decide()
        directory = options.tls.directory
        ports: Mapping[str, Port] = memo.ports
        if inputs.gateways is not memo.inputs.gateways:
            ports = {port.name: port for each in inputs.gateways.values() for port in ports_of(each, directory)}
        users, members, attached = reading.users(), reading.members(), reading.attached()
        hosts, wide = reading.hosts(), reading.wide()
        table = reading.table(hosts, wide)
        backends = reading.backends(table)
        frontends = reading.frontends(ports, table, members)
        statuses, owners = reading.statuses(attached, users), reading.owners(ports)
        refused = memo.refused.of(*reading.refused())
        claimed, mirrored = memo.claimed, memo.mirrored
        for name in differing(memo.backends, backends):
            for sign, found in ((1, backends.get(name)), (-1, memo.backends.get(name))):
                claimed += sign * len(_addresses_of(found)) if found is not None else 0
                mirrored += sign * bool(found is not None and found.mirrors)
        shown = memo.presented if inputs.gateways is memo.inputs.gateways else _presented(inputs.gateways)
        same_files = ports is memo.ports and inputs.policies is memo.inputs.policies
        files = memo.files if same_files else _files(inputs, ports.values())
        script = (script_file(directory),) if mirrored else ()
        given = GivenDict(frontends=frontends, backends=backends, mirror_script=script[0].path if script else "")
        return PresetResult(
            {"gateway": given},
            refused.refused,
            claimed,
            _listeners(ports.values()),
            files=files + script,
            serves=backends,
            addresses_of=_addresses_of,
            owners=owners,
            reserves=NO_OWNERS,
            statuses=statuses,
            certificates=shown,
            memo=_GatewayState(
                inputs, ports, reading.routes, users, members, attached, table, backends, frontends, statuses, refused,
                claimed, files, mirrored, hosts, wide, shown, owners,
            ),
        )  # fmt: skip

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


def _listeners(ports: Iterable[Port]) -> Mapping[Listener, Owner]:
    return {
        Listener.at(address, port.number): port.gateway.owner for port in ports for address in port.gateway.addresses
    }
