"""Who listens on which TCP port: the kernel's list, and whether a listener is haproxy's."""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyconfd.vip.netlink import dump_sockets

_LISTEN = 10
_ROOT = 0


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket: its number, and the user who opened it."""

    inode: int
    user: int


def listeners() -> Mapping[int, Sequence[Listener]]:
    """Return the listeners of each TCP port here, of both families.

    Raises:
        OSError: the kernel does not tell.
    """
    found: dict[int, list[Listener]] = {}
    for message in dump_sockets(1 << _LISTEN):
        (port,) = struct.unpack_from("!H", message, 20)
        user, inode = struct.unpack_from("=II", message, 80)
        found.setdefault(port, []).append(Listener(inode, user))
    return found


class Ownership:
    """Whether listeners are those of one process or its children; what was found once is remembered.

    Where the kernel does not let this process look into another user's, the user who opened the socket has to be one
    that they run as, or root, as whom they may have begun.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._known: set[Listener] = set()

    def has(self, pid: int, asked: Sequence[Listener]) -> bool:
        """Return whether one of the listeners is the process's."""
        if pid != self._pid:
            self._pid = pid
            self._known.clear()
        if not self._known.isdisjoint(asked):
            return True
        own = {one for one in asked if self._is_own(one)}
        self._known |= own
        return bool(own)

    def _is_own(self, one: Listener) -> bool:
        users, hidden = {_ROOT}, False
        for pid in _with_children(self._pid):
            with suppress(FileNotFoundError, ProcessLookupError):
                try:
                    if one.inode in _sockets(pid):
                        return True
                except PermissionError:
                    users |= _users(pid)
                    hidden = True
        return hidden and one.user in users


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())


def _sockets(pid: int) -> set[int]:
    found = set()
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):  # noqa: PTH208 - thousands of them
        with suppress(FileNotFoundError):
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - thousands of them
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def _users(pid: int) -> set[int]:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("Uid:"):
            return set(map(int, line.split()[1:]))
    return set()
