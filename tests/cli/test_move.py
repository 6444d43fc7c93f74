"""``pyconfd move`` over Ingresses that were written for ingress-nginx."""

import http.client
import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from pyconfd.cli.exits import Exit
from tests.cli.invoking import invoke
from tests.cli.trying import Trying
from tests.world.pki import CertificateAuthority

PREFIX = "nginx.ingress.kubernetes.io/"
EXAMPLE = Path(__file__).parents[2] / "docs" / "migrating" / "ingress-nginx.yaml"


def ingress(
    name: str, *, class_name: str = "nginx", host: str = "a.example.com", **annotations: str
) -> dict[str, object]:
    named = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()}
    backend = {"service": {"name": "app", "port": {"number": 80}}}
    paths = [{"path": f"/{name}", "pathType": "Prefix", "backend": backend}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": "shop", "annotations": named},
        "spec": {"ingressClassName": class_name, "rules": [{"host": host, "http": {"paths": paths}}]},
    }


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "app", "namespace": "shop"},
    "spec": {"ports": [{"port": 80}]},
}


def moved(tmp_path: Path, *ingresses: dict[str, object], **environ: str) -> tuple[int, str]:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump_all([SERVICE, *ingresses]))
    done = invoke("move", "--snapshot", str(path), **environ)
    return done.exit_code, done.output


def test_each_ingress_has_a_verdict(tmp_path: Path) -> None:
    code, text = moved(
        tmp_path,
        ingress("plain", proxy_body_size="8m"),
        ingress("buffers", proxy_buffering="off"),
        ingress("headers", configuration_snippet='more_set_headers "X-Frame-Options: DENY";'),
        ingress("snippet", configuration_snippet="deny 192.0.2.0/24;\x1b[31m"),
        ingress("other", class_name="haproxy"),
    )
    assert code == Exit.OK
    verdicts = {line.split("/")[1]: line.split()[0] for line in text.splitlines() if "shop/" in line[:20]}
    assert verdicts == {"plain": "same", "buffers": "different", "headers": "same", "snippet": "refused"}
    assert "deny-networks" in text
    assert "\x1b" not in text
    assert text.splitlines()[-1] == "4 Ingresses: 2 same, 1 different, 1 refused; 0 open that were closed"
    assert "their class is not nginx: 1 of class haproxy;" in text


def test_what_is_not_looked_at_is_said(tmp_path: Path) -> None:
    assert moved(tmp_path, ingress("web"))[1].splitlines()[0].split() == ["same", "shop/web"]
    assert "there is no Ingress in it: kubectl get ingresses," in moved(tmp_path)[1]
    without, classless = ingress("web"), ingress("old", class_name="")
    del classless["spec"]["ingressClassName"]  # type: ignore[attr-defined]
    many = [ingress(f"x{number}", class_name=f"c{number:02}\x1b[31m") for number in range(12)]
    code, text = moved(tmp_path, without, classless, *many)
    assert (code, "1 without a class, 1 of class c00" in text, ", and 3 more classes" in text) == (Exit.OK, True, True)
    assert "\x1b" not in text


def test_a_certificate_counts_only_where_the_file_has_secrets(tmp_path: Path) -> None:
    web = ingress("web")
    web["spec"]["tls"] = [{"hosts": ["a.example.com"], "secretName": "web-tls"}]  # type: ignore[index]
    text = moved(tmp_path, web)[1]
    assert ("certificates were not looked at" in text, "same       shop/web" in text) == (True, True)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "shop"}}
    text = moved(tmp_path, web, {**secret, "type": "kubernetes.io/tls", "data": {}})[1]
    assert ("not looked at" in text, "there is no Secret shop/web-tls" in text) == (False, True)


def test_json_has_each_ingress(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump_all([SERVICE, ingress("web"), ingress("other", class_name="haproxy")]))
    found = json.loads(invoke("move", "--json", "--snapshot", str(path)).stdout)
    assert found["ingresses"] == [{"ingress": "shop/web", "verdict": "same", "notes": [], "opened": []}]
    assert (found["opened"], len(found["notes"])) == (0, 1)


@pytest.mark.parametrize("name", ["auth_tls_secret", "server_snippet"])
def test_what_closed_all_of_a_host_is_told(tmp_path: Path, name: str) -> None:
    code, text = moved(tmp_path, ingress("closed", **{name: "shop/ca"}), ingress("beside"))
    assert code == Exit.CHANGES
    assert "OPEN THAT WAS CLOSED: host a.example.com" in text
    assert "of Ingress shop/closed was for all of the host" in text


def test_a_restriction_with_a_word_is_the_same(tmp_path: Path) -> None:
    code, text = moved(tmp_path, ingress("web", whitelist_source_range="192.0.2.0/24"))
    assert (code, text.split()[0]) == (Exit.OK, "same")


def test_an_accepted_restriction_is_told(tmp_path: Path) -> None:
    accepted = f"{PREFIX}modsecurity-snippet"
    code, text = moved(
        tmp_path, ingress("web", modsecurity_snippet="SecRuleEngine On"), PYCONFD_INGRESS_IGNORED_ANNOTATIONS=accepted
    )
    assert (code, "OPEN THAT WAS CLOSED" in text) == (Exit.CHANGES, True)


def test_objects_are_written_beside_the_verdicts(tmp_path: Path) -> None:
    path, folder = tmp_path / "mine.yaml", tmp_path / "moved"
    captures = ingress("captures", rewrite_target="/x/$1")
    captures["spec"]["rules"][0]["http"]["paths"][0] |= {"path": "/a/(.*)", "pathType": "ImplementationSpecific"}  # type: ignore[index]
    closed = ingress("closed", server_snippet="deny all;", host="b.example.com")
    path.write_text(yaml.safe_dump_all([SERVICE, ingress("web"), captures, closed]))
    done = invoke("move", "--snapshot", str(path), "--write", str(folder))
    assert done.exit_code == Exit.OK, done.output
    assert sorted(str(each.relative_to(folder)) for each in folder.rglob("*.yaml")) == ["gateway.yaml", "shop/web.yaml"]
    assert "1 of 2 Ingresses are written" in done.output
    assert "shop/captures, as written: no objects for it" in done.output
    again = invoke("move", "--snapshot", str(path), "--write", str(folder))
    assert (again.exit_code, "name a folder that does not exist yet" in again.output) == (Exit.CONFIGURATION, True)


def test_what_asks_clients_for_certificates_is_not_written_without(tmp_path: Path) -> None:
    path, folder = tmp_path / "mine.yaml", tmp_path / "moved"
    authorities: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ca", "namespace": "shop"},
        "data": {"ca.crt": "none"},
    }
    secured = ingress("secured", auth_tls_secret="shop/ca")
    path.write_text(yaml.safe_dump_all([SERVICE, ingress("web", host="b.example.com"), secured, authorities]))
    done = invoke("move", "--snapshot", str(path), "--write", str(folder))
    assert "refused    shop/secured" in done.output
    assert "ca.crt holds no PEM certificates" in done.output
    assert sorted(str(each.relative_to(folder)) for each in folder.rglob("*.yaml")) == ["gateway.yaml", "shop/web.yaml"]
    authorities["data"] = {"ca.crt": CertificateAuthority(tmp_path / "ca").cert.read_text()}
    path.write_text(yaml.safe_dump_all([SERVICE, secured, authorities]))
    shutil.rmtree(folder)
    done = invoke("move", "--snapshot", str(path), "--write", str(folder))
    assert "shop/secured, as written: no objects for it: certificates of clients" in done.output


def test_a_folder_without_objects_is_no_snapshot(tmp_path: Path) -> None:
    done = invoke("move", "--snapshot", str(tmp_path))
    assert (done.exit_code, "there is no .yaml, .yml or .json file in" in done.output) == (Exit.USAGE, True)


def test_the_example_of_the_page_has_each_verdict() -> None:
    found = json.loads(invoke("move", "--json", "--snapshot", str(EXAMPLE)).stdout)["ingresses"]
    assert {each["ingress"].removeprefix("shop/"): each["verdict"] for each in found} == {
        "admin": "refused",
        "api": "same",
        "files": "different",
        "web": "same",
    }


def test_a_grant_of_another_namespace_counts(tmp_path: Path) -> None:
    asked: dict[str, object] = {**SERVICE, "metadata": {"name": "auth", "namespace": "other"}}
    grant: dict[str, object] = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "auth", "namespace": "other"},
        "spec": {
            "from": [{"group": "networking.k8s.io", "kind": "Ingress", "namespace": "shop"}],
            "to": [{"group": "", "kind": "Service", "name": "auth"}],
        },
    }
    asking = ingress("web", auth_url="http://auth.other.svc.cluster.local/check")
    text = moved(tmp_path, asking, asked)[1]
    assert f"annotation {PREFIX}auth-url other/auth:80: no ReferenceGrant of the namespace other" in text
    assert "same       shop/web" in moved(tmp_path, asking, asked, grant)[1]


def test_a_variable_of_a_snippet_is_named(tmp_path: Path) -> None:
    text = moved(tmp_path, ingress("web", configuration_snippet="proxy_set_header X-Host $host;"))[1]
    assert "it is a snippet, of which nothing is executed" in text
    assert "pyconfd.io/request-headers, of fixed values: there are no variables ($)" in text


@pytest.mark.haproxy
def test_what_is_written_is_served_on_loopback(tmp_path: Path) -> None:
    path, folder = tmp_path / "mine.yaml", tmp_path / "moved"
    slices = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "app-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "app"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"]}],
        "ports": [{"port": 8080}],
    }
    path.write_text(yaml.safe_dump_all([SERVICE, slices, ingress("web", proxy_body_size="1k")]))
    assert invoke("move", "--snapshot", str(path), "--write", str(folder)).exit_code == Exit.OK
    with Trying(tmp_path, "--addresses-pool", "192.0.2.1", "--snapshot", str(path), "--snapshot", str(folder)) as trial:
        found = re.search(r"127\.0\.0\.1:(\d+)", trial.until("note: 192.0.2.1:80 is"))
        assert found is not None

        def asked(path: str, length: int = 0) -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)) as connection:
                connection.request("POST", path, b"x" * length, {"Host": "a.example.com"})
                return connection.getresponse().status

        assert [asked("/web"), asked("/else"), asked("/web", 1025)] == [200, 404, 413]


def test_restrictions_of_a_canary_are_its_main_ingresss(tmp_path: Path) -> None:
    main, canary = ingress("app"), ingress("zz", canary="true", server_snippet="deny all;")
    canary["spec"] = main["spec"]
    code, text = moved(tmp_path, main, canary)
    assert code == Exit.OK, text
    assert "server-snippet probably" not in text
    plain = {**canary, "metadata": ingress("zz", server_snippet="deny all;")["metadata"]}
    assert moved(tmp_path, main, plain)[0] == Exit.CHANGES
