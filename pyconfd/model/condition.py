"""Conditions of a claim, in the words of the Gateway API: which stage it has passed, and why it has not."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.context import Refusal, RefusalReason


class ConditionType(StrEnum):
    """The stages of a claim, in their order."""

    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    RENDERED = "Rendered"
    PROGRAMMED = "Programmed"


class ConditionStatus(StrEnum):
    """Whether a stage is passed; unknown where an earlier stage decides, or where it cannot be seen from here."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One stage of a claim. ``reason`` is one CamelCase word, ``message`` is for people.

    ``since`` is when this daemon first saw it, in seconds since the epoch; 0.0 where that is not known.
    """

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""
    since: float = 0.0


class Age(NamedTuple):
    """Since when something is refused; ``at_least`` where it was so when the daemon looked for the first time."""

    since: float
    at_least: bool = False


_OTHERWISE: Mapping[RefusalReason, ConditionType] = MappingProxyType(
    {
        RefusalReason.FORBIDDEN: ConditionType.RESOLVED_REFS,
        RefusalReason.NO_SUCH_PORT: ConditionType.RESOLVED_REFS,
        RefusalReason.NO_NODE_PORT: ConditionType.RESOLVED_REFS,
        RefusalReason.NO_SUCH_SERVICE: ConditionType.RESOLVED_REFS,
        RefusalReason.NO_SUCH_ADDRESS: ConditionType.RESOLVED_REFS,
        RefusalReason.NO_CERTIFICATE: ConditionType.RESOLVED_REFS,
        RefusalReason.CERTIFICATE_MISMATCH: ConditionType.RESOLVED_REFS,
        RefusalReason.CERTIFICATE_EXPIRES_SOON: ConditionType.RESOLVED_REFS,
        RefusalReason.CERTIFICATE_EXPIRES_NOW: ConditionType.RESOLVED_REFS,
        RefusalReason.CERTIFICATE_EXPIRED: ConditionType.RESOLVED_REFS,
        RefusalReason.BAD_TEMPLATE: ConditionType.RENDERED,
        RefusalReason.QUARANTINED: ConditionType.RENDERED,
        RefusalReason.INTERNAL_ERROR: ConditionType.RENDERED,
    }
)


def type_of(reason: RefusalReason) -> ConditionType:
    """Return the stage at which objects are refused for this reason; most are not accepted in the first place."""
    return _OTHERWISE.get(reason, ConditionType.ACCEPTED)


def condition_of_refusal(refusal: Refusal, since: float = 0.0) -> Condition:
    """Return the condition that a refusal sets on the claims of its object; that of a note is true."""
    reason = "".join(word.capitalize() for word in refusal.reason.split("_"))
    what = " ".join(filter(None, (refusal.field, refusal.value)))
    message = f"{what}: {refusal.detail}" if what else refusal.detail
    status = ConditionStatus.TRUE if refusal.reason.is_note else ConditionStatus.FALSE
    return Condition(type_of(refusal.reason), status, reason, message, since)
