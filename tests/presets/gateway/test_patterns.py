"""The steps of regular expressions: no value takes more of them than were counted, nor a request more than a budget."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.presets.gateway import patterns
from pyconfd.presets.gateway.patterns import ANY_CASE, LONGEST_VALUE, fault_of, steps_of
from pyconfd.presets.gateway.work import MOST_WORK, RouteWork, beyond_budget, work_of
from pyconfd.presets.registry import Memo
from tests.fragments.shipped import HAPROXY
from tests.presets.gateway import stage
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.gateway.stage import Routes, ask, gateway, parsed, pods, running
from tests.presets.gateway.test_preset import APP, GATEWAY, read, route, route_reasons
from tests.world.haproxy import free_port


class Matcher:
    """Tries all ways as PCRE does, and counts each look at a character."""

    def __init__(self, pattern: str, text: str) -> None:
        self.text, self.steps = text, 0
        bare = pattern.removeprefix(ANY_CASE)
        self.flags = re.ASCII | (re.IGNORECASE if bare != pattern else re.NOFLAG)
        self.alternatives = patterns._alternatives(list(patterns._atoms(bare)))

    def matches(self) -> bool:
        return any(end == len(self.text) for end in self._any(self.alternatives, 0))

    def _any(self, alternatives: Sequence[Sequence[Any]], at: int) -> Iterator[int]:
        for each in alternatives:
            yield from self._sequence(each, at)

    def _sequence(self, items: Sequence[Any], at: int) -> Iterator[int]:
        if not items:
            yield at
            return
        head, rest = items[0], items[1:]
        for end in self._repeated(head, at) if isinstance(head, patterns._Atom) else self._group(head, at):
            yield from self._sequence(rest, end)

    def _repeated(self, atom: Any, at: int) -> Iterator[int]:
        least, most = atom.bounds
        end = at
        while end - at < most and self._is(atom.text, end):
            end += 1
        yield from range(end, at + least - 1, -1)

    def _group(self, group: Any, at: int) -> Iterator[int]:
        least, most = group.atom.bounds
        ends = [at]
        for _ in range(most if least else 0):
            ends = [end for start in ends for end in self._any(group.alternatives, start)]
        if least:
            yield from ends
        else:
            yield from self._any(group.alternatives, at)
            yield at

    def _is(self, text: str, at: int) -> bool:
        self.steps += 1
        return at < len(self.text) and re.fullmatch(text, self.text[at], self.flags) is not None


PARTS = ["a", "A", "b", ".", "[ab]", "[^b]", "(", ")", "|", "*", "+", "?", "{2,}", "{2}", "{1,3}", "/"]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=12), st.booleans(), st.text("aAb/", max_size=14))
def test_no_value_takes_more_steps_than_were_counted(parts: list[str], any_case: bool, text: str) -> None:
    pattern = f"{ANY_CASE if any_case else ''}/{''.join(parts)}"
    if fault_of(pattern):
        return
    matcher = Matcher(pattern, f"/{text}")
    assert matcher.matches() == (re.fullmatch(pattern, f"/{text}", re.ASCII) is not None)
    assert matcher.steps <= steps_of(pattern)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("/abc", 4, 4),
        ("/[0-9]+/x", LONGEST_VALUE, 3 * LONGEST_VALUE),
        ("/a*ab", 3 * LONGEST_VALUE, 5 * LONGEST_VALUE),
        ("(?i)/a*Ab", 3 * LONGEST_VALUE, 5 * LONGEST_VALUE),
        ("/a*a{100}b", 100 * LONGEST_VALUE, 110 * LONGEST_VALUE),
        ("/(a|[ab])(a|[ab])a*ab", 12 * LONGEST_VALUE, 18 * LONGEST_VALUE),
    ],
)
def test_steps_are_those_of_the_worst_value(pattern: str, least: int, most: int) -> None:
    assert least <= steps_of(pattern) <= most


def test_all_that_may_come_next_counts_as_what_a_repetition_can_meet() -> None:
    """After ``a*`` comes ``b``, or another ``a``, or ``c``: it may give back each ``a`` that it took."""
    assert steps_of("/a*b?a*c") > 2 * steps_of("/a*b?d*c")
    pattern, text = "/a*b?a*c", "/" + "a" * 40
    matcher = Matcher(pattern, text)
    assert not matcher.matches()
    assert matcher.steps <= steps_of(pattern)


@pytest.mark.parametrize(
    ("pattern", "is_taken"),
    [
        ("/(ab){2}", True),
        ("/(ab)?", True),
        ("/([ab]c){2}", True),
        ("/(ab)+", False),
        ("/(ab)*", False),
        ("/(ab){2,3}", False),
        # A group of several lengths, or several alternatives, is there once or not at all.
        ("/(a|b)", True),
        ("/(a|b)?", True),
        ("/(a|b){2}", False),
        ("/(a+b)?", True),
        ("/(a+b){2}", False),
        ("/(a?b){2}", False),
        ("/(a{2}b){2}", True),
        ("/(a{2,3}b){2}", False),
        # What varies in a group varies in the one around it, and in no other.
        ("/((a|b)c){2}", False),
        ("/((a|b)c)?", True),
        ("/(c(a|b)){2}", False),
        ("/(((a|b))){2}", False),
        ("/((ab)c){2}", True),
        ("/((ab){2}c){2}", True),
        ("/(a|b)(cd){2}", True),
    ],
)
def test_a_group_that_can_match_in_several_ways_is_not_repeated(pattern: str, is_taken: bool) -> None:
    wrong = "repeat a single character or [...] only, or a group of one length as often as {N} says"
    assert fault_of(pattern) == ("" if is_taken else wrong)


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ("/a{128}", ""),
        ("/a{129}", "a repetition counts up to 128 at most"),
        ("/a{2,129}", "a repetition counts up to 128 at most"),
        ("/a++", "not taken in a regular expression: [[, --, &&, ~~, ||, {,N}, and + or ? after a repetition"),
        ("/[[]", "not taken in a regular expression: [[, --, &&, ~~, ||, {,N}, and + or ? after a repetition"),
        ("/a{,2}", "not taken in a regular expression: [[, --, &&, ~~, ||, {,N}, and + or ? after a repetition"),
        (
            "/" + "[^/]*a" * 30,
            "takes too long: write [^/]+ in place of .*, and fewer alternatives and optional parts",
        ),
    ],
)
def test_why_an_expression_is_not_taken(pattern: str, wrong: str) -> None:
    assert fault_of(pattern) == fault_of(f"{ANY_CASE}{pattern}") == wrong


def test_a_final_part_for_anything_is_tried_once_but_for_several_lines() -> None:
    assert not fault_of("/.*a.*")
    assert fault_of("/.*a.*", lines=True)


def of_route(namespace: str, since: str, *rules: int, listener: str = "http") -> RouteWork:
    return RouteWork(namespace, (since, namespace), frozenset({("gw", listener)}), rules)


def test_the_budget_goes_to_older_routes_of_the_same_namespace_and_listener() -> None:
    half = MOST_WORK // 2
    found = beyond_budget(
        {
            "young": of_route("shop", "3", half, 0, 1),
            "old": of_route("shop", "1", half, half),
            "elsewhere": of_route("shop", "4", half, listener="https"),
            "neighbour": of_route("other", "5", half, half),
        }
    )
    assert found == {"young": {0, 2}}


EXPENSIVE = "/a*a{120}[bc]"


def expensive(number: int) -> dict[str, Any]:
    header = {"name": f"x-{number}", "type": "RegularExpression", "value": EXPENSIVE}
    return {"matches": [{"headers": [header]}], "backendRefs": [{"name": "app", "port": 80}]}


def test_routes_beyond_the_budget_say_so_and_come_back() -> None:
    many = work_of(parsed(expensive(0)).matches)
    full = MOST_WORK // many
    rules = yaml.safe_dump([expensive(number) for number in range(full)], default_flow_style=True)
    plain = "[{matches: [{path: {value: /plain}}], backendRefs: [{name: app, port: 80}]}]"
    old, young = route("a-old", rules), route("b-young", yaml.safe_dump([expensive(0)], default_flow_style=True))
    memo = Memo()
    context = read(snapshot(CLASS, GATEWAY, APP, old, young, route("c-plain", plain)), memo)
    assert route_reasons(context, "a-old")["Accepted"] == "Accepted"
    assert route_reasons(context, "b-young")["Accepted"] == "UnsupportedValue"
    assert route_reasons(context, "c-plain")["Accepted"] == "Accepted"
    (refused,) = context.refused
    assert (refused.ref.name, refused.field) == ("b-young", "rules[0].matches")

    context = read(snapshot(CLASS, GATEWAY, APP, young, route("c-plain", plain)), memo)
    assert route_reasons(context, "b-young")["Accepted"] == "Accepted"


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@pytest.mark.parametrize(
    "pattern", [EXPENSIVE, "/" + "a?" * 5 + "a*a[bc]", "/[a-z]*[xy]", "/a*\\Ba\\B[bc]", "/" + "(ab?)?" * 8 + "x"]
)
def test_a_budget_takes_a_thread_for_a_short_time(tmp_path: Any, pattern: str) -> None:
    """Without bounds one such request took seconds; 300 ms of processor time are 25 times what was measured."""
    port = free_port()
    with pods("web") as (web,):
        routes = Routes("gw_demo_web_80").add(
            parsed({"backendRefs": [{"name": "web", "port": 80}]}), stage.reference(1, (web.endpoint,))
        )
        number, left = 0, MOST_WORK
        while True:
            value = f"{pattern}(/{number})?"
            rule = parsed({"matches": [{"path": {"type": "RegularExpression", "value": value}}]})
            left -= work_of(rule.matches)
            if left < 0:
                break
            routes.add(rule)
            number += 1
        front, backends = gateway("gw_demo_web_80", [routes], port=port)
        known = set(psutil.Process().children(recursive=True))
        with running([front], backends, tmp_path):
            (haproxy,) = {*psutil.Process().children(recursive=True)} - known
            for length, status in ((LONGEST_VALUE - 2, 200), (14_000, 414)):
                before = haproxy.cpu_times()
                assert ask(port, f"/{'a' * length}").status == status
                after = haproxy.cpu_times()
                assert after.user + after.system - before.user - before.system < 0.3
