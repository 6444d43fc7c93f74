"""Which Ingresses are pyconfd's: by their class, by the annotation of former times, or as the default class."""

import difflib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyconfd.model.ingress import Ingress, IngressClass
from pyconfd.model.snapshot import Key
from pyconfd.presets import values

CONTROLLER = "pyconfd.io/ingress"
"""``spec.controller`` of the IngressClasses that pyconfd serves."""
IS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
FORMER_CLASS = "kubernetes.io/ingress.class"
"""Source: the reference of Ingress in networking.k8s.io/v1, ``ingressClassName``."""


class OwnClasses(NamedTuple):
    """The names of pyconfd's classes; ``is_default``: an Ingress without a class is for one of them.

    ``nginx`` are those of them whose Ingresses mean what ingress-nginx makes of them.
    """

    names: frozenset[str]
    is_default: bool
    nginx: frozenset[str] = frozenset()

    def serve(self, ingress: Ingress) -> bool:
        """Return whether an Ingress is for pyconfd."""
        name = class_of(ingress)
        return self.is_default if name is None else name in self.names

    def are_nginx(self, ingress: Ingress) -> bool:
        """Return whether an Ingress means what ingress-nginx makes of it."""
        return class_of(ingress) in self.nginx


def class_of(ingress: Ingress) -> str | None:
    """Return the class that an Ingress names; None where it names none."""
    name = ingress.spec.ingress_class_name
    return (ingress.metadata.annotations or {}).get(FORMER_CLASS) if name is None else name


def mistaken_class(ingress: Ingress, classes: Mapping[Key, IngressClass], nginx: Sequence[str]) -> str:
    """Return why the class of an Ingress is not pyconfd's, and what it may have to be; "" where it is.

    ``nginx`` are as for :func:`own_classes`.
    """
    own = own_classes(classes, nginx)
    if own.serve(ingress):
        return ""
    name = class_of(ingress)
    if not own.names:
        return f"no IngressClass has the controller {CONTROLLER}: create one"
    meant = (difflib.get_close_matches(name or "", sorted(own.names), n=1, cutoff=0.6) or sorted(own.names))[0]
    if name is None:
        return f"it has no ingressClassName: set ingressClassName: {meant}"
    found = classes.get(Key("", name))
    if found is None:
        return f"there is no IngressClass {values.shortened(name)}: did you mean ingressClassName: {meant}?"
    controller = values.shortened(found.spec.controller)
    return f"its IngressClass {values.shortened(name)} is that of {controller}: set ingressClassName: {meant}"


def is_misspelled(ingress: Ingress, classes: Mapping[Key, IngressClass], own: OwnClasses) -> bool:
    """Return whether an Ingress names a class that is not there, and resembles one of pyconfd's."""
    name = class_of(ingress)
    if name is None or name in own.names or Key("", name) in classes:
        return False
    return bool(difflib.get_close_matches(name.lower(), own.names, n=1, cutoff=0.75))


def own_classes(classes: Mapping[Key, IngressClass], nginx: Sequence[str] = ()) -> OwnClasses:
    """Return pyconfd's classes; those of ``nginx`` are among them, whatever their controller is, or without one."""
    own = [each for each in classes.values() if each.spec.controller == CONTROLLER]
    is_default = any((each.metadata.annotations or {}).get(IS_DEFAULT) == "true" for each in own)
    return OwnClasses(frozenset([*(each.metadata.name for each in own), *nginx]), is_default, frozenset(nginx))
