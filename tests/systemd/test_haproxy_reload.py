"""What ``systemctl reload haproxy`` runs, with the real shell and the real check."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "systemd" / "pyconfd-haproxy-reload"
HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or ""
GOOD = "defaults\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nfrontend f\n  bind 127.0.0.1:1\n"

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user"),
]


class Master:
    """A process that stands for haproxy's, and what /proc says of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(["sleep", "3600"])
        self._proc = folder / "proc" / str(self._process.pid)
        self._proc.mkdir(parents=True)

    def reload(self, *argv: str, uid: int = 0) -> int:
        """Reload it as one that was started like this; return the exit status."""
        (self._proc / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in ("haproxy", "-Ws", *argv)))
        (self._proc / "status").write_text(f"Name:\thaproxy\nUid:\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\n")
        environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "MAINPID": str(self._process.pid),
            "CONFIG": str(self._folder / "none"),
            "PYCONFD_PROC": str(self._proc.parent),
            "PYCONFD_HAPROXY": HAPROXY,
        }
        return subprocess.run([SCRIPT], env=environment, capture_output=True, check=False).returncode

    def told(self) -> bool:
        """Whether it got the signal, which ends this one before any later one; it is gone then."""
        self._process.terminate()
        return self._process.wait() == -signal.SIGUSR2

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    found = Master(tmp_path)
    yield found
    found.end()


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "operators.cfg"
    path.write_text(GOOD)
    return str(path)


def test_the_file_that_it_runs_with_is_checked_and_loaded(master: Master, good: str) -> None:
    assert master.reload("-f", good, "-p", "/run/haproxy.pid") == 0
    assert master.told()


def test_any_file_that_is_wrong_stops_it(master: Master, good: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cfg"
    wrong.write_text("frontend f\n  reqadd X\n")
    assert master.reload("-sf", "7", "-f", good, "-f", str(wrong)) != 0
    assert not master.told()


def test_the_check_is_made_by_the_user_that_it_runs_as(master: Master, good: str) -> None:
    Path(good).chmod(0o600)
    assert master.reload("-f", good, uid=65534) != 0
    assert not master.told()
