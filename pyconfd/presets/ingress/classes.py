"""Which Ingresses are pyconfd's: by their class, by the annotation of former times, or as the default class."""

from collections.abc import Mapping
from typing import NamedTuple

from pyconfd.model.ingress import Ingress, IngressClass
from pyconfd.model.snapshot import Key

CONTROLLER = "pyconfd.io/ingress"
"""``spec.controller`` of the IngressClasses that pyconfd serves."""
IS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
FORMER_CLASS = "kubernetes.io/ingress.class"
"""Source: the reference of Ingress in networking.k8s.io/v1, ``ingressClassName``."""


class OwnClasses(NamedTuple):
    """The names of pyconfd's classes; ``is_default``: an Ingress without a class is for one of them."""

    names: frozenset[str]
    is_default: bool

    def serve(self, ingress: Ingress) -> bool:
        """Return whether an Ingress is for pyconfd."""
        name = ingress.spec.ingress_class_name
        if name is None:
            name = (ingress.metadata.annotations or {}).get(FORMER_CLASS)
        return self.is_default if name is None else name in self.names


def own_classes(classes: Mapping[Key, IngressClass]) -> OwnClasses:
    """Return pyconfd's classes."""
    own = [each for each in classes.values() if each.spec.controller == CONTROLLER]
    is_default = any((each.metadata.annotations or {}).get(IS_DEFAULT) == "true" for each in own)
    return OwnClasses(frozenset(each.metadata.name for each in own), is_default)
