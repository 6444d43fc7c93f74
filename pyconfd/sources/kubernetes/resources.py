"""What is read of a cluster: where the API serves it, as which lists and watches, and which rights that takes."""

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from pyconfd.model.ownership import MOST_SHARDS
from pyconfd.model.snapshot import ROUTING_RESOURCES, Named, Resource
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
        Resource.LISTENERSETS: "gateway.networking.k8s.io/v1",
        Resource.HTTPROUTES: "gateway.networking.k8s.io/v1",
        Resource.GRPCROUTES: "gateway.networking.k8s.io/v1",
        Resource.TLSROUTES: "gateway.networking.k8s.io/v1",
        Resource.TCPROUTES: "gateway.networking.k8s.io/v1",
        # v1 is served since 1.5 of the CRDs, and v1beta1 by all of them.
        Resource.REFERENCEGRANTS: "gateway.networking.k8s.io/v1beta1",
        Resource.BACKENDTLSPOLICIES: "gateway.networking.k8s.io/v1",
        Resource.ROUTEPOLICIES: "pyconfd.io/v1alpha1",
    }
)
CLUSTER_SCOPED = frozenset({Resource.NODES, Resource.NAMESPACES, Resource.INGRESSCLASSES, Resource.GATEWAYCLASSES})
ONLY_BY_NAME = frozenset({Resource.DEPLOYMENTS})
"""Never read as a whole: a preset names the few that it needs."""
BY_NAMESPACE = frozenset({Resource.SECRETS, Resource.CONFIGMAPS})
"""Read only in the namespaces that ``kubernetes.secret_namespaces`` allows."""
_LARGE_PAGE_SIZE = 20
"""Tenants fill Secrets and ConfigMaps with up to 1 MiB each, and a page is in memory three times at first."""
_TLS_ONLY: Mapping[str, str] = MappingProxyType({"fieldSelector": "type=kubernetes.io/tls"})
"""Secrets of other types hold tokens and passwords that pyconfd does not need."""
_WITH_PASSWORDS: Mapping[str, str] = MappingProxyType(
    {
        "fieldSelector": ",".join(
            f"type!={each}"
            for each in (
                "helm.sh/release.v1",
                "kubernetes.io/service-account-token",
                "kubernetes.io/dockercfg",
                "kubernetes.io/dockerconfigjson",
                "kubernetes.io/basic-auth",
                "kubernetes.io/ssh-auth",
                "bootstrap.kubernetes.io/token",
            )
        )
    }
)
"""A selector cannot say "this or that type", and two watches of one namespace would be two caches of it."""
_ESSENTIAL = frozenset({Resource.SERVICES, Resource.ENDPOINTSLICES})
OPTIONAL = frozenset(ROUTING_RESOURCES)
"""APIs that a cluster need not serve: those of CustomResourceDefinitions, which can be installed later, and of presets
that are in use by default. Without one nothing is missing."""


@dataclass(frozen=True, slots=True)
class ResourceRead:
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

    def page_size(self, most: int) -> int:
        """Return how many objects to ask for at once; ``most`` is what the settings say."""
        large = self.scope.resource in BY_NAMESPACE and not self.scope.name
        return min(most, _LARGE_PAGE_SIZE) if large else most

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


def reads(
    settings: KubernetesSettings, resources: Collection[Resource], named: Collection[Named]
) -> tuple[ResourceRead, ...]:
    """Return every list and watch: ``resources`` as a whole or by namespace, and the objects ``named``."""
    found: list[tuple[Named, Mapping[str, str]]] = []
    for resource in Resource:
        if resource in BY_NAMESPACE:
            namespaces = settings.secret_scopes if resource in resources else ()
        else:
            namespaces = ("",) if resource in resources and resource not in ONLY_BY_NAME else ()
        of_secrets = _WITH_PASSWORDS if settings.password_secrets else _TLS_ONLY
        params = of_secrets if resource is Resource.SECRETS else {}
        found += [(Named(resource, namespace, ""), params) for namespace in namespaces]
        if resource in BY_NAMESPACE or not namespaces:
            # After the namespaces: of an object that is read in both ways this one has all keys.
            # A field selector on the name is what `resourceNames` of a Role allows to list and watch.
            single = sorted(each for each in set(named) if each.resource is resource)
            found += [(each, {"fieldSelector": f"metadata.name={each.name}"}) for each in single]
    return tuple(ResourceRead(scope, params, essential=_is_essential(scope, resources)) for scope, params in found)


def _is_essential(scope: Named, resources: Collection[Resource]) -> bool:
    if scope.resource in OPTIONAL:
        return False
    if needed := _ESSENTIAL.intersection(resources):
        return scope.resource in needed
    # Nothing but what is named or asked for: only certificates can come later.
    return scope.resource not in BY_NAMESPACE or bool(scope.name)


_VERBS = ("list", "watch")
_EXISTING_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})

_HEAD = """\
# What pyconfd may do, and nothing else:
#
{what}
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
_NO_TYPES = (
    "pyconfd asks for Secrets of {which} only, but RBAC cannot limit a right to a type: with this token "
    "all Secrets of {where} can be read. kubernetes.secret_namespaces says which namespaces these are."
)
_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Rights:
    """What pyconfd has to be allowed, and nothing else.

    ``statuses`` are the kinds whose status it writes. With ``events`` it creates Events in every namespace: they stand
    beside the objects that they are about. With ``owners`` it keeps the record of whose each name is, and says
    to the other balancers what it serves. With ``services`` it makes them for Gateways. For each of these it takes the
    ``lease`` (namespace and name).
    """

    reads: Sequence[ResourceRead] = ()
    statuses: Collection[Resource] = ()
    lease: tuple[str, str] = ("", "")
    events: bool = False
    owners: bool = False
    services: bool = False

    @property
    def needs_lease(self) -> bool:
        """Whether something is written that one of several balancers writes."""
        return bool(self.lease[1] and (self.statuses or self.events or self.owners or self.services))


def owners_names(lease: str) -> tuple[str, ...]:
    """Return the ConfigMaps with the record of whose each name is, beside the Lease of this name: the index first.

    Balancers of another Lease are others, and so is what they gave.
    """
    index = f"{lease}-owners"
    return (index, *(f"{index}-{number}" for number in range(1, MOST_SHARDS + 1)))


def nodes_name(lease: str) -> str:
    """Return the ConfigMap in which balancers of a Lease say what they serve."""
    return f"{lease}-nodes"


def manifest(rights: Rights, *, service_account: str = "pyconfd", namespace: str = "pyconfd") -> str:
    """Return the YAML of a ServiceAccount with its rights and a token.

    What is read in one namespace gets a Role there, and one object a rule with its name: ``resourceNames`` allows to
    list and watch it.
    """
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    metadata = {"name": service_account, "namespace": namespace}
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}}
        for each in sorted({namespace, *([rights.lease[0]] if rights.needs_lease else [])} - _EXISTING_NAMESPACES)
    ]
    documents.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    for scope, rules in _rules_by_scope(rights).items():
        documents += _role_and_binding(service_account, scope, rules, subject)
    documents.append(_token_secret(service_account, namespace))
    head = _HEAD.format(what="\n".join(_summary(rights)), namespace=namespace, account=service_account)
    return head + yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)


def _rules_by_scope(rights: Rights) -> dict[str, list[dict[str, Any]]]:
    """Return the rules by namespace; "" are those for the whole cluster."""
    scopes, writes = [read.scope for read in rights.reads], rights.statuses
    found: dict[str, list[dict[str, Any]]] = {}
    for namespace in sorted({scope.namespace for scope in scopes}):
        here = [scope for scope in scopes if scope.namespace == namespace]
        whole = {scope.resource for scope in here if not scope.name}
        rules = [
            _rule(group, [each.value for each in Resource if each in whole and _group(each) == group])
            for group in sorted({_group(each) for each in whole})
        ]
        for resource in sorted({scope.resource for scope in here if scope.name} - whole):
            names = sorted(scope.name for scope in here if scope.resource is resource and scope.name)
            rules.append(_rule(_group(resource), [resource.value], names))
        found[namespace] = rules
    if writes:
        everywhere = found.setdefault("", [])
        for group in sorted({_group(each) for each in writes}):
            parts = [f"{each.value}/status" for each in Resource if each in writes and _group(each) == group]
            everywhere.append({"apiGroups": [group], "resources": parts, "verbs": ["patch"]})
    if rights.services:
        found.setdefault("", []).append({"apiGroups": [""], "resources": ["services"], "verbs": ["create", "patch"]})
    if rights.needs_lease:
        home, name = rights.lease
        leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        found.setdefault(home, []).extend(
            [
                {**leases, "resourceNames": [name], "verbs": ["get", "update"]},
                {**leases, "verbs": ["create"]},  # the name of what is created is not known to RBAC
            ]
        )
    if rights.owners:
        config_maps = {"apiGroups": [""], "resources": ["configmaps"]}
        names = [*owners_names(rights.lease[1]), nodes_name(rights.lease[1])]
        found.setdefault(rights.lease[0], []).extend(
            [
                {**config_maps, "resourceNames": names, "verbs": ["get", "update"]},
                {**config_maps, "verbs": ["create"]},
            ]
        )
    if rights.events:
        found.setdefault("", []).append({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]})
    return found


def _summary(rights: Rights) -> Iterator[str]:
    """Yield what the manifest grants, as lines of a comment."""
    for what, names in (
        ("list and watch", [str(read) for read in rights.reads]),
        ("patch the status of", [each.value for each in Resource if each in rights.statuses]),
        ("take and renew the Lease", ["/".join(rights.lease)] if rights.needs_lease else []),
        ("keep the record of names in", [f"ConfigMaps {'/'.join(rights.lease)}-owners*"] if rights.owners else []),
        ("say what they serve in", [f"ConfigMap {'/'.join(rights.lease)}-nodes"] if rights.owners else []),
        ("create", ["events"] if rights.events else []),
        ("create and patch", ["services"] if rights.services else []),
    ):
        if names:
            text = f"{what} {', '.join(names)}"
            yield from textwrap.wrap(text, _WIDTH, initial_indent="# - ", subsequent_indent="#   ")
    whole = (read.scope for read in rights.reads if not read.scope.name)
    secrets = {scope.namespace for scope in whole if scope.resource is Resource.SECRETS}
    if secrets:
        yield "#"
        with_passwords = any(read.params == _WITH_PASSWORDS for read in rights.reads)
        which = "types that may have users with passwords" if with_passwords else "type kubernetes.io/tls"
        where = "the whole cluster" if "" in secrets else "these namespaces"
        yield from textwrap.wrap(
            _NO_TYPES.format(which=which, where=where), _WIDTH, initial_indent="# ", subsequent_indent="# "
        )


def right_to_read(scope: Named) -> str:
    """Return the rule of a Role that allows to read this, on one line: as :func:`manifest` has it."""
    rule = _rule(_group(scope.resource), [scope.resource.value], [scope.name] if scope.name else [])
    return yaml.safe_dump(rule, sort_keys=False, default_flow_style=True, width=1000).strip()


def _rule(group: str, resources: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": list(resources), **named, "verbs": list(_VERBS)}


def _role_and_binding(
    account: str, namespace: str, rules: list[dict[str, Any]], subject: dict[str, str]
) -> list[dict[str, Any]]:
    api, kind = "rbac.authorization.k8s.io", "Role" if namespace else "ClusterRole"
    metadata = {"name": account, **({"namespace": namespace} if namespace else {})}
    role = {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{api}/v1",
        "kind": f"{kind}Binding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": api, "kind": kind, "name": account},
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
