"""What each path of the status page answers; knows no socket."""

import html
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from pyconfd.model.status import Status
from pyconfd.status import document
from pyconfd.status.health import liveness, readiness
from pyconfd.status.metrics import CONTENT_TYPE, exposition, registry_of
from pyconfd.status.report import Freshness, StatusReport
from pyconfd.status.text import render_text

Explain = Callable[[str], bytes | None]
"""Gives the JSON that answers the query of ``/explain``, None where there is nobody to answer."""

EXPLAIN = "/explain"

_PLAIN = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"

_INDEX = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>pyconfd: {title}</title>
<meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width"></head>
<body><pre>{text}</pre>
<p><a href="/metrics">/metrics</a> for Prometheus &middot; <a href="/healthz">/healthz</a> alive and making progress
&middot; <a href="/readyz">/readyz</a> synced and applied
&middot; <a href="/status.json">/status.json</a> everything
&middot; <a href="/explain">/explain</a> all that is refused, ?q=NAME why something is not there</p>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer; ``headers`` come on top of those that every answer has."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def head(self) -> bytes:
        """Return the status line and the headers with the empty line after them."""
        headers = (
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
            ("Connection", "close"),
            *self.headers,
        )
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}", *(f"{name}: {value}" for name, value in headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def plain(status: HTTPStatus, text: str) -> Answer:
    """Return a one-line text."""
    return Answer(status, _PLAIN, f"{text}\n".encode())


def no_explanation(query: str) -> None:
    """Explain nothing: this loop reads no objects."""
    del query


class Pages:
    """The pages; each call asks ``status`` once."""

    def __init__(self, status: Callable[[], Status], explain: Explain = no_explanation) -> None:
        self._status = status
        self._explain = explain
        self._registry = registry_of(status)

    def answer(self, path: str, query: str = "") -> Answer:  # noqa: PLR0911 - one for each page
        """Return the page at ``path``; ``/explain`` alone heeds a query, and alone may take a while."""
        match path:
            case "/explain":
                explained = self._explain(query)
                if explained is None:
                    return plain(HTTPStatus.NOT_FOUND, "this pyconfd reads no cluster, so it has nothing to explain")
                return Answer(HTTPStatus.OK, _JSON, explained)
            case "/metrics":
                return Answer(HTTPStatus.OK, CONTENT_TYPE, exposition(self._registry))
            case "/healthz":
                verdict = liveness(self._status())
            case "/readyz":
                verdict = readiness(self._status())
            case "/status.json":
                return Answer(HTTPStatus.OK, _JSON, document.encode(self._status()))
            case "/":
                return self._index()
            case _:
                return plain(
                    HTTPStatus.NOT_FOUND, "no such page; there are / /metrics /healthz /readyz /status.json /explain"
                )
        return plain(HTTPStatus.OK if verdict.good else HTTPStatus.SERVICE_UNAVAILABLE, verdict.reason)

    def _index(self) -> Answer:
        status = self._status()
        text = render_text(StatusReport(Freshness.LIVE, status.now, status))
        page = _INDEX.format(title=html.escape(status.phase.value), text=html.escape(text))
        return Answer(HTTPStatus.OK, _HTML, page.encode())
