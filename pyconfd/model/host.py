"""Facts about the machine that pyconfd runs on; an adapter gathers them, pure code judges by them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyconfd.model.listener import Listener


@dataclass(frozen=True, slots=True, order=True)
class ListeningSocket:
    """A TCP socket in state LISTEN.

    ``address`` is an IP address ("0.0.0.0" or "::" for any); ``owner`` is the process name and number where they may
    be seen, else "". A socket on "::" takes IPv4 as well unless it is ``v6only``.
    """

    address: str
    port: int
    owner: str = ""
    v6only: bool = False

    @property
    def listener(self) -> Listener:
        """Address and port."""
        return Listener.at(self.address, self.port, v6only=self.v6only)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What pure code may know of the host.

    ``addresses`` are those of the interfaces, without prefix length or zone; ``ephemeral_ports`` is the inclusive
    range of ``net.ipv4.ip_local_port_range``; the ``nonlocal_bind`` flags are the sysctls of that name;
    ``unprivileged_port_start`` is the first port that needs no capability. ``certificates`` has the path of each file
    below the directories of certificates that the settings name, with "" or what is wrong with it; it is None where
    that is not known (nobody asked, or it may not be read): then nothing can be said to be missing.
    """

    addresses: frozenset[str] = frozenset()
    listening: tuple[ListeningSocket, ...] = ()
    nonlocal_bind_v4: bool = False
    nonlocal_bind_v6: bool = False
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    unprivileged_port_start: int = 1024
    certificates: Mapping[str, str] | None = None

    @property
    def known(self) -> bool:
        """False for facts that nobody gathered: a host has at least its loopback address."""
        return bool(self.addresses)
