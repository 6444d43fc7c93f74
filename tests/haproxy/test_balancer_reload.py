"""The ways to reload a real haproxy, and what happens when one fails, hangs or lies."""

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyconfd.errors import ApplyError
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.observation import Running
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.outcome import Failed, Step, Unchanged
from pyconfd.model.plan import Noop
from pyconfd.settings import ReloadMethod
from tests.haproxy.bench import Bench, Live, apply
from tests.world.haproxy import configuration, fetch, wait_until

pytestmark = pytest.mark.haproxy


def test_a_worker_that_does_not_start_brings_the_former_files_and_text_back(bench: Bench) -> None:
    """`haproxy -c` opens no socket, so a UNIX socket in a missing directory passes it and fails the start."""
    balancer = bench.serve("good")
    installed = bench.conf.read_bytes()
    hosts = bench.map_file("a b\n")
    candidate = bench.rendering("new", extra="frontend fe_more\n    bind /nonexistent/dir/socket\n", files=(hosts,))

    with pytest.raises(ApplyError) as caught:
        apply(balancer, candidate)

    assert "did not start" in caught.value.problems[0].message
    # Up to 2.6 the master says nothing of a reload; since 2.7 it says how that went, and why.
    assert caught.value.step is (Step.RELOAD if bench.haproxy.reports_reloads() else Step.VERIFY)
    assert bench.conf.read_bytes() == installed
    assert not Path(hosts.path).exists()
    wait_until(lambda: bench.haproxy.running() is not None, "the master answers again")
    assert fetch(bench.port) == "good"
    assert [generation.number for generation in balancer.store.history()] == [1]
    assert bench.temporary_files() == []
    assert balancer.plan(bench.rendering("good")) == Noop()


def test_a_reload_ends_when_the_former_worker_accepts_no_more_though_the_master_is_silent_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the former worker answered at the stats socket, and a second reload was made for what it runs."""
    balancer = bench.serve("first")
    answers: list[bool | None] = [None, True, None, False]

    def asked(path: str, _worker_pid: int) -> bool:
        answer = answers.pop(0)
        if answer is None:
            raise NoAnswer(path, ConnectionRefusedError())
        return answer

    monkeypatch.setattr("pyconfd.haproxy.process.haproxy_process.is_accepting", asked)
    apply(balancer, bench.rendering("second"))
    assert answers == []


def test_a_start_that_its_limits_forbid_leaves_the_former_worker_serving(bench: Bench) -> None:
    """`haproxy -c` does not look at limits. HAProxy does before it touches a listener."""
    balancer = bench.serve("good")
    stop, answers = threading.Event(), Counter[str]()

    def ask() -> None:
        while not stop.is_set():
            try:
                answers[fetch(bench.port)] += 1
            except (OSError, AssertionError) as error:
                answers[str(error)] += 1

    client = threading.Thread(target=ask)
    client.start()
    try:
        with pytest.raises(ApplyError):
            apply(balancer, bench.rendering("new", extra="global\n    ulimit-n 2147483647\n"))
    finally:
        stop.set()
        client.join()
    assert answers.keys() == {"good"}
    assert balancer.plan(bench.rendering("good")) == Noop()


def test_a_reload_that_failed_once_converges_on_the_next_call_with_the_same_input(bench: Bench) -> None:
    """Failure class 2: the predecessor compared with the file it had installed, and never tried again."""
    bench.serve("good")
    flag = bench.directory / "may-reload"
    script = f'test -e {flag} || {{ echo "not today" >&2; exit 7; }}; kill -USR2 $(cat {bench.haproxy.pid_file})'
    balancer = bench.balancer(reload_method=ReloadMethod.COMMAND, reload_cmd=("/bin/sh", "-c", script))
    desired = bench.rendering("wanted")

    with pytest.raises(ApplyError) as caught:
        apply(balancer, desired)
    assert caught.value.step == Step.RELOAD
    assert "ended with 7: not today" in caught.value.problems[0].message
    assert fetch(bench.port) == "good"

    flag.touch()
    assert apply(balancer, desired).verified
    assert fetch(bench.port) == "wanted"


def test_a_reload_command_that_hangs_is_killed_and_the_former_files_come_back(bench: Bench) -> None:
    bench.serve("good")
    installed = bench.conf.read_bytes()
    pid_file = bench.directory / "hanging.pid"
    script = f"echo $$ > {pid_file}; sleep 600"
    balancer = bench.balancer(
        reload_method=ReloadMethod.COMMAND, reload_cmd=("/bin/sh", "-c", script), reload_timeout_s=3.0
    )
    with pytest.raises(ApplyError, match=r"did not end within 3 s and was killed") as caught:
        apply(balancer, bench.rendering("wanted"))
    assert caught.value.step == Step.RELOAD
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()
    assert bench.conf.read_bytes() == installed
    assert fetch(bench.port) == "good"


def test_a_file_that_was_never_loaded_is_not_put_back_for_the_next_start_of_haproxy(bench: Bench) -> None:
    """A pyconfd that was killed between the file and the reload left it; and reloads fail since."""
    bench.serve("good").close()
    _put_back_instead_of_what_was_never_loaded(bench)


def test_nor_is_it_behind_a_process_that_was_changed_live(live: Live) -> None:
    live.begin(1)
    live.change(1, 2)
    live.follow()
    _put_back_instead_of_what_was_never_loaded(live.bench)
    assert live.serving() == {"s1", "s2"}


def test_nor_where_the_master_falls_silent_meanwhile(live: Live) -> None:
    """The worker's own socket tells less than the master's, and of the same worker."""
    live.begin(1)
    live.change(1, 2)
    live.follow()
    master = live.bench.haproxy.master_socket
    _put_back_instead_of_what_was_never_loaded(live.bench, ("/bin/sh", "-c", f"mv {master} {master}.away; false"))
    assert live.serving() == {"s1", "s2"}


def _put_back_instead_of_what_was_never_loaded(bench: Bench, reload_cmd: tuple[str, ...] = ("/bin/false",)) -> None:
    installed, candidate = bench.conf.read_bytes(), bench.rendering("never loaded")
    bench.conf.write_text(mark(candidate.text, candidate.digest))
    balancer = bench.balancer(reload_method=ReloadMethod.COMMAND, reload_cmd=reload_cmd)
    outcome = balancer.restore_last_good(2000.0)
    assert isinstance(outcome, Failed)
    assert outcome.step is Step.RELOAD
    assert bench.conf.read_bytes() == installed
    assert isinstance(balancer.restore_last_good(2001.0), Unchanged)


def test_a_file_that_somebody_edited_below_the_marker_of_what_runs_comes_back(bench: Bench) -> None:
    """Whether it was loaded, nobody can say: the marker in it is that of what runs."""
    bench.serve("good").close()
    edited = f"# somebody was here\n{bench.conf.read_text()}"
    bench.conf.write_text(edited)
    balancer = bench.balancer(reload_method=ReloadMethod.COMMAND, reload_cmd=("/bin/false",))
    assert isinstance(balancer.restore_last_good(2000.0), Failed)
    assert bench.conf.read_text() == edited


def test_a_reload_command_that_lies_is_found_out(bench: Bench) -> None:
    """Exit code 0 proves nothing: the worker is asked."""
    bench.serve("good")
    balancer = bench.balancer(reload_method=ReloadMethod.COMMAND, reload_cmd=("/bin/true",), reload_timeout_s=1.0)
    with pytest.raises(ApplyError, match="still runs") as caught:
        apply(balancer, bench.rendering("wanted"))
    assert caught.value.step == Step.VERIFY
    assert fetch(bench.port) == "good"


def test_a_signal_goes_to_a_haproxy_master_only(bench: Bench) -> None:
    bench.serve("good")
    balancer = bench.balancer(reload_method=ReloadMethod.SIGNAL)
    assert apply(balancer, bench.rendering("by signal")).verified
    assert fetch(bench.port) == "by signal"

    bench.haproxy.pid_file.write_text(f"{os.getpid()}\n")  # SIGUSR2 would end this very process
    with pytest.raises(ApplyError, match="names no running haproxy master"):
        apply(balancer, bench.rendering("wanted"))
    assert fetch(bench.port) == "by signal"


def test_without_the_master_socket_the_stats_socket_of_the_text_tells(bench: Bench) -> None:
    bench.serve("good")
    stats = f"stats socket {bench.haproxy.stats_socket} mode 600 level admin expose-fd listeners"
    desired = bench.rendering(extra=f"global\n    {stats}\n")
    apply(bench.balancer(), desired)

    balancer = bench.balancer(master_socket="/nonexistent/m", reload_method=ReloadMethod.SIGNAL)
    running = balancer.observe().running
    assert isinstance(running, Running)
    assert running.digest == desired.digest
    wanted = bench.rendering("by stats", extra=f"global\n    {stats}\n")
    assert apply(balancer, wanted).verified


def test_without_any_socket_the_reload_is_done_but_not_verified(bench: Bench) -> None:
    bench.serve("good")
    balancer = bench.balancer(master_socket="/nonexistent/m", reload_method=ReloadMethod.SIGNAL)
    assert not apply(balancer, bench.rendering("unseen")).verified
    wait_until(lambda: fetch(bench.port) == "unseen", "the new worker serves")


def test_auto_takes_the_first_method_that_can_be_used(bench: Bench) -> None:
    bench.serve()
    running = bench.haproxy.running()
    assert running is not None

    def chosen(**changes: Any) -> ReloadMethod:
        return bench.balancer(reload_method=ReloadMethod.AUTO, **changes)._process.method(running)

    assert chosen() is ReloadMethod.MASTER
    assert chosen(reload_cmd=("/bin/true",)) is ReloadMethod.COMMAND
    assert chosen(master_socket="/nonexistent/m") is ReloadMethod.SIGNAL
    with pytest.raises(ApplyError, match="no way to reload"):
        chosen(master_socket="/nonexistent/m", pid_file="/nonexistent/pid")


def test_a_process_that_lost_the_text_in_a_failed_apply_gets_the_former_one_again(bench: Bench) -> None:
    """The command loads something else and fails: neither the former nor the new text runs."""
    bench.serve("good")
    state = bench.directory / "count"
    strange = bench.directory / "strange.cfg"
    strange.write_text(configuration(bench.port, "strange"))
    script = (
        f"if test -e {state}; then kill -USR2 $(cat {bench.haproxy.pid_file}); exit 0; fi; touch {state}; "
        f"cp {bench.conf} {bench.conf}.keep; cat {strange} > {bench.conf}; kill -USR2 $(cat {bench.haproxy.pid_file}); "
        f"sleep 0.5; cat {bench.conf}.keep > {bench.conf}; exit 3"
    )
    balancer = bench.balancer(reload_method=ReloadMethod.COMMAND, reload_cmd=("/bin/sh", "-c", script))
    with pytest.raises(ApplyError, match="ended with 3"):
        apply(balancer, bench.rendering("wanted"))
    assert fetch(bench.port) == "good"
