"""The names that a node keeps: an annotated one stays until it was taken back while all was well, for long enough."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.activity import Activity, waits_s
from pyconfd.dns.names import (
    AnnotatedName,
    DnsNames,
    activity_file,
    annotated,
    annotation_file,
    dns_names,
    of_name,
    store_activities,
    store_annotated,
    stored_activities,
    stored_annotated,
)
from pyconfd.dns.node import annotated_names
from pyconfd.dns.records import Zone
from pyconfd.errors import ConfigurationError, RejectedInput
from pyconfd.model.hold import Hold, HoldKind
from pyconfd.model.status import Phase, SourceHealth, Status
from pyconfd.settings import DnsSettings, NameSettings, Settings, resolve
from pyconfd.system.clock import SystemClock
from tests.dns.strict import StrictRoute53

DNS = DnsSettings(annotation_suffixes=("example.com", "b.example.org"), annotation_names=3, annotation_grace_s=3600.0)
Told = tuple[tuple[str, ...] | None, bool]
"""The names of the daemon's status, and whether it can be relied on."""
NOW = 1_800_000_000.0
WEB, SHOP = "web.example.com", "shop.example.com"


def names(*given_names: str) -> dict[str, AnnotatedName]:
    return {name: AnnotatedName(name) for name in given_names}


def zone_id(found: DnsNames, spec: NameSettings) -> str:
    with found.zone(spec) as zone_id:
        return zone_id


def after(known: Mapping[str, AnnotatedName], told: Told, now: float = NOW) -> Mapping[str, AnnotatedName]:
    return annotated(known, told[0], DNS, sure=told[1], now=now)[0]


def test_a_name_comes_at_once_and_goes_after_the_time_of_grace() -> None:
    known = after({}, ((WEB, SHOP), False))
    assert known == names(SHOP, WEB)
    gone = ((WEB,), True)
    known = after(known, gone, NOW)
    assert known[SHOP] == AnnotatedName(SHOP, NOW)
    known = after(known, gone, NOW + 3599)
    assert not known[SHOP].gone
    known = after(known, gone, NOW + 3600)
    assert known[SHOP].gone
    assert known[WEB] == AnnotatedName(WEB)
    assert after(known, ((WEB, SHOP), True), NOW + 3601) == names(SHOP, WEB)


@pytest.mark.parametrize("told", [(None, False), (None, True), ((), False), ((WEB,), False)])
def test_what_is_not_sure_takes_nothing_away_and_begins_the_time_of_grace_again(told: Told) -> None:
    known = after(names(WEB, SHOP), ((WEB,), True))
    for hour in range(1, 50):
        known = after(known, told, NOW + hour * 3600)
        assert known == names(SHOP, WEB)
    assert not after(known, ((WEB,), True), NOW + 1e6)[SHOP].gone


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
    found, refused = annotated({}, (name, "EXAMPLE.com."), DNS, sure=True, now=NOW)
    assert found == names("example.com")
    assert why in refused[name]


def test_there_is_room_for_so_many_names_and_those_that_are_there_stay() -> None:
    many = tuple(f"{letter}.example.com" for letter in "abcde")
    found, refused = annotated(names(WEB), (*many, WEB), DNS, sure=True, now=NOW)
    assert set(found) == {WEB, "a.example.com", "b.example.com"}
    assert set(refused) == set(many[2:])
    assert "dns.annotation_names is 3" in refused["c.example.com"]


def test_a_domain_that_the_settings_no_longer_allow_is_let_go() -> None:
    assert after(names("a.example.net", WEB), (None, False)) == names(WEB)


_TOLD = st.tuples(st.none() | st.lists(st.sampled_from([WEB, SHOP, "x.y", "?"])).map(tuple), st.booleans())


@given(st.lists(st.tuples(_TOLD, st.floats(0, 7200))))
def test_a_name_is_dropped_only_after_an_unbroken_time_of_grace_without_it(looks: list[tuple[Told, float]]) -> None:
    known: Mapping[str, AnnotatedName] = {}
    now, missed_s = NOW, 0.0
    ever = False
    for told, wait_s in looks:
        now += wait_s
        wants = WEB in (told[0] or ())
        ever = ever or wants
        if wants or not told[1] or told[0] is None:
            missed_s = -1.0
        elif missed_s < 0.0:
            missed_s = 0.0
        else:
            missed_s += wait_s
        was_gone = WEB in known and known[WEB].gone
        known = after(known, told, now)
        assert (WEB in known) is ever
        if WEB in known and known[WEB].gone and not was_gone:
            assert missed_s >= DNS.annotation_grace_s - 1e-3


def test_the_daemon_is_sure_only_while_it_lives_has_new_data_and_nothing_is_held() -> None:
    well = Status(NOW, "1", 1, NOW, NOW, Phase.SERVING, source=SourceHealth(last_sync_at=NOW - 100), dns_names=(WEB,))
    assert annotated_names(well, NOW) == ((WEB,), True)
    assert annotated_names(replace(well, dns_names=None), NOW)[0] is None
    for phase in set(Phase) - {Phase.SERVING}:
        assert not annotated_names(replace(well, phase=phase), NOW)[1]
    assert not annotated_names(well, NOW + 31)[1]  # the daemon is gone, or hangs
    assert not annotated_names(well, NOW - 31)[1]
    assert not annotated_names(replace(well, now=NOW + 100), NOW + 100)[1]  # no API server has answered for minutes
    assert not annotated_names(replace(well, hold_id="h"), NOW)[1]
    assert not annotated_names(replace(well, hold=Hold("h", HoldKind.SHARE, NOW, 1, 2, 1)), NOW)[1]


PUBLIC, OTHER = Zone("Z1", "example.com."), Zone("Z2", "b.example.com.")
PRIVATE = Zone("Z3", "example.com.", private=True)
RECORDS = '[{"name": "a.example.com", "private": true, "ttl_s": 7}, {"name": "x.b.example.com", "zone_id": "Z9"}]'


def settings(**more: str) -> Settings:
    given = {"names": "a.example.com", "address": "192.0.2.1", "reaper": "yes", "records": RECORDS} | more
    return resolve({f"dns.{key}": value for key, value in given.items()}, {}, lambda _: "").settings


def kept_names(*zones: Zone, **more: str) -> DnsNames:
    return DnsNames(settings(**more), StrictRoute53(*zones), "n0")


def test_each_name_has_its_zone() -> None:
    found = kept_names(PUBLIC, OTHER, PRIVATE)
    kept = found.kept({"y.b.example.com": AnnotatedName("y.b.example.com")})
    assert [(each.spec.name, zone_id(found, each.spec)) for each in kept] == [
        ("a.example.com", "Z1"),
        ("a.example.com", "Z3"),
        ("x.b.example.com", "Z9"),
        ("y.b.example.com", "Z2"),
    ]
    assert [each.spec.ttl_s for each in of_name(kept, "A.example.com.")] == [60, 7]
    with pytest.raises(ConfigurationError, match=r"these are: a.example.com, x.b.example.com"):
        of_name(kept, "c.example.com")


def test_a_name_of_the_settings_is_theirs_whoever_asks_for_it_too() -> None:
    found = kept_names(PUBLIC).kept({"a.example.com": AnnotatedName("a.example.com", gone=True)})
    assert all(each.annotated is None for each in found)


def test_names_of_the_annotation_stay_in_the_zones_that_the_settings_allow() -> None:
    found = kept_names(PUBLIC, OTHER, annotation_suffixes="example.com", annotation_zones="Z1")
    allowed, elsewhere = found.kept({name: AnnotatedName(name) for name in ("c.example.com", "c.b.example.com")})[-2:]
    assert zone_id(found, allowed.spec) == "Z1"
    # The zone that has it is another one: in the allowed one nobody would ever ask for it.
    with pytest.raises(RejectedInput, match=r"Z2 is not among dns.annotation_zones"):
        zone_id(found, elsewhere.spec)


def test_a_zone_that_is_made_later_is_found() -> None:
    provider = StrictRoute53()
    found = DnsNames(settings(), provider, "n0")
    spec = found.kept({})[0].spec
    with pytest.raises(ConfigurationError, match="no public hosted zone"):
        zone_id(found, spec)
    provider.add_zone(PUBLIC)
    assert zone_id(found, spec) == "Z1"
    assert zone_id(found, replace(spec, zone_id="Z7")) == "Z7"


def test_without_any_name_there_is_no_kept_names() -> None:
    with pytest.raises(ConfigurationError, match="no name to publish"):
        dns_names(resolve({}, {}, lambda _: "").settings)


@pytest.mark.parametrize("file", ["dns.json", "dns-names.json"])
def test_what_is_kept_over_a_restart_outlives_a_newer_version(file: str, tmp_path: Path) -> None:
    """A newer version keeps more of each; a damaged file counts as none, and is logged."""
    there = replace(settings(annotation_suffixes="example.com"), state_dir=str(tmp_path))
    activity = {"192.0.2.10": Activity(active=False, withdrawn_at=7.0, joins=(1.0,))}
    entries = [AnnotatedName(WEB, 5.0, gone=True)]
    activity_file(there).write(activity)
    annotation_file(there).write(entries)
    path = tmp_path / file
    path.write_text(path.read_text().replace("}]", ',"more":1}]').replace("}}", ',"more":{"x":1}}}'))
    assert "more" in path.read_text()
    with structlog.testing.capture_logs() as logs:
        assert activity_file(there).load() == activity
        assert annotation_file(there).load() == entries
        assert logs == []
        path.write_text("{")
        assert (activity_file(there) if file == "dns.json" else annotation_file(there)).load() is None
    assert [line["event"] for line in logs] == ["state_file.unreadable"]


class Clock(SystemClock):
    """The clocks of one boot; ``wall`` may be set to anything."""

    def __init__(self, wall: float, since_boot: float) -> None:
        self.wall, self.since_boot = wall, since_boot

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.since_boot


@pytest.mark.parametrize(("wall", "ago"), [(NOW + 20.0, 20.0), (NOW - 3600.0, 0.0), (0.0, 0.0)])
def test_what_a_file_keeps_from_the_future_counts_as_now(wall: float, ago: float, tmp_path: Path) -> None:
    there = replace(settings(annotation_suffixes="example.com"), state_dir=str(tmp_path))
    before, after_boot = Clock(NOW, 9000.0), Clock(wall, 5.0)
    activities = {
        "": Activity(active=False, withdrawn_at=9000.0, joins=(8990.0, 9000.0)),
        "192.0.2.10": Activity(active=True),
    }
    store_activities(there, activities, before)
    store_annotated(there, [AnnotatedName(WEB), AnnotatedName(SHOP, 9000.0)], before)
    found = stored_activities(there, after_boot)
    assert found[""].withdrawn_at == 5.0 - ago
    assert found[""].joins[-1] == 5.0 - ago
    assert waits_s(found[""], 5.0, DnsSettings()) == 60.0 - ago
    assert found["192.0.2.10"].active is True
    stored = stored_annotated(there, after_boot)
    assert (stored[WEB].missed_since, stored[SHOP].missed_since) == (None, 5.0 - ago)
