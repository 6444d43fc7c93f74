import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import TransientError
from pyconfd.haproxy.history.generations import KEEP_REJECTED, GenerationEntry, GenerationStore, kept
from pyconfd.model.outcome import Generation
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering


def rendering(text: str, *files: OutputFile) -> Rendering:
    return Rendering((Piece("01.conf", "# é\n"), Piece("02.tmpl", text), Piece("03.tmpl", "")), files)


def generation(number: int, desired: Rendering) -> Generation:
    return Generation(number, desired.digest, 1234.5, "2024-01-01 00:00:00", ("maps_changed",))


def record(store: GenerationStore, number: int, desired: Rendering) -> None:
    store.record(desired, generation(number, desired))


def test_a_generation_reads_back_equal(tmp_path: Path) -> None:
    certificate = tmp_path / "site.pem"
    certificate.write_text("secret key\n")
    desired = rendering(
        "listen x\n",
        OutputFile(FileKind.CERTIFICATE, str(certificate), "secret key\n"),
        OutputFile(FileKind.MAP, "/etc/b.map", "é x\n"),
        OutputFile(FileKind.MAP, "/etc/c.map", ""),
    )
    store = GenerationStore(str(tmp_path / "state"), 5)
    assert store.last_good() is None
    record(store, 1, desired)

    stored = GenerationStore(str(tmp_path / "state"), 5).last_good()
    assert stored is not None
    assert stored == (generation(1, desired), desired)
    assert stored.rendering.digest == desired.digest


def test_keys_are_never_in_the_history(tmp_path: Path) -> None:
    desired = rendering("x\n", OutputFile(FileKind.CERTIFICATE, str(tmp_path / "gone.pem"), "secret key\n"))
    store = GenerationStore(str(tmp_path / "state"), 5)
    record(store, 1, desired)
    store.reject(desired, "bad")
    for path in (tmp_path / "state").rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()
    stored = store.last_good()
    assert stored is not None
    assert stored.rendering.files[0].content == ""  # the file at its path is not the one that was recorded
    assert stored.rendering.text == desired.text


@pytest.mark.parametrize(
    "damage",
    ["no meta", "half a meta", "other text", "no text", "other map", "other format", "not an object"],
)
def test_a_damaged_generation_is_passed_over(tmp_path: Path, damage: str) -> None:
    store = GenerationStore(str(tmp_path), 5)
    good = rendering("one\n")
    record(store, 1, good)
    record(store, 2, rendering("two\n", OutputFile(FileKind.MAP, "/m", "a b\n")))
    path = tmp_path / "generations" / "000002"
    meta = json.loads((path / "meta.json").read_text())
    match damage:
        case "no meta":
            (path / "meta.json").unlink()
        case "half a meta":
            (path / "meta.json").write_text(json.dumps(meta)[:40])
        case "other text":
            (path / "haproxy.cfg").write_text("# é\ntwO\n")
        case "no text":
            (path / "haproxy.cfg").unlink()
        case "other map":
            (path / "map-0").write_text("a c\n")
        case "other format":
            (path / "meta.json").write_text(json.dumps(meta | {"format": 99}))
        case _:
            (path / "meta.json").write_text("[]")
    assert store.read(2) is None
    stored = store.last_good()
    assert stored is not None
    assert stored.rendering == good
    assert [entry.number for entry in store.history()] == [1]
    assert store.next_number() == 3


def test_the_oldest_are_pruned(tmp_path: Path) -> None:
    store = GenerationStore(str(tmp_path), 3)
    for number in range(1, 7):
        record(store, number, rendering(f"{number}\n", OutputFile(FileKind.MAP, f"/m{number}", "")))
    assert [entry.number for entry in store.history()] == [6, 5, 4]
    assert store.declared_paths() == {"/m4", "/m5", "/m6"}


def test_what_was_left_half_written_is_cleaned_and_never_read(tmp_path: Path) -> None:
    store = GenerationStore(str(tmp_path), 3)
    store.prepare(rendering("half\n"), generation(1, rendering("half\n")))
    assert store.last_good() is None
    store.clean()
    assert list((tmp_path / "generations").iterdir()) == []


def test_rejected_candidates_are_kept_with_their_reason_and_bounded(tmp_path: Path) -> None:
    store = GenerationStore(str(tmp_path), 3)
    for number in range(KEEP_REJECTED + 3):
        path = store.reject(rendering(f"bad {number}\n"), f"reason {number}")
        os.utime(path, (number, number))
    kept = sorted((tmp_path / "rejected").iterdir(), key=lambda entry: entry.stat().st_mtime)
    assert len(kept) == KEEP_REJECTED
    assert (kept[-1] / "reason.txt").read_text() == f"reason {KEEP_REJECTED + 2}\n"
    again = store.reject(rendering(f"bad {KEEP_REJECTED + 2}\n"), "another reason")
    assert again == str(kept[-1])
    assert (kept[-1] / "reason.txt").read_text() == "another reason\n"


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = GenerationStore(str(tmp_path / "file"), 3)
    with pytest.raises(TransientError) as caught:
        record(store, 1, rendering("x\n"))
    assert caught.value.problems[0].remedy
    assert store.reject(rendering("x\n"), "bad") == ""
    assert store.last_good() is None


DAY = 86400.0


def entries(*inputs: str, sound: tuple[int, ...] = ()) -> list[GenerationEntry]:
    """Return generations 1, 2, ... of these inputs, a day apart."""
    return [GenerationEntry(number, number * DAY, each, number in sound) for number, each in enumerate(inputs, start=1)]


@pytest.mark.parametrize(
    ("known", "number", "days", "stay"),
    [
        ([], 3, 100, set()),
        (entries("a", "a", "a", "a"), 2, 100, {3, 4}),
        # the newest of each set of inputs, so that an edit long ago can be undone after many live changes
        (entries("a", "a", "b", "b", "b", "b"), 2, 100, {2, 5, 6}),
        (entries("a", "b", "c", "d", "d", "d"), 2, 100, {3, 5, 6}),
        # by age, but for what a rollback and a boot need
        (entries("a", "b", "c", "c", "c"), 5, 1, {2, 4, 5}),
        (entries("a", "a", "a", "a", sound=(1, 2)), 5, 1, {2, 3, 4}),
        (entries("a", "a", "a", "a", sound=(4,)), 1, 1, {4}),
        # a clock that was set back makes nothing old
        ([GenerationEntry(1, 9 * DAY), GenerationEntry(2, DAY)], 5, 1, {1, 2}),
    ],
)
def test_what_stays(known: list[GenerationEntry], number: int, days: float, stay: set[int]) -> None:
    assert kept(known, number=number, for_s=days * DAY) == stay


def test_a_rollout_leaves_what_reloads_did() -> None:
    reloads = [GenerationEntry(number, number * DAY, "a", reasons=("binds_changed",)) for number in (1, 2, 3)]
    rollout = [
        GenerationEntry(number, 4 * DAY, "a", reasons=("servers_changed",) * (number % 2)) for number in range(4, 100)
    ]
    assert kept([*reloads, *rollout], number=2, for_s=100 * DAY) == {2, 3, 98, 99}


@given(
    st.lists(
        st.builds(
            GenerationEntry,
            st.integers(1, 1000),
            st.floats(0, 1e9),
            st.sampled_from("abc"),
            st.booleans(),
            reasons=st.sampled_from([(), ("servers_changed",), ("binds_changed",)]),
        ),
        min_size=1,
        unique_by=lambda entry: entry.number,
    ),
    st.integers(1, 5),
    st.floats(0, 1e9),
)
def test_nobody_is_left_without_a_way_back(known: list[GenerationEntry], number: int, for_s: float) -> None:
    stay = kept(known, number=number, for_s=for_s)
    newest = max(known, key=lambda entry: entry.number)
    assert newest.number in stay
    assert len(stay) <= 3 * number + 2
    left = [entry for entry in known if entry.number in stay]
    assert any(entry.inputs != newest.inputs for entry in left) == any(entry.inputs != newest.inputs for entry in known)
    assert any(entry.ran_well for entry in left) == any(entry.ran_well for entry in known)
    assert kept(left, number=number, for_s=for_s) == stay
