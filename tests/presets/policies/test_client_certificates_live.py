"""Hosts that clients show certificates for: a real HAProxy, and connections over TLS."""

import http.client
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.certificates import TlsOptions
from tests.presets.policies.auth_server import auth_server
from tests.presets.policies.logins import secret
from tests.presets.policies.stage import (
    HOST,
    TARGETS,
    Answer,
    PolicyStage,
    as_fields,
    ca_map,
    of_ingress,
    of_route,
    policy,
    policy_stage,
    service,
)
from tests.world.pki import CertificateAuthority, KeyPair

pytestmark = pytest.mark.haproxy
OTHER = "other.example.com"
WORDS = {"client-certificates": "staff-ca"}
REFUSED = (ssl.SSLError, ConnectionError, http.client.HTTPException)


@dataclass
class Stage:
    """A stage with two authorities of clients, and a certificate for each of two hosts."""

    served: PolicyStage
    staff: CertificateAuthority
    others: CertificateAuthority
    objects: Sequence[str]

    def serving(self, *objects: str) -> list[str]:
        """Have HAProxy serve objects, and return what was refused."""
        return [each.detail for each in self.served.serving(*objects, *self.objects).refused]

    def begin(
        self,
        sni: str = HOST,
        client: KeyPair | None = None,
        session: ssl.SSLSession | None = None,
        context: ssl.SSLContext | None = None,
    ) -> ssl.SSLSocket:
        """Return a connection after its handshake."""
        context = context or self.context(client)
        raw = self.served.connected("198.51.100.7", "192.0.2.200", 443)
        return context.wrap_socket(raw, server_hostname=sni, session=session)

    @staticmethod
    def context(client: KeyPair | None = None) -> ssl.SSLContext:
        """Return what connections are made with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context

    def ask(
        self, path: str = "/", *, sni: str = HOST, host: str = "", client: KeyPair | None = None, headers: str = ""
    ) -> Answer:
        """Return the answer to a request over a connection of its own."""
        with closing(self.begin(sni, client)) as connection:
            return ask(connection, path, host or sni, headers)


def ask(connection: ssl.SSLSocket, path: str = "/", host: str = HOST, headers: str = "") -> Answer:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n".encode())
    response = http.client.HTTPResponse(connection)
    response.begin()
    found = {name.lower(): [value] for name, value in response.getheaders()}
    return Answer(response.status, found, response.read().decode())


def of_tls(
    words: dict[str, str], name: str = "web", *, hosts: Sequence[str] = (HOST,), path: str = "/", created: str = "2026"
) -> str:
    """Return an Ingress with a certificate for each of its hosts."""
    document = yaml.safe_load(of_ingress(words, name=name, path=path))
    document["metadata"]["creationTimestamp"] = f"{created}-01-01T00:00:00Z"
    (rule,) = document["spec"]["rules"]
    document["spec"]["rules"] = [{**rule, "host": host} for host in hosts]
    document["spec"]["tls"] = [{"hosts": [host], "secretName": host.partition(".")[0]} for host in hosts]
    return yaml.safe_dump(document)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    authority, staff, others = (CertificateAuthority(tmp_path / name, name) for name in ("web", "staff", "others"))
    objects = [ca_map(staff.cert.read_text(), "staff-ca"), ca_map(others.cert.read_text(), "others-ca")]
    for host in (HOST, OTHER):
        pair = authority.server(host, (host, "*.example.com"))
        data = {"tls.crt": pair.cert.read_text(), "tls.key": pair.key.read_text()}
        objects.append(secret(data, host.partition(".")[0], "kubernetes.io/tls"))
    with policy_stage(tmp_path / "lb") as found:
        found.tls = TlsOptions(f"{found.folder}/secrets", namespaces=("*",))
        yield Stage(found, staff, others, objects)


def test_clients_show_a_certificate(stage: Stage) -> None:
    assert stage.serving(of_tls(WORDS)) == []
    without = stage.ask()
    assert (without.status, without.body) == (400, "No required SSL certificate was sent.\n")
    answer = stage.ask(client=stage.staff.client(), headers="SSL-Client-Verify: x\r\nX-SSL-Client-DN: CN=root\r\n")
    headers = answer.echo["headers"]
    assert headers["ssl-client-verify"] == ["SUCCESS"]
    assert headers["ssl-client-subject-dn"] == headers["x-ssl-client-dn"] != ["CN=root"]
    assert headers["ssl-client-issuer-dn"] == headers["x-ssl-client-issuer-dn"]
    with pytest.raises(REFUSED):
        stage.ask(client=stage.others.client())


def test_plain_http_lets_nobody_in(stage: Stage) -> None:
    document = yaml.safe_load(of_tls(WORDS))
    document["metadata"]["annotations"]["pyconfd.io/ssl-redirect"] = "false"
    stage.serving(yaml.safe_dump(document))
    assert stage.served.request("ingress").status == 403


def test_no_host_is_told_of_certificates_by_authorities_of_others(stage: Stage) -> None:
    # Else who chooses the authorities writes the subject that pods of another namespace take for verified.
    asking = {**WORDS, "auth-url": f"https://{OTHER}/check"}
    theirs = [yaml.safe_load(of_ingress({}).replace(HOST, OTHER))]
    with auth_server() as asked:
        theirs += yaml.safe_load_all(service(asked.port))
        for each in theirs:
            each["metadata"]["namespace"] = "other"
        assert stage.serving(of_tls(asking), yaml.safe_dump_all(theirs)) == []
        assert stage.ask(client=stage.staff.client()).status == 200
        assert [name for name in asked.asked[0].headers if "ssl" in name or "cert" in name] == []
        # A Service that the same namespace chose is told.
        stage.serving(of_tls({**WORDS, "auth-url": "http://auth/check"}), service(asked.port, "auth"))
        assert stage.ask(client=stage.staff.client()).status == 200
        assert "ssl-client-subject-dn" in asked.asked[1].headers


def test_a_certificate_may_be_optional(stage: Stage) -> None:
    stage.serving(of_tls({**WORDS, "client-certificates-mode": "optional"}))
    headers = stage.ask(headers="SSL-Client-Verify: SUCCESS\r\nSSL_Client_Subject_DN: CN=root\r\n").echo["headers"]
    assert headers["ssl-client-verify"] == ["NONE"]
    assert not [name for name in headers if "dn" in name]
    assert stage.ask(client=stage.staff.client()).echo["headers"]["ssl-client-verify"] == ["SUCCESS"]
    with pytest.raises(REFUSED):
        stage.ask(client=stage.others.client())


def test_a_handshake_for_another_host_does_not_count(stage: Stage) -> None:
    refused = stage.serving(
        of_tls(WORDS),
        of_tls({"client-certificates": "others-ca"}, "other", hosts=(OTHER,)),
        of_tls({}, "open", path="/o"),
    )
    assert refused == []
    client = stage.others.client()
    assert stage.ask(sni=OTHER, client=client).status == 200
    assert stage.ask(sni=OTHER, host=HOST, client=client).status == 421
    # Another Ingress may have open paths of the host.
    assert stage.ask("/o").status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_another_host_is_no_certificate(stage: Stage, version: ssl.TLSVersion) -> None:
    stage.serving(of_tls(WORDS), of_tls({"client-certificates": "others-ca"}, "other", hosts=(OTHER,)))
    context = stage.context(stage.others.client())
    context.minimum_version = context.maximum_version = version
    with closing(stage.begin(OTHER, context=context)) as connection:
        assert ask(connection, host=OTHER).status == 200
        session = connection.session
    with suppress(*REFUSED), closing(stage.begin(context=context, session=session)) as connection:
        assert ask(connection).status == 403


def test_a_host_that_is_asked_hears_of_no_certificate(stage: Stage) -> None:
    # Its pods would take what other authorities said for what their own did, and a client cannot send these headers.
    with auth_server() as auth:
        asked = of_tls({}, "sign-on", hosts=(OTHER,)).replace("name: app", "name: auth")
        stage.serving(of_tls(WORDS | {"auth-url": f"https://{OTHER}/check"}), asked, service(auth.port, "auth"))
        assert stage.ask(client=stage.staff.client(), headers="X-Kept: a\r\n").status == 200
        (question,) = auth.asked
    assert question.headers["x-kept"] == ["a"]
    assert [name for name in question.headers if "ssl" in name] == []


def test_the_oldest_ingress_of_a_host_names_the_authorities(stage: Stage) -> None:
    older, younger = of_tls(WORDS, "a", created="2025"), of_tls({"client-certificates": "others-ca"}, "b", path="/b")
    refused = stage.serving(older, younger)
    assert ["Ingress shop/a is older; nobody is let in" in each for each in refused] == [True]
    client = stage.staff.client()
    assert [stage.ask(path, client=client).status for path in ("/", "/b")] == [200, 403]
    with pytest.raises(REFUSED):
        stage.ask("/b", client=stage.others.client())


def test_one_host_of_two_may_be_that_of_others(stage: Stage) -> None:
    both = of_tls(WORDS, "both", hosts=(HOST, OTHER))
    stage.serving(of_tls({"client-certificates": "others-ca"}, "a", hosts=(OTHER,), path="/a", created="2025"), both)
    assert stage.ask(client=stage.staff.client()).status == 200
    assert stage.ask(sni=OTHER, client=stage.others.client()).status == 403
    assert stage.ask("/a", sni=OTHER, client=stage.others.client()).status == 200


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"client-certificates": "none"}, "there is no ConfigMap shop/none"),
        ({"client-certificates": "other/staff-ca"}, "of this namespace"),
        ({**WORDS, "client-certificates-mode": "optional_no_ca"}, "expected required or optional"),
    ],
)
def test_without_authorities_nobody_is_let_in(stage: Stage, words: dict[str, str], why: str) -> None:
    refused = stage.serving(of_tls(words))
    assert [why in each for each in refused] == [True]
    assert stage.ask().status == 403
    assert stage.ask(client=stage.staff.client()).status == 403


def test_a_host_without_a_certificate_lets_nobody_in(stage: Stage) -> None:
    refused = stage.serving(of_ingress(WORDS))
    assert ["spec.tls" in each for each in refused] == [True]
    assert stage.served.request("ingress").status == 403


def test_a_route_has_the_gateways(stage: Stage) -> None:
    refused = stage.serving(of_route(WORDS))
    assert ["tls.frontend" in each for each in refused] == [True]
    assert stage.served.request("httproute").status == 403


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, [400, 200]),
        ({"auth-tls-verify-client": "on", "auth-tls-verify-depth": "1"}, [400, 200]),
        ({"auth-tls-verify-client": "optional"}, [200, 200]),
        ({"auth-tls-verify-client": "optional_no_ca"}, [403, 403]),
        ({"auth-tls-verify-client": "off"}, [200, 200]),
    ],
)
def test_annotations_of_ingress_nginx(stage: Stage, said: dict[str, str], expected: list[int]) -> None:
    stage.served.nginx_classes = ("nginx",)
    document = yaml.safe_load(of_tls({}))
    annotations = {"auth-tls-secret": "shop/staff-ca", **said}
    document["metadata"]["annotations"] = {
        f"nginx.ingress.kubernetes.io/{name}": text for name, text in annotations.items()
    }
    document["spec"]["ingressClassName"] = "nginx"
    stage.serving(yaml.safe_dump(document))
    assert [stage.ask(client=client).status for client in (None, stage.staff.client())] == expected


def test_hosts_of_a_wildcard(stage: Stage) -> None:
    assert stage.serving(of_tls(WORDS, hosts=("*.example.com",)).replace("secretName: '*'", "secretName: shop")) == []
    client = stage.staff.client()
    assert [stage.ask(sni=f"{name}.example.com", client=client).status for name in ("a", "b")] == [200, 200]
    assert stage.ask(sni="a.example.com").status == 400
    assert stage.ask(sni="a.example.com", host="b.example.com", client=client).status == 421


def test_other_authorities_are_a_reload_and_of_whoever_names_them(stage: Stage) -> None:
    texts = [stage.served.rendered(of_tls({"client-certificates": name}), *stage.objects)[0] for name in _BOTH]
    lists = [
        next(each.content for each in text.files if each.path.endswith("https-certificates.map")) for text in texts
    ]
    assert ["[ca-file " in each for each in lists] == [True, True]
    owners = [stage.served.context(of_tls({"client-certificates": name}), *stage.objects).owners for name in _BOTH]
    assert owners[0]["ingress"] != owners[1]["ingress"]


_BOTH = ("staff-ca", "others-ca")


def test_explain_says_what_it_takes(stage: Stage) -> None:
    stage.serving(of_tls(WORDS))
    plain = stage.served.explained("ingress", "/", scheme="http")
    assert plain.status in {301, 302, 307, 308}  # the redirect to HTTPS comes before
    secure = stage.served.explained("ingress", "/", scheme="https")
    assert secure.status == 0
    assert any("ConfigMap shop/staff-ca" in each for each in secure.uncovered)


def test_a_policy_says_it_for_an_ingress(stage: Stage) -> None:
    assert stage.serving(of_tls({}), policy(as_fields(WORDS), TARGETS["ingress"])) == []
    assert [stage.ask(client=client).status for client in (None, stage.staff.client())] == [400, 200]


def test_a_redirect_to_www_asks_for_no_certificate(stage: Stage) -> None:
    www = f"www.{HOST}"
    words = {**WORDS, "from-to-www-redirect": "true", "ssl-redirect": "false"}
    main = of_tls(words)
    canary = of_tls({"canary": "true", "canary-weight": "50"}, "zz", hosts=(www,))
    for objects in ((main,), (main, canary)):
        stage.serving(*objects)
        assert stage.served.request("ingress", "/a", host=www).headers["location"] == [f"http://{HOST}/a"]
        assert [stage.ask(client=client).status for client in (None, stage.staff.client())] == [400, 200]
