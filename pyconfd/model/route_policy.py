"""The kind RoutePolicy of pyconfd.io: words of policies for objects of its namespace."""

from typing import Any

import msgspec

from pyconfd.model.records import ObjectMeta, Record, Status

POLICY_GROUP = "pyconfd.io"
POLICY_KIND = "RoutePolicy"


class RoutePolicyObject(Record, frozen=True, gc=False):
    """A RoutePolicy; ``spec`` is as the API has it, since each word is a field."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: Status | None = None
