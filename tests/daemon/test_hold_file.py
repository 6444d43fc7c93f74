"""What is held, in a file."""

from pathlib import Path

import pytest
import structlog.testing

from pyconfd.admission.removal_protection import SavedHold
from pyconfd.daemon.protection import FILE, hold_file
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


def _saved() -> SavedHold:
    hold = Hold("0123abcd", HoldKind.TOTAL, 7.0, 1, 1, 1)
    kept = {field: list(getattr(OBJECTS, field).values()) for field in SavedHold.__struct_fields__[3:]}
    return SavedHold(hold, [("domains", "a.example.com", 1, 1)], ["192.0.2.1"], **kept)


def test_what_was_saved_is_there_again_whole_and_for_nobody_else(tmp_path: Path) -> None:
    assert hold_file(str(tmp_path)).save(_saved())
    found = hold_file(str(tmp_path)).load()
    assert found == _saved()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / FILE]


@pytest.mark.parametrize("content", [b"", b'{"hold": 1}', b'{"hold": {"hold_id": 1', b"\xff"])
def test_a_damaged_file_counts_as_nothing_and_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with structlog.testing.capture_logs() as logs:
        assert hold_file(str(tmp_path)).load() is None
    assert [line["event"] for line in logs] == ["state_file.unreadable"]
