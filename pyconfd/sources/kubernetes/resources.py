"""Where the API serves each kind."""

from collections.abc import Mapping
from types import MappingProxyType

from pyconfd.model.snapshot import Named, Resource

API_VERSION_OF: Mapping[Resource, str] = MappingProxyType(
    {
        Resource.SERVICES: "v1",
        Resource.ENDPOINTSLICES: "discovery.k8s.io/v1",
        Resource.ENDPOINTS: "v1",
        Resource.NODES: "v1",
        Resource.SECRETS: "v1",
        Resource.CONFIGMAPS: "v1",
        Resource.PODS: "v1",
        Resource.DEPLOYMENTS: "apps/v1",
    }
)

CLUSTER_SCOPED = frozenset({Resource.NODES})

TLS_SECRETS_ONLY: Mapping[str, str] = MappingProxyType({"fieldSelector": "type=kubernetes.io/tls"})
"""Secrets of other types hold tokens and passwords, which are nobody's business here."""


ONLY_BY_NAME = frozenset({Resource.CONFIGMAPS, Resource.DEPLOYMENTS})
"""Never read as a whole: a preset names the few that it needs."""


def selector_of(named: Named) -> dict[str, str]:
    """Return the parameters that limit a list or watch to one object: what ``resourceNames`` of a Role allows."""
    return {"fieldSelector": f"metadata.name={named.name}"}


def path_of(resource: Resource, namespace: str = "") -> str:
    """Return the path to list or watch a resource, in one namespace or ("") in all."""
    version = API_VERSION_OF[resource]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{resource}" if namespace else f"{root}/{resource}"


def group_of(resource: Resource) -> str:
    """Return the API group, "" for the core group."""
    group, slash, _ = API_VERSION_OF[resource].partition("/")
    return group if slash else ""
