"""The instance metadata service, version 2, as an instance sees it."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeMetadata:
    """A fake IMDSv2: a token is needed, and lasts for ``good_for`` questions."""

    def __init__(self, values: dict[str, str], good_for: int = 1000) -> None:
        self.values = values
        self.good_for = good_for
        self.tokens = 0
        self.silent = False
        self._left = 0
        imds = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                imds.tokens += 1
                imds._left = imds.good_for
                asked = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                good = self.path == "/latest/api/token" and asked and not imds.silent
                self._reply(200 if good else 403, f"token-{imds.tokens}" if good else "")

            def do_GET(self) -> None:
                token = self.headers.get("X-aws-ec2-metadata-token")
                if token != f"token-{imds.tokens}" or imds._left <= 0:
                    self._reply(401, "")
                    return
                imds._left -= 1
                value = imds.values.get(self.path.removeprefix("/latest/meta-data/"))
                self._reply(404 if value is None else 200, value or "<html>not found</html>")

            def _reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
