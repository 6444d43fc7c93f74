"""When certificates and tokens stop being valid."""

import base64
import binascii
from typing import NamedTuple

import msgspec
from cryptography import x509


class _Claims(msgspec.Struct):
    exp: float = 0.0
    iat: float = 0.0
    nbf: float = 0.0


class Validity(NamedTuple):
    """From when to when something is valid, in seconds since the epoch; 0.0 where it does not say."""

    starts: float = 0.0
    ends: float = 0.0


def certificate_validity(pem: bytes, now_s: float) -> Validity:
    """Return the validity of the first certificate to expire that is still valid; if none is, of the last one.

    A CA file may keep an expired certificate beside its successor; a client's file begins with its own.

    Raises:
        ValueError: there is no certificate in it.
    """
    found = [
        Validity(each.not_valid_before_utc.timestamp(), each.not_valid_after_utc.timestamp())
        for each in x509.load_pem_x509_certificates(pem)
    ]
    found.sort(key=lambda each: each.ends)
    return next((each for each in found if each.ends > now_s), found[-1])


def token_validity(token: str) -> Validity:
    """Return from when (``iat`` or ``nbf``) to when (``exp``) a JSON Web Token is valid; for other tokens nothing.

    Nothing is verified: that is the API server's business.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return Validity()
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(text, type=_Claims)
    except (binascii.Error, ValueError, RecursionError):
        return Validity()
    return Validity(claims.iat or claims.nbf, claims.exp)
