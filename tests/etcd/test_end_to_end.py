"""Real processes: a producer, a real etcd, real consumers, a real haproxy, a request that a pod answers."""

import json
import shutil
import signal
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from pyconfd import fragments
from tests.etcd.harness import PATIENCE_S, EtcdHarness
from tests.simulation.place import own_address
from tests.world.clients import ask, ask_tls
from tests.world.etcd import BINARY as ETCD
from tests.world.etcd import EtcdProcess, Tls
from tests.world.haproxy import BINARY as HAPROXY
from tests.world.haproxy import free_port
from tests.world.objects import PortSpec
from tests.world.pki import CertificateAuthority, KeyPair

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not Path(ETCD).exists() or not Path(HAPROXY).exists(), reason="no etcd or no haproxy binary"),
]


def test_one_producer_and_twenty_consumers(harness: EtcdHarness) -> None:
    harness.service("shop", "127.19.1.1", "127.19.1.2")
    haproxy = harness.balancer("balancer")
    producer, consumer = harness.configure("producer"), harness.configure("consumer", haproxy)
    light = {name: harness.consumer(name) for name in (f"light-{number}" for number in range(19))}
    harness.start("consume", consumer)
    harness.start("publish", producer)
    harness.until(haproxy.conf.exists)
    haproxy.start()
    harness.answers("shop-1", "shop-2")
    harness.service("shop", "127.19.1.3")
    harness.answers("shop-3")
    harness.until(lambda: all("127.19.1.3" in one.text() for one in light.values()))
    folders = [*(harness.folder / name for name in light), harness.folder / "consumer" / "state"]
    harness.until(lambda: len({(folder / "consumed.json").read_text() for folder in folders}) == 1)
    assert len({one.text().replace(str(harness.folder / name), "") for name, one in light.items()}) == 1
    harness.has_phase(consumer, "serving")
    harness.until(lambda: harness.status(consumer)["source"]["etcd"][0]["healthy"])
    harness.until(lambda: harness.note(producer).startswith("publishes"))


def test_a_second_producer_takes_over_when_the_first_is_killed(harness: EtcdHarness) -> None:
    harness.service("shop", "127.19.2.1")
    first, second = harness.configure("first"), harness.configure("second")
    killed, light = harness.start("publish", first), harness.consumer()
    harness.until(lambda: "127.19.2.1" in light.text())
    harness.start("publish", second)
    harness.until(lambda: "campaign.standing_by" in harness.log(second))
    killed.kill()
    harness.service("shop", "127.19.2.2")
    harness.until(lambda: "127.19.2.2" in light.text())
    assert "campaign.won" in harness.log(second)
    harness.until(lambda: light.taken.load()[0] == 2)
    assert light.status().failures_by_step == {}


def test_without_etcd_everything_goes_on_serving(harness: EtcdHarness) -> None:
    harness.service("shop", "127.19.3.1")
    haproxy = harness.balancer("balancer")
    producer, consumer = harness.configure("producer"), harness.configure("consumer", haproxy)
    harness.start("publish", producer)
    consuming = harness.start("consume", consumer)
    harness.until(haproxy.conf.exists)
    haproxy.start()
    harness.has_phase(consumer, "serving")
    harness.etcd.kill()
    harness.until(lambda: "Connection refused" in harness.status(consumer)["source"]["etcd"][0]["last_error"])
    assert ask(harness.http, "shop.example.com") == "shop-1"

    # A balancer that boots now has only what it had: haproxy and pyconfd start again, and the file is gone.
    consuming.send_signal(signal.SIGTERM)
    consuming.wait(PATIENCE_S)
    haproxy.stop()
    haproxy.conf.unlink()
    harness.start("consume", consumer)
    harness.until(haproxy.conf.exists)
    haproxy.start()
    harness.answers("shop-1")
    harness.has_phase(consumer, "serving_last_good")

    harness.service("shop", "127.19.3.2")
    harness.etcd.start()
    harness.answers("shop-2")
    harness.has_phase(consumer, "serving")


def test_a_running_producer_publishes_damaged_chunks_again(harness: EtcdHarness) -> None:
    harness.service("shop", "127.19.9.1")
    producer = harness.configure("producer")
    harness.start("publish", producer)
    harness.until(lambda: harness.etcd.ctl("get", "/pyconfd/current").stdout)
    harness.etcd.ctl("del", "/pyconfd/chunks/", "--prefix")
    light = harness.consumer()
    harness.until(lambda: "127.19.9.1" in light.text())
    assert "publication.damaged" in harness.log(producer)


def test_private_keys_stay_where_they_are(harness: EtcdHarness, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    of_producer, of_consumer, renewed = (
        authority.server(name, ["shop.example.com"]) for name in ("producer", "consumer", "renewed")
    )
    (harness.fragments_of() / "01.tmpl").write_text(
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 9s\n    timeout server 9s\n"
        "frontend https\n"
        f"    bind 127.0.0.1:{harness.https} ssl crt {{{{ certificate_file('shop', vars.pem) }}}}\n"
        "    http-request return status 200 content-type text/plain string hello\n"
    )
    haproxy = harness.balancer("balancer")
    secret = of_producer.key.read_text()
    harness.producer_settings = {"templates.vars": {"pem": of_producer.cert.read_text() + secret}}
    producer, consumer = harness.configure("producer"), harness.configure("consumer", haproxy)
    harness.start("consume", consumer)
    harness.publish_once(producer)
    stored = harness.etcd.dump()
    assert b"producer" in stored
    assert b"PRIVATE" not in stored
    assert "".join(secret.splitlines()[1:-1])[:60].encode() not in stored

    # The consumer says what it lacks, and takes it as soon as it is there.
    own = haproxy.conf.parent / "files" / "certs" / "shop.pem"
    harness.until(lambda: str(own) in str(harness.status(consumer).get("problems")))
    assert not haproxy.conf.exists()
    _install(own, of_consumer)
    harness.until(haproxy.conf.exists)
    haproxy.start()
    harness.until(lambda: _serial(harness.https) == _serial_of(of_consumer))
    _install(own, renewed)
    harness.until(lambda: _serial(harness.https) == _serial_of(renewed))
    assert own.exists()


def _install(path: Path, pair: KeyPair) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(pair.cert.read_text() + pair.key.read_text())
    beside.replace(path)


def _serial_of(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number


def _serial(port: int) -> int:
    """Return the serial number of the certificate that a server shows, 0 where none does."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname="shop.example.com") as secured,
        ):
            return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"").serial_number
    except OSError:
        return 0


def test_as_the_predecessors_users_typed_it_with_tls_and_a_password(tmp_path: Path) -> None:
    tls = Tls.make(tmp_path)
    password = tmp_path / "password"
    password.write_text("secret\n")
    with EtcdProcess(tmp_path / "etcd", tls=tls) as etcd, EtcdHarness(tmp_path / "harness", etcd) as harness:
        path = "stackexchange.com/haproxy-kubefigurator/config"
        etcd.demand_login("balancers", "secret", path)
        # A lease that outlasts a busy machine: the one who publishes keeps it.
        harness.etcd_settings = {"user": "balancers", "password_file": str(password), "path": path, "lease_s": 60}
        harness.service("shop", "127.19.5.1")
        haproxy = harness.balancer("balancer")
        producer, consumer = harness.configure("producer"), harness.configure("consumer", haproxy)
        flags = (
            "--config", str(producer),
            "--etcd-host", f"https://127.0.0.1:{free_port()}", "--etcd-host", etcd.url, "--etcd-path", path,
            "--etcd-ca-file", str(tls.ca),
            "--etcd-client-cert-file", str(tls.client.cert), "--etcd-client-key-file", str(tls.client.key),
        )  # fmt: skip
        viewed = harness.run(*flags, "view")
        assert viewed.returncode == 0, viewed.stderr
        assert "127.19.5.1" in viewed.stdout
        assert etcd.ctl("get", path, "--prefix").stdout == ""
        assert harness.run(*flags, "apply").stdout == f"Published below {path} as generation 1.\n"
        assert "says all of it already" in harness.run(*flags, "apply").stdout
        harness.start("consume", consumer)
        harness.until(haproxy.conf.exists)
        haproxy.start()
        harness.answers("shop-1")
        # Everything gone at once: held unless it is meant.
        harness.empty("shop")
        held = harness.run(*flags, "apply")
        assert (held.returncode, "endpoint" in held.stderr) == (1, True)
        harness.service("shop", "127.19.5.2")
        harness.start("publish", producer)
        harness.answers("shop-2")
        # Another producer, a wrong password and a wrong CA are named, and change nothing that serves.
        once = ("publish", "--once", "--config", str(producer))
        failures = [harness.run(*once)]
        password.write_text("wrong")
        failures += [harness.run(*once), harness.run(*once, "--etcd-ca", str(tls.other_ca))]
        assert [each.returncode for each in failures] == [75, 75, 75]
        for words, failed in zip(("publishes", "invalid user ID or password", "TLS: "), failures, strict=True):
            assert words in failed.stderr
        assert ask(harness.http, "shop.example.com").startswith("shop-")


def test_what_is_left_out_keeps_nothing_from_being_published(harness: EtcdHarness) -> None:
    directory = harness.fragments_of()
    shipped = Path(fragments.directory())
    for source in (*shipped.glob("0*"), *shipped.glob("*.j2")):
        (directory / source.name).write_bytes(source.read_bytes())
    (directory / "06-own.tmpl").write_text(
        "{% for domain, items in domains.items() if domain.startswith('bad') %}balance nonsense\n{% endfor %}\n"
    )
    harness.service("shop", "127.19.4.1")
    harness.service("bad", "127.19.4.2")
    producer = harness.configure("producer")
    target = {"name": "edge", "template": "/t/edge.tpl", "output": f"{harness.folder}/edge", "notify": "debug:"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in target.items()]
    producer.write_text(producer.read_text() + "\n".join(["[[targets]]", *lines]) + "\n")
    printed = harness.publish_once(producer)
    assert "as generation 1, without Service demo/bad" in printed
    assert "it does nothing for edge" in printed
    light = harness.consumer()
    harness.until(lambda: "shop.example.com" in light.text())
    assert "bad.example.com" not in light.text()


def test_a_check_longer_than_the_lease_still_publishes(harness: EtcdHarness, tmp_path: Path) -> None:
    """The lease ends while HAProxy checks; who stands by may have it then, and here nobody does."""
    haproxy, done = tmp_path / "haproxy", tmp_path / "done"
    etcdctl = f"{shutil.which('etcdctl')} --endpoints={','.join(harness.etcd.settings().endpoints)} lease"
    haproxy.write_text(
        "#!/bin/sh\nexport ETCDCTL_API=3\n"
        f"{etcdctl} list | tail -n +2 | xargs -r -n 1 {etcdctl} revoke >>{done}\n"
        f'exec {HAPROXY} "$@"\n'
    )
    haproxy.chmod(0o755)
    harness.service("shop", "127.19.4.1")
    assert "as generation 1" in harness.publish_once(harness.configure("producer"), "--haproxy-binary", str(haproxy))
    assert "revoked" in done.read_text()


README = Path(__file__).parent.parent / "golden" / "kubefigurator" / "readme" / "service.yaml"
DASHBOARD = "ny-dashboard.ds.stackexchange.com"
OTHER = "other.example.com"
PREFIX = "haproxy-kubefigurator."


def test_kubefigurator_is_published_without_certificates_and_served_with_them(
    harness: EtcdHarness, tmp_path: Path
) -> None:
    # The README gives its node port: on a node that no other run of this test has.
    node = own_address()
    authority = CertificateAuthority(tmp_path / "pki")
    ssl_dir, port = tmp_path / "ssl", free_port()
    harness.fragments_of("kubefigurator")
    harness.producer_settings = {
        "presets": {"use": ["kubefigurator"]},
        "kubefigurator": {"cluster": "ny", "ssl_dir": str(ssl_dir), "listen_ports": ["1024-65535"]},
    }
    haproxy = harness.balancer("balancer")
    producer, consumer = harness.configure("producer"), harness.configure("consumer", haproxy)
    harness.cluster.add_node("ny-node01", node)
    harness.cluster.add_namespace("kube-system")
    harness.cluster.load(README)
    listens = {"listen-port": str(port), "listen-ip": "127.0.0.1"}
    changed: dict[str, str | None] = {f"{PREFIX}web-ui.{option}": value for option, value in listens.items()}
    example = harness.cluster.annotate("services", "kube-system", "kubernetes-dashboard", changed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.server("node", [node])
    context.load_cert_chain(pair.cert, pair.key)
    harness.pods.add("dashboard", node, example["spec"]["ports"][0]["nodePort"], tls=context)
    options = {f"{PREFIX}web.{option}": value for option, value in {**listens, "hostname": OTHER}.items()}
    harness.cluster.add_service(
        "demo", "other", ports=[PortSpec("web", 443, 8443, node_port=30100)],
        annotations=options, labels={f"{PREFIX}enabled": "yes"}, type="NodePort",
    )  # fmt: skip

    harness.publish_once(producer)
    assert not ssl_dir.exists()
    harness.start("consume", consumer)
    harness.until(haproxy.conf.exists)
    haproxy.start()
    harness.has_phase(consumer, "serving")
    # No certificate is there yet: the listeners that lack one are left out and named, and all else is served.
    assert ask(harness.stats, "localhost") != "failed"
    assert f"{ssl_dir}/{DASHBOARD}.pem" in harness.note(consumer)
    assert f"bind 127.0.0.1:{port} ssl" not in haproxy.conf.read_text()

    ssl_dir.mkdir()
    one = authority.server("hosts", [DASHBOARD, OTHER])
    pem = one.cert.read_bytes() + one.key.read_bytes()
    (ssl_dir / f"{DASHBOARD}.pem").write_bytes(pem)
    harness.until(lambda: ask_tls(port, DASHBOARD, str(authority.cert)) == "dashboard")
    harness.until(lambda: DASHBOARD not in harness.note(consumer))
    assert f"{ssl_dir}/{OTHER}.pem: No such file or directory" in harness.note(consumer)
    (ssl_dir / f"{OTHER}.pem").write_text("garbage")
    harness.until(lambda: f"{OTHER}.pem: the file has no cert" in harness.note(consumer))
    (ssl_dir / f"{OTHER}.pem").write_bytes(pem)
    harness.until(lambda: "left out" not in harness.note(consumer))
    harness.until(lambda: ask_tls(port, DASHBOARD, str(authority.cert)) == "dashboard")
    assert "crt-list" in haproxy.conf.read_text()
    assert b"PRIVATE" not in harness.etcd.dump()


TEMPLATE = """\
global
    maxconn 1000
defaults
    mode http
    timeout connect 5000
    timeout client 50000
    timeout server 50000
frontend http
    bind 127.0.0.1:@PORT@
    default_backend all
backend all
{%- for service in services %}
{%- for pod in service.pods.itervalues() %}
    server {{ pod.metadata.name }} {{ pod.status.podIP }}:{{ service.ports[0] }}
{%- endfor %}
{%- endfor %}
"""


def test_a_template_from_the_cluster_is_judged_before_it_is_published(harness: EtcdHarness) -> None:
    def config_map(name: str, **data: str) -> None:
        harness.cluster.put("configmaps", {"metadata": {"name": name, "namespace": "lb"}, "data": data})

    template = TEMPLATE.replace("@PORT@", str(harness.http))
    for namespace in ("demo", "lb"):
        harness.cluster.add_namespace(namespace)
    harness.pods.add("shop-1", "127.19.6.1")
    status = {
        "phase": "Running",
        "podIP": "127.19.6.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": True}],
    }
    metadata = {"name": "shop-1", "namespace": "demo", "labels": {"app": "shop"}}
    harness.cluster.put("pods", {"metadata": metadata, "spec": {}, "status": status})
    entry = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": ["shop"], "ports": [harness.pods.port]}
    config_map("services", shop=json.dumps(entry))
    config_map("config", template=template)
    harness.fragments_of()
    harness.producer_settings = {
        "presets": {"use": ["configmap"]},
        "cluster_templates": {"allow_configuration_from_cluster": True},
    }
    haproxy = harness.balancer("balancer")
    producer, consumer = harness.configure("producer"), harness.configure("consumer", haproxy)
    harness.start("consume", consumer)
    harness.start("publish", producer)
    harness.until(haproxy.conf.exists)
    haproxy.start()
    harness.answers("shop-1")
    published = harness.etcd.ctl("get", "/pyconfd/current", "--print-value-only").stdout
    config_map("config", template=template.replace("maxconn 1000", "lua-load /tmp/x.lua"))
    refused = "the directive 'lua-load' is not allowed in text from the cluster"
    harness.until(lambda: refused in " ".join(harness.status(producer)["problems"]))
    assert harness.etcd.ctl("get", "/pyconfd/current", "--print-value-only").stdout == published
    config_map("config", template=template.replace("maxconn 1000", "maxconn 2000"))
    harness.until(lambda: "maxconn 2000" in haproxy.conf.read_text())
