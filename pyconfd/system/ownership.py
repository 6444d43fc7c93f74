"""Root writes below a directory of another user as that user.

Whoever owns a directory can exchange what is in it between two calls of root: a link to one of root's files then makes
root write, give away or remove that file. With the owner's rights such a swap reaches only what he could reach himself.
"""

import ctypes
import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyconfd.errors import Problem, TransientError

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
    """Give this thread, where it is root's, the file rights of who controls the directory of ``path``.

    New files are his without a chown. Source: setfsuid(2): the calling thread alone; the capabilities that override
    file rights are off meanwhile. The supplementary groups stay.

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
