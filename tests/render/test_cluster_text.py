"""Which text is used where a template of the cluster is rejected."""

from typing import Any

import pytest

from pyconfd.errors import PendingRendering, Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate, Context, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import Fragment, FragmentSet, Piece, Rendering
from pyconfd.render import cluster_templates
from pyconfd.render.cluster_templates import (
    ClusterText,
    Fallback,
    TemplateFault,
    cluster_text,
    last_good_texts,
    rejected_texts,
)
from pyconfd.render.engine import Renderer, RenderOptions

NAME = "configmap lb/config"
REF = ObjectRef("ConfigMap", "lb", "config")
PROBLEM = Problem(f"{NAME} line 3", "unexpected '}'", "correct the template")
LAST_GOOD = Fallback({NAME: "last good\n"})
CHECK = Problem(f"{NAME} rendered line 70", "unknown keyword 'moed'", "did you mean 'mode'?", NAME)


def render(template: ClusterTemplate) -> str:
    if "slow" in template.text:
        known = {"slow": None, "slow good": "of before\n", "slow bad": RejectedInput(PROBLEM)}
        raise PendingRendering(known[template.text])
    if "bad" in template.text:
        raise RejectedInput(PROBLEM)
    return f"{template.text} {template.names['pod']}\n"


def template(text: str) -> ClusterTemplate:
    return ClusterTemplate(NAME, text, {"pod": "new"}, ref=REF)


@pytest.mark.parametrize(
    ("source", "fallback", "text", "problems", "pending"),
    [
        pytest.param("good", LAST_GOOD, "good new\n", (), False, id="its own"),
        pytest.param("bad", LAST_GOOD, "last good\n", (PROBLEM,), False, id="rejected: the last good text"),
        pytest.param("bad", Fallback(), None, (PROBLEM,), False, id="rejected and never accepted: left out"),
        pytest.param("slow", LAST_GOOD, "last good\n", (), True, id="not rendered yet: the last good text"),
        pytest.param("slow good", LAST_GOOD, "of before\n", (), True, id="not rendered yet: what it gave last"),
        pytest.param("slow bad", LAST_GOOD, "last good\n", (PROBLEM,), True, id="not rendered yet, rejected before"),
        pytest.param(
            "good", Fallback({NAME: "x\n"}, {(NAME, "good"): (CHECK,)}), "x\n", (CHECK,), False, id="by HAProxy"
        ),
        pytest.param(
            "good", Fallback({}, {(NAME, "other"): (CHECK,)}), "good new\n", (), False, id="another source by HAProxy"
        ),
        pytest.param("good", Fallback({NAME: "x\n"}, frozen=True), "x\n", (), False, id="frozen in a search"),
    ],
)
def test_text_of_a_template(
    source: str, fallback: Fallback, text: str | None, problems: tuple[Problem, ...], pending: bool
) -> None:
    found = cluster_text(template(source), render, fallback)
    assert (found.text, found.problems, found.pending) == (text, problems, pending)


def test_a_rejection_says_what_is_served_instead() -> None:
    kept, left_out = (cluster_text(template("bad"), render, each) for each in (LAST_GOOD, Fallback()))
    assert kept.explained()[0].message.startswith("unexpected '}'; its last good text stays")
    refusal = kept.refusal()
    assert (refusal.ref, refusal.field, refusal.reason) == (REF, "template", RefusalReason.BAD_TEMPLATE)
    assert refusal.detail.startswith("line 3: unexpected '}'; its last good text stays")
    assert "nothing is served from it" in left_out.refusal().detail
    moving = ClusterText(template("good"), "x", (CHECK,))
    assert "rendered line" not in moving.refusal().detail, "the number moves with the endpoints above it"


def test_only_the_own_text_with_the_problem_is_rejected() -> None:
    own = ClusterText(template("good"), "good new\n")
    assert rejected_texts([own], [CHECK]) == {(NAME, "good"): (CHECK,)}
    other = Problem("02-http.tmpl rendered line 1", "unknown keyword", "", "02-http.tmpl")
    assert rejected_texts([own], [other, Problem("haproxy.cfg", "?")]) == {}
    assert rejected_texts([ClusterText(template("good"), "last good\n", (PROBLEM,))], [CHECK]) == {}


def test_last_good_texts_are_those_of_the_running_configuration() -> None:
    running = Rendering((Piece("01-a.conf", "listen a\n"), Piece(NAME, "runs\n")))
    assert last_good_texts([template("x")], running) == {NAME: "runs\n"}
    assert last_good_texts([template("x")], None) == {}
    assert last_good_texts([], running) == {}


def engine(fragment: str) -> Renderer:
    return Renderer(FragmentSet((Fragment("01-a.conf", fragment),)), RenderOptions("/files"), render)


def test_a_rejected_template_does_not_stop_the_fragments() -> None:
    context = Context({}, templates=(template("bad"), ClusterTemplate("other", "good", {"pod": "p"})))
    rendered = engine("listen a\n").render(context, curdate="", fallback=Fallback())
    assert rendered.rendering.text == "listen a\ngood p\n"
    assert [each.text for each in rendered.cluster_texts] == [None, "good p\n"]


@pytest.mark.parametrize(("fragment", "fallback"), [("\n", Fallback()), ("listen a\n", None)])
def test_a_rejected_template_rejects_the_rendering(fragment: str, fallback: Fallback | None) -> None:
    """Where it is all there is, and for commands: those replace nothing."""
    with pytest.raises(RejectedInput, match="unexpected '}'"):
        engine(fragment).render(Context({}, templates=(template("bad"),)), curdate="", fallback=fallback)


REQUIRED = {"stats.password": "set it", "env.*": "list it"}
STATS: dict[str, Any] = {"stats": {"username": "u"}, "env": {"A": "1"}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{ stats.username }} {{ env.A }}", "u 1"),
        # Any other name without a value prints nothing.
        ("a{{ stats.other }}{{ other }}{{ other_.more }}b", TemplateFault(1, "'other_' is undefined")),
        ("a{{ stats.other }}{{ other }}b", "ab"),
        ("\n{{ stats.password }}", TemplateFault(2, "stats.password has no value: set it", remedy="")),
        ("{{ env.B }}", TemplateFault(1, "env.B has no value: list it", remedy="")),
        ("{% if stats.password %}x{% endif %}", ""),
        ("x\n{% if %}", TemplateFault(2, "Expected an expression, got 'end of statement block'")),
        ("12345", "12345"),
    ],
)
def test_what_a_template_of_the_cluster_gives(text: str, found: str | TemplateFault) -> None:
    assert cluster_templates.render(text, STATS, REQUIRED, 5 if text == "12345" else 100) == found


def test_a_template_of_the_cluster_has_an_end() -> None:
    assert isinstance(cluster_templates.render("123456", {}, {}, 5), TemplateFault)


def test_where_no_template_of_the_cluster_is_rendered_one_is_refused() -> None:
    renderer = Renderer(FragmentSet((Fragment("01-a.conf", "\n"),)), RenderOptions("/files"))
    with pytest.raises(RejectedInput) as raised:
        renderer.render(Context({}, templates=(template("good"),)), curdate="")
    assert raised.value.problems == (Problem(NAME, "templates from the cluster are not rendered here"),)
