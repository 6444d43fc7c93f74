"""What former translations gave, so that the next one costs what changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING

from pyconfd.model.context import Context, Refusal
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.reading import PresetOptions, PresetReading

if TYPE_CHECKING:
    from pyconfd.presets.cluster import Translated


@dataclass(frozen=True, slots=True)
class _KeptReading:
    name: str
    snapshot: Snapshot
    options: PresetOptions
    reading: PresetReading


class Memo:
    """Belongs to one thread that translates again and again; it is handed to each translation.

    It changes nothing but the time that a translation takes, and which objects of the result are those of the former
    one. It holds what was read of the last two Snapshots at most.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._kept: list[_KeptReading] = []
        self._refused: tuple[tuple[tuple[Refusal, ...], ...], tuple[Refusal, ...]] = ((), ())
        self._whole: tuple[tuple[str, ...], PresetOptions, Context] | None = None
        self._settled: tuple[tuple[object, ...], Context] | None = None
        self.cluster: Translated | None = None

    def whole(self, names: Sequence[str], options: PresetOptions) -> Context | None:
        """Return what the Snapshot at hand came to with just these presets and options, if that was asked for last."""
        known = self._whole
        return known[2] if known and known[0] == tuple(names) and known[1] is options else None

    def keep_whole(self, names: Sequence[str], options: PresetOptions, context: Context) -> None:
        """Keep what the Snapshot at hand came to."""
        self._whole = tuple(names), options, context

    def settled(self, asked: tuple[object, ...]) -> Context | None:
        """Return what came of the very objects of ``asked``, if that was kept last."""
        known = self._settled
        return known[1] if known is not None and all(map(is_, known[0], asked)) else None

    def keep_settled(self, asked: tuple[object, ...], context: Context) -> None:
        """Keep what came of ``asked``, as long as the same Snapshot is at hand."""
        self._settled = asked, context

    def begin(self, snapshot: Snapshot) -> None:
        """Forget the readings that were of no use for the Snapshot before this one."""
        if snapshot is not self._snapshot:
            self._kept = [kept for kept in self._kept if kept.snapshot is self._snapshot]
            self._snapshot, self._whole, self._settled = snapshot, None, None

    def former(self, name: str, options: PresetOptions) -> tuple[PresetReading | None, bool]:
        """Return the reading to build on, and whether it is of this very Snapshot with these options.

        One Snapshot may be read with several options (a port is contested, fragments are being tried): each has its
        own successor.
        """
        found: PresetReading | None = None
        for kept in reversed(self._kept):
            if kept.name != name:
                continue
            if kept.options is options or kept.options == options:
                return kept.reading, kept.snapshot is self._snapshot
            found = found or kept.reading
        return found, False

    def keep(self, name: str, snapshot: Snapshot, options: PresetOptions, reading: PresetReading) -> None:
        """Keep a reading for the next translation with these options."""
        self._kept = [kept for kept in self._kept if kept.name != name or kept.options != options]
        self._kept.append(_KeptReading(name, snapshot, options, reading))

    def sorted_refusals(self, parts: tuple[tuple[Refusal, ...], ...]) -> tuple[Refusal, ...]:
        """Return all refusals once, in order; the same tuple as before where all parts are."""
        former, result = self._refused
        if len(former) != len(parts) or any(old is not new for old, new in zip(former, parts, strict=True)):
            result = tuple(sorted({refusal for part in parts for refusal in part}))
            self._refused = (parts, result)
        return result
