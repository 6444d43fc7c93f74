"""Random tenants who create, edit and delete what asks for addresses of the pool, and write any status."""

from collections import defaultdict
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.gateway_api import (
    Gateway,
    GatewayAddress,
    GatewayClass,
    GatewayClassSpec,
    GatewayListener,
    GatewaySpec,
)
from pyconfd.model.kubernetes import Service, ServicePort, ServiceSpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import Name, NameRegister, Owner
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import address_ownership, addresses
from pyconfd.presets.addresses import (
    ADDRESSES_ANNOTATION,
    FIRST_OWNER,
    GATEWAY_CONTROLLER,
    LOAD_BALANCER_CLASS,
    RESERVED,
    SHARING_ANNOTATION,
    AddressOptions,
)
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo

POOL = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1")
PER_NAMESPACE = 2
OPTIONS = PresetOptions(addresses=AddressOptions(POOL, per_namespace=PER_NAMESPACE))
CLASS = GatewayClass(ObjectMeta("pyconfd"), GatewayClassSpec(GATEWAY_CONTROLLER))
_ADDRESSES = st.sampled_from(["", *POOL])


class Asked(NamedTuple):
    """One object as its tenant wrote it; ``ports`` () is a Gateway."""

    created: str
    ports: tuple[int, ...]
    wish: str
    key: str
    status: str

    def service(self, at: Key) -> Service:
        annotations = {ADDRESSES_ANNOTATION: self.wish, SHARING_ANNOTATION: self.key}
        meta = ObjectMeta(at.name, at.namespace, creation_timestamp=self.created, annotations=annotations)
        ports = tuple(ServicePort(f"p{port}", port) for port in self.ports)
        status = {"loadBalancer": {"ingress": [{"ip": self.status}]}}
        return Service(meta, ServiceSpec(ports, "LoadBalancer", load_balancer_class=LOAD_BALANCER_CLASS), status)

    def gateway(self, at: Key) -> Gateway:
        meta = ObjectMeta(at.name, at.namespace, creation_timestamp=self.created)
        wanted = (GatewayAddress("IPAddress", self.wish),) if self.wish else None
        listeners = (GatewayListener("http", port=80),)
        status: Any = {"addresses": [{"value": self.status}]}
        return Gateway(meta, GatewaySpec("pyconfd", listeners, wanted), status)


_OBJECTS = st.builds(
    Asked,
    created=st.integers(1, 9).map(lambda day: f"2026-01-0{day}T00:00:00Z"),
    ports=st.sampled_from([(), (80,), (443,), (80, 443), (25,)]),
    wish=_ADDRESSES,
    key=st.sampled_from(["", "", "k", "j"]),
    status=_ADDRESSES,
)
_KEYS = st.builds(Key, st.sampled_from(["shop", "bank", "evil"]), st.sampled_from(["a", "b", "c"]))
_STEPS = st.lists(st.tuples(_KEYS, st.none() | _OBJECTS), min_size=1, max_size=14)


def snapshot(there: dict[Key, Asked]) -> Snapshot:
    return Snapshot(
        services={key: each.service(key) for key, each in there.items() if each.ports},
        gateways={key: each.gateway(key) for key, each in there.items() if not each.ports},
        gatewayclasses={Key("", "pyconfd"): CLASS},
    )


def test_a_port_of_an_address_that_a_gateway_has_left_waits_too() -> None:
    gateway, service = Key("bank", "a"), Key("shop", "a")
    asks = Asked("2026-01-02T00:00:00Z", (80,), POOL[0], "", "")
    had = Asked("2026-01-01T00:00:00Z", (), "", "", "")
    register = NameRegister()
    seen = []
    for now, there in (
        (0, {gateway: had}),
        (1, {gateway: had, service: asks}),
        (2, {service: asks}),
        (70, {service: asks}),
    ):
        names = FormerNames(register, float(now), 60.0)
        context = Translator(("gateway", "loadbalancer"), OPTIONS, names=names).translate(snapshot(there))
        register = context.register
        seen.append([owner.namespace for owner in context.owners.get(RESERVED, {}).values()])
    assert seen == [["bank"], ["bank"], [], ["shop"]]


def test_the_first_owner_of_a_shared_address_ends_the_sharing() -> None:
    owner, guest = Key("shop", "a"), Key("bank", "a")
    shares, alone = (Asked("2026-01-02T00:00:00Z", (443,), "", key, "") for key in ("k", ""))
    asks = Asked("2026-01-01T00:00:00Z", (80,), POOL[0], "k", "")
    register, memo = NameRegister(), Memo()
    seen = []
    for now, there in enumerate(
        (
            {owner: alone},
            {owner: shares},
            {owner: shares, guest: asks},
            {owner: alone, guest: asks},
            {owner: alone, guest: asks},
            {owner: shares, guest: asks},
            {guest: asks},
            {owner: shares, guest: asks},
            {owner: alone, guest: asks},
        )
    ):
        names = FormerNames(register, float(now), 60.0)
        context = Translator(("loadbalancer",), OPTIONS, memo, names).translate(snapshot(there))
        register = context.register
        given_to = context.owners[RESERVED].items()
        seen.append({(name.place.removeprefix("192.0."), name.name): each.namespace for name, each in given_to})
    mine, with_key, of_guest = {("2.1:443", ""): "shop"}, {("2.1:443", "k"): "shop"}, {("2.1:80", "k"): "bank"}
    together = with_key | of_guest | {("2.1", FIRST_OWNER): "shop"}
    assert seen == [mine, with_key, together, mine, mine, together, of_guest, together, mine]


def test_addresses_are_shared_out_only_when_that_may_change_something(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, late, other = Key("shop", "a"), Key("bank", "b"), Key("bank", "c"), Key("evil", "a")
    web = Asked("2026-01-01T00:00:00Z", (443,), "", "", "")
    waits = Asked("2026-01-02T00:00:00Z", (443,), POOL[0], "", "")
    allocate = Mock(wraps=addresses.allocate)
    monkeypatch.setattr(address_ownership, "allocate", allocate)
    register, memo, shared_out = NameRegister(), Memo(), list[float]()
    steps: list[tuple[float, dict[Key, Asked]]] = [
        (0, {a: web}),
        (1, {a: web}),
        (2, {a: web, b: web}),
        (3, {a: web, b: web}),
        (4, {a: web}),
        (5, {a: web}),
        (6, {a: web, late: waits}),
        (7, {a: web, late: waits}),
        (8, {late: waits}),
        (9, {late: waits}),
        (10, {late: waits}),
        (99, {late: waits}),
        (100, {late: waits}),
    ]
    for now, there in steps:
        allocate.reset_mock()
        names = FormerNames(register, now, 60.0)
        seen = snapshot({other: web._replace(wish=POOL[2]), **there})
        context = Translator(("loadbalancer",), OPTIONS, memo, names).translate(seen)
        shared_out += [now] if allocate.called else []
        assert context.refused == Translator(("loadbalancer",), OPTIONS, None, names).translate(seen).refused
        register = context.register
    assert shared_out == [0, 2, 4, 6, 8, 9, 99]
    assert register.owners[RESERVED][Name("192.0.2.1:443", "")] == Owner("Service", *late, waits.created)


_OLD, _NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
_TAKEN_BY_A_YOUNGER_ONE: list[tuple[Key, Asked | None]] = [
    (Key("evil", "a"), Asked(_OLD, (), POOL[2], "", "")),
    (Key("evil", "a"), Asked(_OLD, (80,), POOL[0], "", "")),
    (Key("evil", "a"), Asked(_OLD, (80,), POOL[1], "", "")),
    (Key("shop", "a"), Asked(_OLD, (), "", "", "")),
    (Key("shop", "a"), None),
    (Key("bank", "a"), Asked(_NEW, (), "", "", "")),
    (Key("shop", "a"), None),
]


@example(_TAKEN_BY_A_YOUNGER_ONE, 60.0)
@given(_STEPS, st.sampled_from([0.0, 60.0]))
def test_nobody_touches_what_another_was_given(steps: list[tuple[Key, Asked | None]], keep_s: float) -> None:
    register, memo = NameRegister(), Memo()
    there: dict[Key, Asked] = {}
    had: dict[Key, set[str]] = {}
    was_first: dict[str, str] = {}
    for now, (changed, asked) in enumerate(steps):
        before = there.get(changed)
        there = {key: each for key, each in {**there, changed: asked}.items() if each is not None}
        names = FormerNames(register, float(now), keep_s)
        context = Translator(("gateway", "loadbalancer"), OPTIONS, memo, names).translate(snapshot(there))
        fresh = Translator(("gateway", "loadbalancer"), OPTIONS, None, names).translate(snapshot(there))
        given_to = context.owners.get(RESERVED, {})
        assert given_to == fresh.owners.get(RESERVED, {})
        assert (context.refused, context.statuses) == (fresh.refused, fresh.statuses)
        register = context.register

        has: defaultdict[Key, set[str]] = defaultdict(set)
        sharing: defaultdict[str, set[Key]] = defaultdict(set)
        ports: defaultdict[str, list[int]] = defaultdict(list)
        for (place, name), owner in given_to.items():
            if name == FIRST_OWNER:
                continue
            address, port = (place, "0") if place in POOL else place.rsplit(":", 1)
            address, key = address.strip("[]"), Key(owner.namespace, owner.name)
            has[key].add(address)
            sharing[address].add(key)
            ports[address].append(int(port))
        for address, keys in sharing.items():
            assert len(ports[address]) == len(set(ports[address]))
            assert 0 not in ports[address] or len(ports[address]) == 1
            if len({key.namespace for key in keys}) > 1:
                (shared_by,) = {there[each].key for each in keys}
                assert shared_by
        for namespace in {key.namespace for key in there}:
            mine = set[str]().union(*(found for key, found in has.items() if key.namespace == namespace))
            assert len(mine) <= PER_NAMESPACE
        first = {place: owner for (place, name), owner in given_to.items() if name == FIRST_OWNER}
        assert first.keys() == {each for each, keys in sharing.items() if len({key.namespace for key in keys}) > 1}
        assert all(has[Key(owner.namespace, owner.name)] >= {place} for place, owner in first.items())
        # Who did not change anything keeps what he had, but for guests where the first owner ends the sharing.
        ended = {each for each, owner in was_first.items() if each in has[changed] and owner == changed.namespace}
        ended -= first.keys()
        for key, found in had.items():
            guest_at = {each for each in ended if key.namespace != was_first[each]}
            assert key == changed or has[key] >= found - guest_at
        if asked is not None and before is not None and asked[:3] == before[:3]:
            kept = {each for each in had.get(changed, ()) if was_first.get(each) == changed.namespace}
            assert has[changed] >= kept, "who changes the sharing key alone keeps what his namespace had first"
        had = {key: found for key, found in has.items() if found}
        was_first = {each: owner.namespace for each, owner in first.items()}
