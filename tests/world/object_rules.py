"""What the API server demands of a core/v1 Event, and of a Lease.

Source: ``legacyValidateEvent`` in Kubernetes' pkg/apis/core/validation/events.go: with an ``eventTime`` the fields of
events.k8s.io/v1 are required too.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.world.statuses import ApiError

_LONGEST_NAME = 128
_LONGEST_NOTE = 1024
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def validate_event(event: dict[str, Any]) -> None:
    """Raises: ApiError: 400 for what does not decode, 422 for what is invalid, all faults in one message."""
    for name, form in (("eventTime", _MICRO_TIME),):
        value = event.get(name)
        if value is not None and not form.fullmatch(value):
            raise ApiError(400, f'Event in version "v1" cannot be handled as a Event: parsing time "{value}"')
    faults = list(_faults(event))
    if faults:
        name = event["metadata"].get("name", "")
        raise ApiError(422, f'Event "{name}" is invalid: {"; ".join(faults)}')


def validate_lease(spec: dict[str, Any]) -> None:
    """Raises: ApiError: 400 for a time that does not decode, 422 for numbers out of range.

    Source: ``ValidateLeaseSpec`` in Kubernetes' pkg/apis/coordination/validation.
    """
    for name in ("acquireTime", "renewTime"):
        if spec.get(name) is not None and not _MICRO_TIME.fullmatch(spec[name]):
            raise ApiError(400, f'Lease in version "v1" cannot be handled as a Lease: {_unparsed(spec[name])}')
    for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        if spec.get(name, least) < least:
            raise ApiError(422, f"Lease is invalid: spec.{name}: Invalid value: {spec[name]}: must be at least {least}")


def _unparsed(time: str) -> str:
    return f'parsing time "{time}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "{time}" as "2006"'


def _faults(event: dict[str, Any]) -> Iterator[str]:
    metadata, involved = event["metadata"], event.get("involvedObject") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        yield f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain'
    about = involved.get("namespace", "")
    if namespace != (about or "default"):
        yield f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
    if not event.get("eventTime"):
        return
    needed: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("reportingComponent", lambda text: bool(_QUALIFIED.fullmatch(text))),
        ("reportingInstance", lambda text: len(text) <= _LONGEST_NAME),
        ("action", lambda text: len(text) <= _LONGEST_NAME),
        ("reason", lambda text: len(text) <= _LONGEST_NAME),
    )
    for field, fits in needed:
        value = event.get(field, "")
        if not value:
            yield f"{field}: Required value"
        elif not fits(value):
            yield f'{field}: Invalid value: "{value}"'
    if len(event.get("message", "").encode()) > _LONGEST_NOTE:
        yield f"message: Invalid value: can have at most {_LONGEST_NOTE} bytes"
    if event.get("type") not in {"Normal", "Warning"}:
        yield f'type: Invalid value: "{event.get("type", "")}": must be Normal or Warning'
