"""A process that has imported pyconfd once and becomes it again and again, each time in a fork of itself.

tests/world/forked.py starts it and asks it. It has one thread and runs no command itself: each fork begins as
``python -m pyconfd`` does when its imports are done.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyconfd
from pyconfd.cli.main import PLACES, load, main

_MOST_BYTES = 1 << 17
_STREAMS = 3


@dataclass(frozen=True, slots=True)
class Job:
    """What a fork is to do."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str


def take(control: socket.socket) -> Job | None:
    """Fork for each request; give the fork its job, and the server None once nobody asks any more.

    A request comes with the three standard streams and with a channel for the answers: the pid, then how it ended. The
    fork stays a zombie until that was read, so that its pid means nobody else meanwhile.
    """
    poll = select.poll()
    poll.register(control, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}  # by what becomes readable: first the pidfd, then the channel
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                pid, channel = running.pop(ready)
                poll.unregister(ready)
                if ready == channel.fileno():
                    os.waitpid(pid, 0)
                    channel.close()
                else:
                    os.close(ready)
                    _tell(channel, _exit_of(pid))
                    poll.register(channel, select.POLLIN)
                    running[channel.fileno()] = (pid, channel)
                continue
            text, streams, _, _ = socket.recv_fds(control, _MOST_BYTES, _STREAMS + 1)
            if not text:
                return None
            pid = os.fork()
            if not pid:
                for _, channel in running.values():
                    channel.close()
                control.close()
                return _begun(json.loads(text), streams)
            channel = socket.socket(fileno=streams.pop())
            for stream in streams:
                os.close(stream)
            _tell(channel, pid)
            ended = os.pidfd_open(pid)
            poll.register(ended, select.POLLIN)
            running[ended] = (pid, channel)


def _tell(channel: socket.socket, number: int) -> None:
    try:
        channel.send(str(number).encode())
    except OSError:  # who asked is gone; so the channel is readable, which ends this
        return


def _exit_of(pid: int) -> int:
    """Give the exit status as subprocess gives it."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert found is not None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _begun(request: Any, streams: Sequence[int]) -> Job:
    """Have the streams that were sent, and nothing of the server."""
    for number, stream in enumerate(streams[:_STREAMS]):
        os.dup2(stream, number)
    os.closerange(_STREAMS, 1 << 12)
    return Job(request["arguments"], request["environment"], request["folder"])


def become(job: Job) -> None:
    """Go on as ``python -m pyconfd`` does."""
    os.chdir(job.folder)
    os.environ.clear()
    os.environ.update(job.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [str(Path(pyconfd.__file__).parent / "__main__.py"), *job.arguments]
    main()


def run() -> None:
    """Import everything that a command may need, and serve the socket that is the standard input."""
    for place in PLACES.values():
        load(place)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1
    # Ctrl-C is for those who asked: they end this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as control:
        job = take(control)
    if job is not None:
        become(job)


if __name__ == "__main__":
    run()
