"""What ``status`` of an object of the cluster shall say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyconfd.model.snapshot import Key, Resource


class ObjectKey(NamedTuple):
    """Names the object whose status is meant."""

    resource: Resource
    key: Key


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """What pyconfd is responsible for in one object's status, as it is once HAProxy serves what is asked for.

    ``uid`` and ``generation`` are those of the object that was read: the status of another one is never written.
    ``body`` is what stands under ``status``, without ``lastTransitionTime``. ``controller`` is the controllerName of
    entries of ``parents`` and ``ancestors``: those of others are kept. ``may_wait``: addresses that it has are kept for
    a while, since nothing but servers is missing.
    """

    uid: str
    generation: int
    body: Mapping[str, Any]
    controller: str = ""
    may_wait: bool = False


Statuses = Mapping[ObjectKey, ObjectStatus]
