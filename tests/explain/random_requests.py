"""Random clusters with everything that routes requests, and requests to them."""

from dataclasses import dataclass
from random import Random
from typing import Any

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import Request, request_of
from tests.fuzz.clusters import HOSTS, NAMESPACES, PATHS, POOL, SHARED_ADDRESS, Document, Slot, made_of
from tests.fuzz.ownership import ASKED_HOSTS, PRESETS, Seen, Story

SECRET = "Basic c2VjcmV0"
"""Of a filter: it may be in no answer."""
_METHODS = ("GET", "GET", "POST", "OPTIONS", "HEAD", "get")
_HEADERS = ("x-canary", "X-Mode", "x-forwarded-proto", "x-real-ip", "cookie")
_VALUES = ("always", "it's", "a b", "On", "https", "v1", "or", "")
_EXPRESSIONS = ("al.*", "(?i)ON", "v[0-9]", "[a-z]{1,9}", "(a|b)+", ".*")
_PARAMETERS = ("v", "q", "a.b")
_RULE_PATHS = (*PATHS, "/app/v1", "/a%20b", "/login/")
_ADDRESSES = (SHARED_ADDRESS, SHARED_ADDRESS, *POOL, "192.0.2.99")
_PORTS = {80: "http", 443: "https", 5432: "http", 6379: "http", 8443: "https"}
_SOURCES = ("", "198.51.100.1", "198.51.100.200", "10.0.0.9")


def _maybe(rng: Random, chance: float, made: Any) -> list[Any]:
    return [made()] if rng.random() < chance else []


def _condition(rng: Random, names: tuple[str, ...]) -> Document:
    is_regex = rng.random() < 0.4
    value = rng.choice(_EXPRESSIONS if is_regex else _VALUES[:-1])
    return {"name": rng.choice(names), "value": value, "type": "RegularExpression" if is_regex else "Exact"}


def _match(rng: Random) -> Document:
    kind = rng.choice(("PathPrefix", "PathPrefix", "Exact", "RegularExpression"))
    value = rng.choice(("/a.*", "(?i)/login", "/[a-z]{1,9}/x", "/app(/.*)?") if kind[0] == "R" else _RULE_PATHS)
    found: Document = {"path": {"type": kind, "value": value}}
    found |= {"method": rng.choice(("GET", "POST"))} if rng.random() < 0.25 else {}
    found |= {"headers": [_condition(rng, _HEADERS)]} if rng.random() < 0.35 else {}
    found |= {"queryParams": [_condition(rng, _PARAMETERS)]} if rng.random() < 0.25 else {}
    return found


def _path_edit(rng: Random) -> Document:
    if rng.random() < 0.5:
        return {"type": "ReplaceFullPath", "replaceFullPath": rng.choice(("/", "/new/100%25", "/other"))}
    return {"type": "ReplacePrefixMatch", "replacePrefixMatch": rng.choice(("/", "/new", "/new/"))}


def _filters(rng: Random) -> list[Document]:
    found = _maybe(
        rng, 0.2, lambda: {
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": "authorization", "value": SECRET}], "remove": ["cookie"]},
        },
    )  # fmt: skip
    if rng.random() < 0.25:
        redirect: Document = {"statusCode": rng.choice((301, 302, 307, 308))}
        redirect |= {"scheme": rng.choice(("http", "https"))} if rng.random() < 0.5 else {}
        redirect |= {"hostname": "new.test"} if rng.random() < 0.5 else {}
        redirect |= {"port": rng.choice((80, 443, 8080))} if rng.random() < 0.5 else {}
        redirect |= {"path": _path_edit(rng)} if rng.random() < 0.5 else {}
        return [*found, {"type": "RequestRedirect", "requestRedirect": redirect}]
    if rng.random() < 0.2:
        found.append({"type": "URLRewrite", "urlRewrite": {"hostname": "inner.test", "path": _path_edit(rng)}})
    if rng.random() < 0.2:
        origins = rng.choice((["*"], ["https://a.test"], ["https://*.a.test", "null"]))
        found.append({"type": "CORS", "cors": {"allowOrigins": origins, "allowMethods": ["*"]}})
    return found


def rich_route(rng: Random, namespace: str, name: str) -> Document:
    """Return an HTTPRoute with conditions, filters and weights."""
    parent: Document = {"name": "g0", "namespace": rng.choice((namespace, *NAMESPACES))}
    rules = []
    for _ in range(rng.randint(1, 3)):
        references = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            reference: Document = {"name": rng.choice(("web", "web", "web", "missing")), "port": 80}
            reference |= {"weight": rng.choice((0, 1, 9))} if rng.random() < 0.5 else {}
            if rng.random() < 0.35:
                header = {"set": [{"name": "x-own", "value": "1"}]}
                reference["filters"] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": header}]
            references.append(reference)
        rule: Document = {"matches": [_match(rng) for _ in range(rng.randint(1, 3))]}
        if filters := _filters(rng):
            rule["filters"] = filters
        if not any(each["type"] == "RequestRedirect" for each in filters):
            rule["backendRefs"] = references
        if rng.random() < 0.2:
            rule["timeouts"] = {"request": "5s"}
        rules.append(rule)
    spec: Document = {"parentRefs": [parent], "rules": rules}
    if rng.random() < 0.7:
        spec["hostnames"] = rng.sample(HOSTS, rng.choice((1, 2)))
    return {"metadata": {"annotations": {}}, "spec": spec}


def rich_gateway(rng: Random, namespace: str, name: str) -> Document:
    """Return a Gateway with listeners for HTTP and HTTPS that take routes of all namespaces."""
    listeners: list[Document] = []
    for number, protocol in enumerate(("HTTP", "HTTP", "HTTPS", "HTTPS", rng.choice(("TLS", "HTTPS")))):
        listener: Document = {
            "name": f"l{number}",
            "port": 80 if protocol == "HTTP" else 443,
            "protocol": protocol,
            "allowedRoutes": {"namespaces": {"from": "All"}},
        }
        if rng.random() < 0.6:
            listener["hostname"] = rng.choice(HOSTS)
        if protocol != "HTTP":
            mode = "Passthrough" if protocol == "TLS" else "Terminate"
            listener["tls"] = {"mode": mode} | ({"certificateRefs": [{"name": "s0"}]} if mode == "Terminate" else {})
        listeners.append(listener)
    kept = rng.sample(listeners, rng.randint(1, 5))
    return {"metadata": {"annotations": {}}, "spec": {"gatewayClassName": "pyconfd", "listeners": kept}}


@dataclass(frozen=True)
class Served:
    """A cluster, and what it leads to."""

    seen: Seen
    evidence: Evidence
    name: str


def cluster(seed: int, number: int, folder: str) -> Served:
    """Return a random cluster of that number; always the same."""
    rng = Random(f"requests/{seed}/{number}")
    story = Story(seed, number, folder=folder)
    makers = {("HTTPRoute", f"h{number}"): rich_route for number in range(3)}
    if rng.random() < 0.8:
        makers["Gateway", "g0"] = rich_gateway
    for namespace in NAMESPACES:
        for (kind, name), maker in makers.items():
            slot: Slot = (kind, namespace, name)
            story.cluster.objects[slot] = made_of(rng, slot, maker)
    for _ in range(rng.randint(1, 4)):
        seen = story.advance()
    variables = {"trusted_networks": list(story.trusted), "pool_networks": list(POOL)}
    evidence = Evidence(
        now=1.0,
        snapshot=story.cluster.snapshot(),
        context=seen.context,
        presets=PRESETS,
        options=story.options,
        desired=seen.rendering,
        running=seen.rendering,
        refused=seen.context.refused,
        variables=variables,
    )
    return Served(seen, evidence, story.name)


def request(rng: Random, served: Served, to: str = "") -> Request:
    """Return a random request for what such a cluster may have, to the shared frontends at an address ``to``."""
    binds = [bind for _, binds in served.seen.config.frontends for bind in binds if bind.port in _PORTS]
    bind = rng.choice(binds)
    port, address = bind.port, bind.address.strip("[]")
    if address in {"*", "::"} or rng.random() < 0.1:
        address = rng.choice(_ADDRESSES)
    if to:
        port, address = rng.choice((80, 443)), to
    scheme = _PORTS[port] if rng.random() < 0.95 else rng.choice(("http", "https"))
    host = rng.choice((*ASKED_HOSTS, *ASKED_HOSTS, "new.test"))
    path = rng.choice(
        (*_RULE_PATHS, *_RULE_PATHS, "", "//app", "/app/x", "/appx", "/LOGIN", "/a/b/x", "/shop.Cart/Get")
    )
    path += rng.choice(("", "", "", "/", "/x", "/.well-known", "%2F", ";a=b"))
    if path and not path.startswith("/"):
        path = f"/{path}"
    names = [rng.choice((*_PARAMETERS, "V")) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    values = ("always", "a+b", "a%20b", "v1", "", "%zz", "it%27s", "On", "a%0A")
    query = rng.choice("&;").join(f"{name}{rng.choice(('=', '=', '=', ''))}{rng.choice(values)}" for name in names)
    headers = [f"{rng.choice(_HEADERS)}: {rng.choice(_VALUES)}" for _ in range(rng.choice((0, 0, 1, 2, 3)))]
    headers += _maybe(rng, 0.15, lambda: f"Origin: {rng.choice(('https://a.test', 'https://b.a.test', 'null'))}")
    headers += _maybe(rng, 0.1, lambda: "Access-Control-Request-Method: GET")
    headers += _maybe(
        rng, 0.25, lambda: f"Host: {rng.choice((host.upper(), f'{host}.', f'{host}:{port}', *ASKED_HOSTS))}"
    )
    asked = {
        "url": [f"{scheme}://{host}:{port}{path}{'?' + query if query else ''}"],
        "method": [rng.choice(_METHODS)],
        "header": headers,
        "to": [address],
        "from": [rng.choice(_SOURCES) if ":" not in address else ""],
        "tls-name": [rng.choice(ASKED_HOSTS)] if rng.random() < 0.3 else [],
    }
    return request_of(asked)
