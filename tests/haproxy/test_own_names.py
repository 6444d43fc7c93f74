"""No operation is refused for a name of pyconfd's own: keys of maps, backends, servers, files of certificates."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.config.changes import Abilities, entries_of
from pyconfd.haproxy.config.diff import plan
from pyconfd.haproxy.config.servers import is_plain
from pyconfd.haproxy.config.spares import Spares
from pyconfd.model.context import AUTOMATIC_PRESETS
from pyconfd.model.operations import AddCertificate, AddListLines, AddMapEntries, Command, RemoveMapEntries
from pyconfd.model.plan import RuntimeUpdate
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.gateway.test_preset import SERVICE
from tests.world.pki import CertificateAuthority

FILES = "/etc/haproxy/generated/files"
NEVER_FILLED = frozenset(
    {"https-below-foreign", "https-hosts", "https-hsts", "https-wildcards", "wildcards-http", "spare-backends"}
    | {"listener-hosts", "virtual-hosts-above-1", "expression-hosts", "path-expressions"}
)
"""Of domains with other values, whose keys are domains too; of the process; of virtual hosts, whose ids are there;
of expressions, whose map is replaced as a whole since its order counts."""
SHARED = """
kind: Ingress
metadata:
  name: quiet
  annotations: {pyconfd.io/access-log: "off", pyconfd.io/allow-networks: "192.0.2.0/25", pyconfd.io/max-body-size: 1m}
spec:
  ingressClassName: pyconfd
  rules:
  - host: quiet.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: balanced-1, port: {number: 901}}}}]}
---
kind: IngressClass
metadata: {name: pyconfd}
spec: {controller: pyconfd.io/ingress}
---
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: pyconfd
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls-1}, {name: tls-2}]}}
  - {name: through, port: 8443, protocol: TLS, tls: {mode: Passthrough}}
---
kind: Service
metadata: {name: balanced-1}
spec:
  type: LoadBalancer
  loadBalancerClass: pyconfd.io/lb
  ports: [{name: web, port: 901, targetPort: 8080}]
---
kind: TLSRoute
metadata: {name: t1}
spec:
  parentRefs: [{name: web}]
  hostnames: [t1.example.com, "*.t1.example.com"]
  rules: [{backendRefs: [{name: app-1, port: 80}]}]
"""
EACH = """
kind: Secret
metadata: {{name: tls-{n}}}
type: kubernetes.io/tls
data: {{tls.crt: {cert}, tls.key: {key}}}
---
kind: Service
metadata:
  name: domain-{n}
  annotations: {{pyconfd.io/domain: d{n}.example.com, pyconfd.io/proto: http, pyconfd.io/tls-secret: tls-{n}}}
spec: {{ports: [{{name: web, port: 80, targetPort: 8080}}]}}
---
kind: EndpointSlice
metadata: {{name: domain-{n}-1, labels: {{kubernetes.io/service-name: domain-{n}}}}}
addressType: IPv4
ports: [{{name: web, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: ["10.0.1.{n}"], targetRef: {{kind: Pod, name: domain-{n}-pod}}}}]
---
kind: Ingress
metadata: {{name: i{n}}}
spec:
  ingressClassName: pyconfd
  tls: [{{hosts: [i{n}.example.com], secretName: tls-{n}}}]
  rules:
  - host: i{n}.example.com
    http:
      paths:
      - {{path: /, pathType: Prefix, backend: {{service: {{name: app-{n}, port: {{number: 80}}}}}}}}
      - {{path: /exact, pathType: Exact, backend: {{service: {{name: app-{n}, port: {{number: 80}}}}}}}}
  - host: "*.i{n}.example.com"
    http: {{paths: [{{path: /a, pathType: Prefix, backend: {{service: {{name: app-{n}, port: {{number: 80}}}}}}}}]}}
---
kind: HTTPRoute
metadata: {{name: h{n}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [h{n}.example.com, "*.h{n}.example.com"]
  rules:
  - matches: [{{path: {{type: PathPrefix, value: /a}}}}, {{path: {{type: Exact, value: /exact}}}}]
    backendRefs: [{{name: app-{n}, port: 80}}]
  - matches: [{{path: {{type: PathPrefix, value: /h}}}}]
    filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{add: [{{name: x-by, value: a}}]}}}}]
    backendRefs: [{{name: app-{n}, port: 80, weight: 9}}, {{name: domain-{n}, port: 80}}]
  - matches: [{{path: {{type: PathPrefix, value: /r}}}}]
    filters: [{{type: RequestRedirect, requestRedirect: {{scheme: https}}}}]
---
kind: GRPCRoute
metadata: {{name: g{n}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [g{n}.example.com]
  rules: [{{matches: [{{method: {{service: a.B, method: C}}}}], backendRefs: [{{name: app-{n}, port: 80}}]}}]
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, str]]:
    authority = CertificateAuthority(tmp_path_factory.mktemp("pki"))
    found = {}
    for number in (1, 2):
        pair = authority.server(f"tls-{number}", [f"{kind}{number}.example.com" for kind in "dih"])
        parts = {"cert": pair.cert, "key": pair.key}
        found[number] = {name: base64.b64encode(path.read_bytes()).decode() for name, path in parts.items()}
    return found


@pytest.fixture(scope="module")
def renderings(certificates: dict[int, dict[str, str]]) -> list[Rendering]:
    """One of each kind, then one more of each."""
    options = PresetOptions(
        addresses=AddressOptions(("192.0.2.1", "192.0.2.2", "192.0.2.3"), shared=("192.0.2.10",)),
        tls=TlsOptions(f"{FILES}/secrets", ("*",)),
        claims=ClaimOptions(),
    )
    found = []
    for numbers in ((1,), (1, 2)):
        each = [EACH.format(n=number, **certificates[number]) for number in numbers]
        apps = [SERVICE.format(name=f"app-{number}", address=f"10.0.0.{number}") for number in numbers]
        read = snapshot(CLASS, SHARED, *each, *apps)
        context = registry.translate(read, tuple(map(str, AUTOMATIC_PRESETS)), options)
        renderer = Renderer(
            read_fragments(directory()), RenderOptions(FILES, variables={"runtime_socket": "/run/s"}, spare_backends=8)
        )
        found.append(renderer.render(context, curdate="").rendering)
    return found


def refused(commands: Iterator[Command]) -> list[str]:
    return [line.shown for command in commands for line in command.socket_lines() if not line.safe]


def test_entries_of_every_map_may_be_sent(renderings: list[Rendering]) -> None:
    maps = {Path(file.path).stem: file for file in renderings[1].files if file.kind is FileKind.MAP}
    empty = {name for name, file in maps.items() if not entries_of(file.content)}
    assert {name for name in empty if not name.startswith("name-wildcards-")} <= NEVER_FILLED

    def commands() -> Iterator[Command]:
        for file in maps.values():
            for key, value in entries_of(file.content) or ():
                yield AddMapEntries(file.path, ((key, value),))
                yield RemoveMapEntries(file.path, (key,))

    assert refused(commands()) == []


def test_names_of_sections_servers_and_files_may_be_sent(renderings: list[Rendering]) -> None:
    text = renderings[1].text
    names = {word for line in re.findall(r"^(?:backend|defaults) .*$", text, re.MULTILINE) for word in line.split()}
    names |= set(re.findall(r"^ +server (\S+) ", text, re.MULTILINE)) | {file.path for file in renderings[1].files}
    assert len(names) > 20
    assert [name for name in sorted(names) if not is_plain(name)] == []


@pytest.mark.parametrize("by", ["new backends", "spares"])
def test_one_more_of_each_kind_is_a_runtime_update(renderings: list[Rendering], by: str) -> None:
    before, after = renderings
    spares = frozenset(re.findall(r"^backend (spare-\S+)", before.text, re.MULTILINE))
    path = next(file.path for file in before.files if file.path.endswith("/spare-backends.map"))
    can = Abilities(runtime=True, spares=Spares(path, spares))
    if by == "new backends":
        can = Abilities(runtime=True, cookies=True, backends=True)
    made = plan(after, before, None, abilities=can)
    assert isinstance(made, RuntimeUpdate), made
    assert {type(command) for command in made.commands} >= {AddMapEntries, AddCertificate, AddListLines}
    assert refused(iter(made.commands)) == []
