"""Figures of every route: what clients asked is what is counted, over reloads and restarts."""

import re
import socket

import pytest
import yaml

from pyconfd.haproxy.runtime.sockets import processes
from tests.e2e.expect import serving
from tests.e2e.test_canary import ADDRESS, OBJECTS
from tests.e2e.test_gateway_hosts import write_route
from tests.presets.ingress.objects import ingress, ingress_class, path
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import Crowd, ask
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

_SAMPLE = re.compile(
    r'pyconfd_route_(\w+)\{backend="([^"]*)",kind="(\w*)",[^}]*?name="([^"]*)",rule="(\w*)"(.*)\} (\d+)'
)


def figures(appliance: Appliance) -> dict[tuple[str, str], int]:
    """Return the figures by name and object or backend, such as ``requests_total 2xx`` of ``HTTPRoute/web/0``."""
    code, text = appliance.get("/metrics/routes")
    assert code == 200, text
    found: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        if not line.startswith(("#", "pyconfd_route_host")):
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            family, backend, kind, name, rule, more, value = sample.groups()
            label = more.partition('="')[2].strip('"')
            found[f"{family} {label}".strip(), f"{kind}/{name}/{rule}" if kind else backend] = int(value)
    return found


def requests(appliance: Appliance) -> int:
    return sum(count for (family, _), count in figures(appliance).items() if "requests" in family)


def test_requests_and_connections_count_for_their_objects(appliance: Appliance) -> None:
    port, plain = service_port(ADDRESS), service_port("127.0.0.1")
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    appliance.values["status"]["metrics_per_host"] = True
    appliance.values["presets"] = appliance.values.get("presets", {}) | {"listen_ports": [str(plain)]}
    serving(appliance)
    appliance.serve("web", {}, pods=1)
    appliance.serve("cache", {"domain": "cache", "proto": "tcp", "pyconfd.io/listen-port": str(plain)}, pods=1)
    appliance.cluster.load_object(ingress_class())
    appliance.cluster.load_object(
        ingress("front", {"ingress.example.com": [path("/", "shop:80")]}, namespace=NAMESPACE)
    )
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    write_route(appliance, ["route.example.com"], [("PathPrefix", "/a")])
    http = appliance.http
    appliance.until(lambda: ask(http, "ingress.example.com").startswith("shop-"), "the Ingress is served")
    appliance.until(lambda: ask(port, "route.example.com", address=ADDRESS, path="/a").startswith("web-"), "the route")
    appliance.until(lambda: ask(plain, "cache").startswith("cache-"), "the port")
    before = figures(appliance)

    for _ in range(3):
        ask(http, "ingress.example.com")
        ask(port, "route.example.com", address=ADDRESS, path="/a")
    # No route is for it, so it counts for none.
    assert ask(port, "route.example.com", address=ADDRESS, path="/nothing") == "404"
    with socket.create_connection(("127.0.0.1", plain)):
        appliance.until(lambda: figures(appliance)["sessions", "be-cache"] == 1, "the session is there")
    after = figures(appliance)
    more = {key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)}

    assert {key: count for key, count in more.items() if "requests" in key[0]} == {
        ("requests_total 2xx", "Service/shop/80"): 3,
        ("requests_total 2xx", "HTTPRoute/web/0"): 3,
        ("requests_total 4xx", "gateway-no-route"): 1,
    }
    assert more["connections_total", "be-cache"] == 1
    assert more["first_byte_seconds_bucket +Inf", "Service/shop/80"] == 3
    assert more["first_byte_seconds_bucket +Inf", "HTTPRoute/web/0"] == 3
    assert more["bytes_in_total", "HTTPRoute/web/0"] > 3 * len("GET /a HTTP/1.1")
    assert more["bytes_out_total", "HTTPRoute/web/0"] > 3 * len("HTTP/1.1 200 OK")

    hosts = re.findall(r'pyconfd_route_host_info\{backend="(.*)",host="(.*)"\} 1', appliance.get("/metrics/routes")[1])
    assert {host for backend, host in hosts if backend == f"ing_{NAMESPACE}_shop_80"} == {"ingress.example.com"}
    assert {host for backend, host in hosts if backend == f"gw_http_{NAMESPACE}_web_0"} == {"route.example.com"}
    assert ("be-cache", "cache") in hosts

    appliance.remove("web", "web-1")
    appliance.until(lambda: ask(port, "route.example.com", address=ADDRESS, path="/a") == "503", "no pod is left")
    # What HAProxy answers itself counts too.
    appliance.until(lambda: figures(appliance)["requests_total 5xx", "HTTPRoute/web/0"], "it is counted")


def test_nothing_is_lost_over_reloads_and_restarts(appliance: Appliance) -> None:
    appliance.serve("shop")
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    crowd = Crowd(appliance.http, "shop.example.com", keep_alive=True)

    def more_than(count: int) -> None:
        appliance.until(lambda: crowd.seen().total() > count, "requests go on meanwhile")

    appliance.until(lambda: requests(appliance), "the first worker is counted")
    seen = 0
    for turn in range(4):
        appliance.haproxy.reload()
        # A worker ends when pyconfd has found the next one: so none is replaced, or left by pyconfd, before it is seen.
        appliance.until(lambda: not processes(appliance.haproxy.master_socket).old_workers, "the former one has ended")
        if turn == 1:
            appliance.stop()
            more_than(crowd.seen().total() + 20)
            appliance.spawn()
            appliance.until(appliance.settled, "pyconfd runs again")
        asked = crowd.seen().total() + 10
        more_than(asked)

        def counts(asked: int = asked) -> bool:
            nonlocal seen
            before, seen = seen, requests(appliance)
            assert seen >= before
            return seen >= asked

        appliance.until(counts, "the new worker is counted")
    answers = crowd.stop()
    assert set(answers) <= {"shop-1", "404"}
    appliance.until(lambda: requests(appliance) == answers.total(), "all are counted")
