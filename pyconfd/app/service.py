"""Run a loop as a service: signals, new settings, the status page, and all parts closed at the end."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from pyconfd import __version__
from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.daemon.base_loop import EXIT_OK, Loop, run_until_stopped
from pyconfd.daemon.signals import Signals
from pyconfd.errors import Problem, PyconfdError
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.runtime.route_figures import FiguresWatch, figures_file
from pyconfd.settings import Resolved, Settings, TotalLoss, resolve_again
from pyconfd.settings.table import CONFIG_FLAG, TABLE
from pyconfd.settings.vip import VipSettings
from pyconfd.status.document import StatusFile
from pyconfd.status.logging import configure
from pyconfd.status.page import StatusPage
from pyconfd.status.page_access import PageAccess
from pyconfd.status.page_data import RecentChanges
from pyconfd.system.backoff import Backoff
from pyconfd.system.clock import SystemClock
from pyconfd.system.notify import SystemdNotifier
from pyconfd.system.state_file import StateFile
from pyconfd.vip.output import written_report
from pyconfd.vip.report import OLD_S

log = structlog.get_logger(__name__)


class _OpenedBalancer(Protocol):
    def startup(self) -> tuple[Problem, ...]: ...

    def close(self) -> None: ...


_SomeBalancer = TypeVar("_SomeBalancer", bound=_OpenedBalancer)


class Holds:
    """What operators allowed: one empty file for each hold, named by its id."""

    def __init__(self, runtime_dir: str) -> None:
        self._folder = Path(runtime_dir) / "allowed"

    def prepare(self) -> None:
        """Create the folder, so that it is the daemon's own: what root puts there can then be seen and forgotten."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o770, parents=True, exist_ok=True)

    def allow(self, hold_id: str) -> None:
        """Allow this hold; raises OSError."""
        # Others of the group may write there: no link of theirs is followed by a root who allows something.
        os.close(os.open(self._folder / hold_id, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))

    def allowed(self) -> frozenset[str]:
        """Return the holds that were allowed."""
        try:
            return frozenset(entry.name for entry in self._folder.iterdir())
        except OSError:
            return frozenset()

    def forget(self) -> None:
        """Remove all permissions: each is for one change."""
        for hold_id in self.allowed():
            with suppress(OSError):
                (self._folder / hold_id).unlink()


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What every loop has around it, whatever it does; ``parts`` are closed after it.

    ``restart`` ends the loop and begins another one with the same settings.
    ``refused`` is what was wrong with newer settings, so that these are still in force. ``watched`` say what is wrong
    with parts that live beside the loop.
    """

    notifier: SystemdNotifier
    clock: SystemClock
    holds: Holds
    status_file: StatusFile
    page: StatusPage
    parts: ExitStack
    restart: Callable[[], None] = lambda: None
    refused: tuple[Problem, ...] = ()
    watched: list[Callable[[], tuple[Problem, ...]]] = field(default_factory=list)

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong here; asked each second."""
        watched = (problem for problems in self.watched for problem in problems())
        return (*self.refused, *self.page.problems(), *watched)

    def open(self, balancer: _SomeBalancer) -> _SomeBalancer:
        """Start the balancer, and what counts its routes, to be closed after the loop; log what is in its way.

        Raises:
            TransientError: another pyconfd uses the state directory, or it cannot be written.
        """
        self.parts.callback(balancer.close)
        warn("setup.problem", balancer.startup())
        if isinstance(balancer, Balancer):
            file = figures_file(balancer.state_dir)
            figures = FiguresWatch(lambda: balancer.sockets, lambda: balancer.master_socket, file, balancer.spares_of)
            self.parts.callback(figures.stop)
            figures.start()
            balancer.before_reload = figures.read
            self.page.route_figures = figures.newest
            self.page.data.samples, self.page.data.recent = figures.history.samples, figures.history.recent
            self.page.data.of_backend = figures.history.of_backend
        return balancer


Build = Callable[[Settings, ServiceContext], Loop]
"""Makes a loop; raises ConfigurationError where the settings are of no use, TransientError where it cannot be yet."""


def serve(resolved: Resolved, build: Build) -> int:
    """Run a loop until a signal ends it; SIGHUP starts again with the settings as they are then."""
    notifier = SystemdNotifier()
    with Signals() as signals:
        instance = _Instance(resolved, build, notifier, signals)
        while (code := instance.run()) == EXIT_OK:
            if signals.asks_for_new_settings():
                notifier.reloading("reading the settings again")
                begun = time.monotonic()
                former = instance.resolved
                refused: tuple[Problem, ...] = ()
                try:
                    instance = _Instance(resolve_again(former), build, notifier, signals)
                except PyconfdError as error:
                    refused = _refused(error.problems)
                    instance = _Instance(former, build, notifier, signals, refused)
                result = SettingsResult(os.getpid(), begun, refused)
                settings_result_file(instance.resolved.settings).save(result)
            elif signals.asks_for_restart():
                instance = _Instance(instance.resolved, build, notifier, signals)
            else:
                break
        notifier.stopping()
        log.info("daemon.stopped", pid=os.getpid(), code=code)
    return code


def _floating(vip: VipSettings) -> dict[str, Any]:
    report = written_report(vip)
    return report | {"is_old": time.time() - report.get("at", 0.0) > OLD_S} if report else {}


def _refused(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Log the problems of newer settings, and return them with what they mean for the running ones."""
    for problem in problems:
        log.error("settings.refused", place=problem.place, problem=problem.message, remedy=problem.remedy)
    note = "the former settings are still in force"
    return tuple(replace(problem, message=f"{problem.message}; {note}") for problem in problems)


def warn(event: str, problems: tuple[Problem, ...]) -> None:
    """Log problems that stop nothing."""
    for problem in problems:
        log.warning(event, place=problem.place, problem=problem.message, remedy=problem.remedy)


def removal_rules(settings: Settings) -> RemovalRules:
    """Return what removal protection obeys."""
    own = settings.removal_protection
    return RemovalRules(
        total=settings.apply.total_loss is TotalLoss.HOLD,
        share=own.share_percent / 100,
        least=own.least,
        window_s=own.window_s,
        persist_s=own.persist_s,
    )


SETTINGS_RESULT_FILE = "settings-read.json"
"""The result is left in the runtime directory: a broken file of settings may name no page to ask."""


class SettingsResult(msgspec.Struct, frozen=True):
    """What process ``pid`` made of its settings when it began to read them at ``begun`` (``time.monotonic()``)."""

    pid: int
    begun: float
    problems: tuple[Problem, ...] = ()


def settings_result_file(settings: Settings) -> StateFile[SettingsResult]:
    """Return where the daemon leaves its result for ``pyconfd reload``."""
    effect = "pyconfd reload waits for it in vain; the settings are in force all the same"
    return StateFile(Path(settings.runtime_dir) / SETTINGS_RESULT_FILE, SettingsResult, effect=effect)


class _Instance:
    """One loop with its parts. Where one cannot be had, nothing is left behind; raises what ``build`` raises."""

    def __init__(
        self,
        resolved: Resolved,
        build: Build,
        notifier: SystemdNotifier,
        signals: Signals,
        refused: tuple[Problem, ...] = (),
    ) -> None:
        settings = resolved.settings
        self.resolved = resolved
        self._signals = signals
        configure(settings.log.level, settings.log.format)
        config = resolved.config if resolved.config_found else "none"
        log.info("daemon.started", version=__version__, pid=os.getpid(), config=config)
        for note in resolved.notes:
            log.warning("settings.noted", note=note)
        with ExitStack() as stack:
            holds, status_file = Holds(settings.runtime_dir), StatusFile(settings.runtime_dir)
            page = StatusPage()
            around = ServiceContext(notifier, SystemClock(), holds, status_file, page, stack, signals.restart, refused)
            stack.callback(status_file.close)
            self._loop = build(settings, around)
            holds.prepare()
            stack.callback(page.stop)
            changes = RecentChanges(settings.runtime_dir)
            stack.callback(changes.close)
            page.data.changes = changes
            if settings.vip.interface:
                page.data.floating = partial(_floating, settings.vip)
            if settings.status.listen:
                page.serve(settings.status.listen, self._loop.status, PageAccess(settings.status))
            self._parts = stack.pop_all()

    def run(self) -> int:
        """Run until a signal comes; close all parts and return the exit status."""
        with self._parts:
            self._signals.stop_with(self._loop.mailbox)
            return run_until_stopped(self._loop)


# DNS beside a daemon, by setting: a process of its own, so that its failures never touch the loop.

_DNS_STEADY_S = 60.0
"""A process that ran for so long is started again at once when it ends."""
_DNS_STOPPING_S = 2.0
"""Its requests may hang for longer: then it is killed, for the daemon must not wait, and each change is whole or not at
all."""


def with_dns(build: Build, resolved: Resolved) -> Build:
    """Return what makes a loop and, where the settings say so, the process that keeps the names beside it."""

    def both(settings: Settings, around: ServiceContext) -> Loop:
        loop = build(settings, around)
        if settings.dns.in_daemon:
            process = DnsProcess(_arguments(resolved.flags))
            around.parts.callback(process.stop)
            around.watched.append(process.problems)
            process.start()
        return loop

    return both


def _arguments(flags: Mapping[str, object]) -> list[str]:
    """Return the flags of this process again: the environment and the file are read by the other one itself."""
    found = []
    for path, value in flags.items():
        flags_of = (CONFIG_FLAG,) if path == "config" else TABLE[path].flags
        flag = next(flag for flag in flags_of if flag.startswith("--"))
        texts = value if isinstance(value, list | tuple) else [value]
        found += [f"{flag}={text}" for text in texts]
    return found


class DnsProcess:
    """``pyconfd dns run`` as a child that is started again whenever it ends; it ends when this process does."""

    def __init__(self, arguments: list[str]) -> None:
        self._argv = [sys.executable, "-m", "pyconfd", "dns", "run", *arguments, "--child-of", str(os.getpid())]
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: Problem | None = None
        self._thread = threading.Thread(target=self._run, name="dns", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def problems(self) -> tuple[Problem, ...]:
        """Return that it ended by itself, until it has run for a while again."""
        return (self._problem,) if self._problem else ()

    def stop(self) -> None:
        """End it, which changes no record."""
        self._stopping.set()
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
        if self._thread.is_alive():
            self._thread.join(_DNS_STOPPING_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        backoff = Backoff(first_s=1.0, last_s=60.0)
        while not self._stopping.is_set():
            try:
                with self._lock:
                    if self._stopping.is_set():
                        return
                    self._process = process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL)
            except OSError as error:
                self._problem = Problem("dns", f"its process cannot be started: {error.strerror}")
            else:
                try:
                    code = process.wait(_DNS_STEADY_S)
                except subprocess.TimeoutExpired:
                    self._problem = None
                    backoff.reset()
                    code = process.wait()
                remedy = "the log says why; records stay as they are meanwhile"
                self._problem = Problem("dns", f"the process that keeps the names ended with {code}", remedy)
            if not self._stopping.is_set():
                pause_s = backoff.delay_s()
                log.error("dns.ended", problem=str(self._problem), again_in_s=pause_s)
                self._stopping.wait(pause_s)
