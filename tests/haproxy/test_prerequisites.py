"""What is looked at on this machine before anything is started."""

import os
from pathlib import Path

import pytest

from pyconfd.fragments import directory as shipped_fragments
from pyconfd.haproxy.process.prerequisites import (
    certificates,
    directories,
    idle_close_note,
    program,
    shortage,
    sockets,
    writable,
)
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.finding import Finding, Level
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.settings import HaproxySettings
from tests.world.pki import CertificateAuthority

NOBODY = 65534
DAY = 86400.0


def haproxy(folder: Path, version: str, features: str) -> HaproxySettings:
    """Return the settings with a program that says of itself what a HAProxy of that version would."""
    path = folder / "haproxy"
    path.write_text(f'#!/bin/sh\necho "HAProxy version {version} 2026/01/01"\necho "Feature list : {features}"\n')
    path.chmod(0o755)
    return HaproxySettings(binary=str(path))


@pytest.mark.parametrize(
    ("version", "features", "levels"),
    [
        ("2.6.12-1+deb12u4", "+EPOLL +OPENSSL -LUA", [Level.OK]),
        ("3.4.0", "+OPENSSL_AWSLC", [Level.OK]),
        ("2.4.22", "+OPENSSL", [Level.OK, Level.WARNING]),
        ("2.8.1", "+EPOLL -OPENSSL", [Level.OK, Level.WARNING]),
        ("", "+OPENSSL", [Level.FAILURE]),
    ],
)
def test_version_and_features(tmp_path: Path, version: str, features: str, levels: list[Level]) -> None:
    found = list(program(haproxy(tmp_path, version, features)))
    assert [each.level for each in found] == levels
    assert "-LUA" not in str(found)


def test_directories_that_are_there_can_be_made_or_are_in_the_way(tmp_path: Path) -> None:
    assert writable("x", str(tmp_path)).level is Level.OK
    assert "can be made" in writable("x", str(tmp_path / "a" / "b")).message
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    assert writable("x", str(tmp_path / "file")).level is Level.FAILURE
    assert writable("x", str(tmp_path / "file" / "below")).level is Level.FAILURE


def test_directories_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o755)
    if os.geteuid() == 0:
        for parent in (tmp_path, *tmp_path.parents):
            if not parent.stat().st_mode & 0o001 and parent.owner() == "root":
                parent.chmod(parent.stat().st_mode | 0o011)
        os.seteuid(NOBODY)
    else:
        folder.chmod(0o555)
    try:
        found = writable("state_dir", str(folder)), writable("state_dir", str(folder / "below"))
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert [each.level for each in found] == [Level.FAILURE, Level.FAILURE]
    assert "not writable for this user" in found[0].message
    assert "install -d" in found[1].remedy


@pytest.mark.parametrize(
    ("blocks", "files", "level"),
    [(1 << 20, 10, None), (1 << 10, 10, Level.WARNING), (0, 10, Level.FAILURE), (1 << 20, 0, Level.FAILURE)],
)
def test_a_disk_that_is_full_is_no_mere_warning(blocks: int, files: int, level: Level | None) -> None:
    found = shortage(
        "state_dir", "/s", os.statvfs_result((4096, 4096, 1 << 20, blocks, blocks, 99, files, files, 0, 255))
    )
    assert (found.level if found else None) is level


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_what_another_user_may_not_see_is_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "generated"
    (folder / "files").mkdir(parents=True)
    (folder / "haproxy.cfg").write_text("")
    for parent in (tmp_path, *tmp_path.parents):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    folder.chmod(0o700)
    settings = HaproxySettings(conf=str(folder / "haproxy.cfg"), files_dir=str(folder / "files"))
    text = f"global\n stats socket {folder}/a/s\nfrontend f\n bind :443 ssl crt {folder}/files/a.pem\n"
    os.seteuid(NOBODY)
    try:
        found = [*directories(settings, UnitFacts(), ()), *sockets(text)]
        found += certificates(Rendering((Piece("a", text),)), 0.0)
    finally:
        os.seteuid(0)
    assert Level.OK not in {each.level for each in found}
    assert [each.topic for each in found] == ["directories", "directories", "haproxy", "certificates"]


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [
        (400, Level.OK, "good for 400 d"),
        (29, Level.WARNING, "in 29 d"),
        (0, Level.FAILURE, "expired 0 s ago"),
        (-3, Level.FAILURE, "expired 3 d ago"),
    ],
)
def test_a_certificate_is_judged_by_its_end(days: float, level: Level, words: str) -> None:
    found = Finding.of_expiry("certificates", "a.pem", days * DAY, due=days < 30)
    assert (found.level, words in found.message) == (level, True)


def test_the_servers_own_certificate_counts_and_not_its_chain(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    expired, good = authority.server("expired", expired=True), authority.server("good")
    chain = authority.cert.read_text()
    files = tuple(
        OutputFile(FileKind.CERTIFICATE, f"/x/{name}.pem", pair.key.read_text() + pair.cert.read_text() + chain)
        for name, pair in (("expired", expired), ("good", good))
    )
    now = authority.cert.stat().st_mtime
    on_disk = tmp_path / "disk.pem"
    on_disk.write_text(files[1].content)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.pem").write_text(files[0].content)
    (folder / "a.pem.ocsp").write_text("")
    text = f"frontend a\n bind :1 ssl crt /x/expired.pem crt {on_disk}\n bind :2 ssl crt {folder}/ crt relative.pem\n"
    found: list[Finding] = list(certificates(Rendering((Piece("a", text),), files), now))
    assert [(each.what, each.level) for each in found] == [
        ("/x/expired.pem", Level.FAILURE),
        ("/x/good.pem", Level.OK),
        (str(on_disk), Level.OK),
        (str(folder / "a.pem"), Level.FAILURE),
    ]
    assert "BEGIN" not in str(found)


def test_lists_of_certificates_are_looked_into(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pair = authority.server("good")
    (tmp_path / "good.pem").write_text(pair.key.read_text() + pair.cert.read_text())
    (tmp_path / "list").write_text(f"# all\n\n{tmp_path}/good.pem [alpn h2] a.example.com\n{tmp_path}/gone.pem\n")
    rendering = Rendering((Piece("a", f"frontend a\n bind :1 ssl crt-list {tmp_path}/list\n"),))
    found = {each.what: each.level for each in certificates(rendering, authority.cert.stat().st_mtime)}
    assert found == {f"{tmp_path}/good.pem": Level.OK, f"{tmp_path}/gone.pem": Level.FAILURE}


def test_sockets_need_their_directory(tmp_path: Path) -> None:
    text = f"global\n stats socket {tmp_path}/here level admin\n stats socket {tmp_path}/no/there level admin\n"
    assert [each.what for each in sockets(text)] == [f"{tmp_path}/no/there"]


WITH = "    option idle-close-on-response\n"
HTTP = "    mode http\n"
DEFAULTS = (Path(shipped_fragments()) / "01-defaults.conf").read_text()


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        (f"defaults\n{HTTP}frontend a\n", "frontend a"),
        (f"defaults\n{HTTP}{WITH}frontend a\n", ""),
        (f"frontend a\n{HTTP}listen b\n{HTTP}{WITH}", "frontend a"),
        ("frontend a\n    mode tcp\nfrontend b\n", ""),
        (f"defaults\n{HTTP}frontend a\n    mode tcp\nbackend b\n", ""),
        (f"defaults\n{HTTP}{WITH}frontend a\n    no option idle-close-on-response\n", "frontend a"),
        (f"defaults\n{HTTP}    option httpclose\nfrontend a\n", ""),
        (f"defaults\n{HTTP}{WITH}defaults\n{HTTP}frontend a\n", "frontend a"),
        (f"defaults x\n{HTTP}{WITH}defaults y\n{HTTP}frontend a from x\nfrontend b\n", "frontend b"),
        (f"defaults x\n{HTTP}{WITH}defaults y from x\nfrontend a\n", ""),
        (f"frontend a from gone\n{HTTP}", "frontend a"),
        ("".join(f"frontend f{at}\n{HTTP}" for at in range(5)), "frontend f0, frontend f1, frontend f2 and 2 more"),
        (f"{DEFAULTS}frontend a\n", ""),
        (f"{DEFAULTS.replace(WITH, '')}frontend a\n", "frontend a"),
    ],
)
def test_listeners_whose_idle_connections_a_reload_closes(text: str, lacking: str) -> None:
    assert idle_close_note(text).partition(":")[0] == lacking
