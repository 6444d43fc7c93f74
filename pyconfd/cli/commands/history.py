"""``pyconfd history`` and ``pyconfd diff``: the generations that are kept, and what differs between two."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import click

from pyconfd.app.generation_history import GenerationHistory, causes_between
from pyconfd.cli.command import CommandContext, command, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_difference, print_json, print_lines, print_notes, print_table, print_text
from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.config.diff import differences
from pyconfd.haproxy.history.generations import GenerationEntry
from pyconfd.haproxy.history.pins import PinFile
from pyconfd.model.inputs import Edit
from pyconfd.model.outcome import Generation, Stored
from pyconfd.status.changes import named

_UNREADABLE = "this user may not read the state directory"
_SHOWN = 20
_CHANGES_SHOWN = 2


@command(
    examples={
        "pyconfd history": f"the newest {_SHOWN}",
        "pyconfd history --all": "all that are kept",
        "pyconfd history --json": "for programs, with every change",
    },
    exits={Exit.TEMPORARY: _UNREADABLE},
)
@click.option("--all", "everything", is_flag=True, help="All that are kept.")
@json_option
def history(context: CommandContext, *, as_json: bool, everything: bool) -> int:
    """List the generations: what changed, when and how.

    Newest first: number, time, digest, how it was applied (live, or by a reload and why), and in words what changed
    since the one before it in the list: fragments, settings, services, servers; and by which objects of the cluster, as
    far as `pyconfd watch` still knows. `*` is the running one, `p` is pinned.
    """
    settings = context.settings()
    past = GenerationHistory(settings)
    entries = past.store.entries()
    shown = entries if everything else entries[: _SHOWN + 1]  # one more, to compare the last with
    pin, running = PinFile(settings.state_dir).read(), past.running(entries)
    found = ((entry, past.store.read(entry.number)) for entry in shown)
    readable = [(entry, stored) for entry, stored in found if stored is not None]
    formers: list[Stored | None] = [*(stored for _, stored in readable[1:]), None]
    recorded = past.recorded()
    rows = [
        HistoryRow(
            entry,
            stored.generation,
            since=former.generation.number if former else 0,
            edits=past.edits(former.rendering.inputs, entry.inputs) if former else (),
            changes=differences(former.rendering, stored.rendering) if former else (),
            serving=entry.number == running,
            pinned=pin is not None and pin.generation == entry.number,
            causes=causes_between(recorded, former.generation.number if former else entry.number - 1, entry.number),
        )
        for (entry, stored), former in zip(readable, formers, strict=False)
    ]
    rows = rows if everything else rows[:_SHOWN]
    if as_json:
        print_json([row.values for row in rows])
    elif rows:
        print_table(("", "number", "applied", "digest", "how", "what changed"), [row.cells for row in rows])
    else:
        print_text("No generation was applied yet.")
    return Exit.OK


@command(
    examples={
        "pyconfd diff": "the last change",
        "pyconfd diff 41": "since generation 41",
        "pyconfd diff 41 44": "from one to the other",
    },
    exits={
        Exit.OK: "they are the same",
        Exit.CHANGES: "they differ",
        Exit.FAILED: "there is no such generation",
        Exit.TEMPORARY: _UNREADABLE,
    },
)
@click.argument("before", metavar="[A]", type=int, required=False)
@click.argument("after", metavar="[B]", type=int, required=False)
@json_option
def diff(context: CommandContext, before: int | None, after: int | None, *, as_json: bool) -> int:
    """Show what differs between two generations.

    From A to B, in words (fragments, settings, services and servers that were added, removed or changed), and as a
    unified diff. Without B it is the running one; without A the one before B. Passwords are not shown.
    """
    settings = context.settings()
    past = GenerationHistory(settings)
    entries = past.store.entries()
    newer = past.stored(after if after is not None else past.running(entries), entries)
    if before is None:
        before = next((entry.number for entry in entries if entry.number < newer.generation.number), None)
        if before is None:
            raise RejectedInput(Problem("diff", f"there is none before generation {newer.generation.number}"))
    found = past.difference(past.stored(before, entries), newer)
    number, other, sentences, text = found.before, found.after, found.sentences, found.text()
    code = Exit.CHANGES if sentences or text or found.only_hidden else Exit.OK
    if as_json:
        named = {"from": number, "to": other, "edits": [asdict(edit) for edit in found.edits]}
        print_json({**named, "changes": list(found.changes), "text": text})
        return code
    if found.only_hidden:
        print_notes(("the texts differ only in what is hidden: passwords",))
    print_text(click.style(f"From generation {number} to {other}:", bold=True))
    print_lines(sentences or ("nothing differs but comments, blanks or the order of sections",))
    if text:
        print_text("")
        print_difference(text)
    return code


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One generation, and what differs from generation ``since`` (0 for none): ``edits`` of fragments and settings."""

    entry: GenerationEntry
    generation: Generation
    since: int
    edits: tuple[Edit, ...]
    changes: tuple[str, ...]
    serving: bool
    pinned: bool
    causes: tuple[str, ...] = ()
    """The objects of the cluster that changed, as far as that is still known."""

    @property
    def values(self) -> dict[str, Any]:
        """All of it as plain data."""
        generation = self.generation
        return {
            "number": generation.number,
            "applied_at": generation.applied_at,
            "digest": generation.digest,
            "how": "reload" if generation.reasons else "live",
            "reasons": list(generation.reasons),
            "since": self.since,
            "edits": [asdict(edit) for edit in self.edits],
            "changes": list(self.changes),
            "causes": list(self.causes),
            "inputs": self.entry.inputs,
            "ran_well": self.entry.ran_well,
            "serving": self.serving,
            "pinned": self.pinned,
        }

    @property
    def cells(self) -> tuple[str, ...]:
        """What the table shows."""
        generation = self.generation
        mark = ("*" if self.serving else "") + ("p" if self.pinned else "")
        when = datetime.fromtimestamp(generation.applied_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        sentences = (*map(str, self.edits), *self.changes)
        more = len(sentences) - _CHANGES_SHOWN
        said = "; ".join(sentences[:_CHANGES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        how = f"reload ({', '.join(generation.reasons)})" if generation.reasons else "live"
        nothing = "nothing before it is kept" if not self.since else "only comments, blanks or the order of sections"
        by = f", by {named(self.causes)}" if self.causes else ""
        return mark, str(generation.number), when, generation.digest[:8], how, (said or nothing) + by
