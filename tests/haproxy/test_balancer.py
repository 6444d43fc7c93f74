"""The transaction against a real haproxy: it serves the new text, or the former one goes on."""

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from pyconfd.errors import ApplyError, RejectedInput, TransientError
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.marker import mark
from pyconfd.haproxy.observation import NotRunning, Running
from pyconfd.haproxy.unit import UnitFacts
from pyconfd.model.outcome import Applied, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.settings import ApplySettings, ReloadMethod
from tests.haproxy.bench import Bench, apply, fill, small_disk
from tests.world.haproxy import configuration, fetch, free_port, wait_until

pytestmark = pytest.mark.haproxy


def test_a_rendering_is_installed_loaded_verified_and_recorded(bench: Bench) -> None:
    balancer = bench.serve()
    desired = bench.rendering("second")

    applied = apply(balancer, desired, now=1234.5)

    assert applied.verified
    assert applied.generation.number == 2
    assert applied.generation.applied_at == 1234.5
    assert applied.generation.curdate == "2024-01-01"
    assert applied.plan.reasons == (ReloadReason.SECTION_CHANGED,)
    assert fetch(bench.port) == "second"
    assert bench.conf.read_text() == mark(desired.text, desired.digest)
    assert [generation.number for generation in balancer.history()] == [2, 1]
    assert balancer.plan(desired) == Noop()
    assert bench.temporary_files() == []


def test_what_ran_before_pyconfd_is_replaced_by_a_reload(bench: Bench) -> None:
    bench.conf.write_text(configuration(bench.port, "before"))
    bench.haproxy.start()
    before = bench.haproxy.running()
    applied = apply(bench.balancer(), bench.rendering("after"))
    after = bench.haproxy.running()

    assert applied.plan.reasons == (ReloadReason.FIRST_CONFIGURATION,)
    assert before is not None
    assert after is not None
    assert after.master_pid == before.master_pid
    assert after.worker_pid != before.worker_pid
    assert fetch(bench.port) == "after"


def test_maps_and_certificates_are_installed_and_pruned_when_no_longer_declared(bench: Bench) -> None:
    balancer = bench.serve()
    hosts = bench.map_file("a.example first\n")
    use = f'    http-request set-header x-b "%[req.hdr(host),map({hosts.path},none)]"\n'

    apply(balancer, bench.rendering("with map", extra=use, files=(hosts,)))
    assert Path(hosts.path).read_text() == "a.example first\n"
    assert Path(hosts.path).stat().st_mode & 0o777 == 0o644

    foreign = Path(hosts.path).with_name("operators-own.map")
    foreign.write_text("kept\n")
    apply(balancer, bench.rendering("without map"))
    assert not Path(hosts.path).exists()
    assert foreign.exists()


def test_a_map_that_is_not_installed_yet_is_checked_from_the_staged_copy(bench: Bench) -> None:
    """Without the copy, `haproxy -c` would miss the file and refuse the very first map."""
    bench.serve()
    hosts = bench.map_file("a.example x\n")
    use = f"    http-request deny if {{ req.hdr(host),map({hosts.path}) -m found }}\n"
    bench.balancer().check(bench.rendering(extra=use, files=(hosts,)))
    assert not Path(hosts.path).parent.exists()

    undeclared = bench.rendering(extra=use)
    with pytest.raises(RejectedInput, match=r"hosts\.map"):
        bench.balancer().check(undeclared)


def test_a_candidate_that_fails_the_check_changes_nothing_and_is_kept_with_its_reason(bench: Bench) -> None:
    balancer = bench.serve("good")
    installed = bench.conf.read_bytes()
    bad = bench.rendering("good", extra="backend be_x\n    blance roundrobin\n")

    with pytest.raises(RejectedInput) as caught:
        apply(balancer, bad)

    problem = caught.value.problems[0]
    assert caught.value.step == Step.CHECK
    assert problem.place == "02-part.tmpl rendered line 2"
    assert "blance" in problem.message
    assert bench.conf.read_bytes() == installed
    assert fetch(bench.port) == "good"
    kept = list((Path(bench.state_dir) / "rejected").iterdir())
    assert len(kept) == 1
    assert "blance" in (kept[0] / "haproxy.cfg").read_text()
    assert "blance" in (kept[0] / "reason.txt").read_text()
    assert bench.temporary_files() == []


def test_a_configuration_without_a_listener_is_rejected_in_plain_words(bench: Bench) -> None:
    with pytest.raises(RejectedInput, match="would listen nowhere"):
        bench.balancer().check(type(bench.rendering())((bench.rendering().pieces[1],)))


def test_a_removed_directive_is_shown_with_its_replacement(bench: Bench) -> None:
    with pytest.raises(RejectedInput) as caught:
        bench.balancer().check(bench.rendering(extra="    reqadd X-Forwarded-Proto:\\ https\n"))
    assert caught.value.problems[0].place.startswith("02-part.tmpl")
    assert "http-request set-header" in caught.value.problems[0].remedy


def test_a_new_bind_whose_port_is_taken_is_met_before_the_reload(bench: Bench) -> None:
    balancer = bench.serve("good")
    before = bench.haproxy.running()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        candidate = bench.rendering("new", extra=f"frontend fe_more\n    bind 127.0.0.1:{port}\n")
        with pytest.raises(RejectedInput) as caught:
            apply(balancer, candidate)
    assert caught.value.step == Step.BINDS
    assert f"port {port} is taken by" in caught.value.problems[0].message
    assert f"pid {os.getpid()}" in caught.value.problems[0].message
    assert caught.value.problems[0].place == "02-part.tmpl line 2"
    assert bench.haproxy.running() == before  # no reload was even tried

    apply(balancer, candidate)  # it heals when the cause goes
    assert fetch(bench.port) == "new"


def test_an_address_that_is_not_on_the_host_is_met_before_the_reload(bench: Bench) -> None:
    balancer = bench.serve("good")
    candidate = bench.rendering("new", extra=f"frontend fe_more\n    bind 203.0.113.77:{free_port()}\n")
    with pytest.raises(RejectedInput, match=r"203\.0\.113\.77 is not on this host"):
        apply(balancer, candidate)
    assert fetch(bench.port) == "good"


def test_a_worker_that_does_not_start_brings_the_former_files_and_text_back(bench: Bench) -> None:
    """`haproxy -c` opens no socket, so a UNIX socket in a missing directory passes it and fails the start."""
    balancer = bench.serve("good")
    installed = bench.conf.read_bytes()
    hosts = bench.map_file("a b\n")
    candidate = bench.rendering("new", extra="frontend fe_more\n    bind /nonexistent/dir/socket\n", files=(hosts,))

    with pytest.raises(ApplyError) as caught:
        apply(balancer, candidate)

    assert caught.value.step == Step.VERIFY
    assert "did not start" in caught.value.problems[0].message
    assert bench.conf.read_bytes() == installed
    assert not Path(hosts.path).exists()
    wait_until(lambda: bench.haproxy.running() is not None, "the master answers again")
    assert fetch(bench.port) == "good"
    assert [generation.number for generation in balancer.history()] == [1]
    assert bench.temporary_files() == []
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
        reload_method=ReloadMethod.COMMAND, reload_cmd=("/bin/sh", "-c", script), reload_timeout_s=0.5
    )
    with pytest.raises(ApplyError, match=r"did not end within 0\.5 s and was killed") as caught:
        apply(balancer, bench.rendering("wanted"))
    assert caught.value.step == Step.RELOAD
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()
    assert bench.conf.read_bytes() == installed
    assert fetch(bench.port) == "good"


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


def test_the_first_configuration_needs_no_former_one(bench: Bench) -> None:
    """Failure class 3: the predecessor could not write into an empty directory."""
    desired = bench.rendering("first ever")
    assert not bench.conf.exists()
    balancer = bench.balancer(reload_timeout_s=0.5)

    with pytest.raises(ApplyError, match="is not running") as caught:
        apply(balancer, desired)
    assert "start it: " in caught.value.problems[0].remedy
    assert bench.conf.read_text() == mark(desired.text, desired.digest)  # haproxy can start with it

    bench.haproxy.start()
    assert fetch(bench.port) == "first ever"
    assert apply(balancer, desired).generation.number == 1
    assert balancer.plan(desired) == Noop()


def test_a_haproxy_that_comes_up_while_it_is_waited_for_is_verified(bench: Bench) -> None:
    """As with a unit that systemd starts again and again until there is a file to load."""
    desired = bench.rendering("late")
    starter = threading.Thread(target=bench.start_when_there_is_a_file)
    starter.start()
    applied = apply(bench.balancer(), desired)
    starter.join()
    assert applied.verified
    assert fetch(bench.port) == "late"


def test_a_haproxy_that_died_is_waited_for_and_the_former_file_comes_back(bench: Bench) -> None:
    balancer = bench.serve("good")
    installed = bench.conf.read_bytes()
    bench.haproxy.stop()
    assert isinstance(balancer.observe().running, NotRunning)
    balancer = bench.balancer(reload_timeout_s=0.5)
    with pytest.raises(ApplyError, match="is not running"):
        apply(balancer, bench.rendering("new"))
    assert bench.conf.read_bytes() == installed


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


def test_a_file_edited_by_hand_is_put_right(bench: Bench) -> None:
    balancer = bench.serve("good")
    bench.conf.write_text(configuration(bench.port, "edited by hand"))
    plan = balancer.plan(bench.rendering("good"))
    assert isinstance(plan, Reload)
    assert plan.reasons == (ReloadReason.FILE_EDITED,)
    apply(balancer, bench.rendering("good"))
    assert "edited by hand" not in bench.conf.read_text()


def test_a_process_that_runs_another_text_is_brought_level(bench: Bench) -> None:
    balancer = bench.serve("good")
    bench.haproxy.stop()
    good = bench.conf.read_bytes()
    bench.conf.write_text(configuration(bench.port, "other"))
    bench.haproxy.start()
    bench.conf.write_bytes(good)
    plan = balancer.plan(bench.rendering("good"))
    assert isinstance(plan, Reload)
    assert plan.reasons == (ReloadReason.PROCESS_BEHIND,)
    apply(balancer, bench.rendering("good"))
    assert fetch(bench.port) == "good"


def test_at_a_boot_without_an_api_server_the_last_good_generation_serves(bench: Bench) -> None:
    bench.serve("last good")
    bench.haproxy.stop()
    bench.conf.write_text(configuration(bench.port, "packaged default"))
    bench.haproxy.start()

    balancer = bench.balancer()
    outcome = balancer.restore_last_good(2000.0)
    assert isinstance(outcome, Applied)
    assert outcome.generation.number == 1
    assert outcome.verified
    assert fetch(bench.port) == "last good"
    assert isinstance(balancer.restore_last_good(2001.0), Unchanged)
    assert [generation.number for generation in balancer.history()] == [1]


def test_a_last_good_generation_that_no_longer_passes_is_rejected_and_changes_nothing(bench: Bench) -> None:
    balancer = bench.serve("good")
    hosts = bench.directory / "operators.map"
    hosts.write_text("a b\n")
    apply(balancer, bench.rendering("x", extra=f"    http-request deny if {{ req.hdr(host),map({hosts}) -m found }}\n"))
    hosts.unlink()
    bench.conf.write_text("# something else\n")
    outcome = bench.balancer().restore_last_good(2000.0)
    assert isinstance(outcome, Rejected)
    assert outcome.step is Step.CHECK
    assert bench.conf.read_text() == "# something else\n"


def test_with_no_history_there_is_nothing_to_restore(bench: Bench) -> None:
    assert bench.balancer().restore_last_good(1.0) is None


def test_a_second_pyconfd_is_told_who_holds_the_lock(bench: Bench) -> None:
    first = bench.serve()
    second = Balancer(bench.haproxy.settings(), ApplySettings(), bench.state_dir, unit=UnitFacts())
    with pytest.raises(TransientError, match=rf"another pyconfd \(pid {os.getpid()}\)"):
        second.startup()
    first.close()
    assert second.startup() == ()
    second.close()


def test_startup_removes_what_a_killed_pyconfd_left_and_nothing_else(bench: Bench) -> None:
    bench.conf.parent.mkdir(exist_ok=True)
    stale = bench.conf.parent / ".pyconfd-0123456789abcdef"
    stale.write_text("half")
    staging = Path(bench.state_dir) / "generations" / ".pyconfd-fedcba9876543210"
    staging.mkdir(parents=True)
    (staging / "haproxy.cfg").write_text("half")
    other = bench.conf.parent / ".editor-swap"
    other.write_text("kept")
    bench.balancer().startup()
    assert not stale.exists()
    assert not staging.exists()
    assert other.exists()


def test_a_target_that_is_a_directory_is_named_with_what_to_do(bench: Bench) -> None:
    bench.conf.mkdir(parents=True)
    balancer = bench.balancer()
    assert "is a directory" in str(balancer.startup()[0])
    with pytest.raises(ApplyError, match="it is a directory") as caught:
        apply(balancer, bench.rendering())
    assert caught.value.step == Step.INSTALL
    assert caught.value.problems[0].remedy
    assert bench.temporary_files() == []


def test_a_missing_directory_is_named_with_what_to_do(bench: Bench) -> None:
    balancer = bench.balancer(conf=str(bench.directory / "missing" / "haproxy.cfg"))
    problem = balancer.startup()[0]
    assert "does not exist" in problem.message
    assert problem.remedy.startswith("create it")
    with pytest.raises(ApplyError, match="No such file or directory"):
        apply(balancer, bench.rendering())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_changes_nothing_and_heals(bench: Bench) -> None:
    with small_disk(bench.directory / "small") as disk:
        conf = disk / "haproxy.cfg"
        bench.haproxy.conf = conf
        balancer = bench.serve("good")
        installed = conf.read_bytes()
        ballast = disk / "ballast"
        fill(ballast)
        desired = bench.rendering("new", extra="# " + "x" * 20000 + "\n")
        with pytest.raises(ApplyError, match="disk is full"):
            apply(balancer, desired)
        assert conf.read_bytes() == installed
        assert fetch(bench.port) == "good"
        assert list(disk.glob(".pyconfd-*")) == []

        ballast.unlink()
        assert apply(balancer, desired).verified
        bench.haproxy.stop()
