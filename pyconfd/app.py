"""The composition root: the only place that knows every part. The commands call nothing else."""

import difflib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

import msgspec
import structlog

from pyconfd import __version__, wiring
from pyconfd import fragments as shipped
from pyconfd.daemon.loop import EXIT_OK, Daemon, LoopSettings
from pyconfd.daemon.notify import SystemdNotifier
from pyconfd.daemon.ports import World
from pyconfd.errors import ConfigurationError, Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.check import haproxy_version
from pyconfd.haproxy.marker import mark
from pyconfd.model.context import Refusal
from pyconfd.model.plan import Noop, Plan
from pyconfd.model.rendering import OutputFile, Piece
from pyconfd.model.snapshot import Resource
from pyconfd.model.status import Phase
from pyconfd.settings import Resolved, Settings, resolve_again
from pyconfd.sources.file import write_snapshot
from pyconfd.sources.kubernetes.rbac import manifest
from pyconfd.sources.kubernetes.source import KubernetesSource
from pyconfd.status import document
from pyconfd.status.logging import configure
from pyconfd.status.report import StatusFile, read_report
from pyconfd.status.server import StatusServer
from pyconfd.status.text import render_text
from pyconfd.wiring import Holds, SystemClock

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendering: the text, its pieces, and the files beside it."""

    text: str
    pieces: tuple[Piece, ...]
    files: tuple[OutputFile, ...] = ()
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A rendering that HAProxy accepts."""

    refused: tuple[Refusal, ...]
    notes: tuple[str, ...]
    haproxy_version: str


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What would be done; ``diff`` is unified, from what is installed to what would be."""

    plan: Plan
    diff: str
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What the daemon says, or what it left behind."""

    alive: bool
    status: Mapping[str, Any] | None
    text: str
    exit_code: int


def run(settings: Resolved) -> int:
    """Run the daemon until it is asked to stop; SIGHUP begins anew with the settings as they are then."""
    notifier = SystemdNotifier()
    current = settings
    while True:
        configure(current.settings.log.level, current.settings.log.format)
        log.info("daemon.started", version=__version__, pid=os.getpid(), config=current.config_found and current.config)
        for note in current.notes:
            log.warning("settings.noted", note=note)
        code, again = _run_until_signal(current.settings, notifier)
        if not again:
            notifier.close()
            return code
        notifier.reloading("reading the settings again")
        try:
            current = resolve_again(current)
        except ConfigurationError as error:
            for problem in error.problems:
                log.error("settings.refused", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all


def _run_until_signal(settings: Settings, notifier: SystemdNotifier) -> tuple[int, bool]:
    """Run one daemon; give its exit status, and whether SIGHUP asked for another with fresh settings."""
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    for problem in balancer.startup():
        log.warning("setup.problem", place=problem.place, problem=problem.message, remedy=problem.remedy)
    daemon = _daemon(settings, balancer, notifier)
    try:
        with _signals(daemon) as hangup, _status_page(settings, daemon):
            code = daemon.run()
    finally:
        balancer.close()
    return code, hangup.is_set() and code == EXIT_OK


def _daemon(settings: Settings, balancer: Balancer, notifier: SystemdNotifier) -> Daemon:
    holds = Holds(settings.runtime_dir)
    status_file = StatusFile(settings.runtime_dir)
    source = KubernetesSource(settings.kubernetes, wiring.resources(settings), named=wiring.named(settings))
    with suppress(PyconfdError):  # the loop reads the fragments itself and says what is wrong
        note = wiring.order_note(wiring.fragments(settings))
        if note:
            log.warning("fragments.order_differs", note=note)
    world = World(
        source=source,
        balancer=balancer,
        notifier=notifier,
        clock=SystemClock(),
        read_fragments=lambda: wiring.fragments(settings),
        make_renderer=lambda found: wiring.renderer(settings, found),
        preset_options=lambda renderer: wiring.preset_options(settings, renderer),
        allowed_holds=holds.allowed,
        forget_holds=holds.forget,
        publish=status_file.update,
    )
    return Daemon(world, LoopSettings(wiring.apply_settings(settings), settings.presets.use, __version__, os.getpid()))


@contextmanager
def _signals(daemon: Daemon) -> Iterator[threading.Event]:
    """Let SIGTERM and SIGINT stop the daemon, and SIGHUP too, noted in the event that is given."""
    hangup = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGHUP:
            hangup.set()
        daemon.stop()

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    former = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield hangup
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def _status_page(settings: Settings, daemon: Daemon) -> Iterator[None]:
    """Serve the status page; that it cannot listen stops nothing else."""
    if not settings.status.listen:
        yield
        return
    server = StatusServer(settings.status.listen, daemon.status)
    try:
        server.start()
    except TransientError as error:
        problem = error.problems[0]
        log.error("status_page.failed", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all
    try:
        yield
    finally:
        server.stop()


def _log_for_command() -> None:
    """Let a command that prints something say only what is wrong, and not on standard output."""
    configure("WARNING", "text")


def render_once(settings: Settings, snapshot_files: tuple[str, ...]) -> Rendered:
    """Render; from the cluster where no file is named."""
    _log_for_command()
    once = wiring.render_once(settings, snapshot_files, None)
    rendering = once.rendered.rendering
    return Rendered(rendering.text, rendering.pieces, rendering.files, once.refused, once.notes)


def check_once(settings: Settings, snapshot_files: tuple[str, ...]) -> CheckReport:
    """Render and let HAProxy check."""
    _log_for_command()
    once = wiring.render_once(settings, snapshot_files, None)
    Balancer(settings.haproxy, settings.apply, settings.state_dir).check(once.rendered.rendering)
    return CheckReport(once.refused, once.notes, haproxy_version(settings.haproxy.binary))


def plan_once(settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
    """Render, check and compare with what is applied."""
    _log_for_command()
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    last = balancer.last_good()
    once = wiring.render_once(settings, snapshot_files, last.generation.curdate if last else None)
    rendering = once.rendered.rendering
    plan = balancer.plan(rendering)
    if not isinstance(plan, Noop):
        balancer.check(rendering)
    installed = balancer.observe(rendering.files).installed_text or ""
    wanted = mark(rendering.text, rendering.digest)
    lines = difflib.unified_diff(
        installed.splitlines(), wanted.splitlines(), settings.haproxy.conf, "what would be written", lineterm=""
    )
    return PlanReport(plan, "".join(f"{line}\n" for line in lines), once.refused)


def record(settings: Settings, path: str) -> str:
    """Write what the cluster holds to a file, Secrets redacted; give a sentence about it.

    Raises:
        RejectedInput: the file cannot be written.
    """
    _log_for_command()
    snapshot, refused = wiring.snapshot_once(settings, ())
    try:
        with open(path, "w", encoding="utf-8", opener=_private) as file:
            file.write(write_snapshot(snapshot))
    except OSError as error:
        raise RejectedInput(Problem(path, f"cannot be written: {error.strerror}", "name another file")) from error
    count = sum(len(getattr(snapshot, resource.field)) for resource in Resource)
    left_out = f"; {len(refused)} unreadable objects were left out" if refused else ""
    return f"{count} objects written to {path}, Secrets redacted{left_out}."


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def rbac(settings: Settings) -> str:
    """Give the manifest of the permissions that these settings need."""
    secrets = settings.kubernetes.secret_namespaces
    return manifest(wiring.resources(settings), secrets, named=wiring.named(settings))


def status(settings: Settings) -> StatusReport:
    """Ask the daemon, or read what it left."""
    report = read_report(settings)
    values = msgspec.json.decode(document.encode(report.status)) if report.status else None
    return StatusReport(report.running, values, render_text(report, colour=sys.stdout.isatty()), report.exit_code)


def allow(settings: Settings, hold_id: str) -> str:
    """Let a held change through once.

    Raises:
        RejectedInput: the daemon does not run, holds nothing, or holds another change.
        TransientError: the permission cannot be written.
    """
    report = read_report(settings)
    held = report.status if report.running else None
    if held is None:
        raise RejectedInput(Problem("allow", "no daemon runs that could hold a change", "see pyconfd status"))
    if held.phase is not Phase.HELD or held.hold_id != hold_id:
        now = f"what is held is {held.hold_id}" if held.hold_id else "nothing is held"
        raise RejectedInput(Problem("allow", f"no change is held as {hold_id!r}; {now}", "see pyconfd status"))
    try:
        Holds(settings.runtime_dir).allow(hold_id)
    except OSError as error:
        problem = Problem(settings.runtime_dir, f"cannot be written: {error.strerror}", "run it as root or as pyconfd")
        raise TransientError(problem) from error
    return f"The change {hold_id} will be applied within two seconds; pyconfd status shows it."


def fragments_dir() -> str:
    """Give the directory of the shipped fragments."""
    return shipped.directory()
