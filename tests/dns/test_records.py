import pytest

from pyconfd.dns.records import Zone, inside, normalised, zone_of
from pyconfd.errors import ConfigurationError

PUBLIC = (Zone("Z1", "example.com."), Zone("Z2", "lb.example.com."), Zone("Z3", "b.example.com."))
PRIVATE = (Zone("P1", "example.com.", private=True),)


@pytest.mark.parametrize(
    ("name", "private", "zone_id"),
    [
        ("example.com", False, "Z1"),
        ("lb.example.com", False, "Z2"),
        ("a.lb.example.com.", False, "Z2"),
        ("xlb.example.com", False, "Z1"),  # ends with the text of Z3, and of Z2, but not on a label boundary
        ("WWW.B.Example.COM", False, "Z3"),
        ("lb.example.com", True, "P1"),
    ],
)
def test_the_longest_zone_on_a_label_boundary_is_taken(name: str, private: bool, zone_id: str) -> None:
    assert zone_of(name, (*PRIVATE, *PUBLIC), private=private).zone_id == zone_id


@pytest.mark.parametrize("name", ["badexample.com", "example.org", "com"])
def test_a_name_in_no_zone_is_an_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no public hosted zone"):
        zone_of(name, (*PUBLIC, *PRIVATE), private=False)


def test_two_zones_of_one_name_are_both_named() -> None:
    with pytest.raises(ConfigurationError, match=r"Z1 \(example.com.\) and Z9"):
        zone_of("x.example.com", (*PUBLIC, Zone("Z9", "example.com.")), private=False)


def test_names_are_compared_as_route_53_writes_them() -> None:
    assert normalised("\\052.Example.com") == "*.example.com."
    assert inside("*.example.com", "example.com.")
