"""A check without the real certificates where a crt-list, or a base directory, names them."""

from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.certificates import stub_pem, with_stubs
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.settings import HaproxySettings
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.haproxy

HEAD = """defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend f
"""
LIST = """# comment /nowhere/never.pem
/nowhere/a.pem [verify optional ca-file /nowhere/lists/ca.crt crl-file /nowhere/lists/crl.pem] a.example.com !b.a.org

/nowhere/other/b.pem [ alpn h2 ] *.example.com
/nowhere/c.pem
"""


def judged(tmp_path: Path, rendering: Rendering) -> None:
    settings = HaproxySettings(conf=str(tmp_path / "haproxy.cfg"), binary=BINARY, unit="")
    check(rendering, settings=settings, unit=UnitFacts())
    assert list(tmp_path.iterdir()) == []


def listed(text: str = LIST, *files: OutputFile) -> Rendering:
    bind = "    bind 127.0.0.1:1 ssl crt-list /nowhere/files/maps/certs.map\n"
    own = OutputFile(FileKind.MAP, "/nowhere/files/maps/certs.map", text)
    return Rendering((Piece("01.conf", HEAD + bind),), (own, *files))


def test_certificates_that_a_declared_list_names_get_stubs(tmp_path: Path) -> None:
    stubbed = with_stubs(listed())
    judged(tmp_path, stubbed)
    assert {file.path for file in stubbed.files if file.kind is FileKind.CERTIFICATE} == {
        "/nowhere/a.pem",
        "/nowhere/c.pem",
        "/nowhere/lists/ca.crt",
        "/nowhere/lists/crl.pem",
        "/nowhere/other/b.pem",
    }
    with pytest.raises(RejectedInput, match=r"/nowhere/lists/crl\.pem"):
        judged(tmp_path, listed())


def test_a_mistake_in_the_list_is_still_found(tmp_path: Path) -> None:
    with pytest.raises(RejectedInput, match="nonsense"):
        judged(tmp_path, with_stubs(listed("/nowhere/a.pem [nonsense] a.example.com\n")))


def test_a_list_may_name_a_declared_certificate_that_is_not_installed_yet(tmp_path: Path) -> None:
    certificate = OutputFile(FileKind.CERTIFICATE, "/nowhere/files/certs/shop.pem", stub_pem())
    judged(tmp_path, listed("/nowhere/files/certs/shop.pem [] shop.example.com\n", certificate))


def test_a_list_that_only_the_balancers_have(tmp_path: Path) -> None:
    text = f"{HEAD}    bind 127.0.0.1:1 ssl crt-list /nowhere/ours.list crl-file /nowhere/crl.pem\n"
    judged(tmp_path, with_stubs(Rendering((Piece("01.conf", text),))))


@pytest.mark.parametrize("line", ["crt shop.pem", "crt more/shop.pem crt shop.pem ca-file ca.crt verify optional"])
def test_names_below_the_base_directories(tmp_path: Path, line: str) -> None:
    text = f"global\n    crt-base /nowhere/certs\n    ca-base /nowhere/cas\n{HEAD}    bind 127.0.0.1:1 ssl {line}\n"
    stubbed = with_stubs(Rendering((Piece("01.conf", text),)))
    judged(tmp_path, stubbed)
    assert stubbed.text == text


def test_a_base_directory_that_a_list_counts_on(tmp_path: Path) -> None:
    base = listed("shop.pem [] shop.example.com\n")
    rendering = Rendering((Piece("00.conf", "global\n    crt-base /nowhere/certs\n"), *base.pieces), base.files)
    judged(tmp_path, with_stubs(rendering))
