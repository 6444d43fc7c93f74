"""What a request costs haproxy: the shipped fragments with 5,000 hosts beside a configuration written by hand.

HAProxy has one thread, pinned to the last processor; clients (wrk) and the pod (nginx) have the first. Counted is
haproxy's own processor time (user and system), so that nothing depends on how busy the other processor is. Each figure
is the best of three; both sides of a ratio take turns in one run.
"""

import re
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from pyconfd.fragments import directory
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from pyconfd.trying.own_haproxy import short_folder
from tests.bench.figures import Figure
from tests.bench.live import FIRST, LAST
from tests.bench.routing import ROUTES, gateway_objects, ingress_objects
from tests.fragments.shipped import OPTIONS, write_rendering
from tests.presets.ingress.objects import Obj, secret, snapshot
from tests.world.haproxy import BINARY, free_port, wait_until
from tests.world.pki import CertificateAuthority

ROUNDS, SECONDS, CONNECTIONS = 3, 2, 32
SMALL, LARGE, LARGE_BYTES = "/api/v0/things", "/large", 1 << 20
HOSTS: Mapping[str, tuple[str, ...]] = {
    "http": tuple(f"s{number}.example.com" for number in range(301, ROUTES, 600)),
    # One connection is for one host, and wrk puts that of its URL into the ClientHello.
    "https": ("localhost",),
}
_POLICY = "ssl-min-ver TLSv1.2 ciphersuites TLS_AES_128_GCM_SHA256 no-tls-tickets"
"""What the shipped fragments agree on with wrk: large bodies cost what their cipher does."""
_BY_HAND = """
defaults
    mode http
    timeout connect 5s
    timeout client 1m
    timeout server 1m
frontend plain
    bind 127.0.0.1:{http}
    default_backend pods
frontend tls
    bind 127.0.0.1:{https} ssl crt {pem} alpn h2,http/1.1 {policy}
    default_backend pods
backend pods
    server pod 127.0.0.1:{pod}
"""
_SCRIPT = """
local requests, at = {}, 0
function init(args)
%s
end
function request()
    at = (at + 1) %% %d
    return requests[at]
end
function done(summary, latency)
    local errors = summary.errors
    io.write("answered ", summary.requests, " ", errors.status + errors.connect + errors.read + errors.timeout,
        " ", latency:percentile(99), " ", summary.duration)
end
"""
_ANYONE = ssl.create_default_context()
_ANYONE.check_hostname, _ANYONE.verify_mode = False, ssl.CERT_NONE


class Load(NamedTuple):
    """What clients saw that ask as fast as they can, and haproxy's microseconds for each answered request."""

    cost_us: float
    p99_ms: float
    each_s: float


class Proxy:
    """A haproxy with one thread on a processor of its own."""

    def __init__(self, folder: Path, text: str, ports: Mapping[str, int]) -> None:
        self._conf, self.ports = folder / "haproxy.cfg", ports
        self._conf.write_text(f"global\n    nbthread 1\n    maxconn 4000\n{text}")

    def __enter__(self) -> Self:
        # Standard output is a stream socket that somebody reads, as systemd's journal does.
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._reader = subprocess.Popen(["cat"], stdin=ours.fileno(), stdout=subprocess.DEVNULL)
            command = ["taskset", "-c", str(LAST), BINARY, "-db", "-f", str(self._conf)]
            self._process = subprocess.Popen(command, stdout=theirs.fileno())
        for port in self.ports.values():
            wait_until(partial(self._listens, port), f"haproxy listens on port {port}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)
        self._reader.wait(30)

    def _listens(self, port: int) -> bool:
        assert self._process.poll() is None, f"haproxy ended: {self._conf}"
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", port)) == 0

    def cpu_s(self) -> float:
        """Return the processor time of the only thread until now."""
        # In nanoseconds; /proc/PID/stat counts hundredths of a second.
        return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0]) / 1e9

    def descriptors(self) -> int:
        """Return how many file descriptors are open."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def load(self, scheme: str, hosts: Sequence[str], path: str = SMALL, *, close: bool = False) -> Load:
        """Let wrk ask as fast as it can for SECONDS."""
        headers = ', ["Connection"] = "close"' if close else ""
        lines = "".join(
            f'requests[{place}] = wrk.format("GET", "{path}", {{["Host"] = "{host}"{headers}}})\n'
            for place, host in enumerate(hosts)
        )
        script = self._conf.with_name("wrk.lua")
        script.write_text(_SCRIPT % (lines, len(hosts)))
        command = ["taskset", "-c", str(FIRST), "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(script)]
        began = self.cpu_s()
        done = subprocess.run(
            [*command, f"{scheme}://localhost:{self.ports[scheme]}"], check=True, capture_output=True, text=True
        )
        taken = self.cpu_s() - began
        answered, failed, p99_us, took_us = done.stdout.rpartition("answered ")[2].split()
        assert int(answered), done.stdout
        assert failed == "0", done.stdout
        count = int(answered)
        return Load(taken / count * 1e6, float(p99_us) / 1e3, count / float(took_us) * 1e6)

    def descriptors_each(self, count: int = 100) -> float:
        """Return how many descriptors a connection with TLS holds while it waits for its first request."""
        before = self.descriptors()
        with ExitStack() as stack:
            for _ in range(count):
                raw = stack.enter_context(socket.create_connection(("127.0.0.1", self.ports["https"]), 30))
                stack.enter_context(_ANYONE.wrap_socket(raw, server_hostname="localhost"))
            return (self.descriptors() - before) / count


def serve_pod(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the pod."""
    (folder / "large").write_bytes(b"x" * LARGE_BYTES)
    (folder / "nginx.conf").write_text(f"""worker_processes 1; daemon off; pid {folder}/nginx.pid; user root;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000000; keepalive_timeout 600s; sendfile on;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 "ok"; }}
        location = /large {{ alias {folder}/large; }}
    }}
}}
""")
    command = ["taskset", "-c", str(FIRST), "nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")]
    return subprocess.Popen(command)


def on_the_pod(objects: Iterable[Obj], port: int) -> Iterator[Obj]:
    """Lead all Services to the only pod."""
    for item in objects:
        if item["kind"] == "EndpointSlice":
            item["endpoints"] = [{"addresses": ["127.0.0.1"]}]
            item["ports"] = [{"name": each["name"], "port": port} for each in item["ports"]]
        yield item


def ingress_snapshot(authority: CertificateAuthority, pod_port: int) -> Snapshot:
    """Return Ingresses of which every second one has a certificate, one Secret for each namespace; see HOSTS."""
    objects = list(on_the_pod(ingress_objects(ROUTES), pod_port))
    hosts: dict[str, list[str]] = {}
    for number, item in enumerate(each for each in objects if each["kind"] == "Ingress"):
        if number % 2:
            continue
        if not number:
            item["spec"]["rules"].append(item["spec"]["rules"][0] | {"host": "localhost"})
        own = [each["host"] for each in item["spec"]["rules"]]
        item["spec"]["tls"] = [{"hosts": own, "secretName": "tls"}]
        hosts.setdefault(item["metadata"]["namespace"], []).extend(own)
    secrets = [secret("tls", authority.server(name, own), namespace=name) for name, own in hosts.items()]
    return snapshot(*objects, *secrets)


def gateway_snapshot(authority: CertificateAuthority, pod_port: int, ports: Mapping[str, int]) -> Snapshot:
    """Return HTTPRoutes of one Gateway with a listener for HTTP and one for HTTPS."""
    objects = list(on_the_pod(gateway_objects(ROUTES), pod_port))
    web = next(each for each in objects if each["kind"] == "Gateway")
    (listener,) = web["spec"]["listeners"]
    tls = {"certificateRefs": [{"name": "tls"}]}
    web["spec"]["listeners"] = [
        listener | {"port": ports["http"]},
        listener | {"name": "https", "port": ports["https"], "protocol": "HTTPS", "tls": tls},
    ]
    first = next(each for each in objects if each["kind"] == "HTTPRoute")
    first["spec"]["hostnames"].append("localhost")
    pair = authority.server("gateway", ("*.example.com", "localhost"))
    return snapshot(*objects, secret("tls", pair, namespace="infra"))


def shipped(
    folder: Path, preset: str, pod_port: int, authority: CertificateAuthority, *, logs: bool = True, **variables: Any
) -> Proxy:
    """Return haproxy with what the shipped fragments make of 5,000 Ingresses or HTTPRoutes, without checks."""
    ports = {"http": free_port(), "https": free_port()}
    binds = {f"{each}_bind": f"127.0.0.1:{port}" if preset == "ingress" else "" for each, port in ports.items()}
    files = folder / "files"
    if preset == "ingress":
        whole = ingress_snapshot(authority, pod_port)
    else:
        whole = gateway_snapshot(authority, pod_port, ports)
    tls = TlsOptions(str(files / "secrets"), ("*",))
    options = replace(OPTIONS, tls=tls, addresses=AddressOptions(("127.0.0.1",)))
    context = registry.translate(whole, ("domains", preset), options)
    assert not context.refused, context.refused
    variables = {**binds, "stats_bind": "", "runtime_socket": f"{short_folder('requests-')}/s", **variables}
    renderer = Renderer(read_fragments(directory()), RenderOptions(str(files), variables=variables))
    rendering = renderer.render(context, curdate="").rendering
    write_rendering(rendering, folder / "haproxy.cfg")
    text = rendering.text.replace("default-server check", "default-server")
    if not logs:
        text = re.sub(r"(?m)^ +log(-format)? .*\n", "", text)
    return Proxy(folder, text, ports)


def by_hand(folder: Path, pod_port: int, authority: CertificateAuthority) -> Proxy:
    """Return haproxy with what somebody would write for one backend."""
    ports = {"http": free_port(), "https": free_port()}
    pair = authority.server("hand", ("localhost",))
    (folder / "hand.pem").write_text(pair.cert.read_text() + pair.key.read_text())
    return Proxy(folder, _BY_HAND.format(**ports, pem=folder / "hand.pem", policy=_POLICY, pod=pod_port), ports)


def request_cost() -> Iterator[Figure]:
    """Measure small answers over connections that are kept, handshakes with TLS, and large bodies over TLS."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-bench-")))
        authority, pod_port = CertificateAuthority(folder / "ca"), free_port()
        pod = serve_pod(folder, pod_port)
        stack.callback(pod.wait, 30)
        stack.callback(pod.terminate)
        sides: dict[str, Proxy] = {}
        for name in ("hand", "ingress", "gateway"):
            (folder / name).mkdir()
            made = (
                by_hand(folder / name, pod_port, authority)
                if name == "hand"
                else shipped(folder / name, name, pod_port, authority)
            )
            sides[name] = stack.enter_context(made)
        for what, scheme, path, close, goal in (
            ("http", "http", SMALL, False, 1.47),
            ("https", "https", SMALL, False, 1.35),
            ("handshake", "https", SMALL, True, None),
            ("large", "https", LARGE, False, None),
        ):
            best = dict.fromkeys(sides, float("inf"))
            for _ in range(ROUNDS):
                for name, side in sides.items():
                    best[name] = min(best[name], side.load(scheme, HOSTS[scheme], path, close=close).cost_us)
            for name, cost in best.items():
                yield Figure(f"request_{name}_{what}_cpu", cost, "us")
            for name in ("ingress", "gateway"):
                yield Figure(f"request_{name}_{what}_of_hand", best[name] / best["hand"], "ratio", goal)
        for name, side in sides.items():
            yield Figure(f"request_{name}_descriptors", side.descriptors_each(), "of a connection with TLS")
