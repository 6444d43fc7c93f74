"""The second fence around the worker: system calls that it does not need fail, whatever Python it runs.

A seccomp filter is kept by the kernel until the process ends; children and threads would inherit it. It lists what is
allowed, so that a system call that a newer kernel has is denied as well.
"""

import ctypes
import errno
import os
import platform
import pwd
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

USER = "pyconfd"
"""The user of the units; root becomes it, or ``nobody`` where it does not exist."""
_NOBODY = 65534

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_PROT_EXEC = 4
_RLIMIT_CPU = 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """``audit`` is AUDIT_ARCH_*, ``calls`` are the numbers of system calls by name.

    Source: include/uapi/linux/audit.h, arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
    """

    audit: int
    calls: Mapping[str, int]


_UNCONDITIONAL = (
    "brk clock_gettime exit exit_group futex getrandom getrusage gettimeofday madvise mremap munmap restart_syscall"
    " rt_sigaction rt_sigprocmask rt_sigreturn sched_yield sigaltstack"
)
"""Memory, time, signals to itself, randomness, and the end. None names a file, a socket or another process."""

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "x86_64": Architecture(
            0xC000003E,
            MappingProxyType(
                {
                    "read": 0,
                    "write": 1,
                    "mmap": 9,
                    "mprotect": 10,
                    "munmap": 11,
                    "brk": 12,
                    "rt_sigaction": 13,
                    "rt_sigprocmask": 14,
                    "rt_sigreturn": 15,
                    "sched_yield": 24,
                    "mremap": 25,
                    "madvise": 28,
                    "exit": 60,
                    "gettimeofday": 96,
                    "getrusage": 98,
                    "sigaltstack": 131,
                    "futex": 202,
                    "restart_syscall": 219,
                    "clock_gettime": 228,
                    "exit_group": 231,
                    "prlimit64": 302,
                    "getrandom": 318,
                }
            ),
        ),
        "aarch64": Architecture(
            0xC00000B7,
            MappingProxyType(
                {
                    "read": 63,
                    "write": 64,
                    "exit": 93,
                    "exit_group": 94,
                    "futex": 98,
                    "clock_gettime": 113,
                    "sched_yield": 124,
                    "restart_syscall": 128,
                    "sigaltstack": 132,
                    "rt_sigaction": 134,
                    "rt_sigprocmask": 135,
                    "rt_sigreturn": 139,
                    "prlimit64": 261,
                    "getrusage": 165,
                    "gettimeofday": 169,
                    "brk": 214,
                    "munmap": 215,
                    "mremap": 216,
                    "mmap": 222,
                    "mprotect": 226,
                    "madvise": 233,
                    "getrandom": 278,
                }
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class _Condition:
    """The low 32 bits of ``argument``, masked, have to be ``value``; they come first on little-endian machines."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF


_CONDITIONS: Mapping[str, tuple[_Condition, ...]] = MappingProxyType(
    {
        # The two pipes to the parent are all that is open.
        "read": (_Condition(0, 0),),
        "write": (_Condition(0, 1),),
        "mmap": (_Condition(2, 0, _PROT_EXEC),),
        "mprotect": (_Condition(2, 0, _PROT_EXEC),),
        # Its own limit of processor time, which is set for each rendering.
        "prlimit64": (_Condition(0, 0), _Condition(1, _RLIMIT_CPU)),
    }
)


def program(architecture: Architecture) -> bytes:
    """Return the filter: instructions of classic BPF over ``struct seccomp_data``."""
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        # System calls of another architecture have other numbers.
        (_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for name in _UNCONDITIONAL.split():
        lines += [(_EQUAL, 0, 1, architecture.calls[name]), (_RETURN, 0, 0, _ALLOW)]
    for name, conditions in _CONDITIONS.items():
        block = list(_block(conditions))
        lines += [(_EQUAL, 0, len(block), architecture.calls[name]), *block]
    lines.append((_RETURN, 0, 0, _DENY))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _block(conditions: tuple[_Condition, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Allow where all conditions hold, else deny."""
    left = len(conditions)
    for each in conditions:
        left -= 1
        yield _LOAD, 0, 0, _ARGUMENTS_AT + 8 * each.argument
        yield _AND, 0, 0, each.mask
        yield _EQUAL, 0, 3 * left + 1, each.value
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _DENY


def drop_root() -> str:
    """Become the user of the units where this is root; return why that is not possible, "" where it is done."""
    if os.geteuid() != 0 and os.getuid() != 0:
        return ""
    try:
        known = pwd.getpwnam(USER)
        uid, gid = known.pw_uid, known.pw_gid
    except KeyError:
        uid = gid = _NOBODY
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        return f"root cannot become the user {uid}: {error.strerror}"
    return ""


def enclose() -> str:
    """Allow this process nothing but what rendering needs, for ever; return why that is not possible, "" if it is."""
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None or struct.calcsize("P") != 8:
        return f"no filter of system calls is known for {platform.machine() or 'this machine'}"
    text = program(architecture)
    memory = ctypes.create_string_buffer(text)
    described = ctypes.create_string_buffer(struct.pack("@HP", len(text) // 8, ctypes.addressof(memory)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value, filter_at in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(described)),
    ):
        # As long: prctl is variadic, and the kernel wants the unused ones to be zero in all their bits.
        if libc.prctl(option, *map(ctypes.c_ulong, (value, filter_at, 0, 0))) != 0:
            return f"the kernel refuses a filter of system calls: {os.strerror(ctypes.get_errno())}"
    return ""
