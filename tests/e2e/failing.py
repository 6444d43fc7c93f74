"""What the tests of the failure classes need: bad objects, a reload by command, a stream of events."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.world.appliance import NAMESPACE, Appliance

ELSEWHERE = {
    15: (
        # DNS tied to a change further down, and the wrong zone
        "dns/test_commands.py::test_the_name_follows_the_nodes_that_can_serve",
        "dns/test_records.py::test_the_longest_zone_on_a_label_boundary_is_taken",
    ),
    16: (
        # a hook that does nothing, and two masters
        "vip/test_faults.py::test_one_holder_in_the_end_and_clients_that_hardly_notice",
        "vip/test_failover.py::test_two_holders_for_want_of_adverts_settle_by_priority",
    ),
}
"""Tests of the classes that are not tested here."""


def command_reload(appliance: Appliance, before: str = "") -> None:
    """Reload by a command of the operator's, which does ``before`` first."""
    script = appliance.folder / "reload"
    script.write_text(f"#!/bin/sh\n{before}\nkill -USR2 $(cat {appliance.haproxy.pid_file})\n")
    script.chmod(0o755)
    appliance.values["haproxy"] |= {"reload_method": "command", "reload_cmd": str(script)}


def raw_endpoints(name: str, **more: Any) -> dict[str, Any]:
    annotations = {"domain": f"{name}.example.com", "proto": "http"}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations}} | more


@contextmanager
def steady_events(appliance: Appliance) -> Iterator[None]:
    """Let something change more often than the quiet time, all the time."""
    over = threading.Event()
    appliance.cluster.add_service(NAMESPACE, "noisy")

    def stream() -> None:
        number = 0
        while not over.wait(0.03):
            number += 1
            appliance.cluster.annotate("services", NAMESPACE, "noisy", {"number": str(number)})

    thread = threading.Thread(target=stream, daemon=True)
    thread.start()
    try:
        before = appliance.status()["events_total"]
        appliance.until(lambda: appliance.status()["events_total"] > before + 10, "the stream is seen")
        yield
    finally:
        over.set()
        thread.join()
