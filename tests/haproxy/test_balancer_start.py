"""What the balancer meets at its start: an haproxy that is not there, a history, a lock, a disk that is in the way."""

import os
import threading
from pathlib import Path

import pytest

from pyconfd.errors import ApplyError, TransientError
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.observation import NotRunning
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.outcome import Applied, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop
from pyconfd.settings import ApplySettings
from tests.haproxy.bench import Bench, apply, fill, small_disk
from tests.world.haproxy import configuration, fetch

pytestmark = pytest.mark.haproxy


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
    balancer = bench.balancer()  # which gives a reload its time
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
    assert [generation.number for generation in balancer.store.history()] == [1]


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
