"""The objects that the tests create. The routes are those of gateway-api-bench, in our own words."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from tests.world.pki import KeyPair

Obj = dict[str, Any]
NAMESPACE = "bench"
GATEWAY = "bench"
BACKEND = "backend"
POD_PORT = 3000
"""Where the echo server listens."""
MOST_ENDPOINTS = 100
"""In one EndpointSlice, as the controller manager makes them."""
ADDED = {"added-resp-header": "added-resp-value"}
"""What a filtered route adds to its answers."""
_GATEWAY_API = "gateway.networking.k8s.io/v1"


def _named(name: str, api: str, kind: str, namespace: str = NAMESPACE, **more: Any) -> Obj:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **more}


def namespace(name: str) -> Obj:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def ingress_class(name: str, controller: str) -> Obj:
    """Return an IngressClass."""
    made = _named(name, "networking.k8s.io/v1", "IngressClass", spec={"controller": controller})
    del made["metadata"]["namespace"]
    return made


def gateway(name: str, class_name: str) -> Obj:
    """Return a Gateway with one listener for HTTP, for routes of all namespaces."""
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
    return _named(name, _GATEWAY_API, "Gateway", spec={"gatewayClassName": class_name, "listeners": [listener]})


def deployment(name: str, replicas: int) -> Obj:
    """Return echo servers."""
    fields = {"POD_NAME": "metadata.name", "NAMESPACE": "metadata.namespace"}
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    containers = [{"name": "echo", "image": "localhost/echo-basic:1", "env": env}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return _named(name, "apps/v1", "Deployment", spec=spec)


def service(name: str, *, selected: bool, ports: Sequence[int] = (80,), in_namespace: str = NAMESPACE) -> Obj:
    """Return a Service; without a selector its EndpointSlice is the test's own."""
    spec: Obj = {"ports": [{"name": f"http-{port}", "port": port, "targetPort": POD_PORT} for port in ports]}
    if selected:
        spec["selector"] = {"app": name}
    return _named(name, "v1", "Service", in_namespace, spec=spec)


def endpoint_slice(of: str, addresses: Sequence[str], *, part: int = 0, in_namespace: str = NAMESPACE) -> Obj:
    """Return one slice of a Service."""
    made = _named(f"{of}-{part}", "discovery.k8s.io/v1", "EndpointSlice", in_namespace)
    made["metadata"]["labels"] = {"kubernetes.io/service-name": of}
    ready = {"ready": True, "serving": True, "terminating": False}
    made["endpoints"] = [{"addresses": [address], "conditions": ready} for address in addresses]
    made["ports"] = [{"name": "http-80", "port": POD_PORT, "protocol": "TCP"}]
    return made | {"addressType": "IPv4"}


def route(name: str, host: str, rules: Sequence[Obj], in_namespace: str = NAMESPACE) -> Obj:
    """Return an HTTPRoute of the Gateway."""
    spec = {"hostnames": [host], "parentRefs": [{"name": GATEWAY, "namespace": NAMESPACE}], "rules": list(rules)}
    return _named(name, _GATEWAY_API, "HTTPRoute", in_namespace, spec=spec)


def rule(backend: str, path: str = "/", *, port: int = 80, filters: Sequence[Obj] = ()) -> Obj:
    """Return a rule of a route, for all paths below one."""
    made: Obj = {"backendRefs": [{"name": backend, "port": port}]}
    made["matches"] = [{"path": {"type": "PathPrefix", "value": path}}]
    return made | ({"filters": list(filters)} if filters else {})


def adds(kind: str, name: str, value: str) -> Obj:
    """Return a filter that adds a header: ``kind`` is ``request`` or ``response``."""
    added = {"add": [{"name": name, "value": value}]}
    return {"type": f"{kind.title()}HeaderModifier", f"{kind}HeaderModifier": added}


def probed_route(number: int) -> Obj:
    """Return the route of the propagation test: two rules with filters, the backend of the second is missing."""
    filters = [adds("request", "added-header", "added-value")]
    filters += [adds("response", name, value) for name, value in ADDED.items()]
    rules = [rule(BACKEND, f"/{number}", filters=filters), rule("invalid-backend", filters=filters)]
    return route(f"{number}-route", probed_host(number), rules)


def probed_host(number: int) -> str:
    """Return the host of that route."""
    return f"{number}-route.example.com"


def ingress(name: str, host: str, backend: str, class_name: str, *, secret: str = "") -> Obj:
    """Return an Ingress for all paths of a host."""
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": backend, "port": {"number": 80}}}}
    spec: Obj = {"ingressClassName": class_name, "rules": [{"host": host, "http": {"paths": [path]}}]}
    if secret:
        spec["tls"] = [{"hosts": [host], "secretName": secret}]
    return _named(name, "networking.k8s.io/v1", "Ingress", spec=spec)


def config_map(name: str, data: Mapping[str, str]) -> Obj:
    """Return a ConfigMap."""
    return _named(name, "v1", "ConfigMap", data=dict(data))


def tls_secret(name: str, pair: KeyPair) -> Obj:
    """Return a Secret with a certificate."""
    data = {"tls.crt": pair.cert, "tls.key": pair.key}
    encoded = {key: b64encode(path.read_bytes()).decode() for key, path in data.items()}
    return _named(name, "v1", "Secret", type="kubernetes.io/tls", data=encoded)
