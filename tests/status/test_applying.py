"""How changes are applied: in the metrics, the document and the text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pyconfd.model.changes import BUCKETS_S, Action, ApplyingStatus, Change
from pyconfd.model.status import Status
from pyconfd.status import document
from pyconfd.status.document import Freshness, StatusFile, StatusReport
from pyconfd.status.metrics import exposition, registry_of
from pyconfd.status.text import render_text


def applied(make_status: Callable[..., Status]) -> Status:
    status = make_status()
    known = ApplyingStatus().seen(status.now, old_workers=2, oldest_worker_age_s=190.0, file_behind=True)
    for duration_s in (0.0004, 0.002):
        known = known.after(Change(status.now, 3, Action.LIVE, duration_s=duration_s))
    known = known.after(Change(status.now, 4, Action.RELOAD, duration_s=99.0)).after(None)
    return replace(status, now=status.now + 10, applying=known)


def samples(status: Status) -> dict[tuple[str, ...], float]:
    text = exposition(registry_of(lambda: status)).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics(make_status: Callable[..., Status]) -> None:
    found = samples(applied(make_status))
    assert [found["pyconfd_plans_total", action] for action in ("live", "reload", "noop", "deferred")] == [2, 1, 1, 0]
    assert [
        found["pyconfd_change_seconds_bucket", "live", bound] for bound in ("0.0005", "0.001", "0.0025", "+Inf")
    ] == [
        1,
        1,
        2,
        2,
    ]
    assert found["pyconfd_change_seconds_bucket", "reload", str(BUCKETS_S[-1])] == 0
    assert found["pyconfd_change_seconds_count", "reload"] == 1
    assert found["pyconfd_change_seconds_sum", "reload"] == 99.0
    assert (found["pyconfd_old_workers",], found["pyconfd_oldest_worker_age_seconds",]) == (2, 200)
    assert (found["pyconfd_file_behind",], found["pyconfd_file_behind_seconds",]) == (1, 10)


def test_the_metrics_are_there_before_anything_happened(make_status: Callable[..., Status]) -> None:
    found = samples(make_status())
    assert all(found["pyconfd_plans_total", action.value] == 0 for action in Action)
    assert found["pyconfd_change_seconds_bucket", "live", "+Inf"] == 0
    assert (found["pyconfd_old_workers",], found["pyconfd_oldest_worker_age_seconds",]) == (0, 0)
    assert (found["pyconfd_file_behind",], found["pyconfd_file_behind_seconds",]) == (0, 0)


def test_the_document_keeps_it(make_status: Callable[..., Status]) -> None:
    status = applied(make_status)
    assert document.decode(document.encode(status)).applying == status.applying
    older = document.encode(status).replace(b'"applying"', b'"unknown"')
    assert document.decode(older).applying == ApplyingStatus(), "a pyconfd that did not have it"


def test_counters_alone_do_not_write_the_status_file(make_status: Callable[..., Status], tmp_path: Path) -> None:
    file = StatusFile(tmp_path)
    status = applied(make_status)
    assert file.update(status)
    counted = replace(status, applying=status.applying.after(Change(1.0, 5, Action.LIVE)))
    assert not file.update(counted)
    assert file.update(replace(counted, applying=replace(counted.applying, old_workers=3)))


def test_the_text_says_what_is_left_behind(make_status: Callable[..., Status]) -> None:
    status = applied(make_status)
    text = render_text(StatusReport(Freshness.LIVE, status.now, status))
    assert "2 former workers end their sessions, the oldest was started 3 m ago" in text
    assert "the file has been behind what was changed live for 10 s" in text
    assert "changes   live 2, noop 1, reload 1" in text
    level = replace(status, applying=replace(status.applying, old_workers=0, file_behind_since=0.0))
    assert "HAProxy\n" not in render_text(StatusReport(Freshness.LIVE, status.now, level))
