"""RoutePolicies: words that are said for other objects, which name them or are named by them.

What counts for a request is in :mod:`pyconfd.presets.policies.said`. Of two policies with the same target the older one
has a word. A policy names objects of its own namespace only, so that who may write one reaches what he could annotate,
and the routes of others only where they attach to a Gateway of his.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.derived import Derived, Grouped, Read, Source, Spread, Tally
from pyconfd.model.gateway_api import GROUP
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.records import ObjectMeta
from pyconfd.model.route_policy import POLICY_KIND, RoutePolicyObject
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.presets import values
from pyconfd.presets.policies.said import PolicyTarget, SaidWord, Words
from pyconfd.presets.policies.words import WORDS, Form

MOST_TARGETS = 16
"""Of a policy, as in other policies of the Gateway API."""
MOST_POLICIES = 32
"""Of a target: each change of one puts the words of all together again."""
MOST_FIELDS = 200
LONGEST_TEXT = 16_384
TARGETS = "targetRefs"
INGRESS_GROUP = "networking.k8s.io"
_CORE = '""'
"""How the group of Services is written."""
_LONGEST_NAME = 253
_RESOURCES: Mapping[tuple[str, str], Resource] = MappingProxyType(
    {
        (INGRESS_GROUP, "Ingress"): Resource.INGRESSES,
        ("", "Service"): Resource.SERVICES,
        **{
            (GROUP, KIND_OF[each]): each
            for each in (Resource.GATEWAYS, Resource.LISTENERSETS, Resource.HTTPROUTES, Resource.GRPCROUTES)
        },
    }
)
"""What a policy can be for, by group and kind."""
GROUP_OF: Mapping[Resource, str] = MappingProxyType({resource: group for (group, _), resource in _RESOURCES.items()})
_WITHOUT_SECTIONS = frozenset({Resource.INGRESSES, Resource.SERVICES})


class TargetReference(NamedTuple):
    """One of ``targetRefs`` as it is written, and what it names; None where policies are not for that, with why."""

    group: str
    kind: str
    name: str
    section: str
    target: PolicyTarget | None
    wrong: str = ""


class ReadPolicy(NamedTuple):
    """One policy by itself."""

    meta: ObjectMeta
    references: tuple[TargetReference, ...]
    words: Words
    too_many: bool = False

    @property
    def targets(self) -> tuple[PolicyTarget, ...]:
        """What it is for, each once."""
        return tuple(dict.fromkeys(each.target for each in self.references if each.target is not None))


def field_of(word: str) -> str:
    """Return the field of a word: maxBodySize for max-body-size."""
    first, *rest = word.split("-")
    return first + "".join(each.capitalize() for each in rest)


@lru_cache(maxsize=1)
def _words() -> Mapping[str, str]:
    return {field_of(word): word for word in WORDS}


def text_of(value: Any, form: Form = Form.TEXT) -> str:
    """Return a value of a field as the text of its word; a text that no word takes where it has not that form."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and form in {Form.LIST, Form.LINES} and all(isinstance(each, str) for each in value):
        return ("\n" if form is Form.LINES else ", ").join(value)
    return json.dumps(value)  # true and numbers as words have them; of an object no word makes anything


def read_policy(policy: RoutePolicyObject) -> ReadPolicy:
    """Return what a policy says, and for which objects; no word is parsed yet."""
    meta, spec = policy.metadata, policy.spec
    found = spec.get(TARGETS) or []
    found = found if isinstance(found, list) else [found]
    references = tuple(_reference(each, meta.namespace) for each in found[:MOST_TARGETS])
    return ReadPolicy(meta, references, tuple(_said(policy)), len(found) > MOST_TARGETS)


def _reference(reference: Any, namespace: str) -> TargetReference:
    fields = reference if isinstance(reference, dict) else {}
    group, kind, name, section = (
        each[:_LONGEST_NAME] if isinstance(each, str) else ""
        for each in (fields.get(field) for field in ("group", "kind", "name", "sectionName"))
    )
    found = partial(TargetReference, group, kind, name, section)
    resource = _RESOURCES.get(("" if group == "core" else group, kind))
    if resource is None:
        if (right := next((group for group, known in _RESOURCES if known == kind), None)) is not None:
            return found(None, f"the group of the kind {kind} is {right or _CORE}: write it beside the kind")
        known = ", ".join(kind for _, kind in _RESOURCES)
        return found(None, f"policies are for {known}: name one of these, with its group")
    if not name:
        return found(None, "name the object")
    if section and resource in _WITHOUT_SECTIONS:
        return found(None, f"a policy is for all of this {kind}: leave sectionName out")
    return found(PolicyTarget(ObjectKey(resource, Key(namespace, name)), section))


def _said(policy: RoutePolicyObject) -> Iterator[SaidWord]:
    meta = policy.metadata
    key, known = Key(meta.namespace, meta.name), _words()
    fields = sorted(name for name in policy.spec if name != TARGETS)
    shown = f"{POLICY_KIND} {values.shortened(f'{meta.namespace}/{meta.name}')}"
    if len(fields) > MOST_FIELDS:
        why = f"it has more than {MOST_FIELDS} fields: make several policies of it"
        yield SaidWord("", "", f"{shown} spec", key.namespace, key, wrong=why, restricts=True)
    for name in fields[:MOST_FIELDS]:
        word, source = WORDS.get(known.get(name, "")), f"{shown} spec.{values.shortened(name)}"
        text = text_of(policy.spec[name], word.form if word is not None else Form.TEXT)
        said = SaidWord(word.name if word is not None else name, text, source, key.namespace, key)
        if word is None:
            meant = _meant(name)
            hint = f": did you mean {meant}?" if meant else ", or one of a newer version: remove it"
            # What is not known may be of a newer version, and restrict.
            restricts = not meant or WORDS[known[meant]].restricts
            yield said._replace(text="", wrong=f"it is no word of policies{hint}", restricts=restricts)
        elif len(text) > LONGEST_TEXT:
            why = f"it has more than {LONGEST_TEXT} characters: say less"
            yield said._replace(text="", wrong=why, restricts=word.restricts)
        else:
            yield said


@lru_cache(maxsize=1024)
def _meant(name: str) -> str:
    """Return the field that an unknown one was probably meant to be, "" where nothing is close."""
    return next(iter(difflib.get_close_matches(name[:_LONGEST_NAME], sorted(_words()), n=1, cutoff=0.8)), "")


class AttachedPolicies:
    """All RoutePolicies: what is said for an object, and which policies say it."""

    def __init__(self, policies: Source[ObjectKey, RoutePolicyObject]) -> None:
        self.read = Derived(policies, lambda _, __, policy: read_policy(policy), "RoutePolicies")
        counts = Tally(self.read, lambda id_, _: ((id_.key.namespace, 1),), "RoutePolicies of namespaces")
        self._in_use = Derived(counts, lambda _, __, ___: True, "namespaces with RoutePolicies")
        at = Spread(self.read, lambda _, each: ((target, each) for target in each.targets), "RoutePolicies at targets")
        self.by_target = Grouped(at, lambda at, _: (at[1],), "RoutePolicies by target", rank=_older)
        self._words = Derived(self.by_target, _words_at, "words of targets")

    def is_any_in(self, read: Read, namespace: str) -> bool:
        """Return whether a namespace has policies: nearly none has, and asks no more."""
        return read(self._in_use, namespace) is not None

    def at(self, read: Read, target: PolicyTarget) -> Words:
        """Return what policies say for an object, or a part of it: each word once."""
        return read(self._words, target) or ()

    def named(self, read: Read, key: Key) -> Words:
        """Return what the policy of this name says. Without it nobody can know what it would restrict."""
        found = read(self.read, ObjectKey(Resource.ROUTEPOLICIES, key))
        if found is not None:
            return found.words
        why = "there is no such RoutePolicy in the namespace: make it, or remove the reference"
        return (
            SaidWord("", "", f"{POLICY_KIND} {values.shortened(key.name)}", key.namespace, wrong=why, restricts=True),
        )


def _words_at(_: Read, target: PolicyTarget, policies: Sequence[tuple[Any, ReadPolicy]]) -> Words:
    found: dict[str, SaidWord] = {}
    for _at, policy in policies[:MOST_POLICIES]:
        for each in policy.words:
            found.setdefault(each.name, each._replace(target=target))
    if len(policies) > MOST_POLICIES:
        key = Key(target.object.key.namespace, policies[MOST_POLICIES][1].meta.name)
        why = f"more than {MOST_POLICIES} policies have the same target: put them together"
        said = SaidWord(
            "", "", f"{POLICY_KIND} {values.shortened(key.name)}", key.namespace, key, target, why, restricts=True
        )
        found.setdefault("", said)
    return tuple(found.values())


def _older(at: tuple[ObjectKey, PolicyTarget], policy: ReadPolicy) -> tuple[str, ObjectKey]:
    return policy.meta.creation_timestamp or "~", at[0]
