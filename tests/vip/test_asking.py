"""Questions to haproxy: what is an answer, what is a miss, and when; the times are given."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from pyconfd.vip.asking import Asking, Question, is_full

INTERVAL_S, TIMEOUT_S = 0.25, 1.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class World:
    """A haproxy on TCP that does what it is told, and who asks it."""

    def __init__(self, stack: ExitStack, *, listening: bool = True) -> None:
        self.server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.server.settimeout(30)
        where = self.server.getsockname()
        if not listening:
            self.server.close()
        self.selector = stack.enter_context(closing(selectors.DefaultSelector()))
        stack.callback(self.close)
        self.asking = Asking(Question(where, b"?\n", b"HTTP/", INTERVAL_S, TIMEOUT_S), self.selector, unproven=2)

    def close(self) -> None:
        for key in self.selector.get_map().values():
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()

    def turn(self) -> None:
        for key, _ in self.selector.select(30):
            key.data()

    def ask(self, now: float) -> socket.socket:
        self.asking.step(now)
        taken, _ = self.server.accept()
        taken.settimeout(30)
        while not self.selector.get_map() or next(iter(self.selector.get_map().values())).events != 1:
            self.turn()
        assert taken.recv(9) == b"?\n"
        return taken


def test_any_answer_that_begins_as_it_should_is_one(stack: ExitStack) -> None:
    world = World(stack)
    world.asking.misses = 1
    with world.ask(10.0) as taken:
        taken.sendall(b"HTTP/1.1 503 Service Unavailable\r\n")
        world.turn()
    assert (world.asking.misses, world.asking.rounds, world.asking.due) == (0, 1, 10.0 + INTERVAL_S)


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b""])
def test_another_answer_or_a_closed_connection_is_a_miss(stack: ExitStack, answer: bytes) -> None:
    world = World(stack)
    with world.ask(10.0) as taken:
        taken.sendall(answer)
    world.turn()
    assert (world.asking.misses, world.asking.due) == (0, 10.0 + INTERVAL_S)
    with world.ask(10.0 + INTERVAL_S):
        assert world.asking.misses == 1


def test_a_refusal_is_a_miss_at_once(stack: ExitStack) -> None:
    world = World(stack, listening=False)
    for turn in range(3):
        world.asking.step(10.0 + turn * INTERVAL_S)
        while world.selector.get_map():
            world.turn()
    assert world.asking.misses == 2


def test_silence_is_a_miss_when_the_time_is_over(stack: ExitStack) -> None:
    world = World(stack)
    with world.ask(10.0):
        world.asking.step(10.9)
        assert world.asking.misses == 0
        world.asking.step(11.0)
        assert world.asking.misses == 1


def test_who_did_not_run_himself_gives_haproxy_its_time_again(stack: ExitStack) -> None:
    world = World(stack)
    with world.ask(10.0):
        world.asking.step(15.0)
        assert (world.asking.misses, world.asking.due) == (0, 15.0 + TIMEOUT_S)


def test_a_new_process_has_to_prove_itself(stack: ExitStack) -> None:
    world = World(stack)
    world.asking.distrust()
    assert world.asking.misses == 2
    with world.ask(10.0) as taken:
        taken.sendall(b"HTTP/1.0 200 OK\r\n")
        world.turn()
    assert world.asking.misses == 0


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
