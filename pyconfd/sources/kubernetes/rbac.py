"""The rights pyconfd needs, as a manifest: list and watch on what is read, and nothing else."""

from collections.abc import Collection, Sequence
from typing import Any

import yaml

from pyconfd.model.snapshot import Named, Resource
from pyconfd.sources.kubernetes.resources import ONLY_BY_NAME, group_of

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
        documents += _granted("Cluster", {"name": service_account}, everywhere, subject)
    if Resource.SECRETS in resources:
        for each in sorted(set(secret_namespaces)):
            metadata = {"name": f"{service_account}-secrets", "namespace": each}
            documents += _granted("", metadata, [Resource.SECRETS], subject)
    for each in sorted({one.namespace for one in single}):
        here = [one for one in single if one.namespace == each]
        documents += _granted_by_name({"name": f"{service_account}-objects", "namespace": each}, here, subject)
    if events:
        rules = [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
        documents += _bound("Cluster", {"name": f"{service_account}-events"}, rules, subject)
    documents.append(_token(service_account, namespace))
    granted = [r.value for r in everywhere]
    if Resource.SECRETS in resources and secret_namespaces:
        granted.append("secrets of " + ", ".join(sorted(set(secret_namespaces))))
    granted += [f"{one.resource} {one.namespace}/{one.name}" for one in single]
    granted += ["and create events"] if events else []
    head = _HEAD.format(what=", ".join(granted) or "nothing", namespace=namespace, account=service_account)
    return head + yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)


def right_to_read(scope: Named) -> str:
    """Return the rule of a Role that allows to read this, on one line: as :func:`manifest` has it."""
    rule = _rule(group_of(scope.resource), [scope.resource.value], [scope.name] if scope.name else [])
    return yaml.safe_dump(rule, sort_keys=False, default_flow_style=True, width=1000).strip()


def _rule(group: str, resources: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": list(resources), **named, "verbs": list(_VERBS)}


def _granted(
    prefix: str, metadata: dict[str, str], resources: Sequence[Resource], subject: dict[str, str]
) -> list[dict[str, Any]]:
    by_group: dict[str, list[str]] = {}
    for resource in resources:
        by_group.setdefault(group_of(resource), []).append(resource.value)
    rules = [_rule(group, names) for group, names in sorted(by_group.items())]
    return _bound(prefix, metadata, rules, subject)


def _granted_by_name(metadata: dict[str, str], named: Sequence[Named], subject: dict[str, str]) -> list[dict[str, Any]]:
    by_resource: dict[Resource, list[str]] = {}
    for each in named:
        by_resource.setdefault(each.resource, []).append(each.name)
    rules = [_rule(group_of(resource), [resource.value], names) for resource, names in sorted(by_resource.items())]
    return _bound("", metadata, rules, subject)


def _bound(
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


def _token(service_account: str, namespace: str) -> dict[str, Any]:
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
