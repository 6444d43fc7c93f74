"""A rendering in etcd: one pointer, the chunks that it names, and their keys.

The pointer holds all that a consumer needs to verify that it has the whole of one rendering and nothing else; its field
``check`` covers the pointer itself. Private keys are no part of it: a certificate is named by its path and the SHA-256
of its public part.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.system.state_file import StateFile

FORMAT = 1
CHUNK_BYTES = 512 * 1024
"""Well below etcd's limit for one request (1.5 MiB, ``--max-request-bytes``)."""
MAX_CHUNKS = 100
"""All are named in one transaction, which takes 128 operations (etcd's ``--max-txn-ops``)."""
MAX_POINTER_BYTES = 1024 * 1024
MAX_BYTES = 512 * 1024 * 1024
"""Nothing larger is unpacked."""

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")

_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys below one prefix; a prefix without a slash at its end gets one."""

    prefix: str

    @property
    def pointer(self) -> bytes:
        """The key of the pointer to the current generation."""
        return f"{self._base}current".encode()

    @property
    def campaign(self) -> bytes:
        """The key that the producer holds with its lease."""
        return f"{self._base}producer".encode()

    @property
    def chunks(self) -> bytes:
        """What the keys of all chunks begin with."""
        return f"{self._base}chunks/".encode()

    def chunk(self, stored: str, index: int) -> bytes:
        """Return the key of one chunk of what has the SHA-256 ``stored``."""
        return self.chunks + f"{stored}/{index:04}".encode()

    def stored_of(self, key: bytes) -> str:
        """Return the SHA-256 that the key of a chunk names."""
        return key.removeprefix(self.chunks).partition(b"/")[0].decode("ascii", "replace")

    @property
    def _base(self) -> str:
        return self.prefix.rstrip("/") + "/"


class _PublishedRecord(msgspec.Struct, frozen=True):
    """Fields that this version does not know are left to the next."""


class PublishedPiece(_PublishedRecord, frozen=True):
    """The text that one fragment gave, by its length in UTF-8."""

    fragment: str
    bytes: _Size


class PublishedFile(_PublishedRecord, frozen=True):
    """A map, or a certificate by its name only: then ``bytes`` is 0 and ``sha256`` that of its public part."""

    kind: FileKind
    path: str
    sha256: _Digest
    bytes: _Size = 0


class ChunkList(_PublishedRecord, frozen=True):
    """The chunks by their SHA-256: together they are compressed, and ``sha256`` names them all."""

    sha256: _Digest
    chunks: tuple[_Digest, ...]


class FormerPublication(_PublishedRecord, frozen=True):
    """A former generation whose chunks are still there; ``created`` is seconds since the epoch."""

    number: int
    stored: _Digest
    created: float


class Producer(_PublishedRecord, frozen=True):
    """Who wrote it."""

    name: str
    version: str


class Pointer(_PublishedRecord, frozen=True):
    """What the pointer key holds. ``sha256`` names the rendering: equal for two that are the same."""

    format: int
    number: Annotated[int, msgspec.Meta(ge=1)]
    sha256: _Digest
    text_sha256: _Digest
    pieces: tuple[PublishedPiece, ...]
    files: tuple[PublishedFile, ...]
    files_dir: str
    stored: ChunkList
    producer: Producer
    created: float
    curdate: str = ""
    claimed: int = 0
    total: int = 0
    history: tuple[FormerPublication, ...] = ()

    @property
    def totals(self) -> EndpointTotals:
        """How many endpoints the producer saw."""
        return EndpointTotals(self.claimed, self.total)


class _Known(msgspec.Struct, frozen=True):
    prefix: str
    number: int
    sha256: str


class KnownGeneration:
    """The last generation that was published or taken here, on disk: etcd may not fall behind its number.

    It is for one prefix of keys: under another one nothing is known.
    """

    def __init__(self, state_dir: str, name: str, prefix: str) -> None:
        self._file = StateFile(Path(state_dir) / f"{name}.json", _Known)
        self._prefix = prefix

    def load(self) -> tuple[int, str]:
        """Return number and SHA-256; (0, "") where nothing is known."""
        known = self._file.load()
        return (known.number, known.sha256) if known and known.prefix == self._prefix else (0, "")

    def save(self, number: int, digest: str) -> None:
        """Write both; raises TransientError where the file cannot be written."""
        if self.load() != (number, digest):
            self._file.write(_Known(self._prefix, number, digest))


class DamagedError(RejectedInput):
    """What was read is not what a producer wrote."""

    def __init__(self, message: str) -> None:
        super().__init__(
            Problem("etcd", message, "a running producer publishes it again within seconds; see docs/etcd.md"),
            step=Step.CHECK,
        )


class UnknownFormatError(RejectedInput):
    """A newer pyconfd wrote it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A rendering ready to be put: its chunks, and the pointer but for its number, producer, times and history."""

    pointer: Pointer
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """What a consumer got, verified: pieces, maps, and the certificates that it has to have itself."""

    pointer: Pointer
    pieces: tuple[Piece, ...]
    maps: tuple[OutputFile, ...]
    certificates: tuple[PublishedFile, ...]


def public_part(pem: str) -> str:
    """Return the certificates of a PEM text, without any key."""
    return "".join(f"{found}\n" for found in _CERTIFICATE.findall(pem.replace("\r", "")))


def pack(rendering: Rendering, files_dir: str, *, chunk_bytes: int = CHUNK_BYTES) -> Packed:
    """Return what has to be put into etcd for ``rendering``; ``files_dir`` is where its declared files belong.

    Raises:
        RejectedInput: there is a private key in the text or in a map, or it is larger than can be published.
    """
    maps = [file for file in rendering.files if file.kind is FileKind.MAP]
    published = ((_fragment_of(rendering), rendering.text), *((file.path, file.content) for file in maps))
    for place, part in published:
        if _PRIVATE_KEY.search(part):
            message = "a private key would be published"
            raise RejectedInput(Problem(place, message, "give it as a certificate_file: its key stays here"))
    text = rendering.text.encode()
    payload = text + b"".join(file.content.encode() for file in maps)
    packed = zlib.compress(payload, 6)
    chunks = tuple(packed[start : start + chunk_bytes] for start in range(0, len(packed), chunk_bytes))
    if len(chunks) > MAX_CHUNKS or len(payload) > MAX_BYTES:
        message = f"the rendering has {len(payload):,} bytes, {len(packed):,} when compressed: too large for etcd"
        raise RejectedInput(Problem("publish", message, "let each balancer render for itself: pyconfd run"))
    pieces = tuple(PublishedPiece(piece.fragment, len(piece.text.encode())) for piece in rendering.pieces)
    files = tuple(_published(file) for file in rendering.files)
    pointer = Pointer(
        format=FORMAT,
        number=0,
        sha256=_identity(_hash(text), pieces, files),
        text_sha256=_hash(text),
        pieces=pieces,
        files=files,
        files_dir=files_dir,
        stored=ChunkList(_hash(packed), tuple(_hash(chunk) for chunk in chunks)),
        producer=Producer("", ""),
        created=0.0,
    )
    return Packed(pointer, chunks)


def encode_pointer(pointer: Pointer) -> bytes:
    """Return the value of the pointer key.

    Raises:
        RejectedInput: there are so many fragments or files that it would be too large.
    """
    document: dict[str, Any] = msgspec.to_builtins(pointer)
    content = json.dumps({**document, "check": _check(document)}, indent=1, sort_keys=True).encode() + b"\n"
    if len(content) > MAX_POINTER_BYTES:
        message = f"the pointer would have {len(content):,} bytes: too many fragments, maps or certificates"
        raise RejectedInput(Problem("publish", message, "let each balancer render for itself: pyconfd run"))
    return content


def decode_pointer(content: bytes) -> Pointer:
    """Return the pointer that :func:`encode_pointer` encoded.

    Raises:
        UnknownFormatError: a newer pyconfd wrote it.
        DamagedError: it is none, or not as it was written.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError("the pointer is not JSON") from error
    if not isinstance(document, dict):
        raise DamagedError("the pointer is not a JSON object")
    form = document.get("format")
    if isinstance(form, int) and form > FORMAT:
        message = f"the pointer has format {form}, this pyconfd knows {FORMAT}"
        raise UnknownFormatError(Problem("etcd", message, "update pyconfd here before the producer"), step=Step.CHECK)
    check = document.pop("check", None)
    if check != _check(document):
        raise DamagedError("checksum mismatch of the pointer itself")
    try:
        return msgspec.convert(document, Pointer)
    except msgspec.ValidationError as error:
        raise DamagedError(f"the pointer has another shape: {error}") from error


def unpack(pointer: Pointer, chunks: Sequence[bytes]) -> Publication:
    """Verify everything and put it together: the pointer's own checksum covers those of the chunks.

    Raises:
        DamagedError: a checksum or a size differs; nothing of it may be used.
    """
    if tuple(map(_hash, chunks)) != pointer.stored.chunks:
        raise DamagedError("checksum mismatch of a chunk")
    parts = _parts(pointer, _unzipped(b"".join(chunks)))
    try:
        pieces = tuple(Piece(piece.fragment, next(parts).decode()) for piece in pointer.pieces)
        maps = tuple(OutputFile(FileKind.MAP, file.path, next(parts).decode()) for file in _maps(pointer))
    except UnicodeDecodeError as error:
        raise DamagedError("the text is not UTF-8") from error
    certificates = tuple(file for file in pointer.files if file.kind is FileKind.CERTIFICATE)
    for file in pointer.files:
        _check_path(pointer.files_dir, file)
    return Publication(pointer, pieces, maps, certificates)


def _unzipped(packed: bytes) -> bytes:
    unzip = zlib.decompressobj()
    try:
        payload = unzip.decompress(packed, MAX_BYTES)
    except zlib.error as error:
        raise DamagedError("the chunks cannot be decompressed") from error
    if not unzip.eof or unzip.unconsumed_tail or unzip.unused_data:
        raise DamagedError("the chunks are not one compressed text")
    return payload


def _parts(pointer: Pointer, payload: bytes) -> Iterator[bytes]:
    """Cut the payload: the pieces of the text, then the maps."""
    sizes = [piece.bytes for piece in pointer.pieces]
    sizes += [file.bytes for file in _maps(pointer)]
    if sum(sizes) != len(payload):
        raise DamagedError("the text is longer or shorter than the pointer says")
    ends = list(accumulate(sizes))
    return (payload[end - size : end] for size, end in zip(sizes, ends, strict=True))


def _maps(pointer: Pointer) -> list[PublishedFile]:
    return [file for file in pointer.files if file.kind is FileKind.MAP]


def _check_path(files_dir: str, file: PublishedFile) -> None:
    # Write access to etcd must not become write access to this machine.
    directory, _, name = file.path.rpartition("/")
    if directory != f"{files_dir.rstrip('/')}/{file.kind.value}" or not _FILE_NAME.fullmatch(name):
        raise DamagedError(f"the file {file.path!a} is not below the producer's directory of files")


def _published(file: OutputFile) -> PublishedFile:
    if file.kind is FileKind.CERTIFICATE:
        return PublishedFile(file.kind, file.path, _hash(public_part(file.content).encode()))
    content = file.content.encode()
    return PublishedFile(file.kind, file.path, _hash(content), len(content))


def _identity(text_sha256: str, pieces: Sequence[PublishedPiece], files: Sequence[PublishedFile]) -> str:
    return _check({"text": text_sha256, "pieces": msgspec.to_builtins(pieces), "files": msgspec.to_builtins(files)})


def _check(document: Mapping[str, Any]) -> str:
    return _hash(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


def _fragment_of(rendering: Rendering) -> str:
    """Name the fragment whose text holds a private key."""
    return next((piece.fragment for piece in rendering.pieces if _PRIVATE_KEY.search(piece.text)), "")
