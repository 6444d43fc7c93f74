"""What presets serve by pods, by ConfigMaps or by nodes is kept as well."""

from dataclasses import replace

import pytest

from pyconfd.admission.removal_protection import Moment, RemovalProtection, RemovalRules
from pyconfd.model.hold import HoldKind
from pyconfd.model.kubernetes import ConfigMap, ServicePort
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.predecessors.hosts import HostsOptions
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.sources.kubernetes.cache import Cache
from tests.presets import objects, pods

HOSTS = ("hosts", PresetOptions(own=own_options(HostsOptions(selector={"lb": "yes"}))))
CONFIGMAP = ("configmap", PresetOptions())
NODES = ("domains", PresetOptions(node_ports=True))


def _pods(*numbers: int, **fields: bool) -> Snapshot:
    labels = {"app": "web", "lb": "yes"}
    made = [pods.pod(f"web-{number}", f"192.0.2.{number}", labels, **fields) for number in numbers]
    return Snapshot(pods={Key("demo", each.metadata.name): each for each in made})


def _with_map(snapshot: Snapshot) -> Snapshot:
    text = '{"namespace": "demo", "selector": {"app": "web"}, "hostnames": ["web.example.com"], "ports": [8080]}'
    made = ConfigMap(ObjectMeta("services", "lb"), {"web": text})
    return replace(snapshot, config_maps={Key("lb", "services"): made})


def _nodes(*numbers: int, ready: bool = True, cordoned: bool = False) -> Snapshot:
    service = objects.service(
        "web",
        {"domain": "web.example.com", "proto": "http"},
        type_="NodePort",
        ports=(ServicePort("web", 80, "web", 30080),),
    )
    slice_ = objects.slice_("web", objects.endpoint("10.0.0.1"))
    nodes = (objects.node(f"node-{number}", f"192.0.2.{number}", ready=ready, cordoned=cordoned) for number in numbers)
    return objects.snapshot(service, slice_, *nodes)


def _served(way: tuple[str, PresetOptions], snapshot: Snapshot) -> set[str]:
    context = registry.translate(snapshot, [way[0]], way[1])
    return {address for of in context.claimed for value in of.by_name.values() for address in of.addresses(value)}


def _after(way: tuple[str, PresetOptions], *snapshots: Snapshot) -> tuple[HoldKind | None, set[str]]:
    protection, served = RemovalProtection(RemovalRules()), Snapshot()
    protection.start(snapshots[0], registry.translate(snapshots[0], [way[0]], way[1]))
    caches = {each: Cache() for each in Resource}
    for number, listed in enumerate(snapshots):
        for kind, cache in caches.items():
            cache.replace(getattr(listed, kind.field).values(), ())
        views = {kind.field: cache.view() for kind, cache in caches.items()}
        snapshot = Snapshot(**views, terminating=tuple(cache.terminating for cache in caches.values()))  # type: ignore[arg-type]
        context = registry.translate(snapshot, [way[0]], way[1])
        moment = Moment(float(number), float(number))
        served = protection.admit(moment, snapshot, context, confirmed=False, allowed=())
    return (protection.hold.kind if protection.hold else None), _served(way, served)


TEN = tuple(range(1, 11))
ALL = {f"192.0.2.{number}" for number in TEN}


@pytest.mark.parametrize(
    ("way", "before", "after", "kind"),
    [
        (HOSTS, _pods(*TEN), _pods(1, 2), HoldKind.SHARE),
        (HOSTS, _pods(*TEN), _pods(), HoldKind.TOTAL),
        (HOSTS, _pods(*TEN), _pods(*TEN, ready=False), HoldKind.TOTAL),
        (CONFIGMAP, _with_map(_pods(*TEN)), _with_map(_pods(1, 2)), HoldKind.SHARE),
        (CONFIGMAP, _with_map(_pods(*TEN)), _pods(*TEN), HoldKind.TOTAL),
        (CONFIGMAP, _with_map(_pods(*TEN)), Snapshot(), HoldKind.TOTAL),
        (NODES, _nodes(*TEN), _nodes(1, 2), HoldKind.SHARE),
        (NODES, _nodes(*TEN), _nodes(*TEN, ready=False), HoldKind.TOTAL),
    ],
)
def test_a_sudden_loss_is_kept(
    way: tuple[str, PresetOptions], before: Snapshot, after: Snapshot, kind: HoldKind
) -> None:
    assert _served(way, before) == ALL
    assert _after(way, before, after) == (kind, ALL)


@pytest.mark.parametrize(
    ("way", "steps", "left"),
    [
        (HOSTS, [_pods(*TEN), replace(_pods(1), pods={**_pods(*TEN, deleted=True).pods, **_pods(1).pods})], {1}),
        (
            NODES,
            [_nodes(*TEN), replace(_nodes(1), nodes={**_nodes(*TEN, cordoned=True).nodes, **_nodes(1).nodes})],
            {1},
        ),
    ],
)
def test_what_leaves_on_purpose_is_let_go(
    way: tuple[str, PresetOptions], steps: list[Snapshot], left: set[int]
) -> None:
    assert _after(way, *steps) == (None, {f"192.0.2.{number}" for number in left})


def test_a_pod_that_was_made_again_under_its_name_is_served_at_its_new_address() -> None:
    renamed = {
        Key("demo", f"web-{number}"): pods.pod(f"web-{number}", f"192.0.2.{100 + number}", {"app": "web", "lb": "yes"})
        for number in (1, 2)
    }
    kind, served = _after(HOSTS, _pods(*TEN), Snapshot(pods=renamed))
    assert kind is HoldKind.SHARE
    assert {"192.0.2.101", "192.0.2.102"} <= served
    assert not {"192.0.2.1", "192.0.2.2"} & served
