"""ReferenceGrants: which objects may refer to which in another namespace."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pyconfd.derived import Resolver
from pyconfd.model.gateway_api import GROUP, ReferenceGrant


class Referrer(NamedTuple):
    """Objects of one kind, mostly of the Gateway API, in one namespace."""

    kind: str
    namespace: str
    group: str = GROUP


class ReferenceTarget(NamedTuple):
    """An object that is referred to."""

    kind: str
    namespace: str
    name: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """All ReferenceGrants by their namespace, which is that of what is referred to; each with its key."""

    by_namespace: Resolver[str, tuple[tuple[object, ReferenceGrant], ...]] = field(default_factory=dict)

    def permits(self, referrer: Referrer, target: ReferenceTarget) -> bool:
        """Return whether a reference is allowed; within one namespace every one is."""
        if referrer.namespace == target.namespace:
            return True
        return any(_permits(grant, referrer, target) for _, grant in self.by_namespace.get(target.namespace) or ())


def _permits(grant: ReferenceGrant, referrer: Referrer, target: ReferenceTarget) -> bool:
    return _any_from(grant, referrer) and any(
        (to.group, to.kind) == (target.group, target.kind) and to.name in {None, "", target.name}
        for to in grant.spec.to
    )


def _any_from(grant: ReferenceGrant, referrer: Referrer) -> bool:
    return any(
        (each.group, each.kind, each.namespace) == (referrer.group, referrer.kind, referrer.namespace)
        for each in grant.spec.sources
    )
