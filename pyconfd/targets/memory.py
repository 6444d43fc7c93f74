"""What a target's balancer was last told to load; survives restarts, so that a restart of pyconfd changes nothing."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec
import structlog

from pyconfd.errors import TransientError
from pyconfd.model.context import Census
from pyconfd.system.files import Installation, NewFile

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Applied:
    """``digest`` (SHA-256) of the file, the date in it, when (seconds since the epoch), and for how many endpoints."""

    digest: str
    curdate: str
    applied_at: float
    census: Census

    def with_census(self, census: Census) -> Self:
        """Give the same for another number of endpoints."""
        return replace(self, census=census)


class Memory:
    """One small file for each target. One that cannot be read counts as absent: the balancer is told once more."""

    def __init__(self, state_dir: str, name: str) -> None:
        self._path = Path(state_dir) / "targets" / f"{name}.json"
        self._applied: Applied | None = None
        self._was_read = False

    def applied(self) -> Applied | None:
        """Give what was remembered last."""
        if not self._was_read:
            self._was_read = True
            try:
                self._applied = msgspec.json.decode(self._path.read_bytes(), type=Applied)
            except FileNotFoundError:
                pass
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.warning("target_memory.unreadable", path=str(self._path), error=str(error))
        return self._applied

    def remember(self, applied: Applied) -> None:
        """Keep it; that it cannot be written is said, and the balancer serves all the same."""
        self._applied, self._was_read = applied, True
        installation = Installation(
            [NewFile(str(self._path), msgspec.json.encode(applied), within=str(self._path.parent))]
        )
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            installation.stage()
            installation.install()
            installation.finish()
        except OSError as error:
            log.warning("target_memory.unwritable", path=str(self._path), error=str(error))
        except TransientError as error:
            log.warning("target_memory.unwritable", path=str(self._path), error=str(error.problems[0]))
