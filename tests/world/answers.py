"""Lists, single objects and writes: from a request to the bytes of its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from tests.world import requests, selectors
from tests.world.cluster import Cluster
from tests.world.event_rules import validate_event
from tests.world.requests import Target
from tests.world.statuses import CONTINUE_EXPIRED, ApiError
from tests.world.store import Obj, Page, PatchType

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete HTTP answer; large ones go out in chunks, as the real server sends lists."""

    body: bytes
    code: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    chunked: bool = False


def of_error(error: ApiError, headers: Mapping[str, str] | None = None) -> Answer:
    """The answer that carries a Status."""
    return Answer(error.body(), error.code, headers=headers or {})


def _page(cluster: Cluster, target: Target, query: Mapping[str, str], frozen: int | None) -> Page:
    resource = target.resource.plural
    match = selectors.parse(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    limit, asked = requests.integer(query, "limit"), requests.integer(query, "resourceVersion")
    if token := query.get("continue"):
        rv, start = requests.decode_continue(token, target.resource)
        at = frozen if rv < 0 else rv
        try:
            return cluster.page(resource, namespace=target.namespace, match=match, limit=limit, start=start, at=at)
        except ApiError as error:
            metadata = {"continue": requests.encode_continue(-1, start)}
            raise ApiError(410, CONTINUE_EXPIRED, metadata=metadata) from error
    current = cluster.rv if frozen is None else frozen
    if asked > current:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        message = f"Timeout: Too large resource version: {asked}, current: {current}"
        raise ApiError(504, message, details={"causes": [cause], "retryAfterSeconds": 1})
    at = asked if query.get("resourceVersionMatch") == "Exact" else frozen
    return cluster.page(resource, namespace=target.namespace, match=match, limit=limit, at=at)


def listing(
    cluster: Cluster,
    target: Target,
    query: Mapping[str, str],
    *,
    frozen: int | None = None,
    empty: bool = False,
) -> Answer:
    """A list or one page of it; ``frozen`` is the resourceVersion a lagging server has seen.

    Raises:
        ApiError: 400, 410 or 504.
    """
    page = _page(cluster, target, query, frozen)
    if empty:
        page = Page([], page.rv, 0, "")
    metadata: Obj = {"resourceVersion": str(page.rv)}
    if page.next_start:
        metadata["continue"] = requests.encode_continue(page.rv, page.next_start)
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata["remainingItemCount"] = page.remaining
    warning = {"Warning": target.resource.warning} if target.resource.warning else {}
    head: Obj = {"kind": f"{target.resource.kind}List", "apiVersion": target.resource.api_version, "metadata": metadata}
    items = b",".join([stored.item for stored in page.items])
    body = msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}\n"
    return Answer(body, headers=warning, chunked=True)


def single(cluster: Cluster, target: Target) -> Answer:
    """One object; a resource that is deprecated warns of it even where the object is absent."""
    warning = {"Warning": target.resource.warning} if target.resource.warning else {}
    try:
        return Answer(cluster.stored(target.resource.plural, target.namespace, target.name).full, headers=warning)
    except ApiError as error:
        return of_error(error, warning)


def write(
    cluster: Cluster, target: Target, body: bytes, headers: Mapping[str, str], query: Mapping[str, str]
) -> Answer:
    """Create, update, patch or delete. Raises: ApiError."""
    resource = target.resource.plural
    if target.verb == "delete":
        return _delete(cluster, target, query)
    content_type = headers.get("content-type", JSON).split(";")[0]
    obj = _decoded(body, content_type)
    if target.verb == "patch":
        return _patch(cluster, target, obj, content_type)
    if not isinstance(obj, dict):
        raise ApiError(400, "the object provided is not an object")
    metadata = {"namespace": target.namespace} | (obj.get("metadata") or {})
    if metadata["namespace"] != target.namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise ApiError(400, message)
    named = obj | {"metadata": metadata}
    if target.verb == "create":
        if resource == "events":
            validate_event(named)
        if query.get("dryRun") == "All":
            return Answer(msgspec.json.encode(named), 201)
        return Answer(msgspec.json.encode(cluster.create(resource, named)), 201)
    return Answer(msgspec.json.encode(cluster.update(resource, named)))


def _decoded(body: bytes, content_type: str) -> Any:
    try:
        return yaml.safe_load(body) if content_type.endswith("yaml") else msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise ApiError(400, f"the object provided is unrecognized: {error}") from error


def _patch(cluster: Cluster, target: Target, patch: Any, content_type: str) -> Answer:
    try:
        patch_type = PatchType(content_type)
    except ValueError as error:
        raise ApiError(415, f"the body of the request was in an unknown format - {content_type}") from error
    changed = cluster.patch(target.resource.plural, target.namespace, target.name, patch, patch_type)
    return Answer(msgspec.json.encode(changed))


def _delete(cluster: Cluster, target: Target, query: Mapping[str, str]) -> Answer:
    resource = target.resource
    if target.name:
        last = cluster.delete(resource.plural, target.namespace, target.name)
        details = {"name": target.name, "kind": resource.plural, "uid": last["metadata"]["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Answer(msgspec.json.encode(status))
    match = selectors.parse(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    for obj in cluster.objects(resource.plural, target.namespace, match):
        metadata = obj["metadata"]
        cluster.delete(resource.plural, metadata.get("namespace", ""), metadata["name"])
    return Answer(msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
