"""The life of a canary behind a Gateway under busy clients; ``make canary-test`` is the long form."""

import os
from collections import Counter

import pytest
import yaml

from tests.e2e.expect import all_is_well
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import Crowd, ask, failures
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

ROUNDS = int(os.environ.get("PYCONFD_TEST_CANARY_ROUNDS", "1"))
STEPS = (20, 40, 100, 0)
"""Percent of requests for the canary, after 0."""
CLIENTS = 32
ADDRESS = "127.0.0.72"
HOST = "shop.example.com"
ANSWERS = 1000
"""How many are looked at in each step."""

OBJECTS = """
kind: GatewayClass
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: pyconfd}}
spec: {{controllerName: pyconfd.io/gateway}}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: web, namespace: {namespace}}}
spec:
  gatewayClassName: pyconfd
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
"""


def write_route(appliance: Appliance, canary: int) -> None:
    route = {
        "kind": "HTTPRoute",
        "apiVersion": "gateway.networking.k8s.io/v1",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": [HOST],
            "rules": [
                {
                    "backendRefs": [
                        {"name": "stable", "port": 80, "weight": 100 - canary},
                        {"name": "canary", "port": 80, "weight": canary},
                    ]
                }
            ],
        },
    }
    appliance.cluster.put("httproutes", route)


def services(answers: Counter[str]) -> Counter[str]:
    """Return the answers by Service."""
    found: Counter[str] = Counter()
    for answer, number in answers.items():
        found[answer.rpartition("-")[0] or answer] += number
    return found


@pytest.mark.timeout(600)
def test_the_life_of_a_canary_fails_no_request_and_reloads_nothing(appliance: Appliance) -> None:
    port = service_port(ADDRESS)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    appliance.serve("stable", {}, pods=3)
    appliance.serve("canary", {}, pods=2)
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    write_route(appliance, 0)
    appliance.start()
    appliance.until(lambda: ask(port, HOST, address=ADDRESS).startswith("stable-"), "the route is served")
    appliance.until(appliance.settled, "all is applied")
    worker = appliance.haproxy.worker()
    crowd = Crowd(port, HOST, CLIENTS, pause_s=0.02, address=ADDRESS, keep_alive=True)
    shown = []
    try:
        for _ in range(ROUNDS):
            for canary in STEPS:
                before = appliance.generation
                write_route(appliance, canary)
                appliance.until(lambda: appliance.generation > before and appliance.settled(), "the step is applied")  # noqa: B023
                known = crowd.seen()
                appliance.until(lambda: crowd.seen().total() >= known.total() + ANSWERS, "requests are answered")  # noqa: B023
                found = services(crowd.seen() - known)
                share = found["canary"] / found.total() * 100
                assert share == pytest.approx(canary, abs=5), found
                shown.append(f"{canary} %: {share:.1f}")
            # Pods come and go meanwhile, and the shares stay those of the Services.
            new = appliance.scale_up("canary")
            appliance.remove("canary", new)
    finally:
        answers = crowd.stop()
    assert failures(answers) == []
    assert appliance.haproxy.worker() == worker, "nothing was reloaded"
    print(f"{answers.total()} requests, shares of the canary: {', '.join(shown)}")
    all_is_well(appliance)
