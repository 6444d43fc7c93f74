"""What was applied, set by hand, paused or pinned: for people, in metrics, and over JSON."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyconfd.model.changes import BUCKETS_S, Action, ApplyingStatus, Change, FormerWorkers
from pyconfd.model.status import (
    BackendDown,
    LeavingStatus,
    LiveStatus,
    OverrideStatus,
    Paused,
    Pin,
    PinStatus,
    RolloutAlarm,
    RolloutStatus,
    Status,
)
from pyconfd.status import document
from pyconfd.status.document import Freshness, StatusFile, StatusReport
from pyconfd.status.metrics import exposition, registry_of
from pyconfd.status.text import pin_lines, render_text
from tests.status.conftest import NOW


def metrics_of(status: Status) -> dict[str, float]:
    """Return the samples by their name with the values of their labels behind it."""
    families = text_string_to_metric_families(exposition(registry_of(lambda: status)).decode())
    return {
        "".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
        for family in families
        for sample in family.samples
    }


def applied(make_status: Callable[..., Status]) -> Status:
    status = make_status()
    former = FormerWorkers(2, status.now - 190.0, 14, status.now + 440.0)
    known = ApplyingStatus().seen(former).written(status.now, behind=True)
    for duration_s in (0.0004, 0.002):
        known = known.after(Change(status.now, 3, Action.LIVE, duration_s=duration_s))
    known = known.after(Change(status.now, 4, Action.RELOAD, duration_s=99.0)).after(None)
    return replace(status, now=status.now + 10, applying=known)


def test_the_metrics_of_applying(make_status: Callable[..., Status]) -> None:
    found = metrics_of(applied(make_status))
    assert [found[f"pyconfd_plans_total{action}"] for action in ("live", "reload", "noop", "deferred")] == [2, 1, 1, 0]
    assert [found[f"pyconfd_change_seconds_bucketlive{bound}"] for bound in ("0.0005", "0.001", "0.0025", "+Inf")] == [
        1,
        1,
        2,
        2,
    ]
    assert found[f"pyconfd_change_seconds_bucketreload{BUCKETS_S[-1]}"] == 0
    assert found["pyconfd_change_seconds_countreload"] == 1
    assert found["pyconfd_change_seconds_sumreload"] == 99.0
    assert (found["pyconfd_old_workers"], found["pyconfd_oldest_worker_age_seconds"]) == (2, 200)
    assert found["pyconfd_old_worker_connections"] == 14
    assert (found["pyconfd_file_behind"], found["pyconfd_file_behind_seconds"]) == (1, 10)


def test_the_metrics_of_applying_are_there_before_anything_happened(make_status: Callable[..., Status]) -> None:
    found = metrics_of(make_status())
    assert all(found[f"pyconfd_plans_total{action.value}"] == 0 for action in Action)
    assert found["pyconfd_change_seconds_bucketlive+Inf"] == 0
    assert (found["pyconfd_old_workers"], found["pyconfd_oldest_worker_age_seconds"]) == (0, 0)
    assert (found["pyconfd_file_behind"], found["pyconfd_file_behind_seconds"]) == (0, 0)


def test_what_former_workers_have_left_and_when_they_end(make_status: Callable[..., Status]) -> None:
    status = applied(make_status)
    lines = render_text(StatusReport(Freshness.LIVE, status.now, status)).splitlines()
    at = lines.index("  2 former workers end their sessions (14 connections), the oldest was started 3 m ago")
    assert lines[at + 1].startswith("    hard-stop-after ends the last of them at ")
    assert lines[at + 1].endswith(", in 7 m")
    endless = replace(status, applying=replace(status.applying, former=FormerWorkers(2, 1.0)))
    text = render_text(StatusReport(Freshness.LIVE, status.now, endless))
    assert "    nothing ends them before their clients do: there is no hard-stop-after\n" in text


def test_the_document_keeps_how_it_was_applied(make_status: Callable[..., Status]) -> None:
    status = applied(make_status)
    assert document.decode(document.encode(status)).applying == status.applying
    older = document.encode(status).replace(b'"applying"', b'"unknown"')
    assert document.decode(older).applying == ApplyingStatus(), "a pyconfd that did not have it"


def test_counters_alone_do_not_write_the_status_file(make_status: Callable[..., Status], tmp_path: Path) -> None:
    file = StatusFile(tmp_path)
    status = applied(make_status)
    assert file.update(status)
    assert not file.update(replace(status, applying=status.applying.after(Change(1.0, 5, Action.LIVE))))
    assert not file.update(replace(status, live=replace(LIVE, paused=None)))
    # A change is written at once, but for what changed within a second of the last writing.
    assert not file.update(replace(status, live=LIVE, now=status.now + 0.9))
    assert file.update(replace(status, live=LIVE, now=status.now + 1))


def test_the_text_says_what_is_left_behind(make_status: Callable[..., Status]) -> None:
    status = applied(make_status)
    text = render_text(StatusReport(Freshness.LIVE, status.now, status))
    assert "the file has been behind the runtime updates for 10 s" in text
    assert "changes   live 2, noop 1, reload 1" in text
    level = replace(status, applying=replace(status.applying, former=FormerWorkers(), file_behind_since=0.0))
    assert "HAProxy\n" not in render_text(StatusReport(Freshness.LIVE, status.now, level))


LIVE = LiveStatus(
    paused=Paused(NOW - 300, NOW + 3300, "moving https://user:secret@racks\033[2J"),
    overrides=(
        OverrideStatus("shop/web-1", "drain", NOW - 300, NOW + 1500),
        OverrideStatus("shop/web-2", "weight 50", NOW - 7200, source="socket"),
        OverrideStatus("shop/web-3", "maint", NOW - 60, missing_since=NOW - 30),
    ),
    leaving=(LeavingStatus("blog/old", NOW - 90),),
    leaving_total=4,
    repaired_total=2,
    beyond_repair=("shop/web-4 is missing (balance source takes no server while it runs)",),
)


def shown(status: Status) -> str:
    return render_text(StatusReport(Freshness.LIVE, status.now, document.decode(document.encode(status))))


def test_people_see_what_was_set_by_hand_with_age_and_end(make_status: Callable[..., Status]) -> None:
    text = shown(make_status(live=LIVE))
    assert "PAUSED for 5 m, 55 m left: moving https://[hidden]@racks\\x1b[2J\n  -> pyconfd resume" in text
    assert text.index("PAUSED") < text.index("API servers")
    lines = text.splitlines()
    at = lines.index("Set by hand")
    assert lines[at + 1 : at + 4] == [
        "  shop/web-1  drain for 5 m, 25 m left (by command)",
        "  shop/web-2  weight 50 for 2 h (on the socket)",
        "  shop/web-3  maint for 1 m (by command)             not there for 30 s",
    ]
    assert "  4 servers, the oldest (blog/old) for 1 m" in lines
    assert "  ! shop/web-4 is missing (balance source takes no server while it runs)" in lines


def test_many_overrides_are_cut_short(make_status: Callable[..., Status]) -> None:
    many = tuple(OverrideStatus(f"b/s{number}", "drain", NOW) for number in range(500))
    assert "... and 490 more: pyconfd server list" in shown(make_status(live=LiveStatus(overrides=many)))


def test_nothing_by_hand_shows_nothing(make_status: Callable[..., Status]) -> None:
    text = shown(make_status())
    assert "PAUSED" not in text
    assert "Set by hand" not in text
    assert "On their way out" not in text


def test_the_metrics_of_servers_and_pause(make_status: Callable[..., Status]) -> None:
    found = metrics_of(make_status(live=LIVE))
    assert (found["pyconfd_paused"], found["pyconfd_paused_seconds"]) == (1, 300)
    assert (found["pyconfd_overridescommand"], found["pyconfd_overridessocket"]) == (2, 1)
    assert (found["pyconfd_leaving_servers"], found["pyconfd_leaving_oldest_seconds"]) == (4, 90)
    assert (found["pyconfd_drift_repaired_total"], found["pyconfd_drift_beyond_repair"]) == (2, 1)
    none = metrics_of(make_status())
    assert (none["pyconfd_paused"], none["pyconfd_paused_seconds"], none["pyconfd_overridessocket"]) == (0, 0, 0)
    assert (none["pyconfd_leaving_servers"], none["pyconfd_leaving_oldest_seconds"]) == (0, 0)


def test_servers_and_pause_survive_json_without_secrets(make_status: Callable[..., Status]) -> None:
    live = document.decode(document.encode(make_status(live=LIVE))).live
    assert live.paused is not None
    assert "secret" not in live.paused.reason
    assert replace(live, paused=LIVE.paused) == LIVE


def test_people_see_which_backends_have_no_server_up(make_status: Callable[..., Status]) -> None:
    down = (BackendDown("be-shop", 2, NOW - 300), *(BackendDown(f"be-{number}", 0, NOW) for number in range(11)))
    status = make_status(live=LiveStatus(down=down, down_total=12), hosts_total=1204)
    lines = shown(status).splitlines()
    assert lines[0].endswith("verified, serves 1,204 names, 12 backends without a server that is up")
    at = lines.index("No server up (12)")
    assert lines[at + 1 : at + 3] == [
        "  be-shop  for 5 m  none of its 2 servers is up",
        "  be-0     for 0 s  it has no server: the cluster has no ready endpoint for it",
    ]
    assert "  ... and 2 more: pyconfd status --json" in lines
    assert metrics_of(status)["pyconfd_backends_down"] == 12
    assert metrics_of(status)["pyconfd_hosts"] == 1204


PINNED = ("pyconfd_pinned", "pyconfd_edits_waiting", "pyconfd_rollout")
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
                "it is not applied yet",
                "fragments and settings on disk differ, and wait for `pyconfd unpin`:",
                "    fragment a edited (+1 -0 lines)",
                "-> pyconfd unpin",
            ),
        ),
        (
            PinStatus(PIN, refused=True),
            "PINNED to generation 41 for 5 m: checkout is broken",
            ("it cannot be applied", "-> pyconfd unpin"),
        ),
        (
            PinStatus(Pin("", 0, "", 0.0, broken="pin.json is damaged")),
            "PINNED, but the pin cannot be read",
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


def test_figures_and_the_document_have_both(make_status: Callable[..., Status]) -> None:
    alarm = RolloutAlarm(42, 1.0, "generation 42 to https://a:hunter2@b", ("backend b: 90 % of 100 requests failed",))
    status = make_status(pin=PinStatus(PIN, serves=True, waiting=("a", "b")), rollout=RolloutStatus(5.0, alarm, 3))
    assert {name: value for name, value in metrics_of(status).items() if name.startswith(PINNED)} == {
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
    assert {value for name, value in metrics_of(make_status()).items() if name.startswith(PINNED)} == {0}
