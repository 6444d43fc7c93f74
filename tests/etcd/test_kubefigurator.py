"""What haproxy-kubefigurator was for: its Services, rendered where no certificate is, served where the keys are."""

import ssl
from pathlib import Path

import pytest

from pyconfd.fragments import of_presets
from tests.etcd.stage import Stage, wait_for
from tests.simulation.place import own_address
from tests.world.clients import ask, ask_tls
from tests.world.etcd import BINARY as ETCD
from tests.world.haproxy import BINARY as HAPROXY
from tests.world.haproxy import free_port
from tests.world.objects import PortSpec
from tests.world.pki import CertificateAuthority

README = Path(__file__).parent.parent / "golden" / "kubefigurator" / "readme" / "service.yaml"
DASHBOARD = "ny-dashboard.ds.stackexchange.com"
PREFIX = "haproxy-kubefigurator."

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not Path(ETCD).exists() or not Path(HAPROXY).exists(), reason="no etcd or no haproxy binary"),
]


@pytest.mark.parametrize("others", [1, 30], ids=["two certificates", "many certificates"])
def test_published_without_certificates_and_served_with_them(stage: Stage, tmp_path: Path, others: int) -> None:
    # The README gives its node port: on a node that no other run of this test has.
    node = own_address()
    authority = CertificateAuthority(tmp_path / "pki")
    ssl_dir, fragments, port = tmp_path / "ssl", tmp_path / "fragments", free_port()
    fragments.mkdir()
    for name, path in of_presets(["kubefigurator"]).items():
        (fragments / name).write_bytes(path.read_bytes())
    stage.fragments = str(fragments)
    haproxy = stage.balancer("balancer")
    producer, consumer = stage.configure("producer"), stage.configure("consumer", haproxy)
    own = f'[kubefigurator]\ncluster = "ny"\nssl_dir = "{ssl_dir}"\nlisten_ports = ["1024-65535"]\n'
    producer.write_text(producer.read_text().replace("[presets]", '[presets]\nuse = ["kubefigurator"]') + own)
    stage.cluster.add_node("ny-node01", node)
    stage.cluster.add_namespace("kube-system")
    stage.cluster.load(README)
    listens = {"listen-port": str(port), "listen-ip": "127.0.0.1"}
    changed: dict[str, str | None] = {f"{PREFIX}web-ui.{option}": value for option, value in listens.items()}
    example = stage.cluster.annotate("services", "kube-system", "kubernetes-dashboard", changed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.server("node", [node])
    context.load_cert_chain(pair.cert, pair.key)
    stage.pods.add("dashboard", node, example["spec"]["ports"][0]["nodePort"], tls=context)
    hosts = [DASHBOARD, *(f"host-{number}.example.com" for number in range(others))]
    for number, host in enumerate(hosts[1:]):
        options = {f"{PREFIX}web.{option}": value for option, value in {**listens, "hostname": host}.items()}
        stage.cluster.add_service(
            "demo", f"host-{number}", ports=[PortSpec("web", 443, 8443, node_port=30100 + number)],
            annotations=options, labels={f"{PREFIX}enabled": "yes"}, type="NodePort",
        )  # fmt: skip

    published = stage.run("publish", "--once", "--config", str(producer))
    assert published.returncode == 0, published.stderr
    assert not ssl_dir.exists()
    stage.start("consume", consumer)
    wait_for(haproxy.conf.exists, lambda: stage.log(consumer))
    haproxy.start()
    wait_for(lambda: stage.status(consumer).get("phase") == "serving", lambda: stage.log(consumer))
    # Nothing is there yet: what strangers asked for is left out and said, and all else is served.
    assert ask(stage.stats, "localhost") != "failed"
    assert f"{ssl_dir}/{DASHBOARD}.pem" in stage.status(consumer)["source"]["note"]
    assert f"bind 127.0.0.1:{port} ssl" not in haproxy.conf.read_text()

    ssl_dir.mkdir()
    one = authority.server("hosts", hosts)
    pem = one.cert.read_bytes() + one.key.read_bytes()
    (ssl_dir / f"{DASHBOARD}.pem").write_bytes(pem)
    ca = str(authority.cert)
    wait_for(lambda: ask_tls(port, DASHBOARD, ca) == "dashboard", lambda: stage.log(consumer))
    # What the process does is seen before what is told of it.
    wait_for(lambda: DASHBOARD not in stage.status(consumer)["source"]["note"], lambda: stage.log(consumer))
    assert f"{ssl_dir}/host-0.example.com.pem: No such file or directory" in stage.status(consumer)["source"]["note"]
    (ssl_dir / "host-0.example.com.pem").write_text("garbage")
    wait_for(lambda: "host-0.example.com.pem: the file has no cert" in stage.status(consumer)["source"]["note"], "said")
    for host in hosts[1:]:
        (ssl_dir / f"{host}.pem").write_bytes(pem)
    wait_for(lambda: "left out" not in stage.status(consumer)["source"]["note"], lambda: stage.log(consumer))
    wait_for(lambda: ask_tls(port, DASHBOARD, ca) == "dashboard", lambda: stage.log(consumer))
    assert "crt-list" in haproxy.conf.read_text()
    assert b"PRIVATE" not in stage.etcd.dump()
