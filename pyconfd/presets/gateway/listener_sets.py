"""ListenerSets: which Gateway each adds its listeners to, whether it may, and what its status says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pyconfd.model.gateway_api import GROUP, Gateway, GatewayListener, ListenerSet
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectStatus
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import values
from pyconfd.presets.gateway.attachment import Labels, is_from
from pyconfd.presets.gateway.gateways import GatewayDecision, listener_status, mistaken_gateway
from pyconfd.presets.gateway.listeners import TOO_MANY, AddedListeners, ListenerDecision
from pyconfd.presets.gateway.status import Fault, StatusCondition, conditions, met, name_fault, unmet


class AskedListenerSet(NamedTuple):
    """A ListenerSet of one of our Gateways by itself; with a ``fault`` it adds nothing."""

    ref: ObjectRef
    owner: Owner
    uid: str
    generation: int
    gateway: Key
    listeners: tuple[GatewayListener, ...]
    fault: Fault | None = None

    @property
    def added(self) -> AddedListeners:
        """What it adds to its Gateway."""
        return AddedListeners(self.owner, self.listeners)


class ListenerSetDecision(NamedTuple):
    """One ListenerSet. ``faults`` are all, those of its listeners included."""

    asked: AskedListenerSet
    listeners: tuple[ListenerDecision, ...]
    faults: tuple[Fault, ...]
    conditions: tuple[StatusCondition, ...]

    @property
    def is_accepted(self) -> bool:
        """Whether it counts as attached to its Gateway."""
        return self.conditions[0].status == "True"


def parent_of(key: Key, listener_set: ListenerSet) -> Key | None:
    """Return the Gateway that a ListenerSet names, None where it names another kind."""
    parent = listener_set.spec.parent_ref
    if (parent.group, parent.kind) != (GROUP, "Gateway"):
        return None
    return Key(parent.namespace or key.namespace, parent.name)


def mistaken_listener_set(listener_set: ListenerSet, snapshot: Snapshot) -> str:
    """Return why the Gateway that a ListenerSet names is not there or not pyconfd's, and which one may be meant."""
    meta, parent = listener_set.metadata, listener_set.spec.parent_ref
    named = parent_of(Key(meta.namespace, meta.name), listener_set)
    if named is not None:
        return mistaken_gateway(named, snapshot)
    kind = values.shortened(f"{parent.kind}.{parent.group}")
    shown = values.shortened(f"{meta.namespace}/{meta.name}")
    return f"ListenerSet {shown} names a {kind}: its parentRef has to be a Gateway"


def asked_listener_set(
    key: Key, listener_set: ListenerSet, gateway: Gateway, labels_of: Callable[[str], Labels], cluster: str
) -> AskedListenerSet:
    """Return what a ListenerSet asks of the Gateway that it names, which is ours."""
    meta, owner = listener_set.metadata, gateway.metadata
    fault = name_fault(key)
    if fault is None and not is_from(
        gateway.spec.allowed_listeners.namespaces, owner.namespace, key.namespace, labels_of
    ):
        detail = (
            f"the Gateway {owner.namespace}/{owner.name} takes no ListenerSets of namespace {key.namespace}: its owner"
            " has to allow them (spec.allowedListeners)"
        )
        fault = Fault("NotAllowed", "spec.parentRef", owner.name, detail)
    return AskedListenerSet(
        ObjectRef("ListenerSet", key.namespace, key.name, cluster),
        Owner("ListenerSet", key.namespace, key.name, meta.creation_timestamp or NEVER),
        meta.uid,
        meta.generation,
        Key(owner.namespace, owner.name),
        listener_set.spec.listeners,
        fault,
    )


def decide_listener_set(
    asked: AskedListenerSet, gateway: GatewayDecision | None, listeners: Sequence[ListenerDecision]
) -> ListenerSetDecision:
    """Return what becomes of a ListenerSet; ``listeners`` are those of the Gateway and of all its ListenerSets."""
    fault, mine = asked.fault, tuple(each for each in listeners if each.owner == asked.owner)
    if fault is None and (gateway is None or not gateway.is_accepted):
        detail = "the Gateway is not accepted: see its conditions"
        fault = Fault("ParentNotAccepted", "spec.parentRef", asked.gateway.name, detail)
    if fault is None and not mine:
        fault = Fault("ListenersNotValid", "spec.listeners", "", TOO_MANY)
    of_listeners = tuple(fault for each in mine for fault in each.faults)
    if fault is None and not any(each.is_programmed for each in mine):
        detail = "none of them can serve: see the conditions of each"
        summary = Fault("ListenersNotValid", "listeners", "", detail)
        return _decision(asked, mine, of_listeners, unmet("Accepted", summary), unmet("Programmed", summary))
    if fault is not None:
        return _decision(asked, mine, (fault, *of_listeners), unmet("Accepted", fault), unmet("Programmed", fault))
    accepted, programmed = met("Accepted"), met("Programmed")
    if any(not each.is_programmed for each in mine):
        names = ", ".join(each.name for each in mine if not each.is_programmed)
        wrong = Fault("ListenersNotValid", "listeners", names, "these cannot serve: see the conditions of each")
        accepted = StatusCondition("Accepted", "True", wrong.reason, wrong.message)
    if gateway is not None and not gateway.reached_at:
        detail = "the Gateway has no address: see its conditions"
        programmed = unmet("Programmed", Fault("ParentNotProgrammed", "spec.parentRef", asked.gateway.name, detail))
    return _decision(asked, mine, of_listeners, accepted, programmed)


def _decision(
    asked: AskedListenerSet,
    listeners: tuple[ListenerDecision, ...],
    faults: tuple[Fault, ...],
    *found: StatusCondition,
) -> ListenerSetDecision:
    return ListenerSetDecision(asked, listeners, faults, found)


def listener_set_status(
    decided: ListenerSetDecision, gateway: GatewayDecision | None, attached: Mapping[str, int]
) -> ObjectStatus:
    """Return the status of a ListenerSet; ``attached`` are the numbers of routes by listener."""
    asked = decided.asked
    body: dict[str, Any] = {
        "conditions": conditions(decided.conditions, asked.generation),
        "listeners": [listener_status(each, gateway, attached, asked.generation) for each in decided.listeners],
    }
    return ObjectStatus(asked.uid, asked.generation, body)
