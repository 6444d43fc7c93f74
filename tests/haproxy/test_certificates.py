import os
import subprocess
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.certificates import CertificateFiles, fault_of, stub_pem, with_stubs
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
    made = {file.path for file in stubbed.files if file.content == stub_pem()}
    assert {"/nowhere/one.pem", "/nowhere/own/two.pem", "/nowhere/own/list.pem", "/nowhere/ca/clients.crt"} <= made
