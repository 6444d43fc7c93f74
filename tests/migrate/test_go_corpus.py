"""Go templates translated and rendered, against what Go's own text/template gave (tests/data/go-templates)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment

from pyconfd.model.rendering import FragmentSet
from pyconfd.predecessors.gotemplate import GoTemplateError, parse
from pyconfd.predecessors.migrate.go_to_jinja import translate
from pyconfd.predecessors.migrate.migration import migrate
from pyconfd.predecessors.migrate.report import Effect, InputFile, System
from pyconfd.render.engine import RenderOptions, _environment
from tests.migrate.kube2lb_values import kube2lb_names

DATA = Path(__file__).parents[1] / "data" / "go-templates"
TEMPLATES = {path.stem: path.read_bytes().decode() for path in sorted((DATA / "kube2lb").glob("*.tpl"))}
FORMS: list[tuple[str, str]] = json.loads((DATA / "forms.json").read_bytes())
CASES = [(text, (DATA / "kube2lb" / f"{name}.expected").read_bytes().decode()) for name, text in TEMPLATES.items()]


@cache
def environment(*, trim_blocks: bool = True) -> Environment:
    return _environment(FragmentSet(()), RenderOptions("/", trim_blocks=trim_blocks))[0]


def rendered(source: str, names: dict[str, Any], *, trim_blocks: bool = True) -> str:
    return environment(trim_blocks=trim_blocks).from_string(source).render(names)


def test_the_corpus_is_there() -> None:
    assert (len(TEMPLATES), len(FORMS)) >= (9, 55)


def test_go_and_the_preset_see_the_same_cluster() -> None:
    """``cluster.json`` is what Go's templates got, ``cluster.yaml`` what the preset reads."""

    def port(item: Any) -> dict[str, object]:
        return {"IP": item.ip, "Port": item.port, "Mode": item.mode, "Protocol": item.protocol}

    names = kube2lb_names()
    services = [
        {
            "Name": service.name,
            "Namespace": service.namespace,
            "Port": port(service.port),
            "Endpoints": [{"Name": one.name, "IP": one.ip, "Port": one.port} for one in service.endpoints],
            "NodePort": service.node_port,
            "External": list(service.external),
            "Timeout": service.timeout,
        }
        for service in names["services"]
    ]
    seen = {"Domain": names["domain"], "Nodes": names["nodes"], "Ports": [port(item) for item in names["ports"]]}
    assert seen | {"Services": services} == json.loads((DATA / "cluster.json").read_bytes())


@pytest.mark.parametrize("trim_blocks", [True, False])
@pytest.mark.parametrize(("text", "expected"), [*CASES, *FORMS])
def test_a_template_renders_the_bytes_that_go_gave(text: str, expected: str, *, trim_blocks: bool) -> None:
    translated = translate(text, "form")
    assert translated.remarks == ()
    assert rendered(translated.text, kube2lb_names(), trim_blocks=trim_blocks) == expected, translated.text


REFUSED = {
    "{{ . }}": "name the field",
    "{{ print $ }}": "name the field",
    '{{ "x" | .Domain }}': "behind | stands a function",
    '{{ printf "%q" .Domain }}': "only %s",
    '{{ printf "%5d" 1 }}': "only %s",
    '{{ printf "%s" }}': "a verb for each value",
    '{{ printf "a" 1 }}': "a verb for each value",
    "{{ printf .Domain 1 }}": "in quotes",
    '{{ print "a" 1 }}': "print with 2 arguments",
    "{{ eq .Domain }}": "eq with 1 arguments",
    "{{ println 1 }}": "no function println; did you mean print?",
    "{{ EscapeNod 1 }}": "did you mean EscapeNode?",
    "{{ .Servics }}": "did you mean .Services?",
    "{{ .Nodes }}": "write a range",
    "{{ range ServerNames (index .Services 0) .Domain }}{{ .IsRegexp }}{{ end }}": "or an if",
    "{{ eq 1 1 }}": "or an if",
    "{{ range 3 }}{{ end }}": "over lists only",
    "{{ $x }}": "not declared",
    "{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}": "not declared",
}
UNREADABLE = {
    "{{ range .Nodes }}{{ break }}{{ end }}": "put an {{ if }}",
    "{{ range .Nodes }}{{ continue }}{{ end }}": "put an {{ if }}",
    '{{ block "x" . }}{{ end }}': "write its text here",
    '{{ define "x" }}{{ end }}': "where it is used",
    '{{ template "x" . }}': "write the text",
    "{{ eq .Domain nil }}": "empty value",
    "{{ $x := 1 }}{{ $x = 2 }}": "write :=",
    "{{ range $x = .Nodes }}{{ end }}": "write :=",
    "{{ 1.5 }}": "whole numbers",
    "{{ 0x1f }}": "whole numbers",
    "{{ 'a' }}": 'write it as a string, "x"',
    r'{{ "\x41" }}': "write the character",
    "{{ .Domain": "not closed",
    "{{ /* x }}": "not closed",
    "{{ if .Domain }}": "without its {{ end }}",
    "{{ with .Domain }}{{ else with .Domain }}{{ end }}": "in else",
    "{{ end }}": "without an if",
    "{{ }}": "in an action",
    "{{ (.Domain }}": "in parentheses",
    "{{ .Domain .Nodes }}": "takes no arguments",
    "{{ if .Domain }}" * 61: "nested too deeply",
}


@pytest.mark.parametrize(("text", "advice"), [*REFUSED.items(), *UNREADABLE.items()])
def test_what_is_not_translated_is_named_with_line_and_advice(text: str, advice: str) -> None:
    migration = migrate(System.KUBE2LB, [InputFile("haproxy.tpl", f"# a line\n{text}\n")])
    found = migration.of(Effect.LEFT)
    assert found
    assert {each.line for each in found} <= {2, 3}
    assert advice in found[0].message
    with pytest.raises(Exception, match="not_translated"):
        rendered(migration.outputs[0].text, kube2lb_names())


def test_the_rest_of_a_template_is_translated() -> None:
    translated = translate("{{ .Domain }}{{ html 1 }}{{ range .Nodes }}{{ . }}{{ println 1 }}{{ end }}", "x.tpl")
    assert [remark.is_problem for remark in translated.remarks] == [True, True]
    assert "{{ domain }}" in translated.text
    assert "{% for node in nodes %}{{ node }}" in translated.text


_TOKENS = (
    "{{ }} {{- -}} if else end range with define template block . .X .Services .Name $ $x := = | ( ) , `r` 1 -2 true eq"
    " and len printf index ServerNames foo /* */ $y text 's'"
)
TOKENS = [*_TOKENS.split(" "), '"s"', " ", "\n"]
TEXTS = st.text(alphabet=st.sampled_from(list("{}-. \n$xi|()\"'`,:=01/*+%#\\é\x00")) | st.characters(), max_size=60)


@given(TEXTS | TEXTS.map("{{".__add__) | st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join))
@settings(max_examples=500, deadline=None)
def test_any_text_is_translated_or_refused_with_a_line(text: str) -> None:
    try:
        translated = translate(text, "any.tpl")
    except GoTemplateError as error:
        line = error.line
    else:
        environment().parse(translated.text)
        line = 1
    assert 1 <= line <= text.count("\n") + 1


TAGS = st.sampled_from(['"x"', "/* c */", "if true", "end", "$v := 1", "3"])
RAW = st.text(alphabet="ab {}%#-\n\t\"'", max_size=6).filter(lambda text: "{{" not in text)


@given(st.lists(st.tuples(RAW, TAGS, st.booleans(), st.booleans()), max_size=6), RAW, st.booleans())
@settings(max_examples=300, deadline=None)
def test_trim_markers_take_the_blanks_that_go_takes(
    parts: list[tuple[str, str, bool, bool]], last: str, trim_blocks: bool
) -> None:
    source, expected, depth, trims = "", "", 0, False
    for raw, drawn, left, right in [*parts, (last, "", False, False)]:
        tag = "3" if drawn == "end" and not depth else drawn
        text = raw.lstrip(" \t\r\n") if trims else raw
        expected += text.rstrip(" \t\r\n") if left and tag else text
        if not tag:
            source += raw
            continue
        depth += (tag == "if true") - (tag == "end")
        expected += {'"x"': "x", "3": "3"}.get(tag, "")
        source += f"{raw}{{{{{'- ' if left else ' '}{tag}{' -' if right else ' '}}}}}"
        trims = right
    source += "{{ end }}" * depth
    if "{{{" in source:
        with pytest.raises(GoTemplateError):
            parse(source)
        return
    result = rendered(translate(source, "x").text, {}, trim_blocks=trim_blocks)
    assert result == expected
