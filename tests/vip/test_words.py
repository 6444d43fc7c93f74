"""What people read of the hook."""

import pytest

from pyconfd.vip.policy import Alarm, Shared
from pyconfd.vip.words import described


@pytest.mark.parametrize("alarm", [*Alarm, *Shared])
def test_each_alarm_is_a_sentence(alarm: str) -> None:
    router = {
        "id": 51, "hold": "able", "faults": [], "since": 0.0, "drained": None, "alarms": [alarm], "instances": [],
    }  # fmt: skip
    document = {
        "node": "lb1",
        "interface": "eth0",
        "profile": "fast",
        "routers": [router],
        "checks": {},
        "troubles": {},
    }
    (line,) = (line for line in described(document, [], 0.0).splitlines() if "ALARM" in line)
    assert alarm not in line
    assert len(line.split()) > 3
