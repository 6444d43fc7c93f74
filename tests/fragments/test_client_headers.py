"""What a pod is told of its client by the shipped fragments: requests through a real haproxy to an echo backend."""

import http.client
import json
import re
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyconfd.presets.gateway.frontends import ClientVerification, EndingListener, FrontendKind, NameRoute
from pyconfd.trying.own_haproxy import short_folder
from tests.fragments.shipped import HAPROXY
from tests.fragments.test_shipped_live import balancer, service
from tests.presets.gateway import stage
from tests.presets.gateway.stage import EchoServer, Routes, gateway, parsed, pods, running
from tests.world.haproxy import free_port
from tests.world.pki import CertificateAuthority

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

HOST = "shop.example.com"

FORGED = [
    ("X-Forwarded-For", "192.0.2.66"),
    ("X-FORWARDED-FOR", "192.0.2.67"),
    ("X_Forwarded_For", "192.0.2.68"),
    ("X-Forwarded-Host", "admin.example.com"),
    ("X-Forwarded-Proto", "forged"),
    ("X-Forwarded-Port", "1"),
    ("X-Forwarded-User", "admin"),
    ("X-Forwarded-Client-Cert", "By=forged"),
    ("X_Forwarded-Proto", "forged"),
    ("Forwarded", "for=192.0.2.66;proto=https"),
    ("X-Real-IP", "192.0.2.66"),
    ("X_Real_IP", "192.0.2.66"),
    ("True-Client-IP", "192.0.2.66"),
    ("X-SSL-Client-DN", "CN=admin"),
    ("X-SSL-Client-Verify", "0"),
    ("X_SSL_Client_DN", "CN=admin"),
    ("SSL-Client-Verify", "SUCCESS"),
    ("Client-Cert", ":forged:"),
    ("Proxy", "http://192.0.2.66/"),
    ("Connection", "keep-alive, X-Forwarded-For, Authorization"),
]
OTHERS = [("Authorization", "Bearer secret"), ("X-Forwarding", "kept"), ("Proxied", "kept")]


@dataclass(frozen=True)
class Site:
    """Where a frontend listens, and how it is spoken to."""

    port: int
    tls: bool = False

    def ask(
        self,
        headers: Sequence[tuple[str, str]],
        *,
        client: tuple[Path, Path] | None = None,
        preamble: str = "",
        source: str = "127.0.0.1",
    ) -> dict[str, list[str]]:
        """Return the headers that the pod got."""
        raw = socket.create_connection(("127.0.0.1", self.port), 30, source_address=(source, 0))
        with raw:
            raw.sendall(preamble.encode())
            with _secured(raw, client) if self.tls else raw as connection:
                return self._ask(connection, headers)

    @staticmethod
    def _ask(connection: socket.socket, headers: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n".encode())
        with http.client.HTTPResponse(connection) as response:
            response.begin()
            body = response.read().decode()
        assert response.status == 200, body
        found: dict[str, list[str]] = json.loads(body)["headers"]
        return found

    def expected(self, address: str = "127.0.0.1") -> dict[str, list[str]]:
        """Return what pods are told of a client at ``address``."""
        return {
            "host": [HOST],
            "x-forwarded-for": [address],
            "x-real-ip": [address],
            "x-forwarded-host": [HOST],
            "x-forwarded-proto": ["https" if self.tls else "http"],
            "x-forwarded-port": [str(self.port)],
        }


def _secured(raw: socket.socket, client: tuple[Path, Path] | None) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client:
        context.load_cert_chain(*client)
    return context.wrap_socket(raw, server_hostname=HOST)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("pki"))


def pem_of(authority: CertificateAuthority, path: Path) -> str:
    pair = authority.server("own", (HOST,))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pair.cert.read_text() + pair.key.read_text())
    return str(path)


@contextmanager
def shared(
    pod: EchoServer, authority: CertificateAuthority, folder: Path, *, inspected: bool = False, **more: Any
) -> Iterator[dict[str, Site]]:
    """Run the frontends that domains and Ingresses share; ``inspected``: TLS of another domain goes through."""
    name, items = service(HOST, "http", [pod.port])
    items["tls"] = {"path": "own.pem", "names": HOST, "redirect": False, "hsts": None}
    pem_of(authority, folder / "secrets" / "own.pem")
    socket_path = f"{short_folder('ch-')}/s"
    domains = [(name, items), *([service("through.example.com", "https", [pod.port])] if inspected else [])]
    with balancer(domains, folder, runtime_socket=socket_path, **more) as ports:
        yield {"http": Site(ports["http"]), "https": Site(ports["https"], tls=True)}


@contextmanager
def of_gateway(
    pod: EchoServer, authority: CertificateAuthority, folder: Path, *, required: bool | None = None, **more: Any
) -> Iterator[dict[str, Site]]:
    """Run a port for HTTP and one for HTTPS of a Gateway; ``required``: whether clients have to show certificates."""
    plain, secured = free_port(), free_port()
    rule = parsed({"backendRefs": [{"name": "web", "port": 80}]})
    routes = [Routes(f"gw_{port}", HOST).add(rule, stage.reference(1, (pod.endpoint,))) for port in (plain, secured)]
    first, backends = gateway(f"gw_{plain}", routes[:1], port=plain)
    second, others = gateway(
        f"gw_{secured}",
        routes[1:],
        kind=FrontendKind.TLS,
        port=secured,
        listener_of={routes[1].virtual_host: "a"},
        listeners=(EndingListener("a", (pem_of(authority, folder / "a.pem"),)),),
        names=(NameRoute("", "a"),),
        verification=None if required is None else ClientVerification(str(authority.cert), required),
    )
    with running([first, second], {**backends, **others}, folder, **more):
        yield {"http": Site(plain), "https": Site(secured, tls=True)}


FRONTENDS: dict[str, Callable[..., AbstractContextManager[dict[str, Site]]]] = {
    "shared": shared,
    "inspected": partial(shared, inspected=True),
    "gateway": of_gateway,
}


def said(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return all headers but those that a forger may send as he likes."""
    left = {"x-request-id", *(name.lower() for name, _ in OTHERS)}
    return {name: values for name, values in found.items() if name not in left}


@pytest.fixture(scope="module", params=FRONTENDS)
def untrusted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority
) -> Iterator[dict[str, Site]]:
    with pods("web") as (web,), FRONTENDS[request.param](web, authority, tmp_path_factory.mktemp("haproxy")) as sites:
        yield sites


@pytest.fixture(scope="module", params=FRONTENDS)
def trusting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority
) -> Iterator[dict[str, Site]]:
    """Trusts 127.0.0.1 and 10.0.0.0/8, and takes the PROXY protocol of 127.0.0.5."""
    networks: dict[str, Any] = {
        "trusted_networks": ["127.0.0.1/32", "10.0.0.0/8", "fd00::/8"],
        "protocol_networks": ["127.0.0.5/32"],
    }
    folder = tmp_path_factory.mktemp("haproxy")
    with pods("web") as (web,), FRONTENDS[request.param](web, authority, folder, **networks) as sites:
        yield sites


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_forged_headers_do_not_reach_pods(untrusted: dict[str, Site], scheme: str) -> None:
    site = untrusted[scheme]
    found = site.ask([*FORGED, *OTHERS])
    assert said(found) == site.expected()
    assert {name: found[name.lower()] for name, _ in OTHERS} == {name: [value] for name, value in OTHERS}


def test_forged_headers_do_not_reach_pods_over_http_2(untrusted: dict[str, Site]) -> None:
    site = untrusted["https"]
    headers = [f"-H{name}: {value}" for name, value in FORGED if name != "Connection"]
    command = ["curl", "-sk", "--http2", *headers, "--connect-to", f"::127.0.0.1:{site.port}", f"https://{HOST}/"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["headers"]
    assert {
        name: found[name] for name in found if name not in {"accept", "user-agent", "x-request-id"}
    } == site.expected()


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_each_request_has_an_id_that_its_client_did_not_choose(untrusted: dict[str, Site], scheme: str) -> None:
    found = [untrusted[scheme].ask([("X-Request-ID", "mine"), ("X_Request_ID", "mine")]) for _ in range(2)]
    (one,), (other,) = (each["x-request-id"] for each in found)
    assert UUID.fullmatch(one)
    assert UUID.fullmatch(other)
    assert one != other
    assert not any("x_request_id" in each for each in found)


def test_the_id_of_a_trusted_proxy_is_passed_on(trusting: dict[str, Site]) -> None:
    site = trusting["http"]
    assert site.ask([("X-Request-ID", "from, proxy")])["x-request-id"] == ["from, proxy"]
    assert UUID.fullmatch(site.ask([])["x-request-id"][0])
    assert UUID.fullmatch(site.ask([("X-Request-ID", "mine")], source="127.0.0.2")["x-request-id"][0])


def test_another_protocol_is_still_asked_for(untrusted: dict[str, Site]) -> None:
    asked = [("Connection", "keep-alive, Upgrade, X-Real-IP"), ("Upgrade", "example/1")]
    found = untrusted["http"].ask(asked)
    assert (found["connection"], found["upgrade"]) == (["upgrade"], ["example/1"])


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ([], "127.0.0.1"),
        (["203.0.113.9"], "203.0.113.9"),
        (["2001:db8::9"], "2001:db8::9"),
        (["192.0.2.66, 203.0.113.9"], "203.0.113.9"),
        (["192.0.2.66", "203.0.113.9"], "203.0.113.9"),
        (["192.0.2.66, 203.0.113.9, 10.1.2.3"], "203.0.113.9"),
        (["192.0.2.66, 203.0.113.9, fd00::1, 10.1.2.3"], "203.0.113.9"),
        (["10.1.2.3"], "10.1.2.3"),
        (["192.0.2.66, unknown"], "127.0.0.1"),
        (["192.0.2.66, unknown, 10.1.2.3"], "10.1.2.3"),
    ],
)
def test_a_trusted_proxy_says_who_the_client_is(
    trusting: dict[str, Site], scheme: str, forwarded: list[str], client: str
) -> None:
    site = trusting[scheme]
    assert said(site.ask([("X-Forwarded-For", each) for each in forwarded])) == site.expected(client)


def test_what_a_trusted_proxy_says_reaches_pods(trusting: dict[str, Site]) -> None:
    kept = {
        "x-forwarded-host": ["www.example.com"],
        "x-forwarded-proto": ["https"],
        "x-forwarded-port": ["443"],
        "x-forwarded-client-cert": ["By=proxy"],
        "x-ssl-client-dn": ["CN=one"],
        "forwarded": ["for=203.0.113.9"],
    }
    site = trusting["http"]
    sent = [(name, values[0]) for name, values in kept.items()]
    found = site.ask([*sent, ("X-Real-IP", "192.0.2.66"), ("Proxy", "x"), ("Connection", "X-Real-IP")])
    assert said(found) == site.expected() | kept


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_others_are_not_trusted_beside_a_trusted_proxy(trusting: dict[str, Site], scheme: str) -> None:
    site = trusting[scheme]
    assert said(site.ask(FORGED, source="127.0.0.2")) == site.expected("127.0.0.2")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_client_of_the_proxy_protocol_is_trusted_only_if_listed(trusting: dict[str, Site], scheme: str) -> None:
    site = trusting[scheme]

    def told_by(address: str) -> dict[str, list[str]]:
        preamble = f"PROXY TCP4 {address} 127.0.0.1 1024 {site.port}\r\n"
        return said(site.ask(FORGED[:1], preamble=preamble, source="127.0.0.5"))

    assert told_by("203.0.113.9") == site.expected("203.0.113.9")
    assert told_by("10.9.9.9") == site.expected("192.0.2.66")


def test_the_proxy_protocol_of_others_is_refused(trusting: dict[str, Site]) -> None:
    with pytest.raises((AssertionError, ConnectionError, http.client.HTTPException)):
        trusting["http"].ask([], preamble="PROXY TCP4 203.0.113.9 127.0.0.1 1024 80\r\n")


def test_a_client_that_came_by_https_is_not_redirected(authority: CertificateAuthority, tmp_path: Path) -> None:
    with ExitStack() as stack:
        (web,) = stack.enter_context(pods("web"))
        name, items = service(HOST, "http", [web.port])
        items["tls"] = {"path": "own.pem", "names": HOST, "redirect": True, "hsts": None}
        pem_of(authority, tmp_path / "secrets" / "own.pem")
        socket_path = f"{short_folder('ch-')}/s"
        more = {"runtime_socket": socket_path, "trusted_networks": ["127.0.0.1/32"]}
        site = Site(stack.enter_context(balancer([(name, items)], tmp_path, **more))["http"])
        assert site.ask([("X-Forwarded-Proto", "https")])["x-forwarded-proto"] == ["https"]
        for source, value in (("127.0.0.1", "http"), ("127.0.0.2", "https")):
            with pytest.raises(AssertionError):
                site.ask([("X-Forwarded-Proto", value)], source=source)


VERIFIED = ("x-ssl-client-dn", "x-ssl-client-issuer-dn", "x-ssl-client-serial", "x-ssl-client-sha256")


@pytest.mark.parametrize("trusted", [[], ["127.0.0.0/8"]])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("shown", ["own", "foreign", "expired", "none"])
def test_pods_get_only_verified_fields_of_certificates(
    tmp_path: Path, authority: CertificateAuthority, shown: str, required: bool, trusted: list[str]
) -> None:
    own = authority.client("CN=x,O=\r\nX-Admin: 1", organization="one+two", file_name="own-client")
    foreign = CertificateAuthority(tmp_path / "foreign", "foreign").client()
    expired = authority.client("late", expired=True)
    pair = {"own": own, "foreign": foreign, "expired": expired}.get(shown)
    with (
        pods("web") as (web,),
        of_gateway(web, authority, tmp_path, required=required, trusted_networks=trusted) as sites,
    ):
        client = (pair.cert, pair.key) if pair else None
        if required and shown != "own":
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                sites["https"].ask([], client=client)
            return
        found = sites["https"].ask(FORGED, client=client)
    assert "x-admin" not in found
    if shown != "own":
        assert not found.keys() & {*VERIFIED, "x_ssl_client_dn", "ssl-client-verify", "client-cert"}
        return
    text = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-serial", "-in", str(own.cert)]
    lines = subprocess.run(text, capture_output=True, text=True, check=True).stdout.splitlines()
    digest, serial = (line.partition("=")[2].replace(":", "") for line in lines)
    assert [found[name] for name in VERIFIED] == [
        ["CN=CN=x\\,O=\\0D\\0AX-Admin: 1,O=one\\+two"],
        ["CN=fake-ca"],
        [serial],
        [digest],
    ]
