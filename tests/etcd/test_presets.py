"""Producers of presets whose configuration is not made of shipped fragments alone, and what they leave unpublished."""

import json
from pathlib import Path

import pytest

from pyconfd.fragments import of_presets
from tests.etcd.stage import LightConsumer, Stage, wait_for
from tests.world.clients import ask
from tests.world.etcd import BINARY as ETCD
from tests.world.haproxy import BINARY as HAPROXY
from tests.world.haproxy import free_port
from tests.world.objects import PortSpec

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not Path(ETCD).exists() or not Path(HAPROXY).exists(), reason="no etcd or no haproxy binary"),
]

TEMPLATE = """\
global
    maxconn 1000
defaults
    mode http
    timeout connect 5000
    timeout client 50000
    timeout server 50000
frontend http
    bind 127.0.0.1:@PORT@
{%- for service in services %}
    use_backend {{ service.name }} if { hdr(host) -i {{ service.hostnames[0] }} }
{%- endfor %}
{%- for service in services %}
backend {{ service.name }}
{%- for pod in service.pods.itervalues() %}
    server {{ pod.metadata.name }} {{ pod.status.podIP }}:{{ service.ports[0] }}
{%- endfor %}
{%- endfor %}
"""
SHOP = "shop.example.com"


def run_pod(stage: Stage, name: str, address: str) -> None:
    stage.pods.add(name, address)
    status = {
        "phase": "Running",
        "podIP": address,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": True}],
    }
    metadata = {"name": name, "namespace": "demo", "labels": {"app": "shop"}}
    stage.cluster.put("pods", {"metadata": metadata, "spec": {}, "status": status})


def config_map(stage: Stage, name: str, **data: str) -> None:
    stage.cluster.put("configmaps", {"metadata": {"name": name, "namespace": "lb"}, "data": data})


def test_a_template_from_the_cluster_needs_no_fragment(stage: Stage, tmp_path: Path) -> None:
    template = TEMPLATE.replace("@PORT@", str(stage.http))
    for namespace in ("demo", "lb"):
        stage.cluster.add_namespace(namespace)
    run_pod(stage, "shop-1", "127.19.6.1")
    entry = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": [SHOP], "ports": [stage.pods.port]}
    config_map(stage, "services", shop=json.dumps(entry))
    config_map(stage, "config", template=template)
    fragments = tmp_path / "fragments"
    fragments.mkdir()
    stage.fragments = str(fragments)
    stage.producer_settings = {
        "presets": {"use": ["configmap"]},
        "cluster_templates": {"allow_configuration_from_cluster": True},
    }
    haproxy = stage.balancer("balancer")
    producer, consumer = stage.configure("producer"), stage.configure("consumer", haproxy)

    stage.start("consume", consumer)
    stage.start("publish", producer)
    wait_for(haproxy.conf.exists, lambda: stage.log(producer) + stage.log(consumer))
    haproxy.start()
    wait_for(lambda: ask(stage.http, SHOP) == "shop-1", lambda: stage.log(consumer))

    run_pod(stage, "shop-2", "127.19.6.2")
    stage.cluster.delete("pods", "demo", "shop-1")
    wait_for(lambda: ask(stage.http, SHOP) == "shop-2", lambda: stage.log(producer) + stage.log(consumer))
    # Both may have served for a while: what comes next is published when the former one is gone.
    wait_for(lambda: "127.19.6.1:" not in haproxy.conf.read_text(), lambda: stage.log(producer) + stage.log(consumer))

    # What a stranger may write is judged before it is published.
    published = stage.etcd.ctl("get", "/pyconfd/current", "--print-value-only").stdout
    config_map(stage, "config", template=template.replace("maxconn 1000", "lua-load /tmp/x.lua"))
    told = "the directive 'lua-load' is not allowed in text from the cluster"
    wait_for(lambda: told in " ".join(stage.status(producer)["problems"]), lambda: stage.log(producer))
    assert stage.etcd.ctl("get", "/pyconfd/current", "--print-value-only").stdout == published
    config_map(stage, "config", template=template.replace("maxconn 1000", "maxconn 2000"))
    wait_for(lambda: "maxconn 2000" in haproxy.conf.read_text(), lambda: stage.log(producer) + stage.log(consumer))


def test_a_certificate_that_only_the_balancers_have_is_not_missing(stage: Stage, tmp_path: Path) -> None:
    prefix = "haproxy-kubefigurator."
    options = {"hostname": SHOP, "listen-port": str(stage.https), "listen-ip": "127.0.0.1"}
    stage.cluster.add_node("node-1", "127.19.7.1")
    stage.cluster.add_service(
        "demo",
        "shop",
        ports=[PortSpec("web", 443, 8443, node_port=free_port())],
        annotations={f"{prefix}web.{option}": value for option, value in options.items()},
        labels={f"{prefix}enabled": "yes"},
        type="NodePort",
    )
    fragments, ssl_dir = tmp_path / "fragments", tmp_path / "ssl"
    for folder in (fragments, ssl_dir):
        folder.mkdir()
    for name, path in of_presets(["kubefigurator"]).items():
        (fragments / name).write_bytes(path.read_bytes())
    stage.fragments = str(fragments)
    stage.producer_settings = {
        "presets": {"use": ["kubefigurator"]},
        "kubefigurator": {"ssl_dir": str(ssl_dir), "listen_ports": ["1024-65535"]},
    }
    producer = stage.configure("producer")
    once = stage.run("publish", "--once", "--config", str(producer))
    assert once.returncode == 0, once.stderr
    with LightConsumer(stage.etcd, stage.folder / "light") as light:
        # The consumer has no certificate either and binds nothing, but the host came with what was published.
        host = f"if {{ hdr(host) -i {SHOP} }}"
        wait_for(lambda: host in light.text(), lambda: f"{light.status()}\n{light.text()}")
        text = light.text()
        stage.start("publish", producer)
        wait_for(lambda: stage.status(producer).get("phase") == "serving", lambda: stage.log(producer))
        assert light.text() == text
    assert stage.status(producer)["generation"]["number"] == 1


def test_targets_are_not_published_and_it_is_said(stage: Stage) -> None:
    stage.service("shop", "127.19.8.1")
    producer = stage.configure("producer")
    target = {"name": "edge", "template": "/t/edge.tpl", "output": f"{stage.folder}/edge", "notify": "debug:"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in target.items()]
    producer.write_text(producer.read_text() + "\n".join(["[[targets]]", *lines]) + "\n")
    once = stage.run("publish", "--once", "--config", str(producer))
    assert once.returncode == 0
    assert "it does nothing for edge" in once.stderr
    stage.start("publish", producer)
    wait_for(lambda: "it does nothing for edge" in stage.log(producer), lambda: stage.log(producer))
    wait_for(lambda: stage.status(producer).get("phase") == "serving", lambda: stage.log(producer))
    assert stage.status(producer)["targets"] == []
