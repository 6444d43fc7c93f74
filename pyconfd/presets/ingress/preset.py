"""Preset ``ingress``: Ingresses. What is served is in :mod:`pyconfd.presets.ingress.serving`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.reservation import Owners
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.ingress.canaries import PathLead
from pyconfd.presets.ingress.claims import IngressClaim, name_of
from pyconfd.presets.ingress.classes import mistaken_class
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions
from pyconfd.presets.routing.references import ServiceReference
from pyconfd.presets.routing.table import VirtualHostPath, path_of
from pyconfd.presets.routing.types import RouteBackend, RouteRule


class IngressPreset(Preset):
    """Reads Ingresses of the classes whose controller is pyconfd's."""

    name = PresetName.INGRESS
    gives = frozenset({"ingress", "canary_choices"})
    resources = CLUSTER_VIEW | {
        Resource.INGRESSES,
        Resource.INGRESSCLASSES,
        Resource.CONFIGMAPS,
        Resource.ROUTEPOLICIES,
    }
    writes_status = frozenset({Resource.INGRESSES, Resource.ROUTEPOLICIES})

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the class."""
        del options
        return (
            "have an IngressClass with the controller pyconfd.io/ingress, and in the Ingress an ingressClassName that"
            " is its name"
        )

    def mistakes(self, record: AnyObject, snapshot: Snapshot, options: PresetOptions) -> Iterator[str]:
        """Return what is wrong with the class of an Ingress."""
        if isinstance(record, Ingress) and (
            wrong := mistaken_class(record, snapshot.ingressclasses, options.nginx_classes)
        ):
            yield wrong


def claims(
    asked: Mapping[Key, IngressClaim],
    owners: Owners,
    backends: Mapping[str, RouteBackend],
    with_canary: Mapping[VirtualHostPath, PathLead],
) -> Iterator[Claim]:
    """Return a claim for each Ingress of pyconfd's classes; ``owners`` are those of paths."""
    for key, claim in asked.items():
        # A backend may be there for another Ingress of the namespace only: the one that has the path.
        won: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        names: dict[str, None] = {}
        for rule in (*claim.rules, *claim.canary_rules):
            path = path_of(rule)
            name, lead = name_of(path), with_canary.get(path)
            names[name.name] = None
            owner = owners.get(name) if not claim.canary_rules else rule.owner if _is_canary(lead, rule) else None
            if owner is not None and owner[:3] == rule.owner[:3] and rule.backend in claim.references:
                for section in lead.sections if lead is not None else (rule.backend,):
                    if section in backends:
                        won[rule.backend, section].add(rule.virtual_host)
        yield Claim(
            ObjectRef("Ingress", *key, claim.ref.cluster),
            PresetName.INGRESS,
            f"ingressClassName {claim.class_name or '(default)'}",
            tuple(names),
            tuple(_claimed(claim.references[of], backends[each], at) for (of, each), at in won.items()),
            services=tuple(Key(each.namespace, each.name) for each in claim.references.values()),
        )


def _is_canary(lead: PathLead | None, rule: RouteRule) -> bool:
    return lead is not None and lead.canary is not None and lead.canary.owner[:3] == rule.owner[:3]


def _claimed(reference: ServiceReference, backend: RouteBackend, hosts: Iterable[str]) -> ClaimedBackend:
    name = f"{reference.name}:{reference.port}"
    return ClaimedBackend(name, backend.name, backend.name, backend.servers, frozenset(hosts))
