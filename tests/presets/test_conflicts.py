"""Who listens where, names that stay with their namespace, and what is kept of what did not change."""

from collections.abc import Collection, Mapping

import pytest

from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, NameRegister, Owner, Owners, Reservation, Reservations
from pyconfd.model.snapshot import Key
from pyconfd.presets.conflicts import (
    ReservedNames,
    Sockets,
    covering,
    current_register,
    freed,
    overlap,
    register_after,
    reserved_for,
    reserved_until,
)

WIDE, WIDE6 = Listener("0.0.0.0", 80), Listener("::", 80)
ONE, OTHER, SIX = Listener("192.0.2.1", 80), Listener("192.0.2.2", 80), Listener("2001:db8::1", 80)
A, B, C, D = (Key("ns", name) for name in "abcd")


# Listeners


@pytest.mark.parametrize(
    ("listener", "found"),
    [(ONE, (ONE, WIDE, WIDE6)), (WIDE, (WIDE, WIDE6)), (WIDE6, (WIDE6,)), (SIX, (SIX, WIDE6))],
)
def test_covering(listener: Listener, found: tuple[Listener, ...]) -> None:
    assert covering(listener) == found


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (ONE, WIDE, True),
        (ONE, OTHER, False),
        (SIX, WIDE6, True),
        (SIX, WIDE, False),
        (ONE, Listener(ONE.address, 81), False),
    ],
)
def test_overlap(one: Listener, other: Listener, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


def test_the_first_claim_on_a_socket_or_on_all_addresses_decides_who_joins() -> None:
    sockets: Sockets[str] = Sockets()
    assert sockets.first(ONE) is None
    sockets.take(ONE, "one")
    sockets.take(WIDE, "wide")
    sockets.take(ONE, "later")
    sockets.take(WIDE6, "wide6")
    assert [sockets.first(each) for each in (ONE, OTHER, WIDE, SIX)] == ["one", "wide", "wide", "wide6"]
    assert sockets.first(Listener("192.0.2.1", 81)) is None


def test_the_first_is_the_oldest_not_the_narrowest() -> None:
    sockets: Sockets[str] = Sockets()
    sockets.take(WIDE, "wide")
    sockets.take(ONE, "one")
    assert sockets.first(ONE) == "wide"


def test_protocols_have_sockets_and_names_of_their_own() -> None:
    sockets: Sockets[str] = Sockets()
    sockets.take(ONE, "tcp")
    sockets.take(ONE, "quic", "udp")
    assert (sockets.first(ONE), sockets.first(ONE, "udp"), sockets.first(ONE, "sctp")) == ("tcp", "quic", None)
    sockets.name(ONE, "a", "mine")
    sockets.name(ONE, "a", "its", "udp")
    assert (sockets.owner(ONE, "a"), sockets.owner(ONE, "a", "udp"), sockets.owner(ONE, "a", "sctp")) == (
        "mine",
        "its",
        None,
    )


def test_a_name_has_one_owner_on_all_listeners_that_overlap() -> None:
    sockets: Sockets[str] = Sockets()
    sockets.name(ONE, "a", "first")
    sockets.name(OTHER, "a", "second")
    assert [sockets.owner(each, "a") for each in (ONE, OTHER, WIDE, SIX)] == ["first", "second", "first", None]
    assert sockets.owner(ONE, "b") is None
    assert sockets.owner(Listener(ONE.address, 81), "a") is None


# Names that are reserved


def owner(namespace: str, name: str = "web", since: str = "2026-01-01T00:00:00Z") -> Owner:
    return Owner("Service", namespace, name, since)


KEPT = "its object is gone and may come back (setting claims.reserve_s)"
MINE, UNTIL = Reservation(owner("shop")), Reservation(owner("shop"), 1_767_225_600.9)


@pytest.mark.parametrize(
    ("reservation", "successor", "why"),
    [
        (MINE, None, f"namespace shop has this: {KEPT}"),
        (UNTIL, None, f"namespace shop has this until 2026-01-01T00:00:00Z: {KEPT}; it is free after that"),
        (
            MINE,
            "Service shop/api",
            "Service shop/api has this already: the namespace that was given it first keeps it while it asks for it",
        ),
    ],
)
def test_whose_a_reserved_name_is(reservation: Reservation, successor: object, why: str) -> None:
    assert reserved_for(reservation, successor) == why
    if successor is None:
        assert reserved_until(reservation) == why


def reserved(reservations: Reservations, *claimed: tuple[Name, str, object]) -> ReservedNames:
    return ReservedNames(reservations, lambda: iter(claimed))


@pytest.mark.parametrize(
    ("known", "asked", "is_kept"),
    [
        (Name("192.0.2.1:80", "a.test"), Name("192.0.2.1:80", "a.test"), True),
        (Name("192.0.2.1:80", "a.test"), Name("192.0.2.1:80", "b.test"), False),
        (Name("192.0.2.1:80", "a.test"), Name("192.0.2.2:80", "a.test"), False),
        (Name("192.0.2.1:80", "a.test"), Name("192.0.2.1:81", "a.test"), False),
        (Name("*:80", "a.test"), Name("192.0.2.1:80", "a.test"), True),
        # A name on all addresses would take that of one.
        (Name("192.0.2.1:80", "a.test"), Name("*:80", "a.test"), True),
        # A whole listener on all addresses leaves that of one to its owner.
        (Name("192.0.2.1:80", ""), Name("*:80", ""), False),
        (Name("*:80", ""), Name("192.0.2.1:80", ""), True),
        (Name("", "a.test"), Name("", "a.test"), True),
    ],
)
def test_a_reserved_name_stays_with_its_namespace(known: Name, asked: Name, is_kept: bool) -> None:
    names = reserved({known: MINE})
    assert bool(names.reserved_for_another(asked, "evil")) is is_kept
    assert names.reserved_for_another(asked, "shop") == ""


def test_the_reason_names_the_oldest_successor_of_its_namespace() -> None:
    name = Name("", "a.test")
    names = reserved({name: MINE}, (name, "evil", "its"), (name, "shop", "mine"), (name, "shop", "younger"))
    assert names.reserved_for_another(name, "evil") == reserved_for(MINE, "mine")
    assert reserved({name: MINE}).reserved_for_another(name, "evil") == reserved_until(MINE)


def test_of_a_place_on_all_addresses_a_part_is_reserved() -> None:
    one, wide = Name("192.0.2.1:80", "a.test"), "*:80"
    assert reserved({one: UNTIL}).place_reserved_for_another(wide, "evil") == ""
    assert reserved({Name(wide, "a.test"): UNTIL}).place_reserved_for_another("192.0.2.1:80", "evil") == reserved_until(
        UNTIL
    )
    assert reserved({Name(wide, "a.test"): UNTIL}).place_reserved_for_another("192.0.2.1:81", "evil") == ""
    assert reserved({one: UNTIL}).place_reserved_for_another("192.0.2.1:80", "shop") == ""
    # What its namespace asks for again decides by age, as any claim.
    assert reserved({one: UNTIL}, (one, "shop", "mine")).place_reserved_for_another("192.0.2.1:80", "evil") == ""


# What is remembered of whose a name is

SCOPE, NOW, KEEP = "hosts", 1_000.0, 60.0
NAME = Name("", "a.test")


def register(*names: tuple[Name, Reservation], scope: str = SCOPE) -> NameRegister:
    return NameRegister.of({scope: dict(names)})


@pytest.mark.parametrize(
    ("until", "held_back", "after"),
    [
        (NOW - 1, (), None),
        (NOW, (), None),
        (NOW + 1, (), NOW + 1),
        (NOW + KEEP, (), NOW + KEEP),
        # The clock was set back.
        (NOW + KEEP + 1, (), NOW + KEEP),
        (NOW - 1, (Key("shop", "web"),), NOW + KEEP),
        (NOW + 1, (Key("shop", "web"),), NOW + KEEP),
        (NOW - 1, (Key("shop", "other"),), None),
        (NOW - 1, (Key("evil", "web"),), None),
    ],
)
def test_a_reservation_ends_at_its_time(until: float, held_back: Collection[Key], after: float | None) -> None:
    other = Name("", "b.test")
    before = register((NAME, Reservation(owner("shop"), until)), (other, MINE))
    found = current_register(before, NOW, KEEP, held_back)
    assert found.reservations[SCOPE].get(NAME) == (None if after is None else Reservation(owner("shop"), after))
    assert found.reservations[SCOPE][other] == MINE
    assert found.waiting == (frozenset() if after is None else {(SCOPE, NAME)})
    assert found.owners == before.owners
    assert (found is before) is (after == until)


@pytest.mark.parametrize(
    ("before", "owners", "after"),
    [
        # Somebody has it: for as long as he asks.
        ((), {NAME: owner("shop")}, Reservation(owner("shop"))),
        (((NAME, UNTIL),), {NAME: owner("shop")}, Reservation(owner("shop"))),
        (((NAME, MINE),), {NAME: owner("shop")}, MINE),
        (((NAME, MINE),), {NAME: owner("bank")}, Reservation(owner("bank"))),
        # Nobody asks any more: it waits, and what waits does not begin again.
        (((NAME, MINE),), {}, Reservation(owner("shop"), NOW + KEEP)),
        (((NAME, UNTIL),), {}, UNTIL),
        ((), {}, None),
    ],
)
def test_a_name_is_remembered(
    before: tuple[tuple[Name, Reservation], ...], owners: Owners, after: Reservation | None
) -> None:
    previous = register(*before)
    found = register_after(previous, {SCOPE: owners}, is_released=lambda *_: False, now=NOW, keep_s=KEEP)
    assert found.reservations.get(SCOPE, {}).get(NAME) == after
    assert found.owners == {SCOPE: owners}
    assert found.waiting == ({(SCOPE, NAME)} if after is not None and after.until else frozenset())


@pytest.mark.parametrize(
    ("is_released", "keep_s", "kept"), [(True, KEEP, False), (False, 0.0, False), (False, 0.1, True)]
)
def test_a_name_that_was_given_up_is_free_at_once(is_released: bool, keep_s: float, kept: bool) -> None:
    asked: list[tuple[str, Owner]] = []

    def released(scope: str, previous: Owner) -> bool:
        asked.append((scope, previous))
        return is_released

    found = register_after(register((NAME, MINE)), {SCOPE: {}}, is_released=released, now=NOW, keep_s=keep_s)
    assert (NAME in found.reservations.get(SCOPE, {})) is kept
    assert (SCOPE in found.reservations) is kept
    assert asked == ([(SCOPE, owner("shop"))] if keep_s else [])


def test_nothing_changed_is_the_same_register_and_a_scope_that_ends_frees_its_names() -> None:
    previous = register((NAME, MINE))
    same: dict[str, Mapping[Name, Owner]] = dict(previous.owners)
    assert register_after(previous, same, is_released=lambda *_: True, now=NOW, keep_s=KEEP) is previous
    ended = register_after(previous, {}, is_released=lambda *_: True, now=NOW, keep_s=KEEP)
    assert (ended.owners, ended.reservations) == ({}, {})
    more = register_after(
        previous, {**same, "b": {NAME: owner("b")}}, is_released=lambda *_: True, now=NOW, keep_s=KEEP
    )
    assert more.reservations["b"][NAME].namespace == "b"
    assert more.reservations[SCOPE] == previous.reservations[SCOPE]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (register((NAME, MINE)), False),
        (register((NAME, UNTIL)), False),
        (register((Name("", "b.test"), MINE)), True),
        (register((NAME, MINE), scope="other"), True),
        (NameRegister(), True),
    ],
)
def test_freed(after: NameRegister, expected: bool) -> None:
    assert freed(register((NAME, MINE)), after) is expected
    assert not freed(NameRegister(), after)
