"""What templates of preset ``kube2lb`` see: services, ports, endpoints and nodes, printed as that system did."""

from ipaddress import ip_address
from typing import Self

import msgspec


class Kube2lbPort(msgspec.Struct, frozen=True, gc=False):
    """Where to listen: ``ip`` as text without brackets, ``mode`` "http" or "tcp", ``protocol`` "tcp", "udp", "sctp".

    It prints as a label: the address in hexadecimal digits, port, protocol and mode, such as ``0a000001_80_tcp_http``.
    """

    ip: str
    port: int
    mode: str
    protocol: str

    def __str__(self) -> str:
        return f"{ip_address(self.ip).packed.hex()}_{self.port}_{self.protocol}_{self.mode}"

    @property
    def bind(self) -> str:
        """Address and port, an IPv6 address in brackets."""
        return _hostport(self.ip, self.port)


class Kube2lbEndpoint(msgspec.Struct, frozen=True, gc=False):
    """One address to send traffic to; ``name`` is that of the pod (or node), else the address.

    It prints as ``ip:port``. ``state`` is "ready" or "draining"; ``pod``, ``node`` and ``zone`` are "" where unknown.
    """

    name: str
    ip: str
    port: int
    state: str = "ready"
    pod: str = ""
    node: str = ""
    zone: str = ""

    def __str__(self) -> str:
        return _hostport(self.ip, self.port)

    @property
    def address(self) -> str:
        """The address, under the name that the filters know."""
        return self.ip

    @property
    def family(self) -> str:
        """Return "ipv4" or "ipv6"."""
        return "ipv6" if ":" in self.ip else "ipv4"


class Kube2lbService(msgspec.Struct, frozen=True, gc=False):
    """One port of one service.

    ``endpoints`` are the ready ones, ``draining`` those that end what they have begun; ``external`` are the names of
    the annotation, regular expressions with their ``~``; ``timeout`` is in milliseconds, 0 where none is set;
    ``node_port`` is 0 where there is none. It prints as a label: name, namespace, port, protocol and mode.
    """

    name: str
    namespace: str
    port: Kube2lbPort
    endpoints: tuple[Kube2lbEndpoint, ...]
    draining: tuple[Kube2lbEndpoint, ...]
    node_port: int
    external: tuple[str, ...]
    timeout: int

    def __str__(self) -> str:
        port = self.port
        return f"{self.name}_{self.namespace}_{port.port}_{port.protocol}_{port.mode}"


class Kube2lbNode(str):
    """The name of a node that may get traffic, with its ``address`` ("" where it has none of the wanted type)."""

    __slots__ = ("address", "zone")
    address: str
    zone: str

    def __new__(cls, name: str, address: str, zone: str) -> Self:
        """Return the name with what is known of the node."""
        node = super().__new__(cls, name)
        node.address = address
        node.zone = zone
        return node

    @property
    def name(self) -> str:
        """The name alone."""
        return str(self)


def _hostport(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
