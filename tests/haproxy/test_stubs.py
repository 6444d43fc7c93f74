"""A check where none of the real certificates are."""

from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.certificates import stub_pem, with_stubs
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.settings import HaproxySettings
from tests.world.haproxy import BINARY

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
@pytest.mark.skipif(not Path(BINARY).exists(), reason="no haproxy binary")
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
