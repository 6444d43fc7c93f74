"""What a rollback needs: the fragments and settings of former generations, and which of them are pinned."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.model.inputs import GenerationInputs
from pyconfd.model.status import Pin
from pyconfd.system.files import (
    AS_ROOT,
    PREFIX,
    flush_directory,
    problem_of,
    remove_stale,
    remove_tree,
    temporary_beside,
    write_new,
)
from pyconfd.system.state_file import StateFile

_SUFFIX = ".json"


class InputsStore:
    """Keeps the inputs of generations by their digest; only the daemon's loop writes."""

    def __init__(self, state_dir: str) -> None:
        self._root = Path(state_dir) / "inputs"

    def clean(self) -> None:
        """Remove what a killed process left half-written."""
        remove_stale([str(self._root)])

    def keep(self, inputs: GenerationInputs, needed: Collection[str]) -> None:
        """Store ``inputs`` unless they are there, and delete those that are not ``needed``.

        Raises:
            TransientError: it cannot be written; what was there is there still.
        """
        path = self._path(inputs.digest)
        if path.exists():
            return
        beside = temporary_beside(str(path))
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_new(beside, inputs.encoded(), mode=0o600)
            Path(beside).rename(path)
            flush_directory(str(self._root))
        except OSError as error:
            with suppress(OSError):
                Path(beside).unlink(missing_ok=True)
            raise TransientError(problem_of(str(path), error)) from error
        for entry in sorted(self._root.iterdir()):
            ours = entry.suffix == _SUFFIX and not entry.name.startswith(PREFIX)
            if ours and entry.stem not in {*needed, inputs.digest}:
                remove_tree(entry)

    def read(self, digest: str) -> GenerationInputs:
        """Return the inputs with this digest.

        Raises:
            RejectedInput: it is not there, or damaged.
            TransientError: it cannot be read by this user.
        """
        path = self._path(digest)
        try:
            found = GenerationInputs.decoded(path.read_bytes())
            if found.digest == digest:
                return found
            message = "is damaged: it is not what its name says"
        except FileNotFoundError:
            message = "is not there: the fragments of that generation were not kept"
        except OSError as error:
            remedy = "run it as root or as pyconfd"
            raise TransientError(Problem(str(path), f"cannot be read: {error.strerror}", remedy)) from error
        except (ValueError, KeyError, TypeError) as error:
            message = f"is damaged: {error}"
        raise RejectedInput(Problem(str(path), message, "see pyconfd history for the others"))

    def _path(self, digest: str) -> Path:
        return self._root / f"{digest}{_SUFFIX}"


FILE_NAME = "pin.json"


class PinFile:
    """Written by ``pyconfd rollback``, read by the loop each second."""

    def __init__(self, state_dir: str) -> None:
        self._file = StateFile(Path(state_dir) / FILE_NAME, Pin, forbidden=AS_ROOT)

    def read(self) -> Pin | None:
        """Return the pin, None for none.

        A file that cannot be read or understood is a pin all the same: nothing new is applied until it is removed.
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
        """Remove the pin: what is on disk counts again.

        Raises:
            TransientError: the file cannot be removed.
        """
        self._file.remove()

    def _broken(self, why: str) -> Pin:
        since = 0.0
        with suppress(OSError):
            since = self._file.path.stat().st_mtime
        return Pin("", 0, "", since, broken=why)
