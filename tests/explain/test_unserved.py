"""Backends without a server that is up: whose they are, and what their owners are told."""

from collections.abc import Iterator

from pyconfd.explain.unserved import unserved
from pyconfd.model.claim import Claim
from pyconfd.model.status import BackendDown
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from tests.presets.ingress.objects import ingress, ingress_class, path, service, snapshot

PRESETS = ("domains", "ingress", "loadbalancer")
OPTIONS = PresetOptions(addresses=AddressOptions(pool=("192.0.2.1",), shared=("192.0.2.10",)))
OBJECTS = (
    ingress_class(),
    *service("web"),
    *service("cart", "10.0.0.2"),
    *service("shop", "10.0.0.3", annotations={"domain": "shop.example.com", "proto": "http"}),
    *service("lb", "10.0.0.4", type="LoadBalancer", loadBalancerClass="pyconfd.io/lb"),
    ingress("both", {"a.example.com": [path("/"), path("/cart", "cart:80")]}),
    ingress("one", {"b.example.com": [path("/", "cart:80")]}),
)


def told(*down: BackendDown) -> list[tuple[str, str, str]]:
    seen = snapshot(*OBJECTS)
    context = registry.translate(seen, PRESETS, OPTIONS)
    found = unserved(context, down)
    return [(str(each.ref), each.reason, each.message) for each in found]


def test_without_an_endpoint_the_command_that_shows_them_is_named() -> None:
    [(ref, reason, message)] = told(BackendDown("ing_demo_web_80", 0, 1.0))
    assert (ref, reason) == ("Ingress demo/both", "NoReadyEndpoints")
    assert "kubectl get endpointslices -n demo -l kubernetes.io/service-name=web" in message
    [(ref, _, message)] = told(BackendDown("be-shop.example.com", 0, 1.0))
    assert ref == "Service demo/shop"
    assert "service-name=shop" in message


def test_pods_that_the_balancer_cannot_reach_are_said_of_each_object_that_names_them() -> None:
    found = told(BackendDown("ing_demo_cart_80", 3, 1.0))
    assert [each[:2] for each in found] == [
        ("Ingress demo/both", "EndpointsUnreachable"),
        ("Ingress demo/one", "EndpointsUnreachable"),
    ]
    assert "none of its 3 servers answers the load balancer" in found[0][2]


def test_each_way_to_ask_is_found_and_a_backend_of_the_operator_is_nobodys() -> None:
    names = [part.section for claim in claims() for part in claim.backends if claim.ref.name == "lb"]
    assert [each[0] for each in told(*(BackendDown(name, 1, 1.0) for name in names))] == ["Service demo/lb"] * len(
        names
    )
    assert names
    assert told(BackendDown("operators-own", 1, 1.0)) == []


def claims() -> Iterator[Claim]:
    seen = snapshot(*OBJECTS)
    return registry.claims_of(registry.translate(seen, PRESETS, OPTIONS))
