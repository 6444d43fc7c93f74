"""Clients of the balancer: what a user's browser or program would do."""

import http.client
import socket
import ssl
import threading
from collections import Counter

from cryptography import x509


def ask(port: int, host: str, timeout_s: float = 30.0, *, address: str = "127.0.0.1", path: str = "/") -> str:
    """Send one request on a connection of its own; return the pod that answered, or the status code."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Host": host, "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read().decode()
        return body.strip() if answer.status == 200 else str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        return f"failed: {type(error).__name__}"
    finally:
        connection.close()


def ask_tls(port: int, host: str, authority: str, timeout_s: float = 30.0) -> str:
    """Ask over TLS, naming ``host`` (SNI) and verifying that its certificate comes back; as :func:`ask` else."""
    context = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    try:
        plain = socket.create_connection(("127.0.0.1", port), timeout_s)
        connection.sock = context.wrap_socket(plain, server_hostname=host)
        connection.request("GET", "/", headers={"Host": f"{host}:{port}", "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read().decode()
        return body.strip() if answer.status == 200 else str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        return f"failed: {type(error).__name__}"
    finally:
        connection.close()


def ping_redis(port: int) -> str:
    """Send PING; return the reply."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).decode().strip()
    except OSError as error:
        return f"failed: {type(error).__name__}"


class Crowd:
    """Clients that never stop asking; every answer is counted: the pod's name, a status code, or what failed.

    With ``keep_alive`` a connection is used until its end is announced with ``Connection: close``; an end that was not
    announced is a failure, as it is for a client that has just sent a request on it.
    """

    def __init__(
        self,
        port: int,
        host: str = "test",
        clients: int = 2,
        pause_s: float = 0.004,
        *,
        address: str = "127.0.0.1",
        path: str = "/",
        keep_alive: bool = False,
    ) -> None:
        self._port, self._pause_s, self._address, self._path = port, pause_s, address, path
        self._headers = {"Host": host} | ({} if keep_alive else {"Connection": "close"})
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.reused = 0
        """Answers on a connection that had been used before."""
        self.answers: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, self._port, timeout=30)

    def _run(self) -> None:
        connection = self._connection()
        while not self._stop.is_set():
            reused = connection.sock is not None
            answer = self._ask(connection)
            with self._lock:
                self.answers[answer] += 1
                self.reused += reused
            self._stop.wait(self._pause_s)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> str:
        try:
            connection.request("GET", self._path, headers=self._headers)
            answer = connection.getresponse()
            body = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return f"failed: {type(error).__name__}"
        return body.strip() if answer.status == http.client.OK else str(answer.status)

    def seen(self) -> Counter[str]:
        """Return a copy of what was answered so far."""
        with self._lock:
            return Counter(self.answers)

    def stop(self) -> Counter[str]:
        """End; return all answers."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.answers


class _NamedConnection(http.client.HTTPSConnection):
    """Goes to one address, and verifies the certificate of the host."""

    def __init__(self, host: str, address: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(host, timeout=30, context=context)
        self._place, self._tls = address, context

    def connect(self) -> None:
        """Connect and shake hands."""
        plain = socket.create_connection(self._place, 30)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class TlsCrowd(Crowd):
    """The same over TLS: a handshake for each request, or for each connection with ``keep_alive``."""

    def __init__(
        self,
        port: int,
        host: str,
        authority: str,
        clients: int,
        pause_s: float = 0.02,
        *,
        address: str = "127.0.0.1",
        keep_alive: bool = False,
    ) -> None:
        self._host, self._authority = host, authority
        super().__init__(port, host, clients, pause_s, address=address, keep_alive=keep_alive)

    def _connection(self) -> http.client.HTTPConnection:
        context = ssl.create_default_context(cafile=self._authority)
        return _NamedConnection(self._host, (self._address, self._port), context)


def presented_to(port: int, host: str, *, address: str = "127.0.0.1") -> int:
    """Return the serial number of the certificate that a client gets who names ``host``; 0 for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address, port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            return x509.load_der_x509_certificate(wrapped.getpeercert(binary_form=True) or b"").serial_number
    except OSError:
        return 0


def failures(answers: Counter[str]) -> list[str]:
    """Return what was no answer with 200."""
    return [answer for answer in answers if answer.startswith("failed") or answer.isdecimal()]
