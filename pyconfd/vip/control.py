"""The socket on which ``pyconfd vip ...`` asks the hook: one JSON object on a line each way."""

import json
import os
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_LONGEST_BYTES = 4096
_MOST_ASKING = 16
_ANSWER_S = 2.0

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ControlSocket:
    """Listens at ``path``; ``answer`` gives the answer to each question."""

    def __init__(self, path: str, selector: selectors.BaseSelector, answer: Answer) -> None:
        self._selector, self._answer = selector, answer
        self._asking: list[socket.socket] = []
        with suppress(FileNotFoundError):
            Path(path).unlink()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listening.bind(path)
        os.chmod(path, 0o660)  # noqa: PTH101 - beside bind
        self._listening.listen(_MOST_ASKING)
        selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        with suppress(OSError):
            asking, _ = self._listening.accept()
            asking.setblocking(False)
            if len(self._asking) >= _MOST_ASKING:
                self._drop(self._asking[0])
            self._asking.append(asking)
            self._selector.register(asking, selectors.EVENT_READ, lambda: self._serve(asking))

    def _serve(self, asking: socket.socket) -> None:
        said: Mapping[str, Any]
        try:
            question = json.loads(asking.recv(_LONGEST_BYTES))
            said = self._answer(question if isinstance(question, dict) else {})
        except BlockingIOError:
            return
        except OSError:
            self._drop(asking)
            return
        except ValueError:
            said = {"error": "that was no JSON object on one line"}
        with suppress(OSError):
            asking.settimeout(0.1)
            asking.sendall(json.dumps(said).encode() + b"\n")
        self._drop(asking)

    def _drop(self, asking: socket.socket) -> None:
        self._asking.remove(asking)
        self._selector.unregister(asking)
        asking.close()


def ask(path: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask the hook.

    Raises:
        OSError: it does not run, or does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(path)
        asking.sendall(json.dumps(question).encode() + b"\n")
        answer = b"".join(iter(lambda: asking.recv(1 << 16), b""))
    found = json.loads(answer or b"{}")
    return found if isinstance(found, dict) else {}
