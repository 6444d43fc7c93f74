import pytest

from pyconfd.model.context import RefusalReason
from pyconfd.model.kubernetes import (
    EndpointAddress,
    EndpointPort,
    EndpointSubset,
    Node,
    NodeAddress,
    NodeStatus,
    ServicePort,
)
from pyconfd.model.snapshot import HostFacts
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.predecessors.kubefigurator.preset import Certificate, KubefiguratorListener
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from tests.presets.asking import claims, counted
from tests.presets.kubefigurator import NODES, backends, holding, labelled, listeners, only, read, refused, tcp, web
from tests.presets.objects import Named, endpoint, endpoints, node, slice_, snapshot


class TestDefaults:
    def test_a_host_name_alone_gives_tls_on_443_and_tls_to_every_node(self) -> None:
        context = read(labelled("shop", web("web")))

        assert context.names["listeners"] == [
            KubefiguratorListener(
                "k8s-service_all_443_listen",
                "*",
                443,
                "http",
                ("/etc/haproxy/ssl/shop.example.com.pem",),
                listeners(context)["k8s-service_all_443_listen"].routes,
                certificate_list=(Certificate("/etc/haproxy/ssl/shop.example.com.pem", ("shop.example.com",)),),
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


def test_names_of_all_addresses_are_served_where_tls_is_the_same() -> None:
    own = {"hostname": "a.example.com", "listen_ip": "192.0.2.7"}
    plain = {"hostname": "b.example.com", "listen_ip": "127.0.0.1", "listen_port": "443", "use_ssl": "false"}
    made = [web("web", **own), web("web", **plain), web("web", "c.example.com")]
    context = read(*(labelled(f"s{at}", each, created=f"2026-01-0{at + 1}T00:00:00Z") for at, each in enumerate(made)))

    names = {each.address: [route.hostname for route in each.routes] for each in listeners(context).values()}
    assert names == {
        "*": ["c.example.com"],
        "127.0.0.1": ["b.example.com"],
        "192.0.2.7": ["a.example.com", "c.example.com"],
    }
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


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(
        labelled(
            "shop",
            web("web", " Shop-CLUSTER.example.com ")
            | web("alt", "*.b.example.com", listen_port="8443")
            | {"wide.hostname": ""},
            ports=(ServicePort("web", 80, node_port=30080), ServicePort("alt", 81, node_port=30081)),
        ),
        labelled("six", web("web", "[2001:db8::1]")),
        labelled("off", web("web", "off.example.com"), label="no"),
        labelled("bare", {}),
        slice_("shop", endpoint("10.1.0.1", pod="p"), endpoint("10.1.0.2", ready=False)),
        *NODES,
    )
    assert claims(seen, "kubefigurator", PresetOptions(own=own_options(KubefiguratorOptions(cluster="c1")))) == {
        "Service demo/bare": ("label haproxy-kubefigurator.enabled yes", (), {}, []),
        "Service demo/shop": (
            "label haproxy-kubefigurator.enabled yes",
            ("*.b.example.com", "shop-c1.example.com"),
            {
                "k8s-service_demo_shop_alt_backend": (
                    "port alt",
                    "k8s-service_demo_shop_alt_backend",
                    ["10.0.0.1", "10.0.0.2"],
                    ["*.b.example.com"],
                    False,
                ),
                "k8s-service_demo_shop_web_backend": (
                    "port web",
                    "k8s-service_demo_shop_web_backend",
                    ["10.0.0.1", "10.0.0.2"],
                    ["shop-c1.example.com"],
                    False,
                ),
            },
            ["10.1.0.1:8080 ready", "10.1.0.2:8080 down"],
        ),
        "Service demo/six": (
            "label haproxy-kubefigurator.enabled yes",
            ("2001:db8::1",),
            {
                "k8s-service_demo_six_web_backend": (
                    "port web",
                    "k8s-service_demo_six_web_backend",
                    ["10.0.0.1", "10.0.0.2"],
                    ["2001:db8::1"],
                    False,
                )
            },
            [],
        ),
    }
    assert counted(seen, "kubefigurator", PresetOptions(own=own_options(KubefiguratorOptions(cluster="c1")))) == {
        "k8s-service_demo_shop_alt_backend": ["10.0.0.1", "10.0.0.2"],
        "k8s-service_demo_shop_web_backend": ["10.0.0.1", "10.0.0.2"],
        "k8s-service_demo_six_web_backend": ["10.0.0.1", "10.0.0.2"],
    }
