"""The status page on a free port."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyconfd.model.status import Status
from pyconfd.status.page import Explain, StatusPage, no_explanation


@contextmanager
def served(
    status: Callable[[], Status], *, explain: Explain = no_explanation, listen: str = "127.0.0.1:0"
) -> Iterator[StatusPage]:
    page = StatusPage()
    page.explain = explain
    page.serve(listen, status)
    try:
        yield page
    finally:
        page.stop()


def port_of(page: StatusPage) -> int:
    return int(page.address.rpartition(":")[2])


def ask(
    page: StatusPage, path: str, method: str = "GET", host: str = "", *, accept: str = "", known: str = ""
) -> tuple[int, str, dict[str, str]]:
    """Return code, body and headers; ``known`` is the ETag of an answer that is there already."""
    address = "::1" if page.address.startswith("[") else "127.0.0.1"
    connection = http.client.HTTPConnection(address, port_of(page), timeout=20)
    try:
        headers = {"Host": host, "Accept": accept, "If-None-Match": known}
        connection.request(method, path, headers={name: value for name, value in headers.items() if value})
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode(), {key.lower(): value for key, value in answer.getheaders()}
    finally:
        connection.close()
