"""What ``pyconfd preflight`` says of ports that somebody else has."""

import json
import socket

import pytest

from tests.e2e.expect import serving
from tests.world.appliance import Appliance

pytestmark = pytest.mark.haproxy


def binds(appliance: Appliance) -> list[tuple[str, str]]:
    told = json.loads(appliance.command("preflight", "--json").stdout)
    return [(each["level"], each["what"] + each["message"]) for each in told["findings"] if each["topic"] == "binds"]


def test_a_port_of_another_program_is_a_failure_and_haproxys_own_are_not(appliance: Appliance) -> None:
    fragments = appliance.own_fragments()
    serving(appliance)
    assert [level for level, _ in binds(appliance)] == ["ok"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (fragments / "09-mine.conf").write_text(f"frontend mine\n  bind 127.0.0.1:{port}\n")
        ((level, text),) = binds(appliance)
    assert level == "failure"
    assert text.startswith("09-mine.conf line 2")
    assert f"port {port} is taken" in text
