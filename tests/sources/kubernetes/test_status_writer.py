"""Two balancers and their writers at a fake API server: who writes, how much, and what happens without the server."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.status import WriterRole
from pyconfd.settings import ClusterStatusSettings, KubernetesSettings
from pyconfd.sources.kubernetes.decode import decode_object
from pyconfd.sources.kubernetes.object_status import Scope, addresses_in, is_in_sync, may_hold
from pyconfd.sources.kubernetes.status_writer import BURST, FORBIDDEN_S, WRITES_PER_S, StatusWriter
from tests.sources.kubernetes.clocks import StandingClock
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.faults import Fault, FaultKind
from tests.world.rbac import Rules

OURS = "pyconfd.io/gateway"
LB = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
KINDS = (Resource.INGRESSES, Resource.HTTPROUTES, Resource.SERVICES)


class Node:
    """A balancer's writer, driven by a virtual clock; its watch brings everything at once."""

    def __init__(self, clock: StandingClock, name: str, cluster: Cluster, *servers: ApiServer) -> None:
        self.name = name
        self.alive = True
        self.lags = False
        """The watch brings nothing at present."""
        self._clock, self._servers = clock, servers
        self._cluster, self._rv, self._snapshot = cluster, 0, Snapshot()
        self._records: dict[tuple[str, str], Any] = {}
        self.start()

    def start(self) -> None:
        """Start a process that knows nothing of what the former one did."""
        settings = KubernetesSettings(api_servers=tuple(server.url for server in self._servers))
        options, scope = ClusterStatusSettings(), Scope(frozenset(KINDS), frozenset({"192.0.2.1"}), OURS)
        self.writer = StatusWriter(settings, options, self.newest, scope, identity=self.name, clock=self._clock)
        self._lease_at = self._step_at = 0.0

    def newest(self) -> Snapshot:
        if self._rv != self._cluster.rv and not self.lags:
            self._rv = self._cluster.rv
            self._snapshot = Snapshot(**{each.field: self._read(each) for each in KINDS})  # type: ignore[arg-type]
        return self._snapshot

    def _read(self, resource: Resource) -> dict[Key, Any]:
        found = {}
        for obj in self._cluster.objects(resource.value):
            metadata = obj["metadata"]
            version = metadata["uid"], metadata["resourceVersion"]
            if version not in self._records:
                self._records[version] = decode_object(resource, msgspec.json.encode(obj))
            found[Key(metadata["namespace"], metadata["name"])] = self._records[version]
        return found

    def turn(self, now: float) -> None:
        if not self.alive:
            return
        if now >= self._lease_at:
            self._lease_at = self.writer.election.run_round()
        while now >= self._step_at or self.writer._wake.is_set():
            self._step_at = now + self.writer.step()


class Place:
    """Nodes at one cluster, and the time that passes for them."""

    def __init__(self, cluster: Cluster, *servers: ApiServer) -> None:
        self.cluster, self.servers = cluster, servers
        self.clock = StandingClock()
        self.nodes = [Node(self.clock, name, cluster, *servers) for name in ("lb1", "lb2")]
        self.statuses: dict[ObjectKey, ObjectStatus] = {}

    def ingress(self, name: str, body: Mapping[str, Any] | None = None) -> ObjectKey:
        """Create an Ingress that is ours."""
        made = self.cluster.create("ingresses", {"metadata": {"namespace": "shop", "name": name}, "spec": {}})
        of = ObjectKey(Resource.INGRESSES, Key("shop", name))
        self.statuses[of] = ObjectStatus(made["metadata"]["uid"], 1, LB if body is None else body)
        return of

    def route(self, name: str, foreign: list[dict[str, Any]]) -> ObjectKey:
        """Create a route that is ours, with entries of other controllers."""
        made = self.cluster.create("httproutes", {"metadata": {"namespace": "shop", "name": name}, "spec": {}})
        self.cluster.patch("httproutes", "shop", name, {"status": {"parents": foreign}}, manager="other")
        of = ObjectKey(Resource.HTTPROUTES, Key("shop", name))
        body = {"parents": [entry(OURS)]}
        self.statuses[of] = ObjectStatus(made["metadata"]["uid"], 1, body, OURS)
        return of

    def apply(self, refused: tuple[Refusal, ...] = ()) -> None:
        """Have HAProxy of both nodes run what is asked for."""
        for node in self.nodes:
            node.writer.offer(Context({}, refused, statuses=({}, dict(self.statuses))))

    def run(self, for_s: float, until: Callable[[], object] = lambda: False, step_s: float = 0.1) -> float:
        passed = 0.0
        while passed < for_s and not until():
            for node in self.nodes:
                node.turn(self.clock.now_s)
            assert len([node for node in self.nodes if node.alive and node.writer.election.leads]) <= 1
            self.clock.now_s += step_s
            passed += step_s
        return passed

    @property
    def leader(self) -> Node:
        return next(node for node in self.nodes if node.alive and node.writer.election.leads)

    def writes(self) -> int:
        return sum(len(server.seen(verb="patch")) for server in self.servers)

    def published(self, of: ObjectKey) -> Any:
        status = self.cluster.get(of.resource.value, *of.key).get("status") or {}
        return (status.get("loadBalancer") or {}).get("ingress")


class Chances:
    """What happens at random to objects, balancers and API servers, from one seed."""

    def __init__(self, here: Place, seed: int) -> None:
        self.here, self.chance = here, random.Random(seed)
        self.made = 0

    def step(self) -> None:
        """Change one thing."""
        self.chance.choice((self.create, self.change, self.leave, self.delete, self.meddle, self.fail, self.stop))()
        self.here.apply()
        self.here.run(self.chance.choice((0.1, 1.0, 5.0, 40.0)), step_s=0.5)

    def create(self) -> None:
        self.made += 1
        if self.chance.random() < 0.5:
            self.here.ingress(f"i{self.made}", self.chance.choice((LB, {})))
        else:
            self.here.route(f"r{self.made}", [entry("other/a")] if self.chance.random() < 0.5 else [])

    def change(self) -> None:
        """Ask for something else."""
        if of := self._any():
            old = self.here.statuses[of]
            body: Mapping[str, Any] = self.chance.choice((LB, {}))
            if of.resource is Resource.HTTPROUTES:
                body = {"parents": [entry(OURS, self.chance.choice(("True", "False")))]}
            self.here.statuses[of] = replace(old, body=body)

    def leave(self) -> None:
        """Ask for nothing: it is of another class now."""
        if of := self._any():
            del self.here.statuses[of]

    def delete(self) -> None:
        if of := self._any():
            del self.here.statuses[of]
            self.here.cluster.delete(of.resource.value, *of.key)

    def meddle(self) -> None:
        """Change what is ours, or beside it, as another writer."""
        if of := self._any():
            status: dict[str, Any] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.66"}]}}
            if of.resource is Resource.HTTPROUTES:
                status = {"parents": [entry("other/a"), entry("other/b")]}
            self.here.cluster.patch(of.resource.value, *of.key, {"status": status}, manager="other")

    def fail(self) -> None:
        server = self.chance.choice(self.here.servers)
        server.faults.clear()
        match self.chance.randrange(4):
            case 0:
                server.refuse()
            case 1:
                code = self.chance.choice((409, 429, 500, 503))
                server.faults.add(Fault(FaultKind.STATUS, verb="patch", code=code))
            case 2:  # a write that takes effect, and is not answered
                server.faults.add(Fault(FaultKind.HALF_BODY, times=self.chance.randrange(5)))
                server.listen()
            case _:
                server.listen()

    def stop(self) -> None:
        node = self.chance.choice(self.here.nodes)
        match self.chance.randrange(3):
            case 0:
                node.alive = not node.alive
            case 1:
                node.lags = not node.lags
            case _:
                node.start()

    def calm(self) -> None:
        """End all faults, and let the time pass that all of them may have cost."""
        for server in self.here.servers:
            server.faults.clear()
            server.listen()
        for node in self.here.nodes:
            node.alive, node.lags = True, False
        self.here.apply()
        self.here.run(2000.0, step_s=2.0)

    def _any(self) -> ObjectKey | None:
        return self.chance.choice(list(self.here.statuses)) if self.here.statuses else None


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_every_status_says_at_last_what_it_shall(here: Place, seed: int) -> None:
    chances = Chances(here, seed)
    for _ in range(40):
        chances.step()  # Place.run asserts that one leads at most
    chances.calm()
    for of, asked in here.statuses.items():
        current = here.cluster.get(of.resource.value, *of.key).get("status") or {}
        assert is_in_sync(of.resource, asked.body, OURS, current), of
    for resource in KINDS:
        for obj in here.cluster.objects(resource.value):
            of = ObjectKey(resource, Key(obj["metadata"]["namespace"], obj["metadata"]["name"]))
            status = obj.get("status") or {}
            assert of in here.statuses or "192.0.2.1" not in addresses_in(status)
            assert of in here.statuses or not may_hold(Resource.HTTPROUTES, OURS, status)
    before = here.writes()
    here.run(1000.0, step_s=2.0)
    assert here.writes() == before


def entry(controller: str, status: str = "True") -> dict[str, Any]:
    condition = {"type": "Accepted", "status": status, "reason": "Accepted", "message": "", "observedGeneration": 1}
    if controller != OURS:
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    return {"parentRef": ref, "controllerName": controller, "conditions": [condition]}


@pytest.fixture
def here() -> Iterator[Place]:
    cluster = Cluster()
    for namespace in ("pyconfd", "shop"):
        cluster.add_namespace(namespace)
    with ApiServer(cluster) as one, ApiServer(cluster) as two:
        yield Place(cluster, one, two)


def test_one_of_two_writes_and_only_once(here: Place) -> None:
    web = here.ingress("web")
    here.apply()
    here.run(5.0)
    assert (here.published(web), here.writes()) == ([{"ip": "192.0.2.1"}], 1)
    here.run(1000.0, step_s=2.0)
    assert here.writes() == 1
    roles = {node.name: (node.writer.state().role, node.writer.state().holder) for node in here.nodes}
    assert roles == {"lb1": (WriterRole.WRITER, "lb1"), "lb2": (WriterRole.STANDBY, "lb1")}


def test_nothing_to_write_asks_for_nothing(here: Place) -> None:
    here.apply()
    here.run(60.0)
    assert [server.requests for server in here.servers] == [[], []]
    assert here.nodes[0].writer.state().role is WriterRole.IDLE


def test_the_lease_is_held_as_long_as_anybody_has_something_to_write(here: Place) -> None:
    here.apply()
    writer = here.nodes[0].writer
    writer.is_ours(wanted=True, what="ownership")
    writer.is_ours(wanted=True)
    writer.is_ours(wanted=False)
    here.run(10.0)
    assert writer.is_ours(wanted=False), "the record of names is still to be written"
    writer.is_ours(wanted=False, what="ownership")
    here.run(10.0)
    assert not writer.election.leads


def test_a_killed_writer_is_replaced_and_nothing_is_written_twice(here: Place) -> None:
    here.ingress("web")
    here.apply()
    here.run(5.0)
    here.leader.alive = False
    api = here.ingress("api")
    here.apply()
    assert here.run(60.0, lambda: here.published(api)) < 15.0 + 0.5
    assert (here.leader.name, here.writes()) == ("lb2", 2)


def test_a_storm_is_spread(here: Place) -> None:
    for number in range(150):
        here.ingress(f"web-{number}")
    here.apply()
    here.run(5.0)
    assert BURST < here.writes() <= BURST + 5 * WRITES_PER_S + 1
    here.run(30.0)
    assert here.writes() == 150


def test_api_servers_cut_for_half_an_hour(here: Place) -> None:
    web = here.ingress("web")
    here.apply()
    here.run(5.0)
    before = here.writes()
    for server in here.servers:
        server.refuse()
    api = here.ingress("api")
    here.apply()
    here.run(1800.0, step_s=1.0)
    assert here.writes() == before
    for server in here.servers:
        server.listen()
    here.run(60.0, lambda: here.published(api))
    here.run(60.0)
    assert (here.leader.name, here.writes(), here.published(web)) == ("lb1", before + 1, [{"ip": "192.0.2.1"}])
    assert here.leader.writer.problems() == ()


def test_a_refused_object_never_has_an_address(here: Place) -> None:
    refused = here.ingress("web", body={})
    here.apply()
    here.run(60.0)
    assert (here.published(refused), here.writes()) == (None, 0)
    here.cluster.patch("ingresses", "shop", "web", {"status": LB}, manager="former-controller")
    here.apply()
    here.run(10.0)
    assert not here.published(refused)


def test_quarantine_withdraws_the_address(here: Place) -> None:
    web = here.ingress("web")
    here.apply()
    here.run(5.0)
    del here.statuses[web]
    ref = ObjectRef("Ingress", "shop", "web")
    here.apply((Refusal(ref, "", "", RefusalReason.QUARANTINED, "its block is rejected"),))
    here.run(5.5)
    assert here.published(web) is None


def test_entries_of_others_are_kept_though_they_change_meanwhile(here: Place) -> None:
    route = here.route("web", [entry("other/a")])
    here.apply()
    here.servers[0].faults.add(Fault(FaultKind.STATUS, resource="httproutes/status", verb="patch", times=1, code=409))
    here.run(5.0)
    parents = here.cluster.get("httproutes", "shop", "web")["status"]["parents"]
    assert [each["controllerName"] for each in parents] == ["other/a", OURS]
    written = here.writes()
    here.cluster.patch(
        "httproutes", "shop", "web", {"status": {"parents": [*parents, entry("other/b")]}}, manager="other"
    )
    here.run(60.0)
    assert here.writes() == written
    del here.statuses[route]
    here.apply()
    here.run(60.0)
    parents = here.cluster.get("httproutes", "shop", "web")["status"]["parents"]
    assert [each["controllerName"] for each in parents] == ["other/a", "other/b"]


def test_another_object_of_that_name_is_not_written(here: Place) -> None:
    web = here.ingress("web")
    here.cluster.delete("ingresses", "shop", "web")
    here.cluster.create("ingresses", {"metadata": {"namespace": "shop", "name": "web"}, "spec": {}})
    here.apply()
    here.run(60.0)
    assert (here.published(web), here.writes()) == (None, 0)


MANIFEST = """
kind: ClusterRole
metadata: {{name: r}}
rules:
- {{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}}
- {{apiGroups: [gateway.networking.k8s.io], resources: [httproutes/status], verbs: [patch]}}
{more}
---
kind: ClusterRoleBinding
metadata: {{name: r}}
roleRef: {{kind: ClusterRole, name: r}}
"""
INGRESSES = "- {apiGroups: [networking.k8s.io], resources: [ingresses/status], verbs: [patch]}"


def test_a_missing_right_is_said_once_and_stops_only_its_resource(here: Place) -> None:
    for server in here.servers:
        server.rules = Rules(MANIFEST.format(more=""))
    web = here.ingress("web")
    here.ingress("api")
    here.route("web", [])
    here.apply()
    here.run(FORBIDDEN_S - 1)
    (problem,) = here.leader.writer.problems()
    assert "pyconfd rbac" in problem.remedy
    assert (here.writes(), here.leader.writer.state().written_total) == (2, 1)
    for server in here.servers:
        server.rules = Rules(MANIFEST.format(more=INGRESSES))
    here.run(FORBIDDEN_S)
    assert (here.published(web), here.leader.writer.problems()) == ([{"ip": "192.0.2.1"}], ())


def test_a_first_403_where_writing_was_allowed_waits_for_a_second_one(here: Place) -> None:
    """An API server that has just started does not know all Roles yet."""
    of = here.ingress("web")
    here.apply()
    here.run(20.0, lambda: here.published(of))
    for server in here.servers:
        server.faults.add(Fault(FaultKind.STATUS, "ingresses/status", "patch", code=403, times=1))
    second = here.ingress("second")
    here.apply()
    assert here.run(FORBIDDEN_S, lambda: here.published(second)) < 10.0
    assert here.published(second)
    assert [node.writer.problems() for node in here.nodes] == [(), ()]
    for server in here.servers:
        server.faults.add(Fault(FaultKind.STATUS, "ingresses/status", "patch", code=403))
    here.ingress("third")
    here.apply()
    here.run(10.0)
    (problem,) = here.leader.writer.problems()
    assert "pyconfd rbac" in problem.remedy


def test_credentials_that_are_not_accepted_are_what_is_wrong(here: Place) -> None:
    """Not that a status cannot be written: it would come before what there is to do."""
    of = here.ingress("web")
    here.apply()
    here.run(20.0, lambda: here.published(of))
    for server in here.servers:
        server.faults.add(Fault(FaultKind.STATUS, code=401))
    here.run(20.0)
    problems = [each for node in here.nodes for each in node.writer.problems()]
    assert problems
    assert all(each.message.startswith("not accepted by http://") for each in problems), problems


def test_without_any_right_nothing_but_the_lease_is_asked_for(here: Place) -> None:
    for server in here.servers:
        server.rules = Rules("")
    here.ingress("web")
    here.apply()
    here.run(60.0)
    assert here.writes() == 0
    (problem,) = here.nodes[0].writer.problems()
    assert "pyconfd rbac" in problem.remedy


def test_what_is_not_accepted_is_reported_until_it_is_corrected(here: Place) -> None:
    route = here.route("web", [])
    right = here.statuses[route]
    wrong = {"parents": [{**entry(OURS), "conditions": [{"type": "Accepted", "status": "True", "reason": "no good"}]}]}
    here.statuses[route] = ObjectStatus(right.uid, 1, wrong, OURS)
    here.apply()
    here.run(5.0)
    (problem,) = here.leader.writer.problems()
    assert "HTTPRoute shop/web" in problem.message
    here.statuses[route] = right
    here.apply()
    here.run(10.0)
    assert here.leader.writer.problems() == ()


def test_a_slow_server_is_given_the_time_that_it_asks_for(here: Place) -> None:
    for server in here.servers:
        server.faults.add(Fault(FaultKind.STATUS, verb="patch", code=429, retry_after_s=60))
    here.ingress("web")
    here.apply()
    here.run(59.0)
    assert here.writes() == 1
