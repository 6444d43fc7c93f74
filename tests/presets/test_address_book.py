"""What objects ask of the pool of addresses, the words for what they cannot have, and what is remembered of it."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from pyconfd.model.kubernetes import Service, ServicePort, ServiceSpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import NEVER, Name, Owner, Owners, Reservation
from pyconfd.model.snapshot import HostFacts, Key, Resource, Snapshot
from pyconfd.presets.addresses import (
    FIRST_OWNER,
    LOAD_BALANCER_CLASS,
    AddressOptions,
    AddressProblem,
    AddressReason,
    AddressRequest,
    absent,
    allocate,
    is_served,
)
from pyconfd.presets.policy import ClaimOptions, Rule, network
from tests.presets.address_book import AddressBook, read

SERVICES = Resource.SERVICES
POOL = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
ONE = POOL[:1]
A, B = Key("shop", "a"), Key("shop", "b")


def request(name: str, *ports: int, namespace: str = "shop", day: int = 1, **more: Any) -> AddressRequest:
    return AddressRequest(SERVICES, Key(namespace, name), f"2026-01-{day:02}", ports=ports, **more)


def whole(name: str, **more: Any) -> AddressRequest:
    return replace(request(name, **more), resource=Resource.GATEWAYS)


def problems_of(
    asked: list[AddressRequest], pool: tuple[str, ...] = POOL, reserved: Any = None, per_namespace: int = 0
) -> list[tuple[str, str]]:
    """Return what the last one cannot have, and why."""
    found = allocate(asked, pool, reserved or {}, per_namespace=per_namespace)
    return [(each.wanted, each.detail) for each in found[asked[-1].id].problems]


BANK = Owner("Service", "bank", "web", "2026-01-01")
SHARED = "Service shop/a has this address, and shares it with Services of an equal annotation {}"
ALL = "namespace shop has the 2 that addresses.per_namespace allows"
KEPT = "namespace bank has this until 1970-01-01T00:01:39Z: its object is gone and may come back"


@pytest.mark.parametrize(
    ("asked", "wanted", "detail"),
    [
        ([whole("a", wanted=("192.0.2.9",))], "192.0.2.9", "this address is not in the setting addresses.pool"),
        ([whole("a", wanted=("IPv6",))], "IPv6", "the setting addresses.pool has no IPv6 address"),
        (
            [request("a", 80, wanted=ONE), whole("b", day=2, wanted=ONE)],
            "192.0.2.1",
            "Service shop/a has this address already; ask for another one, or for none",
        ),
        (
            [request("a", 80, wanted=ONE), request("b", 443, wanted=ONE), request("c", 443, day=2, wanted=ONE)],
            "192.0.2.1",
            "Service shop/b has this address already; ask for another one, or for none",
        ),
        (
            # Of several users the oldest one is named.
            [request("b", 80, day=2, wanted=ONE), request("a", 443, wanted=ONE), whole("c", day=3, wanted=ONE)],
            "192.0.2.1",
            "Service shop/a has this address already; ask for another one, or for none",
        ),
        (
            [request("a", 80, wanted=ONE), request("b", 443, namespace="bank", day=2, wanted=ONE)],
            "192.0.2.1",
            SHARED.format("pyconfd.io/sharing-key"),
        ),
        (
            [*(whole(name) for name in "abc"), whole("d", day=2)],
            "",
            "the setting addresses.pool has no address that is free: add addresses",
        ),
        (
            [*(whole(name) for name in "abc"), request("d", 80, 443, day=2, wanted=("IPv4",))],
            "IPv4",
            "the setting addresses.pool has no IPv4 address with the ports 80, 443 free: add addresses",
        ),
    ],
)
def test_why_an_address_cannot_be_had(asked: list[AddressRequest], wanted: str, detail: str) -> None:
    assert problems_of(asked) == [(wanted, detail)]


def test_why_there_is_none_at_all() -> None:
    assert problems_of([whole("a", wanted=("IPv4",))], ()) == [
        ("IPv4", "there is no pool of addresses: set addresses.pool")
    ]
    assert problems_of([whole("a"), whole("b"), whole("c", day=2)], per_namespace=2) == [
        ("", f"{ALL}: delete a Gateway or Service")
    ]
    # A Gateway has all of an address; a Service may have other ports of one.
    assert problems_of([whole("a"), whole("b"), request("c", 80, day=2)], per_namespace=2) == [
        ("", f"{ALL}: ask for ports that are free at one of them")
    ]


def test_the_oldest_user_is_named_though_a_younger_one_had_it_before() -> None:
    asked = [request("a", 80, wanted=ONE), request("b", 443, day=2, wanted=ONE), whole("c", day=3, wanted=ONE)]
    had = {Name("192.0.2.1:443", ""): Owner("Service", "shop", "b", "2026-01-02")}
    [problem] = allocate(asked, POOL, owners=had)[asked[-1].id].problems
    assert problem.detail == "Service shop/a has this address already; ask for another one, or for none"


@pytest.mark.parametrize(("days", "oldest"), [((1, 2), "shop/a"), ((2, 1), "team/b")])
def test_of_namespaces_that_share_an_address_the_oldest_user_is_named(days: tuple[int, int], oldest: str) -> None:
    asked = [
        request("a", 80, day=days[0], wanted=ONE, sharing_key="k"),
        request("b", 443, namespace="team", day=days[1], wanted=ONE, sharing_key="k"),
        whole("c", namespace="late", day=3, wanted=ONE),
    ]
    [problem] = allocate(asked, POOL)[asked[-1].id].problems
    detail = f"Service {oldest} has this address already; ask for another one, or for none"
    assert problem == AddressProblem(POOL[0], AddressReason.TAKEN, detail)


def test_for_whom_it_is_reserved() -> None:
    [(_, gone)] = problems_of(
        [whole("a", wanted=("192.0.2.1",))], reserved={Name(POOL[0], ""): Reservation(BANK, 99.0)}
    )
    assert gone.startswith(KEPT)
    asked = [whole("a", wanted=("192.0.2.1",))]
    assert problems_of(asked, reserved={Name(POOL[0], ""): Reservation(BANK)}) == [
        ("192.0.2.1", "namespace bank has it")
    ]


def test_reasons_after_which_another_address_may_be_asked_for() -> None:
    assert {each for each in AddressReason if not each.is_about_one_address} == {
        AddressReason.NO_POOL,
        AddressReason.NO_FAMILY,
        AddressReason.EXHAUSTED,
        AddressReason.TOO_MANY,
    }


def test_requests() -> None:
    one = request("a", 80, 443, sharing_key="k")
    assert str(one) == "Service shop/a"
    assert one.owner == Owner("Service", "shop", "a", "2026-01-01")
    assert list(one.places("192.0.2.1")) == [Name("192.0.2.1:80", "k"), Name("192.0.2.1:443", "k")]
    assert list(one.places("2001:db8::1")) == [Name("[2001:db8::1]:80", "k"), Name("[2001:db8::1]:443", "k")]
    assert list(whole("a").places("192.0.2.1")) == [Name("192.0.2.1", "")]
    twins = [request("b"), request("a"), request("z", day=2), request("a", namespace="bank")]
    ranked = sorted(twins, key=lambda each: each.rank)
    assert [str(each) for each in ranked] == [f"Service {each}" for each in ("bank/a", "shop/a", "shop/b", "shop/z")]


ABSENT = (
    "not on this machine, so nothing reaches it: `ip address add {address} dev DEVICE`,"
    " or net.{family}.ip_nonlocal_bind=1 if it floats"
)


@pytest.mark.parametrize(
    ("address", "host", "why"),
    [
        ("192.0.2.1", HostFacts(), ""),
        (
            "192.0.2.1",
            HostFacts(frozenset({"127.0.0.1"})),
            ABSENT.format(address="192.0.2.1", family="ipv4"),
        ),
        (
            "2001:db8::1",
            HostFacts(frozenset({"::1"}), nonlocal_bind_v4=True),
            ABSENT.format(address="2001:db8::1", family="ipv6"),
        ),
        ("2001:db8::1", HostFacts(frozenset({"::1"}), nonlocal_bind_v6=True), ""),
        ("192.0.2.1", HostFacts(frozenset({"::1"}), nonlocal_bind_v6=True), "not on this machine"),
    ],
)
def test_an_address_that_is_not_here(address: str, host: HostFacts, why: str) -> None:
    found = absent(address, host)
    assert found.startswith(why) if why else not found


def balancer(
    name: str = "a",
    *ports: ServicePort,
    namespace: str = "shop",
    class_: str | None = LOAD_BALANCER_CLASS,
    type_: str = "LoadBalancer",
    families: tuple[str, ...] | None = None,
    created: str | None = "2026-01-01",
    **annotations: str,
) -> Service:
    names = {"wish": "pyconfd.io/addresses", "sharing": "pyconfd.io/sharing-key"}
    meta = ObjectMeta(
        name,
        namespace,
        creation_timestamp=created,
        annotations={names[each]: value for each, value in annotations.items()} or None,
    )
    spec = ServiceSpec(ports or (ServicePort("web", 443),), type_, load_balancer_class=class_, ip_families=families)
    return Service(meta, spec)


def book(
    *services: Service, rules: ClaimOptions | None = None, previous: AddressBook | None = None, **more: Any
) -> AddressBook:
    found = Snapshot(services={Key(each.metadata.namespace, each.metadata.name): each for each in services})
    return read(found, ("loadbalancer",), AddressOptions(POOL), rules or ClaimOptions(), previous, **more)


def asked_by(service: Service, rules: ClaimOptions | None = None) -> AddressRequest | None:
    return book(service, rules=rules).requests.get(A)


@pytest.mark.parametrize(
    ("type_", "class_", "default_class", "expected"),
    [
        ("LoadBalancer", LOAD_BALANCER_CLASS, False, True),
        ("LoadBalancer", None, False, False),
        ("LoadBalancer", None, True, True),
        ("LoadBalancer", "", True, True),
        ("LoadBalancer", "other", True, False),
        ("ClusterIP", LOAD_BALANCER_CLASS, True, False),
    ],
)
def test_which_services_are_served(type_: str, class_: str | None, default_class: bool, expected: bool) -> None:
    options = AddressOptions(default_class=default_class)
    assert is_served(balancer(type_=type_, class_=class_), options) is expected


def port(number: int, protocol: str | None = "TCP") -> ServicePort:
    return ServicePort(f"p{number}", number, protocol=protocol)


SOME_PORTS = ClaimOptions((Rule(("shop",), ports=((80, 89), (443, 443))),))
NO_TCP = ClaimOptions((Rule(("shop",), protocols=("http",)),))


@pytest.mark.parametrize(
    ("ports", "rules", "found"),
    [
        ((port(443), port(80)), None, (80, 443)),
        ((port(443), port(443, "UDP"), port(53, "UDP")), None, (443,)),
        ((port(80, None),), None, (80,)),
        ((port(53, "UDP"),), None, None),
        ((port(443), port(25)), SOME_PORTS, (443,)),
        ((port(25),), SOME_PORTS, None),
        ((port(443),), NO_TCP, None),
    ],
)
def test_the_ports_that_a_service_needs(
    ports: tuple[ServicePort, ...], rules: ClaimOptions | None, found: tuple[int, ...] | None
) -> None:
    asked = asked_by(balancer("a", *ports), rules)
    assert (asked.ports if asked else None) == found


@pytest.mark.parametrize(
    ("families", "wish", "wanted"),
    [
        (None, "", ("",)),
        ((), "", ("",)),
        (("IPv6", "IPv4"), "", ("IPv6", "IPv4")),
        (("IPv6", "IPv9"), "", ("IPv6",)),
        (("IPv6",), "192.0.2.2", ("192.0.2.2",)),
        (None, " IPv6 , 2001:DB8::0:1,IPv6", ("IPv6", "2001:db8::1")),
    ],
)
def test_what_a_service_wants(families: tuple[str, ...] | None, wish: str, wanted: tuple[str, ...]) -> None:
    asked = asked_by(balancer(families=families, wish=wish))
    assert asked is not None
    assert (asked.wanted, asked.problems) == (wanted, ())


def test_what_is_wrong_with_a_wish() -> None:
    rules = ClaimOptions((Rule(("shop",), addresses=(network("192.0.2.2"),)),))
    asked = asked_by(balancer(wish="x y,192.0.2.3,192.0.2.2", sharing=" -k "), rules)
    assert asked is not None
    assert (asked.wanted, asked.sharing_key) == (("192.0.2.2",), "")
    assert asked.problems == (
        AddressProblem("x y", AddressReason.INVALID, "not an IP address"),
        AddressProblem("192.0.2.3", AddressReason.NOT_ALLOWED, rules.address("shop", ip_address("192.0.2.3"))),
        AddressProblem(
            "-k",
            AddressReason.INVALID_KEY,
            "expected up to 63 letters, digits, '-', '_' and '.': it is shared with no other namespace",
        ),
    )


def test_a_service_without_annotations_or_time_asks_as_any() -> None:
    assert asked_by(balancer(created=None)) == AddressRequest(SERVICES, A, NEVER, ("",), (443,))
    assert asked_by(balancer(sharing=" k ")) == AddressRequest(SERVICES, A, "2026-01-01", ("",), (443,), "k")


def shared(name: str, number: int, namespace: str, **more: Any) -> Service:
    return balancer(name, port(number), namespace=namespace, sharing="k", wish=POOL[0], **more)


def test_what_is_remembered_of_an_address_that_namespaces_share() -> None:
    first = shared("a", 80, "shop")
    alone = book(first)
    assert alone.owners == {Name("192.0.2.1:80", "k"): Owner("Service", "shop", "a", "2026-01-01")}
    both = book(first, shared("b", 443, "bank", created="2025-01-01"), previous=alone, owners=alone.owners)
    mine = Owner("Service", "shop", "a", "2026-01-01")
    assert both.owners == {
        Name("192.0.2.1:80", "k"): mine,
        Name("192.0.2.1:443", "k"): Owner("Service", "bank", "b", "2025-01-01"),
        # Who had it before is first, though younger.
        Name(POOL[0], FIRST_OWNER): mine,
    }


@pytest.mark.parametrize(
    ("owners", "reserved", "first"),
    [
        ({}, {}, "a"),
        ({Name(POOL[0], FIRST_OWNER): Owner("Service", "bank", "c", "2026-01-01")}, {}, "c"),
        # Its object is gone: another one of its namespace, rather one that had a part.
        ({Name(POOL[0], FIRST_OWNER): Owner("Service", "bank", "gone", "2026-01-01")}, {}, "b"),
        (
            {
                Name(POOL[0], FIRST_OWNER): Owner("Service", "bank", "gone", "2026-01-01"),
                Name("192.0.2.1:25", "k"): Owner("Service", "bank", "c", "2026-01-01"),
            },
            {},
            "c",
        ),
        ({}, {Name(POOL[0], FIRST_OWNER): Reservation(Owner("Service", "bank", "x", "2026-01-01"), 99.0)}, "b"),
        ({}, {Name(POOL[0], FIRST_OWNER): Reservation(Owner("Service", "none", "x", "2026-01-01"), 99.0)}, None),
    ],
)
def test_who_is_first_at_an_address_that_namespaces_share(owners: Owners, reserved: Any, first: str | None) -> None:
    services = [
        shared("a", 80, "shop"),
        shared("b", 443, "bank", created="2026-01-02"),
        shared("c", 25, "bank", created="2026-01-03"),
    ]
    found = book(*services, owners=owners, reservations=reserved).owners.get(Name(POOL[0], FIRST_OWNER))
    assert (found.name if found else None) == first


def test_the_bound_for_a_namespace_is_that_of_the_options() -> None:
    now = Snapshot(services={A: balancer("a"), B: balancer("b", wish="192.0.2.2")})
    found = read(now, ("loadbalancer",), AddressOptions(POOL, per_namespace=1))
    assert [found.of(SERVICES, key).addresses for key in (A, B)] == [("192.0.2.1",), ()]
    assert read(now, ("loadbalancer",), AddressOptions(POOL)).of(SERVICES, B).addresses == ("192.0.2.2",)


def test_other_terms_share_the_pool_out_again() -> None:
    before = book(balancer("a"))
    found = read(before.snapshot, ("loadbalancer",), AddressOptions(POOL[1:]), ClaimOptions(), before)
    assert found.of(SERVICES, A).addresses == ("192.0.2.2",)
    assert read(before.snapshot, (), AddressOptions(POOL)).assigned == {}


def test_who_is_told_until_when_an_address_is_reserved_is_told_when_that_changes() -> None:
    service, name = balancer(wish=POOL[0]), Name(POOL[0], "")
    before = book(service, reservations={name: Reservation(BANK, 99.0)})
    after = book(service, previous=before, reservations={name: Reservation(BANK, 199.0)})
    [problem] = after.of(SERVICES, A).problems
    assert "1970-01-01T00:03:19Z" in problem.detail
