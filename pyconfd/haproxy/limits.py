"""The limits under which HAProxy runs, compared with what a configuration needs before anything is applied."""

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.needs import AUTOMATIC_MAXCONN, Needs, at_most, needs
from pyconfd.haproxy.observation import Running, RunningState
from pyconfd.haproxy.unit import UnitFacts
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import Rendering

_CAP_SYS_RESOURCE = 24
"""Whoever holds it may raise limits up to ``fs.nr_open``. Source: capabilities(7)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``descriptors`` is the hard limit of open files, 0 where it cannot be told; ``whose`` says where it is from.

    ``certain`` is False where it is only a guess, and then never a reason to refuse. ``running`` tells whether a
    worker serves already, whose memory is not free; ``threads`` is what HAProxy takes by itself.
    """

    descriptors: int
    whose: str
    memory_available_bytes: int
    threads: int
    certain: bool = True
    running: bool = False
    unit: str = ""


def judge_start(rendering: Rendering, running: RunningState, unit: UnitFacts) -> tuple[Problem, ...]:
    """Compare what ``rendering`` needs with what the HAProxy that runs, or its unit, may have; gives warnings.

    Raises:
        RejectedInput: HAProxy would not start with so few file descriptors; nothing was changed.
    """
    if not isinstance(running, Running):
        return judge(rendering, gather(0, unit))
    return judge(rendering, gather(running.master_pid or running.worker_pid, unit), version=running.version)


def gather(pid: int, unit: UnitFacts) -> Limits:
    """Return the limits of the running HAProxy ``pid`` (master or worker; 0 for none), of its unit, or our own."""
    memory = psutil.virtual_memory().available
    if pid:
        with suppress(OSError, psutil.Error):
            master = _master_of(pid)
            whose = f"the running haproxy (pid {master})"
            threads = len(os.sched_getaffinity(master))
            return Limits(_of_process(master), whose, memory, threads, running=True, unit=unit.name)
    threads = len(os.sched_getaffinity(0))
    if unit.found and unit.descriptors:
        most = _most() if unit.raises_limits else min(_most(), unit.descriptors)
        return Limits(most, f"{unit.name} (LimitNOFILE)", memory, threads, running=bool(pid), unit=unit.name)
    own = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = _most() if own == resource.RLIM_INFINITY else own
    return Limits(most, "pyconfd itself", memory, threads, certain=False, running=bool(pid), unit=unit.name)


def judge(rendering: Rendering, limits: Limits, *, version: str = "") -> tuple[Problem, ...]:
    """Compare; the problems given are warnings. ``version`` is that of HAProxy where it is known.

    Raises:
        RejectedInput: HAProxy would not start with so few file descriptors.
    """
    bound = at_most(rendering.text, threads=limits.threads, version=version)
    if _fits(bound, limits) and bound.memory_bytes <= limits.memory_available_bytes:
        return ()
    needed = needs(rendering.text, threads=limits.threads, version=version)
    found = []
    if not _fits(needed, limits):
        problem = _too_few(needed, limits, rendering)
        if limits.certain and needed.strict:
            raise RejectedInput(problem, step=Step.CHECK)
        found.append(problem)
    if needed.memory_bytes > limits.memory_available_bytes:
        found.append(_too_little(needed, limits))
    return tuple(found)


def _fits(needed: Needs, limits: Limits) -> bool:
    limit = _limit(needed, limits)
    return not limit or needed.descriptors <= limit


def _limit(needed: Needs, limits: Limits) -> int:
    return min(filter(None, (limits.descriptors, needed.ceiling)), default=0)


def _too_few(needed: Needs, limits: Limits, rendering: Rendering) -> Problem:
    limit = _limit(needed, limits)
    own = needed.ceiling == limit
    whose = "fd-hard-limit of the configuration" if own else limits.whose
    fragment, line = rendering.place_of(needed.line) if needed.line else ("", 0)
    place = (f"{fragment} line {line}" if fragment else f"line {needed.line}") if needed.line else "haproxy"
    if needed.asked:
        message = f"ulimit-n asks for {needed.descriptors:,} file descriptors"
    else:
        parts = [
            f"maxconn {needed.maxconn:,}" if needed.maxconn else f"the least maxconn, {AUTOMATIC_MAXCONN}",
            *([_counted(needed.checks, "health check")] if needed.checks else []),
            _counted(needed.listeners, "listener"),
        ]
        message = f"haproxy needs {needed.descriptors:,} file descriptors ({', '.join(parts)})"
    message += f", but the limit of {whose} is {limit:,}"
    message += ": it would not start" if needed.strict else ": it starts, and refuses connections when they are used up"
    raising = (
        "raise fd-hard-limit"
        if own
        else f"set LimitNOFILE={needed.descriptors} or more in {limits.unit or 'the unit of haproxy'} and restart it"
    )
    return Problem(place, message, f"{raising}{_instead(needed, limit)}", fragment)


def _instead(needed: Needs, limit: int) -> str:
    if needed.asked:
        return ", or take ulimit-n out: haproxy computes what it needs"
    fitting = needed.maxconn - -(-(needed.descriptors - limit) // 2)
    if fitting >= AUTOMATIC_MAXCONN:
        return f", or maxconn {fitting} or less in the global section"
    return ", or check fewer servers (`track` shares one check)"


def _too_little(needed: Needs, limits: Limits) -> Problem:
    one, both, free = (
        _megabytes(size) for size in (needed.memory_bytes, needed.reload_memory_bytes, limits.memory_available_bytes)
    )
    when = f"; during a reload two of them take about {both}" if limits.running else ""
    return Problem(
        "haproxy",
        f"a worker with {needed.servers:,} servers takes about {one} of memory{when}, but only {free} is available",
        "give the machine more memory, or set a short hard-stop-after so that former workers end soon",
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _master_of(pid: int) -> int:
    """Return the master of a worker, else ``pid``: a worker has given up its master's right to raise limits."""
    process = psutil.Process(pid)
    parent = process.parent()
    return parent.pid if parent is not None and parent.name() == process.name() else pid


def _of_process(pid: int) -> int:
    most = 0
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            hard = line.split()[4]
            most = int(hard) if hard.isdecimal() else _most()
    return max(_most(), most) if _may_raise(pid) else most


def _may_raise(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def _most() -> int:
    """Return what no process may exceed."""
    return int(Path("/proc/sys/fs/nr_open").read_text())
