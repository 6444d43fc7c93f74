"""Servers whose removal is held are told apart in every preset: pods, and nodes behind node ports."""

import json
from dataclasses import replace

import msgspec
import pytest

from pyconfd.admission.removal_protection import kept_back
from pyconfd.explain.fates import fates
from pyconfd.explain.queries import explain
from pyconfd.explain.text import render
from pyconfd.model.explanation import Served, Standing
from pyconfd.model.kubernetes import ConfigMap, ObjectMeta, Service, ServicePort
from pyconfd.model.preset import PresetName
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.reading import HostsOptions, PresetOptions
from tests.explain.world import evidence_of
from tests.presets import objects, pods

PODS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
NODES = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
LABEL, PREFIX = "haproxy-kubefigurator.enabled", "haproxy-kubefigurator.web."
ENTRY = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": ["a.example.com"]}


def _service(name: str, node_port: int) -> Service:
    annotations = {
        "domain": f"{name}.example.com",
        "proto": "http",
        f"{PREFIX}hostname": f"{name}.example.com",
        f"{PREFIX}use-ssl": "false",
    }
    ports = (ServicePort("web", node_port - 30000, "web", node_port),)
    made = objects.service(name, annotations, type_="NodePort", ports=ports)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels={LABEL: "yes"}))


def _cluster(*, ready: int) -> Snapshot:
    """Give two services; of the pods and nodes only the first so many are left."""
    slices = [objects.slice_(name, *map(objects.endpoint, PODS[:ready])) for name in ("web",)]
    slices.append(objects.slice_("other", *map(objects.endpoint, PODS)))
    nodes = [objects.node(f"node-{number}", address) for number, address in enumerate(NODES[:ready])]
    return objects.snapshot(_service("web", 30080), _service("other", 30081), *slices, *nodes)


def _pods(*, ready: int) -> Snapshot:
    made = [
        pods.pod(f"shop-{number}", address, {"app": "shop", "lb": "yes"}) for number, address in enumerate(PODS[:ready])
    ]
    config = ConfigMap(ObjectMeta("services", "lb"), {"web": json.dumps(ENTRY)})
    return Snapshot(
        pods={Key("demo", each.metadata.name): each for each in made}, config_maps={Key("lb", "services"): config}
    )


OF_NODES = PresetOptions(node_ports=True)


@pytest.mark.parametrize(
    ("preset", "options", "make", "held"),
    [
        (PresetName.DOMAINS, PresetOptions(), _cluster, {"web": {PODS[1], PODS[2]}, "other": set()}),
        (PresetName.DOMAINS, OF_NODES, _cluster, {"web": {*NODES[1:]}, "other": {*NODES[1:]}}),
        (PresetName.KUBEFIGURATOR, PresetOptions(), _cluster, {"web": {*NODES[1:]}, "other": {*NODES[1:]}}),
        (PresetName.KUBE2LB, PresetOptions(), _cluster, {"web": {PODS[1], PODS[2]}, "other": set()}),
        (PresetName.KUBE2LB, OF_NODES, _cluster, {"web": {*NODES[1:]}, "other": {*NODES[1:]}}),
        (PresetName.CONFIGMAP, PresetOptions(), _pods, {"services": {PODS[1], PODS[2]}}),
        (PresetName.HOSTS, PresetOptions(hosts=HostsOptions(selector={"lb": "yes"})), _pods, None),
    ],
)
def test_what_is_held_is_told_apart(preset: str, options: PresetOptions, make, held) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - two of a kind
    served, newer = make(ready=3), make(ready=1)
    before, now = (registry.translate(each, (preset,), options) for each in (served, newer))
    standing = Standing("held", 7, 900.0, 990.0, "3f9c", held_since=400.0)
    evidence = replace(evidence_of(served, (preset,), options, standing=standing), kept=kept_back(before, now))
    told = {
        ask.ref.name: {each.address.rpartition(":")[0] for each in fate.servers if each.held}
        for ask, fate in fates(evidence)
        if isinstance(fate, Served)
    }
    wanted = held if held is not None else {"shop-0": set(), "shop-1": {PODS[1]}, "shop-2": {PODS[2]}}
    assert told == wanted
    name = "pod shop-2" if preset == PresetName.HOSTS else f"service {next(iter(wanted))}"
    text = render(explain(name, evidence))
    assert "held: not ready in the cluster any more" in text
    assert "pyconfd allow 3f9c lets it through" in text


def test_nothing_is_held_where_both_are_the_same() -> None:
    context = registry.translate(_cluster(ready=3), ("domains",), OF_NODES)
    assert kept_back(context, context) == {}
