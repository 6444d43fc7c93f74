"""The stand-ins for pods that ``pyconfd try`` has, as a program of their own too.

``python -m tests.world.backends --port 8080 127.1.0.1 127.1.0.2`` serves until SIGTERM.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from pyconfd.trying.stand_ins import StandIn as Backend
from pyconfd.trying.stand_ins import StandIns as Backends

__all__ = ["Backend", "Backends", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; each pod is named after its address."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.world.backends", description="HTTP servers that name themselves."
    )
    parser.add_argument("--port", type=int, default=0, help="0: any; all addresses share it")
    parser.add_argument("addresses", nargs="+", help="loopback addresses, each optionally as NAME=ADDRESS")
    options = parser.parse_args(arguments)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with Backends(options.port) as pods:
        for entry in options.addresses:
            name, _, address = entry.rpartition("=")
            pod = pods.add(name or address, address)
            sys.stdout.write(f"{pod.name} {pod.address} {pod.port}\n")
        sys.stdout.flush()
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
