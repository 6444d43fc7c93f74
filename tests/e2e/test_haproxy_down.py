"""A HAProxy that cannot bind and is started again and again: nobody is told that it serves."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.expect import serving
from tests.world.appliance import Appliance
from tests.world.haproxy import wait_until

pytestmark = pytest.mark.haproxy


@contextmanager
def restarted_for_ever(appliance: Appliance) -> Iterator[list[int]]:
    """Start HAProxy again whenever it has ended, as its unit does; yield the exit statuses."""
    ends, statuses = threading.Event(), list[int]()

    def run() -> None:
        while not ends.wait(0.1):
            if not appliance.haproxy.launched:
                appliance.haproxy.launch()
            elif (status := appliance.haproxy.ended()) is not None:
                statuses.append(status)
                appliance.haproxy.launch()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield statuses
    finally:
        ends.set()
        thread.join()


def test_a_restart_loop_is_down_at_every_poll_and_says_why(appliance: Appliance) -> None:
    serving(appliance)
    appliance.haproxy.stop()
    with socket.create_server(("127.0.0.1", appliance.http)), restarted_for_ever(appliance) as statuses:
        appliance.until(lambda: appliance.phase == "down", "it is seen that HAProxy does not run")
        wait_until(lambda: len(statuses) >= 3, "HAProxy fails to start again and again")
        seen, before = set(), len(statuses)
        while len(statuses) < before + 30:
            seen.add((appliance.phase, appliance.get("/readyz")[0]))
        assert seen == {("down", 503)}
        metrics = appliance.get("/metrics")[1]
        assert "pyconfd_haproxy_up 0.0" in metrics
        assert 'pyconfd_phase{phase="serving"} 0.0' in metrics
        done = appliance.command("status")
        assert done.returncode == 1
        first, second, *_ = done.stdout.splitlines()
        assert first.startswith("DOWN  for ")
        assert f"port {appliance.http} is taken by " in first
        assert f"`ss -ltnp 'sport = :{appliance.http}'` names it" in second
        explained = appliance.command("explain", "demo/shop").stdout
        assert "HAProxy does not run" in explained
        assert "HAProxyDown" in explained
        assert "served by" not in explained
    # The port is free: the next start succeeds, and counts once it has lasted.
    with restarted_for_ever(appliance):
        appliance.until(lambda: appliance.phase == "serving", "HAProxy serves again")
    assert appliance.get("/readyz")[0] == 200
    assert "pyconfd_haproxy_up 1.0" in appliance.get("/metrics")[1]
    assert "served by 1 server" in appliance.command("explain", "demo/shop").stdout
    assert appliance.command("status").stdout.startswith("SERVING")
