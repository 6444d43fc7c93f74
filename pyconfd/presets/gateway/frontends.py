"""What the fragment of the Gateway API is given of Gateways: one frontend for each of their ports.

A port with TLS has two steps. The first frontend reads the name in the hello (SNI) and sends the connection through to
servers, or over a socket to the second frontend, which ends TLS. There each listener has a bind of its own with its own
certificates, so that none of them presents those of another. Where one listener ends TLS of requests for any host, and
there is no other one, no name has to be read: then the second frontend is the only one, and listens on the port.
"""

import hashlib
from enum import StrEnum
from typing import NamedTuple

import msgspec

from pyconfd.model.snapshot import Key

_LONGEST_LIST = 200
"""In characters: a file system takes 255 for a file, which has a longer name while it is written."""


class FrontendKind(StrEnum):
    """What a port of a Gateway is for: what its listeners have in common."""

    HTTP = "http"
    TLS = "tls"
    """Listeners with the protocols HTTPS and TLS."""
    TCP = "tcp"


class Choice(NamedTuple):
    """Where ``route`` was found for a request and ``condition`` holds, it goes on to ``to``.

    ``to`` is a section or the ``route`` of later choices. ``condition`` is as HAProxy reads it, "" for none.
    """

    route: str
    condition: str
    to: str


class LookUp(NamedTuple):
    """One step of the look-up of requests: the routes of their virtual host, in the maps, then ``choices``, in order.

    Where no route was found, ``above`` is the map that leads from a virtual host to the one whose routes come next; ""
    before the first step, and :data:`WILDCARDS` where the host leads there.
    """

    above: str
    choices: tuple[Choice, ...] = ()


WILDCARDS = "wildcards"
"""The virtual host above an exact host: the longest wildcard, else that of any host; none is above a listener's own."""


def virtual_hosts_above(level: int) -> str:
    """Return the map that leads from wildcards with so many others above them to the next one."""
    return f"virtual-hosts-above-{level}"


class NameRoute(NamedTuple):
    """Where connections go that ask for a host: ``*.example.com`` has any depth, "" is any host and none.

    One of ``listener``, which ends TLS, and ``backend``, which it goes through to; with neither of them it is closed.
    """

    host: str
    listener: str = ""
    backend: str = ""


class EndingListener(NamedTuple):
    """A listener that ends TLS, by its id; ``certificates`` are paths, at least one, and the first is the default.

    ``http``: its protocol is HTTPS, so that requests are routed; else connections are.
    """

    name: str
    certificates: tuple[str, ...]
    http: bool = True


class ClientVerification(NamedTuple):
    """Clients show certificates of the CAs in ``ca_file``; without ``required`` they may show another one, or none."""

    ca_file: str
    required: bool = True


class GatewayFrontend(msgspec.Struct, frozen=True, gc=False):
    """One port of one Gateway. ``name`` is that of its section and in those of its maps; ``owner`` is for a comment.

    ``added`` are the ListenerSets that have listeners here.

    For requests (``kind`` is HTTP, or listeners with HTTPS):

    - its virtual hosts are given beside it: one for each host of a route and for each host of a listener (one without
      routes, too, so that its requests do not fall to a less specific listener). The id of each is ``NAME|HOST``.
    - ``look_ups`` are the steps in which the route of a request is found: exact hosts first, then wildcards, the last
      ones those of listeners. ``ends`` are the virtual hosts of exact hosts that listeners have: none are above these.

    For connections with TLS:

    - ``listeners`` are those that end it. One without a certificate that can be served is left out, and its names lead
      nowhere.
    - ``names`` lead from the hello to a listener or backend, one entry for each host of a listener and for each of a
      route that goes through; ``ended_names`` lead from there to backends, for listeners of TLS that end it.

    ``backend`` is where all connections go where ``kind`` is TCP; "" closes them.

    The sections of a port with TLS are ``NAME`` (reads the hello), ``NAME:LISTENER`` (leads to the socket of a
    listener), ``NAME.https`` and ``NAME.tls`` (end TLS); where :attr:`reads_hello` is false, ``NAME.https`` alone.
    """

    name: str
    owner: str
    kind: FrontendKind
    addresses: tuple[str, ...]
    port: int
    look_ups: tuple[LookUp, ...] = (LookUp(""),)
    ends: tuple[str, ...] = ()
    listeners: tuple[EndingListener, ...] = ()
    names: tuple[NameRoute, ...] = ()
    ended_names: tuple[NameRoute, ...] = ()
    verification: ClientVerification | None = None
    backend: str = ""
    added: tuple[Key, ...] = ()

    @property
    def https(self) -> tuple[EndingListener, ...]:
        """The listeners that end TLS of requests."""
        return tuple(each for each in self.listeners if each.http)

    @property
    def ended(self) -> tuple[EndingListener, ...]:
        """The listeners that end TLS of connections that are no requests."""
        return tuple(each for each in self.listeners if not each.http)

    @property
    def reads_hello(self) -> bool:
        """Whether the name in the hello decides where a connection goes; where it does not, TLS ends on the port."""
        ends_any = any(self.names == (NameRoute("", listener=each.name),) for each in self.https)
        return self.kind is FrontendKind.TLS and not ends_any

    @property
    def section(self) -> str:
        """The section that listens on the port."""
        return f"{self.name}.https" if self.https and not self.reads_hello else self.name

    def list_of(self, listener: str) -> str:
        """Return the name of the list with the certificates of a listener, short enough for a file."""
        name = f"certificates-{self.name}.{listener}"
        return name if len(name) <= _LONGEST_LIST else f"certificates-{self.name}.{self.socket_of(listener)}"

    def socket_of(self, listener: str) -> str:
        """Return what the name of the socket ends with on which TLS of a listener is ended."""
        return hashlib.sha256(f"{self.name}:{listener}".encode()).hexdigest()[:12]
