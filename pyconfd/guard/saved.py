"""A hold as it survives a restart: plain data, with the objects that are put back."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from pyconfd.model.hold import Hold
from pyconfd.model.kubernetes import AnyObject, ConfigMap, Endpoints, EndpointSlice, Node, Pod, Service, WholeObject
from pyconfd.model.snapshot import Key, Snapshot

_T = TypeVar("_T", bound=AnyObject)


class SavedLoss(msgspec.Struct, frozen=True):
    """What went behind one name of a preset, and how many stood there ``before``; ``let_go`` is not put back."""

    preset: str
    name: str
    before: int
    gone: list[str]
    let_go: list[str] = []


class SavedCarriers(msgspec.Struct, frozen=True):
    """What the saved objects that ask for something had become when they were kept."""

    services: list[Service] = []
    endpoints: list[Endpoints] = []
    config_maps: list[ConfigMap] = []


class Saved(msgspec.Struct, frozen=True):
    """One hold; ``since`` is seconds since the epoch, ``base`` how many endpoints there were.

    Slices hold just the endpoints that are put back. The Services ``standing`` were not lost by then.
    """

    hold_id: str
    kind: str
    preset: str
    since: float
    base: int
    losses: list[SavedLoss]
    emptied: list[str]
    services: list[Service] = []
    endpointslices: list[EndpointSlice] = []
    endpoints: list[Endpoints] = []
    nodes: list[Node] = []
    pods: list[Pod] = []
    config_maps: list[ConfigMap] = []
    afterwards: SavedCarriers | None = None
    standing: list[Service] = []


def saved_of(
    hold: Hold,
    base: int,
    losses: list[SavedLoss],
    emptied: list[str],
    *,
    objects: Snapshot,
    afterwards: Snapshot,
    standing: Mapping[Key, Service],
) -> Saved:
    """Put together what is saved; see the methods of these names of :class:`~pyconfd.guard.keeping.Keeping`."""
    return Saved(
        hold.hold_id,
        hold.kind.value,
        hold.preset,
        hold.since,
        base,
        losses,
        emptied,
        services=list(objects.services.values()),
        endpointslices=list(objects.endpointslices.values()),
        endpoints=list(objects.endpoints.values()),
        nodes=list(objects.nodes.values()),
        pods=list(objects.pods.values()),
        config_maps=list(objects.config_maps.values()),
        afterwards=SavedCarriers(
            services=list(afterwards.services.values()),
            endpoints=list(afterwards.endpoints.values()),
            config_maps=list(afterwards.config_maps.values()),
        ),
        standing=list(standing.values()),
    )


def objects_of(saved: Saved) -> Snapshot:
    """Return the saved objects."""
    return Snapshot(
        services=_keyed(saved.services),
        endpointslices=_keyed(saved.endpointslices),
        endpoints=_keyed(saved.endpoints),
        nodes=_keyed(saved.nodes),
        pods=_keyed(saved.pods),
        config_maps=_keyed(saved.config_maps),
    )


def afterwards_of(saved: Saved) -> Snapshot | None:
    """Return what the saved objects had become; None where that was not saved."""
    after = saved.afterwards
    if after is None:
        return None
    return Snapshot(
        services=_keyed(after.services), endpoints=_keyed(after.endpoints), config_maps=_keyed(after.config_maps)
    )


def standing_of(saved: Saved) -> Mapping[Key, Service]:
    """Return the Services that were not lost when it was saved."""
    return _keyed(saved.standing)


def _keyed(records: Iterable[_T]) -> dict[Key, _T]:
    return {Key(record.metadata.namespace, record.metadata.name): record for record in records}


def plain(value: object) -> object:
    """Return what JSON has for a value that it lacks: msgspec's ``enc_hook``."""
    if isinstance(value, WholeObject):
        return value.json.decode()
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def whole(kind: type, value: Any) -> object:
    """Return what :func:`plain` stood for: msgspec's ``dec_hook``."""
    if kind is WholeObject and isinstance(value, str):
        return WholeObject(value.encode())
    raise NotImplementedError(f"no {kind.__name__} from JSON")
