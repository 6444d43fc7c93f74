"""``pyconfd plan`` where the haproxy of the distribution runs with a configuration of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY, configuration, fetch, free_port, wait_until

pytestmark = pytest.mark.haproxy


@contextmanager
def another_haproxy(appliance: Appliance, port: int, *, master_socket: bool) -> Iterator[str]:
    """Run haproxy as its package does, with a file that is not the one of the settings; yield the file."""
    conf = appliance.folder / "debian.cfg"
    conf.write_text(configuration(port, "old site"))
    socket = ["-S", appliance.haproxy.master_socket] if master_socket else []
    argv = [BINARY, "-W", *socket, "-p", str(appliance.haproxy.pid_file), "-f", str(conf)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            wait_until(lambda: _answers(port), "the old site answers")
            yield str(conf)
        finally:
            run.terminate()


def _answers(port: int) -> bool:
    try:
        return fetch(port) == "old site"
    except OSError:
        return False


@pytest.mark.parametrize("master_socket", [True, False])
@pytest.mark.parametrize("same_port", [True, False])
def test_plan_says_what_it_compares_with(appliance: Appliance, *, same_port: bool, master_socket: bool) -> None:
    appliance.serve("shop")
    port = appliance.http if same_port else free_port()
    with another_haproxy(appliance, port, master_socket=master_socket) as conf:
        appliance.write_settings()
        appliance.haproxy.conf.parent.rmdir()  # nothing is installed yet
        done = appliance.command("plan")
        assert done.returncode == 2, done.stderr
        own = appliance.haproxy.conf
        assert (
            f"compared with {own}, which is not there yet; the haproxy that runs was started with {conf}" in done.stderr
        )
        assert f"{conf}: would disappear, as pyconfd did not write it: frontend fe_main" in done.stderr
        assert f"+    bind 127.0.0.1:{appliance.http}" in done.stdout
        assert _answers(port)
