"""What a run of the suite has shown: the tests from its output, the profiles from its report."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_RESULT = re.compile(r"^    --- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)$", re.MULTILINE)
_LEVELS = ("core", "extended")


def results(output: str) -> dict[str, tuple[str, float]]:
    """Return PASS, FAIL or SKIP and the seconds of each test that the suite has begun."""
    return {name: (result, float(seconds)) for result, name, seconds in _RESULT.findall(output)}


def table(report: Path) -> str:
    """Return passed, failed and skipped tests by profile, and the extended features that were tested."""
    document = yaml.safe_load(report.read_text(encoding="utf-8"))
    return "\n".join(_lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{'profile':<14}{'level':<10}{'passed':>7}{'failed':>7}{'skipped':>8}  result"
    features = set()
    for profile in sorted(document["profiles"], key=lambda each: str(each["name"])):
        for level in _LEVELS:
            if found := profile.get(level):
                numbers = found["statistics"]
                counts = f"{numbers['Passed']:>7}{numbers['Failed']:>7}{numbers['Skipped']:>8}"
                yield f"{profile['name']:<14}{level:<10}{counts}  {found['result']}"
                features |= set(found.get("supportedFeatures", ()))
    yield f"extended features: {len(features)}: {', '.join(sorted(features))}"
