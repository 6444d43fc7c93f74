"""One machine with the real systemd: first boot, and each unit started, reloaded, hung, killed and stopped.

``make image-test``.
"""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import pytest

from tests.image.asking import traffic
from tests.image.bake import Baked
from tests.image.machine import Machine
from tests.image.trees import ROOT, missing
from tests.image.world import World
from tests.world.clients import ask

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PYCONFD_TEST_IMAGE"), reason="make image-test bakes and boots a machine"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(600),
]


CREDENTIAL = "/etc/credstore.encrypted/pyconfd-token"


@contextmanager
def drop_in(machine: Machine, unit: str, text: str) -> Iterator[None]:
    """Override lines of a unit, as an operator does."""
    path = machine.path(f"/etc/systemd/system/{unit}.service.d/99-test.conf")
    machine.write(f"/etc/systemd/system/{unit}.service.d/99-test.conf", f"[Service]\n{text}\n")
    machine.systemctl("daemon-reload")
    try:
        yield
    finally:
        path.unlink()
        machine.systemctl("daemon-reload")


def serves(machine: Machine) -> bool:
    return machine.ask("shop").startswith("shop-")


def level(machine: Machine) -> int:
    """Return the number of the generation that serves, once it is on the disk too; 0 until then."""
    shown = (machine.status().get("generation") or {}).get("number", 0)
    stored = (int(path.name) for path in machine.path("/var/lib/pyconfd/generations").iterdir() if path.name.isdigit())
    return int(shown) if shown == max(stored, default=0) else 0


def test_the_first_boot_needs_one_file_and_tells_the_console_what_was_found(lb: Machine) -> None:
    lb.until(
        lambda: re.search(r"\d+ ok, \d+ warnings?, 0 failures", lb.console.read_text()), "the result on the console"
    )
    assert "0 failures" in lb.journal("pyconfd-preflight")
    lb.run("cloud-init", "status", "--wait", check=False)
    assert lb.said("cloud-init", "status") == "status: done"
    schema = lb.run("cloud-init", "schema", "--config-file", "/var/lib/cloud/seed/nocloud/user-data")
    assert "Valid" in schema.stdout
    # Nothing is degraded by what is not configured.
    assert lb.said("systemctl", "is-system-running", "--wait") == "running"
    assert {unit: lb.active(unit) for unit in ("keepalived", "pyconfd-vip", "pyconfd-dns")} == {
        "keepalived": "inactive",
        "pyconfd-vip": "inactive",
        "pyconfd-dns": "inactive",
    }


def test_two_machines_of_one_image_have_nothing_secret_in_common(baked: Baked, lb: Machine) -> None:
    layers = baked.layers
    assert (layers[0] / "etc/machine-id").read_text() == ""
    assert not [path for path in (layers[0] / "etc/ssh").glob("ssh_host_*") if path.is_file()]
    assert not (layers[0] / "root/.ssh/authorized_keys").is_file()
    assert lb.path("/etc/machine-id").read_text().strip()
    assert lb.path("/etc/ssh/ssh_host_ed25519_key").exists()
    assert not lb.path("/var/tmp/pyconfd-appliance").exists()


def test_the_bake_gives_a_manifest_of_what_is_in_it(baked: Baked, lb: Machine) -> None:
    manifest = json.loads((baked.output / "manifest.json").read_text())
    versions = {one["name"]: one["version"] for one in manifest["packages"]}
    assert versions["haproxy"] == lb.said("dpkg-query", "--show", "--showformat=${Version}", "haproxy")
    assert {"pyconfd", "kubernetes"} <= {one["name"] for one in manifest["distributions"]}
    unit = "/etc/systemd/system/pyconfd.service"
    assert manifest["files"][unit] == sha256((ROOT / "systemd/pyconfd.service").read_bytes()).hexdigest()
    (build,) = json.loads((baked.output / "packer.json").read_text())["builds"]
    assert build["builder_type"] == "null"


def test_updates_leave_haproxy_and_keepalived_alone(lb: Machine) -> None:
    shown = lb.said("apt-config", "dump", "--format=%f %v%n", "Unattended-Upgrade::Package-Blacklist")
    assert {"^haproxy$", "^keepalived$"} <= set(shown.split())
    assert lb.said("systemctl", "is-enabled", "apt-daily-upgrade.timer", "unattended-upgrades") == "enabled\nenabled"
    assert lb.said("systemctl", "is-enabled", "systemd-timesyncd") == "enabled"


def test_pyconfd_has_no_capability_haproxy_two_and_no_unit_more_than_it_needs(lb: Machine) -> None:
    assert lb.effective("pyconfd") == ("pyconfd", 0)
    # CAP_NET_BIND_SERVICE and CAP_SYS_CHROOT.
    assert lb.effective("haproxy") == ("haproxy", 1 << 10 | 1 << 18)
    bounds = {"pyconfd": 2, "pyconfd-dns": 2, "pyconfd-dns-withdraw": 2, "pyconfd-preflight": 2, "pyconfd-vip": 2.5}
    for unit, bound in (bounds | {"pyconfd-vip-config": 3.5, "haproxy": 2.5, "keepalived": 8}).items():
        said = lb.said("systemd-analyze", "security", unit, "--no-pager")
        level = re.search(rf"Overall exposure level for {unit}.service: ([\d.]+)", said)
        assert level
        assert float(level[1]) < bound, unit


def test_start_means_decided_and_status_says_what(lb: Machine) -> None:
    lb.systemctl("stop", "pyconfd")
    with traffic(lb):
        lb.systemctl("start", "pyconfd")
        shown = lb.show("pyconfd", "StatusText", "ActiveState", "SubState")
    assert shown["ActiveState"] == "active"
    assert shown["SubState"] == "running"
    assert shown["StatusText"].startswith("serving generation ")


def test_reload_reads_the_file_again(lb: Machine, world: World) -> None:
    path = "/etc/pyconfd/pyconfd.toml"
    before = lb.path(path).read_text()
    pid = lb.pid("pyconfd")
    with traffic(lb):
        lb.write(path, world.settings(**{"templates.vars": {"stats_bind": "*:8404"}, "log": {"level": "debug"}}))
        lb.systemctl("reload", "pyconfd")
        lb.until(lambda: ask(8404, "any", address=lb.address) != "failed: ConnectionRefusedError", "the new bind")
        lb.write(path, before)
        lb.systemctl("reload", "pyconfd")
        lb.until(
            lambda: ask(8404, "any", address=lb.address) == "failed: ConnectionRefusedError", "the former settings"
        )
    assert lb.pid("pyconfd") == pid


def test_a_reload_that_comes_while_it_starts_is_not_forgotten(lb: Machine, world: World) -> None:
    path = "/etc/pyconfd/pyconfd.toml"
    before = lb.path(path).read_text()
    # While what follows a start still runs, systemd takes the next start's for the same.
    lb.until(lambda: lb.active("pyconfd-start-skipped") == "inactive", "what follows the boot's start is over")
    with drop_in(lb, "pyconfd", "ExecStartPost=/bin/sleep 3"), traffic(lb):
        lb.systemctl("--no-block", "restart", "pyconfd")
        lb.until(lambda: lb.show("pyconfd", "SubState")["SubState"] == "start-post", "it has read its settings")
        lb.write(path, world.settings(**{"templates.vars": {"stats_bind": "*:8404"}}))
        lb.systemctl("reload", "pyconfd")
        lb.until(lambda: ask(8404, "any", address=lb.address) != "failed: ConnectionRefusedError", "the new bind")
    lb.write(path, before)
    lb.systemctl("reload", "pyconfd")
    lb.until(lambda: ask(8404, "any", address=lb.address) == "failed: ConnectionRefusedError", "the former settings")


def test_a_file_that_is_wrong_changes_nothing_and_says_so(lb: Machine) -> None:
    path = "/etc/pyconfd/pyconfd.toml"
    before = lb.path(path).read_text()
    pid = lb.pid("pyconfd")
    with traffic(lb):
        lb.write(path, before + "[kubernetes\n")
        assert lb.run("systemctl", "reload", "pyconfd", check=False).returncode == 1
        lb.until(lambda: "settings" in lb.show("pyconfd", "StatusText")["StatusText"], "systemctl status says it")
        assert lb.pid("pyconfd") == pid
        shown = lb.run("pyconfd", "status", check=False)
        assert shown.returncode == 1
        assert "is not TOML" in shown.stdout
        assert re.search(r"^SERVING +generation", shown.stdout, re.MULTILINE)
        lb.write(path, before)
        lb.systemctl("reload", "pyconfd")
        lb.until(lambda: lb.show("pyconfd", "StatusText")["StatusText"].startswith("serving"), "it serves as before")


def test_a_link_to_no_file_is_no_lack_of_settings(lb: Machine) -> None:
    path = "/etc/pyconfd/pyconfd.toml"
    before = lb.path(path).read_text()
    lb.run("ln", "-sfn", "/srv/nowhere.toml", path)
    try:
        with traffic(lb):
            assert lb.run("systemctl", "restart", "pyconfd", check=False).returncode == 1
        assert 'is a link to "/srv/nowhere.toml", which is not there' in lb.journal("pyconfd")
    finally:
        lb.write(path, before)
        lb.systemctl("restart", "pyconfd")


def test_preflight_tells_anybody_what_stands_in_the_way(lb: Machine) -> None:
    etc = "mount --bind /etc /etc && mount -o remount,bind,ro /etc && exec runuser -u nobody -- pyconfd preflight"
    said = lb.said("unshare", "--mount", "sh", "-c", etc)
    assert "Traceback" not in said, said[said.find("Traceback") :]
    assert re.search(r"haproxy\.conf: /etc/haproxy/generated is on a file system that is read-only", said)
    assert "this is nobody" in said


def test_stop_and_crash_change_nothing_that_serves(lb: Machine, world: World) -> None:
    haproxy = lb.pid("haproxy")
    with traffic(lb):
        lb.systemctl("stop", "pyconfd")
        assert lb.active("pyconfd") == "inactive"
        lb.systemctl("start", "pyconfd")
        former = lb.pid("pyconfd")
        lb.signal("pyconfd", signal.SIGKILL)
        lb.until(lambda: lb.restarted("pyconfd", former), "systemd starts pyconfd again")
        # It goes on with its work.
        pod = world.scale_up("shop")
        lb.until(lambda: lb.ask("shop") == pod, "the new pod is asked")
    assert lb.pid("haproxy") == haproxy


def test_a_daemon_that_hangs_is_killed_and_started_again(lb: Machine) -> None:
    with drop_in(lb, "pyconfd", "WatchdogSec=2s"):
        lb.systemctl("restart", "pyconfd")
        former = lb.pid("pyconfd")
        with traffic(lb):
            lb.signal("pyconfd", signal.SIGSTOP)
            lb.until(lambda: lb.restarted("pyconfd", former), "the watchdog bites")
        assert "Watchdog timeout" in lb.journal("pyconfd")
    lb.systemctl("restart", "pyconfd")


def test_a_haproxy_that_dies_is_back_with_the_last_good_configuration(lb: Machine) -> None:
    former = lb.pid("haproxy")
    lb.systemctl("stop", "pyconfd")
    lb.signal("haproxy", signal.SIGKILL)
    lb.until(lambda: lb.restarted("haproxy", former), "systemd starts haproxy again")
    lb.until(lambda: serves(lb), "without pyconfd")
    lb.systemctl("start", "pyconfd")


def test_debians_package_of_haproxy_is_upgraded_without_a_failed_request(lb: Machine) -> None:
    haproxy = lb.pid("haproxy")
    with traffic(lb):
        # The same version takes the way of a newer one: files are replaced, then the unit is reloaded.
        lb.run("sh", "-c", "dpkg --install /var/lib/archive/haproxy_*.deb")
        lb.until(lambda: "worker.replaced" in lb.journal("pyconfd"), "pyconfd notices the new worker")
    assert lb.pid("haproxy") == haproxy
    assert lb.active("haproxy") == "active"
    assert lb.path("/etc/haproxy/generated/haproxy.cfg").exists()


SOURCE = "/var/tmp/source"


def test_the_access_log_is_in_the_journal_and_can_be_switched_off(lb: Machine) -> None:
    shutil.copytree(ROOT / "packer", lb.path(f"{SOURCE}/packer"), dirs_exist_ok=True)
    assert serves(lb)
    lb.until(lambda: '"object":"Service/demo/shop"' in lb.journal("haproxy"), "the request is in the journal")
    assert lb.show("haproxy", "LogLevelMax", "LogRateLimitIntervalUSec") == {
        "LogLevelMax": "-1",
        "LogRateLimitIntervalUSec": "0",
    }
    try:
        lb.run(
            "env", f"PYCONFD_SOURCE={SOURCE}", "PYCONFD_ACCESS_LOG=none", "sh", f"{SOURCE}/packer/scripts/40-system.sh"
        )
        assert lb.show("haproxy", "LogLevelMax") == {"LogLevelMax": "5"}
    finally:
        lb.run("env", f"PYCONFD_SOURCE={SOURCE}", "sh", f"{SOURCE}/packer/scripts/40-system.sh")
    assert lb.show("haproxy", "LogLevelMax") == {"LogLevelMax": "-1"}


def encrypted(machine: Machine, token: str) -> None:
    """Store a token where only this machine can open it, as packer/terraform/README.md says."""
    machine.write("/run/token", token, 0o600)
    machine.run("mkdir", "-p", "-m", "700", "/etc/credstore.encrypted")
    machine.run("systemd-creds", "encrypt", "--name=token", "/run/token", CREDENTIAL)
    machine.run("rm", "/run/token")


def test_a_token_that_only_this_machine_can_open_reaches_the_units_and_is_replaced(lb: Machine, world: World) -> None:
    module = (ROOT / "packer/terraform/main.tf").read_text()
    lines = re.search(r'content +=  *"\[Service\]\\n(LoadCredential.*)\\n"', module)
    assert lines
    text = lines[1].replace("${basename(var.credentials.encrypted_credential)}", CREDENTIAL.rpartition("/")[2])
    text = text.replace("\\n", "\n")
    world.api.token = "first"
    try:
        with drop_in(lb, "pyconfd", text), drop_in(lb, "pyconfd-preflight", text), traffic(lb):
            # Nobody has put it there yet: what served serves on, and status says what is missing.
            lb.systemctl("restart", "pyconfd")
            assert "serving last good" in lb.said("systemctl", "status", "pyconfd")
            assert "cannot be read: No such file" in lb.said("pyconfd", "status")
            encrypted(lb, "first")
            assert "first" not in lb.path(CREDENTIAL).read_text()
            lb.systemctl("restart", "pyconfd", "pyconfd-preflight")
            lb.until(lambda: lb.status().get("phase") == "serving", "the cluster is read with the token")
            world.api.token = "second"
            encrypted(lb, "second")
            lb.systemctl("restart", "pyconfd")
            lb.until(lambda: lb.status().get("phase") == "serving", "the cluster is read with the new token")
            pod = world.scale_up("shop")
            lb.until(lambda: lb.ask("shop") == pod, "the new pod is asked")
            lb.systemctl("restart", "pyconfd-preflight")
    finally:
        world.api.token = ""
    lb.systemctl("restart", "pyconfd")


def test_a_boot_without_an_api_server_serves_what_served_last(lb: Machine, world: World) -> None:
    # What another test changed last may still be on its way to the disk.
    lb.until(lambda: level(lb), "the disk has what serves")
    number = level(lb)
    world.api.refuse()
    # The power goes, and comes back; the disk with the state was another machine's.
    lb.run("chown", "-R", "4242:4242", "/var/lib/pyconfd/generations", "/var/lib/pyconfd/lock")
    lb.kill()
    lb.boot()
    lb.until(lambda: serves(lb), "the last good configuration serves")
    lb.until(lambda: lb.active("pyconfd") == "active", "pyconfd has decided")
    assert lb.status()["generation"]["number"] == number
    assert lb.status()["phase"] != "serving"
    lb.until(
        lambda: "no API server answers" in lb.show("pyconfd", "StatusText")["StatusText"], "systemctl status says why"
    )
    # What preflight finds is told, and holds nothing up.
    lb.until(lambda: lb.active("pyconfd-preflight") == "failed", "preflight tells of the API server")
    world.api.listen()
    lb.until(lambda: lb.status().get("phase") == "serving", "the cluster is read")
    with traffic(lb):
        pod = world.scale_up("shop")
        lb.until(lambda: lb.ask("shop") == pod, "the new pod is asked")
    lb.systemctl("restart", "pyconfd-preflight")
    assert lb.said("systemctl", "is-system-running", "--wait") == "running"
