"""The CustomResourceDefinition of RoutePolicy, made of the vocabulary."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pyconfd.model.route_policy import POLICY_GROUP, POLICY_KIND
from pyconfd.presets.policies.attached import LONGEST_TEXT, MOST_TARGETS, TARGETS, field_of
from pyconfd.presets.policies.words import WORDS, Form, PolicyWord

_ANYTHING = MappingProxyType({"x-kubernetes-preserve-unknown-fields": True})
_MOST_ITEMS = 256
_NAME = MappingProxyType({"type": "string", "maxLength": 253})
_TEXT = MappingProxyType({"type": "string", "maxLength": LONGEST_TEXT})
_LIST = MappingProxyType({"type": "array", "maxItems": _MOST_ITEMS, "items": {"type": "string", "maxLength": 2048}})
_TYPES: Mapping[Form, Mapping[str, Any]] = MappingProxyType(
    {
        Form.TEXT: _TEXT,
        Form.NUMBER: MappingProxyType({"type": "integer", "format": "int64"}),
        Form.FLAG: MappingProxyType({"type": "boolean"}),
        Form.LIST: _LIST,
        Form.LINES: _LIST,
    }
)


def _field(word: PolicyWord) -> dict[str, Any]:
    return {**_plain(_TYPES[word.form]), "description": f"{word.meaning}; for example {word.example}"}


def _plain(value: Any) -> Any:
    """Return a schema as YAML can be written of it."""
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def definition() -> dict[str, Any]:
    """Return the object. A value of the right type is checked by the parser of its word, which the status tells."""
    references = {
        "description": "what the words are for, in the policy's namespace; none where rules name the policy",
        "type": "array",
        "maxItems": MOST_TARGETS,
        "items": {
            "type": "object",
            "required": ["group", "kind", "name"],
            "properties": {
                "group": _plain(_NAME),
                "kind": {**_NAME, "minLength": 1},
                "name": {**_NAME, "minLength": 1},
                "sectionName": {**_NAME, "description": "a listener of a Gateway or ListenerSet, or a rule of a route"},
            },
        },
    }
    spec = {
        "type": "object",
        # A field of a newer version is to be refused, and not to be dropped: it may restrict.
        **_ANYTHING,
        "properties": {TARGETS: references, **{field_of(each.name): _field(each) for each in WORDS.values()}},
    }
    schema = {
        "type": "object",
        "description": "words of policies for Gateways, listeners, routes, rules of routes, Ingresses and Services",
        "required": ["spec"],
        "properties": {"spec": spec, "status": {"type": "object", **_ANYTHING}},
    }
    names = {
        "plural": "routepolicies",
        "singular": "routepolicy",
        "kind": POLICY_KIND,
        "listKind": f"{POLICY_KIND}List",
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"routepolicies.{POLICY_GROUP}",
            # GEP-713: what is said for a Gateway is inherited by its routes.
            "labels": {"gateway.networking.k8s.io/policy": "Inherited"},
        },
        "spec": {"group": POLICY_GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
