import subprocess
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config.text import (
    Bind,
    Word,
    binds,
    certificate_lists,
    digest_in,
    digest_of,
    edit_lines,
    emptied,
    endpoint_totals,
    mark,
    parse,
    passwords_in,
    scan,
    sections_of,
    split_words,
    stats_sockets,
    structure_of,
    without_passwords,
    words,
)
from pyconfd.haproxy.process.check import explain_check_output
from pyconfd.model.context import EndpointTotals
from pyconfd.model.listener import Listener
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.system.secrecy import HIDDEN
from tests.haproxy.bench import Bench
from tests.world.haproxy import BINARY, configuration


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("", []),
        ("  # only a comment", []),
        ("  bind  *:80\t# comment", ["bind", "*:80"]),
        (r"reqadd X-Forwarded-Proto:\ http", ["reqadd", "X-Forwarded-Proto: http"]),
        (r"a\#b \\ \" \' \n\r\t\x41", ["a#b", "\\", '"', "'", "\n\r\tA"]),
        (r"^\.old$ \1", [r"^\.old$", r"\1"]),
        ('"a b"\'c d\'e ""', ["a bc de", ""]),
        (r'"\$a \" # \1"', [r'$a " # \1']),
        (r'"\\$a"', [r"\$a"]),
        (r"'a\ #$\''", ["a\\ #$\\'"]),
        ("ab#c", ["ab"]),
        ("e\"a b\"'c d'\\ f", ["ea bc d f"]),
        ("a 'b", ["a", "'b"]),
    ],
)
def test_words_as_haproxy_reads_them(line: str, values: list[str]) -> None:
    assert [word.value for word in split_words(line)] == values


OPEN, BYTE = "a quote that is not closed", "an escaped byte (\\x)"
VARIABLE = "an environment variable (a $ in double quotes)"


@pytest.mark.parametrize(
    ("line", "doubt"),
    [
        ("a b", ""),
        ('a "b', OPEN),
        ("a 'b", OPEN),
        ('"a\\"', OPEN),
        ('a "$X"', VARIABLE),
        ('x"a${A}"', VARIABLE),
        ("a $X", ""),
        ("'$X'", ""),
        ('"\\$X"', ""),
        ("a \\x41", BYTE),
        ('a "\\x41"', BYTE),
        ("a \\x", "a \\x"),
        ("a \\xg", "a \\x"),
        ("a\\", "a backslash at the end of the line"),
        ("a\\ b\\z", ""),
        ('a # "', ""),
        # The first one is told.
        ('"$X" \\x41', VARIABLE),
        ('\\x41 "$X"', BYTE),
        ("\\x41 'b", BYTE),
        ('"$X" "b"', VARIABLE),
    ],
)
def test_what_a_line_depends_on_beside_itself(line: str, doubt: str) -> None:
    assert scan(line) == (split_words(line), doubt)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("*:80", {"address": "0.0.0.0", "first_port": 80, "last_port": 80}),
        (":80", {"address": "0.0.0.0", "first_port": 80, "last_port": 80}),
        ("10.0.0.1:80-82", {"address": "10.0.0.1", "first_port": 80, "last_port": 82}),
        ("10.0.0.1:82-80", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:1", {"address": "10.0.0.1", "first_port": 1, "last_port": 1}),
        ("10.0.0.1:65535", {"address": "10.0.0.1", "first_port": 65535, "last_port": 65535}),
        ("10.0.0.1:65535-65536", None),
        ("[::]:80", {"address": "::", "first_port": 80, "last_port": 80, "dual_stack": True}),
        ("[::]:80 v6only", {"address": "::", "first_port": 80, "last_port": 80}),
        ("[2001:DB8::1]:80", {"address": "2001:db8::1", "first_port": 80, "last_port": 80}),
        ("::1:80", {"address": "::1", "first_port": 80, "last_port": 80}),
        ("ipv6@:80", {"address": "::", "first_port": 80, "last_port": 80, "dual_stack": True}),
        ("ipv4@:80", {"address": "0.0.0.0", "first_port": 80, "last_port": 80}),
        ("ipv6@[::1]:80", {"address": "::1", "first_port": 80, "last_port": 80}),
        ("tcp6@*:80", {"address": "::", "first_port": 80, "last_port": 80, "dual_stack": True}),
        ("tcp@10.0.0.1:80", {"address": "10.0.0.1", "first_port": 80, "last_port": 80}),
        ("tcp4@*:80", {"address": "0.0.0.0", "first_port": 80, "last_port": 80}),
        ("some.host:80", {"address": "some.host", "first_port": 80, "last_port": 80}),
        ("fe80::1%eth0:80", {"address": "fe80::1", "first_port": 80, "last_port": 80}),
        (
            "10.0.0.1:80 interface eth0 transparent",
            {"address": "10.0.0.1", "first_port": 80, "last_port": 80, "interface": "eth0", "transparent": True},
        ),
        ("10.0.0.1:80 interface", {"address": "10.0.0.1", "first_port": 80, "last_port": 80}),
        *((each, None) for each in ("/run/x", "unix@/x", "abns@x", "fd@3", "quic4@:443", "udp@:53", "other@:80")),
        *((each, None) for each in ("$X:80", "*:80 namespace n", "*", "80", "*:+1", "*:80-")),
    ],
)
def test_what_a_bind_asks_for(written: str, expected: dict[str, Any] | None) -> None:
    address = written.partition(" ")[0]
    (found,) = binds(f"# one\nfrontend f\n    bind {written}\n")
    values = {"address": address, "judged": False} if expected is None else expected
    assert found == Bind("frontend f", 3, f"bind {address}", **values)
    ports = range(found.first_port, found.last_port + 1) if expected is not None else ()
    v6only = found.address == "::" and not found.dual_stack
    assert list(found.listeners()) == [Listener.at(found.address, port, v6only=v6only) for port in ports]
    assert found.identity == (found.address, found.first_port, found.last_port, found.interface)


@pytest.mark.parametrize(
    "text",
    [
        "frontend a\n    bind :1\n.if feature(LUA)\nfrontend b\n    bind :2\n.endif\n",
        "frontend a\n    bind :1\n.if feature(LUA)\n.endif\nfrontend b\n    bind :2\n",
        ".if feature(LUA)\nfrontend a\n    bind :1\n.else\nfrontend b\n    bind :2\n",
        "frontend a\n    bind :1\nfront\\end b\n    bind :2\nglobal\n",
        "global\n# frontend\nfrontend a # b\n    bind :1\nfrontends\n    bind :2\n",
        "\n\nglobal\n\tfrontend a\n    bind :1\nlisten b\n    bind :2",
    ],
)
def test_sections_of_some_kinds_are_those_of_a_whole_reading(text: str) -> None:
    for kinds in (("frontend",), ("frontend", "listen"), ("global",), ("backend",)):
        assert list(sections_of(text, *kinds)) == [each for each in parse(text) if each.keyword in kinds]


def test_the_end_of_a_line_of_windows_is_no_word() -> None:
    assert words("bind :80 'a b'\r") == ("bind", ":80", "a b")
    assert words("\rbind :80\r") == ("bind", ":80")


def test_a_bind_of_several_addresses_is_one_for_each() -> None:
    text = (
        "frontend f\n    bind *:80,,[::]:443 v6only\nlisten l\n.if 1\n    bind *:81\n.endif\nbackend b\n    bind *:82\n"
    )
    assert binds(text) == (
        Bind("frontend f", 2, "bind *:80", "0.0.0.0", 80, 80),
        Bind("frontend f", 2, "bind [::]:443", "::", 443, 443),
        Bind("listen l", 5, "bind *:81", "*:81", judged=False),
    )


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("", ""),
        ("a\nb\n", "a\nb\n"),
        ("x1", "<x1>"),
        ("x1\n", "<x1>\n"),
        ("\nx1\n\n", "\n<x1>\n\n"),
        ("a\nx1 x2\nb\nx3\nx4", "a\n<x1 x2>\nb\n<x3>\n<x4>"),
    ],
)
def test_lines_with_a_word_are_edited(text: str, edited: str) -> None:
    assert edit_lines(text, "x", lambda line: f"<{line}>") == edited


def test_lists_of_certificates_are_those_of_binds() -> None:
    bind = "    bind :1 ssl crt-list /a crt-list '/b c'\n    bind :2 crt-list\n"
    text = f"frontend f\n{bind}    # crt-list /d\n    acl crt-list /e"
    assert certificate_lists(text) == {"/a", "/b c"}
    assert certificate_lists("bind :1 crt-list /a") == {"/a"}
    assert certificate_lists("") == frozenset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("backend a\n    server s 192.0.2.1:80\n", []),
        ("backend a\n    balance first\n    server s 192.0.2.1:80\n", []),
        ("backend a\n    # none\n\n\tbalance first\n", ["a"]),
        ("listen a from b\n    bind :80\nbackend b\n    server-template s 3 a.b:80\n", ["a"]),
        ("backend ab\n", []),
        ("frontend a\n", []),
        ("backend a", []),
        ("backend a\nbackend b\n    server s 192.0.2.1:80\n", ["a"]),
        ("backend b\nbackend a\n", ["a", "b"]),
    ],
)
def test_backends_without_a_server(text: str, found: list[str]) -> None:
    assert list(emptied(text, ("a", "b"))) == found


def test_words_keep_how_they_were_written() -> None:
    assert split_words(r"  a\ b 'c'  # d") == [Word("a b", r"a\ b"), Word("c", "'c'")]


@given(st.text())
def test_any_line_has_words(line: str) -> None:
    assert all(word.written in line for word in split_words(line))


@pytest.mark.haproxy
@given(lines=st.lists(st.text(st.sampled_from("ab1 .\\\"'#$"), max_size=12), min_size=30, max_size=60))
@settings(max_examples=8, deadline=None)
def test_haproxy_reads_the_same_words(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    # Without variables, which are not expanded here, and without unmatched quotes, at which HAProxy gives up.
    kept = [f"<{line}>" for line in lines if line.count("'") % 2 == 0 and '"' not in line and "\\'" not in line]
    kept = [line for line in kept if len(split_words(line)) == 1 and "'" not in line.partition("#")[2]]
    path = tmp_path_factory.mktemp("words") / "t.cfg"
    path.write_text("".join(f".notice {line}\n" for line in kept))
    done = subprocess.run([BINARY, "-c", "-f", str(path)], capture_output=True, check=False, text=True)
    for number, line in enumerate(kept, 1):
        assert f"[{path}:{number}]: '{split_words(line)[0].value}'.\n" in done.stderr


CONFIG = """# a comment
global   # trailing
    maxconn 100
    stats socket /run/haproxy/admin.sock mode 660 level admin
    stats socket unix@/run/other.sock
    stats socket ipv4@127.0.0.1:9999
.if feature(LUA)
    lua-load /etc/x.lua
    stats socket /run/conditional.sock
.endif
defaults from base
    mode http
frontend fe_main
    bind *:80,[::]:443 v6only
    description "a # b" 'c d' e\\ f
backend be_x
    server a 10.0.0.1:80 check
unheard-of-section thing
    server b 10.0.0.2:80
"""


def test_sections_have_names_options_and_line_numbers() -> None:
    sections = parse(CONFIG)
    assert [(section.keyword, section.name, section.number) for section in sections] == [
        ("global", "", 2),
        ("defaults", "", 11),
        ("frontend", "fe_main", 13),
        ("backend", "be_x", 16),
    ]
    assert sections[1].options == ("from", "base")
    assert sections[2].lines[1].words == ("description", "a # b", "c d", "e f")
    assert sections[2].lines[1].number == 15
    assert sections[3].lines[-1].words == ("server", "b", "10.0.0.2:80")  # an unknown word opens no section


def test_lines_between_if_and_endif_are_conditional() -> None:
    lines = {line.words[0]: line.conditional for line in parse(CONFIG)[0].lines}
    assert lines["lua-load"]
    assert not lines["maxconn"]


def test_only_certain_unix_stats_sockets_are_given() -> None:
    assert stats_sockets(CONFIG) == ("/run/haproxy/admin.sock", "/run/other.sock")


BINDING = st.sampled_from(["frontend a", "listen b", 'listen "c"', " bind :80", "bind :81 # global", "backend d"])
LINES = st.sampled_from(
    [
        "global",
        ' "global"',
        "g\\lobal",
        "glob'al'",
        "defaults",
        "backend x",
        ".if feature(LUA)",
        ".else",
        ".endif",
        "# global",
        "globally",
        "stats socket /a level admin",
        "  stats socket /b",
        'stats "socket" /c',
        "server s 10.0.0.1:80",
        "",
    ]
)


@given(st.lists(LINES, max_size=12).map("\n".join))
@example("glob'al'\n stats socket /a")
@example(".if feature(LUA)\nglobal\nstats socket /a\n.endif\nglobal\nstats socket /b")
def test_stats_sockets_are_those_of_all_global_sections_wherever_they_stand(text: str) -> None:
    lines = [line for section in parse(text) if section.keyword == "global" for line in section.lines]
    wanted = [line.words[2] for line in lines if line.words[:2] == ("stats", "socket") and not line.conditional]
    assert stats_sockets(text) == tuple(dict.fromkeys(wanted))


def test_lines_above_the_first_section_are_kept() -> None:
    (section,) = parse("    bind :80\n")
    assert (section.keyword, section.number) == ("", 0)


@pytest.mark.parametrize(
    ("written", "address", "first", "last", "dual_stack"),
    [
        ("*:80", "0.0.0.0", 80, 80, False),
        (":80", "0.0.0.0", 80, 80, False),
        ("0.0.0.0:80", "0.0.0.0", 80, 80, False),
        ("ipv4@:80", "0.0.0.0", 80, 80, False),
        ("10.0.0.1:80-90", "10.0.0.1", 80, 90, False),
        (":::80", "::", 80, 80, True),
        ("[::]:80", "::", 80, 80, True),
        ("ipv6@:80", "::", 80, 80, True),
        ("::1:80", "::1", 80, 80, False),
        ("[2001:DB8::1]:80", "2001:db8::1", 80, 80, False),
        ("[fe80::1%eth0]:80", "fe80::1", 80, 80, False),
        ("localhost:80", "localhost", 80, 80, False),
    ],
)
def test_binds_by_address_and_port(written: str, address: str, first: int, last: int, dual_stack: bool) -> None:
    (bind,) = binds(f"frontend f\n    bind {written} ssl\n")
    assert bind.judged
    assert (bind.address, bind.first_port, bind.last_port, bind.dual_stack) == (address, first, last, dual_stack)
    assert (bind.proxy, bind.number, bind.text) == ("frontend f", 2, f"bind {written}")


@pytest.mark.parametrize(
    "written",
    [
        "/run/x.sock",
        "unix@x",
        "abns@x",
        "fd@3",
        "sockpair@4",
        "${ADDRESS}:80",
        "quic4@:443",
        "*:$PORT",
        "*:0",
        "*",
        "x:y",
    ],
)
def test_what_cannot_be_judged_is_said_so(written: str) -> None:
    (bind,) = binds(f"listen l\n    bind {written}\n")
    assert not bind.judged


def test_bind_options_are_considered_and_other_sections_are_not() -> None:
    text = (
        "peers p\n    bind :1000\nlisten l\n    bind [::]:80 v6only interface eth0\n    bind 10.0.0.9:81 transparent\n"
        "    bind :82 namespace other\n.if defined(X)\n    bind :83\n.endif\n"
    )
    first, second, third, fourth = binds(text)
    assert (first.dual_stack, first.interface) == (False, "eth0")
    assert second.transparent
    assert not third.judged
    assert not fourth.judged


def test_a_list_of_addresses_is_several_binds() -> None:
    assert [bind.address for bind in binds("frontend f\n bind 0.0.0.0:80,[::]:443\n")] == ["0.0.0.0", "::"]


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    for section in parse(text):
        assert all(line.words for line in section.lines)
    binds(text)
    stats_sockets(text)


@given(st.lists(st.one_of(LINES, BINDING), max_size=12).map("\n".join))
@example("global\n\nfrontend a\n bind :1\nbackend b\n bind :2\nlisten c\n bind :3")
@example("frontend a\n bind :1\n.if feature(LUA)\nfrontend b\n bind :2\n.endif\nlisten c\n bind :3")
def test_binds_are_those_of_all_frontends_and_listens_with_their_lines(text: str) -> None:
    wanted = [
        (section.title, line.number, ":0" if line.conditional else line.words[1])
        for section in parse(text)
        for line in section.lines
        if section.keyword in {"frontend", "listen"} and line.words[0] == "bind"
    ]
    assert [(bind.proxy, bind.number, f":{bind.first_port}") for bind in binds(text)] == wanted


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n\r'\0"), min_size=1), min_size=1))
def test_quoted_words_come_back(given_words: list[str]) -> None:
    assert words(" ".join(f"'{word}'" for word in given_words)) == tuple(given_words)


TEXT = """global
    nbthread 1
frontend f
    bind :80
backend b
    server a 10.0.0.1:80
    server b 10.0.0.2:80 weight 0
"""


@pytest.mark.parametrize(
    "same",
    [
        TEXT.replace("    server b 10.0.0.2:80 weight 0\n", ""),
        TEXT.replace("10.0.0.1", "10.0.0.9"),
        TEXT + "# a comment\n\n",
        TEXT + "\tserver\tc\t10.0.0.3:80\n",
    ],
)
def test_endpoints_and_comments_are_none(same: str) -> None:
    assert structure_of(same) == structure_of(TEXT)


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace(":80\nbackend", ":81\nbackend"),
        TEXT + "backend c\n",
        TEXT.replace("nbthread 1", "nbthread 2"),
        TEXT.replace("backend b\n", "backend b\n    option httpchk\n"),
        TEXT.replace("    server a", "    server-template a 3"),
    ],
)
def test_all_else_is(other: str) -> None:
    assert structure_of(other) != structure_of(TEXT)


DIGEST = "ab" * 32


def test_the_text_stands_unchanged_before_the_marker() -> None:
    assert mark("global\n    maxconn 1\n", DIGEST).startswith("global\n    maxconn 1\n")
    assert mark("listen x", DIGEST).startswith("listen x\n")


HEAD = "\n# Added by pyconfd: `show info` of a worker that runs this text names it.\nglobal\n    description "


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("", ""),
        ("global\n    description\n", ""),
        ("global\n    description lb one\n", "lb one "),
        ("global\n    description lb\nglobal\n    description two\n", "two "),
        ("frontend f\n    description lb\n", ""),
        ('global\n    description "" a\n', '"" a '),
        ("global\n    description a\\ b\n", '"a b" '),
        ("global\n    description a\\#b\n", '"a#b" '),
        ('global\n    description "a\\"b\\\\c"\n', '"a\\"b\\\\c" '),
        ("global\n    description it\\'s\n", '"it\'s" '),
        ('global\n    description "a\\tb\\nc\\rd"\n', '"a\\tb\\nc\\rd" '),
        ("global\n    description $HOST\n", "$HOST "),
    ],
)
def test_the_operators_own_description_stands_before_the_marker(text: str, own: str) -> None:
    assert mark(text, DIGEST) == f"{text}{HEAD}{own}pyconfd:{DIGEST}\n"
    assert digest_in(mark(text, DIGEST)) == DIGEST


def test_a_text_without_a_line_break_at_its_end_gets_one_before_the_marker() -> None:
    assert mark("listen x", DIGEST) == f"listen x\n{HEAD}pyconfd:{DIGEST}\n"


def test_the_digest_is_found_again_in_the_text_and_in_the_field() -> None:
    assert digest_in(mark("", DIGEST)) == DIGEST
    assert digest_of(f"pyconfd:{DIGEST}") == DIGEST
    assert digest_of(f"the big one pyconfd:{DIGEST}") == DIGEST


@pytest.mark.parametrize(
    "description", ["", "lb one", "pyconfd:abc", f"pyconfd:{DIGEST} and more", f"xpyconfd:{DIGEST}"]
)
def test_other_descriptions_carry_no_digest(description: str) -> None:
    assert digest_of(description) is None


def test_a_description_under_a_condition_is_not_taken_over() -> None:
    text = "global\n.if defined(X)\n    description maybe\n.endif\n"
    assert "maybe" not in mark(text, DIGEST).removeprefix(text)


@given(st.text())
def test_any_text_can_be_marked(text: str) -> None:
    assert digest_in(mark(text, DIGEST)) == DIGEST or ".if" in text or '"' in text or "'" in text


@pytest.mark.haproxy
def test_a_worker_shows_the_marker_behind_the_operators_own_description(bench: Bench) -> None:
    lines = 'description "first \\"balancer\\"" of\\ two \'a\\b\''
    bench.conf.write_text(mark(configuration(bench.port, global_lines=lines), DIGEST))
    bench.haproxy.start()
    running = bench.haproxy.running()
    assert running is not None
    assert running.digest == DIGEST


SECRET = "hunter2-of-7"


@pytest.mark.parametrize(
    "line",
    [
        f"user admin insecure-password {SECRET}",
        f"user admin password {SECRET} groups a,b",
        f'user admin insecure-password "{SECRET}"',
        f"user admin insecure-password '{SECRET}'",
        f"stats auth admin:{SECRET}",
        f"tcp-check send AUTH\\ {SECRET}\\r\\n",
        f'tcp-check send "AUTH default {SECRET}\\r\\n"',
        f'http-request set-header Authorization "Basic {SECRET}"',
        f"http-request set-header Authorization Bearer\\ {SECRET}",
        f"http-request set-header Authorization {SECRET}",
        f"http-check send meth GET uri / hdr X-Api-Key {SECRET}",
        f"setenv DB_PASSWORD {SECRET}",
    ],
)
def test_a_password_is_known_wherever_it_stands(line: str) -> None:
    text = f"global\n    {line}\n    maxconn 5\n"
    assert any(SECRET in each for each in passwords_in(text))
    shown = without_passwords(text)
    assert (SECRET in shown, HIDDEN in shown) == (False, True)
    assert shown.startswith("global\n")
    assert shown.endswith("\n    maxconn 5\n")
    rendering = Rendering((Piece("a.conf", f"userlist u\n    {line} more\n"),))
    for said in (f"unknown keyword '{SECRET}'", "out of memory", f"error near '{line}'"):
        output = f"[ALERT]    (12) : config : parsing [/x/haproxy.cfg:2] : {said}"
        (problem,) = explain_check_output(output, rendering, "/x/haproxy.cfg")
        assert SECRET not in str(problem)
        assert "[hidden]" in str(problem)


@pytest.mark.parametrize(
    "line", ["option httpchk", "server a 10.0.0.1:80 check", "auth-server x", "acl a http_auth(u)"]
)
def test_what_is_no_password_is_shown(line: str) -> None:
    assert not passwords_in(f"backend b\n    {line}\n")


def test_a_long_line_is_cut_behind_what_is_hidden() -> None:
    line = f"    user admin insecure-password {'s3cret' * 40}"
    rendering = Rendering((Piece("a.conf", f"userlist u\n{line} more\n"),))
    output = "[ALERT]    (12) : config : parsing [/x/haproxy.cfg:2] : too many words"
    (problem,) = explain_check_output(output, rendering, "/x/haproxy.cfg")
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize("line", ["http-request set-header X-Key hunter2", "log syslog://me:hunter2@10.0.0.1"])
def test_a_known_password_is_hidden_anywhere(line: str) -> None:
    shown = without_passwords(f"global\n    {line}\n", ["hunter2"] if "X-Key" in line else [])
    assert ("hunter2" in shown, HIDDEN in shown) == (False, True)


def test_an_ordinary_configuration_is_shown_as_it_is() -> None:
    text = "frontend f\n    bind :80\n    acl p path_beg /password\nbackend b\n    server a 10.0.0.1:80 check\n"
    assert without_passwords(text, [""]) == text


TEXT_CENSUS = """
backend a
    server one 192.0.2.1:80 check
    server two 192.0.2.2:80 weight 0
    server three 192.0.2.3:80 disabled
    server four 192.0.2.4:80 weight 10
    default-server weight 0
listen b
    bind :1
    server five 192.0.2.5:80
    server-template t 1-3 192.0.2.6:80
    server-template u 1-3 192.0.2.7:80 disabled
peers p
    server local 127.0.0.1:1024
backend empty
    server
"""


def test_servers_that_take_traffic_are_counted() -> None:
    assert endpoint_totals(TEXT_CENSUS) == EndpointTotals(claimed=4, total=7)
    assert endpoint_totals("") == EndpointTotals(0, 0)


def test_lines_behind_an_endif_are_none_of_the_condition() -> None:
    (section,) = parse("backend b\n.if feature(LUA)\n  server a 10.0.0.1:80\n.endif\n  server b 10.0.0.2:80\n")
    assert [line.conditional for line in section.lines if line.words[0] == "server"] == [True, False]


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        ("user a password hunter2", {"hunter2"}),
        ("user a insecure-password hunter2 groups b", {"hunter2"}),
        ("stats auth admin:hunter2", {"admin:hunter2", "hunter2"}),
        ("stats auth admin", {"admin"}),
        ("http-request set-header Authorization 'Basic aGk6'", {"Basic aGk6", "aGk6"}),
        ("http-request set-header Authorization Bearer hunter2", {"Bearer", "hunter2"}),
        ("http-request set-header X-Api-Key hunter2", {"hunter2"}),
        ("http-check send hdr token hunter2 hdr a b", {"hunter2"}),
        ("tcp-check send AUTH\\ hunter2\\r\\n", {"hunter2"}),
        ("tcp-check send auth\\ user\\ hunter2\\r\\nPING", {"user", "hunter2"}),
        ("tcp-check send PING", set()),
        ("stats auth x", set()),
        ("option httpchk", set()),
        ("user a password", set()),
        ("http-request set-header Authorization Bearer", {"Bearer"}),
    ],
)
def test_what_of_a_line_is_a_password(line: str, secrets: set[str]) -> None:
    assert passwords_in(f"frontend f\n    {line}\n    # password\n") == secrets
