from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.activity import (
    HOUR_S,
    Activity,
    ServingFacts,
    advance,
    both,
    for_holder,
    holders_of,
    reasons,
    waits_s,
)
from pyconfd.settings import DnsSettings

VIP = "192.0.2.9"
GOOD = ServingFacts(haproxy_answers=True, applied=True)


def after(
    looks: str, *, former: Activity | None = None, every_s: float = 1.0, rules: DnsSettings | None = None
) -> Activity:
    """``+`` is a good look, ``-`` a bad one."""
    found = former or Activity()
    for number, look in enumerate(looks):
        found = advance(found, good=look == "+", now=1000.0 + number * every_s, rules=rules or DnsSettings())
    return found


def test_only_what_this_node_sees_of_itself_counts() -> None:
    assert reasons(GOOD) == ()
    silent = ("http://127.0.0.1/",)
    bad = ServingFacts(
        haproxy_answers=False, applied=False, frontends_silent=silent, drained=True, not_holder={VIP: "it is away"}
    )
    assert reasons(bad) == (
        "haproxy does not answer on its socket",
        "no configuration was applied yet",
        "http://127.0.0.1/ does not answer",
        "this node is drained (pyconfd vip undrain)",
    )
    assert reasons(bad, VIP) == (*reasons(bad), "it is away")
    assert reasons(ServingFacts(haproxy_answers=True, applied=True, not_holder={VIP: ""}), VIP) == ()
    assert set(ServingFacts.__dataclass_fields__) == {
        "haproxy_answers",
        "applied",
        "frontends_silent",
        "drained",
        "not_holder",
    }


def test_whether_an_address_is_held_is_believed_without_a_hold_and_without_a_limit() -> None:
    unlimited = for_holder(DnsSettings())
    assert after("---" + "++", rules=unlimited).active is True
    assert after("+++---" * 50 + "++", rules=unlimited).active is True
    assert after("+++---" * 50 + "++", rules=DnsSettings(hold_s=0.0)).active is False
    assert after("+-" * 50, former=Activity(active=True), rules=unlimited).active is True


def test_a_name_is_for_who_serves_and_holds_its_address() -> None:
    assert both(True, True) is True
    assert both(True, False) is both(None, False) is both(False, None) is False
    assert both(True, None) is both(None, True) is None


def test_two_good_looks_join_and_three_bad_ones_withdraw() -> None:
    assert [after(looks).active for looks in ("+", "++", "+-+", "--", "---", "++--", "++---")] == [
        None,
        True,
        None,
        None,
        False,
        True,
        False,
    ]


def test_a_node_that_withdrew_stays_out_for_a_while() -> None:
    assert after("---" + "+" * 55).active is False
    assert after("---" + "+" * 65).active is True


def test_a_node_joins_six_times_an_hour_and_withdraws_as_often_as_it_must() -> None:
    activity, joined, withdrawn = Activity(), 0, 0
    for second in range(int(HOUR_S)):
        former = activity.active
        activity = advance(activity, good=second % 100 >= 10, now=1e9 + second, rules=DnsSettings())
        joined += former is False and activity.active is True
        withdrawn += former is True and activity.active is False
    assert (joined, withdrawn) == (6, 6)
    assert activity.active is False
    assert 0 < waits_s(activity, 1e9 + HOUR_S, DnsSettings()) <= HOUR_S


def test_a_node_that_withdrew_long_ago_joins_at_once() -> None:
    assert waits_s(Activity(active=False, withdrawn_at=1000.0), 1015.0, DnsSettings()) == 45.0
    assert after("++", former=Activity(active=False, withdrawn_at=900.0)).active is True


def test_a_node_that_never_withdrew_waits_for_nothing_after_its_machine_booted() -> None:
    """Monotonic time begins near 0 there."""
    assert waits_s(Activity(), 5.0, DnsSettings()) == 0.0


@given(looks=st.text("+-", max_size=60), fall=st.integers(1, 5))
def test_fewer_bad_looks_in_a_row_than_fall_never_withdraw(looks: str, fall: int) -> None:
    found = after(looks, former=Activity(active=True), rules=DnsSettings(fall=fall))
    assert found.active is ("-" * fall not in looks) or found.joins


RULES = DnsSettings(rise=2, fall=3, hold_s=60.0, joins_an_hour=2)


@pytest.mark.parametrize(
    ("former", "good", "following"),
    [
        (Activity(), True, Activity(streak=1)),
        (Activity(streak=-2), True, Activity(streak=1)),
        (Activity(streak=1), True, Activity(active=True, streak=2)),
        (Activity(streak=5), False, Activity(streak=-1)),
        (Activity(streak=-2), False, Activity(active=False, streak=-3, withdrawn_at=5000.0)),
        (Activity(True, -2), False, Activity(active=False, streak=-3, withdrawn_at=5000.0)),
        # It stays withdrawn from then on.
        (Activity(False, -3, 4990.0), False, Activity(active=False, streak=-4, withdrawn_at=4990.0)),
        (Activity(True, 5), True, Activity(active=True, streak=6)),
        (Activity(False, 1, 4940.0), True, Activity(True, 2, 4940.0, (5000.0,))),
        (Activity(False, 1, 4940.1), True, Activity(False, 2, 4940.1)),
        # A join of an hour ago no longer counts, nor one of before the machine booted.
        (Activity(False, 1, 0.0, (1400.0, 1401.0, 5001.0)), True, Activity(True, 2, 0.0, (1401.0, 5000.0))),
        (Activity(False, 1, 0.0, (1401.0, 5000.0)), True, Activity(False, 2, 0.0, (1401.0, 5000.0))),
    ],
)
def test_one_more_look(former: Activity, good: bool, following: Activity) -> None:
    assert advance(former, good=good, now=5000.0, rules=RULES) == following


@pytest.mark.parametrize(
    ("activity", "waits"),
    [
        (Activity(False, 0, 4990.0), 50.0),
        (Activity(False, 0, 4940.0), 0.0),
        (Activity(False, 0, 4000.0, (4999.0,)), 0.0),
        (Activity(False, 0, 4000.0, (4000.0, 4999.0)), 2600.0),
        (Activity(False, 0, 4000.0, (1.0, 4000.0, 4999.0)), 2600.0),
        # The longer one of the two.
        (Activity(False, 0, 4990.0, (1410.0, 4999.0)), 50.0),
    ],
)
def test_how_long_a_node_may_not_join(activity: Activity, waits: float) -> None:
    assert waits_s(activity, 5000.0, RULES) == waits


NOW = 1_800_000_000.0
V4, V6 = "192.0.2.9", "2001:db8::9"


def report(*, holds: bool = True, rivals: bool = False, drained: bool = False, holder: str = "lb2") -> dict[str, Any]:
    """As the hook writes it, with one router."""
    instance = {
        "addresses": [f"{V4}/24", V6],
        "holds": holds,
        "holder": holder,
        "rivals": [{"hardware": "x", "peer": "lb2"}] if rivals else [],
    }
    return {"at": NOW - 5, "routers": [{"drained": {"at": 1} if drained else None, **instance}]}


def test_the_holder_is_who_the_hook_says_and_has_no_rival() -> None:
    assert holders_of(report(), NOW) == ({V4: "", V6: ""}, False)
    for said, why in (
        (report(holds=False), f"the floating address {V4}, {V6} is elsewhere: lb2 has it"),
        (report(holds=False, holder=""), f"the floating address {V4}, {V6} is elsewhere: no node seems to have it"),
        (report(rivals=True), f"another node has the floating address {V4}, {V6} too"),
    ):
        assert holders_of(said, NOW) == ({V4: why, V6: why}, False)


@pytest.mark.parametrize(("age_s", "is_fresh"), [(19.9, True), (20.0, False), (-19.9, True), (-20.0, False)])
def test_a_report_counts_for_twenty_seconds(age_s: float, is_fresh: bool) -> None:
    said = report() | {"at": NOW - age_s}
    assert holders_of(said, NOW) == ({V4: "", V6: ""} if is_fresh else {}, False)


def test_a_report_without_a_router_says_of_no_drained_node() -> None:
    assert holders_of({"at": NOW, "routers": []}, NOW) == ({}, False)


def test_a_dead_hook_says_nothing_of_holders_but_an_order_to_drain_stands() -> None:
    assert holders_of(report(drained=True), NOW + 60) == ({}, True)
    assert holders_of(report(), NOW + 60) == ({}, False)
    two = report(drained=True)
    two["routers"].append(report()["routers"][0])
    assert not holders_of(two, NOW)[1]  # one router of two is no drained node


@pytest.mark.parametrize(
    "document", [{}, {"routers": None}, {"at": "x", "routers": []}, {"at": NOW, "routers": [{"drained": None}]}]
)
def test_what_is_no_report_is_not_known(document: dict[str, Any]) -> None:
    assert holders_of(document, NOW) == ({}, False)
