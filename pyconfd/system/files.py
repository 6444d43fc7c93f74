"""Files that are replaced whole or not at all, and written by root with the rights of who owns their directory.

Everything is written and flushed beside its target before the first rename, so a full disk is met while nothing has
changed; the former files stay reachable by hard links, so putting them back needs no space.

The owner of a directory can exchange what is in it between two calls of root: a link to one of root's files then makes
root write, give away or remove that file. With the owner's rights such a swap reaches only what the owner could reach.
"""

import ctypes
import errno
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from pyconfd.errors import Problem, TransientError

log = structlog.get_logger(__name__)

PREFIX = ".pyconfd-"
"""Begins the name of every temporary file; HAProxy skips names with a leading dot when it loads a directory."""

READ_ONLY_REMEDY = "the file system is read-only: list it in ReadWritePaths= of pyconfd.service, or remount it"
_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space there",
    errno.EDQUOT: "the disk quota is used up: raise it or free some space",
    errno.EROFS: READ_ONLY_REMEDY,
    errno.EACCES: "let the user that pyconfd runs as write to that directory, or choose another path in the settings",
    errno.EPERM: "let the user that pyconfd runs as write to that directory, or choose another path in the settings",
    errno.ENOTDIR: "a part of the path is a file: correct the path in the settings",
    errno.ENOENT: "create the directory, or correct the path in the settings",
    errno.EISDIR: "a directory is where the file belongs: remove it, or choose another path in the settings",
    errno.ENAMETOOLONG: "choose a shorter path in the settings",
    errno.EIO: "the disk reports errors: look at `dmesg`",
}
_MOST_LINKS = 40
_libc = ctypes.CDLL(None)


def controlling_owner(path: str | Path) -> os.stat_result | None:
    """Return the status of the first part of ``path`` that is not root's; None where all are root's.

    Only root can exchange the parts before it. Of the last part only a link counts: it is what is to be replaced.
    """
    remaining = [part for part in Path(path).absolute().parts if part != "/"]
    current, links = Path("/"), 0
    while remaining:
        part = remaining.pop(0)
        try:
            status = (current / part).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_link = stat.S_ISLNK(status.st_mode)
        if status.st_uid != 0 and (remaining or is_link):
            return status
        if not is_link:
            current = current.parent if part == ".." else current / part
            continue
        links += 1
        target = (current / part).readlink()
        if links > _MOST_LINKS:
            return None  # the caller's own call fails with ELOOP
        if target.is_absolute():
            current = Path("/")
        remaining[:0] = [one for one in target.parts if one != "/"]
    return None


@contextmanager
def as_owner_of(path: str | Path) -> Iterator[None]:
    """Run the body, where this thread is root's, with the file rights of the owner of the directory of ``path``.

    New files are the owner's without a chown. Source: setfsuid(2): the calling thread alone; the capabilities that
    override file rights are off meanwhile. The supplementary groups stay.

    Raises:
        PermissionError: the rights could not be dropped.
    """
    owner = controlling_owner(path) if os.geteuid() == 0 and _current(_libc.setfsuid) == 0 else None
    if owner is None:
        yield
        return
    try:
        group = pwd.getpwuid(owner.st_uid).pw_gid
    except KeyError:
        group = owner.st_gid
    former_group = _current(_libc.setfsgid)
    try:
        _libc.setfsgid(group)
        _libc.setfsuid(owner.st_uid)
        if (_current(_libc.setfsuid), _current(_libc.setfsgid)) != (owner.st_uid, group):
            raise PermissionError(errno.EACCES, f"Permission denied (cannot act as user {owner.st_uid})", str(path))
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(former_group)


def refuse_as_root(*paths: str) -> None:
    """Refuse to be a daemon as root where another user owns a directory of ``paths``.

    Raises:
        TransientError: one of them belongs to another user.
    """
    for path in paths:
        owner = controlling_owner(path) if os.geteuid() == 0 else None
        if owner is not None:
            name = _name_of(owner.st_uid)
            message = f"belongs to {name}, and root writes nothing in directories of other users"
            remedy = f"start pyconfd as {name}, as pyconfd.service does"
            raise TransientError(Problem(str(Path(path).parent), message, remedy))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _current(call: "ctypes._NamedFuncPointer") -> int:
    """Return the identity in force: an impossible one changes nothing and returns the present one."""
    return int(call(-1))


@dataclass(frozen=True, slots=True)
class NewFile:
    """What to install at ``path``; ``mode`` and ``group`` (None: as the directory gives) count for new files only.

    ``within`` is a directory that no symbolic link may lead it out of, "" for none.
    """

    path: str
    content: bytes
    mode: int = 0o640
    group: int | None = None
    within: str = ""


@dataclass(slots=True)
class _Staged:
    path: str
    target: str
    temporary: str | None = None
    former: str | None = None
    former_content: bytes | None = None
    former_status: os.stat_result | None = None
    installed: bool = False


def problem_of(path: str, error: OSError) -> Problem:
    """Return the problem of an error of the file system, with its remedy."""
    reason = error.strerror or str(error)
    return Problem(path, f"cannot be written: {reason}", _REMEDIES.get(error.errno or 0, ""))


def stay_within(path: str, directory: str) -> None:
    """Check that ``path`` lies in or below ``directory`` once symbolic links are resolved.

    Raises:
        TransientError: a link leads out of it.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        message = f"a symbolic link leads out of {directory}, to {os.path.realpath(path)}"
        raise TransientError(Problem(path, message, "remove the link: pyconfd writes nothing behind it"))


def temporary_beside(path: str) -> str:
    """Return an unpredictable name for a temporary file in the directory of ``path``."""
    return str(Path(path).parent / f"{PREFIX}{secrets.token_hex(8)}")


def flush_directory(path: str) -> None:
    """Flush a directory, so that renames in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(
    path: str,
    content: bytes,
    *,
    mode: int,
    flush: bool = True,
    group: int | None = None,
    prepare: Callable[[int], None] | None = None,
) -> None:
    """Create ``path``, which must not exist; group and mode, and what ``prepare`` sets, are there before its content.

    Raises:
        OSError: it could not be written; then it is not there.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if group is not None:
            os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)
        if prepare is not None:
            prepare(descriptor)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if flush:
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - bytes and descriptors here, as in the rest of the function
        raise
    finally:
        os.close(descriptor)


AS_ROOT = "run it as root or as pyconfd"
"""What to do about a command that may not read or write what the daemon has."""


def replace_shared(path: str, content: bytes, *, forbidden: str = "", mode: int = 0o640) -> None:
    """Replace a file that daemon and commands share: at once, with the rights of who owns its directory.

    ``forbidden`` is what to do where this user may not.

    Raises:
        TransientError: it cannot be written; what was there is there still.
    """
    beside = temporary_beside(path)
    try:
        with as_owner_of(path):
            Path(path).parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            write_new(beside, content, mode=mode)
            os.rename(beside, path)  # noqa: PTH104 - one call, one effect
            flush_directory(str(Path(path).parent))
    except OSError as error:
        with suppress(OSError):
            unlink_shared(beside)
        problem = problem_of(path, error)
        if forbidden and isinstance(error, PermissionError):
            problem = replace(problem, remedy=forbidden)
        raise TransientError(problem) from error


def unlink_shared(path: str | Path) -> None:
    """Remove a file that daemon and commands share, if it is there.

    Raises:
        OSError: it cannot be removed.
    """
    with as_owner_of(path):
        Path(path).unlink(missing_ok=True)


def exists(path: str | Path) -> bool:
    """Return whether something is there; what a directory above hides from this user is not, for it."""
    return os.access(path, os.F_OK, effective_ids=True)


def is_directory(path: str | Path) -> bool:
    """Return whether this user can see a directory there."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where a directory above may not be searched


def is_read_only(path: str | Path) -> bool:
    """Return whether the file system is read-only, for root too."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def remove_stale(directories: Iterable[str]) -> int:
    """Remove the temporary files and directories that a killed pyconfd left in ``directories``; return their number."""
    removed = 0
    for directory in directories:
        with suppress(OSError):
            for entry in sorted(Path(directory).iterdir()):
                if entry.name.startswith(PREFIX):
                    removed += remove_tree(entry)
    if removed:
        log.info("stale_files.removed", count=removed)
    return removed


def remove_tree(path: Path) -> bool:
    """Remove a file, link or directory of files; False where it could not be."""
    try:
        with as_owner_of(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)  # by descriptors: a link in its place is not followed
            else:
                path.unlink()
    except OSError as error:
        log.warning("stale_file.kept", path=str(path), error=str(error))
        return False
    return True


class Installation:
    """A set of files that replaces what is installed, and can be taken back until :meth:`finish`.

    A target that is a symbolic link stays one: the file that it points at is replaced.
    """

    def __init__(self, files: Sequence[NewFile]) -> None:
        self._files = files
        self._staged: list[_Staged] = []

    def stage(self) -> None:
        """Write every file beside its target, flushed, with the owner, group, mode and labels of what is there.

        Raises:
            TransientError: one of them could not be written; nothing is left behind.
        """
        for file in self._files:
            staged = _Staged(file.path, os.path.realpath(file.path))
            try:
                if file.within:
                    stay_within(file.path, file.within)
                self._staged.append(staged)
                with as_owner_of(file.path):
                    _stage(file, staged)
            except TransientError:
                self.discard()
                raise
            except OSError as error:
                self.discard()
                raise TransientError(problem_of(file.path, error)) from error

    def staged_paths(self) -> dict[str, str]:
        """Return where the new content of each file waits between :meth:`stage` and :meth:`install`."""
        return {staged.path: staged.temporary for staged in self._staged if staged.temporary is not None}

    def replaces(self, path: str) -> bool:
        """Return whether there was something at ``path`` before :meth:`install`."""
        target = os.path.realpath(path)
        return any(s.target == target and s.former_status is not None for s in self._staged)

    def install(self) -> None:
        """Rename every file into place, in the order given.

        Raises:
            TransientError: a rename failed; what was renamed before is back.
        """
        for staged in self._staged:
            try:
                if staged.temporary is None:
                    continue
                with as_owner_of(staged.path):
                    os.rename(staged.temporary, staged.target)  # noqa: PTH104 - one call, one effect
                    staged.installed = True
                    staged.temporary = None
                    flush_directory(str(Path(staged.target).parent))
            except OSError as error:
                problem = problem_of(staged.target, error)
                raise TransientError(problem, *self.roll_back()) from error

    def roll_back(self) -> tuple[Problem, ...]:
        """Restore the former files in reverse order, and remove those that were not there before."""
        problems = []
        for staged in reversed(self._staged):
            if staged.installed:
                try:
                    with as_owner_of(staged.path):
                        _restore(staged)
                except OSError as error:
                    problems.append(problem_of(staged.target, error))
        self.discard()
        return tuple(problems)

    def discard(self) -> None:
        """Remove what is staged and the links to the former files; what is installed stays."""
        for staged in self._staged:
            for path in (staged.temporary, staged.former):
                if path is not None:
                    with suppress(OSError), as_owner_of(staged.path):
                        Path(path).unlink(missing_ok=True)
            staged.temporary = staged.former = None

    finish = discard


def _stage(file: NewFile, staged: _Staged) -> None:
    status: os.stat_result | None = None
    with suppress(FileNotFoundError):
        status = os.stat(staged.target)  # noqa: PTH116 - the whole result is kept
    if status is not None and not stat.S_ISREG(status.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, "it is a directory" if stat.S_ISDIR(status.st_mode) else "it is not a regular file")
    if status is not None:
        _keep_former(staged, status)
    temporary = temporary_beside(staged.target)
    mode = file.mode if status is None else stat.S_IMODE(status.st_mode)
    write_new(temporary, file.content, mode=mode, prepare=lambda new: _set_ownership(new, file, staged))
    staged.temporary = temporary


def _keep_former(staged: _Staged, status: os.stat_result) -> None:
    staged.former_status = status
    link = temporary_beside(staged.target)
    try:
        os.link(staged.target, link, follow_symlinks=False)
        staged.former = link
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}:
            raise
        staged.former_content = Path(staged.target).read_bytes()


def _set_ownership(descriptor: int, file: NewFile, staged: _Staged) -> None:
    if staged.former_status is not None:
        _copy_ownership(staged.target, staged.former_status, descriptor)
    elif file.group is not None:
        with suppress(OSError):
            os.fchown(descriptor, -1, file.group)


def _copy_ownership(source: str, status: os.stat_result, descriptor: int) -> None:
    """Copy owner and group as far as this user may, access lists and security labels."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(descriptor, status.st_uid, status.st_gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(descriptor, -1, status.st_gid)
        # A change of owner clears set-user-id bits, and a new group must not gain what the old one had not.
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    with suppress(OSError):
        for name in os.listxattr(source, follow_symlinks=False):
            with suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(source, name, follow_symlinks=False))


def _restore(staged: _Staged) -> None:
    directory = str(Path(staged.target).parent)
    if staged.former is not None:
        os.rename(staged.former, staged.target)  # noqa: PTH104 - one call, one effect
        staged.former = None
    elif staged.former_content is not None and staged.former_status is not None:
        temporary = temporary_beside(staged.target)
        former, mode = staged.former_status, stat.S_IMODE(staged.former_status.st_mode)
        write_new(
            temporary,
            staged.former_content,
            mode=mode,
            prepare=lambda new: _copy_ownership(staged.target, former, new),
        )
        os.rename(temporary, staged.target)  # noqa: PTH104 - one call, one effect
    else:
        Path(staged.target).unlink(missing_ok=True)
    staged.installed = False
    flush_directory(directory)
