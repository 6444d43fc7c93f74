from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.activity import HOUR_S, Facts, Rules, Standing, advance, both, reasons, waits_s

VIP = "192.0.2.9"
GOOD = Facts(haproxy_answers=True, applied=True)


def after(
    looks: str, *, standing: Standing | None = None, every_s: float = 1.0, rules: Rules | None = None
) -> Standing:
    """``+`` is a good look, ``-`` a bad one."""
    found = standing or Standing()
    for number, look in enumerate(looks):
        found = advance(found, good=look == "+", now=1000.0 + number * every_s, rules=rules or Rules())
    return found


def test_only_what_this_node_sees_of_itself_counts() -> None:
    assert reasons(GOOD) == ()
    silent = ("http://127.0.0.1/",)
    bad = Facts(haproxy_answers=False, applied=False, frontends_silent=silent, drained=True, astray={VIP: "it is away"})
    assert len(reasons(bad)) == 4
    assert reasons(bad, VIP) == (*reasons(bad), "it is away")
    assert reasons(Facts(haproxy_answers=True, applied=True, astray={VIP: ""}), VIP) == ()
    assert set(Facts.__dataclass_fields__) == {"haproxy_answers", "applied", "frontends_silent", "drained", "astray"}


def test_whether_an_address_is_held_is_believed_without_a_hold_and_without_a_limit() -> None:
    following = Rules().following
    assert after("---" + "++", rules=following).active is True
    assert after("+++---" * 50 + "++", rules=following).active is True
    assert after("+++---" * 50 + "++", rules=Rules(hold_s=0.0)).active is False
    assert after("+-" * 50, standing=Standing(active=True), rules=following).active is True


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
    standing, joined, withdrawn = Standing(), 0, 0
    for second in range(int(HOUR_S)):
        former = standing.active
        standing = advance(standing, good=second % 100 >= 10, now=1e9 + second, rules=Rules())
        joined += former is False and standing.active is True
        withdrawn += former is True and standing.active is False
    assert (joined, withdrawn) == (6, 6)
    assert standing.active is False
    assert 0 < waits_s(standing, 1e9 + HOUR_S, Rules()) <= HOUR_S


def test_a_clock_that_was_set_back_keeps_nobody_out_for_longer_than_the_hold() -> None:
    standing = Standing(active=False, withdrawn_at=1e9)
    assert waits_s(standing, 0.0, Rules()) == 60.0
    assert after("++", standing=Standing(active=False, withdrawn_at=900.0)).active is True


@given(looks=st.text("+-", max_size=60), fall=st.integers(1, 5))
def test_fewer_bad_looks_in_a_row_than_fall_never_withdraw(looks: str, fall: int) -> None:
    found = after(looks, standing=Standing(active=True), rules=Rules(fall=fall))
    assert found.active is ("-" * fall not in looks) or found.joins
