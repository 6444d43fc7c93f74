"""What presets give: the variables for templates, who claims what, and what they refused."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.gateway_service import NO_SERVICES, GatewayServices
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import Statuses
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NameRegister, Owners

if TYPE_CHECKING:
    from pyconfd.model.claim import Claim


class PresetName(StrEnum):
    """The presets: ways to ask to be served, as :class:`pyconfd.presets.preset.Preset` reads them."""

    DOMAINS = "domains"
    KUBEFIGURATOR = "kubefigurator"
    KUBE2LB = "kube2lb"
    CONFIGMAP = "configmap"
    HOSTS = "hosts"
    INGRESS = "ingress"
    GATEWAY = "gateway"
    LOADBALANCER = "loadbalancer"


AUTO = "auto"
"""Stands for all of :data:`AUTOMATIC_PRESETS` in the setting ``presets.use``."""

AUTOMATIC_PRESETS = (PresetName.DOMAINS, PresetName.INGRESS, PresetName.GATEWAY, PresetName.LOADBALANCER)
"""Those that need no settings of their own; the first one owns the plain names."""


ALL_NAMESPACES = "*"
"""Stands for every namespace in the setting ``kubernetes.secret_namespaces``."""


class RefusalReason(StrEnum):
    """Why an object or one of its values was left out; a label of the metric ``pyconfd_refused_objects``."""

    INVALID_VALUE = "invalid_value"
    INCOMPLETE = "incomplete"
    NAME_TAKEN = "name_taken"
    NAME_RESERVED = "name_reserved"
    PORT_TAKEN = "port_taken"
    NOT_ALLOWED = "not_allowed"
    FORBIDDEN_ADDRESS = "forbidden_address"
    NO_SUCH_PORT = "no_such_port"
    NO_NODE_PORT = "no_node_port"
    NO_SUCH_SERVICE = "no_such_service"
    NO_SUCH_ADDRESS = "no_such_address"
    NO_FREE_ADDRESS = "no_free_address"
    NO_CERTIFICATE = "no_certificate"
    FORBIDDEN = "forbidden"
    UNREADABLE = "unreadable"
    BAD_TEMPLATE = "bad_template"
    QUARANTINED = "quarantined"
    INTERNAL_ERROR = "internal_error"
    UNKNOWN_CLASS = "unknown_class"
    UNSUPPORTED_ANNOTATION = "unsupported_annotation"
    IGNORED_ANNOTATION = "ignored_annotation"
    CERTIFICATE_MISMATCH = "certificate_mismatch"
    CERTIFICATE_EXPIRES_SOON = "certificate_expires_soon"
    CERTIFICATE_EXPIRES_NOW = "certificate_expires_now"
    CERTIFICATE_EXPIRED = "certificate_expired"

    @property
    def is_note(self) -> bool:
        """Whether nothing is left out for it: it only has to be known."""
        return self is RefusalReason.IGNORED_ANNOTATION or self in CERTIFICATE_NOTES

    @property
    def breaks_everything(self) -> bool:
        """Whether everything else would be refused with it: fragments or HAProxy cannot do with what it is."""
        return self in {RefusalReason.BAD_TEMPLATE, RefusalReason.QUARANTINED}


CERTIFICATE_NOTES = (
    RefusalReason.CERTIFICATE_EXPIRED,
    RefusalReason.CERTIFICATE_EXPIRES_NOW,
    RefusalReason.CERTIFICATE_EXPIRES_SOON,
    RefusalReason.CERTIFICATE_MISMATCH,
)
"""Notes on certificates that are presented, the most urgent first."""


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """One object, or one field of it, that was rejected; everything else went on. A note rejects nothing.

    ``value`` is the offending value, shortened and escaped; ``detail`` says in words what is wrong and what to do.
    """

    ref: ObjectRef
    field: str
    value: str
    reason: RefusalReason
    detail: str

    def __hash__(self) -> int:
        """Thousands are looked up at a time; these tell nearly all of them apart."""
        return hash((self.ref, self.field, self.value))


_FIELDS = attrgetter(*(each.name for each in fields(Refusal)))


class _InOrder(tuple[Refusal, ...]):  # noqa: SLOT001 - Python allows a tuple none
    """Refusals in their order. Those that were made of others know which came and which went since."""

    mark: object  # stands for these, and keeps nothing alive
    since: tuple[object, set[Refusal], set[Refusal]] | None

    @classmethod
    def of(
        cls, refused: Iterable[Refusal], since: tuple[object, set[Refusal], set[Refusal]] | None = None
    ) -> "_InOrder":
        made = cls(refused)
        made.mark, made.since = object(), since
        return made


def news(refused: Iterable[Refusal], former: Iterable[Refusal]) -> tuple[set[Refusal], set[Refusal]]:
    """Return the refusals that came and those that went; those that stay are the same objects, nearly all of them."""
    if refused is former:
        return set(), set()
    if isinstance(refused, _InOrder) and isinstance(former, _InOrder):
        # Several ask for the same of thousands.
        since = refused.since
        if since is not None and since[0] is former.mark:
            return set(since[1]), set(since[2])
    now, before = {id(each): each for each in refused}, {id(each): each for each in former}
    came = [now[each] for each in now.keys() - before.keys()]
    gone = [before[each] for each in before.keys() - now.keys()]
    return {*came} - {*gone}, {*gone} - {*came}


_FEW = 8
"""The part of all refusals that may have come or gone, and each is put in its place by itself."""


def in_order(*parts: Iterable[Refusal], former: tuple[Refusal, ...] = ()) -> tuple[Refusal, ...]:
    """Return all refusals once, in their order; ``former`` are those of before: of thousands only news are sorted."""
    came, gone = news(chain.from_iterable(parts), former)
    if len(former) < _FEW * (len(came) + len(gone)):
        return _InOrder.of(sorted({*former} - gone | came, key=_FIELDS))
    found, added = list(former), set[Refusal]()
    for each in gone:
        del found[bisect_left(found, _FIELDS(each), key=_FIELDS)]
    for each in came:
        at = bisect_left(found, _FIELDS(each), key=_FIELDS)
        if found[at : at + 1] != [each]:
            found.insert(at, each)
            added.add(each)
    return _InOrder.of(found, (former.mark, added, gone) if isinstance(former, _InOrder) else None)


def left_out(refused: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Return the refusals by which something is not served."""
    return tuple(each for each in refused if not each.reason.is_note)


def notes_among(refused: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Return what is only to be known."""
    return tuple(each for each in refused if each.reason.is_note)


@dataclass(frozen=True, slots=True)
class EndpointTotals:
    """How many ready endpoints there are: behind what the presets were asked to serve, and in the whole cluster."""

    claimed: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one preset serves: ``addresses`` gives, of a value of ``by_name``, the addresses traffic is sent to.

    A value that is the same object has the same addresses.
    """

    preset: str
    by_name: Mapping[Any, Any]
    addresses: Callable[[Any], Iterable[str]]


_NO_OBJECT = ObjectRef("", "", "")


@dataclass(frozen=True, slots=True)
class ClusterTemplate:
    """A template that the cluster supplied; what it renders to is never trusted as configuration.

    ``name`` is that of its piece (``configmap lb/config``), ``names`` are all that it sees: plain data fit for JSON.
    ``required`` maps a name without a value to what to do about it: to print that one is an error. It stands in
    ``field`` of the object ``ref``.
    """

    name: str
    text: str
    names: Mapping[str, Any] = field(repr=False)
    required: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ref: ObjectRef = _NO_OBJECT
    field: str = "template"


@dataclass(frozen=True, slots=True)
class Context:
    """``names`` go to every fragment as they are; ``refused`` is sorted.

    ``listeners`` are those that objects of the cluster are to be given, so none of the operator's. ``templates`` are
    rendered after the fragments, in order. ``files`` were declared by presets. ``dns_names`` are the names that should
    point at this balancer, sorted; None where no object is there that could say so. ``claimed`` is what each preset
    serves; ``everything`` counts all services of the cluster, for fragments that need no preset. ``owners`` says, by
    preset, who was given which name. ``reserved`` has the names that stay with a namespace, by scope: what several
    presets ask for is a scope of its own. ``register`` is what to remember of that for the next translation.
    ``statuses`` has one mapping for each preset; ``certificates`` too, of what is presented for hosts, by any key.
    ``services`` are to be made for Gateways.
    ``claims`` return what the objects of each preset ask for, made when somebody asks; those of ``quarantine`` too.
    """

    names: Mapping[str, Any]
    refused: tuple[Refusal, ...] = ()
    totals: EndpointTotals = EndpointTotals()
    listeners: frozenset[Listener] = frozenset()
    templates: tuple[ClusterTemplate, ...] = ()
    files: tuple[OutputFile, ...] = ()
    dns_names: tuple[str, ...] | None = None
    claimed: tuple[Claimed, ...] = ()
    everything: Claimed | None = None
    owners: Mapping[str, Owners] = field(default_factory=lambda: MappingProxyType({}))
    reserved: Mapping[str, Owners] = field(default_factory=lambda: MappingProxyType({}))
    register: NameRegister = field(default_factory=NameRegister)
    statuses: tuple[Statuses, ...] = ()
    services: GatewayServices = field(default_factory=lambda: NO_SERVICES)
    certificates: tuple[Mapping[str, PresentedCertificate], ...] = ()
    claims: Mapping[str, Callable[[], Iterable["Claim"]]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
