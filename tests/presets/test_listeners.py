"""Who gets an address and a port where presets, the operator and other programs want one."""

from dataclasses import replace

import pytest

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import EndpointPort, Service, ServicePort
from pyconfd.model.listener import Listener, Listeners
from pyconfd.model.reservation import Reservation
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions, own_options
from tests.presets import kube2lb, kubefigurator, objects
from tests.presets.objects import Named, endpoint, slice_, snapshot

STATS = Listener("127.0.0.1", 8404)
OPERATOR = PresetOptions(reserved=Listeners({STATS: "frontend stats of the fragments"}))


def balanced(name: str, address: str | None = None, port: int = 5432, protocol: str = "TCP") -> tuple[Named, ...]:
    """Return a Service of kube2lb's users."""
    ports = (ServicePort("http", port, "web", 30080, protocol),)
    kind = "LoadBalancer" if address else "NodePort"
    behind = kube2lb.with_pod(name, ports=(EndpointPort("http", 8080, protocol),))
    return kube2lb.service(name, ports=ports, type_=kind, address=address), behind


def labelled(name: str, address: str = "*", port: int = 5432) -> Service:
    """Return a Service of haproxy-kubefigurator's users."""
    return kubefigurator.labelled(name, kubefigurator.tcp(str(port)) | {"web.listen-ip": address})


def redis(name: str, port: int = 5432) -> tuple[Named, ...]:
    """Return a Service of python-confd's users."""
    annotations = {"domain": f"{name}.example.com", "proto": "redis", "pyconfd.io/listen-port": str(port)}
    ports = [ServicePort("redis", 6379)]
    behind = slice_(name, endpoint("10.1.0.1"), ports=[EndpointPort("redis", 6379)])
    return objects.service(name, annotations, ports=ports), behind


def read(presets: tuple[str, ...], *given: Named, options: PresetOptions | None = None) -> Context:
    """Return what these presets read, in this order."""
    return registry.translate(snapshot(*given), presets, options or PresetOptions())


def refused(context: Context) -> list[tuple[str, str, RefusalReason]]:
    """Return what was refused; kube2lb also says of each NodePort Service without pods that it waits for them."""
    found = [(refusal.ref.name, refusal.value, refusal.reason) for refusal in context.refused]
    return [each for each in found if each[2] is not RefusalReason.INCOMPLETE]


TAKEN = RefusalReason.PORT_TAKEN


class TestTheOperator:
    @pytest.mark.parametrize(("address", "free"), [(None, False), ("127.0.0.1", False), ("192.0.2.1", True)])
    def test_kube2lb_leaves_out_what_falls_on_his_listener(self, address: str | None, free: bool) -> None:
        context = read(("kube2lb",), *balanced("db", address, 8404), options=OPERATOR)

        assert bool(context.names["services"]) is free
        if not free:
            (refusal,) = context.refused
            assert (str(refusal.ref), refusal.field, refusal.value) == ("Service demo/db", "spec.ports", "8404")
            assert refusal.detail.startswith("frontend stats of the fragments listens on 127.0.0.1:8404; choose")

    def test_udp_is_another_matter(self) -> None:
        assert read(("kube2lb",), *balanced("dns", None, 8404, "UDP"), options=OPERATOR).refused == ()

    def test_the_other_ports_of_a_service_go_on(self) -> None:
        ports = (ServicePort("http", 80, "web", 30080), ServicePort("admin", 8404, "web", 30081))
        pods = kube2lb.with_pod(ports=(EndpointPort("http", 8080, "TCP"), EndpointPort("admin", 8081, "TCP")))
        context = read(("kube2lb",), kube2lb.service(ports=ports), pods, options=OPERATOR)

        assert [item.port.port for item in context.names["services"]] == [80]
        assert context.listeners == {Listener("0.0.0.0", 80)}

    @pytest.mark.parametrize(("address", "free"), [("*", False), ("127.0.0.1", False), ("::", False), ("::1", True)])
    def test_kubefigurator(self, address: str, free: bool) -> None:
        context = read(("kubefigurator",), labelled("db", address, 8404), options=OPERATOR)

        assert [listener.address for listener in context.names["listeners"]] == ([address] if free else [])
        if not free:
            assert refused(context) == [("db", "8404", TAKEN)]
            assert context.refused[0].field == "annotation haproxy-kubefigurator.web.listen-port"

    @pytest.mark.parametrize(
        ("address", "port"), [("", None), ("*", None), ("127.0.0.1", None), ("192.0.2.1", 8404), ("::1", 8404)]
    )
    def test_domains_listen_where_the_fragments_bind_them(self, address: str, port: int | None) -> None:
        context = read(("domains",), *redis("r", 8404), options=replace(OPERATOR, listen_address=address))

        assert context.names["domains"]["r.example.com"]["listen_port"] == port
        assert refused(context) == ([] if port else [("r", "8404", TAKEN)])


class TestPresetsTogether:
    @pytest.mark.parametrize("first", ["domains", "kubefigurator", "kube2lb"])
    @pytest.mark.parametrize("second", ["domains", "kubefigurator", "kube2lb"])
    def test_the_older_object_keeps_its_listeners(self, first: str, second: str) -> None:
        """Of the same age here, so that the names decide; which preset is listed first does not matter."""
        if first >= second:
            return
        given = {"domains": redis("domains"), "kubefigurator": (labelled("kubefigurator"),)}
        given["kube2lb"] = balanced("kube2lb")
        alone = read((first,), *given[first])
        for presets in ((first, second), (second, first)):
            both = read(presets, *given[first], *given[second])

            assert refused(both) == [(second, "5432", TAKEN)]
            (detail,) = (refusal.detail for refusal in both.refused if refusal.reason is TAKEN)
            assert f"Service demo/{first} of preset {first} listens on " in detail
            assert both.listeners == alone.listeners

    def test_different_addresses_are_no_conflict(self) -> None:
        given = (*balanced("a", "192.0.2.1"), *balanced("b", "192.0.2.2"), labelled("c", "192.0.2.3"), *redis("d"))
        options = PresetOptions(listen_address="192.0.2.4")
        context = read(("kube2lb", "kubefigurator", "domains"), *given, options=options)

        assert refused(context) == []
        assert sorted(map(str, context.listeners)) == [f"192.0.2.{number}:5432" for number in (1, 2, 3, 4)]

    def test_one_of_two_addresses_may_be_had(self) -> None:
        given = (*balanced("a", "192.0.2.1"), labelled("b", "192.0.2.1"), labelled("c", "192.0.2.2"))
        context = read(("kube2lb", "kubefigurator"), *given)

        assert refused(context) == [("b", "5432", TAKEN)]
        assert [listener.address for listener in context.names["listeners"]] == ["192.0.2.2"]


class TestThePool:
    """Addresses of the pool are apart from who listens on all addresses: Linux takes the more specific socket."""

    POOL = PresetOptions(addresses=AddressOptions(("192.0.2.1",)))

    @pytest.mark.parametrize(
        ("where", "page", "free"),
        [
            ("*", False, True),
            ("::", False, True),
            ("192.0.2.1", False, False),
            ("host.example.com", False, False),
            ("*", True, False),
            ("192.0.2.2", True, True),
        ],
    )
    @pytest.mark.parametrize("address", ["192.0.2.1", "192.0.2.9"])
    def test_who_has_a_port_already(self, address: str, where: str, page: bool, free: bool) -> None:
        taken = Listeners({Listener.at(where, 5432): "somebody"})
        options = replace(self.POOL, status_page=taken) if page else replace(self.POOL, reserved=taken)
        apart = free if address == "192.0.2.1" else where.startswith("192.0.2.")

        context = read(("kube2lb",), *balanced("db", address), options=options)

        assert refused(context) == ([] if apart else [("db", "5432", TAKEN)])

    @pytest.mark.parametrize("pool", [True, False])
    def test_an_older_object_on_all_addresses(self, pool: bool) -> None:
        given = (*redis("a"), *balanced("b", "192.0.2.1"))
        context = read(
            ("domains", "kube2lb"), *given, options=replace(self.POOL if pool else PresetOptions(), listen_address="*")
        )

        assert refused(context) == ([] if pool else [("b", "5432", TAKEN)])

    def test_an_older_object_on_the_very_address(self) -> None:
        given = (labelled("a", "192.0.2.1"), *balanced("b", "192.0.2.1"))
        assert refused(read(("kubefigurator", "kube2lb"), *given, options=self.POOL)) == [("b", "5432", TAKEN)]


class TestOtherPrograms:
    NGINX = "nginx (pid 7) of this machine listens on 0.0.0.0:5432"

    @pytest.mark.parametrize(
        ("preset", "given", "asked"),
        [
            ("kube2lb", balanced("db", "192.0.2.1"), Listener("192.0.2.1", 5432)),
            ("kubefigurator", (labelled("db", "192.0.2.1"),), Listener("192.0.2.1", 5432)),
            ("kubefigurator", (labelled("db"),), Listener("0.0.0.0", 5432)),
            ("domains", redis("db"), Listener("", 5432)),
        ],
    )
    def test_only_what_cannot_be_had_is_left_out(self, preset: str, given: tuple[Named, ...], asked: Listener) -> None:
        free = read((preset,), *given)
        assert free.listeners == {asked}
        lost = read((preset,), *given, options=PresetOptions(taken_listeners={asked: self.NGINX}))
        assert lost.listeners == frozenset()
        assert refused(lost) == [("db", "5432", TAKEN)]
        assert lost.refused[0].detail.startswith(f"{self.NGINX}; choose another")
        elsewhere = read(
            (preset,), *given, options=PresetOptions(taken_listeners={Listener("192.0.2.99", 5432): self.NGINX})
        )
        assert (elsewhere.listeners, elsewhere.refused) == (free.listeners, ())


def test_the_default_address_decides_too() -> None:
    options = replace(OPERATOR, own=own_options(Kube2lbOptions(default_lb_ip="192.0.2.1")))
    assert read(("kube2lb",), *balanced("db", None, 8404), options=options).refused == ()


@pytest.mark.parametrize("presets", [("domains", "kubefigurator"), ("kubefigurator", "domains")])
def test_an_older_object_of_another_preset_takes_no_listener(presets: tuple[str, ...]) -> None:
    """What was given stays with the namespace, whatever preset it asks."""
    annotations = {"domain": "a.example.com", "proto": "redis", "pyconfd.io/listen-port": "5432"}
    late = "2026-05-01T00:00:00Z"
    younger = objects.service("a", annotations, ports=[ServicePort("redis", 6379)], namespace="owner", created=late)
    behind = slice_("a", endpoint("10.1.0.1"), ports=[EndpointPort("redis", 6379)], namespace="owner")
    options, older = PresetOptions(listen_address="*"), labelled("b")
    first = read(presets, younger, behind, options=options)
    had = {name: Reservation(owner) for name, owner in first.reserved["listeners"].items()}
    fresh = read(presets, younger, behind, older, options=options)
    assert {(name, reason) for name, _, reason in refused(fresh)} == {("a", RefusalReason.PORT_TAKEN)}
    options = replace(options, reservations={"listeners": had})
    kept = read(presets, younger, behind, older, options=options)
    assert {(name, reason) for name, _, reason in refused(kept)} == {("b", RefusalReason.PORT_TAKEN)}
