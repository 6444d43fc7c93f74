"""What is held, in a file."""

from pathlib import Path

import pytest
import structlog.testing

from pyconfd.daemon.held_objects import FILE, HeldObjects
from pyconfd.errors import TransientError
from pyconfd.guard.saved import Saved, objects_of, saved_of
from pyconfd.model.hold import Hold, HoldKind
from pyconfd.model.kubernetes import ConfigMap, ObjectMeta
from pyconfd.model.snapshot import Key, Snapshot
from tests.presets import objects, pods

OBJECTS = Snapshot(
    services={Key("demo", "a"): objects.service("a", {"domain": "a.example.com"})},
    endpointslices={Key("demo", "a-a"): objects.slice_("a", objects.endpoint("192.0.2.1", pod="a-1"))},
    endpoints={Key("demo", "a"): objects.endpoints("a", None, objects.subset("192.0.2.1"))},
    nodes={Key("", "node-1"): objects.node("node-1", "192.0.2.9")},
    pods={Key("demo", "p"): pods.pod("p", "192.0.2.2", {"app": "p"})},
    config_maps={Key("lb", "services"): ConfigMap(ObjectMeta("services", "lb"), {"x": "y"})},
)


def _saved() -> Saved:
    hold = Hold("0123abcd", HoldKind.TOTAL, 7.0, 1, 1, 1)
    return saved_of(hold, 1, [], [], objects=OBJECTS, afterwards=Snapshot(), standing=OBJECTS.services)


def test_what_was_saved_is_there_again_whole_and_for_nobody_else(tmp_path: Path) -> None:
    HeldObjects(str(tmp_path)).save(_saved())
    found = HeldObjects(str(tmp_path)).load()
    assert found == _saved()
    assert found is not None
    assert objects_of(found) == OBJECTS
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / FILE]


def test_nothing_held_leaves_no_file(tmp_path: Path) -> None:
    held = HeldObjects(str(tmp_path / "made"))
    assert held.load() is None
    held.save(None)
    held.save(_saved())
    held.save(None)
    assert held.load() is None
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b'{"hold_id": 1', b"\xff"])
def test_a_damaged_file_counts_as_nothing_and_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with structlog.testing.capture_logs() as logs:
        assert HeldObjects(str(tmp_path)).load() is None
    assert [line["event"] for line in logs] == ["state_file.unreadable"]


def test_a_directory_that_cannot_be_written_is_an_error_to_come_back_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransientError):
        HeldObjects(str(tmp_path / "file")).save(_saved())
