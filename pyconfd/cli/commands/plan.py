"""``pyconfd plan``: compare what the cluster and the fragments ask for with what is applied."""

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from pyconfd import wiring
from pyconfd.admission.whole_change import total_loss
from pyconfd.app.dry_run import DryRun, EmptyBalancer, dry_run
from pyconfd.cli.command import SNAPSHOT_HELP, CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import (
    print_difference,
    print_json,
    print_lines,
    print_notes,
    print_refused,
    print_text,
    refused_as_json,
)
from pyconfd.cli.traffic import plan_traffic
from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.text import mark, passwords_in, stats_sockets, without_passwords
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.observation import NotRunning, Observation
from pyconfd.haproxy.runtime.batch import reason_text, transcript
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.model.changes import summary_of
from pyconfd.model.context import Refusal
from pyconfd.model.operations import Command
from pyconfd.model.outcome import Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.settings import Settings, TotalLoss
from pyconfd.system.files import exists

MOST_SHOWN = 100
"""Commands shown to a person; JSON has all."""
_LOG = click.Path(exists=True, dir_okay=False, allow_dash=True)
ASSUMED = Abilities(runtime=True, why="")
"""What every HAProxy from 2.6 on can do."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What would be done; ``diff`` is unified, from what is installed to what would be."""

    plan: Plan
    diff: str
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@command(
    examples={
        "pyconfd plan": "read it before you touch a fragment",
        "pyconfd plan | cat": "without colours",
        "pyconfd plan --traffic access.log": "which of these requests would go elsewhere",
        "pyconfd logs --json | pyconfd plan --traffic -": "the same of the last requests",
    },
    exits={
        Exit.OK: "nothing would change",
        Exit.CHANGES: "something would change; with --traffic a request would get something else, or may",
        Exit.FAILED: "it cannot be rendered, or HAProxy refuses it; with --traffic also: no line can be read",
    },
)
@snapshot_option(SNAPSHOT_HELP)
@click.option(
    "--traffic",
    metavar="FILE",
    type=_LOG,
    help="Show instead which requests of an access log would get another backend, status or rewrite; - is the standard"
    " input.",
)
@click.option(
    "--before",
    multiple=True,
    metavar="FILE",
    type=_LOG,
    help="With --traffic: compare with what these objects ask for, like --snapshot, and not with what is applied; may"
    " be repeated.",
)
@json_option
def plan(
    context: CommandContext,
    snapshots: tuple[str, ...],
    traffic: str | None,
    before: tuple[str, ...],
    *,
    as_json: bool,
) -> int:
    """Show what would change, and how.

    Compare what the cluster and the fragments ask for with what is applied; nothing is changed. What would go into
    quarantine is named, and the plan is for the rest.
    With --traffic each line of an access log of the shipped fragments is decided before and after the change, as
    pyconfd explain URL does: which requests would get another backend, status or rewrite, the most frequent first.
    """
    if traffic is None and before:
        raise click.UsageError("--before is for --traffic")
    if (traffic, *snapshots, *before).count("-") > 1:
        raise click.UsageError("only one of --traffic, --snapshot and --before can be the standard input")
    if traffic is not None:
        return plan_traffic(context.settings(), traffic, snapshots, before, as_json=as_json)
    planned = plan_once(context.settings(), snapshots)
    return print_plan(planned, as_json=as_json)


def plan_once(settings: Settings, snapshot_files: tuple[str, ...]) -> Planned:
    """Render, check and compare with what is applied."""
    if not wiring.serves_haproxy(settings):
        return _plan_targets(settings, dry_run(settings, snapshot_files, EmptyBalancer()))
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    last = balancer.last_good()
    once = dry_run(settings, snapshot_files, balancer, curdate=last.generation.curdate if last else None)
    rendering = once.rendering
    observed = balancer.observe()
    applied = last.rendering if last else None
    abilities, assumed = ask_process(settings, observed, applied)
    found: Plan = diff.plan(rendering, applied, observed, abilities=abilities)
    if not once.checked and not isinstance(found, Noop):
        balancer.check(rendering)
    installed = observed.installed_text or ""
    difference = _difference(installed, mark(rendering.text, rendering.digest), settings.haproxy.conf)
    notes = [*once.notes, *([assumed] if assumed and not isinstance(found, Noop) else [])]
    notes += _compared_with(settings.haproxy.conf, balancer.loaded_elsewhere(), installed)
    notes += _hold_note(settings, last, once)
    if (problem := balancer.adoption(rendering)) is not None:
        notes.append(f"the daemon would apply nothing yet: {problem.place}: {problem.message}; {problem.remedy}")
    beside = _plan_targets(settings, once)
    if isinstance(found, Noop):
        found = beside.plan
    return Planned(found, difference + beside.diff, once.refused, tuple(notes))


def ask_process(settings: Settings, observed: Observation, applied: Rendering | None) -> tuple[Abilities, str]:
    """Return what the running haproxy can do, and a note where that is assumed: its socket is not for every user."""
    if isinstance(observed.running, NotRunning):
        return Abilities(why="haproxy is not running"), ""
    text = observed.installed_text or (applied.text if applied else "")
    paths = stats_sockets(text, settings.haproxy.runtime_socket)
    runtime = Runtime(dynamic_backends=settings.haproxy.dynamic_backends)
    try:
        abilities = runtime.connect(paths)
    finally:
        runtime.close()
    locked = next((path for path in paths if exists(path) and not os.access(path, os.W_OK, effective_ids=True)), "")
    if abilities.runtime or not locked:
        return abilities, ""
    note = f"{locked} is not for this user, so haproxy was not asked; assumed is what HAProxy 2.6 can do while it runs"
    return ASSUMED, note


def _plan_targets(settings: Settings, once: DryRun) -> Planned:
    """Compare what the targets' templates give with their files; the checks validate what differs."""
    diffs = {}
    for target, text in wiring.render_targets(settings, once.context):
        difference = _difference(target.installed_text(), text, target.settings.output)
        if difference:
            target.check(text)
            diffs[target.settings.name] = difference
    details = tuple(f"target {name}" for name in diffs)
    found = Reload((ReloadReason.TEXT_CHANGED,), details) if diffs else Noop()
    return Planned(found, "".join(diffs.values()), once.refused, once.notes)


def _difference(installed: str, wanted: str, path: str) -> str:
    """Return what differs; passwords are not shown."""
    lines = difflib.unified_diff(
        installed.splitlines(), wanted.splitlines(), path, "what would be written", lineterm=""
    )
    difference = "".join(f"{line}\n" for line in lines)
    return without_passwords(difference, passwords_in(installed) | passwords_in(wanted)) if difference else ""


def _compared_with(conf: str, elsewhere: tuple[str, ...], installed: str) -> Iterator[str]:
    """Return a note where the running haproxy has another file than the one that is compared."""
    if elsewhere:
        state = "" if installed else ", which is not there yet"
        yield f"compared with {conf}{state}; the haproxy that runs was started with {' '.join(elsewhere)}"


def _hold_note(settings: Settings, last: Stored | None, once: DryRun) -> Iterator[str]:
    """Return a note where removal protection would hold this change."""
    if last is not None and settings.apply.total_loss is TotalLoss.HOLD:
        totals, rendering = once.context.totals, once.rendering
        held = total_loss(last.generation.totals, totals, digest=lambda: rendering.digest)
        if held is not None:
            yield f"the daemon would hold this change: {held.problem.message}; {held.problem.remedy}"


def print_plan(planned: Planned, *, as_json: bool) -> Exit:
    """Print a plan (how, why, and the diff) and return the exit code that says whether there is anything to do."""
    code = Exit.OK if isinstance(planned.plan, Noop) else Exit.CHANGES
    if as_json:
        print_json(
            {
                "changes": code is Exit.CHANGES,
                "plan": _as_json(planned.plan),
                "diff": planned.diff,
                "notes": list(planned.notes),
                "refused": refused_as_json(planned.refused),
            }
        )
        return code
    print_notes(planned.notes)
    print_refused(planned.refused)
    match planned.plan:
        case Noop():
            print_text("Nothing to do: what is applied is what the cluster and the fragments ask for.")
        case RuntimeUpdate((), details):
            print_text(click.style("Only the file would change, HAProxy would stay as it is:", bold=True))
            print_lines(details)
        case RuntimeUpdate(commands):
            _print_commands("A runtime update, no reload", commands)
        case Reload(reasons, details, advice, live):
            print_text(click.style(f"HAProxy would be reloaded: {', '.join(map(reason_text, reasons))}", bold=True))
            print_lines(details)
            if advice:
                print_text(click.style("What would avoid it:", bold=True))
                print_lines(advice)
            if live and live.commands:
                _print_commands("Without waiting for the reload", live.commands)
    if planned.diff and code is Exit.CHANGES:
        print_text("")
        print_difference(planned.diff)
    return code


def _as_json(found: Plan) -> dict[str, Any]:
    match found:
        case Noop():
            return {"kind": "noop", "reasons": [], "details": []}
        case RuntimeUpdate(commands, details):
            return {"kind": "live", "reasons": [], "details": list(details), "commands": list(transcript(commands))}
        case Reload(reasons, details, advice, live):
            before = list(transcript(live.commands)) if live else []
            return {
                "kind": "reload",
                "reasons": [reason.value for reason in reasons],
                "details": list(details),
                "advice": list(advice),
                "commands": before,
            }


def _print_commands(heading: str, commands: Sequence[Command]) -> None:
    print_text(click.style(f"{heading}: {summary_of(commands)}", bold=True))
    print_lines([command.description() for command in commands[:MOST_SHOWN]])
    if len(commands) > MOST_SHOWN:
        print_text(f"  and {len(commands) - MOST_SHOWN} more; --json has all")
