"""What the guard holds, in one file of the state directory, so that it is still held after a restart."""

from pathlib import Path

import msgspec
import structlog

from pyconfd.errors import TransientError
from pyconfd.guard.saved import Saved, decode, encode
from pyconfd.system.files import Installation, NewFile, problem_of

log = structlog.get_logger(__name__)

FILE = "held.json"
_MODE = 0o600
"""A pod's environment may hold a password."""


class HeldObjects:
    """One file, replaced at once or not at all; none where nothing is held. What cannot be read counts as nothing."""

    def __init__(self, state_dir: str) -> None:
        self._path = Path(state_dir) / FILE

    def load(self) -> Saved | None:
        """Give what was held."""
        try:
            return decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("hold.unreadable", path=str(self._path), error=str(error))
            return None

    def save(self, saved: Saved | None) -> None:
        """Remember just this.

        Raises:
            TransientError: the file cannot be written, or removed.
        """
        try:
            if saved is None:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise TransientError(problem_of(str(self._path), error)) from error
        installation = Installation([NewFile(str(self._path), encode(saved), mode=_MODE)])
        installation.stage()
        installation.install()
        installation.finish()
