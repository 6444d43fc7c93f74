from dataclasses import replace

import pytest

from pyconfd.dns.records import (
    Marker,
    NameOwner,
    Policy,
    RecordAction,
    RecordChange,
    RecordSet,
    Zone,
    adopted_node,
    canonical,
    inside,
    marker_record,
    markers_of,
    normalised,
    owner_record,
    owners_of,
    record_set,
    swapped,
    zone_of,
)
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings import Mode

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
@pytest.mark.parametrize(("private", "kind"), [(False, "public"), (True, "private")])
def test_a_name_in_no_zone_is_an_error(name: str, private: bool, kind: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        zone_of(name, (*PUBLIC, *PRIVATE), private=private)
    remedy = "set dns.zone_id, or dns.private if it is the other kind"
    assert raised.value.problems == (Problem("dns.names", f"no {kind} hosted zone has {name}", remedy),)


def test_two_zones_of_one_name_are_both_named() -> None:
    with pytest.raises(ConfigurationError) as raised:
        zone_of("x.example.com", (Zone("Z9", "example.com."), *PUBLIC), private=False)
    message = "x.example.com fits Z1 (example.com.) and Z9 (example.com.), both public"
    assert raised.value.problems == (Problem("dns.zone_id", message, "set dns.zone_id to the one that is meant"),)


@pytest.mark.parametrize(
    ("name", "compared"),
    [
        ("\\052.Example.com", "*.example.com."),
        ("example.com.", "example.com."),
        ("example.com", "example.com."),
    ],
)
def test_names_are_compared_as_route_53_writes_them(name: str, compared: str) -> None:
    assert normalised(name) == compared


@pytest.mark.parametrize(
    ("name", "zone", "is_inside"),
    [
        ("*.example.com", "example.com.", True),
        ("Example.com", "example.com.", True),
        ("a.b.example.com.", "EXAMPLE.com", True),
        ("badexample.com", "example.com", False),
        ("com", "example.com", False),
    ],
)
def test_a_zone_has_its_own_name_and_those_below(name: str, zone: str, is_inside: bool) -> None:
    assert inside(name, zone) is is_inside


def test_values_are_sorted_once_and_addresses_in_their_usual_spelling() -> None:
    assert canonical("AAAA", ["2001:DB8::2", "2001:db8:0::1", "2001:db8::1", "x"]) == (
        "2001:db8::1",
        "2001:db8::2",
        "x",
    )
    assert canonical("A", ["192.0.2.2", "192.0.2.1", "192.0.2.2"]) == ("192.0.2.1", "192.0.2.2")
    assert canonical("TXT", ["2001:DB8::2"]) == ("2001:DB8::2",)
    found = record_set("A.example.com", "AAAA", 7, ["2001:DB8::2"], Policy.WEIGHTED, "id")
    assert found == RecordSet("a.example.com.", "AAAA", 7, ("2001:db8::2",), Policy.WEIGHTED, "id")
    assert found.key == ("a.example.com.", "AAAA", "id")
    assert record_set("a", "A", 7, []) == RecordSet("a.", "A", 7, (), Policy.SIMPLE, "", None, "", alias=False)


ONE = record_set("example.com", "A", 7, ["192.0.2.1", "192.0.2.2"], Policy.MULTIVALUE, "id")
OTHER = record_set("example.com", "A", 8, ["192.0.2.1"])
DELETE, CREATE = RecordAction.DELETE, RecordAction.CREATE


@pytest.mark.parametrize(
    ("former", "wanted", "changes"),
    [
        (None, None, ()),
        (ONE, replace(ONE), ()),
        (None, ONE, (RecordChange(CREATE, ONE),)),
        (ONE, None, (RecordChange(DELETE, ONE),)),
        (ONE, OTHER, (RecordChange(DELETE, ONE), RecordChange(CREATE, OTHER))),
    ],
)
def test_a_record_set_is_deleted_as_it_was_read_and_created(
    former: RecordSet | None, wanted: RecordSet | None, changes: tuple[RecordChange, ...]
) -> None:
    assert swapped(former, wanted) == changes


def test_a_change_is_shown_with_all_that_makes_it_one_record_set() -> None:
    assert str(RecordChange(DELETE, ONE)) == "DELETE example.com. A [id] 192.0.2.1 192.0.2.2"
    assert str(RecordChange(CREATE, OTHER)) == "CREATE example.com. A 192.0.2.1"


NAME = "lb.example.com"


def said(text: str, who: str) -> RecordSet:
    return RecordSet("_pyconfd.lb.example.com.", "TXT", 60, (text,), Policy.MULTIVALUE, f"pyconfd:prod:{who}")


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (Marker("prod", "n0", ()), "ip=,seq=1"),
        (Marker("prod", "n0", ("192.0.2.1",), 17), "ip=192.0.2.1,seq=17"),
        (Marker("prod", "n0", ("192.0.2.1", "2001:db8::1"), 2, "n1"), "ip=192.0.2.1+2001:db8::1,seq=2,doubt=n1"),
    ],
)
def test_what_is_written_of_a_node_is_read_again(marker: Marker, text: str) -> None:
    record = marker_record(NAME, marker, 60)
    assert record == said(f'"heritage=pyconfd,owner=prod,node=n0,{text}"', "n0")
    assert markers_of([record]) == {("prod", "n0"): (marker, record)}
    assert owners_of([record]) == {}


@pytest.mark.parametrize("mode", list(Mode))
def test_what_is_written_of_an_owner_is_read_again(mode: Mode) -> None:
    owner = NameOwner("prod", mode, 3)
    record = owner_record(NAME, owner, 60)
    assert record == said(f'"heritage=pyconfd,owner=prod,mode={mode.value},generation=3"', "+generation")
    assert owners_of([record]) == {"prod": (owner, record)}
    assert markers_of([record]) == {}


def test_an_adopted_address_has_no_node() -> None:
    assert adopted_node("192.0.2.1") == "adopted:192.0.2.1"
    assert Marker("prod", adopted_node("192.0.2.1"), ()).adopted
    assert not Marker("prod", "n0", ()).adopted


@pytest.mark.parametrize(("size", "sizes"), [(255, [255]), (256, [255, 1]), (511, [255, 255, 1])])
def test_a_long_marker_is_written_in_strings_of_255_characters(size: int, sizes: list[int]) -> None:
    rest = len("heritage=pyconfd,owner=prod,node=,ip=,seq=1")
    marker = Marker("prod", "n" * (size - rest), ())
    record = marker_record(NAME, marker, 60)
    assert [len(each.strip('"')) for each in record.values[0].split(" ")] == sizes
    assert markers_of([record]) == {("prod", marker.node): (marker, record)}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, 0),
        ("", 0),
        ("-1", 0),
        ("x", 0),
        ("1x", 0),
        ("\u0661", 0),  # a digit, and no ASCII
        ("\u00b2", 0),  # a digit that int() does not take
    ],
)
def test_a_number_that_somebody_changed_counts_as_0(text: str, number: int) -> None:
    node = said(f'"heritage=pyconfd,owner=prod,node=n0,ip=,seq={text}"', "n0")
    owner = said(f'"heritage=pyconfd,owner=prod,mode=vip,generation={text}"', "+generation")
    assert markers_of([node]) == {("prod", "n0"): (Marker("prod", "n0", (), number), node)}
    assert owners_of([owner]) == {"prod": (NameOwner("prod", Mode.VIP, number), owner)}


NODE = said('"heritage=pyconfd,owner=prod,node=n0,ip=,seq=1"', "n0")
OWNER = said('"heritage=pyconfd,owner=prod,mode=vip,generation=1"', "+generation")


@pytest.mark.parametrize(
    "record",
    [
        replace(NODE, type="A"),
        replace(NODE, values=()),
        replace(NODE, values=NODE.values * 2),
        replace(NODE, identifier="pyconfd:prod:n1"),
        replace(NODE, values=('"owner=prod,node=n0,ip=,seq=1"',)),
        said('"heritage=others,owner=prod,node=n0"', "n0"),
        said('"heritage=pyconfd,node=n0"', "n0"),
        replace(said('"heritage=pyconfd,node=n0"', "n0"), identifier="pyconfd::n0"),
        said('"heritage=pyconfd,owner=prod"', ""),
        replace(OWNER, type="A"),
        replace(OWNER, identifier="pyconfd:other:+generation"),
        said('"heritage=pyconfd,owner=prod,mode=other,generation=1"', "+generation"),
        said('"heritage=pyconfd,owner=prod,generation=1"', "+generation"),
        replace(said('"heritage=pyconfd,mode=vip"', ""), identifier="pyconfd::+generation"),
    ],
)
def test_what_is_no_marker_of_pyconfd_says_nothing(record: RecordSet) -> None:
    assert markers_of([record]) == {}
    assert owners_of([record]) == {}
    # What follows counts.
    assert markers_of([record, NODE]) == {("prod", "n0"): (Marker("prod", "n0", ()), NODE)}
    assert owners_of([record, OWNER]) == {"prod": (NameOwner("prod", Mode.VIP, 1), OWNER)}
