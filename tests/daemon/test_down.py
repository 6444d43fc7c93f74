"""Where HAProxy does not run, everything says DOWN, until it has run for a while."""

import structlog.testing

from pyconfd.model.status import HaproxyState, Phase
from pyconfd.status.document import Freshness, StatusReport, readiness
from pyconfd.status.text import render_text
from tests.daemon.fakes import EPOCH, cluster, serving

CAUSE = "cannot bind 192.0.2.16:80 of fe: the address 192.0.2.16 is not on this host"


def test_a_haproxy_that_does_not_run_is_all_that_counts() -> None:
    bed = serving()
    bed.balancer.state = HaproxyState(up=False, since=EPOCH, cause=CAUSE, remedy="systemctl restart haproxy")
    with structlog.testing.capture_logs() as logged:
        bed.run_for(2.0)
    status = bed.status
    assert status.phase is Phase.DOWN
    assert readiness(status).reason == f"down: haproxy does not run: {CAUSE}"
    assert not readiness(status).good
    report = StatusReport(Freshness.LIVE, status.now, status)
    assert report.exit_code == 1
    first, second, third, *_ = lines = render_text(report).splitlines()
    assert first.startswith("DOWN  for ")
    assert first.endswith(f": haproxy {CAUSE}")
    assert second == "  -> systemctl restart haproxy"
    assert third.startswith("nothing is served; generation 1, applied")
    assert [line for line in lines if CAUSE in line] == [first]
    assert bed.notifier.said[-1].startswith(f"down generation 1: haproxy: {CAUSE}")
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["haproxy.down"]

    bed.balancer.state = HaproxyState(up=True, since=bed.clock.now())
    bed.run_for(2.0)
    assert bed.status.phase is Phase.SERVING
    assert bed.status.problems == ()
    assert bed.notifier.said[-1] == "serving generation 1"


def test_what_fails_meanwhile_stays_below_it() -> None:
    bed = serving()
    bed.balancer.state = HaproxyState(up=False, since=EPOCH, cause=CAUSE, remedy="systemctl restart haproxy")
    bed.templates = {"02-part.tmpl": "frontend fe\n    blance\n"}
    bed.settle()
    assert bed.phase() is Phase.DOWN
    assert CAUSE in bed.status.problems[0]
    assert any("blance" in problem for problem in bed.status.problems)
    bed.balancer.state = HaproxyState(up=True, since=EPOCH)
    bed.run_for(2.0)
    assert bed.phase() is Phase.REJECTED


def test_it_is_shown_while_a_reload_waits_for_haproxy() -> None:
    """A reload of a HAProxy that is not there waits half a minute; another thread answers /readyz meanwhile."""
    bed, seen = serving(), []
    progress = bed.balancer.progress

    def progressed() -> None:
        bed.balancer.state = HaproxyState(up=False, since=EPOCH, cause=CAUSE)
        progress()
        seen.append(bed.status.phase)

    bed.balancer.report_progress(progressed)
    bed.source.show(cluster("192.0.2.11"))
    bed.settle()
    assert seen
    assert set(seen) == {Phase.DOWN}
