"""What a target's balancer was last told to load; survives restarts, so that a restart of pyconfd changes nothing."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pyconfd.model.context import Census
from pyconfd.system.state_file import StateFile


@dataclass(frozen=True, slots=True)
class Applied:
    """``digest`` (SHA-256) of the file, the date in it, when (seconds since the epoch), and for how many endpoints."""

    digest: str
    curdate: str
    applied_at: float
    census: Census

    def with_census(self, census: Census) -> Self:
        """Return the same for another number of endpoints."""
        return replace(self, census=census)


class Memory:
    """One small file for each target. One that cannot be read counts as absent: the balancer is told once more."""

    def __init__(self, state_dir: str, name: str) -> None:
        self._file = StateFile(Path(state_dir) / "targets" / f"{name}.json", Applied)
        self._applied: Applied | None = None
        self._was_read = False

    def applied(self) -> Applied | None:
        """Return what was remembered last."""
        if not self._was_read:
            self._was_read = True
            self._applied = self._file.load()
        return self._applied

    def remember(self, applied: Applied) -> None:
        """Keep it; a failure is logged, and the balancer serves all the same."""
        self._applied, self._was_read = applied, True
        self._file.save(applied)
