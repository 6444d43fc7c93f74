"""The example of docs/templates.md that gives a bind the certificates of the cluster, in a real haproxy."""

import dataclasses
import socket
import ssl
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from cryptography import x509

from pyconfd.model.kubernetes import Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import translate
from pyconfd.render.engine import Renderer, RenderOptions
from tests.docs.examples import FRAGMENT, ROOT, blocks_of, examples
from tests.fragments.shipped import HAPROXY, write_rendering
from tests.world.haproxy import free_port, wait_until
from tests.world.pki import CertificateAuthority

NAMES = ("admin.example.com", "shop.example.com")
EXAMPLE = next(each for each in examples(blocks_of(ROOT / "docs/templates.md")) if "ssl crt" in each.template)
HEAD = """\
global
    log stderr format raw local0
frontend fe
    mode http
    timeout client 20s
    http-request return status 200
"""


def snapshot(authority: CertificateAuthority) -> Snapshot:
    secrets = {}
    for name in NAMES:
        pair = authority.server(name, (name,))
        data = {"tls.crt": pair.cert, "tls.key": pair.key}
        encoded = {key: b64encode(Path(path).read_bytes()).decode() for key, path in data.items()}
        key = Key("default", name.partition(".")[0])
        secrets[key] = Secret(ObjectMeta(name=key.name, namespace="default"), type="kubernetes.io/tls", data=encoded)
    return dataclasses.replace(Snapshot(), secrets=secrets)


def answered(port: int, name: str, authority: CertificateAuthority) -> str:
    """Return the name of the certificate that is presented to a client that asks for ``name``."""
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.check_hostname = False
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=name) as wrapped,
    ):
        presented = x509.load_der_x509_certificate(wrapped.getpeercert(binary_form=True) or b"")
    names = presented.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return " ".join(names.get_values_for_type(x509.DNSName))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
def test_each_name_gets_its_own_certificate(tmp_path: Path) -> None:
    authority, port = CertificateAuthority(tmp_path), free_port()
    template = HEAD + EXAMPLE.template.replace("*:443", f"127.0.0.1:{port}")
    assert "crt" in template
    context = translate(snapshot(authority), ["domains"], PresetOptions())
    compiled = Renderer(FragmentSet((Fragment(FRAGMENT, template),)), RenderOptions(str(tmp_path / "files")))
    conf = tmp_path / "haproxy.cfg"
    write_rendering(compiled.render(context, curdate="").rendering, conf)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([HAPROXY, "-db", "-f", conf], stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "haproxy listens")
        assert process.poll() is None, (tmp_path / "log").read_text()
        for name in NAMES:
            assert {answered(port, name, authority) for _ in range(16)} == {name}
    finally:
        process.kill()
        process.wait(30)
