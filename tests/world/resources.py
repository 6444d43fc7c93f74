"""The resources the fake serves: one line each, and the discovery documents that follow from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """``plural`` is the key everywhere in the fake; ``merge_keys`` names lists that a strategic patch merges."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short: tuple[str, ...] = ()
    merge_keys: tuple[tuple[str, str], ...] = ()
    warning: str = ""
    empty_fields: tuple[tuple[str, Any], ...] = ()
    """Fields without ``omitempty``: they stand in a bookmark's empty object too."""

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """The URL path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """The resource as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_DEPRECATED = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
_SLICE_EMPTY: tuple[tuple[str, Any], ...] = (("addressType", ""), ("endpoints", None), ("ports", None))

TABLE = (
    Resource("services", "Service", short=("svc",), merge_keys=(("ports", "port"),)),
    Resource("endpoints", "Endpoints", short=("ep",), warning=_DEPRECATED),
    Resource("nodes", "Node", namespaced=False, short=("no",), merge_keys=(("conditions", "type"),)),
    Resource("pods", "Pod", short=("po",), merge_keys=(("conditions", "type"), ("containers", "name"))),
    Resource("configmaps", "ConfigMap", short=("cm",)),
    Resource("secrets", "Secret"),
    Resource("namespaces", "Namespace", namespaced=False, short=("ns",)),
    Resource("events", "Event", short=("ev",)),
    Resource("deployments", "Deployment", group="apps", short=("deploy",)),
    Resource("endpointslices", "EndpointSlice", group="discovery.k8s.io", empty_fields=_SLICE_EMPTY),
)
RESOURCES = {resource.plural: resource for resource in TABLE}
KINDS = {(resource.api_version, resource.kind): resource for resource in TABLE}
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_GROUPS = tuple(sorted({resource.group for resource in TABLE if resource.group}))


def _versions(group: str) -> tuple[str, ...]:
    return tuple(sorted({resource.version for resource in TABLE if resource.group == group}))


def _group(group: str) -> Obj:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(resources: Iterable[Resource], group_version: str) -> Obj:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [
            {
                "name": resource.plural,
                "singularName": resource.kind.lower(),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(_VERBS),
                "shortNames": list(resource.short),
            }
            for resource in resources
        ],
    }


def _openapi(resources: Iterable[Resource]) -> Obj:
    """Only what kubectl asks it for: that PATCH knows ``fieldValidation``, so the server validates."""
    paths: Obj = {}
    for resource in resources:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        paths[f"{resource.prefix}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": gvk,
            }
        }
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths}


def _documents() -> dict[str, Obj]:
    core = [resource for resource in TABLE if not resource.group]
    groups = {f"{group}/{version}" for group in _GROUPS for version in _versions(group)}
    openapi = {"api/v1": core} | {
        f"apis/{gv}": [resource for resource in TABLE if resource.api_version == gv] for gv in groups
    }
    documents: dict[str, Obj] = {
        "/api": {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        },
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in _GROUPS]},
        "/version": {
            "major": "1",
            "minor": "36",
            "gitVersion": "v1.36.0",
            "gitCommit": "fake",
            "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z",
            "goVersion": "go1.25",
            "compiler": "gc",
            "platform": "linux/amd64",
        },
        "/openapi/v3": {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in openapi}},
        "/api/v1": _resource_list(core, "v1"),
    }
    for group in _GROUPS:
        documents[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1"} | _group(group)
    for gv in groups:
        documents[f"/apis/{gv}"] = _resource_list(openapi[f"apis/{gv}"], gv)
    return documents | {f"/openapi/v3/{path}": _openapi(resources) for path, resources in openapi.items()}


DISCOVERY = _documents()
"""Path to document, for everything that is not a resource."""
