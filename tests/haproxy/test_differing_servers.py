"""Server lines that two states of a section share are not parsed; what differs is found as if they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import Abilities, SectionChanges, changed_section
from pyconfd.haproxy.config.index import differing_servers, section_of
from pyconfd.haproxy.config.servers import Inherited

CAN = Abilities(runtime=True, why="", cookies=True, backends=True)
A, B, C = (f"    server {name} 10.0.0.{number}:80 id {number}\n" for number, name in enumerate("abc", 1))
AFTER = "    option httplog\n\n# the next backend\n"


def section(*lines: str) -> str:
    return "".join(("backend be_x from base\n    mode http\n", *lines))


@pytest.mark.parametrize(
    ("old", "new", "gone", "come"),
    [
        ((A, B), (A, C), (B,), (C,)),
        ((A, B, AFTER), (A, B, C, AFTER), (AFTER,), (C, AFTER)),
        ((A, B), (A, B.replace("id 2", "id 2 weight 0")), (B,), (B.replace("id 2", "id 2 weight 0"),)),
        ((A, B, C), (B,), (A, C), ()),
        ((A + "\n",), (B + "\n",), (A, "\n"), (B, "\n")),
        (("\tserver\ta  10.0.0.1:80\n", B), ("\tserver\ta  10.0.0.1:80\n", C), (B,), (C,)),
        ((A.replace("id 1", "id 1 # 'why"), B), (A.replace("id 1", "id 1 # 'why"), C), (B,), (C,)),
        (
            ("    default-server weight 7\n", A, B),
            ("    default-server weight 7\n", A),
            *[("    default-server weight 7\n", *x) for x in ((B,), ())],
        ),
    ],
)
def test_servers_of_both_are_left_out(
    old: tuple[str, ...], new: tuple[str, ...], gone: tuple[str, ...], come: tuple[str, ...]
) -> None:
    assert differing_servers(section(*old), section(*new)) == (section(*gone), section(*come))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((A, B), (B, A)),
        ((A, B), (B, "    server  a 10.0.0.1:80 id 1\n")),
        ((A,), (A, "    server a 10.0.0.2:80\n")),
        ((A, A, B), (A, A, C)),
        ((A, "    balance first\n"), (A, B, "    balance source\n")),
        (("    default-server weight 7\n", A), (A, B)),
        ((A, "    default-server weight 7\n", B), (A, "    default-server weight 7\n", C)),
        ((A, "    default-server weight 7\n", B), (A, C, "    default-server weight 7\n", B)),
        ((".if feature(X)\n", A, B, ".endif\n"), (".if feature(X)\n", A, C, ".endif\n")),
        ((A, "    server b\n"), (A, C, "    server b\n")),
        ((A, "    server b # 10.0.0.2:80\n"), (A, C, "    server b # 10.0.0.2:80\n")),
        ((A, '    server "b" 10.0.0.2:80\n'), (A, C, '    server "b" 10.0.0.2:80\n')),
        ((A, '    server "b d" server e 10.0.0.2:80\n'), (A, C, '    server "b d" server e 10.0.0.2:80\n')),
        ((A, "    server b\\ d 10.0.0.2:80\n"), (A, C, "    server b\\ d 10.0.0.2:80\n")),
        (('    "server" b 10.0.0.2:80\n', B), ('    "server" b 10.0.0.2:80\n', A, B)),
        ((B, "    s\\erver b 10.0.0.2:80\n"), (A, B, "    s\\erver b 10.0.0.2:80\n")),
        ((), (A,)),
        ((A,), ()),
    ],
)
def test_section_is_whole_where_other_lines_count(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert differing_servers(section(*old), section(*new)) == (section(*old), section(*new))


LINES = (
    *(A, B, C, f"  {B}", A.replace("id 1", "id 1 weight 0"), C.replace("10.0.0.3", "10.0.0.4"), B.replace("b", "a")),
    *('    server "a" 10.0.0.1:80\n', '    "server" b 10.0.0.2:80\n', "    server c\n", "    server c # none\n"),
    *("    default-server weight 7\n", "    balance source\n", ".if feature(X)\n", ".endif\n", "# note\n", "\n"),
)
SERVERS = st.lists(st.sampled_from(LINES[:7]), unique=True).map(sorted)
AROUND = st.lists(st.sampled_from(LINES), max_size=2)


@given(AROUND, SERVERS, SERVERS, AROUND)
def test_changes_are_those_of_the_whole_sections(
    before: list[str], old: list[str], new: list[str], after: list[str]
) -> None:
    texts = section(*before, *old, *after), section(*before, *new, *after)
    base = Inherited(server_words=("check",))
    assert _changes(differing_servers(*texts), base) == _changes(texts, base)


def _changes(texts: tuple[str, str], base: Inherited) -> SectionChanges:
    old, new = map(section_of, texts)
    assert old is not None
    assert new is not None
    return changed_section(old, new, base, CAN)
