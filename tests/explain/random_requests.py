"""Random clusters with everything that routes requests, and requests to them."""

from dataclasses import dataclass
from random import Random

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import ClientRequest, request_of
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
_OTHER_PATHS = ("", "//app", "/app/x", "/appx", "/LOGIN", "/a/b/x", "/shop.Cart/Get")
_ENCODED = ("always", "a+b", "a%20b", "v1", "", "%zz", "it%27s", "On", "a%0A", "v1%00", "always%0A")
_ADDRESSES = (SHARED_ADDRESS, SHARED_ADDRESS, *POOL, "192.0.2.99")
_PORTS = {80: "http", 443: "https", 5432: "http", 6379: "http", 8443: "https"}
_SOURCES = ("", "198.51.100.1", "198.51.100.200", "10.0.0.9")


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
    edits = {"set": [{"name": "authorization", "value": SECRET}], "remove": ["cookie"]}
    found: list[Document] = []
    if rng.random() < 0.2:
        found.append({"type": "RequestHeaderModifier", "requestHeaderModifier": edits})
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


def _meeting(rng: Random, wanted: Document, between: str) -> str:
    """Return a header or parameter that meets a condition, mostly."""
    values = {"al.*": "always", "(?i)ON": "oN", "v[0-9]": "v1", "[a-z]{1,9}": "abc", "(a|b)+": "abba", ".*": "x"}
    value = values[wanted["value"]] if wanted["type"] == "RegularExpression" else wanted["value"]
    return f"{wanted['name']}{between}{value if rng.random() < 0.9 else 'other'}"


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
        if rng.random() < 0.5:
            listener["hostname"] = rng.choice(HOSTS)
        if protocol != "HTTP":
            mode = "Passthrough" if protocol == "TLS" else "Terminate"
            listener["tls"] = {"mode": mode} | ({"certificateRefs": [{"name": "s0"}]} if mode == "Terminate" else {})
        listeners.append(listener)
    kept, allowed = rng.sample(listeners, rng.randint(1, 5)), {"namespaces": {"from": "All"}}
    spec = {"gatewayClassName": "pyconfd", "listeners": kept, "allowedListeners": allowed}
    return {"metadata": {"annotations": {}}, "spec": spec}


@dataclass(frozen=True)
class Served:
    """A cluster, and what it leads to."""

    seen: Seen
    evidence: Evidence
    name: str
    matches: tuple[Document, ...]
    """Those of its HTTPRoutes."""
    virtual_hosts: tuple[str, ...]
    """Those of its Gateways."""


def cluster(seed: int, number: int, folder: str, *, later: bool = False) -> Served:
    """Return a random cluster of that number, always the same; or what it is ``later``, with other routes."""
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
    if later:
        routes = [slot for slot in story.cluster.objects if slot[0] == "HTTPRoute"]
        for slot in rng.sample(routes, len(routes) // 2):
            story.cluster.objects[slot] = made_of(rng, slot, rich_route)
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
    specs = [each["spec"] for (kind, _, _), each in story.cluster.objects.items() if kind == "HTTPRoute"]
    matches = [match for spec in specs for rule in spec["rules"] for match in rule.get("matches", ())]
    return Served(seen, evidence, story.name, tuple(matches), tuple(seen.context.names["gateway"]["virtual_hosts"]))


def request(rng: Random, served: Served, to: str = "") -> ClientRequest:
    """Return a random request for what such a cluster may have, to the shared frontends at an address ``to``."""
    opened = [(front.name, bind) for front, binds in served.seen.config.frontends for bind in binds]
    frontend, bind = rng.choice([each for each in opened if each[1].port in _PORTS])
    port, address = bind.port, bind.address.strip("[]")
    if address in {"*", "::"} or rng.random() < 0.1:
        address = rng.choice(_ADDRESSES)
    if to:
        port, address = rng.choice((80, 443)), to
    scheme = _PORTS[port] if rng.random() < 0.95 else rng.choice(("http", "https"))
    host, path = (
        rng.choice((*ASKED_HOSTS, *ASKED_HOSTS, "new.test")),
        rng.choice((*_RULE_PATHS, *_RULE_PATHS, *_OTHER_PATHS)),
    )
    method, headers, query = rng.choice(_METHODS), list[str](), list[str]()
    hosts = [each for each in served.virtual_hosts if each.partition("|")[0] == frontend.removesuffix(".https")]
    if not to and hosts and rng.random() < 0.9:
        host, match = rng.choice(hosts).partition("|")[2].replace("*", "z"), rng.choice(served.matches)
        path, method = match.get("path", {}).get("value", "/"), match.get("method", method)
        path = path if not any(each in path for each in "(.") else rng.choice(("/app/x", "/login", "/abc/x"))
        headers += [_meeting(rng, each, ": ") for each in match.get("headers", ())]
        query += [_meeting(rng, each, "=").replace(" ", "+") for each in match.get("queryParams", ())]
    path += rng.choice(("", "", "", "", "/", "/x", "/.well-known", "%2F", ";a=b"))
    path = path if path.startswith("/") or not path else f"/{path}"
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        query.append(f"{rng.choice((*_PARAMETERS, 'V'))}{rng.choice(('=', '=', '=', ''))}{rng.choice(_ENCODED)}")
    rng.shuffle(query)
    headers += [f"{rng.choice(_HEADERS)}: {rng.choice(_VALUES)}" for _ in range(rng.choice((0, 0, 1, 2)))]
    if not to and rng.random() < 0.1:  # the model knows headers with one value only
        headers.append("X-Forwarded-Proto: https, http")
    is_asking = method == "OPTIONS" and rng.random() < 0.5
    if is_asking or rng.random() < 0.1:
        headers.append(f"Origin: {rng.choice(('https://a.test', 'https://b.a.test', 'null'))}")
    if is_asking or rng.random() < 0.1:
        headers.append("Access-Control-Request-Method: GET")
    odd = () if to else (f"{host}:x",)  # the model knows ports of digits only
    if rng.random() < 0.25:
        headers.append(f"Host: {rng.choice((host.upper(), f'{host}.', f'{host}:{port}', *odd, *ASKED_HOSTS))}")
    written = rng.choice("&&;").join(query)
    asked = {
        "url": [f"{scheme}://{host}:{port}{path}{'?' + written if written else ''}"],
        "method": [method],
        "header": headers,
        "to": [address],
        "from": [rng.choice(_SOURCES) if ":" not in address else ""],
        "tls-name": [rng.choice(ASKED_HOSTS)] if rng.random() < 0.3 else [],
    }
    return request_of(asked)
