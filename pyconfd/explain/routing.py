"""Where a request goes: from the listener to a backend or an answer, step by step, with what decides each. Pure.

It walks what the presets made and the templates are given, in the order in which the shipped fragments have HAProxy
look it up (``02-http.tmpl``, ``03-https.tmpl``, ``04-tcp.tmpl``, ``08-gateway.tmpl``, ``09-loadbalancer.tmpl``); which
rule comes first is in these collections already. Where HAProxy listens is read from the rendered text.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_network
from typing import Any, NamedTuple

from pyconfd.explain.conditions import Evidence, shown_refusal
from pyconfd.explain.queries import is_asked_for
from pyconfd.explain.request import UNKNOWN, ClientRequest
from pyconfd.haproxy.config.text import binds
from pyconfd.model.context import PresetName, RefusalReason
from pyconfd.model.explanation import RequestStep
from pyconfd.model.listener import ANY, ANY_IPV4, ANY_IPV6, Listener
from pyconfd.model.reservation import Name
from pyconfd.presets import values
from pyconfd.presets.certificates import pem_path
from pyconfd.presets.gateway import patterns
from pyconfd.presets.gateway.conditions import PATH_TOO_LONG
from pyconfd.presets.gateway.frontends import Choice, FrontendKind, GatewayFrontend, NameRoute
from pyconfd.presets.ingress.claims import name_of
from pyconfd.presets.routing.table import VirtualHostPath, place_of_entry
from pyconfd.presets.routing.types import (
    EXACT_PATHS,
    PATH_EXPRESSIONS,
    PATH_PREFIXES,
    HostKind,
    PathEntry,
    PathKind,
    RouteBackend,
    RouteGroup,
    RouteMatch,
    ValueCondition,
    VirtualHost,
)

SHARED_HTTP, SHARED_TLS, ENDED_TLS = "http-in", "https-in", "https-terminate"
_MOST_RULES = 200
"""Of one virtual host in an answer whose paths are others than that of the request."""
_MOST_REFUSED = 10
_MOST_LOST = 1_000
"""Rules in an answer that the request does not get: a path may have many of any tenant."""
ACME = "/.well-known/acme-challenge/"
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
    """What was looked at, how a part of the requests ends otherwise (in percent), and what cannot be answered.

    ``only_end``: nobody reads the steps, so they are not kept, and nothing is looked for that only they say.
    """

    only_end: bool = False
    steps: list[RequestStep] = field(default_factory=list)
    sometimes: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    uncovered: dict[str, None] = field(default_factory=dict)
    lost_rules: int = 0

    def add(self, part: str, text: str, result: str = "", *, at: str = "", where: str = "") -> None:
        """Add a step; ``at`` is the object and ``where`` its field."""
        if not self.only_end:
            self.steps.append(RequestStep(part, text, result, at, where))

    def chosen(self, part: str, text: str, *, at: str = "", where: str = "") -> None:
        """Add what was chosen."""
        self.add(part, text, "chosen", at=at, where=where)

    def lost(self, part: str, text: str, *, at: str = "", where: str = "") -> None:
        """Add what was not chosen, as long as these are not too many."""
        self.lost_rules += 1
        if self.lost_rules <= _MOST_LOST:
            self.add(part, text, "lost", at=at, where=where)

    @property
    def hidden_rules(self) -> int:
        """How many of those that were not chosen are left out."""
        return max(0, self.lost_rules - _MOST_LOST)

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


def specificity(host: str) -> tuple[bool, int]:
    """Return how specific a host is, to compare: an exact one is before wildcards, of which the longest is first."""
    return bool(host) and not host.startswith("*"), len(host)


# Rules


class Unknown(NamedTuple):
    """A header, cookie or query parameter (``kind``) that an access log does not have, and what is asked of it."""

    kind: str
    condition: ValueCondition


class Unlogged:
    """What is assumed of a request whose access log does not say it; what was not assumed yet does not hold.

    ``answers`` has all that was asked for, in order. ``has_query``: the query is known.
    """

    def __init__(self, assumed: Mapping[Unknown, bool], *, has_query: bool) -> None:
        self.answers = dict(assumed)
        self.has_query = has_query

    def holds(self, unknown: Unknown) -> bool:
        """Return whether a condition is assumed to hold."""
        return self.answers.setdefault(unknown, False)


FORWARDED_PROTO = Unknown("header", ValueCondition("x-forwarded-proto", "https"))


_MAPS = (PATH_EXPRESSIONS, EXACT_PATHS, PATH_PREFIXES)
"""In the order in which HAProxy looks them up."""


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
        if self.map == PATH_EXPRESSIONS:
            return (
                len(path) <= patterns.LONGEST_VALUE
                and re.match(self.key, f"{virtual_host}{path}", re.ASCII) is not None
            )
        return f"{virtual_host}{path}/".startswith(self.key)

    def words(self, virtual_host: str) -> str:
        """Return what it asks for."""
        if self.map == PATH_EXPRESSIONS:
            place = place_of_entry(PathEntry(self.map, self.key), virtual_host)
            return f"path expression {_shortened_path(place.path if place is not None else self.key)}"
        path = _shortened_path(self.key.removeprefix(virtual_host))
        return f"path {path}" if self.map == EXACT_PATHS else f"path prefix {path.removesuffix('/') or '/'}"


class PathTable:
    """The entries of the maps of paths of one virtual host."""

    def __init__(self) -> None:
        self.all: list[PathCandidate] = []
        self._by_map: dict[str, dict[str, PathCandidate]] = {each: {} for each in _MAPS}
        self._beginnings: dict[str, PathCandidate] = {}

    def add(self, candidate: PathCandidate) -> None:
        """Add one; of several with the same key the first counts."""
        self.all.append(candidate)
        is_beginning = candidate.map == PATH_PREFIXES and not candidate.key.endswith("/")
        (self._beginnings if is_beginning else self._by_map[candidate.map]).setdefault(candidate.key, candidate)

    @property
    def is_by_characters(self) -> bool:
        """Whether a part of an element of a path may decide."""
        return bool(self._beginnings or self._by_map[PATH_EXPRESSIONS])

    def find(self, virtual_host: str, path: str) -> PathCandidate | None:
        """Return what HAProxy finds: the longest expression first, then an exact path, then the longest prefix."""
        expressions = sorted(self._by_map[PATH_EXPRESSIONS].values(), key=lambda each: (-len(each.key), each.key))
        if (matched := next((each for each in expressions if each.fits(virtual_host, path)), None)) is not None:
            return matched
        if (found := self._by_map[EXACT_PATHS].get(f"{virtual_host}{path}")) is not None:
            return found
        prefixes, text = self._by_map[PATH_PREFIXES], f"{virtual_host}{path}/"
        fitting = [longest_prefix(prefixes, text), *filter(text.startswith, self._beginnings)]
        longest = max(fitting, key=len)
        return prefixes.get(longest) or self._beginnings.get(longest)

    def ordered(self) -> list[PathCandidate]:
        """Return all of them, the most specific first."""
        return sorted(self.all, key=lambda each: (_MAPS.index(each.map), -len(each.key), each.key))


NO_PATHS = PathTable()


def longest_prefix(keys: Container[str], path: str) -> str:
    """Return the longest key that ends with a slash, as the text, which begins with it; "" for none."""
    end = len(path)
    while end:
        if path[:end] in keys:
            return path[:end]
        end = path.rfind("/", 0, end - 1) + 1
    return ""


class Rules:
    """Which rule has a request at one virtual host after the other.

    With ``unlogged`` headers are not looked at, nor is a query that is not known: what that says of them counts.
    ``reads_path`` and ``reads_query`` become True where the path was compared with an expression, the query at all.
    """

    def __init__(
        self,
        request: ClientRequest,
        headers: Sequence[tuple[str, str]],
        trace: Trace,
        unlogged: "Unlogged | None" = None,
    ) -> None:
        self._request, self._headers, self._trace, self._unlogged = request, headers, trace, unlogged
        self.reads_path = self.reads_query = False

    def find(self, virtual_host: str, paths: PathTable, owner_of: Mapping[str, str]) -> str:
        """Return what the request is led to, "" for nothing: exact paths come first, then the longest prefix.

        ``owner_of`` has the rule of each route that a group may lead to.
        """
        self.reads_path = self.reads_path or paths.is_by_characters
        chosen = paths.find(virtual_host, self._request.routed_path)
        if self._trace.only_end:
            if chosen is None:
                return ""
            return chosen.to if chosen.group is None else self._of_group(chosen.group, owner_of)
        trace, route, others = self._trace, "", 0
        for number, each in enumerate(paths.ordered()):
            words = each.words(virtual_host)
            if each is chosen:
                if each.group is not None:
                    route = self._of_group(each.group, owner_of)
                else:
                    route = each.to
                    trace.chosen("rule", words, at=each.object, where=each.field)
            elif each.fits(virtual_host, self._request.routed_path):
                trace.lost("rule", f"{words}: a more specific path comes first", at=each.object, where=each.field)
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
            if rule.match.kind is PathKind.REGEX and len(self._request.routed_path) > patterns.LONGEST_VALUE:
                self.reads_path = True
                return PATH_TOO_LONG
            owner = owner_of.get(rule.backend, f"{rule.owner.kind} {rule.owner.namespace}/{rule.owner.name}")
            words, field_ = _words_of(rule.match), field_of_rule(owner)
            if wrong := self._why_not(rule.match):
                self._trace.lost("rule", f"{words}: {wrong}", at=owner, where=field_)
                continue
            self._trace.chosen("rule", words, at=owner, where=field_)
            if self._trace.only_end:
                return rule.backend
            for other in group.rules[number + 1 :]:
                owner = owner_of.get(other.backend, f"{other.owner.kind} {other.owner.namespace}/{other.owner.name}")
                words, field_ = _words_of(other.match), field_of_rule(owner)
                self._trace.lost("rule", f"{words}: the rule above comes first", at=owner, where=field_)
            return rule.backend
        return ""

    def _why_not(self, match: RouteMatch) -> str:
        """Return which condition does not hold, "" where all do. Values are not repeated: some are secrets."""
        request = self._request
        if match.method not in {"", request.method}:
            return f"the method is {request.method}"
        if match.kind is PathKind.REGEX:
            self.reads_path = True
            if not _matches(ValueCondition("", match.path, True), [request.routed_path.encode()]):
                return "the path does not match"
        unlogged = self._unlogged
        if unlogged is not None:
            unknown = [Unknown("header", each) for each in match.headers]
            unknown += [Unknown("cookie", each) for each in match.cookies]
            if not unlogged.has_query:
                unknown += [Unknown("query parameter", each) for each in match.query]
            if not all(map(unlogged.holds, unknown)):
                return "a condition is assumed not to hold"
            return self._why_not_by_query(match) if unlogged.has_query else ""
        return self._why_not_by_headers(match) or self._why_not_by_query(match)

    def _why_not_by_headers(self, match: RouteMatch) -> str:
        for each in match.headers:
            sent = [value for name, value in self._headers if name == each.name]
            if UNKNOWN in sent:
                self._trace.does_not_cover(f"the value of header {each.name}, which HAProxy sets: taken as another one")
            if not _matches(each, [value.encode() for value in sent]):
                return f"header {each.name} {'has another value' if sent else 'is not sent'}"
        for each in match.cookies:
            given = [value for name, value in _cookies(self._headers) if name == each.name]
            if not _matches(each, [value.encode() for value in given]):
                return f"cookie {each.name} {'has another value' if given else 'is not sent'}"
        return ""

    def _why_not_by_query(self, match: RouteMatch) -> str:
        for each in match.query:
            self.reads_query = True
            given = list(self._request.parameters(each.name))
            if not _matches(each, given):
                return f"query parameter {each.name} {'has another value' if given else 'is not there'}"
        return ""


def _cookies(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Return the cookies of a request, as ``req.cook`` reads them."""
    for name, text in headers:
        for each in text.split(";") if name == "cookie" else ():
            cookie, equals, value = each.partition("=")
            if equals:
                yield cookie.strip(), value.strip()


def _matches(wanted: ValueCondition, found: Sequence[bytes]) -> bool:
    """Return whether one of the values is as HAProxy compares it (pyconfd/presets/gateway/conditions.py)."""
    if not wanted.regex:
        # Texts are compared up to a character 0, which a parameter may have.
        return wanted.value.encode() in [each.partition(b"\0")[0] for each in found]
    pattern = wanted.value.removeprefix(patterns.ANY_CASE).encode()
    flags = re.IGNORECASE if wanted.value.startswith(patterns.ANY_CASE) else re.NOFLAG
    compiled = re.compile(b"^(" + pattern + b")$", flags)
    return any(len(each) <= patterns.LONGEST_VALUE and compiled.search(each) for each in found)


def _shortened_path(path: str) -> str:
    return path if len(path) <= values.SHOWN_CHARACTERS else f"{path[: values.SHOWN_CHARACTERS]}..."


def _words_of(match: RouteMatch) -> str:
    found = [f"path {'prefix ' if match.kind is PathKind.PREFIX else ''}{_shortened_path(match.path)}"]
    if match.kind is PathKind.REGEX:
        found = [f"path expression {_shortened_path(match.path)}"]
    found += [f"method {match.method}"] if match.method else []
    found += [f"header {each.name}" for each in match.headers]
    found += [f"query parameter {each.name}" for each in match.query]
    found += [f"cookie {each.name}" for each in match.cookies]
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


class RoutingTables:
    """What requests are looked up in, for any number of them; ``sections`` listen, or end TLS behind one that does."""

    def __init__(self, evidence: Evidence, sections: Collection[str]) -> None:
        self.evidence, self._sections = evidence, sections
        self.names = evidence.context.names
        gateway = self.names.get("gateway") or {}
        self.frontends: Mapping[str, GatewayFrontend] = gateway.get("frontends") or {}
        self.gateway_hosts: Mapping[str, VirtualHost] = gateway.get("virtual_hosts") or {}
        self.rules_backends: Mapping[str, Any] = (self.names.get("rules") or {}).get("backends") or {}
        self.trusted = [ip_network(each) for each in evidence.variables.get("trusted_networks") or ()]

    @cached_property
    def shared(self) -> SharedHosts:
        """The hosts of the shared frontends."""
        http, https = SHARED_HTTP in self._sections, ENDED_TLS in self._sections
        return SharedHosts(self.names, http=http, https=https)

    @cached_property
    def owners_of_routes(self) -> Mapping[str, str]:
        """The rule of each route."""
        return {each.route: each.owner for each in self.rules_backends.values() if not each.is_profile}

    @cached_property
    def choices(self) -> Mapping[str, Sequence[Choice]]:
        """What is chosen from, in order, by the route that is divided."""
        found = defaultdict(list)
        for front in self.frontends.values():
            for step in front.look_ups:
                for choice in step.choices:
                    found[choice.route].append(choice)
        return found

    @cached_property
    def balanced(self) -> Mapping[str, Any]:
        """The ports of LoadBalancer Services by the section that listens."""
        return {f"fe-lb-{key}": each for key, each in (self.names.get("loadbalancer") or {}).items()}

    @cached_property
    def domains_with_port(self) -> Mapping[str, tuple[str, Any]]:
        """The domains with a port of their own, and what is served there, by the section that listens."""
        domains = (self.names.get("domains") or {}).items()
        return {f"fe-{entry['key']}": (str(domain), entry) for domain, entry in domains}

    @cached_property
    def owned_addresses(self) -> frozenset[str]:
        """The addresses that belong to a Gateway or a LoadBalancer Service."""
        owners = (*self.frontends.values(), *self.balanced.values())
        return frozenset(address for each in owners for address in each.addresses)

    @cached_property
    def gateway_paths(self) -> Mapping[str, PathTable]:
        """The paths of the virtual hosts of Gateways."""
        found: defaultdict[str, PathTable] = defaultdict(PathTable)
        for backend in self.rules_backends.values():
            for entry in backend.entries:
                where = field_of_rule(backend.owner)
                found[_virtual_host_of(entry)].add(
                    PathCandidate(entry.map, entry.key, backend.route, backend.owner, where)
                )
        for host in self.gateway_hosts.values():
            for group in host.groups:
                found[host.id].add(PathCandidate(group.entry.map, group.entry.key, group.id, group=group))
        return found

    def ingress_backends(self) -> Iterator[tuple[str, RouteBackend]]:
        """Return the backends that Ingresses lead to, by name: plain ones, and those with words of policies."""
        yield from ((self.names.get("ingress") or {}).get("backends") or {}).items()
        for name, backend in self.rules_backends.items():
            if backend.preset == PresetName.INGRESS and not backend.is_profile:
                yield name, backend

    @cached_property
    def shared_paths(self) -> Mapping[str, PathTable]:
        """The paths of the virtual hosts of the shared frontends."""
        owners = self.evidence.context.owners.get(PresetName.INGRESS, {})
        found: defaultdict[str, PathTable] = defaultdict(PathTable)
        for name, backend in self.ingress_backends():
            for entry in backend.entries:
                id_ = _virtual_host_of(entry)
                place = place_of_entry(entry, id_)
                owner = owners.get(name_of(VirtualHostPath(id_, place))) if place is not None else None
                at = f"{owner.kind} {owner.namespace}/{owner.name}" if owner is not None else ""
                found[id_].add(PathCandidate(entry.map, entry.key, name, at, "spec.rules.http.paths"))
        for virtual_host in ((self.names.get("ingress") or {}).get("virtual_hosts") or {}).values():
            for group in virtual_host.groups:
                found[virtual_host.id].add(PathCandidate(group.entry.map, group.entry.key, group.id, group=group))
        for id_, entry in self.shared.domains.items():
            at = self.owner_of_domain(entry["domain"], entry)
            found[id_].add(PathCandidate(PATH_PREFIXES, f"{id_}/", f"be-{entry['key']}", at, "annotation domain"))
        return found

    def owner_of_domain(self, domain: str, entry: Any) -> str:
        """Return the object that has a domain."""
        owner = self.evidence.context.owners.get(PresetName.DOMAINS, {}).get(Name("", domain))
        return f"{owner.kind if owner is not None else 'Service'} {entry['namespace']}/{entry['name']}"


def _virtual_host_of(entry: PathEntry) -> str:
    """Return the id of the virtual host that a key begins with: all paths begin with a slash, and no id has one."""
    start = entry.key.partition("/")[0]
    # No id has a backslash, or begins with a parenthesis.
    return start.removeprefix("(?i)^").replace("\\", "") if entry.map == PATH_EXPRESSIONS else start


class Way:
    """The way of one request; ``unlogged`` is what is assumed of one that is known from an access log."""

    def __init__(
        self, request: ClientRequest, tables: RoutingTables, trace: Trace, unlogged: Unlogged | None = None
    ) -> None:
        self.request, self.tables, self.trace, self._unlogged = request, tables, trace, unlogged
        self.evidence, self.names, self.frontends = tables.evidence, tables.names, tables.frontends
        self.gateway_hosts, self.rules_backends = tables.gateway_hosts, tables.rules_backends
        self.is_trusted = request.is_from(tables.trusted)
        headers = () if unlogged is not None else request.seen_headers(trusted=self.is_trusted)
        self.rules = Rules(request, headers, trace, unlogged)

    @property
    def shared(self) -> SharedHosts:
        """The hosts of the shared frontends."""
        return self.tables.shared

    def _front(self, entrance: Entrance) -> GatewayFrontend | None:
        return self.frontends.get(entrance.section.removesuffix(".https"))

    def host_at(self, entrance: Entrance) -> str:
        """Return the host by which a section that listens knows that of the request; "*" for any, "" for not at all."""
        if (front := self._front(entrance)) is not None:
            return self._host_at_gateway(front)
        return self._host_at_shared() if entrance.section in {SHARED_HTTP, SHARED_TLS, ENDED_TLS} else ""

    def _host_at_gateway(self, front: GatewayFrontend) -> str:
        if front.kind is FrontendKind.TLS and front.reads_hello:
            named = _named(front.names, self.request.tls_name)
            return (named.host or "*") if named is not None else ""
        found = self._gateway_host(front)
        return found.host or "*" if found is not None else "*" if front.kind is FrontendKind.TLS else ""

    def _host_at_shared(self) -> str:
        shared, name = self.shared, self.request.name
        if name in shared.through:
            return name
        if (found := shared.find(name)) is not None:
            return found.host
        ends = (name[at:] for at, character in enumerate(name) if character == ".")
        end = next((each for each in ends if each in shared.through_wildcards), "")
        return f"*{end}" if end or shared.any is not None else ""

    def owner_at(self, entrance: Entrance) -> str:
        """Return the object that has a section that listens, or what the section is called where all share it."""
        front = self._front(entrance)
        return front.owner if front is not None else f"frontend {entrance.section}"

    def only_at(self, entrance: Entrance, found: Iterable[Entrance]) -> str:
        """Return at which addresses connections come to the listener of a Gateway, "" where it has all."""
        front = self._front(entrance)
        addresses = [each.listener.address for each in found if each.section == entrance.section]
        if front is None or not all(addresses) or ANY & set(addresses):
            return ""
        return f"at {', '.join(dict.fromkeys(addresses))} of {front.owner} only"

    def from_(self, entrance: Entrance) -> RequestEnd:
        """Return where the request goes."""
        section, request, trace, front = entrance.section, self.request, self.trace, self._front(entrance)
        at = front.owner if front is not None else ""
        trace.chosen("listener", f"frontend {section} listens on {entrance.listener}", at=at)
        if front is not None:
            return self._at_gateway(front)
        if (balanced := self.tables.balanced.get(section)) is not None:
            return self._balanced(balanced)
        domain, entry = self.tables.domains_with_port.get(section, ("", None))
        if entry is not None and entry["listen_port"] == request.port:
            return self._domain_with_port(domain, entry)
        if section not in {SHARED_HTTP, SHARED_TLS, ENDED_TLS}:
            trace.does_not_cover(f"frontend {section}, which no shipped fragment for these objects writes")
            return NOT_KNOWN
        if request.to and request.to in self.tables.owned_addresses:
            text = f"{request.to} belongs to a Gateway or Service, which does not listen on port {request.port}"
            return trace.ends(f"the connection is closed: {text}", CLOSED)
        return self._at_shared(section)

    @property
    def _served(self) -> str:
        """What to say beside "no object" where one asks for the host all the same."""
        if self.trace.only_end:
            return ""
        return "that is served here " if is_asked_for(self.request.name, self.evidence) else ""

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
        at = self.tables.owner_of_domain(domain, entry)
        self.trace.chosen("rule", f"port {entry['listen_port']} of {domain}", at=at, where="annotation listen-port")
        return RequestEnd(f"be-{entry['key']}")

    def _above_root(self) -> RequestEnd:
        text = "400: the path is above the root, has a backslash, or is too long for its escapes or its .. (4096, 512)"
        return self.trace.ends(text, RequestEnd(status=400))

    # The shared frontends

    def _at_shared(self, section: str) -> RequestEnd:
        request, shared = self.request, self.shared
        if (ended := self._speaks(tls=section != SHARED_HTTP)) is not None:
            return ended
        if section == SHARED_HTTP:
            return self._shared_request(shared, tls=False) if request.routed_path else self._above_root()
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
        return self._shared_request(shared, tls=True) if request.routed_path else self._above_root()

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
            at = self.tables.owner_of_domain(found["domain"], found)
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
        if self.trace.only_end:
            return
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
            return trace.ends(f"404: no object {self._served}has this host", RequestEnd(status=404))
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
        route = self.rules.find(found.id, self.tables.shared_paths.get(found.id, NO_PATHS), {})
        self._add_refused(found)
        if not route:
            return trace.ends("404: the host has no such path", RequestEnd(status=404))
        return RequestEnd(route)

    def _add_refused(self, host: VirtualHost) -> None:
        """Add what asked for the host, or a path of it that the request has, and lost that to another object.

        The most specific come first. Any tenant may ask for thousands of paths of a host that another one has.
        """
        if self.trace.only_end:
            return
        path, found = self.request.routed_path, []
        name = values.shortened(host.host)
        for each in self.evidence.refused:
            if each.reason not in {RefusalReason.NAME_TAKEN, RefusalReason.NAME_RESERVED}:
                continue
            start = each.value.removeprefix(host.host) if each.value.startswith(f"{host.host}/") else ""
            is_mine = each.value in {host.host, name} or start == f"{path} (exact)"
            if is_mine or (start and f"{path}/".startswith(f"{start.removesuffix('/')}/")):
                found.append((-len(start), each))
        found.sort(key=lambda each: (each[0], each[1].ref, each[1].field))
        for _, each in found[:_MOST_REFUSED]:
            shown = shown_refusal(each)
            self.trace.lost("rule", f"{shown.value}: {shown.detail}", at=str(each.ref), where=each.field)
        if len(found) > _MOST_REFUSED:
            self.trace.add("rule", f"{len(found) - _MOST_REFUSED:,} more objects or paths that fit are refused")

    def _needs_no_tls(self) -> bool:
        """Return whether it is the question of an issuer, or a proxy in front says that TLS ended there."""
        request = self.request
        if request.routed_path.startswith(ACME):
            return True
        if self._unlogged is not None:
            return bool(self.tables.trusted) and self._unlogged.holds(FORWARDED_PROTO)
        return self.is_trusted and "https" in request.listed_values_of("x-forwarded-proto")

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

    def _path_too_long(self, front: GatewayFrontend) -> RequestEnd:
        text = f"414: a regular expression decides, and the path has more than {patterns.LONGEST_VALUE:,} characters"
        return self.trace.ends(text, RequestEnd(status=414), at=front.owner)

    def _gateway_request(self, front: GatewayFrontend, listener: str) -> RequestEnd:
        request, trace, host = self.request, self.trace, self._gateway_host(front)
        if host is None and not request.routed_path:
            return self._above_root()
        if host is None:
            trace.add("host", f"{self.request.name or '(none)'} is no virtual host of this port")
            text = f"404: no listener or route {self._served}has this host"
            return trace.ends(text, RequestEnd(status=404), at=front.owner)
        if front.https and host.listener and host.listener != listener:
            text = f"421: the host belongs to listener {host.listener}, and the connection was made for {listener}"
            return trace.ends(text, RequestEnd(status=421), at=front.owner, where="spec.listeners")
        if not request.routed_path:
            return self._above_root()
        chain = [host]
        if host.kind is HostKind.EXACT:
            above = self._wildcard(front) if host.id not in front.ends else None
            chain += [above] if above is not None else []
        chain += [self.gateway_hosts[each] for each in chain[-1].above if each in self.gateway_hosts]
        for each in chain:
            trace.chosen("host", f"{each.host or '*'}: {_WORDS_OF_KIND[each.kind]}")
            route = self.rules.find(
                each.id, self.tables.gateway_paths.get(each.id, NO_PATHS), self.tables.owners_of_routes
            )
            if route:
                return RequestEnd(route) if route != PATH_TOO_LONG else self._path_too_long(front)
        return trace.ends("404: no rule of a route is for this request", RequestEnd(status=404), at=front.owner)


def _named(names: Iterable[NameRoute], name: str) -> NameRoute | None:
    """Return where a name in a ClientHello leads: itself, the longest wildcard, or any name."""
    by_host = {each.host: each for each in names}
    ends = (f"*{name[at:]}" for at, character in enumerate(name) if character == ".")
    return next((by_host[each] for each in (name, *ends, "") if each in by_host), None)


def longest_end_key(entries: Mapping[str, Any], host: str) -> bool:
    """Return whether a map whose keys begin with dots has an end of the host, whatever it leads to."""
    return any(host[at:] in entries for at, character in enumerate(host) if character == ".")
