"""What is read of a cluster, as lists and watches, and the rights that this takes."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.resources import ResourceRead, Rights, manifest, nodes_name, owners_names, reads

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
        # What is read as a whole is not read by name too.
        ([SERVICES], [CONFIG, Named(SERVICES, "a", "b")], ["services", "configmaps lb/config"], ["services"]),
        # What has all keys comes after what has only the certificates, and hides it.
        ([SERVICES, CONFIGMAPS], [Named(CONFIGMAPS, "web", "config")],
         ["services", "configmaps of namespace web", "configmaps of namespace shop", "configmaps web/config"],
         ["services"]),
        ([PODS, SECRETS], [KEYS], ["secrets of namespace web", "secrets of namespace shop", "secrets lb/keys", "pods"],
         ["secrets lb/keys", "pods"]),
        ([], [CONFIG, BALANCER], ["configmaps lb/config", "deployments default/haproxy"],
         ["configmaps lb/config", "deployments default/haproxy"]),
        ([SERVICES, Resource.GATEWAYS], [], ["services", "gateways"], ["services"]),
    ],
)  # fmt: skip
def test_what_is_read(resources: list[Resource], named: list[Named], expected: list[str], essential: list[str]) -> None:
    found = reads(KubernetesSettings(secret_namespaces=("web", "shop")), resources, named)
    assert [str(read) for read in found] == expected
    assert [str(read) for read in found if read.essential] == essential


def test_all_namespaces_are_one_list() -> None:
    secrets, authorities = reads(KubernetesSettings(secret_namespaces=("web", "*")), [SECRETS, CONFIGMAPS], [])
    assert (secrets.path, dict(secrets.params)) == ("/api/v1/secrets", {"fieldSelector": "type=kubernetes.io/tls"})
    assert (authorities.path, dict(authorities.params)) == ("/api/v1/configmaps", {})


def test_what_tenants_fill_comes_in_small_pages() -> None:
    found = reads(KubernetesSettings(secret_namespaces=("web",)), [SERVICES, SECRETS, CONFIGMAPS], [])
    assert {read.scope.resource: read.page_size(500) for read in found} == {SERVICES: 500, SECRETS: 20, CONFIGMAPS: 20}
    assert {read.page_size(10) for read in found} == {10}
    (named,) = reads(KubernetesSettings(), [], [CONFIG])
    assert named.page_size(500) == 500


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


def rule(group: str, *resources: str, names: Sequence[str] = ()) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": list(resources), **named, "verbs": ["list", "watch"]}


def wanted(
    *resources: Resource, namespaces: Sequence[str] = (), named: Sequence[Named] = ()
) -> tuple[ResourceRead, ...]:
    return reads(KubernetesSettings(secret_namespaces=tuple(namespaces)), resources, named)


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        (
            wanted(SERVICES, SLICES),
            {("ClusterRole", ""): [rule("", "services"), rule("discovery.k8s.io", "endpointslices")]},
        ),
        (wanted(SERVICES, namespaces=["web"]), {("ClusterRole", ""): [rule("", "services")]}),
        (
            wanted(SECRETS, namespaces=["web", "shop"]),
            {("Role", "web"): [rule("", "secrets")], ("Role", "shop"): [rule("", "secrets")]},
        ),
        (wanted(SECRETS, namespaces=["*"]), {("ClusterRole", ""): [rule("", "secrets")]}),
        (
            wanted(PODS, named=[CONFIG, KEYS, BALANCER, Named(PODS, "a", "b")]),
            {
                ("ClusterRole", ""): [rule("", "pods")],
                ("Role", "lb"): [rule("", "configmaps", names=["config"]), rule("", "secrets", names=["keys"])],
                ("Role", "default"): [rule("apps", "deployments", names=["haproxy"])],
            },
        ),
        (
            wanted(SECRETS, CONFIGMAPS, namespaces=["lb"], named=[KEYS]),
            {("Role", "lb"): [rule("", "secrets", "configmaps")]},
        ),
        (
            wanted(Resource.INGRESSES, Resource.GATEWAYS, Resource.HTTPROUTES),
            {
                ("ClusterRole", ""): [
                    rule("gateway.networking.k8s.io", "gateways", "httproutes"),
                    rule("networking.k8s.io", "ingresses"),
                ]
            },
        ),
    ],
)
def test_list_and_watch_on_exactly_what_is_read(
    reads: tuple[ResourceRead, ...], expected: dict[tuple[str, str], Any]
) -> None:
    text = manifest(Rights(reads))
    assert rules(text) == expected
    bindings = [each for each in yaml.safe_load_all(text) if each["kind"].endswith("Binding")]
    assert len(bindings) == len(expected)
    account = [{"kind": "ServiceAccount", "name": "pyconfd", "namespace": "pyconfd"}]
    assert all(binding["subjects"] == account for binding in bindings)
    assert all(binding["roleRef"]["name"] == binding["metadata"]["name"] for binding in bindings)
    head = " ".join(text.split("---")[0].replace("#", " ").split())
    assert all(str(read) in head for read in reads)


def test_the_status_that_is_written_and_the_lease_of_the_writer() -> None:
    writes = [Resource.GATEWAYS, Resource.HTTPROUTES, SERVICES]
    text = manifest(Rights(wanted(SERVICES), writes, ("balancers", "lb")))
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert rules(text) == {
        ("ClusterRole", ""): [
            rule("", "services"),
            {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
            {
                "apiGroups": ["gateway.networking.k8s.io"],
                "resources": ["gateways/status", "httproutes/status"],
                "verbs": ["patch"],
            },
        ],
        ("Role", "balancers"): [
            lease | {"resourceNames": ["lb"], "verbs": ["get", "update"]},
            lease | {"verbs": ["create"]},
        ],
    }
    namespaces = [each["metadata"]["name"] for each in yaml.safe_load_all(text) if each["kind"] == "Namespace"]
    assert namespaces == ["balancers", "pyconfd"]
    assert "patch the status of services, gateways, httproutes" in text
    assert "take and renew the Lease balancers/lb" in text


def test_the_head_says_that_rights_to_secrets_know_no_type() -> None:
    assert "RBAC cannot limit" not in manifest(Rights(wanted(SERVICES, SECRETS, named=[KEYS])))
    assert "Secrets of these namespaces can be read" in manifest(Rights(wanted(SECRETS, namespaces=["web"])))
    assert "Secrets of the whole cluster can be read" in manifest(Rights(wanted(SECRETS, namespaces=["*"])))
    assert all(
        len(line) <= 120
        for line in manifest(Rights(wanted(*Resource, namespaces=["*"]))).splitlines()
        if line[:1] == "#"
    )


def test_a_token_of_the_account_and_how_to_get_it() -> None:
    text = manifest(Rights(wanted(Resource.NODES)), service_account="lb", namespace="kube-system")
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
    assert "events" not in manifest(Rights(wanted(SERVICES)))
    text = manifest(Rights(wanted(SERVICES), events=True))
    roles = [each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole"]
    assert roles[0]["rules"][1:] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    assert "create events" in text


def test_the_lease_may_be_taken_wherever_one_of_several_balancers_writes() -> None:
    lease = ("pyconfd", "lb")
    assert "leases" not in manifest(Rights(wanted(SERVICES), lease=lease))
    for more in ({"events": True}, {"statuses": (Resource.INGRESSES,)}, {"owners": True}):
        text = manifest(Rights(wanted(SERVICES), lease=lease, **more))
        assert "coordination.k8s.io" in text
        assert "take and renew the Lease pyconfd/lb" in text


def test_the_record_of_names_stands_beside_the_lease() -> None:
    text = manifest(Rights(wanted(SERVICES), lease=("balancers", "lb"), owners=True))
    config_maps = {"apiGroups": [""], "resources": ["configmaps"]}
    assert rules(text)["Role", "balancers"][2:] == [
        config_maps | {"resourceNames": [*owners_names("lb"), nodes_name("lb")], "verbs": ["get", "update"]},
        config_maps | {"verbs": ["create"]},
    ]
    assert owners_names("lb")[:2] == ("lb-owners", "lb-owners-1")
    assert "keep the record of names in ConfigMaps balancers/lb-owners*" in text


def test_the_head_needs_no_kubectl_on_the_balancer() -> None:
    head = manifest(Rights(wanted(SERVICES))).partition("\n---")[0]
    assert "install -m 0640 -g pyconfd token /etc/pyconfd/token" in head
    assert not [line for line in head.splitlines() if "kubectl" in line and "/etc/" in line]
