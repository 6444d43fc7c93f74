"""A real HAProxy with the routing of a rendered configuration, and none of its addresses or pods.

Each ``bind`` is a socket of its own, whose clients say by the PROXY protocol who they are and where they connect to.
Each backend answers with its name, behind all of its own rules.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyconfd.explain.request import ClientRequest
from pyconfd.model.context import Context
from pyconfd.model.rendering import Rendering
from tests.fuzz.haproxy_model import Bind
from tests.world.haproxy import HaproxyProcess
from tests.world.pki import CertificateAuthority

BACKEND = "x-backend"
SERVED = 299
_PATIENCE_S = 10.0
_ABOUT_SERVERS = (["tcp-check"], ["stick"], ["tcp-response"], ["default-server"])
"""Lines of backends that the stand-ins of their servers cannot have."""


@dataclass(frozen=True)
class Answered:
    """What a client got: a status, the backend that gave it and a location; status 0 where the connection ended.

    ``certificate`` is the one that it was presented, in DER.
    """

    status: int = 0
    backend: str = ""
    location: str = ""
    certificate: bytes = field(default=b"", compare=False)


@dataclass
class NamedBackends:
    """HAProxy with one configuration after the other; ``folder`` has a short path, for sockets are in it."""

    folder: Path
    haproxy: HaproxyProcess
    binds: list[tuple[Bind, str]] = field(default_factory=list)
    """Each with the path of its socket."""

    def serve(self, rendering: Rendering, context: Context) -> None:
        """Have HAProxy run what was rendered, from the beginning."""
        self.haproxy.stop()
        for file in (*context.files, *rendering.files):
            path = Path(file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.content)
        pem = self.folder / "answer.pem"
        if not pem.exists():
            pair = CertificateAuthority(self.folder / "ca").server("answer", ("answer.test",))
            pem.write_text(pair.cert.read_text() + pair.key.read_text())
        self.binds.clear()
        text = "\n".join(self._rewritten(rendering.text, pem))
        self.haproxy.conf.write_text(f"{text}\n")
        self.haproxy.start()

    def _rewritten(self, text: str, pem: Path) -> Iterator[str]:
        sections = re.split(r"(?m)^(?=(?:global|defaults|frontend|backend|listen|peers|ring)\b)", text)
        at_the_end: list[str] = []
        for number, section in enumerate(sections):
            title, *lines = section.rstrip().split("\n")
            keyword, _, name = title.partition(" ")
            name = name.split(" ")[0]
            yield title
            inner = any(re.match(r" +server \S+ (?:unix|abns)@", each) for each in lines)
            is_tcp = any(each.strip() == "mode tcp" for each in lines) or " from https-service" in title
            # HAProxy itself answers for a backend without servers that take traffic.
            has_servers = any(" server " in each and not each.endswith("weight 0") for each in lines)
            for line in lines:
                if keyword == "frontend" and line.split()[:1] == ["bind"]:
                    yield self._bound(line)
                elif keyword == "backend" and not inner and line.split()[:1] == ["server"]:
                    yield f"{line} no-check" if not (is_tcp and has_servers) else ""
                elif line.strip().startswith("tcp-request connection reject"):
                    # The addresses are known only behind the header of the PROXY protocol.
                    yield line.replace("connection", "session", 1)
                elif keyword != "backend" or line.split(" ")[4:5] not in _ABOUT_SERVERS:
                    yield line
            if keyword == "backend" and not inner and has_servers:
                if not is_tcp:
                    yield f"    http-request return status {SERVED} hdr {BACKEND} {name}"
                else:
                    yield f"    server answer unix@{self.folder}/t{number} no-check"
                    at_the_end.append(self._answering(number, name, pem))
        yield from at_the_end

    def _bound(self, line: str) -> str:
        _, written, *words = line.split()
        address, _, port = written.rpartition(":")
        if not port.isdigit():
            return line
        path = f"{self.folder}/b{len(self.binds)}"
        self.binds.append((Bind(address, int(port), tuple(words)), path))
        kept = [each for each in words if each not in {"transparent", "v6only"}]
        return f"    bind unix@{path} accept-proxy {' '.join(kept)}"

    def _answering(self, number: int, name: str, pem: Path) -> str:
        at = f"unix@{self.folder}/t{number}"
        return f"""
frontend answer-{number}
    mode tcp
    bind {at}
    tcp-request inspect-delay 2s
    tcp-request content accept if {{ req.ssl_hello_type 1 }}
    tcp-request content accept if {{ req.len gt 0 }}
    use_backend answer-{number}-tls if {{ req.ssl_hello_type 1 }}
    default_backend answer-{number}-plain
backend answer-{number}-tls
    mode tcp
    server s {at}s no-check
backend answer-{number}-plain
    mode tcp
    server s {at}p no-check
frontend answer-{number}-http
    mode http
    bind {at}p
    bind {at}s ssl crt {pem}
    http-request return status {SERVED} hdr {BACKEND} {name}"""

    def ask(self, request: ClientRequest, default_source: str = "198.51.100.250") -> Answered:
        """Return what a client gets, at the socket to which Linux would give its connection."""
        ranked = [(each.rank(request.to), path) for each, path in self.binds if each.port == request.port]
        best = max(ranked, default=(0, ""), key=lambda each: each[0])
        if not best[0]:
            return Answered()
        family = "TCP6" if ":" in request.to else "TCP4"
        source = request.source or ("2001:db8::250" if family == "TCP6" else default_source)
        try:
            with closing(socket.socket(socket.AF_UNIX)) as plain:
                plain.settimeout(_PATIENCE_S)
                plain.connect(best[1])
                plain.sendall(f"PROXY {family} {source} {request.to} 40000 {request.port}\r\n".encode())
                if not request.is_tls:
                    return _answer(plain, request)
                with closing(_over_tls(plain, request.tls_name)) as tls:
                    return replace(_answer(tls, request), certificate=tls.getpeercert(binary_form=True) or b"")
        except (ConnectionError, ssl.SSLError):
            return Answered()


_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_CONTEXT.check_hostname, _CONTEXT.verify_mode = False, ssl.CERT_NONE


def _over_tls(plain: socket.socket, name: str) -> ssl.SSLSocket:
    tls = _CONTEXT.wrap_socket(plain, server_hostname=name or None, do_handshake_on_connect=False)
    try:
        tls.do_handshake()
    except BaseException:
        tls.close()
        raise
    return tls


def _answer(connection: socket.socket, request: ClientRequest) -> Answered:
    host, *headers = request.headers
    lines = [f"{request.method} {request.pathq} HTTP/1.1", f"host: {host[1]}", *(f"{n}: {v}" for n, v in headers)]
    body = ["content-length: 0"] if request.method in {"POST", "PUT"} else []
    connection.sendall("\r\n".join([*lines, *body, "", ""]).encode())
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(65536)
        if not more:
            return Answered()
        received += more
    first, *rest = received.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    found: Mapping[str, str] = {
        name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)
    }
    return Answered(int(first.split(" ")[1]), found.get(BACKEND, ""), found.get("location", ""))
