"""Who holds what before whom, and what contradicts itself."""

from typing import Any

import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.settings.vip import NodeSettings, RouterSettings, VipSettings
from pyconfd.vip.topology import topology

NODES = (
    NodeSettings("lb1", ("192.0.2.11", "2001:db8::11")),
    NodeSettings("lb2", ("192.0.2.12", "2001:db8::12")),
    NodeSettings("lb3", ("192.0.2.13", "2001:db8::13")),
)
V6_ONLY: dict[str, Any] = {"addresses": ("2001:db8::10/64",)}


def settings(**changed: Any) -> VipSettings:
    usual: dict[str, Any] = {
        "interface": "eth0",
        "virtual_router_id": 51,
        "addresses": ("192.0.2.10/24", "2001:db8::10/64"),
        "nodes": NODES,
    }
    return VipSettings(**(usual | changed))


def test_priorities_follow_the_order_and_one_election_is_for_both_families() -> None:
    seen = {node.name: topology(settings(), node.name) for node in NODES}
    assert [found.routers[0].priority for found in seen.values()] == [250, 245, 240]
    (second,) = seen["lb2"].routers
    assert (second.name, second.family, second.source) == ("vip-51", 4, "192.0.2.12")
    assert [(peer.name, peer.address, peer.priority) for peer in second.peers] == [
        ("lb1", "192.0.2.11", 250),
        ("lb3", "192.0.2.13", 240),
    ]
    assert (second.advertised, second.bare) == (("192.0.2.10",), ("192.0.2.10", "2001:db8::10"))


@pytest.mark.parametrize(
    ("addresses", "own", "family"),
    [
        (("192.0.2.10/24", "2001:db8::10/64"), ("192.0.2.12",), 4),
        (("192.0.2.10/24", "2001:db8::10/64"), ("2001:db8::12",), 6),
        (("2001:db8::10/64",), ("192.0.2.12", "2001:db8::12"), 6),
    ],
)
def test_a_router_is_elected_in_a_family_of_its_own_that_all_nodes_have(
    addresses: tuple[str, ...], own: tuple[str, ...], family: int
) -> None:
    nodes = (NODES[0], NodeSettings("lb2", own))
    (one,) = topology(settings(addresses=addresses, nodes=nodes), "lb2").routers
    assert (one.family, set(one.bare)) == (family, {text.partition("/")[0] for text in addresses})


def test_a_preferred_node_comes_first_and_the_others_keep_their_order() -> None:
    routers = (RouterSettings(52, ("192.0.2.20/32",), "lb3"),)
    priorities = [topology(settings(routers=routers), node.name).routers[1].priority for node in NODES]
    assert priorities == [245, 240, 250]


def test_the_host_name_names_the_node_with_or_without_its_domain() -> None:
    assert topology(settings(), "lb2.example.com").node == "lb2"
    nodes = (NodeSettings("lb1.example.com", ("192.0.2.11", "2001:db8::11")), *NODES[1:])
    assert topology(settings(nodes=nodes), "lb1.example.com").node == "lb1.example.com"
    assert topology(settings(node="lb3"), "elsewhere").node == "lb3"


@pytest.mark.parametrize(
    ("changed", "place", "words"),
    [
        ({"interface": ""}, "vip.interface", "needed"),
        ({"virtual_router_id": 0}, "vip.virtual_router_id", "needed"),
        ({"addresses": ()}, "vip.addresses", "needed"),
        ({"nodes": NODES[:1]}, "vip.nodes", "at least two"),
        ({"node": "lb9"}, "vip.nodes", "this node is lb9"),
        ({"routers": (RouterSettings(51, ("192.0.2.20/32",)),)}, "vip.routers", "already"),
        ({"routers": (RouterSettings(52, ("192.0.2.20/32",), "lb9"),)}, "vip.routers", "lb9 is no node"),
        ({"routers": (RouterSettings(52, ("192.0.2.10/32",)),)}, "vip.addresses", "twice"),
        ({"addresses": ("192.0.2.12/24",)}, "vip.addresses", "twice"),
        (V6_ONLY | {"nodes": (NodeSettings("lb1", ("192.0.2.11",)), *NODES[1:])}, "vip.nodes", "no IPv6"),
        ({"nodes": (NodeSettings("lb1", ("192.0.2.1", "192.0.2.2", "2001:db8::1")), *NODES[1:])}, "vip.nodes", "two"),
    ],
)
def test_what_cannot_work_is_told(changed: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        topology(settings(**changed), "lb1")
    assert any(problem.place == place and words in problem.message for problem in raised.value.problems)


def test_everything_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        topology(VipSettings(), "lb1")
    places = {problem.place for problem in raised.value.problems}
    assert places == {"vip.interface", "vip.virtual_router_id", "vip.addresses", "vip.nodes"}
