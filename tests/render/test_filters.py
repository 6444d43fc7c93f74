import os
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.render.filters import (
    bracket,
    format_quote,
    hostport,
    identifier,
    printable,
    quote,
    server_id,
    server_ids,
    server_name,
)
from pyconfd.render.invalid import InvalidValueError
from tests.render.haproxy_words import words

HAPROXY = os.environ.get("HAPROXY") or shutil.which("haproxy", path="/usr/sbin:/usr/bin") or ""
HAPROXY_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
text = st.text(st.characters(codec="utf-8"), max_size=12) | st.text("_2a*./:", max_size=6)


@dataclass(frozen=True)
class Endpoint:
    pod: str
    address: str
    port: int


endpoints = st.builds(
    Endpoint,
    pod=text,
    address=st.ip_addresses().map(str) | text,
    port=st.integers(min_value=1, max_value=65535),
)
quotable = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.sampled_from("'\"\\$# \t{}%"), min_size=1
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("shop.example.com", "shop.example.com"),
        ("*.example.com", "_2a.example.com"),
        ("demo/shop", "demo_2fshop"),
        ("a_b", "a__b"),
        ("bücher", "b_c3_bccher"),
        ("", "_"),
        (8080, "8080"),
    ],
)
def test_identifier_keeps_what_haproxy_keeps(value: object, expected: str) -> None:
    assert identifier(value) == expected


@given(text, text)
def test_identifier_is_injective_and_fits(one: str, two: str) -> None:
    assert HAPROXY_NAME.fullmatch(identifier(one))
    assert (identifier(one) == identifier(two)) == (one == two)


@given(text)
def test_identifier_can_be_read_back(value: str) -> None:
    def back(found: re.Match[bytes]) -> bytes:
        return b"_" if found[0] == b"__" else bytes.fromhex(found[0][1:].decode())

    name = identifier(value).encode()
    assert (b"" if name == b"_" else re.sub(rb"__|_[0-9a-f]{2}", back, name)).decode() == value


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (Endpoint("shop-6d4cf56db6-x2vzl", "10.244.1.23", 8080), "shop-6d4cf56db6-x2vzl:10.244.1.23:8080"),
        (Endpoint("shop-1", "fd00::1", 80), "shop-1:fd00::1:80"),
        (Endpoint("", "10.244.1.23", 8080), "10.244.1.23:8080"),
        (Endpoint("", "fd00::1", 80), "_:fd00::1:80"),
        ({"pod": None, "address": "10.0.0.1", "port": 1}, "10.0.0.1:1"),
    ],
)
def test_server_names_are_readable(endpoint: object, expected: str) -> None:
    assert server_name(endpoint) == expected


@given(endpoints, endpoints)
def test_server_names_are_injective_short_and_fit(one: Endpoint, two: Endpoint) -> None:
    assert HAPROXY_NAME.fullmatch(server_name(one))
    assert len(server_name(one)) <= 60
    assert (server_name(one) == server_name(two)) == (one == two)


@given(st.text("abc:._1", max_size=5), st.text("abc:._1", max_size=5), st.integers(1, 12), st.data())
def test_server_names_of_near_misses_differ(pod: str, address: str, port: int, data: st.DataObject) -> None:
    joined = f"{pod}:{address}:{port}"
    cut = data.draw(st.integers(0, len(joined)))
    other = Endpoint(joined[:cut], joined[cut:], port)
    one = Endpoint(pod, address, port)
    assert (server_name(one) == server_name(other)) == (one == other)


def test_long_server_names_keep_their_beginning_and_differ() -> None:
    names = {server_name(Endpoint("p" * 200, f"10.0.0.{last}", 80)) for last in range(100)}
    assert len(names) == 100
    assert all(name.startswith("ppppppp") and len(name) == 60 for name in names)


def test_an_endpoint_without_an_address_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(InvalidValueError, match="has no 'address'") as caught:
        server_name({"pod": "a", "adress": "10.0.0.1", "port": 1})
    assert "adress" in caught.value.remedy


@given(text)
def test_server_ids_fit_and_do_not_change(name: str) -> None:
    assert 1 <= server_id(name) <= 2**31 - 1
    assert server_ids([name]) == {name: server_id(name)}


def test_server_id_is_the_same_in_every_version() -> None:
    assert server_id("shop-1:10.0.0.1:80") == 705025705


@given(st.lists(st.text(), unique=True), st.randoms(use_true_random=False))
def test_server_ids_do_not_depend_on_the_order(names: list[str], random: object) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert server_ids(shuffled) == server_ids(names)


def test_colliding_server_ids_are_resolved_in_any_order() -> None:
    by_id: dict[int, str] = {}
    for number in range(1_000_000):
        name = f"pod-{number}"
        if (found := server_id(name)) in by_id:
            break
        by_id[found] = name
    else:
        pytest.fail("no collision found")
    pair = sorted([by_id[found], name])
    ids = server_ids(pair)
    assert ids == server_ids(reversed(pair))
    assert ids[pair[0]] == found
    assert ids[pair[1]] == server_id(f"{pair[1]}#1")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("fd00::1", "[fd00::1]"),
        ("[fd00::1]", "[fd00::1]"),
        ("[web.local]", "web.local"),
        ("web.local", "web.local"),
        ("*", "*"),
    ],
)
def test_bracket(address: str, expected: str) -> None:
    assert bracket(address) == expected
    assert hostport(address, 80) == hostport(address, "80") == f"{expected}:80"


@pytest.mark.parametrize(
    "address", ["", "10.0.0.1 check", "a;b", "10.0.0.1\n", "${A}", "[]", "[fd00::1", "fd00::1]", "**"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidValueError, match="no address"):
        bracket(address)


@pytest.mark.parametrize("port", [1, 65535])
def test_the_least_and_the_greatest_port_are_ports(port: int) -> None:
    assert hostport("10.0.0.1", port) == f"10.0.0.1:{port}"


@pytest.mark.parametrize("port", ["", 0, 65536, "80 check", "-1", None, "http", "\uff18\uff10"])
def test_what_is_no_port_is_refused(port: object) -> None:
    with pytest.raises(InvalidValueError, match="no port"):
        hostport("10.0.0.1", port)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("two words", "'two words'"),
        ("it's", '"it\'s"'),
        ('it\'s ${HOME} "quoted" \\1', '"it\'s \\${HOME} \\"quoted\\" \\\\1"'),
        ("${HOME}", "'${HOME}'"),
        ("# no comment", "'# no comment'"),
        ("a.com } || { always_true", "'a.com } || { always_true'"),
    ],
)
def test_quote(value: str, expected: str) -> None:
    assert quote(value) == expected


@given(quotable)
def test_quoted_values_are_one_word_and_read_back(value: str) -> None:
    try:
        line = f"before {quote(value)} after"
    except InvalidValueError:
        assert value in ("{", "}", "!", "||", "or", "if", "unless")
        return
    assert words(line) == ["before", value, "after"]


@pytest.mark.parametrize("value", ["", "a\nb", "a\rb", "a\0b", "\x1b[1m", "}", "||", "if"])
def test_what_no_quotes_protect_is_refused(value: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        quote(value)
    assert caught.value.remedy


def test_format_quote_doubles_percent_signs() -> None:
    assert format_quote("100 %[src]") == "'100 %%[src]'"


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@given(values=st.lists(quotable.filter(lambda value: len(value.encode()) < 200), min_size=20, max_size=40))
@settings(max_examples=10, deadline=None)
def test_haproxy_reads_quoted_values_as_they_are(values: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = [value for value in values if value not in ("{", "}", "!", "||", "or", "if", "unless")]
    path = tmp_path_factory.mktemp("quote") / "t.cfg"
    path.write_text("".join(f".notice {quote('<' + value + '>')}\n" for value in kept))
    done = subprocess.run([HAPROXY, "-c", "-f", str(path)], capture_output=True, check=False, env={"HOME": "/wrong"})
    output = done.stderr.decode()
    assert not any(line.startswith("[ALERT]") for line in output.splitlines())
    for line, value in enumerate(kept, 1):
        assert f"[{path}:{line}]: '<{value}>'.\n" in output


@pytest.mark.parametrize(
    ("value", "what"), [(len, "a builtin_function_or_method"), (iter(()), "a tuple_iterator"), (print, "a builtin")]
)
def test_what_prints_as_an_accident_is_named(value: object, what: str) -> None:
    with pytest.raises(InvalidValueError, match=f"this prints {what}"):
        printable(value)
