"""The commands that do one thing and end: render, check, plan, record, rbac."""

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from pyconfd import guard, wiring
from pyconfd.app.rehearsal import Nothing, rehearse
from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy import diff
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.check import haproxy_version
from pyconfd.haproxy.live import Abilities
from pyconfd.haproxy.marker import mark
from pyconfd.haproxy.observation import NotRunning, Observation
from pyconfd.haproxy.passwords import passwords_in
from pyconfd.haproxy.preflight import idle_close_note, sockets
from pyconfd.haproxy.runtime import Runtime
from pyconfd.haproxy.sections import stats_sockets
from pyconfd.model.context import Refusal
from pyconfd.model.outcome import Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import OutputFile, Piece, Rendering
from pyconfd.model.snapshot import Resource
from pyconfd.settings import Settings, TotalLoss
from pyconfd.sources.file import write_snapshot
from pyconfd.sources.kubernetes.resources import manifest
from pyconfd.status.logging import configure
from pyconfd.system.files import exists
from pyconfd.system.secrecy import redacted, without_secrets


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
    """A rendering that HAProxy accepts; ``refused`` says what it does without."""

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


def _log_for_command() -> None:
    """Let a command that prints something say only what is wrong, and not on standard output."""
    configure("WARNING", "text")


def render_once(settings: Settings, snapshot_files: tuple[str, ...]) -> Rendered:
    """Render; from the cluster where no file is named. Without haproxy, what the targets' templates give."""
    _log_for_command()
    once = wiring.render_once(settings, snapshot_files)
    rendering = once.rendered.rendering
    if not wiring.serves_haproxy(settings):
        pieces = tuple(Piece(target.settings.name, text) for target, text in wiring.render_targets(settings, once))
        return Rendered("".join(piece.text for piece in pieces), pieces, (), once.refused, once.notes)
    return Rendered(rendering.text, rendering.pieces, rendering.files, once.refused, once.notes)


def check_once(settings: Settings, snapshot_files: tuple[str, ...]) -> CheckReport:
    """Render and let HAProxy check, and the command of each target."""
    _log_for_command()
    served = wiring.serves_haproxy(settings)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir) if served else None
    once = rehearse(settings, snapshot_files, balancer or Nothing(), again=True).once
    for target, text in wiring.render_targets(settings, once):
        target.check(text)
    if balancer is None:
        return CheckReport(once.refused, once.notes, "")
    # From files it may be judged anywhere; from the cluster it is meant for this machine.
    setup = () if snapshot_files else balancer.problems()
    text = once.rendered.rendering.text
    notes = (
        *once.notes,
        *(f"{problem.place}: {problem.message}; {problem.remedy}" for problem in setup),
        *filter(None, (idle_close_note(text), "" if snapshot_files else _socket_note(text))),
    )
    return CheckReport(once.refused, notes, haproxy_version(settings.haproxy.binary))


def plan_once(settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
    """Render, check and compare with what is applied."""
    _log_for_command()
    if not wiring.serves_haproxy(settings):
        return _plan_targets(settings, rehearse(settings, snapshot_files, Nothing()).once)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    last = balancer.last_good()
    rehearsed = rehearse(settings, snapshot_files, balancer, curdate=last.generation.curdate if last else None)
    once = rehearsed.once
    rendering = once.rendered.rendering
    observed = balancer.observe(rendering.files)
    applied = last.rendering if last else None
    asked = ask_process(settings, observed, applied)
    plan: Plan = diff.plan(rendering, applied, observed, abilities=asked.abilities)
    if not rehearsed.checked and not isinstance(plan, Noop):
        balancer.check(rendering)
    installed = observed.installed_text or ""
    wanted = mark(rendering.text, rendering.digest)
    beside = _plan_targets(settings, once)
    if isinstance(plan, Noop):
        plan = beside.plan
    assumed = (asked.note,) if asked.note and not isinstance(plan, Noop) else ()
    notes = (*once.notes, *assumed, *_hold_note(settings, last, once), *_adoption_note(balancer, rendering))
    difference = _difference(installed, wanted, settings.haproxy.conf) + beside.diff
    return PlanReport(plan, difference, once.refused, notes)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the running haproxy can do; ``note`` says that it is an assumption, "" where haproxy said so itself."""

    abilities: Abilities
    note: str = ""


ASSUMED = Abilities(runtime=True, why="")
"""What every HAProxy from 2.6 on can do."""


def ask_process(settings: Settings, observed: Observation, applied: Rendering | None) -> Asked:
    """Ask the process over its runtime socket, which the command may not be allowed to use."""
    if isinstance(observed.running, NotRunning):
        return Asked(Abilities(why="haproxy is not running"))
    text = observed.installed_text or (applied.text if applied else "")
    paths = [path for path in (settings.haproxy.runtime_socket, *stats_sockets(text)) if path]
    runtime = Runtime()
    try:
        abilities = runtime.connect(paths)
    finally:
        runtime.close()
    locked = next((path for path in paths if _is_locked(path)), "")
    if abilities.runtime or not locked:
        return Asked(abilities)
    note = f"{locked} is not for this user, so haproxy was not asked; assumed is what HAProxy 2.6 can do while it runs"
    return Asked(ASSUMED, note)


def _is_locked(path: str) -> bool:
    return exists(path) and not os.access(path, os.W_OK, effective_ids=True)


def _socket_note(text: str) -> str:
    """Return which directory of a runtime socket is missing: haproxy would not load the configuration."""
    missing = next(sockets(text), None)
    return f"{missing.message}; {missing.remedy}" if missing is not None else ""


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
    """Return what differs; passwords are not shown."""
    lines = difflib.unified_diff(
        installed.splitlines(), wanted.splitlines(), path, "what would be written", lineterm=""
    )
    difference = "".join(f"{line}\n" for line in lines)
    return without_secrets(difference, passwords_in(installed) | passwords_in(wanted)) if difference else ""


def _adoption_note(balancer: Balancer, rendering: Rendering) -> Iterator[str]:
    """Say that the daemon would wait for an operator before it ends what serves."""
    if (problem := balancer.adoption(rendering)) is not None:
        yield f"the daemon would apply nothing yet: {problem.place}: {problem.message}; {problem.remedy}"


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
            file.write(write_snapshot(snapshot, _without_credentials))
    except OSError as error:
        raise RejectedInput(Problem(path, f"cannot be written: {error.strerror}", "name another file")) from error
    count = sum(len(getattr(snapshot, resource.field)) for resource in Resource)
    left_out = f"; {len(refused)} unreadable objects were left out" if refused else ""
    return f"{count} objects written to {path}, Secrets redacted, and what looks like a credential{left_out}."


def _without_credentials(text: str) -> str:
    return redacted(without_secrets(text, passwords_in(text)))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def rbac(settings: Settings) -> str:
    """Return the manifest of the permissions that these settings need."""
    secrets = settings.kubernetes.secret_namespaces
    return manifest(wiring.resources(settings), secrets, named=wiring.named(settings), events=settings.events.enabled)
