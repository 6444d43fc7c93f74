"""How urgent the renewal of a certificate is."""

import pytest

from pyconfd.model.certificate import Expiry, expiry_of

HOUR = 400_000
"""Since the epoch, as a time of the tests."""


@pytest.mark.parametrize(
    ("left_h", "expected"),
    [
        (14 * 24, Expiry.NOT_DUE),
        (14 * 24 - 1, Expiry.SOON),
        (3 * 24, Expiry.SOON),
        (3 * 24 - 1, Expiry.NOW),
        (1, Expiry.NOW),
        (0, Expiry.EXPIRED),
        (-1, Expiry.EXPIRED),
    ],
)
def test_the_nearer_the_end_the_more_urgent(left_h: int, expected: Expiry) -> None:
    assert expiry_of((HOUR + left_h) * 3600, HOUR) is expected


def test_without_a_time_nothing_is_due() -> None:
    assert expiry_of(HOUR * 3600, 0) is Expiry.NOT_DUE
