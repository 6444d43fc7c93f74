"""Hosts and paths of a Gateway come and go in a real haproxy, which is never reloaded for them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pyconfd.haproxy.config.diff import Comparison, plan
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.model.plan import RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.presets.routing.types import RouteMatch, RouteRule
from tests.fragments.shipped import HAPROXY, write_rendering
from tests.presets.gateway import stage
from tests.presets.gateway.stage import EchoServer, Routes, ask, gateway, parsed, pods, render
from tests.world.haproxy import HaproxyProcess, free_port

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

CHARACTERS = "/az/AZ/09/-_.~!$&'()*+,;=:@%2F"
"""One of each kind that a path may hold."""

HOSTS = ("new.example.com", "a-1.example.com", "*.wild.example.com")

CONDITIONS = {
    "path": {"type": "RegularExpression", "value": "/(a|b)/[0-9]{2}"},
    "headers": [{"name": "x-mode", "type": "RegularExpression", "value": "a|b"}],
    "queryParams": [{"name": "q", "value": "~|;"}],
}


class Appliance:
    """One haproxy with one Gateway, whose one rule leads to ``pod``; what it loaded is what it is compared with."""

    def __init__(self, haproxy: HaproxyProcess, folder: Path, pod: EchoServer) -> None:
        self.port, self.folder, self.pod, self.haproxy = free_port(), folder, pod, haproxy
        self.comparison, self.runtime = Comparison(), Runtime()
        self.applied = self.rendering([("shop.example.com", "PathPrefix", "/")])
        write_rendering(self.applied, haproxy.conf)
        haproxy.start()
        self.runtime.connect([haproxy.stats_socket])

    def rendering(self, asked: Sequence[tuple[str, str, str]]) -> Rendering:
        """Return what is rendered for hosts with paths, and a rule that is chosen by conditions."""
        routes: dict[str, Routes] = {}
        rule = parsed({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "web"}]})
        first = Routes("gw_demo_web_80", "shop.example.com").add(rule, stage.reference(1, (self.pod.endpoint,)))
        first.add(parsed({"matches": [CONDITIONS]}))
        routes["shop.example.com"] = first
        for number, (host, kind, path) in enumerate(asked):
            route = routes.setdefault(host, Routes("gw_demo_web_80", host))
            match = parsed({"matches": [{"path": {"type": kind, "value": path}}]}).matches[0]
            route.rules.append(self._to_the_pod(route, match, first, number))
        front, backends = gateway("gw_demo_web_80", list(routes.values()), port=self.port)
        return render([front], backends, str(self.folder), runtime_socket=self.haproxy.stats_socket)

    @staticmethod
    def _to_the_pod(route: Routes, match: RouteMatch, first: Routes, number: int) -> RouteRule:
        return RouteRule(route.virtual_host, match, first.sections[0].route, first.rules[0].owner, 100 + number)

    def reach(self, asked: Sequence[tuple[str, str, str]]) -> RuntimeUpdate:
        desired = self.rendering(asked)
        made = plan(desired, self.applied, None, comparison=self.comparison, abilities=self.runtime.abilities)
        assert isinstance(made, RuntimeUpdate), made
        self.runtime.execute(made.commands)
        self.applied = desired
        return made

    def status(self, host: str, path: str) -> int:
        return ask(self.port, path, host=host.replace("*", "any")).status


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Appliance]:
    with pods("web") as (web,), HaproxyProcess(tmp_path / "etc") as haproxy:
        made = Appliance(haproxy, tmp_path, web)
        yield made
        made.runtime.close()


@pytest.mark.parametrize("kind", ["Exact", "PathPrefix"])
@pytest.mark.parametrize("host", HOSTS)
def test_a_host_and_a_path_come_and_go_without_a_reload(appliance: Appliance, host: str, kind: str) -> None:
    previous = appliance.haproxy.worker()
    for path in ("/", CHARACTERS, "/~u"):
        appliance.reach([("shop.example.com", "PathPrefix", "/"), (host, kind, path)])
        assert appliance.status(host, path) == 200
        appliance.reach([("shop.example.com", "PathPrefix", "/")])
        assert appliance.status(host, path) == 404
    assert appliance.status("shop.example.com", "/a/12") == 200
    assert appliance.haproxy.worker() == previous
