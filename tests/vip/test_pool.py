"""A Service of type LoadBalancer on a floating address of the pool, with everything real."""

import os
import signal

import pytest

from tests.vip.bed import Bed, missing, wait_for

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no bed for failover: {missing()}"),
    pytest.mark.timeout(150),
    pytest.mark.skipif("PYCONFD_TEST_FAILOVER" not in os.environ, reason="real failovers: make vip-test"),
]
POOL = "10.77.0.120"


def test_an_address_of_the_pool_fails_over_with_its_service() -> None:
    with Bed(cluster=True, pool=POOL) as bed:
        wait_for("a holder", lambda: len(bed.holders(POOL)) == 1)
        (holder,) = (node for node in bed.nodes if node.holds(POOL))
        (other,) = bed.others(holder)
        conf = [(node.folder / "haproxy.cfg").read_text() for node in bed.nodes]
        # The backup has bound it before it gets it.
        assert all(f"bind {POOL}:80 transparent\n" in text for text in conf)

        with bed.traffic(POOL) as traffic:
            traffic.until_answered(holder.name)
            holder.kill(signal.SIGKILL, "haproxy")
            wait_for("the failover", lambda: bed.holders(POOL) == [other.name])
            traffic.until_answered(other.name)
            assert traffic.finish()["new"]["last"] == other.name
