"""Generated Ingresses of ingress-nginx by a real HAProxy, against what its documentation says of each request."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import yaml

from pyconfd.model.context import Context
from tests.moving.oracle import CHOICES, Ask, Made, documented, generated
from tests.moving.stage import Got, MovingStage, moving_stage

_CLOSED = frozenset({302, 400, 401, 403, 404, 405, 413, 503})
"""Where ingress-nginx answers so, an answer of the pod is open that was closed."""
_MOST_REASONS = 40


class Result(NamedTuple):
    """What became of an Ingress: ``same``, ``different`` or ``refused``, the reasons, and what is open."""

    made: Made
    verdict: str
    reasons: tuple[str, ...]
    opened: int
    requests: int


def judged(stage: MovingStage, made: Made, refusal: str, asks: Iterable[Ask]) -> Result:
    """Return how requests to an Ingress are answered."""
    wrong, opened, requests = dict[str, None](), 0, 0
    for ask in asks:
        got = stage.asked(ask)
        requests += 1
        if fault := got.fault(ask):
            wrong[f"{fault} ({'https' if ask.tls else 'http'} {ask.method})"] = None
            opened += _opens(ask, got)
    if not wrong:
        return Result(made, "same", (), 0, requests)
    if refusal:
        return Result(made, "refused", (refusal,), opened, requests)
    return Result(made, "different", tuple(wrong), opened, requests)


def _opens(ask: Ask, got: Got) -> bool:
    return got.status // 100 == 2 and 200 not in ask.statuses and bool(_CLOSED & set(ask.statuses))


def refusals(context: Context) -> dict[str, str]:
    """Return the first reason why an Ingress is not served as it is written, by its name."""
    told: dict[str, str] = {}
    for each in context.refused:
        if not each.reason.is_note:
            told.setdefault(each.ref.name, f"{each.field.removeprefix('annotation ')}: {each.reason.value}")
    return told


def report(results: list[Result]) -> None:
    """Print how many of each annotation, and in all, are the same."""
    sys.stdout.write(f"{'annotation':34} Ingresses  same  different  refused  open\n")
    for name in (*(choice.name for choice in CHOICES), "none"):
        of_name = [each for each in results if name in (each.made.counted or ("none",))]
        counts = Counter(each.verdict for each in of_name)
        opened = sum(each.opened for each in of_name)
        sys.stdout.write(
            f"{name:34} {len(of_name):9} {counts['same']:5} {counts['different']:10} {counts['refused']:8} {opened:5}\n"
        )
    sys.stdout.write("\n")
    reasons: dict[str, list[Made]] = {}
    for each in results:
        for reason in each.reasons:
            reasons.setdefault(f"{each.verdict}: {reason}", []).append(each.made)
    for reason, of_reason in sorted(reasons.items(), key=lambda item: -len(item[1]))[:_MOST_REASONS]:
        first = min(of_reason, key=lambda made: len(made.counted))
        sys.stdout.write(f"{len(of_reason):4}  {reason}, as {first.name}: {', '.join(first.counted)}\n")
    counts = Counter(each.verdict for each in results)
    total = ", ".join(f"{counts[each]} {each}" for each in ("same", "different", "refused"))
    share = 100 * counts["same"] / len(results)
    requests, opened = (sum(getattr(each, name) for each in results) for name in ("requests", "opened"))
    sys.stdout.write(f"{len(results)} Ingresses, {requests} requests: {total} ({share:.1f} % same); ")
    sys.stdout.write(f"{opened} open that were closed\n")


def main(stage: MovingStage, seed: int) -> int:
    """Print the table; return 1 where something is open that was closed."""
    ingresses = list(generated(seed))
    documents = (yaml.safe_dump(each) for made in ingresses for each in made.documents)
    told = refusals(stage.serving(*stage.beside, *documents))
    results = [judged(stage, made, told.get(made.name, ""), documented(made)) for made in ingresses]
    report(results)
    return 1 if any(each.opened for each in results) else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, moving_stage(Path(folder)) as stage_:
        sys.exit(main(stage_, int(sys.argv[1]) if len(sys.argv) > 1 else 1))
