"""API servers that fail: what serves goes on, one message, and they are used again when well.

The other ways to fail: class 4 in test_failure_classes.py, and tests/sources/kubernetes/test_failover.py.
"""

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.e2e.expect import (
    WATCHED,
    beats,
    complaints,
    serving,
    undisturbed,
)
from tests.world.apiserver import ApiServer, tls_context
from tests.world.appliance import Appliance
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy

TOLD = {"api_server.failed", "api_server.recovered"}
WRITES_NOTHING = {"cluster_status": {"enabled": False}, "events": {"enabled": False}}
"""Settings with which nothing is written to API servers: who writes asks them by himself, and says what fails."""


def _away(server: ApiServer) -> Callable[[], None]:
    server.refuse()
    return server.listen


def _hanging(server: ApiServer) -> Callable[[], None]:
    server.faults.hang()
    server.cut_connections()
    return server.faults.clear


@pytest.mark.parametrize(
    ("strike", "word"),
    [
        pytest.param(_away, "cannot connect", id="away"),
        pytest.param(_hanging, "no answer within the time limit", id="hanging"),
    ],
)
def test_an_api_server_that_fails_changes_nothing_and_is_used_again_when_it_is_well(
    appliance: Appliance, strike: Callable[[ApiServer], Callable[[], None]], word: str
) -> None:
    appliance.values |= WRITES_NOTHING
    appliance.values["kubernetes"] |= {"read_timeout_s": 1, "connect_timeout_s": 1}
    serving(appliance)
    (server,) = appliance.servers
    before = appliance.haproxy.running()
    with undisturbed(appliance):
        cure = strike(server)
        appliance.until(lambda: _trouble(appliance), "the trouble is shown")
        asked = len(server.seen())
        pod = appliance.scale_up("shop")
        beats(appliance, 1.0)
        if strike is not _away:
            appliance.until(lambda: len(server.seen()) > asked, "it is tried again")
        # A watch that was just being opened may have come through in between, or broken in a way of its own.
        appliance.until(
            lambda: word in _trouble(appliance) and word in complaints(appliance)[-1]["error"], "it is said"
        )
        assert all("->" in said["error"] for said in complaints(appliance)), "it says what to do"
        told = [line.get("kind", "") for line in appliance.events() if line["event"] in TOLD]
        assert all(former != later for former, later in pairwise(told)), f"each once: {told}"
        shown = appliance.command("status").stdout
        assert word in shown
        assert "down" in shown
        assert appliance.haproxy.running() == before
        cure()
        appliance.until(lambda: appliance.ask("shop") == pod, "what changed meanwhile is applied")
    appliance.until(lambda: not _trouble(appliance), "the trouble is over")
    assert appliance.command("status").returncode == 0


def _trouble(appliance: Appliance) -> str:
    source = appliance.status()["source"]
    return "".join([server["last_error"] for server in source["api_servers"]]) or "".join(
        [resource["problem"] for resource in source["resources"]]
    )


def test_an_account_without_rights_is_told_for_each_resource_and_what_serves_stays(appliance: Appliance) -> None:
    appliance.values |= WRITES_NOTHING
    appliance.values["kubernetes"] |= {"interval_s": 0.5}
    serving(appliance)
    (server,) = appliance.servers
    read = len(appliance.status()["source"]["resources"])
    with undisturbed(appliance):
        server.faults.answer(403)
        server.cut_connections()
        appliance.until(lambda: len(complaints(appliance, "resource.failed")) == read, "all are denied")
        pod = appliance.scale_up("shop")
        beats(appliance, 1.0)
        said = complaints(appliance, "resource.failed")
        assert len(said) == read
        assert all("pyconfd rbac prints the manifest" in line["error"] for line in said)
        # The watch is denied first; that message is longer, and cut.
        appliance.until(lambda: _trouble(appliance).count("cannot list") == read, "the lists are denied too")
        shown = appliance.command("status").stdout
        assert shown.count("HTTP 403") > 4
        assert shown.count("pyconfd rbac prints the manifest") == 1
        server.faults.clear()
        appliance.until(lambda: appliance.ask("shop") == pod, "what changed meanwhile is applied")
    appliance.until(lambda: appliance.command("status").returncode == 0, "all is well again")


def test_a_revoked_token_is_the_first_problem_until_it_is_replaced(appliance: Appliance) -> None:
    token, (server,) = appliance.folder / "token", appliance.servers
    token.write_text("one", encoding="utf-8")
    server.token = "one"
    appliance.values["kubernetes"] |= {"token_file": str(token), "failback_s": 2.0}
    serving(appliance)
    metric = f'pyconfd_credential_problem{{credential="token {token}"}}'
    assert f"{metric} 0.0" in appliance.get("/metrics")[1]
    with undisturbed(appliance):
        server.token = "two"
        appliance.until(lambda: appliance.status()["problems"], "a request is refused")
        found = appliance.command("status")
        problems = found.stdout.partition("Problems")[2].splitlines()
        assert problems[1].strip().startswith(f"! token {token}: not accepted by {server.url} (HTTP 401: Unauthorized)")
        assert "kubectl -n pyconfd get secret pyconfd-token" in problems[2]
        assert found.returncode == 1
        assert f"{metric} 1.0" in appliance.get("/metrics")[1]
        token.write_text("two", encoding="utf-8")
        appliance.until(lambda: appliance.command("status").returncode == 0, "the new token is in use")
    assert f"{metric} 0.0" in appliance.get("/metrics")[1]


def test_a_certificate_of_another_authority_is_never_believed(appliance: Appliance) -> None:
    right, wrong = (CertificateAuthority(appliance.folder / name, name) for name in ("right", "wrong"))
    (server,) = appliance.servers
    good, bad = tls_context(right.server()), tls_context(wrong.server())
    server.tls = good
    appliance.values |= WRITES_NOTHING
    appliance.values["kubernetes"] |= {"api_servers": [server.url], "ssl_ca": str(right.cert)}
    serving(appliance)
    server.wait_for_watches(*WATCHED)  # one that began later would break in a way of its own
    with undisturbed(appliance):
        server.tls = bad
        server.cut_connections()
        appliance.until(lambda: _trouble(appliance), "the trouble is shown")
        asked = len(server.seen())
        pod = appliance.scale_up("shop")
        beats(appliance)
        (said,) = complaints(appliance)
        assert "does kubernetes.ssl_ca hold the CA" in said["error"]
        assert "does kubernetes.ssl_ca hold the CA" in appliance.command("status").stdout
        assert len(server.seen()) == asked, "no request, and no credentials, went to the stranger"
        server.tls = good
        appliance.until(lambda: appliance.ask("shop") == pod, "what changed meanwhile is applied")
