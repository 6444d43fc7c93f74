"""Pauses between attempts."""

from random import Random

from pyconfd.system.backoff import Backoff


def test_backoff_grows_to_its_limit_and_starts_again() -> None:
    backoff = Backoff(first_s=1, last_s=5)

    assert [backoff.delay_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.delay_s() == 1


def test_jitter_draws_from_the_upper_half() -> None:
    backoff = Backoff(first_s=1, last_s=8, jitter=Random(1))

    drawn = [backoff.delay_s() for _ in range(200)]

    assert 0.5 <= drawn[0] <= 1
    assert 1 <= drawn[1] <= 2
    assert all(4 <= delay_s <= 8 for delay_s in drawn[3:])
    assert len(set(drawn)) > 100
