"""What an operator sets by hand, with a real haproxy, with and without the daemon's part."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pyconfd.cli.commands.server import ServerRow, server_rows, set_servers
from pyconfd.errors import RejectedInput, TransientError
from pyconfd.haproxy.config.index import index_of
from pyconfd.haproxy.runtime.drift import Drift, DriftMonitor
from pyconfd.haproxy.runtime.overrides import OverrideKey, OverrideStore
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.operations import ServerState
from pyconfd.settings import Settings, StatusSettings
from tests.cli.invoking import invoke
from tests.world.haproxy import BINARY, HaproxyProcess, configuration, free_port

BACKENDS = """backend shop
    server web-1 127.0.0.1:7001 weight 10
    server web-2 127.0.0.1:7002
    server off 127.0.0.1:7003 disabled
backend blog
    server web-2 127.0.0.1:7002
"""


@dataclass
class Desk:
    """An operator with a running haproxy; ``now`` is the clock of commands and daemon."""

    haproxy: HaproxyProcess
    directory: Path
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.text = configuration(
            free_port(),
            extra=BACKENDS,
            global_lines=f"stats socket {self.haproxy.stats_socket} mode 600 level admin",
        )
        self.haproxy.conf.write_text(self.text)
        self.haproxy.start()
        self.settings = Settings(
            haproxy=self.haproxy.settings(),
            status=StatusSettings(listen=""),
            state_dir=str(self.directory / "state"),
            runtime_dir=str(self.directory / "run"),
        )
        self.runtime = Runtime()
        self.overrides = OverrideStore(self.settings.state_dir, clock=lambda: self.now)
        self.drift = DriftMonitor(self.overrides, monotonic=lambda: self.now)

    def set(self, name: str, state: ServerState, *, for_s: float | None = None, several: bool = False) -> str:
        return set_servers(self.settings, name, state, for_s=for_s, several=several, now=self.now)

    def daemon_looks(self) -> Drift:
        self.runtime.connect([self.haproxy.stats_socket])
        return self.drift.sweep(self.runtime, index_of(self.text))

    def rows(self, wanted: str = "") -> dict[str, ServerRow]:
        rows, why = server_rows(self.settings, wanted, now=self.now)
        assert why == ""
        return {row.server: row for row in rows}

    def by_hand(self, command: str) -> None:
        assert ask(self.haproxy.stats_socket, command).strip() == ""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        made = Desk(haproxy, tmp_path)
        yield made
        made.runtime.close()


def test_drained_at_once_kept_by_the_daemon_and_ended_in_time(desk: Desk) -> None:
    said = desk.set("web-1", ServerState.DRAIN, for_s=1800)
    assert said.splitlines()[0] == "shop/web-1 (127.0.0.1:7001) drains for 30 m."
    assert "No pyconfd runs" in said
    desk.now += 60
    row = desk.rows()["shop/web-1"]
    assert (row.state, row.by_hand) == ("drain", "drain for 1 m, 29 m left (by command)")
    assert desk.daemon_looks() == Drift(compared=2)
    desk.now += 1740
    assert list(desk.daemon_looks().overrides.values()) == [None]
    row = desk.rows()["shop/web-1"]
    assert (row.state, row.by_hand) == ("up", "")


def test_ready_ends_what_command_and_socket_set(desk: Desk) -> None:
    desk.set("shop/web-1", ServerState.MAINT)
    desk.by_hand("set server shop/web-2 state drain")
    assert list(desk.daemon_looks().foreign) == [OverrideKey("shop", "web-2")]
    assert {name: row.by_hand for name, row in desk.rows("shop").items() if row.by_hand} == {
        "shop/web-1": "maint for 0 s (by command)"
    }
    desk.set("shop/web-1", ServerState.READY)
    desk.set("shop/web-2", ServerState.READY)
    assert {row.state for row in desk.rows("shop").values()} == {"up", "maint"}
    assert desk.daemon_looks() == Drift(compared=2)
    assert not desk.overrides.known


def test_ready_for_a_server_that_the_cluster_disabled_is_kept(desk: Desk) -> None:
    desk.set("off", ServerState.READY)
    assert desk.daemon_looks() == Drift(compared=2)
    assert desk.rows("off")["shop/off"].by_hand == "ready for 0 s (by command)"


def test_a_name_of_several_servers_is_refused_and_changes_nothing(desk: Desk) -> None:
    with pytest.raises(RejectedInput, match=r"stands for 2 servers: shop/web-2 .*, blog/web-2"):
        desk.set("127.0.0.1:7002", ServerState.MAINT)
    assert {row.state for row in desk.rows().values()} == {"up", "maint"}
    said = desk.set("127.0.0.1:7002", ServerState.MAINT, several=True)
    assert "No server of blog takes traffic now." in said
    assert "of shop" not in said
    assert [name for name, row in desk.rows().items() if row.by_hand] == ["shop/web-2", "blog/web-2"]


def test_a_server_on_its_way_out_is_shown_and_left_alone(desk: Desk) -> None:
    desk.haproxy.conf.write_text(desk.text.replace("    server web-1 127.0.0.1:7001 weight 10\n", ""))
    assert desk.rows()["shop/web-1"].leaving == "leaving"
    with pytest.raises(RejectedInput, match="on its way out"):
        desk.set("web-1", ServerState.READY)


def test_without_haproxy_it_is_written_down_and_takes_effect_later(desk: Desk) -> None:
    desk.haproxy.stop()
    said = desk.set("web-1", ServerState.MAINT)
    assert "HAProxy does not answer" in said
    with pytest.raises(TransientError):
        desk.rows()
    desk.haproxy.start()
    assert len(desk.daemon_looks().commands) == 1
    assert desk.rows()["shop/web-1"].state == "maint"


def test_the_socket_of_the_settings_is_used(desk: Desk) -> None:
    desk.haproxy.conf.write_text("\n".join(line for line in desk.text.splitlines() if "stats socket" not in line))
    with pytest.raises(TransientError, match="no `stats socket`"):
        desk.set("web-1", ServerState.MAINT)
    haproxy = replace(desk.settings.haproxy, runtime_socket=desk.haproxy.stats_socket)
    desk.settings = replace(desk.settings, haproxy=haproxy)
    desk.set("web-1", ServerState.MAINT)
    assert desk.rows("web-1")["shop/web-1"].state == "maint"


def test_what_cannot_be_written_down_is_not_done(desk: Desk) -> None:
    Path(desk.settings.state_dir).write_text("")
    with pytest.raises(TransientError, match="cannot be written"):
        desk.set("web-1", ServerState.MAINT)
    Path(desk.settings.state_dir).unlink()
    assert desk.rows()["shop/web-1"].state == "up"


def test_what_haproxy_refuses_is_not_remembered(desk: Desk) -> None:
    desk.set("web-1", ServerState.DRAIN)
    remembered = desk.rows("web-1")["shop/web-1"].by_hand
    desk.haproxy.stop()
    desk.haproxy.conf.write_text(desk.text.replace("level admin", "level operator"))
    desk.haproxy.start()
    for name in ("web-1", "off"):
        with pytest.raises(TransientError, match="level admin"):
            desk.set(name, ServerState.READY)
    desk.haproxy.stop()
    desk.haproxy.conf.write_text(desk.text)
    desk.haproxy.start()
    assert {name: row.by_hand for name, row in desk.rows().items() if row.by_hand} == {"shop/web-1": remembered}


def test_without_a_configuration_or_socket_it_says_what_to_do(tmp_path: Path) -> None:
    conf = tmp_path / "haproxy.cfg"
    options = ("--haproxy-conf", str(conf), "--state-dir", str(tmp_path / "state"))
    listed = invoke("server", "list", *options)
    assert (listed.exit_code, "cannot be read" in listed.stderr) == (75, True)
    conf.write_text("global\nbackend b\n    server a 10.0.0.1:80\n")
    drained = invoke("server", "drain", "a", *options)
    assert (drained.exit_code, "no `stats socket`" in drained.stderr) == (75, True)


def test_the_commands_reach_the_process(desk: Desk) -> None:
    options = ("--haproxy-conf", str(desk.haproxy.conf), "--state-dir", desk.settings.state_dir, "--status-listen", "")
    assert invoke("server", "list", "--by-hand", *options).stdout == "No server was set by hand or is on its way out.\n"
    assert "drains for 30 m." in invoke("server", "drain", "shop/web-1", "--for", "30m", *options).stdout
    assert "is in maintenance" in invoke("server", "maint", "127.0.0.1:7002", "--all", *options).stdout
    assert invoke("server", "list", *options).stdout.splitlines() == [
        "server      address         state  weight  sessions",
        "shop/web-1  127.0.0.1:7001  drain  10      0         drain for 0 s, 29 m left (by command)",
        "shop/web-2  127.0.0.1:7002  maint  1       0         maint for 0 s (by command)",
        "shop/off    127.0.0.1:7003  maint  1       0",
        "blog/web-2  127.0.0.1:7002  maint  1       0         maint for 0 s (by command)",
    ]
    rows = json.loads(invoke("server", "list", "--by-hand", "--json", *options).stdout)
    assert [(row["server"], row["by_hand"]["state"]) for row in rows] == [
        ("shop/web-1", "drain"),
        ("shop/web-2", "maint"),
        ("blog/web-2", "maint"),
    ]
    assert "is ready" in invoke("server", "ready", "shop/web-1", *options).stdout
    assert [row["server"] for row in json.loads(invoke("server", "list", "shop", "--json", *options).stdout)] == [
        "shop/web-1",
        "shop/web-2",
        "shop/off",
    ]


FORMER = """global
    stats socket {socket} mode 600 level admin
    hard-stop-after {stop}
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
listen {name}
    bind 127.0.0.1:{port}
    server pod 127.0.0.1:{target}
    server spare 127.0.0.1:1 backup
"""


def test_sessions_in_former_workers_are_counted_with_their_end(tmp_path: Path) -> None:
    """Also those of a server that no worker but a former one has: its pod may not go yet."""
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    port, other = free_port(), free_port()
    with (
        HaproxyProcess(tmp_path / "etc") as haproxy,
        socket.create_server(("127.0.0.1", 0)) as pod,
        ExitStack() as held,
    ):
        values = {"socket": haproxy.stats_socket, "target": pod.getsockname()[1]}
        haproxy.conf.write_text(FORMER.format(name="cache", port=port, stop="10m", **values))
        haproxy.start()
        settings = Settings(
            haproxy=haproxy.settings(),
            status=StatusSettings(listen=""),
            state_dir=str(tmp_path / "state"),
            runtime_dir=str(tmp_path / "run"),
        )

        def connected() -> None:
            """Hold one more session; it is one when it has come through."""
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
            held.enter_context(pod.accept()[0])

        def rows(wanted: str = "") -> dict[str, ServerRow]:
            return {row.server: row for row in server_rows(settings, wanted, now=1000.0)[0]}

        connected()
        connected()
        assert (rows()["cache/pod"].sessions, rows()["cache/pod"].former) == (2, 0)  # TCP sessions count too
        haproxy.reload()
        connected()
        row = rows()["cache/pod"]
        assert (row.sessions, row.former) == (1, 2)
        assert 1590.0 <= row.former_end <= 1600.0
        assert "2 more in a former worker: hard-stop-after ends the last of them at " in row.cells[-1]
        assert row.values["former_sessions"] == {"count": 2, "ends_at": row.former_end}
        haproxy.reload()
        assert rows()["cache/pod"].former == 3
        assert "3 more in 2 former workers" in rows("cache")["cache/pod"].cells[-1]
        said = set_servers(settings, "cache/pod", ServerState.DRAIN, for_s=None, several=False, now=1000.0)
        assert "cache/pod has 3 more in 2 former workers: hard-stop-after ends the last of them at " in said

        haproxy.conf.write_text(FORMER.format(name="else", port=other, stop="0", **values).replace("hard-stop", "#"))
        haproxy.reload()
        gone = rows()["cache/pod"]
        assert (gone.state, gone.sessions, gone.former, gone.former_end) == ("gone", 0, 3, 0.0)
        assert gone.address == f"127.0.0.1:{values['target']}"
        assert "there is no hard-stop-after" in gone.cells[-1]
        assert rows(gone.address).keys() == {"cache/pod", "else/pod"}
        assert rows()["else/pod"].former == 0
        assert "cache/spare" not in rows()  # nobody uses it
