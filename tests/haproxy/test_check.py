import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput, TransientError
from pyconfd.haproxy.process.check import check, has_listener
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.settings import HaproxySettings
from tests.haproxy.bench import Bench, rendering
from tests.world.haproxy import BINARY, configuration

pytestmark = pytest.mark.haproxy

GOOD = configuration(18080)
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")


@pytest.fixture
def settings(tmp_path: Path) -> HaproxySettings:
    return HaproxySettings(conf=str(tmp_path / "haproxy.cfg"), binary=BINARY)


def script(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


@pytest.mark.parametrize(
    ("text", "listens"),
    [
        ("listen a\n bind :80\n", True),
        ("global\nbackend b\nfrontend a\n mode http\n bind :80\n", True),
        ("log-forward syslog\n dgram-bind 127.0.0.1:1514\n", True),
        ("peers p\n bind :1024\n", True),
        ("frontend a\n mode http\n# bind :80\nbackend bind\n server s 10.0.0.1:80\n", False),
        ("", False),
    ],
)
def test_what_listens_somewhere(text: str, *, listens: bool) -> None:
    assert has_listener(text) is listens


def test_a_good_configuration_passes_and_leaves_nothing_behind(settings: HaproxySettings, tmp_path: Path) -> None:
    check(rendering(GOOD), settings=settings, unit=UnitFacts())
    assert list(tmp_path.iterdir()) == []


def test_the_environment_of_the_unit_is_used(settings: HaproxySettings) -> None:
    desired = rendering(GOOD.replace("mode http", 'mode "${MODE}"'))
    with pytest.raises(RejectedInput):
        check(desired, settings=settings, unit=UnitFacts(environment={"MODE": "sideways"}))
    check(desired, settings=settings, unit=UnitFacts(environment={"MODE": "http"}))


def test_the_flags_of_the_unit_are_used(settings: HaproxySettings) -> None:
    """A `program` section is an error without -W."""
    desired = rendering(GOOD, "program p\n    command /bin/true\n")
    check(desired, settings=settings, unit=UnitFacts(found=True, master_worker_flag="-W"))
    with pytest.raises(RejectedInput):
        check(desired, settings=replace(settings, chk_cmd=(BINARY, "-c", "-f")), unit=UnitFacts())


@ROOT_ONLY
def test_the_user_of_the_unit_is_used(settings: HaproxySettings, tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(directory.stat().st_mode | stat.S_IXOTH)
    secret = tmp_path / "secret.map"
    secret.write_text("a b\n")
    secret.chmod(0o600)
    use = f"    http-request deny if {{ req.hdr(host),map({secret}) -m found }}\n"
    check(rendering(GOOD, use), settings=settings, unit=UnitFacts())
    with pytest.raises(RejectedInput, match=r"secret\.map"):
        check(rendering(GOOD, use), settings=settings, unit=UnitFacts(found=True, user="nobody"))

    declared = OutputFile(FileKind.MAP, str(secret), "a b\n")
    check(rendering(GOOD, use, files=(declared,)), settings=settings, unit=UnitFacts(found=True, user="nobody"))


def test_only_declared_paths_are_read_from_the_copy(settings: HaproxySettings, tmp_path: Path) -> None:
    declared = OutputFile(FileKind.MAP, str(tmp_path / "a.map"), "x y\n")
    longer = tmp_path / "a.map.more"
    use = f"    http-request deny if {{ req.hdr(host),map({longer}) -m found }}\n"
    with pytest.raises(RejectedInput, match=r"a\.map\.more") as caught:
        check(rendering(GOOD, use, files=(declared,)), settings=settings, unit=UnitFacts())
    assert ".pyconfd-" not in str(caught.value)  # the true path is told, not the copy's
    longer.write_text("x y\n")
    check(rendering(GOOD, use, files=(declared,)), settings=settings, unit=UnitFacts())


def test_a_path_relative_to_the_configuration_is_found(settings: HaproxySettings, tmp_path: Path) -> None:
    (tmp_path / "near.map").write_text("x y\n")
    text = GOOD.replace("global\n", "global\n    default-path config\n")
    use = "    http-request deny if { req.hdr(host),map(near.map) -m found }\n"
    check(rendering(text, use), settings=settings, unit=UnitFacts())


def test_a_directory_of_declared_certificates(settings: HaproxySettings, tmp_path: Path) -> None:
    declared = OutputFile(FileKind.CERTIFICATE, str(tmp_path / "certs" / "a.pem"), "no certificate\n")
    use = f"frontend fe_tls\n    bind 127.0.0.1:18081 ssl crt {tmp_path}/certs/\n"
    with pytest.raises(RejectedInput, match=r"certs/a\.pem"):
        check(rendering(GOOD, use, files=(declared,)), settings=settings, unit=UnitFacts())


def test_a_check_that_hangs_is_killed_and_told(settings: HaproxySettings, tmp_path: Path) -> None:
    command = script(tmp_path / "slow", "sleep 600")
    slow = replace(settings, chk_cmd=command, check_timeout_s=0.2)
    with pytest.raises(TransientError, match=r"did not end within 0\.2 s"):
        check(rendering(GOOD), settings=slow, unit=UnitFacts())


def test_a_missing_binary_is_told(settings: HaproxySettings) -> None:
    with pytest.raises(TransientError, match="cannot be executed"):
        check(rendering(GOOD), settings=replace(settings, binary="/nonexistent/haproxy"), unit=UnitFacts())


def test_a_check_command_that_fails_without_words_is_told_with_its_exit_code(
    settings: HaproxySettings, tmp_path: Path
) -> None:
    for text, told in (("exit 9", "ended with 9: it printed nothing"), ("kill -ABRT $$", "ended by signal 6")):
        command = script(tmp_path / "mute", text)
        with pytest.raises(RejectedInput, match=told):
            check(rendering(GOOD), settings=replace(settings, chk_cmd=command), unit=UnitFacts())


def test_the_services_own_sockets_are_not_handed_on(settings: HaproxySettings, tmp_path: Path) -> None:
    command = script(tmp_path / "show", 'test -z "$NOTIFY_SOCKET"')
    os.environ["NOTIFY_SOCKET"] = "/nonexistent"
    try:
        check(rendering(GOOD), settings=replace(settings, chk_cmd=command), unit=UnitFacts())
    finally:
        del os.environ["NOTIFY_SOCKET"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_the_right_to_write_beside_the_target_it_is_checked_elsewhere() -> None:
    check(rendering(GOOD), settings=HaproxySettings(conf="/etc/haproxy.cfg", binary=BINARY), unit=UnitFacts())


def test_the_staged_copies_of_a_check_are_private(bench: Bench) -> None:
    """A certificate is never readable by others, not even for the time of a check."""
    command = script(
        bench.directory / "look", f"stat -c %a {bench.conf.parent}/.pyconfd-*/*/site.pem > {bench.directory}/mode"
    )
    desired = bench.rendering(files=(bench.certificate("key\n"),))
    check(desired, settings=bench.haproxy.settings(chk_cmd=command), unit=UnitFacts())
    assert (bench.directory / "mode").read_text() == "600\n"
