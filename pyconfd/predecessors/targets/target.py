"""One target: render its template, check the text beside its place, install it, notify its balancer; or undo all that.

A target is a load balancer other than HAProxy (Caddy, nginx), with one template, one file and one notifier.
"""

import os
import signal
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import structlog

from pyconfd.admission.whole_change import total_loss
from pyconfd.errors import ApplyError, Problem, RejectedInput, TransientError
from pyconfd.model.context import Context, EndpointTotals
from pyconfd.model.outcome import Held, Step
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import TargetSettings
from pyconfd.settings.values import TargetNotifier, parse_notifier
from pyconfd.system.command import run
from pyconfd.system.files import Installation, NewFile
from pyconfd.system.state_file import StateFile

log = structlog.get_logger(__name__)

NEW_FILE_MODE = 0o644
"""As kube2lb made them; a file that is there keeps its own."""
SETTLING_S = 0.05
SETTLING_READS = 20
OUTPUT_CHARACTERS = 2000
"""How much of a command's output is logged or reported."""
_PID_FILE_BYTES = 64


@dataclass(frozen=True, slots=True)
class AppliedTarget:
    """What a target's balancer was last notified of; kept on disk, so that a restart of pyconfd changes nothing.

    ``digest`` is the SHA-256 of the file, ``curdate`` the date in it; ``applied_at`` is seconds since the epoch.
    """

    digest: str
    curdate: str
    applied_at: float
    totals: EndpointTotals


@dataclass(frozen=True, slots=True)
class Template(Fragment):
    """A template under any file name."""

    @property
    def is_template(self) -> bool:
        """Always."""
        return True


class Target:
    """One load balancer; keeps its template compiled until it changes. Not for several threads at once.

    A state file that cannot be read counts as absent: the balancer is notified once more than needed.
    """

    def __init__(self, settings: TargetSettings, options: RenderOptions, state_dir: str) -> None:
        self.settings = settings
        self._options = options
        self._state = StateFile(Path(state_dir) / "targets" / f"{settings.name}.json", AppliedTarget)
        self._applied: AppliedTarget | None = None
        self._is_loaded = False
        self._notifier = parse_notifier(settings.notify)
        self._seen: str | None = None
        self._renderer: Renderer | None = None
        self._unsure = False

    def applied(self) -> AppliedTarget | None:
        """Return what its balancer was last notified of, None before the first time."""
        if not self._is_loaded:
            # Not in the constructor: commands that only render may not be allowed to read the state directory.
            self._is_loaded, self._applied = True, self._state.load()
        return self._applied

    def template_changed(self) -> bool:
        """Return whether the template's text is another one than at the last rendering, or cannot be read any more."""
        try:
            return self._read() != self._seen
        except TransientError:
            return self._seen is not None

    def installed_text(self) -> str:
        """Return what the file holds; "" where there is none."""
        return self._installed().decode(errors="replace")

    def is_in_place(self) -> bool:
        """Return whether the file holds what was applied."""
        applied = self.applied()
        return applied is None or _digest(self._installed()) == applied.digest

    def render(self, context: Context, *, curdate: str) -> str:
        """Render the template; with the date of what is applied, so that the date alone changes nothing.

        Raises:
            RejectedInput: the template has an error.
            TransientError: it cannot be read.
        """
        renderer = self._compiled()
        applied = self.applied()
        rendered = renderer.render(context, curdate=applied.curdate if applied else curdate)
        if applied and rendered.used_curdate and _digest(rendered.rendering.text.encode()) != applied.digest:
            rendered = renderer.render(context, curdate=curdate)
        if rendered.rendering.files:
            message = "map_file and certificate_file are for haproxy's own fragments"
            raise RejectedInput(Problem(self._place, message, "leave them out of a target's template"))
        return rendered.rendering.text

    def apply(self, context: Context, *, curdate: str, now: float, protect: bool) -> AppliedTarget | Held:
        """Bring the balancer to the rendered text; return the former value where it has that already.

        Raises:
            RejectedInput: the template has an error, or the check rejects it; nothing was changed.
            ApplyError: the balancer could not be notified; the former file is back.
            TransientError: something else is in the way; nothing was changed.
        """
        text = self.render(context, curdate=curdate)
        digest = _digest(text.encode())
        former = self.applied()
        if protect:
            held = total_loss(former.totals if former else None, context.totals, digest=lambda: digest)
            if held:
                return held
        if former and former.digest == digest and not self._unsure and self.is_in_place():
            if former.totals != context.totals:
                self._remember(replace(former, totals=context.totals))
            return former
        self._install(text)
        return self._remember(AppliedTarget(digest, curdate, now, context.totals))

    def check(self, text: str) -> None:
        """Run the target's check on ``text``; nothing stays.

        Raises:
            RejectedInput: the check fails.
            TransientError: the check could not be run.
        """
        installation = self._staged(text)
        try:
            self._judge(installation.staged_paths()[self.settings.output])
        finally:
            installation.discard()

    def _remember(self, applied: AppliedTarget) -> AppliedTarget:
        # A failure is logged by the state file; the balancer serves all the same.
        self._applied, self._is_loaded = applied, True
        self._state.save(applied)
        return applied

    @property
    def _place(self) -> str:
        return f"target {self.settings.name}"

    def _read(self) -> str:
        try:
            return Path(self.settings.template).read_text(encoding="utf-8")
        except OSError as error:
            problem = Problem(self.settings.template, f"cannot be read: {error.strerror}", "name another template")
            raise TransientError(problem) from error
        except UnicodeDecodeError as error:
            problem = Problem(self.settings.template, f"is not UTF-8 (byte {error.start})", "save it as UTF-8")
            raise TransientError(problem) from error

    def _settled(self) -> str:
        """Return the template's text once it stays the same: half of a file that is being written may well be valid."""
        text = self._read()
        for _ in range(SETTLING_READS if text != self._seen else 0):
            time.sleep(SETTLING_S)
            former, text = text, self._read()
            if text == former:
                break
        return text

    def _compiled(self) -> Renderer:
        text = self._settled()
        if self._renderer is None or text != self._seen:
            self._seen, self._renderer = text, None
            fragment = Template(Path(self.settings.template).name, text)
            self._renderer = Renderer(FragmentSet((fragment,)), self._options)
        return self._renderer

    def _installed(self) -> bytes:
        try:
            return Path(self.settings.output).read_bytes()
        except OSError:
            return b""

    def _staged(self, text: str) -> Installation:
        installation = Installation([NewFile(self.settings.output, text.encode(), mode=NEW_FILE_MODE)])
        installation.stage()
        return installation

    def _judge(self, path: str) -> None:
        if not self.settings.check:
            return
        result = run([*self.settings.check, path], timeout_s=self.settings.timeout_s, cwd=os.getcwd())  # noqa: PTH109 - a text is wanted
        if result.timed_out:
            message = f"the check did not end within {self.settings.timeout_s:g} s"
            raise TransientError(Problem(self._place, message, "run it by hand, or raise timeout_s"))
        if not result.ok:
            output = result.output.strip().replace(path, self.settings.output)[-OUTPUT_CHARACTERS:]
            message = f"the check rejects it (exit code {result.exit_code}): {output or 'it printed nothing'}"
            raise RejectedInput(Problem(self._place, message, "correct the template"), step=Step.CHECK)

    def _install(self, text: str) -> None:
        installation = self._staged(text)
        try:
            self._judge(installation.staged_paths()[self.settings.output])
            installation.install()
        except (RejectedInput, TransientError):
            installation.discard()
            raise
        try:
            notify(self._notifier, target=self.settings.name, timeout_s=self.settings.timeout_s)
        except TransientError as error:
            # Whether the balancer loaded it is not known: even for the former text it must be notified again.
            self._unsure = True
            if installation.replaces(self.settings.output):
                raise ApplyError(Step.RELOAD, *error.problems, *installation.roll_back()) from error
            # Where there was nothing, the checked file stays: its balancer may need it to start at all.
            installation.finish()
            raise ApplyError(Step.RELOAD, *error.problems) from error
        self._unsure = False
        installation.finish()


def notify(notifier: TargetNotifier, *, target: str, timeout_s: float) -> None:
    """Notify the balancer of ``target`` that its file changed, in one of the four ways of kube2lb.

    Raises:
        TransientError: it could not be notified, or the command failed or did not end within ``timeout_s``.
    """
    match notifier.how:
        case "command":
            _run_shell(notifier.argument, target, timeout_s)
        case "pid":
            _send_signal(notifier.signal, int(notifier.argument), f"target {target}")
        case "pidfile":
            _send_signal(notifier.signal, _pid_in(notifier.argument, target), notifier.argument)
        case "debug":
            log.info("target.notified", target=target, how="debug")


def _run_shell(shell: str, target: str, timeout_s: float) -> None:
    # A shell, as kube2lb's contract says; the command is the operator's.
    result = run(["/bin/sh", "-c", shell], timeout_s=timeout_s, cwd=os.getcwd())  # noqa: PTH109 - a text is wanted
    output = result.output.strip()[-OUTPUT_CHARACTERS:]
    if result.ok:
        log.info("target.notified", target=target, how="command", output=output)
        return
    how = f"did not end within {timeout_s:g} s" if result.timed_out else f"ended with {result.exit_code}"
    raise TransientError(
        Problem(
            f"target {target}: notify",
            f"the command {how}: {result.summary[-OUTPUT_CHARACTERS:] or 'it printed nothing'}",
            f"run it by hand: {shell}",
        )
    )


def _send_signal(number: int, pid: int, place: str) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise TransientError(
            Problem(place, f"there is no process {pid}", "start its balancer, or correct the notifier")
        ) from None
    except (PermissionError, OverflowError):
        raise TransientError(
            Problem(place, f"pyconfd may not send signals to process {pid}", "run pyconfd as root or as its user")
        ) from None
    log.info("target.notified", pid=pid, how=signal.Signals(number).name)


def _pid_in(path: str, target: str) -> int:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_PID_FILE_BYTES).strip()
    except OSError as error:
        problem = Problem(path, f"cannot be read: {error.strerror}", f"is the balancer of target {target} running?")
        raise TransientError(problem) from None
    if not text.isdigit() or int(text) < 2:
        raise TransientError(
            Problem(path, "holds no number of a process", "name the file that the balancer writes its number to")
        )
    return int(text)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
