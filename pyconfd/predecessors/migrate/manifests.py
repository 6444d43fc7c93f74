"""Kubernetes manifests: annotations, variables, command lines and embedded texts, each with its line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from pyconfd.predecessors.migrate.invocations import GivenOption, read_tokens
from pyconfd.predecessors.migrate.options import PROGRAMS
from pyconfd.predecessors.migrate.report import System

_MAX_DEPTH = 60
_TEMPLATE_ANNOTATION = "haproxy.unity3d.com/config"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text in a manifest: the key it stands under, and how many lines of the file come before its first."""

    key: str
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation or a label; ``owner`` is KIND/NAMESPACE/NAME of the manifest that has it, "" if it has no name.

    Where the manifest names no namespace there is none between the strokes.
    """

    name: str
    value: str
    line: int
    owner: str


@dataclass(slots=True)
class Manifest:
    """What a file of manifests holds; lines count from 1."""

    annotations: list[Annotation] = field(default_factory=list)
    given: list[GivenOption] = field(default_factory=list)
    texts: list[Embedded] = field(default_factory=list)


class UnreadableManifestError(ValueError):
    """A text that is no YAML; ``line`` says where, 0 if that is not known."""

    def __init__(self, message: str, line: int = 0) -> None:
        self.line = line
        super().__init__(message)


def read_manifests(system: System, text: str) -> Manifest:
    """Read every document of a YAML (or JSON) text.

    Raises:
        UnreadableManifestError: it is no YAML.

    """
    manifest = Manifest()
    try:
        for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
            if document is not None:
                _visit(system, document, manifest, "", 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise UnreadableManifestError(error.problem or "is no YAML", mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UnreadableManifestError(f"is no YAML: {str(error)[:100]}") from None
    return manifest


def _pairs(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield str(key.value), value


def _owner(parts: Mapping[str, yaml.Node]) -> str:
    """Return KIND/NAMESPACE/NAME of a manifest; "" where it does not say."""
    kind = parts.get("kind")
    metadata = dict(_pairs(parts["metadata"])) if "metadata" in parts else {}
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(kind, yaml.ScalarNode) or not isinstance(name, yaml.ScalarNode):
        return ""
    where = namespace.value if isinstance(namespace, yaml.ScalarNode) else ""
    return f"{str(kind.value).lower()}/{where}/{name.value}"


def _visit(system: System, node: yaml.Node, manifest: Manifest, owner: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _visit(system, item, manifest, owner, depth + 1)
        return
    parts = dict(_pairs(node))
    owner = _owner(parts) or owner
    if "command" in parts or "args" in parts:
        manifest.given += _command(system, parts)
    for key, value in parts.items():
        if key in {"annotations", "labels"}:
            _annotations(value, manifest, owner)
        elif key in {"env", "envFrom"} and isinstance(value, yaml.SequenceNode):
            manifest.given += _variables(value)
        elif key == "data":
            for name, content in _pairs(value):
                _embed(name, content, manifest)
        else:
            _visit(system, value, manifest, owner, depth + 1)


def _annotations(node: yaml.Node, manifest: Manifest, owner: str) -> None:
    for name, value in _pairs(node):
        text = str(value.value) if isinstance(value, yaml.ScalarNode) else ""
        manifest.annotations.append(Annotation(name, text, value.start_mark.line + 1, owner))
        if name == _TEMPLATE_ANNOTATION:
            _embed("config", value, manifest)


def _embed(name: str, node: yaml.Node, manifest: Manifest) -> None:
    if isinstance(node, yaml.ScalarNode):
        begin = node.start_mark.line + (1 if node.style in {"|", ">"} else 0)
        manifest.texts.append(Embedded(name, str(node.value), begin))


def _variables(node: yaml.SequenceNode) -> Iterator[GivenOption]:
    for item in node.value:
        parts = dict(_pairs(item))
        name, value = parts.get("name"), parts.get("value")
        line = item.start_mark.line + 1
        if isinstance(name, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
            yield GivenOption("variable", str(name.value), str(value.value), name.start_mark.line + 1)
        elif isinstance(name, yaml.ScalarNode) and "valueFrom" in parts:
            yield GivenOption("sourced", str(name.value), _source(parts["valueFrom"]), line)
        elif parts.keys() & {"configMapRef", "secretRef"}:
            yield GivenOption("sourced", "", _source(item), line)


def _source(node: yaml.Node) -> str:
    """Return where a value comes from: ``secretKeyRef stats password``."""
    return " ".join(
        f"{kind} {' '.join(str(each.value) for _, each in _pairs(reference) if isinstance(each, yaml.ScalarNode))}"
        for kind, reference in _pairs(node)
        if isinstance(reference, yaml.MappingNode)
    )


def _command(system: System, parts: dict[str, yaml.Node]) -> Iterator[GivenOption]:
    tokens: list[str] = []
    line = 0
    for key in ("command", "args"):
        node = parts.get(key)
        if isinstance(node, yaml.SequenceNode):
            line = line or node.start_mark.line + 1
            tokens += [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
    if "command" not in parts:
        tokens.insert(0, min(PROGRAMS[system]))
    yield from read_tokens(system, tokens, line)
