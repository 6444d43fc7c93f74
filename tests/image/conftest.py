"""One bake for all machines of a run, and one network for each module that has machines."""

import os
from collections.abc import Iterator

import pytest

from tests.image.bake import Baked, appliance, first, prepare
from tests.image.machine import Machine, lan
from tests.image.trees import alone
from tests.image.world import World
from tests.matrix import Unavailable

USER_DATA = """\
#cloud-config
write_files:
  - path: /etc/pyconfd/pyconfd.toml
    permissions: "0644"
    content: |
{settings}
"""
"""All that a machine is told."""


@pytest.fixture(scope="session")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Baked:
    """An appliance of this checkout, made by Packer's null source; the first of several workers makes it for all."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "appliance"
    try:
        prepare()
        with lan(), alone():
            return Baked((folder / "upper", *first()), folder / "output") if folder.exists() else appliance(folder)
    except Unavailable as error:
        pytest.skip(f"no tree of Debian 12 can be made: {error}")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A network with a cluster in it."""
    with lan(), World() as found:
        found.serve("shop")
        yield found


def user_data(settings: str) -> str:
    """Return cloud-init's text that writes the one file."""
    return USER_DATA.format(settings="\n".join(f"      {line}" for line in settings.splitlines()))


def seeded(machine: Machine, settings: str) -> Machine:
    """Seed a machine with its one file, by cloud-init's NoCloud data source."""
    seed = "/var/lib/cloud/seed/nocloud"
    machine.prepare(f"{seed}/user-data", user_data(settings))
    machine.prepare(f"{seed}/meta-data", f"instance-id: {machine.name}\nlocal-hostname: {machine.name}\n")
    # Its address is the container's business, and the tree has no locales.
    machine.prepare("/etc/cloud/cloud.cfg.d/99-test.cfg", "network: {config: disabled}\nlocale: false\n")
    return machine


@pytest.fixture(scope="module")
def lb(world: World, baked: Baked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine after its first boot: it serves Service ``shop``. Each test leaves it so."""
    machine = Machine("lb1", 1, baked.layers, tmp_path_factory.mktemp("lb1"))
    with seeded(machine, world.settings()):
        machine.until(lambda: machine.ask("shop").startswith("shop-"), "the first boot serves")
        # preflight, which looks at the settings too, may still be to come.
        machine.run("systemctl", "is-system-running", "--wait", check=False)
        yield machine
