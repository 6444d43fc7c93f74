"""Hosts and paths of a route of a Gateway come and go, and HAProxy is not reloaded for them."""

from collections.abc import Sequence

import pytest
import yaml

from tests.e2e.expect import all_is_well
from tests.e2e.test_canary import ADDRESS, OBJECTS
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy


def write_route(appliance: Appliance, hosts: Sequence[str], matches: Sequence[tuple[str, str]]) -> None:
    asked = [{"path": {"type": kind, "value": path}} for kind, path in matches]
    route = {
        "kind": "HTTPRoute",
        "apiVersion": "gateway.networking.k8s.io/v1",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": list(hosts),
            "rules": [{"matches": asked, "backendRefs": [{"name": "web", "port": 80}]}],
        },
    }
    appliance.cluster.put("httproutes", route)


def test_a_host_and_a_path_come_and_go_with_no_reload(appliance: Appliance) -> None:
    port = service_port(ADDRESS)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    appliance.serve("web", {}, pods=1)
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    shop, root = ["shop.example.com"], [("PathPrefix", "/a")]

    def answers(host: str, path: str) -> bool:
        return ask(port, host, address=ADDRESS, path=path).startswith("web-")

    write_route(appliance, shop, root)
    appliance.start()
    appliance.until(lambda: answers("shop.example.com", "/a"), "the route is served")
    appliance.until(appliance.settled, "all is applied")
    worker, reloads = appliance.haproxy.worker(), appliance.status()["reloads_by_reason"]
    for host, kind, path in [
        ("new.example.com", "Exact", "/exact"),
        ("any.wild.example.com", "PathPrefix", "/prefix"),
        ("new.example.com", "Exact", "/-_.~!$&'()*+,;=:@%2F"),
        ("new.example.com", "PathPrefix", "/-_.~()*+,=@%2F"),
    ]:
        named = host.replace("any.wild", "*.wild")
        write_route(appliance, [*shop, named], root)
        appliance.until(lambda: answers(host, "/a"), "the host is served")  # noqa: B023
        write_route(appliance, [*shop, named], [*root, (kind, path)])
        appliance.until(lambda: answers(host, path), "the path is served")  # noqa: B023
        write_route(appliance, shop, root)
        appliance.until(lambda: not answers(host, "/a"), "the host is gone")  # noqa: B023
    assert appliance.haproxy.worker() == worker
    assert appliance.status()["reloads_by_reason"] == reloads
    all_is_well(appliance)
