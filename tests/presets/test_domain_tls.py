"""The annotations of domains that ask for TLS: what they give to templates, and what of them cannot be."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pyconfd.model.condition import ConditionType, type_of
from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.certificates import TLS, TlsOptions
from pyconfd.presets.domain_tls import DomainTls
from pyconfd.presets.domains import DomainsPreset
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo, translate
from tests.presets import objects
from tests.presets.objects import endpoint, service, slice_
from tests.presets.pods import certificate

OPTIONS = PresetOptions(tls=TlsOptions("/f/secrets", ("demo",)))
HOST = "shop.example.com"
WILD = "*.example.com"
PATH = "/f/secrets/demo.shop-tls.pem"


def secret(key: str = HOST, chain: str = HOST, name: str = "shop-tls") -> Secret:
    data = {"tls.key": certificate(key)[0], "tls.crt": certificate(chain)[1]}
    encoded = {each: b64encode(text.encode()).decode() for each, text in data.items()}
    return Secret(ObjectMeta(name=name, namespace="demo"), TLS, encoded)


def cluster(given: Mapping[str, str], *secrets: Secret, pod: str = "10.0.0.1") -> Snapshot:
    annotations = {"domain": HOST, "proto": "http"} | {f"pyconfd.io/{name}": text for name, text in given.items()}
    seen = objects.snapshot(service("shop", annotations), slice_("shop", endpoint(pod)))
    known = {Key("demo", each.metadata.name): each for each in secrets}
    return Snapshot(services=seen.services, endpointslices=seen.endpointslices, secrets=known)


def read(seen: Snapshot, memo: Memo | None = None) -> Context:
    return translate(seen, ("domains",), OPTIONS, memo)


@pytest.mark.parametrize(
    ("given", "tls"),
    [
        ({}, None),
        ({"tls-secret": "shop-tls"}, DomainTls(PATH, HOST, True, None)),
        ({"tls-secret": "shop-tls", "ssl-redirect": "False"}, DomainTls(PATH, HOST, False, None)),
        ({"tls-secret": "shop-tls", "hsts": "300"}, DomainTls(PATH, HOST, True, 300)),
        # There is nothing to redirect to.
        ({"tls-secret": "other"}, DomainTls("", "", False, None)),
    ],
)
def test_what_templates_get(given: Mapping[str, str], tls: DomainTls | None) -> None:
    context = read(cluster(given, secret()))
    assert context.names["domains"][HOST]["tls"] == tls
    assert [file.path for file in context.files] == ([tls.path] if tls and tls.path else [])
    assert context.names["tls"]["in_use"] is (tls is not None)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tls-secret": "other/shop-tls"}, "annotation tls-secret"),
        ({"tls-secret": "shop tls"}, "annotation tls-secret"),
        ({"tls-secret": "shop-tls", "ssl-redirect": "maybe"}, "annotation ssl-redirect"),
        ({"tls-secret": "shop-tls", "hsts": "1y"}, "annotation hsts"),
        ({"tls-secret": "shop-tls", "hsts": "-1"}, "annotation hsts"),
        ({"hsts": "300"}, "annotation hsts"),
        ({"tls-secret": "shop-tls", "domain": "192.0.2.1"}, "annotation tls-secret"),
        ({"tls-secret": "shop-tls", "proto": "https"}, "annotation tls-secret"),
    ],
)
def test_what_cannot_be_is_refused_and_served_in_no_other_way(given: Mapping[str, str], field: str) -> None:
    context = read(cluster(given, secret()))
    assert [(each.field, each.reason) for each in context.refused] == [(field, RefusalReason.INVALID_VALUE)]
    assert not context.names["domains"]
    assert not context.files


def test_a_reference_without_a_certificate_is_not_resolved() -> None:
    (refusal,) = read(cluster({"tls-secret": "other"})).refused
    assert (refusal.ref.kind, refusal.field, refusal.value) == ("Service", "annotation tls-secret", "other")
    assert type_of(refusal.reason) is ConditionType.RESOLVED_REFS


def test_the_default_certificate_of_the_settings() -> None:
    options = PresetOptions(tls=TlsOptions("/f/secrets", ("demo",), Key("demo", "shop-tls")))
    context = translate(Snapshot(secrets={Key("demo", "shop-tls"): secret()}), ("domains",), options)
    assert context.names["tls"] == {"default_certificate": PATH, "in_use": True, "reads_hello": False}
    assert [file.path for file in context.files] == [PATH]
    missing = translate(Snapshot(), ("domains",), options)
    assert missing.names["tls"] == {"default_certificate": "", "in_use": False, "reads_hello": False}
    assert [each.field for each in missing.refused] == ["tls.default_certificate"]


def test_another_endpoint_looks_at_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    memo, kept = Memo(), secret()
    before = read(cluster({"tls-secret": "shop-tls"}, kept), memo)
    monkeypatch.setattr("pyconfd.presets.domain_tls.certificate_for", None)
    monkeypatch.setattr("pyconfd.presets.cluster.read_secret", None)
    after = read(cluster({"tls-secret": "shop-tls"}, kept, pod="10.0.0.2"), memo)
    assert after.names["domains"][HOST]["ips"] == ["10.0.0.2"]
    assert after.names["domains"][HOST]["tls"] is before.names["domains"][HOST]["tls"]
    assert after.files is before.files


def test_a_renewed_secret_leaves_the_entry_as_it_is() -> None:
    memo = Memo()
    before = read(cluster({"tls-secret": "shop-tls"}, secret()), memo)
    after = read(cluster({"tls-secret": "shop-tls"}, secret(WILD, WILD)), memo)
    assert after.names["domains"][HOST]["tls"] is before.names["domains"][HOST]["tls"]
    assert [file.content.startswith(certificate(WILD)[0]) for file in after.files] == [True]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tls-secret", "pyconfd.io/tls-secret"),
        ("pyconfd.io/tls-secrets", "pyconfd.io/tls-secret"),
        ("pyconfd.io/ssl_redirect", "pyconfd.io/ssl-redirect"),
        ("pyconfd.io/tls-secret", ""),
    ],
)
def test_a_misspelled_annotation_is_named(written: str, meant: str) -> None:
    (preset,) = (each for each in registry.PRESETS.values() if isinstance(each, DomainsPreset))
    written_so = service("shop", {"domain": HOST, "proto": "http", written: "x"})
    found = list(preset.mistakes(written_so, Snapshot(), PresetOptions()))
    assert [line for line in found if meant in line] == found
    assert len(found) == bool(meant)


def test_a_certificate_for_another_host_is_said_and_nobody_is_sent_to_it() -> None:
    context = read(cluster({"tls-secret": "shop-tls"}, secret("other.example.com", "other.example.com")))
    assert context.names["domains"][HOST]["tls"] == DomainTls(PATH, HOST, False, None)
    [note] = context.refused
    assert (note.reason, note.value) == (RefusalReason.CERTIFICATE_MISMATCH, HOST)
    assert "Secret demo/shop-tls is for other.example.com" in note.detail


def test_a_redirect_begins_when_the_default_certificate_names_the_host_and_ends_with_it() -> None:
    options = replace(OPTIONS, tls=TlsOptions("/f/secrets", ("demo",), Key("demo", "edge")))
    memo, given = Memo(), {"tls-secret": "none"}

    def redirects(*secrets: Secret) -> bool:
        context = translate(cluster(given, *secrets), ("domains",), options, memo)
        return bool(context.names["domains"][HOST]["tls"].redirect)

    assert not redirects()
    assert redirects(secret(WILD, WILD, "edge"))
    assert not redirects(secret("other.example.com", "other.example.com", "edge"))


def test_what_is_presented_for_a_domain_is_known_with_its_end() -> None:
    context = read(cluster({"tls-secret": "shop-tls"}, secret()))
    [found] = (each for part in context.certificates for each in part.values())
    assert (found.namespace, found.secret, found.host) == ("demo", "shop-tls", HOST)
    assert found.not_after > 4_000_000_000
