"""``pyconfd try``: serves what is in a file on this machine's loopback, with a haproxy and stand-ins of its own."""

import json
import queue
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyconfd import __version__, fragments, wiring
from pyconfd.app.daemon import cluster_world, loop_in
from pyconfd.app.service import Holds, ServiceContext
from pyconfd.daemon.base_loop import EXIT_OK, run_until_stopped
from pyconfd.daemon.loop import Daemon
from pyconfd.daemon.signals import Signals
from pyconfd.errors import ConfigurationError, Problem, TransientError
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.check import haproxy_version
from pyconfd.model.changes import Change
from pyconfd.model.context import Context, in_order
from pyconfd.model.rendering import FRAGMENT_SUFFIXES, Rendering
from pyconfd.model.status import Phase
from pyconfd.predecessors import cluster_templates
from pyconfd.predecessors.targets.worker import Targets
from pyconfd.render.engine import Renderer
from pyconfd.settings import Resolved, Settings, SettingSource, SingleTargetSettings, StatusSettings
from pyconfd.sources.file import FollowedFiles
from pyconfd.status.changes import ChangeLog, line_of
from pyconfd.status.document import StatusFile
from pyconfd.status.logging import configure
from pyconfd.status.page import StatusPage
from pyconfd.status.page_data import RecentChanges
from pyconfd.system.clock import SystemClock
from pyconfd.system.notify import SystemdNotifier
from pyconfd.trying.loopback import HOST, Loopback
from pyconfd.trying.own_haproxy import OwnHaproxy
from pyconfd.trying.relocate import RelocatingRenderer, Relocation, owners_in
from pyconfd.trying.table import MOST_NAMES, Table, ask_all, fronts, lines, names, questions, table

_POLL_S = 0.1
_PATIENCE_S = 30.0
"""Longer than a reload takes; a template that never ends is not waited for."""
_STATUS_PORT = 9101
_LOG_LINES = 10


def try_snapshot(resolved: Resolved, snapshot_files: tuple[str, ...]) -> Generator[str, None, None]:
    """Serve the files until a signal comes; give lines for a person meanwhile. Nothing is left behind.

    Raises:
        ConfigurationError: the files cannot be used, or these settings serve no haproxy.
        TransientError: haproxy cannot be run, or no port is free.
    """
    if not wiring.serves_haproxy(resolved.settings):
        message = "try serves haproxy's configuration, and these settings serve none"
        raise ConfigurationError(Problem("haproxy.enabled", message, 'set haproxy.enabled = "yes"'))
    with Signals() as signals, ExitStack() as stack:
        source = FollowedFiles(snapshot_files)
        version = haproxy_version(resolved.settings.haproxy.binary)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-try-")))
        log = stack.enter_context((folder / "pyconfd.log").open("w", encoding="utf-8"))
        configure(resolved.settings.log.level, resolved.settings.log.format, stream=log)
        stack.callback(configure, "ERROR", "text")
        generated = folder / "generated"
        generated.mkdir()
        haproxy = stack.enter_context(
            OwnHaproxy(folder, resolved.settings.haproxy.binary, conf=generated / "haproxy.cfg")
        )
        loopback = stack.enter_context(Loopback(folder, source))
        settings, whose = _here(resolved, folder, haproxy, loopback)
        stage = _TrialRun(settings, folder, haproxy, loopback, source, stack=stack)
        signals.stop_with(stage.daemon.mailbox)
        yield f"pyconfd {__version__} with HAProxy {version} serves {', '.join(snapshot_files)}, all on loopback."
        presets = ", ".join(settings.presets.names)
        yield f"Preset {presets}; fragments: {whose}. Edits apply at once. Ctrl-C ends it all."
        yield from stage.lines()
        yield "Stopping."


def _here(resolved: Resolved, folder: Path, haproxy: OwnHaproxy, loopback: Loopback) -> tuple[Settings, str]:
    """Return the settings as they hold here, and words about whose fragments these are."""
    own = resolved.settings
    directory, whose = own.templates.dir, own.templates.dir
    is_default = resolved.origins["templates.dir"].source is SettingSource.DEFAULT
    if is_default and not cluster_templates.is_allowed(own) and not _has_fragments(Path(directory)):
        directory = str(folder / "fragments")
        whose = "the shipped ones (to edit them, copy them: pyconfd fragments --copy-to DIR)"
        for name, path in fragments.of_presets(own.presets.names).items():
            (folder / "fragments" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "fragments" / name).write_bytes(path.read_bytes())
    settings = replace(
        own,
        # All listens on one IPv4 address here.
        templates=replace(own.templates, dir=directory, vars={**own.templates.vars, "ipv6": False}),
        haproxy=replace(
            haproxy.settings(),
            check_timeout_s=own.haproxy.check_timeout_s,
            max_old_workers=own.haproxy.max_old_workers,
        ),
        target=SingleTargetSettings(),
        targets=(),
        # Who edits the file means it; only where everything is gone it may be half written.
        removal_protection=replace(own.removal_protection, share_percent=100),
        # On loopback, and asked by who runs it: the files of the settings are for the daemon.
        status=StatusSettings(listen=f"{HOST}:{loopback.port(_STATUS_PORT)}"),
        state_dir=str(folder / "state"),
        runtime_dir=str(folder / "run"),
    )
    _write_config(folder, settings)
    return settings, whose


def _has_fragments(directory: Path) -> bool:
    try:
        return any(path.suffix in FRAGMENT_SUFFIXES for path in directory.iterdir())
    except OSError:
        return False


def _write_config(folder: Path, settings: Settings) -> None:
    """Write as much as ``pyconfd status`` and its like need to find what runs here."""
    sections = {
        "": {"state_dir": settings.state_dir, "runtime_dir": settings.runtime_dir},
        "status": {"listen": settings.status.listen},
        "haproxy": {
            "binary": settings.haproxy.binary,
            "conf": settings.haproxy.conf,
            "master_socket": settings.haproxy.master_socket,
            "pid_file": settings.haproxy.pid_file,
            "reload_method": settings.haproxy.reload_method.value,
            "unit": "",
        },
    }
    rows = [
        row
        for section, values in sections.items()
        for row in (
            *([f"[{section}]"] if section else []),
            *(f"{key} = {json.dumps(value)}" for key, value in values.items()),
        )
    ]
    (folder / "pyconfd.toml").write_text("\n".join([*rows, ""]), "utf-8")


class _PrintedChanges(ChangeLog):
    """Writes changes for ``pyconfd watch``, and keeps them to be printed here."""

    def __init__(self, runtime_dir: str) -> None:
        super().__init__(runtime_dir)
        self.waiting: queue.SimpleQueue[Change] = queue.SimpleQueue()

    def record(self, change: Change) -> None:
        """Remember a change for both."""
        super().record(change)
        self.waiting.put(change)


class _TrialRun:
    """Runs the loop in a thread, haproxy as its unit would, and says what can be seen; its parts go with ``stack``."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        haproxy: OwnHaproxy,
        loopback: Loopback,
        source: FollowedFiles,
        *,
        stack: ExitStack,
    ) -> None:
        self._settings, self._folder, self._haproxy = settings, folder, haproxy
        self._loopback, self._source = loopback, source
        self._relocation = Relocation(loopback)
        self._changes = _PrintedChanges(settings.runtime_dir)
        self.daemon = self._loop(stack)
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)
        self._code = EXIT_OK
        self._former: Table | None = None
        self._notes: tuple[str, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._shown: object = None

    def _loop(self, stack: ExitStack) -> Daemon:
        settings = self._settings
        holds, status_file = Holds(settings.runtime_dir), StatusFile(settings.runtime_dir)
        notifier = SystemdNotifier()
        page = StatusPage()
        around = ServiceContext(notifier, SystemClock(), holds, status_file, page, stack)
        balancer = around.open(Balancer(settings.haproxy, settings.apply, settings.state_dir))
        world = cluster_world(settings, around, self._source, balancer, Targets(()))
        make = partial(RelocatingRenderer, relocation=self._relocation)
        world = replace(
            world,
            make_renderer=lambda found: wiring.renderer(settings, found, make),
            # What is reserved is where the fragments listen as they are written.
            preset_options=lambda compiled: wiring.preset_options(settings, _as_written(settings, compiled)),
            changes=self._changes,
            other_problems=lambda: (*around.problems(), *self._source.problems()),
        )
        daemon = loop_in(world, settings)
        holds.prepare()
        stack.callback(page.stop)
        changes = RecentChanges(settings.runtime_dir)
        stack.callback(changes.close)
        page.data.changes = changes
        page.serve(settings.status.listen, daemon.status)
        return daemon

    def _run(self) -> None:
        self._code = run_until_stopped(self.daemon)

    def lines(self) -> Iterator[str]:
        """Return what happens until the loop is stopped."""
        self._thread.start()
        try:
            while self._thread.is_alive() and not self.daemon.mailbox.stopped:
                yield from self._poll()
                self._thread.join(_POLL_S)
        finally:
            self.daemon.mailbox.stop()
            until = time.monotonic() + _PATIENCE_S
            while self._thread.is_alive() and time.monotonic() < until:
                # It may be waiting for haproxy to load what was installed: that ends soonest with one that does.
                with suppress(TransientError):
                    self._keep_haproxy()
                self._thread.join(_POLL_S)
        if self._code != EXIT_OK:
            raise RuntimeError(f"the loop crashed:\n{_tail(self._folder / 'pyconfd.log')}")

    def _poll(self) -> Iterator[str]:
        self._keep_haproxy()
        while not self._changes.waiting.empty():
            yield line_of(self._changes.waiting.get())
        problems = self.daemon.status().problems
        yield from (f"problem: {each}" for each in problems if each not in self._problems)
        self._problems = problems
        last = self._relocation.last
        if last is not None and last is not self._shown and self._serves():
            self._shown = last
            yield from self._table(*last)

    def _keep_haproxy(self) -> None:
        """Start haproxy as soon as there is something to load; raises TransientError where it ends by itself."""
        haproxy = self._haproxy
        if not haproxy.launched and haproxy.conf.exists():
            haproxy.launch()
        code = haproxy.ended()
        if code is not None:
            message = f"haproxy ended with {code}, though its check passed:\n{_tail(haproxy.log)}"
            raise TransientError(Problem(haproxy.binary, message))

    def _serves(self) -> bool:
        status = self.daemon.status()
        return status.phase is Phase.SERVING and not status.pending_since and self._haproxy.running() is not None

    def _table(self, context: Context, text: Rendering) -> Iterator[str]:
        answers = ask_all(questions(fronts(text.text), names(context, text)[:MOST_NAMES]))
        owners = owners_in(text.text, self._loopback)
        now = table(answers, owners, in_order(context.refused, self._source.refusals()))
        yield from lines(now, self._former)
        if (notes := tuple(self._relocation.notes)) != self._notes:
            self._notes = notes
            yield from (f"note: {note}" for note in self._notes)
        if self._former is None:
            yield from self._hints()
        self._former = now

    def _hints(self) -> Iterator[str]:
        for (host, port), here in sorted(self._loopback.listeners.items()):
            if port != here:
                yield f"note: {host or '*'}:{port} is {HOST}:{here} here"
        config = self._folder / "pyconfd.toml"
        yield "To look closer:"
        yield f"  pyconfd status --config {config}"
        yield f"  pyconfd server list --config {config}"
        yield f"  cat {self._haproxy.conf}"
        yield f"  tail -f {self._folder / 'pyconfd.log'}"


def _as_written(settings: Settings, compiled: Renderer) -> Renderer:
    return wiring.renderer(settings, compiled.found) if isinstance(compiled, RelocatingRenderer) else compiled


def _tail(path: Path) -> str:
    try:
        found = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(f"    | {line}" for line in found[-_LOG_LINES:])
