"""The sites of the shared frontends: of hosts that are served, and of those that an object only names. Pure.

A host of which nothing can be served (each path is refused, a domain has no port, its objects are gone for a moment)
stays known: its requests get 404, and go to nobody's wildcard or Ingress without a host, with cookies and credentials.
That holds whichever presets are in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from pyconfd.model.versioned import VersionedDict, differing, replaced
from pyconfd.presets.host_ownership import ANY_HOST, NO_HOSTS, HostOwnership
from pyconfd.presets.routing.types import HostKind, Site

SHARED_FRONTENDS = "http"
"""The name of the shared frontends in the names of their maps."""

_NOTHING: Mapping[str, Site] = VersionedDict({})


def shared_site(host: str, hosts: HostOwnership, wildcard: HostKind = HostKind.ONE_LABEL) -> Site:
    """Return the site of a host; ``wildcard`` says which hosts belong to one that begins with ``*.``."""
    decision = hosts.decisions.get(host)
    owner = decision.owner if decision is not None else None
    kind, site = HostKind.ANY if host == ANY_HOST else HostKind.EXACT, host
    if host.startswith("*."):
        kind, site = wildcard, host[1:] if wildcard is HostKind.ANY_DEPTH else host
    return Site(
        site,
        SHARED_FRONTENDS,
        host,
        kind,
        namespace=owner.namespace if owner is not None else "",
        below_foreign=hosts.is_below_foreign(host),
    )


@dataclass(frozen=True, slots=True)
class NamedSites:
    """The ``sites`` of hosts that are named and not served; ``served`` are the sites that presets serve."""

    hosts: HostOwnership = NO_HOSTS
    served: tuple[Mapping[str, Site], ...] = ()
    sites: Mapping[str, Site] = field(default_factory=lambda: _NOTHING)

    def updated(self, hosts: HostOwnership, served: tuple[Mapping[str, Site], ...]) -> "NamedSites":
        """Return the sites after a change; only hosts are looked at that are others."""
        moved = differing(self.hosts.decisions, hosts.decisions)
        pairs = zip_longest(self.served, served, fillvalue=_NOTHING)
        again = {*moved, *chain.from_iterable(differing(before, now) for before, now in pairs)}
        if any(host == ANY_HOST or host.startswith("*.") for host in moved):
            again.update(host for host, each in hosts.decisions.items() if each.domain_protos or each.owner is None)
        found = {host: None if any(host in each for each in served) else _named(host, hosts) for host in again}
        return NamedSites(hosts, served, replaced(self.sites, found, rank=str))


def _named(host: str, hosts: HostOwnership) -> Site | None:
    """Return the site of a host that no preset serves paths of, None where it needs none."""
    decision = hosts.decisions.get(host)
    # A domain with HTTP has its own site. One without, and what is kept, need one where another namespace would answer.
    if decision is None or "http" in decision.domain_protos:
        return None
    if (decision.domain_protos or decision.owner is None) and not hosts.falls_to_another(host):
        return None
    had = decision.owner or (decision.kept.owner if decision.kept is not None else None)
    of_ingress = had is None or had.kind == "Ingress"
    return shared_site(host, hosts, HostKind.ONE_LABEL if of_ingress else HostKind.ANY_DEPTH)
