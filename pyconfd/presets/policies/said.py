"""Words as they are said for one request: by annotations and RoutePolicies, from the most to the least specific.

Of each word the most specific text counts; the others are without effect there, and their policies' statuses say so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets.annotations import OWN_PREFIX, misspelled_words, words_of
from pyconfd.presets.policies.types import RoutePolicy
from pyconfd.presets.policies.words import NOTHING_ASKED, WORDS, AskedByWords, asked_by
from pyconfd.presets.policy import ClaimOptions

_INHERITED = frozenset({Resource.GATEWAYS, Resource.LISTENERSETS, Resource.SERVICES})
"""Targets whose words are for objects of several kinds: a word that is for one of these only is for these."""


class PolicyTarget(NamedTuple):
    """An object, or its listener or rule that is called ``section``."""

    object: ObjectKey
    section: str = ""


class SaidWord(NamedTuple):
    """A word, and ``source``, what says it: an annotation, or a field of the RoutePolicy ``policy`` for ``target``.

    ``wrong``: why it is none, whatever its text; then ``restricts`` is whether it may have been meant to restrict.
    """

    name: str
    text: str
    source: str
    namespace: str
    policy: Key | None = None
    target: PolicyTarget | None = None
    wrong: str = ""
    restricts: bool = False


class SaidFault(NamedTuple):
    """Something said that cannot be what it says. ``restricts``: nobody may be let in because of it.

    ``is_note``: it is what it says, but for what it names.
    """

    source: str
    text: str
    why: str
    restricts: bool
    is_note: bool = False

    def told(self, to: str = "") -> str:
        """Return what its owner is told; ``to`` is what it was to protect."""
        if self.is_note:
            return self.why
        return f"{self.why}; " + (f"nobody is let in to {to}" if self.restricts else "it has no effect")


class OverriddenWord(NamedTuple):
    """A word of a policy that does not count for the object ``at``, since ``by`` is more specific.

    ``everywhere``: it counts for nothing of the target.
    """

    policy: Key
    target: PolicyTarget | None
    word: str
    at: str
    by: str
    everywhere: bool = False


UsersOf = Callable[[RoutePolicy], tuple[RoutePolicy, str, str]]


class PolicySources(NamedTuple):
    """What policies say: for a target, and one by its name in a namespace, for a reference to it, if there are any.

    ``users_of`` returns a policy with the users that it asks for, why there are none, and which ones are left out.
    """

    is_any_in: Callable[[str], bool]
    at: Callable[[PolicyTarget], Sequence[SaidWord]]
    named: Callable[[Key], Sequence[SaidWord]]
    users_of: UsersOf


def as_it_is(policy: RoutePolicy) -> tuple[RoutePolicy, str, str]:
    """Return a policy whose users nobody looks for."""
    return policy, "", ""


NO_POLICIES = PolicySources(lambda _: False, lambda _: (), lambda _: (), as_it_is)

Words = tuple[SaidWord, ...]
Sources = tuple[tuple[str, str], ...]
"""Words, each with what says it."""


def annotated(annotations: Mapping[str, str] | None, kind: str, namespace: str) -> Iterator[SaidWord]:
    """Return the words that annotations of an object say, and what was probably meant to be one that restricts."""
    for name, text in words_of(annotations):
        yield SaidWord(name, text, f"annotation {OWN_PREFIX}{name}", namespace)
    for fault in misspelled_words(annotations, kind):
        source = f"annotation {OWN_PREFIX}{fault.name}"
        yield SaidWord(fault.name, fault.text, source, namespace, wrong=fault.why, restricts=fault.restricts)


def sources_of(said: Words) -> Sources:
    """Return what says words."""
    return tuple((each.name, each.source) for each in said)


def together(*levels: Iterable[SaidWord], at: str = "") -> tuple[Words, tuple[OverriddenWord, ...]]:
    """Return each word as the first level has it that says it, and the policies' words that do not count ``at``."""
    found: dict[str, SaidWord] = {}
    overridden = []
    for level in levels:
        for each in level:
            first = found.setdefault(each.name, each)
            if first is not each and each.policy is not None:
                overridden.append(OverriddenWord(each.policy, each.target, each.name, at, first.source))
    return tuple(found.values()), tuple(overridden)


def asked_of(
    said: Sequence[SaidWord], kind: str, claims: ClaimOptions, *, backends: int = 1, users_of: UsersOf = as_it_is
) -> tuple[AskedByWords, tuple[SaidFault, ...]]:
    """Return what words of different namespaces ask for of an object of ``kind``, and what cannot be what it says.

    ``backends`` is for how many backends of the object they are; ``users_of`` is that of :class:`PolicySources`.
    """
    if not said:
        return NOTHING_ASKED, ()
    by_name = {each.name: each for each in said if not each.wrong and not _is_for_others(each, kind)}
    asked, faults = asked_by(
        ((each.name, each.text) for each in by_name.values()),
        kind,
        claims=claims,
        backends=backends,
        namespaces={each.name: each.namespace for each in by_name.values()},
    )
    found = [SaidFault(each.source, each.text, each.wrong, each.restricts) for each in said if each.wrong]
    found += (SaidFault(by_name[each.name].source, each.text, each.why, each.restricts) for each in faults)
    policy, wrong, notes = users_of(asked.policy)
    if policy.auth is not None and (wrong or notes):
        source = by_name["basic-auth-secret"].source
        why = wrong or f"{notes}: left out"
        found.append(SaidFault(source, policy.auth.secret.name, why, restricts=bool(wrong), is_note=not wrong))
    return asked._replace(policy=policy), tuple(found)


def _is_for_others(said: SaidWord, kind: str) -> bool:
    """Return whether a word of a Gateway or Service is not for a kind of what it leads to; one that restricts is."""
    if said.target is None or said.target.object.resource not in _INHERITED:
        return False
    return kind not in WORDS[said.name].kinds and not WORDS[said.name].restricts
