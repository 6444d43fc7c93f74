"""The generations that are kept, and what differs between two: for `pyconfd history`, `diff` and the page."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.config.diff import differences
from pyconfd.haproxy.config.text import without_passwords
from pyconfd.haproxy.history.generations import GenerationEntry, GenerationStore
from pyconfd.haproxy.history.pins import InputsStore
from pyconfd.model.changes import Action, Change
from pyconfd.model.inputs import Edit
from pyconfd.model.outcome import Stored
from pyconfd.settings import Settings
from pyconfd.settings.inputs import secret_values
from pyconfd.status.changes import ChangeReader
from pyconfd.status.document import read_report

_MADE_ONE = frozenset({Action.LIVE, Action.FILE, Action.RELOAD})


def causes_between(recorded: Sequence[Change], since: int, number: int) -> tuple[str, ...]:
    """Return what caused the changes after one generation up to another."""
    return tuple(
        dict.fromkeys(cause for each in recorded if since < each.generation <= number for cause in each.causes)
    )


@dataclass(frozen=True, slots=True)
class GenerationDifference:
    """From one generation to another: ``edits`` of fragments and settings, ``changes`` in words, both texts.

    Of the texts passwords and the operator's own secrets are left out; ``only_hidden``: they differ in these only.
    """

    before: int
    after: int
    edits: tuple[Edit, ...]
    changes: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    only_hidden: bool

    @property
    def sentences(self) -> tuple[str, ...]:
        """What differs, in words."""
        return (*map(str, self.edits), *self.changes)

    def text(self) -> str:
        """Return a unified diff."""
        names = f"generation {self.before}", f"generation {self.after}"
        return "".join(f"{line}\n" for line in difflib.unified_diff(self.old, self.new, *names, lineterm=""))


class GenerationHistory:
    """The generations that are kept, with their fragments and settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.store = GenerationStore(settings.state_dir, settings.apply.keep_generations)
        self.inputs = InputsStore(settings.state_dir)

    def stored(self, number: int, entries: tuple[GenerationEntry, ...]) -> Stored:
        """Return a generation; raises RejectedInput where there is none with this number."""
        found = self.store.read(number)
        if found is None:
            raise unknown_generation(number, entries)
        return found

    def edits(self, before: str, after: str) -> tuple[Edit, ...]:
        """Return how fragments and settings differ."""
        if before == after:
            return ()
        if not before or not after:
            return (Edit("", "", "fragments or settings changed: those of one of them were not kept"),)
        try:
            return self.inputs.read(before).changes_to(self.inputs.read(after))
        except RejectedInput as error:
            return (Edit("", "", f"fragments or settings changed: {error.problems[0]}"),)

    def difference(self, older: Stored, newer: Stored) -> GenerationDifference:
        """Return what differs from one generation to another."""
        hidden = secret_values(self._settings)
        old, new = (tuple(without_passwords(each.rendering.text, hidden).splitlines()) for each in (older, newer))
        return GenerationDifference(
            older.generation.number,
            newer.generation.number,
            self.edits(older.rendering.inputs, newer.rendering.inputs),
            differences(older.rendering, newer.rendering),
            old,
            new,
            only_hidden=old == new and older.rendering.text != newer.rendering.text,
        )

    def recorded(self) -> tuple[Change, ...]:
        """Return the changes that made a generation, as far as the runtime directory has them."""
        try:
            with ChangeReader(self._settings.runtime_dir) as reader:
                return tuple(each for each in reader.known() if each.action in _MADE_ONE)
        except TransientError:
            return ()

    def running(self, entries: tuple[GenerationEntry, ...]) -> int:
        """Return the number of the running generation, as far as it is on disk; 0 for none."""
        report = read_report(self._settings)
        status = report.status if report.running else None
        numbers = [entry.number for entry in entries]
        if status is not None and status.generation is not None and status.generation.number in numbers:
            return status.generation.number
        return numbers[0] if numbers else 0


def unknown_generation(number: int, entries: tuple[GenerationEntry, ...]) -> RejectedInput:
    """Return the error that a generation is not kept."""
    numbers = [str(entry.number) for entry in entries]
    if not numbers:
        return RejectedInput(
            Problem("history", "no generation was applied yet", "pyconfd status says what it waits for")
        )
    kept = f"there are: {', '.join(numbers[:20])}{', ...' if len(numbers) > 20 else ''}"
    return RejectedInput(Problem("history", f"generation {number} is not kept", kept))
