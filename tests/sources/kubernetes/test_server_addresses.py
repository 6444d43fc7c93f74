"""Where API servers are: literal addresses at once, names by DNS, in a thread that nothing waits for for long."""

import threading
from collections.abc import Iterable

import pytest

from pyconfd.sources.kubernetes import server_addresses
from pyconfd.sources.kubernetes.server_addresses import EVERY_S, ServerAddresses, resolve

URLS = ("https://192.0.2.31:6443", "https://[2001:DB8::1]:6443", "https://api.example.com:6443")


class Names:
    """A resolver whose answers a test sets; ``now`` is the time."""

    def __init__(self) -> None:
        self.answer: Iterable[str] | None = ("192.0.2.40", "fe80::1%eth0")
        self.asked: list[str] = []
        self.now = 0.0

    def look_up(self, name: str) -> Iterable[str]:
        self.asked.append(name)
        if self.answer is None:
            raise OSError(name)
        return self.answer

    def settled(self, addresses: ServerAddresses) -> frozenset[str]:
        """Return what is known once the thread has ended."""
        addresses.read()
        assert addresses._thread is not None
        addresses._thread.join(30)
        return addresses.read()


def test_names_are_looked_up_again_and_keep_their_last_addresses() -> None:
    names = Names()
    addresses = ServerAddresses(URLS, look_up=names.look_up, monotonic=lambda: names.now)
    fixed = {"192.0.2.31", "2001:db8::1"}
    assert addresses.read() == fixed | {"192.0.2.40", "fe80::1"}
    names.now, names.answer = EVERY_S - 1, ("192.0.2.41",)
    assert names.settled(addresses) == fixed | {"192.0.2.40", "fe80::1"}
    names.now = EVERY_S
    assert names.settled(addresses) == fixed | {"192.0.2.41"}
    names.now, names.answer = 2 * EVERY_S, None
    assert names.settled(addresses) == fixed | {"192.0.2.41"}
    assert names.asked == ["api.example.com"] * 3


def test_a_resolver_that_does_not_answer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_addresses, "FIRST_WAIT_S", 0.01)
    ended = threading.Event()

    def silent(_: str) -> Iterable[str]:
        ended.wait(60)
        return ("192.0.2.40",)

    addresses = ServerAddresses(URLS, look_up=silent, monotonic=lambda: 0.0)
    assert addresses.read() == {"192.0.2.31", "2001:db8::1"}
    ended.set()


def test_the_resolver_of_the_system_knows_this_machine() -> None:
    assert {"127.0.0.1", "::1"} & set(resolve("localhost"))
