"""Preset kubefigurator: each value is what it must be, and of two claimants the older one wins."""

from dataclasses import replace

import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import (
    Service,
    ServicePort,
)
from pyconfd.model.snapshot import HostFacts
from tests.presets.kubefigurator import HOST, labelled, listeners, read, refused, tcp, web


class TestWhoHasWhat:
    """Failure class 12: deterministic, and the loser is told by whom it lost."""

    OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

    def check(self, winner: Service, loser: Service, reason: RefusalReason) -> Refusal:
        both = [read(winner, loser), read(loser, winner)]
        assert both[0] == both[1]
        assert [backend.service for backend in both[0].names["backends"]] == [winner.metadata.name]
        assert refused(both[0]) == [(loser.metadata.name, reason)]
        assert f"demo/{winner.metadata.name}" in both[0].refused[0].detail
        return both[0].refused[0]

    def test_two_tcp_services_on_one_port(self) -> None:
        old, young = labelled("z", tcp("5432")), labelled("a", tcp("5432"), created=self.YOUNG)
        self.check(old, young, RefusalReason.PORT_TAKEN)

    def test_http_and_tcp_on_one_port(self) -> None:
        old = labelled("z", tcp("443"))
        self.check(old, labelled("a", web("web"), created=self.YOUNG), RefusalReason.PORT_TAKEN)

    def test_tls_and_none_on_one_port(self) -> None:
        old = labelled("z", web("web", "z.example.com", use_ssl="false"))
        self.check(old, labelled("a", web("web"), created=self.YOUNG), RefusalReason.PORT_TAKEN)

    def test_one_host_name_twice(self) -> None:
        refusal = self.check(
            labelled("z", web("web")), labelled("a", web("web", "SHOP.example.com"), created=self.YOUNG),
            RefusalReason.NAME_TAKEN,
        )  # fmt: skip
        assert refusal.value == "shop.example.com"

    def test_twins_are_decided_by_their_names(self) -> None:
        self.check(labelled("a", web("web")), labelled("b", web("web")), RefusalReason.NAME_TAKEN)

    def test_an_object_without_a_time_never_wins(self) -> None:
        self.check(labelled("z", web("web")), labelled("a", web("web"), created=None), RefusalReason.NAME_TAKEN)

    def test_every_address_written_in_two_ways_is_one_listener(self) -> None:
        old = labelled("z", tcp("5432") | {"web.listen-ip": "0.0.0.0"})
        self.check(old, labelled("a", tcp("5432"), created=self.YOUNG), RefusalReason.PORT_TAKEN)

    def test_one_host_name_on_two_listeners(self) -> None:
        context = read(labelled("a", web("web")), labelled("b", web("web", listen_port="8443")))

        assert len(listeners(context)) == 2
        assert context.refused == ()


class TestValues:
    @pytest.mark.parametrize(
        ("option", "value", "reason"),
        [
            ("hostname", "a.com } || { always_true", RefusalReason.INVALID_VALUE),
            ("hostname", "a.com\n  http-request deny", RefusalReason.INVALID_VALUE),
            ("hostname", "${SECRET}", RefusalReason.INVALID_VALUE),
            ("hostname", "fe80::1%x } || { always_true", RefusalReason.INVALID_VALUE),
            ("listen-ip", "10.0.0.1 ssl crt /etc/passwd", RefusalReason.INVALID_VALUE),
            ("listen-ip", "fe80::1%eth0", RefusalReason.INVALID_VALUE),
            ("listen-ip", "198.51.100.1", RefusalReason.NO_SUCH_ADDRESS),
            ("listen-port", "0", RefusalReason.INVALID_VALUE),
            ("listen-port", "65979", RefusalReason.INVALID_VALUE),
            ("listen-port", "https", RefusalReason.INVALID_VALUE),
            ("listen-port", "22", RefusalReason.NOT_ALLOWED),
            ("listen-port", "40000", RefusalReason.NOT_ALLOWED),
            ("haproxy-mode", "health", RefusalReason.INVALID_VALUE),
            ("use-ssl", "yes", RefusalReason.INVALID_VALUE),
            ("backends-use-ssl", "no", RefusalReason.INVALID_VALUE),
            ("backends-verify-ssl", "1", RefusalReason.INVALID_VALUE),
            ("ssl-certificate", "../../passwd", RefusalReason.INVALID_VALUE),
            ("ssl-certificate", "a/../../b.pem", RefusalReason.INVALID_VALUE),
            ("ssl-certificate", "a.pem verify none", RefusalReason.INVALID_VALUE),
            ("ssl-certificate", "/etc/shadow", RefusalReason.INVALID_VALUE),
            ("backends-balance-method", "fastest", RefusalReason.INVALID_VALUE),
            ("backends-balance-method", "roundrobin\n  server x 1.2.3.4:1", RefusalReason.INVALID_VALUE),
            ("backends-balance-method", "hdr(X) } || {", RefusalReason.INVALID_VALUE),
        ],
    )
    def test_what_is_not_what_it_must_be_costs_only_its_own_port(
        self, option: str, value: str, reason: RefusalReason
    ) -> None:
        ports = [ServicePort("web", 80, node_port=30080), ServicePort("good", 81, node_port=30081)]
        annotations = web("web", "bad.example.com") | {f"web.{option}": value} | web("good")
        context = read(labelled("shop", annotations, ports=ports))

        assert [backend.port for backend in context.names["backends"]] == ["good"]
        (refusal,) = context.refused
        assert (refusal.reason, refusal.field) == (reason, f"annotation haproxy-kubefigurator.web.{option}")
        assert refusal.detail

    @pytest.mark.parametrize(
        ("mode", "method", "taken"),
        [
            ("http", "leastconn", True),
            ("tcp", "source", True),
            ("http", "random(2)", True),
            ("http", "random(0)", False),
            ("http", "uri", True),
            ("http", "uri  whole len 12", True),
            ("tcp", "uri", False),
            ("tcp", "first", True),
            ("http", "url_param user", True),
            ("http", "hdr(X-User)", True),
            ("http", "hdr(Host) use_domain_only", True),
            ("tcp", "rdp-cookie(msts)", True),
            ("http", "static-rr", True),
            ("http", "", True),
            ("tcp", "hdr(X)", False),
        ],
    )
    def test_balance_methods(self, mode: str, method: str, taken: bool) -> None:
        annotations = web("web", backends_balance_method=method, haproxy_mode=mode, use_ssl="false")
        context = read(labelled("shop", annotations))

        found = [backend.balance for backend in context.names["backends"]]
        assert found == ([" ".join(method.split()) or "roundrobin"] if taken else [])

    @pytest.mark.parametrize("address", ["192.0.2.7", "127.9.9.9", "::", "2001:db8::7", "[2001:db8::7]", "*"])
    def test_addresses_of_this_machine(self, address: str) -> None:
        assert len(listeners(read(labelled("db", tcp("5432") | {"web.listen-ip": address})))) == 1

    def test_an_address_that_moves_between_machines(self) -> None:
        moving = replace(HOST, nonlocal_bind_v4=True)
        asks = labelled("db", tcp("5432") | {"web.listen-ip": "198.51.100.1"})
        assert len(listeners(read(asks, host=moving))) == 1
        assert len(listeners(read(asks, host=HostFacts()))) == 1

    def test_an_annotation_without_effect_is_explained(self) -> None:
        context = read(labelled("shop", web("web") | {"wbe.listen-port": "8443"}))

        (refusal,) = context.refused
        assert refusal.field == "annotation haproxy-kubefigurator.wbe.listen-port"
        assert "(web)" in refusal.detail
        assert len(listeners(context)) == 1

    def test_a_service_without_node_ports_is_explained(self) -> None:
        context = read(labelled("shop", web("web"), ports=[ServicePort("web", 80)]))

        assert RefusalReason.NO_NODE_PORT in {refusal.reason for refusal in context.refused}
