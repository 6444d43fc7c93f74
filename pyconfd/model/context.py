"""What presets give: the names for the templates, and what they refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyconfd.model.kubernetes import ObjectRef


class RefusalReason(StrEnum):
    """Why an object or one of its values was left out; a label of the metric ``pyconfd_refused_objects``."""

    INVALID_VALUE = "invalid_value"
    INCOMPLETE = "incomplete"
    NAME_TAKEN = "name_taken"
    PORT_TAKEN = "port_taken"
    NO_SUCH_PORT = "no_such_port"
    NO_NODE_PORT = "no_node_port"
    NO_SUCH_SERVICE = "no_such_service"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """One object, or one field of it, that was turned away; everything else went on.

    ``value`` is the offending value, shortened and escaped; ``detail`` says in words what is wrong and what to do.
    """

    ref: ObjectRef
    field: str
    value: str
    reason: RefusalReason
    detail: str


@dataclass(frozen=True, slots=True)
class Census:
    """How many ready endpoints there are: behind what the presets were asked to serve, and in the whole cluster."""

    claimed: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """``names`` go to every template as they are; ``refused`` is sorted.

    ``listen_ports`` are those that objects of the cluster are to be given, so none of the operator's.
    """

    names: Mapping[str, Any]
    refused: tuple[Refusal, ...] = ()
    census: Census = Census()
    listen_ports: frozenset[int] = frozenset()
