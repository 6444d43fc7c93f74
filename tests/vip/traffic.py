"""The clients of a bed as a test sees them."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.vip.network import wait_for

_CLIENT = Path(__file__).parent / "client.py"


class Traffic:
    """``client.py`` in a namespace: it runs while the ``with`` does, and :meth:`finish` says what came of it."""

    def __init__(self, space: str, host: str, limit_s: float) -> None:
        argv = ["ip", "netns", "exec", space, sys.executable, str(_CLIENT), host, str(limit_s)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._last: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = json.loads(line)

    def until_answered(self, who: str, *, new: int = 20, kept: int = 4) -> None:
        """Wait for so many further answers, and for ``who`` as the one that gives them."""
        wait_for("the client", lambda: "who" in self._last)
        before = self._last
        try:
            wait_for(
                f"answers from {who}",
                lambda: (
                    self._last["who"] == who
                    and self._last["new"] >= before["new"] + new
                    and self._last["kept"] >= before["kept"] + kept
                ),
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {before} and then {self._last}") from error

    def finish(self) -> dict[str, dict[str, Any]]:
        """Stop asking; give what came back to ``new`` and to ``kept`` connections."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._reader.join(10)
        return self._last
