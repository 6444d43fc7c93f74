"""What of the cluster a template may see, and what is refused of it."""

import base64
from typing import Any

import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import (
    EndpointAddress,
    EndpointPort,
    EndpointSubset,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectRef,
    Secret,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import HostFacts, Key, Snapshot
from pyconfd.presets.cluster import EXCLUDE_NODE_LABEL, ZONE_LABEL, Cluster, ready_addresses
from tests.presets import cluster
from tests.presets.objects import endpoint, endpoints, service, slice_, snapshot
from tests.presets.pods import certificate


def node(name: str = "one", *addresses: tuple[str, str], ready: str = "True", **more: Any) -> Node:
    spec = NodeSpec(**({"unschedulable": True} if more.get("cordoned") else {}))
    status = NodeStatus(
        addresses=tuple(NodeAddress(*each) for each in addresses or (("InternalIP", "192.0.2.1"),)),
        conditions=(NodeCondition("DiskPressure", "True"), NodeCondition("Ready", ready)),
    )
    meta = ObjectMeta(name, labels=more.get("labels"), deletion_timestamp=more.get("ending"))
    return Node(meta, spec, status)


def read(*nodes: Node, name: str = "", host: HostFacts | None = None) -> Cluster:
    found = {Key("", each.metadata.name): each for each in nodes}
    return cluster.read(Snapshot(name, nodes=found, host=host or HostFacts()))


def test_a_node() -> None:
    [view] = read(node("one", ("InternalIP", "192.0.2.1"), labels={ZONE_LABEL: "a"})).view.nodes
    assert (view.name, view.zone, view.addresses, view.ready) == ("one", "a", (("InternalIP", "192.0.2.1"),), True)
    for ready in ("False", "Unknown"):
        [view] = read(node(ready=ready)).view.nodes
        assert not view.ready


@pytest.mark.parametrize(
    ("more", "schedulable", "eligible"),
    [
        ({}, True, True),
        ({"cordoned": True}, False, False),
        ({"ready": "False"}, True, False),
        ({"labels": {EXCLUDE_NODE_LABEL: ""}}, True, False),
        ({"ending": "2026-01-01T00:00:00Z"}, True, False),
    ],
)
def test_whether_traffic_for_node_ports_may_go_to_a_node(
    more: dict[str, Any], schedulable: bool, eligible: bool
) -> None:
    [view] = read(node(**more)).view.nodes
    assert (view.schedulable, view.eligible) == (schedulable, eligible)


@pytest.mark.parametrize(
    ("kind", "address", "found"),
    [
        ("InternalIP", "2001:DB8::1", (("InternalIP", "2001:db8::1"),)),
        ("InternalIP", "no address", ()),
        ("Internal IP", "192.0.2.1", ()),
        ("Ä", "192.0.2.1", ()),
    ],
)
def test_addresses_of_a_node(kind: str, address: str, found: tuple[tuple[str, str], ...]) -> None:
    [view] = read(node("one", (kind, address), labels={ZONE_LABEL: "a b"})).view.nodes
    assert (view.addresses, view.zone) == (found, "")
    assert view.address("InternalIP") == (found[0][1] if found else None)
    assert view.address("ExternalIP") is None


def test_a_node_whose_name_cannot_stand_in_a_configuration_is_refused() -> None:
    found = read(node("a b"), name="east")
    assert found.view.nodes == ()
    assert found.refused == (
        Refusal(
            ObjectRef("Node", "", "a b", "east"),
            "metadata.name",
            "a b",
            RefusalReason.INVALID_VALUE,
            "not a name that can stand in a configuration",
        ),
    )


def test_an_address_of_a_node_to_which_no_traffic_may_go_is_refused_alone() -> None:
    found = read(node("one", ("InternalIP", "192.0.2.1"), ("ExternalIP", "169.254.169.254")), name="east")
    [view] = found.view.nodes
    assert view.addresses == (("InternalIP", "192.0.2.1"),)
    [refusal] = found.refused
    assert (refusal.ref, refusal.field, refusal.value, refusal.reason) == (
        ObjectRef("Node", "", "one", "east"),
        "status.addresses",
        "169.254.169.254",
        RefusalReason.FORBIDDEN_ADDRESS,
    )
    assert refusal.detail == found.places.wrong("169.254.169.254")


def test_secrets_are_those_of_the_view_and_a_broken_one_keeps_its_former_certificate() -> None:
    key, (private, chain) = Key("demo", "tls"), certificate("shop.example.com")

    def tls(chain: str) -> Secret:
        data = {"tls.key": private, "tls.crt": chain}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        return Secret(ObjectMeta(key.name, key.namespace), "kubernetes.io/tls", encoded)

    whole, broken = tls(chain), tls("no certificate")
    found = cluster.read(Snapshot(secrets={key: whole}))
    assert found.secrets[key].view is not None
    assert found.view.certificates == (found.secrets[key].view,)
    assert cluster.read(Snapshot(secrets={key: broken})).secrets[key].view is None
    kept = cluster.read(Snapshot(secrets={key: broken}, former_secrets={key: whole})).secrets[key]
    assert kept.view == found.secrets[key].view
    assert kept.fault


def test_a_node_may_be_the_balancer() -> None:
    [view] = read(node(), host=HostFacts(frozenset({"192.0.2.1"}))).view.nodes
    assert view.addresses == (("InternalIP", "192.0.2.1"),)


def test_endpoints_count_where_a_service_has_no_slice() -> None:
    objects = (
        service("web"),
        slice_("web", endpoint("10.0.0.1")),
        endpoints(
            "web", None, EndpointSubset((EndpointAddress("10.0.0.2"),), ports=(EndpointPort("web", 8080, "TCP"),))
        ),
    )
    both = cluster.read(snapshot(*objects))
    alone = cluster.read(snapshot(objects[0], objects[2]))
    bare = cluster.read(snapshot(objects[2]))

    def addresses(found: Cluster) -> list[str]:
        view = found.service(Key("demo", "web"))
        return [each.address for port in (view.ports if view else ()) for each in port.endpoints]

    assert (addresses(both), addresses(alone), addresses(bare)) == (["10.0.0.1"], ["10.0.0.2"], ["10.0.0.2"])


def test_ready_endpoints_are_counted() -> None:
    pods = (endpoint("10.0.0.1"), endpoint("10.0.0.2", ready=False), endpoint("10.0.0.3"))
    found = cluster.read(snapshot(service("web"), slice_("web", *pods)))
    assert found.ready == 2
    assert [*ready_addresses(found.services[Key("demo", "web")])] == ["10.0.0.1", "10.0.0.3"]


@pytest.mark.parametrize(("namespace", "name", "refused"), [("default", "kubernetes", 0), ("default", "other", 1)])
def test_where_api_servers_are_is_no_fault_of_their_own_service(namespace: str, name: str, refused: int) -> None:
    objects = (service(name, namespace=namespace), slice_(name, endpoint("127.0.0.1"), namespace=namespace))
    assert len(cluster.read(snapshot(*objects)).refused) == refused
