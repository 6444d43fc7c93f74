"""A connection for a host of one namespace serves no host of another: on the shared port, with a real haproxy."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyconfd.model.snapshot import Key
from pyconfd.presets import registry
from pyconfd.presets.certificates import TlsOptions
from tests.fragments.shipped import HAPROXY, OPTIONS, service_of, start_shipped
from tests.presets.ingress.objects import (
    PRESETS,
    Obj,
    ingress,
    ingress_class,
    path,
    secret,
    snapshot,
)
from tests.world.backends import Backends
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.pki import CertificateAuthority, KeyPair

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

NAMESPACES = ("mine", "other", "operator")
THROUGH = "through.test"


def objects(namespace: str, pods: Backends, pair: KeyPair) -> list[Obj]:
    """A namespace with an exact host, a one-label wildcard and a host without TLS of Ingresses, and domains."""
    address = pods.add(namespace, f"127.26.0.{len(pods.pods) + 1}").address
    names = ("web", "domain", "deep")
    web, of_domain, deep = (service_of(pods, each, address, namespace=namespace) for each in names)
    tls = {"pyconfd.io/tls-secret": "tls", "pyconfd.io/proto": "http"}
    of_domain[0]["metadata"]["annotations"] = {"pyconfd.io/domain": f"domain.{namespace}.test", **tls}
    deep[0]["metadata"]["annotations"] = {"pyconfd.io/domain": f"*.deep.{namespace}.test", **tls}
    hosts = [f"app.{namespace}.test", f"*.wild.{namespace}.test"]
    rules = {host: [path("/")] for host in (*hosts, f"plain.{namespace}.test")}
    one = ingress("web", rules, namespace=namespace, tls=[{"hosts": hosts, "secretName": "tls"}])
    return [*web, *of_domain, *deep, one, secret("tls", pair, namespace=namespace)]


@pytest.fixture(scope="module", params=["direct", "inspected"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where TLS ends on the port itself, and behind the frontend that reads the hello for a host that goes through."""
    folder = tmp_path_factory.mktemp("haproxy")
    with Backends() as pods, HaproxyProcess(folder) as haproxy:
        authority = CertificateAuthority(folder / "ca")
        made: list[Obj] = [ingress_class()]
        for name in NAMESPACES:
            names = [f"{label}.{name}.test" for label in ("app", "domain", "*.wild", "*.deep")]
            made += objects(name, pods, authority.server(name, names))
        rest = service_of(pods, "rest", pods.add("rest", "127.26.0.200").address, namespace="mine")
        made += [*rest, ingress("rest", default="rest:80", namespace="mine")]
        made.append(secret("default", authority.server("default", ["default.test"]), namespace="operator"))
        if request.param == "inspected":
            through = service_of(pods, "through", "127.26.0.200", namespace="mine")
            through[0]["metadata"]["annotations"] = {"pyconfd.io/domain": THROUGH, "pyconfd.io/proto": "https"}
            made += through
        tls = TlsOptions(str(folder / "secrets"), NAMESPACES, Key("operator", "default"))
        context = registry.translate(snapshot(*made), PRESETS, replace(OPTIONS, tls=tls))
        assert context.refused == ()
        listen = free_port()
        start_shipped(haproxy, context, {"https": listen}, folder)
        assert ("frontend https-in" in haproxy.conf.read_text()) is (request.param == "inspected")
        yield listen


def ask(port: int, sni: str, host: str) -> tuple[int, str]:
    """Return the status, and the pod that answered."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 30) as raw,
        context.wrap_socket(raw, server_hostname=sni or None) as connection,
    ):
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        with http.client.HTTPResponse(connection) as answer:
            answer.begin()
            answer.read()
            return answer.status, answer.headers.get("X-Pod", "")


HOSTS = ("app.NS.test", "x.wild.NS.test", "domain.NS.test", "a.b.deep.NS.test")


@pytest.mark.parametrize("sni", HOSTS)
@pytest.mark.parametrize("host", [*HOSTS, "plain.NS.test", "APP.NS.test.:443"])
def test_hosts_of_one_namespace_share_a_connection_and_others_do_not(port: int, sni: str, host: str) -> None:
    asked = sni.replace("NS", "mine")
    assert ask(port, asked, host.replace("NS", "mine")) == (200, "mine")
    assert ask(port, asked, host.replace("NS", "other")) == (421, "")


@pytest.mark.parametrize(
    ("sni", "host", "status", "pod"),
    [
        ("", "app.mine.test", 200, "mine"),
        ("unknown.test", "app.mine.test", 200, "mine"),
        ("unknown.test", "unknown.test", 200, "rest"),
        ("app.mine.test", "unknown.test", 200, "rest"),
        ("app.other.test", "unknown.test", 421, ""),
        ("app.other.test", "unknown.other.test", 421, ""),
    ],
)
def test_names_of_nobody_are_for_the_hosts_that_are_left(port: int, sni: str, host: str, status: int, pod: str) -> None:
    assert ask(port, sni, host) == (status, pod)
