"""Why HAProxy does not run: binds that cannot be had, its own alerts, and what to type."""

import socket
from pathlib import Path

import pytest

from pyconfd.errors import Problem
from pyconfd.haproxy.process import haproxy_process, outage
from pyconfd.haproxy.process.transaction import Transaction
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.status import HaproxyState
from tests.haproxy.bench import Bench
from tests.world.haproxy import configuration, wait_until

JOURNAL = """Started haproxy.service - HAProxy Load Balancer.
[NOTICE]   (12) : haproxy version is 2.6.12-1+deb12u4
[ALERT]    (12) : Binding [/etc/haproxy/haproxy.cfg:9] for frontend fe: cannot bind socket (Address already in use)
[ALERT]    (12) : [haproxy.main()] Some protocols failed to start their listeners! Exiting.
haproxy.service: Main process exited, code=exited, status=1/FAILURE
"""
ALERT = "Binding [/etc/haproxy/haproxy.cfg:9] for frontend fe: cannot bind socket (Address already in use)"
OLD = """[ALERT] 327/101010 (7) : parsing [haproxy.cfg:3] : unknown keyword 'x' in 'global' section
[ALERT] 327/101010 (7) : Fatal errors found in configuration.
"""


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        (JOURNAL, ALERT),
        (OLD, "parsing [haproxy.cfg:3] : unknown keyword 'x' in 'global' section"),
        ("haproxy.service: Failed with result 'oom-kill'.\n", ""),
        ("", ""),
    ],
)
def test_the_last_alert_that_is_a_cause(journal: str, expected: str) -> None:
    assert outage.last_alert(journal) == expected


def test_what_is_known_of_the_binds_comes_before_the_journal() -> None:
    faults = [
        Problem("line 9", "bind 192.0.2.16:80 of frontend fe: the address 192.0.2.16 is not on this host", "add it")
    ] * 2
    found = outage.cause(faults, JOURNAL, "systemctl restart haproxy", "haproxy.service")
    words = "bind 192.0.2.16:80 of frontend fe: the address 192.0.2.16 is not on this host"
    assert found.message == f"cannot {words} (and 1 more)"
    assert found.remedy == "add it; then: systemctl restart haproxy"
    assert outage.cause((), JOURNAL, "start", "haproxy.service").message == ALERT
    assert outage.cause((), "", "start", "").remedy == "why it ended: journalctl -u haproxy; it is started by: start"


def test_the_journal_of_the_unit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\n[ \"$2\" = web.service ] && cat <<'END'\n{JOURNAL}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    unit = UnitFacts("web.service", found=True)
    process = haproxy_process.HaproxyProcess(bench.haproxy.settings(unit="web.service"), unit)
    assert process.outage(()) == Problem("haproxy", ALERT, "correct that, then: systemctl start web.service")


@pytest.mark.haproxy
def test_an_address_that_is_not_on_this_host(bench: Bench) -> None:
    if Path("/proc/sys/net/ipv4/ip_nonlocal_bind").read_text().strip() == "1":
        pytest.skip("this host lets any address be bound")
    balancer = bench.serve()
    bench.haproxy.stop()
    bench.conf.write_text(configuration(bench.port).replace("127.0.0.1", "192.0.2.16"))
    bench.haproxy.start(wait=False)
    wait_until(lambda: bench.haproxy.ended() is not None, "haproxy could not start")
    balancer.sync()
    state = balancer.condition()
    assert state.up is False
    named = f"192.0.2.16:{bench.port} of frontend fe_main"
    assert state.cause == f"cannot bind {named}: the address 192.0.2.16 is not on this host"
    assert f"; then: {bench.haproxy.binary} -W" in state.remedy


@pytest.mark.haproxy
def test_a_port_that_another_program_took_meanwhile(bench: Bench) -> None:
    balancer = bench.serve()
    balancer.sync()
    assert balancer.condition().up is True
    bench.haproxy.stop()
    with socket.create_server(("127.0.0.1", bench.port)):
        balancer.runs()
        state = balancer.condition()
        assert state.up is False
        assert f"port {bench.port} is taken by " in state.cause
        assert "(pid " in state.cause


@pytest.mark.haproxy
def test_its_own_sockets_are_no_cause(bench: Bench) -> None:
    """It may be starting at the moment of the look."""
    balancer = bench.serve()
    settings, unit = bench.haproxy.settings(), UnitFacts()
    process = haproxy_process.HaproxyProcess(settings, unit)
    found = Transaction(settings, unit, process, balancer.store).outage()
    assert found.message == "does not run: nothing is served"


@pytest.mark.haproxy
def test_nothing_to_load_is_a_cause_and_no_fault_before_the_first_generation(bench: Bench) -> None:
    balancer = bench.balancer()
    balancer.sync()
    assert balancer.condition() == HaproxyState()
    balancer = bench.serve()
    assert balancer.condition().up is True
    bench.haproxy.stop()
    bench.conf.unlink()
    balancer = bench.balancer()
    balancer.sync()
    assert balancer.condition().cause == f"there is no {bench.conf} to load yet"
