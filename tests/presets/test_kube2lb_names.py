import pytest

from pyconfd.predecessors.kube2lb.claims import Kube2lbPort, Kube2lbService
from pyconfd.predecessors.kube2lb.names import check_expression, external_domain, name_template, split_domains

SHOP = Kube2lbService("shop", "demo", Kube2lbPort("0.0.0.0", 80, "http", "tcp"), (), (), 30080, (), 0)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        ("a.example.com", ["a.example.com"]),
        (" a.example.com ,\n b.example.com\n,,", ["a.example.com", "b.example.com"]),
        (
            r"test.example.com,~^(test1|test2)\.example\.(com|net)$",
            ["test.example.com", r"~^(test1|test2)\.example\.(com|net)$"],
        ),
        (r"~^a{1,2}\.example\.com$,b.example.com", [r"~^a{1,2}\.example\.com$", "b.example.com"]),
        ("~^(a,b),c", ["~^(a,b)", "c"]),
        ("~^[,],c", ["~^[,]", "c"]),
        (r"~\{,b", [r"~\{", "b"]),
        ("a{1,2}", ["a{1", "2}"]),
    ],
)
def test_commas_inside_an_expression_do_not_part_entries(text: str, entries: list[str]) -> None:
    assert list(split_domains(text)) == entries


@pytest.mark.parametrize(
    "expression",
    [
        r"^(test1|test2)\.example\.(com|net)$",
        r"^[a-z0-9-]+\.shop\.example\.com(:[0-9]+)?$",
        r"^a{1,2}\.example\.com$",
        r"(?:a|b)\.example",
        r"^.*\.example\.com$",
        r"^\d+\.\w+?$",
        # The limits, and a repeated group of one alternative.
        r"a*b+c{2,}",
        r"a{255}",
        r"a{1,255}",
        r"(ab){2}",
        r"(ab)?(c|d)?",
        r"((a)(b))*",
        r"a|b",
    ],
)
def test_useful_expressions_are_taken(expression: str) -> None:
    check_expression(expression)
    name = external_domain(f"~{expression}")
    assert name.is_regexp
    assert name.regexp == expression
    assert str(name) == f"~{expression}"


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "a b",
        "a\nb",
        "a'b",
        'a"b',
        "a`b",
        "a#b",
        "a;b",
        "a}",
        "a{x}",
        "${HOME}",
        "a${HOME}",
        "a$HOME",
        "{$HOME}",
        "}",
        "||",
        "or",
        "if",
        "unless",
        "-f",
        "!a",
        r"a\n",
        r"a\x20b",
        "a\\",
        r"a\ b",
        "(a",
        "a)",
        "[b-a]",
        "(?=a)",
        "(?i)a",
        "a*+",
        "a**",
        "(a+)+",
        "(a|a)*",
        "((a+)?)*",
        "(a{1,9}){1,9}",
        ".*.*.*.*x",
        "a*b+c{2,}d*",
        "a{1,256}",
        "((a|b))*",
        "((a+))*",
        "(a+){2}",
        "(x(a|b)y){2}",
        "a{1000}",
        "a{256}",
        "a" * 254,
        "é",
    ],
)
def test_what_could_become_something_else_or_never_end_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_expression(expression)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ .Service.Name }}.example.com", "shop.example.com"),
        ("{{.Service.Name}}.{{.Service.Namespace}}.svc.{{.Domain}}", "shop.demo.svc.cluster.local"),
        ("{{- .Service.Name -}} .example.com", "shop.example.com"),
        ("p{{ .Service.Port.Port }}-{{ .Service.NodePort }}.{{ .Domain }}", "p80-30080.cluster.local"),
        ("{{ .Service }}.{{ .Domain }}", "shop_demo_80_tcp_http.cluster.local"),
    ],
)
def test_name_templates_in_gos_form(template: str, name: str) -> None:
    assert name_template(template).name(SHOP, "cluster.local") == name


@pytest.mark.parametrize(
    "template", ["", "{{ .Service.Secret }}", "{{ printf 1.5 }}", "{{ .Domain", "a b", "a;b", "{{ .Domain }} x"]
)
def test_other_actions_and_texts_are_said_at_start(template: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        name_template(template)
