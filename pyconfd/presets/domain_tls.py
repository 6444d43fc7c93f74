"""TLS of domains: the annotations that ask for it, and the certificates that answer.

``pyconfd.io/tls-secret`` names a TLS Secret in the namespace of the Service. ``pyconfd.io/ssl-redirect: "false"``
leaves out the redirect of plain HTTP; ``pyconfd.io/hsts`` is for how many seconds browsers shall come by HTTPS only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import OutputFile
from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import VersionedDict
from pyconfd.presets import values
from pyconfd.presets.certificates import (
    ServedCertificate,
    TlsOptions,
    certificate_for,
    is_usable,
    notes_on,
    presented,
)
from pyconfd.presets.cluster import Cluster

SECRET, REDIRECT, HSTS = "tls-secret", "ssl-redirect", "hsts"
TLS_ANNOTATIONS = (SECRET, REDIRECT, HSTS)


class DomainTlsClaim(msgspec.Struct, frozen=True, gc=False):
    """The TLS Secret that an object names, and what goes with it; ``hsts`` is a time in seconds, None for none."""

    secret: str
    redirect: bool = True
    hsts: int | None = None


class DomainTls(msgspec.Struct, frozen=True, gc=False):
    """How a domain is served over TLS, for templates.

    ``path`` and ``names`` are its line in a list of certificates, "" while there is no certificate. ``redirect``: plain
    HTTP is sent to HTTPS. ``hsts`` is the time in seconds that browsers are told, None for none.
    """

    path: str
    names: str
    redirect: bool
    hsts: int | None


class AnnotationError(ValueError):
    """An annotation, by its short ``name``, that cannot be what its ``value`` says."""

    def __init__(self, name: str, value: str, detail: str) -> None:
        self.name, self.value = name, value
        super().__init__(detail)


def tls_claim(annotations: Mapping[str, str], domain: str, proto: str) -> DomainTlsClaim | None:
    """Return what annotations (by their short names) ask for; None without any of :data:`TLS_ANNOTATIONS`.

    Raises:
        AnnotationError: one of them cannot be.
    """
    given = {name: value for name in TLS_ANNOTATIONS if (value := annotations.get(name, ""))}
    if not given:
        return None
    name = next(iter(given))
    wrong = ""
    if name != SECRET:
        wrong = "it has an effect beside pyconfd.io/tls-secret only"
    elif proto != "http":
        wrong = "TLS ends here for domains with proto http only; with proto https it goes through to the pods"
    elif values.address(domain) is not None:
        wrong = "clients choose a certificate by a host name, and never by an address"
    elif not values.is_object_name(given[SECRET]):
        wrong = "not the name of a Secret, which has to be in the namespace of the Service"
    if wrong:
        raise AnnotationError(name, given[name], wrong)
    try:
        name = REDIRECT
        redirect = values.flag(given.get(REDIRECT, "true"))
        name = HSTS
        hsts = values.seconds(given[HSTS]) if HSTS in given else None
    except ValueError as error:
        raise AnnotationError(name, given[name], str(error)) from None
    return DomainTlsClaim(given[SECRET], redirect, hsts)


class WantedTls(NamedTuple):
    """What one object asks for one domain."""

    ref: ObjectRef
    tls: DomainTlsClaim

    @property
    def key(self) -> Key:
        """The Secret that it names."""
        return Key(self.ref.namespace, self.tls.secret)


@dataclass(frozen=True, slots=True)
class DomainCertificates:
    """The certificates of all domains with TLS, and what follows from them; replaced, never changed."""

    wanted: Mapping[str, WantedTls] = field(default_factory=lambda: VersionedDict({}))
    served: Mapping[str, ServedCertificate] = field(default_factory=lambda: VersionedDict({}))
    views: Mapping[str, DomainTls] = field(default_factory=lambda: VersionedDict({}))
    files: tuple[OutputFile, ...] = ()
    refused: tuple[Refusal, ...] = ()
    presented: Mapping[str, PresentedCertificate] = field(default_factory=lambda: VersionedDict({}))

    def updated(
        self,
        changed: Mapping[str, WantedTls | None],
        secrets: Collection[Key] | None,
        cluster: Cluster,
        options: TlsOptions,
    ) -> "DomainCertificates":
        """Return the same after some domains ``changed`` (None: no TLS), and some ``secrets`` (None: all of them).

        It is the very same object where nothing did; so is each view that stays as it was.
        """
        if secrets is None or secrets:
            named = {domain: want for domain, want in self.wanted.items() if secrets is None or want.key in secrets}
            changed = {**named, **changed}
        if not changed:
            return self
        wanted, served, views = dict(self.wanted), dict(self.served), dict(self.views)
        for domain, want in changed.items():
            before = views.pop(domain, None)
            wanted.pop(domain, None)
            served.pop(domain, None)
            if want is None:
                continue
            found = certificate_for(cluster, options, *want.key, (domain,))
            redirect = want.tls.redirect and is_usable(found, domain, cluster, options)
            made = DomainTls(found.path, found.names if found.path else "", redirect, want.tls.hsts)
            wanted[domain], served[domain] = want, found
            views[domain] = before if before is not None and before == made else made
        files = {each.path: each.file for each in served.values() if each.file is not None}
        in_order = tuple(files[path] for path in sorted(files))
        refused = tuple(_unresolved(wanted[domain], each.fault) for domain, each in served.items() if each.fault)
        fields = f"annotation {SECRET}", "annotation domain"
        notes = (each for domain, got in served.items() for each in notes_on(got, wanted[domain].ref, fields, domain))
        shown = {domain: each for domain, got in served.items() if (each := presented(got, domain)) is not None}
        return DomainCertificates(wanted, served, views, in_order, (*refused, *notes), shown)


def _unresolved(want: WantedTls, fault: str) -> Refusal:
    return Refusal(want.ref, f"annotation {SECRET}", want.tls.secret, RefusalReason.NO_CERTIFICATE, fault)
