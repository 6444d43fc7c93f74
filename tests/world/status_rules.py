"""What the API server demands of the status of routes, Gateways and their like.

Source: the required fields, patterns and limits in the CustomResourceDefinitions of the Gateway API.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tests.world.resources import Resource
from tests.world.statuses import invalid

Obj = dict[str, Any]
_REQUIRED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "conditions": ("lastTransitionTime", "message", "reason", "status", "type"),
        "listeners": ("attachedRoutes", "conditions", "name"),
        "parents": ("conditions", "controllerName", "parentRef"),
        "ancestors": ("ancestorRef", "conditions", "controllerName"),
        "supportedFeatures": ("name",),
        "supportedKinds": ("kind",),
    }
)
_MOST: Mapping[str, int] = MappingProxyType(
    {
        "conditions": 8,
        "listeners": 64,
        "parents": 32,
        "ancestors": 16,
        "supportedFeatures": 64,
        "supportedKinds": 8,
        "addresses": 16,
    }
)
_RULES_NOT_CHECKED = (
    "<nil>",
    (
        "Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    ),
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_REASON, _LONGEST_MESSAGE = 1024, 32768


def validate_status(resource: Resource, obj: Obj) -> None:
    """Raises: ApiError: 422 with all faults in one message."""
    faults = list(_faults(obj.get("status") or {}, "status"))
    if faults:
        raise invalid(resource.kind, resource.group, obj["metadata"]["name"], [*faults, _RULES_NOT_CHECKED])


def _faults(node: Any, at: str) -> Iterator[tuple[str, str]]:
    for name, value in node.items() if isinstance(node, dict) else ():
        path = f"{at}.{name}"
        if not isinstance(value, list):
            yield from _faults(value, path)
            continue
        if len(value) > _MOST.get(name, len(value)):
            yield path, f"Too many: {len(value)}: must have at most {_MOST[name]} items"
        for number, item in enumerate(value):
            here = f"{path}[{number}]"
            yield from ((f"{here}.{each}", "Required value") for each in _REQUIRED.get(name, ()) if each not in item)
            if name == "conditions":
                yield from _condition_faults(item, here)
            yield from _faults(item, here)


def _condition_faults(condition: Obj, at: str) -> Iterator[tuple[str, str]]:
    reason, time = condition.get("reason", "x"), condition.get("lastTransitionTime")
    if condition.get("status", "True") not in {"True", "False", "Unknown"}:
        yield f"{at}.status", f'Unsupported value: "{condition["status"]}"'
    if not _REASON.fullmatch(reason) or len(reason) > _LONGEST_REASON:
        yield f"{at}.reason", f'Invalid value: "{reason}"'
    if time is not None and not _TIME.fullmatch(time):
        yield f"{at}.lastTransitionTime", f'Invalid value: "{time}": must be of type date-time'
    if len(condition.get("message", "")) > _LONGEST_MESSAGE:
        yield f"{at}.message", f"Too long: may not be more than {_LONGEST_MESSAGE} bytes"
