"""ReferenceGrants: which objects may refer to which in another namespace."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyconfd.model.gateway_api import GROUP, ReferenceGrant
from pyconfd.model.snapshot import Key


class Referrer(NamedTuple):
    """Objects of one kind of the Gateway API in one namespace."""

    kind: str
    namespace: str


class ReferenceTarget(NamedTuple):
    """An object that is referred to."""

    kind: str
    namespace: str
    name: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """All ReferenceGrants by their namespace, which is that of what is referred to."""

    by_namespace: Mapping[str, tuple[ReferenceGrant, ...]] = field(default_factory=dict)

    def permits(self, referrer: Referrer, target: ReferenceTarget) -> bool:
        """Return whether a reference is allowed; within one namespace every one is."""
        if referrer.namespace == target.namespace:
            return True
        return any(_permits(grant, referrer, target) for grant in self.by_namespace.get(target.namespace, ()))


def grants_of(objects: Mapping[Key, ReferenceGrant]) -> Grants:
    """Return the grants of a Snapshot."""
    found: defaultdict[str, list[ReferenceGrant]] = defaultdict(list)
    for key in sorted(objects):
        found[key.namespace].append(objects[key])
    return Grants({namespace: tuple(grants) for namespace, grants in found.items()})


def _permits(grant: ReferenceGrant, referrer: Referrer, target: ReferenceTarget) -> bool:
    return _any_from(grant, referrer) and any(
        (to.group, to.kind) == (target.group, target.kind) and to.name in {None, "", target.name}
        for to in grant.spec.to
    )


def _any_from(grant: ReferenceGrant, referrer: Referrer) -> bool:
    sources: Iterable[tuple[str, str, str]] = ((each.group, each.kind, each.namespace) for each in grant.spec.sources)
    return (GROUP, referrer.kind, referrer.namespace) in sources
