"""Clusters for the fuzzer: one victim that is older, and tenants whose every value is random, often hostile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from pyconfd.examples import __file__ as examples
from pyconfd.model.listener import NOBODY, Listener, Listeners
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import RECORD_OF, HostFacts, Key, Resource, Snapshot
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render.engine import Renderer, RenderOptions
from tests.fragments.shipped import shipped_for
from tests.fuzz.haproxy_model import Config, Request, parse

Object = tuple[Resource, dict[str, Any]]
OWN_ADDRESSES = ("192.0.2.10", "192.0.2.11", "2001:db8::10")
VICTIM, EVIL = "victim", "evil"
VICTIM_POD, EVIL_POD = "10.1.0.1", "10.66.0.1"
FILES = "/files"
CERTIFICATES = ("/ssl/victim.example.com.pem", "/ssl/evil.example.com.pem", "/ssl/x.evil.example.com.pem")

HOSTILE = (
    "a.com } || { always_true",
    "a\n    http-request deny",
    "a\nbackend evil\n    server e 198.51.100.66:80",
    "a\r\nglobal\n  lua-load /tmp/x",
    "a if TRUE",
    "or",
    "if",
    "unless",
    "||",
    "{",
    "}",
    "!",
    "-f",
    "-i",
    "--",
    "a -f /etc/shadow",
    "%[env(HOME)]",
    "%{a{b}[ssl_fc_session_key,hex]",
    "str((),debug()",
    "${HOME}",
    "$HOME",
    '"',
    "'",
    "\\",
    "a\\ b",
    "a\\nb",
    "a\\x0ab",
    "#",
    "a\tb",
    "a\0b",
    "a\x0bb",
    "a\x85b",
    "a\u2028b",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "::1%lo } || { always_true",
    "~^a } || { always_true$",
    '{"or": "tcp"}',
    "hdr(x) if TRUE",
    "../../etc/shadow",
    "fd@1",
    "unix@/run/haproxy/master.sock",
    "abns@x",
    "*",
    "",
    " ",
    "a" * 300,
    "victim",
    "victim.example.com",
    "VICTIM.example.com",
    "victim.example.com.",
    "victim.example.com:8080",
    "*.example.com",
    "~^victim",
    "~.*",
    "^.*$",
    "*",
    "com",
    "/ssl/victim.example.com.pem",
    "be-victim",
)
"""What a tenant may write anywhere: syntax of HAProxy, of templates and of paths, and the victim's own words."""

_K = "haproxy-kubefigurator."
SOUND: Mapping[str, tuple[str, ...]] = {
    "name": ("web", "api", "shop"),
    "port name": ("web", "alt"),
    "protocol": ("TCP", "UDP"),
    "type": ("NodePort", "LoadBalancer", "ClusterIP"),
    "address": (EVIL_POD, "10.66.0.2", "2001:db8:66::1"),
    "pod": ("web-1", "web-2"),
    "node": ("node-1", "node-2"),
    "zone": ("a", "b"),
    "balancer ip": ("", "192.0.2.10", "192.0.2.11", "2001:db8::10"),
    "label": ("web",),
    "domain": ("evil.example.com", "x.evil.example.com", "*.evil.example.com"),
    "proto": ("http", "https", "redis", "postgres"),
    "pyconfd.io/port": ("web", "80"),
    "pyconfd.io/listen-port": ("8080", "9000", "6379"),
    "kube2lb/external-domains": (
        "evil.example.com",
        r"~^x[0-9]+\.evil\.example\.com$",
        "a.evil.example.com,b.evil.com",
    ),
    "kube2lb/port-mode": ('{"web": "tcp"}', '{"web": "http"}'),
    "kube2lb/backend-timeout": ('{"web": 500}',),
    f"{_K}web.hostname": ("evil.example.com", "x.evil.example.com", "*.evil.example.com"),
    f"{_K}web.listen-ip": ("*", "0.0.0.0", "::", "192.0.2.10", "192.0.2.11", "2001:db8::10"),
    f"{_K}web.listen-port": ("8080", "443", "80", "9000"),
    f"{_K}web.haproxy-mode": ("http", "tcp"),
    f"{_K}web.use-ssl": ("true", "false"),
    f"{_K}web.ssl-certificate": ("evil.example.com.pem",),
    f"{_K}web.backends-use-ssl": ("true", "false"),
    f"{_K}web.backends-verify-ssl": ("true", "false"),
    f"{_K}web.backends-balance-method": ("roundrobin", "source", "leastconn"),
}
"""Values that a tenant who means no harm writes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One preset with its shipped fragments; ``annotations`` are those that its tenants set."""

    name: str
    annotations: tuple[str, ...]
    victim: Callable[[Random], list[Object]]
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A parsed configuration, and how many objects were refused."""

    config: Config
    text: str
    refused: int


def tenant(scene: Scene, rng: Random, hostility: float, number: int) -> list[Object]:
    """Return one Service of another tenant with its EndpointSlice; a value is hostile with that probability."""

    def pick(kind: str) -> str:
        return rng.choice(HOSTILE) if rng.random() < hostility else rng.choice(SOUND[kind])

    name = pick("name") if rng.random() < 0.3 else f"{pick('name')}{number}"
    annotations = {key: pick(key) for key in scene.annotations if rng.random() < 0.85}
    if rng.random() < hostility:
        annotations[rng.choice(HOSTILE)] = rng.choice(HOSTILE)
    port = pick("port name")
    meta = {
        "name": name,
        "namespace": EVIL if rng.random() > hostility / 4 else rng.choice(HOSTILE[:40]),
        "creationTimestamp": "2026-06-01T00:00:00Z",
        "labels": {f"{_K}enabled": "yes", pick("label"): pick("label")},
        "annotations": annotations,
    }
    protocol = pick("protocol")
    ports: list[dict[str, Any]] = [{"name": port, "port": 80, "nodePort": 30000 + number, "protocol": protocol}]
    if rng.random() < 0.2:
        ports.append({"name": pick("port name"), "port": rng.choice((80, 8080, 443)), "nodePort": 30100 + number})
    spec: dict[str, Any] = {"type": pick("type"), "ports": ports}
    if address := pick("balancer ip"):
        spec["loadBalancerIP"] = address
    endpoint = {
        "addresses": [pick("address")],
        "conditions": {"ready": True},
        "nodeName": pick("node"),
        "zone": pick("zone"),
        "targetRef": {"kind": "Pod", "name": pick("pod")},
    }
    return service(meta, spec, endpoint, port)


def service(meta: dict[str, Any], spec: dict[str, Any], endpoint: dict[str, Any], port: str) -> list[Object]:
    """Return a Service and its EndpointSlice."""
    owner = {
        "name": f"{meta['name']}-a",
        "namespace": meta["namespace"],
        "labels": {"kubernetes.io/service-name": meta["name"]},
    }
    piece = {
        "metadata": owner,
        "addressType": "IPv4",
        "endpoints": [endpoint],
        "ports": [{"name": port, "port": 8080, "protocol": "TCP"}],
    }
    return [(Resource.SERVICES, {"metadata": meta, "spec": spec}), (Resource.ENDPOINTSLICES, piece)]


def _victim(annotations: Mapping[str, Sequence[str]], name: str = "shop") -> Callable[[Random], list[Object]]:
    def make(rng: Random) -> list[Object]:
        meta = {
            "name": name,
            "namespace": VICTIM,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {f"{_K}enabled": "yes"},
            "annotations": {key: rng.choice(values) for key, values in annotations.items()},
        }
        spec = {"type": "NodePort", "ports": [{"name": "web", "port": 80, "nodePort": 31000, "protocol": "TCP"}]}
        endpoint = {
            "addresses": [VICTIM_POD],
            "conditions": {"ready": True},
            "nodeName": "node-9",
            "targetRef": {"kind": "Pod", "name": "shop-1"},
        }
        return service(meta, spec, endpoint, "web")

    return make


def _requests(*ports: int, hosts: Sequence[str] = ("victim.example.com",)) -> tuple[Request, ...]:
    spelled = [text for host in hosts for text in (host, host.upper())]
    return tuple(Request(address, port, host) for address in OWN_ADDRESSES for port in ports for host in spelled)


SCENES = {
    each.name: each
    for each in (
        Scene(
            "domains",
            ("domain", "proto", "pyconfd.io/port", "pyconfd.io/listen-port"),
            _victim({"domain": ("victim.example.com",), "proto": ("http", "https")}),
            _requests(80, 443),
        ),
        Scene(
            "domains-tcp",
            ("domain", "proto", "pyconfd.io/port", "pyconfd.io/listen-port"),
            _victim({"domain": ("victim.example.com",), "proto": ("redis",), "pyconfd.io/listen-port": ("6379",)}),
            _requests(6379),
        ),
        Scene(
            "kubefigurator",
            tuple(key for key in SOUND if key.startswith(_K)),
            _victim(
                {
                    f"{_K}web.hostname": ("victim.example.com",),
                    f"{_K}web.listen-ip": ("*", "192.0.2.10"),
                    f"{_K}web.listen-port": ("443", "8080"),
                    f"{_K}web.use-ssl": ("true", "false"),
                }
            ),
            _requests(443, 8080),
        ),
        Scene(
            "kubefigurator-tcp",
            tuple(key for key in SOUND if key.startswith(_K)),
            _victim(
                {
                    f"{_K}web.haproxy-mode": ("tcp",),
                    f"{_K}web.listen-ip": ("*", "192.0.2.10", "::"),
                    f"{_K}web.listen-port": ("8080",),
                }
            ),
            _requests(8080),
        ),
        Scene(
            "kube2lb",
            ("kube2lb/external-domains", "kube2lb/port-mode", "kube2lb/backend-timeout"),
            _victim({"kube2lb/external-domains": ("victim.example.com",)}),
            _requests(80),
        ),
        Scene(
            "kube2lb-tcp",
            ("kube2lb/external-domains", "kube2lb/port-mode", "kube2lb/backend-timeout"),
            _victim({"kube2lb/port-mode": ('{"web": "tcp"}',)}),
            _requests(80),
        ),
    )
}

_OWN_NETWORKS = tuple(map(ip_network, OWN_ADDRESSES))
RULES = (
    Rule((VICTIM,), addresses=_OWN_NETWORKS),
    Rule(("*",), ("evil.example.com", "evil.com"), addresses=_OWN_NETWORKS),
)
"""Rules that leave the victim everything and its neighbours their own domains."""


def render(scene: Scene, objects: Sequence[Object], *, rules: bool) -> Rendered:
    """Return what the preset and its shipped fragments make of a cluster."""
    preset, renderer, reserved = _renderer(scene.name.removesuffix("-tcp"))
    options = PresetOptions(
        reserved=reserved,
        listen_ports=((1, 65535),),
        own=own_options(KubefiguratorOptions(ssl_dir="/ssl", node_ports=False), Kube2lbOptions(domain="cluster.local")),
        claims=ClaimOptions(RULES if rules else ()),
    )
    context = registry.translate(_snapshot(objects), (preset,), options)
    rendering = renderer.render(context, curdate="").rendering
    files = {file.path: file.content for file in rendering.files}
    return Rendered(parse(rendering.text, files), rendering.text, len(context.refused))


def _snapshot(objects: Sequence[Object]) -> Snapshot:
    found: dict[str, dict[Key, Any]] = {"services": {}, "endpointslices": {}, "nodes": {}}
    nodes: list[Object] = [
        (
            Resource.NODES,
            {
                "metadata": {"name": name},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": address}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        for name, address in (("node-1", "10.9.0.1"), ("node-2", "10.9.0.2"), ("node-9", "10.9.0.9"))
    ]
    for resource, each in (*nodes, *objects):
        record = msgspec.convert(each, RECORD_OF[resource])
        key = Key(record.metadata.namespace or "", record.metadata.name)
        found[resource.field].setdefault(key, record)  # who came first keeps its name, as in an API server
    host = HostFacts(
        addresses=frozenset({"127.0.0.1", "::1", *OWN_ADDRESSES}), certificates=dict.fromkeys(CERTIFICATES, "")
    )
    return Snapshot(services=found["services"], endpointslices=found["endpointslices"], nodes=found["nodes"], host=host)


@cache
def _renderer(scene: str) -> tuple[str, Renderer, Listeners]:
    if scene == "kube2lb":  # it ships no fragments but examples
        example = Path(examples).parent / "kube2lb" / "haproxy" / "haproxy.cfg.tmpl"
        fragments = FragmentSet((Fragment("haproxy.cfg.tmpl", example.read_text()),))
    else:
        fragments = shipped_for(scene)
    renderer = Renderer(fragments, RenderOptions(FILES))
    # As the daemon does it: where the fragments listen for an empty cluster, no object may.
    empty = parse(
        renderer.render(registry.translate(Snapshot(), (scene,), PresetOptions()), curdate="").rendering.text, {}
    )
    binds = [bind for _, found in empty.frontends for bind in found]
    listeners = [Listener.at(bind.address.strip("[]").replace("*", "0.0.0.0"), bind.port) for bind in binds]
    return scene, renderer, NOBODY.with_owner("the fragments", listeners)
