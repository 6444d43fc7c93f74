"""Where a node's own address comes from: settings, instance metadata (IMDSv2), or a network interface."""

import http.client
import os
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pyconfd.dns.view import Node
from pyconfd.errors import Problem, TransientError
from pyconfd.settings import AddressSource, NameSettings

METADATA_URL = "http://169.254.169.254"
TOKEN_S = 21600
"""Source: Amazon EC2 User Guide, IMDSv2: a token lasts six hours at the most."""
TIMEOUT_S = 2.0
"""The service answers in milliseconds, and a hop limit of 1 lets it be silent: to wait long is in vain."""
_PUBLIC = ("public-ipv4", "ipv6")
_PRIVATE = ("local-ipv4", "ipv6")
_UNAUTHORISED, _NOT_FOUND, _OK = 401, 404, 200
_SCOPE_GLOBAL = 0
_DEPRECATED, _TENTATIVE, _TEMPORARY = 0x20, 0x40, 0x01
"""Source: linux/if_addr.h; TEMPORARY is so for IPv6 only, for IPv4 it says SECONDARY."""


class Metadata:
    """The instance metadata service, version 2: each question carries a token; never through a proxy.

    ``timeout_s`` bounds each wait for a part of an answer.
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

    The kernel lists the newest IPv6 address first: with a floating one the order alone says nothing.

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
        raise TransientError(Problem(f"interface {name}", "there is none of this name", "mend dns.interface"))
    for item in items:
        attributes = dict(item["attrs"])
        address = ip_address(attributes.get("IFA_LOCAL") or attributes["IFA_ADDRESS"])
        flags = attributes.get("IFA_FLAGS", item["flags"])
        unusable = _DEPRECATED | _TENTATIVE | (_TEMPORARY if address.version == 6 else 0)
        if item["scope"] == _SCOPE_GLOBAL and not flags & unusable and str(address) not in without:
            found[address.version] = found[address.version] or str(address)
    return found[4], found[6]


class Addresses:
    """Gives this node with its addresses, as the settings say where to find them; ``floating`` are nobody's own."""

    def __init__(
        self, settings: NameSettings, node: str, metadata: Metadata | None = None, floating: Collection[str] = ()
    ) -> None:
        self._settings = settings
        self._floating = frozenset({*floating, settings.vip})
        self._node = node
        self._metadata = metadata or Metadata()

    def read(self) -> Node:
        """Return the node.

        Raises:
            TransientError: the source does not answer, or has no address.
        """
        v4, v6 = self._pair()
        if not (v4 or v6):
            message = f"{self._settings.address_source} gives no address for this node"
            raise TransientError(Problem("dns.address_source", message, "docs/route53.md lists the sources"))
        return Node(self._node, v4, v6)

    def _pair(self) -> tuple[str, str]:
        settings = self._settings
        match settings.address_source:
            case AddressSource.FIXED:
                return settings.address, settings.address6
            case AddressSource.INTERFACE:
                return interface_addresses(settings.interface, self._floating)
            case AddressSource.IMDS_PUBLIC:
                keys = _PUBLIC
            case AddressSource.IMDS_PRIVATE:
                keys = _PRIVATE
        return self._metadata.value(keys[0]), self._metadata.value(keys[1])
