"""What becomes of a request: its way to a backend, then filters, servers, timeouts and the answer. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from pyconfd.explain.conditions import Evidence, server_state
from pyconfd.explain.configuration import ServerLine, host_and_port, place_of
from pyconfd.explain.request import Request
from pyconfd.explain.routing import CLOSED, Decision, Entrance, Trace, Way, field_of_rule, opened, reached
from pyconfd.haproxy.config.text import parse, words
from pyconfd.model.explanation import Explanation, RequestAnswer, ServerReport
from pyconfd.model.listener import ANY
from pyconfd.model.rendering import Rendering
from pyconfd.presets.gateway.filters import PathEdit, Redirect
from pyconfd.presets.gateway.http_rules import SPLIT, RuleBackend
from pyconfd.presets.routing.types import RouteServer
from pyconfd.presets.views import EndpointView

_SETTINGS = frozenset(
    [
        *(f"timeout {each}" for each in ("http-request", "client", "queue", "connect", "server", "tunnel")),
        *("balance", "retries", "retry-on"),
    ]
)
_DEFAULTS = re.compile(r"^defaults\b.*\n(?:(?:[ \t#].*)?\n)*", re.MULTILINE)
_RAND = re.compile(r"\{ rand\(([0-9]+)\) lt ([0-9]+) \}.*")
_ORIGIN = re.compile(r"\{ req\.hdr\(origin\) -m (found|str|reg)(?: -i)?(?: --)?(?: '?(.*?)'?)? \}")
_LOOPBACK = "127.0.0.1"


def explain_request(request: Request, evidence: Evidence) -> Explanation:
    """Answer what becomes of a request; where several listeners know its host, which ones these are."""
    rendering = evidence.desired or evidence.running
    trace = Trace()
    for name in evidence.own_fragments:
        trace.does_not_cover(f"fragment {name}, which is not the shipped one")
    if not evidence.haproxy:
        trace.does_not_cover("the other load balancers that are served here: it is what HAProxy would do")
    running = evidence.running
    if rendering is not None and running is not None and not rendering.same_as(running):
        trace.does_not_cover("what HAProxy runs now: the newest configuration, which this is about, is not applied yet")
    if rendering is None:
        trace.does_not_cover("where HAProxy listens: nothing was rendered")
        return _explanation(request, evidence, trace, Decision())
    places, sections = opened(rendering.text)
    found, way = reached(places, request), Way(request, evidence, sections, trace)
    if not found:
        trace.ends(f"the connection is refused: nothing listens on port {request.port}", Decision())
        return _explanation(request, evidence, trace, Decision(closed=True))
    known = list(filter(way.knows, found)) or found
    by_section = {each.section: each for each in reversed(known)}
    if len(by_section) > 1:
        candidates = (f"{shlex.quote(request.url)} --to {_address(each, evidence)}" for each in by_section.values())
        notes = ("the address that clients connect to decides: several listeners know this host",)
        return Explanation(
            request.url, evidence.now, evidence.instance, candidates=tuple(sorted(candidates)), notes=notes
        )
    (entrance,) = by_section.values()
    return _explanation(request, evidence, trace, way.from_(entrance))


def _address(entrance: Entrance, evidence: Evidence) -> str:
    """Return an address at which connections come to a listener."""
    address, shared = entrance.listener.address, evidence.options.addresses.shared
    return address if address and address not in ANY else next(iter(shared), _LOOPBACK)


def _explanation(request: Request, evidence: Evidence, trace: Trace, decision: Decision) -> Explanation:
    servers: tuple[ServerReport, ...] = ()
    backends: tuple[tuple[str, float], ...] = ()
    if decision.route and not (backends := _shares(decision.route, evidence)):
        decision = trace.ends("404: no reference of this rule has a weight", Decision(status=404))
    elif decision.route:
        found = [_Backend(name, evidence) for name, _ in backends]
        decision = _applied(request, found, backends, decision, trace)
        servers = tuple(each for backend in found for each in backend.servers)
    answer = RequestAnswer(
        tuple(trace.steps),
        backends,
        decision.status,
        decision.location,
        decision.closed,
        tuple((status, round(share, 2)) for status, share in sorted(trace.sometimes.items())),
        tuple(trace.uncovered),
    )
    return Explanation(
        request.url, evidence.now, evidence.instance, f"{request.method} {request.url}", servers=servers, request=answer
    )


def _shares(route: str, evidence: Evidence) -> tuple[tuple[str, float], ...]:
    """Return the backends that requests of a route are divided among, each with its share in percent."""
    gateway = evidence.context.names.get("gateway") or {}
    choices = [
        choice
        for front in (gateway.get("frontends") or {}).values()
        for step in front.look_ups
        for choice in step.choices
        if choice.route == route
    ]
    if not choices:
        return () if route.startswith(SPLIT) else ((route, 100.0),)
    left, shares = 1.0, dict.fromkeys((each.to for each in choices), 0.0)
    for each in choices:
        if found := _RAND.fullmatch(each.condition):
            shares[each.to] += left * int(found[2]) / int(found[1])
            left -= left * int(found[2]) / int(found[1])
        elif each.condition:  # the first of those without chance is that which the rest goes to
            shares[each.to] += left
            left = 0.0
    return tuple((name, round(100 * share, 2)) for name, share in shares.items())


class _Backend:
    """One section that requests come to: what the presets made of it, and its lines in the configuration."""

    def __init__(self, name: str, evidence: Evidence) -> None:
        names = evidence.context.names
        self.name, self._evidence = name, evidence
        self.rule: RuleBackend | None = ((names.get("gateway") or {}).get("backends") or {}).get(name)
        self._rendering = evidence.running or evidence.desired or Rendering(())
        text = self._rendering.text
        found = re.search(rf"^backend {re.escape(name)}(?: .*)?\n(?:(?:[ \t#].*)?\n)*", text, re.MULTILINE)
        self.lines = found[0].splitlines() if found is not None else []
        self._first_line = text.count("\n", 0, found.start()) + 1 if found is not None else 0
        own = [words(line) for line in self.lines]
        self.takes_traffic = any(each[:1] == ("server",) and ("weight", "0") not in pairwise(each) for each in own)
        self.is_tcp = ("mode", "tcp") in own

    def origin_of(self, key: str) -> dict[str, str]:
        """Return the object and the field that say a setting, "" where the operator's fragments do."""
        if self.rule is None:
            return {}
        handling, at = self.rule.handling, self.rule.owner
        if key == "timeout server" and handling.timeout_ms is not None:
            return {"at": at, "where": f"{field_of_rule(at)}.timeouts"}
        if key in {"retries", "retry-on"} and handling.retry is not None:
            return {"at": at, "where": f"{field_of_rule(at)}.retry"}
        return {}

    @property
    def servers(self) -> list[ServerReport]:
        """Its servers as they are in the configuration."""
        found = ((number, words(line)) for number, line in enumerate(self.lines, start=self._first_line))
        lines = [
            ServerLine(self.name, each[1], *host_and_port(each[2]), number)
            for number, each in found
            if each[:1] == ("server",) and len(each) > 2
        ]
        pods = {each.address: each for each in self._endpoints()}
        kept = (found for (_, key), found in self._evidence.kept.items() if key in self.name)
        held = frozenset[str]().union(*kept)
        return [
            msgspec.structs.replace(
                server_state(each, self._evidence, pods.get(each.address)),
                place=place_of(self._rendering, each.line),
                held=each.address in held,
            )
            for each in lines
        ]

    def _endpoints(self) -> Iterable[EndpointView | RouteServer]:
        """Return what the presets sent requests of this backend to."""
        names, key = self._evidence.context.names, self.name.partition("-")[2]
        of_ingress = ((names.get("ingress") or {}).get("backends") or {}).get(self.name)
        balanced = (names.get("loadbalancer") or {}).get(key) if self.name.startswith("lb-") else None
        found: Iterable[EndpointView | RouteServer]
        if self.rule is not None:
            found = self.rule.servers
        elif of_ingress is not None:
            found = of_ingress.servers
        elif balanced is not None:
            found = balanced.endpoints
        else:
            entries = (names.get("domains") or {}).values()
            found = next((each["endpoints"] for each in entries if each["key"] == key), ())
        return found

    def settings(self) -> Iterator[tuple[str, str, str]]:
        """Return name, value and section of what its lines, and the defaults sections that it is from, say."""
        defaults = {each.name: each for each in parse("".join(_DEFAULTS.findall(self._rendering.text)))}
        title, lines = f"backend {self.name}", [words(each) for each in self.lines[1:]]
        header: Sequence[str] = words(self.lines[0])[2:] if self.lines else ()
        seen: set[str] = set()
        while True:
            for line in lines:
                key = " ".join(line[: 2 if line[:1] == ("timeout",) else 1])
                if key in _SETTINGS and key not in seen:
                    seen.add(key)
                    yield key, " ".join(line[len(key.split()) :]), title
            parent = header[1] if len(header) > 1 and header[0] == "from" else ""
            if not self.lines or (not parent and title.startswith("defaults")):
                return
            # What says no `from` inherits from the last of these sections.
            section = defaults.get(parent) if parent else next(reversed(defaults.values()), None)
            if section is None:
                return
            title, lines, header = f"defaults {section.name}", [each.words for each in section.lines], section.options


def _applied(
    request: Request, found: Sequence[_Backend], shares: Sequence[tuple[str, float]], decision: Decision, trace: Trace
) -> Decision:
    """Add what happens in the backends; return the end, which is an answer of HAProxy where it gives one to all."""
    each_with_share = zip(found, (share for _, share in shares), strict=True)
    ends = [(_in_backend(request, backend, share, trace), share) for backend, share in each_with_share]
    ends = [each for each in ends if each[1]]
    if len({ended for ended, _ in ends}) == 1 and ends[0][0] is not None:
        return ends[0][0]
    for ended, share in ends:
        if ended is not None:
            trace.sometimes[ended.status] += share
    for key, value, title in sorted(found[0].settings()):
        part = "timeout" if key.startswith("timeout") else "backend"
        trace.add(part, f"{key} {value} ({title})", **found[0].origin_of(key))
    if (rule := found[0].rule) is not None and rule.handling.deadline_ms is not None:
        where = f"{field_of_rule(rule.owner)}.timeouts.request"
        text = f"all attempts together: {rule.handling.deadline_ms} ms, else 504"
        trace.add("timeout", text, at=rule.owner, where=where)
    return trace.ends("that of one of these servers", decision)


class _Ended(NamedTuple):
    """An answer of HAProxy itself, and what says so."""

    text: str
    decision: Decision
    at: str
    where: str


def _in_backend(request: Request, backend: _Backend, share: float, trace: Trace) -> Decision | None:
    """Add what happens in one backend, which so many percent of the requests come to; return an answer of HAProxy."""
    rule, at, where, weights, ended = backend.rule, "", "", "", None
    if rule is not None:
        at, where = rule.owner, f"{field_of_rule(rule.owner)}.backendRefs"
        if len(rule.ports) > 1:
            parts = (f"{port.service.namespace}/{port.service.name} {weight}" for weight, port in rule.ports)
            weights = f", weights of its references: {', '.join(parts)}"
        ended = _failing(rule, trace) if backend.is_tcp else _filtered(request, rule, trace)
        if ended is None and rule.failing:
            trace.sometimes[0 if backend.is_tcp else 500] += share * rule.failing / rule.of
    trace.chosen("backend", f"{backend.name}: {share:g} % of such requests{weights}", at=at, where=where)
    if ended is not None:
        return trace.ends(ended.text, ended.decision, at=ended.at, where=ended.where)
    if backend.takes_traffic:
        return None
    unserved = CLOSED if backend.is_tcp else Decision(status=503)
    what = "a closed connection" if backend.is_tcp else "503"
    return trace.ends(f"{what}: the backend has no server that takes traffic", unserved)


def _failing(rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Return the end of requests that belong to references without a Service, where all of the backend do."""
    what, ended = ("500", Decision(status=500)) if rule.mode == "http" else ("a closed connection", CLOSED)
    at, where = rule.owner, f"{field_of_rule(rule.owner)}.backendRefs"
    if rule.failing and rule.failing == rule.of:
        return _Ended(f"{what}: their reference leads to no Service", ended, at, where)
    if rule.failing:
        text = f"{rule.failing} of {rule.of} get {what}: their reference leads to no Service"
        trace.add("backend", text, at=at, where=where)
    return None


def _filtered(request: Request, rule: RuleBackend, trace: Trace) -> _Ended | None:
    """Add the filters of a rule in the order of their lines; return an answer that HAProxy gives itself."""
    filters, at = rule.filters, rule.owner
    where = f"{field_of_rule(at)}.filters"
    if filters.cors is not None:
        allowed = any(_has_origin(each, request) for each in filters.cors.conditions)
        trace.add("filter", f"CORS: the origin is {'' if allowed else 'not '}an allowed one", at=at, where=where)
        asks = request.method == "OPTIONS" and request.values_of("access-control-request-method")
        if asks and request.values_of("origin"):
            return _Ended("204: what browsers ask before a request", Decision(status=204), at, where)
    if (failed := _failing(rule, trace)) is not None:
        return failed
    for some, edits in (("request", filters.request), ("response", filters.response)):
        for edit in edits:
            verb = {"set": "is set", "add": "is added", "del": "is removed"}[edit.action]
            trace.add("filter", f"{some} header {edit.name} {verb}", at=at, where=where)
    if filters.host:
        trace.add("filter", f"the server gets the host {filters.host}", at=at, where=where)
    path = _edited(request.path, filters.path) if filters.path is not None else request.path
    if filters.path is not None and filters.redirect is None:
        trace.add("filter", f"the server gets the path {path}", at=at, where=where)
    for mirror in rule.mirrors:
        trace.add("filter", f"{mirror.share} of {mirror.of} requests are copied to {mirror.name}", at=at, where=where)
    if filters.redirect is not None:
        query = f"?{request.query}" if request.query else ""
        location = _location(filters.redirect, request) + path + query
        ended = Decision(status=filters.redirect.code, location=location)
        return _Ended(f"{filters.redirect.code}: a redirect to {location}", ended, at, where)
    return None


def _edited(path: str, edit: PathEdit) -> str:
    by = edit.format
    if by.startswith("%[str("):
        by = by[len("%[str(") : -len(")]")]
    by = by.replace("%%", "%")
    if not edit.pattern:
        return by
    found = re.search(edit.pattern, path)
    if found is None:
        return path
    return path[: found.start()] + by.replace("\\1", found[1] or "") + path[found.end() :]


def _location(redirect: Redirect, request: Request) -> str:
    scheme = redirect.scheme or ("https" if request.is_tls else "http")
    port = ""
    if redirect.port is None:
        port = "" if request.port == (443 if request.is_tls else 80) else f":{request.port}"
    elif redirect.port and (redirect.scheme or redirect.port != ("443" if request.is_tls else "80")):
        port = f":{redirect.port}"
    return f"{scheme}://{redirect.host or request.name}{port}"


def _has_origin(condition: str, request: Request) -> bool:
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
