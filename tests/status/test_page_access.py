"""Who may read the status page: its token and its certificate, over real sockets and real TLS."""

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyconfd.errors import RejectedInput, TransientError
from pyconfd.model.status import CredentialState, Renewal
from pyconfd.settings import Settings, StatusSettings
from pyconfd.status import page as status_page
from pyconfd.status.document import Freshness, decode, read_report
from pyconfd.status.page import EXPLAIN, MAX_CONNECTIONS, StatusPage
from pyconfd.status.page_access import PageAccess
from pyconfd.status.page_client import AnswerTooLong, get
from pyconfd.system.secrecy import redacted
from tests.status.conftest import SAMPLE
from tests.status.serving import port_of
from tests.world.pki import CertificateAuthority, KeyPair

TOKEN = "0123456789abcdef-first"
OTHER = "fedcba9876543210-other"
PAGES = (
    *("/", "/status.txt", "/status.json", "/page.json", "/routes.json"),
    *("/healthz", "/readyz", "/metrics", "/metrics/routes", EXPLAIN, "/nothing"),
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("pki"))


def write(path: Path, text: str, mode: int = 0o640) -> str:
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text)
    return str(path)


def pem(*pairs: KeyPair) -> str:
    return "".join(each.read_text() for pair in pairs for each in (pair.cert, pair.key))


@pytest.fixture
def settings(tmp_path: Path, authority: CertificateAuthority) -> StatusSettings:
    certificate = write(tmp_path / "page.pem", pem(authority.server("page")))
    return StatusSettings("127.0.0.1:0", write(tmp_path / "token", f"{TOKEN}\n"), certificate)


@contextlib.contextmanager
def served(settings: StatusSettings) -> Iterator[StatusPage]:
    page = StatusPage()
    page.explain = lambda _: b"{}"
    page.serve(settings.listen, lambda: SAMPLE, PageAccess(settings))
    try:
        yield page
    finally:
        page.stop()


def ask(
    page: StatusPage, path: str, headers: Mapping[str, str] | Sequence[tuple[str, str]] = (), trusts: Path | None = None
) -> tuple[int, dict[str, str]]:
    """Return code and headers; over TLS where an authority is trusted."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=20)
    if trusts is not None:
        context = ssl.create_default_context(cafile=str(trusts))
        connection = http.client.HTTPSConnection("127.0.0.1", port_of(page), timeout=20, context=context)
    try:
        given = list(headers.items()) if isinstance(headers, Mapping) else headers
        connection.putrequest("GET", path, skip_host="Host" in dict(given))
        for name, value in given:
            connection.putheader(name, value)
        connection.endheaders()
        with connection.getresponse() as answer:
            answer.read()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def bearer(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


@pytest.mark.parametrize("path", ["/page.js", "/page.css", "/uPlot.js", "/uPlot.css", "/"])
def test_the_files_of_the_page_need_no_token_but_the_own_host(settings: StatusSettings, path: str) -> None:
    html = {"Accept": "text/html"}
    with served(replace(settings, tls_certificate="")) as page:
        assert ask(page, path, html)[0] == 200
        assert ask(page, path, html | {"Host": "evil.example"})[0] == 403


def asked_at(page: StatusPage, settings: StatusSettings) -> StatusSettings:
    return replace(settings, listen=page.address)


# The token


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_for_who_has_no_token(settings: StatusSettings, path: str) -> None:
    with served(replace(settings, tls_certificate="")) as page:
        code, headers = ask(page, path)
        assert (code, headers["www-authenticate"]) == (401, 'Bearer realm="pyconfd"')
        code, headers = ask(page, path, bearer(TOKEN))
        assert code == (404 if path == "/nothing" else 200)
        assert "www-authenticate" not in headers


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (bearer(TOKEN), 200),
        (bearer(TOKEN, "bearer"), 200),
        (bearer(f"  {TOKEN}"), 200),
        (bearer(OTHER), 401),
        (bearer(TOKEN[:-1]), 401),
        (bearer(f"{TOKEN}x"), 401),
        (bearer(TOKEN, "Basic"), 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": ""}, 401),
        (bearer("\xe4" * 16), 401),
        ({"X-Authorization": f"Bearer {TOKEN}"}, 401),
        ([("Authorization", f"Bearer {OTHER}"), ("Authorization", f"Bearer {TOKEN}")], 401),
    ],
)
def test_the_whole_token_has_to_be_there_once(
    settings: StatusSettings, headers: Mapping[str, str] | Sequence[tuple[str, str]], code: int
) -> None:
    with served(replace(settings, tls_certificate="")) as page:
        assert ask(page, "/status.json", headers)[0] == code


@pytest.mark.parametrize("host", ["evil.example", "localhost"])
def test_names_of_others_are_refused_with_the_token_too(
    settings: StatusSettings, authority: CertificateAuthority, host: str
) -> None:
    for own, trusts in ((settings, authority.cert), (replace(settings, tls_certificate=""), None)):
        with served(own) as page:
            code = ask(page, "/healthz", [("Host", host), *bearer(TOKEN).items()], trusts)[0]
            assert code == (200 if host == "localhost" else 403)


def test_another_token_counts_at_once_and_no_token_leaves_the_former(settings: StatusSettings) -> None:
    path = Path(settings.token_file)
    with served(replace(settings, tls_certificate="")) as page:
        write(path, OTHER)
        assert [ask(page, "/", bearer(each))[0] for each in (TOKEN, OTHER)] == [401, 200]
        for text, mode, words in (("short", 0o640, "holds no token"), (TOKEN, 0o644, "every user"), ("", 0, "")):
            if mode:
                write(path, text, mode)
            else:
                path.unlink()
            assert [ask(page, "/", bearer(each))[0] for each in (TOKEN, OTHER)] == [401, 200]
            (problem,) = page.problems()
            assert problem.place == str(path)
            assert words in problem.message
        write(path, TOKEN)
        assert [ask(page, "/", bearer(each))[0] for each in (TOKEN, OTHER)] == [200, 401]
        assert page.problems() == ()


def test_no_message_has_the_token(settings: StatusSettings) -> None:
    with served(settings):
        assert TOKEN not in redacted(f"it was {TOKEN} all the time")


@pytest.mark.parametrize(
    ("name", "text", "mode", "words"),
    [
        ("token", "", 0o640, "holds no token"),
        ("token", "only-fifteen-ch", 0o640, "16 characters"),
        ("token", f"{TOKEN} {TOKEN}", 0o640, "one word"),
        ("token", f"{TOKEN}\r\nX-Header: y", 0o640, "one word"),
        ("token", TOKEN, 0o604, "mode 0604"),
        ("page.pem", "no certificate", 0o640, "no certificate"),
        ("page.pem", "{cert}", 0o640, "key"),
        ("page.pem", "{cert}{other}", 0o640, "do not fit"),
        ("page.pem", "{cert}{key}", 0o644, "mode 0644"),
    ],
)
def test_nothing_is_served_while_a_file_cannot_be_used(
    settings: StatusSettings,
    tmp_path: Path,
    authority: CertificateAuthority,
    name: str,
    text: str,
    mode: int,
    words: str,
) -> None:
    good = {each: (tmp_path / each).read_text() for each in ("token", "page.pem")}
    pair, other = authority.server("pair"), authority.server("other")
    parts = {"cert": pair.cert.read_text(), "key": pair.key.read_text(), "other": other.key.read_text()}
    write(tmp_path / name, text.format(**parts), mode)
    with served(settings) as page:
        assert page.address == ""
        (problem,) = page.problems()
        assert problem.place == str(tmp_path / name)
        assert words in problem.message
        assert problem.remedy
        write(tmp_path / name, good[name])
        assert page.problems() == ()
        assert ask(page, "/healthz", bearer(TOKEN), authority.cert)[0] == 200


def test_a_key_with_a_password_asks_nobody_for_it(settings: StatusSettings, authority: CertificateAuthority) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - for this test alone

    pair = authority.server("locked")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    write(Path(settings.tls_certificate), pair.cert.read_text() + locked.decode())
    with served(settings) as page:
        assert "encrypted" in page.problems()[0].message


# TLS


def test_over_tls_the_page_is_served_with_the_certificate(
    settings: StatusSettings, authority: CertificateAuthority
) -> None:
    with served(settings) as page:
        assert ask(page, "/metrics", bearer(TOKEN), authority.cert)[0] == 200
        assert ask(page, "/metrics", (), authority.cert)[0] == 401


def test_a_client_without_tls_gets_nothing(settings: StatusSettings) -> None:
    with served(settings) as page, socket.create_connection(("127.0.0.1", port_of(page)), 20) as client:
        client.sendall(f"GET /status.json HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(65536):
                got += chunk
        assert b"HTTP/" not in got


def test_tls_before_1_2_is_refused(settings: StatusSettings) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        served(settings) as page,
        socket.create_connection(("127.0.0.1", port_of(page)), 20) as plain,
        pytest.raises(ssl.SSLError, match="protocol version"),
    ):
        context.wrap_socket(plain)


def presented(page: StatusPage) -> bytes:
    """Return the certificate that a new connection is shown."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port_of(page)), timeout=20))


def test_another_certificate_counts_at_once_and_none_leaves_the_former(
    settings: StatusSettings, authority: CertificateAuthority
) -> None:
    path, new = Path(settings.tls_certificate), authority.server("new")
    wanted = ssl.PEM_cert_to_DER_cert(new.cert.read_text())
    with served(settings) as page:
        assert presented(page) != wanted
        write(path, pem(new))
        assert presented(page) == wanted
        write(path, new.cert.read_text())  # as half written
        assert presented(page) == wanted
        assert page.problems()[0].place == str(path)
        write(path, pem(new))
        assert presented(page) == wanted
        assert page.problems() == ()


def test_silent_clients_keep_nobody_waiting_before_their_handshake(
    settings: StatusSettings, authority: CertificateAuthority
) -> None:
    with served(settings) as page:
        silent = [socket.create_connection(("127.0.0.1", port_of(page)), 20) for _ in range(MAX_CONNECTIONS + 10)]
        try:
            assert ask(page, "/healthz", bearer(TOKEN), authority.cert)[0] == 200
            assert silent[0].recv(1) == b""  # the oldest made room
        finally:
            for client in silent:
                client.close()


def test_who_has_no_token_cuts_off_nobody_who_has(settings: StatusSettings) -> None:
    began, go_on = threading.Event(), threading.Event()

    def explain(query: str) -> bytes:
        began.set()
        assert go_on.wait(30)
        return query.encode()

    with served(replace(settings, tls_certificate="")) as page:
        page.explain = explain
        codes: list[int] = []
        reader = threading.Thread(target=lambda: codes.append(ask(page, "/explain?q=a", bearer(TOKEN))[0]))
        reader.start()
        assert began.wait(30)
        for _ in range(2 * MAX_CONNECTIONS):
            assert ask(page, "/healthz")[0] == 401
        silent = [socket.create_connection(("127.0.0.1", port_of(page)), 20) for _ in range(2 * MAX_CONNECTIONS)]
        assert silent[0].recv(1) == b""
        go_on.set()
        reader.join(30)
        for client in silent:
            client.close()
    assert codes == [200]


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_never_ends_is_cut(
    settings: StatusSettings, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(status_page._PageHandler, "timeout", 0.1)
    with served(settings) as page, socket.create_connection(("127.0.0.1", port_of(page)), 20) as client:
        client.sendall(begun)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_it_stops_with_connections_that_have_begun(settings: StatusSettings) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with served(settings) as page:
        plain = socket.create_connection(("127.0.0.1", port_of(page)), 20)
        secured = context.wrap_socket(plain)
        secured.sendall(b"GET / HT")
        threads = [each for each in threading.enumerate() if each.name == "status"]
    with secured, contextlib.suppress(OSError):
        assert secured.recv(1) == b""
    assert not any(each.is_alive() for each in threads)


def test_files_are_read_where_nobody_asks_the_page(settings: StatusSettings) -> None:
    with served(settings) as page:
        for path in (settings.token_file, settings.tls_certificate):
            good = Path(path).read_text()
            Path(path).unlink()
            assert [each.place for each in page.problems()] == [path]
            write(Path(path), good)
            assert page.problems() == ()


def test_the_first_status_after_a_change_of_a_file_tells_of_it(
    settings: StatusSettings, authority: CertificateAuthority
) -> None:
    path, told = Path(settings.tls_certificate), list[str]()
    page = StatusPage()
    page.serve(settings.listen, lambda: replace(SAMPLE, problems=("another", *told)), PageAccess(settings))

    def problems() -> tuple[str, ...]:
        return decode(get(asked_at(page, settings), "/status.json", 20)).problems

    good = path.read_text()
    try:
        assert problems() == ("another",)
        path.write_text(good.partition("-----BEGIN RSA")[0].partition("-----BEGIN PRIVATE")[0])
        other, own = problems()
        assert (other, own.startswith(f"{path}: key and certificate do not fit")) == ("another", True)
        told += map(str, page.problems())  # the loop has asked
        assert problems() == ("another", own)
        path.write_text(good)
        assert problems() == ("another",)
    finally:
        page.stop()


def test_all_files_that_cannot_be_used_are_named(settings: StatusSettings) -> None:
    paths = [settings.token_file, settings.tls_certificate]
    for path in paths:
        Path(path).unlink()
    with served(settings) as page:
        assert [each.place for each in page.problems()] == paths
    with pytest.raises(TransientError) as refused:
        get(replace(settings, listen="127.0.0.1:1"), "/status.json", 20)
    assert [each.place for each in refused.value.problems] == paths


def test_an_expired_certificate_is_a_problem_and_a_credential(
    settings: StatusSettings, authority: CertificateAuthority
) -> None:
    def credentials() -> dict[str, CredentialState]:
        states = decode(get(asked_at(page, settings), "/status.json", 20)).source.credentials
        return {each.name: each for each in states}

    good = Path(settings.tls_certificate).read_text()
    with served(settings) as page:
        name = "status.tls_certificate"
        assert (credentials()[name].problem, credentials()[name].expires_at > time.time()) == ("", True)
        assert page.problems() == ()
        write(Path(settings.tls_certificate), pem(authority.server("old", expired=True)))
        (problem,) = page.problems()
        assert problem.place == settings.tls_certificate
        assert re.fullmatch(r"expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC; who verifies it .*", problem.message)
        assert credentials()[name].problem == problem.message
        assert credentials()[name].renewal(time.time()) is Renewal.NOW
        assert f'pyconfd_credential_problem{{credential="{name}"}} 1.0' in body(page, settings, "/metrics")
        write(Path(settings.tls_certificate), good)
        assert page.problems() == ()


def body(page: StatusPage, settings: StatusSettings, path: str) -> str:
    return get(asked_at(page, settings), path, 20).decode()


# Who asks with the settings of the daemon


@pytest.mark.parametrize(("token", "certificate"), [(True, True), (True, False), (False, True), (False, False)])
def test_commands_ask_as_the_settings_say(settings: StatusSettings, *, token: bool, certificate: bool) -> None:
    own = replace(
        settings,
        token_file=settings.token_file if token else "",
        tls_certificate=settings.tls_certificate if certificate else "",
    )
    with served(own) as page:
        assert decode(get(asked_at(page, own), "/status.json", 20)) == decode(
            get(asked_at(page, own), "/status.json", 20)
        )
        report = read_report(Settings(status=asked_at(page, own)), timeout_s=20)
        assert (report.freshness, report.problems) == (Freshness.LIVE, ())
        with pytest.raises(RejectedInput, match="404"):
            get(asked_at(page, own), "/nothing", 20)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"token_file": ""}, "without a token"),
        ({"token_file": "other"}, "does not take the token"),
        ({"token_file": "gone"}, "cannot be read"),
        ({"tls_certificate": "other.pem"}, "another certificate"),
        ({"tls_certificate": ""}, "no answer"),
    ],
)
def test_commands_say_what_differs_from_the_daemons_settings(
    settings: StatusSettings, tmp_path: Path, authority: CertificateAuthority, own: Mapping[str, Any], words: str
) -> None:
    write(tmp_path / "other", OTHER)
    write(tmp_path / "other.pem", pem(authority.server("other")))
    named: dict[str, Any] = {name: str(tmp_path / value) if value else "" for name, value in own.items()}
    with served(settings) as page, pytest.raises(TransientError) as refused:
        get(replace(asked_at(page, settings), **named), "/status.json", 20)
    assert words in refused.value.problems[0].message


def test_an_answer_that_is_too_long_is_told_as_that(settings: StatusSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(replace(settings, tls_certificate="")) as page:
        own = replace(asked_at(page, settings), tls_certificate="")
        size = len(get(own, "/status.json", 5.0))
        monkeypatch.setattr("pyconfd.status.page_client._BODY_LIMIT_BYTES", size)
        assert len(get(own, "/status.json", 5.0)) == size
        monkeypatch.setattr("pyconfd.status.page_client._BODY_LIMIT_BYTES", size - 1)
        with pytest.raises(AnswerTooLong, match="the answer is longer than"):
            get(own, "/status.json?q=a", 5.0)


def test_a_token_is_not_sent_to_who_has_another_certificate(
    settings: StatusSettings, tmp_path: Path, authority: CertificateAuthority
) -> None:
    write(tmp_path / "other.pem", pem(authority.server("other")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(tmp_path / "other.pem"))
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            plain, _ = listener.accept()
            with plain, contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
                got.append(secured.recv(65536))

        thread = threading.Thread(target=accept)
        thread.start()
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(TransientError, match="another certificate"):
            get(replace(settings, listen=listen), "/status.json", 20)
        thread.join(20)
    assert b"".join(got) == b""
