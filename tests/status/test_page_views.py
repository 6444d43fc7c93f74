"""What the page asks for on request: bounded, without queries and secrets, and refused in words."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pyconfd.app import page_views as views
from pyconfd.app.page_views import page_views
from pyconfd.haproxy.runtime.request_log import NoRing
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.changes import Action, Change
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import Quarantined, QuarantineStatus
from pyconfd.model.traffic import TrafficRates
from pyconfd.settings import Settings
from pyconfd.settings.sections import HaproxySettings
from pyconfd.status.changes import ChangeLog
from pyconfd.status.page_more import SHOWN, more_of
from tests.model.test_logged import REQUEST
from tests.status.conftest import NOW, SAMPLE
from tests.status.serving import ask, served


def settings_in(folder: Path) -> Settings:
    conf = folder / "haproxy.cfg"
    conf.write_text("global\n    stats socket /run/none.sock\n")
    return replace(
        Settings(), runtime_dir=str(folder), state_dir=str(folder), haproxy=replace(HaproxySettings(), conf=str(conf))
    )


def logged(**changes: Any) -> bytes:
    return json.dumps(msgspec.json.decode(json.dumps(REQUEST)) | changes).encode()


def test_the_errors_of_a_route_are_its_own_and_have_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        logged(backend="be-shop", status=200, path="/fine"),
        logged(backend="be-shop", status=503, path="/cart?token=hunter2"),
        logged(backend="be-other", status=503, path="/be-shop"),
    ]
    monkeypatch.setattr(views, "lines", lambda _: iter(found))
    asked = page_views(settings_in(tmp_path), lambda: SAMPLE)["/route.json"]
    (error,) = json.loads(asked("backend=be-shop"))["errors"]
    assert "/cart" in error
    assert "hunter2" not in error
    monkeypatch.setattr(views, "lines", lambda _: iter(found[1:2] * 10_000))
    assert len(json.loads(asked("backend=be-shop"))["errors"]) == views.ERRORS_SHOWN

    def without(_: str) -> None:
        raise NoRing

    monkeypatch.setattr(views, "lines", without)
    assert "no log in memory" in json.loads(asked("backend=be-shop"))["errors_note"]


def test_the_hour_of_a_route_is_given_by_column(tmp_path: Path) -> None:
    rates = {"be-shop": [(100.4, TrafficRates(2.0, 0.5, 0.01, None)), (130.0, TrafficRates(0.0, 0.0, None, None))]}
    asked = page_views(settings_in(tmp_path), lambda: SAMPLE, lambda backend: rates.get(backend, []))["/route.json"]
    assert json.loads(asked("backend=be-shop"))["traffic"] == {
        "at": [100, 130],
        "requests": [2.0, 0.0],
        "errors": [0.5, 0.0],
        "p50": [0.01, None],
        "p99": [None, None],
    }
    assert json.loads(asked("backend=be-other"))["traffic"]["at"] == []


def test_the_changes_of_a_route_are_those_that_name_it_or_its_object(tmp_path: Path) -> None:
    changes = ChangeLog(tmp_path)
    for text, cause in (("be-shop +1 server", ""), ("be-shop-2 +1 server", ""), ("map", "Service a/shop"), ("map", "")):
        changes.record(Change(NOW, 1, Action.LIVE, text, causes=(cause,) if cause else ()))
    assert changes.flush()
    asked = page_views(settings_in(tmp_path), lambda: SAMPLE)["/route.json"]
    found = json.loads(asked("backend=be-shop&object=Service+a/shop"))["changes"]
    assert [each["text"].split(",")[0] for each in found] == ["map", "be-shop +1 server"]


@pytest.mark.parametrize(
    ("host", "secret"),
    [("a.b.c", "a/own"), ("x.b.c", "a/wild"), ("x.y.c", "a/default")],
    ids=["own", "wild", "default"],
)
def test_the_certificate_of_a_host(tmp_path: Path, host: str, secret: str) -> None:
    certificates = tuple(
        PresentedCertificate("a", name, of, int(NOW))
        for name, of in (("own", "a.b.c"), ("wild", "*.b.c"), ("default", ""))
    )
    asked = page_views(settings_in(tmp_path), lambda: replace(SAMPLE, certificates=certificates))["/route.json"]
    assert json.loads(asked(f"host={host}"))["certificates"] == [{"host": host, "of": secret, "not_after": NOW}]


def test_what_is_seldom_looked_at_is_bounded() -> None:
    many = tuple(
        Quarantined(ObjectRef("Service", "a", f"s{each}"), "", "check", "x" * 900, NOW) for each in range(5_000)
    )
    status = replace(SAMPLE, quarantine=QuarantineStatus(many), dns_names=("x" * 200,) * 20_000)
    found = more_of(status)
    assert (len(found["quarantine"]), found["quarantine_total"]) == (SHOWN, 5_000)
    assert (len(found["dns_names"]), found["dns_names_total"]) == (SHOWN, 20_000)
    assert len(json.dumps(found)) < 256 * 1024


@pytest.mark.parametrize("query", ["", "from=1", "from=a&to=b", "from=1&to=2"])
def test_a_difference_that_cannot_be_had_says_why(tmp_path: Path, query: str) -> None:
    with served(lambda: SAMPLE) as page:
        page.views = page_views(settings_in(tmp_path), lambda: SAMPLE)
        code, body, headers = ask(page, f"/diff.json?{query}")
    assert (code, headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert "generation" in body


@pytest.mark.parametrize("path", ["/more.json", "/diff.json", "/route.json"])
def test_another_name_of_the_machine_gets_none_of_it(tmp_path: Path, path: str) -> None:
    with served(lambda: SAMPLE) as page:
        page.views = page_views(settings_in(tmp_path), lambda: SAMPLE)
        assert ask(page, path, host="evil.example")[0] == 403
