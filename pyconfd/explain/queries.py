"""What a query stands for, and the answer to it. Pure."""

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from pyconfd.explain.bounds import bounded
from pyconfd.explain.conditions import (
    Evidence,
    endpoint_report,
    not_claimed,
    refused_object,
    report_of,
    secret_report,
    server_report,
)
from pyconfd.explain.configuration import ServerLine, host_and_port, template_lines
from pyconfd.model.claim import Claim
from pyconfd.model.condition import Condition, ConditionStatus, ConditionType
from pyconfd.model.context import ALL_NAMESPACES, Refusal, RefusalReason
from pyconfd.model.explanation import ClaimReport, Explanation, LineOrigin
from pyconfd.model.gateway_api import Gateway, GRPCRoute, HTTPRoute, TLSRoute
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import KIND_OF, ROUTING_RESOURCES, Key, Resource
from pyconfd.presets import addresses, conflicts, values
from pyconfd.presets.gateway.attachment import named_parent
from pyconfd.presets.views import EndpointView
from pyconfd.status.redaction import HIDDEN, redacted

_PASSWORD = re.compile(r"(?i)\b(auth|password|insecure-password)(\s+)\S+")
_WORD = re.compile(r"[\w.:-]+")
_LINE = re.compile(r"(?:line\s+|\S*\.cfg:)(\d+)", re.IGNORECASE)


class _Kind(NamedTuple):
    """A kind of thing that a query may stand for.

    ``find`` returns the unambiguous names of those that a query may mean, ``answer`` takes one of these.
    """

    find: Callable[[str, Evidence], Iterable[str]]
    answer: Callable[[str, Evidence], Explanation]


def explain(query: str, evidence: Evidence) -> Explanation:
    """Answer ``query``; an empty one is about everything that is refused, the newest first.

    It is a service (``shop/web``, ``web``), a domain, a pod, an address, a backend, a server (``backend/name``) or a
    line (``line 123``, ``haproxy.cfg:123``); a kind before it (``service web``, ``ingress web``, ``secret/shop/tls``)
    takes only that.
    """
    answer = _answer(" ".join(query.split()), evidence) if query else _refused(evidence)
    return bounded(msgspec.structs.replace(answer, query=query))


def _explanation(evidence: Evidence, subject: str = "", **parts: Any) -> Explanation:
    return Explanation("", evidence.now, evidence.instance, subject, **parts)


def _answer(query: str, evidence: Evidence) -> Explanation:
    if found := _LINE.fullmatch(query):
        return _line(int(found[1]), evidence)
    # ``web/web-1`` may be a server, so that a kind needs a blank or two slashes after it.
    separator = " " if " " in query else "/" if query.count("/") == 2 else None
    kind, _, name = query.partition(separator) if separator else ("", "", query)
    if kind.lower() not in _KINDS or not name:
        kind, name = "", query
    # A Secret often has the name of the Service whose certificate it holds: that one comes first.
    for kinds in ([kind.lower()],) if kind else (_WITHOUT_KIND, ["secret"]):
        subjects = dict.fromkeys((each, subject) for each in kinds for subject in _KINDS[each].find(name, evidence))
        if len(subjects) > 1:
            candidates = tuple(dict.fromkeys(_candidate(each, subject, evidence) for each, subject in subjects))
            return _explanation(evidence, candidates=candidates)
        for each, subject in subjects:
            return _KINDS[each].answer(subject, evidence)
    return _unknown(kind.lower(), name, evidence)


def _refused(evidence: Evidence) -> Explanation:
    reports = _refused_objects(evidence.refused, evidence)
    reports.sort(key=lambda each: (-each.conditions[0].since, each.object))
    return _explanation(evidence, "everything that is refused", claims=tuple(reports))


def _refused_objects(refused: Sequence[Refusal], evidence: Evidence) -> list[ClaimReport]:
    """Return objects by what is refused of them, whatever they claim."""
    by_ref: defaultdict[ObjectRef, list[Refusal]] = defaultdict(list)
    for each in refused:
        by_ref[each.ref].append(each)
    return [refused_object(ref, some, evidence) for ref, some in by_ref.items()]


def _reports(claims: Iterable[Claim], evidence: Evidence, host: str = "") -> tuple[ClaimReport, ...]:
    """Return what became of claims: programmed ones first and refused ones last, so the owner of a name leads."""
    reports = [report_of(claim, evidence, host) for claim in claims]
    is_true = ConditionStatus.TRUE
    ends = (
        (each, each.conditions[-1].status is not is_true, each.conditions[0].status is not is_true) for each in reports
    )
    return tuple(each for each, *_ in sorted(ends, key=itemgetter(1, 2)))


def _is_named(query: str, key: Key) -> bool:
    namespace, slash, name = query.rpartition("/")
    return key.name == name and (not slash or key.namespace == namespace)


def _key_of(subject: str) -> Key:
    namespace, _, name = subject.rpartition("/")
    return Key(namespace, name)


def _path(key: Key) -> str:
    return f"{key.namespace}/{key.name}"


# Services, and other objects that claim something or are refused


def _keys(evidence: Evidence) -> list[Key]:
    refs = [*(each.ref for each in evidence.claims), *(each.ref for each in evidence.refused)]
    others = {Key(ref.namespace, ref.name) for ref in refs if ref.kind not in {"Pod", "Secret"}}
    routing = (key for resource in _CLAIMING for key in getattr(evidence.snapshot, resource.field))
    return sorted({*evidence.snapshot.services, *evidence.snapshot.endpoints, *routing, *others})


def _find_objects(query: str, evidence: Evidence) -> Iterator[str]:
    return (_path(key) for key in _keys(evidence) if _is_named(query, key))


def _candidate(kind: str, subject: str, evidence: Evidence) -> str:
    """Return a query that means just this: an object of any kind is called by a kind that it has."""
    if kind != _OBJECT:
        return f"{kind} {subject}"
    key = _key_of(subject)
    kinds = [resource for resource in _CLAIMING if key in getattr(evidence.snapshot, resource.field)]
    if kinds and key not in evidence.snapshot.services:
        return f"{KIND_OF[kinds[0]].lower()} {subject}"
    return f"service {subject}" if key in _service_keys(evidence) else subject


def _service_keys(evidence: Evidence) -> set[Key]:
    refs = (*(each.ref for each in evidence.claims), *(each.ref for each in evidence.refused))
    named = {Key(ref.namespace, ref.name) for ref in refs if ref.kind in _OF_SERVICES}
    return {*evidence.snapshot.services, *evidence.snapshot.endpoints, *named}


def _find_services(query: str, evidence: Evidence) -> Iterator[str]:
    return (_path(key) for key in sorted(_service_keys(evidence)) if _is_named(query, key))


def _of_service(subject: str, evidence: Evidence) -> Explanation:
    """Answer about a Service, or hand-made Endpoints, whatever else has its name."""
    key = _key_of(subject)
    claims = [each for each in evidence.claims if each.ref.kind in _OF_SERVICES and each.ref[1:3] == key]
    mine = [each for each in evidence.refused if each.ref.kind in _OF_SERVICES and each.ref[1:3] == key]
    leading = _leading_to(key, evidence)
    reports = _reports(claims, evidence) or _unclaimed(mine, evidence, is_used=bool(leading))
    reports = reports or _reports(leading, evidence) or (not_claimed(key, evidence),)
    return _explanation(evidence, subject.lstrip("/"), claims=reports)


def _unclaimed(refused: Sequence[Refusal], evidence: Evidence, *, is_used: bool = False) -> tuple[ClaimReport, ...]:
    """Return objects that claim nothing by what is refused of them; notes alone are beside why they claim nothing."""
    found: list[ClaimReport] = []
    for report, ref in zip(
        _refused_objects(refused, evidence), dict.fromkeys(each.ref for each in refused), strict=True
    ):
        resource = next((each for each, kind in KIND_OF.items() if kind == ref.kind), None)
        if resource is None or not all(each.reason.is_note for each in refused if each.ref == ref):
            found.append(report)
        elif not is_used:
            why = not_claimed(Key(ref.namespace, ref.name), evidence, resource)
            found.append(msgspec.structs.replace(why, conditions=(*why.conditions, *report.conditions)))
    return tuple(found)


def _of_object(subject: str, evidence: Evidence) -> Explanation:
    key = _key_of(subject)
    claims = [each for each in evidence.claims if each.ref[1:3] == key and each.ref.kind != "Pod"]
    if claims and key in evidence.snapshot.services and not any(each.ref.kind in _OF_SERVICES for each in claims):
        claims += [each for each in _leading_to(key, evidence) if each not in claims]
    reports = _reports(claims, evidence)
    if not reports:
        mine = [each for each in evidence.refused if each.ref[1:3] == key and each.ref.kind != "Secret"]
        leading = _leading_to(key, evidence)
        reports = _unclaimed(mine, evidence, is_used=bool(leading)) or _reports(leading, evidence)
    if not reports:
        there = [resource for resource in _CLAIMING if key in getattr(evidence.snapshot, resource.field)]
        if key in evidence.snapshot.services or not there:
            there.insert(0, Resource.SERVICES)
        reports = tuple(not_claimed(key, evidence, resource) for resource in there)
    return _explanation(evidence, subject.lstrip("/"), claims=reports)


def _leading_to(service: Key, evidence: Evidence) -> list[Claim]:
    """Return the claims of other objects that are served by endpoints of a Service, as routes are."""
    view = evidence.context.names.get("cluster")
    ports = (
        port
        for each in (view.services if view is not None else ())
        if Key(each.namespace, each.name) == service
        for port in each.ports
    )
    places = {(endpoint.address, endpoint.port) for port in ports for endpoint in port.endpoints}
    return [claim for claim in evidence.claims if any((each.address, each.port) in places for each in claim.endpoints)]


def _find_of(resource: Resource, query: str, evidence: Evidence) -> Iterator[str]:
    refused = (Key(*each.ref[1:3]) for each in evidence.refused if each.ref.kind == KIND_OF[resource])
    known = sorted({*getattr(evidence.snapshot, resource.field), *refused})
    return (_path(key) for key in known if _is_named(query, key))


def _of_kind(resource: Resource, subject: str, evidence: Evidence) -> Explanation:
    reports = _reports_of(resource, _key_of(subject), evidence)
    return _explanation(evidence, f"{KIND_OF[resource]} {subject.lstrip('/')}", claims=reports)


def _reports_of(resource: Resource, key: Key, evidence: Evidence) -> tuple[ClaimReport, ...]:
    ref = (KIND_OF[resource], *key)
    claims = [each for each in evidence.claims if each.ref[:3] == ref]
    refused = [each for each in evidence.refused if each.ref[:3] == ref]
    reports = _reports(claims, evidence) or _unclaimed(refused, evidence)
    return reports or (not_claimed(key, evidence, resource),)


def _of_policy(subject: str, evidence: Evidence) -> Explanation:
    """Return what its status says of each target; it claims nothing itself."""
    key = _key_of(subject)
    ref = ObjectRef(KIND_OF[Resource.ROUTEPOLICIES], key.namespace, key.name, evidence.snapshot.cluster)
    refused = [each for each in evidence.refused if each.ref[:3] == ref[:3]]
    if reports := _unclaimed(refused, evidence):
        return _explanation(evidence, str(ref), claims=reports)
    at = ObjectKey(Resource.ROUTEPOLICIES, key)
    found = next((each[at] for each in evidence.context.statuses if at in each), None)
    conditions = tuple(
        Condition(
            ConditionType.ACCEPTED,
            ConditionStatus(each["status"]),
            each["reason"],
            ": ".join(filter(None, (f"for {of['kind']} {of['name']}", each["message"]))),
        )
        for entry in (found.body["ancestors"] if found is not None else ())
        for of in (entry["ancestorRef"],)
        for each in entry["conditions"]
    )
    return _explanation(evidence, str(ref), claims=(ClaimReport(str(ref), conditions),))


def _find_secrets(query: str, evidence: Evidence) -> Iterator[str]:
    return (_path(key) for key in sorted(evidence.snapshot.secrets) if _is_named(query, key))


def _of_secret(subject: str, evidence: Evidence) -> Explanation:
    report = secret_report(_key_of(subject), evidence)
    return _explanation(evidence, f"secret {subject}", claims=(report,))


# Domains


def _claiming(wanted: str, evidence: Evidence) -> tuple[str, list[Claim]]:
    """Return the claims for a name, else those for the longest wildcard that covers it, with the name as claimed."""
    covering = {name for claim in evidence.claims for name in claim.names if _covers(name, wanted)}
    for host in (wanted, *sorted(covering, key=len, reverse=True)[:1]):
        claims = [
            claim
            for claim in evidence.claims
            if host in claim.names or any(each.value == host and "." in host for each in claim.refused)
        ]
        if claims:
            return host, claims
    return "", []


def _covers(name: str, wanted: str) -> bool:
    return name.startswith("*.") and wanted.endswith(name[1:]) and wanted != name


def _find_domains(query: str, evidence: Evidence) -> Iterator[str]:
    wanted = values.comparable_name(query)
    is_claimed = values.address(wanted) is None and (_claiming(wanted, evidence)[1] or _naming(wanted, evidence))
    if is_claimed or _kept_for(wanted, evidence):
        yield wanted


def _of_domain(subject: str, evidence: Evidence) -> Explanation:
    """Answer about a host: whom it is kept for, who claims it, who names it and is refused or of another class."""
    host, claims = _claiming(subject, evidence)
    known = {each.ref[:3] for each in claims}
    others = [each for each in _naming(subject, evidence) if (KIND_OF[each[0]], *each[1]) not in known]
    reports = [report for each in others[:_MOST_NAMING] for report in _reports_of(*each, evidence)]
    notes = _kept_for(subject, evidence)
    if len(others) > _MOST_NAMING:
        notes += (f"{len(others) - _MOST_NAMING:,} more objects name this host and are not served",)
    return _explanation(evidence, subject, claims=(*_reports(claims, evidence, host), *reports), notes=notes)


_MOST_NAMING = 200
"""Objects that name a host without serving it: each takes a look at all claims."""


def of_host(host: str, evidence: Evidence) -> Explanation:
    """Answer about a host, as a query of ``domain HOST`` does; of an unknown one which hosts are like it."""
    if found := next(iter(_find_domains(host, evidence)), None):
        return _of_domain(found, evidence)
    claimed = {name for claim in evidence.claims for name in claim.names}
    named = (each for resource in _CLAIMING for each in getattr(evidence.snapshot, resource.field).values())
    known = {*claimed, *(values.comparable_name(each) for record in named for each in _hosts_of(record))}
    # Claims of an Ingress are named by their paths, too.
    return _explanation(evidence, host, close=_like(host, {each for each in known if not set(each) & set("/ ")}))


def is_asked_for(host: str, evidence: Evidence) -> bool:
    """Return whether an object asks for a host, or names it, whatever became of that."""
    return any(_find_domains(host, evidence))


def of_section(name: str, evidence: Evidence) -> tuple[ClaimReport, ...]:
    """Return what became of the claims that a backend serves."""
    return _of_backend_named(name, evidence).claims


def of_address(address: str, evidence: Evidence) -> tuple[ClaimReport, ...]:
    """Return what became of the claims of objects that have an address of the pool."""
    return _reports(_given(address, 0, evidence), evidence)


def of_port(port: int, evidence: Evidence) -> list[ClaimReport]:
    """Return the objects that ask for a port which another one has, or nobody may have."""
    lost = [each for each in evidence.refused if each.reason is RefusalReason.PORT_TAKEN and each.value == str(port)]
    return _refused_objects(lost, evidence)


def parents_of(host: str, evidence: Evidence) -> Iterator[ClaimReport]:
    """Return the Gateways and ListenerSets that routes with a host name as their parents."""
    routes = [getattr(evidence.snapshot, resource.field)[key] for resource, key in _naming(host, evidence)]
    parents = dict.fromkeys(
        named_parent(Key(route.metadata.namespace, ""), parent)
        for route in routes
        if isinstance(route, HTTPRoute | GRPCRoute | TLSRoute)
        for parent in route.spec.parent_refs or ()
    )
    for each in parents:
        if each is not None and each.key in getattr(evidence.snapshot, each.resource.field):
            yield from _reports_of(each.resource, each.key, evidence)


def _kept_for(host: str, evidence: Evidence) -> tuple[str, ...]:
    """Return for which namespace a host without an object is kept, and until when."""
    scopes = evidence.context.register.reservations.values()
    found = (each for mine in scopes for name, each in mine.items() if each.until and name.name == host)
    return tuple(dict.fromkeys(map(conflicts.reserved_until, found)))


def _naming(host: str, evidence: Evidence) -> list[tuple[Resource, Key]]:
    """Return the objects whose spec names a host, whether they claim it or not."""
    return [
        (resource, key)
        for resource in _CLAIMING
        for key, record in sorted(getattr(evidence.snapshot, resource.field).items())
        if any(values.comparable_name(each) == host for each in _hosts_of(record))
    ]


def _hosts_of(record: AnyObject) -> Iterator[str]:
    match record:
        case Ingress(spec=spec):
            yield from (each.host for each in spec.rules or ())
            yield from (host for each in spec.tls or () for host in each.hosts or ())
        case Gateway(spec=spec):
            yield from (each.hostname for each in spec.listeners or () if each.hostname)
        case HTTPRoute(spec=spec) | GRPCRoute(spec=spec) | TLSRoute(spec=spec):
            yield from spec.hostnames or ()


# Pods and addresses


def _pods_of_services(evidence: Evidence) -> Iterator[tuple[Key, Key]]:
    """Return the pods behind all services, each with its service."""
    view = evidence.context.names.get("cluster")
    for service in view.services if view is not None else ():
        for pod in {each.pod for port in service.ports for each in port.endpoints if each.pod}:
            yield Key(service.namespace, pod), Key(service.namespace, service.name)


def _find_pods(query: str, evidence: Evidence) -> Iterator[str]:
    known = (*evidence.snapshot.pods, *(pod for pod, _ in _pods_of_services(evidence)))
    return map(_path, sorted({key for key in known if _is_named(query, key)}))


def _of_pod(subject: str, evidence: Evidence) -> Explanation:
    key = _key_of(subject)
    meant = [
        (claim, endpoint)
        for claim in evidence.claims
        if claim.ref.namespace == key.namespace or claim.ref.kind == "ConfigMap"
        for endpoint in claim.endpoints
        if endpoint.pod == key.name
    ]
    lines = [
        line
        for claim, endpoint in meant
        for line in evidence.configuration.at(endpoint.address, endpoint.port)
        if evidence.owner_of(line) is claim
    ]
    if meant:
        return _of_endpoints(f"pod {subject}", meant, lines, evidence)
    services = dict.fromkeys(service for pod, service in _pods_of_services(evidence) if pod == key)
    claims = tuple(not_claimed(each, evidence) for each in services)
    return _explanation(evidence, f"pod {subject}", claims=claims)


def _of_endpoints(
    subject: str, meant: Sequence[tuple[Claim, EndpointView]], lines: Iterable[ServerLine], evidence: Evidence
) -> Explanation:
    """Answer about endpoints: their servers, and why others have none."""
    servers = dict.fromkeys(lines)
    without = [
        endpoint_report(endpoint, _why_without(endpoint, claim, evidence))
        for claim, endpoint in meant
        if not any(line.address == endpoint.address and endpoint.port in {0, line.port} for line in servers)
    ]
    return _explanation(
        evidence,
        subject,
        claims=_reports(dict.fromkeys(claim for claim, _ in meant), evidence),
        servers=tuple(server_report(line, evidence) for line in servers),
        endpoints=tuple(without),
    )


def _why_without(endpoint: EndpointView, claim: Claim, evidence: Evidence) -> str:
    if endpoint.state == "down":
        return "it is not ready, so it gets no traffic"
    if any(each.node for each in claim.endpoints) and evidence.servers_of(claim):
        return f"{claim.ref} is served by other addresses: its nodes, or another port or address family"
    return f"{claim.ref} is not served"


def _place(query: str) -> tuple[str, int]:
    """Return address and port of a query, "" where it is none; the port is 0 where any is meant."""
    host, port = host_and_port(query)
    for text, number in ((host, port), (query.strip("[]"), 0)):
        if (parsed := values.address(text)) is not None:
            return str(parsed), number
    return "", 0


def _endpoints_at(address: str, port: int, evidence: Evidence) -> list[tuple[Claim, EndpointView]]:
    return [
        (claim, endpoint)
        for claim in evidence.claims
        for endpoint in claim.endpoints
        if endpoint.address == address and (not port or endpoint.port in {0, port})
    ]


def _find_addresses(query: str, evidence: Evidence) -> Iterator[str]:
    address, port = _place(query)
    found = address and (
        evidence.configuration.at(address, port)
        or _endpoints_at(address, port, evidence)
        or _given(address, port, evidence)
    )
    if found:
        yield query


def _of_address(subject: str, evidence: Evidence) -> Explanation:
    """Answer about an address: the servers and endpoints at it, or the objects that clients reach by it."""
    address, port = _place(subject)
    lines, meant = evidence.configuration.at(address, port), _endpoints_at(address, port, evidence)
    title = f"{address} port {port}" if port else address
    if lines or meant:
        return _of_endpoints(title, meant, lines, evidence)
    return _explanation(evidence, title, claims=_reports(_given(address, port, evidence), evidence))


def _given(address: str, port: int, evidence: Evidence) -> list[Claim]:
    """Return the claims of the objects that have an address of the pool, of a Service with ports just these."""
    owners = {
        (owner.kind, owner.namespace, owner.name)
        for name, owner in evidence.context.owners.get(addresses.RESERVED, {}).items()
        if _is_at(name.place, address, port)
    }
    return [each for each in evidence.claims if each.ref[:3] in owners]


def _is_at(place: str, address: str, port: int) -> bool:
    whole = values.address(place)
    if whole is not None:
        return str(whole) == address
    host, number = host_and_port(place)
    return host == address and (not port or port == number)


# Backends, servers and lines of haproxy.cfg


def _find_backends(query: str, evidence: Evidence) -> Iterator[str]:
    return (each.name for each in evidence.configuration.sections if query and each.name == query)


def _of_backend(subject: str, evidence: Evidence) -> Explanation:
    named = [each for each in evidence.configuration.sections if each.name == subject]
    title = next((each.title for each in named if each.keyword in {"backend", "listen"}), named[0].title)
    return _of_backend_named(subject, evidence, title)


def _of_backend_named(name: str, evidence: Evidence, title: str = "") -> Explanation:
    lines = [line for line in evidence.configuration.servers if line.backend == name]
    return _of_lines(title, name, lines, evidence)


def _find_servers(query: str, evidence: Evidence) -> Iterator[str]:
    backend, slash, name = query.rpartition("/")
    for line in evidence.configuration.servers:
        if line.name == name and (not slash or line.backend == backend):
            yield f"{line.backend}/{line.name}"


def _of_server(subject: str, evidence: Evidence) -> Explanation:
    backend, _, name = subject.rpartition("/")
    lines = [line for line in evidence.configuration.servers if (line.backend, line.name) == (backend, name)]
    return _of_lines(f"server {subject}", backend, lines, evidence)


def _of_lines(subject: str, backend: str, lines: Sequence[ServerLine], evidence: Evidence) -> Explanation:
    owners = {owner.ref for line in lines if (owner := evidence.owner_of(line)) is not None}
    claims = [claim for claim in evidence.claims if claim.ref in owners or _has_backend(claim, backend)]
    return _explanation(
        evidence,
        subject,
        claims=_reports(claims, evidence),
        servers=tuple(server_report(line, evidence) for line in lines),
    )


def _has_backend(claim: Claim, name: str) -> bool:
    sections = (each.section for each in claim.backends if each.section)
    return any(name == section or name.endswith(f"-{section}") for section in sections)


def _line(number: int, evidence: Evidence) -> Explanation:
    configuration = evidence.configuration
    count = len(configuration.lines) if evidence.running is not None else 0
    if evidence.running is None or not 0 < number <= count:
        looked_in = (f"the {count} lines of the running configuration",)
        return _explanation(evidence, looked_in=looked_in)
    text = configuration.lines[number - 1]
    fragment, rendered_line = evidence.running.place_of(number)
    section = configuration.section_at(number)
    came_from = template_lines(evidence.fragments.get(fragment, ""), text)
    if fragment.endswith(".conf"):
        came_from = ((rendered_line, text.strip()),) if text.strip() else ()
    lines = [line for line in configuration.servers if line.line == number]
    of_section = lines or [line for line in configuration.servers if section.name and line.backend == section.name]
    claims = [owner for line in of_section if (owner := evidence.owner_of(line)) is not None]
    if not claims and not lines and section.name:
        claims = [claim for claim in evidence.claims if _has_backend(claim, section.name)]
    if not claims:
        # A line outside of any backend is about what it names: a host, or a backend.
        words = {*_WORD.findall(text), *_WORD.findall(text.lower())}
        claims = [
            claim
            for claim in evidence.claims
            if any(name.removeprefix("*").lower() in words for name in claim.names)
            or any(_has_backend(claim, word) for word in words)
        ]
    return _explanation(
        evidence,
        f"line {number}",
        claims=_reports(dict.fromkeys(claims), evidence),
        servers=tuple(server_report(each, evidence) for each in lines),
        line=LineOrigin(
            number=number,
            text=_without_passwords(text.strip()),
            section=section.title,
            fragment=fragment,
            rendered_line=rendered_line,
            template_lines=tuple((at, _without_passwords(line)) for at, line in came_from),
        ),
    )


def _without_passwords(line: str) -> str:
    """Return a line of a configuration that fewer people may read than the answer."""
    return redacted(_PASSWORD.sub(rf"\1\2{HIDDEN}", line))


# Nothing of this name


def _note_on_url(name: str) -> Iterator[str]:
    host, slash, _ = name.partition("/")
    if slash and "." in host:
        yield f"for a request write http://{name}"


def _unknown(kind: str, name: str, evidence: Evidence) -> Explanation:
    snapshot, configuration = evidence.snapshot, evidence.configuration
    counts = ((KIND_OF[resource], len(getattr(snapshot, resource.field))) for resource in Resource)
    objects = [f"{count} {kind_of_objects} objects" for kind_of_objects, count in counts if count]
    keys, names = _keys(evidence), {name for claim in evidence.claims for name in claim.names}
    sections = {each.name for each in configuration.sections if each.name}
    known = {
        *map(_path, keys),
        *(key.name for key in keys),
        *names,
        *(pod.name for pod, _ in _pods_of_services(evidence)),
        *sections,
        *(line.name for line in configuration.servers),
    }
    return _explanation(
        evidence,
        looked_in=(
            *(objects or ["no objects: the cluster gave none"]),
            f"{len(names)} domains and names",
            f"{len(sections)} sections and {len(configuration.servers)} servers of haproxy.cfg",
        ),
        close=_like(name, known),
        notes=(*_notes_on_secret(kind, name, evidence), *_note_on_url(name)),
    )


def _like(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return which known names may have been meant."""
    return tuple(difflib.get_close_matches(name, sorted(known), n=5, cutoff=0.6))


def _notes_on_secret(kind: str, name: str, evidence: Evidence) -> Iterator[str]:
    """Return why a Secret may exist that is not known here."""
    key = _key_of(name)
    if kind == "secret" and {key.namespace, ALL_NAMESPACES} & set(evidence.secret_namespaces):
        yield f"the cluster has no Secret {key.name} in namespace {key.namespace}, or pyconfd may not read it"
    elif kind == "secret" and key.namespace:
        yield f"Secrets of namespace {key.namespace} are not read: add it to kubernetes.secret_namespaces"


_ONLY_USED = {
    Resource.INGRESSCLASSES,
    Resource.GATEWAYCLASSES,
    Resource.REFERENCEGRANTS,
    Resource.BACKENDTLSPOLICIES,
    Resource.ROUTEPOLICIES,
}
_CLAIMING = [each for each in ROUTING_RESOURCES if each not in _ONLY_USED]
"""Those that ask for traffic; the others are explained where something of them is refused."""

_OF_SERVICES = frozenset({"Service", "Endpoints"})
_OBJECT = "object"

_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        _OBJECT: _Kind(_find_objects, _of_object),
        "service": _Kind(_find_services, _of_service),
        "domain": _Kind(_find_domains, _of_domain),
        "pod": _Kind(_find_pods, _of_pod),
        "address": _Kind(_find_addresses, _of_address),
        "backend": _Kind(_find_backends, _of_backend),
        "server": _Kind(_find_servers, _of_server),
        "secret": _Kind(_find_secrets, _of_secret),
        "routepolicy": _Kind(partial(_find_of, Resource.ROUTEPOLICIES), _of_policy),
        **{KIND_OF[each].lower(): _Kind(partial(_find_of, each), partial(_of_kind, each)) for each in _CLAIMING},
    }
)
"""By the word that may stand before a query."""

_WITHOUT_KIND = [
    word
    for word in _KINDS
    if word not in {"secret", "service", "routepolicy", *(KIND_OF[each].lower() for each in _CLAIMING)}
]
"""What a query without such a word may mean; ``object`` finds all objects of a name, whatever their kinds."""
