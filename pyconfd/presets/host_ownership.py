"""Which namespace has a host of the shared frontends: decided here once, for all presets that serve hosts there.

A host belongs to one namespace with all its paths and its TLS: to that of the oldest claim when it was first served,
and it stays there until that namespace gives it up (:mod:`pyconfd.model.reservation`). Other namespaces may add paths
to it with consent only: the operator's (the setting ``claims.shared_hosts``), or the owner's by the annotation
:data:`SHARED_WITH`. What concerns the host as a whole (certificate, redirect, HSTS, passthrough) is its owner's alone.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from pyconfd.derived import Collection, Derived, Grouped, Joined, Published, Read, Source, Tally, Value
from pyconfd.model.reservation import HostClaim, Name, Owner, Owners, Reservation
from pyconfd.presets import conflicts, values

SCOPE = "shared-hosts"
"""Stands for the hosts of the shared frontends where names are reserved by scope."""

SHARED_WITH = "pyconfd.io/shared-with"
"""The annotation by which an object lets namespaces add paths to its hosts: their names with commas, ``*`` for all."""

EVERYBODY = "*"

MOST_SHARED_WITH = 64
"""Namespaces that one annotation names: each host of the object remembers them."""

ANY_HOST = "*"
"""The host of an Ingress without one: every host that nobody asks for."""


class HostDecision(NamedTuple):
    """Who has a host: the oldest object of its namespace, or None and for whom it is ``kept``.

    ``shared_with`` are the namespaces that may add paths. ``domain_proto`` is the protocol of its domain that has the
    name, the oldest that can be served, "" for none; ``has_paths``: Ingresses of the namespace ask for it too.
    ``below_foreign``: the next wildcard above the host belongs to another namespace.
    """

    owner: Owner | None
    kept: Reservation | None = None
    shared_with: frozenset[str] = frozenset()
    domain_proto: str = ""
    has_paths: bool = False
    below_foreign: bool = False

    @property
    def namespace(self) -> str:
        """The namespace that has the host."""
        if self.owner is not None:
            return self.owner.namespace
        return self.kept.namespace if self.kept is not None else ""


class HostRights:
    """Answers questions by the ``decision`` on each host, None where nobody asks for it."""

    def __init__(self, decision: Callable[[str], HostDecision | None]) -> None:
        self.decision = decision

    def is_owner(self, host: str, namespace: str) -> bool:
        """Return whether a namespace has a host."""
        found = self.decision(host)
        return found is None or (found.owner is not None and found.owner.namespace == namespace)

    def may_add_paths(self, host: str, namespace: str) -> bool:
        """Return whether objects of a namespace may serve paths of a host: it has the host, or a consent."""
        found = self.decision(host)
        if found is None or (found.owner is not None and found.owner.namespace == namespace):
            return True
        return found.owner is not None and bool(found.shared_with & {namespace, EVERYBODY})

    def why_not(self, host: str) -> str:
        """Return whose a host is, and what could be done, as a sentence for who may not have it."""
        found = self.decision(host)
        if found is None:
            return ""
        if found.owner is None:
            return conflicts.reserved_until(found.kept) if found.kept is not None else ""
        owner = found.owner
        return (
            f"{owner.kind} {owner.namespace}/{owner.name} has this host: paths need the consent of its namespace"
            f" ({SHARED_WITH}) or of the operator (claims.shared_hosts)"
        )

    def is_below_foreign(self, host: str) -> bool:
        """Return whether the next wildcard above a host belongs to another namespace."""
        found = self.decision(host)
        return found is not None and found.below_foreign

    def falls_to_another(self, host: str) -> bool:
        """Return whether requests for a host without a virtual host of its own would be another namespace's."""
        found = self.decision(host)
        return found is not None and self._answers_instead(host) not in {"", found.namespace}

    def is_kept(self, host: str) -> bool:
        """Return whether a host waits for objects of its namespace that are gone."""
        found = self.decision(host)
        return found is not None and found.owner is None

    def _answers_instead(self, host: str) -> str:
        """Return the namespace that answers for a host that the frontends do not know, "" for none."""
        for above in (*wildcards_above(host), ANY_HOST):
            found = self.decision(above) if above != host else None
            if found is None or found.owner is None:
                continue
            # A wildcard of an Ingress is for one label, that of a domain beside it for more.
            is_wide = above == ANY_HOST or found.owner.kind != "Ingress" or found.domain_proto == "http"
            if is_wide or above.count(".") == host.count("."):
                return found.owner.namespace
        return ""


class Hosts:
    """Who has which host, as collections. ``claims`` have what is asked for, by any key.

    The operator lets all namespaces add paths to those of ``shared``: ``*.example.com`` among them stands for all hosts
    below it, and ``*`` for every host.
    """

    def __init__(self, claims: Collection[Any, HostClaim]) -> None:
        graph = claims.graph
        self.shared = Value[frozenset[str]](graph, "claims.shared_hosts")
        self.reservations = Source[str, Reservation](graph, "reserved hosts")
        self.asked = Grouped(claims, lambda _, claim: (claim.host,), "claims by host", rank=lambda _, claim: claim.rank)
        named = Joined[str, Any](self.asked, self.reservations, name="hosts")
        self._decided = Derived(named, self._decide, "owners of hosts")
        self.decisions = Derived(self._decided, self._below, "decisions on hosts")
        self._hello = Tally(self.decisions, _reads_hello, "hosts whose name is read before TLS ends")
        self._owners = Published[Name, Owner](self.decisions, key=_name, value=lambda each: each.owner)

    def owners(self) -> Owners:
        """Return the names to remember, as of the last round."""
        return self._owners.mapping()

    def read_hello(self) -> bool:
        """Return whether TLS of some host goes through, or may not end with a wildcard's certificate."""
        return bool(self._hello.items.get((), 0))

    def rights(self, read: Read) -> HostRights:
        """Return who has each host, for a function of a later collection."""
        return HostRights(partial(read, self.decisions))

    def _decide(self, read: Read, host: str, _: object) -> HostDecision:
        claims = [claim for _, claim in read(self.asked, host) or ()]
        reserved = read(self.reservations, host)
        namespace = reserved.namespace if reserved is not None else claims[0].owner.namespace
        mine = [each for each in claims if each.owner.namespace == namespace]
        if not mine:
            return HostDecision(None, reserved)
        shared = read.value(self.shared)
        by_operator = any(each in shared for each in (host, EVERYBODY, *wildcards_above(host)))
        consents = (frozenset({EVERYBODY}) if by_operator else frozenset(), *(each.shared_with for each in mine))
        proto = next((each.domain_proto for each in mine if each.domain_proto), "")
        has_paths = any(each.owner.kind == "Ingress" for each in mine)
        return HostDecision(mine[0].owner, None, frozenset().union(*consents), proto, has_paths)

    def _below(self, read: Read, host: str, decision: HostDecision) -> HostDecision:
        """Return the decision with whether the next wildcard above the host belongs to another namespace."""
        found = (read(self._decided, each) for each in wildcards_above(host))
        above = next((each for each in found if each is not None and each.owner is not None), None)
        is_below = above is not None and above.namespace != decision.namespace
        return decision._replace(below_foreign=True) if is_below else decision


def _reads_hello(_: str, decision: HostDecision) -> Iterable[tuple[tuple[()], int]]:
    return [((), 1)] if decision.below_foreign or decision.domain_proto == "https" else ()


def _name(host: str) -> Name:
    return Name("", host)


def wildcards_above(host: str) -> Iterable[str]:
    """Return the wildcards that a host, or another wildcard, is below, the next one first."""
    labels = host.removeprefix("*.").split(".")
    first = 0 if host.startswith("*.") else 1
    return (each for number in range(first, len(labels)) if (each := f"*.{'.'.join(labels[number:])}") != host)


def shared_with(value: str) -> frozenset[str]:
    """Return the namespaces in the annotation :data:`SHARED_WITH`.

    Raises:
        ValueError: there is something in it that is no name of a namespace, or there are too many.
    """
    names = {each.strip() for each in value.split(",") if each.strip()}
    if len(names) > MOST_SHARED_WITH:
        raise ValueError(f"expected at most {MOST_SHARED_WITH} namespaces, or * for all")
    for each in names:
        if each != EVERYBODY and not values.is_object_name(each):
            raise ValueError("expected names of namespaces separated by commas, or *")
    return frozenset(names)
