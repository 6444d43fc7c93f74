"""From two renderings and an observation to a Plan, with work in proportion to the difference. Pure, but it remembers.

Three texts are compared: desired (rendered just now), applied (last proven good) and running (what the worker says
it loaded, and what was changed in it since). Only when all three and the installed files agree is there nothing to do.

Pieces that are the same object are the same text. Only the sections of changed pieces are cut out and parsed; where a
piece cannot be judged by itself, both texts are cut into sections and those that differ are parsed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

from pyconfd.haproxy.config.changes import (
    Abilities,
    Obstacle,
    SectionChanges,
    added_section,
    changed_files,
    changed_section,
    removed_section,
)
from pyconfd.haproxy.config.index import Cut, Index, SectionKey, cut, index_of, is_idle, section_of
from pyconfd.haproxy.config.servers import Inherited
from pyconfd.haproxy.config.slices import SLICE, ServerChanges, ServerCommand
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.observation import NotRunning, Observation, Running
from pyconfd.model.plan import (
    AddBackend,
    AddCertificate,
    AddServer,
    Command,
    Noop,
    Plan,
    Reload,
    ReloadReason,
    RemoveBackend,
    RemoveCertificate,
    RemoveListLines,
    RemoveServer,
    RuntimeUpdate,
    ServerState,
    SetState,
    SetWeight,
)
from pyconfd.model.rendering import FileKind, Piece, Rendering, noted_certificates
from pyconfd.model.reservation import moves

_FREE = frozenset({"global", "defaults"})
"""Sections whose meaning depends on where they stand, or on which others depend."""


PARTIAL = "changed live"
"""The fragment of a rendering that the process runs while a reload waits."""


class _Block(NamedTuple):
    """Where a block that differs stands: what precedes its sections, and of each the key and what follows the block."""

    piece: int
    place: int
    head: str
    sections: tuple[tuple[SectionKey, str], ...]


@dataclass(slots=True)
class _Sections:
    """Texts of the sections that differ; None where one is missing. ``blocks`` is None where all were compared."""

    old: Mapping[SectionKey, str]
    new: Mapping[SectionKey, str]
    bases: Mapping[SectionKey, Inherited]
    blocks: tuple[_Block, ...] | None = None


class _Rest(NamedTuple):
    """What is left of the changes of a section after a slice, and what that depends on."""

    key: SectionKey
    base: Inherited
    abilities: Abilities
    changes: ServerChanges


class Slice(NamedTuple):
    """The first part of a runtime update, and what the process runs after it."""

    rendering: Rendering
    commands: tuple[Command, ...]


class Comparison:
    """Compares renderings with the one that is applied; keeps what it found out about that one."""

    def __init__(self) -> None:
        self._applied: Rendering | None = None
        self._index: Index | None = None
        self._last: tuple[_Sections, SectionChanges, Abilities] | None = None
        self._next: tuple[Rendering, Index | Mapping[SectionKey, str]] | None = None
        self._rest: _Rest | None = None

    def compare(self, applied: Rendering, desired: Rendering, abilities: Abilities) -> SectionChanges | None:
        """Return what differs, None where nothing does."""
        if applied is desired or applied.same_as(desired):
            return None
        index = self._index_of(applied)
        sections = self._changed_blocks(index, applied, desired)
        if sections is None:
            wanted = index_of(desired.text)
            self._next = (desired, wanted)
            sections = _Sections(index.texts, wanted.texts, wanted.bases)
            found = self._sections(sections, index, abilities)
            _judge_whole(found, index, wanted)
        else:
            self._next = (desired, sections.new)
            found = self._sections(sections, index, abilities)
        found.extend(changed_files(applied.files, desired.files, index))
        found.obstacles += _other_certificates(applied, desired)
        found.commands = _in_safe_order(found.commands)
        self._last = sections, found, abilities
        return found

    def partial(self, applied: Rendering) -> Slice:
        """Return those changes of the last comparison, with ``applied``, that may be made before a reload."""
        live = self._last[1].live if self._last else {}
        return self._part(applied, live)

    def first_slice(self, applied: Rendering, most: int = SLICE) -> Slice | None:
        """Return the part of the last comparison, with ``applied``, that goes first: so many servers, ``most``.

        None where all may go at once.
        Changes of other things than servers wait for all servers that come, and those that go wait for them.
        """
        if self._last is None:
            return None
        _, found, abilities = self._last
        only_additions = not found.obstacles and any(not isinstance(each, ServerCommand) for each in found.commands)
        turns = {key: changes.in_turn(only_additions=only_additions) for key, changes in found.live.items()}
        if sum(map(len, turns.values())) <= most:
            return None
        chosen: dict[SectionKey, ServerChanges] = {}
        room = most
        for key in sorted(turns, key=lambda each: len(turns[each])):  # the smallest first
            servers = turns[key][:room]
            room -= len(servers)
            if not servers:
                break
            chosen[key], rest = found.live[key].parted(frozenset(servers))
            if rest.commands and rest.is_all:
                self._rest = _Rest(key, self._index_of(applied).bases.get(key, Inherited()), abilities, rest)
        return self._part(applied, chosen)

    def _part(self, applied: Rendering, changes: Mapping[SectionKey, ServerChanges]) -> Slice:
        index = self._index_of(applied)
        texts = {key: each.whole for key, each in changes.items()}
        blocks = self._last[0].blocks if self._last else None
        if blocks is None:
            whole = {**index.texts, **texts}
            pieces: tuple[Piece, ...] = (Piece(PARTIAL, "".join((index.head, *whole.values()))),)
        else:
            pieces = _with_texts(applied.pieces, blocks, {**index.texts, **texts}, texts.keys())
        made = replace(applied, pieces=pieces)
        self._next = made, texts
        return Slice(made, tuple(_in_safe_order([command for each in changes.values() for command in each.commands])))

    def index(self, applied: Rendering) -> Index:
        """Return the sections of ``applied``, the rendering that the process runs; mostly known already."""
        if self._index is not None and self._applied is applied:
            return self._index
        return self._index_of(applied)

    def _index_of(self, applied: Rendering) -> Index:
        index, self._next, known = self._index, None, self._next
        if index is not None and self._applied is not None and self._applied.same_as(applied):
            pass
        elif known is None or not known[0].same_as(applied):  # the same objects, or an equal rendering of later objects
            index = index_of(applied.text)
        elif isinstance(known[1], Index):
            index = known[1]
        elif index is not None:
            index.replace(known[1])
        else:
            index = index_of(applied.text)
        self._applied, self._index = applied, index
        return index

    def _changed_blocks(self, index: Index, applied: Rendering, desired: Rendering) -> _Sections | None:
        """Return the sections of the pieces that differ; None where they cannot be judged by themselves."""
        pairs = _changed_pieces(applied, desired)
        if pairs is None or not index.whole:
            return None
        old: dict[SectionKey, str] = {}
        new: dict[SectionKey, str] = {}
        blocks: list[_Block] = []
        for piece, place, before, after in pairs:
            (head, was), (other_head, now) = cut(before), cut(after)
            if head != other_head and not (is_idle(head) and is_idle(other_head)):
                return None
            if [part[:2] for part in was] != [part[:2] for part in now]:
                return None
            keys: list[tuple[SectionKey, str]] = []
            for part, other in zip(was, now, strict=True):
                known = _known(index, part)
                if known is None or part.keyword in _FREE or ".if" in other.text or ".endif" in other.text:
                    return None
                key, rest = known
                old[key], new[key] = index.texts[key], other.text + rest
                keys.append(known)
            blocks.append(_Block(piece, place, head, tuple(keys)))
        return _Sections(old, new, index.bases, tuple(blocks))

    def _sections(self, sections: _Sections, index: Index, abilities: Abilities) -> SectionChanges:
        found = SectionChanges()
        for key, text in sections.new.items():
            was = sections.old.get(key)
            if was == text:
                continue
            if was is not None:
                self._changed(found, key, (was, text), index, abilities)
            elif (section := section_of(text)) is None:
                found.obstacles.append(Obstacle(ReloadReason.TEXT_CHANGED, f"{key.keyword} {key.name}: unreadable"))
            else:
                named = index.defaults.get(section.options[1] if len(section.options) > 1 else "", Inherited())
                found.extend(added_section(section, index.defaults, named, abilities))
        for key, text in sections.old.items():
            if key not in sections.new and (gone := section_of(text)) is not None:
                found.extend(removed_section(gone, index.bases.get(key, Inherited()), abilities))
        return found

    def _changed(
        self, found: SectionChanges, key: SectionKey, texts: tuple[str, str], index: Index, abilities: Abilities
    ) -> None:
        base, rest = index.bases.get(key, Inherited()), self._rest
        if rest is not None and rest[:3] == (key, base, abilities) and rest.changes.texts == texts:
            commands: list[Command] = [*rest.changes.commands]
            detail = f"{key.keyword} {key.name}: {len(commands)} more changes of servers"
            found.extend(SectionChanges(commands, [], [detail]))
            found.live[key] = rest.changes
            return
        old, new = section_of(texts[0]), section_of(texts[1])
        if old is None or new is None:
            found.obstacles.append(Obstacle(ReloadReason.TEXT_CHANGED, f"{key.keyword} {key.name}: unreadable"))
            return
        difference = changed_section(old, new, base, abilities)
        found.extend(difference)
        servers_only = {ReloadReason.BINDS_CHANGED, ReloadReason.SECTION_CHANGED}
        if difference.commands and {one.reason for one in difference.obstacles} <= servers_only:
            is_all = not difference.obstacles
            found.live[key] = ServerChanges.between(old, new, texts, difference.commands, is_all=is_all)


def _changed_pieces(applied: Rendering, desired: Rendering) -> list[tuple[int, int, str, str]] | None:
    """Return the blocks that differ with their places, pair by pair; None where pieces or blocks are others."""
    if len(applied.pieces) != len(desired.pieces):
        return None
    pairs: list[tuple[int, int, str, str]] = []
    for number, (was, now) in enumerate(zip(applied.pieces, desired.pieces, strict=True)):
        if was is now:
            continue
        places = now.places_since(was) if was.fragment == now.fragment else None
        if places is None:
            return None
        pairs.extend((number, place, was.blocks[place], now.blocks[place]) for place in places)
    return pairs


def _with_texts(
    pieces: Sequence[Piece], blocks: Iterable[_Block], texts: Mapping[SectionKey, str], changed: Collection[SectionKey]
) -> tuple[Piece, ...]:
    """Return the pieces with other texts of the sections that ``changed``."""
    replaced: dict[int, dict[int, str]] = {}
    for block in blocks:
        if any(key in changed for key, _ in block.sections):
            parts = (texts[key].removesuffix(rest) for key, rest in block.sections)
            replaced.setdefault(block.piece, {})[block.place] = "".join((block.head, *parts))
    return tuple(
        piece.with_blocks(replaced[number]) if number in replaced else piece for number, piece in enumerate(pieces)
    )


def _other_certificates(applied: Rendering, desired: Rendering) -> list[Obstacle]:
    """See whether certificates that are not part of the renderings were renewed: only their notes tell."""
    was, now = (one.pieces[-1].blocks[-1:] if one.pieces else () for one in (applied, desired))
    if was == now:
        return []
    before, after = (noted_certificates("".join(blocks)) for blocks in (was, now))
    changed = sorted(path for path, digest in after.items() if before.get(path, digest) != digest)
    return [Obstacle(ReloadReason.CERTIFICATES_CHANGED, f"certificate {path} changed") for path in changed]


def _known(index: Index, part: Cut) -> tuple[SectionKey, str] | None:
    """Find the section that a piece holds whole: its key, and the idle lines that follow it in later pieces."""
    key = SectionKey(part.keyword, part.name)
    whole = index.texts.get(key)
    if whole is None or SectionKey(part.keyword, part.name, 1) in index.texts or not whole.startswith(part.text):
        return None
    rest = whole[len(part.text) :]
    return (key, rest) if is_idle(rest) else None


def _judge_whole(found: SectionChanges, old: Index, new: Index) -> None:
    """See what the sections do not show one by one: their order, what they inherit, conditions around them."""
    if not (old.whole and new.whole):
        detail = "lines before the first section, or an .if beyond the end of one, changed or hide what did"
        found.obstacles.append(Obstacle(ReloadReason.TEXT_CHANGED, detail))
        found.live.clear()
        return
    moved = next((key for key, base in new.bases.items() if _moved(key, base, old, new)), None)
    if moved is not None and not any(one.reason is ReloadReason.DEFAULTS_CHANGED for one in found.obstacles):
        detail = f"{moved.keyword} {moved.name} inherits from another section"
        found.obstacles.append(Obstacle(ReloadReason.DEFAULTS_CHANGED, detail))


def _moved(key: SectionKey, base: Inherited, old: Index, new: Index) -> bool:
    """Return whether a section inherits from another one than before though its header is the same."""
    same_header = old.texts.get(key, "").partition("\n")[0] == new.texts[key].partition("\n")[0]
    return same_header and key in old.bases and old.bases[key] != base


def _in_safe_order(commands: list[Command]) -> list[Command]:
    """Order additions before what points to them, and removals after."""
    return sorted(commands, key=_rank)


def _rank(command: Command) -> int:
    match command:
        case AddBackend():
            return 0
        case AddServer() | SetState(state=ServerState.READY) | AddCertificate():
            return 1
        case RemoveServer() | SetWeight(weight=0) | SetState() | RemoveListLines():
            return 3
        case RemoveBackend() | RemoveCertificate():
            return 4
        case _:
            return 2


MAX_DETAILS = 50
_NOT_RUNNING = "haproxy is not running"


def plan(
    desired: Rendering,
    applied: Rendering | None,
    observed: Observation | None,
    *,
    comparison: Comparison | None = None,
    abilities: Abilities | None = None,
) -> Plan:
    """Return Noop, what to change while it runs, or a Reload whose reasons and details say everything that differs.

    ``observed`` None trusts that files and process are as ``applied``. ``comparison`` remembers what was parsed
    before; ``abilities`` None means a process that cannot be changed.
    """
    if applied is None:
        first = Reload((ReloadReason.FIRST_CONFIGURATION,), ("the first configuration",))
        if observed is None or not isinstance(observed.running, NotRunning):
            return first
        return Reload((*first.reasons, ReloadReason.PROCESS_BEHIND), (*first.details, _NOT_RUNNING))
    can = abilities or Abilities()
    beside = [] if observed is None else [*_drift(applied, observed), *_behind(desired, applied, observed)]
    difference = (comparison or Comparison()).compare(applied, desired, can)
    if difference is None:
        if not beside:
            return Noop(verified=observed is None or isinstance(observed.running, Running))
        difference = SectionChanges()
    moved = tuple(each.sentence for each in moves(applied.owners, desired.owners))
    shown = _limited([*moved, *difference.details, *(one.detail for one in (*difference.obstacles, *beside))])
    reasons = sorted({one.reason for one in (*difference.obstacles, *beside)})
    if not reasons and (can.runtime or not difference.commands):
        only = ("comments, blanks or the order of sections",)
        return RuntimeUpdate(tuple(difference.commands), shown or only, moved)
    advice = [one.advice for one in difference.obstacles if one.advice]
    if not can.runtime and difference.commands:
        reasons = sorted({*reasons, ReloadReason.NOT_LIVE})
        advice.append(can.why)
    # What the process runs is not known well enough to change it, where more than the text differs.
    before = _in_safe_order([command for each in difference.live.values() for command in each.commands])
    live = RuntimeUpdate(tuple(before)) if before and can.runtime and not beside else None
    return Reload(tuple(reasons), shown, tuple(dict.fromkeys(advice)), live)


def differences(before: Rendering, after: Rendering) -> tuple[str, ...]:
    """Return in words what differs in ``after``: names that moved, sections, servers, maps and certificates."""
    everything = Abilities(runtime=True, cookies=True, backends=True)
    found = Comparison().compare(before, after, everything) or SectionChanges()
    moved = (each.sentence for each in moves(before.owners, after.owners))
    return tuple(dict.fromkeys([*moved, *found.details, *(one.detail for one in found.obstacles)]))


def is_in_sync(applied: Rendering, observed: Observation) -> bool:
    """Return whether disk and process are what they should be with ``applied``, and could be asked."""
    if not isinstance(observed.running, Running):
        return False
    return not any(True for _ in (*_drift(applied, observed), *_behind(applied, applied, observed)))


def _limited(found: list[str]) -> tuple[str, ...]:
    details = list(dict.fromkeys(detail for detail in found if detail))
    if len(details) > MAX_DETAILS:
        details[MAX_DETAILS:] = [f"and {len(details) - MAX_DETAILS} more"]
    return tuple(details)


def _drift(applied: Rendering, observed: Observation) -> Iterator[Obstacle]:
    reason = ReloadReason.FILE_EDITED
    written = observed.written or applied
    if observed.untouched is not None and observed.untouched.same_as(written):
        return  # by inodes and times: a look at every five seconds must not read and compare everything
    if observed.installed_text is None:
        yield Obstacle(reason, "the installed configuration is gone")
    elif observed.installed_text != mark(written.text, written.digest):
        yield Obstacle(reason, "the installed configuration is not the one that pyconfd wrote")
    for file in written.files:
        found = observed.file_digests.get(file.path)
        if found is None:
            yield Obstacle(reason, f"{file.path} is gone")
        elif not file.content and file.kind is FileKind.CERTIFICATE:
            continue  # out of the history, which keeps no keys: what it was is not known any more
        elif found != sha256(file.content.encode()).hexdigest():
            yield Obstacle(reason, f"{file.path} is not the one that pyconfd wrote")


def _behind(desired: Rendering, applied: Rendering, observed: Observation) -> Iterator[Obstacle]:
    """Compare the process; that it runs what was applied is no surprise when something else is desired."""
    reason = ReloadReason.PROCESS_BEHIND
    if isinstance(observed.running, NotRunning):
        yield Obstacle(reason, _NOT_RUNNING)
    elif isinstance(observed.running, Running):
        digest = observed.running.digest
        if digest is None:
            yield Obstacle(reason, "haproxy runs a configuration that pyconfd did not write")
        elif (observed.running.worker_pid, digest) == observed.changed:
            return  # and what was changed in it since
        elif digest not in {applied.digest, desired.digest}:
            yield Obstacle(reason, f"haproxy runs another configuration ({digest[:12]})")
        elif digest != desired.digest and applied.digest == desired.digest:
            yield Obstacle(reason, f"haproxy still runs {digest[:12]}")
