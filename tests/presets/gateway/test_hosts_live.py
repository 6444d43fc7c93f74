"""Which rule a request gets where hosts of listeners and routes stand for one another, with a real haproxy.

Each rule redirects to a path of its own, so no server is needed.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyconfd.fragments import directory
from pyconfd.model.rendering import Rendering
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.routing.table import place_of
from pyconfd.presets.routing.types import PathKind, RouteMatch
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.fragments.shipped import HAPROXY
from tests.presets.gateway.stage import ask, haproxy_with
from tests.presets.ingress.objects import Obj, snapshot
from tests.world.haproxy import free_port

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

WORLDS = 12
HOSTS = (
    "", "*.example.com", "*.b.example.com", "*.a.b.example.com", "b.example.com", "a.b.example.com",
    "x.a.b.example.com", "c.b.example.com",
)  # fmt: skip
ASKED = (*HOSTS[4:], "y.a.b.example.com", "d.e.b.example.com", "d.example.com", "example.com", "other.org")
PATHS = ("/", "/x", "/x/", "/x/y", "/x/12", "/x/y/z", "/z", "/xx")
MATCHES: tuple[Obj, ...] = tuple(
    {"path": {"type": kind, "value": path}}
    for kind, path in [
        ("PathPrefix", "/"), ("PathPrefix", "/x"), ("PathPrefix", "/x/y"), ("Exact", "/x"), ("Exact", "/x/y"),
        ("RegularExpression", "/x/[0-9]+"), ("RegularExpression", "/[a-z]"),
    ]
)  # fmt: skip
CONDITIONS: tuple[Obj, ...] = (
    {}, {}, {}, {"method": "POST"}, {"headers": [{"name": "x-a", "value": "1"}]},
    {"method": "POST", "headers": [{"name": "x-a", "value": "1"}]},
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A Gateway at an address of its own: its listeners by name, and its routes."""

    number: int
    listeners: dict[str, str]
    routes: tuple[Obj, ...]
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.{10 + self.number}"

    @property
    def gateway(self) -> Obj:
        listeners = [
            {"name": name, "port": self.port, "protocol": "HTTP"} | ({"hostname": host} if host else {})
            for name, host in self.listeners.items()
        ]
        spec = {
            "gatewayClassName": "pyconfd",
            "addresses": [{"type": "IPAddress", "value": self.address}],
            "listeners": listeners,
        }
        return made("Gateway", f"web-{self.number}", 1, spec)


def made(kind: str, name: str, day: int, spec: Obj) -> Obj:
    meta = {"name": name, "namespace": "demo", "uid": name, "creationTimestamp": f"2026-01-{day:02}T00:00:00Z"}
    return {"kind": kind, "metadata": meta, "spec": spec}


def route(world: int, name: str, day: int, hosts: Sequence[str], matches: Sequence[Sequence[Obj]], at: str = "") -> Obj:
    """Return a route with a rule for each of ``matches``, at one listener or all."""
    parent = {"name": f"web-{world}"} | ({"sectionName": at} if at else {})
    rules = [
        {
            "matches": list(each),
            "filters": [
                {
                    "type": "RequestRedirect",
                    "requestRedirect": {"path": {"type": "ReplaceFullPath", "replaceFullPath": f"/{name}/{number}"}},
                }
            ],
        }
        for number, each in enumerate(matches)
    ]
    spec: Obj = {"parentRefs": [parent], "rules": rules} | ({"hostnames": list(hosts)} if hosts else {})
    return made("HTTPRoute", name, day, spec)


def drawn(number: int, chance: random.Random, port: int) -> World:
    hosts = chance.sample(HOSTS, chance.choice([1, 1, 2, 3]))
    if chance.random() < 0.6 and "" not in hosts:
        hosts[0] = ""
    listeners = {f"l{place}": host for place, host in enumerate(hosts)}
    routes = []
    for place in range(chance.randint(2, 8)):
        names = chance.sample(HOSTS[1:], chance.choice([0, 0, 1, 1, 2]))
        matches = [
            [chance.choice(MATCHES) | chance.choice(CONDITIONS) for _ in range(chance.randint(1, 2))]
            for _ in range(chance.randint(1, 2))
        ]
        at = chance.choice(["", "", *listeners])
        routes.append(route(number, f"r{number}-{place}", chance.randint(1, 3), names, matches, at))
    return World(number, listeners, tuple(routes), port)


def covers(pattern: str, host: str) -> bool:
    return not pattern or pattern == host or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def closeness(pattern: str) -> tuple[int, int]:
    return (0 if not pattern else 1 if pattern.startswith("*.") else 2), len(pattern)


def expected(world: World, host: str, path: str, method: str, header: str) -> str:
    """Return the path of the rule that the Gateway API names for a request, "" for none.

    The listener with the closest host has the request. Of its routes the closest hostname comes first, then the path,
    the method, the number of headers, and the older route. (A regular expression stands at the path that it begins
    with.)
    """
    fitting = [(closeness(its), name) for name, its in world.listeners.items() if covers(its, host)]
    if not fitting:
        return ""
    listener = max(fitting)[1]
    found: list[tuple[Any, ...]] = []
    for each in world.routes:
        spec, meta = each["spec"], each["metadata"]
        if spec["parentRefs"][0].get("sectionName", listener) != listener:
            continue
        named = [its for its in spec.get("hostnames", [""]) if covers(its, host)]
        if not named:
            continue
        first, length = max(map(closeness, named))
        matches = [(number, match) for number, rule in enumerate(spec["rules"]) for match in rule["matches"]]
        for place, (number, match) in enumerate(matches):
            order = order_of_path(match["path"]["type"], match["path"]["value"], path)
            wanted = [(each["name"], each["value"]) for each in match.get("headers", ())]
            if order is None or match.get("method", method) != method or wanted not in ([], [("x-a", header)]):
                continue
            age = meta["creationTimestamp"], meta["name"], place
            rank = (-first, -length, *order, "method" not in match, -len(wanted), *age)
            found.append((*rank, f"/{meta['name']}/{number}"))
    return min(found)[-1] if found else ""


def order_of_path(kind: str, value: str, path: str) -> tuple[int, int, int] | None:
    """Return what is lower, the sooner a match of a path comes; None where it is none."""
    if kind == "Exact":
        return (0, 0, 0) if path == value else None
    if kind == "PathPrefix":
        whole = value.rstrip("/")
        return (1, -len(whole), 1) if f"{path}/".startswith(f"{whole}/") else None
    matches = (
        path[3:].isdigit() and path.startswith("/x/") if value == "/x/[0-9]+" else len(path) == 2 and path[1].isalpha()
    )
    return (1, -len(place_of(RouteMatch(PathKind.REGEX, value)).path), 0) if matches else None


@contextmanager
def serving(worlds: Sequence[World], folder: Path) -> Iterator[None]:
    """Run haproxy with these Gateways."""
    spec = {"controllerName": "pyconfd.io/gateway"}
    classes = {"kind": "GatewayClass", "metadata": {"name": "pyconfd", "uid": "c"}, "spec": spec}
    objects = [classes, *(each.gateway for each in worlds), *(each for world in worlds for each in world.routes)]
    pool = AddressOptions(tuple(each.address for each in worlds), per_namespace=len(worlds))
    context = registry.translate(snapshot(*objects), ("domains", "gateway"), PresetOptions(addresses=pool))

    def rendered(runtime_socket: str) -> Rendering:
        variables = {"http_bind": "", "https_bind": "", "stats_bind": "", "runtime_socket": runtime_socket}
        renderer = copy(Renderer(read_fragments(directory()), RenderOptions(str(folder), variables=variables)))
        return renderer.render(context, curdate="").rendering

    with haproxy_with(rendered, folder):
        yield


def answered(world: World, host: str, path: str, method: str, header: str) -> str:
    headers = {"X-A": header} if header else {}
    body = "" if method == "POST" else None
    found = ask(world.port, path, method=method, host=host, headers=headers, body=body, address=world.address)
    if found.status == 404:
        return ""
    assert found.status == 302, found
    return "/" + found.headers["location"][0].split("/", 3)[3]


REQUESTS = [
    (host, path, *more) for host in ASKED for path in PATHS for more in (("GET", ""), ("GET", "1"), ("POST", "1"))
]


@pytest.mark.parametrize("seed", range(2))
def test_the_closest_host_comes_first_then_those_that_stand_for_it(seed: int, tmp_path: Path) -> None:
    chance, port = random.Random(seed), free_port()
    worlds = [drawn(number, chance, port) for number in range(WORLDS)]
    with serving(worlds, tmp_path):
        for world in worlds:
            for request in chance.sample(REQUESTS, 60):
                assert answered(world, *request) == expected(world, *request), (seed, request, world)


def test_what_is_not_found_goes_up_to_the_host_of_the_listener_and_no_further(tmp_path: Path) -> None:
    def on(path: str) -> Obj:
        return {"path": {"type": "PathPrefix", "value": path}}

    def routes_of(world: int) -> tuple[Obj, ...]:
        hosts = ["", "*.example.com", "*.b.example.com", "a.b.example.com"]
        rules = [[[on(f"/{place}") | {"method": "POST"}], [on(f"/{place}{place}")]] for place in range(len(hosts))]
        return tuple(
            route(world, f"r{world}-{place}", 1, [host] if host else [], rules[place], "any" if place == 1 else "")
            for place, host in enumerate(hosts)
        )

    port, others = free_port(), routes_of(1)
    worlds = [
        World(0, {"any": ""}, routes_of(0), port),
        World(1, {"any": "", "own": "a.b.example.com", "wild": "*.b.example.com"}, (others[1], others[3]), port),
    ]
    with serving(worlds, tmp_path):
        assert [answered(worlds[0], "a.b.example.com", f"/{n}{n}", "GET", "") for n in range(4)] == [
            f"/r0-{n}/1" for n in range(4)
        ]
        assert [answered(worlds[0], "a.b.example.com", f"/{n}", "POST", "") for n in range(4)] == [
            f"/r0-{n}/0" for n in range(4)
        ]
        assert answered(worlds[0], "a.b.example.com", "/1", "GET", "") == ""
        for host, path, found in [
            ("a.b.example.com", "/33", "/r1-3/1"),
            ("a.b.example.com", "/11", ""),
            ("c.b.example.com", "/11", ""),
            ("c.example.com", "/11", "/r1-1/1"),
        ]:
            assert answered(worlds[1], host, path, "GET", "") == found


def test_a_gateway_of_one_exact_host_has_no_virtual_host_above(tmp_path: Path) -> None:
    port = free_port()
    found = route(0, "r", 1, [], [[{"path": {"type": "Exact", "value": "/x"}}]])
    world = World(0, {"own": "a.b.example.com"}, (found,), port)
    with serving([world], tmp_path):
        assert answered(world, "a.b.example.com", "/x", "GET", "") == "/r/0"
        assert answered(world, "a.b.example.com", "/", "GET", "") == ""
