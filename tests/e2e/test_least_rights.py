"""What pyconfd rbac prints is enough for everything that is in use by default, and nothing of it is unused."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.expect import all_is_well, complaints, serving
from tests.e2e.test_gateway_api_comes_and_goes import ADDRESS, OBJECTS
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.objects import PortSpec
from tests.world.ports import service_port
from tests.world.rbac import Rules

pytestmark = pytest.mark.haproxy

POOL = (ADDRESS, "127.0.0.72")
INGRESS = """
kind: IngressClass
apiVersion: networking.k8s.io/v1
metadata: {{name: pyconfd}}
spec: {{controller: pyconfd.io/ingress}}
---
kind: Ingress
apiVersion: networking.k8s.io/v1
metadata: {{name: web, namespace: {namespace}}}
spec:
  ingressClassName: pyconfd
  rules:
  - host: ingress.example.com
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: routed, port: {{number: 80}}}}}}}}]}}
"""
POLICY = """
kind: RoutePolicy
apiVersion: pyconfd.io/v1alpha1
metadata: {{name: internal, namespace: {namespace}}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}}]
  allowNetworks: [127.0.0.0/8]
"""


def applied(appliance: Appliance) -> set[tuple[str, str]]:
    """Make the API servers allow what pyconfd rbac prints; return each resource and verb of that."""
    appliance.write_settings()
    manifest = appliance.command("rbac").stdout
    documents = [each for each in yaml.safe_load_all(manifest) if each]
    for document in documents:
        if document["kind"] == "Namespace":
            appliance.cluster.add_namespace(document["metadata"]["name"])
    for server in appliance.servers:
        server.rules = Rules(manifest)
    rules: list[dict[str, Any]] = [rule for document in documents for rule in document.get("rules", ())]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def ingress_of(appliance: Appliance, resource: str, name: str) -> list[Any]:
    """Return the addresses in the status of a Service or an Ingress."""
    balancer = appliance.cluster.get(resource, NAMESPACE, name)["status"].get("loadBalancer") or {}
    return [each["ip"] for each in balancer.get("ingress") or ()]


def test_the_printed_rights_are_enough_and_all_are_used(appliance: Appliance, tmp_path: Path) -> None:
    cluster, port = appliance.cluster, service_port(*POOL)
    appliance.values["addresses"] = {"pool": list(POOL), "shared": ["192.0.2.80"]}
    appliance.values["kubernetes"] |= {"secret_namespaces": [NAMESPACE]}
    appliance.values["cluster_status"] = {"gateway_services": True}
    cluster.add_namespace(NAMESPACE)
    granted = applied(appliance)
    appliance.serve("routed", {})
    for text in (INGRESS, OBJECTS, POLICY):
        for document in yaml.safe_load_all(text.format(namespace=NAMESPACE, port=port)):
            cluster.load_object(document)
    spec = {"loadBalancerClass": "pyconfd.io/lb", "allocateLoadBalancerNodePorts": False}
    cluster.add_service(
        NAMESPACE, "direct", ports=[PortSpec("web", port, appliance.pods.port)], type="LoadBalancer", spec=spec
    )
    cluster.set_endpoints(NAMESPACE, "direct", appliance.members("routed"))

    asked = appliance.command("preflight")
    denied = [line for line in asked.stdout.splitlines() if "permissions" in line and not line.startswith("ok")]
    assert denied == [], asked.stdout
    seen = len(appliance.servers[0].requests)

    serving(appliance)
    gateway = partial(cluster.get, "gateways", NAMESPACE, "web")
    appliance.until(lambda: gateway()["status"].get("addresses"), "the Gateway has an address")
    appliance.until(lambda: ingress_of(appliance, "services", "direct"), "so has the Service")
    (of_gateway,), (of_service,) = gateway()["status"]["addresses"], ingress_of(appliance, "services", "direct")
    assert {of_gateway["value"], of_service} == set(POOL)
    assert ask(port, "routed.example.com", address=of_gateway["value"]) == "routed-1"
    assert ask(port, "any.example.com", address=of_service) == "routed-1"
    appliance.until(lambda: ask(appliance.http, "ingress.example.com") == "routed-1", "the Ingress is served")
    appliance.until(lambda: ingress_of(appliance, "ingresses", "web") == ["192.0.2.80"], "and has an address")
    appliance.until(lambda: cluster.exists("services", NAMESPACE, "web-pyconfd"), "the Gateway has a Service")
    appliance.until(
        lambda: ingress_of(appliance, "services", "web-pyconfd") == [of_gateway["value"]], "with its address"
    )
    policy = partial(cluster.get, "routepolicies", NAMESPACE, "internal")
    appliance.until(lambda: (policy().get("status") or {}).get("ancestors"), "the policy has a status")
    all_is_well(appliance)
    assert complaints(appliance) == []

    cluster.add_service(NAMESPACE, "refused", annotations={"domain": "no host", "proto": "http"})
    appliance.until(lambda: any(each.resource == "events" for each in appliance.servers[0].requests[seen:]), "an Event")

    # A Lease that nobody held had to be created; the next one who holds it updates it. So it is with the record of
    # names, which is written again when there is a new one.
    appliance.servers[0].wait_for_request("configmaps", "create", count=3)
    appliance.stop()
    ingress = INGRESS.replace("name: web", "name: more").replace("ingress.example.com", "more.example.com")
    cluster.load_object(list(yaml.safe_load_all(ingress.format(namespace=NAMESPACE)))[1])
    appliance.spawn()
    appliance.until(appliance.settled, "pyconfd is back")
    server = appliance.servers[0]
    server.wait_for_request("leases", "update")
    server.wait_for_request("configmaps", "update", count=2)
    used = {(each.resource, each.verb) for each in server.requests[seen:]}
    without_objects = {(f"{each}/status", "patch") for each in ("listenersets", "grpcroutes", "tlsroutes", "tcproutes")}
    # What a patch creates needs the right to create it, too.
    of_patches = {("services", "create")}
    assert granted - used == without_objects | of_patches | {("backendtlspolicies/status", "patch")}
    record = tmp_path / "cluster.yaml"
    assert appliance.command("record", str(record)).returncode == 0
    kinds = {each["kind"] for each in yaml.safe_load(record.read_text())["items"]}
    assert {"Ingress", "IngressClass", "Gateway", "GatewayClass", "HTTPRoute", "RoutePolicy", "Service"} <= kinds
    offline = appliance.run("render", "--config", str(appliance.config), "--snapshot", str(record))
    assert "backend gw_http_demo_web_0" in offline.stdout


@pytest.mark.parametrize("name", ["ingress web", "httproute web", "gateway web", "routed"])
def test_what_is_served_is_explained(name: str, appliance: Appliance) -> None:
    port = service_port(*POOL)
    appliance.values["addresses"] = {"pool": list(POOL)}
    appliance.serve("routed", {})
    for text in (INGRESS, OBJECTS):
        for document in yaml.safe_load_all(text.format(namespace=NAMESPACE, port=port)):
            appliance.cluster.load_object(document)
    serving(appliance)
    appliance.until(lambda: ask(port, "routed.example.com", address=ADDRESS) == "routed-1", "the Gateway serves")
    found = appliance.command("explain", name)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "NotClaimed" not in found.stdout, found.stdout
