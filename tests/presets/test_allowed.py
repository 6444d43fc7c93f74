"""What text from the cluster may say: the lists of what must never pass, in as many ways as it can be written.

The second half are ways around the list that were found; HAProxy itself says that each of them is one.
"""

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.text import split_words
from pyconfd.predecessors import allowed_words
from pyconfd.predecessors.allowed import Boundaries, Judged, UnreadableLineError, Violation, judge, of_line, split
from tests.world.haproxy import BINARY

INSIDE = Boundaries(certificates=("/f/certs",), contents=("/f/maps", "/srv/errors"))


def passes(text: str, boundaries: Boundaries = INSIDE) -> Judged:
    return judge("configmap lb/config", text, boundaries)


def refusal(text: str, boundaries: Boundaries = INSIDE) -> str:
    with pytest.raises(RejectedInput) as caught:
        passes(text, boundaries)
    return str(caught.value)


NETWORK = "is none of the network (UNIX sockets, descriptors and variables are not allowed)"
READS = "which reads a file or the environment,"


@pytest.mark.parametrize(
    ("section", "line", "found"),
    [
        ("global", ".if 1", [("", "conditional blocks and messages (.if, .notice ...) are never allowed")]),
        ("global", "no", [("", "a line of one word")]),
        ("global", "no lua-load x", [("lua-load", "the directive 'lua-load'")]),
        ("global", "default tune.lua.maxmem 1", [("tune.lua.maxmem", "the directive 'tune.lua.maxmem'")]),
        ("global", "tune.bufsize 1", []),
        ("global", "stats", [("stats", "'stats'")]),
        ("global", "stats socket x", [("stats socket", "'stats socket'")]),
        ("global", "stats maxconn 1", []),
        ("global", "log /x local0", [("", f"the address '/x' {NETWORK}")]),
        ("global", "log stdout local0", []),
        ("global", "log 127.0.0.1:514 local0", []),
        ("global", "log", []),
        ("resolvers", "nameserver a unix@/x", [("", f"the address 'unix@/x' {NETWORK}")]),
        ("resolvers", "nameserver a 127.0.0.1:53", []),
        ("resolvers", "nope x", [("resolvers nope", "the directive 'nope'")]),
        ("frontend", "unknown", [("unknown", "the directive 'unknown'")]),
        ("frontend", "option", [("option", "'option'")]),
        ("frontend", "option external-check", [("option external-check", "'option external-check'")]),
        ("frontend", "option httplog", []),
        ("frontend", "bind", []),
        ("frontend", "bind *:80,/x", [("", f"the address '/x' {NETWORK}")]),
        ("frontend", "bind *:80 ssl crt /x alpn h2", [("", "the file '/x'", "/x", True)]),
        ("frontend", "bind *:80 ssl ca-file @system-ca", []),
        (
            "frontend",
            "bind *:80 user root level admin",
            [("bind user", "the keyword 'user' of bind"), ("bind level", "the keyword 'level' of bind")],
        ),
        ("backend", "server s unix@/x check", [("", f"the address 'unix@/x' {NETWORK}")]),
        ("backend", "server s 127.0.0.1:80 ca-file /x", [("", "the file '/x'", "/x", True)]),
        ("backend", "server-template s 3 /x", [("", f"the address '/x' {NETWORK}")]),
        ("backend", "default-server namespace x", [("server namespace", "the keyword 'namespace' of server")]),
        (
            "backend",
            "server s 127.0.0.1:80 sni env(X)",
            [("sample env", "the sample 'env'"), ("sample env", f"'env', {READS}")],
        ),
        ("frontend", "http-request", [("http-request", "the action '' of http-request")]),
        ("frontend", "http-request lua.x", [("http-request lua.x", "the action 'lua.x' of http-request")]),
        ("frontend", "http-request use-service lua.x", [("use-service lua.x", "the service 'lua.x'")]),
        ("frontend", "http-request use-service", [("use-service", "the service ''")]),
        ("frontend", "http-request use-service prometheus-exporter", []),
        ("frontend", "tcp-request nope x", [("tcp-request nope", "'tcp-request nope'")]),
        ("frontend", "tcp-request inspect-delay 5s", []),
        ("frontend", "tcp-request content lua.x", [("tcp-request lua.x", "the action 'lua.x' of tcp-request")]),
        (
            "frontend",
            "http-request set-header a %[env(X)]",
            [("sample env", f"'env', {READS}"), ("sample env", "the sample 'env'")],
        ),
        ("frontend", "http-request set-header a %[req.hdr(x),nope]", [("sample nope", "the converter 'nope'")]),
        ("frontend", "http-request set-header a %[x", [("", "an expression %[ that is not closed in its word")]),
        ("frontend", "http-request set-var(txn.a) nope", [("sample nope", "the sample 'nope'")]),
        ("frontend", "http-request set-var(txn.a) req.hdr(a),nope", [("sample nope", "the converter 'nope'")]),
        ("frontend", "http-request return file /x", [("", "the file '/x'", "/x")]),
        ("frontend", "errorfile 503 /x", [("", "the file '/x'", "/x")]),
        ("frontend", "errorfile 503", [("", "the file '(none)'", "(none)")]),
        ("frontend", "acl a nope", [("sample nope", "the sample 'nope'")]),
        (
            "frontend",
            "acl a req.hdr(a),map(/x) b",
            [("sample map", "the converter 'map'"), ("sample map", f"'map', {READS}")],
        ),
        ("frontend", "acl a path -M -f /x", [("acl -M", "a map file in an ACL"), ("", "the file '/x'", "/x")]),
        ("frontend", "use_backend x if { nope }", [("sample nope", "the sample 'nope'")]),
        ("frontend", "use_backend x if !{ path -f /x }", [("", "the file '/x'", "/x")]),
        ("backend", "balance log-hash x", [("balance log-hash", "'balance log-hash'")]),
        ("backend", "balance hash nope", [("sample nope", "the sample 'nope'")]),
        ("backend", "balance roundrobin", []),
        ("backend", "stick on nope", [("sample nope", "the sample 'nope'")]),
        ("backend", "stick match src table x", []),
        ("backend", "filter lua.x", [("filter lua.x", "'filter lua.x'")]),
        ("backend", "filter compression", []),
        ("backend", "http-check set-var(check.a) nope", [("sample nope", "the sample 'nope'")]),
        ("backend", "http-check connect port nope", [("sample nope", "the sample 'nope'")]),
        ("backend", "http-check connect addr /x", [("", f"the address '/x' {NETWORK}")]),
        ("backend", "tcp-check connect addr 127.0.0.1", []),
    ],
)
def test_what_a_line_asks_for_and_what_an_operator_would_allow(
    section: str, line: str, found: list[tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, bool]]
) -> None:
    assert list(of_line(section, split(line))) == [Violation(*each) for each in found]


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


def test_what_haproxy_removed_is_written_again_with_a_note() -> None:
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


DEFAULTS = "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"


ADDRESSES = ["${NAME}", "${NAME}:80", "stream+{path}", "dgram+{path}", "stream+unix@{path}", "ipv4@${NAME}", "a$b:80"]
LINES_WITH_ADDRESSES = [
    "listen l\n bind {address}",
    "listen l\n bind :80,{address}",
    "backend b\n server x {address}",
    "backend b\n server-template x 3 {address}",
    "backend b\n server x 10.0.0.1:80 check addr {address}",
    "backend b\n tcp-check connect addr {address}",
    "backend b\n http-check connect addr {address}",
    "backend b\n log {address} local0",
    "global\n log {address} local0",
    "resolvers r\n nameserver x {address}",
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("line", LINES_WITH_ADDRESSES)
def test_an_address_is_one_of_the_network(line: str, address: str) -> None:
    told = refusal(line.replace("{address}", address.replace("{path}", "/run/haproxy-master.sock")) + "\n")
    assert "is none of the network" in told


@pytest.mark.haproxy
@pytest.mark.parametrize("written", ["${SMUGGLED}", "stream+{path}"])
def test_haproxy_takes_them_for_sockets(tmp_path: Path, written: str) -> None:
    """The reason: HAProxy fills in the environment without quotes too, and its workers know HAPROXY_MASTER_CLI."""
    path = tmp_path / "socket"
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"{DEFAULTS}listen l\n bind {written.replace('{path}', str(path))}\n")
    process = subprocess.Popen([BINARY, "-db", "-f", str(config)], env={"SMUGGLED": f"unix@{path}"})
    try:
        give_up_at = time.monotonic() + 20
        while not path.is_socket() and process.poll() is None and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert path.is_socket()
    finally:
        process.kill()
        process.wait()
    refusal(config.read_text())


@pytest.mark.parametrize(
    "address",
    [
        "*:80",
        ":80",
        ":::80",
        "[::]:80",
        "[2001:db8::1]:80",
        "10.0.0.1",
        "10.0.0.1:80-90",
        "ipv6@:80",
        "ipv4@10.0.0.1:80",
        "shop.example.com:80",
        "_x._tcp.example.com",
        "fe80::1%eth0:80",
        "0.0.0.0:+10",
        "0.0.0.0:-10",
    ],
)
def test_addresses_of_the_network_pass(address: str) -> None:
    passes(f"listen l\n bind {address}\n server x {address} check addr {address}\n log {address} local0\n")


HIDDEN = "lua.mine"
EXPRESSIONS = [
    "http-request set-header X %{+Q}[SAMPLE]",
    "http-request set-header X %(name)[SAMPLE]",
    "http-request set-header X %(name){+Q}[SAMPLE]",
    "http-request set-header X a%[path]b%{+Q}[path,SAMPLE]",
    "log-format %{+X,+Q}[SAMPLE]",
    "unique-id-format %{+X}o%ci:%{+Q}[SAMPLE]",
    "use_backend %{+Q}[SAMPLE]",
    "http-request capture SAMPLE len 10",
    "http-response capture SAMPLE id 0",
    "tcp-request content capture SAMPLE len 10",
    "http-request do-resolve(txn.a,r,ipv4) SAMPLE",
    "http-request sc-set-gpt0(0) SAMPLE",
    "http-request sc-add-gpc(0,1) SAMPLE",
    "http-request set-priority-class SAMPLE",
    "http-request set-mark SAMPLE",
    "http-request set-timeout server SAMPLE",
    "http-request set-bandwidth-limit x limit SAMPLE",
    "http-request set-bandwidth-limit x period SAMPLE",
    "http-request track-sc0 src,SAMPLE",
    "http-request track-sc2 SAMPLE table t",
    "http-request set-var(txn.a) path SAMPLE",
    "http-request set-var(txn.a) path lower SAMPLE if TRUE",
    "http-check set-var(check.a) SAMPLE",
    "tcp-check set-var(check.a) SAMPLE",
    "http-check expect status 200 status-code SAMPLE",
    "stick on SAMPLE",
    "stick on src SAMPLE table t",
    "stick match SAMPLE",
    "stick store-request SAMPLE",
    "stick store-response SAMPLE table t",
    "balance hash SAMPLE",
    "balance hash path SAMPLE",
    "filter bwlim-in x key SAMPLE table t limit 1m",
    "acl a SAMPLE x",
    "use_backend a if { path,SAMPLE x }",
]


@pytest.mark.parametrize("sample", [HIDDEN, "ssl_fc_session_key", "internal.htx.data"])
@pytest.mark.parametrize("line", EXPRESSIONS)
def test_expressions_are_judged_wherever_they_stand(line: str, sample: str) -> None:
    told = refusal(f"backend b\n {line.replace('SAMPLE', sample)}\n")
    assert f'cluster_templates.allow = ["sample {sample}"]' in told


@pytest.mark.parametrize(
    "line",
    [
        "http-request capture req.hdr(host) len 20",
        "http-request capture req.hdr(host) len 20 if { path /a }",
        "tcp-request content capture req.ssl_sni len 20",
        "http-request set-var(txn.a) path,lower",
        "http-request set-var(txn.a) path lower if TRUE",
        "http-request set-var(txn.a) str(a b)".replace(" b)", "\\ b)"),
        "http-request track-sc1 src table t unless { path /a }",
        "http-request sc-set-gpt0(0) 1337",
        "http-request set-timeout server 5s",
        "http-request set-tos 0x10",
        "http-request set-bandwidth-limit x limit int(5) period 5s",
        "http-request do-resolve(txn.a,r,ipv4) req.hdr(host),field(1,:)",
        "stick on src",
        "stick store-response res.cook(a) table t",
        "stick match req.cook(a) if { path /a }",
        "balance hash req.hdr(host),lower",
        "balance roundrobin",
        "balance url_param a",
        "http-check set-var(check.a) int(5)",
        "http-check expect ! rstatus ^5",
        "http-request set-header X %{+Q}[path]",
        "http-request set-header X %{+Q}o\\ %[src]",
        "http-request replace-path ^/a(.*)[0-9]$ /b\\1",
        "filter bwlim-in x key src table t limit 1m",
    ],
)
def test_usual_expressions_pass(line: str) -> None:
    passes(f"backend b\n {line}\n")


def test_a_directory_of_certificates_may_end_in_a_slash() -> None:
    passes("listen l\n bind :443 ssl crt /f/certs/\n")
    for path in ("/f/certs//", "/f/certs/../", "/etc/", "/"):
        assert "outside the allowed directories" in refusal(f"listen l\n bind :443 ssl crt {path}\n")


NEWLINES = [
    "reqadd X\\ y\\nprogram\\ evil\\n\\ command\\ id:\\ z",
    "reqadd X:\\ y\\nprogram\\ evil\\n\\ command\\ id",
    "rspadd X:\\ y\\r\\nprogram\\ evil",
    "appsession a\\nprogram\\ evil len 5 timeout 3h\\nprogram\\ evil",
    "option httpchk GET / HTTP/1.1\\r\\nHost:\\ a\\nprogram\\ evil",
    "option httpchk GET / HTTP/1.1\\nprogram\\ evil\\r\\nHost:\\ a",
    "block if { path /x\\nprogram\\ evil }",
    "clitimeout 5\\nprogram\\ evil",
    "http-request set-header X a\\r\\nEvil:\\ b",
    "http-request set-header X a\\rb",
]


@pytest.mark.parametrize("line", NEWLINES)
@pytest.mark.parametrize("quoted", [False, True])
def test_no_word_has_a_line_break(line: str, *, quoted: bool) -> None:
    first, rest = line.split(" ", 1)
    told = refusal(
        f"listen l\n {line}\n" if not quoted else f'listen l\n {first} "{rest.replace(chr(92) + " ", " ")}"\n'
    )
    assert "rendered line 2: " in told


def test_protocols_of_checks_have_line_breaks() -> None:
    passes("backend b\n tcp-check send PING\\r\\n\n")


def test_a_tab_behind_a_backslash_ends_a_word() -> None:
    assert "'user' of bind" in refusal("listen l\n bind :443 ssl alpn h2\\\tuser ssl\n")


@pytest.mark.parametrize(
    "line",
    [
        "http-request set-header X %{a{b}[ssl_fc_session_key,hex]",
        "http-request set-header X %({)[ssl_fc_session_key,hex]",
        "http-request set-header X %{+Q}[str((),debug()]",
        "http-request set-header X %[str((),debug()]",
        "http-request set-header X '%[str(\")\"),debug()]'",
        "http-request set-header X '%[str(a\\),debug,lower(a)]'",
        "http-request set-var(txn.x) str((),debug()",
        "http-request set-var(txn.x) str(x) lower debug",
        "http-request set-bandwidth-limit x period ssl_fc_session_key",
        "http-request set-bandwidth-limit x limit 1m period ssl_fc_session_key",
        "http-request pause ssl_fc_session_key",
        "http-request set-retries ssl_fc_session_key",
        "http-check connect port ssl_fc_session_key",
        "tcp-check connect port ssl_fc_session_key",
        "balance log-hash debug",
        "acl a str(x) debug y",
        "http-request deny if { str(x) lower debug y }",
        "server s 10.0.0.1:80 sni str((),debug()",
    ],
)
def test_samples_are_found_where_haproxy_looks_for_them(line: str) -> None:
    assert "rendered line 2: " in refusal(f"backend b\n {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "http-request set-header X '%[str(\"(\"),lower]'",
        "http-request set-header X 100%%[x]",
        "acl a hdr(x-mode) debug",
        "acl a path_end debug when",
        "http-request set-bandwidth-limit x limit 1m period 10s",
        "http-request track-sc0 src table lua.x",
    ],
)
def test_words_that_are_no_samples_pass(line: str) -> None:
    passes(f"backend b\n {line}\n")


def test_refusals_name_the_directive_or_converter() -> None:
    assert "the directive 'nonsense'" in refusal("global\n nonsense\n")
    assert "the converter 'nonsense'" in refusal("backend b\n http-request set-var(txn.a) path,nonsense\n")
    assert "the sample 'nonsense'" in refusal("backend b\n http-request set-var(txn.a) nonsense,lower\n")
