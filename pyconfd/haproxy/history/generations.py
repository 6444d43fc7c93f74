"""The history on disk: what was applied and what was rejected.

A generation is a directory ``generations/NNNNNN`` with ``haproxy.cfg``, the maps and ``meta.json``. It appears by one
rename, so it is there whole or not at all. The content of certificates is never stored: path and SHA-256 only. An
empty file ``ran-well`` beside them says that this structure ran for a while without an event; a boot prefers such.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.config.text import structure_of
from pyconfd.model.outcome import Generation, Stored
from pyconfd.model.plan import ReloadReason
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.system.files import (
    flush_directory,
    problem_of,
    remove_stale,
    remove_tree,
    stay_within,
    temporary_beside,
    write_new,
)

log = structlog.get_logger(__name__)

CONFIGURATION = "haproxy.cfg"
META = "meta.json"
RAN_WELL = "ran-well"
FORMAT = 1
KEEP_REJECTED = 5
_DIGITS = 6
_OF_ENDPOINTS = frozenset({ReloadReason.SERVERS_CHANGED, ReloadReason.NOT_LIVE, ReloadReason.PROCESS_BEHIND})


@dataclass(frozen=True, slots=True)
class GenerationEntry:
    """What decides whether a generation is kept; ``applied_at`` is seconds since the epoch.

    ``reasons`` are those of its reload, () for a runtime update. ``structure`` is the digest of its text without
    servers, ``paths`` are those of its files.
    """

    number: int
    applied_at: float = 0.0
    inputs: str = ""
    ran_well: bool = False
    reasons: tuple[str, ...] = ()
    structure: str = ""
    paths: frozenset[str] = frozenset()

    @property
    def is_of_endpoints(self) -> bool:
        """Return whether only servers changed: so it is many times in each rollout."""
        return _OF_ENDPOINTS.issuperset(self.reasons)


def kept(entries: Collection[GenerationEntry], *, number: int, for_s: float) -> frozenset[int]:
    """Return the numbers of those that stay.

    There may be many generations in a second, and few edits in a month: so the newest ``number`` of all stay, as many
    of those that changed more than servers, and the newest of each of the newest ``number`` inputs. Those applied more
    than ``for_s`` seconds before the newest one go. Always kept are the newest, the newest that ran well, and the
    newest of other inputs than those of the newest.
    """
    newest_first = sorted(entries, key=lambda entry: entry.number, reverse=True)
    if not newest_first:
        return frozenset()
    newest = newest_first[0]
    of_inputs = list(_first_of_each_inputs(newest_first))
    of_more = [entry for entry in newest_first if not entry.is_of_endpoints]
    chosen = [*newest_first[:number], *of_more[:number], *of_inputs[:number]]
    young = {entry.number for entry in chosen if newest.applied_at - entry.applied_at <= for_s}
    sound = [entry.number for entry in newest_first if entry.ran_well]
    other = [entry.number for entry in of_inputs if entry.inputs != newest.inputs]
    return frozenset({newest.number, *young, *sound[:1], *other[:1]})


def _first_of_each_inputs(newest_first: Iterable[GenerationEntry]) -> Iterator[GenerationEntry]:
    seen: set[str] = set()
    for entry in newest_first:
        if entry.inputs not in seen:
            seen.add(entry.inputs)
            yield entry


class _Meta(msgspec.Struct):
    """What ``meta.json`` holds beside the text: fragment and characters of each piece; kind, path, SHA-256 of files."""

    format: int
    generation: Generation
    text_sha256: str
    pieces: list[tuple[str, int]]
    files: list[tuple[FileKind, str, str]]
    inputs: str = ""
    structure: str = ""


class GenerationStore:
    """The generations below ``state_dir``; how many stay says :func:`kept`."""

    def __init__(self, state_dir: str, keep: int, keep_for_s: float = float("inf")) -> None:
        self._root = Path(state_dir) / "generations"
        self._rejected = Path(state_dir) / "rejected"
        self._keep = max(keep, 1)
        self._keep_for_s = keep_for_s
        self._skipped: set[str] = set()
        self._entries: dict[int, GenerationEntry] = {}

    def clean(self) -> None:
        """Remove what a killed process left half-written."""
        remove_stale([str(self._root), str(self._rejected)])

    def next_number(self) -> int:
        """Return the number after the highest one that was ever used here and is still on disk."""
        return max(self._numbers(), default=0) + 1

    def record(self, rendering: Rendering, generation: Generation) -> None:
        """Write ``generation`` and prune the oldest.

        Raises:
            TransientError: it could not be written; the history is as it was.
        """
        self.commit(self.prepare(rendering, generation), generation.number)

    def prepare(self, rendering: Rendering, generation: Generation) -> Path:
        """Write everything but the name, and return where: a full disk is met before the reload and not after it.

        Raises:
            TransientError: it could not be written; nothing is left behind.
        """
        structure = structure_of(rendering.text)
        maps = [file for file in rendering.files if file.kind is FileKind.MAP]
        contents = {
            CONFIGURATION: rendering.text.encode(),
            META: _meta(rendering, generation, structure),
        }
        contents |= {f"map-{number}": file.content.encode() for number, file in enumerate(maps)}
        if structure in {each.structure for each in self._known() if each.ran_well}:
            contents[RAN_WELL] = b""
        return _stage_directory(self._path(generation.number), contents)

    def commit(self, prepared: Path, number: int) -> None:
        """Rename a prepared generation into its place, and prune the oldest.

        Raises:
            TransientError: it could not be renamed; the history is as it was.
        """
        _rename_directory(prepared, self._path(number))
        self._prune()

    def discard(self, prepared: Path) -> None:
        """Remove a prepared generation that was not applied."""
        if prepared.exists():
            remove_tree(prepared)

    def last_good(self) -> Stored | None:
        """Return the newest generation that can be read, or None."""
        return next(self._newest_first(), None)

    def read(self, number: int) -> Stored | None:
        """Return generation ``number``, None where it is missing or damaged (which is logged once)."""
        path = self._path(number)
        try:
            return _read(path)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            if path.name not in self._skipped and path.exists():
                self._skipped.add(path.name)
                log.warning("generation.skipped", number=number, path=str(path), error=str(error))
            return None

    def history(self) -> tuple[Generation, ...]:
        """Return the readable generations, newest first."""
        return tuple(stored.generation for stored in self._newest_first())

    def last_that_ran_well(self) -> Stored | None:
        """Return the newest generation that can be read and whose structure ran well, or None."""
        sound = {each.number for each in self._known() if each.ran_well}
        return next((stored for stored in self._newest_first() if stored.generation.number in sound), None)

    def mark_ran_well(self) -> int:
        """Record that the newest generation ran well; return its number, 0 where there is none.

        Raises:
            TransientError: that cannot be written.
        """
        number = max(self._numbers(), default=0)
        mark = self._path(number) / RAN_WELL
        if number and not mark.exists():
            try:
                write_new(str(mark), b"", mode=0o640)
                flush_directory(str(mark.parent))
            except OSError as error:
                raise TransientError(problem_of(str(mark), error)) from error
            self._entries.pop(number, None)
        return number

    def entries(self) -> tuple[GenerationEntry, ...]:
        """Return what is known of each generation without its text, newest first.

        Raises:
            TransientError: this user may not read them.
        """
        try:
            next(self._root.iterdir(), None)
        except FileNotFoundError:
            return ()
        except OSError as error:
            remedy = "run it as root or as pyconfd"
            raise TransientError(Problem(str(self._root), f"cannot be read: {error.strerror}", remedy)) from error
        return tuple(reversed(self._known()))

    def inputs(self) -> frozenset[str]:
        """Return the digests of the inputs that generations on disk were made of."""
        return frozenset(each.inputs for each in self._known() if each.inputs)

    def declared_paths(self) -> frozenset[str]:
        """Return the path of every file that a generation on disk declared."""
        return frozenset[str]().union(*(each.paths for each in self._known()))

    def reject(self, rendering: Rendering, reason: str) -> str:
        """Store a candidate that failed, and why; return its directory, "" where it cannot be written."""
        path = self._rejected / rendering.digest[:16]
        contents = {CONFIGURATION: rendering.text.encode(), "reason.txt": reason.encode() + b"\n"}
        with suppress(OSError, TransientError):
            if path.exists():
                if (path / "reason.txt").read_bytes() == contents["reason.txt"]:
                    return str(path)
                remove_tree(path)
            _rename_directory(_stage_directory(path, contents), path)
            kept = sorted(self._rejected.iterdir(), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
            for old in kept[KEEP_REJECTED:]:
                remove_tree(old)
            return str(path)
        return ""

    def _numbers(self) -> list[int]:
        with suppress(OSError):
            return sorted(int(entry.name) for entry in self._root.iterdir() if entry.name.isdigit())
        return []

    def _newest_first(self) -> Iterator[Stored]:
        for number in reversed(self._numbers()):
            if stored := self.read(number):
                yield stored

    def _path(self, number: int) -> Path:
        return self._root / f"{number:0{_DIGITS}}"

    def _known(self) -> list[GenerationEntry]:
        """Return what is known of each generation on disk whose description can be read; each is read once."""
        numbers = self._numbers()
        for number in numbers:
            if number not in self._entries:
                with suppress(OSError, ValueError, msgspec.MsgspecError):
                    self._entries[number] = _entry(self._path(number), number)
        return [self._entries[number] for number in numbers if number in self._entries]

    def _prune(self) -> None:
        known = {each.number: each for each in self._known()}
        # What cannot be read counts as old and without inputs.
        entries = [known.get(number, GenerationEntry(number)) for number in self._numbers()]
        stay = kept(entries, number=self._keep, for_s=self._keep_for_s)
        for entry in entries:
            if entry.number not in stay:
                self._entries.pop(entry.number, None)
                remove_tree(self._path(entry.number))


def _entry(path: Path, number: int) -> GenerationEntry:
    meta = msgspec.json.decode((path / META).read_bytes(), type=_Meta)
    paths = frozenset(name for _, name, _ in meta.files)
    ran_well, made = (path / RAN_WELL).exists(), meta.generation
    return GenerationEntry(number, made.applied_at, meta.inputs, ran_well, made.reasons, meta.structure, paths)


def _meta(rendering: Rendering, generation: Generation, structure: str) -> bytes:
    meta = _Meta(
        FORMAT,
        generation,
        sha256(rendering.text.encode()).hexdigest(),
        [(piece.fragment, len(piece.text)) for piece in rendering.pieces],
        [(file.kind, file.path, sha256(file.content.encode()).hexdigest()) for file in rendering.files],
        rendering.inputs,
        structure,
    )
    # The start of haproxy's unit looks for a digest in it with grep.
    return msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n"


def _stage_directory(path: Path, contents: dict[str, bytes]) -> Path:
    staged = Path(temporary_beside(str(path)))
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        stay_within(str(path.parent), str(path.parent.parent))
        staged.mkdir(mode=0o750)
        for name, content in contents.items():
            write_new(str(staged / name), content, mode=0o640)
        flush_directory(str(staged))
    except OSError as error:
        if staged.exists():
            remove_tree(staged)
        raise TransientError(problem_of(str(path), error)) from error
    return staged


def _rename_directory(staged: Path, path: Path) -> None:
    try:
        staged.rename(path)
        flush_directory(str(path.parent))
    except OSError as error:
        remove_tree(staged)
        raise TransientError(problem_of(str(path), error)) from error


def _read(path: Path) -> Stored:
    meta = msgspec.json.decode((path / META).read_bytes(), type=_Meta)
    if meta.format != FORMAT:
        raise ValueError(f"format {meta.format} is not {FORMAT}")
    text = _if_same(path / CONFIGURATION, meta.text_sha256)
    if text is None:
        raise ValueError("its text is not the one that was recorded")
    pieces, position = [], 0
    for fragment, characters in meta.pieces:
        pieces.append(Piece(fragment, text[position : position + characters]))
        position += characters
    if position != len(text):
        raise ValueError("its pieces do not add up to its text")
    files, maps = [], 0
    for kind, name, digest in meta.files:
        if kind is FileKind.MAP:
            content = _if_same(path / f"map-{maps}", digest)
            maps += 1
            if content is None:
                raise ValueError(f"the copy of {name} is damaged")
        else:
            content = _if_same(Path(name), digest)
        files.append(OutputFile(kind, name, content or ""))
    return Stored(meta.generation, Rendering(tuple(pieces), tuple(files), meta.inputs))


def _if_same(path: Path, digest: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        content = path.read_bytes()
        if sha256(content).hexdigest() == digest:
            return content.decode()
    return None
