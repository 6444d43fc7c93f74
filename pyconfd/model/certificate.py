"""Certificates that are presented for hosts, and how urgently each has to be renewed."""

from enum import IntEnum

import msgspec

_HOUR_S = 3600
_DAY_H = 24
_SOON_H, _NOW_H = 14 * _DAY_H, 3 * _DAY_H


class Expiry(IntEnum):
    """How urgent a renewal is."""

    NOT_DUE = 0
    SOON = 1
    """Less than 14 days are left."""
    NOW = 2
    """Less than 3 days are left."""
    EXPIRED = 3


def expiry_of(not_after: int, hour: int) -> Expiry:
    """Return how urgent the renewal of what expires at a time in seconds is, at ``hour``, both since the epoch.

    Without a time (0) nothing is due.
    """
    left_h = not_after / _HOUR_S - hour
    if not hour or left_h >= _SOON_H:
        return Expiry.NOT_DUE
    if left_h >= _NOW_H:
        return Expiry.SOON
    return Expiry.NOW if left_h > 0 else Expiry.EXPIRED


class PresentedCertificate(msgspec.Struct, frozen=True, gc=False):
    """The certificate of one Secret for one host; ``host`` is "" for the default certificate, ``*`` for any host.

    ``not_after`` is when it expires, in seconds since the epoch.
    """

    namespace: str
    secret: str
    host: str
    not_after: int
