"""``{% each %}``: whatever was rendered before, the text is that of a new renderer; unchanged elements do not run."""

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import RejectedInput
from pyconfd.model.context import Context
from pyconfd.model.versioned import VersionedDict
from tests.render.stage import rendered, renderer


def entry(port: int, **more: Any) -> dict[str, Any]:
    return {"port": port, "proto": "http", "ips": ["192.0.2.1", "192.0.2.2"], **more}


def many(count: int) -> dict[str, Any]:
    return {f"s{number:03}": entry(number) for number in range(count)}


EACH = "{% each d, i in domains %}\n{{ d }} {{ i.port }}\n{% endeach %}\nend"
PREDECESSORS = """\
{%- for domain, items in domains.items() %}
{%- if items.proto == 'http' %}
{%- set var_name = domain|replace('.', '_') %}

    acl {{ var_name }} hdr(host) -i {{ domain }}
{%- endif %}
{%- endfor %}

{% each domain, items in domains if items.proto != 'redis' %}
backend be{{ domain }}
{% for ip in items.ips %}
    server {{ loop.index }} {{ ip|replace('.', '_') }} {{ ip }}:{{ items.port }} check{{ ',' if not loop.last }}
{% endfor %}
{% endeach %}
"""
MAPS = """\
{% set binds = vars.bind | default('*:80') %}
{% set limit = names | length %}
{% if binds %}
    path {{ map_file('hosts') }} {{ map_file('ends', longest_first=true) }}
{% each domain, items in domains if items.proto == 'http' %}
{% do map_entry('ends' if domain.startswith('b') else 'hosts', items.key | default(domain), 'be-' ~ domain) %}
# {{ domain }} {{ limit }} {{ missing | default('none') }}
{% endeach %}
{% endif %}
{% each name in names %}
{{ name }}
{% endeach %}
{% each name, port in domains | dictsort %}{{ name }}={{ port.port }} {% endeach %}
"""
TWICE = """\
{% for part in ('http', 'redis') %}
{{ part }}:
{% each domain, items in domains if items.proto == part %}
{{ domain }}{% set port = items.port %} {{ port }}
{% endeach %}
{% endfor %}
{% for domain in domains %}{{ domain }}{% else %}nothing{% endfor %}
"""
ALL = (PREDECESSORS, MAPS, TWICE)

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
    unused = renderer(*ALL)
    by = copy(unused)
    for names in given_contexts:
        again, new = rendered(by, names), rendered(copy(unused), names)
        assert again.text == new.text
        assert again == new


@given(
    st.dictionaries(domain_names, st.sampled_from(ENTRIES), min_size=1, max_size=6),
    st.lists(st.dictionaries(domain_names, st.none() | st.sampled_from(ENTRIES), max_size=3), min_size=1, max_size=5),
    st.sampled_from([ALL, (PREDECESSORS,), (MAPS, TWICE), (EACH, PREDECESSORS)]),
)
def test_mappings_that_know_what_changed_give_what_new_renderers_give(
    first: dict[str, Any], rounds: list[dict[str, Any]], fragments: tuple[str, ...]
) -> None:
    unused, domains, names = renderer(*fragments), VersionedDict(first), ["x"]
    by = copy(unused)
    for number, changes in enumerate([{}, *rounds]):
        came = {name: each for name, each in changes.items() if each is not None}
        domains = domains.with_changes(came, [name for name in changes if name not in came], str)
        # Now and then nobody renders: then the next copy is of something that the last one does not know.
        if number % 3 == 2:
            continue
        again = rendered(by, {"domains": domains, "names": names})
        new = rendered(copy(unused), {"domains": dict(domains), "names": names})
        assert again.text == new.text
        assert again == new


def test_fragment_that_reads_the_same_objects_is_not_rendered() -> None:
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


class Counting:
    asked = 0

    @property
    def port(self) -> int:
        self.asked += 1
        return 80


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "one": lambda d: d | {"s050": entry(999)},
    "many": lambda d: d | {f"s{n:03}": entry(999) for n in range(100)},
    "added": lambda d: dict(sorted((d | {"s0505": entry(999)}).items())),
    "removed": lambda d: {key: value for key, value in d.items() if key not in {"s050", "s199"}},
    "turned round": lambda d: dict(reversed(d.items())),
    "the same keys as other texts": lambda d: {"".join(list(name)): items for name, items in d.items()},
}


@pytest.mark.parametrize("change", CHANGES)
def test_unchanged_elements_do_not_run(change: str) -> None:
    domains: dict[str, Any] = {f"s{number:03}": Counting() for number in range(200)}
    by = renderer(EACH)
    rendered(by, {"domains": domains})
    after = CHANGES[change](domains)
    found = rendered(by, {"domains": after})
    assert (
        found.text
        == rendered(
            renderer(EACH),
            {"domains": after | {d: {"port": 80} for d in domains if d in after and after[d] is domains[d]}},
        ).text
    )
    assert {each.asked for each in domains.values()} == {1}


@pytest.mark.parametrize("gone", [(), ("s050", "s199")])
@pytest.mark.parametrize("came", [{}, {"s0505": entry(999)}, {"s0505": entry(999), "s003": entry(999)}])
def test_elements_that_stay_beside_others_that_come_and_go_do_not_run(came: dict[str, Any], gone: tuple[str]) -> None:
    domains = VersionedDict[str, Any]({f"s{number:03}": Counting() for number in range(200)})
    by = renderer(EACH)
    rendered(by, {"domains": domains})
    after = domains.with_changes(came, gone, str)
    found = rendered(by, {"domains": after})
    assert {each.asked for each in domains.values()} == {1}
    assert found.text == rendered(renderer(EACH), {"domains": dict(after)}).text


class Untouchable(VersionedDict[str, Any]):
    """A dict whose values nobody may compare one by one."""

    __slots__ = ()

    def values(self) -> Any:
        raise AssertionError


def test_elements_that_are_the_same_object_are_not_compared() -> None:
    domains, by = Untouchable(many(3)), renderer("{{ count }}\n" + EACH)
    first = rendered(by, {"domains": domains, "count": 1})
    assert rendered(by, {"domains": domains, "count": 2}).text == first.text.replace("1", "2", 1)


def test_changed_blocks_are_told_apart() -> None:
    domains, by = VersionedDict(many(200)), renderer("head\n" + EACH)
    before = rendered(by, {"domains": domains}).pieces[0]
    after = rendered(by, {"domains": domains.with_values({"s050": entry(999)})}).pieces[0]
    assert after.runs_since(before) == [(51, 52, 51, 52)]


def test_outer_names_render_all_elements_again() -> None:
    template = "{% set n = count %}{% each d, i in domains %}{{ d }} {{ n }} {{ other | default(0) }}\n{% endeach %}"
    by, domains = renderer(template), {"a": Counting()}
    for names, expected in (
        ({"count": 1}, "a 1 0\n"),
        ({"count": 2}, "a 2 0\n"),
        ({"count": 2, "other": 7}, "a 2 7\n"),
        ({"count": True, "other": 7}, "a True 7\n"),
    ):
        assert rendered(by, {"domains": domains, **names}).text == expected


BODIES = {
    "a macro": (
        "{% macro m() %}{{ domains | length }}{% endmacro %}{% each d in domains %}{{ d }}{{ m() }}\n{% endeach %}"
    ),
    "an imported macro": "{% import 'lib' as lib %}{% each d in domains %}{{ d }}{{ lib.size() }}\n{% endeach %}",
    "a namespace": (
        "{% set n = namespace(x=0) %}{% each d in domains %}{% set n.x = n.x + 1 %}{{ d }}{{ n.x }}\n{% endeach %}"
    ),
    "a list": "{% set l = [] %}{% each d in domains %}{% do l.append(d) %}{{ d }}{{ l | length }}\n{% endeach %}",
    "a cycler": "{% set c = cycler('a', 'b') %}{% each d in domains %}{{ d }}{{ c.next() }}\n{% endeach %}",
    "a joiner": "{% set j = joiner(',') %}{% each d in domains %}{{ j() }}{{ d }}{% endeach %}",
    "all elements": "{% each d in domains %}{{ d }}{{ domains | length }}\n{% endeach %}",
    "a filter with context": "{% each d in domains %}{{ [d] | map('upper') | join }}{{ sizes | sum }}\n{% endeach %}",
    "a name that is set later": (
        "{% each d in domains %}{{ d }}{{ size | default('-') }}\n{% endeach %}{% set size = 1 %}"
    ),
    "a condition": "{% each d in domains if d == wanted %}{{ d }}{% endeach %}",
    "a function": "{% each d in domains %}{{ d }}{{ ask() }}\n{% endeach %}",
    "each in for": "{% for s in sizes %}{% each d in domains %}{{ s }}{{ d }}\n{% endeach %}{% endfor %}",
    "each in each": "{% each s in sizes %}{% each d in domains %}{{ s }}{{ d }}\n{% endeach %}{% endeach %}",
    "each in a macro": (
        "{% macro m(x) %}{% each d in domains %}{{ x }}{{ d }}\n{% endeach %}{% endmacro %}{{ m(size) }}"
    ),
    "each in a set block": "{% set t %}{% each d in domains %}{{ d }}{{ size }}\n{% endeach %}{% endset %}{{ t }}",
    "each in with": "{% with n = size %}{% each d in domains %}{{ d }}{{ n }}\n{% endeach %}{% endwith %}",
    "equal values of other types": "{% each a in l %}{{ a }}\n{% endeach %}{% each a, b in m %}{{ a }}\n{% endeach %}",
}


@pytest.mark.parametrize("body", BODIES)
def test_bodies_that_read_more_give_the_same_text(body: str) -> None:
    library = {"lib": "{% macro size() %}{{ domains | length }}{% endmacro %}"}
    by = renderer(BODIES[body], includable=library)
    for size in (1, 3, 2, 2):
        names = {
            "domains": many(size),
            "size": size,
            "wanted": f"s00{size}",
            "sizes": [size],
            "ask": lambda n=size: n,
            "l": [1, 0] if size == 1 else [True, False],
            "m": {1: None} if size == 1 else {True: None},
        }
        new = renderer(BODIES[body], includable=library)
        results = []
        for one in (by, new):
            try:
                results.append(rendered(one, names).text)
            except RejectedInput as error:
                results.append(str(error))
        assert results[0] == results[1]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% each d in domains %}{% include 'part' %}{% endeach %}", "outside of {% each %}"),
        ("{% each d in domains %}{{ certificate_file('c', d) }}{% endeach %}", "outside of {% each %}"),
        ("{% each d in domains %}{{ map_file('m', {}) }}{% endeach %}", "outside of {% each %}"),
        ("{% each a, b, c in domains %}{% endeach %}", "one variable, or two"),
        ("{% each a in domains %}", "endeach"),
    ],
)
def test_what_each_cannot_take_is_named(template: str, message: str) -> None:
    with pytest.raises(RejectedInput) as caught:
        renderer(f"first\n{template}", includable={"part": ""})
    (problem,) = caught.value.problems
    assert problem.place == "01.tmpl line 2"
    assert message in problem.message


def test_rows_of_another_width_are_named() -> None:
    with pytest.raises(RejectedInput, match="an element has 3 values"):
        rendered(renderer("{% each a, b in rows %}{{ a }}{% endeach %}"), {"rows": [(1, 2, 3)]})


def test_the_date_is_told_each_time() -> None:
    by = renderer("{% each d in domains %}{{ d }} {{ extra.curdate }}\n{% endeach %}")
    for date in ("one", "two"):
        found = by.render(Context({"domains": many(1)}), curdate=date)
        assert (found.rendering.text, found.used_curdate) == (f"s000 {date}\n", True)


def test_errors_name_line_and_object_each_time() -> None:
    by = renderer("x\n{% each d, items in domains %}\n{{ items.prt }}\n{% endeach %}")
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


@pytest.mark.parametrize("value", ["1\r", "1\0", "\0000\0", "\0001\0"])
def test_characters_that_would_break_the_file_are_refused_each_time(value: str) -> None:
    by = renderer(EACH)
    names = {"domains": many(3) | {"s001": entry(0) | {"port": value}}}
    for _ in range(2):
        with pytest.raises(RejectedInput) as caught:
            rendered(by, names)
        assert "cannot stand in haproxy.cfg" in caught.value.problems[0].message


def test_a_value_cannot_forge_the_mark_of_a_loop() -> None:
    by = renderer("{{ forged }}\n" + EACH)
    for forged in ("\0000\0", "\0001\0", "\0"):
        with pytest.raises(RejectedInput, match="NUL"):
            rendered(by, {"domains": many(2), "forged": forged})


def test_other_contexts_in_between_are_no_harm() -> None:
    by, domains = renderer(EACH), many(3)
    first = rendered(by, {"domains": domains})
    assert rendered(by, {"domains": {}}).text == "end\n"
    assert rendered(by, {"domains": domains}) == first


def test_lines_lead_to_the_element_that_gave_them() -> None:
    domains = {"a": entry(1), "b": entry(2, proto="redis"), "c": entry(3)}
    by = renderer("head\n{% each d, i in domains if i.proto == 'http' %}\n{{ d }}\n  {{ i.port }}\n{% endeach %}\nend")
    text = rendered(by, {"domains": domains}).text
    found = {line: by.element_at("01.tmpl", number, text) for number, line in enumerate(text.split("\n"), 1)}
    assert found == {
        "head": None,
        "a": ("a", domains["a"]),
        "  1": ("a", domains["a"]),
        "c": ("c", domains["c"]),
        "  3": ("c", domains["c"]),
        "end": None,
        "": None,
    }
    assert by.element_at("01.tmpl", 2, "another text") is None
    assert by.element_at("02.tmpl", 2, text) is None


def test_an_element_may_declare_a_map_of_its_entries() -> None:
    template = (
        "{% each d, i in domains %}{% do map_entry(d, i.port, 'x') %}{{ map_file(d, ordered=true) }}\n{% endeach %}"
    )
    by = renderer(template)
    found = rendered(by, {"domains": many(2)})
    assert [file.path for file in found.files] == ["/files/maps/s000.map", "/files/maps/s001.map"]
    assert rendered(by, {"domains": many(2)}).files == found.files


@pytest.mark.parametrize("fails", [{"ok": 0}, {"ok": 1, "text": "a\0b"}])
def test_a_rendering_that_fails_changes_nothing(fails: dict[str, Any]) -> None:
    by, before = renderer(EACH + "{{ 1 // ok }}{{ text }}"), VersionedDict(many(3))
    after = before.with_values({"s001": entry(999)})
    good = {"ok": 1, "text": ""}
    first = rendered(by, {"domains": before, **good})
    for _ in range(2):
        with pytest.raises(RejectedInput):
            rendered(by, {"domains": after, **good, **fails})
        assert rendered(by, {"domains": before, **good}).text == first.text
    assert rendered(by, {"domains": after, **good}).text == first.text.replace("s001 1\n", "s001 999\n")


@pytest.mark.parametrize(
    "template",
    [
        "{{ d | tojson }}",
        "{{ {'all': d} | tojson }}",
        "{{ d }}",
        "{{ d.s001 }}",
        "{{ d | dictsort | first | first }}",
        "{{ (d | items | list)[0][0] }}",
        "{{ dict(d, x=1) | length }}",
        "{{ d.copy() == d }}",
        "{{ d is mapping }} {{ d | length }} {{ d.keys() | list }} {{ 's001' in d }} {{ d.get('s009') }}",
    ],
)
def test_a_template_reads_it_as_a_dict(template: str) -> None:
    values = {"s001": {"port": 1}, "s002": {"port": 2}}
    texts = [rendered(renderer(template), {"d": kind(values)}).text for kind in (dict, VersionedDict)]
    assert texts[0] == texts[1]


def test_what_json_does_not_have_is_said() -> None:
    with pytest.raises(RejectedInput, match="give tojson its fields"):
        rendered(renderer("{{ x | tojson }}"), {"x": object()})


def test_items_of_a_mapping_are_its_elements() -> None:
    """Written for Jinja's own loops, ``domains.items()`` renders as seldom as ``domains``."""
    domains = VersionedDict[str, Any]({f"s{number:03}": Counting() for number in range(200)})
    by = renderer(EACH.replace(" in domains", " in domains.items()"))
    rendered(by, {"domains": domains})
    after = domains.with_changes({"s0505": entry(999)}, ["s050"], str)
    found = rendered(by, {"domains": after})
    assert {each.asked for each in domains.values()} == {1}
    assert found.text == rendered(renderer(EACH), {"domains": dict(after)}).text
