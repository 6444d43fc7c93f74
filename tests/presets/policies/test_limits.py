"""What the words of limits take."""

import pytest

from pyconfd.presets.policies.limits import NO_LIMITS, RequestLimits
from pyconfd.presets.policies.words import asked_by


def limits(**words: str) -> RequestLimits | str:
    asked, faults = asked_by((name.replace("_", "-"), text) for name, text in words.items())
    if faults:
        assert all(each.restricts for each in faults)
        return faults[0].name
    return asked.policy.limits


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"limit_rps": "100"}, RequestLimits(second=100)),
        ({"limit_rpm": " 1000000 ", "limit_burst": "0"}, RequestLimits(minute=1_000_000, burst=0)),
        ({"limit_connections": "1", "limit_by": "route"}, RequestLimits(connections=1, by="route")),
        ({"limit_rps": "1", "limit_by": "header:X-Api-Key"}, RequestLimits(second=1, by="header:x-api-key")),
    ],
)
def test_what_they_mean(words: dict[str, str], expected: RequestLimits) -> None:
    assert limits(**words) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "1e3", "1000001", "99999999", "\u0661", "1 }", "1\n2", "%[src]"]
)
@pytest.mark.parametrize("word", ["limit_rps", "limit_rpm", "limit_connections"])
def test_what_is_no_limit_closes(word: str, text: str) -> None:
    assert limits(**{word: text}) == word.replace("_", "-")


@pytest.mark.parametrize(
    "text",
    ["", "cookie", "header:", "header:a b", "header:a) -m found }", "header:a,lower", f"header:{'a' * 65}", "header:é"],
)
def test_who_is_counted_is_one_word(text: str) -> None:
    assert limits(limit_rps="1", limit_by=text) == "limit-by"


def test_what_says_more_of_no_limit_has_no_lines() -> None:
    alone = limits(limit_burst="5", limit_by="route")
    assert isinstance(alone, RequestLimits)
    assert (alone.lines, alone.values) == (NO_LIMITS, ())
    beside = RequestLimits(connections=3, burst=5)
    assert (beside.lines, beside.values) == (RequestLimits(connections=0), (("connections", "3"),))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            RequestLimits(second=5, minute=60, burst=9),
            "5 requests a second, 60 requests a minute, and 9 beyond for each client address, else 429",
        ),
        (RequestLimits(connections=3, burst=9, by="route"), "3 requests at the same time for all clients, else 429"),
        (RequestLimits(minute=1, by="header:x-key"), "1 requests a minute for each value of x-key, else 429"),
    ],
)
def test_what_an_explanation_says(asked: RequestLimits, expected: str) -> None:
    assert asked.text == expected
