"""How much an answer leaves out, and that it says so."""

import msgspec
import pytest

from pyconfd.explain.bounds import bounded
from pyconfd.model.condition import Condition, ConditionStatus, ConditionType
from pyconfd.model.explanation import ClaimReport, Explanation, InstanceState


def condition(type_: ConditionType, reason: str = "NameTaken") -> Condition:
    return Condition(type_, ConditionStatus.FALSE, reason)


def claim(name: str, names: int = 0, refused: int = 0) -> ClaimReport:
    conditions = (*[condition(ConditionType.ACCEPTED)] * refused, condition(ConditionType.PROGRAMMED, "NotAccepted"))
    return ClaimReport(f"Ingress shop/{name}", conditions, names=tuple(map(str, range(names))))


def explained(*claims: ClaimReport, query: str = "shop.example.com", candidates: int = 0) -> Explanation:
    possible = tuple(map(str, range(candidates)))
    return Explanation(query, 0.0, InstanceState("serving"), claims=claims, candidates=possible, notes=("kept",))


@pytest.mark.parametrize(
    "whole",
    [
        explained(),
        explained(*(claim(str(number), names=20, refused=4) for number in range(200))),
        explained(*(claim(str(number)) for number in range(5_000)), query=""),
        explained(candidates=200),
    ],
    ids=["nothing", "as many as there may be", "all that is refused", "meanings"],
)
def test_what_is_short_stays(whole: Explanation) -> None:
    assert bounded(whole) == whole


@pytest.mark.parametrize(
    ("whole", "shown", "note"),
    [
        (explained(*(claim(str(number)) for number in range(203))), 200, "3 more objects"),
        (explained(*(claim(str(number)) for number in range(5_002)), query=""), 5_000, "2 more objects"),
        (explained(candidates=1_201), 0, "1,001 more meanings"),
        (explained(claim("a", names=10_001), claim("b", names=3)), 2, "1 more names"),
        (explained(claim("a", refused=4_000)), 1, "3,000 more conditions"),
    ],
)
def test_what_is_left_out_is_counted(whole: Explanation, shown: int, note: str) -> None:
    found = bounded(whole)
    assert len(found.claims) == shown
    assert found.notes == ("kept", f"the answer leaves out {note}")
    assert len(found.candidates) <= 200


def test_the_last_stage_of_an_object_is_never_left_out() -> None:
    (found,) = bounded(explained(claim("a", refused=9_000))).claims
    assert [each.type for each in found.conditions] == [ConditionType.ACCEPTED] * 1_000 + [ConditionType.PROGRAMMED]


def test_the_longest_answer_is_far_below_what_a_command_reads() -> None:
    value = Condition(ConditionType.ACCEPTED, ConditionStatus.FALSE, "NameTaken", "x" * 400)
    claims = (
        ClaimReport(f"Ingress shop/{number}", (value,) * 1_000, names=("n" * 250,) * 1_000) for number in range(1_000)
    )
    assert len(msgspec.json.encode(bounded(explained(*claims)))) < 10 * 1024 * 1024
