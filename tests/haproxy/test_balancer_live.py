"""Changes without a reload, through the whole balancer: the process first, the file behind it, and through trouble."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pyconfd.errors import ApplyError, RejectedInput
from pyconfd.haproxy.config.text import digest_in
from pyconfd.haproxy.process.balancer import Balancer, BalancerState
from pyconfd.model.context import EndpointTotals
from pyconfd.model.operations import ServerState
from pyconfd.model.outcome import Applied
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import Piece, Rendering
from tests.haproxy.bench import Bench, Live
from tests.world.haproxy import BINARY, free_port, wait_until


def test_the_process_is_changed_and_the_file_follows(live: Live) -> None:
    live.begin(1, 2)
    worker = live.worker()
    done = live.change(2, 3)
    assert isinstance(done, Applied)
    assert live.serving() == {"s2", "s3"}
    live.follow()
    assert live.worker() == worker
    text = live.bench.conf.read_text()
    assert ("server s3" in text, "server s1" in text) == (True, False)
    assert digest_in(text) == live.rendering(2, 3).digest
    assert [one.number for one in live.balancer.store.history()] == [done.generation.number, 1]


def test_each_state_is_entered_and_left(live: Live) -> None:
    balancer = live.balancer

    def state() -> BalancerState:
        return balancer.state

    assert state() is BalancerState.UNKNOWN
    live.begin(1, 2)
    assert state() is BalancerState.IN_SYNC
    with balancer._file.lock:  # nothing is written meanwhile
        live.change(2, 3)
        assert state() is BalancerState.AHEAD
    live.follow()
    assert state() is BalancerState.IN_SYNC
    live.ask("add server be/s4 127.0.0.1:9999")  # so that a command is refused
    assert isinstance(live.change(3, 4), Reload)
    for _ in range(2):
        assert state() is BalancerState.SUSPECT
        assert isinstance(balancer.refresh(), Reload)
    live.reload(live.rendering(3, 4))
    assert state() is BalancerState.UNKNOWN
    assert isinstance(balancer.refresh(), Noop)
    assert state() is BalancerState.IN_SYNC
    live.bench.haproxy.stop()
    # A look returns Noop while the file is being written.
    wait_until(lambda: isinstance(balancer.refresh(), Reload), "it is seen that haproxy does not run")
    assert state() is BalancerState.DOWN


@pytest.mark.parametrize("restart", [False, True])
def test_a_look_reads_and_parses_nothing_that_pyconfd_wrote(
    live: Live, monkeypatch: pytest.MonkeyPatch, *, restart: bool
) -> None:
    live.begin(1, 2)
    live.change(2, 3)
    live.follow()
    if restart:
        live.balancer = live.bench.balancer()
        live.balancer.startup()
    assert live.balancer.refresh() == Noop(verified=True)

    def refuse(*_: object) -> None:
        raise AssertionError("a look takes time in proportion to the configuration")

    for name in (
        "pyconfd.haproxy.config.diff.mark",
        "pyconfd.haproxy.process.balancer.stats_sockets",
        "pyconfd.haproxy.process.layout.sha256",
    ):
        monkeypatch.setattr(name, refuse)
    assert live.balancer.refresh() == Noop(verified=True)


@pytest.mark.parametrize("edit", ["in place", "replaced", "removed"])
def test_what_somebody_did_to_the_written_file_is_seen(live: Live, edit: str) -> None:
    live.begin(1, 2)
    live.change(2, 3)
    live.follow()
    conf = live.bench.conf
    text = conf.read_text()
    if edit == "removed":
        conf.unlink()
    else:
        path = conf if edit == "in place" else conf.with_name("other")
        path.write_text(text.replace("server s3", "server s4"))
        path.rename(conf)
    plan = live.balancer.refresh()
    assert isinstance(plan, Reload)
    assert plan.reasons == (ReloadReason.FILE_EDITED,)


def test_after_a_restart_of_pyconfd_what_was_changed_live_is_known(live: Live) -> None:
    live.begin(1)
    live.change(1, 2)
    live.follow()
    again = live.bench.balancer()
    again.startup()
    assert again.plan(live.rendering(1, 2)) == Noop()
    with pytest.MonkeyPatch.context() as patched:
        patched.delattr("pyconfd.haproxy.config.diff.index_of")
        again.sync()  # drift is looked for in what was cut into sections at the start
    live.balancer = again
    assert isinstance(live.change(1, 2, 3), Applied)
    assert live.serving() == {"s1", "s2", "s3"}


def test_a_kill_between_the_command_and_the_file_heals(live: Live) -> None:
    live.begin(1)
    live.ask("add server be/s2 127.0.0.1:9002 id 2;set server be/s2 state ready")  # what a killed pyconfd had begun
    again = live.bench.balancer()
    again.startup()
    live.balancer = again
    assert isinstance(again.refresh(), Noop)
    done = live.change(1, 2)
    if isinstance(done, Reload):  # what is there already is not taken for what should be
        live.reload(live.rendering(1, 2))
    assert live.serving() == {"s1", "s2"}
    live.follow()
    assert "server s2" in live.bench.conf.read_text()


def test_somebody_else_reloads_in_between(live: Live) -> None:
    live.begin(1)
    live.change(1, 2)
    live.follow()
    live.bench.haproxy.reload()
    wanted = live.rendering(1, 2, 3)
    done = live.change(1, 2, 3)
    if isinstance(done, Reload):  # the connection was with the worker of the past, and nothing was taken for done
        assert done.reasons == (ReloadReason.NOT_LIVE,)
        assert not live.balancer.updates_at_runtime()
        live.reload(wanted)
    assert live.serving() == {"s1", "s2", "s3"}
    live.follow()
    assert live.balancer.plan(wanted) == Noop()


def test_a_reload_by_hand_of_a_level_file_is_no_reason_for_another(live: Live) -> None:
    live.begin(1)
    live.change(1, 2)
    live.follow()
    live.override("s1", ServerState.DRAIN)
    live.balancer.sync()
    live.bench.haproxy.reload()
    replaced = live.worker()

    def back() -> bool:
        live.balancer.sync()
        return live.serving() == {"s2"}

    wait_until(back, "the override is in force again")
    assert isinstance(live.balancer.refresh(), Noop)
    assert isinstance(live.change(1, 2, 3), Applied)
    assert live.serving() == {"s2", "s3"}
    assert live.worker() == replaced


@pytest.mark.parametrize("notices", ["refresh", "sync"])
def test_a_reload_by_somebody_else_is_told_once_whoever_notices_it(live: Live, notices: str) -> None:
    with capture_logs() as logs:
        live.begin(1)
        first = live.worker()
        live.bench.haproxy.reload()
        second = live.worker()
        getattr(live.balancer, notices)()
        for _ in range(2):
            live.balancer.refresh()
            live.balancer.sync()
        live.extra = f"frontend more\n    bind 127.0.0.1:{free_port()}\n    default_backend be\n"
        own = live.reload(live.rendering(1))  # pyconfd's own is told elsewhere
        assert own.verified
        worker = live.worker()
        live.bench.haproxy.reload()  # before pyconfd has looked again
        assert isinstance(live.balancer.refresh(), Noop)
    told = [(line["former"], line["now"]) for line in logs if line["event"] == "worker.replaced"]
    assert told == [(first, second), (worker, live.worker())]


def test_before_the_first_look_a_change_is_not_held_back(live: Live) -> None:
    assert live.balancer.updates_at_runtime()
    first = live.rendering(1)
    assert isinstance(live.balancer.plan(first), Reload)  # haproxy does not run: no socket is known
    live.bench.conf.write_text(first.text)
    live.bench.haproxy.start()
    live.reload(first)
    assert live.balancer.updates_at_runtime()


@pytest.mark.parametrize(
    "by_hand",
    [
        "set server be/s1 state maint;del server be/s1",
        "add server be/x 127.0.0.1:9999;set server be/x state ready",
    ],
)
def test_membership_that_was_changed_by_hand_is_repaired(live: Live, by_hand: str) -> None:
    live.begin(1, 2)
    live.ask(by_hand)
    assert live.serving() != {"s1", "s2"}
    live.balancer.sync()
    assert live.serving() == {"s1", "s2"}
    assert live.balancer.sync().live.repaired_total == 1


def test_what_operators_set_survives_updates_and_reloads(live: Live) -> None:
    live.begin(1, 2)
    live.override("s1", ServerState.DRAIN)
    (override,) = live.balancer.sync().live.overrides
    assert (override.server, override.value, override.source) == ("be/s1", "drain", "command")
    live.change(1, 2, 3)
    assert live.serving() == {"s2", "s3"}
    live.extra = f"frontend more\n    bind 127.0.0.1:{free_port()}\n    default_backend be\n"
    live.reload(live.rendering(1, 2, 3))
    assert live.serving() == {"s2", "s3"}


def test_what_went_live_by_half_is_not_left_so(live: Live) -> None:
    live.begin(1, 2)
    live.ask("add server be/s3 127.0.0.1:9999")  # so that one of two commands is refused
    assert isinstance(live.change(2, 3), Reload)
    assert "s1" not in live.serving(), "it was drained although it went wrong"
    before = live.rendering(1, 2)
    assert isinstance(live.balancer.plan(before), Reload)
    assert live.balancer.sync().live.overrides == ()
    live.reload(before)
    assert live.serving() == {"s1", "s2"}
    assert live.balancer.refresh() == Noop(verified=True)
    assert live.balancer.sync().live.overrides == ()


def test_a_reload_waits_and_what_needs_none_goes_live(live: Live) -> None:
    live.begin(1)
    live.extra = f"frontend more\n    bind 127.0.0.1:{free_port()}\n    default_backend be\n"
    wanted = live.rendering(1, 2)
    plan = live.balancer.plan(wanted)
    assert isinstance(plan, Reload)
    worker = live.worker()
    deferred = live.balancer.defer(plan, now=3.0)
    assert deferred.live is not None
    assert live.serving() == {"s1", "s2"}
    live.follow()
    # A reload by anybody else would now bring up what serves: the new server, and not yet the new listener.
    text = live.bench.conf.read_text()
    assert ("server s2" in text, "frontend more" in text) == (True, False)
    assert live.worker() == worker
    live.reload(wanted)
    assert "frontend more" in live.bench.conf.read_text()
    assert live.serving() == {"s1", "s2"}


@pytest.fixture
def unwritable(bench: Bench, tmp_path: Path) -> tuple[Live, Path]:
    """Return a balancer whose check refuses everything while the path exists."""
    broken, check = tmp_path / "broken", tmp_path / "check"
    check.write_text(f"#!/bin/sh\ntest ! -e {broken} || {{ echo no >&2; exit 1; }}\n")
    check.chmod(0o755)
    live = Live(bench)
    live.balancer = bench.balancer(chk_cmd=(str(check),))
    live.balancer.startup()
    live.begin(1)
    return live, broken


def test_a_file_that_cannot_follow_is_told_and_tried_again(unwritable: tuple[Live, Path]) -> None:
    live, broken = unwritable
    broken.touch()
    live.change(1, 2)
    wait_until(lambda: live.balancer.sync().problems, "it is told")
    assert live.balancer.file_behind
    assert live.serving() == {"s1", "s2"}
    broken.unlink()
    wait_until(lambda: isinstance(live.balancer.refresh(), Noop) and not live.balancer.file_behind, "it is level again")
    assert "server s2" in live.bench.conf.read_text()


def test_a_reload_by_somebody_else_while_the_file_is_behind_is_noticed(unwritable: tuple[Live, Path]) -> None:
    live, broken = unwritable
    broken.touch()
    live.change(1, 2)
    live.bench.haproxy.reload()
    assert live.serving() == {"s1"}  # what the file says
    broken.unlink()
    wait_until(lambda: isinstance(live.balancer.refresh(), Reload) or not live.balancer.file_behind, "it is seen")
    plan = live.balancer.plan(live.rendering(1, 2))
    assert isinstance(plan, Reload)
    live.balancer.apply(live.rendering(1, 2), plan, curdate="", now=5.0, totals=EndpointTotals())
    assert live.serving() == {"s1", "s2"}


def test_a_reload_that_fails_leaves_what_was_changed_live(live: Live) -> None:
    live.begin(1)
    live.change(1, 2)
    live.extra = "global\n    stats socket /nosuch/directory/socket\n"
    wanted = live.rendering(1, 2)
    plan = live.balancer.plan(wanted)
    assert isinstance(plan, Reload)
    with pytest.raises(ApplyError):
        live.balancer.apply(wanted, plan, curdate="", now=4.0, totals=EndpointTotals())
    wait_until(lambda: live.bench.haproxy.running() is not None, "haproxy answers again")
    live.follow()
    assert "server s2" in live.bench.conf.read_text()
    assert "nosuch" not in live.bench.conf.read_text()
    live.extra = ""
    wait_until(lambda: isinstance(live.balancer.plan(live.rendering(1, 2)), Noop), "all is level")
    assert live.serving() == {"s1", "s2"}


def test_without_a_socket_every_change_is_a_reload_that_says_so(bench: Bench) -> None:
    live = Live(bench)
    without = bench.rendering(extra="backend be\n    server a 127.0.0.1:9001\n")
    bench.conf.write_text(without.text)
    bench.haproxy.start()
    live.reload(without)
    assert isinstance(live.balancer.refresh(), Noop)
    assert not live.balancer.updates_at_runtime()
    assert "stats socket" in live.balancer.sync().live.unavailable
    plan = live.balancer.plan(bench.rendering(extra="backend be\n    server b 127.0.0.1:9002\n"))
    assert isinstance(plan, Reload)
    assert plan.reasons == (ReloadReason.NOT_LIVE,)


def test_the_balancer_of_a_rendering_in_one_block_and_in_many_is_the_same(live: Live) -> None:
    live.begin(1)
    whole = live.rendering(1)
    joined = Rendering((Piece("01-part.tmpl", whole.text),))
    assert isinstance(live.balancer, Balancer)
    assert live.balancer.plan(joined) == Noop()


def test_a_server_that_is_refused_keeps_nobody_else_from_going_live(live: Live) -> None:
    live.extra = "backend odd\n    server a 127.0.0.1:9001\n"
    live.begin(1)
    worker = live.worker()
    live.extra += "    server b 127.0.0.1:9002 observe nonsense\n"
    done = live.change(1, 2)
    assert isinstance(done, Reload)
    assert done.reasons == (ReloadReason.NOT_LIVE,)
    assert "observe nonsense" in done.details[0]
    assert live.serving() == {"s1", "s2"}, "the rest went live"
    assert live.balancer.updates_at_runtime(), "what runs is known"
    live.follow()
    text = live.bench.conf.read_text()
    assert "server s2" in text
    assert "observe" not in text
    plan = live.balancer.plan(live.rendering(1, 2, 3))
    assert isinstance(plan, Reload)
    assert plan.live is not None, "it is not tried again, and the others are"
    deferred = live.balancer.defer(plan, now=3.0)
    assert deferred.live == plan.live
    assert live.serving() == {"s1", "s2", "s3"}
    assert live.worker() == worker
    with pytest.raises(RejectedInput, match="observe"):
        live.balancer.apply(live.rendering(1, 2, 3), plan, curdate="", now=4.0, totals=EndpointTotals())
    live.extra = "backend odd\n    server a 127.0.0.1:9001\n"
    assert isinstance(live.change(1, 2, 3, 4), Applied)


def test_what_went_live_and_is_refused_behind_it_is_told(bench: Bench, tmp_path: Path) -> None:
    check = tmp_path / "check"
    check.write_text(f'#!/bin/sh\ngrep -q \'server s2\' "$1" && exit 1\nexec {BINARY} -W -c -f "$1"\n')
    check.chmod(0o755)
    live = Live(bench)
    live.balancer = bench.balancer(chk_cmd=(str(check),))
    live.balancer.startup()
    live.begin(1)
    live.change(1, 2)
    wait_until(lambda: live.balancer.sync().problems, "it is told")
    assert isinstance(live.balancer.plan(live.rendering(1, 2)), Reload), "its check says whose fault it is"
    live.change(1, 3)
    live.follow()
    assert not live.balancer.sync().problems
