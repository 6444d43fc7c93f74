"""A balancer with its haproxy, changed without a reload."""

from pyconfd.haproxy.runtime.overrides import Override, OverrideStore
from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate, ServerState
from pyconfd.model.rendering import Piece, Rendering
from tests.haproxy.bench import Bench
from tests.world.haproxy import wait_until

TEXT = """global
    stats socket {socket} mode 600 level admin
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
frontend fe
    bind 127.0.0.1:{port}
    default_backend be
backend be
    balance roundrobin
"""


class Live:
    """A balancer with its haproxy, which serves ``members`` of one backend."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.extra = ""
        self.balancer = bench.balancer()
        self.balancer.startup()

    def rendering(self, *members: int) -> Rendering:
        lines = "".join(f"    server s{one} 127.0.0.1:{9000 + one} id {one}\n" for one in members)
        head = TEXT.format(socket=self.bench.haproxy.stats_socket, port=self.bench.port)
        return Rendering((Piece("01-part.tmpl", head + lines, self.extra or "\n"),))

    def begin(self, *members: int) -> None:
        """Serve, and let the balancer see that all is level."""
        first = self.rendering(*members)
        self.bench.conf.write_text(first.text)
        self.bench.haproxy.start()
        self.reload(first)
        assert isinstance(self.balancer.look(), Noop)

    def reload(self, rendering: Rendering) -> Applied:
        plan = self.balancer.plan(rendering)
        assert isinstance(plan, Reload), plan
        return self.balancer.apply(rendering, plan, curdate="", now=1.0, totals=EndpointTotals())

    def change(self, *members: int) -> Applied | Reload:
        wanted = self.rendering(*members)
        plan = self.balancer.plan(wanted)
        assert isinstance(plan, RuntimeUpdate), plan
        return self.balancer.change(wanted, plan, curdate="", now=2.0, totals=EndpointTotals())

    def follow(self) -> None:
        wait_until(lambda: not self.balancer.file_behind, "the file is level")

    def override(self, server: str, state: ServerState) -> None:
        """Store what an operator sets with ``pyconfd server``."""
        with OverrideStore(self.bench.state_dir).edited() as stored:
            made = Override("be", server, state, 1.0)
            stored[made.key] = made

    def ask(self, command: str) -> str:
        return ask(self.bench.haproxy.stats_socket, command)

    def serving(self) -> set[str]:
        """Give the servers of the process that take traffic."""
        state = self.ask("show servers state be")
        return {one.name for one in servers_now(state) if not (one.drain or one.maint)}

    def worker(self) -> int:
        return self.bench.haproxy.worker()
