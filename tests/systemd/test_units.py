"""The unit files, judged by systemd's own tools in a directory tree of the test's own making."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyconfd.haproxy.sections import stats_sockets
from tests.fragments.shipped import render_shipped

SYSTEMD = Path(__file__).parents[2] / "systemd"
HAPROXY_UNIT = Path("/lib/systemd/system/haproxy.service")

needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
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
    for name in ("pyconfd.service", "haproxy.service.d/pyconfd.conf"):
        text = (SYSTEMD / name).read_text()
        (tree / name).write_text(re.sub(r"/opt/pyconfd/[\w/-]+", true, text))
    if HAPROXY_UNIT.exists():
        shutil.copy(HAPROXY_UNIT, tree)
    return tree


@needs_analyze
def test_the_unit_verifies_without_a_word(units: Path) -> None:
    found = ran("systemd-analyze", "verify", units / "pyconfd.service")
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
def test_the_exposure_is_below_two(units: Path) -> None:
    found = ran(
        "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=19", units / "pyconfd.service"
    )
    level = re.search(r"Overall exposure level for pyconfd.service: ([\d.]+)", found.stdout)
    assert level, found.stdout
    assert float(level[1]) < 2
    assert found.returncode == 0


def test_haproxys_check_is_not_forbidden_its_compiler_of_expressions() -> None:
    directives = re.findall(r"^(\w+)=", (SYSTEMD / "pyconfd.service").read_text(), re.MULTILINE)
    assert "MemoryDenyWriteExecute" not in directives
    assert "PrivateUsers" not in directives


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
    assert re.search(r"^haproxy:x:\d+:pyconfd$", (tmp_path / "etc" / "group").read_text(), re.MULTILINE)


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
