"""Certificates for tests: made fresh, of elliptic curve keys because those are quick to make."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Two PEM files."""

    cert: Path
    key: Path


def _name(common_name: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class CertificateAuthority:
    """A CA whose files live in ``folder``; ``cert`` is its PEM file."""

    def __init__(self, folder: Path, name: str = "fake-ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, now - DAY, now + 3650 * DAY, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.cert = folder / f"{name}.crt"
        self.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, start: dt.datetime, end: dt.datetime, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(issuer_name=self._name, subject_name=subject, public_key=key)
        return builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)

    def server(
        self,
        file_name: str = "server",
        hosts: Sequence[str] = ("127.0.0.1", "::1", "localhost"),
        *,
        expired: bool = False,
    ) -> KeyPair:
        """A server certificate for ``hosts`` (addresses and names)."""
        names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
        return self._issue(file_name, _name("fake-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, expired, names)

    def both(self, file_name: str, hosts: Sequence[str] = ("127.0.0.1", "::1", "localhost")) -> KeyPair:
        """A certificate for a server that is its own client too, as an etcd is."""
        names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(file_name, _name(file_name), usages, False, names)

    def nameless_client(self, file_name: str = "nameless") -> KeyPair:
        """A client certificate without a common name: the only kind that etcd's gateway takes beside users."""
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "pyconfd")])
        return self._issue(file_name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, False)

    def client(
        self, common_name: str = "pyconfd", *, organization: str = "", expired: bool = False, file_name: str = ""
    ) -> KeyPair:
        """A client certificate; the API server takes its common name for the user."""
        subject = _name(common_name, organization)
        return self._issue(file_name or f"client-{common_name}", subject, ExtendedKeyUsageOID.CLIENT_AUTH, expired)

    def _issue(
        self,
        file_name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier | tuple[x509.ObjectIdentifier, ...],
        expired: bool,
        names: x509.SubjectAlternativeName | None = None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        start, end = (now - 30 * DAY, now - DAY) if expired else (now - DAY, now + 365 * DAY)
        builder = (
            self._builder(subject, start, end, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage if isinstance(usage, tuple) else [usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = KeyPair(self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        pair.key.chmod(0o600)
        return pair
