"""Objects of the Gateway API for Ingresses that were written for ingress-nginx. Pure.

All hosts share one Gateway. A host with a certificate has a listener in a ListenerSet beside its Ingress, and words
stand in annotations of the HTTPRoutes. What the Gateway API and our words cannot say leaves the Ingress as it is.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from pyconfd.model.gateway_api import GROUP
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import Service
from pyconfd.model.snapshot import KIND_OF, Key, Resource, Snapshot
from pyconfd.presets.annotations import ACCESS_LOG, OWN_PREFIX, words_of
from pyconfd.presets.gateway.listeners import MOST_LISTENERS
from pyconfd.presets.gateway.patterns import ANY_CASE
from pyconfd.presets.host_ownership import ANY_HOST
from pyconfd.presets.ingress.claims import IngressClaim, as_expression, read_ingress
from pyconfd.presets.policies.nginx import read_nginx
from pyconfd.presets.policies.nginx_paths import REWRITE
from pyconfd.presets.policies.words import WORDS
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.routing.references import ServiceReference
from pyconfd.presets.routing.types import PathKind, RouteMatch, RouteRule
from pyconfd.sources.kubernetes.resources import API_VERSION_OF

GATEWAY = Key("default", "ingress")
_HTTP = "http"
_CLASS, _CONTROLLER = "pyconfd", "pyconfd.io/gateway"
_MOST_RULES = 16
"""Of an HTTPRoute. Source: its definition."""
_ISSUERS = "cert-manager.io/"
_REMOVED_PREFIX = re.compile(r"(/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-])\(/\|\$\)\(\.\*\)")
"""An expression for all below a path, of which ``/$2`` is what follows that path."""
_FOLLOWING = "/$2"

Object = dict[str, Any]


class NotSaidError(Exception):
    """The Gateway API and our words cannot say what an Ingress asks for."""


class Written(NamedTuple):
    """The objects for an Ingress, and in what they differ from it."""

    objects: tuple[Object, ...]
    differs: tuple[str, ...]


class Left(NamedTuple):
    """Why there are no objects for an Ingress."""

    why: str


class Shared:
    """What Ingresses share: names of routes, and the listener of a host, that of the first one with a certificate."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._names = set(keys)
        self._by_host: dict[str, Key] = {}
        self._number = Counter[str]()

    def listeners(self, key: Key, claim: IngressClaim) -> tuple[tuple[str, str], ...]:
        """Return the hosts, with their Secrets, whose listeners are this Ingress's.

        Raises:
            NotSaidError: a namespace has no room for them.
        """
        asked = {host: each.secret for each in claim.tls for host in each.hosts if host not in self._by_host}
        if self._number[key.namespace] + len(asked) > MOST_LISTENERS:
            raise NotSaidError(
                f"a namespace has {MOST_LISTENERS} hosts with certificates of their own at a Gateway at most"
            )
        self._number[key.namespace] += len(asked)
        self._by_host |= dict.fromkeys(asked, key)
        return tuple(asked.items())

    def route(self, key: Key) -> Key:
        """Return another name for a route of an Ingress, which nothing else has."""
        found = next(
            each for number in count(2) if (each := Key(key.namespace, f"{key.name}-{number}")) not in self._names
        )
        self._names.add(found)
        return found

    def listener_set(self, host: str, namespace: str) -> Key | None:
        """Return the ListenerSet that routes of a namespace name for a host."""
        found = self._by_host.get(host)
        return found if found is not None and found.namespace == namespace else None


def gateway_objects() -> tuple[Object, ...]:
    """Return the Gateway that all hosts share, and its class."""
    listener = {"name": _HTTP, "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
    return (
        _object(Resource.GATEWAYCLASSES, Key("", _CLASS), {"controllerName": _CONTROLLER}),
        _object(
            Resource.GATEWAYS,
            GATEWAY,
            {
                "gatewayClassName": _CLASS,
                "listeners": [listener],
                "allowedListeners": {"namespaces": {"from": "All"}},
            },
        ),
    )


def objects_of(snapshot: Snapshot, options: PresetOptions, keys: Sequence[Key]) -> dict[Key, Written | Left]:
    """Return the objects for Ingresses of ingress-nginx; the first one that names a certificate for a host has it."""
    claims = {
        key: read_ingress(snapshot.ingresses[key], "", options.claims, options.ignored_annotations, is_nginx=True)
        for key in keys
    }
    expressions = {
        (key.namespace, rule.virtual_host) for key, claim in claims.items() if claim.expressions for rule in claim.rules
    }
    shared = Shared(keys)
    found: dict[Key, Written | Left] = {}
    for key, claim in claims.items():
        rules = tuple(
            as_expression(rule, has_app_root=bool(claim.asked.policy.app_root))
            if (key.namespace, rule.virtual_host) in expressions
            else rule
            for rule in claim.rules
        )
        try:
            ingress, services = snapshot.ingresses[key], snapshot.services
            found[key] = objects_for(key, ingress, replace(claim, rules=rules), shared, services)
        except NotSaidError as error:
            found[key] = Left(str(error))
    return found


def objects_for(
    key: Key, ingress: Ingress, claim: IngressClaim, shared: Shared, services: Mapping[Key, Service]
) -> Written:
    """Return the objects for an Ingress; its claim has the rules as its host reads them.

    Raises:
        NotSaidError: they cannot say what it asks for.
    """
    annotations = ingress.metadata.annotations or {}
    differs = list(_unsaid(claim))
    said = _annotations(annotations, claim, differs)
    target = annotations.get(REWRITE, "").strip()
    by_host: dict[str, list[tuple[RouteMatch, Object]]] = {}
    for rule in claim.rules:
        by_host.setdefault(rule.virtual_host, []).append((rule.match, _rule(rule, claim, services, target, differs)))
    objects = []
    if own := shared.listeners(key, claim):
        issuers = {name: text for name, text in annotations.items() if name.startswith(_ISSUERS)}
        objects.append(_object(Resource.LISTENERSETS, key, _listener_set(own), issuers))
    routes: list[Object] = []
    redirections: list[Object] = []
    for host, rules in by_host.items():
        hosts = {} if host == ANY_HOST else {"hostnames": [host]}
        plain: Object = {"group": GROUP, "kind": "Gateway", **_named(GATEWAY), "sectionName": _HTTP}
        with_tls = shared.listener_set(host, key.namespace)
        over_tls = {"group": GROUP, "kind": "ListenerSet", "name": with_tls.name} if with_tls is not None else None
        redirects = over_tls is not None and claim.redirect
        if redirects:
            redirect = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 308}}
            spec = {"parentRefs": [plain], **hosts, "rules": [{"filters": [redirect]}]}
            redirections.append(_object(Resource.HTTPROUTES, shared.route(key), spec))
        parents = [each for each in (None if redirects else plain, over_tls) if each is not None]
        # NGINX compares a longer expression first, and so is the order of rules that are alike otherwise.
        ordered = [each for _, each in sorted(rules, key=lambda item: -len(item[0].path))]
        for start in range(0, len(ordered), _MOST_RULES):
            spec = {"parentRefs": parents, **hosts, "rules": ordered[start : start + _MOST_RULES]}
            name = key if not routes else shared.route(key)
            routes.append(_object(Resource.HTTPROUTES, name, spec, said))
    return Written((*objects, *routes, *redirections), tuple(dict.fromkeys(differs)))


def _unsaid(claim: IngressClaim) -> Iterator[str]:
    if claim.closed:
        raise NotSaidError("it is refused: change it first")
    if claim.canary.wanted:
        raise NotSaidError("it is a canary: add its Service, with weights, to the route of its main Ingress")
    if not claim.rules:
        raise NotSaidError("it has no path that is served")
    if claim.asked.policy.clients:
        raise NotSaidError("certificates of clients are asked for by a Gateway of its own: write its tls.frontend")
    if claim.hsts is not None:
        yield "pyconfd.io/hsts is no word of an HTTPRoute: write pyconfd.io/response-headers"
    for rule in claim.rules:
        if rule.virtual_host.startswith("*."):
            yield f"host {rule.virtual_host} has names of several labels too"


def _annotations(annotations: Mapping[str, str], claim: IngressClaim, differs: list[str]) -> dict[str, str]:
    """Return what HTTPRoutes are annotated with: words, those of ingress-nginx among them."""
    words = dict((*read_nginx(annotations).words, *words_of(annotations)))
    if claim.asked.policy.max_body is not None:  # said, or the usual one
        words.setdefault("max-body-size", str(claim.asked.policy.max_body))
    found = {f"{OWN_PREFIX}{name}": text for name, text in words.items() if "HTTPRoute" in WORDS[name].kinds}
    differs += [
        f"{name} is no word of an HTTPRoute{WORDS[name].instead and f': {WORDS[name].instead}'}"
        for name in words
        if f"{OWN_PREFIX}{name}" not in found
    ]
    if ACCESS_LOG in annotations:
        found[ACCESS_LOG] = annotations[ACCESS_LOG]
    return found


def _rule(
    rule: RouteRule, claim: IngressClaim, services: Mapping[Key, Service], target: str, differs: list[str]
) -> Object:
    backend = {"name": (to := claim.references[rule.backend]).name, "port": _port(to, services)}
    path, rewrite = _path(rule.match, differs), None
    if (edit := claim.edits.get(rule.backend)) is not None:
        found = _REMOVED_PREFIX.fullmatch(rule.match.path)
        if not edit.pattern:
            rewrite = {"type": "ReplaceFullPath", "replaceFullPath": edit.format.replace("%%", "%")}
        elif found is not None and target == _FOLLOWING:
            path = {"type": "PathPrefix", "value": found[1]}
            rewrite = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
            differs.append(f"path {found[1]} is compared as it is written, in upper and lower case")
        else:
            raise NotSaidError(f"{REWRITE}: no filter of the Gateway API has what an expression captured")
    filters = {"filters": [{"type": "URLRewrite", "urlRewrite": {"path": rewrite}}]} if rewrite else {}
    return {"matches": [{"path": path}], **filters, "backendRefs": [backend]}


def _path(match: RouteMatch, differs: list[str]) -> Object:
    if match.kind is PathKind.EXPRESSION:
        return {"type": "RegularExpression", "value": f"{ANY_CASE}{match.path.removesuffix('$')}{_end(match.path)}"}
    if match.kind is PathKind.BEGINNING:
        differs.append(f"path {match.path} is compared by whole elements: {match.path}x is not served")
    return {"type": "Exact" if match.kind is PathKind.EXACT else "PathPrefix", "value": match.path}


def _end(expression: str) -> str:
    """Return what an expression of the beginning of a path ends with where it is one of the whole path."""
    return "" if expression.endswith("$") else ".*"


def _port(to: ServiceReference, services: Mapping[Key, Service]) -> int:
    if isinstance(to.port, int):
        return to.port
    service = services.get(Key(to.namespace, to.name))
    for port in (service.spec.ports or ()) if service is not None else ():
        if port.name == to.port:
            return port.port
    raise NotSaidError(f"port {to.port} of Service {to.name} is not in the file, and a route names it by number")


def _listener_set(hosts: Sequence[tuple[str, str]]) -> Object:
    listeners = [
        {
            "name": f"https-{number}", "hostname": host, "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": secret}]},
        }
        for number, (host, secret) in enumerate(hosts)
    ]  # fmt: skip
    return {"parentRef": {"group": GROUP, "kind": "Gateway", **_named(GATEWAY)}, "listeners": listeners}


def _named(key: Key) -> Object:
    return {"name": key.name, "namespace": key.namespace} if key.namespace else {"name": key.name}


def _object(resource: Resource, key: Key, spec: Object, annotations: Mapping[str, str] | None = None) -> Object:
    metadata = {**_named(key), **({"annotations": dict(annotations)} if annotations else {})}
    return {"apiVersion": API_VERSION_OF[resource], "kind": KIND_OF[resource], "metadata": metadata, "spec": spec}
