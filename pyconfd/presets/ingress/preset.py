"""The preset: from Ingresses to sites, backends, certificates and statuses.

Read in this order: :mod:`pyconfd.presets.ingress.claims` parses one Ingress; the table of
:mod:`pyconfd.presets.routing.table` gives each path to the oldest; :mod:`pyconfd.presets.ingress.backends` and
:mod:`pyconfd.presets.ingress.certificates` join what is behind it; :func:`_after` does all that after a change. Each
step looks at what the steps before it changed, and all that is equal stays the same object.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.ingress.claims import name_of, read_ingress
from pyconfd.presets.ingress.classes import mistaken_class, own_classes
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, Translation
from pyconfd.presets.routing.references import ServiceReference
from pyconfd.presets.routing.table import path_of
from pyconfd.presets.routing.types import RouteBackend

_PATH_FIELD = "spec.rules.http.paths.path"
_BACKEND_FIELD = "spec.rules.http.paths.backend"
_TLS_HOSTS, _TLS_SECRET = "spec.tls.hosts", "spec.tls.secretName"


class IngressPreset(Preset):
    """Reads Ingresses of the classes whose controller is pyconfd's."""

    name = PresetName.INGRESS
    gives = frozenset({"ingress"})
    resources = CLUSTER_VIEW | {Resource.INGRESSES, Resource.INGRESSCLASSES}
    writes_status = frozenset({Resource.INGRESSES})

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each Ingress of pyconfd's classes."""
        snapshot, options = translation.snapshot, translation.options
        classes = own_classes(snapshot.ingressclasses)
        backends: Mapping[str, Any] = translation.given.get("ingress", {}).get("backends", {})
        for key in sorted(snapshot.ingresses):
            ingress = snapshot.ingresses[key]
            if not classes.serve(ingress):
                continue
            claim = read_ingress(ingress, snapshot.cluster, options.claims, options.ignored_annotations)
            # A backend may be there for another Ingress of the namespace only: the one that has the path.
            won: defaultdict[str, set[str]] = defaultdict(set)
            for rule in claim.rules:
                if translation.owners.get(name_of(path_of(rule))) == rule.owner:
                    won[rule.backend].add(rule.site)
            served = ((name, at) for name, at in won.items() if name in backends)
            endpoints: dict[Any, None] = {}
            for reference in claim.references.values():
                endpoints |= dict.fromkeys(translation.endpoints_of(Key(reference.namespace, reference.name)))
            yield Claim(
                translation.ref("Ingress", key),
                self.name,
                f"ingressClassName {ingress.spec.ingress_class_name or '(default)'}",
                tuple(dict.fromkeys(name_of(path_of(rule)).name for rule in claim.rules)),
                tuple(_claimed(claim.references[name], backends[name], at) for name, at in served),
                tuple(endpoints),
            )

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the class."""
        del options
        return (
            "have an IngressClass with the controller pyconfd.io/ingress, and in the Ingress an ingressClassName that"
            " is its name"
        )

    def mistakes(self, record: AnyObject, snapshot: Snapshot) -> Iterator[str]:
        """Return what is wrong with the class of an Ingress."""
        if isinstance(record, Ingress) and (wrong := mistaken_class(record, snapshot.ingressclasses)):
            yield wrong


def _claimed(reference: ServiceReference, backend: RouteBackend, hosts: Iterable[str]) -> ClaimedBackend:
    name = f"{reference.name}:{reference.port}"
    return ClaimedBackend(name, backend.name, backend.name, backend.servers, frozenset(hosts))
