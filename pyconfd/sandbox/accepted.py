"""The templates of the cluster that came to serve last; they survive restarts, so that a bad one can be replaced."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import structlog

from pyconfd.errors import TransientError
from pyconfd.model.context import AcceptedTemplate
from pyconfd.system.files import Installation, NewFile, problem_of

log = structlog.get_logger(__name__)

FILE = "cluster-templates.json"
_MODE = 0o600
"""A template may hold a password."""


class AcceptedTemplates:
    """One small file in the state directory. One that cannot be read counts as empty, which is said once."""

    def __init__(self, state_dir: str) -> None:
        self._path = Path(state_dir) / FILE
        self._known: Mapping[str, AcceptedTemplate] | None = None
        self._wanting = False

    def known(self) -> Mapping[str, AcceptedTemplate]:
        """Give what was kept last, by name."""
        if self._known is None:
            found: list[AcceptedTemplate] = []
            try:
                found = msgspec.json.decode(self._path.read_bytes(), type=list[AcceptedTemplate])
            except FileNotFoundError:
                pass
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.warning("accepted_templates.unreadable", path=str(self._path), error=str(error))
            self._known = MappingProxyType({each.name: each for each in found})
        return self._known

    def keep(self, accepted: tuple[AcceptedTemplate, ...]) -> None:
        """Keep just these; that they cannot be written is said once, tried again at each call, and stops nobody."""
        wanted = {each.name: each for each in accepted}
        if not self._wanting and wanted == self.known():
            return
        self._known = MappingProxyType(wanted)
        installation = Installation(
            [NewFile(str(self._path), msgspec.json.encode(accepted), mode=_MODE, within=str(self._path.parent))]
        )
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            installation.stage()
            installation.install()
        except OSError as error:
            self._unwritable(TransientError(problem_of(str(self._path), error)))
        except TransientError as error:
            self._unwritable(error)
        else:
            installation.finish()
            self._wanting = False

    def _unwritable(self, error: TransientError) -> None:
        if not self._wanting:
            problem = error.problems[0]
            log.warning("accepted_templates.unwritable", problem=problem.message, place=problem.place)
        self._wanting = True
