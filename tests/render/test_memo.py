"""Whatever a renderer rendered before, it gives what a new one gives; and what did not change is the same object."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import RejectedInput
from pyconfd.model.context import Context
from pyconfd.model.layered import Layered, copied
from tests.render.stage import rendered, renderer


def turns(template: str, first: dict[str, Any], second: dict[str, Any], **options: Any) -> tuple[str, list[bool]]:
    """Render two contexts; give the second text, and which of the first blocks it holds as the same object."""
    by = renderer(template, **options)
    before = rendered(by, first).pieces[0].blocks
    after = rendered(by, second)
    same = {id(block) for block in after.pieces[0].blocks}
    assert after == rendered(renderer(template, **options), second)
    return after.text, [id(block) in same for block in before]


def entry(port: int, **more: Any) -> dict[str, Any]:
    return {"port": port, "proto": "http", "ips": ["192.0.2.1", "192.0.2.2"], **more}


LOOP = "{% for d, i in domains.items() %}\n{{ d }} {{ i.port }}\n{% endfor %}\nend"
PREDECESSORS = """\
{%- for domain, items in domains.items() %}
{%- if items.proto == 'http' %}
{%- set var_name = domain|replace('.', '_') %}

    acl {{ var_name }} hdr(host) -i {{ domain }}
{%- endif %}
{%- endfor %}

{% for domain, items in domains.items() if items.proto != 'redis' %}
backend be{{ domain }}
{% for ip in items.ips %}
    server {{ loop.index }} {{ ip|replace('.', '_') }} {{ ip }}:{{ items.port }} check{{ ',' if not loop.last }}
{% endfor %}
{% endfor %}
"""
MAPS = """\
{% set binds = vars.bind | default('*:80') %}
{% set limit = names | length %}
{% if binds %}
    path {{ map_file('hosts') }} {{ map_file('ends', longest_first=true) }}
{% for domain, items in domains.items() if items.proto == 'http' %}
{% do map_entry('ends' if domain.startswith('b') else 'hosts', items.key | default(domain), 'be-' ~ domain) %}
# {{ domain }} {{ limit }} {{ missing | default('none') }}
{% endfor %}
{% endif %}
{% for name in names %}
{{ name }}
{% endfor %}
{% for name, port in domains | dictsort %}{{ name }}={{ port.port }} {% endfor %}
"""
IMPURE = """\
{% set seen = [] %}
{% for domain, items in domains.items() %}
{{ loop.index }} {{ domain }}{% do seen.append(items.port) %}
{% endfor %}
{{ seen | join(',') }}
{% for domain in domains %}{{ domain }}{% else %}nothing{% endfor %}
"""
ALONE = """\
{% set limit = names | length %}
{{ map_file('alone') }}
{% for domain, items in domains.items() if items.proto == 'http' %}
{% do map_entry('alone', items.key | default(domain), 'be-' ~ domain) %}
# {{ domain }} {{ limit }} {{ missing | default('none') }} {{ items.ips | join(' ') }}
{% endfor %}
{% if limit %}
{% for domain, items in domains.items() %}
{{ domain }} {{ items.port }}{{ items.ips[1] | default('') }}
{% endfor %}
{% endif %}
"""
ALL = (PREDECESSORS, MAPS, IMPURE, ALONE)

domain_names = st.sampled_from(["a.x", "b.x", "c.x", "d.x", "e.x", "b.y"])
ENTRIES = [
    entry(port, proto=proto, ips=ips, **more)
    for port in (80, 81)
    for proto in ("http", "redis")
    for ips in ([], ["192.0.2.1"], ["192.0.2.1", "192.0.2.2"])
    for more in ({}, {"key": "same"})
]
"""Never changed, so that an entry is the same object wherever it stands."""
contexts = st.fixed_dictionaries(
    {
        "domains": st.dictionaries(domain_names, st.sampled_from(ENTRIES), max_size=6).flatmap(
            lambda found: st.permutations(sorted(found)).map(lambda order: {name: found[name] for name in order})
        ),
        "names": st.lists(st.sampled_from(["x", "y", "x" * 30, "", 1, True]), max_size=5),
    },
    optional={"missing": st.sampled_from(["given", None])},
)


@given(st.lists(contexts, min_size=2, max_size=6))
def test_any_sequence_of_contexts_gives_what_new_renderers_give(given_contexts: list[dict[str, Any]]) -> None:
    by = renderer(*ALL)
    for names in given_contexts:
        remembered, new = rendered(by, names), rendered(renderer(*ALL), names)
        assert remembered.text == new.text
        assert remembered == new


@given(
    st.dictionaries(domain_names, st.sampled_from(ENTRIES), min_size=1, max_size=6),
    st.lists(st.dictionaries(domain_names, st.sampled_from(ENTRIES), max_size=3), min_size=1, max_size=5),
    st.sampled_from([ALL, (PREDECESSORS,), (MAPS, IMPURE), (ALONE, PREDECESSORS)]),
    st.booleans(),
)
def test_names_that_tell_what_changed_give_what_new_renderers_give(
    first: dict[str, Any], rounds: list[dict[str, Any]], fragments: tuple[str, ...], alone: bool
) -> None:
    by, domains, given_names = renderer(*fragments), Layered(first), ["x"]
    for number, changes in enumerate([{}, *rounds]):
        domains = domains.with_values({name: each for name, each in changes.items() if name in domains})
        # Now and then nobody renders: then the next copy is of something that the last one does not know.
        if number % 3 == 2:
            continue
        # Nothing but what the loops go through is new, or something else is too.
        names = {"domains": copied(domains), "names": given_names if alone else list(given_names)}
        remembered, new = rendered(by, names), rendered(renderer(*fragments), {**names, "domains": dict(domains)})
        assert remembered.text == new.text
        assert remembered == new


def test_a_fragment_that_would_read_the_same_objects_is_not_rendered_again() -> None:
    calls: list[str] = []

    class Counted:
        def __str__(self) -> str:
            calls.append("printed")
            return "shown"

    by = renderer("{{ about }} {{ map_file('m') }}\n{% do map_entry('m', 'k', 'v') %}", "{{ other }}\n")
    about = Counted()
    first = rendered(by, {"about": about, "other": "1"})
    printed = len(calls)
    second = rendered(by, {"about": about, "other": "2"})
    assert len(calls) == printed > 0
    assert second.pieces[0] is first.pieces[0]
    assert second.pieces[1].text == "2\n"
    assert second.files == first.files != ()
    assert rendered(by, {"about": Counted(), "other": "2"}).text == second.text
    assert len(calls) > printed


@given(contexts, contexts)
def test_nothing_new_gives_the_very_same_pieces_and_files(names: dict[str, Any], other: dict[str, Any]) -> None:
    by = renderer(*ALL)
    rendered(by, other)
    first = rendered(by, names)
    second = rendered(by, {**names, "domains": dict(names["domains"])})
    assert all(one is two for one, two in zip(first.pieces, second.pieces, strict=True))
    assert all(one is two for one, two in zip(first.files, second.files, strict=True))


def many(count: int) -> dict[str, Any]:
    return {f"s{number:03}": entry(number) for number in range(count)}


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (lambda d: d | {"s050": entry(999)}, {51}),
        (lambda d: d | {f"s{n:03}": entry(999) for n in range(100)}, set(range(1, 101))),
        (lambda d: dict(sorted((d | {"s0505": entry(999)}).items())), set()),
        (lambda d: {key: value for key, value in d.items() if key not in {"s050", "s199"}}, {51, 200}),
        (lambda d: dict(sorted({**d, "s000x": d["s010"], "s120": entry(999)}.items())), {121}),
        (lambda d: dict(reversed(d.items())), set()),
    ],
    ids=["one", "many", "added", "removed", "added and changed", "turned round"],
)
def test_only_what_changed_is_rendered(change: Any, gone: set[int]) -> None:
    domains = many(200)
    template = "head\n" + LOOP
    text, same = turns(template, {"domains": domains}, {"domains": change(domains)})
    assert {number for number, kept in enumerate(same) if not kept} == gone
    assert text.startswith("head\n")


def test_keys_that_are_made_anew_are_the_same_keys() -> None:
    domains = many(200)
    again = {"".join(list(name)): items for name, items in domains.items()}
    assert all(turns(LOOP, {"domains": domains}, {"domains": again})[1])


def test_one_and_true_print_differently() -> None:
    template = "{% for a in l %}{{ a }}\n{% endfor %}{% for a, b in d.items() %}{{ a }}\n{% endfor %}"
    first, second = {"l": [1, 0], "d": {1: None}}, {"l": [True, False], "d": {True: None}}
    assert turns(template, first, second)[0] == "True\nFalse\nTrue\n"


def test_the_body_runs_for_changed_elements_only() -> None:
    class Counting:
        asked = 0

        @property
        def port(self) -> int:
            self.asked += 1
            return 80

    domains = {name: Counting() for name in "abc"}
    by = renderer(LOOP)
    for _ in range(3):
        rendered(by, {"domains": domains | {"b": Counting()}})
    assert (domains["a"].asked, domains["c"].asked) == (1, 1)


def test_what_stands_around_the_loops_does_not_run_for_a_changed_element() -> None:
    asked: list[str] = []

    class Asked:
        def __str__(self) -> str:
            asked.append("outside")
            return "around"

    by = renderer("{{ about }}\n{% for d, i in domains.items() %}\n{{ d }} {{ i.port }}\n{% endfor %}{{ about }}")
    domains, about = Layered({name: entry(80) for name in "abc"}), Asked()
    rendered(by, {"domains": copied(domains), "about": about})
    before = len(asked)
    domains = domains.with_values({"b": entry(81)})
    assert rendered(by, {"domains": copied(domains), "about": about}).text == "around\na 80\nb 81\nc 80\naround\n"
    assert len(asked) == before > 0
    domains = domains.with_values({"c": {"proto": "http"}})
    with pytest.raises(RejectedInput, match=r"01.tmpl line 3") as caught:
        rendered(by, {"domains": copied(domains), "about": about})
    assert "c" in str(caught.value)
    domains = domains.with_values({"c": entry(82)})
    assert rendered(by, {"domains": copied(domains), "about": about}).text == "around\na 80\nb 81\nc 82\naround\n"


def test_what_a_loop_reads_from_outside_renders_it_again() -> None:
    template = (
        "{% set n = count %}{% for d, i in domains.items() %}{{ d }} {{ n }} {{ other | default(0) }}\n{% endfor %}"
    )
    domains = many(3)
    assert turns(template, {"domains": domains, "count": 1}, {"domains": domains, "count": 1})[1] == [True] * 3
    text, same = turns(template, {"domains": domains, "count": 1}, {"domains": domains, "count": 2})
    assert (text, same) == ("s000 2 0\ns001 2 0\ns002 2 0\n", [False] * 3)
    text, _ = turns(template, {"domains": domains, "count": 1}, {"domains": domains, "count": 1, "other": 7})
    assert text.endswith("s002 1 7\n")


TRAPS = {
    "the number of the turn": "{% for d in domains %}{{ loop.index }}{{ d }}\n{% endfor %}",
    "a macro": (
        "{% macro m() %}{{ domains | length }}{% endmacro %}{% for d in domains %}{{ d }}{{ m() }}\n{% endfor %}"
    ),
    "an imported macro": "{% import 'lib' as lib %}{% for d in domains %}{{ d }}{{ lib.size() }}\n{% endfor %}",
    "an include": "{% for d in domains %}{{ d }}{% include 'part' %}\n{% endfor %}",
    "a namespace": (
        "{% set n = namespace(x=0) %}{% for d in domains %}{% set n.x = n.x + 1 %}{{ d }}{{ n.x }}\n{% endfor %}"
    ),
    "a list": "{% set l = [] %}{% for d in domains %}{% do l.append(d) %}{{ d }}{{ l | length }}\n{% endfor %}",
    "a cycler": "{% set c = cycler('a', 'b') %}{% for d in domains %}{{ d }}{{ c.next() }}\n{% endfor %}",
    "a joiner": "{% set j = joiner(',') %}{% for d in domains %}{{ j() }}{{ d }}{% endfor %}",
    "all elements": "{% for d in domains %}{{ d }}{{ domains | length }}\n{% endfor %}",
    "a filter with context": "{% for d in domains %}{{ [d] | map('upper') | join }}{{ sizes | sum }}\n{% endfor %}",
    "a name that is set later": (
        "{% for d in domains %}{{ d }}{{ size | default('-') }}\n{% endfor %}{% set size = 1 %}"
    ),
    "a name of the turn before": (
        "{% set s = size %}{% for d in domains %}{{ s | default('-') }}{% if d == 's000' %}{% set s = d %}{% endif %}"
        "{{ s }}\n{% endfor %}"
    ),
    "an else": "{% for d in domains if d == wanted %}{{ d }}{% else %}none {{ size }}{% endfor %}",
    "an end before the end": "{% for d in domains %}{% if d == wanted %}{% break %}{% endif %}{{ d }}\n{% endfor %}",
    "a function": "{% for d in domains %}{{ d }}{{ ask() }}\n{% endfor %}",
    "a recursion": "{% for d in domains recursive %}{{ d }}{{ loop.depth }}{{ size }}\n{% endfor %}",
    "a map with entries": (
        "{% for d in domains %}{{ map_file('m', domains.items() | map('first') | map('list')) }}{% endfor %}"
    ),
    "a loop in a loop": "{% for s in sizes %}{% for d in domains %}{{ s }}{{ d }}\n{% endfor %}{% endfor %}",
    "a loop in a macro": (
        "{% macro m(x) %}{% for d in domains %}{{ x }}{{ d }}\n{% endfor %}{% endmacro %}{{ m(size) }}"
    ),
    "a loop in a set block": "{% set t %}{% for d in domains %}{{ d }}{{ size }}\n{% endfor %}{% endset %}{{ t }}",
    "a filter block": "{% filter upper %}{% for d in domains %}{{ d }}{{ size }}\n{% endfor %}{% endfilter %}",
    "a with": "{% with n = size %}{% for d in domains %}{{ d }}{{ n }}\n{% endfor %}{% endwith %}",
    "branches": (
        "{% if size > 2 %}{% set s = 1 %}{% endif %}{% for d in domains %}{{ d }}{{ s | default(0) }}\n{% endfor %}"
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_not_pure_is_rendered_as_ever(trap: str) -> None:
    library = {"lib": "{% macro size() %}{{ domains | length }}{% endmacro %}", "part": "{{ domains | length }}"}
    by = renderer(TRAPS[trap], includable=library)
    for size in (1, 3, 2, 2):
        names = {"domains": many(size), "size": size, "wanted": f"s00{size}", "sizes": [size], "ask": lambda n=size: n}
        try:
            expected: object = rendered(renderer(TRAPS[trap], includable=library), names)
        except RejectedInput as error:
            expected = str(error)
        try:
            found: object = rendered(by, names)
        except RejectedInput as error:
            found = str(error)
        assert found == expected


def test_values_that_a_template_changes_are_never_remembered() -> None:
    change = "{% for d, i in domains.items() %}{% do i.update({'port': size}) %}{% endfor %}"
    domains, by = many(2), renderer(change, LOOP)
    for size in (1, 2):
        assert f"s001 {size}\n" in rendered(by, {"domains": domains, "size": size}).text


def test_the_date_is_told_each_time() -> None:
    by = renderer("{% for d in domains %}{{ d }} {{ extra.curdate }}\n{% endfor %}")
    for date in ("one", "two"):
        found = by.render(Context({"domains": many(1)}), curdate=date)
        assert (found.rendering.text, found.used_curdate) == (f"s000 {date}\n", True)


def test_errors_in_a_remembered_loop_name_line_and_object_each_time() -> None:
    by = renderer("x\n{% for d, items in domains.items() %}\n{{ items.prt }}\n{% endfor %}")
    good = {"prt": 1, "port": 2, "namespace": "demo", "name": "good"}
    bad = {"port": 2, "namespace": "demo", "name": "shop", "domain": "s.x"}
    assert rendered(by, {"domains": {"a": good}}).text == "x\n1\n"
    for _ in range(2):
        with pytest.raises(RejectedInput) as caught:
            rendered(by, {"domains": {"a": good, "s.x": bad}})
        (problem,) = caught.value.problems
        assert problem.place == "01.tmpl line 3"
        assert problem.message == "'items' has no 'prt', while rendering demo/shop (domain 's.x')"
        assert problem.remedy.startswith("did you mean 'port'")
    assert rendered(by, {"domains": {"a": good, "b": good}}).text == "x\n1\n1\n"


def test_characters_that_would_break_the_file_are_refused_each_time() -> None:
    by = renderer(LOOP)
    names = {"domains": many(3) | {"s001": entry(0) | {"port": "1\r"}}}
    for _ in range(2):
        with pytest.raises(RejectedInput) as caught:
            rendered(by, names)
        assert caught.value.problems[0].place == "01.tmpl rendered line 2"


def test_other_contexts_in_between_are_no_harm() -> None:
    by, domains = renderer(LOOP), many(3)
    first = rendered(by, {"domains": domains})
    assert rendered(by, {"domains": {}}).text == "end\n"
    assert rendered(by, {"domains": domains}) == first
