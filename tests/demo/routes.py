"""The scenes of an Ingress, and of an HTTPRoute behind a Gateway: traffic, and the status that pyconfd writes."""

from collections import Counter
from typing import Any

import yaml

from tests.demo.sample import GATEWAY, SampleStage
from tests.demo.telling import good, line, require, title
from tests.world.appliance import NAMESPACE
from tests.world.clients import Crowd, ask
from tests.world.haproxy import wait_until

INGRESS_HOST, ROUTE_HOST = "www.example.com", "app.example.com"
STEPS = (0, 20, 100)
"""Weights of the canary; the stable Service has what is left of 100."""
ANSWERS = 300
"""How many are counted for each step."""
TOLERANCE = 5
"""Points by which a share may miss the weight: requests under way when it changes, and chance."""

INGRESS = f"""
kind: IngressClass
apiVersion: networking.k8s.io/v1
metadata: {{name: pyconfd}}
spec: {{controller: pyconfd.io/ingress}}
---
kind: Ingress
apiVersion: networking.k8s.io/v1
metadata: {{name: www, namespace: {NAMESPACE}}}
spec:
  ingressClassName: pyconfd
  rules:
  - host: {INGRESS_HOST}
    http:
      paths:
      - {{path: /, pathType: Prefix, backend: {{service: {{name: shop, port: {{name: web}}}}}}}}
      - {{path: /news, pathType: Prefix, backend: {{service: {{name: blog, port: {{name: web}}}}}}}}
"""


def _gateway(port: int) -> str:
    return f"""
kind: GatewayClass
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: pyconfd}}
spec: {{controllerName: pyconfd.io/gateway}}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: web, namespace: {NAMESPACE}}}
spec:
  gatewayClassName: pyconfd
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
"""


def _route(canary: int) -> str:
    return f"""
kind: HTTPRoute
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: app, namespace: {NAMESPACE}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{ROUTE_HOST}]
  rules:
  - backendRefs:
    - {{name: stable, port: 80, weight: {100 - canary}}}
    - {{name: canary, port: 80, weight: {canary}}}
"""


def _create(stage: SampleStage, text: str) -> None:
    for document in yaml.safe_load_all(text):
        stage.cluster.load_object(document)


def _status(stage: SampleStage, resource: str, name: str) -> dict[str, Any]:
    """Return the status of an object as the API server has it."""
    found: dict[str, Any] = stage.cluster.get(resource, NAMESPACE, name).get("status") or {}
    return found


def _true(conditions: list[dict[str, Any]]) -> list[str]:
    return sorted(each["type"] for each in conditions if each["status"] == "True")


def _services(answers: Counter[str]) -> Counter[str]:
    """Return the answers by Service."""
    found: Counter[str] = Counter()
    for answer, number in answers.items():
        found[answer.rpartition("-")[0] or answer] += number
    return found


def ingress(stage: SampleStage) -> None:
    """Paths of one host reach different Services, and the Ingress says where."""
    title("8  An Ingress: one host, a Service for each path")
    crowd = Crowd(stage.http, "shop.example.com")
    _create(stage, INGRESS)
    took_s = wait_until(lambda: ask(stage.http, INGRESS_HOST).startswith("shop-"), "the Ingress is served")
    wanted = {"/": "shop", "/cart": "shop", "/news": "blog", "/news/today": "blog", "/newspaper": "shop"}
    found = {path: ask(stage.http, INGRESS_HOST, path=path).rpartition("-")[0] for path in wanted}
    answers = crowd.stop()
    line(f"{INGRESS_HOST}          {'  '.join(f'{path} {service}' for path, service in found.items())}")
    require(found == wanted, f"each path reaches its Service, not {found}")

    def addresses() -> list[str]:
        return [each["ip"] for each in _status(stage, "ingresses", "www").get("loadBalancer", {}).get("ingress", ())]

    wait_until(addresses, "its status has the address")
    line(f"status of ingress/www    address {', '.join(addresses())}")
    require(addresses() == ["127.0.0.1"], f"the address is the balancer's, not {addresses()}")
    require(all(answer.startswith("shop-") for answer in answers), f"no request fails, not {dict(answers)}")
    good(f"served {took_s:.2f} s after the event; {answers.total()} requests of shop, none failed")


def canary(stage: SampleStage) -> None:
    """The weights of an HTTPRoute move requests to another Service, and nobody notices."""
    title(f"9  An HTTPRoute through a Gateway, and a canary   http://{GATEWAY}:{stage.gateway}")
    stage.serve("stable", {}, pods=2)
    stage.serve("canary", {})
    _create(stage, _gateway(stage.gateway))
    _create(stage, _route(STEPS[0]))
    wait_until(lambda: ask(stage.gateway, ROUTE_HOST, address=GATEWAY).startswith("stable-"), "the route is served")
    wait_until(stage.settled, "all is applied")
    worker = stage.haproxy.worker()
    crowd = Crowd(stage.gateway, ROUTE_HOST, clients=4, address=GATEWAY, keep_alive=True)
    for weight in STEPS:
        before = stage.generation
        if weight != STEPS[0]:
            _create(stage, _route(weight))
            wait_until(lambda: stage.generation > before and stage.settled(), "the step is applied")  # noqa: B023
        known = crowd.seen()
        wait_until(lambda: crowd.seen().total() >= known.total() + ANSWERS, "requests are answered")  # noqa: B023
        found = _services(crowd.seen() - known)
        share = found["canary"] / found.total() * 100
        line(f"weights {f'{100 - weight}/{weight}':<15}  stable x{found['stable']}  canary x{found['canary']}")
        require(abs(share - weight) <= TOLERANCE, f"the canary gets {weight} % of the requests, not {share:.1f} %")
    answers = _services(crowd.stop())
    require(set(answers) == {"stable", "canary"}, f"no request fails, not {dict(answers)}")
    require(stage.haproxy.worker() == worker, "nothing is reloaded")
    _statuses_of_the_route(stage)
    good(f"two steps, no reload; {answers.total()} requests, none failed")


def _statuses_of_the_route(stage: SampleStage) -> None:
    """Show what the Gateway and the HTTPRoute say of themselves."""

    def gateway() -> list[str]:
        return _true(_status(stage, "gateways", "web").get("conditions", []))

    def route() -> list[str]:
        parents = _status(stage, "httproutes", "app").get("parents", [])
        return _true(parents[0]["conditions"]) if parents else []

    wait_until(lambda: "Programmed" in gateway(), "the Gateway says that it is programmed")
    wait_until(lambda: route() == ["Accepted", "ResolvedRefs"], "the HTTPRoute says that it is accepted")
    addresses = [each["value"] for each in _status(stage, "gateways", "web")["addresses"]]
    line(f"status of gateway/web    {', '.join(gateway())}, address {', '.join(addresses)}")
    line(f"status of httproute/app  {', '.join(route())}")
    require(addresses == [GATEWAY], f"the address is that of the pool, not {addresses}")
