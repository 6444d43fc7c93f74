"""What operators let through, in files that the daemon and the commands share."""

import os
from contextlib import suppress
from pathlib import Path


class Holds:
    """What operators let through: one empty file for each hold, named by its id."""

    def __init__(self, runtime_dir: str) -> None:
        self._folder = Path(runtime_dir) / "allowed"

    def prepare(self) -> None:
        """Make the folder, so that it is the daemon's own: what root puts there can then be seen and forgotten."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o770, parents=True, exist_ok=True)

    def allow(self, hold_id: str) -> None:
        """Let this hold through; raises OSError."""
        # Others of the group may write there: no link of theirs is followed by a root who allows something.
        os.close(os.open(self._folder / hold_id, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))

    def allowed(self) -> frozenset[str]:
        """Return the holds that were let through."""
        try:
            return frozenset(entry.name for entry in self._folder.iterdir())
        except OSError:
            return frozenset()

    def forget(self) -> None:
        """Take all permissions back: each is for one change."""
        for hold_id in self.allowed():
            with suppress(OSError):
                (self._folder / hold_id).unlink()
