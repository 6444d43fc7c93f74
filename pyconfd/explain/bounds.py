"""How long an answer may be: what tenants ask for, and are refused, is as much as they like. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pyconfd.model.condition import Condition, ConditionType
from pyconfd.model.explanation import ClaimReport, Explanation

_MOST_CLAIMS = 200
_MOST_REFUSED_OBJECTS = 5_000
"""Where everything that is refused was asked for."""
_MOST_OF_ALL_CLAIMS = {"conditions": 4_000, "names": 20_000, "servers": 20_000, "endpoints": 20_000}
"""Shared out equally, so that no object's hide those of another. Together they take a few MiB."""
_LEAST_OF_A_CLAIM = 4


def bounded(found: Explanation) -> Explanation:
    """Return an answer that is far shorter than what the client reads; a note says how much was left out."""
    claims = found.claims[: _MOST_CLAIMS if found.query else _MOST_REFUSED_OBJECTS]
    candidates = found.candidates[:_MOST_CLAIMS]
    shorter = tuple(_bounded_claim(each, len(claims)) for each in claims)
    counts = {
        "objects": len(found.claims) - len(claims),
        "meanings": len(found.candidates) - len(candidates),
        **{part: _count(claims, part) - _count(shorter, part) for part in _MOST_OF_ALL_CLAIMS},
    }
    left_out = ", ".join(f"{count:,} more {what}" for what, count in counts.items() if count)
    notes = (*found.notes, *([f"the answer leaves out {left_out}"] if left_out else ()))
    return msgspec.structs.replace(found, claims=shorter, candidates=candidates, notes=notes)


def _count(claims: Sequence[ClaimReport], part: str) -> int:
    return sum(len(getattr(each, part)) for each in claims)


def _bounded_claim(claim: ClaimReport, claims: int) -> ClaimReport:
    most = {part: max(_LEAST_OF_A_CLAIM, number // claims) for part, number in _MOST_OF_ALL_CLAIMS.items()}
    if all(len(getattr(claim, part)) <= number for part, number in most.items()):
        return claim
    parts: dict[str, Any] = {part: getattr(claim, part)[:number] for part, number in most.items()}
    parts["conditions"] = tuple(_some_of_each(claim.conditions, most["conditions"] // len(ConditionType)))
    return msgspec.structs.replace(claim, **parts)


def _some_of_each(conditions: Sequence[Condition], most: int) -> Iterator[Condition]:
    """Return so many conditions of each stage: the last one says whether the object is served."""
    seen: Counter[ConditionType] = Counter()
    for each in conditions:
        seen[each.type] += 1
        if seen[each.type] <= most:
            yield each
