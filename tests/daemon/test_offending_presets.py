"""A bad object of each preset is left out, whatever the template calls it; all others of that preset are served."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.daemon.quarantine import LeftOut
from pyconfd.daemon.translation import Translator
from pyconfd.model.kubernetes import EndpointPort, ServicePort
from pyconfd.model.outcome import Applied
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.predecessors.hosts import MASTER, HostsOptions
from pyconfd.presets.origins import ObjectOrigin
from pyconfd.presets.preset import PresetOptions, own_options
from tests.daemon.test_offending import Judging, run, service
from tests.presets import kubefigurator, objects, pods

pytestmark = pytest.mark.haproxy

NAMES = ("apple", "bad", "cherry", "date")
NODE_PORTS = PresetOptions(node_ports=True)


def of_domains() -> Snapshot:
    found: list[objects.Named] = []
    for number, name in enumerate(NAMES, start=1):
        notes = {"domain": f"{name}.example.com", "proto": "http"}
        found += [objects.service(name, notes), objects.slice_(name, objects.endpoint(f"192.0.2.{number}"))]
    return objects.snapshot(*found)


def of_endpoints() -> Snapshot:
    found: list[objects.Named] = []
    for number, name in enumerate(NAMES, start=1):
        notes = {"domain": f"{name}.example.com", "proto": "http"}
        found += [objects.endpoints(name, notes, objects.subset(f"192.0.2.{number}"))]
    return objects.snapshot(*found)


def of_kube2lb() -> Snapshot:
    found: list[objects.Named] = []
    for number, name in enumerate(NAMES, start=1):
        ports = (ServicePort("web", 8000 + number, "web", 30000 + number),)
        found += [
            objects.service(name, ports=ports, type_="LoadBalancer"),
            objects.slice_(name, objects.endpoint(f"192.0.2.{number}"), ports=(EndpointPort("web", 8080, "TCP"),)),
        ]
    return objects.snapshot(*found)


def of_kubefigurator() -> Snapshot:
    found: list[objects.Named] = []
    for name in NAMES:
        found += [kubefigurator.labelled(name, kubefigurator.web("web", f"{name}.example.com", listen_port="8080"))]
        found += [objects.slice_(name, objects.endpoint("192.0.2.1"), ports=(EndpointPort("web", 8080, "TCP"),))]
    return objects.snapshot(*found, *kubefigurator.NODES)


def of_configmap() -> Snapshot:
    entries = {
        name: json.dumps({"namespace": "demo", "selector": {"app": name}, "hostnames": [f"{name}.example.com"]})
        for name in NAMES
    }
    targets = [pods.pod(f"{name}-1", f"192.0.2.{n}", {"app": name}) for n, name in enumerate(NAMES, start=1)]
    return pods.snapshot(pods.config_map("services", entries), *targets)


def of_hosts() -> Snapshot:
    targets = [
        pods.pod(f"{name}-{n}", f"192.0.2.{n}", {"app": name}, namespace="demo", annotations={MASTER: "me"})
        for name in NAMES
        for n in (1, 2)
    ]
    return pods.snapshot(*targets)


BY_DOMAIN = """{% for domain, items in domains.items() %}
backend be-{{ items.name }}
    balance {{ 'nonsense' if domain.startswith('bad.') else 'roundrobin' }}
{% endfor %}
"""
BY_SERVICE = """{% for entry in services %}
backend be-{{ entry.name }}
    balance {{ 'nonsense' if entry.name == 'bad' else 'roundrobin' }}
{% endfor %}
"""
BY_PORT = """{% for port, entries in by_port %}
backend be-{% for entry in entries %}{{ entry.name }}{% endfor %}

    balance {{ 'nonsense' if port.port == 8002 else 'roundrobin' }}
{% endfor %}
"""
BY_ROUTE = """{% for listener in listeners %}
frontend in-{{ listener.name }}
    bind 127.0.0.1:{{ listener.port + 10000 }}
{% for route in listener.routes %}
    use_backend be-{{ route.hostname }} if { {{ 'nonsense' if 'bad' in route.hostname else 'always_true' }} }
{% endfor %}
{% for route in listener.routes %}
backend be-{{ route.hostname }}
{% endfor %}
{% endfor %}
"""
JOINED = """{% for listener in listeners %}
backend of-{{ listener.name }}
    # {{ 1 // (0 if listener.routes | map(attribute='hostname') | select('equalto', 'bad.example.com') | list else 1) }}
{% for route in listener.routes %}
backend be-{{ route.hostname }}
{% endfor %}
{% endfor %}
"""
"""It fails for a whole listener, with whose routes nothing else is wrong."""

BY_BACKEND = """{% for backend in backends %}
backend be-{{ backend.service }}
    balance {{ 'nonsense' if backend.service == 'bad' else backend.balance }}
{% endfor %}
"""
BY_APP = """{% for app, addresses in hosts.items() %}
backend be-{{ app }}
    # {{ 10 // (0 if app == 'bad' else 1) }}
{% endfor %}
"""

CONFIGMAP = ObjectOrigin(Resource.CONFIGMAPS, Key("lb", "services"), "bad")
PODS = {ObjectOrigin(Resource.PODS, Key("demo", f"bad-{n}")) for n in (1, 2)}
HOSTS = PresetOptions(own=own_options(HostsOptions(master="me")))


@pytest.mark.parametrize(
    ("preset", "found", "template", "options", "culprits"),
    [
        pytest.param("domains", of_domains(), BY_DOMAIN, PresetOptions(), {service("bad")}, id="domains"),
        pytest.param("domains", of_endpoints(), BY_DOMAIN, PresetOptions(), {service("bad")}, id="endpoints"),
        pytest.param("kube2lb", of_kube2lb(), BY_SERVICE, PresetOptions(), {service("bad")}, id="kube2lb"),
        pytest.param("kube2lb", of_kube2lb(), BY_PORT, PresetOptions(), {service("bad")}, id="kube2lb ports"),
        pytest.param("kubefigurator", of_kubefigurator(), BY_BACKEND, NODE_PORTS, {service("bad")}, id="kubefigurator"),
        pytest.param("kubefigurator", of_kubefigurator(), BY_ROUTE, NODE_PORTS, {service("bad")}, id="routes"),
        pytest.param("kubefigurator", of_kubefigurator(), JOINED, NODE_PORTS, {service("bad")}, id="a whole listener"),
        pytest.param("configmap", of_configmap(), BY_SERVICE, PresetOptions(), {CONFIGMAP}, id="configmap"),
        pytest.param("hosts", of_hosts(), BY_APP, HOSTS, PODS, id="hosts"),
    ],
)
def test_just_the_bad_object_is_left_out(
    tmp_path: Path, preset: str, found: Snapshot, template: str, options: PresetOptions, culprits: set[ObjectOrigin]
) -> None:
    balancer = Judging(tmp_path)
    done = run(balancer, found, template, translator=Translator((preset,), options))
    assert isinstance(done.outcome, Applied)
    assert done.search is not None
    assert set(done.search.offending) == culprits
    backends = re.findall(r"^backend be-(\S+)", balancer.disk.conf or "", re.MULTILINE)
    served = {name.partition(".")[0] for name in backends}
    assert served == set(NAMES) - {"bad"}


def test_two_presets_agree_on_who_is_left_out(tmp_path: Path) -> None:
    balancer = Judging(tmp_path)
    everybody = "{% for each in cluster.services %}\nbackend all-{{ each.name }}\n{% endfor %}\n"
    done = run(balancer, of_domains(), BY_DOMAIN, everybody, translator=Translator(("domains", "kube2lb")))
    assert isinstance(done.outcome, Applied)
    assert "apple" in (balancer.disk.conf or "")
    assert "bad" not in (balancer.disk.conf or "")


def test_nothing_is_copied_where_nothing_is_left_out() -> None:
    found = of_domains()
    assert LeftOut(found).rest() is found


def test_what_did_not_change_stays_the_same_object() -> None:
    found = of_domains()
    left_out = LeftOut(found, {service("bad"): None})  # type: ignore[dict-item]
    first = left_out.rest()
    moved = replace(left_out, snapshot=replace(found, endpointslices=dict(found.endpointslices))).rest()
    assert Key("demo", "bad") not in first.services
    assert moved.services is first.services
