"""The shipped fragments in a real haproxy with real clients: routing, TLS passthrough, Redis checks, statistics."""

import datetime as dt
import http.client
import re
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pyconfd.render.filters import identifier
from tests.fragments.shipped import HAPROXY, Endpoint, render_shipped, write_rendering
from tests.world.haproxy import free_port

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]
PATIENCE_S = 30.0


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > give_up_at:
            pytest.fail(f"no {what} in {PATIENCE_S} s")
        time.sleep(0.05)


class Echo(BaseHTTPRequestHandler):
    """Answers with the name of its server and the forwarding headers it got."""

    def do_GET(self) -> None:
        forwarded = [f"{key}={self.headers.get(f'X-Forwarded-{key}')}" for key in ("Proto", "Port", "For")]
        body = " ".join([str(getattr(self.server, "title", "")), *forwarded]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it that
        pass


class Redis(socketserver.StreamRequestHandler):
    """Answers PING as a server that is ready, or as one that is loading."""

    def handle(self) -> None:
        for _line in self.rfile:
            self.wfile.write(getattr(self.server, "answer", b""))


@contextmanager
def running(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()


def http_server(title: str) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.title = title  # type: ignore[attr-defined]  # the handler reads it
    return server


def redis_server(answer: bytes) -> socketserver.ThreadingTCPServer:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Redis)
    server.daemon_threads = True
    server.answer = answer  # type: ignore[attr-defined]  # the handler reads it
    return server


def tls_server(name: str, folder: Path) -> ThreadingHTTPServer:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = folder / f"{name}.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = http_server(name)
    # Without a handshake at accept(): HAProxy's health checks only connect.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def service(domain: str, proto: str, ports: list[int], listen_port: int | None = None) -> tuple[str, dict[str, Any]]:
    endpoints = [Endpoint("", "", "", "127.0.0.1", port, "ipv4", "ready") for port in ports]
    return domain, {
        "proto": proto,
        "port": ports[0],
        "ips": ["127.0.0.1"],
        "name": "name",
        "namespace": "demo",
        "domain": domain,
        "ports": [],
        "listen_port": listen_port,
        "endpoints": endpoints,
        "key": identifier(domain),
    }


@contextmanager
def balancer(services: list[tuple[str, dict[str, Any]]], folder: Path, **more: object) -> Iterator[dict[str, int]]:
    """Run haproxy with the shipped fragments until the end of the block; gives its ports."""
    ports = {name: free_port() for name in ("http", "https", "stats")}
    variables: dict[str, Any] = {f"{name}_bind": f"127.0.0.1:{port}" for name, port in ports.items()}
    variables["tcp_address"] = "127.0.0.1"
    variables["runtime_socket"] = ""  # the folder's path may be too long for one
    variables |= more
    write_rendering(render_shipped(dict(services), variables, str(folder)), folder / "haproxy.cfg")
    log = folder / "haproxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen([HAPROXY, "-db", "-f", str(folder / "haproxy.cfg")], stdout=output, stderr=output)
    try:
        wait_for("statistics", lambda: process.poll() is not None or answers(ports["stats"]))
        assert process.poll() is None, log.read_text()
        yield ports
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            return True
    except ConnectionRefusedError:
        return False


def get(port: int, host: str, path: str = "/") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


HOSTS = {
    "shop.example.com": "shop.example.com",
    "SHOP.Example.com:8080": "shop.example.com",
    "shop.example.com.": "shop.example.com",
    "shop.example.com.:80": "shop.example.com",
    "other.example.com": "*.example.com",
    "a.b.example.com": "*.example.com",
    "x.eu.example.com": "*.eu.example.com",
    "eu.example.com": "*.example.com",
    "192.0.2.10": "192.0.2.10",
    "192.0.2.10:80": "192.0.2.10",
    "[2001:db8::10]": "2001:db8::10",
    "[2001:DB8::10]:80": "2001:db8::10",
    "example.com": "",
    "notexample.com": "",
    "shop.example.com.attacker.net": "",
    "unknown.test": "",
    "landing-page": "",
}


def test_hosts_reach_their_services_and_only_them(tmp_path: Path) -> None:
    domains = sorted({domain for domain in HOSTS.values() if domain})
    with ExitStack() as stack:
        servers = {domain: stack.enter_context(running(http_server(domain))) for domain in domains}
        services = [service(domain, "http", [port]) for domain, port in servers.items()]
        ports = stack.enter_context(balancer(services, tmp_path))
        found = {host: get(ports["http"], host) for host in HOSTS}
    for host, domain in HOSTS.items():
        status, body = found[host]
        if domain:
            expected = f"{domain} Proto=http Port={ports['http']} For=127.0.0.1"
            assert (status, body) == (200, expected), host
        else:
            assert status == 404, host
            assert "404 Not Found" in body, host
            # Nothing of what serves here, nor of how it is configured.
            assert not re.search("pyconfd|haproxy|kube|service|annotat|balanc", body, re.IGNORECASE), host


def test_tls_goes_through_by_its_server_name(tmp_path: Path) -> None:
    domains = ["dash.example.com", "*.tls.example.com"]

    def peer_name(port: int, server_name: str) -> str:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw,
            context.wrap_socket(raw, server_hostname=server_name) as wrapped,
        ):
            presented = x509.load_der_x509_certificate(wrapped.getpeercert(binary_form=True) or b"")
            return str(presented.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    with ExitStack() as stack:
        services = [
            service(domain, "https", [stack.enter_context(running(tls_server(domain, tmp_path)))]) for domain in domains
        ]
        ports = stack.enter_context(balancer(services, tmp_path))
        assert peer_name(ports["https"], "dash.example.com") == "dash.example.com"
        assert peer_name(ports["https"], "DASH.example.com") == "dash.example.com"
        assert peer_name(ports["https"], "a.tls.example.com") == "*.tls.example.com"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            peer_name(ports["https"], "unknown.example.com")


def test_redis_is_asked_whether_it_answers(tmp_path: Path) -> None:
    listen_port = free_port()
    with ExitStack() as stack:
        ready = stack.enter_context(running(redis_server(b"+PONG\r\n")))
        loading = stack.enter_context(running(redis_server(b"-LOADING Redis is loading\r\n")))
        services = [service("cache.example.com", "redis", [ready, loading], listen_port)]
        ports = stack.enter_context(balancer(services, tmp_path))

        def state(port: int) -> str:
            rows = [line.split(",") for line in get(ports["stats"], "", "/;csv")[1].splitlines()]
            return next(row[17] for row in rows if row[:2] == ["be-cache.example.com", f"127.0.0.1:{port}"])

        wait_for("server to go down", lambda: state(loading) == "DOWN")
        # A check that comes too late on a busy machine takes it out for a while.
        wait_for("server that is up", lambda: state(ready) == "UP")
        for _request in range(4):
            with socket.create_connection(("127.0.0.1", listen_port), timeout=PATIENCE_S) as client:
                client.sendall(b"PING\r\n")
                assert client.recv(64) == b"+PONG\r\n"


def test_statistics_for_people_and_for_prometheus(tmp_path: Path) -> None:
    with balancer([], tmp_path) as ports:
        assert "Statistics Report" in get(ports["stats"], "")[1]
        if "+PROMEX" in subprocess.run([HAPROXY, "-vv"], capture_output=True, check=True, text=True).stdout:
            assert "haproxy_process_uptime_seconds" in get(ports["stats"], "", "/metrics")[1]
        assert get(ports["http"], "")[0] == 404
