"""When certificates and tokens stop being valid."""

import base64
import binascii

import msgspec
from cryptography import x509


class _Claims(msgspec.Struct):
    exp: float = 0.0


def certificate_expiry(pem: bytes, now_s: float) -> float:
    """Give when the first certificate of a PEM text that is still valid expires; if all did, the last one.

    A CA file may keep an expired certificate beside its successor; a client's file begins with its own.

    Raises:
        ValueError: there is no certificate in it.
    """
    ends = sorted(each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(pem))
    return next((end for end in ends if end > now_s), ends[-1])


def token_expiry(token: str) -> float:
    """Give ``exp`` of a JSON Web Token in seconds since the epoch, 0.0 for tokens of other kinds.

    Nothing is verified: that is the API server's business.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return 0.0
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(claims, type=_Claims).exp
    except (binascii.Error, ValueError, RecursionError):
        return 0.0
