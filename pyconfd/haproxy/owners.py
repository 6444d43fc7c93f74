"""Who had which name when a generation was made: ``claims/DIGEST.json``, each kept once."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from pyconfd.errors import TransientError
from pyconfd.model.tenure import Name, Owner, Owners
from pyconfd.system.files import flush_directory, problem_of, remove_tree, temporary_beside, write_new

_SUFFIX = ".json"


class OwnerRow(msgspec.Struct, array_like=True, frozen=True):
    """Preset, place, name, and the fields of Owner; what a newer version adds at the end is ignored."""

    preset: str
    place: str
    name: str
    kind: str
    namespace: str
    object: str
    since: str

    @property
    def holds(self) -> Name:
        """Which name it is about."""
        return Name(self.place, self.name)

    @property
    def owner(self) -> Owner:
        """Who has it."""
        return Owner(self.kind, self.namespace, self.object, self.since)


class OwnersStore:
    """Where they are kept; only who records generations writes."""

    def __init__(self, state_dir: str) -> None:
        self._root = Path(state_dir) / "claims"
        self._last: tuple[tuple[Owners, ...], str] = ((), "")

    @property
    def directory(self) -> str:
        """Where temporary files may be."""
        return str(self._root)

    def keep(self, owners: Mapping[str, Owners]) -> str:
        """Keep these unless they are there; give their digest, "" for none.

        Raises:
            TransientError: they cannot be written.
        """
        known, digest = self._last
        now = tuple(owners.values())
        # What did not change is the same object, and then nothing is read.
        if len(known) == len(now) and all(one is other for one, other in zip(known, now, strict=True)):
            return digest
        data = encoded(owners)
        digest = sha256(data).hexdigest() if any(now) else ""
        if digest and not self._path(digest).exists():
            beside = temporary_beside(str(self._path(digest)))
            try:
                self._root.mkdir(mode=0o750, parents=True, exist_ok=True)
                write_new(beside, data, mode=0o640)
                Path(beside).rename(self._path(digest))
                flush_directory(str(self._root))
            except OSError as error:
                with suppress(OSError):
                    Path(beside).unlink(missing_ok=True)
                raise TransientError(problem_of(str(self._path(digest)), error)) from error
        self._last = now, digest
        return digest

    def read(self, digest: str) -> bytes:
        """Return what was kept, b"" for nothing; what is missing or damaged is nothing."""
        with suppress(OSError):
            data = self._path(digest).read_bytes() if digest else b""
            if sha256(data).hexdigest() == digest:
                return data
        return b""

    def prune(self, needed: Collection[str]) -> None:
        """Remove all but those ``needed``, and what was kept last."""
        with suppress(OSError):
            for entry in sorted(self._root.iterdir()):
                if entry.suffix == _SUFFIX and entry.stem not in {*needed, self._last[1]}:
                    remove_tree(entry)

    def _path(self, digest: str) -> Path:
        return self._root / f"{digest}{_SUFFIX}"


def encoded(owners: Mapping[str, Owners]) -> bytes:
    """Return them as JSON, always the same bytes for the same owners."""
    rows = sorted((preset, *name, *owner) for preset, mine in owners.items() for name, owner in mine.items())
    return msgspec.json.encode(rows)


def decoded(data: bytes) -> Mapping[str, Owners]:
    """Return what :func:`encoded` gave; nothing where it is something else."""
    found: dict[str, dict[Name, Owner]] = {}
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        for row in msgspec.json.decode(data, type=list[OwnerRow]):
            found.setdefault(row.preset, {})[row.holds] = row.owner
    return found
