"""What one place covers, which names moved, and when the time of one that is kept is over."""

from collections.abc import Mapping

import pytest

from pyconfd.model.reservation import (
    NEVER,
    HostClaim,
    Move,
    Name,
    NameRegister,
    Owner,
    Owners,
    Reservation,
    covers,
    moves,
    namespaces_of_changes,
    owned_by,
    port_of,
    shown,
)


@pytest.mark.parametrize(
    ("place", "other", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("", "", True),
        ("*:80", "192.0.2.1:80", True),
        ("0.0.0.0:80", "192.0.2.1:80", True),
        ("192.0.2.1:80", "*:80", False),
        ("*:80", "192.0.2.1:81", False),
        ("*:80", "[2001:db8::1]:80", False),
        ("[::]:80", "[2001:db8::1]:80", True),
        ("[::]:80", "192.0.2.1:80", True),
        ("*:80/udp", "192.0.2.1:80/udp", True),
        ("*:80/udp", "192.0.2.1:80", False),
        ("*:80", "192.0.2.1:80/udp", False),
        ("*:80", "a", False),
        ("a", "192.0.2.1:80", False),
    ],
)
def test_covers(place: str, other: str, expected: bool) -> None:
    assert covers(place, other) is expected


@pytest.mark.parametrize(
    ("place", "found"),
    [("*:80", (80, "")), ("192.0.2.1:80", (80, "")), ("[2001:db8::1]:443/udp", (443, "udp")), ("a", "a"), ("", "")],
)
def test_port_of(place: str, found: object) -> None:
    assert port_of(place) == found


def owner(name: str, namespace: str = "shop", kind: str = "Service", since: str = "2026-01-01") -> Owner:
    return Owner(kind, namespace, name, since)


def test_owners() -> None:
    assert owned_by("shop") == Owner("", "shop", "", NEVER)
    assert HostClaim("a.test", owner("a")).rank == ("2026-01-01", "shop", "a", "Service")
    assert Reservation(owner("a")).namespace == "shop"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (Name("", "a.test"), "a.test"),
        (Name("192.0.2.1:80", ""), "192.0.2.1:80"),
        (Name("192.0.2.1:80", "a.test"), "a.test on 192.0.2.1:80"),
    ],
)
def test_shown(name: Name, text: str) -> None:
    assert shown(name) == text


A, B, C = (Name("", name) for name in "abc")
BEFORE: Mapping[str, Owners] = {"one": {A: owner("x"), B: owner("y")}, "two": {C: owner("z", "bank")}}


@pytest.mark.parametrize(
    ("after", "found", "namespaces"),
    [
        (BEFORE, (), set()),
        # What came or went is no move, nor an object that was created again.
        ({"one": {A: owner("x")}, "two": {}}, (), {"shop", "bank"}),
        ({"one": {A: owner("x", since="2026-02-02"), B: owner("y")}}, (), {"shop", "bank"}),
        ({**BEFORE, "new": {A: owner("q", "team")}}, (), {"team"}),
        (
            {"two": {C: owner("z", "team")}, "one": {B: owner("x"), A: owner("x", kind="Ingress")}},
            (
                Move("one", "a", "Service shop/x", "Ingress shop/x"),
                Move("one", "b", "Service shop/y", "Service shop/x"),
                Move("two", "c", "Service bank/z", "Service team/z"),
            ),
            {"shop", "bank", "team"},
        ),
    ],
)
def test_names_that_have_other_owners(
    after: Mapping[str, Owners], found: tuple[Move, ...], namespaces: set[str]
) -> None:
    assert moves(BEFORE, after) == found
    assert namespaces_of_changes(BEFORE, after) == namespaces


def test_a_move_in_words() -> None:
    assert (
        Move("one", "a", "Service shop/x", "Ingress shop/x").sentence == "a moved from Service shop/x to Ingress shop/x"
    )


def test_a_register_of_reservations() -> None:
    kept, mine = Reservation(owner("x"), 50.0), Reservation(owner("y"))
    made = NameRegister.of({"one": {A: kept, B: mine}, "none": {}})
    assert made.owners == {"one": {B: owner("y")}}
    assert made.reservations == {"one": {A: kept, B: mine}}
    assert made.waiting == {("one", A)}
    assert [made.is_due(now) for now in (49.9, 50.0, 51.0)] == [False, True, True]
    assert not NameRegister.of({"one": {B: mine}}).is_due(99.0)


def test_the_older_object_ranks_first() -> None:
    ranked = [
        Owner("Service", "z", "z", "2025-01-01T00:00:00Z"),
        Owner("Service", "a", "b", "2026-01-01T00:00:00Z"),
        Owner("Ingress", "a", "c", "2026-01-01T00:00:00Z"),
        Owner("Service", "a", "c", "2026-01-01T00:00:00Z"),
        Owner("Ingress", "b", "a", "2026-01-01T00:00:00Z"),
        Owner("Ingress", "a", "a", NEVER),
    ]
    mixed = ranked[3:] + ranked[:3]
    assert sorted(mixed, key=lambda each: each.rank) == ranked
