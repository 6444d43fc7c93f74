"""Everything that somebody may expect to be served has exactly one fate, and none of them is silence."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.explain.fates import fates
from pyconfd.model.explanation import (
    AnyFate,
    NotApplied,
    NotReady,
    NotRendered,
    Served,
    Standing,
    TurnedAway,
    Unexplained,
)
from pyconfd.model.kubernetes import ConfigMap, Endpoints, EndpointSlice, ObjectMeta, ObjectRef, Service
from pyconfd.model.preset import PresetName
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import RECORD_OF, Key, Resource, Snapshot
from pyconfd.presets.reading import HostsOptions, KubefiguratorOptions, PresetOptions
from tests.explain.world import evidence_of
from tests.presets.test_properties import DATA, OBJECTS, PODS, pods_of

NAMES = st.sampled_from(["web", "api", "db"])
SPACES = st.sampled_from(["shop", "prod"])
DOMAINS = st.sampled_from(["a.example.com", "b.example.com", "*.example.com", "A.example.com", "not a name", ""])
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "domain": DOMAINS,
        "proto": st.sampled_from(["http", "redis", "sm tp", ""]),
        "pyconfd.io/domain": DOMAINS,
        "pyconfd.io/port": st.sampled_from(["web", "80", "nope"]),
        "pyconfd.io/listen-port": st.sampled_from(["6379", "22", "x"]),
        "kube2lb/external-domains": st.sampled_from(["x.example.com", "~^a", "no name"]),
        "haproxy-kubefigurator.web.hostname": DOMAINS,
        "haproxy-kubefigurator.web.listen-port": st.sampled_from(["443", "22"]),
    },
)
PORTS = st.lists(
    st.fixed_dictionaries(
        {"port": st.sampled_from([80, 443, 6379])},
        optional={
            "name": st.sampled_from(["web", "redis"]),
            "nodePort": st.sampled_from([0, 30080]),
            "protocol": st.sampled_from(["TCP", "UDP"]),
        },
    ),
    max_size=2,
)
SERVICES = st.lists(
    st.builds(
        lambda name, space, annotations, labels, kind, ports: {
            "metadata": {"name": name, "namespace": space, "annotations": annotations, "labels": labels},
            "spec": {"type": kind, "ports": ports},
        },
        NAMES,
        SPACES,
        ANNOTATIONS,
        st.sampled_from([{}, {"haproxy-kubefigurator.enabled": "yes"}]),
        st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]),
        PORTS,
    ),
    max_size=4,
)
SLICES = st.lists(
    st.builds(
        lambda name, space, states, port: {
            "metadata": {"name": f"{name}-1", "namespace": space, "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [
                {
                    "addresses": [f"10.0.0.{at}"],
                    "conditions": {
                        "ready": state == "ready",
                        "serving": state != "down",
                        "terminating": state == "leaving",
                    },
                    "nodeName": "n1",
                    "targetRef": {"kind": "Pod", "name": f"{name}-{at}"},
                }
                for at, state in enumerate(states, 1)
            ],
            "ports": [{"name": "web", "port": port}, {"port": port}],
        },
        NAMES,
        SPACES,
        st.lists(st.sampled_from(["ready", "down", "leaving"]), max_size=3),
        st.sampled_from([80, 8080]),
    ),
    max_size=3,
)
NODES = st.lists(
    st.builds(
        lambda ready: {
            "metadata": {"name": "n1"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        },
        st.sampled_from(["True", "False"]),
    ),
    max_size=1,
)
ENDPOINTS = st.lists(
    st.builds(
        lambda name, space, annotations: {
            "metadata": {"name": name, "namespace": space, "annotations": annotations},
            "subsets": [{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "web", "port": 80}]}],
        },
        NAMES,
        SPACES,
        ANNOTATIONS,
    ),
    max_size=2,
)
OBJECTS_OF_PEOPLE = {
    Resource.SERVICES: st.one_of(SERVICES, st.lists(OBJECTS[Resource.SERVICES], max_size=2)),
    Resource.ENDPOINTSLICES: st.one_of(SLICES, st.lists(OBJECTS[Resource.ENDPOINTSLICES], max_size=2)),
    Resource.ENDPOINTS: ENDPOINTS,
    Resource.NODES: st.one_of(NODES, st.lists(OBJECTS[Resource.NODES], max_size=2)),
}
HOSTS = HostsOptions(selector={"app": "shop"})


def stores_of(objects: dict[Resource, list[dict[str, Any]]]) -> dict[str, Any]:
    stores: dict[str, Any] = {}
    for resource, items in objects.items():
        records = [msgspec.convert(item, RECORD_OF[resource]) for item in items]
        stores[resource.field] = {Key(r.metadata.namespace, r.metadata.name): r for r in records}
    return stores


def expected(snapshot: Snapshot, presets: tuple[str, ...]) -> Iterator[tuple[str, str, str, str]]:
    """Say, without looking at how presets read, what somebody may expect to be served."""
    for key, service in snapshot.services.items():
        annotations, labels = service.metadata.annotations or {}, service.metadata.labels or {}
        own = {name: annotations.get(f"pyconfd.io/{name}", annotations.get(name, "")) for name in ("domain", "proto")}
        if any(own.values()) and PresetName.DOMAINS in presets:
            yield PresetName.DOMAINS, "Service", *key
        if labels.get("haproxy-kubefigurator.enabled") == "yes" and PresetName.KUBEFIGURATOR in presets:
            yield PresetName.KUBEFIGURATOR, "Service", *key
        if service.spec.type in {"NodePort", "LoadBalancer"} and PresetName.KUBE2LB in presets:
            yield PresetName.KUBE2LB, "Service", *key
    for key, endpoints in snapshot.endpoints.items():
        annotations = endpoints.metadata.annotations or {}
        if (annotations.get("domain") or annotations.get("proto")) and PresetName.DOMAINS in presets:
            yield PresetName.DOMAINS, "Endpoints", *key
    for key, pod in snapshot.pods.items():
        if (pod.metadata.labels or {}).get("app") == "shop" and PresetName.HOSTS in presets:
            yield PresetName.HOSTS, "Pod", *key


@given(
    st.fixed_dictionaries(OBJECTS_OF_PEOPLE),
    PODS,
    DATA,
    st.sets(st.sampled_from(list(PresetName)), min_size=1),
    st.booleans(),
)
def test_everything_that_asks_has_exactly_one_fate_and_a_reason(
    objects: dict[Resource, list[dict[str, Any]]],
    pods: list[dict[str, Any]],
    services: dict[str, str],
    chosen: set[PresetName],
    node_ports: bool,
) -> None:
    presets = tuple(sorted(chosen))
    options = PresetOptions(
        node_ports=node_ports, kubefigurator=KubefiguratorOptions(node_ports=not node_ports), hosts=HOSTS
    )
    maps = {Key("lb", "services"): ConfigMap(ObjectMeta("services", "lb"), services)}
    snapshot = Snapshot(**stores_of(objects), pods=pods_of(pods), config_maps=maps)
    evidence = evidence_of(snapshot, presets, options)

    told = list(fates(evidence))

    asked = [(ask.preset, ask.ref.kind, ask.ref.namespace, ask.ref.name) for ask, _ in told]
    assert sorted(set(expected(snapshot, presets)) - set(asked)) == []
    assert len({(ask.preset, ask.ref, ask.item) for ask, _ in told}) == len(told)
    if PresetName.CONFIGMAP in presets:
        assert sum(ask.preset == PresetName.CONFIGMAP for ask, _ in told) == len(services)
    for ask, fate in told:
        # The templates render all that they are given, and it is applied: two fates are left for what is not served.
        assert not isinstance(fate, Unexplained | NotRendered | NotApplied), (ask, fate)
        match fate:
            case Served(servers):
                assert servers
                assert all(f" {server.address}" in evidence.configuration.lines[server.line - 1] for server in servers)
            case NotReady(why):
                assert why
            case TurnedAway(reasons):
                assert reasons


def annotated(name: str = "web", **annotations: str) -> Service:
    made = {"domain": "a.example.com", "proto": "http", **annotations}
    record = {
        "metadata": {"name": name, "namespace": "shop", "annotations": made},
        "spec": {"ports": [{"name": "web", "port": 80}]},
    }
    return msgspec.convert(record, Service)


def slice_of(name: str = "web", *, ready: bool = True) -> EndpointSlice:
    record = {
        "metadata": {"name": f"{name}-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": "p"}}
        ],
        "ports": [{"name": "web", "port": 8080}],
    }
    return msgspec.convert(record, EndpointSlice)


def one(*, ready: bool = True, **more: Any) -> AnyFate:
    key = Key("shop", "web")
    snapshot = Snapshot(services={key: annotated()}, endpointslices={key: slice_of(ready=ready)})
    ((_, fate),) = fates(evidence_of(snapshot, **more))
    return fate


def test_the_fates_one_by_one() -> None:
    assert isinstance(one(), Served)
    assert isinstance(one(ready=False), NotReady)
    assert isinstance(one(templates={"10.tmpl": "global\n"}), NotRendered)
    assert one(serving=Rendering(())) == NotApplied()
    held = Standing(phase="held", hold_id="3f9c")
    assert one(serving=Rendering(()), standing=held) == NotApplied(held=True)


def test_where_only_targets_are_served_their_text_is_not_read() -> None:
    assert one(templates={}, haproxy=False) == Served(())


@pytest.mark.parametrize("items", [[], [{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "web", "port": 80}]}]])
def test_hand_made_endpoints_are_asked_about_too(items: list[dict[str, Any]]) -> None:
    meta = {"name": "web", "namespace": "shop", "annotations": {"domain": "a.example.com", "proto": "http"}}
    endpoints = msgspec.convert({"metadata": meta, "subsets": items}, Endpoints)
    ((ask, fate),) = fates(evidence_of(Snapshot(endpoints={Key("shop", "web"): endpoints})))
    assert ask.ref == ObjectRef("Endpoints", "shop", "web")
    assert isinstance(fate, Served if items else TurnedAway)


def test_a_configmap_has_a_fate_for_each_of_its_services() -> None:
    entry = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": ["a.example.com"]}
    services = {"good": json.dumps(entry), "later": json.dumps(entry), "wrong": "{"}
    pod = {
        "metadata": {"name": "p", "namespace": "demo", "labels": {"app": "shop"}},
        "status": {"podIP": "10.0.0.1", "phase": "Running", "containerStatuses": [{"ready": True}]},
    }
    snapshot = Snapshot(
        pods=pods_of([pod]),
        config_maps={Key("lb", "services"): ConfigMap(ObjectMeta("services", "lb"), services)},
    )
    told = {ask.item: fate for ask, fate in fates(evidence_of(snapshot, (PresetName.CONFIGMAP,)))}
    assert isinstance(told["good"], Served)
    assert told["later"] == TurnedAway(("invalid_value", "name_taken"))
    assert told["wrong"] == TurnedAway(("invalid_value",))


def node_port_service(name: str, port: int, **labels_and_annotations: dict[str, str]) -> Service:
    record = {
        "metadata": {"name": name, "namespace": "shop", **labels_and_annotations},
        "spec": {"type": "NodePort", "ports": [{"name": "web", "port": port, "nodePort": 30000 + port}]},
    }
    return msgspec.convert(record, Service)


def of_services(
    services: dict[str, Service], not_ready: str, preset: str, options: PresetOptions
) -> dict[str, AnyFate]:
    slices = {Key("shop", f"{name}-1"): slice_of(name, ready=name != not_ready) for name in services}
    snapshot = Snapshot(services={Key("shop", name): each for name, each in services.items()}, endpointslices=slices)
    return {ask.ref.name: fate for ask, fate in fates(evidence_of(snapshot, (preset,), options))}


def test_the_fates_of_kubefigurators_services() -> None:
    def labelled(name: str, **annotations: str) -> Service:
        prefix = "haproxy-kubefigurator.web."
        made = {f"{prefix}{key.replace('_', '-')}": value for key, value in annotations.items()}
        return node_port_service(
            name, 80, labels={"haproxy-kubefigurator.enabled": "yes"}, annotations={f"{prefix}use-ssl": "false", **made}
        )

    services = {
        "a": labelled("a", hostname="a.example.com"),
        "b": labelled("b", hostname="b.example.com"),
        "c": labelled("c", hostname="a.example.com"),
        "d": labelled("d"),
    }
    options = PresetOptions(kubefigurator=KubefiguratorOptions(node_ports=False))
    told = of_services(services, "b", PresetName.KUBEFIGURATOR, options)
    assert [type(told[name]) for name in "abcd"] == [Served, NotReady, TurnedAway, TurnedAway]
    assert told["c"] == TurnedAway(("name_taken",))
    assert told["d"] == TurnedAway(("incomplete",))


def test_the_fates_of_kube2lbs_services() -> None:
    services = {"a": node_port_service("a", 80), "b": node_port_service("b", 81), "c": annotated("c")}
    told = of_services(services, "b", PresetName.KUBE2LB, PresetOptions())
    assert {name: type(fate) for name, fate in told.items()} == {"a": Served, "b": NotReady}


def test_the_fates_of_pods() -> None:
    def pod(
        name: str, *, app: str = "shop", namespace: str = "demo", ready: bool = True, address: str = "10.0.0.1"
    ) -> Any:
        return {
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app, "role": "target"}},
            "status": {"podIP": address, "phase": "Running", "containerStatuses": [{"ready": ready}]},
        }

    pods = [
        pod("a"),
        pod("b", ready=False, address="10.0.0.2"),
        pod("c", namespace="prod", address="10.0.0.3"),
        pod("d", app="no word"),
        pod("e", address=""),
    ]
    options = PresetOptions(hosts=HostsOptions(selector={"role": "target"}))
    told = {ask.ref.name: fate for ask, fate in fates(evidence_of(Snapshot(pods=pods_of(pods)), ("hosts",), options))}
    assert {name: type(fate) for name, fate in told.items()} == {
        "a": Served,
        "b": NotReady,
        "c": TurnedAway,
        "d": TurnedAway,
        "e": NotReady,
    }
