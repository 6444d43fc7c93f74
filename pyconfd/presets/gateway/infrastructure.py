"""The Service of a Gateway: without a selector, with the Gateway's address and the labels of ``spec.infrastructure``.

It is made where the operator asks for it (``cluster_status.gateway_services``), and says where a Gateway is to tools
that know Services only. It leads nowhere: its cluster IP has no endpoints. Labels and annotations that a tenant writes
are copied as they are, since they stand in his own namespace. No preset reads them there:
:mod:`pyconfd.presets.cluster` leaves them out.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping

from pyconfd.model.gateway_api import Gateway
from pyconfd.model.gateway_service import GATEWAY_NAME, GATEWAY_UID, GatewayService
from pyconfd.model.kubernetes import Service
from pyconfd.model.object_status import ObjectStatus
from pyconfd.model.snapshot import Key
from pyconfd.presets.gateway.gateways import GatewayDecision
from pyconfd.presets.gateway.listeners import ListenerDecision
from pyconfd.presets.gateway.status import object_status

_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
"""Source: the API server wants names of Services to be labels of RFC 1035."""
_LONGEST, _DIGEST = 63, 8
_MANAGED_BY = "app.kubernetes.io/managed-by"
_MOST_PORTS = 128


def service_key(gateway: Key, class_name: str) -> Key:
    """Return where the Service of a Gateway stands; its name is NAME-CLASS, as GEP-1762 has it, or has a digest."""
    name = f"{gateway.name}-{class_name}"
    if not _NAME.fullmatch(name):
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
        words = re.sub("[^a-z0-9]+", "-", f"gateway-{name}")[: _LONGEST - _DIGEST - 1].rstrip("-")
        name = f"{words}-{digest}"
    return Key(gateway.namespace, name)


def service_of(gateway: Gateway, listeners: Iterable[ListenerDecision]) -> GatewayService | None:
    """Return what the Service of a Gateway says, None where none of its ``listeners`` is accepted."""
    ports = sorted({each.port for each in listeners if each.is_accepted})[:_MOST_PORTS]
    if not ports:
        return None
    meta, asked = gateway.metadata, gateway.spec.infrastructure
    # A value of a label is shorter than a name may be.
    label = meta.name if len(meta.name) <= _LONGEST else meta.name[:_LONGEST].rstrip("-.")
    labels = {**((asked and asked.labels) or {}), GATEWAY_NAME: label, _MANAGED_BY: "pyconfd"}
    annotations = {**((asked and asked.annotations) or {}), GATEWAY_UID: meta.uid}
    return GatewayService(meta.name, meta.uid, _sorted(labels), _sorted(annotations), tuple(ports))


def service_status(service: Service, gateway: GatewayDecision) -> ObjectStatus:
    """Return the status of the Service: the addresses of its Gateway.

    Nodes keep their hands off addresses with ``ipMode: Proxy``, so that pods reach the Gateway there.
    """
    ingress = [{"ip": address, "ipMode": "Proxy"} for address in gateway.reached_at]
    return object_status(service.metadata, {"loadBalancer": {"ingress": ingress}})


def _sorted(words: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(words.items()))
