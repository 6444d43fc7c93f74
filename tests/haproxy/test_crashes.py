"""Failure class 9: pyconfd is killed between any two calls that change a file, a socket or a process."""

import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pyconfd.errors import ApplyError
from pyconfd.model.outcome import Step
from pyconfd.model.plan import Noop, Reload
from pyconfd.model.rendering import Rendering
from tests.haproxy.bench import Bench
from tests.haproxy.crashing import KillPoints, request_for, shards
from tests.world.haproxy import BINARY, fetch, free_port, wait_until

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(600)]

SHARDS = shards(4)

Apply = Callable[[Rendering, int], str]


@contextmanager
def forking_child(module: str) -> Iterator[Callable[[str], str]]:
    """Return what sends a line to a process that does it in a fork, and gives the answer."""
    argv = [sys.executable, "-m", module]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def ask(line: str) -> str:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(line + "\n")
            child.stdin.flush()
            return child.stdout.readline().strip()

        yield ask
        child.stdin.close()


@contextmanager
def crashing_child(bench: Bench, *, reload_timeout_s: float = 15.0) -> Iterator[Apply]:
    settings = bench.haproxy.settings(reload_timeout_s=reload_timeout_s)
    with forking_child("tests.haproxy.crashing") as ask:
        yield lambda desired, die_before: ask(request_for(desired, settings, bench.state_dir, die_before))


def pem() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (certificate.public_bytes(serialization.Encoding.PEM) + private).decode()


def variant(bench: Bench, name: str, tls_port: int, certificate: str) -> Rendering:
    """Two variants share a certificate path and a map path, and each has a map of its own that the other prunes."""
    shared = bench.map_file(f"host {name}\n", "shared.map")
    own = bench.map_file("host own\n", f"{name}.map")
    site = bench.certificate(certificate)
    extra = (
        f'    http-request set-header x-1 "%[req.hdr(host),map({shared.path},none)]"\n'
        f'    http-request set-header x-2 "%[req.hdr(host),map({own.path},none)]"\n'
        f"frontend fe_tls\n    bind 127.0.0.1:{tls_port} ssl crt {site.path}\n"
        f'    http-request return status 200 content-type text/plain string "{name}"\n'
    )
    return bench.rendering(name, extra=extra, files=(shared, own, site))


def loads(conf: Path) -> bool:
    return subprocess.run([BINARY, "-W", "-c", "-q", "-f", str(conf)], check=False).returncode == 0


@pytest.mark.parametrize("shard", SHARDS)
def test_whenever_it_is_killed_the_file_loads_and_a_fresh_start_converges(bench: Bench, shard: int) -> None:
    tls_port = free_port()
    variants = [variant(bench, name, tls_port, pem()) for name in ("blue", "green")]
    bench.serve("start").close()
    points = KillPoints(shard, SHARDS)
    with crashing_child(bench) as apply:
        for trial, point in enumerate(points):
            desired = variants[trial % 2]
            outcome = apply(desired, point)
            assert loads(bench.conf), f"killed at {point}"
            assert fetch(bench.port) in {"start", "blue", "green"}, f"killed at {point}"

            balancer = bench.balancer()
            wait_until(lambda: bench.haproxy.running() is not None, "the master answers")
            assert balancer.startup() == ()
            assert bench.temporary_files() == [], f"killed at {point}"
            plan = balancer.plan(desired)
            if isinstance(plan, Reload):
                assert balancer.apply(desired, plan, curdate="", now=2.0).verified
            assert balancer.plan(desired) == Noop()
            assert fetch(bench.port) == ("blue", "green")[trial % 2]
            for file in desired.files:
                assert Path(file.path).read_text() == file.content
            balancer.close()
            points.record(outcome)
    assert points.died > 6, "the kill points were not reached"


def test_whenever_it_is_killed_the_very_first_file_is_whole_or_absent(bench: Bench) -> None:
    desired = bench.rendering("first")
    points = KillPoints(0, range(1))
    with crashing_child(bench, reload_timeout_s=0.02) as apply:
        for point in points:
            outcome = apply(desired, point)
            assert not bench.conf.exists() or loads(bench.conf), f"killed at {point}"
            balancer = bench.balancer(reload_timeout_s=0.02)
            balancer.startup()
            assert bench.temporary_files() == [], f"killed at {point}"
            plan = balancer.plan(desired)
            assert isinstance(plan, Reload)
            with pytest.raises(ApplyError, match="is not running") as caught:
                balancer.apply(desired, plan, curdate="", now=2.0)
            assert caught.value.step == Step.VERIFY
            assert loads(bench.conf)
            balancer.close()
            bench.conf.unlink()
            points.record(outcome, done="failed 1")  # nothing killed it; haproxy was not running
    assert points.died > 6, "the kill points were not reached"
