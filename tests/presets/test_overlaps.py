"""What is claimed on all addresses is claimed on each of them: overlaps go to the older claim, in all presets."""

from dataclasses import replace

import pytest

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import Service
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, Owner, Reservation, Reservations
from pyconfd.model.snapshot import HostFacts
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions, Rule, network
from pyconfd.presets.preset import PresetOptions, own_options
from tests.presets import kube2lb, kubefigurator
from tests.presets.objects import Named, snapshot
from tests.presets.test_listeners import balanced, redis

OLD, YOUNG, YOUNGEST = (f"2026-0{month}-01T00:00:00Z" for month in (1, 2, 3))
OWN = "192.0.2.1"
TCP = {"web.haproxy-mode": "tcp"}
TAKEN, PORT, RESERVED = RefusalReason.NAME_TAKEN, RefusalReason.PORT_TAKEN, RefusalReason.NAME_RESERVED
NOT_ALLOWED = RefusalReason.NOT_ALLOWED


def labelled(name: str, created: str, address: str = "*", hostname: str = "shop.example.com", **more: str) -> Service:
    """Return a Service of haproxy-kubefigurator's users; ``more`` are its options."""
    given = {"web.hostname": hostname, "web.listen-ip": address} | {f"web.{key}": each for key, each in more.items()}
    return kubefigurator.labelled(name, given, created=created)


def whole(name: str, created: str, address: str = "*") -> Service:
    """Return one that wants the whole port, in mode tcp."""
    return kubefigurator.labelled(name, TCP | {"web.listen-ip": address}, created=created)


def exposed(
    name: str, created: str, address: str | None = None, domains: str = "shop.example.com", mode: str = "http"
) -> tuple[Named, Named]:
    """Return a Service of kube2lb's users, and its pod."""
    annotations = {"kube2lb/external-domains": domains, "kube2lb/port-mode": f'{{"http": "{mode}"}}'}
    kind = "LoadBalancer" if address else "NodePort"
    made = kube2lb.service(name, annotations, type_=kind, created=created, address=address)
    return made, kube2lb.with_pod(name)


def read(presets: tuple[str, ...], *given: Named, options: PresetOptions | None = None) -> Context:
    return registry.translate(snapshot(*given), presets, options or PresetOptions())


def refused(context: Context) -> list[tuple[str, RefusalReason]]:
    found = [(refusal.ref.name, refusal.reason) for refusal in context.refused]
    return [each for each in found if each[1] is not RefusalReason.INCOMPLETE]


def routes(context: Context) -> dict[str, list[tuple[str, str]]]:
    """Return for each listener its names, and the Service that each leads to."""
    return {
        f"{each.address}:{each.port}": [(route.hostname, route.backend.split("_")[2]) for route in each.routes]
        for each in context.names["listeners"]
    }


ALL = ("*", "0.0.0.0", "::")


class TestKubefigurator:
    @pytest.mark.parametrize("everywhere", ALL)
    @pytest.mark.parametrize("address", [OWN, "::ffff:192.0.2.1", "127.0.0.1"])
    @pytest.mark.parametrize(("tcp", "reason"), [(False, TAKEN), (True, PORT)])
    def test_younger_on_an_own_address(self, everywhere: str, address: str, tcp: bool, reason: RefusalReason) -> None:
        younger = whole("b", YOUNG, address) if tcp else labelled("b", YOUNG, address)
        context = read(("kubefigurator",), labelled("a", OLD, everywhere), younger)

        assert refused(context) == [("b", reason)]
        assert len(context.names["listeners"]) == 1

    @pytest.mark.parametrize("address", ["::1", "2001:db8::1"])
    def test_all_of_ipv4_is_nothing_of_ipv6(self, address: str) -> None:
        given = labelled("a", OLD), labelled("b", YOUNG, address)

        assert refused(read(("kubefigurator",), *given)) == []
        assert refused(read(("kubefigurator",), labelled("a", OLD, "::"), given[1])) == [("b", TAKEN)]

    def test_younger_name_everywhere(self) -> None:
        context = read(("kubefigurator",), labelled("a", OLD, OWN), labelled("b", YOUNG))

        assert refused(context) == [("b", TAKEN)]

    def test_younger_port_everywhere_gets_the_other_addresses(self) -> None:
        context = read(
            ("kubefigurator",),
            whole("a", OLD, OWN),
            labelled("b", YOUNG),
            labelled("c", YOUNGEST, OWN, "c.example.com"),
        )

        assert refused(context) == [("c", PORT)]
        assert routes(context) == {"*:443": [("shop.example.com", "b")], f"{OWN}:443": []}

    def test_names_of_all_addresses_are_served_on_each(self) -> None:
        given = (
            labelled("a", OLD),
            labelled("b", YOUNG, OWN, "b.example.com"),
            labelled("c", YOUNGEST, "::", "c.example.com"),
        )
        context = read(("kubefigurator",), *given)

        everywhere = [("c.example.com", "c")]
        assert routes(context) == {
            f"{OWN}:443": [("b.example.com", "b"), *everywhere, ("shop.example.com", "a")],
            "*:443": [*everywhere, ("shop.example.com", "a")],
            ":::443": everywhere,
        }

    def test_an_address_stays_its_owners_while_a_certificate_is_missing(self) -> None:
        """Or the connections would go to who listens on all addresses."""
        given = labelled("a", OLD, OWN), labelled("b", YOUNG, "*", "b.example.com", **{"use-ssl": "false"})
        host = HostFacts(addresses=frozenset({OWN}), certificates={})
        context = registry.translate(replace(snapshot(*given), host=host), ("kubefigurator",), PresetOptions())

        assert refused(context) == [("a", RefusalReason.NO_CERTIFICATE)]
        assert routes(context) == {f"{OWN}:443": [], "*:443": [("b.example.com", "b")]}

    def test_certificates_are_for_the_names_of_their_claims(self) -> None:
        file = {"ssl-certificate": "wild.pem"}
        given = (
            labelled("z", OLD, "*", "z.example.com", **file),
            labelled("a", YOUNG, "*", "a.example.com"),
            labelled("b", YOUNG, "*", "*.example.com", **file),
            labelled("c", YOUNG, "*", "2001:db8::9"),
        )
        (listener,) = read(("kubefigurator",), *given).names["listeners"]

        assert [(each.path.rpartition("/")[2], each.names) for each in listener.certificate_list] == [
            ("wild.pem", ("z.example.com", "*.example.com")),
            ("a.example.com.pem", ("a.example.com",)),
            ("2001:db8::9.pem", ("!*",)),
        ]

    def test_many_names_of_one_certificate_stand_on_several_lines(self) -> None:
        names = [f"s{number:03d}.example.com" for number in range(500)]
        given = [labelled(name[:4], OLD, "*", name, **{"ssl-certificate": "wild.pem"}) for name in names]
        (listener,) = read(("kubefigurator",), *given).names["listeners"]

        lines = listener.certificate_list
        assert [each.path for each in lines] == [f"/etc/haproxy/ssl{'/' * n}wild.pem" for n in (1, 2, 3)]
        assert [name for each in lines for name in each.names] == names
        assert max(len(each.names) for each in lines) <= 240
        assert listener.certificates == ("/etc/haproxy/ssl/wild.pem",)


class TestKube2lb:
    @pytest.mark.parametrize("address", [OWN, "::ffff:192.0.2.1"])
    @pytest.mark.parametrize(("mode", "reason"), [("http", TAKEN), ("tcp", PORT)])
    def test_younger_on_an_own_address(self, address: str, mode: str, reason: RefusalReason) -> None:
        context = read(("kube2lb",), *exposed("a", OLD), *exposed("b", YOUNG, address, mode=mode))

        assert refused(context) == [("b", reason)]

    def test_younger_name_everywhere(self) -> None:
        context = read(("kube2lb",), *exposed("a", OLD, OWN), *exposed("b", YOUNG))

        assert refused(context) == [("b", TAKEN)]

    def test_younger_port_everywhere_gets_the_other_addresses(self) -> None:
        context = read(("kube2lb",), *exposed("a", OLD, OWN, mode="tcp"), *exposed("b", YOUNG))

        assert refused(context) == []
        assert [(port.ip, [each.name for each in there]) for port, there in context.names["by_port"]] == [
            ("0.0.0.0", ["b"]),
            (OWN, ["a"]),
        ]

    def test_names_of_all_addresses_are_served_on_each(self) -> None:
        given = *exposed("a", YOUNG, OWN, "a.example.com"), *exposed("b", OLD), *exposed("c", YOUNG, "192.0.2.2", "")
        context = read(("kube2lb",), *given)

        assert [(port.ip, [each.name for each in there]) for port, there in context.names["by_port"]] == [
            ("0.0.0.0", ["b"]),
            (OWN, ["b", "a"]),
            ("192.0.2.2", ["b", "c"]),
        ]
        assert [each.name for each in context.names["services"]] == ["b", "a", "c"]

    def test_the_older_comes_first(self) -> None:
        """What is tried one after the other is that of the older one first, whatever its name."""
        given = (
            *exposed("a", YOUNG, domains="~^.*$"),
            *exposed("b", YOUNG, domains=""),
            *exposed("z", OLD, domains="~^z.*$"),
        )
        context = read(("kube2lb",), *given)

        assert [each.name for each in context.names["services"]] == ["z", "a", "b"]
        assert [[each.name for each in there] for _, there in context.names["by_port"]] == [["z", "a", "b"]]


SHARED = Name("*:443", "shop.example.com")


class TestReservations:
    """The object of an older namespace is gone for a moment."""

    def kept(self, name: Name) -> PresetOptions:
        reservations: Reservations = {name: Reservation(Owner("Service", "elsewhere", "shop", OLD), 1.0)}
        return PresetOptions(reservations={"kubefigurator": reservations, "kube2lb": reservations})

    @pytest.mark.parametrize(
        ("place", "address", "free"),
        [("*:443", OWN, False), ("*:443", "::1", True), (f"{OWN}:443", "*", False), (f"{OWN}:443", "192.0.2.2", True)],
    )
    def test_kubefigurator_name(self, place: str, address: str, free: bool) -> None:
        context = read(
            ("kubefigurator",), labelled("b", YOUNG, address), options=self.kept(Name(place, "shop.example.com"))
        )

        assert refused(context) == ([] if free else [("b", RESERVED)])

    @pytest.mark.parametrize(
        ("place", "address", "free"),
        [("*:443", OWN, False), (f"{OWN}:443", OWN, False), (f"{OWN}:443", "*", True), ("*:444", OWN, True)],
    )
    @pytest.mark.parametrize("name", ["", "shop.example.com"])
    def test_kubefigurator_port(self, place: str, address: str, free: bool, name: str) -> None:
        context = read(("kubefigurator",), whole("b", YOUNG, address), options=self.kept(Name(place, name)))

        assert refused(context) == ([] if free else [("b", RESERVED)])

    @pytest.mark.parametrize(
        ("place", "free"), [("0.0.0.0:80/tcp", False), (f"{OWN}:80/tcp", False), ("0.0.0.0:80/udp", True)]
    )
    def test_kube2lb_name(self, place: str, free: bool) -> None:
        context = read(("kube2lb",), *exposed("b", YOUNG, OWN), options=self.kept(Name(place, "shop.example.com")))

        assert refused(context) == ([] if free else [("b", RESERVED)])


class TestPresetsTogether:
    @pytest.mark.parametrize("presets", [("kubefigurator", "kube2lb"), ("kube2lb", "kubefigurator")])
    @pytest.mark.parametrize(("first", "second"), [(OLD, YOUNG), (YOUNG, OLD)])
    def test_the_older_one_has_the_port(self, presets: tuple[str, ...], first: str, second: str) -> None:
        figured = labelled("figured", first, **{"listen-port": "80"})
        context = read(presets, figured, *exposed("exposed", second, OWN))

        # Who asks for all addresses gets the others.
        lost = [("exposed", PORT)] if first == OLD else []
        assert refused(context) == lost
        assert (Listener(OWN, 80) in context.listeners) is not bool(lost)
        same = read(presets, figured, *exposed("exposed", second))
        assert refused(same) == [("exposed" if first == OLD else "figured", PORT)]
        assert same.listeners == {Listener("0.0.0.0", 80)}

    @pytest.mark.parametrize("presets", [("domains", "kube2lb"), ("kube2lb", "domains")])
    def test_an_unknown_address_may_be_any(self, presets: tuple[str, ...]) -> None:
        context = read(presets, *redis("a"), *balanced("b", OWN))

        assert refused(context) == [("b", PORT)]

    def test_who_comes_after_a_loser_is_judged_too(self) -> None:
        """Without the first two, the third one of the same preset would be let in."""
        figured = labelled("figured", OLD, **{"listen-port": "80"})
        given = *exposed("a", YOUNG, mode="tcp"), *exposed("b", YOUNGEST, OWN), *exposed("c", YOUNGEST)
        context = read(("kube2lb", "kubefigurator"), figured, *given)

        assert sorted(refused(context)) == [("a", PORT), ("b", PORT), ("c", PORT)]
        assert context.listeners == {Listener("0.0.0.0", 80)}


class TestRules:
    @pytest.mark.parametrize(
        ("addresses", "address", "allowed"),
        [
            ((), "*", True),
            ((), "::", True),
            ((), OWN, False),
            ((), "::ffff:192.0.2.1", False),
            (("192.0.2.0/24",), OWN, True),
            (("192.0.2.0/24",), "198.51.100.1", False),
            (("192.0.2.0/24",), "2001:db8::1", False),
        ],
    )
    def test_kubefigurator(self, addresses: tuple[str, ...], address: str, allowed: bool) -> None:
        rules = ClaimOptions((Rule(("demo",), addresses=tuple(map(network, addresses))),))
        context = read(("kubefigurator",), whole("a", OLD, address), options=PresetOptions(claims=rules))

        assert refused(context) == ([] if allowed else [("a", NOT_ALLOWED)])
        assert allowed or context.refused[0].field == "annotation haproxy-kubefigurator.web.listen-ip"

    @pytest.mark.parametrize(("addresses", "allowed"), [((), False), ((OWN,), True), (("192.0.2.2",), False)])
    def test_kube2lb(self, addresses: tuple[str, ...], allowed: bool) -> None:
        rules = ClaimOptions((Rule(("demo",), addresses=tuple(map(network, addresses))),))
        options = PresetOptions(claims=rules)

        assert refused(read(("kube2lb",), *exposed("a", OLD, OWN), options=options)) == (
            [] if allowed else [("a", NOT_ALLOWED)]
        )
        default = replace(options, own=own_options(Kube2lbOptions(default_lb_ip=OWN)))
        assert refused(read(("kube2lb",), *exposed("a", OLD), *exposed("b", OLD, OWN, ""), options=default)) == []

    def test_a_namespace_without_a_rule_may_name_none(self) -> None:
        rules = ClaimOptions((Rule(("other",), addresses=(network("0.0.0.0/0"),)),))

        assert rules.address("demo", network(OWN)[0])
        assert not rules.address("other", network(OWN)[0])
        assert not ClaimOptions().address("demo", network(OWN)[0])
