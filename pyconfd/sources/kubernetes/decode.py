"""Decode what the API server sent: a whole list in one call, object by object where one of them is bad.

An object that does not have the shape of its kind is refused, and the others are used.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec
import structlog

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, ObjectRef, Pod, WholeObject
from pyconfd.model.snapshot import KIND_OF, RECORD_OF, Key, Resource
from pyconfd.printable import clean
from pyconfd.sources.kubernetes.failures import ApiError, BrokenWatchError, Failure, failure_of_status
from pyconfd.sources.kubernetes.resources import CLUSTER_SCOPED

DROPPED_ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "control-plane.alpha.kubernetes.io/leader",
)
"""Annotations that are not used: a whole copy of the object, and two that change every few seconds."""

log = structlog.get_logger(__name__)

_BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ListPage(NamedTuple):
    """One page; ``continue_token`` is "" on the last one."""

    items: tuple[AnyObject, ...]
    resource_version: str
    continue_token: str
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Upserted:
    """ADDED or MODIFIED; the two mean the same to a cache."""

    record: AnyObject

    @property
    def resource_version(self) -> str:
        """The version of the object, and of the watch up to here."""
        return self.record.metadata.resource_version


@dataclass(frozen=True, slots=True)
class Deleted:
    """DELETED, with the resourceVersion of the deletion."""

    key: Key
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing changed up to this resourceVersion; "" for an event type of a later API, which says nothing here."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that does not have the shape of its kind; ``key`` is None where not even its name could be read."""

    refusal: Refusal
    key: Key | None
    resource_version: str


Event = Upserted | Deleted | Bookmark | Unreadable


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _RawList(msgspec.Struct, gc=False):
    kind: str
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


class _RawEvent(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _OnlyMeta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _OnlyMetadata(msgspec.Struct, gc=False):
    metadata: _OnlyMeta


class _WholePod(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """A pod whose parts are kept as they came; what the API adds beside them is dropped."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, msgspec.Raw] = {}
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _ErrorStatus(msgspec.Struct, gc=False):
    code: int = 0
    message: str | None = None


def _list_decoder(resource: Resource) -> msgspec.json.Decoder[Any]:
    record: Any = RECORD_OF[resource]
    items: Any = tuple.__class_getitem__((record, ...))
    fields: list[tuple[str, Any]] = [("kind", str), ("metadata", _ListMeta), ("items", items | None)]
    return msgspec.json.Decoder(msgspec.defstruct(f"{record.__name__}List", fields, gc=False))


_LISTS: Mapping[Resource, msgspec.json.Decoder[Any]] = MappingProxyType({r: _list_decoder(r) for r in Resource})
_OBJECTS: Mapping[Resource, msgspec.json.Decoder[AnyObject]] = MappingProxyType(
    {r: cast("msgspec.json.Decoder[AnyObject]", msgspec.json.Decoder(RECORD_OF[r])) for r in Resource}
)
_RAW_LIST = msgspec.json.Decoder(_RawList)
_RAW_EVENT = msgspec.json.Decoder(_RawEvent)
_ONLY_METADATA = msgspec.json.Decoder(_OnlyMetadata)
_WHOLE_POD = msgspec.json.Decoder(_WholePod)
_ANNOTATIONS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STATUS = msgspec.json.Decoder(_ErrorStatus)


def key_of(record: AnyObject) -> Key:
    """Return the key under which a record is kept."""
    return Key(record.metadata.namespace, record.metadata.name)


def decode_list(resource: Resource, body: bytes, cluster: str = "") -> ListPage:
    """Decode one page of a list.

    Raises:
        ApiError: this is not a whole list of that kind (cut off, HTML, a Status object ...); an answer that cannot be
            read is never an empty list.
    """
    items: tuple[AnyObject, ...] | None = None
    refusals: tuple[Refusal, ...] = ()
    page: Any = None
    try:
        # All in one call is several times faster than one by one. Pods are kept whole, which only their bytes allow.
        if resource is not Resource.PODS:
            page = _LISTS[resource].decode(body)
            if all(_is_named(resource, item) for item in page.items or ()):
                items = page.items or ()
                for item in items:
                    forget_annotations(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # one object is bad, or all of it is: that is found out below
    if items is None:
        try:
            page = _RAW_LIST.decode(body)
        except _BAD_JSON as error:
            raise _not_a_list(resource, body, str(error)) from None
        results = [decode_object(resource, raw, cluster) for raw in page.items or ()]
        items = tuple(each for each in results if not isinstance(each, Unreadable))
        refusals = tuple(each.refusal for each in results if isinstance(each, Unreadable))
    if page.kind != f"{KIND_OF[resource]}List":
        raise _not_a_list(resource, body, f"its kind is {clean(page.kind, 80) or '(none)'}")
    if not page.metadata.resource_version:
        raise _not_a_list(resource, body, "it has no metadata.resourceVersion")
    return ListPage(items, page.metadata.resource_version, page.metadata.continue_token or "", refusals)


def decode_object(resource: Resource, json: bytes | msgspec.Raw, cluster: str = "") -> AnyObject | Unreadable:
    """Decode one object of a list, a watch or a file."""
    try:
        record = _OBJECTS[resource].decode(json)
        if isinstance(record, Pod):
            record = with_whole(record, bytes(json))
        if _is_named(resource, record):
            forget_annotations(record)
            return record
        detail, metadata = "it has no metadata.name or no metadata.namespace", _OnlyMeta()
    except _BAD_JSON as error:
        detail, metadata = str(error), _OnlyMeta()
        with suppress(*_BAD_JSON):
            metadata = _ONLY_METADATA.decode(json).metadata
    key = Key(metadata.namespace, metadata.name) if metadata.name else None
    ref = ObjectRef(
        KIND_OF[resource], clean(metadata.namespace, 253), clean(metadata.name, 253) or "(no name)", cluster
    )
    refusal = Refusal(ref, "", "", RefusalReason.UNREADABLE, f"{clean(detail, 200)}; the object was left out")
    return Unreadable(refusal, key, metadata.resource_version)


def decode_event(resource: Resource, line: bytes, cluster: str = "") -> Event:
    """Decode one line of a watch.

    Raises:
        BrokenWatchError: it is an ERROR event, or no event.
    """
    try:
        event = _RAW_EVENT.decode(line)
        if event.type == "ERROR":
            status = _STATUS.decode(event.object)
            message = f"ERROR {status.code}: {clean(status.message or '', 300)}"
            raise BrokenWatchError(failure_of_status(status.code), f"watch of {resource}", message)
        if event.type == "BOOKMARK":
            return Bookmark(_ONLY_METADATA.decode(event.object).metadata.resource_version)
    except _BAD_JSON as error:
        message = f"the watch sent what is not an event ({clean(str(error), 80)}): {clean(line, 80)}"
        raise BrokenWatchError(Failure.BAD_ANSWER, f"watch of {resource}", message) from None
    if event.type in {"ADDED", "MODIFIED", "DELETED"}:
        found = decode_object(resource, event.object, cluster)
        if isinstance(found, Unreadable):
            # Only the name counts for a deletion: an object that could not be decoded can still be deleted.
            if event.type == "DELETED" and found.key is not None:
                return Deleted(found.key, found.resource_version)
            return found
        if event.type == "DELETED":
            return Deleted(key_of(found), found.metadata.resource_version)
        return Upserted(found)
    log.debug("watch_event.ignored", resource=resource.value, type=clean(event.type, 80))
    return Bookmark("")


def forget_annotations(record: AnyObject) -> None:
    """Drop the annotations that are not used from a record that no other thread sees yet."""
    annotations = record.metadata.annotations
    if not annotations:
        return
    for name in DROPPED_ANNOTATIONS:
        annotations.pop(name, None)
    if not annotations:
        # None and {} mean the same and must not look like a change.
        msgspec.structs.force_setattr(record.metadata, "annotations", None)


def same_content(old: AnyObject | None, new: AnyObject) -> bool:
    """Return whether two versions of an object differ in nothing but their resourceVersion."""
    if old is None:
        return False
    if old == new:
        return True
    if old.metadata.resource_version == new.metadata.resource_version:
        return False
    metadata = msgspec.structs.replace(old.metadata, resource_version=new.metadata.resource_version)
    return msgspec.structs.replace(old, metadata=metadata) == new


def with_whole(pod: Pod, json: bytes) -> Pod:
    """Return the pod together with its whole object: ``json`` without what is large and not used.

    Raises:
        msgspec.DecodeError: ``metadata``, ``spec`` or ``status`` are no objects.
    """
    whole = _WHOLE_POD.decode(json)
    whole.metadata.pop("managedFields", None)
    raw = whole.metadata.get("annotations")
    if raw is not None and bytes(raw) != b"null":
        annotations = _ANNOTATIONS.decode(raw)
        for name in DROPPED_ANNOTATIONS:
            annotations.pop(name, None)
        whole.metadata["annotations"] = msgspec.Raw(msgspec.json.encode(annotations))
    whole.api_version, whole.kind = "v1", "Pod"
    return msgspec.structs.replace(pod, whole=WholeObject(msgspec.json.encode(whole)))


def _is_named(resource: Resource, record: AnyObject) -> bool:
    return bool(record.metadata.name and (record.metadata.namespace or resource in CLUSTER_SCOPED))


def _not_a_list(resource: Resource, body: bytes, why: str) -> ApiError:
    message = f"the answer is not a whole list of {resource} ({clean(why, 80)}): {len(body)} bytes, {clean(body, 80)}"
    return ApiError(Failure.BAD_ANSWER, f"list of {resource}", message)
