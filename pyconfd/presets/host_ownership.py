"""Which namespace has a host of the shared frontends: decided here once, for all presets that serve hosts there.

A host belongs to one namespace with all its paths and its TLS: to that of the oldest claim when it was first served,
and it stays there until that namespace gives it up (:mod:`pyconfd.model.reservation`). Other namespaces may add paths
to it with consent only: the operator's (the setting ``claims.shared_hosts``), or the owner's by the annotation
:data:`SHARED_WITH`. What concerns the host as a whole (certificate, redirect, HSTS, passthrough) is its owner's alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pyconfd.model.reservation import NO_RESERVATIONS, HostClaim, Name, Owner, Owners, Reservation, Reservations
from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import VersionedDict, differing, versioned
from pyconfd.presets import conflicts, values

SCOPE = "shared-hosts"
"""Stands for the hosts of the shared frontends where names are reserved by scope."""

SHARED_WITH = "pyconfd.io/shared-with"
"""The annotation by which an object lets namespaces add paths to its hosts: their names with commas, ``*`` for all."""

EVERYBODY = "*"

ANY_HOST = "*"
"""The host of an Ingress without one: every host that nobody asks for."""


class AsksForHosts(Protocol):
    """What was parsed of the objects of one key."""

    @property
    def hosts(self) -> tuple[HostClaim, ...]:
        """The hosts that they ask for, whether or not any path of them can be served."""
        ...


class ParsedHosts(Protocol):
    """What a preset parsed of all objects; its ``by_key`` is the former object where nothing changed."""

    @property
    def by_key(self) -> Mapping[Key, AsksForHosts]:
        """What was parsed, by object."""
        ...


class HostDecision(NamedTuple):
    """Who has a host: the oldest object of its namespace, or None and for whom it is ``kept``.

    ``shared_with`` are the namespaces that may add paths. ``domain_protos`` are the protocols of its domains that
    can be served. ``below_foreign``: the next wildcard above the host belongs to another namespace.
    """

    owner: Owner | None
    kept: Reservation | None = None
    shared_with: frozenset[str] = frozenset()
    domain_protos: frozenset[str] = frozenset()
    below_foreign: bool = False

    @property
    def namespace(self) -> str:
        """The namespace that has the host."""
        if self.owner is not None:
            return self.owner.namespace
        return self.kept.namespace if self.kept is not None else ""


@dataclass(frozen=True, slots=True)
class HostOwnership:
    """Who has each host that is asked for; what did not change is the same object as in the former one.

    ``parsed`` is what presets parsed, by preset; ``claims`` are those of each host, oldest first. ``owners`` has the
    names to remember.
    """

    parsed: Mapping[str, ParsedHosts] = field(default_factory=dict)
    reservations: Reservations = field(default_factory=lambda: NO_RESERVATIONS)
    shared: frozenset[str] = frozenset()
    claims: Mapping[str, tuple[HostClaim, ...]] = field(default_factory=lambda: VersionedDict({}))
    decisions: Mapping[str, HostDecision] = field(default_factory=lambda: VersionedDict({}))
    owners: Owners = field(default_factory=lambda: VersionedDict({}))

    def is_owner(self, host: str, namespace: str) -> bool:
        """Return whether a namespace has a host."""
        found = self.decisions.get(host)
        return found is None or (found.owner is not None and found.owner.namespace == namespace)

    def may_add_paths(self, host: str, namespace: str) -> bool:
        """Return whether objects of a namespace may serve paths of a host: it has the host, or a consent."""
        found = self.decisions.get(host)
        if found is None or self.is_owner(host, namespace):
            return True
        return found.owner is not None and bool(found.shared_with & {namespace, EVERYBODY})

    def why_not(self, host: str) -> str:
        """Return whose a host is, and what could be done, as a sentence for who may not have it."""
        found = self.decisions[host]
        if found.owner is None:
            return conflicts.reserved_until(found.kept) if found.kept is not None else ""
        owner = found.owner
        return (
            f"{owner.kind} {owner.namespace}/{owner.name} has this host: paths need the consent of its namespace"
            f" ({SHARED_WITH}) or of the operator (claims.shared_hosts)"
        )

    def of(self, host: str) -> tuple[HostClaim, ...]:
        """Return who asks for a host, the oldest first."""
        return self.claims.get(host, ())

    def is_below_foreign(self, host: str) -> bool:
        """Return whether the next wildcard above a host belongs to another namespace."""
        found = self.decisions.get(host)
        return found is not None and found.below_foreign

    def falls_to_another(self, host: str) -> bool:
        """Return whether requests for a host without a site of its own would be another namespace's."""
        return _answers_instead(host, self.decisions) not in {"", self.decisions[host].namespace}

    def is_kept(self, host: str) -> bool:
        """Return whether a host waits for objects of its namespace that are gone."""
        found = self.decisions.get(host)
        return found is not None and found.owner is None


NO_HOSTS = HostOwnership()


def decide(
    former: HostOwnership,
    parsed: Mapping[str, ParsedHosts],
    reservations: Reservations = NO_RESERVATIONS,
    shared: frozenset[str] = frozenset(),
) -> HostOwnership:
    """Return who has which host; the operator lets all namespaces add paths to those of ``shared``.

    ``*.example.com`` among them stands for all hosts below it, and ``*`` for every host. Only hosts are looked at
    whose claims, reservation or consent are others than in ``former``.
    """
    claims, touched = _claims(former, parsed)
    touched.update(name.name for name in differing(former.reservations, reservations))
    if shared != former.shared:
        touched.update(claims)
    if not touched:
        same = former.reservations is reservations and all(former.parsed.get(each) is parsed[each] for each in parsed)
        if same and former.parsed.keys() == parsed.keys():
            return former
        return HostOwnership(parsed, reservations, shared, former.claims, former.decisions, former.owners)
    made: dict[str, HostDecision] = {}
    gone: list[str] = []
    for host in touched:
        reserved = reservations.get(Name("", host))
        if host in claims or reserved is not None:
            made[host] = _decision(claims.get(host, ()), reserved, shared)
        else:
            gone.append(host)
    decisions = _below(versioned(former.decisions), made, gone)
    owners: dict[Name, Owner] = {}
    lost: list[Name] = []
    for host in touched:
        decision = decisions.get(host)
        if decision is not None and decision.owner is not None:
            owners[Name("", host)] = decision.owner
        else:
            lost.append(Name("", host))
    return HostOwnership(parsed, reservations, shared, claims, decisions, _replaced(former.owners, owners, lost))


def _claims(
    former: HostOwnership, parsed: Mapping[str, ParsedHosts]
) -> tuple[Mapping[str, tuple[HostClaim, ...]], set[str]]:
    """Return the claims of each host, and the hosts of which they are others."""
    gone: defaultdict[str, set[HostClaim]] = defaultdict(set)
    come: defaultdict[str, set[HostClaim]] = defaultdict(set)
    for preset in {*former.parsed, *parsed}:
        before, after = (each[preset].by_key if preset in each else {} for each in (former.parsed, parsed))
        for key in differing(before, after):
            old, new = (each[key].hosts if key in each else () for each in (before, after))
            if old != new:
                for found, some, others in ((gone, old, new), (come, new, old)):
                    for claim in some:
                        if claim not in others:
                            found[claim.host].add(claim)
    touched = {*gone, *come}
    if not touched:
        return former.claims, touched
    changed: dict[str, tuple[HostClaim, ...]] = {}
    empty: list[str] = []
    for host in touched:
        kept = [each for each in former.claims.get(host, ()) if each not in gone[host]]
        now = tuple(sorted((*kept, *come[host]), key=lambda each: each.rank))
        if now:
            changed[host] = now
        else:
            empty.append(host)
    return versioned(former.claims).with_changes(changed, [each for each in empty if each in former.claims]), touched


def _decision(claims: tuple[HostClaim, ...], reserved: Reservation | None, shared: Collection[str]) -> HostDecision:
    if reserved is None:
        owner = claims[0].owner
    else:
        mine = [each for each in claims if each.owner.namespace == reserved.namespace]
        if not mine:
            return HostDecision(None, reserved)
        owner = mine[0].owner
    mine = [each for each in claims if each.owner.namespace == owner.namespace]
    consents = (each.shared_with for each in mine)
    host = claims[0].host
    by_operator = {EVERYBODY} if any(each in shared for each in (host, EVERYBODY, *_wildcards_above(host))) else set()
    protos = frozenset(each.domain_proto for each in mine if each.domain_proto)
    return HostDecision(owner, None, frozenset().union(by_operator, *consents), protos)


def _below(
    former: VersionedDict[str, HostDecision], made: Mapping[str, HostDecision], gone: Collection[str]
) -> VersionedDict[str, HostDecision]:
    """Return the decisions, each with whether the next wildcard above the host belongs to another namespace."""
    now = former.with_changes(made, [host for host in gone if host in former])
    # A wildcard that came, moved or went may concern each host below it.
    looked_at: Iterable[str] = now if any(host.startswith("*.") for host in (*made, *gone)) else made
    changed: dict[str, HostDecision] = {}
    for host in looked_at:
        decision = now[host]
        wildcards = (now[each] for each in _wildcards_above(host) if each in now)
        above = next((each for each in wildcards if each.owner is not None), None)
        is_below = above is not None and above.namespace != decision.namespace
        if is_below != decision.below_foreign:
            changed[host] = decision._replace(below_foreign=is_below)
    made = {host: decision for host, decision in {**made, **changed}.items() if former.get(host) != decision}
    gone = [host for host in gone if host in former]
    return former.with_changes(made, gone) if made or gone else former


def _wildcards_above(host: str) -> Iterable[str]:
    labels = host.removeprefix("*.").split(".")
    first = 0 if host.startswith("*.") else 1
    return (each for number in range(first, len(labels)) if (each := f"*.{'.'.join(labels[number:])}") != host)


def _answers_instead(host: str, decisions: Mapping[str, HostDecision]) -> str:
    """Return the namespace that answers for a host that the frontends do not know, "" for none."""
    for above in (*_wildcards_above(host), ANY_HOST):
        owner = decisions[above].owner if above in decisions and above != host else None
        # A wildcard of an Ingress is for one label.
        if owner is not None and (above == ANY_HOST or owner.kind != "Ingress" or above.count(".") == host.count(".")):
            return owner.namespace
    return ""


def _replaced(former: Owners, owners: Mapping[Name, Owner], lost: Collection[Name]) -> Owners:
    changed = {name: owner for name, owner in owners.items() if former.get(name) != owner}
    gone = [name for name in lost if name in former]
    return versioned(former).with_changes(changed, gone) if changed or gone else former


def shared_with(value: str) -> frozenset[str]:
    """Return the namespaces in the annotation :data:`SHARED_WITH`.

    Raises:
        ValueError: there is something in it that is no name of a namespace.
    """
    names = [each.strip() for each in value.split(",") if each.strip()]
    for each in names:
        if each != EVERYBODY and not values.is_object_name(each):
            raise ValueError("expected names of namespaces separated by commas, or *")
    return frozenset(names)
