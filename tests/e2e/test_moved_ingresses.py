"""Ingresses that were written for another controller: what protected an application there never stands open here."""

import http.client
from contextlib import closing

import pytest

from tests.e2e.expect import serving
from tests.world.appliance import NAMESPACE, Appliance

pytestmark = pytest.mark.haproxy

HOST = "admin.example.com"
ALLOWED = "nginx.ingress.kubernetes.io/whitelist-source-range"


def ingress(name: str, annotations: dict[str, str]) -> dict[str, object]:
    backend = {"service": {"name": "shop", "port": {"name": "web"}}}
    rule = {"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    metadata = {"namespace": NAMESPACE, "name": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"ingressClassName": "pyconfd", "rules": [rule]}}


def answer(appliance: Appliance) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", appliance.http, timeout=5)) as connection:
        connection.request("GET", "/", headers={"Host": HOST})
        return connection.getresponse().status


@pytest.mark.timeout(180)
def test_a_list_of_addresses_closes_the_path_until_the_operator_does_without_it(appliance: Appliance) -> None:
    cluster = appliance.cluster
    cluster.add_namespace(NAMESPACE)
    cluster.create("ingressclasses", {"metadata": {"name": "pyconfd"}, "spec": {"controller": "pyconfd.io/ingress"}})
    cluster.create("ingresses", ingress("admin", {ALLOWED: "10.0.0.0/8"}))
    serving(appliance)
    assert answer(appliance) == 403
    assert "UnsupportedAnnotation" in appliance.command("status").stdout
    told = appliance.command("explain", "ingress", f"{NAMESPACE}/admin").stdout
    assert ALLOWED in told
    assert "ingress.ignored_annotations" in told
    appliance.until(lambda: cluster.objects("events"), "its owner is told")
    assert [each["reason"] for each in cluster.objects("events")] == ["UnsupportedAnnotation"]

    appliance.values["ingress"] = {"ignored_annotations": ["nginx.ingress.kubernetes.io/*"]}
    appliance.write_settings()
    appliance.reload_settings()
    appliance.until(lambda: answer(appliance) == 200, "it is served")
    appliance.until(
        lambda: [each["reason"] for each in appliance.status()["notes"]] == ["ignored_annotation"], "it is named"
    )


@pytest.mark.timeout(120)
def test_a_canary_takes_nothing_from_the_ingress_beside_it(appliance: Appliance) -> None:
    cluster = appliance.cluster
    cluster.create("ingressclasses", {"metadata": {"name": "pyconfd"}, "spec": {"controller": "pyconfd.io/ingress"}})
    canary = ingress("a-canary", {"nginx.ingress.kubernetes.io/canary": "true"})
    canary["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = "none"  # type: ignore[index]
    cluster.create("ingresses", canary)
    cluster.create("ingresses", ingress("main", {}))
    serving(appliance)
    appliance.until(lambda: answer(appliance) == 200, "the main one serves the host")
