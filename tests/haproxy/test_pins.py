import os
import stat
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput, TransientError
from pyconfd.haproxy.history.pins import FILE_NAME, InputsStore, PinFile
from pyconfd.model.inputs import GenerationInputs
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.status import Pin


def inputs(text: str) -> GenerationInputs:
    return GenerationInputs(FragmentSet((Fragment("01.conf", text),)), {"templates": {"vars": {"a": 1}}})


def kept(folder: Path) -> set[str]:
    return {path.stem for path in (folder / "inputs").iterdir()}


def test_each_is_kept_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    store, one = InputsStore(str(tmp_path)), inputs("user admin password secret\n")
    store.keep(one, [])
    (path,) = (tmp_path / "inputs").iterdir()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    before = path.stat().st_ino
    store.keep(inputs("user admin password secret\n"), [])
    assert path.stat().st_ino == before
    assert store.read(one.digest).fragments == one.fragments


def test_only_what_is_needed_stays(tmp_path: Path) -> None:
    store, made = InputsStore(str(tmp_path)), [inputs(str(number)) for number in range(4)]
    store.keep(made[0], [])
    store.keep(made[1], [made[0].digest])
    store.keep(made[2], [made[0].digest, made[1].digest])
    store.keep(made[3], [made[1].digest])
    assert kept(tmp_path) == {made[1].digest, made[3].digest}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"fragments":[],"includable":[],"settings":{}}'])
def test_what_is_damaged_or_missing_is_told(tmp_path: Path, damage: bytes) -> None:
    store, one = InputsStore(str(tmp_path)), inputs("x")
    with pytest.raises(RejectedInput, match="is not there"):
        store.read(one.digest)
    store.keep(one, [])
    (tmp_path / "inputs" / f"{one.digest}.json").write_bytes(damage)
    with pytest.raises(RejectedInput, match="damaged"):
        store.read(one.digest)


def test_what_cannot_be_written_takes_nothing_away(tmp_path: Path) -> None:
    store, one = InputsStore(str(tmp_path)), inputs("x")
    store.keep(one, [])
    folder = tmp_path / "inputs"
    away = tmp_path / "away"
    folder.rename(away)
    folder.write_text("a file")
    with pytest.raises(TransientError) as caught:
        store.keep(inputs("y"), [])
    assert "cannot be written" in caught.value.problems[0].message
    assert list(away.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_who_may_not_read_is_told_what_to_do(tmp_path: Path) -> None:
    store, one = InputsStore(str(tmp_path)), inputs("x")
    store.keep(one, [])
    (tmp_path / "inputs").chmod(0)
    with pytest.raises(TransientError, match="run it as root"):
        store.read(one.digest)


PIN = Pin("ab", 41, "d" * 64, 10.0, "why")


def test_a_pin_holds_until_it_is_ended(tmp_path: Path) -> None:
    pins = PinFile(str(tmp_path / "state"))
    assert pins.read() is None
    pins.begin(PIN)
    assert PinFile(str(tmp_path / "state")).read() == PIN
    pins.end()
    assert pins.read() is None
    pins.end()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"id": 1}'])
def test_a_damaged_file_is_a_pin(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    found = PinFile(str(tmp_path)).read()
    assert found is not None
    assert "damaged" in found.broken


def test_an_unreadable_file_is_a_pin_that_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    found = PinFile(str(tmp_path)).read()
    assert found is not None
    assert "cannot be read" in found.broken
    with pytest.raises(TransientError):
        PinFile(str(tmp_path)).begin(PIN)
    with pytest.raises(TransientError):
        PinFile(str(tmp_path)).end()
