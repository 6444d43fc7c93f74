"""Which generation's fragments and settings are pinned: ``pin.json`` in the state directory; it outlives restarts."""

from contextlib import suppress
from pathlib import Path

from pyconfd.errors import TransientError
from pyconfd.model.pin import Pin
from pyconfd.system.files import AS_ROOT
from pyconfd.system.state_file import StateFile

FILE_NAME = "pin.json"


class PinFile:
    """Written by ``pyconfd rollback``, read by the loop each second."""

    def __init__(self, state_dir: str) -> None:
        self._file = StateFile(Path(state_dir) / FILE_NAME, Pin, forbidden=AS_ROOT)

    def read(self) -> Pin | None:
        """Return the pin, None for none.

        A file that cannot be read or understood is a pin all the same: somebody wanted nothing new to serve.
        """
        try:
            return self._file.read()
        except TransientError as error:
            return self._broken(f"{error.problems[0].place} {error.problems[0].message}")

    def begin(self, pin: Pin) -> None:
        """Pin.

        Raises:
            TransientError: the file cannot be written; what was pinned is pinned still.
        """
        self._file.write(pin)

    def end(self) -> None:
        """Take again what is on disk.

        Raises:
            TransientError: the file cannot be removed.
        """
        self._file.remove()

    def _broken(self, why: str) -> Pin:
        since = 0.0
        with suppress(OSError):
            since = self._file.path.stat().st_mtime
        return Pin("", 0, "", since, broken=why)
