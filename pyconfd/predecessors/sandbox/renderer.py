"""The parent's side: a worker process that is asked to render, and killed when it takes too long."""

import os
import selectors
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.model.outcome import Step
from pyconfd.predecessors.sandbox.worker import Answer, Request
from pyconfd.system.backoff import Backoff

log = structlog.get_logger(__name__)

__waits_for_own_limits__ = True
"""The limits on an operator's fragments leave the time out that is spent here (:mod:`pyconfd.daemon.limited`)."""

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from pyconfd.predecessors.sandbox.worker import main; main()"
_ROOT = str(Path(__file__).parents[3])
_HEAD = 4
_START_S = 30.0
"""Starting Python on a busy machine is no fault of the template."""
_MOST_LIMITS = 12
"""The longest back-off, in time limits: a template that always uses its limit up costs a twelfth of all time."""
_MOST_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rendering may use: seconds of wall-clock and processor time, bytes of memory and of output."""

    timeout_s: float = 5.0
    memory_bytes: int = 512 * 1024 * 1024
    output_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True)
class _Overdue:
    """A template that used too much: not rendered again before ``until``."""

    backoff: Backoff
    delay_s: float = 0.0
    until: float = 0.0
    source: str = ""
    problems: tuple[Problem, ...] = ()


class OverLimitError(RejectedInput):
    """The template used more than it may; it is not rendered before ``until``, of the monotonic clock."""

    def __init__(self, *problems: Problem, step: str = "", until: float = 0.0) -> None:
        self.until = until
        super().__init__(*problems, step=step)


class TemplateProcess:
    """Renders templates from the cluster; starts its process when first needed, and again when that ended.

    Safe to call from several threads; :meth:`close` ends the process.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._fresh = True
        self._overdue: dict[str, _Overdue] = {}
        """By the template's name, never its source: one edit each second would give a new budget each second."""
        self.started = 0

    def render(self, template: ClusterTemplate) -> str:
        """Return the text.

        A template that used more than it may is not tried again for a while, whatever its values and its source:
        other templates wait for it meanwhile.

        Raises:
            RejectedInput: the template fails, uses more than it may, or its process cannot be started.
        """
        request = msgspec.json.encode(
            Request(
                template.text,
                dict(template.names),
                dict(template.required),
                max(1, round(self._limits.timeout_s)),
                self._limits.output_bytes,
            ),
            enc_hook=dict,
        )
        with self._lock:
            self._refuse_overdue(template)
            began = time.monotonic()
            try:
                answer = self._ask(template.name, request)
            except OverLimitError as error:
                error.until = self._back_off(template, error.problems, time.monotonic() - began)
                raise
            self._overdue.pop(template.name, None)
            if answer.text is None:
                place = f"{template.name} line {answer.line}" if answer.line else template.name
                raise RejectedInput(Problem(place, answer.message, answer.remedy), step=Step.RENDER)
            return answer.text

    def _refuse_overdue(self, template: ClusterTemplate) -> None:
        overdue = self._overdue.get(template.name)
        if overdue is None or time.monotonic() >= overdue.until:
            return
        problems = overdue.problems
        if overdue.source != template.text:
            message = f"is not rendered yet: a former version took longer than {self._limits.timeout_s:g} s"
            problems = (Problem(template.name, message, f"it is tried within {overdue.delay_s:g} s"),)
        raise OverLimitError(*problems, step=Step.RENDER, until=overdue.until)

    def _back_off(self, template: ClusterTemplate, problems: tuple[Problem, ...], took_s: float) -> float:
        """Return until when the template is not rendered again."""
        limit_s = self._limits.timeout_s
        if took_s < limit_s / 2:
            return time.monotonic() + limit_s  # the process died of something else
        overdue = self._overdue.pop(template.name, None)
        overdue = overdue or _Overdue(Backoff(first_s=limit_s, last_s=limit_s * _MOST_LIMITS))
        overdue.delay_s = overdue.backoff.delay_s()
        overdue.until = time.monotonic() + overdue.delay_s
        overdue.source, overdue.problems = template.text, problems
        self._overdue[template.name] = overdue
        # Templates change, and a process lives long: forget the oldest.
        while len(self._overdue) > _MOST_REMEMBERED:
            del self._overdue[next(iter(self._overdue))]
        return overdue.until

    def interrupt(self) -> None:
        """End the rendering that runs in another thread, if any."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        self.interrupt()
        with self._lock:
            self._end()

    def _ask(self, name: str, request: bytes) -> Answer:
        process = self._running()
        deadline_s = time.monotonic() + self._limits.timeout_s + (_START_S if self._fresh else 0.0)
        try:
            body = _exchange(process, request, deadline_s, self._limits.output_bytes * 6 + 4096)
            answer = msgspec.json.decode(body, type=Answer)
        # TimeoutError is an OSError. A template that broke out of the sandbox may answer anything: a million brackets.
        except (OSError, EOFError, RecursionError, UnicodeDecodeError, msgspec.DecodeError):
            self._end()
            message = f"the template takes longer than {self._limits.timeout_s:g} s, or more memory than it may have"
            remedy = "make it simpler, or raise the limits in the section cluster_templates"
            raise OverLimitError(Problem(name, message, remedy), step=Step.RENDER) from None
        self._fresh = False
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        argv = [sys.executable, "-I", "-c", _PROGRAM, _ROOT, str(self._limits.memory_bytes)]
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, bufsize=0
            )
        except OSError as error:
            problem = Problem(sys.executable, f"cannot be run for a template: {error.strerror}", "is memory short?")
            raise RejectedInput(problem, step=Step.RENDER) from error
        self._fresh = True
        self.started += 1
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
        log.debug("template_process.started", pid=self._process.pid)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        process.kill()
        process.wait()


def _exchange(process: subprocess.Popen[bytes], request: bytes, deadline_s: float, most_bytes: int) -> bytes:
    """Send a request and return the answer's body.

    Raises:
        TimeoutError: it did not come in time.
        EOFError: the process ended, or its answer is larger than ``most_bytes``.
        OSError: the process ended.
    """
    if process.stdin is None or process.stdout is None:
        raise EOFError
    sending = memoryview(len(request).to_bytes(_HEAD, "big") + request)
    received = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while True:
            left_s = deadline_s - time.monotonic()
            ready = selector.select(max(0.0, left_s))
            if not ready and left_s <= 0:
                raise TimeoutError
            for key, _events in ready:
                if key.fileobj is process.stdin:
                    sending = sending[os.write(key.fd, sending[: 1 << 20]) :]
                    if not sending:
                        selector.unregister(process.stdin)
                else:
                    received += _some(key.fd)
            if (body := _body(received, most_bytes)) is not None:
                return body


def _some(descriptor: int) -> bytes:
    part = os.read(descriptor, 1 << 20)
    if not part:
        raise EOFError
    return part


def _body(received: bytearray, most_bytes: int) -> bytes | None:
    """Return the whole body, or None while some of it is missing."""
    if len(received) < _HEAD:
        return None
    length = int.from_bytes(received[:_HEAD], "big")
    if length > most_bytes:
        raise EOFError
    return bytes(received[_HEAD : _HEAD + length]) if len(received) >= _HEAD + length else None
