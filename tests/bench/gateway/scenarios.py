"""The tests: each yields what it measured, and leaves the cluster as it found it.

Source: github.com/howardjohn/gateway-api-bench, whose names the first seven have.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from tests.bench.gateway.harness import Client, Harness, Seen
from tests.bench.gateway.measures import times
from tests.bench.gateway.objects import (
    ADDED,
    BACKEND,
    GATEWAY,
    NAMESPACE,
    deployment,
    gateway,
    ingress_class,
    namespace,
    probed_host,
    probed_route,
    service,
)

Figures = dict[str, object]
Scenario = Callable[[Harness, int], Iterator[Figures]]
PODS = 4
"""Of the backend that all tests share."""


def prepare(harness: Harness) -> None:
    """Create the Gateway, the class of Ingresses and the backend, and wait until they are there."""
    api, made = harness.api, gateway(GATEWAY, harness.class_name)
    for obj in (namespace(NAMESPACE), ingress_class(harness.class_name, "pyconfd.io/ingress"), made):
        api.create(obj)
    api.create(deployment(BACKEND, PODS))
    api.create(service(BACKEND, selected=True, ports=(80, 8080)))
    harness.until(lambda: len(api.pods()) == PODS, "the pods run")

    def address() -> str:
        addresses = api.get(made).get("status", {}).get("addresses", ())
        return addresses[0]["value"] if addresses else ""

    harness.until(address, "the Gateway has an address")
    harness.gateway = (address(), 80)


def route_probe(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure new routes in turn: from the return of the call that creates one to its first right answer."""
    seen, figures = Seen(), Figures()
    with harness.counted(figures):
        _probe_in_turn(harness, routes, seen)
    yield times(seen.seconds) | seen.figures() | figures
    harness.api.delete_all(probed_route(number) for number in range(routes))


def _probe_in_turn(harness: Harness, routes: int, seen: Seen) -> None:
    client = Client(*harness.gateway)
    for number in range(routes):
        created = harness.api.create(probed_route(number))
        host, path = probed_host(number), f"/{number}"
        harness.probe(seen, created, harness.gateway, host, path, headers=ADDED, client=client)
    client.close()


SCENARIOS: Mapping[str, Scenario] = MappingProxyType({each.__name__: each for each in (route_probe,)})
