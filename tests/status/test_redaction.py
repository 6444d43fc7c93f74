import pytest

from pyconfd.status.redaction import HIDDEN, hidden_configuration, public_value, redacted

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


@pytest.mark.parametrize(
    "line",
    [
        "    user admin password hunter2 groups a",
        "    user admin insecure-password hunter2",
        "    user admin insecure-password 'hunter2'",
        '    user admin insecure-password "hunter2"',
        "    stats auth admin:hunter2",
        "    http-request set-header Authorization hunter2",
        '    http-request set-header Authorization "Token hunter2"',
        "    http-check send meth GET uri / hdr authorization hunter2",
        "    tcp-check send AUTH\\ hunter2\\r\\n",
        "    http-request set-header X-Key hunter2",
        "    log syslog://me:hunter2@10.0.0.1",
    ],
)
def test_a_configuration_is_shown_without_its_passwords(line: str) -> None:
    shown = hidden_configuration(f"global\n{line}\n    maxconn 5\n", ["hunter2"] if "X-Key" in line else [])
    assert "hunter2" not in shown
    assert HIDDEN in shown
    assert shown.startswith("global\n")
    assert shown.endswith("\n    maxconn 5\n")


def test_an_ordinary_configuration_is_shown_as_it_is() -> None:
    text = "frontend f\n    bind :80\n    acl p path_beg /password\nbackend b\n    server a 10.0.0.1:80 check\n"
    assert hidden_configuration(text, [""]) == text
