"""Network namespaces of a test's own: a switch, and hosts that are plugged into it with ``eth0``.

Everything is made under a name of this process and removed again; nothing else is touched.
"""

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

LIMIT_S = 120.0
"""No wait is about speed: a machine that has no processor to spare may take so long to start a program."""
SWITCH, ELSEWHERE = "br0", "br1"
"""The bridge that all are plugged into, and the one of those that are cut off."""
_numbers = itertools.count(1)


def wait_for(what: str, condition: Callable[[], object], limit_s: float = LIMIT_S) -> float:
    """Wait for ``condition``; return the seconds that took. Raises: AssertionError."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"{what} did not come in {limit_s:g} s"
        time.sleep(0.01)
    return time.monotonic() - began


def missing(*programs: str) -> str:
    """Return why there can be no network of one's own here; "" if there can."""
    absent = [name for name in ("ip", "sysctl", "unshare", *programs) if not shutil.which(name)]
    if absent:
        return f"{', '.join(absent)} not installed"
    if os.geteuid() != 0 or not _works("true"):
        return "needs root and network namespaces"
    if not _works("ip link add br0 type bridge && ip link add one type veth peer name two"):
        return "the kernel has no bridge or no veth"
    return ""


def missing_filter() -> str:
    """Return why frames cannot be lost by chance here; "" if they can."""
    if not shutil.which("nft"):
        return "nft not installed"
    rule = "add table bridge f; add chain bridge f c; add rule bridge f c numgen random mod 100 < 20 drop"
    return "" if _works(f"nft '{rule}'") else "the kernel cannot filter in a bridge"


def _works(script: str) -> bool:
    argv = ["unshare", "-n", "sh", "-c", script]
    return subprocess.run(argv, check=False, capture_output=True, timeout=30).returncode == 0


def ip(*arguments: str) -> str:
    found = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True, timeout=30)
    assert found.returncode == 0, f"ip {' '.join(arguments)}: {found.stderr}"
    return found.stdout


class Network:
    """The switch and its hosts; :meth:`close` ends whatever runs in them."""

    def __init__(self) -> None:
        self.prefix = f"pcv{os.getpid()}-{next(_numbers)}"
        self._spaces: list[str] = []
        self.switch = ""

    def start(self) -> None:
        self.switch = self.space("sw")
        for bridge in (SWITCH, ELSEWHERE):
            ip("-n", self.switch, "link", "add", bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0")
            ip("-n", self.switch, "link", "set", bridge, "up")

    def space(self, name: str) -> str:
        space = f"{self.prefix}-{name}"
        ip("netns", "add", space)
        self._spaces.append(space)
        ip("-n", space, "link", "set", "lo", "up")
        return space

    def host(self, name: str, *addresses: str) -> str:
        """Create a namespace with an ``eth0`` in the switch; return its name."""
        space, port = self.space(name), f"p{name}"
        ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", self.switch)
        ip("-n", self.switch, "link", "set", port, "master", SWITCH, "up")
        names = ("all", "default", "eth0")
        self.inside(space, "sysctl", "-qw", *(f"net.ipv6.conf.{one}.accept_dad=0" for one in names))
        ip("-n", space, "link", "set", "eth0", "up")
        self.address(space, *addresses)
        return space

    def address(self, space: str, *addresses: str) -> None:
        """Return a host addresses; nothing happens where it has them."""
        for address in addresses:
            ip("-n", space, "addr", "replace", address, "dev", "eth0", *(("nodad",) if ":" in address else ()))

    def cable(self, name: str, *, plugged: bool) -> None:
        ip("-n", self.switch, "link", "set", f"p{name}", "up" if plugged else "down")

    def move(self, name: str, bridge: str) -> None:
        """Plug a host into another bridge; it sees no interruption of its link."""
        ip("-n", self.switch, "link", "set", f"p{name}", "master", bridge)

    def inside(self, space: str, *argv: str) -> None:
        done = subprocess.run(["ip", "netns", "exec", space, *argv], check=False, capture_output=True, timeout=30)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.decode(errors='replace')}"

    def pids(self, space: str) -> Sequence[int]:
        return [int(pid) for pid in ip("netns", "pids", space).split()] if space in self._spaces else []

    def close(self) -> None:
        for space in self._spaces:
            for pid in self.pids(space):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ip("netns", "del", space)
        self._spaces.clear()
