"""``{% cached for %}``: a loop that must be remembered, or the operator is told why it cannot be."""

import re
from typing import Any

import pytest

from pyconfd.errors import Problem, RejectedInput
from pyconfd.fragments import of_presets
from pyconfd.model.context import Context
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.render.cached import Loops
from pyconfd.render.engine import FILTERS, Renderer, RenderOptions
from tests.fragments.shipped import GOLDEN, read_context

LIBRARY = Fragment("lib.j2", "{% macro m(x) %}{{ x }}{% endmacro %}")


def render(template: str, names: dict[str, Any], *, changing: str = "") -> Rendering:
    fragments = (Fragment("01.tmpl", changing), Fragment("02.tmpl", template))
    by = Renderer(FragmentSet(fragments, (LIBRARY,)), RenderOptions("/files"))
    return by.render(Context(names), curdate="").rendering


def refused(template: str, **more: str) -> Problem:
    with pytest.raises(RejectedInput) as caught:
        render(template, {}, **more)
    (problem,) = caught.value.problems
    assert problem.remedy
    return problem


@pytest.mark.parametrize(
    "body",
    [
        "{{ d }}={{ i.port }}",
        "{% set name = d | replace('.', '_') %}{{ name }}{{ name }}",
        "{% for ip in i.ips if ip %}{{ loop.index }} {{ ip }}{{ ',' if not loop.last }}{% break %}{% endfor %}",
        "{% if i.port %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}",
        "{% if d == 'a' %}{% continue %}{% endif %}{{ d }}",
        "{% set l = [] %}{% for ip in i.ips %}{% do l.append(ip) %}{% endfor %}{{ l | join }}",
        "{% set n = namespace(x=0) %}{% for ip in i.ips %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
        (
            "{% with x = d %}{{ x }}{% endwith %}{% filter upper %}{{ d }}"
            "{% endfilter %}{% set b %}{{ d }}{% endset %}{{ b }}"
        ),
        "{{ vars.x | default(1) }}{{ hostport('*', i.port) }}{{ [i.port] | map('string') | join }}{{ range(2) | sum }}",
        "{{ i.get('port') }}{{ d.upper() }}{{ d | default('') }}",
        "{{ before }}{{ map_file(d) }}{% do map_entry(d, d, before) %}",
    ],
)
def test_pure_bodies_give_what_plain_loops_give(body: str) -> None:
    loop = (
        "{%% set before = 1 %%}{%% if before %%}"
        "{%% %sfor d, i in domains.items() if i.port %%}%s\n{%% end%s %%}{%% endif %%}"
    )
    names = {"domains": {"a": {"port": 80, "ips": ["192.0.2.1", ""]}, "b": {"port": 81, "ips": []}}}
    rendering = render(loop % ("cached ", body, "cached"), names)
    assert rendering == render(loop % ("", body, "for"), names)
    assert rendering.text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{{ loop.index }}", "it reads 'loop'"),
        ("{{ extra.curdate }}", "it reads 'extra'"),
        ("{{ cluster.nodes | length }}", "it reads cluster, which may change with every object"),
        ("{{ later }}", "it reads later, which is assigned elsewhere"),
        ("{% if d %}{% set x = 1 %}{% endif %}{{ x }}", "may read x before the loop has assigned it"),
        ("{{ own(d) }}", "it calls own()"),
        ("{{ lib.m(d) }}", "it calls lib.m(), which may be a macro"),
        ("{{ unknown(d) }}", "it calls unknown()"),
        ("{{ (d | list)[0]() }}", "it calls what is not known"),
        ("{% do found.append(d) %}", "it changes a value that is not the loop's own: append"),
        ("{% do found['append'](d) %}", "it calls what is not known"),
        ("{% set count.x = 1 %}", "it sets count.x, which is made outside"),
        ("{% include 'lib.j2' %}", "it includes a file"),
        ("{% import 'lib.j2' as l2 %}", "it imports a file"),
        ("{% from 'lib.j2' import m %}", "it imports a file"),
        ("{% macro n() %}{% endmacro %}", "it defines a macro"),
        ("{% call lib.m(d) %}{% endcall %}", "it calls a macro"),
        ("{% break %}", "it has a {% break %}"),
        ("{% cached for x in d %}{% endcached %}", "it has another {% cached for %} in it"),
        ("{{ map_file('m', {d: 1}) }}", "it calls map_file() with entries"),
        ("{{ map_file('m', entries={d: 1}) }}", "it calls map_file() with entries"),
        ("{{ certificate_file('m', d) }}", "it calls certificate_file()"),
    ],
)
def test_each_reason_is_told_with_its_line(body: str, message: str) -> None:
    head = (
        "{% import 'lib.j2' as lib %}{% set found = [] %}{% set count = namespace() %}{% macro own(x) %}{% endmacro %}"
    )
    template = f"{head}\n{{% cached for d in domains %}}\n{body}\n{{% endcached %}}{{% set later = 1 %}}"
    problem = refused(template)
    assert problem.place == "02.tmpl line 3"
    assert message in problem.message


@pytest.mark.parametrize(
    "template",
    [
        "{% macro m() %}LOOP{% endmacro %}",
        "{% for x in [1] %}LOOP{% endfor %}",
        "{% set x %}LOOP{% endset %}",
        "{% filter upper %}LOOP{% endfilter %}",
        "{% call x() %}LOOP{% endcall %}",
        "{% block b %}LOOP{% endblock %}",
    ],
)
def test_where_nothing_is_remembered_it_is_an_error(template: str) -> None:
    loop = "\n{% cached for d in domains %}{{ d }}{% endcached %}"
    problem = refused(template.replace("LOOP", loop))
    assert problem.place == "02.tmpl line 2"
    assert "only a loop of the fragment itself" in problem.message


def test_a_template_that_changes_values_is_named() -> None:
    problem = refused("{% cached for d in domains %}{{ d }}{% endcached %}", changing="\n{% do domains.update({}) %}")
    assert "01.tmpl line 2 changes values that it may read" in problem.message


def test_an_else_and_an_included_file_do_not_parse() -> None:
    assert "has no {% else %}" in refused("{% cached for d in domains %}{% else %}{% endcached %}").message
    files = (Fragment("part.j2", "{% cached for d in [1] %}{% endcached %}"),)
    by = Renderer(FragmentSet((Fragment("01.tmpl", "{% include 'part.j2' %}"),), files), RenderOptions("/files"))
    with pytest.raises(RejectedInput) as caught:
        by.render(Context({}), curdate="")
    assert "stands in a fragment itself" in str(caught.value)


@pytest.mark.parametrize("preset", ["domains", "kubefigurator"])
def test_every_shipped_loop_over_objects_is_remembered(preset: str) -> None:
    environment = Renderer(FragmentSet(()), RenderOptions("/files"))._environment
    over_objects = []
    for name, path in of_presets([preset]).items():
        if name.endswith(".tmpl"):
            text = path.read_text()
            loops = Loops(
                name,
                environment.parse(text, name),
                functions=frozenset({"hostport"}),
                filters=FILTERS.keys(),
                changed_at="",
            )
            assert loops.memoise() == ()
            over = [
                n for n, line in enumerate(text.splitlines(), 1) if re.search("for .* in (domains|kubefigurator)", line)
            ]
            assert set(over) <= set(loops.remembered)
            over_objects += over
    assert len(over_objects) >= 2


def test_shipped_fragments_render_one_domain_again() -> None:
    domains, variables = read_context(GOLDEN / "every-proto" / "context.json")
    paths = of_presets(["domains"])
    fragments = FragmentSet(tuple(Fragment(name, path.read_text()) for name, path in paths.items()))
    by = Renderer(fragments, RenderOptions("/files", variables=variables))
    first = by.render(Context({"domains": domains}), curdate="").rendering
    for name in domains:
        changed = {**domains, name: {**domains[name], "endpoints": []}}
        second = by.render(Context({"domains": changed}), curdate="").rendering
        known = {id(block) for piece in first.pieces for block in piece.blocks}
        new = [block for piece in second.pieces for block in piece.blocks if id(block) not in known]
        assert len(new) <= 1
        assert second.files == first.files
        assert all(one is two for one, two in zip(first.files, second.files, strict=True))
        first = by.render(Context({"domains": domains}), curdate="").rendering
