"""New names on Debian's own HAProxy: served at once by spares, and called by their own names everywhere."""

import pytest

from pyconfd.haproxy.runtime.sockets import ask as ask_socket
from tests.e2e.expect import all_is_well, new_pod_answers, serving, undisturbed
from tests.e2e.test_live_operating import servers, wanted
from tests.world.appliance import NAMESPACE, Appliance

pytestmark = pytest.mark.haproxy


def test_a_new_name_is_served_without_a_reload_and_has_its_own_name_in_all_that_people_read(
    appliance: Appliance,
) -> None:
    appliance.values["apply"]["rename_interval_s"] = 3600.0
    serving(appliance)
    worker = appliance.haproxy.worker()
    with undisturbed(appliance):
        for name in ("second", "third"):
            appliance.serve(name)
            appliance.until(lambda name=name: appliance.ask(name) == f"{name}-1", "the new name is served")  # type: ignore[misc]
        new_pod_answers(appliance, "second")
        appliance.cluster.delete_service(NAMESPACE, "third")
        appliance.until(lambda: appliance.ask("third") == "404", "the removed name is gone")
        appliance.until(appliance.settled, "all is applied")
        appliance.until(lambda: appliance.status()["live"]["spares"]["removed"] == 1, "status counts them")
    assert appliance.haproxy.worker() == worker
    assert "spare-" in ask_socket(appliance.haproxy.stats_socket, "show servers state")
    shown = appliance.command("status").stdout
    assert "1 backend served by spares" in shown
    assert "1 removed backend still there" in shown
    listed = appliance.run("server", "list", "--config", str(appliance.config)).stdout
    assert "second" in listed
    for text in (listed, appliance.command("explain", "second.example.com").stdout, str(appliance.status()["live"])):
        assert "spare-" not in text
    assert 'pyconfd_spare_backends{state="serving"} 1' in appliance.get("/metrics")[1]


def test_the_reload_at_leisure_puts_all_in_order_and_no_request_is_lost(appliance: Appliance) -> None:
    appliance.values["apply"]["rename_interval_s"] = 0.5
    serving(appliance)
    with undisturbed(appliance):
        appliance.serve("second")
        appliance.until(lambda: appliance.ask("second") == "second-1", "the new name is served")
        appliance.until(
            lambda: any("spares_in_use" in str(line) for line in appliance.events("generation.applied")), "it reloads"
        )
        appliance.until(lambda: not appliance.status()["live"]["spares"]["serving"], "status says so")
    all_is_well(appliance)
    assert "spare-" not in ask_socket(appliance.haproxy.stats_socket, "show servers state")
    assert servers(appliance) == wanted(appliance, "shop", "second")
