"""Lines of a configuration, and the lines of the templates that they came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.explain.configuration import RenderedConfig, ServerLine, host_and_port, template_lines
from pyconfd.haproxy.config.text import parse
from pyconfd.model.rendering import Piece, Rendering

SOURCE = """{% for domain, items in domains.items() %}
# {{ items.name }}: {{ domain }}
backend be-{{ items.key }}{{ inherits }}
    mode http
{% if x %}    mode tcp{% endif %}
    server {{ server.name }} {{ server.target }} id {{ server.id }}
    server {{ server.name }} {{ server.target }}
"""


@pytest.mark.parametrize(
    ("rendered", "numbers"),
    [
        ("    mode http", (4,)),
        ("    mode tcp", (5,)),
        ("    server web-1 10.0.0.1:80 id 7", (6,)),
        ("    server web-1 10.0.0.1:80", (7,)),
        ("backend be-a.example.com from http", (3,)),
        ("# web: a.example.com", (2,)),
        ("    option httplog", ()),
        ("", ()),
    ],
)
def test_the_template_line_with_the_most_words_of_its_own_is_the_one(rendered: str, numbers: tuple[int, ...]) -> None:
    assert tuple(number for number, _ in template_lines(SOURCE, rendered)) == numbers


def test_a_delimiter_without_its_end_and_many_expressions_take_no_time() -> None:
    source = "{{ a }}" * 2000 + "x\n{{ a\n{% b"
    assert template_lines(source, "y" * 100_000 + "x") == ((1, "{{ a }}" * 2000 + "x"),)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[2001:DB8::1]:80", ("2001:db8::1", 80)),
        ("ipv4@10.0.0.1:80", ("10.0.0.1", 80)),
        ("backend.example.com:80", ("backend.example.com", 80)),
        ("/run/app.sock", ("/run/app.sock", 0)),
        ("10.0.0.1", ("10.0.0.1", 0)),
    ],
)
def test_addresses_of_server_lines(written: str, told: tuple[str, int]) -> None:
    assert host_and_port(written) == told


def test_a_comment_belongs_to_the_section_below_it() -> None:
    text = "frontend a\n    bind :80\n\n# shop/web\nbackend b\n    server s 10.0.0.1:80\n"
    configuration = RenderedConfig(Rendering((Piece("1.conf", text),)))
    titles = [configuration.section_at(at).title for at in range(1, 7)]
    assert titles == ["frontend a", "frontend a", "backend b", "backend b", "backend b", "backend b"]


LINES = st.sampled_from(
    [
        "backend b",
        "  backend\tb2 from x",
        "listen l # words",
        "frontend f",
        "defaults from base",
        "defaults base",
        "global",
        '"backend" quoted',
        "back\\end escaped",
        "peers p",
        "    server s1 10.0.0.1:80 check",
        "\tserver s1 10.0.0.2:80",
        "server s2 [2001:DB8::1]:80",
        'server "s 3" 10.0.0.1:81',
        "server s4 10.0.0.1:80#no word of its own",
        "server s5",
        'ser"ver" s6 10.0.0.1:80 weight 0',
        "    # server s7 10.0.0.1:80",
        "server-template t 1-3 example.com:80",
        "    server s8 ipv4@10.0.0.1:80\r",
        "serverless s9 10.0.0.1:80",
        "",
        "unheard-of x",
        '    http-request set-header X "server s 10.0.0.1:80"',
    ]
)


@given(st.lists(LINES, max_size=12).map("\n".join), st.booleans())
def test_it_reads_what_haproxys_own_way_of_reading_gives(text: str, ends: bool) -> None:
    text += "\n" if ends else ""
    configuration = RenderedConfig(Rendering((Piece("1.conf", text),)))
    sections = [each for each in parse(text) if each.keyword]
    expected = [
        ServerLine(section.name, line.words[1], *host_and_port(line.words[2]), line.number)
        for section in sections
        if section.keyword in {"backend", "listen"}
        for line in section.lines
        if line.words[0] == "server" and len(line.words) > 2
    ]
    assert configuration.servers == expected
    for server in expected:
        same = [each for each in expected if each.address == server.address]
        assert configuration.at(server.address) == same
        assert configuration.at(server.address, server.port) == [e for e in same if e.port == server.port]
    for section in sections:
        found = configuration.section_at(section.number)
        assert (found.title, found.line) == (section.title, section.number)
        assert found in configuration.sections
