"""The resources the fake serves: one line each, and the discovery documents that follow from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """``plural`` is the key everywhere in the fake; ``merge_keys`` names lists that a strategic patch merges.

    ``lists`` are the lists that server-side apply merges, by path, with their keys. ``status`` says that there is a
    subresource of that name; ``crd`` that a CustomResourceDefinition makes it known.
    """

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
    also: tuple[str, ...] = ()
    """Older versions that are served too, with the same content."""
    status: bool = False
    generation: bool = False
    """Whether ``metadata.generation`` counts the changes of all but metadata and status."""
    unconditional: bool = True
    """Whether a PUT may do without a resourceVersion."""
    crd: bool = False
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions that are served, the newest first."""
        return (self.version, *self.also)

    @property
    def api_versions(self) -> tuple[str, ...]:
        """``v1`` or ``group/version`` for each of them."""
        return tuple(f"{self.group}/{version}" if self.group else version for version in self.versions)

    @property
    def prefix(self) -> str:
        """The URL path of its group and version."""
        return path_of(self.api_version)

    @property
    def qualified(self) -> str:
        """The resource as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def path_of(api_version: str) -> str:
    """Return the URL path of a group and version."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _gateway_api(plural: str, kind: str, *, short: str = "", lists: tuple[str, ...] = (), **more: Any) -> Resource:
    """A resource of the Gateway API; ``lists`` are of conditions, by type, or of what has a name."""
    keyed = tuple((path, ("type",) if path.endswith("conditions") else ("name",)) for path in lists)
    known: dict[str, Any] = {"status": True, "generation": True, "unconditional": False, "crd": True}
    shorts = (short,) if short else ()
    return Resource(plural, kind, group=GATEWAY_API, short=shorts, lists=keyed, **(known | more))


GATEWAY_API = "gateway.networking.k8s.io"
_CONDITIONS = (("status.conditions", ("type",)),)
_LISTENERS = ("spec.listeners", "status.conditions", "status.listeners", "status.listeners.conditions")
_DEPRECATED = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
_SLICE_EMPTY: tuple[tuple[str, Any], ...] = (("addressType", ""), ("endpoints", None), ("ports", None))

TABLE = (
    Resource("services", "Service", short=("svc",), merge_keys=(("ports", "port"),), status=True, lists=_CONDITIONS),
    Resource("endpoints", "Endpoints", short=("ep",), warning=_DEPRECATED),
    Resource("nodes", "Node", namespaced=False, short=("no",), merge_keys=(("conditions", "type"),), status=True),
    Resource("pods", "Pod", short=("po",), merge_keys=(("conditions", "type"), ("containers", "name")), status=True),
    Resource("configmaps", "ConfigMap", short=("cm",)),
    Resource("secrets", "Secret"),
    Resource("namespaces", "Namespace", namespaced=False, short=("ns",)),
    Resource("events", "Event", short=("ev",)),
    Resource("deployments", "Deployment", group="apps", short=("deploy",)),
    Resource("endpointslices", "EndpointSlice", group="discovery.k8s.io", empty_fields=_SLICE_EMPTY),
    Resource("leases", "Lease", group="coordination.k8s.io", unconditional=False),
    Resource("ingresses", "Ingress", group="networking.k8s.io", short=("ing",), status=True, generation=True),
    Resource("ingressclasses", "IngressClass", group="networking.k8s.io", namespaced=False, generation=True),
    _gateway_api(
        "gatewayclasses",
        "GatewayClass",
        short="gc",
        namespaced=False,
        also=("v1beta1",),
        lists=("status.conditions", "status.supportedFeatures"),
    ),
    _gateway_api("gateways", "Gateway", short="gtw", also=("v1beta1",), lists=_LISTENERS),
    _gateway_api("listenersets", "ListenerSet", short="lset", lists=_LISTENERS),
    _gateway_api("httproutes", "HTTPRoute", also=("v1beta1",)),
    _gateway_api("grpcroutes", "GRPCRoute"),
    _gateway_api("tlsroutes", "TLSRoute"),
    _gateway_api("tcproutes", "TCPRoute"),
    _gateway_api("backendtlspolicies", "BackendTLSPolicy", short="btlspolicy"),
    Resource(
        "routepolicies",
        "RoutePolicy",
        group="pyconfd.io",
        version="v1alpha1",
        status=True,
        generation=True,
        unconditional=False,
        crd=True,
    ),
    _gateway_api("referencegrants", "ReferenceGrant", short="refgrant", also=("v1beta1",), status=False),
)
RESOURCES = {resource.plural: resource for resource in TABLE}
KINDS = {(version, resource.kind): resource for resource in TABLE for version in resource.api_versions}
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_STATUS_VERBS = ("get", "patch", "update")


def _group(group: str, versions_of: Iterable[str]) -> Obj:
    # The API server prefers the newest stable version: "v1" sorts before "v1beta1" here.
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in sorted(set(versions_of))]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(resources: Iterable[Resource], group_version: str) -> Obj:
    entries = []
    for resource in resources:
        entry = {"name": resource.plural, "singularName": resource.kind.lower(), "namespaced": resource.namespaced}
        entries.append(entry | {"kind": resource.kind, "verbs": list(_VERBS), "shortNames": list(resource.short)})
        if resource.status:
            part = {"name": f"{resource.plural}/status", "singularName": "", "namespaced": resource.namespaced}
            entries.append(part | {"kind": resource.kind, "verbs": list(_STATUS_VERBS)})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _openapi(resources: Iterable[Resource], group_version: str) -> Obj:
    """Only what kubectl asks it for: that PATCH knows ``fieldValidation``, so the server validates."""
    paths: Obj = {}
    for resource in resources:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        version = group_version.rpartition("/")[2]
        gvk = {"group": resource.group, "version": version, "kind": resource.kind}
        paths[f"{path_of(group_version)}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": gvk,
            }
        }
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths}


@lru_cache
def discovery(absent: frozenset[str] = frozenset()) -> dict[str, Obj]:
    """Return path to document, for everything that is not a resource; ``absent`` are not installed, by plural."""
    served: dict[str, list[Resource]] = {}
    for resource in TABLE:
        for version in () if resource.plural in absent else resource.api_versions:
            served.setdefault(version, []).append(resource)
    groups: dict[str, list[str]] = {}
    for api_version in served:
        group, slash, version = api_version.partition("/")
        if slash:
            groups.setdefault(group, []).append(version)
    listed = [_group(group, versions) for group, versions in sorted(groups.items())]
    openapi = {path_of(api_version).strip("/"): api_version for api_version in served}
    documents: dict[str, Obj] = {
        "/api": {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        },
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed},
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
    }
    documents |= {f"/apis/{each['name']}": {"kind": "APIGroup", "apiVersion": "v1"} | each for each in listed}
    documents |= {path_of(version): _resource_list(resources, version) for version, resources in served.items()}
    return documents | {f"/openapi/v3/{path}": _openapi(served[version], version) for path, version in openapi.items()}
