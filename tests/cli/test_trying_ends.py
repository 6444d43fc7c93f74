"""``pyconfd try`` ends without leaving anything, whatever happens to it."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.trying import CLUSTER, Trying
from tests.e2e.expect import edit
from tests.world import forked
from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY, wait_until

pytestmark = pytest.mark.haproxy


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(Path(CLUSTER).read_text())
    return path


def is_imported(process: subprocess.Popen[str]) -> bool:
    """Whether Python has gone on to the program: what comes before that is not pyconfd's to end well."""
    return "/msgspec/" in Path(f"/proc/{process.pid}/maps").read_text()


def test_ctrl_c_while_it_is_imported_leaves_nothing(tmp_path: Path, snapshot: Path) -> None:
    argv = [sys.executable, "-m", "pyconfd", "try", "--haproxy-binary", BINARY, "--snapshot", str(snapshot)]
    environment = Appliance.environment(TMPDIR=str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, env=environment, text=True) as process:
        wait_until(lambda: is_imported(process), "the program is imported", pause_s=0.001)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in {0, 130, -signal.SIGINT}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("moment", ["before haproxy", "in an update"])
def test_ctrl_c_leaves_no_process_and_no_file(moment: str, tmp_path: Path, snapshot: Path) -> None:
    with Trying(tmp_path, "--snapshot", str(snapshot)) as trying:
        if moment == "before haproxy":
            trying.until("Ctrl-C ends it all")
        else:
            trying.until("To look closer")
            edit(snapshot, snapshot.read_text().replace("domain: shop.example.com", "domain: new.example.com", 1))
            trying.until("generation 2")
        family = trying.family()
        assert family or moment == "before haproxy"
        assert trying.stop() == 0, trying.text
        assert not psutil.wait_procs(family, timeout=30)[1]
        assert trying.left_behind() == []
        assert "Traceback" not in trying.text


def pressed(process: forked.Process) -> int | None:
    """Press Ctrl-C; return the exit status where it has ended."""
    process.send_signal(signal.SIGINT)
    return process.poll()


def test_ctrl_c_twice_and_a_closed_terminal(tmp_path: Path, snapshot: Path) -> None:
    with Trying(tmp_path, "--snapshot", str(snapshot)) as trying:
        trying.until("To look closer")
        family = trying.family()
        trying.process.send_signal(signal.SIGHUP)
        wait_until(lambda: pressed(trying.process) is not None, "it ends, however often somebody presses Ctrl-C")
        assert trying.process.wait(60) == 0
        assert not psutil.wait_procs(family, timeout=30)[1]
        assert trying.left_behind() == []


def test_the_output_that_nobody_reads_ends_it(tmp_path: Path, snapshot: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = f"{sys.executable} -m pyconfd try --haproxy-binary {BINARY} --snapshot {snapshot} | head -1"
    environment = Appliance.environment(TMPDIR=str(scratch))
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert "serves" in done.stdout
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "arguments", "code", "told"),
    [
        ("kind: 3", (), 78, "no Kubernetes object"),
        ("kind: [", (), 78, "mine.yaml line "),
        ("", (), 78, "empty"),
        (None, ("--haproxy-binary", "/nonexistent/haproxy"), 75, "/nonexistent/haproxy"),
        (None, ("--haproxy-enabled", "no"), 78, "haproxy.enabled"),
    ],
)
def test_what_cannot_be_tried_is_told(
    text: str | None, arguments: tuple[str, ...], code: int, told: str, tmp_path: Path, snapshot: Path
) -> None:
    if text is not None:
        snapshot.write_text(text)
    with Trying(tmp_path, "--snapshot", str(snapshot), *arguments) as trying:
        assert trying.process.wait(60) == code
    assert told in trying.text
    assert "Traceback" not in trying.text
    assert trying.left_behind() == []
