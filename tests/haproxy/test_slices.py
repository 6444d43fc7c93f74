"""A large runtime update goes in slices, the smallest backends first, and newer changes are looked at between them."""

from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison, Slice, plan
from pyconfd.haproxy.config.slices import SLICE
from pyconfd.model.operations import AddServer, Command, RemoveServer
from pyconfd.model.plan import Noop, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from tests.haproxy.process_model import Place, ProcessModel, states

CAN = Abilities(runtime=True, why="", cookies=True, backends=True)
HEAD = (
    "global\n    maxconn 10\ndefaults\n    mode http\nfrontend fe\n    bind :80\n    use_backend %[path,map_str(/m)]\n"
)
PLACE = Place()
renderings = states.map(lambda state: state.rendering(PLACE))


def backend(name: str, *servers: int) -> str:
    lines = (f"    server s{number} 10.0.{number // 250}.{number % 250}:80 id {number + 1}\n" for number in servers)
    return f"backend {name}\n    balance roundrobin\n{''.join(lines)}"


def rendering(entries: str = "", **backends: range) -> Rendering:
    blocks = [backend(name, *servers) for name, servers in backends.items()]
    files = (OutputFile(FileKind.MAP, "/m", entries),) if entries else ()
    return Rendering((Piece("00.conf", HEAD), Piece("01.tmpl", *blocks)), files)


def first_slice(comparison: Comparison, old: Rendering, new: Rendering) -> Slice | None:
    assert isinstance(plan(new, old, None, comparison=comparison, abilities=CAN), RuntimeUpdate)
    return comparison.first_slice(old)


def all_slices(old: Rendering, new: Rendering) -> list[Slice]:
    comparison, found = Comparison(), list[Slice]()
    while (part := first_slice(comparison, old, new)) is not None:
        found.append(part)
        old = part.rendering
    return found


def by_backend(commands: tuple[Command, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for command in commands:
        assert isinstance(command, AddServer | RemoveServer)
        found[command.backend] = found.get(command.backend, 0) + 1
    return found


def test_few_changes_are_one_update() -> None:
    assert all_slices(rendering(a=range(10)), rendering(a=range(10, 20))) == []


def test_neighbours_of_a_thousand_are_the_first_slice_and_wait_for_no_part_of_it() -> None:
    old = rendering(big=range(1000), small=range(5), other=range(3))
    parts = all_slices(old, rendering(big=range(1000, 2000), small=range(1, 6), other=range(4)))
    assert by_backend(parts[0].commands) == {"small": 2, "other": 1}
    assert [by_backend(part.commands) for part in parts[1:]] == [{"big": SLICE}] * (2000 // SLICE - 1)


def test_section_from_which_servers_only_go_waits_for_the_map_and_stops_nothing() -> None:
    old, new = rendering("/ a\n", big=range(100), gone=range(2)), rendering("/ b\n", big=range(400), gone=range(1))
    parts = all_slices(old, new)
    assert [by_backend(part.commands) for part in parts] == [{"big": SLICE}] * 2


def test_change_that_comes_between_slices_is_in_the_next() -> None:
    comparison = Comparison()
    old = rendering(big=range(1000), small=range(5))
    first = first_slice(comparison, old, rendering(big=range(1000, 2000), small=range(5)))
    assert first is not None
    newer = rendering(big=range(1000, 2000), small=range(1, 6))
    second = first_slice(comparison, first.rendering, newer)
    assert second is not None
    assert by_backend(second.commands) == {"small": 2}
    third = first_slice(comparison, second.rendering, newer)
    assert third is not None
    assert by_backend(third.commands) == {"big": SLICE}


def test_as_many_servers_serve_after_each_slice() -> None:
    for part in all_slices(rendering(big=range(1000)), rendering(big=range(1000, 2000))):
        assert part.rendering.text.count("    server ") == 1000
        kinds = [type(command) for command in part.commands]
        assert kinds == sorted(kinds, key=[AddServer, RemoveServer].index)


def test_text_after_each_slice_is_what_the_process_runs() -> None:
    old, process = rendering(big=range(300)), ProcessModel.of(rendering(big=range(300)))
    parts = all_slices(old, rendering(big=range(300, 600)))
    for part in parts:
        for command in part.commands:
            process.execute(command)
        assert process.comparable() == ProcessModel.of(part.rendering).comparable()
    assert len(parts) == 600 // SLICE - 1


def test_rest_of_a_section_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison, old, new = (
        Comparison(),
        rendering(big=range(1000), small=range(5)),
        rendering(big=range(1000, 2000), small=range(6)),
    )
    part = first_slice(comparison, old, new)

    def parsed(text: str) -> NoReturn:
        raise AssertionError(f"parsed {len(text)} characters again")

    monkeypatch.setattr(diff, "section_of", parsed)
    monkeypatch.setattr(diff, "index_of", parsed)
    count = 0
    while part is not None:
        count, part = count + 1, first_slice(comparison, part.rendering, new)
    assert count == 2000 // SLICE


def test_map_waits_for_the_servers_that_come_and_the_others_for_the_map() -> None:
    old, new = rendering("/ a\n", big=range(1000)), rendering("/ b\n", big=range(900, 1200))
    parts = all_slices(old, new)
    assert [by_backend(part.commands) for part in parts] == [{"big": SLICE}]
    assert all(isinstance(command, AddServer) for part in parts for command in part.commands)
    assert all(part.rendering.files == old.files for part in parts)


@settings(max_examples=100)
@given(st.lists(renderings, min_size=2, max_size=4), st.data())
def test_slices_make_of_the_process_what_is_rendered(wanted: list[Rendering], data: st.DataObject) -> None:
    """Whatever is rendered between two slices."""
    comparison, applied = Comparison(), wanted[0]
    process = ProcessModel.of(applied)
    for desired in [*wanted[1:], wanted[-1]]:
        steps = data.draw(st.integers(1, 12)) if desired is not wanted[-1] else 1000
        for _ in range(steps):
            made = plan(desired, applied, None, comparison=comparison, abilities=CAN)
            if isinstance(made, Noop):
                break
            if not isinstance(made, RuntimeUpdate):
                process, applied = ProcessModel.of(desired), desired
                break
            part = comparison.first_slice(applied, most=1)
            commands, after = (part.commands, part.rendering) if part else (made.commands, desired)
            for command in commands:
                process.execute(command)
            applied = after
            assert process.comparable() == ProcessModel.of(applied).comparable()
    assert applied.same_as(wanted[-1])
    assert applied.text == wanted[-1].text
