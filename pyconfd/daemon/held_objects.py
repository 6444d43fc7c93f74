"""What removal protection holds, in one file of the state directory, so that it is still held after a restart."""

from pathlib import Path

from pyconfd.guard.saved import Saved, plain, whole
from pyconfd.system.state_file import StateFile

FILE = "held.json"


class HeldObjects:
    """A file in the state directory, none where nothing is held."""

    def __init__(self, state_dir: str) -> None:
        # Only for this user: a pod's environment may hold a password.
        self._file = StateFile(Path(state_dir) / FILE, Saved, mode=0o600, enc_hook=plain, dec_hook=whole)

    def load(self) -> Saved | None:
        """Return what was held; what cannot be read counts as nothing."""
        return self._file.load()

    def save(self, saved: Saved | None) -> None:
        """Remember just this.

        Raises:
            TransientError: the file cannot be written, or removed.
        """
        if saved is None:
            self._file.remove()
        else:
            self._file.write(saved)
