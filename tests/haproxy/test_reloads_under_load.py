"""Failure class 14: a hundred reloads, and nobody notices.

Ten by default; ``PYCONFD_TEST_RELOADS=100`` for the whole form.
"""

import http.server
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.haproxy.bench import Bench, apply, rendering
from tests.world.clients import Crowd, failures
from tests.world.haproxy import configuration, wait_until

BETWEEN = 5
"""Answers between two reloads: most of them on a connection that was used before."""
RELOADS = int(os.environ.get("PYCONFD_TEST_RELOADS", "10"))

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300 + 5 * RELOADS)]


class SlowAnswer(http.server.BaseHTTPRequestHandler):
    """Takes longer than a reload, so that answers are under way in the old worker when it stops."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = 10
        self.send_response(200)
        self.send_header("Content-Length", str(parts * 1000))
        self.end_headers()
        for _ in range(parts):
            self.wfile.write(b"x" * 1000)
            self.wfile.flush()
            time.sleep(0.03)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay quiet: a worker that stops resets its idle connections to servers."""


def _went_on(crowds: list[Crowd], before: list[int]) -> bool:
    """Return whether the quick clients have had some answers more; one that fails is found in the end."""
    quick = list(zip(crowds, before, strict=True))[:2]
    return all(failures(crowd.seen()) or crowd.seen().total() >= count + 3 * BETWEEN for crowd, count in quick)


@contextmanager
def slow_backend() -> Iterator[int]:
    with Server(("127.0.0.1", 0), SlowAnswer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_no_request_fails_and_none_is_cut_off_while_it_reloads_again_and_again(bench: Bench) -> None:
    with slow_backend() as slow:
        extra = f"    use_backend be_slow if {{ path /slow }}\nbackend be_slow\n    server s 127.0.0.1:{slow}\n"
        first_line = '    http-request return status 200 content-type text/plain string "{}" if ! {{ path /slow }}\n'

        def desired(number: int) -> str:
            text = configuration(bench.port, "x")
            head, _, _ = text.rpartition("    http-request return")
            return head + first_line.format(f"generation {number}")

        bench.conf.write_text(desired(0) + extra)
        bench.haproxy.start()
        balancer = bench.balancer()
        crowds = [
            Crowd(bench.port, clients=3),
            Crowd(bench.port, clients=3, keep_alive=True),
            Crowd(bench.port, clients=2, keep_alive=True, path="/slow"),
        ]
        for number in range(1, RELOADS + 1):
            assert apply(balancer, rendering(desired(number), extra)).verified
            before = [crowd.seen().total() for crowd in crowds]
            wait_until(lambda: _went_on(crowds, before), "the load goes on between the reloads")  # noqa: B023 - at once
        answers = [crowd.stop() for crowd in crowds]

    assert [failures(each) for each in answers] == [[], [], []]
    assert all(each.total() >= 3 * BETWEEN * RELOADS for each in answers[:2])
    assert crowds[1].reused > answers[1].total() / 2
    assert answers[2].total() > 0
