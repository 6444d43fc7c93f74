"""Servers whose lists never end, or whose watches break after their first line: how often they are asked."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest

from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import ApiServers
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.reflector import LASTING_WATCH_S, Reflector
from pyconfd.sources.kubernetes.resources import ResourceRead
from tests.sources.kubernetes.clocks import StandingClock
from tests.sources.kubernetes.conftest import Start, ended, eventually


@contextmanager
def serving(answer: Callable[[str, int], str]) -> Iterator[tuple[str, Iterator[int]]]:
    """Serve what ``answer`` returns for a path and the number of the request; yield the URL and that counter."""
    numbers = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer(self.path, next(numbers)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", numbers
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        pytest.param(itertools.repeat("a"), "came twice", id="the same"),
        pytest.param(itertools.cycle("ab"), "came twice", id="in turns"),
        pytest.param(map(str, itertools.count()), "does not end", id="always another one"),
    ],
)
def test_a_list_without_end_is_a_bad_answer(tokens: Iterator[str], message: str, start: Start) -> None:
    def page(path: str, number: int) -> str:
        metadata = {"resourceVersion": "1", "continue": next(tokens)}
        return json.dumps({"kind": "ServiceList", "metadata": metadata, "items": []})

    with serving(page) as (url, _):
        source = start(url, resources=[Resource.SERVICES], speed=1000)
        eventually(lambda: any(message in problem.message for problem in source.problems()), what=source.problems)
        assert source.snapshot() is None
        ended(source)


BOOKMARK = {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "9"}}}
EVENT = {"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": "node-NUMBER", "resourceVersion": "9"}}}
EMPTY = json.dumps({"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []})
PERIOD_S = 600.0


def error(code: int) -> dict[str, object]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "broken"}}


def short_watches(lines: list[object]) -> Callable[[str, int], str]:
    """List nothing, and end each watch after these lines; NUMBER is another one in each."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return lambda path, number: text.replace("NUMBER", str(number)) if "watch=1" in path else EMPTY


def reflectors(url: str, clock: StandingClock, count: int, *, lasts_s: float = 0.0) -> list[Reflector]:
    """Return reflectors of one source; while an event is taken, so much time passes."""
    settings = KubernetesSettings(api_servers=(url,))
    servers = ApiServers(settings, Credentials(settings, clock), clock)
    made: list[Reflector] = []

    def changed() -> None:
        clock.now_s += lasts_s

    def recovered() -> None:
        for reflector in made:
            reflector.server_is_back()

    read = ResourceRead(Named(Resource.NODES, "", ""), {})
    made += [
        Reflector(read, settings, servers, clock, jitter=Random(1), on_change=changed, on_recovered=recovered)
        for _ in range(count)
    ]
    return made


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([BOOKMARK], id="the connection ends"),
        pytest.param([EVENT, error(410)], id="expired"),
        pytest.param([BOOKMARK, error(500)], id="an error"),
        pytest.param([BOOKMARK, "<html>"], id="no event"),
    ],
)
def test_a_watch_that_breaks_after_its_first_event_backs_off(lines: list[object]) -> None:
    clock = StandingClock()
    most = 120  # of two reflectors: a watch and a list each half a minute, more often at first
    with serving(short_watches(lines)) as (url, numbers):
        both, ends_s = reflectors(url, clock, 2), clock.now_s + PERIOD_S
        for _ in range(most):
            for reflector in both:
                reflector.step()
            if clock.now_s >= ends_s:
                break
        assert clock.now_s >= ends_s
        assert next(numbers) <= most


def test_a_watch_that_lasted_is_opened_again_at_once() -> None:
    clock = StandingClock()
    with serving(short_watches([EVENT])) as (url, numbers):
        (reflector,) = reflectors(url, clock, 1, lasts_s=LASTING_WATCH_S)
        began_s = clock.now_s
        for _ in range(11):
            reflector.step()
        assert next(numbers) == 12
        assert clock.now_s - began_s == 11 * LASTING_WATCH_S, "nothing but the list and the watches took time"
