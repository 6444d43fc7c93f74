"""The preset: from Ingresses to sites, backends, certificates and statuses.

Read in this order: :mod:`pyconfd.presets.ingress.claims` parses one Ingress; the table of
:mod:`pyconfd.presets.routing.table` gives each path to the oldest; :mod:`pyconfd.presets.ingress.backends` and
:mod:`pyconfd.presets.ingress.certificates` join what is behind it; :func:`_after` does all that after a change. Each
step looks at what the steps before it changed, and all that is equal stays the same object.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, cast

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.object_status import ObjectStatus, StatusOf
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, Name, Owner
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.versioned import GivenDict, VersionedDict, differing, replaced
from pyconfd.presets import values
from pyconfd.presets.certificates import notes_on
from pyconfd.presets.cluster import Cluster, nothing_read
from pyconfd.presets.conflicts import updated
from pyconfd.presets.host_ownership import HostOwnership, ParsedHosts
from pyconfd.presets.ingress.backends import Backends
from pyconfd.presets.ingress.certificates import Certificates
from pyconfd.presets.ingress.changes import ChangedClaims
from pyconfd.presets.ingress.claims import IngressClaim, name_of, read_ingress
from pyconfd.presets.ingress.classes import OwnClasses, is_misspelled, mistaken_class, own_classes
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, PresetResult, Translation
from pyconfd.presets.routing.references import Missing, ServiceReference, Unresolved
from pyconfd.presets.routing.table import RoutingTable, SitePath, conflict_key, path_of
from pyconfd.presets.routing.types import RouteBackend, RouteRule, Site
from pyconfd.presets.shared_sites import shared_site

_PATH_FIELD = "spec.rules.http.paths.path"
_BACKEND_FIELD = "spec.rules.http.paths.backend"
_TLS_HOSTS, _TLS_SECRET = "spec.tls.hosts", "spec.tls.secretName"


@dataclass(frozen=True, slots=True)
class _IngressState:
    """All that a result was made of, and its parts; ``refused`` has only Ingresses of which something was."""

    cluster: Cluster
    options: PresetOptions
    backends: Backends
    certificates: Certificates
    claims: Mapping[Key, IngressClaim] = field(default_factory=lambda: VersionedDict({}))
    table: RoutingTable = field(default_factory=RoutingTable)
    owners: Mapping[Name, Owner] = field(default_factory=lambda: VersionedDict({}))
    sites: Mapping[str, Site] = field(default_factory=lambda: VersionedDict({}))
    refused: Mapping[Key, tuple[Refusal, ...]] = field(default_factory=lambda: VersionedDict({}))
    refusals: tuple[Refusal, ...] = ()
    statuses: Mapping[StatusOf, ObjectStatus] = field(default_factory=lambda: VersionedDict({}))
    files: tuple[OutputFile, ...] = ()


def _nothing(cluster: str, options: PresetOptions) -> _IngressState:
    empty = nothing_read(cluster)
    return _IngressState(empty, options, Backends(empty, options), Certificates(empty, options))


@dataclass(frozen=True, slots=True)
class ParsedIngresses:
    """What all Ingresses of pyconfd's classes ask for, and what it was parsed of."""

    cluster: str
    policy: ClaimOptions
    ignored_annotations: tuple[str, ...] = ()
    classes: OwnClasses = field(default_factory=lambda: own_classes({}))
    ingresses: Mapping[Key, Ingress] = field(default_factory=dict)
    by_key: Mapping[Key, IngressClaim] = field(default_factory=lambda: VersionedDict({}))

    @property
    def parsed_with(self) -> tuple[str, ClaimOptions, tuple[str, ...]]:
        """All beside the Ingresses and their classes that decides what is parsed."""
        return self.cluster, self.policy, self.ignored_annotations


@dataclass(frozen=True, slots=True)
class _Blocked:
    """Says which paths an Ingress cannot have: the host is another namespace's, or an older domain is all of it."""

    hosts: HostOwnership
    taken: Mapping[Name, str]

    def __call__(self, rule: RouteRule, claimants: Sequence[RouteRule]) -> str:
        """Return why a rule may not have its path, or ""."""
        host, namespace = rule.site, rule.owner.namespace
        if not self.hosts.may_add_paths(host, namespace):
            return self.hosts.why_not(host)
        if not self.hosts.is_owner(host, namespace):
            # With a consent, the owner of the host comes before older objects of others.
            same = (each for each in claimants if conflict_key(each.match) == conflict_key(rule.match))
            if owner := next((each.owner for each in same if self.hosts.is_owner(host, each.owner.namespace)), None):
                return f"{owner.kind} {owner.namespace}/{owner.name} of the host's owner has this path"
        return self.taken.get(name_of(path_of(rule)), "") if self.taken else ""


def _parsed(cluster: Cluster) -> ParsedIngresses:
    return cast("ParsedIngresses", cluster.hosts.parsed[PresetName.INGRESS])


def _after(former: _IngressState, cluster: Cluster, options: PresetOptions) -> _IngressState:
    """Return the state of a cluster, made of a former one that parsed claims in the same way."""
    claims = _parsed(cluster).by_key
    changed = ChangedClaims(former.claims, claims, tuple(differing(former.claims, claims)))
    moved = differing(former.cluster.hosts.decisions, cluster.hosts.decisions)
    blocked = _Blocked(cluster.hosts, options.taken_names)
    paths = {path_of(rule) for claim in changed.both() for rule in claim.rules}
    sites_again = {*moved, *_sites_of(former.options.taken_names), *_sites_of(options.taken_names)}
    again = {SitePath(site, place) for site in sites_again for place in former.table.sites.get(site, ())}
    rules = {key: claims[key].rules if key in claims else () for key in changed.keys}
    table = former.table.updated(rules, blocked, again)
    paths |= again
    backends = former.backends.updated(changed, table.entries, cluster, options)
    certificates = former.certificates.updated(changed, moved, cluster, options)
    owners = replaced(former.owners, {name_of(path): _owner(table.winners(path)) for path in paths})
    hosts = {*(path.site for path in paths), *moved}
    sites = replaced(former.sites, {host: _site(host, table, cluster.hosts) for host in hosts}, rank=str)
    made = _IngressState(cluster, options, backends, certificates, claims, table, owners, sites)
    stale = _stale(former, made, changed, paths, moved)
    refused = replaced(former.refused, {key: _refused(key, made) or None for key in stale})
    statuses = replaced(former.statuses, {StatusOf(Resource.INGRESSES, key): _status(key, made) for key in stale})
    refusals, files = former.refusals, former.files
    if refused is not former.refused:
        refusals = tuple(chain.from_iterable(refused[key] for key in sorted(refused)))
    if certificates.secrets is not former.certificates.secrets:
        served = (use.served.file for use in certificates.secrets.values())
        files = tuple(file for file in served if file is not None)
    return replace(made, refused=refused, refusals=refusals, statuses=statuses, files=files)


def _sites_of(names: Iterable[Name]) -> Iterator[str]:
    return (name.name.partition("/")[0] for name in names)


def _owner(winners: Sequence[RouteRule]) -> Owner | None:
    return winners[0].owner if winners else None


def _site(host: str, table: RoutingTable, hosts: HostOwnership) -> Site | None:
    """Return the site of a host that has a path."""
    is_served = any(rules.winners for rules in table.sites.get(host, {}).values())
    return shared_site(host, hosts) if is_served else None


def _stale(
    former: _IngressState,
    made: _IngressState,
    changed: ChangedClaims,
    paths: Collection[SitePath],
    moved: Collection[str],
) -> set[Key]:
    """Return the Ingresses of which something may have been refused, or is served, that was not before."""
    if made.options.addresses.shared != former.options.addresses.shared:
        return {*former.claims, *made.claims, *_changed_objects(former, made)}
    stale = {*changed.keys, *_changed_objects(former, made)}
    for state in (former, made):
        for path in paths:
            stale.update(_key(rule) for rule in state.table.claimants(path))
    served = (
        name
        for name in differing(former.backends.served, made.backends.served)
        if _can_answer(former.backends, name) != _can_answer(made.backends, name)
    )
    for name in (*differing(former.backends.faults, made.backends.faults), *served):
        for state in (former, made):
            if name in state.backends.uses:
                stale |= state.backends.uses[name].users
    hosts = {*moved, *differing(former.certificates.hosts, made.certificates.hosts)}
    for secret in differing(former.certificates.secrets, made.certificates.secrets):
        hosts.update(made.certificates.hosts_of.get(secret, ()))
    for host in hosts:
        for state in (former, made):
            stale |= state.certificates.asking.get(host, frozenset())
    return stale


def _changed_objects(former: _IngressState, made: _IngressState) -> Collection[Key]:
    """Return the Ingresses that are others, and all after a change of the classes: some may be misspelled now."""
    before, now = former.cluster.snapshot, made.cluster.snapshot
    changed = differing(before.ingresses, now.ingresses)
    if differing(before.ingressclasses, now.ingressclasses):
        return {*changed, *now.ingresses}
    return changed


def _key(rule: RouteRule) -> Key:
    return Key(rule.owner.namespace, rule.owner.name)


def _refused(key: Key, state: _IngressState) -> tuple[Refusal, ...]:
    """Return all that is refused of one Ingress, sorted."""
    claim = state.claims.get(key)
    if claim is None:
        return _of_no_class(key, state)
    found = set(claim.refused)
    for rule in claim.rules if state.table.lost else ():
        for lost in state.table.lost.get(path_of(rule), ()):
            if lost.rule == rule:
                found.add(_lost(claim.ref, rule, lost.winner, lost.why, state.cluster.hosts))
    for name, reference in claim.references.items():
        if fault := state.backends.faults.get(name):
            shown = f"{reference.name}:{reference.port}"
            found.add(Refusal(claim.ref, _BACKEND_FIELD, values.shown(shown), _reason(fault), fault.detail))
    found.update(_refused_certificates(claim, state))
    return tuple(sorted(found))


def _of_no_class(key: Key, state: _IngressState) -> tuple[Refusal, ...]:
    """Return why an Ingress is nobody's that was probably meant for pyconfd."""
    snapshot = state.cluster.snapshot
    ingress = snapshot.ingresses.get(key)
    if ingress is None or not is_misspelled(ingress, snapshot.ingressclasses, _parsed(state.cluster).classes):
        return ()
    ref = ObjectRef("Ingress", values.shown(key.namespace), values.shown(key.name), snapshot.cluster)
    detail = mistaken_class(ingress, snapshot.ingressclasses)
    return (Refusal(ref, "spec.ingressClassName", "", RefusalReason.UNKNOWN_CLASS, detail),)


def _lost(ref: ObjectRef, rule: RouteRule, winner: RouteRule | None, why: str, hosts: HostOwnership) -> Refusal:
    reason = RefusalReason.NAME_RESERVED if hosts.is_kept(rule.site) else RefusalReason.NAME_TAKEN
    if winner is not None:
        owner = ObjectRef(*winner.owner[:3], ref.cluster)
        why = f"{owner} has this host and path already (the older object keeps it); remove it from one of them"
    return Refusal(ref, _PATH_FIELD, values.shown(name_of(path_of(rule)).name), reason, why)


def _reason(fault: Missing) -> RefusalReason:
    if fault.reason is Unresolved.RESTRICTED:
        return RefusalReason.UNSUPPORTED_ANNOTATION
    if fault.reason is not Unresolved.NOT_FOUND:
        return RefusalReason.INVALID_VALUE
    return RefusalReason.NO_SUCH_PORT if fault.port else RefusalReason.NO_SUCH_SERVICE


def _refused_certificates(claim: IngressClaim, state: _IngressState) -> Iterator[Refusal]:
    hosts = state.cluster.hosts
    for item in claim.tls:
        for host in item.hosts:
            if not hosts.is_owner(host, claim.ref.namespace):
                reason = RefusalReason.NAME_RESERVED if hosts.is_kept(host) else RefusalReason.NAME_TAKEN
                detail = f"the certificate of a host is its owner's: {hosts.why_not(host)}"
                yield Refusal(claim.ref, "spec.tls.hosts", host, reason, detail)
                continue
            given = state.certificates.hosts[host]
            if given.secret != (claim.ref.namespace, item.secret):
                detail = f"Ingress {given.claimant.namespace}/{given.claimant.name} has a certificate for it already"
                yield Refusal(claim.ref, _TLS_HOSTS, host, RefusalReason.NAME_TAKEN, detail)
                continue
            served = state.certificates.secrets[given.secret].served
            if served.fault:
                yield Refusal(claim.ref, _TLS_SECRET, item.secret, RefusalReason.NO_CERTIFICATE, served.fault)
            yield from notes_on(served, claim.ref, (_TLS_SECRET, _TLS_HOSTS), host)


def _status(key: Key, state: _IngressState) -> ObjectStatus | None:
    """Return the addresses, for an Ingress of which at least one path can answer."""
    claim = state.claims.get(key)
    if claim is None:
        return None
    won = [rule for rule in claim.rules if state.table.has_won(rule)]
    served = any(_can_answer(state.backends, rule.backend) for rule in won)
    addresses = [{"ip": address} for address in state.options.addresses.shared] if served else []
    body = {"loadBalancer": {"ingress": addresses} if addresses else {}}
    return ObjectStatus(claim.uid, claim.generation, body, may_wait=bool(won) and not served)


def _can_answer(backends: Backends, name: str) -> bool:
    """Return whether a backend has a server that takes traffic."""
    backend = backends.served.get(name)
    return backend is not None and bool(_addresses_of(backend))


def _addresses_of(backend: RouteBackend) -> Iterable[str]:
    return [server.address for server in backend.servers if server.state == "ready"]


class IngressPreset(Preset):
    """Reads Ingresses of the classes whose controller is pyconfd's."""

    name = PresetName.INGRESS
    gives = frozenset({"ingress"})
    resources = CLUSTER_VIEW | {Resource.INGRESSES, Resource.INGRESSCLASSES}
    writes_status = frozenset({Resource.INGRESSES})

    def parse(self, cluster: Cluster, options: PresetOptions, former: ParsedHosts | None) -> ParsedIngresses:
        """Return what the Ingresses ask for."""
        snapshot, parsed_with = cluster.snapshot, (cluster.view.name, options.claims, options.ignored_annotations)
        if not isinstance(former, ParsedIngresses) or former.parsed_with != parsed_with:
            former = ParsedIngresses(*parsed_with)
        classes = own_classes(snapshot.ingressclasses)
        changed = differing(former.ingresses, snapshot.ingresses)
        if classes != former.classes:
            changed = {*changed, *snapshot.ingresses}

        def claim_of(key: Key) -> IngressClaim | None:
            ingress = snapshot.ingresses.get(key)
            if ingress is None or not classes.serve(ingress):
                return None
            return read_ingress(ingress, snapshot.cluster, options.claims, options.ignored_annotations)

        by_key = updated(former.by_key, changed, claim_of)
        return ParsedIngresses(*parsed_with, classes, snapshot.ingresses, by_key)

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return ``ingress``: its sites, backends and certificates."""
        memo = former.memo if former is not None else None
        same = isinstance(memo, _IngressState) and memo.options.ignored_annotations == options.ignored_annotations
        if not isinstance(memo, _IngressState) or not same or memo.cluster.view.name != cluster.view.name:
            memo = _nothing(cluster.view.name, options)
        state = _after(memo, cluster, options)
        given = GivenDict(
            sites=state.sites,
            backends=state.backends.served,
            certificates=state.certificates.lines,
        )
        return PresetResult(
            {"ingress": given},
            state.refusals,
            state.backends.ready,
            files=state.files,
            sites=state.sites,
            serves=state.backends.served,
            addresses_of=_addresses_of,
            ends_tls=bool(state.certificates.asking),
            owners=state.owners,
            reserves=NO_OWNERS,
            statuses=state.statuses,
            certificates=state.certificates.presented,
            memo=state,
        )

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each Ingress of pyconfd's classes."""
        snapshot, options = translation.snapshot, translation.options
        classes = own_classes(snapshot.ingressclasses)
        backends: Mapping[str, Any] = translation.given.get("ingress", {}).get("backends", {})
        for key in sorted(snapshot.ingresses):
            ingress = snapshot.ingresses[key]
            if not classes.serve(ingress):
                continue
            claim = read_ingress(ingress, snapshot.cluster, options.claims, options.ignored_annotations)
            # A backend may be there for another Ingress of the namespace only: the one that has the path.
            won: defaultdict[str, set[str]] = defaultdict(set)
            for rule in claim.rules:
                if translation.owners.get(name_of(path_of(rule))) == rule.owner:
                    won[rule.backend].add(rule.site)
            served = ((name, at) for name, at in won.items() if name in backends)
            endpoints: dict[Any, None] = {}
            for reference in claim.references.values():
                endpoints |= dict.fromkeys(translation.endpoints_of(Key(reference.namespace, reference.name)))
            yield Claim(
                translation.ref("Ingress", key),
                self.name,
                f"ingressClassName {ingress.spec.ingress_class_name or '(default)'}",
                tuple(dict.fromkeys(name_of(path_of(rule)).name for rule in claim.rules)),
                tuple(_claimed(claim.references[name], backends[name], at) for name, at in served),
                tuple(endpoints),
            )

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the class."""
        del options
        return (
            "have an IngressClass with the controller pyconfd.io/ingress, and in the Ingress an ingressClassName that"
            " is its name"
        )

    def mistakes(self, record: AnyObject, snapshot: Snapshot) -> Iterator[str]:
        """Return what is wrong with the class of an Ingress."""
        if isinstance(record, Ingress) and (wrong := mistaken_class(record, snapshot.ingressclasses)):
            yield wrong


def _claimed(reference: ServiceReference, backend: RouteBackend, hosts: Iterable[str]) -> ClaimedBackend:
    name = f"{reference.name}:{reference.port}"
    return ClaimedBackend(name, backend.name, backend.name, backend.servers, frozenset(hosts))
