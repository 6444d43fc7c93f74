"""Whether an operator froze all applying: ``paused.json`` in the state directory, so that it outlives a restart."""

import math
from contextlib import suppress
from pathlib import Path

import msgspec

from pyconfd.errors import Problem, TransientError
from pyconfd.model.status import Paused
from pyconfd.system.files import AS_ROOT, problem_of, replace_shared, unlink_shared

FILE_NAME = "paused.json"


class Pause:
    """Written by ``pyconfd pause``, read by the loop at each turn."""

    def __init__(self, state_dir: str) -> None:
        self._path = Path(state_dir) / FILE_NAME

    def read(self, now: float) -> Paused | None:
        """Give the pause that holds at ``now``, None for none.

        A file that cannot be read or understood is a pause all the same: somebody wanted nothing to be applied.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            return Paused(self._written_at(now), reason=f"{self._path} cannot be read: {error.strerror}")
        try:
            paused = msgspec.json.decode(content, type=Paused)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Paused(self._written_at(now), reason=f"{self._path} is damaged")
        return None if paused.until and now >= paused.until else paused

    def begin(self, paused: Paused) -> None:
        """Freeze applying.

        Raises:
            TransientError: the file cannot be written.
        """
        if not math.isfinite(paused.until):
            raise ValueError(paused.until)
        replace_shared(str(self._path), msgspec.json.encode(paused) + b"\n", forbidden=AS_ROOT)

    def end(self) -> None:
        """Let changes through again.

        Raises:
            TransientError: the file cannot be removed.
        """
        try:
            unlink_shared(self._path)
        except OSError as error:
            problem = Problem(str(self._path), problem_of("", error).message, AS_ROOT)
            raise TransientError(problem) from error

    def _written_at(self, now: float) -> float:
        with suppress(OSError):
            return self._path.stat().st_mtime
        return now
