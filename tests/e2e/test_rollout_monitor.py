"""A change that makes things worse: under load, with a real haproxy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import all_is_well, beats, complaints, edit, serving
from tests.world.appliance import Appliance
from tests.world.clients import Crowd

pytestmark = pytest.mark.haproxy

FRAGMENT = "02-http.tmpl"
WRONG = "127.0.0.1:9"


@contextmanager
def load(appliance: Appliance) -> Iterator[Crowd]:
    crowd = Crowd(appliance.http, "shop.example.com", clients=2, pause_s=0.01)
    try:
        yield crowd
    finally:
        crowd.stop()


def ready(appliance: Appliance) -> Path:
    """Serve under settings that judge quickly; return the fragment to break."""
    appliance.values["history"] = {"rollout_monitor_s": 120}
    directory = appliance.own_fragments()
    serving(appliance, pods=2)
    return directory / FRAGMENT


def seen_before(appliance: Appliance, crowd: Crowd) -> None:
    """Wait until so much was asked, and looked at, that there is something to compare with."""
    crowd_had = crowd.seen().total() + 100
    appliance.until(lambda: crowd.seen().total() > crowd_had, "there is traffic")
    beats(appliance, 5)


def broken(text: str) -> str:
    return text.replace("{{ server.target }}", WRONG)


def alarm(appliance: Appliance) -> dict[str, Any]:
    found: dict[str, Any] = appliance.status()["rollout"]["alarm"] or {}
    return found


def test_an_edit_that_breaks_a_backend_raises_an_alarm_that_names_it(appliance: Appliance) -> None:
    fragment = ready(appliance)
    good = fragment.read_text()
    with load(appliance) as crowd:
        seen_before(appliance, crowd)
        edit(fragment, broken(good))
        appliance.until(lambda: alarm(appliance), "the alarm is raised")
        raised = alarm(appliance)
        assert raised["generation"] == appliance.generation
        assert "fragments or settings were edited" in raised["change"]
        assert "be-demo-shop" in raised["change"] or "shop" in raised["change"]
        shown = appliance.command("status")
        assert shown.returncode == 1
        assert f"since generation {raised['generation']} after" in shown.stdout
        assert "pyconfd rollback" in shown.stdout
        metrics = appliance.get("/metrics")[1]
        assert "pyconfd_rollout_alarm 1.0" in metrics
        assert "pyconfd_rollout_alarms_total 1.0" in metrics
        assert len(complaints(appliance, "rollout.alarm_raised")) == 1
        beats(appliance)
        assert appliance.status()["pin"] is None  # the monitor only reports
        assert crowd.seen()["503"] > 0
        assert appliance.command("rollback").returncode == 0
        appliance.until(lambda: not alarm(appliance), "the alarm ends when all is well")
    assert appliance.events("rollout.alarm_cleared")
    assert appliance.ask("shop").startswith("shop-")
    edit(fragment, good)
    beats(appliance)
    assert appliance.command("unpin").returncode == 0
    all_is_well(appliance)
