import os
import sys
import time
from pathlib import Path

import pytest

from pyconfd.errors import TransientError
from pyconfd.system.command import MAX_OUTPUT_BYTES, run


def test_exit_code_and_both_outputs() -> None:
    result = run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=30)
    assert (result.exit_code, result.ok, result.summary) == (3, False, "out | err")
    assert run(["/bin/true"], timeout_s=30).ok


def test_only_the_end_of_a_long_output_is_kept() -> None:
    result = run(["/bin/sh", "-c", "yes x | head -c 1000000; echo end"], timeout_s=30)
    assert len(result.output) == MAX_OUTPUT_BYTES
    assert result.output.endswith("end\n")


def test_at_the_time_limit_the_whole_group_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; echo before; wait; sleep 600"
    for limit_s in (0.3, 3.0, 30.0):  # on a busy machine the shell may need longer to say anything
        result = run(["/bin/sh", "-c", script], timeout_s=limit_s)
        assert result.timed_out
        assert not result.ok
        if result.output:
            break
    assert result.output == "before\n"
    for pid in pids.read_text().split():
        deadline = time.monotonic() + 20
        while _alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _alive(pid)


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_command_leaves_running_is_neither_waited_for_nor_killed(tmp_path: Path) -> None:
    """A reload command may start a daemon that keeps its output open."""
    result = run(["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; echo done"], timeout_s=30)
    pid = (tmp_path / "pid").read_text().strip()
    assert result.ok
    assert result.output == "done\n"
    assert _alive(pid)
    os.kill(int(pid), 9)


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file"), ("plain", "Permission denied")])
def test_a_program_that_cannot_be_run_is_named_with_what_to_do(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    with pytest.raises(TransientError, match=reason) as caught:
        run([str(tmp_path / name)], timeout_s=30)
    assert caught.value.problems[0].place == str(tmp_path / name)
    assert caught.value.problems[0].remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_another_identity() -> None:
    result = run(["/usr/bin/id"], timeout_s=30, user="nobody", group="nogroup")
    assert "uid=65534" in result.output
    assert "gid=0" not in result.output
    assert "0(root)" not in result.output


def test_background_work_runs_at_a_lower_priority() -> None:
    wait = "import os, time\nwhile os.getpriority(os.PRIO_PROCESS, 0) < 10: time.sleep(0.001)\n"
    assert run([sys.executable, "-c", wait], timeout_s=60.0, niceness=10).ok
