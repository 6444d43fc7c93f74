"""Whether an operator paused applying: ``paused.json`` in the state directory, so that it survives a restart."""

import math
from contextlib import suppress
from pathlib import Path

from pyconfd.errors import TransientError
from pyconfd.model.status import Paused
from pyconfd.system.files import AS_ROOT
from pyconfd.system.state_file import StateFile

FILE_NAME = "paused.json"


class Pause:
    """Written by ``pyconfd pause``, read by the loop at each turn."""

    def __init__(self, state_dir: str) -> None:
        self._file = StateFile(Path(state_dir) / FILE_NAME, Paused, forbidden=AS_ROOT)

    def read(self, now: float) -> Paused | None:
        """Return the pause that holds at ``now``, None for none.

        A file that cannot be read or parsed is a pause all the same: an operator wanted nothing to be applied.
        """
        try:
            paused = self._file.read()
        except TransientError as error:
            problem = error.problems[0]
            return Paused(self._written_at(now), reason=f"{problem.place} {problem.message}")
        return None if paused is None or (paused.until and now >= paused.until) else paused

    def begin(self, paused: Paused) -> None:
        """Pause applying.

        Raises:
            TransientError: the file cannot be written.
        """
        if not math.isfinite(paused.until):
            raise ValueError(paused.until)
        self._file.write(paused)

    def end(self) -> None:
        """Apply changes again.

        Raises:
            TransientError: the file cannot be removed.
        """
        self._file.remove()

    def _written_at(self, now: float) -> float:
        with suppress(OSError):
            return self._file.path.stat().st_mtime
        return now
