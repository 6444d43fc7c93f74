"""Where a rendering lives on disk: which file goes where, with which mode, and what may be removed again."""

import os
import pwd
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.check import usable_files
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.rendering import FOLDERS, FileKind, OutputFile, Rendering
from pyconfd.settings import HaproxySettings
from pyconfd.system.files import (
    READ_ONLY_REMEDY,
    NewFile,
    as_owner_of,
    flush_directory,
    is_directory,
    is_read_only,
    problem_of,
)

log = structlog.get_logger(__name__)

CONFIGURATION_MODE = 0o640
MAP_MODE = 0o644
CERTIFICATE_MODE = 0o600
SHARED_CERTIFICATE_MODE = 0o640
"""For certificates that HAProxy reads under another user than pyconfd's, through the group of the directory."""


Identity = tuple[int, ...]
"""Device, inode, time of modification, size: who writes a file changes one of them, a rename changes none."""


def identity_of(path: str) -> Identity:
    """Return what will show whether the file at ``path`` was written since.

    Raises:
        OSError: there is none.
    """
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def files_dir_of(settings: HaproxySettings) -> str:
    """Return the directory of the files that renderings declare."""
    return settings.files_dir or str(Path(settings.conf).parent / "files")


class Layout:
    """The paths of one HAProxy. New files belong to the group that HAProxy reads them with, where that may be set."""

    def __init__(self, settings: HaproxySettings, unit: UnitFacts) -> None:
        self.conf = settings.conf
        self.files_dir = files_dir_of(settings)
        reader = unit.user if unit.found else ""
        self._group: int | None = None
        self._certificate_mode = CERTIFICATE_MODE
        with suppress(KeyError):
            entry = pwd.getpwnam(reader) if reader else None
            if entry is not None and entry.pw_uid != os.geteuid():
                self._certificate_mode = SHARED_CERTIFICATE_MODE
                self._group = entry.pw_gid if os.geteuid() == 0 or entry.pw_gid in os.getgroups() else None

    def directories(self) -> tuple[str, ...]:
        """Return every directory that temporary files of pyconfd can be in."""
        folders = [str(Path(self.files_dir) / folder) for folder in FOLDERS]
        return (str(Path(os.path.realpath(self.conf)).parent), self.files_dir, *folders)

    def problems(self) -> tuple[Problem, ...]:
        """Return what would fail at the first change."""
        directory = Path(os.path.realpath(self.conf)).parent
        if is_directory(self.conf):
            return (Problem("haproxy.conf", f"{self.conf} is a directory", "set the path of a file in it"),)
        if not is_directory(directory):
            remedy = f"create it: install -d -o USER -g haproxy -m 2750 {directory}, with the user pyconfd runs as"
            return (Problem("haproxy.conf", f"the directory {directory} does not exist", remedy),)
        if is_read_only(directory):
            return (Problem("haproxy.conf", f"{directory} is on a file system that is read-only", READ_ONLY_REMEDY),)
        if not os.access(directory, os.W_OK | os.X_OK):
            remedy = "give it to the user that pyconfd runs as, or set haproxy.conf to a file in a directory of its own"
            return (Problem("haproxy.conf", f"pyconfd may not write in {directory}", remedy),)
        return ()

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None where there is none or it may not be read."""
        with suppress(OSError):
            return Path(path).read_bytes()
        return None

    def file_digests(self, files: Iterable[OutputFile]) -> Mapping[str, str]:
        """Return the SHA-256 of what is installed at each declared path."""
        contents = ((file.path, self.read(file.path)) for file in files)
        return {path: sha256(content).hexdigest() for path, content in contents if content is not None}

    def identities(self, rendering: Rendering) -> dict[str, Identity]:
        """Return by what the configuration and the declared files are known again; missing ones are left out."""
        found: dict[str, Identity] = {}
        for path in (self.conf, *(file.path for file in rendering.files)):
            with suppress(OSError):
                found[path] = identity_of(path)
        return found

    def changed_files(self, rendering: Rendering) -> tuple[NewFile, ...]:
        """Return what has to be written: certificates, maps, then the configuration; what is the same is left out."""
        order = (FileKind.CERTIFICATE, FileKind.MAP)
        files = sorted(usable_files(rendering), key=lambda file: (order.index(file.kind), file.path))
        wanted = [
            NewFile(file.path, file.content.encode(), self._mode(file.kind), self._group, self.files_dir)
            for file in files
        ]
        text = mark(rendering.text, rendering.digest).encode()
        wanted.append(NewFile(self.conf, text, CONFIGURATION_MODE, self._group))
        return tuple(file for file in wanted if self.read(file.path) != file.content)

    def make_directories(self, rendering: Rendering) -> None:
        """Create the folders for declared files; the directory of the configuration has to be there.

        Raises:
            TransientError: one could not be created.
        """
        parents = {Path(file.path).parent for file in rendering.files}
        for parent in sorted(parents):
            if parent.is_dir() or not parent.is_relative_to(self.files_dir):
                continue
            try:
                with as_owner_of(parent / "file"):
                    parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                    self._give_to_group(Path(self.files_dir), parent)
                    flush_directory(str(parent.parent))
            except OSError as error:
                raise TransientError(problem_of(str(parent), error)) from error

    def prune(self, declared_before: Iterable[str], rendering: Rendering) -> None:
        """Remove files that a former generation declared and this one does not; only below ``files_dir``."""
        folders = {os.path.realpath(Path(self.files_dir) / folder) for folder in FOLDERS}
        for path in sorted(set(declared_before) - {file.path for file in rendering.files}):
            target = Path(path)
            if os.path.realpath(target.parent) in folders and target.is_file() and not target.is_symlink():
                with suppress(OSError), as_owner_of(target):
                    target.unlink()
                    log.info("declared_file.removed", path=path)

    def _give_to_group(self, *directories: Path) -> None:
        if self._group is not None:
            for directory in directories:
                with suppress(PermissionError):
                    os.chown(directory, -1, self._group)

    def _mode(self, kind: FileKind) -> int:
        return self._certificate_mode if kind is FileKind.CERTIFICATE else MAP_MODE
