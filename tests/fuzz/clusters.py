"""Clusters for the fuzzer in which several namespaces want the same hosts and addresses, and change from step to step.

All presets that are in use by default read them, with the shipped fragments. Objects are older or younger at random,
are edited, deleted and created again.
"""

import base64
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from pyconfd.fragments import directory
from pyconfd.model.snapshot import KIND_OF, RECORD_OF, HostFacts, Key, Snapshot
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.fuzz import words
from tests.world.pki import CertificateAuthority

NAMESPACES = ("a", "b", "c")
OWN_CLASSES = ("pyconfd", words.NGINX_CLASS)
"""Classes of Ingresses that are served; those of the second one mean what ingress-nginx makes of them."""
INTRUDER = "d"
"""A namespace that no object of the others names; it has objects where a test adds them."""
OPERATOR = "operator"
"""The namespace of the default certificate."""
ANY_HOST = "*"
HOSTS = ("app.x.test", "www.x.test", "*.x.test", "a.b.x.test", "*.b.x.test", "y.test")
PATHS = ("/", "/app", "/login", "/.well-known/acme-challenge")
SHARED_ADDRESS = "192.0.2.10"
POOL = ("192.0.2.21", "192.0.2.22", "192.0.2.23", "2001:db8::21")
API_SERVERS = ("203.0.113.6", "203.0.113.7")
"""The first is known to the host, the other one to the cluster alone."""
FORBIDDEN = (*API_SERVERS, "64:ff9b::cb00:7106", "169.254.169.254", "127.0.0.1", SHARED_ADDRESS, POOL[0])
"""Where no endpoint may be."""
EXPRESSIONS = ("/a.*", "(?i)/login", "/[a-z]{1,9}/x", "/(a|b)+c", "/(a+)+$", "(")
HSTS_OF = {namespace: 1000 + number for number, namespace in enumerate((*NAMESPACES, INTRUDER))}
"""Each namespace asks for another time, so that a line says whose it is."""

Document = dict[str, Any]
Slot = tuple[str, str, str]
"""Kind, namespace and name of an object."""

_RESOURCES = {kind: resource for resource, kind in KIND_OF.items()}


PODS_OF = "pods-of-"
"""Begins the names of Services that have endpoints of their own."""


def pod_of(namespace: str) -> str:
    """Return the address of the pods of a namespace."""
    return f"10.{1 + (*NAMESPACES, INTRUDER).index(namespace)}.0.1"


def namespace_of(server: str) -> str:
    """Return whose pod a server's address is, "" for nobody's."""
    if not server.startswith("10."):
        return ""
    return (*NAMESPACES, INTRUDER)[int(server.split(".")[1]) - 1]


@cache
def _pairs() -> tuple[Mapping[str, str], ...]:
    """Return the data of Secrets: certificates for all hosts, for a wildcard, and for another host; and no pair."""
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder) / "ca")
        found = []
        for number, hosts in enumerate((HOSTS, ("*.x.test",), ("other.test",))):
            pair = authority.server(f"pair{number}", hosts)
            files = {"tls.crt": pair.cert, "tls.key": pair.key}
            found.append({name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()})
    return (*found, {**found[0], "tls.key": found[1]["tls.key"]})


def _domain(rng: Random, namespace: str, name: str) -> Document:
    annotations = {
        "pyconfd.io/domain": rng.choice((*HOSTS, *HOSTS, "APP.x.test.", "no host")),
        "pyconfd.io/proto": rng.choice(("http", "http", "https", "https", "redis")),
    }
    annotations |= rng.choice(({}, {"pyconfd.io/port": "http"}, {"pyconfd.io/port": "admin"}, {"pyconfd.io/port": "9"}))
    if rng.random() < 0.2:
        annotations["pyconfd.io/listen-port"] = rng.choice(("6379", "8443"))
    if rng.random() < 0.4:
        annotations["pyconfd.io/tls-secret"] = rng.choice(("s0", "missing"))
        annotations |= _tls_annotations(rng, namespace)
    return _service(annotations | _consent(rng))


def _tls_annotations(rng: Random, namespace: str) -> dict[str, str]:
    found = {"pyconfd.io/hsts": str(HSTS_OF[namespace])} if rng.random() < 0.7 else {}
    return found | ({"pyconfd.io/ssl-redirect": rng.choice(("true", "false"))} if rng.random() < 0.5 else {})


def _consent(rng: Random) -> dict[str, str]:
    return {"pyconfd.io/shared-with": rng.choice((*NAMESPACES, "*", "a b"))} if rng.random() < 0.15 else {}


def _service(annotations: Mapping[str, str], **spec: Any) -> Document:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "admin", "port": 81, "targetPort": 8081}]
    return {"metadata": {"annotations": dict(annotations)}, "spec": {"ports": ports, **spec}}


def _ingress(rng: Random, namespace: str, name: str) -> Document:
    hosts = rng.sample((*HOSTS, ""), rng.choice((1, 1, 2, 3)))
    rules: list[Document] = []
    for host in hosts:
        paths = [
            {
                "path": rng.choice((*PATHS, *PATHS, "/a//b", "(x)")),
                "pathType": rng.choice(("Prefix", "Prefix", "Exact", "ImplementationSpecific")),
                "backend": _backend(rng),
            }
            for _ in range(rng.randint(1, 2))
        ]
        rules.append({"host": host, "http": {"paths": paths}})
    spec: Document = {"ingressClassName": rng.choice(("pyconfd", "pyconfd", "pyconfd", "other")), "rules": rules}
    if rng.random() < 0.2:
        spec["defaultBackend"] = _backend(rng)
    if rng.random() < 0.1:
        spec["rules"], spec["defaultBackend"] = [], _backend(rng)
    if rng.random() < 0.5:
        named = rng.choice(([host for host in hosts if host], [], rng.sample(HOSTS, 2)))
        spec["tls"] = [{"secretName": rng.choice(("s0", "s0", "missing")), "hosts": named}]
    annotations = {**_tls_annotations(rng, namespace), **_consent(rng)}
    if rng.random() < 0.15:
        nginx = "nginx.ingress.kubernetes.io"
        restricting = {f"{nginx}/whitelist-source-range": "10.0.0.0/8"}
        annotations |= rng.choice((restricting, {f"{nginx}/canary": "true"}, {"pyconfd.io/hsts": "never"}))
    aside = _aside(rng)
    if spec["ingressClassName"] == "pyconfd" and aside.random() < 0.4:
        spec["ingressClassName"] = words.NGINX_CLASS
    annotations |= words.annotations(aside, "Ingress", spec["ingressClassName"])
    return {"metadata": {"annotations": annotations}, "spec": spec}


def _aside(rng: Random) -> Random:
    """Return a generator that takes nothing of another: a new word does not make other clusters of the same seed."""
    return Random(hash(rng.getstate()[1]))


def _backend(rng: Random) -> Document:
    return {"service": {"name": rng.choice(("web", "web", "web", "missing")), "port": {"number": 80}}}


def _balanced(rng: Random, namespace: str, name: str) -> Document:
    annotations = {}
    if rng.random() < 0.4:
        annotations["pyconfd.io/sharing-key"] = rng.choice(("k", "k", "j", "not a key"))
    if rng.random() < 0.3:
        annotations["pyconfd.io/addresses"] = ",".join(rng.sample((*POOL, "192.0.2.99"), rng.choice((1, 1, 2))))
    ports = [
        {"name": "http", "port": port, "targetPort": 8080} for port in rng.sample((80, 443, 5432), rng.choice((1, 2)))
    ]
    for number, each in enumerate(ports):
        each["name"] = ("http", "admin")[number]
    class_ = rng.choice(("pyconfd.io/lb", "pyconfd.io/lb", "pyconfd.io/lb", "example.com/other"))
    return _service(annotations) | {"spec": {"type": "LoadBalancer", "loadBalancerClass": class_, "ports": ports}}


def _gateway(rng: Random, namespace: str, name: str) -> Document:
    spec: Document = {
        "gatewayClassName": rng.choice(("pyconfd", "pyconfd", "pyconfd", "other")),
        "listeners": _listeners(rng),
        "allowedListeners": {"namespaces": {"from": rng.choice(("All", "Same", "None"))}},
    }
    if rng.random() < 0.3:
        spec["addresses"] = [{"type": "IPAddress", "value": rng.choice((*POOL, "192.0.2.99"))}]
    return {"metadata": {"annotations": {}}, "spec": spec}


def _listener_set(rng: Random, namespace: str, name: str) -> Document:
    parent = {"name": "g0", "namespace": rng.choice((*NAMESPACES, namespace))}
    return {"metadata": {"annotations": {}}, "spec": {"parentRef": parent, "listeners": _listeners(rng)}}


def _listeners(rng: Random) -> list[Document]:
    listeners: list[Document] = []
    protocols = rng.choice((("HTTP", "HTTP", "HTTPS", "TLS", "TCP"), ("HTTP", "HTTPS", "HTTPS", "HTTPS")))
    for number in range(rng.randint(2, 4)):
        protocol = rng.choice(protocols)
        listener: Document = {
            "name": f"l{number}",
            "port": {"HTTP": 80, "HTTPS": 443, "TLS": 443, "TCP": 5432}[protocol],
            "protocol": protocol,
            "allowedRoutes": {"namespaces": {"from": rng.choice(("Same", "All"))}},
        }
        if protocol != "TCP" and rng.random() < (0.7 if protocol == "HTTPS" else 0.4):
            listener["hostname"] = rng.choice(HOSTS)
        if protocol == "HTTPS" or (protocol == "TLS" and rng.random() < 0.5):
            reference = {"name": "s0"}
            if rng.random() < 0.5:
                reference["namespace"] = rng.choice(NAMESPACES)
            listener["tls"] = {"mode": "Terminate", "certificateRefs": [reference]}
        elif protocol == "TLS":
            listener["tls"] = {"mode": "Passthrough"}
        listeners.append(listener)
    return listeners


def _route(kind: str) -> Callable[[Random, str, str], Document]:
    def make(rng: Random, namespace: str, name: str) -> Document:
        parent: Document = {"name": "g0"} if rng.random() < 0.7 else {"name": "s0", "kind": "ListenerSet"}
        if rng.random() < 0.5:
            parent["namespace"] = rng.choice(NAMESPACES)
        if rng.random() < 0.2:
            parent["sectionName"] = rng.choice(("l0", "l1"))
        reference: Document = {"name": "web" if rng.random() < 0.9 else "missing", "port": 80}
        if rng.random() < 0.5:
            reference["namespace"] = rng.choice(NAMESPACES)
        rule: Document = {"backendRefs": [reference]}
        spec: Document = {"parentRefs": [parent], "rules": [rule]}
        if kind == "HTTPRoute":
            rule["matches"] = [{"path": {"type": "PathPrefix", "value": rng.choice(PATHS)}}]
            if rng.random() < 0.3:
                rule["matches"] += [{"path": {"type": "RegularExpression", "value": rng.choice(EXPRESSIONS)}}]
        if kind == "GRPCRoute" and rng.random() < 0.5:
            rule["matches"] = [{"method": {"service": "shop.Cart"}}]
        if kind != "TCPRoute" and (kind == "TLSRoute" or rng.random() < 0.6):
            spec["hostnames"] = [rng.choice(HOSTS)]
        return {"metadata": {"annotations": words.annotations(_aside(rng), kind)}, "spec": spec}

    return make


def _grant(rng: Random, namespace: str, name: str) -> Document:
    """Lets another namespace name Services or Secrets of this one."""
    kinds = ("HTTPRoute", "HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute", "Gateway", "ListenerSet")
    sources = [
        {"group": "gateway.networking.k8s.io", "kind": rng.choice(kinds), "namespace": rng.choice(NAMESPACES)}
        for _ in range(3)
    ]
    to = [{"group": "", "kind": kind} for kind in rng.choice((("Service",), ("Secret",), ("Service", "Secret")))]
    return {"metadata": {"annotations": {}}, "spec": {"from": sources, "to": to}}


def _more_endpoints(rng: Random, namespace: str, name: str) -> Document:
    """Return a slice that its tenant wrote for one of his Services."""
    address = rng.choice((*FORBIDDEN, *(each for each in FORBIDDEN if ":" in each), pod_of(namespace)))
    return slice_of(namespace, rng.choice(("web", "web", "d0", "l0")), name, address)


def _policy(rng: Random, namespace: str, name: str) -> Document:
    target = {"group": "", "kind": "Service", "name": "web"}
    validation = {"hostname": rng.choice(("web.test", "not a host")), "wellKnownCACertificates": "System"}
    return {"metadata": {"annotations": {}}, "spec": {"targetRefs": [target], "validation": validation}}


POLICY_TARGETS = (
    ("networking.k8s.io", "Ingress", "i0"),
    ("networking.k8s.io", "Ingress", "i1"),
    ("gateway.networking.k8s.io", "HTTPRoute", "h0"),
    ("gateway.networking.k8s.io", "GRPCRoute", "r0"),
    ("gateway.networking.k8s.io", "Gateway", "g0"),
    ("gateway.networking.k8s.io", "ListenerSet", "s0"),
    ("", "Service", "web"),
)


def _words_of_others(rng: Random, namespace: str, name: str) -> Document:
    """Return a RoutePolicy for one or two objects of the namespace, or a listener."""
    targets = []
    for group, kind, of in rng.sample(POLICY_TARGETS, rng.choice((1, 1, 2))):
        target = {"group": group, "kind": kind, "name": of}
        if kind in {"Gateway", "ListenerSet"} and rng.random() < 0.3:
            target["sectionName"] = rng.choice(("l0", "l1"))
        targets.append(target)
    return {"metadata": {"annotations": {}}, "spec": {"targetRefs": targets, **words.fields(rng, 0.1)}}


def _secret(rng: Random, namespace: str, name: str) -> Document:
    return {"metadata": {}, "type": "kubernetes.io/tls", "data": dict(rng.choice(_pairs()))}


MAKERS: Mapping[tuple[str, str], Callable[[Random, str, str], Document]] = {
    ("Service", "d0"): _domain,
    ("Service", "d1"): _domain,
    ("Ingress", "i0"): _ingress,
    ("Ingress", "i1"): _ingress,
    ("Service", "l0"): _balanced,
    ("Service", "l1"): _balanced,
    ("Gateway", "g0"): _gateway,
    ("ListenerSet", "s0"): _listener_set,
    ("HTTPRoute", "h0"): _route("HTTPRoute"),
    ("GRPCRoute", "r0"): _route("GRPCRoute"),
    ("TLSRoute", "t0"): _route("TLSRoute"),
    ("TCPRoute", "c0"): _route("TCPRoute"),
    ("ReferenceGrant", "n0"): _grant,
    ("BackendTLSPolicy", "p0"): _policy,
    ("Secret", "s0"): _secret,
    ("RoutePolicy", "q0"): _words_of_others,
    ("RoutePolicy", "q1"): _words_of_others,
    ("EndpointSlice", "e0"): _more_endpoints,
    ("Service", "web"): lambda _rng, _namespace, _name: _service({}),
}
"""How each object of a namespace is made, by kind and name."""

_WEIGHTS = {"Ingress": 4, "Service": 3, "Gateway": 2, "ListenerSet": 2, "Secret": 2, "HTTPRoute": 2}


def listeners_at(objects: Mapping[Slot, Document], namespace: str, name: str) -> Iterator[tuple[Slot, str, Document]]:
    """Return the listeners of a Gateway and of the ListenerSets that it allows: whose each is, its id, and itself."""
    gateway = objects["Gateway", namespace, name]["spec"]
    for each in gateway["listeners"]:
        yield ("Gateway", namespace, name), each["name"], each
    allowed = gateway.get("allowedListeners", {}).get("namespaces", {}).get("from")
    for slot, document in objects.items():
        if slot[0] != "ListenerSet" or not (allowed == "All" or (allowed == "Same" and slot[1] == namespace)):
            continue
        if document["spec"]["parentRef"] == {"name": name, "namespace": namespace}:
            for each in document["spec"]["listeners"]:
                yield slot, f"set_{slot[1]}_{slot[2]}_{each['name']}", each


class Happened(StrEnum):
    """What the last step did to its object."""

    CREATED = "created"
    EDITED = "edited"
    DELETED = "deleted"
    AGAIN = "created again"
    STATUS = "status written"
    NOTHING = "nothing"


_OFTEN = {Happened.EDITED: 8, Happened.DELETED: 5, Happened.AGAIN: 2, Happened.STATUS: 1, Happened.NOTHING: 1}


Maker = Callable[[Random, str, str], Document]


def made_of(rng: Random, slot: Slot, maker: Maker, created: str = "") -> Document:
    """Return an object, of any age where nothing is said of it."""
    _, namespace, name = slot
    made = maker(rng, namespace, name)
    created = created or f"2026-01-{rng.randint(1, 28):02}T00:00:00Z"
    metadata = {**made["metadata"], "name": name, "namespace": namespace, "creationTimestamp": created}
    return {**made, "metadata": metadata | {"uid": "/".join(slot), "generation": 1}}


@dataclass(slots=True)
class Cluster:
    """The objects of all namespaces; :meth:`step` changes one of them."""

    rng: Random
    objects: dict[Slot, Document] = field(default_factory=dict)
    now: float = 1000.0
    changed: Slot = ("", "", "")
    happened: Happened = Happened.NOTHING
    _records: dict[Slot, tuple[Document, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with what each namespace needs to serve anything, and some of the rest."""
        for namespace in NAMESPACES:
            for kind, name in MAKERS:
                if (kind, name) in {("Service", "web"), ("Secret", "s0")} or self.rng.random() < (
                    0.3 if kind in {"Service", "Ingress"} else 0.7
                ):
                    self._make((kind, namespace, name))

    def step(self) -> None:
        """Advance the time and change one object."""
        rng = self.rng
        before = self.now
        self.now += rng.choice((1.0, 1.0, 1.0, 5.0, 700.0))
        choices = list(MAKERS)
        kind, name = rng.choices(choices, [_WEIGHTS.get(kind, 1) for kind, _ in choices])[0]
        slot = kind, rng.choice(NAMESPACES), name
        self.changed = slot
        if slot not in self.objects:
            self.happened = Happened.CREATED
            self._make(slot)
            return
        self.happened = rng.choices(list(_OFTEN), list(_OFTEN.values()))[0]
        if self.happened is Happened.DELETED:
            del self.objects[slot]
        elif self.happened is Happened.EDITED:
            self._make(slot, self.objects[slot]["metadata"]["creationTimestamp"])
        elif self.happened is Happened.AGAIN:
            self._make(slot)
        elif self.happened is Happened.STATUS:
            self.now = before  # so that nothing else changes the configuration
            address = rng.choice(POOL)
            status: Document = {"addresses": [{"type": "IPAddress", "value": address}]}
            if kind in {"Service", "Ingress"}:
                status = {"loadBalancer": {"ingress": [{"ip": address}]}}
            self.objects[slot] = {**self.objects[slot], "status": status}

    def _make(self, slot: Slot, created: str = "") -> None:
        self.objects[slot] = made_of(self.rng, slot, MAKERS[slot[0], slot[2]], created)

    def snapshot(self, absent: frozenset[str] = frozenset()) -> Snapshot:
        """Return it as pyconfd sees it; ``absent`` are addresses of the pool that are not on the host."""
        addresses = {"127.0.0.1", "::1", SHARED_ADDRESS, *POOL} - absent
        parts: dict[str, Any] = {"host": HostFacts(frozenset(addresses), api_servers=frozenset(API_SERVERS[:1]))}
        for slot, document in (*_ALWAYS.items(), *self.objects.items(), *self._endpoints()):
            kind, namespace, name = slot
            known = self._records.get(slot)
            if known is None or known[0] is not document:
                known = self._records[slot] = document, msgspec.convert(document, RECORD_OF[_RESOURCES[kind]])
            parts.setdefault(_RESOURCES[kind].field, {})[Key(namespace, name)] = known[1]
        return replace(Snapshot(), **parts)

    def _endpoints(self) -> Iterator[tuple[Slot, Document]]:
        """Return the endpoints of each Service; one whose tenant wrote some of IPv6 has no others."""
        of_tenants = {
            (namespace, document["metadata"]["labels"]["kubernetes.io/service-name"])
            for (kind, namespace, _), document in self.objects.items()
            if kind == "EndpointSlice" and document["addressType"] == "IPv6"
        }
        for kind, namespace, name in self.objects:
            if kind == "Service" and (namespace, name) not in of_tenants and not name.startswith(PODS_OF):
                yield ("EndpointSlice", namespace, f"{name}-a"), _slice(namespace, name)


@cache
def _slice(namespace: str, service: str) -> Document:
    return slice_of(namespace, service, f"{service}-a", pod_of(namespace))


def slice_of(namespace: str, service: str, name: str, address: str) -> Document:
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 8080}, {"name": "admin", "port": 8081}],
    }


def _named(kind: str, name: str, **more: Any) -> tuple[Slot, Document]:
    return (kind, "", name), {"metadata": {"name": name, "labels": {}}, **more}


def _default_certificate() -> Document:
    metadata = {"name": "default", "namespace": OPERATOR}
    return {"metadata": metadata, "type": "kubernetes.io/tls", "data": dict(_pairs()[2])}


_ALWAYS: Mapping[Slot, Document] = dict(
    (
        (("Secret", OPERATOR, "default"), _default_certificate()),
        (("EndpointSlice", "default", "kubernetes"), slice_of("default", "kubernetes", "kubernetes", API_SERVERS[1])),
        _named("IngressClass", "pyconfd", spec={"controller": "pyconfd.io/ingress"}),
        _named("GatewayClass", "pyconfd", spec={"controllerName": "pyconfd.io/gateway"}),
        *(_named("Namespace", namespace) for namespace in NAMESPACES),
    )
)


def renderer(folder: str, trusted: tuple[str, ...] = ()) -> Renderer:
    """Return the shipped fragments, whose files lie in ``folder``; ``trusted`` are networks of proxies in front."""
    variables = {
        "ipv6": True,
        "pool_networks": list(POOL),
        "runtime_socket": f"{folder}/socket",
        "trusted_networks": list(trusted),
    }
    return Renderer(read_fragments(directory()), RenderOptions(f"{folder}/files", variables=variables))
