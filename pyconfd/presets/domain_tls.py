"""TLS of domains: the annotations that ask for it, and the certificates that answer.

``pyconfd.io/tls-secret`` names a TLS Secret in the namespace of the Service. ``pyconfd.io/ssl-redirect: "false"``
leaves out the redirect of plain HTTP; ``pyconfd.io/hsts`` is for how many seconds browsers shall come by HTTPS only.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.presets import values
from pyconfd.presets.certificates import (
    Secrets,
    ServedCertificate,
    TlsOptions,
    certificate_for,
    is_usable,
    notes_on,
    presented,
)

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


class DomainCertificate(NamedTuple):
    """The certificate of a domain, how it is served with it, and what of that cannot be, or should be known."""

    served: ServedCertificate
    view: DomainTls
    presented: PresentedCertificate | None
    refused: tuple[Refusal, ...]


def certificate_of(
    ref: ObjectRef, tls: DomainTlsClaim, domain: str, secrets: Secrets, options: TlsOptions
) -> DomainCertificate:
    """Return what the object ``ref`` gets for its domain."""
    served = certificate_for(secrets, options, ref.namespace, tls.secret, (domain,))
    redirect = tls.redirect and is_usable(served, domain, secrets, options)
    view = DomainTls(served.path, served.names if served.path else "", redirect, tls.hsts)
    refused = [*notes_on(served, ref, (f"annotation {SECRET}", "annotation domain"), domain)]
    if served.fault:
        refused.append(Refusal(ref, f"annotation {SECRET}", tls.secret, RefusalReason.NO_CERTIFICATE, served.fault))
    return DomainCertificate(served, view, presented(served, domain), tuple(refused))
