"""A machine with the real systemd: systemd-nspawn on an overlay of cached trees, in a network of the test's own."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.image import cgroups
from tests.world.clients import ask

PATIENCE_S = 60.0
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)

_ASK_PAGE = """\
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", 9101, timeout=5)
connection.request("GET", "/status.json")
sys.stdout.buffer.write(connection.getresponse().read())
"""

NETWORK = """\
[Match]
Name=host0
[Network]
Address={address}/16
Address={address6}/64
IPv6AcceptRA=no
IPv6DuplicateAddressDetection=0
LinkLocalAddressing=no
"""


class Lan:
    """The one network of the test's machines; the test itself is at :attr:`host` in it."""

    host, host6 = "10.79.0.1", "fd79::1"
    vip, vip6 = "10.79.0.100", "fd79::100"
    pods = "10.79.16.0/20"

    @staticmethod
    def address(number: int) -> str:
        return f"10.79.0.{10 + number}"

    @staticmethod
    def address6(number: int) -> str:
        return f"fd79::{10 + number}"


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def lan() -> Iterator[Lan]:
    """Move this thread into a network namespace with a bridge for machines; what it starts follows."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _checked(_LIBC.unshare(_CLONE_NEWNET))
    try:
        for argv in (
            "link set lo up",
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
            f"address add {Lan.host}/16 dev br0",
            f"address add {Lan.host6}/64 dev br0 nodad",
            "link set br0 up",
            # Every address of the pods' network is one of this machine's.
            f"route add local {Lan.pods} dev lo",
        ):
            subprocess.run(["ip", *argv.split()], check=True)
        yield Lan()
    finally:
        _checked(_LIBC.setns(before, _CLONE_NEWNET))
        os.close(before)


def _numbers_its_own(pid: str) -> bool:
    """Whether a process lives in another PID namespace than this one; not where it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


class Machine:
    """A machine on ``lowers`` (newest first), whose changes go to ``folder`` and outlive a reboot."""

    def __init__(self, name: str, number: int, lowers: Sequence[Path], folder: Path) -> None:
        self.name, self.number = name, number
        self.address, self.address6 = Lan.address(number), Lan.address6(number)
        self.folder = folder
        self.console = folder / "console.log"
        self._lowers = lowers
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._groups: list[Path] = []
        self.upper, self._work, self._mount = (folder / part for part in ("upper", "work", "root"))
        for path in (self.upper, self._work, self._mount):
            path.mkdir(parents=True)

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    # Power

    def prepare(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.upper / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def boot(self) -> None:
        layers = ":".join(str(lower) for lower in self._lowers)
        options = f"lowerdir={layers},upperdir={self.upper},workdir={self._work}"
        mount = f"mount -t overlay overlay -o '{options}' '{self._mount}'"
        network = NETWORK.format(address=self.address, address6=self.address6)
        self.prepare("/etc/systemd/network/10-host0.network", network)
        self.prepare("/etc/hostname", f"{self.name}\n")
        nspawn = (
            f"systemd-nspawn --quiet --directory={self._mount} --boot --register=no --keep-unit --machine={self.name}"
            " --network-veth --network-bridge=br0 --resolv-conf=off --timezone=off --console=read-only"
            " --kill-signal=SIGRTMIN+3 systemd.show_status=false"
        ) + ("" if cgroups.UNIFIED.exists() else " systemd.unified_cgroup_hierarchy=0")
        self._groups = cgroups.make(self.name)
        enter = " && ".join(f"echo $$ > '{group}/cgroup.procs'" for group in self._groups)
        script = f"{enter} && {mount} && exec {nspawn}"
        with self.console.open("ab") as console:
            self._nspawn = subprocess.Popen(
                # It goes with the test, however that ends; so does what it mounts.
                ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self._init = 0
        self.until(self._answers, f"{self.name} boots")

    def _answers(self) -> bool:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise AssertionError(
                f"{self.name} ended with {self._nspawn.returncode}:\n{self.console.read_text()[-3000:]}"
            )
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        # What mounts its root, and the process that makes its namespaces, come before its init.
        inits = [int(pid) for pid in children if _numbers_its_own(pid)]
        if not inits:
            return False
        self._init = inits[0]
        return self.run("test", "-S", "/run/systemd/private", check=False).returncode == 0

    def shut_down(self) -> None:
        """Stop it as ``poweroff`` does, and wait."""
        assert self._nspawn is not None
        os.kill(self._init, signal.SIGRTMIN + 4)
        self._nspawn.wait(PATIENCE_S * 3)
        cgroups.remove(self._groups)

    def kill(self) -> None:
        if self._nspawn is None or self._nspawn.poll() is not None:
            return
        if self._init:
            # systemd-nspawn sees it, clears the machine's network away and ends.
            os.kill(self._init, signal.SIGKILL)
        else:
            self._nspawn.kill()
        self._nspawn.wait(PATIENCE_S)
        cgroups.remove(self._groups)

    # Inside

    def path(self, name: str) -> Path:
        """Return a path that leads to a file of the running machine."""
        return Path(f"/proc/{self._init}/root") / name.lstrip("/")

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{target.name}.new")
        fresh.write_text(text)
        fresh.chmod(mode)
        fresh.rename(target)

    def run(self, *argv: str, check: bool = True, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["nsenter", "-t", str(self._init), "-a", "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=timeout_s,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "LC_ALL": "C.UTF-8",
            },
        )
        assert not check or done.returncode == 0, f"{self.name}: {argv} ended with {done.returncode}:\n{done.stdout}"
        return done

    def said(self, *argv: str) -> str:
        """Return what a program in it prints, whatever its exit status."""
        return self.run(*argv, check=False).stdout.strip()

    def systemctl(self, *argv: str) -> str:
        """Run systemctl; return what it prints. Raises: AssertionError: it failed."""
        return self.run("systemctl", *argv).stdout.strip()

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        text = self.systemctl("show", unit, *(f"--property={one}" for one in properties))
        return dict(line.split("=", 1) for line in text.splitlines())

    def active(self, unit: str) -> str:
        """Return ``active``, ``inactive``, ``failed`` and so on."""
        return self.show(unit, "ActiveState")["ActiveState"]

    def idle(self) -> bool:
        """Whether systemd has done all about the appliance's units: a reload goes on from one to the next."""
        jobs = self.said("systemctl", "list-jobs", "--plain", "--no-legend")
        return not re.search(r"pyconfd|haproxy|keepalived|nftables", jobs)

    def pid(self, unit: str) -> int:
        """Return the main process of a unit, as the machine numbers it; 0 for none."""
        return int(self.show(unit, "MainPID")["MainPID"])

    def effective(self, unit: str) -> tuple[str, int]:
        """Return the user and the effective capabilities of a unit's main process."""
        pid = self.pid(unit)
        found = re.search(r"^CapEff:\s*(\w+)$", self.path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        assert found
        return self.said("stat", "-c", "%U", f"/proc/{pid}"), int(found[1], 16)

    def restarted(self, unit: str, former: int) -> bool:
        """Whether a unit is up again, with another main process."""
        return self.active(unit) == "active" and self.pid(unit) not in {0, former}

    def signal(self, unit: str, number: signal.Signals) -> None:
        self.run("kill", f"-{number.value}", str(self.pid(unit)))

    def journal(self, *units: str) -> str:
        """Return what the journal has of these units in this boot, with all that was said until now."""
        self.run("journalctl", "--sync", check=False)
        return self.said("journalctl", "--boot", "--no-pager", "--output=cat", *(f"--unit={unit}" for unit in units))

    def status(self) -> dict[str, Any]:
        """Return what pyconfd says of itself; empty where it does not answer."""
        # The page listens on the machine's loopback; the program is the test's own.
        argv = ["nsenter", "-t", str(self._init), "-n", "--", sys.executable, "-c", _ASK_PAGE]
        asked = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE_S)
        found: dict[str, Any] = json.loads(asked.stdout) if asked.returncode == 0 else {}
        return found

    def ask(self, name: str) -> str:
        """Ask for ``<name>.example.com`` through the balancer; return the pod that answered, or what failed."""
        return ask(80, f"{name}.example.com", address=self.address)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something. Raises: AssertionError: with the journal, after a minute."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                tail = self.said("journalctl", "--boot", "--no-pager", "-n", "60", "--output=short-monotonic")
                processes = self.said("ps", "axo", "pid,ppid,stat,wchan:24,args")
                raise AssertionError(f"not in {PATIENCE_S:g} s: {what}\n{processes}\n{tail}")
            time.sleep(0.05)
