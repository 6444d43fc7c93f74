"""Listeners of one Gateway: which are accepted, what they ask for, and which certificates they have.

Read in this order: :func:`decide_listeners` judges each listener by itself, then all of one port together.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.certificates import ServedCertificate
from pyconfd.presets.gateway.grants import Grants, ReferenceTarget, Referrer
from pyconfd.presets.gateway.status import Fault, StatusCondition, met, of_faults, unmet

MOST_LISTENERS = 64
"""Source: the CRD of Gateway."""


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
    and supported. ``is_programmed``: it can serve.
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


class _ListenerDraft:
    """A listener while it is judged."""

    def __init__(self, listener: GatewayListener) -> None:
        self.listener = listener
        self.hostname = ""
        self.mode = TlsMode.NONE
        self.kinds: tuple[str, ...] = ()
        self.certificates: tuple[ResolvedCertificate, ...] = ()
        self.client_ca: ClientCa | None = None
        self.not_accepted: list[Fault] = []
        self.not_resolved: list[Fault] = []
        self.conflict: Fault | None = None
        self.overlap = ""

    def field(self, path: str = "") -> str:
        """Return where a value stands."""
        name = values.shortened(self.listener.name)
        return f"listener {name} {path}".rstrip()

    def refuse(self, reason: str, path: str, value: str, detail: str) -> None:
        self.not_accepted.append(Fault(reason, self.field(path), value, detail))

    def unresolved(self, reason: str, path: str, value: str, detail: str) -> None:
        self.not_resolved.append(Fault(reason, self.field(path), value, detail))


def decide_listeners(
    gateway: Gateway, lookup: Referents, taken: Callable[[int], str] = lambda _: ""
) -> tuple[ListenerDecision, ...]:
    """Return what becomes of each listener, one for each name; ``taken`` returns which owner a port has already, or "".

    Never raises: the CRD is not relied upon, as files have Gateways too.
    """
    drafts: dict[str, _ListenerDraft] = {}
    for number, listener in enumerate(gateway.spec.listeners):
        if listener.name in drafts:
            drafts[listener.name].refuse("UnsupportedValue", "name", listener.name, "another listener has this name")
            continue
        draft = drafts[listener.name] = _ListenerDraft(listener)
        if number >= MOST_LISTENERS:
            draft.refuse("UnsupportedValue", "", "", f"a Gateway has {MOST_LISTENERS} listeners at most")
            continue
        _judge(draft, gateway, lookup, taken)
    _find_conflicts(list(drafts.values()))
    return tuple(map(_decision, drafts.values()))


def _judge(draft: _ListenerDraft, gateway: Gateway, lookup: Referents, taken: Callable[[int], str]) -> None:
    listener = draft.listener
    if not values.is_object_name(listener.name):
        draft.refuse("UnsupportedValue", "name", listener.name, "this is no name of a listener")
    if listener.protocol not in ROUTE_KINDS:
        supported = ", ".join(ROUTE_KINDS)
        draft.refuse("UnsupportedProtocol", "protocol", listener.protocol, f"supported are {supported}")
        return
    if not 0 < listener.port < 65536:
        draft.refuse("PortUnavailable", "port", str(listener.port), "this is no port")
    elif holder := taken(listener.port):
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
        certificate = _certificate(draft, gateway.metadata.namespace, reference, lookup)
        if certificate is not None:
            found.append(certificate)
    if not references:
        detail = "TLS cannot be terminated without a certificate: name a Secret"
        draft.unresolved("InvalidCertificateRef", "tls.certificateRefs", "", detail)
    draft.certificates = tuple(found)
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    validation = _validation(frontend, listener.port)
    if validation is not None and listener.protocol == Protocol.HTTPS:
        _judge_clients(draft, gateway.metadata.namespace, validation, lookup)


def _certificate(
    draft: _ListenerDraft, namespace: str, reference: SecretReference, lookup: Referents
) -> ResolvedCertificate | None:
    field, key = "tls.certificateRefs", Key(reference.namespace or namespace, reference.name)
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = ".".join(filter(None, (reference.kind, reference.group)))
        draft.unresolved("InvalidCertificateRef", field, kind, "certificates are in Secrets: name a Secret")
        return None
    if not _is_permitted(lookup.grants, namespace, "Secret", key):
        detail = f"no ReferenceGrant of namespace {key.namespace} allows Gateways of {namespace} to use it"
        draft.unresolved("RefNotPermitted", field, f"{key.namespace}/{key.name}", detail)
        return None
    found = lookup.secret(key)
    if found.fault:
        draft.unresolved("InvalidCertificateRef", field, f"{key.namespace}/{key.name}", found.fault)
    return found if found.pem else None


def _is_permitted(grants: Grants, namespace: str, kind: str, key: Key) -> bool:
    return grants.permits(Referrer("Gateway", namespace), ReferenceTarget(kind, key.namespace, key.name))


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
    if not _is_permitted(lookup.grants, namespace, "ConfigMap", key):
        detail = f"no ReferenceGrant of namespace {key.namespace} allows Gateways of {namespace} to use it"
        draft.unresolved("RefNotPermitted", field, f"{key.namespace}/{key.name}", detail)
        return ""
    found = lookup.ca_bundle(key)
    if found.fault:
        draft.unresolved("InvalidCACertificateRef", field, f"{key.namespace}/{key.name}", found.fault)
    return found.pem


def _find_conflicts(drafts: Sequence[_ListenerDraft]) -> None:
    """Mark listeners of one port that requests cannot be told apart for: all of them, none of them wins."""
    by_port: defaultdict[int, list[_ListenerDraft]] = defaultdict(list)
    for draft in drafts:
        if draft.listener.protocol in ROUTE_KINDS:
            by_port[draft.listener.port].append(draft)
    for port, together in by_port.items():
        protocols = sorted({draft.listener.protocol for draft in together})
        if len(together) > 1 and (len(protocols) > 1 or protocols[0] == Protocol.TCP) and not _are_tls(protocols):
            shown = " and ".join(protocols)
            detail = f"several listeners have port {port} with {shown}: give each a port of its own"
            for draft in together:
                draft.conflict = Fault("ProtocolConflict", draft.field("port"), str(port), detail)
            continue
        hostnames = Counter(draft.hostname for draft in together)
        for draft in together:
            if hostnames[draft.hostname] > 1:
                detail = f"several listeners of port {port} have this hostname: give each another one"
                draft.conflict = Fault("HostnameConflict", draft.field("hostname"), draft.hostname, detail)
        if _are_tls(protocols):
            _find_overlaps(together)


def _are_tls(protocols: Iterable[str]) -> bool:
    """Return whether all protocols begin with TLS, so that the name in the hello tells listeners apart."""
    return all(each in {Protocol.HTTPS, Protocol.TLS} for each in protocols)


def _find_overlaps(together: Sequence[_ListenerDraft]) -> None:
    for draft in together:
        others = [
            each.listener.name
            for each in together
            if each is not draft and (covers(each.hostname, draft.hostname) or covers(draft.hostname, each.hostname))
        ]
        draft.overlap = ", ".join(sorted(map(values.shortened, others)))


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
        programmed = unmet("Programmed", cause._replace(reason="Invalid"))
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
    )


def _is_conflicted(fault: Fault) -> StatusCondition:
    return StatusCondition("Conflicted", "True", fault.reason, fault.message)
