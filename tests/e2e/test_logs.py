"""The access log: which object decided on a request, and ``pyconfd logs`` that reads it out of HAProxy's memory."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from select import select
from typing import Any

import pytest
import yaml

from pyconfd.haproxy.runtime.sockets import ask as ask_socket
from tests.e2e.expect import serving
from tests.e2e.test_canary import ADDRESS, OBJECTS
from tests.e2e.test_gateway_hosts import write_route
from tests.presets.ingress.objects import ingress, ingress_class, path
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy


def logged(appliance: Appliance, *options: str) -> list[dict[str, Any]]:
    """Return the lines that ``pyconfd logs --json`` prints."""
    shown = appliance.run("logs", "--json", *options, "--config", str(appliance.config))
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def decided(lines: list[dict[str, Any]], host: str) -> list[str]:
    return [line["object"] for line in lines if line["host"] == host]


@contextmanager
def following(appliance: Appliance, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "pyconfd", "logs", "-f", *options, "--config", str(appliance.config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_each_line_names_the_object_that_decided_and_the_pod_that_answered(appliance: Appliance) -> None:
    port = service_port(ADDRESS)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    serving(appliance)
    appliance.serve("web", {}, pods=1)
    appliance.cluster.load_object(ingress_class())
    for name in ("first", "second"):
        rules = {"ingress.example.com": [path(f"/{name}", "shop:80")]}
        appliance.cluster.load_object(ingress(name, rules, namespace=NAMESPACE))
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    write_route(appliance, ["route.example.com"], [("PathPrefix", "/a")])
    http = appliance.http
    appliance.until(lambda: ask(http, "ingress.example.com", path="/second").startswith("shop-"), "Ingress is served")
    appliance.until(lambda: ask(port, "route.example.com", address=ADDRESS, path="/a").startswith("web-"), "route too")
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "the domain too")
    # Each once more: a reload on the way left what was asked before in the memory of another worker.
    ask(http, "ingress.example.com", path="/second")
    ask(port, "route.example.com", address=ADDRESS, path="/a")
    ask(http, "nobody.example.com", path='/"quoted\\')

    appliance.until(lambda: decided(logged(appliance), "nobody.example.com"), "the last one is logged")
    lines = logged(appliance)
    assert decided(lines, "shop.example.com")[-1] == f"Service/{NAMESPACE}/shop"
    assert decided(lines, "ingress.example.com")[-1] == f"Ingress/{NAMESPACE}/first,second"
    (nobody,) = (line for line in lines if line["host"] == "nobody.example.com")
    assert (nobody["object"], nobody["status"], nobody["path"]) == ("", 400, '/"quoted\\')
    served = [line for line in lines if line["host"] == "route.example.com" and line["status"] == 200][-1]
    assert (served["backend"], served["method"], served["path"]) == (f"gw_http_{NAMESPACE}_web_0", "GET", "/a")
    assert served["server"].startswith("web-1:")
    assert served["client"].startswith("127.")
    assert served["total_ms"] >= 0
    assert len(served["id"]) == 36

    only = logged(appliance, "--route", f"httproute/{NAMESPACE}/web", "--status", "2xx")
    assert {line["host"] for line in only} == {"route.example.com"}
    assert logged(appliance, "--slower-than", "1h") == []
    text = appliance.run("logs", "--host", "nobody.example.com", "--config", str(appliance.config)).stdout
    assert "400" in text
    assert "no object has it" in text
    assert "(HAProxy answered it itself)" in text


def test_who_follows_sees_each_request_once_over_a_reload(appliance: Appliance) -> None:
    serving(appliance)
    with following(appliance, "--json", "--host", "shop.example.com") as process:
        assert process.stdout is not None
        output, seen = process.stdout, list[str]()

        def ask_for(path: str) -> str:
            return ask(appliance.http, "shop.example.com", path=path)

        # Whether it follows yet shows in the first line only.
        appliance.until(lambda: ask_for("/begin") and select([output], [], [], 0)[0], "it follows")
        for number in range(3):
            ask_for(f"/{number}")
        worker = appliance.haproxy.worker()
        appliance.haproxy.reload()
        appliance.until(lambda: appliance.haproxy.worker() != worker, "the reload is there")
        for number in range(3, 6):
            ask_for(f"/{number}")
        wanted = [f"/{number}" for number in range(6)]
        while not set(wanted) <= set(seen):
            seen.append(json.loads(output.readline())["path"])
    # In any order: another thread of HAProxy may write the line of a later request first.
    assert sorted(path for path in seen if path != "/begin") == wanted


def test_who_follows_is_told_when_haproxy_is_away_and_goes_on_after_its_start(appliance: Appliance) -> None:
    serving(appliance)
    with following(appliance, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        output, notes = process.stdout, process.stderr
        appliance.until(lambda: appliance.ask("shop") and select([output], [], [], 0)[0], "it follows")
        appliance.haproxy.stop()
        assert "haproxy does not answer" in notes.readline()
        appliance.haproxy.start()
        assert "haproxy answers again" in notes.readline()
        ask(appliance.http, "shop.example.com", path="/after")
        while json.loads(output.readline())["path"] != "/after":
            pass


HOSTILE = [
    b"GET /hidden HTTP/1.1\r\nHost: a\xe2\x80\xa8b.example.com\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: \xff\xfe.example.com\r\n\r\n",
    b'GET /","status":200,"x":" HTTP/1.1\r\nHost: a"b.example.com\r\n\r\n',
    b'G"T / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n',
    b'GET / HTTP/1."1\r\nHost: shop.example.com\r\n\r\n',
    b'GET / HTTP/1.1\r\nHost: shop.example.com\r\nX-Request-ID: "}\r\n\r\n',
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: " + b"b" * 3000 + b".example.com\r\n\r\n",
    b'"}{ garbage\r\n\r\n',
]
"""Each makes one line, whatever is in it."""


def test_no_client_can_hide_a_request_or_forge_a_line(appliance: Appliance) -> None:
    serving(appliance)
    before = len(logged(appliance))
    for request in HOSTILE:
        with socket.create_connection(("127.0.0.1", appliance.http), 30) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    appliance.until(lambda: len(logged(appliance)) >= before + len(HOSTILE), "each has its line")
    raw = ask_socket(appliance.haproxy.stats_socket, "show events access").split("\n")
    lines = [json.loads(line) for line in raw if line.startswith("{")][before:]
    assert len(lines) == len(HOSTILE)
    assert [line["status"] for line in lines] == [404, 400, 404, 400, 400, 200, 404, 400]
    assert len(max(raw, key=len)) < 10_240


class Client:
    """Asks for a path of its own each time, and looks for it in the log."""

    def __init__(self, appliance: Appliance, gateway: int) -> None:
        self._appliance, self._gateway, self._numbers = appliance, gateway, count()

    def ask(self, name: str) -> tuple[str, str]:
        """Return the path that was asked for, and the answer."""
        where, host = f"/{next(self._numbers)}", f"{name}.example.com"
        if name == "route":
            return where, ask(self._gateway, host, address=ADDRESS, path=where)
        return where, ask(self._appliance.http, host, path=where)

    def is_logged(self, name: str) -> bool:
        """Return whether a request for ``name`` has a line: nearly always it would be before that of a later one."""
        asked: list[str] = []

        def has_later() -> bool:
            for _ in range(50 if asked else 0):
                if asked and asked[1] in self._paths():
                    return True
                time.sleep(0.02)
            # Around a reload the former worker may have had them, whose memory nobody asks any more.
            asked[:] = [self.ask(each)[0] for each in (name, "loud")]
            return False

        self._appliance.until(has_later, "what was asked later is logged")
        return asked[0] in self._paths()

    def until_served(self, *names: str) -> None:
        for name in names:
            self._appliance.until(lambda name=name: self.ask(name)[1].endswith("-1"), f"{name} is served")  # type: ignore[misc]

    def until_logged(self, *names: str) -> None:
        for name in names:
            self._appliance.until(lambda name=name: self.is_logged(name), f"{name} is logged")  # type: ignore[misc]

    def until_quiet(self, *names: str) -> None:
        for name in names:
            self._appliance.until(lambda name=name: not self.is_logged(name), f"{name} is left out")  # type: ignore[misc]

    def _paths(self) -> list[str]:
        raw = ask_socket(self._appliance.haproxy.stats_socket, "show events access").split("\n")
        return [json.loads(line)["path"] for line in raw if line.startswith("{")]


QUIET = {"shop": ("services", "shop"), "cart": ("ingresses", "cart"), "route": ("httproutes", "web")}


def serve_each_kind(appliance: Appliance) -> Client:
    """Serve the objects of :data:`QUIET` and another one, each at ``NAME.example.com``."""
    port = service_port(ADDRESS)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    for name in ("shop", "loud"):
        appliance.serve(name, pods=1)
    appliance.serve("web", {}, pods=1)
    appliance.cluster.load_object(ingress_class())
    appliance.cluster.load_object(ingress("cart", {"cart.example.com": [path("/", "web:80")]}, namespace=NAMESPACE))
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    write_route(appliance, ["route.example.com"], [("PathPrefix", "/")])
    appliance.start()
    client = Client(appliance, port)
    client.until_served(*QUIET, "loud")
    appliance.until(appliance.settled, "all is applied")
    return client


def test_what_an_object_leaves_out_is_its_own_and_no_failure(appliance: Appliance) -> None:
    client = serve_each_kind(appliance)
    client.until_logged(*QUIET)
    for name, (resource, of) in QUIET.items():
        appliance.cluster.annotate(resource, NAMESPACE, of, {"pyconfd.io/access-log": "off"})
        client.until_quiet(name)
    appliance.until(appliance.settled, "no reload is to come")
    client.until_quiet(*QUIET)
    answering = [appliance.pods.pods[each] for each in ("shop-1", "web-1")]
    for pod in answering:
        pod.code = "404 Not Found"
    assert {name: client.is_logged(name) for name in QUIET} == dict.fromkeys(QUIET, False)
    for pod in answering:
        pod.code = "500 Internal Server Error"
    client.until_logged(*QUIET)
    for service in ("shop", "web"):
        appliance.remove(service, f"{service}-1")
    client.until_logged(*QUIET)  # HAProxy's own 503
    for service in ("shop", "web"):
        appliance.scale_up(service)
    client.until_quiet(*QUIET)
    for resource, of in QUIET.values():
        appliance.cluster.annotate(resource, NAMESPACE, of, {"pyconfd.io/access-log": None})
    client.until_logged(*QUIET)


def test_what_is_missing_is_named(appliance: Appliance) -> None:
    serving(appliance)
    appliance.haproxy.stop()
    shown = appliance.run("logs", "--config", str(appliance.config))
    assert shown.returncode == 75
    assert "does haproxy run?" in shown.stderr
    for wrong in (("--route", "shop"), ("--status", "9xx"), ("--status", "20"), ("--slower-than", "soon")):
        assert appliance.run("logs", *wrong, "--config", str(appliance.config)).returncode == 64
