import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.route_figures import RouteFigures
from pyconfd.model.status import (
    ApiServerState,
    HaproxyState,
    Phase,
    Quarantined,
    QuarantineStatus,
    SourceHealth,
    Status,
)
from pyconfd.status import page as status_page
from pyconfd.status.document import decode, encode
from pyconfd.status.page import MAX_CONNECTIONS, StatusPage
from pyconfd.system.secrecy import hide
from tests.status.conftest import SAMPLE
from tests.status.serving import ask, port_of, served


@pytest.fixture(scope="module")
def page() -> Iterator[StatusPage]:
    with served(lambda: SAMPLE) as it:
        yield it


def connect(page: StatusPage) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(page)), timeout=20)


def raw(page: StatusPage, data: bytes) -> bytes:
    with connect(page) as client:
        client.sendall(data)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(65536):
                got += chunk
        return got


NOT_YET: dict[str, Any] = {"generation": None, "problems": ("no API server answers",)}


@pytest.mark.parametrize(
    ("path", "changes", "code", "words"),
    [
        ("/healthz", {}, 200, "alive"),
        ("/healthz", {"now": SAMPLE.now + 240}, 503, "no progress for 4 m"),
        ("/healthz", {"heartbeat_at": 0.0, "started_at": SAMPLE.now - 2}, 200, "alive"),
        *[("/readyz", {"phase": phase}, 200, "generation 12") for phase in list(Phase)[1:3] + list(Phase)[4:7]],
        ("/readyz", {"phase": Phase.DOWN, "haproxy": HaproxyState(up=False, cause="is ill")}, 503, "not run: is ill"),
        *[("/readyz", NOT_YET | {"phase": phase}, 503, "no API server") for phase in (Phase.STARTING, Phase.WAITING)],
        ("/readyz", {"phase": Phase.REJECTED, "generation": None}, 503, "rejected"),
        ("/readyz", {"source": SourceHealth()}, 503, "not read"),
        ("/metrics", {}, 200, "pyconfd_generation 12.0"),
        ("/nothing", {}, 404, "/status.json"),
        ("/explain?q=a", {}, 404, "nothing to explain"),
    ],
)
def test_pages(path: str, changes: dict[str, Any], code: int, words: str) -> None:
    with served(lambda: replace(SAMPLE, **changes)) as page:
        status, body, headers = ask(page, path)
    assert status == code
    assert words in body
    assert headers["content-type"].startswith("text/plain")


def test_the_whole_status_as_json(page: StatusPage) -> None:
    status, body, headers = ask(page, "/status.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert decode(body.encode()) == SAMPLE
    document = json.loads(body)
    assert document["phase"] == "serving"
    assert document["refused"][0]["ref"]["name"] == "shop-01"
    assert document["refused"][0]["value"] == "a b"


def test_a_secret_that_becomes_known_is_hidden_in_what_was_shown_before() -> None:
    note = Refusal(ObjectRef("Service", "demo", "web"), "domain", "hunter2", RefusalReason.INVALID_VALUE, "no hunter2")
    since = Quarantined(note.ref, "", "check", "hunter2 is no word", 1.0)
    status = replace(SAMPLE, refused=(note,), notes=(note,), quarantine=QuarantineStatus((since,)))
    assert encode(status).count(b"hunter2") == 5
    hide(["hunter2"])
    assert encode(status).count(b"hunter2") == 0


def test_no_page_shows_a_secret() -> None:
    server = ApiServerState("https://me:hunter2@10.0.0.1", last_error="401 for Bearer abcdef0123456789")
    secret = Refusal(ObjectRef("Secret", "demo", "tls"), "tls.key", "c2VjcmV0", RefusalReason.UNREADABLE, "not PEM")
    status = replace(SAMPLE, source=SourceHealth(api_servers=(server,)), refused=(secret,))
    with served(lambda: status) as page:
        for path in ("/status.json", "/", "/page.json", "/metrics"):
            body = ask(page, path)[1]
            assert not any(word in body for word in ("hunter2", "abcdef0123456789", "c2VjcmV0"))


def test_head_gives_the_headers_alone(page: StatusPage) -> None:
    status, body, headers = ask(page, "/healthz?x=1", method="HEAD")
    assert (status, body) == (200, "")
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get_and_head(page: StatusPage, method: str) -> None:
    assert ask(page, "/status.json", method=method)[0] == 501


@pytest.mark.parametrize(
    ("host", "code"),
    [
        *[(name, 200) for name in ("localhost", "localhost:9101", "127.0.0.1:80", "[::1]:9101", "LOCALHOST")],
        *[(name, 403) for name in ("evil.example", "localhost.evil.example:9101", "127.0.0.1.evil.example", "[::2]")],
    ],
)
def test_a_page_elsewhere_cannot_read_through_a_name_of_its_own(page: StatusPage, host: str, code: int) -> None:
    assert ask(page, "/healthz", host=host)[0] == code


def test_a_page_open_to_the_network_answers_to_any_name() -> None:
    with served(lambda: SAMPLE, listen="0.0.0.0:0") as page:
        assert ask(page, "/healthz", host="lb-1.example")[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"GET /readyz HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
        (b"nonsense\r\n\r\n", b""),
        (b"GET / HTTP/2.0\r\n\r\n", b""),
        (b"GET http://[/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000, b""),
    ],
)
def test_malformed_requests_are_answered_and_end(page: StatusPage, request_bytes: bytes, answer: bytes) -> None:
    assert raw(page, request_bytes).startswith(answer)
    assert ask(page, "/healthz")[0] == 200


def test_silent_clients_do_not_keep_others_waiting(page: StatusPage) -> None:
    silent = [connect(page) for _ in range(MAX_CONNECTIONS + 10)]
    try:
        assert ask(page, "/healthz")[0] == 200
        assert silent[0].recv(1) == b""  # the oldest made room
    finally:
        for client in silent:
            client.close()


def test_who_opens_most_connections_makes_room(page: StatusPage) -> None:
    with contextlib.ExitStack() as stack:
        of_few = [stack.enter_context(connect(page)) for _ in range(3)]
        many = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of(page)), 20, ("127.0.0.2", 0)))
            for _ in range(MAX_CONNECTIONS)
        ]
        assert ask(page, "/healthz")[0] == 200
        assert many[0].recv(1) == b""
        for client in of_few:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(15).startswith(b"HTTP/1.1 200")


def test_a_client_that_never_finishes_is_cut(monkeypatch: pytest.MonkeyPatch, page: StatusPage) -> None:
    monkeypatch.setattr(status_page._PageHandler, "timeout", 0.1)
    with connect(page) as client:
        client.sendall(b"GET / HT")
        assert client.recv(1) == b""


def test_a_taken_address_names_its_owner_and_the_setting(page: StatusPage) -> None:
    with served(lambda: SAMPLE, listen=page.address) as other:
        (problem,) = other.problems()
    assert "taken by" in problem.message
    assert "(pid " in problem.message
    assert "status.listen" in problem.place
    assert "status.listen" in problem.remedy


def test_an_address_of_another_machine_is_a_problem() -> None:
    with served(lambda: SAMPLE, listen="192.0.2.1:0") as page:
        assert "no interface of this machine" in page.problems()[0].message


def test_ipv6_in_brackets() -> None:
    with served(lambda: SAMPLE, listen="[::1]:0") as page:
        if page.problems():
            pytest.skip("this machine has no IPv6 loopback")
        assert ask(page, "/healthz")[0] == 200


def test_it_stops_and_leaves_no_thread() -> None:
    earlier = set(threading.enumerate())  # those of other tests come and go
    with served(lambda: SAMPLE) as page:
        port, lingering = port_of(page), connect(page)
        begun = {thread for thread in threading.enumerate() if thread not in earlier and thread.name == "status"}
    with lingering, contextlib.suppress(ConnectionResetError):
        assert lingering.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=20)
    assert page.address == ""
    assert [thread.is_alive() for thread in begun] == [False]


def test_a_query_is_explained_as_it_came() -> None:
    asked: list[str] = []

    def explain(query: str) -> bytes:
        asked.append(query)
        return b'{"a": 1}'

    with served(lambda: SAMPLE, explain=explain) as page:
        code, body, headers = ask(page, "/explain?q=shop%2Fweb")
        assert (code, json.loads(body), headers["content-type"]) == (200, {"a": 1}, "application/json")
        assert ask(page, "/explain?q=a", host="evil.example.com")[0] == 403
    assert asked == ["q=shop%2Fweb"]


def test_an_explanation_that_takes_long_keeps_no_other_page_waiting(make_status: Callable[..., Status]) -> None:
    began, go_on = threading.Event(), threading.Event()

    def explain(query: str) -> bytes:
        began.set()
        assert go_on.wait(30)
        return query.encode()

    with served(make_status, explain=explain) as page:
        answers: list[str] = []
        client = threading.Thread(target=lambda: answers.append(ask(page, "/explain?q=a")[1]))
        client.start()
        assert began.wait(30)
        assert ask(page, "/healthz")[0] == 200
        go_on.set()
        client.join(30)
    assert answers == ["q=a"]


def test_figures_that_are_waited_for_delay_no_other_page(make_status: Callable[..., Status]) -> None:
    asked, known = threading.Event(), threading.Event()
    answers: list[int] = []

    def figures() -> dict[str, RouteFigures]:
        asked.set()
        assert known.wait(60)
        return {}

    with served(make_status) as page:
        page.route_figures = figures
        client = threading.Thread(target=lambda: answers.append(ask(page, "/metrics/routes")[0]))
        client.start()
        assert asked.wait(60)
        assert ask(page, "/healthz")[0] in {200, 503}
        assert not answers
        known.set()
        client.join()
    assert answers == [200]
