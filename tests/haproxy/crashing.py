"""A child that applies and dies before its n-th effect: no clean-up, no exception, as by `kill -9`.

Reads one JSON object a line: where everything is, which rendering to apply, and ``die_before``. Each is applied in a
fork of its own; the answer is ``died`` or ``done``. Every call into C is seen by the interpreter's profiling hook, so
the product needs no seam for it.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import structlog

from pyconfd.errors import PyconfdError
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.outcome import Applied
from pyconfd.model.plan import Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.settings import ApplySettings, HaproxySettings, ReloadMethod

EFFECTS = frozenset(
    {
        "chmod",
        "chown",
        "connect",
        "fchmod",
        "fchown",
        "flock",
        "fork_exec",
        "fsync",
        "ftruncate",
        "kill",
        "killpg",
        "link",
        "mkdir",
        "pwrite",
        "remove",
        "rename",
        "replace",
        "rmdir",
        "sendall",
        "setxattr",
        "shutdown",
        "unlink",
        "write",
    }
)
"""Calls that change a file, a socket or a process; opening a file for writing is seen by the audit hook."""

_DIED = 99


def rendering_from(request: dict[str, Any]) -> Rendering:
    pieces = tuple(Piece(name, text) for name, text in request["pieces"])
    return Rendering(pieces, tuple(OutputFile(FileKind(kind), path, text) for kind, path, text in request["files"]))


def request_for(desired: Rendering, settings: HaproxySettings, state_dir: str, die_before: int) -> str:
    """Return the line that asks a child to apply ``desired``."""
    return json.dumps(
        {
            "pieces": [(piece.fragment, piece.text) for piece in desired.pieces],
            "files": [(file.kind.value, file.path, file.content) for file in desired.files],
            "settings": {
                "conf": settings.conf,
                "binary": settings.binary,
                "master_socket": settings.master_socket,
                "pid_file": settings.pid_file,
                "reload_timeout_s": settings.reload_timeout_s,
                "unit": "",
            },
            "state_dir": state_dir,
            "die_before": die_before,
        }
    )


def _apply(request: dict[str, Any]) -> None:
    settings = HaproxySettings(reload_method=ReloadMethod.MASTER, **request["settings"])
    balancer = Balancer(settings, ApplySettings(keep_generations=3), request["state_dir"], unit=UnitFacts())
    desired = rendering_from(request)
    arm(request["die_before"])
    balancer.startup()
    plan = balancer.plan(desired)
    if isinstance(plan, RuntimeUpdate):
        done = balancer.change(desired, plan, curdate="", now=1.0)
        assert isinstance(done, Applied), done
        balancer.close()
    elif isinstance(plan, Reload):
        balancer.apply(desired, plan, curdate="", now=1.0)
    sys.setprofile(None)


def arm(die_before: int) -> None:
    """End this process before its effect with this number, counted from now on."""
    remaining = die_before

    def count() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            os._exit(_DIED)

    def profiled(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and getattr(argument, "__name__", "") in EFFECTS:
            count()

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            count()

    sys.addaudithook(audited)
    threading.setprofile(profiled)  # for the thread of the file
    sys.setprofile(profiled)


def main(act: Callable[[dict[str, Any]], None] = _apply) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                act(request)
            except PyconfdError as error:
                sys.setprofile(None)
                os.write(2, f"{error}\n".encode())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print({_DIED: "died", 0: "done"}.get(code, f"failed {code}"), flush=True)


LONG = bool(os.environ.get("PYCONFD_TEST_CRASHES"))
FIRST = 4
STRIDE = 1 if LONG else 16
LAST = 0 if LONG else 6
_MOST = 10_000


def shards(number: int) -> range:
    """Return the numbers of the tests that the kill points are dealt out to, so that they can run beside each other."""
    return range(number if LONG else 1)


class KillPoints:
    """The effects before which a child is killed, one after the other, until :meth:`record` gets that it was not.

    ``make crash-test`` takes every one of them. The suite takes the first few, every sixteenth, and all of the last
    few: what is kept open, written or removed differs from one effect to the next most of all where work begins and
    ends.
    """

    def __init__(self, shard: int, of: range) -> None:
        self._all = range(shard, _MOST, len(of))
        self._survived = False
        self.died = 0
        """How often the child died at a point."""

    def record(self, outcome: str, done: str = "done") -> None:
        """Take what became of the child at the last point; after ``done`` there are no further points."""
        if outcome == done:
            self._survived = True
        else:
            assert outcome == "died", outcome
            self.died += 1

    def __iter__(self) -> Iterator[int]:
        skipped: list[int] = []
        for index, point in enumerate(self._all):
            if index >= FIRST and index % STRIDE:
                skipped.append(point)
                continue
            yield point
            if self._survived:
                yield from skipped[-LAST:]  # what the work ends with
                return
        raise AssertionError(f"it died before {_MOST} effects and never lived to the end")


if __name__ == "__main__":
    main()
