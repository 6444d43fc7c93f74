"""What generated Ingresses need beside them: pods, a certificate, users; and a client that asks as the oracle says."""

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import yaml

from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.trying.own_haproxy import short_folder
from tests.moving.oracle import SESSION, SLOW_S, USERS, Ask
from tests.presets.gateway.stage import EchoServer, pods
from tests.presets.gateway.test_tls_live import combined, tls_pod
from tests.presets.policies.stage import PolicyStage, service
from tests.world.haproxy import HaproxyProcess
from tests.world.pki import CertificateAuthority, KeyPair

_PATIENCE_S = 8.0
_SHARED, _OWN, GATEWAY_ADDRESS = "192.0.2.200", "192.0.2.1", "192.0.2.2"
"""The shared address; the one of the stage's own Gateway, and the one that another Gateway is given."""


@dataclass(frozen=True)
class Got:
    """What a client got: status 0 where the connection ended without an answer. ``headers`` in lower case."""

    status: int = 0
    headers: dict[str, list[str]] = field(default_factory=dict)
    body: str = ""

    def fault(self, ask: Ask) -> str:
        """Return in what it is not what was to be, "" for nothing."""
        if self.status not in ask.statuses:
            return f"{ask.statuses[0]} is {self.status}"
        for name, part in ask.found.items():
            values = self.headers.get(name, [])
            if name == "location":  # one of a path only is that of the request's host
                values = [urljoin(f"{'https' if ask.tls else 'http'}://{ask.host}/", each) for each in values]
            if not any(part.lower() in each.lower() for each in values):
                return f"{name} is not there" if name not in self.headers else f"{name} is another one"
        for name in ask.missing:
            if name in self.headers:
                return f"{name} is there"
        if self.status == 200 and ask.pod:
            echo = json.loads(self.body)
            if echo["pod"] != ask.pod:
                return f"pod {ask.pod} is {echo['pod']}"
            if ask.path and echo["path"] != ask.path:
                return "the pod sees another path"
        return ""


class _Authentication(BaseHTTPRequestHandler):
    """A service that knows who has a session."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200 if SESSION in (self.headers.get("Cookie") or "") else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it that
        pass


@dataclass
class MovingStage(PolicyStage):
    """A real HAProxy with TLS, pods of several kinds, and Secrets."""

    beside: tuple[str, ...] = ()
    client_pair: KeyPair | None = None
    address: str = _SHARED
    """Where clients connect to."""

    @property
    def options(self) -> PresetOptions:
        tls = TlsOptions(directory=f"{self.folder}/files/secrets", namespaces=("*",))
        pool = AddressOptions((_OWN, GATEWAY_ADDRESS), shared=(_SHARED,))
        return replace(super().options, tls=tls, addresses=pool)

    def asked(self, ask: Ask) -> Got:
        """Return the answer to a request, the last one of several."""
        found = Got()
        for _ in range(ask.times):
            found = self._asked(ask)
            if ask.times > 1 and found.status != 200:
                break
        return found

    def _asked(self, ask: Ask) -> Got:
        try:
            with self._open(ask) as connection:
                connection.settimeout(_PATIENCE_S)
                lets_in = ask.length and 200 in ask.statuses
                length = {"Content-Length": str(ask.length)} if ask.length else {}
                fields = {"Host": ask.host, "Connection": "close", **length, **ask.headers}
                head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                connection.sendall(f"{ask.method} {ask.url} HTTP/1.1\r\n{head}\r\n".encode())
                with suppress(ConnectionError):  # what is refused is answered before its end
                    connection.sendall(b"x" * ask.length if lets_in else b"")
                answer = http.client.HTTPResponse(connection, method=ask.method)
                answer.begin()
                headers: dict[str, list[str]] = {}
                for name, value in answer.getheaders():
                    headers.setdefault(name.lower(), []).append(value)
                return Got(answer.status, headers, answer.read().decode("latin-1"))
        except (OSError, http.client.HTTPException):
            return Got()

    @contextmanager
    def _open(self, ask: Ask) -> Iterator[Any]:
        port = 443 if ask.tls else 80
        wanted = [each for each in self.binds if each[0].port == port and each[0].rank(self.address)]
        if not wanted:
            raise ConnectionRefusedError
        with ExitStack() as stack:
            plain = stack.enter_context(
                self.connected_to(max(wanted, key=lambda each: each[0].rank(self.address))[1], ask.client, port)
            )
            if not ask.tls:
                yield plain
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if ask.certificate and self.client_pair is not None:
                context.load_cert_chain(self.client_pair.cert, self.client_pair.key)
            yield stack.enter_context(context.wrap_socket(plain, server_hostname=ask.host))

    def connected_to(self, path: str, client: str, port: int) -> socket.socket:
        """Return a connection of a client, by the PROXY protocol."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_PATIENCE_S)
        connection.connect(path)
        connection.sendall(f"PROXY TCP4 {client} {self.address} 40000 {port}\r\n".encode())
        return connection


def _secret(name: str, type_: str, **data: str) -> str:
    encoded = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return yaml.safe_dump({"kind": "Secret", "metadata": {"name": name}, "type": type_, "data": encoded})


def _echoes(path: str) -> int:
    if path.endswith("?slow"):
        time.sleep(SLOW_S)
    return 200


@contextmanager
def _authentication() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Authentication)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def moving_stage(folder: Path) -> Iterator[MovingStage]:
    """Yield a stage with all that generated Ingresses name."""
    authority = CertificateAuthority(folder / "ca")
    pair = authority.server("web", ("*.example.com", "*.www.example.com"))
    with (
        HaproxyProcess(folder) as process,
        pods("app", "canary") as (app, canary),
        tls_pod("secure", combined(authority, folder, "secure", "secure.shop.svc")) as secure,
        _authentication() as authentication,
    ):
        each: EchoServer
        for each in (app, canary, secure):
            each.script = _echoes
        beside = (
            service(canary.port, "canary"),
            service(secure.port, "secure").replace("port: 80}", "port: 443}"),
            service(authentication, "auth"),
            _secret("web-tls", "kubernetes.io/tls", tls_crt=pair.cert.read_text(), tls_key=pair.key.read_text()),
            _secret("ca", "Opaque", ca_crt=authority.cert.read_text()),
            # The one object that has to be made beside what there is: authorities are read from ConfigMaps.
            yaml.safe_dump(
                {"kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": authority.cert.read_text()}}
            ),
            *(_secret(name, "Opaque", auth=line) for name, line in USERS.items()),
        )
        yield MovingStage(
            short_folder("mov-"), process, pod=app, nginx_classes=("nginx",), beside=beside,
            client_pair=authority.client("alice"),
        )  # fmt: skip
