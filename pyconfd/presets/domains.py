"""Preset ``domains``: the annotations ``domain`` and ``proto``, as python-confd read them.

Read from Endpoints objects (python-confd's way) and from Services, there also as ``pyconfd.io/domain``,
``pyconfd.io/proto``, ``pyconfd.io/port`` (which port of the service, by name or number) and ``pyconfd.io/listen-port``
(which port to bind for a protocol that is not routed by name); those of :mod:`pyconfd.presets.domain_tls` ask for TLS.

Read in this order: :class:`DomainClaims` has what one object asks for; which namespace has a host is decided for all
presets at once (:mod:`pyconfd.presets.host_ownership`); :class:`ServedDomains` gives each name, and each port, to the
oldest claim of that namespace, finds certificates, and makes what templates see.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from pyconfd.derived import Collection, Derived, Grouped, Joined, Published, Read, SameParts, Source, Tally, Value
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, Endpoints, ObjectRef, Service
from pyconfd.model.listener import Listener
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NEVER, HostClaim, Name, Owner, Reservation, Reservations
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.versioned import GivenDict, GivenList, VersionedDict, differing
from pyconfd.presets import host_ownership, values
from pyconfd.presets.addresses import is_of_gateway
from pyconfd.presets.annotations import ACCESS_LOG, read_foreign
from pyconfd.presets.certificates import NO_CERTIFICATE, ReadSecret
from pyconfd.presets.cluster import NO_SERVICE
from pyconfd.presets.conflicts import reserved_for
from pyconfd.presets.domain_tls import (
    TLS_ANNOTATIONS,
    AnnotationError,
    DomainCertificate,
    DomainTls,
    DomainTlsClaim,
    certificate_of,
    tls_claim,
)
from pyconfd.presets.endpoints import EXTERNAL_NAME, NO_TCP, targets_of_port
from pyconfd.presets.host_ownership import HostRights, Hosts
from pyconfd.presets.listener_ownership import ListenerClaim, ListenerOwners
from pyconfd.presets.objects import Objects
from pyconfd.presets.policy import ClaimOptions, PortRanges, in_ranges
from pyconfd.presets.preset import (
    CLUSTER_VIEW,
    Preset,
    PresetCollections,
    PresetOptions,
    PresetResult,
)
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.routing.table import ALL_OF_HOST, DecidedPath, VirtualHostPath
from pyconfd.presets.views import EndpointView, PortView, ServiceView

_T = TypeVar("_T")

PREFIX = "pyconfd.io/"
_SHARED_WITH = host_ownership.SHARED_WITH.removeprefix(PREFIX)
_ACCESS_LOG = ACCESS_LOG.removeprefix(PREFIX)
_PREFIXED = ("port", "listen-port", _SHARED_WITH, _ACCESS_LOG, *TLS_ANNOTATIONS)
_ANNOTATIONS = ("domain", "proto", *(PREFIX + name for name in ("domain", "proto", *_PREFIXED)))

ROUTED_BY_NAME = frozenset({"http", "https"})
"""Protocols whose connections name the domain they want, so that many domains share one port."""


Claimant = tuple[Key, str]
"""The object that may ask for a domain: its key and its kind, Service or Endpoints."""


class DomainClaim(msgspec.Struct, frozen=True, gc=False):
    """One object that asks for one domain.

    ``port`` is without its endpoints, so that these may change, and ``position`` its place among those of the service.
    ``first_port`` is the number of its port in the first subset of Endpoints, 0 where that is not known.
    """

    ref: ObjectRef
    owner: Owner
    domain: str
    proto: str
    port: PortView
    position: int
    listen_port: int | None
    first_port: int = 0
    tls: DomainTlsClaim | None = None
    unlogged: bool = False

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """That of its owner."""
        return self.owner.rank

    @property
    def bound(self) -> int | None:
        """The port to bind, None for a protocol that is routed by name."""
        return None if self.proto in ROUTED_BY_NAME else self.listen_port or self.port.port


class _RefusedClaim(Exception):  # noqa: N818 - it carries a Refusal out of a parser
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.detail)


def port_name(port: int) -> Name:
    """Return what stands for a port among the names that are kept."""
    return Name(f"port {port}", "")


class Asking(NamedTuple):
    """An object with annotations, the Service of its name, and the ports of that, without endpoints."""

    record: Service | Endpoints
    service: Service | None
    ports: tuple[PortView, ...]


class AskedDomain(NamedTuple):
    """What the annotations of an object ask for, as they are written; "" where one is missing."""

    domain: str
    proto: str
    secret: str


class ParsedObject(NamedTuple):
    """What one object asks for, which host of the shared frontends it names, and what is refused of it.

    ``asked`` is None for an object with neither annotation, of which something is to be known.
    """

    claim: DomainClaim | None = None
    host: HostClaim | None = None
    refused: tuple[Refusal, ...] = ()
    asked: AskedDomain | None = None


class DomainClaims:
    """What Services and Endpoints ask for by annotations; their endpoints change none of it."""

    def __init__(self, objects: Objects) -> None:
        self._objects, graph = objects, objects.graph
        self._annotated = Source[Claimant, Service | Endpoints](graph, "annotated objects")
        self._seen: dict[str, Mapping[Key, Any]] = {"Service": {}, "Endpoints": {}}
        asking = Derived(self._annotated, self._asking, "objects that may ask for domains")
        self.claims = Derived(asking, self._parsed, "claims of domains")
        self.by_domain = Grouped(self.claims, _domain_of, "claims by domain", rank=_rank)
        self.hosts = Derived(self.claims, lambda _, __, parsed: parsed.host, "hosts of domains")
        sharing = (each for each in objects.presets if each in {PresetName.DOMAINS, PresetName.INGRESS})
        self.come_first = next(sharing, None) == PresetName.DOMAINS
        """Which of a domain and an Ingress of the same age and name comes first: that of the preset listed first."""

    def first(self, read: Read, domain: str, hosts: HostRights) -> DomainClaim | None:
        """Return the first claim of the namespace that has a domain, for a function of a later collection."""
        asking = read(self.by_domain, domain) or ()
        return next((each for each in _claims(asking) if hosts.is_owner(domain, each.ref.namespace)), None)

    def see(self, services: Mapping[Key, Service], endpoints: Mapping[Key, Endpoints]) -> None:
        """Put what differs from the last time into the source."""
        for kind, now in (("Service", services), ("Endpoints", endpoints)):
            changed = differing(self._seen[kind], now)
            self._annotated.replace({(key, kind): _annotated(now.get(key)) for key in changed})
            self._seen[kind] = now

    def _asking(self, read: Read, claimant: Claimant, record: Service | Endpoints) -> Asking | None:
        seen = read(self._objects.services, claimant[0]) or NO_SERVICE
        if seen.view is None:
            return None
        ports = (PortView(p.name, p.port, p.protocol, p.node_port, p.target_port, ()) for p in seen.view.ports)
        return Asking(record, seen.object, tuple(ports))

    def _parsed(self, read: Read, claimant: Claimant, asking: Asking) -> ParsedObject | None:
        ref = ObjectRef(claimant[1], *claimant[0], self._objects.cluster)
        return _parse(ref, asking, read.value(self._objects.policy))


def _annotated(record: Service | Endpoints | None) -> Service | Endpoints | None:
    """Return an object of which annotations may mean something; controllers annotate Endpoints for themselves."""
    given = record.metadata.annotations if record is not None else None
    if isinstance(record, Service) and is_of_gateway(record):
        return None
    if given and (isinstance(record, Service) or "domain" in given or "proto" in given):
        return record
    return None


def _parse(ref: ObjectRef, asking: Asking, rules: ClaimOptions) -> ParsedObject | None:
    """Return what the annotations of one object ask for; None for nothing."""
    record, refused = asking.record, list[Refusal]()
    if isinstance(record, Service) and (note := read_foreign(record.metadata.annotations, "Service").note("Service")):
        refused.append(Refusal(ref, "metadata.annotations", "", RefusalReason.IGNORED_ANNOTATION, note))
    annotations = annotations_of(record.metadata, ref.kind)
    if not (annotations["domain"] or annotations["proto"]):
        if annotations.get(_ACCESS_LOG):
            field, reason = f"annotation {ACCESS_LOG}", RefusalReason.IGNORED_ANNOTATION
            refused.append(refusal(ref, field, annotations[_ACCESS_LOG], reason, _NO_REQUESTS))
        return ParsedObject(refused=tuple(refused)) if refused else None
    owner = Owner(ref.kind, ref.namespace, ref.name, record.metadata.creation_timestamp or NEVER)
    host, claim = _host_claim(ref, annotations, owner, rules, refused), None
    try:
        claim = _allowed(_claim(ref, annotations, owner, asking), rules)
    except _RefusedClaim as error:
        refused.append(error.refusal)
    if host is not None and claim is not None:
        host = host._replace(domain_proto=claim.proto)
    if claim is not None and _is_unlogged(ref, annotations, claim.proto, refused):
        claim = msgspec.structs.replace(claim, unlogged=True)
    asked = AskedDomain(annotations["domain"], annotations["proto"], annotations.get("tls-secret", ""))
    return ParsedObject(claim, host, tuple(refused), asked)


def _is_unlogged(ref: ObjectRef, annotations: Mapping[str, str], proto: str, refused: list[Refusal]) -> bool:
    """Return whether requests are to be left out of the access log; an annotation that cannot be has no effect."""
    value, wrong, is_logged = annotations.get(_ACCESS_LOG, ""), "", True
    if not value:
        return False
    try:
        is_logged = values.switch(value)
    except ValueError as error:
        wrong = str(error)
    if not is_logged and proto != "http":
        wrong = "only requests can be left out, those of domains with proto http: connections are logged"
    if wrong:
        reason, detail = RefusalReason.INVALID_VALUE, f"{wrong}; it has no effect"
        refused.append(refusal(ref, f"annotation {ACCESS_LOG}", value, reason, detail))
    return not (is_logged or wrong)


def _host_claim(
    ref: ObjectRef, annotations: Mapping[str, str], owner: Owner, rules: ClaimOptions, refused: list[Refusal]
) -> HostClaim | None:
    """Return the host that an object asks for, also where nothing of it can be served."""
    try:
        domain, proto = values.host_name(annotations["domain"]), values.protocol(annotations["proto"])
    except ValueError:
        return None
    if rules.domain(ref.namespace, domain) or rules.protocol(ref.namespace, proto):
        return None
    shared: frozenset[str] = frozenset()
    try:
        shared = host_ownership.shared_with(annotations.get(_SHARED_WITH, ""))
    except ValueError as error:
        value, reason = annotations[_SHARED_WITH], RefusalReason.INVALID_VALUE
        refused.append(refusal(ref, f"annotation {_SHARED_WITH}", value, reason, f"{error}; it has no effect"))
    return HostClaim(domain, owner, shared)


def annotations_of(meta: ObjectMeta, kind: str) -> Mapping[str, str]:
    """Return the annotations of a Service under their short names, the prefixed one wins; of Endpoints the plain ones.

    What is missing is "".
    """
    given = meta.annotations or {}
    if kind == "Endpoints":
        return {name: given.get(name, "") for name in ("domain", "proto", "port", "listen-port")}
    return {name: given.get(PREFIX + name, given.get(name, "")) for name in ("domain", "proto")} | {
        name: given.get(PREFIX + name, "") for name in _PREFIXED
    }


def _claim(ref: ObjectRef, annotations: Mapping[str, str], owner: Owner, asking: Asking) -> DomainClaim:
    domain, proto = annotations.get("domain", ""), annotations.get("proto", "")
    if not domain or not proto:
        missing = "proto" if domain else "domain"
        detail = f"annotation {missing} is missing: an object is served when it has both domain and proto"
        raise _RefusedClaim(refusal(ref, f"annotation {missing}", "", RefusalReason.INCOMPLETE, detail))
    service, endpoints = asking.service, asking.record if isinstance(asking.record, Endpoints) else None
    if service is not None and service.spec.type == "ExternalName" and endpoints is None:
        raise _RefusedClaim(refusal(ref, "spec.type", "ExternalName", RefusalReason.INVALID_VALUE, EXTERNAL_NAME))
    listen, wanted = annotations.get("listen-port", ""), _parsed(ref, "domain", domain, values.host_name)
    port = _chosen_port(ref, annotations.get("port", ""), asking.ports, endpoints)
    parsed_proto = _parsed(ref, "proto", proto, values.protocol)
    return DomainClaim(
        ref=ref,
        owner=owner,
        domain=wanted,
        proto=parsed_proto,
        port=port,
        position=asking.ports.index(port),
        listen_port=_parsed(ref, "listen-port", listen, values.port_number) if listen else None,
        first_port=_first_number(port, endpoints),
        tls=_asked_tls(ref, annotations, wanted, parsed_proto),
    )


def _asked_tls(ref: ObjectRef, annotations: Mapping[str, str], domain: str, proto: str) -> DomainTlsClaim | None:
    try:
        return tls_claim(annotations, domain, proto)
    except AnnotationError as error:
        field = f"annotation {error.name}"
        raise _RefusedClaim(refusal(ref, field, error.value, RefusalReason.INVALID_VALUE, str(error))) from None


def _first_number(port: PortView, endpoints: Endpoints | None) -> int:
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in subset.ports or ():
            if (item.name or "", item.protocol or "TCP") == (port.name, port.protocol):
                return item.port or 0
    return 0


def _allowed(claim: DomainClaim, rules: ClaimOptions) -> DomainClaim:
    """Return a claim that its namespace may make; what it asks of ports is judged where they are given away."""
    namespace = claim.ref.namespace
    for name, value, wrong in (
        ("domain", claim.domain, rules.domain(namespace, claim.domain)),
        ("proto", claim.proto, rules.protocol(namespace, claim.proto)),
    ):
        if wrong:
            raise _RefusedClaim(refusal(claim.ref, f"annotation {name}", value, RefusalReason.NOT_ALLOWED, wrong))
    return claim


def _parsed(ref: ObjectRef, name: str, value: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(value)
    except ValueError as error:
        raise _RefusedClaim(
            refusal(ref, f"annotation {name}", value, RefusalReason.INVALID_VALUE, str(error))
        ) from None


def _chosen_port(ref: ObjectRef, wanted: str, ports: Sequence[PortView], endpoints: Endpoints | None) -> PortView:
    """Return the port that is asked for; else, as python-confd did, the first of the first subset; else the first."""
    candidates = [port for port in ports if port.protocol == "TCP"]
    if wanted:
        for port in candidates:
            if wanted in {port.name, str(port.port), str(port.target_port)}:
                return port
        names = ", ".join(f"{port.name or '(unnamed)'} {port.port}" for port in candidates) or "none"
        detail = f"the service has no such TCP port; it has: {names}"
        raise _RefusedClaim(refusal(ref, "annotation port", wanted, RefusalReason.NO_SUCH_PORT, detail))
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in (subset.ports or ())[:1]:
            found = next((port for port in candidates if port.name == (item.name or "")), None)
            if found:
                return found
    if not candidates and ports:
        protocols = ", ".join(sorted({port.protocol for port in ports}))
        raise _RefusedClaim(refusal(ref, "spec.ports", protocols, RefusalReason.INVALID_VALUE, NO_TCP))
    if not candidates:
        detail = "there is no port to send traffic to: it has no addresses yet"
        raise _RefusedClaim(refusal(ref, "spec.ports", "", RefusalReason.INCOMPLETE, detail))
    return candidates[0]


def refusal(ref: ObjectRef, field: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    """Refuse one field of an object; the value is shown shortened and escaped."""
    return Refusal(ref, field, values.shortened(value), reason, detail)


class DecidedDomain(NamedTuple):
    """The claim that has a domain, and what is refused of the others.

    ``below_foreign``: the next wildcard above it belongs to another namespace.
    """

    claim: DomainClaim | None
    below_foreign: bool
    refused: tuple[Refusal, ...]

    @property
    def owner(self) -> Owner | None:
        """The object that has it."""
        return self.claim.owner if self.claim is not None else None


class DecidedPort(NamedTuple):
    """Which domain is reached at a port, and the object of it; what is refused of the others."""

    listener: Listener
    domain: str | None
    owner: Owner | None
    refused: tuple[Refusal, ...]


class _PortTerms(NamedTuple):
    """Where domains may listen: the address, "*" or "", and inclusive ranges of ports."""

    address: str
    ranges: PortRanges


class ServedDomains(PresetCollections):
    """Who has which domain and which port, and the ``entries`` that templates see, all by what they are of."""

    def __init__(
        self, objects: Objects, claimed: DomainClaims, hosts: Hosts, paths: Collection[VirtualHostPath, DecidedPath]
    ) -> None:
        self._objects, self._hosts, self._paths, graph = objects, hosts, paths, objects.graph
        self.claims = claimed.claims
        self._reserved_ports = Source[Name, Reservation](graph, "reserved ports")
        self._listening = Value[_PortTerms](graph, "where domains may listen")
        self._reserved: Reservations = VersionedDict({})
        self.decided = Derived(claimed.by_domain, self._decide, "owners of domains")
        self.listeners = Derived(self.decided, self._ask_listener, "listeners that domains ask for")

    def serve(self, owners: ListenerOwners) -> None:
        """Decide about the ports, and make the entries."""
        self._owners_of_listeners = owners
        self._asking_for_port = Grouped(self.claims, _port_and_namespace_of, "claims by port and namespace", rank=_rank)
        by_port = Grouped(self.decided, _port_of, "domains by port", rank=_rank)
        self.ports = Derived(by_port, self._decide_port, "owners of ports")
        self.bound = Grouped(self.ports, _listener_of, "listeners of domains")
        self.owners = Joined[Any, Any](self.decided, self.ports, name="owners of names")
        self.certificates = Derived(self.decided, self._certificate, "certificates of domains")
        self.entries = Derived(self.decided, self._entry, "entries of domains")
        self.ready = Tally(self.entries, _ready, "ready endpoints of domains")
        self._result = DomainsResult(self, self._objects)

    def result(self) -> PresetResult:
        """Return ``domains``: a dict from domain to its entry, sorted by domain."""
        return self._result.result()

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Put what differs from the last time into the sources."""
        del snapshot
        self._listening.set(_PortTerms(options.listen_address, options.listen_ports))
        reserved = options.reservations_of(PresetName.DOMAINS)
        self._reserved_ports.replace({name: reserved.get(name) for name in differing(self._reserved, reserved)})
        self._reserved = reserved

    def _decide(self, read: Read, domain: str, asking: Sequence[tuple[Claimant, ParsedObject]]) -> DecidedDomain:
        """Assign a domain to the first claim of its namespace; a domain is the whole host: no consent is enough."""
        hosts, served, refused = self._hosts.rights(read), None, list[Refusal]()
        for claim in _claims(asking):
            if not hosts.is_owner(domain, claim.ref.namespace):
                reason = RefusalReason.NAME_RESERVED if hosts.is_kept(domain) else RefusalReason.NAME_TAKEN
                refused.append(refusal(claim.ref, "annotation domain", domain, reason, hosts.why_not(domain)))
            elif served is not None:
                if served.ref[1:] != claim.ref[1:]:
                    refused.append(_taken(claim, served))
            elif taken := self._taken(read, domain):
                refused.append(refusal(claim.ref, "annotation domain", domain, RefusalReason.NAME_TAKEN, taken))
            else:
                served = claim
                if read.value(self._objects.targets).node_ports and not claim.port.node_port:
                    reason = RefusalReason.NO_NODE_PORT
                    refused.append(refusal(claim.ref, "spec.ports", claim.port.name, reason, _NO_NODE_PORT))
        return DecidedDomain(served, served is not None and hosts.is_below_foreign(domain), tuple(refused))

    def _taken(self, read: Read, domain: str) -> str:
        """Return that an Ingress has all of a host: whose that is was decided with its paths; "" where none has."""
        path = read(self._paths, VirtualHostPath(domain, ALL_OF_HOST))
        if path is None or not path.effective:
            return ""
        owner = path.effective[0].owner
        whose = f"{owner.kind} {owner.namespace}/{owner.name} of preset ingress"
        return f"{whose} has this name already (the older object keeps it)"

    def _ask_listener(self, read: Read, _: str, decided: DecidedDomain) -> ListenerClaim | None:
        """Return where the owner of a domain asks to listen for it."""
        claim = decided.claim
        if claim is None or claim.bound is None or self._forbidden(read, claim.ref.namespace, claim.bound):
            return None
        listener = Listener.at(read.value(self._listening).address, claim.bound)
        return ListenerClaim(listener, claim.owner)

    def _forbidden(self, read: Read, namespace: str, port: int) -> str:
        """Return why objects of a namespace may not ask for a port, "" where they may."""
        if not in_ranges(port, read.value(self._listening).ranges):
            return "this port is not in the setting presets.listen_ports"
        return read.value(self._objects.policy).port(namespace, port)

    def _decide_port(self, read: Read, port: int, asking: Sequence[tuple[str, DecidedDomain]]) -> DecidedPort:
        """Assign a port to the first claim that may have it."""
        listener = Listener.at(read.value(self._listening).address, port)
        holder, refused = None, list[Refusal]()
        for claim in _claims(asking):
            wrong = self._wrong_port(read, claim, listener, holder)
            if wrong is not None:
                refused.append(refusal(claim.ref, "annotation listen-port", str(port), *wrong))
            else:
                holder = claim
        domain, owner = (holder.domain, holder.owner) if holder is not None else (None, None)
        return DecidedPort(listener, domain, owner, tuple(refused))

    def _wrong_port(
        self, read: Read, claim: DomainClaim, listener: Listener, older: DomainClaim | None
    ) -> tuple[RefusalReason, str] | None:
        """Return why a claim may not have its port, which the ``older`` one has; None where it may."""
        port, namespace = listener.port, claim.ref.namespace
        if wrong := self._forbidden(read, namespace, port):
            return RefusalReason.NOT_ALLOWED, wrong
        if taken := self._owners_of_listeners.holder(read, PresetName.DOMAINS, listener):
            return RefusalReason.PORT_TAKEN, f"{taken}; {_CHOOSE}"
        if older is not None:
            return RefusalReason.PORT_TAKEN, f"{older.ref} ({older.domain}) listens there; {_CHOOSE}"
        reservation = read(self._reserved_ports, port_name(port))
        if reservation is not None and reservation.namespace != namespace:
            asking = read(self._asking_for_port, (port, reservation.namespace)) or ()
            mine = next((each.ref for each in _claims(asking)), None)
            return RefusalReason.NAME_RESERVED, reserved_for(reservation, mine)
        return None

    def _certificate(self, read: Read, domain: str, decided: DecidedDomain) -> DomainCertificate | None:
        claim, objects = decided.claim, self._objects
        if claim is None or claim.tls is None:
            return None
        return certificate_of(claim.ref, claim.tls, domain, objects.secrets_for(read), read.value(objects.tls))

    def _entry(self, read: Read, domain: str, decided: DecidedDomain) -> dict[str, Any] | None:
        """Return what templates see of a domain."""
        claim, objects = decided.claim, self._objects
        if claim is None:
            return None
        seen = read(objects.services, Key(claim.ref.namespace, claim.ref.name)) or NO_SERVICE
        if seen.view is None:  # no claim is parsed without one
            return None
        targets = read.value(objects.targets)
        nodes = read.value(objects.nodes) if targets.node_ports else ()
        endpoints = targets_of_port(seen.view.ports[claim.position], seen.object, nodes, targets)
        certificate = read(self.certificates, domain) if claim.tls is not None else None
        tls, listen_port = certificate.view if certificate is not None else None, claim.bound
        if listen_port is not None:
            given = read(self.ports, listen_port)
            listen_port = listen_port if given is not None and given.domain == domain else None
        return _entry(
            claim, seen.view, endpoints, listen_port=listen_port, below_foreign=decided.below_foreign, tls=tls
        )


_NO_REQUESTS = "without effect, since the Service has no domain: annotate the Ingress or the route that leads to it"
_NO_NODE_PORT = "traffic goes to node ports (presets.backend_target) but this port has none: use type NodePort"
_CHOOSE = "choose another with pyconfd.io/listen-port"


def _claims(asking: Iterable[tuple[object, ParsedObject | DecidedDomain]]) -> Iterator[DomainClaim]:
    return (each.claim for _, each in asking if each.claim is not None)


def _rank(_: object, each: ParsedObject | DecidedDomain) -> tuple[str, ...]:
    return each.claim.rank if each.claim is not None else ()


def _domain_of(_: Claimant, parsed: ParsedObject) -> Sequence[str]:
    return (parsed.claim.domain,) if parsed.claim is not None else ()


def _port_of(_: object, each: ParsedObject | DecidedDomain) -> Sequence[int]:
    port = each.claim.bound if each.claim is not None else None
    return (port,) if port is not None else ()


def _port_and_namespace_of(at: Claimant, each: ParsedObject) -> Sequence[tuple[int, str]]:
    return [(port, at[0].namespace) for port in _port_of(at, each)]


def _listener_of(_: int, port: DecidedPort) -> Sequence[Listener]:
    return (port.listener,) if port.owner is not None else ()


def _ready(_: str, entry: Mapping[str, Any]) -> Iterator[tuple[tuple[()], int]]:
    yield (), len(_addresses_of(entry))


def _addresses_of(entry: Mapping[str, Any]) -> list[str]:
    return [endpoint.address for endpoint in entry["endpoints"] if endpoint.state == "ready"]


def _entry(
    claim: DomainClaim,
    view: ServiceView,
    endpoints: tuple[EndpointView, ...],
    *,
    listen_port: int | None,
    below_foreign: bool,
    tls: DomainTls | None,
) -> dict[str, Any]:
    ready = [endpoint for endpoint in endpoints if endpoint.state == "ready"]
    # One port for all of ``ips``, as python-confd had it: that of the first subset, where a pod of it is ready.
    port = claim.first_port or claim.port.target_port
    if all(endpoint.port != port for endpoint in ready):
        port = (ready or endpoints)[0].port if endpoints else port
    ports = [{"name": p.name, "port": p.target_port, "protocol": p.protocol} for p in view.ports]
    return GivenDict(
        ips=GivenList(endpoint.address for endpoint in ready if endpoint.port == port),
        proto=claim.proto,
        port=port,
        domain=claim.domain,
        key=claim.domain.replace("*", ":any"),
        namespace=claim.ref.namespace,
        name=claim.ref.name,
        cluster=claim.ref.cluster,
        endpoints=GivenList(endpoints),
        listen_port=listen_port,
        below_foreign=below_foreign,
        ports=GivenList(map(GivenDict, ports)),
        service=view,
        tls=tls,
        unlogged=claim.unlogged,
    )


def _taken(claim: DomainClaim, owner: DomainClaim) -> Refusal:
    detail = f"{owner.ref} has this name already (the older object keeps it); remove the annotation from one of them"
    return refusal(claim.ref, "annotation domain", claim.domain, RefusalReason.NAME_TAKEN, detail)


class DomainsResult:
    """The result of the preset, whose parts are the former objects where nothing changed."""

    def __init__(self, served: ServedDomains, objects: Objects) -> None:
        self._served, self._objects = served, objects
        self._asked = Published[Claimant, ParsedObject](served.claims, rank=_services_first)
        self._entries = Published[str, dict[str, Any]](served.entries)
        self._owners = Published[Name, Owner](served.owners, key=_name_of, value=_counted_owner_of)
        self._ports = Published[Name, Owner](served.ports, key=port_name, value=_owner_of)
        self._listeners = Published[Listener, Owner](
            served.bound, rank=None, value=lambda ports: _owner_of(ports[0][1])
        )
        self._by_domain = Published[str, DomainCertificate](served.certificates, rank=None)
        self._presented = Published[str, PresentedCertificate](
            served.certificates, rank=None, value=lambda each: each.presented
        )
        self._refused = JoinedRefusals(served.claims, served.decided, served.ports, served.certificates)
        self._files = SameParts[tuple[OutputFile, ...]]()

    def result(self) -> PresetResult:
        """Return it as of the last round."""
        certificates, entries = self._by_domain.mapping(), self._entries.mapping()
        secrets = self._objects.read.published_secrets()

        def files() -> tuple[OutputFile, ...]:
            found = {each.served.path: each.served.file for each in certificates.values()}
            return tuple(file for file in found.values() if file is not None)

        return PresetResult(
            {"domains": entries},
            self._refused.all(),
            self._served.ready.items.get((), 0),
            partial(_explained, self._asked.mapping(), entries, self._objects.cluster, secrets),
            self._listeners.mapping(),
            files=self._files.made((certificates,), files),
            serves=entries,
            addresses_of=_addresses_of,
            owners=self._owners.mapping(),
            reserves=self._ports.mapping(),
            ends_tls=bool(certificates),
            certificates=self._presented.mapping(),
        )


def _services_first(at: Claimant) -> tuple[bool, Key]:
    return at[1] != "Service", at[0]


def _name_of(what: str | int) -> Name:
    return Name("", what) if isinstance(what, str) else port_name(what)


def _owner_of(item: DecidedDomain | DecidedPort) -> Owner | None:
    return item.owner


def _counted_owner_of(item: DecidedDomain | DecidedPort) -> Owner | None:
    """Return the owner: of a domain it is another one, too, where that has another protocol or certificate."""
    claim = item.claim if isinstance(item, DecidedDomain) else None
    return claim.owner.asking_for((claim.proto, claim.tls)) if claim is not None else item.owner


class DomainsPreset(Preset):
    """Reads annotations of Services and Endpoints."""

    name = PresetName.DOMAINS
    gives = frozenset({"domains"})
    resources = CLUSTER_VIEW

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the annotations."""
        del options
        return "annotate the Service with domain and proto"

    def mistakes(self, record: AnyObject, snapshot: Snapshot, options: PresetOptions) -> Iterator[str]:
        """Return misspelled annotations, and labels that should be annotations."""
        del snapshot, options
        if not isinstance(record, Service):
            return
        for name in sorted(record.metadata.annotations or {}):
            known = PREFIX + name if name in _PREFIXED else name.lower()
            close = difflib.get_close_matches(known, _ANNOTATIONS, n=1, cutoff=0.75)
            if close and name not in _ANNOTATIONS:
                yield f"its annotation {values.shortened(name)} has no effect: did you mean {close[0]}?"
        if any(name in (record.metadata.labels or {}) for name in ("domain", "proto")):
            yield "domain and proto are labels of it: they have to be annotations"


def _explained(
    asked: Mapping[Claimant, ParsedObject],
    entries: Mapping[str, Mapping[str, Any]],
    cluster: str,
    secrets: Mapping[Key, ReadSecret],
) -> Iterator[Claim]:
    """Return a claim for each object with one of the annotations."""
    for (key, kind), parsed in asked.items():
        if parsed.asked is None:
            continue
        domain, proto = (values.shortened(each) or "(missing)" for each in parsed.asked[:2])
        because = f"annotations domain {domain} and proto {proto}"
        if secret := parsed.asked.secret:
            because += f", tls-secret {values.shortened(secret)}"
            found = secrets.get(Key(key.namespace, secret))
            because += f" ({found.about if found is not None else NO_CERTIFICATE})"
        wanted = values.comparable_name(parsed.asked.domain)
        entry = entries.get(wanted)
        is_mine = entry is not None and (entry["namespace"], entry["name"]) == key
        yield Claim(
            ObjectRef(kind, *key, cluster),
            PresetName.DOMAINS,
            because,
            (wanted,) if wanted else (),
            (_backend(entry),) if entry is not None and is_mine else (),
            services=(key,),
        )


def _backend(entry: Mapping[str, Any]) -> ClaimedBackend:
    domain = entry["domain"]
    routed = entry["proto"] in ROUTED_BY_NAME or entry["listen_port"] is not None
    why = "" if routed else "it was given no port to listen on"
    return ClaimedBackend(domain, entry["key"], domain, entry["endpoints"], frozenset({domain}), why)
