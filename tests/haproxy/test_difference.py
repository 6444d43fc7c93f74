import pytest

from pyconfd.haproxy.config.difference import Difference, difference, in_short
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering

TEXT = """defaults
    timeout connect 5s
frontend f
    bind :80
backend a
    server a1 10.0.0.1:80 check
    server a2 10.0.0.2:80 check
backend b
    balance leastconn
    server b1 10.0.1.1:80
"""


def made(text: str, **maps: str) -> Rendering:
    files = tuple(OutputFile(FileKind.MAP, f"/m/{name}.map", content) for name, content in maps.items())
    return Rendering((Piece("01.conf", text),), files)


def compared(after: str) -> Difference:
    return difference(made(TEXT), made(after))


@pytest.mark.parametrize(
    ("after", "sentences"),
    [
        (TEXT, []),
        (TEXT + "backend c\n    server c1 10.0.2.1:80\n", ["backend c added, 1 server"]),
        (TEXT + "\n# shop/c\nbackend c\n    server c1 10.0.2.1:80\n", ["backend c added, 1 server"]),
        (TEXT + "# only said\n", ["backend b: comments, blanks or the order of its lines"]),
        (TEXT[: TEXT.index("backend b")], ["backend b removed, 1 server"]),
        (TEXT.replace("    server a2 10.0.0.2:80 check\n", ""), ["backend a: server a2 removed"]),
        (TEXT + "    server b2 10.0.1.2:80\n    server b3 10.0.1.3:80\n", ["backend b: 2 servers added (b2, b3)"]),
        (TEXT.replace("10.0.0.1:80", "10.0.0.1:81"), ["backend a: server a1 changed"]),
        (
            TEXT.replace("10.0.0.1:80 check", "10.0.0.1:80  check # so"),
            ["backend a: comments, blanks or the order of its lines"],
        ),
        (TEXT.replace("leastconn", "first"), ["backend b: 1 line added, 1 line removed"]),
        (TEXT.replace("bind :80", "bind :81"), ["frontend f: 1 line added, 1 line removed"]),
        (TEXT + "userlist u\n", ["userlist u added"]),
        (
            TEXT.replace("connect 5s\n", "connect 5s\n    default-server weight 3\n"),
            ["backend a: 2 servers changed (a1, a2)", "backend b: server b1 changed", "defaults: 1 line added"],
        ),
        (
            TEXT + "".join(f"    server c{number} 10.0.3.{number}:80\n" for number in range(1, 9)),
            ["backend b: 8 servers added (c1, c2, c3, c4, c5, and 3 more)"],
        ),
    ],
)
def test_it_is_said_in_words(after: str, sentences: list[str]) -> None:
    assert list(compared(after).sentences) == sentences


def test_maps_are_compared_by_entries() -> None:
    before = made(TEXT, hosts="a b\nc d\ne f\n", gone="")
    after = made(TEXT, hosts="a b\nc x\ng h\n", new="")
    assert difference(before, after).files == (
        "map gone.map removed",
        "map hosts.map: entry g added, entry e removed, entry c changed",
        "map new.map added",
    )


def test_the_way_back_is_the_opposite() -> None:
    after = TEXT.replace("a2 10.0.0.2:80", "a3 10.0.0.3:80") + "backend c\n"
    there, back = difference(made(TEXT), made(after)), difference(made(after), made(TEXT))
    assert (there.added, there.removed) == (back.removed, back.added)
    assert [(one.added, one.removed) for one in there.changed] == [(one.removed, one.added) for one in back.changed]


def test_in_short_counts_the_rest() -> None:
    assert in_short(("a", "b")) == "a; b"
    assert in_short(("a", "b", "c", "d", "e"), most=2) == "a; b; and 3 more"
