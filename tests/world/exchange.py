"""One request and its whole answer, recorded or fetched, in one form for the contract tests."""

import http.client
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
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


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: requests in order, and what the real API server answered to each.

    A request is ``{"request": "METHOD /path", "type": content type, "sent": body}``; the last two where there is a
    body. ``{3.metadata.resourceVersion}`` in it is a value of the third answer.
    """

    requests: tuple[Mapping[str, Any], ...]
    answers: tuple[Exchange, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; answers that were never recorded are missing."""
        steps = json.loads(path.read_text(encoding="utf-8"))
        requests = tuple({key: step[key] for key in ("request", "type", "sent") if key in step} for step in steps)
        answers = tuple(
            Exchange(each["request"], each["status"], each["headers"], each.get("body"), tuple(each.get("stream", ())))
            for each in steps
            if "status" in each
        )
        return cls(requests, answers)

    def hold(
        self, url: str, *, context: ssl.SSLContext | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Exchange, ...]:
        """Send the requests to a server, one after the other; return what it answers."""
        answers: list[Exchange] = []
        for step in self.requests:
            asked = json.loads(_VALUE.sub(lambda found: _value(answers, found[1]), json.dumps(step)))
            own = {"Content-Type": asked["type"]} if "type" in asked else {}
            answers.append(
                fetch(
                    url, asked["request"], headers={**(headers or {}), **own}, body=asked.get("sent"), context=context
                )
            )
        return tuple(answers)

    def document(self, answers: Sequence[Exchange]) -> list[dict[str, Any]]:
        """Return the conversation with these answers, as :meth:`read` reads it."""
        steps = []
        for request, answer in zip(self.requests, answers, strict=True):
            step = {
                **request,
                "status": answer.status,
                "headers": {k: answer.headers[k] for k in _KEPT & answer.headers.keys()},
            }
            steps.append(step | ({"stream": list(answer.stream)} if answer.body is None else {"body": answer.body}))
        return steps


_VALUE = re.compile(r"\{(\d+(?:\.\w+)+)\}")
_KEPT = {"Content-Type", "Warning"}


def _value(answers: Sequence[Exchange], path: str) -> str:
    number, *names = path.split(".")
    found: Any = answers[int(number) - 1].body
    for name in names:
        found = found[name]
    return str(found)
