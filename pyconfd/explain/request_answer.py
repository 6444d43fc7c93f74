"""What becomes of a request: its way to a backend, then filters, servers, timeouts and the answer. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv6Address, ip_address
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from pyconfd.explain.answer_causes import AnswerCauses, causes_of, has_cause
from pyconfd.explain.bounds import bounded
from pyconfd.explain.conditions import Evidence, server_state
from pyconfd.explain.configuration import ServerLine, host_and_port, place_of
from pyconfd.explain.request import ClientRequest
from pyconfd.explain.routing import (
    CLOSED,
    NOT_KNOWN,
    Entrance,
    RequestEnd,
    RoutingTables,
    Trace,
    Way,
    field_of_rule,
    opened,
    reached,
    specificity,
)
from pyconfd.haproxy.config.index import cut
from pyconfd.haproxy.config.servers import parent_of
from pyconfd.haproxy.config.text import Section, parse
from pyconfd.model.context import PresetName
from pyconfd.model.explanation import Explanation, RequestAnswer, RequestStep, ServerReport
from pyconfd.model.listener import ANY
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Phase
from pyconfd.presets.gateway.http_rules import SPLIT
from pyconfd.presets.policies.pods import AS_THE_SERVICE
from pyconfd.presets.routing.rules import AS_USUAL, EMPTY_OF, PathEdit, Redirect, RuleBackend
from pyconfd.presets.routing.types import RouteServer
from pyconfd.presets.views import EndpointView

_SETTINGS = frozenset(
    [
        *(f"timeout {each}" for each in ("http-request", "client", "queue", "connect", "server", "tunnel")),
        *("balance", "mode", "retries", "retry-on"),
    ]
)
_RAND = re.compile(r"\{ rand\(([0-9]+)\) lt ([0-9]+) \}")
_ORIGIN = re.compile(r"\{ req\.hdr\(origin\) -m (found|str|reg)(?: -i)?(?: --)?(?: '?(.*?)'?)? \}")
_LOOPBACK = "127.0.0.1"
PREFLIGHT = ("access-control-request-method", "origin")
"""The headers of what browsers ask before a request."""
_IDLE = frozenset({"down", "maint", "drain", "absent"})
"""States of servers that get no new connections."""


def explain_request(request: ClientRequest, evidence: Evidence) -> Explanation:
    """Answer what becomes of a request; where several listeners know its host, which ones these are."""
    rendering = evidence.desired or evidence.running
    trace = Trace()
    for name in evidence.own_fragments:
        trace.does_not_cover(f"fragment {name}, which is not the shipped one")
    if not evidence.haproxy:
        trace.does_not_cover("the other load balancers that are served here: it is what HAProxy would do")
    if rendering is None:
        trace.does_not_cover("where HAProxy listens: nothing was rendered")
        return _explanation(request, RoutingTables(evidence, ()), trace, NOT_KNOWN)
    if not_applied := _not_applied(evidence):
        trace.does_not_cover(not_applied)
    places, sections = opened(rendering.text)
    tables = RoutingTables(evidence, sections)
    found, way = reached(places, request), Way(request, tables, trace)
    if not found:
        at = f"{request.to} port {request.port}" if request.to else f"port {request.port}"
        refused = trace.ends(f"the connection is refused: nothing listens on {at}", CLOSED)
        return _explanation(request, tables, trace, refused, tuple(_elsewhere(places, way, "")))
    ranks = {each: specificity(way.host_at(each)) for each in found}
    best = max(ranks.values())
    by_section = {each.section: each for each in reversed(found) if ranks[each] == best}
    others = {each.section: each for each in reversed(found) if each.section not in by_section and ranks[each][1]}
    notes = [f"less specific, so not the first to ask for: {_asked_at(each, way)}" for each in others.values()]
    if len(by_section) > 1:
        candidates = [_asked_at(each, way) for each in by_section.values()]
        notes.insert(0, "the address that clients connect to decides: several listeners know this host")
        return Explanation(
            request.url, evidence.now, evidence.instance, candidates=tuple(sorted(candidates)), notes=tuple(notes)
        )
    (entrance,) = by_section.values()
    if not request.to and (only := way.only_at(entrance, found)):
        notes.insert(0, only)
    end = way.from_(entrance)
    if has_cause(end):
        notes += _elsewhere(places, way, entrance.section)
    return _explanation(request, tables, trace, end, tuple(notes))


def _elsewhere(places: Iterable[Entrance], way: Way, section: str) -> Iterator[str]:
    """Return where else the host is known, and how to ask for that: at the same port, else at another one."""
    known = {each.section: each for each in places if each.section != section and specificity(way.host_at(each))[1] > 1}
    port = way.request.port
    at_port = [each for each in known.values() if each.listener.port == port]
    for each in at_port or known.values() if not section else at_port:
        where = f"{_address(each, way.evidence)} port {each.listener.port}"
        yield f"{way.owner_at(each)} has this host, at {where}"


def _asked_at(entrance: Entrance, way: Way) -> str:
    """Return the query for one of several listeners; a shell takes the owner behind it for a comment."""
    address = _address(entrance, way.evidence)
    return f"{shlex.quote(way.request.url)} --to {address}  # {way.owner_at(entrance)}"


def _not_applied(evidence: Evidence) -> str:
    """Return in which way the answer is not about what HAProxy runs, "" where it is."""
    desired, running = evidence.desired, evidence.running
    if desired is None:
        return (
            "what HAProxy runs now: hosts and rules are the cluster's newest, which were not rendered; "
            "listeners, servers and settings are those that run"
        )
    is_applied = desired.same_as(running) if running is not None else not evidence.haproxy
    return "" if is_applied else "what HAProxy runs now: the newest configuration, which this is about, is not applied"


def _address(entrance: Entrance, evidence: Evidence) -> str:
    """Return an address at which connections come to a listener."""
    address, shared = entrance.listener.address, evidence.options.addresses.shared
    return address if address and address not in ANY else next(iter(shared), _LOOPBACK)


def _explanation(
    request: ClientRequest, tables: RoutingTables, trace: Trace, end: RequestEnd, notes: tuple[str, ...] = ()
) -> Explanation:
    evidence = tables.evidence
    servers: tuple[ServerReport, ...] = ()
    backends: tuple[tuple[str, float], ...] = ()
    if end.route and not (backends := shares_of(end.route, tables)):
        end = trace.ends("404: no reference of this rule has a weight", RequestEnd(status=404))
    elif end.route:
        rendering = evidence.desired or evidence.running or Rendering(())
        configuration = BackendSections(rendering, is_running=not _not_applied(evidence))
        sections = [AnsweringBackend(name, evidence, configuration) for name, _ in backends]
        end = _applied(request, sections, backends, end, trace)
        servers = tuple(each for backend in sections for each in backend.servers)
    if evidence.instance.phase == Phase.DOWN:
        # The way is still of use: it is that of the request as soon as HAProxy runs again.
        trace.steps = [each for each in trace.steps if each.part != "answer"]
        trace.sometimes.clear()
        end = trace.ends("the connection is refused: HAProxy does not run (see above)", CLOSED)
    causes = AnswerCauses()
    if evidence.instance.phase != Phase.DOWN and (has_cause(end) or trace.sometimes):
        causes = causes_of(request, end, (name for name, _ in backends), evidence)
    if trace.hidden_rules:
        notes = (*notes, f"{trace.hidden_rules:,} more rules are not those of the request")
    answer = RequestAnswer(
        tuple(trace.steps),
        backends,
        end.status,
        end.location,
        end.closed,
        tuple((status, round(share, 2)) for status, share in sorted(trace.sometimes.items())),
        tuple(trace.uncovered),
    )
    found = Explanation(
        request.url,
        evidence.now,
        evidence.instance,
        f"{request.method} {request.url}",
        claims=causes.claims,
        servers=servers,
        close=causes.close,
        notes=(*notes, *causes.notes),
        request=answer,
    )
    return bounded(found)


def shares_of(route: str, tables: RoutingTables) -> tuple[tuple[str, float], ...]:
    """Return the backends that requests of a route are divided among, each with its share in percent."""
    choices = tables.choices.get(route)
    if not choices:
        return () if route.startswith(SPLIT) else ((route, 100.0),)
    left, shares = 1.0, dict.fromkeys((each.to for each in choices), 0.0)
    for each in choices:
        if found := _RAND.fullmatch(each.condition):
            shares[each.to] += left * int(found[2]) / int(found[1])
            left -= left * int(found[2]) / int(found[1])
        else:  # the rest goes there
            shares[each.to] += left
            left = 0.0
    return tuple((name, round(100 * share, 2)) for name, share in shares.items())


class BackendSections:
    """The sections of a rendering. Of 100,000 servers those of the backends that are asked for are parsed only.

    ``is_running``: it is what HAProxy runs.
    """

    def __init__(self, rendering: Rendering, *, is_running: bool) -> None:
        self.rendering, self.is_running = rendering, is_running
        self._head, self._slices = cut(rendering.text)
        self._places = {each.name: at for at, each in reversed(list(enumerate(self._slices))) if each[0] == "backend"}
        self._defaults = [(at, parse(each.text)[0]) for at, each in enumerate(self._slices) if each[0] == "defaults"]
        self._first_lines = [*accumulate((each.text.count("\n") for each in self._slices), initial=0)]

    def backend(self, name: str) -> Sequence[Section]:
        """Return a backend and the defaults sections that it inherits from, the nearest first; none without it."""
        at = self._places.get(name)
        if at is None:
            return ()
        first = 1 + self._head.count("\n") + self._first_lines[at]
        above = [section for place, section in self._defaults if place < at]
        return tuple(_with_inherited(parse(self._slices[at].text, first)[0], above))


def _with_inherited(section: Section, above: Sequence[Section]) -> Iterator[Section]:
    yield section
    while (parent := parent_of(section.keyword, section.options)) is not None:
        found = (at for at in reversed(range(len(above))) if parent in {"", above[at].name})
        if (at := next(found, None)) is None:
            return
        section, above = above[at], above[:at]
        yield section


class AnsweringBackend:
    """One section that requests come to: what the presets made of it, and its lines in the configuration."""

    def __init__(self, name: str, evidence: Evidence, configuration: BackendSections) -> None:
        names = evidence.context.names
        self.name, self._evidence, self._rendering = name, evidence, configuration.rendering
        self._is_running = configuration.is_running
        self.rule: RuleBackend | None = ((names.get("rules") or {}).get("backends") or {}).get(name)
        sections = configuration.backend(name)
        self.is_rendered = bool(sections)
        self._settings = _settings_of(sections)
        self._lines = [line for line in sections[0].lines if line.words[0] == "server"] if sections else []

    @property
    def unserved(self) -> str:
        """Why no server takes traffic, "" where one does; by HAProxy's states where it was asked and runs this."""
        if not any(("weight", "0") not in pairwise(line.words) for line in self._lines):
            return "the backend has no server that takes traffic"
        servers = self.servers if self._is_running else []
        if not servers or not all(each.state in _IDLE or not each.weight for each in servers):
            return ""
        if all(each.state == "absent" for each in servers):
            return ""  # HAProxy has another configuration
        count, by_hand = len(servers), [each for each in servers if each.by_hand]
        down = [each for each in servers if each.state in {"down", "absent"}]
        why = next((f" ({each.why})" for each in down if each.why), "")
        undo = "".join(f"; pyconfd server ready {each.backend}/{each.name}" for each in by_hand[:1])
        of_backend = f"the {count} servers of {self.name}"
        if len(by_hand) == count:
            return (f"all {count} servers were" if count > 1 else "the only server was") + f" taken out by hand{undo}"
        if len(down) == count:
            return f"none of {of_backend} is up{why}" if count > 1 else f"the only server of {self.name} is down{why}"
        draining = count - len(by_hand) - len(down)
        parts = {"down": len(down), "taken out by hand": len(by_hand), "draining": draining}
        counts = (f"{some} {words}{why if words == 'down' else ''}" for words, some in parts.items() if some)
        return f"none of {of_backend} takes traffic: {', '.join(counts)}{undo}"

    @property
    def is_tcp(self) -> bool:
        """Whether it takes connections and no requests, which is HAProxy's default."""
        if not self.is_rendered:
            return self.rule is not None and self.rule.mode == "tcp"
        return self._settings.get("mode", ("tcp", ""))[0] == "tcp"

    def _origin_of(self, key: str) -> tuple[str, str]:
        """Return the object and the field that say a setting, "" where the operator's fragments do."""
        if self.rule is None:
            return "", ""
        handling, at = self.rule.handling, self.rule.owner
        if key == "timeout server" and handling.timeout_ms is not None:
            return at, _said(self.rule, "server-timeout", "request-timeout") or _field(at, "timeouts")
        if key in {"retries", "retry-on"} and handling.retry is not None:
            return at, _said(self.rule, "retries", "retry-on") or _field(at, "retry")
        return "", ""

    @cached_property
    def servers(self) -> list[ServerReport]:
        """Its servers as they are in the configuration."""
        lines = [
            ServerLine(self.name, line.words[1], *host_and_port(line.words[2]), line.number)
            for line in self._lines
            if len(line.words) > 2
        ]
        preset, key, endpoints = self._origin()
        pods = {each.address: each for each in endpoints}
        held = self._evidence.kept.get((preset, key), ())
        return [
            msgspec.structs.replace(
                server_state(each, self._evidence, pods.get(each.address)),
                place=place_of(self._rendering, each.line),
                held=each.address in held,
            )
            for each in lines
        ]

    def _origin(self) -> tuple[str, str, Iterable[EndpointView | RouteServer]]:
        """Return the preset that has requests sent to it, under which key, and to what."""
        names, key = self._evidence.context.names, self.name.partition("-")[2]
        if self.rule is not None:
            return self.rule.preset, self.name, self.rule.servers
        of_ingress = ((names.get("ingress") or {}).get("backends") or {}).get(self.name)
        if of_ingress is not None:
            return PresetName.INGRESS, self.name, of_ingress.servers
        balanced = (names.get("loadbalancer") or {}).get(key) if self.name.startswith("lb-") else None
        if balanced is not None:
            return PresetName.LOADBALANCER, key, balanced.endpoints
        domains = (names.get("domains") or {}).items()
        domain, endpoints = next(
            ((domain, each["endpoints"]) for domain, each in domains if each["key"] == key), ("", ())
        )
        return PresetName.DOMAINS, domain, endpoints

    def leaves_out(self, host: str) -> bool:
        """Return whether its object leaves requests for this host out of the access log."""
        names, key = self._evidence.context.names, self.name.partition("-")[2]
        if self.rule is not None:
            return bool(self.rule.unlogged)
        of_ingress = ((names.get("ingress") or {}).get("backends") or {}).get(self.name)
        if of_ingress is not None:
            hosts = (each.partition("|")[0].removeprefix("*") for each in of_ingress.unlogged)
            return any(each in {host, ""} or (each.startswith(".") and host.endswith(each)) for each in hosts)
        return any(each["unlogged"] for each in (names.get("domains") or {}).values() if each["key"] == key)

    def settings(self) -> Iterator[RequestStep]:
        """Return what its lines, and the defaults sections that it inherits from, say of requests."""
        handling = self.rule.handling if self.rule is not None else AS_USUAL
        # They are in a map, and no line of the configuration.
        of_rule = {"timeout server": handling.timeout_ms, "timeout tunnel": handling.tunnel_ms}
        for key, (line, title) in sorted(self._settings.items()):
            ms = of_rule.get(key)
            value = f"{ms}ms" if ms is not None else line
            if key != "mode":
                part = "timeout" if key.startswith("timeout") else "backend"
                yield RequestStep(
                    part, f"{key} {value}{'' if ms is not None else f' ({title})'}", "", *self._origin_of(key)
                )
        if self.rule is not None and self.rule.handling.deadline_ms is not None:
            where = _said(self.rule, "request-timeout") or _field(self.rule.owner, "timeouts.request")
            text = f"all attempts together: {self.rule.handling.deadline_ms} ms, else 504"
            yield RequestStep("timeout", text, "", self.rule.owner, where)


def _field(owner: str, name: str) -> str:
    """Return the field of a rule; of an Ingress its annotations say it."""
    rule = field_of_rule(owner)
    return f"{rule}.{name}" if rule else "metadata.annotations"


def _settings_of(sections: Iterable[Section]) -> Mapping[str, tuple[str, str]]:
    """Return the value of each setting and the section that says it; the first of the sections counts."""
    found: dict[str, tuple[str, str]] = {}
    for section in sections:
        own: dict[str, tuple[str, str]] = {}
        for line in section.lines:
            key = " ".join(line.words[: 2 if line.words[0] == "timeout" else 1])
            if key in _SETTINGS:
                own[key] = " ".join(line.words[len(key.split()) :]), section.title
        found = own | found
    return found


def _applied(
    request: ClientRequest,
    found: Sequence[AnsweringBackend],
    shares: Sequence[tuple[str, float]],
    end: RequestEnd,
    trace: Trace,
) -> RequestEnd:
    """Add what happens in the backends; return the end, which is an answer of HAProxy where it gives one to all."""
    each_with_share = zip(found, (share for _, share in shares), strict=True)
    ends = [(backend, in_backend(request, backend, share, trace), share) for backend, share in each_with_share]
    ends = [each for each in ends if each[2]]
    if len({ended for _, ended, _ in ends}) == 1 and ends[0][1] is not None:
        return ends[0][1]
    for _, ended, share in ends:
        if ended is not None:
            trace.sometimes[ended.status] += share
    rendered = [backend for backend, ended, _ in ends if ended is None and backend.is_rendered]
    if not rendered:
        return NOT_KNOWN
    trace.steps += _settings_steps(rendered)
    return trace.ends("that of one of these servers", end)


def _settings_steps(backends: Sequence[AnsweringBackend]) -> list[RequestStep]:
    """Return the settings of several backends: once what all of them have, and of which one the others are."""
    own = {backend.name: list(backend.settings()) for backend in backends}
    steps = dict.fromkeys(
        step
        if all(step in each for each in own.values())
        else msgspec.structs.replace(step, text=f"{name}: {step.text}")
        for name, some in own.items()
        for step in some
    )
    return sorted(steps, key=lambda step: step.part)


class _Ended(NamedTuple):
    """An answer of HAProxy itself, and what says so."""

    text: str
    end: RequestEnd
    at: str
    where: str


def in_backend(request: ClientRequest, backend: AnsweringBackend, share: float, trace: Trace) -> RequestEnd | None:
    """Add what happens in one backend, which so many percent of the requests come to; return an answer of HAProxy."""
    rule, at, where, weights, ended = backend.rule, "", "", "", None
    if rule is not None:
        at, where = rule.owner, f"{field_of_rule(rule.owner)}.backendRefs"
        if limits := rule.policy.limits:
            trace.add(
                "filter",
                f"at most {limits.text}",
                at=at,
                where=_said(rule, "limit-rps", "limit-rpm", "limit-connections"),
            )
        if len(rule.ports) > 1:
            parts = (f"{port.service.namespace}/{port.service.name} {weight}" for weight, port in rule.ports)
            weights = f", weights of its references: {', '.join(parts)}"
        _at_pods(rule, trace)
        ended = _by_words(request, rule, trace) if not backend.is_tcp else _failing(rule, trace)
        if ended is None and not backend.is_tcp:
            ended = _filtered(request, rule, trace)
        if ended is None:
            _count_failing(rule, share, trace)
    trace.chosen("backend", f"{backend.name}: {share:g} % of such requests{weights}", at=at, where=where)
    if not trace.only_end and backend.leaves_out(request.name):
        text = "answers of servers below 500 are left out of the access log"
        trace.add("log", text, at=at, where="annotation pyconfd.io/access-log")
    if ended is not None:
        return trace.ends(ended.text, ended.end, at=ended.at, where=ended.where)
    if not backend.is_rendered:
        trace.does_not_cover(f"servers and settings of backend {backend.name}, which is not in the configuration")
        return None
    if not (why := backend.unserved):
        return None
    what, end = ("the connection is closed", CLOSED) if backend.is_tcp else ("503", RequestEnd(status=503))
    return trace.ends(f"{what}: {why}", end)


def _failing(rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Return the end of requests that belong to references without a Service, where all of the backend do."""
    what, ended = ("500", RequestEnd(status=500)) if rule.mode == "http" else ("a closed connection", CLOSED)
    at, where = rule.owner, f"{field_of_rule(rule.owner)}.backendRefs"
    if rule.failing and rule.failing == rule.of:
        return _Ended(f"{what}: their reference leads to no Service", ended, at, where)
    if rule.failing:
        text = f"{rule.failing} of {rule.of} get {what}: their reference leads to no Service"
        trace.add("backend", text, at=at, where=where)
    if rule.empty:
        what = "503" if rule.mode == "http" else what
        text = f"{100 * rule.empty / EMPTY_OF:g} % get {what}: their reference has no endpoint that is ready"
        trace.add("backend", text, at=at, where=where)
    return None


def _count_failing(rule: RuleBackend, share: float, trace: Trace) -> None:
    """Count the requests of references without a Service, or without endpoints."""
    failing = rule.failing / rule.of
    if failing:
        trace.sometimes[500 if rule.mode == "http" else 0] += share * failing
    if rule.empty:
        trace.sometimes[503 if rule.mode == "http" else 0] += share * (1 - failing) * rule.empty / EMPTY_OF


def _filtered(request: ClientRequest, rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Add the filters of a rule in the order of their lines; return an answer that HAProxy gives itself."""
    filters, at = rule.filters, rule.owner
    where = f"{field_of_rule(at)}.filters"
    if filters.cors is not None:
        allowed = any(_has_origin(each, request) for each in filters.cors.conditions)
        trace.add("filter", f"CORS: the origin is {'' if allowed else 'not '}an allowed one", at=at, where=where)
        asks = request.method == "OPTIONS" and request.values_of("access-control-request-method")
        if asks and request.values_of("origin"):
            return _Ended("204: what browsers ask before a request", RequestEnd(status=204), at, where)
    if (failed := _failing(rule, trace)) is not None:
        return failed
    for some, edits in (("request", filters.request), ("response", filters.response)):
        for edit in edits:
            verb = {"set": "is set", "add": "is added", "del": "is removed"}[edit.action]
            trace.add("filter", f"{some} header {edit.name} {verb}", at=at, where=where)
    if filters.host:
        trace.add("filter", f"the server gets the host {filters.host}", at=at, where=where)
    path = edited(request.path, filters.path) if filters.path is not None else request.path
    if filters.path is not None and filters.redirect is None:
        trace.add("filter", f"the server gets the path {path}", at=at, where=where)
    for mirror in rule.mirrors:
        trace.add("filter", f"{mirror.share} of {mirror.of} requests are copied to {mirror.name}", at=at, where=where)
    if filters.redirect is not None:
        query = f"?{request.query}" if request.query else ""
        location = _location(filters.redirect, request) + path + query
        ended = RequestEnd(status=filters.redirect.code, location=location)
        return _Ended(f"{filters.redirect.code}: a redirect to {location}", ended, at, where)
    return None


def _at_pods(rule: RuleBackend, trace: Trace) -> None:
    """Add what words say of pods and their answers."""
    policy, at = rule.policy, rule.owner
    if policy.closed:
        return
    if policy.compressed:
        text = f"answers are compressed: {policy.compressed}"
        trace.add("policy", text, at=at, where=_said(rule, "compression"))
    if policy.pages:
        statuses = ", ".join(str(each.status) for each in policy.pages)
        text = f"answers with {statuses} have pages of their own"
        trace.add("policy", text, at=at, where=_said(rule, "error-pages"))
    if policy.pods != AS_THE_SERVICE:
        asked = policy.pods.lines.health
        checked = f"; those that answer to GET {asked}" if asked else ""
        text = f"servers: {rule.options or 'HTTP/1.1 without TLS'}{checked}"
        trace.add("policy", text, at=at, where=_said(rule, *_OF_PODS))


def _by_words(request: ClientRequest, rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Return what HAProxy answers by the words of policies, before all filters."""
    root = rule.policy.app_root
    ended = (
        _by_network(request, rule, trace) or _by_certificate(request, rule, trace) or _by_login(request, rule, trace)
    )
    if ended is not None:
        return ended
    if not root or request.routed_path != "/":
        if not _is_preflight(request, rule):
            _asked(rule, trace)
        return None
    end = RequestEnd(status=302, location=root)
    return _Ended(f"302: a redirect to {root}", end, rule.owner, _said(rule, "app-root"))


def _said(rule: RuleBackend, *words: str) -> str:
    """Return what says words of policies, as far as there are any."""
    found = [source for word, source in rule.said if word in words]
    more = f" and {len(found) - _MOST_SOURCES} more" if len(found) > _MOST_SOURCES else ""
    return f"{', '.join(found[:_MOST_SOURCES])}{more}"


_MOST_SOURCES = 4
_OF_PODS = (
    "backend-protocol", "backend-ca", "backend-server-name", "max-connections-per-pod", "slow-start", "health-check",
)  # fmt: skip


def _is_preflight(request: ClientRequest, rule: RuleBackend) -> bool:
    """Return whether a browser asks before a request: HAProxy answers, and lets nobody be asked."""
    return rule.filters.cors is not None and request.method == "OPTIONS" and all(map(request.values_of, PREFLIGHT))


def _asked(rule: RuleBackend, trace: Trace) -> None:
    """Add who is asked whether the request may go on."""
    if auth := rule.policy.external:
        text = f"{auth.text} is asked whether it may go on: 2xx lets it in"
        trace.add("policy", text, at=rule.owner, where=_said(rule, "auth-url"))
        trace.does_not_cover(f"whether {auth.text} lets this client in")


def _by_network(request: ClientRequest, rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Return that the client's network may not ask, by the words of policies; None where it may."""
    policy, at = rule.policy, rule.owner
    if policy.closed:
        kind, name = at.replace(",", "").split(maxsplit=2)[:2]
        text = (
            "403: a word that restricts cannot be what it says, so nobody is let in until it is corrected:"
            f" pyconfd explain {kind.lower()} {name} says which"
        )
        return _Ended(text, RequestEnd(status=403), at, "")
    if not (policy.allow or policy.deny):
        return None

    def where(which: str) -> str:
        return _said(rule, f"{which}-networks")

    if not request.source or request.values_of("x-forwarded-for"):
        trace.does_not_cover("whether the client's network may ask: say which client it is, with --from")
        return None
    client = ip_address(request.source)
    if isinstance(client, IPv6Address) and client.ipv4_mapped is not None:
        client = client.ipv4_mapped
    if any(client in each for each in policy.deny):
        return _Ended("403: the client is in deny-networks", RequestEnd(status=403), at, where("deny"))
    if policy.allow and not any(client in each for each in policy.allow):
        return _Ended("403: the client is not in allow-networks", RequestEnd(status=403), at, where("allow"))
    trace.add("policy", "the client's network may ask", at=at, where=where("allow" if policy.allow else "deny"))
    return None


def _by_certificate(request: ClientRequest, rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Return that a client can show no certificate, or not for this host; None where it may show the right one.

    An access log says nothing of certificates: its requests over TLS count as those of clients that show one.
    """
    clients, at, where = rule.policy.clients, rule.owner, _said(rule, "client-certificates")
    if clients.ca is None:
        return None
    if not request.is_tls:
        return _Ended("403: clients show certificates over HTTPS only", RequestEnd(status=403), at, where)
    if trace.only_end:
        return None
    if request.tls_name != request.name:
        return _Ended("421: the connection is for another host", RequestEnd(status=421), at, where)
    authorities = f"ConfigMap {clients.ca.namespace}/{clients.ca.name}"
    trace.does_not_cover(f"whether the client shows a certificate of {authorities}, and the host has these")
    return None


def _by_login(request: ClientRequest, rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Return that a request needs a user; None where it has one, which may be right, and where nothing is known of it.

    An access log has no headers: its requests count as those of users.
    """
    auth, at, where = rule.policy.auth, rule.owner, _said(rule, "basic-auth-secret")
    if auth is None or trace.only_end:
        return None
    if _is_preflight(request, rule):
        return None
    needed = f"a user of Secret {auth.secret.namespace}/{auth.secret.name}"
    if len(request.values_of("authorization")) != 1:
        return _Ended(f"401: it needs {needed}", RequestEnd(status=401), at, where)
    trace.does_not_cover(f"whether the password is that of {needed}")
    return None


_GROUP = re.compile(r"\\([0-9])")


def edited(path: str, edit: PathEdit) -> str:
    """Return a path as the server gets it."""
    by = edit.format
    if by.startswith("%[str("):
        by = by[len("%[str(") : -len(")]")]
    by = by.replace("%%", "%")
    if not edit.pattern:
        return by
    found = re.search(edit.pattern, path)
    if found is None:
        return path
    # HAProxy replaces all of the path, and takes a group that there is not for an empty one.
    groups = (found[0], *found.groups(""))
    return _GROUP.sub(lambda each: "".join(groups[int(each[1]) :][:1]), by)


def _location(redirect: Redirect, request: ClientRequest) -> str:
    scheme = redirect.scheme or ("https" if request.is_tls else "http")
    port = ""
    if redirect.port is None:
        port = "" if request.port == (443 if request.is_tls else 80) else f":{request.port}"
    elif redirect.port and (redirect.scheme or redirect.port != ("443" if request.is_tls else "80")):
        port = f":{redirect.port}"
    return f"{scheme}://{redirect.host or request.name}{port}"


def _has_origin(condition: str, request: ClientRequest) -> bool:
    """Return whether a condition on the origin holds (pyconfd/presets/gateway/filters.py)."""
    found = _ORIGIN.fullmatch(condition)
    sent = [each.strip() for value in request.values_of("origin") for each in value.split(",")]
    if found is None:
        return False
    if found[1] == "found":
        return bool(sent)
    if found[1] == "str":
        fold = str.lower if " -i " in condition else str
        return any(fold(each) == found[2] for each in sent)
    return any(re.search(found[2], each, re.IGNORECASE) for each in sent)
