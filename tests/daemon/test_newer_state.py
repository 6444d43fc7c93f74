"""Each small file of the state directory, as a newer version would have written it that keeps more."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from pyconfd.admission.removal_protection import SavedHold
from pyconfd.daemon.pause import Pause
from pyconfd.daemon.protection import hold_file
from pyconfd.haproxy.history.pins import PinFile
from pyconfd.model.context import EndpointTotals
from pyconfd.model.hold import Hold, HoldKind
from pyconfd.model.kubernetes import ConfigMap
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.status import Paused, Pin
from pyconfd.predecessors.etcd.publication import KnownGeneration
from pyconfd.predecessors.targets.target import AppliedTarget
from pyconfd.system.state_file import StateFile
from pyconfd.vip.output import Drain, HookMemory, memory_file
from tests.presets import objects, pods

OBJECTS = Snapshot(
    services={Key("demo", "a"): objects.service("a", {"domain": "a.example.com"})},
    endpointslices={Key("demo", "a-a"): objects.slice_("a", objects.endpoint("192.0.2.1", pod="a-1"))},
    endpoints={Key("demo", "a"): objects.endpoints("a", None, objects.subset("192.0.2.1"))},
    nodes={Key("", "node-1"): objects.node("node-1", "192.0.2.9")},
    pods={Key("demo", "p"): pods.pod("p", "192.0.2.2", {"app": "p"})},
    config_maps={Key("lb", "services"): ConfigMap(ObjectMeta("services", "lb"), {"x": "y"})},
)
HELD = SavedHold(
    Hold("0123abcd", HoldKind.TOTAL, 7.0, 1, 1, 1),
    [("domains", "a.example.com", 1, 1)],
    ["192.0.2.1"],
    **{field: list(getattr(OBJECTS, field).values()) for field in SavedHold.__struct_fields__[3:]},
)


@dataclass(frozen=True)
class Case:
    file: str
    write: Callable[[str], Any]
    read: Callable[[str], Any]


CASES = [
    Case("paused.json", lambda at: Pause(at).begin(Paused(1.0, reason="x")), lambda at: Pause(at).read(2.0)),
    Case("pin.json", lambda at: PinFile(at).begin(Pin("a", 1, "b", 1.0)), lambda at: PinFile(at).read()),
    Case("held.json", lambda at: hold_file(at).save(HELD), lambda at: hold_file(at).load()),
    Case(
        "targets/nginx.json",
        lambda at: StateFile(f"{at}/targets/nginx.json", AppliedTarget).save(
            AppliedTarget("a", "b", 1, EndpointTotals(1, 2))
        ),
        lambda at: StateFile(f"{at}/targets/nginx.json", AppliedTarget).load(),
    ),
    Case(
        "producer.json",
        lambda at: KnownGeneration(at, "producer", "/p").save(7, "ab"),
        lambda at: KnownGeneration(at, "producer", "/p").load(),
    ),
    Case(
        "memory.json",
        lambda at: memory_file(at).write(HookMemory([Drain(51, 1.0, "x")])),
        lambda at: (memory_file(at).read() or HookMemory()).drained,
    ),
]


def with_more(value: Any) -> Any:
    """Return every record one more field."""
    if isinstance(value, dict):
        known = {
            key: each if key in {"data", "labels", "annotations"} else with_more(each) for key, each in value.items()
        }
        return known | {"of_a_newer_version": "x"}
    return [with_more(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_more_fields_take_nothing_away(case: Case, tmp_path: Path) -> None:
    at = str(tmp_path)
    case.write(at)
    before = case.read(at)
    assert before
    path = tmp_path / case.file
    text = path.read_text()
    path.write_text(json.dumps(with_more(json.loads(text))))
    assert path.read_text() != text
    with structlog.testing.capture_logs() as logs:
        assert case.read(at) == before
    assert logs == []
