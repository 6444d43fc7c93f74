"""Bodies of ``status`` of the Gateway API's objects, and the faults that both conditions and refusals are made of."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.gateway_api import GROUP, ParentReference
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectStatus
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.addresses import GATEWAY_CONTROLLER

CONTROLLER = GATEWAY_CONTROLLER
"""Also the controllerName of our entries in lists of status."""

_REFUSAL_REASONS: Mapping[str, RefusalReason] = MappingProxyType(
    {
        "AddressNotAssigned": RefusalReason.NO_SUCH_ADDRESS,
        "AddressNotUsable": RefusalReason.NO_SUCH_ADDRESS,
        "BackendNotFound": RefusalReason.NO_SUCH_SERVICE,
        "Conflicted": RefusalReason.NAME_TAKEN,
        "HostnameConflict": RefusalReason.NAME_TAKEN,
        "InvalidCACertificateKind": RefusalReason.NO_CERTIFICATE,
        "InvalidCACertificateRef": RefusalReason.NO_CERTIFICATE,
        "InvalidCertificateRef": RefusalReason.NO_CERTIFICATE,
        "InvalidClientCertificateRef": RefusalReason.NO_CERTIFICATE,
        "NoValidCACertificate": RefusalReason.NO_CERTIFICATE,
        "NotAllowed": RefusalReason.NOT_ALLOWED,
        "NotAllowedByListeners": RefusalReason.NOT_ALLOWED,
        "PortUnavailable": RefusalReason.PORT_TAKEN,
        "ProtocolConflict": RefusalReason.PORT_TAKEN,
        "RefNotPermitted": RefusalReason.FORBIDDEN,
        "TargetNotFound": RefusalReason.NO_SUCH_SERVICE,
    }
)
"""All other reasons of conditions are about a value."""


class Fault(NamedTuple):
    """Why a condition of an object is not met. ``reason`` is the specification's, ``detail`` says what to do.

    ``kind`` is our own reason, where it says more than that of the specification.
    """

    reason: str
    field: str
    value: str
    detail: str
    kind: RefusalReason | None = None

    def refusal(self, ref: ObjectRef) -> Refusal:
        """Return the refusal of the object."""
        kind = self.kind or _REFUSAL_REASONS.get(self.reason, RefusalReason.INVALID_VALUE)
        return Refusal(ref, self.field, values.shortened(self.value), kind, self.detail)

    @property
    def message(self) -> str:
        """What the condition says."""
        what = " ".join(filter(None, (self.field, values.shortened(self.value))))
        return f"{what}: {self.detail}" if what else self.detail


def name_fault(key: Key) -> Fault | None:
    """Return why no section or file can be called by the names of an object, which files may hold unchecked."""
    if values.is_object_name(key.namespace) and values.is_object_name(key.name):
        return None
    detail = "not a name that Kubernetes would accept, or a word that means something else in a condition of HAProxy"
    return Fault("UnsupportedValue", "metadata.name", f"{key.namespace}/{key.name}", detail)


class StatusCondition(NamedTuple):
    """One condition as it stands in a status, without what the object's generation and the time add."""

    type: str
    status: str
    reason: str
    message: str = ""

    def body(self, generation: int) -> dict[str, Any]:
        """Return what the API has."""
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": generation,
        }


def met(kind: str, reason: str = "") -> StatusCondition:
    """Return a condition that is true; its reason is its type where nothing else is said."""
    return StatusCondition(kind, "True", reason or kind)


def unmet(kind: str, fault: Fault) -> StatusCondition:
    """Return a condition that is false."""
    return StatusCondition(kind, "False", fault.reason, fault.message)


def of_faults(kind: str, faults: Sequence[Fault]) -> StatusCondition:
    """Return a condition that is true unless there is a fault; the first one gives the reason."""
    return unmet(kind, faults[0]) if faults else met(kind)


def conditions(found: Iterable[StatusCondition], generation: int) -> list[dict[str, Any]]:
    """Return conditions as the API has them."""
    return [each.body(generation) for each in found]


def object_status(meta: ObjectMeta, body: Mapping[str, Any], controller: str = "") -> ObjectStatus:
    """Return what the status of an object shall say; ``controller`` is for those with entries of several."""
    return ObjectStatus(meta.uid, meta.generation, body, controller)


def parent_reference(parent: ParentReference) -> dict[str, Any]:
    """Return a reference as its object has it, with the defaults of the API."""
    body: dict[str, Any] = {"group": parent.group, "kind": parent.kind, "name": parent.name}
    if parent.namespace is not None:
        body["namespace"] = parent.namespace
    if parent.section_name is not None:
        body["sectionName"] = parent.section_name
    if parent.port is not None:
        body["port"] = parent.port
    return body


def parent_status(parent: ParentReference, found: Iterable[StatusCondition], generation: int) -> dict[str, Any]:
    """Return the entry of one parent of a route."""
    return {
        "parentRef": parent_reference(parent),
        "controllerName": CONTROLLER,
        "conditions": conditions(found, generation),
    }


def ancestor_status(namespace: str, name: str, found: Iterable[StatusCondition], generation: int) -> dict[str, Any]:
    """Return the entry of one Gateway in the status of a policy."""
    return {
        "ancestorRef": {"group": GROUP, "kind": "Gateway", "namespace": namespace, "name": name},
        "controllerName": CONTROLLER,
        "conditions": conditions(found, generation),
    }
