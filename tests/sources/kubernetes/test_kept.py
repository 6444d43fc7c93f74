"""What tenants write into Secrets and ConfigMaps stays in memory only as far as it is used."""

import base64

import msgspec

from pyconfd.model.kubernetes import LARGEST_PEM, NO_ROOM, ROOM_OF_NAMESPACE, TOO_LARGE, ConfigMap, Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Named, Resource
from pyconfd.sources.kubernetes.kept import Keeper

SECRETS, MAPS = Named(Resource.SECRETS, "", ""), Named(Resource.CONFIGMAPS, "", "")
LARGEST = "x" * LARGEST_PEM


def secret(name: str, namespace: str = "a", **data: str) -> Secret:
    meta = ObjectMeta(name=name, namespace=namespace, annotations={"note": LARGEST}, creation_timestamp="2026")
    return Secret(meta, "kubernetes.io/tls", {key.replace("_", "."): value for key, value in data.items()})


def kept(keeper: Keeper, record: Secret | ConfigMap) -> dict[str, str] | None:
    found = keeper.kept(record)
    assert isinstance(found, Secret | ConfigMap)
    return found.data


def test_of_a_secret_only_the_key_and_its_chain_are_kept() -> None:
    found = Keeper(SECRETS).kept(secret("s", tls_crt="CHAIN", tls_key="KEY", more=LARGEST))
    assert found == Secret(
        ObjectMeta(name="s", namespace="a", creation_timestamp="2026"),
        "kubernetes.io/tls",
        {"tls.crt": "CHAIN", "tls.key": "KEY"},
    )
    assert kept(Keeper(SECRETS), secret("s", more="x")) is None


def test_of_a_secret_with_users_only_hashes_are_kept() -> None:
    bcrypt, md5 = (
        base64.b64encode(each).decode() for each in (b"$2y$05$" + b"a" * 53, b"$apr1$a$aaaaaaaaaaaaaaaaaaaa")
    )
    data = {"auth": "YQ==", "ada": bcrypt, "bob": md5, "token": "aHVudGVyMg==", "long": bcrypt * 4, "tls.key": "KEY"}
    found = kept(Keeper(SECRETS), msgspec.structs.replace(secret("s"), type="Opaque", data=data))
    assert found == {"auth": "YQ==", "ada": bcrypt, "bob": md5}


def test_of_a_config_map_only_ca_certificates_are_kept() -> None:
    meta = ObjectMeta(name="ca", namespace="a", uid="u", resource_version="7", labels={"a": "b"})
    short = ObjectMeta(name="ca", namespace="a", uid="u", resource_version="7")
    found = Keeper(MAPS).kept(ConfigMap(meta, {"ca.crt": "PEM", "other": LARGEST}))
    assert found == ConfigMap(short, {"ca.crt": "PEM"})
    assert Keeper(MAPS).kept(ConfigMap(meta, {"other": "x"})) == ConfigMap(short)


def test_error_pages_are_kept() -> None:
    data = {"ca.crt": "PEM", "404.html": "a", "503": "b", "999": "c", "404.exe": "d", "index.html": "e"}
    assert kept(Keeper(MAPS), ConfigMap(ObjectMeta("pages", "a"), data)) == {
        "ca.crt": "PEM",
        "404.html": "a",
        "503": "b",
    }


def test_what_is_named_is_kept_whole() -> None:
    record = secret("keys", shop_pem=LARGEST + "x")
    assert Keeper(Named(Resource.SECRETS, "a", "keys")).kept(record) is record


def test_a_value_that_no_client_would_take_is_not_kept() -> None:
    keeper = Keeper(SECRETS)
    assert kept(keeper, secret("s", tls_crt=LARGEST, tls_key="KEY")) == {"tls.crt": LARGEST, "tls.key": "KEY"}
    assert kept(keeper, secret("s", tls_crt=LARGEST + "x", tls_key="KEY")) == {"tls.crt": TOO_LARGE, "tls.key": "KEY"}
    meta = ObjectMeta(name="ca", namespace="a")
    assert kept(Keeper(MAPS), ConfigMap(meta, {"ca.crt": LARGEST + "x"})) == {"ca.crt": TOO_LARGE}


def test_a_namespace_that_is_full_takes_no_room_from_another() -> None:
    keeper = Keeper(SECRETS)
    for number in range(ROOM_OF_NAMESPACE // LARGEST_PEM):
        assert kept(keeper, secret(f"s{number}", tls_crt=LARGEST)) == {"tls.crt": LARGEST}
    assert kept(keeper, secret("one-more", tls_crt="x")) == {"tls.crt": NO_ROOM}
    assert kept(keeper, secret("other", "b", tls_crt="x")) == {"tls.crt": "x"}
    # What is there may change, and makes room when it goes; what was left out never had any.
    assert kept(keeper, secret("s3", tls_crt="y" * LARGEST_PEM)) == {"tls.crt": "y" * LARGEST_PEM}
    keeper.dropped(Key("a", "one-more"))
    assert kept(keeper, secret("one-more", tls_crt="x")) == {"tls.crt": NO_ROOM}
    keeper.dropped(Key("a", "s3"))
    assert kept(keeper, secret("one-more", tls_crt="x")) == {"tls.crt": "x"}
