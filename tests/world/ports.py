"""Ports that are free and that the kernel, or another process of the same test run, gives to nobody else."""

import os
import random
import socket
from pathlib import Path

_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_NUMBER = int("".join(filter(str.isdigit, os.environ.get("PYTEST_XDIST_WORKER", ""))) or 0) % _PROCESSES
_handed_out = {30_089}
"""Begun with the one that an example of a predecessor gives, which its test has to take."""


def is_ours(port: int) -> bool:
    """Say whether this process may take a port: each worker of a parallel test run has its own share."""
    return port % _PROCESSES == _NUMBER and port not in _handed_out


def taken(port: int) -> int:
    """Give ``port`` back, which this process will not hand out again."""
    _handed_out.add(port)
    return port


def service_port(*addresses: str) -> int:
    """Give a port below the ephemeral ones that was free a moment ago on all of ``addresses`` (default: loopback)."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chooser = random.Random()
    for _ in range(1000 * _PROCESSES):
        port = chooser.randrange(12000, max(first_ephemeral, 12000 + _PROCESSES))
        if not is_ours(port):
            continue
        try:
            for address in addresses or ("127.0.0.1",):
                with socket.socket() as probe:
                    probe.bind((address, port))
        except OSError:
            continue
        return taken(port)
    raise AssertionError("no port is free")
