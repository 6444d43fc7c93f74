"""The commands about the past: history, diff, rollback, unpin."""

import difflib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.bases import BasisStore
from pyconfd.haproxy.difference import Difference, difference
from pyconfd.haproxy.generations import GenerationStore
from pyconfd.haproxy.pin import PinFile
from pyconfd.haproxy.retention import Entry
from pyconfd.model.basis import Edit
from pyconfd.model.outcome import Stored
from pyconfd.model.pin import Pin
from pyconfd.model.status import Phase, Status
from pyconfd.settings import Settings
from pyconfd.settings.basis import secret_values
from pyconfd.status.redaction import hidden_configuration
from pyconfd.status.report import StatusReport, read_report

ACKNOWLEDGED_S = 60.0
"""How long a command waits for the daemon: a check, a reload, and new lists where settings change as well."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One generation; ``reasons`` are those of its reload, () where it went live.

    ``difference`` is what differs from generation ``since`` (None and 0 for none), ``edits`` are those of fragments and
    settings.
    """

    number: int
    applied_at: float
    digest: str
    reasons: tuple[str, ...]
    since: int
    edits: tuple[Edit, ...]
    difference: Difference | None
    basis: str
    ran_well: bool
    serving: bool
    pinned: bool

    @property
    def how(self) -> str:
        """``live`` or ``reload``."""
        return "reload" if self.reasons else "live"


@dataclass(frozen=True, slots=True)
class DiffReport:
    """What differs from one generation to another; ``text`` is unified and has no passwords, "" for no difference."""

    before: int
    after: int
    edits: tuple[Edit, ...]
    difference: Difference
    text: str
    notes: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return all in words, fragments and settings first."""
        return (*map(str, self.edits), *self.difference.sentences)


@dataclass(frozen=True, slots=True)
class PinReport:
    """What became of a pin: a sentence, the generation that is pinned and the one that serves (0 for none)."""

    said: str
    pinned: int = 0
    serving: int = 0


def history(settings: Settings, limit: int = 0) -> tuple[HistoryRow, ...]:
    """Return the generations that are kept, newest first; at most ``limit``, 0 for all.

    Raises:
        TransientError: this user may not read them.
    """
    past = _Past(settings)
    entries = past.store.entries()
    shown = entries[: limit + 1] if limit else entries
    pin, serving = PinFile(settings.state_dir).read(), _serving(settings, entries)
    found = ((entry, past.store.read(entry.number)) for entry in shown)
    readable = [(entry, stored) for entry, stored in found if stored is not None]
    formers: list[Stored | None] = [*(stored for _, stored in readable[1:]), None]
    rows = [
        _row(past, entry, stored, former, serving=stored.generation.number == serving, pin=pin)
        for (entry, stored), former in zip(readable, formers, strict=False)
    ]
    return tuple(rows[:limit] if limit else rows)


def _row(
    past: "_Past", entry: Entry, stored: Stored, former: Stored | None, *, serving: bool, pin: Pin | None
) -> HistoryRow:
    generation = stored.generation
    return HistoryRow(
        number=generation.number,
        applied_at=generation.applied_at,
        digest=generation.digest,
        reasons=generation.reasons,
        since=former.generation.number if former else 0,
        edits=past.edits(former.rendering.basis, entry.basis) if former else (),
        difference=difference(former.rendering, stored.rendering) if former else None,
        basis=entry.basis,
        ran_well=entry.ran_well,
        serving=serving,
        pinned=pin is not None and pin.generation == generation.number,
    )


def diff(settings: Settings, before: int | None = None, after: int | None = None) -> DiffReport:
    """Compare two generations: by default that which serves with the one before it; ``after`` None is what serves.

    Raises:
        RejectedInput: there is no such generation.
        TransientError: this user may not read them.
    """
    past = _Past(settings)
    entries = past.store.entries()
    newest = past.stored(after if after is not None else _serving(settings, entries), entries)
    if before is None:
        older = [entry.number for entry in entries if entry.number < newest.generation.number]
        if not older:
            raise RejectedInput(Problem("diff", f"there is none before generation {newest.generation.number}"))
        before = older[0]
    oldest = past.stored(before, entries)
    one, other = oldest.generation.number, newest.generation.number
    hidden = secret_values(settings)
    old, new = (hidden_configuration(each.rendering.text, hidden).splitlines() for each in (oldest, newest))
    lines = difflib.unified_diff(old, new, f"generation {one}", f"generation {other}", lineterm="")
    text = "".join(f"{line}\n" for line in lines)
    notes = []
    if not text and oldest.rendering.text != newest.rendering.text:
        notes.append("the texts differ only in what is hidden: passwords")
    edits = past.edits(oldest.rendering.basis, newest.rendering.basis)
    return DiffReport(one, other, edits, difference(oldest.rendering, newest.rendering), text, tuple(notes))


def rollback(
    settings: Settings,
    number: int | None = None,
    *,
    reason: str = "",
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> PinReport:
    """Pin the fragments and settings of a generation, by default the newest that had others; say what became of it.

    Raises:
        RejectedInput: there is no such generation, nothing is kept of it, or it cannot be made to serve (it is pinned
            all the same).
        TransientError: it cannot be written, or does not serve yet (it is pinned).
    """
    past, pins = _Past(settings), PinFile(settings.state_dir)
    entry = _chosen(past.store.entries(), number, pins.read())
    past.bases.read(entry.basis)
    pin = Pin(secrets.token_hex(4), entry.number, entry.basis, clock(), reason)
    running = read_report(settings).running
    pins.begin(pin)
    try:
        past.bases.read(entry.basis)  # pyconfd may have removed it, not knowing yet that it is needed
    except PyconfdError:
        pins.end()
        raise
    what = f"the fragments and settings of generation {entry.number}"
    if not running:
        said = f"Pinned to {what}: no pyconfd runs now, its next start begins with them. pyconfd unpin ends it."
        return PinReport(said, entry.number)
    status = _awaited(settings, pause, lambda status: _is_decided(status, pin.id))
    if status is None or status.pin is None or not status.pin.serves:
        raise _not_yet(status, f"pinned to {what}, which do not serve yet")
    serves = status.generation.number if status.generation else 0
    said = (
        f"Pinned to {what}: generation {serves} serves now, made of them and of the cluster as it is.\n"
        "Edits of fragments and settings wait until `pyconfd unpin`; pyconfd status shows them."
    )
    return PinReport(said, entry.number, serves)


def unpin(settings: Settings, *, pause: Callable[[float], None] = time.sleep) -> PinReport:
    """End a pin: what is on disk serves again; say what became of it.

    Raises:
        RejectedInput: what is on disk cannot be made to serve.
        TransientError: the pin cannot be removed, or what is on disk does not serve yet.
    """
    pins = PinFile(settings.state_dir)
    pin = pins.read()
    if pin is None:
        return PinReport("Nothing was pinned.")
    report = read_report(settings)
    running = report.running
    done, began = (report.status.reconciliations_total, report.status.started_at) if report.status else (0, 0.0)
    pins.end()
    what = f"generation {pin.generation} is pinned no more" if pin.generation else "nothing is pinned any more"
    if not running:
        return PinReport(f"{what[0].upper()}{what[1:]}: the next start of pyconfd begins with what is on disk.")

    def is_over(status: Status) -> bool:
        # Beside a hold nothing else tells that it was applied; where settings change, the run is another one.
        applied = not _holds_removals(status) or status.reconciliations_total > done or status.started_at > began
        return status.pin is None and applied and not _is_undecided(status)

    status = _awaited(settings, pause, is_over)
    if status is None or status.pin is not None or not (status.phase is Phase.SERVING or _holds_removals(status)):
        raise _not_yet(status, f"{what}; what is on disk does not serve yet")
    serves = status.generation.number if status.generation else 0
    said = f"{what[0].upper()}{what[1:]}: generation {serves} serves now, made of what is on disk."
    return PinReport(said, serving=serves)


class _Past:
    """What is kept of former generations."""

    def __init__(self, settings: Settings) -> None:
        self.store = GenerationStore(settings.state_dir, settings.apply.keep_generations)
        self.bases = BasisStore(settings.state_dir)

    def stored(self, number: int, entries: tuple[Entry, ...]) -> Stored:
        """Return a generation; raises RejectedInput where there is none with this number."""
        found = self.store.read(number)
        if found is None:
            raise _unknown(number, entries)
        return found

    def edits(self, before: str, after: str) -> tuple[Edit, ...]:
        """Return how fragments and settings differ."""
        if before == after:
            return ()
        if not before or not after:
            return (Edit("", "", "fragments or settings changed: those of one of them were not kept"),)
        try:
            return self.bases.read(before).changes_to(self.bases.read(after))
        except RejectedInput as error:
            return (Edit("", "", f"fragments or settings changed: {error.problems[0]}"),)


def _chosen(entries: tuple[Entry, ...], number: int | None, pin: Pin | None) -> Entry:
    if number is not None:
        found = next((entry for entry in entries if entry.number == number), None)
        if found is None:
            raise _unknown(number, entries)
    else:
        if pin is not None:
            already = f"generation {pin.generation} is pinned already" if pin.generation else pin.broken
            raise RejectedInput(Problem("rollback", already, "name the one that you want: pyconfd rollback N"))
        others = (entry for entry in entries if entry.basis and entry.basis != entries[0].basis)
        found = next(others, None)
        if not entries:
            raise _unknown(0, entries)
        if found is None:
            message = "there is no former one: all that are kept have the same fragments and settings"
            raise RejectedInput(Problem("rollback", message, "pyconfd history lists them"))
    if not found.basis:
        message = f"the fragments of generation {found.number} were not kept: an older pyconfd made it"
        raise RejectedInput(Problem("rollback", message, "pyconfd diff shows its text"))
    return found


def _unknown(number: int, entries: tuple[Entry, ...]) -> RejectedInput:
    numbers = [str(entry.number) for entry in entries]
    if not numbers:
        return RejectedInput(
            Problem("history", "no generation was applied yet", "pyconfd status says what it waits for")
        )
    kept = f"there are: {', '.join(numbers[:20])}{', ...' if len(numbers) > 20 else ''}"
    return RejectedInput(Problem("history", f"generation {number} is not kept", kept))


def _serving(settings: Settings, entries: tuple[Entry, ...]) -> int:
    """Return the number of what serves, as far as it is on disk; 0 for nothing."""
    report = read_report(settings)
    status = report.status if report.running else None
    numbers = [entry.number for entry in entries]
    if status is not None and status.generation is not None and status.generation.number in numbers:
        return status.generation.number
    return numbers[0] if numbers else 0


def _awaited(settings: Settings, pause: Callable[[float], None], is_over: Callable[[Status], bool]) -> Status | None:
    """Return the status once it is as wanted, or the last one that was seen."""
    seen: Status | None = None
    for status in _statuses(settings, pause):
        seen = status
        if is_over(status):
            break
    return seen


def _statuses(settings: Settings, pause: Callable[[float], None]) -> Iterator[Status]:
    ends = time.monotonic() + ACKNOWLEDGED_S
    while time.monotonic() < ends:
        report: StatusReport = read_report(settings)
        if report.running and report.status is not None:
            yield report.status
        pause(POLL_S)


def _is_decided(status: Status, pin_id: str) -> bool:
    mine = status.pin is not None and status.pin.pin.id == pin_id
    return mine and status.pin is not None and (status.pin.serves or status.pin.refused or _waits_for_somebody(status))


def _is_undecided(status: Status) -> bool:
    serves = (status.phase is Phase.SERVING and not status.pending_since) or _holds_removals(status)
    decided = not status.untried and (serves or status.phase in {Phase.REJECTED, Phase.FAILED, Phase.HELD})
    return not decided and not _waits_for_somebody(status)


def _waits_for_somebody(status: Status) -> bool:
    return status.live.paused is not None or (status.phase is Phase.HELD and not _holds_removals(status))


def _holds_removals(status: Status) -> bool:
    """Return whether the guard keeps back removals only: fragments and settings go through."""
    return status.phase is Phase.HELD and status.hold is not None


def _not_yet(status: Status | None, what: str) -> PyconfdError:
    """Return what is in the way."""
    remedy = "pyconfd status shows it"
    if status is None:
        return TransientError(Problem("pyconfd", f"{what}: it does not answer", remedy))
    if status.live.paused is not None:
        return TransientError(Problem("pyconfd", f"{what}: applying is paused", "pyconfd resume"))
    problems = [Problem("pyconfd", what, remedy), *(Problem("", problem) for problem in status.problems)]
    refused = status.phase in {Phase.REJECTED, Phase.FAILED, Phase.HELD} or (status.pin and status.pin.refused)
    return RejectedInput(*problems) if refused else TransientError(*problems)
