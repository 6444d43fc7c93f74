"""``pyconfd plan --traffic``: the access log of a real HAProxy, replayed before and after a change."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import serving
from tests.presets.ingress.objects import ingress, ingress_class, path
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask

pytestmark = pytest.mark.haproxy

HOST = "ingress.example.com"
_OTHER = "is of other objects"


def replayed(appliance: Appliance, log: Path, *options: str, code: int) -> tuple[dict[str, Any], str]:
    """Return the report and what was said beside it."""
    done = appliance.run("plan", "--traffic", str(log), "--json", *options, "--config", str(appliance.config))
    assert done.returncode == code, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report, done.stderr


def carts_in(log: Path) -> int:
    return sum(json.loads(line)["path"].startswith("/cart/") for line in log.read_text().splitlines())


def test_a_real_log_is_replayed_before_and_after_a_change(appliance: Appliance, tmp_path: Path) -> None:
    serving(appliance)
    appliance.serve("web", {}, pods=1)
    appliance.cluster.load_object(ingress_class())
    rules = {HOST: [path("/cart", "shop:80"), path("/pay", "web:80")]}
    appliance.cluster.load_object(ingress("first", rules, namespace=NAMESPACE))
    appliance.until(lambda: ask(appliance.http, HOST, path="/pay").startswith("web-"), "the Ingress is served")
    log = tmp_path / "access.log"

    def logged() -> bool:
        """Ask, and write what is in HAProxy's memory: a reload on the way leaves it empty."""
        for number in range(5):
            ask(appliance.http, HOST, path=f"/cart/{number}")
        ask(appliance.http, "nobody.example.com", path='/"quoted\\')
        log.write_text(appliance.run("logs", "--json", "--config", str(appliance.config)).stdout)
        return "nobody.example.com" in log.read_text() and carts_in(log) >= 5

    appliance.until(logged, "all of them are logged")
    carts = carts_in(log)

    # Nothing changed. What was applied is on disk some time after a runtime update.
    appliance.until(lambda: _OTHER not in replayed(appliance, log, code=0)[1], "the generation is written")
    report, _ = replayed(appliance, log, code=0)
    assert report["requests"] == report["same"] == len(log.read_text().splitlines())
    assert report["unknown"] == report["unreadable"] == 0

    recorded = tmp_path / "after.yaml"
    assert appliance.run("record", "--config", str(appliance.config), str(recorded)).returncode == 0
    changed = recorded.read_text().replace("path: /cart", "path: /basket")
    recorded.write_text(changed)
    assert "path: /basket" in changed
    report, _ = replayed(appliance, log, "--snapshot", str(recorded), code=2)
    assert (report["changed"], report["depends"], report["unknown"]) == (carts, 0, 0)
    (group,) = report["groups"]
    assert [each["target"] for each in group["targets"]] == [f"GET {HOST}/cart/*"]
    assert (group["before"].split()[1], group["after"]) == (f"ing_{NAMESPACE}_shop_80", "status 404")
    assert {each["request"] for each in group["examples"]} <= {f"GET {HOST}/cart/{number}" for number in range(5)}

    # Applying is paused: the applied configuration is of other objects than the cluster has, and that is said.
    assert appliance.run("pause", "--config", str(appliance.config)).returncode == 0
    rules = {HOST: [path("/cart", "web:80"), path("/pay", "web:80")]}
    appliance.cluster.load_object(ingress("first", rules, namespace=NAMESPACE))
    _, said = replayed(appliance, log, code=0)
    assert _OTHER in said
