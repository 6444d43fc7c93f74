"""The presets by name, and the reading of one Snapshot by several of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyconfd.model.context import Census, Context, Refusal
from pyconfd.model.snapshot import Named, Resource, Snapshot
from pyconfd.presets import cluster, configmap, domains, hosts
from pyconfd.presets.reading import Preset, PresetOptions, Reading


def _nothing_named(options: PresetOptions) -> tuple[Named, ...]:
    del options
    return ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A preset, the names it gives to templates, and the resources it needs; nothing else is read from the cluster.

    ``named`` gives the single objects that it needs beside them.
    """

    read: Preset
    names: frozenset[str]
    resources: frozenset[Resource]
    named: Callable[[PresetOptions], tuple[Named, ...]] = _nothing_named


_CLUSTER_VIEW = frozenset({Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.ENDPOINTS, Resource.NODES})

PRESETS: Mapping[str, Entry] = MappingProxyType(
    {
        "domains": Entry(domains.read, frozenset({"domains"}), _CLUSTER_VIEW),
        "configmap": Entry(configmap.read, configmap.NAMES, frozenset({Resource.PODS}), configmap.named),
        "hosts": Entry(hosts.read, frozenset({"hosts"}), frozenset({Resource.PODS}), hosts.named),
    }
)


def resources_of(names: Sequence[str], *, secrets: bool) -> frozenset[Resource]:
    """Give what has to be read for these presets; TLS Secrets only where namespaces are named for them."""
    needed = frozenset[Resource]().union(*(PRESETS[name].resources for name in names))
    return needed | {Resource.SECRETS} if secrets else needed


def named_of(names: Sequence[str], options: PresetOptions) -> frozenset[Named]:
    """Give the single objects that these presets read by name."""
    return frozenset(each for name in names for each in PRESETS[name].named(options))


def clashes(names: Sequence[str]) -> tuple[str, ...]:
    """Say which plain names several presets give, who has each, and how the other's is reached."""
    notes = []
    owners: dict[str, str] = {}
    for preset in names:
        for name in sorted(PRESETS[preset].names):
            owner = owners.setdefault(name, preset)
            if owner != preset:
                notes.append(f"{name} is that of preset {owner}, listed first; that of {preset} is {preset}.{name}")
    return tuple(notes)


def translate(snapshot: Snapshot, names: Sequence[str], options: PresetOptions) -> Context:
    """Give the names for the templates, and all refusals sorted. Never raises.

    Every preset's names stand under its own name too (``kube2lb.services``); the plain names belong to the preset
    listed first. A preset that gives a name equal to its own (``domains``) gives just that.
    """
    translated = cluster.translate(snapshot)
    given: dict[str, object] = {"cluster": translated.view}
    refused: list[Refusal] = list(translated.refused)
    claimed = 0
    readings: list[Reading] = []
    for name in reversed(names):
        reading = PRESETS[name].read(snapshot, translated, options)
        readings.insert(0, reading)
        if name not in reading.names:
            given[name] = MappingProxyType(dict(reading.names))
        given.update(reading.names)
        refused.extend(reading.refused)
        claimed += reading.claimed
    total = sum(
        endpoint.state == "ready"
        for service in translated.view.services
        for port in service.ports
        for endpoint in port.endpoints
    )
    return Context(
        MappingProxyType(given),
        tuple(sorted(set(refused))),
        Census(claimed, total),
        templates=tuple(template for reading in readings for template in reading.templates),
        files=tuple(sorted({file for reading in readings for file in reading.files})),
        dns_names=tuple(sorted({name for reading in readings for name in reading.dns_names})),
    )
