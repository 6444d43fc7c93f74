"""The default certificate of a bind: what is planned as a reload is what a real HAProxy refuses, and nothing else."""

import subprocess
from pathlib import Path

import pytest

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import plan
from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.model.operations import AddCertificate, AddListLines, RemoveListLines
from pyconfd.model.plan import Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from tests.world.haproxy import BINARY, HaproxyProcess
from tests.world.pki import CertificateAuthority

BINDS = {
    "crt DIR/": "a.pem",
    "crt DIR": "a.pem",
    "crt DIR/ crt OWN": "a.pem",
    "crt OWN crt DIR/": "",
    "strict-sni crt DIR/": "",
    "crt DIR/ strict-sni": "",
}
"""The certificate words of a bind, and which file of the directory is its default."""

SINCE_3_0 = {"default-crt OWN crt DIR/": "", "crt DIR/ default-crt OWN": "a.pem"}

ABLE = Abilities(runtime=True, why="")


def rendering(text: str, files: dict[str, str]) -> Rendering:
    found = tuple(OutputFile(FileKind.CERTIFICATE, path, files[path]) for path in sorted(files))
    return Rendering((Piece("all", text),), found)


def configuration(directory: Path, socket: str, binds: dict[str, str]) -> str:
    lines = [f"global\n    stats socket {socket} level admin\ndefaults\n    mode http\n"]
    lines += [f"    timeout {name} 5s\n" for name in ("connect", "client", "server")]
    for number, words in enumerate(binds):
        found = words.replace("DIR", str(directory / f"d{number}")).replace("OWN", str(directory / "own.pem"))
        lines.append(f"frontend f{number}\n    bind unix@{socket}.{number} ssl {found}\n")
    return "".join(lines)


@pytest.mark.haproxy
def test_what_is_planned_as_a_reload_is_what_haproxy_refuses(tmp_path: Path) -> None:
    shown = subprocess.run([BINARY, "-v"], capture_output=True, check=True, text=True).stdout
    binds = BINDS if "version 2." in shown else BINDS | SINCE_3_0
    authority = CertificateAuthority(tmp_path / "ca")
    pairs = [authority.server(name, [f"{name}.example.com"]) for name in ("own", "a", "b", "c")]
    own, *others = [pair.cert.read_text() + pair.key.read_text() for pair in pairs]
    (tmp_path / "own.pem").write_text(own)
    files = {}
    for number in range(len(binds)):
        (tmp_path / f"d{number}").mkdir()
        for name, pem in zip("abc", others, strict=True):
            path = tmp_path / f"d{number}" / f"{name}.pem"
            path.write_text(pem)
            files[str(path)] = pem
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        haproxy.conf.write_text(configuration(tmp_path, haproxy.stats_socket, binds))
        haproxy.start()
        runtime = Runtime()
        assert runtime.connect([haproxy.stats_socket]).runtime
        applied = rendering(haproxy.conf.read_text(), files)
        refused = {path for path in reversed(files) if _refused(runtime, path)}
        runtime.close()
    assert refused == {f"{tmp_path}/d{number}/{name}" for number, name in enumerate(binds.values()) if name}
    assert refused == {path for path in files if isinstance(_planned_without(applied, path), Reload)}


def _refused(runtime: Runtime, path: str) -> bool:
    try:
        runtime.execute([RemoveListLines(str(Path(path).parent), (path,))])
    except NotConfirmed as error:
        return "used as default certificate" in str(error)
    return False


def _planned_without(applied: Rendering, path: str) -> Plan:
    left = Rendering(applied.pieces, tuple(file for file in applied.files if file.path != path))
    return plan(left, applied, None, abilities=ABLE)


@pytest.mark.parametrize("words", BINDS | SINCE_3_0)
@pytest.mark.parametrize("name", ["0.pem", "aa.pem", "z.pem"])
def test_one_that_would_be_the_default_after_a_reload_is_one(words: str, name: str) -> None:
    default = (BINDS | SINCE_3_0)[words]
    text = f"frontend f\n    bind :443 ssl {words.replace('DIR', '/certs').replace('OWN', '/own.pem')}\n"
    before = {f"/certs/{one}.pem": f"{one}\n" for one in "abc"}
    made = plan(rendering(text, before | {f"/certs/{name}": "new\n"}), rendering(text, before), None, abilities=ABLE)
    if default and name < default:
        assert isinstance(made, Reload)
        assert made.reasons == (ReloadReason.CERTIFICATES_CHANGED,)
    else:
        assert isinstance(made, RuntimeUpdate)
        path = f"/certs/{name}"
        assert made.commands == (AddCertificate(path, "new\n"), AddListLines("/certs", (path,)))
