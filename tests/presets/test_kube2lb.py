"""Preset kube2lb: the contract of its predecessor, and its faults that must not come back."""

import msgspec
import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import EndpointPort, Service, ServicePort
from pyconfd.model.snapshot import Key, Resource
from pyconfd.predecessors.kube2lb.claims import EXTERNAL_DOMAINS
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.presets import registry
from pyconfd.presets.origins import ObjectOrigin, ObjectOrigins
from pyconfd.presets.preset import PresetOptions, own_options
from tests.presets import objects
from tests.presets.asking import claims, counted
from tests.presets.kube2lb import HTTP, SLICE_HTTP, read, refusals, render, service, services, with_pod
from tests.presets.objects import endpoint, node, slice_, snapshot
from tests.presets.objects import service as any_service


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

    @pytest.mark.parametrize(
        ("type_", "class_", "served"),
        [
            ("NodePort", None, 1),
            ("LoadBalancer", None, 1),
            ("LoadBalancer", "example.com/other", 1),
            ("LoadBalancer", "pyconfd.io/lb", 0),
            ("ClusterIP", None, 0),
        ],
    )
    def test_only_services_of_these_types_are_served_and_claimed(
        self, type_: str, class_: str | None, served: int
    ) -> None:
        made = service(type_=type_)
        found = snapshot(
            Service(made.metadata, msgspec.structs.replace(made.spec, load_balancer_class=class_)), with_pod()
        )
        context = registry.translate(found, ("kube2lb",), PresetOptions())
        assert len(context.names["services"]) == served
        assert len([*registry.claims_of(context)]) == served

    def test_the_address_of_a_node_port_service_is_the_default(self) -> None:
        options = PresetOptions(own=own_options(Kube2lbOptions(default_lb_ip="192.0.2.10", default_port_mode="tcp")))
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
        assert registry.PRESETS["kube2lb"].gives <= names.keys()

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
        assert [(r.field, r.value, r.reason) for r in context.refused] == [
            ("annotation kube2lb/backend-timeout", "nope", RefusalReason.NO_SUCH_PORT),
            ("annotation kube2lb/external-domains", "bad domain", RefusalReason.INVALID_VALUE),
        ]

    @pytest.mark.parametrize(("timeout", "is_one"), [(0, True), (86_400_000, True), (86_400_001, False)])
    def test_a_timeout_is_a_day_at_most(self, timeout: int, is_one: bool) -> None:
        context = read(service("shop", {"kube2lb/backend-timeout": f'{{"http": {timeout}}}'}), with_pod())

        (found,) = context.names["services"]
        assert found.timeout == (timeout if is_one else 0)
        assert [(r.field, r.value, r.reason) for r in context.refused] == (
            [] if is_one else [("annotation kube2lb/backend-timeout", f"http: {timeout}", RefusalReason.INVALID_VALUE)]
        )

    def test_a_mode_counts_in_any_case_and_each_port_has_its_own(self) -> None:
        ports = (HTTP, ServicePort("smtp", 25, 25, 30025), ServicePort("imap", 143, 143, 30143))
        found = services(
            service("shop", {"kube2lb/port-mode": '{"smtp": " TCP ", "imap": "Http"}'}, ports=ports),
            with_pod(ports=tuple(EndpointPort(each.name, 8080, "TCP") for each in ports)),
        )

        assert {entry.port.port: entry.port.mode for entry in found.values()} == {80: "http", 25: "tcp", 143: "http"}

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


class TestNodes:
    def test_nodes_that_should_not_get_traffic_are_left_out(self) -> None:
        nodes = read(
            node("good.example", "192.0.2.1"),
            node("broken", "192.0.2.2", ready=False),
            node("cordoned", "192.0.2.3", cordoned=True),
        ).names["nodes"]

        assert nodes == ["good.example"]
        assert (nodes[0].name, nodes[0].address) == ("good.example", "192.0.2.1")

    @pytest.mark.parametrize(("types", "address"), [(("InternalIP",), "192.0.2.1"), (("ExternalIP",), ""), ((), "")])
    def test_a_node_has_its_first_address_of_the_types_that_count(self, types: tuple[str, ...], address: str) -> None:
        (found,) = read(node("n1", "192.0.2.1"), options=PresetOptions(node_address_types=types)).names["nodes"]

        assert (found, found.name, found.address) == ("n1", "n1", address)

    def test_node_in_a_template_is_traced_to_its_object(self) -> None:
        seen = snapshot(node("good.example", "192.0.2.1"))
        (found,) = registry.translate(seen, ("kube2lb",), PresetOptions()).names["nodes"]

        assert ObjectOrigins(seen, ()).of(found) == {ObjectOrigin(Resource.NODES, Key("", "good.example"))}

    def test_node_ports_instead_of_pods(self) -> None:
        (found,) = services(
            service(),
            with_pod(),
            node("n1", "192.0.2.1"),
            node("n2", "192.0.2.2"),
            options=PresetOptions(node_ports=True),
        ).values()

        assert [str(item) for item in found.endpoints] == ["192.0.2.1:30080", "192.0.2.2:30080"]


def test_ready_endpoints_are_counted() -> None:
    assert read(service(), with_pod()).totals.claimed == 1
    assert read(any_service("other"), slice_("other", endpoint("10.0.0.9"))).totals.claimed == 0


def test_server_names_of_something_else_are_an_error() -> None:
    with pytest.raises(ValueError, match="one of services"):
        read().names["ServerNames"]("shop", "local")


def test_refusals_are_on_one_line() -> None:
    bad = service("shop", {"kube2lb/external-domains": "~a\nb"})
    found: tuple[Refusal, ...] = read(bad, with_pod()).refused
    assert found
    assert all("\n" not in str(refusal) for refusal in found)


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(
        service("shop", {EXTERNAL_DOMAINS: " A.example.com,,b.example.com,a.example.com"}),
        service("db", ports=(ServicePort("dns", 53, protocol="UDP"), ServicePort("http", 80, "http"))),
        objects.service("inner", {EXTERNAL_DOMAINS: "c.example.com"}),
        with_pod(),
        with_pod("db", "10.0.0.2"),
    )
    assert claims(seen, "kube2lb", PresetOptions(own=own_options(Kube2lbOptions(domain="cluster.example.com")))) == {
        "Service demo/db": (
            "spec.type NodePort",
            ("db.demo.svc.cluster.example.com",),
            {
                "db_demo_53_udp_http": (
                    "port 0.0.0.0:53",
                    "demo/db:53/udp",
                    [],
                    ["db.demo.svc.cluster.example.com"],
                    True,
                ),
                "db_demo_80_tcp_http": (
                    "port 0.0.0.0:80",
                    "demo/db:80/tcp",
                    ["10.0.0.2"],
                    ["db.demo.svc.cluster.example.com"],
                    False,
                ),
            },
            ["10.0.0.2:8080 ready"],
        ),
        "Service demo/shop": (
            "spec.type NodePort",
            ("shop.demo.svc.cluster.example.com", "a.example.com", "b.example.com"),
            {
                "shop_demo_80_tcp_http": (
                    "port 0.0.0.0:80",
                    "demo/shop:80/tcp",
                    ["10.0.0.1"],
                    ["a.example.com", "b.example.com", "shop.demo.svc.cluster.example.com"],
                    False,
                )
            },
            ["10.0.0.1:8080 ready"],
        ),
    }
    assert counted(seen, "kube2lb", PresetOptions(own=own_options(Kube2lbOptions(domain="cluster.example.com")))) == {
        "demo/db:53/udp": [],
        "demo/db:80/tcp": ["10.0.0.2"],
        "demo/shop:80/tcp": ["10.0.0.1"],
    }
