"""Each fault does what its name says, and its end ends it."""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.world.apiserver import ApiServer, tls_context
from tests.world.cluster import Cluster
from tests.world.exchange import Exchange, connect, fetch
from tests.world.objects import EndpointSpec
from tests.world.pki import CertificateAuthority, KeyPair

SERVICES = "GET /api/v1/services"
PATIENCE_S = 30.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    cluster = Cluster()
    cluster.add_service("demo", "app")
    cluster.set_endpoints("demo", "app", [EndpointSpec("10.1.0.1")])
    with ApiServer(cluster) as api:
        yield api


class _Watcher:
    """A client in the middle of a watch."""

    def __init__(self, server: ApiServer, resource: str = "services", query: str = "&allowWatchBookmarks=true") -> None:
        self.client = connect(server.url)
        self.client.request("GET", f"/api/v1/{resource}?watch=1&resourceVersion={server.cluster.rv}{query}")
        self.response = self.client.getresponse()
        assert self.response.status == 200
        server.wait_for_watches(resource)

    def event(self) -> Any:
        return json.loads(self.response.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self.client.close()


def _ask(server: ApiServer) -> None:
    client = http.client.HTTPConnection(server.host, server.port, timeout=0.3)
    try:
        client.request("GET", "/api/v1/services")
        client.getresponse().read()
    finally:
        client.close()


@pytest.mark.parametrize(
    ("strike", "error", "heal"),
    [
        (ApiServer.refuse, ConnectionRefusedError, ApiServer.listen),
        (ApiServer.blackhole, TimeoutError, ApiServer.listen),
        (ApiServer.hang_at_accept, TimeoutError, ApiServer.listen),
        (lambda server: server.faults.hang("services"), TimeoutError, lambda server: server.faults.clear()),
        (lambda server: server.faults.half_body(), http.client.IncompleteRead, lambda server: server.faults.clear()),
    ],
)
def test_what_gets_no_answer(
    server: ApiServer, strike: Callable[[ApiServer], object], error: type[Exception], heal: Callable[[ApiServer], None]
) -> None:
    strike(server)
    with pytest.raises(error):
        _ask(server)
    heal(server)
    assert fetch(server.url, SERVICES).status == 200


@pytest.mark.parametrize("cut", [ApiServer.refuse, ApiServer.cut_connections])
def test_cutting_ends_running_watches_of_this_server_only(server: ApiServer, cut: Callable[[ApiServer], None]) -> None:
    with ApiServer(server.cluster) as second, _Watcher(server) as first_watch, _Watcher(second) as second_watch:
        cut(server)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            first_watch.response.read()
        assert server.wait_until(lambda: server.watches() == 0, PATIENCE_S)
        server.cluster.annotate("services", "demo", "app", {"a": "b"})
        assert second_watch.event()["type"] == "MODIFIED"


def _reason(answer: Exchange) -> Any:
    return answer.status, answer.headers.get("Retry-After"), answer.body["reason"]


@pytest.mark.parametrize(
    ("strike", "seen", "what"),
    [
        (lambda faults: faults.answer(429, retry_after_s=7, times=1), _reason, (429, "7", "TooManyRequests")),
        (lambda faults: faults.answer(500, times=1), _reason, (500, None, "InternalError")),
        (lambda faults: faults.html(times=1), lambda answer: answer.headers["Content-Type"][:9], "text/html"),
        (lambda faults: faults.empty_list("services"), lambda answer: answer.body["items"], []),
    ],
)
def test_what_is_answered_once(
    server: ApiServer, strike: Callable[[Any], object], seen: Callable[[Exchange], Any], what: object
) -> None:
    strike(server.faults)
    assert seen(fetch(server.url, SERVICES)) == what
    assert len(fetch(server.url, SERVICES).body["items"]) == 1


def test_a_held_list_comes_when_released(server: ApiServer) -> None:
    fault = server.faults.hold("services")
    client = connect(server.url)
    client.request("GET", "/api/v1/services")
    server.wait_for_request("services", "list")
    assert fetch(server.url, "GET /api/v1/endpoints").status == 200
    server.cluster.add_service("demo", "second")
    server.faults.remove(fault)
    assert len(json.loads(client.getresponse().read())["items"]) == 2
    client.close()


@pytest.mark.parametrize("code", [401, 403])
def test_list_allowed_and_watch_denied(server: ApiServer, code: int) -> None:
    server.faults.deny("services", "watch", code)
    assert fetch(server.url, SERVICES).status == 200
    denied = fetch(server.url, f"{SERVICES}?watch=1")
    assert (denied.status, denied.body["code"]) == (code, code)
    assert code == 401 or 'cannot watch resource "services"' in denied.body["message"]


def test_silence_outlasts_the_timeout_and_what_was_missed_follows(server: ApiServer) -> None:
    request = f"GET /api/v1/services?watch=1&resourceVersion={server.cluster.rv}&timeoutSeconds=1 HTTP/1.1\r\n\r\n"
    fault = server.faults.silence("services")  # before the second of the watch begins
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as sock:
        sock.sendall(request.encode())
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK")
        server.wait_for_watches("services")
        server.cluster.annotate("services", "demo", "app", {"a": "b"})
        sock.settimeout(1.2)
        with pytest.raises(TimeoutError):
            sock.recv(65536)
        sock.settimeout(PATIENCE_S)
        server.faults.remove(fault)
        assert b'{"type":"MODIFIED"' in sock.recv(65536)


def test_bookmarks_go_to_those_that_allow_them(server: ApiServer) -> None:
    with _Watcher(server) as willing, _Watcher(server, "endpoints", query="") as unwilling:
        version = server.cluster.advance(5)
        server.send_bookmarks()
        bookmark = willing.event()
        assert (bookmark["type"], bookmark["object"]["metadata"]) == ("BOOKMARK", {"resourceVersion": str(version)})
        server.cluster.annotate("endpoints", "demo", "app", {"a": "b"})
        assert unwilling.event()["type"] == "MODIFIED"


def test_a_frozen_server_knows_nothing_newer(server: ApiServer) -> None:
    with ApiServer(server.cluster) as behind:
        behind.freeze()
        old = behind.cluster.rv
        with _Watcher(behind) as watcher:
            server.cluster.add_service("demo", "second")
            stale, fresh = fetch(behind.url, SERVICES).body, fetch(server.url, SERVICES).body
            assert (len(stale["items"]), stale["metadata"]["resourceVersion"]) == (1, str(old))
            assert len(fresh["items"]) == 2
            behind.thaw()
            assert watcher.event()["object"]["metadata"]["name"] == "second"
        assert len(fetch(behind.url, SERVICES).body["items"]) == 2


def _trust(authority: CertificateAuthority, pair: KeyPair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    if pair:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def test_mutual_tls_and_a_renewed_certificate(tmp_path: Path) -> None:
    authority, stranger = CertificateAuthority(tmp_path / "ours"), CertificateAuthority(tmp_path / "other", "other")
    with ApiServer(tls=tls_context(authority.server(), authority.cert)) as server:
        good = _trust(authority, authority.client("alice"))
        assert fetch(server.url, SERVICES, context=good).status == 200
        assert server.requests[-1].client_cn == "alice"
        server.faults.deny("services")
        assert 'User "alice"' in fetch(server.url, SERVICES, context=good).body["message"]
        server.faults.clear()
        count = len(server.requests)
        for pair in (None, stranger.client("eve"), authority.client("old", expired=True)):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                fetch(server.url, SERVICES, context=_trust(authority, pair))
        server.tls = tls_context(authority.server("old", expired=True), authority.cert)
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            fetch(server.url, SERVICES, context=good)
        assert len(server.requests) == count
        server.tls = tls_context(authority.server("new"), authority.cert)
        assert fetch(server.url, SERVICES, context=good).status == 200


def test_a_token_or_a_client_certificate_lets_in(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    optional = tls_context(authority.server(), authority.cert, require_client=False)
    with ApiServer(tls=optional, token="t0ken") as server:
        nobody, somebody = _trust(authority), _trust(authority, authority.client())
        assert fetch(server.url, SERVICES, context=nobody).status == 401
        assert fetch(server.url, SERVICES, context=nobody, headers={"Authorization": "Bearer t0ken"}).status == 200
        assert fetch(server.url, SERVICES, context=somebody).status == 200
