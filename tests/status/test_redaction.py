import pytest

from pyconfd.status.redaction import HIDDEN, public_value, redacted

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("GET https://me:hunter2@10.0.0.1:6443/api", "hunter2"),
        ("Authorization: Bearer abc.def-123456", "abc.def-123456"),
        ("authorization: basic bWU6aHVudGVyMg==", "bWU6aHVudGVyMg"),
        ("token eyJhbGciOiJSUzI1NiIs.eyJzdWIiOiJ4In0.c2lnbmF0dXJl was refused", "eyJ"),
        (f"cannot load {KEY}", "MIIEow"),
        (KEY[:40], "MIIEow"),
    ],
)
def test_secrets_go_and_the_rest_stays(text: str, secret: str) -> None:
    assert secret not in redacted(text)
    assert HIDDEN in redacted(text)


@pytest.mark.parametrize("text", ["https://10.0.0.1:6443/api", "me@example.org", "/etc/pyconfd/token", "basic check"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redacted(text) == text


def test_fields_that_name_a_secret_are_hidden_at_any_depth() -> None:
    given = {
        "token": "abc",
        "token_file": "/run/token",
        "n": 3,
        "more": [{"db_password": "abc", "ok": True}],
        "password": "",
    }
    assert public_value(given) == {
        "token": HIDDEN,
        "token_file": "/run/token",
        "n": 3,
        "more": [{"db_password": HIDDEN, "ok": True}],
        "password": "",
    }
