"""What a reference to a TLS Secret leads to: a file and a line of a list of certificates, or why there is none."""

from base64 import b64encode

import pytest

from pyconfd.model.kubernetes import NO_ROOM, TOO_LARGE, Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import HostFacts, Key, Named, Resource, Snapshot
from pyconfd.presets.certificates import TLS, TlsOptions, certificate_for, covers
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


def test_a_usable_secret_gives_a_file_and_the_names_of_the_claim() -> None:
    read = cluster.read(Snapshot(secrets={KEY: secret()}))
    found = certificate_for(read, OPTIONS, *KEY, ("shop.example.com", "*.shop.example.com"))
    assert (found.path, found.names, found.fault) == (
        "/f/secrets/shop.shop-tls.pem",
        "shop.example.com *.shop.example.com",
        "",
    )
    assert found.file is not None
    assert found.file.content.startswith(PRIVATE)
    assert found.certificate is not None
    assert found.certificate.names == ("shop.example.com",)
    assert found.certificate.not_after > 0


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
