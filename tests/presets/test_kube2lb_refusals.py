"""Preset kube2lb: who gets an address, a port and a name, and the faults of its predecessor."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import EndpointPort, ObjectRef, ServicePort
from pyconfd.model.snapshot import HostFacts, Resource
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions, Rule, network
from pyconfd.presets.preset import PresetOptions, own_options
from tests.presets.kube2lb import HOST, HTTP, SLICE_HTTP, read, render, service, services, with_pod
from tests.presets.objects import Named, endpoint, endpoints, slice_, snapshot, subset

INVALID, NOT_ALLOWED = RefusalReason.INVALID_VALUE, RefusalReason.NOT_ALLOWED
LISTEN_PORTS = PresetOptions(own=own_options(Kube2lbOptions(listen_ports=((80, 89), (443, 443)))))
ANY_PORT = PresetOptions(own=own_options(Kube2lbOptions(listen_ports=((1, 65535),))))
RULES = PresetOptions(
    claims=ClaimOptions(
        (Rule(("demo",), protocols=("http",), ports=((80, 80),), addresses=(network("192.0.2.0/24"),)),)
    )
)


def ports(*numbers: int, protocol: str = "TCP", node_port: int = 30080) -> tuple[ServicePort, ...]:
    return tuple(ServicePort(f"p{place}", each, "web", node_port, protocol) for place, each in enumerate(numbers))


def behind(*asked: ServicePort) -> Named:
    return with_pod(ports=tuple(EndpointPort(each.name, 8080, each.protocol) for each in asked))


@pytest.mark.parametrize(
    ("asked", "options", "served", "field", "value", "reason", "words"),
    [
        (ports(80, 80), None, [80], "spec.ports", "80", INVALID, "twice"),
        (ports(0), None, [], "spec.ports", "0", INVALID, "1 to 65535"),
        (ports(65536), None, [], "spec.ports", "65536", INVALID, "1 to 65535"),
        (ports(79, 80), LISTEN_PORTS, [80], "spec.ports", "79", NOT_ALLOWED, "kube2lb.listen_ports"),
        (ports(89, 90), LISTEN_PORTS, [89], "spec.ports", "90", NOT_ALLOWED, "kube2lb.listen_ports"),
        (ports(80, 81), RULES, [80], "spec.ports", "81", NOT_ALLOWED, "the namespace demo may not claim this port"),
        (ports(80, protocol="UDP"), RULES, [], "spec.ports", "80", NOT_ALLOWED, "may not claim this protocol"),
        (
            (*ports(80, node_port=0), ServicePort("x", 81, "web", 30081)),
            PresetOptions(node_ports=True),
            [80, 81],
            "spec.ports",
            "80",
            RefusalReason.NO_NODE_PORT,
            "presets.backend_target",
        ),
    ],
)
def test_a_port_that_is_refused_leaves_the_others_alone(
    asked: tuple[ServicePort, ...],
    options: PresetOptions | None,
    served: list[int],
    field: str,
    value: str,
    reason: RefusalReason,
    words: str,
) -> None:
    seen = replace(snapshot(service(ports=asked), behind(*asked)), cluster="east")
    context = registry.translate(seen, ("kube2lb",), options or PresetOptions())
    assert [item.port.port for item in context.names["services"]] == served
    [refusal] = context.refused
    ref = ObjectRef("Service", "demo", "shop", "east")
    assert refusal == Refusal(ref, field, value, reason, refusal.detail)
    assert words in refusal.detail


@pytest.mark.parametrize("number", [1, 65535])
def test_the_first_and_the_last_port_are_served(number: int) -> None:
    context = read(service(ports=ports(number)), behind(*ports(number)), options=ANY_PORT)
    assert [item.port.port for item in context.names["services"]] == [number]
    assert context.refused == ()


@pytest.mark.parametrize(
    ("type_", "address", "default", "options", "bind", "refused"),
    [
        ("NodePort", "192.0.2.99", "192.0.2.10", PresetOptions(), "192.0.2.10:80", None),
        ("LoadBalancer", None, "192.0.2.10", PresetOptions(), "192.0.2.10:80", None),
        ("LoadBalancer", "192.0.2.10", "0.0.0.0", PresetOptions(), "192.0.2.10:80", None),
        ("LoadBalancer", "::ffff:192.0.2.10", "0.0.0.0", PresetOptions(), "192.0.2.10:80", None),
        ("LoadBalancer", "127.0.0.9", "0.0.0.0", PresetOptions(), "127.0.0.9:80", None),
        ("LoadBalancer", "x", "0.0.0.0", PresetOptions(), "", ("spec.loadBalancerIP", "x", INVALID)),
        ("LoadBalancer", "224.0.0.1", "0.0.0.0", PresetOptions(), "", ("spec.loadBalancerIP", "224.0.0.1", INVALID)),
        (
            "LoadBalancer",
            None,
            "192.0.2.99",
            PresetOptions(),
            "",
            ("setting kube2lb.default_lb_ip", "192.0.2.99", INVALID),
        ),
        ("NodePort", None, "x", PresetOptions(), "", ("setting kube2lb.default_lb_ip", "x", INVALID)),
        # A rule is about what a Service asks for, and not about the default.
        ("LoadBalancer", "192.0.2.10", "0.0.0.0", RULES, "192.0.2.10:80", None),
        ("LoadBalancer", "127.0.0.1", "0.0.0.0", RULES, "", ("spec.loadBalancerIP", "127.0.0.1", NOT_ALLOWED)),
        ("LoadBalancer", "127.0.0.1", "127.0.0.1", RULES, "127.0.0.1:80", None),
        ("LoadBalancer", None, "127.0.0.1", RULES, "127.0.0.1:80", None),
    ],
)
def test_where_a_service_listens(
    type_: str,
    address: str | None,
    default: str,
    options: PresetOptions,
    bind: str,
    refused: tuple[str, str, RefusalReason] | None,
) -> None:
    own = own_options(Kube2lbOptions(default_lb_ip=default))
    context = read(service(type_=type_, address=address), with_pod(), host=HOST, options=replace(options, own=own))
    assert [item.port.bind for item in context.names["services"]] == ([bind] if bind else [])
    assert [(each.field, each.value, each.reason) for each in context.refused] == ([refused] if refused else [])
    assert all(each.detail.count("the whole service is left out") == 1 for each in context.refused)


@pytest.mark.parametrize(
    ("numbers", "is_served"),
    [((32767,), True), ((32768,), False), ((60999,), False), ((61000,), True), ((80, 40000), False)],
)
def test_ports_of_outgoing_connections_cost_the_whole_service(numbers: Sequence[int], is_served: bool) -> None:
    asked = ports(*numbers)
    context = read(service(ports=asked), behind(*asked), host=HOST, options=ANY_PORT)
    assert [item.port.port for item in context.names["services"]] == (list(numbers) if is_served else [])
    assert [(each.field, each.value, each.reason) for each in context.refused] == (
        [] if is_served else [("spec.ports", str(numbers[-1]), INVALID)]
    )
    # Of a machine that is not known, nothing is refused.
    assert read(service(ports=asked), behind(*asked), options=ANY_PORT).refused == ()


class TestSanityChecks:
    def test_a_port_that_the_kernel_gives_to_connections_is_refused(self) -> None:
        port = ServicePort("http", 40000, "web", 30080)
        (refusal,) = read(service(ports=(port,)), with_pod(), host=HOST).refused

        assert (refusal.field, refusal.value) == ("spec.ports", "40000")
        assert "32768 to 60999" in refusal.detail
        assert services(service(ports=(port,)), with_pod(), host=HOST) == {}

    def test_an_address_that_nobody_has_is_refused(self) -> None:
        asking = service(type_="LoadBalancer", address="192.0.2.99")
        (refusal,) = read(asking, with_pod(), host=HOST).refused

        assert (refusal.field, refusal.value) == ("spec.loadBalancerIP", "192.0.2.99")
        assert "net.ipv4.ip_nonlocal_bind=1" in refusal.detail

    @pytest.mark.parametrize(
        "host",
        [
            HostFacts(),
            replace(HOST, nonlocal_bind_v4=True),
            replace(HOST, addresses=HOST.addresses | {"192.0.2.99"}),
        ],
    )
    def test_it_is_served_where_it_can_be_bound_or_nothing_is_known(self, host: HostFacts) -> None:
        asking = service(type_="LoadBalancer", address="192.0.2.99")

        assert len(services(asking, with_pod(), host=host)) == 1

    @pytest.mark.parametrize("address", ["10.0.0", "x", "224.0.0.1", "1.2.3.4 ssl", "fe80::1%eth0"])
    def test_what_is_no_address_is_refused(self, address: str) -> None:
        assert services(service(type_="LoadBalancer", address=address), with_pod(), host=HOST) == {}

    def test_the_others_go_on(self) -> None:
        bad = service("bad", type_="LoadBalancer", address="192.0.2.99")
        found = services(bad, with_pod("bad"), service(), with_pod(address="10.0.0.2"), host=HOST)

        assert [item.name for item in found.values()] == ["shop"]


class TestFailureClasses:
    def test_6_named_target_ports_several_slices_and_tcp_beside_udp(self) -> None:
        ports = (
            ServicePort("http", 80, "web", 30080),
            ServicePort("dns", 53, 5353, 30053, "UDP"),
            ServicePort("dns-tcp", 53, 5353, 30054, "TCP"),
        )
        found = services(
            service(ports=ports),
            slice_("shop", endpoint("10.0.0.1"), suffix="a", ports=(EndpointPort("http", 8080, "TCP"),)),
            slice_("shop", endpoint("10.0.0.2"), suffix="b", ports=(EndpointPort("http", 9090, "TCP"),)),
            slice_("shop", endpoint("10.0.0.3"), suffix="c", ports=(EndpointPort("dns", 5353, "UDP"),)),
            slice_("shop", endpoint("10.0.0.4"), suffix="d", ports=(EndpointPort("dns-tcp", 5353, "TCP"),)),
        )

        assert {name: [str(item) for item in entry.endpoints] for name, entry in found.items()} == {
            "shop_demo_80_tcp_http": ["10.0.0.1:8080", "10.0.0.2:9090"],
            "shop_demo_53_udp_http": ["10.0.0.3:5353"],
            "shop_demo_53_tcp_http": ["10.0.0.4:5353"],
        }

    def test_7_what_terminates_and_serves_drains(self) -> None:
        ending = endpoint("10.0.0.2", ready=False, serving=True, terminating=True)
        gone = endpoint("10.0.0.3", ready=False, serving=False)
        (found,) = services(service(), slice_("shop", endpoint("10.0.0.1"), ending, gone, ports=(SLICE_HTTP,))).values()

        assert [str(item) for item in found.endpoints] == ["10.0.0.1:8080"]
        assert [str(item) for item in found.draining] == ["10.0.0.2:8080"]

    def test_12_the_older_service_keeps_a_port_in_mode_tcp(self) -> None:
        tcp = {"kube2lb/port-mode": '{"http": "tcp"}'}
        old, young = service("old", tcp), service("a-young", tcp, created="2026-02-01T00:00:00Z")
        context = read(young, with_pod("a-young"), old, with_pod("old", "10.0.0.2"))

        assert [item.name for item in context.names["services"]] == ["old"]
        (refusal,) = context.refused
        assert (refusal.ref.name, refusal.reason) == ("a-young", RefusalReason.PORT_TAKEN)
        assert "Service demo/old" in refusal.detail

    def test_a_port_that_a_service_has_twice_is_served_once(self) -> None:
        twice = (HTTP, ServicePort("again", 80, "web", 30081))
        behind = with_pod(ports=(SLICE_HTTP, EndpointPort("again", 8081, "TCP")))
        context = read(service(ports=twice), behind)

        assert [str(item) for item in context.names["services"]] == ["shop_demo_80_tcp_http"]
        assert [str(item.endpoints[0]) for item in context.names["services"]] == ["10.0.0.1:8080"]
        assert [(r.field, r.value, r.reason) for r in context.refused] == [
            ("spec.ports", "80", RefusalReason.INVALID_VALUE)
        ]

    def test_12_one_port_has_one_mode(self) -> None:
        young = service("young", {"kube2lb/port-mode": '{"http": "tcp"}'}, created="2026-02-01T00:00:00Z")
        context = read(service(), with_pod(), young, with_pod("young", "10.0.0.2"))

        assert [str(port) for port in context.names["ports"]] == ["00000000_80_tcp_http"]
        assert [refusal.reason for refusal in context.refused] == [RefusalReason.PORT_TAKEN]

    def test_12_the_older_service_keeps_a_name(self) -> None:
        wants = {"kube2lb/external-domains": "shop.example.com,own.example.com"}
        context = read(
            service("a-young", wants, created="2026-02-01T00:00:00Z"),
            with_pod("a-young"),
            service("old", {"kube2lb/external-domains": "shop.example.com"}),
            with_pod("old", "10.0.0.2"),
        )
        old, young = context.names["services"]
        names = context.names["ServerNames"]

        assert names(old, "local") == ["old.demo.svc.local", "shop.example.com"]
        assert names(young, "local") == ["a-young.demo.svc.local", "own.example.com"]
        assert [(r.ref.name, r.value, r.reason) for r in context.refused] == [
            ("a-young", "shop.example.com", RefusalReason.NAME_TAKEN)
        ]

    def test_12_no_annotation_takes_the_name_that_another_service_has_by_itself(self) -> None:
        thief = service("thief", {"kube2lb/external-domains": "shop.demo.svc.local"}, created="2025-01-01T00:00:00Z")
        context = read(thief, with_pod("thief"), service(), with_pod(address="10.0.0.2"))
        shop = next(item for item in context.names["services"] if item.name == "shop")

        assert context.names["ServerNames"](shop, "local") == ["shop.demo.svc.local"]
        assert [(r.ref.name, r.reason) for r in context.refused] == [("thief", RefusalReason.NAME_TAKEN)]

    def test_17_slices_and_endpoints_give_the_same(self) -> None:
        old_way = services(service(), endpoints("shop", None, subset("10.0.0.1", port=8080, name="http")))
        new_way = services(service(), slice_("shop", endpoint("10.0.0.1"), ports=(SLICE_HTTP,)))

        assert old_way == new_way
        assert registry.resources_of(("kube2lb",), secrets=False) == {
            Resource.SERVICES,
            Resource.ENDPOINTSLICES,
            Resource.ENDPOINTS,
            Resource.NODES,
        }

    def test_8_the_order_of_the_api_does_not_matter(self) -> None:
        objects = [item for n in range(9) for item in (service(f"s{n}"), with_pod(f"s{n}", f"10.0.0.{n + 1}"))]
        shuffled = list(objects)
        random.Random(7).shuffle(shuffled)
        template = (
            "{% for s in services %}{{ s }} {{ s.endpoints | join(' ') }} {{ ServerNames(s, domain) | join(' ') }}\n"
            "{% endfor %}{{ ports | join(' ') }}"
        )

        assert render(template, *objects) == render(template, *shuffled)
