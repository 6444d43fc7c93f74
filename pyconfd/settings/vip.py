"""``[vip]``: the floating address that keepalived and the hook ``pyconfd-vip`` share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_interface
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from pyconfd.settings.setting import YEAR_S, TextForm, setting
from pyconfd.settings.values import (
    Directory,
    Duration,
    FilePath,
    FloatingAddress,
    Interface,
    ItemName,
    NodeAddress,
    Port,
)


class Profile(StrEnum):
    """How soon a silent node is replaced; faults that a node sees itself are passed on at once in all of them."""

    SAFE = "safe"
    FAST = "fast"
    CLOUD = "cloud"


ADVERT_S: Mapping[Profile, float] = MappingProxyType({Profile.SAFE: 0.5, Profile.FAST: 0.1, Profile.CLOUD: 1.0})
"""Time between two adverts. Three lost ones and a node is taken for dead; virtual machines pause while they migrate."""

LOST_ADVERTS = 3
"""After so many missing adverts a backup takes over. Source: RFC 5798, Master_Down_Interval."""
HANG_ADVERTS = 2.5
"""Own adverts missing for so many intervals mean that keepalived hangs: before a backup takes over, after three."""
RETAKE_ADVERTS = 6
"""A faulty node waits for so many intervals: twice what a healthy one needs to take over."""

NODES_AT_MOST = 40
"""Each has a priority of its own above 50, five apart."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One load balancer: its name and its own addresses, at most one of each family."""

    name: ItemName
    addresses: tuple[NodeAddress, ...]


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """One virtual router: addresses that move together; ``preferred`` names the node that has them at start."""

    virtual_router_id: Annotated[int, Meta(ge=1, le=255)]
    addresses: tuple[FloatingAddress, ...]
    preferred: ItemName = ""


_HEALTH = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([0-9.]+)):(\d{1,5})(/[!-~]*)")


def health_place(text: str) -> tuple[str, int, str]:
    """Return the address, the port and the path of ADDRESS:PORT/PATH; raise ValueError where it is none."""
    found = _HEALTH.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise ValueError(text)
    return str(ip_address(found[1] or found[2])), int(found[3]), found[4]


_Health = Annotated[
    str,
    TextForm("ADDRESS:PORT/PATH", check=health_place),
    Meta(description="an address, a port and a path, like 127.0.0.1:8404/health or [::1]:8404/health"),
]


@dataclass(frozen=True, slots=True)
class VipSettings:
    """``[vip]``: which addresses float between which nodes, and how soon."""

    interface: Interface = setting("", "network interface that carries the floating addresses")
    virtual_router_id: Annotated[int, Meta(ge=0, le=255)] = setting(
        0,
        "number of the virtual router, 1 to 255, unique among all VRRP routers on this network; required, there is no"
        " safe default",
        empty="none",
    )
    addresses: tuple[FloatingAddress, ...] = setting((), "the floating addresses, with their prefixes, IPv4 and IPv6")
    nodes: tuple[NodeSettings, ...] = setting(
        (),
        "the load balancers in the order in which they shall hold the address, each a table [[vip.nodes]] with"
        " name and addresses (its own, at most one of each family)",
    )
    node: str = setting("", "which of the nodes this one is", empty="the host's name")
    routers: tuple[RouterSettings, ...] = setting(
        (),
        "further virtual routers, each a table [[vip.routers]] with virtual_router_id, addresses and maybe"
        " preferred, the node that has them at start",
    )
    profile: Profile = setting(
        Profile.SAFE,
        "time between two adverts: safe 0.5 s, fast 0.1 s, cloud 1 s (virtual machines pause while they migrate)",
    )
    ports: tuple[Port, ...] = setting(
        (), "TCP ports that haproxy must listen on, or the node is faulty", empty="not looked at"
    )
    ping_interval_s: Duration = setting(0.05, "pause between two questions to haproxy's socket")
    ping_timeout_s: Duration = setting(0.2, "longest time haproxy may take for an answer")
    ping_misses: Annotated[int, Meta(ge=1, le=100)] = setting(
        2, "answers missed in a row after which haproxy counts as hanging"
    )
    health: _Health = setting(
        "",
        "where haproxy is asked as a client asks, like 127.0.0.1:8404/health of the shipped fragments; any HTTP"
        " answer is one, refusals and silence are missed answers",
        empty="not asked",
    )
    health_timeout_s: Duration = setting(1.0, "longest time haproxy may take for that answer")
    gateways: tuple[NodeAddress, ...] = setting(
        (),
        "next routers of the network, IPv4 and IPv6: if none answers, nor a peer, and nothing comes in at all,"
        " or the route to one that was set up here is gone, the node is faulty",
        empty="not looked at",
    )
    gateway_s: Annotated[float, Meta(ge=1, le=YEAR_S)] = setting(3.0, "silence of all gateways that raises an alarm")
    carrier_settle_s: Duration = setting(
        1.0,
        "a carrier that has come back is trusted after so long, and after twice as long for each further loss"
        " within a minute, 32 s at most",
    )
    peers_port: Annotated[int, Meta(ge=0, le=65535)] = setting(
        0,
        "TCP port on which the haproxies of the nodes exchange their stick tables, as the shipped"
        " fragments have it; the same on all nodes",
        empty="none",
    )
    reset_sessions: bool = setting(
        True,
        "when an address leaves this node, reset the connections to it that are left: their clients try again at"
        " once instead of waiting",
    )
    fencing: bool = setting(
        True,
        "when keepalived is dead or hangs while the address is there, remove the address, then send the advert with"
        " priority 0 in keepalived's stead",
    )
    offer_s: Duration = setting(
        30.0, "how often a faulty node that holds the address, for want of a healthy one, offers it to the others"
    )
    grace_s: Annotated[float, Meta(ge=2, le=YEAR_S)] = setting(
        2.0, "silence of the hook after which keepalived's own check judges instead, whether haproxy lives"
    )
    haproxy_pid_file: FilePath = setting("/run/haproxy/haproxy.pid", "file with the number of haproxy's process")
    haproxy_socket: FilePath = setting("/run/haproxy/pyconfd.sock", "socket on which haproxy is asked whether it lives")
    keepalived_pid_file: FilePath = setting("/run/keepalived.pid", "file with the number of keepalived's process")
    vrrp_pid_file: FilePath = setting("/run/vrrp.pid", "file with the number of keepalived's VRRP process")
    script_dir: Directory = setting("/opt/pyconfd/libexec", "directory of the scripts that keepalived runs")
    runtime_dir: Directory = setting("/run/pyconfd-vip", "track files, heartbeat and control socket of the hook")
    state_dir: Directory = setting("/var/lib/pyconfd-vip", "what the hook keeps: drain state and transitions")

    @property
    def fifo(self) -> str:
        """Return where keepalived reports its transitions to the hook."""
        return f"{self.runtime_dir}/notify.fifo"

    @property
    def heartbeat(self) -> str:
        """Return the file by which keepalived's own check knows that the hook lives."""
        return f"{self.runtime_dir}/heartbeat"

    @property
    def advert_s(self) -> float:
        """Return the time between two adverts."""
        return ADVERT_S[self.profile]

    @property
    def hang_s(self) -> float:
        """Return how long own adverts may be missing until keepalived counts as hanging."""
        return HANG_ADVERTS * self.advert_s

    @property
    def late_s(self) -> float:
        """Return after how long without an own advert the kernel is asked whether any could leave.

        A peer that can be reached for the rest of ``hang_s`` would have been sent one.
        """
        return self.advert_s

    @property
    def missed_s(self) -> float:
        """Return after how long without an advert of the holder a backup asks whether it hears anything."""
        return 1.2 * self.advert_s

    @property
    def hurry_s(self) -> float:
        """Return how often it asks: DEAF_QUESTIONS times before keepalived takes over, after three adverts."""
        return 0.25 * self.advert_s

    @property
    def down_s(self) -> float:
        """Return how long a master may be silent before a backup takes over."""
        return (LOST_ADVERTS + 1) * self.advert_s

    @property
    def retake_s(self) -> float:
        """Return how long a faulty node waits for a better one before it takes the address back."""
        return RETAKE_ADVERTS * self.advert_s

    @property
    def listed(self) -> tuple[str, ...]:
        """Return the floating addresses of all routers in their order, without prefixes."""
        given = (*self.addresses, *(each for router in self.routers for each in router.addresses))
        return tuple(str(ip_interface(each).ip) for each in given)

    @property
    def floating(self) -> frozenset[str]:
        """Return the floating addresses of all routers, without prefixes."""
        return frozenset(self.listed)
