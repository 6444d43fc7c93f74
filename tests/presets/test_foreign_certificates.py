"""The certificate of a host serves only the namespace whose claim of that host is the oldest."""

import msgspec
import pytest

from pyconfd.model.context import RefusalReason
from pyconfd.model.kubernetes import Service
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from tests.presets import kubefigurator

RULES = ClaimOptions((Rule(("victim",)), Rule(("*",), domains=("team.example.com",))))


def claim(namespace: str, created: str, **given: str) -> Service:
    made = kubefigurator.labelled("web", {f"web.{key}": text for key, text in given.items()}, created=created)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, namespace=namespace))


def victim() -> Service:
    return claim("victim", "2026-01-01T00:00:00Z", **{"hostname": "shop.example.com", "use-ssl": "true"})


def refused(*services: Service, rules: ClaimOptions | None = None) -> dict[str, RefusalReason]:
    context = kubefigurator.read(*services, options=PresetOptions(claims=rules or ClaimOptions()))
    return {each.ref.namespace: each.reason for each in context.refused if "certificate" in each.field}


@pytest.mark.parametrize(
    "given",
    [
        {"haproxy-mode": "tcp", "use-ssl": "true", "ssl-certificate": "shop.example.com.pem"},
        {"haproxy-mode": "tcp", "use-ssl": "true", "ssl-certificate": "SHOP.example.com.pem"},
        {"hostname": "mine.example.com", "use-ssl": "true", "ssl-certificate": "shop.example.com.pem"},
        {"hostname": "shop.example.com", "use-ssl": "true"},
    ],
)
def test_another_port_gets_no_foreign_certificate(given: dict[str, str]) -> None:
    young = claim("evil", "2026-06-01T00:00:00Z", **{"listen-port": "18443", **given})
    assert refused(victim(), young) == {"evil": RefusalReason.NAME_TAKEN}
    same = claim("victim", "2026-06-01T00:00:00Z", **{"listen-port": "18443", **given})
    assert (
        refused(victim(), msgspec.structs.replace(same, metadata=msgspec.structs.replace(same.metadata, name="b")))
        == {}
    )


@pytest.mark.parametrize(
    ("certificate", "allowed"),
    [
        ("shop.example.com.pem", False),
        ("default.pem", False),
        ("team.example.com.pem", True),
        ("wildcard.team.example.com.pem", True),
    ],
)
def test_rules_say_whose_certificates_a_namespace_may_name(certificate: str, allowed: bool) -> None:
    given = {"haproxy-mode": "tcp", "use-ssl": "true", "listen-port": "18443", "ssl-certificate": certificate}
    found = refused(claim("evil", "2026-06-01T00:00:00Z", **given), rules=RULES)
    assert found == ({} if allowed else {"evil": RefusalReason.NOT_ALLOWED})
