"""What the page for people is given: bounded, the same until something happens, strangers' names as text."""

import gzip
import json
import re
import shlex
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from pyconfd.model.changes import Action, ApplyingStatus, Change, FormerWorkers
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.route_figures import BOUNDS_S, RouteFigures
from pyconfd.model.status import (
    ApiServerState,
    BackendDown,
    HaproxyState,
    LiveStatus,
    Paused,
    Phase,
    Quarantined,
    QuarantineStatus,
    SourceHealth,
    Status,
)
from pyconfd.model.traffic import RecentFigures, TrafficSample
from pyconfd.status import page_data
from pyconfd.status.changes import ChangeLog
from pyconfd.status.headline import Grade, findings, headline_of
from pyconfd.status.page import StatusPage
from pyconfd.status.page_data import CHANGES_SHOWN, COLUMNS, FINDINGS_SHOWN, PageData, RecentChanges
from tests.status.conftest import NOW, SAMPLE, refusal
from tests.status.serving import ask, served

HOSTILE = "<img src=x onerror=alert(1)>$(reboot)"
SOURCE = replace(SAMPLE.source, api_servers=(), etcd=(), resources=(), credentials=())
WELL = replace(SAMPLE, refused=(), hosts_total=1204, source=SOURCE)
STEPS = (90, 0, 0, 10, *[0] * (len(BOUNDS_S) - 4), 0)


def overview(page: StatusPage) -> dict[str, Any]:
    code, body, headers = ask(page, "/page.json")
    assert (code, headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = json.loads(body)
    return found


# Who gets what


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "application/json"])
def test_a_program_gets_text(accept: str) -> None:
    with served(lambda: SAMPLE) as page:
        code, body, headers = ask(page, "/", accept=accept)
        assert (code, headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert headers["vary"] == "Accept, Accept-Encoding"
        assert body.startswith("SERVING  generation 12")
        assert "/explain?q=NAME" in body
        assert ask(page, "/status.txt")[1] == body


def test_a_browser_gets_html_without_a_word_of_the_cluster() -> None:
    with served(lambda: replace(SAMPLE, problems=(HOSTILE,))) as page:
        code, body, headers = ask(page, "/", accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "status.txt" in body  # for who has no scripts
    assert "alert(1)" not in body


@pytest.mark.parametrize("path", ["/page.json", "/routes.json", "/page.js", "/"])
def test_other_names_of_the_machine_are_refused(path: str) -> None:
    with served(lambda: SAMPLE) as page:
        assert ask(page, path, host="evil.example", accept="text/html")[0] == 403


# Not twice the same


@pytest.mark.parametrize("path", ["/page.json", "/routes.json", "/page.js"])
def test_what_did_not_change_is_not_sent_again(path: str) -> None:
    with served(lambda: SAMPLE) as page:
        code, body, headers = ask(page, path)
        assert (code, bool(body)) == (200, True)
        for known in (headers["etag"], f'"other", W/{headers["etag"]}'):
            code, body, again = ask(page, path, known=known)
            assert (code, body, again["etag"]) == (304, "", headers["etag"])
            assert "content-length" not in again
        assert ask(page, path, known='"other"')[0] == 200


def test_what_is_large_is_compressed_for_who_takes_that() -> None:
    by_backend = {f"be-{each}": figures(each) for each in range(5000)}
    with served(lambda: SAMPLE) as page:
        page.data.recent = lambda: RecentFigures(30.0, by_backend)
        plain = urlopen(f"http://{page.address}/routes.json").read()
        packed = urlopen(Request(f"http://{page.address}/routes.json", headers={"Accept-Encoding": "gzip, br"}))
        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(found := packed.read()) == plain
        assert len(found) < len(plain) / 3
        small = urlopen(Request(f"http://{page.address}/healthz", headers={"Accept-Encoding": "gzip"}))
        assert "Content-Encoding" not in small.headers


def test_an_answer_that_is_no_page_is_never_not_modified() -> None:
    with served(lambda: replace(SAMPLE, generation=None)) as page:
        headers = ask(page, "/readyz")[2]
        assert ask(page, "/readyz", known=headers["etag"])[0] == 503


def test_time_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_data, "SAME_S", 0.0)
    clock = count()

    def status() -> Status:
        later = next(clock) * 2.0
        source = replace(WELL.source, last_sync_at=NOW + later)
        return replace(WELL, now=NOW + later, heartbeat_at=NOW + later, source=source)

    with served(status) as page:
        page.data.floating = lambda: floating(role_since=NOW + next(clock) / 1000)
        first = ask(page, "/page.json")[2]["etag"]
        assert [ask(page, "/page.json")[2]["etag"] for _ in range(5)] == [first] * 5
    assert next(clock) > 6


def test_many_pages_cost_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_data, "SAME_S", float("inf"))
    asked = []

    def status() -> Status:
        asked.append(1)
        return SAMPLE

    data = PageData()
    assert len({data.overview(status) for _ in range(20)}) == len(asked) == 1


def test_the_list_of_routes_is_made_once_for_a_reading() -> None:
    data, recent = PageData(), [RecentFigures(300.0, {"web": figures(30)})]
    data.recent = lambda: recent[0]
    first = data.routes(SAMPLE)
    assert data.routes(replace(SAMPLE, now=NOW + 2)) is first
    assert data.routes(WELL) is not first
    recent[0] = RecentFigures(330.0, {"web": figures(33)})
    assert json.loads(data.routes(WELL))["seconds"] == 330


def test_a_list_that_takes_long_delays_no_other_page() -> None:
    asked, known = threading.Event(), threading.Event()
    answers: list[int] = []

    def recent() -> RecentFigures:
        asked.set()
        assert known.wait(60)
        return RecentFigures(0.0, {})

    with served(lambda: SAMPLE) as page:
        page.data.recent = recent
        client = threading.Thread(target=lambda: answers.append(ask(page, "/routes.json")[0]))
        client.start()
        assert asked.wait(60)
        for path in ("/healthz", "/metrics", "/metrics/routes", "/page.json", "/page.js"):
            assert ask(page, path)[0] in {200, 503}
        assert not answers
        known.set()
        client.join()
    assert answers == [200]


# Strangers


def test_hostile_names_are_text_and_never_in_a_command() -> None:
    ref = ObjectRef("Service", "demo", HOSTILE)
    refused = Refusal(ref, "domain", HOSTILE, RefusalReason.INVALID_VALUE, f"{HOSTILE} is no name")
    live = LiveStatus(down=(BackendDown(HOSTILE, 1, NOW),), down_total=1)
    quarantine = QuarantineStatus((Quarantined(ref, "", "check", HOSTILE, NOW),))
    hostile = replace(SAMPLE, refused=(refused,), live=live, quarantine=quarantine, problems=(f"{HOSTILE}: {HOSTILE}",))
    with served(lambda: hostile) as page:
        page.data.recent = lambda: RecentFigures(30.0, {HOSTILE: figures(3)})
        page.data.changes = lambda: (Change(NOW, 12, Action.LIVE, HOSTILE, causes=(HOSTILE,)),)
        found = overview(page)
        routes = ask(page, "/routes.json")
    assert HOSTILE in found["changes"][0]["text"]
    assert any(each["about"] == f"Service demo/{HOSTILE}" for each in found["findings"])
    commands = [found["headline"]["command"], *(each["command"] for each in found["findings"])]
    for command in filter(None, commands):
        assert shlex.split(command) == re.findall(r"[\w./-]+", command), command
    assert routes[2]["content-type"] == "application/json"
    assert json.loads(routes[1])["rows"][0][0] == HOSTILE


def test_no_secret_is_in_what_the_page_shows() -> None:
    secret = Refusal(ObjectRef("Secret", "demo", "tls"), "tls.key", "c2VjcmV0", RefusalReason.UNREADABLE, "not PEM")
    problem = "https://me:hunter2@10.0.0.1: 401 for Bearer abcdef0123456789"
    status = replace(SAMPLE, refused=(secret,), problems=(problem,), haproxy=HaproxyState(up=False, cause=problem))
    for phase in (Phase.DOWN, Phase.REJECTED):
        with served(lambda phase=phase: replace(status, phase=phase)) as page:  # type: ignore[misc]
            body = ask(page, "/page.json")[1]
        assert not any(word in body for word in ("hunter2", "abcdef0123456789", "c2VjcmV0"))


# The headline


@pytest.mark.parametrize(
    ("changes", "level", "sentence", "command"),
    [
        ({}, Grade.GOOD, "Everybody is served, and nothing is left out", ""),
        (
            {"refused": (refusal(1), refusal(1), refusal(2))},
            Grade.WARNING,
            "2 objects are left out",
            "pyconfd explain --all-refused",
        ),
        (
            {"live": LiveStatus(down=(BackendDown("be-a", 2, NOW),), down_total=3)},
            Grade.BAD,
            "3 backends are without a server that is up",
            "pyconfd explain be-a",
        ),
        (
            {"phase": Phase.DOWN, "haproxy": HaproxyState(up=False, cause="killed", remedy="systemctl start haproxy")},
            Grade.BAD,
            "Nobody is served: HAProxy does not run (killed)",
            "systemctl start haproxy",
        ),
        ({"phase": Phase.WAITING, "generation": None}, Grade.BAD, "Nothing is served yet", "pyconfd preflight"),
        ({"now": NOW + 400}, Grade.BAD, "pyconfd hangs", "systemctl restart pyconfd"),
        (
            {"phase": Phase.REJECTED, "problems": ("07-a.tmpl: wrong\n    -> pyconfd check",)},
            Grade.WARNING,
            "the newest change was rejected: 07-a.tmpl: wrong",
            "pyconfd check",
        ),
        ({"phase": Phase.FAILED}, Grade.WARNING, "the newest change failed", "pyconfd status"),
        ({"hold_id": "abc"}, Grade.WARNING, "held back", "pyconfd allow abc"),
        ({"live": LiveStatus(paused=Paused(NOW))}, Grade.WARNING, "paused", "pyconfd resume"),
        (
            {"source": SourceHealth(synced=True, last_sync_at=NOW - 500)},
            Grade.WARNING,
            "old data",
            "pyconfd status",
        ),
        ({"problems": ("status.listen: taken",)}, Grade.WARNING, "problem: status.listen: taken", "pyconfd status"),
        ({"phase": Phase.SERVING_LAST_GOOD}, Grade.WARNING, "last good", "pyconfd status"),
    ],
)
def test_whether_everybody_is_served(changes: dict[str, Any], level: Grade, sentence: str, command: str) -> None:
    headline = headline_of(replace(WELL, **changes))
    assert (headline.level, headline.command) == (level, command)
    assert sentence in headline.sentence


def test_the_worst_comes_first_and_all_are_counted() -> None:
    expired = Refusal(ObjectRef("Secret", "a", "z"), "", "", RefusalReason.CERTIFICATE_EXPIRED, "expired")
    soon = replace(expired, reason=RefusalReason.CERTIFICATE_EXPIRES_SOON)
    ignored = replace(expired, reason=RefusalReason.IGNORED_ANNOTATION)
    status = replace(
        WELL,
        problems=("haproxy: is ill\n    -> look",),
        live=LiveStatus(down=(BackendDown("be-a", 2, NOW),), down_total=1),
        refused=tuple(refusal(each) for each in range(100)),
        notes=(soon, expired, ignored),
    )
    found, total = findings(status, FINDINGS_SHOWN)
    assert total == 104
    assert len(found) == FINDINGS_SHOWN
    assert [each.about for each in found[:4]] == ["haproxy", "be-a", "Secret a/z", "Service demo/shop-00"]
    assert [each.level for each in found] == sorted((each.level for each in found), reverse=True)
    assert (found[0].command, found[0].remedy) == ("", "look"), "what is no command is not shown as one"


def test_an_api_server_that_fails_is_named_and_is_worse_where_none_answers() -> None:
    away = ApiServerState("https://10.0.0.1:6443", last_error="cannot connect: refused\n    -> is it up?")
    well = ApiServerState("https://10.0.0.2:6443", healthy=True, last_ok_at=NOW)
    source = replace(WELL.source, api_servers=(away, well))
    (found,), total = findings(replace(WELL, source=source), FINDINGS_SHOWN)
    assert (found.level, found.about, total) == (Grade.WARNING, "API server https://10.0.0.1:6443", 1)
    assert (found.text, found.remedy, found.command) == ("cannot connect: refused", "is it up?", "pyconfd status")
    status = replace(WELL, source=replace(source, api_servers=(away,)))
    assert findings(status, FINDINGS_SHOWN)[0][0].level is Grade.BAD
    assert "no API server answers" in headline_of(status).sentence


def test_a_backend_that_is_down_says_why_as_far_as_haproxy_does() -> None:
    down = [
        BackendDown("be-a", 2, NOW, "L4CON Connection refused"),
        BackendDown("be-b", 1, NOW),
        BackendDown("c", 0, NOW),
    ]
    found, _ = findings(replace(WELL, live=LiveStatus(down=tuple(down), down_total=3)), FINDINGS_SHOWN)
    assert [each.text for each in found] == [
        "none of its 2 servers is up: L4CON Connection refused",
        "its only server is not up",
        "it has no server: the cluster has no ready endpoint for it",
    ]


@pytest.mark.parametrize(
    ("changes", "level", "sentence"),
    [
        ({}, Grade.GOOD, "Everybody is served"),
        ({"holds": False, "holder": "lb2"}, Grade.GOOD, "Everybody is served"),
        ({"alarms": ["split_brain"]}, Grade.WARNING, "floating address 10.0.0.9: split brain"),
        ({"holds": False, "holder": None}, Grade.BAD, "floating address 10.0.0.9: nobody holds it"),
    ],
)
def test_a_floating_address_that_nobody_holds_is_the_headline(
    changes: dict[str, Any], level: Grade, sentence: str
) -> None:
    data = PageData()
    data.floating = lambda: floating(**changes)
    found = json.loads(data.overview(lambda: WELL))
    assert found["headline"]["level"] == level.name.lower()
    assert sentence in found["headline"]["sentence"]
    assert found["findings_total"] == (level is not Grade.GOOD)


def test_what_pyconfd_vip_wrote_long_ago_is_not_taken_for_now() -> None:
    data = PageData()
    data.floating = lambda: floating(holds=False, holder=None) | {"is_old": True}
    found = json.loads(data.overview(lambda: WELL))
    assert found["headline"]["level"] == "warning"
    assert found["findings"][0]["command"] == "systemctl status pyconfd-vip"


# What it shows


def figures(requests: int, errors: int = 0) -> RouteFigures:
    return RouteFigures((0, requests - errors, 0, 0, errors), STEPS, requests, sessions=2)


def floating(**changes: Any) -> dict[str, Any]:
    router = {"addresses": ["10.0.0.9"], "holds": True, "holder": "lb1", "role_since": NOW, "drained": None}
    return {"at": NOW, "is_old": False, "routers": [router | {"faults": [], "alarms": []} | changes]}


def test_who_holds_the_floating_address_and_since_when() -> None:
    data = PageData()
    data.floating = lambda: floating(holds=False, holder=None, alarms=["split_brain"])
    router = json.loads(data.overview(lambda: SAMPLE))["floating"]["routers"][0]
    assert router == {
        "addresses": ["10.0.0.9"],
        "here": False,
        "holder": "",
        "since": NOW,
        "ails": ["split_brain"],
    }


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        (None, None),
        ({}, {"old_since": 0, "routers": []}),
        ({"at": 1.0, "is_old": False, "routers": [{"id": 51}]}, {"old_since": 0, "routers": []}),
    ],
)
def test_a_node_without_a_report_of_floating_addresses(report: Any, shown: Any) -> None:
    data = PageData()
    data.floating = lambda: report
    assert json.loads(data.overview(lambda: SAMPLE))["floating"] == shown


def test_a_report_that_nobody_renews_is_told_to_be_old() -> None:
    data = PageData()
    data.floating = lambda: floating() | {"is_old": True}
    assert json.loads(data.overview(lambda: SAMPLE))["floating"]["old_since"] == NOW


def test_plots_are_rates_between_samples() -> None:
    samples = [
        TrafficSample(NOW, 0.0, (0, 0, 0, 0, 0), (0,) * len(STEPS)),
        TrafficSample(NOW + 30, 30.0, (0, 270, 0, 0, 30), STEPS),
        TrafficSample(NOW + 60, 60.0, (0, 270, 0, 0, 30), STEPS),
    ]
    data = PageData()
    data.samples = lambda: samples
    assert json.loads(data.overview(lambda: SAMPLE))["traffic"] == {
        "at": [NOW + 30, NOW + 60],
        "requests": [10.0, 0.0],
        "errors": [1.0, 0.0],
        "p50": [0.002778, None],
        "p99": [0.0475, None],
        "seconds": 60,
        "requests_total": 300,
        "errors_total": 30,
    }


def test_routes_with_their_object_their_figures_and_what_is_wrong() -> None:
    refused = Refusal(ObjectRef("Service", "demo", "shop"), "", "", RefusalReason.INCOMPLETE, "lacks")
    live = LiveStatus(down=(BackendDown("ing_demo_shop_80", 1, NOW),), down_total=1)
    by_backend = {"ing_demo_shop_80": figures(300, 30), "be-redis": RouteFigures(connections=60, sessions=7)}
    with served(lambda: replace(WELL, refused=(refused,), live=live)) as page:
        page.data.recent = lambda: RecentFigures(30.0, by_backend)
        document = json.loads(ask(page, "/routes.json")[1])
    assert document["seconds"] == 30
    assert document["columns"] == list(COLUMNS)
    shop, redis = (dict(zip(COLUMNS, row, strict=True)) for row in document["rows"])
    expected = {"kind": "Service", "namespace": "demo", "name": "shop", "rule": "80", "http": True, "down": True}
    assert expected.items() <= shop.items()
    assert (shop["refused"], shop["requests"], shop["errors"], shop["p99"], shop["sessions"]) == (1, 10, 1, 0.0475, 2)
    assert (redis["http"], redis["connections"], redis["p50"], redis["kind"], redis["down"]) == (
        False,
        2,
        None,
        "",
        False,
    )


def test_before_the_second_reading_there_are_routes_without_rates() -> None:
    data = PageData()
    data.recent = lambda: RecentFigures(0.0, {"web": RouteFigures((0, 0, 0, 0, 0), (), 0)})
    (row,) = json.loads(data.routes(SAMPLE))["rows"]
    assert dict(zip(COLUMNS, row, strict=True))["requests"] == 0


def test_the_last_changes_with_what_they_cost(tmp_path: Path) -> None:
    written, read = ChangeLog(tmp_path), RecentChanges(str(tmp_path))
    assert read() == ()
    for number in range(CHANGES_SHOWN + 5):
        written.record(Change(NOW + number, number, Action.RELOAD, reasons=("section_added",), duration_s=0.219))
    written.flush()
    assert [each.generation for each in read()] == [*range(CHANGES_SHOWN + 4, 4, -1)]
    written.record(Change(NOW + 100, 77, Action.LIVE, "web +1 server", duration_s=0.0036))
    written.flush()
    data = PageData()
    data.changes = read
    shown = json.loads(data.overview(lambda: SAMPLE))["changes"]
    assert len(shown) == CHANGES_SHOWN
    assert shown[0] == {
        "at": NOW + 100,
        "action": "live",
        "text": "web +1 server, runtime update 3.6 ms, generation 77",
        "took_s": 0.0036,
    }
    assert "reload (section_added) 219 ms" in shown[1]["text"]
    read.close()


def test_what_the_first_screen_says_is_bounded_whatever_the_cluster_has() -> None:
    many = replace(WELL, refused=tuple(refusal(each) for each in range(20_000)), dns_names=("x" * 200,) * 20_000)
    body = PageData().overview(lambda: many)
    assert json.loads(body)["findings_total"] == 20_000
    assert len(body) < 64 * 1024


def test_former_workers_are_a_cost_that_is_shown() -> None:
    status = replace(SAMPLE, applying=ApplyingStatus(former=FormerWorkers(count=3)))
    assert json.loads(PageData().overview(lambda: status))["former_workers"] == 3
