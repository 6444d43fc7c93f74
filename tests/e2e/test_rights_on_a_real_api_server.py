"""The printed rights on a real API server: enough for what preflight asks, and for nothing else; see ``REAL_API``."""

from pathlib import Path

import pytest

from tests.conformance import mirror
from tests.conformance.controlplane import ControlPlane
from tests.world import forked
from tests.world.appliance import Appliance

pytestmark = pytest.mark.skipif(not mirror.WANTED, reason="it is about a real API server")

ACCOUNT = "--as=system:serviceaccount:pyconfd:pyconfd"


def asked(config: Path, *arguments: str) -> str:
    done = forked.run((arguments[0], "--config", str(config), *arguments[1:]), Appliance.environment())
    return done.stdout


@pytest.mark.parametrize("namespaces", ['["*"]', '["default"]'])
def test_the_printed_rights_are_enough_and_nothing_else(namespaces: str, plane: ControlPlane, tmp_path: Path) -> None:
    config, token = tmp_path / "pyconfd.toml", tmp_path / "token"
    config.write_text(
        f'state_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n[kubernetes]\napi_servers = ["{plane.url}"]\n'
        f'ssl_ca = "{plane.ca}"\ntoken_file = "{token}"\nsecret_namespaces = {namespaces}\n[events]\nenabled = true\n'
    )
    plane.apply("-f", "-", given=asked(config, "rbac"))
    token.write_text(plane.kubectl("-n", "pyconfd", "create", "token", "pyconfd").strip())
    token.chmod(0o600)
    rights = [line for line in asked(config, "preflight").splitlines() if " permissions " in line]
    assert len(rights) > 20
    assert [line for line in rights if not line.startswith("ok")] == []

    def may(*what: str) -> bool:
        return plane.kubectl("auth", "can-i", *what, ACCOUNT, check=False).strip() == "yes"

    assert may("patch", "gateways", "--subresource=status", "-A")
    assert may("list", "secrets", "-A") is (namespaces == '["*"]')
    for verb, resource in (("list", "pods"), ("get", "secrets"), ("patch", "gateways"), ("delete", "services")):
        assert not may(verb, resource, "-A"), (verb, resource)
    assert not may("update", "lease/other", "-n", "pyconfd")
    plane.kubectl("delete", "clusterrole,clusterrolebinding", "pyconfd")
