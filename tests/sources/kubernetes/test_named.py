"""Objects that are read by their name, and pods that are kept whole."""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from pyconfd.model.kubernetes import Pod, WholeObject
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.file import read_snapshot, write_snapshot
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import Unreadable, Upserted, decode_event, decode_list
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.presets.pods import pod_json
from tests.sources.kubernetes.clocks import ScaledClock
from tests.sources.kubernetes.conftest import ended, eventually, synced
from tests.sources.kubernetes.test_decode import body
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster

CONFIG = Named(Resource.CONFIGMAPS, "lb", "config")
KEYS = Named(Resource.SECRETS, "lb", "keys")
BALANCER = Named(Resource.DEPLOYMENTS, "default", "haproxy")


def put(cluster: Cluster, resource: str, namespace: str, name: str, **fields: Any) -> None:
    cluster.put(resource, {"metadata": {"name": name, "namespace": namespace}, **fields})


def test_named_objects_alone_are_read_and_followed(cluster: Cluster, server: ApiServer) -> None:
    put(cluster, "configmaps", "lb", "config", data={"a": "1"})
    put(cluster, "configmaps", "lb", "other", data={"a": "secret"})
    put(cluster, "secrets", "lb", "keys", type="Opaque", data={"shop": "eA=="})
    put(cluster, "secrets", "lb", "tls", type="kubernetes.io/tls", data={"tls.key": "eA=="})
    put(cluster, "deployments", "default", "haproxy", spec={"template": {"metadata": {"labels": {"app": "x"}}}})
    settings = KubernetesSettings(api_servers=(server.url,))
    source = KubernetesSource(settings, [], named=[CONFIG, KEYS, BALANCER], clock=ScaledClock())
    source.start(lambda: None)
    try:
        synced(source)
        seen = source.snapshot()
        assert seen is not None
        assert list(seen.config_maps) == [Key("lb", "config")]
        assert list(seen.secrets) == [Key("lb", "keys")]
        assert seen.deployments[Key("default", "haproxy")].spec.template.metadata.labels == {"app": "x"}
        assert {(r.path, r.query["fieldSelector"]) for r in server.requests} == {
            ("/api/v1/namespaces/lb/configmaps", "metadata.name=config"),
            ("/api/v1/namespaces/lb/secrets", "metadata.name=keys"),
            ("/apis/apps/v1/namespaces/default/deployments", "metadata.name=haproxy"),
        }
        cluster.delete("configmaps", "lb", "config")
        eventually(lambda: not source.snapshot().config_maps)  # type: ignore[union-attr]
    finally:
        ended(source)


def test_pods_of_a_real_server_are_whole_but_for_their_managed_fields() -> None:
    page = decode_list(Resource.PODS, body("list-pods"))
    assert page.refusals == ()
    assert page.items
    for record in page.items:
        assert isinstance(record, Pod)
        assert record.whole is not None
        whole = record.whole.made(msgspec.json.decode)
        assert "managedFields" not in whole["metadata"]
        assert whole["kind"] == "Pod"
        assert whole["spec"]["containers"]
        assert whole["status"]["podIP"] == record.status.pod_ip
        assert record.whole.made(msgspec.json.decode) is whole, "decoded once"
        assert "spec" not in repr(record.whole)


def test_one_bad_pod_never_stops_the_others() -> None:
    bad = [{"metadata": {"name": "b", "namespace": "demo"}, "spec": 5}, {"metadata": []}, 7]
    listed = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod_json("a", "10.0.0.1"), *bad]}
    page = decode_list(Resource.PODS, json.dumps(listed).encode())
    assert [item.metadata.name for item in page.items] == ["a"]
    assert len(page.refusals) == 3
    event = decode_event(Resource.PODS, json.dumps({"type": "ADDED", "object": bad[0]}).encode())
    assert isinstance(event, Unreadable)


def test_a_change_of_what_only_templates_see_counts() -> None:
    def event(**spec: Any) -> Upserted:
        line = json.dumps({"type": "MODIFIED", "object": pod_json("a", "10.0.0.1", **spec)}).encode()
        made = decode_event(Resource.PODS, line)
        assert isinstance(made, Upserted)
        return made

    cache = Cache()
    assert cache.apply(event())
    assert not cache.apply(event())
    assert cache.apply(event(hostname="x"))


def test_pods_and_config_maps_in_a_file(tmp_path: Path) -> None:
    env = [{"name": "A", "value": "hunter2"}, {"name": "B", "valueFrom": {}}]
    probe = {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "hunter2"}]}}
    args = ["--password=hunter2"]
    url = "https://u:hunter2@example.com/"
    noted = {"note": "a\nb", "example.com/db.password": "hunter2", "url": url}
    given = pod_json("a", "10.0.0.1", {"app": "x"}, containers_=[], annotations=noted)
    container = {"name": "c", "image": "i", "env": env, "args": args, "command": args, "livenessProbe": probe}
    given["spec"]["containers"] = [container]
    given["spec"]["initContainers"] = [{**container, "lifecycle": {"preStop": {"exec": {"command": args}}}}]
    template = {"metadata": {"annotations": {"url": url}}}
    objects = [
        {"apiVersion": "v1", "kind": "Pod", **given},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "lb"}, "data": {"k": "v\nw"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "u", "namespace": "lb"}, "data": {"url": url}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "lb"},
            "spec": {"template": template},
        },
    ]
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}))
    snapshot, refused = read_snapshot(path)
    assert refused == ()
    assert snapshot.config_maps[Key("lb", "c")].data == {"k": "v\nw"}
    written = write_snapshot(snapshot)
    assert "hunter2" not in written
    assert "image: i" in written
    assert "managedFields" not in written
    path.write_text(written)
    again, _ = read_snapshot(path)
    assert write_snapshot(again) == written
    assert again.pods[Key("demo", "a")].status == snapshot.pods[Key("demo", "a")].status
    assert Snapshot().pods == {}


def test_whole_objects_are_equal_by_what_they_hold() -> None:
    assert WholeObject(b"{}") == WholeObject(b"{}")
    assert WholeObject(b"{}") != WholeObject(b"[]")
    assert len({WholeObject(b"{}"), WholeObject(b"{}")}) == 1
