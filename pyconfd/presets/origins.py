"""What the values that templates see were made of, and a Snapshot without some of that. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from pyconfd.model.claim import Claim
from pyconfd.model.kubernetes import ConfigMap, ObjectRef
from pyconfd.model.snapshot import KIND_OF, ROUTING_RESOURCES, Key, Resource, Snapshot
from pyconfd.model.versioned import VersionedDict, versioned
from pyconfd.presets.gateway.frontends import GatewayFrontend
from pyconfd.presets.routing.types import RouteBackend
from pyconfd.presets.views import CertificateView, NodeText, NodeView

_RESOURCE_OF = {kind: resource for resource, kind in KIND_OF.items()} | {"Endpoints": Resource.SERVICES}


class ObjectOrigin(NamedTuple):
    """One thing that can be left out of a Snapshot: an object, or one ``entry`` of a ConfigMap.

    A Service (``resource`` is always services) stands for the Endpoints of its name too.
    """

    resource: Resource
    key: Key
    entry: str = ""

    @classmethod
    def at(cls, ref: ObjectRef, entry: str = "") -> "ObjectOrigin":
        """Return the origin that a reference names."""
        return cls(_RESOURCE_OF[ref.kind], Key(ref.namespace, ref.name), entry)


APP = "app"
"""The label of pods by which claims call them, where they are claimed by pod."""

_RESTRICTING = frozenset({Resource.ROUTEPOLICIES})
"""Without one of these, others would be open: what it is for is left out instead."""
WHOLE_RESOURCES = (
    Resource.PODS, Resource.NODES, Resource.SECRETS, *(each for each in ROUTING_RESOURCES if each not in _RESTRICTING)
)  # fmt: skip
"""The kinds whose objects are left out as a whole, each by itself."""


def owners_among(snapshot: Snapshot, origins: Collection[ObjectOrigin]) -> frozenset[Key]:
    """Return the owners of names that are left out with ``origins``, as claims call them: pods have an app."""
    found = set()
    for resource, key, _ in origins:
        pod = snapshot.pods.get(key) if resource is Resource.PODS else None
        app = (pod.metadata.labels or {}).get(APP) if pod is not None else None
        found.add(key if app is None else Key(key.namespace, app))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Filtered:
    source: Any
    names: Collection[Any]
    result: Any


class Filter:
    """Leaves origins out of one Snapshot after the other; what did not change in between costs nothing."""

    def __init__(self) -> None:
        self._known: dict[object, _Filtered] = {}

    def without(self, snapshot: Snapshot, origins: Collection[ObjectOrigin]) -> Snapshot:
        """Return ``snapshot`` without ``origins``; the very same where there are none."""
        if not origins:
            self._known.clear()
            return snapshot
        keys: dict[Resource, set[Key]] = {}
        entries: dict[Key, set[str]] = {}
        for origin in origins:
            if origin.entry:
                entries.setdefault(origin.key, set()).add(origin.entry)
            else:
                keys.setdefault(origin.resource, set()).add(origin.key)
        if Resource.SERVICES in keys:
            keys[Resource.ENDPOINTS] = keys[Resource.SERVICES]
        changed: dict[str, Any] = {
            resource.field: self._mapping(resource, getattr(snapshot, resource.field), gone)
            for resource, gone in keys.items()
        }
        if entries:
            maps = changed.get("config_maps", snapshot.config_maps)
            cut = {key: self._record(key, maps[key], names) for key, names in entries.items() if key in maps}
            changed["config_maps"] = {**maps, **cut}
        return replace(snapshot, **changed)

    def _mapping(self, resource: Resource, source: Mapping[Key, Any], gone: set[Key]) -> Mapping[Key, Any]:
        if not any(key in source for key in gone):
            return source
        previous = self._known.get(resource)
        if previous is not None and previous.names == gone:
            if previous.source is source:
                known: Mapping[Key, Any] = previous.result
                return known
            changed = source.changed_since(previous.source) if isinstance(source, VersionedDict) else None
            if changed is not None:
                result = versioned(previous.result).with_values({k: source[k] for k in changed if k not in gone})
                self._known[resource] = _Filtered(source, gone, result)
                return result
        result = VersionedDict({key: value for key, value in source.items() if key not in gone})
        self._known[resource] = _Filtered(source, gone, result)
        return result

    def _record(self, key: Key, record: ConfigMap, gone: set[str]) -> ConfigMap:
        previous = self._known.get(key)
        if previous is None or previous.source is not record or previous.names != gone:
            data = {name: text for name, text in (record.data or {}).items() if name not in gone}
            previous = self._known[key] = _Filtered(record, gone, msgspec.structs.replace(record, data=data))
        result: ConfigMap = previous.result
        return result


def version_of(snapshot: Snapshot, origin: ObjectOrigin) -> tuple[object, ...]:
    """Return all that an origin is made of, but for the slices of a Service; equal as long as it did not change."""
    record = getattr(snapshot, origin.resource.field).get(origin.key)
    if origin.entry:
        return ((record.data or {}).get(origin.entry) if record is not None else None,)
    if origin.resource is Resource.SERVICES:
        return record, snapshot.endpoints.get(origin.key)
    return (record,)


def exists(snapshot: Snapshot, origin: ObjectOrigin) -> bool:
    """Return whether there is such an object."""
    return any(part is not None for part in version_of(snapshot, origin))


def ref_of(snapshot: Snapshot, origin: ObjectOrigin) -> ObjectRef:
    """Return the reference of the object."""
    kind = KIND_OF[origin.resource]
    if origin.resource is Resource.SERVICES and origin.key not in snapshot.services:
        kind = KIND_OF[Resource.ENDPOINTS]
    return ObjectRef(kind, *origin.key, snapshot.cluster)


def everything(snapshot: Snapshot, claims: Iterable[Claim]) -> frozenset[ObjectOrigin]:
    """Return all origins of a Snapshot; of ConfigMaps the entries that are ``claims``."""
    found = {ObjectOrigin(Resource.SERVICES, key) for key in (*snapshot.services, *snapshot.endpoints)}
    for resource in WHOLE_RESOURCES:
        found |= {ObjectOrigin(resource, key) for key in getattr(snapshot, resource.field)}
    return frozenset(found | {ObjectOrigin.at(claim.ref, claim.item) for claim in claims if claim.item})


class ObjectOrigins:
    """Finds the origins of values that templates see."""

    def __init__(self, snapshot: Snapshot, claims: Collection[Claim]) -> None:
        self._snapshot = snapshot
        self._claims = claims
        self._by_word: defaultdict[str, set[ObjectOrigin]] = defaultdict(set)
        for claim in claims:
            sections = (word for each in claim.backends for word in (each.section, each.key))
            for word in {*claim.names, *sections}:
                self._by_word[word].add(ObjectOrigin.at(claim.ref, claim.item))

    def of(self, value: Any) -> frozenset[ObjectOrigin]:
        """Return what ``value`` was made of: an element of a loop or a variable in it; empty where nothing tells."""
        found = self._of(value)
        return frozenset(origin for origin in found if exists(self._snapshot, origin))

    def of_element(self, value: Any) -> frozenset[ObjectOrigin]:
        """Return the same of an element, which may be made of several values."""
        if isinstance(value, tuple | list):
            return frozenset[ObjectOrigin]().union(*(self.of_element(each) for each in value))
        return self.of(value)

    def mentioned(self, text: str) -> list[ObjectOrigin]:
        """Return those whose names or claims stand in ``text`` as words, the longest mention first."""
        found: dict[ObjectOrigin, int] = {}
        for origin in everything(self._snapshot, self._claims):
            name = origin.entry or origin.key.name
            if _is_word_of(name, text):
                found[origin] = len(name)
        for name, origins in self._by_word.items():
            if _is_word_of(name, text):
                found |= {origin: max(len(name), found.get(origin, 0)) for origin in origins}
        return sorted(found, key=lambda origin: (-found[origin], origin))

    def _of(self, value: Any) -> Iterator[ObjectOrigin]:
        """Go by the fields: nearly everything that stands for an object has its namespace and name."""
        match value:
            case NodeView() | NodeText():
                yield ObjectOrigin(Resource.NODES, Key("", value.name))
                return
            case CertificateView():
                yield ObjectOrigin(Resource.SECRETS, Key(value.namespace, value.name))
                return
            case GatewayFrontend():
                # Without a Gateway its sets are gone, too: it is looked at when it was none of these.
                gateway = ObjectOrigin(Resource.GATEWAYS, Key(*value.owner.removeprefix("Gateway ").split("/", 1)))
                yield from [ObjectOrigin(Resource.LISTENERSETS, each) for each in value.added] or [gateway]
                return
            case RouteBackend() | str():
                yield from self._by_word.get(value if isinstance(value, str) else value.name, ())
                return
        metadata = value.get("metadata") if isinstance(value, Mapping) else None
        if isinstance(metadata, Mapping):
            yield ObjectOrigin(Resource.PODS, Key(_text(metadata, "namespace"), _text(metadata, "name")))
            return
        if isinstance(value, Mapping) and "pods" in value:
            yield from self._by_word.get(_text(value, "name"), ())
            return
        if namespace := _text(value, "namespace"):
            yield ObjectOrigin(Resource.SERVICES, Key(namespace, _text(value, "service") or _text(value, "name")))
        backends = [_text(value, "backend"), _text(value, "default_backend")]
        for name in (*backends, *(_text(route, "backend") for route in getattr(value, "routes", ()))):
            yield from self._by_word.get(name, ())


def _text(value: Any, field: str) -> str:
    found = value.get(field) if isinstance(value, Mapping) else getattr(value, field, None)
    return found if isinstance(found, str) else ""


def _is_word_of(name: str, text: str) -> bool:
    at = text.find(name) if name else -1
    if at < 0:
        return False
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text) is not None
