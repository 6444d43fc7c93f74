from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.context import Context
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.render.tracing import trace

TEMPLATE = """{% from 'lines' import lines %}
first
{% for service in services if service != 'hidden' %}
backend {{ service }}
{% for pod in pods %}
    server {{ pod }}{% if pod == 'b' %} backup
{% break %}{% endif %}

{% endfor %}
{{ lines(pods) }}
{%- endfor %}
last
{% cached for key, value in pairs.items() %}
{{ key }}={{ value }}
{% endcached %}
{% include 'included' %}
"""
INCLUDABLE = (
    Fragment("lines", "{% macro lines(names) %}{% for name in names %}# {{ name }}\n{% endfor %}{% endmacro %}"),
    Fragment("included", "{% for service in services %}{{ service }}, {% endfor %}\n"),
)
NAMES = {"services": ["web", "hidden", "db"], "pods": ["a", "b", "c"], "pairs": {"k": 1, "l": 2}}


def traced(template: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Give each line with what it was made of."""
    renderer = Renderer(FragmentSet((Fragment("01-a.tmpl", template),), INCLUDABLE), RenderOptions("/files"))
    context = Context(names or NAMES)
    rendering = renderer.render(context, curdate="").rendering
    lines = rendering.text.split("\n")
    places = [("01-a.tmpl", number) for number in range(1, len(lines) + 1)]
    found = trace(renderer, context, rendering, places, curdate="")
    return {lines[number - 1]: found[piece, number] for piece, number in found}


def test_each_line_leads_to_the_elements_that_gave_it_the_innermost_first() -> None:
    found = traced(TEMPLATE)
    assert found["backend web"] == (("web",),)
    assert found["    server a"] == (("a", "db"),), "the last of two equal lines"
    assert found["    server b backup"] == (("b", "db"),), "a loop that was left"
    assert found["# c"] == (("c", "db"),), "a macro of an imported file"
    assert found["k=1"] == ((("k", 1),),)
    assert found["web, hidden, db, "] == (("web",), ("hidden",), ("db",)), "several turns in one line"
    assert not {"first", "last"} & found.keys()


def test_a_map_is_not_believed_where_the_marks_change_the_text() -> None:
    looked_at = "{% set text %}{% for a in services %}{{ a }}\n{% endfor %}{% endset %}{{ text | length }}\n{{ text }}"
    assert traced(looked_at) == {}
    assert traced(looked_at.replace("{{ text | length }}", "")) != {}


def test_what_cannot_be_rendered_again_gives_nothing() -> None:
    renderer = Renderer(FragmentSet((Fragment("01-a.tmpl", "{{ missing }}\n"),)), RenderOptions("/files"))
    other = Renderer(FragmentSet((Fragment("01-a.tmpl", "x\n"),)), RenderOptions("/files"))
    context = Context({})
    rendering = other.render(context, curdate="").rendering
    assert trace(renderer, context, rendering, [("01-a.tmpl", 1)], curdate="") == {}


@given(st.lists(st.lists(st.text("ab \n", max_size=4), max_size=4), max_size=4))
def test_every_line_with_words_in_a_loop_is_traced(rows: list[list[str]]) -> None:
    template = "{% for row in rows %}{% for cell in row %}\n[{{ cell }}]\n{% endfor %}{% endfor %}"
    renderer = Renderer(FragmentSet((Fragment("01-a.tmpl", template),)), RenderOptions("/files"))
    context = Context({"rows": rows})
    rendering = renderer.render(context, curdate="").rendering
    lines = rendering.text.split("\n")
    places = [("01-a.tmpl", number) for number in range(1, len(lines) + 1)]
    found = trace(renderer, context, rendering, places, curdate="")
    assert {number for _, number in found} == {n for n, line in enumerate(lines, 1) if line.strip()}
    assert all(lines[number - 1].strip("[] ") in cell for (_, number), ((cell, _), *_) in found.items())
