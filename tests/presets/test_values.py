"""Names as claims compare them, values of Secrets, addresses of nodes."""

import base64

import pytest

from pyconfd.presets.certificates import from_base64
from pyconfd.presets.values import comparable_name, number
from pyconfd.presets.views import NodeView


@pytest.mark.parametrize(
    ("text", "expected"), [("", ""), ("Shop.Example.com", "shop.example.com"), ("a b", "a b"), ("x" * 500, None)]
)
def test_names_are_compared_as_hosts(text: str, expected: str | None) -> None:
    found = comparable_name(text)
    assert len(found) < 200 if expected is None else found == expected


@pytest.mark.parametrize("text", ["", "0", "101", "1.5", "-1", "+1", "1e1", "\u0663", "1 0", "9" * 5000])
def test_a_number_is_one_within_its_bounds(text: str) -> None:
    assert [number(each, 1, 100) for each in ("1", " 100 ")] == [1, 100]
    with pytest.raises(ValueError, match="expected a number of seconds from 1 to 100"):
        number(text, 1, 100, " of seconds")


def test_values_of_secrets_are_base64_and_nothing_else() -> None:
    value = base64.b64encode(b"PEM").decode()
    assert from_base64(value, "tls.crt") == "PEM"
    for wrong in (f"{value[:2]}!{value[2:]}", value[:-1], base64.b64encode("\u00e4".encode()).decode()):
        with pytest.raises(ValueError, match=r"tls\.crt is not base64 of a PEM file"):
            from_base64(wrong, "tls.crt")


def test_a_node_has_the_first_address_of_a_type() -> None:
    addresses = (("Hostname", "n1"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"))
    node = NodeView("n1", "", addresses, ready=True, schedulable=True, eligible=True)
    assert node.address("InternalIP") == "10.0.0.1"
    assert node.address("ExternalIP") is None
