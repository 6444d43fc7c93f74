"""The shipped frontends on IPv4 and IPv6, with haproxy in a network namespace of its own."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.config.text import binds
from pyconfd.model.listener import Listener, asked_for
from pyconfd.presets.preset import PresetOptions
from pyconfd.settings import Settings
from pyconfd.sources.fragments import read_fragments
from pyconfd.wiring import renderer
from tests.fragments.shipped import HAPROXY, Endpoint, context_of, render_shipped, write_rendering

REDIS = {"proto": "redis", "name": "r", "namespace": "demo", "listen_port": 6379, "endpoints": [], "key": "redis"}
LISTENED = {"0.0.0.0:80", "[::]:80", "0.0.0.0:443", "[::]:443", "0.0.0.0:6379", "[::]:6379"}
ASK = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.socket(family) as asking:
        asking.settimeout(20)
        asking.connect((address, 80))
        asking.sendall(b"GET / HTTP/1.0\\r\\nHost: shop.example.com\\r\\n\\r\\n")
        got = b"".join(iter(lambda: asking.recv(65536), b""))
        print(got.rpartition(b"\\r\\n")[2].decode())
"""
ECHO = """

backend be-echo
    mode http
    http-request return status 200 content-type text/plain lf-string %[src]
"""


def shown(**variables: object) -> set[str]:
    text = render_shipped({"redis.example.com": REDIS}, variables, "/files").text
    return {str(each) for bind in binds(text) for each in bind.listeners()} - {"127.0.0.1:8404"}


def test_both_families_where_the_machine_has_them() -> None:
    assert shown() == LISTENED
    assert shown(ipv6=False) == {each for each in LISTENED if "[" not in each}
    chosen = shown(http_bind="192.0.2.1:80", https_bind="", tcp_address="192.0.2.1")
    assert chosen == {"192.0.2.1:80", "192.0.2.1:6379"}, "an operator's choice is not widened"


@pytest.mark.parametrize("missing", [False, True])
def test_a_machine_without_ipv6_is_asked_for_none(monkeypatch: pytest.MonkeyPatch, *, missing: bool) -> None:
    class Socket(socket.socket):
        def __init__(self, family: int, *more: Any) -> None:
            if missing and family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *more)

    monkeypatch.setattr("pyconfd.haproxy.process.host.socket.socket", Socket)
    compiled = renderer(Settings(), read_fragments(directory()))
    text = compiled.render(context_of({"redis.example.com": REDIS}), curdate="").rendering.text
    assert ("[::]" in text) is not missing


def test_a_port_that_is_taken_on_ipv6_alone_is_put_down_to_its_claim() -> None:
    (claim,) = claims = frozenset({Listener.at(PresetOptions().listen_address, 6379)})
    assert asked_for({Listener("::", 6379, v6only=True): "redis (pid 7)"}, claims) == {claim: "redis (pid 7)"}


@contextmanager
def namespace() -> Iterator[list[str]]:
    """Return the words that run a command in a new network namespace, until the end of the block."""
    keeper = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"up\n"
        yield ["nsenter", "--net", f"--target={keeper.pid}"]
    finally:
        keeper.kill()
        keeper.communicate()


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY or os.geteuid() != 0 or not shutil.which("nsenter"), reason="needs haproxy and root")
def test_clients_of_both_families_are_served(tmp_path: Path) -> None:
    endpoint = Endpoint("", "", "", "127.0.0.1", 1, "ipv4", "ready")
    shop = {"proto": "http", "name": "shop", "namespace": "demo", "endpoints": [endpoint], "key": "shop"}
    rendering = render_shipped({"shop.example.com": shop}, {"runtime_socket": ""}, str(tmp_path))
    conf = tmp_path / "haproxy.cfg"
    write_rendering(rendering, conf)
    map_file = next(Path(file.path) for file in rendering.files if "path-prefixes" in file.path)
    map_file.write_text(map_file.read_text().replace("be-shop", "be-echo"))
    conf.write_text(conf.read_text() + ECHO)
    with namespace() as inside:
        started = [HAPROXY, "-D", "-p", str(tmp_path / "pid"), "-f", str(conf)]
        done = subprocess.run([*inside, *started], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        try:
            asked = subprocess.run(
                [*inside, sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=60
            )
        finally:
            os.kill(int((tmp_path / "pid").read_text()), 9)
    assert asked.stdout.split() == ["127.0.0.1", "::1"], "an IPv4 client is not shown as ::ffff:127.0.0.1"
