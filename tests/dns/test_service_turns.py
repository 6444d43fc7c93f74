"""The service turn by turn, for hours: real haproxy, real requests, time as an argument."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyconfd.dns.commands import drop
from pyconfd.dns.names import stored_annotated
from pyconfd.dns.planner import DnsNode, Wish
from pyconfd.dns.service import DnsService
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.model.outcome import Generation
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.status import Phase, SourceHealth, Status
from pyconfd.settings import Mode, Settings, resolve
from pyconfd.status import document
from pyconfd.system.clock import SystemClock
from tests.dns.imds import FakeMetadata
from tests.dns.nodes import FieldNode
from tests.dns.stage import NAME, SPEC, ZONE, turn
from tests.dns.stage import node as another
from tests.dns.strict import StrictRoute53
from tests.dns.wire import FaultProxy

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300)]
VIP = "192.0.2.99"
WEB = "web.example.com"


@pytest.fixture
def node(tmp_path: Path, aws: FaultProxy, credentials: None) -> Iterator[FieldNode]:
    with FieldNode(tmp_path, "n0", "192.0.2.1", aws.url) as started:
        yield started


class SetClock(SystemClock):
    """Begins with the true time, and goes on as it is told; ``set_by_s`` is what it was set by."""

    def __init__(self) -> None:
        self.elapsed, self.set_by_s = 1000.0, 0.0
        self._begin = time.time() - self.elapsed

    def now(self) -> float:
        return self._begin + self.elapsed + self.set_by_s

    def monotonic(self) -> float:
        return self.elapsed


class Life:
    """One node, with a clock of its own."""

    def __init__(self, node: FieldNode, stack: ExitStack, **changes: str) -> None:
        self.node, self.clock, self._stack = node, SetClock(), stack
        more = {"DNS_ANNOTATION_SUFFIXES": "example.com", "DNS_ANNOTATION_GRACE_S": "60", "DNS_LOOK_S": "1"} | changes
        self.settings: Settings = resolve({}, node.environ(**more), lambda _: "").settings
        self.restart()

    def restart(self) -> None:
        """Begin another life of the process."""
        self._stack.close()
        self.service = self._stack.enter_context(DnsService(self.settings, self.clock))

    def say(self, phase: Phase, names: tuple[str, ...] | None, *, synced_at: float) -> None:
        """Write what the daemon says of itself; it lives, by the true time that such files are judged by."""
        now, health = time.time(), SourceHealth(last_sync_at=synced_at)
        status = Status(now, "1", 1, now, now, phase, source=health, generation=Generation(1, "d", 1.0))
        path = self.node.folder / "run" / "status.json"
        path.write_bytes(document.encode(replace(status, dns_names=names)))

    def live(self, seconds: int, *names: str) -> None:
        """Run while the daemon is well and its status has these names."""
        for _ in range(seconds):
            self.say(Phase.SERVING, names, synced_at=time.time())
            self.run(1.0)

    def run(self, seconds: float) -> None:
        """Run turn by turn."""
        end = self.clock.elapsed + seconds
        while self.clock.elapsed < end:
            self.service.turn()
            self.clock.elapsed += self.settings.dns.look_s

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
    hook = node.hook_says(VIP, holds=True)
    life = Life(node, stack, DNS_MODE="vip", DNS_VIP=VIP, DNS_HOLD_S="60", **hook)
    other = DnsNode("n1", "192.0.2.2")
    for _ in range(8):  # more often than a node may join in an hour
        node.hook_says(VIP, holds=True)
        life.live(15)
        assert provider.answer(NAME, "A") == ("192.0.2.1",)
        node.hook_says(VIP, holds=False)
        life.live(5)
        turn(provider, replace(SPEC, mode=Mode.VIP, ttl_s=1), other, Wish.PUBLISH)
        assert provider.answer(NAME, "A") == (other.v4,)
        life.live(15)
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


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_a_clock_that_is_set_back_delays_no_change(
    node: FieldNode, provider: StrictRoute53, stack: ExitStack, *, restarts: bool
) -> None:
    turn(provider, SPEC, another(8), Wish.PUBLISH)  # so that this node may leave
    life = Life(node, stack, DNS_HOLD_S="20")
    both, other = ("192.0.2.1", "192.0.2.9"), ("192.0.2.9",)
    life.live(15)
    assert provider.answer(NAME, "A") == both
    life.clock.set_by_s -= HOUR_S
    node.haproxy.stop()
    life.live(15)
    assert provider.answer(NAME, "A") == other
    life.clock.set_by_s -= HOUR_S  # the time at which it withdrew lies in the future now
    node.haproxy.start()
    if restarts:
        life.restart()
    life.live(15)
    assert provider.answer(NAME, "A") == (other if restarts else both), "a restart begins the hold again"
    life.live(15)
    assert provider.answer(NAME, "A") == both
    assert abs(json.loads((node.folder / "run" / "dns-status.json").read_text())["at"] - life.clock.now()) < HOUR_S / 60


def test_a_zone_that_was_made_again_is_found_by_its_new_id(
    node: FieldNode, provider: StrictRoute53, stack: ExitStack
) -> None:
    life = Life(node, stack)
    life.live(15)
    provider.delete_zone(ZONE.zone_id)
    life.live(15)
    assert "no public hosted zone has lb.example.com" in life.report()[NAME]["problem"]
    provider.add_zone(replace(ZONE, zone_id="Z9"))
    life.live(15)
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    assert life.report()[NAME]["problem"] == ""


def test_a_zone_id_of_the_settings_that_does_not_exist_is_named(node: FieldNode, stack: ExitStack) -> None:
    life = Life(node, stack, DNS_ZONE_ID="ZGONE")
    life.live(15)
    problem = life.report()[NAME]["problem"]
    assert "its hosted zone ZGONE does not exist" in problem
    assert "set dns.zone_id" in problem


HOUR_S, RESTART_S = 3600.0, 600.0
RARELY = {"DNS_INTERVAL_S": "60", "DNS_NODES": "4", "DNS_LOOK_S": "5"}


def test_an_hour_without_kubernetes_and_restarts_of_every_process_send_no_changing_request(
    node: FieldNode, aws: FaultProxy, provider: StrictRoute53, stack: ExitStack
) -> None:
    life = Life(node, stack, **RARELY)
    # A configuration was applied here once: that stays on disk, whatever becomes of the daemon.
    history = GenerationStore(life.settings.state_dir, 3)
    history.record(Rendering((Piece("global", "global\n"),)), Generation(1, "d", 1.0))
    # Another node is in the answers too: this one could be taken out of them.
    for name in (NAME, WEB):
        turn(provider, replace(SPEC, name=name), another(8), Wish.PUBLISH)
    life.say(Phase.SERVING, (WEB,), synced_at=time.time())
    life.run(120.0)
    assert provider.answer(NAME, "A") == provider.answer(WEB, "A") == ("192.0.2.1", "192.0.2.9")
    sent, end = aws.changing, life.clock.elapsed + HOUR_S
    aws.seen.clear()
    # The daemon ends, comes back without an API server, holds a loss, and is gone for good.
    lives: tuple[tuple[Phase, tuple[str, ...] | None], ...] = (
        (Phase.SERVING, ()),
        (Phase.STARTING, None),
        (Phase.SERVING_LAST_GOOD, None),
        (Phase.HELD, ()),
        (Phase.WAITING, None),
        (Phase.FAILED, ()),
    )
    for phase, names in lives:
        life.say(phase, names, synced_at=0.0)
        life.restart()
        life.run(RESTART_S)
        node.haproxy.stop()
        node.haproxy.start()
    (node.folder / "run" / "status.json").unlink()
    life.restart()
    life.run(max(end - life.clock.elapsed, 0.0) + 60.0)
    assert life.clock.elapsed >= end
    assert sent
    assert aws.changing == 0
    assert set(stored_annotated(life.settings, life.clock)) == {WEB}
    # Twice a minute, for two names; each life begins with one more of each.
    assert 60 <= len(aws.seen) <= 2 * 75 + 10


def test_an_aws_that_is_away_is_asked_rarely_and_nothing_is_changed_afterwards(
    node: FieldNode, aws: FaultProxy, provider: StrictRoute53, stack: ExitStack
) -> None:
    life = Life(node, stack, **RARELY)
    life.run(120.0)
    before = provider.everything()
    aws.seen.clear()
    aws.faults = ["ServiceUnavailable"] * 100_000
    life.run(600.0)
    # A visit each minute, of three tries.
    assert len(aws.seen) <= 3 * 30
    aws.faults = []
    life.run(200.0)
    assert aws.changing == 0
    assert provider.everything() == before
