"""Judges what words with hostile texts get into a configuration and its maps, and whether HAProxy accepts it.

Lines have the forms that sound texts give them, entries of maps the keys of their owner, and an expression matches
nothing of another host. Each case is many objects of several namespaces, with a host each.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from pyconfd.model.route_policy import POLICY_KIND
from tests.fragments.shipped import HAPROXY
from tests.fuzz import words
from tests.fuzz.clusters import NAMESPACES, Document, Slot, made_of
from tests.fuzz.haproxy_model import Config
from tests.fuzz.ownership import Seen, Story, is_canary

OBJECTS = 40
SOUND_OBJECTS = 600
"""How many objects without hostile texts say which lines there are, beside those that say one word alone."""
_GROUPS = {
    "Ingress": "networking.k8s.io",
    "HTTPRoute": "gateway.networking.k8s.io",
    "GRPCRoute": "gateway.networking.k8s.io",
}
_OFTEN = {"Ingress": 0.6, "HTTPRoute": 0.3, "GRPCRoute": 0.1}
_JOINING = frozenset({"if", "unless", "or", "||", "&&", "!", "!{", "{", "}"})
_MANY = frozenset({"retry-on", "balance", "bind", "acl"})
"""Directives that take any number of arguments."""
_EXPRESSION = re.compile(r"%\[((?:[^\]\"']|\[[^\]]*\])*)\]?")
_OF_PROFILE = re.compile(r"\|[0-9a-f]{8}\|")
_NUMBERED = re.compile(r"(request|response)[0-9]+\)")
_FILE = re.compile(r"/[^,)]*/(?=[a-z-]+\.map)")
_TEXT = re.compile(r"\bstr\([^()]*\)")
_NAMED = re.compile(r"(req\.f?hdr|req\.cook|hdr|path_beg)\([A-Za-z0-9_.-]*\)")
_KEY_OF_VALUE = re.compile(r"([A-Za-z0-9_.:-]+)\|[0-9a-f]{8}\|[a-z0-9_-]+")
_KEY_OF_NETWORK = re.compile(r"([A-Za-z0-9_.:-]+)\|[0-9a-f]{8}\|(?:allow|deny)\|[46][0-9A-F]{0,32}")
_KEYS = {"backend-values": _KEY_OF_VALUE, "policy-networks": _KEY_OF_NETWORK}

Shape = tuple[object, ...]


def host_of(slot: Slot) -> str:
    """Return the only host of an object."""
    return f"{slot[2]}.{slot[1]}.test"


def _object(slot: Slot, said: words.Texts, class_name: str) -> Document:
    kind = slot[0]
    annotations = dict(said)
    if kind == "Ingress":
        paths = [
            {"path": path, "pathType": "ImplementationSpecific", "backend": _SERVICE} for path in ("/", "/app(/|$)(.*)")
        ]
        if not any(name.endswith(("use-regex", "rewrite-target")) for name in said):
            paths[1:] = [{"path": "/app", "pathType": "Exact", "backend": _SERVICE}]
        spec = {"ingressClassName": class_name, "rules": [{"host": host_of(slot), "http": {"paths": paths}}]}
        return {"metadata": {"annotations": annotations}, "spec": spec}
    spec = {
        "parentRefs": [{"name": "g0", "namespace": "a"}],
        "hostnames": [host_of(slot)],
        "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
    }
    return {"metadata": {"annotations": annotations}, "spec": spec}


_SERVICE = {"service": {"name": "web", "port": {"number": 80}}}
_LISTENER = {"name": "l0", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
_GATEWAY = {"metadata": {"annotations": {}}, "spec": {"gatewayClassName": "pyconfd", "listeners": [_LISTENER]}}


@dataclass(slots=True)
class Case:
    """One cluster, with more or less of hostile texts. Deterministic: by its seed and number."""

    seed: int
    number: int
    folder: str = "/f"

    @property
    def name(self) -> str:
        """Says where it is, so that it can be told again."""
        return f"words seed {self.seed} case {self.number}"

    def run(self) -> Iterator[str]:
        """Return what is wrong."""
        rng = Random(f"words/{self.seed}/{self.number}")
        hostility = rng.choice((0.1, 0.4, 0.9))
        said, policies = [], {}
        for number in range(OBJECTS):
            kind = rng.choices(list(_OFTEN), list(_OFTEN.values()))[0]
            class_name = rng.choice(("pyconfd", words.NGINX_CLASS))
            said.append((kind, class_name, words.annotations(rng, kind, class_name, hostility)))
            if rng.random() < 0.3:
                policies[number] = words.fields(rng, hostility)
        story, seen = rendered(said, self.folder, policies)
        for what in (*_added(seen.config), *_maps(seen.config), *_expressions(seen.config, story), *_lost(story, seen)):
            yield f"{self.name}: {what}"
        if HAPROXY and Path(self.folder).is_dir():
            yield from (f"{self.name}: {line}" for line in story.checked(seen))


def rendered(
    said: Iterable[tuple[str, str, words.Texts]],
    folder: str = "/f",
    policies: Mapping[int, Mapping[str, Any]] = MappingProxyType({}),
) -> tuple[Story, Seen]:
    """Return what objects lead to, of each of which its kind, class and annotations are given.

    ``policies`` are the fields of RoutePolicies for some of them, by their numbers.
    """
    story = Story(0, 0, folder)
    objects = story.cluster.objects
    objects.clear()
    rng = Random(0)
    objects["Gateway", "a", "g0"] = made_of(rng, ("Gateway", "a", "g0"), lambda *_: _GATEWAY)
    for namespace in NAMESPACES:
        slot = "Service", namespace, "web"
        document = {"metadata": {"annotations": {}}, "spec": {"ports": [{"name": "http", "port": 80}]}}
        objects[slot] = made_of(rng, slot, lambda *_, document=document: document)
    for number, (kind, class_name, texts) in enumerate(said):
        slot = kind, NAMESPACES[number % len(NAMESPACES)], f"o{number}"
        document = _object(slot, texts, class_name)
        objects[slot] = made_of(rng, slot, lambda *_, document=document: document)
        if number in policies:
            target = {"group": _GROUPS[kind], "kind": kind, "name": slot[2]}
            policy = {"metadata": {"annotations": {}}, "spec": {"targetRefs": [target], **policies[number]}}
            of = POLICY_KIND, slot[1], slot[2]
            objects[of] = made_of(rng, of, lambda *_, document=policy: document)
    return story, story.read()


def _added(config: Config) -> Iterator[str]:
    for shape in sorted(_shapes(config) - sound_shapes(), key=repr):
        yield f"a line of a form that no sound text gives: {shape}"


@cache
def sound_shapes() -> frozenset[Shape]:
    """Return the forms of all lines that sound texts give, of each word alone, and of several together."""
    found: set[Shape] = set()
    alone = [(kind, "pyconfd", said) for kind in ("Ingress", "HTTPRoute") for said in words.all_sound(kind)]
    rng = Random(0)
    for _ in range(SOUND_OBJECTS):
        kind, class_name = rng.choice([*_OFTEN]), rng.choice(("pyconfd", words.NGINX_CLASS))
        alone.append((kind, class_name, words.annotations(rng, kind, class_name, 0.0)))
    for first in range(0, len(alone), OBJECTS):  # few enough for each namespace to have profiles
        found |= _shapes(rendered(alone[first : first + OBJECTS])[1].config)
    return frozenset(found)


def _shapes(config: Config) -> set[Shape]:
    found: set[Shape] = set()
    for section in config.sections:
        kind = section.header[0]
        found.add((kind, len(section.header), *(word for word in section.header[2:3])))
        found |= {(kind, *_shape(line)) for line in section.lines}
    return found


def _shape(line: tuple[str, ...]) -> Iterator[object]:
    directive = line[0]
    yield directive
    action = line[1].partition("(")[0] if len(line) > 1 and directive.startswith("http-re") else ""
    yield action
    depth, outside, joining = 0, 0, []
    for word in line[1:]:
        if word in _JOINING:
            joining.append(word)
            depth += {"{": 1, "!{": 1, "}": -1}.get(word, 0)
        elif not depth:
            outside += 1
    yield 0 if directive in _MANY else outside
    # Of a condition with many alternatives the form of one counts.
    yield tuple(dict.fromkeys(joining)) if joining.count("{") > 2 else tuple(joining)
    expressions, rest = set(), []
    for word in line[2 if directive.startswith("http-re") else 1 :]:
        expressions |= {_plain(each) for each in _EXPRESSION.findall(word)}
        rest.append(_EXPRESSION.sub("", word))
    text = "".join(rest)
    formats = action in {"set-header", "add-header", "redirect", "return", "set-path", "set-var-fmt"}
    yield tuple(sorted(expressions))
    yield tuple(mark for mark in ("${", "\n", "\r", "\0") if mark in "".join(line) and text != "\n")
    yield formats and "%" in text.replace("%%", "")


def _plain(expression: str) -> str:
    text = _NUMBERED.sub(r"\1N)", _OF_PROFILE.sub("|H|", _FILE.sub("", expression)))
    return _NAMED.sub(r"\1()", _TEXT.sub("str()", text))


def _maps(config: Config) -> Iterator[str]:
    """Return the entries of values that have no key of one of the backends."""
    for path, content in config.files.items():
        pattern = _KEYS.get(Path(path).stem)
        for line in content.split("\n") if pattern is not None else ():
            found = pattern.fullmatch(line.partition(" ")[0]) if pattern is not None else None
            if line and (found is None or config.backend(found[1]) is None):
                yield f"{Path(path).name} has the line {line[:200]!r}"
        if any(mark in content for mark in "\r\0"):
            yield f"{Path(path).name} has an end of a line, or of a text"


def _expressions(config: Config, story: Story) -> Iterator[str]:
    """Return the expressions of one host that match a path of another one."""
    hosts = [host_of(slot) for slot in story.cluster.objects if slot[0] == "Ingress"]
    for path in config.files:
        for key, backend in config.entries(path) if Path(path).stem == "path-expressions" else ():
            matched = [host for host in hosts if any(re.search(key, f"{host}{at}") for at in _TRIED)]
            if len(matched) > 1 or any(f"_{host.split('.')[1]}_" not in backend for host in matched):
                yield f"the expression {key!r} for {backend} matches paths of {matched}"


_TRIED = ("/", "/app/", "/app/x", "/appx", "/.a")


def _lost(story: Story, seen: Seen) -> Iterator[str]:
    """Return the objects without words that are not served."""
    known: Mapping[str, str] = {
        key: value for path in seen.config.files for key, value in seen.config.entries(path) if "hosts-" in path
    }
    for slot, document in story.cluster.objects.items():
        said = document["metadata"].get("annotations") or {}
        if slot[0] in _OFTEN and host_of(slot) not in known and not is_canary(said):
            yield f"the host of {'/'.join(slot)} is not served"


def run(seed: int, numbers: Iterable[int], folder: str = "/f") -> Iterator[str]:
    """Return the findings of these cases; what is raised is one."""
    for number in numbers:
        case = Case(seed, number, folder)
        try:
            yield from case.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            yield f"{case.name}: {type(error).__name__}: {error}"
