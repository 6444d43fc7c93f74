"""Preset kube2lb: the contract of its predecessor, and its faults that must not come back."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.host import HostFacts
from pyconfd.model.kubernetes import EndpointPort, ObjectMeta, Service, ServicePort, ServiceSpec
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import Resource
from pyconfd.presets import registry
from pyconfd.presets.kube2lb_names import Kube2lbOptions
from pyconfd.presets.kube2lb_views import Kube2lbService
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from tests.presets.objects import Named, endpoint, endpoints, node, slice_, snapshot, subset
from tests.presets.objects import service as any_service

HTTP = ServicePort("http", 80, "web", 30080)
SLICE_HTTP = EndpointPort("http", 8080, "TCP")
HOST = HostFacts(addresses=frozenset({"127.0.0.1", "192.0.2.10"}), ephemeral_ports=(32768, 60999))


def service(
    name: str = "shop",
    annotations: Mapping[str, str] | None = None,
    *,
    ports: tuple[ServicePort, ...] = (HTTP,),
    type_: str = "NodePort",
    namespace: str = "demo",
    created: str = "2026-01-01T00:00:00Z",
    address: str | None = None,
) -> Service:
    meta = ObjectMeta(name, namespace, creation_timestamp=created, annotations=dict(annotations or {}))
    return Service(meta, ServiceSpec(ports, type_, load_balancer_ip=address))


def with_pod(name: str = "shop", address: str = "10.0.0.1", **more: Any) -> Named:
    return slice_(name, endpoint(address, pod=f"{name}-1", node="n1"), ports=more.pop("ports", (SLICE_HTTP,)), **more)


def read(*objects: Named, options: PresetOptions | None = None, host: HostFacts | None = None) -> Context:
    seen = replace(snapshot(*objects), host=host or HostFacts())
    return registry.translate(seen, ("kube2lb",), options or PresetOptions())


def services(*objects: Named, **more: Any) -> dict[str, Kube2lbService]:
    return {str(item): item for item in read(*objects, **more).names["services"]}


def refusals(*objects: Named, **more: Any) -> list[tuple[str, RefusalReason]]:
    return [(refusal.field, refusal.reason) for refusal in read(*objects, **more).refused]


def render(template: str, *objects: Named, options: PresetOptions | None = None) -> str:
    renderer = Renderer(FragmentSet((Fragment("t.tmpl", template),)), RenderOptions("/files"))
    return renderer.render(read(*objects, options=options), curdate="").rendering.text


class TestContract:
    def test_one_entry_for_each_port_with_its_labels(self) -> None:
        ports = (HTTP, ServicePort("mysql", 3306, 3306, 30306))
        found = services(
            service("shop", {"kube2lb/port-mode": '{ "mysql": "TCP", "http": "http" }'}, ports=ports),
            with_pod(ports=(SLICE_HTTP, EndpointPort("mysql", 3306, "TCP"))),
        )

        assert list(found) == ["shop_demo_80_tcp_http", "shop_demo_3306_tcp_tcp"]
        http = found["shop_demo_80_tcp_http"]
        assert (http.name, http.namespace, http.node_port, http.timeout, http.external) == (
            "shop",
            "demo",
            30080,
            0,
            (),
        )
        assert (http.port.ip, http.port.port, http.port.mode, http.port.protocol) == ("0.0.0.0", 80, "http", "tcp")
        (pod,) = http.endpoints
        assert (pod.name, pod.ip, pod.port, str(pod)) == ("shop-1", "10.0.0.1", 8080, "10.0.0.1:8080")

    def test_ports_are_told_apart_once_and_print_as_labels(self) -> None:
        found = read(
            service("a"),
            with_pod("a"),
            service("b"),
            with_pod("b", "10.0.0.2"),
            service("c", type_="LoadBalancer", address="10.0.0.1"),
            with_pod("c", "10.0.0.3"),
            service("d", type_="LoadBalancer", address="2001:db8::1"),
            with_pod("d", "10.0.0.4"),
        )

        assert [str(port) for port in found.names["ports"]] == [
            "00000000_80_tcp_http",
            "0a000001_80_tcp_http",
            "20010db8000000000000000000000001_80_tcp_http",
        ]
        assert [port.bind for port in found.names["ports"]] == ["0.0.0.0:80", "10.0.0.1:80", "[2001:db8::1]:80"]

    @pytest.mark.parametrize(("type_", "served"), [("NodePort", 1), ("LoadBalancer", 1), ("ClusterIP", 0)])
    def test_only_node_port_and_load_balancer_services(self, type_: str, served: int) -> None:
        assert len(services(service(type_=type_), with_pod())) == served

    def test_the_address_of_a_node_port_service_is_the_default(self) -> None:
        options = PresetOptions(kube2lb=Kube2lbOptions(default_lb_ip="192.0.2.10", default_port_mode="tcp"))
        (found,) = services(service(address="192.0.2.99"), with_pod(), options=options).values()

        assert found.port.bind == "192.0.2.10:80"
        assert found.port.mode == "tcp"

    def test_ipv6_endpoints_print_in_brackets(self) -> None:
        (found,) = services(service(), with_pod(address="2001:db8::7", family="IPv6")).values()

        assert str(found.endpoints[0]) == "[2001:db8::7]:8080"

    def test_functions(self) -> None:
        template = (
            "{{ EscapeNode('n1.example:1') }} {{ IntRange(3, 1, 4) | join(',') }} {{ Add(1, 2, -4) }}"
            " {{ ToLower('AbC') }} {{ ToUpper('AbC') }} {{ domain }}"
        )

        assert render(template) == "n1_example_1 1,5,9 -1 abc ABC local\n"

    def test_names_stand_under_the_presets_own_name_too(self) -> None:
        names = read(service(), with_pod()).names

        assert names["kube2lb"]["services"] == names["services"]
        assert registry.PRESETS["kube2lb"].names <= names.keys()

    def test_services_without_endpoints_are_left_out_and_explained(self) -> None:
        assert refusals(service(), slice_("shop")) == [("endpoints", RefusalReason.INCOMPLETE)]


class TestAnnotations:
    @pytest.mark.parametrize(
        ("annotation", "value"),
        [
            ("kube2lb/port-mode", "{"),
            ("kube2lb/port-mode", "[1]"),
            ("kube2lb/port-mode", '{"http": "udp"}'),
            ("kube2lb/port-mode", '{"http": "tcp\\n    daemon"}'),
            ("kube2lb/port-mode", '{"http": 5}'),
            ("kube2lb/backend-timeout", '{"http": "20000"}'),
            ("kube2lb/backend-timeout", '{"http": true}'),
            ("kube2lb/backend-timeout", '{"http": -1}'),
            ("kube2lb/backend-timeout", '{"http": 1e3}'),
            ("kube2lb/external-domains", "a b"),
            ("kube2lb/external-domains", "~a b"),
        ],
    )
    def test_a_value_that_is_none_is_refused_and_the_default_counts(self, annotation: str, value: str) -> None:
        context = read(service("shop", {annotation: value}), with_pod())

        (found,) = context.names["services"]
        assert (found.port.mode, found.timeout, found.external) == ("http", 0, ())
        assert [(r.field, r.reason) for r in context.refused] == [
            (f"annotation {annotation}", RefusalReason.INVALID_VALUE)
        ]

    def test_one_bad_entry_keeps_the_good_ones(self) -> None:
        annotations = {
            "kube2lb/backend-timeout": '{"http": 100, "nope": 5}',
            "kube2lb/external-domains": "good.example.com,bad domain",
        }
        context = read(service("shop", annotations), with_pod())

        (found,) = context.names["services"]
        assert (found.timeout, found.external) == (100, ("good.example.com",))
        assert {r.reason for r in context.refused} == {RefusalReason.NO_SUCH_PORT, RefusalReason.INVALID_VALUE}

    @pytest.mark.parametrize("value", ["", " ", "null", "{}"])
    def test_an_empty_annotation_says_nothing(self, value: str) -> None:
        assert refusals(service("shop", {"kube2lb/port-mode": value}), with_pod()) == []

    def test_unnamed_ports_have_the_defaults(self) -> None:
        port = ServicePort(None, 80, 8080, 30080)
        found = services(
            service("shop", {"kube2lb/port-mode": '{"": "tcp"}'}, ports=(port,)),
            with_pod(ports=(EndpointPort(None, 8080, "TCP"),)),
        )

        assert [item.port.mode for item in found.values()] == ["http"]


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

    def test_a_port_of_another_program_is_refused_and_the_other_ports_go_on(self) -> None:
        ports = (HTTP, ServicePort("admin", 81, "web", 30081))
        context = read(
            service(ports=ports),
            with_pod(ports=(SLICE_HTTP, EndpointPort("admin", 8081, "TCP"))),
            options=PresetOptions(contested_ports=frozenset({80})),
        )

        assert [item.port.port for item in context.names["services"]] == [81]
        assert [(r.value, r.reason) for r in context.refused] == [("80", RefusalReason.PORT_TAKEN)]

    def test_the_ports_that_are_bound_are_known_so_that_contested_ones_can_be_found(self) -> None:
        assert read(service(), with_pod()).listen_ports == {80}
        assert read(service(), with_pod(), options=PresetOptions(contested_ports=frozenset({80}))).listen_ports == set()

    def test_a_port_that_a_preset_listed_first_gave_away_is_refused(self) -> None:
        context = read(service(), with_pod(), options=PresetOptions(given_ports=frozenset({80})))

        assert context.names["services"] == []
        assert [(r.value, r.reason) for r in context.refused] == [("80", RefusalReason.PORT_TAKEN)]

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
        young, old = context.names["services"]
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


class TestNodes:
    def test_nodes_that_should_not_get_traffic_are_left_out(self) -> None:
        nodes = read(
            node("good.example", "192.0.2.1"),
            node("broken", "192.0.2.2", ready=False),
            node("cordoned", "192.0.2.3", cordoned=True),
        ).names["nodes"]

        assert nodes == ["good.example"]
        assert (nodes[0].name, nodes[0].address) == ("good.example", "192.0.2.1")

    def test_node_ports_instead_of_pods(self) -> None:
        (found,) = services(
            service(),
            with_pod(),
            node("n1", "192.0.2.1"),
            node("n2", "192.0.2.2"),
            options=PresetOptions(node_ports=True),
        ).values()

        assert [str(item) for item in found.endpoints] == ["192.0.2.1:30080", "192.0.2.2:30080"]


def test_ready_endpoints_are_counted_for_the_guard() -> None:
    assert read(service(), with_pod()).census.claimed == 1
    assert read(any_service("other"), slice_("other", endpoint("10.0.0.9"))).census.claimed == 0


def test_server_names_of_something_else_are_an_error() -> None:
    with pytest.raises(ValueError, match="one of services"):
        read().names["ServerNames"]("shop", "local")


def test_refusals_are_on_one_line() -> None:
    bad = service("shop", {"kube2lb/external-domains": "~a\nb"})
    found: tuple[Refusal, ...] = read(bad, with_pod()).refused
    assert found
    assert all("\n" not in str(refusal) for refusal in found)
