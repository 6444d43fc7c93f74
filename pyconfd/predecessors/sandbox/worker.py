"""The process that renders templates from the cluster: it reads requests, writes answers, and can do nothing else.

A message is four bytes of length, most significant first, and that much JSON. The process ends when its input does.

Jinja's sandbox is the first fence, a seccomp filter the second: system calls that rendering does not need fail,
whatever Python the process runs. The kernel keeps the filter until the process ends; children and threads would inherit
it. It lists what is allowed, so that a system call that a newer kernel has is denied as well.
"""

import ctypes
import errno
import os
import platform
import pwd
import resource
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.render.cluster_templates import TemplateFault, render

_HEAD = 4
_UNFENCED = "use a kernel with seccomp filters on x86_64 or aarch64, or put the template into a fragment"
USER = "pyconfd"
"""The user of the units; root becomes it, or ``nobody`` where it does not exist."""
_NOBODY = 65534

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_PROT_EXEC = 4


class Request(msgspec.Struct):
    """``cpu_s`` and ``output_bytes`` limit this rendering."""

    text: str
    names: dict[str, Any]
    required: dict[str, str]
    cpu_s: int
    output_bytes: int


class Answer(msgspec.Struct):
    """``text``, or what is wrong and what to do about it; ``line`` is 0 where that cannot be told."""

    text: str | None = None
    message: str = ""
    line: int = 0
    remedy: str = "correct the template"


def main() -> None:
    """Serve until the input ends; the last argument is the limit of memory in bytes."""
    _warm_up()
    problem = lock_in(int(sys.argv[-1]))
    while (request := _read()) is not None:
        if problem:
            answer = Answer(message=f"templates from the cluster are not rendered here: {problem}", remedy=_UNFENCED)
        else:
            _allow_cpu(request.cpu_s)
            answer = _answer(request)
        _write(msgspec.json.encode(answer))


def _answer(request: Request) -> Answer:
    try:
        result = render(request.text, request.names, request.required, request.output_bytes)
    except MemoryError:
        return Answer(message="the template needs more memory than it may have")
    if isinstance(result, TemplateFault):
        message = result.message.encode("utf-8", "replace").decode()[:500]
        return Answer(message=message, line=result.line, remedy=result.remedy)
    return Answer(text=result.encode("utf-8", "replace").decode())


def _warm_up() -> None:
    """Load all that is loaded on first use: afterwards no file can be opened any more."""
    render("{{ 'a' | striptags }}", {}, {}, 1000)
    for text in ("{% for a in b %}{{ a | quote }}{{ a.c }}{% endfor %}{{ 1 / 0 }}", "{% x", "{{ stats.password }}"):
        render(text, {"b": [{"c": "é"}], "stats": {}}, {"stats.password": "x"}, 1000)
    "é".encode("unicode_escape").decode("unicode_escape")


def lock_in(memory_bytes: int) -> str:
    """Drop root, memory beyond the limit, files, children and all other system calls that rendering does not need.

    Returns why that is not possible, "" where it is done.
    """
    if problem := drop_root():
        return problem
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    return enclose()


def _allow_cpu(seconds: int) -> None:
    """Limit the process to ``seconds`` of processor time from now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, resource.RLIM_INFINITY))


def _read() -> Request | None:
    head = _exactly(_HEAD)
    if head is None:
        return None
    body = _exactly(int.from_bytes(head, "big"))
    return None if body is None else msgspec.json.decode(body, type=Request)


def _exactly(count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = os.read(0, min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _write(body: bytes) -> None:
    view = memoryview(len(body).to_bytes(_HEAD, "big") + body)
    while view:
        view = view[os.write(1, view) :]


@dataclass(frozen=True, slots=True)
class Architecture:
    """``audit`` is AUDIT_ARCH_*, ``calls`` are the numbers of system calls by name."""

    audit: int
    calls: Mapping[str, int]


_UNCONDITIONAL = (
    "brk clock_gettime exit exit_group futex getrandom getrusage gettimeofday madvise mremap munmap restart_syscall"
    " rt_sigaction rt_sigprocmask rt_sigreturn sched_yield sigaltstack"
)
"""Memory, time, signals to itself, randomness, and the end. None names a file, a socket or another process."""

_NUMBERS = """
brk               12  214
clock_gettime    228  113
exit              60   93
exit_group       231   94
futex            202   98
getrandom        318  278
getrusage         98  165
gettimeofday      96  169
madvise           28  233
mmap               9  222
mprotect          10  226
mremap            25  216
munmap            11  215
prlimit64        302  261
read               0   63
restart_syscall  219  128
rt_sigaction      13  134
rt_sigprocmask    14  135
rt_sigreturn      15  139
sched_yield       24  124
sigaltstack      131  132
write              1   64
"""
"""The numbers on x86_64 and on aarch64.

Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h; the architectures' own numbers
are from include/uapi/linux/audit.h.
"""


def _architecture(audit: int, column: int) -> Architecture:
    rows = [line.split() for line in _NUMBERS.strip().splitlines()]
    return Architecture(audit, MappingProxyType({row[0]: int(row[column]) for row in rows}))


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {"x86_64": _architecture(0xC000003E, 1), "aarch64": _architecture(0xC00000B7, 2)}
)


@dataclass(frozen=True, slots=True)
class _Argument:
    """The low 32 bits of argument ``number``, masked, have to be ``value``; they come first on little-endian."""

    number: int
    value: int
    mask: int = 0xFFFFFFFF


_CONDITIONAL: Mapping[str, tuple[_Argument, ...]] = MappingProxyType(
    {
        # The two pipes to the parent are all that is open.
        "read": (_Argument(0, 0),),
        "write": (_Argument(0, 1),),
        "mmap": (_Argument(2, 0, _PROT_EXEC),),
        "mprotect": (_Argument(2, 0, _PROT_EXEC),),
        # Its own limit of processor time, which is set for each rendering.
        "prlimit64": (_Argument(0, 0), _Argument(1, resource.RLIMIT_CPU)),
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
    for name, arguments in _CONDITIONAL.items():
        # Each argument takes three instructions; a wrong one jumps over the rest and the ALLOW, to the DENY.
        block = []
        for left, each in zip(reversed(range(len(arguments))), arguments, strict=True):
            block += [
                (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * each.number),
                (_AND, 0, 0, each.mask),
                (_EQUAL, 0, 3 * left + 1, each.value),
            ]
        block += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _DENY)]
        lines += [(_EQUAL, 0, len(block), architecture.calls[name]), *block]
    lines.append((_RETURN, 0, 0, _DENY))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


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
