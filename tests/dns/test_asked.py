"""What the cluster asks for stays asked for, unless it was taken back while all was well, for long enough."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.asked import AskedName, AskingRules, Told, as_document, asked, from_document
from pyconfd.dns.readers import told_by
from pyconfd.model.hold import Hold, HoldKind
from pyconfd.model.status import Phase, SourceHealth, Status

RULES = AskingRules(("example.com", "b.example.org"), most=3, grace_s=3600.0)
NOW = 1_800_000_000.0
WEB, SHOP = "web.example.com", "shop.example.com"


def names(*given_names: str) -> dict[str, AskedName]:
    return {name: AskedName(name) for name in given_names}


def after(known: Mapping[str, AskedName], told: Told, now: float = NOW) -> Mapping[str, AskedName]:
    return asked(known, told, RULES, now=now).names


def test_a_name_comes_at_once_and_goes_after_the_time_of_grace() -> None:
    known = after({}, Told((WEB, SHOP), sure=False))
    assert known == names(SHOP, WEB)
    gone = Told((WEB,), sure=True)
    known = after(known, gone, NOW)
    assert known[SHOP] == AskedName(SHOP, NOW)
    known = after(known, gone, NOW + 3599)
    assert not known[SHOP].gone
    known = after(known, gone, NOW + 3600)
    assert known[SHOP].gone
    assert known[WEB] == AskedName(WEB)
    assert after(known, Told((WEB, SHOP), sure=True), NOW + 3601) == names(SHOP, WEB)


@pytest.mark.parametrize("told", [Told(), Told(None, sure=True), Told((), sure=False), Told((WEB,), sure=False)])
def test_what_is_not_sure_takes_nothing_away_and_begins_the_time_of_grace_anew(told: Told) -> None:
    known = after(names(WEB, SHOP), Told((WEB,), sure=True))
    for hour in range(1, 50):
        known = after(known, told, NOW + hour * 3600)
        assert known == names(SHOP, WEB)
    assert not after(known, Told((WEB,), sure=True), NOW + 1e6)[SHOP].gone


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    known = after(names(SHOP), Told((), sure=True))
    known = after(known, Told((), sure=True), NOW - 1e6)
    assert known[SHOP] == AskedName(SHOP, NOW - 1e6)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("shop.example.org", "not below"),
        ("xexample.com", "not below"),
        ("a b.example.com", "no name"),
        ("10.0.0.1", "no name"),
        ("localhost", "no name"),
        ("_pyconfd.web.example.com", "no name"),
        ('x.example.com"\nA 1.2.3.4', "no name"),
        ("x" * 64 + ".example.com", "no name"),
    ],
)
def test_what_is_no_name_or_not_allowed_is_refused_with_the_reason(name: str, why: str) -> None:
    found = asked({}, Told((name, "EXAMPLE.com."), sure=True), RULES, now=NOW)
    assert found.names == names("example.com")
    assert why in found.refused[name]


def test_there_is_room_for_so_many_names_and_those_that_are_there_stay() -> None:
    many = tuple(f"{letter}.example.com" for letter in "abcde")
    found = asked(names(WEB), Told((*many, WEB), sure=True), RULES, now=NOW)
    assert set(found.names) == {WEB, "a.example.com", "b.example.com"}
    assert set(found.refused) == set(many[2:])
    assert "dns.annotation_names is 3" in found.refused["c.example.com"]


def test_a_domain_that_the_settings_no_longer_allow_is_let_go() -> None:
    assert after(names("a.example.net", WEB), Told()) == names(WEB)


_TOLD = st.builds(Told, st.none() | st.lists(st.sampled_from([WEB, SHOP, "x.y", "?"])).map(tuple), sure=st.booleans())


@given(st.lists(st.tuples(_TOLD, st.floats(0, 7200))))
def test_a_name_is_dropped_only_after_an_unbroken_time_of_grace_without_it(looks: list[tuple[Told, float]]) -> None:
    known: Mapping[str, AskedName] = {}
    now, missed_s = NOW, 0.0
    ever = False
    for told, wait_s in looks:
        now += wait_s
        wants = WEB in (told.names or ())
        ever = ever or wants
        if wants or not told.sure or told.names is None:
            missed_s = -1.0
        elif missed_s < 0.0:
            missed_s = 0.0
        else:
            missed_s += wait_s
        was_gone = WEB in known and known[WEB].gone
        known = after(known, told, now)
        assert (WEB in known) is ever
        if WEB in known and known[WEB].gone and not was_gone:
            assert missed_s >= RULES.grace_s - 1e-3
    assert from_document(as_document(known.values())) == known


def test_what_was_stored_badly_is_left_out() -> None:
    assert from_document({"x": 1}) == from_document([1, {"name": "a"}, {"missed_since": 0.0}]) == {}


def test_the_daemon_is_sure_only_while_it_lives_has_new_data_and_nothing_is_held() -> None:
    well = Status(NOW, "1", 1, NOW, NOW, Phase.SERVING, source=SourceHealth(last_sync_at=NOW - 100), dns_names=(WEB,))
    assert told_by(well, NOW) == Told((WEB,), sure=True)
    assert told_by(replace(well, dns_names=None), NOW).names is None
    for phase in set(Phase) - {Phase.SERVING}:
        assert not told_by(replace(well, phase=phase), NOW).sure
    assert not told_by(well, NOW + 31).sure  # the daemon is gone, or hangs
    assert not told_by(well, NOW - 31).sure
    assert not told_by(replace(well, now=NOW + 100), NOW + 100).sure  # no API server has answered for minutes
    assert not told_by(replace(well, hold_id="h"), NOW).sure
    assert not told_by(replace(well, hold=Hold("h", HoldKind.SHARE, NOW, 1, 2, 1)), NOW).sure
