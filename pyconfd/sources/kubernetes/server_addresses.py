"""The addresses of API servers, which are no endpoints: those in their URLs, and those behind the names there."""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

EVERY_S = 60.0
FIRST_WAIT_S = 2.0
"""How long the first reading waits for DNS: a resolver that does not answer holds nothing up for longer."""

Resolve = Callable[[str], Iterable[str]]
"""Returns the addresses of a name; raises OSError."""


def resolve(name: str) -> Iterable[str]:
    """Ask the system's resolver."""
    return {str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}


class ServerAddresses:
    """Looks names up in a thread of its own, each ``EVERY_S``; a name that is not found keeps its last addresses."""

    def __init__(
        self, urls: Iterable[str], *, look_up: Resolve = resolve, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        hosts = dict.fromkeys(host for url in urls if (host := urlsplit(url).hostname))
        literal = {host: _address(host) for host in hosts}
        self._fixed = frozenset(filter(None, literal.values()))
        self._names = tuple(host for host, address in literal.items() if not address)
        self._look_up, self._monotonic = look_up, monotonic
        self._found: dict[str, frozenset[str]] = {}
        self._thread: threading.Thread | None = None
        self._due = monotonic()

    def read(self) -> frozenset[str]:
        """Return the addresses that are known now."""
        if self._names and self._monotonic() >= self._due and not (self._thread and self._thread.is_alive()):
            first = self._thread is None
            self._due = self._monotonic() + EVERY_S
            self._thread = threading.Thread(target=self._refresh, name="api-server-names", daemon=True)
            self._thread.start()
            if first:
                self._thread.join(FIRST_WAIT_S)
        return self._fixed.union(*dict(self._found).values())

    def _refresh(self) -> None:
        for name in self._names:
            try:
                found = frozenset(filter(None, map(_address, self._look_up(name))))
            except OSError:  # UnicodeError of a name that is none is refused with the settings
                continue
            if found:
                self._found[name] = found


def _address(text: str) -> str:
    """Return an address as endpoints are compared with it, "" where it is none."""
    try:
        return str(ip_address(text.partition("%")[0]))
    except ValueError:
        return ""
