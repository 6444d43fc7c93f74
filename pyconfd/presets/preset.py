"""A preset: what it reads, and what it makes of that."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.claim import Claim
from pyconfd.model.context import ClusterTemplate, PresetName, Refusal
from pyconfd.model.gateway_service import NO_SERVICES, GatewayServices
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.listener import NOBODY, Listener, Listeners
from pyconfd.model.object_status import Statuses
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, NO_RESERVATIONS, Owner, Owners, Reservations
from pyconfd.model.snapshot import Named, Resource, Snapshot
from pyconfd.presets.addresses import NO_POOL, AddressOptions
from pyconfd.presets.certificates import NO_SECRETS, TlsOptions
from pyconfd.presets.policy import ANYTHING, ClaimOptions, PortRanges

if TYPE_CHECKING:
    from pyconfd.derived import Collection, Read
    from pyconfd.model.object_status import ObjectKey
    from pyconfd.presets.address_ownership import AddressOwners
    from pyconfd.presets.listener_ownership import ListenerClaim, ListenerOwners
    from pyconfd.presets.objects import Objects
    from pyconfd.presets.policies.said import OverriddenWord
    from pyconfd.presets.rule_backends import RuleBackends

_T = TypeVar("_T")

CLUSTER_VIEW = frozenset({Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.ENDPOINTS, Resource.NODES})
"""The resources of a preset that reads Services."""


_NONE: Mapping[Any, Any] = MappingProxyType({})
"""The same object each time, so that nobody looks for what has changed."""


def own_options(*options: object) -> Mapping[type, object]:
    """Return the options of single presets as ``PresetOptions.own`` has them."""
    return MappingProxyType({type(each): each for each in options})


@dataclass(frozen=True, slots=True)
class PresetOptions:
    """The settings that presets obey.

    ``node_ports``: send traffic to node ports instead of pods. ``node_address_types``: which address of a node, first
    match wins. ``listen_ports``: inclusive ranges that an annotation may ask for; ``listen_address``: where fragments
    bind these, ``*`` or an IP address, "" if it may be any. ``reserved``: where the operator's fragments listen, and
    ``status_page`` where pyconfd does: whatever overlaps one of these cannot be had. ``taken_listeners``: those of an
    earlier translation that could not be bound, and who listens there.
    ``addresses``: those of the pool, where the operator's listeners on all addresses are in nobody's way.
    ``own`` are those of single presets, by their class (:func:`own_options`); ``tls`` is for certificates of Secrets.
    ``claims`` says who may claim what; ``reservations`` are the names that namespaces have, by scope.
    ``cluster_templates``: render what the cluster supplies as configuration. ``ignored_annotations`` are annotations
    of other controllers, or patterns, whose restrictions are done without. Ingresses of the classes ``nginx_classes``
    mean what ingress-nginx makes of them. ``gateway_services``: each Gateway has a Service.
    """

    node_ports: bool = False
    node_address_types: tuple[str, ...] = ("InternalIP",)
    listen_ports: PortRanges = ((1024, 32767),)
    listen_address: str = ""
    reserved: Listeners = NOBODY
    status_page: Listeners = NOBODY
    addresses: AddressOptions = NO_POOL
    taken_listeners: Mapping[Listener, str] = field(default_factory=lambda: MappingProxyType({}))
    own: Mapping[type, object] = field(default_factory=lambda: MappingProxyType({}))
    tls: TlsOptions = NO_SECRETS
    claims: ClaimOptions = ANYTHING
    reservations: Mapping[str, Reservations] = field(default_factory=lambda: MappingProxyType({}))
    cluster_templates: bool = False
    ignored_annotations: tuple[str, ...] = ()
    nginx_classes: tuple[str, ...] = ()
    gateway_services: bool = False

    def of(self, options: type[_T]) -> _T:
        """Return the options of one preset, by their class; its defaults where there are none."""
        found = self.own.get(options)
        return found if isinstance(found, options) else options()

    def reservations_of(self, scope: str) -> Reservations:
        """Return the names of a scope (a preset, or what several share) that namespaces have."""
        return self.reservations.get(scope, NO_RESERVATIONS)

    def holder(self, wanted: Listener) -> str:
        """Return who has ``wanted``, and where, so that no object can be given it; "" where it is free."""
        in_pool = wanted.address in self.addresses.members
        found = self.reserved.holder_of_address(wanted) if in_pool else self.reserved.holder(wanted)
        found = found or self.status_page.holder(wanted)
        return f"{found.owner} listens on {found.listener}" if found is not None else ""


@dataclass(frozen=True, slots=True)
class PresetResult:
    """The names for templates, what was refused, and the number of ready endpoints behind what was claimed.

    ``listeners`` are what templates will bind for these names, over TCP, each with the object of its oldest claim.
    ``templates`` came from the cluster, ``files`` go beside the configuration, ``dns_names`` should point here (None:
    no object says). ``serves`` has each thing that is served by its name, and ``addresses_of`` gives the addresses of
    what is ready behind one; what did not change there is the same object. ``owners`` says who was given which name,
    for which the share of reloads is counted (:meth:`~pyconfd.model.reservation.Owner.asking_for`);
    ``reserves`` are those that stay with the namespace, where that is not decided for several presets together (None:
    all of them). ``ends_tls``: some object asks for the frontend that ends TLS on the shared port. ``statuses`` are
    for objects of the cluster, as they shall be once all of this is served. ``services`` are to be made for Gateways.
    ``certificates`` are what is presented for hosts, by any key. ``claims`` returns what each object asks for, refused
    ones too: it reads what the collections have published, which is replaced and never changed, so that any thread may
    call it at any time.
    """

    names: Mapping[str, Any]
    refused: tuple[Refusal, ...]
    claimed: int
    claims: Callable[[], Iterator[Claim]]
    listeners: Mapping[Listener, Owner] = field(default_factory=lambda: _NONE)
    templates: tuple[ClusterTemplate, ...] = ()
    files: tuple[OutputFile, ...] = ()
    dns_names: tuple[str, ...] | None = None
    serves: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    addresses_of: Callable[[Any], Iterable[str]] = tuple
    owners: Owners = field(default_factory=lambda: NO_OWNERS)
    reserves: Owners | None = None
    ends_tls: bool = False
    statuses: Statuses = field(default_factory=lambda: _NONE)
    services: GatewayServices = field(default_factory=lambda: NO_SERVICES)
    certificates: Mapping[str, PresentedCertificate] = field(default_factory=lambda: _NONE)


class PolicyUse(NamedTuple):
    """What a preset makes of RoutePolicies: words that do not count for its objects, and whether an object is its."""

    overridden: "Collection[Any, OverriddenWord]"
    serves: "Callable[[Read, ObjectKey], bool]"


class PresetCollections(ABC):
    """The collections of one preset: what its objects ask for, and what is made of that.

    ``listeners`` are the places where they ask to listen, valid by the rules of the preset itself. ``rules`` are the
    backends of rules, ``policies`` what became of RoutePolicies, and ``hosts`` by frontend and host those that routes
    have at its own frontends, once it serves.
    """

    listeners: "Collection[Any, ListenerClaim] | None" = None
    rules: "RuleBackends | None" = None
    policies: PolicyUse | None = None
    hosts: "Collection[tuple[str, str], int] | None" = None

    @abstractmethod
    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Put a Snapshot and options into its own sources; those of all are up to date already."""

    def serve(self, owners: "ListenerOwners") -> None:  # noqa: B027 - what listens nowhere has nothing to do here
        """Make the collections that depend on who listens where, if any; called once, when all presets have asked."""

    @abstractmethod
    def result(self) -> PresetResult:
        """Return what is served as of the last round; what did not change since is the same object."""


class Preset(ABC):
    """One way to ask to be served. Pure; :mod:`pyconfd.presets.registry` knows all presets.

    ``gives`` are the names of its template variables; a preset that gives one equal to its own name gives just that.
    ``resources`` are all that is read from the cluster for it, beside :meth:`named_objects`; ``writes_status`` are the
    kinds that its results have a status for. ``fragments`` is the folder of the fragments that are shipped for it, with
    their tests, where they are not among those of the shared frontends.
    """

    name: ClassVar[PresetName]
    gives: ClassVar[frozenset[str]]
    resources: ClassVar[frozenset[Resource]]
    writes_status: ClassVar[frozenset[Resource]] = frozenset()
    fragments: ClassVar[Path | None] = None

    def collections(self, objects: "Objects", addresses: "AddressOwners") -> PresetCollections | None:
        """Return new collections over the objects of a graph; None where the graph makes them, as others share them."""
        del objects, addresses
        return None

    @abstractmethod
    def how_to_claim(self, options: PresetOptions) -> str:
        """Return what makes an object claim something, as an order to its owner."""

    def named_objects(self, options: PresetOptions) -> tuple[Named, ...]:
        """Return the single objects that are read by name."""
        del options
        return ()

    def mistakes(self, record: AnyObject, snapshot: Snapshot, options: PresetOptions) -> Iterator[str]:
        """Return what of an object has no effect though a claim was probably meant by it, and what to do."""
        del record, snapshot, options
        return iter(())
