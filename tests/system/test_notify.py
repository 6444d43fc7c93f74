import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.system.notify import SystemdNotifier


class FakeSystemd:
    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(20)
        self.socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)

    def heard(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.socket.recv(65536).decode().splitlines())


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeSystemd]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@pyconfd-test-{uuid.uuid4()}"
    fake = FakeSystemd(address)
    yield fake
    fake.socket.close()


@pytest.fixture
def notifier(systemd: FakeSystemd) -> SystemdNotifier:
    return SystemdNotifier({"NOTIFY_SOCKET": systemd.address})


def test_each_message_has_its_fields(systemd: FakeSystemd, notifier: SystemdNotifier) -> None:
    assert notifier.enabled
    notifier.ready("serving generation 12")
    assert systemd.heard() == {"READY": "1", "STATUS": "serving generation 12"}
    notifier.watchdog()
    assert systemd.heard() == {"WATCHDOG": "1"}
    notifier.status("waiting:\nno API server\tanswers\nMAINPID=1")
    assert systemd.heard() == {"STATUS": "waiting: no API server answers MAINPID=1"}, "one line, and no other field"
    notifier.stopping()
    assert systemd.heard() == {"STOPPING": "1"}


def test_reloading_carries_the_monotonic_clock(systemd: FakeSystemd, notifier: SystemdNotifier) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    heard = systemd.heard()
    assert heard["RELOADING"] == "1"
    assert before <= int(heard["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_a_socket_that_it_knows_it_is_silent(environ: dict[str, str]) -> None:
    notifier = SystemdNotifier(environ)
    notifier.ready("x")
    notifier.watchdog()
    assert not notifier.enabled
    assert notifier.watchdog_interval_s == 0.0


def test_child_processes_inherit_nothing_to_speak_with() -> None:
    environ = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1", "PATH": "/bin"}
    SystemdNotifier(environ)
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("usec", "pid", "interval_s"),
    [
        ("30000000", "own", 15.0),
        ("30000000", "", 15.0),
        ("30000000", "1", 0.0),
        ("", "", 0.0),
        ("soon", "", 0.0),
    ],
)
def test_the_watchdog_is_fed_twice_in_its_time(usec: str, pid: str, interval_s: float) -> None:
    environ = {
        "NOTIFY_SOCKET": "/nowhere",
        "WATCHDOG_USEC": usec,
        "WATCHDOG_PID": str(os.getpid()) if pid == "own" else pid,
    }
    assert SystemdNotifier(environ).watchdog_interval_s == interval_s


def test_undelivered_fields_go_with_the_next_message(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    notifier = SystemdNotifier({"NOTIFY_SOCKET": address})
    notifier.ready("waiting")
    notifier.status("serving generation 1")
    notifier.watchdog()
    fake = FakeSystemd(address)
    notifier.watchdog()
    assert fake.heard() == {"READY": "1", "STATUS": "serving generation 1", "WATCHDOG": "1"}
    notifier.watchdog()
    assert fake.heard() == {"WATCHDOG": "1"}
    fake.socket.close()
    Path(address).unlink()
    notifier.reloading("reading the settings again")
    again = FakeSystemd(address)
    notifier.ready()
    assert again.heard() == {"READY": "1", "STATUS": "reading the settings again"}
    again.socket.close()
