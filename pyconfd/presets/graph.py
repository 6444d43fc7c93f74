"""The presets' collections in one graph."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pyconfd.derived import Joined, Published, SameParts, Spread
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import PresetName, Refusal
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, Name, Owner, Owners, Reservations
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.versioned import GivenDict, VersionedDict, differing
from pyconfd.presets import host_ownership
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.certificates import ServedCertificate
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.domains import DomainClaims, ServedDomains
from pyconfd.presets.gateway.frontends import GatewayFrontend
from pyconfd.presets.gateway.http_rules import RuleBackend
from pyconfd.presets.gateway.mirror import script_file
from pyconfd.presets.gateway.policies import PolicyDecision
from pyconfd.presets.gateway.ports import Port, files_of, listeners_of
from pyconfd.presets.gateway.preset import claims as gateway_claims
from pyconfd.presets.gateway.routes import AskedRoute, frontend_name
from pyconfd.presets.gateway.serving import AskedGateway, RuleSection, ServedGateways, gateways_asked
from pyconfd.presets.gateway.serving import addresses_of as addresses_of_rule
from pyconfd.presets.host_ownership import Hosts
from pyconfd.presets.ingress.claims import IngressClaim, name_of
from pyconfd.presets.ingress.preset import claims as ingress_claims
from pyconfd.presets.ingress.serving import CertificateLine, IngressClaims, ServedIngresses, addresses_of
from pyconfd.presets.listener_ownership import ListenerOwners
from pyconfd.presets.objects import ROUTES, Objects
from pyconfd.presets.preset import Preset, PresetCollections, PresetOptions, PresetResult
from pyconfd.presets.refusals import JoinedRefusals, faults
from pyconfd.presets.routing.types import RouteBackend, Site
from pyconfd.presets.shared_sites import named_sites


class PresetGraph:
    """All collections of presets, for one cluster. It belongs to one thread.

    Of one cluster it may be asked again and again in any order: what is returned is that of the last one seen.
    ``presets`` are those of which it may be asked beside the ones that share frontends with each other.
    """

    def __init__(self, cluster: str, presets: Iterable[Preset] = ()) -> None:
        self.objects = objects = Objects(cluster)
        self.graph = objects.graph
        self.addresses = AddressOwners(objects)
        # Presets ask first: for hosts, then for places to listen. Then each serves what it was given.
        self._domain_claims = DomainClaims(objects)
        claimed = IngressClaims(objects)
        self.hosts = Hosts(Joined[Any, Any](self._domain_claims.hosts, claimed.hosts, name="claims of hosts"))
        self.ingresses = ServedIngresses(objects, claimed, self.hosts, self._domain_claims)
        domains = ServedDomains(objects, self._domain_claims, self.hosts, self.ingresses.paths)
        self._presets: dict[str, PresetCollections] = {
            PresetName.DOMAINS: domains,
            PresetName.INGRESS: _Ingresses(claimed, self.ingresses),
            PresetName.GATEWAY: _Gateways(objects, self.addresses),
        }
        made = ((preset.name, preset.collections(objects, self.addresses)) for preset in presets)
        self._presets |= {name: collections for name, collections in made if collections is not None}
        asked = {name: each.listeners for name, each in self._presets.items() if each.listeners is not None}
        self.listeners = ListenerOwners(self.graph, asked)
        for each in self._presets.values():
            each.serve(self.listeners)
        self._named = Published[str, Site](named_sites(self.hosts, self.ingresses.sites))
        self._reserved: Reservations = VersionedDict({})
        self.faults: tuple[Refusal, ...] = ()
        """What raised an exception, of the last round; the same object where it is equal."""

    def see(self, snapshot: Snapshot, options: PresetOptions, names: Sequence[str], had: Owners = NO_OWNERS) -> Cluster:
        """Bring all up to a Snapshot and options, and return what was read of the cluster.

        ``names`` are the presets in use, ``had`` the addresses of the pool that objects had before.
        """
        self.objects.see(snapshot, options, names)
        domains = PresetName.DOMAINS in names
        are_both = domains and PresetName.INGRESS in names
        self._domain_claims.come_first.set(
            are_both and names.index(PresetName.DOMAINS) < names.index(PresetName.INGRESS)
        )
        self._domain_claims.see(snapshot.services if domains else {}, snapshot.endpoints if domains else {})
        for name, each in self._presets.items():
            each.see(snapshot, options, in_use=name in names)
        self.addresses.see(options, had, names)
        self.listeners.see(options)
        reserved = options.reservations_of(host_ownership.SCOPE)
        moved = differing(self._reserved, reserved)
        self.hosts.reservations.replace({name.name: reserved.get(name) for name in moved})
        self.hosts.shared.set(options.claims.shared_hosts)
        self._reserved = reserved
        self.graph.settle()
        if self.addresses.catch_up():
            self.graph.settle()
        found = faults(self.graph, self.objects.cluster) if self.graph.faults else ()
        if found != self.faults:
            self.faults = found
        return self.objects.read.cluster()

    def named_sites(self) -> Mapping[str, Site]:
        """Return the sites of hosts of the shared frontends that are named and not served."""
        return self._named.mapping()

    def result(self, name: str) -> PresetResult:
        """Return what a preset makes of the cluster."""
        return self._presets[name].result()


class _Ingresses(PresetCollections):
    """Ingresses, which listen nowhere by themselves: the shared frontends do."""

    def __init__(self, claimed: IngressClaims, ingresses: ServedIngresses) -> None:
        self._ingresses = ingresses
        self._asked = Published[Key, IngressClaim](claimed.claims)
        self._sites = Published[str, Site](ingresses.sites)
        self._backends = Published[str, RouteBackend](ingresses.backends)
        self._lines = Published[str, CertificateLine](ingresses.lines, key=lambda key: f"{key.namespace}/{key.name}")
        self._owners = Published[Name, Owner](
            ingresses.paths, key=name_of, rank=None, value=lambda path: path.winners[0].owner if path.winners else None
        )
        self._statuses = Published[ObjectKey, ObjectStatus](
            ingresses.statuses, key=lambda key: ObjectKey(Resource.INGRESSES, key), rank=None
        )
        self._presented = Published[str, PresentedCertificate](ingresses.presented, rank=None)
        self._refused = JoinedRefusals(ingresses.refused)
        self._by_secret = Published[Key, ServedCertificate](ingresses.served, rank=None)
        self._files = SameParts[tuple[OutputFile, ...]]()

    def see(self, snapshot: Snapshot, options: PresetOptions, *, in_use: bool) -> None:
        """Nothing is its own."""

    def result(self) -> PresetResult:
        """Return ``ingress``: its sites, backends and certificates."""
        ingresses = self._ingresses
        served = self._by_secret.mapping()
        backends, lines, sites = self._backends.mapping(), self._lines.mapping(), self._sites.mapping()
        owners = self._owners.mapping()
        return PresetResult(
            {"ingress": GivenDict(sites=sites, backends=backends, certificates=lines)},
            self._refused.all(),
            ingresses.ready.items.get((), 0),
            partial(ingress_claims, self._asked.mapping(), owners, backends),
            files=self._files.made((served,), lambda: tuple(each.file for each in served.values() if each.file)),
            serves=backends,
            addresses_of=addresses_of,
            ends_tls=bool(ingresses.asking.items),
            owners=owners,
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
            certificates=self._presented.mapping(),
        )


class _Gateways(PresetCollections):
    """The Gateway API."""

    def __init__(self, objects: Objects, addresses: AddressOwners) -> None:
        self._objects, self._addresses = objects, addresses
        self._directory = ""
        asked = gateways_asked(objects, addresses)
        self.listeners = Spread(asked, lambda _, each: enumerate(each.listeners), "listeners that Gateways ask for")
        self._asked = Published[ObjectKey, AskedGateway](asked)

    def see(self, snapshot: Snapshot, options: PresetOptions, *, in_use: bool) -> None:
        """Record where files with certificates are."""
        del snapshot, in_use
        self._directory = options.tls.directory

    def serve(self, owners: ListenerOwners) -> None:
        """Make all that is served."""
        self._gateways = gateways = ServedGateways(self._objects, self._addresses, owners)
        self._routes = Published[ObjectKey, AskedRoute](gateways.asked, rank=_rank_of_route)
        self._ports = Published[str, Port](gateways.ports, key=_port_name)
        self._frontends = Published[str, GatewayFrontend](gateways.frontends, key=_port_name)
        sections = Joined[Any, RuleBackend](gateways.profiles, gateways.backends, name="sections of Gateways")
        self._backends = Published[str, RuleBackend](sections, key=lambda at: at[1])
        self._owners = Published[Name, Owner](
            Joined[Any, Any](gateways.sections, gateways.ports, name="owners of sections"),
            key=lambda at: Name(at[1] if isinstance(at[1], str) else _port_name(at), ""),
            rank=None,
            value=lambda each: each.owner if isinstance(each, RuleSection) else each.gateway.owner,
        )
        self._statuses = Published[ObjectKey, ObjectStatus](gateways.statuses, rank=None)
        self._policies = Published[ObjectKey, PolicyDecision](gateways.policies)
        self._presented = Published[str, PresentedCertificate](gateways.presented, key=lambda at: at[1], rank=None)
        self._refused = JoinedRefusals(gateways.refused)
        self._files = SameParts[tuple[OutputFile, ...]]()
        self._listeners = SameParts[Mapping[Listener, Owner]]()

    def result(self) -> PresetResult:
        """Return ``gateway``: the frontends of Gateways' ports, and the backends of routes' rules, each by its name."""
        counts = self._gateways.counts.items
        ports, policies, backends = self._ports.mapping(), self._policies.mapping(), self._backends.mapping()
        frontends, owners = self._frontends.mapping(), self._owners.mapping()
        files = self._files.made((ports, policies), lambda: files_of(ports.values(), policies.values()))
        script = script_file(self._directory) if counts.get("mirrored") else None
        given = GivenDict(
            frontends=frontends,
            backends=backends,
            profiles=len(self._gateways.profiles.items),
            mirror_script=script.path if script else "",
        )
        return PresetResult(
            {"gateway": given},
            self._refused.all(),
            counts.get("ready", 0),
            partial(gateway_claims, self._asked.mapping(), self._routes.mapping(), owners, frontends, backends),
            self._listeners.made((ports,), lambda: listeners_of(ports.values())),
            files=(*files, script) if script else files,
            serves=backends,
            addresses_of=addresses_of_rule,
            owners=owners,
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
            certificates=self._presented.mapping(),
        )


def _rank_of_route(id_: ObjectKey) -> tuple[int, Key]:
    return ROUTES.index(id_.resource), id_.key


def _port_name(at: tuple[ObjectKey, int]) -> str:
    return frontend_name(at[0].key, at[1])
