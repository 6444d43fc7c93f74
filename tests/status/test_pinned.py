from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyconfd.model.pin import Pin, PinStatus
from pyconfd.model.status import Status
from pyconfd.model.traffic import RolloutAlarm, RolloutStatus
from pyconfd.status import document
from pyconfd.status.metrics import exposition, registry_of
from pyconfd.status.text import pin_lines

PIN = Pin("ab", 41, "d" * 64, 700.0, "checkout is broken")


@pytest.mark.parametrize(
    ("pinned", "headline", "below"),
    [
        (
            PinStatus(PIN, serves=True),
            "PINNED to generation 41 for 5 m: checkout is broken",
            ("-> pyconfd unpin",),
        ),
        (
            PinStatus(Pin("ab", 41, "d", 700.0), waiting=("fragment a edited (+1 -0 lines)",)),
            "PINNED to generation 41 for 5 m",
            (
                "it does not serve yet",
                "fragments and settings on disk differ, and wait for `pyconfd unpin`:",
                "    fragment a edited (+1 -0 lines)",
                "-> pyconfd unpin",
            ),
        ),
        (
            PinStatus(PIN, refused=True),
            "PINNED to generation 41 for 5 m: checkout is broken",
            ("it cannot be made to serve", "-> pyconfd unpin"),
        ),
        (
            PinStatus(Pin("", 0, "", 0.0, broken="pin.json is damaged")),
            "PINNED, but nobody knows to what",
            ("pin.json is damaged",),
        ),
    ],
)
def test_a_pin_in_words(pinned: PinStatus, headline: str, below: tuple[str, ...]) -> None:
    assert pin_lines(pinned, 1000.0) == (headline, below)


def test_many_edits_are_counted() -> None:
    _, below = pin_lines(PinStatus(PIN, serves=True, waiting=tuple(f"edit {n}" for n in range(9))), 1000.0)
    assert "    and 4 more" in below
    assert "    edit 5" not in below


def figures(status: Status) -> dict[str, float]:
    families = text_string_to_metric_families(exposition(registry_of(lambda: status)).decode())
    names = ("pyconfd_pinned", "pyconfd_edits_waiting", "pyconfd_rollout")
    samples = (sample for family in families for sample in family.samples)
    return {sample.name: sample.value for sample in samples if sample.name.startswith(names)}


def test_figures_and_the_document_have_both(make_status: Callable[..., Status]) -> None:
    alarm = RolloutAlarm(42, 1.0, "generation 42 to https://a:hunter2@b", ("backend b: 90 % of 100 requests failed",))
    status = make_status(pin=PinStatus(PIN, serves=True, waiting=("a", "b")), rollout=RolloutStatus(5.0, alarm, 3))
    assert figures(status) == {
        "pyconfd_pinned": 1,
        "pyconfd_pinned_generation": 41,
        "pyconfd_edits_waiting": 2,
        "pyconfd_rollout_monitored": 1,
        "pyconfd_rollout_alarm": 1,
        "pyconfd_rollout_alarms_total": 3,
    }
    again = document.decode(document.encode(status))
    assert again.pin == status.pin
    assert again.rollout.alarm is not None
    assert b"hunter2" not in document.encode(status)
    assert set(figures(make_status()).values()) == {0}
