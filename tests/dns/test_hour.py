"""An hour of outages by an injected clock, with a real haproxy and the real requests: not one of them changes."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.dns.names import stored_annotated
from pyconfd.dns.planner import Wish
from pyconfd.dns.service import DnsService
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.model.outcome import Generation
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.status import Phase, SourceHealth, Status
from pyconfd.settings import Settings, resolve
from pyconfd.status import document
from tests.dns.nodes import FieldNode
from tests.dns.stage import NAME, SPEC, turn
from tests.dns.stage import node as another
from tests.dns.strict import StrictRoute53
from tests.dns.wire import FaultProxy

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300)]
START = 1_800_000_000.0
HOUR_S = 3600.0
RESTART_S = 600.0
WEB = "web.example.com"


@pytest.fixture
def node(tmp_path: Path, aws: FaultProxy, credentials: None) -> Iterator[FieldNode]:
    with FieldNode(tmp_path, "n0", "192.0.2.1", aws.url) as started:
        yield started


def settings_of(node: FieldNode) -> Settings:
    more = {"DNS_ANNOTATION_SUFFIXES": "example.com", "DNS_LOOK_S": "2", "DNS_INTERVAL_S": "60", "DNS_NODES": "4"}
    more["DNS_ANNOTATION_GRACE_S"] = "60"
    return resolve({}, node.environ(**more), lambda _: "").settings


def say(node: FieldNode, phase: Phase, names: tuple[str, ...] | None, *, synced_at: float) -> None:
    """What the daemon says of itself; it lives, by the real clock that such files are judged by."""
    status = Status(
        time.time(),
        "1",
        os.getpid(),
        START,
        START,
        phase,
        source=SourceHealth(last_sync_at=synced_at),
        generation=Generation(1, "d", 1.0),
        dns_names=names,
    )
    (node.folder / "run" / "status.json").write_bytes(document.encode(status))


def _in_history(settings: Settings) -> None:
    """A configuration was applied here once: that stays on disk, whatever becomes of the daemon."""
    GenerationStore(settings.state_dir, 3).record(Rendering((Piece("global", "global\n"),)), Generation(1, "d", 1.0))


def run(settings: Settings, begin: float, seconds: float) -> float:
    """One life of the process: turns as it would take them, in a time of their own; return when it ended."""
    now = begin
    with DnsService(settings) as following:
        while now < begin + seconds:
            following.turn(now)
            now += settings.dns.look_s
    return now


def test_an_hour_without_kubernetes_and_restarts_of_every_process_send_no_changing_request(
    node: FieldNode, aws: FaultProxy, provider: StrictRoute53
) -> None:
    settings = settings_of(node)
    _in_history(settings)
    # Another node is in the answers too: this one could be taken out of them.
    for name in (NAME, WEB):
        turn(provider, replace(SPEC, name=name), another(8), Wish.PUBLISH)
    say(node, Phase.SERVING, (WEB,), synced_at=time.time())
    now = run(settings, START, 120.0)
    assert provider.answer(NAME, "A") == provider.answer(WEB, "A") == ("192.0.2.1", "192.0.2.9")
    sent, end = aws.changing, now + HOUR_S
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
        say(node, phase, names, synced_at=0.0)
        now = run(settings, now, RESTART_S)
        node.haproxy.stop()
        node.haproxy.start()
    (node.folder / "run" / "status.json").unlink()
    now = run(settings, now, max(end - now, 0.0) + 60.0)
    assert now >= end
    assert sent
    assert aws.changing == 0
    assert set(stored_annotated(settings)) == {WEB}
    # Twice a minute, for two names; each life begins with one more of each.
    assert 60 <= len(aws.seen) <= 2 * 75 + 10


def test_an_aws_that_is_away_for_an_hour_is_asked_rarely_and_nothing_is_changed_afterwards(
    node: FieldNode, aws: FaultProxy, provider: StrictRoute53
) -> None:
    settings = settings_of(node)
    now = run(settings, START, 120.0)
    before = provider.everything()
    aws.seen.clear()
    aws.faults = ["ServiceUnavailable"] * 100_000
    now = run(settings, now, 600.0)
    # A visit each minute, of three tries.
    assert len(aws.seen) <= 3 * 30
    aws.faults = []
    run(settings, now, 200.0)
    assert aws.changing == 0
    assert provider.everything() == before
