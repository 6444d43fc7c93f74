"""A real haproxy with a backend, maps and certificates, and pods behind it: what the tests of live changes share."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.operations import AddServer, Command
from tests.world.backends import Backend, Backends
from tests.world.haproxy import HaproxyProcess, free_port, wait_until
from tests.world.pki import CertificateAuthority

CONFIGURATION = """global
    stats socket {socket} mode 600 level admin
    stats socket {socket}.operator mode 600 level operator
    stats timeout 1s
defaults base
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout queue 5s
    timeout check 20s
    balance roundrobin
    option httpchk GET /health
frontend fe
    bind 127.0.0.1:{port}
    bind 127.0.0.1:{tls_port} ssl crt {directory}/certs/
    bind 127.0.0.1:{list_port} ssl crt-list {directory}/list
    http-request set-var(txn.be) req.hdr(host),map_str({directory}/hosts.map)
    http-request set-header x-prefix %[path,map_beg({directory}/paths.map,none)]
    http-request set-header x-net %[src,map_ip({directory}/nets.map,none)]
    use_backend %[var(txn.be)] if {{ var(txn.be) -m found }}
    default_backend be
backend be from base
    server first {first} id 1001
backend other from base
    server first {first} id 1002
"""

PLAIN = ("inter", "2s", "fastinter", "100ms", "downinter", "100ms", "rise", "1", "fall", "1")
"""``inter`` is also how long a connection for a check may take, which a busy machine needs."""


class Served:
    """``runtime`` is connected; ``first`` is the pod of the server that the file names."""

    def __init__(self, directory: Path, haproxy: HaproxyProcess, pods: Backends) -> None:
        self.directory, self.haproxy, self.pods = directory, haproxy, pods
        self.port, self.tls_port, self.list_port = free_port(), free_port(), free_port()
        self.authority = CertificateAuthority(directory / "ca")
        self._issued = 0
        self.first = pods.add("first", "127.0.0.1", 0)
        self.list = f"{directory}/list"
        self.certificates = f"{directory}/certs"
        Path(self.certificates).mkdir()
        self.file("hosts.map", "one be\ntwo other\n")
        self.file("paths.map", "/a x\n/b y\n")
        self.file("nets.map", "10.0.0.0/8 inside\n")
        Path(self.certificate("a")).write_text(self.pem("a.example.com"))
        self.listed = self.file("listed.pem", self.pem("listed.example.com"))
        self.file("list", f"{self.listed}\n")
        haproxy.conf.write_text(
            CONFIGURATION.format(
                socket=haproxy.stats_socket,
                port=self.port,
                tls_port=self.tls_port,
                list_port=self.list_port,
                directory=directory,
                first=address_of(self.first),
            )
        )
        haproxy.start()
        self.clock = 0.0
        self.runtime = Runtime(monotonic=lambda: self.clock, dynamic_backends=True)
        self.connect()

    def connect(self) -> None:
        assert self.runtime.connect([self.haproxy.stats_socket]).runtime, self.runtime.abilities.why

    def file(self, name: str, content: str) -> str:
        """Write a file, give its path."""
        path = self.directory / name
        path.write_text(content)
        return str(path)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def certificate(self, name: str) -> str:
        return f"{self.certificates}/{name}.pem"

    def pem(self, name: str) -> str:
        """Issue a certificate for ``name``, another one each time."""
        self._issued += 1
        pair = self.authority.server(f"leaf{self._issued}", (name,))
        return pair.cert.read_text() + pair.key.read_text()

    def execute(self, *commands: Command) -> None:
        self.runtime.execute(commands)

    def refusal(self, *commands: Command) -> str:
        """Execute what is to fail; give why it did."""
        try:
            self.runtime.execute(commands)
        except NotConfirmed as error:
            return str(error)
        raise AssertionError("it went live")

    def server(self, name: str, backend: str = "be") -> ServerNow | None:
        return next((one for one in self.runtime.servers([backend]) if one.name == name), None)

    def serves(self, name: str, backend: str = "be") -> ServerNow:
        """Return a server that has to be there."""
        found = self.server(name, backend)
        assert found is not None
        return found

    def ask(self, command: str) -> str:
        """Ask over a connection of its own, as an operator would."""
        return ask(self.haproxy.stats_socket, command)

    def entries(self, name: str) -> list[str]:
        """Return the entries of a map, in order."""
        return [row.split(" ", 1)[1] for row in self.ask(f"show map {self.path(name)}").splitlines() if row]

    def answers(self, count: int = 40, *, host: str = "test", path: str = "/") -> set[str]:
        """Ask ``count`` times over one connection; give who answered (``503`` where nobody did)."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            found = set()
            for _ in range(count):
                connection.request("GET", path, headers={"Host": host})
                response = connection.getresponse()
                body = response.read().decode()
                found.add(body.strip() if response.status == 200 else str(response.status))
        return found

    def presented(self, name: str, port: int) -> bytes:
        """Return the certificate (DER) that a client is shown which asks for ``name``."""
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
            context.wrap_socket(raw, server_hostname=name) as connection,
        ):
            return connection.getpeercert(binary_form=True) or b""

    @contextmanager
    def held(self, pod: Backend) -> Iterator[socket.socket]:
        """Hold a session that ``pod`` does not answer."""
        pod.delay_s = 600.0
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
            wait_until(lambda: any(head.startswith(b"GET / ") for head in pod.heads), f"{pod.name} has the request")
            yield connection

    def reload(self) -> None:
        """Reload as somebody else would; the worker before is still there, with the connections that it has."""
        self.haproxy.reload()


def address_of(pod: Backend) -> str:
    return f"[{pod.address}]:{pod.port}" if ":" in pod.address else f"{pod.address}:{pod.port}"


def added(pod: Backend, *words: str, backend: str = "be", name: str = "") -> AddServer:
    return AddServer(backend, name or pod.name, address_of(pod), words)
