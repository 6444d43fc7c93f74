"""What all records of Kubernetes objects have in common.

Every record is frozen and untracked by the garbage collector (``gc=False``): records hold only strings, numbers, JSON
and other records, so no reference cycle can pass through them.
"""

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A part of an object, under the API's own names in snake_case; fields that are not listed are not kept."""


class ObjectMeta(Record, frozen=True, gc=False):
    """``creation_timestamp`` and ``deletion_timestamp`` are RFC 3339 in UTC, so they sort as text.

    ``generation`` grows with each change of the spec, and not with the status; 0 for kinds that do not count it.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class LabelRequirement(Record, frozen=True, gc=False):
    """``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True, gc=False):
    """Objects that have all labels and meet all requirements; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] = ()


Status = dict[str, Any]
"""What stands under ``status`` of an object, as the API has it: the writer of status keeps what it does not know."""
