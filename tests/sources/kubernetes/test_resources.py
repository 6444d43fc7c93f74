"""What is read of a cluster, as lists and watches, and the rights that this takes."""

from typing import Any

import pytest
import yaml

from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.resources import manifest, reads

CONFIG = Named(Resource.CONFIGMAPS, "lb", "config")
KEYS = Named(Resource.SECRETS, "lb", "keys")
BALANCER = Named(Resource.DEPLOYMENTS, "default", "haproxy")
SERVICES, SLICES, NODES, PODS = Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.NODES, Resource.PODS
SECRETS, CONFIGMAPS = Resource.SECRETS, Resource.CONFIGMAPS


@pytest.mark.parametrize(
    ("resources", "named", "expected", "essential"),
    [
        ([SERVICES, SLICES, NODES], [], ["services", "endpointslices", "nodes"], ["services", "endpointslices"]),
        ([SECRETS], [], ["secrets of namespace web", "secrets of namespace shop"], []),
        # What is read as a whole is not read by name too; ConfigMaps are never read as a whole.
        ([SERVICES, CONFIGMAPS], [CONFIG, Named(SERVICES, "a", "b")],
         ["services", "configmaps lb/config"], ["services"]),
        ([PODS, SECRETS], [KEYS], ["secrets of namespace web", "secrets of namespace shop", "secrets lb/keys", "pods"],
         ["secrets lb/keys", "pods"]),
        ([], [CONFIG, BALANCER], ["configmaps lb/config", "deployments default/haproxy"],
         ["configmaps lb/config", "deployments default/haproxy"]),
    ],
)  # fmt: skip
def test_what_is_read(resources: list[Resource], named: list[Named], expected: list[str], essential: list[str]) -> None:
    found = reads(KubernetesSettings(secret_namespaces=("web", "shop")), resources, named)
    assert [str(read) for read in found] == expected
    assert [str(read) for read in found if read.essential] == essential


def test_only_tls_secrets_of_named_namespaces_are_read() -> None:
    assert reads(KubernetesSettings(), [SECRETS], []) == ()
    (read,) = reads(KubernetesSettings(secret_namespaces=("web",)), [SECRETS], [])
    assert (read.path, dict(read.params)) == (
        "/api/v1/namespaces/web/secrets",
        {"fieldSelector": "type=kubernetes.io/tls"},
    )


def rules(text: str) -> dict[tuple[str, str], Any]:
    """Return the rules of each role by its kind and namespace."""
    return {
        (document["kind"], document["metadata"].get("namespace", "")): document["rules"]
        for document in yaml.safe_load_all(text)
        if "rules" in document
    }


def rule(group: str, resource: str, *names: str) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": [resource], **named, "verbs": ["list", "watch"]}


@pytest.mark.parametrize(
    ("resources", "namespaces", "named", "expected"),
    [
        (
            [SERVICES, SLICES], [], [],
            {("ClusterRole", ""): [rule("", "services"), rule("discovery.k8s.io", "endpointslices")]},
        ),
        ([SERVICES], ["web"], [], {("ClusterRole", ""): [rule("", "services")]}),
        (
            [SECRETS], ["web", "shop"], [],
            {("Role", "web"): [rule("", "secrets")], ("Role", "shop"): [rule("", "secrets")]},
        ),
        (
            [PODS], [], [CONFIG, KEYS, BALANCER, Named(PODS, "a", "b")],
            {
                ("ClusterRole", ""): [rule("", "pods")],
                ("Role", "lb"): [rule("", "configmaps", "config"), rule("", "secrets", "keys")],
                ("Role", "default"): [rule("apps", "deployments", "haproxy")],
            },
        ),
    ],
)  # fmt: skip
def test_list_and_watch_on_exactly_what_is_read(
    resources: list[Resource], namespaces: list[str], named: list[Named], expected: dict[tuple[str, str], Any]
) -> None:
    text = manifest(resources, namespaces, named=named)
    assert rules(text) == expected
    bindings = [each for each in yaml.safe_load_all(text) if each["kind"].endswith("Binding")]
    assert len(bindings) == len(expected)
    account = [{"kind": "ServiceAccount", "name": "pyconfd", "namespace": "pyconfd"}]
    assert all(binding["subjects"] == account for binding in bindings)
    assert all(binding["roleRef"]["name"] == binding["metadata"]["name"] for binding in bindings)
    assert all(
        f"{one.resource} {one.namespace}/{one.name}" in text.split("---")[0] for one in named if one != named[-1]
    )


def test_a_token_of_the_account_and_how_to_get_it() -> None:
    text = manifest([Resource.NODES], service_account="lb", namespace="kube-system")
    (token,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "Secret"]
    assert token["type"] == "kubernetes.io/service-account-token"
    assert token["metadata"] == {
        "name": "lb-token",
        "namespace": "kube-system",
        "annotations": {"kubernetes.io/service-account.name": "lb"},
    }
    assert "kubectl -n kube-system get secret lb-token" in text
    assert "kind: Namespace" not in text


def test_events_may_be_created_only_where_that_is_asked_for() -> None:
    assert "events" not in manifest([Resource.SERVICES])
    text = manifest([Resource.SERVICES], events=True)
    roles = [each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole"]
    assert roles[1]["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    assert "create events" in text


def test_the_head_needs_no_kubectl_on_the_balancer() -> None:
    head = manifest([Resource.SERVICES]).partition("\n---")[0]
    assert "install -m 0640 -g pyconfd token /etc/pyconfd/token" in head
    assert not [line for line in head.splitlines() if "kubectl" in line and "/etc/" in line]
