"""Where a request of an access log goes in one configuration, without the steps of an explanation. Pure.

It is the same way as that of ``pyconfd explain URL`` (:mod:`pyconfd.explain.routing`,
:mod:`pyconfd.explain.request_answer`).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import ClientRequest
from pyconfd.explain.request_answer import PREFLIGHT, AnsweringBackend, BackendSections, edited, in_backend, shares_of
from pyconfd.explain.routing import (
    ENDED_TLS,
    NOT_KNOWN,
    SHARED_TLS,
    Entrance,
    RequestEnd,
    RoutingTables,
    Trace,
    Unknown,
    Unlogged,
    Way,
    opened,
    reached,
)
from pyconfd.model.listener import ANY
from pyconfd.model.rendering import Rendering
from pyconfd.presets.gateway.frontends import FrontendKind
from pyconfd.presets.policies.types import NO_POLICY, BasicAuth, RoutePolicy
from pyconfd.presets.routing.rules import NO_FILTERS, HeaderEdit, PathEdit, RuleBackend
from pyconfd.presets.routing.types import EXACT_PATHS, HostKind, ValueCondition

_PREFLIGHT = tuple(Unknown("header", ValueCondition(name, "")) for name in PREFLIGHT)


class RequestPart(msgspec.Struct, frozen=True):
    """What ``share`` percent of such requests get: a backend of an ``owner``, an answer of HAProxy, or nothing.

    ``services`` are those that a rule sends them to, with their shares, "" where ``backend`` alone says it.
    ``leads_to`` is the location without the path of the request.
    """

    share: float
    backend: str = ""
    owner: str = ""
    services: str = ""
    status: int = 0
    location: str = ""
    leads_to: str = ""
    closed: bool = False
    host: str = ""
    path: PathEdit | None = None
    headers: tuple[HeaderEdit, ...] = ()
    policy: RoutePolicy = NO_POLICY

    @property
    def effect(self) -> tuple[Any, ...]:
        """What a client or a server notices of it: a rule with another number that leads to the same is no change."""
        to = self.services or self.backend
        edits = self.host, self.path, self.headers
        return self.share, to, self.status, self.location, self.closed, edits, self.policy

    @property
    def words(self) -> str:
        """What it is; values of headers are not repeated, since some are secrets, nor is the path of the request."""
        share = f"{self.share:g} % " if self.share < 100 else ""
        if self.closed:
            return f"{share}connection closed"
        if self.status:
            return f"{share}status {self.status}{f' to {self.leads_to}' if self.leads_to else ''}"
        of = ", ".join(filter(None, (self.owner, self.services)))
        edits = [f"host {self.host}"] if self.host else []
        edits += [f"path {words_of_edit(self.path)}"] if self.path is not None else []
        edits += sorted({f"header {each.name}" for each in self.headers})
        rewritten = f", rewrites {', '.join(edits)}" if edits else ""
        rewritten += f", with {self.policy.words}" if self.policy != NO_POLICY else ""
        return f"{share}backend {self.backend}{f' ({of})' if of else ''}{rewritten}"


def words_of_edit(edit: PathEdit) -> str:
    """Return what a path becomes."""
    return f"{edit.pattern} -> {edit.format}" if edit.pattern else f"-> {edit.format}"


class RoutingDecision(NamedTuple):
    """Where requests go. ``reads_path``: another path may get something else though the maps lead it the same way.

    The query counts as a part of the path. ``unknown`` says why it is not known, "" where it is.
    """

    parts: tuple[RequestPart, ...]
    reads_path: bool = False
    unknown: str = ""

    @property
    def effect(self) -> tuple[Any, ...]:
        """What is compared."""
        found = [each.effect for each in self.parts]
        return self.unknown, *(sorted(found, key=repr) if len(found) > 1 else found)

    @property
    def words(self) -> str:
        """What it is."""
        return self.unknown or "; ".join(each.words for each in self.parts)


class KnownNames(NamedTuple):
    """All hosts and paths that a configuration tells apart: it treats any two others the same way.

    ``hosts`` are whole ones, ``ends`` begin with a dot. ``paths`` are exact ones, ``prefixes`` end with a slash.
    """

    hosts: frozenset[str]
    ends: frozenset[str]
    paths: frozenset[str]
    prefixes: frozenset[str]

    def __or__(self, other: "KnownNames") -> "KnownNames":
        return KnownNames(*(mine | others for mine, others in zip(self, other, strict=True)))


class RoutingDecisions:
    """Decides requests in one configuration, which ``evidence`` has as the desired one."""

    def __init__(self, evidence: Evidence) -> None:
        rendering = evidence.desired or Rendering(())
        places, sections = opened(rendering.text)
        self.evidence = evidence
        self.tables = RoutingTables(evidence, sections)
        self._places: list[Entrance] = places
        self._sections = BackendSections(rendering, is_running=False)
        self._backends: dict[str, AnsweringBackend] = {}
        self._parts: dict[tuple[str, float], tuple[RequestPart, ...]] = {}
        self._owners = dict(self._owners_of_backends())
        self.logs_query = str(evidence.variables.get("log_query", "")).lower() == "true"

    def entrance_of(self, listener: str) -> Entrance | None:
        """Return where connections come in whose requests are logged at a frontend, None where there is none."""
        outer = SHARED_TLS if listener == ENDED_TLS else listener.removesuffix(".https").removesuffix(".tls")
        found = [
            next((each for each in self._places if each.section == name), None)
            for name in dict.fromkeys((listener, outer, f"{outer}.https"))
        ]
        return next((each for each in found if each is not None), None)

    def entrance_at(self, other: Entrance) -> Entrance | None:
        """Return where connections come in that came in there in another configuration."""
        same = [each for each in self._places if each.listener == other.listener]
        if same:
            return next((each for each in same if each.section == other.section), same[0])
        address, port = other.listener.address, other.listener.port
        to = "" if address in ANY or not address else address
        found = reached(self._places, _probe(port, to))
        return next((each for each in found if each.section == other.section), found[0] if found else None)

    def speaks_tls(self, entrance: Entrance) -> bool:
        """Return whether connections there begin with a ClientHello."""
        front = self.tables.frontends.get(entrance.section.removesuffix(".https"))
        return entrance.section == SHARED_TLS or (front is not None and front.kind is FrontendKind.TLS)

    def asks_for_source(self, entrance: Entrance) -> bool:
        """Return whether the client's address decides."""
        port = self.tables.balanced.get(entrance.section)
        return port is not None and bool(port.source_ranges)

    def decide(self, request: ClientRequest, entrance: Entrance | None, unlogged: Unlogged) -> RoutingDecision:
        """Return where a request goes that comes in there."""
        if entrance is None:
            return RoutingDecision((RequestPart(100.0, closed=True),))
        trace = Trace(only_end=True)
        way = Way(request, self.tables, trace, unlogged)
        end = way.from_(entrance)
        reads_path = way.rules.reads_path or way.rules.reads_query
        if end is NOT_KNOWN:
            return RoutingDecision((), unknown=", ".join(trace.uncovered) or "not known")
        if not end.route:
            return RoutingDecision((_answer(100.0, end, request),), reads_path)
        shares = shares_of(end.route, self.tables)
        if not shares:
            return RoutingDecision((RequestPart(100.0, status=404),), reads_path)
        parts = [part for name, share in shares if share for part in self._parts_of(name, share, request, unlogged)]
        return RoutingDecision(tuple(parts), reads_path)

    def _parts_of(self, name: str, share: float, request: ClientRequest, unlogged: Unlogged) -> tuple[RequestPart, ...]:
        if (known := self._parts.get((name, share))) is not None:
            return known
        backend = self._backend(name)
        found = tuple(self._parts_in(backend, share, request, unlogged))
        filters = backend.rule.filters if backend.rule is not None else NO_FILTERS
        policy = backend.rule.policy if backend.rule is not None else NO_POLICY
        is_plain = not policy.app_root and not policy.clients
        if is_plain and filters.cors is None and filters.redirect is None:  # then nothing of the request decides
            self._parts[name, share] = found
        return found

    def _parts_in(
        self, backend: AnsweringBackend, share: float, request: ClientRequest, unlogged: Unlogged
    ) -> Iterator[RequestPart]:
        rule = backend.rule
        filters = rule.filters if rule is not None else None
        is_preflight = filters is not None and filters.cors is not None and request.method == "OPTIONS"
        if is_preflight and all(map(unlogged.holds, _PREFLIGHT)):
            yield RequestPart(share, status=204)
            return
        trace = Trace(only_end=True)
        end = in_backend(request, backend, share, trace)
        path = filters.path if filters is not None else None
        if end is not None:
            yield _answer(share, end, request, path)
            return
        for status, some in trace.sometimes.items():
            share -= some
            yield RequestPart(round(some, 2), status=status, closed=not status)
        owner = rule.owner if rule is not None else self._owners.get(backend.name, "")
        made = RequestPart(round(share, 2), backend.name, owner, self._services_of(rule))
        if filters is not None:
            headers = (*filters.request, *filters.response)
            made = msgspec.structs.replace(made, host=filters.host, path=path, headers=headers)
            made = msgspec.structs.replace(made, policy=_policy_of(rule))
        yield made

    def _backend(self, name: str) -> AnsweringBackend:
        if name not in self._backends:
            self._backends[name] = AnsweringBackend(name, self.evidence, self._sections)
        return self._backends[name]

    def _services_of(self, rule: RuleBackend | None) -> str:
        if rule is None:
            return ""
        found, total = [], sum(weight for weight, _ in rule.ports) or 1
        for weight, port in rule.ports:
            service = self.evidence.snapshot.services.get(port.service)
            ports = service.spec.ports or () if service is not None else ()
            number = f":{ports[port.place].port}" if port.place < len(ports) else ""
            share = f" {round(100 * weight / total, 2):g} %" if len(rule.ports) > 1 else ""
            found.append(f"Service {port.service.namespace}/{port.service.name}{number}{share}")
        return " and ".join(sorted(found))

    def _owners_of_backends(self) -> Iterator[tuple[str, str]]:
        names = self.tables.names
        for name, each in self.tables.ingress_backends():
            yield name, each.owner
        for domain, entry in (names.get("domains") or {}).items():
            yield f"be-{entry['key']}", self.tables.owner_of_domain(str(domain), entry)
        for key, port in (names.get("loadbalancer") or {}).items():
            yield f"lb-{key}", f"Service {port.namespace}/{port.name}"

    @cached_property
    def known(self) -> KnownNames:
        """The hosts and paths that it tells apart."""
        tables, shared = self.tables, self.tables.shared
        hosts = {each.host for each in tables.gateway_hosts.values() if each.kind is HostKind.EXACT}
        hosts |= {*shared.by_map["hosts-http"], *shared.through, *shared.below_foreign, *shared.ended}
        hosts |= {name for name in shared.certificates if not name.startswith("*")}
        ends = {each.host for each in tables.gateway_hosts.values() if each.kind is not HostKind.EXACT}
        ends |= {f"*.{each}" for each in shared.by_map["one-label-http"]}
        ends |= {f"*{each}" for each in (*shared.by_map["wildcards-http"], *shared.through_wildcards)}
        ends |= {name for name in shared.certificates if name.startswith("*")}
        for front in tables.frontends.values():
            for named in (*front.names, *front.ended_names):
                (ends if named.host.startswith("*") else hosts).add(named.host)
        candidates = [
            each
            for some in (tables.gateway_paths, tables.shared_paths)
            for table in some.values()
            for each in table.all
        ]
        for backend in tables.rules_backends.values():
            if backend.filters.redirect is not None and backend.filters.redirect.host:
                hosts.add(backend.filters.redirect.host)
        whole = [each for each in candidates if each.map == EXACT_PATHS or each.key.endswith("/")]
        paths = {(each.map == EXACT_PATHS, "/" + each.key.partition("/")[2]) for each in whole}
        # Where an object has a word for the path /, that is one of its own.
        paths |= {(True, "/") for each in tables.rules_backends.values() if each.policy.app_root}
        return KnownNames(
            frozenset(hosts),
            frozenset(each[1:] for each in ends if each.startswith("*.")),
            frozenset(path for is_exact, path in paths if is_exact),
            frozenset(path for is_exact, path in paths if not is_exact),
        )


def _policy_of(rule: RuleBackend | None) -> RoutePolicy:
    """Return what its words ask for; with other passwords of the same Secret it is the same."""
    policy = rule.policy if rule is not None else NO_POLICY
    return policy._replace(auth=BasicAuth(policy.auth.secret)) if policy.auth is not None else policy


def _answer(share: float, end: RequestEnd, request: ClientRequest, path: PathEdit | None = None) -> RequestPart:
    if not end.location:
        return RequestPart(share, status=end.status, closed=end.closed)
    own = edited(request.path, path) if path is not None else request.path
    base = end.location.removesuffix(f"?{request.query}" if request.query else "").removesuffix(own)
    leads_to = f"{base}{words_of_edit(path) if path is not None else '/...'}"
    return RequestPart(share, status=end.status, location=end.location, leads_to=leads_to, path=path)


def _probe(port: int, to: str) -> ClientRequest:
    """Return any request to an address."""
    return ClientRequest("http", "", port, "/", "", "GET", (("host", ""),), "", "", to, ())
