"""What was set by hand, paused or is leaving: for people, in metrics, and over JSON."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pyconfd.model.status import BackendDown, LeavingStatus, LiveStatus, OverrideStatus, Paused, Status
from pyconfd.status import document
from pyconfd.status.document import Freshness, StatusFile, StatusReport
from pyconfd.status.metrics import exposition, registry_of
from pyconfd.status.text import render_text
from tests.status.conftest import NOW

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


def values(status: Status) -> dict[str, float]:
    families = text_string_to_metric_families(exposition(registry_of(lambda: status)).decode())
    return {
        "".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


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


def test_metrics(make_status: Callable[..., Status]) -> None:
    found = values(make_status(live=LIVE))
    assert (found["pyconfd_paused"], found["pyconfd_paused_seconds"]) == (1, 300)
    assert (found["pyconfd_overridescommand"], found["pyconfd_overridessocket"]) == (2, 1)
    assert (found["pyconfd_leaving_servers"], found["pyconfd_leaving_oldest_seconds"]) == (4, 90)
    assert (found["pyconfd_drift_repaired_total"], found["pyconfd_drift_beyond_repair"]) == (2, 1)
    none = values(make_status())
    assert (none["pyconfd_paused"], none["pyconfd_paused_seconds"], none["pyconfd_overridessocket"]) == (0, 0, 0)
    assert (none["pyconfd_leaving_servers"], none["pyconfd_leaving_oldest_seconds"]) == (0, 0)


def test_it_survives_json_without_secrets(make_status: Callable[..., Status]) -> None:
    live = document.decode(document.encode(make_status(live=LIVE))).live
    assert live.paused is not None
    assert "secret" not in live.paused.reason
    assert replace(live, paused=LIVE.paused) == LIVE


def test_servers_that_come_and_go_do_not_write_the_file_each_time(
    make_status: Callable[..., Status], tmp_path: Path
) -> None:
    file = StatusFile(tmp_path)
    assert file.update(make_status(live=LIVE))
    assert not file.update(make_status(live=replace(LIVE, leaving=(), leaving_total=9)))
    assert file.update(make_status(live=replace(LIVE, paused=None)))


def test_people_see_which_backends_have_no_server_up(make_status: Callable[..., Status]) -> None:
    down = (BackendDown("be-shop", 2, NOW - 300), *(BackendDown(f"be-{number}", 0, NOW) for number in range(11)))
    status = make_status(live=LiveStatus(down=down, down_total=12), hosts_total=1204)
    lines = shown(status).splitlines()
    assert lines[0].endswith("verified, serves 1,204 names, 12 backends without a server that is up")
    at = lines.index("No server up (12)")
    assert lines[at + 1 : at + 3] == ["  be-shop  for 5 m  2 servers", "  be-0     for 0 s  no server"]
    assert "  ... and 2 more: pyconfd status --json" in lines
    assert values(status)["pyconfd_backends_down"] == 12
    assert values(status)["pyconfd_hosts"] == 1204
