"""The presets' collections in one graph, and what the presets that are not part of it yet read of them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, Generic, TypeVar

from pyconfd.derived import Joined, Published
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import PresetName, Refusal
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectStatus, StatusOf
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, Name, Owner, Owners, Reservations
from pyconfd.model.snapshot import Key, Resource
from pyconfd.model.versioned import GivenDict, VersionedDict, differing
from pyconfd.presets import host_ownership
from pyconfd.presets.certificates import ServedCertificate
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.domains import DomainClaims, DomainsResult, ServedDomains
from pyconfd.presets.gateway.frontends import GatewayFrontend
from pyconfd.presets.gateway.http_rules import RuleBackend
from pyconfd.presets.gateway.mirror import script_file
from pyconfd.presets.gateway.policies import PolicyDecision
from pyconfd.presets.gateway.ports import Port, files_of, listeners_of
from pyconfd.presets.gateway.routes import frontend_name
from pyconfd.presets.gateway.serving import RuleSection, ServedGateways
from pyconfd.presets.gateway.serving import addresses_of as addresses_of_rule
from pyconfd.presets.host_ownership import Hosts
from pyconfd.presets.ingress.claims import name_of
from pyconfd.presets.ingress.serving import CertificateLine, IngressClaims, ServedIngresses, addresses_of
from pyconfd.presets.objects import Objects
from pyconfd.presets.preset import PresetOptions, PresetResult
from pyconfd.presets.routing.types import RouteBackend, Site
from pyconfd.presets.shared_sites import named_sites

_V = TypeVar("_V")


class PresetGraph:
    """All collections of presets, for one cluster. It belongs to one thread.

    Of one cluster it may be asked again and again in any order: what is returned is that of the last one seen.
    """

    def __init__(self, cluster: str) -> None:
        self.objects = objects = Objects(cluster)
        self.graph = objects.graph
        self._domain_claims = DomainClaims(objects)
        claimed = IngressClaims(objects)
        self.hosts = Hosts(Joined[Any, Any](self._domain_claims.hosts, claimed.hosts, name="claims of hosts"))
        self.ingresses = ServedIngresses(objects, claimed, self.hosts, self._domain_claims)
        self._domains = ServedDomains(objects, self._domain_claims, self.hosts, self.ingresses.paths)
        named = named_sites(self.hosts, self.ingresses.sites)
        self._named = Published[str, Site](named)
        self._ingress_result = _IngressResult(self.ingresses)
        self.gateways = ServedGateways(objects)
        self._gateway_result = _GatewayResult(self.gateways)
        self._domains_result = DomainsResult(self._domains)
        self._reserved: Reservations = VersionedDict({})

    def see(self, cluster: Cluster, options: PresetOptions, names: Sequence[str]) -> Owners:
        """Bring all up to a cluster and options, and return who has which host; ``names`` are the presets in use."""
        self.objects.see(cluster, options, names)
        snapshot, domains = cluster.snapshot, PresetName.DOMAINS in names
        are_both = domains and PresetName.INGRESS in names
        self._domain_claims.come_first.set(
            are_both and names.index(PresetName.DOMAINS) < names.index(PresetName.INGRESS)
        )
        self._domain_claims.see(snapshot.services if domains else {}, snapshot.endpoints if domains else {})
        self._domains.see(options)
        reserved = options.reservations_of(host_ownership.SCOPE)
        moved = differing(self._reserved, reserved)
        self.hosts.reservations.replace({name.name: reserved.get(name) for name in moved})
        self.hosts.shared.set(options.claims.shared_hosts)
        self._reserved = reserved
        self.graph.settle()
        return self.hosts.owners()

    def named_sites(self) -> Mapping[str, Site]:
        """Return the sites of hosts of the shared frontends that are named and not served."""
        return self._named.mapping()

    def domains(self, options: PresetOptions) -> PresetResult:
        """Return what the preset ``domains`` makes of the cluster without listeners that others have."""
        if self._domains.take(options):
            self.graph.settle()
        return self._domains_result.result()

    def ingress(self) -> PresetResult:
        """Return what the preset ``ingress`` makes of the cluster."""
        return self._ingress_result.result()

    def gateway(self, options: PresetOptions) -> PresetResult:
        """Return what the preset ``gateway`` makes of the cluster; ``options`` say which listeners are taken."""
        self.objects.listen(options)
        if self.objects.listening.waits:
            self.graph.settle()
        return self._gateway_result.result(options.tls.directory)


class _IngressResult:
    """The result of the preset, whose parts are the former objects where nothing changed."""

    def __init__(self, ingresses: ServedIngresses) -> None:
        self._ingresses = ingresses
        self._sites = Published[str, Site](ingresses.sites)
        self._backends = Published[str, RouteBackend](ingresses.backends)
        self._lines = Published[str, CertificateLine](ingresses.lines, key=lambda key: f"{key.namespace}/{key.name}")
        self._owners = Published[Name, Owner](
            ingresses.paths, key=name_of, rank=None, value=lambda path: path.winners[0].owner if path.winners else None
        )
        self._statuses = Published[StatusOf, ObjectStatus](
            ingresses.statuses, key=lambda key: StatusOf(Resource.INGRESSES, key), rank=None
        )
        self._presented = Published[str, PresentedCertificate](ingresses.presented, rank=None)
        self._by_object = Published[Key, tuple[Refusal, ...]](ingresses.refused)
        self._refused = _SameParts[tuple[Refusal, ...]]()
        self._by_secret = Published[Key, ServedCertificate](ingresses.served, rank=None)
        self._files = _SameParts[tuple[OutputFile, ...]]()

    def result(self) -> PresetResult:
        ingresses, by_object = self._ingresses, self._by_object.mapping()
        served = self._by_secret.mapping()
        backends, lines, sites = self._backends.mapping(), self._lines.mapping(), self._sites.mapping()
        return PresetResult(
            {"ingress": GivenDict(sites=sites, backends=backends, certificates=lines)},
            self._refused.made((by_object,), lambda: tuple(chain.from_iterable(by_object.values()))),
            ingresses.ready.items.get((), 0),
            files=self._files.made((served,), lambda: tuple(each.file for each in served.values() if each.file)),
            serves=backends,
            addresses_of=addresses_of,
            ends_tls=bool(ingresses.asking.items),
            owners=self._owners.mapping(),
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
            certificates=self._presented.mapping(),
        )


class _GatewayResult:
    """The result of the preset, whose parts are the former objects where nothing changed."""

    def __init__(self, gateways: ServedGateways) -> None:
        self._gateways = gateways
        self._ports = Published[str, Port](gateways.ports, key=_port_name)
        self._frontends = Published[str, GatewayFrontend](gateways.frontends, key=_port_name)
        self._backends = Published[str, RuleBackend](gateways.backends, key=lambda at: at[1])
        self._owners = Published[Name, Owner](
            Joined[Any, Any](gateways.sections, gateways.ports, name="owners of sections"),
            key=lambda at: Name(at[1] if isinstance(at[1], str) else _port_name(at), ""),
            rank=None,
            value=lambda each: each.owner if isinstance(each, RuleSection) else each.gateway.owner,
        )
        self._statuses = Published[StatusOf, ObjectStatus](gateways.statuses, rank=None)
        self._policies = Published[StatusOf, PolicyDecision](gateways.policies)
        self._presented = Published[str, PresentedCertificate](gateways.presented, key=lambda at: at[1], rank=None)
        self._by_object = Published[StatusOf, tuple[Refusal, ...]](gateways.refused)
        self._refused = _SameParts[tuple[Refusal, ...]]()
        self._files = _SameParts[tuple[OutputFile, ...]]()
        self._listeners = _SameParts[Mapping[Listener, Owner]]()

    def result(self, directory: str) -> PresetResult:
        """Return the result of this round; ``directory`` is where files with certificates are."""
        by_object, counts = self._by_object.mapping(), self._gateways.counts.items
        ports, policies, backends = self._ports.mapping(), self._policies.mapping(), self._backends.mapping()
        files = self._files.made((ports, policies), lambda: files_of(ports.values(), policies.values()))
        script = script_file(directory) if counts.get("mirrored") else None
        given = GivenDict(
            frontends=self._frontends.mapping(), backends=backends, mirror_script=script.path if script else ""
        )
        return PresetResult(
            {"gateway": given},
            self._refused.made((by_object,), lambda: tuple(chain.from_iterable(by_object.values()))),
            counts.get("ready", 0),
            self._listeners.made((ports,), lambda: listeners_of(ports.values())),
            files=(*files, script) if script else files,
            serves=backends,
            addresses_of=addresses_of_rule,
            owners=self._owners.mapping(),
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
            certificates=self._presented.mapping(),
        )


def _port_name(at: tuple[StatusOf, int]) -> str:
    return frontend_name(at[0].key, at[1])


class _SameParts(Generic[_V]):
    """What was made of the very same objects the last time."""

    def __init__(self) -> None:
        self._known: tuple[tuple[object, ...], _V] | None = None

    def made(self, parts: tuple[object, ...], make: Callable[[], _V]) -> _V:
        """Return what ``make`` returns, or returned for the same ``parts``."""
        if self._known is None or not all(map(is_, self._known[0], parts)):
            self._known = parts, make()
        return self._known[1]
