"""The disk image: baked by Packer's qemu source, booted, and given one file. ``make image-test``."""

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.image import trees
from tests.image.bake import Baked
from tests.image.conftest import user_data
from tests.image.disk import bake_disk, booted, missing
from tests.matrix import Unavailable
from tests.world.apiserver import ApiServer
from tests.world.backends import Backends
from tests.world.clients import ask
from tests.world.cluster import Cluster
from tests.world.haproxy import free_port, wait_until
from tests.world.objects import EndpointSpec, PortSpec

LACKING = trees.missing() or missing()
pytestmark = [
    pytest.mark.skipif(not os.environ.get("PYCONFD_TEST_IMAGE"), reason="make image-test bakes a disk and boots it"),
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
    pytest.mark.timeout(2400),
]
HOST = "10.0.2.2"
"""This machine's loopback, as the virtual one sees it."""

ASKED = """\
locale: false    # the tree has none
runcmd:
  - >-
    (echo; sysctl net.ipv4.conf.all.arp_announce net.ipv4.ip_nonlocal_bind net.ipv6.ip_nonlocal_bind net.core.somaxconn;
    sysctl net.ipv4.conf.all.promote_secondaries;
    systemctl is-enabled haproxy keepalived pyconfd pyconfd-vip pyconfd-dns | xargs echo enabled:;
    systemctl list-units --failed --plain --no-legend | xargs echo failed:;
    echo "files: $(systemctl show haproxy --property=LimitNOFILE)";
    cat /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys | xargs echo keys:;
    ls /etc/ssh/ssh_host_ed25519_key; cat /etc/machine-id; echo told) > /dev/ttyS0 2>&1
"""


@pytest.fixture(scope="module")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Baked:
    try:
        return bake_disk(tmp_path_factory.mktemp("disk") / "bake")
    except Unavailable as error:
        pytest.skip(f"no tree of Debian 12 can be made: {error}")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder to the virtual machine; return their URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def test_the_disk_boots_joins_and_serves(baked: Baked, tmp_path: Path) -> None:
    pod_port = free_port()
    port = PortSpec(name="web", port=80, target=pod_port)
    cluster = Cluster()
    cluster.add_namespace("pyconfd")  # as pyconfd rbac does: the Lease is there
    cluster.add_service("demo", "shop", ports=[port], annotations={"domain": "shop.example.com", "proto": "http"})
    cluster.set_endpoints("demo", "shop", [EndpointSpec(HOST, pod="shop-1", node="node-1")])
    seed = tmp_path / "seed"
    seed.mkdir()
    http = free_port()
    with Backends(pod_port) as pods, ApiServer(cluster) as api, served(seed) as url:
        pods.add("shop-1", "127.0.0.1")
        settings = f'[kubernetes]\napi_servers = ["http://{HOST}:{api.port}"]\n'
        (seed / "user-data").write_text(user_data(settings) + ASKED)
        (seed / "meta-data").write_text("instance-id: disk\nlocal-hostname: lb1\n")
        (seed / "vendor-data").write_text("")
        with booted(baked.output / "qemu/pyconfd-lb.qcow2", tmp_path, url, {http: 80}) as console:
            wait_until(lambda: ask(http, "shop.example.com") == "shop-1", "the image serves", limit_s=600, pause_s=0.5)
            wait_until(lambda: "told" in console.read_text(errors="replace"), "cloud-init ends", limit_s=600, pause_s=1)
            wait_until(lambda: "failures" in console.read_text(errors="replace"), "preflight", limit_s=300, pause_s=1)
            said = console.read_text(errors="replace")
    assert "net.ipv4.ip_nonlocal_bind = 1" in said
    assert "net.ipv6.ip_nonlocal_bind = 1" in said
    assert "net.ipv4.conf.all.promote_secondaries = 1" in said
    assert "net.ipv4.conf.all.arp_announce = 2" in said
    assert "net.core.somaxconn = 65535" in said
    assert "enabled: enabled enabled enabled enabled enabled" in said
    assert re.search(r"failed:\s*$", said, re.MULTILINE), said
    assert "files: LimitNOFILE=211024" in said
    assert re.search(r"keys:\s*$", said, re.MULTILINE), "the key of the bake is still known"
    assert re.search(r"^[0-9a-f]{32}\s*$", said, re.MULTILINE)
    assert re.search(r"\d+ ok, \d+ warnings?, 0 failures", said)


def test_beside_the_disk_lies_what_it_is_made_of(baked: Baked) -> None:
    manifest = json.loads((baked.output / "manifest.json").read_text())
    assert {"haproxy", "keepalived", "nftables"} <= {one["name"] for one in manifest["packages"]}
    assert "/etc/systemd/system/pyconfd.service" in manifest["files"]
    (build,) = json.loads((baked.output / "packer.json").read_text())["builds"]
    assert build["builder_type"] == "qemu"
