"""The reaper with real processes: a node is taken out on two pieces of evidence, and never on one."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.dns.nodes import LIMIT_S, FieldNode, answers
from tests.dns.stage import ZONE, foreign
from tests.dns.strict import StrictRoute53
from tests.world.haproxy import free_port, wait_until

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300)]
REAP_AFTER_S = 20
NODES = 4


class Ports:
    """What of each node the others see: one port at its address, open or closed."""

    def __init__(self) -> None:
        self.number = free_port()
        self._listening: dict[str, socket.socket] = {}

    def open(self, node: FieldNode) -> None:
        self._listening[node.name] = socket.create_server((node.address, self.number), backlog=1024)

    def close(self, node: FieldNode) -> None:
        self._listening.pop(node.name).close()


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports()
    with ExitStack() as stack:
        yield made
        for listener in made._listening.values():
            stack.callback(listener.close)


def sequence(provider: StrictRoute53, node: FieldNode) -> int:
    """How often a node has said that it lives."""
    for item in provider.everything(ZONE.zone_id):
        if item.identifier == f"pyconfd:prod:{node.name}" and item.type == "TXT":
            return int(item.values[0].partition("seq=")[2].partition(",")[0].rstrip('"'))
    return 0


def test_two_pieces_of_evidence_are_needed(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode], ports: Ports
) -> None:
    """Four nodes: one looks, one is dead, one is dead and still accepts connections, one lives and is cut off."""
    observer, dead, deaf, cut_off = nodes = [new_node(number) for number in range(NODES)]
    for number, node in enumerate(nodes):
        node.address = f"127.0.44.{number + 1}"
        ports.open(node)
        node.run(
            DNS_ACCEPT_DEAD_NODES="no",
            DNS_REAPER="yes",
            DNS_REAP_AFTER_S=str(REAP_AFTER_S),
            DNS_REAP_PORT=str(ports.number),
            DNS_INTERVAL_S="2",
        )
    answers(provider, *nodes)
    for node in (dead, deaf):
        node.kill()
    killed_at = time.monotonic()
    for node in (dead, cut_off):
        ports.close(node)
    before = sequence(provider, cut_off)

    answers(provider, observer, deaf, cut_off, limit_s=2 * LIMIT_S)
    assert "verdict=doubt" in observer.log
    assert time.monotonic() - killed_at >= 2 * REAP_AFTER_S  # it was silent, and then left the doubt standing
    # Who lives reads the doubt and wipes it out; who accepts connections is not even doubted.
    wait_until(lambda: sequence(provider, cut_off) > before + 1, "it has said twice that it lives", limit_s=2 * LIMIT_S)
    answers(provider, observer, deaf, cut_off)
    assert f"node={deaf.name} verdict" not in observer.log + cut_off.log
    assert set(foreign()) <= provider.everything()
