"""A private key and its certificate chain in the form that HAProxy loads."""

import base64
import binascii
import re
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----[A-Za-z0-9+/=\s]+-----END \1-----")


def from_base64(value: str, name: str) -> str:
    """Give the text of a Secret's value.

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
    """Give the key, then the chain, each block on lines of its own without blank lines between them.

    Raises:
        ValueError: The pair is missing, unreadable, or its halves do not belong together. The message holds no secret.
    """
    key = _blocks(key_text, key_name, "PRIVATE KEY")
    chain = _blocks(chain_text, chain_name, "CERTIFICATE")
    try:
        certificate = x509.load_pem_x509_certificate(chain[0].encode())
        public = load_pem_private_key(key[0].encode(), password=None).public_key()
        same = certificate.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        ) == public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            f"{key_name} or {chain_name} cannot be read: it must be an unencrypted PEM key and certificate"
        ) from None
    if not same:
        raise ValueError(f"{key_name} does not belong to {chain_name}: put a matching pair there")
    return "".join(f"{block}\n" for block in key[:1] + chain)


def _blocks(text: str, name: str, kind: str) -> list[str]:
    blocks = [
        "\n".join(line.strip() for line in match.group(0).splitlines() if line.strip())
        for match in _PEM_BLOCK.finditer(text)
        if match.group(1).endswith(kind)
    ]
    if not blocks:
        raise ValueError(f"{name} holds no {kind}")
    return blocks
