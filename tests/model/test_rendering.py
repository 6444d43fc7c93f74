from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.outcome import Generation, Stored
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering, Run, order_differs

KEY = OutputFile(FileKind.CERTIFICATE, "/f/certs/a.pem", "secret")


@st.composite
def cut(draw: st.DrawFn, text: str) -> tuple[Piece, ...]:
    """The same text in pieces and blocks of any size, some of them empty."""
    blocks = [text[start:end] for start, end in pairwise(sorted([0, *draw(places(text)), len(text)]))]
    border = draw(st.integers(0, len(blocks)))
    return Piece("a", *blocks[:border]), Piece("b", *blocks[border:])


def places(text: str) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(text)), max_size=4)


texts = st.text("ab\n", max_size=6)


@given(st.data(), texts, texts)
def test_renderings_are_the_same_where_their_texts_are(data: st.DataObject, one: str, other: str) -> None:
    first, second = (Rendering(data.draw(cut(text))) for text in (one, other))
    assert first.same_as(second) == (one == other) == (first.digest == second.digest)
    again = Rendering(data.draw(cut(one)))
    assert first.same_as(again)
    assert first.text == again.text == one


@given(st.data(), texts)
def test_pieces_are_equal_wherever_their_blocks_begin(data: st.DataObject, text: str) -> None:
    first, second = (Piece("a", *(part for piece in data.draw(cut(text)) for part in piece.blocks)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Piece("b", *first.blocks)
    assert first != Piece("a", *first.blocks, "x")


def test_the_name_of_a_fragment_makes_no_other_rendering_but_files_do() -> None:
    one, other = Rendering((Piece("a", "x\n"),)), Rendering((Piece("b", "x\n"),))
    assert one.same_as(other)
    assert one != other
    assert not one.same_as(Rendering(one.pieces, (KEY,)))


def test_many_blocks_are_compared_to_the_last() -> None:
    blocks = [f"backend b{number}\n" for number in range(1000)]
    one = Rendering((Piece("a", *blocks),))
    assert one.same_as(Rendering((Piece("a", "".join(blocks)),)))
    for number in (0, 255, 256, 700, 999):
        changed = [*blocks[:number], "backend other\n", *blocks[number + 1 :]]
        assert not one.same_as(Rendering((Piece("a", *changed),)))


def test_a_line_is_found_across_blocks() -> None:
    rendering = Rendering((Piece("a", "1\n2", "\n", "3\n"), Piece("b"), Piece("c", "1\n", "2\n")))
    assert [rendering.place_of(line) for line in (1, 2, 3, 4, 5, 6)] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("c", 1),
        ("c", 2),
        ("", 6),
    ]


def test_a_lost_certificate_is_known_by_the_digest() -> None:
    whole = Rendering((Piece("a", "x\n"),), (KEY,))
    lost = Rendering(whole.pieces, (OutputFile(KEY.kind, KEY.path, ""),))
    stored = Stored(Generation(1, whole.digest, 0.0), lost)
    assert stored.gives(whole)
    assert not stored.gives(Rendering((Piece("a", "y\n"),), (KEY,)))


@given(
    st.lists(st.lists(texts, min_size=1, max_size=4), min_size=1, max_size=3),
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), texts, max_size=4),
)
def test_what_is_made_of_a_piece_knows_where_it_differs(
    blocks: list[list[str]], replaced: dict[tuple[int, int], str]
) -> None:
    first = Rendering(tuple(Piece(str(number), *each) for number, each in enumerate(blocks)))
    pieces = []
    for number, piece in enumerate(first.pieces):
        own = {at: text for (of, at), text in replaced.items() if of == number and at < len(piece.blocks)}
        pieces.append(piece.with_blocks({at: text for at, text in own.items() if text != piece.blocks[at]}))
        assert pieces[-1].blocks == tuple(own.get(at, text) for at, text in enumerate(piece.blocks))
        changed = [at for at, text in enumerate(piece.blocks) if pieces[-1].blocks[at] != text]
        assert pieces[-1].runs_since(piece) == [Run(at, at + 1, at, at + 1) for at in changed]
    second = Rendering(tuple(pieces))
    assert first.same_as(second) == second.same_as(first) == (first.text == second.text)


@given(*[st.lists(st.sampled_from("uvwxyz")).map("".join)] * 2)
def test_runs_make_of_one_piece_the_other(old: str, new: str) -> None:
    was, now = Piece("a", *old), Piece("a", *new)
    made, end = "", 0
    for run in now.runs_since(was):
        assert (run.old_start, run.old_end) != (run.start, run.end) or old[run.start : run.end] != new[
            run.start : run.end
        ]
        made += old[end : run.old_start] + new[run.start : run.end]
        end = run.old_end
    assert made + old[end:] == new


@pytest.mark.parametrize(
    ("old", "new", "runs"),
    [
        ("abcdef", "abcdef", []),
        ("abcdef", "abXcdef", [(2, 3, 2, 2)]),
        ("abcdef", "abdef", [(2, 2, 2, 3)]),
        ("abcdef", "XabcdYf", [(0, 1, 0, 0), (5, 6, 4, 5)]),
        ("abcdef", "acdeXf", [(1, 1, 1, 2), (4, 5, 5, 5)]),
        ("abcdef", "acbdef", [(1, 1, 1, 2), (2, 3, 3, 3)]),
    ],
)
def test_runs_are_no_longer_than_what_differs(old: str, new: str, runs: list[tuple[int, int, int, int]]) -> None:
    assert Piece("a", *new).runs_since(Piece("b", *old)) == runs


@pytest.mark.parametrize(
    ("names", "differs"), [(("01-a.conf", "02-b.conf"), False), (("9-a.conf", "10-b.conf"), True), ((), False)]
)
def test_an_order_that_python_confd_had_not_is_found(names: tuple[str, ...], *, differs: bool) -> None:
    assert order_differs(names) is differs
