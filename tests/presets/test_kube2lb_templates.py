"""Server-name templates as Go's text/template reads them; whatever is written there, nothing but ValueError comes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.predecessors.kube2lb.claims import Kube2lbPort, Kube2lbService
from pyconfd.predecessors.kube2lb.names import name_template
from pyconfd.settings import resolve


def service(name: str = "web", namespace: str = "shop") -> Kube2lbService:
    return Kube2lbService(name, namespace, Kube2lbPort("10.0.0.1", 80, "http", "tcp"), (), (), 30080, (), 500)


BESIDES_DEFAULT = (
    '{{ .Service.Name }}{{ if ne .Service.Namespace "default" }}.{{ .Service.Namespace }}{{ end }}.example.com'
)


# What stands on the right is what Go 1.x gives.
@pytest.mark.parametrize(
    ("template", "name"),
    [
        (BESIDES_DEFAULT, "web.shop.example.com"),
        (BESIDES_DEFAULT.replace("ne", "eq", 1), "web.example.com"),
        ('{{ printf "%s-%d.%v" .Service.Name .Service.Port.Port .Domain }}', "web-80.local"),
        ('{{ .Service.Name | printf "%s.%s" "a" }}', "a.web"),
        ("{{ $.Service.Name }}.{{ (.Domain) }}", "web.local"),
        ("{{/* why */}}{{ .Service.Name }}{{- /* and why */ -}} .x", "web.x"),
        ('{{ "a}}b" | print | eq "a}}b" }}', "true"),
        ("{{ `web` }}.{{ 8 }}.x", "web.8.x"),
        ("{{if false}}a{{else if .Service.Timeout}}{{.Service.Timeout}}{{else}}c{{end}}.x", "500.x"),
        ('{{ if and (eq .Service.Name "web" "api") (not (eq .Service.Port.Mode "tcp")) }}www{{ end }}.x', "www.x"),
        ('{{ or "" .Service.Namespace }}.x', "shop.x"),
        ("{{ .Service.String }}.{{ .Service.Port.String }}", "web_shop_80_tcp_http.0a000001_80_tcp_http"),
        ("  {{- .Service.Name -}}  .x", "web.x"),
        (r"~^{{ .Service.Name }}\.(com|net)$", r"~^web\.(com|net)$"),
    ],
)
def test_as_go_reads_them(template: str, name: str) -> None:
    assert name_template(template).name(service(), "local") == name


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ if .Domain }}a", "without its {{ end }}"),
        ("{{ end }}a", "without an if"),
        ("{{ else }}a", "without an if"),
        ("{{ if .Domain }}a{{ else }}b{{ else }}c{{ end }}", "without its {{ end }}"),
        ("{{ if }}a{{ end }}", "not expected in if"),
        ("{{ $x := .Domain }}{{ $x }}", "not known here"),
        ("{{ range .Service.Endpoints }}a{{ end }}", "{{ range .Service.Endpoints }} is not known here"),
        ("{{ .Service.Secret }}", ".Service.Secret is not known here"),
        ("{{ ToLower .Domain }}", "ToLower is not known here"),
        ("{{ (.Domain }}", "not expected in parentheses"),
        ("{{ .Domain .Domain }}", "takes no arguments"),
        ("{{ .Domain | .Domain }}", "behind | stands a function"),
        ("{{ if .Domain }}a b{{ end }}", "cannot be a part"),
        ("~a b{{ .Domain }}", "cannot be a part"),
        ("~", "empty"),
        ("{{ if .Domain }}" * 61, "too deeply"),
        ('{{ define "x" }}a{{ end }}', "define is not translated"),
        ("{{ " + "(" * 61 + " }}", "too deeply"),
    ],
)
def test_what_is_not_understood_is_said_at_start(template: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        name_template(template)


@pytest.mark.parametrize(
    "template",
    [
        '{{ printf "%d" .Service.Name }}',
        '{{ printf "%s" }}',
        '{{ printf "a" "b" }}',
        "{{ eq .Service.Name 5 }}",
        "{{ eq .Service.Name }}",
        "{{ if false }}a{{ end }}",
        r"~^({{ .Service.Name }}+)+$",
    ],
)
def test_what_gives_no_name_is_refused_for_the_service(template: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        name_template(template).name(service(), "local")


_PARTS = st.sampled_from(
    ["{{", "}}", "{{-", "-}}", " ", "if", "else", "end", "eq", "printf", "(", ")", "|", '"', "`", ".Service", ".Name",
     ".Domain", "$", "/*", "*/", "~", "a", "%s", "\\", "1", ",", "\n", "é"]
)  # fmt: skip


@given(st.lists(_PARTS, max_size=25).map("".join) | st.text(max_size=60))
def test_only_value_errors_come_and_only_names(template: str) -> None:
    try:
        name = name_template(template).name(service(), "local")
    except ValueError:
        return
    assert not set(name) & set(" \t\n\"'#;`\\") or name.is_regexp


def test_an_empty_flag_is_the_default_and_an_empty_array_is_none() -> None:
    def names(text: str, *flags: tuple[str, str]) -> tuple[str, ...]:
        return resolve(dict(flags), {}, lambda _: text).settings.kube2lb.server_name_templates

    default = ("{{ .Service.Name }}.{{ .Service.Namespace }}.svc.{{ .Domain }}",)
    assert names("") == names("", ("--server-name-templates", "")) == default
    assert names("[kube2lb]\nserver_name_templates = []\n") == ()
