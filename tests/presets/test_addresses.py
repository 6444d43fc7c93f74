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
from pyconfd.model.reservation import NO_RESERVATIONS, Name, Reservation, Reservations
from pyconfd.model.snapshot import HostFacts, Key, Resource, Snapshot
from pyconfd.presets import addresses
from pyconfd.presets.addresses import (
    ADDRESSES_ANNOTATION,
    GATEWAY_CONTROLLER,
    LOAD_BALANCER_CLASS,
    NO_ADDRESSES,
    AddressOptions,
    AddressReason,
    AddressRequest,
    absent,
    allocate,
)
from pyconfd.presets.policy import ClaimOptions, Rule, network

GATEWAYS, SERVICES = Resource.GATEWAYS, Resource.SERVICES
BOTH = ("gateway", "loadbalancer")
POOL = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
DUAL = ("192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2")


def gateway(name: str, *, age: int = 0, wanted: tuple[str, ...] = ("",), current: str = "") -> AddressRequest:
    """Return a request for whole addresses; a greater ``age`` is an older object."""
    created = f"2026-01-{28 - age:02}T00:00:00Z"
    return AddressRequest(GATEWAYS, Key("shop", name), created, wanted, (), tuple(current.split()))


def service(name: str, *ports: int, age: int = 0, wanted: tuple[str, ...] = ("",), current: str = "") -> AddressRequest:
    """Return a request for ports."""
    request = gateway(name, age=age, wanted=wanted, current=current)
    return replace(request, resource=SERVICES, ports=ports or (443,))


def given_to(
    requests: list[AddressRequest],
    pool: tuple[str, ...] = POOL,
    reservations: Reservations = NO_RESERVATIONS,
) -> dict[str, str]:
    """Return what each object has: the last part of each address, or why it has none."""
    found = {}
    for (_, key), (got, problems) in allocate(requests, pool, reservations).items():
        short = [each.rpartition(":" if ":" in each else ".")[2] + ("v6" if ":" in each else "") for each in got]
        found[key.name] = " ".join([*short, *(problem.reason for problem in problems)])
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
    "who stands in the status keeps it, though younger": (
        [gateway("a", age=9), gateway("b", current="192.0.2.1")],
        {"a": "2", "b": "1"},
    ),
    "of two with one address in their status the older keeps it": (
        [gateway("a", current="192.0.2.1"), gateway("b", age=1, current="192.0.2.1")],
        {"b": "1", "a": "2"},
    ),
    "an address in the status that left the pool is replaced": ([gateway("a", current="192.0.2.9")], {"a": "1"}),
    "an address in the status that is no address is nothing": ([gateway("a", current="none :: *")], {"a": "1"}),
    "another wish counts more than the status": (
        [gateway("a", wanted=("192.0.2.3",), current="192.0.2.1")],
        {"a": "3"},
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
        [gateway(name) for name in "abcd"],
        {"a": "1", "b": "2", "c": "3", "d": "exhausted"},
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


RESERVED: Mapping[str, tuple[list[AddressRequest], dict[str, str]]] = {
    "a port of another namespace": ([service("a", 443)], {"a": "2"}),
    "another port there": ([service("a", 80)], {"a": "1"}),
    "the whole address": ([gateway("a")], {"a": "2"}),
    "a wish": ([service("a", 443, wanted=("192.0.2.1",))], {"a": "reserved"}),
    "in the status": ([service("a", 443, current="192.0.2.1")], {"a": "2"}),
    "one's own": ([replace(service("a", 443), key=Key("bank", "a"))], {"a": "1"}),
    "all of an address": ([service("a", 5432, wanted=("192.0.2.3",))], {"a": "reserved"}),
    "who is older than what a namespace has again": ([service("a", 25, age=20)], {"a": "1"}),
    "who is younger": ([service("a", 25)], {"a": "2"}),
}


@pytest.mark.parametrize("name", RESERVED)
def test_reservations_of_another_namespace(name: str) -> None:
    requests, expected = RESERVED[name]
    gone, again = Reservation("bank", "2026-01-20", 99.0), Reservation("bank", "2026-01-20", 0.0)
    reserved = {Name("192.0.2.1:443", ""): gone, Name("192.0.2.3", ""): gone, Name("192.0.2.1:25", ""): again}
    assert given_to(requests, reservations=reserved) == expected


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
        found = addresses.read(
            snapshot(*objects), BOTH, AddressOptions(POOL, **options), rules or ClaimOptions(), NO_ADDRESSES
        )
        return {key.name: assigned for mine in found.assigned.values() for key, assigned in mine.items()}

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
        found = addresses.read(snapshot(load_balancer("a"), listening("b")), ("gateway",), AddressOptions(POOL))
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

    @pytest.mark.parametrize(
        "status", [None, {}, {"loadBalancer": []}, {"loadBalancer": {"ingress": [None, {"ip": 7}]}}]
    )
    def test_a_status_of_any_form_is_read(self, status: Any) -> None:
        assert self.read(load_balancer("a", status=status))["a"].addresses == ("192.0.2.1",)

    def test_the_status_keeps_an_address(self) -> None:
        current = {"loadBalancer": {"ingress": [{"ip": "192.0.2.3"}]}}
        found = self.read(
            load_balancer("a", status=current), listening("b", status={"addresses": [{"value": "192.0.2.2"}]})
        )
        assert (found["a"].addresses, found["b"].addresses) == (("192.0.2.3",), ("192.0.2.2",))


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


@given(st.lists(changes(), max_size=12))
def test_an_allocation_that_builds_on_a_former_one_is_that_of_a_fresh_one(steps: list[tuple[Key, Any]]) -> None:
    objects: dict[tuple[type, Key], Any] = {}
    former = NO_ADDRESSES
    for key, made in steps:
        if made is None:
            objects.pop((Service, key), None)
            objects.pop((Gateway, key), None)
        elif made == "":
            if (old := objects.get((Service, key))) is not None:
                ingress = [{"ip": each} for each in former.of(SERVICES, key).addresses]
                objects[Service, key] = Service(old.metadata, old.spec, {"loadBalancer": {"ingress": ingress}})
        else:
            objects[type(made), key] = made
        now = snapshot(*objects.values())
        built = addresses.read(now, BOTH, AddressOptions(POOL), ClaimOptions(), former)
        assert built.assigned == addresses.read(now, BOTH, AddressOptions(POOL)).assigned
        former = built


def test_a_written_status_changes_no_object() -> None:
    before = addresses.read(snapshot(load_balancer("a"), load_balancer("b")), BOTH, AddressOptions(POOL))
    written = load_balancer("a", status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})
    after = addresses.read(snapshot(written, load_balancer("b")), BOTH, AddressOptions(POOL), ClaimOptions(), before)
    assert after.assigned is before.assigned


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
) -> Service:
    """Return a Service that may ask for an address."""
    meta = ObjectMeta(
        name, "shop", creation_timestamp=created, annotations={ADDRESSES_ANNOTATION: wish} if wish else None
    )
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
