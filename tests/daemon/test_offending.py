"""Whatever is wrong with some objects, exactly the others are served; HAProxy itself says what is wrong."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyconfd.daemon.offending import MOST_CHECKS, Search, SearchTrials
from pyconfd.daemon.quarantine import LeftOut
from pyconfd.daemon.reconcile import Inputs, Reconciled, reconcile
from pyconfd.daemon.translation import Translator
from pyconfd.errors import Clues, Problem, RejectedInput
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.context import RefusalReason
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Rejected, Step
from pyconfd.model.plan import Reload
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.origins import ObjectOrigin
from pyconfd.render.cluster_templates import Fallback
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import HaproxySettings
from tests.daemon.fakes import FakeBalancer
from tests.presets import objects
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.haproxy

HEAD = """defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend fe
    bind 127.0.0.1:18080
backend own
    http-request deny
"""

LOOPED = """{% for service in cluster.services %}
{% set a = service.annotations %}
backend {{ a.section | default('be-' ~ service.name) }}
    balance {{ a.lb | default('roundrobin') }}
    # {{ 100 // (a.divisor | default(1) | int) }}
{% if a.uses is defined %}
    use-server {{ a.uses }} if TRUE
{% endif %}
{% for port in service.ports %}{% for e in port.endpoints | servers %}
    server {{ e.name }} {{ e.target }} weight {{ a.weight | default(1) }}
{% endfor %}{% endfor %}
{% endfor %}
"""

HIDDEN = """{% macro all(services) %}
{% for service in services %}{% set a = service.annotations %}
backend {{ a.section | default('be-' ~ service.name) }}
    balance {{ a.lb | default('roundrobin') }}
    # {{ 100 // (a.divisor | default(1) | int) }}
    # {{ a.weight | default(1) }}
{% if a.uses is defined %}
    use-server {{ a.uses }} if TRUE
{% endif %}
{% endfor %}
{% endmacro %}
{% set text = all(cluster.services) %}
# {{ text | length }} characters
{{ text }}
"""
"""What is printed depends on the length of the text, so that no map with marks is believed; names tell."""

OPAQUE = HIDDEN.replace("service.name)", "service.name | upper)")
"""Nothing tells."""

POISON = (
    {"lb": "nonsense"},
    {"divisor": "0"},
    {"section": "own"},
    {"uses": "nobody"},
    {"weight": "999"},
)


class Judging(FakeBalancer):
    """Everything in memory, but the judgement, which is HAProxy's."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._settings = HaproxySettings(conf=str(folder / "haproxy.cfg"), binary=BINARY)

    def check(self, rendering: Rendering) -> None:
        self.checks += 1
        check(rendering, settings=self._settings, unit=UnitFacts())


def snapshot(annotations: dict[str, dict[str, str]]) -> Snapshot:
    found: list[objects.Named] = []
    for number, (name, notes) in enumerate(annotations.items(), start=1):
        found += [objects.service(name, notes), objects.slice_(name, objects.endpoint(f"192.0.2.{number}"))]
    return objects.snapshot(*found)


TRANSLATOR = Translator(("domains",))


def run(
    balancer: FakeBalancer,
    found: Snapshot,
    *templates: str,
    left_out: LeftOut | None = None,
    translator: Translator = TRANSLATOR,
    **changes: object,
) -> Reconciled:
    fragments = (Fragment("01-head.conf", HEAD), *(Fragment(f"1{n}.tmpl", text) for n, text in enumerate(templates)))
    inputs = Inputs(
        snapshot=found,
        renderer=Renderer(FragmentSet(fragments), RenderOptions("/files")),
        translator=translator,
        now=1000.0,
        curdate="today",
        left_out=left_out or LeftOut(found),
    )
    return reconcile(replace(inputs, **changes), balancer)  # type: ignore[arg-type]


def trials(found: Snapshot, renderer: Renderer, check: Callable[[Rendering], None]) -> SearchTrials:
    return SearchTrials(
        snapshot=found,
        translate=TRANSLATOR.translate,
        renderer=renderer,
        fallback=Fallback(),
        curdate="",
        check=check,
        monotonic=lambda: 0.0,
        progress=lambda: None,
    )


def served(balancer: FakeBalancer) -> set[str]:
    return set(re.findall(r"^backend be-(\S+)", (balancer.disk.conf or "").lower(), re.MULTILINE))


def service(name: str) -> ObjectOrigin:
    return ObjectOrigin(Resource.SERVICES, Key("demo", name))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from([None, None, *range(len(POISON))]), min_size=2, max_size=12).filter(
        lambda kinds: None in kinds
    ),
    template=st.sampled_from([LOOPED, HIDDEN, OPAQUE]),
)
def test_exactly_the_healthy_are_served(tmp_path: Path, kinds: list[int | None], template: str) -> None:
    notes = {f"s{n}": POISON[kind] if kind is not None else {} for n, kind in enumerate(kinds)}
    if template is not LOOPED:
        notes = {name: {} if "weight" in each else each for name, each in notes.items()}
    bad = {name for name, each in notes.items() if each}
    balancer = Judging(tmp_path)
    done = run(balancer, snapshot(notes), template)
    assert isinstance(done.outcome, Applied)
    assert served(balancer) == notes.keys() - bad
    refused = {each.ref.name for each in done.context.refused if each.reason is RefusalReason.QUARANTINED}
    assert refused == bad


def test_ten_bad_objects_of_a_hundred_are_found_with_a_few_checks(tmp_path: Path) -> None:
    notes = {f"s{n}": {} if n % 10 else POISON[0 if n % 20 else 3] for n in range(100)}
    balancer = Judging(tmp_path)
    done = run(balancer, snapshot(notes), LOOPED)
    assert isinstance(done.outcome, Applied)
    assert len(served(balancer)) == 90
    assert balancer.checks <= 25
    assert done.search is not None
    offence = done.search.offending[service("s10")]
    assert offence.step is Step.CHECK
    assert "nonsense" in offence.problem.message


@pytest.mark.parametrize("fault", ["    balance nonsense\n", "{{ 1 // 0 }}\n", "{{ no_such_name }}\n"])
def test_a_fault_of_a_fragment_leaves_out_nobody(tmp_path: Path, fault: str) -> None:
    balancer = Judging(tmp_path)
    found = snapshot({"a": {}, "b": {}})
    assert isinstance(run(balancer, found, LOOPED).outcome, Applied)
    before = balancer.disk.conf
    done = run(balancer, found, LOOPED, f"backend x\n{fault}")
    assert isinstance(done.outcome, Rejected)
    assert done.search is not None
    assert not done.search.offending
    assert "fragment" in done.search.why
    assert balancer.disk.conf == before


def test_without_leave_to_search_nobody_is_left_out(tmp_path: Path) -> None:
    """So it is for fragments that were never applied, and soon after a search that found nobody."""
    found = snapshot({"a": {}, "b": {"divisor": "0"}})
    balancer = Judging(tmp_path)
    done = run(balancer, found, LOOPED, left_out=LeftOut(found, may_search=False))
    assert isinstance(done.outcome, Rejected)
    assert balancer.checks == 0


def test_what_is_left_out_costs_no_search_and_is_explained(tmp_path: Path) -> None:
    found = snapshot({"a": {}, "b": {"lb": "nonsense"}})
    first = run(Judging(tmp_path), found, LOOPED)
    assert first.search is not None
    problems = {origin: offence.problem for origin, offence in first.search.offending.items()}
    balancer = Judging(tmp_path)
    done = run(balancer, found, LOOPED, left_out=LeftOut(found, problems))
    assert isinstance(done.outcome, Applied)
    assert balancer.checks == 1
    (refusal,) = (each for each in done.context.refused if each.reason is RefusalReason.QUARANTINED)
    assert str(refusal.ref) == "Service demo/b"
    assert "balance only supports" in refusal.detail


BINDING = """{% for service in cluster.services if service.annotations.bind is defined %}
frontend fe-{{ service.name }}
    bind {{ service.annotations.bind }}
    default_backend own
{% endfor %}
"""


class _Binding(FakeBalancer):
    """A balancer of whose binds some are taken, which only a reload finds."""

    def apply(self, rendering: Rendering, plan: Reload, **more: Any) -> Applied:
        if taken := self.listener_conflicts(rendering):
            raise RejectedInput(*(Problem(str(each), why) for each, why in taken.items()), step=Step.BINDS)
        return super().apply(rendering, plan, **more)


def test_who_has_a_bind_made_that_fails_is_left_out() -> None:
    """Its listener is no claim that could be left out by itself: the operator's fragment has it from an annotation."""
    balancer = _Binding()
    balancer.taken = (Listener("127.0.0.9", 7000),)
    notes = {"a": {"bind": "127.0.0.9:7000"}, "b": {"bind": "127.0.0.9:7001"}, "c": {}}
    done = run(balancer, snapshot(notes), LOOPED, BINDING)

    assert isinstance(done.outcome, Applied)
    text = balancer.disk.conf or ""
    assert (served(balancer), "fe-b" in text, "fe-a" in text) == ({"b", "c"}, True, False)
    assert done.search is not None
    assert {origin: each.step for origin, each in done.search.offending.items()} == {service("a"): Step.BINDS}


def test_a_fragment_whose_bind_fails_leaves_out_nobody() -> None:
    balancer = _Binding()
    balancer.taken = (Listener("127.0.0.1", 18080),)
    done = run(balancer, snapshot({"a": {}, "b": {}}), LOOPED)

    assert isinstance(done.outcome, Rejected)
    assert done.search is not None
    assert (dict(done.search.offending), "fragment" in done.search.why) == ({}, True)


def test_who_only_has_a_part_in_a_bad_line_is_taken_back(tmp_path: Path) -> None:
    """One line holds a word of each object, as ``bind`` does with certificates; one of the words is bad."""
    head = "frontend f2\n    bind 127.0.0.1:18081\n    http-request set-var(txn.a) str(x)"
    text = head + "{% for s in cluster.services %},{{ s.annotations.word }}{% endfor %}\n"
    good, bad = {"word": "upper"}, {"word": "nonsense"}
    for objects_ in ({"a": good, "b": bad, "c": good}, {"a": bad, "b": good}):
        balancer = Judging(tmp_path)
        done = run(balancer, snapshot(objects_), text)
        assert isinstance(done.outcome, Applied)
        assert done.search is not None
        guilty = {service(name) for name, annotations in objects_.items() if annotations is bad}
        assert set(done.search.offending) == guilty


def test_who_is_blamed_for_nothing_is_taken_back() -> None:
    """The message leads to an innocent first, as long as that one is there."""
    found = snapshot({"bad": {}, "innocent": {}, "other": {}})
    renderer = Renderer(FragmentSet((Fragment("10.tmpl", LOOPED),)), RenderOptions("/files"))

    def judge(rendering: Rendering) -> None:
        if "backend be-bad" in rendering.text:
            blamed = "innocent" if "backend be-innocent" in rendering.text else "bad"
            clues = Clues(values=({"namespace": "demo", "name": blamed},))
            raise RejectedInput(Problem("", "broken", clues=clues), step=Step.CHECK)

    first = renderer.render(TRANSLATOR.translate(found), curdate="").rendering
    with pytest.raises(RejectedInput) as error:
        judge(first)
    result = Search(trials(found, renderer, judge)).run(error.value.problems, first, ())
    assert set(result.offending) == {service("bad")}


def test_a_search_has_an_end() -> None:
    """Each object is good by itself, and no two of them are: that takes too many tries."""
    found = snapshot({f"s{number}": {} for number in range(100)})
    checks = []

    def judge(rendering: Rendering) -> None:
        checks.append(rendering)
        if rendering.text.count("backend be-") > 1:
            raise RejectedInput(Problem("", "broken"), step=Step.CHECK)

    renderer = Renderer(FragmentSet((Fragment("10.tmpl", LOOPED),)), RenderOptions("/files"))
    result = Search(trials(found, renderer, judge)).run((Problem("", "broken"),), None, ())
    assert not result.offending
    assert "no offending object was found" in result.why
    assert len(checks) <= MOST_CHECKS
