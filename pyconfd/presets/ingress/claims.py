"""What one Ingress asks for: rules of routing, the Services behind them, certificates; and what is refused of it."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.ingress import Ingress, IngressBackend, IngressPath
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import NEVER, HostClaim, Name, Owner
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets import values
from pyconfd.presets.annotations import ACCESS_LOG, Foreign, read_foreign
from pyconfd.presets.host_ownership import ANY_HOST, SHARED_WITH, shared_with
from pyconfd.presets.policies.canary import NO_CANARY, Canary, is_meant_as_canary
from pyconfd.presets.policies.hosts import NO_HOSTS, other_www, with_aliases
from pyconfd.presets.policies.nginx import NOTHING_OF_NGINX, NginxWords, read_nginx
from pyconfd.presets.policies.nginx import PREFIX as NGINX
from pyconfd.presets.policies.nginx import is_canary as is_canary_of_nginx
from pyconfd.presets.policies.nginx_paths import LOOKS_LIKE_EXPRESSION, REWRITE, NginxPaths, fault_of_path
from pyconfd.presets.policies.said import (
    NO_POLICIES,
    OverriddenWord,
    PolicySources,
    PolicyTarget,
    SaidFault,
    SaidWord,
    Sources,
    Words,
    annotated,
    asked_of,
    sources_of,
    together,
)
from pyconfd.presets.policies.words import CLOSED, NOTHING_ASKED, AskedByWords
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.routing.paths import decoded, routed_path
from pyconfd.presets.routing.references import ServiceReference
from pyconfd.presets.routing.rules import Mirror, PathEdit
from pyconfd.presets.routing.table import VirtualHostPath
from pyconfd.presets.routing.types import PathKind, RouteMatch, RouteRule, section_name

_T = TypeVar("_T")

SSL_REDIRECT = "pyconfd.io/ssl-redirect"
"""The annotation that, with the value "false", keeps HTTP without TLS for hosts that have a certificate."""

HOST_FIELD = "spec.rules.host"
"""Where a host is refused that cannot be one."""

WWW_REDIRECT = "pyconfd.io/from-to-www-redirect"
OF_ITSELF = ("canary", "server-alias", "from-to-www-redirect")
"""What words begin with that say what an Ingress is, and nothing of its requests."""

HSTS = "pyconfd.io/hsts"
"""The annotation that says for how many seconds browsers shall come by HTTPS only."""

_MOST_RULES = 1_000
"""Paths of one Ingress: the API server takes 1.5 MB, and one object is no reason to look at tens of thousands."""
_MOST_PROBLEMS = 200
"""Fields of one Ingress that are told by themselves: one object has room for 50,000 that cannot be what they say."""
_LONGEST_PATH = 1_024
_KINDS = {"Exact": PathKind.EXACT, "Prefix": PathKind.PREFIX, "ImplementationSpecific": PathKind.PREFIX}
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", re.ASCII)
"""What a URL may have in its path. Source: RFC 3986, 3.3."""
_ROOT = RouteMatch(PathKind.EXACT, "/")
_ROOT_EXPRESSION = RouteMatch(PathKind.EXPRESSION, "/$")
_SUFFIXES = {
    PathKind.EXACT: " (exact)",
    PathKind.BEGINNING: " (beginning)",
    PathKind.EXPRESSION: " (expression)",
}
_UNSUPPORTED = RefusalReason.UNSUPPORTED_ANNOTATION
_HTTPS_REMEDY = "add one, or list the annotation in ingress.ignored_annotations"
_NO_CANARY = 'words of a canary are for an Ingress that says canary: "true" too'
_FOREIGN_CANARY = (
    "a canary has no host of its own: annotate it with pyconfd.io/canary and its other words, or name its class in"
    " ingress.nginx_classes"
)


class TlsHosts(NamedTuple):
    """One entry of ``spec.tls``: the Secret, and those of its hosts that the Ingress has rules for."""

    secret: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IngressClaim:
    """What one Ingress asks for. ``references`` are by the name of the backend that is made of each.

    ``hosts`` are those of its rules that its namespace may have, also where no path of one can be served.
    ``class_name`` is "" for the default class. ``asked`` is what words ask for, ``of_services`` the same of Services
    that policies are for: then its references have backends of their own. ``edits`` are new paths of requests, by the
    name of the backend; nobody is let in to those in ``closed``.
    ``expressions``: for ingress-nginx, all paths of its hosts are regular expressions then, also those of others.
    ``https_only``: its author relies on plain HTTP not being served, whatever becomes of the certificate.
    ``said`` are the sources of its words, by Service where policies say some for that; ``overridden`` are words of
    policies that do not count for it. ``texts`` are the same words as they are written.
    ``canary_rules`` are the paths of another Ingress that a ``canary`` takes requests of: it has no rules and hosts.
    ``redirects`` are hosts that requests for others are redirected to, ``mirrors`` what requests are copied to, both by
    the name of the backend. ``ignored`` are sources of words that a canary of ingress-nginx has beside: there, those of
    its main Ingress hold.
    """

    ref: ObjectRef
    owner: Owner
    uid: str
    generation: int
    rules: tuple[RouteRule, ...]
    references: Mapping[str, ServiceReference]
    tls: tuple[TlsHosts, ...]
    redirect: bool
    hsts: int | None
    refused: tuple[Refusal, ...]
    https_only: bool = False
    hosts: tuple[HostClaim, ...] = ()
    class_name: str = ""
    asked: AskedByWords = NOTHING_ASKED
    edits: Mapping[str, PathEdit] = field(default_factory=dict)
    expressions: bool = False
    closed: frozenset[str] = frozenset()
    of_services: Mapping[str, AskedByWords] = field(default_factory=dict)
    said: Mapping[str, Sources] = field(default_factory=dict)
    overridden: tuple[OverriddenWord, ...] = ()
    texts: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    canary: Canary = NO_CANARY
    canary_rules: tuple[RouteRule, ...] = ()
    redirects: Mapping[str, str] = field(default_factory=dict)
    mirrors: Mapping[str, Mirror] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()

    def is_own(self, backend: str) -> bool:
        """Return whether a backend is for its requests alone."""
        return (
            self._asked_of(backend) != NOTHING_ASKED
            or backend in self.edits
            or backend in self.closed
            or backend in self.mirrors
        )

    def asked_at(self, backend: str) -> AskedByWords:
        """Return what is asked for in one of its backends."""
        if backend in self.closed:
            return CLOSED
        asked = self._asked_of(backend)
        if backend not in self.edits:
            return asked
        return asked._replace(filters=asked.filters._replace(path=self.edits[backend]))

    def texts_at(self, backend: str) -> frozenset[tuple[str, str]]:
        """Return the words of one of its backends as they are written."""
        return self.texts.get(self._service_of(backend), self.texts.get("", frozenset()))

    def said_at(self, backend: str) -> Sources:
        """Return what says the words of one of its backends."""
        return self.said.get(self._service_of(backend), self.said.get("", ()))

    def _service_of(self, backend: str) -> str:
        """Return the Service that a backend is of, "" for a redirect."""
        found = self.references.get(backend)
        return found.name if found is not None else ""

    @property
    def authorities(self) -> tuple[tuple[str, Key], ...]:
        """The ConfigMaps with CA certificates that words name, each once with what says so."""
        of_pods = self._named("backend-ca", lambda asked: asked.policy.pods.ca)
        return (*of_pods, *self._named("client-certificates", lambda asked: asked.policy.clients.ca))

    @property
    def error_pages(self) -> tuple[tuple[str, Key], ...]:
        """The same of ConfigMaps with error pages."""
        return self._named("error-pages", lambda asked: asked.policy.error_pages)

    def _named(self, word: str, named: Callable[[AskedByWords], Key | None]) -> tuple[tuple[str, Key], ...]:
        found: dict[Key, str] = {}
        for service, asked in {"": self.asked, **self.of_services}.items():
            if (key := named(asked)) is not None:
                found[key] = dict(self.said[service])[word]
        return tuple((source, key) for key, source in found.items())

    @property
    def verifying(self) -> tuple[tuple[str, Key, str], ...]:
        """The hosts that clients show certificates for, each with the ConfigMap of the CAs and what says so."""
        found: dict[tuple[str, Key], str] = {}
        for rule in self.rules:
            if rule.backend in self.redirects:
                continue  # it shows nothing of a pod, and its host may have no certificate
            ca = self.asked_at(rule.backend).policy.clients.ca
            if ca is not None and (rule.virtual_host, ca) not in found:
                found[rule.virtual_host, ca] = dict(self.said_at(rule.backend))["client-certificates"]
        return tuple((host, ca, source) for (host, ca), source in found.items())

    def _asked_of(self, backend: str) -> AskedByWords:
        return self.of_services.get(self._service_of(backend), self.asked)

    @property
    def all_references(self) -> Mapping[str, ServiceReference]:
        """Its references, and those that its requests are copied to."""
        if not self.mirrors:
            return self.references
        copies = {
            name: ServiceReference(
                each.reference.namespace or self.owner.namespace, each.reference.name, each.reference.port
            )
            for name, each in self.mirrors.items()
        }
        return {**self.references, **copies}

    @property
    def unlogged(self) -> bool:
        """Whether none of its requests are to be in the access log."""
        return any(each.unlogged for each in self.rules)


def mirror_name(owner: Owner, mirror: Mirror) -> str:
    """Return the name of the backend that copies of an Ingress's requests go to."""
    to = mirror.reference
    return section_name("ing", owner.namespace, to.name, str(to.port), owner.name, "mirror")


def name_of(path: VirtualHostPath) -> Name:
    """Return what a path at a virtual host is called among the names that conflict.

    All of a host has the name of the host, as a domain of the preset ``domains``.
    """
    place = path.place
    return Name("", f"{path.virtual_host}{place.path}{_SUFFIXES.get(place.kind, '')}")


class _Invalid(Exception):  # noqa: N818 - it carries a reason out of a parser
    def __init__(
        self, field: str, value: str, detail: str, reason: RefusalReason = RefusalReason.INVALID_VALUE
    ) -> None:
        self.refusal = field, values.shortened(value), reason, detail
        super().__init__(detail)


class _Asked(NamedTuple):
    """One path with its backend, as it is written; ``path`` None is the default backend."""

    host: str
    path: IngressPath | None
    backend: IngressBackend


def read_ingress(
    ingress: Ingress,
    cluster: str,
    policy: ClaimOptions,
    accepted: Sequence[str] = (),
    *,
    is_nginx: bool = False,
    policies: PolicySources = NO_POLICIES,
) -> IngressClaim:
    """Return what an Ingress of pyconfd's class asks for; never raise.

    ``accepted`` are the annotations, or patterns, whose restrictions the operator does without.
    """
    meta = ingress.metadata
    of_nginx = read_nginx(meta.annotations) if is_nginx else NOTHING_OF_NGINX
    of_paths = meta.annotations if is_nginx else None
    words = _IngressWords(
        ingress, of_nginx, policies, policy, _backends(ingress, NginxPaths(of_paths)), is_nginx=is_nginx
    )
    is_canary = words.is_canary
    paths = NginxPaths(of_paths, canary=is_canary)
    if words.is_canary_of_nginx:
        accepted = (*accepted, f"{NGINX}*")
    foreign = read_foreign(meta.annotations, "Ingress", accepted, {*of_nginx.read, *paths.read})
    ref = ObjectRef("Ingress", meta.namespace, meta.name, cluster)
    owner = Owner("Ingress", meta.namespace, meta.name, meta.creation_timestamp or NEVER)
    problems: list[_Invalid] = []
    is_named = values.is_object_name(meta.name) and values.is_object_name(meta.namespace)
    if not is_named:
        detail = (
            "not a name that Kubernetes would accept, or a word that means something else in a condition of HAProxy"
        )
        problems.append(_Invalid("metadata.name", f"{meta.namespace}/{meta.name}", detail))
        ref = ObjectRef("Ingress", values.shortened(meta.namespace), values.shortened(meta.name), cluster)
    is_foreign_canary = bool(foreign.canary) and not is_canary
    if is_foreign_canary:
        problems.append(_Invalid(f"annotation {foreign.canary}", "", _FOREIGN_CANARY, _UNSUPPORTED))
    named = SSL_REDIRECT if not is_nginx or SSL_REDIRECT in (meta.annotations or {}) else f"{NGINX}ssl-redirect"
    redirect = _annotation(ingress, named, values.flag, problems)
    problems += _wrong_words(words)
    ingress = with_aliases(ingress, words.hosts.aliases)
    restricted = _Restricted(ingress, foreign, words.faults, redirects=redirect is not False)
    # A canary owns no host.
    known = _virtual_hosts(ingress, policy, problems) if is_named and not is_foreign_canary else {}
    virtual_hosts = known if not is_canary else {}
    if is_canary and (restricted.stops_canary(problems) or words.stops_canary):
        known = {}
    led = _led(
        ingress, known, restricted if not is_canary else None, paths if is_nginx else None,
        words=words, problems=problems,
    )  # fmt: skip
    if is_nginx and words.asked.policy.app_root and not is_canary:
        _add_root(led.backends)
    redirects = dict(_redirects(meta, virtual_hosts, policy, problems)) if words.hosts.www else {}
    led.backends.update({(host, RouteMatch()): name for host, (name, _) in redirects.items()})
    hosts = dict.fromkeys((*virtual_hosts.values(), *redirects))
    items = [] if is_canary or is_foreign_canary else list(_tls(ingress, hosts.keys(), virtual_hosts.values()))
    tls = tuple(item for item in items if isinstance(item, TlsHosts))
    problems += (item for item in items if not isinstance(item, TlsHosts))
    hsts = _annotation(ingress, HSTS, values.seconds, problems)
    shared = _annotation(ingress, SHARED_WITH, shared_with, problems) or frozenset()
    unlogged = _annotation(ingress, ACCESS_LOG, values.switch, problems) is False
    rules = tuple(
        RouteRule(virtual_host, match, name, owner, number, unlogged=unlogged)
        for number, ((virtual_host, match), name) in enumerate(led.backends.items())
    )
    if note := foreign.note("Ingress"):
        problems.append(_Invalid("metadata.annotations", "", note, RefusalReason.IGNORED_ANNOTATION))
    return IngressClaim(
        ref,
        owner,
        meta.uid,
        meta.generation,
        rules if not is_canary else (),
        led.references,
        tls,
        redirect is not False,
        hsts,
        _told(ref, problems),
        bool(foreign.https or foreign.https_with_tls),
        tuple(HostClaim(each, owner, shared) for each in hosts),
        ingress.spec.ingress_class_name or "",
        words.asked,
        led.edits,
        not is_canary and any(match.kind is PathKind.EXPRESSION for _, match in led.backends),
        frozenset(led.closed),
        words.of_services,
        words.sources,
        words.overridden,
        words.texts,
        words.canary,
        rules if is_canary else (),
        dict(redirects.values()),
        {mirror_name(owner, each): each for asked in words.all for each in asked.filters.mirrors},
        words.ignored,
    )


def _redirects(
    meta: ObjectMeta, virtual_hosts: Mapping[str, str], policy: ClaimOptions, problems: list[_Invalid]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Return the hosts whose requests are redirected, each with a name for its backend and where they are led."""
    known = set(virtual_hosts.values())
    for host in sorted(known):
        other = other_www(host)
        if not other or other in known:
            continue
        try:
            name = section_name("ing", meta.namespace, meta.name, host, "redirect", "www")
            yield _virtual_host(other, meta.namespace, policy), (name, host)
        except _Invalid as error:
            _, value, reason, detail = error.refusal
            problems.append(_Invalid(f"annotation {WWW_REDIRECT}", value, f"{detail}; it has no effect", reason))


class _Led(NamedTuple):
    """The backends of paths, by virtual host and match: their references, new paths of requests, and closed ones."""

    backends: dict[tuple[str, RouteMatch], str]
    references: dict[str, ServiceReference]
    edits: dict[str, PathEdit]
    closed: set[str]


def _led(
    ingress: Ingress,
    virtual_hosts: Mapping[str, str],
    restricted: "_Restricted | None",
    nginx: NginxPaths | None,
    *,
    words: "_IngressWords",
    problems: list[_Invalid],
) -> _Led:
    """Return where the paths lead; the first of equal ones counts, and each before the default backend.

    ``restricted`` None: it is a canary, whose backends are for the main Ingress to use.
    """
    namespace = ingress.metadata.namespace
    backends, references, edits, closed = led = _Led({}, {}, {}, set())
    closes = restricted.closes if restricted is not None else _never
    for asked in _asked(ingress):
        if asked.host not in virtual_hosts:
            continue
        try:
            rule = virtual_hosts[asked.host], _match(asked.path, nginx)
            is_closed = closes(rule[0], problems)
            edit = None if is_closed else _edit(rule[1], nginx)
            reference = _reference(asked, namespace)
        except _Invalid as error:
            problems.append(error)
            continue
        # Where it asks for more than servers, its requests have a backend of their own.
        asks_more = words.of(reference.name) != NOTHING_ASKED
        own: tuple[str, ...] = (ingress.metadata.name,) if asks_more or edit is not None else ()
        if edit is not None:  # the backend is of one path, as its pattern is
            own = (*own, hashlib.sha256(repr(edit).encode()).hexdigest()[:16])
        if is_closed or restricted is None:  # other hosts may be served
            own = (ingress.metadata.name, "closed" if is_closed else "canary")
        name = section_name("ing", namespace, reference.name, str(reference.port), *own)
        if rule not in backends and len(backends) >= _MOST_RULES:
            problems.append(_Invalid("spec.rules", "", f"more than {_MOST_RULES} paths: make several Ingresses of it"))
            break
        if backends.setdefault(rule, name) == name:
            references[name] = reference
            if edit is not None:
                edits[name] = edit
            if is_closed:
                closed.add(name)
    return led


def _add_root(backends: dict[tuple[str, RouteMatch], str]) -> None:
    """Add the path / of each host, which ingress-nginx redirects to ``app-root`` whatever paths there are."""
    for virtual_host, match in tuple(backends):
        root = _ROOT_EXPRESSION if match.kind is PathKind.EXPRESSION else _ROOT
        backends.setdefault((virtual_host, root), backends[virtual_host, match])


def _never(_: str, __: list[_Invalid]) -> bool:
    return False


def _told(ref: ObjectRef, problems: Iterable[_Invalid]) -> tuple[Refusal, ...]:
    """Return the first problems by themselves, and how many more there are."""
    refused = tuple(dict.fromkeys(Refusal(ref, *problem.refusal) for problem in problems))
    if len(refused) <= _MOST_PROBLEMS:
        return refused
    detail = f"{len(refused) - _MOST_PROBLEMS:,} more of its fields are refused, and not told by themselves"
    return (*refused[:_MOST_PROBLEMS], Refusal(ref, "spec", "", RefusalReason.INVALID_VALUE, detail))


def _virtual_hosts(ingress: Ingress, policy: ClaimOptions, problems: list[_Invalid]) -> dict[str, str]:
    """Return the virtual host of each host of the rules that can be one, as it is written."""
    spec = ingress.spec
    written = dict.fromkeys(rule.host for rule in spec.rules or ())
    if spec.default_backend is not None and not written:
        written[""] = None
    virtual_hosts: dict[str, str] = {}
    if len(written) > _MOST_RULES:
        problems.append(_Invalid("spec.rules", "", f"more than {_MOST_RULES} hosts: make several Ingresses of it"))
    for host in islice(written, _MOST_RULES):
        try:
            virtual_hosts[host] = _virtual_host(host, ingress.metadata.namespace, policy)
        except _Invalid as error:
            problems.append(error)
    return virtual_hosts


class _IngressWords:
    """What words ask for: of annotations, then of policies for the Ingress, then of those for a Service behind it."""

    def __init__(
        self,
        ingress: Ingress,
        of_nginx: NginxWords,
        policies: PolicySources,
        claims: ClaimOptions,
        backends: int,
        *,
        is_nginx: bool,
    ) -> None:
        meta = ingress.metadata
        if not policies.is_any_in(meta.namespace):
            policies = policies._replace(at=NO_POLICIES.at)
        default_body = claims.nginx_body if is_nginx else None
        by_nginx = tuple(
            SaidWord(name, text, f"annotation {of_nginx.names[name]}", meta.namespace) for name, text in of_nginx.words
        )
        self.is_canary_of_nginx = is_nginx and is_canary_of_nginx(meta.annotations)
        # As ingress-nginx documents. They are there to be named, after policies, which count.
        beside = tuple(each for each in by_nginx if self.is_canary_of_nginx and not each.name.startswith(OF_ITSELF))
        self.ignored = frozenset(each.source for each in beside)

        def asked_by_all(said: Words) -> tuple[AskedByWords, tuple[SaidFault, ...]]:
            asked, faults = asked_of(said, "Ingress", claims, backends=backends, users_of=policies.users_of)
            if asked.policy.max_body is None and default_body:
                # No word of anybody: rules and bounds of words say nothing of it.
                asked = asked._replace(policy=asked.policy._replace(max_body=default_body))
            return asked, faults

        levels: tuple[Words, ...] = (
            tuple(annotated(meta.annotations, "Ingress", meta.namespace)),
            tuple(each for each in by_nginx if each.source not in self.ignored),
            tuple(policies.at(PolicyTarget(ObjectKey(Resource.INGRESSES, Key(meta.namespace, meta.name))))),
        )
        at = f"Ingress {meta.namespace}/{meta.name}"
        said, overridden = together(*levels, at=at)
        found, self.faults = asked_by_all(said)
        self.asked, self.hosts, self.canary = _of_requests(found), found.hosts, found.canary
        texts = {each.name: each.text for each in said}
        self.is_canary = is_meant_as_canary(texts.get("canary"))
        of_canary = [each for each in said if each.name.startswith("canary")]
        self._of_canary = {each.source for each in of_canary}
        if wrong := self.canary.fault if self.is_canary else _NO_CANARY * bool(of_canary and "canary" not in texts):
            self.faults += (SaidFault(of_canary[-1].source, of_canary[-1].text, wrong, restricts=False),)
        self.of_service: list[tuple[str, SaidFault]] = []
        self.overridden = tuple(each._replace(everywhere=True) for each in overridden)
        self.of_services: dict[str, AskedByWords] = {}
        self.sources: dict[str, Sources] = {}
        self.texts: dict[str, frozenset[tuple[str, str]]] = {}
        self._tell("", said, beside)
        for service in dict.fromkeys(each.backend.service for each in islice(_asked(ingress), _MOST_RULES)):
            name = service.name if service is not None else ""
            of_service = policies.at(PolicyTarget(ObjectKey(Resource.SERVICES, Key(meta.namespace, name))))
            if of_service and name not in self.of_services:
                all_, more = together(said, of_service, at=at)
                asked, faults = asked_by_all(all_)
                # Those of the Ingress itself close all of it.
                new = [each for each in faults if each not in self.faults]
                new += [each for each in map(_of_ingress_itself, of_service) if each is not None]
                self.of_services[name] = CLOSED if any(each.restricts for each in new) else _of_requests(asked)
                self.of_service += ((name, each) for each in new)
                self.overridden += more
                self._tell(name, all_, beside)

    def _tell(self, service: str, said: Words, beside: Words) -> None:
        """Keep the sources and texts of the words for a Service."""
        if told := together(said, beside)[0] if beside else said:
            self.sources[service] = sources_of(told)
            self.texts[service] = frozenset((each.name, each.text) for each in told)

    @property
    def all(self) -> Iterator[AskedByWords]:
        """What is asked for of requests to any Service."""
        yield self.asked
        yield from self.of_services.values()

    def stops(self, fault: SaidFault) -> bool:
        """Return whether a canary takes no requests for a fault."""
        return fault.restricts or fault.source in self._of_canary

    @property
    def stops_canary(self) -> bool:
        """Whether it takes no requests if it is a canary."""
        return any(map(self.stops, (*self.faults, *(each for _, each in self.of_service))))

    def of(self, service: str) -> AskedByWords:
        """Return what is asked for of requests that go to a Service."""
        return self.of_services.get(service, self.asked)


def _of_requests(asked: AskedByWords) -> AskedByWords:
    """Return this without what says what an Ingress is: it is for no request, and for no Service behind it."""
    return asked._replace(hosts=NO_HOSTS, canary=NO_CANARY)


def _of_ingress_itself(said: SaidWord) -> SaidFault | None:
    why = "it is a word of an Ingress, and not of a Service behind it: name the Ingress"
    is_mine = said.name.startswith(OF_ITSELF) and not said.wrong
    return SaidFault(said.source, said.text, why, restricts=False) if is_mine else None


def _wrong_words(words: _IngressWords) -> Iterator[_Invalid]:
    for each in words.faults:
        stops = words.is_canary and words.stops(each)
        told = f"{each.why}; this canary takes no requests" if stops else each.told("this Ingress")
        yield _Invalid(each.source, each.text, told)
    for service, each in words.of_service:
        yield _Invalid(each.source, each.text, each.told(f"the Service {service} by it"))


class _Restricted:
    """The hosts of whose paths nobody is let in, since what restricts them is not implemented.

    They are claimed all the same: without them, requests would get to shorter paths, perhaps of the same pods.
    """

    def __init__(self, ingress: Ingress, foreign: Foreign, wrong: Sequence[SaidFault], *, redirects: bool) -> None:
        self._foreign = foreign
        self._all_closed = any(each.restricts for each in wrong)
        listed = [(item.secret_name, item.hosts) for item in ingress.spec.tls or ()]
        # As _tls() reads it: an entry without hosts is for all of the rules.
        self._named = {values.comparable_name(host) for _, hosts in listed for host in hosts or ()}
        self._all = any(not hosts for _, hosts in listed)
        of_secrets = [hosts for secret, hosts in listed if secret] if redirects else []
        self._redirected = {values.comparable_name(host) for hosts in of_secrets for host in hosts or ()}
        self._all_redirected = any(not hosts for hosts in of_secrets)

    def stops_canary(self, problems: list[_Invalid]) -> bool:
        """Return whether it takes no requests if it is a canary, and add why."""
        if self._foreign.restricting:
            detail = self._foreign.why_restricted("this canary")
            problems.append(_Invalid(f"annotation {self._foreign.restricting[0]}", "", detail, _UNSUPPORTED))
            return True
        return False

    def closes(self, virtual_host: str, problems: list[_Invalid]) -> bool:
        """Return whether nobody is let in to paths of this virtual host, and add why; of wrong words that was told."""
        foreign = self._foreign
        if foreign.restricting:
            detail = foreign.why_restricted("this Ingress")
            problems.append(_Invalid(f"annotation {foreign.restricting[0]}", "", detail, _UNSUPPORTED))
            return True
        wanted = foreign.https or (foreign.https_with_tls if self._all or virtual_host in self._named else ())
        if wanted and (virtual_host == ANY_HOST or not (self._all_redirected or virtual_host in self._redirected)):
            detail = f"plain HTTP is redirected for hosts with a secretName in spec.tls only: {_HTTPS_REMEDY}"
            problems.append(_Invalid(f"annotation {wanted[0]}", virtual_host, detail, _UNSUPPORTED))
            return True
        return self._all_closed


def _annotation(ingress: Ingress, name: str, parse: Callable[[str], _T], problems: list[_Invalid]) -> _T | None:
    """Return what an annotation says; None where it is missing, or cannot be what it says."""
    value = (ingress.metadata.annotations or {}).get(name)
    try:
        return parse(value) if value is not None else None
    except ValueError as error:
        problems.append(_Invalid(f"annotation {name}", value or "", f"{error}; it has no effect"))
        return None


def _asked(ingress: Ingress) -> Iterator[_Asked]:
    """Return all paths, then what the default backend is for: all hosts of the rules, or every host without any."""
    spec = ingress.spec
    hosts: dict[str, None] = {}
    for rule in spec.rules or ():
        hosts[rule.host] = None
        for path in rule.http.paths if rule.http is not None else ():
            yield _Asked(rule.host, path, path.backend)
    if spec.default_backend is not None:
        for host in hosts or {"": None}:
            yield _Asked(host, None, spec.default_backend)


def _backends(ingress: Ingress, nginx: NginxPaths) -> int:
    """Return how many backends there are at most: one for each port of a Service, or for each path that is edited."""
    named = set()
    for asked in islice(_asked(ingress), _MOST_RULES):
        if (service := asked.backend.service) is not None:
            path = asked.path.path if asked.path is not None and nginx.target else ""
            named.add((service.name, service.port.name, service.port.number, path))
    return len(named)


def _virtual_host(host: str, namespace: str, policy: ClaimOptions) -> str:
    try:
        name = values.host_name(host) if host else ANY_HOST
    except ValueError as error:
        raise _Invalid(HOST_FIELD, host, str(error)) from None
    if values.address(name) is not None:
        raise _Invalid(HOST_FIELD, host, "an address is no host of an Ingress: leave the host out")
    if wrong := policy.domain(namespace, name) or policy.protocol(namespace, "http"):
        raise _Invalid(HOST_FIELD, host, wrong, RefusalReason.NOT_ALLOWED)
    return name


def _match(asked: IngressPath | None, nginx: NginxPaths | None) -> RouteMatch:
    """Return what a request has to be; ``nginx`` has what ingress-nginx makes of the paths, None for other classes."""
    if asked is None:
        return RouteMatch()
    path, kind = asked.path, _KINDS.get(asked.path_type)
    if kind is None:
        raise _Invalid("spec.rules.http.paths.pathType", asked.path_type, f"expected one of {', '.join(_KINDS)}")
    if asked.path_type == "ImplementationSpecific":
        path = path or "/"
        if nginx is not None and path[-1:] != "/":
            kind = PathKind.BEGINNING
        if (nginx is None or not nginx.is_expression(path)) and LOOKS_LIKE_EXPRESSION.search(path):
            detail = "it looks like a regular expression, and is taken as a prefix only: use an HTTPRoute for it"
            raise _Invalid("spec.rules.http.paths.path", path, detail)
    if nginx is not None and nginx.is_expression(path):
        if wrong := fault_of_path(path):
            raise _Invalid("spec.rules.http.paths.path", path, wrong)
        return RouteMatch(PathKind.EXPRESSION, path)
    if not _PATH.fullmatch(path) or len(path) > _LONGEST_PATH or routed_path(path) != decoded(path):
        detail = f"expected an absolute path as in a URL, without empty elements, of at most {_LONGEST_PATH} characters"
        raise _Invalid("spec.rules.http.paths.path", path, detail)
    path = decoded(path)
    if kind is PathKind.PREFIX and path != "/":
        path = path.removesuffix("/")
    return RouteMatch(kind, path)


def _edit(match: RouteMatch, nginx: NginxPaths | None) -> PathEdit | None:
    try:
        return nginx.edit(match.path) if nginx is not None and match.kind is PathKind.EXPRESSION else None
    except ValueError as error:
        raise _Invalid(f"annotation {REWRITE}", "", str(error), _UNSUPPORTED) from None


def as_expression(rule: RouteRule, *, has_app_root: bool = False) -> RouteRule:
    """Return a rule of a host whose paths are regular expressions, as ingress-nginx reads them."""
    match = rule.match
    if match.kind is PathKind.EXPRESSION:
        return rule
    if has_app_root and match == _ROOT:
        return rule._replace(match=_ROOT_EXPRESSION)
    path = match.path if not fault_of_path(match.path) else re.escape(match.path)
    return rule._replace(match=match._replace(kind=PathKind.EXPRESSION, path=path))


def _reference(asked: _Asked, namespace: str) -> ServiceReference:
    backend = asked.backend
    field = "spec.defaultBackend" if asked.path is None else "spec.rules.http.paths.backend"
    if backend.resource is not None:
        kind = f"{backend.resource.kind} {backend.resource.name}"
        raise _Invalid(f"{field}.resource", kind, "only Services can be backends: name one in service")
    service = backend.service
    if service is None or not values.is_object_name(service.name):
        raise _Invalid(f"{field}.service.name", service.name if service else "", "expected the name of a Service")
    port = service.port.name or service.port.number
    if not (values.is_object_name(port) if isinstance(port, str) else 0 < port < 65536):
        raise _Invalid(f"{field}.service.port", str(port), "expected the name or number of a port of the Service")
    return ServiceReference(namespace, service.name, port)


def _tls(ingress: Ingress, virtual_hosts: Collection[str], of_rules: Iterable[str]) -> Iterator[TlsHosts | _Invalid]:
    for item in ingress.spec.tls or ():
        if not item.secret_name:
            continue  # the default certificate
        if not values.is_object_name(item.secret_name):
            yield _Invalid("spec.tls.secretName", item.secret_name, "expected the name of a Secret")
            continue
        hosts: Sequence[str] = item.hosts or sorted({*of_rules} - {ANY_HOST})
        if not hosts:
            detail = "a certificate is presented for hosts of rules only, and there are none with a host"
            yield _Invalid("spec.tls.secretName", item.secret_name, detail, RefusalReason.INCOMPLETE)
        served = []
        for host in hosts:
            name = values.comparable_name(host)
            if name in virtual_hosts:
                served.append(name)
            else:
                detail = "no rule of this Ingress is for this host: it gets no certificate"
                yield _Invalid("spec.tls.hosts", host, detail, RefusalReason.INCOMPLETE)
        if served:
            yield TlsHosts(item.secret_name, tuple(dict.fromkeys(served)))
