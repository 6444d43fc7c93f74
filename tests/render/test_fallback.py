"""Which text serves where a template of the cluster is refused."""

from collections.abc import Mapping

import pytest

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import AcceptedTemplate, ClusterTemplate, Context, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import Fragment, FragmentSet, Piece, Rendering
from pyconfd.render import fallback
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.render.fallback import Barred, Fallback, Taken, Way, take

NAME = "configmap lb/config"
REF = ObjectRef("ConfigMap", "lb", "config")
PROBLEM = Problem(f"{NAME} line 3", "unexpected '}'", "correct the template")


def render(template: ClusterTemplate) -> str:
    if "bad" in template.text:
        raise RejectedInput(PROBLEM)
    return f"{template.text} {template.names['pod']}\n"


def template(text: str, pod: str = "new") -> ClusterTemplate:
    return ClusterTemplate(NAME, text, {"pod": pod}, ref=REF)


def accepted(source: str | None, text: str = "served\n") -> Mapping[str, AcceptedTemplate]:
    return {NAME: AcceptedTemplate(NAME, source, text)}


def taken(text: str, former: Mapping[str, AcceptedTemplate], barred: Mapping[str, Barred] | None = None) -> Taken:
    return take(template(text), render, Fallback(former, barred or {}))


def test_a_good_template_is_taken_and_remembered() -> None:
    found = taken("good", accepted("former"))
    assert (found.way, found.text, found.explained()) == (Way.OWN, "good new\n", ())
    assert found.accepted == AcceptedTemplate(NAME, "good", "good new\n")


def test_the_former_source_is_rendered_with_the_new_values() -> None:
    found = taken("bad", accepted("former"))
    assert (found.way, found.text) == (Way.FORMER_SOURCE, "former new\n")
    assert found.accepted == AcceptedTemplate(NAME, "former", "former new\n")
    (problem,) = found.explained()
    assert problem.place == PROBLEM.place
    assert problem.message.startswith("unexpected '}'; the template that was accepted last is rendered")
    refusal = found.refusal()
    assert (refusal.ref, refusal.field, refusal.reason) == (REF, "template", RefusalReason.BAD_TEMPLATE)
    assert refusal.detail.startswith("line 3: unexpected '}'; the template that was accepted last")


@pytest.mark.parametrize("source", ["bad too", "bad", None])
def test_the_former_text_stays_where_no_source_gives_one(source: str | None) -> None:
    found = taken("bad", accepted(source))
    assert (found.way, found.text) == (Way.FORMER_TEXT, "served\n")
    assert found.accepted == accepted(source)[NAME]
    assert "do not follow" in found.explained()[0].message


def test_what_was_never_accepted_is_left_out() -> None:
    found = taken("bad", {})
    assert (found.way, found.text, found.accepted) == (Way.LEFT_OUT, None, None)
    assert "nothing is served from it" in found.refusal().detail


def test_a_way_that_was_refused_afterwards_is_not_taken_again() -> None:
    check = (Problem(f"{NAME} rendered line 70", "unknown keyword 'moed'", "did you mean 'mode'?", NAME),)
    own = fallback.blamed([taken("good", accepted("former"))], check)
    found = taken("good", accepted("former"), own)
    assert (found.way, found.text) == (Way.FORMER_SOURCE, "former new\n")
    assert "rendered line" not in found.refusal().detail, "the number moves with the endpoints above it"
    source = fallback.blamed([found], check)
    assert taken("good", accepted("former"), source).way is Way.FORMER_TEXT
    assert taken("good", {}, own).way is Way.LEFT_OUT
    text = fallback.blamed([taken("good", accepted("former"), source)], check)
    with pytest.raises(RejectedInput, match="unknown keyword 'moed'"):
        taken("good", accepted("former"), text)


def test_only_the_piece_with_the_problem_is_blamed() -> None:
    other = Problem("02-http.tmpl rendered line 1", "unknown keyword", "", "02-http.tmpl")
    assert fallback.blamed([taken("good", {})], [other, Problem("haproxy.cfg", "?")]) == {}


def test_the_text_that_serves_comes_before_the_one_that_is_remembered() -> None:
    served = Rendering((Piece(NAME, "serves\n"),))
    both = fallback.known([template("x")], accepted("former", "older\n"), served)
    assert both.accepted == accepted("former", "serves\n")
    assert fallback.known([template("x")], {}, served).accepted == accepted(None, "serves\n")
    assert fallback.known([template("x")], accepted("former"), None).accepted == accepted("former")
    assert fallback.known([], accepted("former"), served).accepted == {}


def engine(fragment: str) -> Renderer:
    return Renderer(FragmentSet((Fragment("01-a.conf", fragment),)), RenderOptions("/files"), render)


def test_a_refused_template_does_not_stop_the_fragments() -> None:
    context = Context({}, templates=(template("bad"), ClusterTemplate("other", "good", {"pod": "p"})))
    rendered = engine("listen a\n").render(context, curdate="", fallback=Fallback())
    assert rendered.rendering.text == "listen a\ngood p\n"
    assert [each.way for each in rendered.taken] == [Way.LEFT_OUT, Way.OWN]


def test_a_refused_template_that_is_all_there_is_refuses_the_rendering() -> None:
    with pytest.raises(RejectedInput, match="unexpected '}'"):
        engine("\n").render(Context({}, templates=(template("bad"),)), curdate="", fallback=Fallback())


def test_commands_refuse_what_the_daemon_replaces() -> None:
    with pytest.raises(RejectedInput, match="unexpected '}'"):
        engine("listen a\n").render(Context({}, templates=(template("bad"),)), curdate="")
