from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.planner import DnsNode, NamePlan, Wish, adopt, doubt, drop, forget, plan, policy_of
from pyconfd.dns.records import (
    NameOwner,
    Policy,
    RecordSet,
    RefusedBatchError,
    marker_name,
    markers_of,
    owners_of,
    record_set,
)
from pyconfd.errors import Problem
from pyconfd.settings import Mode, NameSettings
from tests.dns.stage import NAME, SPEC, ZONE, beside, carry_out, foreign, node, turn, zone_with
from tests.dns.strict import StrictRoute53

PUBLISH, WITHDRAW = Wish.PUBLISH, Wish.WITHDRAW
SHARED, VIP = replace(SPEC, mode=Mode.SHARED), replace(SPEC, mode=Mode.VIP)
WEIGHTED = replace(SPEC, weight=10)
BY_HAND = "pyconfd never touches it: remove it by hand, or take another name"


def read(provider: StrictRoute53) -> tuple[RecordSet, ...]:
    return provider.records(ZONE.zone_id, NAME)


@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED, VIP], ids=["multivalue", "weighted", "shared", "vip"])
def test_a_node_publishes_both_addresses_and_says_whose_they_are(spec: NameSettings) -> None:
    provider = zone_with()
    assert turn(provider, spec, node(0, v6=True), PUBLISH).changes
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    assert provider.answer(NAME, "AAAA") == ("2001:db8::1",)
    (text,) = [value for value in provider.answer(marker_name(NAME), "TXT") if "node=" in value]
    assert text == '"heritage=pyconfd,owner=prod,node=n0,ip=192.0.2.1+2001:db8::1,seq=1"'
    assert turn(provider, spec, node(0, v6=True), PUBLISH) == NamePlan()


def test_health_check_weight_and_time_to_live_are_written_and_mended() -> None:
    provider = zone_with()
    turn(provider, SPEC, node(0), PUBLISH)
    spec = replace(SPEC, ttl_s=30, health_check_id="hc-1")
    turn(provider, spec, node(0), PUBLISH)
    (record,) = [item for item in read(provider) if item.type == "A"]
    assert (record.ttl_s, record.health_check_id, record.policy) == (30, "hc-1", Policy.MULTIVALUE)
    assert turn(provider, spec, node(0), PUBLISH) == NamePlan()
    other = zone_with()
    turn(other, WEIGHTED, node(0), PUBLISH)
    assert [(item.policy, item.weight) for item in read(other) if item.type == "A"] == [(Policy.WEIGHTED, 10)]


def test_a_time_to_live_of_one_record_set_is_mended_by_one_node() -> None:
    """Two nodes with other settings, as while one of them was not reloaded yet, do not take turns."""

    def answered(provider: StrictRoute53) -> tuple[int | None, int]:
        (record,) = [item for item in read(provider) if item.type == "A"]
        return record.ttl_s, len(record.values)

    for spec, writers in ((VIP, (0,)), (SHARED, (0, 1))):
        provider, count = zone_with(), len(writers)
        for number in writers:
            turn(provider, spec, node(number), PUBLISH)
        others = replace(spec, ttl_s=7)
        for number in reversed(writers):
            assert answered(provider) == (spec.ttl_s, count)
            turn(provider, others, node(number), PUBLISH)
        assert answered(provider) == (7, count)
        assert turn(provider, others, node(0), PUBLISH) == NamePlan()
        for number in writers[1:]:
            turn(provider, spec, node(number), PUBLISH)
        assert answered(provider) == (7, count)


@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED])
def test_a_node_withdraws_while_enough_others_answer_and_the_last_one_stays(spec: NameSettings) -> None:
    provider = zone_with()
    for number in range(3):
        turn(provider, spec, node(number, v6=True), PUBLISH)
    turn(provider, spec, node(0, v6=True), WITHDRAW)
    assert provider.answer(NAME, "A") == ("192.0.2.2", "192.0.2.3")
    careful = replace(spec, min_records=2)
    assert turn(provider, careful, node(1, v6=True), WITHDRAW) == NamePlan(
        kept=(
            "A 192.0.2.2 stays: 1 would be left, and dns.min_records is 2",
            "AAAA 2001:db8::2 stays: 1 would be left, and dns.min_records is 2",
        )
    )
    turn(provider, spec, node(1, v6=True), WITHDRAW)
    assert turn(provider, spec, node(2, v6=True), WITHDRAW).in_step
    assert (provider.answer(NAME, "A"), provider.answer(NAME, "AAAA")) == (("192.0.2.3",), ("2001:db8::3",))


def test_each_type_of_address_keeps_its_last_record() -> None:
    provider = zone_with()
    turn(provider, SPEC, node(0, v6=True), PUBLISH)
    turn(provider, SPEC, node(1), PUBLISH)
    found = turn(provider, SPEC, node(0, v6=True), WITHDRAW)
    assert found.changes
    assert found.kept == ("AAAA 2001:db8::1 stays: 0 would be left, and dns.min_records is 1",)
    assert (provider.answer(NAME, "A"), provider.answer(NAME, "AAAA")) == (("192.0.2.2",), ("2001:db8::1",))


@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED])
def test_of_two_nodes_that_leave_on_the_same_view_one_is_refused(spec: NameSettings) -> None:
    provider = zone_with()
    for number in range(2):
        turn(provider, spec, node(number), PUBLISH)
    seen = read(provider)
    carry_out(provider, plan(spec, node(0), WITHDRAW, seen))
    with pytest.raises(RefusedBatchError):
        carry_out(provider, plan(spec, node(1), WITHDRAW, seen))
    assert provider.answer(NAME, "A") == ("192.0.2.2",)


def test_joining_needs_no_lock() -> None:
    provider = zone_with()
    turn(provider, SPEC, node(0), PUBLISH)
    seen = read(provider)
    for number in range(1, 5):
        carry_out(provider, plan(SPEC, node(number), PUBLISH, seen))
    assert len(provider.answer(NAME, "A")) == 5


@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED, VIP])
def test_a_new_address_takes_the_place_of_the_former_one_in_one_batch(spec: NameSettings) -> None:
    provider = zone_with()
    turn(provider, spec, node(0), PUBLISH)
    turn(provider, spec, DnsNode("n0", "192.0.2.77"), PUBLISH)
    assert provider.answer(NAME, "A") == ("192.0.2.77",)
    assert markers_of(read(provider))["prod", "n0"][0].sequence == 2


def test_the_name_follows_who_holds_the_floating_address_and_nobody_withdraws() -> None:
    provider = zone_with()
    turn(provider, VIP, node(0), PUBLISH)
    assert turn(provider, VIP, node(0), WITHDRAW) == NamePlan()
    turn(provider, VIP, node(1), PUBLISH)
    assert provider.answer(NAME, "A") == ("192.0.2.2",)
    assert [key[1] for key in markers_of(read(provider))] == ["n1"]


@pytest.mark.parametrize(
    ("there", "message", "remedy"),
    [
        (
            record_set(NAME, "A", 60, ["198.51.100.1", "198.51.100.2"]),
            "a simple A record (198.51.100.1, 198.51.100.2) is there that pyconfd did not write",
            f"to take it over, run: pyconfd dns adopt {NAME}",
        ),
        (
            record_set(NAME, "CNAME", 60, ["x.example.org."]),
            f"a CNAME is at {NAME}., and nothing can stand beside one",
            BY_HAND,
        ),
        (
            record_set(marker_name(NAME), "CNAME", 60, ["x.example.org."]),
            f"a CNAME is at _pyconfd.{NAME}., and nothing can stand beside one",
            BY_HAND,
        ),
        (replace(record_set(NAME, "A", 60, ()), ttl_s=None, alias=True), "an alias is there as A", BY_HAND),
        (
            record_set(NAME, "A", 60, ["198.51.100.1"], Policy.OTHER, "eu"),
            "A records are there with routing policy other (eu), not {policy}",
            BY_HAND,
        ),
        (
            record_set(NAME, "A", 60, ["198.51.100.1"], Policy.OTHER, "pyconfd:prod:n1"),
            "A records are there with routing policy other (pyconfd:prod:n1), not {policy}",
            f"give all nodes the same dns.mode, and dns.weight to all or to none, then run: pyconfd dns adopt {NAME}",
        ),
        (
            record_set(marker_name(NAME), "TXT", 60, ['"hello"']),
            f"a TXT record is at _pyconfd.{NAME} that pyconfd did not write",
            BY_HAND,
        ),
    ],
)
@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED, VIP])
def test_what_is_in_the_way_blocks_and_stays(there: RecordSet, message: str, remedy: str, spec: NameSettings) -> None:
    provider = zone_with(there)
    before = provider.everything()
    problem = Problem(NAME, message.format(policy=policy_of(spec)), remedy)
    assert turn(provider, spec, node(0), PUBLISH) == NamePlan(problem=problem)
    assert turn(provider, spec, node(0), WITHDRAW) == NamePlan()
    assert provider.everything() == before


def test_a_node_with_another_mode_or_weight_than_the_others_is_blocked() -> None:
    provider = zone_with()
    turn(provider, SPEC, node(0), PUBLISH)
    run = f"run: pyconfd dns adopt {NAME}"
    for spec, problem in (
        (
            SHARED,
            Problem(
                NAME,
                "prod keeps this name in mode multivalue, and this node has mode shared",
                f"set dns.mode to multivalue here, or change it on all nodes and {run}",
            ),
        ),
        (
            WEIGHTED,
            Problem(
                NAME,
                "A records are there with routing policy multivalue (pyconfd:prod:n0), not weighted",
                f"give all nodes the same dns.mode, and dns.weight to all or to none, then {run}",
            ),
        ),
    ):
        assert turn(provider, spec, node(1), PUBLISH) == NamePlan(problem=problem)


@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED])
def test_adoption_keeps_every_address_until_its_node_takes_it_or_it_is_forgotten(spec: NameSettings) -> None:
    provider = zone_with(record_set(NAME, "A", 300, ["192.0.2.1", "192.0.2.2", "198.51.100.7"]))
    before = provider.answer(NAME, "A")
    carry_out(provider, adopt(spec, read(provider)))
    assert provider.answer(NAME, "A") == before
    assert adopt(spec, read(provider)) == NamePlan()
    for number in range(2):
        turn(provider, spec, node(number), PUBLISH)
    assert provider.answer(NAME, "A") == before
    if spec.mode is Mode.MULTIVALUE:
        carry_out(provider, forget(spec, "adopted:198.51.100.7", read(provider)))
        assert provider.answer(NAME, "A") == ("192.0.2.1", "192.0.2.2")
        assert len(markers_of(read(provider))) == 2


@pytest.mark.parametrize("spec", [WEIGHTED, SHARED])
def test_adoption_changes_the_mode_of_a_name_and_its_answer_stays(spec: NameSettings) -> None:
    provider = zone_with()
    for number in range(3):
        turn(provider, SPEC, node(number, v6=True), PUBLISH)
    before = provider.answer(NAME, "A"), provider.answer(NAME, "AAAA")
    carry_out(provider, adopt(spec, read(provider)))
    assert (provider.answer(NAME, "A"), provider.answer(NAME, "AAAA")) == before
    for number in range(3):
        assert turn(provider, spec, node(number, v6=True), PUBLISH) == NamePlan()
    carry_out(provider, adopt(SPEC, read(provider)))
    assert [turn(provider, SPEC, node(number, v6=True), PUBLISH) for number in range(3)] == [NamePlan()] * 3
    assert (provider.answer(NAME, "A"), provider.answer(NAME, "AAAA")) == before


def test_what_is_in_the_way_is_found_behind_what_is_not() -> None:
    there = record_set(NAME, "A", 60, ["198.51.100.1"], Policy.OTHER, "eu")
    (problem,) = {plan(SPEC, node(0), PUBLISH, each).problem for each in ((beside(), there), (there, beside()))}
    message = "A records are there with routing policy other (eu), not multivalue"
    assert problem == Problem(NAME, message, BY_HAND)


@pytest.mark.parametrize("spec", [SPEC, WEIGHTED, SHARED, VIP])
def test_each_batch_that_takes_something_out_counts_once(spec: NameSettings) -> None:
    provider, counted = zone_with(record_set(NAME, "A", 300, ["198.51.100.7"])), []
    carry_out(provider, adopt(spec, read(provider)))
    counted.append(owners_of(read(provider))["prod"][0])
    other = replace(SPEC, mode=Mode.SHARED) if spec.mode is Mode.MULTIVALUE else SPEC
    carry_out(provider, adopt(other, read(provider)))
    counted.append(owners_of(read(provider))["prod"][0])
    assert counted == [NameOwner("prod", spec.mode, 1), NameOwner("prod", other.mode, 2)]


def test_a_node_that_joins_counts_once_and_one_that_leaves_once_more() -> None:
    provider, generations = zone_with(), []
    for number, wish in ((0, PUBLISH), (1, PUBLISH), (0, WITHDRAW), (0, WITHDRAW), (0, PUBLISH)):
        turn(provider, SPEC, node(number), wish)
        generations.append(owners_of(read(provider))["prod"][0].generation)
    assert generations == [1, 1, 2, 2, 2]


def test_adoption_takes_a_shared_record_from_another_owner() -> None:
    provider = zone_with()
    turn(provider, replace(SHARED, owner="other"), node(0), PUBLISH)
    message = "a simple A record (192.0.2.1) is there that other keeps"
    problem = Problem(NAME, message, f"to take it over, run: pyconfd dns adopt {NAME}")
    assert turn(provider, SHARED, node(1), PUBLISH) == NamePlan(problem=problem)
    carry_out(provider, adopt(SHARED, read(provider)))
    assert list(owners_of(read(provider))) == ["prod"]
    assert provider.answer(NAME, "A") == ("192.0.2.1",)


@pytest.mark.parametrize(
    "there",
    [
        record_set(NAME, "CNAME", 60, ["x.example.org."]),
        replace(record_set(NAME, "A", 60, ()), ttl_s=None, alias=True),
        record_set(NAME, "A", 60, ["198.51.100.1"], Policy.OTHER, "eu"),
    ],
)
def test_even_adoption_leaves_alone_what_is_no_plain_record(there: RecordSet) -> None:
    for spec in (SPEC, SHARED, VIP):
        assert adopt(spec, (there,)).problem


def test_two_owners_share_a_name_and_do_not_see_each_other() -> None:
    provider = zone_with(beside())
    other = replace(SPEC, owner="other")
    turn(provider, SPEC, node(0), PUBLISH)
    turn(provider, other, node(1), PUBLISH)
    assert provider.answer(NAME, "A") == ("192.0.2.1", "192.0.2.2", "203.0.113.9")
    assert turn(provider, SPEC, node(0), WITHDRAW).in_step  # the last of its owner
    assert {beside(), *foreign()} <= provider.everything()


def test_a_marker_that_somebody_copied_under_another_identifier_is_not_believed() -> None:
    provider = zone_with()
    turn(provider, SPEC, node(0), PUBLISH)
    (marker,) = [item for item in read(provider) if "node=n0" in item.values[0]]
    assert markers_of([replace(marker, identifier="by-hand")]) == {}


def test_a_node_in_doubt_does_not_count_as_one_that_answers_and_wipes_the_doubt_out_itself() -> None:
    provider = zone_with()
    for number in range(2):
        turn(provider, SPEC, node(number), PUBLISH)
    carry_out(provider, doubt(SPEC, "n1", "n0", read(provider)))
    assert turn(provider, SPEC, node(0), WITHDRAW).in_step
    assert turn(provider, SPEC, node(1), PUBLISH).changes
    assert markers_of(read(provider))["prod", "n1"][0].doubt == ""
    assert turn(provider, SPEC, node(0), WITHDRAW).changes


STEPS = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.sampled_from(list(Wish))), max_size=25)


@given(steps=STEPS, mode=st.sampled_from([SPEC, WEIGHTED, SHARED, VIP]), least=st.integers(1, 3))
def test_whatever_nodes_do_no_answer_empties_and_nothing_foreign_changes(
    steps: list[tuple[int, bool, Wish]], mode: NameSettings, least: int
) -> None:
    spec = replace(mode, min_records=least)
    provider = zone_with()
    there = provider.everything()
    seen: dict[str, int] = {"A": 0, "AAAA": 0}
    for number, v6, wish in steps:
        who = node(number, v6=v6)
        turn(provider, spec, who, wish)
        assert turn(provider, spec, who, wish).in_step
        for kind, former in seen.items():
            count = len(provider.answer(NAME, kind))
            assert count >= min(former, 1 if spec.mode is Mode.VIP else least)
            seen[kind] = count
        assert there <= provider.everything()


def test_the_longest_names_fit_into_what_route_53_takes() -> None:
    spec = replace(SPEC, owner="o" * 40)
    provider = zone_with()
    longest = DnsNode("n" * 63, "192.168.200.100", "2001:db8:1111:2222:3333:4444:5555:6666")
    other = DnsNode("m" * 63, "192.0.2.9", "2001:db8::9")
    for who in (longest, other):
        assert turn(provider, spec, who, PUBLISH).changes
    carry_out(provider, doubt(spec, longest.name, other.name, read(provider)))
    assert markers_of(read(provider))[spec.owner, longest.name][0].doubt == other.name
    assert turn(provider, spec, longest, PUBLISH).changes
    assert turn(provider, spec, longest, PUBLISH) == NamePlan()


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, weight=3), replace(SPEC, mode=Mode.SHARED)])
def test_what_is_dropped_by_command_is_gone_to_the_last_record_and_nothing_else(spec: NameSettings) -> None:
    other = record_set(NAME, "A", 17, ["203.0.113.9"], policy_of(spec), "pyconfd:other:n0")
    others = [replace(other, weight=spec.weight)] if spec.mode is Mode.MULTIVALUE else []
    provider = zone_with(*others)
    before = provider.everything()
    for number in range(3):
        turn(provider, spec, node(number, v6=True), Wish.PUBLISH)
    carry_out(provider, drop(spec, provider.records(ZONE.zone_id, NAME)))
    assert provider.everything() == before
    assert drop(spec, provider.records(ZONE.zone_id, NAME)) == NamePlan()


def test_a_plain_record_of_somebody_else_is_not_dropped() -> None:
    plain = record_set(NAME, "A", 60, ["192.0.2.1"])
    provider = zone_with(plain)
    assert drop(SPEC, provider.records(ZONE.zone_id, NAME)) == NamePlan()
    assert drop(replace(SPEC, mode=Mode.SHARED), provider.records(ZONE.zone_id, NAME)) == NamePlan()
