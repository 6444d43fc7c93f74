"""What this node sees of itself: haproxy's socket, what was applied, its own frontends, the floating address."""

import errno
import http.client
import json
import os
import selectors
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pyconfd.dns.activity import Facts
from pyconfd.dns.asked import Told
from pyconfd.dns.floating import HookState, hook_state
from pyconfd.dns.ownership import Marker
from pyconfd.errors import PyconfdError
from pyconfd.haproxy.generations import GenerationStore
from pyconfd.haproxy.master_socket import NoAnswer
from pyconfd.haproxy.runtime_socket import RuntimeSocket
from pyconfd.haproxy.sections import stats_sockets
from pyconfd.model.status import Phase, Status
from pyconfd.settings import Settings, name_of, names_of
from pyconfd.status import document
from pyconfd.status.document import FILE_FRESH_S, FILE_NAME, STALE_AFTER_S, sync_age_s

TIMEOUT_S = 2.0
HOOK_REPORT = "status.json"
"""The name of a file in the hook's runtime directory."""
_RTN_LOCAL = 2
"""Source: linux/rtnetlink.h."""


class Reader:
    """Reads the facts of one node; nothing here raises: what cannot be read is not so."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket: RuntimeSocket | None = None
        self._applied = False
        self._vips = frozenset(name.vip for name in (*names_of(settings.dns), name_of(settings.dns, ""))) - {""}
        self._seen = (0, 0)
        self._status = Status(0.0, "", 0, 0.0, 0.0)

    def facts(self) -> Facts:
        """Look once; takes some seconds at the most."""
        dns = self._settings.dns
        self._applied = self._applied or applied(self._settings)  # what was applied once was
        hook = self._hook()
        return Facts(
            haproxy_answers=self._haproxy_answers(),
            applied=self._applied,
            frontends_silent=tuple(url for url in dns.frontends if not answers(url)),
            drained=hook.drained,
            astray={vip: hook.holding[vip] if vip in hook.holding else _astray(vip) for vip in self._vips},
        )

    def _hook(self) -> HookState:
        """Return what the hook says, nothing where the settings have none: what one left behind once is no word."""
        vip = self._settings.vip
        if not vip.interface:
            return HookState({})
        try:
            document = json.loads(Path(vip.runtime_dir, HOOK_REPORT).read_bytes())
        except (OSError, ValueError):
            return HookState({})
        return hook_state(document, time.time())

    def told(self) -> Told:
        """Return what the daemon says that the cluster asks for; read only where its file is another one."""
        path = Path(self._settings.runtime_dir) / FILE_NAME
        try:
            seen = path.stat().st_mtime_ns, path.stat().st_ino
            if seen != self._seen:
                self._status = document.decode(path.read_bytes())
                self._seen = seen
        except (OSError, PyconfdError):
            return Told()
        return told_by(self._status, time.time())

    def close(self) -> None:
        """Close the connection to haproxy."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def _haproxy_answers(self) -> bool:
        path = self._path()
        if self._socket is None or self._socket.path != path:
            self.close()
            self._socket = RuntimeSocket(path, timeout_s=TIMEOUT_S)
        try:
            worker, _ = self._socket.ask(())
        except NoAnswer:
            self.close()
            return False
        return not worker.stopping

    def _path(self) -> str:
        haproxy = self._settings.haproxy
        text = ""
        if not haproxy.runtime_socket:
            with suppress(OSError):
                text = Path(haproxy.conf).read_text(errors="replace")
        return next(iter((*filter(None, [haproxy.runtime_socket]), *stats_sockets(text))), "/nonexistent")


def told_by(status: Status, now: float) -> Told:
    """Return the names of a status; sure where the daemon lives, and its data is new and not held back.

    Source: the rules of ``pyconfd status``.
    """
    fresh = abs(now - status.now) < FILE_FRESH_S and sync_age_s(status, now) < STALE_AFTER_S
    well = status.phase is Phase.SERVING and not status.hold_id and status.hold is None
    return Told(status.dns_names, sure=fresh and well)


def applied(settings: Settings) -> bool:
    """Return whether a configuration was ever applied here: by the daemon's status, else by the history on disk."""
    with suppress(OSError, PyconfdError):
        status = document.decode((Path(settings.runtime_dir) / FILE_NAME).read_bytes())
        if status.generation is not None:
            return True
    with suppress(OSError, PyconfdError):
        return GenerationStore(settings.state_dir, settings.apply.keep_generations).last_good() is not None
    return False


def answers(url: str) -> bool:
    """Return whether a frontend answers: any reply to ``http://``, a connection to ``tcp://``.

    A status of 503 counts: backends that are down are down for all nodes.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    if parts.scheme == "tcp":
        return connects(host, port)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request("GET", path, headers={"User-Agent": "pyconfd-dns", "Connection": "close"})
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def connects(host: str, port: int) -> bool:
    """Return whether somebody accepts a connection."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_S).close()
    except OSError:
        return False
    return True


def nodes_that_accept(markers: Iterable[Marker], port: int) -> frozenset[str]:
    """Return the nodes that accept a connection at one of their addresses; all are asked at once."""
    asked = [(marker.node, address) for marker in markers for address in marker.addresses]
    found = set()
    with selectors.DefaultSelector() as selector, ExitStack() as sockets:
        for node, address in asked:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with suppress(OSError):
                asking = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                if asking.connect_ex((address, port)) in {0, errno.EINPROGRESS}:
                    selector.register(asking, selectors.EVENT_WRITE, (asking, node))
        deadline = time.monotonic() + TIMEOUT_S
        while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                asking, node = key.data
                selector.unregister(asking)
                if not asking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    found.add(node)
    return frozenset(found)


def _astray(address: str) -> str:
    """Return why this node does not count as the holder where no hook tells; "" where it does."""
    return "" if holds(address) else f"the floating address {address} is elsewhere"


def holds(address: str) -> bool:
    """Return whether an address is on this host: one question to the routing table, however many there are."""
    try:
        with IPRoute() as routes:
            found = tuple(routes.route("get", dst=address))
    except (OSError, NetlinkError):
        return False
    return any(route["type"] == _RTN_LOCAL for route in found)


def host_name() -> str:
    """Return the name of this host without its domain."""
    return os.uname().nodename.partition(".")[0]
