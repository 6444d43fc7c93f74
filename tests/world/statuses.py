"""Errors of the API as the API writes them: Status objects."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from tests.world.requests import Target

Obj = dict[str, Any]

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ApiError(Exception):
    """An answer that is a Status object with ``status: Failure``, or plain text."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or REASONS.get(code, "")
        self.details = details
        self.metadata = metadata or {}
        self.plain = plain

    def status(self) -> Obj:
        """The Status object, its keys in the order of the real server."""
        body: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            body["details"] = dict(self.details)
        return body | {"code": self.code}

    def body(self) -> bytes:
        """The Status as JSON, or the text."""
        return f"{self.message}\n".encode() if self.plain else msgspec.json.encode(self.status())


def not_found(resource: str, name: str, group: str = "") -> ApiError:
    """404 for an object that does not exist."""
    qualified = f"{resource}.{group}" if group else resource
    details = {"name": name} | ({"group": group} if group else {}) | {"kind": resource}
    return ApiError(404, f'{qualified} "{name}" not found', details=details)


def invalid(kind: str, group: str, name: str, faults: Sequence[tuple[str, str]], *, plural: str = "") -> ApiError:
    """422 for fields, each with what is wrong with it: "Required value", "Invalid value: ..."."""
    causes = [
        {"reason": "FieldValue" + words.partition(" ")[0], "message": words, "field": field} for field, words in faults
    ]
    texts = [f"{field}: {words}" for field, words in faults]
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{plural or kind}.{group}" if group else plural or kind
    details = {"name": name} | ({"group": group} if group else {}) | {"kind": plural or kind, "causes": causes}
    return ApiError(422, f'{qualified} "{name}" is invalid: {shown}', details=details)


def conflict(resource: str, group: str, name: str, why: str, *, reason: str = "") -> ApiError:
    """409 for one object; ``why`` is the sentence."""
    details = {"name": name} | ({"group": group} if group else {}) | {"kind": resource}
    return ApiError(409, why, reason=reason, details=details)


def no_such_path() -> ApiError:
    """404 for a path the server does not know: a text, no Status."""
    return ApiError(404, "404 page not found", plain=True)


def unauthorized() -> ApiError:
    """401 as for a bad token."""
    return ApiError(401, "Unauthorized")


def forbidden(user: str, target: "Target") -> ApiError:
    """403 as RBAC words it."""
    kind, name = target.resource, target.name
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    what = f'cannot {target.verb} resource "{target.full_resource}" in API group "{kind.group}" {scope}'
    details = ({"name": name} if name else {}) | ({"group": kind.group} if kind.group else {}) | {"kind": kind.plural}
    return ApiError(403, f'{subject} is forbidden: User "{user}" {what}', details=details)


def too_old(rv: int, oldest: int) -> ApiError:
    """410 of a watch whose resourceVersion was compacted."""
    return ApiError(410, f"too old resource version: {rv} ({oldest})")
