"""The unit files, judged by systemd's own tools in a directory tree of the test's own making."""

import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from pyconfd.haproxy.config.text import stats_sockets
from tests.fragments.shipped import render_shipped

SYSTEMD = Path(__file__).parents[2] / "systemd"
DROP_IN = SYSTEMD / "haproxy.service.d" / "pyconfd.conf"
HAPROXY_UNIT = Path("/lib/systemd/system/haproxy.service")
KEEPALIVED_UNIT = Path("/lib/systemd/system/keepalived.service")

needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
UNITS = (
    "pyconfd.service",
    "pyconfd-dns.service",
    "pyconfd-dns-withdraw.service",
    "pyconfd-preflight.service",
    "pyconfd-start-skipped.service",
)
VIP_UNITS = ("pyconfd-vip.service", "pyconfd-vip-config.service")
MODES = {
    "etc/pyconfd": 0o755,
    "etc/haproxy/generated": 0o2750,
    "run/haproxy": 0o2775,
    "var/lib/pyconfd": 0o750,
    "run/pyconfd": 0o755,
}
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
@pytest.mark.skipif(not (HAPROXY_UNIT.exists() and KEEPALIVED_UNIT.exists()), reason="Debian's units are not installed")
@pytest.mark.parametrize(
    ("unit", "tenths"),
    [
        ("pyconfd-vip.service", 29),
        ("pyconfd-vip-config.service", 33),
        ("haproxy.service", 25),
        # It is root, and what a keepalived.conf of one's own may need stays allowed.
        ("keepalived.service", 79),
    ],
)
def test_the_exposure_of_what_needs_more_is_bounded_too(units: Path, unit: str, tenths: int) -> None:
    found = ran("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={tenths}", units / unit)
    assert found.returncode == 0, found.stdout


CONDITION = re.compile(r"^ExecCondition=(.*)$", re.MULTILINE)


@pytest.mark.parametrize(("unit", "section"), [("pyconfd-vip", "vip"), ("pyconfd-dns", "dns")])
@pytest.mark.parametrize(
    ("line", "inert"),
    [
        ("[{0}]", False),
        ("  [[{0}.nodes]]", False),
        ("\t[ {0} ]", False),
        ('{0}.interface = "eth0"', False),
        ("{0} = {{ }}", False),
        ("# [{0}]", True),
        ("[{0}ers]", True),
        # dns.vip is an address, whoever moves it.
        ('{0} = "192.0.2.10"', True),
    ],
)
def test_it_is_inert_until_there_is_its_section(
    tmp_path: Path, unit: str, section: str, line: str, inert: bool
) -> None:
    settings = tmp_path / "pyconfd.toml"
    settings.write_text(f"[kubernetes]\n{line.format(section)}\n")
    assert skipped(unit, settings) is inert


@pytest.mark.parametrize(
    ("line", "inert"),
    [
        ("PYCONFD_VIP_INTERFACE=eth0", False),
        ("# PYCONFD_VIP_INTERFACE=eth0", True),
        ("PYCONFD_LOG_LEVEL=debug", True),
    ],
)
def test_settings_of_the_environment_count_as_well(tmp_path: Path, line: str, inert: bool) -> None:
    default = tmp_path / "default"
    default.write_text(f"{line}\n")
    assert skipped("pyconfd-vip", default) is inert


def test_settings_elsewhere_are_looked_at_there(tmp_path: Path) -> None:
    elsewhere = tmp_path / "own.toml"
    elsewhere.write_text("[kubernetes]\n")
    assert skipped("pyconfd-vip", tmp_path / "absent", elsewhere)
    elsewhere.write_text("[vip]\n")
    assert not skipped("pyconfd-vip", tmp_path / "absent", elsewhere)


def skipped(unit: str, file: Path, elsewhere: Path = Path("/nonexistent")) -> bool:
    """Whether systemd would skip the unit; ``file`` stands for both files of settings."""
    asked = CONDITION.search((SYSTEMD / f"{unit}.service").read_text())
    assert asked
    *shell, text = shlex.split(asked[1])
    text = text.replace("/etc/pyconfd/pyconfd.toml /etc/default/pyconfd", str(file)).replace("$$", "$")
    found = ran("env", f"PYCONFD_CONFIG={elsewhere}", *shell, text)
    assert found.stdout == ""
    return bool(found.returncode)


def test_all_who_ask_for_a_section_ask_in_the_same_way() -> None:
    dns = CONDITION.findall((SYSTEMD / "pyconfd-dns.service").read_text())
    assert dns == CONDITION.findall((SYSTEMD / "pyconfd-dns-withdraw.service").read_text())
    (vip,) = CONDITION.findall((SYSTEMD / "pyconfd-vip.service").read_text())
    assert [vip.replace("vip", "dns").replace("VIP", "DNS")] == dns
    pattern = re.search(r'grep -qsE "([^"]+)"', vip)
    assert pattern
    assert f"grep -qsE '{pattern[1]}'" in (SYSTEMD / "pyconfd-vip-configure").read_text()


@pytest.mark.parametrize(
    ("unit", "lines"),
    [
        # A check that the kernel kills for its memory ends the check alone.
        ("pyconfd.service", ["OOMPolicy=continue", r"ExecReload=/opt/pyconfd/bin/pyconfd reload --pid \$MAINPID"]),
        ("pyconfd-preflight.service", ["OOMPolicy=continue"]),
        (
            "haproxy.service.d/pyconfd.conf",
            [
                "OOMPolicy=continue",
                "User=haproxy",
                "CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SYS_CHROOT",
                ".*-S /run/haproxy/master.sock,mode,660.*",
                ".*CONFIG=/etc/haproxy/generated/haproxy.cfg.*",
            ],
        ),
        # One reload reaches all that read the file.
        (
            "pyconfd-dns.service",
            [r"ReloadPropagatedFrom=.*\bpyconfd\.service\b.*", "ExecReload=.*", "Type=notify", "WatchdogSec=.*"],
        ),
        (
            "pyconfd-vip.service",
            [
                r"ReloadPropagatedFrom=.*\bpyconfd\.service\b.*",
                "ExecReload=.*",
                "After=network.target haproxy.service",
            ],
        ),
        ("pyconfd-vip-config.service", [r"ReloadPropagatedFrom=.*\bpyconfd\.service\b.*", "ExecReload=.*"]),
        # Units are stopped in the reverse order of their start: the names are withdrawn before haproxy stops.
        (
            "pyconfd-dns-withdraw.service",
            [
                r"After=.*\bhaproxy\.service\b.*",
                r"ExecStop=-\S+ dns withdraw --until-boot --wait",
                "RemainAfterExit=yes",
            ],
        ),
        (
            "keepalived.service.d/pyconfd.conf",
            ["Restart=always", "RestartSec=100ms", "After=pyconfd-vip.service haproxy.service"],
        ),
    ],
)
def test_the_unit_says(unit: str, lines: list[str]) -> None:
    text = (SYSTEMD / unit).read_text()
    assert [line for line in lines if not re.search(f"^{line}$", text, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("unit", "directives"),
    [
        ("pyconfd.service", "MemoryDenyWriteExecute|PrivateUsers"),  # HAProxy's check compiles its expressions
        ("pyconfd-dns.service", "Requires|BindsTo|PartOf|Requisite"),  # it lives on when the daemon fails
    ],
)
def test_the_unit_does_not_say(unit: str, directives: str) -> None:
    assert not re.search(f"^({directives})=", (SYSTEMD / unit).read_text(), re.MULTILINE)


def test_each_script_that_a_unit_runs_is_installed() -> None:
    units = [*SYSTEMD.glob("*.service"), *SYSTEMD.glob("*.service.d/*.conf")]
    run = {name for unit in units for name in re.findall(r"/opt/pyconfd/libexec/([\w.-]+)", unit.read_text())}
    for installer in ("packer/scripts/30-units.sh", "systemd/README.md"):
        text = (SYSTEMD.parent / installer).read_text()
        assert [name for name in sorted(run) if name not in text] == []


def test_wrong_settings_do_not_keep_a_processor_busy() -> None:
    (after,) = re.findall(r"^ExecStopPost=(.*)$", (SYSTEMD / "pyconfd-vip.service").read_text(), re.MULTILINE)
    words = [word.replace("$$", "$").replace("sleep 3", "echo waits") for word in shlex.split(after)]
    assert ran("env", "EXIT_STATUS=78", *words).stdout == "waits\n"
    for status in ("0", "1", "KILL"):
        assert (ran("env", f"EXIT_STATUS={status}", *words).returncode, ran("env", *words).stdout) == (0, "")


def test_the_directory_of_the_runtime_socket_is_made_for_haproxy_and_its_group() -> None:
    drop_in = (SYSTEMD / "haproxy.service.d" / "pyconfd.conf").read_text()
    tmpfiles = (SYSTEMD / "pyconfd.tmpfiles").read_text()
    folder = Path(stats_sockets(render_shipped({}, {}, "/files").text)[0]).parent
    assert f"install -d -o haproxy -g haproxy -m 2775 {folder}\n" in drop_in
    assert re.search(rf"^d {folder} +2775 haproxy haproxy -$", tmpfiles, re.MULTILINE)
    assert "SupplementaryGroups=haproxy\n" in (SYSTEMD / "pyconfd.service").read_text()


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="systemd-sysusers is not installed")
def test_sockets_that_haproxy_left_as_root_are_removed(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ExecStartPre=-\+(/usr/bin/find .*)$", DROP_IN.read_text(), re.MULTILINE)
    words = ["nobody" if word == "haproxy" else word for word in shlex.split(line.replace("/run/haproxy", "DIR"))]
    argv = [str(tmp_path) if word == "DIR" else word for word in words]
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "admin.sock"))
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    found = ran(*argv)
    assert (found.returncode, found.stdout) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


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
    # On a volume of another machine, whose pyconfd has another number.
    kept = tmp_path / "var" / "lib" / "pyconfd" / "generations" / "000001"
    kept.mkdir(parents=True)
    if not entry.st_uid:
        os.chown(kept, 4242, 4242)
    found = ran("systemd-tmpfiles", f"--root={tmp_path}", "--create", "pyconfd.conf")
    if entry.st_uid:
        pytest.skip("giving a directory to root needs root")
    assert found.returncode == 0, found.stdout
    modes = {name: (tmp_path / name).stat().st_mode & 0o7777 for name in MODES}
    assert modes == MODES
    assert (kept.stat().st_uid, kept.stat().st_gid) == (entry.st_uid, entry.st_gid)
