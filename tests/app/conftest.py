"""What all tests of the calls behind commands share."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_restored() -> Iterator[None]:
    """Have the logging that a call configured end with its test."""
    root, ours = logging.getLogger(), logging.getLogger("pyconfd")
    before = (root.handlers[:], root.level, ours.level)
    yield
    structlog.reset_defaults()
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)
