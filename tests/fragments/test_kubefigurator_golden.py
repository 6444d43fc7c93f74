"""Each folder of tests/golden/kubefigurator holds objects, and what the shipped fragments make of them.

``readme/service.yaml`` is the example of haproxy-kubefigurator's readme as it stands there.
``PYCONFD_UPDATE_GOLDEN=1 pytest tests/fragments`` writes the results again; read the difference before you commit it.
"""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.fragments import of_presets
from pyconfd.model.kubernetes import Service, ServicePort, ServiceSpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.snapshot import HostFacts, Key, Snapshot
from pyconfd.predecessors.kubefigurator.claims import LABEL, PREFIX, KubefiguratorOptions
from pyconfd.presets.preset import PresetOptions, own_options
from tests.fragments.kubefigurator import GOLDEN, Case, read_case, render_case
from tests.fragments.shipped import HAPROXY, write_rendering
from tests.presets.objects import node
from tests.presets.test_properties import ASKED
from tests.world.clients import ask_tls
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.pki import CertificateAuthority

FILES_DIR = "/etc/haproxy/generated/files"
SSL_DIR = "/etc/haproxy/ssl"
CASES = sorted(path.name for path in GOLDEN.iterdir())
UPDATE = "PYCONFD_UPDATE_GOLDEN" in os.environ
needs_haproxy = pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")


def own_text(rendering: Rendering) -> str:
    return next(piece.text for piece in rendering.pieces if piece.fragment == "10-kubefigurator.tmpl")


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    folder = GOLDEN / case
    rendering, refused = render_case(read_case(folder, SSL_DIR), FILES_DIR)
    given = {"kubefigurator.cfg": own_text(rendering)}
    given |= {Path(file.path).name: file.content for file in rendering.files}
    if refused:
        given["refused.txt"] = "".join(f"{r.ref}: {r.field}: {r.value}: {r.reason}\n" for r in refused)
    if UPDATE:
        for name, content in given.items():
            (folder / name).write_text(content)
    expected = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in {".cfg", ".map", ".txt"}}
    assert given == expected


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    pair = CertificateAuthority(tmp_path_factory.mktemp("pki")).server(hosts=["example.com"])
    return pair.cert.read_bytes() + pair.key.read_bytes()


@pytest.mark.haproxy
@needs_haproxy
@pytest.mark.parametrize("case", CASES)
def test_haproxy_takes_every_golden_case_without_a_warning(case: str, tmp_path: Path, pem: bytes) -> None:
    found = read_case(GOLDEN / case, str(tmp_path / "ssl"))
    assert found.snapshot.host.certificates is not None
    for path, fault in found.snapshot.host.certificates.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(b"not PEM" if fault else pem)
    rendering, _ = render_case(found, str(tmp_path / "files"))
    check(rendering, tmp_path)


def test_the_readmes_example_has_the_shape_that_the_predecessor_rendered() -> None:
    """Line by line what its Render wrote; only ``reqadd`` has become ``http-request set-header``."""
    rendering, refused = render_case(read_case(GOLDEN / "readme", SSL_DIR), FILES_DIR)
    host, backend = (
        "ny-dashboard.ds.stackexchange.com",
        "k8s-service_kube-system_kubernetes-dashboard_web-ui_backend",
    )
    port = re.search(r"server ny-node01 10\.0\.0\.11:(3[0-9]{4}) ", rendering.text)
    assert port is not None
    lines = [line.strip() for line in own_text(rendering).splitlines() if line.strip()]
    assert lines == [
        "frontend k8s-service_all_443_listen",
        "mode http",
        f"bind *:443 ssl crt {SSL_DIR}/{host}.pem",
        "http-request set-header X-Forwarded-Proto https",
        f"# Set up backend selection for {host}",
        f"use_backend {backend} if {{ hdr(host) -i {host} }}",
        f"use_backend {backend} if {{ hdr(host) -i {host}:443 }}",
        f"backend {backend}",
        "mode http",
        "balance roundrobin",
        "# Backend Servers",
        f"server ny-node01 10.0.0.11:{port[1]} check ssl verify none",
        f"server ny-node02 10.0.0.12:{port[1]} check ssl verify none",
    ]
    assert refused == ()


def test_the_shipped_set_of_the_preset_and_of_two_together() -> None:
    assert list(of_presets(["kubefigurator"])) == [
        "00-runtime.tmpl",
        "01-defaults.conf",
        "05-stats.tmpl",
        "06-peers.tmpl",
        "10-kubefigurator.tmpl",
    ]
    assert list(of_presets(["domains", "kubefigurator"])) == [
        "00-runtime.tmpl",
        "01-defaults.conf",
        "02-http.tmpl",
        "03-https.tmpl",
        "04-tcp.tmpl",
        "05-stats.tmpl",
        "06-peers.tmpl",
        "07-ingress.tmpl",
        "08-auth.tmpl",
        "08-gateway.tmpl",
        "08-rules.tmpl",
        "09-loadbalancer.tmpl",
        "10-kubefigurator.tmpl",
        "10-spares.tmpl",
        "client.j2",
        "http-routing.j2",
        "pool.j2",
        "tls.j2",
    ]


def check(rendering: Rendering, folder: Path) -> None:
    write_rendering(rendering, folder / "haproxy.cfg")
    command = [HAPROXY, "-c", "-f", str(folder / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def a_service(name: str, options: dict[str, str]) -> Service:
    meta = ObjectMeta(
        name,
        "demo",
        creation_timestamp="2026-01-01T00:00:00Z",
        labels={LABEL: "yes"},
        annotations={f"{PREFIX}web.{option}": value for option, value in options.items()},
    )
    return Service(meta, ServiceSpec((ServicePort("web", 80, node_port=30080),), "NodePort"))


def a_case(services: list[Service], host: HostFacts, ssl_dir: str, **own: Any) -> Case:
    nodes = {Key("", name): node(name, address) for name, address in (("n1", "10.0.0.1"), ("n2", "fd00::2"))}
    store = {Key("demo", each.metadata.name): each for each in services}
    options = PresetOptions(own=own_options(KubefiguratorOptions(ssl_dir=ssl_dir, **own)))
    return Case(Snapshot(services=store, nodes=nodes, host=host), options)


METHODS = (
    *("roundrobin", "static-rr", "leastconn", "first", "source", "random", "random(2)", "rdp-cookie", "rdp-cookie(a)"),
    *("uri", "uri whole", "uri path-only", "uri len 12 depth 3", "url_param user", "url_param user check_post"),
    *("hdr(X-User)", "hdr(Host) use_domain_only"),
)


@pytest.mark.haproxy
@needs_haproxy
def test_haproxy_knows_every_balance_method_that_is_taken(tmp_path: Path) -> None:
    services = [
        a_service(
            f"{mode}-{at}",
            {
                "haproxy-mode": mode,
                "use-ssl": "false",
                "hostname": f"s{at}.example.com",
                "listen-port": str(2000 + at) if mode == "tcp" else "1999",
                "backends-balance-method": method,
            },
        )
        for mode in ("http", "tcp")
        for at, method in enumerate(METHODS)
    ]
    rendering, refused = render_case(a_case(services, HostFacts(), "/ssl"), str(tmp_path))

    check(rendering, tmp_path)
    for method in METHODS:
        assert f"    balance {method}\n" in rendering.text
    assert {refusal.value for refusal in refused} == set(METHODS[9:])


@pytest.mark.haproxy
@needs_haproxy
@given(st.lists(ASKED, max_size=8))
@settings(max_examples=15, deadline=None)
def test_haproxy_takes_what_any_cluster_gives(
    tmp_path_factory: pytest.TempPathFactory, pem: bytes, asked: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    paths = [folder / f"{hostname}.pem" for hostname in ("a.example.com", "*.example.com")]
    for path in paths:
        path.write_bytes(pem)
    host = HostFacts(certificates={str(path): "" for path in paths})
    services = [a_service(f"s{at}", options) for at, options in enumerate(asked)]
    rendering, _ = render_case(a_case(services, host, str(folder)), str(folder / "files"))

    check(rendering, folder)


@pytest.mark.haproxy
@needs_haproxy
def test_certificates_of_a_list_are_chosen_by_name_too(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    names = [f"s{at:02d}.example.com" for at in range(26)]
    for name in names:
        pair = authority.server(name, [name])
        (tmp_path / f"{name}.pem").write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
    port = free_port()
    listen = {"listen-ip": "127.0.0.1", "listen-port": str(port)}
    services = [a_service(name[:3], {"hostname": name} | listen) for name in names]
    case = a_case(services, HostFacts(), str(tmp_path), listen_ports=((1024, 65535),))
    case = Case(replace(case.snapshot, nodes={}), case.options)
    rendering, _ = render_case(case, str(tmp_path / "files"))
    assert " ssl crt-list " in rendering.text
    with HaproxyProcess(tmp_path) as haproxy:
        text = rendering.text.replace("bind 127.0.0.1:8404", f"bind 127.0.0.1:{free_port()}")
        text = text.replace("/run/haproxy/pyconfd.sock", haproxy.stats_socket)
        write_rendering(Rendering((Piece("all", text),), rendering.files), haproxy.conf)
        haproxy.start()
        for name in (names[0], names[17], names[25]):
            # Whatever is answered: the certificate was this name's own, or it would be a failure of verification.
            assert ask_tls(port, name, str(authority.cert)) == "503"
        assert ask_tls(port, "other.example.com", str(authority.cert)) == "failed: SSLCertVerificationError"
