"""From what Ingresses ask for to virtual hosts, backends, certificates, conditions and statuses, as collections.

Read in this order: :mod:`pyconfd.presets.ingress.claims` parses one Ingress;
:class:`pyconfd.presets.routing.table.PlainRoutingTable` gives each path to the oldest; :class:`ServedIngresses` joins
what is behind it. Which namespace has a host is decided before, for all presets
(:mod:`pyconfd.presets.host_ownership`).
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Collection, Derived, Grouped, Joined, Read, Spread, Tally
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.ingress import Ingress, IngressClass
from pyconfd.model.kubernetes import ObjectRef, Service
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.reservation import HostClaim, Name, Owner
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets import values
from pyconfd.presets.annotations import ACCESS_LOG, read_foreign
from pyconfd.presets.certificates import (
    ServedCertificate,
    certificate_for,
    is_usable,
    notes_on,
    pem_path,
    presented,
    why_unread,
)
from pyconfd.presets.cluster import NO_SERVICE
from pyconfd.presets.domains import DomainClaims
from pyconfd.presets.gateway.authorities import ca_bundle
from pyconfd.presets.gateway.conditions import choices_of
from pyconfd.presets.gateway.listeners import ResolvedCertificate
from pyconfd.presets.gateway.work import MOST_WORK, work_of_expression
from pyconfd.presets.host_ownership import HostRights, Hosts
from pyconfd.presets.ingress.canaries import (
    MOST_CONDITIONAL,
    AskedCanaries,
    CanaryPair,
    PairParts,
    PathLead,
    lead_with,
    sections_of_pair,
    unlike,
    without_effect,
)
from pyconfd.presets.ingress.claims import (
    WWW_REDIRECT,
    IngressClaim,
    TlsHosts,
    as_expression,
    mirror_name,
    name_of,
    read_ingress,
)
from pyconfd.presets.ingress.classes import OwnClasses, is_misspelled, mistaken_class, own_classes
from pyconfd.presets.objects import Objects
from pyconfd.presets.policies.mirroring import FIELD as MIRROR_FIELD
from pyconfd.presets.policies.pages import fault_of_pages
from pyconfd.presets.policies.types import RoutePolicy
from pyconfd.presets.policies.words import CLOSED, AskedByWords
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PolicyUse
from pyconfd.presets.routing.references import (
    H2C,
    ServiceReference,
    Unresolved,
    UnresolvedReference,
    app_protocol,
    resolve,
)
from pyconfd.presets.routing.rules import Filters, MirrorSection, Redirect, RuleBackend
from pyconfd.presets.routing.table import (
    ALL_OF_HOST,
    ConflictedRule,
    DecidedPath,
    PlainRoutingTable,
    VirtualHostPath,
    conflict_key,
    entry_of,
    key_of,
    path_of,
)
from pyconfd.presets.routing.types import (
    Decider,
    PathEntry,
    PathKind,
    RouteBackend,
    RouteMatch,
    RouteRule,
    VirtualHost,
)
from pyconfd.presets.rule_backends import RuleBackends, RuleSection
from pyconfd.presets.shared_virtual_hosts import shared_virtual_host
from pyconfd.presets.views import PortAt

_SERVER_OPTIONS = {H2C: "proto h2", "https": "ssl verify none", "HTTPS": "ssl verify none"}
"""More words for servers by ``appProtocol``; TLS to pods is not verified, since nothing names a CA."""

_MOST_EXPRESSIONS = 2_000
"""Of a namespace: a request for a host with expressions is compared with those of all hosts.

Measured with HAProxy 2.6 (PCRE2 10.42 with JIT): one of another host takes 45 ns, so that 2,000 take 0.1 ms.
"""
_WWW_CODE = 308
_PATH_FIELD = "spec.rules.http.paths.path"
_BACKEND_FIELD = "spec.rules.http.paths.backend"
_TLS_HOSTS, _TLS_SECRET = "spec.tls.hosts", "spec.tls.secretName"


class HostCertificate(NamedTuple):
    """The Secret whose certificate is presented for a host, and the Ingress that names it."""

    secret: Key
    claimant: Key
    redirect: bool
    https_only: bool
    hsts: int | None


MAX_NAMES_BYTES = 3_000
"""Of a line of a list of certificates: HAProxy reads 2,047 words, and of more than 4,000 bytes a change is a reload."""


class CertificateLine(NamedTuple):
    """For templates: the line of a Secret in a list of certificates, with ``path`` "" while there is no certificate.

    ``redirects`` are the virtual hosts that are left for HTTPS, ``hsts`` has virtual hosts and seconds. ``verified``
    are those of ``names`` that clients show certificates for, each with the file of CAs: they have lines of their own.
    """

    path: str
    names: str
    redirects: tuple[str, ...]
    hsts: tuple[tuple[str, int], ...]
    verified: tuple[tuple[str, str], ...] = ()

    @property
    def lists(self) -> list[str]:
        """The names that clients show no certificate for, for as many lines as they take."""
        own = dict(self.verified)
        names = " ".join(host for host in self.names.split(" ") if host not in own)
        return textwrap.wrap(names, MAX_NAMES_BYTES, break_long_words=False, break_on_hyphens=False)


class HostAuthorities(NamedTuple):
    """The ConfigMap with the CAs of the certificates that clients show for a host, and the Ingress that names it."""

    ca: Key
    claimant: Key


class IngressTarget(NamedTuple):
    """Where a reference of the Ingresses ``users`` leads, and why it leads nowhere.

    ``options`` are more words for each server.
    """

    reference: ServiceReference
    users: tuple[Key, ...]
    port: PortAt | None = None
    options: str = ""
    fault: UnresolvedReference | None = None


class ParsingRules(NamedTuple):
    """All beside an Ingress that decides what it asks for."""

    own: OwnClasses
    policy: ClaimOptions
    accepted: tuple[str, ...]


class IngressClaims:
    """What the Ingresses of pyconfd's classes ask for; ``misspelled`` has what is wrong with the class of others."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._rules = Derived(objects.ingress_classes, self._rules_of, "how Ingresses are parsed")
        self.claims = Derived(objects.ingresses, self._claim, "claims of Ingresses")
        self.misspelled = Derived(objects.ingresses, self._misspelled, "misspelled classes")
        self.hosts = Spread(self.claims, _hosts_of, "hosts of Ingresses")

    def _rules_of(self, read: Read, _: object, classes: Mapping[Key, IngressClass]) -> "ParsingRules":
        objects = self._objects
        accepted = read.value(objects.ignored_annotations)
        nginx: tuple[str, ...] = read.value(objects.nginx_classes)
        own = own_classes(classes, nginx)
        return ParsingRules(own, read.value(objects.policy), accepted)

    def _claim(self, read: Read, _: Key, ingress: Ingress) -> IngressClaim | None:
        own, policy, accepted = read.value(self._rules)
        if not own.serve(ingress):
            return None
        policies = self._objects.policy_sources(read)
        return read_ingress(
            ingress, self._objects.cluster, policy, accepted, is_nginx=own.are_nginx(ingress), policies=policies
        )

    def _misspelled(self, read: Read, key: Key, ingress: Ingress) -> tuple[Refusal, ...] | None:
        """Return why an Ingress is not served that was probably meant for pyconfd."""
        own = read.value(self._rules).own
        if own.serve(ingress):
            return None
        classes = read.value(self._objects.ingress_classes)
        if not is_misspelled(ingress, classes, own):
            return None
        ref = ObjectRef("Ingress", values.shortened(key.namespace), values.shortened(key.name), self._objects.cluster)
        nginx: tuple[str, ...] = read.value(self._objects.nginx_classes)
        detail = mistaken_class(ingress, classes, nginx)
        return (Refusal(ref, "spec.ingressClassName", "", RefusalReason.UNKNOWN_CLASS, detail),)


def _verifying(_: object, line: CertificateLine) -> tuple[tuple[bool, int], ...]:
    return ((True, 1),) if line.verified else ()


def _hosts_of(_: Key, claim: IngressClaim) -> Iterator[tuple[tuple[str, int], HostClaim]]:
    return (((each.owner.kind, number), each) for number, each in enumerate(claim.hosts))


class ServedIngresses:
    """All that is made of the claims. ``virtual_hosts`` are by host, ``backends`` by name, ``lines`` by Secret."""

    def __init__(self, objects: Objects, claimed: IngressClaims, hosts: Hosts, domains: DomainClaims) -> None:
        self._objects, self._hosts, self._domains, claims = objects, hosts, domains, claimed.claims
        self._claims = claims
        self._with_expressions = Tally(claims, _hosts_with_expressions, "hosts whose paths are expressions")
        self._with_rules = Tally(claims, _hosts_with_rules, "hosts of rules of Ingresses")
        asked = Derived(claims, self._rules_of, "what Ingresses ask for at their hosts")
        rules = Spread(asked, lambda _, found: enumerate(found), "rules of Ingresses")
        expressions = Grouped(rules, _host_of_expression, "expressions by host", rank=lambda _, rule: rule.rank)
        self._beyond = Derived(expressions, _beyond_budget, "expressions beyond the budget")
        of_namespace = Grouped(
            rules, _namespace_of_expression, "expressions by namespace", rank=lambda _, rule: rule.rank
        )
        self._too_many = Derived(of_namespace, _beyond_number, "expressions beyond their number")
        self._routes = routes = PlainRoutingTable("Ingresses", rules, self._blocked, self._taken)
        self.paths = routes.decided
        self._expressions = Tally(routes.decided, _served_expressions, "served expressions of virtual hosts")
        references = Spread(claims, lambda _, claim: claim.all_references.items(), "references")
        named = Grouped(references, lambda at, _: (at[1],), "references by backend")
        naming = Grouped(claims, _authority_of, "Ingresses by CA certificates")
        self._authorities = Derived(naming, self._authority, "CA certificates of Ingresses")
        self.authority_files = Derived(self._authorities, self._authority_file, "files of CA certificates")
        self._targets = Derived(named, self._target, "targets of references")
        faulty = Derived(self._targets, lambda _, __, found: found if found.fault else None, "faults of references")
        self._faults_of = Grouped(faulty, lambda _, found: found.users, "faults by Ingress")

        self._canaries = AskedCanaries(claims, self._with_expressions)
        self._leads = leads = Derived(routes.decided, self._lead, "where paths of Ingresses lead")
        self.with_canary = Derived(leads, lambda _, __, lead: lead if lead.canary else None, "paths with a canary")
        more = self._serve(leads)
        options = Derived(self._targets, self._owner_of_options, "owners of options of Ingresses' servers")
        more_by_name = Grouped(more, lambda at, _: (at[1],), "sections without one Service by name")
        of_more = Derived(more_by_name, _owner_of_section, "owners of sections without one Service")
        self.owned = Joined[Any, Any](self.paths, options, of_more, name="paths and options of servers")
        self._answering = Derived(
            self.served_backends, lambda _, __, backend: _can_answer(backend), "answering backends"
        )
        self.ready = Tally(self.served_backends, _ready, "ready endpoints of Ingresses")

        verifying = Spread(claims, _hosts_with_authorities, "hosts that clients show certificates for")
        by_host = Grouped(
            verifying, lambda at, _: (at[1],), "CAs of clients by host", rank=lambda _, each: each[0].rank
        )
        self._host_authorities = Derived(by_host, self._authorities_of_host, "CAs of the clients of hosts")
        asking = Spread(claims, _certificates_of, "certificates of Ingresses")
        self.asking = Grouped(asking, lambda at, _: (at[1],), "certificates by host", rank=_oldest_first)
        self._certificates = Derived(self.asking, self._certificate_of_host, "certificates of hosts")
        self._secrets = Grouped(self._certificates, lambda _, found: (found.secret,), "hosts by Secret")
        self.served = Derived(self._secrets, self._served_certificate, "served certificates")
        self.lines = Derived(self._secrets, self._line, "lines of certificates")
        self.verifying = Tally(self.lines, _verifying, "lines that ask for certificates of clients")
        self.presented = Derived(self._certificates, self._presented, "presented certificates")

        refused = Derived(claims, self._refused, "conditions of Ingresses")
        self.refused = Joined(refused, claimed.misspelled, name="all conditions of Ingresses")
        self.statuses = Derived(claims, self._status, "statuses of Ingresses")
        overridden = Spread(claims, lambda _, claim: enumerate(claim.overridden), "overridden words of Ingresses")
        self.policies = PolicyUse(overridden, self._is_served)

    def _is_served(self, read: Read, id_: ObjectKey) -> bool:
        return id_.resource is Resource.INGRESSES and read(self._claims, id_.key) is not None

    def _serve(self, leads: Collection[VirtualHostPath, PathLead]) -> Collection[Any, RuleSection]:
        """Make virtual hosts and backends of where paths lead; return the sections that are not of one Service."""
        groups = Grouped(
            leads, lambda path, lead: (path.virtual_host,) if lead.group else (), "groups by host of Ingresses",
            rank=lambda path, _: path.place,
        )  # fmt: skip
        self._groups = Derived(groups, lambda _, __, some: tuple(lead.group for _, lead in some), "groups of hosts")
        self.virtual_hosts = Derived(self._routes.virtual_hosts, self._virtual_host, "virtual hosts of Ingresses")
        self.choices = Derived(
            self.virtual_hosts, lambda _, __, host: choices_of(host.groups) or None, "choices of hosts of Ingresses"
        )

        leading = Grouped(
            leads, lambda _, lead: lead.sections, "paths by backend of Ingresses", rank=lambda path, _: entry_of(*path)
        )
        self._leading = Derived(leading, _leading, "entries of backends of Ingresses")
        self.backends = Derived(self._targets, self._backend, "backends of Ingresses")
        self._sections = sections = Derived(self._targets, self._section, "sections of Ingresses with policies")
        named_sections = Spread(sections, lambda name, each: ((name, each),), "named sections of Ingresses")
        pairs = Grouped(leads, lambda _, lead: (lead.pair,) if lead.pair else (), "paths by pair of Ingresses")
        of_pairs = Derived(pairs, self._sections_of_pair, "sections of Ingresses with a canary")
        named_pairs = Spread(of_pairs, lambda _, found: found, "named sections of Ingresses with a canary")
        redirects = Spread(self._claims, _redirects_of, "redirects of Ingresses")
        used = Derived(redirects, self._redirect, "sections of Ingresses' redirects")
        more = Joined[Any, RuleSection](named_pairs, used, name="sections of Ingresses without one Service")
        of_all = Joined[Any, RuleSection](named_sections, more, name="sections of Ingresses")
        entering = Grouped(
            leads, lambda _, lead: lead.sections if not lead.group else (), "entries by backend of Ingresses",
            rank=lambda path, _: entry_of(*path),
        )  # fmt: skip
        self.rules = RuleBackends(self._objects, PresetName.INGRESS, of_all, entering)
        by_name = Grouped(self.rules.backends, lambda at, _: (at[1],), "backends of Ingresses' rules by name")
        of_rules = Derived(by_name, lambda _, __, found: found[0][1], "backends of Ingresses' rules")
        self.served_backends = Joined[str, Any](self.backends, of_rules, name="all backends of Ingresses")
        return more

    # Paths

    def _lead(self, read: Read, path: VirtualHostPath, decided: DecidedPath) -> PathLead | None:
        if not decided.effective:
            return None
        main = decided.effective[0]
        for _, rule in read(self._canaries.of_paths, path) or ():
            found = read(self._canaries.paths, key_of(rule))
            if found is not None and not self._why_no_canary(read, main, rule):
                return lead_with(path, main, rule, found.asked)
        return PathLead(main, (main.backend,))

    def _why_no_canary(self, read: Read, main: RouteRule, canary: RouteRule) -> str:
        """Return why requests of a path of ``main`` are not divided with a canary, "" where they are."""
        return next(iter(self._reasons(read, main, canary)), "")

    def _reasons(self, read: Read, main: RouteRule, canary: RouteRule) -> Iterator[str]:
        if main.owner.namespace != canary.owner.namespace:
            yield (
                f"{main.owner.kind} {main.owner.namespace}/{main.owner.name} has this host and path, and a canary takes"
                " requests of its own namespace only"
            )
            return
        mine, own = read(self._claims, key_of(main)), read(self._claims, key_of(canary))
        if mine is None or own is None or main.backend in mine.closed:
            yield "nobody is let in to this path of the main Ingress"
        elif word := unlike(mine, own, (main.backend, canary.backend)):
            yield (
                f"it says {word}, and the main Ingress {main.owner.name} does not say the same: its words hold;"
                " say the same there, or remove it here"
            )
        to, beside = read(self._targets, main.backend), read(self._targets, canary.backend)
        if to is None or to.fault is not None or beside is None or beside.fault is not None:
            yield "requests are not divided while a Service of one of both cannot be had"
        elif mine is not None:
            policy = mine.asked_at(main.backend).policy
            if len({self._spoken_to(read, policy, each) for each in (to, beside)}) > 1:
                yield "pods of both are spoken to in different ways (appProtocol, or the name in their certificates)"
        if canary in (read(self._canaries.beyond, canary.owner.namespace) or ()):
            yield f"more than {MOST_CONDITIONAL} paths of this namespace have a canary by header or cookie: use weights"

    def _rules_of(self, read: Read, key: Key, claim: IngressClaim) -> tuple[RouteRule, ...]:
        """Return the rules: where an Ingress of the namespace makes paths of a host expressions, all of them are."""
        rules = claim.rules
        if claim.redirects:  # what another Ingress has rules for is not redirected
            rules = tuple(
                rule
                for rule in rules
                if rule.backend not in claim.redirects or not read(self._with_rules, (key.namespace, rule.virtual_host))
            )
        hosts = {rule.virtual_host for rule in rules}
        flagged = {host for host in hosts if read(self._with_expressions, (key.namespace, host))}
        if not flagged:
            return rules
        found: dict[tuple[str, RouteMatch], RouteRule] = {}
        for rule in rules:
            has_root = bool(claim.asked.policy.app_root)
            each = as_expression(rule, has_app_root=has_root) if rule.virtual_host in flagged else rule
            found.setdefault((each.virtual_host, each.match), each)
        return tuple(found.values())

    def _blocked(self, read: Read, path: VirtualHostPath, asking: Sequence[RouteRule]) -> Callable[[RouteRule], str]:
        """Return what says why a rule may not have its path: the host is another namespace's."""
        hosts, host = self._hosts.rights(read), path.virtual_host
        beyond = (read(self._beyond, host) if path.place.kind is PathKind.EXPRESSION else None) or frozenset()
        of_owner: dict[object, RouteRule] = {}
        for rule in asking:
            if hosts.is_owner(host, rule.owner.namespace):
                of_owner.setdefault(conflict_key(rule.match), rule)

        def why_not(rule: RouteRule) -> str:
            namespace = rule.owner.namespace
            if not hosts.may_add_paths(host, namespace):
                return hosts.why_not(host)
            if rule.match.kind is PathKind.EXPRESSION and not hosts.is_owner(host, namespace):
                return "paths that are regular expressions are those of the namespace that has the host: write a prefix"
            if path.place.kind is PathKind.EXPRESSION and rule in (read(self._too_many, namespace) or ()):
                return (
                    f"more than {_MOST_EXPRESSIONS:,} paths of this namespace are regular expressions: write prefixes"
                )
            if rule in beyond:
                return "the regular expressions of this host take too long together: write prefixes, or fewer of them"
            # With a consent, the owner of the host comes before older objects of others.
            first = of_owner.get(conflict_key(rule.match))
            if first is None or hosts.is_owner(host, namespace):
                return ""
            return f"{first.owner.kind} {first.owner.namespace}/{first.owner.name} of the host's owner has this path"

        return why_not

    def _taken(self, read: Read, path: VirtualHostPath, rule: RouteRule) -> str:
        """Return that a domain is all of the host; the older object has it, of the namespace that has the host."""
        if path.place != ALL_OF_HOST:
            return ""
        hosts = self._hosts.rights(read)
        domain = self._domains.first(read, path.virtual_host, hosts)
        if domain is None:
            return ""
        is_owner, mine, others = hosts.is_owner(path.virtual_host, rule.owner.namespace), rule.owner, domain.owner
        if is_owner and (mine.since, mine.namespace, mine.name, self._domains.come_first) < (
            others.since, others.namespace, others.name, True
        ):  # fmt: skip
            return ""
        why = "the older object keeps it" if is_owner else "its namespace has the host"
        return f"{others.kind} {others.namespace}/{others.name} of preset domains has this name already ({why})"

    def _virtual_host(self, read: Read, host: str, _: object) -> VirtualHost:
        found = shared_virtual_host(host, self._hosts.rights(read))
        if (groups := read(self._groups, host)) is not None:
            found = msgspec.structs.replace(found, groups=groups)
        return msgspec.structs.replace(found, expressions=True) if read(self._expressions, host) else found

    # Backends: one for each port that is named, however many paths lead to it

    def _target(self, read: Read, _: str, named: Sequence[tuple[tuple[Key, str], ServiceReference]]) -> IngressTarget:
        objects, reference = self._objects, named[0][1]
        users = tuple(key for (key, _), _ in named)
        key = Key(reference.namespace, reference.name)
        seen = read(objects.declared, key) or NO_SERVICE
        service, view = seen.object, seen.view
        port = resolve(reference, service, view)
        if isinstance(port, UnresolvedReference) or service is None or view is None:
            return IngressTarget(reference, users, fault=port if isinstance(port, UnresolvedReference) else None)
        if restricted := _restricted(service, read.value(objects.ignored_annotations)):
            return IngressTarget(reference, users, fault=restricted)
        at, options = PortAt(key, view.ports.index(port)), _SERVER_OPTIONS.get(app_protocol(service, port), "")
        if not read.value(objects.targets).node_ports or port.node_port:
            return IngressTarget(reference, users, at, options)
        detail = "traffic goes to node ports (presets.backend_target) but this port has none: use type NodePort"
        return IngressTarget(
            reference, users, at, options, UnresolvedReference(Unresolved.NOT_FOUND, detail, port=True)
        )

    def _backend(self, read: Read, name: str, target: IngressTarget) -> RouteBackend | None:
        """Return the backend, None where no path leads to it; it has no servers where the reference leads nowhere.

        Requests get 503 until the Service is there.
        """
        leading = read(self._leading, name)
        if leading is None or self._asking(read, name, target) is not None:
            return None
        reference, port = target.reference, target.port
        owner = f"Service {reference.namespace}/{reference.name}, port {reference.port}, of Ingresses"
        servers = self._objects.servers(read, port) if port is not None else ()
        return RouteBackend(
            name,
            owner,
            reference.namespace,
            reference.name,
            leading.entries,
            servers,
            options=target.options,
            deciders=leading.deciders,
            unlogged=leading.unlogged,
        )

    def _asking(self, read: Read, name: str, target: IngressTarget) -> IngressClaim | None:
        """Return the Ingress whose words a backend is for: it has the backend for itself."""
        claim = read(self._claims, target.users[0])
        return claim if claim is not None and claim.is_own(name) else None

    def _section(self, read: Read, name: str, target: IngressTarget) -> RuleSection | None:
        """Return the backend of an Ingress that asks for more than servers, None where no path leads to it."""
        claim, leading = self._asking(read, name, target), read(self._leading, name)
        if claim is not None and name in claim.mirrors and target.fault is None:
            return RuleSection(claim.owner, mirror_backend(name, claim.owner, target))
        if claim is None or leading is None:
            return None
        reference, port, asked = target.reference, target.port, claim.asked_at(name)
        policy, server_options = self._spoken_to(read, asked.policy, target)
        backend = RuleBackend(
            name,
            f"Ingress {claim.owner.namespace}/{claim.owner.name}, Service {reference.name}, port {reference.port}",
            reference.namespace,
            reference.name,
            (),
            (),
            options=server_options,
            deciders=leading.deciders,
            unlogged=(name,) if claim.unlogged else (),
            route=name,
            filters=asked.filters._replace(mirrors=()),
            mirrors=self._mirrors(read, claim.owner, asked),
            handling=asked.handling,
            policy=policy,
            ports=((1, port),) if port is not None else (),
            preset=PresetName.INGRESS,
            said=claim.said_at(name),
        )
        return RuleSection(claim.owner, backend)

    def _spoken_to(self, read: Read, policy: RoutePolicy, target: IngressTarget) -> tuple[RoutePolicy, str]:
        """Return the policy, one that closes without its CA certificates, and the words for servers of a target."""
        ca_file = ""
        if policy.pods.ca is not None:
            file = read(self.authority_files, policy.pods.ca)
            policy, ca_file = (policy, file.path) if file is not None else (CLOSED.policy, "")
        if policy.clients.ca is not None:
            file = read(self.authority_files, policy.clients.ca)
            with_file = policy._replace(clients=policy.clients._replace(ca_file=file.path if file is not None else ""))
            policy = with_file if file is not None else CLOSED.policy
        service = Key(target.reference.namespace, target.reference.name)
        return policy, policy.pods.options(target.options, ca_file, service)

    def _authority(self, read: Read, key: Key, _: object) -> ResolvedCertificate:
        """Return the CA certificates in a ConfigMap that words name."""
        if unread := why_unread(read.value(self._objects.tls), key.namespace, "ConfigMaps"):
            return ResolvedCertificate(fault=unread)
        return ca_bundle(read(self._objects.config_maps, key), key)

    def _authority_file(self, read: Read, key: Key, found: ResolvedCertificate) -> OutputFile | None:
        path = pem_path(read.value(self._objects.tls).directory, "ca_of", *key)
        return OutputFile(FileKind.CERTIFICATE, path, found.pem) if found.pem else None

    def _redirect(self, read: Read, at: tuple[Key, str], host: str) -> RuleSection | None:
        """Return what redirects requests to another host, None where no path leads to it."""
        key, name = at
        claim, leading = read(self._claims, key), read(self._leading, name)
        if claim is None or leading is None:
            return None
        backend = RuleBackend(
            name,
            f"Ingress {key.namespace}/{key.name}, redirects to {host}",
            "",
            "",
            (),
            (),
            deciders=leading.deciders,
            unlogged=(name,) if claim.unlogged else (),
            route=name,
            filters=Filters(redirect=Redirect(_WWW_CODE, "", host, None)),
            preset=PresetName.INGRESS,
        )
        return RuleSection(claim.owner, backend)

    def _mirrors(self, read: Read, owner: Owner, asked: AskedByWords) -> tuple[MirrorSection, ...]:
        """Return where requests of an Ingress are copied to."""
        named = ((mirror_name(owner, each), each) for each in asked.filters.mirrors if each.share)
        found = ((name, each, read(self._targets, name)) for name, each in named)
        return tuple(
            MirrorSection(name, each.share, each.of) for name, each, to in found if to is not None and to.fault is None
        )

    def _sections_of_pair(
        self, read: Read, pair: CanaryPair, leads: Sequence[tuple[VirtualHostPath, PathLead]]
    ) -> tuple[tuple[str, RuleSection], ...] | None:
        """Return what serves the paths whose requests are divided with one canary."""
        main, canary = read(self._claims, pair.main_owner), read(self._claims, pair.canary_owner)
        to, beside = read(self._targets, pair.main), read(self._targets, pair.canary)
        if main is None or canary is None or to is None or beside is None:
            return None
        asked = main.asked_at(pair.main)
        policy, options = self._spoken_to(read, asked.policy, to)
        mirrors = self._mirrors(read, main.owner, asked)
        asked, ports = asked._replace(policy=policy), (to.port, beside.port)
        parts = PairParts(main, canary, asked, (to.reference, beside.reference), ports, options, mirrors)
        hosts = dict.fromkeys(path.virtual_host for path, _ in leads)
        return sections_of_pair(pair, parts, tuple(sorted(hosts)))

    def _owner_of_options(self, read: Read, name: str, target: IngressTarget) -> Owner | None:
        """Return the object whose words, or options of servers, a backend is for: other ones may be a reload."""
        if (section := read(self._sections, name)) is not None:
            policy = section.backend.policy
            pages = read(self.rules.error_pages, policy.error_pages) if policy.error_pages is not None else None
            file = read(self.authority_files, policy.pods.ca) if policy.pods.ca is not None else None
            content = (pages, file.content if file is not None else "") if pages or file else ()
            return section.owner.asking_for((msgspec.structs.replace(section.backend, ports=()), *content))
        if not target.options or read(self._leading, name) is None:
            return None
        return Owner("Service", target.reference.namespace, target.reference.name, "").asking_for(target.options)

    # Certificates: a host has that of the oldest Ingress of the namespace that has the host

    def _certificate_of_host(
        self, read: Read, host: str, asking: Sequence[tuple[tuple[Key, str], tuple[IngressClaim, str]]]
    ) -> HostCertificate | None:
        hosts = self._hosts.rights(read)
        serving = [each for (key, _), each in asking if hosts.is_owner(host, key.namespace)]
        if not serving:
            return None
        claim, secret = serving[0]
        namespace, https_only = claim.owner.namespace, any(each.https_only for each, _ in serving)
        claimant = Key(namespace, claim.owner.name)
        return HostCertificate(Key(namespace, secret), claimant, claim.redirect, https_only, claim.hsts)

    def _served_certificate(
        self, read: Read, secret: Key, hosts: Sequence[tuple[str, HostCertificate]]
    ) -> ServedCertificate:
        tls = read.value(self._objects.tls)
        return certificate_for(self._objects.secrets_for(read), tls, *secret, tuple(host for host, _ in hosts))

    def _line(self, read: Read, secret: Key, hosts: Sequence[tuple[str, HostCertificate]]) -> CertificateLine | None:
        served = read(self.served, secret)
        if served is None:
            return None
        found = ((host, read(self._host_authorities, host)) for host, _ in hosts)
        # Without the file no certificate is asked for, and nobody is let in.
        files = {host: read(self.authority_files, each.ca) for host, each in found if each is not None}
        verified = {host: file.path for host, file in files.items() if file is not None}
        secrets, tls = self._objects.secrets_for(read), read.value(self._objects.tls)
        redirects = tuple(
            host for host, each in hosts if each.https_only or (each.redirect and is_usable(served, host, secrets, tls))
        )
        hsts = tuple((host, each.hsts) for host, each in hosts if each.hsts is not None)
        return CertificateLine(served.path, served.names, redirects, hsts, tuple(verified.items()))

    def _authorities_of_host(
        self, read: Read, host: str, asking: Sequence[tuple[tuple[Key, str], tuple[Owner, Key]]]
    ) -> HostAuthorities | None:
        """Return those of the oldest Ingress of the namespace that has the host: a handshake knows no path."""
        hosts = self._hosts.rights(read)
        first = next((each for (key, _), each in asking if hosts.is_owner(host, key.namespace)), None)
        return HostAuthorities(first[1], Key(first[0].namespace, first[0].name)) if first is not None else None

    def _refused_authorities(self, read: Read, claim: IngressClaim) -> Iterator[Refusal]:
        """Return why clients cannot show certificates as words ask: nobody is let in then."""
        closes = "nobody is let in to these paths"
        for host, ca, source in claim.verifying:
            if _fault(read(self._authorities, ca)):
                continue  # that was told
            found, given = read(self._host_authorities, host), read(self._certificates, host)
            served = read(self.served, given.secret) if given is not None else None
            if found is not None and found.ca != ca:
                other = f"Ingress {found.claimant.namespace}/{found.claimant.name}"
                detail = f"clients show certificates of other authorities for this host, as {other} is older; {closes}"
                yield Refusal(claim.ref, source, host, RefusalReason.NAME_TAKEN, detail)
            elif found is None or served is None or not served.path:
                detail = f"the host has no certificate of a Secret here: name one in spec.tls; {closes}"
                yield Refusal(claim.ref, source, host, RefusalReason.NO_CERTIFICATE, detail)

    def _presented(self, read: Read, host: str, found: HostCertificate) -> PresentedCertificate | None:
        served = read(self.served, found.secret)
        return presented(served, host) if served is not None else None

    # What the owners are told

    def _refused(self, read: Read, key: Key, claim: IngressClaim) -> tuple[Refusal, ...] | None:
        """Return all that is refused of one Ingress, sorted."""
        found = set(claim.refused)
        hosts = self._hosts.rights(read)
        for _, lost in read(self._routes.lost, key) or ():
            found.update(_lost(claim.ref, each, hosts) for each in lost)
        for name, target in read(self._faults_of, key) or ():
            if target.fault is not None:
                shown = values.shortened(f"{target.reference.name}:{target.reference.port}")
                says = dict(claim.said.get("", ())).get("mirror", MIRROR_FIELD)
                field = says if name in claim.mirrors else _BACKEND_FIELD
                found.add(Refusal(claim.ref, field, shown, _reason(target.fault), target.fault.detail))
        for item in claim.tls:
            for host in item.hosts:
                found.update(self._refused_certificate(read, claim, item, host))
        found.update(self._faults_of_named(read, claim))
        found.update(self._refused_authorities(read, claim))
        if claim.unlogged:
            found.update(self._logged_all_the_same(read, key, claim))
        found.update(self._without_redirect(read, key, claim))
        if claim.canary_rules:
            found.update(self._canary_without_requests(read, key, claim))
        return tuple(sorted(found)) or None

    def _faults_of_named(self, read: Read, claim: IngressClaim) -> Iterator[Refusal]:
        """Return what is wrong with the ConfigMaps that words name."""
        for field, ca in claim.authorities:
            if fault := _fault(read(self._authorities, ca)):
                detail = f"{fault}; nobody is let in to this Ingress"
                yield Refusal(claim.ref, field, ca.name, RefusalReason.INVALID_VALUE, detail)
        for field, named in claim.error_pages:
            if (pages := read(self.rules.error_pages, named)) is not None and pages.fault:
                yield fault_of_pages(claim.ref, field, named, pages)

    def _logged_all_the_same(self, read: Read, key: Key, claim: IngressClaim) -> Iterator[Refusal]:
        """Return the hosts that another Ingress leads to the same port of a Service: its requests are to be logged."""
        for _, path in read(self._routes.won, key) or ():
            for rule in path.effective:
                lead = read(self._leads, path_of(rule)) if key_of(rule) == key else None
                leading = read(self._leading, rule.backend) if lead is not None and lead.canary is None else None
                log_key = _log_key(rule.virtual_host, rule.backend)
                if leading is not None and log_key not in leading.unlogged:
                    detail = (
                        f"requests are logged, since {dict(leading.deciders)[log_key]} lead this host to one port of"
                        f" a Service: annotate all of these Ingresses with {ACCESS_LOG}"
                    )
                    reason = RefusalReason.IGNORED_ANNOTATION
                    yield Refusal(claim.ref, f"annotation {ACCESS_LOG}", rule.virtual_host, reason, detail)

    def _without_redirect(self, read: Read, key: Key, claim: IngressClaim) -> Iterator[Refusal]:
        """Return the hosts that are not redirected, since another Ingress of the namespace has them."""
        for rule in claim.rules if claim.redirects else ():
            others = read(self._with_rules, (key.namespace, rule.virtual_host)) or 0
            if rule.backend in claim.redirects and others:
                detail = "without effect: another Ingress has rules for this host, which count"
                reason = RefusalReason.IGNORED_ANNOTATION
                yield Refusal(claim.ref, f"annotation {WWW_REDIRECT}", rule.virtual_host, reason, detail)

    def _canary_without_requests(self, read: Read, key: Key, claim: IngressClaim) -> Iterator[Refusal]:
        """Return the paths that a canary takes no requests of, and why; and its words that the main Ingress decides."""
        canary, others = read(self._canaries.paths, key), set[str]()
        for rule in canary.rules if canary is not None else ():
            path = path_of(rule)
            shown = values.shortened(name_of(path).name)
            decided, lead = read(self._routes.decided, path), read(self._leads, path)
            if decided is None or not decided.effective or lead is None:
                detail = "no Ingress has this host and path, so the canary takes no requests: it owns none itself"
                yield Refusal(claim.ref, _PATH_FIELD, shown, RefusalReason.INCOMPLETE, detail)
                continue
            if lead.canary == rule:
                main = read(self._claims, key_of(lead.main))
                at = lead.main.backend, rule.backend
                others.update(without_effect(main, claim, at) if main is not None else ())
                continue
            reason, why = RefusalReason.NOT_ALLOWED, self._why_no_canary(read, decided.effective[0], rule)
            if not why and lead.canary is not None:
                other = lead.canary.owner
                why = (
                    f"{other.kind} {other.namespace}/{other.name} is the canary of this path already (the older one is)"
                )
                reason = RefusalReason.NAME_TAKEN
            yield Refusal(claim.ref, _PATH_FIELD, shown, reason, f"this canary takes no requests here: {why}")
        if others:
            detail = f"without effect: {', '.join(sorted(others))}; a canary has the words of its main Ingress"
            yield Refusal(claim.ref, "metadata.annotations", "", RefusalReason.IGNORED_ANNOTATION, detail)

    def _refused_certificate(self, read: Read, claim: IngressClaim, item: TlsHosts, host: str) -> Iterator[Refusal]:
        hosts = self._hosts.rights(read)
        given = read(self._certificates, host)
        if given is None or not hosts.is_owner(host, claim.ref.namespace):
            reason = RefusalReason.NAME_RESERVED if hosts.is_kept(host) else RefusalReason.NAME_TAKEN
            detail = f"the certificate of a host is its owner's: {hosts.why_not(host)}"
            yield Refusal(claim.ref, _TLS_HOSTS, host, reason, detail)
            return
        if given.secret != (claim.ref.namespace, item.secret):
            detail = f"Ingress {given.claimant.namespace}/{given.claimant.name} has a certificate for it already"
            yield Refusal(claim.ref, _TLS_HOSTS, host, RefusalReason.NAME_TAKEN, detail)
            return
        served = read(self.served, given.secret)
        if served is not None:
            if served.fault:
                yield Refusal(claim.ref, _TLS_SECRET, item.secret, RefusalReason.NO_CERTIFICATE, served.fault)
            yield from notes_on(served, claim.ref, (_TLS_SECRET, _TLS_HOSTS), host)

    def _status(self, read: Read, key: Key, claim: IngressClaim) -> ObjectStatus:
        """Return the addresses, for an Ingress of which at least one path can answer."""
        paths = read(self._routes.won, key) or ()
        won = [rule for _, path in paths for rule in path.effective if key_of(rule) == key]
        won = [rule for rule in won if rule.backend not in claim.closed]
        canary = read(self._canaries.paths, key)
        won += canary.rules if canary is not None else ()
        served = any(read(self._answering, each) is not None for rule in won for each in self._lead_of(read, rule))
        addresses = [{"ip": each} for each in read.value(self._objects.shared_addresses)] if served else []
        body = {"loadBalancer": {"ingress": addresses} if addresses else {}}
        return ObjectStatus(claim.uid, claim.generation, body, may_wait=bool(won) and not served)

    def _lead_of(self, read: Read, rule: RouteRule) -> tuple[str, ...]:
        """Return the sections that a rule leads to, of an Ingress itself or of a canary."""
        lead = read(self._leads, path_of(rule))
        return lead.sections if lead is not None and rule in (lead.main, lead.canary) else ()


def _owner_of_section(_: Read, __: str, sections: Sequence[tuple[object, RuleSection]]) -> Owner:
    """Return the Ingress: a new weight is no reload, and anything else of the section may be one."""
    section = sections[0][1]
    return section.owner.asking_for(msgspec.structs.replace(section.backend, ports=()))


def _hosts_with_expressions(key: Key, claim: IngressClaim) -> Iterator[tuple[tuple[str, str], int]]:
    """Return the hosts, with the namespace: an Ingress says nothing of the paths of other namespaces."""
    hosts = dict.fromkeys(rule.virtual_host for rule in claim.rules) if claim.expressions else ()
    return (((key.namespace, host), 1) for host in hosts)


def _authority_of(_: Key, claim: IngressClaim) -> tuple[Key, ...]:
    return tuple(ca for _, ca in claim.authorities)


def _hosts_with_authorities(_: Key, claim: IngressClaim) -> Iterable[tuple[str, tuple[Owner, Key]]]:
    # The first of several: nobody is let in to the others.
    return {host: (claim.owner, ca) for host, ca, _ in reversed(claim.verifying)}.items()


def _fault(found: ResolvedCertificate | None) -> str:
    return found.fault if found is not None else ""


def _hosts_with_rules(key: Key, claim: IngressClaim) -> Iterator[tuple[tuple[str, str], int]]:
    hosts = dict.fromkeys(rule.virtual_host for rule in claim.rules if rule.backend not in claim.redirects)
    return (((key.namespace, host), 1) for host in hosts)


def _redirects_of(_: Key, claim: IngressClaim) -> Iterable[tuple[str, str]]:
    return claim.redirects.items()


def _host_of_expression(_: object, rule: RouteRule) -> tuple[str, ...]:
    return (rule.virtual_host,) if rule.match.kind is PathKind.EXPRESSION else ()


def _namespace_of_expression(_: object, rule: RouteRule) -> tuple[str, ...]:
    return (rule.owner.namespace,) if rule.match.kind is PathKind.EXPRESSION else ()


def _beyond_number(_: Read, __: str, asking: Sequence[tuple[object, RouteRule]]) -> frozenset[RouteRule] | None:
    """Return the rules that are beyond what a namespace may have at all of its hosts; older ones come first."""
    return frozenset(rule for _at, rule in asking[_MOST_EXPRESSIONS:]) or None


def _beyond_budget(_: Read, __: str, asking: Sequence[tuple[object, RouteRule]]) -> frozenset[RouteRule] | None:
    """Return the rules that are beyond what expressions of a namespace may take at a host; older ones come first."""
    used: Counter[str] = Counter()
    beyond = set()
    for _at, rule in asking:
        work = work_of_expression(rule.match.path)
        if used[rule.owner.namespace] + work > MOST_WORK:
            beyond.add(rule)
        else:
            used[rule.owner.namespace] += work
    return frozenset(beyond) or None


def _served_expressions(at: VirtualHostPath, path: DecidedPath) -> Sequence[tuple[str, int]]:
    return ((at.virtual_host, 1),) if path.effective and at.place.kind is PathKind.EXPRESSION else ()


def owned_name(at: VirtualHostPath | str) -> Name:
    """Return the name by which a path, or a backend whose servers have options, has an owner."""
    return Name(at, "") if isinstance(at, str) else name_of(at)


def owner_of(item: DecidedPath | Owner) -> Owner | None:
    """Return the owner: of a path it is another one, too, where that leads to another backend."""
    if isinstance(item, Owner):
        return item
    return item.effective[0].owner.asking_for(item.effective[0].backend) if item.effective else None


def _certificates_of(_: Key, claim: IngressClaim) -> Iterable[tuple[str, tuple[IngressClaim, str]]]:
    """Return the Secret for each host; where an Ingress names several for one, the first."""
    found: dict[str, tuple[IngressClaim, str]] = {}
    for item in claim.tls:
        for host in item.hosts:
            found.setdefault(host, (claim, item.secret))
    return found.items()


def _oldest_first(_: object, asked: tuple[IngressClaim, str]) -> tuple[str, str, str, str]:
    return asked[0].owner.rank


def _restricted(service: Service, accepted: tuple[str, ...]) -> UnresolvedReference | None:
    """Return that annotations of a Service restrict access in a way that is not implemented; None where they do not."""
    foreign = read_foreign(service.metadata.annotations, "Service", accepted)
    if not foreign.restricting:
        return None
    detail = f"annotation {foreign.restricting[0]} of the Service: {foreign.why_restricted('it')}"
    return UnresolvedReference(Unresolved.RESTRICTED, detail)


class _Leading(NamedTuple):
    """What leads to a backend: entries of maps, the objects that they come from, and requests that are not logged."""

    entries: tuple[PathEntry, ...]
    deciders: tuple[tuple[str, str], ...]
    unlogged: tuple[str, ...]


def _log_key(virtual_host: str, backend: str) -> str:
    """Return what a line of the log is looked up by: it knows these two, and not which path led there."""
    return f"{virtual_host}|{backend}"


def _leading(_: Read, name: str, paths: Sequence[tuple[VirtualHostPath, PathLead]]) -> _Leading:
    of_virtual_host: dict[str, set[str]] = {}
    logged = set()
    for path, lead in paths:
        rule = lead.main
        of_virtual_host.setdefault(path.virtual_host, set()).add(rule.owner.name)
        if not rule.unlogged:
            logged.add(path.virtual_host)
    namespace = paths[0][1].main.owner.namespace
    # The log knows host and backend: where several Ingresses of a namespace lead one host there, it names these.
    deciders = (
        (_log_key(virtual_host, name), _some_of(sorted(names)))
        for virtual_host, names in sorted(of_virtual_host.items())
    )
    return _Leading(
        tuple(entry_of(*path) for path, lead in paths if lead.group is None),
        tuple((key, Decider("Ingress", namespace, names).logged) for key, names in deciders),
        tuple(_log_key(each, name) for each in sorted(of_virtual_host.keys() - logged)),
    )


_MOST_NAMED = 4
"""Ingresses in a line of the log."""


def _some_of(names: Sequence[str]) -> str:
    return ",".join([*names[:_MOST_NAMED], *["..."] * (len(names) > _MOST_NAMED)])


def addresses_of(backend: RouteBackend) -> Iterable[str]:
    """Return the addresses of the servers that take traffic."""
    return [server.address for server in backend.servers if server.state == "ready"]


def _can_answer(backend: RouteBackend) -> bool | None:
    return True if addresses_of(backend) else None


def _ready(_: str, backend: RouteBackend) -> Iterator[tuple[tuple[()], int]]:
    yield (), sum(server.state == "ready" for server in backend.servers)


def _lost(ref: ObjectRef, lost: ConflictedRule, hosts: HostRights) -> Refusal:
    rule, why = lost.rule, lost.why
    reason = RefusalReason.NAME_RESERVED if hosts.is_kept(rule.virtual_host) else RefusalReason.NAME_TAKEN
    if lost.winner is not None:
        owner = ObjectRef(*lost.winner.owner[:3], ref.cluster)
        why = f"{owner} has this host and path already (the older object keeps it); remove it from one of them"
    return Refusal(ref, _PATH_FIELD, values.shortened(name_of(path_of(rule)).name), reason, why)


def mirror_backend(name: str, owner: Owner, target: IngressTarget) -> RuleBackend:
    """Return what copies of requests are sent to."""
    return RuleBackend(
        name,
        f"Ingress {owner.namespace}/{owner.name}, copies to Service {target.reference.name}",
        "",
        "",
        (),
        (),
        options=target.options,
        route=name,
        ports=((1, target.port),) if target.port is not None else (),
        preset=PresetName.INGRESS,
    )


def _reason(fault: UnresolvedReference) -> RefusalReason:
    if fault.reason is Unresolved.RESTRICTED:
        return RefusalReason.UNSUPPORTED_ANNOTATION
    if fault.reason is not Unresolved.NOT_FOUND:
        return RefusalReason.INVALID_VALUE
    return RefusalReason.NO_SUCH_PORT if fault.port else RefusalReason.NO_SUCH_SERVICE
