"""An Ingress comes, changes and goes: traffic, runtime updates, status and explanations."""

import http.client
from typing import Any

import pytest

from tests.world.appliance import NAMESPACE, Appliance

pytestmark = pytest.mark.haproxy

HOST = "web.example.com"
CLASS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "IngressClass",
    "metadata": {"name": "pyconfd"},
    "spec": {"controller": "pyconfd.io/ingress"},
}


def ingress(name: str, *paths: tuple[str, str], host: str = HOST, day: int = 1) -> dict[str, Any]:
    entries = [
        {"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"name": "web"}}}}
        for path, service in paths
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
        },
        "spec": {"ingressClassName": "pyconfd", "rules": [{"host": host, "http": {"paths": entries}}]},
    }  # fmt: skip


def get(appliance: Appliance, path: str, host: str = HOST) -> str:
    """Return the Service that answered, or the status code."""
    connection = http.client.HTTPConnection("127.0.0.1", appliance.http, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.read().decode().rpartition("-")[0] if answer.status == 200 else str(answer.status)
    finally:
        connection.close()


def addresses(appliance: Appliance, name: str) -> list[str]:
    status = appliance.cluster.get("ingresses", NAMESPACE, name).get("status", {})
    return [each["ip"] for each in status.get("loadBalancer", {}).get("ingress", ())]


def test_an_ingress_comes_changes_and_goes(appliance: Appliance) -> None:
    appliance.values["addresses"] = {"shared": ["192.0.2.10"]}
    appliance.values["removal_protection"] = {"share_percent": 100}
    cluster = appliance.cluster
    cluster.add_namespace("pyconfd")  # has the Lease, without which nobody writes statuses
    cluster.load_object(CLASS)
    for name in ("web", "cart"):
        appliance.serve(name, {}, pods=2)
    cluster.load_object(ingress("web", ("/", "web"), ("/cart", "cart")))
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    assert [get(appliance, path) for path in ("/", "/cartoon", "/cart/1")] == ["web", "web", "cart"]
    assert get(appliance, "/", "other.example.com") == "404"
    appliance.until(lambda: addresses(appliance, "web") == ["192.0.2.10"], "its status has the address")

    worker = appliance.haproxy.worker()
    cluster.load_object(ingress("web", ("/", "web"), ("/cart", "cart"), ("/basket", "cart")))
    appliance.until(lambda: get(appliance, "/basket") == "cart", "a new path of a known backend is served")
    appliance.scale_up("cart")
    cluster.load_object(ingress("web", ("/", "cart"), ("/basket", "cart"), ("/old", "web")))
    appliance.until(lambda: get(appliance, "/") == "cart", "a path has another backend")
    assert appliance.haproxy.worker() == worker, "neither took a reload"

    cluster.load_object(ingress("late", ("/basket", "web"), ("/own", "web"), day=2))
    appliance.until(lambda: get(appliance, "/own") == "web", "what nobody else has is served")
    assert get(appliance, "/basket") == "cart", "the older object keeps what it has"
    appliance.until(appliance.settled, "all is verified")
    shown = appliance.command("explain", f"ingress/{NAMESPACE}/late").stdout
    assert f"{HOST}/basket" in shown
    assert "Ingress demo/web has this host and path already" in " ".join(shown.split())

    cluster.delete("ingresses", NAMESPACE, "web")
    appliance.until(lambda: get(appliance, "/cart") == "404", "its paths are gone")
    assert get(appliance, "/own") == "web"
