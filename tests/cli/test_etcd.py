"""publish and consume, and what haproxy-kubefigurator's users type."""

from pathlib import Path
from unittest.mock import patch

import pytest

from pyconfd.errors import Problem, RejectedInput
from pyconfd.settings import Settings
from tests.cli.invoking import daemon_settings, invoke

KUBEFIGURATOR = (
    "--etcd-host", "https://etcd1:2379", "--etcd-host", "https://etcd2:2379",
    "--etcd-path", "/service-router/haproxy-config",
    "--etcd-ca-file", "/path/ca.crt",
    "--etcd-client-cert-file", "/path/client.crt",
    "--etcd-client-key-file", "/path/client.key",
)  # fmt: skip
"""Source: the example of its README."""


def test_publish_and_consume() -> None:
    published = daemon_settings("publish", "--etcd-endpoints", "https://a,https://b:1", command="etcd.serve")
    assert published.settings.etcd.endpoints == ("https://a:2379", "https://b:1")
    assert daemon_settings("consume", command="etcd.serve").settings.etcd.endpoints == ("http://127.0.0.1:2379",)


@pytest.mark.parametrize(
    ("command", "call", "successor"),
    [
        ("view", "render.dry_run", "render"),
        ("apply", "etcd.publish_once", "publish --once"),
        ("watch", "etcd.serve", "publish"),
    ],
)
def test_the_predecessors_commands(command: str, call: str, successor: str) -> None:
    for arguments in ((*KUBEFIGURATOR, command), (command, *KUBEFIGURATOR)):
        with patch(f"pyconfd.cli.commands.{call}", side_effect=RejectedInput(Problem("", "far enough"))) as called:
            result = invoke(*arguments)
        assert f"{command} is `pyconfd {successor}` now" in result.stderr
        given = called.call_args.args[0]
        etcd = (given if isinstance(given, Settings) else given.settings).etcd
        assert etcd.endpoints == ("https://etcd1:2379", "https://etcd2:2379")
        assert etcd.path == "/service-router/haproxy-config"
        assert (etcd.ca, etcd.cert, etcd.key) == ("/path/ca.crt", "/path/client.crt", "/path/client.key")


def test_watch_with_the_predecessors_other_flag_publishes() -> None:
    daemon_settings("watch", "--kubeconfig", "/k", command="etcd.serve")


@pytest.mark.parametrize("once", [(), ("--once",)])
@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ({"haproxy-enabled": "no"}, "haproxy.enabled"),
        ({"target-template": "/t/x.tpl", "target-output": "/o/x", "target-notify": "debug:"}, "target"),
    ],
)
def test_without_haproxy_there_is_nothing_to_publish(
    tmp_path: Path, once: tuple[str, ...], flags: dict[str, str], place: str
) -> None:
    targets = '[{"name": "edge", "template": "/t/edge.tpl", "output": "/o/edge", "notify": "debug:"}]'
    own = {"state-dir": str(tmp_path / "state"), "runtime-dir": str(tmp_path / "run"), "targets": targets}
    failed = invoke("publish", *once, *(f"--{name}={value}" for name, value in (own | flags).items()))
    assert failed.exit_code == 78
    assert f"  {place}: " in failed.stderr
    assert "these settings serve none" in failed.stderr
    assert "pyconfd run" in failed.stderr
    assert not (tmp_path / "run").exists()


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
    given = ("--etcd-endpoints", "a,http://[2001:db8::1],b:9")
    found = daemon_settings("consume", *given, command="etcd.serve").settings.etcd.endpoints
    assert found == ("http://a:2379", "http://[2001:db8::1]:2379", "http://b:9")
