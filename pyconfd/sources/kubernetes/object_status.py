"""What to write into the status of one object: our part where it differs, that of others as it stands. Pure.

Server-side apply merges some lists by a key and replaces others as a whole, as the API's types say. ``parents`` of
routes and ``ancestors`` of policies are replaced as a whole though several controllers write them: the entries of the
others are sent along.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from pyconfd.model.gateway_api import GROUP
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import KIND_OF, Resource
from pyconfd.sources.kubernetes.resources import API_VERSION_OF, path_of

FIELD_MANAGER = "pyconfd"
APPLY: Mapping[str, str] = MappingProxyType({"fieldManager": FIELD_MANAGER, "force": "true"})

_KEY_OF: Mapping[str, str] = MappingProxyType({"conditions": "type", "listeners": "name", "supportedFeatures": "name"})
"""The lists that are merged, and by what. Source: ``x-kubernetes-list-map-keys`` of the CRDs of the Gateway API."""

_OF_ONE_CONTROLLER = frozenset({"listeners", "supportedFeatures"})
"""Those of them that nobody else adds to."""

_ENTRIES_OF: Mapping[Resource, str] = MappingProxyType(
    {
        Resource.HTTPROUTES: "parents",
        Resource.GRPCROUTES: "parents",
        Resource.TLSROUTES: "parents",
        Resource.TCPROUTES: "parents",
        Resource.BACKENDTLSPOLICIES: "ancestors",
        Resource.ROUTEPOLICIES: "ancestors",
    }
)
_REF_OF = {"parents": "parentRef", "ancestors": "ancestorRef"}
_TIME = "lastTransitionTime"

WITH_STATUS = (
    Resource.SERVICES,
    Resource.INGRESSES,
    Resource.GATEWAYCLASSES,
    Resource.GATEWAYS,
    Resource.LISTENERSETS,
    *_ENTRIES_OF,
)
"""The kinds whose status pyconfd writes."""

Status = Mapping[str, Any]


class CurrentObject(NamedTuple):
    """An object as it is in the cluster, as far as a write of its status depends on it."""

    uid: str
    version: str
    status: Status


def own_part(resource: Resource, body: Status) -> Status:
    """Return ``body`` with a list of addresses, empty where it names none: what it does not name would stay."""
    if resource in {Resource.SERVICES, Resource.INGRESSES}:
        balancer = body.get("loadBalancer") or {}
        return {**body, "loadBalancer": {**balancer, "ingress": balancer.get("ingress") or []}}
    if resource is Resource.GATEWAYS:
        return {**body, "addresses": body.get("addresses") or []}
    return body


def is_in_sync(resource: Resource, body: Status, controller: str, current: Status) -> bool:
    """Return whether the status of an object says what ``body`` says, whatever else it says and since when."""
    field = _ENTRIES_OF.get(resource)
    if field is None:
        return _is_within(own_part(resource, body), current)
    found = [each for each in current.get(field) or () if each.get("controllerName") == controller]
    wanted = body.get(field) or ()
    return len(found) == len(wanted) and all(
        _is_within(ours, theirs, whole=True) for ours, theirs in zip(wanted, found, strict=True)
    )


def _is_within(ours: Any, current: Any, name: str = "", *, whole: bool = False) -> bool:
    """Return whether all of ``ours`` is there. The API server may have added defaults of fields.

    ``whole``: what holds it is replaced as a whole, so that a merged list may have nothing else either.
    """
    if isinstance(ours, Mapping):
        there = current or {}
        return isinstance(there, Mapping) and all(
            _is_within(value, there.get(key), key, whole=whole) for key, value in ours.items() if key != _TIME
        )
    if not isinstance(ours, list | tuple):
        # A CRD from before attachedListenerSets has no place for its 0.
        return bool(ours == current or (ours == 0 and current is None))
    there = current or ()
    if (key := _KEY_OF.get(name)) is None:
        return len(ours) == len(there) and all(
            _is_within(mine, other, whole=whole) for mine, other in zip(ours, there, strict=True)
        )
    by_key = {each.get(key): each for each in there}
    complete = len(by_key) == len(ours) or not (whole or name in _OF_ONE_CONTROLLER)
    return complete and all(each[key] in by_key and _is_within(each, by_key[each[key]], whole=whole) for each in ours)


def to_apply(resource: Resource, body: Status, controller: str, current: Status, now: str) -> dict[str, Any]:
    """Return the status to apply: with the entries of other controllers, and since when each condition has its status.

    ``now`` is RFC 3339 in seconds.
    """
    field = _ENTRIES_OF.get(resource)
    if field is None:
        return dict(_timed(own_part(resource, body), current, now))
    entries = current.get(field) or ()
    mine = {_ref(each, field): each for each in entries if each.get("controllerName") == controller}
    wanted = body.get(field) or ()
    return {
        field: [
            *_foreign(entries, controller),
            *(_timed(each, mine.get(_ref(each, field), {}), now) for each in wanted),
        ]
    }


def without_ours(resource: Resource, controller: str, current: Status) -> dict[str, Any]:
    """Return the status to apply so that nothing of ours is left: of what is not sent, what we own is removed."""
    field = _ENTRIES_OF.get(resource)
    return {field: _foreign(current.get(field) or (), controller)} if field is not None else {}


def addresses_in(status: Status) -> tuple[str, ...]:
    """Return where clients are told to connect."""
    published = (status.get("loadBalancer") or {}).get("ingress") or status.get("addresses") or ()
    return tuple(str(each.get("ip") or each.get("hostname") or each.get("value") or "") for each in published)


def may_hold(resource: Resource, controller: str, status: Status) -> bool:
    """Return whether a status may have anything of ours in it."""
    if (field := _ENTRIES_OF.get(resource)) is not None:
        return any(each.get("controllerName") == controller for each in status.get(field) or ())
    return bool(addresses_in(status)) if resource is Resource.INGRESSES else bool(status)


@dataclass(frozen=True, slots=True)
class Scope:
    """What pyconfd writes to: objects of these ``resources``.

    What a former process wrote is known by our ``addresses`` and our ``controller``. Others may use them too; but of
    what is not sent, server-side apply removes only what our field manager owns.
    """

    resources: frozenset[Resource]
    addresses: frozenset[str] = frozenset()
    controller: str = ""

    def has_mark(self, resource: Resource, status: Status) -> bool:
        """Return whether a status has something that a former process may have written."""
        if resource in _ENTRIES_OF:
            return may_hold(resource, self.controller, status)
        published = addresses_in(status)
        return bool(published) and self.addresses.issuperset(published)


def status_path(of: ObjectKey) -> str:
    """Return the path of an object's status."""
    return f"{path_of(of.resource, of.key.namespace)}/{of.key.name}/status"


def document(of: ObjectKey, current: CurrentObject, status: Status) -> bytes:
    """Return the body of a request that applies ``status`` to this very object, and to no other one of its name."""
    metadata = {"name": of.key.name, "uid": current.uid}
    if of.key.namespace:
        metadata["namespace"] = of.key.namespace
    if of.resource in _ENTRIES_OF:  # the entries of others are sent along: none may have changed since
        metadata["resourceVersion"] = current.version
    head = {"apiVersion": API_VERSION_OF[of.resource], "kind": KIND_OF[of.resource]}
    return msgspec.json.encode({**head, "metadata": metadata, "status": status})


def _foreign(entries: Iterable[Mapping[str, Any]], controller: str) -> list[Any]:
    return [each for each in entries if each.get("controllerName") != controller]


def _ref(entry: Mapping[str, Any], field: str) -> frozenset[tuple[str, Any]]:
    """Return what an entry is about, with the defaults that the API server fills in."""
    return frozenset({"group": GROUP, "kind": "Gateway", **(entry.get(_REF_OF[field]) or {})}.items())


def _timed(ours: Any, current: Any, now: str, name: str = "") -> Any:
    """Return ``ours`` with a time in each condition: the current one where the status is the same, else ``now``."""
    if isinstance(ours, Mapping):
        there = current if isinstance(current, Mapping) else {}
        made = {key: _timed(value, there.get(key), now, key) for key, value in ours.items()}
        if name == "conditions":
            same = there.get("status") == ours.get("status") and there.get(_TIME)
            made[_TIME] = there[_TIME] if same else now
        return made
    if not isinstance(ours, list | tuple):
        return ours
    key = _KEY_OF.get(name)
    by_key = {each.get(key): each for each in current or ()} if key else {}
    return [_timed(each, by_key.get(each.get(key)) if key else None, now, name) for each in ours]
