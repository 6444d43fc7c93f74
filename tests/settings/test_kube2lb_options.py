"""The flags of kube2lb under their old names, with one dash or two, and ``[[targets]]``."""

import pytest

from pyconfd.cli.options import with_values_for_booleans
from pyconfd.errors import ConfigurationError
from pyconfd.settings import TargetSettings, resolve


def _absent(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def test_flags_with_one_dash() -> None:
    given = [
        "-apiserver",
        "https://a",
        "-kubecfg=~/.kube/config",
        "-notify=pid:HUP:77",
        "-default-lb-ip=::",
        "-version",
    ]
    assert with_values_for_booleans(given) == [
        "--apiserver", "https://a", "--kubecfg=~/.kube/config", "--notify=pid:HUP:77", "--default-lb-ip=::",
        "--version",
    ]  # fmt: skip


def test_config_names_the_output_beside_a_template_only() -> None:
    assert with_values_for_booleans(["-template=a", "-config=b"]) == ["--template=a", "--target-output=b"]
    assert with_values_for_booleans(["--config", "b", "-template=a"]) == ["--target-output", "b", "--template=a"]
    assert with_values_for_booleans(["--config", "b"]) == ["--config", "b"]
    assert with_values_for_booleans(["-x", "--", "-notify=a"]) == ["-x", "--", "-notify=a"]


def test_targets_in_toml() -> None:
    text = """
[[targets]]
name = "nginx"
template = "/etc/pyconfd/nginx.conf.tmpl"
output = "/etc/nginx/nginx.conf"
check = ["nginx", "-t", "-c"]
notify = "pidfile:SIGHUP:/run/nginx.pid"

[[targets]]
name = "caddy"
template = "/etc/pyconfd/Caddyfile.tmpl"
output = "/etc/caddy/Caddyfile"
check = "caddy validate --adapter caddyfile --config"
notify = "command:systemctl reload caddy"
timeout_s = "30s"
"""
    first, second = resolve({}, {}, lambda _: text).settings.targets
    assert first == TargetSettings(
        "nginx", "/etc/pyconfd/nginx.conf.tmpl", "/etc/nginx/nginx.conf", "pidfile:SIGHUP:/run/nginx.pid",
        ("nginx", "-t", "-c"),
    )  # fmt: skip
    assert (second.check, second.timeout_s) == (("caddy", "validate", "--adapter", "caddyfile", "--config"), 30.0)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"PYCONFD_TARGET_NOTIFY": "http://x"}, "command:SHELL"),
        ({"PYCONFD_TARGETS": "[{}]"}, "environment PYCONFD_TARGETS, table 1, name: is needed"),
        ({"PYCONFD_TARGETS": '[{"name": "a", "x": 1}]'}, "table 1, x: is not a key of this table"),
        ({"PYCONFD_TARGETS": "x"}, "a JSON array"),
        ({"PYCONFD_KUBE2LB_SERVER_NAME_TEMPLATES": "{{ .Service.Secret }}"}, "not known here"),
        ({"PYCONFD_KUBE2LB_DEFAULT_LB_IP": "a"}, "an IP address"),
        ({"PYCONFD_KUBE2LB_DEFAULT_PORT_MODE": "udp"}, "http, tcp"),
    ],
)
def test_mistakes_are_told_at_start(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        resolve({}, environ, _absent)
