"""``pyconfd preflight`` in a good world and in bad ones: each line, and what it says to do."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import of, preflight, serving
from tests.world.apiserver import tls_context
from tests.world.appliance import Appliance
from tests.world.backends import Backends
from tests.world.faults import Fault, FaultKind
from tests.world.haproxy import free_port
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy


def test_a_good_world_before_anything_was_started_and_beside_what_runs(appliance: Appliance) -> None:
    appliance.values["addresses"] = {"shared": ["192.0.2.10"]}
    appliance.serve("shop")
    before = sorted(appliance.folder.rglob("*"))
    findings = preflight(appliance)
    assert [finding["what"] for finding in of(findings, "warning")] == ["process"], findings
    assert {finding["topic"] for finding in of(findings, "ok")} == {
        "binds",
        "clock",
        "directories",
        "fragments",
        "haproxy",
        "kubernetes",
        "permissions",
        "pyconfd",
        "reload",
    }
    left = {path for path in appliance.folder.rglob("*") if path not in before}
    assert left <= {appliance.config, *appliance.folder.glob("backends*")}
    assert preflight(appliance, "--strict", code=1)
    text = appliance.command("preflight").stdout
    assert "does not run yet" in text
    assert "-> start it with" in text
    assert text.splitlines()[-1].endswith("1 warning, 0 failures")

    appliance.start()
    appliance.until(appliance.settled, "all is applied")
    generation, running = appliance.generation, appliance.haproxy.running()
    findings = preflight(appliance, "--strict")
    assert {finding["level"] for finding in findings} == {"ok"}
    assert any("this was looked at beside it" in finding["message"] for finding in findings)
    assert any("are applied without a reload" in finding["message"] for finding in findings)
    assert (appliance.generation, appliance.haproxy.running()) == (generation, running)


def missing_binary(world: Appliance) -> None:
    world.values["haproxy"]["binary"] = "/nonexistent/haproxy"


def no_directory(world: Appliance) -> None:
    world.values["haproxy"]["conf"] = f"{world.folder}/nowhere/haproxy.cfg"


def file_in_the_way(world: Appliance) -> None:
    (world.folder / "state").write_text("")


def refused_by_haproxy(world: Appliance) -> None:
    (world.own_fragments() / "50-mine.conf").write_text("frontend mine\n    nonsense here\n")


def refused_only_with_objects(world: Appliance) -> None:
    text = "{% for domain in domains %}\nbackend mine\n    nonsense {{ domain }}\n{% endfor %}\n"
    (world.own_fragments() / "50-mine.tmpl").write_text(text)


def api_server_away(world: Appliance) -> None:
    world.add_api_server().refuse()


def api_server_says_no(world: Appliance) -> None:
    world.servers[0].token = "another"


def may_not_list(world: Appliance) -> None:
    world.servers[0].faults.add(Fault(FaultKind.STATUS, "endpointslices", "list", code=403))


def may_not_watch(world: Appliance) -> None:
    world.servers[0].faults.add(Fault(FaultKind.STATUS, "nodes", "watch", code=403))


def no_api_server(world: Appliance) -> None:
    world.values["kubernetes"]["api_servers"] = []
    world.values["kubernetes"]["kubeconfig"] = f"{world.folder}/nowhere"


def expired_certificate(world: Appliance) -> None:
    pair = CertificateAuthority(world.folder / "pki").server(expired=True)
    both = world.folder / "both.pem"
    both.write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
    text = f"frontend mine\n    mode http\n    bind 127.0.0.1:{free_port()} ssl crt {both}\n"
    (world.own_fragments() / "50-mine.conf").write_text(text)


def socket_without_directory(world: Appliance) -> None:
    world.values["templates.vars"]["runtime_socket"] = f"{world.folder}/nowhere/socket"


@pytest.mark.parametrize(
    ("spoil", "topic", "words", "remedy"),
    [
        (missing_binary, "haproxy", "/nonexistent/haproxy", "install"),
        (no_directory, "directories", "does not exist", "install -d"),
        (file_in_the_way, "directories", "state is no directory", "state_dir"),
        (refused_by_haproxy, "fragments", "nonsense", ""),
        (refused_only_with_objects, "objects", "nonsense", "or the fragment"),
        (api_server_away, "kubernetes", "cannot connect", "is the API server up"),
        (api_server_says_no, "permissions", "401", "client certificate or the token"),
        (may_not_list, "permissions", "may not list endpointslices", "add the verb list"),
        (may_not_watch, "permissions", "may not watch nodes", "add the verb watch"),
        (no_api_server, "kubernetes", "nowhere", ""),
        (expired_certificate, "certificates", "expired", "renew"),
        (socket_without_directory, "haproxy", "nowhere/socket", "create it"),
    ],
)
def test_each_thing_that_can_be_wrong_is_a_failure_with_its_remedy(
    appliance: Appliance, spoil: Callable[[Appliance], None], topic: str, words: str, remedy: str
) -> None:
    appliance.serve("shop")
    spoil(appliance)
    failures = [each for each in of(preflight(appliance, code=1), "failure") if each["topic"] == topic]
    told = [each for each in failures if words in f"{each['what']} {each['message']}"]
    assert told, failures
    assert remedy in told[0]["remedy"]


def test_an_api_server_that_hangs_ends_the_look_all_the_same(appliance: Appliance) -> None:
    hanging = appliance.add_api_server()
    hanging.faults.add(Fault(FaultKind.HANG))
    appliance.values["kubernetes"]["read_timeout_s"] = 1
    failures = of(preflight(appliance, code=1), "failure")
    assert [(each["what"], "no answer" in each["message"]) for each in failures] == [(hanging.url, True)]


def test_credentials_and_their_end(appliance: Appliance, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    server = appliance.add_api_server(tls=tls_context(authority.server(), authority.cert))
    own = appliance.values["kubernetes"]
    own["api_servers"] = [server.url]
    own["ssl_ca"] = str(authority.cert)
    for expired in (False, True):
        pair = authority.client(expired=expired)
        own |= {"ssl_cert": str(pair.cert), "ssl_key": str(pair.key)}
        findings = preflight(appliance, code=1 if expired else 0)
        told = [each for each in findings if each["topic"] == "credentials" and str(pair.cert) in str(each)]
        assert told, findings
        assert any("expired" in each["message"] for each in told) is expired
        assert any("is good for" in each["message"] for each in told) is not expired


def test_warnings(appliance: Appliance) -> None:
    with Backends(appliance.page) as other:
        other.add("somebody", "127.0.0.1")
        appliance.serve("odd", {"domain": "no name", "proto": "http"})
        warnings = {(each["topic"], each["what"]): each for each in of(preflight(appliance), "warning")}
    assert ("objects", "the cluster as it is") in warnings
    assert "explain --all-refused" in warnings["objects", "the cluster as it is"]["remedy"]
    assert any(topic == "pyconfd" for topic, _ in warnings), warnings


def test_fragments_that_bind_nothing_by_themselves(appliance: Appliance) -> None:
    directory = appliance.folder / "own"
    directory.mkdir()
    (directory / "10.conf").write_text("defaults\n    mode http\n    timeout client 1s\n    timeout connect 1s\n")
    appliance.values["templates"]["dir"] = str(directory)
    findings = preflight(appliance, code=1)  # the cluster as it is gives no listener either
    assert any("nothing binds" in each["message"] for each in of(findings, "warning")), findings


def test_a_haproxy_that_cannot_be_asked_or_reloaded(appliance: Appliance) -> None:
    serving(appliance)
    appliance.stop()
    nowhere = f"{appliance.folder}/nowhere"
    appliance.values["haproxy"] |= {"master_socket": nowhere, "pid_file": nowhere, "reload_method": "auto"}
    appliance.values["haproxy"]["runtime_socket"] = nowhere
    found: list[dict[str, Any]] = []
    found += of(preflight(appliance, code=1), "failure")
    assert any(each["topic"] == "reload" and "no way to reload it" in each["message"] for each in found), found


def binds(appliance: Appliance, code: int = 0) -> list[tuple[str, str]]:
    findings = preflight(appliance, code=code)
    return [(each["level"], each["what"] + each["message"]) for each in findings if each["topic"] == "binds"]


def test_a_port_of_another_program_is_a_failure_and_haproxys_own_are_not(appliance: Appliance) -> None:
    fragments = appliance.own_fragments()
    serving(appliance)
    assert [level for level, _ in binds(appliance)] == ["ok"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (fragments / "09-mine.conf").write_text(f"frontend mine\n  bind 127.0.0.1:{port}\n")
        ((level, text),) = binds(appliance, code=1)
    assert level == "failure"
    assert text.startswith("09-mine.conf line 2")
    assert f"port {port} is taken" in text
