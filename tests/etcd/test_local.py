"""A publication on another machine: its own paths, its own certificates."""

from hashlib import sha256

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.etcd.local import localise
from pyconfd.etcd.publication import Published, decode_pointer, pack, unpack
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from tests.etcd.test_publication import CERTIFICATE, KEY, written

TEXT = (
    "use_backend %[req.hdr(host),map_str(/p/files/maps/hosts.map,none)]\n"
    "bind :443 ssl crt /p/files/certs/shop.pem crt /p/files/certs/\n"
    "log-tag /p/files/maps/hosts.map.bak /x/p/files/maps/hosts.map\n"
)


def published() -> Published:
    files = (
        OutputFile(FileKind.CERTIFICATE, "/p/files/certs/shop.pem", CERTIFICATE + KEY),
        OutputFile(FileKind.MAP, "/p/files/maps/hosts.map", "a b\n"),
    )
    packed = pack(Rendering((Piece("01.conf", TEXT),), files), "/p/files")
    content = written(packed)
    return unpack(decode_pointer(content), packed.chunks)


def test_declared_paths_move_and_others_stay() -> None:
    rendering = localise(published(), "/own", lambda path: CERTIFICATE.encode())[0]
    assert rendering.pieces[0].text == (
        "use_backend %[req.hdr(host),map_str(/own/maps/hosts.map,none)]\n"
        "bind :443 ssl crt /own/certs/shop.pem crt /own/certs/\n"
        "log-tag /p/files/maps/hosts.map.bak /x/p/files/maps/hosts.map\n"
    )
    assert rendering.files == (OutputFile(FileKind.MAP, "/own/maps/hosts.map", "a b\n"),)
    assert localise(published(), "/p/files", lambda path: b"")[0].pieces[0].text == TEXT


def test_certificates_are_the_machines_own_and_a_renewed_one_is_a_change() -> None:
    first = localise(published(), "/own", lambda path: (CERTIFICATE + KEY).encode())[0]
    digest = sha256(CERTIFICATE.encode()).hexdigest()
    assert first.pieces[-1].text == f"# certificate /own/certs/shop.pem sha256 {digest}\n"
    renewed = localise(published(), "/own", lambda path: CERTIFICATE.replace("AAAA", "CCCC").encode())[0]
    assert renewed.digest != first.digest
    assert not [file for file in first.files if file.kind is FileKind.CERTIFICATE], "pyconfd never removes it"


def test_a_missing_certificate_is_named() -> None:
    def absent(path: str) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(RejectedInput, match=r"/own/certs/shop\.pem"):
        localise(published(), "/own", absent)


def test_paths_in_a_list_of_certificates_move_too() -> None:
    text = "bind :443 ssl crt-list /p/files/maps/certs.map\n"
    lines = "/p/files/certs/shop.pem [ca-file /p/files/certs/ca.pem] shop.example.com\n/etc/other.pem\n"
    files = (
        OutputFile(FileKind.CERTIFICATE, "/p/files/certs/ca.pem", CERTIFICATE),
        OutputFile(FileKind.CERTIFICATE, "/p/files/certs/shop.pem", CERTIFICATE + KEY),
        OutputFile(FileKind.MAP, "/p/files/maps/certs.map", lines),
        OutputFile(FileKind.MAP, "/p/files/maps/other.map", lines),
    )
    packed = pack(Rendering((Piece("01.conf", text),), files), "/p/files")
    content = written(packed)
    rendering = localise(unpack(decode_pointer(content), packed.chunks), "/own", lambda path: CERTIFICATE.encode())[0]
    moved, other = (file.content for file in rendering.files)
    assert moved == "/own/certs/shop.pem [ca-file /own/certs/ca.pem] shop.example.com\n/etc/other.pem\n"
    assert other == lines, "what a map holds is a value"
