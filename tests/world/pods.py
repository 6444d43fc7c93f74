"""Pods in a process of their own, started and ended while it runs, so that they take no time from what is measured.

``python -m tests.world.pods PORT`` reads ``start ADDRESS...``, ``refuse ADDRESS...`` (no new connections) and
``end ADDRESS...`` (nor old ones), and prints ``ok`` after each; after ``count`` the addresses of those pods that have
answered, and how many requests all of them have.
"""

import subprocess
import sys
from collections.abc import Iterable
from typing import Self

from tests.world.backends import Backends


def main(port: int) -> None:
    """Serve until standard input ends."""
    ended: dict[str, int] = {}
    with Backends(port) as pods:
        for line in sys.stdin:
            what, *addresses = line.split()
            if what == "count":
                counts = ended | pods.counts()
                print(sum(counts.values()), *(address for address, count in counts.items() if count), flush=True)
                continue
            for address in addresses:
                if what == "start":
                    pods.add(address, address)
                elif what == "refuse":
                    pods.stop(address, graceful=True)
                else:
                    ended[address] = pods.pods[address].requests
                    pods.remove(address)
            print("ok", flush=True)


class Pods:
    """Pods named after their addresses; leaving the ``with`` ends them all."""

    def __init__(self, port: int) -> None:
        argv = [sys.executable, "-m", "tests.world.pods", str(port)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _said(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def _do(self, what: str, addresses: Iterable[str]) -> None:
        assert self._said(f"{what} {' '.join(addresses)}") == "ok\n"

    def answered(self) -> tuple[int, set[str]]:
        """Return how many requests were answered until now, and by which pods, those that have ended too."""
        count, *addresses = self._said("count").split()
        return int(count), set(addresses)

    def start(self, *addresses: str) -> None:
        """Start pods; they serve when this returns."""
        self._do("start", addresses)

    def refuse(self, *addresses: str) -> None:
        """Refuse new connections of pods, as one does that is to end."""
        self._do("refuse", addresses)

    def end(self, *addresses: str) -> None:
        """End pods with all their connections."""
        self._do("end", addresses)


if __name__ == "__main__":
    main(int(sys.argv[1]))
