"""What this node sees of itself: haproxy's socket, its frontends, what was applied, floating and own addresses."""

import http.client
import json
import math
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pyconfd.dns.activity import ServingFacts, holders_of
from pyconfd.dns.planner import DnsNode
from pyconfd.dns.records import Marker
from pyconfd.errors import Problem, PyconfdError, TransientError, first_line
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.runtime.sockets import NoAnswer, RuntimeSocket
from pyconfd.model.status import Phase, Status
from pyconfd.settings import AddressSource, NameSettings, Settings, name_of, names_of
from pyconfd.status import document
from pyconfd.status.document import FILE_FRESH_S, FILE_NAME, STALE_AFTER_S, sync_age_s
from pyconfd.vip.output import REPORT_FILE

log = structlog.get_logger(__name__)

TIMEOUT_S = 2.0
MOST_AT_ONCE = 32
"""So many nodes are asked at once whether they live."""
_RTN_LOCAL = 2
"""Source: linux/rtnetlink.h."""

METADATA_URL = "http://169.254.169.254"
TOKEN_S = 21600
"""Source: Amazon EC2 User Guide, IMDSv2: a token lasts six hours at the most."""
_UNAUTHORISED, _NOT_FOUND, _OK = 401, 404, 200
_SCOPE_GLOBAL = 0
_DEPRECATED, _TENTATIVE, _TEMPORARY = 0x20, 0x40, 0x01
"""Source: linux/if_addr.h; TEMPORARY is so for IPv6 only, for IPv4 it says SECONDARY."""


class NodeReader:
    """Reads the facts of one node; nothing here raises: what cannot be read is not so."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket: RuntimeSocket | None = None
        self._applied = False
        self._vips = frozenset(name.vip for name in (*names_of(settings.dns), name_of(settings.dns, ""))) - {""}
        self._seen = (0, 0)
        self._status: Status | None = None

    def facts(self) -> ServingFacts:
        """Collect the facts once; it takes some seconds at most."""
        dns = self._settings.dns
        holders, drained = self._holders()
        return ServingFacts(
            haproxy_answers=self._haproxy_answers(),
            applied=self._was_applied(),
            frontends_silent=tuple(url for url in dns.frontends if not answers(url)),
            drained=drained,
            not_holder={vip: holders[vip] if vip in holders else _away(vip) for vip in self._vips},
        )

    def _holders(self) -> tuple[Mapping[str, str], bool]:
        """Read the report of pyconfd-vip; only where the settings have it: another one's may be left behind."""
        vip = self._settings.vip
        if not vip.interface:
            return {}, False
        try:
            found = json.loads(Path(vip.runtime_dir, REPORT_FILE).read_bytes())
        except (OSError, ValueError):
            return {}, False
        return holders_of(found, time.time())

    def annotated(self) -> tuple[tuple[str, ...] | None, bool]:
        """Return what :func:`annotated_names` finds in the daemon's status file."""
        status = self._daemon_status()
        return annotated_names(status, time.time()) if status else (None, False)

    def _daemon_status(self) -> Status | None:
        """Return the daemon's status, parsed only if its file is another one; it may be long gone."""
        path = Path(self._settings.runtime_dir) / FILE_NAME
        try:
            seen = path.stat().st_mtime_ns, path.stat().st_ino
            if seen != self._seen:
                self._status, self._seen = document.decode(path.read_bytes()), seen
        except (OSError, PyconfdError):
            return None
        return self._status

    def _was_applied(self) -> bool:
        """Return whether a configuration was ever applied here, by the daemon's status or the history on disk."""
        if not self._applied:
            status, settings = self._daemon_status(), self._settings
            self._applied = status is not None and status.generation is not None
            with suppress(OSError, PyconfdError):
                history = GenerationStore(settings.state_dir, settings.apply.keep_generations)
                self._applied = self._applied or history.last_good() is not None
        return self._applied

    def close(self) -> None:
        """Close the connection to haproxy."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def _haproxy_answers(self) -> bool:
        # The path is looked for only where none answers: haproxy.cfg may be long, and this runs each second.
        self._socket = self._socket or RuntimeSocket(self._socket_path(), timeout_s=TIMEOUT_S)
        try:
            worker, _ = self._socket.ask(())
        except NoAnswer:
            self.close()
            return False
        return not worker.stopping

    def _socket_path(self) -> str:
        haproxy = self._settings.haproxy
        if haproxy.runtime_socket:
            return haproxy.runtime_socket
        with suppress(OSError):
            return next(iter(stats_sockets(Path(haproxy.conf).read_text(errors="replace"))), "/nonexistent")
        return "/nonexistent"


def annotated_names(status: Status, now: float) -> tuple[tuple[str, ...] | None, bool]:
    """Return the names of a status, None where it has none yet, and whether it can be relied on.

    It can while the daemon lives, and its data is new and not held back, as ``pyconfd status`` has it.
    """
    fresh = abs(now - status.now) < FILE_FRESH_S and sync_age_s(status, now) < STALE_AFTER_S
    well = status.phase is Phase.SERVING and not status.hold_id and status.hold is None
    return status.dns_names, fresh and well


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
    """Return whether a connection is accepted."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_S).close()
    except OSError:
        return False
    return True


def nodes_that_accept(markers: Iterable[Marker], port: int) -> frozenset[str]:
    """Return the nodes that accept a connection at one of their addresses; many are asked at once."""
    targets = [(marker.node, address) for marker in markers for address in marker.addresses]
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        accepted = pool.map(lambda target: connects(target[1], port), targets)
        return frozenset(node for (node, _), accepts in zip(targets, accepted, strict=True) if accepts)


def _away(address: str) -> str:
    """Return why this node is not the holder where pyconfd-vip does not say; "" where it is."""
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


class InstanceMetadata:
    """The instance metadata service, version 2: each request carries a token; never through a proxy.

    ``timeout_s`` bounds each wait for a part of an answer. It is short: the service answers in milliseconds, but with a
    hop limit of 1 it never answers in a container.
    """

    def __init__(self, url: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA_URL)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._timeout_s = timeout_s
        self._token = ""

    def value(self, key: str) -> str:
        """Return ``/latest/meta-data/KEY``, "" where this instance has none.

        Raises:
            TransientError: the service does not answer as it should.
        """
        for _ in range(2):
            self._token = self._token or self._new_token()
            headers = {"X-aws-ec2-metadata-token": self._token}
            status, text = self._ask("GET", f"/latest/meta-data/{key}", headers)
            if status == _OK:
                return text.strip()
            if status == _NOT_FOUND:
                return ""
            if status != _UNAUTHORISED:
                break
            self._token = ""  # it has expired
        raise TransientError(self._problem(f"answers {status} to {key}"))

    def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        status, text = self._ask("PUT", "/latest/api/token", headers)
        if status != _OK or not text:
            raise TransientError(self._problem(f"gives no token ({status})"))
        return text

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(10_000).decode("latin-1")
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(self._problem(f"does not answer: {error}")) from error
        finally:
            connection.close()

    def _problem(self, what: str) -> Problem:
        remedy = "allow IMDSv2 on the instance (in a container with a hop limit of 2), or set dns.address_source"
        return Problem(f"instance metadata at {self._host}", what, remedy)


def interface_addresses(name: str, without: Collection[str] = ()) -> tuple[str, str]:
    """Return the first global IPv4 and IPv6 address of an interface, "" for none; those of ``without`` are left out.

    The kernel lists the newest IPv6 address first: the order does not tell a floating one from the node's own.

    Raises:
        TransientError: there is no such interface.
    """
    found = {4: "", 6: ""}
    try:
        with IPRoute() as routes:
            index = routes.link_lookup(ifname=name)
            items = list(routes.get_addr(index=index[0])) if index else []
    except (OSError, NetlinkError) as error:
        raise TransientError(Problem(f"interface {name}", str(error))) from error
    if not index:
        remedy = "set dns.interface to one of: ip -brief link"
        raise TransientError(Problem(f"interface {name}", "there is none of this name", remedy))
    for item in items:
        attributes = dict(item["attrs"])
        address = ip_address(attributes.get("IFA_LOCAL") or attributes["IFA_ADDRESS"])
        flags = attributes.get("IFA_FLAGS", item["flags"])
        unusable = _DEPRECATED | _TENTATIVE | (_TEMPORARY if address.version == 6 else 0)
        if item["scope"] == _SCOPE_GLOBAL and not flags & unusable and str(address) not in without:
            found[address.version] = found[address.version] or str(address)
    return found[4], found[6]


class NodeAddresses:
    """The own addresses of this node, from where the settings say; ``floating`` ones are no node's own."""

    def __init__(
        self,
        settings: NameSettings,
        node: str,
        metadata: InstanceMetadata | None = None,
        floating: Collection[str] = (),
    ) -> None:
        self._settings = settings
        self._floating = frozenset({*floating, settings.vip})
        self._node = node
        self._metadata = metadata or InstanceMetadata()
        self._known: DnsNode | None = None
        self._read_at = -math.inf
        self.problem = ""

    def read(self) -> DnsNode:
        """Return the node.

        Raises:
            TransientError: the source does not answer, or has no address.
        """
        settings, metadata = self._settings, self._metadata
        match settings.address_source:
            case AddressSource.FIXED:
                v4, v6 = settings.address, settings.address6
            case AddressSource.INTERFACE:
                v4, v6 = interface_addresses(settings.interface, self._floating)
            case AddressSource.IMDS_PUBLIC:
                v4, v6 = metadata.value("public-ipv4"), metadata.value("ipv6")
            case AddressSource.IMDS_PRIVATE:
                v4, v6 = metadata.value("local-ipv4"), metadata.value("ipv6")
        if not (v4 or v6):
            message = f"{settings.address_source} gives no address for this node"
            raise TransientError(Problem("dns.address_source", message, "docs/route53.md lists the sources"))
        return DnsNode(self._node, v4, v6)

    def known(self, now: float, every_s: float) -> DnsNode | None:
        """Return the node, read again after ``every_s``; the last known where the source is silent, None before.

        ``now`` is monotonic.
        """
        if now - self._read_at < (every_s if self._known else 1.0):
            return self._known
        self._read_at = now
        try:
            self._known = self.read()
        except TransientError as error:
            problem = first_line(error.problems)
            if problem != self.problem:
                log.warning("address.unknown", problem=problem)
            self.problem = problem
        else:
            self.problem = ""
        return self._known
