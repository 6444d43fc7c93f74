"""The Service that stands for a Gateway in the cluster, for tools that look for addresses at Services."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.snapshot import Key

GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
"""The label of what is made for a Gateway. Source: the constant ``GatewayNameLabelKey`` of the Gateway API."""

GATEWAY_UID = "pyconfd.io/gateway-uid"
"""The annotation by which pyconfd knows its own Services again."""


class GatewayService(NamedTuple):
    """What a Service for a Gateway says: all ``labels`` and ``annotations``, and a port for each number.

    ``gateway`` and ``uid`` are those of the Gateway, which owns it: Kubernetes deletes it with that.
    """

    gateway: str
    uid: str
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    ports: tuple[int, ...]


GatewayServices = Mapping[Key, GatewayService]

NO_SERVICES: GatewayServices = MappingProxyType({})
