"""A real haproxy that somebody changes behind pyconfd's back."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.index import Index, SectionKey, configured_backend, index_of
from pyconfd.haproxy.config.servers import ConfiguredBackend, ConfiguredServer
from pyconfd.haproxy.runtime.drift import MAX_SLICE, ROUND_S, SLICE, Drift, DriftMonitor
from pyconfd.haproxy.runtime.overrides import FILE_NAME, Override, OverrideKey, OverrideStore, with_overrides
from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.operations import AddServer, Command, RemoveServer, ServerState, SetState, SetWeight
from tests.world.haproxy import HaproxyProcess, configuration, free_port, wait_until

BACKENDS = """backend shop
    server a 127.0.0.1:7001 weight 10
    server c 127.0.0.1:7003 weight 0
    server off 127.0.0.1:7004 disabled
    server b 127.0.0.1:7002 weight 10
listen other
    bind unix@{socket}.l
    balance source
    server only 127.0.0.1:7005
"""


@dataclass
class Stage:
    """A haproxy with two backends, and what looks after it; ``now`` is both clocks."""

    haproxy: HaproxyProcess
    state_dir: Path
    now: float = 1000.0
    runtime: Runtime = field(default_factory=Runtime)

    def __post_init__(self) -> None:
        global_lines = f"stats socket {self.haproxy.stats_socket} mode 600 level admin"
        backends = BACKENDS.format(socket=self.haproxy.stats_socket)
        self.text = configuration(free_port(), extra=backends, global_lines=global_lines)
        self._first = self.text
        self.haproxy.conf.write_text(self.text)
        self.haproxy.start()
        self.restart_pyconfd()
        self.connect()

    @property
    def index(self) -> Index:
        return index_of(self.text)

    def restart_pyconfd(self) -> None:
        self.overrides = OverrideStore(str(self.state_dir), clock=lambda: self.now)
        self.drift = DriftMonitor(self.overrides, monotonic=lambda: self.now)

    def connect(self) -> None:
        assert self.runtime.connect([self.haproxy.stats_socket]).runtime

    def sweep(self, *, repair: bool = True) -> Drift:
        return self.drift.sweep(self.runtime, self.index, repair=repair)

    def by_hand(self, command: str) -> str:
        return ask(self.haproxy.stats_socket, command).strip()

    def override(self, name: str, state: ServerState, *, until: float = 0.0) -> None:
        """Store an override of backend ``shop``, as the command does, and let it come into force."""
        with OverrideStore(str(self.state_dir)).edited() as stored:
            made = Override("shop", name, state, self.now, until)
            stored[made.key] = made
        assert len(self.sweep().commands) == 1

    def readdressed(self, name: str, backend: str) -> None:
        """Set another address of a server by hand; since 3.0 that takes effect a moment after its answer."""
        self.by_hand(f"set server {backend}/{name} addr 127.0.0.9 port 7009")
        wait_until(lambda: self.server(name, backend).target == "127.0.0.9:7009", "it has another address")

    def execute(self, *commands: Command) -> None:
        self.runtime.execute(with_overrides(commands, self.overrides.known, self.now))

    def server(self, name: str, backend: str = "shop") -> ServerNow:
        return next(one for one in self.runtime.servers([backend]) if one.name == name)

    def serve(self, more: str) -> None:
        """Load what haproxy had at first, and more sections."""
        self.text = self._first + more
        self.haproxy.conf.write_text(self.text)
        self.reload()

    def reload(self) -> None:
        """Reload haproxy as an operator would."""
        self.haproxy.reload()
        self.connect()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        made = Stage(haproxy, tmp_path / "state")
        assert made.sweep() == Drift(compared=2)
        yield made
        made.runtime.close()


def test_what_operators_set_survives_updates_and_reloads(stage: Stage) -> None:
    stage.override("a", ServerState.DRAIN)
    stage.execute(SetState("shop", "a", ServerState.READY), SetWeight("shop", "a", 3))
    assert (stage.server("a").drain, stage.server("a").weight) == (True, 3)
    stage.execute(SetWeight("shop", "a", 10))
    assert stage.sweep() == Drift(compared=2)
    stage.reload()
    assert not stage.server("a").drain
    stage.drift.restore(stage.runtime, stage.index)
    assert stage.server("a").drain
    assert stage.sweep() == Drift(compared=2)


def test_weights_and_ready_servers_are_repaired(stage: Stage) -> None:
    stage.by_hand("set server shop/b weight 50")
    stage.by_hand("set server shop/off state ready")
    assert stage.sweep().repairs == ["shop/off takes traffic but should be in maint", "shop/b has the weight 50"]
    assert (stage.server("b").weight, stage.server("off").maint) == (10, True)
    assert stage.sweep() == Drift(compared=2)


def test_a_server_taken_out_on_the_socket_is_left_and_told_once(stage: Stage) -> None:
    stage.by_hand("set server shop/a state drain")
    with structlog.testing.capture_logs() as logs:
        found = Drift(compared=2, foreign={OverrideKey("shop", "a"): ServerState.DRAIN})
        assert [stage.sweep() for _ in range(2)] == [found] * 2
    assert [(line["event"], line["server"], line["state"]) for line in logs] == [("drift.left", "shop/a", "drain")]
    assert [(one.server, one.value, one.since, one.source) for one in stage.drift.foreign.values()] == [
        ("shop/a", "drain", 1000.0, "socket")
    ]
    assert stage.server("a").drain
    stage.by_hand("set server shop/a state ready")
    assert stage.sweep() == Drift(compared=2)
    assert stage.drift.foreign == {}


def test_a_reload_by_somebody_else_ends_nothing(stage: Stage) -> None:
    stage.override("a", ServerState.MAINT)
    for restart in (False, True):
        stage.reload()
        if restart:
            stage.restart_pyconfd()
        assert stage.sweep() == Drift(compared=2, commands=[SetState("shop", "a", ServerState.MAINT)])
        assert stage.server("a").maint


def test_a_disabled_server_that_an_operator_made_ready_stays_so(stage: Stage) -> None:
    stage.override("off", ServerState.READY)
    stage.reload()
    assert stage.server("off").maint
    stage.drift.restore(stage.runtime, stage.index)
    assert not stage.server("off").maint
    assert stage.sweep() == Drift(compared=2)


def test_at_its_end_the_server_serves_again(stage: Stage) -> None:
    stage.override("a", ServerState.DRAIN, until=2800.0)
    stage.now = 2799.0
    assert stage.sweep() == Drift(compared=2)
    stage.now = 2800.0
    assert stage.sweep().overrides == {OverrideKey("shop", "a"): None}
    assert not stage.server("a").drain
    assert json.loads((stage.state_dir / FILE_NAME).read_bytes()) == []


def test_a_server_deleted_by_hand_is_added_with_its_override(stage: Stage) -> None:
    stage.override("a", ServerState.MAINT)
    assert "deleted" in stage.by_hand("del server shop/a")
    assert stage.sweep().repairs == ["shop/a is missing"]
    assert stage.server("a").maint
    assert stage.sweep() == Drift(compared=2)


READY, DRAIN, MAINT = ServerState.READY, ServerState.DRAIN, ServerState.MAINT


@pytest.mark.parametrize(
    ("words", "state", "override", "commands", "is_repair"),
    [
        # Without an override the configuration counts, and what takes traffic less than it should is left so.
        ((), READY, None, [], False),
        ((), DRAIN, None, [], False),
        (("disabled",), READY, None, [MAINT], True),
        # An override is kept, whatever somebody did to it on the socket.
        ((), READY, Override("b", "s", DRAIN, 1.0), [DRAIN], True),
        (("disabled",), MAINT, Override("b", "s", READY, 1.0), [], False),
        # At its end the server is again as it is configured, unless it already is, or is something else.
        ((), DRAIN, Override("b", "s", DRAIN, 1.0, 50.0), [READY], False),
        ((), READY, Override("b", "s", DRAIN, 1.0, 50.0), [], False),
        ((), MAINT, Override("b", "s", DRAIN, 1.0, 50.0), [], False),
        (("disabled",), MAINT, Override("b", "s", MAINT, 1.0, 50.0), [], False),
        (("disabled",), READY, Override("b", "s", READY, 1.0, 50.0), [MAINT], False),
    ],
)
def test_the_state_that_a_server_has_to_have(
    words: tuple[str, ...],
    state: ServerState,
    override: Override | None,
    commands: list[ServerState],
    is_repair: bool,
) -> None:
    there = ServerNow("b", "s", "10.0.0.1", 80, 1, maint=state is MAINT, drain=state is DRAIN)
    found = Drift({override.key: override} if override else {}, now=50.0)
    found.judge(ConfiguredBackend("b", {"s": ConfiguredServer("b", "s", "10.0.0.1:80", words, words)}), [there])
    assert found.commands == [SetState("b", "s", wanted) for wanted in commands]
    assert bool(found.repairs) is is_repair
    assert found.overrides == ({override.key: None} if override and override.until else {})


@pytest.mark.parametrize(("until", "kept"), [(0.0, True), (51.0, True), (50.0, False)])
def test_a_server_that_is_missing_comes_back_in_the_state_that_an_operator_set(until: float, kept: bool) -> None:
    override = Override("b", "s", MAINT, 1.0, until)
    found = Drift({override.key: override}, now=50.0)
    expected = ConfiguredServer("b", "s", "10.0.0.1:80", (), ())
    found.judge(ConfiguredBackend("b", {"s": expected}), [])
    assert found.commands == [expected.addition, *([override.command] if kept else [])]


def test_a_server_added_by_hand_is_removed(stage: Stage) -> None:
    assert "registered" in stage.by_hand("add server shop/x 127.0.0.1:7099")
    stage.by_hand("set server shop/x state ready")
    assert stage.sweep(repair=False).repairs == ["shop/x takes traffic but is not in the configuration"]
    assert not stage.server("x").drain
    assert len(stage.sweep().commands) == 1
    assert stage.server("x").drain
    assert stage.sweep() == Drift(compared=2)
    stage.runtime.reap(60)
    assert "x" not in {one.name for one in stage.runtime.servers(["shop"])}


def test_an_address_set_by_hand_is_repaired_without_readdressing(stage: Stage) -> None:
    stage.readdressed("a", "shop")
    assert stage.sweep().repairs == ["shop/a has the address 127.0.0.9:7009"]
    assert stage.server("a").drain
    assert stage.sweep() == Drift(compared=2)
    stage.runtime.reap(60)
    assert stage.sweep().repairs == ["shop/a is missing"]
    now = stage.server("a")
    assert (now.target, now.weight, now.drain) == ("127.0.0.1:7001", 10, False)
    assert stage.sweep() == Drift(compared=2)


def test_what_no_command_can_repair_is_said_until_it_is_gone_and_logged_once(stage: Stage) -> None:
    stage.readdressed("only", "other")
    with structlog.testing.capture_logs() as logs:
        beyond = [stage.sweep().beyond for _ in range(2)]
    only = "other/only has the address 127.0.0.9:7009 (balance source takes no server while it runs)"
    assert beyond == [{only: "other"}] * 2
    assert [line["event"] for line in logs] == ["drift.needs_reload"]
    stage.reload()
    assert stage.sweep() == Drift(compared=2)


def test_servers_on_their_way_out_are_nobodys_override(stage: Stage) -> None:
    stage.execute(RemoveServer("shop", "b", "127.0.0.1:7002"))
    stage.text = stage.text.replace("    server b 127.0.0.1:7002 weight 10\n", "")
    assert stage.sweep() == Drift(compared=2)
    assert not stage.overrides.known


def test_a_server_that_comes_back_is_still_in_maintenance(stage: Stage) -> None:
    with_b = stage.text
    stage.override("b", ServerState.MAINT)
    stage.execute(RemoveServer("shop", "b", "127.0.0.1:7002"))
    stage.text = with_b.replace("    server b 127.0.0.1:7002 weight 10\n", "")
    stage.sweep()
    stage.runtime.reap(60)
    stage.text = with_b
    stage.execute(AddServer("shop", "b", "127.0.0.1:7002", ("weight", "10")))
    assert stage.server("b").maint
    stage.sweep()
    [override] = stage.overrides.known.values()
    assert (override.state, override.since, override.missing_since) == (ServerState.MAINT, 1000.0, 0.0)


def test_another_worker_than_connected_is_an_error_and_changes_nothing(stage: Stage) -> None:
    stage.override("a", ServerState.DRAIN)
    known = dict(stage.overrides.known)
    stage.haproxy.stop()
    with pytest.raises(NotConfirmed):
        stage.sweep()
    assert stage.overrides.known == known


def test_an_unwritable_state_directory_stops_nothing(stage: Stage) -> None:
    stage.override("a", ServerState.DRAIN, until=1500.0)
    lock = stage.state_dir / f"{FILE_NAME}.lock"
    lock.unlink()
    lock.mkdir()
    stage.now = 1500.0
    with structlog.testing.capture_logs() as logs:
        stage.sweep()
        stage.sweep()
    assert [line["event"] for line in logs] == ["overrides.store_failed", "override.ended"]
    assert not stage.server("a").drain


class CountingRuntime(Runtime):
    """A process of many backends, each with its one server, that counts how often it is asked for each."""

    def __init__(self) -> None:
        super().__init__()
        self.pid = 7
        self.asked: dict[str, int] = {}

    @property
    def abilities(self) -> Abilities:
        return Abilities(runtime=True)

    def server_states(self, backends: Sequence[str]) -> list[str | None]:
        self.latest = len(backends)
        for name in backends:
            self.asked[name] = self.asked.get(name, 0) + 1
        return [STATE.format(name) for name in backends]


STATE = """# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight \
srv_time_since_last_change srv_port
3 {} 1 s 10.0.0.1 2 0 1 7 80
"""


@pytest.fixture(scope="module")
def many() -> Index:
    return index_of("".join(f"backend b{number}\n    server s 10.0.0.1:80\n" for number in range(10_000)))


@pytest.mark.parametrize("every_s", [1.0, 5.0])
def test_a_round_over_many_backends_is_cut_into_slices(tmp_path: Path, many: Index, every_s: float) -> None:
    now = [0.0]
    drift, runtime = DriftMonitor(OverrideStore(str(tmp_path)), monotonic=lambda: now[0]), CountingRuntime()
    while now[0] <= ROUND_S + every_s:
        assert drift.sweep(runtime, many).commands == []
        assert SLICE <= runtime.latest <= MAX_SLICE or len(runtime.asked) == 10_000
        now[0] += every_s
    assert len(runtime.asked) == 10_000


def test_a_backend_that_was_as_it_should_be_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"backend b{number}\n    server s 10.0.0.1:80\n" for number in range(10))
    drift, runtime = DriftMonitor(OverrideStore(str(tmp_path)), monotonic=lambda: 0.0), CountingRuntime()
    assert drift.sweep(runtime, index_of(text)) == Drift(compared=10)
    parsed: list[str] = []

    def count(index: Index, key: SectionKey) -> ConfiguredBackend | None:
        parsed.append(key.name)
        return configured_backend(index, key)

    monkeypatch.setattr("pyconfd.haproxy.runtime.drift.configured_backend", count)
    assert drift.sweep(runtime, index_of(text)) == Drift(compared=10)
    assert parsed == []
    drift.sweep(runtime, index_of(text.replace("b4\n", "b4\n    # changed\n")))
    assert parsed == ["b4"]


def test_few_backends_are_looked_at_each_time(tmp_path: Path) -> None:
    index = index_of("".join(f"backend b{number}\n    server s 10.0.0.1:80\n" for number in range(SLICE)))
    drift, runtime = DriftMonitor(OverrideStore(str(tmp_path)), monotonic=lambda: 0.0), CountingRuntime()
    assert [drift.sweep(runtime, index).compared for _ in range(3)] == [SLICE] * 3


EMPTY = """backend empty
    balance roundrobin
backend landing
    http-request return status 503
backend sick
    server dead 127.0.0.1:1 check inter 100ms fall 1
"""


def test_backends_without_a_server_that_is_up_are_known(stage: Stage) -> None:
    stage.serve(EMPTY)
    wait_until(lambda: stage.server("dead", "sick").operating == 0, "the check has failed")
    stage.sweep()
    assert {one.backend: one.servers for one in stage.drift.down.values()} == {"empty": 0, "sick": 1}
    stage.now += 60
    stage.sweep()
    assert {one.since for one in stage.drift.down.values()} == {1000.0}
    for name in ("a", "b"):
        stage.by_hand(f"disable server shop/{name}")
    stage.sweep()
    assert list(stage.drift.down) == ["empty", "sick", "shop"]
    stage.by_hand("enable server shop/a")
    stage.sweep()
    assert list(stage.drift.down) == ["empty", "sick"]
    stage.serve("")
    stage.sweep()
    assert stage.drift.down == {}
