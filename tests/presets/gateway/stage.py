"""A Gateway's frontends from rules as they stand in routes, and what is needed to ask a real haproxy with them."""

import http.client
import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from pyconfd.fragments import directory
from pyconfd.model.context import Context
from pyconfd.model.gateway_api import GrpcRule, HttpRule
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import Owner
from pyconfd.model.snapshot import Key
from pyconfd.presets.gateway.conditions import choices_of
from pyconfd.presets.gateway.faults import RuleFault
from pyconfd.presets.gateway.frontends import FrontendKind, GatewayFrontend
from pyconfd.presets.gateway.http_rules import ParsedRule, RuleSections, parse_grpc, parse_http, sections_of
from pyconfd.presets.gateway.mirror import SCRIPT
from pyconfd.presets.gateway.ports import VirtualHostChoices, look_ups, virtual_host_of
from pyconfd.presets.gateway.routes import is_wildcard
from pyconfd.presets.gateway.servers import Reference
from pyconfd.presets.routing.rules import EMPTY_OF, RuleBackend
from pyconfd.presets.routing.types import RouteRule, VirtualHost
from pyconfd.presets.routing.weights import empty_share, weighted_servers
from pyconfd.presets.views import EndpointView, PortAt
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from pyconfd.trying.own_haproxy import short_folder
from tests.fragments.shipped import HAPROXY, write_rendering
from tests.presets.routing.requests import Table
from tests.world.haproxy import wait_until


def http_rule(rule: Mapping[str, Any]) -> ParsedRule | RuleFault:
    return parse_http(msgspec.convert(rule, HttpRule))


def grpc_rule(rule: Mapping[str, Any]) -> ParsedRule | RuleFault:
    return parse_grpc(msgspec.convert(rule, GrpcRule))


def parsed(rule: Mapping[str, Any]) -> ParsedRule:
    found = http_rule(rule)
    assert isinstance(found, ParsedRule), found
    return found


def endpoint(port: int, name: str = "pod", state: str = "ready") -> EndpointView:
    return EndpointView("127.0.0.1", port, state, "ipv4", f"{name}-{port}")


_BEHIND: dict[PortAt, tuple[EndpointView, ...]] = {}


def reference(weight: int, endpoints: Sequence[EndpointView] = (), *more: Any, **others: Any) -> Reference:
    """Return a reference to a port that has these endpoints: :func:`with_servers`."""
    at = PortAt(Key("demo", ",".join(map(repr, endpoints))), 0)
    _BEHIND[at] = tuple(endpoints)
    return Reference(weight, at, *more, **others)


def with_servers(backend: RuleBackend) -> RuleBackend:
    """Return the backend as the presets return it."""
    references = [(weight, _BEHIND[at]) for weight, at in backend.ports]
    empty = empty_share(references, EMPTY_OF) if backend.divided else 0
    return msgspec.structs.replace(backend, servers=weighted_servers(references), empty=empty)


class Echo(BaseHTTPRequestHandler):
    """Answers with what was asked as JSON, and with the headers that ``X-Answer: name=value`` asks for."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        seen: dict[str, list[str]] = {}
        for name, value in self.headers.items():
            seen.setdefault(name.lower(), []).append(value)
        assert isinstance(self.server, EchoServer)
        text = json.dumps(
            {
                "pod": self.server.title,
                "method": self.command,
                "path": self.path,
                "headers": seen,
                "body": body.decode(),
            }
        ).encode()
        self.server.seen.append(self.path)
        self.server.last = seen
        self.send_response(self.server.script(self.path))
        for each in self.headers.get_all("X-Answer") or ():
            name, _, value = each.partition("=")
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it that
        pass


class EchoServer(ThreadingHTTPServer):
    """A pod with a name; ``script`` gives the status for a path.

    ``seen`` are the paths that were asked for, ``last`` has the headers of the last request.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, title: str, script: Callable[[str], int] = lambda _: 200) -> None:
        self.title, self.script = title, script
        self.seen: list[str] = []
        self.last: dict[str, list[str]] = {}
        super().__init__(("127.0.0.1", 0), Echo)

    def handle_error(self, *_: object) -> None:
        """HAProxy's health checks connect and go."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def endpoint(self) -> EndpointView:
        return endpoint(self.port, self.title)


@contextmanager
def pods(*titles: str, script: Callable[[str], int] = lambda _: 200) -> Iterator[tuple[EchoServer, ...]]:
    servers = [EchoServer(title, script) for title in titles]
    threads = [threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.05}) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield tuple(servers)
    finally:
        for server in servers:
            server.shutdown()
        for thread in threads:
            thread.join(30)
        for server in servers:
            server.server_close()


@dataclass
class Routes:
    """Rules of one virtual host on its way into a Gateway."""

    name: str
    host: str = ""
    sections: list[RuleSections] = field(default_factory=list)
    rules: list[RouteRule] = field(default_factory=list)

    @property
    def virtual_host(self) -> str:
        return f"{self.name}|{self.host or '*'}"

    def add(self, rule: ParsedRule, *references: Reference, mirrors: Sequence[Reference] = ()) -> "Routes":
        number = len(self.sections)
        section = f"{self.name}_{(self.host or 'any').replace('*', 'all')}_{number}"
        copied = dict(zip(rule.mirrors, mirrors, strict=True))
        made = sections_of(rule, references, section, f"HTTPRoute demo/{section}", copied)
        self.sections.append(made)
        owner = Owner("HTTPRoute", "demo", section, "2026-01-01T00:00:00Z")
        self.rules += [
            RouteRule(self.virtual_host, match, made.route, owner, place) for place, match in enumerate(rule.matches)
        ]
        return self


class Front(GatewayFrontend, frozen=True, gc=False):
    """A frontend with its virtual hosts."""

    virtual_hosts: tuple[VirtualHost, ...] = ()


def gateway(
    name: str, routes: Sequence[Routes], *, listener_of: Mapping[str, str] | None = None, **more: Any
) -> tuple[Front, dict[str, RuleBackend]]:
    """Return the frontend of a listener for any host, and the backends with their entries."""
    table = Table(*(rule for route in routes for rule in route.rules))
    virtual_hosts, found = [], []
    for route in routes:
        groups = tuple(table.groups.get(route.virtual_host, {}).values())
        virtual_host = virtual_host_of(name, route.host, groups)
        virtual_hosts.append(
            msgspec.structs.replace(virtual_host, listener=(listener_of or {}).get(virtual_host.id, ""))
        )
        found.append(VirtualHostChoices(0 if is_wildcard(route.host) else None, choices_of(groups)))
    backends = {}
    for route in routes:
        for sections in route.sections:
            for place, backend in enumerate(sections.backends):
                entries = table.entries.get(sections.route, ()) if not place else ()
                backends[backend.name] = msgspec.structs.replace(with_servers(backend), entries=entries)
    splits = (choice for route in routes for sections in route.sections for choice in sections.choices)
    values: dict[str, Any] = {"kind": FrontendKind.HTTP, "addresses": ("127.0.0.1",), "port": 80} | more
    values["look_ups"] = look_ups(True, max(len(virtual_host.above) for virtual_host in virtual_hosts), found, splits)
    return Front(name=name, owner="Gateway demo/web", virtual_hosts=tuple(virtual_hosts), **values), backends


def render(
    frontends: Sequence[Front], backends: Mapping[str, RuleBackend], files_dir: str, **variables: Any
) -> Rendering:
    """Render all shipped fragments with nothing but these."""
    options = RenderOptions(files_dir, variables={"http_bind": "", "https_bind": "", "stats_bind": "", **variables})
    script = f"{files_dir}/mirror.lua" if any(each.mirrors for each in backends.values()) else ""
    fronts = {each.name: each for each in frontends}
    virtual_hosts = {virtual_host.id: virtual_host for each in frontends for virtual_host in each.virtual_hosts}
    names = {
        "frontends": fronts,
        "virtual_hosts": virtual_hosts,
        "verifies_clients": any(each.verification is not None for each in frontends),
    }
    tls = {"default_certificate": "", "in_use": False, "reads_hello": False}
    rules = {
        "backends": dict(backends),
        "profiles": 0,
        "limited": False,
        "verifies_clients": False,
        "users": {},
        "mirror_script": script,
    }
    context = Context({"domains": {}, "tls": tls, "gateway": names, "rules": rules})
    return copy(Renderer(read_fragments(directory()), options)).render(context, curdate="").rendering


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, list[str]]
    body: str

    @property
    def echo(self) -> dict[str, Any]:
        """What the pod was asked."""
        found: dict[str, Any] = json.loads(self.body)
        return found


def ask(
    port: int,
    path: str,
    *,
    method: str = "GET",
    host: str = "shop.example.com",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    body: str | None = None,
    address: str = "127.0.0.1",
) -> Answer:
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host)
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode() if body is not None else None)
        response = connection.getresponse()
        found: dict[str, list[str]] = {}
        for name, value in response.getheaders():
            found.setdefault(name.lower(), []).append(value)
        return Answer(response.status, found, response.read().decode())
    finally:
        connection.close()


def shares(port: int, path: str, times: int, **more: Any) -> Counter[str]:
    """Return how many requests each pod answered, or each status where it was none."""
    found: Counter[str] = Counter()
    for _ in range(times):
        answer = ask(port, path, **more)
        found[answer.echo["pod"] if answer.status == 200 else str(answer.status)] += 1
    return found


@contextmanager
def running(
    frontends: Sequence[Front], backends: Mapping[str, RuleBackend], folder: Path, **variables: Any
) -> Iterator[None]:
    """Run haproxy with these until the end of the block."""
    (folder / "mirror.lua").write_text(SCRIPT)

    def rendered(runtime_socket: str) -> Rendering:
        return render(frontends, backends, str(folder), runtime_socket=runtime_socket, **variables)

    with haproxy_with(rendered, folder):
        yield


@contextmanager
def haproxy_with(rendered: Callable[[str], Rendering], folder: Path) -> Iterator[None]:
    """Run haproxy with what is rendered for a runtime socket, until the end of the block."""
    sockets = short_folder("gw-")
    conf, log = folder / "haproxy.cfg", folder / "haproxy.log"
    write_rendering(rendered(f"{sockets}/s"), conf)
    checked = subprocess.run([HAPROXY, "-c", "-f", str(conf)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr + conf.read_text()
    assert "WARNING" not in checked.stderr, checked.stderr
    with log.open("wb") as output:
        process = subprocess.Popen([HAPROXY, "-db", "-f", str(conf)], stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or (sockets / "s").exists(), "haproxy")
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.kill()
        process.wait(30)
        shutil.rmtree(sockets)
