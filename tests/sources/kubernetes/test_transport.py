"""One connection against a server that says exactly what a test wants it to say."""

import contextlib
import gzip
import itertools
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import Connection, SilenceError
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError, Failure, failure_of_status
from pyconfd.system.clock import SystemClock
from pyconfd.system.http import LineFramer

JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Scripted:
    """Answers the n-th connection with the n-th answer; the last one goes for all that follow."""

    def __init__(self, *answers: bytes, stay: bool = False) -> None:
        self._answers = answers
        self._stay = stay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                count = len(self._open)
                self.requests.append(client.recv(65536))
                client.sendall(self._answers[min(count, len(self._answers)) - 1])
                if not self._stay:
                    client.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        # The thread may be about to keep one more client.
        self._thread.join()
        self._listener.close()
        for client in self._open:
            client.close()


Connect = Callable[..., Connection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:

        def make(*answers: bytes, stay: bool = False, read_timeout_s: float = 10.0) -> Connection:
            server = Scripted(*answers, stay=stay)
            stack.callback(server.close)
            clock = SystemClock()
            settings = KubernetesSettings((server.url,), connect_timeout_s=2.0, read_timeout_s=read_timeout_s)
            made = Connection(server.url, Credentials(settings, clock), settings, clock)
            stack.callback(made.close)
            return made

        yield make


def answer(status: str, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def failure(connection: Connection) -> ApiError:
    with pytest.raises(ApiError) as caught:
        connection.list_page("/api/v1/nodes", {"limit": 500})
    return caught.value


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (answer("500 Oops", b'{"message":"etcd is away"}'), Failure.SERVER_ERROR, "HTTP 500: etcd is away"),
        (answer("429 Slow", b"{}"), Failure.THROTTLED, "HTTP 429"),
        (answer("403 No", b"\x1b[31mno\x00"), Failure.FORBIDDEN, r"HTTP 403: \x1b[31mno\x00"),
        (answer("302 Found", b"", "Location: http://elsewhere"), Failure.BAD_ANSWER, "HTTP 302"),
        (answer("204 None", b""), Failure.BAD_ANSWER, "HTTP 204"),
        (JSON_HEAD + b"Content-Length: 100\r\n\r\n{", Failure.RESET, "after 1 bytes"),
        (JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\r\n", Failure.RESET, "the connection broke"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", Failure.BAD_ANSWER, "no content type instead of JSON: <html>"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Failure.RESET, "SSH-2.0"),
        (b"", Failure.RESET, "the connection broke"),
    ],
)
def test_answers_that_are_none(reply: bytes, kind: Failure, words: str, connect: Connect) -> None:
    failed = failure(connect(reply))
    assert failed.kind is kind
    assert words in str(failed)


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("7", 7, 7),
        ("Wed, 01 Jan 2200 00:00:00 GMT", 300, 1e10),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0),
        ("soon", None, None),
        ("Wed, 01 Jan 2200 00:00:00 +99999999999999", 0, 0),
    ],
)
def test_retry_after(value: str, least: float | None, most: float | None, connect: Connect) -> None:
    found = failure(connect(answer("429 Slow", b"{}", f"Retry-After: {value}"))).retry_after_s
    if least is None or most is None:
        assert found is None
    else:
        assert found is not None
        assert least <= found <= most


def test_a_kept_connection_that_the_server_closed_meanwhile_is_no_failure(connect: Connect) -> None:
    connection = connect(b"", answer("200 OK"))
    assert connection.list_page("/api/v1/nodes", {}) == b"{}"


def test_a_page_is_not_waited_for_as_long_as_a_watch(connect: Connect) -> None:
    connection = connect(b"", stay=True, read_timeout_s=0.2)
    assert failure(connection).kind is Failure.TIMEOUT


def test_a_watch_gives_whole_lines_only(connect: Connect) -> None:
    connection = connect(JSON_HEAD + b"\r\n" + b'{"a":1}\n\n{"b":2}\n{"c"')
    with connection.watch("/api/v1/nodes", {"watch": 1}) as arrivals:
        assert [line for lines in arrivals for line in lines] == [b'{"a":1}', b'{"b":2}']


def test_silence_is_not_the_end_of_a_watch(connect: Connect) -> None:
    heard: list[bytes] = []
    for limit_s in (0.2, 2.0, 20.0):  # on a busy machine what is said may take longer than that
        connection = connect(JSON_HEAD + b"\r\n{}\n", stay=True, read_timeout_s=limit_s)
        with (
            contextlib.suppress(ApiError),
            connection.watch("/api/v1/nodes", {}) as arrivals,
            pytest.raises(SilenceError),
        ):
            heard.extend(itertools.chain.from_iterable(arrivals))
        if heard:
            break
    assert heard == [b"{}"]


def test_another_thread_can_interrupt_a_watch(connect: Connect) -> None:
    connection = connect(JSON_HEAD + b"\r\n{}\n", stay=True, read_timeout_s=3600)
    entered = threading.Event()
    failures: list[ApiError] = []

    def watch() -> None:
        try:
            with connection.watch("/api/v1/nodes", {}) as arrivals:
                for _ in arrivals:
                    entered.set()
        except ApiError as error:
            failures.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    assert entered.wait(20)
    connection.interrupt()
    thread.join(20)
    assert not thread.is_alive()
    assert [error.kind for error in failures] == [Failure.INTERRUPTED]
    assert failure(connection).kind is Failure.INTERRUPTED


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized", "403 Forbidden", "404 Not Found"])
def test_a_probe_takes_any_answer_of_a_server_that_is_well(status: str, connect: Connect) -> None:
    connect(answer(status).replace(b"application/json", b"text/plain")).probe()


@pytest.mark.parametrize("status", ["500 Oops", "503 Shutting down"])
def test_a_probe_fails_where_the_server_is_not_ready(status: str, connect: Connect) -> None:
    with pytest.raises(ApiError):
        connect(answer(status)).probe()


@given(st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"x"))), st.data())
def test_lines_are_the_same_however_they_arrive(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"half"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    framer = LineFramer()
    got: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += framer.feed(stream[begin:end])
    assert got == [line for line in lines if line.strip()]


def test_a_line_without_an_end_is_given_up() -> None:
    framer = LineFramer(max_bytes=10)
    assert framer.feed(b"0123456789\n01234") == [b"0123456789"]
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        framer.feed(b"567890")


def test_every_status_means_something() -> None:
    assert {failure_of_status(status) for status in (500, 502, 503, 504)} == {Failure.SERVER_ERROR}
    assert failure_of_status(400) is Failure.REFUSED
    assert failure_of_status(0) is Failure.BAD_ANSWER


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("certificate is not yet valid (_ssl.c:992)", "clock"),
        ("certificate has expired (_ssl.c:992)", "clock"),
        ("unable to get local issuer certificate (_ssl.c:992)", "kubernetes.ssl_ca"),
    ],
)
def test_a_certificate_out_of_its_time_points_at_the_clock(reason: str, remedy: str) -> None:
    error = ApiError(Failure.TLS, "https://a:6443", f"TLS: certificate verify failed: {reason}")
    (problem,) = error.problems
    assert remedy in problem.remedy


BOMB = gzip.compress(b'{"kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":[' + b" " * (16 << 20) + b"]}")


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_compressed_answer_is_refused_and_not_unpacked(verb: str, status: str, connect: Connect) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n".encode()
    connection = connect(head + b"Content-Length: %d\r\n\r\n%s" % (len(BOMB), BOMB))

    def watch() -> object:
        with connection.watch("/api/v1/services", {}) as arrivals:
            return list(arrivals)

    def ask() -> object:
        return connection.list_page("/api/v1/services", {"limit": 500}) if verb == "list" else watch()

    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as caught:
            ask()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.kind is (Failure.BAD_ANSWER if status == "200 OK" else Failure.SERVER_ERROR)
    assert peak_bytes < 8 << 20
