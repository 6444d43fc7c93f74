"""Keeps a loop running as a service: signals, new settings, the status page, and all parts given back at the end."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from pyconfd import __version__
from pyconfd.daemon.notify import SystemdNotifier
from pyconfd.daemon.runner import EXIT_OK, Loop, run_until_stopped
from pyconfd.daemon.signals import Signals
from pyconfd.errors import Problem, PyconfdError
from pyconfd.settings import Resolved, Settings, resolve_again
from pyconfd.status.logging import configure
from pyconfd.status.page import StatusPage
from pyconfd.status.report import StatusFile
from pyconfd.status.server import StatusServer
from pyconfd.wiring import Holds, SystemClock

log = structlog.get_logger(__name__)


class _Balancer(Protocol):
    def startup(self) -> tuple[Problem, ...]: ...

    def close(self) -> None: ...


_SomeBalancer = TypeVar("_SomeBalancer", bound=_Balancer)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every loop has around it, whatever it does; ``parts`` are closed after it."""

    notifier: SystemdNotifier
    clock: SystemClock
    holds: Holds
    status_file: StatusFile
    page: StatusPage
    parts: ExitStack

    def open(self, balancer: _SomeBalancer) -> _SomeBalancer:
        """Take the balancer into use until the loop has ended, and say what is in its way.

        Raises:
            TransientError: another pyconfd uses the state directory, or it cannot be written.
        """
        self.parts.callback(balancer.close)
        warn("setup.problem", balancer.startup())
        return balancer


Build = Callable[[Settings, Surroundings], Loop]
"""Makes a loop; raises ConfigurationError where the settings are of no use, TransientError where it cannot be yet."""


def serve(resolved: Resolved, build: Build) -> int:
    """Run a loop until a signal ends it; SIGHUP begins anew with the settings as they are then."""
    notifier = SystemdNotifier()
    with Signals() as signals:
        instance = _Instance(resolved, build, notifier)
        while (code := instance.run(signals)) == EXIT_OK and signals.asks_for_new_settings():
            notifier.reloading("reading the settings again")
            instance = _renewed(instance.resolved, build, notifier)
        notifier.stopping()
        log.info("daemon.stopped", pid=os.getpid(), code=code)
        notifier.close()
    return code


def warn(event: str, problems: tuple[Problem, ...]) -> None:
    """Log problems that stop nothing."""
    for problem in problems:
        log.warning(event, place=problem.place, problem=problem.message, remedy=problem.remedy)


def _renewed(former: Resolved, build: Build, notifier: SystemdNotifier) -> "_Instance":
    """Begin anew with the settings as they are now; with the former ones where those cannot be used."""
    try:
        return _Instance(resolve_again(former), build, notifier)
    except PyconfdError as error:
        for problem in error.problems:
            log.error("settings.refused", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all
    return _Instance(former, build, notifier)


class _Instance:
    """One loop with its parts. Where one cannot be had, nothing is left behind; raises what ``build`` raises."""

    def __init__(self, resolved: Resolved, build: Build, notifier: SystemdNotifier) -> None:
        settings = resolved.settings
        self.resolved = resolved
        configure(settings.log.level, settings.log.format)
        config = resolved.config if resolved.config_found else "none"
        log.info("daemon.started", version=__version__, pid=os.getpid(), config=config)
        for note in resolved.notes:
            log.warning("settings.noted", note=note)
        with ExitStack() as stack:
            holds, status_file = Holds(settings.runtime_dir), StatusFile(settings.runtime_dir)
            page = StatusPage()
            self._loop = build(settings, Surroundings(notifier, SystemClock(), holds, status_file, page, stack))
            holds.prepare()
            stack.callback(page.stop)
            if settings.status.listen:
                page.serve(StatusServer(settings.status.listen, self._loop.status))
            self._parts = stack.pop_all()

    def run(self, signals: Signals) -> int:
        """Run until a signal comes; give the exit status, and all parts back."""
        with self._parts:
            signals.stop_with(self._loop.mailbox)
            return run_until_stopped(self._loop)
