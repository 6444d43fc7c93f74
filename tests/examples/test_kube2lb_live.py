"""The shipped examples in the real servers: they route by name, and reload under load without a failed request.

Ten reloads by default; ``PYCONFD_TEST_RELOADS=100`` for the whole form.
"""

import ctypes
import http.client
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyroute2 import IPRoute

from pyconfd import examples
from pyconfd.errors import ApplyError
from pyconfd.model.context import Context
from pyconfd.model.kubernetes import EndpointPort, ServicePort
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.predecessors.targets.target import Target
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.policy import network as network_of
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render.engine import RenderOptions
from pyconfd.settings import TargetSettings
from tests.presets.objects import Named, endpoint, service, slice_, snapshot
from tests.world.backends import Backends
from tests.world.clients import Crowd, failures
from tests.world.haproxy import free_port, wait_until

RELOADS = int(os.environ.get("PYCONFD_TEST_RELOADS", "10"))
TEMPLATES = Path(str(examples.__path__[0])) / "kube2lb"
CLONE_NEWNET = 0x40000000
"""Source: include/uapi/linux/sched.h."""
PATHS = "/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin"

PODS = ClaimOptions(allow_endpoints=(network_of("127.0.0.0/8"),))

pytestmark = pytest.mark.timeout(300 + 10 * RELOADS)


@dataclass
class Server:
    """One load balancer of a test."""

    target: Target
    argv: list[str]
    port: int


def program(name: str) -> str:
    found = shutil.which(name, path=PATHS)
    if not found:
        pytest.skip(f"there is no {name}")
    return found


def made(folder: Path, template: str, variables: dict[str, Any], check: tuple[str, ...], notify: str) -> Target:
    settings = TargetSettings("lb", str(TEMPLATES / template), str(folder / "lb.conf"), notify, check, 20.0)
    options = RenderOptions(str(folder), variables=MappingProxyType(variables))
    return Target(settings, options, str(folder / "state"))


def haproxy(folder: Path, port: int) -> Server:
    """As kube2lb's README has it, with the sockets handed over; it starts haproxy where it does not run yet."""
    binary = program("haproxy")
    notify = (
        f"command:test -S {folder}/sock && set -- -x {folder}/sock;"
        f' {binary} -D -f {folder}/lb.conf -p {folder}/pid "$@" -sf $(cat {folder}/pid 2>/dev/null)'
    )
    variables = {"stats_bind": "", "stats_socket": f"{folder}/sock"}
    return Server(made(folder, "haproxy/haproxy.cfg.tmpl", variables, (binary, "-c", "-q", "-f"), notify), [], port)


def caddy(folder: Path, port: int) -> Server:
    binary, admin = program("caddy"), f"127.0.0.1:{free_port()}"
    config = ["--config", f"{folder}/lb.conf", "--adapter", "caddyfile"]
    reload = f"command:{binary} reload --address {admin} {' '.join(config)}"
    check = (binary, "validate", "--adapter", "caddyfile", "--config")
    target = made(folder, "caddy/Caddyfile.tmpl", {"caddy_admin": admin}, check, reload)
    return Server(target, [binary, "run", *config], port)


def nginx(folder: Path, port: int) -> Server:
    binary, errors = program("nginx"), ["-e", f"{folder}/error.log"]
    variables = {"nginx_pid": f"{folder}/pid", "nginx_logs": str(folder)}
    check = (binary, "-t", "-q", *errors, "-c")
    target = made(folder, "nginx/nginx.conf.tmpl", variables, check, f"pidfile:SIGHUP:{folder}/pid")
    return Server(target, [binary, *errors, "-c", f"{folder}/lb.conf", "-g", "daemon off;"], port)


Make = Callable[[Path, int], Server]


@pytest.fixture(
    params=[
        pytest.param(haproxy, marks=pytest.mark.haproxy, id="haproxy"),
        pytest.param(caddy, marks=pytest.mark.caddy, id="caddy"),
        pytest.param(nginx, marks=pytest.mark.nginx, id="nginx"),
    ]
)
def make(request: pytest.FixtureRequest) -> Make:
    made_by: Make = request.param
    return made_by


@pytest.fixture
def network(make: Make) -> Iterator[None]:
    """Caddy opens its sockets again at each reload; what waits in the old ones is lost unless the kernel moves it.

    That is a setting of the network namespace, so this thread, and what it starts, gets one of its own.
    """
    if make is not caddy:
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("a network namespace of its own needs root")
    libc = ctypes.CDLL(None, use_errno=True)
    former = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        with IPRoute() as route:
            route.link("set", index=1, state="up")
        Path("/proc/sys/net/ipv4/tcp_migrate_req").write_text("1")
        yield
    finally:
        assert libc.setns(former, CLONE_NEWNET) == 0
        os.close(former)


def cluster(port: int, backend_port: int, *pods: str) -> Context:
    """Return shop with these pods, and blog, which is asked for by an expression."""

    def one(name: str, names: str, addresses: tuple[str, ...]) -> list[Named]:
        ports = [ServicePort("http", port, "web", 30080)]
        annotations = {"kube2lb/external-domains": names, "kube2lb/backend-timeout": '{"http": 20000}'}
        members = [endpoint(address, pod=f"{name}-{address.rpartition('.')[2]}") for address in addresses]
        return [
            service(name, annotations, ports=ports, type_="NodePort"),
            slice_(name, *members, ports=[EndpointPort("http", backend_port, "TCP")]),
        ]

    objects = [
        *one("shop", "shop.example.com", pods),
        *one("blog", r"~^blog[0-9]{1,2}\.example\.com(:[0-9]+)?$", ("127.21.0.9",)),
    ]
    options = PresetOptions(
        own=own_options(Kube2lbOptions(domain="cluster.local", default_lb_ip="127.0.0.1")), claims=PODS
    )
    return registry.translate(snapshot(*objects), ("kube2lb",), options)


@contextmanager
def serving(server: Server, folder: Path, context: Context) -> Iterator[None]:
    """Apply the first file of the target, start its server, and notify it."""
    if not server.argv:
        assert applied(server.target, context)
        wait_until(lambda: answers(server.port), "it listens")
        try:
            yield
        finally:
            os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
            wait_until(lambda: not answers(server.port), "it ends")
        return
    with pytest.raises(ApplyError):  # nobody is there to be told; the file stays
        server.target.apply(context, curdate="", now=1.0, protect=False)
    environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(server.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: answers(server.port) or process.poll() is not None, "it listens")
        assert process.poll() is None, (folder / "server.log").read_text()
        wait_until(lambda: applied(server.target, context), "it is told")
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def applied(target: Target, context: Context) -> bool:
    try:
        target.apply(context, curdate="", now=time.time(), protect=False)
    except ApplyError:
        return False
    return True


def answers(port: int) -> bool:
    try:
        return bool(ask(port, "nobody.example.com")[0])
    except OSError:
        return False


def ask(port: int, host: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/", headers={"Host": host, "Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


@pytest.fixture
def pods(network: None) -> Iterator[Backends]:
    with Backends(free_port()) as backends:
        for number in (1, 2, 3):
            backends.add(f"shop-{number}", f"127.21.0.{number}")
        backends.add("blog-9", "127.21.0.9")
        yield backends


def test_names_reach_their_services_and_only_them(make: Make, pods: Backends, tmp_path: Path) -> None:
    server = make(tmp_path, free_port())
    with serving(server, tmp_path, cluster(server.port, pods.port, "127.21.0.1")):
        for host in ("shop.example.com", "SHOP.example.com", f"shop.example.com:{server.port}"):
            assert ask(server.port, host) == (200, "shop-1"), host
        for host in ("shop.demo.svc.cluster.local", "blog.demo.svc.cluster.local"):
            assert ask(server.port, host)[0] == 200
        for host in ("blog1.example.com", "blog42.example.com"):
            assert ask(server.port, host) == (200, "blog-9"), host
        strangers = ("shop.example.com.attacker.net", "blog123.example.com", "xblog1.example.com", "unknown.test")
        for host in strangers:
            assert ask(server.port, host)[0] in {404, 503}, host


def test_no_request_fails_while_it_reloads_again_and_again(make: Make, pods: Backends, tmp_path: Path) -> None:
    server = make(tmp_path, free_port())
    with serving(server, tmp_path, cluster(server.port, pods.port, "127.21.0.1")):
        crowd = Crowd(server.port, "shop.example.com", clients=4)
        for number in range(RELOADS):
            members = ("127.21.0.1", f"127.21.0.{2 + number % 2}")
            assert applied(server.target, cluster(server.port, pods.port, *members))
            wait_for_request(pods, f"shop-{2 + number % 2}")
        answers = crowd.stop()

    assert failures(answers) == []
    assert answers.total() > RELOADS


def wait_for_request(pods: Backends, pod: str) -> None:
    before = pods.counts()[pod]
    wait_until(lambda: pods.counts()[pod] > before, f"{pod} gets requests")


def test_an_empty_cluster_gives_a_file_that_the_check_takes(make: Make, tmp_path: Path) -> None:
    server = make(tmp_path, 0)
    text = server.target.render(registry.translate(snapshot(), ("kube2lb",), PresetOptions()), curdate="")
    if make is haproxy:
        return  # haproxy refuses a configuration that listens nowhere; pyconfd keeps the former one then
    server.target.check(text)
