"""Where a request goes: from the listener to a backend or an answer, step by step, with what decides each. Pure.

It walks what the presets made and the templates are given, in the order in which the shipped fragments have HAProxy
look it up (``02-http.tmpl``, ``03-https.tmpl``, ``04-tcp.tmpl``, ``08-gateway.tmpl``, ``09-loadbalancer.tmpl``); which
rule comes first is in these collections already. Where HAProxy listens is read from the rendered text.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_network
from typing import Any, NamedTuple

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import UNKNOWN, ClientRequest
from pyconfd.haproxy.config.text import binds
from pyconfd.model.context import PresetName, RefusalReason
from pyconfd.model.explanation import RequestStep
from pyconfd.model.listener import ANY_IPV4, ANY_IPV6, Listener
from pyconfd.model.reservation import Name
from pyconfd.presets.certificates import pem_path
from pyconfd.presets.gateway import patterns
from pyconfd.presets.gateway.frontends import FrontendKind, GatewayFrontend, NameRoute
from pyconfd.presets.ingress.claims import name_of
from pyconfd.presets.routing.table import Place, VirtualHostPath
from pyconfd.presets.routing.types import (
    EXACT_PATHS,
    PATH_PREFIXES,
    HostKind,
    PathKind,
    RouteGroup,
    RouteMatch,
    ValueCondition,
    VirtualHost,
)
from pyconfd.status.redaction import public_refusal

SHARED_HTTP, SHARED_TLS, ENDED_TLS = "http-in", "https-in", "https-terminate"
_MOST_RULES = 200
"""Of one virtual host in an answer whose paths are others than that of the request."""
_ACME = "/.well-known/acme-challenge/"
_WORDS_OF_KIND = {
    HostKind.EXACT: "this host",
    HostKind.ONE_LABEL: "a wildcard for one label",
    HostKind.ANY_DEPTH: "a wildcard for any depth",
    HostKind.ANY: "any host",
}


class RequestEnd(NamedTuple):
    """The end of a way: the section of a backend or the ``split:`` of a rule, an answer of HAProxy, or nothing."""

    route: str = ""
    status: int = 0
    location: str = ""
    closed: bool = False


CLOSED = RequestEnd(closed=True)
NOT_KNOWN = RequestEnd()


@dataclass
class Trace:
    """What was looked at, how a part of the requests ends otherwise (in percent), and what cannot be answered."""

    steps: list[RequestStep] = field(default_factory=list)
    sometimes: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    uncovered: dict[str, None] = field(default_factory=dict)

    def add(self, part: str, text: str, result: str = "", *, at: str = "", where: str = "") -> None:
        """Add a step; ``at`` is the object and ``where`` its field."""
        self.steps.append(RequestStep(part, text, result, at, where))

    def chosen(self, part: str, text: str, *, at: str = "", where: str = "") -> None:
        """Add what was chosen."""
        self.add(part, text, "chosen", at=at, where=where)

    def lost(self, part: str, text: str, *, at: str = "", where: str = "") -> None:
        """Add what was not."""
        self.add(part, text, "lost", at=at, where=where)

    def ends(self, text: str, end: RequestEnd, *, at: str = "", where: str = "") -> RequestEnd:
        """Add the answer, and return it."""
        self.add("answer", text, at=at, where=where)
        return end

    def does_not_cover(self, text: str) -> None:
        """Add what is not answered."""
        self.uncovered[text] = None


class Entrance(NamedTuple):
    """A section that listens at the port of a request, and where."""

    section: str
    listener: Listener


# Listeners


def opened(text: str) -> tuple[list[Entrance], set[str]]:
    """Return all places where a configuration listens for clients, and the names of all sections with binds."""
    found = binds(text)
    sections = [bind.proxy.partition(" ")[2] for bind in found]
    places = [Entrance(name, each) for name, bind in zip(sections, found, strict=True) for each in bind.listeners()]
    return places, set(sections)


def reached(entrances: Iterable[Entrance], request: ClientRequest) -> list[Entrance]:
    """Return those at the port of a request; where its address is known, those that Linux gives the connection to."""
    at_port = [each for each in entrances if each.listener.port == request.port]
    if not request.to:
        return at_port
    ranked = [(_rank(each.listener, request.to), each) for each in at_port]
    best = max((rank for rank, _ in ranked), default=0)
    return [each for rank, each in ranked if rank == best and rank]


def _rank(listener: Listener, address: str) -> int:
    """Return how specifically a listener takes connections to an address; 0 is not at all.

    Source: compute_score() of Linux's inet_hashtables.c, which prefers sockets of the connection's own family.
    """
    if listener.address == address:
        return 3
    if listener.address == (ANY_IPV6 if ":" in address else ANY_IPV4):
        return 2
    return 1 if listener.address == ANY_IPV6 and not listener.v6only else 0


# Look-ups by host


class SharedHosts:
    """Hosts of the shared frontends, as the entries of their maps in ``02-http.tmpl`` to ``07-ingress.tmpl``.

    ``reads_hello``: the name in the ClientHello decides whether TLS passes through or is terminated here. ``through``
    has the domains whose TLS passes through, ``through_wildcards`` the same by the end of the host, with None where TLS
    is terminated all the same; ``ended`` are the hosts with a certificate. ``below_foreign`` are hosts below a wildcard
    of another namespace: they do not get its certificate.
    """

    def __init__(self, names: Mapping[str, Any], *, http: bool, https: bool) -> None:
        ingress = names.get("ingress") or {}
        domains: Mapping[str, Any] = names.get("domains") or {}
        tls = names.get("tls") or {}
        self.reads_hello = bool(tls.get("reads_hello"))
        self.ends_tls, self.default_certificate = bool(tls.get("in_use")), str(tls.get("default_certificate", ""))
        self.by_map: dict[str, dict[str, VirtualHost]] = {"hosts-http": {}, "one-label-http": {}, "wildcards-http": {}}
        self.owners: dict[str, str] = {}
        self.domains: dict[str, Any] = {}
        self.through: dict[str, Any] = {}
        self.through_wildcards: dict[str, Any] = {}
        self.below_foreign: set[str] = set()
        self.ended: set[str] = set()
        self.redirects: set[str] = set()
        self.hsts: dict[str, int] = {}
        self.certificates: dict[str, str] = {}
        ends = https and self.ends_tls
        for domain, entry in domains.items():
            self._add_domain(str(domain).lower(), entry, ends=ends)
        for each in (
            *(names.get("named_virtual_hosts") or {}).values(),
            *(ingress.get("virtual_hosts") or {}).values(),
        ):
            self.by_map[each.map].setdefault(each.map_key, each)
            self.owners.setdefault(each.id, each.namespace)
            if each.below_foreign and each.host.startswith("*."):
                self.through_wildcards.setdefault(each.host[1:], None)
            elif each.below_foreign:
                self.below_foreign.add(each.host)
        for line in (ingress.get("certificates") or {}).values() if ends else ():
            for host in line.names.split() if line.path else ():
                self.certificates.setdefault(host, line.path)
                self.ended.add(host)
            self.hsts |= dict(line.hsts)
            self.redirects |= set(line.redirects) if http else set()
        if not self.reads_hello:
            self.ended.clear()

    def _add_domain(self, domain: str, entry: Any, *, ends: bool) -> None:
        is_wildcard, tls = domain.startswith("*."), entry["tls"]
        if entry["proto"] == "https":
            found = self.through_wildcards if is_wildcard else self.through
            # What passes through comes before a wildcard that leads to where TLS ends.
            found[domain[1:] if is_wildcard else domain] = entry
        if entry["proto"] != "http":
            return
        host = f"[{domain}]" if ":" in domain else domain
        id_ = host[1:] if is_wildcard else host
        made = VirtualHost(
            id_, "http", host, HostKind.ANY_DEPTH if is_wildcard else HostKind.EXACT, namespace=entry["namespace"]
        )
        self.by_map[made.map][made.map_key] = made
        self.domains[id_], self.owners[id_] = entry, entry["namespace"]
        if entry["below_foreign"] and is_wildcard:
            self.through_wildcards.setdefault(id_, None)
        elif entry["below_foreign"]:
            self.below_foreign.add(domain)
        if tls is not None and ends:
            if tls.path:
                self.certificates |= dict.fromkeys(tls.names.split(), tls.path)
                self.ended.add(id_)
            if tls.hsts is not None:
                self.hsts[id_] = tls.hsts
            if tls.redirect:
                self.redirects.add(id_)

    def find(self, host: str) -> VirtualHost | None:
        """Return the virtual host of a host, but not that of any host."""
        found = self.by_map["hosts-http"].get(host) or self.by_map["one-label-http"].get(host.partition(".")[2])
        return found or longest_end(self.by_map["wildcards-http"], host)

    @property
    def any(self) -> VirtualHost | None:
        """That of any host."""
        return self.by_map["hosts-http"].get("*")

    def certificate_for(self, name: str) -> str:
        """Return the path of the certificate that a client gets who asks for a name; "" where it gets none."""
        found = self.certificates.get(name) or self.certificates.get(f"*.{name.partition('.')[2]}")
        return found or self.default_certificate


def longest_end(entries: Mapping[str, Any], host: str) -> Any:
    """Return what ``map_end`` finds in a map with the longest keys first, each of which begins with a dot."""
    ends = (host[at:] for at, character in enumerate(host) if character == ".")
    return next((entries[each] for each in ends if each in entries), None)


# Rules


class PathCandidate(NamedTuple):
    """An entry of the maps of paths and what it leads to; ``object`` asked for it in ``field``."""

    map: str
    key: str
    to: str
    object: str = ""
    field: str = ""
    group: RouteGroup | None = None

    def fits(self, virtual_host: str, path: str) -> bool:
        """Return whether HAProxy finds it for a path, where it finds no other one before."""
        if self.map == EXACT_PATHS:
            return self.key == f"{virtual_host}{path}"
        return f"{virtual_host}{path}/".startswith(self.key)

    def words(self, virtual_host: str) -> str:
        """Return what it asks for."""
        path = self.key.removeprefix(virtual_host)
        return f"path {path}" if self.map == EXACT_PATHS else f"path prefix {path.removesuffix('/') or '/'}"


class Rules:
    """Which rule has a request at one virtual host after the other."""

    def __init__(self, request: ClientRequest, headers: Sequence[tuple[str, str]], trace: Trace) -> None:
        self._request, self._headers, self._trace = request, headers, trace

    def find(self, virtual_host: str, candidates: Iterable[PathCandidate], owner_of: Mapping[str, str]) -> str:
        """Return what the request is led to, "" for nothing: exact paths come first, then the longest prefix.

        ``owner_of`` has the rule of each route that a group may lead to.
        """
        trace, found, route, others = self._trace, False, "", 0
        ordered = sorted(candidates, key=lambda each: (each.map != EXACT_PATHS, -len(each.key), each.key))
        for number, each in enumerate(ordered):
            words = each.words(virtual_host)
            if each.fits(virtual_host, self._request.path):
                if found:
                    trace.lost("rule", f"{words}: a more specific path comes first", at=each.object, where=each.field)
                elif each.group is not None:
                    route = self._of_group(each.group, owner_of)
                else:
                    route = each.to
                    trace.chosen("rule", words, at=each.object, where=each.field)
                found = True
            elif number < _MOST_RULES:
                trace.lost("rule", f"{words}: the path is another one", at=each.object, where=each.field)
            else:
                others += 1
        if others:
            trace.add("rule", f"{others:,} more paths of this host are others than that of the request")
        return route

    def _of_group(self, group: RouteGroup, owner_of: Mapping[str, str]) -> str:
        """Return the route of the first rule whose conditions hold; they are in the order that HAProxy tries them."""
        for number, rule in enumerate(group.rules):
            owner = owner_of.get(rule.backend, f"{rule.owner.kind} {rule.owner.namespace}/{rule.owner.name}")
            words, field_ = _words_of(rule.match), field_of_rule(owner)
            if wrong := self._why_not(rule.match):
                self._trace.lost("rule", f"{words}: {wrong}", at=owner, where=field_)
                continue
            self._trace.chosen("rule", words, at=owner, where=field_)
            for other in group.rules[number + 1 :]:
                owner = owner_of.get(other.backend, f"{other.owner.kind} {other.owner.namespace}/{other.owner.name}")
                words, field_ = _words_of(other.match), field_of_rule(owner)
                self._trace.lost("rule", f"{words}: the rule above comes first", at=owner, where=field_)
            return rule.backend
        return ""

    def _why_not(self, match: RouteMatch) -> str:
        """Return which condition does not hold, "" where all do. Values are not repeated: some are secrets."""
        request = self._request
        if match.kind is PathKind.REGEX and not _matches(ValueCondition("", match.path, True), [request.path.encode()]):
            return "the path does not match"
        if match.method not in {"", request.method}:
            return f"the method is {request.method}"
        for each in match.headers:
            sent = [value for name, value in self._headers if name == each.name]
            if UNKNOWN in sent:
                self._trace.does_not_cover(f"the value of header {each.name}, which HAProxy sets: taken as another one")
            if not _matches(each, [value.encode() for value in sent]):
                return f"header {each.name} {'has another value' if sent else 'is not sent'}"
        for each in match.query:
            given = list(request.parameters(each.name))
            if not _matches(each, given):
                return f"query parameter {each.name} {'has another value' if given else 'is not there'}"
        return ""


def _matches(wanted: ValueCondition, found: Sequence[bytes]) -> bool:
    """Return whether one of the values is as HAProxy compares it (pyconfd/presets/gateway/conditions.py)."""
    if not wanted.regex:
        # Texts are compared up to a character 0, which a parameter may have.
        return wanted.value.encode() in [each.partition(b"\0")[0] for each in found]
    pattern = wanted.value.removeprefix(patterns.ANY_CASE).encode()
    flags = re.IGNORECASE if wanted.value.startswith(patterns.ANY_CASE) else re.NOFLAG
    compiled = re.compile(b"^(" + pattern + b")$", flags)
    return any(len(each) <= patterns.LONGEST_VALUE and compiled.search(each) for each in found)


def _words_of(match: RouteMatch) -> str:
    found = [f"path {'prefix ' if match.kind is PathKind.PREFIX else ''}{match.path}"]
    if match.kind is PathKind.REGEX:
        found = [f"path expression {match.path}"]
    found += [f"method {match.method}"] if match.method else []
    found += [f"header {each.name}" for each in match.headers]
    found += [f"query parameter {each.name}" for each in match.query]
    return ", ".join(found)


def field_of_rule(owner: str) -> str:
    """Return the field of a rule of the Gateway API by how its backend names its owner."""
    number = owner.rpartition(" rule ")[2]
    return f"spec.rules[{number}]" if number.isdigit() and " rule " in owner else ""


# The way of one request


class _ClientHelloResult(NamedTuple):
    """What the name in the ClientHello decides: the ``end``, or None where TLS is terminated here.

    ``only_default``: with the default certificate, whatever others there are.
    """

    end: RequestEnd | None = None
    only_default: bool = False


class Way:
    """The way of one request; ``sections`` are those that listen, or end TLS behind one that does."""

    def __init__(self, request: ClientRequest, evidence: Evidence, sections: Collection[str], trace: Trace) -> None:
        self.request, self.evidence, self.trace, self._sections = request, evidence, trace, sections
        self.names = evidence.context.names
        gateway = self.names.get("gateway") or {}
        self.frontends: Mapping[str, GatewayFrontend] = gateway.get("frontends") or {}
        self.gateway_hosts: Mapping[str, VirtualHost] = gateway.get("virtual_hosts") or {}
        self.rules_backends: Mapping[str, Any] = gateway.get("backends") or {}
        trusted = [ip_network(each) for each in evidence.variables.get("trusted_networks") or ()]
        self.is_trusted = request.is_from(trusted)
        self.headers = request.seen_headers(trusted=self.is_trusted)
        self.rules = Rules(request, self.headers, trace)

    @cached_property
    def shared(self) -> SharedHosts:
        """The hosts of the shared frontends."""
        http, https = SHARED_HTTP in self._sections, ENDED_TLS in self._sections
        return SharedHosts(self.names, http=http, https=https)

    @cached_property
    def _owners_of_routes(self) -> Mapping[str, str]:
        return {each.route: each.owner for each in self.rules_backends.values() if not each.is_profile}

    def _front(self, entrance: Entrance) -> GatewayFrontend | None:
        return self.frontends.get(entrance.section.removesuffix(".https"))

    def knows(self, entrance: Entrance) -> bool:
        """Return whether a section that listens has something for the host."""
        request, front = self.request, self._front(entrance)
        if front is not None and front.kind is FrontendKind.HTTP:
            return self._gateway_host(front) is not None
        if front is not None and front.kind is FrontendKind.TLS:
            return not front.reads_hello or _named(front.names, request.tls_name) is not None
        if entrance.section not in {SHARED_HTTP, SHARED_TLS, ENDED_TLS}:
            return False
        shared, name = self.shared, request.name
        through = name in shared.through or longest_end(shared.through_wildcards, name) is not None
        return through or shared.find(name) is not None or shared.any is not None

    def from_(self, entrance: Entrance) -> RequestEnd:
        """Return where the request goes."""
        section, request, trace, front = entrance.section, self.request, self.trace, self._front(entrance)
        at = front.owner if front is not None else ""
        trace.chosen("listener", f"frontend {section} listens on {entrance.listener}", at=at)
        if front is not None:
            return self._at_gateway(front)
        balanced = next(
            (each for key, each in (self.names.get("loadbalancer") or {}).items() if section == f"fe-lb-{key}"), None
        )
        if balanced is not None:
            return self._balanced(balanced)
        for domain, entry in (self.names.get("domains") or {}).items():
            if section == f"fe-{entry['key']}" and entry["listen_port"] == request.port:
                return self._domain_with_port(domain, entry)
        if section not in {SHARED_HTTP, SHARED_TLS, ENDED_TLS}:
            trace.does_not_cover(f"frontend {section}, which no shipped fragment for these objects writes")
            return NOT_KNOWN
        if request.to and request.to in self._owned_addresses():
            text = f"{request.to} belongs to a Gateway or Service, which does not listen on port {request.port}"
            return trace.ends(f"the connection is closed: {text}", CLOSED)
        return self._at_shared(section)

    def _owned_addresses(self) -> set[str]:
        balanced = (self.names.get("loadbalancer") or {}).values()
        return {address for each in (*self.frontends.values(), *balanced) for address in each.addresses}

    def _speaks(self, *, tls: bool) -> RequestEnd | None:
        """Return the end of a connection whose client speaks TLS where it may not, or not where it has to."""
        if self.request.is_tls and not tls:
            return self.trace.ends("400 or a closed connection: no TLS is spoken here", CLOSED)
        if not self.request.is_tls and tls:
            return self.trace.ends("the connection is closed: TLS is spoken here", CLOSED)
        if not self.request.is_http and not tls:
            self.trace.does_not_cover("connections that hold no request, at a listener for HTTP")
            return NOT_KNOWN
        return None

    # Ports of their own

    def _balanced(self, port: Any) -> RequestEnd:
        request, at = self.request, f"Service {port.namespace}/{port.name}"
        if port.source_ranges and not request.source:
            self.trace.does_not_cover("clients outside spec.loadBalancerSourceRanges (ask with --from ADDRESS)")
        elif port.source_ranges and not request.is_from([ip_network(each) for each in port.source_ranges]):
            text = f"the connection is closed: {request.source} is in none of the allowed networks"
            return self.trace.ends(text, CLOSED, at=at, where="spec.loadBalancerSourceRanges")
        self.trace.chosen("rule", f"port {port.port}", at=at, where="spec.ports")
        return RequestEnd(f"lb-{port.key}")

    def _domain_with_port(self, domain: str, entry: Any) -> RequestEnd:
        if self.request.to in self.evidence.options.addresses.members:
            return self.trace.ends("the connection is closed: the address is one of the pool", CLOSED)
        at = self._owner_of_domain(domain, entry)
        self.trace.chosen("rule", f"port {entry['listen_port']} of {domain}", at=at, where="annotation listen-port")
        return RequestEnd(f"be-{entry['key']}")

    def _owner_of_domain(self, domain: str, entry: Any) -> str:
        owner = self.evidence.context.owners.get(PresetName.DOMAINS, {}).get(Name("", domain))
        return f"{owner.kind if owner is not None else 'Service'} {entry['namespace']}/{entry['name']}"

    # The shared frontends

    def _at_shared(self, section: str) -> RequestEnd:
        request, shared = self.request, self.shared
        if (ended := self._speaks(tls=section != SHARED_HTTP)) is not None:
            return ended
        if section == SHARED_HTTP:
            return self._shared_request(shared, tls=False)
        only_default = False
        if section == SHARED_TLS:
            found = self._by_client_hello(shared)
            if found.end is not None:
                return found.end
            only_default = found.only_default
        path = shared.default_certificate if only_default else shared.certificate_for(request.tls_name)
        if not path:
            return self.trace.ends("the handshake fails: there is no certificate for this name", CLOSED)
        self._present(path)
        if not request.is_http:
            self.trace.does_not_cover("connections that hold no request, at a listener for HTTP")
            return NOT_KNOWN
        return self._shared_request(shared, tls=True)

    def _by_client_hello(self, shared: SharedHosts) -> _ClientHelloResult:
        """Return where the name in the ClientHello leads."""
        name, trace = self.request.tls_name, self.trace
        is_foreign, is_ended = name in shared.below_foreign, shared.ends_tls and name in shared.ended
        found, known = shared.through.get(name), name in shared.through
        if not known and not is_foreign and not is_ended:
            ends = [name[at:] for at, character in enumerate(name) if character == "."]
            end = next((each for each in ends if each in shared.through_wildcards), None)
            found, known = (shared.through_wildcards[end], True) if end is not None else (None, False)
        if found is not None:
            at = self._owner_of_domain(found["domain"], found)
            trace.chosen(
                "rule", f"TLS of {found['domain']} goes through, by the name {name}", at=at, where="annotation proto"
            )
            return _ClientHelloResult(RequestEnd(f"be-{found['key']}"))
        if not shared.ends_tls:
            return _ClientHelloResult(trace.ends("the connection is closed: no object has TLS for this name", CLOSED))
        if is_foreign and not is_ended and not known:
            if not shared.default_certificate:
                text = "the wildcard above this host belongs to another namespace, whose certificate it does not get"
                return _ClientHelloResult(trace.ends(f"the connection is closed: {text}", CLOSED))
            return _ClientHelloResult(only_default=True)
        return _ClientHelloResult()

    def _present(self, path: str) -> None:
        directory = self.evidence.options.tls.directory
        known = (each for some in self.evidence.context.certificates for each in some.values())
        found = next((each for each in known if pem_path(directory, each.namespace, each.secret) == path), None)
        name = self.request.tls_name or "no name"
        at = f"Secret {found.namespace}/{found.secret}" if found is not None else ""
        self.trace.chosen("certificate", f"{path.rpartition('/')[2]} is presented for {name}", at=at)

    def _shared_request(self, shared: SharedHosts, *, tls: bool) -> RequestEnd:
        request, trace, name = self.request, self.trace, self.request.name
        found = shared.find(name) or shared.any
        if tls and shared.reads_hello:
            through = name in shared.through or (found is None and longest_end_key(shared.through_wildcards, name))
            if through:
                text = "421: TLS of this host goes through, and this connection was made for another name"
                return trace.ends(text, RequestEnd(status=421))
        if tls and request.tls_name and request.tls_name != name:
            made_for = shared.find(request.tls_name)
            owner = shared.owners.get(found.id, "") if found is not None and made_for is not None else ""
            mine = shared.owners.get(made_for.id, "") if made_for is not None else ""
            if owner and mine and owner != mine:
                text = f"421: the connection was made for {request.tls_name} of namespace {mine}, the host is {owner}'s"
                return trace.ends(text, RequestEnd(status=421))
        if found is None:
            trace.add("host", f"{name or '(none)'} is no virtual host")
            return trace.ends("404: no object has this host", RequestEnd(status=404))
        trace.chosen("host", f"{found.host}: {_WORDS_OF_KIND[found.kind]}")
        if not tls and found.id in shared.redirects and not self._needs_no_tls():
            port = str(self.evidence.variables.get("https_port", 443))
            location = f"https://{name}{'' if port == '443' else f':{port}'}{request.pathq}"
            text, ended = (
                f"308: to {location}, since the host has a certificate",
                RequestEnd(status=308, location=location),
            )
            return trace.ends(text, ended, where="annotation pyconfd.io/ssl-redirect")
        if tls and (seconds := shared.hsts.get(found.id, self.evidence.variables.get("hsts"))) is not None:
            text = f"Strict-Transport-Security max-age={seconds} is added to the answer"
            trace.add("filter", text, where="annotation pyconfd.io/hsts")
        self._add_refused(found)
        route = self.rules.find(found.id, self._shared_paths(shared, found.id), {})
        if not route:
            return trace.ends("404: the host has no such path", RequestEnd(status=404))
        return RequestEnd(route)

    def _add_refused(self, host: VirtualHost) -> None:
        """Add what asked for the host, or a path of it, and lost that to another object."""
        for each in self.evidence.refused:
            is_mine = each.value == host.host or each.value.startswith(f"{host.host}/")
            if is_mine and each.reason in {RefusalReason.NAME_TAKEN, RefusalReason.NAME_RESERVED}:
                shown = public_refusal(each)
                self.trace.lost("rule", f"{shown.value}: {shown.detail}", at=str(each.ref), where=each.field)

    def _needs_no_tls(self) -> bool:
        """Return whether it is the question of an issuer, or a proxy in front says that TLS ended there."""
        request = self.request
        is_ended = self.is_trusted and "https" in request.listed_values_of("x-forwarded-proto")
        return is_ended or request.path.startswith(_ACME)

    def _shared_paths(self, shared: SharedHosts, id_: str) -> Iterator[PathCandidate]:
        owners = self.evidence.context.owners.get(PresetName.INGRESS, {})
        for name, backend in ((self.names.get("ingress") or {}).get("backends") or {}).items():
            for entry in backend.entries:
                if entry.key.startswith(f"{id_}/"):
                    is_exact = entry.map == EXACT_PATHS
                    path = entry.key.removeprefix(id_)
                    place = Place(PathKind.EXACT, path) if is_exact else Place(PathKind.PREFIX, path.removesuffix("/"))
                    owner = owners.get(name_of(VirtualHostPath(id_, place)))
                    at = f"{owner.kind} {owner.namespace}/{owner.name}" if owner is not None else ""
                    yield PathCandidate(entry.map, entry.key, name, at, "spec.rules.http.paths")
        if (entry := shared.domains.get(id_)) is not None:
            at = self._owner_of_domain(entry["domain"], entry)
            yield PathCandidate(PATH_PREFIXES, f"{id_}/", f"be-{entry['key']}", at, "annotation domain")

    # Gateways

    def _at_gateway(self, front: GatewayFrontend) -> RequestEnd:
        if front.kind is FrontendKind.TCP:
            return self._connection(front.backend, front.owner)
        if (ended := self._speaks(tls=front.kind is FrontendKind.TLS)) is not None:
            return ended
        return self._gateway_request(front, "") if front.kind is FrontendKind.HTTP else self._gateway_tls(front)

    def _gateway_tls(self, front: GatewayFrontend) -> RequestEnd:
        request, trace = self.request, self.trace
        if not front.reads_hello:
            return self._ended(front, front.https[0].name)
        named = _named(front.names, request.tls_name)
        if named is None or not (named.listener or named.backend):
            text = "no listener has this name" if named is None else "its listener has nothing for this name"
            return trace.ends(f"the connection is closed: {text}", CLOSED, at=front.owner, where="spec.listeners")
        if named.backend:
            trace.chosen("host", f"{named.host or 'any name'}: TLS goes through, by the name {request.tls_name}")
            return self._connection(named.backend, front.owner)
        return self._ended(front, named.listener)

    def _ended(self, front: GatewayFrontend, listener: str) -> RequestEnd:
        """Return where what is in the TLS goes that a listener ends."""
        trace, ending = self.trace, next(each for each in front.listeners if each.name == listener)
        trace.chosen("listener", f"listener {listener} ends TLS", at=front.owner, where=f"spec.listeners[{listener}]")
        if len(ending.certificates) > 1:
            trace.does_not_cover("which of a listener's several certificates has the name: the first is shown")
        self._present(ending.certificates[0])
        if not ending.http:
            found = _named(front.ended_names, self.request.tls_name)
            return self._connection(found.backend if found is not None else "", front.owner)
        if front.verification is not None:
            trace.does_not_cover("the client's certificate, which the Gateway asks for: taken as a valid one")
        if not self.request.is_http:
            trace.does_not_cover("connections that hold no request, at a listener for HTTPS")
            return NOT_KNOWN
        return self._gateway_request(front, listener)

    def _connection(self, backend: str, at: str) -> RequestEnd:
        if not backend:
            return self.trace.ends("the connection is closed: no route is attached here", CLOSED, at=at)
        found = self.rules_backends.get(backend)
        owner = found.owner if found is not None else ""
        self.trace.chosen("rule", "the route of connections", at=owner, where=field_of_rule(owner))
        return RequestEnd(backend)

    def _gateway_host(self, front: GatewayFrontend) -> VirtualHost | None:
        """Return the virtual host of the request: the host itself, the longest wildcard, or that of any host."""
        name = self.request.name
        return self.gateway_hosts.get(f"{front.name}|{name}") or self._wildcard(front)

    def _wildcard(self, front: GatewayFrontend) -> VirtualHost | None:
        name = self.request.name
        ends = (f"*{name[at:]}" for at, character in enumerate(name) if character == ".")
        found = (self.gateway_hosts.get(f"{front.name}|{each}") for each in (*ends, "*"))
        return next((each for each in found if each is not None), None)

    def _gateway_request(self, front: GatewayFrontend, listener: str) -> RequestEnd:
        trace, host = self.trace, self._gateway_host(front)
        if host is None:
            trace.add("host", f"{self.request.name or '(none)'} is no virtual host of this port")
            return trace.ends("404: no listener or route has this host", RequestEnd(status=404), at=front.owner)
        if front.https and host.listener and host.listener != listener:
            text = f"421: the host belongs to listener {host.listener}, and the connection was made for {listener}"
            return trace.ends(text, RequestEnd(status=421), at=front.owner, where="spec.listeners")
        chain = [host]
        if host.kind is HostKind.EXACT:
            above = self._wildcard(front) if host.id not in front.ends else None
            chain += [above] if above is not None else []
        chain += [self.gateway_hosts[each] for each in chain[-1].above if each in self.gateway_hosts]
        for each in chain:
            trace.chosen("host", f"{each.host or '*'}: {_WORDS_OF_KIND[each.kind]}")
            route = self.rules.find(each.id, self._gateway_paths(each), self._owners_of_routes)
            if route:
                return RequestEnd(route)
        return trace.ends("404: no rule of a route is for this request", RequestEnd(status=404), at=front.owner)

    def _gateway_paths(self, host: VirtualHost) -> Iterator[PathCandidate]:
        start = f"{host.id}/"
        for backend in self.rules_backends.values():
            for entry in backend.entries:
                if entry.key.startswith(start):
                    where = field_of_rule(backend.owner)
                    yield PathCandidate(entry.map, entry.key, backend.route, backend.owner, where)
        for group in host.groups:
            yield PathCandidate(group.entry.map, group.entry.key, group.id, group=group)


def _named(names: Iterable[NameRoute], name: str) -> NameRoute | None:
    """Return where a name in a ClientHello leads: itself, the longest wildcard, or any name."""
    by_host = {each.host: each for each in names}
    ends = (f"*{name[at:]}" for at, character in enumerate(name) if character == ".")
    return next((by_host[each] for each in (name, *ends, "") if each in by_host), None)


def longest_end_key(entries: Mapping[str, Any], host: str) -> bool:
    """Return whether a map whose keys begin with dots has an end of the host, whatever it leads to."""
    return any(host[at:] in entries for at, character in enumerate(host) if character == ".")
