"""What may take its time, in a thread beside the loop: a disk or a log that hangs never stops the hook."""

from collections.abc import Callable
from threading import Condition, Thread

SLOW_S = 2.0
"""A job that takes so long is told."""
LEAVE_S = 2.0
"""How long :meth:`Background.close` waits for what is under way."""

Job = Callable[[], str]
"""Gives "" or why it failed."""


class Background:
    """Does jobs one after the other; of several that wait under one name only the last is done."""

    def __init__(self, name: str) -> None:
        self._wake = Condition()
        self._waiting: dict[str, Job] = {}
        self._doing = ""
        self._now = self._since = 0.0
        self._errors: dict[str, str] = {}
        self._leaving = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, name: str, job: Job, now: float) -> None:
        """Have a job done; ``now`` is monotonic, in seconds."""
        with self._wake:
            self._now = now
            if not self._waiting and not self._doing:
                self._since = now
            self._waiting[name] = job
            self._wake.notify()

    def error(self, name: str, now: float) -> str:
        """Return why the job of that name failed last, or what it waits for; "" where all is well."""
        with self._wake:
            self._now = now
            if name in {self._doing, *self._waiting} and now - self._since >= SLOW_S:
                return "it does not come to an end: does the disk hang?"
            return self._errors.get(name, "")

    def close(self) -> None:
        """Do what waits, unless that hangs."""
        with self._wake:
            self._leaving = True
            self._wake.notify()
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._waiting:
                    self._doing = ""
                self._wake.wait_for(lambda: self._waiting or self._leaving)
                if not self._waiting:
                    return
                if self._doing:  # the one before it came to its end
                    self._since = self._now
                self._doing = next(iter(self._waiting))
                job = self._waiting.pop(self._doing)
            error = job()
            with self._wake:
                self._errors[self._doing] = error
