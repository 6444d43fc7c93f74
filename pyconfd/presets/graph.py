"""The presets' collections in one graph."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from pyconfd.derived import Joined, Published, SameParts
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import PresetName, Refusal
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, Name, Owner, Owners, Reservations
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.versioned import GivenDict, VersionedDict, differing
from pyconfd.presets import host_ownership
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.auth_services import AuthServices
from pyconfd.presets.certificates import ServedCertificate
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.domains import DomainClaims, ServedDomains
from pyconfd.presets.gateway.frontends import Choice
from pyconfd.presets.host_ownership import Hosts
from pyconfd.presets.ingress.canaries import PathLead
from pyconfd.presets.ingress.claims import IngressClaim
from pyconfd.presets.ingress.preset import claims as ingress_claims
from pyconfd.presets.ingress.serving import (
    CertificateLine,
    IngressClaims,
    ServedIngresses,
    addresses_of,
    owned_name,
    owner_of,
)
from pyconfd.presets.listener_ownership import ListenerOwners
from pyconfd.presets.objects import Objects
from pyconfd.presets.policies.decisions import DecidedPolicies
from pyconfd.presets.policies.users import UserList
from pyconfd.presets.preset import Preset, PresetCollections, PresetOptions, PresetResult
from pyconfd.presets.refusals import JoinedRefusals, faults
from pyconfd.presets.routing.rules import RuleBackend
from pyconfd.presets.routing.table import VirtualHostPath
from pyconfd.presets.routing.types import RouteBackend, VirtualHost
from pyconfd.presets.rule_backends import rank_of_section
from pyconfd.presets.shared_virtual_hosts import named_virtual_hosts


class GivenRules(NamedTuple):
    """The backends of rules and their profiles, by name, and what these use.

    How many of them are profiles, whether any limits or copies requests, or asks clients for certificates, and the
    users of Secrets.
    """

    backends: Mapping[str, RuleBackend]
    profiles: int
    is_limited: bool
    is_mirrored: bool
    verifies_clients: bool
    users: Mapping[Key, UserList]


class PresetGraph:
    """The collections of the presets in use, for one cluster. It belongs to one thread.

    Of one cluster it may be asked again and again in any order: what is returned is that of the last one seen.
    Those of ``domains`` and ``ingress``, which share frontends, are there in any case.
    """

    def __init__(self, cluster: str, presets: Sequence[Preset]) -> None:
        self.presets = presets
        names = [each.name for each in presets]
        self.objects = objects = Objects(cluster, names)
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
        }
        made = ((preset.name, preset.collections(objects, self.addresses)) for preset in presets)
        self._presets |= {name: collections for name, collections in made if collections is not None}
        asked = {name: each.listeners for name, each in self._presets.items() if each.listeners is not None}
        self.listeners = ListenerOwners(self.graph, asked)
        for each in self._presets.values():
            each.serve(self.listeners)
        policies = DecidedPolicies(
            objects, [each.policies for each in self._presets.values() if each.policies is not None]
        )
        self._policies = Published[ObjectKey, ObjectStatus](policies.statuses, rank=None)
        self._refused_policies = JoinedRefusals(policies.refused)
        self._rules = [each.rules for each in self._presets.values() if each.rules is not None]
        of_presets = [each.hosts for each in self._presets.values() if each.hosts is not None]
        self.auth = AuthServices(objects, self._rules, self.hosts.decisions, of_presets)
        of_all = Joined[Any, RuleBackend](*(each.all for each in self._rules), name="sections of rules")
        self._sections = Published[str, RuleBackend](of_all, key=lambda at: at[1], rank=rank_of_section)
        users = Joined[Key, UserList](*(each.users for each in self._rules), name="users of rules")
        self._users = Published[Key, UserList](users)
        self._named = Published[str, VirtualHost](named_virtual_hosts(self.hosts, self.ingresses.virtual_hosts))
        self._reserved: Reservations = VersionedDict({})
        self.faults: tuple[Refusal, ...] = ()
        """What raised an exception, of the last round; the same object where it is equal."""

    def see(self, snapshot: Snapshot, options: PresetOptions, had: Owners = NO_OWNERS) -> Cluster:
        """Bring all up to a Snapshot and options, and return what was read of the cluster.

        ``had`` are the addresses of the pool that objects had before.
        """
        self.objects.see(snapshot, options)
        if PresetName.DOMAINS in self.objects.presets:
            self._domain_claims.see(snapshot.services, snapshot.endpoints)
        for each in self._presets.values():
            each.see(snapshot, options)
        self.auth.see(options)
        self.addresses.see(options, had)
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

    def named_virtual_hosts(self) -> Mapping[str, VirtualHost]:
        """Return the virtual hosts of hosts of the shared frontends that are named and not served."""
        return self._named.mapping()

    def rules(self) -> GivenRules:
        """Return what serves the rules of all presets."""
        return GivenRules(
            self._sections.mapping(),
            sum(len(each.profiles.items) for each in self._rules),
            any(each.limited.items for each in self._rules),
            any(each.mirrored.items for each in self._rules),
            any(each.verifying.items for each in self._rules),
            self._users.mapping(),
        )

    def route_policies(self) -> tuple[Mapping[ObjectKey, ObjectStatus], tuple[Refusal, ...]]:
        """Return the statuses of RoutePolicies, and what is refused of them."""
        return self._policies.mapping(), self._refused_policies.all()

    def result(self, name: str) -> PresetResult:
        """Return what a preset makes of the cluster."""
        return self._presets[name].result()


class _Ingresses(PresetCollections):
    """Ingresses, which listen nowhere by themselves: the shared frontends do."""

    def __init__(self, claimed: IngressClaims, ingresses: ServedIngresses) -> None:
        self._ingresses = ingresses
        self._asked = Published[Key, IngressClaim](claimed.claims)
        self._virtual_hosts = Published[str, VirtualHost](ingresses.virtual_hosts)
        self.rules, self.policies = ingresses.rules, ingresses.policies
        self._backends = Published[str, RouteBackend](ingresses.backends)
        self._choices = Published[str, tuple[Choice, ...]](ingresses.choices)
        self._with_canary = Published[VirtualHostPath, PathLead](ingresses.with_canary, rank=None)
        self._served = Published[str, RouteBackend](ingresses.served_backends)
        self._lines = Published[str, CertificateLine](ingresses.lines, key=lambda key: f"{key.namespace}/{key.name}")
        self._owners = Published[Name, Owner](ingresses.owned, key=owned_name, value=owner_of)
        self._statuses = Published[ObjectKey, ObjectStatus](
            ingresses.statuses, key=lambda key: ObjectKey(Resource.INGRESSES, key), rank=None
        )
        self._presented = Published[str, PresentedCertificate](ingresses.presented, rank=None)
        self._refused = JoinedRefusals(ingresses.refused)
        self._by_secret = Published[Key, ServedCertificate](ingresses.served, rank=None)
        self._pages = Published[Key, tuple[OutputFile, ...]](ingresses.rules.page_files)
        self._authorities = Published[Key, OutputFile](ingresses.authority_files)
        self._given = SameParts[GivenDict]()
        self._all_choices = SameParts[tuple[Choice, ...]]()
        self._files = SameParts[tuple[OutputFile, ...]]()

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Nothing is its own."""

    def result(self) -> PresetResult:
        """Return ``ingress``: its virtual hosts, backends and certificates; and ``canary_choices`` for frontends."""
        ingresses = self._ingresses
        served, authorities = self._by_secret.mapping(), self._authorities.mapping()
        pages = self._pages.mapping()
        backends, lines, virtual_hosts = self._backends.mapping(), self._lines.mapping(), self._virtual_hosts.mapping()
        given = self._given.made(
            (virtual_hosts, backends, lines),
            lambda: GivenDict(
                virtual_hosts=virtual_hosts,
                backends=backends,
                certificates=lines,
                verifies_clients=bool(ingresses.verifying.items),
            ),
        )
        by_host = self._choices.mapping()
        choices = self._all_choices.made((by_host,), lambda: tuple(chain.from_iterable(by_host.values())))
        owners, all_backends = self._owners.mapping(), self._served.mapping()
        return PresetResult(
            {"ingress": given, "canary_choices": choices},
            self._refused.all(),
            ingresses.ready.items.get((), 0),
            partial(ingress_claims, self._asked.mapping(), owners, all_backends, self._with_canary.mapping()),
            files=self._files.made(
                (served, authorities, pages),
                lambda: (
                    *(each.file for each in served.values() if each.file),
                    *authorities.values(),
                    *chain(*pages.values()),
                ),
            ),
            serves=all_backends,
            addresses_of=addresses_of,
            ends_tls=bool(ingresses.asking.items),
            owners=owners,
            reserves=NO_OWNERS,
            statuses=self._statuses.mapping(),
            certificates=self._presented.mapping(),
        )
