"""What haproxy's unit runs before it starts haproxy, with the real shell and the real check."""

import hashlib
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pyconfd.haproxy.config.text import mark

SCRIPT = Path(__file__).parents[2] / "systemd" / "pyconfd-haproxy-prestart"
HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or ""

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed"),
]


def good(name: str) -> str:
    return (
        f"# {name}\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n"
        "frontend f\n  bind 127.0.0.1:1\n  http-request return status 503\n"
    )


BAD = "frontend f\n  reqadd X\n"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Machine:
    def __init__(self, root: Path) -> None:
        self.config = root / "generated" / "haproxy.cfg"
        self.generations = root / "generations"
        self.config.parent.mkdir()
        self.socket = root / "boot.sock"
        self.lock = root / "lock"

    def generation(self, number: int, text: str, *, ran_well: bool = False) -> None:
        directory = self.generations / f"{number:06}"
        directory.mkdir(parents=True)
        (directory / "haproxy.cfg").write_text(text)
        (directory / "meta.json").write_text(json.dumps({"generation": {"digest": digest_of(text)}}, indent=1))
        if ran_well:
            (directory / "ran-well").touch()

    def install(self, text: str) -> None:
        """Install it as pyconfd does, with its digest in it."""
        self.config.write_text(mark(text, digest_of(text)))

    def start(self) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "CONFIG": str(self.config),
            "PYCONFD_GENERATIONS": str(self.generations),
            "PYCONFD_HAPROXY": HAPROXY,
            "PYCONFD_BOOTSTRAP_SOCKET": str(self.socket),
            "PYCONFD_LOCK": str(self.lock),
        }
        return subprocess.run(
            ["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=100
        )

    def others(self) -> set[str]:
        return {path.name for path in self.config.parent.iterdir()} - {"haproxy.cfg"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_good_configuration_is_left_alone(machine: Machine) -> None:
    machine.config.write_text(good("installed"))
    machine.generation(7, good("seven"))
    before = machine.config.stat()
    found = machine.start()
    assert (found.returncode, found.stderr) == (0, "")
    assert machine.config.stat().st_ino == before.st_ino
    assert machine.others() == set()


def test_without_a_file_the_newest_generation_serves(machine: Machine) -> None:
    machine.generation(9, good("nine"))
    machine.generation(10, good("ten"))
    found = machine.start()
    assert found.returncode == 0
    assert machine.config.read_text() == good("ten")
    assert stat.S_IMODE(machine.config.stat().st_mode) == 0o640
    assert "generation 000010 serves" in found.stderr
    assert machine.others() == set()


def test_it_steps_back_to_the_newest_generation_that_passes(machine: Machine) -> None:
    machine.generation(8, good("eight"))
    machine.generation(9, good("nine"))
    machine.generation(10, BAD)
    (machine.generations / "000011").mkdir()
    (machine.generations / ".000012.half").mkdir()
    found = machine.start()
    assert machine.config.read_text() == good("nine")
    assert "generation 000010 does not pass the check" in found.stderr


def test_a_broken_file_gives_way_and_is_kept(machine: Machine) -> None:
    machine.config.write_text(BAD)
    machine.generation(3, good("three"))
    assert machine.start().returncode == 0
    assert machine.config.read_text() == good("three")
    assert machine.config.with_name("haproxy.cfg.refused").read_text() == BAD


def test_an_empty_file_is_a_broken_one(machine: Machine) -> None:
    machine.config.touch()
    machine.generation(3, good("three"))
    machine.start()
    assert machine.config.read_text() == good("three")


def test_a_broken_file_without_a_generation_is_left_for_haproxy_to_explain(machine: Machine) -> None:
    machine.config.write_text(BAD)
    found = machine.start()
    assert found.returncode == 0
    assert machine.config.read_text() == BAD
    assert "no good generation" in found.stderr


def test_the_very_first_start_waits_on_a_local_socket_only(machine: Machine) -> None:
    found = machine.start()
    assert found.returncode == 0
    assert "first start" in found.stderr
    text = machine.config.read_text()
    assert "bind" not in text
    assert str(machine.socket) in text
    checked = subprocess.run([HAPROXY, "-W", "-c", "-f", machine.config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr
    assert machine.start().stderr == ""


def test_a_link_in_the_place_of_the_configuration_is_replaced_not_written_through(machine: Machine) -> None:
    victim = machine.config.parent.parent / "victim"
    victim.write_text("precious")
    machine.config.symlink_to(victim)
    machine.generation(3, good("three"))
    machine.start()
    assert victim.read_text() == "precious"
    assert not machine.config.is_symlink()
    assert machine.config.read_text() == good("three")


def test_what_did_not_run_well_gives_way_to_what_did_and_is_kept(machine: Machine) -> None:
    machine.generation(7, good("seven"), ran_well=True)
    machine.generation(8, BAD, ran_well=True)
    machine.generation(9, good("nine"))
    machine.install(good("nine"))
    found = machine.start()
    assert machine.config.read_text() == good("seven")
    assert machine.config.with_name("haproxy.cfg.unproven").read_text() == mark(good("nine"), digest_of(good("nine")))
    assert "did not run for long enough" in found.stderr
    assert machine.start().stderr == ""


@pytest.mark.parametrize("why", ["it ran well", "none ran well", "not pyconfd's", "pyconfd runs"])
def test_an_installed_one_stays(machine: Machine, why: str) -> None:
    machine.generation(7, good("seven"), ran_well=why != "none ran well")
    machine.generation(9, good("nine"), ran_well=why == "it ran well")
    machine.install(good("by hand" if why == "not pyconfd's" else "nine"))
    before = machine.config.read_text()
    holder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", "pyconfd"])
    try:
        machine.lock.write_text(f"{holder.pid if why == 'pyconfd runs' else 2**22 + 1}\n")
        found = machine.start()
    finally:
        holder.kill()
        holder.wait()
    assert (found.returncode, found.stderr, machine.config.read_text()) == (0, "", before)


def test_without_a_usable_file_one_that_ran_well_comes_before_a_newer_one(machine: Machine) -> None:
    machine.generation(7, good("seven"), ran_well=True)
    machine.generation(9, good("nine"))
    machine.start()
    assert machine.config.read_text() == good("seven")


def test_a_directory_that_is_missing_is_an_error_and_no_crash(machine: Machine) -> None:
    machine.config.parent.rmdir()
    machine.generation(3, good("three"))
    found = machine.start()
    assert found.returncode == 1
    assert "cannot write" in found.stderr
