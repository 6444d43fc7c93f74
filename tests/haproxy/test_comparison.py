"""The comparison that goes by changed blocks finds what one finds that begins from nothing, whatever changes."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison, plan
from pyconfd.haproxy.config.index import index_of
from pyconfd.model.plan import Noop, Reload
from pyconfd.model.rendering import Piece, Rendering

CAN = Abilities(runtime=True, why="", cookies=True, backends=True)

LINES = (
    "",
    "\n",
    "# note\n",
    "    server a 10.0.0.1:80\n",
    "    server b 10.0.0.2:80\n",
    "    server c 10.0.0.3:80 weight 5\n",
    "    default-server weight 7\n",
    "    balance leastconn\n",
    "    balance source\n",
    "    option httplog\n",
    "    use_backend be_a if TRUE\n",
    ".if feature(OPENSSL)\n",
    ".endif\n",
    " no end of a line",
)
HEADERS = (
    "global\n",
    "defaults\n",
    "defaults base\n",
    "defaults other from base\n",
    "frontend fe\n",
    "peers mine\n",
    "listen be_a\n",
    *(f"backend be_{name}{inherits}\n" for name in "abcd" for inherits in ("", " from base")),
    "backend be_e from other # why\n",
    '"backend" be_f\n',
)
USUAL = (
    "global\n    maxconn 10\n",
    "defaults base\n    mode http\n    balance roundrobin\n",
    "defaults\n    mode http\n    balance source\n",
    "frontend fe\n    bind :80\n",
)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """A section, lines of one, or several of both; with the comment of the next before it."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=3))
    more = draw(st.lists(st.sampled_from(LINES), max_size=1))
    header = draw(st.sampled_from(("", *HEADERS)))
    return "".join((*more, header, *lines))


usual_blocks = st.builds(
    lambda name, inherits, servers: f"# {name}\nbackend be_{name}{inherits}\n{''.join(servers)}\n",
    st.sampled_from("abcdefgh"),
    st.sampled_from(("", " from base")),
    st.lists(st.sampled_from(LINES[3:6]), max_size=3, unique=True),
)


@st.composite
def steps(draw: st.DrawFn, of: st.SearchStrategy[str], first: Sequence[str]) -> list[list[list[str]]]:
    """Return texts as pieces of blocks, each with some blocks more, less, changed or moved."""
    pieces = [list(first), draw(st.lists(of, max_size=6)), draw(st.lists(of, max_size=4))]
    found = [pieces]
    for _ in range(draw(st.integers(1, 4))):
        pieces = [list(piece) for piece in pieces]
        for _ in range(draw(st.integers(0, 3))):
            piece = draw(st.sampled_from(pieces[1:] if first else pieces))
            at = draw(st.integers(0, len(piece)))
            match draw(st.sampled_from(["more", "less", "changed", "moved"])):
                case "more":
                    piece.insert(at, draw(of))
                case "less":
                    del piece[at : at + draw(st.integers(1, 2))]
                case "changed":
                    piece[at : at + 1] = [draw(of)]
                case _:
                    moved = piece[at : at + 1]
                    del piece[at : at + 1]
                    to = draw(st.sampled_from(pieces[1:] if first else pieces))
                    place = draw(st.integers(0, len(to)))
                    to[place:place] = moved
        found.append(pieces)
    return found


def rendering(pieces: Sequence[Sequence[str]]) -> Rendering:
    """A piece ends with a newline, or is empty."""
    made = []
    for number, blocks in enumerate(pieces):
        ended = list(blocks)
        if ended and not ended[-1].endswith("\n"):
            ended[-1] += "\n"
        made.append(Piece(f"0{number}.tmpl", *ended))
    return Rendering(tuple(made))


def named_once(states: list[list[list[str]]]) -> list[list[list[str]]]:
    """Return the states without blocks whose backend an earlier one has."""
    for pieces in states:
        seen: set[str] = set()
        for piece in pieces:
            blocks, piece[:] = piece[:], []
            for block in blocks:
                names = set(re.findall("(?m)^(?:backend|listen) ([^ \\n]+)", block))
                if not names & seen:
                    piece.append(block)
                seen |= names
    return states


plain_lines = st.sampled_from([line for line in LINES if "if" not in line])
any_steps = st.one_of(
    steps(blocks(), ()),
    steps(usual_blocks, USUAL).map(named_once),
    steps(usual_blocks, USUAL[:3]).map(named_once),
    steps(usual_blocks | plain_lines, USUAL).map(named_once),
    steps(usual_blocks | blocks(), USUAL).map(named_once),
)


@settings(max_examples=200)
@given(any_steps, st.data())
def test_changed_blocks_give_what_a_comparison_from_nothing_gives(
    states: list[list[list[str]]], data: st.DataObject
) -> None:
    """The plan, what may go before a reload, and the sections that the next one starts from."""
    comparison = Comparison()
    applied, sliced = rendering(states[0]), False
    for desired in map(rendering, states[1:]):
        made = plan(desired, applied, None, comparison=comparison, abilities=CAN)
        joined = [Rendering((Piece("all", one.text),)) for one in (applied, desired)]
        fresh = Comparison()
        wanted_plan = plan(joined[1], joined[0], None, comparison=fresh, abilities=CAN)
        if sliced and not isinstance(made, Noop) and not isinstance(wanted_plan, Noop):
            made, wanted_plan = replace(made, details=()), replace(wanted_plan, details=())  # "2 more changes"
        assert made == wanted_plan
        if isinstance(made, Noop):
            continue
        which = data.draw(st.sampled_from(["all", "before a reload", "slice", "not applied"]))
        if which == "slice":
            first, other = comparison.first_slice(applied, most=1), fresh.first_slice(joined[0], most=1)
            assert (first and first.commands) == (other and other.commands)
            applied, sliced = (first.rendering, True) if first else (applied, sliced)
            assert not first or not other or first.rendering.text == other.rendering.text
        elif which == "before a reload" and isinstance(made, Reload) and made.live is not None:
            part = comparison.partial(applied)
            assert part.rendering.text == fresh.partial(joined[0]).rendering.text
            applied = part.rendering
        elif which == "all":
            applied = desired
        found, wanted = comparison.index(applied), index_of(applied.text)
        assert list(found.in_order().items()) == list(wanted.texts.items())
        assert (found.head, found.above, found.defaults) == (wanted.head, wanted.above, wanted.defaults)


def backend(name: str, server: int = 1) -> str:
    return f"# {name}\nbackend {name} from base\n    server a 10.0.0.{server}:80\n\n"


@pytest.mark.parametrize(
    ("changed", "commands"),
    [
        (["a", "b", "c", "d"], 2),  # AddBackend, AddServer
        (["a", "c"], 1),
        (["b", "a", "c"], 0),
        (["c", "x", "y", "a"], 5),
        ([], 3),
    ],
)
def test_sections_that_come_go_or_move_leave_the_rest_unread(
    changed: list[str], commands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = Comparison()
    before, after = ([[*USUAL], [backend(name) for name in names]] for names in (["a", "b", "c"], changed))
    comparison.index(rendering(before))

    def whole(text: str) -> NoReturn:
        raise AssertionError(f"read {len(text)} characters")

    monkeypatch.setattr(diff, "index_of", whole)
    found = comparison.compare(rendering(before), rendering(after), CAN)
    assert found is not None
    assert (len(found.commands), found.reload_causes) == (commands, [])
    assert comparison.index(rendering(after)).text == rendering(after).text
