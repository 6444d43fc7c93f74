"""One object whose every value can be replaced, read by every preset and rendered by every shipped template."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyconfd.examples import __file__ as examples
from pyconfd.fragments import directory
from pyconfd.haproxy.config.text import parse
from pyconfd.model.context import Context
from pyconfd.model.kubernetes import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectRef,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
    TargetRef,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import Fragment, FragmentSet, OutputFile, Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.predecessors import allowed
from pyconfd.predecessors.configmap import ConfigmapOptions
from pyconfd.predecessors.hosts import CONFIG, ROUTE53, HostsOptions
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.addresses import ADDRESSES_ANNOTATION, SHARING_ANNOTATION, AddressOptions
from pyconfd.presets.annotations import OWN_ANNOTATIONS, OWN_PREFIX
from pyconfd.presets.certificates import TLS, TlsOptions
from pyconfd.presets.loadbalancer import PROXY_PROTOCOL
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render.cluster_templates import TemplateFault, render
from pyconfd.render.engine import Renderer, RenderOptions
from tests.fragments import python_confd
from tests.fragments.shipped import shipped_for
from tests.presets.pods import certificate, config_map, pod, secret

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = "/files"
GONE = "\0gone"
"""Stands for a value that is left out, or an object that is."""

_K = "haproxy-kubefigurator."
BENIGN: dict[str, str] = {
    "service.name": "victim",
    "service.namespace": "demo",
    "service.type": "LoadBalancer",
    "service.port name": "web",
    "service.port protocol": "TCP",
    "service.load balancer ip": GONE,
    "service.source range": "192.0.2.0/24",
    "service.label key": "tier",
    "service.label value": "web",
    "service.annotation key": "owner",
    "service.annotation value": "team-a",
    "annotation domain": "victim.example.com",
    "annotation proto": "http",
    **{f"annotation {OWN_PREFIX}{name}": GONE for name in sorted(OWN_ANNOTATIONS["Service"])},
    "annotation pyconfd.io/port": "web",
    f"annotation {PROXY_PROTOCOL}": "v1",
    "annotation kube2lb/external-domains": "victim.example.com",
    "annotation kube2lb/port-mode": GONE,
    "annotation kube2lb/backend-timeout": GONE,
    f"annotation {_K}web.hostname": "victim.example.com",
    f"annotation {_K}web.listen-ip": "*",
    f"annotation {_K}web.listen-port": "8080",
    f"annotation {_K}web.haproxy-mode": "http",
    f"annotation {_K}web.use-ssl": "false",
    f"annotation {_K}web.ssl-certificate": GONE,
    f"annotation {_K}web.backends-use-ssl": "false",
    f"annotation {_K}web.backends-verify-ssl": "false",
    f"annotation {_K}web.backends-balance-method": "roundrobin",
    "endpoint.address": "10.0.0.1",
    "endpoint.pod": "victim-1",
    "endpoint.node": "node-1",
    "endpoint.zone": "zone-1",
    "node.name": "node-1",
    "node.address": "10.0.1.1",
    "node.zone": "zone-1",
    "configmap.key": "victim",
    "configmap.namespace": "demo",
    "configmap.hostname": "victim.example.com",
    "configmap.path": GONE,
    "configmap.selector key": "app",
    "configmap.selector value": "victim",
    "configmap.extra key": "team",
    "configmap.extra value": "a",
    "configmap.certificate": "victim",
    "pod.name": "victim-1",
    "pod.app": "victim",
    "pod.address": "10.0.0.1",
    "route53": "victim.example.com",
}

_DOMAINS = ("*.example.com", "2001:db8::1", "10.9.9.9")
_PROTOCOLS = ("https", "redis", "postgres")
OTHER: Mapping[str, tuple[str, ...]] = {
    "annotation domain": _DOMAINS,
    f"annotation {OWN_PREFIX}domain": _DOMAINS,
    "annotation proto": _PROTOCOLS,
    f"annotation {OWN_PREFIX}proto": _PROTOCOLS,
    "annotation pyconfd.io/tls-secret": ("tls", "other"),
    "annotation kube2lb/external-domains": (r"~^a\.example\.com$", "~^a$,b.example.com", "", "a.b,c.d"),
    "annotation kube2lb/port-mode": ('{"web": "tcp"}',),
    "annotation kube2lb/backend-timeout": ('{"web": 500}',),
    f"annotation {_K}web.hostname": ("*.example.com", "2001:db8::1"),
    f"annotation {_K}web.haproxy-mode": ("tcp",),
    f"annotation {_K}web.use-ssl": ("true",),
    f"annotation {_K}web.backends-use-ssl": ("true",),
    f"annotation {_K}web.backends-verify-ssl": ("true",),
    f"annotation {_K}web.backends-balance-method": ("uri", "source"),
    f"annotation {_K}web.listen-ip": ("0.0.0.0", "::"),
    "endpoint.address": ("2001:db8::1",),
    "pod.address": ("2001:db8::1",),
    "pod.app": ("fine",),
    "node.address": ("2001:db8::1",),
    "configmap.hostname": ("^a$",),
    "configmap.path": ("/a", "^/a$"),
    "service.load balancer ip": ("2001:db8::1",),
    "service.source range": ("2001:db8::/32", GONE),
    f"annotation {PROXY_PROTOCOL}": ("v2",),
    f"annotation {ADDRESSES_ANNOTATION}": ("198.51.100.1", "198.51.100.1,198.51.100.2"),
    "service.type": ("NodePort", "ClusterIP"),
}
"""Values of the same field that are sound too and give another structure."""


def snapshot(given: Mapping[str, str], *, victim: bool = True) -> Snapshot:
    """Return a cluster with one object of these values (``victim``) and one beside it."""
    return _snapshot([BENIGN | dict(given)] if victim else [])


def crowd(pairs: Iterable[tuple[str, str]]) -> Snapshot:
    """Return a cluster with an object for each field and its value, and one beside them."""
    found = []
    for number, (field, value) in enumerate(pairs):
        own = {name: text.replace("victim", f"v{number}") for name, text in BENIGN.items()}
        found.append(own | {"pod.address": f"10.0.3.{number}", "endpoint.address": f"10.0.3.{number}"} | {field: value})
    return _snapshot(found)


def _snapshot(objects: Iterable[Mapping[str, str]]) -> Snapshot:
    services, slices, nodes, pods = {}, {}, {}, {}
    entries, chains, keys = {}, {}, {}
    last: Mapping[str, str] = BENIGN
    for each in (*objects, _bystander()):
        service, piece = _service(each)
        services[Key(service.metadata.namespace, service.metadata.name)] = service
        slices[Key(piece.metadata.namespace, piece.metadata.name)] = piece
        labels = {"app": each["pod.app"], "tier": "web"}
        pods[Key("demo", each["pod.name"])] = pod(each["pod.name"], each["pod.address"], labels, namespace="demo")
        entries[each["configmap.key"]] = _entry(each)
        chains[each["configmap.certificate"]] = certificate("a")[1]
        keys[each["configmap.certificate"]] = certificate("a")[0]
        if each is not _bystander():
            nodes[Key("", each["node.name"])] = _node(each)
            last = each
    maps = {"services": entries, "certificates": chains, "config": {"template": "{{ services }}"}}
    balancer = pod("lb", "10.0.2.1", {"app": "lb"}, annotations={CONFIG: "x", ROUTE53: last["route53"]})
    return Snapshot(
        services=services,
        endpointslices=slices,
        nodes=nodes or {Key("", "node-1"): _node(BENIGN)},
        pods={**pods, Key("demo", "lb"): balancer},
        config_maps={Key("lb", name): config_map(name, data) for name, data in maps.items()},
        secrets={Key("lb", "keys"): secret("keys", keys), Key("demo", "tls"): _tls_secret()},
    )


@cache
def _tls_secret() -> Secret:
    pair = dict(zip(("tls.key", "tls.crt"), certificate("a"), strict=True))
    made = secret("tls", pair, "demo")
    return Secret(made.metadata, TLS, made.data)


@cache
def _bystander() -> dict[str, str]:
    return {name: value.replace("victim", "fine").replace("10.0.0.1", "10.0.0.9") for name, value in BENIGN.items()}


def _service(values: Mapping[str, str]) -> tuple[Service, EndpointSlice]:
    namespace, name = values["service.namespace"], values["service.name"]
    notes = {key.removeprefix("annotation "): text for key, text in values.items() if key.startswith("annotation ")}
    notes[values["service.annotation key"]] = values["service.annotation value"]
    labels = {values["service.label key"]: values["service.label value"], f"{_K}enabled": "yes"}
    meta = ObjectMeta(
        name, namespace, creation_timestamp="2026-01-01T00:00:00Z", labels=labels, annotations=_given(notes)
    )
    port = ServicePort(values["service.port name"], 80, 8080, 30080, values["service.port protocol"])
    address = values["service.load balancer ip"]
    sources = values["service.source range"]
    spec = ServiceSpec(
        (port,),
        values["service.type"],
        load_balancer_ip=None if address == GONE else address,
        load_balancer_source_ranges=None if sources == GONE else (sources,),
    )
    target = TargetRef("Pod", values["endpoint.pod"])
    one = Endpoint(
        (values["endpoint.address"],),
        EndpointConditions(True),
        values["endpoint.node"],
        target,
        values["endpoint.zone"],
    )
    owner = ObjectMeta(f"{name}-a", namespace, labels={"kubernetes.io/service-name": name})
    ports = (EndpointPort(values["service.port name"], 8080, "TCP"),)
    return Service(meta, spec), EndpointSlice(owner, "IPv4", (one,), ports)


def _given(values: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in values.items() if text != GONE and key != GONE}


def _node(values: Mapping[str, str]) -> Node:
    labels = {"topology.kubernetes.io/zone": values["node.zone"]}
    status = NodeStatus((NodeAddress("InternalIP", values["node.address"]),), (NodeCondition("Ready", "True"),))
    return Node(ObjectMeta(values["node.name"], labels=labels), NodeSpec(), status)


def _entry(values: Mapping[str, str]) -> str:
    fields: dict[str, Any] = {
        "namespace": values["configmap.namespace"],
        "selector": {values["configmap.selector key"]: values["configmap.selector value"]},
        "hostnames": [values["configmap.hostname"]],
        "ports": [80],
        "path": values["configmap.path"],
        values["configmap.extra key"]: values["configmap.extra value"],
    }
    return json.dumps({name: item for name, item in fields.items() if GONE not in (name, item)})


OPTIONS = PresetOptions(
    listen_ports=((1, 65535),),
    addresses=AddressOptions(tuple(f"198.51.100.{number}" for number in range(1, 255)), default_class=True),
    own=own_options(
        KubefiguratorOptions(ssl_dir="/ssl"),
        Kube2lbOptions(domain="cluster.local"),
        ConfigmapOptions(ssldir=f"{FILES}/certs", stats_password="pw", env={"VARNISH_SECRET": "vs"}),
        HostsOptions(selector={"tier": "web"}, config=ObjectRef("Pod", "demo", "lb"), own_app="lb"),
    ),
    tls=TlsOptions(f"{FILES}/secrets", ("*",)),
    cluster_templates=True,
)

RAW = """
frontend raw
    mode http
    bind 127.0.0.1:81
{% for s in cluster.services %}
    acl is_{{ s.namespace }}_{{ s.name }} hdr(x) {{ s.namespace }} {{ s.name }} {{ s.kind | default('') }}x
{% for key, value in s.labels.items() %}
    http-request set-header x-{{ key | replace('/', '-') }} {{ value }} if { hdr(x) {{ key }} } { hdr(x) {{ value }} }
    http-request deny if { path {{ value }} } !{ path {{ key }} }
{% endfor %}
{% for key, value in s.annotations.items() %}
    http-request deny if { path {{ value }} } || { path {{ key }} }
{% endfor %}
{% for p in s.ports %}
    acl p hdr(x) {{ p.name or 'none' }} {{ p.protocol or 'none' }}
{% for e in p.endpoints %}
    acl e hdr(x) {{ e.address }} {{ e.pod or 'none' }} {{ e.node or 'none' }} {{ e.zone or 'none' }} {{ e.family }}
{% endfor %}
{% endfor %}
{% endfor %}
{% for n in cluster.nodes %}
    acl n hdr(x) {{ n.name }} {{ n.zone or 'none' }}
{% for kind, address in n.addresses %}
    acl a hdr(x) {{ kind }} {{ address }}
{% endfor %}
{% endfor %}
"""
"""Prints all of the raw view, in conditions too."""

_BIND = "frontend always\n    mode http\n    bind 127.0.0.1:82\n"


def _fragments(*more: Fragment, files: tuple[Fragment, ...] = ()) -> Renderer:
    variables = {"http_bind": "127.0.0.1:80", "https_bind": "127.0.0.1:443", "stats_bind": "127.0.0.1:8404"}
    return Renderer(FragmentSet(more, files), RenderOptions(FILES, variables=variables))


def _shipped(*presets: str, only: str = "") -> Renderer:
    """Return the shipped fragments of presets, or just the named one of them with the defaults."""
    shipped = shipped_for(*presets)
    wanted = [each for each in shipped.fragments if not only or each.name in {"01-defaults.conf", only}]
    return _fragments(*wanted, files=shipped.includable)


def _kube2lb() -> Renderer:
    example = Path(examples).parent / "kube2lb" / "haproxy" / "haproxy.cfg.tmpl"
    return _fragments(Fragment("haproxy.cfg.tmpl", example.read_text()))


def _raw_view() -> Renderer:
    defaults = Fragment("01-defaults.conf", (Path(directory()) / "01-defaults.conf").read_text())
    return _fragments(defaults, Fragment("raw.tmpl", RAW))


@dataclass(frozen=True, slots=True)
class SmugglingScene:
    """A preset with fragments, or with a template of the cluster; ``fields`` are prefixes of what can reach them."""

    preset: str
    fields: tuple[str, ...]
    fragments: Callable[[], Renderer] | None = None
    template: Path | None = None


_OBJECT = ("service.", "endpoint.")
_OF_DOMAINS = (*_OBJECT, "annotation domain", "annotation proto", f"annotation {OWN_PREFIX}")
_OF_LOADBALANCERS = tuple(f"annotation {name}" for name in (PROXY_PROTOCOL, ADDRESSES_ANNOTATION, SHARING_ANNOTATION))
SCENES: Mapping[str, SmugglingScene] = {
    "shipped": SmugglingScene("domains", _OF_DOMAINS, lambda: _shipped("domains")),
    "loadbalancer": SmugglingScene(
        "loadbalancer",
        (*_OBJECT, *_OF_LOADBALANCERS),
        lambda: _shipped("loadbalancer", only="09-loadbalancer.tmpl"),
    ),
    "python-confd": SmugglingScene("domains", _OF_DOMAINS, lambda: _fragments(*python_confd.fragments())),
    "kubefigurator": SmugglingScene(
        "kubefigurator", (*_OBJECT, "node.", f"annotation {_K}"), lambda: _shipped("kubefigurator")
    ),
    "kube2lb": SmugglingScene("kube2lb", (*_OBJECT, "annotation kube2lb/"), _kube2lb),
    "raw view": SmugglingScene("domains", (*_OBJECT, "node.", "annotation domain"), _raw_view),
    "configmap": SmugglingScene("configmap", ("configmap.", "pod."), template=GOLDEN / "configmap" / "template.j2"),
    "hosts": SmugglingScene("hosts", ("pod.", "route53"), template=GOLDEN / "hosts" / "readme-http.j2"),
}


def fields_of(scene: str) -> list[str]:
    """Return the fields that can reach the templates of a scene."""
    return sorted(name for name in BENIGN if name.startswith(SCENES[scene].fields))


@cache
def _renderer(scene: str) -> Renderer:
    fragments = SCENES[scene].fragments
    assert fragments is not None
    return fragments()


def rendered(scene: str, seen: Snapshot) -> tuple[Rendering, Context]:
    """Return what a scene's templates make of a Snapshot."""
    context = registry.translate(seen, (SCENES[scene].preset,), OPTIONS)
    template = SCENES[scene].template
    if template is None:
        return _renderer(scene).render(context, curdate="").rendering, context
    made = render(template.read_text(), dict(context.names), {}, 10_000_000)
    assert not isinstance(made, TemplateFault), made
    judged = allowed.judge("t", made, allowed.Boundaries((f"{FILES}/certs",), (), frozenset()))
    only_files = Context({}, files=context.files)
    return _fragments(Fragment("x.conf", judged.text)).render(only_files, curdate="").rendering, context


Shape = tuple[Any, ...]
_SPECIAL = frozenset({"if", "unless", "or", "||", "{", "}", "!", "or!", "&&"})
_VARIABLE = re.compile(r"\$[A-Za-z_{]")
_BALANCE = re.compile(
    r"(?:roundrobin|static-rr|leastconn|first|source|random(?:\(\d+\))?|rdp-cookie(?:\([\w-]+\))?"
    r"|uri(?: (?:whole|path-only|len \d+|depth \d+))*|url_param [\w-]+(?: check_post)?"
    r"|hdr\([\w-]+\)(?: use_domain_only)?)"
)


def shape(rendering: Rendering) -> Shape:
    """Return all of a configuration but the words that are values: sections, keywords, conditions, counts."""
    return _shape(rendering.text, rendering.files)


@lru_cache(maxsize=256)
def _shape(text: str, output: tuple[OutputFile, ...]) -> Shape:
    # Most hostile values are refused, so that most configurations are the same.
    sections = []
    for section in parse(text):
        lines = tuple(_line(line.words, line.raw) for line in section.lines)
        name = bool(section.name)
        sections.append((section.keyword, name, section.options, lines))
    comments = sum(line.lstrip().startswith("#") for line in text.split("\n"))
    files = tuple(
        (file.path, tuple(sorted(_entry_shape(line) for line in file.content.split("\n"))))
        for file in output
        if not file.path.endswith(".pem")
    )
    return (tuple(sorted(map(_sortable, sections))), comments, files)


def _sortable(section: Any) -> tuple[str, Any]:
    return repr(section), section


def _line(words: tuple[str, ...], raw: str) -> tuple[Any, ...]:
    if words[0] == "balance" and _BALANCE.fullmatch(" ".join(words[1:])):
        return ("balance",)
    special = tuple((at, word) for at, word in enumerate(words) if word in _SPECIAL)
    flags = tuple((at, word) for at, word in enumerate(words) if word.startswith("-") and len(word) < 4)
    marks = (*(raw.count(mark) for mark in ("%", '"', "'", "#")), len(_VARIABLE.findall(raw)))
    return (words[0], len(words), special, flags, marks)


def _entry_shape(line: str) -> int:
    return len(line.split())


def refused_objects(context: Context) -> set[str]:
    """Return the kinds and names of what was refused."""
    return {f"{each.ref.kind} {each.ref.name}" for each in context.refused}


@cache
def sound_shapes(scene: str, field: str) -> frozenset[Shape]:
    """Return the structures that sound values of a field have, or its absence, or that of its object."""
    variants: list[Callable[[], Snapshot]] = [lambda: snapshot({}), lambda: snapshot({}, victim=False)]
    texts = [*OTHER.get(field, ()), *((GONE,) if field in _LEFT_OUT else ())]
    variants += [lambda text=text: snapshot({field: text}) for text in texts]  # type: ignore[misc]
    variants += [lambda: snapshot({"endpoint.address": "none"}), lambda: snapshot({"pod.address": "none"})]
    variants += [lambda: snapshot({"node.address": "none"}), lambda: snapshot({"configmap.certificate": "-"})]
    variants += [lambda: snapshot({"service.label key": "-"}), lambda: snapshot({"service.annotation key": "- -"})]
    variants += [lambda: snapshot({"service.port name": "- -"}), lambda: snapshot({"node.name": "- -"})]
    variants += [lambda: snapshot({"configmap.key": "- -"}), lambda: snapshot({"pod.app": "- -"})]
    return frozenset(shape(rendered(scene, make())[0]) for make in variants)


_LEFT_OUT = frozenset(name for name in BENIGN if name.startswith("annotation ") or name == "configmap.path")
