"""The cluster of a simulation: what there is, and what an API server that lies says there is. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from pyconfd.model.snapshot import Resource
from tests.world import objects
from tests.world.objects import PortSpec

HTTP_SERVICES = 5
NAMES = (*(f"web{number}" for number in range(HTTP_SERVICES)), "tcp", "balanced", "gated")
"""``tcp`` asks for a port of its own, ``balanced`` for an address of the pool, the others for a name.

``gated`` is behind a Gateway of its own, which asks for an address of the pool, and an HTTPRoute.
"""
BALANCED, GATED = NAMES.index("balanced"), NAMES.index("gated")
POOLED = frozenset({BALANCED, GATED})
BY_INGRESS = frozenset({3, 4})
"""Those that an Ingress asks for, in place of an annotation of the Service."""
_BY_OBJECT = BY_INGRESS | {GATED}
WITH_TLS = 4
"""The one whose Ingress has a certificate."""
THIEF_BY_INGRESS = frozenset({2, 3, 4})
"""Where another namespace asks for the name by an Ingress, with paths, a certificate and a redirect."""
THIEF_BY_PATH = THIEF_BY_INGRESS | {GATED}
"""Where it asks for the path ``LOGIN`` as well; at ``gated`` with a route at the Gateway of the owner."""
RENEWALS = 3
"""How many certificates there are, of which one is the present one."""
MOST_PODS = 4

Objects = Mapping[tuple[Resource, str, str], dict[str, Any]]
"""By resource, namespace and name, as the API gives them."""
_Made = dict[tuple[Resource, str, str], dict[str, Any]]


class Poison(IntEnum):
    """What is wrong with a Service; all but a bad endpoint take it away, and nothing else."""

    NONE = 0
    WORDS = 1
    SMUGGLED_CONDITION = 2
    SMUGGLED_LINE = 3
    NO_SUCH_PORT = 4
    REFUSED_BY_HAPROXY = 5
    """A fragment of the operator's trusts it, and ``haproxy -c`` does not."""
    FAILS_IN_TEMPLATE = 6
    UNREADABLE = 7
    BAD_ENDPOINT = 8
    """One endpoint is where no pod can be; the others are good."""
    OTHER_CLASS = 9
    """Its Ingress is another controller's now."""


_NOTES: Mapping[Poison, Mapping[str, str]] = {
    Poison.WORDS: {"domain": "evil words.example.com"},
    Poison.SMUGGLED_CONDITION: {"domain": "evil.example.com } || { always_true"},
    Poison.SMUGGLED_LINE: {"proto": "http\n    bind :1 #evil"},
    Poison.NO_SUCH_PORT: {"pyconfd.io/port": "evil"},
    Poison.REFUSED_BY_HAPROXY: {"example.com/balance": "evil"},
    Poison.FAILS_IN_TEMPLATE: {"example.com/share": "0"},
}

_OF_INGRESS = frozenset({Poison.WORDS, Poison.SMUGGLED_CONDITION, Poison.SMUGGLED_LINE, Poison.NO_SUCH_PORT})
"""What an Ingress or a route asks for wrongly, where there is one; the rest is wrong with its Service."""
_CLASSES: Mapping[tuple[Resource, str, str], dict[str, Any]] = {
    (Resource.INGRESSCLASSES, "", "pyconfd"): {
        "metadata": {"name": "pyconfd"},
        "spec": {"controller": "pyconfd.io/ingress"},
    },
    (Resource.INGRESSCLASSES, "", "other"): {
        "metadata": {"name": "other"},
        "spec": {"controller": "example.com/other"},
    },
    (Resource.GATEWAYCLASSES, "", "pyconfd"): {
        "metadata": {"name": "pyconfd", "uid": "class", "generation": 1},
        "spec": {"controllerName": "pyconfd.io/gateway"},
    },
}
LOGIN = "/login"
"""What another namespace asks for beside the path that its owner serves."""

EVIL = ("evil", "169.254.169.254")
"""Whatever is configured must not contain these."""


class Lie(IntEnum):
    """What an API server does with a list."""

    NONE = 0
    SILENT = 1
    """It does not answer: what was seen stays seen, and a new pyconfd sees nothing."""
    NO_OBJECTS = 2
    NO_SLICES = 3
    """As after a change of permissions."""
    ALL_UNREADY = 4
    PARTIAL = 5
    OLD = 6

    @property
    def is_total_loss(self) -> bool:
        """Whether nothing would be left to serve: that waits for the operator."""
        return self in {Lie.NO_OBJECTS, Lie.NO_SLICES, Lie.ALL_UNREADY}


@dataclass(frozen=True)
class Service:
    """One Service with ``pods`` as a bit each, 0 where it is not there; ``thief`` is a younger claim of its name.

    ``certificate`` is the present one of ``RENEWALS``; a ``broken`` Secret has none that can be used. ``life`` counts
    how often its objects were created.
    """

    pods: int = 0
    poison: Poison = Poison.NONE
    thief: bool = False
    there: bool = True
    certificate: int = 0
    broken: bool = False
    life: int = 0

    @property
    def is_quarantined(self) -> bool:
        """Whether it is what it asks for that cannot be had: its name stays its own then, if it ever had it."""
        return self.there and self.poison in {Poison.REFUSED_BY_HAPROXY, Poison.FAILS_IN_TEMPLATE}

    @property
    def is_healthy(self) -> bool:
        """Whether it has to be served."""
        return self.there and self.pods != 0 and self.poison in {Poison.NONE, Poison.BAD_ENDPOINT}


State = tuple[Service, ...]
"""By position in ``NAMES``; each has a namespace of its own name, and all thieves share one."""

START: State = tuple(Service(pods=3) for _ in NAMES)


def changed(state: State, at: int, **changes: Any) -> State:
    """Return ``state`` with another Service at ``at``."""
    return (*state[:at], replace(state[at], **changes), *state[at + 1 :])


def told(lie: Lie, truth: State, past: State, chance: int) -> State:
    """Return what the API says; ``past`` is how it was once, and ``chance`` has a bit for each Service that is left."""
    match lie:
        case Lie.NO_OBJECTS:
            return tuple(Service(there=False) for _ in truth)
        case Lie.PARTIAL:
            gone = Service(there=False)
            return tuple(each if chance >> at & 1 else gone for at, each in enumerate(truth))
        case Lie.OLD:
            return past
        case _:
            return truth


def pod_address(at: int, pod: int) -> str:
    """Return the address of a pod of the Service at ``at``."""
    return f"127.19.{at}.{pod + 1}"


def thief_address(at: int) -> str:
    """Return the address of the pod of whoever wants the same name."""
    return f"127.19.{100 + at}.1"


def all_addresses() -> list[str]:
    """Return every address on which something answers."""
    pods = [pod_address(at, pod) for at in range(len(NAMES)) for pod in range(MOST_PODS)]
    return [*pods, *(thief_address(at) for at in range(len(NAMES)))]


@dataclass(frozen=True)
class Ports:
    """``pods``: where all pods answer; ``tcp``, ``balanced`` and ``gated``: what these ask for.

    ``pool`` are the addresses that ``balanced``, ``gated`` and their thieves are given one each of; the thieves ask for
    the first two, which the owners were given.
    """

    pods: int
    tcp: int
    balanced: int
    gated: int
    pool: tuple[str, str, str, str]


@dataclass(frozen=True)
class Pair:
    """A certificate as a Secret holds it, and the serial number by which clients know it."""

    serial: int
    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Pairs:
    """``own`` are those of the Service ``WITH_TLS``; ``thief`` names the hosts of others."""

    own: Sequence[Pair]
    thief: Pair


def host(at: int) -> str:
    """Return the name that the Service at ``at`` asks for."""
    return f"{NAMES[at]}.example.com"


def written(state: State, ports: Ports, pairs: Pairs, *, unready: bool = False) -> Objects:
    """Return the objects, ``unready`` where no pod is."""
    found: _Made = {**_CLASSES}
    for at, each in enumerate(state):
        if each.there:
            found |= _of_owner(at, each, ports, pairs, unready=unready)
        if each.thief:
            found |= _of_thief(at, ports, pairs, unready=unready)
    return found


def _of_owner(at: int, each: Service, ports: Ports, pairs: Pairs, *, unready: bool) -> _Made:
    name = NAMES[at]
    pods = [pod_address(at, pod) for pod in range(MOST_PODS) if each.pods >> pod & 1]
    if each.poison is Poison.BAD_ENDPOINT and pods:
        pods.append(EVIL[1])
    notes = {} if at in _BY_OBJECT and each.poison in _OF_INGRESS else _NOTES.get(each.poison, {})
    made = _one(name, at, notes, pods, ports, unready=unready)
    if at in BY_INGRESS:
        made |= _ingress(name, at, each.poison, tls=at == WITH_TLS)
    if at == WITH_TLS:
        made |= _secret(name, at, pairs.own[each.certificate], broken=each.broken)
    if at == GATED:
        made |= _gateway(name, at, each.poison, ports)
    for obj in made.values():
        obj["metadata"]["uid"] = f"{name}/{each.life}"
    if each.poison is Poison.UNREADABLE:
        made[Resource.SERVICES, name, name]["spec"]["ports"] = "evil"
    return made


def _of_thief(at: int, ports: Ports, pairs: Pairs, *, unready: bool) -> _Made:
    made = _one("strangers", at, {}, [thief_address(at)], ports, unready=unready)
    if at in THIEF_BY_INGRESS:
        made |= _ingress("strangers", at, Poison.NONE, tls=True)
        made |= _secret("strangers", at, pairs.thief, broken=False)
    if at == GATED:
        made |= _gateway("strangers", at, Poison.NONE, ports)
    return made


def _one(namespace: str, at: int, notes: Mapping[str, str], pods: list[str], ports: Ports, *, unready: bool) -> _Made:
    name = NAMES[at]
    asked = {"proto": "tcp", "pyconfd.io/listen-port": str(ports.tcp)} if name == "tcp" else {"proto": "http"}
    by_ingress = at in (BY_INGRESS if namespace == name else THIEF_BY_INGRESS)
    annotations = dict(notes) if by_ingress or at == GATED else {"domain": host(at), **asked, **notes}
    port, spec = 80, {}
    if at == BALANCED:
        annotations = {} if namespace == name else {"pyconfd.io/addresses": ports.pool[0]}
        port, spec = ports.balanced, {"type": "LoadBalancer", "loadBalancerClass": "pyconfd.io/lb"}
    service = objects.service(namespace, name, [PortSpec("web", port, ports.pods)], annotations=annotations, spec=spec)
    service["metadata"] |= {"uid": f"{namespace}/{name}", "generation": 1, "creationTimestamp": _since(namespace, at)}
    found = {(Resource.SERVICES, namespace, name): service}
    if pods:
        key = Resource.ENDPOINTSLICES, namespace, f"{name}-a"
        found[key] = _slice(namespace, name, pods, ports, unready=unready)
    return found


def _since(namespace: str, at: int) -> str:
    return f"2026-0{1 if namespace == NAMES[at] else 2}-01T00:00:00Z"


def _asked(at: int, poison: Poison) -> tuple[str, str]:
    """Return the host and the path that an Ingress or a route asks for."""
    asked, path = host(at), "/"
    match poison:
        case Poison.WORDS | Poison.SMUGGLED_CONDITION:
            asked = _NOTES[poison]["domain"]
        case Poison.SMUGGLED_LINE:
            path = "/\n    bind :1 #evil"
    return asked, path


def _ingress(namespace: str, at: int, poison: Poison, *, tls: bool) -> _Made:
    name, (asked, path) = NAMES[at], _asked(at, poison)
    port = "missing" if poison is Poison.NO_SUCH_PORT else "web"
    backend = {"service": {"name": name, "port": {"name": port}}}
    paths = [{"path": each, "pathType": "Prefix", "backend": backend} for each in (path, LOGIN)]
    if namespace == name:
        del paths[1]
    served_by = "other" if poison is Poison.OTHER_CLASS else "pyconfd"
    spec: dict[str, Any] = {"ingressClassName": served_by, "rules": [{"host": asked, "http": {"paths": paths}}]}
    if tls:
        spec["tls"] = [{"hosts": [asked], "secretName": f"{name}-tls"}]
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}/{name}",
        "generation": 1,
        "creationTimestamp": _since(namespace, at),
        # The owner is asked over plain HTTP too; a redirect that another namespace brings would be seen.
        "annotations": {"pyconfd.io/ssl-redirect": "false"} if namespace == name else {},
    }
    return {(Resource.INGRESSES, namespace, name): {"metadata": metadata, "spec": spec}}


def _gateway(namespace: str, at: int, poison: Poison, ports: Ports) -> _Made:
    """Return a Gateway and an HTTPRoute at it; that of another namespace asks for a place at its owner's as well."""
    name, (asked, path), is_owner = NAMES[at], _asked(at, poison), namespace == NAMES[at]
    listener = {"name": "web", "protocol": "HTTP", "port": ports.gated}
    addresses = [] if is_owner else [{"type": "IPAddress", "value": each} for each in ports.pool[1:2]]
    gateway = {"gatewayClassName": "pyconfd", "listeners": [listener], "addresses": addresses}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path if is_owner else LOGIN}}],
        "backendRefs": [{"name": name, "port": 81 if poison is Poison.NO_SUCH_PORT else 80}],
    }
    parents = [{"name": name}] if is_owner else [{"name": name}, {"name": name, "namespace": name}]
    route = {"parentRefs": parents, "hostnames": [asked], "rules": [rule]}
    return {
        (kind, namespace, name): {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{namespace}/{name}",
                "generation": 1,
                "creationTimestamp": _since(namespace, at),
            },
            "spec": spec,
        }
        for kind, spec in ((Resource.GATEWAYS, gateway), (Resource.HTTPROUTES, route))
    }


def _secret(namespace: str, at: int, pair: Pair, *, broken: bool) -> _Made:
    name = f"{NAMES[at]}-tls"
    data = {"tls.crt": pair.certificate, "tls.key": b"evil" if broken else pair.key}
    return {
        (Resource.SECRETS, namespace, name): {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
            "type": "kubernetes.io/tls",
            "data": {field: base64.b64encode(each).decode() for field, each in data.items()},
        }
    }


def _slice(namespace: str, name: str, pods: list[str], ports: Ports, *, unready: bool) -> dict[str, Any]:
    conditions = {"ready": not unready, "serving": not unready, "terminating": False}
    return {
        "metadata": {"name": f"{name}-a", "namespace": namespace, "labels": {objects.SERVICE_NAME: name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [each], "conditions": conditions} for each in pods],
        "ports": [{"name": "web", "port": ports.pods, "protocol": "TCP"}],
    }


def line(kind: str, obj: Mapping[str, Any]) -> bytes:
    """Return the line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode()
