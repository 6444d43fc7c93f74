"""The parts of the look that need no world."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyconfd.cli.commands.preflight import (
    CHECKS,
    Check,
    Examined,
    another_user,
    floating_addresses,
    pool_of_addresses,
    print_findings,
    run_checks,
    shared_addresses,
    status_page,
)
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.finding import Finding, Level
from pyconfd.model.snapshot import HostFacts
from pyconfd.settings import HaproxySettings, KubernetesSettings, Settings, StatusSettings
from pyconfd.settings.sections import AddressSettings, Enabled, PresetSettings
from pyconfd.settings.vip import VipSettings
from tests.world.pki import CertificateAuthority


def test_a_clock_from_before_this_version_is_a_failure(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=str(tmp_path),
        runtime_dir=str(tmp_path),
        kubernetes=KubernetesSettings(kubeconfig="/nowhere"),
        haproxy=HaproxySettings(binary="/nowhere", conf=f"{tmp_path}/haproxy.cfg"),
    )
    (first, *_) = run_checks(CHECKS, Examined(settings, 86400.0))
    assert (first.level, first.topic) == (Level.FAILURE, "clock")
    assert "1970-01-02" in first.message
    examined = Examined(settings, time.time())
    found = list(run_checks(CHECKS, examined))
    assert found[0].level is Level.OK
    # Whatever is missing, it comes to its end.
    assert examined.failed >= {"program", "api_servers"}
    assert "the cluster as it is" not in {finding.what for finding in found}


GOOD, BAD = Finding.ok("a", "a", "good"), Finding(Level.FAILURE, "a", "a", "bad")


def raising(_: Examined) -> Iterator[Finding]:
    yield GOOD
    raise ConfigurationError(Problem("x", "raised", "repair x"))


@pytest.mark.parametrize(
    ("first", "after", "served", "messages"),
    [
        (lambda _: [GOOD, BAD, GOOD], "", True, ["good", "bad", "good", "good"]),
        (lambda _: [GOOD, BAD, GOOD], "first", True, ["good", "bad", "good"]),
        (lambda _: [GOOD], "first", True, ["good", "good"]),
        (raising, "", True, ["good", "raised", "good"]),
        (raising, "first", True, ["good", "raised"]),
        (lambda _: [GOOD], "", False, []),
    ],
)
def test_checks_run_in_order_and_after_what_they_need(
    first: Callable[[Examined], Iterable[Finding]], after: str, served: bool, messages: list[str]
) -> None:
    examined = Examined(Settings(haproxy=HaproxySettings(enabled=Enabled.YES if served else Enabled.NO)), 0.0)
    checks = (Check("first", "t", first, level=Level.WARNING), Check("second", "t", lambda _: [GOOD], after=after))
    found = list(run_checks(checks, examined))
    assert [finding.message for finding in found] == messages
    assert all(finding.level is Level.WARNING for finding in found if finding.message == "raised")


def test_whoever_looks_as_another_user_than_the_daemon_is_told_to_change_nothing() -> None:
    assert not list(another_user("pyconfd", "pyconfd"))
    (found,) = another_user("pyconfd", "root")
    assert found.level is Level.WARNING
    assert "it runs as pyconfd, and this is root" in found.message
    assert found.remedy.startswith("sudo -u pyconfd pyconfd preflight")


@pytest.mark.parametrize(
    ("here", "more", "vip", "level", "message"),
    [
        ((16, 17, 18, 19), {}, (), Level.OK, "all 4 addresses of the pool are on this host"),
        ((17,), {}, (), Level.FAILURE, "3 of 4 addresses of the pool are not on this host: 192.0.2.16, 192.0.2.18"),
        ((17,), {"nonlocal_bind_v6": True}, (), Level.FAILURE, "3 of 4 addresses"),
        ((17,), {"nonlocal_bind_v4": True}, (), Level.WARNING, "3 of 4 addresses of the pool are not on this host"),
        ((17,), {"nonlocal_bind_v4": True}, ("192.0.2.16/28",), Level.OK, "3 of 4 addresses"),
    ],
)
def test_addresses_of_the_pool_that_are_not_here_are_counted(
    here: tuple[int, ...], more: dict[str, Any], vip: tuple[str, ...], level: Level, message: str
) -> None:
    pool = AddressSettings(pool=("192.0.2.16-192.0.2.19",))
    settings = Settings(addresses=pool, vip=VipSettings(addresses=vip))
    host = replace(HostFacts(frozenset({"127.0.0.1", *(f"192.0.2.{number}" for number in here)})), **more)
    (found,) = pool_of_addresses(settings, host)
    assert (found.level, found.topic, found.message[: len(message)]) == (level, "addresses", message)
    assert not list(pool_of_addresses(Settings(), host))


def test_files_of_the_status_page_are_looked_at(tmp_path: Path) -> None:
    def found(**more: Any) -> list[tuple[Level, str, str]]:
        status = StatusSettings(**({"listen": "0.0.0.0:9101", "token_file": str(token)} | more))
        return [(each.level, each.what, each.remedy) for each in status_page(Settings(status=status), time.time())]

    token, certificate = tmp_path / "token", tmp_path / "page.pem"
    token.write_text("0123456789abcdef")
    token.chmod(0o640)
    usable = (Level.OK, "status.token_file", "")
    assert found() == [usable, (Level.WARNING, "status.token_file", "set status.tls_certificate")]
    assert found(listen="127.0.0.1:9101") == [usable]
    missing = (Level.FAILURE, str(certificate), "write it, or correct the setting that names it")
    assert found(tls_certificate=str(certificate)) == [missing, usable]
    authority = CertificateAuthority(tmp_path / "pki")
    for expired, level, what, remedy in (
        (True, Level.FAILURE, str(certificate), "write the renewed chain and key"),
        (False, Level.OK, "status.tls_certificate", ""),
    ):
        pair = authority.server(f"page-{expired}", expired=expired)
        certificate.write_text(pair.cert.read_text() + pair.key.read_text())
        certificate.chmod(0o640)
        assert (level, what, remedy) in found(tls_certificate=str(certificate))
    token.chmod(0o644)
    assert (Level.FAILURE, str(token), f"chmod o-rwx {token}") in found()
    assert found(listen="") == []


@pytest.mark.parametrize(
    ("shared", "vip", "presets", "warnings"),
    [
        ((), (), ("ingress",), 1),
        ((), ("192.0.2.16/28",), ("ingress",), 1),  # in the pool
        (("192.0.2.1",), (), ("ingress",), 0),
        ((), ("192.0.2.2/24",), ("ingress",), 0),
        ((), (), ("domains",), 0),
    ],
)
def test_ingresses_without_an_address_to_publish_are_a_warning(
    shared: tuple[str, ...], vip: tuple[str, ...], presets: tuple[str, ...], warnings: int
) -> None:
    settings = Settings(
        addresses=AddressSettings(pool=("192.0.2.16-192.0.2.31",), shared=shared),
        vip=VipSettings(addresses=vip),
        presets=PresetSettings(use=presets),
    )
    found = list(shared_addresses(settings))
    assert [each.level for each in found] == [Level.WARNING] * warnings


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
@pytest.mark.parametrize(("promotes", "level"), [("0", "failure"), ("1", "ok")])
def test_a_kernel_that_removes_the_own_address_with_the_floating_one(promotes: str, level: str) -> None:
    names = " ".join(f"net.ipv4.conf.{name}.promote_secondaries={promotes}" for name in ("all", "lo"))
    code = (
        "from pyconfd.cli.commands.preflight import floating_addresses; from pyconfd.settings.vip import VipSettings;"
        "vip = VipSettings(interface='lo', addresses=('192.0.2.10/24',));"
        "print(*(finding.level for finding in floating_addresses(vip)))"
    )
    argv = ["unshare", "-n", "sh", "-c", f'sysctl -qw {names} && exec "$0" -c "$1"', sys.executable, code]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split() == [level]


@pytest.mark.parametrize("vip", [VipSettings(), VipSettings(interface="lo", addresses=("2001:db8::10/64",))])
def test_without_a_floating_address_of_ipv4_the_kernel_is_not_asked(vip: VipSettings) -> None:
    assert not list(floating_addresses(vip))


OK = Finding.ok("haproxy", "/usr/sbin/haproxy", "version 2.6")
WARNING = Finding(Level.WARNING, "limits", "open files", "few", "raise LimitNOFILE")
FAILURE = Finding(Level.FAILURE, "permissions", "services", "may not watch", "add the verb watch")


@pytest.mark.parametrize(
    ("findings", "strict", "code"),
    [((OK,), False, 0), ((OK, WARNING), False, 0), ((OK, WARNING), True, 1), ((OK, FAILURE), False, 1)],
)
def test_the_exit_code_of_findings(
    findings: tuple[Finding, ...], strict: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_findings(findings, as_json=False, strict=strict) == code
    capsys.readouterr()
    assert print_findings(findings, as_json=True, strict=strict) == code
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is (code == 0)
    assert [each["level"] for each in told["findings"]] == [each.level.value for each in findings]


def test_each_finding_is_a_line_with_what_to_do_below(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings((OK, WARNING, FAILURE), as_json=False, strict=False)
    assert capsys.readouterr().out.splitlines() == [
        "ok       haproxy      /usr/sbin/haproxy: version 2.6",
        "warning  limits       open files: few",
        "                      -> raise LimitNOFILE",
        "failure  permissions  services: may not watch",
        "                      -> add the verb watch",
        "1 ok, 1 warning, 1 failure",
    ]
