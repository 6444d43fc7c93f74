import datetime as dt
import os
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.certificates import (
    CertificateFiles,
    expiry_of,
    fault_of,
    leaf_expiry,
    stub_pem,
    with_stubs,
)
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.settings import HaproxySettings
from tests.world.haproxy import BINARY
from tests.world.pki import CertificateAuthority, KeyPair


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[KeyPair]:
    authority = CertificateAuthority(tmp_path_factory.mktemp("pki"))
    return [authority.server(name, [f"{name}.example.com"]) for name in ("a", "b")]


def pem(certificate: KeyPair, key: KeyPair | None = None) -> bytes:
    return (key or certificate).key.read_bytes() + certificate.cert.read_bytes()


def write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def cases(pairs: list[KeyPair]) -> dict[str, bytes]:
    good = pem(pairs[0])
    return {
        "": good,
        "the file has no certificate in PEM": pairs[0].key.read_bytes(),
        "the file has no private key": pairs[0].cert.read_bytes(),
        "the private key does not belong to the certificate": pem(pairs[0], pairs[1]),
        "the certificate cannot be read": pairs[0].key.read_bytes() + pairs[0].cert.read_bytes().replace(b"M", b"A"),
    }


@pytest.mark.haproxy
@pytest.mark.parametrize("number", range(5))
def test_what_is_said_to_be_wrong_is_what_haproxy_refuses(tmp_path: Path, pairs: list[KeyPair], number: int) -> None:
    fault, content = list(cases(pairs).items())[number]
    path = write(tmp_path / "x.pem", content)
    limits = "timeout connect 1s\n timeout client 1s\n timeout server 1s"
    conf = f"defaults\n mode http\n {limits}\nfrontend f\n bind 127.0.0.1:1 ssl crt {path}\n"
    (tmp_path / "haproxy.cfg").write_text(conf)
    done = subprocess.run([BINARY, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, check=False)

    assert fault_of(path) == fault
    assert (done.returncode == 0) is (fault == "")


def test_a_key_beside_the_certificate_is_what_haproxy_takes_too(tmp_path: Path, pairs: list[KeyPair]) -> None:
    path = write(tmp_path / "x.pem", pairs[0].cert.read_bytes())
    write(tmp_path / "x.pem.key", pairs[0].key.read_bytes())
    assert fault_of(path) == ""


def test_files_are_found_in_folders_and_behind_links(tmp_path: Path, pairs: list[KeyPair]) -> None:
    ssl = tmp_path / "ssl"
    write(ssl / "team" / "a.pem", pem(pairs[0]))
    write(ssl / ".hidden.pem", pem(pairs[0]))
    write(ssl / "empty.pem", b"")
    write(tmp_path / "b.pem", pem(pairs[1]))
    (ssl / "b.pem").symlink_to(tmp_path / "b.pem")
    (ssl / "dangling.pem").symlink_to(tmp_path / "nothing.pem")
    bundle = write(tmp_path / "ca.pem", pairs[0].cert.read_bytes())
    found = CertificateFiles(str(ssl), ("@system-ca", bundle)).read()

    assert found == {
        f"{ssl}/b.pem": "",
        f"{ssl}/empty.pem": "the file has no certificate in PEM",
        f"{ssl}/team/a.pem": "",
        bundle: "",
    }


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_a_file_has_one_path_however_its_directory_is_written(tmp_path: Path, pairs: list[KeyPair], end: str) -> None:
    path = write(tmp_path / "ssl" / "a.pem", pem(pairs[0]))
    assert CertificateFiles(f"{tmp_path}/ssl{end}").read() == {path: ""}


def test_a_directory_without_a_name_has_no_certificate() -> None:
    assert CertificateFiles().read() == {}


def test_folders_are_read_four_deep(tmp_path: Path, pairs: list[KeyPair]) -> None:
    deep = write(tmp_path / "1" / "2" / "3" / "4" / "a.pem", pem(pairs[0]))
    write(tmp_path / "1" / "2" / "3" / "4" / "5" / "b.pem", pem(pairs[0]))
    assert CertificateFiles(str(tmp_path)).read() == {deep: ""}


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, passphrase: str = "") -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _rsa_pair(bits: int) -> bytes:
    key, name = rsa.generate_private_key(65537, bits), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=36500))
    return _private(key) + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_what_is_wrong_with_a_key(tmp_path: Path, pairs: list[KeyPair]) -> None:
    chain, key = pairs[0].cert.read_bytes(), ec.generate_private_key(ec.SECP256R1())
    body = b"".join(pairs[0].key.read_bytes().splitlines()[1:-1])
    unreadable = pairs[0].key.read_bytes().replace(body[:8], b"A" * 8)
    for content, fault in (
        (_private(key, "secret") + chain, "the private key has a passphrase"),
        (unreadable + chain, "the private key cannot be read"),
        (_private(key) + chain, "the private key does not belong to the certificate"),
        (_rsa_pair(1024), "OpenSSL refuses RSA keys of less than 2048 bits"),
        (_rsa_pair(2048), ""),
    ):
        assert fault_of(write(tmp_path / "x.pem", content)) == fault


def test_when_the_first_certificate_of_a_file_ends(tmp_path: Path, pairs: list[KeyPair]) -> None:
    ends = [x509.load_pem_x509_certificate(each.cert.read_bytes()).not_valid_after_utc.timestamp() for each in pairs]
    longer = _rsa_pair(2048)
    path = write(tmp_path / "x.pem", pairs[0].key.read_bytes() + pairs[0].cert.read_bytes() + longer)
    assert expiry_of(path) == leaf_expiry(pairs[0].cert.read_bytes()) == ends[0]
    assert expiry_of(write(tmp_path / "y.pem", longer + pairs[0].cert.read_bytes())) != ends[0]
    with pytest.raises(ValueError, match="no certificate in PEM"):
        leaf_expiry(pairs[0].key.read_bytes())


def test_a_directory_that_is_not_there_has_no_certificate(tmp_path: Path) -> None:
    assert CertificateFiles(str(tmp_path / "none")).read() == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every directory")
def test_where_nothing_can_be_seen_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "ssl").mkdir(mode=0)
    assert CertificateFiles(str(tmp_path / "ssl")).read() is None


def test_a_file_that_is_written_again_is_not_given_up_at_once(tmp_path: Path, pairs: list[KeyPair]) -> None:
    path = write(tmp_path / "a.pem", pem(pairs[0]))
    now = [0.0]
    files = CertificateFiles(str(tmp_path), clock=lambda: now[0], grace_s=10)
    assert files.read() == {path: ""}
    write(tmp_path / "a.pem", b"-----BEGIN CERT")
    assert files.read() == {path: ""}
    write(tmp_path / "a.pem", pem(pairs[1]))
    assert files.read() == {path: ""}
    Path(path).unlink()
    now[0] = 9.0
    assert files.read() == {path: ""}
    now[0] = 10.0
    assert files.read() == {}
    write(tmp_path / "a.pem", pem(pairs[0]))
    assert files.read() == {path: ""}


TEXT = """defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend f
    bind 127.0.0.1:1 ssl crt /nowhere/declared.pem crt /nowhere/named.pem ca-file /nowhere/ca.crt verify optional
    bind 127.0.0.1:2 ssl crt /nowhere/directory/
backend b
    server s 192.0.2.1:443 ssl verify required ca-file /nowhere/other-ca.pem crt /nowhere/client.pem
"""


def rendering(text: str = TEXT) -> Rendering:
    return Rendering((Piece("01.conf", text),), (OutputFile(FileKind.CERTIFICATE, "/nowhere/declared.pem", "secret"),))


@pytest.mark.haproxy
def test_haproxy_judges_what_it_has_no_certificates_for(tmp_path: Path) -> None:
    settings = HaproxySettings(conf=str(tmp_path / "haproxy.cfg"), binary=BINARY, unit="")
    check(with_stubs(rendering()), settings=settings, unit=UnitFacts())
    with pytest.raises(RejectedInput, match=r"named\.pem"):
        check(rendering(), settings=settings, unit=UnitFacts())
    with pytest.raises(RejectedInput, match="nonsense"):
        check(with_stubs(rendering(TEXT + "    nonsense\n")), settings=settings, unit=UnitFacts())
    assert list(tmp_path.iterdir()) == []


def test_the_real_content_is_nowhere() -> None:
    stubbed = with_stubs(rendering())
    assert stubbed.text == TEXT
    assert {file.content for file in stubbed.files} == {stub_pem()}
    assert [file.path for file in stubbed.files] == [
        "/nowhere/ca.crt",
        "/nowhere/client.pem",
        "/nowhere/declared.pem",
        "/nowhere/directory/stub.pem",
        "/nowhere/named.pem",
        "/nowhere/other-ca.pem",
    ]


def test_stubs_are_made_for_what_lists_name_below_the_directories_of_the_globals() -> None:
    text = "global\n    crt-base /nowhere/own\n    ca-base /nowhere/ca\n" + TEXT.replace(
        "/nowhere/directory/", "list.pem ssl crt-list /nowhere/list"
    )
    listed = "# comment\n/nowhere/one.pem [ca-file clients.crt verify required] a.example.com\ntwo.pem\n"
    files = (OutputFile(FileKind.MAP, "/nowhere/list", listed),)
    stubbed = with_stubs(Rendering((Piece("01.conf", text),), files))
    assert [(file.kind, file.path) for file in stubbed.files if file.content == stub_pem()] == [
        (FileKind.CERTIFICATE, path)
        for path in (
            "/nowhere/ca.crt",
            "/nowhere/ca/clients.crt",
            "/nowhere/ca/stub.pem",
            "/nowhere/client.pem",
            "/nowhere/declared.pem",
            "/nowhere/named.pem",
            "/nowhere/one.pem",
            "/nowhere/other-ca.pem",
            "/nowhere/own/list.pem",
            "/nowhere/own/stub.pem",
            "/nowhere/own/two.pem",
        )
    ]
    assert files[0] in stubbed.files


def test_a_list_that_is_not_declared_gets_one_stub() -> None:
    stubbed = with_stubs(Rendering((Piece("01.conf", "frontend f\n    bind :1 ssl crt-list /nowhere/list\n"),)))
    assert stubbed.files == (
        OutputFile(FileKind.MAP, "/nowhere/list", "/nowhere/list.stub.pem\n"),
        OutputFile(FileKind.CERTIFICATE, "/nowhere/list.stub.pem", stub_pem()),
    )


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ("crt /a/b.pem", ["/a/b.pem"]),
        ("crt /a", ["/a/stub.pem"]),
        ("crt /a/", ["/a/stub.pem"]),
        ("crt $VAR/b.pem", []),
        ("crt relative.pem", []),
        ("ca-file @system-ca", []),
        (
            "ca-file /a/ca.pem ca-verify-file /a/verify.pem crl-file /a/crl.pem",
            ["/a/ca.pem", "/a/crl.pem", "/a/verify.pem"],
        ),
        ("crt-list relative", []),
        ("crt-list $VAR", []),
    ],
)
@pytest.mark.parametrize("line", ["bind :1 ssl", "server s 192.0.2.1:443 ssl", "default-server ssl"])
def test_what_a_line_names_by_path(line: str, words: str, paths: list[str]) -> None:
    text = f"listen f\n    {line} {words}\n    option httpchk crt /never.pem\n"
    assert [file.path for file in with_stubs(Rendering((Piece("01.conf", text),))).files] == paths


def test_a_directory_of_declared_certificates_gets_no_stub() -> None:
    text = "frontend f\n    bind :1 ssl crt /a crt /b\n"
    files = (OutputFile(FileKind.CERTIFICATE, "/a/own.pem", "secret"),)
    found = with_stubs(Rendering((Piece("01.conf", text),), files)).files
    assert [file.path for file in found] == ["/a/own.pem", "/b/stub.pem"]
