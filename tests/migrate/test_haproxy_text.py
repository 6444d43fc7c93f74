"""HAProxy texts of the predecessors: what is replaced, what is marked, what stays."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment

from pyconfd.predecessors.migrate.haproxy_text import is_haproxy, upgrade
from pyconfd.predecessors.migrate.report import Effect, Findings


def upgraded(text: str) -> tuple[str, list[tuple[int, Effect]]]:
    findings = Findings("a.cfg")
    result = upgrade(text, findings)
    return result, [(finding.line, finding.effect) for finding in findings.found]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    reqadd X-Forwarded-Proto:\\ http", "    http-request add-header X-Forwarded-Proto http"),
        ("\treqadd x-forwarded-proto:\\ https  # why", "\thttp-request add-header x-forwarded-proto https  # why"),
        (
            "    reqadd X-D:\\ d if { hdr(host) -i {{ domain }} }",
            "    http-request add-header X-D d if { hdr(host) -i {{ domain }} }",
        ),
        ("{%- if a %} reqidel ^X-Foo:.* {% endif %}", "{%- if a %} http-request del-header X-Foo  {% endif %}"),
        ("{% if a %}reqidel ^X-Foo:.*{% endif %}", "{% if a %}http-request del-header X-Foo  {% endif %}"),
        ("    clitimeout 50000", "    timeout client 50000"),
        ("    nbproc 1", "    # pyconfd migrate: no longer needed: nbproc 1"),
        ("    balance roundrobin  # stays", "    balance roundrobin  # stays"),
        (
            "    errorfile 503 /etc/haproxy/index.html",
            "    http-error status 503 content-type text/html file /etc/haproxy/index.html",
        ),
        ("    errorfile 503 /etc/haproxy/503.http", "    errorfile 503 /etc/haproxy/503.http"),
    ],
)
def test_a_line_is_replaced_in_its_place(before: str, after: str) -> None:
    assert upgraded(before)[0] == after
    assert upgraded(f"frontend a\n{before}\n")[0] == f"frontend a\n{after}\n"


def test_what_has_no_exact_successor_is_marked_and_named_by_its_line() -> None:
    text, findings = upgraded("frontend a\n    {# two\n lines #}\n    reqisetbe ^Host: x\n")
    assert findings == [(4, Effect.LEFT)]
    mark, kept = text.splitlines()[3:]
    assert mark.startswith("    # pyconfd migrate: no line means exactly the same; write: use_backend")
    assert kept == "    reqisetbe ^Host: x"


def test_tags_inside_a_replaced_directive_are_never_lost() -> None:
    text, findings = upgraded("    reqadd X-A:\\ {% if b %}c{% else %}d{% endif %}")
    assert findings == [(1, Effect.LEFT)]
    assert text.splitlines()[1] == "    reqadd X-A:\\ {% if b %}c{% else %}d{% endif %}"
    Environment().parse(text)


@pytest.mark.parametrize(
    "line",
    [
        "reqadd X-D:\\ {{ domain }}",
        "nbproc {{ processes }}",
        "nbproc 4",
        "stats socket /run/h.sock process 2",
        "reqirep ^Host:\\ a Host:\\ b",
        "option forceclose",
    ],
)
def test_a_line_with_another_meaning_is_never_written(line: str) -> None:
    text, findings = upgraded(f"global\n    {line}\n")
    assert findings == [(2, Effect.LEFT)]
    assert text.splitlines()[2] == f"    {line}"


def test_rules_of_a_template_with_a_loop_keep_their_order() -> None:
    lines = "frontend a\n    http-request set-header A b\n    reqadd X:\\ y\n"
    assert upgraded(lines)[1] == [(3, Effect.CHANGED)]
    assert upgraded(f"{{% for a in b %}}\n{lines}{{% endfor %}}")[1] == [(4, Effect.LEFT)]


def test_known_passwords_and_traps_are_named() -> None:
    text = "defaults\n    stats auth admin:gimmestats!\n    stats auth a:b9x\nbackend b\n    option httplog\n"
    result, findings = upgraded(text)
    assert findings == [(2, Effect.NOTED), (3, Effect.NOTED), (5, Effect.NOTED)]
    assert "a password that everybody knows" in result


@given(
    st.text(alphabet=st.sampled_from(list("{}%# \n\tabJos0x'\"\\:reqadd")) | st.characters(exclude_categories=["Cs"]))
)
def test_any_text_is_upgraded_without_failing_and_without_removed_directives_it_stays(text: str) -> None:
    result, findings = upgraded(text)
    if not findings and "J" not in text:
        assert result == text


def test_a_text_with_sections_is_recognised() -> None:
    assert is_haproxy("global\n    daemon\n")
    assert is_haproxy("{# x #}frontend a")
    assert not is_haproxy("localhost {\n  debug\n}\n")


@pytest.mark.haproxy
def test_what_python_confd_and_kubefigurator_rendered_is_accepted_after_the_upgrade(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<h1>no</h1>")
    old = f"""global
    nbproc 1
    stats socket {tmp_path}/admin.sock level admin
defaults
    mode http
    contimeout 5000
    clitimeout 50000
    srvtimeout 50000
frontend http-in
    bind 127.0.0.1:18080
    option httpclose
    option forwardfor
    reqadd X-Forwarded-Proto:\\ http
    reqadd x-forwarded-proto:\\ https if {{ ssl_fc }}
    acl grafana hdr(host) -i grafana.k8s.cluster.com
    use_backend begrafana if grafana
    default_backend landing-page
backend landing-page
    errorfile 503 {tmp_path}/index.html
backend begrafana
    balance roundrobin
    server 10_244_0_77 10.244.0.77:3000 check
"""
    config = tmp_path / "haproxy.cfg"
    config.write_text(upgraded(old)[0])
    checked = subprocess.run(
        ["/usr/sbin/haproxy", "-c", "-f", str(config)], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stderr
