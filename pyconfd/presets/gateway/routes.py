"""Routes: what each attaches to, what its references lead to, and what serves it.

:func:`decide` is asked again when the route, a Service that it refers to, or what all routes are decided by changed;
what comes out equal is the same object as before.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.gateway_api import BackendRef, GRPCRoute, HTTPRoute, TCPRoute, TLSRoute
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectStatus, StatusOf
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.model.versioned import differing
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.endpoints import targets_of_port
from pyconfd.presets.gateway.attachment import (
    HostAt,
    Labels,
    ParentDecision,
    RouteHead,
    attach,
    isolated,
    specificity,
)
from pyconfd.presets.gateway.faults import RuleFault
from pyconfd.presets.gateway.gateways import GatewayDecision
from pyconfd.presets.gateway.grants import Grants, ReferenceTarget, Referrer
from pyconfd.presets.gateway.http_rules import (
    ParsedRule,
    RuleBackend,
    RuleSections,
    parse_grpc,
    parse_http,
    sections_of,
    stream_backend,
)
from pyconfd.presets.gateway.listeners import Protocol, covers
from pyconfd.presets.gateway.policies import Policies
from pyconfd.presets.gateway.servers import Reference, san_digits, server_options
from pyconfd.presets.gateway.status import (
    CONTROLLER,
    Fault,
    StatusCondition,
    name_fault,
    object_status,
    of_faults,
    parent_status,
)
from pyconfd.presets.gateway.work import OVER_BUDGET, work_of
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.routing.references import H2C, Missing, ServiceReference, app_protocol, resolve
from pyconfd.presets.routing.types import RouteRule, section_name
from pyconfd.presets.views import PortView

Route = HTTPRoute | GRPCRoute | TLSRoute | TCPRoute

ROUTES = (Resource.TLSROUTES, Resource.TCPROUTES, Resource.HTTPROUTES, Resource.GRPCROUTES)
"""The resources of routes."""

_WORDS: Mapping[Resource, str] = MappingProxyType(
    {Resource.HTTPROUTES: "http", Resource.GRPCROUTES: "grpc", Resource.TLSROUTES: "tls", Resource.TCPROUTES: "tcp"}
)
"""What stands in the names of sections for each."""

_Sections = tuple[RuleSections | None, ...]

_MOST_WEIGHT = 1_000_000
"""Source: the CRDs."""


@dataclass(frozen=True, slots=True)
class RouteInputs:
    """All beside itself that a route is decided by; ``gateways`` are those whose class is accepted, served or not."""

    cluster: Cluster
    options: PresetOptions
    gateways: Mapping[Key, GatewayDecision]
    grants: Grants
    policies: Policies

    def same_classes(self, former: "RouteInputs") -> bool:
        """Return whether the GatewayClasses are the same ones."""
        return not differing(former.cluster.snapshot.gatewayclasses, self.cluster.snapshot.gatewayclasses)

    def labels_of(self, namespace: str) -> Labels:
        """Return the labels of a namespace; its name is one of them, as in the API."""
        found = self.cluster.snapshot.namespaces.get(Key("", namespace))
        labels = (found.metadata.labels or {}) if found is not None else {}
        return {"kubernetes.io/metadata.name": namespace, **labels}


class SiteAt(NamedTuple):
    """One host in one frontend; ``precedence`` is the lower, the more of the host the route names.

    ``certificate`` is the file with what servers are shown by this Gateway, "" for nothing.
    """

    frontend: str
    listener: str
    host: str
    precedence: int
    certificate: str = ""

    @property
    def id(self) -> str:
        """What its keys in maps of paths begin with."""
        return site_id(self.frontend, self.host)


class RouteDecision(NamedTuple):
    """One route. ``rules`` are for the table of paths; ``sites`` are where it is served.

    ``work`` is what the conditions of each rule may take, and ``over`` are the rules that are beyond the budget for
    that. ``services`` are those that it refers to. ``sections`` has what serves each rule, None for one that is left
    out: by the certificate that Gateways show to servers, nearly always none.
    """

    id: StatusOf
    ref: ObjectRef
    owner: Owner
    route: Route
    parents: tuple[ParentDecision, ...]
    parsed: tuple[ParsedRule | RuleFault, ...]
    work: tuple[int, ...]
    over: frozenset[int]
    sites: tuple[SiteAt, ...]
    sections: Mapping[str, _Sections]
    rules: tuple[RouteRule, ...]
    services: frozenset[Key]
    refused: tuple[Refusal, ...]
    status: ObjectStatus | None

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """The older route comes first, then namespace and name decide."""
        return self.owner.since, self.owner.namespace, self.owner.name, self.owner.kind

    @property
    def served(self) -> Iterable[RuleSections]:
        """What serves the rules that are not left out."""
        return (made for each in self.sections.values() for made in each if made is not None)

    @property
    def backends(self) -> Iterable[RuleBackend]:
        """All sections."""
        return (each for made in self.served for each in made.backends)

    def section_at(self, at: SiteAt) -> str:
        """Return the section of a route of connections, which has one rule, at one site; "" where it has none."""
        return next((made.route for made in self.sections.get(at.certificate, ()) if made is not None), "")


def frontend_name(gateway: Key, port: int) -> str:
    """Return the name of the frontend for one port of a Gateway."""
    return section_name("gw", gateway.namespace, gateway.name, str(port))


def site_id(frontend: str, host: str) -> str:
    """Return the id of a site; "" is any host."""
    return f"{frontend}|{host or '*'}"


def same_request(old: Route, new: Route) -> bool:
    """Return whether nothing but the status and the like is new."""
    if old is new:
        return True
    before, now = old.metadata, new.metadata
    same = (before.uid, before.generation, before.creation_timestamp) == (
        now.uid,
        now.generation,
        now.creation_timestamp,
    )
    return same and old.spec == new.spec


def decide(
    id_: StatusOf,
    route: Route,
    inputs: RouteInputs,
    former: RouteDecision | None,
    *,
    same_inputs: bool,
    over: frozenset[int],
) -> RouteDecision:
    """Return what becomes of a route; ``same_inputs``: nothing but Services is another one than for ``former``.

    ``over`` are the rules to leave out since their conditions would take too long.
    """
    same = former is not None and same_request(former.route, route)
    meta = route.metadata
    kind = KIND_OF[id_.resource]
    if former is not None and same and former.over == over:
        ref, owner, parsed, work = former.ref, former.owner, former.parsed, former.work
    else:
        ref = ObjectRef(kind, meta.namespace, meta.name, inputs.cluster.snapshot.cluster)
        owner = Owner(kind, meta.namespace, meta.name, meta.creation_timestamp or NEVER)
        parsed = _parse(route)
        work = tuple(work_of(each.matches) if isinstance(each, ParsedRule) else 0 for each in parsed)
        parsed = tuple(OVER_BUDGET if number in over else each for number, each in enumerate(parsed))
    if former is not None and same and same_inputs:
        parents, sites = former.parents, former.sites
    else:
        parents = _parents(kind, route, inputs)
        sites = tuple(_sites(parents, inputs))
        if former is not None and sites == former.sites:
            sites = former.sites
    found = _References(kind, meta.namespace, inputs)
    name = section_name("gw", _WORDS[id_.resource], *id_.key)
    asked = tuple(zip(_rules_of(route), parsed, strict=True))
    sections: Mapping[str, _Sections] = _by_certificate(asked, found, sites, name, ref)
    if former is not None:
        sections = {each: _reused(former.sections.get(each, ()), made) for each, made in sections.items()}
    rules = tuple(_rules(sites, parsed, sections, owner))
    if former is not None and rules == former.rules:
        rules = former.rules
    invalid = [_of_rule(number, each) for number, each in enumerate(parsed) if isinstance(each, RuleFault)]
    refused = tuple(
        fault.refusal(ref)
        for fault in (*(each.fault for each in parents if each.fault is not None), *invalid, *found.faults)
        if parents
    )
    return RouteDecision(
        id_, ref, owner, route, parents, parsed, work, over, sites, sections, rules, frozenset(found.services), refused,
        _status(route, _conditions_of(parents, invalid, found.faults, len(parsed)), former),
    )  # fmt: skip


def _rules_of(route: Route) -> Sequence[Any]:
    return route.spec.rules or ()


def _parse(route: Route) -> tuple[ParsedRule | RuleFault, ...]:
    if isinstance(route, HTTPRoute):
        return tuple(map(parse_http, route.spec.rules or ()))
    if isinstance(route, GRPCRoute):
        return tuple(map(parse_grpc, route.spec.rules or ()))
    return (ParsedRule(()),) * len(route.spec.rules or ())


def _parents(kind: str, route: Route, inputs: RouteInputs) -> tuple[ParentDecision, ...]:
    hostnames = None if isinstance(route, TCPRoute) else route.spec.hostnames or ()
    head = RouteHead(kind, route.metadata.namespace, route.spec.parent_refs or (), hostnames)
    listeners = {key: each.listeners for key, each in inputs.gateways.items()}
    found = attach(head, listeners, inputs.labels_of)
    if wrong := name_fault(Key(head.namespace, route.metadata.name)):
        return tuple(each._replace(attachments=(), fault=wrong) for each in found)
    return tuple(_allowed(each, head.namespace, inputs) for each in found)


def _allowed(parent: ParentDecision, namespace: str, inputs: RouteInputs) -> ParentDecision:
    """Leave out the hosts that the namespace may not claim."""
    claims = inputs.options.claims
    if parent.fault is not None or not claims.rules:
        return parent
    kept, wrong, refused = [], "", ""
    for attachment in parent.attachments:
        hosts = []
        for at in attachment.hosts:
            why = claims.domain(namespace, at.host or "*")
            if why:
                wrong, refused = why, at.host
            else:
                hosts.append(at)
        if hosts or not attachment.hosts:
            kept.append(attachment._replace(hosts=tuple(hosts)))
    fault = None if kept else Fault("NotAllowedByListeners", "hostnames", refused, wrong)
    return parent._replace(attachments=tuple(kept), fault=fault)


def _sites(parents: Iterable[ParentDecision], inputs: RouteInputs) -> Iterable[SiteAt]:
    """Return where a route is served: not where its listener or Gateway cannot, or another listener has the host."""
    found: dict[tuple[str, str, str], SiteAt] = {}
    for attachment in (each for parent in parents for each in parent.attachments):
        gateway = inputs.gateways[attachment.gateway]
        listener = gateway.listener(attachment.listener)
        if not (gateway.addresses and listener.is_programmed):
            continue
        frontend = frontend_name(gateway.key, attachment.port)
        together = [each for each in gateway.listeners if each.is_accepted and each.port == attachment.port]
        for at in attachment.hosts or (HostAt("", ""),):
            if listener.protocol != Protocol.TCP and isolated(together, at.host) != listener.name:
                continue
            place = frontend, listener.name, at.host
            shown = gateway.client_certificate
            site = SiteAt(*place, _precedence(at.asked_for), shown.path if shown is not None else "")
            known = found.get(place)
            found[place] = site if known is None or site.precedence < known.precedence else known
    return found.values()


def _precedence(host: str) -> int:
    exactness, length = specificity(host)
    return -(exactness * 1000 + length)


def _by_certificate(
    rules: Sequence[tuple[Any, ParsedRule | RuleFault]],
    found: "_References",
    sites: Sequence[SiteAt],
    name: str,
    ref: ObjectRef,
) -> dict[str, _Sections]:
    """Return what serves the rules, for each certificate that servers are shown; a route without sites has nothing."""
    certificates = sorted({at.certificate for at in sites}) or [""]
    made = {}
    for place, certificate in enumerate(certificates):
        prefix = f"{name}_{hashlib.sha256(certificate.encode()).hexdigest()[:8]}" if place else name
        found.begin(certificate)
        made[certificate] = tuple(
            found.sections(number, rule, each, f"{prefix}_{number}", ref) for number, (rule, each) in enumerate(rules)
        )
    return made if sites else {}


def _reused(former: _Sections, made: _Sections) -> _Sections:
    """Return what was made, with those of before that are equal."""
    known = (*former, *(None,) * len(made))
    return tuple(old if old == new else new for old, new in zip(known, made, strict=False))


def _rules(
    sites: Sequence[SiteAt],
    parsed: Sequence[ParsedRule | RuleFault],
    sections: Mapping[str, _Sections],
    owner: Owner,
) -> Iterable[RouteRule]:
    for site in sites:
        number = 0
        for rule, made in zip(parsed, sections[site.certificate], strict=True):
            for match in rule.matches if isinstance(rule, ParsedRule) else ():
                number += 1
                if made is not None:
                    yield RouteRule(site.id, match, made.route, owner, number, site.precedence)


def is_wide(host: str) -> bool:
    """Return whether a host stands for others: a wildcard, or any."""
    return not host or host.startswith("*.")


def rules_below(route: RouteDecision, hosts: Mapping[tuple[str, str], Iterable[str]]) -> Iterable[RouteRule]:
    """Return the rules of a route for the ``hosts`` of its listeners that are below its own wildcards."""
    own = {(at.frontend, at.host) for at in route.sites}
    below: dict[tuple[str, str], SiteAt] = {}
    for at in sorted(route.sites, key=lambda each: each.precedence):
        for host in hosts.get((at.frontend, at.listener), ()) if is_wide(at.host) else ():
            if (at.frontend, host) not in own and covers(at.host, host):
                below.setdefault((at.frontend, host), at._replace(host=host))
    return _rules(tuple(below.values()), route.parsed, route.sections, route.owner)


def _of_rule(number: int, fault: RuleFault) -> Fault:
    return Fault(fault.reason, f"rules[{number}].{fault.field}", fault.value, fault.detail)


class _References:
    """Resolves the references of one route, and records what it finds."""

    def __init__(self, kind: str, namespace: str, inputs: RouteInputs) -> None:
        self._kind, self._namespace, self._inputs = kind, namespace, inputs
        self._certificate = ""
        self.faults: list[Fault] = []
        self.services: set[Key] = set()

    def begin(self, certificate: str) -> None:
        """Begin with all references again; servers are shown ``certificate``."""
        self._certificate = certificate
        self.faults.clear()

    def sections(
        self, number: int, rule: Any, parsed: ParsedRule | RuleFault, name: str, ref: ObjectRef
    ) -> RuleSections | None:
        """Return what serves a rule."""
        if isinstance(parsed, RuleFault):
            return None
        references = tuple(
            self._reference(each, f"rules[{number}].backendRefs[{place}]")
            for place, each in enumerate(rule.backend_refs or ())
        )
        owner = f"{ref} rule {number}"
        if self._kind in {"HTTPRoute", "GRPCRoute"}:
            mirrors = tuple(
                self._reference(each.reference, f"rules[{number}].{each.field}") for each in parsed.filters.mirrors
            )
            return sections_of(parsed, references, name, owner, mirrors)
        return RuleSections(name, (stream_backend(references, name, owner),))

    def _reference(self, reference: BackendRef, field: str) -> Reference:
        inputs, namespace = self._inputs, reference.namespace or self._namespace
        key = Key(namespace, reference.name)
        weight = max(0, min(_MOST_WEIGHT, reference.weight))
        permitted = inputs.grants.permits(
            Referrer(self._kind, self._namespace), ReferenceTarget("Service", namespace, reference.name)
        )
        wanted = ServiceReference(namespace, reference.name, reference.port, reference.group, reference.kind)
        service, view = inputs.cluster.snapshot.services.get(key), inputs.cluster.service(key)
        found = resolve(wanted, service, view, permitted=permitted)
        self.services.add(key)
        if isinstance(found, Missing):
            shown = key.name if namespace == self._namespace else f"{namespace}/{key.name}"
            if found.port and reference.port is not None:
                shown = f"{shown}:{reference.port}"
            kind = RefusalReason.NO_SUCH_PORT if found.port else None
            self.faults.append(Fault(found.reason.value, field, shown, found.detail, kind))
            return Reference(weight, resolved=False)
        service = inputs.cluster.snapshot.services[key]
        endpoints = targets_of_port(found, service, inputs.cluster.view.nodes, inputs.options)
        return self._with_tls(Reference(weight, endpoints), key, found)

    def _with_tls(self, reference: Reference, key: Key, port: PortView) -> Reference:
        policy = self._inputs.policies.of(key, port.name)
        if policy is not None and policy.tls is None:
            return reference._replace(resolved=False)
        tls = policy.tls._replace(certificate=self._certificate) if policy is not None and policy.tls else None
        h2 = self._kind == "GRPCRoute" or (
            self._kind == "HTTPRoute" and app_protocol(self._inputs.cluster.snapshot.services[key], port) == H2C
        )
        if tls is None and not h2:
            return reference
        return reference._replace(options=server_options(tls, h2=h2), sans=san_digits(tls))


def _status(
    route: Route, parents: Sequence[tuple[ParentDecision, list[StatusCondition]]], former: RouteDecision | None
) -> ObjectStatus | None:
    """Return the status of a route; None where no parent is ours."""
    if not parents:
        return None
    generation = route.metadata.generation
    body = {"parents": [parent_status(each.parent, found, generation) for each, found in parents]}
    made = object_status(route.metadata, body, CONTROLLER)
    return former.status if former is not None and former.status == made else made


def _conditions_of(
    parents: Sequence[ParentDecision], invalid: Sequence[Fault], unresolved: Sequence[Fault], number: int
) -> list[tuple[ParentDecision, list[StatusCondition]]]:
    return [(each, _conditions(each, invalid, unresolved, number)) for each in parents]


def _conditions(
    parent: ParentDecision, invalid: Sequence[Fault], unresolved: Sequence[Fault], number: int
) -> list[StatusCondition]:
    not_accepted = [parent.fault] if parent.fault is not None else []
    if invalid and len(invalid) == number:
        not_accepted += invalid
    found = [of_faults("Accepted", not_accepted), of_faults("ResolvedRefs", unresolved)]
    if invalid and not not_accepted:
        dropped = "; ".join(fault.message for fault in invalid)
        found.append(StatusCondition("PartiallyInvalid", "True", "UnsupportedValue", f"Dropped Rule {dropped}"))
    return found
