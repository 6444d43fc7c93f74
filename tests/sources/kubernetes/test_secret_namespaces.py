"""Secrets and CA certificates: read in the allowed namespaces, with no other right than the printed ones."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pyconfd.model.kubernetes import LARGEST_PEM, NO_ROOM, ROOM_OF_NAMESPACE
from pyconfd.model.snapshot import Key, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.resources import Rights, manifest, reads
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.sources.kubernetes.conftest import ALL, Start, eventually, synced
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.rbac import Rules

RESOURCES = (*ALL, Resource.SECRETS, Resource.CONFIGMAPS)


def put(cluster: Cluster, resource: str, namespace: str, name: str, **more: Any) -> None:
    cluster.put(resource, {"metadata": {"namespace": namespace, "name": name}, **more})


@pytest.fixture
def filled(cluster: Cluster) -> Cluster:
    for namespace in ("a", "b"):
        put(cluster, "secrets", namespace, "cert", type="kubernetes.io/tls", data={"tls.crt": "eA=="})
        put(cluster, "secrets", namespace, "password", type="Opaque", data={"password": "eA=="})
        put(cluster, "configmaps", namespace, "ca", data={"ca.crt": "PEM", "more": "x"})
        put(cluster, "configmaps", namespace, "other", data={"more": "x"})
    return cluster


def kept(source: KubernetesSource) -> tuple[list[str], Mapping[str, Any]]:
    snapshot = source.snapshot()
    assert snapshot is not None
    maps = {"/".join(key): record.data for key, record in snapshot.config_maps.items()}
    return sorted("/".join(key) for key in snapshot.secrets), maps


CA = {"ca.crt": "PEM"}


@pytest.mark.parametrize(
    ("namespaces", "secrets", "maps"),
    [
        ([], [], {}),
        (["b"], ["b/cert"], {"b/ca": CA, "b/other": None}),
        (["*"], ["a/cert", "b/cert"], {"a/ca": CA, "a/other": None, "b/ca": CA, "b/other": None}),
    ],
)
def test_the_allowed_namespaces_are_read_with_the_printed_rights(
    namespaces: Sequence[str], secrets: list[str], maps: Mapping[str, Any],
    filled: Cluster, server: ApiServer, start: Start,
) -> None:  # fmt: skip
    wanted = reads(KubernetesSettings(secret_namespaces=tuple(namespaces)), RESOURCES, [])
    server.rules = Rules(manifest(Rights(wanted)))
    source = start(server.url, resources=RESOURCES, secret_namespaces=tuple(namespaces))
    synced(source)
    assert kept(source) == (secrets, maps)
    assert (source.refusals(), source.problems()) == ((), ())


def test_a_ca_certificate_that_changes_is_followed(filled: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url, resources=RESOURCES, secret_namespaces=("b",))
    synced(source)
    server.wait_for_watches("configmaps")
    put(filled, "configmaps", "b", "other", data={"ca.crt": "NEW", "more": "y" * 1000})
    eventually(lambda: kept(source)[1]["b/other"] == {"ca.crt": "NEW"})
    before = source.snapshot()
    put(filled, "configmaps", "b", "ca", data={"ca.crt": "PEM", "more": "z"})
    filled.delete("configmaps", "b", "other")
    eventually(lambda: "b/other" not in kept(source)[1])
    after = source.snapshot()
    assert before is not None
    assert after is not None
    assert after.config_maps[Key("b", "ca")] is before.config_maps[Key("b", "ca")]


def test_room_that_a_deleted_secret_leaves_is_used(cluster: Cluster, server: ApiServer, start: Start) -> None:
    large = "x" * LARGEST_PEM
    for number in range(ROOM_OF_NAMESPACE // LARGEST_PEM):
        put(cluster, "secrets", "a", f"s{number:03}", type="kubernetes.io/tls", data={"tls.crt": large})
    put(cluster, "secrets", "a", "t", type="kubernetes.io/tls", data={"tls.crt": "eA=="})
    source = start(server.url, resources=RESOURCES, secret_namespaces=("*",))
    synced(source)
    server.wait_for_watches("secrets")

    def data_of(name: str) -> Mapping[str, str] | None:
        snapshot = source.snapshot()
        assert snapshot is not None
        return snapshot.secrets[Key("a", name)].data

    assert data_of("s000") == {"tls.crt": large}
    assert data_of("t") == {"tls.crt": NO_ROOM}
    cluster.delete("secrets", "a", "s000")
    put(cluster, "secrets", "a", "t", type="kubernetes.io/tls", data={"tls.crt": "eQ=="})
    eventually(lambda: data_of("t") == {"tls.crt": "eQ=="})


def test_without_the_right_to_read_all_secrets_everything_else_goes_on(
    filled: Cluster, server: ApiServer, start: Start
) -> None:
    assert filled
    server.faults.deny("secrets")
    source = start(server.url, resources=RESOURCES, secret_namespaces=("*",))
    synced(source)
    (problem,) = source.health().problems
    assert "in a ClusterRole" in problem.remedy
    assert kept(source)[0] == []


def test_secrets_with_users_are_read_where_the_setting_says_so(
    filled: Cluster, server: ApiServer, start: Start
) -> None:
    hashed = base64.b64encode(b"$2y$05$" + b"a" * 53).decode()
    put(filled, "secrets", "a", "staff", type="Opaque", data={"ada": hashed, "token": "eA=="})
    put(filled, "secrets", "a", "release", type="helm.sh/release.v1", data={"release": "eA=="})
    settings = KubernetesSettings(secret_namespaces=("a",), password_secrets=True)
    wanted = reads(settings, RESOURCES, [])
    text = manifest(Rights(wanted))
    assert "type kubernetes.io/tls only" not in " ".join(text.replace("#", " ").split())
    server.rules = Rules(text)
    source = start(server.url, resources=RESOURCES, secret_namespaces=("a",), password_secrets=True)
    synced(source)
    snapshot = source.snapshot()
    assert snapshot is not None
    found = {key.name: record.data for key, record in snapshot.secrets.items()}
    assert found == {"cert": {"tls.crt": "eA=="}, "password": None, "staff": {"ada": hashed}}
