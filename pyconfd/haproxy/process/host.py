"""Facts about this host, gathered without privileges: addresses, listening sockets, sysctls."""

import os
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from pyconfd.model.listener import canonical
from pyconfd.model.snapshot import HostFacts, ListeningSocket

_LISTEN = 10
"""``TCP_LISTEN``. Source: include/net/tcp_states.h of Linux."""
_COMM = 15
"""Longest name of a process in ``/proc/PID/comm``. Source: proc(5)."""
_CAP_NET_BIND_SERVICE = 10
"""Source: capabilities(7), include/uapi/linux/capability.h."""


def gather(
    *,
    ports: frozenset[int] = frozenset(),
    probe: Iterable[str] = (),
    ignore_pids: frozenset[int] = frozenset(),
) -> HostFacts:
    """Return the facts of this host.

    Who owns a socket is looked up for ``ports`` only, since it means reading the descriptors of every process;
    sockets of ``ignore_pids`` are left out. Each address of ``probe`` counts as present if a socket can be bound to
    it, whatever the interfaces say (local routes make more addresses usable than they list).
    """
    addresses = _interface_addresses()
    addresses |= {address for address in probe if address not in addresses and _can_bind(address)}
    return HostFacts(
        addresses=frozenset(addresses),
        listening=tuple(sorted(_listening(ports, ignore_pids))),
        nonlocal_bind_v4=_sysctl("ipv4/ip_nonlocal_bind") == "1",
        nonlocal_bind_v6=_sysctl("ipv6/ip_nonlocal_bind") == "1",
        ephemeral_ports=_port_range(_sysctl("ipv4/ip_local_port_range")),
        unprivileged_port_start=int(_sysctl("ipv4/ip_unprivileged_port_start") or 1024),
    )


def gather_addresses(probe: Collection[str] = ()) -> HostFacts:
    """Return the facts that presets judge by, without listening sockets; cheap enough for every second.

    Each address of ``probe`` counts as present if a socket can be bound to it, as for :func:`gather`, unless one can be
    bound to any address.
    """
    nonlocal_v4, nonlocal_v6 = (_sysctl(f"{family}/ip_nonlocal_bind") == "1" for family in ("ipv4", "ipv6"))
    addresses = {
        canonical(item.address.partition("%")[0])
        for items in psutil.net_if_addrs().values()
        for item in items
        if item.family in {socket.AF_INET, socket.AF_INET6}
    }
    unknown = {each for each in probe if not (nonlocal_v6 if ":" in each else nonlocal_v4)} - addresses
    return HostFacts(
        addresses=frozenset(addresses | set(filter(_can_bind, unknown))),
        nonlocal_bind_v4=nonlocal_v4,
        nonlocal_bind_v6=nonlocal_v6,
        ephemeral_ports=_port_range(_sysctl("ipv4/ip_local_port_range")),
        unprivileged_port_start=int(_sysctl("ipv4/ip_unprivileged_port_start") or 1024),
    )


def promotes_secondaries(interface: str) -> bool:
    """Return whether the next address of a network becomes the primary one when that one is removed.

    Else the kernel removes all of them with it. Source: Documentation/networking/ip-sysctl.rst of Linux.
    """
    return "1" in {_sysctl(f"ipv4/conf/{name}/promote_secondaries") for name in ("all", interface)}


def has_ipv6() -> bool:
    """Return whether sockets can listen on IPv6, which ``ipv6.disable=1`` on the kernel's command line takes away.

    Where only the addresses are disabled (``net.ipv6.conf.all.disable_ipv6``), ``::`` can still be bound.
    """
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def may_bind_low_ports(pid: int) -> bool | None:
    """Return whether the process ``pid`` holds CAP_NET_BIND_SERVICE; None where that cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_NET_BIND_SERVICE & 1)
    return None


def haproxy_pids(conf: str, binary: str) -> frozenset[int]:
    """Return the masters and workers whose command line loads ``conf``, or the directory that holds it.

    A relative path counts from the directory of the process, which only root and its own user may see, and which is
    another one in a chroot: the master socket knows all of these. Those of containers have files of their own.
    """
    names = {Path(binary).name[:_COMM], "haproxy"}
    found = set()
    for pid in psutil.pids():
        # Names first: to ask psutil for the command line of every process takes 0.2 ms each.
        with suppress(OSError, psutil.Error):
            if Path(f"/proc/{pid}/comm").read_text().rstrip("\n") not in names or _is_in_container(pid):
                continue
            if loads(configuration_files(pid), conf):
                found.add(pid)
    return frozenset(found)


def _is_in_container(pid: int) -> bool:
    """Return whether a process has a PID namespace of its own; everybody may read that, unlike ``/proc/PID/ns``."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(len(line.split()) > 2 for line in status.splitlines() if line.startswith("NSpid:"))


def configuration_files(pid: int) -> tuple[str, ...]:
    """Return the files and directories that the process ``pid`` loads; none if it is no haproxy or gone."""
    try:
        process = psutil.Process(pid)
        named = [path for option, path in _pairs(process.cmdline()) if option == "-f"]
    except psutil.Error:
        return ()
    folder = "/"
    with suppress(psutil.Error):  # only root and its own user may ask
        folder = process.cwd()
    return tuple(str(Path(folder, path)) for path in named)


def loads(paths: Iterable[str], conf: str) -> bool:
    """Return whether one of these arguments of ``-f`` is ``conf``, or the directory that holds it."""
    real, beside = os.path.realpath(conf), os.path.realpath(Path(conf).parent)
    wanted = {real, str(Path(real).parent), beside}
    return any(os.path.realpath(path) in wanted for path in paths)


def _pairs(argv: list[str]) -> Iterator[tuple[str, str]]:
    """Pair each option with every word up to the next one: ``-f`` takes several files after ``--``."""
    option = ""
    for word in argv[1:]:
        if word.startswith("-"):
            option = "-f" if word == "--" else word
        else:
            yield option, word


def _interface_addresses() -> set[str]:
    from pyroute2 import IPRoute  # noqa: PLC0415 - a sixth of the start of commands that ask no kernel
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    found: set[str] = set()
    with suppress(OSError, NetlinkError), IPRoute() as route:
        for message in route.get_addr():
            for name in ("IFA_ADDRESS", "IFA_LOCAL"):
                if value := message.get_attr(name):
                    found.add(canonical(value))
    return found


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _listening(ports: frozenset[int], ignore_pids: frozenset[int]) -> Iterator[ListeningSocket]:
    sockets = list(_from_inet_diag())
    owners = _owners({inode for _, inode in sockets if inode} if ports else set())
    for found, inode in sockets:
        holders = owners.get(inode, {}) if found.port in ports else {}
        if holders.keys() & ignore_pids:
            continue
        owner = next((f"{name} (pid {pid})" for pid, name in sorted(holders.items())), "")
        yield ListeningSocket(found.address, found.port, owner, found.v6only)


def _from_inet_diag() -> Iterator[tuple[ListeningSocket, int]]:
    """Ask the kernel for listening sockets only; /proc/net/tcp would list every connection of a busy balancer."""
    from pyroute2 import DiagSocket  # noqa: PLC0415 - as above
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    try:
        with DiagSocket() as diag:
            diag.bind()
            for family in (socket.AF_INET, socket.AF_INET6):
                for message in diag.get_sock_stats(family=family, states=1 << _LISTEN):
                    v6only = bool(message.get_attr("INET_DIAG_SKV6ONLY"))
                    address = canonical(message["idiag_src"])
                    yield ListeningSocket(address, message["idiag_sport"], "", v6only), message["idiag_inode"]
    except (OSError, NetlinkError):
        yield from _from_proc()


def _from_proc() -> Iterator[tuple[ListeningSocket, int]]:
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError), Path(f"/proc/net/{name}").open() as table:
            next(table, None)
            for line in table:
                fields = line.split()
                if fields[3] == "0A":
                    address, port = fields[1].split(":")
                    yield ListeningSocket(_from_hex(address, family), int(port, 16)), int(fields[9])


def _from_hex(text: str, family: int) -> str:
    """Decode an address of /proc/net/tcp: 32-bit words in the order of the processor."""
    raw = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    return canonical(socket.inet_ntop(family, raw))


def _owners(inodes: set[int]) -> dict[int, dict[int, str]]:
    """Return for each socket the numbers and names of the processes that hold it, as far as they may be seen."""
    found: dict[int, dict[int, str]] = {}
    if not inodes:
        return found
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in psutil.pids():
        with suppress(OSError):
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    inode = wanted.get(os.readlink(descriptor.path))  # noqa: PTH115 - text, not a path
                    if inode:
                        found.setdefault(inode, {})[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
    return found


def _sysctl(name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/sys/net/{name}").read_text().strip()
    return ""


def _port_range(text: str) -> tuple[int, int]:
    words = text.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else HostFacts().ephemeral_ports
