"""``make fuzz``: hostile tenants against every preset until the time is over; exits 1 with what they achieved."""

import argparse
import json
import secrets
import sys
import tempfile
import time

from tests.fuzz import injection, neighbours, ownership, pods
from tests.fuzz.fuzz import SCENES, run

_SHOWN = 20
_STORIES = {"ownership": ownership.run, "neighbours": neighbours.run, "words": injection.run}
"""Scenes of which one case is many steps."""


def main() -> int:
    """Run rounds of cases over all scenes and print one JSON object for each scene."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run; default: a new one, which is printed")
    options = parser.parse_args()
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    deadline = time.monotonic() + options.seconds
    cases = dict.fromkeys((*SCENES, *pods.PRESETS, *_STORIES), 0)
    findings: dict[str, list[str]] = {name: [] for name in cases}
    first = 0
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        while time.monotonic() < deadline:
            numbers = range(first, first + 100)
            for name in cases:
                if name in SCENES:
                    findings[name] += map(str, run(SCENES[name], seed, numbers))
                elif name in _STORIES:
                    few = range(numbers.start // 10, numbers.stop // 10)
                    findings[name] += _STORIES[name](seed, few, folder)
                    cases[name] += len(few) - len(numbers)
                else:
                    findings[name] += (
                        each for number in numbers for each in pods.judge(pods.case_of(name, seed, number))
                    )
                cases[name] += len(numbers)
            first = numbers.stop
    for name, count in cases.items():
        print(json.dumps({"scene": name, "seed": seed, "cases": count, "findings": len(findings[name])}))
    for each in [each for found in findings.values() for each in found][:_SHOWN]:
        print(each, file=sys.stderr)
    return 1 if any(findings.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
