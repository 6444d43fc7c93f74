from collections.abc import Mapping, Sequence

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import EndpointPort, EndpointSubset, ObjectRef, ServicePort
from pyconfd.model.listener import Listener, Listeners
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.reservation import Owner, Reservation
from pyconfd.presets.domains import port_name
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.views import EndpointView
from pyconfd.render.engine import Renderer, RenderOptions
from tests.presets.asking import claims, counted
from tests.presets.objects import (
    Named,
    domains,
    endpoint,
    endpoints,
    node,
    read,
    refused,
    service,
    slice_,
    snapshot,
    subset,
)
from tests.presets.work import calls_of

WEB = {"domain": "shop.example.com", "proto": "http"}


def states(entry: dict[str, object]) -> dict[str, str]:
    found = entry["endpoints"]
    assert isinstance(found, list)
    assert all(isinstance(item, EndpointView) for item in found)
    return {item.address: item.state for item in found}


def asks_for_port(name: str, *, namespace: str, day: int) -> Named:
    notes = {"domain": f"{name}.example.com", "proto": "redis", "pyconfd.io/listen-port": "6379"}
    return service(name, notes, namespace=namespace, created=f"2026-01-{day:02}T00:00:00Z")


class TestPredecessorsContract:
    def test_annotated_endpoints_give_exactly_its_keys_and_values(self) -> None:
        found = domains(endpoints("web", WEB, subset("10.244.5.164", "10.244.0.77", port=8443)))

        entry = found["shop.example.com"]
        assert entry["ips"] == ["10.244.0.77", "10.244.5.164"]
        assert entry["port"] == 8443
        assert entry["proto"] == "http"

    def test_objects_without_annotations_are_left_alone(self) -> None:
        context = read(endpoints("web", {}, subset("10.0.0.1")), endpoints("other", None, subset("10.0.0.2")))

        assert context.names["domains"] == {}
        assert context.refused == ()

    @pytest.mark.parametrize(
        ("given", "missing"), [({"domain": "a.example.com"}, "proto"), ({"proto": "http"}, "domain")]
    )
    def test_half_of_the_annotations_is_refused(self, given: dict[str, str], missing: str) -> None:
        [refusal] = refused(endpoints("web", given, subset("10.0.0.1")))

        detail = f"annotation {missing} is missing: an object is served when it has both domain and proto"
        ref = ObjectRef("Endpoints", "demo", "web")
        assert refusal == Refusal(ref, f"annotation {missing}", "", RefusalReason.INCOMPLETE, detail)

    def test_only_not_ready_addresses_give_an_entry_with_an_empty_list(self) -> None:
        entry = domains(endpoints("web", WEB, subset(not_ready=["10.0.0.1"])))["shop.example.com"]

        assert entry["ips"] == []

    def test_pods_of_a_second_subset_keep_their_own_port(self) -> None:
        """A named target port; ``port`` and ``ips`` are those of the first subset, whichever sorts first."""
        first, second = subset("10.0.0.5", port=9090, name="web"), subset("10.0.0.1", "10.0.0.2", port=8080, name="web")
        entry = domains(endpoints("web", WEB, first, second))["shop.example.com"]

        assert (entry["port"], entry["ips"]) == (9090, ["10.0.0.5"])
        found = entry["endpoints"]
        assert isinstance(found, list)
        assert [(each.address, each.port) for each in found] == [
            ("10.0.0.1", 8080),
            ("10.0.0.2", 8080),
            ("10.0.0.5", 9090),
        ]

    def test_a_first_subset_without_a_ready_pod_is_passed_over(self) -> None:
        first, second = subset(not_ready=["10.0.0.5"], port=9090, name="web"), subset("10.0.0.1", port=8080, name="web")
        entry = domains(endpoints("web", WEB, first, second))["shop.example.com"]

        assert (entry["port"], entry["ips"]) == (8080, ["10.0.0.1"])

    def test_slices_with_two_ports_count_whole(self) -> None:
        context = read(
            service("web", WEB),
            slice_("web", endpoint("10.0.0.5"), ports=[EndpointPort("web", 9090, "TCP")]),
            slice_("web", endpoint("10.0.0.1"), suffix="b", ports=[EndpointPort("web", 8080, "TCP")]),
        )
        entry = context.names["domains"]["shop.example.com"]

        assert (entry["port"], entry["ips"]) == (9090, ["10.0.0.5"])
        assert context.totals.claimed == 2, "those of other ports are served too"
        (served,) = context.claimed
        assert list(served.addresses(entry)) == ["10.0.0.1", "10.0.0.5"]

    @pytest.mark.parametrize("empty", [(), None])
    def test_annotated_endpoints_without_subsets_stop_nobody(self, empty: tuple[EndpointSubset, ...] | None) -> None:
        poisoned = endpoints("bad", {"domain": "bad.example.com", "proto": "http"}, *(empty or ()))
        context = read(poisoned, endpoints("web", WEB, subset("10.0.0.1")))

        assert list(context.names["domains"]) == ["shop.example.com"]
        assert [r.reason for r in context.refused] == [RefusalReason.INCOMPLETE]

    def test_slices_are_preferred_where_they_exist(self) -> None:
        entry = domains(
            endpoints("web", WEB, subset("10.0.0.1", name="web")),
            service("web"),
            slice_("web", endpoint("10.0.0.1"), endpoint("10.0.0.2")),
        )["shop.example.com"]

        assert entry["ips"] == ["10.0.0.1", "10.0.0.2"]


class TestServices:
    @pytest.mark.parametrize("prefix", ["", "pyconfd.io/"])
    def test_annotations_on_the_service(self, prefix: str) -> None:
        annotations = {f"{prefix}domain": "shop.example.com", f"{prefix}proto": "http"}
        entry = domains(service("web", annotations), slice_("web", endpoint("10.0.0.1", pod="web-1", node="n1")))

        first = entry["shop.example.com"]["endpoints"][0]  # type: ignore[index]
        assert (first.pod, first.node, first.address, first.port, first.state) == (
            "web-1",
            "n1",
            "10.0.0.1",
            8080,
            "ready",
        )
        assert entry["shop.example.com"]["namespace"] == "demo"
        assert entry["shop.example.com"]["name"] == "web"

    @pytest.mark.parametrize("wanted", ["admin", "8000", "9000"])
    def test_port_is_chosen_by_name_or_number(self, wanted: str) -> None:
        ports = [ServicePort("web", 80, "web"), ServicePort("admin", 8000, 9000)]
        of_slice = [EndpointPort("web", 8080), EndpointPort("admin", 9000)]
        found = domains(
            service("web", {**WEB, "pyconfd.io/port": wanted}, ports=ports),
            slice_("web", endpoint("10.0.0.1"), ports=of_slice),
        )

        assert found["shop.example.com"]["port"] == 9000

    def test_unknown_port_is_refused_and_says_which_there_are(self) -> None:
        (refusal,) = refused(service("web", {**WEB, "pyconfd.io/port": "nope"}), slice_("web", endpoint("10.0.0.1")))

        assert refusal.reason is RefusalReason.NO_SUCH_PORT
        assert "web 80" in refusal.detail

    def test_several_slices_with_different_numbers_for_one_named_port(self) -> None:
        entry = domains(
            service("web", WEB),
            slice_("web", endpoint("10.0.0.1"), suffix="a", ports=[EndpointPort("web", 8080)]),
            slice_("web", endpoint("10.0.0.2"), suffix="b", ports=[EndpointPort("web", 9090)]),
        )["shop.example.com"]

        assert [(e.address, e.port) for e in entry["endpoints"]] == [("10.0.0.1", 8080), ("10.0.0.2", 9090)]  # type: ignore[attr-defined]

    def test_tcp_and_udp_of_one_number_are_not_mixed(self) -> None:
        ports = [ServicePort("dns-udp", 53, 53, protocol="UDP"), ServicePort("dns", 53, 53, protocol="TCP")]
        entry = domains(
            service("dns", {"domain": "dns.example.com", "proto": "dns"}, ports=ports),
            slice_("dns", endpoint("10.0.0.1"), suffix="u", ports=[EndpointPort("dns-udp", 53, "UDP")]),
            slice_("dns", endpoint("10.0.0.2"), suffix="t", ports=[EndpointPort("dns", 53, "TCP")]),
        )["dns.example.com"]

        assert entry["ips"] == ["10.0.0.2"]

    def test_an_address_in_two_slices_counts_once(self) -> None:
        entry = domains(
            service("web", WEB),
            slice_("web", endpoint("10.0.0.1", ready=False), suffix="a"),
            slice_("web", endpoint("10.0.0.1"), suffix="b"),
        )["shop.example.com"]

        assert states(entry) == {"10.0.0.1": "ready"}


class TestStates:
    def test_serving_and_terminating_endpoints_drain_instead_of_vanishing(self) -> None:
        entry = domains(
            service("web", WEB),
            slice_(
                "web",
                endpoint("10.0.0.1"),
                endpoint("10.0.0.2", ready=False, serving=True, terminating=True),
                endpoint("10.0.0.3", ready=False, serving=False, terminating=True),
                endpoint("10.0.0.4", ready=False),
            ),
        )["shop.example.com"]

        assert states(entry) == {"10.0.0.1": "ready", "10.0.0.2": "draining"}
        assert entry["ips"] == ["10.0.0.1"]

    def test_absent_conditions_mean_ready(self) -> None:
        entry = domains(service("web", WEB), slice_("web", endpoint("10.0.0.1", ready=None)))

        assert states(entry["shop.example.com"]) == {"10.0.0.1": "ready"}

    def test_when_all_terminate_the_serving_ones_get_the_traffic(self) -> None:
        entry = domains(
            service("web", WEB), slice_("web", endpoint("10.0.0.1", ready=False, serving=True, terminating=True))
        )

        assert states(entry["shop.example.com"]) == {"10.0.0.1": "ready"}


class TestFamilies:
    def test_ipv6_only(self) -> None:
        found = domains(service("web", WEB), slice_("web", endpoint("2001:db8::1"), family="IPv6"))

        assert found["shop.example.com"]["ips"] == ["2001:db8::1"]

    @pytest.mark.parametrize(
        ("families", "expected"),
        [(("IPv6", "IPv4"), "2001:db8::1"), (("IPv4", "IPv6"), "10.0.0.1"), (None, "10.0.0.1")],
    )
    def test_dual_stack_pods_count_once_in_the_services_first_family(
        self, families: tuple[str, ...] | None, expected: str
    ) -> None:
        found = domains(
            service("web", WEB, families=families),
            slice_("web", endpoint("10.0.0.1", pod="p"), suffix="4"),
            slice_("web", endpoint("2001:db8::1", pod="p"), suffix="6", family="IPv6"),
        )

        assert found["shop.example.com"]["ips"] == [expected]

    def test_dual_stack_uses_the_other_family_when_the_first_has_nothing_ready(self) -> None:
        found = domains(
            service("web", WEB, families=("IPv4", "IPv6")),
            slice_("web", endpoint("10.0.0.1", ready=False), suffix="4"),
            slice_("web", endpoint("2001:db8::1"), suffix="6", family="IPv6"),
        )

        assert found["shop.example.com"]["ips"] == ["2001:db8::1"]


UDP = (ServicePort("dns", 53, protocol="UDP"),)
TWO = (ServicePort("admin", 81, 8081), ServicePort("web", 80, 8080))


@pytest.mark.parametrize(
    ("objects", "field", "value", "reason", "words"),
    [
        ([service("a", WEB, ports=UDP)], "spec.ports", "UDP", RefusalReason.INVALID_VALUE, "no TCP port"),
        ([service("a", WEB, ports=())], "spec.ports", "", RefusalReason.INCOMPLETE, "no addresses yet"),
        (
            [service("a", {**WEB, "pyconfd.io/port": "no"})],
            "annotation port", "no", RefusalReason.NO_SUCH_PORT, "web",
        ),
        (
            [service("a", {**WEB, "pyconfd.io/access-log": "no"})],
            "annotation pyconfd.io/access-log", "no", RefusalReason.INVALID_VALUE, '"off"; it has no effect',
        ),
        (
            [service("a", {**WEB, "proto": "https", "pyconfd.io/access-log": "off"})],
            "annotation pyconfd.io/access-log", "off", RefusalReason.INVALID_VALUE, "proto http",
        ),
        (
            [service("old", WEB, created="2025-01-01T00:00:00Z"), service("a", WEB)],
            "annotation domain", "shop.example.com", RefusalReason.NAME_TAKEN, "Service demo/old",
        ),
        (
            [service("old", WEB, created="2025-01-01T00:00:00Z", namespace="other"), service("a", WEB)],
            "annotation domain", "shop.example.com", RefusalReason.NAME_TAKEN, "Service other/old",
        ),
        (
            [service("a", WEB, type_="ExternalName")],
            "spec.type", "ExternalName", RefusalReason.INVALID_VALUE, "ExternalName",
        ),
        (
            [service("a", {**WEB, "domain": "a_b!"})],
            "annotation domain", "a_b!", RefusalReason.INVALID_VALUE, "not a host name",
        ),
        (
            [service("a", {**WEB, "proto": "a b"})],
            "annotation proto", "a b", RefusalReason.INVALID_VALUE, "",
        ),
        (
            [service("a", {**WEB, "pyconfd.io/listen-port": "65536"})],
            "annotation listen-port", "65536", RefusalReason.INVALID_VALUE, "",
        ),
        (
            [service("a", {**WEB, "pyconfd.io/tls-secret": "a/b"})],
            "annotation tls-secret", "a/b", RefusalReason.INVALID_VALUE, "not the name of a Secret",
        ),
        (
            [service("a", {**WEB, "pyconfd.io/shared-with": "a b"})],
            "annotation shared-with", "a b", RefusalReason.INVALID_VALUE, "it has no effect",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_field_value_and_cause(
    objects: list[Named], field: str, value: str, reason: RefusalReason, words: str
) -> None:
    [found] = refused(*objects)
    assert (found.ref.kind, found.ref.name, found.field, found.value) == ("Service", "a", field, value)
    assert (found.reason, words in found.detail) == (reason, True)


@pytest.mark.parametrize(
    ("annotations", "unlogged"),
    [
        ({"pyconfd.io/access-log": "off"}, True),
        ({"pyconfd.io/access-log": "Off "}, True),
        ({"pyconfd.io/access-log": "on"}, False),
        ({"pyconfd.io/access-log": "no"}, False),
        ({"access-log": "off"}, False),
        ({"pyconfd.io/access-log": "off", "proto": "https"}, False),
        ({}, False),
    ],
)
def test_requests_are_left_out_of_the_log_where_the_service_says_so(
    annotations: Mapping[str, str], unlogged: bool
) -> None:
    entry = domains(service("a", {**WEB, **annotations}))["shop.example.com"]
    assert entry["unlogged"] is unlogged


def test_a_service_without_a_domain_is_told_who_has_requests() -> None:
    (found,) = refused(service("a", {"pyconfd.io/access-log": "off"}))
    assert (found.field, found.reason.is_note) == ("annotation pyconfd.io/access-log", True)
    assert "annotate the Ingress or the route" in found.detail


@pytest.mark.parametrize(
    ("annotations", "field", "value"),
    [
        (WEB, "", ""),
        ({**WEB, "domain": "shop.example.org"}, "annotation domain", "shop.example.org"),
        ({**WEB, "proto": "https"}, "annotation proto", "https"),
        ({**WEB, "domain": "Shop.Example.Org."}, "annotation domain", "shop.example.org"),
    ],
)
def test_what_the_operator_does_not_allow(annotations: dict[str, str], field: str, value: str) -> None:
    rules = ClaimOptions((Rule(("demo",), domains=("example.com",), protocols=("http",)),))
    context = read(service("a", annotations), options=PresetOptions(claims=rules))
    assert [(each.ref, each.field, each.value, each.reason) for each in context.refused] == (
        [(ObjectRef("Service", "demo", "a"), field, value, RefusalReason.NOT_ALLOWED)] if field else []
    )
    assert list(context.names["domains"]) == ([] if field else ["shop.example.com"])


@pytest.mark.parametrize(("name", "port"), [("web", 8080), ("admin", 8081), (None, 8081), ("other", 8081)])
def test_the_port_is_that_of_the_first_subset_with_this_name(name: str | None, port: int) -> None:
    objects = (
        service("a", ports=TWO),
        endpoints("a", WEB, subset("10.0.0.1", name=name)),
        slice_("a", endpoint("10.0.0.1"), ports=(EndpointPort("web", 8080), EndpointPort("admin", 8081))),
    )
    assert domains(*objects)["shop.example.com"]["port"] == port


class TestConflicts:
    def test_the_older_object_keeps_the_name_in_any_order(self) -> None:
        old = service("old", WEB, created="2025-01-01T00:00:00Z", namespace="z")
        new = service("new", WEB, created="2026-01-01T00:00:00Z", namespace="a")
        slices = (
            slice_("old", endpoint("10.0.0.1"), namespace="z"),
            slice_("new", endpoint("10.0.0.2"), namespace="a"),
        )
        for order in ((old, new), (new, old)):
            context = read(*order, *slices)
            assert context.names["domains"]["shop.example.com"]["name"] == "old"
            (refusal,) = context.refused
            assert refusal.reason is RefusalReason.NAME_TAKEN
            assert (refusal.ref.name, "Service z/old" in refusal.detail) == ("new", True)

    def test_names_differ_only_in_case_or_dot(self) -> None:
        context = read(
            service("a", {"domain": "Shop.Example.COM.", "proto": "http"}, created="2025-01-01T00:00:00Z"),
            service("b", WEB),
            slice_("a", endpoint("10.0.0.1")),
            slice_("b", endpoint("10.0.0.2")),
        )

        assert list(context.names["domains"]) == ["shop.example.com"]
        assert len(context.refused) == 1

    def test_a_service_and_its_own_endpoints_are_one_claim(self) -> None:
        assert refused(service("web", WEB), endpoints("web", WEB, subset("10.0.0.1", name="web"))) == ()

    def test_two_services_on_one_listen_port(self) -> None:
        redis = [ServicePort("redis", 6379, 6379)]
        of_slice = [EndpointPort("redis", 6379)]
        context = read(
            service("a", {"domain": "a.example.com", "proto": "redis"}, ports=redis, created="2025-01-01T00:00:00Z"),
            service("b", {"domain": "b.example.com", "proto": "redis"}, ports=redis),
            slice_("a", endpoint("10.0.0.1"), ports=of_slice),
            slice_("b", endpoint("10.0.0.2"), ports=of_slice),
        )

        assert {d: e["listen_port"] for d, e in context.names["domains"].items()} == {
            "a.example.com": 6379,
            "b.example.com": None,
        }
        assert [r.reason for r in context.refused] == [RefusalReason.PORT_TAKEN]

    def test_the_older_object_keeps_a_port_whatever_its_domain_is_called(self) -> None:
        context = read(asks_for_port("z", namespace="z", day=1), asks_for_port("a", namespace="a", day=2))

        assert {d: e["listen_port"] for d, e in context.names["domains"].items()} == {
            "a.example.com": None,
            "z.example.com": 6379,
        }
        assert [each.detail for each in context.refused] == [
            "Service z/z (z.example.com) listens there; choose another with pyconfd.io/listen-port"
        ]

    @pytest.mark.parametrize(
        ("heirs", "served", "why"),
        [
            ((), None, "namespace kept has this"),
            (("kept",), "heir.example.com", "Service kept/heir has this already"),
            (("third",), None, "namespace kept has this"),
        ],
    )
    def test_a_reserved_port_stays_with_its_namespace(self, heirs: Sequence[str], served: str | None, why: str) -> None:
        reserved = {"domains": {port_name(6379): Reservation(Owner("Service", "kept", "gone", "2025"), 99.0)}}
        asking = (asks_for_port("heir", namespace=namespace, day=2) for namespace in heirs)
        context = read(
            asks_for_port("old", namespace="other", day=1), *asking, options=PresetOptions(reservations=reserved)
        )

        listening = [name for name, entry in context.names["domains"].items() if entry["listen_port"]]
        assert listening == ([served] if served else [])
        assert {each.reason for each in context.refused} == {RefusalReason.NAME_RESERVED}
        assert all(each.detail.startswith(why) for each in context.refused)

    def test_twice_as_many_that_ask_for_a_reserved_port_are_twice_the_work(self) -> None:
        reserved = {"domains": {port_name(6379): Reservation(Owner("Service", "kept", "gone", "2025"), 99.0)}}
        options = PresetOptions(reservations=reserved)

        def work(count: int) -> int:
            asking = [asks_for_port(f"s{number}", namespace="other", day=1) for number in range(count)]
            return calls_of(lambda: read(*asking, options=options))

        assert work(600) < 2.5 * work(300)

    @pytest.mark.parametrize(
        ("port", "reason"), [("80", RefusalReason.NOT_ALLOWED), ("8404", RefusalReason.PORT_TAKEN)]
    )
    def test_ports_of_the_operator_cannot_be_claimed(self, port: str, reason: RefusalReason) -> None:
        stats = Listener("127.0.0.1", 8404)
        options = PresetOptions(reserved=Listeners({stats: "frontend stats"}))
        annotations = {"domain": "a.example.com", "proto": "redis", "pyconfd.io/listen-port": port}
        (refusal,) = refused(service("a", annotations), slice_("a", endpoint("10.0.0.1")), options=options)

        assert refusal.reason is reason


class TestStrangersValues:
    def test_http_is_meant_in_any_case(self) -> None:
        found = domains(
            service("web", {"domain": "shop.example.com", "proto": "HTTP"}), slice_("web", endpoint("10.0.0.1"))
        )

        assert found["shop.example.com"]["proto"] == "http"

    @pytest.mark.parametrize(
        "domain",
        [
            "a.com\n    server evil 6.6.6.6:80",
            "a.com } || { always_true",
            "a.com b.com",
            'a.com"',
            "a.com#",
            "${HOME}.com",
            "a\\.com",
            "%[env(HOME)]",
            "a..com",
            "-a.com",
            "*",
            "*.*.com",
            "a" * 64 + ".com",
            "1.2.3.4.5",
            "\u2170.example.com",
            "\u0000",
            "fe80::1%x\nfrontend evil\n    bind *:6666\n#",
            "[fe80::1%eth0]",
        ],
    )
    def test_a_domain_that_is_no_host_name_is_refused_and_the_rest_goes_on(self, domain: str) -> None:
        context = read(
            service("bad", {"domain": domain, "proto": "http"}),
            service("web", WEB),
            slice_("bad", endpoint("10.0.0.1")),
            slice_("web", endpoint("10.0.0.2")),
        )

        assert list(context.names["domains"]) == ["shop.example.com"]
        (refusal,) = context.refused
        assert (refusal.ref.name, refusal.field, refusal.reason) == (
            "bad",
            "annotation domain",
            RefusalReason.INVALID_VALUE,
        )
        assert "\n" not in refusal.value

    @pytest.mark.parametrize("proto", ["ht tp", "http\n", "http}", "", "{{x}}", "a" * 33])
    def test_a_protocol_is_one_word(self, proto: str) -> None:
        context = read(service("bad", {"domain": "a.com", "proto": proto}), slice_("bad", endpoint("10.0.0.1")))

        if proto == "http\n":  # a trailing line break is trimmed, as kubectl users often leave one
            assert context.names["domains"]["a.com"]["proto"] == "http"
        else:
            assert context.names["domains"] == {}
            assert len(context.refused) == 1

    def test_names_that_recognise_an_endpoint_are_blanked_where_they_are_no_names(self) -> None:
        entry = domains(
            service("web", WEB), slice_("web", endpoint("10.0.0.1", pod="x\n  evil", node="a b", zone="'"))
        )["shop.example.com"]

        first = entry["endpoints"][0]  # type: ignore[index]
        assert (first.pod, first.node, first.zone) == ("", "", "")

    def test_an_address_that_is_none_is_refused(self) -> None:
        context = read(service("web", WEB), slice_("web", endpoint("evil.example.com"), endpoint("10.0.0.1")))

        assert context.names["domains"]["shop.example.com"]["ips"] == ["10.0.0.1"]
        assert [r.reason for r in context.refused] == [RefusalReason.INVALID_VALUE]

    def test_labels_and_annotations_in_the_view_are_plain_words(self) -> None:
        context = read(service("web", {"team": "red", "note": "two words", "evil": "a\nb"}))

        assert context.names["cluster"].services[0].annotations == {"team": "red"}


class TestNodePorts:
    OPTIONS = PresetOptions(node_ports=True)

    def test_each_eligible_node_gets_the_traffic(self) -> None:
        exclude = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
        found = domains(
            service("web", WEB, ports=[ServicePort("web", 80, "web", 30080)], type_="NodePort"),
            slice_("web", endpoint("10.0.0.1", node="n1")),
            node("n1", "192.0.2.1"),
            node("n2", "192.0.2.2"),
            node("n3", "192.0.2.3", ready=False),
            node("n4", "192.0.2.4", cordoned=True),
            node("n5", "192.0.2.5", labels=exclude),
            options=self.OPTIONS,
        )["shop.example.com"]

        assert found["ips"] == ["192.0.2.1", "192.0.2.2"]
        assert found["port"] == 30080

    def test_local_traffic_policy_keeps_nodes_with_a_ready_endpoint(self) -> None:
        found = domains(
            service("web", WEB, ports=[ServicePort("web", 80, "web", 30080)], type_="NodePort", policy="Local"),
            slice_("web", endpoint("10.0.0.1", node="n1"), endpoint("10.0.0.2", node="n2", ready=False)),
            node("n1", "192.0.2.1"),
            node("n2", "192.0.2.2"),
            options=self.OPTIONS,
        )

        assert found["shop.example.com"]["ips"] == ["192.0.2.1"]

    def test_a_service_without_node_port_is_explained(self) -> None:
        context = read(service("web", WEB), slice_("web", endpoint("10.0.0.1")), options=self.OPTIONS)

        assert context.names["domains"]["shop.example.com"]["ips"] == []
        assert [r.reason for r in context.refused] == [RefusalReason.NO_NODE_PORT]


def test_the_order_of_the_api_does_not_matter() -> None:
    objects: list[Named] = [
        *(service(f"s{i}", {"domain": f"s{i}.example.com", "proto": "http"}) for i in range(5)),
        *(slice_(f"s{i}", endpoint(f"10.0.0.{9 - i}"), endpoint(f"10.0.1.{i}")) for i in range(5)),
    ]

    forward, backward = read(*objects), read(*reversed(objects))

    assert list(forward.names["domains"].items()) == list(backward.names["domains"].items())
    assert forward.names["cluster"] == backward.names["cluster"]
    assert snapshot(*objects).services.keys() == snapshot(*reversed(objects)).services.keys()


def test_the_census_counts_what_is_ready() -> None:
    context = read(
        service("web", WEB),
        service("other"),
        slice_("web", endpoint("10.0.0.1"), endpoint("10.0.0.2", ready=False)),
        slice_("other", endpoint("10.0.0.3"), endpoint("10.0.0.4")),
    )

    assert (context.totals.claimed, context.totals.total) == (1, 3)


@pytest.mark.parametrize("number", [-1, 65536, 10**12])
def test_a_port_that_is_none_stops_nobody(number: int) -> None:
    """The API server lets none through; a file, or a server that lies, does."""
    found = domains(
        service("bad", {"domain": "bad.example.com", "proto": "http"}),
        slice_("bad", endpoint("10.0.0.1"), ports=[EndpointPort("web", number, "TCP")]),
    )
    assert found["bad.example.com"]["endpoints"] == []


@pytest.mark.parametrize(
    "change",
    [
        "items.update({'port': 1})",
        "items.ips.append('10.0.0.9')",
        "items.pop('port')",
        "items.endpoints.clear()",
        "items.ports[0].update({'port': 1})",
    ],
)
def test_templates_cannot_change_what_they_are_given(change: str) -> None:
    web = service("web", {"domain": "a.com", "proto": "http"})
    context = read(web, slice_("web", endpoint("10.0.0.1")))
    fragment = Fragment("01.tmpl", f"{{% for domain, items in domains.items() %}}{{% do {change} %}}{{% endfor %}}")
    renderer = Renderer(FragmentSet((fragment,)), RenderOptions("/files"))
    with pytest.raises(RejectedInput, match="a given value cannot be changed") as caught:
        renderer.render(context, curdate="")
    assert caught.value.problems[0].place == "01.tmpl line 1"


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(
        service("shop", WEB | {"pyconfd.io/tls-secret": "none"}),
        service("taken", {"domain": "Shop.example.com.", "proto": "http"}, created="2026-09-01T00:00:00Z"),
        service("half", {"proto": "smtp"}),
        service("plain"),
        service("redis", {"domain": "r.example.com", "proto": "redis"}),
        asks_for_port("listening", namespace="demo", day=1),
        endpoints("hand", {"domain": "h.example.com", "proto": "http"}, subset("10.0.0.9", not_ready=("10.0.0.8",))),
        slice_("shop", endpoint("10.0.0.1"), endpoint("10.0.0.2", ready=False)),
        slice_("redis", endpoint("10.0.0.3")),
        slice_("listening", endpoint("10.0.0.4")),
    )
    assert claims(seen, "domains") == {
        "Service demo/half": ("annotations domain (missing) and proto smtp", (), {}, []),
        "Service demo/listening": (
            "annotations domain listening.example.com and proto redis",
            ("listening.example.com",),
            {
                "listening.example.com": (
                    "listening.example.com",
                    "listening.example.com",
                    ["10.0.0.4"],
                    ["listening.example.com"],
                    False,
                )
            },
            ["10.0.0.4:8080 ready"],
        ),
        "Service demo/redis": (
            "annotations domain r.example.com and proto redis",
            ("r.example.com",),
            {"r.example.com": ("r.example.com", "r.example.com", ["10.0.0.3"], ["r.example.com"], True)},
            ["10.0.0.3:8080 ready"],
        ),
        "Service demo/shop": (
            "annotations domain shop.example.com and proto http, tls-secret none (no certificate)",
            ("shop.example.com",),
            {"shop.example.com": ("shop.example.com", "shop.example.com", ["10.0.0.1"], ["shop.example.com"], False)},
            ["10.0.0.1:8080 ready", "10.0.0.2:8080 down"],
        ),
        "Service demo/taken": ("annotations domain Shop.example.com. and proto http", ("shop.example.com",), {}, []),
        "Endpoints demo/hand": (
            "annotations domain h.example.com and proto http",
            ("h.example.com",),
            {"h.example.com": ("h.example.com", "h.example.com", ["10.0.0.9"], ["h.example.com"], False)},
            ["10.0.0.8:8080 down", "10.0.0.9:8080 ready"],
        ),
    }
    assert counted(seen, "domains") == {
        "h.example.com": ["10.0.0.9"],
        "listening.example.com": ["10.0.0.4"],
        "r.example.com": ["10.0.0.3"],
        "shop.example.com": ["10.0.0.1"],
    }
