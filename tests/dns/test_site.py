from dataclasses import replace

import pytest

from pyconfd.dns.asked import AskedName
from pyconfd.dns.records import Zone
from pyconfd.dns.site import Site, of_name, site_of
from pyconfd.errors import ConfigurationError, RejectedInput
from pyconfd.settings import Settings, resolve
from tests.dns.strict import StrictRoute53

PUBLIC, OTHER = Zone("Z1", "example.com."), Zone("Z2", "b.example.com.")
PRIVATE = Zone("Z3", "example.com.", private=True)
RECORDS = '[{"name": "a.example.com", "private": true, "ttl_s": 7}, {"name": "x.b.example.com", "zone_id": "Z9"}]'


def settings(**more: str) -> Settings:
    given = {"names": "a.example.com", "address": "192.0.2.1", "reaper": "yes", "records": RECORDS} | more
    return resolve({f"dns.{key}": value for key, value in given.items()}, {}, lambda _: "").settings


def site(*zones: Zone, **more: str) -> Site:
    return Site(settings(**more), StrictRoute53(*zones), "n0")


def test_each_name_has_its_zone() -> None:
    found = site(PUBLIC, OTHER, PRIVATE)
    kept = found.kept({"y.b.example.com": AskedName("y.b.example.com")})
    assert [(each.spec.name, found.zone_id(each.spec)) for each in kept] == [
        ("a.example.com", "Z1"),
        ("a.example.com", "Z3"),
        ("x.b.example.com", "Z9"),
        ("y.b.example.com", "Z2"),
    ]
    assert [each.spec.ttl_s for each in of_name(kept, "A.example.com.")] == [60, 7]
    with pytest.raises(ConfigurationError, match=r"these are: a.example.com, x.b.example.com"):
        of_name(kept, "c.example.com")


def test_a_name_of_the_settings_is_theirs_whoever_asks_for_it_too() -> None:
    found = site(PUBLIC).kept({"a.example.com": AskedName("a.example.com", gone=True)})
    assert all(each.asked is None for each in found)


def test_names_of_the_annotation_stay_in_the_zones_that_the_settings_allow() -> None:
    found = site(PUBLIC, OTHER, annotation_suffixes="example.com", annotation_zones="Z1")
    allowed, elsewhere = found.kept({name: AskedName(name) for name in ("c.example.com", "c.b.example.com")})[-2:]
    assert found.zone_id(allowed.spec) == "Z1"
    # The zone that has it is another one: in the allowed one nobody would ever ask for it.
    with pytest.raises(RejectedInput, match=r"Z2 is not among dns.annotation_zones"):
        found.zone_id(elsewhere.spec)


def test_a_zone_that_is_made_later_is_found() -> None:
    provider = StrictRoute53()
    found = Site(settings(), provider, "n0")
    spec = found.kept({})[0].spec
    with pytest.raises(ConfigurationError, match="no public hosted zone"):
        found.zone_id(spec)
    provider.add_zone(PUBLIC)
    assert found.zone_id(spec) == "Z1"
    assert found.zone_id(replace(spec, zone_id="Z7")) == "Z7"


def test_without_any_name_there_is_no_site() -> None:
    with pytest.raises(ConfigurationError, match="no name to publish"):
        site_of(resolve({}, {}, lambda _: "").settings)
