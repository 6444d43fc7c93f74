"""Ports of Gateways: each is one frontend, made of its listeners and of the routes that are served there."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from pyconfd.model.listener import Listener
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.reservation import Owner
from pyconfd.presets.certificates import pem_path
from pyconfd.presets.gateway.frontends import (
    WILDCARDS,
    Choice,
    ClientVerification,
    EndingListener,
    FrontendKind,
    GatewayFrontend,
    LookUp,
    NameRoute,
    virtual_hosts_above,
)
from pyconfd.presets.gateway.gateways import GatewayDecision
from pyconfd.presets.gateway.listeners import ListenerDecision, Protocol, TlsMode
from pyconfd.presets.gateway.policies import PolicyDecision
from pyconfd.presets.gateway.routes import VirtualHostAt, frontend_name, is_wildcard, virtual_host_id
from pyconfd.presets.routing.types import HostKind, RouteGroup, VirtualHost

_KINDS: Mapping[str, FrontendKind] = MappingProxyType(
    {Protocol.HTTP: FrontendKind.HTTP, Protocol.TCP: FrontendKind.TCP}
)


_OF_REQUESTS = frozenset({Protocol.HTTP, Protocol.HTTPS})


class Port(NamedTuple):
    """One port of a Gateway that is served; ``listeners`` are the accepted ones, some of which may not be programmed.

    They are in the order of their precedence: those of the Gateway, then those of its ListenerSets. ``directory`` is
    where files with certificates are.
    """

    gateway: GatewayDecision
    number: int
    listeners: tuple[ListenerDecision, ...]
    directory: str

    @property
    def name(self) -> str:
        """The name of its frontend."""
        return frontend_name(self.gateway.key, self.number)

    @property
    def owner(self) -> Owner:
        """The Gateway, or the first ListenerSet where the Gateway itself has no listener here."""
        return self.listeners[0].owner

    @property
    def kind(self) -> FrontendKind:
        """What all its listeners have in common."""
        return _KINDS.get(self.listeners[0].protocol, FrontendKind.TLS)

    @property
    def ca_file(self) -> OutputFile | None:
        """The file that client certificates are verified with."""
        found = next((each.client_ca for each in self.listeners if each.client_ca is not None), None)
        if found is None:
            return None
        key = self.gateway.key
        # No namespace has such a name, so no Secret's file is called this.
        path = pem_path(self.directory, "clients_of", *key, str(self.number))
        return OutputFile(FileKind.CERTIFICATE, path, found.pem)


def ports_of(gateway: GatewayDecision, listeners: Iterable[ListenerDecision], directory: str) -> Iterator[Port]:
    """Return the ports of a Gateway where at least one of all ``listeners`` can serve."""
    if gateway.addresses:
        by_number: defaultdict[int, list[ListenerDecision]] = defaultdict(list)
        for each in listeners:
            if each.is_accepted:
                by_number[each.port].append(each)
        for number, together in sorted(by_number.items()):
            if any(each.is_programmed for each in together):
                yield Port(gateway, number, tuple(together), directory)


class HostListener(NamedTuple):
    """Which listener has a host at a port; ``of_requests``: its protocol is HTTP or HTTPS."""

    id: str
    of_requests: bool


def hosts_of_accepted(listeners: Iterable[ListenerDecision]) -> Iterator[tuple[tuple[int, str], HostListener]]:
    """Return which listener has which host at which port."""
    for each in listeners:
        if each.is_accepted:
            yield (each.port, each.hostname), HostListener(each.id, each.protocol in _OF_REQUESTS)


class StreamAt(NamedTuple):
    """A route of connections at one virtual host of a port, and the section that serves it."""

    at: VirtualHostAt
    rank: tuple[str, ...]
    section: str


class VirtualHostChoices(NamedTuple):
    """The choices of a virtual host: of an exact host, or of a wildcard with so many others above it (``level``)."""

    level: int | None
    choices: tuple[Choice, ...]


def frontend(
    port: Port,
    deepest: int,
    choices: Iterable[VirtualHostChoices],
    splits: Iterable[Choice],
    streams: Iterable[StreamAt],
) -> GatewayFrontend:
    """Return a frontend: at most ``deepest`` virtual hosts are above a wildcard, ``splits`` divide the routes."""
    gateway, kind = port.gateway, port.kind
    first = _first_of_each_host(streams)
    names, ended_names = _names(port.listeners, first) if kind is FrontendKind.TLS else ((), ())
    return GatewayFrontend(
        port.name,
        f"Gateway {gateway.key.namespace}/{gateway.key.name}",
        kind,
        gateway.addresses,
        port.number,
        look_ups=look_ups(_has_wildcards(port), deepest, choices, splits),
        ends=tuple(
            sorted(virtual_host_id(port.name, host) for host in hosts_of_listeners(port) if not is_wildcard(host))
        ),
        listeners=tuple(map(_ending, filter(_ends_tls, port.listeners))),
        names=names,
        ended_names=ended_names,
        verification=_verification(port),
        backend=next((each.section for each in first.values()), "") if kind is FrontendKind.TCP else "",
        added=tuple(dict.fromkeys(each.parent for each in port.listeners if each.is_added)),
    )


def look_ups(
    has_wildcards: bool, deepest: int, choices: Iterable[VirtualHostChoices], splits: Iterable[Choice]
) -> tuple[LookUp, ...]:
    """Return the steps that find the route of a request: each leads to virtual hosts that stand for more hosts.

    There is a step for one wildcard below another one before there are such: so the first is an entry of maps.
    """
    found: dict[int | None, list[Choice]] = {None: []}
    if has_wildcards:
        found |= {level: [] for level in range(max(deepest, 1), -1, -1)}
    for each in choices:
        found[each.level] += each.choices
    found[next(reversed(found))] += splits
    maps = ("", WILDCARDS, *(virtual_hosts_above(level) for level in found if level))
    return tuple(LookUp(above, tuple(some)) for above, some in zip(maps, found.values(), strict=False))


def _has_wildcards(port: Port) -> bool:
    return any(map(is_wildcard, hosts_of_listeners(port)))


def hosts_of_listeners(port: Port) -> frozenset[str]:
    """Return the hosts of requests that listeners have, also without a route."""
    return frozenset(each.hostname for each in _listeners_of_requests(port))


def listeners_of(ports: Iterable[Port]) -> Mapping[Listener, Owner]:
    """Return what ports listen on, and whose each is."""
    return {Listener.at(address, port.number): port.owner for port in ports for address in port.gateway.addresses}


def files_of(ports: Iterable[Port], policies: Iterable[PolicyDecision]) -> tuple[OutputFile, ...]:
    """Return the certificates of listeners, and what clients and servers are verified with."""
    found: set[OutputFile] = set()
    for port in ports:
        listeners = [each for each in port.listeners if each.is_programmed]
        pairs = {(each.path, each.pem) for listener in listeners for each in listener.certificates}
        found.update(OutputFile(FileKind.CERTIFICATE, path, pem) for path, pem in pairs)
        if port.ca_file is not None:
            found.add(port.ca_file)
        if (presented := port.gateway.client_certificate) is not None:
            found.add(OutputFile(FileKind.CERTIFICATE, presented.path, presented.pem))
    bundles = (each.bundle for each in policies if each.bundle[0])
    found.update(OutputFile(FileKind.CERTIFICATE, path, pem) for path, pem in bundles)
    return tuple(sorted(found))


def _listeners_of_requests(port: Port) -> list[ListenerDecision]:
    return [each for each in port.listeners if each.protocol in _OF_REQUESTS]


def virtual_host_of(
    frontend_: str, host: str, groups: tuple[RouteGroup, ...], above: tuple[str, ...] = ()
) -> VirtualHost:
    """Return the virtual host of a host at a port; ``above`` are the ids of those whose rules come after its own."""
    kind = HostKind.ANY if not host else HostKind.ANY_DEPTH if host.startswith("*.") else HostKind.EXACT
    return VirtualHost(virtual_host_id(frontend_, host), frontend_, host, kind, groups, above=above)


def virtual_host_at(port: Port, virtual_host: VirtualHost, listener: str) -> VirtualHost | None:
    """Return a virtual host, None where no requests are routed at the port.

    Where connections are made for a listener it has the one that it belongs to, ``listener``.
    """
    if port.kind is FrontendKind.HTTP:
        return virtual_host
    if not any(_ends_tls(each) and each.protocol == Protocol.HTTPS for each in port.listeners):
        return None
    return msgspec.structs.replace(virtual_host, listener=listener)


def _first_of_each_host(streams: Iterable[StreamAt]) -> dict[tuple[str, str], StreamAt]:
    """Return the routes of connections by listener and host: that which names more of the host, then the older one."""
    found: dict[tuple[str, str], StreamAt] = {}
    for each in sorted(streams, key=lambda each: (each.at.precedence, each.rank)):
        if each.section:
            found.setdefault((each.at.listener, each.at.host), each)
    return found


def _ends_tls(listener: ListenerDecision) -> bool:
    return listener.mode is TlsMode.TERMINATE and listener.is_programmed


def _ending(listener: ListenerDecision) -> EndingListener:
    paths = tuple(dict.fromkeys(each.path for each in listener.certificates))
    return EndingListener(listener.id, paths, listener.protocol == Protocol.HTTPS)


def _names(
    listeners: Sequence[ListenerDecision], streams: Mapping[tuple[str, str], StreamAt]
) -> tuple[tuple[NameRoute, ...], tuple[NameRoute, ...]]:
    """Return where names in a hello lead, and where they lead once TLS is ended that holds no requests."""
    names = {}
    ended = {}
    by_id = {each.id: each for each in listeners}
    for each in listeners:
        names[each.hostname] = NameRoute(each.hostname, listener=each.id if _ends_tls(each) else "")
        if _ends_tls(each) and each.protocol == Protocol.TLS:
            ended[each.hostname] = NameRoute(each.hostname)
    for (listener, host), stream in streams.items():
        if by_id[listener].mode is TlsMode.TERMINATE:
            ended[host] = NameRoute(host, backend=stream.section)
        else:
            names[host] = NameRoute(host, backend=stream.section)
    return tuple(names[host] for host in sorted(names)), tuple(ended[host] for host in sorted(ended))


def _verification(port: Port) -> ClientVerification | None:
    file = port.ca_file
    if file is None:
        return None
    found = next(each.client_ca for each in port.listeners if each.client_ca is not None)
    return ClientVerification(file.path, not found.optional)
