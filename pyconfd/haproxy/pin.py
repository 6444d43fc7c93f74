"""Which generation's fragments and settings are pinned: ``pin.json`` in the state directory; it outlives restarts."""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.owners import decoded
from pyconfd.model.pin import Pin
from pyconfd.model.tenure import Owners
from pyconfd.system.files import AS_ROOT, replace_shared, unlink_shared
from pyconfd.system.state_file import StateFile

FILE_NAME = "pin.json"
CLAIMS_FILE = "pinned-claims.json"


class PinFile:
    """Written by ``pyconfd rollback``, read by the loop each second."""

    def __init__(self, state_dir: str) -> None:
        self._file = StateFile(Path(state_dir) / FILE_NAME, Pin, forbidden=AS_ROOT)
        self._claims = Path(state_dir) / CLAIMS_FILE

    def read(self) -> Pin | None:
        """Return the pin, None for none.

        A file that cannot be read or understood is a pin all the same: somebody wanted nothing new to serve.
        """
        try:
            return self._file.read()
        except TransientError as error:
            return self._broken(f"{error.problems[0].place} {error.problems[0].message}")

    def owners(self, pin: Pin) -> Mapping[str, Owners]:
        """Return who had which name when what is pinned was made, by preset.

        Raises:
            RejectedInput: that is not known any more.
        """
        if not pin.claims:
            return {}
        with suppress(OSError):
            data = self._claims.read_bytes()
            if sha256(data).hexdigest() == pin.claims:
                return decoded(data)
        problem = Problem(str(self._claims), "is missing or damaged", "pin again: pyconfd rollback N")
        raise RejectedInput(problem)

    def begin(self, pin: Pin, claims: bytes = b"") -> None:
        """Pin; ``claims`` are those with the digest of the pin.

        Raises:
            TransientError: the file cannot be written; what was pinned is pinned still.
        """
        if claims:
            replace_shared(str(self._claims), claims, forbidden=AS_ROOT)
        self._file.write(pin)

    def end(self) -> None:
        """Take again what is on disk.

        Raises:
            TransientError: the file cannot be removed.
        """
        self._file.remove()
        with suppress(OSError):  # without the pin nobody reads it
            unlink_shared(self._claims)

    def _broken(self, why: str) -> Pin:
        since = 0.0
        with suppress(OSError):
            since = self._file.path.stat().st_mtime
        return Pin("", 0, "", since, broken=why)
