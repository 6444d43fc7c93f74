from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest

from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.host import HostFacts
from pyconfd.model.kubernetes import (
    EndpointAddress,
    EndpointPort,
    EndpointSubset,
    Node,
    NodeAddress,
    NodeStatus,
    Service,
    ServicePort,
)
from pyconfd.presets import registry
from pyconfd.presets.kubefigurator import Backend, Listener
from pyconfd.presets.reading import KubefiguratorOptions, PresetOptions
from tests.presets.objects import Named, endpoint, endpoints, node, service, slice_, snapshot

PREFIX = "haproxy-kubefigurator."
NODES = (node("n1", "10.0.0.1"), node("n2", "10.0.0.2"))
HOST = HostFacts(addresses=frozenset({"127.0.0.1", "192.0.2.7", "2001:db8::7"}))


def labelled(
    name: str,
    annotations: Mapping[str, str] | None = None,
    *,
    ports: Sequence[ServicePort] = (ServicePort("web", 80, node_port=30080),),
    created: str | None = "2026-01-01T00:00:00Z",
    label: str = "yes",
    policy: str | None = None,
    families: tuple[str, ...] | None = None,
) -> Service:
    given = {PREFIX + key: value for key, value in (annotations or {}).items()}
    made = service(name, given, ports=ports, created=created, type_="NodePort", policy=policy, families=families)
    labels = {f"{PREFIX}enabled": label}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def web(name: str, hostname: str = "shop.example.com", **changes: str) -> dict[str, str]:
    return {f"{name}.hostname": hostname} | {f"{name}.{key.replace('_', '-')}": each for key, each in changes.items()}


def tcp(port: str) -> dict[str, str]:
    return {"web.haproxy-mode": "tcp", "web.listen-port": port}


def read(*objects: Named, host: HostFacts = HOST, options: PresetOptions | None = None, **own: object) -> Context:
    mine = KubefiguratorOptions(**own)  # type: ignore[arg-type]
    seen = replace(snapshot(*objects, *NODES), host=host)
    return registry.translate(seen, ("kubefigurator",), replace(options or PresetOptions(), kubefigurator=mine))


def listeners(context: Context) -> dict[str, Listener]:
    return {listener.name: listener for listener in context.names["listeners"]}


def backends(context: Context) -> dict[str, Backend]:
    return {backend.name: backend for backend in context.names["backends"]}


def only(context: Context) -> Backend:
    (backend,) = backends(context).values()
    return backend


def refused(context: Context) -> list[tuple[str, RefusalReason]]:
    return [(refusal.ref.name, refusal.reason) for refusal in context.refused]


def holding(certificates: Mapping[str, str]) -> HostFacts:
    return replace(HOST, certificates=certificates)


class TestDefaults:
    def test_a_host_name_alone_gives_tls_on_443_and_tls_to_every_node(self) -> None:
        context = read(labelled("shop", web("web")))

        assert context.names["listeners"] == [
            Listener(
                "k8s-service_all_443_listen",
                "*",
                443,
                "http",
                ("/etc/haproxy/ssl/shop.example.com.pem",),
                listeners(context)["k8s-service_all_443_listen"].routes,
            )
        ]
        backend = only(context)
        assert (backend.mode, backend.balance, backend.ssl, backend.verify) == ("http", "roundrobin", True, False)
        assert [(e.node, e.address, e.port) for e in backend.endpoints] == [
            ("n1", "10.0.0.1", 30080),
            ("n2", "10.0.0.2", 30080),
        ]
        assert context.refused == ()

    def test_mode_tcp_has_no_tls_on_either_side(self) -> None:
        context = read(labelled("db", tcp("5432")))

        (listener,) = listeners(context).values()
        assert (listener.mode, listener.certificates, listener.routes) == ("tcp", (), ())
        assert listener.default_backend == only(context).name == "k8s-service_demo_db_web_backend"
        assert only(context).ssl is False

    def test_backends_follow_the_frontends_certificate(self) -> None:
        plain = read(labelled("shop", web("web", use_ssl="false")))
        secured = read(labelled("db", tcp("5432") | web("web", "db.example.com", use_ssl="true")))

        assert only(plain).ssl is False
        assert only(secured).ssl is True

    @pytest.mark.parametrize("label", ["no", "true", "", "YES"])
    def test_only_the_label_yes_counts(self, label: str) -> None:
        context = read(labelled("shop", web("web"), label=label))

        assert context.names["listeners"] == []
        assert context.refused == ()

    def test_an_unnamed_port_is_annotated_with_two_dots(self) -> None:
        context = read(labelled("shop", web(""), ports=[ServicePort(None, 80, node_port=30080)]))

        assert list(backends(context)) == ["k8s-service_demo_shop__backend"]

    def test_only_ports_with_a_node_port_are_served(self) -> None:
        ports = [ServicePort("web", 80, node_port=30080), ServicePort("admin", 81)]
        context = read(labelled("shop", web("web"), ports=ports))

        assert list(backends(context)) == ["k8s-service_demo_shop_web_backend"]
        assert context.refused == ()


class TestHostNames:
    def test_the_first_cluster_is_replaced(self) -> None:
        context = read(labelled("shop", web("web", "CLUSTER-x.CLUSTER.example.com")), cluster="ny")

        (listener,) = listeners(context).values()
        assert [route.hostname for route in listener.routes] == ["ny-x.cluster.example.com"]
        assert listener.certificates == ("/etc/haproxy/ssl/ny-x.CLUSTER.example.com.pem",)

    def test_cluster_without_a_name_is_explained(self) -> None:
        (refusal,) = read(labelled("shop", web("web", "CLUSTER-x.example.com"))).refused

        assert "kubefigurator.cluster" in refusal.detail

    def test_whole_names_come_before_wildcards_and_the_longest_wildcard_first(self) -> None:
        names = ["*.example.com", "*.a.example.com", "z.example.com", "b.a.example.com"]
        context = read(*(labelled(f"s{at}", web("web", name)) for at, name in enumerate(names)))

        (listener,) = listeners(context).values()
        assert [(r.hostname, r.wildcard) for r in listener.routes] == [
            ("b.a.example.com", False),
            ("z.example.com", False),
            (".a.example.com", True),
            (".example.com", True),
        ]

    def test_http_without_a_host_name_is_explained(self) -> None:
        (refusal,) = read(labelled("shop")).refused

        assert refusal.reason is RefusalReason.INCOMPLETE
        assert refusal.field == "annotation haproxy-kubefigurator.web.hostname"


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

    def test_a_preset_listed_first_keeps_its_ports(self) -> None:
        redis = {"domain": "r.example.com", "proto": "redis", "pyconfd.io/listen-port": "5432"}
        ports = [ServicePort("redis", 6379)]
        pods = slice_("redis", endpoint("10.1.0.1"), ports=[EndpointPort("redis", 6379)])
        objects = (service("redis", redis, ports=ports), pods, labelled("db", tcp("5432")))
        context = registry.translate(snapshot(*objects), ("domains", "kubefigurator"), PresetOptions())
        swapped = registry.translate(snapshot(*objects), ("kubefigurator", "domains"), PresetOptions())

        assert refused(context) == [("db", RefusalReason.PORT_TAKEN)]
        assert refused(swapped) == [("redis", RefusalReason.PORT_TAKEN)]
        assert swapped.names["domains"]["r.example.com"]["listen_port"] is None


class TestCertificates:
    """Failure class 13: a missing certificate costs one host, never the configuration."""

    SSL = "/etc/haproxy/ssl"

    def test_only_the_host_without_its_certificate_is_left_out(self) -> None:
        there = holding({f"{self.SSL}/shop.example.com.pem": ""})
        context = read(labelled("shop", web("web")), labelled("blog", web("web", "blog.example.com")), host=there)

        (listener,) = listeners(context).values()
        assert listener.certificates == (f"{self.SSL}/shop.example.com.pem",)
        assert [route.hostname for route in listener.routes] == ["shop.example.com"]
        assert list(backends(context)) == ["k8s-service_demo_shop_web_backend"]
        assert refused(context) == [("blog", RefusalReason.NO_CERTIFICATE)]

    def test_a_file_that_cannot_be_loaded_counts_as_missing_and_says_why(self) -> None:
        there = holding({f"{self.SSL}/shop.example.com.pem": "the file has no private key"})
        context = read(labelled("shop", web("web")), host=there)

        assert context.names["listeners"] == []
        assert "no private key" in context.refused[0].detail

    def test_its_name_is_kept_for_it(self) -> None:
        there = holding({f"{self.SSL}/thief.pem": ""})
        thief = labelled("thief", web("web", ssl_certificate="thief.pem"), created="2026-02-01T00:00:00Z")
        context = read(labelled("shop", web("web")), thief, host=there)

        assert context.names["backends"] == []
        assert refused(context) == [("shop", RefusalReason.NO_CERTIFICATE), ("thief", RefusalReason.NAME_TAKEN)]

    def test_where_nothing_is_known_nothing_is_missing(self) -> None:
        assert len(listeners(read(labelled("shop", web("web")), host=HostFacts()))) == 1

    def test_one_certificate_for_several_hosts_stands_once(self) -> None:
        hosts = ["b.example.com", "a.example.com"]
        context = read(*(labelled(f"s{h[0]}", web("web", h, ssl_certificate="w.pem")) for h in hosts))

        (listener,) = listeners(context).values()
        assert listener.certificates == (f"{self.SSL}/w.pem",)

    def test_verification_needs_its_authorities(self) -> None:
        asks = labelled("shop", web("web", backends_verify_ssl="true"))
        there = {f"{self.SSL}/shop.example.com.pem": ""}
        missing = read(asks, host=holding(there), ca_file="/etc/ca.pem")
        found = read(asks, host=holding({**there, "/etc/ca.pem": ""}), ca_file="/etc/ca.pem")

        assert refused(missing) == [("shop", RefusalReason.NO_CERTIFICATE)]
        assert (only(found).verify, only(found).ca_file) == (True, "/etc/ca.pem")
        assert only(read(asks, host=holding(there))).ca_file == "@system-ca"


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
            ("listen-port", "22", RefusalReason.INVALID_VALUE),
            ("listen-port", "40000", RefusalReason.INVALID_VALUE),
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

    def test_a_port_of_the_operators_fragments(self) -> None:
        reserved = PresetOptions(reserved_ports=frozenset({443}))
        assert refused(read(labelled("shop", web("web")), options=reserved)) == [("shop", RefusalReason.PORT_TAKEN)]

    def test_a_port_of_another_program_on_this_host(self) -> None:
        asked = read(labelled("shop", web("web")))
        assert asked.listen_ports == {443}
        without = read(labelled("shop", web("web")), options=PresetOptions(contested_ports=asked.listen_ports))
        assert refused(without) == [("shop", RefusalReason.PORT_TAKEN)]
        assert without.listen_ports == frozenset()

    def test_an_annotation_without_effect_is_explained(self) -> None:
        context = read(labelled("shop", web("web") | {"wbe.listen-port": "8443"}))

        (refusal,) = context.refused
        assert refusal.field == "annotation haproxy-kubefigurator.wbe.listen-port"
        assert "(web)" in refusal.detail
        assert len(listeners(context)) == 1

    def test_a_service_without_node_ports_is_explained(self) -> None:
        context = read(labelled("shop", web("web"), ports=[ServicePort("web", 80)]))

        assert RefusalReason.NO_NODE_PORT in {refusal.reason for refusal in context.refused}


class TestNodes:
    """Failure classes 6, 7, 17 and 18 where traffic goes to node ports."""

    def addresses(self, *objects: Named, **own: object) -> list[tuple[str, str]]:
        return [(e.address, e.state) for e in only(read(*objects, **own)).endpoints]  # type: ignore[arg-type]

    def test_nodes_that_are_not_ready_or_cordoned_are_left_out(self) -> None:
        others = (node("n3", "10.0.0.3", ready=False), node("n4", "10.0.0.4", cordoned=True))
        assert self.addresses(labelled("shop", web("web")), *others) == [("10.0.0.1", "ready"), ("10.0.0.2", "ready")]

    def test_local_traffic_goes_to_nodes_that_run_it_and_drains_where_it_ends(self) -> None:
        pods = slice_(
            "shop",
            endpoint("10.1.0.1", node="n2"),
            endpoint("10.1.0.2", node="n1", ready=False, serving=True, terminating=True),
        )
        found = self.addresses(labelled("shop", web("web"), policy="Local"), pods)
        assert found == [("10.0.0.1", "draining"), ("10.0.0.2", "ready")]

    def test_endpoints_of_the_old_kind_count_only_where_there_are_no_slices(self) -> None:
        on_n1 = EndpointSubset((EndpointAddress("10.1.0.1", "n1"),), None, (EndpointPort("web", 8080, "TCP"),))
        old, local = endpoints("shop", None, on_n1), labelled("shop", web("web"), policy="Local")
        pods = slice_("shop", endpoint("10.1.0.1", node="n2"))

        assert self.addresses(local, old) == [("10.0.0.1", "ready")]
        assert self.addresses(local, old, pods) == [("10.0.0.2", "ready")]

    def test_a_service_of_one_family_gets_node_addresses_of_that_family(self) -> None:
        both = NodeStatus(
            (NodeAddress("InternalIP", "10.0.0.9"), NodeAddress("InternalIP", "fd00::9")),
            node("x", "10.0.0.9").status.conditions,
        )
        dual = Node(node("n9", "10.0.0.9").metadata, status=both)
        assert self.addresses(labelled("shop", web("web"), families=("IPv6",)), dual) == [("fd00::9", "ready")]

    def test_tcp_and_udp_of_one_number_are_told_apart(self) -> None:
        ports = [
            ServicePort("udp", 53, node_port=30053, protocol="UDP"),
            ServicePort("web", 53, node_port=30054, protocol="TCP"),
        ]
        context = read(labelled("dns", tcp("5353"), ports=ports))

        assert [endpoint.port for endpoint in only(context).endpoints] == [30054, 30054]
        assert [refusal.value for refusal in context.refused] == ["udp UDP"]

    def test_traffic_may_go_to_pods(self) -> None:
        pods = slice_("shop", endpoint("10.1.0.1", pod="shop-1"), endpoint("10.1.0.2", ready=False))
        backend = only(read(labelled("shop", web("web")), pods, node_ports=False))

        assert backend.node_port == 0
        assert [(e.address, e.port, e.pod) for e in backend.endpoints] == [("10.1.0.1", 8080, "shop-1")]


def test_names_stand_under_the_presets_own_name_too() -> None:
    names = registry.translate(
        snapshot(labelled("shop", web("web"))), ("domains", "kubefigurator"), PresetOptions()
    ).names

    assert names["kubefigurator"]["listeners"] is names["listeners"]
    assert names["domains"] == {}
