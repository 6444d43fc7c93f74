"""Events on refused objects: what they say, how often, and what happens where they cannot be written."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.events import (
    MOST_AT_ONCE,
    MOST_NOTE_BYTES,
    RETRY_S,
    EventWriter,
    ObjectNotice,
    Turn,
    event_of,
    in_turns,
    refused_object,
)
from pyconfd.sources.kubernetes.resources import Rights, manifest
from pyconfd.system.clock import SystemClock
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.faults import Fault, FaultKind
from tests.world.object_rules import validate_event
from tests.world.rbac import Rules

HOUR = 3600.0
NOW = 1_800_000_000.0


class FakeClock(SystemClock):
    """Time that a test lets pass; each wait hands over to the test."""

    def __init__(self) -> None:
        self.at = NOW
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)

    def monotonic(self) -> float:
        return self.at

    def now(self) -> float:
        return self.at

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        del timeout_s
        self._waits.release()
        assert self._go.acquire(timeout=60)
        return event.is_set()

    def look(self, after_s: float = 5.0) -> None:
        """Move the time, and run one look of the writer."""
        assert self._waits.acquire(timeout=60)
        self.at += after_s
        self._go.release()
        assert self._waits.acquire(timeout=60)
        self._waits.release()

    def end(self) -> None:
        self._go.release(100)


def culprit(name: str = "web", detail: str = "it is wrong", **more: Any) -> ObjectNotice:
    ref = ObjectRef(more.get("kind", "Service"), more.get("namespace", "shop"), name)
    reason = more.get("reason", RefusalReason.INVALID_VALUE)
    return refused_object(Refusal(ref, more.get("field", "annotation proto"), "sm tp", reason, detail), "u-1")


def test_an_event_names_object_and_reason() -> None:
    namespace, event = event_of(culprit(), NOW, instance="lb1", every_s=HOUR)
    assert namespace == "shop"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Service",
        "namespace": "shop",
        "name": "web",
        "uid": "u-1",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "InvalidValue", "Refused")
    assert event["message"] == "Accepted=False: annotation proto sm tp: it is wrong"
    validate_event(event)
    note = event_of(culprit(reason=RefusalReason.IGNORED_ANNOTATION), NOW, instance="lb1", every_s=HOUR)[1]
    assert (note["reason"], note["action"]) == ("IgnoredAnnotation", "Noted")
    assert note["message"] == "annotation proto sm tp: it is wrong"
    validate_event(note)
    whole = refused_object(Refusal(ObjectRef("Service", "shop", "web"), "", "", RefusalReason.BAD_TEMPLATE, "why"))
    assert event_of(whole, NOW, instance="lb1", every_s=HOUR)[1]["message"] == "Rendered=False: why"


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Ingress", "networking.k8s.io/v1"),
        ("HTTPRoute", "gateway.networking.k8s.io/v1"),
        ("Gateway", "gateway.networking.k8s.io/v1"),
        ("ReferenceGrant", "gateway.networking.k8s.io/v1beta1"),
        ("Secret", "v1"),
    ],
)
def test_an_event_has_the_version_of_its_kind(kind: str, version: str) -> None:
    _, event = event_of(culprit(kind=kind), NOW, instance="lb1", every_s=HOUR)
    assert event["involvedObject"]["apiVersion"] == version
    validate_event(event)


def test_an_event_on_a_class_stands_in_the_default_namespace() -> None:
    namespace, event = event_of(culprit(kind="GatewayClass", namespace=""), NOW, instance="lb1", every_s=HOUR)
    assert (namespace, "namespace" in event["involvedObject"]) == ("default", False)
    validate_event(event)


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]{1,60}){0,3}", fullmatch=True),
    st.text(max_size=3000),
    st.sampled_from(list(RefusalReason)),
    st.sampled_from(["", "shop"]),
    st.floats(0, 4e9),
)
def test_whatever_is_refused_the_event_is_one_that_the_api_takes(
    name: str, detail: str, reason: RefusalReason, namespace: str, now: float
) -> None:
    told = culprit(name, detail, reason=reason, namespace=namespace)
    _, event = event_of(told, now, instance="lb1", every_s=HOUR)
    validate_event(msgspec.json.decode(msgspec.json.encode(event)))
    assert len(event["message"].encode()) <= MOST_NOTE_BYTES


def test_the_name_is_the_same_within_an_hour_and_for_one_cause_only_whoever_writes() -> None:
    def name(told: ObjectNotice, now: float, instance: str = "lb1") -> str:
        return str(event_of(told, now, instance=instance, every_s=HOUR)[1]["metadata"]["name"])

    begin = HOUR * 500_000
    assert name(culprit(), begin) == name(culprit(detail="said otherwise"), begin + HOUR - 1)
    assert name(culprit(), begin) == name(culprit(), begin, "lb2")
    others = [
        name(culprit(), begin + HOUR),
        name(culprit(reason=RefusalReason.NAME_TAKEN), begin),
        name(culprit(field="annotation domain"), begin),
        name(culprit("api"), begin),
    ]
    assert len({name(culprit(), begin), *others}) == 5


def written(cluster: Cluster) -> list[str]:
    return sorted(event["involvedObject"]["name"] for event in cluster.objects("events"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def writer(
    server: ApiServer, clock: FakeClock, culprits: Callable[[], list[ObjectNotice]], turn: Turn | None = None
) -> EventWriter:
    settings = KubernetesSettings(api_servers=(server.url,))
    made = EventWriter(settings, every_s=HOUR, turn=turn, clock=clock, instance="lb1")
    made.start(culprits)
    return made


def stop(made: EventWriter, clock: FakeClock) -> None:
    clock.end()
    made.stop()


def test_what_is_refused_is_written_once_and_again_after_an_hour(clock: FakeClock) -> None:
    refused = [culprit("web"), culprit("api")]
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        made = writer(server, clock, lambda: refused)
        clock.look()
        assert written(server.cluster) == ["api", "web"]
        clock.look()
        refused.append(culprit("db"))
        clock.look()
        assert written(server.cluster) == ["api", "db", "web"]
        clock.look(HOUR)
        assert written(server.cluster) == ["api", "api", "db", "db", "web", "web"]
        assert (made.counts().written_total, made.counts().failures_total, made.problems()) == (6, 0, ())
        stop(made, clock)


class FakeTurn:
    """Whether it is ours, as a test says; what was wanted, each time it was asked."""

    def __init__(self) -> None:
        self.ours = False
        self.wanted: list[bool] = []

    def is_ours(self, *, wanted: bool) -> bool:
        self.wanted.append(wanted)
        return self.ours


def test_only_the_holder_of_the_lease_writes_and_asks_for_it_while_there_is_something(clock: FakeClock) -> None:
    refused, turn = [culprit("web")], FakeTurn()
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        made = writer(server, clock, lambda: refused, turn)
        clock.look()
        assert written(server.cluster) == []
        turn.ours = True
        clock.look()
        assert written(server.cluster) == ["web"]
        refused.clear()
        clock.look()
        clock.look(HOUR)
        assert turn.wanted == [True, True, True, False]
        stop(made, clock)


def test_what_only_this_balancer_knows_is_written_by_it(clock: FakeClock) -> None:
    notices, turn = [culprit("web"), replace(culprit("lost"), is_local=True)], FakeTurn()
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        made = writer(server, clock, lambda: notices, turn)
        clock.look()
        assert written(server.cluster) == ["lost"]
        turn.ours = True
        clock.look()
        assert written(server.cluster) == ["lost", "web"]
        stop(made, clock)


def test_thousands_of_one_namespace_delay_those_of_no_other() -> None:
    many = [culprit(f"web-{number}") for number in range(1000)]
    other = culprit("api", namespace="other")
    assert in_turns([*many, other])[:2] == [many[0], other]


def test_a_flood_is_written_in_parts_without_invalid_names(clock: FakeClock) -> None:
    many = [culprit(f"web-{number}") for number in range(MOST_AT_ONCE + 5)] + [culprit("../x"), culprit("A b")]
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        made = writer(server, clock, lambda: many)
        for expected in (MOST_AT_ONCE, MOST_AT_ONCE + 5, MOST_AT_ONCE + 5):
            clock.look()
            assert len(written(server.cluster)) == expected
        stop(made, clock)


def test_a_restart_within_the_hour_repeats_nothing() -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        for _ in range(2):
            clock = FakeClock()
            made = writer(server, clock, lambda: [culprit()])
            clock.look()
            stop(made, clock)
        assert written(server.cluster) == ["web"]


def test_a_missing_right_to_create_events_is_reported_and_heals(clock: FakeClock) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        server.rules = Rules(manifest(Rights()))
        made = writer(server, clock, lambda: [culprit()])
        clock.look()
        assert written(server.cluster) == []
        assert made.counts().failures_total == 1
        (problem,) = made.problems()
        assert 'cannot create resource "events"' in problem.message
        assert "pyconfd rbac" in problem.remedy
        server.rules = Rules(manifest(Rights(events=True)))
        clock.look(RETRY_S)
        assert written(server.cluster) == ["web"]
        assert made.problems() == ()
        stop(made, clock)


def test_a_first_403_where_events_were_allowed_waits_for_a_second_one(clock: FakeClock) -> None:
    noted = [culprit("web")]
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        made = writer(server, clock, lambda: noted)
        clock.look()
        noted.append(culprit("api"))
        server.faults.add(Fault(FaultKind.STATUS, "events", "create", code=403, times=1))
        clock.look()
        assert (written(server.cluster), made.problems()) == (["web"], ())
        clock.look()
        assert written(server.cluster) == ["api", "web"]
        noted.append(culprit("new"))
        server.faults.add(Fault(FaultKind.STATUS, "events", "create", code=403))
        clock.look()
        clock.look()
        (problem,) = made.problems()
        assert "pyconfd rbac" in problem.remedy
        stop(made, clock)


def test_one_that_is_not_accepted_silences_no_other(clock: FakeClock) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        server.faults.add(Fault(FaultKind.STATUS, "events", "create", code=422, times=1))
        made = writer(server, clock, lambda: [culprit("api"), culprit("web")])
        clock.look()
        assert written(server.cluster) == ["web"]
        assert made.counts().failures_total == 1
        stop(made, clock)


def test_a_namespace_that_takes_none_silences_no_other(clock: FakeClock) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        server.faults.add(Fault(FaultKind.STATUS, "events", "create", code=403, times=1))
        made = writer(server, clock, lambda: [culprit("api"), culprit("web")])
        clock.look()
        clock.look()
        assert written(server.cluster) == ["web"]
        clock.look(RETRY_S)
        assert written(server.cluster) == ["api", "web"]
        stop(made, clock)


def test_a_problem_ends_where_nothing_is_left_to_write(clock: FakeClock) -> None:
    refused = [culprit("web")]
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        server.faults.add(Fault(FaultKind.STATUS, "events", "create", code=500))
        made = writer(server, clock, lambda: refused)
        clock.look()
        clock.look()
        assert len(made.problems()) == 1
        refused[:] = [culprit("new")]
        clock.look()
        assert len(made.problems()) == 1  # of the new one
        refused.clear()
        clock.look()
        assert made.problems() == ()
        stop(made, clock)


def test_a_problem_of_what_another_balancer_writes_now_ends(clock: FakeClock) -> None:
    turn = FakeTurn()
    turn.ours = True
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        server.faults.add(Fault(FaultKind.STATUS, "events", "create", code=500))
        made = writer(server, clock, lambda: [culprit("web")], turn)
        clock.look()
        assert len(made.problems()) == 1
        turn.ours = False
        clock.look()
        assert made.problems() == ()
        stop(made, clock)


def test_an_api_server_that_listens_again_is_asked_at_the_next_look(clock: FakeClock) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        made = writer(server, clock, lambda: [culprit("web")])
        server.refuse()
        clock.look()
        assert len(made.problems()) == 1
        server.listen()
        clock.look()
        assert (written(server.cluster), made.problems()) == (["web"], ())
        stop(made, clock)
