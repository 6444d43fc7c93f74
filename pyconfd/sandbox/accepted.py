"""The templates of the cluster that were applied last; they survive restarts, so that a bad one can be replaced."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyconfd.model.context import AcceptedTemplate
from pyconfd.system.state_file import StateFile

FILE = "cluster-templates.json"


class AcceptedTemplates:
    """A file in the state directory; one that cannot be read counts as empty."""

    def __init__(self, state_dir: str) -> None:
        # Only for this user: a template may hold a password.
        self._file = StateFile(Path(state_dir) / FILE, list[AcceptedTemplate], mode=0o600)
        self._known: Mapping[str, AcceptedTemplate] | None = None

    def known(self) -> Mapping[str, AcceptedTemplate]:
        """Return what was kept last, by name."""
        if self._known is None:
            self._known = MappingProxyType({each.name: each for each in self._file.load() or ()})
        return self._known

    def keep(self, accepted: tuple[AcceptedTemplate, ...]) -> None:
        """Keep just these; a failure stops nobody and is tried again at each call."""
        wanted = {each.name: each for each in accepted}
        if self._file.problem is None and wanted == self.known():
            return
        self._known = MappingProxyType(wanted)
        self._file.save(list(accepted))
