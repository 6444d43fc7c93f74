"""Several presets in one daemon: one Snapshot, one watch of each resource, and nothing is read that none needs."""

import json
from collections import Counter

from pyconfd.predecessors.hosts import CONFIG, MASTER
from tests.world.appliance import Appliance
from tests.world.haproxy import free_port

TEMPLATE = """\
frontend edge
  bind 127.0.0.1:{port}
  mode http
  timeout client 5s
  {{%- for service in services %}}
  http-request return status 200 content-type text/plain string "{{{{ service.pods | join('+') }}}}"
  {{%- endfor %}}
"""
ANNOTATION = """\
frontend targets
  bind 127.0.0.1:{port}
  mode http
  timeout client 5s
  http-request return status 200 content-type text/plain string "{{{{ hosts.web | join('+') }}}}"
"""


def _put_pod(appliance: Appliance, name: str, address: str) -> None:
    status = {
        "phase": "Running",
        "podIP": address,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": True}],
    }
    metadata = {"name": name, "namespace": "demo", "labels": {"app": "web"}, "annotations": {MASTER: "haproxy"}}
    appliance.cluster.put("pods", {"metadata": metadata, "spec": {}, "status": status})


def _put_config_map(appliance: Appliance, name: str, data: dict[str, str]) -> None:
    appliance.cluster.put("configmaps", {"metadata": {"name": name, "namespace": "lb"}, "data": data})


def test_they_share_one_snapshot_and_one_set_of_watches(appliance: Appliance) -> None:
    first, second = free_port(), free_port()
    for namespace in ("lb", "demo", "default"):
        appliance.cluster.add_namespace(namespace)
    appliance.serve("shop")
    _put_pod(appliance, "web-1", "10.0.0.1")
    entry = {"namespace": "demo", "selector": {"app": "web"}}
    _put_config_map(appliance, "services", {"web": json.dumps(entry)})
    _put_config_map(appliance, "config", {"template": TEMPLATE.format(port=first)})
    _put_config_map(appliance, "unread", {"x": "y"})
    metadata = {"name": "haproxy", "namespace": "default", "annotations": {CONFIG: ANNOTATION.format(port=second)}}
    appliance.cluster.put("deployments", {"metadata": metadata, "spec": {"template": {"metadata": {}}}})
    appliance.values["presets"] |= {"use": ["domains", "configmap", "hosts"]}
    appliance.values["hosts"] = {"master": "haproxy", "config": "deployment/default/haproxy"}
    appliance.values["cluster_templates"] = {"allow_configuration_from_cluster": True}
    appliance.start()
    text = appliance.haproxy.conf.read_text
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "domains serves")
    assert 'string "web-1"' in text()
    assert 'string "10.0.0.1"' in text()

    # One change of one pod reaches both presets; each of their templates is applied as soon as it is rendered.
    appliance.until(appliance.settled, "the first generation is applied")
    before = appliance.generation
    _put_pod(appliance, "web-2", "10.0.0.2")
    appliance.until(lambda: 'string "web-1+web-2"' in text(), "configmap follows")
    assert 'string "10.0.0.1+10.0.0.2"' in text()
    appliance.until(appliance.settled, "all is applied")
    assert before < appliance.generation <= before + 2

    server = appliance.servers[0]
    kinds = ("services", "endpointslices", "endpoints", "nodes", "pods", "configmaps", "secrets", "deployments")
    wanted = dict.fromkeys(kinds, 1) | {"configmaps": 3}
    # Each watch is asked for when its own list has come.
    appliance.until(lambda: {kind: server.watches(kind) for kind in kinds} == wanted, "each resource is watched")
    assert server.watches() == sum(wanted.values())
    listed = Counter(each.resource for each in server.seen(verb="list"))
    assert {kind: listed[kind] for kind in ("pods", "secrets", "deployments")} == {
        "pods": 1,
        "secrets": 1,
        "deployments": 1,
    }
