"""publish and consume, and what haproxy-kubefigurator's users type."""

import pytest

from tests.cli.application import FakeApp, invoke

KUBEFIGURATOR = (
    "--etcd-host", "https://etcd1:2379", "--etcd-host", "https://etcd2:2379",
    "--etcd-path", "/service-router/haproxy-config",
    "--etcd-ca-file", "/path/ca.crt",
    "--etcd-client-cert-file", "/path/client.crt",
    "--etcd-client-key-file", "/path/client.key",
)  # fmt: skip
"""Source: the example of its README."""


def test_publish_and_consume() -> None:
    app = FakeApp()
    assert invoke("publish", "--etcd-endpoints", "https://a,https://b:1", app=app).exit_code == 0
    assert invoke("consume", app=app).exit_code == 0
    once = invoke("publish", "--once", app=app)
    assert (once.exit_code, once.stdout) == (0, "Published as generation 7.\n")
    assert [name for name, _, _ in app.calls] == ["publish", "consume", "publish_once"]
    assert app.calls[0][1].etcd.endpoints == ("https://a:2379", "https://b:1")
    assert app.calls[1][1].etcd.endpoints == ("http://127.0.0.1:2379",)


@pytest.mark.parametrize(
    ("command", "call", "successor"),
    [("view", "render", "render"), ("apply", "publish_once", "publish --once"), ("watch", "publish", "publish")],
)
def test_the_predecessors_commands(command: str, call: str, successor: str) -> None:
    app = FakeApp()
    result = invoke(*KUBEFIGURATOR, command, app=app)
    assert result.exit_code == 0, result.output
    assert f"{command} is `pyconfd {successor}` now" in result.stderr
    ((name, settings, _),) = app.calls
    assert name == call
    etcd = settings.etcd
    assert etcd.endpoints == ("https://etcd1:2379", "https://etcd2:2379")
    assert etcd.path == "/service-router/haproxy-config"
    assert (etcd.ca, etcd.cert, etcd.key) == ("/path/ca.crt", "/path/client.crt", "/path/client.key")
    assert invoke(command, *KUBEFIGURATOR).exit_code == 0


def test_the_predecessors_commands_are_not_advertised() -> None:
    help_text = invoke("--help").stdout
    assert "  publish " in help_text
    assert "  consume " in help_text
    for name in ("view", "apply"):
        assert f"\n  {name} " not in help_text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--etcd-cert", "/c"), "etcd.cert without etcd.key"),
        (("--etcd-key", "/k"), "etcd.key without etcd.cert"),
        (("--etcd-user", "u"), "etcd.user without etcd.password_file"),
        (("--etcd-password-file", "/p"), "etcd.password_file without etcd.user"),
        (("--etcd-endpoints", "ftp://a"), "expected the address of an etcd"),
        (("--etcd-endpoints", "https://a:2379/x"), "expected the address of an etcd"),
        (("--etcd-endpoints", "https://a:nine"), "expected the address of an etcd"),
        (("--etcd-endpoints", ","), "at least one is needed"),
        (("--etcd-lease-s", "1"), "at least 2"),
    ],
)
def test_settings_that_cannot_work(arguments: tuple[str, ...], words: str) -> None:
    result = invoke("consume", *arguments)
    assert result.exit_code == 78
    assert words in result.stderr


def test_a_password_in_an_address_is_not_repeated() -> None:
    result = invoke("consume", "--etcd-endpoints", "https://u:hunter2@a:2379")
    assert result.exit_code == 78
    assert "hunter2" not in result.output


def test_a_password_in_clear_text_is_said() -> None:
    login = ("--etcd-user", "u", "--etcd-password-file", "/p")
    said = "the password for etcd goes to http://192.0.2.1:2379 in clear text"
    assert said in invoke("settings", *login, "--etcd-endpoints", "192.0.2.1:2379").stderr
    assert "clear text" not in invoke("settings", *login, "--etcd-endpoints", "https://192.0.2.1:2379").stderr
    assert "clear text" not in invoke("settings", *login).stderr


def test_addresses_as_etcdctl_takes_them() -> None:
    app = FakeApp()
    invoke("consume", "--etcd-endpoints", "a,http://[2001:db8::1],b:9", app=app)
    assert app.calls[0][1].etcd.endpoints == ("http://a:2379", "http://[2001:db8::1]:2379", "http://b:9")
