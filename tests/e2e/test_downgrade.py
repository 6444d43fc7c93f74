"""A downgrade: an older pyconfd meets settings and state that a newer one wrote, while haproxy serves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import complaints, serving, undisturbed
from tests.world.appliance import Appliance

pytestmark = pytest.mark.haproxy

Change = Callable[[dict[str, Any]], dict[str, Any]]


def with_more(document: dict[str, Any]) -> dict[str, Any]:
    """As a newer version would write it that keeps more."""
    return {**document, "of_a_newer_version": {"list": [1, 2], "text": "x"}}


def in_another_format(document: dict[str, Any]) -> dict[str, Any]:
    """As a newer version would write it that keeps something else."""
    return {**document, "format": 99} if "format" in document else document


def rewritten(value: Any, change: Change) -> Any:
    if isinstance(value, dict):
        return change({key: rewritten(held, change) for key, held in value.items()})
    return [rewritten(held, change) for held in value] if isinstance(value, list) else value


def rewrite(folder: Path, change: Change) -> list[str]:
    """Rewrite what is JSON in the state directory; return the names of the files that are different."""
    changed = []
    for path in folder.rglob("*.json"):
        before = json.loads(path.read_text())
        # Inputs are found by the digest of their bytes.
        after = before if path.parent.name == "inputs" else rewritten(before, change)
        if after != before:
            path.write_text(json.dumps(after))
            changed.append(path.name)
    return changed


def test_settings_and_state_with_more_in_them_are_read_and_what_is_ignored_is_said(appliance: Appliance) -> None:
    appliance.values["log"] = {"format": "json"}
    serving(appliance)
    pod = appliance.scale_up("shop")
    appliance.until(lambda: appliance.ask("shop") == pod, f"{pod} serves")
    appliance.until(appliance.settled, "it is verified")
    by_hand = appliance.run("server", "drain", "127.18.10.1", "--all", "--config", str(appliance.config))
    assert by_hand.returncode == 0, by_hand.stderr
    generation = appliance.generation
    with undisturbed(appliance):
        assert appliance.stop() == 0
        names = rewrite(appliance.folder / "state", with_more)
        assert {"meta.json", "overrides.json"} <= set(names), names
        appliance.values[""]["settings_version"] = "999.0.0"
        appliance.values["brand_new"] = {"key": 1}
        appliance.log.unlink()
        appliance.spawn()
        appliance.until(appliance.settled, "the older version serves")
        assert appliance.generation == generation
    # What was set by hand holds still, and the history can be read.
    assert {appliance.ask("shop") for _ in range(8)} == {pod}
    told = complaints(appliance)
    assert [line["event"] for line in told] == ["settings.noted"], told
    assert "brand_new: ignored, " in told[0]["note"]
    assert "999.0.0" in told[0]["note"]
    rows = json.loads(appliance.command("history", "--json").stdout)
    assert rows


def test_state_in_another_format_is_left_alone_and_named_and_nothing_is_interrupted(appliance: Appliance) -> None:
    appliance.values["log"] = {"format": "json"}
    serving(appliance)
    with undisturbed(appliance):
        assert appliance.stop() == 0
        assert "meta.json" in rewrite(appliance.folder / "state", in_another_format)
        appliance.log.unlink()
        appliance.spawn()
        appliance.until(appliance.settled, "the older version serves")
        pod = appliance.scale_up("shop")
        appliance.until(lambda: appliance.ask("shop") == pod, f"{pod} serves")
    assert complaints(appliance, "format 99 is not"), appliance.tail()
