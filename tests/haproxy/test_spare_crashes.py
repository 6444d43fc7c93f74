"""pyconfd is killed between any two effects of a change that fills spares, or empties a backend."""

import pytest

from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from tests.haproxy.bench import Bench
from tests.haproxy.crashing import KillPoints, shards
from tests.haproxy.test_crashes import crashing_child, loads
from tests.haproxy.test_spares_live import Spared, spared_hosts
from tests.world.haproxy import wait_until

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(600)]

HOSTS = "abcde"
SHARDS = shards(2)


def serve(balancer: Balancer, desired: Rendering) -> None:
    """Do what the daemon does with ``desired``."""
    plan = balancer.plan(desired)
    if isinstance(plan, RuntimeUpdate):
        done = balancer.change(desired, plan, curdate="", now=2.0)
        plan = done if isinstance(done, Reload) else Noop()
    if isinstance(plan, Reload):
        balancer.apply(desired, plan, curdate="", now=2.0)


def wrong(spared: Spared, hosts: str) -> list[str]:
    """Return what clients are answered otherwise than the cluster asks for."""
    found = []
    for host in HOSTS:
        answer = spared.get(host)
        if not (answer == f"200 {host}" if host in hosts else answer.startswith("503")):
            found.append(f"{host}: {answer}")
    return found


@pytest.mark.parametrize("shard", SHARDS)
def test_whenever_it_is_killed_each_host_is_served_by_its_own_servers(bench: Bench, shard: int) -> None:
    wanted = ["abc", "acde"]
    # The backend of the first host is from other defaults at each turn.
    kinds = [{"c": "other"}, {"a": "other", "c": "other"}]
    with spared_hosts(bench, *HOSTS, spares=4) as spared, crashing_child(bench) as apply:
        spared.kinds = kinds[0]
        spared.begin(*wanted[0])
        spared.balancer.close()
        at = 0
        points = KillPoints(shard, SHARDS)
        for point in points:
            spared.kinds = kinds[1 - at]
            outcome = apply(spared.rendering(*wanted[1 - at]), point)
            assert loads(bench.conf), f"killed at {point}"
            # Half a change may be there; none is served by what it did not ask for.
            both = set(wanted[0]) | set(wanted[1])
            answers = {host: spared.get(host) for host in both}
            assert all(said == f"200 {host}" or said.startswith("503") for host, said in answers.items()), answers
            at = 1 - at
            balancer = bench.balancer()
            assert balancer.startup() == ()
            serve(balancer, spared.rendering(*wanted[at]))
            for _ in range(3):
                balancer.sync()
                serve(balancer, spared.rendering(*wanted[at]))
            wait_until(lambda: not balancer.file_behind, "the file is level")  # noqa: B023 - called at once
            assert balancer.refresh() == Noop(verified=True), f"killed at {point}"
            assert wrong(spared, wanted[at]) == [], f"killed at {point}"
            assert spared.lines_of("a") == kinds[at].get("a", "plain"), f"killed at {point}"
            balancer.close()
            points.record(outcome)
    assert points.died > 6, "the kill points were not reached"
