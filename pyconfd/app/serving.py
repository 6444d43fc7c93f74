"""Keeps a loop running as a service: signals, new settings, the status page, and all parts given back at the end."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import structlog

from pyconfd import __version__
from pyconfd.app import rereading
from pyconfd.app.holds import Holds
from pyconfd.app.rereading import Verdict
from pyconfd.daemon.runner import EXIT_OK, Loop, run_until_stopped
from pyconfd.daemon.signals import Signals
from pyconfd.errors import Problem, PyconfdError
from pyconfd.guard import Rules
from pyconfd.settings import Resolved, Settings, TotalLoss, resolve_again
from pyconfd.status.logging import configure
from pyconfd.status.page import StatusPage
from pyconfd.status.report import StatusFile
from pyconfd.status.server import StatusServer
from pyconfd.system.notify import SystemdNotifier
from pyconfd.wiring import SystemClock

log = structlog.get_logger(__name__)


class _Balancer(Protocol):
    def startup(self) -> tuple[Problem, ...]: ...

    def close(self) -> None: ...


_SomeBalancer = TypeVar("_SomeBalancer", bound=_Balancer)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every loop has around it, whatever it does; ``parts`` are closed after it.

    ``begin_anew`` ends the loop and begins another one with the same settings.
    ``refused`` is what was wrong with newer settings, so that these are still in force. ``watched`` say what is wrong
    with parts that live beside the loop.
    """

    notifier: SystemdNotifier
    clock: SystemClock
    holds: Holds
    status_file: StatusFile
    page: StatusPage
    parts: ExitStack
    begin_anew: Callable[[], None] = lambda: None
    refused: tuple[Problem, ...] = ()
    watched: list[Callable[[], tuple[Problem, ...]]] = field(default_factory=list)

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong here; asked each second."""
        watched = (problem for problems in self.watched for problem in problems())
        return (*self.refused, *self.page.problems(), *watched)

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
        parts = _Parts(build, notifier, signals)
        instance = _Instance(resolved, parts)
        while (code := instance.run()) == EXIT_OK:
            if signals.asks_for_new_settings():
                notifier.reloading("reading the settings again")
                begun = time.monotonic()
                instance = _renewed(instance.resolved, parts)
                verdict = Verdict(os.getpid(), begun, instance.refused)
                rereading.keep(instance.resolved.settings, verdict)
            elif signals.asks_to_begin_anew():
                instance = _Instance(instance.resolved, parts)
            else:
                break
        notifier.stopping()
        log.info("daemon.stopped", pid=os.getpid(), code=code)
        notifier.close()
    return code


def warn(event: str, problems: tuple[Problem, ...]) -> None:
    """Log problems that stop nothing."""
    for problem in problems:
        log.warning(event, place=problem.place, problem=problem.message, remedy=problem.remedy)


def guard_rules(settings: Settings) -> Rules:
    """Return what the guard obeys."""
    own = settings.guard
    return Rules(
        total=settings.apply.total_loss is TotalLoss.HOLD,
        share=own.share_percent / 100,
        least=own.least,
        window_s=own.window_s,
        persist_s=own.persist_s,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What outlives the loops."""

    build: Build
    notifier: SystemdNotifier
    signals: Signals


def _renewed(former: Resolved, parts: _Parts) -> "_Instance":
    """Begin anew with the settings as they are now; with the former ones where those cannot be used."""
    try:
        return _Instance(resolve_again(former), parts)
    except PyconfdError as error:
        refused = tuple(_not_in_force(problem) for problem in error.problems)
        for problem in error.problems:
            log.error("settings.refused", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all
    return _Instance(former, parts, refused)


def _not_in_force(problem: Problem) -> Problem:
    """Say of a problem of newer settings what it means for those who look at the status later."""
    return replace(problem, message=f"{problem.message}; the former settings are still in force")


class _Instance:
    """One loop with its parts. Where one cannot be had, nothing is left behind; raises what ``build`` raises."""

    def __init__(self, resolved: Resolved, parts: _Parts, refused: tuple[Problem, ...] = ()) -> None:
        settings = resolved.settings
        self.resolved, self.refused = resolved, refused
        self._signals = parts.signals
        configure(settings.log.level, settings.log.format)
        config = resolved.config if resolved.config_found else "none"
        log.info("daemon.started", version=__version__, pid=os.getpid(), config=config)
        for note in resolved.notes:
            log.warning("settings.noted", note=note)
        with ExitStack() as stack:
            holds, status_file = Holds(settings.runtime_dir), StatusFile(settings.runtime_dir)
            page = StatusPage()
            around = Surroundings(
                parts.notifier, SystemClock(), holds, status_file, page, stack, parts.signals.begin_anew, refused
            )
            self._loop = parts.build(settings, around)
            holds.prepare()
            stack.callback(page.stop)
            if settings.status.listen:
                page.serve(StatusServer(settings.status.listen, self._loop.status, explain=page.explain))
            self._parts = stack.pop_all()

    def run(self) -> int:
        """Run until a signal comes; give the exit status, and all parts back."""
        with self._parts:
            self._signals.stop_with(self._loop.mailbox)
            return run_until_stopped(self._loop)
