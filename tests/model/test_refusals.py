"""What is refused: its order, and what is new."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.context import CERTIFICATE_NOTES, Refusal, RefusalReason, in_order, news
from pyconfd.model.kubernetes import ObjectRef

WEB, SHOP = ObjectRef("Service", "demo", "web"), ObjectRef("Ingress", "shop", "web")
ORDERED = (
    Refusal(SHOP, "spec.rules[0]", "a", RefusalReason.INVALID_VALUE, "no host"),
    Refusal(WEB, "domain", "a", RefusalReason.INCOMPLETE, "a"),
    Refusal(WEB, "domain", "a", RefusalReason.INVALID_VALUE, "a"),
    Refusal(WEB, "domain", "a", RefusalReason.INVALID_VALUE, "b"),
    Refusal(WEB, "domain", "b", RefusalReason.INCOMPLETE, "a"),
    Refusal(WEB, "proto", "a", RefusalReason.INCOMPLETE, "a"),
)


def test_each_is_there_once_whatever_came_first() -> None:
    for found in permutations(ORDERED):
        assert in_order(found, found[:2]) == ORDERED
    assert tuple(sorted(ORDERED)) == ORDERED
    assert in_order() == in_order((), ()) == ()


@given(st.lists(st.lists(st.sampled_from([*ORDERED, *map(replace, ORDERED)]), max_size=12), max_size=6))
def test_what_was_in_order_before_changes_nothing(rounds: list[list[Refusal]]) -> None:
    many = [
        Refusal(ObjectRef("Service", "many", f"{number:03}"), "", "", ORDERED[0].reason, "") for number in range(99)
    ]
    few: tuple[Refusal, ...] = ()
    all_ = in_order(many)
    for found in rounds:
        before = all_
        few, all_ = in_order(found, former=few), in_order(found, many, found[:1], former=all_)
        assert (few, all_) == (in_order(found), in_order(found, many))
        assert news(all_, before) == ({*all_} - {*before}, {*before} - {*all_})
        assert news(all_, few) == ({*all_} - {*few}, {*few} - {*all_})


A, B, C = ORDERED[:3]


@pytest.mark.parametrize(
    ("now", "before", "came", "gone"),
    [
        ((), (), (), ()),
        ((A, B), (A, B), (), ()),
        ((A, C), (A, B), (C,), (B,)),
        ((A,), (), (A,), ()),
        ((), (A,), (), (A,)),
        # An equal refusal that is another object is neither new nor gone.
        ((replace(A), B), (A, B), (), ()),
        ((replace(A), replace(C)), (A, B), (C,), (B,)),
    ],
)
def test_news_are_those_that_came_and_those_that_went(
    now: tuple[Refusal, ...], before: tuple[Refusal, ...], came: tuple[Refusal, ...], gone: tuple[Refusal, ...]
) -> None:
    assert news(now, before) == ({*came}, {*gone})


def test_nothing_is_left_out_for_a_note() -> None:
    notes = {reason for reason in RefusalReason if reason.is_note}
    assert notes == {*CERTIFICATE_NOTES, RefusalReason.IGNORED_ANNOTATION}
