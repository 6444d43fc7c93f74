"""Words that say how HAProxy speaks with pods: these are another HAProxy, which says how it was spoken to."""

import csv
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.policies import nginx
from pyconfd.presets.policies.words import NOTHING_ASKED, WORDS, asked_by
from tests.presets.policies.stage import WAYS, PolicyStage, ca_map, of_ingress, policy_stage, service
from tests.world.haproxy import HaproxyProcess, free_port, wait_until
from tests.world.pki import CertificateAuthority

haproxy = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)
_NAME = "app.shop.svc"
_SAID = "%[fc_http_major] %[ssl_fc,iif(tls,plain)] %[ssl_fc_sni]"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path / "lb") as found:
        yield found


@dataclass(frozen=True)
class SpeakingPods:
    """Pods that answer with the protocol they were spoken to in, by what they take; ``ca`` has issued all of them."""

    ports: Mapping[str, int]
    ca: str


@pytest.fixture
def speaking(tmp_path: Path) -> Iterator[SpeakingPods]:
    authority = CertificateAuthority(tmp_path / "pods")
    pair = authority.server("pods", (_NAME, "other.example"))
    pem = tmp_path / "pods" / "pods.pem"
    pem.write_text(pair.cert.read_text() + pair.key.read_text())
    takes = {
        "plain": "",
        "h2c": "proto h2",
        "tls": f"ssl crt {pem} alpn http/1.1",
        "tls-h2": f"ssl crt {pem} alpn h2",
    }
    ports = {name: free_port() for name in takes}
    binds = "\n".join(f"    bind 127.0.0.1:{ports[name]} {words}" for name, words in takes.items())
    with HaproxyProcess(tmp_path / "pods") as process:
        process.conf.write_text(
            "defaults\n    mode http\n    timeout client 9s\n    timeout server 9s\n    timeout connect 9s\n"
            f"frontend pods\n{binds}\n"
            f'    http-request return status 200 content-type text/plain lf-string "{_SAID}"\n'
        )
        process.start()
        yield SpeakingPods(ports, authority.cert.read_text())


def to_pods(document: str) -> str:
    """Return an Ingress with the pods that speak as its Service."""
    return document.replace("name: app\n", "name: speaking\n")


@haproxy
@pytest.mark.parametrize(
    ("pod", "words", "expected"),
    [
        ("plain", {"backend-protocol": "http"}, "1 plain"),
        ("h2c", {"backend-protocol": "grpc"}, "2 plain"),
        ("h2c", {"backend-protocol": "H2C"}, "2 plain"),
        ("tls", {"backend-protocol": "https"}, "1 tls"),
        ("tls", {"backend-protocol": "https", "backend-server-name": "a.example"}, "1 tls a.example"),
        ("tls-h2", {"backend-protocol": "grpcs"}, "2 tls"),
        ("tls", {"backend-ca": "internal-ca", "backend-server-name": "other.example"}, "1 tls other.example"),
        ("tls-h2", {"backend-protocol": "grpcs", "backend-ca": "internal-ca", "backend-server-name": _NAME}, "2 tls"),
    ],
)
def test_pods_are_spoken_to(
    stage: PolicyStage, speaking: SpeakingPods, pod: str, words: dict[str, str], expected: str
) -> None:
    stage.serving(to_pods(of_ingress(words)), service(speaking.ports[pod], "speaking"), ca_map(speaking.ca))
    answer = stage.request("ingress")
    assert (answer.status, answer.body.strip().startswith(expected)) == (200, True), answer


@haproxy
def test_the_name_of_a_service_is_verified_without_another(stage: PolicyStage, speaking: SpeakingPods) -> None:
    words = {"backend-ca": "internal-ca"}
    service_ = service(speaking.ports["tls"], "speaking")
    stage.serving(to_pods(of_ingress(words)), service_, ca_map(speaking.ca))
    assert stage.request("ingress").status == 503  # the certificate is for app.shop.svc
    stage.serving(
        of_ingress(words),
        service(speaking.ports["tls"]),  # instead of the one beside it
        ca_map(speaking.ca),
    )
    assert stage.request("ingress").body.split() == ["1", "tls", _NAME]


@haproxy
def test_a_pod_of_another_authority_gets_no_request(stage: PolicyStage, speaking: SpeakingPods, tmp_path: Path) -> None:
    other = CertificateAuthority(tmp_path / "other").cert.read_text()
    words = {"backend-ca": "internal-ca", "backend-server-name": _NAME}
    stage.serving(to_pods(of_ingress(words)), service(speaking.ports["tls"], "speaking"), ca_map(other))
    assert stage.request("ingress").status == 503


@haproxy
@pytest.mark.parametrize(
    ("config_map", "namespaces", "why"),
    [
        ("", ("*",), "there is no ConfigMap shop/internal-ca"),
        (ca_map("no certificate"), ("*",), "holds no PEM"),
        (ca_map("no certificate"), ("other",), "kubernetes.secret_namespaces"),
    ],
)
def test_without_its_authorities_nobody_is_let_in(
    stage: PolicyStage, config_map: str, namespaces: tuple[str, ...], why: str
) -> None:
    stage.tls = TlsOptions(namespaces=namespaces)
    context = stage.serving(of_ingress({"backend-ca": "internal-ca"}), config_map)
    assert stage.request("ingress").status == 403
    (refused,) = context.refused
    assert (refused.field, why in refused.detail) == ("annotation pyconfd.io/backend-ca", True), refused


@haproxy
def test_authorities_that_come_open_what_waited_for_them(stage: PolicyStage, speaking: SpeakingPods) -> None:
    objects = (
        to_pods(of_ingress({"backend-ca": "internal-ca", "backend-server-name": _NAME})),
        service(speaking.ports["tls"], "speaking"),
    )
    stage.serving(*objects)
    assert stage.request("ingress").status == 403
    stage.serving(*objects, ca_map(speaking.ca))
    assert stage.request("ingress").status == 200


@haproxy
def test_routes_say_it_otherwise(stage: PolicyStage) -> None:
    context = stage.serving(WAYS["httproute"]({"backend-ca": "internal-ca"}))
    assert stage.request("httproute").status == 403
    (refused,) = context.refused
    assert "write a BackendTLSPolicy" in refused.detail


@haproxy
def test_ingress_nginx(stage: PolicyStage, speaking: SpeakingPods) -> None:
    stage.nginx_classes = ("nginx",)

    def said(**words: str) -> str:
        named = {name.replace("_", "-"): text for name, text in words.items()}
        return to_pods(of_ingress(named, prefix=nginx.PREFIX, class_name="nginx"))

    objects = (service(speaking.ports["tls"], "speaking"), ca_map(speaking.ca))
    assert not stage.serving(said(backend_protocol="HTTPS"), *objects).refused
    assert stage.request("ingress").body.split()[:2] == ["1", "tls"]
    verified = said(
        backend_protocol="HTTPS", proxy_ssl_verify="on", proxy_ssl_name=_NAME, proxy_ssl_secret="shop/internal"
    )
    refused = [each.field for each in stage.serving(verified, *objects).refused]
    # Of the Secret, what HAProxy would present to pods is left.
    assert refused == [f"annotation {nginx.PREFIX}proxy-ssl-verify", "metadata.annotations"]
    assert stage.request("ingress").status == 403
    with_own = verified.replace("annotations:", "annotations:\n    pyconfd.io/backend-ca: internal-ca")
    stage.serving(with_own, *objects)
    assert stage.request("ingress").body.split() == ["1", "tls", _NAME]


def _of_server(stage: PolicyStage, field: str) -> str:
    """Return what HAProxy says of the first server of an object of the test."""
    lines = ask(stage.haproxy.master_socket, "@1 show stat").lstrip("# ").splitlines()
    return next(
        row[field]
        for row in csv.DictReader(lines)
        if "_shop_" in row["pxname"] and row["svname"] not in {"BACKEND", "FRONTEND"}
    )


@haproxy
@ways
def test_requests_wait_for_a_pod_that_has_no_room(stage: PolicyStage, way: str) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def script(path: str) -> int:
        if path == "/long":
            is_in.set()
            may_go.wait(60)
        return 200

    assert stage.pod is not None
    stage.pod.script = script
    words = {"max-connections-per-pod": "1", "queue-timeout": "200ms"}
    stage.serving(WAYS[way](words))
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(stage.request, way, "/long")
            assert is_in.wait(60)
            assert stage.request(way, "/short").status == 503
        finally:
            may_go.set()
        assert first.result(60).status == 200
    assert stage.request(way, "/short").status == 200


@haproxy
@ways
def test_the_share_of_a_pod_grows(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"slow-start": "10m"}))
    lines = ask(stage.haproxy.master_socket, "@1 show servers state").splitlines()
    server = next(f"{each.split()[1]}/{each.split()[3]}" for each in lines if "_shop_" in each)
    ask(stage.haproxy.master_socket, f"@1 set server {server} weight 100")
    ask(stage.haproxy.master_socket, f"@1 set server {server} state maint")
    ask(stage.haproxy.master_socket, f"@1 set server {server} state ready")
    assert 0 < int(_of_server(stage, "weight")) < 50
    assert stage.request(way).status == 200


@haproxy
@ways
def test_a_pod_that_says_it_is_ill_gets_no_request(stage: PolicyStage, way: str) -> None:
    assert stage.pod is not None
    stage.pod.script = lambda path: 500 if path == "/healthz?deep=1" else 200
    stage.serving(WAYS[way]({"health-check": "http:/healthz?deep=1"}))
    wait_until(lambda: stage.request(way).status == 503, "the pod is down")
    stage.pod.script = lambda path: 302 if path == "/healthz?deep=1" else 200
    stage.serving(WAYS[way]({"health-check": "http:/healthz?deep=1"}))
    wait_until(lambda: _of_server(stage, "check_status") == "L7OK", "the pod was asked")
    assert stage.request(way, "/other").status == 200
    assert stage.pod.seen.count("/healthz?deep=1") >= 2


@haproxy
@pytest.mark.parametrize(
    ("pod", "protocol"), [("plain", "http"), ("h2c", "grpc"), ("tls", "https"), ("tls-h2", "grpcs")]
)
def test_pods_are_asked_as_they_are_spoken_to(
    stage: PolicyStage, speaking: SpeakingPods, pod: str, protocol: str
) -> None:
    words = {"backend-protocol": protocol, "health-check": "http:/healthz"}
    stage.serving(to_pods(of_ingress(words)), service(speaking.ports[pod], "speaking"))
    wait_until(lambda: _of_server(stage, "check_status").startswith("L7"), "the pod was asked")
    assert _of_server(stage, "check_status") == "L7OK"


@haproxy
@ways
@pytest.mark.parametrize(("text", "status"), [("tcp", "UP"), ("off", "no check")])
def test_pods_are_not_asked(stage: PolicyStage, way: str, text: str, status: str) -> None:
    stage.serving(WAYS[way]({"health-check": text}))
    wait_until(lambda: _of_server(stage, "status") == status, "its state is known")
    assert stage.request(way).status == 200


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("max-connections-per-pod", "0"),
        ("max-connections-per-pod", "1000000"),
        ("max-connections-per-pod", "5 check-sni a"),
        ("slow-start", "0s"),
        ("slow-start", "10"),
        ("health-check", "grpc"),
        ("health-check", "http:healthz"),
        ("health-check", "http:/a b"),
        ("health-check", "http:/%[src]"),
        ("health-check", "http:/$HOME"),
    ],
)
@pytest.mark.parametrize("kind", ["Ingress", "HTTPRoute", "GRPCRoute"])
def test_hostile_text_of_any_kind(word: str, text: str, kind: str) -> None:
    asked, (fault,) = asked_by([(word, text)], kind, "shop")
    assert (asked, fault.name) == (NOTHING_ASKED, word)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("backend-protocol", "FCGI"),
        ("backend-protocol", "AUTO_HTTP"),
        ("backend-protocol", "http ssl"),
        ("backend-ca", ""),
        ("backend-ca", "other/internal"),
        ("backend-ca", "../a"),
        ("backend-server-name", "*.example"),
        ("backend-server-name", "10.0.0.1"),
        ("backend-server-name", "a) crt /etc/shadow"),
    ],
)
def test_hostile_text(word: str, text: str) -> None:
    _, (fault,) = asked_by([(word, text)], "Ingress", "shop")
    assert (fault.name, fault.restricts) == (word, True)
    assert WORDS[word].kinds == ("Ingress",)
