"""How a tenant's ListenerSet gets its first certificate from cert-manager, whose objects a test writes here.

Source: cert-manager's gateway-shim (1.20 and later). It reads the spec of a ListenerSet and never its status; the route
for the challenge names the ListenerSet, or by an annotation (1.21) the Gateway.
"""

from typing import Any

import pytest

from tests.e2e.expect import all_is_well
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask, presented_to
from tests.world.issuer import Issuer
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

ADDRESS = "127.0.0.78"
HOST, PATH = "shop.example.com", "/.well-known/acme-challenge/token"
API = "gateway.networking.k8s.io/v1"
INFRA = "infra"


def put(appliance: Appliance, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> None:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    appliance.cluster.put(plural, {"kind": kind, "apiVersion": API, "metadata": meta, "spec": spec})


def route(appliance: Appliance, name: str, parent: dict[str, Any], path: dict[str, str], service: str) -> None:
    rule = {"matches": [{"path": path}], "backendRefs": [{"name": service, "port": 80}]}
    spec = {"parentRefs": [parent], "hostnames": [HOST], "rules": [rule]}
    put(appliance, "HTTPRoute", NAMESPACE, name, spec)


def listeners(appliance: Appliance) -> dict[str, dict[str, str]]:
    """Return the status of each condition of each listener of the set."""
    status = appliance.cluster.get("listenersets", NAMESPACE, "shop").get("status") or {}
    return {
        each["name"]: {found["type"]: found["status"] for found in each["conditions"]}
        for each in status.get("listeners", ())
    }


@pytest.mark.parametrize("at_set", [True, False], ids=["challenge at the set", "challenge at the Gateway"])
def test_a_listener_set_gets_its_first_certificate(appliance: Appliance, at_set: bool) -> None:
    http, https, issuer = service_port(ADDRESS), service_port(ADDRESS), Issuer(appliance)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    appliance.cluster.add_namespace(INFRA)
    for name in ("shop", "solver"):
        appliance.serve(name, {})
    everybody = {"namespaces": {"from": "All"}}
    put(appliance, "GatewayClass", "", "pyconfd", {"controllerName": "pyconfd.io/gateway"})
    shared = {"name": "http", "port": http, "protocol": "HTTP", "allowedRoutes": everybody}
    spec = {"gatewayClassName": "pyconfd", "listeners": [shared], "allowedListeners": everybody}
    put(appliance, "Gateway", INFRA, "web", spec)

    tls = {"mode": "Terminate", "certificateRefs": [{"name": "shop-tls"}]}
    mine = [{"name": "https", "hostname": HOST, "port": https, "protocol": "HTTPS", "tls": tls}]
    if at_set:
        mine.append({"name": "http", "hostname": HOST, "port": http, "protocol": "HTTP"})
    gateway = {"name": "web", "namespace": INFRA}
    put(appliance, "ListenerSet", NAMESPACE, "shop", {"parentRef": gateway, "listeners": mine})
    own = {"kind": "ListenerSet", "name": "shop"}
    route(appliance, "shop", own, {"type": "PathPrefix", "value": "/"}, "shop")
    appliance.start()
    appliance.until(
        lambda: listeners(appliance).get("https", {}).get("ResolvedRefs") == "False", "the Secret is missing"
    )
    assert presented_to(https, HOST, address=ADDRESS) == 0

    route(appliance, "cm-acme-solver", own if at_set else gateway, {"type": "Exact", "value": PATH}, "solver")
    appliance.until(lambda: ask(http, HOST, address=ADDRESS, path=PATH) == "solver-1", "the challenge is answered")
    number = issuer.renew("shop-tls", HOST)
    appliance.cluster.delete("httproutes", NAMESPACE, "cm-acme-solver")
    appliance.until(lambda: presented_to(https, HOST, address=ADDRESS) == number, "the certificate is presented")
    served = {"Accepted": "True", "Programmed": "True", "ResolvedRefs": "True", "Conflicted": "False"}
    appliance.until(lambda: listeners(appliance)["https"] == served, "its status says so")
    all_is_well(appliance)
