"""What waits for a name that is kept for others makes up for no loss of theirs, and is none when its turn comes."""

from pathlib import Path

import pytest

from pyconfd.errors import ApplyError
from pyconfd.model.hold import HoldKind
from pyconfd.model.kubernetes import EndpointSlice, Service
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import Phase
from tests.daemon.fakes import FAILING, Bed, FakeDisk
from tests.presets import objects

NAMES = [f"s{number}" for number in range(6)]


class Reserving(Bed):
    """Keeps names for the namespaces of former owners."""

    reserve_s = 600.0


class Restarting(Reserving):
    """Remembers names in a directory, and what HAProxy has on its disk."""

    def __init__(self, state_dir: Path, disk: FakeDisk | None = None) -> None:
        self.state_dir = str(state_dir)
        super().__init__(disk)


def _claims(namespace: str, created: str, first: int, each: int) -> list[Service | EndpointSlice]:
    found: list[Service | EndpointSlice] = []
    for number, name in enumerate(NAMES):
        annotations = {"domain": f"{name}.example.com", "proto": "http"}
        found.append(objects.service(name, annotations, namespace=namespace, created=created))
        members = (objects.endpoint(f"10.{first}.{number}.{one}") for one in range(1, each + 1))
        found.append(objects.slice_(name, *members, namespace=namespace))
    return found


OWNERS = _claims("prod", "2026-01-01T00:00:00Z", 1, each=1)
WAITING = _claims("stray", "2026-02-01T00:00:00Z", 2, each=2)
OTHERS: list[Service | EndpointSlice] = [
    objects.service("other", {"domain": "other.example.com", "proto": "http"}),
    objects.slice_("other", *(objects.endpoint(f"10.9.0.{number}") for number in range(1, 5))),
]


def _seen(*groups: list[Service | EndpointSlice]) -> Snapshot:
    return objects.snapshot(*(each for group in groups for each in group))


def _serving() -> Bed:
    bed = Reserving()
    bed.source.show(_seen(OWNERS, WAITING, OTHERS))
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert "10.2." not in bed.serves
    return bed


def test_who_waits_for_a_kept_name_makes_up_for_no_loss() -> None:
    bed = _serving()
    bed.source.show(_seen(WAITING, OTHERS))
    bed.settle()
    hold = bed.status.hold
    assert hold is not None, "the names would be served by nobody"
    assert (hold.kind, hold.lost, hold.of) == (HoldKind.SHARE, 6, 10)
    assert all(f"10.1.{number}.1" in bed.serves for number in range(6))
    assert bed.daemon.memory.seen is not None
    assert bed.daemon.memory.seen.without_hold is not None
    assert not bed.daemon.memory.seen.without_hold.names["domains"].keys() - {"other.example.com"}


def test_the_change_of_hands_after_that_is_no_loss() -> None:
    bed = _serving()
    bed.source.show(_seen(WAITING, OTHERS))
    bed.settle()
    bed.run_for(70)
    assert (bed.phase(), bed.status.hold) == (Phase.SERVING, None), "it lasted, and is believed"
    assert "10.1." not in bed.serves
    assert "10.2." not in bed.serves, "the names are kept"
    bed.run_for(600)
    assert (bed.phase(), bed.status.hold) == (Phase.SERVING, None)
    assert all(f"10.2.{number}.2" in bed.serves for number in range(6))
    assert dict(bed.status.holds_by_step) == {"begun": 1, "confirmed": 1, "expired": 1}


def test_without_a_time_to_wait_the_next_in_line_replaces_the_loss() -> None:
    bed = Bed()
    bed.source.show(_seen(OWNERS, WAITING, OTHERS))
    bed.settle()
    bed.source.show(_seen(WAITING, OTHERS))
    bed.settle()
    assert (bed.phase(), bed.status.hold) == (Phase.SERVING, None)
    assert all(f"10.2.{number}.2" in bed.serves for number in range(6))


LATER = _claims("late", "2025-01-01T00:00:00Z", 3, each=1)
"""Older objects than those that were given the names before they came."""
GONE = objects.service("gone", {"domain": "gone.example.com", "proto": "http"})


def _restarted(state_dir: Path) -> Restarting:
    bed = Restarting(state_dir)
    for found in ((OWNERS, OTHERS, [GONE]), (OWNERS, LATER, OTHERS)):
        bed.source.show(_seen(*found))
        bed.settle()
    assert "10.1.0.1" in bed.serves
    assert "10.3." not in bed.serves, "the names were given before"
    return Restarting(state_dir, bed.balancer.disk)


@pytest.mark.parametrize(
    ("listed", "broken", "phase"), [((), None, Phase.HELD), ((OWNERS[2:], LATER, OTHERS), FAILING, Phase.FAILED)]
)
def test_before_anything_is_applied_no_name_is_given_away(
    tmp_path: Path, listed: tuple[list[Service | EndpointSlice], ...], broken: ApplyError | None, phase: Phase
) -> None:
    bed = _restarted(tmp_path)
    bed.balancer.broken = broken
    bed.source.show(_seen(*listed))
    bed.run_for(700)
    assert bed.phase() is phase
    bed.balancer.broken = None
    bed.source.show(_seen(OWNERS, LATER, OTHERS))
    bed.run_for(70)
    assert bed.phase() is Phase.SERVING
    assert all(f"10.1.{number}.1" in bed.serves for number in range(6))
    assert "10.3." not in bed.serves


def test_a_reservation_that_ends_beside_a_held_change_tries_nothing_again(tmp_path: Path) -> None:
    bed = _restarted(tmp_path)
    bed.source.show(_seen())
    bed.run_for(580)
    before = bed.status.reconciliations_total
    bed.run_for(120)
    assert bed.phase() is Phase.HELD
    assert bed.status.reconciliations_total - before < 10, "for lists that are asked for, not each second"
