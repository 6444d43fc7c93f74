"""Watches that break right after their first line, again and again: how often the API server is asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest

from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import ApiServers
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.reflector import LASTING_WATCH_S, Reflector
from pyconfd.sources.kubernetes.resources import Read
from tests.sources.kubernetes.clocks import StandingClock

BOOKMARK = {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "9"}}}
EVENT = {"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": "node-NUMBER", "resourceVersion": "9"}}}
PERIOD_S = 600.0


def _error(code: int) -> dict[str, object]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "broken"}}


class Server(ThreadingHTTPServer):
    """Lists nothing, and ends each watch after these lines; NUMBER is another one in each."""

    daemon_threads = True

    def __init__(self, lines: list[object]) -> None:
        self.requests = 0
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests += 1
                body = json.dumps({"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []})
                if "watch=1" in self.path:
                    body = "".join(f"{text}\n" for text in texts).replace("NUMBER", str(server.requests))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def _serving(lines: list[object]) -> Iterator[Server]:
    with Server(lines) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _reflectors(server: Server, clock: StandingClock, count: int, *, lasts_s: float = 0.0) -> list[Reflector]:
    """Return reflectors of one source; while an event is taken, so much time passes."""
    settings = KubernetesSettings(api_servers=(f"http://127.0.0.1:{server.server_port}",))
    servers = ApiServers(settings, Credentials(settings, clock), clock)
    made: list[Reflector] = []

    def changed() -> None:
        clock.now_s += lasts_s

    def recovered() -> None:
        for reflector in made:
            reflector.server_is_back()

    read = Read(Named(Resource.NODES, "", ""), {})
    made += [
        Reflector(read, settings, servers, clock, jitter=Random(1), on_change=changed, on_recovered=recovered)
        for _ in range(count)
    ]
    return made


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([BOOKMARK], id="the connection ends"),
        pytest.param([EVENT, _error(410)], id="expired"),
        pytest.param([BOOKMARK, _error(500)], id="an error"),
        pytest.param([BOOKMARK, "<html>"], id="no event"),
    ],
)
def test_a_watch_that_breaks_after_its_first_event_backs_off(lines: list[object]) -> None:
    clock = StandingClock()
    count, most = 2, 120  # a watch and a list each half a minute, more often at first
    with _serving(lines) as server:
        reflectors, ends_s = _reflectors(server, clock, count), clock.now_s + PERIOD_S
        while clock.now_s < ends_s and server.requests <= most:
            for reflector in reflectors:
                reflector.step()
        assert server.requests <= most
        assert clock.now_s >= ends_s


def test_a_watch_that_lasted_is_opened_again_at_once() -> None:
    clock = StandingClock()
    with _serving([EVENT]) as server:
        (reflector,) = _reflectors(server, clock, 1, lasts_s=LASTING_WATCH_S)
        began_s = clock.now_s
        for _ in range(11):
            reflector.step()
        assert server.requests == 11
        assert clock.now_s - began_s == 11 * LASTING_WATCH_S, "nothing but the list and the watches took time"
