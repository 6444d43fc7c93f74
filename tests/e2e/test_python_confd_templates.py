"""Fragments as python-confd's users have them: told what to replace, then they serve.

The files are those of ``tests/data/python-confd``. The annotations stand on the Endpoints objects, bare.
"""

import socket
import ssl
from pathlib import Path

import pytest

from tests.e2e.expect import all_is_well, new_pod_answers
from tests.fragments.python_confd import fragments
from tests.world.apiserver import tls_context
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ping_redis
from tests.world.haproxy import wait_until
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy


def _populate(appliance: Appliance, tls: ssl.SSLContext) -> None:
    appliance.serve("shop", {})
    appliance.cluster.annotate("endpoints", NAMESPACE, "shop", {"domain": "shop.example.com", "proto": "http"})
    appliance.pods.add("secure-1", "127.18.200.1", tls=tls)
    appliance.pods.add("cache-1", "127.18.200.2")
    for name, proto, address in (("secure", "https", "127.18.200.1"), ("cache", "redis", "127.18.200.2")):
        annotations = {"domain": f"{name}.example.com", "proto": proto}
        subset = {"addresses": [{"ip": address}], "ports": [{"port": appliance.pods.port, "protocol": "TCP"}]}
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
        appliance.cluster.put("endpoints", {"metadata": metadata, "subsets": [subset]})


def _write(appliance: Appliance, landing: Path) -> Path:
    templates = appliance.folder / "templates"
    templates.mkdir()
    ports = {"http": appliance.http, "https": appliance.https, "redis": appliance.redis}
    binds = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    for fragment in fragments(landing=str(landing), **binds):
        (templates / fragment.name).write_text(fragment.text)
    appliance.values["templates"]["dir"] = str(templates)
    return templates


def _complaints(appliance: Appliance) -> list[tuple[str, str]]:
    """Run ``pyconfd check``; return the lines that it shows, each with the line to write instead."""
    checked = appliance.command("check")
    assert checked.returncode == 1, checked.stdout
    shown = [line.rpartition(": ")[2] for line in checked.stderr.splitlines() if line.startswith("  02-http.tmpl")]
    remedies = [line.partition("-> write: ")[2] for line in checked.stderr.splitlines() if "-> write: " in line]
    return [(line, to.split("  ", 1)[0].removesuffix(" (")) for line, to in zip(shown, remedies, strict=True)]


def test_the_lines_that_are_gone_are_named_and_after_replacing_them_everything_serves(appliance: Appliance) -> None:
    landing = appliance.folder / "index.html"
    landing.write_text("<html><body>Nothing here</body></html>\n")
    authority = CertificateAuthority(appliance.folder / "pki")
    _populate(appliance, tls_context(authority.server(hosts=["secure.example.com"])))
    http = _write(appliance, landing) / "02-http.tmpl"
    appliance.write_settings()
    for directive, (shown, instead) in zip(("reqadd", "errorfile"), _complaints(appliance), strict=True):
        (line,) = (line.strip() for line in http.read_text().splitlines() if line.strip().startswith(directive))
        assert directive in shown
        http.write_text(http.read_text().replace(line, instead))
    checked = appliance.command("check")
    assert checked.returncode == 0, checked.stderr

    appliance.start()
    all_is_well(appliance)
    assert appliance.ask("shop") == "shop-1"
    assert b"x-forwarded-proto: http\r\n" in appliance.pods.pods["shop-1"].heads[-1].lower()
    assert appliance.ask("unknown") == "503"
    wait_until(lambda: ping_redis(appliance.redis) == "+PONG", "redis answers")
    trust = ssl.create_default_context(cafile=str(authority.cert))
    with (
        socket.create_connection(("127.0.0.1", appliance.https), timeout=10) as raw,
        trust.wrap_socket(raw, server_hostname="secure.example.com") as connection,
    ):
        connection.sendall(b"GET / HTTP/1.0\r\nHost: secure.example.com\r\n\r\n")
        assert b"secure-1" in connection.recv(4096)
    new_pod_answers(appliance)
