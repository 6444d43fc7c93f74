"""A certificate that a balancer lacks costs the host that asked for it, and nothing else."""

import itertools
from pathlib import Path

from pyconfd.etcd.local import names_certificates, servable
from pyconfd.haproxy.config.certificates import CertificateFiles
from pyconfd.model.rendering import Piece
from tests.world.pki import CertificateAuthority

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
