"""Lists, single objects and writes: from a request to the bytes of its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from tests.world import requests, selectors
from tests.world.cluster import Cluster
from tests.world.object_rules import validate_event, validate_lease
from tests.world.requests import Target
from tests.world.statuses import CONTINUE_EXPIRED, ApiError, invalid, not_found
from tests.world.store import Obj, Page, Part, PatchType

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
    """The answer that carries a Status or a text."""
    content_type = "text/plain; charset=utf-8" if error.plain else JSON
    return Answer(error.body(), error.code, content_type, headers=headers or {})


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
    head: Obj = {"kind": f"{target.resource.kind}List", "apiVersion": target.api_version, "metadata": metadata}
    if target.resource.crd:  # the items of a definition's list have kind and apiVersion, and there is always a token
        metadata.setdefault("continue", "")
        items = b",".join([stored.full_as(target.api_version) for stored in page.items])
    else:
        items = b",".join([stored.item for stored in page.items])
    body = msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}\n"
    return Answer(body, headers=warning, chunked=True)


def single(cluster: Cluster, target: Target) -> Answer:
    """One object; a resource that is deprecated warns of it even where the object is absent."""
    warning = {"Warning": target.resource.warning} if target.resource.warning else {}
    try:
        found = cluster.stored(target.resource.plural, target.namespace, target.name)
        return Answer(found.full_as(target.api_version), headers=warning)
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
        return _patch(cluster, target, obj, content_type, headers, query)
    named = _named(target, obj)
    dry_run = query.get("dryRun") == "All"
    if target.verb == "create":
        if target.namespace and not cluster.has_namespace(target.namespace):
            raise not_found("namespaces", target.namespace)
        if resource == "events":
            validate_event(named)
        return _answer(target, cluster.create(resource, named, part=_part(target), dry_run=dry_run), 201)
    if resource == "leases" and not cluster.exists(resource, target.namespace, target.name):
        return _answer(target, cluster.create(resource, named, dry_run=dry_run), 201)
    if not target.resource.unconditional and "resourceVersion" not in named["metadata"]:
        fault = ("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise invalid(target.resource.kind, target.resource.group, target.name, [fault], plural=resource)
    manager = _manager(headers, query)
    return _answer(target, cluster.update(resource, named, part=_part(target), manager=manager, dry_run=dry_run), 200)


def _named(target: Target, obj: Any) -> Obj:
    """Return an object with the namespace of its path. Raises: ApiError: 400 where it says something else."""
    if not isinstance(obj, dict):
        raise ApiError(400, "the object provided is not an object")
    home = {"namespace": target.namespace} if target.namespace else {}
    metadata = home | (obj.get("metadata") or {})
    if metadata.get("namespace", "") != target.namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise ApiError(400, message)
    if target.name and metadata.setdefault("name", target.name) != target.name:
        why = f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        raise ApiError(400, why)
    if target.resource.plural == "leases":
        validate_lease(obj.get("spec") or {})
    return obj | {"metadata": metadata}


def _part(target: Target) -> Part:
    if target.subresource:
        return Part.STATUS
    return Part.MAIN if target.resource.status else Part.WHOLE


def _manager(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """Return who writes: what the request says, or what its client calls itself before the first slash."""
    return query.get("fieldManager") or headers.get("user-agent", "").partition("/")[0] or "unknown"


def _answer(target: Target, obj: Obj, code: int) -> Answer:
    return Answer(msgspec.json.encode(obj | {"apiVersion": target.api_version}), code)


def _decoded(body: bytes, content_type: str) -> Any:
    try:
        return yaml.safe_load(body) if content_type.endswith("yaml") else msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise ApiError(400, f"the object provided is unrecognized: {error}") from error


def _patch(
    cluster: Cluster,
    target: Target,
    patch: Any,
    content_type: str,
    headers: Mapping[str, str],
    query: Mapping[str, str],
) -> Answer:
    try:
        patch_type = PatchType(content_type)
    except ValueError as error:
        raise ApiError(415, f"the body of the request was in an unknown format - {content_type}") from error
    resource, part, dry_run = target.resource, _part(target), query.get("dryRun") == "All"
    if patch_type is PatchType.STRATEGIC and resource.crd:
        known = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        raise ApiError(415, f"the body of the request was in an unknown format - accepted media types include: {known}")
    if patch_type is not PatchType.APPLY:
        manager = _manager(headers, query)
        changed = cluster.patch(
            resource.plural,
            target.namespace,
            target.name,
            patch,
            patch_type,
            part=part,
            manager=manager,
            dry_run=dry_run,
        )
        return _answer(target, changed, 200)
    _check_applied(target, patch, query)
    exists = cluster.exists(resource.plural, target.namespace, target.name)
    applied = cluster.apply(
        resource.plural,
        _named(target, patch),
        manager=query["fieldManager"],
        force=query.get("force") in {"true", "1"},
        part=part,
        dry_run=dry_run,
    )
    return _answer(target, applied, 200 if exists else 201)


def _check_applied(target: Target, config: Any, query: Mapping[str, str]) -> None:
    """Raises: ApiError: 400 or 422 for a request of server-side apply that the API server does not accept."""
    if not query.get("fieldManager"):
        why = "fieldManager: Required value: is required for apply patch"
        raise ApiError(422, f'PatchOptions.meta.k8s.io "" is invalid: {why}')
    if not isinstance(config, dict):
        raise ApiError(400, "the object provided is not an object")
    if (config.get("apiVersion"), config.get("kind")) != (target.api_version, target.resource.kind):
        said = f"{config.get('apiVersion', '')}, Kind={config.get('kind', '')}"
        raise ApiError(400, f"the object provided ({said}) is no {target.api_version}, Kind={target.resource.kind}")
    if (config.get("metadata") or {}).get("managedFields") is not None:
        raise ApiError(400, "metadata.managedFields must be nil")


def _delete(cluster: Cluster, target: Target, query: Mapping[str, str]) -> Answer:
    resource = target.resource
    if target.name:
        last = cluster.delete(resource.plural, target.namespace, target.name)
        details = {"name": target.name} | ({"group": resource.group} if resource.group else {})
        details |= {"kind": resource.plural, "uid": last["metadata"]["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Answer(msgspec.json.encode(status))
    match = selectors.parse(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    for obj in cluster.objects(resource.plural, target.namespace, match):
        metadata = obj["metadata"]
        cluster.delete(resource.plural, metadata.get("namespace", ""), metadata["name"])
    return Answer(msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
