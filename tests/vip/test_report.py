"""What people read of the hook."""

import pytest

from pyconfd.vip.policy import Alarm
from pyconfd.vip.report import described, line


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "router 51: does not have the address"),
        ({"holds": True}, "router 51: has the address"),
        (
            {"faults": ["carrier", "haproxy_dead"], "drained": {"at": 0.0}, "alarms": ["last_one"]},
            "router 51: does not have the address, faults: carrier haproxy_dead, drained by order, alarms: last_one",
        ),
    ],
)
def test_one_line_says_who_has_it_and_what_is_wrong(changes: dict[str, object], told: str) -> None:
    router = {"id": 51, "faults": [], "drained": None, "alarms": [], "holds": False, **changes}
    assert line({"routers": [router], "troubles": {}}) == told
    trouble = {"heartbeat": "no space left"}
    assert line({"routers": [router], "troubles": trouble}) == f"{told}; trouble with heartbeat: no space left"


@pytest.mark.parametrize("alarm", Alarm)
def test_each_alarm_is_a_sentence(alarm: str) -> None:
    router = {
        "id": 51, "hold": "able", "faults": [], "since": 0.0, "drained": None, "alarms": [alarm], "addresses": [],
        "role": "backup", "role_since": 0.0, "holds": False, "holder": "", "peers": {}, "rivals": [],
        "contradictions": {},
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
