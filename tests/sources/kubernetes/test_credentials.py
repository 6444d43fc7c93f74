import base64
import json
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import urllib3
import yaml

from pyconfd.errors import ConfigurationError
from pyconfd.model.snapshot import Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.credentials import RENEW_EVERY_S, Credentials
from pyconfd.sources.kubernetes.failures import ApiError, Failure
from pyconfd.sources.kubernetes.source import KubernetesSource, read_once
from tests.sources.kubernetes.clocks import PatientClock, ScaledClock, StandingClock
from tests.sources.kubernetes.conftest import ALL, Start, ended, eventually, synced
from tests.world.apiserver import ApiServer, tls_context
from tests.world.cluster import Cluster
from tests.world.pki import CertificateAuthority, KeyPair

NODES = [Resource.NODES]


def kubeconfig(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> str:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "main",
                "contexts": [
                    {"name": "main", "context": {"cluster": "c", "user": "u"}},
                    {"name": "lost", "context": {"cluster": "c", "user": "nobody"}},
                ],
                "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)


def jwt(claims: dict[str, Any]) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def credentials(settings: KubernetesSettings, tmp_path: Path, **environ: str) -> Credentials:
    return Credentials(
        settings,
        StandingClock(),
        environ={"HOME": str(tmp_path / "home"), **environ},
        service_account_dir=str(tmp_path / "account"),
        default_ca_file=str(tmp_path / "ca.pem"),
    )


# --- where they come from ---------------------------------------------------------------------------------------------


def test_no_settings_name_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kubernetes\.api_servers = .*kubernetes\.kubeconfig"):
        credentials(KubernetesSettings(), tmp_path)


def test_the_default_order(tmp_path: Path) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert credentials(KubernetesSettings(), tmp_path, **environ).urls == ("https://[fd00::1]:443",)
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    kubeconfig(tmp_path / "home" / ".kube" / "config", "https://home:6443/", {})
    assert credentials(KubernetesSettings(), tmp_path, **environ).urls == ("https://home:6443",)
    environ["KUBECONFIG"] = kubeconfig(tmp_path / "other", "https://other:6443", {})
    assert credentials(KubernetesSettings(), tmp_path, **environ).urls == ("https://other:6443",)
    given = KubernetesSettings(api_servers=("https://a:6443", "https://b:6443", "https://a:6443"))
    assert credentials(given, tmp_path, **environ).urls == ("https://a:6443", "https://b:6443")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kubeconfig": "/absent/config"}, "there is no such file"),
        ({"kubeconfig": "X", "context": "absent"}, "absent"),
        ({"in_cluster": True}, "KUBERNETES_SERVICE_HOST"),
    ],
)
def test_contradictions_are_errors_of_the_configuration(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://a:6443", {})
    if settings.get("kubeconfig") == "X":
        settings = {**settings, "kubeconfig": path}
    with pytest.raises(ConfigurationError) as caught:
        credentials(KubernetesSettings(**settings), tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "a: b", "- [", "kind: Config", "", "clusters: 7\ncontexts: 8", "\x00"])
def test_a_file_that_is_no_kubeconfig(text: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        credentials(KubernetesSettings(kubeconfig=str(tmp_path / "config")), tmp_path)


def test_servers_of_the_settings_win_over_the_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://a", {"token": "abc"}, **{"tls-server-name": "a.test"})
    made = credentials(KubernetesSettings(kubeconfig=path, api_servers=("https://b", "https://c")), tmp_path)
    assert made.urls == ("https://b", "https://c")
    pool = made.pool_manager("https://b")
    assert made.authorization() == "Bearer abc"
    assert not pool.connection_pool_kw.get("server_hostname")


# --- proxies ----------------------------------------------------------------------------------------------------------


def _proxy(settings: KubernetesSettings, url: str, tmp_path: Path) -> str:
    pool = credentials(settings, tmp_path).pool_manager(url)
    return str(pool.proxy) if isinstance(pool, urllib3.ProxyManager) else ""


def test_proxies_of_the_environment_only_where_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    url = "https://192.0.2.1"
    assert not _proxy(KubernetesSettings(api_servers=(url,)), url, tmp_path)
    assert _proxy(KubernetesSettings(api_servers=(url,), ignore_proxy_env=False), url, tmp_path) == "http://proxy:3128"
    near = "https://10.1.2.3"
    assert not _proxy(KubernetesSettings(api_servers=(near,), ignore_proxy_env=False), near, tmp_path)
    path = kubeconfig(tmp_path / "config", url, {}, **{"proxy-url": "http://named:1"})
    assert _proxy(KubernetesSettings(kubeconfig=path), url, tmp_path) == "http://named:1"


# --- TLS and tokens against a server ----------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "pki")


def copied(pair: KeyPair, folder: Path) -> KeyPair:
    made = KeyPair(folder / "client.crt", folder / "client.key")
    shutil.copy(pair.cert, made.cert)
    shutil.copy(pair.key, made.key)
    return made


def test_client_certificates(cluster: Cluster, authority: CertificateAuthority, tmp_path: Path, start: Start) -> None:
    pair = copied(authority.client(), tmp_path)
    with ApiServer(cluster, tls=tls_context(authority.server(), authority.cert)) as server:
        without = start(server.url, resources=NODES, ssl_ca=str(authority.cert))
        eventually(without.problems)
        assert without.snapshot() is None
        ended(without)
        source = start(
            server.url, resources=NODES, ssl_ca=str(authority.cert), ssl_cert=str(pair.cert), ssl_key=str(pair.key)
        )
        synced(source)
        states = {state.name: state.expires_at for state in source.health().credentials}
        now = ScaledClock().now()
        assert 360 < (states[f"client certificate {pair.cert}"] - now) / 86400 < 366
        assert 3600 < (states[f"CA certificate {authority.cert}"] - now) / 86400 < 3651
        ended(source)


def test_a_client_certificate_that_changes_is_used_without_a_restart(
    cluster: Cluster, authority: CertificateAuthority, tmp_path: Path, start: Start
) -> None:
    pair = copied(authority.client("first"), tmp_path)
    with ApiServer(cluster, tls=tls_context(authority.server(), authority.cert)) as server:
        source = start(
            server.url, resources=NODES, ssl_ca=str(authority.cert), ssl_cert=str(pair.cert), ssl_key=str(pair.key)
        )
        synced(source)
        server.wait_for_watches("nodes")
        assert server.requests[-1].client_cn == "first"
        lists = len(server.seen("nodes", "list"))
        second = authority.client("second")
        shutil.copy(second.cert, pair.cert)
        eventually(lambda: any("together" in state.problem for state in source.health().credentials))
        assert source.snapshot() is not None, "half a rotation leaves the former credentials in use"
        shutil.copy(second.key, pair.key)
        eventually(lambda: server.requests[-1].client_cn == "second")
        server.wait_for_watches("nodes")
        assert len(server.seen("nodes", "list")) == lists, "the watch goes on from where it was"
        assert not any(state.problem for state in source.health().credentials)
        ended(source)


def test_a_token_file_is_read_again_and_remembered(
    cluster: Cluster, server: ApiServer, tmp_path: Path, start: Start
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    server.token = "one"
    source = start(server.url, resources=NODES, token_file=str(token))
    synced(source)
    server.wait_for_watches("nodes")
    server.token = "two"
    server.cut_connections()
    eventually(lambda: "HTTP 401" in str(source.health().resources[0].problem))
    assert "HTTP 401" in source.health().api_servers[0].last_error
    token.write_text(jwt({"exp": 2_000_000_000}))
    server.token = token.read_text()
    eventually(lambda: source.health().resources[0].problem == "")
    eventually(lambda: source.health().credentials[0].expires_at == 2_000_000_000)
    # One that vanishes leaves the former token in use.
    token.unlink()
    eventually(lambda: any(state.problem for state in source.health().credentials))
    server.cut_connections()
    cluster.add_node("node-2", "192.0.2.2")
    eventually(lambda: len(source.snapshot().nodes) == 2)  # type: ignore[union-attr]


def test_a_revoked_token_is_a_problem_though_the_watches_go_on(server: ApiServer, tmp_path: Path, start: Start) -> None:
    """An API server looks at a token when a watch is opened, and never again."""
    token = tmp_path / "token"
    token.write_text("one")
    server.token = "one"
    source = start(server.url, resources=NODES, token_file=str(token), failback_s=4)
    synced(source)
    server.wait_for_watches("nodes")
    assert source.health().problems == ()
    server.token = "two"
    eventually(lambda: source.health().problems)
    problem = source.health().problems[0]
    assert problem.place == f"token {token}"
    assert f"not accepted by {server.url} (HTTP 401: Unauthorized)" in problem.message
    assert "kubectl -n pyconfd get secret pyconfd-token -o jsonpath={.data.token} | base64 -d" in problem.remedy
    assert [each.name for each in source.health().credentials if each.problem] == [problem.place]
    token.write_text("two")
    eventually(lambda: not source.health().problems)


def test_after_a_repaired_token_all_resources_are_confirmed_at_once(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses between failures are up to half a minute long; here they last until somebody wakes a reflector."""
    monkeypatch.setattr("pyconfd.sources.kubernetes.source.TEND_EVERY_S", 0.05)
    token = tmp_path / "token"
    token.write_text("one")
    server.token = "one"
    clock = PatientClock("nobody")
    settings = KubernetesSettings(api_servers=(server.url,), token_file=str(token))
    source = KubernetesSource(settings, ALL, clock=clock)
    source.start(lambda: None)
    synced(source)
    server.wait_for_watches("nodes", "services")
    server.token = "two"
    source.relist()
    eventually(lambda: len(clock.waiting) == len(ALL))
    assert {each.problem_kind for each in source._reflectors} == {Failure.UNAUTHORIZED}
    token.write_text("two")
    eventually(lambda: not any(each.problem_kind for each in source._reflectors))
    assert source.health().problems == ()
    ended(source)


def test_what_has_expired_is_a_problem_with_its_file(authority: CertificateAuthority, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(jwt({"exp": 2_000_000_000}))
    clock = StandingClock(epoch_s=2_000_000_000 - 1)
    settings = KubernetesSettings(api_servers=("http://192.0.2.1",), token_file=str(token))
    made = Credentials(settings, clock, environ={}, default_ca_file="")
    made.pool_manager("http://192.0.2.1")
    assert made.problems() == ()
    clock.now_s += 1
    (problem,) = made.problems()
    assert (problem.place, problem.message) == (f"token {token}", "expired at 2033-05-18 03:33:20 UTC")
    assert "base64 -d" in problem.remedy
    made.refused("http://192.0.2.1", "HTTP 401: Unauthorized")
    (problem,) = made.problems()
    assert "not accepted" in problem.message
    made.accepted("http://192.0.2.2")
    assert made.problems() == (problem,)
    made.accepted("http://192.0.2.1")
    assert "expired" in made.problems()[0].message


@pytest.mark.parametrize("content", [None, "", "two words", "line\nbreak", "ümlaut"])
def test_a_bad_token_file_is_a_clear_problem_that_heals(
    content: str | None, server: ApiServer, tmp_path: Path, start: Start
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    source = start(server.url, resources=NODES, token_file=str(token))
    eventually(source.problems)
    assert str(token) in str(source.problems())
    assert "ümlaut" not in str(source.problems())
    assert server.requests == []
    token.write_text("good")
    synced(source)


def test_missing_and_mismatched_files_are_transient(authority: CertificateAuthority, tmp_path: Path) -> None:
    one, other = authority.client("one"), authority.client("other")
    url = "https://192.0.2.1"
    for cert, key, ca, words in (
        (str(tmp_path / "absent"), str(one.key), "", "absent: cannot be read: No such file"),
        (str(one.cert), str(other.key), "", "cannot be used together"),
        (str(one.key), str(one.key), "", "cannot be used together"),
        (str(one.cert), str(one.key), str(one.key), "one.key"),
        (str(one.cert), str(one.key), str(tmp_path), "Is a directory; name the file in it"),
    ):
        settings = KubernetesSettings(api_servers=(url,), ssl_cert=cert, ssl_key=key, ssl_ca=ca)
        made = credentials(settings, tmp_path)
        with pytest.raises(ApiError) as caught:
            made.pool_manager(url)
        assert caught.value.kind is Failure.CREDENTIALS
        assert words in str(caught.value)
        assert words in made.states()[-1].problem


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
def test_a_file_that_may_not_be_read_comes_with_the_command_that_lets_it_be() -> None:
    url = "http://192.0.2.1"
    # Root's on every machine. tmp_path is of no use: nobody may not even look into it.
    made = credentials(KubernetesSettings(api_servers=(url,), token_file="/etc/shadow"), Path("/nonexistent"))
    os.seteuid(65534)
    try:
        with pytest.raises(ApiError, match=r"as root: chgrp root /etc/shadow && chmod 0640 /etc/shadow"):
            made.pool_manager(url)
    finally:
        os.seteuid(0)


def test_no_verification_is_said_once(cluster: Cluster, authority: CertificateAuthority, tmp_path: Path) -> None:
    with (
        ApiServer(cluster, tls=tls_context(authority.server())) as server,
        structlog.testing.capture_logs() as logs,
    ):
        settings = KubernetesSettings(api_servers=(server.url,), ssl_ca=False)
        assert read_once(settings, NODES, 20)[0].nodes
    assert [entry["event"] for entry in logs].count("api_server.verification_disabled") == 1


def test_the_default_ca_file_is_used_where_it_exists(authority: CertificateAuthority, tmp_path: Path) -> None:
    settings = KubernetesSettings(api_servers=("https://a",))
    made = credentials(settings, tmp_path)
    made.pool_manager("https://a")
    assert made.states() == ()
    shutil.copy(authority.cert, tmp_path / "ca.pem")
    assert made.refresh()
    assert [state.name for state in made.states()] == [f"CA certificate {tmp_path / 'ca.pem'}"]
    assert not made.refresh()


# --- kubeconfig and in-cluster ----------------------------------------------------------------------------------------


def test_a_kubeconfig_with_inline_certificates(
    cluster: Cluster, authority: CertificateAuthority, tmp_path: Path
) -> None:
    pair = authority.client("inline")

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    with ApiServer(cluster, tls=tls_context(authority.server(), authority.cert)) as server:
        user = {"client-certificate-data": data(pair.cert), "client-key-data": data(pair.key)}
        path = kubeconfig(tmp_path / "config", server.url, user, **{"certificate-authority-data": data(authority.cert)})
        assert read_once(KubernetesSettings(kubeconfig=path), NODES, 20)[0].nodes
        assert server.requests[-1].client_cn == "inline"


def test_a_kubeconfigs_token_file_that_changes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    path = kubeconfig(tmp_path / "config", "http://a", {"tokenFile": "token"})
    made = credentials(KubernetesSettings(kubeconfig=path), tmp_path)
    made.pool_manager("http://a")
    assert made.authorization() == "Bearer one"
    (tmp_path / "token").write_text("two")
    made.refresh()
    assert made.authorization() == "Bearer two"


def test_in_cluster(tmp_path: Path, authority: CertificateAuthority) -> None:
    account = tmp_path / "account"
    account.mkdir()
    token = jwt({"exp": 1_900_000_000, "iat": 1_899_996_400})
    (account / "token").write_text(token)
    shutil.copy(authority.cert, account / "ca.crt")
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    made = credentials(KubernetesSettings(in_cluster=True), tmp_path, **environ)
    made.pool_manager(made.urls[0])
    assert made.authorization() == f"Bearer {token}"
    (state,) = [state for state in made.states() if state.name == "token"]
    assert (state.expires_at, state.issued_at) == (1_900_000_000, 1_899_996_400)
    (account / "token").write_text("rotated")
    made.refresh()
    assert made.authorization() == "Bearer rotated"


# --- plugins ----------------------------------------------------------------------------------------------------------


PLUGIN = """
import json, pathlib, sys
counter = pathlib.Path(sys.argv[1])
count = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(count))
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": f"token-{count}"} if count < 9 else {}}))
"""


def test_an_exec_plugin_is_run_again_after_a_401(cluster: Cluster, tmp_path: Path, start: Start) -> None:
    (tmp_path / "plugin.py").write_text(textwrap.dedent(PLUGIN))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "plugin.py"), str(tmp_path / "count")],
    }
    with ApiServer(cluster, token="token-2") as server:
        source = start(kubeconfig=kubeconfig(tmp_path / "config", server.url, {"exec": plugin}), resources=NODES)
        synced(source)
        tokens = [request.headers["authorization"] for request in server.seen("nodes", "list")]
        assert (tokens[0], tokens[-1]) == ("Bearer token-1", "Bearer token-2")
        ended(source)


def test_an_exec_plugin_that_fails_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}
    path = kubeconfig(tmp_path / "config", "http://a", {"exec": plugin})
    made = credentials(KubernetesSettings(kubeconfig=path), tmp_path)
    with pytest.raises(ApiError, match="the plugin /bin/false gave no credentials"):
        made.pool_manager("http://a")
    assert "process returned 1" in caplog.text


def test_an_exec_plugin_that_fails_is_not_run_with_each_try(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho >>{runs}\nexit 1\n")
    plugin.chmod(0o755)
    exec_section = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    clock = StandingClock()
    path = kubeconfig(tmp_path / "config", "http://a", {"exec": exec_section})
    made = Credentials(KubernetesSettings(kubeconfig=path), clock, environ={})
    counts = []
    for seconds in (0, 0, 5, 5, 5, 5, RENEW_EVERY_S):
        clock.now_s += seconds
        with pytest.raises(ApiError, match="gave no credentials"):
            made.pool_manager("http://a")
        counts.append(len(runs.read_text().splitlines()))
    # At once a second time, and then as seldom as after a 401.
    assert counts == [1, 2, 2, 2, 2, 2, 3]
