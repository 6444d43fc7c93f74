"""The process that renders templates from the cluster: it reads requests, writes answers, and can do nothing else.

A message is four bytes of length, most significant first, and that much JSON. The process ends when its input does.
"""

import os
import resource
import sys
from typing import Any

import msgspec

from pyconfd.render.cluster_templates import Fault, render
from pyconfd.sandbox import fence

_HEAD = 4
_UNFENCED = "use a kernel with seccomp filters on x86_64 or aarch64, or put the template into a fragment"


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
    """Serve until the input ends; ``argv`` gives the limit of memory in bytes."""
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
    if isinstance(result, Fault):
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
    """Give up root, memory beyond the limit, files, children and all other system calls that rendering does not need.

    Returns why that is not possible, "" where it is done.
    """
    if problem := fence.drop_root():
        return problem
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    return fence.enclose()


def _allow_cpu(seconds: int) -> None:
    """Let the kernel end the process ``seconds`` of processor time from now."""
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
