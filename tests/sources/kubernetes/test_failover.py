"""Several API servers, some of them bad in every way a server can be (failure class 4)."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyconfd.model.snapshot import Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.sources.kubernetes.clocks import PatientClock
from tests.sources.kubernetes.conftest import ALL, Start, addresses, ended, eventually, shop, synced
from tests.vip.network import missing
from tests.world.apiserver import ApiServer, tls_context
from tests.world.cluster import Cluster
from tests.world.pki import CertificateAuthority

SPOILED: dict[str, Callable[[ApiServer], object]] = {
    "refuse": lambda server: server.refuse(),
    "hang": lambda server: server.faults.hang(),
    "hang at accept": lambda server: server.hang_at_accept(),
    "500": lambda server: server.faults.answer(500),
    "503": lambda server: server.faults.answer(503, retry_after_s=3600),
    "html": lambda server: server.faults.html(),
    "half body": lambda server: server.faults.half_body(),
}

TROUBLES: tuple[Callable[[ApiServer], object], ...] = (
    lambda server: server.refuse(),
    lambda server: server.listen(),
    lambda server: server.cut_connections(),
    lambda server: server.send_bookmarks(),
    lambda server: server.faults.watch_error(410),
    lambda server: server.faults.half_line(times=1),
    lambda server: server.faults.answer(500, times=2),
    lambda server: server.faults.half_body(times=1),
    lambda server: server.faults.html(times=1),
)


def in_use(source: KubernetesSource) -> str:
    return next(state.url for state in source.health().api_servers if state.in_use)


@pytest.mark.parametrize("spoil", SPOILED)
def test_the_next_server_is_used_when_the_first_is_bad(spoil: str, servers: list[ApiServer], start: Start) -> None:
    SPOILED[spoil](servers[0])
    SPOILED[spoil](servers[1])
    # In real time no probe comes meanwhile: one finds a server well that only its lists are bad at.
    source = start(*(server.url for server in servers), read_timeout_s=1.0, connect_timeout_s=1.0, speed=1)
    synced(source)
    seen = [*source.health().api_servers]

    def settled() -> bool:
        seen[:] = source.health().api_servers
        return seen[2].in_use and seen[2].healthy

    # On a busy machine the good one may need longer than the time limit, now and then.
    eventually(settled)
    first, second, third = seen
    assert (first.healthy, second.healthy) == (False, False)
    assert first.last_error
    assert second.last_error_at > 0
    assert third.last_error == ""
    assert third.last_ok_at > 0


def test_a_server_with_another_ca_is_passed_over(cluster: Cluster, tmp_path: Path, start: Start) -> None:
    good, bad = CertificateAuthority(tmp_path / "good", "good"), CertificateAuthority(tmp_path / "bad", "bad")
    with (
        ApiServer(cluster, tls=tls_context(bad.server())) as wrong,
        ApiServer(cluster, tls=tls_context(good.server("other", hosts=["elsewhere.test"]))) as misnamed,
        ApiServer(cluster, tls=tls_context(good.server())) as right,
    ):
        source = start(wrong.url, misnamed.url, right.url, ssl_ca=str(good.cert))
        synced(source)
        assert in_use(source) == right.url
        first, second, _ = source.health().api_servers
        assert "certificate verify failed" in first.last_error
        assert "ssl_ca" in first.last_error
        assert "IP address mismatch" in second.last_error
        ended(source)


def test_a_server_lost_while_watching_loses_nothing(cluster: Cluster, servers: list[ApiServer], start: Start) -> None:
    source = start(*(server.url for server in servers))
    synced(source)
    servers[0].wait_for_watches("services", "endpointslices", "endpoints", "nodes")
    before = source.snapshot()
    servers[1].faults.hold("endpointslices", "list")
    servers[0].refuse()
    cluster.add_service("demo", "new")
    shop(cluster, 3)
    servers[1].wait_for_request("endpointslices", "list")
    assert addresses(source.snapshot()) == addresses(before) == {"10.0.0.1", "10.0.0.2"}, "the cache is kept meanwhile"
    servers[1].faults.clear()
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.3"})
    eventually(lambda: len(source.snapshot().services) == 2)  # type: ignore[union-attr]
    assert in_use(source) == servers[1].url
    cluster.delete_service("demo", "new")
    eventually(lambda: len(source.snapshot().services) == 1)  # type: ignore[union-attr]


def test_after_an_outage_all_come_back_with_the_first(server: ApiServer) -> None:
    server.refuse()
    clock = PatientClock("reflector-services")
    source = KubernetesSource(KubernetesSettings(api_servers=(server.url,)), ALL, clock=clock)
    source.start(lambda: None)
    try:
        eventually(lambda: len(clock.waiting) == len(ALL))
        server.listen()
        clock.goes_on.set()
        synced(source)
    finally:
        clock.goes_on.set()
        ended(source)


def test_what_fails_alone_is_not_hurried_by_the_others(cluster: Cluster, server: ApiServer) -> None:
    server.faults.answer(500, resource="nodes", verb="list")
    clock = PatientClock("nobody")
    source = KubernetesSource(KubernetesSettings(api_servers=(server.url,)), ALL, clock=clock)
    source.start(lambda: None)
    try:
        server.wait_for_watches("services")
        eventually(lambda: clock.waiting == {"reflector-nodes"})
        for number in range(5):
            cluster.add_service("demo", f"new-{number}")
        eventually(lambda: source.events_total >= 5)
        assert len(server.seen("nodes", "list")) == 1
    finally:
        ended(source)


def test_a_cut_connection_of_a_server_that_lives_is_no_move(
    cluster: Cluster, servers: list[ApiServer], start: Start
) -> None:
    source = start(*(server.url for server in servers), resources=[Resource.SERVICES])
    synced(source)
    servers[0].wait_for_watches("services")
    servers[0].cut_connections()
    servers[0].wait_for_request("services", "watch", count=2)
    cluster.add_service("demo", "new")
    eventually(lambda: len(source.snapshot().services) == 2)  # type: ignore[union-attr]
    assert in_use(source) == servers[0].url
    assert len(servers[0].seen("services", "list")) == 1


def test_a_lagging_server_does_not_bring_back_the_past_for_good(
    cluster: Cluster, servers: list[ApiServer], start: Start
) -> None:
    servers[1].freeze()
    shop(cluster, 5)
    source = start(*(server.url for server in servers))
    synced(source)
    assert addresses(source.snapshot()) == {"10.0.0.5"}
    servers[0].refuse()
    servers[1].wait_for_request("endpointslices", "list")
    servers[1].thaw()
    shop(cluster, 6)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.6"})


def test_back_to_the_first_server_after_its_health_lasted(
    cluster: Cluster, servers: list[ApiServer], start: Start
) -> None:
    servers[0].refuse()
    source = start(*(server.url for server in servers), failback_s=60)
    synced(source)
    assert in_use(source) == servers[1].url
    servers[0].listen()
    eventually(lambda: in_use(source) == servers[0].url)
    eventually(lambda: servers[0].watches() == 4)
    eventually(lambda: servers[1].watches() == 0)
    shop(cluster, 8)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.8"})


def test_no_server_at_all_keeps_what_was_seen_and_heals(
    cluster: Cluster, servers: list[ApiServer], start: Start
) -> None:
    source = start(*(server.url for server in servers))
    synced(source)
    snapshot, confirmed = source.snapshot(), source.health().last_sync_at
    for server in reversed(servers):  # the one in use is the last: from it nobody gets to one that answers
        server.refuse()
    eventually(lambda: all(state.last_error for state in source.health().api_servers))
    assert source.snapshot() is snapshot
    assert source.health().synced
    assert source.health().last_sync_at == confirmed, "an age that does not grow would be a lie"
    servers[2].listen()
    shop(cluster, 4)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.4"})


def test_failures_of_servers_that_are_all_bad_are_no_storm(servers: list[ApiServer], start: Start) -> None:
    for server in servers:
        server.faults.answer(500, verb="watch")
    source = start(*(server.url for server in servers), resources=[Resource.SERVICES])
    synced(source)
    eventually(lambda: sum(len(server.seen("services", "watch")) for server in servers) >= 9)
    # In this order: what comes meanwhile are watches that are denied. Probes come with time, whatever else is asked.
    lists = sum(len(server.seen("services", "list")) for server in servers)
    watches = sum(len(server.seen("services", "watch")) for server in servers)
    assert lists <= watches + len(servers), "each denied watch costs a list, no more"


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_end_is_the_cluster(
    seed: int, cluster: Cluster, servers: list[ApiServer], start: Start
) -> None:
    chance = random.Random(seed)
    source = start(*(server.url for server in servers), read_timeout_s=5.0, connect_timeout_s=5.0, failback_s=40)
    for _ in range(25):
        chance.choice(TROUBLES)(chance.choice(servers))
        shop(cluster, *chance.sample(range(1, 200), 5))
        assert [state.in_use for state in source.health().api_servers].count(True) == 1
    for server in servers:
        server.faults.clear()
        server.listen()
    shop(cluster, 201)
    eventually(lambda: source.snapshot() is not None and addresses(source.snapshot()) == {"10.0.0.201"})


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6 here")
def test_ipv6(cluster: Cluster, tmp_path: Path, start: Start) -> None:
    authority = CertificateAuthority(tmp_path)
    with ApiServer(cluster, host="::1", tls=tls_context(authority.server())) as server:
        assert server.url.startswith("https://[::1]:")
        source = start(server.url, ssl_ca=str(authority.cert))
        synced(source)
        ended(source)


@pytest.mark.skipif(bool(missing("nft")), reason=missing("nft"))
def test_a_server_that_answers_no_packet_is_left_soon() -> None:
    argv = ["unshare", "-n", sys.executable, "-m", "tests.sources.kubernetes.black_hole"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=180)
    assert float(done.stderr.splitlines()[-1]) < 20.0, done.stdout  # 8 to 9 s on an idle machine
