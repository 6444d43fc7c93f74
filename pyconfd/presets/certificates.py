"""Certificates: a private key and its chain in the form that HAProxy loads, and what of TLS Secrets can be served.

A preset whose objects name TLS Secrets calls :func:`certificate_for` for each reference. It gives the file to load
(into ``PresetResult.files``), the fields of its line in a list of certificates (a fragment prints them with
``map_entry``), and why the reference is not resolved, if it is not.
"""

import base64
import binascii
import datetime as dt
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from pyconfd.model.certificate import Expiry, PresentedCertificate
from pyconfd.model.context import ALL_NAMESPACES, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Secret, why_left_out
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.views import CertificateView

TLS = "kubernetes.io/tls"
"""The type of Secrets with a key and a certificate. Source: Kubernetes' ``core/v1`` API."""


_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.UnsupportedGeneralNameType)
_PEM_LINE = 64
_MOST_BYTES = 1 << 20
_SHORTEST_RSA = 2048
_SHORTEST_EC = 224
"""What OpenSSL takes at security level 2, Debian's. Source: ``SSL_CTX_set_security_level(3)``."""
_LONGEST_RSA = 8192
"""A handshake with a key of 16,384 bits takes a processor for 0.1 s."""
_WEAK_HASHES = (hashes.MD5, hashes.SHA1)
_HOUR_S = 3600
_LONGEST_FILE = 200
"""In characters, without the ending: a file system takes 255, and a file has a longer name while it is written."""


class KeyPair(NamedTuple):
    """What is known of a key with its chain. ``not_after`` is in seconds since the epoch, ``names`` are in lower case.

    ``pem`` is the key, then the chain, as HAProxy loads them. ``issuer`` is text of any kind.
    """

    pem: str
    names: tuple[str, ...]
    not_after: int
    issuer: str


NO_CERTIFICATE = "no certificate"


class ReadSecret(msgspec.Struct, frozen=True, gc=False):
    """What was read of one TLS Secret.

    ``view`` is the certificate to use, that of an earlier state of the Secret where the present one has a ``fault``;
    None where there is none to use. ``fault`` says what is wrong with the Secret, and holds nothing of it. ``about`` is
    for people: what certificate is in the Secret as it is now, its names, when it expires and who issued it. ``expiry``
    is that of the certificate to use.
    """

    view: CertificateView | None
    fault: str = ""
    about: str = NO_CERTIFICATE
    expiry: Expiry = Expiry.NOT_DUE


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The settings that decide about certificates.

    ``directory`` (absolute) is where the certificates of Secrets are installed. ``namespaces`` are those whose Secrets
    are read, ``*`` for all. ``default`` is the Secret that clients get who name no host, or an unknown one; None: they
    get none. ``passwords``: Secrets of type Opaque are read there, too.
    """

    directory: str = "/etc/haproxy/generated/files/secrets"
    namespaces: tuple[str, ...] = ()
    default: Key | None = None
    passwords: bool = False


NO_SECRETS = TlsOptions()
"""No Secret is read."""


class ServedCertificate(msgspec.Struct, frozen=True, gc=False):
    """What a reference to a TLS Secret leads to; equal for equal Secrets, names and settings.

    ``file`` goes to ``PresetResult.files``; None: there is no certificate to serve. ``path`` and ``names`` are the line
    in a list of certificates, as ``map_entry('LIST', path, names)`` with ``map_file('LIST', repeated=true)``: the
    certificate is presented to clients that ask for one of these names and to nobody else. ``fault`` is "", or why the
    reference is not resolved, for a Refusal with the reason NO_CERTIFICATE; both ``file`` and ``fault`` are there while
    an earlier state of the Secret stays in use.
    """

    file: OutputFile | None = None
    names: str = ""
    fault: str = ""
    certificate: CertificateView | None = None
    expiry: Expiry = Expiry.NOT_DUE

    @property
    def path(self) -> str:
        """Where the certificate is installed, "" for none."""
        return self.file.path if self.file is not None else ""


class Secrets(Protocol):
    """Where TLS Secrets are looked up."""

    def secret(self, key: Key) -> ReadSecret | None:
        """Return what was read of a TLS Secret, None where there is none."""
        ...

    def denies_secrets_of(self, namespace: str) -> bool:
        """Return whether the Secrets of a namespace may not be read."""
        ...


def certificate_for(
    secrets: Secrets, options: TlsOptions, namespace: str, name: str, hosts: Sequence[str]
) -> ServedCertificate:
    """Return the certificate of the TLS Secret ``namespace/name`` for ``hosts``, or why there is none. Never raises.

    ``hosts`` are names that the referring object was given, wildcards (``*.example.com``) included; without any, the
    certificate answers for the names that it holds. Whether ``namespace`` may be referred to is for the caller to know.
    """
    read = secrets.secret(Key(namespace, name))
    if read is None:
        return ServedCertificate(fault=missing_secret(secrets, options, namespace, name, TLS))
    # HAProxy takes a line without names as one for all names of the certificate; a map entry needs a value, and [] is
    # a list without options.
    names = " ".join(hosts) or "[]"
    subject = f"Secret {namespace}/{name}"
    if read.view is None:
        return ServedCertificate(names=names, fault=f"{subject}: {read.fault}")
    fault = f"{subject}: {read.fault}; its former certificate stays in use" if read.fault else ""
    path = pem_path(options.directory, namespace, name)
    return ServedCertificate(
        OutputFile(FileKind.CERTIFICATE, path, read.view.pem), names, fault, read.view, read.expiry
    )


def is_named(served: ServedCertificate, host: str) -> bool:
    """Return whether there is a certificate, and it names ``host`` ("" for any)."""
    return served.certificate is not None and (not host or covers(served.certificate.names, host))


def is_usable(served: ServedCertificate, host: str, secrets: Secrets, options: TlsOptions) -> bool:
    """Return whether clients that ask for ``host`` get a certificate that names it, its own or the default one."""
    default = secrets.secret(options.default) if options.default is not None else None
    presented = served.certificate or (default.view if default is not None else None)
    return presented is not None and covers(presented.names, host)


_EXPIRES = {
    Expiry.SOON: (RefusalReason.CERTIFICATE_EXPIRES_SOON, "expires"),
    Expiry.NOW: (RefusalReason.CERTIFICATE_EXPIRES_NOW, "expires"),
    Expiry.EXPIRED: (RefusalReason.CERTIFICATE_EXPIRED, "expired"),
}


def notes_on(served: ServedCertificate, ref: ObjectRef, fields: tuple[str, str], host: str) -> Iterator[Refusal]:
    """Return what ``ref`` should know of the certificate for ``host`` ("" for any).

    ``fields`` are where it names the Secret, and the host.
    """
    view, (of_secret, of_host) = served.certificate, fields
    if view is None:
        return
    subject = f"the certificate of Secret {view.namespace}/{view.name}"
    if host and not covers(view.names, host):
        names = values.shortened(", ".join(view.names)) or "no host"
        detail = f"{subject} is for {names}: clients refuse it here; put one there that names this host"
        yield Refusal(ref, of_host, host, RefusalReason.CERTIFICATE_MISMATCH, detail)
    if served.expiry in _EXPIRES:
        reason, verb = _EXPIRES[served.expiry]
        until = dt.datetime.fromtimestamp(view.not_after, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
        yield Refusal(ref, of_secret, view.name, reason, f"{subject} {verb} on {until}: renew it")


def presented(served: ServedCertificate, host: str) -> PresentedCertificate | None:
    """Return what is presented for a host; None where there is nothing."""
    view = served.certificate
    return PresentedCertificate(view.namespace, view.name, host, view.not_after) if view is not None else None


def pem_path(directory: str, *parts: str) -> str:
    """Return the path of a file for what ``parts`` name: no other parts have the same, and a file system takes it.

    Names of objects have up to 253 characters, so several of them are too long for the name of a file.
    """
    name = ".".join(parts)
    if len(name) > _LONGEST_FILE:
        digest = hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]
        name = f"{name[: _LONGEST_FILE - 17]}_{digest}"
    return f"{directory}/{name}.pem"


def why_unread(options: TlsOptions, namespace: str, kind: str = "Secrets") -> str:
    """Return that Secrets or ConfigMaps of a namespace are not read, "" where they are."""
    if namespace in options.namespaces or ALL_NAMESPACES in options.namespaces:
        return ""
    return f"{kind} of namespace {values.shortened(namespace)} are not read: add it to kubernetes.secret_namespaces"


def missing_secret(secrets: Secrets, options: TlsOptions, namespace: str, name: str, kind: str) -> str:
    """Return why there is no such Secret of the type ``kind``, for the status of an object that names it."""
    shown = f"{values.shortened(namespace)}/{values.shortened(name)}"
    if unread := why_unread(options, namespace):
        return unread
    if secrets.denies_secrets_of(namespace):
        return f"Secrets of namespace {values.shortened(namespace)} may not be read: apply the output of `pyconfd rbac`"
    return f"there is no Secret {shown} of type {kind}"


def read_secret(secret: Secret, hour: int) -> ReadSecret:
    """Return the certificate of a TLS Secret, or what is wrong with it; ``hour`` is the time in hours since the epoch.

    Without a time (0) nothing has expired.
    """
    try:
        key, chain = (from_base64((secret.data or {}).get(each, ""), each) for each in ("tls.key", "tls.crt"))
        pair = read_pair(key, chain, key_name="tls.key", chain_name="tls.crt")
    except ValueError as error:
        return ReadSecret(None, str(error))
    about, meta = _about(pair), secret.metadata
    if hour and pair.not_after <= hour * _HOUR_S:
        return ReadSecret(None, "tls.crt has expired: renew it", about)
    return ReadSecret(CertificateView(meta.namespace, meta.name, pair.pem, pair.names, pair.not_after), "", about)


def _about(pair: KeyPair) -> str:
    names = ", ".join(pair.names) or "no name"
    until = dt.datetime.fromtimestamp(pair.not_after, dt.UTC).date()
    return f"certificate for {values.shortened(names)}, until {until}, issued by {values.shortened(pair.issuer)}"


def covers(names: Sequence[str], host: str) -> bool:
    """Return whether a certificate for ``names`` is one for ``host``: as it is, or by a wildcard of one label."""
    return host in names or f"*.{host.partition('.')[2]}" in names


def from_base64(value: str, name: str) -> str:
    """Return the text of a Secret's value.

    Raises:
        ValueError: it is no base64 of ASCII text, or too long; the message names it and holds nothing of it.
    """
    if reason := why_left_out(name, value):
        raise ValueError(reason)
    if len(value) * 3 // 4 > _MOST_BYTES:
        raise ValueError(f"{name} is larger than 1 MB")
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64 of a PEM file") from None


def pair(key_text: str, chain_text: str, *, key_name: str, chain_name: str) -> str:
    """Return the key, then the chain, each block on lines of its own without blank lines between them.

    Raises:
        ValueError: as :func:`read_pair`.
    """
    return read_pair(key_text, chain_text, key_name=key_name, chain_name=chain_name).pem


# A Secret is read by the source, to know whether its former state is needed, and by the presets.
@lru_cache(maxsize=16_384)
def read_pair(key_text: str, chain_text: str, *, key_name: str, chain_name: str) -> KeyPair:
    """Return a key and its chain as far as HAProxy can load them.

    Raises:
        ValueError: The pair is missing, unreadable, or its halves do not belong together. The message holds no secret.
    """
    key = _blocks(key_text, key_name, "PRIVATE KEY")
    chain = _blocks(chain_text, chain_name, "CERTIFICATE")
    try:
        certificates = [x509.load_pem_x509_certificate(block.encode()) for block in chain]
        # To check an RSA key takes 30 ms; HAProxy does not do it either.
        private = load_pem_private_key(key[0].encode(), password=None, unsafe_skip_rsa_key_validation=True)
        own = certificates[0]
        same = _public_bytes(own.public_key()) == _public_bytes(private.public_key())
        wrong = next(filter(None, map(_unfit, certificates)), "")
        names = _names(own)
        not_after, issuer = int(own.not_valid_after_utc.timestamp()), own.issuer.rfc4514_string()
    except _UNREADABLE:
        raise ValueError(
            f"{key_name} or {chain_name} cannot be read: it must be an unencrypted PEM key and certificate chain"
        ) from None
    if not same:
        raise ValueError(f"{key_name} does not belong to {chain_name}: put a matching pair there")
    if wrong:
        raise ValueError(f"{chain_name} has {wrong}, which is not served: put another one there")
    return KeyPair("".join(f"{block}\n" for block in key[:1] + chain), names, not_after, issuer)


def key_body(text: str) -> str:
    """Return the first private key in a PEM file as :func:`pair` writes it.

    Raises:
        ValueError: there is none.
    """
    return _blocks(text, "the value", "PRIVATE KEY")[0]


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _unfit(certificate: x509.Certificate) -> str:
    """Return what of a certificate HAProxy would not load, and with it nothing else; "" where it would."""
    public = certificate.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        if not _SHORTEST_RSA <= public.key_size <= _LONGEST_RSA:
            return f"an RSA key of {public.key_size} bits"
    elif isinstance(public, ec.EllipticCurvePublicKey):
        if public.key_size < _SHORTEST_EC:
            return f"an EC key of {public.key_size} bits"
    elif not isinstance(public, ed25519.Ed25519PublicKey):
        return "a key that is none of RSA, EC and Ed25519"
    # Nobody relies on the signature of a root.
    if certificate.issuer != certificate.subject and isinstance(certificate.signature_hash_algorithm, _WEAK_HASHES):
        return f"a signature with {certificate.signature_hash_algorithm.name.upper()}"
    return ""


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names, of which a template may print each; the common name only where there is no other."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        found = extension.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        found = [str(each.value) for each in common]
    return tuple(dict.fromkeys(name for each in found if (name := _host_name(each))))


def _host_name(value: str) -> str:
    try:
        return values.host_name(value)
    except ValueError:
        return ""


def _blocks(text: str, name: str, kind: str) -> list[str]:
    # Written again with lines as PEM has them: OpenSSL reads neither one long line nor blanks in place of lines.
    blocks = []
    for label, body in _PEM_BLOCK.findall(text):
        if label.endswith(kind):
            joined = "".join(body.split())
            lines = [joined[at : at + _PEM_LINE] for at in range(0, len(joined), _PEM_LINE)]
            blocks.append("\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"]))
    if not blocks:
        raise ValueError(f"{name} holds no {kind}")
    return blocks
