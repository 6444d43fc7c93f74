"""The parts of the Gateway API that pyconfd uses, under the API's own names in snake_case.

Source: the types of gateway.networking.k8s.io/v1 and their defaults. A default that the CRD fills in stands here too,
so that files and clusters mean the same.
"""

import msgspec

from pyconfd.model.records import LabelSelector, ObjectMeta, Record, Status

GROUP = "gateway.networking.k8s.io"


class ObjectReference(Record, frozen=True, gc=False):
    """An object of any namespace; ``namespace`` None is that of the object that names it."""

    group: str = ""
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class SecretReference(Record, frozen=True, gc=False):
    """A Secret unless group and kind say otherwise."""

    group: str = ""
    kind: str = "Secret"
    name: str = ""
    namespace: str | None = None


class GatewayClassSpec(Record, frozen=True, gc=False):
    """``controller_name`` says who serves Gateways of this class."""

    controller_name: str = ""
    parameters_ref: ObjectReference | None = None


class GatewayClass(Record, frozen=True, gc=False):
    """A GatewayClass, which has no namespace."""

    metadata: ObjectMeta
    spec: GatewayClassSpec = GatewayClassSpec()
    status: Status | None = None


class RouteKind(Record, frozen=True, gc=False):
    """A kind of routes that a listener takes."""

    kind: str = ""
    group: str = GROUP


class NamespacesFrom(Record, frozen=True, gc=False):
    """``from`` is All, Same, Selector or None; ``selector`` is for namespaces."""

    where: str = msgspec.field(name="from", default="Same")
    selector: LabelSelector | None = None


class AllowedRoutes(Record, frozen=True, gc=False):
    """Which routes may attach to a listener; without ``kinds`` those that suit its protocol."""

    namespaces: NamespacesFrom = NamespacesFrom()
    kinds: tuple[RouteKind, ...] | None = None


class ListenerTls(Record, frozen=True, gc=False):
    """``mode`` is Terminate or Passthrough."""

    mode: str = "Terminate"
    certificate_refs: tuple[SecretReference, ...] | None = None
    options: dict[str, str] | None = None


class GatewayListener(Record, frozen=True, gc=False):
    """``protocol`` is HTTP, HTTPS, TLS, TCP or another word; ``hostname`` None is any host."""

    name: str = ""
    hostname: str | None = None
    port: int = 0
    protocol: str = ""
    tls: ListenerTls | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()


class GatewayAddress(Record, frozen=True, gc=False):
    """``type`` is IPAddress, Hostname or a name with a domain; an empty ``value`` asks for any."""

    type: str = "IPAddress"
    value: str = ""


class ClientValidation(Record, frozen=True, gc=False):
    """What client certificates are verified with; ``mode`` is AllowValidOnly or AllowInsecureFallback."""

    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    mode: str = "AllowValidOnly"


class FrontendTlsConfig(Record, frozen=True, gc=False):
    """TLS of a port towards clients."""

    validation: ClientValidation | None = None


class FrontendTlsPort(Record, frozen=True, gc=False):
    """TLS of one port."""

    port: int = 0
    tls: FrontendTlsConfig = FrontendTlsConfig()


class FrontendTls(Record, frozen=True, gc=False):
    """TLS towards clients, for all HTTPS listeners and by port."""

    default: FrontendTlsConfig = FrontendTlsConfig()
    per_port: tuple[FrontendTlsPort, ...] | None = None


class BackendClientTls(Record, frozen=True, gc=False):
    """The certificate that the Gateway shows to backends."""

    client_certificate_ref: SecretReference | None = None


class GatewayTls(Record, frozen=True, gc=False):
    """TLS of a Gateway towards clients and backends."""

    backend: BackendClientTls | None = None
    frontend: FrontendTls | None = None


class ParametersReference(Record, frozen=True, gc=False):
    """Names an object of the Gateway's namespace with settings for it; no kind is supported."""

    group: str = ""
    kind: str = ""
    name: str = ""


class GatewayInfrastructure(Record, frozen=True, gc=False):
    """Labels and annotations for what is made for a Gateway: a Service, where the operator asks for it."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    parameters_ref: ParametersReference | None = None


class ListenerNamespaces(NamespacesFrom, frozen=True, gc=False):
    """``from`` is None where nothing is said."""

    where: str = msgspec.field(name="from", default="None")


class AllowedListeners(Record, frozen=True, gc=False):
    """The namespaces whose ListenerSets may add listeners to a Gateway."""

    namespaces: ListenerNamespaces = ListenerNamespaces()


class GatewaySpec(Record, frozen=True, gc=False):
    """Listeners, whose ListenerSets may add others, and the addresses that are asked for."""

    gateway_class_name: str = ""
    listeners: tuple[GatewayListener, ...] = ()
    addresses: tuple[GatewayAddress, ...] | None = None
    infrastructure: GatewayInfrastructure | None = None
    tls: GatewayTls | None = None
    allowed_listeners: AllowedListeners = AllowedListeners()


class Gateway(Record, frozen=True, gc=False):
    """A Gateway."""

    metadata: ObjectMeta
    spec: GatewaySpec = GatewaySpec()
    status: Status | None = None


class ParentGateway(Record, frozen=True, gc=False):
    """The Gateway that a ListenerSet adds to; ``namespace`` None is that of the set."""

    name: str = ""
    namespace: str | None = None
    group: str = GROUP
    kind: str = "Gateway"


class ListenerSetSpec(Record, frozen=True, gc=False):
    """Listeners for a Gateway of somebody else."""

    parent_ref: ParentGateway = ParentGateway()
    listeners: tuple[GatewayListener, ...] = ()


class ListenerSet(Record, frozen=True, gc=False):
    """A ListenerSet."""

    metadata: ObjectMeta
    spec: ListenerSetSpec = ListenerSetSpec()
    status: Status | None = None


class ParentReference(Record, frozen=True, gc=False):
    """The Gateway or ListenerSet, and maybe the listener by name or port, that a route attaches to."""

    name: str = ""
    namespace: str | None = None
    section_name: str | None = None
    port: int | None = None
    group: str = GROUP
    kind: str = "Gateway"


class BackendRef(Record, frozen=True, gc=False):
    """A Service port with a weight, unless group and kind say otherwise."""

    name: str = ""
    namespace: str | None = None
    port: int | None = None
    weight: int = 1
    group: str = ""
    kind: str = "Service"


class HttpHeader(Record, frozen=True, gc=False):
    """A header with its value."""

    name: str = ""
    value: str = ""


class HeaderModifier(Record, frozen=True, gc=False):
    """What to do to headers, in this order: set, add, remove."""

    set: tuple[HttpHeader, ...] | None = None
    add: tuple[HttpHeader, ...] | None = None
    remove: tuple[str, ...] | None = None


class PathModifier(Record, frozen=True, gc=False):
    """``type`` is ReplaceFullPath or ReplacePrefixMatch."""

    type: str = ""
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RequestRedirect(Record, frozen=True, gc=False):
    """Where a request is redirected to; what is None stays as the client asked."""

    scheme: str | None = None
    hostname: str | None = None
    path: PathModifier | None = None
    port: int | None = None
    status_code: int = 302


class UrlRewrite(Record, frozen=True, gc=False):
    """What of the URL a backend sees otherwise."""

    hostname: str | None = None
    path: PathModifier | None = None


class Fraction(Record, frozen=True, gc=False):
    """A share."""

    numerator: int = 0
    denominator: int = 100


class RequestMirror(Record, frozen=True, gc=False):
    """Where a copy of requests goes: all of them, ``percent``, or a ``fraction``."""

    backend_ref: BackendRef = BackendRef()
    percent: int | None = None
    fraction: Fraction | None = None


class CorsFilter(Record, frozen=True, gc=False):
    """Cross-origin rules; ``max_age`` in seconds."""

    allow_origins: tuple[str, ...] | None = None
    allow_credentials: bool | None = None
    allow_methods: tuple[str, ...] | None = None
    allow_headers: tuple[str, ...] | None = None
    expose_headers: tuple[str, ...] | None = None
    max_age: int = 5


class ExtensionReference(Record, frozen=True, gc=False):
    """An object of the route's namespace that says what a filter does."""

    group: str = ""
    kind: str = ""
    name: str = ""


class RouteFilter(Record, frozen=True, gc=False):
    """``type`` says which of the others is meant."""

    type: str = ""
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_mirror: RequestMirror | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: UrlRewrite | None = None
    cors: CorsFilter | None = None
    extension_ref: ExtensionReference | None = None


class RouteBackendRef(BackendRef, frozen=True, gc=False):
    """A reference of HTTPRoute or GRPCRoute, with filters for what goes there."""

    filters: tuple[RouteFilter, ...] | None = None


class HttpPathMatch(Record, frozen=True, gc=False):
    """``type`` is Exact, PathPrefix or RegularExpression."""

    type: str = "PathPrefix"
    value: str = "/"


class ValueMatch(Record, frozen=True, gc=False):
    """A header or query parameter; ``type`` is Exact or RegularExpression."""

    name: str = ""
    value: str = ""
    type: str = "Exact"


class HttpMatch(Record, frozen=True, gc=False):
    """All of it has to match."""

    path: HttpPathMatch = HttpPathMatch()
    headers: tuple[ValueMatch, ...] | None = None
    query_params: tuple[ValueMatch, ...] | None = None
    method: str | None = None


class HttpTimeouts(Record, frozen=True, gc=False):
    """Durations such as 500ms or 10s; "0s" is none."""

    request: str | None = None
    backend_request: str | None = None


class HttpRetry(Record, frozen=True, gc=False):
    """When and how often a request is tried again."""

    codes: tuple[int, ...] | None = None
    attempts: int | None = None
    backoff: str | None = None


class SessionConfig(Record, frozen=True, gc=False):
    """The cookie or header of a session; ``lifetime_type`` is Session or Permanent."""

    name: str = ""
    path: str = "/"
    lifetime_type: str = "Session"


class SessionPersistence(Record, frozen=True, gc=False):
    """Asks that a client keeps its backend; ``session_name`` and ``cookie_config`` are those of the API before 1.7."""

    type: str = "Cookie"
    session_name: str = ""
    absolute_timeout: str | None = None
    idle_timeout: str | None = None
    cookie_config: SessionConfig | None = None
    cookie: SessionConfig | None = None
    header: SessionConfig | None = None


class HttpRule(Record, frozen=True, gc=False):
    """One rule; without ``matches`` it is for all requests."""

    name: str = ""
    matches: tuple[HttpMatch, ...] | None = None
    filters: tuple[RouteFilter, ...] | None = None
    backend_refs: tuple[RouteBackendRef, ...] | None = None
    timeouts: HttpTimeouts | None = None
    retry: HttpRetry | None = None
    session_persistence: SessionPersistence | None = None


class HttpRouteSpec(Record, frozen=True, gc=False):
    """Parents, hosts and rules; the CRD fills in one rule for ``/`` where ``rules`` is missing."""

    parent_refs: tuple[ParentReference, ...] | None = None
    hostnames: tuple[str, ...] | None = None
    rules: tuple[HttpRule, ...] | None = None


class HTTPRoute(Record, frozen=True, gc=False):
    """An HTTPRoute."""

    metadata: ObjectMeta
    spec: HttpRouteSpec = HttpRouteSpec()
    status: Status | None = None


class GrpcMethodMatch(Record, frozen=True, gc=False):
    """``type`` is Exact or RegularExpression; None is any service or method."""

    type: str = "Exact"
    service: str | None = None
    method: str | None = None


class GrpcMatch(Record, frozen=True, gc=False):
    """All of it has to match."""

    method: GrpcMethodMatch | None = None
    headers: tuple[ValueMatch, ...] | None = None


class GrpcRule(Record, frozen=True, gc=False):
    """One rule; without ``matches`` it is for all requests."""

    name: str = ""
    matches: tuple[GrpcMatch, ...] | None = None
    filters: tuple[RouteFilter, ...] | None = None
    backend_refs: tuple[RouteBackendRef, ...] | None = None
    session_persistence: SessionPersistence | None = None


class GrpcRouteSpec(Record, frozen=True, gc=False):
    """Parents, hosts and rules."""

    parent_refs: tuple[ParentReference, ...] | None = None
    hostnames: tuple[str, ...] | None = None
    rules: tuple[GrpcRule, ...] | None = None


class GRPCRoute(Record, frozen=True, gc=False):
    """A GRPCRoute."""

    metadata: ObjectMeta
    spec: GrpcRouteSpec = GrpcRouteSpec()
    status: Status | None = None


class StreamRule(Record, frozen=True, gc=False):
    """The one rule of a TLSRoute or TCPRoute."""

    name: str = ""
    backend_refs: tuple[BackendRef, ...] | None = None


class TlsRouteSpec(Record, frozen=True, gc=False):
    """Parents, the names in the hello (SNI), and rules."""

    parent_refs: tuple[ParentReference, ...] | None = None
    hostnames: tuple[str, ...] | None = None
    rules: tuple[StreamRule, ...] | None = None


class TLSRoute(Record, frozen=True, gc=False):
    """A TLSRoute."""

    metadata: ObjectMeta
    spec: TlsRouteSpec = TlsRouteSpec()
    status: Status | None = None


class TcpRouteSpec(Record, frozen=True, gc=False):
    """Parents and rules."""

    parent_refs: tuple[ParentReference, ...] | None = None
    rules: tuple[StreamRule, ...] | None = None


class TCPRoute(Record, frozen=True, gc=False):
    """A TCPRoute."""

    metadata: ObjectMeta
    spec: TcpRouteSpec = TcpRouteSpec()
    status: Status | None = None


class GrantFrom(Record, frozen=True, gc=False):
    """Who may refer: objects of this kind in this namespace."""

    group: str = ""
    kind: str = ""
    namespace: str = ""


class GrantTo(Record, frozen=True, gc=False):
    """What may be referred to: all objects of this kind, or the one of this ``name``."""

    group: str = ""
    kind: str = ""
    name: str | None = None


class ReferenceGrantSpec(Record, frozen=True, gc=False):
    """Everybody in ``sources`` may refer to everything in ``to``."""

    sources: tuple[GrantFrom, ...] = msgspec.field(name="from", default=())
    to: tuple[GrantTo, ...] = ()


class ReferenceGrant(Record, frozen=True, gc=False):
    """A ReferenceGrant, in the namespace of what is referred to."""

    metadata: ObjectMeta
    spec: ReferenceGrantSpec = ReferenceGrantSpec()


class PolicyTargetReference(Record, frozen=True, gc=False):
    """A Service of the policy's namespace, or the port of it that is called ``section_name``."""

    group: str = ""
    kind: str = ""
    name: str = ""
    section_name: str | None = None


class CaReference(Record, frozen=True, gc=False):
    """An object of the policy's namespace with CA certificates."""

    group: str = ""
    kind: str = ""
    name: str = ""


class SubjectAltName(Record, frozen=True, gc=False):
    """``type`` is Hostname or URI."""

    type: str = ""
    hostname: str = ""
    uri: str = ""


class BackendValidation(Record, frozen=True, gc=False):
    """What the certificate of a backend is verified with; ``hostname`` is the SNI, too."""

    ca_certificate_refs: tuple[CaReference, ...] | None = None
    well_known_ca_certificates: str | None = msgspec.field(name="wellKnownCACertificates", default=None)
    hostname: str = ""
    subject_alt_names: tuple[SubjectAltName, ...] | None = None


class BackendTlsPolicySpec(Record, frozen=True, gc=False):
    """TLS from the Gateway to Services."""

    target_refs: tuple[PolicyTargetReference, ...] = ()
    validation: BackendValidation = BackendValidation()


class BackendTLSPolicy(Record, frozen=True, gc=False):
    """A BackendTLSPolicy."""

    metadata: ObjectMeta
    spec: BackendTlsPolicySpec = BackendTlsPolicySpec()
    status: Status | None = None
