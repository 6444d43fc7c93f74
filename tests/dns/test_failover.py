"""End to end in network namespaces, with keepalived, haproxy and the hook: whatever befalls a node, names follow."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyroute2 import netns

from pyconfd.model.outcome import Generation
from pyconfd.model.status import Phase, Status
from pyconfd.status import document
from tests.dns.stage import NAME, foreign, zone_with
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.dns.wire import CREDENTIALS
from tests.vip.bed import VIP4, Bed, Node, missing, wait_for

if TYPE_CHECKING:
    import subprocess

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no bed for failover: {missing()}"),
    pytest.mark.timeout(400),
]
FLOATING = "vip.example.com"
ROUTE53 = "10.77.0.1"
REAP_AFTER_S = 10
LIMIT_S = 120.0
RECORDS = f'[{{"name": "{FLOATING}", "mode": "vip", "vip": "{VIP4}"}}]'


def address(node: Node) -> str:
    return f"10.77.0.1{node.number}"


@pytest.fixture(autouse=True)
def without_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks for the longer tests is no setting of pyconfd."""
    monkeypatch.delenv("PYCONFD_TEST_FAILOVER", raising=False)


class Names:
    """``pyconfd dns run`` on each node of a bed, and a Route 53 on the side of the client."""

    def __init__(self, bed: Bed, provider: StrictRoute53, url: str) -> None:
        self.bed, self.provider, self.url = bed, provider, url
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for node in bed.nodes:
            (node.folder / "dns").mkdir()
            status = Status(time.time(), "1", 1, 1.0, 1.0, Phase.SERVING, generation=Generation(1, "d", 1.0))
            (node.folder / "dns" / "status.json").write_bytes(document.encode(status))
            self.start(node)

    def start(self, node: Node) -> None:
        folder, own = node.folder, address(node)
        settings = {
            "CONFIG": folder / "pyconfd.toml", "RUNTIME_DIR": folder / "dns", "STATE_DIR": folder / "dns",
            "HAPROXY_RUNTIME_SOCKET": folder / "haproxy.sock",
            "DNS_NAMES": NAME, "DNS_RECORDS": RECORDS, "DNS_OWNER": "prod", "DNS_NODE": node.name, "DNS_ADDRESS": own,
            "DNS_FRONTENDS": f"tcp://{own}:80", "DNS_ENDPOINT_URL": self.url, "DNS_TIMEOUT_S": 1, "DNS_LOOK_S": 0.2,
            "DNS_HOLD_S": 0, "DNS_INTERVAL_S": 2, "DNS_NODES": 2, "DNS_TTL_S": 1, "DNS_REAPER": "yes",
            "DNS_REAP_AFTER_S": REAP_AFTER_S,
        }  # fmt: skip
        argv = (sys.executable, "-m", "pyconfd", "dns", "run")
        environ = {f"PYCONFD_{key}": str(value) for key, value in settings.items()} | CREDENTIALS
        environ["AWS_EC2_METADATA_DISABLED"] = "true"
        self._running[node.name] = self.bed.spawn(node.space, folder / "dns.log", *argv, **environ)

    def answer(self, *nodes: Node) -> None:
        """Wait until the name is answered with exactly these."""
        wanted = tuple(sorted(address(node) for node in nodes))
        wait_for(f"{NAME} as {wanted}", lambda: self.provider.answer(NAME, "A") == wanted, LIMIT_S)

    def follow(self, is_holder: Callable[[Node], bool] = lambda _: True) -> Node:
        """Wait until one node holds the address and the name that follows it says so; return it."""
        holding: list[Node] = []

        def settled() -> bool:
            self.bed.do_as_units_do()
            holding[:] = [node for node in self.bed.nodes if node.holds()]
            found = self.provider.answer(FLOATING, "A")
            return len(holding) == 1 and is_holder(holding[0]) and found == (address(holding[0]),)

        wait_for(f"{FLOATING} at the holder", settled, LIMIT_S)
        return holding[0]

    def kill(self, node: Node) -> None:
        """Pull all plugs of a node at once."""
        self.bed.cable(node, plugged=False)
        node.crash()
        self._running.pop(node.name).wait(30)

    def close(self, *, show: bool) -> None:
        for process in self._running.values():
            process.kill()
            process.wait(30)
        for node in self.bed.nodes:
            if show:
                print(f"--- {node.name} dns\n{node.log('dns')[-6000:]}")


@contextmanager
def served(bed: Bed, provider: StrictRoute53) -> Iterator[str]:
    """A Route 53 that listens where the client is; gives its URL."""
    netns.pushns(bed.client)
    try:
        server = StrictServer(provider, host=ROUTE53)
    finally:
        netns.popns()
    with server:
        yield f"http://{ROUTE53}:{server.port}"


@contextmanager
def names_on(bed: Bed) -> Iterator[Names]:
    provider = zone_with()
    with served(bed, provider) as url:
        names, passed = Names(bed, provider, url), False
        try:
            yield names
            passed = True
        finally:
            names.close(show=not passed)
        assert set(foreign()) <= provider.everything()


def test_a_node_drains_and_another_one_dies_and_the_names_follow() -> None:
    with Bed(profile="safe") as bed, names_on(bed) as names:
        names.answer(*bed.nodes)
        drained = names.follow()
        (other,) = bed.others(drained)

        drained.order("drain")
        assert names.follow(lambda node: node is other) is other
        names.answer(other)
        drained.order("undrain")
        names.answer(*bed.nodes)

        names.kill(other)
        assert names.follow(lambda node: node is drained) is drained
        names.answer(drained)


@pytest.mark.skipif("PYCONFD_TEST_FAILOVER" not in os.environ, reason="a partition and its end: make vip-test")
def test_a_node_that_is_cut_off_leaves_the_names_and_comes_back() -> None:
    with Bed(profile="safe") as bed, names_on(bed) as names:
        names.answer(*bed.nodes)
        cut_off = names.follow()
        (other,) = bed.others(cut_off)
        bed.cable(cut_off, plugged=False)
        wanted = (address(other),)
        wait_for("the name at the other one", lambda: names.provider.answer(FLOATING, "A") == wanted, LIMIT_S)
        names.answer(other)
        bed.cable(cut_off, plugged=True)
        names.answer(*bed.nodes)
        names.follow()


@pytest.mark.skipif("PYCONFD_TEST_FAILOVER" not in os.environ, reason="a second fault: make vip-test")
def test_haproxy_dies_and_only_its_node_leaves_the_names() -> None:
    with Bed(profile="safe") as bed, names_on(bed) as names:
        names.answer(*bed.nodes)
        dead = names.follow()
        (other,) = bed.others(dead)
        dead.kill(signal.SIGKILL, "haproxy")
        assert names.follow(lambda node: node is other) is other
        names.answer(other)
        assert Path(f"/proc/{names._running[dead.name].pid}").exists()
        dead.start_haproxy()
        names.answer(*bed.nodes)
