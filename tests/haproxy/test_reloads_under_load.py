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
from tests.world.haproxy import configuration, wait_until
from tests.world.http_clients import Client

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


def _went_on(clients: list[Client], before: list[int]) -> bool:
    """Whether each quick client has had some answers more; one that fails is found in the end."""
    return all(
        client.tally.failures or client.tally.answers >= answers + BETWEEN
        for client, answers in list(zip(clients, before, strict=True))[:6]
    )


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
        clients = [
            *(Client(bench.port, keep_alive=False) for _ in range(3)),
            *(Client(bench.port, keep_alive=True) for _ in range(3)),
            *(Client(bench.port, keep_alive=True, path="/slow") for _ in range(2)),
        ]
        for client in clients:
            client.start()
        for number in range(1, RELOADS + 1):
            assert apply(balancer, rendering(desired(number), extra)).verified
            before = [client.tally.answers for client in clients]
            wait_until(lambda: _went_on(clients, before), "the load goes on between the reloads")  # noqa: B023 - at once
        tallies = [client.stop() for client in clients]

    assert [failure for tally in tallies for failure in tally.failures] == []
    assert all(tally.answers >= BETWEEN * RELOADS for tally in tallies[:6])
    assert sum(tally.reused for tally in tallies[3:6]) > sum(tally.answers for tally in tallies[3:6]) / 2
    assert all(tally.answers > 0 for tally in tallies[6:])
    print(f"\n{RELOADS} reloads, {sum(tally.answers for tally in tallies)} answers, no failure")
