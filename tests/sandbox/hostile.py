"""Hostile Python inside of the worker's fence: run as a program, it prints what each attempt came to.

``argv`` are a directory that is open to everybody, and the number of a process that belongs to nobody else.
"""

import ctypes
import json
import mmap
import os
import platform
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pyconfd.predecessors.sandbox import worker  # noqa: E402 - found by the line above

HIGHEST = 1024
"""No architecture has so many system calls."""

PROBES = {"x86_64": {335, 336}}
"""uretprobe and uprobe: the kernel asks no filter about them, and ends a process that calls them itself."""


def attempts(directory: str, victim: int) -> dict[str, Callable[[], object]]:
    """Return what an attacker would do first, by name."""
    own, other = f"{directory}/own", f"{directory}/other"
    libc = ctypes.CDLL(None, use_errno=True)

    def through_libc(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments) == -1:
            raise OSError(ctypes.get_errno(), name)

    page = ctypes.addressof(ctypes.create_string_buffer(4096))
    return {
        "open": lambda: os.close(os.open(own, os.O_RDONLY)),
        "create": lambda: os.close(os.open(other, os.O_WRONLY | os.O_CREAT)),
        "link": lambda: os.link(own, other),
        "symlink": lambda: os.symlink(own, other),  # noqa: PTH211
        "rename": lambda: os.rename(own, other),  # noqa: PTH104 - the system call is what counts
        "unlink": lambda: os.unlink(own),  # noqa: PTH108
        "mkdir": lambda: os.mkdir(other),  # noqa: PTH102
        "chmod": lambda: os.chmod(own, 0o777),  # noqa: PTH101
        "chown": lambda: os.chown(own, 0, 0),
        "truncate": lambda: os.truncate(own, 0),
        "stat": lambda: os.stat(own),  # noqa: PTH116
        "list": lambda: os.listdir(directory),  # noqa: PTH208
        "chdir": lambda: os.chdir("/"),
        "kill": lambda: os.kill(victim, signal.SIGTERM),
        "kill parent": lambda: os.kill(os.getppid(), 0),
        "ptrace": lambda: through_libc("ptrace", 16, victim, 0, 0),
        "execve": lambda: os.execv("/bin/true", ["true"]),
        "fork": os.fork,
        "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
        "socketpair": socket.socketpair,
        "pipe": os.pipe,
        "dup": lambda: os.dup(0),
        "setuid": lambda: os.setuid(0),
        "unshare": lambda: through_libc("unshare", 0x10000000),
        "mount": lambda: through_libc("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "prctl": lambda: through_libc("prctl", 38, 0, 0, 0, 0),
        "read of another descriptor": lambda: os.read(2, 1),
        "write to another descriptor": lambda: os.write(2, b"x"),
        "executable memory": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
        "memory made executable": lambda: through_libc("mprotect", ctypes.c_void_p(page & ~4095), 4096, 5),
        "limits of another process": lambda: resource.prlimit(victim, resource.RLIMIT_CPU, (1, 1)),
        "own limits raised": lambda: resource.prlimit(0, resource.RLIMIT_NOFILE, (9, 9)),
    }


def numbers() -> dict[str, int]:
    """Return the numbers of all system calls that are not allowed and did not fail with EPERM, each with its error."""
    allowed = {*worker.ARCHITECTURES[platform.machine()].calls.values(), *PROBES.get(platform.machine(), ())}
    libc = ctypes.CDLL(None, use_errno=True)
    let_through = {}
    for number in range(HIGHEST):
        if number not in allowed:
            ctypes.set_errno(0)
            zero = ctypes.c_long(0)
            result = libc.syscall(ctypes.c_long(number), zero, zero, zero, zero, zero, zero)
            if result != -1 or ctypes.get_errno() != 1:
                let_through[str(number)] = ctypes.get_errno()
    return let_through


def outcome(attempt: Callable[[], object]) -> str:
    """Return the error of an attempt, "" where it succeeded."""
    try:
        attempt()
    except OSError as error:
        return str(error.errno)
    return ""


def main() -> None:
    """Print what became of all attempts, as JSON."""
    everything = attempts(sys.argv[1], int(sys.argv[2]))
    worker._warm_up()
    problem = worker.lock_in(512 << 20)
    outcomes = {name: outcome(attempt) for name, attempt in everything.items()} if not problem else {}
    report = {"problem": problem, "outcomes": outcomes, "let through": numbers() if not problem else {}}
    os.write(1, json.dumps(report).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
