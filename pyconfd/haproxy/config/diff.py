"""From two renderings and an observation to a Plan, with work in proportion to the difference. Pure, but it remembers.

Three texts are compared: desired (rendered just now), applied (last proven good) and running (what the worker says
it loaded, and what was changed in it since). Only when all three and the installed files agree is there nothing to do.

Pieces that are the same object are the same text. Only the sections of changed pieces are cut out and parsed, without
the server lines that did not change; where a piece cannot be judged by itself, both texts are cut into sections and
those that differ are parsed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from operator import attrgetter
from typing import NamedTuple

from pyconfd.haproxy.config.changes import (
    Abilities,
    ReloadCause,
    SectionChanges,
    added_section,
    changed_files,
    changed_section,
    removed_section,
)
from pyconfd.haproxy.config.index import (
    Index,
    SectionKey,
    SectionSlice,
    Span,
    base_of,
    cut,
    differing_servers,
    index_of,
    is_balanced,
    section_of,
)
from pyconfd.haproxy.config.servers import Defaults, Inherited
from pyconfd.haproxy.config.slices import SLICE, ServerChanges
from pyconfd.haproxy.config.text import Section, mark
from pyconfd.haproxy.process.observation import NotRunning, Observation, Running
from pyconfd.model.operations import Command, ServerCommand
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import FileKind, Piece, Rendering, Run, noted_certificates
from pyconfd.model.reservation import moves
from pyconfd.model.spares import is_spare_section, spare_kind

_DEFAULTS = re.compile(r"^[ \t]*defaults\b.*", re.MULTILINE)

PARTIAL = "changed live"
"""The fragment of a rendering that the process runs while a reload waits."""


class _Place(NamedTuple):
    """Where a span of sections stands: in the blocks of a piece, behind ``head``.

    Blocks before them have ``opened`` of its first section, those after them ``rest`` of its last one.
    """

    piece: int
    run: Run
    head: str
    opened: str
    rest: str


class _Changed(NamedTuple):
    """The sections that may differ: their texts in two configurations, and the defaults above each in the newer one.

    ``places`` are those of the spans; None where the whole texts were compared.
    """

    old: Mapping[SectionKey, str]
    new: Mapping[SectionKey, str]
    above: Mapping[SectionKey, Defaults]
    places: tuple[tuple[Span, _Place], ...] | None = None


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
        self._last: tuple[_Changed, SectionChanges, Abilities] | None = None
        self._next: tuple[Rendering, Index | Sequence[Span]] | None = None
        self._rest: _Rest | None = None

    def compare(self, applied: Rendering, desired: Rendering, abilities: Abilities) -> SectionChanges | None:
        """Return what differs, None where nothing does."""
        if applied is desired or applied.same_as(desired):
            return None
        index = self._index_of(applied)
        changed = _changed_spans(index, applied, desired)
        whole = True
        if changed is None:
            wanted = index_of(desired.text)
            wanted.keep_unused(index)
            self._next = (desired, wanted)
            changed, whole = _Changed(index.in_order(), wanted.texts, wanted.above), index.whole and wanted.whole
        else:
            self._next = (desired, [span for span, _ in changed.places or ()])
        found = self._sections(changed, index, abilities)
        _judge_place(found, index, changed, whole=whole)
        found.extend(changed_files(applied.files, desired.files, index))
        found.reload_causes += _other_certificates(applied, desired)
        found.commands = _in_safe_order(found.commands)
        self._last = changed, found, abilities
        return found

    def forget_unused(self) -> None:
        """Forget the defaults sections that the former worker had and the text did not: a reload was verified."""
        for each in (self._index, self._next[1] if self._next else None):
            if isinstance(each, Index):
                each.unused = {}

    def partial(self, applied: Rendering) -> Slice:
        """Return those changes of the last comparison, with ``applied``, that may be made before a reload."""
        live = self._last[1].live if self._last else {}
        return self._part(applied, live)

    def first_slice(self, applied: Rendering, most: int = SLICE) -> Slice | None:
        """Return the part of the last comparison, with ``applied``, that goes first: so many servers, ``most``.

        None where all may go at once. The smallest sections go first, and one of which only a part fits goes alone: who
        changes one server does not wait for the answers about a thousand. Changes of other things than servers wait
        for all servers that come, and those that go wait for them.
        """
        if self._last is None:
            return None
        _, found, abilities = self._last
        only_additions = not found.reload_causes and any(not isinstance(each, ServerCommand) for each in found.commands)
        turns = {key: changes.in_turn(only_additions=only_additions) for key, changes in found.live.items()}
        if sum(map(len, turns.values())) <= most:
            return None
        chosen: dict[SectionKey, ServerChanges] = {}
        room = most
        for key in sorted(filter(turns.get, turns), key=lambda each: len(turns[each])):
            servers, rest = turns[key][:room], found.live[key]
            is_next = bool(chosen) and len(servers) < len(turns[key])
            if not is_next:
                room -= len(servers)
                chosen[key], rest = rest.split(frozenset(servers))
            if rest.commands and rest.is_all:
                self._rest = _Rest(key, self._index_of(applied).base(key), abilities, rest)
            if is_next or not room:
                break
        return self._part(applied, chosen)

    def _part(self, applied: Rendering, changes: Mapping[SectionKey, ServerChanges]) -> Slice:
        index = self._index_of(applied)
        texts = {key: each.whole for key, each in changes.items()}
        places = self._last[0].places if self._last else None
        pieces = _with_texts(applied.pieces, places, texts, index) if places is not None else None
        if pieces is None:
            pieces = (Piece(PARTIAL, "".join((index.head, *{**index.in_order(), **texts}.values()))),)
        made = replace(applied, pieces=pieces)
        self._next = made, [Span((key,), {key: text}, {}) for key, text in texts.items()]
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
            index.patch(known[1])
        else:
            index = index_of(applied.text)
        self._applied, self._index = applied, index
        return index

    def _sections(self, sections: _Changed, index: Index, abilities: Abilities) -> SectionChanges:
        found = SectionChanges()
        process = _Process(index, abilities, _spares_to_take(index, abilities))
        for key, text in sections.new.items():
            was = sections.old.get(key)
            if was == text or _is_spare(key, was, text) or _is_loaded(key, text, index):
                continue
            if was is not None:
                self._changed(found, key, (was, text), process)
            elif (section := section_of(text)) is None:
                found.reload_causes.append(
                    ReloadCause(ReloadReason.TEXT_CHANGED, f"{key.keyword} {key.name}: unreadable")
                )
            else:
                found.extend(_added(section, process))
        for key, text in sections.old.items():
            if key in sections.new or _is_spare(key, text) or _is_unused(key, sections.new):
                continue
            if (gone := section_of(text)) is not None:
                found.extend(removed_section(gone, index.base(key), abilities))
        return found

    def _changed(self, found: SectionChanges, key: SectionKey, texts: tuple[str, str], process: "_Process") -> None:
        base, rest = process.text.base(key), self._rest
        if rest is not None and rest[:3] == (key, base, process.abilities) and rest.changes.texts == texts:
            commands: list[Command] = [*rest.changes.commands]
            detail = f"{key.keyword} {key.name}: {len(commands)} more changes of servers"
            found.extend(SectionChanges(commands, [], [detail]))
            found.live[key] = rest.changes
            return
        old, new = map(section_of, differing_servers(*texts))
        if old is None or new is None:
            found.reload_causes.append(ReloadCause(ReloadReason.TEXT_CHANGED, f"{key.keyword} {key.name}: unreadable"))
            return
        difference = changed_section(old, new, base, process.abilities)
        reasons = {one.reason for one in difference.reload_causes}
        if ReloadReason.SECTION_CHANGED in reasons and reasons <= _OF_ONE_BACKEND:
            difference = _by_spare(new, process) or difference  # with all servers: more than these differs
        found.extend(difference)
        servers_only = {ReloadReason.BINDS_CHANGED, ReloadReason.SECTION_CHANGED}
        of_servers = tuple(each for each in difference.commands if isinstance(each, ServerCommand))
        are_all = bool(of_servers) and len(of_servers) == len(difference.commands)
        if are_all and {one.reason for one in difference.reload_causes} <= servers_only:
            found.live[key] = ServerChanges(texts, of_servers, is_all=not difference.reload_causes)


def _changed_spans(index: Index, applied: Rendering, desired: Rendering) -> _Changed | None:
    """Return the sections of the blocks that differ; None where they cannot be told from the others for certain."""
    pairs = list(zip(applied.pieces, desired.pieces, strict=False))
    if not index.whole or len(applied.pieces) != len(desired.pieces) or any(a.fragment != b.fragment for a, b in pairs):
        return None
    found: list[tuple[Span, _Place]] = []
    for number, (was, now) in enumerate(pairs):
        if was is now:
            continue
        runs = now.runs_since(was)
        if any(_defaults_of(was, run.old_start, run.old_end) != _defaults_of(now, run.start, run.end) for run in runs):
            return None  # it concerns what stands below: there is no span of it, however long
        for as_one in (False, True):
            some = _as_one(runs, was, now) if as_one else runs
            of_piece = [_span(index, applied.pieces, number, run, now) for run in some]
            spans = [each for each in of_piece if each is not None]
            if len(spans) == len(some) and _are_apart(spans):
                break
        else:
            return None
        found += spans
    if not _are_apart(found):
        return None
    old = {key: index.texts[key] for span, _ in found for key in span.old}
    new = {key: text for span, _ in found for key, text in span.new.items()}
    if len(new) < sum(len(span.new) for span, _ in found) or any(key in index.texts for key in new.keys() - old.keys()):
        return None
    above = {key: defaults for span, _ in found for key, defaults in span.above.items()}
    return _Changed(old, new, above, tuple(found))


def _defaults_of(piece: Piece, start: int, end: int) -> list[str]:
    return [line for block in piece.blocks[start:end] for line in _DEFAULTS.findall(block)]


def _is_spare(key: SectionKey, *texts: str | None) -> bool:
    """Return whether a section is a spare in each of its texts: the process gets and loses these by reloads only."""
    return bool(spare_kind(key.name)) and all(text is None or is_spare_section(text) for text in texts)


class _Process(NamedTuple):
    """What runs, and what it can do; ``take_spare`` returns each free spare of a defaults section once, then ""."""

    text: Index
    abilities: Abilities
    take_spare: Callable[[str], str]


def _added(section: Section, process: _Process, *, changed: bool = False) -> SectionChanges:
    bases = process.text.loaded_defaults
    named = bases.get(section.options[1] if len(section.options) > 1 else "", Inherited())
    return added_section(section, bases, named, process.abilities, process.take_spare, changed=changed)


_OF_ONE_BACKEND = frozenset({ReloadReason.SECTION_CHANGED, ReloadReason.SERVERS_CHANGED, ReloadReason.SERVER_RENAMED})


def _by_spare(section: Section, process: _Process) -> SectionChanges | None:
    """Return how a spare serves a backend in its new form: what it was keeps its sessions. None where none can."""
    takes_spares = bool(process.abilities.spares.map_path) and not process.abilities.backends
    if not takes_spares or section.keyword != "backend" or process.text.is_named_backend(section.name):
        return None
    found = _added(section, process, changed=True)
    return None if found.reload_causes else found


def _is_loaded(key: SectionKey, text: str, index: Index) -> bool:
    """Return whether a section that comes is one of defaults, and the process still has it: it means nothing."""
    known = index.unused.get(key.name) if key.keyword == "defaults" else None
    if known is None:
        return False
    was, now = section_of(known.text), section_of(text)
    if was is None or now is None or was.options != now.options:
        return False
    return [line.words for line in was.lines] == [line.words for line in now.lines]


def _is_unused(key: SectionKey, new: Mapping[SectionKey, str]) -> bool:
    """Return whether a section that goes is one of defaults, and nothing of ``new`` is from it: it means nothing."""
    return key.keyword == "defaults" and bool(key.name) and not any(_is_from(key.name, text) for text in new.values())


def _is_from(defaults: str, text: str) -> bool:
    header = text.partition("\n")[0]
    return defaults in header and header.split("#")[0].split()[-2:] == ["from", defaults]


def _spares_to_take(index: Index, abilities: Abilities) -> Callable[[str], str]:
    """Return what gives each spare that the process has free, by its defaults section, once; "" when all were given."""
    spares = abilities.spares
    is_read = bool(spares.map_path) and index.use_of_map(spares.map_path).converters == {"map_str"}
    free: dict[str, Iterator[str]] = {}

    def take(defaults: str) -> str:
        if defaults not in free:
            free[defaults] = spares.free_of(defaults) if is_read else iter(())
        for name in free[defaults]:
            text = index.texts.get(SectionKey("backend", name))
            if text is None or is_spare_section(text):
                return name
        return ""

    return take


def _are_apart(found: Sequence[tuple[Span, _Place]]) -> bool:
    """Return whether no two runs of blocks concern one section."""
    return len({key for span, _ in found for key in span.old}) == sum(len(span.old) for span, _ in found)


def _as_one(runs: Sequence[Run], was: Piece, now: Piece) -> list[Run]:
    """Return one run of whole lines from the first of ``runs`` to the last, for what they cannot say one by one."""
    if not runs:
        return []
    start, old_start, end, old_end = runs[0].start, runs[0].old_start, runs[-1].end, runs[-1].old_end
    while start and not now.blocks[start - 1].endswith("\n"):
        start, old_start = start - 1, old_start - 1
    while end < len(now.blocks) and not _are_lines(was.blocks[old_start:old_end], now.blocks[start:end]):
        end, old_end = end + 1, old_end + 1
    return [Run(start, end, old_start, old_end)]


def _are_lines(*parts: Sequence[str]) -> bool:
    return all(not blocks or blocks[-1].endswith("\n") for blocks in parts)


def _span(index: Index, pieces: Sequence[Piece], number: int, run: Run, desired: Piece) -> tuple[Span, _Place] | None:
    """Return the sections that a run of blocks belongs to; None where it is in doubt which, or what they inherit."""
    was, now = pieces[number].blocks[run.old_start : run.old_end], desired.blocks[run.start : run.end]
    if not _are_lines(pieces[number].blocks[: run.old_start][-1:], was, now):
        return None
    texts = "".join(was), "".join(now)
    (head, old), (other_head, new) = map(cut, texts)
    opened = ""
    if head != other_head or not (old and new):
        opened = _last_section(pieces, number, run.old_start)
        if not opened:
            return None
        old, new = (cut(opened + text)[1] for text in texts)
    keys = _known(index, old, opened=bool(opened))
    if keys is None:
        return None
    rest = index.texts[keys[-1]].removeprefix(old[-1].text)
    wanted: dict[SectionKey, str] = {}
    for part in new:
        key = keys[0] if opened and not wanted else SectionKey(part.keyword, part.name)
        text = part.text + rest if part is new[-1] else part.text
        if key in wanted or not is_balanced(text):
            return None
        wanted[key] = text
    defaults = _defaults_above(index, keys, wanted)
    if defaults is None:
        return None
    return Span(tuple(keys), wanted, defaults), _Place(number, run, "" if opened else head, opened, rest)


def _last_section(pieces: Sequence[Piece], number: int, end: int) -> str:
    """Return the text of the last section that begins before a block, up to it; "" where there is none."""
    following: list[str] = []
    for piece in reversed(pieces[: number + 1]):
        blocks = piece.blocks[:end] if piece is pieces[number] else piece.blocks
        lines: list[str] = []
        for place in reversed(range(len(blocks))):
            lines.insert(0, blocks[place])
            if not place or blocks[place - 1].endswith("\n"):
                text = "".join(lines)
                if sections := cut(text)[1]:
                    return "".join((sections[-1].text, *reversed(following)))
                following.append(text)
                lines = []
    return ""


def _known(index: Index, parts: Sequence[SectionSlice], *, opened: bool) -> list[SectionKey] | None:
    """Return the keys of sections of the applied text, the last of which may go on; None where it has others."""
    keys: list[SectionKey] = []
    for part in parts:
        found = []
        key = SectionKey(part.keyword, part.name)
        while key in index.texts:
            text = index.texts[key]
            if text == part.text or (part is parts[-1] and text.startswith(part.text)):
                found.append(key)
            key = key._replace(position=key.position + 1)
        # Of several with one name only one that stays the first is known for certain.
        if len(found) != 1 or (key.position > 1 and not (opened and part is parts[0])):
            return None
        keys += found
    return keys


def _defaults_above(
    index: Index, old: Sequence[SectionKey], new: Mapping[SectionKey, str]
) -> dict[SectionKey, Defaults] | None:
    """Return the defaults sections above each of ``new``; None where such a section itself changes, comes or goes."""
    first, *others = new
    if any(key.keyword == "defaults" for key in (*old[1:], *others)) or (
        first != old[0] and "defaults" in {first.keyword, old[0].keyword}
    ):
        return None
    above = index.above[old[0]]
    if first.keyword != "defaults":
        return dict.fromkeys(new, above)
    was, now = section_of(index.texts[first]), section_of(new[first])
    if was is None or now is None or was.options != now.options:
        return None
    if [line.words for line in was.lines] != [line.words for line in now.lines]:
        return None
    return {first: above, **dict.fromkeys(others, above.below(now))}


def _with_texts(
    pieces: Sequence[Piece], places: Iterable[tuple[Span, _Place]], texts: Mapping[SectionKey, str], index: Index
) -> tuple[Piece, ...] | None:
    """Return the pieces with other ``texts`` of some sections; None where these reach beyond the blocks of a span."""
    replaced: dict[int, list[tuple[Run, str]]] = {}
    for span, (number, run, head, opened, rest) in places:
        if texts.keys().isdisjoint(span.old):
            continue
        text = "".join(texts.get(key, index.texts[key]) for key in span.old)
        own = text.removeprefix(opened).removesuffix(rest)
        if len(own) != len(text) - len(opened) - len(rest):
            return None
        replaced.setdefault(number, []).append((run, head + own))
    return tuple(
        _with_runs(piece, replaced[number]) if number in replaced else piece for number, piece in enumerate(pieces)
    )


def _with_runs(piece: Piece, replaced: Iterable[tuple[Run, str]]) -> Piece:
    blocks: list[str] = []
    end = 0
    for run, text in replaced:
        blocks += (*piece.blocks[end : run.old_start], *([text] if text else []))
        end = run.old_end
    return Piece(piece.fragment, *blocks, *piece.blocks[end:])


def _other_certificates(applied: Rendering, desired: Rendering) -> list[ReloadCause]:
    """See whether certificates that are not part of the renderings were renewed: only their notes tell."""
    was, now = (one.pieces[-1].blocks[-1:] if one.pieces else () for one in (applied, desired))
    if was == now:
        return []
    before, after = (noted_certificates("".join(blocks)) for blocks in (was, now))
    changed = sorted(path for path, digest in after.items() if before.get(path, digest) != digest)
    return [ReloadCause(ReloadReason.CERTIFICATES_CHANGED, f"certificate {path} changed") for path in changed]


def _judge_place(found: SectionChanges, old: Index, changed: _Changed, *, whole: bool) -> None:
    """See what the sections do not show one by one: what they inherit where they stand, conditions around them."""
    if not whole:
        detail = "lines before the first section, or an .if beyond the end of one, changed or hide what did"
        found.reload_causes.append(ReloadCause(ReloadReason.TEXT_CHANGED, detail))
        found.live.clear()
        return
    moved = next((key for key in changed.new if _moved(key, old, changed)), None)
    if moved is not None and not any(one.reason is ReloadReason.DEFAULTS_CHANGED for one in found.reload_causes):
        detail = f"{moved.keyword} {moved.name} inherits from another section"
        found.reload_causes.append(ReloadCause(ReloadReason.DEFAULTS_CHANGED, detail))


def _moved(key: SectionKey, old: Index, changed: _Changed) -> bool:
    """Return whether a section inherits from another one than before though its header is the same."""
    above, text = changed.above[key], changed.new[key]
    if key not in old.texts or old.above[key] == above:
        return False
    same_header = old.texts[key].partition("\n")[0] == text.partition("\n")[0]
    return same_header and old.base(key) != base_of(key, text, above)


def _in_safe_order(commands: list[Command]) -> list[Command]:
    """Order additions before what points to them, and removals after."""
    return sorted(commands, key=attrgetter("rank"))


MAX_DETAILS = 50
_NOT_RUNNING = "haproxy was not running"


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
    shown = _limited([*moved, *difference.details, *(one.detail for one in (*difference.reload_causes, *beside))])
    reasons = sorted({one.reason for one in (*difference.reload_causes, *beside)})
    if not reasons and (can.runtime or not difference.commands):
        only = ("comments, blanks or the order of sections",)
        return RuntimeUpdate(tuple(difference.commands), shown or only, moved)
    advice = [one.advice for one in difference.reload_causes if one.advice]
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
    return tuple(dict.fromkeys([*moved, *found.details, *(one.detail for one in found.reload_causes)]))


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


def _drift(applied: Rendering, observed: Observation) -> Iterator[ReloadCause]:
    reason = ReloadReason.FILE_EDITED
    written = observed.written or applied
    if observed.untouched is not None and observed.untouched.same_as(written):
        return  # by inodes and times: a look at every five seconds must not read and compare everything
    if observed.installed_text is None:
        yield ReloadCause(reason, "the installed configuration is gone")
    elif observed.installed_text != mark(written.text, written.digest):
        yield ReloadCause(reason, "the installed configuration is not the one that pyconfd wrote")
    for file in written.files:
        found = observed.file_digests.get(file.path)
        if found is None:
            yield ReloadCause(reason, f"{file.path} is gone")
        elif not file.content and file.kind is FileKind.CERTIFICATE:
            continue  # out of the history, which keeps no keys: what it was is not known any more
        elif found != sha256(file.content.encode()).hexdigest():
            yield ReloadCause(reason, f"{file.path} is not the one that pyconfd wrote")


def _behind(desired: Rendering, applied: Rendering, observed: Observation) -> Iterator[ReloadCause]:
    """Compare the process; that it runs what was applied is no surprise when something else is desired."""
    reason = ReloadReason.PROCESS_BEHIND
    if isinstance(observed.running, NotRunning):
        yield ReloadCause(reason, _NOT_RUNNING)
    elif isinstance(observed.running, Running):
        digest = observed.running.digest
        if digest is None:
            yield ReloadCause(reason, "haproxy runs a configuration that pyconfd did not write")
        elif (observed.running.worker_pid, digest) == observed.changed:
            return  # and what was changed in it since
        elif digest not in {applied.digest, desired.digest}:
            yield ReloadCause(reason, f"haproxy runs another configuration ({digest[:12]})")
        elif digest != desired.digest and applied.digest == desired.digest:
            yield ReloadCause(reason, f"haproxy still runs {digest[:12]}")
