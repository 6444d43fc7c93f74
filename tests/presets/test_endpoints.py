"""Where traffic for a port goes: endpoints of slices, in one family, or a node port on nodes."""

import ipaddress

import msgspec
import pytest

from pyconfd.model.context import RefusalReason
from pyconfd.model.kubernetes import (
    Endpoint,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
    Service,
    ServicePort,
    TargetRef,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.endpoints import (
    EXTERNAL_NAME,
    NO_TCP,
    Join,
    TargetOptions,
    in_one_family,
    join,
    node_targets,
    owner_of,
    pod_targets,
    slices_by_service,
    slices_of_endpoints,
    targets_of_port,
    targets_on_nodes,
    unservable,
)
from pyconfd.presets.policy import AllowedAddresses
from pyconfd.presets.views import EndpointView, NodeView, PortView
from tests.presets.objects import endpoint, service, slice_

ANYWHERE = AllowedAddresses()


def joined(of: Service | None, *slices: EndpointSlice, places: AllowedAddresses = ANYWHERE) -> Join:
    return join(of, list(slices), cluster="c", places=places)


def view(address: str, state: str = "ready", node: str = "") -> EndpointView:
    return EndpointView(address, 80, state, "ipv6" if ":" in address else "ipv4", node=node)


def port(*endpoints: EndpointView, node_port: int = 30080) -> PortView:
    return PortView("web", 80, "TCP", node_port, 8080, endpoints)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (service("a"), ""),
        (service("a", ports=()), ""),
        (service("a", type_="ExternalName"), EXTERNAL_NAME),
        (service("a", ports=(ServicePort("dns", 53, protocol="UDP"),)), NO_TCP),
        (service("a", ports=(ServicePort("dns", 53, protocol="UDP"), ServicePort("web", 80, protocol=None))), ""),
    ],
)
def test_why_a_service_cannot_be_served(of: Service, why: str) -> None:
    assert unservable(of) == why


def test_slices_belong_to_the_service_of_their_label() -> None:
    loose = msgspec.structs.replace(slice_("a"), metadata=ObjectMeta("loose", "demo"))
    slices = [slice_("a", suffix="2"), slice_("a", suffix="1"), slice_("a", namespace="other"), loose]
    by_key = {Key(each.metadata.namespace, each.metadata.name): each for each in slices}
    assert owner_of(Key("demo", "loose"), loose) is None
    assert {owner: [each.metadata.name for each in found] for owner, found in slices_by_service(by_key).items()} == {
        Key("demo", "a"): ["a-1", "a-2"],
        Key("other", "a"): ["a-a"],
    }


def test_endpoints_are_slices_by_subset_and_family() -> None:
    pod = TargetRef("Pod", "p")
    ports = (EndpointPort("web", 8080, "TCP"),)
    subsets = (
        EndpointSubset((EndpointAddress("10.0.0.1", "n", pod), EndpointAddress("fd00::1")), None, ports),
        EndpointSubset(None, (EndpointAddress("10.0.0.2"),), ports),
        EndpointSubset(None, None, ports),
    )
    made = slices_of_endpoints(Endpoints(ObjectMeta("a", "demo"), subsets))
    found = [
        (each.address_type, e.addresses, e.conditions and e.conditions.ready, e.node_name, e.target_ref)
        for each in made
        for e in each.endpoints or ()
    ]
    assert found == [
        ("IPv4", ("10.0.0.1",), None, "n", pod),
        ("IPv6", ("fd00::1",), None, None, None),
        ("IPv4", ("10.0.0.2",), False, None, None),
    ]
    assert {(each.metadata.namespace, each.metadata.name, each.ports) for each in made} == {("demo", "a", ports)}


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "state", "conditions"),
    [
        (True, None, None, "ready", (True, True, False)),
        (None, None, None, "ready", (True, True, False)),
        (True, False, False, "ready", (True, False, False)),
        (False, None, None, "down", (False, False, False)),
        (False, True, None, "down", (False, True, False)),
        # With nothing ready beside it what still serves gets the traffic (KEP-1669).
        (False, True, True, "ready", (False, True, True)),
        (True, False, True, "ready", (True, False, True)),
        (False, False, True, "down", (False, False, True)),
    ],
)
def test_the_state_of_an_endpoint(
    ready: bool | None, serving: bool | None, terminating: bool | None, state: str, conditions: tuple[bool, bool, bool]
) -> None:
    one = endpoint("10.0.0.1", ready=ready, serving=serving, terminating=terminating)
    [found] = joined(service("a"), slice_("a", one)).ports[0].endpoints
    assert (found.state, (found.ready, found.serving, found.terminating)) == (state, conditions)


def test_what_terminates_drains_beside_an_endpoint_that_is_ready() -> None:
    leaving = endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    found = joined(service("a"), slice_("a", leaving, endpoint("10.0.0.2"))).ports[0].endpoints
    assert [each.state for each in found] == ["draining", "ready"]


@pytest.mark.parametrize("turned", [False, True])
def test_an_endpoint_of_two_slices_has_its_better_state_and_order_is_by_number(turned: bool) -> None:
    slices = [
        slice_("a", endpoint("10.0.0.9", ready=False), endpoint("10.0.0.10"), suffix="1"),
        slice_("a", endpoint("10.0.0.9"), endpoint("fd00::1"), suffix="2"),
    ]
    found = joined(service("a"), *(reversed(slices) if turned else slices)).ports[0].endpoints
    assert [(each.address, each.state) for each in found] == [
        ("10.0.0.9", "ready"),
        ("10.0.0.10", "ready"),
        ("fd00::1", "ready"),
    ]


@pytest.mark.parametrize(
    ("wanted", "given", "found"),
    [
        # (name, protocol, target of the Service's port), (name, number, protocol of the slice's): target, endpoints
        (ServicePort("web", 80, "web"), EndpointPort("web", 8080, "TCP"), ("web", "TCP", 8080, 1)),
        (ServicePort("web", 80, 9090), EndpointPort("web", 8080, None), ("web", "TCP", 8080, 1)),
        (ServicePort(None, 80, 9090), EndpointPort("", 8080, "TCP"), ("", "TCP", 8080, 1)),
        (ServicePort("web", 80, 9090), EndpointPort("other", 8080, "TCP"), ("web", "TCP", 9090, 0)),
        (ServicePort("web", 80, "web"), EndpointPort("web", 8080, "UDP"), ("web", "TCP", 80, 0)),
        (ServicePort("dns", 53, 5353, protocol="UDP"), EndpointPort("dns", 5354, "UDP"), ("dns", "UDP", 5354, 1)),
        (ServicePort("web", 80, protocol="QUIC"), EndpointPort("web", 1, "QUIC"), ("web", "", 1, 1)),
        (ServicePort("web", 80, "web"), EndpointPort("web", 0, "TCP"), ("web", "TCP", 80, 0)),
        (ServicePort("web", 80, "web"), EndpointPort("web", 65535, "TCP"), ("web", "TCP", 65535, 1)),
        (ServicePort("web", 80, "web"), EndpointPort("web", 65536, "TCP"), ("web", "TCP", 80, 0)),
        (ServicePort("web", 80, "web"), EndpointPort("web", None, "TCP"), ("web", "TCP", 80, 0)),
    ],
)
def test_a_port_has_the_endpoints_of_the_slices_port_with_its_name_and_protocol(
    wanted: ServicePort, given: EndpointPort, found: tuple[str, str, int, int]
) -> None:
    [made] = joined(service("a", ports=(wanted,)), slice_("a", endpoint("10.0.0.1"), ports=(given,))).ports
    assert (made.name, made.protocol, made.target_port, len(made.endpoints)) == found
    assert all(each.port == made.target_port for each in made.endpoints)


def test_without_a_service_the_ports_are_those_of_the_slices() -> None:
    ports = (EndpointPort("web", 8080, "TCP"), EndpointPort(None, 81, None), EndpointPort("bad", 0, "TCP"))
    slices = (slice_("a", endpoint("10.0.0.1"), ports=ports), slice_("a", endpoint("10.0.0.2"), ports=ports[:1]))
    found = joined(None, *slices).ports
    assert [(each.name, each.port, each.target_port, len(each.endpoints)) for each in found] == [
        ("web", 8080, 8080, 2),
        ("", 81, 81, 1),
    ]


@pytest.mark.parametrize(
    ("one", "field", "value", "reason"),
    [
        (endpoint("host.example"), "endpoints.addresses", "host.example", RefusalReason.INVALID_VALUE),
        (endpoint("10.0.0.9"), "endpoints.addresses", "10.0.0.9", RefusalReason.FORBIDDEN_ADDRESS),
        (endpoint("10.0.0.1", pod="a b"), "endpoints.targetRef.name", "a b", RefusalReason.INVALID_VALUE),
        (endpoint("10.0.0.1", node="a\nb"), "endpoints.nodeName", "a\nb", RefusalReason.INVALID_VALUE),
        (endpoint("10.0.0.1", zone="a b"), "endpoints.zone", "a b", RefusalReason.INVALID_VALUE),
    ],
)
def test_what_is_left_out_of_a_slice_is_refused(one: Endpoint, field: str, value: str, reason: RefusalReason) -> None:
    places = AllowedAddresses(networks=(ipaddress.ip_network("10.0.0.0/29"),))
    made = joined(service("a"), slice_("a", one), places=places)
    [refused] = made.refused
    assert (refused.field, refused.reason) == (field, reason)
    assert (refused.ref.kind, refused.ref.namespace, refused.ref.name, refused.ref.cluster) == (
        "EndpointSlice", "demo", "a-a", "c",
    )  # fmt: skip
    assert refused.value == values.shortened(value)
    assert len(made.ports[0].endpoints) == (field != "endpoints.addresses")


def test_a_name_of_a_port_that_is_none_is_refused_at_the_service() -> None:
    made = joined(service("a", ports=(ServicePort("a b", 80, 8080),)))
    assert [each.name for each in made.ports] == [""]
    assert [(each.ref.kind, each.ref.name, each.field) for each in made.refused] == [
        ("Service", "a", "spec.ports.name")
    ]


V4, V6 = view("10.0.0.1"), view("fd00::1")


@pytest.mark.parametrize(
    ("endpoints", "families", "chosen"),
    [
        ((V4,), ("IPv6",), (V4,)),
        ((V4, V6), (), (V4,)),
        ((V4, V6), ("IPv6", "IPv4"), (V6,)),
        ((view("10.0.0.1", "down"), V6), ("IPv4",), (V6,)),
        ((view("10.0.0.1", "draining"), view("fd00::1", "down")), ("IPv6",), (view("fd00::1", "down"),)),
        ((), (), ()),
    ],
)
def test_a_pod_of_two_families_counts_once(
    endpoints: tuple[EndpointView, ...], families: tuple[str, ...], chosen: tuple[EndpointView, ...]
) -> None:
    assert in_one_family(endpoints, families) == chosen


def test_pods_that_are_down_get_no_server() -> None:
    draining = view("10.0.0.2", "draining")
    assert pod_targets(port(V4, draining, view("10.0.0.3", "down")), None) == (V4, draining)
    assert pod_targets(port(V4, V6), service("a", families=("IPv6",))) == (V6,)


def node(name: str, *addresses: tuple[str, str], eligible: bool = True) -> NodeView:
    return NodeView(name, "zone", addresses, ready=eligible, schedulable=True, eligible=eligible)


@pytest.mark.parametrize(
    ("kinds", "wanted", "found"),
    [
        (("InternalIP",), (), ["10.0.0.1", "fd00::2"]),
        (("ExternalIP", "InternalIP"), (), ["192.0.2.1", "fd00::2"]),
        (("InternalIP",), ("IPv6",), ["fd00::1", "fd00::2"]),
        (("InternalIP",), ("IPv4",), ["10.0.0.1"]),
        (("ExternalIP",), ("IPv6",), []),
        ((), (), []),
    ],
)
def test_a_node_is_at_its_first_address_of_the_first_kind(
    kinds: tuple[str, ...], wanted: tuple[str, ...], found: list[str]
) -> None:
    nodes = (
        node("one", ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("ExternalIP", "192.0.2.1")),
        node("two", ("Hostname", "10.9.9.9"), ("InternalIP", "no address"), ("InternalIP", "fd00::2")),
        node("gone", ("InternalIP", "10.0.0.3"), eligible=False),
    )
    made = node_targets(nodes, kinds, wanted)
    assert [each.address for each in made] == found
    assert all((each.family, each.zone) == ("ipv6" if ":" in each.address else "ipv4", "zone") for each in made)


def test_a_local_policy_sends_to_nodes_with_an_endpoint_only() -> None:
    at = port(view("10.0.0.1", node="a"), view("10.0.0.2", "draining", "a"), view("10.0.0.3", "draining", "b"))
    at = port(*at.endpoints, view("10.0.0.4", "down", "c"))
    nodes = tuple(view(f"192.0.2.{number}", node=name) for number, name in enumerate("abc"))
    states = [(each.node, each.state) for each in targets_on_nodes(at, service("a", policy="Local"), nodes)]
    assert states == [("a", "ready"), ("b", "draining")]
    assert targets_on_nodes(at, service("a", policy="Cluster"), nodes) == nodes
    assert targets_on_nodes(at, None, nodes) == nodes


@pytest.mark.parametrize(
    ("node_ports", "node_port", "found"),
    [
        (False, 30080, [("10.0.0.9", 80)]),
        (True, 30080, [("192.0.2.1", 30080)]),
        (True, 65535, [("192.0.2.1", 65535)]),
        (True, 1, [("192.0.2.1", 1)]),
        (True, 0, []),
        (True, 65536, []),
    ],
)
def test_targets_are_pods_or_node_ports(node_ports: bool, node_port: int, found: list[tuple[str, int]]) -> None:
    options = TargetOptions(node_ports=node_ports, node_address_types=("InternalIP",))
    nodes = (node("n", ("InternalIP", "192.0.2.1")),)
    made = targets_of_port(port(view("10.0.0.9"), node_port=node_port), service("a"), nodes, options)
    assert [(each.address, each.port) for each in made] == found
