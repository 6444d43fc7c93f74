"""A life of the Debian package beside a haproxy that serves an operator's own file, with the real systemd."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.image.asking import Clients, Window, traffic, window
from tests.image.bake import prepare, wheelhouse
from tests.image.machine import Machine
from tests.image.trees import ARCHIVE, base, missing
from tests.image.world import POD_PORT, World
from tests.matrix import Unavailable
from tests.release.checkout import built, checkout, repacked
from tests.release.conftest import with_wheels

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PYCONFD_TEST_IMAGE"), reason="make image-test installs packages"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(1800),
]

OWN = "/etc/haproxy/haproxy.cfg"
GENERATED = "/etc/haproxy/generated/haproxy.cfg"
SETTINGS = "/etc/pyconfd/pyconfd.toml"
OLDER, NEWER = "9.0.0", "9.1.0"
TAKEOVER_S = 10.0
"""Far more than a restart of haproxy takes."""


def operators(pods: list[tuple[str, str]]) -> str:
    """Return what Debian's package has, and what an operator adds to it."""
    servers = "".join(f"    server {name} {address}:{POD_PORT} check\n" for name, address in pods)
    return f"""
frontend web
    bind :80
    default_backend shop
backend shop
{servers}"""


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The package in an older and a newer version."""
    try:
        prepare()
    except Unavailable as error:
        pytest.skip(f"no tree of Debian 12 can be made: {error}")
    sources = checkout(tmp_path_factory.mktemp("newer") / "sources", version=NEWER)
    with_wheels(sources, wheelhouse())
    (newer,) = built(sources, "deb").glob("*.deb")
    return repacked(newer, tmp_path_factory.mktemp("older"), OLDER), newer


@pytest.fixture
def lb(debs: tuple[Path, Path], world: World, tmp_path: Path) -> Iterator[Machine]:
    """A machine with Debian's haproxy, which serves what an operator wrote."""
    machine = Machine("lb1", 1, (base(),), tmp_path / "lb1")
    with machine:
        machine.until(lambda: machine.active("multi-user.target") == "active", "it is up")
        machine.systemctl("enable", "--now", "systemd-networkd")
        for number, deb in enumerate(debs):
            machine.path(f"/root/{number}.deb").write_bytes(deb.read_bytes())
        machine.run("sh", "-c", f"cd {ARCHIVE} && apt-get -q update && apt-get -q install -y haproxy")
        pods = [("shop-1", "10.79.16.1"), ("shop-2", "10.79.16.2")]
        machine.write(OWN, machine.path(OWN).read_text() + operators(pods))
        machine.systemctl("reload", "haproxy")
        machine.until(lambda: machine.ask("shop").startswith("shop-"), "the operator's own file serves")
        yield machine


@contextmanager
def untouched(machine: Machine) -> Iterator[None]:
    """No request fails, and haproxy is the same process."""
    former = machine.pid("haproxy")
    with traffic(machine):
        yield
    assert machine.pid("haproxy") == former


def installed(machine: Machine, package: str, version: str) -> str:
    """Install a package as docs say; return what was said."""
    said = machine.run("dpkg", "-i", package, timeout_s=300).stdout
    assert machine.said("pyconfd", "--version") == f"pyconfd, version {version}"
    return said


def follows(machine: Machine, world: World) -> None:
    """A change of the cluster arrives."""
    pod = world.scale_up("shop")
    machine.until(lambda: machine.ask("shop") == pod, "the new pod is asked")
    machine.until(lambda: pod in machine.path(GENERATED).read_text(), "the file follows")


def serving(machine: Machine, version: str) -> None:
    def reached() -> bool:
        now = machine.status()
        return (now.get("version"), now.get("phase")) == (version, "serving")

    machine.until(reached, f"{version} serves")


def test_a_life_of_the_package(lb: Machine, world: World) -> None:
    with untouched(lb):
        what_cannot_start_is_told(lb)
        first_installation(lb, world)
    takeover(lb)
    with untouched(lb):
        follows(lb, world)
        installed(lb, "/root/1.deb", NEWER)
        serving(lb, NEWER)
        follows(lb, world)
    reboot(lb, NEWER)
    with untouched(lb):
        downgrade(lb)
        follows(lb, world)
        removal(lb)
    lb.kill()
    lb.boot()
    lb.until(lambda: lb.ask("shop").startswith("shop-"), "without the package, after the power was away")
    with untouched(lb):
        installed(lb, "/root/1.deb", NEWER)
        lb.systemctl("start", "pyconfd")
        serving(lb, NEWER)
        follows(lb, world)
        purge(lb)
    lb.systemctl("restart", "haproxy")
    lb.until(lambda: lb.ask("shop") in {"shop-1", "shop-2"}, "the operator's own file serves again")
    assert lb.effective("haproxy")[0] == "root"


def what_cannot_start_is_told(lb: Machine) -> None:
    good = lb.path(OWN).read_text()
    lb.write(OWN, good.replace("stats socket /run/haproxy/admin.sock", "stats socket /var/run/admin.sock"))
    assert "WARNING: as the user haproxy" in installed(lb, "/root/0.deb", OLDER)
    lb.run("dpkg", "--purge", "pyconfd")
    lb.write(OWN, good)


def first_installation(lb: Machine, world: World) -> None:
    said = installed(lb, "/root/0.deb", OLDER)
    assert "WARNING" not in said
    assert lb.active("pyconfd") == "inactive"
    assert lb.path(GENERATED).read_text() == lb.path(OWN).read_text()
    # A certificate is renewed, say, before anybody has configured pyconfd; or the operator changes something.
    lb.write(OWN, lb.path(OWN).read_text() + "# changed\n")
    lb.systemctl("reload", "haproxy")
    assert lb.path(GENERATED).read_text() == lb.path(OWN).read_text()
    lb.run("pyconfd", "fragments", "--copy-to", "/etc/pyconfd")
    lb.write(SETTINGS, world.settings())
    lb.run("runuser", "-u", "pyconfd", "--", "pyconfd", "check")
    lb.systemctl("enable", "--now", "pyconfd")
    assert lb.status()["version"] == OLDER
    lb.until(lambda: "pyconfd adopt" in lb.said("pyconfd", "status"), "it waits for the operator")
    lb.run("pyconfd", "adopt")
    lb.until(lambda: "systemctl restart haproxy.service" in lb.said("pyconfd", "status"), "haproxy is root's still")
    lb.systemctl("reload", "haproxy")


def takeover(lb: Machine) -> None:
    """The one moment: requests fail while haproxy is restarted, and at no other time."""
    moment: list[Window] = []
    with Clients(lb.address) as clients:
        with window(moment):
            lb.systemctl("restart", "haproxy")
        lb.until(lambda: lb.status().get("phase") == "serving", "pyconfd has haproxy")
    assert clients.outside(moment) == []
    assert moment[0][1] - moment[0][0] < TAKEOVER_S
    assert lb.effective("haproxy")[0] == "haproxy"


def reboot(lb: Machine, version: str) -> None:
    lb.shut_down()
    lb.boot()
    lb.until(lambda: lb.ask("shop").startswith("shop-"), "it serves after a reboot")
    serving(lb, version)


def downgrade(lb: Machine) -> None:
    """First with settings that it does not take."""
    former, good = lb.pid("pyconfd"), lb.path(SETTINGS).read_text()
    lb.write(SETTINGS, good.replace("api_servers", "api_server"))
    assert "does not take the settings" in installed(lb, "/root/0.deb", OLDER)
    assert lb.pid("pyconfd") == former
    lb.write(SETTINGS, good)
    lb.systemctl("try-restart", "pyconfd")
    serving(lb, OLDER)


def removal(lb: Machine) -> None:
    kept = {path: lb.path(path).read_text() for path in (SETTINGS, GENERATED)}
    lb.run("apt-get", "-q", "remove", "-y", "pyconfd")
    assert lb.active("pyconfd") == "inactive"
    assert {path: lb.path(path).read_text() for path in kept} == kept
    lb.systemctl("reload", "haproxy")


def purge(lb: Machine) -> None:
    lb.run("apt-get", "-q", "purge", "-y", "pyconfd")
    left = lb.said("find", "/opt/pyconfd", "/etc/pyconfd", "/var/lib/pyconfd", "/etc/haproxy/generated", "/run/pyconfd")
    assert [line for line in left.splitlines() if "No such file" not in line] == []
    assert lb.said("systemctl", "--failed", "--plain", "--no-legend") == ""
