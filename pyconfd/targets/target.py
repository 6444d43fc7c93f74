"""One target's transaction: render, check beside the place, install, notify; what fails is put back."""

import os
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import structlog

from pyconfd import guard
from pyconfd.errors import ApplyError, Problem, RejectedInput, TransientError
from pyconfd.model.context import Context
from pyconfd.model.outcome import Held, Step
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings.targets import TargetSettings, parse_notifier
from pyconfd.system.command import run
from pyconfd.system.files import Installation, NewFile
from pyconfd.targets.memory import Applied, Memory
from pyconfd.targets.notifiers import notify

log = structlog.get_logger(__name__)

NEW_FILE_MODE = 0o644
"""As kube2lb made them; a file that is there keeps its own."""


SETTLING_S = 0.05
SETTLING_READS = 20


@dataclass(frozen=True, slots=True)
class Template(Fragment):
    """A template under any name."""

    @property
    def is_template(self) -> bool:
        """Always."""
        return True


class Target:
    """One load balancer; keeps its template compiled until it changes. Not for several threads at once."""

    def __init__(self, settings: TargetSettings, options: RenderOptions, memory: Memory) -> None:
        self.settings = settings
        self._options = options
        self._memory = memory
        self._notifier = parse_notifier(settings.notify)
        self._seen: str | None = None
        self._renderer: Renderer | None = None
        self._unsure = False

    def applied(self) -> Applied | None:
        """Return what its balancer was last told to load, None before the first time."""
        return self._memory.applied()

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
        applied = self._memory.applied()
        return applied is None or _digest(self._installed()) == applied.digest

    def render(self, context: Context, *, curdate: str) -> str:
        """Render the template; with the date of what is applied, so that the date alone changes nothing.

        Raises:
            RejectedInput: the template has an error.
            TransientError: it cannot be read.
        """
        renderer = self._compiled()
        applied = self._memory.applied()
        rendered = renderer.render(context, curdate=applied.curdate if applied else curdate)
        if applied and rendered.used_curdate and _digest(rendered.rendering.text.encode()) != applied.digest:
            rendered = renderer.render(context, curdate=curdate)
        if rendered.rendering.files:
            message = "map_file and certificate_file are for haproxy's own fragments"
            raise RejectedInput(Problem(self._place, message, "leave them out of a target's template"))
        return rendered.rendering.text

    def apply(self, context: Context, *, curdate: str, now: float, guarded: bool) -> Applied | Held:
        """Bring the balancer to what the template gives; the same :class:`Applied` where it has that already.

        Raises:
            RejectedInput: the template or the check turns it away; nothing was changed.
            ApplyError: the balancer could not be told; the former file is back.
            TransientError: something else is in the way; nothing was changed.
        """
        text = self.render(context, curdate=curdate)
        digest = _digest(text.encode())
        former = self._memory.applied()
        if guarded:
            held = guard.judge(
                former.census if former else None, context.census, digest=lambda: digest, allowed=frozenset()
            )
            if held:
                return held
        if former and former.digest == digest and not self._unsure and self.is_in_place():
            if former.census != context.census:
                self._memory.remember(former.with_census(context.census))
            return former
        self._install(text)
        applied = Applied(digest, curdate, now, context.census)
        self._memory.remember(applied)
        return applied

    def check(self, text: str) -> None:
        """Let the target's command judge ``text``; nothing stays.

        Raises:
            RejectedInput: it refuses.
            TransientError: it could not be asked.
        """
        installation = self._staged(text)
        try:
            self._judge(installation.staged_paths()[self.settings.output])
        finally:
            installation.discard()

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
            said = result.output.strip().replace(path, self.settings.output)[-2000:] or "it printed nothing"
            message = f"the check refuses it (exit code {result.exit_code}): {said}"
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
            # Whether the balancer loaded it is not known: even the former text must be told again.
            self._unsure = True
            if installation.replaces(self.settings.output):
                raise ApplyError(Step.RELOAD, *error.problems, *installation.roll_back()) from error
            # Where there was nothing, the checked file stays: its balancer may need it to start at all.
            installation.finish()
            raise ApplyError(Step.RELOAD, *error.problems) from error
        self._unsure = False
        installation.finish()


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
