"""``status``, ``allow``, ``watch``, ``pause``, ``resume``: what a running pyconfd is asked by the files it leaves."""

import json
import os
from pathlib import Path

import pytest
from click.testing import Result

from pyconfd.app.service import Holds
from pyconfd.model.changes import Action, Change
from pyconfd.model.status import Phase, Status
from pyconfd.status.changes import ChangeLog
from pyconfd.status.document import StatusFile
from pyconfd.system.clock import SystemClock
from tests.cli.invoking import invoke


class Machine:
    """The directories of a pyconfd that may run."""

    def __init__(self, folder: Path) -> None:
        self.run, self.state = str(folder / "run"), folder / "state"
        self.state.mkdir()

    def call(self, *arguments: str, **environ: str) -> Result:
        own = {"PYCONFD_STATUS_LISTEN": "", "PYCONFD_STATE_DIR": str(self.state), "PYCONFD_RUNTIME_DIR": self.run}
        return invoke(*arguments, **(own | environ))

    def leaves_status(self, phase: Phase, *, pid: int | None = None, hold_id: str = "") -> None:
        # Of this moment, by the clock of the machine: the report judges its age.
        now = SystemClock().now()
        pid = os.getpid() if pid is None else pid
        status = Status(now, "0", pid, started_at=now, heartbeat_at=now, phase=phase, hold_id=hold_id)
        StatusFile(self.run).write(status)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_status_without_a_daemon(machine: Machine) -> None:
    dead = machine.call("status")
    assert (dead.exit_code, "NOT RUNNING" in dead.stdout) == (3, True)
    assert json.loads(machine.call("status", "--json").stdout) == {"alive": False, "status": None}


def test_status_out_of_the_file(machine: Machine) -> None:
    machine.leaves_status(Phase.HELD, hold_id="0123abcd")
    shown = machine.call("status")
    assert (shown.exit_code, "0123abcd" in shown.stdout) == (1, True)
    values = json.loads(machine.call("status", "--json").stdout)
    assert (values["alive"], values["status"]["hold_id"]) == (True, "0123abcd")


ROUTER = {
    "addresses": ["192.0.2.10/24", "2001:db8::10/64"],
    "holds": True,
    "role": "master",
    "holder": "lb-1",
    "faults": [],
    "alarms": [],
    "drained": None,
}


def test_status_shows_who_holds_the_floating_address(machine: Machine, tmp_path: Path) -> None:
    vip = {"PYCONFD_VIP_INTERFACE": "lo", "PYCONFD_VIP_RUNTIME_DIR": str(tmp_path)}
    machine.leaves_status(Phase.SERVING)
    now = SystemClock().now()

    def shown(age_s: float = 1.0, **router: object) -> list[str]:
        mine = ROUTER | {"role_since": now - 7200} | router
        (tmp_path / "status.json").write_text(json.dumps({"at": now - age_s, "routers": [mine]}))
        lines = machine.call("status", **vip).stdout.splitlines()
        at = lines.index("Floating address")
        return lines[at + 1 : lines.index("", at)]

    assert shown() == ["  192.0.2.10/24, 2001:db8::10/64: this node is the holder, for 2 h"]
    (backup,) = shown(holds=False, role="backup", holder="lb-2", faults=["haproxy_dead"])
    assert "this node is a backup, the holder is lb-2, for 2 h (fault haproxy_dead: pyconfd vip status)" in backup
    (ailing,) = shown(holds=False, holder="", alarms=["peer_silent"], drained={"by": "root"})
    assert "this node is a backup, the holder is none heard" in ailing
    assert ailing.endswith("(ALARM peer_silent, drained by order: pyconfd vip status)")
    old = shown(age_s=300.0)
    assert old[1].startswith("  the report is old, for 5 min: pyconfd-vip does not run")
    (found,) = json.loads(machine.call("status", "--json", **vip).stdout)["floating"]
    assert (found["holds"], found["addresses"]) == (True, ROUTER["addresses"])
    (tmp_path / "status.json").unlink()
    assert "pyconfd-vip has left no report" in machine.call("status", **vip).stdout
    assert "Floating address" not in machine.call("status").stdout


@pytest.mark.parametrize("text", ["[kubernetes\n", "no_such = 1\n"])
def test_status_is_shown_though_the_file_cannot_be_used(machine: Machine, tmp_path: Path, text: str) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text(text)
    dead = machine.call("status", PYCONFD_CONFIG=str(config))
    assert (dead.exit_code, "NOT RUNNING" in dead.stdout) == (78, True)
    machine.leaves_status(Phase.SERVING)
    alive = machine.call("status", PYCONFD_CONFIG=str(config))
    assert (alive.exit_code, "SERVING" in alive.stdout, str(config) in alive.stderr) == (1, True, True)
    floating = machine.call("vip", "status", PYCONFD_CONFIG=str(config))
    assert (floating.exit_code, str(config) in floating.stderr, floating.stdout != "") == (78, True, True)
    # Wrong variables are of no use, and a wrong flag is a mistake of this very line.
    assert machine.call("status", PYCONFD_NO_SUCH="1").exit_code in {1, 78}
    assert machine.call("status", "--interval", "0").exit_code == 78


def test_a_hold_is_allowed_by_its_id(machine: Machine) -> None:
    holds = Holds(machine.run)
    holds.prepare()
    machine.leaves_status(Phase.HELD, hold_id="0123abcd")
    allowed = machine.call("allow", "0123abcd")
    assert (allowed.exit_code, "within two seconds" in allowed.stdout) == (0, True)
    assert holds.allowed() == {"0123abcd"}


def test_what_is_allowed_waits_for_the_end_of_a_pause_of_which_the_daemon_knows_nothing_yet(machine: Machine) -> None:
    Holds(machine.run).prepare()
    machine.leaves_status(Phase.HELD, hold_id="0123abcd")
    machine.call("pause")
    assert "pyconfd resume" in machine.call("allow", "0123abcd").stdout


def test_what_is_not_held_cannot_be_allowed(machine: Machine) -> None:
    def refused(hold_id: str, code: int, said: str) -> None:
        result = machine.call("allow", hold_id)
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr

    refused("0123abcd", 1, "no daemon runs")
    machine.leaves_status(Phase.HELD, hold_id="0123abcd")
    refused("../../etc", 1, "what is held is 0123abcd")
    refused("0123abcd", 75, "cannot be written")
    machine.leaves_status(Phase.SERVING)
    refused("0123abcd", 1, "nothing is held")


def _changed(log: ChangeLog, *numbers: int) -> None:
    for number in numbers:
        log.record(Change(1000.0, number, Action.LIVE, f"shop +{number} servers", (), (), 0.001))
    assert log.flush()


@pytest.mark.parametrize(("arguments", "first"), [((), 6), (("--since", "3"), 4)])
def test_watch_begins_in_the_past_and_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], first: int
) -> None:
    log = ChangeLog(machine.run)
    _changed(log, *range(1, 16))
    coming = iter([16, 17])

    def sleep(_: float) -> None:
        number = next(coming, None)
        if number is None:
            raise KeyboardInterrupt
        _changed(log, number)

    monkeypatch.setattr("pyconfd.status.changes.sleep", sleep)
    watched = machine.call("watch", *arguments)
    assert watched.exit_code == 0
    lines = watched.stdout.splitlines()
    assert [int(line.split()[-1]) for line in lines] == list(range(first, 18))
    assert lines[0].endswith(f"shop +{first} servers, runtime update 1.0 ms, generation {first}")
    (last,) = (json.loads(line) for line in machine.call("watch", "--json", "--since", "16").stdout.splitlines())
    assert (last["generation"], last["action"]) == (17, "live")


def test_watch_needs_no_flag_of_etcd_to_watch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the command line makes it haproxy-kubefigurator's watch; the environment does not."""

    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyconfd.status.changes.sleep", sleep)
    assert machine.call("watch", PYCONFD_ETCD_ENDPOINTS="https://a:2379").exit_code == 0


def test_pause_and_resume(machine: Machine) -> None:
    assert "for 1 h, or until `pyconfd resume`" in machine.call("pause", "--for", "1h", "--reason", "racks").stdout
    assert "racks" in (machine.state / "paused.json").read_text()
    assert "Changes are applied again" in machine.call("resume").stdout
    assert machine.call("resume").stdout == "It was not paused.\n"
    machine.state.rmdir()
    machine.state.write_text("")
    assert machine.call("pause").exit_code == 75
