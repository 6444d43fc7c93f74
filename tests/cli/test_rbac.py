"""``pyconfd rbac --preset ...`` as somebody types it who has no settings yet."""

from typing import Any

import pytest
import yaml

from pyconfd.model.context import PresetName
from pyconfd.sources.kubernetes.resources import nodes_name, owners_names
from tests.cli.invoking import invoke

Rules = set[tuple[str, str, tuple[str, ...]]]


def rules(*arguments: str) -> Rules:
    """Return namespace ("" for all), resource and names of what may be read."""
    done = invoke("rbac", *arguments)
    assert done.exit_code == 0, done.stderr
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {
        (document["metadata"].get("namespace", ""), resource, tuple(rule.get("resourceNames", ())))
        for document in documents
        for rule in document.get("rules", ())
        for resource in rule["resources"]
    }


_POLICIES = ("routepolicies", "routepolicies/status")
VIEW: Rules = {("", each, ()) for each in ("services", "endpoints", "endpointslices", "nodes")}
PODS: Rules = {("", "pods", ())}
OBJECTS: Rules = {("lb", "configmaps", ("certificates", "config", "services")), ("lb", "secrets", ("keys",))}
GATEWAY: Rules = {
    ("", each, ())
    for each in (
        *(
            "namespaces",
            "gatewayclasses",
            "gateways",
            "listenersets",
            "httproutes",
            "grpcroutes",
            "tlsroutes",
            "tcproutes",
        ),
        *("referencegrants", "backendtlspolicies", "routepolicies"),
    )
}
STATUSES: Rules = {
    ("", f"{each}/status", ())
    for each in (
        "gatewayclasses",
        "gateways",
        "listenersets",
        "httproutes",
        "grpcroutes",
        "tlsroutes",
        "tcproutes",
        "backendtlspolicies",
        "routepolicies",
    )
}
LEASE: Rules = {("pyconfd", "leases", ("pyconfd",)), ("pyconfd", "leases", ())}
OWNERS = LEASE | {
    ("pyconfd", "configmaps", (*owners_names("pyconfd"), nodes_name("pyconfd"))),
    ("pyconfd", "configmaps", ()),
}
"""The record of names, which one of several balancers writes."""
EVENTS = {("", "events", ())}
NEEDED: dict[str, Rules] = {
    "domains": VIEW,
    "gateway": VIEW | GATEWAY | STATUSES,
    "ingress": VIEW | {("", each, ()) for each in ("ingresses", "ingressclasses", "ingresses/status", *_POLICIES)},
    "loadbalancer": VIEW | {("", "services/status", ())},
    "kube2lb": VIEW,
    "kubefigurator": VIEW,
    "configmap": PODS | OBJECTS,
    "hosts": PODS,
}


@pytest.mark.parametrize("preset", [str(each.value) for each in PresetName])
def test_each_preset_asks_for_what_it_reads(preset: str) -> None:
    assert preset in NEEDED, f"add to NEEDED what {preset} may read and write"
    assert rules("--preset", preset) == NEEDED[preset] | OWNERS | EVENTS
    assert rules("--preset", preset, "--events-enabled=false") == NEEDED[preset] | OWNERS
    without = rules("--preset", preset, "--cluster-status-enabled=false", "--events-enabled=false")
    assert without == {each for each in NEEDED[preset] if not each[1].endswith("/status")}, "nothing is written at all"


@pytest.mark.parametrize("preset", ["ingress", "gateway"])
def test_config_maps_that_tenants_name_are_read_where_secrets_are(preset: str) -> None:
    found = rules("--preset", preset, "--kubernetes-secret-namespaces", "shop")
    assert {("shop", each, ()) for each in ("configmaps", "secrets")} <= found


def test_several_together_and_the_object_that_holds_the_configuration() -> None:
    found = rules("--preset", "hosts,configmap", "--hosts-config", "deployment/default/haproxy")
    assert found == PODS | OBJECTS | OWNERS | EVENTS | {("default", "deployments", ("haproxy",))}
