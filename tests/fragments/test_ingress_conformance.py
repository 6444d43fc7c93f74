"""The 25 scenarios of kubernetes-sigs/ingress-controller-conformance, against a real haproxy.

Its cluster becomes the Snapshot of a test here, its echo servers are stand-ins with the names of their Services; what
each scenario asks and expects is unchanged.
"""

import http.client
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import request_of
from pyconfd.explain.request_answer import explain_request
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
from tests.world.pki import CertificateAuthority

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

NOT_FOUND = ""


@dataclass(frozen=True)
class Answer:
    code: int
    pod: str
    headers: frozenset[str]

    @property
    def service(self) -> str:
        return self.pod.rpartition("-")[0]


class Balancer:
    """A haproxy with the shipped fragments for some Ingresses. ``evidence`` is what `pyconfd explain` knows of it."""

    def __init__(self, port: int, tls_port: int, pods: Backends, ca: Path, evidence: Evidence) -> None:
        self.port, self.tls_port, self.pods, self.ca, self.evidence = port, tls_port, pods, ca, evidence

    def ask(self, host: str, target: str, method: str = "GET") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        answer = self._answer(connection, host, target, method)
        if host:
            self._is_explained(f"http://{host}:{self.port}{target}", method, answer)
        return answer

    def _is_explained(self, url: str, method: str, answer: Answer) -> None:
        """Hold an answer against what `pyconfd explain URL` says."""
        explained = explain_request(request_of({"url": [url], "method": [method]}), self.evidence).request
        assert explained is not None
        assert (explained.status or 200) == answer.code, explained
        assert [name.split("_")[2] for name, _ in explained.backends] == [answer.service] * bool(answer.service)

    def ask_tls(self, host: str, target: str) -> Answer:
        """Ask with the host's name in the hello, and verify the certificate."""
        connection = http.client.HTTPSConnection(host, timeout=30, context=ssl.create_default_context(cafile=self.ca))
        raw = socket.create_connection(("127.0.0.1", self.tls_port), timeout=30)
        connection.sock = connection._context.wrap_socket(raw, server_hostname=host)  # type: ignore[attr-defined]
        answer = self._answer(connection, host, target, "GET")
        self._is_explained(f"https://{host}:{self.tls_port}{target}", "GET", answer)
        return answer

    @staticmethod
    def _answer(connection: http.client.HTTPConnection, host: str, target: str, method: str) -> Answer:
        try:
            connection.request(method, target, headers={"Host": host} if host else {})
            answer = connection.getresponse()
            answer.read()
            return Answer(answer.status, answer.headers.get("X-Pod", ""), frozenset(map(str.lower, answer.headers)))
        finally:
            connection.close()


@contextmanager
def balancer(folder: Path, ingresses: Sequence[Obj], services: dict[str, int]) -> Iterator[Balancer]:
    """Run it for Services with so many pods each."""
    with Backends() as pods, HaproxyProcess(folder) as haproxy:
        authority = CertificateAuthority(folder / "ca")
        pair = authority.server("foo.bar.com", ["foo.bar.com", "safe.bar.com"])
        objects = [ingress_class(), *ingresses, secret("conformance-tls", pair)]
        for name, count in services.items():
            addresses = [
                pods.add(f"{name}-{number}", f"127.25.0.{len(pods.pods) + 1}").address for number in range(count)
            ]
            ports = [{"name": "http", "port": 8080, "targetPort": pods.port}]
            objects += service_of(pods, name, *addresses, ports=ports)
        tls = TlsOptions(str(folder / "secrets"), ("demo",))
        seen, options = snapshot(*objects), replace(OPTIONS, tls=tls)
        context = registry.translate(seen, PRESETS, options)
        assert context.refused == ()
        own = [each for each in ingresses if each["spec"]["ingressClassName"] == "pyconfd"]
        assert ["ingress" in each.body["loadBalancer"] for each in context.statuses[1].values()] == [True] * len(own)
        port, tls_port = free_port(), free_port()
        rendering = start_shipped(haproxy, context, {"http": port, "https": tls_port}, folder)
        evidence = Evidence(
            now=1.0,
            snapshot=seen,
            context=context,
            presets=PRESETS,
            options=options,
            desired=rendering,
            running=rendering,
            refused=context.refused,
        )
        yield Balancer(port, tls_port, pods, authority.cert, evidence)


HOST_RULES = ingress(
    "host-rules",
    {
        "*.foo.com": [path("/", "wildcard-foo-com:8080")],
        "foo.bar.com": [path("/", "foo-bar-com:http")],
    },
    tls=[{"hosts": ["foo.bar.com"], "secretName": "conformance-tls"}],
    # The suite asks for this host over HTTP too, and expects no redirect.
    annotations={"pyconfd.io/ssl-redirect": "false"},
)
PATH_RULES = ingress(
    "path-rules",
    {
        "exact-path-rules": [path("/foo", "foo-exact:8080", "Exact")],
        "prefix-path-rules": [
            path("/foo", "foo-prefix:8080"),
            path("/aaa/bbb", "aaa-slash-bbb-prefix:8080"),
            path("/aaa", "aaa-prefix:8080"),
        ],
        "mixed-path-rules": [path("/foo", "foo-prefix:8080"), path("/foo", "foo-exact:8080", "Exact")],
        "trailing-slash-path-rules": [
            path("/aaa/bbb/", "aaa-slash-bbb-slash-prefix:8080"),
            path("/foo/", "foo-slash-exact:8080", "Exact"),
        ],
    },
)
DEFAULT = ingress("default-backend", default="echo-service:8080")


def _services(*ingresses: Obj) -> dict[str, int]:
    """Return the Services that Ingresses name, with one pod each."""
    rules = [rule for each in ingresses for rule in each["spec"]["rules"]]
    return {each["backend"]["service"]["name"]: 1 for rule in rules for each in rule["http"]["paths"]}


# What the suite does not ask for: the redirect to HTTPS.
REDIRECTED = ingress(
    "redirected",
    {"safe.bar.com": [path("/", "foo-bar-com:http")]},
    tls=[{"hosts": ["safe.bar.com"], "secretName": "conformance-tls"}],
    annotations={"pyconfd.io/hsts": "300"},
)
# Its class is nobody's here.
INVALID_CLASS = ingress(
    "ingress-class", {"ingress-class": [path("/", "foo-exact:8080")]}, class_name="some-invalid-class-name"
)


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    given = [HOST_RULES, PATH_RULES, REDIRECTED, INVALID_CLASS]
    with balancer(tmp_path_factory.mktemp("ruled"), given, _services(*given)) as made:
        yield made


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    with balancer(tmp_path_factory.mktemp("default"), [DEFAULT], {"echo-service": 10}) as made:
        yield made


@pytest.mark.parametrize(
    ("host", "target", "served_by"),
    [
        # Host rules.
        ("foo.bar.com", "/", "foo-bar-com"),
        ("subdomain.bar.com", "/", NOT_FOUND),
        ("bar.foo.com", "/", "wildcard-foo-com"),
        ("baz.bar.foo.com", "/", NOT_FOUND),
        ("foo.com", "/", NOT_FOUND),
        # Ingress class.
        ("ingress-class", "/", NOT_FOUND),
        # Path rules.
        ("exact-path-rules", "/foo", "foo-exact"),
        ("exact-path-rules", "/foo/", NOT_FOUND),
        ("exact-path-rules", "/FOO", NOT_FOUND),
        ("exact-path-rules", "/bar", NOT_FOUND),
        ("prefix-path-rules", "/foo", "foo-prefix"),
        ("prefix-path-rules", "/foo/", "foo-prefix"),
        ("prefix-path-rules", "/FOO", NOT_FOUND),
        ("prefix-path-rules", "/aaa/bbb", "aaa-slash-bbb-prefix"),
        ("prefix-path-rules", "/aaa/bbb/ccc", "aaa-slash-bbb-prefix"),
        ("prefix-path-rules", "/aaa/ccc", "aaa-prefix"),
        ("prefix-path-rules", "/aaaccc", NOT_FOUND),
        ("prefix-path-rules", "/foo/?query", "foo-prefix"),
        ("mixed-path-rules", "/foo", "foo-exact"),
        ("trailing-slash-path-rules", "/aaa/bbb", "aaa-slash-bbb-slash-prefix"),
        ("trailing-slash-path-rules", "/aaa/bbb/", "aaa-slash-bbb-slash-prefix"),
        ("trailing-slash-path-rules", "/foo", NOT_FOUND),
    ],
)
def test_hosts_and_paths_reach_their_services(ruled: Balancer, host: str, target: str, served_by: str) -> None:
    answer = ruled.ask(host, target)
    assert (answer.code, answer.service) == (200 if served_by else 404, served_by)
    if served_by:
        asked = ruled.pods.pods[f"{served_by}-0"].heads[-1]
        assert asked.startswith(f"GET {target} HTTP/1.1\r\n".encode())
        assert f"\r\nhost: {host}\r\n".encode() in asked.lower()


def test_a_host_with_a_certificate_is_reached_over_tls(ruled: Balancer) -> None:
    answer = ruled.ask_tls("foo.bar.com", "/")
    assert (answer.code, answer.service) == (200, "foo-bar-com")


@pytest.mark.parametrize(
    ("target", "code"), [("/", 308), ("/.well-known/acme-challenge/x", 200), ("/.well-known/acme", 308)]
)
def test_other_hosts_with_a_certificate_are_redirected(ruled: Balancer, target: str, code: int) -> None:
    assert ruled.ask("safe.bar.com", target).code == code
    answer = ruled.ask_tls("safe.bar.com", target)
    assert (answer.code, answer.service) == (200, "foo-bar-com")
    assert "strict-transport-security" in answer.headers
    assert "strict-transport-security" not in ruled.ask_tls("foo.bar.com", target).headers


def test_a_host_without_a_certificate_gets_none(ruled: Balancer) -> None:
    with pytest.raises(ssl.SSLError, match="unrecognized name"):
        ruled.ask_tls("bar.foo.com", "/")


@pytest.mark.parametrize(
    ("method", "host", "target"),
    [
        ("GET", "my-host", "/"),
        ("GET", "my-host", "/sub-path"),
        ("POST", "some-host", "/"),
        ("PUT", "", "/resource"),
        ("DELETE", "some-host", "/resource"),
        ("PATCH", "my-host", "/resource"),
    ],
)
def test_an_ingress_without_rules_gets_everything(default: Balancer, method: str, host: str, target: str) -> None:
    answer = default.ask(host, target, method)
    assert (answer.code, answer.service) == (200, "echo-service")
    assert answer.headers >= {"content-length", "content-type"}


def test_all_pods_answer(default: Balancer) -> None:
    answers = [default.ask("load-balancing", "/") for _ in range(100)]
    assert {answer.code for answer in answers} == {200}
    assert len({answer.pod for answer in answers}) == 10
