"""What balancers tell each other of themselves, at a fake API server."""

from collections.abc import Iterator

import msgspec
import pytest

from pyconfd.model.nodes import DIFFERS_S, SILENT_S, NodeState, NodeSummary
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.node_board import EVERY_S, FORGET_S, MOST_NODES, NodeBoard, summary_of
from pyconfd.sources.kubernetes.resources import Rights, manifest, nodes_name
from tests.sources.kubernetes.clocks import StandingClock
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.faults import Fault, FaultKind
from tests.world.rbac import Rules

NAME = nodes_name("pyconfd")
SERVED = NodeSummary("0.2.0", "good", "Everybody is served", "abc", 7, 1, 1, 3, 0, True)


class Node:
    """One balancer; ``summary`` is what it says."""

    def __init__(
        self, server: ApiServer, clock: StandingClock, name: str, summary: NodeSummary | None = SERVED
    ) -> None:
        self.summary = summary
        settings = KubernetesSettings(api_servers=(server.url,))
        self.board = NodeBoard(settings, lease=("pyconfd", "pyconfd"), identity=name, clock=clock)
        self.board._summarise = lambda: self.summary

    def others(self) -> dict[str, NodeState]:
        return {each.name: each for each in self.board.states() if not each.is_own}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_namespace("pyconfd")
    return made


@pytest.fixture
def server(cluster: Cluster) -> Iterator[ApiServer]:
    with ApiServer(cluster) as made:
        yield made


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


def stored(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.get("configmaps", "pyconfd", NAME)["data"]
    return found


def put(cluster: Cluster, **data: str) -> None:
    found = cluster.get("configmaps", "pyconfd", NAME)
    cluster.put("configmaps", {**found, "data": {**found["data"], **data}})


def both(server: ApiServer, clock: StandingClock) -> tuple[Node, Node]:
    one, two = Node(server, clock, "lb1"), Node(server, clock, "lb2")
    for each in (one, two, one):
        assert each.board.step() == EVERY_S
    return one, two


def test_each_hears_of_the_other(server: ApiServer, clock: StandingClock) -> None:
    one, two = both(server, clock)
    assert [(each.name, each.is_own) for each in one.board.states()] == [("lb1", True), ("lb2", False)]
    assert one.others()["lb2"].summary.sentence == SERVED.sentence
    assert not one.others()["lb2"].differences
    assert (one.board.problems(), two.board.problems()) == ((), ())


def test_nothing_is_said_before_there_is_something(server: ApiServer, clock: StandingClock) -> None:
    node = Node(server, clock, "lb1", None)
    assert node.board.step() == EVERY_S
    assert not node.board.states()
    assert not server.seen("configmaps", "create")


def test_a_node_that_says_no_more_is_silent_by_the_clock_of_who_listens(
    server: ApiServer, clock: StandingClock
) -> None:
    one, two = both(server, clock)
    two.summary = msgspec.structs.replace(SERVED, applied_at=9_999_999_999)  # its clock is centuries ahead
    two.board.step()
    one.board.step()
    assert not one.others()["lb2"].is_silent
    for _ in range(4):
        clock.now_s += SILENT_S / 4
        one.board.step()
    assert one.others()["lb2"].is_silent
    two.board.step()
    one.board.step()
    assert not one.others()["lb2"].is_silent


def test_what_differs_for_a_minute_is_named(server: ApiServer, clock: StandingClock) -> None:
    one, two = both(server, clock)
    two.summary = msgspec.structs.replace(SERVED, version="0.1.9", hosts=2, fragments="abd", refused=4)
    two.board.step()
    one.board.step()
    assert not one.others()["lb2"].differences
    clock.now_s += DIFFERS_S
    two.board.step()
    one.board.step()
    words = " ".join(one.others()["lb2"].differences)
    assert all(each in words for each in ("0.1.9", "other fragments", "2 names", "4 objects")), words
    two.summary = SERVED
    two.board.step()
    one.board.step()
    assert not one.others()["lb2"].differences


def test_a_difference_that_comes_and_goes_is_none(server: ApiServer, clock: StandingClock) -> None:
    one, two = both(server, clock)
    for hosts in (2, 3, 2, 3, 2):
        two.summary = msgspec.structs.replace(SERVED, hosts=hosts)
        two.board.step()
        one.board.step()
        clock.now_s += DIFFERS_S / 2
        assert not one.others()["lb2"].differences


def test_who_is_gone_for_a_day_is_removed(server: ApiServer, clock: StandingClock, cluster: Cluster) -> None:
    one, _ = both(server, clock)
    clock.now_s += FORGET_S
    one.board.step()
    one.board.step()
    assert set(stored(cluster)) == {"lb1"}
    assert not one.others()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version":1}', '{"version":"' + "x" * 3000 + '"}', '{"level":"good","sentence":"s"}', "\x00"],
)
def test_what_strangers_write_is_nobody(server: ApiServer, clock: StandingClock, cluster: Cluster, text: str) -> None:
    one, _ = both(server, clock)
    put(cluster, evil=text)
    assert one.board.step() == EVERY_S
    assert set(one.others()) == {"lb2"}
    assert "evil" not in stored(cluster), "what says nothing is swept"
    assert summary_of(text) is None


def test_fields_of_a_newer_version_are_left_alone_and_names_are_text(
    server: ApiServer, clock: StandingClock, cluster: Cluster
) -> None:
    one, _ = both(server, clock)
    newer = {"version": "9.0", "level": "good", "sentence": "a\x1b[31m\nb", "newer": {"x": [1]}}
    put(cluster, lb3=msgspec.json.encode(newer).decode())
    one.board.step()
    assert one.others()["lb3"].summary.version == "9.0"
    assert "\x1b" not in one.others()["lb3"].summary.sentence
    assert "\n" not in one.others()["lb3"].summary.sentence


def test_no_more_than_so_many_are_read(server: ApiServer, clock: StandingClock, cluster: Cluster) -> None:
    one, _ = both(server, clock)
    text = msgspec.json.encode(SERVED).decode()
    put(cluster, **{f"n{number:03}": text for number in range(100)})
    one.board.step()
    assert len(one.board.states()) == MOST_NODES
    assert len(stored(cluster)) == MOST_NODES


def test_two_that_write_at_once_try_again(server: ApiServer, clock: StandingClock) -> None:
    one, _ = both(server, clock)
    server.faults.add(Fault(FaultKind.STATUS, "configmaps", "update", code=409, times=1))
    assert one.board.step() < 1.0
    assert one.board.step() == EVERY_S
    assert not one.board.problems()


def test_without_the_right_it_says_so_and_what_to_do(server: ApiServer, clock: StandingClock) -> None:
    node = Node(server, clock, "lb1")
    server.faults.add(Fault(FaultKind.STATUS, "configmaps", "get", code=403))
    for _ in range(3):
        assert node.board.step() == EVERY_S
    (problem,) = node.board.problems()
    assert (NAME in problem.place, "pyconfd rbac" in problem.remedy) == (True, True)
    assert [each.is_own for each in node.board.states()] == [True]


def test_an_answer_that_cannot_be_read_is_a_problem(server: ApiServer, clock: StandingClock) -> None:
    node = Node(server, clock, "lb1")
    server.faults.add(Fault(FaultKind.HTML, "configmaps", "get"))
    for _ in range(2):
        assert node.board.step() == EVERY_S
    assert node.board.problems()


def test_the_store_away_is_heard_from_nobody(server: ApiServer, clock: StandingClock) -> None:
    one, _ = both(server, clock)
    server.faults.add(Fault(FaultKind.STATUS, "configmaps", code=503))
    clock.now_s += SILENT_S
    one.board.step()
    assert one.others()["lb2"].is_silent
    assert not one.board.problems(), "who reads the cluster says that no API server answers"


def test_the_rights_are_enough(server: ApiServer, clock: StandingClock) -> None:
    server.rules = Rules(manifest(Rights(lease=("pyconfd", "pyconfd"), owners=True)))
    one, two = both(server, clock)
    assert (one.board.problems(), two.board.problems()) == ((), ())
    assert set(one.others()) == {"lb2"}
