import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.errors import TransientError
from pyconfd.predecessors.targets.target import notify
from pyconfd.settings.setting import NotAcceptedError
from pyconfd.settings.values import TargetNotifier, parse_notifier


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    script = f"trap 'echo usr1 >> {tmp_path}/log; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def tell(definition: str, timeout_s: float = 20.0) -> None:
    notify(parse_notifier(definition), target="t", timeout_s=timeout_s)


def test_a_command_runs_in_a_shell(tmp_path: Path) -> None:
    tell(f"command:echo $(echo a:b) > {tmp_path}/out && true")
    assert (tmp_path / "out").read_text() == "a:b\n"


def test_a_failed_command_reports_its_output() -> None:
    with pytest.raises(TransientError, match="no such thing"):
        tell("command:echo no such thing >&2; exit 3")


def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(TransientError, match="did not end within"):
        tell("command:sleep 600", timeout_s=0.2)


def test_a_process_by_its_number(listener: subprocess.Popen[bytes]) -> None:
    tell(f"pid:SIGUSR1:{listener.pid}")
    assert listener.wait(20) == 7


def test_a_process_by_its_file(listener: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f" {listener.pid}\n")
    tell(f"pidfile:USR1:{tmp_path}/pid")
    assert listener.wait(20) == 7


@pytest.mark.parametrize("content", ["", "x", "-1", "0", "1", "99999999999999999999", None])
def test_a_file_without_the_number_of_a_process(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "pid").write_text(content)
    with pytest.raises(TransientError):
        tell(f"pidfile:HUP:{tmp_path}/pid")


def test_a_process_that_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(TransientError, match="no process"):
        tell(f"pid:HUP:{process.pid}")


def test_debug_does_nothing() -> None:
    tell("debug:")


@pytest.mark.parametrize(
    ("text", "notifier"),
    [
        (
            'command:haproxy -f /etc/haproxy.cfg -sf $(cat "/run/haproxy.pid")',
            TargetNotifier("command", 'haproxy -f /etc/haproxy.cfg -sf $(cat "/run/haproxy.pid")'),
        ),
        ("pid:SIGHUP:5678", TargetNotifier("pid", "5678", signal.SIGHUP)),
        ("pid:1:5678", TargetNotifier("pid", "5678", signal.SIGHUP)),
        ("pidfile:SIGUSR1:/var/run/caddy.pid", TargetNotifier("pidfile", "/var/run/caddy.pid", signal.SIGUSR1)),
        ("pidfile:usr1:caddy.pid", TargetNotifier("pidfile", "caddy.pid", signal.SIGUSR1)),
        ("debug:", TargetNotifier("debug")),
    ],
)
def test_the_definitions_of_kube2lb(text: str, notifier: object) -> None:
    assert parse_notifier(text) == notifier


NO_NOTIFIERS = """
command:|command: |pid:SIGHUP|pid:SIGHUP:x|pid:SIGHUP:1|pid:SIGHUP:0|pid:NO:77|pid:HUP:-77|pidfile:SIGHUP:|debug:x|http://x
"""


@pytest.mark.parametrize("text", ["", *NO_NOTIFIERS.strip().split("|")])
def test_what_is_no_notifier(text: str) -> None:
    with pytest.raises(NotAcceptedError):
        parse_notifier(text)
