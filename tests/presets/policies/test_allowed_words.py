"""Which words of policies a namespace may say, and how much these may say."""

import pytest

from pyconfd.presets.policies.types import RoutePolicy
from pyconfd.presets.policies.words import WORDS, asked_by
from pyconfd.presets.policy import ClaimOptions, PolicyBounds, Rule

_RULES = ClaimOptions((Rule(("shop", "shop-*"), policies=("allow-networks", "max-*")), Rule(("free",))))
_BOUNDS = ClaimOptions(bounds=PolicyBounds(body=1 << 20, timeout_ms=5_000))


@pytest.mark.parametrize(
    ("namespace", "word", "allowed"),
    [
        ("shop", "allow-networks", True),
        ("shop-2", "max-body-size", True),
        ("shop", "deny-networks", False),
        ("shop", "server-timeout", False),
        ("free", "server-timeout", True),
        ("nobody", "allow-networks", False),
    ],
)
def test_rules_say_which_words_a_namespace_may_use(namespace: str, word: str, *, allowed: bool) -> None:
    text = {"max-body-size": "1k", "server-timeout": "1s"}.get(word, "192.0.2.0/24")
    _, faults = asked_by([(word, text)], "Ingress", namespace, _RULES)
    assert [(each.name, each.restricts) for each in faults] == ([] if allowed else [(word, WORDS[word].restricts)])
    assert all("claims.rules" in each.why for each in faults)


@pytest.mark.parametrize(
    ("word", "text", "setting"),
    [
        ("max-body-size", "1m", ""),
        ("max-body-size", "1025k", "policies.max_body_size"),
        ("max-body-size", "0", "policies.max_body_size"),
        ("server-timeout", "5s", ""),
        ("server-timeout", "5001ms", "policies.max_timeout_s"),
    ],
)
def test_a_value_beyond_a_bound_names_the_setting(word: str, text: str, setting: str) -> None:
    asked, faults = asked_by([(word, text)], "Ingress", "shop", _BOUNDS)
    assert [setting in each.why for each in faults] == ([True] if setting else [])
    assert (asked.policy == RoutePolicy() and asked.handling.timeout_ms is None) is bool(setting)


@pytest.mark.parametrize(("backends", "fits"), [(1, True), (15, True), (1000, False)])
def test_words_take_so_much_for_all_backends_of_an_object(backends: int, *, fits: bool) -> None:
    networks = ", ".join(f"10.{number}.0.128/25" for number in range(256))  # each of them takes 8 entries
    said = [("limit-rps", "5"), ("deny-networks", networks)]
    _, faults = asked_by(said, backends=backends)
    assert [(each.name, each.restricts) for each in faults] == ([] if fits else [("deny-networks", True)])
