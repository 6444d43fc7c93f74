"""What a template may print anywhere: ``%`` begins a variable in the formats of HAProxy, ``$`` in double quotes."""

import json

import pytest

from pyconfd.presets import values
from tests.presets.pods import config_map, pod, read, refusals


@pytest.mark.parametrize("value", ["%ci", "a%H", "%", "%%", "%pid", "/a%20b", "%{+Q}", "$HOME"])
def test_no_plain_word_is_a_variable_of_a_format(value: str) -> None:
    assert not values.is_word(value)
    assert values.plain_words({"a": value, value: "a", "b": "c"}) == {"b": "c"}


@pytest.mark.parametrize("value", ["^/a${HOME}", "^/a$HOME", "^a$_x", "^/($HOME)"])
def test_no_pattern_is_a_variable_of_the_environment(value: str) -> None:
    with pytest.raises(ValueError, match="not a plain regular expression"):
        values.pattern(value)


@pytest.mark.parametrize("value", ["^/a$", "^(a|b$)$", "^a$|^b$", r"^a\$", r"^/a[$]"])
def test_the_end_of_a_text_is_meant_by_a_dollar_sign(value: str) -> None:
    assert values.pattern(value) == value


@pytest.mark.parametrize("field", [{"header": "%ci"}, {"more": {"a": ["%pid"]}}, {"%H": "x"}, {"path": "^/${PATH}"}])
def test_a_service_with_one_is_left_out(field: dict[str, object]) -> None:
    entry = {"namespace": "demo", "selector": {}, **field}
    context = read(
        "configmap",
        config_map("config", {"template": "x"}),
        config_map("services", {"bad": json.dumps(entry), "good": '{"namespace": "demo", "selector": {}}'}),
        pod("p", "10.0.0.1"),
    )
    assert [service["name"] for service in context.names["services"]] == ["good"]
    assert any(place.startswith("ConfigMap services bad") for place in refusals(context))
