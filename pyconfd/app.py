"""The composition root: the only place that knows every part. The commands call nothing else."""

import difflib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from pyconfd import __version__, guard, sharing, wiring
from pyconfd import fragments as shipped
from pyconfd.daemon.loop import EXIT_OK, Daemon, LoopSettings
from pyconfd.daemon.notify import SystemdNotifier
from pyconfd.daemon.ports import RestoringBalancer, World
from pyconfd.daemon.signals import Signals
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.check import haproxy_version
from pyconfd.haproxy.marker import mark
from pyconfd.model.context import Refusal
from pyconfd.model.outcome import Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import FragmentSet, OutputFile, Piece
from pyconfd.model.snapshot import Resource
from pyconfd.model.status import Phase
from pyconfd.settings import Resolved, Settings, TotalLoss, resolve_again
from pyconfd.sources.file import write_snapshot
from pyconfd.sources.fragments import SettledFragments
from pyconfd.sources.kubernetes.rbac import manifest
from pyconfd.status import document
from pyconfd.status.logging import configure
from pyconfd.status.report import StatusFile, read_report
from pyconfd.status.server import StatusServer
from pyconfd.status.text import render_text
from pyconfd.targets.worker import Targets as Workers
from pyconfd.wiring import Holds, SystemClock

log = structlog.get_logger(__name__)

_SETTLING_S = 0.05
"""Far longer than an editor needs between truncating a file and writing it, far shorter than anybody notices."""


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
    notes: tuple[str, ...] = ()


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
    with Signals() as signals:
        instance = _Instance(settings, notifier)
        while (code := instance.run(signals)) == EXIT_OK and signals.asks_for_new_settings():
            notifier.reloading("reading the settings again")
            instance = _renewed(instance.resolved, notifier)
        notifier.stopping()
        log.info("daemon.stopped", pid=os.getpid(), code=code)
        notifier.close()
    return code


def _renewed(former: Resolved, notifier: SystemdNotifier) -> "_Instance":
    """Begin anew with the settings as they are now; with the former ones where those cannot be used."""
    try:
        return _Instance(resolve_again(former), notifier)
    except PyconfdError as error:
        for problem in error.problems:
            log.error("settings.refused", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all
    return _Instance(former, notifier)


class _Instance:
    """One daemon with its parts. Where one cannot be had, nothing is left behind.

    Raises:
        ConfigurationError: the cluster's settings are of no use.
        TransientError: another pyconfd uses the state directory, or it cannot be written.
    """

    def __init__(self, resolved: Resolved, notifier: SystemdNotifier) -> None:
        settings = resolved.settings
        self.resolved = resolved
        configure(settings.log.level, settings.log.format)
        config = resolved.config if resolved.config_found else "none"
        log.info("daemon.started", version=__version__, pid=os.getpid(), config=config)
        for note in resolved.notes:
            log.warning("settings.noted", note=note)
        with ExitStack() as stack:
            targets = wiring.targets(settings)
            balancer = wiring.balancer(settings, targets)
            stack.callback(balancer.close)
            for problem in balancer.startup():
                log.warning("setup.problem", place=problem.place, problem=problem.message, remedy=problem.remedy)
            page = _StatusPage()
            stack.callback(page.stop)
            self._daemon = _daemon(settings, balancer, notifier, page, wiring.workers(settings, targets))
            if settings.status.listen:
                page.serve(StatusServer(settings.status.listen, self._daemon.status))
            self._parts = stack.pop_all()

    def run(self, signals: "Signals") -> int:
        """Run until a signal comes; give the exit status, and all parts back."""
        with self._parts:
            signals.stop_with(self._daemon)
            return self._daemon.run()


def _daemon(
    settings: Settings, balancer: RestoringBalancer, notifier: SystemdNotifier, page: "_StatusPage", targets: Workers
) -> Daemon:
    holds = Holds(settings.runtime_dir)
    holds.prepare()
    status_file = StatusFile(settings.runtime_dir)
    source = wiring.source(settings)
    for note in wiring.preset_notes(settings):
        log.warning("presets.noted", note=note)
    with suppress(PyconfdError):  # the loop reads the fragments itself and says what is wrong
        note = wiring.order_note(wiring.fragments(settings))
        if note:
            log.warning("fragments.order_differs", note=note)
    world = World(
        source=source,
        balancer=balancer,
        notifier=notifier,
        clock=SystemClock(),
        read_fragments=_fragments_reader(settings),
        make_renderer=lambda found: wiring.renderer(settings, found),
        preset_options=lambda renderer: wiring.preset_options(settings, renderer),
        allowed_holds=holds.allowed,
        forget_holds=holds.forget,
        publish=status_file.update,
        other_problems=lambda: (*page.problems(), *targets.problems()),
        targets=targets,
        base_options=wiring.base_options(settings),
    )
    return Daemon(world, LoopSettings(wiring.apply_settings(settings), settings.presets.use, __version__, os.getpid()))


def _fragments_reader(settings: Settings) -> Callable[[], FragmentSet]:
    if not wiring.serves_haproxy(settings):
        return lambda: FragmentSet(())
    return SettledFragments(
        settings.templates.dir,
        lambda: time.sleep(_SETTLING_S),
        may_be_empty=wiring.has_cluster_template(settings),
    ).read


class _StatusPage:
    """The status page; that it cannot listen stops nothing else, and is tried again."""

    def __init__(self) -> None:
        self._server: StatusServer | None = None
        self._problems: tuple[Problem, ...] = ()

    def serve(self, server: StatusServer) -> None:
        """Begin to listen, now or as soon as that is possible."""
        self._server = server
        for problem in self.problems():
            log.error("status_page.failed", place=problem.place, problem=problem.message, remedy=problem.remedy)

    def problems(self) -> tuple[Problem, ...]:
        """Try to listen unless it does; say why it cannot."""
        if self._server is not None and not self._server.address:
            try:
                self._server.start()
            except TransientError as error:
                self._problems = error.problems
            else:
                self._problems = ()
        return self._problems

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.stop()


def _log_for_command() -> None:
    """Let a command that prints something say only what is wrong, and not on standard output."""
    configure("WARNING", "text")


def render_once(settings: Settings, snapshot_files: tuple[str, ...]) -> Rendered:
    """Render; from the cluster where no file is named. Without haproxy, what the targets' templates give."""
    _log_for_command()
    once = wiring.render_once(settings, snapshot_files, None)
    rendering = once.rendered.rendering
    if not wiring.serves_haproxy(settings):
        pieces = tuple(Piece(target.settings.name, text) for target, text in wiring.render_targets(settings, once))
        return Rendered("".join(piece.text for piece in pieces), pieces, (), once.refused, once.notes)
    return Rendered(rendering.text, rendering.pieces, rendering.files, once.refused, once.notes)


def check_once(settings: Settings, snapshot_files: tuple[str, ...]) -> CheckReport:
    """Render and let HAProxy check, and the command of each target."""
    _log_for_command()
    once = wiring.render_once(settings, snapshot_files, None)
    for target, text in wiring.render_targets(settings, once):
        target.check(text)
    if not wiring.serves_haproxy(settings):
        return CheckReport(once.refused, once.notes, "")
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    balancer.check(once.rendered.rendering)
    # From files it may be judged anywhere; from the cluster it is meant for this machine.
    setup = () if snapshot_files else balancer.problems()
    notes = (*once.notes, *(f"{problem.place}: {problem.message}; {problem.remedy}" for problem in setup))
    return CheckReport(once.refused, notes, haproxy_version(settings.haproxy.binary))


def plan_once(settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
    """Render, check and compare with what is applied."""
    _log_for_command()
    if not wiring.serves_haproxy(settings):
        return _plan_targets(settings, wiring.render_once(settings, snapshot_files, None))
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    last = balancer.last_good()
    once = wiring.render_once(settings, snapshot_files, last.generation.curdate if last else None)
    rendering = once.rendered.rendering
    plan = balancer.plan(rendering)
    if not isinstance(plan, Noop):
        balancer.check(rendering)
    installed = balancer.observe(rendering.files).installed_text or ""
    wanted = mark(rendering.text, rendering.digest)
    beside = _plan_targets(settings, once)
    if isinstance(plan, Noop):
        plan = beside.plan
    notes = (*once.notes, *_hold_note(settings, last, once))
    diff = _difference(installed, wanted, settings.haproxy.conf) + beside.diff
    return PlanReport(plan, diff, once.refused, notes)


def _plan_targets(settings: Settings, once: wiring.Once) -> PlanReport:
    """Compare what the targets' templates give with their files; the checks judge what differs."""
    diffs = {}
    for target, text in wiring.render_targets(settings, once):
        diff = _difference(target.installed_text(), text, target.settings.output)
        if diff:
            target.check(text)
            diffs[target.settings.name] = diff
    details = tuple(f"target {name}" for name in diffs)
    plan = Reload((ReloadReason.TEXT_CHANGED,), details) if diffs else Noop()
    return PlanReport(plan, "".join(diffs.values()), once.refused, once.notes)


def _difference(installed: str, wanted: str, path: str) -> str:
    lines = difflib.unified_diff(
        installed.splitlines(), wanted.splitlines(), path, "what would be written", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def _hold_note(settings: Settings, last: Stored | None, once: wiring.Once) -> Iterator[str]:
    """Say that the daemon would keep this change back."""
    if last is not None and settings.apply.total_loss is TotalLoss.HOLD:
        census, rendering = once.context.census, once.rendered.rendering
        held = guard.judge(last.generation.census, census, digest=lambda: rendering.digest, allowed=frozenset())
        if held is not None:
            yield f"the daemon would hold this change: {held.problem.message}; {held.problem.remedy}"


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


def publish(settings: Resolved) -> int:
    """Watch the cluster and publish to etcd until it is asked to stop."""
    return sharing.publish(settings)


def publish_once(settings: Settings) -> str:
    """Render, check and publish to etcd; give a sentence about it."""
    return sharing.publish_once(settings)


def consume(settings: Resolved) -> int:
    """Watch etcd and apply what is published until it is asked to stop."""
    return sharing.consume(settings)


def fragments_dir() -> str:
    """Give the directory of the shipped fragments."""
    return shipped.directory()


def fragments(presets: Sequence[str]) -> Mapping[str, Path]:
    """Give the shipped fragments of these presets by name."""
    return shipped.of_presets(presets)
