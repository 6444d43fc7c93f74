"""What the service makes of what it sees, turn by turn: real haproxy, real requests, time as an argument."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyconfd.dns.commands import drop
from pyconfd.dns.ownership import Mode
from pyconfd.dns.planner import DnsNode, Wish
from pyconfd.dns.service import DnsService
from pyconfd.model.outcome import Generation
from pyconfd.model.status import Phase, SourceHealth, Status
from pyconfd.settings import Settings, resolve
from pyconfd.status import document
from tests.dns.imds import FakeMetadata
from tests.dns.nodes import FieldNode
from tests.dns.stage import NAME, SPEC, turn
from tests.dns.strict import StrictRoute53
from tests.dns.wire import FaultProxy

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300)]
VIP = "192.0.2.99"
WEB = "web.example.com"


@pytest.fixture
def node(tmp_path: Path, aws: FaultProxy, credentials: None) -> Iterator[FieldNode]:
    with FieldNode(tmp_path, "n0", "192.0.2.1", aws.url) as started:
        yield started


class Life:
    """One life of the process; ``now`` is its time, in seconds since the epoch, begun with the true one."""

    def __init__(self, node: FieldNode, stack: ExitStack, **changes: str) -> None:
        self.node, self.now = node, time.time()
        more = {"DNS_ANNOTATION_SUFFIXES": "example.com", "DNS_ANNOTATION_GRACE_S": "60", "DNS_LOOK_S": "1"} | changes
        self.settings: Settings = resolve({}, node.environ(**more), lambda _: "").settings
        self.following = stack.enter_context(DnsService(self.settings))

    def told(self, *names: str) -> None:
        """All is well with the daemon, and it says this; what it says is compared with the true time."""
        now = time.time()
        health = SourceHealth(last_sync_at=now)
        status = Status(now, "1", 1, now, now, Phase.SERVING, source=health, generation=Generation(1, "d", 1.0))
        path = self.node.folder / "run" / "status.json"
        path.write_bytes(document.encode(replace(status, dns_names=names)))

    def hook_says(self, **holds: bool) -> None:
        """Leave behind what the hook would, for ``holds`` of one address."""
        instance = {"addresses": [f"{VIP}/24"], "holder": "lb2", "rivals": [], **holds}
        routers = [{"drained": None, **instance}]
        path = self.node.folder / "vip" / "status.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"at": time.time(), "routers": routers}))

    def live(self, seconds: int, *names: str) -> None:
        """Let time pass while the daemon says that these names are asked for."""
        for _ in range(seconds):
            self.told(*names)
            self.following.turn(self.now)
            self.now += 1.0

    def report(self) -> dict[str, dict[str, Any]]:
        document: dict[str, Any] = json.loads((self.node.folder / "run" / "dns-status.json").read_text())
        return {item["name"]: item for item in document["names"]}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_a_name_that_follows_an_address_is_said_to_be_left_over_until_it_is_dropped(
    node: FieldNode, provider: StrictRoute53, stack: ExitStack
) -> None:
    life = Life(node, stack, DNS_MODE="vip", DNS_VIP="127.0.0.1", DNS_ANNOTATION_GRACE_S="0")
    life.live(15, WEB)
    assert provider.answer(WEB, "A") == provider.answer(NAME, "A") == ("192.0.2.1",)
    life.live(40)
    assert provider.answer(WEB, "A") == ("192.0.2.1",)
    assert life.report()[WEB]["dropped"]
    assert drop(life.settings, WEB).state == "changes"
    life.live(40)
    assert provider.answer(WEB, "A") == ()
    assert set(life.report()) == {NAME}


def test_a_dropped_name_is_withdrawn_from_only_after_the_time_of_grace(
    node: FieldNode, provider: StrictRoute53, aws: FaultProxy, stack: ExitStack
) -> None:
    life = Life(node, stack)
    life.live(15, WEB)
    sent = aws.changing
    life.live(50)
    assert provider.answer(WEB, "A") == ("192.0.2.1",)
    assert not life.report()[WEB]["dropped"]
    life.live(30, WEB)  # somebody thought better of it
    life.live(50)
    assert not life.report()[WEB]["dropped"]
    assert aws.changing == sent
    life.live(40)
    assert life.report()[WEB]["dropped"]
    assert "A 192.0.2.1 stays" in life.report()[WEB]["kept"][0]
    assert provider.answer(WEB, "A") == ("192.0.2.1",)


def test_a_name_follows_its_address_however_soon_it_comes_back(
    node: FieldNode, provider: StrictRoute53, stack: ExitStack
) -> None:
    hook = {"VIP_INTERFACE": "lo", "VIP_RUNTIME_DIR": str(node.folder / "vip")}
    life = Life(node, stack, DNS_MODE="vip", DNS_VIP=VIP, DNS_HOLD_S="60", **hook)
    other = DnsNode("n1", "192.0.2.2")
    for _ in range(8):  # more often than a node may join in an hour
        for _ in range(15):
            life.hook_says(holds=True)
            life.live(1)
        assert provider.answer(NAME, "A") == ("192.0.2.1",)
        for _ in range(5):
            life.hook_says(holds=False)
            life.live(1)
        turn(provider, replace(SPEC, mode=Mode.VIP, ttl_s=1), other, Wish.PUBLISH)
        assert provider.answer(NAME, "A") == (other.v4,)
        for _ in range(15):
            life.hook_says(holds=False)
            life.live(1)
        assert provider.answer(NAME, "A") == (other.v4,)


def test_an_address_that_cannot_be_read_any_more_stays_and_one_that_was_never_read_is_waited_for(
    node: FieldNode, provider: StrictRoute53, imds: FakeMetadata, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url)
    imds.silent = True
    life = Life(node, stack, DNS_ADDRESS_SOURCE="imds-public", DNS_ADDRESS="")
    life.live(15)
    assert provider.answer(NAME, "A") == ()
    assert life.report()[NAME]["addresses"] == []
    imds.silent = False
    life.live(15)
    assert provider.answer(NAME, "A") == ("198.51.100.4",)
    imds.silent, imds.good_for = True, 0
    imds.tokens += 1  # what was given is good no more
    life.live(60)
    assert provider.answer(NAME, "A") == ("198.51.100.4",)
