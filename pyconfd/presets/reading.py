"""What every preset takes and gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from pyconfd.model.context import ClusterTemplate, Refusal
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import OutputFile
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.cluster import Translated


@dataclass(frozen=True, slots=True)
class ConfigmapOptions:
    """The settings of the preset ``configmap``: which objects of ``namespace`` it reads, and what templates may know.

    ``ssldir`` is the absolute directory of the certificates, ``stats_password`` is "" if there is none, ``env`` holds
    the variables that the operator listed, ``ignored_fields`` are left out of services at any depth.
    """

    namespace: str = "lb"
    services: str = "services"
    certificates: str = "certificates"
    keys: str = "keys"
    config: str = "config"
    template_key: str = "template"
    ssldir: str = "/etc/haproxy/generated/files/certs"
    stats_password: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    ignored_fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HostsOptions:
    """The settings of the preset ``hosts``.

    A pod is a target if its annotation names ``master``, or if it has the labels of ``selector`` (where that is not
    empty). ``config`` names the Pod, Deployment or Service with the annotations of the balancer; ``own_app`` is the
    label ``app`` of the balancers themselves, "" for that of ``config``.
    """

    master: str = ""
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    config: ObjectRef | None = None
    own_app: str = ""


@dataclass(frozen=True, slots=True)
class PresetOptions:
    """The settings that presets obey.

    ``node_ports``: send traffic to node ports instead of pods. ``node_address_types``: which address of a node, first
    match wins. ``listen_ports``: inclusive ranges that an annotation may ask for. ``reserved_ports``: ports that the
    fragments bind by themselves.
    """

    node_ports: bool = False
    node_address_types: tuple[str, ...] = ("InternalIP",)
    listen_ports: tuple[tuple[int, int], ...] = ((1024, 32767),)
    reserved_ports: frozenset[int] = frozenset()
    configmap: ConfigmapOptions = ConfigmapOptions()
    hosts: HostsOptions = HostsOptions()


@dataclass(frozen=True, slots=True)
class Reading:
    """The names for templates, what was refused, and the number of ready endpoints behind what was claimed.

    ``templates`` came from the cluster, ``files`` go beside the configuration, ``dns_names`` should point here.
    """

    names: Mapping[str, Any]
    refused: tuple[Refusal, ...]
    claimed: int
    templates: tuple[ClusterTemplate, ...] = ()
    files: tuple[OutputFile, ...] = ()
    dns_names: tuple[str, ...] = ()


class Preset(Protocol):
    """Reads one predecessor's annotations from a Snapshot; pure, never raises."""

    def __call__(self, snapshot: Snapshot, cluster: Translated, options: PresetOptions) -> Reading:
        """Give the reading."""
        ...
