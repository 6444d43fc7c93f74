"""What became of RoutePolicies: their statuses, and what of them is refused.

Each target is an ancestor in the status, also one that is missing or that no policy is for.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyconfd.derived import Derived, Grouped, Joined, Read
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.route_policy import POLICY_KIND
from pyconfd.model.snapshot import KIND_OF, Resource
from pyconfd.presets import values
from pyconfd.presets.addresses import GATEWAY_CONTROLLER
from pyconfd.presets.objects import Objects
from pyconfd.presets.policies.attached import (
    GROUP_OF,
    MOST_POLICIES,
    MOST_TARGETS,
    TARGETS,
    ReadPolicy,
    TargetReference,
    field_of,
)
from pyconfd.presets.policies.said import OverriddenWord, PolicyTarget, asked_of
from pyconfd.presets.policies.words import KINDS, WORDS
from pyconfd.presets.preset import PolicyUse

_MOST_NAMED = 4
_LONGEST_MESSAGE = 1_024
_REASONS = {"TargetNotFound": RefusalReason.INVALID_VALUE, "Conflicted": RefusalReason.NAME_TAKEN}


class PolicyFault(NamedTuple):
    """Why a policy is not accepted at a target, and what to do."""

    reason: str
    field: str
    value: str
    detail: str

    @property
    def message(self) -> str:
        """What the condition says."""
        what = " ".join(filter(None, (self.field, values.shortened(self.value))))
        return f"{what}: {self.detail}" if what else self.detail


class DecidedPolicy(NamedTuple):
    """One policy: what its status says, and what of it is refused."""

    status: ObjectStatus
    refused: tuple[Refusal, ...]


_Overridden = tuple[tuple[object, OverriddenWord], ...]


class DecidedPolicies:
    """All RoutePolicies, once it is known what counts for the objects of all presets."""

    def __init__(self, objects: Objects, uses: Sequence[PolicyUse]) -> None:
        self._objects, self._uses, self._attached = objects, uses, objects.attached
        overridden = Joined[Any, OverriddenWord](*(each.overridden for each in uses), name="overridden words")
        self._overridden = Grouped(
            overridden, lambda _, each: (each.policy,), "overridden words by policy", rank=_by_object
        )
        self.decided = Derived(objects.attached.read, self._decide, "decisions on RoutePolicies")
        self.statuses = Derived(self.decided, lambda _, __, each: each.status, "statuses of RoutePolicies")
        self.refused = Derived(self.decided, lambda _, __, each: each.refused or None, "conditions of RoutePolicies")

    def _decide(self, read: Read, id_: ObjectKey, policy: ReadPolicy) -> DecidedPolicy:
        meta = policy.meta
        ref = ObjectRef(
            POLICY_KIND, values.shortened(meta.namespace), values.shortened(meta.name), self._objects.cluster
        )
        overridden: _Overridden = read(self._overridden, id_.key) or ()
        faults: dict[PolicyFault, None] = dict.fromkeys(self._invalid(read, policy) if not policy.references else ())
        ancestors = []
        for place, reference in enumerate(policy.references):
            fault = self._fault(read, id_, policy, place)
            note = ""
            if fault is None:
                fault, note = _of_overridden(policy, reference, [each for _, each in overridden])
            ancestors.append(_ancestor(reference, fault, note, meta.namespace, meta.generation))
            if fault is not None and fault.reason != "Overridden":
                faults[fault] = None
        refused = (
            Refusal(
                ref,
                each.field,
                values.shortened(each.value),
                _REASONS.get(each.reason, RefusalReason.INVALID_VALUE),
                each.detail,
            )
            for each in faults
        )
        status = ObjectStatus(meta.uid, meta.generation, {"ancestors": ancestors}, GATEWAY_CONTROLLER)
        return DecidedPolicy(status, tuple(dict.fromkeys(refused)))

    def _invalid(self, read: Read, policy: ReadPolicy, kind: str = "HTTPRoute") -> Iterator[PolicyFault]:
        """Return what is wrong with a policy itself, where it is for a kind of object."""
        if policy.too_many:
            detail = f"more than {MOST_TARGETS} targets: make several policies of it"
            yield PolicyFault("Invalid", f"spec.{TARGETS}", "", detail)
        claims = read.value(self._objects.policy)
        _, faults = asked_of(policy.words, kind, claims, users_of=partial(self._objects.with_users, read))
        for each in faults:
            yield PolicyFault("Invalid", f"spec{each.source.partition(' spec')[2]}", each.text, each.why)

    def _fault(self, read: Read, id_: ObjectKey, policy: ReadPolicy, place: int) -> PolicyFault | None:
        """Return why a policy does not count, or not as a whole, at one of its targets."""
        reference = policy.references[place]
        field, target = f"spec.{TARGETS}[{place}]", reference.target
        if target is None:
            return PolicyFault("Invalid", field, reference.kind, reference.wrong)
        if wrong := self._missing(read, target):
            return PolicyFault("TargetNotFound", field, reference.name, wrong)
        kind = KIND_OF[target.object.resource]
        if invalid := next(self._invalid(read, policy, kind if kind in KINDS else "HTTPRoute"), None):
            return invalid
        claimants = read(self._attached.by_target, target) or ()
        if any((at[0] == id_) for at, _ in claimants[MOST_POLICIES:]):
            return PolicyFault("Conflicted", field, reference.name, f"{MOST_POLICIES} older policies have this target")
        older: dict[str, str] = {}
        for (other, _), each in claimants:
            if other == id_:
                break
            for word in each.words:
                older.setdefault(word.name, other.key.name)
        taken = [each.name for each in policy.words if each.name in older]
        if not taken:
            return None
        rest = "; its other words count" if len(taken) < len(policy.words) else ""
        detail = f"{POLICY_KIND} {older[taken[0]]}, the older one, says {_fields(taken)} for this target already{rest}"
        return PolicyFault("Conflicted", field, reference.name, detail)

    def _missing(self, read: Read, target: PolicyTarget) -> str:
        """Return why a target is none, "" where it is one."""
        objects, (resource, key) = self._objects, target.object
        kind, id_ = KIND_OF[resource], target.object
        found: Any
        if resource is Resource.SERVICES:
            service = read(objects.declared, key)
            found = service.object if service is not None else None
        elif resource is Resource.INGRESSES:
            found = read(objects.ingresses, key)
        elif resource is Resource.GATEWAYS:
            found = read(objects.gateways, id_)
        elif resource is Resource.LISTENERSETS:
            found = read(objects.listener_sets, id_)
        else:
            found = read(objects.routes, id_)
        if found is None:
            return f"there is no {kind} of this name in the namespace of the policy"
        if not any(each.serves(read, id_) for each in self._uses) and resource is not Resource.SERVICES:
            return f"the {kind} is not served by pyconfd: explain it to see why"
        if not target.section:
            return ""
        is_of_routes = resource in {Resource.HTTPROUTES, Resource.GRPCROUTES}
        parts = found.spec.rules or () if is_of_routes else found.spec.listeners or ()
        if any(each.name == target.section for each in parts):
            return ""
        return f"the {kind} has no {'rule' if is_of_routes else 'listener'} with the name of sectionName"


def _by_object(at: object, word: OverriddenWord) -> tuple[str, str, str, str]:
    return word.at, word.word, word.by, repr(at)


def _fields(words: Iterable[str]) -> str:
    names = [values.shortened(field_of(each) if each in WORDS else each) for each in dict.fromkeys(words)]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _of_overridden(
    policy: ReadPolicy, reference: TargetReference, overridden: Sequence[OverriddenWord]
) -> tuple[PolicyFault | None, str]:
    """Return that nothing of a policy counts at a target, or a note on what of it does not count everywhere."""
    mine = [each for each in overridden if each.target == reference.target]
    if not mine:
        return None, ""
    first, objects = mine[0], len({each.at for each in mine})
    others = f" and {objects - 1} more" if objects > 1 else ""
    what = f"{_fields(each.word for each in mine)} of {first.at}{others}"
    said = f"overridden for {what}, since more specific: {first.by}"
    if {each.name for each in policy.words} <= {each.word for each in mine if each.everywhere}:
        return PolicyFault("Overridden", "", "", said), ""
    return None, said


def _ancestor(
    reference: TargetReference, fault: PolicyFault | None, note: str, namespace: str, generation: int
) -> dict[str, Any]:
    target = reference.target
    body = {
        "group": GROUP_OF[target.object.resource] if target is not None else reference.group,
        "kind": reference.kind,
        "namespace": namespace,
        "name": reference.name,
        **({"sectionName": reference.section} if reference.section else {}),
    }
    condition = {
        "type": "Accepted",
        "status": "True" if fault is None else "False",
        "reason": "Accepted" if fault is None else fault.reason,
        "message": (note if fault is None else fault.message)[:_LONGEST_MESSAGE],
        "observedGeneration": generation,
    }
    return {"ancestorRef": body, "controllerName": GATEWAY_CONTROLLER, "conditions": [condition]}
