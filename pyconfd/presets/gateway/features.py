"""Which features of the Gateway API are supported: what the parsers accept and the records have.

A feature of rules is supported where its example parses, and to another rule than one without it: neither a value that
the parser refuses nor a field that no record has can be claimed. Other features need a field of the records; kinds of
routes need a protocol. ``tests/presets/gateway/test_features.py`` wants each one tested by the suite
(``make conformance``).

Source of the names: ``pkg/features`` of the Gateway API.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from pyconfd.model.gateway_api import (
    BackendTLSPolicy,
    Gateway,
    GRPCRoute,
    GrpcRule,
    HTTPRoute,
    HttpRule,
    ListenerSet,
    ReferenceGrant,
)
from pyconfd.model.kubernetes import Service
from pyconfd.presets.gateway.faults import RuleFault
from pyconfd.presets.gateway.http_rules import ParsedRule, parse_grpc, parse_http
from pyconfd.presets.gateway.listeners import ROUTE_KINDS, TlsMode

_R = TypeVar("_R", HttpRule, GrpcRule)

_HEADERS = {"set": [{"name": "X-A", "value": "a"}]}
_MIRROR = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "a"}}}


def _filter(kind: str, **fields: Any) -> dict[str, Any]:
    return {"filters": [{"type": kind, kind[0].lower() + kind[1:]: fields}]}


def _redirect(**fields: Any) -> dict[str, Any]:
    return _filter("RequestRedirect", **fields)


def _rewrite(**fields: Any) -> dict[str, Any]:
    return {"filters": [{"type": "URLRewrite", "urlRewrite": fields}]}


def _of_reference(rule: dict[str, Any]) -> dict[str, Any]:
    return {"backendRefs": [{"name": "a", **rule}]}


_PATH = {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a"}}

HTTP_RULES: dict[str, dict[str, Any]] = {
    "HTTPRoute303RedirectStatusCode": _redirect(statusCode=303),
    "HTTPRoute307RedirectStatusCode": _redirect(statusCode=307),
    "HTTPRoute308RedirectStatusCode": _redirect(statusCode=308),
    "HTTPRouteBackendRequestHeaderModification": _of_reference(_filter("RequestHeaderModifier", **_HEADERS)),
    "HTTPRouteBackendTimeout": {"timeouts": {"backendRequest": "1s"}},
    "HTTPRouteBackendURLRewrite": _of_reference(_rewrite(**_PATH)),
    "HTTPRouteCORS": {"filters": [{"type": "CORS", "cors": {"allowOrigins": ["*"]}}]},
    "HTTPRouteHostRewrite": _rewrite(hostname="a.example"),
    "HTTPRouteMethodMatching": {"matches": [{"method": "GET"}]},
    "HTTPRoutePathRedirect": _redirect(**_PATH),
    "HTTPRoutePathRewrite": _rewrite(**_PATH),
    "HTTPRoutePortRedirect": _redirect(port=8080),
    "HTTPRouteQueryParamMatching": {"matches": [{"queryParams": [{"name": "a", "value": "b"}]}]},
    "HTTPRouteRequestMirror": {"filters": [_MIRROR]},
    "HTTPRouteRequestMultipleMirrors": {"filters": [_MIRROR, _MIRROR]},
    "HTTPRouteRequestPercentageMirror": _filter("RequestMirror", backendRef={"name": "a"}, percent=10),
    "HTTPRouteRequestTimeout": {"timeouts": {"request": "1s"}},
    "HTTPRouteResponseHeaderModification": _filter("ResponseHeaderModifier", **_HEADERS),
    "HTTPRouteRetryCodes": {"retry": {"codes": [503]}},
    "HTTPRouteRetryConnectionError": {"retry": {"attempts": 2}},
    "HTTPRouteSchemeRedirect": _redirect(scheme="https"),
}
"""A rule of an HTTPRoute that needs the feature."""

GRPC_RULES: dict[str, dict[str, Any]] = {
    "GRPCRouteRequestHeaderModifier": _filter("RequestHeaderModifier", **_HEADERS),
}
"""A rule of a GRPCRoute that needs the feature."""

FIELDS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "BackendTLSPolicy": (BackendTLSPolicy, "spec.validation"),
    "BackendTLSPolicySANValidation": (BackendTLSPolicy, "spec.validation.subjectAltNames"),
    "GRPCRouteNamedRouteRule": (GRPCRoute, "spec.rules.name"),
    "Gateway": (Gateway, "spec.listeners"),
    "GatewayAddressEmpty": (Gateway, "spec.addresses"),
    "GatewayBackendClientCertificate": (Gateway, "spec.tls.backend.clientCertificateRef"),
    "GatewayFrontendClientCertificateValidation": (Gateway, "spec.tls.frontend.default.validation"),
    "GatewayFrontendClientCertificateValidationInsecureFallback": (
        Gateway, "spec.tls.frontend.default.validation.mode"
    ),
    "GatewayHTTPListenerIsolation": (Gateway, "spec.listeners.hostname"),
    "GatewayHTTPSListenerDetectMisdirectedRequests": (Gateway, "spec.listeners.hostname"),
    "GatewayPort8080": (Gateway, "spec.listeners.port"),
    "GatewayRouteHostnameIntersectionPrecedence": (HTTPRoute, "spec.hostnames"),
    "GatewayStaticAddresses": (Gateway, "spec.addresses.value"),
    "HTTPRouteBackendProtocolH2C": (Service, "spec.ports.appProtocol"),
    "HTTPRouteBackendProtocolWebSocket": (Service, "spec.ports.appProtocol"),
    "HTTPRouteDestinationPortMatching": (HTTPRoute, "spec.parentRefs.port"),
    "HTTPRouteNamedRouteRule": (HTTPRoute, "spec.rules.name"),
    "HTTPRouteParentRefPort": (HTTPRoute, "spec.parentRefs.port"),
    "ListenerSet": (ListenerSet, "spec.listeners"),
    "ReferenceGrant": (ReferenceGrant, "spec.from"),
}  # fmt: skip
"""The field that a feature is about, in a record."""

OF_SERVICES: dict[str, tuple[type[msgspec.Struct], str]] = {
    "GatewayInfrastructure": (Gateway, "spec.infrastructure.annotations"),
}
"""What is supported where Gateways have Services: ``cluster_status.gateway_services``."""

TLS_MODES = {
    "TLSRouteModeTerminate": {TlsMode.TERMINATE},
    "TLSRouteModeMixed": {TlsMode.TERMINATE, TlsMode.PASSTHROUGH},
}
"""The modes of listeners for which TLSRoutes are."""


@cache
def supported(*, services: bool = False) -> tuple[str, ...]:
    """Return the names of the supported features, sorted; ``services``: Gateways have Services."""
    return tuple(sorted({*_of_rules(), *_of_fields(services=services), *_of_listeners()}))


def _of_rules() -> Iterator[str]:
    for name, rule in HTTP_RULES.items():
        if is_served(rule, HttpRule, parse_http):
            yield name
    for name, rule in GRPC_RULES.items():
        if is_served(rule, GrpcRule, parse_grpc):
            yield name


def is_served(rule: dict[str, Any], record: type[_R], parse: Callable[[_R], ParsedRule | RuleFault]) -> bool:
    """Return whether a rule parses, and to another one than its references alone."""
    bare = {"backendRefs": [{"name": each["name"]} for each in rule.get("backendRefs", ())]}
    found = parse(msgspec.convert(rule, record))
    return isinstance(found, ParsedRule) and found != parse(msgspec.convert(bare, record))


def _of_fields(*, services: bool) -> Iterator[str]:
    found = FIELDS | OF_SERVICES if services else FIELDS
    return (name for name, (record, path) in found.items() if has_field(record, path))


def has_field(record: type[msgspec.Struct], path: str) -> bool:
    """Return whether a record has a field, by the API's names with dots."""
    first, _, rest = path.partition(".")
    name = next((each.name for each in msgspec.structs.fields(record) if each.encode_name == first), None)
    if name is None:
        return False
    if not rest:
        return True
    return any(has_field(each, rest) for each in _records(get_type_hints(record)[name]))


def _records(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from _records(part)


def _of_listeners() -> Iterator[str]:
    kinds = {kind for of_protocol in ROUTE_KINDS.values() for kind in of_protocol}
    yield from kinds
    yield from (name for name, modes in TLS_MODES.items() if "TLSRoute" in kinds and modes <= set(TlsMode))
