"""No value of an Ingress adds a word, a line or a section to haproxy.cfg or to a map."""

import re
from functools import cache
from typing import Any

import pytest

from pyconfd.fragments import directory
from pyconfd.model.rendering import Rendering
from pyconfd.presets import registry
from pyconfd.presets.annotations import OWN_ANNOTATIONS, OWN_PREFIX
from pyconfd.presets.policies.words import WORDS
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.ingress.objects import ADDRESSES, PRESETS, Obj, ingress, ingress_class, path, service, snapshot
from tests.presets.test_smuggling import ATTACKS

GOOD = [
    ingress_class(),
    *service("web", "10.0.0.1"),
    ingress("good", {"good.example.com": [path("/")]}, tls=[{"hosts": ["good.example.com"], "secretName": "good"}]),
]
OF_A_BACKEND = re.compile(
    r"(?:# Service [\w./-]+, port [\w.-]+, of Ingresses|backend ing_[\w.-]+ from http-service|    mode http|)", re.ASCII
)
OF_A_POLICY = re.compile(
    r"# What rules with the same filters have in common|# What says no `from` inherits .*|defaults from base"
    r"|(?:defaults ingress-profile-[0-9a-f]{32}|backend ingress-profile-[0-9a-f]{32}-spare-\w+) from [\w-]+"
    r"|# Ingress [\w./-]+, Service [\w.-]+, port [\w.-]+|backend ing_[\w.-]+ from ingress-profile-[0-9a-f]{32}"
    r"|    compression (?:algo gzip|type [\w./+ -]+)"
    r"|    option httpchk|    http-check (?:send|expect) .*|    default-server (?:maxconn \d+|slowstart \d+ms|no-check)"
    r"|    default-server (?:ssl verify none(?: alpn h2| sni str\([\w.-]+\))?|proto h2)"
    r"|    # .*|    balance hash var\(txn.session\)|    hash-type consistent"
    r"|    (?:mode http|http-(?:request|response)"
    r" (?:deny|return|redirect|set-var\S+|set-header|add-header|del-header|set-path) .*)",
    re.ASCII,
)
"""What a word adds. What it has of the text is quoted, and a live test has HAProxy read it."""
LINE = re.compile(r"[!-~]+ [!-~]+(?: [!-~]+)*")


def _changed(place: tuple[Any, ...], value: str) -> Obj:
    made = ingress(
        "evil",
        {"evil.example.com": [path("/x", "web:http")]},
        default="web:80",
        tls=[{"hosts": ["evil.example.com"], "secretName": "evil"}],
        day=2,
        annotations={"pyconfd.io/ssl-redirect": "true", "pyconfd.io/hsts": "1"},
    )
    part: Any = made
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    return made


SHAPES = {"path": "/{}", "host": "{}.example.com", "tls host": "{}.example.com"}
"""What is refused for its shape alone would prove nothing of the rest."""
PLACES: dict[str, tuple[Any, ...]] = {
    "name": ("metadata", "name"),
    "namespace": ("metadata", "namespace"),
    "created": ("metadata", "creationTimestamp"),
    **{name: ("metadata", "annotations", OWN_PREFIX + name) for name in sorted(OWN_ANNOTATIONS["Ingress"])},
    "class": ("spec", "ingressClassName"),
    "host": ("spec", "rules", 0, "host"),
    "path": ("spec", "rules", 0, "http", "paths", 0, "path"),
    "type": ("spec", "rules", 0, "http", "paths", 0, "pathType"),
    "service": ("spec", "rules", 0, "http", "paths", 0, "backend", "service", "name"),
    "port": ("spec", "rules", 0, "http", "paths", 0, "backend", "service", "port", "name"),
    "default": ("spec", "defaultBackend", "service", "name"),
    "tls host": ("spec", "tls", 0, "hosts", 0),
    "secret": ("spec", "tls", 0, "secretName"),
}


@cache
def _renderer() -> Renderer:
    return Renderer(read_fragments(directory()), RenderOptions("/files"))


def rendered(*objects: Obj) -> Rendering:
    context = registry.translate(snapshot(*objects), PRESETS, PresetOptions(addresses=ADDRESSES))
    assert all(each.value.isprintable() for each in context.refused)
    assert "\n" not in "".join(map(str, context.refused))
    return _renderer().render(context, curdate="").rendering


@pytest.mark.parametrize("place", PLACES)
def test_what_is_added_is_a_backend_and_lines_of_maps(place: str) -> None:
    without = rendered(*GOOD)
    known = set(without.text.splitlines())
    for attack in ATTACKS:
        for value in {attack, SHAPES.get(place, "{}").replace("{}", attack)}:
            made = rendered(*GOOD, _changed(PLACES[place], value))
            added = [line for line in made.text.splitlines() if line not in known]
            unexpected = [line for line in added if not OF_A_BACKEND.fullmatch(line)]
            if place in WORDS:
                unexpected = [line for line in unexpected if not OF_A_POLICY.fullmatch(line)]
            assert unexpected == [], value
            for file in made.files:
                lines = file.content.splitlines()
                assert [line for line in lines if not LINE.fullmatch(line)] == [], (file.path, value)
                assert set(lines) >= {
                    line for other in without.files if other.path == file.path for line in other.content.splitlines()
                }
