"""New backends in a real HAProxy: served by spares at once, under their own names after the next reload."""

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pyconfd.haproxy.process.balancer import BalancerState
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import RuntimeSocket, Worker, ask
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.reservation import Name, Owner
from pyconfd.model.spares import spare_section
from pyconfd.settings import ApplySettings
from tests.haproxy.bench import Bench, apply
from tests.world.haproxy import BINARY, wait_until

HEAD = """global
    stats socket {socket} mode 600 level admin
defaults base
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    retries 0
defaults plain from base
    balance roundrobin
    http-request set-header X-Filtered yes
    http-response add-header X-Filtered yes
    timeout server 20s
    retries 1
"""
OTHER = """defaults other from base
    http-response add-header X-Filtered other
"""
FRONTEND = """frontend fe from base
    bind 127.0.0.1:{port}
    http-request set-var(txn.route) req.hdr(host),map_str({hosts})
    use_backend %[var(txn.route),map_str({spares})] if {{ var(txn.route),map_str({spares}) -m found }}
    use_backend %[var(txn.route)] if {{ var(txn.route) -m found }}
"""


@contextmanager
def _pod(name: str) -> Iterator[int]:
    """Serve requests with ``name``; return the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


class Spared:
    """A haproxy with ``spares`` empty backends; each host has one of its own, ``be-HOST``, with one server.

    It is from the defaults ``plain``, or from those in ``kinds``: these are in the text while a host is from them. Its
    namespace is ``ns-HOST``, or that in ``namespaces``.
    """

    def __init__(self, bench: Bench, spares: int = 3, *, dynamic_backends: bool = False) -> None:
        self.bench = bench
        self.spares = spares
        self.ports: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.namespaces: dict[str, str] = {}
        self.balancer = bench.balancer(dynamic_backends=dynamic_backends)
        self.balancer.startup()

    def rendering(self, *hosts: str) -> Rendering:
        maps = {
            "hosts": self.bench.map_file("".join(f"{host} be-{host}\n" for host in sorted(hosts)), "hosts.map"),
            "spares": self.bench.map_file("", "spare-backends.map"),
        }
        paths = {name: file.path for name, file in maps.items()}
        head = (HEAD + FRONTEND).format(socket=self.bench.haproxy.stats_socket, port=self.bench.port, **paths)
        kinds = {host: self.kinds.get(host, "plain") for host in hosts}
        blocks = [
            f"backend be-{host} from {kinds[host]}\n    server s 127.0.0.1:{self.ports[host]} id 7\n" for host in hosts
        ]
        spares = "".join(spare_section("plain", number) for number in range(1, self.spares + 1))
        of_other = "".join(spare_section("other", number) for number in range(1, self.spares + 1))
        other = [OTHER, of_other] if "other" in kinds.values() else []
        files = tuple(sorted(maps.values(), key=lambda file: file.path))
        hosts_piece = Piece("02-hosts.tmpl", *other, *blocks)
        pieces = Piece("01-head.tmpl", head), hosts_piece, Piece("03-spares.tmpl", spares)
        owned = {host: self.namespaces.get(host, f"ns-{host}") for host in hosts}
        owners = {Name(host, ""): Owner("Service", owned[host], "s", "2026-01-01T00:00:00Z") for host in hosts}
        return Rendering(pieces, files, owners={"domains": owners})

    def begin(self, *hosts: str) -> None:
        first = self.rendering(*hosts)
        for file in first.files:
            self.bench.conf.parent.joinpath(file.path).parent.mkdir(parents=True, exist_ok=True)
            self.bench.conf.parent.joinpath(file.path).write_text(file.content)
        self.bench.conf.write_text(first.text)
        self.bench.haproxy.start()
        apply(self.balancer, first)
        assert isinstance(self.balancer.refresh(), Noop)

    def plan(self, *hosts: str) -> Plan:
        return self.balancer.plan(self.rendering(*hosts))

    def change(self, *hosts: str) -> Applied | Reload:
        wanted = self.rendering(*hosts)
        plan = self.balancer.plan(wanted)
        assert isinstance(plan, RuntimeUpdate), plan
        done = self.balancer.change(wanted, plan, curdate="", now=2.0, totals=EndpointTotals())
        assert isinstance(done, Applied | Reload)
        return done

    def get(self, host: str) -> str:
        """Return what a client of ``host`` reads: the status, and who answered."""
        client = http.client.HTTPConnection("127.0.0.1", self.bench.port, timeout=5)
        with closing(client):
            client.request("GET", "/", headers={"Host": host})
            answer = client.getresponse()
            return f"{answer.status} {answer.read().decode()}"

    def lines_of(self, host: str) -> str:
        """Return which defaults the answer to a client of ``host`` shows."""
        client = http.client.HTTPConnection("127.0.0.1", self.bench.port, timeout=5)
        with closing(client):
            client.request("GET", "/", headers={"Host": host})
            return {"yes": "plain", "other": "other"}[client.getresponse().headers["X-Filtered"]]

    def reach(self, *hosts: str) -> bool:
        """Do what the daemon does, and return whether it was a reload."""
        plan = self.plan(*hosts)
        if isinstance(plan, RuntimeUpdate):
            assert isinstance(self.change(*hosts), Applied)
            return False
        assert isinstance(plan, Reload)
        self.balancer.apply(self.rendering(*hosts), plan, curdate="", now=3.0)
        self.balancer.refresh()
        return True

    def ask(self, command: str) -> str:
        return ask(self.bench.haproxy.stats_socket, command)

    def servers_of(self, section: str) -> set[str]:
        return {each.name for each in servers_now(self.ask(f"show servers state {section}")) if not each.drain}

    def follow(self) -> None:
        wait_until(lambda: not self.balancer.file_behind, "the file is level")


@contextmanager
def spared_hosts(bench: Bench, *hosts: str, spares: int = 3, dynamic_backends: bool = False) -> Iterator[Spared]:
    with ExitStack() as stack:
        found = Spared(bench, spares, dynamic_backends=dynamic_backends)
        for host in hosts:
            found.ports[host] = stack.enter_context(_pod(host))
        yield found


@pytest.fixture
def spared(bench: Bench) -> Iterator[Spared]:
    with spared_hosts(bench, "a", "b", "c", "d", "e") as found:
        yield found


pytestmark = pytest.mark.skipif(not BINARY, reason="there is no haproxy")


def test_a_new_backend_is_served_by_a_spare_and_the_file_has_its_name(spared: Spared) -> None:
    spared.begin("a")
    worker = spared.bench.haproxy.worker()
    assert isinstance(spared.change("a", "b"), Applied)
    assert (spared.get("a"), spared.get("b")) == ("200 a", "200 b")
    assert spared.servers_of("spare-plain-1") == {"s"}
    spared.follow()
    text = spared.bench.conf.read_text()
    assert "backend be-b from plain" in text
    assert spared.bench.haproxy.worker() == worker
    assert isinstance(spared.balancer.refresh(), Noop)
    assert spared.balancer.state is BalancerState.IN_SYNC


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_new_backend_whose_defaults_have_filters_goes_live_on_every_haproxy(bench: Bench, *, dynamic: bool) -> None:
    with spared_hosts(bench, "a", "b", dynamic_backends=dynamic) as spared:
        spared.begin("a")
        worker, is_added = spared.bench.haproxy.worker(), dynamic and "add backend" in spared.ask("help")
        assert isinstance(spared.change("a", "b"), Applied)
        section = "be-b" if is_added else "spare-plain-1"
        assert (spared.get("b"), spared.servers_of(section)) == ("200 b", {"s"})
        assert (spared.balancer.order_due_s() is None) is is_added
        assert isinstance(spared.change("a"), Applied)
        assert spared.get("b").startswith("503")
        assert spared.bench.haproxy.worker() == worker


def test_what_changes_in_it_later_goes_to_the_spare(spared: Spared) -> None:
    spared.begin("a")
    spared.change("a", "b")
    spared.ports["b"] = spared.ports["c"]
    wanted = spared.rendering("a", "b")
    blocks = [text.replace("server s", "server t").replace("id 7", "id 8") for text in wanted.pieces[1].blocks]
    wanted = Rendering((wanted.pieces[0], Piece("02-hosts.tmpl", *blocks), wanted.pieces[2]), wanted.files)
    plan = spared.balancer.plan(wanted)
    assert isinstance(plan, RuntimeUpdate)
    assert isinstance(spared.balancer.change(wanted, plan, curdate="", now=3.0), Applied)
    assert spared.servers_of("spare-plain-1") == {"t"}
    assert spared.get("b") == "200 c"


def test_drift_in_a_spare_is_repaired(spared: Spared) -> None:
    spared.begin("a")
    spared.change("a", "b")
    spared.ask("set server spare-plain-1/s weight 7")
    spared.balancer.sync()
    assert {each.weight for each in servers_now(spared.ask("show servers state spare-plain-1"))} == {1}


def test_a_restarted_pyconfd_reads_from_the_process_what_its_spares_serve(spared: Spared) -> None:
    spared.begin("a")
    spared.change("a", "b")
    spared.follow()
    worker = spared.bench.haproxy.worker()
    spared.balancer = spared.bench.balancer()
    spared.balancer.startup()
    assert spared.plan("a", "b") == Noop()
    spared.balancer.sync()
    assert spared.balancer.state is BalancerState.IN_SYNC
    assert isinstance(spared.change("a", "b", "c"), Applied)
    assert [spared.get(host) for host in "abc"] == ["200 a", "200 b", "200 c"]
    assert spared.bench.haproxy.worker() == worker


def test_the_reload_at_leisure_gives_each_its_own_name(bench: Bench) -> None:
    with spared_hosts(bench, "a", "b") as spared:
        spared.balancer._apply_settings = ApplySettings(rename_interval_s=0.0)
        spared.begin("a")
        spared.change("a", "b")
        plan = spared.plan("a", "b")
        assert isinstance(plan, Reload)
        assert plan.reasons == (ReloadReason.SPARES_IN_USE,)
        assert plan.details == ("backend be-b is served by spare-plain-1",)
        spared.balancer.apply(spared.rendering("a", "b"), plan, curdate="", now=4.0)
        assert spared.servers_of("be-b") == {"s"}
        assert spared.servers_of("spare-plain-1") == set()
        assert spared.get("b") == "200 b"
        assert isinstance(spared.balancer.refresh(), Noop)
        assert spared.plan("a", "b") == Noop()


def test_it_is_not_due_at_once_but_where_few_spares_are_left(spared: Spared) -> None:
    spared.begin("a")
    assert spared.balancer.order_due_s() is None
    spared.change("a", "b", "c")
    assert 25.0 < (spared.balancer.order_due_s() or 0.0) <= 30.0
    assert spared.plan("a", "b", "c") == Noop()
    spared.change("a", "b", "c", "d")
    assert spared.balancer.order_due_s() == 0.0


def test_a_restart_while_spares_are_due_serves_on_what_runs(bench: Bench) -> None:
    with spared_hosts(bench, "a", "b", "c", "d") as spared:
        spared.begin("a")
        spared.balancer.store.mark_ran_well()
        spared.change("a", "b", "c", "d")
        spared.follow()
        assert spared.balancer.order_due_s() == 0.0
        spared.balancer = bench.balancer()
        spared.balancer.startup()
        assert isinstance(spared.balancer.restore_last_good(9.0), Unchanged)
        assert [spared.get(host) for host in "abcd"] == [f"200 {host}" for host in "abcd"]


def test_after_a_reload_new_ones_wait_as_long_again(spared: Spared) -> None:
    spared.begin("a")
    spared.change("a", "b")
    spared.balancer._spares_since = (spared.balancer._spares_since or 0.0) - 3600.0
    assert spared.balancer.order_due_s() == 0.0
    plan = spared.plan("a", "b")
    assert isinstance(plan, Reload)
    spared.balancer.apply(spared.rendering("a", "b"), plan, curdate="", now=4.0)
    spared.balancer.refresh()
    spared.change("a", "b", "c")
    assert (spared.balancer.order_due_s() or 0.0) > 25.0


def test_what_a_command_is_told_of_the_process_has_the_spares(spared: Spared) -> None:
    spared.begin("a")
    runtime = Runtime()
    with closing(runtime):
        told = runtime.connect([spared.bench.haproxy.stats_socket])
    assert told.spares.free == spared.balancer.spares_of(spared.bench.haproxy.worker()).free != frozenset()
    assert not spared.balancer.spares_of(1).names


def test_who_uses_up_the_spares_gets_no_reload_at_once_without_a_share_and_it_is_put_to_his_account(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[frozenset[str]] = []
    replaced: list[frozenset[str]] = []
    spared.begin("a")
    old = spared.balancer._old
    monkeypatch.setattr(old, "has_share", lambda namespaces, _now: asked.append(frozenset(namespaces)))
    monkeypatch.setattr(old, "replaced", lambda _pid, causes, _now: replaced.append(causes))
    spared.change("a", "b", "c", "d")
    assert (spared.balancer.order_due_s() or 0.0) > 25.0
    spared.change("b", "c", "d")
    assert (spared.balancer.order_due_s() or 0.0) > 25.0
    to_use_more = frozenset({"ns-a"})
    assert asked == [frozenset({"ns-b", "ns-c", "ns-d"}), to_use_more, frozenset({"ns-a", "ns-b", "ns-c", "ns-d"})]
    plan = spared.plan("b", "c", "d", "e")
    assert isinstance(plan, Reload)
    spared.balancer.apply(spared.rendering("b", "c", "d", "e"), plan, curdate="", now=4.0)
    assert replaced == [frozenset(f"ns-{host}" for host in "abcde")]
    spared.balancer.refresh()
    spared.change("b", "c", "d")
    spared.balancer.order_due_s()
    assert spared.balancer._spare_causes == {"ns-e"}


def spend_share(spared: Spared, namespace: str) -> None:
    """Have reloads of a namespace take its share."""
    old = spared.balancer._old
    for number in range(old._share):
        old.replaced(-1 - number, frozenset({namespace}), time.monotonic())


def test_who_has_no_share_of_reloads_gets_no_spare_of_the_last_quarter(bench: Bench) -> None:
    with spared_hosts(bench, "a", "b", "c", "d", "e", "f", "g", spares=5) as spared:
        spared.namespaces = dict.fromkeys("def", "evil")
        spared.begin("a")
        spend_share(spared, "evil")
        spared.change("a", "b", "c")
        spared.change("a", "b", "c", "d", "e")  # there is enough for all
        plan = spared.plan("a", "b", "c", "d", "e", "f")
        assert isinstance(plan, Reload)
        assert plan.reasons == (ReloadReason.SECTION_ADDED,)
        assert not spared.balancer.may_reload_for({"evil"})
        assert isinstance(spared.change("a", "b", "c", "d", "e", "g"), Applied)
        assert spared.get("g") == "200 g"


def test_who_has_all_names_takes_the_last_spare_too(bench: Bench) -> None:
    with spared_hosts(bench, "a", "b", "c", "d", "e", "f", spares=5) as spared:
        spared.namespaces = dict.fromkeys("abcdef", "only")
        spared.begin("a")
        spend_share(spared, "only")
        spared.change("a", "b", "c", "d", "e")
        assert isinstance(spared.change("a", "b", "c", "d", "e", "f"), Applied)


def test_with_all_in_use_the_next_is_a_reload_that_says_so(spared: Spared) -> None:
    spared.begin("a")
    spared.change("a", "b", "c", "d")
    plan = spared.plan("a", "b", "c", "d", "e")
    assert isinstance(plan, Reload)
    assert plan.reasons == (ReloadReason.SECTION_ADDED,)
    assert "all spare backends" in plan.advice[0]


def test_a_removed_backend_is_drained_and_goes_with_the_reload(spared: Spared) -> None:
    spared.begin("a", "b")
    assert isinstance(spared.change("a"), Applied)
    assert spared.servers_of("be-b") == set()
    assert spared.get("b").startswith("503")
    assert isinstance(spared.balancer.refresh(), Noop)
    spared.balancer.sync()
    assert spared.balancer.order_due_s() is not None


def test_a_backend_that_comes_again_is_served_by_another_spare(spared: Spared) -> None:
    spared.begin("a", "b")
    worker = spared.bench.haproxy.worker()
    for spare in ("spare-plain-1", "spare-plain-2"):
        spared.change("a")
        assert spared.get("b").startswith("503")
        spared.change("a", "b")
        assert spared.get("b") == "200 b"
        assert spared.servers_of(spare) == {"s"}
        spared.balancer.sync()
    assert spared.balancer.state is not BalancerState.SUSPECT
    assert spared.balancer.spares_of(worker).free == {"spare-plain-3"}
    assert spared.bench.haproxy.worker() == worker


def test_a_backend_from_other_defaults_in_turn_is_one_reload(bench: Bench) -> None:
    """Not one for each turn: the process has the defaults that nothing is from, and spares of both."""
    with spared_hosts(bench, "a", "b", spares=30) as spared:
        spared.begin("a", "b")
        reloads = 0
        for turn in range(20):
            kind = "plain" if turn % 2 else "other"
            spared.kinds["b"] = kind
            reloads += spared.reach("a", "b")
            assert (spared.get("b"), spared.lines_of("b"), spared.lines_of("a")) == ("200 b", kind, "plain")
            spared.balancer.sync()
            assert spared.balancer.state is not BalancerState.SUSPECT
        assert reloads == 1
        assert spared.servers_of("be-b") == {"s"}, "its sessions go on"
        spared.follow()
        assert "defaults other" not in bench.conf.read_text()
        assert isinstance(spared.balancer.refresh(), Noop)


def test_what_changes_later_in_a_backend_from_other_defaults_goes_to_its_spare(spared: Spared) -> None:
    spared.kinds = {"a": "other"}
    spared.begin("a", "b")
    spared.kinds["b"] = "other"
    assert not spared.reach("a", "b")
    spared.ask("set server spare-other-1/s weight 7")
    spared.balancer.sync()
    assert {each.weight for each in servers_now(spared.ask("show servers state spare-other-1"))} == {1}
    spared.ports["b"] = spared.ports["c"]
    assert isinstance(spared.plan("a", "b"), Reload), "a server that has another address"
    spared.kinds["b"] = "plain"
    assert not spared.reach("a", "b")
    assert (spared.get("b"), spared.lines_of("b")) == ("200 c", "plain")


def test_a_restarted_pyconfd_knows_what_serves_a_backend_from_other_defaults(spared: Spared) -> None:
    spared.kinds = {"a": "other"}
    spared.begin("a", "b")
    for kind in ("other", "plain"):
        spared.kinds["b"] = kind
        assert not spared.reach("a", "b")
    spared.follow()
    spared.balancer = spared.bench.balancer()
    spared.balancer.startup()
    assert spared.plan("a", "b") == Noop()
    spared.balancer.sync()
    assert spared.balancer.state is not BalancerState.SUSPECT
    spares = spared.balancer.spares_of(spared.bench.haproxy.worker())
    assert spares.used == {"spare-other-1", "spare-plain-1"}
    assert spares.serving == {"be-b": "spare-plain-1"}
    spared.kinds["b"] = "other"
    assert not spared.reach("a", "b")
    assert (spared.get("b"), spared.lines_of("b")) == ("200 b", "other")


def test_a_haproxy_that_restarts_has_the_own_name_from_other_defaults(spared: Spared) -> None:
    spared.kinds = {"a": "other"}
    spared.begin("a", "b")
    spared.kinds["b"] = "other"
    assert not spared.reach("a", "b")
    spared.kinds = {}
    assert not spared.reach("a"), "nothing is from the other defaults, which the file has no more"
    spared.follow()
    spared.bench.haproxy.stop()
    spared.bench.haproxy.start()
    wait_until(lambda: isinstance(spared.balancer.refresh(), Noop), "the new worker is seen")
    spared.kinds = {"b": "other"}
    assert spared.reach("a", "b"), "this process never had these defaults"
    assert (spared.lines_of("a"), spared.lines_of("b")) == ("plain", "other")


def test_after_a_reload_defaults_that_nothing_is_from_are_forgotten(spared: Spared) -> None:
    spared.kinds = {"b": "other"}
    spared.begin("a", "b")
    spared.change("a")
    spared.balancer.apply(spared.rendering("a"), Reload((ReloadReason.SPARES_IN_USE,)), curdate="", now=3.0)
    spared.balancer.refresh()
    plan = spared.plan("a", "b")
    assert isinstance(plan, Reload)
    assert ReloadReason.DEFAULTS_CHANGED in plan.reasons


def test_a_backend_that_serves_goes_on_where_its_spare_lacks_servers(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared.kinds = {"a": "other"}
    spared.begin("a", "b")
    spared.kinds["b"] = "other"
    ask_ = RuntimeSocket.ask

    def refusing(self: RuntimeSocket, lines: Sequence[str], pid: int = 0) -> tuple[Worker, list[str]]:
        return ask_(self, [f"{line} nonsense" if line.startswith("add server ") else line for line in lines], pid=pid)

    with monkeypatch.context() as patched:
        patched.setattr(RuntimeSocket, "ask", refusing)
        done = spared.change("a", "b")
    assert isinstance(done, Reload)
    assert done.details[0] == "spare-other-1 lacks servers of be-b, which goes on as it was"
    assert (spared.get("b"), spared.lines_of("b")) == ("200 b", "plain")
    assert spared.balancer.state is BalancerState.SUSPECT
    spared.balancer.apply(spared.rendering("a", "b"), done, curdate="", now=5.0)
    assert spared.lines_of("b") == "other"


def test_a_backend_that_a_frontend_names_is_served_by_no_spare_in_its_place(spared: Spared) -> None:
    spared.kinds = {"a": "other"}
    rendering = spared.rendering

    def named(*hosts: str) -> Rendering:
        made = rendering(*hosts)
        head = Piece(made.pieces[0].fragment, "".join(made.pieces[0].blocks) + "    default_backend be-b\n")
        return Rendering((head, *made.pieces[1:]), made.files, owners=made.owners)

    spared.rendering = named  # type: ignore[method-assign]
    spared.begin("a", "b")
    spared.kinds["b"] = "other"
    assert isinstance(spared.plan("a", "b"), Reload)


def test_a_spare_that_is_not_empty_serves_nothing(spared: Spared) -> None:
    spared.begin("a")
    spared.ask(f"add server spare-plain-1/alien 127.0.0.1:{spared.ports['e']}")
    spared.ask("set server spare-plain-1/alien state ready")
    done = spared.change("a", "b")
    assert isinstance(done, Reload)
    assert "not empty: it has alien" in done.details[0]
    assert spared.get("b").startswith("503")
    spared.balancer.apply(spared.rendering("a", "b"), done, curdate="", now=5.0)
    assert spared.get("b") == "200 b"


def test_a_haproxy_that_restarts_has_the_own_names(spared: Spared) -> None:
    spared.begin("a")
    spared.change("a", "b")
    spared.follow()
    spared.bench.haproxy.stop()
    spared.bench.haproxy.start()
    assert spared.get("b") == "200 b"
    wait_until(lambda: isinstance(spared.balancer.refresh(), Noop), "the new worker is seen")
    assert isinstance(spared.change("a", "b", "c"), Applied)
    assert (spared.servers_of("be-b"), spared.servers_of("spare-plain-1")) == ({"s"}, {"s"})
    assert [spared.get(host) for host in "abc"] == ["200 a", "200 b", "200 c"]


def test_other_spares_in_the_text_need_no_reload_and_are_not_used_before_one(bench: Bench) -> None:
    with spared_hosts(bench, "a", "b", spares=0) as spared:
        spared.begin("a")
        spared.spares = 3
        assert isinstance(spared.change("a"), Applied)
        assert isinstance(spared.plan("a", "b"), Reload)


def test_a_server_that_haproxy_refuses_in_a_spare_is_a_reload_with_its_reason(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared.begin("a")
    ask_ = RuntimeSocket.ask

    def refusing(self: RuntimeSocket, lines: Sequence[str], pid: int = 0) -> tuple[Worker, list[str]]:
        return ask_(self, [line.replace(" 127.0.0.1:", " nowhere.invalid:") for line in lines], pid=pid)

    with monkeypatch.context() as patched:
        patched.setattr(RuntimeSocket, "ask", refusing)
        done = spared.change("a", "b")
    assert isinstance(done, Reload)
    assert spared.get("b").startswith("503")
    spared.balancer.apply(spared.rendering("a", "b"), done, curdate="", now=5.0)
    assert (spared.get("a"), spared.get("b")) == ("200 a", "200 b")
    assert isinstance(spared.balancer.refresh(), Noop)


def test_back_and_on_again_ends_at_what_is_wanted_last(spared: Spared) -> None:
    """A pin goes back to an older generation, its end to the newest one: both while spares serve."""
    spared.begin("a", "b")
    spared.change("a", "b", "c")
    back = spared.change("a", "b")
    assert isinstance(back, Applied)
    assert spared.get("c").startswith("503")
    assert isinstance(spared.change("a", "b", "c"), Applied)
    assert [spared.get(host) for host in "abc"] == ["200 a", "200 b", "200 c"]
    assert isinstance(spared.change("a", "b", "c", "d"), Applied)
    assert spared.get("d") == "200 d"


@pytest.mark.parametrize("written", [True, False], ids=["file-level", "file-behind"])
def test_another_program_reloads_while_spares_serve(spared: Spared, written: bool) -> None:
    spared.begin("a")
    worker = spared.bench.haproxy.worker()
    with nullcontext() if written else spared.balancer._file.lock:  # no file is written while somebody has it
        spared.change("a", "b")
        if written:
            spared.follow()
        assert ("backend be-b" in spared.bench.conf.read_text()) is written
        spared.bench.haproxy.reload()
        wait_until(lambda: spared.bench.haproxy.worker() != worker, "the new worker")

    def served() -> bool:
        """Do what the daemon does at each look."""
        spared.balancer.refresh()
        plan = spared.plan("a", "b")
        if isinstance(plan, Reload):
            spared.balancer.apply(spared.rendering("a", "b"), plan, curdate="", now=5.0)
        elif isinstance(plan, RuntimeUpdate):
            spared.change("a", "b")
        return [spared.get(host) for host in "ab"] == ["200 a", "200 b"]

    wait_until(served, "both hosts are served")
    spared.follow()
    assert "backend be-b" in spared.bench.conf.read_text()
