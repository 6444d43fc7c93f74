"""What all tests of the calls behind commands share."""

from collections.abc import Iterator

import pytest

from tests.world.log import logging_restored


@pytest.fixture(autouse=True)
def _logs_restored() -> Iterator[None]:
    """End the logging that a call configured with its test."""
    with logging_restored():
        yield
