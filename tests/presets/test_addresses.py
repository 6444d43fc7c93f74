"""Who gets which address of the pool."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.gateway_api import (
    Gateway,
    GatewayAddress,
    GatewayClass,
    GatewayClassSpec,
    GatewayListener,
    GatewaySpec,
    ObjectReference,
)
from pyconfd.model.kubernetes import Service, ServicePort, ServiceSpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import (
    NO_OWNERS,
    NO_RESERVATIONS,
    Name,
    Owner,
    Owners,
    Reservation,
    Reservations,
    owned_by,
)
from pyconfd.model.snapshot import HostFacts, Key, Resource, Snapshot
from pyconfd.presets.addresses import (
    ADDRESSES_ANNOTATION,
    FIRST_OWNER,
    GATEWAY_CONTROLLER,
    LOAD_BALANCER_CLASS,
    SHARING_ANNOTATION,
    AddressOptions,
    AddressReason,
    AddressRequest,
    absent,
    allocate,
)
from pyconfd.presets.policy import ClaimOptions, Rule, network
from tests.presets.address_book import AddressBook, read
from tests.presets.work import calls_of

GATEWAYS, SERVICES = Resource.GATEWAYS, Resource.SERVICES
BOTH = ("gateway", "loadbalancer")
POOL = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
DUAL = ("192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2")


def gateway(name: str, *, age: int = 0, wanted: tuple[str, ...] = ("",)) -> AddressRequest:
    """Return a request for whole addresses; a greater ``age`` is an older object, ``bank/a`` another namespace's."""
    created = f"2026-01-{28 - age:02}T00:00:00Z"
    namespace, _, bare = name.rpartition("/")
    return AddressRequest(GATEWAYS, Key(namespace or "shop", bare), created, wanted)


def service(name: str, *ports: int, age: int = 0, wanted: tuple[str, ...] = ("",), sharing: str = "") -> AddressRequest:
    """Return a request for ports."""
    request = gateway(name, age=age, wanted=wanted)
    return replace(request, resource=SERVICES, ports=ports or (443,), sharing_key=sharing)


def had(**places: str) -> dict[Name, Owner]:
    """Return what objects had: ``a="1"`` is all of an address by a Gateway, ``a="1:443=key"`` a port by a Service."""
    owners = {}
    for name, texts in places.items():
        for text in texts.split():
            place, _, key = text.partition("=")
            namespace, _, bare = name.rpartition("_")
            kind = "Service" if ":" in place else "Gateway"
            owners[Name(f"192.0.2.{place}", key)] = Owner(kind, namespace or "shop", bare, "2026-01-05T00:00:00Z")
    return owners


def given_to(
    requests: list[AddressRequest],
    pool: tuple[str, ...] = POOL,
    reservations: Reservations = NO_RESERVATIONS,
    owners: Owners = NO_OWNERS,
    per_namespace: int = 0,
) -> dict[str, str]:
    """Return what each object has: the last part of each address, or why it has none."""
    found = {}
    answers = allocate(requests, pool, reservations, owners=owners, per_namespace=per_namespace)
    for (_, key), (got, problems) in answers.items():
        short = [each.rpartition(":" if ":" in each else ".")[2] + ("v6" if ":" in each else "") for each in got]
        name = key.name if key.namespace == "shop" else "/".join(key)
        found[name] = " ".join([*short, *(problem.reason for problem in problems)])
    return found


ASKED: Mapping[str, tuple[list[AddressRequest], dict[str, str]]] = {
    "each Gateway has an address of its own": ([gateway("a"), gateway("b")], {"a": "1", "b": "2"}),
    "the older one chooses first": ([gateway("a"), gateway("b", age=1)], {"b": "1", "a": "2"}),
    "Services with different ports share an address": (
        [service("a", 80), service("b", 443), service("c", 5432, 6379)],
        {"a": "1", "b": "1", "c": "1"},
    ),
    "Services with the same port do not": (
        [service("a", 80, 443), service("b", 443), service("c", 80)],
        {"a": "1", "b": "2", "c": "2"},
    ),
    "a Gateway shares with nobody": (
        [service("a", 80), gateway("b"), service("c", 443)],
        {"a": "1", "b": "2", "c": "1"},
    ),
    "who asks for any leaves what somebody names": (
        [gateway("a", age=1), gateway("b", wanted=("192.0.2.1",))],
        {"a": "2", "b": "1"},
    ),
    "unless there is nothing else": (
        [gateway("a", age=3), gateway("b", age=2), gateway("c", age=1), gateway("d", wanted=("192.0.2.1",))],
        {"a": "2", "b": "3", "c": "1", "d": "taken"},
    ),
    "a wish outside of the pool gets nothing else": (
        [gateway("a", wanted=("192.0.2.9",)), gateway("b")],
        {"a": "not_in_pool", "b": "1"},
    ),
    "of several wishes those are met that can be": (
        [gateway("a", wanted=("192.0.2.9", "192.0.2.2", "192.0.2.1"))],
        {"a": "2 1 not_in_pool"},
    ),
    "an exhausted pool touches nobody else": (
        [gateway(name) for name in "abcde"],
        {"a": "1", "b": "2", "c": "3", "d": "exhausted", "e": "exhausted"},
    ),
    "a port that is taken everywhere": (
        [service(name, 443) for name in "abcd"] + [service("e", 80)],
        {"a": "1", "b": "2", "c": "3", "d": "exhausted", "e": "1"},
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_allocation(name: str) -> None:
    requests, expected = ASKED[name]
    assert given_to(requests) == expected
    assert given_to(requests[::-1]) == expected


HAD: Mapping[str, tuple[list[AddressRequest], Owners, dict[str, str]]] = {
    "who has it keeps it, though younger": ([gateway("a", age=9), gateway("b")], had(b="1"), {"a": "2", "b": "1"}),
    "also where an older one names it": (
        [gateway("a", age=9, wanted=("192.0.2.1",)), gateway("b")],
        had(b="1"),
        {"a": "taken", "b": "1"},
    ),
    "what left the pool is replaced": ([gateway("a")], had(a="9"), {"a": "1"}),
    "another wish counts more": ([gateway("a", wanted=("192.0.2.3",))], had(a="1"), {"a": "3"}),
    "more ports at the same place": ([service("a", 80, 443)], had(a="2:443"), {"a": "2"}),
    "unless one is taken there, though it is younger": (
        [service("a", 80, 443, age=9), service("b", 80)],
        had(a="2:443", b="2:80"),
        {"a": "1", "b": "2"},
    ),
    "fewer ports": ([service("a", 443)], had(a="2:80 2:443"), {"a": "2"}),
    "an object of the same name and another kind had it": ([service("a")], had(a="2"), {"a": "1"}),
    "an object of the same name in another namespace had it": ([gateway("a")], had(bank_a="2"), {"a": "1"}),
}


@pytest.mark.parametrize("name", HAD)
def test_what_objects_had_they_keep(name: str) -> None:
    requests, owners, expected = HAD[name]
    assert given_to(requests, owners=owners) == expected
    assert given_to(requests[::-1], owners=owners) == expected


FIRST = {Name("192.0.2.1", FIRST_OWNER): Owner("Service", "shop", "a", "2026-01-05T00:00:00Z")}
SHARED: Mapping[str, tuple[list[AddressRequest], Owners, dict[str, str]]] = {
    "namespaces share nothing": (
        [service("a", 443, age=1), service("bank/a", 80)],
        NO_OWNERS,
        {"a": "1", "bank/a": "2"},
    ),
    "nor what one of them names": (
        [service("a", 443, age=1, wanted=("192.0.2.1",)), service("bank/a", 80, wanted=("192.0.2.1",))],
        NO_OWNERS,
        {"a": "1", "bank/a": "taken"},
    ),
    "with one key they do": (
        [service("a", 443, age=1, sharing="k"), service("bank/a", 80, sharing="k")],
        NO_OWNERS,
        {"a": "1", "bank/a": "1"},
    ),
    "a key on one of them is no consent": (
        [service("a", 443, age=1), service("bank/a", 80, sharing="k")],
        NO_OWNERS,
        {"a": "1", "bank/a": "2"},
    ),
    "nor are two keys": (
        [service("a", 443, age=1, sharing="k"), service("bank/a", 80, sharing="j")],
        NO_OWNERS,
        {"a": "1", "bank/a": "2"},
    ),
    "all that are there have to consent": (
        [service("a", 443, age=2, sharing="k"), service("b", 25, age=1), service("bank/a", 80, sharing="k")],
        NO_OWNERS,
        {"a": "1", "b": "1", "bank/a": "2"},
    ),
    "one port is one's own with a key too": (
        [service("a", 443, age=1, sharing="k"), service("bank/a", 443, sharing="k")],
        NO_OWNERS,
        {"a": "1", "bank/a": "2"},
    ),
    "a Gateway shares with no key": (
        [service("a", 443, age=1, sharing="k"), replace(gateway("bank/a"), sharing_key="k")],
        NO_OWNERS,
        {"a": "1", "bank/a": "2"},
    ),
    "a guest that takes the key away goes, though older": (
        [service("a", 443, sharing="k"), service("bank/a", 80, age=9)],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "1", "bank/a": "2"},
    ),
    "a guest that exchanges it goes too": (
        [service("a", 443, sharing="k"), service("bank/a", 80, age=9, sharing="j")],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "1", "bank/a": "2"},
    ),
    "the first owner takes the key away and stays, though younger": (
        [service("a", 443), service("bank/a", 80, age=9, sharing="k")],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "1", "bank/a": "2"},
    ),
    "he exchanges it and stays": (
        [service("a", 443, sharing="j"), service("bank/a", 80, age=9, sharing="k")],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "1", "bank/a": "2"},
    ),
    "another Service of his namespace does": (
        [service("a", 443, sharing="k"), service("b", 25), service("bank/a", 80, age=9, sharing="k")],
        had(a="1:443=k", b="1:25=k", bank_a="1:80=k") | FIRST,
        {"a": "1", "b": "1", "bank/a": "2"},
    ),
    "he takes no port of a guest with the same key": (
        [service("a", 80, 443, age=20, sharing="k"), service("bank/a", 80, sharing="k")],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "2", "bank/a": "1"},
    ),
    "nor one that is kept for such a guest": (
        [service("a", 80, 443, sharing="k")],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "2"},
    ),
    "he takes no port of another one of his namespace": (
        [service("a", 25, 443, age=20), service("b", 25, sharing="k"), service("bank/a", 80, sharing="k")],
        had(a="1:443=k", b="1:25=k", bank_a="1:80=k") | FIRST,
        {"a": "2", "b": "1", "bank/a": "1"},
    ),
    "he asks for a guest's port at the same time": (
        [service("a", 80, 443), service("bank/a", 80, age=9, sharing="k")],
        had(a="1:443=k", bank_a="1:80=k") | FIRST,
        {"a": "1", "bank/a": "2"},
    ),
    "a guest exchanges the key while the first owner is gone": (
        [service("bank/a", 80, age=9, sharing="j"), service("evil/a", 25, sharing="k")],
        had(bank_a="1:80=k", evil_a="1:25=k") | FIRST,
        {"bank/a": "2", "evil/a": "1"},
    ),
    "what is kept for a former guest is no bar": (
        [service("a", 443)],
        had(a="1:443", bank_a="1:80=k"),
        {"a": "1"},
    ),
    "who is alone keeps it with any key": ([service("a", 443, sharing="j")], had(a="2:443=k"), {"a": "2"}),
}


@pytest.mark.parametrize("name", SHARED)
def test_sharing_with_another_namespace(name: str) -> None:
    requests, owners, expected = SHARED[name]
    reserved = {each: Reservation(owner) for each, owner in owners.items()}
    assert given_to(requests, owners=owners, reservations=reserved) == expected
    assert given_to(requests[::-1], owners=owners, reservations=reserved) == expected


BOUND: Mapping[str, tuple[list[AddressRequest], Owners, dict[str, str]]] = {
    "one namespace leaves others something": (
        [gateway("a", age=3), gateway("b", age=2), gateway("c", age=1), gateway("bank/a")],
        NO_OWNERS,
        {"a": "1", "b": "2", "c": "too_many", "bank/a": "3"},
    ),
    "a wish is no way around it": (
        [gateway("a", age=3), gateway("b", age=2), gateway("c", age=1, wanted=("192.0.2.3",))],
        NO_OWNERS,
        {"a": "1", "b": "2", "c": "too_many"},
    ),
    "nor is a key": (
        [
            gateway("a", age=3),
            gateway("b", age=2),
            service("bank/a", age=1, sharing="k"),
            service("c", 80, sharing="k"),
        ],
        NO_OWNERS,
        {"a": "1", "b": "2", "bank/a": "3", "c": "too_many"},
    ),
    "ports of an address that it has are free": (
        [service("a", 80, age=3), gateway("b", age=2), service("c", 443)],
        NO_OWNERS,
        {"a": "1", "b": "2", "c": "1"},
    ),
    "what was given before stays": (
        [gateway("a"), gateway("b"), gateway("c")],
        had(a="1", b="2", c="3"),
        {"a": "1", "b": "2", "c": "3"},
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_a_bound_for_each_namespace(name: str) -> None:
    requests, owners, expected = BOUND[name]
    assert given_to(requests, owners=owners, per_namespace=2) == expected


RESERVED: Mapping[str, tuple[list[AddressRequest], dict[str, str]]] = {
    "a port of another namespace": ([service("a", 443)], {"a": "5"}),
    "another port there": ([service("a", 80)], {"a": "5"}),
    "the whole address": ([gateway("a")], {"a": "5"}),
    "another port, with the key that it was shared by": ([service("a", 80, sharing="j")], {"a": "2"}),
    "that port with the key": ([service("a", 26, sharing="j")], {"a": "5"}),
    "a wish": ([service("a", 443, wanted=("192.0.2.1",))], {"a": "reserved"}),
    "a wish where a port is kept for those with a key": ([service("a", 80, wanted=("192.0.2.2",))], {"a": "reserved"}),
    "one's own": ([service("bank/a", 443)], {"bank/a": "1"}),
    "all of an address": ([service("a", 5432, wanted=("192.0.2.3",))], {"a": "reserved"}),
    "who is older than what a namespace has": ([service("a", 25, age=20, wanted=("192.0.2.4",))], {"a": "reserved"}),
    "who is younger": ([service("a", 25, wanted=("192.0.2.4",))], {"a": "reserved"}),
}


@pytest.mark.parametrize("name", RESERVED)
def test_reservations_of_another_namespace(name: str) -> None:
    requests, expected = RESERVED[name]
    gone, has = (Reservation(Owner("Service", "bank", "web", "2026-01-20"), until) for until in (99.0, 0.0))
    reserved = {
        Name("192.0.2.1:443", ""): gone,
        Name("192.0.2.1:25", "j"): gone,
        Name("192.0.2.2:26", "j"): gone,
        Name("192.0.2.3", ""): gone,
        Name("192.0.2.4:25", ""): has,
    }
    assert given_to(requests, (*POOL, "192.0.2.4", "192.0.2.5"), reserved) == expected


def test_an_object_that_is_created_again_has_what_it_had() -> None:
    reserved = {Name("192.0.2.2:443", ""): Reservation(Owner("Service", "shop", "b", "2026-01-20"), 99.0)}
    assert given_to([service("a", 443, age=1), service("b", 443)], reservations=reserved) == {"a": "1", "b": "2"}
    assert given_to([service("b", 443)], reservations=reserved) == {"b": "2"}


def test_what_is_kept_for_a_namespace_counts_for_its_bound() -> None:
    """Else who creates and deletes keeps all of the pool from others."""
    kept = {
        Name(f"192.0.2.{number}", ""): Reservation(Owner("Gateway", "shop", f"gone{number}", "2026-01-20"), 99.0)
        for number in (2, 3)
    }

    def answer(request: AddressRequest) -> dict[str, str]:
        return given_to([request], reservations=kept, per_namespace=2)

    assert answer(gateway("a", wanted=("192.0.2.1",))) == {"a": "too_many"}
    assert answer(gateway("a")) == {"a": "2"}
    assert answer(gateway("gone3")) == {"gone3": "3"}
    assert answer(gateway("bank/a")) == {"bank/a": "1"}


@pytest.mark.parametrize("known", [Owner("Service", "shop", "x", "2026-01-20"), owned_by("shop")])
def test_a_node_that_knows_the_namespace_alone_gives_its_addresses_by_age(known: Owner) -> None:
    """As another balancer recorded it; the order of the records is any."""
    asked = [gateway("a", age=1), gateway("b"), gateway("bank/a", age=9)]
    names = [Name("192.0.2.3", ""), Name("192.0.2.2", "")]
    for order in (names, names[::-1]):
        reserved = {name: Reservation(known, 99.0) for name in order}
        assert given_to(asked, reservations=reserved) == {"a": "2", "b": "3", "bank/a": "1"}


def test_what_is_kept_for_a_namespace_goes_to_its_objects_in_the_order_of_the_pool() -> None:
    kept = {Name(f"192.0.2.{number}", ""): Reservation(owned_by("shop"), 99.0) for number in (3, 2)}
    assert given_to([gateway("a", age=1), gateway("b")], reservations=kept) == {"a": "2", "b": "3"}


def test_an_address_of_another_family_is_not_kept() -> None:
    assert given_to([gateway("a", wanted=("IPv6",))], DUAL, owners=had(a="1")) == {"a": "1v6"}


FAMILIES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "one of each": (("IPv4", "IPv6"), DUAL, "1 1v6"),
    "in the order that is asked for": (("IPv6", "IPv4"), DUAL, "1v6 1"),
    "IPv6 only": (("IPv6",), DUAL, "1v6"),
    "any": (("",), DUAL, "1"),
    "two of which the pool has one": (("IPv4", "IPv6"), POOL, "1"),
    "one that the pool does not have": (("IPv6",), POOL, "no_family"),
    "no pool": (("IPv6",), (), "no_pool"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str) -> None:
    wanted, pool, expected = FAMILIES[name]
    assert given_to([service("a", wanted=wanted)], pool) == {"a": expected}


def test_one_family_that_is_exhausted_does_not_take_the_other_away() -> None:
    asked = [service("a", age=1, wanted=("IPv6",)), service("b", wanted=("IPv4", "IPv6"))]
    assert given_to(asked, DUAL[:2]) == {"a": "1v6", "b": "1 exhausted"}


class TestWhatObjectsAskFor:
    def read(self, *objects: Service | Gateway, rules: ClaimOptions | None = None, **options: Any) -> dict[str, Any]:
        """Return what the objects of one namespace have."""
        found = read(snapshot(*objects), BOTH, AddressOptions(POOL, **options), rules or ClaimOptions())
        return {id_.key.name: assigned for id_, assigned in found.assigned.items()}

    def test_foreign_objects_are_given_nothing(self) -> None:
        objects = (
            load_balancer("foreign", class_="example.com/other"),
            load_balancer("none", class_=None),
            load_balancer("inside", type_="ClusterIP"),
            load_balancer("udp", protocol="UDP"),
            listening("foreign", class_="other"),
            listening("refused", class_="refused"),
            listening("unknown", class_="missing"),
            listening("hostname", GatewayAddress("Hostname", "gw.example.com")),
        )
        assert self.read(*objects) == {}
        assert set(self.read(*objects, default_class=True)) == {"none"}

    def test_a_preset_that_is_not_in_use_takes_no_address(self) -> None:
        found = read(snapshot(load_balancer("a"), listening("b")), ("gateway",), AddressOptions(POOL))
        assert found.of(SERVICES, Key("shop", "a")).addresses == ()
        assert found.of(GATEWAYS, Key("shop", "b")).addresses == ("192.0.2.1",)

    @pytest.mark.parametrize(
        ("wish", "ip", "got", "reasons"),
        [
            ("", None, ("192.0.2.1",), []),
            ("", "192.0.2.3", ("192.0.2.3",), []),
            ("192.0.2.2", "192.0.2.3", ("192.0.2.2",), []),
            (" 192.0.2.3, 192.0.2.2,", None, ("192.0.2.3", "192.0.2.2"), []),
            ("192.0.2.3,192.0.2.3", None, ("192.0.2.3",), []),
            ("::ffff:zz", None, (), [AddressReason.INVALID]),
            ("192.0.2.2 192.0.2.3", None, (), [AddressReason.INVALID]),
            ("198.51.100.1", None, (), [AddressReason.NOT_IN_POOL]),
        ],
    )
    def test_wishes_of_a_service(
        self, wish: str, ip: str | None, got: tuple[str, ...], reasons: list[AddressReason]
    ) -> None:
        found = self.read(load_balancer("a", wish=wish, ip=ip))["a"]
        assert found.addresses == got
        assert [each.reason for each in found.problems] == reasons

    def test_wishes_of_a_gateway(self) -> None:
        asked = (GatewayAddress("IPAddress", "192.0.2.9"), GatewayAddress("IPAddress", "192.0.2.2"))
        found = self.read(listening("a", *asked), listening("b", GatewayAddress("IPAddress", "")))
        assert found["a"].addresses == ("192.0.2.2",)
        assert [each[:2] for each in found["a"].problems] == [("192.0.2.9", AddressReason.NOT_IN_POOL)]
        assert found["b"].addresses == ("192.0.2.1",)

    def test_a_namespace_names_only_addresses_that_a_rule_allows(self) -> None:
        rules = ClaimOptions((Rule(("shop",), addresses=(network("192.0.2.2"),)),))
        asked = (load_balancer("a", ip="192.0.2.3"), load_balancer("b", ip="192.0.2.2"), load_balancer("c"))
        found = self.read(*asked, rules=rules)
        assert [each.reason for each in found["a"].problems] == [AddressReason.NOT_ALLOWED]
        assert (found["a"].addresses, found["b"].addresses, found["c"].addresses) == (
            (),
            ("192.0.2.2",),
            ("192.0.2.1",),
        )

    def test_a_status_gives_no_right(self) -> None:
        """Who may write it is not who was given the address."""
        claimed = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
        old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
        found = self.read(
            load_balancer("a", created=old),
            load_balancer("b", created=new, status=claimed),
            listening("c", created=new, status={"addresses": [{"value": "192.0.2.1"}]}),
        )
        assert [found[name].addresses for name in "abc"] == [("192.0.2.1",), ("192.0.2.2",), ("192.0.2.3",)]

    @pytest.mark.parametrize("key", ["-k", "k" * 64, "k k", "k\n", "schlüssel"])
    def test_a_sharing_key_that_is_none_is_told(self, key: str) -> None:
        found = self.read(load_balancer("a", sharing=key))["a"]
        assert [each.reason for each in found.problems] == ([] if key == "k\n" else [AddressReason.INVALID_KEY])
        assert found.addresses == ("192.0.2.1",)


@pytest.mark.parametrize(
    ("address", "host", "missing"),
    [
        ("192.0.2.1", HostFacts(), False),
        ("192.0.2.1", HostFacts(frozenset({"127.0.0.1"})), True),
        ("192.0.2.1", HostFacts(frozenset({"192.0.2.1"})), False),
        ("192.0.2.1", HostFacts(frozenset({"127.0.0.1"}), nonlocal_bind_v4=True), False),
        ("2001:db8::1", HostFacts(frozenset({"127.0.0.1"}), nonlocal_bind_v4=True), True),
        ("127.0.0.9", HostFacts(frozenset({"127.0.0.1"})), False),
    ],
)
def test_an_address_that_this_machine_cannot_listen_on(address: str, host: HostFacts, missing: bool) -> None:
    assert bool(absent(address, host)) is missing


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
ADDRESSES = st.sampled_from(["", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.9"])


@st.composite
def changes(draw: st.DrawFn) -> tuple[Key, Any]:
    """One Service or Gateway that appears, changes, or (None) goes; or one whose status is written ("")."""
    key = Key("shop", draw(NAMES))
    kind = draw(st.sampled_from(["service", "gateway", "gone", "written"]))
    created, ip = f"2026-01-0{draw(st.integers(1, 5))}T00:00:00Z", draw(ADDRESSES)
    wanted = draw(ADDRESSES)
    if kind == "service":
        status = {"loadBalancer": {"ingress": [{"ip": ip}]}}
        port = draw(st.sampled_from([80, 443]))
        return key, load_balancer(key.name, port=port, wish=wanted, status=status, created=created)
    if kind == "gateway":
        status = {"addresses": [{"value": ip}]}  # type: ignore[dict-item]
        return key, listening(key.name, GatewayAddress("IPAddress", wanted), status=status, created=created)
    return key, None if kind == "gone" else ""


@given(st.lists(changes(), max_size=12), st.booleans())
def test_an_allocation_that_builds_on_a_former_one_is_that_of_a_fresh_one(
    steps: list[tuple[Key, Any]], remembers: bool
) -> None:
    objects: dict[tuple[type, Key], Any] = {}
    previous: AddressBook | None = None
    for key, made in steps:
        if made is None:
            objects.pop((Service, key), None)
            objects.pop((Gateway, key), None)
        elif made == "":
            if (old := objects.get((Service, key))) is not None and previous is not None:
                ingress = [{"ip": each} for each in previous.of(SERVICES, key).addresses]
                objects[Service, key] = Service(old.metadata, old.spec, {"loadBalancer": {"ingress": ingress}})
        else:
            objects[type(made), key] = made
        now = snapshot(*objects.values())
        owners = previous.owners if previous is not None and remembers else NO_OWNERS
        built = read(now, BOTH, AddressOptions(POOL), ClaimOptions(), previous, owners=owners)
        fresh = read(now, BOTH, AddressOptions(POOL), owners=owners)
        assert (built.assigned, built.owners) == (fresh.assigned, fresh.owners)
        if remembers:
            again = read(now, BOTH, AddressOptions(POOL), owners=built.owners)
            assert (again.assigned, again.owners) == (built.assigned, built.owners)
        previous = built


def test_a_written_status_changes_no_object() -> None:
    before = read(snapshot(load_balancer("a"), load_balancer("b")), BOTH, AddressOptions(POOL))
    written = load_balancer("a", status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})
    now = snapshot(written, load_balancer("b"))
    after = read(now, BOTH, AddressOptions(POOL), ClaimOptions(), before, owners=before.owners)
    assert after.owners is before.owners
    assert all(after.assigned[each] is mine for each, mine in before.assigned.items())


def test_what_another_balancer_recorded_counts_without_a_change_of_objects() -> None:
    now = snapshot(load_balancer("a"), load_balancer("b"))
    before = read(now, BOTH, AddressOptions(POOL))
    owners = had(a="3:443", b="1:443")
    after = read(now, BOTH, AddressOptions(POOL), previous=before, owners=owners)
    assert [after.of(SERVICES, Key("shop", name)).addresses for name in "ab"] == [("192.0.2.3",), ("192.0.2.1",)]


def test_a_reservation_that_another_balancer_recorded_counts_without_a_change_of_objects() -> None:
    now, own = snapshot(load_balancer("a")), Name("192.0.2.1:443", "")
    before = read(now, BOTH, AddressOptions(POOL))
    mine, foreign = (
        {own: Reservation(Owner("Service", each, "a", "2026-01-01T00:00:00Z"))} for each in ("shop", "bank")
    )
    for reserved, address in ((mine, "192.0.2.1"), (foreign, "192.0.2.2"), (mine, "192.0.2.1")):
        after = read(now, BOTH, AddressOptions(POOL), previous=before, reservations=reserved)
        assert after.of(SERVICES, Key("shop", "a")).addresses == (address,)


def test_what_is_not_reserved_any_more_may_be_had_without_a_change_of_objects() -> None:
    now, pool = snapshot(load_balancer("a")), AddressOptions(POOL[:1])
    reserved = {Name("192.0.2.1:443", ""): Reservation(Owner("Service", "bank", "a", "2026"), 9.0)}
    before = read(now, BOTH, pool, reservations=reserved)
    assert [each.reason for each in before.of(SERVICES, Key("shop", "a")).problems] == [AddressReason.EXHAUSTED]
    after = read(now, BOTH, pool, previous=before)
    assert after.of(SERVICES, Key("shop", "a")).addresses == ("192.0.2.1",)


def load_balancer(
    name: str,
    *,
    class_: str | None = LOAD_BALANCER_CLASS,
    type_: str = "LoadBalancer",
    protocol: str = "TCP",
    port: int = 443,
    wish: str = "",
    ip: str | None = None,
    status: Any = None,
    created: str = "2026-01-01T00:00:00Z",
    sharing: str = "",
) -> Service:
    """Return a Service that may ask for an address."""
    annotations = {ADDRESSES_ANNOTATION: wish} if wish else {}
    meta = ObjectMeta(name, "shop", creation_timestamp=created, annotations=annotations | {SHARING_ANNOTATION: sharing})
    ports = (ServicePort("web", port, protocol=protocol),)
    return Service(meta, ServiceSpec(ports, type_, load_balancer_class=class_, load_balancer_ip=ip), status)


def listening(
    name: str,
    *wanted: GatewayAddress,
    class_: str = "pyconfd",
    status: Any = None,
    created: str = "2026-01-01T00:00:00Z",
) -> Gateway:
    """Return a Gateway that may ask for an address."""
    meta = ObjectMeta(name, "shop", creation_timestamp=created)
    return Gateway(meta, GatewaySpec(class_, (GatewayListener("http", port=80),), wanted or None), status)


def snapshot(*objects: Service | Gateway) -> Snapshot:
    """Return a cluster with three classes of Gateways: pyconfd's, another's, and one that cannot be accepted."""
    parameters = ObjectReference("", "ConfigMap", "x")
    classes = (
        GatewayClass(ObjectMeta("pyconfd"), GatewayClassSpec(GATEWAY_CONTROLLER)),
        GatewayClass(ObjectMeta("other"), GatewayClassSpec("example.com/other")),
        GatewayClass(ObjectMeta("refused"), GatewayClassSpec(GATEWAY_CONTROLLER, parameters)),
    )
    return Snapshot(
        services={Key("shop", each.metadata.name): each for each in objects if isinstance(each, Service)},
        gateways={Key("shop", each.metadata.name): each for each in objects if isinstance(each, Gateway)},
        gatewayclasses={Key("", each.metadata.name): each for each in classes},
    )


def test_twice_as_many_sharing_keys_at_an_address_are_twice_the_work() -> None:
    def work(count: int) -> int:
        mob = [service(f"a{number}", number, sharing=f"k{number}") for number in range(1, count)]
        guests = [service(f"bank/b{number}", 2_000 + number, sharing="k1", age=1) for number in range(count)]
        others = [gateway(f"bank/c{number}", wanted=("192.0.2.1",)) for number in range(count)]
        return calls_of(lambda: allocate([*mob, *guests, *others], POOL))

    assert work(400) < 2.5 * work(200)


def test_many_ports_are_shown_shortened() -> None:
    few, many = service("few", *range(1, 9)), service("many", *range(1, 1_001))
    told = allocate([*(gateway(f"bank/{each}", age=1) for each in "abc"), few, many], POOL)
    assert [each.detail for request in (few, many) for each in told[request.id].problems] == [
        f"the setting addresses.pool has no address with the ports 1, 2, 3, 4, 5, 6, 7, 8{more} free: add addresses"
        for more in ("", " and 992 more")
    ]


def test_by_other_settings_each_keeps_what_it_was_given_last() -> None:
    young = load_balancer("young", created="2026-01-02T00:00:00Z")
    objects = snapshot(young), snapshot(young, load_balancer("old"))
    before, after = AddressOptions(("192.0.2.1", "192.0.2.2")), AddressOptions(("192.0.2.3", "192.0.2.2", "192.0.2.1"))
    books: list[AddressBook] = []
    for seen, options in ((objects[0], before), (objects[1], before), (objects[1], after)):
        last = books[-1] if books else None
        books.append(read(seen, BOTH, options, previous=last, owners=last.owners if last else NO_OWNERS))
    given = [{each: books[at].of(SERVICES, Key("shop", each)).addresses for each in ("old", "young")} for at in (1, 2)]
    assert given == [{"old": ("192.0.2.2",), "young": ("192.0.2.1",)}] * 2
