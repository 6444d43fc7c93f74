"""The virtual hosts of the shared frontends: of hosts that are served, and of those that an object only names. Pure.

A host of which nothing can be served (each path is refused, a domain has no port, its objects are gone for a moment)
stays known: its requests get 404, and go to nobody's wildcard or Ingress without a host, with cookies and credentials.
That holds whichever presets are in use.
"""

from pyconfd.derived import Collection, Derived, Read
from pyconfd.presets.host_ownership import ANY_HOST, HostDecision, HostRights, Hosts
from pyconfd.presets.routing.types import HostKind, VirtualHost

SHARED_FRONTENDS = "http"
"""The name of the shared frontends in the names of their maps."""


def shared_virtual_host(host: str, hosts: HostRights, wildcard: HostKind = HostKind.ONE_LABEL) -> VirtualHost:
    """Return the virtual host of a host; ``wildcard`` says which hosts belong to one that begins with ``*.``."""
    decision = hosts.decision(host)
    owner = decision.owner if decision is not None else None
    kind, virtual_host = HostKind.ANY if host == ANY_HOST else HostKind.EXACT, host
    if host.startswith("*."):
        kind, virtual_host = wildcard, host[1:] if wildcard is HostKind.ANY_DEPTH else host
    return VirtualHost(
        virtual_host,
        SHARED_FRONTENDS,
        host,
        kind,
        namespace=owner.namespace if owner is not None else "",
        below_foreign=hosts.is_below_foreign(host),
    )


def named_virtual_hosts(hosts: Hosts, served: Collection[str, VirtualHost]) -> Collection[str, VirtualHost]:
    """Return the virtual hosts of hosts that are named and not served; ``served`` are those that presets serve."""

    def named(read: Read, host: str, decision: HostDecision) -> VirtualHost | None:
        # A domain with HTTP has its own virtual host. One without, and what is kept, need one where another
        # namespace would answer.
        if decision.domain_proto == "http" or read(served, host) is not None:
            return None
        rights = hosts.rights(read)
        # Where Ingresses ask for it too its certificate is presented: without a virtual host those of others were
        # served there.
        only_domains = bool(decision.domain_proto) and not decision.has_paths
        if (only_domains or decision.owner is None) and not rights.falls_to_another(host):
            return None
        had = decision.owner or (decision.kept.owner if decision.kept is not None else None)
        of_ingress = had is None or had.kind == "Ingress"
        return shared_virtual_host(host, rights, HostKind.ONE_LABEL if of_ingress else HostKind.ANY_DEPTH)

    return Derived(hosts.decisions, named, "named virtual hosts")
