"""Runs a loop, whichever it is, until it is asked to stop. Here, and nowhere else, any exception is caught: a bug."""

from typing import Protocol

import structlog

from pyconfd.daemon.mailbox import Mailbox
from pyconfd.model.status import Status

log = structlog.get_logger(__name__)

EXIT_OK = 0
EXIT_BUG = 70
"""Source: sysexits.h, EX_SOFTWARE."""


class Loop(Protocol):
    """What the daemon, a producer and a consumer are: steps that are taken when there is something to do."""

    @property
    def mailbox(self) -> Mailbox:
        """What wakes it, and says that it is to end."""
        ...

    def start(self) -> None:
        """Begin to read."""
        ...

    def wait_s(self) -> float:
        """Return the seconds until there is something to do even if nothing happens."""
        ...

    def step(self, posts: int) -> None:
        """Do what is due; ``posts`` changes came since the last step."""
        ...

    def close(self) -> None:
        """End all threads that :meth:`start` began."""
        ...

    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads."""
        ...


def run_until_stopped(loop: Loop) -> int:
    """Run until ``loop.mailbox`` is stopped; give the exit status."""
    mailbox = loop.mailbox
    try:
        loop.start()
        while not mailbox.stopped:
            loop.step(mailbox.take(loop.wait_s()))
    except Exception:
        log.exception("loop.crashed")
        return EXIT_BUG
    finally:
        loop.close()
    return EXIT_OK
