"""Load balancers in network namespaces of their own, with the real keepalived, haproxy and hook, and clients.

With ``cluster`` each also runs pyconfd, behind them all are an API server and pods, and haproxy serves what the cluster
says; without it haproxy answers by itself.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Self

from pyconfd import fragments, keepalived
from tests.vip import network
from tests.vip.client import NAME
from tests.vip.network import ELSEWHERE, LIMIT_S, SWITCH, Network, ip, wait_for
from tests.vip.node import FAKETIME, ROOT, VIP4, VIP6, Node
from tests.vip.observer import Observer, is_double
from tests.vip.traffic import Traffic
from tests.world.appliance import Appliance
from tests.world.cluster import Cluster
from tests.world.objects import EndpointSpec, PortSpec

__all__ = ["FAKETIME", "VIP4", "VIP6", "Bed", "Node", "missing", "wait_for"]

STEADY_S = 0.7
_PODS, _POD_PORT = ("10.77.0.51", "10.77.0.52"), 8080


def missing(*programs: str) -> str:
    """Return why there can be no bed here; "" if there can."""
    return network.missing("keepalived", "haproxy", "setpriv", *programs)


class Bed:
    """``count`` load balancers, clients and a switch; ``settings`` are further ones of ``[vip]``.

    ``clocks`` gives each node a clock that can be set. ``pool`` is an address of a second virtual router, which a
    Service of type LoadBalancer is given.
    """

    def __init__(
        self, count: int = 2, *, cluster: bool = False, clocks: bool = False, pool: str = "", **settings: object
    ) -> None:
        self.folder = Path(mkdtemp(prefix="pyconfd-test-", dir="/run"))
        self.network = Network()
        self.observer = Observer()
        self.cluster, self.clocks, self.pool = cluster, clocks, pool
        self.scripts, self.templates = self.folder / "libexec", fragments.directory()
        self.settings = {"profile": "fast", "ping_timeout_s": 0.5} | settings
        self.api: subprocess.Popen[bytes] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self.nodes = [Node(self, number) for number in range(1, count + 1)]
        self.behind = self.client = self.hostile = ""

    def spawn(self, space: str, log: Path, *argv: str, **more: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", space, *argv],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, env=Appliance.environment(**more),
            )  # fmt: skip
        self._processes.append(process)
        return process

    def __enter__(self) -> Self:
        started = False
        try:
            self._start()
            started = True
        finally:
            if not started:
                self.show()
                self.close()
        return self

    def _start(self) -> None:
        shutil.copytree(keepalived.directory(), self.scripts, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        self.network.start()
        self.client = self.network.host("cl", "10.77.0.1/24", "fd77::1/64")
        self.behind = self.network.host("be", "10.77.0.50/24", "fd77::50/64", *(f"{pod}/24" for pod in _PODS))
        self.hostile = self.network.host("ev", "10.77.0.66/24", "fd77::66/64")
        if self.cluster:
            self._start_pods()
            self.start_api()
        for node in self.nodes:
            self._plug(node)
        for node in self.nodes:
            node.write()
        if self.cluster:
            for node in self.nodes:
                node.start_pyconfd()
        for node in self.nodes:
            node.start_haproxy()
        for node in self.nodes:
            node.start_hook()
        for node in self.nodes:
            node.start_keepalived()
        self._elect()

    def _plug(self, node: Node) -> None:
        node.space = self.network.host(node.name)
        lines = (ROOT / "packer" / "files" / "sysctl.conf").read_text().splitlines()
        settings = [
            line.replace(" ", "") for line in lines if line.startswith(("net.ipv4.conf.", "net.ipv4.ip_", "net.ipv6."))
        ]
        self.network.inside(node.space, "sysctl", "-qw", *settings)
        self.observer.watch(node.name, node.space)
        first, second = node.addresses

        def seen() -> bool:
            self.network.address(node.space, f"{first}/24", f"{second}/64")
            return any(event.key == first for event in self.observer.events() if event.node == node.name)

        wait_for("the observer", seen)

    def _elect(self) -> None:
        """Wait until one has the address; two may be first at once, and it is settled when it stays."""
        while True:
            wait_for("one holder", lambda: len(self.holders()) == 1 and self.holders(VIP6) == self.holders())
            before = self.holders()
            time.sleep(STEADY_S)
            if self.holders() == before:
                break
        self.until_ready()

    def until_ready(self) -> None:

        def ready() -> bool:
            self.do_as_units_do()
            return all(node.is_ready() for node in self.nodes)

        wait_for("health", ready)

    def do_as_units_do(self) -> None:
        """Start again what would not stay dead; tests that kill something mend that themselves."""
        for node in self.nodes:
            node.restart_fenced_keepalived()

    def join(self) -> Node:
        """Add a node as its runbook says: the others learn of it first."""
        node = Node(self, len(self.nodes) + 1)
        self._plug(node)
        before, self.nodes = self.nodes, [*self.nodes, node]
        for one in self.nodes:
            one.write()
        for one in before:
            one.end("hook", signal.SIGTERM)
            one.start_hook()
            one.configure_keepalived()
            one.reload_keepalived()
        node.start()
        return node

    # What is behind the load balancers

    def start_api(self) -> None:
        cluster = Cluster()
        cluster.add_service(
            "demo", "web",
            ports=[PortSpec("web", 80, _POD_PORT)], annotations={"domain": NAME, "proto": "http"},
        )  # fmt: skip
        pods = [EndpointSpec(pod, pod=f"web-{number}", node="node-1") for number, pod in enumerate(_PODS)]
        cluster.set_endpoints("demo", "web", pods)
        if self.pool:
            cluster.add_namespace("pyconfd")
            spec = {"loadBalancerClass": "pyconfd.io/lb"}
            cluster.add_service(
                "demo", "direct", ports=[PortSpec("web", 80, _POD_PORT)], type="LoadBalancer", spec=spec
            )
            cluster.set_endpoints("demo", "direct", pods)
        objects = self.folder / "objects.json"
        cluster.dump(objects)
        argv = ("-m", "tests.world.apiserver", "--host", "10.77.0.50", "--port", "6443", "--load", str(objects))
        self.api = self.spawn(self.behind, self.folder / "api.log", sys.executable, *argv)

    def _start_pods(self) -> None:
        """Start pods that answer with the name of the load balancer that asks them."""
        names = self.folder / "names.map"
        names.write_text("".join(f"10.77.0.1{number} lb{number}\n" for number in range(1, 10)))
        binds = "\n".join(f"    bind {pod}:{_POD_PORT}" for pod in _PODS)
        conf = self.folder / "pods.cfg"
        conf.write_text(
            f"""defaults
    mode http
    timeout client 60s
frontend pods
{binds}
    http-request return status 200 content-type text/plain lf-string %[src,map_ip({names})]
"""
        )
        self.spawn(self.behind, self.folder / "pods.log", "haproxy", "-db", "-f", str(conf))

    # Who has the address

    def holders(self, address: str = VIP4) -> list[str]:
        return [node.name for node in self.nodes if node.holds(address)]

    @property
    def holder(self) -> Node:
        found: list[Node] = []

        def holding() -> bool:
            found[:] = [node for node in self.nodes if node.holds()]
            return bool(found)

        wait_for("a holder", holding)
        return found[0]

    def others(self, node: Node) -> Sequence[Node]:
        return [one for one in self.nodes if one is not node]

    def until_settled(self, limit_s: float, *, segments: int = 1, but: str = "") -> float:
        """Wait until each segment has one reachable holder of both families, for :data:`STEADY_S`; return the seconds.

        It is not ``but``, who has lost it and may not have noticed yet.

        Raises:
            AssertionError: it did not come about in time.
        """
        began = time.monotonic()
        while True:
            self.do_as_units_do()
            state = [self.observer.holders(VIP4), self.observer.holders(VIP6)]
            if (
                state[0] == state[1]
                and len(state[0]) == segments
                and not is_double(state[0])
                and (not but or but not in dict(state[0]))
            ):
                time.sleep(STEADY_S)
                if [self.observer.holders(VIP4), self.observer.holders(VIP6)] == state:
                    return time.monotonic() - began
            assert time.monotonic() - began < limit_s + STEADY_S, f"not settled in {limit_s:g} s: {state}"
            time.sleep(0.01)

    # What happens to it

    def cable(self, node: Node, *, plugged: bool) -> None:
        self.network.cable(node.name, plugged=plugged)

    def part(self, node: Node, *, away: bool) -> None:
        """Plug a node into another switch, where nobody else is; or back."""
        if not away:
            self.observer.note(node.name, "segment", "all")
        self.network.move(node.name, ELSEWHERE if away else SWITCH)
        if away:
            self.observer.note(node.name, "segment", node.name)

    def leave_last(self) -> Node:
        """Crash all but the node with the lowest priority, and return it: any other one would be believed before it."""
        *others, last = self.nodes
        for node in others:
            self.cable(node, plugged=False)
            node.crash()
        wait_for("the last node as the holder", lambda: last.holds() and last.holds(VIP6))
        self.until_settled(LIMIT_S)
        return last

    @contextmanager
    def attack(self, kind: str, node: Node) -> Iterator[None]:
        """Run the hostile neighbour, which speaks to ``node`` in the name of another one; see hostile.py."""
        argv = (*self.others(node)[0].addresses, *node.addresses, node.hardware)
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.hostile, sys.executable, "-m", "tests.vip.hostile", kind, *argv],
            stdin=subprocess.PIPE, cwd=ROOT, env=Appliance.environment(),
        )  # fmt: skip
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(LIMIT_S) == 0

    def lose(self, percent: int) -> None:
        """Lose so many of all frames in the switch, by chance; 0 for none."""
        self._filter_switch(*([f"numgen random mod 100 < {percent} drop"] if percent else []))

    def drop_adverts(self, *, dropped: bool) -> None:
        """Lose every advert in the switch, and nothing else."""
        rules = ("ether type ip ip protocol vrrp drop", "ether type ip6 ip6 nexthdr vrrp drop")
        self._filter_switch(*(rules if dropped else ()))

    def _filter_switch(self, *rules: str) -> None:
        text = "add table bridge f; delete table bridge f"
        if rules:
            text += "; add table bridge f; add chain bridge f c { type filter hook forward priority 0; }"
        text += "".join(f"; add rule bridge f c {rule}" for rule in rules)
        self.network.inside(self.network.switch, "nft", text)

    def traffic(self, host: str = VIP4, limit_s: float = 0.4) -> Traffic:
        """Start clients; a request fails after ``limit_s``."""
        return Traffic(self.client, host, limit_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.show()
        self.close()

    def show(self) -> None:
        """Print the ends of the logs, and who has which address and knows whom where."""
        spaces = [self.client, *(node.space for node in self.nodes)]
        for space in [space for space in spaces if space]:
            print(f"--- {space}", ip("-n", space, "-br", "addr"), ip("-n", space, "neigh"), sep="\n")
        for node in self.nodes:
            for name, most in (("hook", 6000), ("keepalived", 6000), ("pyconfd", 4000), ("haproxy", 1000)):
                print(f"--- {node.name} {name}\n{node.log(name)[-most:]}")

    def close(self) -> None:
        self.observer.close()
        self.network.close()
        for process in self._processes:
            process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)
