import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.listener import NOBODY, Listener, Listeners, asked_for

LISTENERS = st.builds(
    Listener,
    st.sampled_from(["", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2", "::1", "2001:db8::1"]),
    st.sampled_from([80, 81]),
    st.booleans(),
)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("0.0.0.0", "10.0.0.1", True),
        ("*", "0.0.0.0", True),
        ("::", "::1", True),
        ("::", "10.0.0.1", True),
        ("::", "0.0.0.0", True),
        ("0.0.0.0", "::1", False),
        ("::1", "2001:db8::1", False),
        ("2001:DB8:0::1", "2001:db8::1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("localhost", "10.0.0.1", True),
        ("localhost", "::1", True),
    ],
)
def test_a_wildcard_has_every_address_of_its_family(one: str, other: str, overlap: bool) -> None:
    first, second = Listener.at(one, 80), Listener.at(other, 80)
    assert (first.overlaps(second), second.overlaps(first)) == (overlap, overlap)
    assert not first.overlaps(Listener.at(other, 81))


def test_a_wildcard_for_ipv6_only_leaves_ipv4_alone() -> None:
    only = Listener("::", 80, v6only=True)
    assert not only.overlaps(Listener("0.0.0.0", 80))
    assert not only.overlaps(Listener("10.0.0.1", 80))
    assert only.overlaps(Listener("::1", 80))
    assert only.overlaps(Listener("::", 80))


@given(LISTENERS, LISTENERS)
def test_it_is_mutual(one: Listener, other: Listener) -> None:
    assert one.overlaps(other) == other.overlaps(one)
    assert one.overlaps(one)


@given(st.lists(LISTENERS), LISTENERS)
def test_who_has_it_is_found_as_one_by_one(taken: list[Listener], wanted: Listener) -> None:
    found = Listeners(dict.fromkeys(taken, "somebody")).holder(wanted)
    assert (found is not None) == any(each.overlaps(wanted) for each in taken)
    if found is not None:
        assert found.listener.overlaps(wanted)


def test_who_came_first_keeps_it() -> None:
    http = Listener("0.0.0.0", 80)
    both = NOBODY.with_owner("first", [http]).with_owner("second", [http, Listener("0.0.0.0", 81)])
    assert both == Listeners({http: "first", Listener("0.0.0.0", 81): "second"})
    assert NOBODY.holder(http) is None
    assert len(NOBODY) == 0


def test_they_are_written_as_haproxy_does() -> None:
    assert [str(Listener.at(text, 80)) for text in ("*", "::1", "localhost")] == ["0.0.0.0:80", "[::1]:80", "port 80"]


class TestWhoAskedForWhatIsTaken:
    ANY, ONE, TWO = Listener("0.0.0.0", 80), Listener("10.0.0.1", 80), Listener("10.0.0.2", 80)

    def test_the_one_that_was_bound_as_it_was_asked_for(self) -> None:
        assert asked_for({self.ANY: "nginx"}, frozenset({self.ANY, self.ONE})) == {self.ANY: "nginx"}

    def test_all_that_may_be_meant_where_none_was(self) -> None:
        assert asked_for({self.ANY: "nginx"}, frozenset({self.ONE, self.TWO})) == {self.ONE: "nginx", self.TWO: "nginx"}
        assert asked_for({self.ONE: "nginx"}, frozenset({Listener("", 80), self.TWO})) == {Listener("", 80): "nginx"}

    def test_nobody(self) -> None:
        assert asked_for({self.ONE: "nginx"}, frozenset({self.TWO})) == {}
        assert asked_for({}, frozenset({self.TWO})) == {}


def test_who_has_one_address_is_not_who_has_all() -> None:
    own, everywhere = Listener("2001:db8::1", 80, v6only=True), Listener("::", 80)
    taken = Listeners({own: "a", everywhere: "b", Listener("192.0.2.1", 443): "c"})
    assert taken.holder_of_address(Listener("2001:db8::1", 80)) == (own, "a")
    assert taken.holder_of_address(Listener("2001:db8::2", 80)) is None
    assert taken.holder_of_address(Listener("192.0.2.1", 80)) is None
