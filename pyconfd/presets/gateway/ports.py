"""Ports of Gateways: each is one frontend, made of its listeners and of the routes that are served there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import Resource
from pyconfd.presets.certificates import pem_path
from pyconfd.presets.gateway.attachment import isolated
from pyconfd.presets.gateway.conditions import choices_of
from pyconfd.presets.gateway.frontends import (
    Choice,
    ClientVerification,
    EndingListener,
    FrontendKind,
    GatewayFrontend,
    NameRoute,
)
from pyconfd.presets.gateway.gateways import GatewayDecision
from pyconfd.presets.gateway.listeners import ListenerDecision, Protocol, TlsMode
from pyconfd.presets.gateway.routes import RouteDecision, SiteAt, frontend_name, site_id
from pyconfd.presets.routing.table import RoutingTable
from pyconfd.presets.routing.types import HostKind, RouteGroup, Site

_OF_REQUESTS = frozenset({Resource.HTTPROUTES, Resource.GRPCROUTES})
_KINDS: Mapping[str, FrontendKind] = MappingProxyType(
    {Protocol.HTTP: FrontendKind.HTTP, Protocol.TCP: FrontendKind.TCP}
)


class Port(NamedTuple):
    """One port of a Gateway that is served; ``listeners`` are the accepted ones, some of which may not be programmed.

    ``directory`` is where files with certificates are.
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


def ports_of(gateway: GatewayDecision, directory: str) -> Iterator[Port]:
    """Return the ports of a Gateway where at least one listener can serve."""
    if gateway.addresses:
        for number in sorted({each.port for each in gateway.listeners if each.is_programmed}):
            together = tuple(each for each in gateway.listeners if each.is_accepted and each.port == number)
            yield Port(gateway, number, together, directory)


def frontend(
    port: Port, routes: Sequence[RouteDecision], table: RoutingTable, former: GatewayFrontend | None
) -> GatewayFrontend:
    """Return the frontend of a port for the routes that are served there; it is ``former`` where that is equal."""
    gateway, kind = port.gateway, port.kind
    requests = [each for each in routes if each.id.resource in _OF_REQUESTS]
    streams = _first_of_each_host(port.name, (each for each in routes if each.id.resource not in _OF_REQUESTS))
    sites = _sites(port, requests, table, former) if kind is not FrontendKind.TCP else ()
    names, ended_names = _names(port.listeners, streams) if kind is FrontendKind.TLS else ((), ())
    made = GatewayFrontend(
        port.name,
        f"Gateway {gateway.key.namespace}/{gateway.key.name}",
        kind,
        gateway.addresses,
        port.number,
        sites=sites,
        listener_of=_listener_of(port, sites) if kind is FrontendKind.TLS else MappingProxyType({}),
        choices=(*(choice for site in sites for choice in choices_of(site.groups)), *_splits(requests)),
        listeners=tuple(map(_ending, filter(_ends_tls, port.listeners))),
        names=names,
        ended_names=ended_names,
        verification=_verification(port),
        backend=next((route.section_at(at) for at, route in streams.values()), "") if kind is FrontendKind.TCP else "",
    )
    return former if former is not None and former == made else made


def _listeners_of_requests(port: Port) -> list[ListenerDecision]:
    return [each for each in port.listeners if each.protocol in {Protocol.HTTP, Protocol.HTTPS}]


def _sites(
    port: Port, routes: Iterable[RouteDecision], table: RoutingTable, former: GatewayFrontend | None
) -> tuple[Site, ...]:
    hosts = {each.hostname for each in _listeners_of_requests(port)}
    hosts.update(at.host for route in routes for at in route.sites if at.frontend == port.name)
    known = {site.id: site for site in former.sites} if former is not None else {}
    found = []
    for host in sorted(hosts):
        id_ = site_id(port.name, host)
        groups = tuple(table.groups.get(id_, {}).values())
        site = known.get(id_)
        found.append(site if site is not None and site.groups == groups else _site(id_, port.name, host, groups))
    return tuple(found)


def _site(id_: str, name: str, host: str, groups: tuple[RouteGroup, ...]) -> Site:
    kind = HostKind.ANY if not host else HostKind.ANY_DEPTH if host.startswith("*.") else HostKind.EXACT
    return Site(id_, name, host, kind, groups)


def _listener_of(port: Port, sites: Iterable[Site]) -> Mapping[str, str]:
    listeners = _listeners_of_requests(port)
    return {site.id: isolated(listeners, site.host) for site in sites}


def _splits(routes: Iterable[RouteDecision]) -> Iterator[Choice]:
    for route in routes:
        for made in route.served:
            yield from made.choices


def _first_of_each_host(
    name: str, routes: Iterable[RouteDecision]
) -> dict[tuple[str, str], tuple[SiteAt, RouteDecision]]:
    """Return the routes of connections by listener and host: that which names more of the host, then the older one."""
    found: dict[tuple[str, str], tuple[SiteAt, RouteDecision]] = {}
    asking = [(at, route) for route in routes for at in route.sites if at.frontend == name]
    for at, route in sorted(asking, key=lambda each: (each[0].precedence, each[1].rank)):
        if route.section_at(at):
            found.setdefault((at.listener, at.host), (at, route))
    return found


def _ends_tls(listener: ListenerDecision) -> bool:
    return listener.mode is TlsMode.TERMINATE and listener.is_programmed


def _ending(listener: ListenerDecision) -> EndingListener:
    paths = tuple(dict.fromkeys(each.path for each in listener.certificates))
    return EndingListener(listener.name, paths, listener.protocol == Protocol.HTTPS)


def _names(
    listeners: Sequence[ListenerDecision], streams: Mapping[tuple[str, str], tuple[SiteAt, RouteDecision]]
) -> tuple[tuple[NameRoute, ...], tuple[NameRoute, ...]]:
    """Return where names in a hello lead, and where they lead once TLS is ended that holds no requests."""
    names = {}
    ended = {}
    by_name = {each.name: each for each in listeners}
    for each in listeners:
        names[each.hostname] = NameRoute(each.hostname, listener=each.name if _ends_tls(each) else "")
        if _ends_tls(each) and each.protocol == Protocol.TLS:
            ended[each.hostname] = NameRoute(each.hostname)
    for (listener, host), (at, route) in streams.items():
        if by_name[listener].mode is TlsMode.TERMINATE:
            ended[host] = NameRoute(host, backend=route.section_at(at))
        else:
            names[host] = NameRoute(host, backend=route.section_at(at))
    return tuple(names[host] for host in sorted(names)), tuple(ended[host] for host in sorted(ended))


def _verification(port: Port) -> ClientVerification | None:
    file = port.ca_file
    if file is None:
        return None
    found = next(each.client_ca for each in port.listeners if each.client_ca is not None)
    return ClientVerification(file.path, not found.optional)
