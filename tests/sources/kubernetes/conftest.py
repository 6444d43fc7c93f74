import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

import pytest

from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.sources.kubernetes.clocks import SPEED, ScaledClock
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.objects import EndpointSpec

PATIENCE_S = 60.0
ALL = (Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.ENDPOINTS, Resource.NODES)


def eventually(condition: Callable[[], object], *, what: Callable[[], object] = lambda: "") -> None:
    """Wait until it is true; what was seen last is in the failure."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"did not come about within {PATIENCE_S} s: {what()}")
        time.sleep(0.005)


def addresses(snapshot: Snapshot | None) -> set[str]:
    """Every endpoint address in the slices."""
    assert snapshot is not None
    return {
        a for each in snapshot.endpointslices.values() for endpoint in each.endpoints or () for a in endpoint.addresses
    }


def synced(source: KubernetesSource) -> None:
    """Wait for the first Snapshot."""
    eventually(lambda: source.snapshot() is not None, what=source.problems)


def problem_of(source: KubernetesSource, resource: Resource) -> str:
    return next(state.problem for state in source.health().resources if state.resource is resource)


def shop(cluster: Cluster, *hosts: int) -> None:
    """Set the pods of the service demo/shop."""
    if not cluster.exists("services", "demo", "shop"):
        cluster.add_service("demo", "shop")
    cluster.set_endpoints("demo", "shop", [EndpointSpec(f"10.0.0.{host}") for host in hosts])


def ended(source: KubernetesSource) -> None:
    """Stop it, and wait for every thread: what one still logs or closes later would be laid at another test's door."""
    threads = list(source._threads)
    source.stop()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [thread.name for thread in threads if thread.is_alive()] == []


class Start(Protocol):
    def __call__(
        self, *urls: str, resources: Collection[Resource] = ALL, speed: float = SPEED, **settings: Any
    ) -> KubernetesSource: ...


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    shop(made, 1, 2)
    made.add_node("node-1", "192.0.2.1")
    return made


@pytest.fixture
def servers(cluster: Cluster) -> Iterator[list[ApiServer]]:
    made = [ApiServer(cluster) for _ in range(3)]
    yield made
    for server in made:
        server.close()


@pytest.fixture
def server(servers: list[ApiServer]) -> ApiServer:
    return servers[0]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[KubernetesSource] = []

    def begin(
        *urls: str, resources: Collection[Resource] = ALL, speed: float = SPEED, **settings: Any
    ) -> KubernetesSource:
        source = KubernetesSource(KubernetesSettings(api_servers=urls, **settings), resources, clock=ScaledClock(speed))
        started.append(source)
        source.start(lambda: None)
        return source

    yield begin
    for source in started:
        ended(source)
