"""One request and its whole answer, recorded or fetched, in one form for the contract tests."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "kubernetes-transcripts"
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """``body`` is None for a watch, ``stream`` empty for anything else."""

    request: str
    status: int
    headers: Mapping[str, str]
    body: Any
    stream: tuple[Any, ...] = ()


def recorded(name: str) -> Exchange:
    """A transcript of the real API server."""
    raw = json.loads((TRANSCRIPTS / f"{name}.json").read_text(encoding="utf-8"))
    return Exchange(raw["request"], raw["status"], raw["headers"], raw.get("body"), tuple(raw.get("stream", ())))


def connect(url: str, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    """A client for ``http://`` or, with a context, ``https://``."""
    parts = urlsplit(url)
    assert parts.hostname
    if context:
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=context)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)


def fetch(
    url: str,
    request: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    context: ssl.SSLContext | None = None,
) -> Exchange:
    """Send ``METHOD /path?query`` and read the whole answer, a watch until it ends."""
    method, _, target = request.partition(" ")
    client = connect(url, context)
    try:
        client.request(method, target, None if body is None else json.dumps(body), dict(headers or {}))
        response = client.getresponse()
        text = response.read().decode()
    finally:
        client.close()
    shown = dict(response.getheaders())
    if "watch=1" in target and response.status == 200:
        return Exchange(request, 200, shown, None, tuple(json.loads(line) for line in text.splitlines()))
    is_json = shown.get("Content-Type") == "application/json"
    return Exchange(request, response.status, shown, json.loads(text) if is_json else text)
