from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.rendering import natural_order, order_differs

names = st.text(st.sampled_from("0123456789ab-_.ÄZ"), max_size=8)


def test_numbers_are_compared_as_numbers() -> None:
    assert natural_order(["10-stats.conf", "9-tcp.tmpl", "1-global.conf"]) == [
        "1-global.conf",
        "9-tcp.tmpl",
        "10-stats.conf",
    ]


def test_numbers_within_a_name_count_too() -> None:
    assert natural_order(["site10b.conf", "site9b.conf", "site10a.conf"]) == [
        "site9b.conf",
        "site10a.conf",
        "site10b.conf",
    ]


def test_leading_zeros_only_break_ties() -> None:
    assert natural_order(["1-a", "01-b", "01-a", "001-a", "2-a"]) == ["001-a", "01-a", "1-a", "01-b", "2-a"]


def test_without_numbers_the_order_is_by_bytes() -> None:
    assert natural_order(["b.conf", "a1.conf", "a.conf", "B.conf", "ä.conf"]) == [
        "B.conf",
        "a.conf",
        "a1.conf",
        "b.conf",
        "ä.conf",
    ]


def test_the_shipped_names_are_in_the_predecessors_order() -> None:
    assert not order_differs(["04-tcp.tmpl", "01-defaults.conf", "02-http.tmpl", "03-https.tmpl"])


def test_a_difference_to_the_predecessor_is_told() -> None:
    assert order_differs(["9-tcp.tmpl", "10-stats.conf"])


@given(st.lists(names, unique=True), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_given(given_names: list[str], random: object) -> None:
    shuffled = list(given_names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert natural_order(shuffled) == natural_order(given_names)


@given(names, names, names)
def test_the_order_is_transitive_and_antisymmetric(one: str, two: str, three: str) -> None:
    def before(left: str, right: str) -> bool:
        return natural_order([left, right])[0] == left and natural_order([right, left])[0] == left

    assert before(one, two) or before(two, one)
    if before(one, two) and before(two, three):
        assert before(one, three)


@given(st.lists(st.text(st.sampled_from("abcXYZ-._"), min_size=1), unique=True))
def test_names_without_digits_never_differ(given_names: list[str]) -> None:
    assert not order_differs(given_names)
