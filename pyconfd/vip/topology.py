"""The virtual routers of ``[vip]`` as this node has to see them: peers, priorities, addresses [pure]."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address, ip_interface
from itertools import chain

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings.vip import NODES_AT_MOST, NodeSettings, RouterSettings, VipSettings

HIGHEST_PRIORITY = 250
"""High, since a backup waits (256 - priority) / 256 of an advert's time before it takes over."""
PRIORITY_STEP = 5


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node of a virtual router, with its own address."""

    name: str
    address: str
    priority: int


@dataclass(frozen=True)
class Router:
    """A virtual router: addresses (with prefixes) that move together by one election, and this node's part in it.

    An advert can name only addresses of the ``family`` in which it is sent: ``addresses``. The ``companions`` are those
    of the other IP version, which go with the same election. ``track_file`` is where the hook tells keepalived whether
    this node may hold them, ``source`` this node's own address that the adverts leave from.
    """

    id: int
    name: str
    preferred: str
    track_file: str
    family: int
    source: str
    peers: tuple[Peer, ...]
    addresses: tuple[str, ...]
    companions: tuple[str, ...]
    priority: int

    @property
    def place(self) -> int:
        """Return this node's place in the order of priorities, 0 for the highest."""
        return sum(peer.priority > self.priority for peer in self.peers)

    @cached_property
    def advertised(self) -> tuple[str, ...]:
        """Return the addresses that an advert names, without their prefixes."""
        return tuple(_bare(text) for text in self.addresses)

    @cached_property
    def bare(self) -> tuple[str, ...]:
        """Return the addresses of both IP versions without their prefixes."""
        return tuple(_bare(text) for text in (*self.addresses, *self.companions))


@dataclass(frozen=True, slots=True)
class Topology:
    """What follows from the settings for this node."""

    node: str
    routers: tuple[Router, ...]


@dataclass(frozen=True, slots=True)
class StickPeer:
    """A node whose haproxy shares stick tables at ``address`` (ADDRESS:PORT); ``own`` for this one."""

    name: str
    address: str
    own: bool


def stick_peers(settings: VipSettings, host_name: str) -> tuple[StickPeer, ...]:
    """Return the haproxies that share stick tables; none without a port, or where this node is none of them."""
    name = _node_name(settings, host_name)
    if not settings.peers_port or name not in {node.name for node in settings.nodes}:
        return ()
    return tuple(
        StickPeer(node.name, f"{_bracketed(node.addresses[0])}:{settings.peers_port}", node.name == name)
        for node in settings.nodes
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _node_name(settings: VipSettings, host_name: str) -> str:
    if settings.node or any(node.name == host_name for node in settings.nodes):
        return settings.node or host_name
    return host_name.partition(".")[0]


def topology(settings: VipSettings, host_name: str) -> Topology:
    """Return the topology as the node ``settings.node`` (else ``host_name``) has it.

    Raises:
        ConfigurationError: with every problem.
    """
    name = _node_name(settings, host_name)
    routers = (RouterSettings(settings.virtual_router_id, settings.addresses), *settings.routers)
    problems = [*_missing(settings, name), *_conflicts(settings, routers)]
    if problems:
        raise ConfigurationError(*problems)
    return Topology(
        node=name,
        routers=tuple(_router(settings, router, name) for router in routers),
    )


def _router(settings: VipSettings, router: RouterSettings, name: str) -> Router:
    preferred = router.preferred or settings.nodes[0].name
    ordered = sorted(settings.nodes, key=lambda node: node.name != preferred)
    family = _elected_in(router, ordered)
    nodes = [
        Peer(node.name, _own(node, family), HIGHEST_PRIORITY - PRIORITY_STEP * place)
        for place, node in enumerate(ordered)
    ]
    this = next(node for node in nodes if node.name == name)
    return Router(
        id=router.virtual_router_id,
        name=f"vip-{router.virtual_router_id}",
        preferred=preferred,
        track_file=f"{settings.runtime_dir}/track-{router.virtual_router_id}",
        family=family,
        source=this.address,
        peers=tuple(node for node in nodes if node is not this),
        addresses=tuple(text for text in router.addresses if ip_interface(text).version == family),
        companions=tuple(text for text in router.addresses if ip_interface(text).version != family),
        priority=this.priority,
    )


def _elected_in(router: RouterSettings, nodes: Sequence[NodeSettings]) -> int:
    """Return the family of the adverts: one of the router's own that all nodes have, IPv4 first."""
    families = sorted({ip_interface(text).version for text in router.addresses})
    return next((one for one in families if all(_own(node, one) for node in nodes)), families[0])


def _own(node: NodeSettings, family: int) -> str:
    return next((text for text in node.addresses if ip_address(text).version == family), "")


def _bare(text: str) -> str:
    return str(ip_interface(text).ip)


def _missing(settings: VipSettings, name: str) -> Iterator[Problem]:
    if not settings.interface:
        yield Problem("vip.interface", "is needed", "name the interface that carries the addresses, like eth0")
    if not settings.virtual_router_id:
        remedy = "choose a number from 1 to 255 that no other pair of routers or balancers on this network uses"
        yield Problem("vip.virtual_router_id", "is needed", remedy)
    if not settings.addresses:
        yield Problem("vip.addresses", "at least one is needed", "for example 192.0.2.10/24")
    if len(settings.nodes) < 2:
        yield Problem("vip.nodes", "at least two are needed", "a table [[vip.nodes]] with name and addresses for each")
    elif name not in {node.name for node in settings.nodes}:
        message = f"this node is {name}, and there are only {', '.join(node.name for node in settings.nodes)}"
        yield Problem("vip.nodes", message, "set vip.node, or add it to [[vip.nodes]]")


def _conflicts(settings: VipSettings, routers: tuple[RouterSettings, ...]) -> Iterator[Problem]:
    if len(settings.nodes) > NODES_AT_MOST:
        yield Problem("vip.nodes", f"there are {len(settings.nodes)}", f"at most {NODES_AT_MOST} can be ordered")
    if settings.virtual_router_id in {router.virtual_router_id for router in settings.routers}:
        message = f"{settings.virtual_router_id} is the number of vip.virtual_router_id already"
        yield Problem("vip.routers", message, "give each router a number of its own")
    names = {node.name for node in settings.nodes}
    for router in routers:
        if router.preferred and router.preferred not in names:
            yield Problem("vip.routers", f"{router.preferred} is no node", f"one of {', '.join(sorted(names))}")
    families = {_elected_in(router, settings.nodes) for router in routers if router.addresses}
    for node in settings.nodes:
        versions = [ip_address(text).version for text in node.addresses]
        for family in sorted(families - set(versions)):
            message = f"{node.name} has no IPv{family} address of its own"
            yield Problem("vip.nodes", message, "the adverts for the floating ones leave from it")
        if len(versions) != len(set(versions)):
            yield Problem("vip.nodes", f"{node.name} has two addresses of one family", "name the one to send from")
    used: set[str] = set()
    for text in chain.from_iterable(
        [*(one.addresses for one in routers), *(node.addresses for node in settings.nodes)]
    ):
        bare = text.partition("/")[0]
        if bare in used:
            yield Problem("vip.addresses", f"{bare} is there twice", "a floating address belongs to one router only")
        used.add(bare)
