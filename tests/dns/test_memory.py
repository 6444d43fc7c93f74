"""What a restart must not forget of names, also where another version wrote it."""

import json
from pathlib import Path

import pytest
import structlog

from pyconfd.dns.memory import STANDINGS, stored_asked, stored_standings
from pyconfd.settings import Settings, resolve


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve({"state_dir": str(tmp_path)}, {}, lambda _: "").settings


def test_more_than_this_version_knows_takes_nothing_away(settings: Settings) -> None:
    withdrawn = {"active": False, "withdrawn_at": 7.0, "joins": [1.0], "since_later": {"x": 1}}
    document = {"192.0.2.10": withdrawn, "format": 2}
    (Path(settings.state_dir) / STANDINGS).write_text(json.dumps(document))
    with structlog.testing.capture_logs() as logs:
        found = stored_standings(settings)
    assert {vip: (each.active, each.withdrawn_at, each.joins) for vip, each in found.items()} == {
        "192.0.2.10": (False, 7.0, (1.0,))
    }
    assert [line["entry"] for line in logs] == ["format"]


def test_what_cannot_be_read_is_said(settings: Settings) -> None:
    with structlog.testing.capture_logs() as logs:
        assert stored_standings(settings) == {}
        assert stored_asked(settings) == {}
    assert logs == []
    for name in ("dns.json", "dns-names.json"):
        (Path(settings.state_dir) / name).write_text("{")
    with structlog.testing.capture_logs() as logs:
        assert stored_standings(settings) == {}
        assert stored_asked(settings) == {}
    assert [line["event"] for line in logs] == ["dns_memory.unreadable"] * 2
