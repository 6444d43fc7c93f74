"""What stands in etcd: it comes back as it was, and nothing else ever comes back."""

import json
import random
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import RejectedInput
from pyconfd.model.context import EndpointTotals
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.predecessors.etcd.publication import (
    MAX_CHUNKS,
    DamagedError,
    FormerPublication,
    Keys,
    Packed,
    Producer,
    UnknownFormatError,
    decode_pointer,
    encode_pointer,
    pack,
    public_part,
    unpack,
)

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n"
WHO = Producer("lb-1/7", "1.0")

_NAMES = st.text(st.sampled_from("abcXYZ019_-"), min_size=1, max_size=8)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
_PIECES = st.lists(st.builds(Piece, _NAMES, _TEXTS), max_size=5).map(tuple)
_MAPS = st.dictionaries(_NAMES, _TEXTS, max_size=3).map(
    lambda maps: tuple(OutputFile(FileKind.MAP, f"/f/maps/{name}", maps[name]) for name in sorted(maps))
)
_RENDERINGS = st.builds(Rendering, _PIECES, _MAPS)


def written(packed: Packed, **fields: Any) -> bytes:
    return encode_pointer(msgspec.structs.replace(packed.pointer, **{"number": 1, "producer": WHO, **fields}))


def pointer_of(rendering: Rendering, chunk_bytes: int = 64) -> tuple[bytes, tuple[bytes, ...]]:
    packed = pack(rendering, "/f", chunk_bytes=chunk_bytes)
    return written(packed, number=3, claimed=2, total=4), packed.chunks


@given(_RENDERINGS, st.integers(1, 300))
def test_it_comes_back_as_it_was(rendering: Rendering, chunk_bytes: int) -> None:
    chunk_bytes = max(chunk_bytes, len(rendering.text) // 20)
    content, chunks = pointer_of(rendering, chunk_bytes)
    assert all(len(chunk) <= chunk_bytes for chunk in chunks)
    pointer = decode_pointer(content)
    published = unpack(pointer, chunks)
    assert published.pieces == rendering.pieces
    assert published.maps == rendering.files
    assert (pointer.number, pointer.totals, pointer.producer) == (3, EndpointTotals(2, 4), WHO)


@given(_RENDERINGS, st.data())
def test_any_corruption_is_found(rendering: Rendering, data: st.DataObject) -> None:
    content, chunks = pointer_of(rendering)
    parts = [content, *chunks]
    which = data.draw(st.integers(0, len(parts) - 1))
    part = bytearray(parts[which])
    match data.draw(st.sampled_from(["flip", "cut", "add", "swap"])):
        case "flip":
            part[data.draw(st.integers(0, len(part) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del part[data.draw(st.integers(0, len(part) - 1)) :]
        case "add":
            part += data.draw(st.binary(min_size=1, max_size=3))
        case "swap":
            part = bytearray(parts[data.draw(st.integers(0, len(parts) - 1))])
    parts[which] = bytes(part)
    try:
        published = unpack(decode_pointer(parts[0]), parts[1:])
    except (DamagedError, UnknownFormatError):
        return
    # Blanks in JSON, and a part swapped with an equal one, change nothing that is said.
    assert published.pieces == rendering.pieces
    assert published.maps == rendering.files
    assert published.pointer == decode_pointer(content)


@given(st.binary(max_size=200))
def test_strange_bytes_are_no_pointer(content: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_pointer(content)


@pytest.mark.parametrize(
    "change",
    [
        {"files_dir": "/elsewhere"},
        {"files": [{"kind": "maps", "path": "/f/maps/../../etc/x", "sha256": "0" * 64, "bytes": 0}]},
        {"pieces": []},
        {"number": 0},
        {"number": "9"},
        {"stored": {"sha256": "0" * 64, "bytes": 1, "chunks": []}},
    ],
)
def test_a_pointer_written_by_hand_is_rejected(change: dict[str, object]) -> None:
    content, chunks = pointer_of(Rendering((Piece("a", "x\n"),), (OutputFile(FileKind.MAP, "/f/maps/m", "a b\n"),)))
    document = {**json.loads(content), **change}
    del document["check"]
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    document["check"] = sha256(canonical).hexdigest()
    with pytest.raises(DamagedError):
        unpack(decode_pointer(json.dumps(document).encode()), chunks)


def test_a_newer_format_is_named() -> None:
    with pytest.raises(UnknownFormatError, match="format 2, this pyconfd knows 1"):
        decode_pointer(b'{"format": 2, "whatever": []}')


def test_certificates_are_named_by_their_public_part() -> None:
    file = OutputFile(FileKind.CERTIFICATE, "/f/certs/shop.pem", CERTIFICATE + KEY)
    content, chunks = pointer_of(Rendering((Piece("a", "x\n"),), (file,)))
    published = unpack(decode_pointer(content), chunks)
    assert published.maps == ()
    (certificate,) = published.certificates
    assert certificate.path == "/f/certs/shop.pem"
    assert certificate.sha256 == sha256(CERTIFICATE.encode()).hexdigest()
    assert b"BBBB" not in content + b"".join(chunks)
    assert public_part(KEY + CERTIFICATE) == CERTIFICATE
    renewed = pack(Rendering((Piece("a", "x\n"),), (OutputFile(file.kind, file.path, KEY),)), "/f")
    assert renewed.pointer.sha256 != published.pointer.sha256


@pytest.mark.parametrize("where", ["text", "map"])
def test_a_private_key_in_the_text_is_refused(where: str) -> None:
    files = (OutputFile(FileKind.MAP, "/f/maps/m", KEY),) if where == "map" else ()
    rendering = Rendering((Piece("01.conf", "x\n"), Piece("02.conf", KEY if where == "text" else "y\n")), files)
    with pytest.raises(RejectedInput, match="private key") as refused:
        pack(rendering, "/f")
    assert refused.value.problems[0].place == ("02.conf" if where == "text" else "/f/maps/m")


def test_what_is_too_large_is_refused() -> None:
    noise = random.Random(1).randbytes(MAX_CHUNKS * 1000).hex()
    with pytest.raises(RejectedInput, match="too large"):
        pack(Rendering((Piece("a", noise),)), "/f", chunk_bytes=500)
    many = tuple(Piece(f"fragment-{number:0100}", "") for number in range(10_000))
    with pytest.raises(RejectedInput, match="too many fragments"):
        written(pack(Rendering(many), "/f"))


def test_the_same_rendering_has_the_same_name() -> None:
    one = Rendering((Piece("a", "x\n"), Piece("b", "y\n")))
    assert pack(one, "/f").pointer.sha256 == pack(one, "/f").pointer.sha256
    assert pack(one, "/f").pointer.sha256 != pack(Rendering((Piece("a", "x\ny\n"),)), "/f").pointer.sha256


def test_former_generations_are_listed() -> None:
    former = (FormerPublication(1, "0" * 64, 1.0),)
    packed = pack(Rendering((Piece("a", "x\n"),)), "/f")
    content = written(packed, history=former)
    assert decode_pointer(content).history == former


def test_keys() -> None:
    for prefix in ("/pyconfd/", "/pyconfd"):
        keys = Keys(prefix)
        assert keys.pointer == b"/pyconfd/current"
        assert keys.stored_of(keys.chunk("ab" * 32, 7)) == "ab" * 32
    assert Keys("stackexchange.com/haproxy-kubefigurator/config").pointer.endswith(b"/config/current")
