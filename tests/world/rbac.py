"""RBAC as the API server judges it: what the roles of a manifest let their subjects do."""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from tests.world.requests import Target

_ANY = "*"


@dataclass(frozen=True, slots=True)
class _Rule:
    """``namespace`` "" is the whole cluster; ``names`` () are all objects."""

    namespace: str
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...]

    def allows(self, target: Target, name: str) -> bool:
        kind = target.resource
        return (
            self.namespace in {"", target.namespace}
            and bool({kind.group, _ANY} & set(self.groups))
            and bool({target.full_resource, _ANY} & set(self.resources))
            and bool({target.verb, _ANY} & set(self.verbs))
            and (not self.names or name in self.names)
        )


class Rules:
    """What is allowed to who is bound in a manifest, the one user of these tests; everything else is not."""

    def __init__(self, manifest: str) -> None:
        documents = [each for each in yaml.safe_load_all(manifest) if each]
        roles = {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["rules"]
            for each in documents
            if each["kind"] in {"Role", "ClusterRole"}
        }
        self._rules = []
        for binding in documents:
            if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
                continue
            namespace = binding["metadata"].get("namespace", "") if binding["kind"] == "RoleBinding" else ""
            ref = binding["roleRef"]
            home = namespace if ref["kind"] == "Role" else ""
            for rule in roles[ref["kind"], home, ref["name"]]:
                names = tuple(rule.get("resourceNames", ()))
                groups, resources, verbs = (tuple(rule[key]) for key in ("apiGroups", "resources", "verbs"))
                self._rules.append(_Rule(namespace, groups, resources, verbs, names))

    def allow(self, target: Target, query: Mapping[str, str]) -> bool:
        """Return whether a request may be made.

        A list or watch of one object by ``fieldSelector`` has that object's name. Source: Kubernetes' documentation of
        RBAC, "Referring to resources".
        """
        selector = query.get("fieldSelector", "")
        name = target.name or (selector.removeprefix("metadata.name=") if "metadata.name=" in selector else "")
        return any(rule.allows(target, name) for rule in self._rules)
