"""What is read of a cluster: where the API serves it, as which lists and watches, and which rights that takes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings

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
        Resource.NAMESPACES: "v1",
        Resource.INGRESSCLASSES: "networking.k8s.io/v1",
        Resource.INGRESSES: "networking.k8s.io/v1",
        Resource.GATEWAYCLASSES: "gateway.networking.k8s.io/v1",
        Resource.GATEWAYS: "gateway.networking.k8s.io/v1",
        Resource.HTTPROUTES: "gateway.networking.k8s.io/v1",
        Resource.GRPCROUTES: "gateway.networking.k8s.io/v1",
        Resource.TLSROUTES: "gateway.networking.k8s.io/v1",
        Resource.TCPROUTES: "gateway.networking.k8s.io/v1",
        # v1 is served since 1.5 of the CRDs, and v1beta1 by all of them.
        Resource.REFERENCEGRANTS: "gateway.networking.k8s.io/v1beta1",
        Resource.BACKENDTLSPOLICIES: "gateway.networking.k8s.io/v1",
    }
)
CLUSTER_SCOPED = frozenset({Resource.NODES, Resource.NAMESPACES, Resource.INGRESSCLASSES, Resource.GATEWAYCLASSES})
ONLY_BY_NAME = frozenset({Resource.CONFIGMAPS, Resource.DEPLOYMENTS})
"""Never read as a whole: a preset names the few that it needs."""
_TLS_ONLY: Mapping[str, str] = MappingProxyType({"fieldSelector": "type=kubernetes.io/tls"})
"""Secrets of other types hold tokens and passwords that pyconfd does not need."""
_ESSENTIAL = frozenset({Resource.SERVICES, Resource.ENDPOINTSLICES})
OPTIONAL = frozenset(
    {
        Resource.INGRESSCLASSES,
        Resource.INGRESSES,
        Resource.GATEWAYCLASSES,
        Resource.GATEWAYS,
        Resource.HTTPROUTES,
        Resource.GRPCROUTES,
        Resource.TLSROUTES,
        Resource.TCPROUTES,
        Resource.REFERENCEGRANTS,
        Resource.BACKENDTLSPOLICIES,
    }
)
"""APIs that a cluster need not serve: those of CustomResourceDefinitions, which can be installed later, and of presets
that are in use by default. Without one nothing is missing."""


@dataclass(frozen=True, slots=True)
class Read:
    """One list and watch: of a whole resource, of one namespace, or of one object.

    Without an ``essential`` one nothing can be followed; where another one is denied only what needs it waits.
    """

    scope: Named
    params: Mapping[str, str]
    essential: bool = True

    @property
    def optional(self) -> bool:
        """Whether a cluster that does not serve it has simply no such objects."""
        return self.scope.resource in OPTIONAL

    @property
    def path(self) -> str:
        """The path of its requests."""
        return path_of(self.scope.resource, self.scope.namespace)

    def watch_params(self, resource_version: str, timeout_s: int) -> dict[str, str | int]:
        """Return the parameters of a watch from this version on, which the server ends after ``timeout_s``."""
        return {
            **self.params,
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": timeout_s,
        }

    def __str__(self) -> str:
        resource, namespace, name = self.scope
        if name:
            return f"{resource} {namespace}/{name}"
        return f"{resource} of namespace {namespace}" if namespace else str(resource)


def path_of(resource: Resource, namespace: str = "") -> str:
    """Return the path to list or watch a resource, in one namespace or ("") in all."""
    version = API_VERSION_OF[resource]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{resource}" if namespace else f"{root}/{resource}"


def reads(settings: KubernetesSettings, resources: Collection[Resource], named: Collection[Named]) -> tuple[Read, ...]:
    """Return every list and watch: ``resources`` as a whole, Secrets by namespace, and the objects ``named``."""
    found = []
    for resource in Resource:
        if resource is Resource.SECRETS:
            namespaces = settings.secret_namespaces if resource in resources else ()
        else:
            namespaces = ("",) if resource in resources and resource not in ONLY_BY_NAME else ()
        params = _TLS_ONLY if resource is Resource.SECRETS else {}
        found += [(Named(resource, namespace, ""), params) for namespace in namespaces]
        if resource is Resource.SECRETS or not namespaces:
            # A field selector on the name is what `resourceNames` of a Role allows to list and watch.
            single = sorted(each for each in set(named) if each.resource is resource)
            found += [(each, {"fieldSelector": f"metadata.name={each.name}"}) for each in single]
    return tuple(Read(scope, params, essential=_is_essential(scope, resources)) for scope, params in found)


def _is_essential(scope: Named, resources: Collection[Resource]) -> bool:
    if scope.resource in OPTIONAL:
        return False
    if needed := _ESSENTIAL.intersection(resources):
        return scope.resource in needed
    # Nothing but what is named or asked for: only certificates can come later.
    return scope.resource is not Resource.SECRETS or bool(scope.name)


_VERBS = ("list", "watch")
_EXISTING_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})

_HEAD = """\
# What pyconfd may do: list and watch {what}, and nothing else.
#
# Wherever kubectl may create roles (that need not be the machine that runs pyconfd), once; the last two lines fetch the
# token and the cluster's CA:
#
#   kubectl apply -f rbac.yaml
#   kubectl -n {namespace} get secret {account}-token -o jsonpath='{{.data.token}}' | base64 -d > token
#   kubectl -n {namespace} get secret {account}-token -o jsonpath='{{.data.ca\\.crt}}' | base64 -d > ca.pem
#
# Bring both files to each machine that runs pyconfd; there, as root:
#
#   install -m 0640 -g pyconfd token /etc/pyconfd/token && install -m 0644 ca.pem /etc/pyconfd/ca.pem
#
# and name them in pyconfd.toml: kubernetes.token_file = "/etc/pyconfd/token" (ca.pem there is found by itself).
# This token does not expire; to withdraw it, delete the Secret {account}-token. pyconfd reads the file again when it
# changes, so a token that expires (kubectl create token) works as well where something renews the file.
"""


def manifest(
    resources: Collection[Resource],
    secret_namespaces: Sequence[str] = (),
    *,
    named: Collection[Named] = (),
    events: bool = False,
    service_account: str = "pyconfd",
    namespace: str = "pyconfd",
) -> str:
    """Return the YAML of a ServiceAccount with its rights and a token.

    Secrets are never readable in the whole cluster: each of ``secret_namespaces`` gets a Role of its own. So does each
    namespace with objects that are ``named``, for just these: ``resourceNames`` allows to list and watch one by name.
    With ``events`` it may create Events in every namespace: they stand beside the objects that they are about.
    """
    everywhere = [r for r in Resource if r in resources and r is not Resource.SECRETS and r not in ONLY_BY_NAME]
    single = sorted({each for each in named if each.resource not in everywhere})
    documents: list[dict[str, Any]] = []
    if namespace not in _EXISTING_NAMESPACES:
        documents.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    documents.append(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": service_account, "namespace": namespace}}
    )
    if everywhere:
        documents += _grant_reads("Cluster", {"name": service_account}, everywhere, subject)
    if Resource.SECRETS in resources:
        for each in sorted(set(secret_namespaces)):
            metadata = {"name": f"{service_account}-secrets", "namespace": each}
            documents += _grant_reads("", metadata, [Resource.SECRETS], subject)
    for each in sorted({one.namespace for one in single}):
        here = [one for one in single if one.namespace == each]
        documents += _grant_by_name({"name": f"{service_account}-objects", "namespace": each}, here, subject)
    if events:
        rules = [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
        documents += _role_and_binding("Cluster", {"name": f"{service_account}-events"}, rules, subject)
    documents.append(_token_secret(service_account, namespace))
    granted = [r.value for r in everywhere]
    if Resource.SECRETS in resources and secret_namespaces:
        granted.append("secrets of " + ", ".join(sorted(set(secret_namespaces))))
    granted += [f"{one.resource} {one.namespace}/{one.name}" for one in single]
    granted += ["and create events"] if events else []
    head = _HEAD.format(what=", ".join(granted) or "nothing", namespace=namespace, account=service_account)
    return head + yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)


def right_to_read(scope: Named) -> str:
    """Return the rule of a Role that allows to read this, on one line: as :func:`manifest` has it."""
    rule = _rule(_group(scope.resource), [scope.resource.value], [scope.name] if scope.name else [])
    return yaml.safe_dump(rule, sort_keys=False, default_flow_style=True, width=1000).strip()


def _rule(group: str, resources: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": list(resources), **named, "verbs": list(_VERBS)}


def _grant_reads(
    prefix: str, metadata: dict[str, str], resources: Sequence[Resource], subject: dict[str, str]
) -> list[dict[str, Any]]:
    by_group: dict[str, list[str]] = {}
    for resource in resources:
        by_group.setdefault(_group(resource), []).append(resource.value)
    rules = [_rule(group, names) for group, names in sorted(by_group.items())]
    return _role_and_binding(prefix, metadata, rules, subject)


def _grant_by_name(metadata: dict[str, str], named: Sequence[Named], subject: dict[str, str]) -> list[dict[str, Any]]:
    by_resource: dict[Resource, list[str]] = {}
    for each in named:
        by_resource.setdefault(each.resource, []).append(each.name)
    rules = [_rule(_group(resource), [resource.value], names) for resource, names in sorted(by_resource.items())]
    return _role_and_binding("", metadata, rules, subject)


def _role_and_binding(
    prefix: str, metadata: dict[str, str], rules: list[dict[str, Any]], subject: dict[str, str]
) -> list[dict[str, Any]]:
    api = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{api}/v1", "kind": f"{prefix}Role", "metadata": dict(metadata), "rules": rules}
    binding = {
        "apiVersion": f"{api}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": api, "kind": f"{prefix}Role", "name": metadata["name"]},
        "subjects": [dict(subject)],
    }
    return [role, binding]


def _token_secret(service_account: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{service_account}-token",
            "namespace": namespace,
            "annotations": {"kubernetes.io/service-account.name": service_account},
        },
        "type": "kubernetes.io/service-account-token",
    }


def _group(resource: Resource) -> str:
    """Return the API group, "" for the core group."""
    group, slash, _ = API_VERSION_OF[resource].partition("/")
    return group if slash else ""
