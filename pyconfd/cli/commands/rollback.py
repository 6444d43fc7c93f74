"""``pyconfd rollback`` and ``pyconfd unpin``: pin the fragments and settings of a former generation, and end that."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import click

from pyconfd.app.generation_history import GenerationHistory, unknown_generation
from pyconfd.cli.command import CommandContext, command, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.history.generations import GenerationEntry
from pyconfd.haproxy.history.pins import PinFile
from pyconfd.model.status import Phase, Pin, Status
from pyconfd.settings import Settings
from pyconfd.status.document import read_report

ACKNOWLEDGED_S = 60.0
"""How long a command waits for the daemon: a check, a reload, and new lists where settings change as well."""
POLL_S = 0.1
_NOT_YET = "it is written down and not applied yet; or this user may not write the state directory"


class _Progress(Enum):
    """How far the daemon has come; BLOCKED is what waits for an operator: paused, or held as a whole."""

    PENDING = auto()
    APPLIED = auto()
    REJECTED = auto()
    BLOCKED = auto()


@dataclass(frozen=True, slots=True)
class PinReport:
    """What became of a pin: a sentence, the generation that is pinned and the one that runs (0 for none)."""

    said: str
    pinned: int = 0
    serving: int = 0


@command(
    examples={
        "pyconfd rollback": "undo the last edit that was applied",
        "pyconfd rollback 41 --reason 'checkout is broken'": "see pyconfd history",
    },
    exits={
        Exit.OK: "it is applied, or will be at the next start",
        Exit.FAILED: "there is no such generation, or it is pinned and cannot be applied",
        Exit.TEMPORARY: _NOT_YET,
    },
)
@click.argument("number", metavar="[N]", type=int, required=False)
@click.option("--reason", metavar="TEXT", default="", help="Why, for those who look at `pyconfd status`.")
@json_option
def rollback(context: CommandContext, number: int | None, reason: str, *, as_json: bool) -> int:
    """Go back to former fragments and settings, and pin them.

    Bring back the fragments and settings of a generation, by default of the newest that had others than those now, and
    pin them: edits on disk wait until `pyconfd unpin`. Endpoints stay live: the pods of now are served, not those of
    then. The pin outlives restarts; where no pyconfd runs, its next start begins with it.

    Endpoint changes make generations too: going back does not undo those.
    """
    _print(pin_generation(context.settings(), number, reason=reason), as_json=as_json)
    return Exit.OK


@command(
    exits={
        Exit.OK: "what is on disk is applied, or will be at the next start; or nothing was pinned",
        Exit.FAILED: "what is on disk cannot be applied; the running configuration is unchanged",
        Exit.TEMPORARY: _NOT_YET,
    },
)
@json_option
def unpin(context: CommandContext, *, as_json: bool) -> int:
    """End a pin: take the fragments on disk again.

    End what `pyconfd rollback` pinned: the fragments and settings on disk are applied again.
    """
    _print(end_pin(context.settings()), as_json=as_json)
    return Exit.OK


def _print(done: PinReport, *, as_json: bool) -> None:
    if as_json:
        print_json({"said": done.said, "pinned": done.pinned or None, "serving": done.serving or None})
    else:
        print_text(done.said)


def pin_generation(settings: Settings, number: int | None, *, reason: str) -> PinReport:
    """Pin the fragments and settings of a generation, by default the newest that had others; return what became of it.

    Raises:
        RejectedInput: there is no such generation, nothing is kept of it, or it cannot be applied (it is pinned
            all the same).
        TransientError: it cannot be written, or is not applied yet (it is pinned).
    """
    past, pins = GenerationHistory(settings), PinFile(settings.state_dir)
    entry = _chosen(past.store.entries(), number, pins.read())
    past.inputs.read(entry.inputs)
    pin = Pin(secrets.token_hex(4), entry.number, entry.inputs, time.time(), reason)
    running = read_report(settings).running
    pins.begin(pin)
    try:
        past.inputs.read(entry.inputs)  # pyconfd may have removed it, not knowing yet that it is needed
    except PyconfdError:
        pins.end()
        raise
    what = f"the fragments and settings of generation {entry.number}"
    if not running:
        said = f"Pinned to {what}: no pyconfd runs now, its next start begins with them. pyconfd unpin ends it."
        return PinReport(said, entry.number)

    def is_decided(status: Status) -> bool:
        mine = status.pin if status.pin is not None and status.pin.pin.id == pin.id else None
        return mine is not None and (mine.serves or mine.refused or _progress(status) is _Progress.BLOCKED)

    status = _awaited(settings, is_decided)
    if status is None or status.pin is None or not status.pin.serves:
        raise _not_yet(status, f"pinned to {what}, which are not applied yet")
    serves = status.generation.number if status.generation else 0
    said = (
        f"Pinned to {what}: generation {serves} runs now, made of them and of the cluster as it is.\n"
        "Edits of fragments and settings wait until `pyconfd unpin`; pyconfd status shows them."
    )
    return PinReport(said, entry.number, serves)


def end_pin(settings: Settings) -> PinReport:
    """End a pin: what is on disk is applied again; return what became of it.

    Raises:
        RejectedInput: what is on disk cannot be applied.
        TransientError: the pin cannot be removed, or what is on disk is not applied yet.
    """
    pins = PinFile(settings.state_dir)
    pin = pins.read()
    if pin is None:
        return PinReport("Nothing was pinned.")
    report = read_report(settings)
    running = report.running
    done, began = (report.status.reconciliations_total, report.status.started_at) if report.status else (0, 0.0)
    pins.end()
    what = f"generation {pin.generation} is no longer pinned" if pin.generation else "nothing is pinned now"
    if not running:
        return PinReport(f"{what[0].upper()}{what[1:]}: the next start of pyconfd begins with what is on disk.")

    def is_over(status: Status) -> bool:
        # Beside a hold nothing else shows that it was applied; where settings change, the run is another one.
        looked = status.hold is None or status.reconciliations_total > done or status.started_at > began
        return status.pin is None and looked and _progress(status) is not _Progress.PENDING

    status = _awaited(settings, is_over)
    if status is None or status.pin is not None or _progress(status) is not _Progress.APPLIED:
        raise _not_yet(status, f"{what}; what is on disk is not applied yet")
    serves = status.generation.number if status.generation else 0
    said = f"{what[0].upper()}{what[1:]}: generation {serves} runs now, made of what is on disk."
    return PinReport(said, serving=serves)


def _chosen(entries: tuple[GenerationEntry, ...], number: int | None, pin: Pin | None) -> GenerationEntry:
    if number is not None:
        found = next((entry for entry in entries if entry.number == number), None)
        if found is None:
            raise unknown_generation(number, entries)
    else:
        if pin is not None:
            already = f"generation {pin.generation} is pinned already" if pin.generation else pin.broken
            raise RejectedInput(Problem("rollback", already, "name the one that you want: pyconfd rollback N"))
        others = (entry for entry in entries if entry.inputs and entry.inputs != entries[0].inputs)
        found = next(others, None)
        if not entries:
            raise unknown_generation(0, entries)
        if found is None:
            message = "there is no former one: all that are kept have the same fragments and settings"
            raise RejectedInput(Problem("rollback", message, "pyconfd history lists them"))
    if not found.inputs:
        message = f"the fragments of generation {found.number} were not kept: an older pyconfd made it"
        raise RejectedInput(Problem("rollback", message, "pyconfd diff shows its text"))
    return found


def _awaited(settings: Settings, is_over: Callable[[Status], bool]) -> Status | None:
    """Return the status once it is as wanted, or the last one that was seen."""
    seen: Status | None = None
    ends = time.monotonic() + ACKNOWLEDGED_S
    while time.monotonic() < ends:
        report = read_report(settings)
        if report.running and report.status is not None:
            seen = report.status
            if is_over(seen):
                break
        time.sleep(POLL_S)
    return seen


def _progress(status: Status) -> _Progress:
    """Return how far the chosen fragments and settings have come."""
    holds_removals = status.phase is Phase.HELD and status.hold is not None  # the rest of each change is applied
    if status.live.paused is not None or (status.phase is Phase.HELD and not holds_removals):
        return _Progress.BLOCKED
    if status.untried:
        return _Progress.PENDING
    if status.phase in {Phase.REJECTED, Phase.FAILED}:
        return _Progress.REJECTED
    is_applied = holds_removals or (status.phase is Phase.SERVING and not status.pending_since)
    return _Progress.APPLIED if is_applied else _Progress.PENDING


def _not_yet(status: Status | None, what: str) -> PyconfdError:
    """Return what is in the way."""
    remedy = "pyconfd status shows it"
    if status is None:
        return TransientError(Problem("pyconfd", f"{what}: it does not answer", remedy))
    if status.live.paused is not None:
        return TransientError(Problem("pyconfd", f"{what}: applying is paused", "pyconfd resume"))
    problems = [Problem("pyconfd", what, remedy), *(Problem("", problem) for problem in status.problems)]
    refused = _progress(status) in {_Progress.REJECTED, _Progress.BLOCKED} or (status.pin and status.pin.refused)
    return RejectedInput(*problems) if refused else TransientError(*problems)
