"""What every preset takes and gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.cluster import Translated
from pyconfd.presets.kube2lb_names import Kube2lbOptions


@dataclass(frozen=True, slots=True)
class PresetOptions:
    """The settings that presets obey.

    ``node_ports``: send traffic to node ports instead of pods. ``node_address_types``: which address of a node, first
    match wins. ``listen_ports``: inclusive ranges that an annotation may ask for. ``reserved_ports``: ports that the
    operator uses: his fragments bind them, or pyconfd's own status page. ``contested_ports``: ports that somebody else
    on this host listens on. ``kube2lb`` is for the preset of that name.
    """

    node_ports: bool = False
    node_address_types: tuple[str, ...] = ("InternalIP",)
    listen_ports: tuple[tuple[int, int], ...] = ((1024, 32767),)
    reserved_ports: frozenset[int] = frozenset()
    kube2lb: Kube2lbOptions = field(default_factory=Kube2lbOptions)
    contested_ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reading:
    """The names for templates, what was refused, and the number of ready endpoints behind what was claimed.

    ``listen_ports`` are those that objects of the cluster are to be given.
    """

    names: Mapping[str, Any]
    refused: tuple[Refusal, ...]
    claimed: int
    listen_ports: frozenset[int] = frozenset()


class Preset(Protocol):
    """Reads one predecessor's annotations from a Snapshot; pure, never raises."""

    def __call__(self, snapshot: Snapshot, cluster: Translated, options: PresetOptions) -> Reading:
        """Give the reading."""
        ...
