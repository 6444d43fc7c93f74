"""Names of objects that no file, section or line of a configuration may be called by."""

from functools import cache
from pathlib import PurePosixPath

import pytest

from pyconfd.fragments import directory
from pyconfd.model.context import PresetName, left_out
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions, pem_path
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.gateway.test_preset import APP, GATEWAY, route
from tests.presets.pods import certificate
from tests.presets.test_tls_secrets import secret

OPTIONS = PresetOptions(addresses=AddressOptions(("192.0.2.1", "192.0.2.2")), tls=TlsOptions("/files/secrets", ("*",)))
LONGEST = "x" * 253
"""Kubernetes takes this for Secrets, listeners and most other objects."""
MOST_OF_A_FILE_NAME = 230
"""A file system takes 255, and a file has a longer name while it is written."""
HOSTILE = ["a\n    http-request deny", "a if TRUE", "a\nbackend b\n    server e 198.51.100.66:80", "../a", "or", "a\0b"]
TCP_GATEWAY = GATEWAY.replace("HTTP", "TCP")


@cache
def _renderer() -> Renderer:
    return Renderer(read_fragments(directory()), RenderOptions("/files"))


def _rendered(objects: Snapshot) -> tuple[Rendering, list[str]]:
    context = registry.translate(objects, (PresetName.GATEWAY,), OPTIONS)
    return _renderer().render(context, curdate="").rendering, [each.field for each in left_out(context.refused)]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["HTTPRoute", "TCPRoute"])
def test_a_route_with_such_a_name_adds_nothing(kind: str, name: str) -> None:
    basis = CLASS, GATEWAY if kind == "HTTPRoute" else TCP_GATEWAY, APP
    rules = "[{backendRefs: [{name: app, port: 80}]}]"
    if kind == "HTTPRoute":
        rules = "[{matches: [{method: GET}], backendRefs: [{name: app, port: 80}]}]"
    before, _ = _rendered(snapshot("---".join(basis)))
    after, refused = _rendered(snapshot("---".join((*basis, route(repr_yaml(name), rules, kind=kind)))))
    assert refused == ["metadata.name"]
    assert after.text == before.text
    assert after.files == before.files


@pytest.mark.parametrize("name", HOSTILE)
def test_a_gateway_with_such_a_name_adds_nothing(name: str) -> None:
    before, _ = _rendered(snapshot(f"{CLASS}---{APP}"))
    after, refused = _rendered(
        snapshot("---".join((CLASS, APP, GATEWAY.replace("name: web,", f"name: {repr_yaml(name)},"))))
    )
    assert refused == ["metadata.name"]
    assert after.text == before.text


def repr_yaml(name: str) -> str:
    """Return a text in the double quotes of YAML."""
    return '"' + name.replace("\n", "\\n").replace("\0", "\\0") + '"'


def test_files_of_a_listener_and_secret_with_the_longest_names_can_be_written() -> None:
    gateway = f"""
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: pyconfd
  listeners:
    - {{name: {LONGEST}, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: {LONGEST}}}]}}}}
    - {{name: {LONGEST[1:]}y, port: 443, protocol: HTTPS, hostname: a.example.com,
        tls: {{certificateRefs: [{{name: {LONGEST[1:]}y}}]}}}}
"""
    secrets = {Key("shop", name): secret() for name in (LONGEST, f"{LONGEST[1:]}y")}
    rendering, refused = _rendered(snapshot(f"{CLASS}---{gateway}---{APP}", secrets=secrets))
    assert not refused
    names = [PurePosixPath(file.path).name for file in rendering.files]
    assert len(names) == len(set(names))
    assert max(map(len, names)) < MOST_OF_A_FILE_NAME
    lists = [file.content for file in rendering.files if "/certificates-" in file.path]
    assert len(lists) == 2


def test_different_objects_have_different_files() -> None:
    # Dots stand in names of objects, too.
    assert pem_path("/d", "a", "b") == "/d/a.b.pem"
    assert pem_path("/d", "a", LONGEST) != pem_path("/d", "a", f"{LONGEST[1:]}y")
    assert pem_path("/d", "a", f"b.{LONGEST}") != pem_path("/d", "a", "b", LONGEST)


def test_no_secret_has_the_file_of_a_policy() -> None:
    policy = """
kind: BackendTLSPolicy
metadata: {name: tls}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  validation: {hostname: app.example.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}
"""
    ca = f"""
kind: ConfigMap
metadata: {{name: ca}}
data: {{ca.crt: {certificate("ca.example.com")[1]!r}}}
""".replace("'", '"')
    gateway = """
kind: Gateway
metadata: {name: web, namespace: policy}
spec:
  gatewayClassName: pyconfd
  listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: shop.tls}]}}]
"""
    secrets = {Key("policy", "shop.tls"): secret()}
    rendering, refused = _rendered(snapshot(CLASS, GATEWAY, APP, policy, ca, gateway, secrets=secrets))
    assert not refused
    paths = [file.path for file in rendering.files]
    assert "/files/secrets/policy.shop.tls.pem" in paths
    assert "/files/secrets/policy_of.shop.tls.pem" in paths
