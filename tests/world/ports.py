"""Ports that are free and that the kernel gives to nobody else."""

import random
import socket
from pathlib import Path


def service_port(*addresses: str) -> int:
    """Give a port below the ephemeral ones that was free a moment ago on all of ``addresses`` (default: loopback)."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chooser = random.Random()
    for _ in range(1000):
        port = chooser.randrange(12000, max(first_ephemeral, 12001))
        try:
            for address in addresses or ("127.0.0.1",):
                with socket.socket() as probe:
                    probe.bind((address, port))
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")
