"""Rules of HTTPRoutes and GRPCRoutes: what they ask for, parsed once, and the backends that they are served by.

A rule is one backend with the servers of all its references, so that a step of a canary is a new weight of servers.
Only where references have different filters, or their servers speak differently, each has a backend, and requests are
divided among these at random.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from pyconfd.model.gateway_api import (
    GrpcRule,
    HttpMatch,
    HttpRetry,
    HttpRule,
    HttpTimeouts,
    RouteBackendRef,
    SessionConfig,
    SessionPersistence,
)
from pyconfd.presets.gateway import conditions, filters
from pyconfd.presets.gateway.faults import InvalidRule, RuleFault, refuse
from pyconfd.presets.gateway.frontends import Choice
from pyconfd.presets.gateway.servers import Reference
from pyconfd.presets.policies import sessions
from pyconfd.presets.policies.pods import with_words
from pyconfd.presets.policies.sessions import Session
from pyconfd.presets.policies.types import NO_POLICY, RoutePolicy
from pyconfd.presets.policies.words import AskedByWords
from pyconfd.presets.routing.rules import (
    AS_USUAL,
    MOST_ATTEMPTS,
    NO_FILTERS,
    RETRIED_STATUSES,
    Filters,
    Handling,
    Mirror,
    MirrorSection,
    Retry,
    RuleBackend,
)
from pyconfd.presets.routing.types import RouteMatch

_DURATION = re.compile(r"(?:[0-9]{1,5}(?:h|m|s|ms)){1,4}", re.ASCII)
_UNIT_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_LONGEST_MS = 24 * 24 * 3_600_000
"""HAProxy's longest timeout is a little longer."""
_SESSION = "PYCONFD_SESSION"
"""The cookie of a session where none is named: its value is random, so that rules of a host may share it."""
_LONGEST_SESSION_S = 10 * 365 * 24 * 3600
SPLIT = "split:"
"""What a route begins with that is divided among several backends."""


class ParsedRule(NamedTuple):
    """A rule without what its references lead to.

    ``filters`` are those of the rule, ``of_references`` those of each reference. ``said`` is what says its words,
    ``by_reference`` is the rule as it is for each reference, () where it is the same for all.
    """

    matches: tuple[RouteMatch, ...]
    filters: Filters = NO_FILTERS
    of_references: tuple[Filters, ...] = ()
    handling: Handling = AS_USUAL
    policy: RoutePolicy = NO_POLICY
    said: tuple[tuple[str, str], ...] = ()
    by_reference: tuple["ParsedRule", ...] = ()

    @property
    def mirrors(self) -> Mapping[Mirror, "ParsedRule"]:
        """What requests are copied to, each with the rule that says so."""
        return {mirror: each for each in self.by_reference or (self,) for mirror in each.filters.mirrors}

    def asking_for(self, asked: AskedByWords, said: tuple[tuple[str, str], ...] = ()) -> "ParsedRule":
        """Return this with what words of its route ask for; what the rule itself says comes first."""
        return self._replace(
            filters=self.filters.beside(asked.filters),
            handling=self.handling.beside(asked.handling),
            policy=asked.policy._replace(session=self.policy.session or asked.policy.session),
            said=said,
        )


BACKOFF = "retry.backoff"
"""The field for which the whole route is refused."""


class RuleSections(NamedTuple):
    """The backends of a rule, without servers.

    ``route`` is what the table is to lead to: a section's name, or the route of ``choices``. All path entries of the
    rule belong to the first of ``backends``.
    """

    route: str
    backends: tuple[RuleBackend, ...]
    choices: tuple[Choice, ...] = ()


def parse_http(rule: HttpRule) -> ParsedRule | RuleFault:
    """Return what a rule of an HTTPRoute asks for, or the first fault in it."""
    try:
        matches = tuple(
            conditions.http_match(match, f"matches[{place}]")
            for place, match in enumerate(rule.matches or (HttpMatch(),))
        )
        return ParsedRule(
            matches,
            filters.parse(rule.filters, matches, "filters"),
            _of_references(rule.backend_refs, matches),
            _handling(rule),
            _policy(rule.session_persistence),
        )
    except InvalidRule as error:
        return error.fault


def parse_grpc(rule: GrpcRule) -> ParsedRule | RuleFault:
    """Return what a rule of a GRPCRoute asks for, or the first fault in it."""
    try:
        matches = tuple(
            conditions.grpc_match(match, f"matches[{place}]") for place, match in enumerate(rule.matches or ())
        ) or (RouteMatch(),)
        return ParsedRule(
            matches,
            filters.parse(rule.filters, matches, "filters"),
            _of_references(rule.backend_refs, matches),
            policy=_policy(rule.session_persistence),
        )
    except InvalidRule as error:
        return error.fault


def _of_references(references: Sequence[RouteBackendRef] | None, matches: Sequence[RouteMatch]) -> tuple[Filters, ...]:
    found = []
    for place, reference in enumerate(references or ()):
        parsed = filters.parse(reference.filters, matches, f"backendRefs[{place}].filters", is_of_reference=True)
        if parsed.redirect or parsed.cors:
            refuse(
                f"backendRefs[{place}].filters", "", "RequestRedirect and CORS are for a whole rule: move them there"
            )
        found.append(parsed)
    return tuple(found)


def _policy(wanted: SessionPersistence | None) -> RoutePolicy:
    """Return what a rule itself asks for of what words can."""
    if wanted is None:
        return NO_POLICY
    field, is_header = "sessionPersistence", wanted.type == "Header"
    if wanted.type not in {"Cookie", "Header"}:
        refuse(f"{field}.type", wanted.type, "expected Cookie or Header")
    own = (wanted.header if is_header else wanted.cookie or wanted.cookie_config) or SessionConfig()
    part = f"{field}.{'header' if is_header else 'cookie'}"
    name = own.name or wanted.session_name or ("" if is_header else _SESSION)
    times = (wanted.absolute_timeout, f"{field}.absoluteTimeout"), (wanted.idle_timeout, f"{field}.idleTimeout")
    absolute, idle = (_seconds(text, at) for text, at in times)
    if own.lifetime_type not in {"Session", "Permanent"}:
        refuse(f"{part}.lifetimeType", own.lifetime_type, "expected Session or Permanent")
    is_permanent = own.lifetime_type == "Permanent" and not is_header
    if is_permanent and absolute is None:
        refuse(f"{field}.absoluteTimeout", "", "a permanent cookie needs the time after which it ends")
    try:
        path = sessions.path(own.path)
    except ValueError as error:
        refuse(f"{part}.path", own.path, str(error))
    session = Session(
        filters.edited_name(name, f"{part}.name", host=False) if is_header else conditions.header_name(name, part),
        is_header,
        path,
        max_age=absolute if is_permanent else None,
        absolute=absolute,
        idle=idle,
    )
    return NO_POLICY._replace(session=session)


def _seconds(text: str | None, field: str) -> int | None:
    """Return a duration in whole seconds, None for 0, which is none."""
    seconds = -(-_ms(text, field) // 1000) if text is not None else 0
    return min(seconds, _LONGEST_SESSION_S) or None


def _handling(rule: HttpRule) -> Handling:
    return Handling(
        _timeout_ms(rule.timeouts),
        _retry(rule.retry),
        _duration_ms(rule.timeouts.request, "timeouts.request") if rule.timeouts and rule.retry else None,
    )


def _timeout_ms(timeouts: HttpTimeouts | None) -> int | None:
    """Return the shorter one."""
    if timeouts is None:
        return None
    request = _duration_ms(timeouts.request, "timeouts.request")
    backend = _duration_ms(timeouts.backend_request, "timeouts.backendRequest")
    return min((each for each in (request, backend) if each is not None), default=None)


def _duration_ms(text: str | None, field: str) -> int | None:
    """Return a duration, the longest possible one for 0; None where none is given."""
    return min(_ms(text, field), _LONGEST_MS) or _LONGEST_MS if text is not None else None


def _ms(text: str, field: str) -> int:
    if not _DURATION.fullmatch(text):
        refuse(field, text, "not a duration: expected a text like 500ms, 10s or 1m30s")
    return sum(int(number) * _UNIT_MS[unit] for number, unit in re.findall(r"([0-9]+)(h|ms|m|s)", text))


def _retry(retry: HttpRetry | None) -> Retry | None:
    if retry is None:
        return None
    if retry.backoff is not None:
        refuse(BACKOFF, retry.backoff, "HAProxy does not wait before it tries again: leave it out")
    attempts = 3 if retry.attempts is None else retry.attempts
    if not 0 <= attempts <= MOST_ATTEMPTS:
        refuse("retry.attempts", attempts, f"expected a number from 0 to {MOST_ATTEMPTS}")
    for code in retry.codes or ():
        if code not in RETRIED_STATUSES:
            refuse("retry.codes", code, f"HAProxy can try again on {', '.join(map(str, sorted(RETRIED_STATUSES)))}")
    codes = sorted(set(retry.codes or ()))
    return Retry(attempts, " ".join(["conn-failure", "empty-response", "response-timeout", *map(str, codes)]))


def sections_of(
    rule: ParsedRule,
    references: Sequence[Reference],
    name: str,
    owner: str,
    mirrors: Mapping[Mirror, Reference] = MappingProxyType({}),
) -> RuleSections:
    """Return the backends of a rule, in sections whose names begin with ``name``.

    ``references`` has what each of its own leads to, ``mirrors`` what those of ``rule.mirrors`` lead to.
    """
    copies = []
    to: dict[Mirror, MirrorSection] = {}
    for place, (mirror, reference) in enumerate(mirrors.items()):
        if reference.resolved and mirror.share:
            to[mirror] = MirrorSection(f"{name}_mirror_{place}", mirror.share, mirror.of)
            copies.append(_backend(ParsedRule(()), NO_FILTERS, (reference,), to[mirror].name, owner))
    made = _sections(rule, references, name, owner)
    if not copies:
        return made
    backends = (
        msgspec.structs.replace(each, mirrors=tuple(to[mirror] for mirror in each.filters.mirrors if mirror in to))
        for each in made.backends
    )
    return made._replace(backends=(*backends, *copies))


def _sections(rule: ParsedRule, references: Sequence[Reference], name: str, owner: str) -> RuleSections:
    if rule.filters.redirect is not None:
        return RuleSections(name, (_backend(rule, NO_FILTERS, (), name, owner),))
    of_each = rule.of_references or (NO_FILTERS,) * len(references)
    rules = rule.by_reference or (rule,) * len(references)
    valid = [each for each in zip(references, of_each, rules, strict=True) if each[0].resolved]
    # Those without a weight count, too: what gets one is a step of a canary, which should not change sections.
    if len({(own, each, reference.options, reference.sans) for reference, own, each in valid}) < 2:
        own, each = next(((own, each) for _, own, each in valid), (NO_FILTERS, rule))
        return RuleSections(name, (_backend(each, own, references, name, owner),))
    made, weights = [], []
    for place, (reference, own, each) in enumerate(valid):
        section = f"{name}_{place}"
        # The share is that of the rule: one reference alone has all of its backend.
        made.append(_backend(each, own, (reference._replace(weight=1),), section, owner))
        weights.append((section, reference.weight))
    route = f"{SPLIT}{name}"
    choices = conditions.shares(route, weights)
    if failing := sum(reference.weight for reference in references if not reference.resolved):
        section = f"{name}_failing"
        made.append(_backend(rule, NO_FILTERS, (Reference(1, resolved=False),), section, owner))
        total = failing + sum(weight for _, weight in weights)
        choices = (Choice(route, f"{{ rand({total}) lt {failing} }}", section), *choices)
    return RuleSections(route, (msgspec.structs.replace(made[0], route=route), *made[1:]), choices)


def stream_backend(references: Sequence[Reference], name: str, owner: str) -> RuleBackend:
    """Return what serves a rule of a TLSRoute or TCPRoute."""
    return msgspec.structs.replace(_backend(ParsedRule(()), NO_FILTERS, references, name, owner), mode="tcp")


def _backend(rule: ParsedRule, own: Filters, references: Sequence[Reference], name: str, owner: str) -> RuleBackend:
    total = sum(each.weight for each in references)
    failing = sum(each.weight for each in references if not each.resolved)
    valid = [each for each in references if each.resolved]
    filters, handling = rule.filters.followed_by(own), rule.handling
    if rule.filters.redirect is None and not valid:
        failing = total = 1
        # Nothing is forwarded, so nothing is changed or handled; what browsers ask before a request is answered.
        filters, handling = Filters(cors=filters.cors), AS_USUAL
    ports = tuple((each.weight, each.port) for each in valid if each.port is not None)
    return RuleBackend(
        name,
        owner,
        "",
        "",
        (),
        (),
        route=name,
        filters=filters,
        failing=failing,
        of=total if failing else 1,
        handling=handling,
        policy=rule.policy,
        said=rule.said,
        options=with_words(valid[0].options, rule.policy.pods) if valid else "",
        sans=valid[0].sans if valid else (),
        ports=ports,
        # Whatever their weights are: a step of a canary changes no lines. Whose session has a pod is sent there.
        divided=len(ports) > 1 and not rule.policy.session,
    )
