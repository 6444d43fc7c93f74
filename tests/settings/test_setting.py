"""One declaration: the names that follow from it, and the values that its type takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from msgspec import Meta

from pyconfd.settings.setting import NotAcceptedError, accept, setting, settings_of, text_of
from pyconfd.settings.table import TABLE
from pyconfd.settings.values import Command, Duration, FilePath, Port, whole, words

LETTERS = Annotated[str, whole("[a-z]+", "small letters")]


@dataclass(frozen=True, slots=True)
class Lamp:
    pages: Annotated[int, Meta(ge=1, le=9)] = setting(5, "pages of a list")
    wait_s: Duration = setting(1.5, "longest wait", old_env="WAIT", also=("--old-wait",))
    log: FilePath = setting("", "where to write", name="log_file", empty="nowhere")


@dataclass(frozen=True, slots=True)
class Shelf:
    name: FilePath
    width: LETTERS = "wide"


def test_names_follow_from_the_declaration() -> None:
    found = [(each.path, each.flags, each.envs, each.metavar) for each in settings_of(Lamp, "lamp")]
    assert found == [
        ("lamp.pages", ("--lamp-pages",), ("PYCONFD_LAMP_PAGES",), "NUMBER"),
        ("lamp.wait_s", ("--lamp-wait-s", "--old-wait"), ("PYCONFD_LAMP_WAIT_S", "WAIT"), "SECONDS"),
        ("lamp.log", ("--log-file",), ("PYCONFD_LOG_FILE",), "PATH"),
    ]
    assert Lamp() == Lamp(5, 1.5, "")


def test_an_empty_value_is_taken_where_the_declaration_says_what_it_stands_for() -> None:
    pages, _, log = settings_of(Lamp, "lamp")
    assert (log.accept(""), log.text("")) == ("", "(nowhere)")
    with pytest.raises(NotAcceptedError):
        pages.accept("")


@pytest.mark.parametrize(
    ("kind", "given", "value", "text"),
    [
        (bool, "Yes", True, "true"),
        (int, 7, 7, "7"),
        (Duration, "500ms", 0.5, "0.5"),
        (Duration, " 2.5 H", 9000.0, "9000"),
        (Duration, ".5", 0.5, "0.5"),
        (Duration, "3s", 3.0, "3"),
        (Duration, "2min", 120.0, "120"),
        (Duration, "1d", 86400.0, "86400"),
        (Duration, 90, 90.0, "90"),
        (LETTERS, "ab", "ab", "ab"),
        (Annotated[str, words("A", "B", bee="B")], "Bee", "B", "B"),
        (tuple[LETTERS, ...], "b, a b", ("b", "a"), "b, a"),
        (tuple[Port, ...], [80, "0443"], ("80", "443"), "80, 443"),
        (Command, "a 'b c'", ("a", "b c"), "a 'b c'"),
        (Mapping[str, Any], "b=1 a='x y'", {"a": "x y", "b": "1"}, "a, b"),
        (Mapping[str, Any], ("b='1'",), {"b": "'1'"}, "b"),
        (Mapping[str, Any], {"b": [1, 0.5, {"c": True}]}, {"b": [1, 0.5, {"c": True}]}, "b"),
        (tuple[Lamp, ...], [{"pages": "3", "wait_s": "2m"}], (Lamp(3, 120.0),), "3"),
        (tuple[Lamp, ...], '[{"log": ""}]', (Lamp(),), "5"),
    ],
)
def test_a_type_takes_text_and_toml(kind: Any, given: object, value: object, text: str) -> None:
    found = accept(kind, given)
    assert found == value
    assert text_of(kind, found) == text


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (bool, "maybe", 'true or false (yes/no, on/off, 1/0), got "maybe"'),
        (bool, 1, "true or false (yes/no, on/off, 1/0), got 1"),
        (Annotated[int, Meta(ge=1, le=9)], 10, "a whole number from 1 to 9, got 10"),
        (Annotated[int, Meta(ge=1, le=9)], True, "a whole number from 1 to 9, got true"),
        (Duration, "5 weeks", 'at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got "5 weeks"'),
        (Annotated[float, Meta(ge=2, le=5)], 1, "seconds of at least 2 and at most 5 "),
        (LETTERS, "a\nb", "small letters, got text of 3 characters over several lines"),
        (LETTERS, "", 'small letters, got ""'),
        (tuple[LETTERS, ...], ["a", None], "an array of texts, got None"),
        (tuple[LETTERS, ...], {"a": 1}, "an array of texts, got a table"),
        (tuple[Lamp, ...], "[", 'a JSON array of tables, got "["'),
        (tuple[Lamp, ...], 3, "tables, each beginning with its name in [[ ]], got 3"),
        (Mapping[str, Any], 3, "a table, got 3"),
        (Mapping[str, Any], "secret='", "its quotes closed (No closing quotation), got a value that is not"),
        (Mapping[str, Any], {"a": 2**63}, "dates, arrays and tables, got a very large number"),
        (tuple[Lamp, ...], [{"page": 1}], "table 1, page: is not a key of this table"),
        (tuple[Lamp, ...], [{}, {"pages": 0}], "table 2, pages: expected a whole number from 1 to 9, got 0"),
    ],
)
def test_a_type_refuses_the_rest(kind: Any, given: object, expected: str) -> None:
    with pytest.raises(NotAcceptedError) as caught:
        accept(kind, given)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "given", "problems"),
    [
        (bool, "ture", [("", 'true or false (yes/no, on/off, 1/0), got "ture"', "did you mean true?")]),
        (
            tuple[Annotated[str, words("Tree", "House")], ...],
            "tre, house, x",
            [("", 'one of Tree, House, got "tre"', "did you mean Tree?"), ("", 'one of Tree, House, got "x"', "")],
        ),
        (
            tuple[Lamp, ...],
            [{"pages": 0, "wait": 1, "a b": 1}, {}, {"wait_s": 0}],
            [
                (", table 1, pages", "a whole number from 1 to 9, got 0", ""),
                (", table 1, wait", "is not a key of this table", "did you mean wait_s?"),
                (', table 1, "a b"', "is not a key of this table", "its keys are pages, wait_s, log"),
                (
                    ", table 3, wait_s",
                    "seconds above 0 and at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got 0",
                    "",
                ),
            ],
        ),
        (tuple[Shelf, ...], [{}, {"name": ""}], [(f", table {n}, name", "is needed", "") for n in (1, 2)]),
    ],
)
def test_all_that_is_wrong_with_a_value_is_collected(
    kind: Any, given: object, problems: list[tuple[str, str, str]]
) -> None:
    with pytest.raises(NotAcceptedError) as caught:
        accept(kind, given)
    found = [(each.place, each.message.removeprefix("expected "), each.remedy) for each in caught.value.problems]
    assert found == problems
    first = caught.value.problems[0]
    assert str(caught.value).startswith(f"{first.place}: {first.message}"[2:])


def test_a_weight_of_0_is_none_of_none() -> None:
    weight = TABLE["dns.weight"]
    assert [(value, weight.text(value)) for value in map(weight.accept, ("", 0, "7"))] == [
        (None, "(none)"),
        (0, "0"),
        (7, "7"),
    ]
