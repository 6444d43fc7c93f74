"""Annotations that were written for other ingress controllers, or are misspelled: what of them must not be passed over.

An annotation that restricts who may ask, and is ignored, leaves open what its author closed. ``annotations.tsv`` beside
this file lists what the known controllers read, with the effect of each and the page or file that says so. One with
the prefix of such a controller that is not listed counts as one that restricts.
"""

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from pyconfd.presets import values
from pyconfd.presets.policies.words import WORDS, WordFault

OWN_PREFIX = "pyconfd.io/"
ACCESS_LOG = "pyconfd.io/access-log"
"""The annotation that, with the value "off", leaves answers of the object's pods below 500 out of the access log."""
OWN_ANNOTATIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "GRPCRoute": frozenset({"access-log", *WORDS}),
        "HTTPRoute": frozenset({"access-log", *WORDS}),
        "Ingress": frozenset({"access-log", "hsts", "shared-with", "ssl-redirect", *WORDS}),
        "Service": frozenset(
            {
                "access-log", "addresses", "domain", "hsts", "listen-port", "port", "proto", "proxy-protocol",
                "shared-with", "sharing-key", "ssl-redirect", "tls-secret",
            }
        ),
        "TCPRoute": frozenset(),
        "TLSRoute": frozenset(),
    }
)  # fmt: skip
"""What pyconfd itself reads, by kind, without the prefix."""

_TABLE = "annotations.tsv"
_SAME_AS = MappingProxyType({"haproxy.com": ("haproxy.org",)})
"""Another prefix of the same controller. Source: kubernetes-ingress, pkg/annotations/validators/validations.go."""
_SHARED_PREFIX = "ingress.kubernetes.io"
"""Read by all of them at some time, so that a name there may mean what it means to any of them."""
_PARTLY_LISTED = frozenset(
    {
        "alb.ingress.kubernetes.io", "appprotect.f5.com", "appprotectdos.f5.com", "kubernetes.io", "nginx.com",
        "nginx.org",
    }
)  # fmt: skip
"""Prefixes of which the table has what restricts, and no more: another name counts for nothing."""
_OTHER_CONTROLLERS = frozenset({"nginx.org", "nginx.com", "projectcontour.io", "getambassador.io"})
_INGRESS_CLASS = "ingressclass.kubernetes.io"
_MOST_NAMED = 5
_MOST_COMPARED = 50
"""Unknown names of one object that are compared with known ones: it has room for 10,000, which take seconds."""


class AnnotationEffect(StrEnum):
    """What an annotation asks for, the strictest first."""

    RESTRICTS = "restricts"
    HTTPS = "https"
    """Plain HTTP is not served."""
    HTTPS_WITH_TLS = "https-with-tls"
    """The same, for the hosts in ``spec.tls``."""
    NOTHING = "nothing"


_Clauses = tuple[tuple[AnnotationEffect, frozenset[str]], ...]
"""The first whose values have the value counts; no values are all."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The annotations of one object that pyconfd does not implement, by what they ask for.

    ``unknown`` are those of ``restricting`` that are in no table. ``ignored`` have no effect, ``misspelled`` are
    pyconfd's own prefix with a name that it does not know.
    """

    restricting: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()
    https: tuple[str, ...] = ()
    https_with_tls: tuple[str, ...] = ()
    canary: str = ""
    ignored: tuple[str, ...] = ()
    misspelled: tuple[str, ...] = ()

    def why_restricted(self, what: str) -> str:
        """Return why ``what`` is not served, and what to do."""
        name = self.restricting[0]
        why = "is not known, and may restrict access" if name in self.unknown else "restricts access"
        if name.endswith("-snippet"):
            why = "is a snippet, of which nothing is executed, and may restrict access"
        return f"it {why}, which is not implemented, so {what} is not served: {REMEDY}"

    def note(self, kind: str) -> str:
        """Return in words what has no effect; "" where there is nothing of it."""
        found = [f"{name}{_hint(name, kind)}" for name in self.misspelled[:_MOST_COMPARED]]
        found += self.ignored[: max(0, _MOST_NAMED - len(found))]
        left = len(self.misspelled) + len(self.ignored) - len(found)
        more = f" and {left} more" if left > 0 else ""
        return f"without effect: {', '.join(map(values.shortened, found))}{more}" if found else ""


REMEDY = "remove it, or list it in ingress.ignored_annotations"
NOTHING_FOREIGN = Foreign()


def read_foreign(
    annotations: Mapping[str, str] | None, kind: str, accepted: Iterable[str] = (), read: Collection[str] = ()
) -> Foreign:
    """Return what the annotations of an object of ``kind`` ask for and do not get.

    ``accepted`` are names, or patterns with ``*``, whose restrictions the operator does without; ``read`` are those
    that were read as what they mean.
    """
    found: defaultdict[AnnotationEffect, list[str]] = defaultdict(list)
    unknown, misspelled, canary = set(), read_own(annotations, kind).misspelled, ""
    for name, value in sorted(item for item in (annotations or {}).items() if item[0] not in read):
        prefix, _, bare = name.partition("/")
        if name.startswith(OWN_PREFIX):
            continue
        if bare == "canary" and _plain(value) == "true":
            canary = name
        if prefix not in _table() and not _is_controllers(prefix):
            continue  # nearly all
        effect = _effect(prefix, bare, value)
        if effect is None and not _is_controllers(prefix):
            continue
        if any(fnmatchcase(name, each) for each in accepted):
            effect = AnnotationEffect.NOTHING
        elif effect is None and prefix in _prefixes():
            effect = AnnotationEffect.RESTRICTS
            unknown.add(name)
        found[effect or AnnotationEffect.NOTHING].append(name)
    if not (canary or misspelled or found):
        return NOTHING_FOREIGN
    return Foreign(
        tuple(found[AnnotationEffect.RESTRICTS]),
        frozenset(unknown),
        tuple(found[AnnotationEffect.HTTPS]),
        tuple(found[AnnotationEffect.HTTPS_WITH_TLS]),
        canary,
        tuple(found[AnnotationEffect.NOTHING]),
        misspelled,
    )


def effects_of(annotations: Mapping[str, str] | None) -> Iterator[tuple[str, AnnotationEffect]]:
    """Return what annotations of other controllers ask for, whether or not pyconfd does it."""
    for name, value in sorted((annotations or {}).items()):
        prefix, _, bare = name.partition("/")
        if prefix in _prefixes():
            yield name, _effect(prefix, bare, value) or AnnotationEffect.RESTRICTS


def words_of(annotations: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Return the words of policies that annotations say, each with its text."""
    for name, text in (annotations or {}).items():
        word = name.removeprefix(OWN_PREFIX)
        if word != name and word in WORDS:
            yield word, text


def misspelled_words(annotations: Mapping[str, str] | None, kind: str) -> Iterator[WordFault]:
    """Return what was probably meant to be a word of policies that restricts, in the order of the names.

    Passed over, it would leave open what its author closed.
    """
    for name in _unknown(annotations, kind)[:_MOST_COMPARED]:
        if _restricts(name, kind):
            bare = name.removeprefix(OWN_PREFIX)
            why = f"it is no word of policies, and {_meant(name, kind)} restricts: correct it"
            yield WordFault(bare, (annotations or {})[name], why, restricts=True)


def read_own(annotations: Mapping[str, str] | None, kind: str) -> Foreign:
    """Return the annotations with pyconfd's own prefix that have no effect, of an object written for no other."""
    unknown = _unknown(annotations, kind)
    compared = tuple(name for name in unknown[:_MOST_COMPARED] if not _restricts(name, kind))
    misspelled = (*compared, *unknown[_MOST_COMPARED:])
    return Foreign(misspelled=misspelled) if misspelled else NOTHING_FOREIGN


def _unknown(annotations: Mapping[str, str] | None, kind: str) -> list[str]:
    own = sorted(name for name in annotations or {} if name.startswith(OWN_PREFIX))
    return [name for name in own if name.removeprefix(OWN_PREFIX) not in OWN_ANNOTATIONS[kind]]


def _restricts(name: str, kind: str) -> bool:
    """Return whether an unknown annotation was probably meant to be a word that restricts."""
    word = WORDS.get(_meant(name, kind).removeprefix(OWN_PREFIX))
    return word is not None and word.restricts


@lru_cache(maxsize=1024)
def _meant(name: str, kind: str) -> str:
    """Return the annotation that an unknown one was probably meant to be, "" where nothing is close."""
    known = [OWN_PREFIX + each for each in sorted(OWN_ANNOTATIONS[kind])]
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)), "")


def _hint(name: str, kind: str) -> str:
    meant = _meant(name, kind)
    return f" (did you mean {meant}?)" if meant else ""


def _is_controllers(prefix: str) -> bool:
    """Return whether annotations with a prefix are probably for an ingress controller, and no other tool."""
    if prefix in _prefixes() or prefix in _OTHER_CONTROLLERS:
        return True
    return "ingress" in prefix and prefix != _INGRESS_CLASS


def _effect(prefix: str, bare: str, value: str) -> AnnotationEffect | None:
    """Return what an annotation asks for, None where no table has it; the strictest where several controllers do."""
    table = _table()
    prefixes = [prefix, *_SAME_AS.get(prefix, ())]
    clauses = [each for each in (_clauses(table, name, bare) for name in prefixes) if each]
    if not clauses and prefix == _SHARED_PREFIX:
        clauses = [each for each in (_clauses(table, name, bare) for name in table) if each]
    plain = _plain(value)
    effects = [next(effect for effect, wanted in each if not wanted or plain in wanted) for each in clauses]
    return min(effects, key=list(AnnotationEffect).index, default=None)


def _clauses(table: Mapping[str, Mapping[str, _Clauses]], prefix: str, bare: str) -> _Clauses:
    known = table.get(prefix, {})
    if bare in known:
        return known[bare]
    return next((each for name, each in known.items() if name.endswith("*") and bare.startswith(name[:-1])), ())


def _plain(value: str) -> str:
    return "".join(value.split()).lower()


@lru_cache(maxsize=1)
def _prefixes() -> frozenset[str]:
    """Return the prefixes of controllers all of whose annotations are in the table."""
    return frozenset({*_table(), *_SAME_AS}) - _PARTLY_LISTED


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Mapping[str, _Clauses]]:
    table: dict[str, dict[str, _Clauses]] = {}
    for line in (files(__package__) / _TABLE).read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, effects, _ = line.split("\t")
            prefix, _, bare = name.partition("/")
            table.setdefault(prefix, {})[bare] = tuple(map(_clause, effects.split("; ")))
    return table


def _clause(text: str) -> tuple[AnnotationEffect, frozenset[str]]:
    effect, _, wanted = text.partition(" if ")
    return AnnotationEffect(effect), frozenset(wanted.split("|")) if wanted else frozenset()
