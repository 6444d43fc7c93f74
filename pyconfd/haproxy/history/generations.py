"""The history on disk: what was applied and what was turned away.

A generation is a directory ``generations/NNNNNN`` with ``haproxy.cfg``, the maps and ``meta.json``. It appears by one
rename, so it is there whole or not at all. The content of certificates is never stored: path and SHA-256 only. An
empty file ``ran-well`` beside them says that this structure ran for a while without an event; a boot prefers such.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.config.text import structure_of
from pyconfd.model.context import Census
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

_OF_ENDPOINTS = frozenset({ReloadReason.SERVERS_CHANGED, ReloadReason.NOT_LIVE, ReloadReason.PROCESS_BEHIND})


@dataclass(frozen=True, slots=True)
class GenerationEntry:
    """What decides whether a generation is kept; ``applied_at`` is seconds since the epoch.

    ``reasons`` are those of its reload, () where it went live.
    """

    number: int
    applied_at: float = 0.0
    basis: str = ""
    ran_well: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def is_of_endpoints(self) -> bool:
        """Return whether only servers changed: so it is many times in each rollout."""
        return _OF_ENDPOINTS.issuperset(self.reasons)


def kept(entries: Collection[GenerationEntry], *, number: int, for_s: float) -> frozenset[int]:
    """Return the numbers of those that stay.

    There may be many generations in a second, and few edits in a month: so the newest ``number`` of all stay, as many
    of those that changed more than servers, and the newest of each of the newest ``number`` bases. Those applied more
    than ``for_s`` seconds before the newest one go. Always kept are the newest, the newest that ran well, and the
    newest of another basis than that of the newest.
    """
    newest_first = sorted(entries, key=lambda entry: entry.number, reverse=True)
    if not newest_first:
        return frozenset()
    newest = newest_first[0]
    of_bases = list(_first_of_each_basis(newest_first))
    of_more = [entry for entry in newest_first if not entry.is_of_endpoints]
    chosen = [*newest_first[:number], *of_more[:number], *of_bases[:number]]
    young = {entry.number for entry in chosen if newest.applied_at - entry.applied_at <= for_s}
    sound = [entry.number for entry in newest_first if entry.ran_well]
    other = [entry.number for entry in of_bases if entry.basis != newest.basis]
    return frozenset({newest.number, *young, *sound[:1], *other[:1]})


def _first_of_each_basis(newest_first: Iterable[GenerationEntry]) -> Iterator[GenerationEntry]:
    seen: set[str] = set()
    for entry in newest_first:
        if entry.basis not in seen:
            seen.add(entry.basis)
            yield entry


log = structlog.get_logger(__name__)

CONFIGURATION = "haproxy.cfg"
META = "meta.json"
RAN_WELL = "ran-well"
FORMAT = 1
KEEP_REJECTED = 5
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """A generation that is written but has no name yet."""

    staged: Path
    path: Path


@dataclass(frozen=True, slots=True)
class _Outline:
    """What is known of a generation without its text."""

    entry: GenerationEntry
    structure: str
    paths: frozenset[str]


class GenerationStore:
    """The generations below ``state_dir``; how many stay says :func:`pyconfd.haproxy.history.generations.kept`."""

    def __init__(self, state_dir: str, keep: int, keep_for_s: float = float("inf")) -> None:
        self._root = Path(state_dir) / "generations"
        self._rejected = Path(state_dir) / "rejected"
        self._keep = max(keep, 1)
        self._keep_for_s = keep_for_s
        self._skipped: set[str] = set()
        self._outlines: dict[int, _Outline] = {}

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
        self.commit(self.prepare(rendering, generation))

    def prepare(self, rendering: Rendering, generation: Generation) -> PreparedGeneration:
        """Write everything but the name, so that a full disk is met before the reload and not after it.

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
        if structure in {each.structure for each in self._known() if each.entry.ran_well}:
            contents[RAN_WELL] = b""
        path = self._path(generation.number)
        return PreparedGeneration(_stage_directory(path, contents), path)

    def commit(self, prepared: PreparedGeneration) -> None:
        """Give a prepared generation its name, and prune the oldest.

        Raises:
            TransientError: it could not be renamed; the history is as it was.
        """
        _rename_directory(prepared.staged, prepared.path)
        self._prune()

    def discard(self, prepared: PreparedGeneration) -> None:
        """Forget a prepared generation that did not come to serve."""
        if prepared.staged.exists():
            remove_tree(prepared.staged)

    def last_good(self) -> Stored | None:
        """Return the newest generation that can be read, or None."""
        return next(self._newest_first(), None)

    def read(self, number: int) -> Stored | None:
        """Return generation ``number``, None where it is missing or damaged (which is logged once)."""
        path = self._path(number)
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if path.name not in self._skipped and path.exists():
                self._skipped.add(path.name)
                log.warning("generation.skipped", number=number, path=str(path), error=str(error))
            return None

    def history(self) -> tuple[Generation, ...]:
        """Return the readable generations, newest first."""
        return tuple(stored.generation for stored in self._newest_first())

    def last_that_ran_well(self) -> Stored | None:
        """Return the newest generation that can be read and whose structure ran well, or None."""
        sound = {each.entry.number for each in self._known() if each.entry.ran_well}
        return next((stored for stored in self._newest_first() if stored.generation.number in sound), None)

    def mark_ran_well(self) -> int:
        """Note that the newest generation ran well; give its number, 0 where there is none.

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
            self._outlines.pop(number, None)
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
        return tuple(each.entry for each in reversed(self._known()))

    def bases(self) -> frozenset[str]:
        """Return the digest of every basis that a generation on disk was made of."""
        return frozenset(each.entry.basis for each in self._known() if each.entry.basis)

    def declared_paths(self) -> frozenset[str]:
        """Return the path of every file that a generation on disk declared."""
        return frozenset[str]().union(*(each.paths for each in self._known()))

    def reject(self, rendering: Rendering, reason: str) -> str:
        """Keep a candidate that failed and why, for the operator; give its directory, "" where it cannot be written."""
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

    def _known(self) -> list[_Outline]:
        """Return what is known of each generation on disk whose description can be read; each is read once."""
        numbers = self._numbers()
        for number in numbers:
            if number not in self._outlines:
                with suppress(OSError, ValueError, KeyError, TypeError):
                    self._outlines[number] = _outline(self._path(number), number)
        return [self._outlines[number] for number in numbers if number in self._outlines]

    def _prune(self) -> None:
        known = {each.entry.number: each.entry for each in self._known()}
        # What cannot be read counts as old and of no basis.
        entries = [known.get(number, GenerationEntry(number)) for number in self._numbers()]
        stay = kept(entries, number=self._keep, for_s=self._keep_for_s)
        for entry in entries:
            if entry.number not in stay:
                self._outlines.pop(entry.number, None)
                remove_tree(self._path(entry.number))


def _outline(path: Path, number: int) -> _Outline:
    meta = json.loads((path / META).read_bytes())
    applied_at, basis = float(meta["generation"]["applied_at"]), str(meta.get("basis", ""))
    reasons = tuple(str(each) for each in meta["generation"]["reasons"])
    entry = GenerationEntry(number, applied_at, basis, (path / RAN_WELL).exists(), reasons)
    return _Outline(entry, str(meta.get("structure", "")), frozenset(str(entry["path"]) for entry in meta["files"]))


def _meta(rendering: Rendering, generation: Generation, structure: str) -> bytes:
    files = [
        {"kind": file.kind.value, "path": file.path, "sha256": sha256(file.content.encode()).hexdigest()}
        for file in rendering.files
    ]
    pieces = [{"fragment": piece.fragment, "characters": len(piece.text)} for piece in rendering.pieces]
    meta = {
        "format": FORMAT,
        "generation": asdict(generation),
        "text_sha256": sha256(rendering.text.encode()).hexdigest(),
        "pieces": pieces,
        "files": files,
        "basis": rendering.basis,
        "structure": structure,
    }
    return json.dumps(meta, indent=1).encode() + b"\n"


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
    meta: dict[str, Any] = json.loads((path / META).read_bytes())
    if meta["format"] != FORMAT:
        raise ValueError(f"format {meta['format']} is not {FORMAT}")
    text = _if_same(path / CONFIGURATION, meta["text_sha256"])
    if text is None:
        raise ValueError("its text is not the one that was recorded")
    pieces, position = [], 0
    for piece in meta["pieces"]:
        pieces.append(Piece(piece["fragment"], text[position : position + piece["characters"]]))
        position += piece["characters"]
    files, maps = [], 0
    for entry in meta["files"]:
        kind = FileKind(entry["kind"])
        if kind is FileKind.MAP:
            content: str | None = _if_same(path / f"map-{maps}", entry["sha256"])
            maps += 1
            if content is None:
                raise ValueError(f"the copy of {entry['path']} is damaged")
        else:
            content = _if_same(Path(entry["path"]), entry["sha256"])
        files.append(OutputFile(kind, entry["path"], content or ""))
    rendering = Rendering(tuple(pieces), tuple(files), str(meta.get("basis", "")))
    raw = meta["generation"]
    generation = Generation(
        number=int(raw["number"]),
        digest=str(raw["digest"]),
        applied_at=float(raw["applied_at"]),
        curdate=str(raw["curdate"]),
        reasons=tuple(raw["reasons"]),
        census=Census(int(raw["census"]["claimed"]), int(raw["census"]["total"])),
        loaded=str(raw.get("loaded", "")),
        worker=int(raw.get("worker", 0)),
    )
    if position != len(text):
        raise ValueError("its pieces do not add up to its text")
    return Stored(generation, rendering)


def _if_same(path: Path, digest: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        content = path.read_bytes()
        if sha256(content).hexdigest() == digest:
            return content.decode()
    return None
