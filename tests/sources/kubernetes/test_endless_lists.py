"""Lists that never end must not be followed for ever, nor fill the memory."""

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pyconfd.model.snapshot import Resource
from tests.sources.kubernetes.conftest import Start, ended, eventually


@contextmanager
def _endless(tokens: Iterator[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(
                {"kind": "ServiceList", "metadata": {"resourceVersion": "1", "continue": next(tokens)}, "items": []}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
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
    with _endless(tokens) as url:
        source = start(url, resources=[Resource.SERVICES], speed=1000)
        eventually(lambda: any(message in problem.message for problem in source.problems()), what=source.problems)
        assert source.snapshot() is None
        ended(source)
