"""The control socket, on which ``pyconfd vip ...`` talks to the hook: one JSON object on a line each way."""

import json
import os
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_LONGEST_BYTES = 4096
_MOST_CLIENTS = 16
_ANSWER_S = 2.0

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ControlSocket:
    """Listens at ``path``; ``answer`` returns the answer to each request."""

    def __init__(self, path: str, selector: selectors.BaseSelector, answer: Answer) -> None:
        self._selector, self._answer = selector, answer
        self._clients: list[socket.socket] = []
        with suppress(FileNotFoundError):
            Path(path).unlink()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listening.bind(path)
        os.chmod(path, 0o660)  # noqa: PTH101 - beside bind
        self._listening.listen(_MOST_CLIENTS)
        selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        with suppress(OSError):
            client, _ = self._listening.accept()
            client.setblocking(False)
            if len(self._clients) >= _MOST_CLIENTS:
                self._drop(self._clients[0])
            self._clients.append(client)
            self._selector.register(client, selectors.EVENT_READ, lambda: self._serve(client))

    def _serve(self, client: socket.socket) -> None:
        answer: Mapping[str, Any]
        try:
            request = json.loads(client.recv(_LONGEST_BYTES))
            answer = self._answer(request if isinstance(request, dict) else {})
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        except ValueError:
            answer = {"error": "not a JSON object on one line"}
        with suppress(OSError):
            client.settimeout(0.1)
            client.sendall(json.dumps(answer).encode() + b"\n")
        self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        self._clients.remove(client)
        self._selector.unregister(client)
        client.close()


def ask(path: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send a request to the hook and return its answer.

    Raises:
        OSError: the hook does not run, or does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_S)
        client.connect(path)
        client.sendall(json.dumps(request).encode() + b"\n")
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    found = json.loads(answer or b"{}")
    return found if isinstance(found, dict) else {}
