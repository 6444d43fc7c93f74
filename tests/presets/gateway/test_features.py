"""Each feature that is claimed is parsed, and was tested by the official suite."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pyconfd.model.gateway_api import Gateway, HTTPRoute, HttpRule
from pyconfd.presets.gateway.features import (
    FIELDS,
    GRPC_RULES,
    HTTP_RULES,
    OF_SERVICES,
    TLS_MODES,
    has_field,
    is_served,
    supported,
)
from pyconfd.presets.gateway.http_rules import parse_http

REPORTS = Path(__file__).parents[3] / "docs" / "conformance"
CORE = {
    "GATEWAY-HTTP": {"Gateway", "HTTPRoute", "ReferenceGrant"},
    "GATEWAY-GRPC": {"Gateway", "GRPCRoute", "ReferenceGrant"},
    "GATEWAY-TLS": {"Gateway", "TLSRoute", "ReferenceGrant"},
    "GATEWAY-TCP": {"Gateway", "TCPRoute", "ReferenceGrant"},
}
"""What the core tests of a profile are about. Source: ``conformance/utils/suite/profiles.go`` of the Gateway API."""

UNREPORTED = {"GATEWAY-GRPC": {"GRPCRouteNamedRouteRule", "GRPCRouteRequestHeaderModifier"}}
"""Features whose tests the suite runs with a profile, whose report does not name them (the same source)."""


def test_each_feature_was_tested_by_the_suite() -> None:
    """A new one needs ``make conformance``, which writes the report."""
    [report] = REPORTS.glob("*-default-report.yaml")
    tested: set[str] = set()
    for profile in yaml.safe_load(report.read_text(encoding="utf-8"))["profiles"]:
        if profile["core"]["result"] == "success":
            tested |= CORE[profile["name"]] | UNREPORTED.get(profile["name"], set())
        extended = profile.get("extended", {})
        if extended.get("result") == "success" and not extended["statistics"]["Failed"]:
            tested |= set(extended["supportedFeatures"])
    assert set(supported(services=True)) == tested


def test_each_feature_is_parsed() -> None:
    assert {*HTTP_RULES, *GRPC_RULES, *FIELDS, *TLS_MODES} <= set(supported())
    assert set(supported(services=True)) == {*supported(), *OF_SERVICES}
    assert {"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"} <= set(supported())
    assert list(supported()) == sorted(supported())


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"backendRefs": [{"name": "a"}]},
        {"futureField": {"a": 1}},
        {"sessionPersistence": {"type": "Header"}},
        {"filters": [{"type": "ExtensionRef", "extensionRef": {"kind": "Other"}}]},
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 304}}]},
        {"retry": {"backoff": "1s"}},
    ],
)
def test_a_rule_that_is_refused_or_not_read_is_no_feature(rule: dict[str, Any]) -> None:
    assert not is_served(rule, HttpRule, parse_http)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("spec", True),
        ("spec.listeners", True),
        ("spec.listeners.hostname", True),
        ("spec.tls.backend.clientCertificateRef", True),
        ("spec.tls.backend.client_certificate_ref", False),
        ("spec.allowedListeners.namespaces.from", True),
        ("spec.defaultScope", False),
        ("spec.listeners.port.number", False),
        ("listeners", False),
    ],
)
def test_a_field_is_known_by_the_apis_name(path: str, found: bool) -> None:
    assert has_field(Gateway, path) is found
    assert not has_field(HTTPRoute, "spec.rules.useDefaultGateways")
