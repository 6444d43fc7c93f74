"""One load balancer of a bed: its settings, its processes, and what they say."""

import csv
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyconfd.cli.commands.vip import vip_config
from pyconfd.haproxy.runtime.sockets import ask as tell
from pyconfd.settings import resolve
from pyconfd.vip.control import ask
from tests.vip.network import LIMIT_S, ip, wait_for

if TYPE_CHECKING:
    import subprocess

    from tests.vip.bed import Bed

ROOT = Path(__file__).parents[2]
VIP4, VIP6 = "10.77.0.100", "fd77::100"
_CAP_SYS_RESOURCE = 24
API = "http://10.77.0.50:6443"
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")

_PYCONFD = """runtime_dir = "{folder}/pyconfd"
state_dir = "{folder}/pyconfd-state"
[kubernetes]
api_servers = ["{api}"]
[templates]
dir = "{templates}"
[templates.vars]
http_bind = ["{own}:80", "{vip4}:80", "[{vip6}]:80"]
https_bind = ""
runtime_socket = "{folder}/haproxy.sock"
[claims]
allow_endpoints = ["10.77.0.0/24"]
[haproxy]
conf = "{folder}/haproxy.cfg"
master_socket = "{folder}/master.sock"
pid_file = "{folder}/haproxy.pid"
reload_method = "master"
unit = ""
[apply]
retry_min_s = 0.2
retry_max_s = 1.0
"""

_ALONE = """global
    stats socket {folder}/haproxy.sock mode 600 level admin expose-fd listeners
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
frontend http-in
    bind {vip4}:80
    bind [{vip6}]:80
    bind {own}:80
    http-request return status 200 content-type text/plain string {name}
frontend stats
    bind 127.0.0.1:8404
    monitor-uri /health
"""


class Node:
    """One load balancer; its processes are those that its units would start."""

    def __init__(self, bed: "Bed", number: int) -> None:
        self.bed, self.number, self.name = bed, number, f"lb{number}"
        self.addresses = (f"10.77.0.1{number}", f"fd77::1{number}")
        self.folder = bed.folder / self.name
        self.folder.mkdir()
        self.space = ""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.clock = self.folder / "clock"
        self._keepalived_since = 0.0

    @property
    def config(self) -> Path:
        return self.folder / "pyconfd.toml"

    def write(self) -> None:
        """Write the settings that hook, keepalived and pyconfd share; without pyconfd, haproxy's configuration too."""
        nodes = "\n".join(
            f'[[vip.nodes]]\nname = "{one.name}"\naddresses = {json.dumps(one.addresses)}' for one in self.bed.nodes
        )
        extra = "\n".join(f"{key} = {json.dumps(value)}" for key, value in self.bed.settings.items())
        if self.bed.pool:
            nodes += f"""
[[vip.routers]]
virtual_router_id = 52
addresses = ["{self.bed.pool}/24"]
[addresses]
pool = ["{self.bed.pool}"]
"""
        values = {
            "folder": self.folder, "own": self.addresses[0], "vip4": VIP4, "vip6": VIP6, "name": self.name,
            "api": API, "templates": self.bed.templates,
        }  # fmt: skip
        daemon = _PYCONFD.format(**values) if self.bed.cluster else ""
        self.config.write_text(
            f"""{daemon}
[vip]
interface = "eth0"
virtual_router_id = 51
addresses = ["{VIP4}/24", "{VIP6}/64"]
node = "{self.name}"
ports = ["80"]
haproxy_pid_file = "{self.folder}/haproxy.pid"
haproxy_socket = "{self.folder}/haproxy.sock"
keepalived_pid_file = "{self.folder}/keepalived.pid"
vrrp_pid_file = "{self.folder}/vrrp.pid"
script_dir = "{self.bed.scripts}"
runtime_dir = "{self.folder}/run"
state_dir = "{self.folder}/state"
{extra}
{nodes}
"""
        )
        if not daemon:
            (self.folder / "haproxy.cfg").write_text(_ALONE.format(**values))
        self.clock.write_text("+0\n")

    # Its processes

    def spawn(self, name: str, *argv: str, own_clock: bool = True) -> None:
        environment = self._environment() if own_clock else {}
        self.processes[name] = self.bed.spawn(self.space, self.folder / f"{name}.log", *argv, **environment)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one process: haproxy's master, keepalived's parent, the hook or pyconfd."""
        self.processes[name].send_signal(number)

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """End one process and return its exit status."""
        self.send(name, number)
        return self.processes[name].wait(LIMIT_S)

    def has_ended(self, name: str) -> bool:
        return name in self.processes and self.processes[name].poll() is not None

    def start_again(self, name: str) -> None:
        """Start a process again if it has ended."""
        if self.has_ended(name):
            starts = {"haproxy": self.start_haproxy, "keepalived": self.start_keepalived, "hook": self.start_hook}
            (starts | {"pyconfd": self.start_pyconfd})[name]()

    def _environment(self) -> dict[str, str]:
        if not self.bed.clocks:
            return {}
        # The clock of this node alone; what measures durations goes on.
        return {
            "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def start_pyconfd(self) -> None:
        argv = (sys.executable, "-m", "pyconfd", "run", "--config", str(self.config))
        # The clock of its time.sleep() is none that can be set apart from the other one.
        self.spawn("pyconfd", *argv, own_clock=False)

    def start_haproxy(self) -> None:
        wait_for("haproxy's configuration", (self.folder / "haproxy.cfg").exists)
        files = ("-f", str(self.folder / "haproxy.cfg"), "-p", str(self.folder / "haproxy.pid"))
        self.spawn("haproxy", "haproxy", "-W", "-S", str(self.folder / "master.sock"), *files)
        wait_for("haproxy's socket", (self.folder / "haproxy.sock").exists)

    def start_hook(self) -> None:
        arguments = ("-m", "pyconfd.vip.hook", "--config", str(self.config))
        # With the capabilities that its unit leaves it, and no others.
        self.spawn("hook", "setpriv", "--bounding-set=-all,+net_admin,+net_raw,+kill", sys.executable, *arguments)
        wait_for("the hook", lambda: self.status().get("node"))

    def configure_keepalived(self) -> None:
        settings = resolve({"config": str(self.config)}, {}).settings
        (self.folder / "keepalived.conf").write_text(vip_config(settings))

    def start_keepalived(self) -> None:
        # It refuses to start while a former one is dead and not yet buried.
        if "keepalived" in self.processes:
            self.processes["keepalived"].wait(LIMIT_S)
        vrrp = self.folder / "vrrp.pid"
        with suppress(FileNotFoundError):  # it takes its file away when it ends
            former = Path("/proc") / vrrp.read_text().strip()
            wait_for("the end of the former keepalived", lambda: not former.exists())
        self.configure_keepalived()
        pids = ("-p", str(self.folder / "keepalived.pid"), "-r", str(vrrp))
        argv = ("keepalived", "-n", "-l", "-D", "-P", "-f", str(self.folder / "keepalived.conf"), *pids)
        before, self._keepalived_since = self._states_entered(), time.time()
        self.spawn("keepalived", *argv)
        wait_for("keepalived's state", lambda: self._states_entered() > before)

    def restart_fenced_keepalived(self) -> None:
        """Start it again, as its unit does, where the hook killed it for its silence: a busy machine may cause that."""
        if self.has_ended("keepalived") and any(
            (one["what"], one.get("cause")) == ("address.fenced", "keepalived_hangs")
            and one["at"] >= self._keepalived_since
            for one in self.transitions()
        ):
            self.start_keepalived()

    def reload_keepalived(self) -> None:
        """Send it SIGHUP. Where it may not raise its limits, 2.2.7 is killed by them soon after: that is awaited."""
        before = self.pid("vrrp")
        self.send("keepalived", signal.SIGHUP)
        if not raises_limits():
            wait_for("the death after the reload", lambda: not Path(f"/proc/{before}").exists())

    def _states_entered(self) -> int:
        return self.log("keepalived").lower().count(") entering ")

    def pid(self, name: str) -> int:
        return int((self.folder / f"{name}.pid").read_text())

    def kill(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to those with these pid files: haproxy, keepalived, vrrp."""
        for name in names:
            os.kill(self.pid(name), number)

    def pids(self, name: str = "") -> Sequence[int]:
        """Return the processes of this node, those of a name or all."""
        observers = self.bed.observer.pids
        pids = [pid for pid in self.bed.network.pids(self.space) if pid not in observers]
        return [pid for pid in pids if name in {"", _command(pid)}]

    def signal_haproxies(self, number: signal.Signals) -> None:
        for pid in self.pids("haproxy"):
            with suppress(ProcessLookupError):  # a worker of before a reload, which ended meanwhile
                os.kill(pid, number)

    def tell_haproxy(self, order: str) -> str:
        return tell(str(self.folder / "haproxy.sock"), order)

    def crash(self) -> None:
        """End every process at once, as a machine without power; the caller unplugs it."""
        for pid in self.pids():
            with suppress(ProcessLookupError):  # a worker that ended with its master, a script that was done
                os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait(LIMIT_S)

    def boot(self) -> None:
        """Start everything on a machine that knows nothing of floating addresses."""
        for address in (f"{VIP4}/24", f"{VIP6}/64"):
            if self.holds(address.partition("/")[0]):
                ip("-n", self.space, "addr", "del", address, "dev", "eth0")
        self.start()

    def start(self) -> None:
        if self.bed.cluster:
            self.start_pyconfd()
        self.start_haproxy()
        self.start_hook()
        self.start_keepalived()

    def stop(self) -> None:
        """Stop everything as the units do."""
        for name in ("keepalived", "hook", "pyconfd", "haproxy"):
            if name in self.processes:
                self.end(name, signal.SIGTERM)

    # What is seen

    @property
    def hardware(self) -> str:
        words = ip("-n", self.space, "-o", "link", "show", "dev", "eth0").split()
        return words[words.index("link/ether") + 1]

    def holds(self, address: str = VIP4) -> bool:
        return f" {address}/" in ip("-n", self.space, "-o", "addr", "show", "dev", "eth0")

    def status(self) -> dict[str, Any]:
        """Return what the hook says, nothing where none runs; one that was kept from running gets its time."""
        began = time.monotonic()
        while time.monotonic() - began < LIMIT_S:
            try:
                return self.order("status")
            except TimeoutError:
                continue
            except (OSError, ValueError):
                break
        return {}

    def order(self, order: str) -> dict[str, Any]:
        return dict(ask(f"{self.folder}/run/control.sock", {"do": order}))

    def is_ready(self) -> bool:
        """Return whether it could take the address now, or has it, and the clients would be answered.

        A hook that was started after keepalived does not know that it is a backup. A haproxy that was cut off from its
        servers takes some seconds to find that they are there again.
        """
        status = self.status()
        if not status or not all(check["ok"] for check in status["checks"].values()):
            return False
        roles = {router["role"] for router in status["routers"]}
        able = all(router["hold"] == "able" for router in status["routers"]) and "fault" not in roles
        return able and self._reaches_servers()

    def _reaches_servers(self) -> bool:
        try:
            rows = csv.DictReader(self.tell_haproxy("show stat").lstrip("# ").splitlines())
        except OSError:
            return False
        servers = [row for row in rows if row["svname"] not in {"FRONTEND", "BACKEND"} and row["status"] != "no check"]
        # A server is up when haproxy starts, until its first checks have failed.
        return all(row["status"] == "UP" and row["check_status"].endswith("OK") for row in servers)

    def transitions(self) -> list[dict[str, Any]]:
        return list(self.status().get("transitions", []))

    def did(self, what: str, cause: str = "") -> bool:
        return any(one["what"] == what and cause in one.get("cause", "") for one in self.transitions())

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def raises_limits() -> bool:
    capabilities = next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)
    return bool(int(capabilities.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
