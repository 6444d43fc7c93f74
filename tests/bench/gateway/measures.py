"""What one test measured, as values and as a line of JSON."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

OK, NOT_FOUND = 200, 404
_RELOADS = re.compile(r'^pyconfd_reloads_total\{reason="(\w+)"\} (\S+)$', re.MULTILINE)


class Outcome(StrEnum):
    """What an answer to a probe is."""

    WAITING = "waiting"
    RIGHT = "right"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` is 0 where there was none; header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


def judge(answer: Answer, *, served: bool, headers: Mapping[str, str]) -> Outcome:
    """Judge an answer: before the first right one 404 is right to wait for, and after it only the right one is.

    gateway-api-bench counts everything but 404 and 200 as an error; here a 200 without the route's header is one too.
    """
    if answer.status == OK and all(answer.headers.get(name) == value for name, value in headers.items()):
        return Outcome.RIGHT
    return Outcome.WAITING if answer.status == NOT_FOUND and not served else Outcome.WRONG


def percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least ``part`` of all do not exceed (the nearest rank). Raises: ValueError."""
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def times(seconds: Sequence[float]) -> dict[str, float]:
    """Return the usual percentiles, in milliseconds."""
    return {
        "p50_ms": round(percentile(seconds, 0.5) * 1000, 1),
        "p99_ms": round(percentile(seconds, 0.99) * 1000, 1),
        "max_ms": round(max(seconds) * 1000, 1),
        "measured": len(seconds),
    }


def parsed(head: bytes) -> Answer:
    """Parse the head of an answer. Raises: ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/"):
        raise ValueError(f"not an HTTP answer: {first[:60]!r}")
    fields = (line.partition(":") for line in lines if line)
    return Answer(int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in fields})


def reload_reasons(metrics: str) -> Counter[str]:
    """Return how many reloads had which reason, from the text of ``/metrics``."""
    found = _RELOADS.findall(metrics)
    return Counter({reason: int(float(count)) for reason, count in found})


def line(test: str, figures: Mapping[str, object]) -> str:
    """Return what is printed of one test."""
    return json.dumps({"test": test, **figures})


def wrk_figures(text: str) -> dict[str, float]:
    """Parse what ``wrk --latency`` prints. Raises: ValueError."""
    found: dict[str, float] = {"errors": 0}
    for row in map(str.split, text.splitlines()):
        if len(row) == 2 and row[0] in {"50%", "90%", "99%"}:
            found[f"p{row[0][:-1]}_ms"] = _milliseconds(row[1])
        elif row[:1] == ["Requests/sec:"]:
            found["requests_per_s"] = float(row[1])
        elif row[1:3] == ["requests", "in"]:
            found["requests"] = int(row[0])
        elif row[:2] == ["Socket", "errors:"]:
            found["errors"] += sum(int(word.rstrip(",")) for word in row[3::2])
        elif row[:3] == ["Non-2xx", "or", "3xx"]:
            found["errors"] += int(row[-1])
    if "requests_per_s" not in found:
        raise ValueError(f"wrk printed no figures: {text[-300:]!r}")
    return found


def _milliseconds(text: str) -> float:
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0), ("m", 60_000.0)):
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * factor, 3)
    raise ValueError(f"no duration: {text!r}")
