"""The record of whose each name is: it holds a register, and who reads it agrees with who wrote it."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.ownership import differences, documents, is_same_owner, merged, recorded_of
from pyconfd.model.reservation import Name, NameRegister, Owner, Reservation
from pyconfd.presets.addresses import RESERVED
from pyconfd.presets.conflicts import current_register, register_after
from pyconfd.presets.host_ownership import SCOPE

NOW = 1_000.0


def host(name: str) -> Name:
    return Name("", name)


def ingress(namespace: str, name: str = "web") -> Owner:
    return Owner("Ingress", namespace, name, "2026-01-01T00:00:00Z")


def register(**hosts: str) -> NameRegister:
    return NameRegister.of({SCOPE: {host(f"{each}.test"): Reservation(ingress(n)) for each, n in hosts.items()}})


_NAMESPACES = st.sampled_from(["shop", "bank", "evil"])
_OWNERS = st.builds(Owner, st.sampled_from(["Ingress", "Service"]), _NAMESPACES, st.sampled_from("ab"), st.just("2026"))
_NAMES = st.builds(Name, st.sampled_from(["", "192.0.2.1:443"]), st.sampled_from(["", "a.test", "b.test", "k"]))
_RESERVATIONS = st.builds(Reservation, _OWNERS, st.sampled_from([0.0, 0.0, 1_500.0]))
_REGISTERS = st.dictionaries(
    st.sampled_from([SCOPE, RESERVED, "kube2lb"]), st.dictionaries(_NAMES, _RESERVATIONS, max_size=5), max_size=3
).map(NameRegister.of)


def by_name(of: NameRegister) -> dict[tuple[str, Name], Owner]:
    return {(scope, name): each.owner for scope, mine in of.reservations.items() for name, each in mine.items()}


@given(_REGISTERS, _REGISTERS)
def test_nodes_with_different_histories_come_to_the_record(holder: NameRegister, other: NameRegister) -> None:
    recorded = recorded_of(documents(holder).shards)
    after = merged(other, recorded)
    assert not differences(after, recorded, NOW)
    had, has, told = by_name(other), by_name(after), by_name(holder)
    assert has.keys() == had.keys() | told.keys(), "what only one node has stays"
    for (scope, name), owner in has.items():
        assert is_same_owner(scope, owner, told.get((scope, name), had.get((scope, name), owner)))
    assert merged(after, recorded) is after
    assert NameRegister.of(after.reservations) == after, "owners, reservations and what waits agree"
    assert merged(holder, recorded) is holder


@given(_REGISTERS, st.randoms())
def test_the_order_in_which_names_came_is_not_recorded(known: NameRegister, chance: random.Random) -> None:
    scopes = list(known.reservations.items())
    chance.shuffle(scopes)
    mixed = {scope: dict(chance.sample(list(mine.items()), len(mine))) for scope, mine in scopes}
    assert documents(NameRegister.of(mixed)) == documents(known)


def test_fifteen_thousand_names_fit_and_come_back() -> None:
    hosts = {host(f"a-service-with-a-long-name-{n:05}.department.example.com"): n for n in range(15_000)}
    known = NameRegister.of(
        {SCOPE: {each: Reservation(ingress(f"tenant-{n % 300}", f"i{n}")) for each, n in hosts.items()}}
    )
    found = documents(known)
    assert 1 < len(found.shards) <= 3
    assert all(len(each.encode()) < 750_000 for each in found.shards)
    assert not found.left_out
    again = merged(NameRegister(), recorded_of(found.shards))
    assert {n: o.namespace for n, o in by_name(again).items()} == {n: o.namespace for n, o in by_name(known).items()}
    assert documents(again) == found


def test_one_namespace_with_too_many_names_crowds_out_no_other() -> None:
    many = {host(f"{n:03}.evil.test"): Reservation(ingress("evil")) for n in range(50)}
    known = NameRegister.of({SCOPE: {**many, host("shop.test"): Reservation(ingress("shop"))}})
    found = documents(known, most_names=20)
    assert found.left_out == {"evil": 30}
    assert recorded_of(found.shards)[SCOPE][host("shop.test")].namespace == "shop"
    assert len(recorded_of(found.shards)[SCOPE]) == 21


def test_where_all_shards_are_full_the_largest_namespaces_lose() -> None:
    def hosts(namespace: str, count: int) -> dict[Name, Reservation]:
        return {host(f"{n:04}.{namespace}.{'x' * 200}.test"): Reservation(ingress(namespace)) for n in range(count)}

    known = NameRegister.of({SCOPE: {**hosts("evil", 9_000), **hosts("shop", 500)}})
    found = documents(known, most_shards=2)
    assert len(found.shards) <= 2
    assert set(found.left_out) == {"evil"}


def test_what_is_recorded_wins_and_the_rest_stays() -> None:
    recorded = recorded_of(documents(register(a="shop", b="bank")).shards)
    after = merged(register(a="evil", c="evil"), recorded)
    assert {n.name: o.namespace for (_, n), o in by_name(after).items()} == {
        "a.test": "shop",
        "b.test": "bank",
        "c.test": "evil",
    }


def test_an_address_belongs_to_an_object_and_not_to_its_namespace() -> None:
    place = Name("192.0.2.1:80", "")
    of = [NameRegister.of({RESERVED: {place: Reservation(Owner("Service", "shop", each, "2026"))}}) for each in "ab"]
    recorded = recorded_of(documents(of[0]).shards)
    assert merged(of[1], recorded).owners[RESERVED][place][:3] == ("Service", "shop", "a")
    assert merged(of[0], recorded) is of[0]


def test_a_recorded_name_that_nobody_asks_for_waits_and_ends() -> None:
    start = merged(NameRegister(), recorded_of(documents(register(a="shop")).shards))
    waits = register_after(start, {SCOPE: {}}, is_released=lambda *_: False, now=NOW, keep_s=600)
    assert waits.waiting == {(SCOPE, host("a.test"))}
    assert waits.reservations[SCOPE][host("a.test")].until == NOW + 600
    assert not current_register(waits, NOW + 600, 600).reservations[SCOPE]


def test_a_name_that_is_kept_ends_when_its_holder_says_so() -> None:
    kept = NameRegister.of({SCOPE: {host("a.test"): Reservation(ingress("shop"), NOW + 10)}})
    recorded = recorded_of(documents(kept).shards)
    (until,) = {each.until for each in recorded[SCOPE].values()}
    assert NOW + 10 <= until < NOW + 70, "by the minute: what is kept longer each second is not written each second"
    assert merged(NameRegister(), recorded).waiting == {(SCOPE, host("a.test"))}
    assert differences(NameRegister(), recorded, NOW)
    assert not differences(NameRegister(), recorded, until)


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"b": {"c": [1]}}}', "\ud800"])
def test_a_record_that_was_edited_badly_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=" "):
        recorded_of([text])


def test_objects_are_recorded_only_where_names_belong_to_them() -> None:
    (hosts,) = documents(register(shop="shop")).shards
    assert json.loads(hosts) == {"shop": {SCOPE: {"": [["shop.test"]]}}}
    by_object = NameRegister.of({RESERVED: {Name("", "192.0.2.1"): Reservation(ingress("shop"))}})
    (addresses,) = documents(by_object).shards
    assert json.loads(addresses) == {"shop": {RESERVED: {"": [["192.0.2.1", 0, "Ingress", "web"]]}}}
