"""What words ask for in the rules of a route, said by its annotations and by RoutePolicies."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyconfd.model.gateway_api import BackendRef
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.presets.gateway.faults import UNSUPPORTED, RuleFault
from pyconfd.presets.gateway.filters import names_policy
from pyconfd.presets.gateway.http_rules import ParsedRule
from pyconfd.presets.gateway.status import Fault
from pyconfd.presets.objects import Route
from pyconfd.presets.policies.said import (
    NO_POLICIES,
    OverriddenWord,
    PolicySources,
    PolicyTarget,
    SaidFault,
    Sources,
    UsersOf,
    Words,
    annotated,
    asked_of,
    sources_of,
    together,
)
from pyconfd.presets.policies.words import CLOSED, NOTHING_ASKED, AskedByWords
from pyconfd.presets.policy import ClaimOptions


class RuleWords(NamedTuple):
    """What is said for a rule, and by policies for the Services of its references: () where there are none."""

    own: Words = ()
    of_services: tuple[Words, ...] = ()


class RouteWords(NamedTuple):
    """What is said for the rules of a route by its annotations, and by policies of its namespace."""

    ref: ObjectRef
    rules: tuple[RuleWords, ...]
    overridden: tuple[OverriddenWord, ...] = ()
    backends: int = 1

    def __bool__(self) -> bool:
        """Return whether anything is said."""
        return any(each.own or any(each.of_services) for each in self.rules)


class WordedRules(NamedTuple):
    """The rules with what words ask for; for each the fault for which nobody is let in, if any.

    ``ignored`` are words without effect, ``overridden`` those of policies that do not count.
    """

    rules: tuple[ParsedRule | RuleFault, ...]
    closed: tuple[RuleFault | None, ...]
    ignored: tuple[Fault, ...] = ()
    overridden: tuple[OverriddenWord, ...] = ()


def words_of_route(id_: ObjectKey, ref: ObjectRef, route: Route, policies: PolicySources) -> RouteWords:
    """Return what is said for the rules of an HTTPRoute or GRPCRoute."""
    rules: tuple[Any, ...] = tuple(route.spec.rules or ())
    annotations = tuple(annotated(route.metadata.annotations, ref.kind, ref.namespace))
    if not policies.is_any_in(ref.namespace):
        if not annotations and not any(map(names_policy, (each for rule in rules for each in rule.filters or ()))):
            return RouteWords(ref, (_NOTHING,) * len(rules), (), _backends_of(rules))  # nearly all
        policies = policies._replace(at=NO_POLICIES.at)
    of_route = tuple(policies.at(PolicyTarget(id_)))
    found, overridden = [], list[OverriddenWord]()
    for rule in rules:
        named = [
            policies.named(Key(ref.namespace, each.extension_ref.name))
            for each in rule.filters or ()
            if names_policy(each)
        ]
        of_rule = policies.at(PolicyTarget(id_, rule.name)) if rule.name else ()
        own, more = together(annotations, *named, of_rule, of_route, at=_shown(ref))
        overridden += more
        references = rule.backend_refs or ()
        of_services = tuple(_of_service(each, ref.namespace, policies) for each in references)
        found.append(RuleWords(own, of_services if any(of_services) else ()))
    return RouteWords(
        ref,
        tuple(found),
        _counted(overridden, [each.name for each in rules]),
        _backends_of(rules),
    )


_NOTHING = RuleWords()


def _backends_of(rules: Sequence[Any]) -> int:
    return sum(max(1, len(rule.backend_refs or ())) for rule in rules)


def _of_service(reference: BackendRef, namespace: str, policies: PolicySources) -> Words:
    if (reference.group, reference.kind) != ("", "Service") or reference.namespace not in {None, namespace}:
        return ()
    return tuple(policies.at(PolicyTarget(ObjectKey(Resource.SERVICES, Key(namespace, reference.name)))))


def _counted(overridden: Sequence[OverriddenWord], names: Sequence[str]) -> tuple[OverriddenWord, ...]:
    """Return each once, and whether it counts for no rule of the target."""
    counts: dict[OverriddenWord, int] = {}
    for each in overridden:
        counts[each] = counts.get(each, 0) + 1
    of_word: dict[tuple[object, ...], int] = {}
    for each, count in counts.items():
        of_word[each[:3]] = of_word.get(each[:3], 0) + count
    return tuple(each._replace(everywhere=of_word[each[:3]] >= _number(each.target, names)) for each in counts)


def _number(target: PolicyTarget | None, names: Sequence[str]) -> int:
    section = target.section if target is not None else ""
    return sum(each == section for each in names) if section else len(names)


def _shown(ref: ObjectRef) -> str:
    return f"{ref.kind} {ref.namespace}/{ref.name}"


def worded(
    said: RouteWords,
    parsed: Sequence[ParsedRule | RuleFault],
    inherited: Words,
    rules_of: tuple[ClaimOptions, UsersOf],
    variants: int = 1,
) -> WordedRules:
    """Return the rules with what words ask for, where ``inherited`` is said for the listener.

    ``rules_of`` says what may be said, and which users there are. ``variants`` is how many times the route has
    backends, since listeners say different things.
    """
    nothing, (claims, users_of) = (None,) * len(parsed), rules_of
    if not said and not inherited:
        return WordedRules(tuple(parsed), nothing)
    kind, backends, at = said.ref.kind, said.backends * variants, _shown(said.ref)
    known: dict[Words, tuple[AskedByWords, tuple[SaidFault, ...]]] = {}
    ignored: dict[Fault, None] = {}
    overridden: dict[OverriddenWord, None] = {}

    def asked(*levels: Words) -> tuple[AskedByWords, tuple[SaidFault, ...], Sources]:
        words, more = together(*levels, at=at)
        overridden.update(dict.fromkeys(more))
        if words not in known:
            known[words] = asked_of(words, kind, claims, backends=backends, users_of=users_of)
        found, faults = known[words]
        for each in faults:
            if not each.restricts:
                ignored[Fault("", each.source, each.text, each.told())] = None
        is_closed = any(each.restricts for each in faults)
        return CLOSED if is_closed else found, faults, sources_of(words)

    rules: list[ParsedRule | RuleFault] = []
    closed: list[RuleFault | None] = []
    for words, rule in zip(said.rules, parsed, strict=True):
        for_all, faults, sources = asked(words.own, inherited)
        wrong = _closing(faults, "the route")
        if isinstance(rule, ParsedRule):
            made = rule.asking_for(for_all, sources) if for_all != NOTHING_ASKED else rule
            if words.of_services:
                each_asked = [asked(words.own, each, inherited) for each in words.of_services]
                wrong = wrong or next(
                    (found for _, faults, _ in each_asked if (found := _closing(faults, "the Service"))), None
                )
                made = made._replace(by_reference=tuple(rule.asking_for(each, by) for each, _, by in each_asked))
            rules.append(made)
        else:
            rules.append(rule)
        closed.append(wrong)
    return WordedRules(tuple(rules), tuple(closed), tuple(ignored), tuple(overridden))


def _closing(faults: Sequence[SaidFault], to: str) -> RuleFault | None:
    """Return the fault of the first word that restricts and cannot be what it says, None where there is none."""
    wrong = next((each for each in faults if each.restricts), None)
    if wrong is None:
        return None
    return RuleFault(UNSUPPORTED, wrong.source, wrong.text, wrong.told(to))


def identity_of(said: Words) -> tuple[str, ...]:
    """Return what says words: other texts of them are for the same backends."""
    return tuple(sorted(f"{'/'.join(each.policy or ())} {each.name}" for each in said))


_KINDS = frozenset(KIND_OF[each] for each in (Resource.HTTPROUTES, Resource.GRPCROUTES))


def takes_words(kind: str) -> bool:
    """Return whether words may be said for a kind of routes."""
    return kind in _KINDS
