"""Settings for the whole suite."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from pyconfd.system import secrecy

# Hundreds of tests start the program: where nothing may be kept, each compiles all of it again, for half of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Who runs the suite in the background has it ignored, and so had every program that tests send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure: no deadline. The same examples each time: a red run can be repeated.
settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", deadline=None, max_examples=2000)
# Of a mutant only whether it is caught counts, not the smallest example (tests/mutants.py).
settings.register_profile("mutants", settings.get_profile("suite"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("TEST_PROFILE", "suite"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tables before properties against a mutant: most fall to the first."""
    if os.environ.get("TEST_PROFILE") == "mutants":
        items.sort(key=is_hypothesis_test)


TOGETHER = (
    "tests/etcd/",  # each has an etcd that syncs to disk, and leases that run out meanwhile
    "tests/image/test_disk.py",  # a bake of its own, beside the one of the others
    "tests/image/test_package.py",  # a machine of its own, without a bake
    "tests/image/",  # one bake, and machines with one root each
    "tests/release/",  # one release
    "tests/vip/test_faults.py",  # one bed for all but a few
    "tests/test_mutants.py",  # one reading of all imports
)
"""Folders and files whose tests one worker runs, one after the other; the first that fits counts.
(Marks of pytest-xdist 3.8 mean nothing to pytest 9.)"""


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out the folders that stay together first, and all other tests one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """Return the scheduler."""
    return _Scheduling(config, log)


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Forget a test's passwords, which would be hidden in what another one reads."""
    former = secrecy._known
    yield
    secrecy._know(former)


def pytest_collection_finish() -> None:
    """Take thousands of tests and all modules out of the collector's sight: it looked through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
