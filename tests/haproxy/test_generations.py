import json
import os
from pathlib import Path

import pytest

from pyconfd.errors import TransientError
from pyconfd.haproxy.history.generations import KEEP_REJECTED, GenerationStore
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
