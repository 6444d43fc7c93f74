"""One JSON value in a file that survives restarts, replaced at once or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.system.files import problem_of, replace_shared, unlink_shared

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class StateFile(Generic[_T]):
    """A value of ``kind`` (a type that msgspec knows) in the file ``path``.

    ``effect`` says in the log what a lost value means. ``forbidden`` is the remedy where this user may not write.
    ``enc_hook`` and ``dec_hook`` are msgspec's, for types that JSON lacks.
    """

    def __init__(
        self,
        path: str | Path,
        kind: type[_T],
        *,
        effect: str = "",
        mode: int = 0o640,
        forbidden: str = "",
        enc_hook: Callable[[Any], Any] | None = None,
        dec_hook: Callable[[type, Any], Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._kind = kind
        self._effect = effect
        self._mode = mode
        self._forbidden = forbidden
        self._enc_hook, self._dec_hook = enc_hook, dec_hook
        self.problem: Problem | None = None
        """Why the last :meth:`save` failed; None where it did not."""

    def read(self) -> _T | None:
        """Return the value, None where there is no file.

        Raises:
            TransientError: the file cannot be read, or is damaged.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransientError(Problem(str(self.path), f"cannot be read: {error.strerror}")) from error
        try:
            return msgspec.json.decode(content, type=self._kind, dec_hook=self._dec_hook)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransientError(Problem(str(self.path), f"is damaged: {error}")) from error

    def load(self) -> _T | None:
        """Return the value; a file that cannot be used is logged and counts as none."""
        try:
            return self.read()
        except TransientError as error:
            problem = error.problems[0]
            log.warning("state_file.unreadable", path=problem.place, problem=problem.message, effect=self._effect)
            return None

    def write(self, value: _T) -> None:
        """Replace the value.

        Raises:
            TransientError: it cannot be written; the former value is still there.
        """
        content = msgspec.json.encode(value, enc_hook=self._enc_hook) + b"\n"
        replace_shared(str(self.path), content, forbidden=self._forbidden, mode=self._mode)

    def save(self, value: _T) -> bool:
        """Replace the value and return whether that worked; a failure is logged once until the next success."""
        try:
            self.write(value)
        except TransientError as error:
            first = error.problems[0]
            if self.problem is None:
                log.warning("state_file.unwritable", path=first.place, problem=first.message, effect=self._effect)
            remedy = "; ".join(filter(None, (first.remedy, self._effect)))
            self.problem = Problem(first.place, first.message, remedy)
            return False
        self.problem = None
        return True

    def remove(self) -> None:
        """Remove the file, if it is there.

        Raises:
            TransientError: it cannot be removed.
        """
        try:
            unlink_shared(self.path)
        except OSError as error:
            problem = problem_of(str(self.path), error)
            raise TransientError(Problem(problem.place, problem.message, self._forbidden or problem.remedy)) from error
