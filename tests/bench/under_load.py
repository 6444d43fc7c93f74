"""What clients notice of changes that go live: a pyconfd with a real haproxy and real pods, under load.

The short forms of these are tests: tests/haproxy/test_under_load.py.
"""

import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, Member, host
from tests.world.load import Load, Request

GRACE_S = 1.0
"""How long a pod that was told to end serves on, at least: until nobody waits for its answer."""
MANY = 200
"""Requests that are answered in any case: on a busy machine clients may come late, and be slow."""


def failures(requests: Sequence[Request]) -> list[str]:
    """Return what went wrong, with when it was sent."""
    return [f"{one.host} {one.pod} {one.failure} sent {one.sent:.3f}" for one in requests if one.failure]


# A server takes the place of another one


@dataclass(frozen=True)
class Replaced:
    """``stale`` requests were sent after HAProxy had acknowledged that their pod is out."""

    requests: int
    stale: int
    failed: int
    reloaded: bool


def replace_pods(folder: Path, *, changes: int, clients: int) -> Replaced:
    """Let each change replace the only pod of a service by another one, under busy keep-alive clients."""
    with Fleet(folder, services=1, each=1, answering=1) as fleet:
        worker = fleet.worker()
        out: dict[str, float] = {}
        with Load(fleet.serving.port, host(0), clients=clients) as load:
            fleet.until_answered(fleet.members[0][0].address)
            for _ in range(changes):
                former, coming = fleet.members[0][0], fleet.new_member()
                fleet.pods.start(coming.address)
                fleet.members[0] = [coming]
                out[former.address] = fleet.apply(0)
                fleet.pump(0.02)
                fleet.until_answered(coming.address)
            fleet.until_answered(requests=MANY)
            requests = load.stop()
        stale = [one for one in requests if one.sent > out.get(one.pod, one.sent)]
        return Replaced(len(requests), len(stale), len(failures(requests)), fleet.worker() != worker)


# Many changes at once


@dataclass(frozen=True)
class Bursts:
    """``unlike`` is what the process has otherwise than the rendering; ``left`` servers wait to be deleted."""

    requests: int
    failed: list[str]
    reloaded: bool
    unlike: list[str]
    left: int
    file_unlike: bool
    seconds: float
    slowest_s: float


def bursts(folder: Path, *, services: int, each: int, answering: int, changes: int, burst: int) -> Bursts:
    """Replace a pod of a service with each change, ``burst`` changes at once."""
    chance = random.Random(1)
    with Fleet(folder, services=services, each=each, answering=answering) as fleet:
        worker = fleet.worker()
        with Load(fleet.serving.port, *map(host, range(answering)), clients=8, pause_s=0.002) as load:
            fleet.until_answered(*(members[0].address for members in fleet.members[:answering]))
            began = time.monotonic()
            slowest = 0.0
            for first in range(0, changes, burst):
                asked = [] if first % (10 * burst) else list(range(answering))
                numbers = asked + chance.sample(range(answering, services), min(burst, changes - first) - len(asked))
                ended = _replace_some(fleet, numbers, answering, chance)
                before = time.monotonic()
                slowest = max(slowest, fleet.apply(*numbers) - before)
                fleet.pump(GRACE_S if ended else 0.02)
                fleet.until_idle(*ended)
                fleet.pods.end(*ended)
            seconds = time.monotonic() - began
            fleet.until_answered(requests=MANY)
            unlike = fleet.unlike_rendering()
            requests = load.stop()
        left = len(fleet.leaving())
        fleet.until(lambda: not fleet.leaving(), "the last server that left is deleted")
        fleet.until(lambda: not fleet.balancer.file_behind, "the file is level")
        unlike += fleet.unlike_rendering()
        return Bursts(
            len(requests),
            failures(requests),
            fleet.worker() != worker,
            unlike,
            left,
            fleet.unlike_file(),
            seconds,
            slowest,
        )


def _replace_some(fleet: Fleet, numbers: list[int], answering: int, chance: random.Random) -> list[str]:
    """Put another pod in the place of one of each of these services; give those that answered and are out."""
    coming, going = [], []
    for number in numbers:
        place, made = chance.randrange(len(fleet.members[number])), fleet.new_member()
        if number < answering:
            going.append(fleet.members[number][place].address)
            coming.append(made.address)
        fleet.members[number][place] = made
    fleet.pods.start(*coming)
    return going


# Rolling updates


@dataclass(frozen=True)
class Rolled:
    """``answered`` pods of the new version gave answers."""

    requests: int
    failed: list[str]
    reloaded: bool
    answered: int
    unlike: list[str]
    seconds: float


def rolling_update(folder: Path, *, services: int, each: int, clients: int) -> Rolled:
    """Replace every pod of every service, one after the other in each and all services at the same time."""
    with Fleet(folder, services=services, each=each, answering=services) as fleet:
        worker = fleet.worker()
        numbers = range(services)
        with Load(fleet.serving.port, *map(host, numbers), clients=clients, pause_s=0.001) as load:
            began = time.monotonic()
            for _ in range(each):
                _roll_one(fleet, numbers)
            new = {one.address for members in fleet.members for one in members}
            fleet.until_answered(*new, requests=MANY)
            requests = load.stop()
        seconds = time.monotonic() - began
        answered = len(new & {one.pod for one in requests})
        return Rolled(
            len(requests), failures(requests), fleet.worker() != worker, answered, fleet.unlike_rendering(), seconds
        )


def _roll_one(fleet: Fleet, numbers: Sequence[int]) -> None:
    """Replace the oldest pod of each service: start a new one, wait until it is ready, let the old one terminate."""
    coming = [fleet.new_member(ready=False) for _ in numbers]
    _told(fleet, numbers, coming)
    fleet.pods.start(*(one.address for one in coming))
    for one in coming:
        one.ready = True
    _told(fleet, numbers)
    going = [fleet.members[number][0] for number in numbers]
    for one in going:
        one.terminating = True
    _told(fleet, numbers)
    fleet.pump(GRACE_S)
    fleet.until_idle(*(one.address for one in going))
    fleet.pods.refuse(*(one.address for one in going))
    fleet.pods.end(*(one.address for one in going))
    for number in numbers:
        del fleet.members[number][0]
    _told(fleet, numbers)


def _told(fleet: Fleet, numbers: Sequence[int], coming: Sequence[Member] = ()) -> None:
    """Let the events of all services arrive one after the other, as they do."""
    for number, member in zip(numbers, coming, strict=False):
        fleet.members[number].append(member)
    for number in numbers:
        fleet.tell(number)
        fleet.step(1)
    fleet.apply()


# Figures


def _load() -> Iterator[Figure]:
    yield Figure("under_load_machine_load", os.getloadavg()[0], "processes that want to run, at the end")


def stale_answers() -> Iterator[Figure]:
    """Count answers from a pod whose removal was acknowledged before they were asked for."""
    with tempfile.TemporaryDirectory(prefix="under-load-") as folder:
        found = replace_pods(Path(folder), changes=300, clients=32)
    yield Figure("stale_requests", found.requests, "requests by 32 busy keep-alive clients during 300 changes")
    yield Figure("stale_answers", found.stale, "answers by a pod that was out", 0)
    yield Figure("stale_failed_requests", found.failed, "requests", 0)
    yield Figure("stale_reloads", int(found.reloaded), "whether it reloaded", 0)
    yield from _load()


def change_bursts() -> Iterator[Figure]:
    """Change 10,000 endpoints of 1,000 services in bursts of 100."""
    with tempfile.TemporaryDirectory(prefix="under-load-") as folder:
        found = bursts(Path(folder), services=1000, each=10, answering=10, changes=10_000, burst=100)
    yield Figure("burst_seconds", found.seconds, "s for 10,000 changes, pauses included")
    yield Figure("burst_slowest", found.slowest_s * 1000, "ms until 100 changes were acknowledged, the slowest")
    yield Figure("burst_requests", found.requests, "requests")
    yield Figure("burst_failed_requests", len(found.failed), "requests", 0)
    yield Figure("burst_reloads", int(found.reloaded), "whether it reloaded", 0)
    yield Figure("burst_draining_at_the_end", found.left, "servers")
    yield Figure("burst_unlike_rendering", len(found.unlike), "servers", 0)
    yield Figure("burst_file_unlike_rendering", int(found.file_unlike), "whether it is so", 0)
    yield from _load()


def rolling_updates() -> Iterator[Figure]:
    """Update 100 services with 10 pods each."""
    with tempfile.TemporaryDirectory(prefix="under-load-") as folder:
        found = rolling_update(Path(folder), services=100, each=10, clients=32)
    yield Figure("rolling_seconds", found.seconds, "s for 1,000 pods")
    yield Figure("rolling_requests", found.requests, "requests by 32 keep-alive clients")
    yield Figure("rolling_failed_requests", len(found.failed), "requests", 0)
    yield Figure("rolling_reloads", int(found.reloaded), "whether it reloaded", 0)
    yield Figure("rolling_unlike_rendering", len(found.unlike), "servers", 0)
    yield from _load()
