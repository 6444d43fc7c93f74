"""A publication on another machine: its own paths, its own certificates."""

import itertools
from hashlib import sha256
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.certificates import CertificateFiles
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.predecessors.etcd.local import localise, names_certificates, servable
from pyconfd.predecessors.etcd.publication import Publication, decode_pointer, pack, unpack
from tests.etcd.test_publication import CERTIFICATE, KEY, written
from tests.world.pki import CertificateAuthority

TEXT = (
    "use_backend %[req.hdr(host),map_str(/p/files/maps/hosts.map,none)]\n"
    "bind :443 ssl crt /p/files/certs/shop.pem crt /p/files/certs/\n"
    "log-tag /p/files/maps/hosts.map.bak /x/p/files/maps/hosts.map\n"
)


def published() -> Publication:
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


OWN = "frontend mine\n    bind *:8443 ssl crt /ssl/missing.pem\n"
PLAIN = "frontend k8s-service_all_80_listen\n    mode http\n    bind *:80\n"


def listener(port: int, options: str) -> str:
    return (
        f"\nfrontend k8s-service_all_{port}_listen\n    mode http\n    bind *:{port} ssl {options}\n"
        "    http-request set-header X-Forwarded-Proto https\n"
    )


def absent(path: str) -> str:
    return "it is not there" if "missing" in path else ""


def without(text: str, maps: dict[str, str] | None = None) -> tuple[str, dict[str, str], list[str]]:
    served = servable([Piece("10.tmpl", text)], maps or {}, absent)
    return served.pieces[0].text, dict(served.maps), sorted(served.lacking)


def test_where_nothing_lacks_nothing_changes() -> None:
    text = PLAIN + listener(443, 'crt /ssl/a.pem crt "/s s/b.pem"') + listener(444, "crt-list /maps/l")
    maps = {"/maps/l": "/ssl/a.pem []\n", "/maps/other": "/ssl/missing.pem x\n"}
    assert without(text, maps) == (text, maps, [])
    assert names_certificates([Piece("a", text)])


def test_what_operators_write_is_left_to_the_check() -> None:
    assert without(OWN + PLAIN) == (OWN + PLAIN, {}, [])
    assert not names_certificates([Piece("a", OWN + PLAIN)])


def test_one_of_several_goes_and_the_others_stay() -> None:
    text = PLAIN + listener(443, "crt /ssl/a.pem crt /ssl/missing.pem crt /ssl/missing.pem.old") + OWN
    served, _, lacking = without(text)
    assert served == PLAIN + listener(443, "crt /ssl/a.pem") + OWN
    assert lacking == ["/ssl/missing.pem", "/ssl/missing.pem.old"]


def test_a_bind_that_is_left_with_none_goes() -> None:
    served, _, lacking = without(listener(443, "crt /ssl/missing.pem") + listener(444, 'crt "/s s/b.pem"'))
    assert "    # not bound here: *:443, it has no certificate\n    http-request" in served
    assert "bind *:443" not in served
    assert served.endswith(listener(444, 'crt "/s s/b.pem"'))
    assert lacking == ["/ssl/missing.pem"]


def test_lines_of_a_list_go_and_with_the_last_one_the_bind() -> None:
    text = listener(443, "crt-list /maps/some") + listener(444, 'crt-list "/maps/none"') + listener(445, "crt-list /x")
    maps = {"/maps/some": "/ssl/a.pem []\n/ssl/missing.pem []\n", "/maps/none": "/ssl/missing.pem []\n"}
    served, contents, lacking = without(text, maps)
    assert contents == {"/maps/some": "/ssl/a.pem []\n", "/maps/none": "/ssl/missing.pem []\n"}
    assert [line.split()[1] for line in served.splitlines() if " bind " in line] == ["*:443", "*:445"]
    assert lacking == ["/ssl/missing.pem"]


def test_a_file_that_was_good_may_be_rewritten(tmp_path: Path) -> None:
    pair = CertificateAuthority(tmp_path / "pki").server("one", ["a.example.com"])
    path, now = tmp_path / "a.pem", itertools.count(0, 4)
    judge = CertificateFiles(clock=lambda: next(now), grace_s=10)
    assert judge.fault(str(path)) == "No such file or directory", "what was never there has no time"
    path.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
    assert judge.fault(str(path)) == ""
    path.write_text("half of")
    assert [bool(judge.fault(str(path))) for _ in range(4)] == [False, False, True, True]
    path.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
    assert judge.fault(str(path)) == ""
    path.unlink()
    assert judge.fault(str(path)) == ""
