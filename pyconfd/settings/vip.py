"""The section of the floating address: what keepalived and the hook ``pyconfd-vip`` share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface
from types import MappingProxyType
from typing import Annotated, Any

from pyconfd.settings.kinds import Boolean, Count, Kind, Listing, NotAcceptedError, PathText, Seconds, Text, choice_of
from pyconfd.settings.setting import Setting
from pyconfd.settings.tables import ITEM_NAME, Tables


class Profile(StrEnum):
    """How soon a silent node is replaced; faults that a node sees itself are passed on at once in all of them."""

    SAFE = "safe"
    FAST = "fast"
    CLOUD = "cloud"


ADVERT_S: Mapping[Profile, float] = MappingProxyType({Profile.SAFE: 0.5, Profile.FAST: 0.1, Profile.CLOUD: 1.0})
"""Time between two adverts. Three lost ones and a node is taken for dead; virtual machines pause while they migrate."""

NODES_AT_MOST = 40
"""Each has a priority of its own above 50, five apart."""
_VRID = Count(1, 255)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One load balancer: its name and its own addresses, at most one of each family."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """One virtual router: addresses that move together; ``preferred`` names the node that has them at start."""

    virtual_router_id: int
    addresses: tuple[str, ...]
    preferred: str = ""


@dataclass(frozen=True)
class NumberOrNone(Kind):
    """A number from 1 to ``most``, or 0 for none."""

    most: int
    metavar: str = "NUMBER"

    def parse(self, value: object) -> int:
        """Return the number."""
        return 0 if value in {0, "0"} and value is not False else Count(1, self.most).parse(value)

    def text(self, value: Any) -> str:
        """Return the number, "" for none."""
        return str(value or "")


def floating_address(text: str) -> str:
    """Return ADDRESS/PREFIX in its usual spelling; without a prefix it is the address alone (/32 or /128).

    Raises:
        NotAcceptedError: it is none, or one that cannot float (loopback, multicast, link-local).
    """
    expected = "an address with its prefix, like 192.0.2.10/24 or 2001:db8::10/64"
    try:
        found = ip_interface(text)
    except ValueError:
        raise NotAcceptedError(expected, text) from None
    _usable(found.ip, text, expected)
    return str(found)


def _node_address(text: str) -> str:
    expected = "an address of the node, like 192.0.2.11"
    try:
        found = ip_address(text)
    except ValueError:
        raise NotAcceptedError(expected, text) from None
    _usable(found, text, expected)
    return str(found)


def _usable(address: IPv4Address | IPv6Address, text: str, expected: str) -> None:
    scoped = isinstance(address, IPv6Address) and address.scope_id
    if address.is_loopback or address.is_multicast or address.is_unspecified or scoped:
        raise NotAcceptedError(expected, text)


def _interface(text: str) -> str:
    if not re.fullmatch(r"[^\s/:\"{}]{1,15}", text):
        raise NotAcceptedError("the name of a network interface, like eth0", text)
    return text


_HEALTH = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([0-9.]+)):(\d{1,5})(/[!-~]*)")


def health_place(text: str) -> tuple[str, int, str]:
    """Return the address, the port and the path of ADDRESS:PORT/PATH.

    Raises:
        NotAcceptedError: it is none.
    """
    expected = "an address, a port and a path, like 127.0.0.1:8404/health or [::1]:8404/health"
    found = _HEALTH.fullmatch(text)
    if found is None:
        raise NotAcceptedError(expected, text)
    try:
        address = ip_address(found[1] or found[2])
    except ValueError:
        raise NotAcceptedError(expected, text) from None
    return str(address), Count(1, 65535).parse(found[3]), found[4]


@dataclass(frozen=True)
class Health(Text):
    """Where haproxy is asked as a client asks."""

    metavar: str = "ADDRESS:PORT/PATH"

    def parse(self, value: object) -> str:
        """Return it as it was given."""
        text = super().parse(value)
        if text:
            health_place(text)
        return text


def _port(text: str) -> str:
    return str(Count(1, 65535).parse(text))


@dataclass(frozen=True)
class Interface(Text):
    """The name of a network interface."""

    metavar: str = "NAME"

    def parse(self, value: object) -> str:
        """Return the name."""
        text = super().parse(value)
        return _interface(text) if text else text


_ADDRESSES = Listing(floating_address, metavar="ADDRESS/PREFIX,...")
_NODES = Tables(
    name="vip.nodes",
    item="node",
    keys=MappingProxyType({"name": ITEM_NAME, "addresses": Listing(_node_address)}),
    required=("name", "addresses"),
    make=NodeSettings,
    unique=("name", "addresses"),
    title=lambda node: str(node.name),
)
_ROUTERS = Tables(
    name="vip.routers",
    item="router",
    keys=MappingProxyType({"virtual_router_id": _VRID, "addresses": Listing(floating_address), "preferred": ITEM_NAME}),
    required=("virtual_router_id", "addresses"),
    make=RouterSettings,
    unique=("virtual_router_id",),
    title=lambda router: str(router.virtual_router_id),
)
_PEERS_PORT = NumberOrNone(65535)
_DIRECTORY = PathText(optional=False, directory=True)
_FILE = PathText(optional=False)


@dataclass(frozen=True, slots=True)
class VipSettings:
    """``[vip]``: which addresses float between which nodes, and how soon."""

    interface: Annotated[
        str, Setting("network interface that carries the floating addresses", Interface(), empty="none")
    ] = ""
    virtual_router_id: Annotated[
        int,
        Setting(
            "number of the virtual router, 1 to 255, that nobody else uses on this network; required, there is no"
            " safe default",
            NumberOrNone(255),
            empty="none",
        ),
    ] = 0
    addresses: Annotated[
        tuple[str, ...], Setting("the floating addresses, with their prefixes, IPv4 and IPv6", _ADDRESSES, empty="none")
    ] = ()
    nodes: Annotated[
        tuple[NodeSettings, ...],
        Setting(
            "the load balancers in the order in which they shall hold the address, each a table [[vip.nodes]] with"
            " name and addresses (its own, at most one of each family)",
            _NODES,
            empty="none",
        ),
    ] = ()
    node: Annotated[str, Setting("which of the nodes this one is", Text(), empty="the host's name")] = ""
    routers: Annotated[
        tuple[RouterSettings, ...],
        Setting(
            "further virtual routers, each a table [[vip.routers]] with virtual_router_id, addresses and maybe"
            " preferred, the node that has them at start",
            _ROUTERS,
            empty="none",
        ),
    ] = ()
    profile: Annotated[
        Profile,
        Setting(
            "time between two adverts: safe 0.5 s, fast 0.1 s, cloud 1 s (virtual machines pause while they migrate)",
            choice_of(Profile),
        ),
    ] = Profile.SAFE
    ports: Annotated[
        tuple[str, ...],
        Setting("TCP ports that haproxy must listen on, or the node is faulty", Listing(_port), empty="not looked at"),
    ] = ()
    ping_interval_s: Annotated[float, Setting("pause between two questions to haproxy's socket", Seconds())] = 0.05
    ping_timeout_s: Annotated[float, Setting("longest time haproxy may take for an answer", Seconds())] = 0.2
    ping_misses: Annotated[int, Setting("answers missed in a row that make haproxy hang", Count(1, 100))] = 2
    health: Annotated[
        str,
        Setting(
            "where haproxy is asked as a client asks, like 127.0.0.1:8404/health of the shipped fragments; any HTTP"
            " answer is one, refusals and silence are missed answers",
            Health(),
            empty="not asked",
        ),
    ] = ""
    health_timeout_s: Annotated[float, Setting("longest time haproxy may take for that answer", Seconds())] = 1.0
    gateways: Annotated[
        tuple[str, ...],
        Setting(
            "next routers of the network, IPv4 and IPv6: where none answers, nor a peer, and nothing comes in at all,"
            " or the route to one that was set up here is gone, the node is faulty",
            Listing(_node_address),
            empty="not looked at",
        ),
    ] = ()
    gateway_s: Annotated[float, Setting("silence of all gateways that is told", Seconds(least=1, above=False))] = 3.0
    carrier_settle_s: Annotated[
        float,
        Setting(
            "a carrier that has come back is trusted after so long, and after twice as long for each further loss"
            " within a minute, 32 s at most",
            Seconds(),
        ),
    ] = 1.0
    peers_port: Annotated[
        int,
        Setting(
            "TCP port on which the haproxies of the nodes tell one another their stick tables, as the shipped"
            " fragments have it; the same on all nodes",
            _PEERS_PORT,
            empty="none",
        ),
    ] = 0
    reset_sessions: Annotated[
        bool,
        Setting(
            "when an address leaves this node, reset the connections to it that are left: their clients try again at"
            " once instead of waiting",
            Boolean(),
        ),
    ] = True
    fencing: Annotated[
        bool, Setting("take the address off when keepalived is dead or hangs while it is there", Boolean())
    ] = True
    farewell: Annotated[
        bool, Setting("after that send the advert by which a dying keepalived lets the next one in at once", Boolean())
    ] = True
    offer_s: Annotated[
        float,
        Setting("a faulty node that holds the address, since nobody else did, offers it again so often", Seconds()),
    ] = 30.0
    grace_s: Annotated[
        float,
        Setting(
            "silence of the hook after which keepalived's own slow check judges instead", Seconds(least=2, above=False)
        ),
    ] = 10.0
    haproxy_pid_file: Annotated[str, Setting("file with the number of haproxy's process", _FILE)] = (
        "/run/haproxy/haproxy.pid"
    )
    haproxy_socket: Annotated[str, Setting("socket on which haproxy is asked whether it lives", _FILE)] = (
        "/run/haproxy/pyconfd.sock"
    )
    keepalived_pid_file: Annotated[str, Setting("file with the number of keepalived's process", _FILE)] = (
        "/run/keepalived.pid"
    )
    vrrp_pid_file: Annotated[str, Setting("file with the number of keepalived's VRRP process", _FILE)] = "/run/vrrp.pid"
    script_dir: Annotated[str, Setting("directory of the scripts that keepalived runs", _DIRECTORY)] = (
        "/opt/pyconfd/libexec"
    )
    runtime_dir: Annotated[str, Setting("track files, heartbeat and control socket of the hook", _DIRECTORY)] = (
        "/run/pyconfd-vip"
    )
    state_dir: Annotated[str, Setting("what the hook keeps: drain state and transitions", _DIRECTORY)] = (
        "/var/lib/pyconfd-vip"
    )

    @property
    def floating(self) -> frozenset[str]:
        """The floating addresses of all routers, without prefixes."""
        given = (*self.addresses, *(each for router in self.routers for each in router.addresses))
        return frozenset(each.partition("/")[0] for each in given)
