"""Canaries: Ingresses that take a share of the requests for a path of another one of their namespace, the main one.

The backends of both belong to the main Ingress: its words hold for all requests of the path, also for those that the
canary takes, so that a canary opens nothing. A weight is that of servers, as in a rule of an HTTPRoute, and a header or
a cookie is a condition of a group, as a match of one.

What a tenant can do to others with it: nothing to their requests, since path and canary are of one namespace. Each
condition is a line that all requests of the shared frontends pass: so their number is bounded.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyconfd.derived import Collection, Derived, Grouped, Read, Spread
from pyconfd.model.context import PresetName
from pyconfd.model.snapshot import Key
from pyconfd.presets.ingress.claims import OF_ITSELF, IngressClaim, as_expression
from pyconfd.presets.policies.canary import ALWAYS, NEVER, Canary
from pyconfd.presets.policies.words import WORDS, AskedByWords
from pyconfd.presets.routing.references import ServiceReference
from pyconfd.presets.routing.rules import MirrorSection, RuleBackend
from pyconfd.presets.routing.table import VirtualHostPath, group_of, path_of
from pyconfd.presets.routing.types import Decider, RouteGroup, RouteRule, ValueCondition, section_name
from pyconfd.presets.rule_backends import RuleSection
from pyconfd.presets.views import PortAt

MOST_CONDITIONAL = 16
"""Paths of a namespace whose canary is chosen by header or cookie: two to five lines each.

Measured with HAProxy 2.6: a line costs each request of the frontend 80 ns, so that these take 7 us at most.
"""


class CanaryPaths(NamedTuple):
    """The paths of others that one canary takes requests of, and which requests."""

    rules: tuple[RouteRule, ...]
    asked: Canary


class AskedCanaries:
    """What canaries ask for: ``paths`` by canary, ``of_paths`` by path, the oldest first, and those ``beyond`` a limit.

    ``with_expressions`` has the hosts, with the namespace, whose paths are regular expressions.
    """

    def __init__(
        self, claims: Collection[Key, IngressClaim], with_expressions: Collection[tuple[str, str], int]
    ) -> None:
        self._with_expressions = with_expressions
        self.paths = Derived(claims, self._paths, "canaries at their paths")
        rules = Spread(self.paths, lambda _, found: enumerate(found.rules), "paths of canaries")
        self.of_paths = Grouped(
            rules, lambda _, rule: (path_of(rule),), "canaries by path", rank=lambda _, rule: rule.rank
        )
        conditional = Spread(self.paths, _conditional_rules, "conditional paths of canaries")
        by_namespace = Grouped(
            conditional,
            lambda _, rule: (rule.owner.namespace,),
            "canaries by namespace",
            rank=lambda _, rule: rule.rank,
        )
        self.beyond = Derived(by_namespace, _beyond_number, "canaries beyond their number")

    def _paths(self, read: Read, key: Key, claim: IngressClaim) -> CanaryPaths | None:
        """Return the paths, as those of the main Ingress are read."""
        if not claim.canary_rules:
            return None
        rules = (
            as_expression(rule) if read(self._with_expressions, (key.namespace, rule.virtual_host)) else rule
            for rule in claim.canary_rules
        )
        return CanaryPaths(tuple(rules), claim.canary)


def _conditional_rules(_: Key, canary: CanaryPaths) -> Iterable[tuple[int, RouteRule]]:
    return enumerate(canary.rules if canary.asked.is_conditional else ())


def _beyond_number(_: Read, __: str, asking: Sequence[tuple[object, RouteRule]]) -> frozenset[RouteRule] | None:
    return frozenset(rule for _at, rule in asking[MOST_CONDITIONAL:]) or None


class CanaryPair(NamedTuple):
    """Two backends that requests are divided among, and whose they are."""

    main: str
    main_owner: Key
    canary: str
    canary_owner: Key

    def section(self, part: str) -> str:
        """Return the name of one of its sections."""
        digest = hashlib.sha256(f"{self.main}|{self.canary}".encode()).hexdigest()[:16]
        namespace, name = self.main_owner
        return section_name("ing", namespace, name, self.canary_owner.name, part, digest)


class PathLead(NamedTuple):
    """What the entry of a path leads to: one section, or a ``group`` of the ``sections``. ``canary`` None: no other.

    ``sections`` has first the one for most requests.
    """

    main: RouteRule
    sections: tuple[str, ...]
    canary: RouteRule | None = None
    pair: CanaryPair | None = None
    group: RouteGroup | None = None


def lead_with(path: VirtualHostPath, main: RouteRule, canary: RouteRule, asked: Canary) -> PathLead:
    """Return where the requests of a path go."""
    pair = CanaryPair(
        main.backend,
        Key(main.owner.namespace, main.owner.name),
        canary.backend,
        Key(canary.owner.namespace, canary.owner.name),
    )
    weighted = pair.section("weighted")
    if not asked.is_conditional:
        return PathLead(main, (weighted,), canary, pair)
    takes, stays = pair.section("canary"), pair.section("main")
    rules = []
    if (header := asked.header_condition) is not None:
        rules.append(canary._replace(match=main.match._replace(headers=(header,)), backend=takes))
        if header.value == ALWAYS and not asked.value and not header.regex:
            never = main.match._replace(headers=(ValueCondition(asked.header, NEVER),))
            rules.append(main._replace(match=never, backend=stays))
    if asked.cookie:
        for rule, backend, value in ((canary, takes, ALWAYS), (main, stays, NEVER)):
            match = main.match._replace(cookies=(ValueCondition(asked.cookie, value),))
            rules.append(rule._replace(match=match, backend=backend))
    rules.append(main._replace(backend=weighted))
    return PathLead(main, (weighted, takes, stays), canary, pair, group_of(*path, rules))


class PairParts(NamedTuple):
    """What serves the two of a pair: claims, what is ``asked`` for both, references, ports and words for servers."""

    main: IngressClaim
    canary: IngressClaim
    asked: AskedByWords
    references: tuple[ServiceReference, ServiceReference]
    ports: tuple[PortAt | None, PortAt | None]
    options: str
    mirrors: tuple[MirrorSection, ...] = ()


def sections_of_pair(pair: CanaryPair, parts: PairParts, hosts: tuple[str, ...]) -> tuple[tuple[str, RuleSection], ...]:
    """Return the sections of a pair, by name: as the main Ingress asks for them; ``hosts`` lead there."""
    main, canary, asked = parts.main, parts.canary, parts.asked
    policy = canary.canary
    shares = {"weighted": (policy.total - policy.weight, policy.weight)}
    if policy.is_conditional:
        shares |= {"canary": (0, 1), "main": (1, 0)}
    names = {"weighted": f"{main.owner.name},{canary.owner.name}", "canary": canary.owner.name}
    made = []
    for part, weights in shares.items():
        name = pair.section(part)
        decider = Decider("Ingress", pair.main_owner.namespace, names.get(part, main.owner.name)).logged
        ports = zip(weights, parts.ports, strict=True)
        of = " and ".join(f"Service {each.name}, port {each.port}" for each in parts.references)
        backend = RuleBackend(
            name,
            f"Ingress {main.owner.namespace}/{main.owner.name} with canary {canary.owner.name}, {of}: {part}",
            "",
            "",
            (),
            (),
            options=parts.options,
            deciders=tuple((f"{host}|{name}", decider) for host in hosts),
            unlogged=(name,) if main.unlogged else (),
            route=name,
            filters=asked.filters._replace(mirrors=()),
            mirrors=parts.mirrors,
            handling=asked.handling,
            policy=asked.policy,
            said=main.said_at(pair.main),
            ports=tuple(
                (weight, port) for weight, port in ports if port is not None and (weight or part == "weighted")
            ),
            preset=PresetName.INGRESS,
        )
        made.append((name, RuleSection(main.owner, backend)))
    return tuple(made)


def unlike(main: IngressClaim, canary: IngressClaim, at: tuple[str, str]) -> str:
    """Return the word that restricts the canary and not the main Ingress, "" where there is none.

    ``at`` are the backends of both.
    """
    sources = dict(canary.said_at(at[1]))
    more = sorted(canary.texts_at(at[1]) - main.texts_at(at[0]))
    return next(
        (name for name, _ in more if name in WORDS and WORDS[name].restricts and sources[name] not in canary.ignored),
        "",
    )


def without_effect(main: IngressClaim, canary: IngressClaim, at: tuple[str, str]) -> tuple[str, ...]:
    """Return the words of a canary that say something else than the main Ingress, whose words hold."""
    more = canary.texts_at(at[1]) - main.texts_at(at[0])
    return tuple(sorted(name for name, _ in more if not name.startswith(OF_ITSELF)))
