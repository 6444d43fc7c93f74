"""The record of names that load balancers share, at a fake API server: what each reads, writes and says."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.model.ownership import MOST_SHARDS, documents
from pyconfd.model.reservation import Name, NameRegister, Owner, Reservation
from pyconfd.presets.conflicts import register_after
from pyconfd.presets.host_ownership import SCOPE
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes import ownership_record
from pyconfd.sources.kubernetes.ownership_record import LOOK_EVERY_S, READY_S, SETTLED_S, OwnershipRecord
from pyconfd.sources.kubernetes.resources import Rights, manifest, owners_names
from tests.sources.kubernetes.clocks import StandingClock
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.faults import Fault, FaultKind
from tests.world.rbac import Rules

HOST = "shop.test"
OWNERS = owners_names("pyconfd")[0]


def owner(namespace: str) -> Owner:
    return Owner("Ingress", namespace, "web", "2026-01-01T00:00:00Z")


def given(**hosts: str) -> NameRegister:
    """A register; the keyword is the first label of a host, the value its namespace."""
    return NameRegister.of({SCOPE: {Name("", f"{each}.test"): Reservation(owner(n)) for each, n in hosts.items()}})


class Turn:
    """Says who holds the Lease, as the test does."""

    def __init__(self) -> None:
        self.leads = False
        self.wanted = False

    def is_ours(self, *, wanted: bool, what: str) -> bool:
        self.wanted = wanted
        return self.leads


class Node:
    """One load balancer: its register, its record, and what its loop would do."""

    def __init__(self, server: ApiServer, clock: StandingClock, state_dir: str = "", *, leads: bool = False) -> None:
        self.clock, self.turn, self.notified = clock, Turn(), 0
        self.turn.leads = leads
        settings = KubernetesSettings(api_servers=(server.url,))
        self.record = OwnershipRecord(settings, self.turn, lease=("pyconfd", "pyconfd"), clock=clock)
        self.record._notify = self._note
        self.names = NameRegisterFile(state_dir, 600.0, self.record)

    def _note(self) -> None:
        self.notified += 1

    def gives(self, register: NameRegister) -> None:
        """Make its loop remember this."""
        self.names.at(self.clock.now())
        self.names.keep(register)

    def look(self) -> float:
        """Look once, and let the loop take in what came."""
        pause_s = self.record.step()
        self.names.keep(self.names.at(self.clock.now()).register)
        return pause_s

    def owners(self) -> dict[str, str]:
        known = self.names.at(self.clock.now()).register.reservations
        return {name.name: each.namespace for name, each in known.get(SCOPE, {}).items()}


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


def writes(server: ApiServer) -> int:
    return len(server.seen("configmaps", "create")) + len(server.seen("configmaps", "update"))


def test_a_new_node_knows_what_another_gave_before_it_gives_anything(server: ApiServer, clock: StandingClock) -> None:
    holder, new = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    assert not new.names.is_ready
    assert new.record.step() == LOOK_EVERY_S
    assert new.names.is_ready
    assert new.owners() == {HOST: "prod"}
    assert new.notified
    assert not writes_of_follower(server, holder)


def writes_of_follower(server: ApiServer, holder: Node) -> bool:
    """Return whether more was written than the index and one shard of the holder."""
    return writes(server) != 2


def test_only_the_holder_of_the_lease_writes(server: ApiServer, clock: StandingClock) -> None:
    other = Node(server, clock)
    other.gives(given(shop="prod"))
    other.look()
    assert not writes(server)
    assert other.turn.wanted, "it competes for the Lease, so that somebody writes"
    other.turn.leads = True
    other.look()
    assert writes(server) == 2


def test_one_write_in_ten_seconds_and_none_while_nothing_changes(server: ApiServer, clock: StandingClock) -> None:
    node = Node(server, clock, leads=True)
    for second in range(60):
        node.gives(given(shop="prod", **{f"h{n}": "prod" for n in range(second)}))
        node.look()
        clock.now_s += 1.0
    assert (
        len([each for each in server.seen("configmaps", "update") if each.path.endswith(OWNERS)]) <= 60 / LOOK_EVERY_S
    )
    node.look()
    clock.now_s += LOOK_EVERY_S
    node.look()
    before = writes(server)
    for _ in range(10):
        clock.now_s += LOOK_EVERY_S
        node.look()
    assert writes(server) == before


def test_who_looks_reads_only_what_changed(server: ApiServer, clock: StandingClock) -> None:
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    other.look()
    before = len(server.seen("configmaps", "get"))
    for _ in range(5):
        clock.now_s += LOOK_EVERY_S
        other.look()
    assert len(server.seen("configmaps", "get")) == before + 5


def test_what_a_namespace_gave_up_does_not_come_back_to_it(server: ApiServer, clock: StandingClock) -> None:
    """Both see it at the same time; the record follows, and traffic must not go back and forth until then."""
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    other.look()
    clock.now_s += LOOK_EVERY_S
    other.gives(given(shop="next"))
    other.look()
    assert other.owners() == {HOST: "next"}, "the record is older than what the node knows"
    holder.gives(given(shop="next"))
    holder.look()
    clock.now_s += LOOK_EVERY_S
    other.look()
    assert (other.owners(), other.record.notices()) == ({HOST: "next"}, ())


def test_what_two_nodes_gave_differently_is_settled_by_the_holder(server: ApiServer, clock: StandingClock) -> None:
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    other.gives(given(shop="late", own="late"))
    other.look()
    holder.gives(given(shop="prod"))
    holder.look()
    clock.now_s += LOOK_EVERY_S
    other.look()
    assert other.owners() == {HOST: "prod", "own.test": "late"}
    (notice,) = other.record.notices()
    assert (str(notice.ref), notice.reason, notice.is_local) == ("Ingress late/web", "OwnershipSettled", True)
    assert "prod" in notice.message
    assert HOST in notice.message


def test_a_difference_that_lasts_is_settled_though_the_record_is_the_same(
    server: ApiServer, clock: StandingClock
) -> None:
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    other.look()
    other.gives(given(shop="late"))
    other.look()
    clock.now_s += SETTLED_S - 1
    other.look()
    assert other.owners() == {HOST: "late"}
    clock.now_s += 1
    other.look()
    assert other.owners() == {HOST: "prod"}


def test_two_that_disagree_are_a_problem_that_names_both(server: ApiServer, clock: StandingClock) -> None:
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    other.look()
    for _ in range(4):  # whatever the record says, this one's own rules say otherwise again
        other.gives(given(shop="late"))
        other.record.step()
        clock.now_s += LOOK_EVERY_S
    other.gives(given(shop="late"))
    other.record.step()
    (problem,) = other.record.problems()
    assert problem.message == f"{HOST} is Ingress late/web's here, and namespace prod's for the other load balancers"
    assert len(other.record.notices()) == 1, "it is said once, and not at each look"
    other.gives(given(shop="prod"))
    other.record.step()
    assert other.record.problems() == ()


def test_a_new_holder_takes_in_the_record_before_it_writes(server: ApiServer, clock: StandingClock) -> None:
    former, new = Node(server, clock, leads=True), Node(server, clock)
    new.look()
    new.gives(given(shop="late", own="late"))
    former.gives(given(shop="prod"))
    former.look()
    former.turn.leads, new.turn.leads = False, True
    new.record.step()
    assert writes(server) == 2, "what it just read is not taken in yet"
    new.names.keep(new.names.at(clock.now()).register)
    new.record.step()
    third = Node(server, clock)
    third.look()
    assert third.owners() == {HOST: "prod", "own.test": "late"}


def test_what_is_kept_for_a_deleted_object_is_kept_by_a_new_node(server: ApiServer, clock: StandingClock) -> None:
    holder, new = Node(server, clock, leads=True), Node(server, clock)
    kept = register_after(given(shop="prod"), {SCOPE: {}}, is_released=lambda *_: False, now=clock.now(), keep_s=600)
    holder.gives(kept)
    holder.look()
    new.look()
    assert new.names.at(clock.now()).register.waiting == {(SCOPE, Name("", HOST))}


def test_with_the_api_away_each_goes_on_with_its_copy(server: ApiServer, clock: StandingClock, tmp_path: Path) -> None:
    holder = Node(server, clock, leads=True)
    holder.gives(given(shop="prod"))
    holder.look()
    node = Node(server, clock, str(tmp_path))
    node.look()
    node.names.flush()
    server.refuse()
    again = Node(server, clock, str(tmp_path))
    assert again.record.step() < READY_S
    assert not again.names.is_ready, "the API may come any moment"
    clock.now_s += READY_S
    again.record.step()
    assert again.names.is_ready
    assert again.notified == 1, "or its loop would sleep on"
    assert again.owners() == {HOST: "prod"}
    holder.gives(given(shop="prod", more="prod"))
    holder.look()
    assert holder.record.problems() == (), "the reads of the cluster say it"
    server.listen()
    for _ in range(10):
        clock.now_s += LOOK_EVERY_S
        holder.record._writer.tend()
        again.record._writer.tend()
        holder.look()
        again.look()
    assert again.owners() == {HOST: "prod", "more.test": "prod"}
    assert (holder.record.problems(), again.record.problems()) == ((), ())


def test_without_the_right_each_keeps_its_own_and_says_so(server: ApiServer, clock: StandingClock) -> None:
    server.rules = Rules(manifest(Rights()))
    node = Node(server, clock, leads=True)
    node.gives(given(shop="prod"))
    node.look()
    assert node.names.is_ready
    assert node.owners() == {HOST: "prod"}
    (problem,) = node.record.problems()
    assert "pyconfd rbac" in problem.remedy
    server.rules = Rules(manifest(Rights(lease=("pyconfd", "pyconfd"), owners=True)))
    clock.now_s += LOOK_EVERY_S
    node.look()
    assert node.record.problems() == ()
    assert writes(server) == 2


@pytest.mark.parametrize("verb", ["get", "update"])
def test_a_first_403_where_the_record_was_written_is_no_problem(
    server: ApiServer, clock: StandingClock, verb: str
) -> None:
    node = Node(server, clock, leads=True)

    def writes_for(shop: str) -> None:
        node.gives(given(shop=shop))
        clock.now_s += LOOK_EVERY_S
        node.look()

    writes_for("prod")
    writes_for("other")
    server.faults.add(Fault(FaultKind.STATUS, "configmaps", verb, code=403, times=1))
    writes_for("third")
    assert node.record.problems() == ()
    writes_for("third")
    server.faults.add(Fault(FaultKind.STATUS, "configmaps", verb, code=403))
    writes_for("fourth")
    writes_for("fifth")
    (problem,) = node.record.problems()
    assert "pyconfd rbac" in problem.remedy


@pytest.mark.parametrize("lost", ["all", "index", "shard", "edited"])
def test_a_record_that_somebody_broke_is_written_again(
    server: ApiServer, cluster: Cluster, clock: StandingClock, lost: str
) -> None:
    holder = Node(server, clock, leads=True)
    holder.gives(given(shop="prod"))
    holder.look()
    if lost in {"all", "index"}:
        cluster.delete("configmaps", "pyconfd", OWNERS)
    if lost in {"all", "shard"}:
        cluster.delete("configmaps", "pyconfd", f"{OWNERS}-1")
    if lost == "edited":
        found = cluster.get("configmaps", "pyconfd", f"{OWNERS}-1")
        cluster.put("configmaps", {**found, "data": {"names": "{"}})
    for step in range(6):  # a name that comes makes it write where the index is as it was
        clock.now_s += LOOK_EVERY_S
        holder.gives(given(shop="prod", **({"more": "prod"} if step else {})))
        holder.look()
    new = Node(server, clock)
    for _ in range(5):
        new.look()
    assert new.owners() == {HOST: "prod", "more.test": "prod"}
    assert holder.record.problems() == ()


def test_a_half_written_record_is_read_again(server: ApiServer, cluster: Cluster, clock: StandingClock) -> None:
    holder, new = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    found = cluster.get("configmaps", "pyconfd", f"{OWNERS}-1")
    text = documents(given(shop="prod", more="prod")).shards[0]
    cluster.put("configmaps", {**found, "data": {"names": text}})
    assert new.record.step() < LOOK_EVERY_S
    assert not new.names.is_ready
    assert new.record.problems() == ()
    for _ in range(ownership_record._TORN_READS):
        new.record.step()
    assert new.names.is_ready
    assert new.owners() == {HOST: "prod", "more.test": "prod"}


def test_a_large_register_takes_several_config_maps(server: ApiServer, cluster: Cluster, clock: StandingClock) -> None:
    hosts = {Name("", f"{n:05}-{'x' * 40}.test"): Reservation(owner(f"t{n % 100}")) for n in range(15_000)}
    holder, new = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(NameRegister.of({SCOPE: hosts}))
    holder.look()
    new.look()
    assert len(new.owners()) == 15_000
    digests = msgspec.json.decode(cluster.get("configmaps", "pyconfd", OWNERS)["data"]["shards"])
    assert 1 < len(digests) < MOST_SHARDS
    clock.now_s += LOOK_EVERY_S
    before = writes(server)
    holder.gives(NameRegister.of({SCOPE: {**hosts, Name("", "zzz.test"): Reservation(owner("t99"))}}))
    holder.look()
    assert writes(server) == before + 2, "the shard that changed, and the index"


def test_the_holder_knows_better_than_a_record_that_it_could_not_write(server: ApiServer, clock: StandingClock) -> None:
    holder = Node(server, clock, leads=True)
    holder.gives(given(shop="prod"))
    holder.look()
    holder.record._not_before = float("inf")
    for _ in range(6):
        holder.gives(given(shop="next"))
        holder.look()
        clock.now_s += LOOK_EVERY_S
    assert holder.owners() == {HOST: "next"}
    assert holder.record.problems() == ()


def test_what_is_settled_while_a_loop_is_busy_is_all_taken_in(server: ApiServer, clock: StandingClock) -> None:
    holder, busy = Node(server, clock, leads=True), Node(server, clock)
    for known in (given(shop="prod"), given(shop="prod", more="prod")):
        holder.gives(known)
        holder.look()
        busy.record.step()
        clock.now_s += LOOK_EVERY_S
    assert busy.owners() == {HOST: "prod", "more.test": "prod"}


def test_a_name_that_nobody_served_here_is_no_loss(server: ApiServer, clock: StandingClock) -> None:
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    kept = {Name("", HOST): Reservation(owner("late"), clock.now() + 600)}
    other.gives(NameRegister.of({SCOPE: kept}))
    holder.gives(given(shop="prod"))
    holder.look()
    other.look()
    assert (other.owners(), other.record.notices()) == ({HOST: "prod"}, ())


def test_what_was_not_taken_is_not_settled_again_with_others(server: ApiServer, clock: StandingClock) -> None:
    holder, other = Node(server, clock, leads=True), Node(server, clock)
    holder.gives(given(shop="prod"))
    holder.look()
    seen = []
    for known in ("shop", "shop", "more", "more", "most", "most"):
        holder.gives(given(shop="prod", **({known: "prod"} if known != "shop" else {})))
        holder.look()
        other.gives(given(shop="late"))
        other.record.step()
        seen.append(Name("", HOST) in other.record.settled().get(SCOPE, {}))
        clock.now_s += LOOK_EVERY_S
    assert seen[0]
    assert not seen[-1], "its own rules say otherwise again and again: that is a problem in the status"
