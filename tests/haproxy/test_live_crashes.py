"""pyconfd is killed between any two effects of a change that goes live, and of the file that follows."""

from pathlib import Path

import pytest

from pyconfd.haproxy.config.slices import SLICE
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import RuntimeSocket
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import Piece, Rendering
from tests.haproxy.bench import Bench
from tests.haproxy.crashing import KillPoints, shards
from tests.haproxy.test_crashes import crashing_child, loads
from tests.world.haproxy import fetch, wait_until

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(600)]

SHARDS = shards(3)

TEXT = """global
    stats socket {socket} mode 600 level admin
defaults
    mode http
    option idle-close-on-response
    timeout connect 2s
    timeout client 30s
    timeout server 30s
frontend fe
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string ok if {{ path / }}
    use_backend %[req.hdr(host),map_str({hosts},be)]
backend be
    balance roundrobin
"""


def variant(bench: Bench, numbers: range) -> Rendering:
    """So many servers that their commands are sent in more than one part; some drain; and a map with as many hosts."""
    hosts = bench.map_file("".join(f"h{number} be\n" for number in numbers))
    lines = "".join(
        f"    server s{number} 127.0.0.1:{9000 + number} id {number}{' weight 0' if number == numbers[-40] else ''}\n"
        for number in numbers
    )
    head = TEXT.format(socket=bench.haproxy.stats_socket, port=bench.port, hosts=hosts.path)
    return Rendering((Piece("01-part.tmpl", head + lines),), (hosts,))


def serve(balancer: Balancer, desired: Rendering) -> None:
    """Do what the daemon does with ``desired``."""
    plan = balancer.plan(desired)
    while isinstance(plan, RuntimeUpdate):
        done = balancer.change(desired, plan, curdate="", now=2.0, in_slices=True)
        plan = done if isinstance(done, Reload) else balancer.plan(desired)
    if isinstance(plan, Reload):
        balancer.apply(desired, plan, curdate="", now=2.0)


def unlike(bench: Bench, desired: Rendering) -> list[str]:
    """Return what the process has otherwise than ``desired``; servers that get no traffic may be on their way out."""
    connection = RuntimeSocket(bench.haproxy.stats_socket)
    _, (state, entries) = connection.ask(["show servers state be", f"show map {desired.files[0].path}"])
    connection.close()
    there = {one.name: not (one.drain or one.maint) and one.weight > 0 for one in servers_now(state)}
    lines = [line.split() for line in desired.text.splitlines() if line.startswith("    server ")]
    wanted = {words[1]: "weight" not in words for words in lines}
    found = [f"{name} is {there.get(name)}" for name, serves in wanted.items() if there.get(name) != serves]
    found += [f"{name} serves" for name in there.keys() - wanted.keys() if there[name]]
    has = sorted(row.split(" ", 1)[1] for row in entries.splitlines() if row)
    if has != sorted(desired.files[0].content.splitlines()):
        found.append(f"the map has {len(has)} entries")
    return found


@pytest.mark.parametrize("back", [False, True], ids=["on", "back"])
@pytest.mark.parametrize("shard", SHARDS)
def test_whenever_it_is_killed_process_and_file_become_what_is_rendered(bench: Bench, shard: int, back: bool) -> None:
    """More servers come than fit one slice. ``back``: at the next start the cluster wants what it wanted before."""
    variants = [variant(bench, range(1, 2 * SLICE)), variant(bench, range(SLICE + 10, 3 * SLICE + 10))]
    bench.conf.write_text(variants[0].text)
    Path(variants[0].files[0].path).parent.mkdir(parents=True)
    Path(variants[0].files[0].path).write_text(variants[0].files[0].content)
    bench.haproxy.start()
    balancer = bench.balancer()
    balancer.startup()
    serve(balancer, variants[0])
    balancer.close()
    at = 0
    points = KillPoints(shard, SHARDS)
    with crashing_child(bench) as apply:
        for point in points:
            outcome = apply(variants[1 - at], point)
            assert loads(bench.conf), f"killed at {point}"
            assert fetch(bench.port) == "ok", f"killed at {point}"
            at = at if back else 1 - at
            balancer = bench.balancer()
            assert balancer.startup() == ()
            serve(balancer, variants[at])
            for _ in range(3):
                balancer.sync()
                serve(balancer, variants[at])
            wait_until(lambda: not balancer.file_behind, "the file is level")  # noqa: B023 - called at once
            assert balancer.refresh() == Noop(verified=True), f"killed at {point}"
            assert unlike(bench, variants[at]) == [], f"killed at {point}"
            assert balancer.sync().live.overrides == (), f"killed at {point}"
            assert bench.conf.read_text() == mark(variants[at].text, variants[at].digest)
            assert Path(variants[at].files[0].path).read_text() == variants[at].files[0].content
            assert bench.temporary_files() == [], f"killed at {point}"
            balancer.close()
            points.record(outcome)
    assert points.died > 6, "the kill points were not reached"
