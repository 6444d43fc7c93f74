"""Real processes: a producer, a real etcd, real consumers, a real haproxy, a request that a pod answers."""

import json
import shutil
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509

from pyconfd import fragments
from tests.etcd.stage import PATIENCE_S, LightConsumer, Stage, wait_for
from tests.world.clients import ask
from tests.world.etcd import BINARY as ETCD
from tests.world.etcd import EtcdProcess, Tls
from tests.world.haproxy import BINARY as HAPROXY
from tests.world.haproxy import free_port
from tests.world.pki import CertificateAuthority, KeyPair

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not Path(ETCD).exists() or not Path(HAPROXY).exists(), reason="no etcd or no haproxy binary"),
]


def test_one_producer_and_twenty_consumers(stage: Stage) -> None:
    stage.service("shop", "127.19.1.1", "127.19.1.2")
    haproxy = stage.balancer("balancer")
    producer, consumer = stage.configure("producer"), stage.configure("consumer", haproxy)
    with ExitStack() as stack:
        light = [
            stack.enter_context(LightConsumer(stage.etcd, stage.folder / f"light-{number}")) for number in range(19)
        ]
        stage.start("consume", consumer)
        stage.start("publish", producer)
        wait_for(haproxy.conf.exists, lambda: stage.log(producer) + stage.log(consumer))
        haproxy.start()
        wait_for(lambda: ask(stage.http, "shop.example.com") in {"shop-1", "shop-2"}, lambda: stage.log(consumer))
        stage.service("shop", "127.19.1.3")
        wait_for(lambda: ask(stage.http, "shop.example.com") == "shop-3", lambda: stage.log(consumer))
        wait_for(lambda: all("127.19.1.3" in one.text() for one in light), "all consumers have the new pod")
        folders = [stage.folder / f"light-{number}" for number in range(19)] + [stage.folder / "consumer" / "state"]
        wait_for(lambda: len({(folder / "consumed.json").read_text() for folder in folders}) == 1, "one digest")
        texts = {one.text().replace(str(stage.folder / f"light-{number}"), "") for number, one in enumerate(light)}
        assert len(texts) == 1
        # What was taken is remembered before it is told, and who publishes is told every few seconds.
        wait_for(lambda: stage.status(consumer)["phase"] == "serving", lambda: stage.log(consumer))
        wait_for(lambda: stage.status(consumer)["source"]["etcd"][0]["healthy"], lambda: stage.log(consumer))
    wait_for(lambda: stage.status(producer)["source"]["note"].startswith("publishes"), lambda: stage.log(producer))


def test_a_second_producer_takes_over_when_the_first_is_killed(stage: Stage) -> None:
    stage.service("shop", "127.19.2.1")
    first, second = stage.configure("first"), stage.configure("second")
    killed = stage.start("publish", first)
    with LightConsumer(stage.etcd, stage.folder / "light") as light:
        wait_for(lambda: "127.19.2.1" in light.text(), lambda: stage.log(first))
        stage.start("publish", second)
        wait_for(lambda: "campaign.standing_by" in stage.log(second), lambda: stage.log(second))
        stage.kill(killed)
        stage.service("shop", "127.19.2.2")
        wait_for(lambda: "127.19.2.2" in light.text(), lambda: stage.log(second))
        assert "campaign.won" in stage.log(second)
        assert _pointer(stage)["number"] == 2
        wait_for(lambda: light.taken.load()[0] == 2, "it is remembered")
        assert light.status().failures_by_step == {}


def test_without_etcd_everything_goes_on_serving(stage: Stage) -> None:
    stage.service("shop", "127.19.3.1")
    haproxy = stage.balancer("balancer")
    producer, consumer = stage.configure("producer"), stage.configure("consumer", haproxy)
    stage.start("publish", producer)
    consuming = stage.start("consume", consumer)
    wait_for(haproxy.conf.exists, lambda: stage.log(consumer))
    haproxy.start()
    wait_for(lambda: stage.status(consumer).get("phase") == "serving", lambda: stage.log(consumer))
    stage.etcd.kill()
    wait_for(lambda: "Connection refused" in stage.status(consumer)["source"]["etcd"][0]["last_error"], "it is said")
    assert ask(stage.http, "shop.example.com") == "shop-1"

    # A balancer that boots now has only what it had: haproxy and pyconfd start again, and the file is gone.
    consuming.terminate()
    consuming.wait(PATIENCE_S)
    haproxy.stop()
    haproxy.conf.unlink()
    stage.start("consume", consumer)
    wait_for(haproxy.conf.exists, lambda: stage.log(consumer))
    haproxy.start()
    wait_for(lambda: ask(stage.http, "shop.example.com") == "shop-1", lambda: stage.log(consumer))
    wait_for(lambda: stage.status(consumer).get("phase") == "serving_last_good", lambda: stage.log(consumer))

    stage.service("shop", "127.19.3.2")
    stage.etcd.start()
    wait_for(lambda: ask(stage.http, "shop.example.com") == "shop-2", lambda: stage.log(producer) + stage.log(consumer))
    wait_for(lambda: stage.status(consumer).get("phase") == "serving", lambda: stage.log(consumer))


def test_private_keys_stay_where_they_are(stage: Stage, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    of_producer, of_consumer = (
        authority.server("producer", ["shop.example.com"]),
        authority.server("consumer", ["shop.example.com"]),
    )
    templates = tmp_path / "fragments"
    templates.mkdir()
    (templates / "01.tmpl").write_text(
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 9s\n    timeout server 9s\n"
        "frontend https\n"
        f"    bind 127.0.0.1:{stage.https} ssl crt {{{{ certificate_file('shop', vars.pem) }}}}\n"
        "    http-request return status 200 content-type text/plain string hello\n"
    )
    stage.fragments = str(templates)
    haproxy = stage.balancer("balancer")
    producer, consumer = stage.configure("producer"), stage.configure("consumer", haproxy)
    secret = of_producer.key.read_text()
    pem = json.dumps(of_producer.cert.read_text() + secret)
    producer.write_text(producer.read_text().replace("http_bind", f"pem = {pem}\nhttp_bind", 1))
    stage.start("consume", consumer)
    published = stage.run("publish", "--once", "--config", str(producer))
    assert published.returncode == 0, published.stderr
    body = "".join(secret.splitlines()[1:-1])
    stored = stage.etcd.dump()
    assert b"producer" in stored
    assert b"PRIVATE" not in stored
    assert body[:60].encode() not in stored

    # The consumer says what it lacks, and takes it as soon as it is there.
    own = haproxy.conf.parent / "files" / "certs" / "shop.pem"
    wait_for(lambda: str(own) in str(stage.status(consumer).get("problems")), lambda: stage.log(consumer))
    assert not haproxy.conf.exists()
    _install(own, of_consumer)
    wait_for(haproxy.conf.exists, lambda: stage.log(consumer))
    haproxy.start()
    wait_for(lambda: _serial(stage.https) == _serial_of(of_consumer), lambda: stage.log(consumer))
    # A renewed one is loaded, too.
    renewed = authority.server("renewed", ["shop.example.com"])
    _install(own, renewed)
    wait_for(lambda: _serial(stage.https) == _serial_of(renewed), lambda: stage.log(consumer))
    assert own.exists()


def test_as_the_predecessors_users_typed_it_with_tls_and_a_password(tmp_path: Path) -> None:
    tls = Tls.make(tmp_path)
    password = tmp_path / "password"
    password.write_text("secret\n")
    with EtcdProcess(tmp_path / "etcd", tls=tls) as etcd, Stage(tmp_path / "stage", etcd) as stage:
        path = "stackexchange.com/haproxy-kubefigurator/config"
        etcd.demand_login("balancers", "secret", path)
        # A lease that outlasts a busy machine: the one who publishes keeps it.
        stage.etcd_settings = {"user": "balancers", "password_file": str(password), "path": path, "lease_s": 60}
        stage.service("shop", "127.19.5.1")
        haproxy = stage.balancer("balancer")
        producer, consumer = stage.configure("producer"), stage.configure("consumer", haproxy)
        flags = (
            "--etcd-host", f"https://127.0.0.1:{free_port()}", "--etcd-host", etcd.url, "--etcd-path", path,
            "--etcd-ca-file", str(tls.ca),
            "--etcd-client-cert-file", str(tls.client.cert), "--etcd-client-key-file", str(tls.client.key),
        )  # fmt: skip
        viewed = stage.run("--config", str(producer), *flags, "view")
        assert viewed.returncode == 0, viewed.stderr
        assert "127.19.5.1" in viewed.stdout
        assert etcd.ctl("get", path, "--prefix").stdout == ""
        applied = stage.run("--config", str(producer), *flags, "apply")
        assert applied.returncode == 0, applied.stderr
        assert applied.stdout == f"Published below {path} as generation 1.\n"
        assert "says all of it already" in stage.run("--config", str(producer), *flags, "apply").stdout
        stage.start("consume", consumer)
        wait_for(haproxy.conf.exists, lambda: stage.log(consumer))
        haproxy.start()
        wait_for(lambda: ask(stage.http, "shop.example.com") == "shop-1", lambda: stage.log(consumer))
        # Everything gone at once: held unless it is meant.
        stage.empty("shop")
        held = stage.run("--config", str(producer), *flags, "apply")
        assert held.returncode == 1
        assert "endpoint" in held.stderr
        stage.service("shop", "127.19.5.2")
        stage.start("publish", producer)
        wait_for(lambda: ask(stage.http, "shop.example.com") == "shop-2", lambda: stage.log(producer))
        second = stage.run("publish", "--once", "--config", str(producer))
        assert second.returncode == 75
        assert "publishes" in second.stderr
        # A wrong password and a wrong CA are named, and change nothing that serves.
        password.write_text("wrong")
        wrong = stage.run("publish", "--once", "--config", str(producer))
        assert (wrong.returncode, "invalid user ID or password" in wrong.stderr) == (75, True)
        wrong = stage.run("publish", "--once", "--config", str(producer), "--etcd-ca", str(tls.other_ca))
        assert (wrong.returncode, "no trusted connection" in wrong.stderr) == (75, True)
        assert ask(stage.http, "shop.example.com").startswith("shop-")


def _install(path: Path, pair: KeyPair) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(pair.cert.read_text() + pair.key.read_text())
    beside.replace(path)


def _serial_of(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number


def _serial(port: int) -> int:
    """Give the serial number of the certificate that a server shows, 0 where none does."""
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


def _pointer(stage: Stage) -> dict[str, object]:
    pointer: dict[str, object] = json.loads(stage.etcd.ctl("get", "/pyconfd/current", "--print-value-only").stdout)
    return pointer


def test_a_bad_object_keeps_nothing_from_being_published(stage: Stage, tmp_path: Path) -> None:
    templates = tmp_path / "fragments"
    templates.mkdir()
    for source in Path(fragments.directory()).glob("0*"):
        (templates / source.name).write_bytes(source.read_bytes())
    (templates / "06-own.tmpl").write_text(
        "{% for domain, items in domains.items() if domain.startswith('bad') %}balance nonsense\n{% endfor %}\n"
    )
    stage.fragments = str(templates)
    stage.service("shop", "127.19.4.1")
    stage.service("bad", "127.19.4.2")
    producer = stage.configure("producer")
    published = stage.run("publish", "--once", "--config", str(producer))
    assert published.returncode == 0, published.stderr
    assert "as generation 1, without Service demo/bad" in published.stdout
    with LightConsumer(stage.etcd, stage.folder / "light") as light:
        wait_for(lambda: "shop.example.com" in light.text(), lambda: str(light.status()))
        assert "bad.example.com" not in light.text()


def test_a_check_longer_than_the_lease_still_publishes(stage: Stage, tmp_path: Path) -> None:
    """The lease ends while HAProxy checks; who stands by may have it then, and here nobody does."""
    haproxy, done = tmp_path / "haproxy", tmp_path / "done"
    etcdctl = f"{shutil.which('etcdctl')} --endpoints={','.join(stage.etcd.settings().endpoints)} lease"
    haproxy.write_text(
        "#!/bin/sh\nexport ETCDCTL_API=3\n"
        f"{etcdctl} list | tail -n +2 | xargs -r -n 1 {etcdctl} revoke >>{done}\n"
        f'exec {HAPROXY} "$@"\n'
    )
    haproxy.chmod(0o755)
    stage.service("shop", "127.19.4.1")
    producer = stage.configure("producer")
    published = stage.run("publish", "--once", "--config", str(producer), "--haproxy-binary", str(haproxy))
    assert "revoked" in done.read_text()
    assert (published.returncode, "as generation 1" in published.stdout) == (0, True), published.stderr
