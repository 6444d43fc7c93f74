"""A client in a process of its own, which asks without a pause and says when another pod answers.

A line on standard output is the time (``time.perf_counter``, which all processes of a machine share) and the answer.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Self

from tests.bench.serving import Client

PATIENCE_S = 30.0


class Asking:
    """The process, and what it says."""

    def __init__(self, port: int, host: str) -> None:
        argv = [sys.executable, "-m", "tests.bench.asking", str(port), host]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.saw()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=10)

    def saw(self) -> tuple[float, str]:
        """Return when the answer changed, and to what."""
        assert self._process.stdout is not None
        at, _, answer = self._process.stdout.readline().partition(" ")
        return float(at), answer.strip()

    def timed(self, pod: str, change: Callable[[], object]) -> float:
        """Return the seconds from the start of ``change`` to the first answer by ``pod``."""
        began = time.perf_counter()
        change()
        while True:
            at, answer = self.saw()
            if answer == pod:
                return at - began
            if time.perf_counter() - began > PATIENCE_S:
                raise AssertionError(f"{pod} does not answer, but {answer}")


def main() -> None:
    """Ask for ever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("host")
    given = parser.parse_args()
    client, last = Client(given.port, given.host), b""
    while True:
        try:
            answer = client.ask().rpartition(b"\r\n\r\n")[2].strip()
        except OSError:
            # A reload ends kept connections, and for a moment some that are new.
            client.close()
            client = Client(given.port, given.host)
            continue
        if answer != last:
            last = answer
            sys.stdout.write(f"{time.perf_counter()!r} {answer.decode()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
