import os
import resource
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.limits import Limits, gather, judge, judge_start
from pyconfd.haproxy.master_socket import ask
from pyconfd.haproxy.unit import UnitFacts
from pyconfd.model.outcome import Step
from tests.haproxy.bench import rendering
from tests.world.haproxy import BINARY, HaproxyProcess, configuration, free_port, wait_until

LIMITS = Limits(2_000, "the running haproxy (pid 7)", 10**12, 2, running=True, unit="haproxy.service")
LOW = 1_000


def checked(servers: int) -> str:
    lines = "".join(f"    server s{number} 127.0.0.1:9 check inter 60s\n" for number in range(servers))
    return f"backend be_checked\n{lines}"


def text_of(port: int, servers: int) -> str:
    return configuration(port, extra=checked(servers), global_lines="nbthread 2")


@pytest.mark.haproxy
def test_what_haproxy_accepts_and_does_not_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "haproxy.cfg"
    path.write_text(text_of(free_port(), LOW))
    limited = ["prlimit", f"--nofile={LOW}:{LOW}", BINARY, "-db", "-f", str(path)]
    checked_by_haproxy = subprocess.run([*limited, "-c"], capture_output=True, check=False, timeout=30)
    assert checked_by_haproxy.returncode == 0, checked_by_haproxy.stderr
    start = subprocess.run(limited, capture_output=True, check=False, timeout=30)
    assert start.returncode == 1
    assert b"Cannot raise FD limit" in start.stderr
    limits = replace(LIMITS, descriptors=LOW)
    with pytest.raises(RejectedInput) as caught:
        judge(rendering(path.read_text()), limits)
    assert caught.value.step == Step.CHECK


@pytest.mark.haproxy
def test_the_limits_of_a_running_haproxy_are_seen(tmp_path: Path) -> None:
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        haproxy.conf.write_text(text_of(free_port(), 0))
        haproxy.start()
        running = haproxy.running()
        assert running is not None
        resource.prlimit(running.master_pid, resource.RLIMIT_NOFILE, (LOW, LOW))
        os.sched_setaffinity(running.master_pid, {min(os.sched_getaffinity(0))})
        limits = gather(running.master_pid, UnitFacts("haproxy.service", found=True, descriptors=77))
        assert limits.threads == 1
        assert limits.running
        assert limits.certain
        assert f"pid {running.master_pid}" in limits.whose
        privileged = limits.descriptors == int(Path("/proc/sys/fs/nr_open").read_text())
        assert limits.descriptors == LOW or (privileged and may_raise_limits())
        by_worker = gather(running.worker_pid, UnitFacts())
        assert by_worker.whose == limits.whose, "its master starts the next one"


@pytest.mark.haproxy
def test_a_reload_that_the_limit_forbids_is_refused_before(tmp_path: Path) -> None:
    if may_raise_limits():
        pytest.skip("this user may exceed every limit, and so may its haproxy")
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        port = free_port()
        haproxy.conf.write_text(text_of(port, 0))
        haproxy.start()
        running = haproxy.running()
        assert running is not None
        resource.prlimit(running.master_pid, resource.RLIMIT_NOFILE, (LOW, LOW))
        fitting, excessive = rendering(text_of(port, 500)), rendering(text_of(port, 600))
        assert judge_start(fitting, running, UnitFacts()) == ()
        with pytest.raises(RejectedInput, match=f"pid {running.master_pid}\\) is 1,000: it would not start"):
            judge_start(excessive, running, UnitFacts())
        # Both are as HAProxy has it.
        for text, works in ((fitting.text, True), (excessive.text, False)):
            before = haproxy.running()
            assert before is not None
            haproxy.conf.write_text(text)
            ask(haproxy.master_socket, "reload")
            wait_until(partial(_reloaded, haproxy, before.reloads), "the reload has been tried")
            after = haproxy.running()
            assert after is not None
            assert (after.worker_pid != before.worker_pid, after.failed_reloads) == (works, int(not works))


def _reloaded(haproxy: HaproxyProcess, before: int) -> bool:
    running = haproxy.running()
    return running is not None and running.reloads > before


def may_raise_limits() -> bool:
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> 24 & 1)


def test_a_process_that_has_gone_leaves_the_limit_of_its_unit() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    unit = UnitFacts("haproxy.service", found=True, descriptors=4_096)
    limits = gather(gone.pid, unit)
    assert (limits.descriptors, limits.whose, limits.certain) == (4_096, "haproxy.service (LimitNOFILE)", True)
    assert gather(0, replace(unit, raises_limits=True)).descriptors == int(Path("/proc/sys/fs/nr_open").read_text())


def test_our_own_limit_is_only_a_guess() -> None:
    limits = replace(gather(0, UnitFacts()), descriptors=300)
    assert not limits.certain
    assert limits.threads == len(os.sched_getaffinity(0))
    (warning,) = judge(rendering(text_of(80, 500)), limits)
    assert "pyconfd itself" in warning.message


def test_what_fits_is_no_problem() -> None:
    assert judge(rendering(text_of(80, 500)), LIMITS) == ()
    assert judge(rendering(text_of(80, 5_000)), replace(LIMITS, descriptors=0)) == (), "an unknown limit"


def test_a_refusal_says_where_how_many_and_what_to_set() -> None:
    before, after = text_of(80, 1_700).split("    maxconn 200\n")
    with pytest.raises(RejectedInput) as caught:
        judge(rendering(before, "    maxconn 200\n", after), LIMITS, version="2.6.12")
    (problem,) = caught.value.problems
    assert problem.place == "02-part.tmpl line 1"
    assert problem.piece == "02-part.tmpl"
    assert "needs 2,139 file descriptors (maxconn 200, 1,700 health checks, 1 listener)" in problem.message
    assert "the limit of the running haproxy (pid 7) is 2,000: it would not start" in problem.message
    assert "LimitNOFILE=2139 or more in haproxy.service" in problem.remedy
    assert "maxconn 130 or less" in problem.remedy
    judge(rendering(before, "    maxconn 130\n", after), LIMITS, version="2.6.12")


def test_a_maxconn_that_cannot_help_is_not_advised() -> None:
    with pytest.raises(RejectedInput) as caught:
        judge(rendering(text_of(80, 5_000)), LIMITS)
    assert "maxconn" not in caught.value.problems[0].remedy
    assert "track" in caught.value.problems[0].remedy


def test_limits_of_the_text_itself() -> None:
    with pytest.raises(RejectedInput, match="ulimit-n asks for 5,000 file descriptors"):
        judge(rendering("global\n ulimit-n 5000\n"), LIMITS)
    with pytest.raises(RejectedInput, match="fd-hard-limit of the configuration is 400") as caught:
        judge(rendering("global\n maxconn 300\n fd-hard-limit 400\n"), LIMITS)
    assert "raise fd-hard-limit" in caught.value.problems[0].remedy


def test_without_strict_limits_it_is_a_warning() -> None:
    (warning,) = judge(rendering("global\n maxconn 9000\n no strict-limits\n"), LIMITS)
    assert "it starts" in warning.message


def test_too_little_memory_is_a_warning_with_the_figures() -> None:
    text = f"global\n nbthread 2\n{checked(30_000)}"
    (warning,) = judge(rendering(text), replace(LIMITS, descriptors=100_000, memory_available_bytes=100_000_000))
    assert "30,000 servers takes about 198 MB" in warning.message
    assert "two of them take about 396 MB, but only 100 MB is available" in warning.message
    assert "hard-stop-after" in warning.remedy
    assert judge(rendering(text), replace(LIMITS, descriptors=100_000, memory_available_bytes=250_000_000)) == ()
