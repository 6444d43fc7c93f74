"""What a reference to a TLS Secret leads to: a file and a line of a list of certificates, or why there is none."""

import datetime as dt
from base64 import b64encode
from dataclasses import replace

import msgspec
import pytest
from cryptography import x509

from pyconfd.model.certificate import Expiry, PresentedCertificate
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import NO_ROOM, TOO_LARGE, ObjectRef, Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import HostFacts, Key, Named, Resource, Snapshot
from pyconfd.presets.certificates import (
    TLS,
    ReadSecret,
    ServedCertificate,
    TlsOptions,
    certificate_for,
    covers,
    is_named,
    is_usable,
    notes_on,
    pem_path,
    presented,
    read_secret,
)
from pyconfd.presets.views import CertificateView
from tests.presets import cluster
from tests.presets.pods import certificate

PRIVATE, CHAIN = certificate("shop.example.com")
OTHER, OTHER_CHAIN = certificate("other.example.com")
KEY = Key("shop", "shop-tls")
OPTIONS = TlsOptions("/f/secrets", ("shop",))
LATE = HostFacts(hour=10_000_000)


def secret(key: str = PRIVATE, chain: str = CHAIN, type_: str = TLS) -> Secret:
    data = {"tls.key": b64encode(key.encode()).decode(), "tls.crt": b64encode(chain.encode()).decode()}
    return Secret(ObjectMeta(name=KEY.name, namespace=KEY.namespace), type_, data)


def left_out(value: str) -> Secret:
    meta = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    return Secret(meta, TLS, {"tls.key": value, "tls.crt": value})


ENDS = int(x509.load_pem_x509_certificate(CHAIN.encode()).not_valid_after_utc.timestamp())
VIEW = CertificateView("shop", "shop-tls", PRIVATE + CHAIN, ("shop.example.com",), ENDS)
ABOUT = f"certificate for shop.example.com, until {dt.datetime.fromtimestamp(ENDS, dt.UTC):%Y-%m-%d}, issued by "
ABOUT += "CN=shop.example.com"


def test_a_usable_secret_gives_a_file_and_the_names_of_the_claim() -> None:
    read = cluster.read(Snapshot(secrets={KEY: secret()}))
    file = OutputFile(FileKind.CERTIFICATE, "/f/secrets/shop.shop-tls.pem", PRIVATE + CHAIN)
    assert certificate_for(read, OPTIONS, *KEY, ("shop.example.com", "*.shop.example.com")) == ServedCertificate(
        file, "shop.example.com *.shop.example.com", "", VIEW
    )


@pytest.mark.parametrize(
    ("made", "hour", "expected"),
    [
        (secret(), 0, ReadSecret(VIEW, "", ABOUT)),
        (secret(), ENDS // 3600 - 1, ReadSecret(VIEW, "", ABOUT)),
        (secret(), ENDS // 3600, ReadSecret(None, "tls.crt has expired: renew it", ABOUT)),
        (secret(OTHER), 0, ReadSecret(None, "tls.key does not belong to tls.crt: put a matching pair there")),
        (secret(chain=""), 0, ReadSecret(None, "tls.crt holds no CERTIFICATE")),
        (Secret(ObjectMeta("shop-tls", "shop"), TLS, None), 0, ReadSecret(None, "tls.key holds no PRIVATE KEY")),
    ],
)
def test_what_is_read_of_a_secret(made: Secret, hour: int, expected: ReadSecret) -> None:
    assert read_secret(made, hour) == expected


REF = ObjectRef("Service", "shop", "web")
SUBJECT = "the certificate of Secret shop/shop-tls"
UNTIL = f"{dt.datetime.fromtimestamp(ENDS, dt.UTC):%Y-%m-%d %H:%M} UTC: renew it"


@pytest.mark.parametrize(
    ("names", "expiry", "host", "expected"),
    [
        (("a.com",), Expiry.NOT_DUE, "a.com", []),
        (("a.com",), Expiry.NOT_DUE, "", []),
        (
            ("a.com", "b.com"),
            Expiry.NOT_DUE,
            "c.com",
            [
                Refusal(
                    REF,
                    "host",
                    "c.com",
                    RefusalReason.CERTIFICATE_MISMATCH,
                    f"{SUBJECT} is for a.com, b.com: clients refuse it here; put one there that names this host",
                )
            ],
        ),
        (
            (),
            Expiry.EXPIRED,
            "c.com",
            [
                Refusal(
                    REF,
                    "host",
                    "c.com",
                    RefusalReason.CERTIFICATE_MISMATCH,
                    f"{SUBJECT} is for no host: clients refuse it here; put one there that names this host",
                ),
                Refusal(REF, "secret", "shop-tls", RefusalReason.CERTIFICATE_EXPIRED, f"{SUBJECT} expired on {UNTIL}"),
            ],
        ),
        (
            ("a.com",),
            Expiry.SOON,
            "",
            [
                Refusal(
                    REF, "secret", "shop-tls", RefusalReason.CERTIFICATE_EXPIRES_SOON, f"{SUBJECT} expires on {UNTIL}"
                )
            ],
        ),
        (
            ("a.com",),
            Expiry.NOW,
            "a.com",
            [
                Refusal(
                    REF, "secret", "shop-tls", RefusalReason.CERTIFICATE_EXPIRES_NOW, f"{SUBJECT} expires on {UNTIL}"
                )
            ],
        ),
    ],
)
def test_notes_on_a_certificate(names: tuple[str, ...], expiry: Expiry, host: str, expected: list[Refusal]) -> None:
    served = ServedCertificate(certificate=msgspec.structs.replace(VIEW, names=names), expiry=expiry)
    assert list(notes_on(served, REF, ("secret", "host"), host)) == expected
    assert list(notes_on(ServedCertificate(expiry=expiry), REF, ("secret", "host"), host)) == []


def test_what_is_presented_and_named() -> None:
    served = ServedCertificate(certificate=VIEW)
    assert presented(served, "a.com") == PresentedCertificate("shop", "shop-tls", "a.com", ENDS)
    assert presented(ServedCertificate(), "a.com") is None
    named = [is_named(served, host) for host in ("shop.example.com", "", "other.example.com")]
    assert named == [True, True, False]
    assert not is_named(ServedCertificate(), "")


@pytest.mark.parametrize(
    ("own", "default", "host", "usable"),
    [
        (True, None, "shop.example.com", True),
        (True, None, "other.example.com", False),
        # A certificate of its own is presented whatever the default one names.
        (True, OTHER, "other.example.com", False),
        (False, OTHER, "other.example.com", True),
        (False, OTHER, "shop.example.com", False),
        (False, None, "other.example.com", False),
    ],
)
def test_clients_are_sent_to_a_certificate_that_names_the_host(
    own: bool, default: str | None, host: str, usable: bool
) -> None:
    served = ServedCertificate(certificate=VIEW if own else None)
    seen = Snapshot(secrets={KEY: secret(OTHER, OTHER_CHAIN)} if default else {})
    options = replace(OPTIONS, default=KEY)
    assert is_usable(served, host, cluster.read(seen), options) is usable
    assert is_usable(served, host, cluster.read(seen), OPTIONS) is (own and usable)


@pytest.mark.parametrize(("size", "is_whole"), [(200, True), (201, False)])
def test_the_name_of_a_file_is_cut_where_a_file_system_would_not_take_it(size: int, is_whole: bool) -> None:
    parts = "a" * 99, "b" * (size - 100)
    name = pem_path("/d", *parts).removeprefix("/d/").removesuffix(".pem")
    assert len(name) == 200
    assert (name == ".".join(parts)) is is_whole


def test_without_hosts_it_answers_for_its_own_names() -> None:
    read = cluster.read(Snapshot(secrets={KEY: secret()}))
    assert certificate_for(read, OPTIONS, *KEY, ()).names == "[]"


@pytest.mark.parametrize(
    ("seen", "options", "word"),
    [
        (Snapshot(), OPTIONS, "there is no Secret"),
        (Snapshot(secrets={KEY: secret(type_="Opaque")}), OPTIONS, "there is no Secret"),
        (Snapshot(), TlsOptions(), "kubernetes.secret_namespaces"),
        (Snapshot(denied=(Named(Resource.SECRETS, "shop", ""),)), OPTIONS, "pyconfd rbac"),
        (Snapshot(denied=(Named(Resource.SECRETS, "", ""),)), TlsOptions(namespaces=("*",)), "pyconfd rbac"),
        (Snapshot(secrets={KEY: secret(OTHER)}), OPTIONS, "does not belong"),
        (Snapshot(secrets={KEY: secret("no PEM")}), OPTIONS, "no PRIVATE KEY"),
        (Snapshot(secrets={KEY: secret(chain="")}), OPTIONS, "no CERTIFICATE"),
        (Snapshot(secrets={KEY: secret(chain=CHAIN + "#" * (1 << 20))}), OPTIONS, "1 MB"),
        (Snapshot(secrets={KEY: left_out(TOO_LARGE)}), OPTIONS, "tls.key is larger than 256 KiB"),
        (Snapshot(secrets={KEY: left_out(NO_ROOM)}), OPTIONS, "its namespace has more than 32 MiB"),
        (Snapshot(secrets={KEY: secret()}, host=LATE), OPTIONS, "expired"),
    ],
)
def test_what_cannot_be_used_says_why_and_has_no_file(seen: Snapshot, options: TlsOptions, word: str) -> None:
    found = certificate_for(cluster.read(seen), options, *KEY, ("shop.example.com",))
    assert found.file is None
    assert word in found.fault
    assert PRIVATE.splitlines()[1] not in found.fault


@pytest.mark.parametrize("broken", [secret(OTHER), secret(chain=OTHER_CHAIN), secret("no PEM")])
def test_a_broken_secret_keeps_its_former_certificate(broken: Secret) -> None:
    read = cluster.read(Snapshot(secrets={KEY: broken}, former_secrets={KEY: secret()}))
    found = certificate_for(read, OPTIONS, *KEY, ("shop.example.com",))
    assert found.file is not None
    assert found.file.content.startswith(PRIVATE)
    assert "former certificate stays in use" in found.fault


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (("shop.example.com",), "shop.example.com", True),
        (("*.example.com",), "shop.example.com", True),
        (("*.example.com",), "*.example.com", True),
        (("*.example.com",), "a.shop.example.com", False),
        (("*.example.com",), "example.com", False),
        ((), "example.com", False),
    ],
)
def test_a_wildcard_of_a_certificate_covers_one_label(names: tuple[str, ...], host: str, covered: bool) -> None:
    assert covers(names, host) is covered
