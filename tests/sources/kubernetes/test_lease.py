"""The election by a Lease: what each does about it, and that one of several leads whatever fails."""

import random
from collections.abc import Callable

import pytest

from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.lease import (
    LEASE_S,
    RENEW_LIMIT_S,
    RENEW_S,
    Election,
    LeaseMove,
    LeaseObservation,
    LeaseRecord,
    LeaseStep,
    claimed,
    identity_of,
    next_step,
    released,
)
from pyconfd.sources.kubernetes.writing import Writer
from tests.sources.kubernetes.clocks import StandingClock
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.faults import Fault, FaultKind
from tests.world.rbac import Rules

HELD = LeaseRecord("lb1", LEASE_S, "2026-01-01T00:00:00.000000Z", version="7")
NOBODY = LeaseRecord()


@pytest.mark.parametrize(
    ("record", "identity", "seen_for", "expected"),
    [
        pytest.param(HELD, "lb1", 0.0, LeaseStep(LeaseMove.RENEW), id="ours"),
        pytest.param(HELD, "lb1", 100.0, LeaseStep(LeaseMove.RENEW), id="ours, though it ended"),
        pytest.param(NOBODY, "lb2", 0.0, LeaseStep(LeaseMove.TAKE), id="nobody's"),
        pytest.param(released(HELD, ""), "lb2", 0.0, LeaseStep(LeaseMove.TAKE), id="released"),
        pytest.param(HELD, "lb2", 0.0, LeaseStep(LeaseMove.WAIT, 100.0 + RENEW_S), id="just renewed"),
        pytest.param(HELD, "lb2", LEASE_S - 1.0, LeaseStep(LeaseMove.WAIT, 101.0), id="ends before the next look"),
        pytest.param(HELD, "lb2", float(LEASE_S), LeaseStep(LeaseMove.TAKE), id="ended"),
        pytest.param(
            HELD._replace(duration_s=60), "lb2", 30.0, LeaseStep(LeaseMove.WAIT, 102.0), id="its own duration"
        ),
    ],
)
def test_a_lease_is_taken_when_it_ended_here(
    record: LeaseRecord, identity: str, seen_for: float, expected: LeaseStep
) -> None:
    assert next_step(LeaseObservation(record, 100.0 - seen_for, 100.0), identity, 100.0) == expected


@pytest.mark.parametrize(
    ("record", "read_after", "since"),
    [
        pytest.param(HELD, RENEW_S, 0.0, id="unchanged"),
        pytest.param(HELD._replace(renewed="other", version="8"), RENEW_S, RENEW_S, id="renewed, by whatever clock"),
        pytest.param(HELD, RENEW_LIMIT_S + 1, RENEW_LIMIT_S + 1, id="nobody could read or renew it"),
    ],
)
def test_only_what_was_observed_counts(record: LeaseRecord, read_after: float, since: float) -> None:
    assert LeaseObservation(HELD, 0.0, 0.0).followed_by(record, read_after).since == since


def test_a_holder_that_changes_is_counted() -> None:
    assert claimed(NOBODY, "lb1", "now").transitions == 0
    assert claimed(HELD, "lb2", "now") == LeaseRecord("lb2", LEASE_S, "now", "now", 1, "7")
    assert claimed(HELD, "lb1", "now") == HELD._replace(renewed="now")


def test_an_identity_outlives_a_restart_and_is_one_balancers() -> None:
    assert identity_of("/var/lib/pyconfd", "m1") == identity_of("/var/lib/pyconfd", "m1")
    assert len({identity_of(path, machine) for path in ("/a", "/b") for machine in ("m1", "m2")}) == 4


class Balancer:
    """One that takes part, driven by a virtual clock; ``servers`` are what it can reach."""

    def __init__(self, clock: StandingClock, name: str, *servers: ApiServer) -> None:
        settings = KubernetesSettings(api_servers=tuple(server.url for server in servers))
        self.writer = Writer(
            settings, answer_s=4.0, clock=clock, credentials=None, place="status", event="lease.failed", remedy="rbac"
        )
        self.election = Election(
            self.writer, lambda: None, namespace="pyconfd", name="pyconfd", identity=name, clock=clock
        )
        self.election.want(wanted=True)
        self.due_at, self.alive = 0.0, True

    def turn(self, now: float) -> None:
        if self.alive and now >= self.due_at:
            self.due_at = self.election.run_round()


class Place:
    """Balancers at one cluster; time passes in steps of a tenth of a second, and two never lead at once."""

    def __init__(self, clock: StandingClock, balancers: list[Balancer]) -> None:
        self.clock, self.balancers = clock, balancers
        self.led: list[str] = []

    def leader(self) -> str:
        leaders = [each for each in self.balancers if each.alive and each.election.leads]
        assert len(leaders) <= 1
        return leaders[0].election._identity if leaders else ""

    def run(self, for_s: float, until: Callable[[], bool] = lambda: False, step_s: float = 0.1) -> float:
        """Advance the time; return how much did until the condition was true."""
        passed = 0.0
        while passed < for_s and not until():
            for each in self.balancers:
                each.turn(self.clock.now_s)
            leader = self.leader()
            if leader and self.led[-1:] != [leader]:
                self.led.append(leader)
            self.clock.now_s += step_s
            passed += step_s
        return passed


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_namespace("pyconfd")
    return made


def place(*servers: ApiServer) -> Place:
    clock = StandingClock()
    return Place(clock, [Balancer(clock, name, *servers) for name in ("lb1", "lb2")])


def requests(server: ApiServer) -> int:
    return len(server.seen("leases"))


def test_takeover_within_fifteen_seconds_of_a_kill(cluster: Cluster) -> None:
    with ApiServer(cluster) as server:
        for part in range(20):  # whatever part of a round the holder is killed in
            here = place(server)
            here.run(3.0)
            killed = next(each for each in here.balancers if each.election.leads)
            here.run(part / 10)
            killed.alive = False
            assert here.run(60.0, lambda here=here: bool(here.leader())) < 15.0  # type: ignore[misc]
            cluster.delete("leases", "pyconfd", "pyconfd")


def test_a_clean_stop_hands_over_at_once(cluster: Cluster) -> None:
    with ApiServer(cluster) as server:
        here = place(server)
        here.run(3.0)
        first = next(each for each in here.balancers if each.election.leads)
        first.election.want(wanted=False)
        first.due_at = 0.0
        here.run(RENEW_S + 0.2)
        assert here.led == ["lb1", "lb2"]


def test_a_holder_keeps_it_for_hours(cluster: Cluster) -> None:
    with ApiServer(cluster) as server:
        here = place(server)
        here.run(600.0)
        assert here.led == ["lb1"]
        assert requests(server) < 2 * 600 / RENEW_S + 10


def test_api_servers_cut_for_half_an_hour(cluster: Cluster) -> None:
    with ApiServer(cluster) as one, ApiServer(cluster) as two:
        here = place(one, two)
        here.run(10.0)
        for server in (one, two):
            server.refuse()
        here.run(RENEW_LIMIT_S + 0.2)
        assert here.leader() == ""  # what could not be renewed is not relied on
        here.run(1800.0, step_s=1.0)
        for server in (one, two):
            server.listen()
        assert here.run(60.0, lambda: bool(here.leader())) < 2 * RENEW_S
        here.run(60.0)
        assert here.led == ["lb1"]


@pytest.mark.parametrize("seed", range(5))
def test_never_two_whatever_fails(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    with ApiServer(cluster) as one, ApiServer(cluster) as two:
        clock = StandingClock()
        here = Place(clock, [Balancer(clock, "lb1", one), Balancer(clock, "lb2", two)])
        for _ in range(40):
            for server, each in zip((one, two), here.balancers, strict=True):
                each.alive = chance.random() < 0.8
                server.faults.clear()
                match chance.randrange(5):
                    case 0:
                        server.refuse()
                    case 1:  # a write that takes effect, and is not answered
                        server.faults.add(Fault(FaultKind.HALF_BODY, times=chance.randrange(5)))
                        server.listen()
                    case _:
                        server.listen()
            here.run(chance.uniform(0.1, 20.0), step_s=0.5)  # Place.leader asserts that one leads at most
        for server in (one, two):
            server.faults.clear()
            server.listen()
        for each in here.balancers:
            each.alive = True
        here.run(20.0)
        assert here.leader()


def test_without_the_right_nobody_leads_and_the_remedy_is_named(cluster: Cluster) -> None:
    with ApiServer(cluster) as server:
        server.rules = Rules("")
        here = place(server)
        here.run(5.0)
        (problem,) = here.balancers[0].writer.problems()
        assert (here.leader(), problem.remedy) == ("", "rbac")
        server.rules = None
        here.run(5.0)
        assert (here.led, here.balancers[0].writer.problems()) == (["lb1"], ())


@pytest.mark.parametrize("verb", ["get", "update"])
def test_a_first_403_where_the_lease_was_held_is_no_problem(cluster: Cluster, verb: str) -> None:
    with ApiServer(cluster) as server:
        here = place(server)
        here.run(5.0)
        holder, other = here.balancers
        server.faults.add(Fault(FaultKind.STATUS, "leases", verb, code=403, times=1))
        here.run(20.0)
        assert (here.led, holder.writer.problems(), other.writer.problems()) == (["lb1"], (), ())
        server.faults.add(Fault(FaultKind.STATUS, "leases", verb, code=403))
        here.run(20.0)
        assert [each for each in here.balancers for problem in each.writer.problems() if problem.remedy == "rbac"]


def test_who_has_nothing_to_write_asks_for_nothing(cluster: Cluster) -> None:
    with ApiServer(cluster) as server:
        here = place(server)
        for each in here.balancers:
            each.election.want(wanted=False)
        here.run(60.0)
        assert requests(server) == 0
