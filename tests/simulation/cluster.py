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
NAMES = (*(f"web{number}" for number in range(HTTP_SERVICES)), "tcp", "balanced")
"""``tcp`` asks for a port of its own, ``balanced`` for an address of the pool, the others for a name."""
BALANCED = NAMES.index("balanced")
BY_INGRESS = frozenset({3, 4})
"""Those that an Ingress asks for, in place of an annotation of the Service."""
WITH_TLS = 4
"""The one whose Ingress has a certificate."""
THIEF_BY_INGRESS = frozenset({2, 3, 4})
"""Where another namespace asks for the name by an Ingress, with paths, a certificate and a redirect."""
RENEWALS = 3
"""How many certificates there are, of which one is the present one."""
MOST_PODS = 4

Objects = Mapping[tuple[Resource, str, str], dict[str, Any]]
"""By resource, namespace and name, as the API gives them."""


class Poison(IntEnum):
    """What is wrong with a Service; all but the last take it away, and nothing else."""

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


_NOTES: Mapping[Poison, Mapping[str, str]] = {
    Poison.WORDS: {"domain": "evil words.example.com"},
    Poison.SMUGGLED_CONDITION: {"domain": "evil.example.com } || { always_true"},
    Poison.SMUGGLED_LINE: {"proto": "http\n    bind :1 #evil"},
    Poison.NO_SUCH_PORT: {"pyconfd.io/port": "evil"},
    Poison.REFUSED_BY_HAPROXY: {"example.com/balance": "evil"},
    Poison.FAILS_IN_TEMPLATE: {"example.com/share": "0"},
}

_OF_INGRESS = frozenset({Poison.WORDS, Poison.SMUGGLED_CONDITION, Poison.SMUGGLED_LINE, Poison.NO_SUCH_PORT})
"""What an Ingress asks for wrongly, where there is one; the rest is wrong with its Service."""
_CLASS: dict[str, Any] = {"metadata": {"name": "pyconfd"}, "spec": {"controller": "pyconfd.io/ingress"}}
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

    ``certificate`` is the present one of ``RENEWALS``; a ``broken`` Secret has none that can be used.
    """

    pods: int = 0
    poison: Poison = Poison.NONE
    thief: bool = False
    there: bool = True
    certificate: int = 0
    broken: bool = False

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
    """``pods``: where all pods answer; ``tcp`` and ``balanced``: what these Services ask for.

    ``pool`` are the addresses that ``balanced`` and its thief are given one each of; the thief asks for the first.
    """

    pods: int
    tcp: int
    balanced: int
    pool: tuple[str, str]


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
    found: dict[tuple[Resource, str, str], dict[str, Any]] = {(Resource.INGRESSCLASSES, "", "pyconfd"): _CLASS}
    for at, each in enumerate(state):
        pods = [pod_address(at, pod) for pod in range(MOST_PODS) if each.pods >> pod & 1]
        if each.poison is Poison.BAD_ENDPOINT and pods:
            pods.append(EVIL[1])
        if each.there:
            notes = {} if at in BY_INGRESS and each.poison in _OF_INGRESS else _NOTES.get(each.poison, {})
            found |= _one(NAMES[at], at, notes, pods, ports, unready=unready)
            if at in BY_INGRESS:
                found |= _ingress(NAMES[at], at, each.poison, tls=at == WITH_TLS)
            if at == WITH_TLS:
                found |= _secret(NAMES[at], at, pairs.own[each.certificate], broken=each.broken)
        if each.there and each.poison is Poison.UNREADABLE:
            found[Resource.SERVICES, NAMES[at], NAMES[at]]["spec"]["ports"] = "evil"
        if each.thief:
            found |= _one("strangers", at, {}, [thief_address(at)], ports, unready=unready)
            if at in THIEF_BY_INGRESS:
                found |= _ingress("strangers", at, Poison.NONE, tls=True)
                found |= _secret("strangers", at, pairs.thief, broken=False)
    return found


def _one(
    namespace: str, at: int, notes: Mapping[str, str], pods: list[str], ports: Ports, *, unready: bool
) -> dict[tuple[Resource, str, str], dict[str, Any]]:
    name = NAMES[at]
    asked = {"proto": "tcp", "pyconfd.io/listen-port": str(ports.tcp)} if name == "tcp" else {"proto": "http"}
    by_ingress = at in (BY_INGRESS if namespace == name else THIEF_BY_INGRESS)
    annotations = dict(notes) if by_ingress else {"domain": host(at), **asked, **notes}
    port, spec = 80, {}
    if at == BALANCED:
        annotations = {} if namespace == name else {"pyconfd.io/addresses": ports.pool[0]}
        port, spec = ports.balanced, {"type": "LoadBalancer", "loadBalancerClass": "pyconfd.io/lb"}
    service = objects.service(namespace, name, [PortSpec("web", port, ports.pods)], annotations=annotations, spec=spec)
    service["metadata"]["creationTimestamp"] = _since(namespace, at)
    found = {(Resource.SERVICES, namespace, name): service}
    if pods:
        key = Resource.ENDPOINTSLICES, namespace, f"{name}-a"
        found[key] = _slice(namespace, name, pods, ports, unready=unready)
    return found


def _since(namespace: str, at: int) -> str:
    return f"2026-0{1 if namespace == NAMES[at] else 2}-01T00:00:00Z"


def _ingress(namespace: str, at: int, poison: Poison, *, tls: bool) -> Objects:
    name, asked, path, port = NAMES[at], host(at), "/", "web"
    match poison:
        case Poison.WORDS | Poison.SMUGGLED_CONDITION:
            asked = _NOTES[poison]["domain"]
        case Poison.SMUGGLED_LINE:
            path = "/\n    bind :1 #evil"
        case Poison.NO_SUCH_PORT:
            port = "missing"
    backend = {"service": {"name": name, "port": {"name": port}}}
    paths = [{"path": each, "pathType": "Prefix", "backend": backend} for each in (path, LOGIN)]
    if namespace == name:
        del paths[1]
    spec: dict[str, Any] = {"ingressClassName": "pyconfd", "rules": [{"host": asked, "http": {"paths": paths}}]}
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


def _secret(namespace: str, at: int, pair: Pair, *, broken: bool) -> Objects:
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
