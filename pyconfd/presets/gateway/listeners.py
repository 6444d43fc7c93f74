"""Listeners of one Gateway and of its ListenerSets: which are accepted, and which certificates they have.

Read in this order: :func:`decide_listeners` judges each listener by itself, then all of one port together.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pyconfd.model.gateway_api import (
    GROUP,
    ClientValidation,
    FrontendTls,
    Gateway,
    GatewayListener,
    NamespacesFrom,
    ObjectReference,
    SecretReference,
)
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.certificates import ServedCertificate
from pyconfd.presets.gateway.grants import Grants, ReferenceTarget, Referrer
from pyconfd.presets.gateway.status import Fault, StatusCondition, met, of_faults, unmet
from pyconfd.presets.host_ownership import wildcards_above
from pyconfd.presets.policy import ANYTHING, ClaimOptions
from pyconfd.presets.routing.types import section_name

MOST_LISTENERS = 64
"""Of a Gateway, and of all ListenerSets of one namespace at it. Source: the CRDs of Gateway and ListenerSet."""
MOST_ADDED = 1024
"""Of all ListenerSets of a Gateway: when one of them changes, all are judged again (63 ms beside 3,000 routes)."""
TOO_MANY = (
    f"at a Gateway, ListenerSets of a namespace have {MOST_LISTENERS} listeners at most, and those of all namespaces"
    f" {MOST_ADDED}: remove some, or use another Gateway"
)
MOST_LABELS = 8
"""Of a wildcard of a route or ListenerSet: each below another costs every request of the port four rules of HAProxy."""
_MOST_SHOWN = 4
"""Other listeners that a message names."""


class Protocol(StrEnum):
    """The protocols of listeners that are supported."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"
    TLS = "TLS"
    TCP = "TCP"


class TlsMode(StrEnum):
    """What happens to TLS at a listener."""

    NONE = ""
    TERMINATE = "Terminate"
    PASSTHROUGH = "Passthrough"


ROUTE_KINDS: Mapping[str, tuple[str, ...]] = {
    Protocol.HTTP: ("HTTPRoute", "GRPCRoute"),
    Protocol.HTTPS: ("HTTPRoute", "GRPCRoute"),
    Protocol.TLS: ("TLSRoute",),
    Protocol.TCP: ("TCPRoute",),
}
"""The kinds of routes for each protocol."""

_BY_NAME = frozenset({Protocol.HTTP, Protocol.HTTPS, Protocol.TLS})
"""Protocols whose listeners may share a port."""


class ResolvedCertificate(NamedTuple):
    """What a reference to certificates leads to: the file with ``pem``, at ``path`` where they are of a Secret.

    ``fault`` says why it leads nowhere, or (with a certificate) why that is not the newest one. ``served`` is the
    certificate of a Secret.
    """

    pem: str = ""
    path: str = ""
    fault: str = ""
    served: ServedCertificate = ServedCertificate()


class Referents(NamedTuple):
    """What Gateways refer to: TLS Secrets, CA certificates of ConfigMaps, and the grants."""

    secret: Callable[[Key], ResolvedCertificate]
    ca_bundle: Callable[[Key], ResolvedCertificate]
    grants: Grants


class ClientCa(NamedTuple):
    """What client certificates are verified with; ``optional``: a client without a valid one is let in."""

    pem: str
    optional: bool = False


class ListenerDecision(NamedTuple):
    """One listener as far as its Gateway decides; routes attach to it by ``kinds`` and ``namespaces`` whatever else.

    ``hostname`` is "" for any host. ``faults`` are all that is wrong. ``is_accepted``: it is distinct from the others
    and supported. ``is_programmed``: it can serve. ``owner`` is its Gateway or ListenerSet.
    """

    name: str
    port: int
    protocol: str
    hostname: str
    mode: TlsMode
    kinds: tuple[str, ...]
    namespaces: NamespacesFrom
    certificates: tuple[ResolvedCertificate, ...]
    client_ca: ClientCa | None
    faults: tuple[Fault, ...]
    conditions: tuple[StatusCondition, ...]
    is_accepted: bool
    is_programmed: bool
    refs_resolved: bool
    owner: Owner

    @property
    def is_added(self) -> bool:
        """Whether it is of a ListenerSet."""
        return self.owner.kind != "Gateway"

    @property
    def parent(self) -> Key:
        """Its Gateway or ListenerSet."""
        return Key(self.owner.namespace, self.owner.name)

    @property
    def id(self) -> str:
        """What tells it from all others of the Gateway, of which several may have the same name."""
        return section_name("set", *self.parent, self.name) if self.is_added else self.name


class AddedListeners(NamedTuple):
    """The listeners of a ListenerSet that its Gateway allows."""

    owner: Owner
    listeners: tuple[GatewayListener, ...]


class ListenerHostRights(NamedTuple):
    """Who may have which host: ``first`` returns whose route at the Gateway asked for a host before a ListenerSet."""

    claims: ClaimOptions = ANYTHING
    first: Callable[[Owner, int, str], Owner | None] = lambda _, __, ___: None


_ANY_HOST = ListenerHostRights()


class _ListenerDraft:
    """A listener while it is judged."""

    def __init__(self, listener: GatewayListener, owner: Owner) -> None:
        self.listener, self.owner = listener, owner
        self.hostname = ""
        self.mode = TlsMode.NONE
        self.kinds: tuple[str, ...] = ()
        self.certificates: tuple[ResolvedCertificate, ...] = ()
        self.client_ca: ClientCa | None = None
        self.not_accepted: list[Fault] = []
        self.not_resolved: list[Fault] = []
        self.conflict: Fault | None = None
        self.overlap = ""

    @property
    def is_added(self) -> bool:
        """Whether it is of a ListenerSet."""
        return self.owner.kind != "Gateway"

    @property
    def is_port_held(self) -> bool:
        """Whether no later listener may have its host. Nobody gets what a Gateway is denied for its own faults."""
        return not self.is_added or not (self.conflict or self.not_accepted)

    def field(self, path: str = "") -> str:
        """Return where a value stands."""
        name = values.shortened(self.listener.name)
        return f"listener {name} {path}".rstrip()

    def refuse(self, reason: str, path: str, value: str, detail: str) -> None:
        self.not_accepted.append(Fault(reason, self.field(path), value, detail))

    def unresolved(self, reason: str, path: str, value: str, detail: str) -> None:
        self.not_resolved.append(Fault(reason, self.field(path), value, detail))


def decide_listeners(
    gateway: Gateway,
    lookup: Referents,
    taken: Callable[[int], str] = lambda _: "",
    added: Sequence[AddedListeners] = (),
    rights: ListenerHostRights = _ANY_HOST,
) -> tuple[ListenerDecision, ...]:
    """Return what becomes of each listener, one for each name of a Gateway or ListenerSet.

    ``added`` are its ListenerSets, the one first that has what several ask for; what begins beyond the bounds is left
    out. ``taken`` returns which owner of another preset has a port, or "". Never raises: the CRD is not relied upon, as
    files have Gateways too.
    """
    counts: Counter[str] = Counter()
    number_added = 0
    groups: list[tuple[_ListenerDraft, ...]] = []
    judged: list[list[_ListenerDraft]] = []
    for owner, listeners in ((owner_of(gateway), gateway.spec.listeners), *added):
        if counts[owner.namespace] >= MOST_LISTENERS or number_added >= MOST_ADDED:
            continue
        drafts: dict[str, _ListenerDraft] = {}
        judged.append([])
        for number, listener in enumerate(listeners):
            if listener.name in drafts:
                drafts[listener.name].refuse(
                    "UnsupportedValue", "name", listener.name, "another listener has this name"
                )
                continue
            draft = drafts[listener.name] = _ListenerDraft(listener, owner)
            if draft.is_added:
                if counts[owner.namespace] >= MOST_LISTENERS or number_added >= MOST_ADDED:
                    draft.refuse("TooManyListeners", "", "", TOO_MANY)
                    continue
                counts[owner.namespace] += 1
                number_added += 1
            elif number >= MOST_LISTENERS:
                draft.refuse("UnsupportedValue", "", "", f"a Gateway has {MOST_LISTENERS} listeners at most")
                continue
            _judge(draft, gateway, lookup, taken, rights.claims)
            if draft.is_added and owner.namespace != gateway.metadata.namespace:
                _judge_host(draft, rights)
            judged[-1].append(draft)
        groups.append(tuple(drafts.values()))
    _find_conflicts(judged)
    return tuple(_decision(draft) for group in groups for draft in group)


def owner_of(gateway: Gateway) -> Owner:
    """Return a Gateway as the owner of what it has."""
    meta = gateway.metadata
    return Owner("Gateway", meta.namespace, meta.name, meta.creation_timestamp or NEVER)


def _judge(
    draft: _ListenerDraft, gateway: Gateway, lookup: Referents, taken: Callable[[int], str], claims: ClaimOptions
) -> None:
    listener, namespace = draft.listener, draft.owner.namespace
    if not values.is_object_name(listener.name):
        draft.refuse("UnsupportedValue", "name", listener.name, "this is no name of a listener")
    if listener.protocol not in ROUTE_KINDS:
        supported = ", ".join(ROUTE_KINDS)
        draft.refuse("UnsupportedProtocol", "protocol", listener.protocol, f"supported are {supported}")
        return
    if not 0 < listener.port < 65536:
        draft.refuse("PortUnavailable", "port", str(listener.port), "this is no port")
    elif holder := claims.port(namespace, listener.port) or taken(listener.port):
        draft.refuse("PortUnavailable", "port", str(listener.port), f"{holder}; choose another port")
    _judge_kinds(draft)
    if listener.hostname and listener.protocol in _BY_NAME:
        try:
            draft.hostname = values.host_name(listener.hostname)
        except ValueError as error:
            draft.hostname = listener.hostname
            draft.refuse("UnsupportedValue", "hostname", listener.hostname, str(error))
    if listener.protocol in {Protocol.HTTPS, Protocol.TLS}:
        _judge_tls(draft, gateway, lookup)


def _judge_host(draft: _ListenerDraft, rights: ListenerHostRights) -> None:
    """Judge the host of a ListenerSet of another namespace than its Gateway's.

    Requests belong to the listener that says more of the host. So it takes them from routes of others there.
    """
    listener, owner, host = draft.listener, draft.owner, draft.hostname
    if listener.protocol not in _BY_NAME:
        return
    if wrong := rights.claims.domain(owner.namespace, host or "*"):
        draft.refuse("NotAllowed", "hostname", host, wrong)
    elif host.startswith("*.") and host.count(".") > MOST_LABELS:
        detail = f"a wildcard has at most {MOST_LABELS} labels behind the asterisk: name its hosts"
        draft.refuse("UnsupportedValue", "hostname", host, detail)
    elif host and (first := rights.first(owner, listener.port, host)) is not None:
        which = "a host below this one" if host.startswith("*.") else "this host"
        detail = f"{_shown(first)} has {which} at the Gateway, and is older: choose another one"
        draft.conflict = Fault("HostnameConflict", draft.field("hostname"), host, detail)


def _judge_kinds(draft: _ListenerDraft) -> None:
    possible = ROUTE_KINDS[draft.listener.protocol]
    wanted = draft.listener.allowed_routes.kinds
    if not wanted:
        draft.kinds = possible
        return
    draft.kinds = tuple(each.kind for each in wanted if each.group == GROUP and each.kind in possible)
    for each in wanted:
        if each.group != GROUP or each.kind not in possible:
            protocol = draft.listener.protocol
            detail = f"a listener of protocol {protocol} takes {' and '.join(possible)}"
            draft.unresolved("InvalidRouteKinds", "allowedRoutes.kinds", each.kind, detail)


def _judge_tls(draft: _ListenerDraft, gateway: Gateway, lookup: Referents) -> None:
    listener = draft.listener
    mode = listener.tls.mode if listener.tls is not None else TlsMode.TERMINATE
    if mode not in {TlsMode.TERMINATE, TlsMode.PASSTHROUGH}:
        draft.refuse("UnsupportedValue", "tls.mode", mode, "supported are Terminate and Passthrough")
        return
    draft.mode = TlsMode(mode)
    if draft.mode is TlsMode.PASSTHROUGH:
        if listener.protocol == Protocol.HTTPS:
            draft.refuse("UnsupportedValue", "tls.mode", mode, "a listener of protocol HTTPS has the mode Terminate")
        return
    found = []
    references = (listener.tls.certificate_refs if listener.tls is not None else None) or ()
    for reference in references:
        certificate = _certificate(draft, reference, lookup)
        if certificate is not None:
            found.append(certificate)
    if not references:
        detail = "TLS cannot be terminated without a certificate: name a Secret"
        draft.unresolved("InvalidCertificateRef", "tls.certificateRefs", "", detail)
    draft.certificates = tuple(found)
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    validation = _validation(frontend, listener.port)
    if validation is None or listener.protocol != Protocol.HTTPS:
        return
    if not draft.is_added:
        _judge_clients(draft, gateway.metadata.namespace, validation, lookup)
        return
    # What its Gateway refers to is no business of a ListenerSet, and is said there.
    of_gateway = _ListenerDraft(listener, owner_of(gateway))
    _judge_clients(of_gateway, gateway.metadata.namespace, validation, lookup)
    draft.client_ca = of_gateway.client_ca
    if of_gateway.not_accepted:
        detail = "clients cannot be verified as the Gateway asks: its owner has to correct spec.tls.frontend"
        draft.refuse("NoValidCACertificate", "", "", detail)


def _certificate(draft: _ListenerDraft, reference: SecretReference, lookup: Referents) -> ResolvedCertificate | None:
    kind_, namespace = draft.owner.kind, draft.owner.namespace
    field, key = "tls.certificateRefs", Key(reference.namespace or namespace, reference.name)
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = ".".join(filter(None, (reference.kind, reference.group)))
        draft.unresolved("InvalidCertificateRef", field, kind, "certificates are in Secrets: name a Secret")
        return None
    if not lookup.grants.permits(Referrer(kind_, namespace), ReferenceTarget("Secret", *key)):
        detail = f"no ReferenceGrant of namespace {key.namespace} allows {kind_}s of {namespace} to use it"
        draft.unresolved("RefNotPermitted", field, f"{key.namespace}/{key.name}", detail)
        return None
    found = lookup.secret(key)
    if found.fault:
        draft.unresolved("InvalidCertificateRef", field, f"{key.namespace}/{key.name}", found.fault)
    return found if found.pem else None


def _validation(frontend: FrontendTls | None, port: int) -> ClientValidation | None:
    if frontend is None:
        return None
    of_port = next((each.tls for each in frontend.per_port or () if each.port == port), frontend.default)
    return of_port.validation


def _judge_clients(draft: _ListenerDraft, namespace: str, validation: ClientValidation, lookup: Referents) -> None:
    bundles = []
    for reference in validation.ca_certificate_refs:
        pem = _ca_bundle(draft, namespace, reference, lookup)
        if pem:
            bundles.append(pem)
    if bundles:
        draft.client_ca = ClientCa("".join(bundles), validation.mode == "AllowInsecureFallback")
    else:
        detail = "no client certificate could be verified: name a ConfigMap with CA certificates in ca.crt"
        draft.refuse("NoValidCACertificate", "tls.frontend.validation.caCertificateRefs", "", detail)
    if validation.mode not in {"AllowValidOnly", "AllowInsecureFallback"}:
        detail = "supported are AllowValidOnly and AllowInsecureFallback"
        draft.refuse("UnsupportedValue", "tls.frontend.validation.mode", validation.mode, detail)


def _ca_bundle(draft: _ListenerDraft, namespace: str, reference: ObjectReference, lookup: Referents) -> str:
    field, key = "tls.frontend.validation.caCertificateRefs", Key(reference.namespace or namespace, reference.name)
    if (reference.group, reference.kind) != ("", "ConfigMap"):
        kind = ".".join(filter(None, (reference.kind, reference.group)))
        draft.unresolved("InvalidCACertificateKind", field, kind, "CA certificates are in ConfigMaps: name one")
        return ""
    if not lookup.grants.permits(Referrer("Gateway", namespace), ReferenceTarget("ConfigMap", *key)):
        detail = f"no ReferenceGrant of namespace {key.namespace} allows Gateways of {namespace} to use it"
        draft.unresolved("RefNotPermitted", field, f"{key.namespace}/{key.name}", detail)
        return ""
    found = lookup.ca_bundle(key)
    if found.fault:
        draft.unresolved("InvalidCACertificateRef", field, f"{key.namespace}/{key.name}", found.fault)
    return found.pem


class _PortHolders:
    """Who has what of one port so far."""

    def __init__(self) -> None:
        self.protocols: dict[str, _ListenerDraft] = {}
        self.hosts: dict[str, _ListenerDraft] = {}

    def add(self, draft: _ListenerDraft) -> None:
        if draft.is_port_held:
            self.protocols.setdefault(draft.listener.protocol, draft)
            self.hosts.setdefault(draft.hostname, draft)

    def conflict(self, draft: _ListenerDraft) -> Fault | None:
        """Return why a listener cannot be at the port beside those that have it."""
        port, protocol = draft.listener.port, draft.listener.protocol
        for known, first in self.protocols.items():
            if not _go_together({known, protocol}) or protocol == Protocol.TCP:
                detail = f"{_shown(first.owner)} has port {port} for {known}: choose another port"
                return Fault("ProtocolConflict", draft.field("port"), str(port), detail)
        if (holder := self.hosts.get(draft.hostname)) is not None:
            detail = f"{_shown(holder.owner)} has this hostname at port {port}: choose another one"
            return Fault("HostnameConflict", draft.field("hostname"), draft.hostname, detail)
        return None


def _shown(owner: Owner) -> str:
    kind, namespace, name, _ = owner
    return f"{kind} {values.shortened(namespace)}/{values.shortened(name)}"


def _find_conflicts(groups: Sequence[Sequence[_ListenerDraft]]) -> None:
    """Mark listeners of one port that requests cannot be told apart for.

    Between objects the first of ``groups`` wins; of what is left of one object, none.
    """
    ports: defaultdict[int, list[_ListenerDraft]] = defaultdict(list)
    holders: defaultdict[int, _PortHolders] = defaultdict(_PortHolders)
    for drafts in groups:
        by_port: defaultdict[int, list[_ListenerDraft]] = defaultdict(list)
        for draft in drafts:
            if draft.listener.protocol in ROUTE_KINDS:
                by_port[draft.listener.port].append(draft)
        for port, together in by_port.items():
            for draft in together:
                draft.conflict = draft.conflict or holders[port].conflict(draft)
            _find_conflicts_within(port, [each for each in together if each.conflict is None])
            for draft in together:
                holders[port].add(draft)
            ports[port] += together
    for at_port in ports.values():
        _find_overlaps([each for each in at_port if not each.is_added or each.is_port_held])


def _find_conflicts_within(port: int, together: Sequence[_ListenerDraft]) -> None:
    protocols = {draft.listener.protocol for draft in together}
    if len(together) > 1 and (not _go_together(protocols) or Protocol.TCP in protocols):
        shown = " and ".join(sorted(protocols))
        detail = f"several listeners have port {port} with {shown}: give each a port of its own"
        for draft in together:
            draft.conflict = Fault("ProtocolConflict", draft.field("port"), str(port), detail)
        return
    hostnames = Counter(draft.hostname for draft in together)
    for draft in together:
        if hostnames[draft.hostname] > 1:
            detail = f"several listeners of port {port} have this hostname: give each another one"
            draft.conflict = Fault("HostnameConflict", draft.field("hostname"), draft.hostname, detail)


def _go_together(protocols: Collection[str]) -> bool:
    """Return whether one port can have listeners of all these protocols."""
    return len(protocols) < 2 or _are_tls(protocols)


def _are_tls(protocols: Iterable[str]) -> bool:
    """Return whether all protocols begin with TLS, so that the name in the hello tells listeners apart."""
    return all(each in {Protocol.HTTPS, Protocol.TLS} for each in protocols)


def _find_overlaps(together: Sequence[_ListenerDraft]) -> None:
    """Record of which others each listener may get requests, where all of a port begin with TLS."""
    if not _are_tls(draft.listener.protocol for draft in together):
        return
    by_host: defaultdict[str, list[_ListenerDraft]] = defaultdict(list)
    for draft in together:
        by_host[draft.hostname].append(draft)
    overlapping: defaultdict[int, list[_ListenerDraft]] = defaultdict(list)
    for draft in together:
        for host in dict.fromkeys((draft.hostname, *wildcards_above(draft.hostname), "")):
            for other in by_host.get(host, ()):
                if other is not draft:
                    overlapping[id(draft)].append(other)
                    if other.hostname != draft.hostname:
                        overlapping[id(other)].append(draft)
    for draft in together:
        if found := overlapping[id(draft)]:
            names = sorted(
                values.shortened(each.listener.name)
                + (f" of {_shown(each.owner)}" if each.owner != draft.owner else "")
                for each in found
            )
            more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
            draft.overlap = ", ".join(names[:_MOST_SHOWN]) + more


def covers(pattern: str, host: str) -> bool:
    """Return whether every host of ``host`` (a name, or ``*.`` and a name) is one of ``pattern``; "" is any host."""
    if not pattern or pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) > len(pattern) - 1


def _decision(draft: _ListenerDraft) -> ListenerDecision:
    listener, conflict = draft.listener, draft.conflict
    not_accepted = [*([conflict] if conflict is not None else []), *draft.not_accepted]
    needs_certificate = draft.mode is TlsMode.TERMINATE and not draft.certificates
    useless = not_accepted or not draft.kinds or needs_certificate
    programmed = met("Programmed")
    if useless:
        cause = (*not_accepted, *draft.not_resolved)[0]
        # Source: the suite, which wants the conflict in this condition of a ListenerSet.
        is_told = draft.is_added and conflict is not None
        programmed = unmet("Programmed", cause if is_told else cause._replace(reason="Invalid"))
    found = [
        of_faults("Accepted", not_accepted),
        programmed,
        of_faults("ResolvedRefs", draft.not_resolved),
        StatusCondition("Conflicted", "False", "NoConflicts") if conflict is None else _is_conflicted(conflict),
    ]
    if draft.overlap:
        message = f"clients may use one connection for hosts of this listener and of {draft.overlap}"
        found.append(StatusCondition("OverlappingTLSConfig", "True", "OverlappingHostnames", message))
    return ListenerDecision(
        listener.name,
        listener.port,
        listener.protocol,
        draft.hostname,
        draft.mode,
        draft.kinds,
        listener.allowed_routes.namespaces,
        draft.certificates,
        draft.client_ca,
        (*not_accepted, *draft.not_resolved),
        tuple(found),
        is_accepted=not not_accepted,
        is_programmed=not useless,
        refs_resolved=not draft.not_resolved,
        owner=draft.owner,
    )


def _is_conflicted(fault: Fault) -> StatusCondition:
    return StatusCondition("Conflicted", "True", fault.reason, fault.message)
