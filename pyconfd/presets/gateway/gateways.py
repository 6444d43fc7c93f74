"""GatewayClasses and Gateways: which are served, at which addresses, and what their status says."""

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyconfd.model.gateway_api import GROUP, Gateway, GatewayClass
from pyconfd.model.object_status import ObjectStatus
from pyconfd.model.reservation import Owner
from pyconfd.model.snapshot import HostFacts, Key, Snapshot
from pyconfd.presets import values
from pyconfd.presets.addresses import AddressProblem, Assigned, absent
from pyconfd.presets.gateway import features
from pyconfd.presets.gateway.grants import ReferenceTarget, Referrer
from pyconfd.presets.gateway.listeners import ListenerDecision, Referents, ResolvedCertificate, owner_of
from pyconfd.presets.gateway.status import (
    CONTROLLER,
    Fault,
    StatusCondition,
    conditions,
    name_fault,
    object_status,
    of_faults,
    unmet,
)


class GatewayDecision(NamedTuple):
    """One Gateway. ``addresses`` are where it listens, () where it serves nothing; ``absent`` are not on this machine.

    ``listeners`` are its own, without those of ListenerSets; ``faults`` are all, those of ``listeners`` included.
    ``client_certificate`` is presented to backends, None for nothing.
    """

    key: Key
    uid: str
    generation: int
    owner: Owner
    addresses: tuple[str, ...]
    absent: frozenset[str]
    listeners: tuple[ListenerDecision, ...]
    client_certificate: ResolvedCertificate | None
    faults: tuple[Fault, ...]
    conditions: tuple[StatusCondition, ...]

    @property
    def reached_at(self) -> tuple[str, ...]:
        """The addresses at which connections get here."""
        return tuple(each for each in self.addresses if each not in self.absent)

    @property
    def is_accepted(self) -> bool:
        """Whether its class and its listeners let it serve anything."""
        return self.conditions[0].status == "True"


def is_mine(gateway_class: GatewayClass | None) -> bool:
    """Return whether a class is for this controller."""
    return gateway_class is not None and gateway_class.spec.controller_name == CONTROLLER


def mistaken_class(gateway: Gateway, classes: Mapping[Key, GatewayClass]) -> str:
    """Return why the class of a Gateway is not pyconfd's, and what it may have to be; "" where it is."""
    name = gateway.spec.gateway_class_name
    found = classes.get(Key("", name))
    own = sorted(each.metadata.name for each in classes.values() if is_mine(each))
    if is_mine(found):
        return ""
    if not own:
        return f"no GatewayClass has the controllerName {CONTROLLER}: create one"
    meant = (difflib.get_close_matches(name, own, n=1, cutoff=0.6) or own)[0]
    if found is None:
        return f"there is no GatewayClass {values.shortened(name)}: did you mean gatewayClassName: {meant}?"
    controller = values.shortened(found.spec.controller_name)
    return f"its GatewayClass {values.shortened(name)} is that of {controller}: set gatewayClassName: {meant}"


def is_misspelled(gateway: Gateway, classes: Mapping[Key, GatewayClass]) -> bool:
    """Return whether a Gateway names a class that is not there, and resembles one of pyconfd's."""
    name = gateway.spec.gateway_class_name
    if Key("", name) in classes:
        return False
    own = [each.metadata.name for each in classes.values() if is_mine(each)]
    return bool(difflib.get_close_matches(name.lower(), own, n=1, cutoff=0.75))


def mistaken_gateway(parent: Key, snapshot: Snapshot) -> str:
    """Return why the Gateway that is named is not there or not pyconfd's, and which one may be meant."""
    shown = values.shortened(f"{parent.namespace}/{parent.name}")
    found = snapshot.gateways.get(parent)
    if found is not None:
        wrong = mistaken_class(found, snapshot.gatewayclasses)
        return f"Gateway {shown} is not pyconfd's: {wrong}" if wrong else ""
    classes = snapshot.gatewayclasses
    mine = {
        f"{key.namespace}/{key.name}"
        for key, each in snapshot.gateways.items()
        if is_mine(classes.get(Key("", each.spec.gateway_class_name)))
    }
    same_name = sorted(each for each in mine if each.endswith(f"/{parent.name}"))
    close = same_name or difflib.get_close_matches(f"{parent.namespace}/{parent.name}", sorted(mine), n=1, cutoff=0.6)
    hint = f": did you mean {close[0]}?" if close else ""
    return f"there is no Gateway {shown}{hint}"


def class_fault(gateway_class: GatewayClass) -> Fault | None:
    """Return why a class cannot be accepted."""
    parameters = gateway_class.spec.parameters_ref
    if parameters is None:
        return None
    detail = "parameters of no kind are supported: remove the field"
    return Fault("InvalidParameters", "spec.parametersRef", f"{parameters.kind} {parameters.name}", detail)


def class_status(gateway_class: GatewayClass, *, services: bool = False) -> ObjectStatus:
    """Return the status of a class; ``services``: its Gateways have Services."""
    fault, meta = class_fault(gateway_class), gateway_class.metadata
    accepted = of_faults("Accepted", (fault,) if fault is not None else ())
    return object_status(
        meta,
        {
            "conditions": conditions((accepted,), meta.generation),
            "supportedFeatures": [{"name": name} for name in features.supported(services=services)],
        },
    )


def decide_gateway(
    gateway: Gateway,
    together: tuple[ListenerDecision, ...],
    assigned: Assigned,
    lookup: Referents,
    host: HostFacts,
) -> GatewayDecision:
    """Return what becomes of a Gateway whose class is accepted; ``together`` are its listeners and those of its sets.

    An address that is not on this machine is bound for the time when it comes, and not in the status.
    """
    meta = gateway.metadata
    listeners = tuple(each for each in together if not each.is_added)
    rejected = _rejections(gateway)
    invalid = [each for each in listeners if not each.is_accepted]
    client_certificate, unresolved = _client_certificate(gateway, lookup)
    if any(not each.refs_resolved for each in listeners):
        names = ", ".join(each.name for each in listeners if not each.refs_resolved)
        detail = "references of these listeners are not resolved: see the conditions of each"
        unresolved = (*unresolved, Fault("ListenersNotResolved", "listeners", names, detail))
    names = ", ".join(each.name for each in invalid)
    not_valid = Fault("ListenersNotValid", "listeners", names, "these are not accepted: see the conditions of each")
    if not rejected and len(invalid) == len(listeners):
        rejected = (not_valid,)
    missing = {each: why for each in assigned.addresses if (why := absent(each, host))}
    addressing = (
        *map(_address_fault, assigned.problems),
        *(Fault("AddressNotUsable", "status.addresses", each, why) for each, why in missing.items()),
    )
    programmed = _not_programmed(rejected, addressing, assigned, together)
    found = [
        StatusCondition("Accepted", "True", not_valid.reason, not_valid.message)
        if invalid and not rejected
        else of_faults("Accepted", rejected),
        of_faults("Programmed", programmed),
        of_faults("ResolvedRefs", unresolved),
    ]
    if _is_insecure(gateway):
        message = "clients without a valid certificate are let in"
        found.append(StatusCondition("InsecureFrontendValidationMode", "True", "ConfigurationChanged", message))
    summaries = {"ListenersNotValid", "ListenersNotResolved", "Invalid"}
    faults = (
        *(each for each in (*rejected, *programmed, *unresolved) if each.reason not in summaries),
        *(fault for each in listeners for fault in each.faults),
    )
    served = assigned.addresses if not rejected else ()
    return GatewayDecision(
        Key(meta.namespace, meta.name),
        meta.uid,
        meta.generation,
        owner_of(gateway),
        served,
        frozenset(missing),
        listeners,
        client_certificate,
        faults,
        tuple(found),
    )


def _rejections(gateway: Gateway) -> tuple[Fault, ...]:
    wrong = name_fault(Key(gateway.metadata.namespace, gateway.metadata.name))
    found = [wrong] if wrong is not None else []
    parameters = gateway.spec.infrastructure.parameters_ref if gateway.spec.infrastructure is not None else None
    if parameters is not None:
        detail = "parameters of no kind are supported: remove the field"
        value = f"{parameters.kind} {parameters.name}"
        found.append(Fault("InvalidParameters", "spec.infrastructure.parametersRef", value, detail))
    for address in gateway.spec.addresses or ():
        if address.type != "IPAddress":
            detail = "supported are addresses of type IPAddress"
            found.append(Fault("UnsupportedAddress", "spec.addresses", f"{address.type} {address.value}", detail))
    return tuple(found)


def _address_fault(problem: AddressProblem) -> Fault:
    reason = "AddressNotUsable" if problem.reason.is_about_one_address else "AddressNotAssigned"
    return Fault(reason, "spec.addresses", problem.wanted, problem.detail)


def _not_programmed(
    rejected: tuple[Fault, ...],
    addressing: tuple[Fault, ...],
    assigned: Assigned,
    listeners: tuple[ListenerDecision, ...],
) -> tuple[Fault, ...]:
    if rejected:
        return (rejected[0]._replace(reason="Invalid"),)
    if addressing:
        return addressing
    if not assigned.addresses:
        return (Fault("AddressNotAssigned", "spec.addresses", "", "it has no address yet"),)
    if not any(each.is_programmed for each in listeners):
        return (Fault("Invalid", "listeners", "", "none of them can serve: see the conditions of each"),)
    return ()


def _client_certificate(gateway: Gateway, lookup: Referents) -> tuple[ResolvedCertificate | None, tuple[Fault, ...]]:
    """Return the client certificate for backends, and why it is not the one that is named."""
    backend = gateway.spec.tls.backend if gateway.spec.tls is not None else None
    reference = backend.client_certificate_ref if backend is not None else None
    if reference is None:
        return None, ()
    field, namespace = "spec.tls.backend.clientCertificateRef", gateway.metadata.namespace
    key = Key(reference.namespace or namespace, reference.name)
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = ".".join(filter(None, (reference.kind, reference.group)))
        return None, (Fault("InvalidClientCertificateRef", field, kind, "certificates are in Secrets: name a Secret"),)
    if not lookup.grants.permits(Referrer("Gateway", namespace), ReferenceTarget("Secret", key.namespace, key.name)):
        detail = f"no ReferenceGrant of namespace {key.namespace} allows Gateways of {namespace} to use it"
        return None, (Fault("RefNotPermitted", field, f"{key.namespace}/{key.name}", detail),)
    found = lookup.secret(key)
    faults: tuple[Fault, ...] = ()
    if found.fault:
        faults = (Fault("InvalidClientCertificateRef", field, f"{key.namespace}/{key.name}", found.fault),)
    return found if found.pem else None, faults


def _is_insecure(gateway: Gateway) -> bool:
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    if frontend is None:
        return False
    found = (frontend.default, *(each.tls for each in frontend.per_port or ()))
    return any(each.validation is not None and each.validation.mode == "AllowInsecureFallback" for each in found)


def gateway_status(gateway: GatewayDecision, attached: Mapping[str, int], listener_sets: int = 0) -> ObjectStatus:
    """Return the status of a Gateway; ``attached`` are the numbers of routes by listener, by what tells these apart."""
    generation = gateway.generation
    body: dict[str, Any] = {
        "conditions": conditions(gateway.conditions, generation),
        "listeners": [listener_status(each, gateway, attached, generation) for each in gateway.listeners],
        "attachedListenerSets": listener_sets,
    }
    if gateway.reached_at:
        body["addresses"] = [{"type": "IPAddress", "value": address} for address in gateway.reached_at]
    return ObjectStatus(gateway.uid, generation, body)


def listener_status(
    listener: ListenerDecision, gateway: GatewayDecision | None, attached: Mapping[str, int], generation: int
) -> dict[str, Any]:
    """Return the entry of a listener in the status of its Gateway or ListenerSet."""
    return {
        "name": listener.name,
        "supportedKinds": [{"group": GROUP, "kind": kind} for kind in listener.kinds],
        "attachedRoutes": attached.get(listener.id, 0),
        "conditions": conditions(_of_listener(listener, gateway), generation),
    }


def _of_listener(listener: ListenerDecision, gateway: GatewayDecision | None) -> list[StatusCondition]:
    """Return the conditions of a listener, which is not programmed where its Gateway has no address here."""
    if (gateway is not None and gateway.reached_at) or not listener.is_programmed:
        return list(listener.conditions)
    fault = Fault("Pending", "", "", "the Gateway has no address: see its conditions")
    return [unmet("Programmed", fault) if each.type == "Programmed" else each for each in listener.conditions]
