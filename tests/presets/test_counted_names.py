"""Names by which a namespace's share of reloads is counted: what an object asks for otherwise is another owner's."""

from dataclasses import replace
from typing import Any

import pytest

from pyconfd.model.context import Context, PresetName
from pyconfd.model.reservation import namespaces_of_changes
from pyconfd.model.snapshot import HostFacts
from pyconfd.presets import registry
from pyconfd.presets.addresses import LOAD_BALANCER_CLASS, AddressOptions
from pyconfd.presets.preset import PresetOptions
from tests.presets import kube2lb, kubefigurator
from tests.presets.ingress.objects import Obj, ingress, ingress_class, path, service, snapshot
from tests.presets.objects import node

PRESETS = (PresetName.DOMAINS, PresetName.INGRESS, PresetName.LOADBALANCER)
POOL = AddressOptions(("192.0.2.1", "192.0.2.2"), shared=("192.0.2.10",))
HOST = HostFacts(addresses=frozenset(POOL.pool))


def read(*objects: Obj) -> Context:
    """Return what is made of these beside a neighbour whose objects stay."""
    fixed = [
        ingress_class(),
        *service("web", "10.0.0.1"),
        *service("other", "10.0.0.2"),
        ingress("beside", {"beside.example.com": [path("/")]}, namespace="beside"),
        *service("web", "10.0.0.9", namespace="beside"),
    ]
    found = replace(snapshot(*fixed, *objects), host=HOST)
    return registry.translate(found, PRESETS, PresetOptions(addresses=POOL))


def routed(*paths: Obj, **more: Any) -> list[Obj]:
    return [ingress("web", {"a.example.com": list(paths)}, **more)]


def with_protocol(protocol: str) -> list[Obj]:
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "appProtocol": protocol}]
    return [*service("pods", "10.0.0.3", ports=ports), *routed(path("/", "pods:80"))]


def balanced(*addresses: str, ports: tuple[int, ...] = (80,), proxy: str = "", **spec: Any) -> list[Obj]:
    given = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in ports]
    annotations = {"pyconfd.io/proxy-protocol": proxy} if proxy else {}
    of_class: dict[str, Any] = {"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS}
    return service("lb", *(addresses or ("10.0.0.4",)), annotations=annotations, ports=given, **of_class, **spec)


def domain(proto: str, *addresses: str, **more: str) -> list[Obj]:
    annotations = {"domain": "d.example.com", "proto": proto}
    annotations |= {f"pyconfd.io/{name.replace('_', '-')}": value for name, value in more.items()}
    return service("d", *(addresses or ("10.0.0.5",)), annotations=annotations)


def test_the_scene_is_served() -> None:
    context = read(*routed(path("/")), *balanced(), *domain("http"))
    assert {name: len(given) for name, given in context.owners.items()} == {
        "addresses": 1, "domains": 1, "ingress": 2, "loadbalancer": 1,
    }  # fmt: skip
    assert not context.refused


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (routed(path("/")), routed(path("/", "other:80"))),
        (routed(path("/")), routed(path("/", "web:81"))),
        (routed(path("/"), path("/x")), routed(path("/"), path("/x", "other:80"))),
        # Without a path of another: the server's words.
        (with_protocol(""), with_protocol("kubernetes.io/h2c")),
        (with_protocol("kubernetes.io/h2c"), with_protocol("https")),
        (balanced(), balanced(ports=(80, 81))),
        (balanced(ports=(80, 81)), balanced(ports=(80, 82))),
        (balanced(), balanced(proxy="v2")),
        (balanced(), balanced(sessionAffinity="ClientIP")),
        (balanced(), balanced(loadBalancerSourceRanges=["10.0.0.0/8"])),
        (domain("http"), domain("https")),
        (domain("redis", listen_port="6379"), domain("mysql", listen_port="6379")),
        (domain("http", tls_secret="a"), domain("http", tls_secret="b")),
    ],
)
def test_what_an_object_asks_for_otherwise_is_on_its_namespaces_account(before: list[Obj], after: list[Obj]) -> None:
    was, now = read(*before), read(*after)
    assert namespaces_of_changes(was.owners, now.owners) == {"demo"}
    assert was.reserved.keys() == now.reserved.keys()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (routed(path("/")), [*routed(path("/")), *service("web", "10.0.0.7")]),
        (routed(path("/")), routed(path("/"), annotations={"note": "a"})),
        (routed(path("/")), [*routed(path("/")), *routed(path("/"), class_name="nobodys", namespace="evil")]),
        (routed(path("/")), [*routed(path("/")), *service("unused", "10.0.0.8")]),
        (balanced(), balanced("10.0.0.4", "10.0.0.6")),
        (balanced(), [*balanced(), *service("other-class", "10.0.0.8", type="LoadBalancer")]),
        (domain("http"), domain("http", "10.0.0.6")),
    ],
)
def test_endpoints_and_what_is_not_served_are_on_nobodys_account(before: list[Obj], after: list[Obj]) -> None:
    assert namespaces_of_changes(read(*before).owners, read(*after).owners) == frozenset()


_TIMEOUT = "kube2lb/backend-timeout"


def of_kube2lb(annotations: dict[str, str] | None = None, address: str = "10.0.0.1") -> Context:
    return kube2lb.read(kube2lb.service(annotations=annotations), kube2lb.with_pod(address=address))


@pytest.mark.parametrize(
    ("was", "now", "counts"),
    [
        (of_kube2lb(), of_kube2lb({_TIMEOUT: '{"http": 1}'}), True),
        (of_kube2lb(), of_kube2lb({"note": "a"}), False),
        (of_kube2lb(), of_kube2lb(address="10.0.0.9"), False),
        (
            kubefigurator.read(kubefigurator.labelled("a", kubefigurator.web("web"))),
            kubefigurator.read(kubefigurator.labelled("a", kubefigurator.web("web", backends_balance_method="source"))),
            True,
        ),
        (
            kubefigurator.read(kubefigurator.labelled("a", kubefigurator.web("web"))),
            kubefigurator.read(kubefigurator.labelled("a", kubefigurator.web("web")), node("n3", "10.0.0.3")),
            False,
        ),
    ],
)
def test_predecessors_count_lines_of_backends(was: Context, now: Context, *, counts: bool) -> None:
    assert not was.refused
    assert not now.refused
    assert namespaces_of_changes(was.owners, now.owners) == ({"demo"} if counts else set())
    assert was.reserved == now.reserved, "it is no name that is kept"
