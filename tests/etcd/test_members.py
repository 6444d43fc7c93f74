"""An etcd of three members: any one may die, the leader too; without a majority nothing changes, then it goes on."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pyconfd.settings import EtcdSettings
from tests.etcd.harness import EtcdHarness, wait_for
from tests.world.etcd import BINARY, EtcdProcess
from tests.world.haproxy import BINARY as HAPROXY

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not Path(BINARY).exists() or not Path(HAPROXY).exists(), reason="no etcd or no haproxy binary"),
]


class Member(EtcdProcess):
    """One of several; its settings name all of them."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.name = name
        self.urls: tuple[str, ...] = (self.url,)

    def join(self, members: list["Member"]) -> None:
        """Be one of these from the start."""
        peers = ",".join(f"{member.name}={member._peer}" for member in members)
        self._arguments = ("--name", self.name, "--initial-cluster", peers)
        self.urls = tuple(member.url for member in members)

    def settings(self, **changes: Any) -> EtcdSettings:
        return super().settings(**{"endpoints": self.urls, **changes})

    @property
    def leads(self) -> bool:
        said = self.ctl("endpoint", "status", "-w", "json", check=False)
        if said.returncode:
            return False
        status = json.loads(said.stdout)[0]["Status"]
        return bool(status.get("leader") == status["header"]["member_id"])


def leading(members: list[Member]) -> Member:
    """Wait until one of ``members`` leads; on a busy machine another one may at any time."""
    found: list[Member] = []

    def one_leads() -> bool:
        found[:] = [member for member in members if member.leads]
        return bool(found)

    wait_for(one_leads, "one of them leads")
    return found[0]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        found = [Member(tmp_path / name, name) for name in ("one", "two", "three")]
        for member in found:
            member.join(found)
            stack.callback(member.kill)
        with ThreadPoolExecutor(len(found)) as pool:  # the first answers when there is a majority
            list(pool.map(Member.start, found))
        yield found


def test_members_die_and_come_back(members: list[Member], tmp_path: Path) -> None:
    first, second, third = members
    with EtcdHarness(tmp_path / "harness", first) as harness:
        light = harness.consumer()
        producer = harness.configure("producer")

        def follows(address: str) -> None:
            harness.service("shop", address)
            harness.until(lambda: address in light.text())

        harness.start("publish", producer)
        follows("127.19.10.1")
        # The one that all use, and then whichever leads.
        first.kill()
        follows("127.19.10.2")
        harness.until(lambda: light.status().source.etcd[1].in_use)
        first.start()
        leader = leading(members)
        leader.kill()
        follows("127.19.10.3")
        leader.start()
        # No majority: what serves, serves; reads of a minority would be stale, and are not taken.
        second.kill()
        third.kill()
        served = light.text()
        harness.service("shop", "127.19.10.4")
        harness.until(lambda: not any(each.healthy for each in light.status().source.etcd))
        assert light.text() == served
        assert light.status().failures_by_step == {}
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Member.start, (second, third)))
        harness.until(lambda: "127.19.10.4" in light.text())
        harness.until(lambda: not light.status().problems)


def test_a_member_that_lost_its_data_is_no_member(members: list[Member], tmp_path: Path) -> None:
    """One that comes back empty refuses to start or stays out; its neighbours answer for it."""
    first, second, _ = members
    with EtcdHarness(tmp_path / "harness", first) as harness:
        light = harness.consumer()
        producer = harness.configure("producer")
        harness.service("shop", "127.19.11.1")
        harness.publish_once(producer)
        harness.until(lambda: "127.19.11.1" in light.text())
        first.kill()
        first.lose_data()
        leading(members[1:])
        harness.service("shop", "127.19.11.2")
        assert "as generation 2." in harness.publish_once(producer)
        harness.until(lambda: "127.19.11.2" in light.text())
        # And what somebody broke meanwhile, a second call mends.
        second.ctl("del", "/pyconfd/chunks/", "--prefix")
        assert "as generation 3." in harness.publish_once(producer)
