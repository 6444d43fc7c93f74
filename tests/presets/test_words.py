"""What a template may print anywhere: ``%`` begins a variable in the formats of HAProxy, ``$`` in double quotes."""

import json
import subprocess

import pytest

from pyconfd.presets import values
from tests.presets.pods import config_map, pod, read, refusals
from tests.world.haproxy import BINARY


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


REFUSED_BY_HAPROXY = [
    "^a{70000}",
    "^((a{99}){99}){99}",
    "^((((ab){9}){9}){9}){9}",
    "^[[.a.]]",
    "^[=a=]",
    "^[:alpha:]",
    r"^a\\b+",
]


@pytest.mark.parametrize(
    "value", [*REFUSED_BY_HAPROXY, "^[[:alpha:]]", r"^a\\.b", "^a{1000}", "^a{99999999999999999999}"]
)
def test_no_pattern_means_one_thing_to_python_and_another_to_haproxy(value: str) -> None:
    with pytest.raises(ValueError, match=r"regular expression|POSIX"):
        values.pattern(value)


@pytest.mark.haproxy
@pytest.mark.parametrize("value", REFUSED_BY_HAPROXY)
def test_haproxy_refuses_the_whole_configuration_for_one_of_them(value: str) -> None:
    assert "is invalid" in complaint(value)


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "value",
    [
        r"^([a-z0-9-]{1,63}\.){1,10}example[.]com$",
        "^[a-z]{1,63}[.][a-z]{1,63}[.][a-z]{1,63}[.]com$",
        "^/(api|v[0-9]+)(/|$)",
        "^[^.:]+[.]a$",
        r"^\d{1,3}\.\w+$",
    ],
)
def test_usual_patterns_pass_and_haproxy_takes_them(value: str) -> None:
    assert values.pattern(value) == value
    assert complaint(value) == ""


def complaint(pattern: str) -> str:
    text = "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"
    text += f"frontend f\n bind 127.0.0.1:1\n acl a path_reg {pattern}\n"
    argv = [BINARY, "-c", "-f", "/dev/stdin"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


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
