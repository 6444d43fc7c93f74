"""What is written into a status: only what differs, nothing of others, and nothing while nothing changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.model.gateway_api import Gateway, HTTPRoute
from pyconfd.model.ingress import Ingress
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.sources.kubernetes.object_status import Scope, is_in_sync, to_apply, without_ours
from pyconfd.sources.kubernetes.status_backlog import CALM_S, CONTESTED_AFTER, Asked, StatusBacklog, StatusWrite

OURS = "pyconfd.io/gateway"
THEN, NOW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
GRACE_S = 30.0


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "Because", "message": "", "observedGeneration": 1} | more


def timed(kind: str, status: str = "True", since: str = THEN, **more: Any) -> dict[str, Any]:
    return condition(kind, status, **more) | {"lastTransitionTime": since}


def parent(controller: str, *conditions: dict[str, Any], **ref: Any) -> dict[str, Any]:
    return {"parentRef": {"name": "web"} | ref, "controllerName": controller, "conditions": list(conditions)}


DEFAULTED = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
ADDRESS = {"type": "IPAddress", "value": "192.0.2.1"}
LB = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}


@pytest.mark.parametrize(
    ("resource", "body", "current", "expected"),
    [
        pytest.param(Resource.INGRESSES, LB, {}, False, id="nothing there"),
        pytest.param(Resource.INGRESSES, LB, LB, True, id="the same"),
        pytest.param(
            Resource.SERVICES,
            LB,
            {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
            True,
            id="a default of the API server",
        ),
        pytest.param(
            Resource.SERVICES, LB, {**LB, "conditions": [timed("Foreign")]}, True, id="with a condition of another"
        ),
        pytest.param(
            Resource.INGRESSES,
            LB,
            {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.9"}]}},
            False,
            id="with an address of another",
        ),
        pytest.param(Resource.INGRESSES, {}, LB, False, id="refused, and its address stands"),
        pytest.param(Resource.INGRESSES, {}, {"loadBalancer": {}}, True, id="refused, without an address"),
        pytest.param(Resource.GATEWAYS, {}, {"addresses": [ADDRESS]}, False, id="refused Gateway with an address"),
        pytest.param(
            Resource.GATEWAYS,
            {"conditions": [condition("Accepted")]},
            {"conditions": [timed("Foreign"), timed("Accepted")]},
            True,
            id="condition beside that of another",
        ),
        pytest.param(
            Resource.GATEWAYS,
            {"conditions": [condition("Accepted", observedGeneration=2)]},
            {"conditions": [timed("Accepted")]},
            False,
            id="of an older generation",
        ),
        pytest.param(
            Resource.GATEWAYS,
            {"listeners": [{"name": "a", "attachedRoutes": 1, "conditions": []}]},
            {
                "listeners": [
                    {"name": "b", "attachedRoutes": 0, "conditions": []},
                    {"name": "a", "attachedRoutes": 1, "conditions": [timed("Foreign")]},
                ]
            },
            False,
            id="a listener that is gone",
        ),
        pytest.param(
            Resource.HTTPROUTES,
            {"parents": [parent(OURS, condition("Accepted"))]},
            {"parents": [parent("other/c", timed("Accepted", "False")), parent(OURS, timed("Accepted"), **DEFAULTED)]},
            True,
            id="parents beside those of another",
        ),
        pytest.param(
            Resource.HTTPROUTES,
            {"parents": [parent(OURS, condition("Accepted"))]},
            {"parents": [parent(OURS, timed("Accepted"), timed("ResolvedRefs"))]},
            False,
            id="a condition too many of ours",
        ),
        pytest.param(
            Resource.HTTPROUTES, {"parents": []}, {"parents": [parent("other/c")]}, True, id="no parent of ours"
        ),
        pytest.param(
            Resource.GATEWAYCLASSES,
            {"supportedFeatures": [{"name": "Gateway"}]},
            {"supportedFeatures": [{"name": "Gateway"}, {"name": "Mesh"}]},
            False,
            id="a feature too many",
        ),
    ],
)
def test_whether_a_status_says_it_already(
    resource: Resource, body: Mapping[str, Any], current: Mapping[str, Any], expected: bool
) -> None:
    assert is_in_sync(resource, body, OURS, current) is expected
    applied = to_apply(resource, body, OURS, current, NOW)
    if resource is not Resource.HTTPROUTES:  # there the whole list is sent
        applied = {**current, **applied}
    assert is_in_sync(resource, body, OURS, applied) or resource is Resource.GATEWAYS


def test_a_condition_keeps_its_time_while_its_status_is_the_same() -> None:
    current = {"conditions": [timed("Accepted"), timed("Programmed", "False")]}
    body = {"conditions": [condition("Accepted", reason="Other"), condition("Programmed"), condition("New")]}
    applied = to_apply(Resource.GATEWAYS, body, OURS, current, NOW)
    assert [(each["type"], each["lastTransitionTime"]) for each in applied["conditions"]] == [
        ("Accepted", THEN),
        ("Programmed", NOW),
        ("New", NOW),
    ]


def test_times_of_each_listener_and_parent_are_its_own() -> None:
    listeners = [{"name": name, "conditions": [timed("Accepted", since=at)]} for name, at in (("a", THEN), ("b", NOW))]
    wanted = {"listeners": [{"name": name, "conditions": [condition("Accepted")]} for name in "ba"]}
    applied = to_apply(Resource.GATEWAYS, wanted, OURS, {"listeners": listeners}, "later")
    assert [each["conditions"][0]["lastTransitionTime"] for each in applied["listeners"]] == [NOW, THEN]
    parents = [
        parent("other/c", timed("Accepted", since="foreign")),
        parent(OURS, timed("Accepted"), **DEFAULTED, sectionName="a"),
        parent(OURS, timed("Accepted", since=NOW), **DEFAULTED),
    ]
    body = {"parents": [parent(OURS, condition("Accepted")), parent(OURS, condition("Accepted"), sectionName="a")]}
    applied = to_apply(Resource.HTTPROUTES, body, OURS, {"parents": parents}, "later")
    assert [each["conditions"][0]["lastTransitionTime"] for each in applied["parents"]] == ["foreign", NOW, THEN]


def test_entries_of_others_survive_the_removal_of_ours() -> None:
    foreign = parent("other/c", timed("Accepted"))
    assert without_ours(Resource.HTTPROUTES, OURS, {"parents": [parent(OURS), foreign]}) == {"parents": [foreign]}
    assert without_ours(Resource.INGRESSES, OURS, LB) == {}


# The backlog: an API server of a few lines, which keeps what is applied


WEB = ObjectKey(Resource.INGRESSES, Key("shop", "web"))
ROUTE = ObjectKey(Resource.HTTPROUTES, Key("shop", "route"))
GATEWAY = ObjectKey(Resource.GATEWAYS, Key("shop", "gate"))
RECORDS = {Resource.INGRESSES: Ingress, Resource.HTTPROUTES: HTTPRoute, Resource.GATEWAYS: Gateway}


class Here:
    """A cluster whose watch brings everything at once, unless it ``lags``."""

    def __init__(self) -> None:
        self.backlog = StatusBacklog(GRACE_S, Scope(frozenset(RECORDS), frozenset({"192.0.2.1"}), OURS))
        self.now = 1000.0
        self.version = 0
        self.snapshot = Snapshot()
        self.asked = Asked()
        self.lags = False
        self.writes: list[tuple[ObjectKey, dict[str, Any]]] = []

    def put(self, of: ObjectKey, status: Mapping[str, Any] | None = None, uid: str = "u1") -> None:
        self.version += 1
        metadata = ObjectMeta(of.key.name, of.key.namespace, uid, str(self.version), 1)
        made = RECORDS[of.resource](metadata, status=dict(status or {}))
        self._set(of, made)

    def delete(self, of: ObjectKey) -> None:
        self._set(of, None)

    def _set(self, of: ObjectKey, record: Any) -> None:
        records = {key: each for key, each in getattr(self.snapshot, of.resource.field).items() if key != of.key}
        records |= {of.key: record} if record is not None else {}
        changed: dict[str, Any] = {of.resource.field: records}
        self.snapshot = replace(self.snapshot, **changed)

    def status(self, of: ObjectKey) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self.snapshot, of.resource.field)[of.key].status
        return found

    def ask(
        self,
        statuses: Mapping[ObjectKey, Mapping[str, Any]],
        *,
        quarantined: tuple[ObjectKey, ...] = (),
        may_wait: bool = False,
    ) -> None:
        made = {of: ObjectStatus("u1", 1, body, OURS, may_wait) for of, body in statuses.items()}
        self.asked = Asked((made,), frozenset(quarantined))

    def take(self) -> None:
        self.backlog.take(self.asked, self.snapshot, self.now)

    def next(self) -> StatusWrite | None:
        self.take()
        return self.backlog.next_write(self.now, NOW)

    def run(self, for_s: float = 0.0) -> list[ObjectKey]:
        """Write all that is due within a time; return the objects."""
        until = self.now + for_s
        written: list[ObjectKey] = []
        while True:
            write = self.next()
            if write is None:
                due_at = self.backlog.next_due()
                if due_at is None or due_at > until:
                    self.now = until
                    return written
                self.now = due_at
                continue
            written.append(write.of)
            self.accept(write)

    def accept(self, write: StatusWrite) -> None:
        status = msgspec.json.decode(write.body)["status"]
        self.writes.append((write.of, status))
        merged = {**write.current.status, **status} if status else {}
        if merged == write.current.status:
            self.backlog.written(write, write.current.version, merged, self.now)
            return
        self.version += 1
        self.backlog.written(write, str(self.version), merged, self.now)
        if not self.lags:
            self.version -= 1
            self.put(write.of, merged)


@pytest.fixture
def here() -> Here:
    return Here()


STORM = [ObjectKey(Resource.INGRESSES, Key("storm", f"i{number}")) for number in range(300)]


def test_storm_of_one_namespace_delays_no_other(here: Here) -> None:
    """25 flips a second against 10 writes a second: a neighbour waits for one of them, not for all."""
    for of in (*STORM, WEB, ROUTE):
        here.put(of)
    storm = dict.fromkeys(STORM, LB)
    here.ask(storm)
    here.take()
    here.ask({**storm, WEB: LB, ROUTE: {}})
    order = here.run()
    assert len(order) == len(STORM) + 1
    assert WEB in order[:2]


def test_namespaces_take_turns_for_as_long_as_one_flaps(here: Here) -> None:
    here.put(WEB)
    for of in STORM[:20]:
        here.put(of)
    written: list[ObjectKey] = []
    for flip in range(40):
        body = {"loadBalancer": {"ingress": [{"ip": f"192.0.2.{flip + 1}"}]}}
        here.ask({**dict.fromkeys(STORM[:20], body), WEB: body})
        write = here.next()
        assert write is not None
        written.append(write.of)
        here.accept(write)
        here.now += 0.1
    assert written.count(WEB) == 20


def test_withdrawals_of_one_namespace_delay_no_address_of_another(here: Here) -> None:
    for of in STORM:
        here.put(of, LB)
    here.put(WEB)
    here.ask({of: {} for of in STORM} | {WEB: LB})
    order = here.run()
    assert order[0] in STORM
    assert order[1] == WEB


def counting(routes: int) -> dict[str, Any]:
    return {"listeners": [{"name": "web", "attachedRoutes": routes, "conditions": []}]}


def written_while_a_gateway_counts(here: Here, others: int, writes: int) -> list[int]:
    """Write each eighth of a second, with a new count each time; return which of the writes were the Gateway's."""
    routes = [ObjectKey(Resource.INGRESSES, Key("shop", f"i{number}")) for number in range(others)]
    for of in (*routes, GATEWAY):
        here.put(of)
    order: list[ObjectKey] = []
    for number in range(writes):
        here.ask({**dict.fromkeys(routes, LB), GATEWAY: counting(number)})
        write = here.next()
        assert write is not None
        order.append(write.of)
        here.accept(write)
        here.now += 0.125
    return [place for place, of in enumerate(order) if of == GATEWAY]


def test_a_gateway_is_written_each_second_before_the_routes_that_it_counts(here: Here) -> None:
    assert written_while_a_gateway_counts(here, others=300, writes=33) == [0, 8, 16, 24, 32]


def test_a_gateway_beside_few_others_is_written_in_its_turn(here: Here) -> None:
    assert written_while_a_gateway_counts(here, others=10, writes=13) == [0, 11, 12]


def test_what_stands_is_not_written_again(here: Here) -> None:
    here.put(WEB)
    here.ask({WEB: LB})
    assert here.run() == [WEB]
    assert here.run(3600.0) == []
    fresh = Here()  # a restart
    fresh.snapshot, fresh.asked = here.snapshot, here.asked
    assert fresh.run(3600.0) == []


def test_what_changes_before_the_watch_brings_the_last_write(here: Here) -> None:
    here.lags = True
    here.put(ROUTE, {"parents": [parent("other/c", timed("Accepted"))]})
    here.ask({ROUTE: {"parents": [parent(OURS, condition("Accepted", "False"))]}})
    assert here.run(10.0) == [ROUTE]
    here.ask({ROUTE: {"parents": [parent(OURS, condition("Accepted"))]}})
    write = here.next()
    assert write is not None
    document = msgspec.json.decode(write.body)
    assert document["metadata"]["resourceVersion"] == str(here.version)
    assert [each["controllerName"] for each in document["status"]["parents"]] == ["other/c", OURS]


def test_only_this_very_object(here: Here) -> None:
    here.put(WEB, uid="u2")
    here.ask({WEB: LB})
    assert here.run(3600.0) == []
    here.put(WEB)
    write = here.next()
    assert write is not None
    assert msgspec.json.decode(write.body)["metadata"]["uid"] == "u1"


def test_an_object_that_is_not_ours_any_more_loses_its_address_after_the_grace(here: Here) -> None:
    here.put(WEB)
    here.ask({WEB: LB})
    here.run()
    here.ask({})
    assert here.run(GRACE_S - 1) == []
    assert here.run(2.0) == [WEB]
    assert here.status(WEB) == {}
    assert here.run(3600.0) == []
    assert here.backlog.is_idle


def test_an_address_without_servers_is_kept_for_the_grace(here: Here) -> None:
    here.put(WEB, LB)
    here.ask({WEB: {}}, may_wait=True)
    assert here.run(GRACE_S - 1) == []
    here.put(WEB, LB)  # another look at it begins no new grace
    assert here.run(1.5) == [WEB]
    assert here.status(WEB) == {"loadBalancer": {"ingress": []}}


def test_servers_that_come_back_within_the_grace_write_nothing(here: Here) -> None:
    here.put(WEB, LB)
    here.ask({WEB: {}}, may_wait=True)
    here.run(GRACE_S / 2)
    here.ask({WEB: LB})
    assert here.run(2 * GRACE_S) == []


def test_an_object_that_comes_back_within_the_grace_keeps_its_address(here: Here) -> None:
    here.put(WEB)
    here.ask({WEB: LB})
    here.run()
    here.ask({})
    here.run(GRACE_S / 2)
    here.ask({WEB: LB})
    assert here.run(3600.0) == []


def test_deleted_objects_need_nothing(here: Here) -> None:
    here.put(WEB)
    here.ask({WEB: LB})
    here.run()
    here.delete(WEB)
    here.ask({})
    assert here.run(3600.0) == []
    foreign = {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}
    here.put(WEB, foreign, uid="u2")  # its successor, which somebody else serves
    assert here.run(3600.0) == []


@pytest.mark.parametrize(
    ("of", "status", "expected"),
    [
        pytest.param(WEB, LB, [WEB], id="an Ingress with our address"),
        pytest.param(WEB, {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}, [], id="with another one"),
        pytest.param(WEB, {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}, [], id="with a name"),
        pytest.param(GATEWAY, {"addresses": [ADDRESS]}, [GATEWAY], id="a Gateway with our address"),
        pytest.param(ROUTE, {"parents": [parent(OURS), parent("other/c")]}, [ROUTE], id="a route with our entry"),
        pytest.param(ROUTE, {"parents": [parent("other/c")]}, [], id="a route of another"),
    ],
)
def test_what_a_former_process_left_is_removed_after_the_grace(
    here: Here, of: ObjectKey, status: dict[str, Any], expected: list[ObjectKey]
) -> None:
    here.put(of, status)
    here.ask({})
    assert here.run(GRACE_S - 1) == []
    assert here.run(2.0) == expected
    here.put(of, status)  # not ours then: it is still there
    assert here.run(3600.0) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_quarantine_withdraws_the_address_at_once(here: Here, restarted: bool) -> None:
    here.put(WEB, LB if restarted else {})
    if not restarted:
        here.ask({WEB: LB})
        here.run()
    here.ask({}, quarantined=(WEB,))
    assert here.run() == [WEB]
    assert here.status(WEB) == {}


def test_withdrawals_come_first(here: Here) -> None:
    many = [ObjectKey(Resource.INGRESSES, Key("shop", f"web-{number}")) for number in range(50)]
    for of in many:
        here.put(of)
    here.put(WEB, LB)
    here.ask({**dict.fromkeys(many, LB), WEB: {}})
    assert here.run()[0] == WEB


def test_another_writer_is_answered_ever_slower_and_reported(here: Here) -> None:
    here.put(WEB)
    here.ask({WEB: LB})
    here.run()
    written = []
    for _ in range(3600):
        here.put(WEB, {"loadBalancer": {"ingress": [{"ip": "192.0.2.66"}]}})
        written += here.run(1.0)
    assert CONTESTED_AFTER < len(written) < 20
    assert here.backlog.contested(here.now) == (WEB,)
    here.run(2 * CALM_S)
    assert here.backlog.contested(here.now) == ()
    assert here.status(WEB) == LB


def test_what_the_server_drops_is_written_once(here: Here) -> None:
    here.put(WEB)
    here.ask({WEB: LB | {"unknown": 1}})
    write = here.next()
    assert write is not None
    here.version += 1
    here.backlog.written(write, str(here.version), LB, here.now)
    here.version -= 1
    here.put(WEB, LB)
    assert here.run(3600.0) == []


def test_a_failure_is_tried_again_and_delays_no_other(here: Here) -> None:
    other = ObjectKey(Resource.INGRESSES, Key("shop", "web-2"))
    here.put(WEB)
    here.put(other)
    here.ask({WEB: LB, other: LB})
    write = here.next()
    assert write is not None
    here.backlog.failed(write, here.now)
    assert here.run() == [other if write.of == WEB else WEB]
    here.put(write.of)  # a change of the object is no reason to hurry
    assert here.run() == []
    assert here.run(2.0) == [write.of]


def test_a_resource_that_may_not_be_written_blocks_no_other(here: Here) -> None:
    here.put(WEB)
    here.put(GATEWAY)
    here.ask({WEB: LB, GATEWAY: {"conditions": [condition("Accepted")]}})
    here.backlog.block(Resource.INGRESSES, here.now + 60.0)
    assert here.run() == [GATEWAY]
    assert here.run(59.0) == []
    assert here.run(2.0) == [WEB]


def test_conditions_that_are_not_asked_for_any_more_go(here: Here) -> None:
    here.put(GATEWAY)
    here.ask({GATEWAY: {"conditions": [condition("Accepted"), condition("Conflicted")]}})
    here.run()
    here.ask({GATEWAY: {"conditions": [condition("Accepted")]}})
    assert here.run() == [GATEWAY]


def test_only_what_changed_is_compared(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [ObjectKey(Resource.INGRESSES, Key("shop", f"web-{number}")) for number in range(200)]
    for of in many:
        here.put(of, LB)
    here.ask(dict.fromkeys(many, LB))
    here.run()
    looked = []
    monkeypatch.setattr(here.backlog, "_consider", lambda of, now: looked.append(of))
    here.put(many[7], {})
    here.take()
    here.take()
    assert looked == [many[7]]
