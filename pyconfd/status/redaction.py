"""What may never leave the process in a log line, a metric or the status page."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyconfd.model.context import Refusal
from pyconfd.model.secrets import names_secret
from pyconfd.system.secrecy import HIDDEN, redacted

__all__ = ["HIDDEN", "public_refusal", "public_value", "redacted"]


def public_value(value: Any) -> Any:
    """Return ``value`` as JSON can hold it, redacted; a mapping's value is hidden where its key names a secret.

    ``token`` names one, ``token_file`` does not.
    """
    match value:
        case str():
            return redacted(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {
                str(key): HIDDEN if held and names_secret(str(key)) else public_value(held)
                for key, held in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [public_value(item) for item in value]
        case _:
            return redacted(str(value))


def public_refusal(refusal: Refusal) -> Refusal:
    """Return a refusal without secrets."""
    value = HIDDEN if refusal.ref.kind == "Secret" and refusal.value else redacted(refusal.value)
    return replace(refusal, value=value, detail=redacted(refusal.detail))
