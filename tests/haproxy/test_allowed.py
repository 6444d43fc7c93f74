"""What text from the cluster may say. The lists here are what must never pass, in as many ways as it can be written."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config import allowed_words
from pyconfd.haproxy.config.allowed import Boundaries, Judged, UnreadableLineError, judge, split
from pyconfd.haproxy.config.text import split_words

INSIDE = Boundaries(certificates=("/f/certs",), contents=("/f/maps", "/srv/errors"))


def passes(text: str, boundaries: Boundaries = INSIDE) -> Judged:
    return judge("configmap lb/config", text, boundaries)


def refusal(text: str, boundaries: Boundaries = INSIDE) -> str:
    with pytest.raises(RejectedInput) as caught:
        passes(text, boundaries)
    return str(caught.value)


GLOBAL_NEVER = [
    "lua-load /tmp/x.lua",
    "lua-load-per-thread /tmp/x.lua",
    "lua-prepend-path /tmp/?.lua",
    "external-check",
    "insecure-fork-wanted",
    "insecure-setuid-wanted",
    "setenv A b",
    "presetenv A b",
    "resetenv A",
    "unix-bind mode 777",
    "server-state-file /etc/passwd",
    "server-state-base /etc",
    "ssl-dh-param-file /etc/shadow",
    "ca-base /etc",
    "crt-base /etc",
    "default-path config",
    "log /run/docker.sock local0",
    "log unix@/run/x local0",
    "log fd@5 local0",
    "tune.lua.maxmem 1",
    "tune.ssl.keylog on",
    "httpclient.ssl.ca-file /etc/shadow",
    "wurfl-data-file /etc/shadow",
    "ssl-engine rdrand",
    "ssl-provider-path /tmp",
    "module-load /tmp/x.so",
    "h1-case-adjust-file /etc/shadow",
    "expose-experimental-directives",
    "set-var proc.x str(a)",
    ".if 1",
    ".notice x",
    "no lua-load /tmp/x.lua",
    "unknown-directive-of-a-later-version 1",
]
PROXY_NEVER = [
    "bind /tmp/socket",
    "bind unix@/tmp/socket",
    "bind abns@x",
    "bind fd@3",
    "bind *:80,/tmp/socket",
    "bind *:80 user root",
    "bind *:80 level admin",
    "bind *:80 namespace x",
    "bind *:80 ssl crt /etc/shadow",
    "bind *:80 ssl crt /f/certs/../../etc/shadow",
    "bind *:80 ssl crt /f/certs//x",
    "bind *:80 ssl crt certs/x.pem",
    "bind *:80 ssl crt /f/certsX/x.pem",
    "bind *:80 ssl ca-sign-file /f/certs/x.pem",
    "bind *:80 ssl generate-certificates",
    "bind *:80 transparent",
    "server x /tmp/socket",
    "server x unix@/tmp/socket",
    "server x 10.0.0.1:80 source 10.0.0.2 usesrc clientip",
    "server x 10.0.0.1:80 socks4 10.0.0.2:1",
    "server x 10.0.0.1:80 addr /tmp/socket",
    "server x 10.0.0.1:80 ssl ca-file /etc/shadow",
    "server x 10.0.0.1:80 sni lua.x",
    "default-server namespace x",
    "server-template x 3 unix@/tmp/socket",
    "option external-check",
    "option transparent",
    "external-check command /bin/sh",
    "http-request lua.x",
    "http-request use-service lua.x",
    "http-request return status 200 file /etc/passwd",
    "http-request return status 200 lf-file /f/certs/shop.pem",
    "http-request deny errorfile /etc/passwd",
    "http-error status 400 file /etc/passwd",
    "errorfile 503 /etc/passwd",
    "errorfile 503 /f/certs/shop.pem",
    "errorfile 503",
    "http-request set-map(/etc/x) a b",
    "http-request add-acl(/etc/x) a",
    "http-request set-header X %[env(SECRET)]",
    "http-request set-header X %[path,map(/etc/passwd)]",
    "http-request set-header X %[path,map_reg(/etc/passwd,x)]",
    "http-request set-header X %[lua.x]",
    "http-request set-header X %[path,lua.x]",
    "http-request set-header X %[path,lower,debug(a,b)]",
    "http-request set-header X %[req.hdr(a),jwt_verify(txn.a,/etc/shadow)]",
    "http-request set-var(txn.a) env(SECRET)",
    'http-request set-header X "$PATH"',
    'http-request set-header X "${PATH}"',
    'http-request set-header X a"${PATH}"b',
    "http-request send-spoe-group a b",
    "http-request set-nice 1",
    "tcp-request content lua.x",
    "tcp-request content use-service lua.x",
    "tcp-request later lua.x",
    "filter spoe engine x config /etc/x",
    "filter trace",
    "acl a path -f /etc/passwd",
    "acl a path -i -f /etc/passwd",
    'acl a path "-f" /etc/passwd',
    "acl a path -M -f /f/maps/x",
    "acl a path -f /f/certs/shop.pem",
    "acl a env(SECRET) x",
    "acl a lua.x y",
    "use_backend a if { env(SECRET) x }",
    "use_backend a if !{ path -f /etc/passwd }",
    "use_backend %[env(SECRET)]",
    "log-format %[env(SECRET)]",
    "stats admin if TRUE",
    "stats socket /tmp/x level admin",
    "mode cli",
    "mode health2",
    "load-server-state-from-file global",
    "use-fcgi-app x",
    "email-alert mailers x",
    "source 10.0.0.1 usesrc clientip",
    "dispatch 10.0.0.1:80",
    "log /run/docker.sock local0",
    "tcp-check connect addr /tmp/socket",
    "lua-load /tmp/x.lua",
]


@pytest.mark.parametrize("line", GLOBAL_NEVER)
def test_never_in_global(line: str) -> None:
    assert "rendered line 2: " in refusal(f"global\n    {line}\n")


@pytest.mark.parametrize("line", PROXY_NEVER)
@pytest.mark.parametrize("section", ["defaults", "frontend f", "backend b", "listen l"])
def test_never_in_a_proxy(section: str, line: str) -> None:
    assert "rendered line 3: " in refusal(f"global\n{section}\n\t{line}\n")


@pytest.mark.parametrize("keyword", ["program", "peers", "ring", "mailers", "fcgi-app", "log-forward", "crt-store"])
def test_other_sections_are_refused_with_all_their_lines(keyword: str) -> None:
    told = refusal(f"{keyword} x\n    command /bin/sh\n")
    assert f"the section '{keyword}' is not allowed" in told
    assert "rendered line 2" in told


QUOTINGS = [
    '"lua-load" /x',
    "'lua-load' /x",
    'lua"-"load /x',
    "lua''-load /x",
    "\t \t lua-load\t/x",
    "lua-load\t/x # maxconn 10",
    "LUA-LOAD /x",
    "Lua-Load /x",
    "lua\\-load /x",
    "lua\\x2dload /x",
    "\\x6cua-load /x",
    "lua-load\\ /x",
    "\u00a0lua-load /x",
    "maxconn\u00a010",
    "maxconn 10\r    lua-load /x",
    "maxconn 10\x0blua-load /x",
    "maxconn 10\x00",
    "maxconn 10 \\",
    'maxconn "10',
    "maxconn '10",
    '"" lua-load /x',
    'maxconn 10 ""',
    "maxconn 10\u2028lua-load /x",
    "maxconn " + "1 " * 80,
    "maxconn " + "1" * 20_000,
]


@pytest.mark.parametrize("line", QUOTINGS)
def test_no_way_of_writing_it_hides_what_it_is(line: str) -> None:
    assert "rendered line 2: " in refusal(f"global\n{line}\n")


@pytest.mark.parametrize(
    "header", ["Global", "GLOBAL", "globa\\l", "frontend a b", "backend a$b", "frontend", "global x"]
)
def test_headers_are_what_haproxy_takes_for_one(header: str) -> None:
    refusal(f"{header}\n    maxconn 10\n")


def test_nothing_may_continue_the_section_of_another_fragment() -> None:
    assert "before the first section" in refusal("    maxconn 10\nglobal\n")


def test_an_operator_allows_by_the_name_that_the_refusal_prints() -> None:
    for section, line in [("global", line) for line in GLOBAL_NEVER] + [("backend b", line) for line in PROXY_NEVER]:
        found = re.search(r'cluster_templates\.allow = \["(.*)"\]', told := refusal(f"{section}\n {line}\n"))
        if found is None:
            assert "no setting allows this" in told or "outside the allowed directories" in told
            continue
        names: set[str] = set()
        for _round in range(4):
            names.add(found[1])
            try:
                passes(f"{section}\n {line}\n", Boundaries(INSIDE.certificates, INSIDE.contents, frozenset(names)))
            except RejectedInput as error:
                found = re.search(r'cluster_templates\.allow = \["(.*)"\]', str(error))
                if found is None:
                    break
            else:
                break
        else:
            pytest.fail(f"{line} is refused in spite of {names}")


def test_what_is_allowed_by_name_opens_nothing_else() -> None:
    allowing = Boundaries(allow=frozenset({"bind user"}))
    assert passes("listen l\n bind :80 user x\n", allowing).text
    assert "'group' of bind" in refusal("listen l\n bind :80 user x group y\n", allowing)
    refusal("listen l\n bind :80 user x ssl crt /etc/shadow\n", allowing)


def test_files_are_told_apart_by_how_they_are_read() -> None:
    passes("listen l\n bind :443 ssl crt /f/certs/a.pem ca-file /f/certs/ca.pem crt /f/certs\n")
    passes("listen l\n server a 10.0.0.1:443 ssl verify required ca-file @system-ca\n")
    passes("listen l\n errorfile 503 /srv/errors/503.http\n acl a path -f /f/maps/x.map\n")
    whole_tree = Boundaries(certificates=("/f/certs",), contents=("/f",))
    assert "/f/certs/a.pem" in refusal("listen l\n http-request return lf-file /f/certs/a.pem\n", whole_tree)


def test_what_belongs_to_the_process_is_left_out_with_a_note() -> None:
    judged = passes("global\n user haproxy\n daemon\n stats socket /x level admin\n maxconn 10\nlisten l\n bind :80\n")
    assert len(judged.notes) == 3
    assert "rendered line 2" in judged.notes[0].place
    kept = [line for line in judged.text.split("\n") if line.strip() and not line.strip().startswith("#")]
    assert [line.split()[0] for line in kept] == ["global", "maxconn", "listen", "bind"]


def test_what_haproxy_removed_is_written_anew_with_a_note() -> None:
    judged = passes("frontend f\n bind :80\n reqadd X-Forwarded-Proto:\\ https\n")
    assert "http-request add-header X-Forwarded-Proto https" in judged.text
    assert "reqadd" not in judged.text
    assert "HAProxy removed it" in str(judged.notes[0])


def test_what_has_no_exact_successor_is_refused_with_a_suggestion() -> None:
    told = refusal("frontend f\n bind :80\n reqirep ^Host:\\ a Host:\\ b\n")
    assert "rendered line 3: HAProxy 2.1 removed 'reqirep'" in told
    assert "http-request replace-header NAME REGEX TEXT" in told


ALPHABET = st.sampled_from(
    [*list("abelo-_/$\\\"'#{}%[](),@ \t=.|!0x19"), "lua-load", "crt", "-f", "global", "map(", "é"]
)


@given(st.lists(ALPHABET, max_size=30).map("".join))
@example("a\\")
@example('"\\"')
def test_a_line_is_split_as_elsewhere_or_refused(raw: str) -> None:
    try:
        words = split(raw)
    except UnreadableLineError:
        return
    assert list(words) == [word.value for word in split_words(raw)]


DIRECTIVES = st.sampled_from([*sorted(allowed_words.PROXY | allowed_words.GLOBAL), "lua-load", "program", "global"])


@given(st.lists(st.tuples(DIRECTIVES, st.lists(ALPHABET, max_size=12).map("".join)), max_size=6), st.text(max_size=20))
def test_it_never_raises_anything_else_and_never_lets_a_program_through(
    lines: list[tuple[str, str]], tail: str
) -> None:
    text = "".join(f"{first} {rest}\n" for first, rest in [("global", ""), *lines]) + tail
    try:
        judged = passes(text)
    except RejectedInput:
        return
    for line in judged.text.split("\n"):
        words = [word.value for word in split_words(line)]
        assert not words or words[0] not in {"lua-load", "program", "external-check"}


def test_line_numbers_are_those_of_the_text() -> None:
    told = refusal("global\n\n# comment é\n    maxconn 1\n    chroot /x\n    lua-load /x\n")
    assert told.startswith("configmap lb/config rendered line 6: ")


def test_many_problems_are_cut(tmp_path: Path) -> None:
    del tmp_path
    with pytest.raises(RejectedInput) as caught:
        passes("global\n" + "lua-load /x\n" * 1000)
    assert len(caught.value.problems) == 21
    assert "980 more" in str(caught.value)
