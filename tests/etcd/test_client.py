"""The adapter against a real etcd: fail-over, TLS, users, silence, compaction."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyconfd.predecessors.etcd.client import (
    EtcdClient,
    EtcdError,
    EtcdFailure,
    created_at,
    deleting,
    error_of_answer,
    exists,
    putting,
)
from tests.etcd.harness import wait_for
from tests.world.etcd import BINARY, EtcdProcess, Tls
from tests.world.haproxy import free_port

needs_etcd = pytest.mark.skipif(not Path(BINARY).exists(), reason="no etcd binary")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[EtcdProcess, Tls]]:
    if not Path(BINARY).exists():
        pytest.skip("no etcd binary")
    tls = Tls.make(tmp_path)
    with EtcdProcess(tmp_path / "etcd", tls=tls) as process:
        yield process, tls


def works(call: Callable[[], object]) -> bool:
    """Return whether etcd answers: where that has to be soon, a busy machine needs several tries."""
    try:
        call()
    except EtcdError:
        return False
    return True


def failure(client: EtcdClient, key: bytes = b"/pyconfd/a") -> EtcdError:
    with pytest.raises(EtcdError) as failed:
        client.read(key)
    return failed.value


def test_keys_transactions_and_leases(etcd: EtcdProcess) -> None:
    client = EtcdClient(etcd.settings())
    assert client.read(b"/a/x") is None
    client.put(b"/a/x", b"\0\xff")
    value = client.read(b"/a/x")
    assert value is not None
    assert (value.content, value.lease) == (b"\0\xff", 0)
    client.put(b"/b", b"")
    assert client.keys(b"/a/") == (b"/a/x",)
    lease = client.grant(5)
    won = client.transact([created_at(b"/k", 0), exists(b"/a/x")], [putting(b"/k", b"1", lease), deleting(b"/b")])
    assert won.succeeded
    held = client.read(b"/k")
    assert held is not None
    assert (held.create_revision, held.lease) == (won.revision, lease)
    assert client.read(b"/b") is None
    assert not client.transact([created_at(b"/k", 0)], [putting(b"/k", b"2")]).succeeded
    assert client.keep_alive(lease)
    client.revoke(lease)
    assert client.read(b"/k") is None
    assert not client.keep_alive(lease)
    client.close()


def test_endpoints_in_order_and_back(etcd: EtcdProcess) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = EtcdClient(etcd.settings(endpoints=(dead, mute, etcd.url), timeout_s=2.0))
        wait_for(lambda: works(lambda: client.put(b"/a", b"1")), "the third answers")
    first, second, third = client.states()
    assert (first.healthy, second.healthy, third.healthy, third.in_use) == (False, False, True, True)
    assert "Connection refused" in first.last_error
    assert "no answer within the time limit" in second.last_error
    etcd.kill()
    assert failure(client).kind is EtcdFailure.UNREACHABLE
    etcd.start()
    assert client.read(b"/a") is not None
    client.close()


def test_a_frozen_etcd_is_a_dead_one(etcd: EtcdProcess) -> None:
    etcd.ctl("put", "/a", "1")
    client = EtcdClient(etcd.settings(timeout_s=1.0))
    etcd.freeze()
    assert failure(client).kind is EtcdFailure.TIMEOUT
    etcd.thaw()

    wait_for(lambda: works(lambda: client.read(b"/a")), "it answers again")
    assert client.states()[0].healthy
    client.close()


def test_client_certificates_and_the_right_ca(secured: tuple[EtcdProcess, Tls]) -> None:
    etcd, tls = secured
    client = EtcdClient(etcd.settings())
    client.put(b"/pyconfd/a", b"1")
    wrong = EtcdClient(etcd.settings(ca=str(tls.other_ca)))
    error = failure(wrong)
    assert error.kind is EtcdFailure.TLS
    assert "unable to get local issuer certificate" in str(error)
    assert "etcd.ca" in str(error)
    anonymous = EtcdClient(etcd.settings(cert="", key=""))
    assert failure(anonymous).kind in {EtcdFailure.TLS, EtcdFailure.UNREACHABLE}
    absent = EtcdClient(etcd.settings(ca="/nowhere/ca.crt"))
    assert failure(absent).kind is EtcdFailure.CREDENTIALS
    for each in (client, wrong, anonymous, absent):
        each.close()


def test_users(etcd: EtcdProcess, tmp_path: Path) -> None:
    etcd.demand_login("balancers", "secret", "/pyconfd/")
    password = tmp_path / "password"
    password.write_text("wrong\n")
    client = EtcdClient(etcd.settings(user="balancers", password_file=str(password)))
    assert failure(client).kind is EtcdFailure.LOGIN
    # The file is read at each login: what was mended counts at once.
    password.write_text("secret\n")
    client.put(b"/pyconfd/a", b"1")
    assert failure(client, b"/other").kind is EtcdFailure.FORBIDDEN
    stranger = EtcdClient(etcd.settings())
    error = failure(stranger)
    assert error.kind is EtcdFailure.STALE_TOKEN
    assert "etcd.user" in str(error)
    # A token dies with the etcd that gave it; nobody notices.
    etcd.kill()
    etcd.start()
    assert client.read(b"/pyconfd/a") is not None
    password.unlink()
    # Not by another restart: a login that is not in the database yet is applied again, and its token with it.
    etcd.ctl("user", "delete", "balancers")
    assert failure(client).kind is EtcdFailure.CREDENTIALS
    client.close()
    stranger.close()


@needs_etcd
def test_a_token_that_expired_is_renewed(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd", arguments=("--auth-token-ttl", "1")) as etcd:
        etcd.demand_login("balancers", "secret", "/pyconfd/")
        (tmp_path / "password").write_text("secret")
        client = EtcdClient(etcd.settings(user="balancers", password_file=str(tmp_path / "password")))
        wait_for(lambda: works(lambda: client.put(b"/pyconfd/a", b"1")), "a login that is used while it lasts")
        (endpoint,) = client._endpoints
        former = endpoint.token

        def renewed() -> bool:
            threading.Event().wait(1.5)  # longer than the token lives, which each use prolongs
            again = works(lambda: client.read(b"/pyconfd/a"))
            return again and endpoint.token != former

        wait_for(renewed, "a new token")
        client.close()


def test_a_named_client_certificate_beside_users_is_explained(secured: tuple[EtcdProcess, Tls], tmp_path: Path) -> None:
    etcd, tls = secured
    etcd.demand_login("balancers", "secret", "/pyconfd/")
    (tmp_path / "password").write_text("secret")
    login = {"user": "balancers", "password_file": str(tmp_path / "password")}
    client = EtcdClient(etcd.settings(**login))
    client.put(b"/pyconfd/a", b"1")
    named = EtcdClient(etcd.settings(cert=str(tls.named_client.cert), key=str(tls.named_client.key), **login))
    assert failure(named).kind is EtcdFailure.COMMON_NAME
    client.close()
    named.close()


def test_a_watch_tells_of_writes_and_ends_when_asked(etcd: EtcdProcess) -> None:
    client = EtcdClient(etcd.settings())
    stream = client.watch(b"/a", silence_s=30)
    seen: list[object] = []

    def follow() -> None:
        try:
            seen.extend(stream.lines())
        except EtcdError as error:
            seen.append(error.kind)

    thread = threading.Thread(target=follow)
    thread.start()
    etcd.ctl("put", "/b", "elsewhere")
    etcd.compact()
    etcd.ctl("put", "/a", "1")
    wait_for(lambda: len(seen) == 2, "the answer that the watch stands, and one event")
    stream.interrupt()
    thread.join(20)
    assert not thread.is_alive()
    stream.close()
    client.close()


def test_a_silent_watch_ends(etcd: EtcdProcess) -> None:
    client = EtcdClient(etcd.settings())
    ends = []

    def watch() -> None:
        stream = client.watch(b"/a", silence_s=0.3)
        try:
            list(stream.lines())
        except EtcdError as error:
            ends.append(error.kind)
        finally:
            stream.close()

    # A busy machine may need longer than that to begin.
    wait_for(lambda: works(watch), "a watch that stands")
    assert ends == [EtcdFailure.TIMEOUT]
    client.close()


@needs_etcd
def test_a_full_etcd_is_explained(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd", arguments=("--quota-backend-bytes", str(4 * 1024 * 1024))) as etcd:
        client = EtcdClient(etcd.settings())

        def fill() -> None:
            for number in range(64):
                client.put(f"/{number}".encode(), bytes(256 * 1024))

        with pytest.raises(EtcdError) as failed:
            fill()
        assert failed.value.kind is EtcdFailure.NO_SPACE
        assert "defragment" in str(failed.value)
        client.close()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"error":"etcdserver: no leader","code":14}', EtcdFailure.UNAVAILABLE),
        ('{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}',
         EtcdFailure.STALE_TOKEN),
        ('{"error":{"grpc_code":14,"message":"closing"}}', EtcdFailure.UNAVAILABLE),
        ('{"error":"something new","code":3}', EtcdFailure.REFUSED),
        ("<html>a portal</html>", EtcdFailure.BAD_ANSWER),
        ("[1]", EtcdFailure.REFUSED),
    ],
)  # fmt: skip
def test_errors_of_etcd(body: str, kind: EtcdFailure) -> None:
    assert error_of_answer("http://a:1", body).kind is kind


@pytest.mark.parametrize("body", [b"hello", b"[1]", b"null", b'{"kvs": 7}', b'{"kvs": [{"value": "!"}]}', b"\xff"])
def test_a_stranger_at_the_endpoint_is_passed_over(etcd: EtcdProcess, body: bytes) -> None:
    etcd.ctl("put", "/a", "1")
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def answer() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{stranger.getsockname()[1]}"
        client = EtcdClient(etcd.settings(endpoints=(url, etcd.url)))
        assert client.read(b"/a") is not None
        thread.join(10)
        assert "not an answer of etcd" in client.states()[0].last_error
        client.close()
