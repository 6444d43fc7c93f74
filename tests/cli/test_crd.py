"""``pyconfd crd``, and RoutePolicies in files."""

from pathlib import Path
from typing import Any

import yaml

from pyconfd.cli.exits import Exit
from pyconfd.fragments import directory
from pyconfd.presets.policies.attached import MOST_TARGETS, field_of
from pyconfd.presets.policies.words import WORDS, Form
from tests.cli.invoking import invoke

_TYPES = {
    Form.TEXT: "string",
    Form.NUMBER: "integer",
    Form.FLAG: "boolean",
    Form.LIST: "array",
    Form.LINES: "array",
}
OBJECTS = """
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: pyconfd},
 spec: {controller: pyconfd.io/ingress}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  ingressClassName: pyconfd
  rules:
  - host: shop.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""
POLICY = """---
apiVersion: pyconfd.io/v1alpha1
kind: RoutePolicy
metadata: {name: internal, namespace: shop}
spec:
  targetRefs: [{group: networking.k8s.io, kind: Ingress, name: web}]
  allowNetworks: [192.0.2.0/24]
"""


def test_the_definition_has_a_field_for_each_word() -> None:
    result = invoke("crd")
    assert result.exit_code == Exit.OK
    definition: dict[str, Any] = yaml.safe_load(result.stdout)
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = spec["properties"]
    targets = fields.pop("targetRefs")
    assert {name: each["type"] for name, each in fields.items()} == {
        field_of(name): _TYPES[word.form] for name, word in WORDS.items()
    }
    assert all(word.meaning in fields[field_of(name)]["description"] for name, word in WORDS.items())
    assert targets["maxItems"] == MOST_TARGETS
    # Without it the API server would drop what a newer version restricts by.
    assert spec["x-kubernetes-preserve-unknown-fields"] is True


def test_policies_of_files_count(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    found = []
    for text in (OBJECTS, OBJECTS + POLICY):
        file.write_text(text)
        result = invoke("render", "--files", "--template-dir", str(directory()), "--snapshot", str(file))
        assert result.exit_code == Exit.OK, result.output
        found.append("|allow|4C00002" in result.stdout)
    assert found == [False, True]
