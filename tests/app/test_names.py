"""The composition root gives each of its names when it is asked for, and does not make a command wait for the rest."""

import subprocess
import sys

import pytest

from pyconfd import app

LIBRARIES = ("jinja2", "kubernetes", "cryptography", "etcd3gw", "pyroute2")


def test_every_name_is_a_function() -> None:
    assert {name for name in app.__all__ if not callable(getattr(app, name))} == set()
    assert not hasattr(app, "no such name")


@pytest.mark.parametrize(
    ("name", "needs"),
    [("status", set()), ("servers", set()), ("run_tests", {"jinja2", "cryptography"}), ("vip_config", {"jinja2"})],
)
def test_a_command_does_not_wait_for_libraries_that_it_has_no_use_for(name: str, needs: set[str]) -> None:
    code = f"""
import gc, sys
from pyconfd import app
app.{name}
assert gc.isenabled()
print(*(each for each in {LIBRARIES} if each in sys.modules))"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert set(found.stdout.split()) == needs


@pytest.mark.parametrize("name", [names[0] for names in app._MODULES.values()])
def test_each_part_can_be_the_first_that_is_imported(name: str) -> None:
    """The end-to-end tests start pyconfd with all of them imported: tests/world/forked.py."""
    subprocess.run([sys.executable, "-c", f"from pyconfd import app\napp.{name}"], timeout=100, check=True)
