"""Reads the template directory: fragments, and what they may include."""

import errno
import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from pyconfd.errors import Problem, TransientError
from pyconfd.model.rendering import FRAGMENT_SUFFIXES, INCLUDABLE_SUFFIXES, Fragment, FragmentSet, natural_order

_TESTS, _TEST_SUFFIX = "tests", ".test.toml"
_BACKUP_SUFFIXES = ("~", ".swp", ".swo", ".bak", ".orig", ".rej")
_PACKAGE_MARK = ".dpkg-"
_INCLUDABLE_BYTES = 1024 * 1024
_FRAGMENT_BYTES = 16 * 1024 * 1024
_MAX_FILES = 2000
_MAX_DEPTH = 16
_ATTEMPTS = 3


def read_fragments(
    directory: str, *, may_be_empty: bool = False, credentials: Collection[str] = frozenset()
) -> FragmentSet:
    """Read the fragments of ``directory`` in natural order, and the texts that templates may include.

    ``*.conf`` and ``*.tmpl`` in the directory itself are fragments. They and the files in and below it whose names end
    with one of ``INCLUDABLE_SUFFIXES`` may be included by their relative names, if they are UTF-8 text of at most
    1 MiB. Nothing else is read: a token that lies there and is renewed is no edit. Left out are hidden names, editor
    and package backups, the ``credentials`` (paths) whatever their names, and the folder ``tests`` where it holds tests
    of the fragments (``*.test.toml``).

    ``directory`` may be a symbolic link. Links within it are followed while they stay inside (a mounted ConfigMap
    works, and is read from one generation even if it is swapped meanwhile); a link that leaves it is not.

    Raises:
        TransientError: the directory or a fragment cannot be read, a fragment is one of the ``credentials``, or there
            is no fragment unless it ``may_be_empty`` (or missing); carries every problem.

    """
    if may_be_empty and not os.path.lexists(directory):
        return FragmentSet(())
    secret = frozenset(_real(Path(path)) for path in credentials)
    before = _swap_mark(directory)
    for _attempt in range(_ATTEMPTS):
        found, failure = _read_once(directory, secret, may_be_empty=may_be_empty)
        after = _swap_mark(directory)
        if before == after:
            break
        before = after
    if failure is not None:
        raise failure
    return found


class SettledFragments:
    """Reads a directory again and again, and returns a change only once it stays the same.

    An editor that truncates a file and then writes it is otherwise seen in between; half a fragment may well be valid.
    ``read`` reads it once, ``pause`` waits a moment.
    """

    def __init__(self, read: Callable[[], FragmentSet], pause: Callable[[], None]) -> None:
        self._read = read
        self._pause = pause
        self._last: FragmentSet | None = None

    def read(self) -> FragmentSet:
        """Return the fragments; raises what :func:`read_fragments` raises."""
        found = self._read()
        for _attempt in range(_ATTEMPTS):
            if found == self._last:
                break
            self._last = found
            self._pause()
            found = self._read()
        return found


def _swap_mark(directory: str) -> tuple[str, str]:
    """Name what a ConfigMap update would have swapped: the directory behind a link, and the link ``..data``."""
    try:
        data = str(Path(directory, "..data").readlink())
    except OSError:
        data = ""
    return os.path.realpath(directory), data


def _real(path: Path) -> Path:
    # Path.resolve() raises RuntimeError on a loop of links; here a loop is one more file that cannot be read.
    return Path(os.path.realpath(path))


def _read_once(
    directory: str, secret: frozenset[Path], *, may_be_empty: bool
) -> tuple[FragmentSet, TransientError | None]:
    walk = _Walk(_real(Path(directory)), secret)
    try:
        walk.visit("", walk.root, ())
    except OSError as error:
        return FragmentSet(()), TransientError(_directory_problem(directory, error))
    if walk.problems:
        return FragmentSet(()), TransientError(*walk.problems)
    if not walk.fragments and not may_be_empty:
        problem = Problem(
            directory,
            "there is no fragment: no file *.conf or *.tmpl in the template directory",
            f"pyconfd fragments --copy-to {directory} puts the shipped ones there; or name another with --template-dir",
        )
        return FragmentSet(()), TransientError(problem)
    fragments = tuple(Fragment(name, walk.fragments[name]) for name in natural_order(walk.fragments))
    includable = tuple(Fragment(name, walk.includable[name]) for name in sorted(walk.includable))
    return FragmentSet(fragments, includable), None


def _directory_problem(directory: str, error: OSError) -> Problem:
    if error.errno == errno.EMFILE:
        return Problem(directory, "too many open files", "raise LimitNOFILE of the unit of pyconfd")
    if isinstance(error, FileNotFoundError):
        return Problem(
            directory,
            "the template directory does not exist",
            "mount it again, make it with `pyconfd fragments --copy-to DIR`, or name another one with --template-dir",
        )
    if isinstance(error, NotADirectoryError):
        return Problem(directory, "the template directory is a file", "name its directory with --template-dir")
    if isinstance(error, PermissionError):
        return Problem(
            directory,
            "the template directory may not be read by the user that pyconfd runs as",
            f"give that user read and search permission: chmod o+rx {directory}, or change its group",
        )
    return Problem(directory, f"the template directory cannot be read: {error.strerror}", "see dmesg and the mount")


def _is_left_out(name: str) -> bool:
    lowered = name.lower()
    return lowered.startswith((".", "#")) or lowered.endswith(_BACKUP_SUFFIXES) or _PACKAGE_MARK in lowered


@dataclass
class _Walk:
    """One reading of the tree below ``root``; that and ``secret`` are real paths."""

    root: Path
    secret: frozenset[Path]
    fragments: dict[str, str] = field(default_factory=dict)
    includable: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    files: int = 0

    def visit(self, prefix: str, real: Path, above: tuple[Path, ...]) -> None:
        """Read the directory ``real``, known to templates as ``prefix``; ``above`` are its ancestors' real paths."""
        for name in sorted(entry.name for entry in real.iterdir()):
            if _is_left_out(name) or (not prefix and name == _TESTS and any(real.glob(f"{name}/*{_TEST_SUFFIX}"))):
                continue
            if not prefix and name.endswith(FRAGMENT_SUFFIXES):
                self._fragment(name, real / name)
            else:
                self._other(prefix + name, real / name, (*above, real))

    def _fragment(self, name: str, path: Path) -> None:
        target = _real(path)
        if not self._is_inside(target):
            problem = Problem(
                name,
                f"is a symbolic link to {target}, outside of the template directory",
                "copy the file into the template directory",
            )
            self.problems.append(problem)
            return
        if target in self.secret:
            message = "holds credentials that the settings name, and is never a fragment"
            self.problems.append(Problem(name, message, "keep it under a name without .conf or .tmpl at its end"))
            return
        try:
            self.fragments[name] = _read_text(target, _FRAGMENT_BYTES)
        except OSError as error:
            self.problems.append(_file_problem(name, error))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            problem = Problem(
                f"{name} line {line}",
                f"is not UTF-8 text (byte 0x{error.object[error.start]:02x})",
                f"convert it: iconv -f latin1 -t utf-8 {name}",
            )
            self.problems.append(problem)

    def _other(self, name: str, path: Path, above: tuple[Path, ...]) -> None:
        target = _real(path)
        if not self._is_inside(target) or target in self.secret:
            return
        try:
            if target.is_dir():
                if target not in above and len(above) < _MAX_DEPTH:
                    self.visit(f"{name}/", target, above)
                return
            # The file behind a link counts as well: x.j2 may not lead to a key.
            if not (name.endswith(INCLUDABLE_SUFFIXES) and target.name.endswith(INCLUDABLE_SUFFIXES)):
                return
            self.files += 1
            if self.files > _MAX_FILES:
                self._too_many()
                return
            self.includable[name] = _read_text(target, _INCLUDABLE_BYTES)
        except (OSError, UnicodeDecodeError):
            return  # what cannot be read cannot be included; a template that tries fails with its name

    def _too_many(self) -> None:
        if self.files == _MAX_FILES + 1:
            problem = Problem(
                str(self.root),
                f"more than {_MAX_FILES} files lie below the template directory",
                "give the fragments a directory of their own",
            )
            self.problems.append(problem)

    def _is_inside(self, target: Path) -> bool:
        return target != self.root and target.is_relative_to(self.root)


def _file_problem(name: str, error: OSError) -> Problem:
    match error.errno:
        case errno.EISDIR:
            return Problem(name, "is a directory, not a fragment", "give it a name without .conf or .tmpl at its end")
        case errno.EFBIG:
            return Problem(name, f"is larger than {_FRAGMENT_BYTES // 1024 // 1024} MiB", "split it")
        case errno.EINVAL:
            return Problem(name, "is no regular file", "replace it by a text file")
        case errno.ENOENT:
            return Problem(name, "is a symbolic link to a file that does not exist", "restore its target or remove it")
        case errno.EACCES:
            return Problem(name, "may not be read by the user that pyconfd runs as", f"chmod o+r {name}")
        case _:
            return Problem(name, f"cannot be read: {error.strerror}", "see dmesg and the mount")


def _read_text(path: Path, limit_bytes: int) -> str:
    """Return the text of a regular file without a byte order mark.

    Raises:
        OSError: it cannot be read; EISDIR, EINVAL and EFBIG also stand for what it is not.
        UnicodeDecodeError: it is not UTF-8.

    """
    # O_NONBLOCK: a named pipe without a writer would hang here.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if status.st_size > limit_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        chunks = []
        left = limit_bytes + 1
        while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 16))):
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(descriptor)
    if left <= 0:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return b"".join(chunks).removeprefix(b"\xef\xbb\xbf").decode()
