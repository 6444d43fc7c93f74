import base64
import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import ConfigurationError
from pyconfd.model.kubernetes import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    Node,
    NodeStatus,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.sources.file import read_snapshot, write_snapshot
from tests.presets.pods import pod_json
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.objects import EndpointSpec

SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: demo, creationTimestamp: 2026-01-01T00:00:00Z}
addressType: IPv6
endpoints:
- addresses: ["2001:db8::1"]
  conditions: {ready: true}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: shop
  namespace: demo
  annotations: {domain: example.org, kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec: {ports: [{port: 80, targetPort: web}]}
"""


def saved(tmp_path: Path, text: str, name: str = "snapshot.yaml") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def indented(text: str) -> str:
    return "- " + text.strip().replace("\n", "\n  ")


def test_several_documents_a_list_and_json(tmp_path: Path) -> None:
    documents = saved(tmp_path, f"---\n{SERVICE}---\n{SLICE}---\n", "a")
    whole = saved(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n{indented(SERVICE)}\n{indented(SLICE)}\n", "b")
    loaded = [yaml.load(text, Loader=yaml.BaseLoader) for text in (SERVICE, SLICE)]
    loaded[0]["spec"]["ports"][0]["port"] = 80
    loaded[1]["endpoints"][0]["conditions"]["ready"] = True
    as_json = saved(tmp_path, json.dumps({"kind": "List", "apiVersion": "v1", "items": loaded}), "c")
    snapshot, refusals = read_snapshot(documents)
    assert refusals == ()
    assert snapshot.services[Key("demo", "shop")].metadata.annotations == {"domain": "example.org"}
    made = snapshot.endpointslices[Key("demo", "shop-1")]
    assert made.metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    assert made.endpoints == (Endpoint(("2001:db8::1",), EndpointConditions(ready=True)),)
    assert read_snapshot(whole)[0] == snapshot
    assert read_snapshot(as_json)[0] == snapshot
    assert read_snapshot([saved(tmp_path, SERVICE, "d"), saved(tmp_path, SLICE, "e")])[0] == snapshot


def test_a_typed_list_as_the_api_sends_it(tmp_path: Path) -> None:
    node = {"metadata": {"name": "node-1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
    for version in ({"apiVersion": "v1"}, {}):
        path = saved(tmp_path, json.dumps({"kind": "NodeList", **version, "items": [node]}))
        assert list(read_snapshot(path)[0].nodes) == [Key("", "node-1")]


def test_the_standard_input() -> None:
    assert list(read_snapshot("-", io.StringIO(SERVICE))[0].services) == [Key("demo", "shop")]


def test_other_kinds_are_passed_over(tmp_path: Path) -> None:
    pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: demo}\n"
    old = "---\napiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a, namespace: demo}\n"
    snapshot, refusals = read_snapshot(saved(tmp_path, SERVICE + pod + old))
    assert list(snapshot.services) == [Key("demo", "shop")]
    assert (dict(snapshot.endpointslices), refusals) == ({}, ())


def test_bad_objects_are_refused_by_name_and_the_others_stay(tmp_path: Path) -> None:
    bad = SERVICE.replace("name: shop", "name: bad").replace("port: 80", "port: eighty")
    nameless = "apiVersion: v1\nkind: Node\nmetadata: {}\n"
    snapshot, refusals = read_snapshot(saved(tmp_path, f"{bad}---\n{SERVICE}---\n{nameless}"))
    assert list(snapshot.services) == [Key("demo", "shop")]
    assert [str(refusal.ref) for refusal in refusals] == ["Node (no name)", "Service demo/bad"]
    assert "$.spec.ports[0].port" in refusals[1].detail


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("---\n---\n", "nothing but empty documents"),
        ("hello", "no Kubernetes object"),
        ("[1]", "no Kubernetes object"),
        ("a: b", "no Kubernetes object"),
        ("kind: List\n", "a List without items"),
        ("kind: ServiceList\nitems: {}\n", "a ServiceList without items"),
        ("kind: Service\nmetadata:\n  - [", "line 4: neither YAML nor JSON"),
        ('{"kind": "List", "items": [', r"line \d: neither YAML nor JSON"),
        ("kind: !!python/object:os.system {}", "neither YAML nor JSON"),
        ("\x00", "neither YAML nor JSON"),
    ],
)
def test_what_is_no_snapshot_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_snapshot(saved(tmp_path, text))
    assert "kubectl get" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_snapshot(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="Is a directory"):
        read_snapshot(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="this is no text"):
        read_snapshot(tmp_path / "binary")


def test_private_keys_are_not_written() -> None:
    secret = Secret(ObjectMeta("cert", "web"), "kubernetes.io/tls", {"tls.key": base64.b64encode(b"x").decode()})
    text = write_snapshot(Snapshot(secrets={Key("web", "cert"): secret}))
    assert "eA==" not in text
    assert "tls.key: REDACTED" in text


def test_the_text_does_not_depend_on_the_order_of_the_api() -> None:
    one, two = (Service(ObjectMeta(name, "demo")) for name in ("a", "b"))
    keys = Key("demo", "a"), Key("demo", "b")
    forth = Snapshot(services={keys[0]: one, keys[1]: two})
    back = Snapshot(services={keys[1]: two, keys[0]: one})
    assert write_snapshot(forth) == write_snapshot(back)


NAMES = st.text(min_size=1, max_size=8)
WORDS = st.none() | st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
METAS = st.builds(ObjectMeta, NAMES, NAMES, labels=WORDS, annotations=WORDS, resource_version=st.text(max_size=3))
PORTS = st.none() | st.lists(
    st.builds(ServicePort, st.none() | NAMES, st.integers(0, 65535), st.none() | st.integers(1, 9) | NAMES), max_size=3
).map(tuple)
SERVICES = st.builds(Service, METAS, st.builds(ServiceSpec, PORTS, load_balancer_ip=st.none() | NAMES))
CONDITIONS = st.none() | st.builds(EndpointConditions, *[st.none() | st.booleans()] * 3)
SLICES = st.builds(
    EndpointSlice,
    METAS,
    endpoints=st.none() | st.lists(st.builds(Endpoint, st.tuples(NAMES), CONDITIONS), max_size=3).map(tuple),
    ports=st.none() | st.lists(st.builds(EndpointPort, NAMES, st.integers(1, 65535)), max_size=2).map(tuple),
)
NODES = st.builds(Node, st.builds(ObjectMeta, NAMES, annotations=WORDS), status=st.just(NodeStatus()))


@given(
    st.text(max_size=5),
    st.lists(SERVICES, max_size=3),
    st.lists(SLICES, max_size=3),
    st.lists(NODES, max_size=2),
    st.lists(st.builds(Endpoints, METAS), max_size=2),
)
def test_what_was_written_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: str,
    services: list[Service],
    slices: list[EndpointSlice],
    nodes: list[Node],
    endpoints: list[Endpoints],
) -> None:
    snapshot = Snapshot(
        cluster,
        services={Key(r.metadata.namespace, r.metadata.name): r for r in services},
        endpointslices={Key(r.metadata.namespace, r.metadata.name): r for r in slices},
        nodes={Key(r.metadata.namespace, r.metadata.name): r for r in nodes},
        endpoints={Key(r.metadata.namespace, r.metadata.name): r for r in endpoints},
    )
    path = tmp_path_factory.mktemp("round") / "trip.yaml"
    path.write_text(write_snapshot(snapshot))
    assert read_snapshot(path) == (snapshot, ())


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("output", ["yaml", "json"])
def test_what_kubectl_prints(output: str, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.add_service("demo", "shop")
    cluster.set_endpoints("demo", "shop", [EndpointSpec("10.0.0.1")])
    cluster.add_node("node-1", "192.0.2.1")
    with ApiServer(cluster) as server:
        kubectl = ["kubectl", "--server", server.url, "--cache-dir", str(tmp_path / "cache")]
        done = subprocess.run(
            [*kubectl, "get", "-A", "-o", output, "services,endpoints,endpointslices,nodes"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    snapshot, refusals = read_snapshot(saved(tmp_path, done.stdout))
    assert refusals == ()
    assert list(snapshot.services) == list(snapshot.endpoints) == [Key("demo", "shop")]
    assert len(snapshot.endpointslices) == 1
    assert list(snapshot.nodes) == [Key("", "node-1")]


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


ROUTING = """
apiVersion: v1
kind: List
items:
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: web, namespace: shop}
  spec: {ingressClassName: pyconfd, rules: [{host: a.example.com}]}
  status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
- apiVersion: gateway.networking.k8s.io/v1
  kind: ReferenceGrant
  metadata: {name: grant, namespace: shop}
  spec: {from: [], to: []}
- apiVersion: gateway.networking.k8s.io/v1beta1
  kind: Gateway
  metadata: {name: web, namespace: shop}
  spec: {gatewayClassName: pyconfd, listeners: [{name: http, port: 80, protocol: HTTP, newIn2030: 1}]}
- apiVersion: gateway.networking.k8s.io/v1
  kind: HTTPRoute
  metadata: {name: web, namespace: shop}
  spec:
    rules:
    - matches: [{headers: [{name: X-Api-Key, value: hunter2}, {name: X-Canary, value: "1"}]}]
      filters:
      - type: RequestHeaderModifier
        requestHeaderModifier: {set: [{name: Authorization, value: Basic hunter2}]}
- apiVersion: gateway.networking.k8s.io/v1
  kind: TCPRoute
  metadata: {name: bad, namespace: shop}
  spec: {rules: none}
"""


def test_ingresses_and_routes_in_a_file_without_credentials(tmp_path: Path) -> None:
    (tmp_path / "routing.yaml").write_text(ROUTING)
    snapshot, refused = read_snapshot(tmp_path / "routing.yaml")
    key, grant = Key("shop", "web"), Key("shop", "grant")
    assert (set(snapshot.ingresses), set(snapshot.gateways), set(snapshot.httproutes)) == ({key}, {key}, {key})
    assert set(snapshot.referencegrants) == {grant}
    assert [(each.ref.kind, each.ref.name) for each in refused] == [("TCPRoute", "bad")]

    (tmp_path / "again.yaml").write_text(text := write_snapshot(snapshot))
    again, refused = read_snapshot(tmp_path / "again.yaml")
    assert refused == ()
    assert (again.ingresses, again.gateways, again.referencegrants) == (
        *(snapshot.ingresses, snapshot.gateways, snapshot.referencegrants),
    )
    assert "hunter2" not in text
    (route,) = [each for each in yaml.safe_load(text)["items"] if each["kind"] == "HTTPRoute"]
    (rule,) = route["spec"]["rules"]
    assert [each["value"] for each in rule["matches"][0]["headers"]] == ["REDACTED", "1"]
