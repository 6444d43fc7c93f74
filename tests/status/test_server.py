import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pyconfd.errors import ConfigurationError, TransientError
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import ApiServerState, Phase, SourceHealth, Status
from pyconfd.status.document import decode
from pyconfd.status.page import HEAD_LIMIT_BYTES, MAX_CONNECTIONS, StatusServer


def _ask(address: str, port: int, path: str, method: str = "GET", host: str = "") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(address, port, timeout=20)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode(), {key.lower(): value for key, value in answer.getheaders()}
    finally:
        connection.close()


class Subject:
    def __init__(self, status: Status) -> None:
        self.status = status
        self.server = StatusServer("127.0.0.1:0", lambda: self.status)

    @property
    def port(self) -> int:
        return int(self.server.address.rpartition(":")[2])

    def ask(self, path: str, method: str = "GET", host: str = "") -> tuple[int, str, dict[str, str]]:
        return _ask("127.0.0.1", self.port, path, method, host)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def raw(self, data: bytes) -> bytes:
        with self.connect() as client:
            client.sendall(data)
            got = b""
            while chunk := client.recv(65536):
                got += chunk
            return got


@pytest.fixture
def subject(make_status: Callable[..., Status]) -> Iterator[Subject]:
    it = Subject(make_status())
    with it.server:
        yield it


def test_metrics_are_served_in_the_text_format(subject: Subject) -> None:
    status, body, headers = subject.ask("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "pyconfd_generation 12.0" in body


def test_alive_while_the_loop_moves(subject: Subject) -> None:
    assert subject.ask("/healthz")[0] == 200


def test_not_alive_when_the_loop_hangs_though_the_page_answers(subject: Subject) -> None:
    subject.status = replace(subject.status, now=subject.status.now + 240)
    status, body, _ = subject.ask("/healthz")
    assert status == 503
    assert "no progress for 4 m" in body


def test_a_daemon_that_just_started_is_alive(subject: Subject) -> None:
    subject.status = replace(subject.status, heartbeat_at=0.0, started_at=subject.status.now - 2)
    assert subject.ask("/healthz")[0] == 200


@pytest.mark.parametrize("phase", [Phase.SERVING, Phase.SERVING_LAST_GOOD, Phase.HELD, Phase.REJECTED, Phase.FAILED])
def test_ready_while_a_generation_serves(subject: Subject, phase: Phase) -> None:
    subject.status = replace(subject.status, phase=phase)
    status, body, _ = subject.ask("/readyz")
    assert status == 200
    assert "generation 12" in body


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.WAITING])
def test_not_ready_before_there_is_something_to_serve(subject: Subject, phase: Phase) -> None:
    subject.status = replace(subject.status, phase=phase, generation=None, problems=("no API server answers",))
    status, body, _ = subject.ask("/readyz")
    assert status == 503
    assert "no API server answers" in body


def test_not_ready_when_the_first_configuration_was_rejected(subject: Subject) -> None:
    subject.status = replace(subject.status, phase=Phase.REJECTED, generation=None)
    assert subject.ask("/readyz")[0] == 503


def test_not_ready_when_the_cluster_was_not_read(subject: Subject) -> None:
    subject.status = replace(subject.status, source=SourceHealth())
    assert subject.ask("/readyz")[0] == 503


def test_the_whole_status_as_json(subject: Subject) -> None:
    status, body, headers = subject.ask("/status.json")
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert decode(body.encode()) == subject.status
    document = json.loads(body)
    assert document["phase"] == "serving"
    assert document["refused"][0]["ref"]["name"] == "shop-01"
    assert document["refused"][0]["value"] == "a b"


def test_the_json_has_no_secrets(subject: Subject) -> None:
    server = ApiServerState("https://me:hunter2@10.0.0.1", last_error="401 for Bearer abcdef0123456789")
    secret = Refusal(ObjectRef("Secret", "demo", "tls"), "tls.key", "c2VjcmV0", RefusalReason.UNREADABLE, "not PEM")
    subject.status = replace(subject.status, source=SourceHealth(api_servers=(server,)), refused=(secret,))
    for path in ("/status.json", "/", "/metrics"):
        body = subject.ask(path)[1]
        assert not any(word in body for word in ("hunter2", "abcdef0123456789", "c2VjcmV0"))


def test_the_index_is_readable_and_inert(subject: Subject) -> None:
    subject.status = replace(subject.status, problems=("<script>alert(1)</script>",))
    status, body, headers = subject.ask("/")
    assert status == 200
    assert "SERVING  generation 12" in body
    assert "/readyz" in body
    assert "<script>" not in body
    assert headers["content-security-policy"].startswith("default-src 'none'")


def test_unknown_pages_say_what_there_is(subject: Subject) -> None:
    status, body, _ = subject.ask("/nothing")
    assert status == 404
    assert "/status.json" in body


def test_head_gives_the_headers_alone(subject: Subject) -> None:
    status, body, headers = subject.ask("/healthz?x=1", method="HEAD")
    assert (status, body) == (200, "")
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get_and_head(subject: Subject, method: str) -> None:
    status, _, headers = subject.ask("/status.json", method=method)
    assert status == 405
    assert headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("host", ["localhost", "localhost:9101", "127.0.0.1:80", "[::1]:9101", "LOCALHOST"])
def test_own_names_are_answered(subject: Subject, host: str) -> None:
    assert subject.ask("/healthz", host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:9101", "127.0.0.1.evil.example", "[::2]"])
def test_a_page_elsewhere_cannot_read_through_a_name_of_its_own(subject: Subject, host: str) -> None:
    assert subject.ask("/status.json", host=host)[0] == 403


def test_a_page_open_to_the_network_answers_to_any_name(make_status: Callable[..., Status]) -> None:
    status = make_status()
    with StatusServer("0.0.0.0:0", lambda: status) as server:
        port = int(server.address.rpartition(":")[2])
        assert _ask("127.0.0.1", port, "/healthz", host="lb-1.example")[0] == 200


def test_a_plain_health_check_without_a_host_is_answered(subject: Subject) -> None:
    assert subject.raw(b"GET /readyz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/2.0\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\xff\xfe\x00 / HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
    ],
)
def test_malformed_requests_are_told_so(subject: Subject, request_bytes: bytes, answer: bytes) -> None:
    assert subject.raw(request_bytes).startswith(answer)
    assert subject.ask("/healthz")[0] == 200


def test_the_size_of_a_request_is_bounded(subject: Subject) -> None:
    flood = b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_LIMIT_BYTES * 4)
    got = subject.raw(flood)
    assert got.startswith(b"HTTP/1.1 431 ")
    assert subject.ask("/healthz")[0] == 200


def test_silent_clients_do_not_keep_others_waiting(subject: Subject) -> None:
    silent = [subject.connect() for _ in range(MAX_CONNECTIONS + 10)]
    try:
        assert subject.ask("/healthz")[0] == 200
        assert silent[0].recv(1) == b""  # the oldest made room
    finally:
        for client in silent:
            client.close()


def test_a_client_that_never_finishes_is_cut(make_status: Callable[..., Status]) -> None:
    status = make_status()
    with StatusServer("127.0.0.1:0", lambda: status, request_timeout_s=0.2) as server:
        port = int(server.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET / HT")
            assert client.recv(1) == b""


def test_a_taken_address_names_its_owner_and_the_setting(subject: Subject) -> None:
    with pytest.raises(TransientError) as caught:
        StatusServer(subject.server.address, lambda: subject.status).start()
    (problem,) = caught.value.problems
    assert "taken by" in problem.message
    assert "(pid " in problem.message
    assert "status.listen" in problem.place
    assert "status.listen" in problem.remedy
    assert subject.ask("/healthz")[0] == 200


def test_an_address_of_another_machine_is_said_plainly() -> None:
    with pytest.raises(TransientError, match="no interface of this machine"):
        StatusServer("192.0.2.1:0", lambda: pytest.fail("not asked")).start()


@pytest.mark.parametrize("listen", ["", "9101", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "::1:9101", ":9101"])
def test_what_is_no_address_is_a_configuration_error(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=r"status\.listen"):
        StatusServer(listen, lambda: pytest.fail("not asked"))


def test_ipv6_in_brackets(make_status: Callable[..., Status]) -> None:
    status = make_status()
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with StatusServer("[::1]:0", lambda: status) as server:
        assert server.address.startswith("[::1]:")
        assert _ask("::1", int(server.address.rpartition(":")[2]), "/healthz")[0] == 200


def test_it_stops_starts_again_and_leaves_no_thread(make_status: Callable[..., Status]) -> None:
    status = make_status()
    server = StatusServer("127.0.0.1:0", lambda: status)
    server.stop()
    for _ in range(2):
        server.start()
        port = int(server.address.rpartition(":")[2])
        lingering = socket.create_connection(("127.0.0.1", port), timeout=20)
        server.stop()
        with lingering, contextlib.suppress(ConnectionResetError):
            assert lingering.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=20)
    assert server.address == ""
    assert not [thread for thread in threading.enumerate() if thread.name == "status"]


def test_an_explanation_is_answered_for_the_query_as_it_came(make_status: Callable[..., Status]) -> None:
    asked: list[str] = []

    def explain(query: str) -> bytes:
        asked.append(query)
        return b'{"a": 1}'

    with StatusServer("127.0.0.1:0", make_status, explain=explain) as server:
        port = int(server.address.rpartition(":")[2])
        code, body, headers = _ask("127.0.0.1", port, "/explain?q=shop%2Fweb")
        assert (code, json.loads(body), headers["content-type"]) == (200, {"a": 1}, "application/json")
        assert asked == ["q=shop%2Fweb"]
        assert _ask("127.0.0.1", port, "/explain?q=a", host="evil.example.com")[0] == 403
        assert _ask("127.0.0.1", port, "/explain?q=a", "POST")[0] == 405
        assert asked == ["q=shop%2Fweb"]


def test_a_loop_without_objects_has_nothing_to_explain(subject: Subject) -> None:
    code, body, _ = subject.ask("/explain?q=a")
    assert code == 404
    assert "nothing to explain" in body


def test_an_explanation_that_takes_long_keeps_no_other_page_waiting(make_status: Callable[..., Status]) -> None:
    began, go_on = threading.Event(), threading.Event()

    def explain(query: str) -> bytes:
        began.set()
        assert go_on.wait(30)
        return query.encode()

    with StatusServer("127.0.0.1:0", make_status, explain=explain) as server:
        port = int(server.address.rpartition(":")[2])
        answers: list[str] = []
        client = threading.Thread(target=lambda: answers.append(_ask("127.0.0.1", port, "/explain?q=a")[1]))
        client.start()
        assert began.wait(30)
        assert _ask("127.0.0.1", port, "/healthz")[0] == 200
        go_on.set()
        client.join(30)
        assert answers == ["q=a"]
