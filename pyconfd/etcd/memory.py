"""The last generation that was published or taken here, on disk: the number that etcd may not fall behind."""

import json
import os
from contextlib import suppress
from pathlib import Path

from pyconfd.errors import Problem, TransientError


class Memory:
    """One small file in ``state_dir``, for one prefix of keys: under another one nothing is remembered."""

    def __init__(self, state_dir: str, name: str, prefix: str) -> None:
        self._path = Path(state_dir) / f"{name}.json"
        self._prefix = prefix

    def load(self) -> tuple[int, str]:
        """Return number and SHA-256; (0, "") where nothing is remembered."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            document = json.loads(self._path.read_text("utf-8"))
            if document["prefix"] == self._prefix:
                return int(document["number"]), str(document["sha256"])
        return 0, ""

    def save(self, number: int, digest: str) -> None:
        """Remember.

        Raises:
            TransientError: the file cannot be written.
        """
        if self.load() == (number, digest):
            return
        text = json.dumps({"prefix": self._prefix, "number": number, "sha256": digest}) + "\n"
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            with beside.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise TransientError(Problem(str(self._path), f"cannot be written: {error.strerror}")) from error
