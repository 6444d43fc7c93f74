"""Route 53 over HTTP: moto as a process of its own, and a proxy before it that fails on request."""

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.world.haproxy import free_port, wait_until

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
_START_S = 90.0
_ERROR = (
    '<?xml version="1.0"?><ErrorResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><Error>'
    "<Type>Sender</Type><Code>{code}</Code><Message>as asked for</Message></Error><RequestId>1</RequestId>"
    "</ErrorResponse>"
)
STATUSES = {"Throttling": 400, "PriorRequestNotComplete": 400, "ServiceUnavailable": 503}
STATUSES |= dict.fromkeys(("AccessDenied", "ExpiredToken"), 403)
HANG, LOSE_REPLY = "hang", "lose reply"


@contextmanager
def moto(folder: Path) -> Iterator[int]:
    """A moto server; gives its port."""
    port = free_port()
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log, env=os.environ | CREDENTIALS
        )
        try:
            wait_until(lambda: _answers(port, process), "moto answers", limit_s=_START_S)
            yield port
        finally:
            process.kill()
            process.wait()


def _answers(port: int, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"moto ended with {process.returncode}")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/moto-api/")
        connection.getresponse().read()
    except OSError:
        return False
    return True


@dataclass
class FaultProxy:
    """Passes requests on; ``faults`` are used up one for each request, "" for none.

    ``seen`` are method and path, ``signed`` the headers by which requests are signed.
    """

    upstream: int
    faults: list[str] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    signed: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def changing(self) -> int:
        return sum(method == "POST" for method, _ in self.seen)


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 20

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def log_message(self, *args: Any) -> None:
            pass

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            proxy.seen.append((self.command, self.path))
            proxy.signed.append(self.headers.get("Authorization", ""))
            fault = proxy.faults.pop(0) if proxy.faults else ""
            self.close_connection = True
            if fault == HANG:
                proxy.released.wait()
                return
            if fault in STATUSES:
                self._reply(STATUSES[fault], _ERROR.format(code=fault).encode(), "text/xml")
                return
            upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=20)
            headers = {key: value for key, value in self.headers.items() if key.lower() != "connection"}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
            if fault != LOSE_REPLY:
                self._reply(answer.status, content, answer.headers.get("Content-Type", "text/xml"))

        def _reply(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

    return Handler
