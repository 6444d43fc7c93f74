"""Asks a haproxy on loopback for names, and tells which stand-in answers: what is told was seen."""

import http.client
import socket
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus

from pyconfd.trying.fronts import Front, asked
from pyconfd.trying.loopback import HOST

_TIMEOUT_S = 5.0
_AT_A_TIME = 16
NOBODY = "nobody.invalid"
"""A name that no configuration has. Source: RFC 2606."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``stand_in`` is the name of the stand-in that answered, "" where none did; then ``code`` is HAProxy's own.

    ``code`` is 0 where nothing came back; ``location`` is where a redirect leads.
    """

    stand_in: str = ""
    code: int = 0
    location: str = ""


Question = tuple[Front, str]
"""A port, and the name that it is asked for; "" for a port that knows no names."""


def ask_all(questions: Iterable[Question]) -> dict[Question, Answer]:
    """Ask, many at a time; give the answers by question."""
    listed = list(questions)
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="probe") as pool:
        return dict(zip(listed, pool.map(lambda each: ask(*each), listed), strict=True))


def ask(front: Front, name: str) -> Answer:
    """Ask one port for a name; what fails is an answer too."""
    try:
        if front.http or (front.sni and name):
            return _ask_http(front, asked(name) or HOST, tls=front.tls or not front.http)
        return _ask_line(front)
    except (OSError, http.client.HTTPException, ValueError):
        return Answer()


def _ask_http(front: Front, host: str, *, tls: bool) -> Answer:
    plain = socket.create_connection((HOST, front.port), _TIMEOUT_S)
    connection = http.client.HTTPConnection(HOST, front.port, timeout=_TIMEOUT_S)
    connection.sock = _careless().wrap_socket(plain, server_hostname=host) if tls else plain
    try:
        connection.request("GET", "/", headers={"Host": host, "Connection": "close"})
        answer = connection.getresponse()
        location = (
            answer.headers.get("Location", "") if answer.status // 100 == HTTPStatus.MULTIPLE_CHOICES // 100 else ""
        )
        return Answer(answer.headers.get("X-Pod", ""), answer.status, location)
    finally:
        connection.close()
        plain.close()


def _careless() -> ssl.SSLContext:
    """Return a context that takes any certificate: they are stand-ins too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _ask_line(front: Front) -> Answer:
    """Say a line that is neither HTTP nor redis: a stand-in answers with its name."""
    with socket.create_connection((HOST, front.port), _TIMEOUT_S) as plain:
        connection = _careless().wrap_socket(plain) if front.tls else plain
        connection.sendall(b"who\n")
        said = b""
        while not said.endswith(b"\n") and (part := connection.recv(1024)):
            said += part
        return Answer(said.decode("utf-8", "replace").strip())
