"""Which key goes to which server with consistent hashing, while a server is added live and after a reload."""

import http.client
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.render.filters import server_ids
from pyconfd.settings import ApplySettings
from tests.bench.figures import Figure
from tests.world.backends import Backends
from tests.world.haproxy import HaproxyProcess, free_port, wait_until

TEXT = """global
    stats socket {socket} mode 600 level admin
defaults
    mode http
    timeout connect {connect_s}s
    timeout client 60s
    timeout server 60s
frontend fe
    bind 127.0.0.1:{port}
    default_backend be
backend be
    balance uri
    hash-type consistent
"""


@dataclass(frozen=True)
class Moved:
    """How many of the keys changed their server: when one was added live, and by the reload of the same servers."""

    keys: int
    by_addition: int
    by_reload: int
    elsewhere: int
    """Of those that the addition moved, how many did not go to the new server."""


def add_and_reload(folder: Path, *, servers: int, keys: int) -> Moved:
    """Map keys to servers before, after a live addition, and after a reload of the same set in another order."""
    with ExitStack() as stack:
        pods = stack.enter_context(Backends(free_port()))
        haproxy = stack.enter_context(HaproxyProcess(folder / "etc"))
        names = [f"app-{number}" for number in range(servers + 1)]
        for number, name in enumerate(names, start=1):
            pods.add(name, f"127.29.0.{number}")
        port = free_port()

        def rendering(some: list[str], connect_s: int) -> Rendering:
            ids = server_ids(some)
            head = TEXT.format(socket=haproxy.stats_socket, port=port, connect_s=connect_s)
            lines = [f"    server {name} {pods.pods[name].address}:{pods.port} id {ids[name]}\n" for name in some]
            return Rendering((Piece("01-part.tmpl", head + "".join(lines)),))

        balancer = Balancer(haproxy.settings(), ApplySettings(), str(folder / "state"), unit=UnitFacts())
        stack.callback(balancer.close)
        balancer.startup()
        first = rendering(names[1:], 5)
        haproxy.conf.write_text(first.text, encoding="utf-8")
        haproxy.start()
        _reload(balancer, first)
        before = _answers(port, keys)
        wanted = rendering(names, 5)
        plan = balancer.plan(wanted)
        assert isinstance(plan, RuntimeUpdate), plan
        balancer.change(wanted, plan, curdate="", now=2.0)
        wait_until(lambda: not balancer.file_behind, "the file is level")
        added = _answers(port, keys)
        _reload(balancer, rendering([*names[1:], names[0]], 6))
        after = _answers(port, keys)
    moved = [(one, other) for one, other in zip(before, added, strict=True) if one != other]
    by_reload = sum(one != other for one, other in zip(added, after, strict=True))
    return Moved(keys, len(moved), by_reload, sum(other != names[0] for _, other in moved))


def _reload(balancer: Balancer, rendering: Rendering) -> None:
    plan = balancer.plan(rendering)
    assert isinstance(plan, Reload), plan
    balancer.apply(rendering, plan, curdate="", now=1.0)
    assert isinstance(balancer.refresh(), Noop)


def _answers(port: int, keys: int) -> list[str]:
    """Return the pod that answers for each key."""
    found = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        for key in range(keys):
            connection.request("GET", f"/{key}", headers={"Host": "test"})
            answer = connection.getresponse()
            assert answer.status == 200
            found.append(answer.read().decode().strip())
    return found


def consistent_hashing() -> Iterator[Figure]:
    """Count the keys that a live addition moves, and a reload after it."""
    with tempfile.TemporaryDirectory(prefix="hashing-") as folder:
        found = add_and_reload(Path(folder), servers=10, keys=2000)
    yield Figure("hashing_moved_by_addition", found.by_addition, "keys of 2000, one server added to 10")
    yield Figure("hashing_moved_elsewhere", found.elsewhere, "keys that moved to another than the new server", 0)
    yield Figure("hashing_moved_by_reload", found.by_reload, "keys of 2000", 0)
