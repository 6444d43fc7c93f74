import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.settings import Settings, names_of, resolve

FIXED = {"dns.names": "lb.example.com", "dns.address": "192.0.2.1"}


def settings(**more: str) -> Settings:
    return resolve(FIXED | {f"dns.{key}": value for key, value in more.items()}, {}, lambda _: "").settings


def test_names_are_lower_case_without_a_final_dot() -> None:
    assert settings(names="LB.Example.com., b.example.com", reaper="yes").dns.names == (
        "lb.example.com",
        "b.example.com",
    )


@pytest.mark.parametrize("names", ["lb", "192.0.2.1", "-x.example.com", "a b.example.com,::1", "a..example.com"])
def test_what_is_no_name_is_refused(names: str) -> None:
    with pytest.raises(ConfigurationError):
        settings(names=names, reaper="yes")


@pytest.mark.parametrize(
    "more",
    [
        {"reaper": "yes"},
        {"health_check_id": "abc-1"},
        {"accept_dead_nodes": "yes"},
        {"mode": "shared", "reaper": "yes"},
        {"mode": "vip", "vip": "192.0.2.9"},
        {"reaper": "yes", "weight": "0"},
        {"reaper": "yes", "address_source": "imds-public", "address": ""},
        {"reaper": "yes", "address_source": "interface", "interface": "eth0", "address": ""},
    ],
)
def test_combinations_that_are_safe(more: dict[str, str]) -> None:
    assert settings(**more).dns.names == ("lb.example.com",)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"reaper": "yes", "address": "2001:db8::1"}, "an IPv4 address"),
        ({"reaper": "yes", "address6": "192.0.2.1"}, "an IPv6 address"),
        ({"reaper": "yes", "weight": "256"}, "a whole number from 0 to 255"),
        ({"reaper": "yes", "frontends": "https://127.0.0.1/"}, "tcp://HOST:PORT"),
    ],
)
def test_values_that_are_refused(more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        settings(**more)


def test_without_names_nothing_is_asked_for() -> None:
    assert resolve({}, {}, lambda _: "").settings.dns.names == ()


def test_a_record_says_what_differs_and_an_empty_text_is_none() -> None:
    record = '[{"name": "b.example.com", "zone_id": "", "weight": 0, "mode": "multivalue"}]'
    found = settings(records=record, zone_id="Z1", weight="7", reaper="yes", ttl_s="5")
    assert [(each.name, each.zone_id, each.weight, each.ttl_s) for each in names_of(found.dns)] == [
        ("lb.example.com", "Z1", 7, 5),
        ("b.example.com", "", 0, 5),
    ]
    with pytest.raises(ConfigurationError, match="table 1, owner: expected a name"):
        settings(records='[{"name": "b.example.com", "owner": ""}]', reaper="yes")
