"""The unit files, judged by systemd's own tools in a directory tree of the test's own making."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pyconfd.haproxy.sections import stats_sockets
from tests.fragments.shipped import render_shipped

SYSTEMD = Path(__file__).parents[2] / "systemd"
HAPROXY_UNIT = Path("/lib/systemd/system/haproxy.service")
KEEPALIVED_UNIT = Path("/lib/systemd/system/keepalived.service")

needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
UNITS = ("pyconfd.service", "pyconfd-dns.service", "pyconfd-dns-withdraw.service", "pyconfd-preflight.service")
VIP_UNITS = ("pyconfd-vip.service", "pyconfd-vip-config.service")
MODES = {"etc/pyconfd": 0o755, "etc/haproxy/generated": 0o2750, "run/haproxy": 0o2775}
pytestmark = pytest.mark.systemd


def ran(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=100, errors="replace"
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Both units as they would be installed, with programs that exist in the place of ``/opt/pyconfd``."""
    tree = tmp_path / "units"
    (tree / "haproxy.service.d").mkdir(parents=True)
    true = shutil.which("true") or "/bin/true"
    (tree / "keepalived.service.d").mkdir()
    for name in (*UNITS, *VIP_UNITS, "haproxy.service.d/pyconfd.conf", "keepalived.service.d/pyconfd.conf"):
        text = (SYSTEMD / name).read_text()
        (tree / name).write_text(re.sub(r"/opt/pyconfd/[\w/-]+", true, text))
    for unit in (HAPROXY_UNIT, KEEPALIVED_UNIT):
        if unit.exists():
            shutil.copy(unit, tree)
    return tree


@needs_analyze
@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_verifies_without_a_word(units: Path, unit: str) -> None:
    found = ran("systemd-analyze", "verify", units / unit)
    assert (found.returncode, found.stdout) == (0, "")


@needs_analyze
def test_a_mistake_in_the_unit_would_be_seen(units: Path) -> None:
    path = units / "pyconfd.service"
    path.write_text(path.read_text().replace("WatchdogSec=3min", "WatchdogSec=soon"))
    assert "soon" in ran("systemd-analyze", "verify", path).stdout


@needs_analyze
@pytest.mark.skipif(not HAPROXY_UNIT.exists(), reason="Debian's haproxy.service is not installed")
def test_the_drop_in_verifies_on_debians_own_unit(units: Path) -> None:
    found = ran("systemd-analyze", "verify", units / "haproxy.service")
    assert (found.returncode, found.stdout) == (0, "")


@needs_analyze
@pytest.mark.parametrize("unit", UNITS)
def test_the_exposure_is_below_two(units: Path, unit: str) -> None:
    found = ran("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=19", units / unit)
    level = re.search(rf"Overall exposure level for {unit}: ([\d.]+)", found.stdout)
    assert level, found.stdout
    assert float(level[1]) < 2
    assert found.returncode == 0


@needs_analyze
@pytest.mark.skipif(not KEEPALIVED_UNIT.exists(), reason="Debian's keepalived.service is not installed")
def test_the_hook_and_keepalived_with_its_drop_in_verify_without_a_word(units: Path) -> None:
    for name in (*VIP_UNITS, "keepalived.service"):
        found = ran("systemd-analyze", "verify", units / name)
        assert (found.returncode, found.stdout) == (0, "")


@needs_analyze
def test_the_exposure_of_the_hook_is_below_three(units: Path) -> None:
    unit = units / "pyconfd-vip.service"
    found = ran("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=29", unit)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("line", "inert"),
    [
        ("[vip]", False),
        ("  [[vip.nodes]]", False),
        ('vip.interface = "eth0"', False),
        ("vip = { }", False),
        ("# [vip]", True),
        ("[vipers]", True),
    ],
)
def test_what_floats_is_inert_until_there_is_a_vip(tmp_path: Path, line: str, inert: bool) -> None:
    settings = tmp_path / "pyconfd.toml"
    settings.write_text(f"[kubernetes]\n{line}\n")
    asked = re.search(r"^ExecCondition=(.*) /etc/pyconfd/", (SYSTEMD / "pyconfd-vip.service").read_text(), re.MULTILINE)
    assert asked
    assert bool(ran(*shlex.split(asked[1]), settings).returncode) is inert
    configure = (SYSTEMD / "pyconfd-vip-configure").read_text()
    assert asked[1].removeprefix("/bin/") in configure


def test_keepalived_is_started_anew_at_once_after_the_hook_and_haproxy() -> None:
    text = (SYSTEMD / "keepalived.service.d" / "pyconfd.conf").read_text()
    assert {"Restart=always", "RestartSec=100ms", "After=pyconfd-vip.service haproxy.service"} <= set(text.splitlines())
    assert "After=network.target haproxy.service" in (SYSTEMD / "pyconfd-vip.service").read_text().splitlines()


def test_haproxys_check_is_not_forbidden_its_compiler_of_expressions() -> None:
    directives = re.findall(r"^(\w+)=", (SYSTEMD / "pyconfd.service").read_text(), re.MULTILINE)
    assert "MemoryDenyWriteExecute" not in directives
    assert "PrivateUsers" not in directives


def test_dns_lives_on_when_the_daemon_fails_and_withdraws_before_haproxy_stops() -> None:
    dns = (SYSTEMD / "pyconfd-dns.service").read_text()
    assert not re.search(r"^(Requires|BindsTo|PartOf|Requisite)=", dns, re.MULTILINE)
    assert re.search(r"^Type=notify$", dns, re.MULTILINE)  # what it sends: tests/dns/test_run.py
    assert re.search(r"^WatchdogSec=", dns, re.MULTILINE)
    withdraw = (SYSTEMD / "pyconfd-dns-withdraw.service").read_text()
    # Units are stopped in the reverse order of their start.
    assert re.search(r"^After=.*\bhaproxy\.service\b", withdraw, re.MULTILINE)
    assert re.search(r"^ExecStop=-\S+ dns withdraw --until-boot --wait$", withdraw, re.MULTILINE)
    assert re.search(r"^RemainAfterExit=yes$", withdraw, re.MULTILINE)


def test_the_drop_in_gives_haproxy_no_root_and_pyconfd_its_socket() -> None:
    text = (SYSTEMD / "haproxy.service.d" / "pyconfd.conf").read_text()
    assert re.search(r"^User=haproxy$", text, re.MULTILINE)
    assert re.search(r"^CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SYS_CHROOT$", text, re.MULTILINE)
    assert "-S /run/haproxy/master.sock,mode,660" in text
    assert "CONFIG=/etc/haproxy/generated/haproxy.cfg" in text


def test_the_directory_of_the_runtime_socket_is_made_for_haproxy_and_its_group() -> None:
    drop_in = (SYSTEMD / "haproxy.service.d" / "pyconfd.conf").read_text()
    tmpfiles = (SYSTEMD / "pyconfd.tmpfiles").read_text()
    folder = Path(stats_sockets(render_shipped({}, {}, "/files").text)[0]).parent
    assert f"install -d -o haproxy -g haproxy -m 2775 {folder}\n" in drop_in
    assert re.search(rf"^d {folder} +2775 haproxy haproxy -$", tmpfiles, re.MULTILINE)
    assert "SupplementaryGroups=haproxy\n" in (SYSTEMD / "pyconfd.service").read_text()


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="systemd-sysusers is not installed")
def test_the_user_is_made_and_belongs_to_haproxys_group(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (tmp_path / "etc" / "group").write_text("root:x:0:\n")
    conf = tmp_path / "usr" / "lib" / "sysusers.d"
    conf.mkdir(parents=True)
    shutil.copy(SYSTEMD / "pyconfd.sysusers", conf / "pyconfd.conf")
    found = ran("systemd-sysusers", f"--root={tmp_path}", "pyconfd.conf")
    assert found.returncode == 0, found.stdout
    assert re.search(
        r"^pyconfd:x:\d+:\d+:pyconfd:/var/lib/pyconfd:", (tmp_path / "etc" / "passwd").read_text(), re.MULTILINE
    )
    assert re.search(r"^haproxy:x:\d+:pyconfd,pyconfd-vip$", (tmp_path / "etc" / "group").read_text(), re.MULTILINE)


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd-tmpfiles is not installed")
def test_the_directories_are_made_with_their_modes(tmp_path: Path) -> None:
    entry = Path("/proc/self").stat()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(
        f"root:x:0:0::/root:/bin/sh\npyconfd:x:{entry.st_uid}:{entry.st_gid}::/:/bin/sh\n"
        f"haproxy:x:{entry.st_uid}:{entry.st_gid}::/:/bin/sh\n"
    )
    (tmp_path / "etc" / "group").write_text(f"root:x:0:\npyconfd:x:{entry.st_gid}:\nhaproxy:x:{entry.st_gid}:\n")
    conf = tmp_path / "usr" / "lib" / "tmpfiles.d"
    conf.mkdir(parents=True)
    shutil.copy(SYSTEMD / "pyconfd.tmpfiles", conf / "pyconfd.conf")
    found = ran("systemd-tmpfiles", f"--root={tmp_path}", "--create", "pyconfd.conf")
    if entry.st_uid:
        pytest.skip("giving a directory to root needs root")
    assert found.returncode == 0, found.stdout
    modes = {name: (tmp_path / name).stat().st_mode & 0o7777 for name in MODES}
    assert modes == MODES
