"""Rights that are missing: what goes on without them, what waits, and what is said."""

import pytest

from pyconfd.model.context import RefusalReason
from pyconfd.model.snapshot import Key, Named, Resource
from pyconfd.model.status import SourceHealth
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.resources import right_to_read
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.sources.kubernetes.clocks import PatientClock
from tests.sources.kubernetes.conftest import ALL, Start, addresses, ended, eventually, problem_of, shop, synced
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster

WITH_SECRETS = (*ALL, Resource.SECRETS)
CERT = Key("tls", "cert")


@pytest.fixture
def secret(cluster: Cluster) -> None:
    cluster.add_namespace("tls")
    cluster.put("secrets", {"metadata": {"name": "cert", "namespace": "tls"}, "type": "kubernetes.io/tls"})


def _problems(source: KubernetesSource) -> dict[str, str]:
    return {problem.place: f"{problem.message} -> {problem.remedy}" for problem in source.health().problems}


@pytest.mark.usefixtures("secret")
@pytest.mark.parametrize(
    ("resource", "place", "namespace"),
    [("secrets", "secrets of namespace tls", "tls"), ("nodes", "nodes", ""), ("endpoints", "endpoints", "")],
)
def test_a_denied_resource_stops_nothing_else(
    resource: str, place: str, namespace: str, cluster: Cluster, server: ApiServer, start: Start
) -> None:
    server.faults.deny(resource)
    source = start(server.url, resources=WITH_SECRETS, secret_namespaces=("tls",))
    synced(source)
    shop(cluster, 7)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.7"})

    scope = Named(Resource(resource), namespace, "")
    assert source.snapshot().denied == (scope,)  # type: ignore[union-attr]
    (refusal,) = source.refusals()
    assert (refusal.ref.namespace, refusal.ref.name, refusal.reason) == (namespace, "*", RefusalReason.FORBIDDEN)
    assert list(_problems(source)) == [place]
    assert "ResolvedRefs=False: forbidden" in _problems(source)[place]
    assert right_to_read(scope) in _problems(source)[place]
    assert source.health().synced
    assert source.health().last_sync_at > 0

    server.faults.clear()
    eventually(lambda: source.snapshot().denied == ())  # type: ignore[union-attr]
    assert getattr(source.snapshot(), resource)
    assert (source.refusals(), source.health().problems) == ((), ())


@pytest.mark.usefixtures("secret")
def test_a_right_that_goes_keeps_what_was_known(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url, resources=WITH_SECRETS, secret_namespaces=("tls",))
    synced(source)
    server.faults.deny("secrets")
    source.relist()
    eventually(lambda: _problems(source))
    assert "what was read before stays as it is" in _problems(source)["secrets of namespace tls"]
    shop(cluster, 7)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.7"})
    snapshot = source.snapshot()
    assert snapshot is not None
    assert list(snapshot.secrets) == [CERT]
    assert snapshot.denied == ()
    eventually(source.relisted)
    server.faults.clear()
    eventually(lambda: not source.health().problems)


@pytest.mark.parametrize("resource", ["services", "endpointslices"])
def test_without_an_essential_right_nothing_is_followed(resource: str, server: ApiServer, start: Start) -> None:
    server.faults.deny(resource)
    source = start(server.url)
    eventually(lambda: _problems(source))
    assert "nothing of the cluster can be followed" in _problems(source)[resource]
    assert source.snapshot() is None
    assert source.needs_operator()


def test_a_denied_resource_that_fails_otherwise_later_is_still_denied(server: ApiServer, start: Start) -> None:
    server.faults.deny("nodes")
    source = start(server.url)
    synced(source)
    server.faults.clear()
    server.faults.answer(500, "nodes")
    count = len(server.seen("nodes"))
    server.wait_for_request("nodes", "list", count=count + 2)
    assert source.snapshot() is not None


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_first_403_where_all_was_allowed_waits_for_a_second_one(
    verb: str, server: ApiServer, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """An API server that has just started does not know all Roles yet."""
    source = start(server.url, resources=(Resource.SERVICES, Resource.NODES))
    synced(source)
    server.wait_for_watches("nodes")
    before = source.refusals()
    for times in (1, 1):
        count = len(server.seen("nodes", "watch"))
        server.faults.answer(403, "nodes", verb, times=times)
        if verb == "list":
            source.relist()
        else:
            server.cut_connections()
        eventually(lambda count=count: len(server.seen("nodes", "watch")) > count + (verb == "watch"))  # type: ignore[misc]
        server.wait_for_watches("nodes")
        assert (source.health().problems, source.refusals(), problem_of(source, Resource.NODES)) == ((), before, "")
    assert "resource.failed" not in capsys.readouterr().out
    server.faults.deny("nodes", verb)
    source.relist()
    server.cut_connections()
    eventually(lambda: "HTTP 403" in problem_of(source, Resource.NODES))
    server.faults.clear()
    eventually(lambda: not problem_of(source, Resource.NODES))
    ended(source)


def test_a_403_at_the_start_is_believed_at_once(server: ApiServer) -> None:
    server.faults.deny("nodes")
    clock = PatientClock("nobody")
    source = KubernetesSource(KubernetesSettings(api_servers=(server.url,)), ALL, clock=clock)
    source.start(lambda: None)
    eventually(lambda: clock.waiting == {"reflector-nodes"})
    assert "forbidden" in _problems(source)["nodes"]
    ended(source)


def test_401_for_everything_is_one_problem(server: ApiServer, start: Start) -> None:
    server.faults.answer(401)
    source = start(server.url)
    eventually(lambda: source.health().problems)
    (problem,) = source.health().problems
    assert problem.place == "no token or client certificate"
    assert f"not accepted by {server.url} (HTTP 401: Unauthorized)" in problem.message
    server.faults.clear()
    synced(source)
    assert source.health().problems == SourceHealth().problems
    ended(source)
