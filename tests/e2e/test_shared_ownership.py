"""Two load balancers of one cluster remember the same: a new one serves what the other gave, not the oldest claim."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.expect import serving
from tests.world.appliance import Appliance
from tests.world.clients import ask
from tests.world.haproxy import BINARY
from tests.world.objects import EndpointSpec, PortSpec

pytestmark = [pytest.mark.haproxy]

HOST = "app.example.com"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Appliance, Appliance]]:
    """Two load balancers, nothing started; the second one shares the cluster of the first, and reads from a server of
    its own."""
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    folders = [tmp_path / each for each in "ab"]
    for folder in folders:
        folder.mkdir()
    with Appliance(folders[0]) as one, Appliance(folders[1], cluster=one.cluster) as other:
        for each in (one, other):
            each.values["log"] = {"format": "json"}
            each.values["apply"] = {"retry_min_s": 0.2, "retry_max_s": 1.0}
        yield one, other


def claim(appliance: Appliance, namespace: str, created: str, *pods: str) -> None:
    """Create a Service of this age that asks for the host; its pods have addresses that both balancers reach."""
    cluster = appliance.cluster
    cluster.add_service(
        namespace,
        "web",
        ports=[PortSpec("web", 80, appliance.pods.port)],
        annotations={"domain": HOST, "proto": "http"},
    )
    made = cluster.get("services", namespace, "web")
    cluster.delete("services", namespace, "web")
    made["metadata"] = {key: made["metadata"][key] for key in ("name", "namespace", "annotations")}
    cluster.create("services", {**made, "metadata": {**made["metadata"], "creationTimestamp": created}})
    members = [EndpointSpec(each, pod=f"{namespace}-{n}") for n, each in enumerate(pods)]
    for member in members:
        appliance.pods.add(member.pod, member.address)
    cluster.set_endpoints(namespace, "web", members)


def test_a_node_with_an_empty_disk_serves_what_the_other_gave(pair: tuple[Appliance, Appliance]) -> None:
    one, other = pair
    claim(one, "prod", "2026-03-01T00:00:00Z", "127.18.90.1")
    serving(one)
    one.until(lambda: ask(one.http, HOST) == "prod-0", "the first claim is served")
    one.servers[0].wait_for_request("configmaps", "create", count=2)
    claim(one, "evil", "2026-01-01T00:00:00Z", "127.18.91.1")
    one.until(lambda: one.status().get("refused"), "the older claim that came later is refused")
    assert ask(one.http, HOST) == "prod-0"

    other.start()
    other.until(other.settled, "the new node has applied its first configuration")
    other.until(lambda: other.status().get("refused"), "the new node has both claims")
    assert ask(other.http, HOST) == "prod-0"
    assert "evil_web" not in other.haproxy.conf.read_text()

    for each in pair:
        each.servers[0].refuse()
    other.stop()
    other.spawn()
    other.until(lambda: other.phase not in {"", "starting"}, "it has decided what runs without the API")
    assert {ask(each.http, HOST) for each in pair} == {"prod-0"}, "each goes on with its copy"
    for each in pair:
        each.servers[0].listen()
    other.until(other.settled, "the API is back")
    assert {ask(each.http, HOST) for each in pair} == {"prod-0"}
