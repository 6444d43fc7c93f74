"""Ports with TLS, TLS to servers, HTTP/2 to servers and plain TCP in a real haproxy."""

import http.client
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pyconfd.model.gateway_api import SubjectAltName
from pyconfd.presets.gateway.frontends import (
    ClientVerification,
    EndingListener,
    FrontendKind,
    NameRoute,
)
from pyconfd.presets.gateway.http_rules import stream_backend
from pyconfd.presets.gateway.servers import BackendTls, san_digits, server_options
from tests.fragments.shipped import HAPROXY
from tests.presets.gateway import stage
from tests.presets.gateway.stage import EchoServer, Front, Routes, ask, endpoint, gateway, parsed, pods, running
from tests.world.haproxy import free_port
from tests.world.pki import CertificateAuthority

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

NAME = "gw_demo_web_443"


def combined(authority: CertificateAuthority, folder: Path, name: str, *hosts: str) -> str:
    """Return the path of a certificate with its key."""
    pair = authority.server(name, hosts)
    pem = folder / f"{name}.pem"
    pem.write_text(pair.cert.read_text() + pair.key.read_text())
    return str(pem)


def ask_tls(
    port: int, sni: str, host: str = "", *, client: tuple[Path, Path] | None = None, path: str = "/"
) -> tuple[int, str, list[str]]:
    """Return the status, the pod or text that answers, and the names of the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client:
        context.load_cert_chain(*client)
    with (
        socket.create_connection(("127.0.0.1", port), 30) as raw,
        context.wrap_socket(raw, server_hostname=sni or None) as connection,
    ):
        der = connection.getpeercert(binary_form=True) or b""
        pem = ssl.DER_cert_to_PEM_cert(der)
        shown = subprocess.run(
            ["openssl", "x509", "-noout", "-ext", "subjectAltName"],
            input=pem,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = [part.strip().removeprefix("DNS:") for part in shown.split("\n")[1].split(",")]
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or sni}\r\nConnection: close\r\n\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read().decode()
        return response.status, json.loads(body)["pod"] if response.status == 200 else body, names


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority) -> Iterator[int]:
    """Listeners for any host, example.org and *.example.org."""
    folder, port = tmp_path_factory.mktemp("haproxy"), free_port()
    hosts = {"any": "", "exact": "example.org", "wild": "*.example.org"}
    with pods(*hosts) as servers, ExitStack():
        routes = []
        for (name, host), server in zip(hosts.items(), servers, strict=True):
            reference = stage.reference(1, (server.endpoint,))
            routes.append(Routes(NAME, host).add(parsed({"backendRefs": [{"name": name, "port": 80}]}), reference))
        # A route of the listener for any host, whose own hostname is more specific.
        routes.append(
            Routes(NAME, "shop.example.com").add(
                parsed({"matches": [{"path": {"value": "/shop"}}], "backendRefs": [{"name": "any", "port": 80}]}),
                stage.reference(1, (servers[0].endpoint,)),
            )
        )
        front, backends = gateway(
            NAME,
            routes,
            kind=FrontendKind.TLS,
            port=port,
            listener_of={
                **{route.virtual_host: name for route, name in zip(routes, hosts, strict=False)},
                routes[-1].virtual_host: "any",
            },
            listeners=tuple(
                EndingListener(name, (combined(authority, folder, name, f"{name}.test"),)) for name in hosts
            ),
            names=tuple(NameRoute(host, name) for name, host in hosts.items()),
        )
        with running([front], backends, folder):
            yield port


@pytest.mark.parametrize(
    ("sni", "host", "status", "pod", "certificate"),
    [
        ("example.org", "example.org", 200, "exact", "exact"),
        ("EXAMPLE.org", "example.org:8443", 200, "exact", "exact"),
        ("a.example.org", "a.example.org", 200, "wild", "wild"),
        ("a.b.example.org", "c.example.org", 200, "wild", "wild"),
        ("other.net", "other.net", 200, "any", "any"),
        ("", "other.net", 200, "any", "any"),
        ("shop.example.com", "shop.example.com", 200, "any", "any"),
        ("example.org", "a.example.org", 421, "", "exact"),
        ("example.org", "other.net", 421, "", "exact"),
        ("a.example.org", "example.org", 421, "", "wild"),
        ("other.net", "example.org", 421, "", "any"),
    ],
)
def test_each_listener_has_its_certificate_and_requests(
    https: int, sni: str, host: str, status: int, pod: str, certificate: str
) -> None:
    found = ask_tls(https, sni, host)
    assert (found[0], found[2]) == (status, [f"{certificate}.test"])
    assert not pod or found[1] == pod


def test_a_browser_is_offered_http_2(https: int) -> None:
    command = ["curl", "-sk", "--http2", "-o", "-", "-w", "%{http_version}", "--connect-to", f"::127.0.0.1:{https}"]
    found = subprocess.run([*command, "https://example.org/"], capture_output=True, text=True, check=True).stdout
    assert found.endswith("2")
    assert '"pod": "exact"' in found


def test_a_connection_without_tls_is_closed(https: int) -> None:
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(https, "/")


@pytest.mark.parametrize(
    ("required", "certificate", "works"),
    [
        (True, "", False),
        (True, "own", True),
        (True, "foreign", False),
        (False, "", True),
        (False, "own", True),
        (False, "foreign", True),
    ],
)
def test_clients_show_certificates(
    tmp_path: Path, authority: CertificateAuthority, required: bool, certificate: str, works: bool
) -> None:
    foreign = CertificateAuthority(tmp_path / "foreign", "foreign")
    pair = {"own": authority, "foreign": foreign}[certificate].client() if certificate else None
    port = free_port()
    with pods("web") as (web,):
        rule = parsed({"backendRefs": [{"name": "web", "port": 80}]})
        route = Routes(NAME).add(rule, stage.reference(1, (web.endpoint,)))
        front, backends = gateway(
            NAME,
            [route],
            kind=FrontendKind.TLS,
            port=port,
            listener_of={route.virtual_host: "a"},
            listeners=(EndingListener("a", (combined(authority, tmp_path, "a", "a.test"),)),),
            names=(NameRoute("", "a"),),
            verification=ClientVerification(str(authority.cert), required),
        )
        with running([front], backends, tmp_path):
            client = (pair.cert, pair.key) if pair else None
            if works:
                assert ask_tls(port, "a.test", client=client)[0] == 200
            else:
                with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                    ask_tls(port, "a.test", client=client)


def resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[int, ssl.SSLSession | None]:
    """Return the status of an answer, and a session to resume the connection with."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as raw,
        context.wrap_socket(raw, server_hostname="a.test", session=session) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.read()
        return response.status, connection.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("verified", [True, False])
def test_a_session_of_another_port_is_no_certificate(
    tmp_path: Path, authority: CertificateAuthority, version: ssl.TLSVersion, verified: bool
) -> None:
    foreign = CertificateAuthority(tmp_path / "foreign", "foreign")
    own, others = free_port(), free_port()
    of_others = ClientVerification(str(foreign.cert), True) if verified else None
    with pods("web") as (web,):
        fronts, backends = [], {}
        for port, verification in ((own, ClientVerification(str(authority.cert), True)), (others, of_others)):
            name = f"gw_demo_web_{port}"
            route = Routes(name).add(
                parsed({"backendRefs": [{"name": "web", "port": 80}]}), stage.reference(1, (web.endpoint,))
            )
            front, found = gateway(
                name,
                [route],
                kind=FrontendKind.TLS,
                port=port,
                listener_of={route.virtual_host: "a"},
                listeners=(EndingListener("a", (combined(authority, tmp_path, f"a{port}", "a.test"),)),),
                names=(NameRoute("", "a"),),
                verification=verification,
            )
            fronts.append(front)
            backends.update(found)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        if verified:
            pair = foreign.client()
            context.load_cert_chain(pair.cert, pair.key)
        with running(fronts, backends, tmp_path):
            status, session = resumed(others, context, None)
            assert status == 200
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                resumed(own, context, session)


@contextmanager
def tls_pod(title: str, certificate: str, ca: Path | None = None) -> Iterator[EchoServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if ca:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    server = EchoServer(title)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


def test_names_lead_through_or_are_ended_or_refused(tmp_path: Path, authority: CertificateAuthority) -> None:
    port = free_port()
    through = combined(authority, tmp_path, "through", "through.test")
    own = combined(authority, tmp_path, "own", "own.test")
    with tls_pod("encrypted", through) as encrypted, pods("plain") as (plain,):
        backends = {
            name: stage.with_servers(stream_backend(references, name, "TLSRoute demo/web"))
            for name, references in {
                "gw_through": [stage.reference(1, (encrypted.endpoint,))],
                "gw_ended": [stage.reference(1, (plain.endpoint,))],
                "gw_invalid": [stage.reference(1, resolved=False)],
            }.items()
        }
        front = Front(
            NAME,
            "Gateway demo/web",
            FrontendKind.TLS,
            ("127.0.0.1",),
            port,
            listeners=(EndingListener("ended", (own,), http=False),),
            names=(
                NameRoute("through.test", backend="gw_through"),
                NameRoute("*.through.test", backend="gw_through"),
                NameRoute("nowhere.through.test"),
                NameRoute("own.test", "ended"),
                NameRoute("invalid.test", backend="gw_invalid"),
            ),
            ended_names=(NameRoute("own.test", backend="gw_ended"),),
        )
        with running([front], backends, tmp_path):
            assert ask_tls(port, "through.test") == (200, "encrypted", ["through.test"])
            assert ask_tls(port, "a.b.through.test") == (200, "encrypted", ["through.test"])
            assert ask_tls(port, "own.test") == (200, "plain", ["own.test"])
            for name in ("nowhere.through.test", "unknown.test", "invalid.test", ""):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    ask_tls(port, name)


def test_tcp_is_divided_by_weights_and_closed_without_a_route(tmp_path: Path) -> None:
    port, closed = free_port(), free_port()
    with pods("one", "two") as (one, two):
        references = [stage.reference(90, (one.endpoint,)), stage.reference(10, (two.endpoint,))]
        backends = {"gw_tcp": stage.with_servers(stream_backend(references, "gw_tcp", "TCPRoute demo/web"))}
        fronts = [
            Front(
                f"gw_demo_web_{number}", "Gateway demo/web", FrontendKind.TCP, ("127.0.0.1",), number, backend=backend
            )
            for number, backend in ((port, "gw_tcp"), (closed, ""))
        ]
        with running(fronts, backends, tmp_path):
            found = [ask(port, "/").echo["pod"] for _ in range(100)]
            assert 85 <= found.count("one") <= 95
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                ask(closed, "/")


def test_the_share_of_connections_for_no_endpoints_is_closed(tmp_path: Path) -> None:
    port = free_port()
    with pods("one") as (one,):
        references = [stage.reference(50, (one.endpoint,)), stage.reference(50)]
        backends = {"gw_tcp": stage.with_servers(stream_backend(references, "gw_tcp", "TCPRoute demo/web"))}
        front = Front("gw_demo_web", "Gateway demo/web", FrontendKind.TCP, ("127.0.0.1",), port, backend="gw_tcp")
        with running([front], backends, tmp_path):
            closed = 0
            for _ in range(200):
                try:
                    assert ask(port, "/").echo["pod"] == "one"
                except (ConnectionError, http.client.HTTPException):
                    closed += 1
    assert 70 <= closed <= 130


SPIFFE = SubjectAltName("URI", uri="spiffe://example.org/web")
DNS = SubjectAltName("Hostname", hostname="web.example.org")
OTHER = SubjectAltName("Hostname", hostname="other.example.org")


@pytest.mark.parametrize(
    ("hostname", "sans", "client", "status"),
    [
        ("web.example.org", (), False, 200),
        ("other.example.org", (), False, 503),
        ("web.example.org", (DNS,), False, 200),
        ("web.example.org", (OTHER,), False, 502),
        ("other.example.org", (DNS,), False, 503),
        ("web.example.org", (OTHER, DNS), False, 200),
        ("web.example.org", (OTHER, SPIFFE), False, 502),
        ("web.example.org", (SPIFFE,), False, 502),
        ("web.example.org", (), True, 200),
    ],
)
def test_certificates_of_servers_are_verified(
    tmp_path: Path,
    authority: CertificateAuthority,
    hostname: str,
    sans: Sequence[SubjectAltName],
    client: bool,
    status: int,
) -> None:
    shown = ""
    if client:
        pair = authority.client()
        shown = str(tmp_path / "client.pem")
        Path(shown).write_text(pair.cert.read_text() + pair.key.read_text())
    tls = BackendTls(str(authority.cert), hostname, tuple(sans), shown)
    certificate = combined(authority, tmp_path, "web", "web.example.org")
    port = free_port()
    with tls_pod("web", certificate, authority.cert if client else None) as web:
        reference = stage.reference(1, (web.endpoint,), server_options(tls), san_digits(tls))
        route = Routes("gw_demo_web_80").add(parsed({"backendRefs": [{"name": "web", "port": 443}]}), reference)
        front, backends = gateway("gw_demo_web_80", [route], port=port)
        with running([front], backends, tmp_path):
            assert ask(port, "/").status == status


def test_servers_are_spoken_to_in_http_2(tmp_path: Path) -> None:
    inner, port = free_port(), free_port()
    (tmp_path / "pod.cfg").write_text(
        f"defaults\n    mode http\n    timeout client 30s\n    timeout server 30s\n    timeout connect 5s\n"
        f"frontend pod\n    bind 127.0.0.1:{inner}\n"
        '    http-request return status 200 content-type text/plain lf-string "%[req.ver] %[path]"\n'
    )
    pod = subprocess.Popen([HAPROXY, "-db", "-f", str(tmp_path / "pod.cfg")], stderr=subprocess.DEVNULL)
    try:
        reference = stage.reference(1, (endpoint(inner),), server_options(None, h2=True))
        route = Routes("gw_demo_web_80").add(parsed({"backendRefs": [{"name": "web", "port": 80}]}), reference)
        front, backends = gateway("gw_demo_web_80", [route], port=port)
        with running([front], backends, tmp_path):
            assert ask(port, "/a").body == "2.0 /a"
    finally:
        pod.kill()
        pod.wait(30)
