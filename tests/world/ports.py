"""Ports that are free and that the kernel, or another process of any test run on this machine, gives to nobody else."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 64
_chance = random.SystemRandom()  # a seeded generator would give parallel test runs the same ports
_blocks: dict[int, socket.socket] = {}
"""Those of this process: each is claimed by a name that Linux gives to one socket, for as long as that is open."""
_handed_out = {30_089}
"""Begun with the one that an example of a predecessor gives, which its test has to take."""


def candidates(first: int, end: int) -> Iterator[int]:
    """Return ports from ``first`` on and below ``end``, none twice in this process, in an order of chance.

    None is another process's, until there is no other block left: then any that this one has not had.
    """
    while True:
        ours = _fresh(port for block in _blocks for port in range(block * _BLOCK, (block + 1) * _BLOCK))
        yield from (port for port in ours if first <= port < end)
        if not _claim(first, end):
            yield from _fresh(range(first, end))
            return


def _fresh(ports: Iterator[int] | range) -> list[int]:
    found = [port for port in ports if port not in _handed_out]
    _chance.shuffle(found)
    return found


def _claim(first: int, end: int) -> bool:
    """Claim one more block for this process; return False where none is left."""
    for block in _chance.sample(range(first // _BLOCK, end // _BLOCK), end // _BLOCK - first // _BLOCK):
        if block in _blocks:
            continue
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0pyconfd-tests/ports/{block}")
        except OSError:
            claim.close()
            continue
        _blocks[block] = claim
        return True
    return False


def free(first: int, end: int, *addresses: str) -> int:
    """Return a port between these that was free a moment ago on all of ``addresses``, never twice in this process."""
    for port in candidates(first, end):
        try:
            for address in addresses:
                with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
                    probe.bind((address, port))
        except OSError:
            continue
        _handed_out.add(port)
        return port
    raise AssertionError("no port is free")


def service_port(*addresses: str) -> int:
    """Return a port below the ephemeral ones that was free a moment ago on all of ``addresses`` (default: loopback)."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return free(12_000, max(first_ephemeral, 12_000 + 2 * _BLOCK), *(addresses or ("127.0.0.1",)))
