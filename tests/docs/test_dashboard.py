"""docs/grafana/pyconfd.json: what it asks for exists, promtool parses it, and each panel shows something."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Sample

from tests.docs.examples import ROOT
from tests.docs.exported import Exported, promtool, unknown

pytestmark = pytest.mark.haproxy

DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "pyconfd.json").read_text(encoding="utf-8"))
PANELS = DASHBOARD["panels"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
_GROWS = ("_total", "_bucket", "_count", "_sum")


def _targets() -> Iterator[dict[str, Any]]:
    for panel in PANELS:
        yield from panel.get("targets", ())


def _expression(target: dict[str, Any]) -> str:
    """Return what Grafana asks for, with values for its variables."""
    return str(target["expr"]).replace("$__rate_interval", "5m").replace("$instance", ".*")


TARGETS = [*_targets()]
EXPRESSIONS = [_expression(target) for target in TARGETS]


def test_it_imports_as_it_is() -> None:
    """Grafana asks for nothing: the data source is a variable, and no id is of another installation."""
    assert DASHBOARD["schemaVersion"] >= 38
    assert "id" not in DASHBOARD
    sources = {each["datasource"]["uid"] for each in [*PANELS, *TARGETS, *VARIABLES.values()] if "datasource" in each}
    assert sources == {"${datasource}"}
    assert VARIABLES["datasource"]["type"] == "datasource"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([PANELS, [each["query"] for each in VARIABLES.values()]])))
    assert used <= {*VARIABLES, "__rate_interval"}


def test_panels_have_ids_and_places_of_their_own() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [
        (one, other)
        for one, other in combinations(places, 2)
        if one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    ]


@pytest.mark.parametrize("target", TARGETS, ids=_expression)
def test_a_query_asks_for_what_is_exported(target: dict[str, Any], known: Exported) -> None:
    shown = ",".join(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert not unknown(f"{_expression(target)} by ({shown})", known)


def test_variables_ask_for_what_is_exported(known: Exported) -> None:
    assert not unknown(VARIABLES["instance"]["query"]["query"], known)


def test_an_alert_or_page_that_a_panel_names_exists() -> None:
    named = set(re.findall(r"\b(?:Pyconfd|Haproxy)[A-Z]\w+", json.dumps(PANELS)))
    assert len(named) > 10
    assert not [each for each in named if not (ROOT / "docs" / "runbook" / f"{each}.md").exists()]
    assert not [each for each in re.findall(r"docs/[\w./]+\w", json.dumps(DASHBOARD)) if not (ROOT / each).exists()]


def test_each_panel_shows_something(exported: list[Sample], tmp_path: Path) -> None:
    """Of everything that is exported, where gauges are 1 and counters grow."""
    series = {}
    for sample in exported:
        labels = ",".join(f"{label}={json.dumps(value)}" for label, value in {**sample.labels, "instance": "a"}.items())
        series[f"{sample.name}{{{labels}}}"] = "0+1x20" if sample.name.endswith(_GROWS) else "1x20"
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    checks = [
        {"expr": f"count({each}) > bool 0", "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for each in EXPRESSIONS
    ]
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": checks}]}))
    promtool("test", "rules", file)
