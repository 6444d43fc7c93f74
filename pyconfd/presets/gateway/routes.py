"""Routes: what each asks for, what it attaches to, what its references lead to, and what serves it.

Read in this order: :func:`asked`, :func:`place`, :func:`serve`.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Resolver
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.gateway_api import BackendRef, GRPCRoute, HTTPRoute, ParentReference, TCPRoute
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.presets import values
from pyconfd.presets.annotations import ACCESS_LOG, OWN_ANNOTATIONS, OWN_PREFIX, read_own
from pyconfd.presets.cluster import NO_SERVICE, ReadService
from pyconfd.presets.gateway.attachment import (
    HostAt,
    Labels,
    ParentDecision,
    RouteHead,
    RouteHosts,
    RouteParent,
    attach,
    isolated,
    specificity,
    valid_hosts,
)
from pyconfd.presets.gateway.faults import UNSUPPORTED, RuleFault
from pyconfd.presets.gateway.frontends import Choice
from pyconfd.presets.gateway.gateways import GatewayDecision
from pyconfd.presets.gateway.grants import Grants, ReferenceTarget, Referrer
from pyconfd.presets.gateway.http_rules import (
    BACKOFF,
    ParsedRule,
    RuleSections,
    parse_grpc,
    parse_http,
    sections_of,
    stream_backend,
)
from pyconfd.presets.gateway.policies import PolicyPort, TargetPolicy, policy_of
from pyconfd.presets.gateway.route_words import (
    RouteWords,
    WordedRules,
    identity_of,
    takes_words,
    worded,
    words_of_route,
)
from pyconfd.presets.gateway.servers import Reference, san_digits, server_options
from pyconfd.presets.gateway.status import (
    CONTROLLER,
    Fault,
    StatusCondition,
    name_fault,
    of_faults,
    parent_status,
)
from pyconfd.presets.gateway.work import OVER_BUDGET, work_of
from pyconfd.presets.objects import Route
from pyconfd.presets.policies.mirroring import FIELD as MIRROR_FIELD
from pyconfd.presets.policies.said import NO_POLICIES, OverriddenWord, PolicySources, UsersOf, Words
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.routing.references import H2C, ServiceReference, UnresolvedReference, app_protocol, resolve
from pyconfd.presets.routing.rules import Mirror, RuleBackend
from pyconfd.presets.routing.types import Decider, RouteMatch, RouteRule, section_name
from pyconfd.presets.views import PortAt, PortView

_WORDS: Mapping[Resource, str] = MappingProxyType(
    {Resource.HTTPROUTES: "http", Resource.GRPCROUTES: "grpc", Resource.TLSROUTES: "tls", Resource.TCPROUTES: "tcp"}
)
"""What stands in the names of sections for each."""

_DIGITS_OF_VARIANT = 8

Sections = tuple[RuleSections | None, ...]

_MOST_WEIGHT = 1_000_000
"""Source: the CRDs."""


@dataclass(frozen=True, slots=True)
class RouteInputs:
    """What the references of routes are resolved by."""

    services: Resolver[Key, ReadService]
    policies: Resolver[PolicyPort, TargetPolicy]
    grants: Grants


class GatewayPorts(NamedTuple):
    """What routes ask about ports: ``listener`` returns which one of a port has exactly this host.

    ``said`` returns what policies say for a listener, by its id, and for the objects that it is of; ``users_of`` is
    that of :class:`PolicySources`.
    """

    gateway: Callable[[Key], GatewayDecision | None]
    listener: Callable[[Key, int, str], str | None]
    said: Callable[[Key, str], Words]
    users_of: UsersOf


class VirtualHostAt(NamedTuple):
    """One host in one frontend; ``precedence`` is the lower, the more of the host the route names.

    ``certificate`` is the file of the client certificate that this Gateway presents to servers, "" for nothing.
    ``said`` is what policies say for its listener.
    """

    frontend: str
    listener: str
    host: str
    precedence: int
    certificate: str = ""
    said: Words = ()

    @property
    def variant(self) -> "Variant":
        """Which of the backends of a route it leads to."""
        return self.certificate, identity_of(self.said)

    @property
    def id(self) -> str:
        """What its keys in maps of paths begin with."""
        return virtual_host_id(self.frontend, self.host)


Variant = tuple[str, tuple[str, ...]]
"""A certificate for servers, and what says words for a listener: where they differ, a route has other backends."""


class AskedRoute(NamedTuple):
    """A route by itself; ``work`` is what conditions of a rule may take, ``hosts`` None for a kind without them.

    ``parsed`` are its rules without words, which are ``said``. ``unlogged``: none of its requests are to be in the
    access log. ``ignored`` are annotations without effect.
    """

    id: ObjectKey
    ref: ObjectRef
    owner: Owner
    uid: str
    generation: int
    parent_refs: tuple[ParentReference, ...]
    hosts: RouteHosts | None
    rules: tuple[Any, ...]
    parsed: tuple[ParsedRule | RuleFault, ...]
    work: tuple[int, ...]
    unlogged: bool = False
    ignored: tuple[Fault, ...] = ()
    said: RouteWords | None = None

    @property
    def is_of_requests(self) -> bool:
        """Whether it routes requests, and not connections."""
        return self.id.resource in {Resource.HTTPROUTES, Resource.GRPCROUTES}

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """That of its owner."""
        return self.owner.rank


class PlacedRoute(NamedTuple):
    """What a route attaches to, and the virtual hosts where it is served.

    ``worded`` has its rules by what says words for listeners, for each of its parents by ``of_parents``.
    """

    parents: tuple[ParentDecision, ...]
    virtual_hosts: tuple[VirtualHostAt, ...]
    worded: Mapping[tuple[str, ...], WordedRules]
    of_parents: tuple[tuple[tuple[str, ...], ...], ...]

    @property
    def overridden(self) -> tuple[OverriddenWord, ...]:
        """The words of policies for listeners and Services that do not count."""
        return tuple(dict.fromkeys(each for made in self.worded.values() for each in made.overridden))


class RuleMatch(NamedTuple):
    """One match of a rule that is served, by its number in the route, and what its entry leads to."""

    match: RouteMatch
    route: str
    number: int


class ServedRoute(NamedTuple):
    """What serves a route. ``services`` are those that it refers to, ``attached`` the listeners of Gateways.

    ``sections`` has what serves each rule, None for one that is left out: by what listeners have them differ in, nearly
    always nothing.
    """

    asked: AskedRoute
    virtual_hosts: tuple[VirtualHostAt, ...]
    sections: Mapping[Variant, Sections]
    matches: Mapping[Variant, tuple[RuleMatch, ...]]
    services: frozenset[Key]
    attached: frozenset[tuple[Key, str]]
    refused: tuple[Refusal, ...]
    status: ObjectStatus | None

    @property
    def backends(self) -> Iterable[RuleBackend]:
        """All sections."""
        return (each for made in self.served for each in made.backends)

    @property
    def served(self) -> Iterable[RuleSections]:
        """What serves the rules that are not left out."""
        return (made for each in self.sections.values() for made in each if made is not None)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What requests are divided by among several backends of a rule."""
        return tuple(choice for made in self.served for choice in made.choices)

    @property
    def form(self) -> Owner:
        """Its object, as the owner of what it asks for besides servers and weights."""
        asked, backends = self.asked, [msgspec.structs.replace(each, ports=()) for each in self.backends]
        return asked.owner.asking_for((asked.id, asked.parent_refs, asked.hosts, backends, self.choices, self.matches))

    def section_at(self, at: VirtualHostAt) -> str:
        """Return the section of a route of connections, which has one rule, at a virtual host; "" where it has none."""
        return next((made.route for made in self.sections.get(at.variant, ()) if made is not None), "")

    def rules_at(self, at: VirtualHostAt) -> Iterator[RouteRule]:
        """Return its rules for the table of paths, at one virtual host."""
        for each in self.matches.get(at.variant, ()):
            yield RouteRule(at.id, each.match, each.route, self.asked.owner, each.number, at.precedence)


def frontend_name(gateway: Key, port: int) -> str:
    """Return the name of the frontend for one port of a Gateway."""
    return section_name("gw", gateway.namespace, gateway.name, str(port))


def virtual_host_id(frontend: str, host: str) -> str:
    """Return the id of a virtual host; "" is any host."""
    return f"{frontend}|{host or '*'}"


def asked(id_: ObjectKey, route: Route, cluster: str, policies: PolicySources = NO_POLICIES) -> AskedRoute:
    """Return what a route asks for; equal where nothing but its status and the like is new."""
    meta, kind = route.metadata, KIND_OF[id_.resource]
    rules: tuple[Any, ...] = tuple(route.spec.rules or ())
    unlogged, ignored = _annotations(meta, kind)
    parsed = tuple(_parse(route))
    ref = ObjectRef(kind, meta.namespace, meta.name, cluster)
    said = words_of_route(id_, ref, route, policies) if takes_words(kind) else None
    return AskedRoute(
        id_,
        ref,
        Owner(kind, meta.namespace, meta.name, meta.creation_timestamp or NEVER),
        meta.uid,
        meta.generation,
        tuple(route.spec.parent_refs or ()),
        None if isinstance(route, TCPRoute) else valid_hosts(route.spec.hostnames or ()),
        rules,
        parsed,
        tuple(work_of(each.matches) if isinstance(each, ParsedRule) else 0 for each in parsed),
        unlogged,
        ignored,
        said,
    )


def _annotations(meta: ObjectMeta, kind: str) -> tuple[bool, tuple[Fault, ...]]:
    """Return whether annotations leave the requests of a route out of the access log, and what has no effect."""
    ignored = []
    if note := read_own(meta.annotations, kind).note(kind):
        ignored.append(Fault("", "metadata.annotations", "", note, RefusalReason.IGNORED_ANNOTATION))
    value, is_logged = (meta.annotations or {}).get(ACCESS_LOG), True
    if value is not None and ACCESS_LOG.removeprefix(OWN_PREFIX) in OWN_ANNOTATIONS[kind]:
        try:
            is_logged = values.switch(value)
        except ValueError as error:
            ignored.append(Fault("", f"annotation {ACCESS_LOG}", value, f"{error}; it has no effect"))
    return not is_logged, tuple(ignored)


def _parse(route: Route) -> Iterable[ParsedRule | RuleFault]:
    if isinstance(route, HTTPRoute):
        parsed = tuple(map(parse_http, route.spec.rules or ()))
        backoff = next(
            (at for at, each in enumerate(parsed) if isinstance(each, RuleFault) and each.field == BACKOFF), -1
        )
        if backoff < 0:
            return parsed
        # Those who do not wait have to refuse the route. Source: ``HTTPRouteRetry`` of the Gateway API.
        why = f"rules[{backoff}].{BACKOFF} refuses the whole route: leave it out"
        return tuple(
            RuleFault(UNSUPPORTED, "retry", "", why) if isinstance(each, ParsedRule) else each for each in parsed
        )
    if isinstance(route, GRPCRoute):
        return map(parse_grpc, route.spec.rules or ())
    return (ParsedRule(()),) * len(route.spec.rules or ())


def place(
    route: AskedRoute,
    parent_of: Callable[[ObjectKey], RouteParent | None],
    ports: GatewayPorts,
    labels_of: Callable[[str], Labels],
    claims: ClaimOptions,
) -> PlacedRoute:
    """Return what a route attaches to, and where it is served."""
    head = RouteHead(route.ref.kind, route.ref.namespace, route.parent_refs, route.hosts)
    found = attach(head, parent_of, labels_of)
    if wrong := name_fault(route.id.key):
        found = tuple(each._replace(attachments=(), fault=wrong) for each in found)
    else:
        found = tuple(_allowed(each, head.namespace, claims) for each in found)
    ports = ports._replace(said=cache(ports.said) if route.said is not None else _nothing)
    virtual_hosts = tuple(_virtual_hosts(found, ports))
    variants = len({each.variant for each in virtual_hosts})
    said: dict[tuple[str, ...], Words] = {}
    of_parents = []
    for each in found:
        at = [ports.said(*where[:2]) for where in each.attachments]
        mine = {identity_of(words): words for words in at or [()]}
        said |= mine
        of_parents.append(tuple(mine))
    return PlacedRoute(
        found,
        virtual_hosts,
        {
            identity: _worded(route, words, claims, ports.users_of, max(1, variants))
            for identity, words in (said or {(): ()}).items()
        },
        tuple(of_parents),
    )


def _nothing(_: Key, __: str) -> Words:
    return ()


def _worded(route: AskedRoute, inherited: Words, claims: ClaimOptions, users_of: UsersOf, variants: int) -> WordedRules:
    if route.said is None:
        return WordedRules(route.parsed, (None,) * len(route.parsed))
    return worded(route.said, route.parsed, inherited, (claims, users_of), variants)


def _allowed(parent: ParentDecision, namespace: str, claims: ClaimOptions) -> ParentDecision:
    """Leave out the hosts that the namespace may not claim."""
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


def _virtual_hosts(parents: Iterable[ParentDecision], ports: GatewayPorts) -> Iterable[VirtualHostAt]:
    """Return where a route is served: not where its listener or Gateway cannot, or another listener has the host."""
    found: dict[tuple[str, str, str], VirtualHostAt] = {}
    for attachment in (each for parent in parents for each in parent.attachments):
        gateway = ports.gateway(attachment.gateway) if attachment.is_programmed else None
        if gateway is None or not gateway.addresses:
            continue
        frontend, listener = frontend_name(gateway.key, attachment.port), attachment.listener
        listener_of = partial(ports.listener, gateway.key, attachment.port)
        for at in attachment.hosts or (HostAt("", ""),):
            # One without hosts is alone at its port.
            if attachment.hosts and isolated(at.host, listener_of) != listener:
                continue
            where = frontend, listener, at.host
            presented = gateway.client_certificate
            path = presented.path if presented is not None else ""
            said = ports.said(gateway.key, listener)
            virtual_host = VirtualHostAt(*where, _precedence(at.asked_for), path, said)
            known = found.get(where)
            found[where] = virtual_host if known is None or virtual_host.precedence < known.precedence else known
    return found.values()


def serve(route: AskedRoute, placed: PlacedRoute, over: frozenset[int], inputs: RouteInputs) -> ServedRoute:
    """Return what serves a route; ``over`` are the rules to leave out since their conditions would take too long."""
    found = _References(route.ref.kind, route.ref.namespace, inputs)
    name = section_name("gw", _WORDS[route.id.resource], *route.id.key)
    made, over_budget = placed.worded, partial(_without, over)
    parsed = {identity: over_budget(each.rules) for identity, each in made.items()}
    sections = _by_variant(route.rules, parsed, found, placed.virtual_hosts, name, route.ref)
    invalid = {
        identity: [
            wrong
            for number, (rule, closed) in enumerate(zip(rules, made[identity].closed, strict=True))
            if (wrong := _fault_of(number, rule, closed)) is not None
        ]
        for identity, rules in parsed.items()
    }
    parents = placed.parents
    conditions = [
        (each, _conditions(each, [invalid[at] for at in mine], found.faults, len(route.parsed)))
        for each, mine in zip(parents, placed.of_parents, strict=True)
    ]
    faults = (*(each.fault for each in parents if each.fault is not None), *_each_once(invalid.values()), *found.faults)
    ignored = (*route.ignored, *_each_once(each.ignored for each in made.values()))
    return ServedRoute(
        route,
        placed.virtual_hosts,
        sections,
        {variant: tuple(_matches(parsed[variant[1]], each)) for variant, each in sections.items()},
        frozenset(found.services),
        frozenset((each.gateway, each.listener) for parent in parents for each in parent.attachments),
        tuple(fault.refusal(route.ref) for fault in (*faults, *ignored) if parents),
        _status(route, conditions),
    )


def _without(over: frozenset[int], rules: Sequence[ParsedRule | RuleFault]) -> tuple[ParsedRule | RuleFault, ...]:
    return tuple(OVER_BUDGET if number in over else each for number, each in enumerate(rules))


def _each_once(faults: Iterable[Iterable[Fault]]) -> list[Fault]:
    return list(dict.fromkeys(each for some in faults for each in some))


def _precedence(host: str) -> int:
    exactness, length = specificity(host)
    return -(exactness * 1000 + length)


def rule_of(section: str) -> Decider | None:
    """Return the rule whose requests go to a section of this name; None where the name does not say it."""
    prefix, word, namespace, name, rule, *more = (*section.split("_"), *[""] * 4)
    if len(rule) == _DIGITS_OF_VARIANT:
        rule = more[0]
    kind = next((KIND_OF[each] for each, mine in _WORDS.items() if mine == word), "")
    # A long name was cut, and has a digest where the number would be.
    return (
        Decider(kind, namespace, name, int(rule))
        if prefix == "gw" and kind and len(rule) < 3 and rule.isdigit()
        else None
    )


def _by_variant(  # noqa: PLR0917 - what all of it is made of
    rules: Sequence[Any],
    parsed: Mapping[tuple[str, ...], Sequence[ParsedRule | RuleFault]],
    found: "_References",
    virtual_hosts: Sequence[VirtualHostAt],
    name: str,
    ref: ObjectRef,
) -> dict[Variant, Sections]:
    """Return what serves the rules, by variant; nothing for a route without virtual hosts."""
    made = {}
    # References are looked at in any case.
    for place, variant in enumerate(sorted({at.variant for at in virtual_hosts}) or [("", next(iter(parsed)))]):
        certificate, said = variant
        text = repr(variant) if said else certificate
        prefix = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS_OF_VARIANT]}" if place else name
        found.begin(certificate)
        made[variant] = tuple(
            found.sections(number, rule, each, f"{prefix}_{number}", ref)
            for number, (rule, each) in enumerate(zip(rules, parsed[said], strict=True))
        )
    return made if virtual_hosts else {}


def _matches(parsed: Sequence[ParsedRule | RuleFault], sections: Sections) -> Iterator[RuleMatch]:
    number = 0
    for rule, made in zip(parsed, sections, strict=True):
        for match in rule.matches if isinstance(rule, ParsedRule) else ():
            number += 1
            if made is not None:
                yield RuleMatch(match, made.route, number)


def is_wildcard(host: str) -> bool:
    """Return whether a host stands for others: a wildcard, or any."""
    return not host or host.startswith("*.")


def _fault_of(number: int, rule: ParsedRule | RuleFault, closed: RuleFault | None) -> Fault | None:
    """Return what is wrong with a rule, or with the words that are said for it."""
    if isinstance(rule, RuleFault):
        return Fault(rule.reason, f"rules[{number}].{rule.field}", rule.value, rule.detail)
    if closed is None:
        return None
    return Fault(closed.reason, _said_at(number, closed.field), closed.value, closed.detail)


def _said_at(number: int, source: str) -> str:
    """Return how a fault calls what says a word for a rule: it is no field of the rule."""
    return f"{source} at rules[{number}]"


def _field_of_mirror(number: int, mirror: Mirror, rule: ParsedRule) -> str:
    if mirror.field != MIRROR_FIELD:
        return f"rules[{number}].{mirror.field}"
    return _said_at(number, dict(rule.said).get("mirror", MIRROR_FIELD))


class _References:
    """Resolves the references of one route, and records what it finds."""

    def __init__(self, kind: str, namespace: str, inputs: RouteInputs) -> None:
        self._kind, self._namespace, self._inputs = kind, namespace, inputs
        self._certificate = ""
        self.faults: list[Fault] = []
        self.services: set[Key] = set()

    def begin(self, certificate: str) -> None:
        """Begin with all references again; ``certificate`` is presented to servers."""
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
            mirrors = {
                each: self._reference(each.reference, _field_of_mirror(number, each, by))
                for each, by in parsed.mirrors.items()
            }
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
        seen = inputs.services.get(key) or NO_SERVICE
        service, view = seen.object, seen.view
        found = resolve(wanted, service, view, permitted=permitted)
        if permitted:
            self.services.add(key)
        if isinstance(found, UnresolvedReference):
            shown = key.name if namespace == self._namespace else f"{namespace}/{key.name}"
            if found.port and reference.port is not None:
                shown = f"{shown}:{reference.port}"
            kind = RefusalReason.NO_SUCH_PORT if found.port else None
            self.faults.append(Fault(found.reason.value, field, shown, found.detail, kind))
            return Reference(weight, resolved=False)
        at = PortAt(key, view.ports.index(found)) if view is not None else None
        speaks = app_protocol(service, found) if service is not None else ""
        return self._with_tls(Reference(weight, at), key, found, speaks)

    def _with_tls(self, reference: Reference, key: Key, port: PortView, speaks: str) -> Reference:
        policy = policy_of(self._inputs.policies, key, port.name)
        if policy is not None and policy.tls is None:
            return reference._replace(resolved=False)
        tls = policy.tls._replace(certificate=self._certificate) if policy is not None and policy.tls else None
        h2 = self._kind == "GRPCRoute" or (self._kind == "HTTPRoute" and speaks == H2C)
        if tls is None and not h2:
            return reference
        return reference._replace(options=server_options(tls, h2=h2), sans=san_digits(tls))


def _status(route: AskedRoute, parents: Sequence[tuple[ParentDecision, list[StatusCondition]]]) -> ObjectStatus | None:
    """Return the status of a route; None where no parent is ours."""
    if not parents:
        return None
    body = {"parents": [parent_status(each.parent, found, route.generation) for each, found in parents]}
    return ObjectStatus(route.uid, route.generation, body, CONTROLLER)


def _conditions(
    parent: ParentDecision, of_listeners: Sequence[Sequence[Fault]], unresolved: Sequence[Fault], number: int
) -> list[StatusCondition]:
    """Return the conditions; ``of_listeners`` has the faults of rules, as listeners say different words for them."""
    not_accepted = [parent.fault] if parent.fault is not None else []
    invalid = _each_once(of_listeners)
    if invalid and all(len(each) == number for each in of_listeners):
        not_accepted += invalid
    found = [of_faults("Accepted", not_accepted), of_faults("ResolvedRefs", unresolved)]
    if invalid and not not_accepted:
        dropped = "; ".join(fault.message for fault in invalid)
        found.append(StatusCondition("PartiallyInvalid", "True", "UnsupportedValue", f"Dropped Rule {dropped}"))
    return found
