"""What the API server fills in, where an object does not say it: in the kinds of the Gateway API, and in a status.

Source: the defaults in the CustomResourceDefinitions of the Gateway API, and those of core/v1 and networking.k8s.io/v1.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

from tests.world.patches import clone
from tests.world.statuses import ApiError, invalid

Obj = dict[str, Any]
Defaults = tuple[tuple[str, Any], ...]

_GROUP = "gateway.networking.k8s.io"


def _waiting(*types: str) -> Defaults:
    words = {"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending"}
    conditions = [words | {"status": "Unknown", "type": each} for each in types]
    return (("status", {"conditions": conditions}), ("status.conditions", conditions))


_LISTENERS: Defaults = (
    ("spec.listeners[].allowedRoutes", {"namespaces": {"from": "Same"}}),
    ("spec.listeners[].allowedRoutes.namespaces", {"from": "Same"}),
    ("spec.listeners[].allowedRoutes.namespaces.from", "Same"),
    ("spec.listeners[].allowedRoutes.kinds[].group", _GROUP),
    ("spec.listeners[].tls.mode", "Terminate"),
    ("spec.listeners[].tls.certificateRefs[].group", ""),
    ("spec.listeners[].tls.certificateRefs[].kind", "Secret"),
    ("status.listeners[].supportedKinds[].group", _GROUP),
    *_waiting("Accepted", "Programmed"),
)
_ROUTE: Defaults = (
    ("spec.parentRefs[].group", _GROUP),
    ("spec.parentRefs[].kind", "Gateway"),
    ("spec.rules[].backendRefs[].group", ""),
    ("spec.rules[].backendRefs[].kind", "Service"),
    ("spec.rules[].backendRefs[].weight", 1),
    ("status.parents[].parentRef.group", _GROUP),
    ("status.parents[].parentRef.kind", "Gateway"),
)
_FILTERS: Defaults = (
    ("spec.rules[].matches[].headers[].type", "Exact"),
    ("spec.rules[].filters[].requestMirror.backendRef.group", ""),
    ("spec.rules[].filters[].requestMirror.backendRef.kind", "Service"),
    ("spec.rules[].filters[].requestMirror.fraction.denominator", 100),
)
_SLASH = {"type": "PathPrefix", "value": "/"}
_OF: Mapping[str, Defaults] = MappingProxyType(
    {
        "ingresses": (("status", {"loadBalancer": {}}), ("status.loadBalancer", {})),
        "services": (("status", {"loadBalancer": {}}), ("status.loadBalancer", {})),
        "gatewayclasses": _waiting("Accepted"),
        "gateways": (
            *_LISTENERS,
            ("spec.addresses[].type", "IPAddress"),
            ("spec.allowedListeners.namespaces", {"from": "None"}),
            ("spec.tls.frontend.default.validation.mode", "AllowValidOnly"),
            ("spec.tls.frontend.perPort[].tls.validation.mode", "AllowValidOnly"),
            ("status.addresses[].type", "IPAddress"),
        ),
        "listenersets": (*_LISTENERS, ("spec.parentRef.group", _GROUP), ("spec.parentRef.kind", "Gateway")),
        "httproutes": (
            *_ROUTE,
            ("spec.rules", [{"matches": [{"path": _SLASH}]}]),
            ("spec.rules[].matches", [{"path": _SLASH}]),
            ("spec.rules[].matches[].path", _SLASH),
            ("spec.rules[].matches[].path.type", "PathPrefix"),
            ("spec.rules[].matches[].path.value", "/"),
            ("spec.rules[].matches[].queryParams[].type", "Exact"),
            ("spec.rules[].filters[].requestRedirect.statusCode", 302),
            ("spec.rules[].filters[].cors.maxAge", 5),
            *_FILTERS,
        ),
        "grpcroutes": (*_ROUTE, *_FILTERS, ("spec.rules[].matches[].method.type", "Exact")),
        "tlsroutes": _ROUTE,
        "tcproutes": _ROUTE,
        "backendtlspolicies": (
            ("status.ancestors[].ancestorRef.group", _GROUP),
            ("status.ancestors[].ancestorRef.kind", "Gateway"),
        ),
    }
)


def fill(resource: str, obj: Obj) -> None:
    """Add the defaults to an object, and check the addresses in its status. Raises: ApiError: 422."""
    for path, default in _OF.get(resource, ()):
        *parents, name = path.split(".")
        for parent in _at(obj, parents):
            if name not in parent:
                parent[name] = clone(default)
    if resource in {"services", "ingresses"}:
        _fill_addresses(resource, obj)


def is_default_status(resource: str, status: Any) -> bool:
    """Whether nobody has written this status: no manager owns it then."""
    return any(path == "status" and default == status for path, default in _OF.get(resource, ()))


def _at(node: Any, steps: Sequence[str]) -> Iterator[Obj]:
    if not steps:
        if isinstance(node, dict):
            yield node
        return
    name = steps[0].removesuffix("[]")
    below = node.get(name) if isinstance(node, dict) else None
    if name == steps[0]:
        yield from _at(below, steps[1:])
    elif isinstance(below, list):
        for each in below:
            yield from _at(each, steps[1:])


def _fill_addresses(resource: str, obj: Obj) -> None:
    balancer = obj["status"].get("loadBalancer")
    for number, entry in enumerate(balancer.get("ingress") or () if isinstance(balancer, dict) else ()):
        if "ip" not in entry:
            continue
        try:
            ip_address(entry["ip"])
        except ValueError:
            words = f'Invalid value: "{entry["ip"]}": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'
            raise _not_valid(resource, obj, f"status.loadBalancer.ingress[{number}].ip", words) from None
        if resource == "services":
            entry.setdefault("ipMode", "VIP")


def _not_valid(resource: str, obj: Obj, field: str, words: str) -> ApiError:
    kind, group = {"services": ("Service", ""), "ingresses": ("Ingress", "networking.k8s.io")}[resource]
    return invalid(kind, group, obj["metadata"]["name"], [(field, words)])
