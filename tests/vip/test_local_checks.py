"""Local checks with given times: what is a missed answer of haproxy, and when a carrier is trusted."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.vip.checks import FLAPS_WITHIN_S, LONGEST_DISTRUST_S, CarrierDamping, HaproxyProbe, is_full

INTERVAL_S, TIMEOUT_S = 0.25, 1.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class FakeHaproxy:
    """A haproxy on TCP that does what it is told, and the probe that asks it."""

    def __init__(self, stack: ExitStack, *, listening: bool = True) -> None:
        self.server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.server.settimeout(30)
        where = self.server.getsockname()
        if not listening:
            self.server.close()
        self.selector = stack.enter_context(closing(selectors.DefaultSelector()))
        stack.callback(self.close)
        self.probe = HaproxyProbe(
            where, b"?\n", b"HTTP/", self.selector, interval_s=INTERVAL_S, timeout_s=TIMEOUT_S, unproven=2
        )

    def close(self) -> None:
        for key in self.selector.get_map().values():
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()

    def turn(self) -> None:
        for key, _ in self.selector.select(30):
            key.data()

    def ask(self, now: float) -> socket.socket:
        self.probe.step(now)
        taken, _ = self.server.accept()
        taken.settimeout(30)
        while not self.selector.get_map() or next(iter(self.selector.get_map().values())).events != 1:
            self.turn()
        assert taken.recv(9) == b"?\n"
        return taken


def test_any_answer_that_begins_as_it_should_is_one(stack: ExitStack) -> None:
    haproxy = FakeHaproxy(stack)
    haproxy.probe.misses = 1
    with haproxy.ask(10.0) as taken:
        taken.sendall(b"HTTP/1.1 503 Service Unavailable\r\n")
        haproxy.turn()
    assert (haproxy.probe.misses, haproxy.probe.rounds, haproxy.probe.due) == (0, 1, 10.0 + INTERVAL_S)


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b""])
def test_another_answer_or_a_closed_connection_is_a_miss(stack: ExitStack, answer: bytes) -> None:
    haproxy = FakeHaproxy(stack)
    with haproxy.ask(10.0) as taken:
        taken.sendall(answer)
    haproxy.turn()
    assert (haproxy.probe.misses, haproxy.probe.due) == (0, 10.0 + INTERVAL_S)
    with haproxy.ask(10.0 + INTERVAL_S):
        assert haproxy.probe.misses == 1


def test_a_refusal_is_a_miss_at_once(stack: ExitStack) -> None:
    haproxy = FakeHaproxy(stack, listening=False)
    for turn in range(3):
        haproxy.probe.step(10.0 + turn * INTERVAL_S)
        while haproxy.selector.get_map():
            haproxy.turn()
    assert haproxy.probe.misses == 2


def test_silence_is_a_miss_when_the_time_is_over(stack: ExitStack) -> None:
    haproxy = FakeHaproxy(stack)
    with haproxy.ask(10.0):
        haproxy.probe.step(10.9)
        assert haproxy.probe.misses == 0
        haproxy.probe.step(11.0)
        assert haproxy.probe.misses == 1


def test_who_did_not_run_himself_gives_haproxy_its_time_again(stack: ExitStack) -> None:
    haproxy = FakeHaproxy(stack)
    with haproxy.ask(10.0):
        haproxy.probe.step(15.0)
        assert (haproxy.probe.misses, haproxy.probe.due) == (0, 15.0 + TIMEOUT_S)


def test_a_new_process_has_to_prove_itself(stack: ExitStack) -> None:
    haproxy = FakeHaproxy(stack)
    haproxy.probe.distrust()
    assert haproxy.probe.misses == 2
    with haproxy.ask(10.0) as taken:
        taken.sendall(b"HTTP/1.0 200 OK\r\n")
        haproxy.turn()
    assert haproxy.probe.misses == 0


@pytest.mark.parametrize(
    ("text", "full"),
    [
        (b"Name: HAProxy\nMaxconn: 10\nCurrConns: 10\n", True),
        (b"Name: HAProxy\nMaxconn: 10\nCurrConns: 9\nCumConns: 99\n", False),
        (b"Maxconn: 10\n", False),
        (b"CurrConns: 10\n", False),
        (b"", False),
    ],
)
def test_a_haproxy_is_full_where_it_says_so(text: bytes, full: bool) -> None:
    assert is_full(text) is full


def test_a_carrier_that_was_never_lost_is_trusted() -> None:
    assert CarrierDamping(1.0).trusts(True, 5.0)


def test_each_further_loss_doubles_the_time() -> None:
    damping, now = CarrierDamping(1.0), 0.0
    for patience in (1.0, 2.0, 4.0):
        assert not damping.trusts(False, now)
        assert not damping.trusts(True, now + 0.125)
        assert not damping.trusts(True, now + 0.0625 + patience)
        now += 0.125 + patience
        assert damping.trusts(True, now)


def test_losses_are_forgotten_after_a_while() -> None:
    damping = CarrierDamping(1.0)
    for now in (0.0, 1.0, 2.0, 3.0):
        damping.trusts(now % 2 == 1.0, now)
    damping.trusts(True, 4.0)
    now = 4.0 + FLAPS_WITHIN_S
    assert damping.trusts(True, now)
    damping.trusts(False, now)
    damping.trusts(True, now)
    assert damping.trusts(True, now + 1.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 100.0)), max_size=30))
def test_a_steady_carrier_is_trusted_in_the_end_and_a_lost_one_never(seen: list[tuple[bool, float]]) -> None:
    damping, now = CarrierDamping(1.0), 0.0
    for carrier, wait in seen:
        now += wait
        assert not (damping.trusts(carrier, now) and not carrier)
    damping.trusts(True, now)
    assert damping.trusts(True, now + LONGEST_DISTRUST_S)
