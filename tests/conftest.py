"""Settings for the whole suite."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from pyconfd.system import secrecy

# Hundreds of tests start the program: where nothing may be kept, each compiles all of it anew, for half of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A busy machine is no failure: no deadline. The same examples each time: a red run can be repeated.
settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Have no test's passwords hidden in what another one reads."""
    former = dict(secrecy._known)
    yield
    secrecy._known.clear()
    secrecy._known.update(former)
