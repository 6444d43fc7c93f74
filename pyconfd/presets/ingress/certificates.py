"""Certificates of Ingresses: whose certificate is presented for a host, and the lines in the list of certificates."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import VersionedDict, differing, replaced
from pyconfd.presets.certificates import ServedCertificate, certificate_for, is_usable, presented
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.host_ownership import HostOwnership
from pyconfd.presets.ingress.changes import NOBODY, ChangedClaims, users_of
from pyconfd.presets.ingress.claims import IngressClaim
from pyconfd.presets.preset import PresetOptions


class HostCertificate(NamedTuple):
    """The Secret whose certificate is presented for a host, and the Ingress that names it."""

    secret: Key
    claimant: Key
    redirect: bool
    https_only: bool
    hsts: int | None


class SecretUse(NamedTuple):
    """One Secret, and what its hosts ask for beside it."""

    served: ServedCertificate
    redirects: tuple[str, ...]
    hsts: tuple[tuple[str, int], ...]


class CertificateLine(NamedTuple):
    """For templates: the line of a Secret in a list of certificates, with ``path`` "" while there is no certificate.

    ``redirects`` are the sites that are left for HTTPS, ``hsts`` has sites and seconds.
    """

    path: str
    names: str
    redirects: tuple[str, ...]
    hsts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Certificates:
    """``hosts`` says whose certificate a host has: that of the oldest Ingress of the namespace that has the host.

    ``asking`` are the Ingresses with a certificate for a host, ``hosts_of`` the hosts of each Secret that is used, and
    ``secrets`` what comes of it. ``presented`` has what clients get, by host.
    """

    cluster: Cluster
    options: PresetOptions
    asking: Mapping[str, frozenset[Key]] = field(default_factory=lambda: VersionedDict({}))
    hosts: Mapping[str, HostCertificate] = field(default_factory=lambda: VersionedDict({}))
    hosts_of: Mapping[Key, tuple[str, ...]] = field(default_factory=lambda: VersionedDict({}))
    secrets: Mapping[Key, SecretUse] = field(default_factory=lambda: VersionedDict({}))
    lines: Mapping[str, "CertificateLine"] = field(default_factory=lambda: VersionedDict({}))
    presented: Mapping[str, PresentedCertificate] = field(default_factory=lambda: VersionedDict({}))

    def updated(
        self,
        changed: ChangedClaims,
        moved: Collection[str],
        cluster: Cluster,
        options: PresetOptions,
    ) -> "Certificates":
        """Return the certificates after claims, the owners of ``moved`` hosts, Secrets or settings changed."""
        asking = users_of(self.asking, changed, lambda claim: (host for item in claim.tls for host in item.hosts))
        stale = {host for claim in changed.both() for item in claim.tls for host in item.hosts}
        stale.update(host for host in moved if host in asking)
        found = {host: _of_host(host, changed.after, asking.get(host, NOBODY), cluster.hosts) for host in stale}
        hosts = replaced(self.hosts, found)
        hosts_of = self._hosts_of(hosts)
        secrets = {
            host.secret
            for name in differing(self.hosts, hosts)
            for each in (self.hosts, hosts)
            if (host := each.get(name))
        }
        changed_secrets = differing(self.cluster.secrets, cluster.secrets)
        secrets |= hosts_of.keys() & set(changed_secrets)
        same = options.tls == self.options.tls and cluster.snapshot.denied == self.cluster.snapshot.denied
        if not same or options.tls.default in changed_secrets:
            secrets |= hosts_of.keys()
        uses = {key: _use(key, hosts_of[key], hosts, cluster, options) if key in hosts_of else None for key in secrets}
        made = replaced(self.secrets, uses)
        lines = {f"{key.namespace}/{key.name}": _line(made.get(key)) for key in uses}
        again = {*differing(self.hosts, hosts), *(host for key in uses for host in hosts_of.get(key, ()))}
        found_now = {
            host: presented(made[hosts[host].secret].served, host) if host in hosts else None for host in again
        }
        return Certificates(
            cluster, options, asking, hosts, hosts_of, made, replaced(self.lines, lines, rank=str),
            replaced(self.presented, found_now),
        )  # fmt: skip

    def _hosts_of(self, hosts: Mapping[str, HostCertificate]) -> Mapping[Key, tuple[str, ...]]:
        found: dict[Key, set[str]] = {}
        for name in differing(self.hosts, hosts):
            for mapping in (self.hosts, hosts):
                if name in mapping:
                    secret = mapping[name].secret
                    now = found.setdefault(secret, set(self.hosts_of.get(secret, ())))
                    now.discard(name)
                    if mapping is hosts:
                        now.add(name)
        return replaced(self.hosts_of, {secret: tuple(sorted(names)) or None for secret, names in found.items()})


def _of_host(
    host: str, claims: Mapping[Key, IngressClaim], asking: Collection[Key], ownership: HostOwnership
) -> HostCertificate | None:
    serving = [claims[key] for key in asking if ownership.is_owner(host, key.namespace)]
    claim = min(serving, key=lambda each: (each.owner.since, each.owner.namespace, each.owner.name), default=None)
    if claim is None:
        return None
    secret = next(item.secret for item in claim.tls if host in item.hosts)
    namespace = claim.owner.namespace
    https_only = any(each.https_only for each in serving)
    return HostCertificate(
        Key(namespace, secret), Key(namespace, claim.owner.name), claim.redirect, https_only, claim.hsts
    )


def _line(use: SecretUse | None) -> CertificateLine | None:
    if use is None:
        return None
    return CertificateLine(use.served.path, use.served.names, use.redirects, use.hsts)


def _use(
    key: Key, hosts: tuple[str, ...], of_host: Mapping[str, HostCertificate], cluster: Cluster, options: PresetOptions
) -> SecretUse:
    served = certificate_for(cluster, options.tls, key.namespace, key.name, hosts)
    redirects = tuple(
        host
        for host in hosts
        if of_host[host].https_only or (of_host[host].redirect and is_usable(served, host, cluster, options.tls))
    )
    hsts = tuple((host, seconds) for host in hosts if (seconds := of_host[host].hsts) is not None)
    return SecretUse(served, redirects, hsts)
