"""The alert rules: promtool accepts them, each fires when it should and not before, and says what to do."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.examples import ROOT
from tests.docs.exported import RULES, Exported, promtool, rules, unknown

pytestmark = pytest.mark.haproxy

ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
CASES = yaml.safe_load((ROOT / "tests" / "docs" / "alerts.yml").read_text(encoding="utf-8"))
RUNBOOK = ROOT / "docs" / "runbook"
HEADINGS = ["## What it means", "## What to look at", "## What to type", "## When it ends"]
_INSTALLED = "/usr/share/doc/pyconfd/docs/runbook"
A_DAY = "3h"
"""What an alert calls yesterday, where promtool evaluates each minute until then."""
_MINUTES = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}


def test_each_alert_has_a_case_and_a_page() -> None:
    assert set(CASES) == set(ALERTS)
    assert {page.stem for page in RUNBOOK.glob("*.md")} == {*ALERTS, "index"}
    rows = re.findall(
        r"^\| \[(\w+)\]\(\1\.md\) \| (\w+) \|", (RUNBOOK / "index.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert dict(rows) == {alert: rule["labels"]["severity"] for alert, rule in ALERTS.items()}


@pytest.mark.parametrize("rule", [*rules()], ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_what_is_exported(rule: Mapping[str, Any], known: Exported) -> None:
    assert not unknown(rule["expr"], known)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_it_means_and_what_to_do(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert re.fullmatch(rf".+, then {_INSTALLED}/{alert}\.md", rule["annotations"]["runbook"])
    page = (RUNBOOK / f"{alert}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {alert}\n")
    assert re.findall(r"^## .*$", page, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("case", CASES)
def test_a_case_uses_series_that_are_exported(case: str, known: Exported) -> None:
    for series in [CASES[case]["series"], *CASES[case].get("also", ()), *CASES[case].get("quiet", ())]:
        assert not [each for name in series for each in unknown(name, known, values=False)]
        assert not [name for name, values in series.items() if not isinstance(values, str)], "quote it"


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_alerts_fire_when_they_should_and_not_before(path: Path, tmp_path: Path) -> None:
    promtool("check", "rules", path)
    hours = tmp_path / path.name
    hours.write_text(path.read_text(encoding="utf-8").replace("offset 1d", f"offset {A_DAY}"))
    tests = [test for alert, rule in ALERTS.items() if rule["file"] == path for test in _tests(alert)]
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(hours)], "tests": tests}))
    promtool("test", "rules", file)


def _tests(alert: str) -> list[dict[str, Any]]:
    """Return the case of an alert in promtool's words."""
    rule, case = ALERTS[alert], CASES[alert]
    begins = case.get("from", 10)
    amount, unit = re.fullmatch(r"(\d+)(\w)", rule.get("for", "0m")).groups()  # type: ignore[union-attr]
    fires = begins + math.ceil(int(amount) * _MINUTES[unit])
    ours = f'alertname="{alert}"'
    # Labels that its texts name have to be there.
    named = "".join(f',{label}!=""' for label in sorted(set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))))
    expected = [(begins - 1, ""), *([(fires - 1, "pending")] if fires > begins else []), (fires, "firing")]
    asked = [
        {
            "expr": f"group by (alertstate) (ALERTS{{{ours}{named if state else ''}}})",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertstate="{state}"}}', "value": 1}] if state else [],
        }
        for minute, state in expected
    ]
    never = {"expr": f"ALERTS{{{ours}}}", "eval_time": f"{fires}m"}
    return [
        {"interval": "1m", "input_series": _inputs(series), "promql_expr_test": checks}
        for series, checks in [
            (case["series"], asked),
            *((each, asked[-1:]) for each in case.get("also", ())),
            *((each, [never]) for each in case.get("quiet", ())),
        ]
    ]


def _inputs(series: Mapping[str, str]) -> list[dict[str, str]]:
    """Return series in promtool's words, with the labels that scraping adds."""
    found = []
    for name, values in series.items():
        metric, _, own = name.removesuffix("}").partition("{")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', 'job="pyconfd",instance="lb-1",' + own))
        written = ",".join(f'{label}="{value}"' for label, value in labels.items())
        found.append({"series": f"{metric}{{{written}}}", "values": values})
    return found
