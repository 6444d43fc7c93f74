"""Services of Gateways: what they say, and that nothing is read from them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.model.context import Context
from pyconfd.model.gateway_service import GatewayService
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import HostFacts, Key, Resource
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.gateway.infrastructure import service_key
from pyconfd.presets.preset import PresetOptions
from tests.presets.gateway.objects import CLASS, snapshot

OPTIONS = PresetOptions(addresses=AddressOptions(("192.0.2.1", "192.0.2.2")), gateway_services=True)
AT = Key("shop", "web-pyconfd")
OWN = (("app.kubernetes.io/managed-by", "pyconfd"), ("gateway.networking.k8s.io/gateway-name", "web"))
UID = (("pyconfd.io/gateway-uid", "Gateway-web"),)
GATEWAY = """
kind: Gateway
metadata: {name: web, generation: 2}
spec:
  gatewayClassName: pyconfd
  infrastructure: %s
  listeners:
  - {name: a, port: 8443, protocol: HTTP}
  - {name: b, port: 80, protocol: HTTP, hostname: a.test}
  - {name: c, port: 80, protocol: HTTP, hostname: b.test}
  - {name: invalid, port: 0, protocol: HTTP}
"""
SERVICE = """
kind: Service
metadata: {name: web-pyconfd, uid: own, generation: 1, annotations: {domain: taken.example.com, proto: http}}
spec: {type: LoadBalancer, loadBalancerClass: %s, ports: [{name: port-80, port: 80}]}
"""
OURS, OF_POOL = "pyconfd.io/gateway", "pyconfd.io/lb"
PRESETS = ("domains", "gateway", "loadbalancer")


def read(*objects: str, options: PresetOptions = OPTIONS, presets: Sequence[str] = PRESETS) -> Context:
    return registry.translate(snapshot(CLASS, *objects), presets, options)


def status_of(context: Context, resource: Resource, key: Key) -> dict[str, Any] | None:
    found = [each[of] for each in context.statuses for of in each if of == ObjectKey(resource, key)]
    return dict(found[0].body) if found else None


def service_status(context: Context) -> dict[str, Any] | None:
    return status_of(context, Resource.SERVICES, AT)


@pytest.mark.parametrize(
    ("asked", "labels", "annotations"),
    [
        ("{}", (), ()),
        ("{labels: {team: a}, annotations: {a.io/b: 'c d'}}", (("team", "a"),), (("a.io/b", "c d"),)),
        # Nobody names another Gateway, or its uid.
        (
            "{labels: {gateway.networking.k8s.io/gateway-name: other}, annotations: {pyconfd.io/gateway-uid: other}}",
            (),
            (),
        ),
    ],
)
def test_a_service_has_the_words_and_ports_of_its_gateway(
    asked: str, labels: tuple[tuple[str, str], ...], annotations: tuple[tuple[str, str], ...]
) -> None:
    made = read(GATEWAY % asked).services
    words = tuple(sorted((*labels, *OWN))), tuple(sorted((*annotations, *UID)))
    assert dict(made) == {AT: GatewayService("web", "Gateway-web", *words, (80, 8443))}


@pytest.mark.parametrize(
    ("options", "gateway"),
    [
        (replace(OPTIONS, gateway_services=False), GATEWAY),
        (OPTIONS, GATEWAY.replace("gatewayClassName: pyconfd", "gatewayClassName: other")),
        (OPTIONS, GATEWAY.replace("port: 8", "port: 7000")),
    ],
    ids=["not asked for", "not ours", "no listener"],
)
def test_there_is_no_service(options: PresetOptions, gateway: str) -> None:
    context = read(gateway % "{}", SERVICE % OURS, options=options)
    assert not context.services
    assert service_status(context) is None


def test_its_address_is_that_of_the_gateway() -> None:
    of_gateway = status_of(read(GATEWAY % "{}"), Resource.GATEWAYS, Key("shop", "web"))
    assert of_gateway is not None
    (address,) = [each["value"] for each in of_gateway["addresses"]]
    assert service_status(read(GATEWAY % "{}")) is None
    context = read(GATEWAY % "{}", SERVICE % OURS)
    assert service_status(context) == {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}


def test_nothing_is_read_from_it() -> None:
    context = read(GATEWAY % "{}", SERVICE % OURS)
    assert not context.refused or {each.ref.kind for each in context.refused} == {"Gateway"}
    assert not context.names["domains"]
    (view,) = context.names["cluster"].services
    assert (view.annotations, view.labels) == ({}, {})


def test_no_preset_of_a_predecessor_takes_it() -> None:
    """That of kube2lb serves all Services of type LoadBalancer."""
    service = SERVICE % OURS
    seen = snapshot(service.replace(OURS, "a.io/b")), snapshot(service)
    other, own = (registry.translate(each, ("kube2lb", "kubefigurator"), OPTIONS) for each in seen)
    assert other.refused, "it has no endpoints"
    assert not own.refused


def test_another_service_of_its_name_is_not_taken_for_it() -> None:
    assert service_status(read(GATEWAY % "{}", SERVICE % OF_POOL, presets=("gateway",))) is None


def test_an_address_that_is_not_here_is_not_in_its_status() -> None:
    seen = snapshot(CLASS, GATEWAY % "{}", SERVICE % OURS, host=HostFacts(frozenset({"192.0.2.7"})))
    found = service_status(registry.translate(seen, PRESETS, OPTIONS))
    assert found == {"loadBalancer": {"ingress": []}}


@pytest.mark.parametrize(
    ("gateway", "class_name", "name"),
    [
        ("web", "pyconfd", "web-pyconfd"),
        ("web.a", "pyconfd", "gateway-web-a-pyconfd-"),
        ("1", "pyconfd", "gateway-1-pyconfd-"),
        ("a" * 253, "b" * 253, "gateway-" + "a" * 46 + "-"),
        ("a" * 54, "pyconfd", "a" * 54 + "-pyconfd"),
    ],
)
def test_the_name_is_one_that_services_may_have(gateway: str, class_name: str, name: str) -> None:
    found = service_key(Key("shop", gateway), class_name)
    assert found.namespace == "shop"
    assert found.name.startswith(name)
    assert len(found.name) <= 63
    if name.endswith("-"):
        other = service_key(Key("shop", f"{gateway}x"), class_name)
        assert other != found
