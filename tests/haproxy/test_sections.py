import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyconfd.haproxy.config.text import binds, parse, stats_sockets, words

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
    assert list(stats_sockets(text)) == wanted


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


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n\r'\0"), min_size=1), min_size=1))
def test_quoted_words_come_back(given_words: list[str]) -> None:
    assert words(" ".join(f"'{word}'" for word in given_words)) == tuple(given_words)
