"""The transaction against a real haproxy: it serves the new text, or the former one goes on."""

import os
import socket
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.text import mark
from pyconfd.model.outcome import Step
from pyconfd.model.plan import Noop, Reload, ReloadReason
from tests.haproxy.bench import Bench, apply
from tests.world.haproxy import configuration, fetch, free_port

pytestmark = pytest.mark.haproxy


def test_a_rendering_is_installed_loaded_verified_and_recorded(bench: Bench) -> None:
    balancer = bench.serve()
    desired = bench.rendering("second")

    applied = apply(balancer, desired, now=1234.5)

    assert applied.verified
    assert applied.generation.number == 2
    assert applied.generation.applied_at == 1234.5
    assert applied.generation.curdate == "2024-01-01"
    assert isinstance(applied.plan, Reload)
    assert applied.plan.reasons == (ReloadReason.SECTION_CHANGED,)
    assert fetch(bench.port) == "second"
    assert bench.conf.read_text() == mark(desired.text, desired.digest)
    assert [generation.number for generation in balancer.store.history()] == [2, 1]
    assert balancer.plan(desired) == Noop()
    assert bench.temporary_files() == []


def test_what_ran_before_pyconfd_is_replaced_by_a_reload(bench: Bench) -> None:
    bench.conf.write_text(configuration(bench.port, "before"))
    bench.haproxy.start()
    before = bench.haproxy.running()
    applied = apply(bench.balancer(), bench.rendering("after"))
    after = bench.haproxy.running()

    assert isinstance(applied.plan, Reload)
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
    assert "http-request add-header" in caught.value.problems[0].remedy


def test_a_new_bind_whose_port_is_taken_is_met_before_the_reload(bench: Bench) -> None:
    balancer = bench.serve("good")
    before = bench.haproxy.running()
    # Not any free port: a connection of another process might have it when the cause has gone.
    with socket.create_server(("127.0.0.1", free_port())) as other:
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
