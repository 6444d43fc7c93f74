"""What the decision on a host means for each namespace, and how it is made of what is asked for."""

from collections.abc import Mapping

import pytest

from pyconfd.derived import Derived, Graph, Source
from pyconfd.model.reservation import HostClaim, Name, Owner, Reservation
from pyconfd.presets.addresses import FIRST_OWNER, RESERVED
from pyconfd.presets.conflicts import reserved_until
from pyconfd.presets.host_ownership import SCOPE, SHARED_WITH, HostDecision, HostRights, Hosts, shared_with

HOST, WILD, WIDER = "a.shop.test", "*.shop.test", "*.test"


def owner(namespace: str, kind: str = "Ingress", name: str = "web", since: str = "2026-01-01T00:00:00Z") -> Owner:
    return Owner(kind, namespace, name, since)


KEPT = Reservation(owner("shop"), 99.0)
OWNED, WAITING = HostDecision(owner("shop")), HostDecision(None, KEPT)


def rights(decision: HostDecision | None, **above: HostDecision) -> HostRights:
    """Return who has the host; ``above``: the wildcard, the wider one and "any" host."""
    names = {"wild": WILD, "wider": WIDER, "any": "*"}
    decisions = {names[key]: each for key, each in above.items()}
    return HostRights((decisions | ({HOST: decision} if decision else {})).get)


@pytest.mark.parametrize(
    ("decision", "namespace", "is_owner", "may_add_paths"),
    [
        (None, "evil", True, True),
        (OWNED, "shop", True, True),
        (OWNED, "evil", False, False),
        (OWNED._replace(shared_with=frozenset({"team"})), "team", False, True),
        (OWNED._replace(shared_with=frozenset({"team"})), "evil", False, False),
        (OWNED._replace(shared_with=frozenset({"*"})), "evil", False, True),
        # What waits for its namespace is nobody's meanwhile.
        (WAITING, "shop", False, False),
        (WAITING._replace(shared_with=frozenset({"*"})), "evil", False, False),
    ],
)
def test_what_a_namespace_may(
    decision: HostDecision | None, namespace: str, is_owner: bool, may_add_paths: bool
) -> None:
    found = rights(decision)
    assert found.is_owner(HOST, namespace) is is_owner
    assert found.may_add_paths(HOST, namespace) is may_add_paths


def test_whose_a_host_is() -> None:
    assert (OWNED.namespace, WAITING.namespace, HostDecision(None).namespace) == ("shop", "shop", "")
    assert rights(None).why_not(HOST) == rights(HostDecision(None)).why_not(HOST) == ""
    assert rights(WAITING).why_not(HOST) == reserved_until(KEPT)
    assert rights(OWNED).why_not(HOST) == (
        "Ingress shop/web has this host: paths need the consent of its namespace"
        " (pyconfd.io/shared-with) or of the operator (claims.shared_hosts)"
    )
    assert [rights(each).is_kept(HOST) for each in (None, OWNED, WAITING)] == [False, False, True]
    below = OWNED._replace(below_foreign=True)
    assert [rights(each).is_below_foreign(HOST) for each in (None, OWNED, below)] == [False, False, True]


SHOP, EVIL, EVIL_DOMAIN = OWNED, HostDecision(owner("evil")), HostDecision(owner("evil", "Service"))


@pytest.mark.parametrize(
    ("decision", "above", "expected"),
    [
        (None, {"wild": EVIL}, False),
        (SHOP, {}, False),
        (SHOP, {"wild": EVIL}, True),
        (SHOP, {"wild": SHOP}, False),
        (SHOP, {"any": EVIL}, True),
        # The next one that answers counts.
        (SHOP, {"wild": SHOP, "any": EVIL}, False),
        (SHOP, {"wild": WAITING, "any": EVIL}, True),
        (WAITING, {"wild": EVIL}, True),
        # A wildcard of an Ingress is for one label, that of a domain for more.
        (SHOP, {"wider": EVIL}, False),
        (SHOP, {"wider": EVIL_DOMAIN}, True),
        (SHOP, {"wider": EVIL, "any": SHOP}, False),
    ],
)
def test_whose_requests_would_be_without_a_virtual_host(
    decision: HostDecision | None, above: Mapping[str, HostDecision], expected: bool
) -> None:
    assert rights(decision, **above).falls_to_another(HOST) is expected


def test_a_wildcard_does_not_answer_instead_of_itself() -> None:
    assert not HostRights({WILD: SHOP}.get).falls_to_another(WILD)
    assert HostRights({WILD: SHOP, WIDER: EVIL_DOMAIN}.get).falls_to_another(WILD)
    assert HostRights({"*": SHOP}.get).falls_to_another("*") is False


def test_names_that_others_write_or_that_are_stored() -> None:
    assert (SCOPE, SHARED_WITH) == ("shared-hosts", "pyconfd.io/shared-with")
    assert (FIRST_OWNER, RESERVED) == ("first owner", "addresses")


def claim(namespace: str, host: str = HOST, day: int = 1, name: str = "web", **more: str) -> HostClaim:
    created = f"2026-01-{day:02}T00:00:00Z"
    consent = frozenset(more["shared"].split()) if "shared" in more else frozenset[str]()
    return HostClaim(host, owner(namespace, name=name, since=created), consent, more.get("proto", ""))


def asked(*claims: HostClaim, shared: str = "", reserved: Mapping[str, Reservation] | None = None) -> Hosts:
    graph = Graph()
    source = Source[int, HostClaim](graph, "claims")
    hosts = Hosts(Derived(source, lambda _, __, item: item))
    hosts.shared.set(frozenset(shared.split()))
    hosts.reservations.replace(reserved or {})
    source.replace(dict(enumerate(claims)))
    graph.settle()
    return hosts


def decided(*claims: HostClaim, shared: str = "", reserved: Mapping[str, Reservation] | None = None) -> HostRights:
    return HostRights(asked(*claims, shared=shared, reserved=reserved).decisions.items.get)


def test_the_oldest_claim_has_a_host() -> None:
    young, old = claim("evil", day=2), claim("shop", day=1)
    found = asked(young, old)
    assert found.decisions.items[HOST] == HostDecision(old.owner, has_paths=True)
    assert found.owners() == {Name("", HOST): old.owner}


def test_a_reservation_counts_more_than_age() -> None:
    old, mine, second = claim("evil", day=1), claim("shop", day=3), claim("shop", day=2, name="first")
    found = decided(old, mine, second, reserved={HOST: KEPT})
    assert found.decision(HOST) == HostDecision(second.owner, has_paths=True)
    waiting = asked(old, reserved={HOST: KEPT})
    assert waiting.decisions.items[HOST] == HostDecision(None, KEPT)
    assert waiting.owners() == {}
    assert decided(reserved={HOST: KEPT}).decision(HOST) == HostDecision(None, KEPT)


@pytest.mark.parametrize(
    ("shared", "is_for_all"),
    [("", False), (HOST, True), ("b.shop.test", False), (WILD, True), (WIDER, True), ("*", True)],
)
def test_the_operator_shares_a_host_or_all_below_a_wildcard(shared: str, is_for_all: bool) -> None:
    found = decided(claim("shop"), shared=shared).decision(HOST)
    assert found == HostDecision(owner("shop"), shared_with=frozenset({"*"} if is_for_all else ()), has_paths=True)


def test_each_object_of_the_owner_consents_for_all_and_no_other() -> None:
    mine, more = (
        claim("shop", day=1, shared="a b", proto="http"),
        claim("shop", day=2, name="second", shared="c", proto="tcp"),
    )
    found = decided(mine, more, claim("evil", day=3, shared="evil", proto="https")).decision(HOST)
    assert found == HostDecision(mine.owner, None, frozenset("abc"), "http", has_paths=True)


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ([], False),
        ([claim("evil", WILD)], True),
        ([claim("shop", WILD)], False),
        ([claim("evil", WIDER)], True),
        ([claim("shop", WILD), claim("evil", WIDER)], False),
        ([claim("evil", "*.other.test")], False),
        ([claim("evil", "*")], False),
    ],
)
def test_the_next_wildcard_above_is_of_another_namespace(above: list[HostClaim], expected: bool) -> None:
    found = decided(claim("shop"), *above)
    assert found.is_below_foreign(HOST) is expected
    assert not found.is_below_foreign(WILD) or found.decision(WIDER) is not None


def test_a_wildcard_is_below_a_wider_one_and_not_below_itself() -> None:
    assert not decided(claim("shop", WILD)).is_below_foreign(WILD)
    assert decided(claim("shop", WILD), claim("evil", WIDER)).is_below_foreign(WILD)
    # A wildcard that waits for its namespace answers nothing.
    found = decided(claim("evil"), reserved={WILD: KEPT})
    assert not found.is_below_foreign(HOST)


@pytest.mark.parametrize(
    ("value", "names"),
    [("", ()), (" , ", ()), ("a", ("a",)), (" a ,b-1,", ("a", "b-1")), ("*", ("*",)), ("a,*", ("a", "*"))],
)
def test_namespaces_of_the_annotation(value: str, names: tuple[str, ...]) -> None:
    assert shared_with(value) == frozenset(names)


@pytest.mark.parametrize("value", ["a b", "a/b", "**", "a,-"])
def test_what_is_no_name_of_a_namespace(value: str) -> None:
    with pytest.raises(ValueError, match=r"^expected names of namespaces separated by commas, or \*$"):
        shared_with(value)


def test_one_annotation_names_so_many_namespaces() -> None:
    names = [f"n{number}" for number in range(65)]
    # One that is named twice counts once.
    assert shared_with(",".join((*names[:64], "n1"))) == frozenset(names[:64])
    with pytest.raises(ValueError, match=r"^expected at most 64 namespaces, or \* for all$"):
        shared_with(",".join(names))
