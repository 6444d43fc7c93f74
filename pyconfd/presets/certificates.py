"""A private key and its certificate chain in the form that HAProxy loads."""

import base64
import binascii
import re
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
_PEM_LINE = 64
_SHORTEST_RSA = 2048
_SHORTEST_EC = 224
"""What OpenSSL takes at security level 2, Debian's. Source: ``SSL_CTX_set_security_level(3)``."""


def from_base64(value: str, name: str) -> str:
    """Return the text of a Secret's value.

    Raises:
        ValueError: it is no base64 of ASCII text; the message names it and holds nothing of it.
    """
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64 of a PEM file") from None


# Reading an RSA key takes milliseconds, and certificates change rarely.
@lru_cache(maxsize=1024)
def pair(key_text: str, chain_text: str, *, key_name: str, chain_name: str) -> str:
    """Return the key, then the chain, each block on lines of its own without blank lines between them.

    Raises:
        ValueError: The pair is missing, unreadable, or its halves do not belong together. The message holds no secret.
    """
    key = _blocks(key_text, key_name, "PRIVATE KEY")
    chain = _blocks(chain_text, chain_name, "CERTIFICATE")
    try:
        certificate, *_intermediates = [x509.load_pem_x509_certificate(block.encode()) for block in chain]
        public = load_pem_private_key(key[0].encode(), password=None).public_key()
        same = certificate.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        ) == public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        short = _too_short(certificate.public_key())
    except _UNREADABLE:
        raise ValueError(
            f"{key_name} or {chain_name} cannot be read: it must be an unencrypted PEM key and certificate chain"
        ) from None
    if not same:
        raise ValueError(f"{key_name} does not belong to {chain_name}: put a matching pair there")
    if short:
        raise ValueError(f"{key_name} is {short}: OpenSSL refuses it; put a longer one there")
    return "".join(f"{block}\n" for block in key[:1] + chain)


def key_body(text: str) -> str:
    """Return the first private key in a PEM file as :func:`pair` writes it.

    Raises:
        ValueError: there is none.
    """
    return _blocks(text, "the value", "PRIVATE KEY")[0]


def _too_short(public: CertificatePublicKeyTypes) -> str:
    """Return how short a key is that HAProxy would not load, and with it nothing else; "" where it is long enough."""
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < _SHORTEST_RSA:
        return f"an RSA key of {public.key_size} bits"
    if isinstance(public, ec.EllipticCurvePublicKey) and public.key_size < _SHORTEST_EC:
        return f"an EC key of {public.key_size} bits"
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
