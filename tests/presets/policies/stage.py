"""Objects that say words of policies, served by a real HAProxy in front of a real pod.

Clients reach HAProxy over sockets, by the PROXY protocol: so a test says which address a client has.
"""

import json
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import request_of
from pyconfd.explain.request_answer import explain_request
from pyconfd.fragments import directory
from pyconfd.model.context import Context, Refusal
from pyconfd.model.explanation import RequestAnswer
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.policies.attached import field_of
from pyconfd.presets.policies.words import WORDS, Form
from pyconfd.presets.policy import ClaimOptions, network
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from pyconfd.trying.own_haproxy import short_folder
from tests.explain.real import NamedBackends
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.gateway.stage import EchoServer, pods
from tests.world.haproxy import HaproxyProcess

HOST = "shop.example.com"
CLIENT = "198.51.100.7"
_POOL = "192.0.2.1"
_SHARED = "192.0.2.200"
_UNVERIFIED = ssl.create_default_context()
_UNVERIFIED.check_hostname, _UNVERIFIED.verify_mode = False, ssl.CERT_NONE
PRESETS = ("domains", "ingress", "gateway")
_EXPLAINED = frozenset({200, 301, 302, 303, 307, 308, 400, 403, 404, 414})
"""Statuses that `pyconfd explain URL` is to say; others depend on former requests, bodies and times."""
GATEWAY = f"""
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: pyconfd
  addresses: [{{value: {_POOL}}}]
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
"""
INGRESS_CLASS = """
kind: IngressClass
metadata: {name: pyconfd}
spec: {controller: pyconfd.io/ingress}
"""


def service(port: int, name: str = "app") -> str:
    return f"""
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
kind: EndpointSlice
metadata: {{name: {name}-a, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1]}}]
ports: [{{name: http, port: {port}}}]
"""


def of_ingress(
    words: Mapping[str, str],
    *,
    path: str = "/",
    prefix: str = "pyconfd.io/",
    name: str = "web",
    class_name: str = "pyconfd",
) -> str:
    """Return an Ingress that says words; ``prefix`` begins the names of its annotations."""
    document = {
        "kind": "Ingress",
        "metadata": {"name": name, "annotations": {f"{prefix}{word}": text for word, text in words.items()}},
        "spec": {
            "ingressClassName": class_name,
            "rules": [
                {
                    "host": HOST,
                    "http": {
                        "paths": [
                            {
                                "path": path,
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "app", "port": {"number": 80}}},
                            }
                        ]
                    },
                }
            ],
        },
    }
    return yaml.safe_dump(document)


def of_route(words: Mapping[str, str], *, path: str = "/", name: str = "web") -> str:
    """Return an HTTPRoute that says words."""
    document = {
        "kind": "HTTPRoute",
        "metadata": {"name": name, "annotations": {f"pyconfd.io/{word}": text for word, text in words.items()}},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": [HOST],
            "rules": [
                {"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "app", "port": 80}]},
            ],
        },
    }
    return yaml.safe_dump(document)


def ca_map(pem: str, name: str = "internal-ca") -> str:
    """Return a ConfigMap with CA certificates."""
    return config_map(name, {"ca.crt": pem})


def config_map(name: str, data: Mapping[str, str]) -> str:
    return yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)})


KIND_OF_WAY = {
    "ingress": "Ingress",
    "httproute": "HTTPRoute",
    "ingress by policy": "Ingress",
    "httproute by policy": "HTTPRoute",
}
TARGETS: Mapping[str, Mapping[str, str]] = {
    "ingress": {"group": "networking.k8s.io", "kind": "Ingress", "name": "web"},
    "httproute": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"},
    "gateway": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"},
    "service": {"group": "", "kind": "Service", "name": "app"},
}
"""What policies are for here, by a name for it."""


def as_fields(words: Mapping[str, str]) -> dict[str, Any]:
    """Return words as the fields of a RoutePolicy, each in its form where its text can have that."""
    found: dict[str, Any] = {}
    for name, text in words.items():
        value: Any = text
        match WORDS[name].form if name in WORDS else Form.TEXT:
            case Form.NUMBER if text.isdecimal() and text.isascii():
                value = int(text)
            case Form.FLAG if text in {"true", "false"}:
                value = text == "true"
            case Form.LIST:
                value = [each.strip() for each in text.split(",")]
            case Form.LINES:
                value = text.splitlines()
        found[field_of(name)] = value
    return found


def policy(
    fields: Mapping[str, Any], *targets: Mapping[str, str], name: str = "p", day: int = 1, namespace: str = "shop"
) -> str:
    """Return a RoutePolicy; ``day`` is its age."""
    meta = {"name": name, "namespace": namespace, "uid": f"policy-{namespace}-{name}", "generation": 1}
    document = {
        "kind": "RoutePolicy",
        "metadata": {**meta, "creationTimestamp": f"2026-01-{day:02d}T00:00:00Z"},
        "spec": {"targetRefs": [dict(each) for each in targets], **fields},
    }
    return yaml.safe_dump(document)


def _by_policy(way: str, words: Mapping[str, str], *, name: str = "web", **more: Any) -> str:
    """Return the object of a way, and a policy that says words for it."""
    said = policy(as_fields(words), {**TARGETS[way], "name": name}, name=f"of-{name}")
    objects = {"ingress": of_ingress, "httproute": of_route}
    return f"{objects[way]({}, name=name, **more)}---\n{said if words else ''}"


WAYS: Mapping[str, Callable[..., str]] = {
    "ingress": of_ingress,
    "httproute": of_route,
    "ingress by policy": partial(_by_policy, "ingress"),
    "httproute by policy": partial(_by_policy, "httproute"),
}
"""Each way to say words, by its name."""


def refused_of(context: Context) -> list[Refusal]:
    """Return what is refused of the objects that policies are for: of these that is said once more."""
    return [each for each in context.refused if each.ref.kind != "RoutePolicy"]


def said_in(way: str, word: str) -> str:
    """Return how a refusal calls what says a word."""
    return f"spec.{field_of(word)}" if way.endswith("policy") else f"annotation pyconfd.io/{word}"


@dataclass(frozen=True)
class Answer:
    """What a client got; ``headers`` in lower case."""

    status: int
    headers: Mapping[str, Sequence[str]]
    body: str

    @property
    def echo(self) -> dict[str, Any]:
        """What the pod was asked."""
        found: dict[str, Any] = json.loads(self.body)
        return found


_TLS = TlsOptions(namespaces=("*",), passwords=True)


@dataclass
class PolicyStage(NamedBackends):
    """A real HAProxy with a pod: :meth:`serving` has it serve objects."""

    pod: EchoServer | None = None
    memo: Memo = field(default_factory=Memo)
    variables: Mapping[str, Any] = field(default_factory=dict)
    nginx_classes: tuple[str, ...] = ()
    claims: ClaimOptions = field(default_factory=ClaimOptions)
    tls: TlsOptions = _TLS
    """Whose Secrets and ConfigMaps are read."""

    evidence: Evidence | None = None
    """What `pyconfd explain` knows of what is served."""

    def snapshot(self, *objects: str) -> Snapshot:
        """Return objects beside a Gateway, a class and the Service ``app``."""
        port = self.pod.port if self.pod is not None else 8080
        return snapshot(CLASS, INGRESS_CLASS, GATEWAY, service(port), *objects)

    @property
    def options(self) -> PresetOptions:
        pool = AddressOptions((_POOL,), shared=(_SHARED,))
        claims = replace(self.claims, allow_endpoints=(network("127.0.0.0/8"),))
        tls = replace(self.tls, directory=f"{self.folder}/files/secrets")
        return PresetOptions(addresses=pool, claims=claims, tls=tls, nginx_classes=self.nginx_classes)

    def context(self, *objects: str) -> Context:
        """Return what the presets make of these objects and those beside them."""
        return registry.translate(self.snapshot(*objects), PRESETS, self.options, self.memo)

    def rendered(self, *objects: str) -> tuple[Rendering, Context]:
        """Return what the shipped fragments make of objects."""
        context = self.context(*objects)
        options = RenderOptions(f"{self.folder}/files", variables={"stats_bind": "", **self.variables})
        return copy(Renderer(read_fragments(directory()), options)).render(context, curdate="").rendering, context

    def serving(self, *objects: str) -> Context:
        """Have HAProxy serve objects, and return what the presets made of them."""
        rendering, context = self.rendered(*objects)
        self.serve(rendering, context)
        self.evidence = self.evidence_of(rendering, context, *objects)
        return context

    def evidence_of(self, rendering: Rendering, context: Context, *objects: str) -> Evidence:
        """Return what `pyconfd explain` knows where this is served."""
        return Evidence(
            now=1.0,
            snapshot=self.snapshot(*objects),
            context=context,
            presets=PRESETS,
            options=self.options,
            desired=rendering,
            running=rendering,
            refused=context.refused,
        )

    def explained(
        self,
        way: str,
        path: str,
        client: str = CLIENT,
        host: str = HOST,
        headers: Iterable[tuple[str, str]] = (),
        *,
        scheme: str = "http",
        method: str = "GET",
    ) -> RequestAnswer:
        """Return what `pyconfd explain URL` says."""
        assert self.evidence is not None
        to = _POOL if way.startswith("httproute") else _SHARED
        asked = {"url": [f"{scheme}://{host}{path}"], "to": [to], "from": [client], "method": [method]}
        given = {**asked, "header": [f"{name}: {value}" for name, value in headers]}
        found = explain_request(request_of(given), self.evidence).request
        assert found is not None
        return found

    def _rewritten(self, text: str, pem: Path) -> Iterator[str]:
        del pem
        for section in re.split(r"(?m)^(?=(?:global|defaults|frontend|backend|listen|peers|ring)\b)", text):
            keyword = section.partition(" ")[0]
            for line in section.rstrip().split("\n"):
                if keyword == "frontend" and line.split()[:1] == ["bind"]:
                    yield self._bound(line)
                elif line.strip().startswith("tcp-request connection reject"):
                    yield line.replace("connection", "session", 1)
                else:
                    yield line

    def request(
        self,
        way: str,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: str | None = None,
        raw: str = "",
        client: str = CLIENT,
        host: str = HOST,
        is_explained: bool = True,
        is_tls: bool = False,
    ) -> Answer:
        """Return the answer to a request to an Ingress or a Gateway; ``raw`` are the chunks of a body but the last.

        ``is_explained``: `pyconfd explain URL` is to say it, where it can.
        """
        to = _POOL if way.startswith("httproute") else _SHARED
        plain = self.connected(client, to, 443 if is_tls else 80)
        with closing(_UNVERIFIED.wrap_socket(plain, server_hostname=host) if is_tls else plain) as connection:
            lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
            lines += [
                f"{name}: {value}" for name, value in (headers.items() if isinstance(headers, Mapping) else headers)
            ]
            if body is not None:
                lines.append(f"Content-Length: {len(body)}")
            connection.sendall("\r\n".join([*lines, "", body or ""]).encode())
            with suppress(ConnectionError):  # what is too large is answered, and the connection closed, before its end
                connection.sendall(f"{raw}0\r\n\r\n".encode() if raw else b"")
            received = b""
            with suppress(ConnectionError):
                while more := connection.recv(65536):
                    received += more
        head, _, rest = received.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        found: dict[str, list[str]] = {}
        for name, _, value in (each.partition(":") for each in fields):
            found.setdefault(name.lower(), []).append(value.strip())
        answer = Answer(int(first.split(" ")[1]), found, rest.decode("latin-1"))
        if is_explained and not is_tls and method == "GET" and answer.status in _EXPLAINED and ":" not in client:
            pairs = headers.items() if isinstance(headers, Mapping) else headers
            said = self.explained(way, path, client, host, pairs)
            assert (said.status or 200) == answer.status, (said, answer)
            if said.status // 100 == 3:
                assert found["location"] == [said.location]
        return answer

    def begin(self, way: str, fields: str, body: bytes, path: str = "/") -> socket.socket:
        """Return a connection over which a request was begun, with the beginning of its body."""
        connection = self.connected(CLIENT, _POOL if way.startswith("httproute") else _SHARED)
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection

    def connected(self, client: str, to: str, port: int = 80) -> socket.socket:
        """Return a connection of a client to an address."""
        family = "TCP6" if ":" in client else "TCP4"
        to = "2001:db8::200" if family == "TCP6" else to
        wanted = [each for each in self.binds if each[0].port == port]
        path = max(wanted, key=lambda each: each[0].rank(to))[1]
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(path)
        connection.sendall(f"PROXY {family} {client} {to} 40000 {port}\r\n".encode())
        return connection


@contextmanager
def policy_stage(folder: Path, **variables: Any) -> Iterator[PolicyStage]:
    """Yield a stage with a pod called ``app``; ``variables`` are those of fragments."""
    own = short_folder("pol-")
    with HaproxyProcess(folder) as process, pods("app") as (pod,):
        yield PolicyStage(own, process, pod=pod, variables={"runtime_socket": f"{own}/api", **variables})
