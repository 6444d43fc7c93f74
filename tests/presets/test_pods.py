"""Which pods are ready, which have a label, and what templates get of a pod."""

import pytest

from pyconfd.model.claim import ANY_PORT
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import (
    ContainerStatus,
    ObjectRef,
    Pod,
    PodCondition,
    PodReadinessGate,
    PodSpec,
    PodStatus,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.predecessors.pods import address_of, endpoint, is_ready, whole, wrong_address
from pyconfd.presets.views import EndpointView

GATED = PodSpec((PodReadinessGate("example.com/up"),))


def pod(
    name: str = "p",
    ip: str | None = "10.0.0.1",
    *,
    labels: dict[str, str] | None = None,
    phase: str = "Running",
    containers: tuple[bool, ...] | None = (True,),
    conditions: dict[str, str] | None = None,
    deleted: str | None = None,
    spec: PodSpec | None = None,
    namespace: str = "demo",
) -> Pod:
    meta = ObjectMeta(name, namespace, labels=labels, deletion_timestamp=deleted)
    found = None if conditions is None else tuple(PodCondition(*each) for each in conditions.items())
    ready = None if containers is None else tuple(map(ContainerStatus, containers))
    return Pod(meta, spec or PodSpec(), PodStatus(phase, ip, found, ready))


@pytest.mark.parametrize(
    ("given", "ready"),
    [
        (pod(), True),
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed"), False),
        (pod(deleted="2026-01-01T00:00:00Z"), False),
        (pod(ip=None), False),
        (pod(ip="no address"), False),
        (pod(containers=None), False),
        (pod(containers=()), False),
        (pod(containers=(True, False)), False),
        (pod(conditions={"Ready": "True"}), True),
        (pod(conditions={"Ready": "False"}), False),
        (pod(conditions={"Ready": "Unknown"}), False),
        (pod(conditions={"PodScheduled": "False"}), True),
        (pod(spec=GATED), False),
        (pod(spec=GATED, conditions={"example.com/up": "False"}), False),
        (pod(spec=GATED, conditions={"example.com/up": "True"}), True),
    ],
)
def test_a_pod_is_ready(given: Pod, ready: bool) -> None:
    assert is_ready(given) is ready


@pytest.mark.parametrize(
    ("ip", "address"), [("10.0.0.1", "10.0.0.1"), ("FD00:0::1", "fd00::1"), (None, ""), ("10.0.0", ""), ("x", "")]
)
def test_the_address_of_a_pod_is_in_its_usual_spelling(ip: str | None, address: str) -> None:
    assert address_of(pod(ip=ip)) == address


@pytest.mark.parametrize(
    ("address", "ready", "expected"),
    [("10.0.0.1", True, ("ready", "ipv4", True)), ("fd00::1", False, ("down", "ipv6", False))],
)
def test_a_pod_as_an_endpoint(address: str, ready: bool, expected: tuple[str, str, bool]) -> None:
    state, family, is_ready = expected
    assert endpoint(address, "p", ready=ready) == EndpointView(
        address, ANY_PORT, state, family, "p", ready=is_ready, serving=is_ready
    )
    assert endpoint(address) == EndpointView(address, ANY_PORT, "ready", family, ready=True, serving=True)


@pytest.mark.parametrize(("ip", "shown"), [("10.0.0.1", "10.0.0.1"), ("a\nb", "a\\nb"), (None, "")])
def test_a_pod_where_none_may_be_is_refused_by_its_address(ip: str | None, shown: str) -> None:
    ref = ObjectRef("Pod", "d\\ne", "p\\nq", "c")
    expected = Refusal(ref, "status.podIP", shown, RefusalReason.FORBIDDEN_ADDRESS, "why")
    assert wrong_address(pod("p\nq", ip, namespace="d\ne"), "why", "c") == expected


def test_texts_that_are_no_plain_words_are_left_out_of_the_object() -> None:
    made = whole(
        pod(labels={"app": "web", "note": "a\nb", "a b": "x", "": "kept"}, ip="10.0.0.1\n", conditions={"a\nb": "True"})
    )
    assert made["metadata"]["labels"] == {"app": "web", "": "kept"}
    assert "podIP" not in made["status"]
    assert made["status"]["containerStatuses"] == [{"ready": True}]
    assert made["status"]["conditions"] == [{"status": "True"}]
