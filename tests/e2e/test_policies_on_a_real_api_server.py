"""The CustomResourceDefinition of RoutePolicies on a real API server; see ``REAL_API``."""

import json
from typing import Any

import pytest

from pyconfd.presets.policies.attached import LONGEST_TEXT, MOST_TARGETS, field_of
from pyconfd.presets.policies.words import WORDS, Form
from tests.conformance import mirror
from tests.conformance.controlplane import ControlPlane
from tests.presets.policies.stage import as_fields

pytestmark = pytest.mark.skipif(not mirror.WANTED, reason="it is about a real API server")

TARGET = {"group": "", "kind": "Service", "name": "web"}


def put(plane: ControlPlane, spec: Any) -> dict[str, Any]:
    """Return a policy as the API server has it. Raises: AssertionError."""
    policy = {
        "apiVersion": "pyconfd.io/v1alpha1",
        "kind": "RoutePolicy",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": spec,
    }
    plane.kubectl("replace", "--force", "-f", "-", given=json.dumps(policy))
    found: dict[str, Any] = json.loads(plane.kubectl("get", "routepolicies", "p", "-n", "default", "-o", "json"))
    return found


def test_each_word_has_its_form(plane: ControlPlane) -> None:
    examples = as_fields({name: word.example for name, word in WORDS.items()})
    assert put(plane, {"targetRefs": [TARGET], **examples})["spec"] == {"targetRefs": [TARGET], **examples}
    wrong = {Form.TEXT: [1], Form.NUMBER: "1", Form.FLAG: "true", Form.LIST: "a", Form.LINES: "a"}
    for name, word in WORDS.items():
        with pytest.raises(AssertionError, match=field_of(name)):
            put(plane, {field_of(name): wrong[word.form]})


def test_a_field_of_a_newer_version_is_kept(plane: ControlPlane) -> None:
    assert put(plane, {"inNextYear": {"deep": [1]}})["spec"] == {"inNextYear": {"deep": [1]}}


@pytest.mark.parametrize(
    "spec",
    [
        [],
        {"targetRefs": [TARGET] * (MOST_TARGETS + 1)},
        {"targetRefs": [{"kind": "Service"}]},
        {"targetRefs": ["web"]},
        {"maxBodySize": "x" * (LONGEST_TEXT + 1)},
    ],
)
def test_what_is_no_policy_is_refused(plane: ControlPlane, spec: Any) -> None:
    with pytest.raises(AssertionError, match=r"spec|targetRefs|maxBodySize"):
        put(plane, spec)


def test_the_description_of_a_word_can_be_asked_for(plane: ControlPlane) -> None:
    assert "a larger body gets 413" in " ".join(plane.kubectl("explain", "routepolicy.spec.maxBodySize").split())
